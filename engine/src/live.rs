//! The endpoints of this process, and what a child made by fork(2) is to know of them.

use crate::Shared;
use std::sync::{Arc, Mutex, MutexGuard, Once, Weak};

static LIVE: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

/// Those that are in use.
pub fn all() -> Vec<Arc<Shared>> {
    let mut live = live();
    live.retain(|w| w.strong_count() > 0);
    live.iter().filter_map(Weak::upgrade).collect()
}

/// One more, for as long as it lives.
pub fn add(shared: Weak<Shared>) {
    static ONCE: Once = Once::new();
    // SAFETY: the function is as long in memory as this library, with which the system forgets it.
    // (Where the system has no memory for this, children are left to their own good sense.)
    ONCE.call_once(|| _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) });
    live().push(shared);
}

/// A child has copies of the endpoints: their sockets, memory and descriptors are the parent's, who
/// would miss what the child takes. So there they are out of order from the beginning.
unsafe extern "C" fn in_child() {
    // (Held by another thread of the parent, which is making an endpoint, it is held for ever.)
    if let Ok(live) = LIVE.try_lock() {
        live.iter().filter_map(Weak::upgrade).for_each(|shared| shared.abandon());
    }
}

fn live() -> MutexGuard<'static, Vec<Weak<Shared>>> {
    LIVE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

//! The endpoints of this process.

use crate::Shared;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

static LIVE: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

/// Those that are in use.
pub fn all() -> Vec<Arc<Shared>> {
    let mut live = live();
    live.retain(|w| w.strong_count() > 0);
    live.iter().filter_map(Weak::upgrade).collect()
}

/// One more, for as long as it lives.
pub fn add(shared: Weak<Shared>) {
    live().push(shared);
}

fn live() -> MutexGuard<'static, Vec<Weak<Shared>>> {
    LIVE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

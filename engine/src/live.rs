//! The endpoints of this process.

use crate::{Lock, Shared};
use std::sync::{Arc, Weak};

/// Locked after what closed endpoints carried, where both are (`forked.rs`).
pub static LIVE: Lock<Vec<Weak<Shared>>> = Lock::new(Vec::new());

/// Those that are in use.
pub fn all() -> Vec<Arc<Shared>> {
    let mut live = LIVE.lock();
    live.retain(|w| w.strong_count() > 0);
    live.iter().filter_map(Weak::upgrade).collect()
}

/// One more, for as long as it lives.
pub fn add(shared: Weak<Shared>) {
    LIVE.lock().push(shared);
}

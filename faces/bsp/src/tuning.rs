//! What `weir tune` changes between supersteps, and what it looks at. Of this process; all of a
//! program are to change alike.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
pub use weir_engine::OwnQueue;

static OWN_QUEUE: Mutex<Option<OwnQueue>> = Mutex::new(None);
static TOLD: AtomicU64 = AtomicU64::new(0);

/// From the next superstep on, whatever `WEIR_BSP_QUEUE` says.
pub fn set_own_queue(queue: OwnQueue) {
    *OWN_QUEUE.lock().unwrap_or_else(PoisonError::into_inner) = Some(queue);
}

/// How often the engine was told of a superstep so far: never, if no packets carry anything long.
#[must_use]
pub fn told() -> u64 {
    TOLD.load(Ordering::Relaxed)
}

/// What may wait, if that was set here.
pub(crate) fn own_queue() -> Option<OwnQueue> {
    *OWN_QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// It is told of one.
pub(crate) fn telling() {
    TOLD.fetch_add(1, Ordering::Relaxed);
}

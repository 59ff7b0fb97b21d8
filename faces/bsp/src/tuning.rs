//! What `weir tune` changes between supersteps, and what it looks at. Of this process; all of a
//! program are to change alike.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
pub use weir_engine::OwnQueue;

/// The longest slot that can be named, microseconds (`WEIR_BSP_SLOT`): a packet that takes a second
/// is on no medium that anybody has.
pub const MOST_SLOT_US: u64 = 1_000_000;

/// A value of one setting, in place of what the environment says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tried {
    /// Of `WEIR_BSP_QUEUE`.
    Queue(OwnQueue),
    /// Of `WEIR_BSP_SLOT`, microseconds; 0: as if it was not set.
    SlotUs(u64),
}

static TRIED: Mutex<Option<Tried>> = Mutex::new(None);
static TOLD: AtomicU64 = AtomicU64::new(0);

/// From the next superstep on, whatever the setting's variable says. What was tried before of
/// another setting no longer holds.
pub fn try_out(value: Tried) {
    *TRIED.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
}

/// How often the engine was told of a superstep so far: never, if no packets carry anything long.
#[must_use]
pub fn told() -> u64 {
    TOLD.load(Ordering::Relaxed)
}

fn tried() -> Option<Tried> {
    *TRIED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What may wait, if that is tried; else what is set.
pub(crate) fn own_queue(set: Option<OwnQueue>) -> Option<OwnQueue> {
    match tried() {
        Some(Tried::Queue(queue)) => Some(queue),
        _ => set,
    }
}

/// The length of a slot, if that is tried; else what is set.
pub(crate) fn slot_ns(set: Option<u64>) -> Option<u64> {
    match tried() {
        Some(Tried::SlotUs(us)) => (us > 0).then_some(us * 1000),
        _ => set,
    }
}

/// It is told of one.
pub(crate) fn telling() {
    TOLD.fetch_add(1, Ordering::Relaxed);
}

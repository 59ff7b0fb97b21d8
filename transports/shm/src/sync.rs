//! The atomics that rings are made of: the processor's, or under `--cfg loom` the model checker's,
//! so that the code that ships is the code that is checked.

#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Stores `value` so that all that was written before is seen by who sees it, and so that no later
/// load of this thread is done before it.
#[inline]
pub fn store_then_fence(word: &AtomicU64, value: u64) {
    // One instruction (xchg) where a store and mfence would be two and slower. A sequentially
    // consistent exchange and the other side's fence are both in the one order of C++20
    // [atomics.order] 4; loom knows only the fences of that order.
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
    word.swap(value, Ordering::SeqCst);
    #[cfg(any(not(target_arch = "x86_64"), loom, miri))]
    {
        word.store(value, Ordering::Release);
        fence(Ordering::SeqCst);
    }
}

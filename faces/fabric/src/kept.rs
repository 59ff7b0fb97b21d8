//! What an object of this face keeps behind a lock that a child made by fork(2) may find locked.

use crate::abi::FI_EOPBADSTATE;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, TryLockError};

/// A value behind a lock. In a child a lock that is held may be so by a thread that only the parent
/// has: then it is for ever, and the value may be half changed.
pub struct Kept<T> {
    value: ManuallyDrop<Mutex<T>>,
    /// The process that made it, or used it first; 0: none has yet.
    pid: AtomicU32,
}

impl<T> Kept<T> {
    /// Unlocked.
    pub fn new(value: T) -> Kept<T> {
        Kept::of(value, std::process::id())
    }

    /// Unlocked, and of the process that uses it first: for a static.
    pub const fn unused(value: T) -> Kept<T> {
        Kept::of(value, 0)
    }

    const fn of(value: T, pid: u32) -> Kept<T> {
        Kept { value: ManuallyDrop::new(Mutex::new(value)), pid: AtomicU32::new(pid) }
    }

    /// The way in.
    ///
    /// # Errors
    /// `FI_EOPBADSTATE` where a panic or fork(2) left the value half changed.
    pub fn lock(&self) -> Result<MutexGuard<'_, T>, i32> {
        if self.pid.load(Relaxed) == 0 {
            self.pid.store(std::process::id(), Relaxed);
        }
        match self.value.try_lock() {
            Ok(guard) => Ok(guard),
            Err(TryLockError::WouldBlock) if !self.is_inherited() => self.value.lock().map_err(|_| FI_EOPBADSTATE),
            Err(_) => Err(FI_EOPBADSTATE),
        }
    }

    /// Whether this is a copy of what the process had that this one was forked from.
    pub fn is_inherited(&self) -> bool {
        ![0, std::process::id()].contains(&self.pid.load(Relaxed))
    }
}

impl<T: Default> Default for Kept<T> {
    fn default() -> Kept<T> {
        Kept::new(T::default())
    }
}

impl<T> Drop for Kept<T> {
    fn drop(&mut self) {
        if self.is_inherited() && matches!(self.value.try_lock(), Err(TryLockError::WouldBlock)) {
            // Half changed, it is not to be touched.
            return;
        }
        // SAFETY: dropped once, and not used any more.
        unsafe { ManuallyDrop::drop(&mut self.value) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maybe_lock::MaybeLock;
    use crate::tests::forks::status_of_child;

    /// Whether it is dropped.
    struct Told<'a>(&'a std::cell::Cell<bool>);

    impl Drop for Told<'_> {
        fn drop(&mut self) {
            self.0.set(true);
        }
    }

    #[test]
    fn a_child_is_refused_what_was_locked_at_the_fork_and_leaves_it_alone() {
        let dropped = std::cell::Cell::new(false);
        let kept = ManuallyDrop::new(Kept::new(Told(&dropped)));
        // As another thread of the parent's does, which the child does not have.
        let held = kept.lock().expect("in order");
        let status = status_of_child(|| {
            let is_refused = kept.lock().err() == Some(FI_EOPBADSTATE);
            // SAFETY: it is not used any more in the child.
            drop(unsafe { std::ptr::read(&*kept) });
            is_refused && !dropped.get()
        });
        drop(held);
        assert_eq!(status, 0);
        assert_eq!(status_of_child(|| kept.lock().is_ok()), 0, "what nobody held is as it was");
        drop(ManuallyDrop::into_inner(kept));
        assert!(dropped.get());
    }

    #[test]
    fn a_child_is_refused_a_queue_that_was_locked_at_the_fork_and_leaves_it_alone() {
        let dropped = std::cell::Cell::new(false);
        // SAFETY: with its lock.
        let queue = ManuallyDrop::new(unsafe { MaybeLock::new(Told(&dropped), true) });
        let held = queue.lock().expect("in order");
        let status = status_of_child(|| {
            let is_refused = queue.lock().err() == Some(FI_EOPBADSTATE);
            // SAFETY: it is not used any more in the child.
            drop(unsafe { std::ptr::read(&*queue) });
            is_refused && !dropped.get()
        });
        drop(held);
        assert_eq!(status, 0);
        assert_eq!(status_of_child(|| queue.lock().is_ok()), 0, "what nobody held is as it was");
        drop(ManuallyDrop::into_inner(queue));
        assert!(dropped.get());
    }
}

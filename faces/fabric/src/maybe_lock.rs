//! A lock that is left out when the application has promised to serialise its calls (`FI_THREAD_DOMAIN`, `FI_THREAD_COMPLETION`).

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

/// A value, and a lock if one is needed.
pub struct MaybeLock<T> {
    needed: bool,
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: with `needed`, `taken` lets one thread in at a time; without, the application has promised that (see `new`).
unsafe impl<T: Send> Sync for MaybeLock<T> {}

/// Access until dropped.
pub struct Guard<'a, T> {
    lock: &'a MaybeLock<T>,
}

impl<T> MaybeLock<T> {
    /// # Safety
    /// With `needed == false` nobody calls [`MaybeLock::lock`] from two threads at once, nor twice from one.
    pub unsafe fn new(value: T, needed: bool) -> Self {
        MaybeLock { needed, taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Waits for access.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        if self.needed {
            let mut tries = 0u32;
            while self.taken.swap(true, Ordering::Acquire) {
                tries += 1;
                if tries < 64 {
                    std::hint::spin_loop();
                } else {
                    std::thread::yield_now();
                }
            }
        }
        Guard { lock: self }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: one guard at a time, see `MaybeLock::new`.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: one guard at a time, see `MaybeLock::new`.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.lock.needed {
            self.lock.taken.store(false, Ordering::Release);
        }
    }
}

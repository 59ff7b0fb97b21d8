//! The endpoint's lock: one atomic exchange when nobody else wants it, yielding when somebody does.
//!
//! The caller's thread holds it for the length of one call; the watchdog thread takes it only when
//! the caller has been away. So contention is rare and short, except under many-threaded callers,
//! for whom waiting yields the core rather than spins through a time slice.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

/// A value behind the lock.
pub struct Lock<T> {
    taken: AtomicBool,
    /// A panic dropped a guard: the value may be half changed.
    poisoned: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only through a guard, of which there is one at a time (`taken`, or
// the promise made to `assume`).
unsafe impl<T: Send> Sync for Lock<T> {}

/// Exclusive access until dropped, by the thread that took it.
///
/// It lends `&T`, so threads may share it only where they may share the value. What the compiler
/// would conclude from the reference to the lock, `Sync` for whatever is `Send`, is a data race:
///
/// ```compile_fail,E0277
/// fn shared(_: impl Sync) {}
/// shared(weir_engine::Lock::new(std::cell::Cell::new(0)).lock());
/// ```
///
/// It stays on its thread, for whether it is dropped by a panic is asked of the thread that drops
/// it:
///
/// ```compile_fail,E0277
/// fn sent(_: impl Send) {}
/// sent(weir_engine::Lock::new(0).lock());
/// ```
///
/// Anything else may be done with it:
///
/// ```
/// fn shared(_: impl Sync) {}
/// shared(weir_engine::Lock::new(0).lock());
/// ```
pub struct Guard<'a, T> {
    lock: &'a Lock<T>,
    /// Neither `Send` nor, by itself, `Sync`.
    here: PhantomData<*mut T>,
    /// The thread was unwinding when it took the lock (a destructor does): that it still is when it
    /// lets go says nothing.
    unwound: bool,
}

// SAFETY: a shared guard gives out `&T` and nothing else (`DerefMut` and dropping need it whole).
unsafe impl<T: Sync> Sync for Guard<'_, T> {}

impl<'a, T> Guard<'a, T> {
    /// The access itself: whoever calls this has it alone.
    #[inline]
    fn new(lock: &'a Lock<T>) -> Guard<'a, T> {
        Guard { lock, here: PhantomData, unwound: std::thread::panicking() }
    }

    /// Whether a panic that began while this guard was held is dropping it.
    #[inline]
    #[must_use]
    pub fn is_unwound(&self) -> bool {
        std::thread::panicking() && !self.unwound
    }
}

impl<T> Lock<T> {
    /// An unlocked value.
    pub const fn new(value: T) -> Self {
        Lock { taken: AtomicBool::new(false), poisoned: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Waits for the lock.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        let mut tries = 0u32;
        loop {
            if !self.taken.swap(true, Ordering::Acquire) {
                return Guard::new(self);
            }
            tries += 1;
            if tries < 64 {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
    }

    /// Access without waiting, for a face whose callers take turns by themselves.
    ///
    /// # Safety
    /// No other guard exists, and none is made until this one is dropped.
    #[inline]
    pub unsafe fn assume(&self) -> Guard<'_, T> {
        Guard::new(self)
    }

    /// Whether a panic has ended somebody's access before its end: from then on the value may be
    /// half changed, and is for looking at only. To be asked with the lock held, or to know early.
    #[inline]
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Relaxed)
    }

    /// In a child made by fork(2), which has one thread: whoever held the lock does so elsewhere,
    /// and the value may be half changed.
    pub fn abandon(&self) {
        self.poisoned.store(true, Ordering::Relaxed);
        self.taken.store(false, Ordering::Release);
    }

    /// In a child made by fork(2): another value, unlocked. What the old one holds is left alone,
    /// for whoever held the lock may have left it half changed.
    ///
    /// # Safety
    /// No guard exists in this process.
    pub(crate) unsafe fn renew(&self, value: T) {
        // SAFETY: nobody else has access (caller). The old value is not dropped.
        unsafe { self.value.get().write(value) };
        self.taken.store(false, Ordering::Release);
    }

    /// Takes the lock if it is free.
    #[inline]
    #[must_use]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        // Not `then_some`: it would make (and drop, that is unlock) a guard even when the lock is
        // another's.
        (!self.taken.swap(true, Ordering::Acquire)).then(|| Guard::new(self))
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one (`taken` was false and is now true, or `assume`'s
        // caller says so).
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard is the only one (`taken` was false and is now true, or `assume`'s
        // caller says so).
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.is_unwound() {
            self.lock.poisoned.store(true, Ordering::Relaxed);
        }
        self.lock.taken.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn counts_are_not_lost_between_threads() {
        let lock = Arc::new(Lock::new(0u64));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let lock = lock.clone();
                std::thread::spawn(move || {
                    for _ in 0..10_000 {
                        *lock.lock() += 1;
                    }
                })
            })
            .collect();
        for t in threads {
            t.join().expect("thread");
        }
        assert_eq!(*lock.lock(), 40_000);
        let held = lock.lock();
        assert!(lock.try_lock().is_none());
        assert!(lock.try_lock().is_none(), "a failed try must not unlock");
        drop(held);
        assert!(lock.try_lock().is_some());
    }

    #[test]
    fn a_panic_lets_go_and_leaves_its_mark_and_a_destructor_that_runs_in_one_does_not() {
        struct Counts<'a>(&'a Lock<u64>);
        impl Drop for Counts<'_> {
            fn drop(&mut self) {
                *self.0.lock() += 1;
            }
        }
        let (outer, inner) = (Lock::new(0u64), Lock::new(0u64));
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _counts = Counts(&outer);
            let _held = inner.lock();
            std::panic::resume_unwind(Box::new("a bug"));
        }));
        assert!(result.is_err());
        assert!(inner.is_poisoned() && inner.try_lock().is_some());
        assert!(!outer.is_poisoned() && *outer.lock() == 1);
    }
}

//! A lock that is left out when the application has promised to serialise its calls
//! (`FI_THREAD_DOMAIN`, `FI_THREAD_COMPLETION`).

use crate::abi::FI_EOPBADSTATE;
use std::mem::ManuallyDrop;
use weir_engine::{Guard, Lock};

/// A value, and whether its lock is needed.
pub struct MaybeLock<T> {
    needed: bool,
    /// The process that made it.
    pid: u32,
    lock: ManuallyDrop<Lock<T>>,
}

impl<T> MaybeLock<T> {
    /// # Safety
    /// With `needed == false` nobody calls [`MaybeLock::lock`] from two threads at once, nor twice
    /// from one.
    pub unsafe fn new(value: T, needed: bool) -> Self {
        MaybeLock { needed, pid: std::process::id(), lock: ManuallyDrop::new(Lock::new(value)) }
    }

    /// Waits for access.
    ///
    /// # Errors
    /// `FI_EOPBADSTATE` where a panic or fork(2) left the value half changed.
    #[inline]
    pub fn lock(&self) -> Result<Guard<'_, T>, i32> {
        let guard = if self.needed {
            match self.lock.try_lock() {
                Some(guard) => guard,
                None => self.wait()?,
            }
        } else {
            // SAFETY: the application has promised that there is one at a time (see `new`).
            unsafe { self.lock.assume() }
        };
        if self.lock.is_poisoned() { Err(FI_EOPBADSTATE) } else { Ok(guard) }
    }

    /// Another thread has it. In a child made by fork(2) that may be one which only the parent has:
    /// then it has it for ever.
    #[cold]
    fn wait(&self) -> Result<Guard<'_, T>, i32> {
        if self.is_inherited() { Err(FI_EOPBADSTATE) } else { Ok(self.lock.lock()) }
    }

    fn is_inherited(&self) -> bool {
        self.pid != std::process::id()
    }
}

impl<T> Drop for MaybeLock<T> {
    fn drop(&mut self) {
        if self.is_inherited() && self.lock.try_lock().is_none() {
            // Half changed, it is not to be touched.
            return;
        }
        // SAFETY: dropped once, and not used any more.
        unsafe { ManuallyDrop::drop(&mut self.lock) };
    }
}

//! A lock that is left out when the application has promised to serialise its calls
//! (`FI_THREAD_DOMAIN`, `FI_THREAD_COMPLETION`).

use crate::abi::FI_EOPBADSTATE;
use weir_engine::{Guard, Lock};

/// A value, and whether its lock is needed.
pub struct MaybeLock<T> {
    needed: bool,
    lock: Lock<T>,
}

impl<T> MaybeLock<T> {
    /// # Safety
    /// With `needed == false` nobody calls [`MaybeLock::lock`] from two threads at once, nor twice
    /// from one.
    pub unsafe fn new(value: T, needed: bool) -> Self {
        MaybeLock { needed, lock: Lock::new(value) }
    }

    /// Waits for access.
    ///
    /// # Errors
    /// `FI_EOPBADSTATE` where a panic left the value half changed.
    #[inline]
    pub fn lock(&self) -> Result<Guard<'_, T>, i32> {
        // SAFETY: the application has promised that there is one at a time (see `new`).
        let guard = if self.needed { self.lock.lock() } else { unsafe { self.lock.assume() } };
        if self.lock.is_poisoned() { Err(FI_EOPBADSTATE) } else { Ok(guard) }
    }
}

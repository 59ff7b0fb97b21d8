//! Objects as an application names them in its calls.

use crate::abi::{FI_EINVAL, Fid};

/// The structure that an object of this provider begins with, and by which C names the object.
///
/// # Safety
/// `Object` is `repr(C)` and begins with this structure, which begins with a [`Fid`] whose class is
/// `CLASS`; no other structure has that class.
pub unsafe trait Begins {
    /// What it is the beginning of.
    type Object;
    /// The class of its `Fid`.
    const CLASS: usize;
}

/// What an application gave as an object: null, or what one of this provider's functions made, not
/// yet closed.
///
/// That is what libfabric asks of its callers in every function, and a handle comes from nowhere
/// but such a call. So who has one need not say it again: it is said here, where the object is
/// looked at.
#[repr(transparent)]
pub struct Handle<F>(*mut F);

impl<F> Clone for Handle<F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F> Copy for Handle<F> {}

impl<F> Handle<F> {
    /// The handle that C has as this pointer, for tests, which call as C does.
    ///
    /// # Safety
    /// Null, or an object of this provider, not closed as long as the handle is used.
    #[cfg(test)]
    pub const unsafe fn new(fid: *mut F) -> Self {
        Handle(fid)
    }

    /// The pointer that C has.
    pub const fn raw(self) -> *mut F {
        self.0
    }
}

impl<F: Begins> Handle<F> {
    /// The object.
    ///
    /// # Errors
    /// `FI_EINVAL` for null.
    #[inline]
    pub fn get(&self) -> Result<&F::Object, i32> {
        // SAFETY: null or not closed during the call that this handle came with; the object begins
        // with what it points to (`Begins`).
        unsafe { self.0.cast::<F::Object>().as_ref() }.ok_or(FI_EINVAL)
    }
}

impl Handle<Fid> {
    /// Its class.
    ///
    /// # Errors
    /// `FI_EINVAL` for null.
    pub fn class(&self) -> Result<usize, i32> {
        // SAFETY: null or not closed during the call that this handle came with; every object
        // begins with a `Fid`.
        unsafe { self.0.as_ref() }.map(|fid| fid.fclass).ok_or(FI_EINVAL)
    }

    /// The object, if it is of the class that begins so.
    ///
    /// # Errors
    /// `FI_EINVAL` for null and for another class.
    pub fn object<F: Begins>(&self) -> Result<&F::Object, i32> {
        if self.class()? != F::CLASS {
            return Err(FI_EINVAL);
        }
        // SAFETY: not null, and the class says what it is (`Begins`); else as above.
        Ok(unsafe { &*self.0.cast::<F::Object>() })
    }
}

//! The border to C: no panic crosses it, and every error becomes one of libfabric's codes.

use crate::abi::*;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use weir_engine::{EngineError, OpError};

/// Runs the body of an entry point; a panic (a bug of ours) becomes `on_panic` instead of unwinding
/// into C code. What it left half changed knows it by its lock, and is used no more: the engine's
/// state, a queue, a counter, a vector, a domain each answer `FI_EOPBADSTATE` from then on.
#[inline]
pub fn guard<T>(on_panic: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        tell(&*payload);
        on_panic
    })
}

/// Says it once, in a line for each endpoint that is out of order now.
#[cold]
fn tell(payload: &(dyn Any + Send)) {
    // Nothing may come of it that is worse than silence.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        weir_engine::after_panic(payload).iter().for_each(|line| crate::lines::complain(line));
    }));
}

/// Result of an entry point that returns `int`.
#[inline]
pub fn int(body: impl FnOnce() -> Result<i32, i32>) -> i32 {
    guard(-FI_EOTHER, || body().unwrap_or_else(|code| -code))
}

/// Result of an entry point that returns `ssize_t`.
#[inline]
pub fn size(body: impl FnOnce() -> Result<isize, i32>) -> isize {
    guard(-(FI_EOTHER as isize), || body().unwrap_or_else(|code| -(code as isize)))
}

/// The code for a call the engine refused.
#[cold]
pub fn code_of(error: &EngineError) -> i32 {
    match error {
        EngineError::Again => FI_EAGAIN,
        EngineError::NoMemory { .. } => FI_ENOMEM,
        EngineError::PeerDown(_) => FI_EHOSTUNREACH,
        EngineError::Invalid(_) | EngineError::Name(_) | EngineError::Config { .. } => FI_EINVAL,
        EngineError::TooBig { .. } => FI_EMSGSIZE,
        EngineError::Key(_) => FI_EACCES,
        EngineError::Io { source, .. } => source.raw_os_error().unwrap_or(FI_EIO),
        EngineError::Closed | EngineError::Broken | EngineError::Inherited => FI_EOPBADSTATE,
    }
}

/// The code, and the provider's own code for `fi_cq_strerror`, of a failed operation.
pub fn codes_of(error: &OpError) -> (i32, i32) {
    match error {
        OpError::Truncated { .. } => (FI_ETRUNC, FI_ETRUNC),
        OpError::Cancelled => (FI_ECANCELED, FI_ECANCELED),
        OpError::NoMessage => (FI_ENOMSG, FI_ENOMSG),
        OpError::PeerDown(_) => (FI_EHOSTUNREACH, FI_EHOSTUNREACH),
        OpError::Access => (FI_EACCES, FI_EACCES),
        OpError::Alignment => (FI_EINVAL, FI_EINVAL),
        OpError::Socket(errno) => (FI_EIO, *errno),
    }
}

/// Text for the provider's own codes.
pub fn text_of(prov_errno: i32) -> String {
    match prov_errno {
        FI_ETRUNC => "the message was longer than the receive buffer; its front part was delivered".to_owned(),
        FI_ECANCELED => "the operation was cancelled".to_owned(),
        FI_ENOMSG => "no message matches".to_owned(),
        FI_EHOSTUNREACH => "the peer is gone or cannot be reached".to_owned(),
        FI_EINVAL => "the target's memory is not aligned to the size of the atomic type".to_owned(),
        FI_EACCES => "the target refused the key, the range or the kind of access".to_owned(),
        other => std::io::Error::from_raw_os_error(other).to_string(),
    }
}

/// Copies a text into a C buffer, cut to fit and always terminated. Returns the buffer, or null
/// when there is no room at all.
///
/// # Safety
/// `buf` is null or writable for `len` bytes.
pub unsafe fn put_text(text: &str, buf: *mut std::ffi::c_char, len: usize) -> *const std::ffi::c_char {
    if buf.is_null() || len == 0 {
        return std::ptr::null();
    }
    let n = text.len().min(len - 1);
    // SAFETY: `n < len` bytes and the terminator fit (caller).
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), buf.cast(), n);
        *buf.add(n) = 0;
    }
    buf
}

/// Writes the text for a code of ours to the caller's buffer, or returns a static one without a
/// buffer.
///
/// # Safety
/// `buf` is null or writable for `len` bytes.
pub unsafe fn error_text(
    prov_errno: std::ffi::c_int,
    buf: *mut std::ffi::c_char,
    len: usize,
) -> *const std::ffi::c_char {
    // SAFETY: passed on from the caller.
    let own = unsafe { put_text(&text_of(prov_errno), buf, len) };
    if own.is_null() { c"see fi_strerror for the error code".as_ptr() } else { own }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_code() {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        assert_eq!(int(|| panic!("a bug")), -FI_EOTHER);
        assert_eq!(size(|| Err(FI_EINVAL)), -(FI_EINVAL as isize));
        std::panic::set_hook(hook);
    }

    #[test]
    fn texts_are_cut_and_terminated() {
        let mut buf = [1 as std::ffi::c_char; 4];
        // SAFETY: the buffer has four bytes.
        unsafe { put_text("abcdef", buf.as_mut_ptr(), 4) };
        assert_eq!(buf.map(|c| c as u8), *b"abc\0");
        // SAFETY: null is allowed.
        assert!(unsafe { put_text("x", std::ptr::null_mut(), 0) }.is_null());
    }
}

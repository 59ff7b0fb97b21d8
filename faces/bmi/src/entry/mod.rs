//! The functions of C: arguments are checked here, panics end here (spec/bmi.md 2).

mod callbacks;
mod control;
mod extra;
mod post;
mod test;

pub use callbacks::*;
pub use control::*;
pub use extra::*;
pub use post::*;
pub use test::*;

use crate::addresses::AddrKey;
use crate::codes::Code;
use crate::log::tell;
use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a function; a panic, which is a defect, becomes a value instead of unwinding into C.
pub(crate) fn guard<T>(on_panic: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        // Nothing may come of telling that is worse than silence.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            weir_engine::after_panic(&*payload).iter().for_each(|line| tell(line));
            tell("a defect in weir: this library is out of order from now on");
        }));
        on_panic
    })
}

/// Runs one that returns a code.
fn int(body: impl FnOnce() -> Result<c_int, Code>) -> c_int {
    guard(-Code::EIO.0, || body().unwrap_or_else(|code| -code.0))
}

/// A text of the program.
///
/// # Safety
/// Null, or a C string that lives as long as it is used.
unsafe fn text<'a>(text: *const c_char) -> Result<Option<&'a str>, Code> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: a C string (caller).
    unsafe { CStr::from_ptr(text) }.to_str().map(Some).map_err(|_| Code::EINVAL)
}

/// A place for a result.
///
/// # Safety
/// Null, or writable.
unsafe fn put<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: writable (caller).
        unsafe { place.write(value) };
    }
}

/// The address of a number, if it is not 0.
fn address(addr: i64) -> Option<AddrKey> {
    (addr != 0).then(|| AddrKey::from_id(addr))
}

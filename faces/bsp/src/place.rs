//! Where in the program a primitive was called: a text that the header's macros make, `file:line`.

use std::ffi::{CStr, c_char};
use std::fmt;

/// Such a text of the program's, for ever valid; null where a primitive was called as a plain
/// function.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Place(*const c_char);

impl Place {
    /// Nobody knows where.
    pub const UNKNOWN: Place = Place(std::ptr::null());

    /// What the program gave.
    ///
    /// # Safety
    /// `text` is null or a C string that is never changed nor freed: a literal.
    #[must_use]
    pub unsafe fn new(text: *const c_char) -> Place {
        Place(text)
    }

    /// The text; `None`: it is not known.
    #[must_use]
    pub fn text(&self) -> Option<&'static str> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: a C string that lives for ever (`new`).
        unsafe { CStr::from_ptr(self.0) }.to_str().ok()
    }
}

impl fmt::Display for Place {
    /// `file:line: `, or nothing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text().map_or(Ok(()), |text| write!(f, "{text}: "))
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text().unwrap_or("unknown"))
    }
}

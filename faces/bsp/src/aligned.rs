//! Memory that the engine writes to and a program reads from: its address stays, and is good for
//! any type.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// A cache line.
const ALIGN: usize = 64;
/// A buffer this many times larger than what is needed now is given back.
const SHRINK: usize = 4;
/// Smaller ones are kept whatever is needed.
const KEEP_BYTES: usize = 64 << 10;

/// Such memory.
#[derive(Debug)]
pub struct Aligned {
    at: NonNull<u8>,
    capacity: usize,
}

impl Default for Aligned {
    fn default() -> Self {
        Aligned { at: NonNull::dangling(), capacity: 0 }
    }
}

impl Aligned {
    /// At least so many bytes; what was there is lost. Nobody uses the memory meanwhile.
    pub fn reserve(&mut self, bytes: usize) {
        let too_large = self.capacity > KEEP_BYTES && self.capacity / SHRINK > bytes;
        if bytes <= self.capacity && !too_large {
            return;
        }
        *self = Aligned::default();
        if bytes == 0 {
            return;
        }
        let layout = Self::layout(bytes);
        // SAFETY: the layout is not empty.
        let at = unsafe { alloc(layout) };
        let Some(at) = NonNull::new(at) else { handle_alloc_error(layout) };
        // SAFETY: fresh memory of so many bytes. (Never read before it is written, but it may be
        // looked at as bytes.)
        unsafe { at.as_ptr().write_bytes(0, bytes) };
        *self = Aligned { at, capacity: bytes };
    }

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, ALIGN).unwrap_or(Layout::new::<u8>())
    }

    /// Where it lies.
    #[must_use]
    pub fn base(&self) -> *mut u8 {
        self.at.as_ptr()
    }

    /// The first `len` bytes, or as many as there are.
    ///
    /// # Safety
    /// Nobody writes to it while the borrow lasts.
    #[must_use]
    pub unsafe fn bytes(&self, len: usize) -> &[u8] {
        // SAFETY: within the allocation, whose bytes were all set; unchanged meanwhile (caller).
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), len.min(self.capacity)) }
    }
}

impl Drop for Aligned {
    fn drop(&mut self) {
        if self.capacity > 0 {
            // SAFETY: allocated with this layout.
            unsafe { dealloc(self.at.as_ptr(), Self::layout(self.capacity)) };
        }
    }
}

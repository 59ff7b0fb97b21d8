//! The one descriptor that comes by its number.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

/// systemd's descriptors begin here (sd_listen_fds(3)).
const FIRST: RawFd = 3;

/// The first descriptor that systemd handed to this process, as our own copy.
///
/// # Errors
/// It is not open.
pub fn handed_over() -> io::Result<OwnedFd> {
    // SAFETY: only looked at for this call, which copies it if it is open and fails if it is not.
    let fd = unsafe { BorrowedFd::borrow_raw(FIRST) };
    fd.try_clone_to_owned()
}

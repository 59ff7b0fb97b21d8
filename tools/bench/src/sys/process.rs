//! Asking a child process to stop, and ending this one.

use std::io::Write;
use std::process::Child;

/// Sends SIGINT to a child; nothing if it has ended.
pub fn interrupt(child: &Child) {
    if let Ok(pid) = libc::pid_t::try_from(child.id()) {
        // SAFETY: a plain system call. The child is ours and not yet waited for, so that its number is nobody else's.
        unsafe { libc::kill(pid, libc::SIGINT) };
    }
}

/// Ends this process at once, without the last calls of libraries whose other threads may be in the middle of something.
pub fn end(code: u8) -> ! {
    let _ = std::io::stdout().flush();
    // SAFETY: a plain system call that does not come back.
    unsafe { libc::_exit(i32::from(code)) }
}

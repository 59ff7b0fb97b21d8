//! Asking a child process to stop.

use std::process::Child;

/// Sends SIGINT to a child; nothing if it has ended.
pub fn interrupt(child: &Child) {
    if let Ok(pid) = libc::pid_t::try_from(child.id()) {
        // SAFETY: a plain system call. The child is ours and not yet waited for, so that its number is nobody else's.
        unsafe { libc::kill(pid, libc::SIGINT) };
    }
}

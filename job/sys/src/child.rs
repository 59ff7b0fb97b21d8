//! A child that inherits one socket and does not outlive its parent.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::signal::{SigSet, Signal};

/// Arranges for the process of `command` to have `socket` open, under the number that is returned,
/// and to get `signal` when the thread that starts it ends, SIGKILL of this process included, and
/// to have no signal blocked. To be called by the thread that then starts the command and waits.
/// The socket is closed here with the command.
pub fn bind(command: &mut Command, socket: Option<OwnedFd>, signal: Signal) -> Option<i32> {
    let number = socket.as_ref().map(AsRawFd::as_raw_fd);
    let us = nix::unistd::getpid();
    let in_child = move || -> io::Result<()> {
        if let Some(socket) = &socket {
            let flags = FdFlag::empty();
            // The same number, but open in the program too.
            fcntl::<BorrowedFd<'_>>(std::os::fd::AsFd::as_fd(socket), FcntlArg::F_SETFD(flags))?;
        }
        SigSet::empty().thread_set_mask()?;
        nix::sys::prctl::set_pdeathsig(signal)?;
        // If the parent ended before that call, no signal will come.
        if nix::unistd::getppid() == us { Ok(()) } else { Err(nix::Error::ESRCH.into()) }
    };
    // SAFETY: between fork and exec the closure makes four system calls, allocates nothing and
    // takes no lock.
    unsafe { command.pre_exec(in_child) };
    number
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    #[test]
    fn the_child_has_the_socket_under_its_number_and_no_other_has() {
        let (mut near, far) = UnixStream::pair().unwrap();
        // Not every sh takes numbers of two digits.
        let mut command = Command::new("bash");
        let number = bind(&mut command, Some(far.into()), Signal::SIGKILL).unwrap();
        command.args(["-c", &format!("echo hello >&{number}")]);
        assert!(command.status().unwrap().success());
        let other = Command::new("sh").args(["-c", &format!("test -S /proc/$$/fd/{number}")]).status().unwrap();
        assert!(!other.success());
        drop(command);
        let mut text = String::new();
        near.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello\n");
    }

    #[test]
    fn the_child_blocks_no_signal_whatever_its_parent_blocks() {
        let mut mask = SigSet::empty();
        mask.add(Signal::SIGTERM);
        mask.thread_block().unwrap();
        let mut command = Command::new("grep");
        bind(&mut command, None, Signal::SIGKILL);
        let output = command.args(["SigBlk", "/proc/self/status"]).output().unwrap();
        mask.thread_unblock().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim_end(), "SigBlk:\t0000000000000000");
    }
}

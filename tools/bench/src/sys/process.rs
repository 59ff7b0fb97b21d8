//! Asking a child process to stop, ending this one, and how long it had a processor.

use std::io::Write;
use std::process::Child;

/// Sends SIGINT to a child; nothing if it has ended.
pub fn interrupt(child: &Child) {
    send(child.id(), libc::SIGINT);
}

/// Sends a signal to a child that is not yet waited for, by its number.
pub fn send(child: u32, signal: i32) {
    if let Ok(pid) = libc::pid_t::try_from(child) {
        // SAFETY: a plain system call. The child is ours and not yet waited for, so that its number
        // is nobody else's.
        unsafe { libc::kill(pid, signal) };
    }
}

/// Sleeps until a child has ended, and leaves it to be waited for: its number stays its own.
pub fn until_ended(child: &Child) {
    // SAFETY: a siginfo is plain numbers.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: writes into a structure that is ours.
        let code = unsafe { libc::waitid(libc::P_PID, child.id(), &raw mut info, libc::WEXITED | libc::WNOWAIT) };
        if code == 0 || std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
            return;
        }
    }
}

/// Processor time that this process has had, user and system, ns.
#[must_use]
pub fn cpu_ns() -> u64 {
    // SAFETY: an rusage is plain numbers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: writes into a structure that is ours.
    if unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) } != 0 {
        return 0;
    }
    let ns = |time: libc::timeval| time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_usec.unsigned_abs() * 1000;
    ns(usage.ru_utime) + ns(usage.ru_stime)
}

/// Ends this process at once, without the last calls of libraries whose other threads may be in the
/// middle of something.
pub fn end(code: u8) -> ! {
    let _ = std::io::stdout().flush();
    // SAFETY: a plain system call that does not come back.
    unsafe { libc::_exit(i32::from(code)) }
}

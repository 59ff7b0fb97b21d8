//! Signals to a launcher, read instead of caught.

use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// A signal that somebody sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Which.
    pub signal: Signal,
    /// By a terminal, which sends it to all processes in front of it.
    pub by_terminal: bool,
}

/// The signals that end a job or go on to its ranks, and the one that says that a child has ended.
pub const ALL: [Signal; 7] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGCHLD,
];

/// Blocks [`ALL`] in this thread and reads them.
pub struct Signals(SignalFd);

impl Signals {
    /// From now on. Programs that are started by [`weir_job_sys::bind`] block none of them.
    pub fn new() -> nix::Result<Self> {
        let mask: SigSet = ALL.into_iter().collect();
        mask.thread_block()?;
        Ok(Self(SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?))
    }

    /// The next one that is there.
    pub fn next(&self) -> Option<Sent> {
        const SI_KERNEL: i32 = 0x80;
        let info = self.0.read_signal().ok()??;
        let signal = Signal::try_from(info.ssi_signo.cast_signed()).ok()?;
        Some(Sent { signal, by_terminal: info.ssi_code == SI_KERNEL })
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

//! In which order ranks ended. Of children that have ended meanwhile the kernel hands out those
//! that were started first; but who ended first is who failed, and others may have ended because
//! of it.

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::unistd::Pid;
use rustix::process::{PidfdFlags, WaitOptions, WaitStatus, pidfd_open, wait};
use std::os::fd::OwnedFd;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By itself, with this exit code.
    Exit(u8),
    /// By this signal.
    Signal(u8),
}

impl Ended {
    /// As the exit code of who started it: that code, or 128 plus the signal.
    pub fn code(self) -> u8 {
        match self {
            Self::Exit(code) => code,
            Self::Signal(signal) => 128u8.saturating_add(signal),
        }
    }
}

/// Descriptors of processes in a list of the kernel's, which it keeps in the order in which they
/// ended. Without it (before Linux 5.3, or for want of descriptors) those count first that were
/// started first.
#[derive(Debug, Default)]
pub struct Deaths {
    list: Option<Epoll>,
    watched: Vec<(Pid, OwnedFd)>,
}

impl Deaths {
    /// Of nobody yet.
    pub fn new() -> Self {
        Self { list: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).ok(), watched: Vec::new() }
    }

    /// From now on this child's end has its place in the order.
    pub fn watch(&mut self, pid: Pid) {
        let Some(list) = &self.list else { return };
        let Some(fd) =
            rustix::process::Pid::from_raw(pid.as_raw()).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok())
        else {
            return;
        };
        let event = EpollEvent::new(EpollFlags::EPOLLIN, u64::from(pid.as_raw().unsigned_abs()));
        if list.add(&fd, event).is_ok() {
            self.watched.push((pid, fd));
        }
    }

    /// The children that have ended, in that order, and how.
    pub fn reaped(&mut self) -> Vec<(Pid, Ended)> {
        // First: who ends after this look ended after all that it shows.
        let order = self.order();
        let mut found = reaped();
        found.sort_by_key(|(pid, _)| order.iter().position(|one| one == pid).unwrap_or(order.len()));
        self.watched.retain(|(pid, fd)| {
            let is_over = found.iter().any(|(ended, _)| ended == pid);
            if let (true, Some(list)) = (is_over, &self.list) {
                let _ = list.delete(fd);
            }
            !is_over
        });
        found
    }

    /// Those watched that have ended.
    fn order(&self) -> Vec<Pid> {
        let Some(list) = self.list.as_ref().filter(|_| !self.watched.is_empty()) else { return Vec::new() };
        let mut events = vec![EpollEvent::empty(); self.watched.len()];
        let count = list.wait(&mut events, EpollTimeout::ZERO).unwrap_or(0);
        let pid = |event: &EpollEvent| Some(Pid::from_raw(i32::try_from(event.data()).ok()?));
        events[..count].iter().filter_map(pid).collect()
    }
}

/// The children that have ended, and how, in any order.
pub fn reaped() -> Vec<(Pid, Ended)> {
    // By rustix: nix has no words for signals of real time, and the child would be lost.
    let mut found = Vec::new();
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        found.extend(how(status).map(|ended| (Pid::from_raw(pid.as_raw_nonzero().get()), ended)));
    }
    found
}

/// None: it goes on.
fn how(status: WaitStatus) -> Option<Ended> {
    // The kernel keeps eight bits of a code.
    let exit = status.exit_status().map(|code| Ended::Exit(code.to_le_bytes()[0]));
    exit.or_else(|| status.terminating_signal().map(|signal| Ended::Signal(signal.to_le_bytes()[0])))
}

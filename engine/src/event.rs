//! A descriptor to wake a sleeper with.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// An event counter of the kernel: readable once signalled, until cleared.
pub struct EventFd {
    fd: OwnedFd,
    /// It may be readable: else there is nothing to clear, and who clears before each sleep is
    /// spared the system call.
    signalled: AtomicBool,
}

impl EventFd {
    /// A fresh one, not signalled.
    ///
    /// # Errors
    /// The system's, when out of descriptors.
    pub fn new() -> std::io::Result<EventFd> {
        // SAFETY: a plain system call; the result is checked.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: `fd` was just made and is nobody else's.
        Ok(EventFd { fd: unsafe { OwnedFd::from_raw_fd(fd) }, signalled: AtomicBool::new(false) })
    }

    /// Makes it readable.
    pub fn signal(&self) {
        let one = 1u64;
        // Before the write, for whom it wakes may clear at once, on this thread's core; and after
        // it, for another may clear between the two.
        self.signalled.store(true, Ordering::Release);
        // SAFETY: writes eight readable bytes; a full counter (EAGAIN) is as good as signalled.
        unsafe { libc::write(self.fd.as_raw_fd(), (&raw const one).cast(), 8) };
        self.signalled.store(true, Ordering::Release);
    }

    /// Makes it unreadable.
    pub fn clear(&self) {
        if !self.signalled.load(Ordering::Acquire) || !self.signalled.swap(false, Ordering::AcqRel) {
            return;
        }
        let mut count = 0u64;
        // SAFETY: reads eight bytes into a u64; EAGAIN when there was nothing.
        unsafe { libc::read(self.fd.as_raw_fd(), (&raw mut count).cast(), 8) };
    }
}

impl AsRawFd for EventFd {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_readable(event: &EventFd) -> bool {
        let mut fd = libc::pollfd { fd: event.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, which lives as long as the call.
        unsafe { libc::poll(&raw mut fd, 1, 0) == 1 }
    }

    #[test]
    fn what_is_signalled_is_readable_until_it_is_cleared() {
        let event = EventFd::new().expect("eventfd");
        event.clear();
        assert!(!is_readable(&event));
        for times in [1, 3] {
            for _ in 0..times {
                event.signal();
            }
            assert!(is_readable(&event));
            event.clear();
            assert!(!is_readable(&event));
        }
    }

    #[test]
    fn signals_beside_somebody_who_clears_leave_nothing_that_cannot_be_cleared() {
        let event = EventFd::new().expect("eventfd");
        for _ in 0..200 {
            std::thread::scope(|s| {
                let signals = s.spawn(|| (0..100).for_each(|_| event.signal()));
                while !signals.is_finished() {
                    event.clear();
                }
            });
            event.clear();
            assert!(!is_readable(&event));
        }
    }
}

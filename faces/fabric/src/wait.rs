//! Sleeping until something happens: a wake-up descriptor, sets of descriptors, deadlines.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use weir_engine::EventFd;

/// How long a blocking call polls before it sleeps: shorter than a sleep and wake-up costs.
const SPIN: Duration = Duration::from_micros(20);

/// A descriptor that is readable when any of its members is.
pub struct FdSet(OwnedFd);

impl FdSet {
    /// An empty set.
    ///
    /// # Errors
    /// The system's error number.
    pub fn new() -> Result<FdSet, i32> {
        // SAFETY: no memory is passed.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 { Err(errno()) } else { Ok(FdSet(own(fd))) }
    }

    /// Adds a member; one that is there already stays once.
    pub fn add(&self, fd: RawFd) {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        // SAFETY: a valid event structure. The only expected failure is EEXIST.
        unsafe { libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event) };
    }

    /// Removes a member.
    pub fn remove(&self, fd: RawFd) {
        // SAFETY: DEL ignores the event.
        unsafe { libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_DEL, fd, std::ptr::null_mut()) };
    }

    /// Sleeps until a member is readable or the time is over.
    pub fn wait(&self, timeout: Option<Duration>) {
        let mut p = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // Rounded up, so that a caller who waits out a deadline does not spin through its last
        // millisecond.
        let ms = timeout.map_or(-1, |t| t.as_micros().div_ceil(1000).min(i32::MAX as u128) as i32);
        // SAFETY: one valid pollfd. An interrupted sleep is a short one.
        unsafe { libc::poll(&raw mut p, 1, ms) };
    }
}

impl AsRawFd for FdSet {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// A fresh event descriptor.
///
/// # Errors
/// The system's error number.
pub fn new_event() -> Result<EventFd, i32> {
    EventFd::new().map_err(|e| e.raw_os_error().unwrap_or(libc::EIO))
}

fn own(fd: RawFd) -> OwnedFd {
    // SAFETY: just opened, owned by nobody else.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// What a queue sleeps on: made at the first use, for most queues never sleep.
#[derive(Default)]
pub struct Sleeper(OnceLock<(FdSet, Arc<EventFd>)>);

impl Sleeper {
    /// The set, which contains the wake-up descriptor.
    ///
    /// # Errors
    /// The system's error number, when out of descriptors.
    pub fn get(&self) -> Result<(&FdSet, &Arc<EventFd>), i32> {
        if self.0.get().is_none() {
            let (set, wake) = (FdSet::new()?, Arc::new(new_event()?));
            set.add(wake.as_raw_fd());
            // If another thread was faster, ours are closed again.
            let _ = self.0.set((set, wake));
        }
        self.0.get().map(|(set, wake)| (set, wake)).ok_or(libc::EIO)
    }

    /// As [`Sleeper::get`], but none if nobody has asked for it yet.
    pub fn existing(&self) -> Option<(&FdSet, &Arc<EventFd>)> {
        self.0.get().map(|(set, wake)| (set, wake))
    }
}

/// What a blocking call should do next.
pub enum Step {
    /// Poll again at once.
    Spin,
    /// Sleep, this long at most.
    Sleep(Option<Duration>),
    /// The time is over.
    Over,
}

/// A blocking call's clock: libfabric's timeout in milliseconds, negative for ever.
pub struct Patience {
    start: Instant,
    limit: Option<Duration>,
}

impl Patience {
    /// Starts now.
    pub fn new(timeout_ms: i32) -> Patience {
        Patience { start: Instant::now(), limit: u64::try_from(timeout_ms).ok().map(Duration::from_millis) }
    }

    /// After a poll that found nothing.
    pub fn next(&self) -> Step {
        let waited = self.start.elapsed();
        let left = self.limit.map(|l| l.saturating_sub(waited));
        if left.is_some_and(|l| l.is_zero()) {
            Step::Over
        } else if waited < SPIN {
            Step::Spin
        } else {
            Step::Sleep(left)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signalled_member_ends_the_sleep() {
        let (set, wake) = (FdSet::new().expect("epoll"), EventFd::new().expect("eventfd"));
        set.add(wake.as_raw_fd());
        let start = Instant::now();
        set.wait(Some(Duration::from_millis(20)));
        assert!(start.elapsed() >= Duration::from_millis(19), "nothing was signalled");
        wake.signal();
        let start = Instant::now();
        set.wait(Some(Duration::from_secs(120)));
        assert!(start.elapsed() < Duration::from_secs(60));
        wake.clear();
        let start = Instant::now();
        set.wait(Some(Duration::from_millis(20)));
        assert!(start.elapsed() >= Duration::from_millis(19), "cleared again");
    }

    #[test]
    fn patience_ends() {
        assert!(matches!(Patience::new(0).next(), Step::Over));
        let p = Patience::new(-1);
        std::thread::sleep(SPIN);
        assert!(matches!(p.next(), Step::Sleep(None)));
    }
}

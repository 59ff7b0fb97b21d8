//! Where the watchdog thread sleeps: on a timer, on being woken, and on the socket while the program is away.
//!
//! A program that comes back takes the socket out itself. Left in, the next datagram would wake the thread beside the program that waits for it, on its core and for its lock: three
//! context switches on the path of the message (a broadcast of 8 bytes begun by the clock took 40 us instead of 12).

use crate::EventFd;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The thread's sleeping place, shared with the program's threads.
pub struct Watch {
    epoll: Epoll,
    timer: TimerFd,
    wake: EventFd,
    /// Open as long as anybody sleeps or comes back here: the endpoint's core owns it, and outlives the thread.
    socket: RawFd,
    /// The same of the lanes; -1: there are none.
    lanes: RawFd,
    /// The socket is in the set, and the thread asleep or about to be.
    watched: AtomicBool,
    /// The program has taken the socket out, and the thread may be asleep for long.
    look_owed: AtomicBool,
}

impl Watch {
    /// A sleeping place beside this socket.
    ///
    /// # Errors
    /// The system's, when out of descriptors.
    pub fn new(socket: RawFd, lanes: RawFd) -> std::io::Result<Watch> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC)?;
        let wake = EventFd::new()?;
        epoll.add(&timer, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
        epoll.add(&wake, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
        Ok(Watch {
            epoll,
            timer,
            wake,
            socket,
            lanes,
            watched: AtomicBool::new(false),
            look_owed: AtomicBool::new(false),
        })
    }

    /// Wakes the thread.
    pub fn wake(&self) {
        self.wake.signal();
    }

    /// The thread: sleeps until woken or the time is over.
    pub fn sleep(&self, time: Duration) {
        self.set_timer(time);
        self.wait();
    }

    /// The thread: the same, or until the socket is readable (or has room again, if it is `blocked`).
    pub fn sleep_on_socket(&self, blocked: bool, time: Duration) {
        let mut flags = EpollFlags::EPOLLIN;
        flags.set(EpollFlags::EPOLLOUT, blocked);
        self.set_timer(time);
        match self.epoll.add(self.socket(), EpollEvent::new(flags, 0)) {
            // A program that came back while the thread woke for another reason has not got to taking it out yet.
            Ok(()) | Err(Errno::EEXIST) => {
                if let Some(lanes) = self.lanes() {
                    let _ = self.epoll.add(lanes, EpollEvent::new(EpollFlags::EPOLLIN, 0));
                }
                // Last: from then on a program that comes back takes both out.
                self.watched.store(true, Ordering::Release);
            }
            Err(_) => {}
        }
        self.wait();
        self.forget_socket();
    }

    /// The program is back: what arrives is its own to find. The thread looks again when its time is over, or after what [`Watch::program_waits`] says.
    pub fn program_is_back(&self) {
        if self.watched.load(Ordering::Relaxed) && self.forget_socket() {
            self.look_owed.store(true, Ordering::Relaxed);
        }
    }

    /// The program is back and has nothing better to do than to see to it that the thread looks again after this time: to set a timer takes up to 8 us where the hypervisor has a hand
    /// in it, which is not for the path of a message.
    pub fn program_waits(&self, look: Duration) {
        if self.look_owed.load(Ordering::Relaxed) && self.look_owed.swap(false, Ordering::Relaxed) {
            self.set_timer(look);
        }
    }

    /// Takes the socket out of the set. False: another has done so.
    fn forget_socket(&self) -> bool {
        let is_mine = self.watched.swap(false, Ordering::AcqRel);
        if is_mine {
            let _ = self.epoll.delete(self.socket());
            if let Some(lanes) = self.lanes() {
                let _ = self.epoll.delete(lanes);
            }
        }
        is_mine
    }

    fn lanes(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: open, as said at the field of the socket.
        (self.lanes >= 0).then(|| unsafe { BorrowedFd::borrow_raw(self.lanes) })
    }

    fn wait(&self) {
        // Which of them it was does not matter; interruption is as good as a time-out.
        let _ = self.epoll.wait(&mut [EpollEvent::empty()], EpollTimeout::NONE);
        self.wake.clear();
    }

    fn set_timer(&self, time: Duration) {
        // Zero would turn the timer off. Setting it makes it unreadable until it is over. It cannot fail with these arguments.
        let time = TimeSpec::from_duration(time.max(Duration::from_nanos(1)));
        let _ = self.timer.set(Expiration::OneShot(time), TimerSetTimeFlags::empty());
    }

    fn socket(&self) -> BorrowedFd<'_> {
        // SAFETY: open, as said at the field.
        unsafe { BorrowedFd::borrow_raw(self.socket) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsRawFd;
    use std::sync::mpsc;

    const LONG: Duration = Duration::from_secs(60);

    /// Runs `sleep` on a thread; what it returns is received once that is over.
    fn asleep(watch: &std::sync::Arc<Watch>, sleep: impl FnOnce(&Watch) + Send + 'static) -> mpsc::Receiver<()> {
        let (tell, over) = mpsc::channel();
        let watch = watch.clone();
        std::thread::spawn(move || {
            sleep(&watch);
            let _ = tell.send(());
        });
        over
    }

    fn until_watched(watch: &Watch) {
        while !watch.watched.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn the_socket_wakes_the_thread_only_while_the_program_is_away() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = socket.local_addr().unwrap();
        let watch = std::sync::Arc::new(Watch::new(socket.as_raw_fd(), -1).unwrap());

        let over = asleep(&watch, |w| w.sleep_on_socket(false, LONG));
        until_watched(&watch);
        UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"away", to).unwrap();
        over.recv_timeout(LONG).expect("a datagram wakes the thread");
        assert!(!watch.watched.load(Ordering::Acquire));
        socket.recv(&mut [0; 9]).unwrap();

        let over = asleep(&watch, |w| w.sleep_on_socket(false, LONG));
        until_watched(&watch);
        watch.program_is_back();
        watch.program_waits(LONG);
        socket.send_to(b"back", to).unwrap();
        assert_eq!(over.recv_timeout(Duration::from_millis(50)), Err(mpsc::RecvTimeoutError::Timeout));
        watch.wake();
        over.recv_timeout(LONG).expect("waking does");
    }

    #[test]
    fn the_thread_looks_again_after_the_program_was_back() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let watch = std::sync::Arc::new(Watch::new(socket.as_raw_fd(), -1).unwrap());
        let over = asleep(&watch, |w| w.sleep_on_socket(true, LONG));
        // There is room in the socket at once; asked for again, the room is not asked about.
        over.recv_timeout(LONG).unwrap();
        let over = asleep(&watch, |w| w.sleep_on_socket(false, LONG));
        until_watched(&watch);
        watch.program_is_back();
        watch.program_waits(Duration::ZERO);
        over.recv_timeout(LONG).expect("the timer was moved to now");
        // Nothing is left behind: neither socket nor timer nor waking.
        let over = asleep(&watch, |w| w.sleep(LONG));
        assert_eq!(over.recv_timeout(Duration::from_millis(50)), Err(mpsc::RecvTimeoutError::Timeout));
        watch.wake();
        over.recv_timeout(LONG).unwrap();
    }
}

//! Where the watchdog thread sleeps: on a timer, on being woken, and on the sockets while the
//! program is away.
//!
//! A program that comes back takes the sockets out itself. Left in, the next datagram would wake
//! the thread beside the program that waits for it, on its core and for its lock: three context
//! switches on the path of the message (a broadcast of 8 bytes begun by the clock took 40 us
//! instead of 12).

use crate::EventFd;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;
use weir_net::WAKE_SOURCES;

/// The thread's sleeping place, shared with the program's threads.
pub struct Watch {
    epoll: Epoll,
    timer: TimerFd,
    wake: EventFd,
    /// Open as long as anybody sleeps or comes back here: the endpoint's core owns it, and outlives
    /// the thread.
    sockets: [RawFd; WAKE_SOURCES],
    /// The same of bulk connections and of shared memory. -1 is none.
    others: [RawFd; 2],
    /// The sockets are in the set, and the thread asleep or about to be.
    watched: AtomicBool,
    /// The thread sleeps, or is about to, for longer than a program that is back may go unseen, and
    /// nobody has moved its timer. Set with the core locked.
    long: AtomicBool,
    /// What the thread knows of sends that are held back: [`HELD`], [`SOON`] or [`LATER`].
    holds: AtomicU8,
    /// The program has taken the sockets out, and the thread's timer is still the one of its
    /// absence.
    look_owed: AtomicBool,
}

/// A send was held back since the thread went to sleep: it will look in time.
const HELD: u8 = 0;
/// None was, and if one is, the thread looks in time.
const SOON: u8 = 1;
/// None was, and the thread sleeps for longer than one may wait.
const LATER: u8 = 2;

/// A program that came back and went away again, without having waited for anything, goes unseen
/// for this long at the most.
pub const UNSEEN_MAX: Duration = Duration::from_millis(10);

impl Watch {
    /// A sleeping place beside these sockets.
    ///
    /// # Errors
    /// The system's, when out of descriptors.
    pub fn new(sockets: [RawFd; WAKE_SOURCES], others: [RawFd; 2]) -> std::io::Result<Watch> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC)?;
        let wake = EventFd::new()?;
        epoll.add(&timer, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
        epoll.add(&wake, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
        Ok(Watch {
            epoll,
            timer,
            wake,
            sockets,
            others,
            watched: AtomicBool::new(false),
            long: AtomicBool::new(false),
            holds: AtomicU8::new(HELD),
            look_owed: AtomicBool::new(false),
        })
    }

    /// Wakes the thread.
    pub fn wake(&self) {
        self.wake.signal();
    }

    /// The thread: sleeps until woken or the time is over, or for `held` from when a send is held
    /// back. Whether one was. (One that is held back just before this begins may wait for all of
    /// the time.)
    pub fn sleep(&self, time: Duration, held: Duration) -> bool {
        self.watch_for_held(time, held);
        self.set_timer(time);
        self.see_to_held(time, held);
        self.wait()
    }

    /// The thread, with the core locked: it has found out that it can sleep for so long. If that is
    /// long, who does something that may be due earlier says so from now on ([`Watch::hurry`]), and
    /// so does who holds a send back, if that is longer than `held`.
    pub fn has_looked(&self, time: Duration, held: Duration) {
        self.long.store(time > UNSEEN_MAX, Ordering::Relaxed);
        self.watch_for_held(time, held);
    }

    fn watch_for_held(&self, time: Duration, held: Duration) {
        self.holds.store(if time > held { LATER } else { SOON }, Ordering::Release);
    }

    /// After the timer was set: who held a send back since the thread said for how long it will
    /// sleep may have set it before.
    fn see_to_held(&self, time: Duration, held: Duration) {
        if time > held && self.holds.load(Ordering::Acquire) == HELD {
            self.set_timer(held);
        }
    }

    /// The program holds a send back: the thread is to look after `held`; the send should have gone
    /// by then. One system call for each sleep that is longer, however many are held back.
    #[inline]
    pub fn holds(&self, held: Duration) {
        if self.holds.load(Ordering::Relaxed) != HELD && self.holds.swap(HELD, Ordering::AcqRel) == LATER {
            self.set_timer(held);
        }
    }

    /// The thread, after [`Watch::has_looked`]: the same, or until a socket is readable, or the one
    /// that is `blocked` has room again.
    pub fn sleep_on_sockets(&self, blocked: Option<RawFd>, time: Duration, held: Duration) -> bool {
        self.set_timer(time);
        if time > UNSEEN_MAX && !self.long.load(Ordering::Acquire) {
            // Somebody was in a hurry since, and may have set the timer before it was set here.
            self.set_timer(UNSEEN_MAX);
        }
        self.see_to_held(time, held);
        let mut added = false;
        for fd in self.descriptors() {
            let mut flags = EpollFlags::EPOLLIN;
            flags.set(EpollFlags::EPOLLOUT, blocked == Some(fd.as_raw_fd()));
            // A program that came back while the thread woke for another reason has not got to
            // taking it out yet.
            added |= matches!(self.epoll.add(fd, EpollEvent::new(flags, 0)), Ok(()) | Err(Errno::EEXIST));
        }
        if added {
            // Last: from then on a program that comes back takes all out.
            self.watched.store(true, Ordering::Release);
        }
        let was_held = self.wait();
        self.forget_sockets();
        was_held
    }

    /// The program is back: what arrives is its own to find. The thread looks again when its time
    /// is over, or after what [`Watch::program_waits`] says; if its time is long, after `look`. (To
    /// set a timer takes up to 8 us where the hypervisor has a hand in it, which is not for the
    /// path of a message but after a long absence.)
    pub fn program_is_back(&self, look: Duration) {
        if self.is_watched() && self.forget_sockets() && !self.hurry(look) {
            self.look_owed.store(true, Ordering::Relaxed);
        }
    }

    /// In a child made by fork(2): the set and the timer are those of the parent's thread.
    pub fn abandon(&self) {
        self.watched.store(false, Ordering::Relaxed);
        self.long.store(false, Ordering::Relaxed);
        self.holds.store(HELD, Ordering::Relaxed);
        self.look_owed.store(false, Ordering::Relaxed);
    }

    /// Whether the thread sleeps on the sockets, or is about to.
    #[inline]
    pub fn is_watched(&self) -> bool {
        self.watched.load(Ordering::Relaxed)
    }

    /// Whether the thread sleeps for long.
    #[inline]
    pub fn is_long(&self) -> bool {
        self.long.load(Ordering::Relaxed)
    }

    /// If the thread sleeps for long, it looks after this time. Whether it did: one system call for
    /// each long sleep, whoever asks for it how often.
    pub fn hurry(&self, look: Duration) -> bool {
        let mine = self.is_long() && self.long.swap(false, Ordering::AcqRel);
        if mine {
            self.set_timer(look);
        }
        mine
    }

    /// The program is back and has nothing better to do than to see to it that the thread looks
    /// again after this time.
    pub fn program_waits(&self, look: Duration) {
        if self.look_owed.load(Ordering::Relaxed) && self.look_owed.swap(false, Ordering::Relaxed) {
            self.set_timer(look);
        }
    }

    /// Takes the sockets out of the set. False: another has done so.
    fn forget_sockets(&self) -> bool {
        let is_mine = self.watched.swap(false, Ordering::AcqRel);
        if is_mine {
            for fd in self.descriptors() {
                let _ = self.epoll.delete(fd);
            }
        }
        is_mine
    }

    /// The descriptors of sockets, bulk connections and shared memory, as far as there are.
    fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let all = self.sockets.into_iter().chain(self.others).filter(|&fd| fd >= 0);
        // SAFETY: open, as said at the field of the sockets.
        all.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Whether a send was held back meanwhile.
    fn wait(&self) -> bool {
        // Which of them it was does not matter; interruption is as good as a time-out.
        let _ = self.epoll.wait(&mut [EpollEvent::empty()], EpollTimeout::NONE);
        self.wake.clear();
        self.long.store(false, Ordering::Relaxed);
        self.holds.swap(HELD, Ordering::AcqRel) == HELD
    }

    fn set_timer(&self, time: Duration) {
        // Zero would turn the timer off. Setting it makes it unreadable until it is over. It cannot
        // fail with these arguments.
        let time = TimeSpec::from_duration(time.max(Duration::from_nanos(1)));
        let _ = self.timer.set(Expiration::OneShot(time), TimerSetTimeFlags::empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::sync::mpsc;

    const LONG: Duration = Duration::from_secs(60);

    /// Runs `sleep` on a thread; what it returns is received once that is over.
    fn asleep<T: Send + 'static>(
        watch: &std::sync::Arc<Watch>,
        sleep: impl FnOnce(&Watch) -> T + Send + 'static,
    ) -> mpsc::Receiver<T> {
        let (tell, over) = mpsc::channel();
        let watch = watch.clone();
        std::thread::spawn(move || {
            let _ = tell.send(sleep(&watch));
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
        let watch = std::sync::Arc::new(Watch::new([socket.as_raw_fd(), -1, -1], [-1; 2]).unwrap());

        watch.has_looked(LONG, LONG);
        let over = asleep(&watch, |w| w.sleep_on_sockets(None, LONG, LONG));
        until_watched(&watch);
        UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"away", to).unwrap();
        over.recv_timeout(LONG).expect("a datagram wakes the thread");
        assert!(!watch.watched.load(Ordering::Acquire));
        socket.recv(&mut [0; 9]).unwrap();

        watch.has_looked(LONG, LONG);
        let over = asleep(&watch, |w| w.sleep_on_sockets(None, LONG, LONG));
        until_watched(&watch);
        watch.program_is_back(LONG);
        socket.send_to(b"back", to).unwrap();
        assert_eq!(over.recv_timeout(Duration::from_millis(50)), Err(mpsc::RecvTimeoutError::Timeout));
        watch.wake();
        over.recv_timeout(LONG).expect("waking does");
    }

    #[test]
    fn the_thread_looks_again_after_the_program_was_back() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let fd = socket.as_raw_fd();
        let watch = std::sync::Arc::new(Watch::new([socket.as_raw_fd(), -1, -1], [-1; 2]).unwrap());
        let over = asleep(&watch, move |w| w.sleep_on_sockets(Some(fd), LONG, LONG));
        // There is room in the socket at once; asked for again, the room is not asked about.
        over.recv_timeout(LONG).unwrap();
        watch.has_looked(LONG, LONG);
        let over = asleep(&watch, |w| w.sleep_on_sockets(None, LONG, LONG));
        until_watched(&watch);
        // Nothing else is said: the program may go computing.
        watch.program_is_back(Duration::ZERO);
        over.recv_timeout(LONG / 2).expect("the timer was moved to now");
        let over = asleep(&watch, |w| w.sleep_on_sockets(None, UNSEEN_MAX, LONG));
        watch.program_is_back(LONG);
        over.recv_timeout(LONG / 2).expect("a short timer stays");
        // Nothing is left behind: neither socket nor timer nor waking.
        let over = asleep(&watch, |w| w.sleep(LONG, LONG));
        assert_eq!(over.recv_timeout(Duration::from_millis(50)), Err(mpsc::RecvTimeoutError::Timeout));
        watch.wake();
        over.recv_timeout(LONG).unwrap();
    }
    #[test]
    fn who_is_in_a_hurry_moves_the_timer_of_a_long_sleep_once_whenever_it_was_set() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = socket.local_addr().unwrap();
        let watch = std::sync::Arc::new(Watch::new([socket.as_raw_fd(), -1, -1], [-1; 2]).unwrap());
        assert!(!watch.hurry(LONG), "nobody sleeps");
        watch.has_looked(LONG, LONG);
        let over = asleep(&watch, |w| w.sleep_on_sockets(None, LONG, LONG));
        until_watched(&watch);
        assert!(watch.hurry(Duration::ZERO));
        over.recv_timeout(LONG / 2).expect("the timer was moved to now");
        watch.has_looked(LONG, LONG);
        let over = asleep(&watch, |w| w.sleep_on_sockets(None, LONG, LONG));
        until_watched(&watch);
        assert!(watch.hurry(LONG) && !watch.hurry(Duration::ZERO), "the second finds it done");
        UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"away", to).unwrap();
        over.recv_timeout(LONG / 2).expect("the sockets are watched as before");
        socket.recv(&mut [0; 4]).unwrap();
        // Between its look and its sleep: the thread sets its timer after that of the hurry.
        watch.has_looked(LONG, LONG);
        assert!(watch.hurry(LONG));
        let over = asleep(&watch, |w| w.sleep_on_sockets(None, LONG, LONG));
        over.recv_timeout(LONG / 2).expect("it does not sleep for long");
        // One that sleeps shortly need not be hurried.
        watch.has_looked(LONG, LONG);
        let over = asleep(&watch, |w| w.sleep_on_sockets(None, UNSEEN_MAX, LONG));
        over.recv_timeout(LONG / 2).expect("its time is over");
        assert!(!watch.hurry(LONG));
    }

    #[test]
    fn a_send_that_is_held_back_moves_the_timer_of_a_sleep_that_is_too_long_for_it() {
        const HELD_MAX: Duration = Duration::from_millis(1);
        let watch = std::sync::Arc::new(Watch::new([-1; 3], [-1; 2]).unwrap());
        let until = |state: u8| {
            while watch.holds.load(Ordering::Acquire) != state {
                std::thread::yield_now();
            }
        };
        let over = asleep(&watch, |w| w.sleep(LONG, HELD_MAX));
        until(LATER);
        watch.holds(HELD_MAX);
        assert_eq!(over.recv_timeout(LONG / 2), Ok(true), "and the thread knows why");
        // Which is no reason to wake one that looks in time; it hears of it then.
        let over = asleep(&watch, |w| w.sleep(LONG, LONG));
        until(SOON);
        watch.holds(Duration::ZERO);
        assert_eq!(over.recv_timeout(Duration::from_millis(50)), Err(mpsc::RecvTimeoutError::Timeout));
        watch.wake();
        assert_eq!(over.recv_timeout(LONG / 2), Ok(true));
        assert!(!asleep(&watch, |w| w.sleep(HELD_MAX, LONG)).recv().unwrap(), "nothing was held back");
        // Between its look and its sleep: the thread sets its timer after that of who holds back.
        watch.has_looked(LONG, HELD_MAX);
        watch.holds(LONG);
        let over = asleep(&watch, |w| w.sleep_on_sockets(None, LONG, HELD_MAX));
        assert_eq!(over.recv_timeout(LONG / 2), Ok(true));
    }
}

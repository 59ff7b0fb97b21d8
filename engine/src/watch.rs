//! Where the watchdog thread sleeps: on a timer, on being woken, and on the sockets while the
//! program is away.
//!
//! A program that comes back takes the sockets out itself. Left in, the next datagram would wake
//! the thread beside the program that waits for it, on its core and for its lock: three context
//! switches on the path of the message (a broadcast of 8 bytes begun by the clock took 40 us
//! instead of 12).

use crate::EventFd;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use weir_link::Time;
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
    /// The sockets are in the set: the thread sleeps on them, or has and may again. Changed with
    /// `set` locked, which whoever changes the set holds: some in it and some not would stay so.
    watched: AtomicBool,
    set: Mutex<()>,
    /// One of them is there for room as well.
    for_room: AtomicBool,
    /// The thread sleeps, or is about to, for longer than a program that is back may go unseen, and
    /// nobody has moved its timer. Set with the core locked.
    long: AtomicBool,
    /// What the thread knows of sends that are held back: [`HELD`], [`SOON`] or [`LATER`].
    holds: AtomicU8,
    /// The program has taken the sockets out, and the thread's timer is still the one of its
    /// absence.
    look_owed: AtomicBool,
    /// From when on a program that polls all the time puts the thread's next look off, ns; or
    /// [`NEVER`].
    put_off_at: AtomicU64,
    /// When the program last came back from elsewhere, ns.
    back_at: AtomicU64,
}

/// The thread's next look is not to be put off.
const NEVER: u64 = u64::MAX;
/// Whose program was elsewhere may go there again: for so long no look is put off. (One that
/// polls for 6 ms and computes for 2 ms would else have all looks fall into what it polls.)
const BACK_FOR_GOOD_NS: u64 = 100_000_000;

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
            set: Mutex::new(()),
            for_room: AtomicBool::new(false),
            long: AtomicBool::new(false),
            holds: AtomicU8::new(HELD),
            look_owed: AtomicBool::new(false),
            put_off_at: AtomicU64::new(NEVER),
            back_at: AtomicU64::new(0),
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
        self.forget_sockets();
        self.watch_for_held(time, held);
        self.set_timer(time);
        self.see_to_held(time, held);
        self.wait()
    }

    /// The thread has found the program polling: the same, but who polls all the time puts the end
    /// of the sleep off, from half of it on ([`Watch::put_off`]). The thread would take the core of
    /// who polls, for some 10 us.
    pub fn sleep_while_polled(&self, now: Time, time: Duration, held: Duration) -> bool {
        let is_back = now.0.saturating_sub(self.back_at.load(Ordering::Relaxed)) >= BACK_FOR_GOOD_NS;
        self.put_off_at.store(if is_back { half_of(now, time) } else { NEVER }, Ordering::SeqCst);
        self.sleep(time, held)
    }

    /// Whether it is time for [`Watch::put_off`].
    #[inline]
    pub fn may_be_put_off(&self, now: Time) -> bool {
        now.0 >= self.put_off_at.load(Ordering::Relaxed)
    }

    /// The program is back from elsewhere, where it was for longer than the thread leaves it alone.
    pub fn keep_look(&self, now: Time) {
        self.back_at.store(now.0, Ordering::Relaxed);
        if self.put_off_at.load(Ordering::Relaxed) != NEVER {
            self.put_off_at.store(NEVER, Ordering::SeqCst);
        }
    }

    /// With the core locked, and nothing held back: the program has polled all the time since the
    /// thread went to sleep. The thread looks `time` from now, as if it had just looked.
    #[cold]
    pub fn put_off(&self, now: Time, time: Duration, held: Duration) {
        let (at, next) = (self.put_off_at.load(Ordering::Relaxed), half_of(now, time));
        let is_due = now.0 >= at;
        if !is_due || self.put_off_at.compare_exchange(at, next, Ordering::SeqCst, Ordering::Relaxed).is_err() {
            return;
        }
        self.watch_for_held(time, held);
        self.set_timer(time);
        if self.put_off_at.load(Ordering::SeqCst) != next {
            // The thread woke meanwhile, and may have set the timer to something earlier.
            self.wake();
        }
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

    /// With the core locked: the program holds a send back. The thread is to look after `held`; the
    /// send should have gone by then, and who polls may put the look off once it has. One system
    /// call for each sleep that is longer, however many are held back.
    #[inline]
    pub fn holds(&self, now: Time, held: Duration) {
        if self.holds.load(Ordering::Relaxed) != HELD && self.holds.swap(HELD, Ordering::AcqRel) == LATER {
            self.looks_after(now, held);
        }
    }

    #[cold]
    fn looks_after(&self, now: Time, held: Duration) {
        let at = self.put_off_at.load(Ordering::Relaxed);
        if at != NEVER {
            // (Else the thread has just woken, and its sleep is not to be put off.)
            let next = half_of(now, held);
            let _ = self.put_off_at.compare_exchange(at, next, Ordering::SeqCst, Ordering::Relaxed);
        }
        self.set_timer(held);
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
        let was_for_room = self.for_room.swap(blocked.is_some(), Ordering::Relaxed);
        if was_for_room || blocked.is_some() {
            self.forget_sockets();
        }
        self.watch_sockets(blocked);
        self.wait()
    }

    /// Puts the sockets into the set. They stay there from sleep to sleep, until the program is
    /// back: to take four out and put them in again costs more than most of what the thread does
    /// when it wakes.
    fn watch_sockets(&self, blocked: Option<RawFd>) {
        let _set = self.lock_set();
        if self.is_watched() {
            return;
        }
        let mut added = false;
        for fd in self.descriptors() {
            let mut flags = EpollFlags::EPOLLIN;
            flags.set(EpollFlags::EPOLLOUT, blocked == Some(fd.as_raw_fd()));
            added |= self.epoll.add(fd, EpollEvent::new(flags, 0)).is_ok();
        }
        if added {
            // From then on a program that comes back takes all out.
            self.watched.store(true, Ordering::Release);
        }
    }

    fn lock_set(&self) -> MutexGuard<'_, ()> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The program is back: what arrives is its own to find. The thread looks again when its time
    /// is over, or after what [`Watch::program_waits`] says; if its time is long, after `look`. (To
    /// set a timer takes up to 8 us where the hypervisor has a hand in it, which is not for the
    /// path of a message but after a long absence.)
    pub fn program_is_back(&self, look: Duration) {
        if !self.is_watched() {
            return;
        }
        // (Whoever has the set locked adds to it, and the next poll finds that; or takes them out.)
        let Ok(set) = self.set.try_lock() else { return };
        let was_mine = self.take_out();
        drop(set);
        if was_mine && !self.hurry(look) {
            self.look_owed.store(true, Ordering::Relaxed);
        }
    }

    /// In a child made by fork(2): the set and the timer are those of the parent's thread.
    pub fn abandon(&self) {
        self.watched.store(false, Ordering::Relaxed);
        self.long.store(false, Ordering::Relaxed);
        self.holds.store(HELD, Ordering::Relaxed);
        self.look_owed.store(false, Ordering::Relaxed);
        self.put_off_at.store(NEVER, Ordering::Relaxed);
    }

    /// Whether the thread sleeps on the sockets, or is to be told that it should not.
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

    /// The thread takes the sockets out of the set, if they are in it.
    fn forget_sockets(&self) {
        if self.is_watched() {
            let _set = self.lock_set();
            self.take_out();
        }
    }

    /// With the set locked: takes the sockets out. False: another has done so.
    fn take_out(&self) -> bool {
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
        self.put_off_at.store(NEVER, Ordering::SeqCst);
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

fn half_of(now: Time, time: Duration) -> u64 {
    now.plus_ns(time.as_nanos() as u64 / 2).0
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::errno::Errno;
    use std::net::UdpSocket;
    use std::sync::mpsc;

    const LONG: Duration = Duration::from_secs(60);

    /// Runs `sleep` on a thread, the program having been back; what it returns is received once
    /// that is over.
    fn asleep<T: Send + 'static>(
        watch: &std::sync::Arc<Watch>,
        sleep: impl FnOnce(&Watch) -> T + Send + 'static,
    ) -> mpsc::Receiver<T> {
        let (tell, over) = mpsc::channel();
        watch.forget_sockets();
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
        socket.recv(&mut [0; 9]).unwrap();
        assert!(watch.is_watched(), "the program is away still");

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
    fn the_sockets_stay_in_the_set_from_sleep_to_sleep_while_the_program_is_away() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = socket.local_addr().unwrap();
        let watch = Watch::new([socket.as_raw_fd(), -1, -1], [-1; 2]).unwrap();
        for blocked in [None, None, Some(socket.as_raw_fd()), None, None] {
            UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"away", to).unwrap();
            watch.sleep_on_sockets(blocked, LONG, LONG);
            assert!(watch.is_watched());
            // (Where room was asked for, room woke it.)
            socket.recv(&mut [0; 9]).unwrap();
        }
        // Nothing is there, and room is not asked for any more: the time ends it, each time.
        for _ in 0..2 {
            let before = std::time::Instant::now();
            watch.sleep_on_sockets(None, Duration::from_millis(2), LONG);
            assert!(before.elapsed() >= Duration::from_millis(2));
        }
        // Who sleeps for another reason is not woken by what the program reads.
        socket.send_to(b"back", to).unwrap();
        let before = std::time::Instant::now();
        watch.sleep(Duration::from_millis(2), LONG);
        assert!(before.elapsed() >= Duration::from_millis(2) && !watch.is_watched());
    }

    /// Whoever comes back while the thread puts them in, or while it wakes and sleeps again.
    #[test]
    fn all_sockets_are_in_the_set_or_none() {
        let sockets = [0, 1, 2].map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
        let fds = sockets.each_ref().map(AsRawFd::as_raw_fd);
        let watch = std::sync::Arc::new(Watch::new(fds, [-1; 2]).unwrap());
        let over = std::sync::Arc::new(AtomicBool::new(false));
        let thread = {
            let (watch, over) = (watch.clone(), over.clone());
            std::thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    watch.sleep_on_sockets(None, Duration::from_micros(1), LONG);
                }
            })
        };
        let (mut inside, mut outside) = (0, 0);
        while inside < 2000 || outside < 2000 {
            watch.program_is_back(LONG);
            let set = watch.lock_set();
            let is_in = |fd: BorrowedFd<'_>| {
                let added = watch.epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, 0));
                let _ = added.is_ok().then(|| watch.epoll.delete(fd));
                added == Err(Errno::EEXIST)
            };
            let all: Vec<bool> = watch.descriptors().map(is_in).collect();
            assert!(all.iter().all(|&there| there == watch.is_watched()), "{all:?}");
            (inside, outside) = (inside + usize::from(all[0]), outside + usize::from(!all[0]));
            drop(set);
            // Now and then the thread gets there first.
            (0..outside % 64).for_each(|_| std::hint::spin_loop());
            if outside > 4 * inside {
                std::thread::yield_now();
            }
        }
        over.store(true, Ordering::Relaxed);
        thread.join().unwrap();
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

    /// Polls as a program does that has nothing else to do, until this is over.
    fn poll_for(watch: &Watch, time: Duration, look: Duration) {
        let start = std::time::Instant::now();
        while start.elapsed() < time {
            let at = crate::clock::now();
            if watch.may_be_put_off(at) {
                watch.put_off(at, look, LONG);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn who_polls_on_puts_the_end_of_the_sleep_off() {
        // So long that the machine takes no thread away for it.
        const LOOK: Duration = Duration::from_secs(1);
        let watch = std::sync::Arc::new(Watch::new([-1; 3], [-1; 2]).unwrap());
        let look = |w: &Watch| w.sleep_while_polled(crate::clock::now(), LOOK, LONG);
        let over = asleep(&watch, look);
        poll_for(&watch, LOOK * 2, LOOK);
        assert_eq!(over.try_recv(), Err(mpsc::TryRecvError::Empty), "who polls all the time is not looked for");
        over.recv_timeout(LOOK * 3).expect("who does so no more is");
        assert!(!watch.may_be_put_off(crate::clock::now()), "the thread is awake");

        let over = asleep(&watch, look);
        poll_for(&watch, LOOK / 4, LOOK);
        watch.keep_look(crate::clock::now());
        poll_for(&watch, LOOK * 2, LOOK);
        over.try_recv().expect("who goes elsewhere between two polls is looked for");

        let over = asleep(&watch, move |w| w.sleep_while_polled(Time(u64::MAX / 2), LONG, LOOK));
        while watch.holds.load(Ordering::Acquire) != LATER {
            std::thread::yield_now();
        }
        watch.holds(crate::clock::now(), LOOK);
        poll_for(&watch, LOOK * 2, LOOK);
        assert_eq!(over.try_recv(), Err(mpsc::TryRecvError::Empty), "what was held back has gone");
        watch.holds(crate::clock::now(), LOOK / 2);
        assert_eq!(over.recv_timeout(LOOK * 3), Ok(true), "what is held back is looked for");
    }

    #[test]
    fn a_look_that_was_put_off_while_the_thread_woke_is_done_at_once() {
        let watch = std::sync::Arc::new(Watch::new([-1; 3], [-1; 2]).unwrap());
        // Long ago, so that it may be put off at once.
        let over = asleep(&watch, |w| w.sleep_while_polled(Time(BACK_FOR_GOOD_NS), LONG, LONG));
        let at = crate::clock::now();
        while watch.put_off_at.load(Ordering::SeqCst) == NEVER || watch.holds.load(Ordering::Acquire) == HELD {
            std::thread::yield_now();
        }
        for _ in 0..100 {
            watch.put_off(at, Duration::ZERO, LONG);
        }
        over.recv_timeout(LONG / 2).expect("its time was set to nothing");
        // The thread is awake, and sets its timer: whoever puts it off now finds nothing to do.
        watch.put_off(at, LONG, LONG);
        assert!(!watch.may_be_put_off(at));
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
        watch.holds(Time(0), HELD_MAX);
        assert_eq!(over.recv_timeout(LONG / 2), Ok(true), "and the thread knows why");
        // Which is no reason to wake one that looks in time; it hears of it then.
        let over = asleep(&watch, |w| w.sleep(LONG, LONG));
        until(SOON);
        watch.holds(Time(0), Duration::ZERO);
        assert_eq!(over.recv_timeout(Duration::from_millis(50)), Err(mpsc::RecvTimeoutError::Timeout));
        watch.wake();
        assert_eq!(over.recv_timeout(LONG / 2), Ok(true));
        assert!(!asleep(&watch, |w| w.sleep(HELD_MAX, LONG)).recv().unwrap(), "nothing was held back");
        // Between its look and its sleep: the thread sets its timer after that of who holds back.
        watch.has_looked(LONG, HELD_MAX);
        watch.holds(Time(0), LONG);
        let over = asleep(&watch, |w| w.sleep_on_sockets(None, LONG, HELD_MAX));
        assert_eq!(over.recv_timeout(LONG / 2), Ok(true));
    }
}

//! What a thread does that polls and finds nothing: it spins, then gives the core away, by yielding
//! or, where the face allows it, by sleeping on the socket.
//!
//! Yielding is the cheaper of the two where nobody else wants the core or the others yield too, and
//! the dearer where one of them computes: the kernel runs that one for a whole time slice, and does
//! not bring the yielder back when its datagram arrives. A sleeper it wakes at once. So each yield
//! is timed, and where one took a whole turn the thread sleeps (docs/lab/2026-11-23-yields.md).
//!
//! Even a sleeper has to wait for its core: who runs there keeps it for the rest of its slice (some
//! 3 ms), unless the one that wakes asks for shorter turns. So threads that sleep here do
//! (docs/lab/2026-11-23-atomics.md).
//!
//! A sleeper may hold a lock of its program's (an MPI's, around `fi_cq_read`), for which others
//! wait who have something to send, and nothing wakes it for them. So a poll never sleeps unless
//! its face says for how long it may, and where several threads poll in turn it sleeps for a
//! quarter of that (docs/lab/2026-11-23-waiting.md).
//!
//! Where many wait on few cores no yield takes a whole turn, and yet they keep from running the one
//! they wait for. So who waits alone on its host sleeps, too, where others had its core for a good
//! part of the time, and the next few times at once (docs/lab/2026-11-28-crowd.md,
//! docs/lab/2026-11-29-crowd-sleeps.md).

use crate::clock::now;
use nix::sys::resource::{UsageWho, getrusage};
use smallvec::SmallVec;
use std::cell::Cell;
use std::ops::RangeInclusive;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use weir_link::Time;
use weir_net::WAKE_SOURCES;

/// A yield that took longer than this let somebody else run.
const LONG_YIELD_NS: u64 = 20_000;
/// What a long yield adds to the contention, and its ceiling; each short yield and each sleep takes
/// one off, so that the core is tried again now and then.
const CONTENDED: u32 = 16;
/// A yield that took longer than this gave a whole turn to somebody who computes; who only polls,
/// yields sooner.
const WHOLE_TURN_NS: u64 = 500_000;
/// Where several threads poll in turn each sleeps for this part of the time at most.
const SEVERAL_PART: u64 = 4;
/// Threads that have polled in turn count as several for so long.
const SEVERAL_NS: u64 = 1_000_000_000;
/// Where others compute on the core, and a message is awaited here or on its way from here, a poll
/// that has found nothing for some time sleeps for this part of that time, ...
const WAITED_PART: u64 = 4;
/// ... but not for longer than what the face says times the ranks that share a core, so many at the
/// most, or so many if no other rank is on the host: nothing then comes but by this endpoint, which
/// wakes the sleeper. Dozens of ranks that wait for one, and wake up every 200 us, leave it none of
/// the core they wait for (docs/lab/2026-11-27-sleeps.md).
const WAITED_MOST: u64 = 16;
/// Who is alone on its host and has waited for so long sleeps, too, ...
const CROWD_NS: u64 = 400_000;
/// ... where others had its core for this part of the time that it was awake.
const CROWD_PART: u64 = 4;
/// A wait in which that was so and the next ones, so many in all, are taken to be such: who spins
/// and yields first has used more of the core, by the time that it sleeps, than what it waits for
/// needs.
const TRUSTED: u32 = 16;
/// They are no longer after so long: who wanted the core may be gone.
const TRUSTED_NS: u64 = 100_000_000;
/// A shorter sleep is not worth its two context switches.
const SLEEP_MIN_NS: u64 = 10_000;

/// The turn of a thread that sleeps here, where others want its core. The least that Linux grants;
/// its share of the core stays what it was.
const SHORT_TURN_NS: u64 = 100_000;

/// Polls further apart than this had the program do something else between them.
pub const ELSEWHERE_NS: u64 = 20_000;

/// No thread's count of context switches.
const NEVER_ASKED: i64 = -1;

/// No thread polls.
const NOBODY: usize = 0;

/// What tells the calling thread from all others that live: where something of its own is.
pub fn here() -> usize {
    thread_local! {
        static HERE: u8 = const { 1 };
    }
    HERE.with(|here| std::ptr::from_ref(here) as usize)
}

/// How much of the time that an endpoint has been polled in vain others had the poller's core.
/// Dozens of them that wait themselves give it back soon, each time, and no yield takes a whole
/// turn; all the same it is they who keep from running the one they wait for. (Threads that poll
/// at once may lose a count: then one yields that could have slept, or sleeps once in vain.)
struct Crowd {
    /// When this wait began, nanoseconds; [`NO_WAIT`]: nothing is awaited.
    began_ns: AtomicU64,
    /// Since then others had the core for so long, ...
    given_ns: AtomicU64,
    /// ... and this thread slept for so long.
    slept_ns: AtomicU64,
    /// So many more waits are taken to be as the one was in which that was found, ...
    trusted: AtomicU32,
    /// ... until then.
    trusted_until_ns: AtomicU64,
}

/// No wait begins then.
const NO_WAIT: u64 = u64::MAX;

impl Crowd {
    const fn new() -> Crowd {
        Crowd {
            began_ns: AtomicU64::new(NO_WAIT),
            given_ns: AtomicU64::new(0),
            slept_ns: AtomicU64::new(0),
            trusted: AtomicU32::new(0),
            trusted_until_ns: AtomicU64::new(0),
        }
    }

    /// What is told from now on is of the wait that began then.
    fn waits_since(&self, began_ns: u64) {
        if self.began_ns.swap(began_ns, Ordering::Relaxed) != began_ns {
            self.given_ns.store(0, Ordering::Relaxed);
            self.slept_ns.store(0, Ordering::Relaxed);
            let left = self.trusted.load(Ordering::Relaxed).saturating_sub(1);
            self.trusted.store(left, Ordering::Relaxed);
        }
    }

    fn add(counter: &AtomicU64, ns: u64) {
        counter.store(counter.load(Ordering::Relaxed).saturating_add(ns), Ordering::Relaxed);
    }

    /// Whether waits are taken to be in a crowd without a look at this one.
    fn is_trusted(&self, at: Time) -> bool {
        self.trusted.load(Ordering::Relaxed) > 0 && at.0 < self.trusted_until_ns.load(Ordering::Relaxed)
    }

    /// Waits may not be as they were.
    fn forget(&self) {
        self.trusted.store(0, Ordering::Relaxed);
    }

    /// How long the thread should sleep, which has polled in vain for `empty_ns`: as long as half
    /// of that, within bounds, or not at all.
    fn sleep_ns(&self, at: Time, empty_ns: u64, bounds: RangeInclusive<u64>) -> u64 {
        let awake_ns = empty_ns.saturating_sub(self.slept_ns.load(Ordering::Relaxed));
        if *bounds.end() == 0 {
            return 0;
        }
        if !self.is_trusted(at) {
            if empty_ns < CROWD_NS || self.given_ns.load(Ordering::Relaxed) < awake_ns / CROWD_PART {
                return 0;
            }
            self.trusted.store(TRUSTED, Ordering::Relaxed);
            self.trusted_until_ns.store(at.0 + TRUSTED_NS, Ordering::Relaxed);
        }
        (empty_ns / 2).clamp(*bounds.start(), *bounds.end())
    }
}

/// How the endpoint waits.
pub struct Waiting {
    /// Empty polls spin for this long, nanoseconds.
    spin_ns: u64,
    /// Longest sleep in a poll, nanoseconds; 0: none.
    sleep_max_ns: AtomicU64,
    /// Who waits for long may sleep for so many times that.
    patience: u64,
    /// No other rank is on this host.
    alone: bool,
    crowd: Crowd,
    contention: AtomicU32,
    /// The same of yields that took a whole turn.
    starvation: AtomicU32,
    /// The thread that was the last to poll in vain, and when another one was.
    poller: AtomicUsize,
    several_at: AtomicU64,
    /// The polling thread's involuntary context switches when it last asked.
    displaced: AtomicI64,
}

impl Waiting {
    /// `ranks` are on this host, on so many `cores`; 0: nobody knows how many.
    pub fn new(spin_us: u32, poll_sleep_us: u32, ranks: usize, cores: usize) -> Waiting {
        let sharing = ranks.div_ceil(cores.max(1)).max(1) as u64;
        Waiting {
            spin_ns: u64::from(spin_us) * 1000,
            sleep_max_ns: AtomicU64::new(u64::from(poll_sleep_us) * 1000),
            patience: if ranks == 1 { WAITED_MOST } else { sharing.min(WAITED_MOST) },
            alone: ranks == 1,
            crowd: Crowd::new(),
            contention: AtomicU32::new(if sharing > 1 { CONTENDED } else { 0 }),
            starvation: AtomicU32::new(0),
            poller: AtomicUsize::new(NOBODY),
            several_at: AtomicU64::new(0),
            displaced: AtomicI64::new(NEVER_ASKED),
        }
    }

    /// The calling thread sends. If another one is who polls, they are several: the poller may
    /// sleep with a lock of their program's that this one needs.
    pub fn sends(&self, at: impl FnOnce() -> Time) {
        let poller = self.poller.load(Ordering::Relaxed);
        if poller != NOBODY && poller != here() {
            self.several_at.store(at().0.max(1), Ordering::Relaxed);
        }
    }

    /// Whether several threads poll in turn, of whom the calling one polls in vain now.
    fn are_several(&self, at: Time) -> bool {
        let me = here();
        let before = self.poller.load(Ordering::Relaxed);
        if before != me {
            self.poller.store(me, Ordering::Relaxed);
            if before != NOBODY {
                self.several_at.store(at.0.max(1), Ordering::Relaxed);
            }
        }
        let several_at = self.several_at.load(Ordering::Relaxed);
        several_at != 0 && at.0.saturating_sub(several_at) < SEVERAL_NS
    }

    /// How long this thread, which has polled in vain for `empty_ns`, sleeps at the most instead of
    /// yielding, nanoseconds; 0: it yields. Of several threads each sleeps as soon as yields are
    /// long: the one that yields may hold a lock that the others wait for. `awaits`: a message is
    /// awaited here, or on its way from here. Else the program may wait for what comes another way,
    /// of which nothing wakes it.
    pub fn sleep_ns(&self, at: Time, empty_ns: u64, awaits: bool) -> u64 {
        let several = self.are_several(at);
        if several {
            self.crowd.forget();
        }
        self.crowd.waits_since(if awaits { at.0.saturating_sub(empty_ns) } else { NO_WAIT });
        let wanted = if several { &self.contention } else { &self.starvation };
        let left = wanted.load(Ordering::Relaxed);
        let most = self.sleep_max_ns.load(Ordering::Relaxed);
        if left == 0 {
            let alone = awaits && !several && self.alone;
            return if alone { self.crowd.sleep_ns(at, empty_ns, most..=self.patience * most) } else { 0 };
        }
        wanted.store(left - 1, Ordering::Relaxed);
        match several {
            true => most / SEVERAL_PART,
            false if awaits => (empty_ns / WAITED_PART).clamp(most, self.patience * most),
            false => most,
        }
    }

    /// From now on empty polls yield, and do not sleep: what is waited for comes where nothing
    /// wakes a sleeper.
    pub fn never_sleep(&self) {
        self.sleep_max_ns.store(0, Ordering::Relaxed);
        self.crowd.forget();
    }

    /// Whether the kernel has run somebody else in this thread's place since it last asked. (Of
    /// several threads that take turns each one's count is another: then the answer is yes.)
    pub fn was_displaced(&self) -> bool {
        let Ok(usage) = getrusage(UsageWho::RUSAGE_THREAD) else { return false };
        let switches = usage.involuntary_context_switches();
        let before = self.displaced.swap(switches, Ordering::Relaxed);
        before != NEVER_ASKED && before != switches
    }

    /// As if somebody who computes had wanted the core.
    #[cfg(test)]
    pub fn contend(&self) {
        self.yielded(WHOLE_TURN_NS + 1);
    }

    /// Whether others have wanted the core lately.
    pub fn is_contended(&self) -> bool {
        self.contention.load(Ordering::Relaxed) > 0
    }

    /// Whether polls have been empty long enough to let others use the core: soon, where others
    /// want it.
    pub fn is_over(&self, empty_ns: u64) -> bool {
        empty_ns >= if self.is_contended() { self.spin_ns / 8 } else { self.spin_ns }
    }

    /// Whether this wait, if a peer is awaited, is taken to be one of many on few cores, so that
    /// who waits sleeps without polling first.
    #[inline]
    pub fn is_in_crowd(&self, at: Time) -> bool {
        self.crowd.is_trusted(at)
    }

    /// Lets others use the core, asleep for `sleep_ns` at the most if that is worth it; `timeout`
    /// is when the endpoint has something to do although nothing arrives, and room in a socket
    /// counts as well. `before_sleep` is told until when at most it will sleep.
    pub fn give_way(
        &self,
        sleep_ns: u64,
        descriptors: &[Descriptors],
        at: Time,
        timeout: Option<Time>,
        before_sleep: impl FnOnce(Time),
    ) {
        let ns = timeout.map_or(sleep_ns, |t| t.0.saturating_sub(at.0)).min(sleep_ns);
        if ns >= SLEEP_MIN_NS {
            take_short_turns();
            before_sleep(at.plus_ns(ns));
            let before = now();
            wait_ready(descriptors, Duration::from_nanos(ns));
            return Crowd::add(&self.crowd.slept_ns, now().since_ns(before));
        }
        let before = now();
        std::thread::yield_now();
        self.yielded(now().since_ns(before));
    }

    /// Takes down how long a yield took.
    pub fn yielded(&self, ns: u64) {
        let left = self.contention.load(Ordering::Relaxed).saturating_sub(1);
        self.contention.store(if ns > LONG_YIELD_NS { CONTENDED } else { left }, Ordering::Relaxed);
        if ns > LONG_YIELD_NS {
            Crowd::add(&self.crowd.given_ns, ns);
        }
        if ns > WHOLE_TURN_NS {
            self.starvation.store(CONTENDED, Ordering::Relaxed);
        }
    }
}

/// From now on this thread's turns are short ones, so that what wakes it gets it its core at once,
/// whoever is in the middle of a turn there (Linux 6.12 and later; others ignore it). Nothing else
/// of its scheduling is changed, and nothing at all of who asked for turns of his own, or for
/// another policy than the usual.
pub fn take_short_turns() {
    thread_local! {
        static ASKED: Cell<bool> = const { Cell::new(false) };
    }
    if !ASKED.replace(true)
        && let Some(mut attr) = scheduling()
        && attr.sched_policy == libc::SCHED_OTHER as u32
        && attr.sched_runtime > SHORT_TURN_NS
    {
        attr.sched_runtime = SHORT_TURN_NS;
        // SAFETY: a valid structure that tells its size; 0 is the calling thread. Where it is
        // refused all stays as it was.
        unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
    }
}

/// How this thread is scheduled.
fn scheduling() -> Option<libc::sched_attr> {
    // SAFETY: a structure of numbers.
    let mut attr: libc::sched_attr = unsafe { std::mem::zeroed() };
    // SAFETY: room for as many bytes as are said; 0 is the calling thread.
    let r = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size_of_val(&attr), 0) };
    (r == 0).then_some(attr)
}

/// What is waited for of an endpoint: the datagram sockets, the one of them that has no room, and
/// the descriptors of bulk connections and of shared memory; -1 is none.
pub type Descriptors = ([RawFd; WAKE_SOURCES], Option<RawFd>, [RawFd; 2]);

/// Sleeps until one of them is readable, or has room again, or the time is over.
pub fn wait_ready(endpoints: &[Descriptors], time: Duration) {
    let mut slots: SmallVec<[libc::pollfd; 8]> = SmallVec::new();
    for (sockets, blocked, others) in endpoints {
        let slot = |fd: &RawFd| {
            let events = if *blocked == Some(*fd) { libc::POLLIN | libc::POLLOUT } else { libc::POLLIN };
            libc::pollfd { fd: *fd, events, revents: 0 }
        };
        slots.extend(sockets.iter().chain(others).map(slot));
    }
    let time = libc::timespec { tv_sec: time.as_secs() as libc::time_t, tv_nsec: time.subsec_nanos().into() };
    // SAFETY: as many entries as are said, a negative descriptor being none, a valid time, no
    // signal mask. Interruption is as good as a time-out.
    unsafe { libc::ppoll(slots.as_mut_ptr(), slots.len() as libc::nfds_t, &raw const time, std::ptr::null()) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::time::Instant;

    /// A yield that somebody else's poll filled, and one that took a whole turn.
    const LONG: u64 = LONG_YIELD_NS + 1;
    const WHOLE: u64 = WHOLE_TURN_NS + 1;

    /// What depends on the scheduler has to be so once.
    fn once(mut is_so: impl FnMut() -> bool) {
        let start = Instant::now();
        while !is_so() {
            assert!(start.elapsed() < Duration::from_secs(60), "it never happens");
        }
    }

    /// The same, while twice as many threads as there are cores want them.
    fn beside_busy_threads(is_so: impl FnMut() -> bool) {
        let stop = AtomicBool::new(false);
        std::thread::scope(|s| {
            for _ in 0..2 * std::thread::available_parallelism().map_or(1, usize::from) {
                s.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            once(is_so);
            stop.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn contention_is_found_by_yields_and_forgotten_when_they_are_short() {
        let waiting = Waiting::new(100, 200, 2, 2);
        let give_way = || waiting.give_way(0, &[NOTHING], Time(0), None, |_| ());
        beside_busy_threads(|| {
            give_way();
            waiting.is_contended()
        });
        once(|| {
            give_way();
            !waiting.is_contended()
        });
    }

    /// Nothing to wait for.
    const NOTHING: Descriptors = ([-1; WAKE_SOURCES], None, [-1; 2]);

    /// How long a thread that polls in vain after a yield of `yield_ns` says that it will sleep at
    /// the most; none: it does not.
    fn sleeps(waiting: &Waiting, at: Time, yield_ns: u64) -> Option<u64> {
        waiting.yielded(yield_ns);
        let mut until = None;
        waiting.give_way(waiting.sleep_ns(at, 0, true), &[NOTHING], at, None, |t| until = Some(t.0 - at.0));
        until
    }

    #[test]
    fn a_poll_sleeps_as_long_as_its_face_says_and_a_quarter_of_it_where_several_threads_poll() {
        let at = Time(77_000_000);
        let never = Waiting::new(0, 0, 4, 2);
        assert_eq!(sleeps(&never, at, WHOLE), None);
        let waiting = Waiting::new(0, 200, 4, 2);
        assert_eq!(sleeps(&waiting, at, WHOLE), Some(200_000));
        let other = std::thread::scope(|s| s.spawn(|| sleeps(&waiting, at, WHOLE)).join().expect("thread"));
        assert_eq!(other, Some(50_000));
        assert_eq!(sleeps(&waiting, at, WHOLE), Some(50_000));
        assert_eq!(sleeps(&waiting, at.plus_ns(SEVERAL_NS), WHOLE), Some(200_000), "the other has gone");
    }

    #[test]
    fn one_thread_sleeps_where_somebody_computes_and_one_of_several_as_soon_as_yields_are_long() {
        let at = Time(77_000_000);
        let waiting = Waiting::new(0, 200, 2, 2);
        assert_eq!(waiting.sleep_ns(at, 0, true), 0, "it has not yielded yet");
        waiting.yielded(LONG);
        assert_eq!(waiting.sleep_ns(at, 0, true), 0, "the others yield too");
        waiting.yielded(WHOLE);
        for left in (0..CONTENDED).rev() {
            assert_eq!(waiting.sleep_ns(at, 0, true), 200_000, "{left} more");
        }
        assert_eq!(waiting.sleep_ns(at, 0, true), 0, "the core is tried again");
        waiting.yielded(LONG);
        let other = std::thread::scope(|s| s.spawn(|| waiting.sleep_ns(at, 0, true)).join().expect("thread"));
        assert_eq!(other, 50_000);
    }

    #[test]
    fn where_others_compute_who_is_alone_or_one_of_many_and_has_waited_long_sleeps_longer() {
        let at = Time(77_000_000);
        let sleep = |ranks, yield_ns, empty_ns, awaits| {
            let waiting = Waiting::new(0, 200, ranks, 2);
            waiting.yielded(yield_ns);
            waiting.sleep_ns(at, empty_ns, awaits)
        };
        for ranks in [1, 64] {
            assert_eq!(sleep(ranks, WHOLE, 100_000, true), 200_000);
            assert_eq!(sleep(ranks, WHOLE, 8_000_000, true), 2_000_000);
            assert_eq!(sleep(ranks, WHOLE, u64::MAX, true), 3_200_000);
            assert_eq!(sleep(ranks, WHOLE, u64::MAX, false), 200_000, "something else is awaited");
            assert_eq!(sleep(ranks, LONG, u64::MAX, true), 0, "nobody computes");
        }
        assert_eq!(sleep(4, WHOLE, u64::MAX, true), 400_000);
        // One core each leaves nobody waiting for it, and the others may have another way to it.
        assert_eq!(sleep(2, WHOLE, u64::MAX, true), 200_000);
        assert_eq!(sleep(0, WHOLE, u64::MAX, true), 200_000);
    }

    #[test]
    fn who_is_alone_on_its_host_sleeps_where_others_had_its_core_for_a_quarter_of_the_wait() {
        const MS: u64 = 1_000_000;
        let long = 2 * LONG_YIELD_NS;
        let yields = |waiting: &Waiting, ns: u64| (0..ns / long).for_each(|_| waiting.yielded(long));
        let waiting = Waiting::new(0, 200, 1, 2);
        let given = |ns| yields(&waiting, ns);
        // A wait that began at `from`, after so long.
        let sleep = |from: u64, empty_ns: u64| waiting.sleep_ns(Time(from + empty_ns), empty_ns, true);
        assert_eq!(sleep(7, MS), 0, "nobody else wants the core");
        given(MS / 5);
        assert_eq!(sleep(7, MS), 0, "a fifth of the time");
        given(MS / 10);
        assert_eq!(sleep(7, MS), MS / 2);
        let forget = || waiting.crowd.forget();
        forget();
        assert_eq!(sleep(7, 2 * MS), 0, "it was awake, and others had less than a quarter");
        // What was slept is no time in which others had the core, nor one in which they had not.
        Crowd::add(&waiting.crowd.slept_ns, MS);
        assert_eq!(sleep(7, 2 * MS), MS);
        forget();
        // Another wait, of which nothing is known yet, also after as long a time; a short one is
        // not worth it.
        assert_eq!(sleep(3 * MS, 2 * MS), 0);
        assert_eq!(sleep(6 * MS, MS / 10), 0);
        given(MS / 2);
        assert_eq!(sleep(6 * MS, CROWD_NS - 1), 0);
        assert_eq!(sleep(6 * MS, CROWD_NS), CROWD_NS / 2);
        // The next waits are taken to be such, each from its beginning on.
        assert!(waiting.is_in_crowd(Time(7 * MS)) && !waiting.is_in_crowd(Time(120 * MS)), "for a time");
        for wait in 1..u64::from(TRUSTED) {
            assert_eq!(sleep((6 + wait) * MS, 1000), 200_000, "wait {wait}");
        }
        assert_eq!(sleep(40 * MS, 1000), 0, "that is tried again");
        assert!(!waiting.is_in_crowd(Time(41 * MS)));
        assert_eq!(sleep(6 * MS, 1000), 0);
        given(400 * MS);
        assert_eq!(sleep(6 * MS, 1000 * MS), 3_200_000, "no longer than the face says times 16");
        // Who awaits nothing here may wait for another library; what others had meanwhile is not
        // of the wait that comes then.
        assert_eq!(waiting.sleep_ns(Time(1007 * MS), 1000 * MS, false), 0);
        given(400 * MS);
        forget();
        assert_eq!(sleep(6 * MS, 1002 * MS), 0);
        let forbidden = Waiting::new(0, 200, 1, 2);
        forbidden.never_sleep();
        for other in [forbidden, Waiting::new(0, 0, 1, 2), Waiting::new(0, 200, 2, 2)] {
            assert_eq!(other.sleep_ns(Time(MS), MS, true), 0);
            yields(&other, 10 * MS);
            assert_eq!(other.sleep_ns(Time(10 * MS), 10 * MS, true), 0);
            assert!(!other.is_in_crowd(Time(10 * MS)));
        }
        // Of several threads the others may wait for what this one holds.
        assert_eq!(sleep(50 * MS, 1000), 0);
        yields(&waiting, 10 * MS);
        assert_eq!(sleep(50 * MS, MS), MS / 2);
        assert!(waiting.is_in_crowd(Time(51 * MS)));
        std::thread::scope(|s| s.spawn(|| sleep(51 * MS, 1000)).join().expect("thread"));
        assert!(!waiting.is_in_crowd(Time(51 * MS)));
        waiting.crowd.trusted.store(TRUSTED, Ordering::Relaxed);
        waiting.never_sleep();
        assert!(!waiting.is_in_crowd(Time(51 * MS)));
    }

    #[test]
    fn who_polls_sleeps_for_a_quarter_where_another_thread_sends() {
        let at = Time(77_000_000);
        let waiting = Waiting::new(0, 200, 1, 2);
        waiting.sends(|| at);
        waiting.yielded(WHOLE);
        assert_eq!(waiting.sleep_ns(at, u64::MAX, true), 3_200_000);
        waiting.sends(|| at);
        assert_eq!(waiting.sleep_ns(at, u64::MAX, true), 3_200_000, "the poller's own");
        std::thread::scope(|s| s.spawn(|| waiting.sends(|| at)).join().expect("thread"));
        assert_eq!(waiting.sleep_ns(at, u64::MAX, true), 50_000);
        assert_eq!(waiting.sleep_ns(at.plus_ns(SEVERAL_NS), u64::MAX, true), 3_200_000);
    }

    #[test]
    fn who_sleeps_takes_short_turns_and_keeps_its_share() {
        std::thread::spawn(|| {
            let before = scheduling().expect("asked");
            sleeps(&Waiting::new(0, 0, 4, 2), Time(77), WHOLE);
            assert_eq!(scheduling().expect("asked").sched_runtime, before.sched_runtime, "it has not slept");
            sleeps(&Waiting::new(0, 20, 4, 2), Time(77), WHOLE);
            let after = scheduling().expect("asked");
            // A kernel from before 6.12 has none to tell of.
            let want = before.sched_runtime.min(SHORT_TURN_NS);
            assert_eq!(after.sched_runtime, want);
            assert_eq!((after.sched_policy, after.sched_nice), (before.sched_policy, before.sched_nice));
        })
        .join()
        .expect("thread");
    }

    #[test]
    fn a_thread_is_displaced_by_others_and_not_by_its_own_sleep() {
        let waiting = Waiting::new(100, 200, 2, 2);
        once(|| {
            waiting.was_displaced();
            std::thread::sleep(Duration::from_millis(1));
            !waiting.was_displaced()
        });
        beside_busy_threads(|| waiting.was_displaced());
    }
}

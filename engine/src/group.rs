//! Endpoints of one process: a thread that polls one looks after the others too.
//!
//! A program with several endpoints polls one, or each in its turn, and does not know that the
//! others need it as well. So of the endpoints of a group
//! * one that nobody has polled lately gets a turn of a poll of another (its watchdog would step in
//!   only after a while);
//! * a poll that sleeps wakes for what comes for any of them: Open MPI has one endpoint for
//!   messages and one for windows, and asleep on the sockets of the one it found what had come for
//!   the other when the sleep was over (docs/lab/2026-11-23-atomics.md);
//! * one that nobody talks to is its watchdog's as soon as that sleeps on its sockets: it gets no
//!   turns then, and no sleep of another wakes for it;
//! * a poll gives the core away only when its thread has found nothing at any of them for a while:
//!   an endpoint that is quiet says nothing about whether the program waits.
//!
//! Nothing here waits for an endpoint's lock: one whose lock is held is making progress already.
//! With one endpoint in the group it costs the look at one number.

use crate::clock::now;
use crate::core::{Core, QUIET_GAP_NS};
use crate::waiting::{Descriptors, here};
use crate::{Lock, Shared};
use smallvec::{SmallVec, smallvec};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use weir_link::Time;

/// An endpoint that nobody has polled for this long is given turns: longer than a program takes
/// from one poll of it to the next, where it polls it at all.
const UNATTENDED_NS: u64 = 50_000;
/// No sooner after the last turn in the group than so: a look at sockets takes a third of it.
const TURN_GAP_NS: u64 = 1_000;
/// A poll that found something waits longer: its own messages come first.
const BUSY_GAP_NS: u64 = 8_000;
/// Where none needs a turn, they are looked at so often.
const IDLE_GAP_NS: u64 = 20_000;

/// A group of endpoints. Clones are the same group.
#[derive(Clone)]
pub struct Group(Arc<Inner>);

impl Default for Group {
    fn default() -> Group {
        Group::new()
    }
}

struct Inner {
    /// How many there are, for a look without the lock.
    count: AtomicUsize,
    members: Lock<Vec<Weak<Shared>>>,
    /// Whose turn it is.
    turn: AtomicUsize,
    /// From when on the next turn may be given, nanoseconds.
    next_turn: AtomicU64,
    /// The thread that was the last to find something, and when.
    finder: AtomicUsize,
    found: AtomicU64,
}

/// What a thread waits for that sleeps in a poll.
pub(crate) struct Sleep {
    /// Of all endpoints that it waits for.
    pub descriptors: SmallVec<[Descriptors; 2]>,
    /// When one of them has something to do although nothing arrives.
    pub timeout: Option<Time>,
    /// Those that are not its own: their descriptors live as long as this.
    others: SmallVec<[Arc<Shared>; 1]>,
}

impl Sleep {
    /// One endpoint's own.
    pub fn new(descriptors: Descriptors, timeout: Option<Time>) -> Sleep {
        Sleep { descriptors: smallvec![descriptors], timeout, others: SmallVec::new() }
    }

    /// The others count as polled at this time: asleep is not away.
    pub fn polled(&self, at: Time) {
        self.others.iter().for_each(|other| other.last_poll.store(at.0, Ordering::Relaxed));
    }
}

impl Group {
    /// A group without endpoints. [`crate::Endpoint::join`] adds them.
    #[must_use]
    pub fn new() -> Group {
        Group(Arc::new(Inner {
            count: AtomicUsize::new(0),
            members: Lock::new(Vec::new()),
            turn: AtomicUsize::new(0),
            next_turn: AtomicU64::new(0),
            finder: AtomicUsize::new(0),
            found: AtomicU64::new(0),
        }))
    }

    /// In a child made by fork(2): what the group has are the parent's endpoints, and another
    /// thread of the parent's may be at the list. The child's own may join it.
    ///
    /// # Safety
    /// By the thread that forked, which is the only one of the child.
    pub(crate) unsafe fn abandon(&self) {
        // SAFETY: this thread has no guard: none is held where an endpoint is made or dropped, or
        // where a program could fork.
        unsafe { self.0.members.renew(Vec::new()) };
        self.0.count.store(0, Ordering::Release);
    }

    /// For tests: as a thread that is at the list.
    #[cfg(test)]
    pub(crate) fn hold(&self) -> impl Sized {
        self.0.members.lock()
    }

    /// For tests: whether nobody is at the list.
    #[cfg(test)]
    pub(crate) fn is_free(&self) -> bool {
        self.0.members.try_lock().is_some()
    }

    pub(crate) fn add(&self, member: Weak<Shared>) {
        let mut members = self.0.members.lock();
        members.retain(|m| m.strong_count() > 0);
        members.push(member);
        self.0.count.store(members.len(), Ordering::Release);
    }

    pub(crate) fn remove(&self, own: &Shared) {
        let mut members = self.0.members.lock();
        members.retain(|m| m.strong_count() > 0 && !std::ptr::eq(m.as_ptr(), own));
        self.0.count.store(members.len(), Ordering::Release);
    }

    /// Whether there is more than one endpoint.
    #[inline]
    pub(crate) fn has_others(&self) -> bool {
        self.0.count.load(Ordering::Acquire) > 1
    }

    /// A poll by this thread found something.
    #[inline]
    pub(crate) fn found(&self, at: Time) {
        self.0.finder.store(here(), Ordering::Relaxed);
        self.0.found.store(at.0, Ordering::Relaxed);
    }

    /// When this thread last found something at any of them, if it was the last to do so. What
    /// other threads find says nothing about what this one waits for.
    pub(crate) fn found_here(&self) -> u64 {
        if self.0.finder.load(Ordering::Relaxed) == here() { self.0.found.load(Ordering::Relaxed) } else { 0 }
    }

    /// After a poll of `own`, which `found` something or not: gives one of the others a turn that
    /// nobody else looks after.
    #[inline]
    pub(crate) fn give_turn(&self, own: &Shared, at: Time, found: bool) {
        let from = self.0.next_turn.load(Ordering::Relaxed);
        if at.0 >= from.saturating_add(if found { BUSY_GAP_NS } else { 0 }) {
            let gap = if self.turn(own, at) { TURN_GAP_NS } else { IDLE_GAP_NS };
            self.0.next_turn.store(at.0 + gap, Ordering::Relaxed);
        }
    }

    /// Whether there was such a one.
    #[cold]
    fn turn(&self, own: &Shared, at: Time) -> bool {
        // Whoever holds the list gives a turn at this moment, or changes the list.
        let Some(members) = self.0.members.try_lock() else { return true };
        let first = self.0.turn.fetch_add(1, Ordering::Relaxed);
        for i in 0..members.len() {
            let member = &members[first.wrapping_add(i) % members.len()];
            if std::ptr::eq(member.as_ptr(), own) {
                continue;
            }
            let Some(other) = member.upgrade().filter(|o| o.is_unattended(at)) else { continue };
            drop(members);
            other.take_turn();
            return true;
        }
        false
    }

    /// Prepares the others for a sleep in a poll of `own`, which is prepared. False: one of them
    /// has something to do first.
    pub(crate) fn prepare_sleep(&self, own: &Shared, sleep: &mut Sleep) -> bool {
        let members = self.0.members.lock().clone();
        for other in members.iter().filter(|m| !std::ptr::eq(m.as_ptr(), own)).filter_map(Weak::upgrade) {
            // Somebody is at work on it, or a panic has left it half changed.
            let Some(mut core) = other.try_enter() else { continue };
            // A program that does not poll it leaves completions where they are.
            let is_polled = !other.helped.load(Ordering::Relaxed);
            if is_polled && core.st.messages.has_completions() {
                return false;
            }
            if other.is_watchdogs(&core) {
                continue;
            }
            if !core.prepare_sleep() {
                return false;
            }
            // An unusable socket is ready for ever.
            if core.st.messages.broken().is_none() {
                sleep.timeout = [sleep.timeout, core.next_timeout()].into_iter().flatten().min();
                sleep.descriptors.push((other.sockets, core.blocked_at(), other.others));
                drop(core);
                sleep.others.push(other);
            }
        }
        true
    }
}

impl Shared {
    /// Its own program has not polled it lately, nor has it just been found with nothing to do.
    fn is_unattended(&self, at: Time) -> bool {
        let polled = self.last_poll.load(Ordering::Relaxed);
        let is_left = self.helped.load(Ordering::Relaxed) || at.0.saturating_sub(polled) >= UNATTENDED_NS;
        is_left && at.0 >= self.quiet_until.load(Ordering::Relaxed)
    }

    /// Nobody talks to it, and it to nobody, and its watchdog sleeps on the sockets until somebody
    /// does. Turns and sleeps of others would only have it take them out of its set and put them in
    /// again, and look every few milliseconds, on the core of who polls.
    fn is_watchdogs(&self, core: &Core) -> bool {
        let is_left = self.watchdog_ns > 0 && self.helped.load(Ordering::Relaxed) && core.is_left_alone();
        is_left && self.watch.is_watched()
    }

    /// A pass of progress by somebody who polls another endpoint.
    fn take_turn(&self) {
        let Some(mut core) = self.try_enter() else { return };
        let now = now();
        let helped = self.helped.swap(true, Ordering::Relaxed);
        let is_left = helped && self.watchdog_ns > 0 && core.is_left_alone();
        if is_left && (self.watch.is_watched() || core.is_asleep()) {
            return self.quiet_until.store(now.plus_ns(QUIET_GAP_NS).0, Ordering::Relaxed);
        }
        // As good as polled: the watchdog need not step in. (Turns are further apart than polls: of
        // the second one on that says nothing of where the program was.) But one that nobody talks
        // to it takes over as soon as it finds out, and then has the sockets.
        if !is_left {
            if helped {
                self.attended(now);
            } else if self.polled(now) {
                self.is_back(now);
            }
        }
        core.st.counters.turns += 1;
        core.progress_polled(now);
        // (Else its watchdog would look every few milliseconds, on the core of who polls.)
        if !is_left && core.held_bytes == 0 {
            self.put_look_off(now);
        }
        self.quiet_until.store(core.quiet_until().0, Ordering::Relaxed);
        self.look_soon();
        if self.armed.any() {
            self.wake_due(&core);
        }
        if self.armed.any() && !core.prepare_sleep() {
            // The pass has told peers that nobody sleeps here; its watchdog does, and something has
            // come for it.
            self.wake_who_sleeps();
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{CarrierUse, Class, Endpoint, EngineConfig, Group, Iov, Queue, RecvOp, SendMode, SendOp};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    /// Nothing takes this long, however busy the machine, but what hangs; a poll may sleep for
    /// longer.
    const LIMIT: Duration = Duration::from_secs(20);
    const SLEEP_US: u32 = 30_000_000;

    fn open(poll_sleep_us: u32) -> Arc<Endpoint> {
        let addrs = vec!["127.0.0.1".parse().expect("address")];
        let linger = Duration::from_millis(20);
        let cfg = EngineConfig { addrs, poll_sleep_us, spin_us: 0, watchdog_us: 0, linger, ..EngineConfig::packets() };
        Endpoint::open_with_key(cfg, [7; 32]).expect("open")
    }

    fn exchange(from: &Endpoint, at: &Endpoint, mut drive: impl FnMut()) {
        let to = from.insert_peer(&at.name()).expect("name");
        let (mut data, mut buf) = ([1u8; 8], [0u8; 8]);
        let recv = RecvOp {
            source: None,
            class: Class::Tagged,
            tag: 1,
            ignore: 0,
            memory: &[Iov { base: buf.as_mut_ptr(), len: 8 }],
            multi_min: None,
            report: true,
            context: 1,
            user: 0,
        };
        let send = SendOp {
            peer: to,
            class: Class::Tagged,
            tag: 1,
            data: None,
            memory: &[Iov { base: data.as_mut_ptr(), len: 8 }],
            mode: SendMode::Inject,
            copy: true,
            report: false,
            context: 2,
            user: 0,
        };
        // SAFETY: the memory lives until the message is there.
        unsafe {
            at.recv(&recv).expect("posted");
            from.send(&send).expect("accepted");
        }
        let (start, mut out) = (Instant::now(), Vec::new());
        while at.poll(Queue::Recv, &mut out, 1) == 0 {
            drive();
            assert!(start.elapsed() < LIMIT);
        }
    }

    fn open_watched(watchdog_us: u32) -> Arc<Endpoint> {
        let addrs = vec!["127.0.0.1".parse().expect("address")];
        let cfg = EngineConfig { addrs, watchdog_us, ..EngineConfig::packets() };
        Endpoint::open_with_key(cfg, [7; 32]).expect("open")
    }

    #[test]
    fn an_endpoint_that_nobody_talks_to_is_its_watchdogs_until_somebody_does() {
        let (polled, left, peer) = (open_watched(500), open_watched(500), open(0));
        let group = Group::new();
        [&polled, &left].iter().for_each(|ep| ep.join(&group));
        let (start, mut out) = (Instant::now(), Vec::new());
        let mut watched = 0;
        while watched < 100 {
            polled.poll(Queue::Both, &mut out, 1);
            watched = if left.shared.watch.is_watched() { watched + 1 } else { 0 };
            std::thread::sleep(Duration::from_micros(100));
            assert!(start.elapsed() < LIMIT, "turns keep its watchdog from sleeping on its sockets");
        }
        // Somebody does: neither polls it itself.
        greet(&peer, &left, || _ = polled.poll(Queue::Both, &mut out, 1));
    }

    #[test]
    fn an_endpoint_whose_watchdog_is_not_there_yet_has_turns_though_nobody_talks_to_it() {
        let (polled, left, peer) = (open_watched(1_000_000), open_watched(1_000_000), open(0));
        let group = Group::new();
        [&polled, &left].iter().for_each(|ep| ep.join(&group));
        let mut out = Vec::new();
        let turns = || left.shared.core.lock().st.counters.turns;
        let start = Instant::now();
        while turns() == 0 {
            polled.poll(Queue::Both, &mut out, 1);
            assert!(start.elapsed() < LIMIT);
        }
        // Its watchdog leaves it alone for a second (which may go by on a busy machine).
        greet(&peer, &left, || _ = polled.poll(Queue::Both, &mut out, 1));
        let steps = left.shared.core.lock().st.counters.watchdog_steps;
        assert!(steps == 0 || start.elapsed() > Duration::from_millis(900), "it was the watchdog that heard it");
    }

    /// The first contact of one with the other, which only `drive` looks after.
    fn greet(from: &Endpoint, to: &Endpoint, mut drive: impl FnMut()) {
        let peer = from.insert_peer(&to.name()).expect("name");
        let send = SendOp {
            peer,
            class: Class::Tagged,
            tag: 1,
            data: None,
            memory: &[],
            mode: SendMode::Inject,
            copy: true,
            report: false,
            context: 2,
            user: 0,
        };
        // SAFETY: no memory.
        unsafe { from.send(&send) }.expect("accepted");
        let start = Instant::now();
        while to.shared.core.lock().st.proto().counters().session.messages_received == 0 {
            from.progress();
            drive();
            assert!(start.elapsed() < LIMIT, "nobody hears it");
        }
    }

    #[test]
    fn turns_put_the_watchdogs_look_off_as_polls_do() {
        let (ep, peer) = (open_watched(5_000), open(0));
        exchange(&peer, &ep, || _ = peer.poll(Queue::Both, &mut Vec::new(), 1));
        let start = Instant::now();
        loop {
            std::thread::sleep(Duration::from_millis(1));
            let at = crate::clock::now();
            let was_due = ep.shared.watch.may_be_put_off(at);
            ep.shared.take_turn();
            if was_due {
                return assert!(!ep.shared.watch.may_be_put_off(at), "the watchdog wakes beside who polls");
            }
            assert!(start.elapsed() < LIMIT, "its look is never due");
        }
    }

    #[test]
    fn who_sleeps_is_still_woken_by_peers_after_a_turn_that_found_nothing() {
        let addrs = vec!["127.0.0.1".parse().expect("address")];
        let cfg = EngineConfig { addrs, carrier: CarrierUse::Shm, ..EngineConfig::default() };
        let ep = Endpoint::open_with_key(cfg, [7; 32]).expect("open");
        assert!(ep.arm());
        let (start, asleep) = (Instant::now(), || ep.shared.core.lock().is_asleep());
        while !asleep() {
            assert!(start.elapsed() < LIMIT, "its watchdog does not sleep");
            std::thread::sleep(Duration::from_millis(1));
        }
        ep.shared.take_turn();
        assert!(asleep(), "peers do not wake it");
    }

    #[test]
    fn who_sleeps_for_something_else_is_still_woken_by_peers_after_a_turn_that_woke_another() {
        let addrs = vec!["127.0.0.1".parse().expect("address")];
        let cfg = EngineConfig { addrs, carrier: CarrierUse::Shm, ..EngineConfig::default() };
        let ep = Endpoint::open_with_key(cfg, [7; 32]).expect("open");
        let [sent, received] = [Queue::Send, Queue::Recv].map(|queue| {
            let fd = ep.fd_for(queue).expect("descriptor");
            libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
        });
        let recv = RecvOp {
            source: None,
            class: Class::Tagged,
            tag: 1,
            ignore: 0,
            memory: &[],
            multi_min: None,
            report: true,
            context: 1,
            user: 0,
        };
        // SAFETY: no memory.
        unsafe { ep.recv(&recv) }.expect("posted");
        assert!(ep.arm_for(Queue::Send) && ep.arm_for(Queue::Recv));
        let (start, asleep) = (Instant::now(), || ep.shared.core.lock().is_asleep());
        while !asleep() {
            assert!(start.elapsed() < LIMIT, "its watchdog does not sleep");
            std::thread::sleep(Duration::from_millis(1));
        }
        // Something ended, and nobody was told.
        assert!(ep.shared.core.lock().st.messages.cancel(crate::clock::now(), 1));
        ep.shared.take_turn();
        assert!(asleep(), "peers do not wake who waits for what was sent");
        let is_woken = |mut of: libc::pollfd, within: Duration| {
            // SAFETY: one valid entry.
            unsafe { libc::poll(&raw mut of, 1, within.as_millis() as libc::c_int) == 1 }
        };
        // (The watchdog may have been quicker, and have let go of the core before it tells.)
        assert!(is_woken(received, LIMIT));
        assert!(!is_woken(sent, Duration::ZERO));
    }

    #[test]
    fn who_sleeps_in_a_poll_of_one_endpoint_is_woken_by_what_comes_for_another() {
        let (quiet, wanted, peer) = (open(SLEEP_US), open(SLEEP_US), open(0));
        let group = Group::new();
        [&quiet, &wanted].iter().for_each(|ep| ep.join(&group));
        let (done, begin) = (AtomicBool::new(false), Instant::now());
        std::thread::scope(|s| {
            s.spawn(|| {
                while !done.load(Ordering::Relaxed) && begin.elapsed() < 4 * LIMIT {
                    peer.progress();
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            let (start, mut out) = (Instant::now(), Vec::new());
            for _ in 0..5 {
                exchange(&peer, &wanted, || {
                    // Somebody else wants the core: a poll sleeps.
                    quiet.shared.waiting.contend();
                    quiet.poll(Queue::Both, &mut out, 1);
                });
            }
            done.store(true, Ordering::Relaxed);
            assert!(start.elapsed() < LIMIT, "it slept beside what came");
        });
    }
}

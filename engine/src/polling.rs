//! How completions come to who asks for them, and what an endpoint does whose program finds
//! nothing: it gives the core away, or sleeps ([`crate::waiting`]).

use crate::clock::now;
use crate::core::Core;
use crate::group::{Group, Sleep};
use crate::waiting::{self, Descriptors};
use crate::{Completion, Endpoint, Handed, Queue, Shared, Wanted, broken};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use weir_link::Time;

impl Endpoint {
    /// One pass of progress, and up to `max` completions of `queue`, oldest first.
    ///
    /// Waits for nothing but the endpoint's lock. When polling has found nothing for a while it
    /// gives the core away for a turn of others (`sched_yield`), and where others want the core it
    /// sleeps until something arrives, for [`EngineConfig::poll_sleep_us`] at the most, or some
    /// times that ([`crate::waiting`]): never, unless the face has set that.
    pub fn poll(&self, queue: Queue, out: &mut Vec<Completion>, max: usize) -> usize {
        self.poll_each(queue, max, |c| out.push(*c))
    }

    /// The same, up to `max` completions, shown to `each` where they lie. It may not call this
    /// endpoint.
    #[inline]
    pub fn poll_each(&self, queue: Queue, max: usize, each: impl FnMut(&Completion)) -> usize {
        let now = now();
        let was_elsewhere = self.begin_pass(now);
        let (n, empty) = self.pass(queue, max, now, each, |_| (), |_| ());
        if let Some(core) = empty {
            if was_elsewhere {
                self.shared.is_back(now);
            }
            self.after_empty_poll(core, now, was_elsewhere);
        }
        n
    }

    /// As [`Endpoint::poll`], for a face that waits in its own way, perhaps with a lock that others
    /// need: it gives the core to nobody and does not sleep.
    pub fn look(&self, queue: Queue, out: &mut Vec<Completion>, max: usize) -> Seen {
        self.look_at(queue, out, max, |_| (), |_| ())
    }

    /// The same, by a caller who takes messages that no receive waits for. Short ones that come
    /// while it looks are shown to `each`, oldest first: they need no [`Endpoint::peek`] and no
    /// receive. It may not call this endpoint, nor may the caller post receives for them.
    pub fn look_for(
        &self,
        queue: Queue,
        out: &mut Vec<Completion>,
        max: usize,
        wanted: Wanted,
        each: impl FnMut(&Handed<'_>),
    ) -> Seen {
        let begin = |core: &mut Core| core.st.messages.look_for(wanted);
        self.look_at(queue, out, max, begin, |core| core.st.messages.take_asked(each))
    }

    #[inline]
    fn look_at(
        &self,
        queue: Queue,
        out: &mut Vec<Completion>,
        max: usize,
        begin: impl FnOnce(&mut Core),
        end: impl FnOnce(&mut Core),
    ) -> Seen {
        let now = now();
        self.begin_pass(now);
        let mut seen = Seen { at_ns: now.0, ..Seen::default() };
        let at_end = |core: &mut Core| {
            end(core);
            seen = Seen::of(core, 0, now);
        };
        let (n, empty) = self.pass(queue, max, now, |c| out.push(*c), begin, at_end);
        if empty.is_some() {
            self.shared.watch.program_waits(self.shared.look_time());
        }
        Seen { completions: n, ..seen }
    }

    /// Up to `max` completions of `queue` that are there already, oldest first: no socket is looked
    /// at, and sends that wait for others wait on, unless an answer is owed. For a face that has
    /// just posted a receive whose message may have been there.
    pub fn take(&self, queue: Queue, out: &mut Vec<Completion>, max: usize) -> Seen {
        let Ok(mut core) = self.shared.enter() else { return Seen::default() };
        if !core.st.messages.has_completions() && !core.st.messages.wants_transmit() {
            return Seen::default();
        }
        let now = now();
        let completions = core.take(queue, max, now, |c| out.push(*c));
        let seen = Seen::of(&core, completions, now);
        if core.st.messages.wants_transmit() {
            core.transmit(now);
            self.shared.look_soon();
        }
        seen
    }

    /// A face that waits in its own way ([`Endpoint::look`]) gave the core away for so long: where
    /// that was long others want it, and the watchdog is to leave it to them.
    pub fn yielded(&self, time: Duration) {
        self.shared.waiting.yielded(time.as_nanos() as u64);
    }

    /// The program polls. True: it was elsewhere since it last did.
    #[inline]
    fn begin_pass(&self, now: Time) -> bool {
        let shared = &*self.shared;
        if shared.armed.any() && !shared.sleeps_here.load(Ordering::Acquire) {
            // Another thread may be the one that sleeps, and nobody watches for it any more.
            shared.wake_armed();
        }
        let was_elsewhere = shared.polled(now);
        if shared.helped.load(Ordering::Relaxed) {
            shared.helped.store(false, Ordering::Relaxed);
        }
        was_elsewhere
    }

    /// A pass of progress, and what it found; `begin` and `at_end` have the state before and after
    /// it. Nothing was found where the core is returned.
    #[inline]
    fn pass(
        &self,
        queue: Queue,
        max: usize,
        now: Time,
        mut each: impl FnMut(&Completion),
        begin: impl FnOnce(&mut Core),
        at_end: impl FnOnce(&mut Core),
    ) -> (usize, Option<broken::Entered<'_>>) {
        let shared = &*self.shared;
        let Ok(mut core) = shared.enter() else { return (0, None) };
        begin(&mut core);
        let read = core.progress_polled(now);
        if core.held_bytes == 0 {
            shared.put_look_off(now);
        }
        shared.look_soon();
        if shared.sleeps_here.load(Ordering::Relaxed) && !core.prepare_sleep() {
            shared.wake_who_sleeps();
        }
        // Whoever has armed since the look above may be the one for whom something came.
        self.wake_sleeper(&core);
        let n = core.take(queue, max, now, &mut each);
        // (Who wrote with immediate data is told that its notices were taken.)
        if queue != Queue::Send && core.st.messages.wants_transmit() {
            core.transmit(now);
        }
        at_end(&mut core);
        // Asked for none (a face that has something of its own to hand out first), what is there
        // counts as found.
        let found = n > 0 || read > 0 || (max == 0 && core.st.messages.has_completions());
        if !found {
            return (n, Some(core));
        }
        shared.last_found.store(now.0, Ordering::Relaxed);
        drop(core);
        if let Some(group) = shared.group_of_several() {
            group.found(now);
            group.give_turn(shared, now, true);
        }
        (n, None)
    }

    /// From now on polls of this endpoint look after those of the group too, and theirs after this
    /// one: who is not polled gets turns, and a poll that sleeps wakes for what comes for any of
    /// them. The first group counts.
    pub fn join(&self, group: &Group) {
        if self.shared.group.set(group.clone()).is_ok() {
            group.add(Arc::downgrade(&self.shared));
        }
    }

    /// From now on completions of this queue are counted and thrown away, for the program has no
    /// place to be told of them.
    pub fn nobody_takes(&self, queue: Queue) {
        let Ok(mut core) = self.shared.enter() else { return };
        core.untaken[0] |= queue != Queue::Recv;
        core.untaken[1] |= queue != Queue::Send;
    }

    /// From now on empty polls give the core to others without sleeping: what the program waits for
    /// comes another way too, where nothing wakes who sleeps here.
    pub fn waits_elsewhere(&self) {
        self.shared.waiting.never_sleep();
    }

    /// Nothing was found: when that has been so for a while, somebody else may use the core.
    fn after_empty_poll(&self, core: broken::Entered<'_>, now: Time, was_elsewhere: bool) {
        let shared = &*self.shared;
        shared.watch.program_waits(shared.look_time());
        let group = shared.group_of_several();
        let found = shared.last_found.load(Ordering::Relaxed).max(group.map_or(0, Group::found_here));
        let empty_ns = now.0.saturating_sub(found);
        let waiting = &shared.waiting;
        // (Who does something else between its polls is to get on with that.)
        let in_crowd = || waiting.is_in_crowd(now) && !was_elsewhere && core.st.messages.awaits_peers();
        if waiting.is_over(empty_ns) || in_crowd() {
            self.give_way(core, group, now, empty_ns);
        } else if let Some(group) = group {
            drop(core);
            group.give_turn(shared, now, false);
        }
    }

    fn give_way(&self, mut core: broken::Entered<'_>, group: Option<&Group>, now: Time, empty_ns: u64) {
        let shared = &*self.shared;
        core.st.counters.yields += 1;
        let sleep_ns = shared.waiting.sleep_ns(now, empty_ns, core.st.messages.awaits_peers());
        let sleeps = sleep_ns > 0;
        if sleeps && !core.prepare_sleep() {
            return;
        }
        let mut sleep = Sleep::new((shared.sockets, core.blocked_at(), shared.others), core.next_timeout());
        drop(core);
        if let Some(group) = group {
            group.give_turn(shared, now, false);
            if sleeps && !group.prepare_sleep(shared, &mut sleep) {
                return;
            }
        }
        // Asleep is not away: the watchdog need not step in.
        shared.waiting.give_way(sleep_ns, &sleep.descriptors, now, sleep.timeout, |until| {
            shared.last_poll.store(until.0, Ordering::Relaxed);
            sleep.polled(until);
        });
        let now = crate::clock::now();
        shared.last_poll.store(now.0, Ordering::Relaxed);
        sleep.polled(now);
    }

    /// One pass of progress.
    pub fn progress(&self) {
        let now = now();
        if self.shared.polled(now) {
            self.shared.is_back(now);
        }
        let Ok(mut core) = self.shared.enter() else { return };
        core.progress_polled(now);
        if core.held_bytes == 0 {
            self.shared.put_look_off(now);
        }
        self.shared.look_soon();
        self.wake_sleeper(&core);
        if self.shared.armed.any() && !core.prepare_sleep() {
            // Another thread sleeps until something comes, and something has: it is the watchdog's
            // to see to.
            self.shared.wake_who_sleeps();
        }
        drop(core);
        if let Some(group) = self.shared.group_of_several() {
            group.give_turn(&self.shared, now, true);
        }
    }

    /// A descriptor that becomes readable when completions come, once [`Endpoint::arm`]ed.
    #[must_use]
    pub fn notify_fd(&self) -> RawFd {
        self.shared.notify.as_raw_fd()
    }

    /// Prepares to sleep on [`Endpoint::notify_fd`]. False when completions are there already: do
    /// not sleep.
    pub fn arm(&self) -> bool {
        self.arm_for(Queue::Both)
    }

    /// The same on [`Endpoint::fd_for`] this queue, whatever lies unread in the other.
    pub fn arm_for(&self, queue: Queue) -> bool {
        let Ok(core) = self.shared.enter() else { return false };
        self.shared.arm(&core, queue) && self.armed(core)
    }

    /// The same of what [`Endpoint::totals`] count from now on: who waits for that looks at them
    /// before it sleeps ([`Endpoint::signal_counts`]).
    pub fn arm_for_counts(&self) -> bool {
        let Ok(core) = self.shared.enter() else { return false };
        self.shared.arm_for_counts(&core);
        self.armed(core)
    }

    /// Somebody has armed: sees to it that somebody makes progress meanwhile.
    fn armed(&self, mut core: broken::Entered<'_>) -> bool {
        if core.held_bytes > 0 {
            core.transmit(now());
        }
        if self.shared.sleeps_here.load(Ordering::Relaxed) {
            // It finds what comes for both, and may just have been told of something that was
            // cleared here.
            self.shared.armed_beside.store(true, Ordering::Relaxed);
            return core.prepare_sleep();
        }
        drop(core);
        self.shared.watch.wake();
        true
    }

    /// Prepares this thread to sleep on the sockets itself, for `most` at the most, and on
    /// [`Endpoint::notify_fd`], by which other threads wake it. What comes then costs one change of
    /// threads; by way of the watchdog it costs three. One thread at a time.
    pub fn sleep_here(&self, most: Duration) -> SleepHere {
        let shared = &self.shared;
        let Ok(mut core) = shared.enter() else { return SleepHere::Never };
        // (An unusable socket is ready for ever. Without the watchdog nobody would see to what
        // others send meanwhile.)
        if shared.watchdog_ns == 0 || core.st.messages.broken().is_some() || shared.sleeps_here.load(Ordering::Relaxed)
        {
            return SleepHere::Never;
        }
        if core.st.messages.has_completions() || !core.prepare_sleep() {
            return SleepHere::LookAgain;
        }
        let at = now();
        let due = core.next_timeout().map_or(most, |t| Duration::from_nanos(t.0.saturating_sub(at.0)));
        let time = most.min(due);
        if time.is_zero() {
            return SleepHere::LookAgain;
        }
        if shared.armed.any() {
            // Another has armed before this one, and is to be told when it is back.
            shared.armed_beside.store(true, Ordering::Relaxed);
        }
        if !shared.arm(&core, Queue::Both) {
            return SleepHere::LookAgain;
        }
        shared.sleeps_here.store(true, Ordering::Release);
        // Asleep is not away: the watchdog need not step in, unless another thread sends.
        shared.sent_since_poll.store(false, Ordering::Relaxed);
        shared.last_poll.store(at.plus_ns(time.as_nanos() as u64).0, Ordering::Relaxed);
        waiting::take_short_turns();
        let descriptors = (shared.sockets, core.blocked_at(), shared.others);
        drop(core);
        SleepHere::For(Sleeper { shared: shared.clone(), descriptors, time })
    }
}

/// What a look has found ([`Endpoint::look`], [`Endpoint::take`]): whoever looks again and again is
/// spared the calls that would find nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Completions.
    pub completions: usize,
    /// [`Endpoint::peer_events`] has something.
    pub peers: bool,
    /// [`Endpoint::peek`] may have something: messages wait for which there is no receive.
    pub unasked: bool,
    /// When it looked, nanoseconds of the endpoint's clock; 0 when nothing made it read that.
    pub at_ns: u64,
}

impl Seen {
    fn of(core: &Core, completions: usize, now: Time) -> Seen {
        let messages = &core.st.messages;
        Seen { completions, peers: messages.has_news(), unasked: messages.has_unasked(), at_ns: now.0 }
    }
}

/// Whether a thread can sleep on the sockets ([`Endpoint::sleep_here`]).
pub enum SleepHere {
    /// It can, as this says.
    For(Sleeper),
    /// There is something to do first.
    LookAgain,
    /// Not here: by [`Endpoint::arm`].
    Never,
}

/// A thread that is about to sleep on the sockets. It is back when this is dropped, and is to poll
/// then.
pub struct Sleeper {
    shared: Arc<Shared>,
    descriptors: Descriptors,
    time: Duration,
}

impl Sleeper {
    /// Sleeps until something comes, or `also` is readable, or `most` is over, or the endpoint has
    /// something to do.
    pub fn sleep(self, also: RawFd, most: Duration) {
        let also = ([also, -1, -1], None, [-1; 2]);
        waiting::wait_ready(&[self.descriptors, also], self.time.min(most));
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        // With the core locked, as who arms beside this one. (A turn that began earlier may signal
        // yet: it costs the next sleep a look.)
        let core = self.shared.enter();
        let armed = self.shared.armed.take_all();
        self.shared.last_poll.store(now().0, Ordering::Relaxed);
        self.shared.sleeps_here.store(false, Ordering::Release);
        drop(core);
        if self.shared.armed_beside.swap(false, Ordering::Relaxed) {
            // Nobody watches for it any more.
            self.shared.signal(armed);
        }
    }
}

impl Shared {
    /// A pass has told peers that nobody sleeps here, and somebody does: who is to look again.
    pub(crate) fn wake_who_sleeps(&self) {
        if self.sleeps_here.load(Ordering::Relaxed) {
            self.notify.signal();
        } else {
            self.watch.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Endpoint, EngineConfig, Queue};

    /// Who waits in its own way may hold a lock that others wait for.
    #[test]
    fn looks_that_find_nothing_neither_yield_nor_sleep() {
        let addrs = vec!["127.0.0.1".parse().expect("address")];
        let cfg = EngineConfig { addrs, spin_us: 0, poll_sleep_us: 200, ..EngineConfig::packets() };
        let ep = Endpoint::open_with_key(cfg, [1; 32]).expect("open");
        let yields = || ep.shared.enter().expect("in order").st.counters.yields;
        let mut out = Vec::new();
        for _ in 0..100 {
            assert_eq!(ep.look(Queue::Both, &mut out, 8).completions, 0);
        }
        assert_eq!(yields(), 0);
        ep.poll(Queue::Both, &mut out, 8);
        assert_eq!(yields(), 1, "a poll does");
    }
}

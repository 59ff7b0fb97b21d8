//! How completions come to who asks for them, and what an endpoint does whose program finds
//! nothing: it gives the core away, or sleeps ([`crate::waiting`]).

use crate::clock::now;
use crate::group::{Group, Sleep};
use crate::{Completion, Endpoint, Queue, broken};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
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
    pub fn poll_each(&self, queue: Queue, max: usize, mut each: impl FnMut(&Completion)) -> usize {
        let now = now();
        let shared = &*self.shared;
        if shared.armed.load(Ordering::Relaxed) && shared.armed.swap(false, Ordering::AcqRel) {
            // Another thread may be the one that sleeps, and nobody watches for it any more.
            shared.notify.signal();
        }
        let was_elsewhere = shared.polled(now);
        if shared.helped.load(Ordering::Relaxed) {
            shared.helped.store(false, Ordering::Relaxed);
        }
        let Ok(mut core) = shared.enter() else { return 0 };
        let read = core.progress_polled(now);
        shared.look_soon();
        let messages = &mut core.st.messages;
        let n = match queue {
            Queue::Send => messages.take_sent(max, &mut each),
            Queue::Recv => messages.take_received(now, max, &mut each),
            Queue::Both => messages.take_both(now, max, &mut each),
        };
        // (Who wrote with immediate data is told that its notices were taken.)
        if queue != Queue::Send && messages.wants_transmit() {
            core.transmit(now);
        }
        // Asked for none (a face that has something of its own to hand out first), what is there
        // counts as found.
        let found = n > 0 || read > 0 || (max == 0 && core.st.messages.has_completions());
        if found {
            shared.last_found.store(now.0, Ordering::Relaxed);
            drop(core);
            if let Some(group) = shared.group_of_several() {
                group.found(now);
                group.give_turn(shared, now, true);
            }
            return n;
        }
        if was_elsewhere {
            shared.is_back(now);
        }
        self.after_empty_poll(core, now);
        0
    }

    /// From now on polls of this endpoint look after those of the group too, and theirs after this
    /// one: who is not polled gets turns, and a poll that sleeps wakes for what comes for any of
    /// them. The first group counts.
    pub fn join(&self, group: &Group) {
        if self.shared.group.set(group.clone()).is_ok() {
            group.add(Arc::downgrade(&self.shared));
        }
    }

    /// From now on empty polls give the core to others without sleeping: what the program waits for
    /// comes another way too, where nothing wakes who sleeps here.
    pub fn waits_elsewhere(&self) {
        self.shared.waiting.never_sleep();
    }

    /// Nothing was found: when that has been so for a while, somebody else may use the core.
    fn after_empty_poll(&self, core: broken::Entered<'_>, now: Time) {
        let shared = &*self.shared;
        shared.watch.program_waits(shared.look_time());
        let group = shared.group_of_several();
        let found = shared.last_found.load(Ordering::Relaxed).max(group.map_or(0, Group::found_here));
        let empty_ns = now.0.saturating_sub(found);
        if shared.waiting.is_over(empty_ns) {
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
        self.shared.look_soon();
        self.wake_sleeper(&core);
        if self.shared.armed.load(Ordering::Relaxed) && !core.prepare_sleep() {
            // Another thread sleeps until something comes, and something has: it is the watchdog's
            // to see to.
            self.shared.watch.wake();
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
        let Ok(core) = self.shared.enter() else { return false };
        if core.st.messages.has_completions() {
            return false;
        }
        self.shared.notify.clear();
        self.shared.armed.store(true, Ordering::Release);
        drop(core);
        self.shared.watch.wake();
        true
    }
}

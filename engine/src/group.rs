//! Endpoints of one process that give each other turns.
//!
//! A program with several endpoints polls one, waits for what another is to do, and does not know that the other needs to be polled as well: its watchdog would step in only after a while.
//! So a poll of one gives the others a turn, one each time, if their own program has not polled them lately. A turn never waits: an endpoint whose lock is held is making progress already.
//! With one endpoint in the group it costs the look at one number.

use crate::Shared;
use crate::core::now;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use weir_link::Time;

/// An endpoint that nobody has polled for this long is given turns: longer than a program takes from one poll of it to the next, where it polls it at all.
const UNATTENDED_NS: u64 = 50_000;
/// No sooner after the last turn in the group than so: a look at sockets takes a third of it.
const TURN_GAP_NS: u64 = 1_000;
/// A poll that found something gives a turn each so many times: its own messages come first.
const BUSY_POLLS: usize = 8;

/// A group of endpoints. Clones are the same group.
#[derive(Clone, Default)]
pub struct Group(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// How many there are, for a look without the lock.
    count: AtomicUsize,
    members: Mutex<Vec<Weak<Shared>>>,
    /// Whose turn it is.
    turn: AtomicUsize,
    /// Polls that found something.
    busy: AtomicUsize,
    /// When the last turn was given, nanoseconds.
    given: AtomicU64,
    /// Whether somebody was found then whom nobody else looks after.
    needed: AtomicBool,
}

impl Group {
    /// A group without endpoints. [`crate::Endpoint::join`] adds them.
    #[must_use]
    pub fn new() -> Group {
        Group::default()
    }

    pub(crate) fn add(&self, member: Weak<Shared>) {
        let mut members = self.0.members.lock().unwrap_or_else(PoisonError::into_inner);
        members.retain(|m| m.strong_count() > 0);
        members.push(member);
        self.0.count.store(members.len(), Ordering::Release);
    }

    pub(crate) fn remove(&self, own: &Shared) {
        let mut members = self.0.members.lock().unwrap_or_else(PoisonError::into_inner);
        members.retain(|m| m.strong_count() > 0 && !std::ptr::eq(m.as_ptr(), own));
        self.0.count.store(members.len(), Ordering::Release);
    }

    /// Whether there is more than one endpoint.
    #[inline]
    pub(crate) fn has_others(&self) -> bool {
        self.0.count.load(Ordering::Acquire) > 1
    }

    /// After a poll of `own`, which `found` something or not: gives one of the others a turn that nobody else looks after. Whether there is such a one: then a poll of `own` must not sleep.
    #[inline]
    pub(crate) fn give_turn(&self, own: &Shared, at: Time, found: bool) -> bool {
        if !self.has_others() {
            return false;
        }
        if found && self.0.busy.fetch_add(1, Ordering::Relaxed) % BUSY_POLLS != BUSY_POLLS - 1 {
            return false;
        }
        if at.0.saturating_sub(self.0.given.load(Ordering::Relaxed)) < TURN_GAP_NS {
            return self.0.needed.load(Ordering::Relaxed);
        }
        self.0.given.store(at.0, Ordering::Relaxed);
        let needed = self.turn(own, at);
        self.0.needed.store(needed, Ordering::Relaxed);
        needed
    }

    #[cold]
    fn turn(&self, own: &Shared, at: Time) -> bool {
        // Whoever holds the list gives a turn at this moment, or changes the list.
        let Ok(members) = self.0.members.try_lock() else { return true };
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
}

impl Shared {
    /// Its own program has not polled it lately.
    fn is_unattended(&self, at: Time) -> bool {
        self.helped.load(Ordering::Relaxed)
            || at.0.saturating_sub(self.last_poll.load(Ordering::Relaxed)) >= UNATTENDED_NS
    }

    /// A pass of progress by somebody who polls another endpoint.
    fn take_turn(&self) {
        let Some(mut core) = self.try_enter() else { return };
        let now = now();
        // As good as polled: the watchdog need not step in.
        self.polled(now);
        self.helped.store(true, Ordering::Relaxed);
        core.st.counters.turns += 1;
        core.progress(now);
        self.look_soon();
        if !self.armed.load(Ordering::Relaxed) {
            return;
        }
        if core.st.messages.has_completions() {
            if self.armed.swap(false, Ordering::AcqRel) {
                self.notify.signal();
            }
        } else if !core.prepare_sleep() {
            // The pass has told peers that nobody sleeps here; its watchdog does, and something has come for it.
            self.watch.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{CarrierUse, Endpoint, EngineConfig};
    use std::time::{Duration, Instant};

    /// Nothing takes this long, however busy the machine, but what hangs.
    const LIMIT: Duration = Duration::from_secs(60);

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
}

//! Threads that sleep until something comes for them, each on the descriptor of what it waits for.
//!
//! Where a program has a queue for what it sends and another for what it receives, one with unread
//! completions must not keep the other from sleeping; and what a counter counts need not have a
//! completion at all.

use crate::core::Core;
use crate::{Endpoint, EventFd, Queue, Shared};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The kinds of sleepers: who waits for completions of a queue, and who waits for what is counted.
const QUEUES: [Queue; 3] = [Queue::Both, Queue::Send, Queue::Recv];
const COUNTS: u8 = 8;

const fn bit(queue: Queue) -> u8 {
    match queue {
        Queue::Both => 1,
        Queue::Send => 2,
        Queue::Recv => 4,
    }
}

/// Which kinds of sleepers there are. Set with the core locked.
#[derive(Default)]
pub struct Armed(AtomicU8);

impl Armed {
    /// Whether anybody sleeps.
    #[inline]
    pub fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Which of these do; they do so no more.
    pub fn take(&self, who: u8) -> u8 {
        self.0.fetch_and(!who, Ordering::AcqRel) & who
    }

    /// All kinds that do; they do so no more.
    pub fn take_all(&self) -> u8 {
        self.take(u8::MAX)
    }
}

/// The descriptors of those who do not wait for both queues. Most endpoints never have one.
#[derive(Default)]
pub struct Narrower {
    sent: OnceLock<EventFd>,
    received: OnceLock<EventFd>,
    /// Of those who wait for what is counted: each has its own.
    counting: Mutex<Vec<Arc<EventFd>>>,
    /// All that was counted when somebody armed for that.
    counted: AtomicU64,
}

impl Narrower {
    fn counting(&self) -> MutexGuard<'_, Vec<Arc<EventFd>>> {
        self.counting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Endpoint {
    /// A descriptor that becomes readable when completions of this queue come, once the endpoint is
    /// armed for it ([`Endpoint::arm_for`]). Of both it is [`Endpoint::notify_fd`].
    ///
    /// # Errors
    /// The system's, when out of descriptors.
    pub fn fd_for(&self, queue: Queue) -> std::io::Result<RawFd> {
        let slot = match queue {
            Queue::Both => return Ok(self.notify_fd()),
            Queue::Send => &self.shared.narrower.sent,
            Queue::Recv => &self.shared.narrower.received,
        };
        if slot.get().is_none() {
            // If another thread was faster, this one is closed again.
            let _ = slot.set(EventFd::new()?);
        }
        Ok(slot.get().map_or(-1, AsRawFd::as_raw_fd))
    }

    /// From now on this is signalled when [`Endpoint::totals`] count something, each time after the
    /// endpoint was armed for that ([`Endpoint::arm_for_counts`]).
    pub fn signal_counts(&self, to: &Arc<EventFd>) {
        let mut counting = self.shared.narrower.counting();
        if !counting.iter().any(|known| Arc::ptr_eq(known, to)) {
            counting.push(to.clone());
        }
    }

    /// It is signalled no more.
    pub fn signal_counts_no_more(&self, to: &Arc<EventFd>) {
        self.shared.narrower.counting().retain(|known| !Arc::ptr_eq(known, to));
    }
}

/// All that was ever counted, whatever it was.
fn counted(core: &Core) -> u64 {
    let t = core.st.messages.totals();
    let all = [t.sends, t.send_errors, t.recvs, t.recv_errors, t.writes, t.write_errors, t.reads, t.read_errors];
    all.into_iter().fold(0, u64::wrapping_add)
}

impl Shared {
    /// Whether there is something for who waits for this queue.
    fn is_due(core: &Core, queue: Queue) -> bool {
        let messages = &core.st.messages;
        match queue {
            // (And news of peers.)
            Queue::Both => messages.has_completions(),
            Queue::Send => messages.completions().0 > 0,
            Queue::Recv => messages.completions().1 > 0,
        }
    }

    fn fd(&self, queue: Queue) -> Option<&EventFd> {
        match queue {
            Queue::Both => Some(&self.notify),
            Queue::Send => self.narrower.sent.get(),
            Queue::Recv => self.narrower.received.get(),
        }
    }

    /// With the core locked: somebody is about to sleep. False where there is something for it.
    pub(crate) fn arm(&self, core: &Core, queue: Queue) -> bool {
        let Some(fd) = self.fd(queue).filter(|_| !Self::is_due(core, queue)) else { return false };
        fd.clear();
        self.armed.0.fetch_or(bit(queue), Ordering::AcqRel);
        true
    }

    /// The same of who waits for what is counted from now on.
    pub(crate) fn arm_for_counts(&self, core: &Core) {
        // Another may have armed before something was counted.
        self.wake_due(core);
        self.narrower.counted.store(counted(core), Ordering::Relaxed);
        self.armed.0.fetch_or(COUNTS, Ordering::AcqRel);
    }

    /// With the core locked: which sleepers have something now. They are taken for awake, and to be
    /// signalled.
    #[cold]
    pub(crate) fn take_due(&self, core: &Core) -> u8 {
        let armed = self.armed.0.load(Ordering::Acquire);
        let due = QUEUES
            .into_iter()
            .filter(|q| armed & bit(*q) != 0 && Self::is_due(core, *q))
            .fold(0, |all, q| all | bit(q));
        let counts = armed & COUNTS != 0 && counted(core) != self.narrower.counted.load(Ordering::Relaxed);
        self.armed.take(due | if counts { COUNTS } else { 0 })
    }

    /// With the core locked: wakes the sleepers that have something now; whether there are any.
    #[cold]
    pub(crate) fn wake_due(&self, core: &Core) -> bool {
        let due = self.take_due(core);
        self.signal(due);
        due != 0
    }

    /// Wakes all who sleep.
    #[cold]
    pub(crate) fn wake_armed(&self) {
        self.signal(self.armed.take_all());
    }

    /// Wakes all who sleep or are about to.
    #[cold]
    pub(crate) fn wake_all(&self) {
        self.armed.take_all();
        self.signal(u8::MAX);
    }

    /// Signals sleepers of these kinds.
    #[inline]
    pub(crate) fn signal(&self, who: u8) {
        if who != 0 {
            self.signal_some(who);
        }
    }

    #[cold]
    fn signal_some(&self, who: u8) {
        QUEUES.into_iter().filter(|q| who & bit(*q) != 0).filter_map(|q| self.fd(q)).for_each(EventFd::signal);
        if who & COUNTS != 0 {
            self.narrower.counting().iter().for_each(|fd| fd.signal());
        }
    }
}

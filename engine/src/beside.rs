//! Endpoints of one process that their program polls in turn: who sleeps in a poll of one is woken by what comes for another.
//!
//! Open MPI has one endpoint for messages and one for windows, and polls both. Asleep on the sockets of the one it would find what came for the other when the sleep was over: a window's
//! operation took 280 us at a time (docs/lab/2026-11-23-atomics.md).

use crate::Shared;
use crate::stat;
use crate::waiting::Descriptors;
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_link::Time;

/// An endpoint that was polled within this time is one that the program polls. Others are their watchdog's to look after.
const POLLED_NS: u64 = 5_000_000;

/// What a thread waits for that sleeps in a poll.
pub struct Beside {
    others: SmallVec<[Arc<Shared>; 1]>,
    /// Of all of them.
    pub descriptors: SmallVec<[Descriptors; 2]>,
    /// When one of them has something to do although nothing arrives.
    pub timeout: Option<Time>,
}

impl Beside {
    /// One endpoint's own.
    pub fn alone(descriptors: Descriptors, timeout: Option<Time>) -> Beside {
        Beside { others: SmallVec::new(), descriptors: smallvec![descriptors], timeout }
    }

    /// Prepares the other endpoints for a sleep in a poll of `own`, which is prepared. None: one of them has something to do first, or somebody is at work on it.
    pub fn with_others(mut self, own: &Shared, at: Time) -> Option<Beside> {
        if !stat::are_several() {
            return Some(self);
        }
        for other in stat::all() {
            let last_poll = other.last_poll.load(Ordering::Relaxed);
            if std::ptr::eq(&raw const *other, own) || at.0.saturating_sub(last_poll) > POLLED_NS {
                continue;
            }
            let mut core = other.try_enter()?;
            if core.st.messages.has_completions() || !core.prepare_sleep() {
                return None;
            }
            let due = core.next_timeout();
            self.timeout = [self.timeout, due].into_iter().flatten().min();
            self.descriptors.push((other.sockets, core.blocked_at(), other.others));
            drop(core);
            self.others.push(other);
        }
        Some(self)
    }

    /// They count as polled at this time: asleep is not away.
    pub fn polled(&self, at: Time) {
        self.others.iter().for_each(|other| other.last_poll.store(at.0, Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use crate::{Class, Endpoint, EngineConfig, Iov, Queue, RecvOp, SendMode, SendOp};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    /// Nothing takes this long, however busy the machine, but what hangs; a poll may sleep for longer.
    const LIMIT: Duration = Duration::from_secs(40);
    const SLEEP_US: u32 = 90_000_000;

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

    #[test]
    fn who_sleeps_in_a_poll_of_one_endpoint_is_woken_by_what_comes_for_another() {
        let (quiet, wanted, peer) = (open(SLEEP_US), open(SLEEP_US), open(0));
        let done = AtomicBool::new(false);
        std::thread::scope(|s| {
            s.spawn(|| {
                while !done.load(Ordering::Relaxed) {
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

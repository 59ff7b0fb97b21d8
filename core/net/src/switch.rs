//! A switch: output queues that may share one memory.

use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use rand_core::Rng;

use crate::{Harm, Offer, Pipe, TimeNs, Why};

/// Memory that the output queues of a switch share. A packet is in it from its arrival until its
/// last bit has left.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Memory {
    /// Its size.
    pub bytes: u64,
    /// One queue may take at most this many percent of what is free (dynamic threshold); 0: no such
    /// limit.
    pub dynamic_percent: u32,
}

/// A row of pipes: the output queues and the links behind them.
#[derive(Clone, Debug)]
pub struct Switch<R> {
    ports: Vec<Pipe<R>>,
    /// Absent: every queue has its own limit only.
    memory: Option<Memory>,
    used_bytes: u64,
    /// When each packet leaves the memory, and its bytes.
    leaving: BinaryHeap<Reverse<(TimeNs, u64)>>,
}

impl<R: Rng> Switch<R> {
    /// A switch with these output pipes.
    pub fn new(ports: Vec<Pipe<R>>, memory: Option<Memory>) -> Self {
        Switch { ports, memory, used_bytes: 0, leaving: BinaryHeap::new() }
    }

    /// The output pipes.
    pub fn ports(&self) -> &[Pipe<R>] {
        &self.ports
    }

    /// The output pipes, to be cut, healed and changed.
    pub fn ports_mut(&mut self) -> &mut Vec<Pipe<R>> {
        &mut self.ports
    }

    /// A packet of `bytes` comes at `now_ns` for the output `port`, one of [`Switch::ports`]: see
    /// [`Pipe::offer`].
    pub fn offer<D>(
        &mut self,
        port: usize,
        now_ns: TimeNs,
        bytes: u32,
        damage: impl FnOnce(Harm, &mut R) -> D,
    ) -> Offer<D> {
        let Some(memory) = self.memory else {
            return self.ports[port].offer(now_ns, bytes, damage);
        };
        while let Some(Reverse((_, bytes))) = self.leaving.peek().copied().filter(|l| l.0.0 <= now_ns) {
            self.leaving.pop();
            self.used_bytes -= bytes;
        }
        let pipe = &mut self.ports[port];
        let size = u64::from(bytes) + u64::from(pipe.spec().queue_overhead_bytes);
        let free = memory.bytes.saturating_sub(self.used_bytes);
        let most_bytes = match memory.dynamic_percent {
            _ if size > free => 0,
            0 => u64::MAX,
            percent => free.saturating_mul(u64::from(percent)) / 100,
        };
        let offer = pipe.offer_within(now_ns, bytes, most_bytes, damage);
        let left_ns = match offer {
            Offer::Drop(Why::Queue, _) => return offer,
            Offer::Drop(_, left_ns) | Offer::Deliver { left_ns, .. } => left_ns,
        };
        self.used_bytes += size;
        self.leaving.push(Reverse((left_ns, size)));
        offer
    }
}

//! One direction of one link: a tail-drop queue, a rate, then a wire with delay, jitter and faults.

use alloc::collections::VecDeque;

use rand_core::Rng;

use crate::{Burst, Chance, PipeSpec, TimeNs, below};

/// What serves one after another: when it is free.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct Server {
    busy_until_ns: TimeNs,
}

impl Server {
    /// Serves somebody who comes at `now_ns` for so long, after all who came before; returns when
    /// that is done.
    pub fn serve(&mut self, now_ns: TimeNs, takes_ns: TimeNs) -> TimeNs {
        self.busy_until_ns = self.busy_until_ns.max(now_ns).saturating_add(takes_ns);
        self.busy_until_ns
    }

    /// When all who came so far have been served.
    #[must_use]
    pub fn busy_until_ns(&self) -> TimeNs {
        self.busy_until_ns
    }
}

/// Why a pipe dropped a packet.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Why {
    /// No room in the queue.
    Queue,
    /// Chance.
    Loss,
    /// The link is cut.
    Cut,
    /// It is longer than the pipe passes.
    TooBig,
    /// It has collided too often ([`crate::Collisions`]).
    Collisions,
}

/// A kind of damage.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Harm {
    /// Checksums of IP, UDP or TCP notice.
    Seen,
    /// The Internet checksum does not notice.
    Hidden,
}

/// The fate of a packet.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Offer<D> {
    /// It comes out, unless a cut takes it on the way ([`Pipe::arrive`]).
    Deliver {
        /// When its last bit leaves the sender.
        left_ns: TimeNs,
        /// When it reaches the far end.
        at_ns: TimeNs,
        /// When a second copy does, if there is one.
        copy_at_ns: Option<TimeNs>,
        /// Damage to do to it (not to the copy).
        damage: Option<D>,
        /// It found the queue above its mark: if it is ECN-capable, it says so from now on, and so
        /// does the copy ([`Pipe::count_marked`]).
        marked: bool,
    },
    /// It is gone, at this time: as it came, or when it had been sent.
    Drop(Why, TimeNs),
}

/// What a pipe has done since it was made.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Counters {
    /// Packets offered to the pipe.
    pub offered_packets: u64,
    /// Bytes offered to the pipe.
    pub offered_bytes: u64,
    /// Packets that came out at the far end, second copies included.
    pub forwarded_packets: u64,
    /// Bytes that came out at the far end.
    pub forwarded_bytes: u64,
    /// Packets dropped because the queue was full.
    pub dropped_queue: u64,
    /// Packets dropped by chance.
    pub dropped_loss: u64,
    /// Packets dropped because the link was cut.
    pub dropped_cut: u64,
    /// Packets longer than the pipe passes.
    pub dropped_too_big: u64,
    /// Packets dropped because they had collided too often; of a station of a [`crate::Medium`].
    pub dropped_collisions: u64,
    /// Attempts of a station that collided.
    pub collisions: u64,
    /// Second copies made.
    pub duplicated: u64,
    /// Packets and copies held back so that others may overtake.
    pub reordered: u64,
    /// ECN-capable packets that found the queue above its mark and were marked.
    pub marked: u64,
    /// Packets with damage that checksums notice.
    pub corrupted: u64,
    /// Packets with damage that the Internet checksum does not notice.
    pub corrupted_hidden: u64,
    /// Most packets ever waiting, as the queue's limit counts them.
    pub queue_peak_packets: u64,
    /// Most bytes ever waiting.
    pub queue_peak_bytes: u64,
}

/// One direction of one link, with its own luck.
#[derive(Clone, Debug)]
pub struct Pipe<R> {
    spec: PipeSpec,
    rng: R,
    in_burst: bool,
    cut: bool,
    sender: Server,
    /// Until when each packet counts as waiting, and the bytes it counts.
    waiting: VecDeque<(TimeNs, u64)>,
    waiting_bytes: u64,
    /// When the last packet left, if there are bursts.
    last_left_ns: TimeNs,
    /// When the last packet arrives that was not held back.
    last_arrival_ns: TimeNs,
    epoch: u32,
    pub(crate) counters: Counters,
}

impl<R: Rng> Pipe<R> {
    /// A pipe with an empty queue. Each pipe needs a random sequence of its own.
    pub fn new(spec: PipeSpec, rng: R) -> Self {
        Pipe {
            spec,
            rng,
            in_burst: false,
            cut: false,
            sender: Server::default(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            last_left_ns: 0,
            last_arrival_ns: 0,
            epoch: 0,
            counters: Counters::default(),
        }
    }

    /// What the pipe is like now.
    pub fn spec(&self) -> &PipeSpec {
        &self.spec
    }

    /// Changes the pipe for packets offered from now on.
    pub fn set_spec(&mut self, spec: PipeSpec) {
        self.spec = spec;
    }

    /// Whether the link is cut.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// Cuts or heals the link. A cut loses everything waiting and under way, and what is offered
    /// until it is healed. The sender does not notice: it goes on sending at its rate.
    pub fn set_cut(&mut self, cut: bool) {
        if cut && !self.cut {
            self.epoch = self.epoch.wrapping_add(1);
            self.waiting.clear();
            self.waiting_bytes = 0;
            self.sender = Server::default();
        }
        self.cut = cut;
    }

    /// The number of cuts so far, to be told to [`Pipe::arrive`] with a packet that is offered now.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    pub(crate) fn rng(&mut self) -> &mut R {
        &mut self.rng
    }

    /// What the pipe has done so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Packets waiting at `now_ns`, as the queue's limit counts them.
    pub fn waiting_packets(&mut self, now_ns: TimeNs) -> usize {
        self.forget_served(now_ns);
        self.waiting.len()
    }

    /// When at most so many of the bytes offered so far have not been sent.
    pub fn drained_ns(&self, to_bytes: u64) -> TimeNs {
        self.sender.busy_until_ns.saturating_sub(self.spec.serialise_ns(to_bytes))
    }

    /// Offers a packet of `bytes` at `now_ns`; times of successive calls must not decrease.
    /// `damage` is asked what is to be done to a packet that is to be damaged, and may draw for it.
    pub fn offer<D>(&mut self, now_ns: TimeNs, bytes: u32, damage: impl FnOnce(Harm, &mut R) -> D) -> Offer<D> {
        self.offer_within(now_ns, bytes, u64::MAX, damage)
    }

    /// The same, where besides the queue's own limit at most `most_bytes` may wait.
    pub(crate) fn offer_within<D>(
        &mut self,
        now_ns: TimeNs,
        bytes: u32,
        most_bytes: u64,
        damage: impl FnOnce(Harm, &mut R) -> D,
    ) -> Offer<D> {
        self.counters.offered_packets += 1;
        self.counters.offered_bytes += u64::from(bytes);
        let Some((left_ns, marked)) = self.enqueue(now_ns, bytes, most_bytes) else {
            self.counters.dropped_queue += 1;
            return Offer::Drop(Why::Queue, now_ns);
        };
        self.put_on_wire(left_ns, bytes, marked, damage)
    }

    /// What becomes of a packet whose last bit leaves the sender at `left_ns`.
    pub(crate) fn put_on_wire<D>(
        &mut self,
        left_ns: TimeNs,
        bytes: u32,
        marked: bool,
        damage: impl FnOnce(Harm, &mut R) -> D,
    ) -> Offer<D> {
        if self.cut {
            self.counters.dropped_cut += 1;
            return Offer::Drop(Why::Cut, left_ns);
        }
        if bytes > self.spec.mtu_bytes {
            self.counters.dropped_too_big += 1;
            return Offer::Drop(Why::TooBig, left_ns);
        }
        if self.loses(left_ns) {
            self.counters.dropped_loss += 1;
            return Offer::Drop(Why::Loss, left_ns);
        }
        // The order of the draws is part of what a seed means.
        let copy_at_ns = self.spec.duplicate.happens(&mut self.rng).then(|| {
            self.counters.duplicated += 1;
            let late_ns = below(&mut self.rng, self.spec.duplicate_ns.saturating_add(1));
            self.arrival(left_ns).saturating_add(late_ns)
        });
        let damage = self.harm().map(|harm| damage(harm, &mut self.rng));
        Offer::Deliver { left_ns, at_ns: self.arrival(left_ns), copy_at_ns, damage, marked }
    }

    /// Tells the pipe that a packet offered in `epoch` has reached the far end; false if a cut took
    /// it on the way.
    pub fn arrive(&mut self, epoch: u32, bytes: u32) -> bool {
        if epoch != self.epoch || self.cut {
            self.counters.dropped_cut += 1;
            return false;
        }
        self.counters.forwarded_packets += 1;
        self.counters.forwarded_bytes += u64::from(bytes);
        true
    }

    fn forget_served(&mut self, now_ns: TimeNs) {
        while let Some(&(_, bytes)) = self.waiting.front().filter(|w| w.0 <= now_ns) {
            self.waiting.pop_front();
            self.waiting_bytes -= bytes;
        }
    }

    /// A packet that was to be marked was ECN-capable, and now is marked.
    pub fn count_marked(&mut self) {
        self.counters.marked += 1;
    }

    /// Queues and sends; returns when the last bit leaves and whether what waited was above the
    /// mark, or `None` if there is no room.
    fn enqueue(&mut self, now_ns: TimeNs, bytes: u32, most_bytes: u64) -> Option<(TimeNs, bool)> {
        self.forget_served(now_ns);
        let limit = self.spec.queue;
        let starts_ns = self.sender.busy_until_ns.max(now_ns);
        let takes_ns = self.spec.serialise_ns(u64::from(bytes));
        let size = u64::from(bytes) + u64::from(self.spec.queue_overhead_bytes);
        let marked = self.spec.mark.is_reached(self.waiting.len() as u64, self.waiting_bytes);
        let (packets, bytes) = (self.waiting.len() as u64 + 1, self.waiting_bytes.saturating_add(size));
        if bytes > most_bytes {
            return None;
        }
        if limit.counts_sending || starts_ns > now_ns {
            if limit.packets.is_some_and(|most| packets > u64::from(most))
                || limit.bytes.is_some_and(|most| bytes > most)
            {
                return None;
            }
            let until_ns = if limit.counts_sending { starts_ns.saturating_add(takes_ns) } else { starts_ns };
            self.waiting.push_back((until_ns, size));
            self.waiting_bytes = bytes;
            self.counters.queue_peak_packets = self.counters.queue_peak_packets.max(packets);
            self.counters.queue_peak_bytes = self.counters.queue_peak_bytes.max(bytes);
        }
        Some((self.sender.serve(now_ns, takes_ns), marked))
    }

    /// Whether chance loses the packet that leaves at `left_ns`.
    fn loses(&mut self, left_ns: TimeNs) -> bool {
        let loss = self.spec.loss;
        let Some(b) = loss.burst else { return loss.each.happens(&mut self.rng) };
        let silent_ns = left_ns.saturating_sub(self.last_left_ns);
        self.last_left_ns = left_ns;
        let steps = silent_ns.checked_div(b.idle_step_ns).unwrap_or(0).min(Burst::IDLE_STEPS_MAX);
        for _ in 0..=steps {
            let turn = if self.in_burst { b.to_good } else { b.to_bad };
            self.in_burst ^= turn.happens(&mut self.rng);
        }
        (if self.in_burst { b.loss } else { loss.each }).happens(&mut self.rng)
    }

    /// Arrival of a packet whose last bit leaves at `left_ns`.
    fn arrival(&mut self, left_ns: TimeNs) -> TimeNs {
        let jitter_ns = below(&mut self.rng, self.spec.jitter_ns.saturating_add(1));
        let at_ns = left_ns.saturating_add(self.spec.delay_ns).saturating_add(jitter_ns);
        let r = self.spec.reorder;
        if r.chance.happens(&mut self.rng) {
            // It leaves the order alone: it must not hold back those that overtake it.
            self.counters.reordered += 1;
            let more_ns = below(&mut self.rng, r.most_ns.saturating_sub(r.least_ns).saturating_add(1));
            return at_ns.saturating_add(r.least_ns).saturating_add(more_ns);
        }
        self.last_arrival_ns = self.last_arrival_ns.max(at_ns);
        self.last_arrival_ns
    }

    fn harm(&mut self) -> Option<Harm> {
        let mut hit = |chance: Chance| chance.happens(&mut self.rng);
        if hit(self.spec.corrupt) {
            self.counters.corrupted += 1;
            return Some(Harm::Seen);
        }
        if hit(self.spec.corrupt_hidden) {
            self.counters.corrupted_hidden += 1;
            return Some(Harm::Hidden);
        }
        None
    }
}

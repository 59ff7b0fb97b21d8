//! One direction of one link: tail-drop queue, serialiser, then a wire with delay, jitter and faults.

use super::{Loss, LossState, TimeNs, chance, uniform};
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::Serialize;
use std::collections::VecDeque;

/// How much may wait at the head of a pipe. The packet being sent does not count as waiting.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct QueueLimit {
    /// Most packets that may wait; `None` for no limit.
    pub packets: Option<u32>,
    /// Most bytes that may wait; `None` for no limit.
    pub bytes: Option<u64>,
}

/// Holding some packets back so that later ones overtake them.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Reorder {
    /// Probability that a packet is held back.
    pub probability: f64,
    /// How long it is held, in nanoseconds, beyond the pipe's own delay.
    pub hold_ns: u64,
}

/// Everything one direction of a link does to packets. The default does nothing: infinite rate, no delay, no fault.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct PipeParams {
    /// Bits per second; `None` for no serialisation and so no queue.
    pub rate_bits_per_s: Option<u64>,
    /// Bytes added to each packet when its transmission time is computed (24 for preamble, FCS and gap of Ethernet).
    pub overhead_bytes: u32,
    /// What may wait for the serialiser.
    pub queue: QueueLimit,
    /// Propagation time in nanoseconds.
    pub delay_ns: u64,
    /// Extra delay, uniform in `[0, jitter_ns]`, that never reorders: a packet is not delivered before its predecessor.
    pub jitter_ns: u64,
    /// Loss on the wire, after the queue: a lost packet has used its share of the rate.
    pub loss: Loss,
    /// Probability that a packet arrives twice.
    pub duplicate: f64,
    /// Held-back packets.
    pub reorder: Reorder,
    /// Probability that one bit is flipped; checksums of IP, UDP or TCP notice.
    pub corrupt: f64,
    /// Probability that two 16-bit words of the payload change places, which the Internet checksum cannot notice.
    pub corrupt_hidden: f64,
    /// True while the link is cut: nothing enters and what is in flight is lost.
    pub cut: bool,
}

/// Why a pipe dropped a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropCause {
    /// No room in the queue.
    Queue,
    /// The wire's loss process.
    Loss,
    /// The link is cut.
    Cut,
}

/// Damage the data plane must do to a packet before it delivers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Corruption {
    /// Flip one bit; the number chooses which.
    FlipBit(u64),
    /// Exchange two aligned 16-bit words of the payload; the number chooses which.
    SwapWords(u64),
}

/// What a pipe has done so far, since it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Packets offered to the pipe.
    pub offered_packets: u64,
    /// Bytes offered to the pipe, Ethernet header included.
    pub offered_bytes: u64,
    /// Packets that came out at the far end, second copies included.
    pub forwarded_packets: u64,
    /// Bytes that came out at the far end.
    pub forwarded_bytes: u64,
    /// Packets dropped because the queue was full.
    pub dropped_queue: u64,
    /// Packets dropped by the loss process.
    pub dropped_loss: u64,
    /// Packets dropped because the link was cut.
    pub dropped_cut: u64,
    /// Second copies made.
    pub duplicated: u64,
    /// Packets held back so that others may overtake.
    pub reordered: u64,
    /// Packets with a flipped bit.
    pub corrupted: u64,
    /// Packets with swapped words.
    pub corrupted_hidden: u64,
    /// Most packets ever waiting.
    pub queue_peak_packets: u64,
    /// Most bytes ever waiting.
    pub queue_peak_bytes: u64,
}

/// The verdict on one offered packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Offer {
    /// It comes out at this time; a second copy too if `copy_at_ns` says so.
    Deliver {
        /// When the packet reaches the far end.
        at_ns: TimeNs,
        /// When its second copy does, if there is one.
        copy_at_ns: Option<TimeNs>,
        /// Damage to do to it (and to its copy).
        corruption: Option<Corruption>,
    },
    /// It is gone.
    Drop(DropCause),
}

/// One direction of one link.
#[derive(Clone, Debug)]
pub struct Pipe {
    params: PipeParams,
    rng: Pcg64Mcg,
    loss: LossState,
    busy_until_ns: TimeNs,
    /// Packets not yet being sent: when the sending of each begins, and its length.
    waiting: VecDeque<(TimeNs, u32)>,
    waiting_bytes: u64,
    last_delivery_ns: TimeNs,
    epoch: u32,
    counters: Counters,
}

impl Pipe {
    /// A pipe with an empty queue. Pipes of one network must be given different seeds.
    pub fn new(params: PipeParams, seed: u64) -> Self {
        Pipe {
            params,
            rng: Pcg64Mcg::seed_from_u64(seed),
            loss: LossState::default(),
            busy_until_ns: 0,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            last_delivery_ns: 0,
            epoch: 0,
            counters: Counters::default(),
        }
    }

    /// The parameters in force.
    pub fn params(&self) -> &PipeParams {
        &self.params
    }

    /// Changes the parameters for packets offered from now on. A change to `cut` loses everything in flight.
    pub fn set_params(&mut self, params: PipeParams) {
        if params.cut && !self.params.cut {
            self.epoch = self.epoch.wrapping_add(1);
            self.waiting.clear();
            self.waiting_bytes = 0;
            self.busy_until_ns = 0;
        }
        self.params = params;
    }

    /// The number of cuts so far: a packet that was offered in an earlier epoch was in flight when the link was cut.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// What the pipe has done so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Packets waiting at `now_ns`, the one being sent not counted.
    pub fn waiting_packets(&mut self, now_ns: TimeNs) -> usize {
        self.serve(now_ns);
        self.waiting.len()
    }

    /// The least time that a packet of `len` bytes can take through the pipe.
    pub fn least_ns(&self, len: u32) -> TimeNs {
        self.transmission_ns(len).saturating_add(self.params.delay_ns)
    }

    fn transmission_ns(&self, len: u32) -> TimeNs {
        let Some(rate) = self.params.rate_bits_per_s else {
            return 0;
        };
        let bits = (u128::from(len) + u128::from(self.params.overhead_bytes)) * 8;
        u64::try_from((bits * 1_000_000_000).div_ceil(u128::from(rate.max(1)))).unwrap_or(u64::MAX)
    }

    /// Offers a packet of `len` bytes at `now_ns`; times of successive calls must not decrease.
    pub fn offer(&mut self, now_ns: TimeNs, len: u32) -> Offer {
        self.counters.offered_packets += 1;
        self.counters.offered_bytes += u64::from(len);
        if self.params.cut {
            self.counters.dropped_cut += 1;
            return Offer::Drop(DropCause::Cut);
        }
        let Some(sent_ns) = self.enqueue(now_ns, len) else {
            self.counters.dropped_queue += 1;
            return Offer::Drop(DropCause::Queue);
        };
        if self.loss.lost(&self.params.loss, &mut self.rng) {
            self.counters.dropped_loss += 1;
            return Offer::Drop(DropCause::Loss);
        }
        let at_ns = self.delivery_time(sent_ns);
        let copy_at_ns = chance(&mut self.rng, self.params.duplicate).then_some(at_ns);
        self.counters.duplicated += u64::from(copy_at_ns.is_some());
        Offer::Deliver { at_ns, copy_at_ns, corruption: self.corruption() }
    }

    /// Tells the pipe that a packet offered in `epoch` has reached the far end; false if a cut took it on the way.
    pub fn arrive(&mut self, epoch: u32, len: u32) -> bool {
        if epoch != self.epoch || self.params.cut {
            self.counters.dropped_cut += 1;
            return false;
        }
        self.counters.forwarded_packets += 1;
        self.counters.forwarded_bytes += u64::from(len);
        true
    }

    /// Forgets waiting packets whose sending has begun.
    fn serve(&mut self, now_ns: TimeNs) {
        while let Some(&(start_ns, len)) = self.waiting.front() {
            if start_ns > now_ns {
                break;
            }
            self.waiting.pop_front();
            self.waiting_bytes -= u64::from(len);
        }
    }

    /// Queues and serialises; returns when the last bit leaves, or `None` if there is no room.
    fn enqueue(&mut self, now_ns: TimeNs, len: u32) -> Option<TimeNs> {
        if self.params.rate_bits_per_s.is_none() {
            return Some(now_ns);
        }
        self.serve(now_ns);
        let start_ns = now_ns.max(self.busy_until_ns);
        if start_ns > now_ns {
            let limit = self.params.queue;
            let packets = self.waiting.len() as u64 + 1;
            let bytes = self.waiting_bytes + u64::from(len);
            if limit.packets.is_some_and(|most| packets > u64::from(most))
                || limit.bytes.is_some_and(|most| bytes > most)
            {
                return None;
            }
            self.waiting.push_back((start_ns, len));
            self.waiting_bytes = bytes;
            self.counters.queue_peak_packets = self.counters.queue_peak_packets.max(packets);
            self.counters.queue_peak_bytes = self.counters.queue_peak_bytes.max(bytes);
        }
        self.busy_until_ns = start_ns.saturating_add(self.transmission_ns(len));
        Some(self.busy_until_ns)
    }

    fn delivery_time(&mut self, sent_ns: TimeNs) -> TimeNs {
        let p = &self.params;
        let mut at_ns = sent_ns.saturating_add(p.delay_ns);
        if p.jitter_ns > 0 {
            at_ns = at_ns.saturating_add((uniform(&mut self.rng) * (p.jitter_ns as f64 + 1.0)) as u64);
        }
        let reorder = p.reorder;
        if chance(&mut self.rng, reorder.probability) {
            // Held packets leave the order alone: they must not hold back those that overtake them.
            self.counters.reordered += 1;
            return at_ns.max(self.last_delivery_ns).saturating_add(reorder.hold_ns);
        }
        self.last_delivery_ns = self.last_delivery_ns.max(at_ns);
        self.last_delivery_ns
    }

    fn corruption(&mut self) -> Option<Corruption> {
        if chance(&mut self.rng, self.params.corrupt) {
            self.counters.corrupted += 1;
            return Some(Corruption::FlipBit(self.rng.next_u64()));
        }
        if chance(&mut self.rng, self.params.corrupt_hidden) {
            self.counters.corrupted_hidden += 1;
            return Some(Corruption::SwapWords(self.rng.next_u64()));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIGABIT: Option<u64> = Some(1_000_000_000);

    fn deliver(pipe: &mut Pipe, now_ns: TimeNs, len: u32) -> TimeNs {
        match pipe.offer(now_ns, len) {
            Offer::Deliver { at_ns, .. } => at_ns,
            Offer::Drop(cause) => panic!("dropped: {cause:?}"),
        }
    }

    #[test]
    fn a_gigabit_sends_1250_bytes_in_ten_microseconds() {
        let mut pipe = Pipe::new(PipeParams { rate_bits_per_s: GIGABIT, delay_ns: 500, ..Default::default() }, 0);
        assert_eq!(deliver(&mut pipe, 100, 1250), 10_600);
        assert_eq!(deliver(&mut pipe, 100, 1250), 20_600);
        assert_eq!(deliver(&mut pipe, 1_000_000, 1250), 1_010_500);
    }

    #[test]
    fn overhead_counts_in_time_only() {
        let params = PipeParams { rate_bits_per_s: GIGABIT, overhead_bytes: 24, ..Default::default() };
        let mut pipe = Pipe::new(params, 0);
        assert_eq!(deliver(&mut pipe, 0, 1226), 10_000);
        assert_eq!(pipe.counters().offered_bytes, 1226);
    }

    #[test]
    fn the_queue_holds_exactly_its_limit_in_packets() {
        let queue = QueueLimit { packets: Some(64), bytes: None };
        let mut pipe = Pipe::new(PipeParams { rate_bits_per_s: GIGABIT, queue, ..Default::default() }, 0);
        let accepted = (0..100).filter(|_| matches!(pipe.offer(0, 1000), Offer::Deliver { .. })).count();
        assert_eq!(accepted, 65, "64 waiting and one being sent");
        assert_eq!(pipe.counters().dropped_queue, 35);
        assert_eq!(pipe.counters().queue_peak_packets, 64);
        assert_eq!(pipe.waiting_packets(8_000), 63, "one transmission later one fewer waits");
    }

    #[test]
    fn the_queue_holds_at_most_its_limit_in_bytes() {
        let queue = QueueLimit { packets: None, bytes: Some(10_000) };
        let mut pipe = Pipe::new(PipeParams { rate_bits_per_s: GIGABIT, queue, ..Default::default() }, 0);
        let accepted = (0..100).filter(|_| matches!(pipe.offer(0, 1500), Offer::Deliver { .. })).count();
        assert_eq!(accepted, 7, "six of 1500 bytes fit in 10000, one is being sent");
        assert_eq!(pipe.counters().queue_peak_bytes, 9000);
    }

    #[test]
    fn jitter_delays_but_never_reorders_and_reorder_does() {
        let mut params = PipeParams { delay_ns: 1000, jitter_ns: 5000, ..Default::default() };
        let mut pipe = Pipe::new(params.clone(), 5);
        let times: Vec<_> = (0..1000u64).map(|i| deliver(&mut pipe, i * 100, 100)).collect();
        assert!(times.windows(2).all(|w| w[0] <= w[1]));
        assert!(times.iter().enumerate().all(|(i, t)| (1000..=6000 + 5000).contains(&(t - i as u64 * 100))));
        params.reorder = Reorder { probability: 0.1, hold_ns: 100_000 };
        let mut pipe = Pipe::new(params, 5);
        let times: Vec<_> = (0..1000u64).map(|i| deliver(&mut pipe, i * 100, 100)).collect();
        let held = times.windows(2).filter(|w| w[0] > w[1]).count();
        assert!((50..150).contains(&held), "{held} overtaken");
    }

    #[test]
    fn a_cut_takes_what_is_in_flight_and_a_heal_starts_clean() {
        let mut pipe = Pipe::new(PipeParams { rate_bits_per_s: GIGABIT, delay_ns: 1000, ..Default::default() }, 0);
        let epoch = pipe.epoch();
        deliver(&mut pipe, 0, 1250);
        let mut params = pipe.params().clone();
        params.cut = true;
        pipe.set_params(params.clone());
        assert_eq!(pipe.offer(10, 100), Offer::Drop(DropCause::Cut));
        assert!(!pipe.arrive(epoch, 1250));
        params.cut = false;
        pipe.set_params(params);
        assert!(!pipe.arrive(epoch, 1250), "a packet from before the cut stays lost after the heal");
        let epoch = pipe.epoch();
        assert_eq!(deliver(&mut pipe, 20_000, 1250), 31_000);
        assert!(pipe.arrive(epoch, 1250));
        assert_eq!(pipe.counters().dropped_cut, 3);
    }

    #[test]
    fn duplicates_and_damage_come_at_their_rates() {
        let params = PipeParams { duplicate: 0.02, corrupt: 0.03, corrupt_hidden: 0.05, ..Default::default() };
        let mut pipe = Pipe::new(params, 11);
        for i in 0..100_000 {
            pipe.offer(i, 100);
        }
        let c = pipe.counters();
        assert!((1750..2250).contains(&c.duplicated), "{c:?}");
        assert!((2700..3300).contains(&c.corrupted), "{c:?}");
        assert!((4500..5200).contains(&c.corrupted_hidden), "{c:?}");
    }
}

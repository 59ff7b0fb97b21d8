//! A medium that several stations share: one packet at a time, whoever sends it.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use rand_core::Rng;

use crate::{Harm, Offer, Pipe, PipeSpec, TimeNs, Why, below, serialise_ns};

/// Whoever begins while another's carrier is under way to him collides with him, waits, and tries
/// again, as IEEE 802.3 has it at 10 Mbit/s (`spec/network-toml.md`, a bus with collisions).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Collisions {
    /// From any station to any other, bit times. With more than 208 two who draw back-offs that
    /// differ by one meet again; at most [`Collisions::REACH_MOST_BITS`] count.
    pub reach_bits: u32,
}

impl Default for Collisions {
    fn default() -> Self {
        Collisions { reach_bits: 200 }
    }
}

impl Collisions {
    /// A slot of the back-off.
    pub const SLOT_BITS: u64 = 512;
    /// What a station sends whole, whatever happens, ...
    pub const PREAMBLE_BITS: u64 = 64;
    /// ... and behind it when it has noticed a collision.
    pub const JAM_BITS: u64 = 32;
    /// Nobody begins for so long after a carrier.
    pub const GAP_BITS: u64 = 96;
    /// The shortest frame with preamble, checksum and gap.
    pub const LEAST_BITS: u64 = 672;
    /// So often the range of back-offs doubles.
    pub const DOUBLINGS: u32 = 10;
    /// With so many attempts that collided a frame is given up.
    pub const ATTEMPTS: u32 = 16;
    /// A collision is heard before the shortest frame ends.
    pub const REACH_MOST_BITS: u32 = 256;

    fn reach_ns(self, spec: &PipeSpec) -> TimeNs {
        bits_ns(spec, u64::from(self.reach_bits.min(Self::REACH_MOST_BITS)))
    }
}

/// How long so many bits take at a pipe's rate.
fn bits_ns(spec: &PipeSpec, bits: u64) -> TimeNs {
    serialise_ns(spec.rate_bytes_per_s.saturating_mul(8), bits)
}

/// A packet that a station has for the medium.
#[derive(Clone, Debug)]
struct Waiting<T> {
    item: T,
    bytes: u32,
    /// The bytes it counts while it waits.
    size: u64,
    /// The cuts of its station as it came.
    epoch: u32,
    marked: bool,
}

#[derive(Clone, Debug)]
struct Station<R, T> {
    pipe: Pipe<R>,
    /// In front what a cut has lost and whose turn has not come, then what still counts.
    queue: VecDeque<Waiting<T>>,
    /// The cuts that what counts came after.
    epoch: u32,
    /// How many count, ...
    queue_packets: u64,
    /// ... and their sizes.
    queue_bytes: u64,
    /// With collisions: until then its first packet was not there yet, or backs off.
    ready_ns: TimeNs,
    /// With collisions: from then on it has heard no carrier for a gap.
    clear_ns: TimeNs,
    /// How often its first packet has collided.
    attempts: u32,
}

impl<R: Rng, T> Station<R, T> {
    /// A cut empties the queue: what it has lost no longer counts.
    fn heed_cuts(&mut self) {
        if self.epoch != self.pipe.epoch() {
            self.epoch = self.pipe.epoch();
            (self.queue_packets, self.queue_bytes) = (0, 0);
        }
    }

    /// With collisions: when it begins to send, if it hears nobody.
    fn begins_ns(&self) -> Option<TimeNs> {
        self.queue.front().map(|_| self.ready_ns.max(self.clear_ns))
    }

    /// Takes the first packet out; from then on the next is to be sent.
    fn take_first(&mut self, next_ready_ns: TimeNs) -> Option<Waiting<T>> {
        let packet = self.queue.pop_front()?;
        self.queue_packets -= 1;
        self.queue_bytes -= packet.size;
        (self.ready_ns, self.attempts) = (next_ready_ns, 0);
        Some(packet)
    }
}

#[derive(Clone, Debug)]
struct Sending<T> {
    station: usize,
    left_ns: TimeNs,
    packet: Waiting<T>,
}

/// A packet that a cut has lost, or that has collided too often, and when.
#[derive(Clone, Debug)]
struct Gone<T> {
    station: usize,
    at_ns: TimeNs,
    why: Why,
    packet: Waiting<T>,
}

/// A packet that has left the medium, or is gone.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Passed<T, D> {
    /// Who sent it.
    pub station: usize,
    /// What the caller calls it.
    pub item: T,
    /// Its length.
    pub bytes: u32,
    /// What became of it.
    pub offer: Offer<D>,
}

/// A half-duplex medium of several stations. While the packet of one is sent the others wait, each
/// in a queue of its own with tail drop; then the next station in turn that has something sends one
/// packet. Each station's pipe says the rate, the queue and the faults of what it sends.
///
/// An ideal one by default: nobody sends while another does, and no time passes between two packets
/// but what the pipes add to each. Of Ethernet's CSMA/CD that is the share that stations get in the
/// long run, without its collisions, its waiting times after them, and its capture by the last
/// sender.
/// [`Medium::with_collisions`] has these and no turns; all its pipes must have one rate, and the
/// last [`Collisions::GAP_BITS`] of what they add to a packet are the gap behind it.
///
/// Unlike that of a pipe, a packet's fate depends on what others offer after it, so it is told
/// later: [`Medium::pop`]. O(stations) for a packet, and for each collision.
#[derive(Clone, Debug)]
pub struct Medium<R, T> {
    stations: Vec<Station<R, T>>,
    collisions: Option<Collisions>,
    sending: Option<Sending<T>>,
    /// With collisions, while nobody sends: when it is known whether the first to begin has been
    /// heard by all.
    settled_ns: Option<TimeNs>,
    /// What is to be told as dropped.
    gone: Vec<Gone<T>>,
    /// Who is asked first for the next packet.
    turn: usize,
}

impl<R, T> Default for Medium<R, T> {
    fn default() -> Self {
        Medium { stations: Vec::new(), collisions: None, sending: None, settled_ns: None, gone: Vec::new(), turn: 0 }
    }
}

impl<R: Rng, T> Medium<R, T> {
    /// A medium whose stations collide.
    #[must_use]
    pub fn with_collisions(collisions: Collisions) -> Self {
        Medium { collisions: Some(collisions), ..Medium::default() }
    }

    /// Adds a station and returns its number, from 0.
    pub fn add(&mut self, pipe: Pipe<R>) -> usize {
        let epoch = pipe.epoch();
        self.stations.push(Station {
            pipe,
            queue: VecDeque::new(),
            epoch,
            queue_packets: 0,
            queue_bytes: 0,
            ready_ns: 0,
            clear_ns: 0,
            attempts: 0,
        });
        self.stations.len() - 1
    }

    /// What a station sends by. Panics if there is none of this number.
    pub fn pipe(&self, station: usize) -> &Pipe<R> {
        &self.stations[station].pipe
    }

    /// The same, to be cut, healed and changed. A cut loses what waits: it has no place in the
    /// queue any more, and leaves it as its station's turn comes, without taking time or the turn.
    pub fn pipe_mut(&mut self, station: usize) -> &mut Pipe<R> {
        &mut self.stations[station].pipe
    }

    /// Packets that wait or are being sent.
    pub fn len(&self) -> usize {
        let waiting = self.stations.iter().map(|s| s.queue.len()).sum::<usize>();
        waiting + self.gone.len() + usize::from(self.sending.is_some())
    }

    /// Whether nothing waits or is being sent.
    pub fn is_empty(&self) -> bool {
        self.next_ns().is_none()
    }

    /// A station has a packet of `bytes` at `now_ns`; times of successive calls must not decrease,
    /// and what [`Medium::pop`] has for an earlier time must have been taken.
    ///
    /// # Errors
    /// Its queue has no room, or it is cut off: then the packet comes back, with the reason.
    pub fn offer(&mut self, now_ns: TimeNs, station: usize, bytes: u32, item: T) -> Result<(), (Why, T)> {
        self.forget_lost(now_ns, station);
        // (Without collisions, nobody's queue has anything while nobody sends.)
        let is_first = self.stations[station].queue.is_empty();
        let must_wait = self.sending.is_some() || !is_first;
        let own = self.sending.as_ref().filter(|s| s.station == station).map(|s| (s.packet.size, s.packet.epoch));
        self.stations[station].heed_cuts();
        let Station { pipe, queue, epoch, queue_packets, queue_bytes, ready_ns, .. } = &mut self.stations[station];
        pipe.counters.offered_packets += 1;
        pipe.counters.offered_bytes += u64::from(bytes);
        if pipe.is_cut() {
            pipe.counters.dropped_cut += 1;
            return Err((Why::Cut, item));
        }
        let size = u64::from(bytes) + u64::from(pipe.spec().queue_overhead_bytes);
        let limit = pipe.spec().queue;
        let own_size = own.filter(|own| limit.counts_sending && own.1 == *epoch).map(|own| own.0);
        let (packets, waiting_bytes) =
            (*queue_packets + u64::from(own_size.is_some()), *queue_bytes + own_size.unwrap_or(0));
        let marked = pipe.spec().mark.is_reached(packets, waiting_bytes);
        if must_wait || limit.counts_sending {
            let (packets, all_bytes) = (packets + 1, waiting_bytes.saturating_add(size));
            let is_full = limit.packets.is_some_and(|most| packets > u64::from(most))
                || limit.bytes.is_some_and(|most| all_bytes > most);
            if is_full {
                pipe.counters.dropped_queue += 1;
                return Err((Why::Queue, item));
            }
            pipe.counters.queue_peak_packets = pipe.counters.queue_peak_packets.max(packets);
            pipe.counters.queue_peak_bytes = pipe.counters.queue_peak_bytes.max(all_bytes);
        }
        *queue_packets += 1;
        *queue_bytes += size;
        queue.push_back(Waiting { item, bytes, size, epoch: *epoch, marked });
        if is_first {
            *ready_ns = (*ready_ns).max(now_ns);
        }
        if self.collisions.is_some() {
            self.look_ahead();
        } else if !must_wait {
            self.begin(now_ns);
        }
        Ok(())
    }

    /// When [`Medium::pop`] must be called next. It may have nothing then: whether two collide
    /// shows only as they do.
    pub fn next_ns(&self) -> Option<TimeNs> {
        let gone = self.gone.iter().map(|g| g.at_ns);
        gone.chain(self.sending.as_ref().map(|s| s.left_ns)).chain(self.settled_ns).min()
    }

    /// The next packet that has left the medium at `now_ns` or before, or is gone, with its fate.
    /// `damage` is as in [`Pipe::offer`], and is told what the packet is.
    pub fn pop<D>(&mut self, now_ns: TimeNs, damage: impl FnOnce(Harm, &T, &mut R) -> D) -> Option<Passed<T, D>> {
        loop {
            let at_ns = self.next_ns().filter(|at_ns| *at_ns <= now_ns)?;
            if let Some(i) = self.gone.iter().position(|g| g.at_ns == at_ns) {
                let Gone { station, why, packet: Waiting { item, bytes, .. }, .. } = self.gone.remove(i);
                return Some(Passed { station, item, bytes, offer: Offer::Drop(why, at_ns) });
            }
            if let Some(sent) = self.sending.take_if(|s| s.left_ns == at_ns) {
                return Some(self.sent(sent, damage));
            }
            self.settle(at_ns);
        }
    }

    fn sent<D>(&mut self, sent: Sending<T>, damage: impl FnOnce(Harm, &T, &mut R) -> D) -> Passed<T, D> {
        let Sending { station, left_ns, packet } = sent;
        let pipe = &mut self.stations[station].pipe;
        let Waiting { item, bytes, epoch, marked, .. } = packet;
        let offer = if epoch == pipe.epoch() {
            pipe.put_on_wire(left_ns, bytes, marked, |harm, rng| damage(harm, &item, rng))
        } else {
            pipe.counters.dropped_cut += 1;
            Offer::Drop(Why::Cut, left_ns)
        };
        if self.collisions.is_some() {
            self.look_ahead();
        } else {
            self.begin(left_ns);
        }
        Passed { station, item, bytes, offer }
    }

    /// Takes out all that waits or is being sent, in no order.
    pub fn drain(&mut self) -> impl Iterator<Item = T> + '_ {
        self.settled_ns = None;
        let sending = self.sending.take().map(|s| s.packet.item);
        let gone = core::mem::take(&mut self.gone).into_iter().map(|g| g.packet.item);
        let waiting = self.stations.iter_mut().flat_map(|s| {
            (s.queue_packets, s.queue_bytes, s.attempts) = (0, 0, 0);
            s.queue.drain(..).map(|w| w.item)
        });
        sending.into_iter().chain(gone).chain(waiting)
    }

    /// The medium is free: the next in turn sends.
    fn begin(&mut self, now_ns: TimeNs) {
        let count = self.stations.len();
        for station in (0..count).map(|i| (self.turn + i) % count) {
            self.stations[station].heed_cuts();
            let Station { pipe, queue, epoch, queue_packets, queue_bytes, .. } = &mut self.stations[station];
            let Some(packet) = queue.pop_front() else { continue };
            // (What came after the last cut came after it was healed.)
            let is_lost = packet.epoch != *epoch;
            if !is_lost {
                *queue_packets -= 1;
                *queue_bytes -= packet.size;
            }
            let takes_ns = if is_lost { 0 } else { pipe.spec().serialise_ns(u64::from(packet.bytes)) };
            self.sending = Some(Sending { station, left_ns: now_ns.saturating_add(takes_ns), packet });
            self.turn = if is_lost { station } else { (station + 1) % count };
            return;
        }
    }

    /// With collisions: a cut takes what waits at once, for nothing waits for a turn.
    fn forget_lost(&mut self, now_ns: TimeNs, station: usize) {
        if self.collisions.is_none() {
            return;
        }
        let s = &mut self.stations[station];
        s.heed_cuts();
        while s.queue.front().is_some_and(|packet| packet.epoch != s.epoch) {
            let Some(packet) = s.queue.pop_front() else { return };
            (s.ready_ns, s.attempts) = (now_ns, 0);
            s.pipe.counters.dropped_cut += 1;
            self.gone.push(Gone { station, at_ns: now_ns, why: Why::Cut, packet });
        }
    }

    /// With collisions: who is the first to begin, if nobody sends, and when have all heard it?
    fn look_ahead(&mut self) {
        self.settled_ns = None;
        let Some(model) = self.collisions.filter(|_| self.sending.is_none()) else { return };
        let first = self.stations.iter().filter_map(|s| Some((s.begins_ns()?, model.reach_ns(s.pipe.spec())))).min();
        self.settled_ns = first.map(|(at_ns, reach_ns)| at_ns.saturating_add(reach_ns));
    }

    /// All have heard the first who has begun, or have begun themselves.
    fn settle(&mut self, now_ns: TimeNs) {
        (0..self.stations.len()).for_each(|station| self.forget_lost(now_ns, station));
        self.look_ahead();
        let Some(model) = self.collisions.filter(|_| self.settled_ns == Some(now_ns)) else { return };
        let begun = self.stations.iter().enumerate().filter_map(|(i, s)| Some((s.begins_ns()?, i)));
        let mut begun: Vec<(TimeNs, usize)> = begun.filter(|b| b.0 <= now_ns).collect();
        begun.sort_unstable();
        match begun[..] {
            [] => {}
            [(begins_ns, station)] => self.send(model, begins_ns, station),
            [first, second, ..] => {
                // The first hears the second, all others the first.
                let heard = |station| if station == first.1 { second.0 } else { first.0 };
                self.collide(model, &begun, heard);
            }
        }
        self.look_ahead();
    }

    /// One has the medium for its packet.
    fn send(&mut self, model: Collisions, begins_ns: TimeNs, station: usize) {
        let s = &mut self.stations[station];
        let Some(bytes) = s.queue.front().map(|packet| packet.bytes) else { return };
        let spec = *s.pipe.spec();
        let takes_ns = spec.serialise_ns(u64::from(bytes)).max(bits_ns(&spec, Collisions::LEAST_BITS));
        let left_ns = begins_ns.saturating_add(takes_ns - bits_ns(&spec, Collisions::GAP_BITS));
        let Some(packet) = s.take_first(left_ns) else { return };
        self.sending = Some(Sending { station, left_ns, packet });
        self.hear(model, &[(left_ns, station)]);
    }

    /// These have begun, each at its time, and who each hears first began at `heard`.
    fn collide(&mut self, model: Collisions, begun: &[(TimeNs, usize)], heard: impl Fn(usize) -> TimeNs) {
        let mut stops = Vec::with_capacity(begun.len());
        for &(begins_ns, station) in begun {
            let s = &mut self.stations[station];
            let spec = *s.pipe.spec();
            let noticed_ns = heard(station).saturating_add(model.reach_ns(&spec));
            let preamble_ns = begins_ns.saturating_add(bits_ns(&spec, Collisions::PREAMBLE_BITS));
            let stops_ns = noticed_ns.max(preamble_ns).saturating_add(bits_ns(&spec, Collisions::JAM_BITS));
            stops.push((stops_ns, station));
            s.attempts += 1;
            s.pipe.counters.collisions += 1;
            if s.attempts < Collisions::ATTEMPTS {
                let slots = below(s.pipe.rng(), 1 << s.attempts.min(Collisions::DOUBLINGS));
                s.ready_ns = stops_ns.saturating_add(slots * bits_ns(&spec, Collisions::SLOT_BITS));
            } else if let Some(packet) = s.take_first(stops_ns) {
                s.pipe.counters.dropped_collisions += 1;
                self.gone.push(Gone { station, at_ns: stops_ns, why: Why::Collisions, packet });
            }
        }
        self.hear(model, &stops);
    }

    /// These carriers end at these times; all hear it, each its own at once.
    fn hear(&mut self, model: Collisions, stops: &[(TimeNs, usize)]) {
        let last = stops.iter().max().copied();
        let before = stops.iter().filter(|s| last.is_some_and(|last| last.1 != s.1)).max().copied();
        for (i, s) in self.stations.iter_mut().enumerate() {
            let spec = s.pipe.spec();
            let reach_ns = model.reach_ns(spec);
            let others = if last.is_some_and(|last| last.1 == i) { before } else { last };
            let own_ns = stops.iter().find(|s| s.1 == i).map_or(0, |s| s.0);
            let silent_ns = others.map_or(0, |o| o.0.saturating_add(reach_ns)).max(own_ns);
            s.clear_ns = silent_ns.saturating_add(bits_ns(spec, Collisions::GAP_BITS));
        }
    }
}

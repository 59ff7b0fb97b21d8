//! A medium that several stations share: one packet at a time, whoever sends it.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use rand_core::Rng;

use crate::{Harm, Offer, Pipe, TimeNs, Why};

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
}

impl<R: Rng, T> Station<R, T> {
    /// A cut empties the queue: what it has lost no longer counts.
    fn heed_cuts(&mut self) {
        if self.epoch != self.pipe.epoch() {
            self.epoch = self.pipe.epoch();
            (self.queue_packets, self.queue_bytes) = (0, 0);
        }
    }
}

#[derive(Clone, Debug)]
struct Sending<T> {
    station: usize,
    left_ns: TimeNs,
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
/// An ideal one: nobody sends while another does, and no time passes between two packets but what
/// the pipes add to each. Of Ethernet's CSMA/CD that is the share that stations get in the long
/// run, without its collisions, its waiting times after them, and its capture by who sent last.
///
/// Unlike that of a pipe, a packet's fate depends on what others offer after it, so it is told
/// later: [`Medium::pop`]. O(stations) for a packet.
#[derive(Clone, Debug)]
pub struct Medium<R, T> {
    stations: Vec<Station<R, T>>,
    sending: Option<Sending<T>>,
    /// Who is asked first for the next packet.
    turn: usize,
}

impl<R, T> Default for Medium<R, T> {
    fn default() -> Self {
        Medium { stations: Vec::new(), sending: None, turn: 0 }
    }
}

impl<R: Rng, T> Medium<R, T> {
    /// Adds a station and returns its number, from 0.
    pub fn add(&mut self, pipe: Pipe<R>) -> usize {
        let epoch = pipe.epoch();
        self.stations.push(Station { pipe, queue: VecDeque::new(), epoch, queue_packets: 0, queue_bytes: 0 });
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
        self.stations.iter().map(|s| s.queue.len()).sum::<usize>() + usize::from(self.sending.is_some())
    }

    /// Whether nothing waits or is being sent.
    pub fn is_empty(&self) -> bool {
        self.sending.is_none()
    }

    /// A station has a packet of `bytes` at `now_ns`; times of successive calls must not decrease,
    /// and what [`Medium::pop`] has for an earlier time must have been taken.
    ///
    /// # Errors
    /// Its queue has no room, or it is cut off: then the packet comes back, with the reason.
    pub fn offer(&mut self, now_ns: TimeNs, station: usize, bytes: u32, item: T) -> Result<(), (Why, T)> {
        let must_wait = self.sending.is_some();
        let own = self.sending.as_ref().filter(|s| s.station == station).map(|s| (s.packet.size, s.packet.epoch));
        self.stations[station].heed_cuts();
        let Station { pipe, queue, epoch, queue_packets, queue_bytes } = &mut self.stations[station];
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
        if !must_wait {
            self.begin(now_ns);
        }
        Ok(())
    }

    /// When [`Medium::pop`] has something next.
    pub fn next_ns(&self) -> Option<TimeNs> {
        self.sending.as_ref().map(|s| s.left_ns)
    }

    /// What is being sent, which [`Medium::pop`] has next.
    pub fn sending(&self) -> Option<&T> {
        self.sending.as_ref().map(|s| &s.packet.item)
    }

    /// The next packet that has left the medium at `now_ns` or before, with its fate; `damage` is
    /// as in [`Pipe::offer`].
    pub fn pop<D>(&mut self, now_ns: TimeNs, damage: impl FnOnce(Harm, &mut R) -> D) -> Option<Passed<T, D>> {
        let Sending { station, left_ns, packet } = self.sending.take_if(|s| s.left_ns <= now_ns)?;
        let pipe = &mut self.stations[station].pipe;
        let Waiting { item, bytes, epoch, marked, .. } = packet;
        let offer = if epoch == pipe.epoch() {
            pipe.put_on_wire(left_ns, bytes, marked, damage)
        } else {
            pipe.counters.dropped_cut += 1;
            Offer::Drop(Why::Cut, left_ns)
        };
        self.begin(left_ns);
        Some(Passed { station, item, bytes, offer })
    }

    /// Takes out all that waits or is being sent, in no order.
    pub fn drain(&mut self) -> impl Iterator<Item = T> + '_ {
        let sending = self.sending.take().map(|s| s.packet.item);
        let waiting = self.stations.iter_mut().flat_map(|s| {
            (s.queue_packets, s.queue_bytes) = (0, 0);
            s.queue.drain(..).map(|w| w.item)
        });
        sending.into_iter().chain(waiting)
    }

    /// The medium is free: the next in turn sends.
    fn begin(&mut self, now_ns: TimeNs) {
        let count = self.stations.len();
        for station in (0..count).map(|i| (self.turn + i) % count) {
            self.stations[station].heed_cuts();
            let Station { pipe, queue, epoch, queue_packets, queue_bytes } = &mut self.stations[station];
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
}

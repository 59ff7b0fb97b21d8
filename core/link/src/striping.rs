//! Several paths at once: which of them the next fragments take, and what each delivers (spec 8.1).

use smallvec::SmallVec;

use crate::association::{Association, Cx};
use crate::paths::{PATHS_MAX, Path, PathState};
use crate::{Config, Time};

/// Packets in a row by one path: the fewer, the more evenly a message is divided; the more, the fewer ranges an acknowledgement has to tell, and the more go in one system call.
const TURN_MIN: u64 = 4;
const TURN_MAX: u64 = 44;
/// ... and so much of what waits.
const TURN_PART: u64 = 8;
/// Packets in flight on a path that nobody has seen deliver: enough to see it.
const UNKNOWN_PACKETS: u32 = 8;
/// A train of so many packets says what a path delivers; one of so many bytes has said enough.
const TRAIN_PACKETS: u64 = 6;
const TRAIN_BYTES: u64 = 64 << 10;
/// Weight of a train: a quarter.
const TRAIN_WEIGHT: u64 = 4;
/// Messages in line that are looked at to say how much waits.
const LOOKED_AT_MAX: usize = 16;

/// What a path delivers, by the receiver's clock: bytes between two of its readings, over the time between them. What waits in front of the first, and what the acknowledgements need on their way
/// back, is not in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Delivery {
    /// Bytes acknowledged, all in all; when the train's first packet was read and what had been acknowledged by then.
    bytes: u64,
    mark: Option<(u32, u64)>,
    rate: u64,
}

impl Delivery {
    /// Bytes were acknowledged; `read_us`: when the newest of them was read. `is_idle`: nothing is in flight any more.
    pub(crate) fn on_ack(&mut self, bytes: u64, read_us: Option<u32>, mtu: u64, is_idle: bool) {
        self.bytes += bytes;
        match (self.mark, read_us) {
            (Some((began_us, had)), Some(read_us)) => {
                let (took_us, came) = (u64::from(read_us.wrapping_sub(began_us)), self.bytes - had);
                let is_enough = came >= TRAIN_BYTES || (is_idle && came >= TRAIN_PACKETS * mtu);
                if is_enough && (1..=u64::from(u32::MAX / 2)).contains(&took_us) {
                    let rate = came * 1_000_000 / took_us;
                    let old = if self.rate == 0 { rate } else { self.rate };
                    self.rate = old - old / TRAIN_WEIGHT + rate / TRAIN_WEIGHT;
                    self.mark = Some((read_us, self.bytes));
                }
            }
            (None, Some(read_us)) => self.mark = Some((read_us, self.bytes)),
            (_, None) => {}
        }
        if is_idle {
            self.mark = None;
        }
    }

    /// Bytes per second; 0: not known.
    pub(crate) fn rate(&self) -> u64 {
        self.rate
    }
}

/// Whose turn it is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turn {
    path: u8,
    /// Packets that still go by it.
    left: u32,
    /// There are several to choose from.
    is_chosen: bool,
}

impl Turn {
    /// Whether the next packet of a run may go by the path without a new choice.
    pub(crate) fn goes_on(&self, path: u8) -> bool {
        !self.is_chosen || (self.path == path && self.left > 0)
    }

    /// A packet with data went.
    pub(crate) fn took(&mut self, path: u8) {
        if path == self.path {
            self.left = self.left.saturating_sub(1);
        }
    }
}

/// A path as the choice sees it: bytes per second, half of its round trip in nanoseconds, bytes in flight.
struct Candidate {
    path: u8,
    rate: u64,
    half_ns: u64,
    in_flight: u64,
    /// When a packet that went now would be there.
    arrives_ns: u64,
}

/// Bytes that a rate makes of a time.
fn bytes_in(rate: u64, ns: u64) -> u64 {
    (u128::from(rate) * u128::from(ns) / 1_000_000_000).min(u128::from(u64::MAX)) as u64
}

/// The time a rate needs for bytes.
fn ns_for(rate: u64, bytes: u64) -> u64 {
    (u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1))).min(u128::from(u64::MAX / 4)) as u64
}

impl Path {
    /// Valid, and nothing says that it might not be.
    fn is_well(&self) -> bool {
        self.state == PathState::Valid && self.ptos == 0
    }

    fn candidate(&self, path: u8) -> Candidate {
        let half_ns = self.rtt.base() / 2;
        // (The bytes of a window in a round trip.)
        let window_rate = ns_for(self.rtt.srtt, self.cc.window());
        let rate = if self.delivery.rate > 0 { self.delivery.rate } else { window_rate }.max(1);
        let next = self.in_flight + u64::from(self.mtu.size());
        let arrives_ns = ns_for(rate, next).max(2 * half_ns) - half_ns;
        Candidate { path, rate, half_ns, in_flight: self.in_flight, arrives_ns }
    }
}

impl Association {
    /// Whether another path than this one carries packets, as far as is known.
    pub(crate) fn has_other(&self, cfg: &Config, i: usize) -> bool {
        cfg.stripe && self.paths.iter().enumerate().any(|(k, p)| k != i && p.is_well())
    }

    /// The path of what is short: the primary, unless it does not answer and another does.
    pub(crate) fn lead(&self, cfg: &Config) -> u8 {
        let primary = usize::from(self.primary);
        if !cfg.stripe || self.paths.len() < 2 || self.paths.get(primary).is_none_or(Path::is_well) {
            return self.primary;
        }
        self.paths.iter().position(Path::is_well).map_or(self.primary, |i| i as u8)
    }

    /// The window of a path: all together have no more in flight than the receiver's buffer and the wires take.
    pub(crate) fn window_of(&self, i: usize) -> u64 {
        let buffer = self.peer.rx_buffer;
        let others = self.paths.iter().enumerate().filter(|(k, p)| *k != i && p.in_flight > 0);
        let waits: u64 = others.map(|(_, p)| p.in_flight.saturating_sub(p.wire())).sum();
        self.paths.get(i).map_or(0, |p| p.window(buffer.saturating_sub(2 * waits)))
    }

    /// Longest round trip, without queues, of the paths by which packets came of late.
    pub(crate) fn longest_trip(&self, now: Time) -> u64 {
        let trips = self.rx.in_use(now).filter_map(|i| self.paths.get(usize::from(i)));
        trips.map(|p| p.rtt.base()).max().unwrap_or(0)
    }

    /// The path that data takes now; `None`: it waits for one that would have all of it there before another had the next packet. `lead` carries what is short.
    pub(crate) fn carrier(&mut self, cx: &mut Cx<'_>, lead: u8) -> Option<u8> {
        let has_long = cx.s.flows_waiting() + cx.s.lost_waiting() > 0 || self.parity.is_due();
        if !cx.cfg.stripe || self.paths.iter().filter(|p| p.is_well()).count() < 2 {
            self.stripe.is_chosen = false;
            return Some(lead);
        }
        self.stripe.is_chosen = true;
        if !has_long || (cx.s.small_waiting() > 0 && self.lets_out(cx, lead)) {
            return Some(lead);
        }
        let turn = self.stripe.path;
        if self.stripe.left > 0
            && self.paths.get(usize::from(turn)).is_some_and(Path::is_well)
            && self.lets_out(cx, turn)
        {
            return Some(turn);
        }
        self.choose(cx)
    }

    /// The earliest arrival; a path that is free but would be later than those that are not takes only what it has there before they could have had all that waits.
    fn choose(&mut self, cx: &mut Cx<'_>) -> Option<u8> {
        let well = self.paths.iter().enumerate().filter(|(_, p)| p.is_well());
        let mut candidates: SmallVec<[Candidate; PATHS_MAX]> = well.map(|(i, p)| p.candidate(i as u8)).collect();
        candidates.sort_by_key(|c| c.arrives_ns);
        let waiting = cx.s.waiting_bytes(LOOKED_AT_MAX);
        // Of those that would be earlier and are not free: rates, bytes in flight, bytes that their wires take before the first is there.
        let (mut rates, mut in_flight, mut wires) = (0u64, 0u64, 0u64);
        for c in candidates {
            let p = &self.paths[usize::from(c.path)];
            let (mtu, is_known) = (u64::from(p.mtu.size_for(p.ptos)), p.delivery.rate > 0);
            let is_measured = !is_known && p.in_flight_packets >= UNKNOWN_PACKETS;
            if is_measured || !self.lets_out(cx, c.path) {
                rates = rates.saturating_add(c.rate);
                in_flight += c.in_flight;
                wires += bytes_in(c.rate, c.half_ns);
                continue;
            }
            let mut turn = (waiting / TURN_PART / mtu).clamp(TURN_MIN, TURN_MAX);
            if rates > 0 {
                let all_there_ns = ns_for(rates, (waiting + in_flight).saturating_sub(wires));
                let fits = bytes_in(c.rate, all_there_ns + c.half_ns).saturating_sub(c.in_flight);
                if c.half_ns > all_there_ns || fits < mtu {
                    continue;
                }
                turn = turn.min(fits / mtu);
            }
            if !is_known {
                turn = turn.min(u64::from(UNKNOWN_PACKETS));
            }
            (self.stripe.path, self.stripe.left) = (c.path, turn as u32);
            return Some(c.path);
        }
        None
    }
}

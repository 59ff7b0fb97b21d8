//! Several paths at once: which of them the next fragments take (spec 8.1).

use smallvec::SmallVec;

use crate::association::{Association, Cx};
use crate::config::PATHS_MAX;
use crate::delivery::{TRAIN_PACKETS, USUAL_BYTES};
use crate::paths::{Path, PathState};
use crate::scale::mul_div;
use crate::{Config, Time};

/// Packets in a row by one path: the fewer, the more evenly a message is divided; the more, the
/// fewer ranges an acknowledgement has to tell, and the more go in one system call.
const TURN_MIN: u64 = 4;
const TURN_MAX: u64 = 44;
/// ... and so much of what waits.
const TURN_PART: u64 = 8;
/// What goes first by a path that nobody has seen deliver: enough to see it; and what waits before
/// any does. In packets of at most [`USUAL_BYTES`].
const UNKNOWN_PACKETS: u64 = 8;
const UNKNOWN_FROM: u64 = 16;
/// Flows of which what may go now is counted.
const FLOWS_MOST: usize = 8;
/// Packets that a window takes at least where data goes in slots: twice as many as are sent until
/// an acknowledgement is due (`spec/superstep.md` 7.8).
const SLOTS_WINDOW_PACKETS: u64 = 16;
/// Probe timeouts in a row after which what is short leaves the primary for one that is well: one
/// may be the peer's lateness.
const SILENT_PTOS: u32 = 2;

/// A path as the choice sees it.
struct Candidate {
    path: u8,
    /// Bytes per second.
    rate: u64,
    /// When the first byte sent now would be there, behind what was sent before.
    first_ns: u64,
    /// When a packet would.
    arrives_ns: u64,
    /// Time that what stands in front of its slowest link needs.
    queue_ns: u64,
    /// Bytes of a packet; it was seen to deliver; a train may go to see what it does.
    mtu: u64,
    is_known: bool,
    may_try: bool,
}

impl Candidate {
    /// Packets that go to see what it delivers: what a train needs, the one before it, from whose
    /// reading on it counts, and one that may not be full.
    fn trial(&self) -> u64 {
        (2 + (TRAIN_PACKETS * USUAL_BYTES).div_ceil(self.mtu.max(1))).min(UNKNOWN_PACKETS)
    }

    /// Its part of what waits, in packets: with all of it there by `end_ns`, and no more in front
    /// of its link than `level_ns`. A link with less than a packet in front of it is about to stand
    /// idle, and takes one however little was granted just now.
    fn part(&self, end_ns: u64, level_ns: u64) -> u64 {
        let packets_in = |ns: u64| bytes_in(self.rate, ns) / self.mtu.max(1);
        let is_empty = u64::from(packets_in(self.queue_ns) == 0);
        let even = packets_in(level_ns.saturating_sub(self.queue_ns)).max(is_empty);
        packets_in(end_ns.saturating_sub(self.first_ns)).min(even)
    }
}

/// Bytes that a rate makes of a time.
fn bytes_in(rate: u64, ns: u64) -> u64 {
    mul_div(rate, ns, 1_000_000_000)
}

/// The time a rate needs for bytes.
fn ns_for(rate: u64, bytes: u64) -> u64 {
    mul_div(bytes, 1_000_000_000, rate.max(1)).min(u64::MAX / 4)
}

impl Path {
    /// Valid, and nothing says that it might not be.
    pub(crate) fn is_well(&self) -> bool {
        self.state == PathState::Valid && self.ptos == 0
    }

    fn candidate(&self, now: Time, path: u8) -> Candidate {
        let (half_ns, rate) = (self.rtt.base() / 2, self.delivery.rate.max(1));
        // What waits is what was sent faster than the path takes it, or what is in flight beyond a
        // round trip: others may queue there.
        let own = self.delivery.queue_ns(now, self.in_flight);
        let queue = own.max(ns_for(rate, self.in_flight).saturating_sub(2 * half_ns));
        let is_known = self.delivery.rate > 0;
        let may_try = self.in_flight_packets == 0 && self.delivery.try_at <= now;
        let queue_ns = if is_known { queue } else { 0 };
        let first_ns = half_ns + queue_ns;
        let mtu = u64::from(self.mtu.size_for(self.ptos));
        let arrives_ns = first_ns + if is_known { ns_for(rate, mtu) } else { 0 };
        Candidate { path, rate, first_ns, arrives_ns, queue_ns, mtu, is_known, may_try }
    }
}

impl Association {
    /// Whether another path than this one carries packets, as far as is known.
    pub(crate) fn has_other(&self, cfg: &Config, i: usize) -> bool {
        cfg.stripe && self.paths.iter().enumerate().any(|(k, p)| k != i && p.is_well())
    }

    /// The path of what is short: the primary, unless it does not answer and another does.
    pub(crate) fn lead(&self, cfg: &Config) -> u8 {
        let is_heard = |since: Time| self.paths.iter().any(|p| p.is_well() && p.heard > since);
        let answers = |p: &Path| match (p.state, p.ptos) {
            (PathState::Valid, 0) => true,
            (PathState::Valid, n) => n < SILENT_PTOS && !is_heard(p.last_sent),
            _ => false,
        };
        if !cfg.stripe || self.paths.len() < 2 || self.path().is_none_or(answers) {
            return self.primary;
        }
        self.paths.iter().position(Path::is_well).map_or(self.primary, |i| i as u8)
    }

    /// The window of a path: all together have no more in flight than the receiver's buffer and the
    /// wires take.
    pub(crate) fn window_of(&self, i: usize) -> u64 {
        let buffer = self.peer.rx_buffer;
        let others = self.paths.iter().enumerate().filter(|(k, p)| *k != i && p.in_flight > 0);
        let waits: u64 = others.map(|(_, p)| p.in_flight.saturating_sub(p.wire())).sum();
        let Some(p) = self.paths.get(i) else { return 0 };
        let window = p.window(buffer.saturating_sub(2 * waits));
        // Slots are the pace, and what they let out is acknowledged seldom.
        let least = if self.slots_ack_ns > 0 { SLOTS_WINDOW_PACKETS * u64::from(p.mtu.size()) } else { 0 };
        window.max(least.min(buffer / 2))
    }

    /// Longest round trip, without queues, of the paths by which packets came of late.
    pub(crate) fn longest_trip(&self, now: Time) -> u64 {
        let trips = self.rx.in_use(now).filter_map(|i| self.paths.get(usize::from(i)));
        trips.map(Path::trip_ns).max().unwrap_or(0)
    }

    /// The path that data takes now; `None`: it waits for one that would have all of it there
    /// before another had the next packet. `lead` carries what is short.
    pub(crate) fn carrier(&mut self, cx: &mut Cx<'_>, lead: u8) -> Option<u8> {
        if self.paths.len() < 2 {
            self.stripe.is_chosen = false;
            return Some(lead);
        }
        let has_long = cx.s.flows_waiting() + cx.s.lost_waiting() > 0 || self.parity.is_due();
        let is_well = |i: usize| self.paths.get(i).is_some_and(Path::is_well);
        let well = self.paths.iter().filter(|p| p.is_well()).count();
        self.stripe.is_chosen = cx.cfg.stripe && well > 1;
        if !cx.cfg.stripe || well < 2 {
            let one = (0..self.paths.len()).find(|i| cx.cfg.stripe && has_long && is_well(*i));
            return Some(one.map_or(lead, |i| i as u8));
        }
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
        self.choose(cx, lead)
    }

    /// The path that has the next packet there first, if it is free; else one that is, as far as
    /// its part of what waits goes: then all paths end together, and a slow one never last.
    fn choose(&mut self, cx: &mut Cx<'_>, lead: u8) -> Option<u8> {
        let well = self.paths.iter().enumerate().filter(|(_, p)| p.is_well());
        let mut candidates: SmallVec<[Candidate; PATHS_MAX]> =
            well.map(|(i, p)| p.candidate(cx.now, i as u8)).collect();
        // What is short goes by `lead` anyway. Until its rate is known all does: else what is too
        // short for a train would go by another for ever, however slow.
        if candidates.iter().any(|c| c.path == lead && !c.is_known) {
            return Some(lead);
        }
        if candidates.iter().all(|c| !c.is_known) {
            return candidates.first().map(|c| c.path);
        }
        candidates.sort_by_key(|c| c.first_ns);
        // Of what stands in front only: who waits for that would wait for a slow path, however much
        // stands behind.
        let waiting = cx.s.waiting_bytes(1);
        let end_ns = end_of(&candidates, waiting);
        let level_ns = level_of(&candidates, cx.s.open_bytes(FLOWS_MOST));
        candidates.sort_by_key(|c| c.arrives_ns);
        let earliest = candidates.iter().find(|c| c.is_known).map(|c| c.path);
        for c in candidates {
            let turn = if c.is_known {
                let least = u64::from(earliest == Some(c.path));
                (waiting / TURN_PART / c.mtu).clamp(TURN_MIN, TURN_MAX).min(c.part(end_ns, level_ns).max(least))
            } else if c.may_try && c.first_ns < end_ns && waiting >= UNKNOWN_FROM * c.mtu.min(USUAL_BYTES) {
                c.trial()
            } else {
                0
            };
            if turn > 0 && self.lets_out(cx, c.path) {
                let p = &mut self.paths[usize::from(c.path)];
                p.is_shared = true;
                if !c.is_known {
                    p.delivery.is_tried(cx.now);
                }
                (self.stripe.path, self.stripe.left) = (c.path, turn as u32);
                return Some(c.path);
            }
        }
        None
    }
}

/// How long what may go now and what stands in front of links already would take if it stood
/// evenly: a path that holds more of what the receiver granted keeps it from the others, which then
/// stand idle.
fn level_of(candidates: &[Candidate], open: u64) -> u64 {
    let known = || candidates.iter().filter(|c| c.is_known);
    let queued: u64 = known().map(|c| bytes_in(c.rate, c.queue_ns)).sum();
    ns_for(known().map(|c| c.rate).sum(), queued.saturating_add(open))
}

/// When all that waits is there if each path takes its part, in order of their first bytes: the
/// later ones have none if the others are done by then.
fn end_of(by_first: &[Candidate], waiting: u64) -> u64 {
    let (mut end_ns, mut rates, mut lead) = (u64::MAX, 0u64, waiting);
    for c in by_first.iter().filter(|c| c.is_known) {
        if c.first_ns >= end_ns {
            break;
        }
        rates = rates.saturating_add(c.rate);
        lead = lead.saturating_add(bytes_in(c.rate, c.first_ns));
        end_ns = ns_for(rates, lead);
    }
    end_ns
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;
    use core::time::Duration;

    use weir_wire::Header;
    use weir_wire::frame::{self, Frame};

    use super::*;
    use crate::PacketBuf;
    use crate::build::NoPayloads;
    use crate::delivery::Delivery;
    use crate::hostile::{P, Two, addr};
    use crate::requirements::{answer_to, has, quiet};

    fn known(path: u8, rate: u64, first_ns: u64) -> Candidate {
        Candidate { path, rate, first_ns, arrives_ns: first_ns, queue_ns: 0, mtu: 1472, is_known: true, may_try: false }
    }

    // spec: P-8.13
    #[test]
    fn paths_end_together_and_one_that_would_be_later_has_no_part() {
        // 100 MB/s and 10 MB/s, 100 us each: 1.1 MB are there after 10.1 ms.
        assert_eq!(end_of(&[known(0, 100_000_000, 100_000), known(1, 10_000_000, 100_000)], 1_100_000), 10_100_000);
        // The second is 10 ms away: the first has 300 kB there in 3.1 ms, and of 3 MB each has its
        // part.
        let far = [known(0, 100_000_000, 100_000), known(1, 100_000_000, 10_000_000)];
        assert_eq!(end_of(&far, 300_000), 3_100_000);
        assert_eq!(end_of(&far, 3_000_000), (3_000_000 + 10_000 + 1_000_000) * 5);
        assert_eq!(end_of(&[], 1), u64::MAX);
    }

    // spec: P-8.20
    #[test]
    fn no_path_holds_more_of_what_may_go_than_its_rate_is_of_all() {
        let mut both = [known(0, 100_000_000, 100_000), known(1, 10_000_000, 100_000)];
        assert_eq!(level_of(&both, 220_000), 2_000_000);
        // 200 kB stand in front of the slow one: for it to take no more than its part that must be
        // less than 20 ms.
        both[1].queue_ns = 20_000_000;
        assert!(level_of(&both, 20_000) <= 2_000_000);
        both[1].is_known = false;
        assert_eq!(level_of(&both, 200_000), 2_000_000, "of the first alone");
    }

    // spec: P-8.23
    #[test]
    fn an_idle_link_takes_a_packet_however_little_was_granted() {
        // 10 MB/s; of two packets that may go now and 20 ms of others behind them its part is less
        // than one.
        let both = [known(0, 100_000_000, 100_000), known(1, 10_000_000, 100_000)];
        let level_ns = level_of(&both, 2 * 1472);
        assert_eq!(both[1].part(20_000_000, level_ns), 1);
        // With a packet in front of it it waits; and one that would be the last of all goes by the
        // other.
        assert_eq!(Candidate { queue_ns: 147_200, ..known(1, 10_000_000, 247_200) }.part(20_000_000, level_ns), 0);
        assert_eq!(both[1].part(200_000, level_ns), 0);
        // Where more was granted it is the level that tells.
        assert_eq!(both[1].part(20_000_000, level_of(&both, 220_000)), 2_000_000 * 10 / 1000 / 1472);
    }

    // spec: P-8.19
    #[test]
    fn few_long_packets_tell_as_much_as_many_short_ones() {
        for mtu in 1200..=9000 {
            let packets = Candidate { mtu, ..known(0, 1, 0) }.trial();
            assert!((3..=UNKNOWN_PACKETS).contains(&packets), "{mtu}");
            // The last one is full, or short. 10 MB/s.
            for last in [mtu, 100] {
                let mut d = Delivery::default();
                for n in 0..packets {
                    let is_last = n + 1 == packets;
                    let (bytes, read_us) = if is_last { (last, (n - 1) * mtu + last) } else { (mtu, n * mtu) };
                    d.on_ack(bytes, Some((read_us / 10) as u32), mtu, is_last);
                }
                assert!((9_900_000..10_100_000).contains(&d.rate()), "{mtu}: {}", d.rate());
            }
        }
    }

    #[test]
    fn a_train_tells_the_rate_and_what_the_sender_held_back_only_that_it_is_at_least_so_fast() {
        let mut d = Delivery::default();
        // 10 MB/s: a packet each 147 us.
        let train = |d: &mut Delivery, at: u32, gap_us: u32| {
            for n in 0..20 {
                d.on_ack(1472, Some(at.wrapping_add(n * gap_us)), 1472, n == 19);
            }
        };
        train(&mut d, u32::MAX - 1000, 147);
        assert!((9_900_000..10_100_000).contains(&d.rate()), "{}", d.rate());
        train(&mut d, 50_000, 1470);
        assert!(d.rate() > 9_900_000, "nothing held it back but the sender");
        d.on_sent(Time(0), 1472, 1472, true);
        train(&mut d, 100_000, 1470);
        assert!(d.rate() < 8_000_000, "{}", d.rate());
        // Of a clock that runs backwards, or one that stands, nothing is learnt.
        let rate = d.rate();
        train(&mut d, 0, 0);
        (0..9).for_each(|n| d.on_ack(64 << 10, Some(0u32.wrapping_sub(n)), 1472, false));
        assert_eq!(d.rate(), rate);
    }

    // spec: P-8.24
    #[test]
    fn neither_silence_nor_a_sender_with_little_to_say_is_the_rate_of_a_path() {
        let mut d = Delivery::default();
        let mut at_us = 0;
        // 10 KB a second, with never nothing in flight.
        (0..10_000).for_each(|_| (at_us += 10_000, d.on_ack(100, Some(at_us), 1472, false)).1);
        assert_eq!(d.rate(), 0);
        // The same with the window full is what the path delivers.
        (0..10_000).for_each(|_| {
            at_us += 10_000;
            d.on_sent(Time(0), 100, 100, true);
            d.on_ack(100, Some(at_us), 1472, false);
        });
        assert!((9_900..10_100).contains(&d.rate()), "{}", d.rate());
        // A train at 10 MB/s, 4 s of silence in the midst of it, and its second half.
        let mut d = Delivery::default();
        for half in 0..2 {
            (0..30).for_each(|_| (at_us += 147, d.on_ack(1472, Some(at_us), 1472, false)).1);
            if half == 0 {
                d.on_sent(Time(0), 1472, 1472, true);
                d.breaks_off();
                at_us += 4_000_000;
            }
        }
        (0..30).for_each(|_| (at_us += 147, d.on_ack(1472, Some(at_us), 1472, false)).1);
        assert!((9_900_000..10_100_000).contains(&d.rate()), "{}", d.rate());
    }

    // spec: P-8.24
    #[test]
    fn that_the_window_was_full_in_a_train_that_broke_off_says_nothing_of_later_ones() {
        for by_silence in [false, true] {
            let mut d = Delivery::default();
            let train = |d: &mut Delivery, at: u32, gap_us: u32, packets: u32| {
                (0..packets).for_each(|n| d.on_ack(1472, Some(at + n * gap_us), 1472, n + 1 == packets));
            };
            // 10 MB/s.
            train(&mut d, 0, 147, 20);
            assert!((9_900_000..10_100_000).contains(&d.rate()), "{}", d.rate());
            // Too short to tell anything.
            d.on_sent(Time(0), 1472, 1472, true);
            if by_silence {
                d.on_ack(1472, Some(50_000), 1472, false);
                d.breaks_off();
            } else {
                train(&mut d, 50_000, 147, 2);
            }
            train(&mut d, 100_000, 1470, 20);
            assert!(d.rate() > 9_900_000, "nothing held it back but the sender: {}", d.rate());
        }
    }

    // spec: P-8.22
    #[test]
    fn what_was_acknowledged_waits_nowhere() {
        let mut d = Delivery::default();
        // 4 bytes a second, by a mistake of long ago.
        d.learn(4);
        d.on_sent(Time(0), 1472, 1472, false);
        assert!(d.queue_ns(Time(1000), 1472) > 10_000_000_000);
        assert_eq!(d.queue_ns(Time(1000), 0), 0);
    }

    /// A message of so many packets waits at side 0.
    fn long_message(t: &mut Two, packets: u32) {
        let m =
            crate::Message { control: false, stream: 0, envelope: b"e", len: packets * 1100, patient: false, token: 1 };
        t.ends[0].send(t.now, P, m).expect("room");
    }

    /// Packets with data that side 0 sends now by each of its paths.
    fn by_path(t: &mut Two) -> [usize; 2] {
        let all = sent(t);
        [1, 5].map(|a| all.iter().filter(|(to, p)| *to == addr(a) && has(p, |f| matches!(f, Frame::Msg(_)))).count())
    }

    // spec: P-8.21
    #[test]
    fn until_the_rate_of_the_primary_is_known_all_goes_by_it() {
        let mut t = with_standby();
        t.ends[0].assocs[0].paths[1].delivery.learn(1_000_000);
        // Too short to tell a rate: it would go by the slow one for ever.
        long_message(&mut t, 5);
        assert_eq!(by_path(&mut t), [5, 0]);
    }

    // spec: P-8.22
    #[test]
    fn of_one_path_no_rate_is_measured() {
        let mut t = Two::up(&quiet());
        long_message(&mut t, 30);
        t.steps(20);
        assert!(t.ends[0].assocs[0].paths[0].bytes_sent > 30_000);
        assert_eq!(t.ends[0].assocs[0].paths[0].delivery.rate(), 0);
    }

    /// Two, of which the first knows of another address of the second that has answered.
    fn with_standby() -> Two {
        let mut t = Two::up(&quiet());
        answer_to(&mut t, 5, |out| frame::write_path_challenge(1, out));
        let (data, _) = t.ends[0].assocs[0].paths[1].challenge.expect("asked at once");
        answer_to(&mut t, 5, |out| frame::write_path_response(data, out));
        assert!(t.ends[0].assocs[0].paths.iter().all(Path::is_well));
        t
    }

    /// What side 0 sends now: where to, and the packet.
    fn sent(t: &mut Two) -> Vec<(core::net::SocketAddr, Vec<u8>)> {
        let (mut buf, mut all) = (PacketBuf::new(), Vec::new());
        while let Some(to) = t.ends[0].poll_transmit(t.now, &NoPayloads, &mut buf) {
            let payload = to.payload.map_or(0, |r| usize::from(r.len));
            all.push((to.remote, buf.head.iter().copied().chain(core::iter::repeat_n(0, payload)).collect()));
        }
        all
    }

    // spec: P-8.2, P-8.12, P-8.14, P-8.15
    #[test]
    fn what_a_path_leaves_unanswered_goes_by_another_and_it_is_asked_itself() {
        let mut t = with_standby();
        t.send(0);
        let first = sent(&mut t);
        assert!(first.len() == 1 && first[0].0 == addr(1), "a short one goes by the primary");
        let mut numbers = alloc::vec![Header::parse(&first[0].1).unwrap().number];
        t.now += Duration::from_millis(5);
        let (now, events) = (t.now, &mut t.events[0]);
        t.ends[0].handle_timeout(now, events);
        let then = sent(&mut t);
        let is_ping = |p: &[u8]| has(p, |f| matches!(f, Frame::Ping));
        let is_message = |p: &[u8]| has(p, |f| matches!(f, Frame::Msg(_)));
        assert_eq!(then.iter().filter(|(to, p)| *to == addr(1) && is_ping(p) && !is_message(p)).count(), 2);
        assert_eq!(then.iter().filter(|(to, p)| *to == addr(5) && is_message(p)).count(), 1);
        numbers.extend(then.iter().map(|(_, p)| Header::parse(p).unwrap().number));
        assert!(numbers.windows(2).all(|w| w[0] + 1 == w[1]), "one number space: {numbers:?}");
        // After the second it is not the peer that is late.
        let cfg = t.ends[0].cfg.clone();
        let a = &mut t.ends[0].assocs[0];
        assert_eq!((a.paths[0].ptos, a.lead(&cfg)), (1, 0));
        a.paths[0].ptos = 2;
        assert_eq!(a.lead(&cfg), 1);
        a.paths[1].state = PathState::Suspect;
        assert_eq!(a.lead(&cfg), 0);
    }

    // spec: P-4.16
    #[test]
    fn a_peer_that_answers_by_another_path_is_not_silent() {
        for (mut t, is_silent) in [(with_standby(), false), (Two::up(&quiet()), true)] {
            t.send(0);
            sent(&mut t);
            t.ends[0].assocs[0].paths[0].ptos = 5;
            t.now += Duration::from_millis(15);
            let (now, events) = (t.now, &mut t.events[0]);
            t.ends[0].handle_timeout(now, events);
            let a = &t.ends[0].assocs[0];
            assert_eq!((a.paths[0].ptos, a.is_silent), (6, is_silent));
        }
    }

    // spec: P-8.18
    #[test]
    fn the_last_packet_of_a_slow_path_is_not_late_before_those_in_front_have_left() {
        let mut t = with_standby();
        let (cfg, now) = (t.ends[0].cfg.clone(), t.now);
        let p = &mut t.ends[0].assocs[0].paths[1];
        // 1 MB/s: 20 packets of 1000 bytes leave in 20 ms.
        p.delivery.learn(1_000_000);
        (0..20).for_each(|_| _ = p.on_sent(now, 1000, 1 << 20));
        let usual = p.pto_at(&cfg, 50_000).unwrap();
        p.is_shared = true;
        let late = p.pto_at(&cfg, 50_000).unwrap().since_ns(usual);
        assert!((19_990_000..=20_000_000).contains(&late), "{late}");
    }

    // spec: P-8.16
    #[test]
    fn all_paths_together_keep_to_half_of_the_receivers_buffer() {
        let mut t = with_standby();
        let a = &mut t.ends[0].assocs[0];
        a.peer.rx_buffer = 60_000;
        assert_eq!((a.window_of(0), a.paths[1].wire()), (30_000 + a.paths[0].wire(), 0));
        a.paths[1].in_flight = 20_000;
        assert_eq!(a.window_of(0), 10_000 + a.paths[0].wire());
        a.paths[1].in_flight = 60_000;
        assert_eq!(a.window_of(0), 2 * u64::from(a.paths[0].mtu.size()));
    }

    // spec: P-8.17
    #[test]
    fn a_standby_path_that_falls_silent_with_data_in_flight_loses_it_at_once() {
        let mut t = with_standby();
        let now = t.now;
        let a = &mut t.ends[0].assocs[0];
        let seq = a.paths[1].on_sent(now, 1000, 1 << 20);
        a.rec.push_frame(crate::recovery::SentFrame::Once);
        a.rec.push(now, 1000, 1, seq, 1, crate::recovery::IN_FLIGHT);
        (a.paths[1].misses, a.paths[1].challenge) = (1, Some((7, now)));
        a.paths[1].next_probe = Time::ZERO;
        t.ends[0].touch(P);
        sent(&mut t);
        let a = &t.ends[0].assocs[0];
        assert_eq!((a.paths[1].state, a.paths[1].in_flight, a.primary), (PathState::Suspect, 0, 0));
    }
}

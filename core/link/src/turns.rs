//! Whose packet is next of those peers for which something waits (spec 6.9), and what may wait in
//! this host's own interface meanwhile.

use crate::{Endpoint, PeerId, Time};

/// What leaves in this time may wait in this host's interface, and all that wait have a turn in it:
/// as Linux has it for each TCP connection (TCP small queues).
const OWN_QUEUE_NS: u64 = 1_000_000;
/// At least so much may wait: 22 packets, in whose time a sleeper wakes.
const OWN_QUEUE_LEAST: u64 = 32 << 10;
/// So much while nobody knows what leaves: what Linux lets wait unless it is told otherwise.
const OWN_QUEUE_FIRST: u64 = 256 << 10;
/// Who was served less than others may catch up by so much.
const CATCH_UP: u64 = 64 << 10;
/// After so long without anybody who waits all begin anew.
const FORGOTTEN_NS: u64 = 10_000_000;
/// Who was served less by no more than this waits as all do: else who asks again and again would be
/// served twice, now and then, before another is once.
const ALIKE: u64 = 4 << 10;
/// Those that somebody passes at once, at most: many may wait, and the first are served soon.
const PASSED_MOST: usize = 64;
/// What may wait in the interface is bounded for so long after several waited at once.
const CROWDED_NS: u64 = 1_000_000_000;
/// Least turn, bytes: as long as a step of grants, ...
const TURN_LEAST: u64 = 16 << 10;
/// ... and this part of what may wait: each turn wakes its peer once more, which takes some 50 us
/// where many share a core.
const TURN_PART: u64 = 8;
/// A rate is that of so many bytes at least: of acknowledgements that come in a heap each tells of
/// 64 KiB.
const METER_BYTES: u64 = 128 << 10;
/// And of so much time. Of that between two looks no more counts: who looks seldom finds that the
/// interface has been empty for most of it.
const METER_NS: u64 = 1_000_000;
/// Less may wait when half was enough for so long: a rate near a power of two would have the socket
/// told another bound each millisecond.
const ENOUGH_NS: u64 = 100_000_000;

/// What leaves this endpoint, by what is acknowledged of it, whatever the peer.
#[derive(Clone, Debug)]
pub(crate) struct Outflow {
    /// When something was last acknowledged; none yet at [`Time::ZERO`].
    at: Time,
    /// Since the last measurement: so much time that counts, and so many bytes.
    elapsed_ns: u64,
    bytes: u64,
    /// Bytes per second; 0: not known.
    rate: u64,
    /// What may wait in this host's interface, bytes: a power of two, so that it seldom changes.
    own_queue: u64,
    /// Since when half of it would have been enough.
    enough_since: Time,
}

impl Default for Outflow {
    fn default() -> Self {
        let (at, enough_since) = (Time::ZERO, Time::ZERO);
        Outflow { at, elapsed_ns: 0, bytes: 0, rate: 0, own_queue: OWN_QUEUE_FIRST, enough_since }
    }
}

impl Outflow {
    /// So many bytes were acknowledged, which this thread sees after so long without a look.
    pub(crate) fn on_acked(&mut self, now: Time, unlooked_ns: u64, bytes: u64) {
        let before = core::mem::replace(&mut self.at, now);
        if before == Time::ZERO {
            return;
        }
        let gap = now.since_ns(before);
        self.elapsed_ns += gap - unlooked_ns.min(gap).saturating_sub(METER_NS);
        self.bytes += bytes;
        if self.bytes < METER_BYTES || self.elapsed_ns < METER_NS {
            return;
        }
        let rate = crate::scale::mul_div(self.bytes, 1_000_000_000, self.elapsed_ns).clamp(1, 1 << 50);
        // (Some time without anything to send may be in it, as while windows were full.)
        self.set_rate(now, rate.max(self.rate - self.rate / 8));
        (self.elapsed_ns, self.bytes) = (0, 0);
    }

    /// For a while nobody had anything to send: that is no part of the rate.
    fn pause(&mut self, now: Time) {
        (self.at, self.elapsed_ns, self.bytes) = (now, 0, 0);
    }

    fn set_rate(&mut self, now: Time, rate: u64) {
        let leaves = crate::scale::mul_div(rate, OWN_QUEUE_NS, 1_000_000_000);
        let wanted = leaves.max(OWN_QUEUE_LEAST).next_power_of_two();
        let is_first = core::mem::replace(&mut self.rate, rate) == 0;
        if is_first || wanted >= self.own_queue {
            (self.own_queue, self.enough_since) = (wanted, now);
        } else if now.since_ns(self.enough_since) >= ENOUGH_NS {
            (self.own_queue, self.enough_since) = (self.own_queue / 2, now);
        }
    }
}

/// The order in which peers are served: who got least is next.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turns {
    /// Packets of this turn, and their bytes.
    packets: u32,
    bytes: u64,
    /// What whoever is served had got before: of all that wait the least.
    least: u64,
    /// What any had got at most.
    most: u64,
    /// What all have got.
    all: u64,
    /// Nobody waits, and since when.
    empty_since: Time,
    /// Several waited at once not long before this.
    crowded_until: Time,
}

impl Endpoint {
    /// What may wait in this host's interface now, bytes; `None`: as much as the system lets wait.
    /// Whoever moves packets sees to it.
    #[must_use]
    pub fn own_queue_bytes(&self, now: Time) -> Option<u64> {
        if !self.granted.is_empty() {
            return self.told_queue_bytes();
        }
        (self.ready.len() > 1 || now < self.turns.crowded_until).then_some(self.outflow.own_queue)
    }

    /// Whether [`Endpoint::own_queue_bytes`] follows what leaves: in a superstep it changes only
    /// with that.
    #[must_use]
    #[inline]
    pub fn own_queue_follows(&self) -> bool {
        self.granted.is_empty()
    }

    /// Whether the peer in front has had its turn, and others wait.
    #[inline]
    pub(crate) fn is_others_turn(&self) -> bool {
        if self.ready.len() < 2 {
            return false;
        }
        if !self.granted.is_empty() {
            return self.turns.packets >= self.cfg.told_batch_packets;
        }
        let all = self.outflow.own_queue;
        let each = (all / self.ready.len() as u64).max(all / TURN_PART).max(TURN_LEAST);
        self.turns.packets >= self.cfg.peer_batch_packets || self.turns.bytes >= each
    }

    /// The peer in front has had its turn: it stands behind those that got no more than it.
    pub(crate) fn end_turn(&mut self) {
        (self.turns.packets, self.turns.bytes) = (0, 0);
        if let Some(peer) = self.ready.pop_front() {
            self.line_up(peer);
        }
    }

    /// Nothing waits any more for the peer in front.
    pub(crate) fn leave_line(&mut self, now: Time) {
        if self.ready.len() > 1 {
            self.turns.crowded_until = now.plus_ns(CROWDED_NS);
        }
        self.ready.pop_front();
        (self.turns.packets, self.turns.bytes, self.turns.empty_since) = (0, 0, now);
    }

    /// Something waits for a peer.
    pub(crate) fn enter_line(&mut self, now: Time, peer: PeerId) {
        self.owe_no_more(now, peer);
        self.assocs[peer.0 as usize].ready = true;
        if !self.ready.is_empty() {
            self.turns.crowded_until = now.plus_ns(CROWDED_NS);
        }
        self.line_up(peer);
    }

    /// What others got while it had nothing to send is not owed to it; and after a pause nothing is
    /// owed to anybody.
    #[inline]
    fn owe_no_more(&mut self, now: Time, peer: PeerId) {
        if self.ready.is_empty() {
            let empty_ns = now.since_ns(self.turns.empty_since);
            if empty_ns >= METER_NS {
                self.outflow.pause(now);
            }
            if empty_ns >= FORGOTTEN_NS {
                self.turns.least = self.turns.most + CATCH_UP;
            }
        }
        let a = &mut self.assocs[peer.0 as usize];
        a.served = a.served.max(self.turns.least.saturating_sub(CATCH_UP));
    }

    /// A packet of so many bytes went past the empty line, as if its peer had stood there.
    #[inline]
    pub(crate) fn count_alone(&mut self, now: Time, peer: PeerId, bytes: u64) {
        self.owe_no_more(now, peer);
        self.count_turn_bytes(peer, bytes);
        (self.turns.packets, self.turns.bytes, self.turns.empty_since) = (0, 0, now);
    }

    fn line_up(&mut self, peer: PeerId) {
        // A superstep has an order of its own, and so have slots.
        let has_order = !self.granted.is_empty() || self.sessions.common().slot().is_some();
        let most = if has_order { 0 } else { PASSED_MOST };
        if has_order {
            // Nobody is served by bytes here, and nobody is owed any for it afterwards.
            let a = &mut self.assocs[peer.0 as usize];
            a.served = a.served.max(self.turns.least.saturating_sub(CATCH_UP));
        }
        let served = |peer: &PeerId| self.assocs[peer.0 as usize].served;
        let own = served(&peer);
        // Who has its turn keeps it.
        let others = self.ready.len() - usize::from(self.turns.packets > 0).min(self.ready.len());
        // (There may be no end of new ones, none of which has got anything.)
        let patience = CATCH_UP * self.ready.len() as u64;
        let waits = |other: &PeerId| self.turns.all - self.assocs[other.0 as usize].lined_up < patience;
        let passes = |other: &&PeerId| served(other) > own + ALIKE && waits(other);
        let passed = self.ready.iter().rev().take(others.min(most)).take_while(passes).count();
        self.ready.insert(self.ready.len() - passed, peer);
        self.assocs[peer.0 as usize].lined_up = self.turns.all;
    }

    /// A packet of so many bytes to a peer was written.
    #[inline]
    pub(crate) fn count_turn_bytes(&mut self, peer: PeerId, bytes: u64) {
        if let Some(a) = self.assocs.get_mut(peer.0 as usize) {
            // (Whoever is alone has no turn that ends: what it gets is owed to nobody.)
            if self.turns.packets == 0 || self.ready.len() < 2 {
                self.turns.least = self.turns.least.max(a.served);
            }
            a.served += bytes;
            self.turns.most = self.turns.most.max(a.served);
        }
        self.turns.packets += 1;
        self.turns.bytes += bytes;
        self.turns.all += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const PACKET: u64 = 1472;

    /// So many peers, none of which anything is sent to.
    fn endpoint(peers: u32) -> (Endpoint, Vec<PeerId>) {
        let at = |port: u16| core::net::SocketAddr::from(([10, 0, 0, 1], port));
        let mut e = Endpoint::new(Config::default(), [7; 32], 1, &[at(1)], [1; 32]);
        let name = |i: u32| {
            let at = [at(i as u16 + 2)];
            Endpoint::new(Config::default(), [7; 32], u64::from(i) + 2, &at, [2; 32]).name()
        };
        let peers = (0..peers).map(|i| e.peer(&name(i)).expect("a name")).collect();
        (e, peers)
    }

    /// Serves whoever is in front until nobody is, each so many bytes; those that come later than
    /// at the beginning do so when so many bytes have left. Returns what each had got when the
    /// first had all.
    fn serve(e: &mut Endpoint, wanted: u64, peers: &[(PeerId, u64)]) -> Vec<u64> {
        let mut got = alloc::vec![0u64; peers.len()];
        let (mut left, mut at_first_end) = (0, None);
        loop {
            for (i, &(peer, from)) in peers.iter().enumerate() {
                if from <= left && got[i] == 0 && !e.assocs[peer.0 as usize].ready {
                    e.enter_line(Time(1_000_000_000 + left), peer);
                }
            }
            let Some(&peer) = e.ready.front() else { break };
            if e.is_others_turn() {
                e.end_turn();
                continue;
            }
            let i = peers.iter().position(|p| p.0 == peer).expect("one of them");
            e.count_turn_bytes(peer, PACKET);
            (got[i], left) = (got[i] + PACKET, left + PACKET);
            if got[i] >= wanted {
                at_first_end.get_or_insert_with(|| got.clone());
                e.leave_line(Time(1_000_000_000 + left));
                e.assocs[peer.0 as usize].ready = false;
            }
        }
        at_first_end.unwrap_or_default()
    }

    proptest! {
        // spec: P-6.38, P-6.39
        #[test]
        fn whoever_comes_a_little_later_is_not_done_much_later(
            late in prop::collection::vec(0..CATCH_UP - 4 * PACKET, 2..48),
            packets in 40u64..200,
        ) {
            let (mut e, all) = endpoint(late.len() as u32);
            e.outflow.set_rate(Time(5), 12_500_000);
            let wanted = packets * PACKET;
            let mut peers: Vec<_> = all.into_iter().zip(late).collect();
            peers[0].1 = 0;
            let got = serve(&mut e, wanted, &peers);
            let least = got.iter().copied().min().unwrap_or(0);
            // A turn that it has not had yet, what counts as alike, what comes of whole packets.
            prop_assert!(least + TURN_LEAST + ALIKE + 3 * PACKET >= wanted, "{least} of {wanted}: {got:?}");
        }

        // spec: P-6.40
        #[test]
        fn nobody_is_owed_more_than_what_it_may_catch_up(
            silent in 1u64..1000,
            packets in 100u64..300,
        ) {
            let (mut e, all) = endpoint(3);
            e.outflow.set_rate(Time(5), 12_500_000);
            // Two are busy for long; the third comes then, and once it has caught up has a third.
            let long = silent * 64 * PACKET;
            serve(&mut e, long, &[(all[0], 0), (all[1], 0)]);
            let wanted = packets * PACKET;
            let got = serve(&mut e, wanted, &[(all[0], 0), (all[1], 0), (all[2], PACKET)]);
            let ahead = got[2].saturating_sub(got[0].min(got[1]));
            prop_assert!(ahead <= CATCH_UP + 2 * (TURN_LEAST + ALIKE + PACKET), "{got:?}");
        }
    }

    /// Where much leaves in a short time a turn is longer: it wakes its peer once more.
    // spec: P-6.39
    #[test]
    fn turns_are_what_leaves_in_some_time_and_not_less_than_a_step_of_grants() {
        for (rate, turn) in [(12_500_000, TURN_LEAST), (125_000_000, TURN_LEAST), (400_000_000, 64 << 10)] {
            let (mut e, all) = endpoint(60);
            e.outflow.set_rate(Time(5), rate);
            all.iter().for_each(|&peer| e.enter_line(Time(1_000_000_000), peer));
            let before = e.turns.bytes;
            while !e.is_others_turn() {
                e.turns.bytes += 1024;
            }
            assert_eq!((before, e.turns.bytes), (0, turn), "{rate} bytes a second");
        }
    }

    // spec: P-6.43
    #[test]
    fn ever_new_ones_do_not_keep_one_waiting() {
        for (others, fair) in [(1u32, 2), (8, 9), (100, 101)] {
            let (mut e, all) = endpoint(3000);
            e.outflow.set_rate(Time(5), 12_500_000);
            e.enter_line(Time(5), all[0]);
            let (mut long, mut left, mut in_line, mut next) = (0u64, 0u64, 0, 1);
            while next < all.len() {
                // As soon as one of them has its 3 packets another asks.
                while in_line < others && next < all.len() {
                    e.enter_line(Time(5), all[next]);
                    (in_line, next) = (in_line + 1, next + 1);
                }
                if e.is_others_turn() {
                    e.end_turn();
                    continue;
                }
                let peer = e.ready[0];
                e.count_turn_bytes(peer, PACKET);
                left += PACKET;
                if peer == all[0] {
                    long += PACKET;
                } else if e.turns.packets == 3 {
                    e.leave_line(Time(5));
                    in_line -= 1;
                }
            }
            assert!(long >= left / fair / 4, "{others} others: {long} of {left} bytes");
        }
    }

    // spec: P-6.41
    #[test]
    fn what_may_wait_follows_what_leaves() {
        let mut o = Outflow::default();
        assert_eq!(o.own_queue, OWN_QUEUE_FIRST);
        let mut flow = |bytes_per_ms: u64, ms: u64, from: u64| {
            (from..from + ms).for_each(|t| o.on_acked(Time(1 + t * 1_000_000), 0, bytes_per_ms));
            o.own_queue
        };
        assert_eq!(flow(12_500, 100, 0), OWN_QUEUE_LEAST, "100 Mbit/s");
        assert_eq!(flow(125_000, 100, 100), 128 << 10, "1 Gbit/s");
        assert_eq!(flow(1_250_000, 100, 200), 2 << 20, "10 Gbit/s");
        assert_eq!(flow(12_500, 1000, 300), OWN_QUEUE_LEAST, "and down again");
    }

    // spec: P-6.44
    #[test]
    fn who_looks_seldom_may_have_as_much_in_the_interface_as_before() {
        const LINE: u64 = 125_000_000;
        let mut o = Outflow::default();
        (1..100).for_each(|ms| o.on_acked(Time(ms * 1_000_000), 1000, LINE / 1000));
        assert_eq!(o.own_queue, 128 << 10);
        // Between two looks 10 ms apart leaves what was in the interface, and then nothing.
        for look in 0..100 {
            let leaves = o.own_queue.min(LINE / 100);
            (0..4).for_each(|_| o.on_acked(Time(100_000_000 + look * 10_000_000), 10_000_000, leaves / 4));
        }
        assert!(o.own_queue >= 128 << 10, "{} bytes", o.own_queue);
    }

    // spec: P-6.41
    #[test]
    fn a_rate_near_a_power_of_two_does_not_change_the_bound_each_millisecond() {
        let mut o = Outflow::default();
        let (mut changes, mut before) = (0, 0);
        for ms in 1..1000 {
            o.on_acked(Time(ms * 1_000_000), 1000, if ms % 2 == 0 { 138_000 } else { 126_000 });
            o.on_acked(Time(ms * 1_000_000), 1000, 6_000);
            changes += u32::from(o.own_queue != before);
            before = o.own_queue;
        }
        assert!(changes <= 20, "{changes} changes in a second");
    }

    // spec: P-6.44
    #[test]
    fn those_who_are_about_to_be_in_line_are_counted() {
        let (mut e, peers) = endpoint(2);
        for (token, &peer) in peers.iter().enumerate() {
            let token = token as u64;
            let m = crate::Message { control: false, stream: 0, envelope: &[], len: 100, patient: false, token };
            e.send(Time(5), peer, m).expect("accepted");
        }
        e.take_up(Time(5));
        assert_eq!(e.own_queue_bytes(Time(5)), Some(OWN_QUEUE_FIRST));
    }

    // spec: P-6.42
    #[test]
    fn a_superstep_has_turns_and_a_queue_of_its_own() {
        let (mut e, peers) = endpoint(2);
        e.superstep(Time(5), &[(peers[0], 1 << 20)], &[], None, weir_superstep::OwnQueue::Bytes(5000));
        assert!(!e.own_queue_follows());
        peers.iter().for_each(|&peer| e.enter_line(Time(5), peer));
        assert_eq!(e.own_queue_bytes(Time(5)), Some(5000));
        for _ in 0..e.cfg.told_batch_packets {
            assert!(!e.is_others_turn());
            e.count_turn_bytes(peers[0], 100);
        }
        assert!(e.is_others_turn());
        e.superstep(Time(6), &[], &[], None, weir_superstep::OwnQueue::System);
        assert_eq!(e.own_queue_bytes(Time(6)), Some(OWN_QUEUE_FIRST));
    }

    // spec: P-6.41
    #[test]
    fn only_several_that_wait_bound_it() {
        let (mut e, peers) = endpoint(2);
        assert_eq!(e.own_queue_bytes(Time(5)), None);
        e.enter_line(Time(5), peers[0]);
        assert_eq!(e.own_queue_bytes(Time(5)), None);
        e.enter_line(Time(5), peers[1]);
        assert_eq!(e.own_queue_bytes(Time(5)), Some(OWN_QUEUE_FIRST));
        // As long as both stand there, and a while after.
        assert_eq!(e.own_queue_bytes(Time(5 + 2 * CROWDED_NS)), Some(OWN_QUEUE_FIRST));
        e.leave_line(Time(5 + 2 * CROWDED_NS));
        assert_eq!(e.own_queue_bytes(Time(4 + 3 * CROWDED_NS)), Some(OWN_QUEUE_FIRST));
        assert_eq!(e.own_queue_bytes(Time(5 + 3 * CROWDED_NS)), None);
    }

    // spec: P-6.40
    #[test]
    fn what_one_gets_alone_is_not_owed_to_who_comes_later() {
        let (mut e, peers) = endpoint(2);
        e.enter_line(Time(5), peers[0]);
        (0..100_000).for_each(|_| e.count_turn_bytes(peers[0], PACKET));
        e.enter_line(Time(6), peers[1]);
        let served = |e: &Endpoint, i: usize| e.assocs[peers[i].0 as usize].served;
        assert!(served(&e, 0) - served(&e, 1) <= CATCH_UP + PACKET, "{} {}", served(&e, 0), served(&e, 1));
    }
}

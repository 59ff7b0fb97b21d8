//! Whether bulk data goes both ways at once: then acknowledgements and grants wait behind it, and
//! what a window needs changes with what the other side sends (spec 6.10).

use crate::Time;

/// So many acknowledged bytes are looked at at a time: what the least grants let out. Or so many
/// times as much that came, for who only receives has little acknowledged.
const SPAN: u64 = 256 << 10;
const CAME_SPANS: u64 = 4;
/// At least this part of them met as much that came.
const MET_PART: u64 = 4;
/// At most this part of what came was of others: where several send, it is they that make the
/// queue.
const OTHERS_PART: u64 = 8;
/// A span in which they met adds this to a score, one in which it was not takes 1, one with others
/// takes all. It holds from this score on, until none is left: of two that send each other messages
/// one is done first, and the other alone for a while.
const MET_ADDS: u32 = 8;
const SCORE_ON: u32 = 24;
/// How much one round trip with nothing else in flight counts.
const ALONE_PART: u64 = 32;

/// Bytes that have come so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Came {
    /// From the peer by this path, while bulk data went to it.
    pub met: u64,
    /// From the peer, and from all.
    pub peer: u64,
    /// See `peer`.
    pub all: u64,
}

/// What one path knows of it.
#[derive(Clone, Debug, Default)]
pub(super) struct BothWays {
    /// In this span: acknowledged bytes; what had come when it began, if it has.
    acked: u64,
    began: Option<Came>,
    /// Of the spans so far; it holds.
    score: u32,
    is_on: bool,
    was_on: bool,
    /// When a packet was sent with nothing else in flight.
    alone_at: Option<Time>,
    /// What such take beside the least round trip, smoothed, nanoseconds.
    alone_ns: u64,
}

impl BothWays {
    /// A packet is sent and nothing else is in flight.
    pub(super) fn on_sent_alone(&mut self, now: Time) {
        self.alone_at = Some(now);
    }

    /// `bytes` were acknowledged, and so much has come by now. Whether it begins with them, for the
    /// first time.
    pub(super) fn on_ack(&mut self, bytes: u64, now: Came) -> bool {
        let began = *self.began.get_or_insert(now);
        self.acked += bytes;
        let peer = now.peer.saturating_sub(began.peer);
        if self.acked < SPAN && peer < CAME_SPANS * SPAN {
            return false;
        }
        let all = now.all.saturating_sub(began.all);
        let met = now.met.saturating_sub(began.met);
        if all.saturating_sub(peer) > all / OTHERS_PART {
            (self.score, self.is_on) = (0, false);
        } else if met > 0 && met >= self.acked / MET_PART {
            self.score = (self.score + MET_ADDS).min(SCORE_ON);
        } else {
            self.score = self.score.saturating_sub(1);
        }
        (self.acked, self.began) = (0, Some(now));
        self.is_on = self.score == SCORE_ON || (self.is_on && self.score > 0);
        let is_first = self.is_on && !self.was_on;
        self.was_on |= self.is_on;
        is_first
    }

    /// So many packets, the newest of which was sent then, took so much beside the least round
    /// trip. One that was sent alone comes back alone.
    pub(super) fn on_round_trip(&mut self, sent_at: Time, packets: u32, delay_ns: u64) {
        if packets == 1 && self.alone_at == Some(sent_at) {
            self.alone_at = None;
            let so_far = if self.alone_ns == 0 { delay_ns } else { self.alone_ns };
            self.alone_ns = so_far - so_far / ALONE_PART + delay_ns / ALONE_PART;
        }
    }

    /// While it holds: what a round trip takes beside the least though nothing else is in flight,
    /// nanoseconds.
    pub(super) fn alone_ns(&self) -> u64 {
        if self.is_on() { self.alone_ns } else { 0 }
    }

    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many spans, in each of which so many bytes came from the peer, while bulk data went to it
    /// or not, and from others. How often it begins.
    fn spans(b: &mut BothWays, count: u32, (met, other, others): (u64, u64, u64), total: &mut Came) -> u32 {
        let mut begun = 0;
        for _ in 0..count {
            let Came { met: m, peer, all } = *total;
            *total = Came { met: m + met, peer: peer + met + other, all: all + met + other + others };
            for _ in 0..SPAN / (64 << 10) {
                begun += u32::from(b.on_ack(64 << 10, *total));
            }
        }
        begun
    }

    const MET: (u64, u64, u64) = (SPAN, 0, 0);
    const ALONE: (u64, u64, u64) = (0, 1000, 0);

    // spec: P-6.45, P-6.47
    #[test]
    fn it_begins_after_some_spans_and_is_over_after_many_without() {
        let (mut b, mut total) = (BothWays::default(), Came { met: 1 << 40, peer: 1 << 40, all: 1 << 40 });
        assert!(!b.on_ack(0, total), "what came before counts for nothing");
        assert_eq!(spans(&mut b, 2, MET, &mut total), 0);
        assert_eq!(spans(&mut b, 4, MET, &mut total), 1, "it begins once");
        assert_eq!(spans(&mut b, 23, ALONE, &mut total), 0);
        assert!(b.is_on(), "the other side is done first");
        spans(&mut b, 1, ALONE, &mut total);
        assert!(!b.is_on());
        // A quarter of each message meets the other's.
        for _ in 0..8 {
            spans(&mut b, 1, MET, &mut total);
            spans(&mut b, 3, ALONE, &mut total);
        }
        assert!(b.is_on());
        spans(&mut b, 1, (SPAN, 0, SPAN / 4), &mut total);
        assert!(!b.is_on(), "others send");
        spans(&mut b, 3, MET, &mut total);
        assert!(b.is_on());
        for _ in 0..24 {
            assert!(b.is_on(), "now it only receives");
            (total.peer, total.all) = (total.peer + CAME_SPANS * SPAN, total.all + CAME_SPANS * SPAN);
            b.on_ack(100, total);
        }
        assert!(!b.is_on());
    }

    // spec: P-6.45, P-6.47
    #[test]
    fn what_others_send_and_one_after_the_other_do_not_count() {
        for came in [(SPAN, 0, SPAN / 4), (SPAN / 8, 0, 0), (0, SPAN, 0), (0, 0, 0)] {
            let (mut b, mut total) = (BothWays::default(), Came::default());
            assert_eq!(spans(&mut b, 100, came, &mut total), 0, "{came:?}");
            assert!(!b.is_on());
        }
    }

    // spec: P-6.48
    #[test]
    fn round_trips_alone_are_smoothed_and_told_while_it_holds() {
        let (mut b, mut total) = (BothWays::default(), Came::default());
        for i in 0..100 {
            b.on_sent_alone(Time(i));
            b.on_round_trip(Time(i), 40, 9_000_000);
            b.on_round_trip(Time(i), 1, 1_000_000);
            b.on_round_trip(Time(i), 1, 9_000_000);
            b.on_round_trip(Time(i + 50), 1, 9_000_000);
        }
        assert_eq!(b.alone_ns(), 0);
        spans(&mut b, 4, MET, &mut total);
        assert!((900_000..=1_000_000).contains(&b.alone_ns()), "{}", b.alone_ns());
    }
}

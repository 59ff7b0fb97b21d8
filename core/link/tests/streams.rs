//! One packet, chosen, is lost: what it carried delays the messages of its own stream and no
//! others. The protocol tells of fragments as they come, and the matcher, which is asked here as
//! the engine asks it, who has to wait for whom.

mod net;

use std::time::Duration;

use net::{Faults, Net};
use weir_link::*;
use weir_match::{Arrival, Class, Matcher, Posted, Source, StreamBits, stream_of};

/// One way; a round trip is twice this.
const STREAM_BITS: StreamBits = StreamBits(u64::MAX);
const WAY: Duration = Duration::from_millis(1);
/// What a receiver adds to that until it says what came.
const SLACK: Duration = Duration::from_micros(300);
const S: Duration = Duration::from_secs(1);

/// Untagged messages that node 0 sends before; nobody receives them.
const ACQUAINTED: u64 = 3;

const A: u64 = 1;
const B: u64 = 2;

/// Node 0 sends tagged messages, node 1 matches them.
struct Pair {
    net: Net,
    streams: u16,
    matcher: Matcher,
    /// Fragments that the matcher was told of.
    told: usize,
    /// (receive, when, place of the message).
    matched: Vec<(u64, Time, u64)>,
    /// (place of the message, when).
    complete: Vec<(u64, Time)>,
}

impl Pair {
    /// Connected, and the round trip is known.
    fn new(streams: u16) -> Pair {
        let mut net = Net::new(
            2,
            1,
            &Config { session: SessionConfig { streams, ..SessionConfig::default() }, ..Config::default() },
            51,
        );
        net.faults = Faults { delay_ns: WAY.as_nanos() as u64, ..Faults::default() };
        let matcher = Matcher::new(STREAM_BITS);
        let mut p = Pair { net, streams, matcher, told: 0, matched: Vec::new(), complete: Vec::new() };
        for from in [0, 1, 0, 1, 0] {
            p.net.send(from, 1 - from, false, 0, 0, u64::MAX, 8).unwrap();
            assert!(p.net.run(S, Net::quiet));
        }
        p.tell();
        p
    }

    /// Tells the matcher what has come since the last time.
    fn tell(&mut self) {
        for f in &self.net.nodes[1].fragments[self.told..] {
            let (class, tag) = if f.extra == u64::MAX { (Class::Untagged, 0) } else { (Class::Tagged, f.extra) };
            let (mut out, msg) = (Vec::new(), f.mseq);
            let arrival =
                Arrival { peer: 0, class, mseq: f.mseq, stream: f.stream, sseq: f.sseq, tag, len: f.total_len, msg };
            if f.first {
                self.matcher.arrive(arrival, &mut out);
            }
            self.matched.extend(out.iter().map(|m| (m.op, f.at, m.msg)));
            if f.complete {
                self.complete.push((f.mseq, f.at));
            }
        }
        self.told = self.net.nodes[1].fragments.len();
    }

    fn post(&mut self, tag: u64, op: u64) {
        let mut out = Vec::new();
        let class = Class::Tagged;
        self.matcher.post(Posted { class, source: Source::Peer(0), tag, ignore: 0, op, multi: None }, &mut out);
        self.matched.extend(out.iter().map(|m| (m.op, self.net.now, m.msg)));
    }

    /// Sends in packets of its own; returns the message's token and place.
    fn send(&mut self, tag: u64, len: u32) -> (u64, u64) {
        let stream = stream_of(tag, Class::Tagged, self.streams, STREAM_BITS);
        let token = self.net.send(0, 1, false, stream, 0, tag, len).unwrap();
        self.net.drain();
        (token, self.place_of_next() - 1)
    }

    /// Messages sent so far: those to get acquainted, and the tagged ones.
    fn place_of_next(&self) -> u64 {
        let (open, sent) = (&self.net.nodes[0].open_tokens, &self.net.nodes[0].sent);
        (open.len() + sent.len()) as u64
    }

    /// Of the next message's packets the one with this number (from 0) gets lost, and nothing else.
    fn lose(&mut self, number: usize) {
        let token = ((1u64 << 32) + self.place_of_next()).to_le_bytes();
        let from = net::addr(0, 0);
        let mut seen = 0;
        self.net.lose = Box::new(move |source, _, bytes| {
            let carries = source == from && bytes.windows(8).any(|w| w == token);
            seen += usize::from(carries);
            carries && seen == number + 1
        });
    }

    /// Until all that was sent is acknowledged.
    fn run(&mut self) {
        while !self.net.quiet() {
            let until = self.net.now + S;
            assert!(self.net.step(until), "nothing happens any more");
            self.tell();
        }
    }

    fn matched_at(&self, op: u64) -> Time {
        self.matched.iter().find(|m| m.0 == op).expect("matched").1
    }

    fn complete_at(&self, place: u64) -> Time {
        self.complete.iter().find(|c| c.0 == place).expect("complete").1
    }
}

// spec: P-1.1
#[test]
fn a_lost_packet_delays_its_own_stream_and_no_other() {
    assert_ne!(stream_of(A, Class::Tagged, 64, STREAM_BITS), stream_of(B, Class::Tagged, 64, STREAM_BITS));
    for (streams, b_waits) in [(64, false), (1, true)] {
        let mut p = Pair::new(streams);
        // All receives are posted, as before MPI_Waitany.
        for (tag, op) in [(A, 10), (B, 20), (A, 11)] {
            p.post(tag, op);
        }
        p.lose(0);
        let start = p.net.now;
        let (_, a) = p.send(A, 1000);
        p.send(B, 1000);
        p.send(A, 1000);
        p.run();
        let lost = p.net.nodes[0].ep.counters().packets_lost;
        assert_eq!(lost, 1);
        assert_eq!(p.matched.iter().find(|m| m.0 == 10).expect("matched").2, a, "the order within a stream holds");
        let [first, second, other] = [10, 11, 20].map(|op| p.matched_at(op) - start);
        // Its repair takes a round trip to ask for and half of one to come.
        assert!(first >= 3 * WAY && first <= 4 * WAY + 2 * SLACK, "{first:?}");
        assert_eq!(second, first, "the next of the stream has come and waits");
        if b_waits {
            assert_eq!(other, first, "on one stream everything waits");
        } else {
            assert!(other <= WAY + SLACK, "{other:?}");
        }
    }
}

#[test]
fn a_lost_packet_in_the_middle_of_a_message_delays_only_that_one() {
    // Any of its fragments tells the matcher all it has to know; not even the next of its stream
    // waits.
    for number in [0, 4, 7] {
        let mut p = Pair::new(64);
        for (tag, op) in [(A, 10), (B, 20), (A, 11)] {
            p.post(tag, op);
        }
        p.lose(number);
        let start = p.net.now;
        let places = [A, B, A].map(|tag| p.send(tag, if tag == A { 12_000 } else { 1000 }).1);
        p.run();
        assert_eq!(p.net.nodes[0].ep.counters().packets_lost, 1);
        let [a, b, next] = places.map(|place| p.complete_at(place) - start);
        assert!(a >= 3 * WAY && a <= 4 * WAY + 2 * SLACK, "{a:?}");
        assert!(b <= 2 * WAY && next <= 2 * WAY, "{b:?} {next:?}");
        for op in [10, 11, 20] {
            assert!(p.matched_at(op) - start <= 2 * WAY);
        }
    }
}

#[test]
fn who_receives_in_another_order_stalls_no_sender() {
    // Recv(a), then Recv(b): a is lost, and what comes of b meanwhile is drained and acknowledged.
    const COUNT: u64 = 16;
    for streams in [64, 1] {
        let mut p = Pair::new(streams);
        p.post(A, 10);
        p.lose(0);
        let start = p.net.now;
        let (a, _) = p.send(A, 1000);
        let sent: Vec<u64> = (0..COUNT).map(|_| p.send(B, 1000).0).collect();
        p.net.run(2 * WAY + SLACK, |_| false);
        p.tell();
        let done = |p: &Pair, token: &u64| p.net.nodes[0].sent.contains(token);
        assert!(!done(&p, &a), "nothing was lost");
        assert!(sent.iter().all(|token| done(&p, token)), "the sender waits for more than a round trip");
        assert_eq!(p.matcher.unexpected_count() as u64, COUNT + ACQUAINTED);
        assert!(p.matched.is_empty());
        p.run();
        assert!(p.matched_at(10) - start >= 3 * WAY);
        for i in 0..COUNT {
            p.post(B, 100 + i);
        }
        let places: Vec<u64> = p.matched[1..].iter().map(|m| m.2).collect();
        assert_eq!(places.len() as u64, COUNT);
        assert!(places.is_sorted());
        assert_eq!(p.net.nodes[0].ep.counters().session.stalls_credit, 0);
    }
}

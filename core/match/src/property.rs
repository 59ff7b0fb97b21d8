//! The matcher against the reference model, step by step, for random programs and networks.

use crate::model::Model;
use crate::*;
use alloc::collections::VecDeque;
use proptest::prelude::*;
use std::vec::Vec;

const PEERS: usize = 3;
const STREAMS: u16 = 4;

/// What a peer sends: a message, or a number that is not matched.
#[derive(Copy, Clone, Debug)]
struct Sent {
    class: Class,
    tag: u64,
    len: u64,
    other: bool,
}

#[derive(Clone, Debug)]
enum Step {
    /// The peer's message that is `late` places behind the oldest not yet arrived arrives; what had to be sent for that
    /// looks like `sent`.
    Arrive {
        peer: usize,
        late: usize,
        sent: Sent,
    },
    Post {
        pattern: Pattern,
        multi: Option<Multi>,
    },
    Cancel(usize),
    Forget(usize),
    Peek(Pattern),
    Claim(Pattern),
    RemovePeer(usize),
}

fn class() -> impl Strategy<Value = Class> {
    prop_oneof![4 => Just(Class::Tagged), 1 => Just(Class::Untagged)]
}

/// Few tags in few communicators, so that receives and messages often meet.
fn tag() -> impl Strategy<Value = u64> {
    (0..3u64, 0..2u64).prop_map(|(tag, context)| context << 32 | tag)
}

fn pattern() -> impl Strategy<Value = Pattern> {
    let source = prop_oneof![
        1 => Just(Source::Any),
        2 => (0..PEERS as u32).prop_map(Source::Peer)
    ];
    let ignore = prop_oneof![
        4 => Just(0), 2 => Just(u64::from(u32::MAX)), 1 => Just(1), 1 => Just(u64::MAX)
    ];
    (class(), source, tag(), ignore).prop_map(|(class, source, tag, ignore)| Pattern { class, source, tag, ignore })
}

fn sent() -> impl Strategy<Value = Sent> {
    (class(), tag(), 0..60u64, prop::bool::weighted(0.1)).prop_map(|(class, tag, len, other)| Sent {
        class,
        tag,
        len,
        other,
    })
}

fn step() -> impl Strategy<Value = Step> {
    let multi = prop_oneof![
        4 => Just(None),
        1 => (0..150u64, 0..40u64).prop_map(|(room, min_room)| Some(Multi { room, min_room }))
    ];
    let late = prop_oneof![3 => Just(0usize), 2 => 1..5usize];
    prop_oneof![
        12 => (0..PEERS, late, sent()).prop_map(|(peer, late, sent)| Step::Arrive { peer, late, sent }),
        8 => (pattern(), multi).prop_map(|(pattern, multi)| Step::Post { pattern, multi }),
        2 => any::<usize>().prop_map(Step::Cancel),
        1 => any::<usize>().prop_map(Step::Forget),
        2 => pattern().prop_map(Step::Peek),
        1 => pattern().prop_map(Step::Claim),
        1 => (0..PEERS * 3).prop_map(Step::RemovePeer),
    ]
}

/// One peer as sender and network: what is under way, numbered.
#[derive(Default)]
struct Sender {
    next: u64,
    stream_next: [u32; STREAMS as usize],
    under_way: VecDeque<(u64, u16, u32, Sent)>,
}

impl Sender {
    fn send(&mut self, sent: Sent) {
        let stream = stream_of(sent.tag, sent.class, STREAMS);
        let sseq = &mut self.stream_next[usize::from(stream)];
        self.under_way.push_back((self.next, stream, *sseq, sent));
        self.next += 1;
        *sseq += 1;
    }
}

/// Matcher and model side by side.
#[derive(Default)]
struct Pair {
    matcher: Matcher,
    model: Model,
    senders: [Sender; PEERS],
    next_token: u64,
    matches: usize,
}

impl Pair {
    fn token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }

    fn arrive(&mut self, peer: usize, late: usize) {
        let (mseq, stream, sseq, sent) = self.senders[peer].under_way.remove(late).unwrap();
        let (mut got, mut want) = (Vec::new(), Vec::new());
        let msg = self.token();
        let peer = peer as u32;
        if sent.other {
            self.matcher.note_other(peer, mseq, stream, sseq, &mut got);
            self.model.note_other(peer, mseq, stream, sseq, &mut want);
        } else {
            let a = Arrival { peer, class: sent.class, mseq, stream, sseq, tag: sent.tag, len: sent.len, msg };
            self.matcher.arrive(a, &mut got);
            self.model.arrive(a, &mut want);
        }
        self.compare(&got, &want);
    }

    fn post(&mut self, p: Pattern, multi: Option<Multi>) {
        let (mut got, mut want) = (Vec::new(), Vec::new());
        let op = self.token();
        let posted = Posted { class: p.class, source: p.source, tag: p.tag, ignore: p.ignore, op, multi };
        self.matcher.post(posted, &mut got);
        self.model.post(posted, &mut want);
        self.compare(&got, &want);
    }

    fn cancel(&mut self, op: OpToken) {
        let (mut got, mut want) = (Vec::new(), Vec::new());
        assert_eq!(self.matcher.cancel(op, &mut got), self.model.cancel(op, &mut want));
        self.compare(&got, &want);
    }

    fn remove_peer(&mut self, peer: usize) {
        let (mut got, mut want) = ((Vec::new(), Vec::new()), (Vec::new(), Vec::new()));
        self.matcher.remove_peer(peer as u32, &mut got.0, &mut got.1);
        self.model.remove_peer(peer as u32, &mut want.0, &mut want.1);
        assert_eq!(got, want);
        self.senders[peer] = Sender::default();
        self.compare(&[], &[]);
    }

    fn compare(&mut self, got: &[Match], want: &[Match]) {
        assert_eq!(got, want);
        self.matches += got.len();
        let stats = self.matcher.stats();
        assert_eq!(stats.posted, self.model.posted().len());
        assert_eq!(stats.unexpected, self.model.waiting().len());
        assert_eq!(stats.behind_gap, self.model.behind_gap());
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Arrive { peer, late, sent } => {
                while self.senders[peer].under_way.len() <= late {
                    self.senders[peer].send(sent);
                }
                self.arrive(peer, late);
            }
            Step::Post { pattern, multi } => self.post(pattern, multi),
            Step::Cancel(n) => {
                let posted = self.model.posted();
                // Now and then one that is not posted.
                let op = posted.get(n % (posted.len() + 1)).copied().unwrap_or(u64::MAX);
                self.cancel(op);
            }
            Step::Forget(n) => {
                let waiting = self.model.waiting();
                let msg = waiting.get(n % (waiting.len() + 1)).copied().unwrap_or(u64::MAX);
                assert_eq!(self.matcher.forget(msg), self.model.forget(msg));
                self.compare(&[], &[]);
            }
            Step::Peek(p) => {
                assert_eq!(self.matcher.peek(p.class, p.source, p.tag, p.ignore), self.model.peek(&p));
            }
            Step::Claim(p) => {
                let got = self.matcher.claim(p.class, p.source, p.tag, p.ignore);
                assert_eq!(got, self.model.claim(&p));
                self.compare(&[], &[]);
            }
            Step::RemovePeer(peer) if peer < PEERS => self.remove_peer(peer),
            Step::RemovePeer(_) => {}
        }
    }

    /// Lets everything arrive, takes everything out, and looks for anything left behind.
    fn finish(mut self) {
        for peer in 0..PEERS {
            while !self.senders[peer].under_way.is_empty() {
                self.arrive(peer, 0);
            }
        }
        assert_eq!(self.matcher.stats().behind_gap, 0);
        for class in [Class::Tagged, Class::Untagged] {
            let all = Pattern { class, source: Source::Any, tag: 0, ignore: u64::MAX };
            while self.model.peek(&all).is_some() {
                self.post(all, None);
            }
        }
        assert_eq!(self.matcher.unexpected_count(), 0);
        for op in self.model.posted() {
            self.cancel(op);
        }
        let census = self.matcher.stats().census;
        assert!((census.expected_short + census.unexpected_short) as usize >= self.matches);
        self.matcher.assert_empty();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn does_what_the_rule_says(steps in prop::collection::vec(step(), 1..60)) {
        let mut pair = Pair::default();
        for s in &steps {
            pair.step(s);
        }
        pair.finish();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// A peer may send any numbers; nothing panics or loops, and other peers' messages are matched as ever.
    #[test]
    fn lies_harm_only_the_liar(
        lies in prop::collection::vec((class(), 0..6u64, 0..3u16, 0..6u32, tag(), prop::bool::weighted(0.2)), 1..60),
        receives in prop::collection::vec(pattern(), 1..60),
    ) {
        let mut matcher = Matcher::new();
        let mut out = Vec::new();
        for (i, (class, mseq, stream, sseq, tag, other)) in lies.iter().copied().enumerate() {
            if other {
                matcher.note_other(1, mseq, stream, sseq, &mut out);
            } else {
                let msg = i as u64;
                matcher.arrive(Arrival { peer: 1, class, mseq, stream, sseq, tag, len: 1, msg }, &mut out);
            }
            if let Some(p) = receives.get(i) {
                let post = Posted { class: p.class, source: Source::Peer(1), tag: p.tag, ignore: p.ignore, op: i as u64, multi: None };
                matcher.post(post, &mut out);
            }
            out.clear();
            let post = Posted { class: Class::Tagged, source: Source::Peer(2), tag, ignore: 0, op: 1000, multi: None };
            let a = Arrival { peer: 2, class: Class::Tagged, mseq: i as u64, stream: 1, sseq: i as u32, tag, len: 1, msg: 2000 };
            if i % 2 == 0 {
                matcher.post(post, &mut out);
                matcher.arrive(a, &mut out);
            } else {
                matcher.arrive(a, &mut out);
                matcher.post(post, &mut out);
            }
            prop_assert_eq!(out.len(), 1);
            prop_assert_eq!((out[0].op, out[0].msg), (1000, 2000));
            out.clear();
        }
        matcher.remove_peer(1, &mut Vec::new(), &mut Vec::new());
        for class in [Class::Tagged, Class::Untagged] {
            while matcher.claim(class, Source::Any, 0, u64::MAX).is_some() {}
        }
        matcher.assert_empty();
    }
}

//! The matcher against the reference model, and both against what MPI says of overtaking, step by
//! step, for random programs and networks.

use crate::model::{Model, STREAM_BITS};
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
    /// The peer's message that is `late` places behind the oldest not yet arrived arrives; what had
    /// to be sent for that looks like `sent`.
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

/// Few tags, protocols and communicators, so that receives and messages often meet.
fn tag() -> impl Strategy<Value = u64> {
    (0..3u64, 0..2u64, 0..2u64, 0..2u64)
        .prop_map(|(tag, low, context, high)| high << 54 | context << 35 | low << 32 | tag)
}

/// Masks as MPI libraries use them, and others that make receives overlap in part.
fn ignore() -> impl Strategy<Value = u64> {
    const PROTOCOLS: [u64; 4] = [0, 1 << 32, 1 << 54, 1 << 32 | 1 << 54];
    const TAGS: [u64; 4] = [0, 1, 0x7fff_ffff, 0xffff_ffff];
    prop_oneof![
        4 => Just(0),
        4 => prop::sample::select(PROTOCOLS.as_slice()),
        4 => (prop::sample::select(PROTOCOLS.as_slice()), prop::sample::select(TAGS.as_slice())).prop_map(|(p, t)| p | t),
        1 => Just(u64::MAX)
    ]
}

fn pattern() -> impl Strategy<Value = Pattern> {
    let source = prop_oneof![
        1 => Just(Source::Any),
        2 => (0..PEERS as u32).prop_map(Source::Peer)
    ];
    (class(), source, tag(), ignore()).prop_map(|(class, source, tag, ignore)| Pattern { class, source, tag, ignore })
}

fn sent() -> impl Strategy<Value = Sent> {
    (class(), tag(), 0..60u64, prop::bool::weighted(0.1)).prop_map(|(class, tag, len, other)| Sent {
        class,
        tag,
        len,
        other,
    })
}

fn any_step() -> impl Strategy<Value = Step> {
    step(pattern().boxed(), sent().boxed(), PEERS)
}

/// One peer, few tags that differ in a protocol bit, and receives for a tag among ones for any tag
/// of one protocol: the case in which a receive on one stream must not skip messages that are held.
fn crowded_step() -> impl Strategy<Value = Step> {
    const PROTOCOL: u64 = 1 << 54;
    let tag = || (0..3u64, 0..2u64).prop_map(|(tag, protocol)| (protocol * PROTOCOL) | tag);
    let source = prop_oneof![1 => Just(Source::Any), 2 => Just(Source::Peer(0))];
    let ignore = prop_oneof![2 => Just(0), 4 => Just(PROTOCOL), 3 => Just(0xffff_ffff), 1 => Just(u64::MAX)];
    let pattern =
        (source, tag(), ignore).prop_map(|(source, tag, ignore)| Pattern { class: Class::Tagged, source, tag, ignore });
    let sent = tag().prop_map(|tag| Sent { class: Class::Tagged, tag, len: 10, other: false });
    step(pattern.boxed(), sent.boxed(), 1)
}

fn step(pattern: BoxedStrategy<Pattern>, sent: BoxedStrategy<Sent>, peers: usize) -> impl Strategy<Value = Step> {
    let multi = prop_oneof![
        4 => Just(None),
        1 => (0..150u64, 0..40u64).prop_map(|(room, min_room)| Some(Multi { room, min_room }))
    ];
    let late = prop_oneof![3 => Just(0usize), 2 => 1..5usize];
    prop_oneof![
        12 => (0..peers, late, sent).prop_map(|(peer, late, sent)| Step::Arrive { peer, late, sent }),
        8 => (pattern.clone(), multi).prop_map(|(pattern, multi)| Step::Post { pattern, multi }),
        2 => any::<usize>().prop_map(Step::Cancel),
        1 => any::<usize>().prop_map(Step::Forget),
        2 => pattern.clone().prop_map(Step::Peek),
        1 => pattern.prop_map(Step::Claim),
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
        let stream = stream_of(sent.tag, sent.class, STREAMS, STREAM_BITS);
        let sseq = &mut self.stream_next[usize::from(stream)];
        self.under_way.push_back((self.next, stream, *sseq, sent));
        self.next += 1;
        *sseq += 1;
    }
}

/// A message sent and neither received, claimed nor withdrawn; its token once it has arrived.
struct Pending {
    mseq: u64,
    class: Class,
    tag: u64,
    msg: Option<MsgToken>,
}

/// What MPI says (MPI-4.1, 3.5), of all messages sent, arrived or not, and knowing nothing of
/// streams and gaps: a receive cannot take a message while an earlier one of that sender that it
/// matches is pending, nor while a receive posted earlier that matches the message is.
#[derive(Default)]
struct Law {
    sent: [Vec<Pending>; PEERS],
    posted: Vec<(OpToken, Pattern)>,
}

impl Law {
    fn index(&self, msg: MsgToken) -> (usize, usize) {
        let of = |peer: usize| self.sent[peer].iter().position(|m| m.msg == Some(msg)).map(|i| (peer, i));
        (0..PEERS).find_map(of).expect("a message taken has been sent and arrived")
    }

    /// Takes the message out; `earlier` counts the receives that have the right to it before this
    /// pattern.
    fn take(&mut self, msg: MsgToken, p: &Pattern, earlier: usize) {
        let (peer, i) = self.index(msg);
        let accepts = |p: &Pattern, m: &Pending| p.accepts(peer as u32, m.class, m.tag);
        assert!(accepts(p, &self.sent[peer][i]));
        assert!(!self.sent[peer][..i].iter().any(|m| accepts(p, m)), "{p:?} overtakes a message");
        let m = &self.sent[peer][i];
        assert!(!self.posted[..earlier].iter().any(|(_, q)| accepts(q, m)), "{p:?} overtakes a receive");
        self.sent[peer].remove(i);
    }

    fn matched(&mut self, hit: &Match) {
        let r = self.posted.iter().position(|(op, _)| *op == hit.op).expect("posted");
        let p = self.posted[r].1;
        self.take(hit.msg, &p, r);
        if hit.multi_offset.is_none() || hit.multi_done {
            self.posted.remove(r);
        }
    }
}

/// Matcher and model side by side.
struct Pair {
    matcher: Matcher,
    model: Model,
    law: Law,
    senders: [Sender; PEERS],
    next_token: u64,
    matches: usize,
}

impl Default for Pair {
    fn default() -> Self {
        Pair {
            matcher: Matcher::new(STREAM_BITS),
            model: Default::default(),
            law: Default::default(),
            senders: Default::default(),
            next_token: Default::default(),
            matches: Default::default(),
        }
    }
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
        if let Some(m) = self.law.sent[peer].iter_mut().rev().find(|m| m.mseq == mseq && !sent.other) {
            m.msg = Some(msg);
        }
        let peer = peer as u32;
        if sent.other {
            self.matcher.note_other(peer, mseq, stream, sseq, &mut got);
            self.model.note_other(peer, mseq, stream, sseq, &mut want);
        } else {
            let a = Arrival { peer, class: sent.class, mseq, stream, sseq, tag: sent.tag, len: sent.len, msg };
            // Both ways that a message may come.
            let at_once = if msg.is_multiple_of(2) { self.matcher.take_at_once(&a) } else { None };
            match at_once {
                Some(op) => got.push(Match { op, msg, multi_offset: None, multi_room: 0, multi_done: false }),
                None => self.matcher.arrive(a, &mut got),
            }
            self.model.arrive(a, &mut want);
        }
        self.compare(&got, &want);
    }

    fn post(&mut self, p: Pattern, multi: Option<Multi>) {
        let (mut got, mut want) = (Vec::new(), Vec::new());
        let op = self.token();
        let posted = Posted { class: p.class, source: p.source, tag: p.tag, ignore: p.ignore, op, multi };
        self.law.posted.push((op, p));
        self.matcher.post(posted, &mut got);
        self.model.post(posted, &mut want);
        self.compare(&got, &want);
    }

    fn cancel(&mut self, op: OpToken) {
        let (mut got, mut want) = (Vec::new(), Vec::new());
        assert_eq!(self.matcher.cancel(op, &mut got), self.model.cancel(op, &mut want));
        self.law.posted.retain(|(o, _)| *o != op);
        self.compare(&got, &want);
    }

    fn remove_peer(&mut self, peer: usize) {
        let (mut got, mut want) = ((Vec::new(), Vec::new()), (Vec::new(), Vec::new()));
        self.matcher.remove_peer(peer as u32, &mut got.0, &mut got.1);
        self.model.remove_peer(peer as u32, &mut want.0, &mut want.1);
        assert_eq!(got, want);
        self.law.posted.retain(|(op, _)| !got.0.contains(op));
        self.law.sent[peer].retain(|m| m.msg.is_some_and(|msg| !got.1.contains(&msg)));
        self.senders[peer] = Sender::default();
        self.compare(&[], &[]);
    }

    fn compare(&mut self, got: &[Match], want: &[Match]) {
        assert_eq!(got, want);
        self.matches += got.len();
        got.iter().for_each(|hit| self.law.matched(hit));
        let stats = self.matcher.stats();
        assert_eq!(stats.posted, self.model.posted().len());
        assert_eq!(stats.unexpected, self.model.waiting().len());
        assert_eq!(stats.behind_gap, self.model.behind_gap());
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Arrive { peer, late, sent } => {
                while self.senders[peer].under_way.len() <= late {
                    let mseq = self.senders[peer].next;
                    if !sent.other {
                        self.law.sent[peer].push(Pending { mseq, class: sent.class, tag: sent.tag, msg: None });
                    }
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
                let (mut got, mut want) = (Vec::new(), Vec::new());
                let forgotten = self.matcher.forget(msg, &mut got);
                assert_eq!(forgotten, self.model.forget(msg, &mut want));
                if forgotten {
                    let (peer, i) = self.law.index(msg);
                    self.law.sent[peer].remove(i);
                }
                self.compare(&got, &want);
            }
            Step::Peek(p) => {
                assert_eq!(self.matcher.peek(p.class, p.source, p.tag, p.ignore), self.model.peek(&p));
            }
            Step::Claim(p) => {
                let got = self.matcher.claim(p.class, p.source, p.tag, p.ignore);
                assert_eq!(got, self.model.claim(&p));
                if let Some(msg) = got {
                    self.law.take(msg, &p, self.law.posted.len());
                }
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
        let queue_statistics = self.matcher.stats().queue_statistics;
        assert!((queue_statistics.expected_short + queue_statistics.unexpected_short) as usize >= self.matches);
        self.matcher.assert_empty();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn does_what_the_rule_says(steps in prop::collection::vec(any_step(), 1..60)) {
        let mut pair = Pair::default();
        for s in &steps {
            pair.step(s);
        }
        pair.finish();
    }

    #[test]
    fn does_what_the_rule_says_where_messages_are_held(steps in prop::collection::vec(crowded_step(), 1..40)) {
        let mut pair = Pair::default();
        for s in &steps {
            pair.step(s);
        }
        pair.finish();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// A peer may send any numbers; nothing panics or loops, and other peers' messages are matched
    /// as ever.
    #[test]
    fn lies_harm_only_the_liar(
        lies in prop::collection::vec((class(), 0..6u64, 0..3u16, 0..6u32, tag(), prop::bool::weighted(0.2)), 1..60),
        receives in prop::collection::vec(pattern(), 1..60),
    ) {
        let mut matcher = Matcher::new(STREAM_BITS);
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

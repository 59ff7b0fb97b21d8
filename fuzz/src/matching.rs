//! The matcher against the reference model of its own tests.

#[path = "../../core/match/src/model.rs"]
#[allow(missing_docs, reason = "documented where it lives")]
mod model;

use std::collections::VecDeque;

use arbitrary::Arbitrary;
use weir_match::{Arrival, Class, Match, Matcher, Multi, Pattern, Posted, Source, stream_of};

use crate::input::Rest;
use model::{Model, STREAM_BITS};

const PEERS: u8 = 3;
const STREAMS: u16 = 4;
/// A program. Not long: the model is quadratic and worse.
pub type Steps = Rest<Step, 200>;

/// What a receive or probe wants; few values, so that they often meet.
#[derive(Arbitrary, Copy, Clone, Debug)]
pub struct Want {
    tagged: bool,
    peer: Option<u8>,
    tag: u8,
    ignore: u8,
}

impl Want {
    fn pattern(self) -> Pattern {
        Pattern {
            class: class(self.tagged),
            source: self.peer.map_or(Source::Any, |p| Source::Peer(u32::from(p % PEERS))),
            tag: tag(self.tag),
            ignore: [0, 0, 1 << 54, 1, 1 << 32, u64::from(u32::MAX), u64::MAX][usize::from(self.ignore) % 7],
        }
    }
}

/// One event.
#[derive(Arbitrary, Copy, Clone, Debug)]
pub enum Step {
    /// A peer sends a message (or a number that is not matched).
    #[expect(missing_docs, reason = "plain")]
    Send { peer: u8, tagged: bool, tag: u8, len: u8, other: bool },
    /// One of the messages under way arrives.
    #[expect(missing_docs, reason = "plain")]
    Arrive { peer: u8, late: u8 },
    /// A receive is posted, perhaps with a buffer for several messages.
    Post(Want, Option<(u8, u8)>),
    /// Look.
    Peek(Want),
    /// Look and take.
    Claim(Want),
    /// A receive is taken back.
    Cancel(u8),
    /// A message is withdrawn.
    Forget(u8),
    /// A peer goes away.
    RemovePeer(u8),
}

fn class(tagged: bool) -> Class {
    if tagged { Class::Tagged } else { Class::Untagged }
}

fn tag(tag: u8) -> u64 {
    u64::from(tag & 3) | u64::from(tag >> 2 & 1) << 32 | u64::from(tag >> 3 & 1) << 54
}

#[derive(Default)]
struct Sender {
    next: u64,
    stream_next: [u32; STREAMS as usize],
    /// Number, stream, number in it, class, tag, length, not to be matched.
    under_way: VecDeque<(u64, u16, u32, Class, u64, u64, bool)>,
}

/// Runs matcher and model side by side.
pub fn run(steps: &Steps) {
    let mut pair = Pair {
        matcher: Matcher::new(STREAM_BITS),
        model: Model::default(),
        senders: Default::default(),
        next_token: 0,
    };
    for step in &steps.0 {
        pair.step(*step);
    }
    // Whatever is still under way arrives, so that holes close.
    for peer in 0..PEERS {
        while !pair.senders[usize::from(peer)].under_way.is_empty() {
            pair.arrive(peer, 0);
        }
    }
}

struct Pair {
    matcher: Matcher,
    model: Model,
    senders: [Sender; PEERS as usize],
    next_token: u64,
}

impl Pair {
    fn token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }

    fn compare(&self, got: &[Match], want: &[Match]) {
        assert_eq!(got, want);
        let stats = self.matcher.stats();
        assert_eq!(stats.posted, self.model.posted().len());
        assert_eq!(stats.unexpected, self.model.waiting().len());
        assert_eq!(stats.behind_gap, self.model.behind_gap());
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Send { peer, tagged, tag: t, len, other } => {
                let sender = &mut self.senders[usize::from(peer % PEERS)];
                let (class, tag) = (class(tagged), tag(t));
                let stream = stream_of(tag, class, STREAMS, STREAM_BITS);
                let sseq = &mut sender.stream_next[usize::from(stream)];
                sender.under_way.push_back((sender.next, stream, *sseq, class, tag, len.into(), other));
                *sseq += 1;
                sender.next += 1;
            }
            Step::Arrive { peer, late } => self.arrive(peer % PEERS, late),
            Step::Post(want, multi) => self.post(want.pattern(), multi),
            Step::Peek(want) => {
                let p = want.pattern();
                assert_eq!(self.matcher.peek(p.class, p.source, p.tag, p.ignore), self.model.peek(&p));
            }
            Step::Claim(want) => {
                let p = want.pattern();
                assert_eq!(self.matcher.claim(p.class, p.source, p.tag, p.ignore), self.model.claim(&p));
                self.compare(&[], &[]);
            }
            Step::Cancel(i) => {
                // Now and then one that is not posted.
                let posted = self.model.posted();
                let op = posted.get(usize::from(i) % (posted.len() + 1)).copied().unwrap_or(u64::MAX);
                let (mut got, mut want) = (Vec::new(), Vec::new());
                assert_eq!(self.matcher.cancel(op, &mut got), self.model.cancel(op, &mut want));
                self.compare(&got, &want);
            }
            Step::Forget(i) => {
                let waiting = self.model.waiting();
                let msg = waiting.get(usize::from(i) % (waiting.len() + 1)).copied().unwrap_or(u64::MAX);
                let (mut got, mut want) = (Vec::new(), Vec::new());
                assert_eq!(self.matcher.forget(msg, &mut got), self.model.forget(msg, &mut want));
                self.compare(&got, &want);
            }
            Step::RemovePeer(peer) => {
                let peer = peer % PEERS;
                let (mut got, mut want) = ((Vec::new(), Vec::new()), (Vec::new(), Vec::new()));
                self.matcher.remove_peer(peer.into(), &mut got.0, &mut got.1);
                self.model.remove_peer(peer.into(), &mut want.0, &mut want.1);
                assert_eq!(got, want);
                self.senders[usize::from(peer)] = Sender::default();
                self.compare(&[], &[]);
            }
        }
    }

    fn arrive(&mut self, peer: u8, late: u8) {
        let under_way = &mut self.senders[usize::from(peer)].under_way;
        let at = usize::from(late) % under_way.len().max(1);
        let Some((mseq, stream, sseq, class, tag, len, other)) = under_way.remove(at) else { return };
        let (mut got, mut want) = (Vec::new(), Vec::new());
        let (msg, peer) = (self.token(), u32::from(peer));
        if other {
            self.matcher.note_other(peer, mseq, stream, sseq, &mut got);
            self.model.note_other(peer, mseq, stream, sseq, &mut want);
        } else {
            let a = Arrival { peer, class, mseq, stream, sseq, tag, len, msg };
            self.matcher.arrive(a, &mut got);
            self.model.arrive(a, &mut want);
        }
        self.compare(&got, &want);
    }

    fn post(&mut self, p: Pattern, multi: Option<(u8, u8)>) {
        let (mut got, mut want) = (Vec::new(), Vec::new());
        let multi = multi.map(|(room, min_room)| Multi { room: room.into(), min_room: min_room.into() });
        let op = self.token();
        let posted = Posted { class: p.class, source: p.source, tag: p.tag, ignore: p.ignore, op, multi };
        self.matcher.post(posted, &mut got);
        self.model.post(posted, &mut want);
        self.compare(&got, &want);
    }
}

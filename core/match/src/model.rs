//! A reference for the tests: the rule of the crate's documentation, written down as literally and
//! simply as possible.

use crate::types::*;
use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};

/// What decides over the stream here: bits as `faces/fabric` has them for MPI libraries, with
/// protocol bits left out in between and above.
pub const STREAM_BITS: StreamBits = StreamBits(0x0007_fffc_ffff_ffff);

#[derive(Default)]
struct Arrived {
    numbers: BTreeSet<u64>,
    stream_numbers: BTreeSet<(u16, u32)>,
}

#[derive(Copy, Clone)]
struct Waiting {
    a: Arrival,
    /// How often the peer had been removed when the message came, so that (life, mseq) orders all
    /// its messages.
    life: u32,
}

/// Does what a [`crate::Matcher`] does, slowly.
#[derive(Default)]
pub struct Model {
    /// In posting order; the bytes used of a multi-receive buffer.
    posted: Vec<(Posted, u64)>,
    /// In the order of arrival.
    waiting: Vec<Waiting>,
    arrived: BTreeMap<u32, Arrived>,
    lives: BTreeMap<u32, u32>,
}

impl Model {
    fn life(&self, peer: u32) -> u32 {
        self.lives.get(&peer).copied().unwrap_or(0)
    }

    /// Messages left over from a former life of the peer have no gap below them.
    fn eligible(&self, w: &Waiting, on_one_stream: bool) -> bool {
        let Some(arrived) = self.arrived.get(&w.a.peer).filter(|_| w.life == self.life(w.a.peer)) else {
            return true;
        };
        (0..w.a.mseq).all(|n| arrived.numbers.contains(&n))
            || on_one_stream && (0..w.a.sseq).all(|n| arrived.stream_numbers.contains(&(w.a.stream, n)))
    }

    fn accepts(p: &Pattern, a: &Arrival) -> bool {
        p.class == a.class
            && (p.source == Source::Any || p.source == Source::Peer(a.peer))
            && (p.class == Class::Untagged || p.tag & !p.ignore == a.tag & !p.ignore)
    }

    fn on_one_stream(p: &Pattern) -> bool {
        p.class == Class::Tagged && p.ignore & STREAM_BITS.0 == 0
    }

    /// The earliest message of a peer that the pattern accepts.
    fn earliest(&self, p: &Pattern, peer: u32) -> Option<usize> {
        (0..self.waiting.len())
            .filter(|i| self.waiting[*i].a.peer == peer && Self::accepts(p, &self.waiting[*i].a))
            .min_by_key(|i| (self.waiting[*i].life, self.waiting[*i].a.mseq))
    }

    fn first_receive(&self, a: &Arrival) -> Option<usize> {
        self.posted.iter().position(|p| Self::accepts(&p.0.pattern(), a))
    }

    /// Rules 2 and 3: of the peers whose earliest accepted message can be taken the one with the
    /// takeable message that arrived first; of this peer the earliest.
    fn find(&self, p: &Pattern) -> Option<usize> {
        let takeable = |w: &Waiting| {
            Self::accepts(p, &w.a) && self.eligible(w, Self::on_one_stream(p)) && self.first_receive(&w.a).is_none()
        };
        self.waiting
            .iter()
            .filter(|w| takeable(w))
            .filter_map(|w| self.earliest(p, w.a.peer))
            .find(|i| takeable(&self.waiting[*i]))
    }

    /// Rules 1 and 2, until nothing moves.
    fn settle(&mut self, out: &mut Vec<Match>) {
        loop {
            let hit = (0..self.waiting.len())
                .filter_map(|i| {
                    let w = &self.waiting[i];
                    let r = self.first_receive(&w.a)?;
                    let p = self.posted[r].0.pattern();
                    let takes = self.eligible(w, Self::on_one_stream(&p)) && self.earliest(&p, w.a.peer) == Some(i);
                    takes.then_some((w.a.peer, w.life, w.a.mseq, i, r))
                })
                .min();
            let Some((.., i, r)) = hit else { return };
            let a = self.waiting.remove(i).a;
            let (p, used) = &mut self.posted[r];
            let (hit, done) = Self::bind(p, used, &a);
            out.push(hit);
            if done {
                self.posted.remove(r);
            }
        }
    }

    fn bind(p: &Posted, used: &mut u64, a: &Arrival) -> (Match, bool) {
        let mut hit = Match { op: p.op, msg: a.msg, multi_offset: None, multi_room: 0, multi_done: false };
        if let Some(multi) = p.multi {
            hit.multi_offset = Some(*used);
            hit.multi_room = multi.room - *used;
            *used += a.len.min(hit.multi_room);
            hit.multi_done = multi.room == *used || multi.room - *used < multi.min_room;
        }
        (hit, p.multi.is_none() || hit.multi_done)
    }

    pub fn post(&mut self, p: Posted, out: &mut Vec<Match>) {
        let mut used = 0;
        while let Some(i) = self.find(&p.pattern()) {
            let a = self.waiting.remove(i).a;
            let (hit, done) = Self::bind(&p, &mut used, &a);
            out.push(hit);
            if done {
                return;
            }
        }
        self.posted.push((p, used));
    }

    pub fn arrive(&mut self, a: Arrival, out: &mut Vec<Match>) {
        let life = self.life(a.peer);
        self.waiting.push(Waiting { a, life });
        self.note_other(a.peer, a.mseq, a.stream, a.sseq, out);
    }

    pub fn note_other(&mut self, peer: u32, mseq: u64, stream: u16, sseq: u32, out: &mut Vec<Match>) {
        let arrived = self.arrived.entry(peer).or_default();
        arrived.numbers.insert(mseq);
        arrived.stream_numbers.insert((stream, sseq));
        self.settle(out);
    }

    pub fn peek(&self, p: &Pattern) -> Option<MsgToken> {
        self.find(p).map(|i| self.waiting[i].a.msg)
    }

    pub fn claim(&mut self, p: &Pattern) -> Option<MsgToken> {
        let i = self.find(p)?;
        Some(self.waiting.remove(i).a.msg)
    }

    pub fn forget(&mut self, msg: MsgToken, out: &mut Vec<Match>) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|w| w.a.msg != msg);
        let found = self.waiting.len() < before;
        self.settle(out);
        found
    }

    pub fn cancel(&mut self, op: OpToken, out: &mut Vec<Match>) -> bool {
        let before = self.posted.len();
        self.posted.retain(|p| p.0.op != op);
        self.settle(out);
        self.posted.len() < before
    }

    pub fn remove_peer(&mut self, peer: u32, ops: &mut Vec<OpToken>, msgs: &mut Vec<MsgToken>) {
        let is_lost = |w: &Waiting| w.a.peer == peer && !self.eligible(w, false);
        let mut lost: Vec<Waiting> = self.waiting.iter().copied().filter(is_lost).collect();
        lost.sort_by_key(|w| w.a.mseq);
        msgs.extend(lost.iter().map(|w| w.a.msg));
        self.waiting.retain(|w| !lost.iter().any(|l| l.a.msg == w.a.msg));
        ops.extend(self.posted.iter().filter(|p| p.0.source == Source::Peer(peer)).map(|p| p.0.op));
        self.posted.retain(|p| p.0.source != Source::Peer(peer));
        self.arrived.remove(&peer);
        *self.lives.entry(peer).or_default() += 1;
    }

    pub fn posted(&self) -> Vec<OpToken> {
        self.posted.iter().map(|p| p.0.op).collect()
    }

    pub fn waiting(&self) -> Vec<MsgToken> {
        self.waiting.iter().map(|w| w.a.msg).collect()
    }

    pub fn behind_gap(&self) -> usize {
        self.waiting.iter().filter(|w| !self.eligible(w, false)).count()
    }
}

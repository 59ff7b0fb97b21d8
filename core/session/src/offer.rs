//! The side of a session that carriers pull from: what may go, and what was taken. What became of
//! it: `fate`.
//!
//! Two carriers may pull from one session: the carrier of everything, and a bulk connection for
//! what is long ([`Line`]). What either was handed and did not report as arrived goes back
//! ([`Session::lost`]) and leaves by the carrier of everything.

use alloc::collections::VecDeque;

use crate::messages::OutMessage;
use crate::rndvs::OutRndv;
use crate::sessions::Common;
use crate::{Carrier, Session};

/// Who pulls.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Line {
    /// The carrier of everything.
    Main,
    /// The bulk connection.
    Bulk,
}

/// Something of several fragments that has bytes to go.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Flow {
    /// A matched message, by its number.
    Message(u64),
    /// Rendezvous data: its place in the table, and which of those that had this place.
    Rndv(u32, u32),
}

/// Bytes that may go now.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Of what.
    pub flow: Flow,
    /// First byte.
    pub from: u64,
    /// One past the last.
    pub to: u64,
}

/// What a carrier took, as it has to remember it until its fate is known.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Fragment {
    /// Bytes of a matched message.
    Message {
        /// Its number.
        mseq: u64,
        /// First byte.
        offset: u32,
        /// Number of bytes.
        len: u32,
    },
    /// A control message.
    Control {
        /// Its number.
        mseq: u64,
    },
    /// Bytes of rendezvous data.
    Rndv {
        /// Its place in the table.
        slot: u32,
        /// Which of those that had this place.
        generation: u32,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        len: u32,
    },
    /// The limits of credit.
    Credit,
    /// A grant.
    Grant {
        /// Of what.
        handle: u64,
    },
    /// That rendezvous data will not come.
    Abort {
        /// Which.
        handle: u64,
        /// Why.
        code: u16,
    },
}

impl Fragment {
    /// Its payload, bytes.
    #[must_use]
    pub fn payload_len(&self) -> u64 {
        match *self {
            Fragment::Message { len, .. } | Fragment::Rndv { len, .. } => u64::from(len),
            Fragment::Control { .. } | Fragment::Credit | Fragment::Grant { .. } | Fragment::Abort { .. } => 0,
        }
    }

    /// `[from, to)` of a flow.
    #[must_use]
    #[inline]
    pub fn of(flow: Flow, from: u64, to: u64) -> Fragment {
        let len = (to - from) as u32;
        match flow {
            Flow::Message(mseq) => Fragment::Message { mseq, offset: from as u32, len },
            Flow::Rndv(slot, generation) => Fragment::Rndv { slot, generation, offset: from, len },
        }
    }
}

/// After so many messages in a row that were answered one by one the next is taken for another of
/// the kind.
const TURNS_LEARNT: u8 = 4;
/// So it is after so many of which none was answered.
const RUN_LEARNT: u8 = 2;

/// What waits for the bulk connection.
#[derive(Debug, Default)]
pub(crate) struct Bulk {
    up: bool,
    /// There is one, or there was.
    had: bool,
    /// Shorter flows do not go by it (0: none goes), ...
    len_min: u64,
    /// ... but one of so many bytes does where the two take turns, or this side sends one after the
    /// other.
    lone_min: u64,
    /// How many times in a row they have, up to [`TURNS_LEARNT`], and it has, up to
    /// [`RUN_LEARNT`].
    turns: u8,
    run: u8,
    /// How many messages had come when the last one of several pieces was let out, and whether any
    /// had since the one before.
    heard: u64,
    was_answered: bool,
    wanted: bool,
    flows: VecDeque<Flow>,
}

impl Bulk {
    pub(crate) fn is_up(&self) -> bool {
        self.up
    }

    /// There was one, and it is over.
    pub(crate) fn is_over(&self) -> bool {
        self.had && !self.up
    }
}

impl Session {
    // What waits.

    /// Longest message with its envelope that goes by the carrier of everything in one piece,
    /// bytes.
    #[inline]
    pub fn set_piece_max(&mut self, bytes: usize) {
        self.piece_max = bytes;
    }

    /// Control messages wait.
    #[must_use]
    #[inline]
    pub fn has_control(&self) -> bool {
        !self.lost_control.is_empty() || self.out.control_next < self.out.control_end()
    }

    /// The same, or they wait for others to have arrived: no more than the window are under way.
    #[must_use]
    pub fn awaits_control(&self) -> bool {
        !self.lost_control.is_empty() || self.out.control_next < self.out.control.next()
    }

    /// Messages or rendezvous data wait for the carrier of everything.
    #[must_use]
    #[inline]
    pub fn has_data(&self) -> bool {
        !self.small.is_empty() || !self.lost.is_empty() || !self.flows.is_empty()
    }

    /// Credit, grants or aborts are to be told.
    #[must_use]
    #[inline]
    pub fn has_notices(&self) -> bool {
        self.credit_dirty || !self.grants_dirty.is_empty() || !self.aborts.is_empty()
    }

    /// Packets carry what it sends, and it has nothing to send, to tell or to wait for.
    #[must_use]
    #[inline]
    pub fn is_calm(&self) -> bool {
        self.carrier() == Carrier::Link
            && !self.has_data()
            && !self.has_control()
            && !self.has_notices()
            && self.deadline().is_none()
            && !self.bulk.wanted
    }

    /// Messages of one piece wait.
    #[must_use]
    #[inline]
    pub fn small_waiting(&self) -> usize {
        self.small.len()
    }

    /// What waits for the carrier of everything are few messages of one piece, of `most` bytes
    /// together at most.
    #[must_use]
    pub fn waits_short(&self, most: u64) -> bool {
        const FEW: usize = 8;
        let is_small = self.flows.is_empty() && self.lost.is_empty() && (1..=FEW).contains(&self.small.len());
        is_small && self.waiting_bytes(FEW) <= most
    }

    /// Flows wait for the carrier of everything.
    #[must_use]
    #[inline]
    pub fn flows_waiting(&self) -> usize {
        self.flows.len()
    }

    /// Fragments wait to be sent again.
    #[must_use]
    #[inline]
    pub fn lost_waiting(&self) -> usize {
        self.lost.len()
    }

    /// Bytes of messages and rendezvous data that wait for the carrier of everything, or will: of
    /// the first `most` of each line.
    #[must_use]
    pub fn waiting_bytes(&self, most: usize) -> u64 {
        let flow = |f: &Flow| match *f {
            Flow::Message(mseq) => self.out.matched.get(mseq).map_or(0, |m| u64::from(m.len.saturating_sub(m.sent))),
            Flow::Rndv(slot, generation) => {
                self.rndvs_out.current(slot, generation).map_or(0, |b| b.len.saturating_sub(b.sent))
            }
        };
        let small = |mseq: &u64| flow(&Flow::Message(*mseq));
        let flows: u64 = self.flows.iter().take(most).map(flow).sum();
        let smalls: u64 = self.small.iter().take(most).map(small).sum();
        let lost: u64 = self.lost.iter().take(most).map(Fragment::payload_len).sum();
        flows + smalls + lost
    }

    /// Bytes of the first `most` flows that may go now, without a further grant.
    #[must_use]
    pub fn open_bytes(&self, most: usize) -> u64 {
        let open = |f: &Flow| match *f {
            Flow::Message(mseq) => self.out.matched.get(mseq).map_or(0, |m| u64::from(m.len.saturating_sub(m.sent))),
            Flow::Rndv(slot, generation) => {
                self.rndvs_out.current(slot, generation).map_or(0, |b| b.granted.saturating_sub(b.sent))
            }
        };
        self.flows.iter().take(most).map(open).sum()
    }

    /// `lone`: it is one of those that are [of a kind](Session::is_of_a_kind).
    pub(crate) fn enqueue(&mut self, flow: Flow, len: u64, lone: bool) {
        if self.bulk.len_min > 0 && (len >= self.bulk.len_min || (lone && len >= self.bulk.lone_min)) {
            if self.bulk.up {
                self.bulk.flows.push_back(flow);
                return;
            }
            self.bulk.wanted = true;
        }
        self.flows.push_back(flow);
    }

    /// A message of several pieces is let out. Whether it and the last ones, all to this peer only,
    /// were each sent alone and answered, or none was answered: else packets could share system
    /// calls, and what goes by TCP would be read after what goes behind it in packets.
    pub(crate) fn is_of_a_kind(&mut self, common: &mut Common) -> bool {
        // (The last one may have been answered and not acknowledged: a record acknowledges no
        // packet.)
        let alone = self.messages_open() <= 2 && self.rndvs_out.open() == 0;
        let same = common.last_flow.replace(self.peer) == Some(self.peer);
        let bulk = &mut self.bulk;
        let answered = core::mem::replace(&mut bulk.heard, self.inn.announced()) != self.inn.announced();
        let was_answered = core::mem::replace(&mut bulk.was_answered, answered);
        bulk.turns = if alone && answered && same { (bulk.turns + 1).min(TURNS_LEARNT) } else { 0 };
        bulk.run = match (same, answered) {
            (true, false) => (bulk.run + 1).min(RUN_LEARNT),
            // Who is told now and then that all has come goes on.
            (true, true) if bulk.run == RUN_LEARNT && !was_answered => RUN_LEARNT,
            _ => 0,
        };
        bulk.turns == TURNS_LEARNT || bulk.run == RUN_LEARNT
    }

    /// A message of one piece is let out: what follows it by TCP would be read before it.
    #[inline]
    pub(crate) fn ends_run(&mut self) {
        self.bulk.run = 0;
    }

    /// It may send: it stands in line.
    pub(crate) fn queue_rndv(&mut self, slot: u32) {
        if let Some(b) = self.rndvs_out.get_mut(slot)
            && !b.queued
            && (b.granted > b.sent)
        {
            b.queued = true;
            let (flow, len) = (Flow::Rndv(slot, b.generation), b.len);
            self.enqueue(flow, len, false);
        }
    }

    // Credit, grants, aborts.

    /// The limits of credit, if they are to be told.
    pub fn take_credit(&mut self, common: &mut Common) -> Option<(u64, u64)> {
        let goes = self.credit_dirty || (self.credit_waits() && self.has_data());
        goes.then(|| {
            common.counters.credits_sent += 1;
            self.credit_told()
        })
    }

    /// New limits of credit wait for something that takes them along.
    #[must_use]
    #[inline]
    pub fn credit_waits(&self) -> bool {
        self.credit_at.is_some()
    }

    /// The limits of credit (messages, bytes), which the peer is told now.
    pub fn credit_told(&mut self) -> (u64, u64) {
        self.credit_dirty = false;
        self.credit_at = None;
        self.inn.advertise()
    }

    /// The next grant: handle and limit.
    pub fn take_grant(&mut self, common: &mut Common) -> Option<(u64, u64)> {
        while let Some(handle) = self.grants_dirty.pop_front() {
            let Some(b) = self.rndvs_in.get_mut(handle) else { continue };
            b.grant_dirty = false;
            common.counters.grants_sent += 1;
            self.counts.grants_sent += 1;
            return Some((handle, b.granted));
        }
        None
    }

    /// The next abort: handle and code.
    pub fn take_abort(&mut self) -> Option<(u64, u16)> {
        self.aborts.pop_front()
    }

    // Control messages.

    /// The next control message, with its number, and whether it is sent again.
    #[inline]
    pub fn next_control(&mut self) -> Option<(u64, &OutMessage, bool)> {
        loop {
            let again = self.lost_control.front().copied();
            let mseq = again.unwrap_or(self.out.control_next);
            if again.is_none() && mseq >= self.out.control_end() {
                return None;
            }
            if self.out.control.get(mseq).is_some_and(|m| m.missing(0, u32::MAX).is_some()) {
                let m = self.out.control.get(mseq)?;
                return Some((mseq, m, again.is_some()));
            }
            // Settled meanwhile.
            self.drop_control_front(again.is_some());
        }
    }

    /// The carrier took it.
    #[inline]
    pub fn took_control(&mut self) {
        let again = !self.lost_control.is_empty();
        if !again {
            let mseq = self.out.control_next;
            let len = self.out.control.get(mseq).map_or(0, |m| m.len);
            self.out.control.advance(mseq, len);
        }
        self.drop_control_front(again);
    }

    fn drop_control_front(&mut self, again: bool) {
        if again {
            self.lost_control.pop_front();
        } else {
            self.out.control_next += 1;
        }
    }

    // Messages of one piece.

    /// The next of them.
    #[inline]
    pub fn next_small(&mut self) -> Option<Piece> {
        while let Some(&mseq) = self.small.front() {
            if let Some(m) = self.out.matched.get(mseq) {
                return Some(Piece { flow: Flow::Message(mseq), from: u64::from(m.sent), to: u64::from(m.len) });
            }
            self.small.pop_front();
        }
        if self.small.capacity() > 64 {
            self.small.shrink_to(16);
        }
        None
    }

    /// The carrier took it up to `to`; if that is not all of it (the carrier's pieces have become
    /// shorter), the rest is the next one.
    #[inline]
    pub fn took_small(&mut self, to: u64) {
        let Some(&mseq) = self.small.front() else { return };
        self.out.matched.advance(mseq, to as u32);
        if self.out.matched.get(mseq).is_none_or(|m| to == u64::from(m.len)) {
            self.small.pop_front();
        }
    }

    // Flows.

    fn line(&mut self, line: Line) -> &mut VecDeque<Flow> {
        match line {
            Line::Main => &mut self.flows,
            Line::Bulk => &mut self.bulk.flows,
        }
    }

    /// What of a flow may go now.
    fn piece(&mut self, flow: Flow) -> Option<Piece> {
        match flow {
            Flow::Message(mseq) => {
                let m = self.out.matched.get(mseq).filter(|m| m.has_more())?;
                Some(Piece { flow, from: u64::from(m.sent), to: u64::from(m.len) })
            }
            Flow::Rndv(slot, generation) => {
                let b = self.rndvs_out.get_mut(slot).filter(|b| b.generation == generation)?;
                b.queued = b.sent < b.granted;
                b.queued.then_some(Piece { flow, from: b.sent, to: b.granted })
            }
        }
    }

    /// The flow at the front of a line. One that has nothing left to go leaves it.
    #[inline]
    pub fn next_flow(&mut self, line: Line) -> Option<Piece> {
        while let Some(flow) = self.line(line).front().copied() {
            if let Some(piece) = self.piece(flow) {
                return Some(piece);
            }
            self.line(line).pop_front();
        }
        None
    }

    /// The carrier took the flow at the front up to `to`. True if it has left the line.
    #[inline]
    pub fn took_flow(&mut self, line: Line, to: u64) -> bool {
        let Some(flow) = self.line(line).front().copied() else { return true };
        let ends = self.advance(flow, to);
        if ends {
            self.line(line).pop_front();
        }
        ends
    }

    fn advance(&mut self, flow: Flow, to: u64) -> bool {
        match flow {
            Flow::Message(mseq) => {
                self.out.matched.advance(mseq, to as u32);
                self.out.matched.get(mseq).is_none_or(|m| m.sent >= m.len)
            }
            Flow::Rndv(slot, _) => self.rndvs_out.get_mut(slot).is_none_or(|b| {
                b.sent = to;
                b.queued = to < b.granted;
                !b.queued
            }),
        }
    }

    /// The front one has had its turn.
    pub fn end_turn(&mut self, line: Line) {
        let flows = self.line(line);
        if flows.len() > 1 {
            flows.rotate_left(1);
        }
    }

    /// A part of it was taken, and more of it may go now.
    #[must_use]
    pub fn is_begun(&self, flow: Flow) -> bool {
        match flow {
            Flow::Message(mseq) => self.out.matched.get(mseq).is_some_and(|m| m.sent > 0 && m.sent < m.len),
            Flow::Rndv(slot, generation) => {
                self.rndvs_out.current(slot, generation).is_some_and(|b| b.sent > 0 && b.sent < b.granted)
            }
        }
    }

    /// Rendezvous data that has not arrived completely, if it is still that of this place.
    #[must_use]
    #[inline]
    pub fn rndv(&self, slot: u32, generation: u32) -> Option<&OutRndv> {
        self.rndvs_out.current(slot, generation)
    }

    /// Rendezvous data under way with this handle.
    #[must_use]
    pub fn rndv_of(&self, handle: u64) -> Option<(Flow, &OutRndv)> {
        let slot = self.rndvs_out.slot_of(handle)?;
        let b = self.rndvs_out.get(slot)?;
        Some((Flow::Rndv(slot, b.generation), b))
    }

    // The bulk connection.

    /// Flows of `len_min` bytes and more may go by a bulk connection (0: none may), and those of
    /// `lone_min` where messages go by turns or follow each other.
    pub fn allow_bulk(&mut self, len_min: u64, lone_min: u64) {
        (self.bulk.len_min, self.bulk.lone_min) = (len_min, lone_min);
    }

    /// Flows wait for the bulk connection.
    #[must_use]
    #[inline]
    pub fn waits_for_bulk(&self) -> bool {
        !self.bulk.flows.is_empty()
    }

    /// Something that would go by a bulk connection was queued, and there is none. Says so once.
    pub fn take_bulk_wanted(&mut self) -> bool {
        core::mem::take(&mut self.bulk.wanted)
    }

    /// There is a bulk connection. With the first one the peer gets more credit, and keeps it, if
    /// that much is left of what all peers may get (`spec/bulk.md` L-6.8).
    pub fn bulk_begins(&mut self, common: &mut Common) {
        (self.bulk.up, self.bulk.had) = (true, true);
        self.let_in(common, common.cfg.bulk_credit());
    }

    /// The peer gets so many bytes of credit beside its initial, if it has less, and that much is
    /// left of what all peers may get.
    fn let_in(&mut self, common: &mut Common, more: u64) {
        let has = self.inn.bulk_bytes();
        if more > has && self.down.is_none() && common.take_bulk_credit(more - has) {
            self.inn.let_in(more);
            self.credit_dirty = true;
        }
    }

    /// The round trip is long: the peer gets more credit, as with a bulk connection
    /// (`spec/protocol.md` P-5.27), for who waits for an answer over it waits for long.
    pub fn path_is_long(&mut self, common: &mut Common) {
        self.let_in(common, common.cfg.long_credit());
    }

    /// Bytes that the peer may send beside its initial credit, as it has a bulk connection or had
    /// one, or is far away.
    #[must_use]
    pub fn bulk_credit(&self) -> u64 {
        self.inn.bulk_bytes()
    }

    /// Whether there is one.
    #[must_use]
    #[inline]
    pub fn has_bulk(&self) -> bool {
        self.bulk.up
    }

    /// It is gone: what waited for it goes by the carrier of everything. What it had taken is told
    /// by [`Session::lost`].
    pub fn bulk_ends(&mut self, common: &mut Common) {
        self.bulk.up = false;
        common.grants.bulk_over(self.peer);
        // What the last heads said of credit may have gone with them.
        self.credit_at = None;
        self.credit_dirty = true;
        self.flows.extend(core::mem::take(&mut self.bulk.flows));
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{Config, FragmentIn, Message, PeerId, Sessions, Terms};

    pub(crate) const PEER: PeerId = PeerId(0);
    const ENVELOPE: &[u8] = &[1, 2, 3, 4];
    /// Longest message that goes in one piece here.
    const SMALL: u32 = 1000 - ENVELOPE.len() as u32;

    /// A session that is up, with room for anything.
    pub(crate) fn up(cfg: Config) -> Sessions {
        let mut all = Sessions::new(cfg);
        assert_eq!(all.add(), PEER);
        let (s, common) = all.get_mut(PEER).expect("added");
        s.set_piece_max(1000);
        assert!(s.begin(common, Terms { credit_msgs: 1000, credit_bytes: 1 << 20 }));
        all
    }

    pub(crate) fn message(len: u32, token: u64) -> Message<'static> {
        Message { control: false, stream: 0, envelope: ENVELOPE, len, patient: false, token }
    }

    pub(crate) fn control(token: u64) -> Message<'static> {
        Message { control: true, ..message(8, token) }
    }

    pub(crate) fn send(all: &mut Sessions, messages: &[Message<'_>]) {
        for m in messages {
            all.send(PEER, m).expect("accepted");
        }
    }

    pub(crate) fn with<T>(all: &mut Sessions, f: impl FnOnce(&mut Session, &mut Common) -> T) -> T {
        let (s, common) = all.get_mut(PEER).expect("added");
        f(s, common)
    }

    pub(crate) fn of_message(mseq: u64, from: u64, to: u64) -> Option<Piece> {
        Some(Piece { flow: Flow::Message(mseq), from, to })
    }

    pub(crate) fn fragment(mseq: u64, offset: u32, len: u32) -> Fragment {
        Fragment::Message { mseq, offset, len }
    }

    #[test]
    fn what_fits_one_piece_goes_before_the_row_of_what_does_not() {
        let mut all = up(Config::default());
        send(&mut all, &[message(SMALL + 1, 0), message(SMALL, 1), message(0, 2)]);
        with(&mut all, |s, _| {
            assert_eq!((s.small_waiting(), s.flows_waiting(), s.has_data()), (2, 1, true));
            assert_eq!(s.next_small(), of_message(1, 0, SMALL.into()));
            assert_eq!(s.next_small(), of_message(1, 0, SMALL.into()), "until it was taken");
            s.took_small(SMALL.into());
            assert_eq!(s.next_small(), of_message(2, 0, 0));
            s.took_small(0);
            assert_eq!(s.next_small(), None);
            assert_eq!(s.next_flow(Line::Main), of_message(0, 0, (SMALL + 1).into()));
            assert!(s.took_flow(Line::Main, (SMALL + 1).into()));
            assert_eq!((s.next_flow(Line::Main), s.has_data(), s.queued()), (None, false, 0));
        });
    }

    #[test]
    fn a_message_whose_carrier_takes_shorter_pieces_by_now_goes_on_where_it_was() {
        let mut all = up(Config::default());
        send(&mut all, &[message(900, 0), message(5, 1)]);
        with(&mut all, |s, _| {
            s.next_small();
            s.took_small(600);
            assert_eq!(s.next_small(), of_message(0, 600, 900));
            s.took_small(900);
            assert_eq!(s.next_small(), of_message(1, 0, 5));
        });
    }

    // spec: P-5.1
    #[test]
    fn only_what_credit_covers_is_offered_and_the_rest_when_there_is_more() {
        let mut all = Sessions::new(Config::default());
        all.add();
        send(&mut all, &[message(600, 0), message(600, 1), message(1, 2)]);
        with(&mut all, |s, common| {
            s.set_piece_max(1000);
            assert!(!s.has_data(), "before the terms are known");
            assert!(s.begin(common, Terms { credit_msgs: 10, credit_bytes: 1000 }));
            assert_eq!((s.small_waiting(), s.messages_waiting()), (1, 2), "none passes one that waits");
            s.on_credit(common, 10, 1201);
            assert_eq!((s.small_waiting(), s.messages_waiting()), (3, 0));
        });
    }

    #[test]
    fn flows_take_turns_and_stay_until_their_last_byte_is_taken() {
        let mut all = up(Config::default());
        send(&mut all, &[message(5000, 0), message(6000, 1)]);
        with(&mut all, |s, _| {
            assert!(!s.took_flow(Line::Main, 2000));
            s.end_turn(Line::Main);
            assert_eq!(s.next_flow(Line::Main), of_message(1, 0, 6000));
            s.end_turn(Line::Main);
            assert_eq!(s.next_flow(Line::Main), of_message(0, 2000, 5000));
            assert!(s.took_flow(Line::Main, 5000));
            s.end_turn(Line::Main);
            assert_eq!(s.next_flow(Line::Main), of_message(1, 0, 6000), "alone it has each turn");
            assert_eq!(s.next_flow(Line::Bulk), None);
        });
    }

    #[test]
    fn rendezvous_data_is_offered_as_far_as_it_is_granted() {
        let mut all = up(Config::default());
        all.send_rndv(PEER, 7, 0, 10_000, 40).expect("accepted");
        with(&mut all, |s, common| {
            assert_eq!(s.next_flow(Line::Main), None);
            s.on_grant(common, 7, 3000);
            s.on_grant(common, 7, 2000);
            let (flow, _) = s.rndv_of(7).expect("under way");
            assert_eq!((s.flows_waiting(), s.next_flow(Line::Main)), (1, Some(Piece { flow, from: 0, to: 3000 })));
            assert!(s.took_flow(Line::Main, 3000), "it leaves the line until there is more");
            s.on_grant(common, 7, u64::MAX);
            assert_eq!(s.next_flow(Line::Main), Some(Piece { flow, from: 3000, to: 10_000 }));
            assert!(s.took_flow(Line::Main, 10_000));
            let Flow::Rndv(slot, generation) = flow else { panic!("a rendezvous transfer") };
            let part = |offset, len| Fragment::Rndv { slot, generation, offset, len };
            assert_eq!(s.arrived(common, &part(4000, 6000)), None);
            assert_eq!(s.arrived(common, &part(0, 4000)), Some(40));
            assert_eq!(
                (s.arrived(common, &part(0, 4000)), s.rndv_of(7).is_none(), common.counters.rndvs_sent),
                (None, true, 1)
            );
        });
    }

    /// With a bulk connection that takes flows of 5000 bytes, of a kind those of 2000; and what has
    /// a message of the peer's come.
    fn with_bulk() -> (Sessions, impl FnMut(&mut Sessions)) {
        let mut all = up(Config::default());
        with(&mut all, |s, common| {
            s.allow_bulk(5000, 2000);
            s.bulk_begins(common);
        });
        let mut come = 0;
        let hears = move |all: &mut Sessions| {
            let f = FragmentIn { stream: 0, mseq: come, sseq: come as u32, total_len: 8, offset: 0 };
            come += 1;
            with(all, |s, common| s.on_message(common, &f, &(0..0), &(0..8), &mut alloc::vec::Vec::new()))
                .expect("good");
        };
        (all, hears)
    }

    // spec: L-6.3
    #[test]
    fn short_flows_that_are_answered_one_by_one_go_by_the_bulk_connection() {
        let (mut all, mut hears) = with_bulk();
        // Sends one, which arrives. By what it went.
        let mut out = 0;
        let mut sent = |all: &mut Sessions, len: u32| {
            send(all, &[message(len, out)]);
            out += 1;
            with(all, |s, common| {
                let line = if s.next_flow(Line::Bulk).is_some() { Line::Bulk } else { Line::Main };
                assert!(s.took_flow(line, len.into()));
                s.arrived(common, &fragment(out - 1, 0, len));
                line
            })
        };
        for round in 0..3 {
            for turn in 0..6 {
                let learnt = turn >= if round == 0 { 4 } else { 3 };
                hears(&mut all);
                assert_eq!(sent(&mut all, 2000), if learnt { Line::Bulk } else { Line::Main }, "{round} {turn}");
            }
            hears(&mut all);
            assert_eq!(sent(&mut all, 1999), Line::Main);
            assert_eq!(sent(&mut all, 2000), Line::Main, "the last was not answered");
        }
        for other in [true, false] {
            for _ in 0..6 {
                hears(&mut all);
                sent(&mut all, 2000);
            }
            hears(&mut all);
            if other {
                with(&mut all, |_, common| common.last_flow = Some(PeerId(7)));
            }
            assert_eq!(sent(&mut all, 2000), if other { Line::Main } else { Line::Bulk }, "one between: {other}");
        }
        // What had arrived, and was sent by turns, is no reason while others are open.
        send(&mut all, &[message(1, 100), message(1, 101)]);
        hears(&mut all);
        send(&mut all, &[message(2000, 102)]);
        with(&mut all, |s, _| assert_eq!(s.next_flow(Line::Bulk), None));
    }

    // spec: L-6.10
    #[test]
    fn short_flows_that_follow_each_other_go_by_the_bulk_connection() {
        let (mut all, mut hears) = with_bulk();
        let mut out = 0;
        let mut sent = |all: &mut Sessions, len: u32| {
            send(all, &[message(len, out)]);
            out += 1;
            with(all, |s, _| {
                let line = if s.waits_for_bulk() { Line::Bulk } else { Line::Main };
                assert!(s.took_flow(line, len.into()));
                line
            })
        };
        let (main, bulk) = (Line::Main, Line::Bulk);
        assert_eq!([2000; 4].map(|len| sent(&mut all, len)), [main, main, bulk, bulk], "the first has none before it");
        assert_eq!(sent(&mut all, 1999), main);
        hears(&mut all);
        assert_eq!([2000; 2].map(|len| sent(&mut all, len)), [bulk; 2], "told of all of them");
        hears(&mut all);
        assert_eq!(sent(&mut all, 2000), bulk);
        hears(&mut all);
        assert_eq!([2000; 3].map(|len| sent(&mut all, len)), [main, main, bulk], "twice in a row: an exchange");
        with(&mut all, |_, common| common.last_flow = Some(PeerId(7)));
        assert_eq!([2000; 3].map(|len| sent(&mut all, len)), [main, main, bulk], "another's in between");
    }

    #[test]
    fn long_flows_go_by_the_bulk_connection_while_there_is_one() {
        let mut all = up(Config::default());
        with(&mut all, |s, _| s.allow_bulk(5000, 5000));
        send(&mut all, &[message(4999, 0)]);
        assert!(!with(&mut all, |s, _| s.take_bulk_wanted()));
        send(&mut all, &[message(5000, 1)]);
        with(&mut all, |s, common| {
            assert!(s.take_bulk_wanted() && !s.take_bulk_wanted(), "said once");
            assert_eq!((s.flows_waiting(), s.next_flow(Line::Bulk)), (2, None));
            s.bulk_begins(common);
        });
        send(&mut all, &[message(6000, 2), message(4000, 3)]);
        with(&mut all, |s, common| {
            assert_eq!((s.has_bulk(), s.take_bulk_wanted(), s.flows_waiting()), (true, false, 3));
            assert_eq!(s.next_flow(Line::Bulk), of_message(2, 0, 6000));
            assert!(!s.took_flow(Line::Bulk, 2000));
            while s.next_flow(Line::Main).is_some_and(|p| s.took_flow(Line::Main, p.to)) {}
            assert!(!s.has_data(), "what waits for the one is nothing to the other");
            s.take_credit(common);
            // It breaks in the middle: what it had taken is told as lost, what it had not goes on.
            s.bulk_ends(common);
            s.lost(fragment(2, 0, 2000));
            assert_eq!((s.has_bulk(), s.next_flow(Line::Bulk)), (false, None));
            assert_eq!(s.next_lost(), of_message(2, 0, 2000));
            assert_eq!(s.next_flow(Line::Main), of_message(2, 2000, 6000));
            assert!(s.take_credit(common).is_some(), "what its last heads said of credit may be lost");
        });
    }
}

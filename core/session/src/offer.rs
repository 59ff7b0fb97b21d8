//! The side of a session that carriers pull from: what may go, what was taken, and what became of it.
//!
//! Two carriers may pull from one session: the carrier of everything, and a bulk connection for what is long ([`Line`]). What either was handed and did not report as arrived goes back
//! ([`Session::lost`]) and leaves by the carrier of everything.

use alloc::collections::VecDeque;

use crate::Session;
use crate::bodies::OutBody;
use crate::messages::OutMessage;
use crate::sessions::Common;

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
    Body(u32, u32),
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
    Body {
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
            Fragment::Message { len, .. } | Fragment::Body { len, .. } => u64::from(len),
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
            Flow::Body(slot, generation) => Fragment::Body { slot, generation, offset: from, len },
        }
    }
}

/// What waits for the bulk connection.
#[derive(Debug, Default)]
pub(crate) struct Bulk {
    up: bool,
    /// Shorter flows do not go by it (0: none goes).
    len_min: u64,
    wanted: bool,
    flows: VecDeque<Flow>,
}

impl Bulk {
    pub(crate) fn is_up(&self) -> bool {
        self.up
    }
}

impl Session {
    // What waits.

    /// Longest message with its envelope that goes by the carrier of everything in one piece, bytes.
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

    /// Messages of one piece wait.
    #[must_use]
    #[inline]
    pub fn small_waiting(&self) -> usize {
        self.small.len()
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

    pub(crate) fn enqueue(&mut self, flow: Flow, len: u64) {
        if self.bulk.len_min > 0 && len >= self.bulk.len_min {
            if self.bulk.up {
                self.bulk.flows.push_back(flow);
                return;
            }
            self.bulk.wanted = true;
        }
        self.flows.push_back(flow);
    }

    /// It may send: it stands in line.
    pub(crate) fn queue_body(&mut self, slot: u32) {
        if let Some(b) = self.bodies_out.get_mut(slot)
            && !b.queued
            && (b.granted > b.sent)
        {
            b.queued = true;
            let (flow, len) = (Flow::Body(slot, b.generation), b.len);
            self.enqueue(flow, len);
        }
    }

    // Credit, grants, aborts.

    /// The limits of credit, if they are to be told.
    pub fn take_credit(&mut self, common: &mut Common) -> Option<(u64, u64)> {
        if !self.credit_dirty {
            return None;
        }
        common.counters.credits_sent += 1;
        Some(self.credit_told())
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
            let Some(b) = self.bodies_in.get_mut(handle) else { continue };
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

    /// The carrier took it up to `to`; if that is not all of it (the carrier's pieces have become shorter), the rest is the next one.
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
            Flow::Body(slot, generation) => {
                let b = self.bodies_out.get_mut(slot).filter(|b| b.generation == generation)?;
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
            Flow::Body(slot, _) => self.bodies_out.get_mut(slot).is_none_or(|b| {
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

    /// Rendezvous data that has not arrived completely, if it is still that of this place.
    #[must_use]
    #[inline]
    pub fn body(&self, slot: u32, generation: u32) -> Option<&OutBody> {
        self.bodies_out.current(slot, generation)
    }

    /// Rendezvous data under way with this handle.
    #[must_use]
    pub fn body_of(&self, handle: u64) -> Option<(Flow, &OutBody)> {
        let slot = self.bodies_out.slot_of(handle)?;
        let b = self.bodies_out.get(slot)?;
        Some((Flow::Body(slot, b.generation), b))
    }

    // What is sent again.

    /// The oldest that is still missing.
    #[inline]
    pub fn next_lost(&mut self) -> Option<Piece> {
        while let Some(f) = self.lost.front().copied() {
            let missing = match f {
                Fragment::Message { mseq, offset, len } => {
                    let gap = self.out.matched.get(mseq).and_then(|m| m.missing(offset, len));
                    gap.map(|(a, b)| (Flow::Message(mseq), u64::from(a), u64::from(b)))
                }
                Fragment::Body { slot, generation, offset, len } => {
                    let gap = self.bodies_out.missing(slot, generation, offset, len);
                    gap.map(|(a, b)| (Flow::Body(slot, generation), a, b))
                }
                _ => None,
            };
            if let Some((flow, from, to)) = missing {
                return Some(Piece { flow, from, to });
            }
            self.lost.pop_front();
        }
        if self.lost.capacity() > 64 {
            self.lost.shrink_to(16);
        }
        None
    }

    /// The carrier took of it what lies before `to`.
    pub fn took_lost(&mut self, to: u64) {
        let rest = match self.lost.front() {
            Some(&Fragment::Message { mseq, offset, len }) => {
                let end = u64::from(offset) + u64::from(len);
                (to < end).then(|| Fragment::of(Flow::Message(mseq), to, end))
            }
            Some(&Fragment::Body { slot, generation, offset, len }) => {
                let end = offset + u64::from(len);
                (to < end).then(|| Fragment::of(Flow::Body(slot, generation), to, end))
            }
            _ => None,
        };
        match rest {
            Some(r) => self.lost[0] = r,
            None => {
                self.lost.pop_front();
            }
        }
    }

    // Fate.

    /// It has arrived. The token of what has arrived completely by that.
    #[inline]
    pub fn arrived(&mut self, common: &mut Common, f: &Fragment) -> Option<u64> {
        match *f {
            Fragment::Message { mseq, offset, len } => self.out.matched.acked(mseq, offset, len),
            Fragment::Control { mseq } => {
                let len = self.out.control.get(mseq).map_or(0, |m| m.len);
                self.out.control.acked(mseq, 0, len)
            }
            Fragment::Body { slot, generation, offset, len } => {
                let t = self.bodies_out.acked(slot, generation, offset, u64::from(len));
                common.counters.bodies_sent += u64::from(t.is_some());
                t
            }
            Fragment::Credit | Fragment::Grant { .. } | Fragment::Abort { .. } => None,
        }
    }

    /// The peer said that rendezvous data arrived in more pieces than an honest one would.
    #[must_use]
    pub fn is_shredded(&self) -> bool {
        self.bodies_out.is_shredded()
    }

    /// It was lost, or its carrier is gone: it is to be sent again, as far as it still matters.
    pub fn lost(&mut self, f: Fragment) {
        match f {
            Fragment::Message { .. } | Fragment::Body { .. } => self.lost.push_back(f),
            Fragment::Control { mseq } => self.lost_control.push_back(mseq),
            Fragment::Credit => self.credit_dirty = true,
            Fragment::Grant { handle } => {
                if let Some(b) = self.bodies_in.get_mut(handle)
                    && !b.grant_dirty
                {
                    b.grant_dirty = true;
                    self.grants_dirty.push_back(handle);
                }
            }
            Fragment::Abort { handle, code } => self.aborts.push_back((handle, code)),
        }
    }

    // The bulk connection.

    /// Flows of `len_min` bytes and more may go by a bulk connection (0: none may).
    pub fn allow_bulk(&mut self, len_min: u64) {
        self.bulk.len_min = len_min;
    }

    /// Something that would go by a bulk connection was queued, and there is none. Says so once.
    pub fn take_bulk_wanted(&mut self) -> bool {
        core::mem::take(&mut self.bulk.wanted)
    }

    /// There is a bulk connection.
    pub fn bulk_begins(&mut self) {
        self.bulk.up = true;
    }

    /// Whether there is one.
    #[must_use]
    #[inline]
    pub fn has_bulk(&self) -> bool {
        self.bulk.up
    }

    /// It is gone: what waited for it goes by the carrier of everything. What it had taken is told by [`Session::lost`].
    pub fn bulk_ends(&mut self, common: &mut Common) {
        self.bulk.up = false;
        common.grants.lane_over(self.peer);
        // What the last heads said of credit may have gone with them.
        self.credit_at = None;
        self.credit_dirty = true;
        self.flows.extend(core::mem::take(&mut self.bulk.flows));
    }
}

//! Idle repair: parity fragments on lossy long paths (spec 6).

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use weir_wire::BodyKey;
use weir_wire::frame::{Parity, ParityHead};

use crate::association::{Association, Cx};
use crate::messages::Arrived;
use crate::{Config, Event, Payloads};

/// Parity frames that may wait; more are not worth sending.
const DUE_MAX: usize = 8;
/// Parity costs at most this part of the data.
const SHARE: u64 = 8;
/// A group with fewer fragments is not protected: it would be repetition.
const GROUP_MIN: u8 = 2;

/// Consecutive fragments of equal length of one message or body.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Group {
    key: BodyKey,
    base: u64,
    frag: u16,
    count: u8,
}

/// Sender side: groups of fragments that parity may follow.
#[derive(Debug, Default)]
pub(crate) struct ParitySender {
    /// Loss and round trip of the path are high enough.
    pub(crate) active: bool,
    group: Option<Group>,
    due: VecDeque<Group>,
    /// Data bytes not yet spent on parity.
    budget: u64,
}

impl ParitySender {
    /// A parity fragment waits to be sent.
    pub(crate) fn is_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// The path was measured anew.
    pub(crate) fn set_active(&mut self, active: bool) {
        self.active = active;
        if !active && (self.group.is_some() || self.budget > 0) {
            *self = ParitySender::default();
        }
    }

    /// Fresh bytes `[from, from + len)` of `total` were sent.
    pub(crate) fn note(&mut self, cfg: &Config, key: BodyKey, from: u64, len: u64, total: u64) {
        if !self.active || len == 0 {
            return;
        }
        self.budget = (self.budget + len).min(SHARE * 4 * len.max(1024));
        let joins = self.group.is_some_and(|g| {
            g.key == key && from == g.base + u64::from(g.count) * u64::from(g.frag) && len <= u64::from(g.frag)
        });
        let mut g = match self.group.take() {
            Some(g) if joins => Group { count: g.count + 1, ..g },
            _ => Group { key, base: from, frag: len as u16, count: 1 },
        };
        let last = from + len == total;
        let short = len < u64::from(g.frag);
        if short && !last {
            // A fragment of another length in the middle: what came before it is a group of its own.
            g.count -= 1;
        } else if !last && g.count < cfg.parity_group.min(weir_wire::MAX_PARITY_COUNT) {
            self.group = Some(g);
            return;
        }
        let cost = SHARE * u64::from(g.frag);
        if g.count >= GROUP_MIN && self.budget >= cost && self.due.len() < DUE_MAX {
            self.budget -= cost;
            self.due.push_back(g);
        }
    }

    /// The next group to protect, without taking it.
    pub(crate) fn next(&self) -> Option<Group> {
        self.due.front().copied()
    }

    pub(crate) fn drop_next(&mut self) {
        self.due.pop_front();
    }
}

impl Group {
    /// Fragment length in bytes.
    pub(crate) fn frag(&self) -> usize {
        usize::from(self.frag)
    }

    /// The operation that holds the protected bytes and its length, if they are still there.
    pub(crate) fn source(&self, a: &Association) -> Option<(u64, u64)> {
        match self.key {
            BodyKey::Message(m) => a.out.matched.get(m).filter(|m| !m.is_done()).map(|m| (m.token, u64::from(m.len))),
            BodyKey::Body(h) => a.bodies_out.slot_of(h).and_then(|s| a.bodies_out.get(s)).map(|b| (b.token, b.len)),
        }
    }

    /// Appends the PARITY frame.
    pub(crate) fn write(&self, payloads: &impl Payloads, token: u64, total: u64, out: &mut Vec<u8>) {
        weir_wire::frame::write_parity_head(
            &ParityHead { key: self.key, count: self.count, frag: self.frag, base: self.base },
            out,
        );
        let at = out.len();
        out.resize(at + self.frag(), 0);
        let mut piece = [0u8; 512];
        for k in 0..u64::from(self.count) {
            let start = self.base + k * u64::from(self.frag);
            let len = total.saturating_sub(start).min(u64::from(self.frag)) as usize;
            let mut done = 0;
            while done < len {
                let n = (len - done).min(piece.len());
                payloads.read(token, start + done as u64, &mut piece[..n]);
                for (x, b) in out[at + done..at + done + n].iter_mut().zip(&piece) {
                    *x ^= b;
                }
                done += n;
            }
        }
    }
}

/// The part of one fragment that is missing from a group whose parity has come.
///
/// It need not be the whole fragment: what is sent again may be cut otherwise than it was the first time.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Hole {
    /// First byte of the group.
    pub base: u64,
    /// Length of its fragments.
    pub frag: u16,
    /// Number of its fragments.
    pub count: u8,
    /// First missing byte.
    pub offset: u64,
    /// Number of missing bytes; they lie within one fragment.
    pub len: u16,
}

impl Hole {
    /// The missing bytes, computed in place in `parity` from the bytes of the other fragments.
    ///
    /// `total` is the length of what the group is part of; bytes past it count as zero. `read` copies placed bytes from an
    /// offset on. `None` if it cannot, or if the hole is none of this group.
    pub fn restore<'a>(
        &self,
        total: u64,
        parity: &'a mut [u8],
        mut read: impl FnMut(u64, &mut [u8]) -> bool,
    ) -> Option<&'a [u8]> {
        let frag = u64::from(self.frag);
        let inside = self.offset.checked_sub(self.base)?;
        let (missing, from) = (inside.checked_div(frag)?, inside % frag);
        let missed = parity.get_mut(from as usize..)?.get_mut(..usize::from(self.len))?;
        if missing >= u64::from(self.count) || from + u64::from(self.len) > frag {
            return None;
        }
        let mut piece = [0u8; 512];
        for k in (0..u64::from(self.count)).filter(|k| *k != missing) {
            let start = self.base.checked_add(k * frag + from)?;
            let len = total.saturating_sub(start).min(missed.len() as u64) as usize;
            let mut done = 0u64;
            for part in missed[..len].chunks_mut(piece.len()) {
                let piece = &mut piece[..part.len()];
                if !read(start + done, piece) {
                    return None;
                }
                part.iter_mut().zip(piece).for_each(|(x, b)| *x ^= *b);
                done += part.len() as u64;
            }
        }
        Some(missed)
    }
}

impl Association {
    /// A PARITY frame: if exactly one fragment of its group lacks bytes, those can be restored.
    pub(crate) fn on_parity(&mut self, p: &Parity, events: &mut Vec<Event>) {
        let h = p.head;
        let (lo, hi) = (h.base, h.base + u64::from(h.count) * u64::from(h.frag));
        let mut holes: smallvec::SmallVec<[(u64, u64); 2]> = smallvec::SmallVec::new();
        let collect = |a, b| {
            holes.push((a, b));
            holes.len() < 2
        };
        let known = match h.key {
            BodyKey::Message(m) => self.inn.holes(m, lo, hi, collect).map(u64::from),
            BodyKey::Body(b) => self.bodies_in.holes(b, lo, hi, collect),
        };
        if known.is_none() {
            return;
        }
        if let [(a, b)] = holes[..] {
            let frag = u64::from(h.frag);
            if (a - lo) / frag == (b - 1 - lo) / frag {
                events.push(Event::Parity {
                    peer: self.id,
                    key: h.key,
                    hole: Hole { base: h.base, frag: h.frag, count: h.count, offset: a, len: (b - a) as u16 },
                    payload: p.payload.clone(),
                });
            }
        }
    }

    /// The upper layer restored a range: it has arrived, and the sender is told.
    pub(crate) fn restored(&mut self, cx: &mut Cx<'_>, key: BodyKey, offset: u64, len: u32, events: &mut Vec<Event>) {
        let Ok(len16) = u16::try_from(len) else { return };
        let (message, number, total) = match key {
            BodyKey::Message(mseq) => {
                let Some(total) = self.inn.holes(mseq, 0, 0, |_, _| true) else { return };
                if offset + u64::from(len) > u64::from(total) {
                    return;
                }
                (true, mseq, total)
            }
            BodyKey::Body(handle) if self.bodies_in.get(handle).is_some() => (false, handle, 0),
            BodyKey::Body(_) => return,
        };
        if self.placed(cx, key, total, offset, len, events).is_ok() {
            self.recovered.push_back((message, number, offset, len16));
        }
        cx.counters.parity_used += 1;
    }

    /// Bytes of a message of `total` bytes, or of a body, came otherwise than in packets and are in their place. Returns how many
    /// of them were new. What is complete by them is told by an event without payload.
    pub(crate) fn placed(
        &mut self,
        cx: &mut Cx<'_>,
        key: BodyKey,
        total: u32,
        offset: u64,
        len: u32,
        events: &mut Vec<Event>,
    ) -> Result<u64, &'static str> {
        let peer = self.id;
        match key {
            BodyKey::Message(mseq) => {
                let mut fresh = 0;
                let arrived = self.inn.on_fragment(mseq, total, offset as u32, len, |offset, n, first, complete| {
                    fresh += u64::from(n);
                    if complete {
                        events.push(Event::Message {
                            peer,
                            control: false,
                            stream: 0,
                            mseq,
                            sseq: 0,
                            total_len: total,
                            offset: offset + n,
                            envelope: 0..0,
                            payload: 0..0,
                            first,
                            complete,
                        });
                    }
                });
                self.credit_dirty |= self.inn.gap_closed();
                if let Arrived::Violation(why) = arrived {
                    return Err(why);
                }
                Ok(fresh)
            }
            BodyKey::Body(handle) => {
                let r = self.bodies_in.on_fragment(cx.now, handle, offset, u64::from(len), |offset, n, complete| {
                    if complete {
                        events.push(Event::Body { peer, handle, offset: offset + n, payload: 0..0, complete });
                    }
                })?;
                self.body_progress(cx, handle, &r);
                Ok(r.fresh)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A group of fragments of 100 bytes in the middle of 1000 bytes, the last of them short.
    #[test]
    fn any_part_of_a_fragment_is_restored_and_nothing_else_is_needed() {
        let total = 630;
        let want: Vec<u8> = (0..total as u32).map(|i| (i * i / 7 + 3) as u8).collect();
        let (base, frag, count) = (200u64, 100u16, 5u8);
        let mut parity = [0u8; 100];
        for (i, b) in want[200..].iter().enumerate() {
            parity[i % 100] ^= b;
        }
        for (offset, len) in [(200, 100), (300, 1), (399, 1), (340, 60), (300, 40), (320, 50), (600, 30), (610, 20)] {
            let hole = Hole { base, frag, count, offset, len };
            let gone = offset as usize..offset as usize + usize::from(len);
            let mut sum = parity;
            let got = hole.restore(total, &mut sum, |at, dst| {
                let from = at as usize..at as usize + dst.len();
                assert!(from.end <= gone.start || from.start >= gone.end, "missing bytes are read");
                dst.copy_from_slice(&want[from]);
                true
            });
            assert_eq!(got, Some(&want[gone]), "{hole:?}");
        }
    }

    #[test]
    fn what_is_no_hole_of_the_group_or_cannot_be_read_is_not_restored() {
        let hole = Hole { base: 200, frag: 100, count: 2, offset: 250, len: 50 };
        let restore = |h: Hole, read: bool| h.restore(1000, &mut [0; 100], |_, _| read).is_some();
        assert!(restore(hole, true));
        assert!(!restore(hole, false));
        for wrong in [
            Hole { offset: 199, ..hole },
            Hole { offset: 400, ..hole },
            Hole { len: 51, ..hole },
            Hole { frag: 0, ..hole },
            Hole { frag: 200, offset: 200, len: 101, ..hole },
        ] {
            assert!(!restore(wrong, true), "{wrong:?}");
        }
    }
}

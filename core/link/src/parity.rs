//! Idle repair: parity fragments on lossy long paths (spec 6).

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use weir_session::Session;
use weir_wire::DataKey;
use weir_wire::frame::ParityHead;

use crate::{Config, Payloads};

/// Parity frames that may wait; more are not worth sending.
const DUE_MAX: usize = 8;
/// Parity costs at most this part of the data.
const SHARE: u64 = 8;
/// A group with fewer fragments is not protected: it would be repetition.
const GROUP_MIN: u8 = 2;

/// Consecutive fragments of equal length of one message or rendezvous data.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Group {
    key: DataKey,
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
    pub(crate) fn note(&mut self, cfg: &Config, key: DataKey, from: u64, len: u64, total: u64) {
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
            // A fragment of another length in the middle: what came before it is a group of its
            // own.
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
    pub(crate) fn source(&self, s: &Session) -> Option<(u64, u64)> {
        match self.key {
            DataKey::Message(m) => s.message(m).filter(|m| !m.is_done()).map(|m| (m.token, u64::from(m.len))),
            DataKey::Rndv(h) => s.rndv_of(h).map(|(_, b)| (b.token, b.len)),
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

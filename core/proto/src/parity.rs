//! Idle repair: parity fragments on lossy long paths (spec 6).

use alloc::vec::Vec;

use weir_wire::BodyKey;
use weir_wire::frame::Parity;

use crate::association::{Association, Cx};
use crate::{Config, Event};

/// Sender side: groups of fragments that parity may follow.
#[derive(Debug, Default)]
pub(crate) struct ParitySender {}

impl ParitySender {
    /// A parity fragment waits to be sent.
    pub(crate) fn is_due(&self) -> bool {
        false
    }

    /// Fresh bytes were sent.
    pub(crate) fn note(&mut self, _cfg: &Config, _key: BodyKey, _from: u64, _len: u64, _total: u64) {}
}

impl Association {
    /// A PARITY frame: if exactly one fragment of its group lacks bytes, those can be restored.
    pub(crate) fn on_parity(&mut self, _cx: &mut Cx<'_>, p: &Parity, events: &mut Vec<Event>) {
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
                    base: h.base,
                    frag: h.frag,
                    count: h.count,
                    hole_offset: a,
                    hole_len: (b - a) as u16,
                    payload: p.payload.clone(),
                });
            }
        }
    }

    /// The upper layer restored a range: it has arrived, and the sender is told.
    pub(crate) fn restored(&mut self, cx: &mut Cx<'_>, key: BodyKey, offset: u64, len: u32, events: &mut Vec<Event>) {
        let (Ok(len16), peer) = (u16::try_from(len), self.id) else { return };
        match key {
            BodyKey::Message(mseq) => {
                let Some(total) = self.inn.holes(mseq, 0, 0, |_, _| true) else { return };
                if offset + u64::from(len) > u64::from(total) {
                    return;
                }
                self.inn.on_fragment(mseq, total, offset as u32, len, |offset, n, first, complete| {
                    if complete {
                        // The bytes are in place already: an empty payload says only that all is here.
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
                self.recovered.push_back((true, mseq, offset, len16));
            }
            BodyKey::Body(handle) => {
                if self.bodies_in.get(handle).is_none() {
                    return;
                }
                let arrived = self.bodies_in.on_fragment(cx.now, handle, offset, u64::from(len), |offset, n, complete| {
                    if complete {
                        events.push(Event::Body { peer, handle, offset: offset + n, payload: 0..0, complete });
                    }
                });
                if let Ok(r) = arrived {
                    let mut grants = false;
                    self.body_progress(cx, handle, &r, &mut grants);
                    self.recovered.push_back((false, handle, offset, len16));
                }
            }
        }
        cx.counters.parity_used += 1;
    }
}

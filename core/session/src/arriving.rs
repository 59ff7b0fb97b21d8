//! The side of a session that carriers hand up to: what has arrived, by whichever of them, once or
//! more often.

use alloc::vec::Vec;
use core::ops::Range;

use crate::messages::Arrived;
use crate::sessions::Common;
use crate::{DataKey, Event, Session, Time};

/// Streams a receiver keeps apart (spec 2.5): a constant of the protocol, so that sides configured
/// differently understand each other.
pub const STREAMS_MAX: u16 = 64;

/// Where bytes of a matched message belong.
#[derive(Copy, Clone, Debug)]
pub struct FragmentIn {
    /// Stream of the message.
    pub stream: u16,
    /// Number of the message.
    pub mseq: u64,
    /// Number within its stream.
    pub sseq: u32,
    /// Length of the whole message, bytes.
    pub total_len: u32,
    /// First byte.
    pub offset: u32,
}

impl Session {
    /// The whole number of a matched message, from its low half.
    #[must_use]
    #[inline]
    pub fn message_number(&self, low: u32) -> u64 {
        self.inn.number(low)
    }

    /// A control message came; `mseq_low` is the low half of its number. Ranges index what the
    /// carrier holds.
    ///
    /// # Errors
    /// The rule that the peer broke.
    #[inline]
    pub fn on_control(
        &mut self,
        common: &mut Common,
        mseq_low: u32,
        envelope: Range<usize>,
        payload: Range<usize>,
        events: &mut Vec<Event>,
    ) -> Result<(), &'static str> {
        let len = payload.len() as u32;
        if let Some(mseq) = self.inn.on_control(mseq_low)? {
            common.counters.messages_received += 1;
            events.push(Event::Message {
                peer: self.peer,
                control: true,
                stream: 0,
                mseq,
                sseq: 0,
                total_len: len,
                offset: 0,
                envelope,
                payload,
                first: true,
                complete: true,
            });
        } else {
            common.counters.duplicate_bytes += u64::from(len);
        }
        Ok(())
    }

    /// Bytes of a matched message came. Ranges index what the carrier holds.
    ///
    /// # Errors
    /// The rule that the peer broke.
    #[inline]
    pub fn on_message(
        &mut self,
        common: &mut Common,
        f: &FragmentIn,
        envelope: &Range<usize>,
        payload: &Range<usize>,
        events: &mut Vec<Event>,
    ) -> Result<(), &'static str> {
        if f.stream >= STREAMS_MAX {
            return Err("stream number too high");
        }
        let (peer, mseq, total) = (self.peer, f.mseq, payload.len() as u32);
        let mut fresh = 0;
        let counters = &mut common.counters;
        let arrived = self.inn.on_fragment(mseq, f.total_len, f.offset, total, |offset, len, first, complete| {
            fresh += len;
            counters.messages_received += u64::from(first);
            let start = payload.start + (offset - f.offset) as usize;
            events.push(Event::Message {
                peer,
                control: false,
                stream: f.stream,
                mseq,
                sseq: f.sseq,
                total_len: f.total_len,
                offset,
                envelope: envelope.clone(),
                payload: start..start + len as usize,
                first,
                complete,
            });
        });
        counters.duplicate_bytes += u64::from(total - fresh);
        self.credit_dirty |= self.inn.gap_closed();
        match arrived {
            Arrived::Violation(why) => Err(why),
            Arrived::New | Arrived::Duplicate => Ok(()),
        }
    }

    /// Bytes of rendezvous data came. Returns how many of them are new.
    ///
    /// # Errors
    /// The rule that the peer broke.
    #[inline]
    pub fn on_rndv(
        &mut self,
        common: &mut Common,
        now: Time,
        (handle, at): (u64, u64),
        payload: &Range<usize>,
        events: &mut Vec<Event>,
    ) -> Result<u64, &'static str> {
        let (peer, len) = (self.peer, payload.len() as u64);
        let r = self.rndvs_in.on_fragment(now, handle, at, len, |offset, n, complete| {
            let start = payload.start + (offset - at) as usize;
            events.push(Event::Rndv { peer, handle, offset, payload: start..start + n as usize, complete });
        })?;
        common.counters.duplicate_bytes += len - r.fresh;
        self.rndv_progress(common, now, handle, r.fresh, r.complete);
        Ok(r.fresh)
    }

    /// Bookkeeping after bytes of rendezvous data arrived or were restored.
    fn rndv_progress(&self, common: &mut Common, now: Time, handle: u64, fresh: u64, complete: bool) {
        if fresh > 0 {
            common.grants.arrived(now, self.peer, fresh);
        }
        if complete {
            common.counters.rndvs_received += 1;
            common.grants.forget(self.peer, handle);
        }
    }

    /// A part of a matched message is about to come whose bytes the carrier puts into their place
    /// itself. The event of a message that was not heard of before has the envelope and no bytes.
    ///
    /// # Errors
    /// The rule that the peer broke.
    pub fn announce(
        &mut self,
        common: &mut Common,
        f: &FragmentIn,
        envelope: Range<usize>,
        events: &mut Vec<Event>,
    ) -> Result<(), &'static str> {
        if f.stream >= STREAMS_MAX {
            return Err("stream number too high");
        }
        if self.inn.announce(f.mseq, f.total_len)? == Some(true) {
            common.counters.messages_received += 1;
            events.push(Event::Message {
                peer: self.peer,
                control: false,
                stream: f.stream,
                mseq: f.mseq,
                sseq: f.sseq,
                total_len: f.total_len,
                offset: f.offset,
                envelope,
                payload: 0..0,
                first: true,
                complete: false,
            });
        }
        Ok(())
    }

    /// Bytes of a message of `total` bytes, or of rendezvous data, are in their place, put there
    /// otherwise than by an event. Returns how many of them were new. What is complete by them is
    /// told by an event without payload.
    ///
    /// # Errors
    /// The rule that the peer broke.
    #[expect(clippy::too_many_arguments, reason = "a range of one of two kinds, and where news of it go")]
    pub fn placed(
        &mut self,
        common: &mut Common,
        now: Time,
        key: DataKey,
        total: u32,
        offset: u64,
        len: u32,
        events: &mut Vec<Event>,
    ) -> Result<u64, &'static str> {
        let peer = self.peer;
        match key {
            DataKey::Message(mseq) => {
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
            DataKey::Rndv(handle) => {
                let r = self.rndvs_in.on_fragment(now, handle, offset, u64::from(len), |offset, n, complete| {
                    if complete {
                        events.push(Event::Rndv { peer, handle, offset: offset + n, payload: 0..0, complete });
                    }
                })?;
                self.rndv_progress(common, now, handle, r.fresh, r.complete);
                Ok(r.fresh)
            }
        }
    }

    /// What of `[lo, hi)` has not arrived, in `f` until it returns false; and the length of all.
    /// `None` if nothing is known of it, or so much was not granted.
    pub fn holes(&self, key: DataKey, lo: u64, hi: u64, f: impl FnMut(u64, u64) -> bool) -> Option<u64> {
        match key {
            DataKey::Message(mseq) => self.inn.holes(mseq, lo, hi, f).map(u64::from),
            DataKey::Rndv(handle) => self.rndvs_in.holes(handle, lo, hi, f),
        }
    }

    /// Whether so much of rendezvous data was granted, or none is open under this handle.
    #[must_use]
    pub fn may_arrive(&self, handle: u64, end: u64) -> bool {
        self.rndvs_in.get(handle).is_none_or(|b| end <= b.granted)
    }

    /// The peer states limits of credit: messages (the low half), bytes.
    #[inline]
    pub fn on_credit(&mut self, common: &mut Common, msgs_low: u32, bytes: u64) {
        self.out.raise_limits(msgs_low, bytes);
        self.admit(common);
    }

    /// The peer grants more of rendezvous data.
    pub fn on_grant(&mut self, common: &mut Common, handle: u64, limit: u64) {
        common.counters.grants_received += 1;
        self.counts.grants_received += 1;
        if let Some(slot) = self.rndvs_out.on_grant(handle, limit) {
            self.queue_rndv(slot);
        }
    }

    /// The peer says that rendezvous data will not come.
    pub fn on_abort(&mut self, common: &mut Common, handle: u64, code: u16, events: &mut Vec<Event>) {
        if self.rndvs_in.get(handle).is_some() {
            self.close_rndv(common, handle);
            events.push(Event::RndvAborted { peer: self.peer, handle, code });
        }
    }

    /// The peer restored `[offset, offset + len)` by itself: it has arrived there. The token of
    /// what has arrived completely by that.
    ///
    /// # Errors
    /// The rule that the peer broke.
    pub fn on_restored(
        &mut self,
        common: &mut Common,
        key: DataKey,
        offset: u64,
        len: u32,
    ) -> Result<Option<u64>, &'static str> {
        let (flow, sent) = match key {
            DataKey::Message(mseq) => match self.out.matched.get(mseq) {
                Some(m) => (crate::offer::Flow::Message(mseq), u64::from(m.sent)),
                None => return Ok(None),
            },
            DataKey::Rndv(handle) => match self.rndv_of(handle) {
                Some((flow, b)) => (flow, b.sent),
                None => return Ok(None),
            },
        };
        let end = offset.checked_add(u64::from(len)).filter(|e| *e <= sent).ok_or("recovery of bytes never sent")?;
        let token = self.arrived(common, &crate::Fragment::of(flow, offset, end));
        if self.is_shredded() { Err("recovery of rendezvous transfers in too many pieces") } else { Ok(token) }
    }

    /// One past the highest matched message that was heard of.
    #[must_use]
    pub fn announced(&self) -> u64 {
        self.inn.announced()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Sessions};

    #[test]
    fn a_message_without_bytes_that_was_announced_is_heard_of_once_and_then_whole() {
        let mut all = Sessions::new(Config::default());
        let peer = all.add();
        let (s, common) = all.get_mut(peer).expect("just added");
        let (mut events, now) = (Vec::new(), Time(1));
        for mseq in 0..3 {
            let f = FragmentIn { stream: 0, mseq, sseq: mseq as u32, total_len: 0, offset: 0 };
            s.announce(common, &f, 0..4, &mut events).expect("within the credit");
            s.placed(common, now, DataKey::Message(mseq), 0, 0, 0, &mut events).expect("the same");
        }
        let told: Vec<(u64, bool, bool)> = events
            .iter()
            .map(|e| match *e {
                Event::Message { mseq, first, complete, .. } => (mseq, first, complete),
                _ => panic!("{e:?}"),
            })
            .collect();
        let each = |mseq| [(mseq, true, false), (mseq, false, true)];
        assert_eq!(told, [each(0), each(1), each(2)].concat());
    }
}

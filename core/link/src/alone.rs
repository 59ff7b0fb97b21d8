//! A short message that leaves as it is accepted: nothing else of its peer waits, is due, or has to
//! be asked for.
//!
//! Most messages of a program that waits for each answer are such. `send`, and then
//! [`Association::build`], would ask some forty questions whose answers are known here: what waits
//! in which line, what is to be told, which timer is due. This is an optimisation and no rule: the
//! packet is what `build` would have written, by the same functions, and remembered as any other;
//! and where anything is not as usual nothing is done, and the message goes the general way.

use weir_wire::frame::{ACK_ENTRY_LEN, ACK_HEAD_LEN, MSG_HEAD_LEN};

use weir_session::Fragment;

use crate::association::{Association, Cx, State};
use crate::build::{ACK_ENTRIES_FEW, NoPayloads, Out, PACKETS_MAX, gather_min, write_message};
use crate::endpoint::{Endpoint, with_association};
use crate::paths::{Path, PathState};
use crate::recovery::SentFrame;
use crate::{Config, Message, PacketBuf, PeerId, Time, Transmit};

impl Endpoint {
    /// Accepts a message as [`Endpoint::send`] does, keeps its payload, all of it, and writes its
    /// packet into `out`, to be sent now. `None`: nothing was done, and it is to be sent as any
    /// other.
    ///
    /// The caller hears no more of it: neither that it has arrived nor, should the peer die, that
    /// it has not.
    ///
    /// What was written before must have been asked for until there was nothing left
    /// ([`Endpoint::poll_transmit`]).
    #[inline]
    pub fn send_alone(
        &mut self,
        now: Time,
        peer: PeerId,
        m: &Message<'_>,
        payload: &[u8],
        out: &mut PacketBuf,
    ) -> Option<Transmit> {
        // What is ready, or was touched and not looked at since, may have to go first.
        if self.may_transmit() || m.control || payload.len() != m.len as usize {
            return None;
        }
        let (a, mut cx) = with_association!(self, peer, now)?;
        let t = a.send_alone(&mut cx, m, payload, out)?;
        let due = a.due_after_alone(cx.cfg);
        self.counters.packets_sent += 1;
        self.counters.bytes_sent += out.head.len() as u64;
        self.count_alone(now, peer, out.head.len() as u64);
        self.arm(peer, due);
        Some(t)
    }
}

impl Association {
    /// Nothing but messages is to be sent now: no probe, no question, no farewell.
    #[inline]
    fn has_only_messages(&self, now: Time) -> bool {
        self.state == State::Up
            && self.is_calm()
            && self.probes == 0
            && self.rec.next() < PACKETS_MAX / 2
            && self.paths.iter().all(|p| p.is_calm(now))
    }

    /// What other paths have in flight takes of the receiver's buffer what two packets would need
    /// (P-6.15).
    #[inline]
    fn is_filled_by_others(&self) -> bool {
        let (true, Some(p)) = (self.paths.len() > 1, self.path()) else { return false };
        p.in_flight + 2 * u64::from(p.mtu.size()) > self.window_of(usize::from(self.primary))
    }

    /// What the packet adds to [`Association::deadline`]; the timer knows the rest.
    #[inline]
    fn due_after_alone(&self, cfg: &Config) -> Time {
        let Some(p) = self.path() else { return Time::MAX };
        let due = p.pto_due(cfg, self.ack_delay_max()).unwrap_or(Time::MAX);
        let has_others = self.paths.len() > 1 && p.state == PathState::Valid;
        if has_others { due.min(p.waiting_since + cfg.path_suspect_after) } else { due }
    }

    #[inline]
    fn send_alone(
        &mut self,
        cx: &mut Cx<'_>,
        m: &Message<'_>,
        payload: &[u8],
        out: &mut PacketBuf,
    ) -> Option<Transmit> {
        let level = self.level();
        let (len, size) = (m.len as usize, self.path()?.mtu.size());
        let beside = level.overhead() + ACK_HEAD_LEN + ACK_ENTRIES_FEW * ACK_ENTRY_LEN + MSG_HEAD_LEN;
        if !cx.s.goes_alone(cx.common, m)
            || beside + m.envelope.len() + len > usize::from(size)
            || len >= gather_min(cx.cfg, level)
            || !self.has_only_messages(cx.now)
            || self.lead(cx.cfg) != self.primary
            || cx.common.slot().is_some()
            || !self.path()?.lets_out_at_ease(cx.now, self.peer.rx_buffer)
            || self.is_filled_by_others()
            || self.rec.is_full(cx.cfg.sent_packets_max)
        {
            return None;
        }
        let mseq = cx.s.go_alone(cx.common, m, payload);
        out.head.clear();
        let mut pk = self.begin(self.primary, size, out);
        self.put_ack(cx, &pk, out, true);
        if let Some(bulk) = self.bulk.as_mut() {
            bulk.answers(cx.now);
        }
        let mut w = Out { payloads: &NoPayloads, head: &mut out.head, gather_min: usize::MAX };
        write_message(&mut w, &mut pk, mseq, false, cx.s.message(mseq)?, 0, m.len, false);
        self.remember(&mut pk, SentFrame::Session(Fragment::Message { mseq, offset: 0, len: m.len }));
        pk.small = true;
        self.count_turn(cx, &pk);
        if let Some(p) = self.paths.get_mut(usize::from(self.primary)) {
            p.is_tail = true;
        }
        self.finish(cx, &pk, None::<&NoPayloads>, out, true)
    }
}

impl Path {
    /// Nothing of its own is due.
    #[inline]
    pub(crate) fn is_calm(&self, now: Time) -> bool {
        self.respond.is_none()
            && self.asks == 0
            && self.held_until.is_none()
            && self.next_probe > now
            && self.mtu.due().is_none_or(|t| t > now)
    }

    /// A packet may go, and its window has room for another behind it: one that fills it would have
    /// to ask for its acknowledgement.
    #[inline]
    fn lets_out_at_ease(&self, now: Time, rx_buffer: u64) -> bool {
        self.ptos == 0
            && self.pacer.open(now)
            && !self.leaves_no_room(self.in_flight + 2 * u64::from(self.mtu.size()), rx_buffer)
    }
}

//! The end of a message that has arrived: delivered to its receive, or dropped, and its credit
//! given back.

use crate::api::{Completion, OpError, OpKind};
use crate::arrivals::{Arriving, Place};
use crate::config::MultiOrder;
use crate::keys::{MsgKey, RecvKey};
use crate::memory::Memory;
use crate::messages::Messages;
use crate::notice::Sink;
use crate::receives::RecvState;
use alloc::vec::Vec;

impl<M: Memory, S: Sink> Messages<M, S> {
    /// A message is no longer here: its place in the credit comes free, if it was not made good
    /// ahead, and perhaps room for others.
    pub(crate) fn consumed(&mut self, m: &Arriving<M>, bytes: u64) {
        let msgs = if m.held { self.unexpected.leave(m.peer) } else { 1 };
        self.give_credit(m.peer, msgs, bytes);
        self.relieve();
    }

    /// There may be room for messages of others.
    #[inline]
    pub(crate) fn relieve(&mut self) {
        while let Some((peer, ahead)) = self.unexpected.relieve() {
            self.counters.credit_ahead += u64::from(ahead);
            self.give_credit(peer, ahead, 0);
        }
    }

    /// A message is all there: completes its receive. Of those in multi-receives each peer's are
    /// reported in the order that the face wants ([`MultiOrder`]).
    pub(crate) fn deliver(&mut self, k: MsgKey, r: RecvKey) {
        if self.cfg.multi_order == MultiOrder::AsCompleted || self.recvs.get(r).is_none_or(|recv| recv.multi.is_none())
        {
            return self.report(k, r);
        }
        let Some(m) = self.msgs.get_mut(k) else { return };
        let peer = m.peer;
        m.waits_in_line = true;
        self.report_in_line(peer);
    }

    /// Reports the messages in multi-receives of a peer that are all there, up to the first that is
    /// not.
    pub(crate) fn report_in_line(&mut self, peer: u32) {
        while let Some(&k) = self.peers.get(peer).and_then(|p| p.in_line.front()) {
            match self.msgs.get(k) {
                Some(Arriving { waits_in_line: false, .. }) => return,
                Some(&Arriving { place: Place::Recv { recv, .. }, .. }) => self.report(k, recv),
                _ => {}
            }
            self.peers[peer].in_line.pop_front();
        }
    }

    /// Completes the receive of a message that is all there, and whose turn it is.
    fn report(&mut self, k: MsgKey, r: RecvKey) {
        let Some(m) = self.msgs.remove(k) else { return };
        self.consumed(&m, m.credit_bytes());
        let Place::Recv { dest, .. } = &m.place else {
            return;
        };
        let excess = m.len.saturating_sub(dest.len()) as usize;
        let result = if excess > 0 { Err(OpError::Truncated { excess }) } else { Ok(()) };
        self.counters.truncated += u64::from(excess > 0);
        let address = dest.address();
        self.finish_recv(r, Some((&m, address)), result);
    }

    /// Gives bytes of a message to a receive that nothing else is known to: the end of both.
    #[inline]
    pub(crate) fn give_to(&mut self, recv: &RecvState<M>, (peer, tag, data): (u32, u64, Option<u64>), bytes: &[u8]) {
        let len = recv.dest.write(0, bytes);
        let excess = bytes.len() - len;
        self.counters.truncated += u64::from(excess > 0);
        self.complete(Completion {
            context: recv.context,
            user: recv.user,
            kind: OpKind::Recv,
            class: recv.class,
            report: recv.report,
            multi_done: false,
            len,
            address: 0,
            tag,
            data,
            source: self.peers.source(peer),
            result: if excess > 0 { Err(OpError::Truncated { excess }) } else { Ok(()) },
        });
    }

    /// Completes a receive, or one message of a multi-receive.
    pub(crate) fn finish_recv(&mut self, r: RecvKey, msg: Option<(&Arriving<M>, usize)>, result: Result<(), OpError>) {
        let Some(recv) = self.recvs.get_mut(r) else {
            return;
        };
        let multi_done = recv.over(msg.is_some());
        let multi = recv.multi.is_some();
        let (context, user, class, report, number) = (recv.context, recv.user, recv.class, recv.report, recv.number);
        if !multi || multi_done {
            self.recvs.remove(r);
        }
        let (len, tag, data, source, address) = match msg {
            Some((m, address)) => {
                let excess = if let Err(OpError::Truncated { excess }) = result { excess } else { 0 };
                (m.len as usize - excess, m.tag, m.data, self.peers.source(m.peer), address)
            }
            None => (0, 0, None, None, 0),
        };
        if self.trace.on(1) {
            self.trace_recv_over(number, msg.map(|(m, _)| m), len, result, !multi || multi_done);
        }
        let address = if multi { address } else { 0 };
        let kind = if msg.is_none() && multi { OpKind::MultiRecvReleased } else { OpKind::Recv };
        self.complete(Completion {
            context,
            user,
            kind,
            class,
            report,
            multi_done,
            len,
            address,
            tag,
            data,
            source,
            result,
        });
    }

    /// Fails a posted receive that nothing is bound to.
    pub(crate) fn fail_recv(&mut self, r: RecvKey, error: OpError) {
        if let Some(multi) = self.recvs.get_mut(r).and_then(|recv| recv.multi.as_mut())
            && !multi.close()
        {
            return; // the last message bound to it hands it back
        }
        self.finish_recv(r, None, Err(error));
    }

    /// Forgets a message and frees its buffer and credit.
    pub(crate) fn drop_msg(&mut self, k: MsgKey) {
        if self.trace.on(2) {
            self.trace_message(k, "is over, and nobody got it");
        }
        if let Some(mut m) = self.msgs.remove(k) {
            if let Place::Buffer(buf) = core::mem::replace(&mut m.place, Place::Nowhere) {
                self.free_held(buf);
            }
            self.consumed(&m, m.credit_bytes());
        }
    }

    /// Accounts for an unexpected message's buffer.
    pub(crate) fn hold_bytes(&mut self, len: u64) {
        self.unexpected.add_payload(len);
        self.counters.unexpected_bytes += len;
        self.counters.unexpected_bytes_peak = self.counters.unexpected_bytes_peak.max(self.counters.unexpected_bytes);
    }

    /// Gives back the buffer of a message that is here no longer, and its part of the bound.
    pub(crate) fn free_held(&mut self, buf: Vec<u8>) {
        self.unexpected.drop_payload(buf.len() as u64);
        self.counters.unexpected_bytes = self.counters.unexpected_bytes.saturating_sub(buf.len() as u64);
        self.pool.give(buf);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::SendMode;
    use crate::config::Config;
    use crate::testing::{Bytes, Pair, recv_op, send_op};
    use alloc::vec;

    #[test]
    fn of_multi_receives_a_short_message_passes_a_long_one_only_where_the_face_lets_it() {
        for (multi_order, want) in [(MultiOrder::AsCompleted, [10, 600_000]), (MultiOrder::AsSent, [600_000, 10])] {
            let cfg = Config { multi_order, ..Config::default() };
            let mut pair: Pair = Pair::connected(&cfg, &weir_link::Config::default());
            let receive = crate::api::RecvOp { multi_min: Some(100_000), ..recv_op(0, Bytes::new(&vec![0; 700_000])) };
            pair.sides[1].recv(pair.now, receive).expect("posted");
            // The first asks before it is sent.
            for len in [600_000, 10] {
                let send = send_op(0, Bytes::new(&vec![1; len]), SendMode::Transmit);
                pair.sides[0].send(pair.now, send).expect("accepted");
            }
            pair.settle();
            let ended = pair.ended(1);
            assert_eq!(ended.iter().map(|c| c.len).collect::<Vec<_>>(), want, "{multi_order:?}");
            assert_eq!(ended.iter().map(|c| c.multi_done).collect::<Vec<_>>(), [false, true]);
        }
    }
}

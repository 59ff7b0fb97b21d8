//! Receives and what arrives for them: posting, cancelling, placing of fragments and of rendezvous
//! data. Looking before receiving is in `peek`.

use crate::api::{MessageError, OpError, RecvOp};
use crate::arrivals::{Arriving, Carriage, Place};
use crate::keys::{MsgKey, RecvKey, key, token};
use crate::memory::Memory;
use crate::messages::Messages;
use crate::notice::{Notice, Sink, Step};
use crate::receives::{MultiState, RecvState};
use weir_link::{DataKey, RecordIn, Time};
use weir_match::envelope::Envelope;
use weir_match::{Arrival, Match, Multi, Posted, Source};

/// New bytes of a matched message, as the protocol reports them.
pub(crate) struct Fragment {
    /// Sender.
    pub peer: u32,
    /// Stream it came on.
    pub stream: u16,
    /// Its number.
    pub mseq: u64,
    /// Its number in the stream.
    pub sseq: u32,
    /// Length of the message.
    pub total_len: u32,
    /// Where these bytes belong.
    pub offset: u32,
    /// First sight of this message.
    pub first: bool,
    /// No byte is missing any more.
    pub complete: bool,
}

/// Where payload is to be put by who reads it from a connection.
#[derive(Debug)]
pub enum Room<'a, M> {
    /// Nobody wants it, or not this part.
    None,
    /// There, from this offset on, as far as it goes; what lies behind its end nobody wants.
    Memory(&'a M, u64),
    /// There, all of it.
    Buffer(&'a mut [u8]),
}

impl<M: Memory, S: Sink> Messages<M, S> {
    /// Posts a receive.
    ///
    /// # Errors
    /// [`MessageError::Invalid`] for an unknown peer, [`MessageError::PeerDown`] for a directed
    /// receive that can never match, [`MessageError::Socket`].
    pub fn recv(&mut self, now: Time, mut op: RecvOp<M>) -> Result<(), MessageError> {
        let mut over = None;
        if let Some(peer) = op.source
            && let Some(reason) = self.peers.get(peer).ok_or(MessageError::Invalid("no such peer"))?.down
        {
            if self.matcher.peek(op.class, Source::Peer(peer), op.tag, op.ignore).is_none() {
                return Err(MessageError::PeerDown(reason));
            }
            over = Some(OpError::PeerDown(reason));
        }
        let source = op.source.map_or(Source::Any, Source::Peer);
        if self.broken.is_some() && self.matcher.peek(op.class, source, op.tag, op.ignore).is_none() {
            self.check_socket()?;
        }
        over = over.or(self.broken.map(OpError::Socket));
        self.counters.receives += 1;
        let dest = core::mem::take(&mut op.memory);
        let multi = op.multi_min.map(|min| Multi { room: dest.len(), min_room: min as u64 });
        let k = self.recvs.insert(RecvState {
            dest,
            context: op.context,
            user: op.user,
            class: op.class,
            report: op.report,
            multi: multi.map(|_| MultiState::default()),
            number: 0,
        });
        if self.trace.on(2) {
            self.trace_posted(k, &op, None);
        }
        let posted = Posted { class: op.class, source, tag: op.tag, ignore: op.ignore, op: token(k), multi };
        self.with_matches(
            |matcher, matches| matcher.post(posted, matches),
            |this, (), matches| {
                if matches.is_empty() && this.unexpected.is_full() {
                    this.tell_full();
                }
                for m in matches.drain(..) {
                    this.counters.unexpected += 1;
                    this.note_met(key(m.msg), false);
                    this.bind(now, &m);
                }
            },
        );
        if let (Some(error), Some(_)) = (over, multi) {
            // It has taken what was there, and nothing more will come.
            self.take_back(now, k, error);
        }
        Ok(())
    }

    /// Offers an arrived message to the matcher and binds what came free.
    pub(crate) fn arrive(&mut self, now: Time, arrival: Arrival) {
        self.with_matches(
            |matcher, matches| matcher.arrive(arrival, matches),
            |this, (), matches| {
                for m in matches.drain(..) {
                    this.met_expected(now, &m);
                }
            },
        );
    }

    /// A message has met a receive that was there before it.
    #[inline]
    fn met_expected(&mut self, now: Time, m: &Match) {
        self.counters.expected += 1;
        self.note_met(key(m.msg), true);
        self.bind(now, m);
    }

    /// A fragment of a matched message.
    pub(crate) fn fragment(&mut self, now: Time, f: Fragment, envelope: &[u8], bytes: &[u8]) {
        if f.first && f.complete && self.receive_straight(&f, envelope, bytes) {
            return;
        }
        let k = if f.first {
            match self.first_fragment(now, &f, envelope) {
                Some(k) => k,
                None => return,
            }
        } else {
            match self.peers[f.peer].partial(f.mseq) {
                Some(k) => k,
                None => return, // a message already thrown away
            }
        };
        self.step(Step::Piece {
            peer: f.peer,
            key: DataKey::Message(f.mseq),
            offset: u64::from(f.offset),
            len: bytes.len() as u64,
            total: u64::from(f.total_len),
            complete: f.complete,
        });
        self.place(k, u64::from(f.offset), bytes);
        if f.complete {
            self.peers[f.peer].partial.retain(|(mseq, _)| *mseq != f.mseq);
            if self.trace.on(2) && !f.first {
                self.trace_message_whole(k);
            }
            self.message_complete(k);
        } else if f.first {
            self.peers[f.peer].partial.push((f.mseq, k));
        }
    }

    fn first_fragment(&mut self, now: Time, f: &Fragment, envelope: &[u8]) -> Option<MsgKey> {
        self.peers.ensure(f.peer);
        let (class, tag, data, len, carriage, sync) = match Envelope::decode(envelope) {
            Ok(Envelope::Eager { class, tag, data, sync }) => {
                (class, tag, data, u64::from(f.total_len), Carriage::Eager, sync)
            }
            // A request comes without payload; what it announces is no memory of ours before it is
            // matched.
            Ok(Envelope::Rts { class, tag, data, len, op }) if f.total_len == 0 => {
                (class, tag, data, len, Carriage::Rendezvous(op), None)
            }
            Ok(_) | Err(_) => {
                self.counters.malformed += 1;
                self.with_matches(
                    |matcher, matches| matcher.note_other(f.peer, f.mseq, f.stream, f.sseq, matches),
                    |this, (), matches| matches.drain(..).for_each(|m| this.bind(now, &m)),
                );
                self.give_credit(f.peer, 1, u64::from(f.total_len));
                return None;
            }
        };
        self.peers[f.peer].streams.received(f.stream, len);
        let k = self.msgs.insert(Arriving {
            peer: f.peer,
            tag,
            data,
            stream: f.stream,
            len,
            complete: carriage != Carriage::Eager,
            waits_in_line: false,
            carriage,
            sync,
            place: Place::Nowhere,
            held: false,
            number: 0,
        });
        let (peer, mseq, credit_bytes) = (f.peer, f.mseq, u64::from(f.total_len));
        self.step(Step::Seen { peer, mseq, class, tag, data, len, credit_bytes });
        if self.trace.on(2) {
            self.trace_arrived(k, (f.stream, f.mseq, f.sseq), f.complete);
        }
        self.arrive(
            now,
            Arrival { peer: f.peer, class, mseq: f.mseq, stream: f.stream, sseq: f.sseq, tag, len, msg: token(k) },
        );
        Some(k)
    }

    /// A message is here and waits for its receive: as long as there is memory for such, its peer
    /// may send another in its place (`spec/protocol.md` 5). Not before it is complete: what is
    /// lacking bytes is bounded by the window alone.
    fn hold(&mut self, k: MsgKey) {
        let Some(m) = self.msgs.get_mut(k) else { return };
        m.held = true;
        let peer = m.peer;
        self.unasked |= self.cfg.tell_unasked;
        let ahead = self.unexpected.hold(peer);
        if ahead > 0 {
            self.counters.credit_ahead += u64::from(ahead);
            self.give_credit(peer, ahead, 0);
        } else {
            self.counters.credit_withheld += 1;
            if !self.told.full && self.matcher.stats().posted > 0 {
                self.tell_full();
            }
        }
    }

    /// Senders wait for the program to receive what is here, and it waits for something else: from
    /// outside that looks like a hang.
    #[cold]
    fn tell_full(&mut self) {
        if core::mem::replace(&mut self.told.full, true) {
            return;
        }
        self.trace.sink_mut().notice(&Notice::UnexpectedFull { budget: self.cfg.unexpected_bytes });
    }

    /// Writes bytes where they belong; makes an engine buffer for a message nobody has taken yet.
    fn place(&mut self, k: MsgKey, offset: u64, bytes: &[u8]) {
        let Some(m) = self.msgs.get_mut(k) else {
            return;
        };
        if bytes.is_empty() {
            return;
        }
        match &mut m.place {
            Place::Recv { dest, .. } => {
                dest.write(offset, bytes);
            }
            Place::Buffer(buf) => write_buffer(buf, offset, bytes),
            Place::Nowhere => {
                self.make_buffer(k);
                if let Some(Place::Buffer(buf)) = self.msgs.get_mut(k).map(|m| &mut m.place) {
                    write_buffer(buf, offset, bytes);
                }
            }
            Place::Discard => {}
        }
    }

    /// An engine buffer for a message whose bytes have no place yet.
    fn make_buffer(&mut self, k: MsgKey) {
        if let Some(m) = self.msgs.get_mut(k).filter(|m| matches!(m.place, Place::Nowhere)) {
            let len = m.len;
            m.place = Place::Buffer(self.pool.take(len as usize));
            self.hold_bytes(len);
        }
    }

    /// Where the payload of a record goes that is read from a TCP connection, from byte `done` of
    /// it on.
    pub fn record_room(&mut self, peer: u32, record: &RecordIn, done: u32) -> Room<'_, M> {
        self.room(peer, record.key, record.offset + u64::from(done), (record.len - done) as usize)
    }

    /// Where `len` bytes of a message or of rendezvous data go from `offset` on, for a carrier that
    /// puts them there itself.
    pub fn room(&mut self, peer: u32, key: DataKey, offset: u64, len: usize) -> Room<'_, M> {
        match key {
            DataKey::Rndv(handle) => self.rndvs.get(peer, handle).map_or(Room::None, |b| Room::Memory(&b.dest, offset)),
            DataKey::Message(mseq) => {
                let Some(k) = self.partial(peer, mseq) else { return Room::None };
                self.make_buffer(k);
                match self.msgs.get_mut(k).map(|m| &mut m.place) {
                    Some(Place::Recv { dest, .. }) => Room::Memory(dest, offset),
                    Some(Place::Buffer(buf)) => {
                        buf.get_mut(offset as usize..offset as usize + len).map_or(Room::None, Room::Buffer)
                    }
                    Some(Place::Nowhere | Place::Discard) | None => Room::None,
                }
            }
        }
    }

    /// Copies payload of a record that was read with its head.
    pub fn put_record(&mut self, peer: u32, record: &RecordIn, done: u32, bytes: &[u8]) {
        self.put(peer, record.key, record.offset + u64::from(done), bytes);
    }

    /// Puts bytes into their place, if somebody wants them.
    pub(crate) fn put(&mut self, peer: u32, key: DataKey, offset: u64, bytes: &[u8]) {
        match key {
            DataKey::Rndv(handle) => {
                if let Some(b) = self.rndvs.get(peer, handle) {
                    b.dest.write(offset, bytes);
                }
            }
            DataKey::Message(mseq) => {
                if let Some(k) = self.partial(peer, mseq) {
                    self.place(k, offset, bytes);
                }
            }
        }
    }

    fn message_complete(&mut self, k: MsgKey) {
        let Some(m) = self.msgs.get_mut(k) else {
            return;
        };
        // What has come is a request: its rendezvous transfer will.
        let request = m.carriage != Carriage::Eager;
        m.complete = true;
        if !request {
            self.trace.sink_mut().step(Step::Whole { peer: m.peer, data: m.data });
        }
        match m.place {
            Place::Nowhere | Place::Buffer(_) => self.hold(k),
            _ if request => {}
            Place::Recv { recv, .. } => self.deliver(k, recv),
            Place::Discard => self.drop_msg(k),
        }
    }

    /// Bytes of a rendezvous transfer.
    pub(crate) fn rndv(&mut self, now: Time, peer: u32, handle: u64, offset: u64, bytes: &[u8], complete: bool) {
        let total = self.rndvs.get(peer, handle).map_or(0, |b| b.len);
        let key = DataKey::Rndv(handle);
        self.step(Step::Piece { peer, key, offset, len: bytes.len() as u64, total, complete });
        let Some(b) = self.rndvs.get(peer, handle) else {
            return;
        };
        b.dest.write(offset, bytes);
        if complete && self.trace.on(2) {
            let len = b.len;
            self.trace.rndv_whole(peer, handle, len);
        }
        if complete && let Some(b) = self.take_rndv(peer, handle) {
            self.rndv_complete(now, peer, &b);
        }
    }

    pub(crate) fn partial(&self, peer: u32, mseq: u64) -> Option<MsgKey> {
        self.peers.get(peer)?.partial(mseq)
    }

    /// Reads back placed bytes; false when they are not there in full (a receive shorter than the
    /// message).
    pub(crate) fn read_placed(&self, peer: u32, key: DataKey, offset: u64, dst: &mut [u8]) -> bool {
        let gather = match key {
            DataKey::Rndv(handle) => self.rndvs.get(peer, handle).map(|b| &b.dest),
            DataKey::Message(mseq) => match self.partial(peer, mseq).and_then(|k| self.msgs.get(k)).map(|m| &m.place) {
                Some(Place::Recv { dest, .. }) => Some(dest),
                Some(Place::Buffer(buf)) => {
                    let Some(src) = buf.get(offset as usize..offset as usize + dst.len()) else {
                        return false;
                    };
                    dst.copy_from_slice(src);
                    return true;
                }
                _ => None,
            },
        };
        match gather {
            Some(g) if g.len() >= offset + dst.len() as u64 => {
                g.read(offset, dst);
                true
            }
            _ => false,
        }
    }

    /// Cancels the receive with this context, if nothing is bound to it.
    pub fn cancel(&mut self, now: Time, context: usize) -> bool {
        let found = self.recvs.with_context(context);
        found.into_iter().any(|k| self.take_back(now, k, OpError::Cancelled))
    }

    /// Fails a posted receive to which no message is bound; false if one is.
    pub(crate) fn take_back(&mut self, now: Time, k: RecvKey, error: OpError) -> bool {
        self.with_matches(
            |matcher, matches| matcher.cancel(token(k), matches),
            |this, cancelled, matches| {
                if *cancelled {
                    this.fail_recv(k, error);
                }
                for m in matches.drain(..) {
                    this.met_expected(now, &m);
                }
            },
        )
    }
}

fn write_buffer(buf: &mut [u8], offset: u64, bytes: &[u8]) {
    if let Some(to) = buf.get_mut(offset as usize..).and_then(|b| b.get_mut(..bytes.len())) {
        to.copy_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Class, Completion, OpKind, PeekOp, SendMode};
    use crate::config::Config;
    use crate::testing::{Bytes, PEER, Pair, recv_op, send_op};
    use alloc::vec;
    use alloc::vec::Vec;

    /// Side 0 ends what there is with side 1 while two messages of it wait, then posts a buffer for
    /// several.
    fn posted_after_the_end(end: impl Fn(&mut Pair), source: Option<u32>) -> Vec<Completion> {
        let mut pair: Pair = Pair::connected(&Config::default(), &weir_link::Config::default());
        for len in [10, 20] {
            let send = send_op(5, Bytes::new(&vec![1; len]), SendMode::Transmit);
            pair.sides[1].send(pair.now, send).expect("accepted");
        }
        pair.settle();
        end(&mut pair);
        let many = RecvOp { multi_min: Some(10), source, ..recv_op(7, Bytes::new(&[0; 1000])) };
        pair.sides[0].recv(pair.now, many).expect("two messages wait for it");
        pair.ended(0)
    }

    #[test]
    fn what_was_only_announced_goes_with_its_sender_but_for_what_was_claimed() {
        // All is announced.
        let cfg = Config { eager_bytes: 0, ..Config::default() };
        let mut pair: Pair = Pair::connected(&cfg, &weir_link::Config::default());
        for tag in [1, 2] {
            let send = send_op(tag, Bytes::new(&[1; 300]), SendMode::Delivery);
            pair.sides[1].send(pair.now, send).expect("accepted");
        }
        pair.settle();
        let seek =
            PeekOp { source: None, class: Class::Tagged, tag: 1, ignore: 0, claim: true, discard: false, context: 1 };
        assert!(pair.sides[0].peek(pair.now, &seek).expect("free").is_some());
        pair.sides[0].close_peer(pair.now, PEER);
        // A receive from anybody waits for somebody else.
        pair.sides[0].recv(pair.now, recv_op(8, Bytes::new(&[0; 300]))).expect("posted");
        assert_eq!(pair.ended(0).len(), 0);
        // Who has claimed a message hears that it will not come.
        pair.sides[0].recv_claimed(pair.now, recv_op(1, Bytes::new(&[0; 300])), false).expect("it was claimed");
        let ended = pair.ended(0);
        assert!(matches!(ended[..], [Completion { context: 1, result: Err(OpError::PeerDown(_)), .. }]), "{ended:?}");
        assert!(pair.sides[0].cancel(pair.now, 8));
        assert_eq!(pair.sides[0].held(), [0; 4]);
    }

    #[test]
    fn what_was_claimed_and_lacks_bytes_of_one_who_is_gone_can_be_thrown_away() {
        let mut pair: Pair = Pair::connected(&Config::default(), &weir_link::Config::default());
        pair.sides[1].send(pair.now, send_op(1, Bytes::new(&[1; 5000]), SendMode::Delivery)).expect("accepted");
        pair.transmit();
        pair.flying[0].truncate(1);
        pair.deliver(0);
        let seek =
            PeekOp { source: None, class: Class::Tagged, tag: 1, ignore: 0, claim: true, discard: false, context: 1 };
        assert!(pair.sides[0].peek(pair.now, &seek).expect("free").is_some());
        pair.sides[0].close_peer(pair.now, PEER);
        pair.sides[0].recv_claimed(pair.now, recv_op(1, Bytes::default()), true).expect("it was claimed");
        assert_eq!(pair.ended(0).len(), 1);
        assert_eq!(pair.sides[0].held(), [0; 4]);
    }

    #[test]
    fn a_buffer_for_several_of_one_who_is_gone_is_handed_back_with_what_had_come() {
        for socket_breaks in [false, true] {
            let end = |pair: &mut Pair| match socket_breaks {
                true => pair.sides[0].fail_all(pair.now, 5),
                false => pair.sides[0].close_peer(pair.now, PEER),
            };
            let ended = posted_after_the_end(end, (!socket_breaks).then_some(PEER));
            let lens: Vec<_> = ended.iter().map(|c| (c.kind, c.len, c.multi_done)).collect();
            let (part, back) = (OpKind::Recv, OpKind::MultiRecvReleased);
            assert_eq!(lens, [(part, 10, false), (part, 20, false), (back, 0, true)]);
            assert!(matches!(ended[2].result, Err(OpError::PeerDown(_) | OpError::Socket(5))));
        }
    }
}

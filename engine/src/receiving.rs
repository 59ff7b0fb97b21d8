//! Receives: posting, binding of arrived messages, placing of fragments and bodies. Looking before receiving is in `peek.rs`.

use crate::api::{Completion, EngineError, OpError, OpKind, RecvOp};
use crate::core::State;
use crate::memory::Gather;
use crate::remote::WRITES_OPEN_MAX;
use crate::state::{BodyDest, BodyOwner, Carriage, MsgKey, MultiState, Place, RecvKey, RecvState, RxMsg, key, token};
use smallvec::SmallVec;
use std::io::Write;
use weir_match::envelope::{Envelope, Status};
use weir_match::{Arrival, Match, Multi, Posted, Source};
use weir_proto::{BodyKey, Hole, PeerId, SendError, Time, UnitIn};

/// New bytes of a matched message, as the protocol reports them.
pub struct Fragment {
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

impl State {
    /// Posts a receive.
    ///
    /// # Safety
    /// As for [`crate::Endpoint::recv`].
    pub unsafe fn recv(&mut self, now: Time, op: &RecvOp<'_>) -> Result<(), EngineError> {
        if let Some(peer) = op.source
            && let Some(reason) = self.peers.get(peer as usize).ok_or(EngineError::Invalid("no such peer"))?.down
            && self.matcher.peek(op.class, Source::Peer(peer), op.tag, op.ignore).is_none()
        {
            return Err(EngineError::PeerDown(reason));
        }
        let source = op.source.map_or(Source::Any, Source::Peer);
        if self.broken.is_some() && self.matcher.peek(op.class, source, op.tag, op.ignore).is_none() {
            self.check_socket()?;
        }
        self.counters.receives += 1;
        // SAFETY: passed on from the caller.
        let dest = unsafe { Gather::new(op.iov) };
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
            self.trace_posted(k, op, None);
        }
        let posted = Posted { class: op.class, source, tag: op.tag, ignore: op.ignore, op: token(k), multi };
        let mut matches = std::mem::take(&mut self.matches);
        self.matcher.post(posted, &mut matches);
        if matches.is_empty() && self.unexpected.is_full() {
            self.tell_full();
        }
        for m in matches.drain(..) {
            self.counters.unexpected += 1;
            self.note_met(key(m.msg), false);
            self.bind(now, &m);
        }
        self.matches = matches;
        Ok(())
    }

    /// Offers an arrived message to the matcher and binds what came free.
    pub fn arrive(&mut self, now: Time, arrival: Arrival) {
        let mut matches = std::mem::take(&mut self.matches);
        self.matcher.arrive(arrival, &mut matches);
        for m in matches.drain(..) {
            self.counters.expected += 1;
            self.note_met(key(m.msg), true);
            self.bind(now, &m);
        }
        self.matches = matches;
    }

    /// For the census of its stream.
    #[inline]
    pub fn note_met(&mut self, k: MsgKey, expected: bool) {
        if let Some(m) = self.msgs.get(k)
            && !matches!(m.carriage, Carriage::Own(_))
            && let Some(p) = self.peers.get_mut(m.peer as usize)
        {
            p.streams.met(m.stream, m.len, expected);
        }
    }

    /// A fragment of a matched message.
    pub fn fragment(&mut self, now: Time, f: Fragment, envelope: &[u8], bytes: &[u8]) {
        let k = if f.first {
            match self.first_fragment(now, &f, envelope) {
                Some(k) => k,
                None => return,
            }
        } else {
            match self.peers[f.peer as usize].partial.iter().rev().find(|(mseq, _)| *mseq == f.mseq) {
                Some(&(_, k)) => k,
                None => return, // a message already thrown away
            }
        };
        self.place(k, u64::from(f.offset), bytes);
        if f.complete {
            self.peers[f.peer as usize].partial.retain(|(mseq, _)| *mseq != f.mseq);
            if self.trace.on(2) && !f.first {
                self.trace_message_whole(k);
            }
            self.message_complete(k);
        } else if f.first {
            self.peers[f.peer as usize].partial.push((f.mseq, k));
        }
    }

    fn first_fragment(&mut self, now: Time, f: &Fragment, envelope: &[u8]) -> Option<MsgKey> {
        self.peer_slot(f.peer);
        let (class, tag, data, len, carriage, sync) = match Envelope::decode(envelope) {
            Ok(Envelope::Eager { class, tag, data, sync }) => {
                (class, tag, data, u64::from(f.total_len), Carriage::Eager, sync)
            }
            // A request comes without payload; what it announces is no memory of ours before it is matched.
            Ok(Envelope::Rts { class, tag, data, len, op }) if f.total_len == 0 => {
                (class, tag, data, len, Carriage::Rendezvous(op), None)
            }
            Ok(_) | Err(_) => {
                self.counters.malformed += 1;
                let mut matches = std::mem::take(&mut self.matches);
                self.matcher.note_other(f.peer, f.mseq, f.stream, f.sseq, &mut matches);
                for m in matches.drain(..) {
                    self.bind(now, &m);
                }
                self.matches = matches;
                self.proto.consume(PeerId(f.peer), 1, u64::from(f.total_len));
                return None;
            }
        };
        self.peers[f.peer as usize].streams.received(f.stream, len);
        let k = self.msgs.insert(RxMsg {
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
        if self.trace.on(2) {
            self.trace_arrived(k, (f.stream, f.mseq, f.sseq), f.complete);
        }
        self.arrive(
            now,
            Arrival { peer: f.peer, class, mseq: f.mseq, stream: f.stream, sseq: f.sseq, tag, len, msg: token(k) },
        );
        Some(k)
    }

    /// A message is here and waits for its receive: as long as there is memory for such, its peer may send another in its place (`spec/protocol.md` 5). Not before it is complete:
    /// what is lacking bytes is bounded by the window alone.
    fn hold(&mut self, k: MsgKey) {
        let Some(m) = self.msgs.get_mut(k) else { return };
        m.held = true;
        let peer = m.peer;
        let ahead = self.unexpected.hold(peer);
        if ahead > 0 {
            self.counters.credit_ahead += u64::from(ahead);
            self.proto.consume(PeerId(peer), ahead, 0);
        } else {
            self.counters.credit_withheld += 1;
            if !self.told_full && self.matcher.stats().posted > 0 {
                self.tell_full();
            }
        }
    }

    /// Senders wait for the program to receive what is here, and it waits for something else: from outside that looks like a hang.
    #[cold]
    fn tell_full(&mut self) {
        if std::mem::replace(&mut self.told_full, true) {
            return;
        }
        // Not `eprintln`, which panics when nobody reads standard error any more.
        let _ = writeln!(
            std::io::stderr(),
            "weir: messages nobody has asked for have filled their {} bytes, and no receive that is posted takes one: senders have to wait; if the program hangs, give it more with WEIR_UNEXPECTED_BYTES",
            self.cfg.unexpected_bytes
        );
    }

    /// A message is no longer here: its place in the credit comes free, if it was not made good ahead, and perhaps room for others.
    fn consumed(&mut self, m: &RxMsg, bytes: u64) {
        if matches!(m.carriage, Carriage::Own(_)) || Some(m.peer) == self.own_peer {
            return;
        }
        let msgs = if m.held { self.unexpected.leave(m.peer) } else { 1 };
        self.proto.consume(PeerId(m.peer), msgs, bytes);
        while let Some((peer, ahead)) = self.unexpected.relieve() {
            self.counters.credit_ahead += u64::from(ahead);
            self.proto.consume(PeerId(peer), ahead, 0);
        }
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

    /// Where the payload of a lane's unit goes from byte `done` of it on: the pieces up to its end, or as much as is wanted; none if nobody wants it.
    pub fn unit_room(&mut self, peer: u32, unit: &UnitIn, done: u32, out: &mut SmallVec<[libc::iovec; 4]>) {
        let (offset, len) = (unit.offset + u64::from(done), (unit.len - done) as usize);
        match unit.key {
            BodyKey::Body(handle) => {
                if let Some(b) = self.bodies.get(&(peer, handle)) {
                    b.dest.places(offset, len, out);
                }
            }
            BodyKey::Message(mseq) => {
                let Some(k) = self.partial(peer, mseq) else { return };
                self.make_buffer(k);
                match self.msgs.get_mut(k).map(|m| &mut m.place) {
                    Some(Place::Recv { dest, .. }) => dest.places(offset, len, out),
                    Some(Place::Buffer(buf)) => {
                        let room = buf.get_mut(offset as usize..offset as usize + len);
                        out.extend(room.map(|b| libc::iovec { iov_base: b.as_mut_ptr().cast(), iov_len: b.len() }));
                    }
                    Some(Place::Nowhere | Place::Discard) | None => {}
                }
            }
        }
    }

    /// Copies payload of a unit that was read with its head.
    pub fn put_unit(&mut self, peer: u32, unit: &UnitIn, done: u32, bytes: &[u8]) {
        self.put(peer, unit.key, unit.offset + u64::from(done), bytes);
    }

    /// Puts bytes into their place, if somebody wants them.
    fn put(&mut self, peer: u32, key: BodyKey, offset: u64, bytes: &[u8]) {
        match key {
            BodyKey::Body(handle) => {
                if let Some(b) = self.bodies.get(&(peer, handle)) {
                    b.dest.write(offset, bytes);
                }
            }
            BodyKey::Message(mseq) => {
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
        // What has come is a request: its body will.
        let request = m.carriage != Carriage::Eager;
        m.complete = true;
        match m.place {
            Place::Nowhere | Place::Buffer(_) => self.hold(k),
            _ if request => {}
            Place::Recv { recv, .. } => self.deliver(k, recv),
            Place::Discard => self.drop_msg(k),
        }
    }

    /// Connects a message with the receive that takes it.
    fn bind(&mut self, now: Time, m: &Match) {
        let (k, r) = (key::<MsgKey>(m.msg), key::<RecvKey>(m.op));
        let Some(recv) = self.recvs.get_mut(r) else {
            return;
        };
        let dest = match &mut recv.multi {
            Some(multi) => {
                multi.pending += 1;
                multi.closed |= m.multi_done;
                let offset = m.multi_offset.unwrap_or(0);
                let (peer, len) = self.msgs.get(k).map_or((u32::MAX, 0), |msg| (msg.peer, msg.len));
                if let Some(peer) = self.peers.get_mut(peer as usize) {
                    peer.in_line.push_back(k);
                }
                recv.dest.sub(offset, len)
            }
            None => recv.dest.clone(),
        };
        self.bind_to(now, k, r, dest);
    }

    /// Gives a message to a receive that was just made or was waiting for it.
    pub fn bind_to(&mut self, now: Time, k: MsgKey, r: RecvKey, dest: Gather) {
        let Some(msg) = self.msgs.get_mut(k) else {
            return;
        };
        let (peer, len) = (msg.peer, msg.len);
        let before = std::mem::replace(&mut msg.place, Place::Recv { recv: r, dest: dest.clone() });
        let (carriage, complete, sync) = (msg.carriage, msg.complete, msg.sync.take());
        if self.trace.on(2) {
            self.trace_matched(k, r);
        }
        if let Some(op) = sync {
            self.post_control(now, peer, &Envelope::SyncAck { op });
        }
        match carriage {
            Carriage::Eager => {
                if let Place::Buffer(buf) = before {
                    dest.write(0, &buf);
                    self.free_held(buf);
                }
                if complete {
                    self.deliver(k, r);
                }
            }
            Carriage::Rendezvous(op) => self.ask_for_body(now, peer, op, len, dest, BodyOwner::Msg(k)),
            Carriage::Own(s) => {
                self.copy_own_payload(s, &dest, len);
                if let Some(send) = self.sends.remove(s) {
                    self.finish_send(send, Ok(()));
                }
                self.deliver(k, r);
            }
        }
    }

    /// Opens a body and tells the sender to begin.
    pub fn ask_for_body(&mut self, now: Time, peer: u32, op: u64, len: u64, dest: Gather, owner: BodyOwner) {
        // A receive shorter than the message gets only what fits; the sender is told how much that is.
        let len = len.min(dest.len());
        if len == 0 {
            if let BodyOwner::Msg(_) = owner {
                self.post_control(now, peer, &Envelope::Done { op, read: false, status: Status::Ok });
            }
            self.body_complete(now, peer, &BodyDest { dest, owner, len });
            return;
        }
        let write = matches!(owner, BodyOwner::Write { .. });
        // A member of the job that begins writes and never ends them holds no more here than that.
        let opened = if write && self.peers[peer as usize].writes_open >= WRITES_OPEN_MAX {
            Err(SendError::QueueFull)
        } else {
            self.proto.open_body(now, PeerId(peer), len)
        };
        match opened {
            Ok(opened) => {
                self.peers[peer as usize].writes_open += u32::from(write);
                self.bodies.insert((peer, opened.handle), BodyDest { dest, owner, len });
                if self.trace.on(2) {
                    self.trace_asked(peer, opened, len, owner);
                }
                self.post_control(now, peer, &Envelope::Cts { op, body: opened.handle, len, granted: opened.granted });
            }
            // More than a peer that behaves asks for at a time; told, lest it wait for ever.
            Err(SendError::QueueFull) => {
                if let BodyOwner::Write { data: Some(_), .. } = owner {
                    self.notice_done(now, peer);
                }
                self.refuse(now, peer, op, false, Status::NoMemory);
                self.body_failed(now, owner, OpError::Cancelled);
            }
            Err(_) => self.body_failed(now, owner, OpError::PeerDown(self.down_reason(peer))),
        }
    }

    /// Takes a body out of the table.
    pub fn take_body(&mut self, peer: u32, handle: u64) -> Option<BodyDest> {
        let b = self.bodies.remove(&(peer, handle))?;
        if self.trace.on(2) {
            self.trace.forget_body(peer, handle);
        }
        if let BodyOwner::Write { .. } = b.owner {
            let open = &mut self.peers[peer as usize].writes_open;
            *open = open.saturating_sub(1);
        }
        Some(b)
    }

    /// Why a peer is down (for operations that find out late).
    pub fn down_reason(&self, peer: u32) -> weir_proto::DownReason {
        self.peers.get(peer as usize).and_then(|p| p.down).unwrap_or(weir_proto::DownReason::Closed)
    }

    /// Bytes of a body.
    pub fn body(&mut self, now: Time, peer: u32, handle: u64, offset: u64, bytes: &[u8], complete: bool) {
        let Some(b) = self.bodies.get(&(peer, handle)) else {
            return;
        };
        b.dest.write(offset, bytes);
        if complete && self.trace.on(2) {
            let len = b.len;
            self.trace.body_whole(peer, handle, len);
        }
        if complete && let Some(b) = self.take_body(peer, handle) {
            self.body_complete(now, peer, &b);
        }
    }

    fn body_complete(&mut self, now: Time, peer: u32, b: &BodyDest) {
        match b.owner {
            BodyOwner::Msg(k) => match self.msgs.get(k).map(|m| &m.place) {
                Some(&Place::Recv { recv, .. }) => self.deliver(k, recv),
                _ => self.drop_msg(k),
            },
            BodyOwner::Read(k) => self.sent(token(k)),
            BodyOwner::Write { data, op, .. } => {
                self.remote_write_done(peer, b.len, data);
                self.post_control(now, peer, &Envelope::Done { op, read: false, status: Status::Ok });
            }
        }
    }

    /// The owner of a body that will not come learns it.
    pub fn body_failed(&mut self, now: Time, owner: BodyOwner, error: OpError) {
        match owner {
            BodyOwner::Msg(k) => self.break_msg(now, k, error),
            BodyOwner::Read(k) => {
                if let Some(s) = self.sends.remove(k) {
                    self.finish_send(s, Err(error));
                }
            }
            BodyOwner::Write { .. } => {}
        }
    }

    /// The sender gave a body up.
    pub fn body_aborted(&mut self, now: Time, peer: u32, handle: u64) {
        if let Some(b) = self.take_body(peer, handle) {
            if let BodyOwner::Write { data: Some(_), .. } = b.owner {
                self.notice_done(now, peer);
            }
            self.body_failed(now, b.owner, OpError::Cancelled);
        }
    }

    /// Restores what is missing of a fragment from its group's parity.
    ///
    /// Of messages only. The memory of a remote write or read may be written by others at the same time, or have been; where they meet, their own bytes are undefined, but no byte
    /// elsewhere may suffer, as it would if it were computed from those.
    pub fn parity(&mut self, now: Time, peer: PeerId, key: BodyKey, hole: &Hole, parity: &[u8]) {
        let total = match key {
            BodyKey::Body(handle) => {
                let body = self.bodies.get(&(peer.0, handle));
                body.filter(|b| matches!(b.owner, BodyOwner::Msg(_))).map(|b| b.len)
            }
            BodyKey::Message(mseq) => self.partial(peer.0, mseq).and_then(|k| self.msgs.get(k)).map(|m| m.len),
        };
        let Some(total) = total else { return };
        let mut sum = parity.to_vec();
        let read = |at, dst: &mut [u8]| self.read_placed(peer.0, key, at, dst);
        let Some(bytes) = hole.restore(total, &mut sum, read) else { return };
        self.put(peer.0, key, hole.offset, bytes);
        // Reports completion, if this was the last hole, as an event of its own.
        let mut events = Vec::new();
        self.proto.restored(now, peer, key, hole.offset, u32::from(hole.len), &mut events);
        for event in events {
            self.event(now, event, &[]);
        }
    }

    fn partial(&self, peer: u32, mseq: u64) -> Option<MsgKey> {
        self.peers.get(peer as usize)?.partial.iter().find(|(m, _)| *m == mseq).map(|&(_, k)| k)
    }

    /// Reads back placed bytes; false when they are not there in full (a receive shorter than the message).
    fn read_placed(&self, peer: u32, key: BodyKey, offset: u64, dst: &mut [u8]) -> bool {
        let gather = match key {
            BodyKey::Body(handle) => self.bodies.get(&(peer, handle)).map(|b| &b.dest),
            BodyKey::Message(mseq) => match self.partial(peer, mseq).and_then(|k| self.msgs.get(k)).map(|m| &m.place) {
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
                g.copy_out(offset, dst);
                true
            }
            _ => false,
        }
    }

    /// A message is all there: completes its receive. Of those in multi-receives each peer's are reported in the order in which they were sent: libfabric does not promise it
    /// (`comp_order` of fi_endpoint(3)), but MPICH's active messages do not survive another one (it keeps those that come early without what it needs to fetch their payload:
    /// `payload_sz` of `MPIDI_OFI_am_isend_long` is 0, and `MPIDI_OFI_am_enqueue_unordered_msg` copies so much).
    fn deliver(&mut self, k: MsgKey, r: RecvKey) {
        if self.recvs.get(r).is_none_or(|recv| recv.multi.is_none()) {
            return self.report(k, r);
        }
        let Some(m) = self.msgs.get_mut(k) else { return };
        let peer = m.peer;
        m.waits_in_line = true;
        self.report_in_line(peer);
    }

    /// Reports the messages in multi-receives of a peer that are all there, up to the first that is not.
    fn report_in_line(&mut self, peer: u32) {
        while let Some(&k) = self.peers.get(peer as usize).and_then(|p| p.in_line.front()) {
            match self.msgs.get(k) {
                Some(RxMsg { waits_in_line: false, .. }) => return,
                Some(&RxMsg { place: Place::Recv { recv, .. }, .. }) => self.report(k, recv),
                _ => {}
            }
            self.peers[peer as usize].in_line.pop_front();
        }
    }

    /// Completes the receive of a message that is all there, and whose turn it is.
    fn report(&mut self, k: MsgKey, r: RecvKey) {
        let Some(m) = self.msgs.remove(k) else { return };
        self.consumed(&m, if m.carriage == Carriage::Eager { m.len } else { 0 });
        let Place::Recv { dest, .. } = &m.place else {
            return;
        };
        let excess = m.len.saturating_sub(dest.len()) as usize;
        let result = if excess > 0 { Err(OpError::Truncated { excess }) } else { Ok(()) };
        self.counters.truncated += u64::from(excess > 0);
        let buf = dest.base();
        self.finish_recv(r, Some((&m, buf)), result);
    }

    /// Completes a receive, or one message of a multi-receive.
    fn finish_recv(&mut self, r: RecvKey, msg: Option<(&RxMsg, *mut u8)>, result: Result<(), OpError>) {
        let Some(recv) = self.recvs.get_mut(r) else {
            return;
        };
        let mut multi_done = false;
        if let Some(multi) = &mut recv.multi {
            multi.pending = multi.pending.saturating_sub(u32::from(msg.is_some()));
            multi_done = multi.closed && multi.pending == 0;
        }
        let multi = recv.multi.is_some();
        let (context, user, class, report, number) = (recv.context, recv.user, recv.class, recv.report, recv.number);
        if !multi || multi_done {
            self.recvs.remove(r);
        }
        let (len, tag, data, source, buf) = match msg {
            Some((m, buf)) => {
                let excess = if let Err(OpError::Truncated { excess }) = result { excess } else { 0 };
                (m.len as usize - excess, m.tag, m.data, self.source(m.peer), buf)
            }
            None => (0, 0, None, None, std::ptr::null_mut()),
        };
        if self.trace.on(1) {
            self.trace_recv_over(number, msg.map(|(m, _)| m), len, result, !multi || multi_done);
        }
        let buf = if multi { buf } else { std::ptr::null_mut() };
        let kind = if msg.is_none() && multi { OpKind::MultiRecvReleased } else { OpKind::Recv };
        self.complete(Completion {
            context,
            user,
            kind,
            class,
            report,
            multi_done,
            len,
            buf,
            tag,
            data,
            source,
            result,
        });
    }

    /// Fails a posted receive that nothing is bound to.
    pub fn fail_recv(&mut self, r: RecvKey, error: OpError) {
        if let Some(multi) = self.recvs.get_mut(r).and_then(|recv| recv.multi.as_mut()) {
            multi.closed = true;
            if multi.pending > 0 {
                return; // the last message bound to it hands it back
            }
        }
        self.finish_recv(r, None, Err(error));
    }

    /// A message that cannot be completed: its receive, if it has one, fails.
    pub fn break_msg(&mut self, now: Time, k: MsgKey, error: OpError) {
        let place = match self.msgs.get(k) {
            Some(m) => match &m.place {
                Place::Recv { recv, dest } => Some((*recv, dest.base())),
                _ => None,
            },
            None => return,
        };
        match place {
            Some((recv, buf)) => {
                if let Some(mut m) = self.msgs.remove(k) {
                    // Of a live peer that gave its body up, the place in the credit comes free.
                    self.consumed(&m, 0);
                    m.len = 0;
                    self.finish_recv(recv, Some((&m, buf)), Err(error));
                    // Those behind it need not wait any more.
                    self.report_in_line(m.peer);
                }
            }
            None => {
                let mut matches = std::mem::take(&mut self.matches);
                self.matcher.forget(token(k), &mut matches);
                self.drop_msg(k);
                for m in matches.drain(..) {
                    self.bind(now, &m);
                }
                self.matches = matches;
            }
        }
    }

    /// Forgets a message and frees its buffer and credit.
    pub fn drop_msg(&mut self, k: MsgKey) {
        if self.trace.on(2) {
            self.trace_message(k, "is over, and nobody got it");
        }
        if let Some(mut m) = self.msgs.remove(k) {
            if let Place::Buffer(buf) = std::mem::replace(&mut m.place, Place::Nowhere) {
                self.free_held(buf);
            }
            self.consumed(&m, if m.carriage == Carriage::Eager { m.len } else { 0 });
        }
    }

    /// Accounts for an unexpected message's buffer.
    fn hold_bytes(&mut self, len: u64) {
        self.unexpected.add_payload(len);
        self.counters.unexpected_bytes += len;
        self.counters.unexpected_bytes_peak = self.counters.unexpected_bytes_peak.max(self.counters.unexpected_bytes);
    }

    /// Gives back the buffer of a message that is here no longer, and its part of the bound.
    pub fn free_held(&mut self, buf: Vec<u8>) {
        self.unexpected.drop_payload(buf.len() as u64);
        self.counters.unexpected_bytes = self.counters.unexpected_bytes.saturating_sub(buf.len() as u64);
        self.pool.give(buf);
    }

    /// Cancels the receive with this context, if nothing is bound to it.
    pub fn cancel(&mut self, now: Time, context: usize) -> bool {
        // Rare, so a scan: an index would cost every receive.
        let found: Vec<RecvKey> = self.recvs.iter().filter(|(_, r)| r.context == context).map(|(k, _)| k).collect();
        found.into_iter().any(|k| self.take_back(now, k, OpError::Cancelled))
    }

    /// Fails a posted receive to which no message is bound; false if one is.
    pub fn take_back(&mut self, now: Time, k: RecvKey, error: OpError) -> bool {
        let mut matches = std::mem::take(&mut self.matches);
        let cancelled = self.matcher.cancel(token(k), &mut matches);
        if cancelled {
            self.fail_recv(k, error);
        }
        for m in matches.drain(..) {
            self.counters.expected += 1;
            self.note_met(key(m.msg), true);
            self.bind(now, &m);
        }
        self.matches = matches;
        cancelled
    }
}

fn write_buffer(buf: &mut [u8], offset: u64, bytes: &[u8]) {
    if let Some(to) = buf.get_mut(offset as usize..).and_then(|b| b.get_mut(..bytes.len())) {
        to.copy_from_slice(bytes);
    }
}

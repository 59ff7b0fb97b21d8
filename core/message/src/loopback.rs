//! The carrier for what this endpoint sends to itself: it takes from the session what waits, and
//! hands it to the arriving side of the same session.
//!
//! The halves of a session know nothing of each other, so credit, matching, rendezvous and notices
//! are the same as with any other peer. Nothing is lost here and nothing is under way between two
//! calls but what has not been taken yet. Long payload is copied once, from where the sender has it
//! to where the receiver wants it; the two may overlap, and so it is copied in one piece.

use crate::keys::{NO_TOKEN, SendKey, key};
use crate::memory::Memory;
use crate::messages::{Loopback, Messages};
use crate::notice::Sink;
use crate::receiving::Room;
use crate::sends::Sends;
use crate::source::Source;
use alloc::vec::Vec;
use core::ops::Range;
use weir_link::{DataKey, DownReason, Endpoint, Event, PeerId, Time};
use weir_session::{Carrier, Flow, Fragment, FragmentIn, Line, OutMessage, Terms};

/// Messages with their envelope up to here are copied by way of a buffer, with what they say in one
/// event; longer ones once, into their place. 4 KiB: two copies of that through the cache cost less
/// than two events.
const SMALL_MAX: usize = 4096;
/// Things handed over in one call: others have their turn in between. (The rest waits, and the next
/// timeout is at once.)
const STEPS_MAX: usize = 1024;
/// Bytes of which the session is told at a time: it counts those of one fragment in 32 bits.
const TOLD_MAX: u64 = 1 << 30;

/// What the session gave, the bytes of which are in the buffer.
enum Given {
    Nothing,
    Notices,
    /// The number, and the length of the envelope.
    Control(u64, usize),
    Small(FragmentIn, usize),
    /// The same, without payload: that is `len` bytes of the operation `token`.
    Message(FragmentIn, u64),
    /// `[from, to)` of rendezvous data of the operation `token`, and its handle.
    Rndv {
        flow: Flow,
        handle: u64,
        range: Range<u64>,
        token: u64,
    },
    /// Operations are to hear that their control messages have arrived.
    Arrived,
}

impl<M: Memory, S: Sink> Messages<M, S> {
    /// This endpoint was inserted as a peer of its own: from now on this carrier has their session,
    /// unless packets have it already.
    pub(crate) fn begin_loopback(&mut self, peer: u32) {
        let now = self.sessions.endpoint().sessions().common().clock();
        let begun = self.with_events(now, &[], |proto, events| {
            let sessions = proto.sessions_mut();
            let (s, common) = sessions.get_mut(PeerId(peer))?;
            if s.is_up() || s.has_open() || s.down().is_some() {
                return None;
            }
            let cfg = common.config();
            let terms = Terms { credit_msgs: cfg.initial_credit_msgs.into(), credit_bytes: cfg.initial_credit_bytes };
            s.set_piece_max(SMALL_MAX);
            // Nothing was queued that the terms could be too narrow for.
            if s.begin(common, terms) {
                events.push(Event::Up { peer: PeerId(peer) });
            }
            sessions.set_carrier(PeerId(peer), Carrier::Loopback);
            Some(())
        });
        if begun.is_some() {
            self.loopback.peer = Some(peer);
        }
    }

    /// Whether this peer is this endpoint itself.
    #[inline]
    pub fn is_own(&self, peer: u32) -> bool {
        self.loopback.peer == Some(peer)
    }

    /// Ends what this endpoint has with itself, at once: what waits on either side fails, and
    /// nothing touches its memory any more. False: this peer is another.
    pub fn end_own(&mut self, now: Time, peer: u32) -> bool {
        if !self.is_own(peer) {
            return false;
        }
        // Its place may be another's from now on.
        self.loopback.peer = None;
        self.loopback.arrived.clear();
        self.with_events(now, &[], |proto, events| proto.end(now, PeerId(peer), DownReason::LocalClose, events));
        true
    }

    /// Something that this endpoint has sent to itself waits to be handed over.
    #[inline]
    pub(crate) fn has_own(&self) -> bool {
        self.sessions.endpoint().sessions().has_touched(Carrier::Loopback)
    }

    /// Hands over what this endpoint has sent to itself, as far as one call does.
    /// [`Messages::poll_transmit`] does it too: this is for who has no room for packets, or no
    /// socket any more.
    #[inline]
    pub fn carry_own(&mut self, now: Time) {
        if self.has_own() {
            self.carry_touched(now);
        }
    }

    fn carry_touched(&mut self, now: Time) {
        let mut steps = STEPS_MAX;
        while let Some(peer) = self.sessions.endpoint_mut().sessions_mut().next_touched(Carrier::Loopback) {
            while self.carry_next(now, peer) {
                steps -= 1;
                if steps == 0 {
                    return self.sessions.endpoint_mut().sessions_mut().touch(peer);
                }
            }
            if !self.keeping.is_empty() {
                // The queue that was full is empty now.
                self.tell_kept(now);
            }
        }
    }

    /// Takes the next thing that waits.
    fn take_own(&mut self, peer: PeerId) -> Given {
        let Messages { sessions, sends, loopback, .. } = self;
        let Some((s, _)) = sessions.endpoint_mut().sessions_mut().get_mut(peer) else { return Given::Nothing };
        if s.has_notices() {
            return Given::Notices;
        }
        if let Some((mseq, m, _)) = s.next_control() {
            let envelope = load(loopback, sends, m, m.len as usize);
            s.took_control();
            return Given::Control(mseq, envelope);
        }
        if !loopback.arrived.is_empty() {
            return Given::Arrived;
        }
        if let Some(piece) = s.next_small() {
            let Flow::Message(mseq) = piece.flow else { return Given::Nothing };
            let Some(m) = s.message(mseq) else { return Given::Nothing };
            let envelope = load(loopback, sends, m, m.len as usize);
            let f = whole(mseq, m);
            s.took_small(piece.to);
            return Given::Small(f, envelope);
        }
        let Some(piece) = s.next_flow(Line::Main) else { return Given::Nothing };
        let given = match piece.flow {
            Flow::Message(mseq) => {
                let Some(m) = s.message(mseq) else { return Given::Nothing };
                load(loopback, sends, m, 0);
                Given::Message(whole(mseq, m), m.token)
            }
            Flow::Rndv(slot, generation) => {
                let Some(b) = s.rndv(slot, generation) else { return Given::Nothing };
                Given::Rndv { flow: piece.flow, handle: b.handle, range: piece.from..piece.to, token: b.token }
            }
        };
        s.took_flow(Line::Main, piece.to);
        given
    }

    /// Hands over one thing; false if nothing waits.
    fn carry_next(&mut self, now: Time, peer: PeerId) -> bool {
        let given = self.take_own(peer);
        let bytes = core::mem::take(&mut self.loopback.bytes);
        match given {
            Given::Nothing => {
                self.loopback.bytes = bytes;
                return false;
            }
            Given::Notices => self.carry_notices(now, peer),
            Given::Control(mseq, envelope) => {
                let token = self.with_events(now, &bytes, |proto, events| {
                    let (s, common) = proto.sessions_mut().get_mut(peer)?;
                    let came = s.on_control(common, mseq as u32, 0..envelope, envelope..bytes.len(), events);
                    let token = s.arrived(common, &Fragment::Control { mseq });
                    check(proto, peer, came, events);
                    token.filter(|t| *t != NO_TOKEN)
                });
                self.loopback.arrived.extend(token);
            }
            Given::Arrived => {
                for token in core::mem::take(&mut self.loopback.arrived) {
                    self.sent(token);
                }
            }
            Given::Small(f, envelope) => self.with_events(now, &bytes, |proto, events| {
                let Some((s, common)) = proto.sessions_mut().get_mut(peer) else { return };
                let came = s.on_message(common, &f, &(0..envelope), &(envelope..bytes.len()), events);
                let all = Fragment::Message { mseq: f.mseq, offset: 0, len: f.total_len };
                events.extend(s.arrived(common, &all).map(|token| Event::Sent { peer, token }));
                check(proto, peer, came, events);
            }),
            Given::Message(f, token) => {
                self.with_events(now, &bytes, |proto, events| {
                    let Some((s, common)) = proto.sessions_mut().get_mut(peer) else { return };
                    let came = s.announce(common, &f, 0..bytes.len(), events);
                    check(proto, peer, came, events);
                });
                let (place, flow) = (DataKey::Message(f.mseq), Flow::Message(f.mseq));
                self.carry_payload(now, peer, place, flow, f.total_len, 0..u64::from(f.total_len), token);
            }
            Given::Rndv { flow, handle, range, token } => {
                self.carry_payload(now, peer, DataKey::Rndv(handle), flow, 0, range, token);
            }
        }
        self.loopback.bytes = bytes;
        true
    }

    /// Credit, grants, aborts: one of each.
    fn carry_notices(&mut self, now: Time, peer: PeerId) {
        self.with_events(now, &[], |proto, events| {
            let Some((s, common)) = proto.sessions_mut().get_mut(peer) else { return };
            if let Some((msgs, bytes)) = s.take_credit(common) {
                s.on_credit(common, msgs as u32, bytes);
            }
            if let Some((handle, limit)) = s.take_grant(common) {
                s.on_grant(common, handle, limit);
            }
            if let Some((handle, code)) = s.take_abort() {
                s.on_abort(common, handle, code, events);
            }
        });
    }

    /// Copies `range` of a flow from where its sender has it to its place, and tells both sides.
    #[expect(clippy::too_many_arguments, reason = "a range of one of two kinds, as both sides call it")]
    fn carry_payload(
        &mut self,
        now: Time,
        peer: PeerId,
        place: DataKey,
        flow: Flow,
        total: u32,
        range: Range<u64>,
        token: u64,
    ) {
        self.copy_own(peer, place, &range, token);
        self.with_events(now, &[], |proto, events| {
            let mut at = range.start;
            while at < range.end {
                let Some((s, common)) = proto.sessions_mut().get_mut(peer) else { return };
                let end = range.end.min(at + TOLD_MAX);
                let came = s.placed(common, now, place, total, at, (end - at) as u32, events);
                events.extend(s.arrived(common, &Fragment::of(flow, at, end)).map(|token| Event::Sent { peer, token }));
                check(proto, peer, came, events);
                at = end;
            }
        });
    }

    /// The one copy. Of an operation that was given up nothing is copied: nobody looks at the
    /// bytes.
    fn copy_own(&mut self, peer: PeerId, place: DataKey, range: &Range<u64>, token: u64) {
        let k = key::<SendKey>(token);
        let Some(s) = self.sends.get_mut(k) else { return };
        // Out of its table meanwhile, for the place is in another one of the same whole.
        let source = core::mem::replace(&mut s.source, Source::empty());
        let len = range.end - range.start;
        match self.room(peer.0, place, range.start, len as usize) {
            Room::None => {}
            Room::Memory(dest, at) => source.copy_to(range.start, dest, at, len),
            Room::Buffer(buf) => source.read(range.start, buf),
        }
        if let Some(s) = self.sends.get_mut(k) {
            s.source = source;
        }
    }
}

/// Fills the buffer with the envelope of a message and its first `len` bytes; returns the length of
/// the envelope.
fn load<M: Memory>(to: &mut Loopback, sends: &Sends<M>, m: &OutMessage, len: usize) -> usize {
    let envelope = m.envelope();
    to.bytes.clear();
    to.bytes.extend_from_slice(envelope);
    to.bytes.resize(envelope.len() + len, 0);
    if let Some(s) = sends.get(key::<SendKey>(m.token)).filter(|_| len > 0) {
        s.source.read(0, &mut to.bytes[envelope.len()..]);
    }
    envelope.len()
}

/// All of a message, as one fragment.
fn whole(mseq: u64, m: &OutMessage) -> FragmentIn {
    FragmentIn { stream: m.stream, mseq, sseq: m.sseq, total_len: m.len, offset: 0 }
}

/// A session that finds fault with itself goes no further. (It keeps the rules that it checks.)
fn check<T>(proto: &mut Endpoint, peer: PeerId, came: Result<T, &'static str>, events: &mut Vec<Event>) {
    if came.is_err() {
        proto.sessions_mut().end(peer, DownReason::Violation, events);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Access, Completion, OpError, OpKind, RmaOp, SendMode};
    use crate::config::Config;
    use crate::testing::{Bytes, recv_op, send_op};
    use alloc::vec;
    use weir_link::{EndpointName, PacketBuf};

    const NOW: Time = Time(1_000_000);

    /// An endpoint that knows itself, as the index that tests send to.
    struct Alone(Messages<Bytes, ()>);

    impl Alone {
        fn new(cfg: &Config) -> Alone {
            let addr = core::net::SocketAddr::from(([127, 0, 0, 1], 1));
            let proto = Endpoint::new(cfg.protocol(weir_link::Config::default()), [1; 32], 1, &[addr], [2; 32]);
            let mut messages = Messages::new(cfg.clone(), proto, ());
            let name = EndpointName::decode(&messages.own_name()).expect("a name");
            assert_eq!(messages.insert_peer(&name), Ok(crate::testing::PEER));
            Alone(messages)
        }

        fn send(&mut self, tag: u64, memory: &Bytes, mode: SendMode) {
            self.0.send(NOW, send_op(tag, memory.clone(), mode)).expect("accepted");
            self.transmit();
        }

        fn recv(&mut self, context: usize, memory: &Bytes) {
            self.0.recv(NOW, recv_op(context, memory.clone())).expect("posted");
            self.transmit();
        }

        fn rma(&self, key: u64, remote_addr: u64, memory: &Bytes, data: Option<u64>) -> RmaOp<Bytes> {
            RmaOp {
                peer: crate::testing::PEER,
                memory: memory.clone(),
                remote_addr,
                key,
                data,
                mode: SendMode::Transmit,
                copy: false,
                report: true,
                context: 1,
                user: 0,
            }
        }

        /// Nothing of it goes by packets.
        fn transmit(&mut self) {
            assert!(self.0.poll_transmit(NOW, &mut PacketBuf::new()).is_none());
        }

        fn ended(&mut self) -> Vec<Completion> {
            core::iter::from_fn(|| self.0.poll(NOW)).collect()
        }

        fn register(&mut self, memory: &Bytes) -> u64 {
            let access = Access { remote_read: true, remote_write: true };
            self.0.register(memory.clone(), 0, access, None).expect("registered")
        }
    }

    fn pattern(len: usize) -> Vec<u8> {
        (0..len as u64).map(|i| (i * i + i / 251) as u8).collect()
    }

    #[test]
    fn messages_to_oneself_arrive_in_order_whatever_their_lengths() {
        let mut me = Alone::new(&Config::default());
        let lens = [8, 300_000, 0, 20_000, 5000, 4000, 200_000, 1];
        let sent: Vec<Bytes> = lens.iter().map(|n| Bytes::new(&pattern(*n))).collect();
        for (i, memory) in sent.iter().enumerate() {
            me.send(i as u64, memory, SendMode::Transmit);
        }
        let got: Vec<Bytes> = lens.iter().map(|_| Bytes::new(&[0; 300_000])).collect();
        for (i, memory) in got.iter().enumerate() {
            me.recv(i, memory);
        }
        let (received, others): (Vec<_>, Vec<_>) = me.ended().into_iter().partition(|c| c.kind == OpKind::Recv);
        assert_eq!((received.len(), others.len()), (lens.len(), lens.len()));
        for c in received {
            assert_eq!((c.tag, c.len, c.result), (c.context as u64, lens[c.context], Ok(())));
            assert_eq!(got[c.context].to_vec()[..c.len], sent[c.context].to_vec());
        }
        assert_eq!(me.0.held(), [0; 4]);
    }

    #[test]
    fn a_long_message_to_oneself_is_copied_in_one_piece_so_that_its_places_may_overlap() {
        // Announced and sent with its payload, received before and after.
        for (len, expected) in [(2_000_000, true), (2_000_000, false), (100_000, true)] {
            let mut me = Alone::new(&Config { copy_bytes: 0, ..Config::default() });
            let all = Bytes::new(&pattern(len + 1000));
            let want = all.part(0, len as u64).to_vec();
            let (from, to) = (all.part(0, len as u64), all.part(1000, len as u64));
            if expected {
                me.recv(1, &to);
            }
            me.send(1, &from, SendMode::Transmit);
            if !expected {
                assert!(me.ended().is_empty(), "complete, and nobody has it");
                me.recv(1, &to);
            }
            assert!(me.ended().iter().all(|c| c.result == Ok(())));
            assert!(to.to_vec() == want, "{len} bytes, expected: {expected}");
            assert_eq!(me.0.held(), [0; 4]);
        }
    }

    #[test]
    fn remote_memory_of_oneself_may_overlap_with_what_is_written_and_read() {
        for len in [100, 20_000, 2_000_000] {
            let mut me = Alone::new(&Config::default());
            let all = Bytes::new(&pattern(len + 100));
            let key = me.register(&all);
            let want = all.part(0, len as u64).to_vec();
            let write = me.rma(key, 100, &all.part(0, len as u64), None);
            me.0.write(NOW, write).expect("accepted");
            me.transmit();
            assert_eq!(me.ended().iter().map(|c| (c.kind, c.result)).collect::<Vec<_>>(), [(OpKind::Write, Ok(()))]);
            assert!(all.part(100, len as u64).to_vec() == want, "written, {len} bytes");
            let read = me.rma(key, 100, &all.part(50, len as u64), None);
            me.0.read(NOW, read).expect("accepted");
            me.transmit();
            assert_eq!(me.ended().iter().map(|c| (c.kind, c.result)).collect::<Vec<_>>(), [(OpKind::Read, Ok(()))]);
            assert!(all.part(50, len as u64).to_vec() == want, "read, {len} bytes");
        }
    }

    #[test]
    fn a_write_to_oneself_that_is_refused_fails_and_never_counts_as_done() {
        for (len, data) in [(10, None), (10, Some(7)), (20_000, None), (500_000, Some(7))] {
            let mut me = Alone::new(&Config::default());
            let memory = Bytes::new(&vec![0; len]);
            let key = me.register(&memory);
            for (key, addr) in [(key + 1, 0), (key, 1)] {
                let write = me.rma(key, addr, &Bytes::new(&vec![1; len]), data);
                me.0.write(NOW, write).expect("accepted");
                me.transmit();
                let ended: Vec<_> = me.ended().iter().map(|c| (c.kind, c.result)).collect();
                assert_eq!(ended, [(OpKind::Write, Err(OpError::Access))], "{len} bytes at {addr}");
            }
            assert!(memory.to_vec().iter().all(|b| *b == 0));
        }
    }

    #[test]
    fn writes_to_oneself_with_data_go_on_when_the_program_takes_their_notices() {
        let mut me = Alone::new(&Config::default());
        let key = me.register(&Bytes::new(&[0; 8]));
        for round in 0..3 {
            let mut begun = 0;
            loop {
                let write = me.rma(key, 0, &Bytes::new(&[1; 8]), Some(round));
                let accepted = me.0.write(NOW, write).is_ok();
                me.transmit();
                if !accepted {
                    break;
                }
                begun += 1;
            }
            assert_eq!(begun, crate::limits::NOTICES_MAX);
            let notices = me.ended().iter().filter(|c| c.kind == OpKind::RemoteWrite).count();
            assert_eq!(notices, begun as usize);
            me.transmit();
        }
    }

    #[test]
    fn credit_binds_what_is_sent_to_oneself_and_comes_back_as_it_is_received() {
        let mut me = Alone::new(&Config { credit_msgs: 4, unexpected_bytes: 0, copy_bytes: 0, ..Config::default() });
        let memory = Bytes::new(&[5; 10]);
        for i in 0..20 {
            me.send(i, &memory, SendMode::Transmit);
        }
        assert_eq!(me.0.unexpected_count(), 4);
        for i in 0..20 {
            me.recv(i, &Bytes::new(&[0; 10]));
        }
        let tags: Vec<u64> = me.ended().iter().filter(|c| c.kind == OpKind::Recv).map(|c| c.tag).collect();
        assert_eq!(tags, (0..20).collect::<Vec<u64>>());
    }

    #[test]
    fn one_call_hands_over_so_much_and_the_rest_is_due_at_once() {
        let mut me = Alone::new(&Config::default());
        for i in 0..2000 {
            me.0.send(NOW, send_op(i, Bytes::new(&[1; 8]), SendMode::Inject)).expect("accepted");
        }
        assert_eq!(me.0.next_timeout(), Some(Time::ZERO));
        me.transmit();
        assert_eq!(me.0.unexpected_count(), STEPS_MAX);
        assert_eq!(me.0.next_timeout(), Some(Time::ZERO));
        me.transmit();
        assert_eq!((me.0.unexpected_count(), me.0.next_timeout()), (2000, None));
    }

    #[test]
    fn closing_does_not_wait_for_what_was_sent_to_oneself_and_never_received() {
        let mut me = Alone::new(&Config { eager_bytes: 100, ..Config::default() });
        me.send(1, &Bytes::new(&[1; 10]), SendMode::Inject);
        me.send(2, &Bytes::new(&[1; 10_000]), SendMode::Inject);
        assert_eq!(me.0.held()[0], 1, "it waits to be asked for, and was reported as complete");
        assert!(!me.0.owes());
        me.0.endpoint_mut().close(NOW);
        me.transmit();
        assert!(me.0.endpoint().is_drained());
    }

    #[test]
    fn without_a_socket_what_was_sent_to_oneself_is_still_received() {
        let mut me = Alone::new(&Config { eager_bytes: 100, ..Config::default() });
        let sent = Bytes::new(&pattern(10_000));
        // Not handed over yet.
        me.0.send(NOW, send_op(1, sent.clone(), SendMode::Match)).expect("accepted");
        me.0.fail_all(NOW, 5);
        assert!(me.ended().is_empty());
        let got = Bytes::new(&[0; 10_000]);
        me.0.recv(NOW, recv_op(2, got.clone())).expect("its message is there");
        me.0.carry_own(NOW);
        let ended: Vec<_> = me.ended().iter().map(|c| (c.kind, c.result)).collect();
        assert_eq!(ended, [(OpKind::Recv, Ok(())), (OpKind::Send, Ok(()))]);
        assert!(got.to_vec() == sent.to_vec());
    }

    #[test]
    fn a_synchronous_send_to_oneself_completes_with_its_match() {
        let mut me = Alone::new(&Config::default());
        me.send(1, &Bytes::new(&[1; 10]), SendMode::Match);
        assert!(me.ended().is_empty(), "complete, and nobody has it");
        me.recv(2, &Bytes::new(&[0; 10]));
        assert_eq!(me.ended().iter().map(|c| c.kind).collect::<Vec<_>>(), [OpKind::Recv, OpKind::Send]);
    }
}

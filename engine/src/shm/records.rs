//! The records that go through rings (spec/shm.md 10): what a session gave becomes one, and one
//! that has come is acted on.

use super::SharedMemory;
use crate::memory::{Gather, places_of, slices_of};
use crate::records::{
    self, CONTROL_LEN, Head, MESSAGE_LEN, SHORT, WHOLE_LEN, control_head, kind, piece_head, read_head, two_words,
    whole_head,
};
use crate::state::State;
use smallvec::SmallVec;
use std::io::IoSlice;
use weir_link::{DataKey, PeerId, Time};
use weir_message::{INLINE_BYTES, Memory, SendOp};
use weir_session::{Flow, Fragment, Line};
use weir_shm::{PeerIx, RemotePiece, SendError};

/// Messages with their envelope up to here go in one record; longer ones in several, or by where
/// they lie. 4 KiB: two copies of that cost less than a system call.
pub const SMALL_MAX: usize = 4096;
/// Payload in one record at most, where it is copied: small enough that the peer copies one piece
/// out while the next is copied in.
const PIECE_MAX: u64 = 8 << 10;
/// From here on the peer reads payload from where it lies. Below, two copies through a warm cache
/// cost less than the system call.
pub(super) const PULL_MIN: u64 = 32 << 10;
/// Payload that one record names at most: what the peer reads before others have their turn.
const PULL_MAX: u64 = 4 << 20;
/// Pieces of memory that one record names at most.
const PIECES_MAX: usize = 64;
/// Payload from here on is copied from the ring to its place at once; less goes by a buffer of
/// ours, which is cheaper than to ask for the place first.
const DIRECT_MIN: usize = 512;
/// The longest head with its envelope.
const HEAD_MAX: usize = MESSAGE_LEN + 48;
/// Bytes of the heads of records.
pub const HELLO_LEN: usize = 72;
/// What a session gave to be carried, or nothing.
pub enum Given {
    Nothing,
    Record,
    NoRoom,
    Over,
}

/// What became of the next record.
pub enum Taken {
    /// There is none.
    Nothing,
    /// Its payload is where it belongs, or the peer broke a rule.
    Placed(Result<(), &'static str>),
    /// It is in the scratch buffer: its kind and length.
    Copied(u16, usize),
}

impl SharedMemory {
    /// Takes the next record: its payload to where it belongs, or all of it to the scratch buffer.
    #[inline]
    pub fn take(&mut self, st: &mut State, now: Time, ix: PeerIx) -> Taken {
        // An error's end is told as an event.
        let Ok(Some(record)) = self.shm.try_recv(ix) else { return Taken::Nothing };
        let (kind, len) = (record.kind(), record.len());
        if len >= DIRECT_MIN && kind::is_payload(kind) {
            let entry = self.table.get(ix.slot()).and_then(Option::as_ref).filter(|p| p.ix == ix);
            let Some(peer) = entry.and_then(|p| p.peer) else { return Taken::Placed(Err("a record before the hello")) };
            return Taken::Placed(place(st, now, peer, kind, &record.bytes()));
        }
        let room = len.next_multiple_of(8);
        if self.scratch.len() < room {
            self.scratch.resize(room, 0);
        }
        record.bytes().copy_words(&mut self.scratch[..room]);
        if kind::is_list(kind) {
            // It counts as read only when the payload has been: from then on the sender's memory is
            // its program's again.
            std::mem::forget(record);
        }
        Taken::Copied(kind, len)
    }

    /// Acts on one record.
    pub fn record(
        &mut self,
        st: &mut State,
        now: Time,
        ix: PeerIx,
        kind: u16,
        bytes: &[u8],
    ) -> Result<(), &'static str> {
        let Some(entry) = self.table.get_mut(ix.slot()).and_then(Option::as_mut).filter(|p| p.ix == ix) else {
            return Ok(());
        };
        if kind == kind::BYE {
            entry.bye = true;
            return Ok(());
        }
        let known = entry.peer;
        if kind == kind::HELLO {
            return self.hello(st, now, ix, bytes);
        }
        let peer = known.ok_or("a record before the hello")?;
        if !kind::is_list(kind) {
            return records::act(st, now, peer, kind, bytes);
        }
        let sessions = st.proto().sessions();
        let number = |low| sessions.get(peer).map_or(0, |s| s.message_number(low));
        match read_head(kind, bytes, bytes.len(), number).ok_or(SHORT)? {
            Head::Message { fragment, envelope, start } => {
                st.messages.with_events(now, bytes, |proto, events| {
                    let (s, common) = proto.sessions_mut().get_mut(peer).ok_or("no session")?;
                    s.announce(common, &fragment, envelope..start, events)
                })?;
                let len = u32::from_le_bytes(bytes[24..28].try_into().expect("four bytes"));
                let part = (u64::from(fragment.offset), len, fragment.total_len);
                self.pull_in(st, now, ix, peer, DataKey::Message(fragment.mseq), part, &bytes[start..])
            }
            Head::Rndv { handle, offset, start } => {
                let len = u32::from_le_bytes(bytes[16..20].try_into().expect("four bytes"));
                let end = offset.checked_add(u64::from(len));
                if !st.proto().sessions().get(peer).is_some_and(|s| end.is_some_and(|end| s.may_arrive(handle, end))) {
                    return Err("rendezvous data beyond its grant");
                }
                self.pull_in(st, now, ix, peer, DataKey::Rndv(handle), (offset, len, 0), &bytes[start..])
            }
        }
    }

    /// Reads payload from where it lies in the peer's memory into its place. `part`: offset,
    /// length, and length of the whole message.
    #[expect(clippy::too_many_arguments, reason = "one place for both kinds of payload")]
    fn pull_in(
        &mut self,
        st: &mut State,
        now: Time,
        ix: PeerIx,
        peer: PeerId,
        key: DataKey,
        (offset, len, total): (u64, u32, u32),
        list: &[u8],
    ) -> Result<(), &'static str> {
        let mut remote: SmallVec<[RemotePiece; PIECES_MAX]> = SmallVec::new();
        for piece in list.chunks_exact(16).take(PIECES_MAX) {
            let word = |at: usize| u64::from_le_bytes(piece[at..at + 8].try_into().expect("eight bytes"));
            remote.push(RemotePiece { address: word(0), len: word(8) });
        }
        let named = remote.iter().fold(0u64, |sum, p| sum.saturating_add(p.len));
        if named != u64::from(len) || u64::from(len) > PULL_MAX {
            return Err("a list of memory that does not fit its payload");
        }
        let mut local: SmallVec<[libc::iovec; 4]> = SmallVec::new();
        places_of(st.messages.room(peer.0, key, offset, len as usize), len as usize, &mut local);
        let wanted: usize = local.iter().map(|p| p.iov_len).sum();
        if wanted > 0 {
            // SAFETY: memory of a receive or region, which its face declared writable until the
            // completion, and this is before; or a buffer of our own, of which nobody holds a
            // reference.
            let n = unsafe { self.shm.pull_into(ix, &remote, &local) };
            match n {
                Ok(n) if n == wanted => {}
                // It is at its end, which is told as an event; what came by then is no message.
                Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => return Ok(()),
                _ => return Err("memory that cannot be read"),
            }
        }
        st.messages.with_events(now, &[], |proto, events| {
            let (s, common) = proto.sessions_mut().get_mut(peer).ok_or("no session")?;
            s.placed(common, now, key, total, offset, len, events).map(|_| ())
        })
    }

    /// Puts a record into the ring: `head`, and `rest` behind it.
    fn put(&mut self, ix: PeerIx, kind: u16, head: &[u8], rest: &[IoSlice<'_>]) -> Result<u64, Given> {
        let len = rest.iter().fold(head.len(), |sum, piece| sum + piece.len());
        let mut room = match self.shm.reserve(ix, kind, len) {
            Ok(room) => room,
            Err(SendError::Full) => return Err(Given::NoRoom),
            Err(SendError::TooLong | SendError::NotUp | SendError::Over | SendError::Forked) => {
                return Err(Given::Over);
            }
        };
        room.write(0, head);
        let mut at = head.len();
        for piece in rest {
            room.write(at, piece);
            at += piece.len();
        }
        room.commit();
        self.shm.tail(ix).map_err(|_| Given::Over)
    }

    /// Puts a short message into the ring and shows it, if nothing waits that would have to go
    /// before it, and there is room.
    #[inline]
    pub fn send_straight(&mut self, st: &mut State, op: &SendOp<Gather>) -> bool {
        let Some(Some(ix)) = self.by_peer.get(op.peer as usize).copied() else { return false };
        let Some(Some(entry)) = self.table.get_mut(ix.slot()) else { return false };
        let Some(s) = st.messages.straight(op) else { return false };
        let len = op.memory.len() as usize;
        let Ok(mut room) = self.shm.reserve(ix, kind::WHOLE, WHOLE_LEN + s.envelope_len + len) else { return false };
        let Some(numbers) = st.messages.go_straight(op, s.stream) else { return false };
        let mut record = [0; (WHOLE_LEN + 48 + INLINE_BYTES).next_multiple_of(8)];
        record[..WHOLE_LEN].copy_from_slice(&whole_head(s.stream, s.envelope_len, numbers.sseq, numbers.mseq));
        record[WHOLE_LEN..WHOLE_LEN + 48].copy_from_slice(&s.envelope);
        let mut at = WHOLE_LEN + s.envelope_len;
        if len <= INLINE_BYTES {
            // One write of whole words instead of several of parts.
            op.memory.read(0, &mut record[at..at + len]);
            room.write_words(&record[..(at + len).next_multiple_of(8)]);
        } else {
            room.write(0, &record[..at]);
            let mut slices: SmallVec<[IoSlice<'_>; 4]> = SmallVec::new();
            op.memory.slices(0, len, &mut slices);
            for slice in &slices {
                room.write(at, slice);
                at += slice.len();
            }
        }
        room.commit();
        entry.straight = true;
        // Its end, if that is why it fails, comes as an event.
        let _ = self.shm.publish(ix);
        true
    }

    fn handed(&mut self, ix: PeerIx, end: u64, f: Fragment, awaited: bool) {
        if let Some(Some(p)) = self.table.get_mut(ix.slot()) {
            p.handed.push(end, f);
            p.awaited |= awaited;
            if !std::mem::replace(&mut p.is_handed, true) {
                self.handed_to.push(ix);
            }
        }
    }

    /// Hands over one thing of a session.
    pub fn give(&mut self, st: &mut State, ix: PeerIx, peer: PeerId) -> Given {
        let Some((s, common)) = st.proto_mut().sessions_mut().get_mut(peer) else { return Given::Nothing };
        if s.has_notices() {
            let (kind, f, a, b) = if let Some((msgs, bytes)) = s.take_credit(common) {
                (kind::CREDIT, Fragment::Credit, msgs, bytes)
            } else if let Some((handle, limit)) = s.take_grant(common) {
                (kind::GRANT, Fragment::Grant { handle }, handle, limit)
            } else if let Some((handle, code)) = s.take_abort() {
                (kind::ABORT, Fragment::Abort { handle, code }, handle, u64::from(code))
            } else {
                return self.give_message(st, ix, peer);
            };
            return match self.put(ix, kind, &two_words(a, b), &[]) {
                Ok(end) => {
                    self.handed(ix, end, f, false);
                    Given::Record
                }
                Err(given) => {
                    // Nothing was put: it is to be told still.
                    if let Some((s, _)) = st.proto_mut().sessions_mut().get_mut(peer) {
                        s.lost(f);
                    }
                    given
                }
            };
        }
        self.give_message(st, ix, peer)
    }

    fn give_message(&mut self, st: &mut State, ix: PeerIx, peer: PeerId) -> Given {
        let Some((s, _)) = st.proto_mut().sessions_mut().get_mut(peer) else { return Given::Nothing };
        let mut envelope = [0; 48];
        let given = if let Some((mseq, m, _)) = s.next_control() {
            let env = m.envelope().len();
            envelope[..env].copy_from_slice(m.envelope());
            let (token, len, patient) = (m.token, u64::from(m.len), m.patient || m.token == 0);
            let mut head = [0; CONTROL_LEN + 48];
            head[..CONTROL_LEN].copy_from_slice(&control_head(mseq, env));
            head[CONTROL_LEN..CONTROL_LEN + env].copy_from_slice(&envelope[..env]);
            self.put_payload(st, ix, kind::CONTROL, &head[..CONTROL_LEN + env], (token, 0, len)).map(|end| {
                if let Some((s, _)) = st.proto_mut().sessions_mut().get_mut(peer) {
                    s.took_control();
                }
                self.handed(ix, end, Fragment::Control { mseq }, !patient);
            })
        } else if let Some(piece) = s.next_small() {
            let Flow::Message(mseq) = piece.flow else { return Given::Nothing };
            let Some(m) = s.message(mseq) else { return Given::Nothing };
            let env = m.envelope().len();
            let (token, patient) = (m.token, m.patient || m.token == 0);
            let mut head = [0; WHOLE_LEN + 48];
            head[..WHOLE_LEN].copy_from_slice(&whole_head(m.stream, env, m.sseq, mseq));
            head[WHOLE_LEN..WHOLE_LEN + env].copy_from_slice(m.envelope());
            self.put_payload(st, ix, kind::WHOLE, &head[..WHOLE_LEN + env], (token, 0, piece.to)).map(|end| {
                if let Some((s, _)) = st.proto_mut().sessions_mut().get_mut(peer) {
                    s.took_small(piece.to);
                }
                self.handed(ix, end, Fragment::of(piece.flow, 0, piece.to), !patient);
            })
        } else if let Some(piece) = s.next_lost() {
            self.give_piece(st, ix, peer, piece.flow, piece.from, piece.to, true)
        } else if let Some(piece) = s.next_flow(Line::Main) {
            self.give_piece(st, ix, peer, piece.flow, piece.from, piece.to, false)
        } else {
            return Given::Nothing;
        };
        match given {
            Ok(()) => Given::Record,
            Err(given) => given,
        }
    }

    fn put_payload(
        &mut self,
        st: &State,
        ix: PeerIx,
        kind: u16,
        head: &[u8],
        (token, offset, len): (u64, u64, u64),
    ) -> Result<u64, Given> {
        let mut slices: SmallVec<[IoSlice<'_>; 4]> = SmallVec::new();
        if let Some(source) = st.messages.payload(token) {
            slices_of(source, offset, len as usize, &mut slices);
        }
        if slices.iter().map(|s| s.len() as u64).sum::<u64>() < len {
            // The operation was given up, and its memory is the caller's again: nobody looks at
            // these bytes.
            static NOTHING: [u8; PIECE_MAX as usize] = [0; PIECE_MAX as usize];
            slices.clear();
            slices.push(IoSlice::new(&NOTHING[..(len as usize).min(NOTHING.len())]));
        }
        self.put(ix, kind, head, &slices)
    }

    /// Hands over the beginning of `[from, to)` of a flow: where it lies, or the bytes themselves.
    #[expect(clippy::too_many_arguments, reason = "one place for what is sent and what is sent again")]
    fn give_piece(
        &mut self,
        st: &mut State,
        ix: PeerIx,
        peer: PeerId,
        flow: Flow,
        from: u64,
        to: u64,
        again: bool,
    ) -> Result<(), Given> {
        let pulls = self.table.get(ix.slot()).and_then(Option::as_ref).is_some_and(|p| p.pulls);
        let Some(s) = st.proto().sessions().get(peer) else { return Err(Given::Nothing) };
        let token = match flow {
            Flow::Message(mseq) => s.message(mseq).map(|m| m.token),
            Flow::Rndv(slot, generation) => s.rndv(slot, generation).map(|b| b.token),
        };
        let Some(token) = token else { return Err(Given::Nothing) };
        let mut list: SmallVec<[u8; 64]> = SmallVec::new();
        let mut end = to.min(from + PIECE_MAX);
        if pulls && to - from >= PULL_MIN && st.messages.lends(token) {
            end = to.min(from + PULL_MAX);
            let mut slices: SmallVec<[IoSlice<'_>; 4]> = SmallVec::new();
            if let Some(source) = st.messages.payload(token) {
                slices_of(source, from, (end - from) as usize, &mut slices);
            }
            slices.truncate(PIECES_MAX);
            let named: u64 = slices.iter().map(|s| s.len() as u64).sum();
            if named > 0 {
                end = from + named;
                for s in &slices {
                    list.extend_from_slice(&(s.as_ptr().expose_provenance() as u64).to_le_bytes());
                    list.extend_from_slice(&(s.len() as u64).to_le_bytes());
                }
            } else {
                end = to.min(from + PIECE_MAX);
            }
        }
        let (head, patient) = piece_head(s, flow, from, end).ok_or(Given::Nothing)?;
        let message = matches!(flow, Flow::Message(_));
        let tail = if list.is_empty() {
            let kind = if message { kind::MESSAGE } else { kind::RNDV };
            self.put_payload(st, ix, kind, &head, (token, from, end - from))?
        } else {
            let kind = if message { kind::MESSAGE_AT } else { kind::RNDV_AT };
            self.put(ix, kind, &head, &[IoSlice::new(&list)])?
        };
        if let Some((s, _)) = st.proto_mut().sessions_mut().get_mut(peer) {
            if again {
                s.took_lost(end);
            } else if !s.took_flow(Line::Main, end) {
                // Others have their turn in between.
                s.end_turn(Line::Main);
            }
        }
        self.handed(ix, tail, Fragment::of(flow, from, end), !patient);
        Ok(())
    }
}

/// Copies the payload of a record from the ring to where it belongs.
fn place(
    st: &mut State,
    now: Time,
    peer: PeerId,
    kind: u16,
    bytes: &weir_shm::bytes::SharedBytes<'_>,
) -> Result<(), &'static str> {
    let mut head = [0; HEAD_MAX];
    let n = bytes.copy_to(0, &mut head);
    let sessions = st.proto().sessions();
    let number = |low| sessions.get(peer).map_or(0, |s| s.message_number(low));
    let head_of = read_head(kind, &head[..n], bytes.len(), number).ok_or("a record whose head is none")?;
    let (key, offset, total, start) = match head_of {
        Head::Message { fragment, envelope, start } => {
            st.messages.with_events(now, &head, |proto, events| {
                let (s, common) = proto.sessions_mut().get_mut(peer).ok_or("no session")?;
                s.announce(common, &fragment, envelope..start, events)
            })?;
            (DataKey::Message(fragment.mseq), u64::from(fragment.offset), fragment.total_len, start)
        }
        Head::Rndv { handle, offset, start } => {
            let end = offset.checked_add((bytes.len() - start) as u64).ok_or("a record whose head is none")?;
            if !st.proto().sessions().get(peer).is_some_and(|s| s.may_arrive(handle, end)) {
                return Err("rendezvous data beyond its grant");
            }
            (DataKey::Rndv(handle), offset, 0, start)
        }
    };
    let len = bytes.len() - start;
    let mut places: SmallVec<[libc::iovec; 4]> = SmallVec::new();
    places_of(st.messages.room(peer.0, key, offset, len), len, &mut places);
    let mut at = start;
    for p in &places {
        // SAFETY: memory of a receive or region, which its face declared writable until the
        // completion, and this is before; or a buffer of our own. Nobody else holds a reference
        // here.
        let to = unsafe { std::slice::from_raw_parts_mut(p.iov_base.cast::<u8>(), p.iov_len) };
        at += bytes.copy_to(at, to);
    }
    st.messages.with_events(now, &[], |proto, events| {
        let (s, common) = proto.sessions_mut().get_mut(peer).ok_or("no session")?;
        s.placed(common, now, key, total, offset, len as u32, events).map(|_| ())
    })
}

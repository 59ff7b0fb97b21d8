//! The user messages of SCTP (spec/sctp.md 4): what a session gave becomes one, and one that has
//! come is acted on.

use super::{Phase, Sctp, TICK_NS};
use crate::config::SctpControl;
use crate::memory::slices_of;
use crate::records::{SHORT, act, control_head, kind, piece_head, two_words, whole_head};
use crate::state::State;
use smallvec::SmallVec;
use std::io::IoSlice;
use weir_link::{PeerId, Time};
use weir_sctp::SendError;
use weir_session::{Flow, Fragment, Line};

/// Payload in one record at most, and a message with its envelope that goes in one.
pub const PIECE_MAX: u64 = 16 << 10;
/// The payload protocol identifier of kind 0.
const PPID: u32 = 0x5745_0000;
/// What every record but HELLO begins with.
const HEAD_LEN: usize = 16;
const FLAGS_AT: usize = 8;
const FLAG_TELL: u8 = 1;
/// Bytes of an entry of ACK.
const ENTRY_LEN: usize = 16;
/// Streams that a peer may use: what `protocol.md` P-2.43 lets it, and stream 0.
const STREAMS_MAX: u16 = weir_session::STREAMS_MAX + 1;
/// Read so much, a peer is told at once.
const TELL_BYTES: usize = 64 << 10;
/// Else after this time.
const TELL_WAIT_NS: u64 = 1_000_000;

/// What a session gave to be carried, or nothing.
pub enum Given {
    Nothing,
    Record,
    NoRoom,
    Over,
}

/// Where a record comes from in its session.
#[derive(Copy, Clone, PartialEq, Eq)]
enum From {
    Notices,
    Control,
    Small,
    Lost,
    Flows,
}

/// A record that is to go: what stands in it is in the buffer.
struct Next {
    from: From,
    stream: u16,
    kind: u16,
    fragment: Fragment,
    tell: bool,
}

impl Sctp {
    // What arrives.

    /// SCTP is up: says whose it is.
    pub(super) fn says_hello(&mut self, st: &mut State, now: Time, peer: PeerId, streams: u16) {
        let Some(p) = self.there_mut(peer) else { return };
        p.streams = streams;
        p.out.resize_with(usize::from(streams), Default::default);
        let said = match st.proto().sctp_hello(peer) {
            Some(hello) if streams >= 2 => p.association.send(0, PPID | u32::from(kind::HELLO), &hello).is_ok(),
            _ => false,
        };
        if said {
            p.out[0].sent += 1;
        } else {
            self.fall_back(st, now, peer, "the peer takes too few streams");
        }
    }

    /// A user message came.
    pub(super) fn arrived(
        &mut self,
        st: &mut State,
        now: Time,
        peer: PeerId,
        (stream, ppid): (u16, u32),
        bytes: &[u8],
    ) -> Result<(), &'static str> {
        let Some(p) = self.there_mut(peer).filter(|p| !matches!(p.phase, Phase::Over(_))) else { return Ok(()) };
        let kind = ppid.checked_sub(PPID).and_then(|kind| u16::try_from(kind).ok());
        let place = usize::from(stream);
        if !p.heard_hello {
            let is_good = (stream, kind) == (0, Some(kind::HELLO)) && st.proto().is_sctp_hello(peer, bytes);
            if !is_good || p.streams == 0 {
                // Perhaps another's who has no key: the peer is not to blame for it.
                self.counters.hellos_refused += 1;
                self.fall_back(st, now, peer, "what came first was no HELLO of this peer");
                return Ok(());
            }
            p.heard_hello = true;
            p.inn.resize_with(p.inn.len().max(1), Default::default);
            p.inn[0].read += 1;
            self.tell(now, peer);
            return Ok(());
        }
        if stream >= STREAMS_MAX {
            return Err("a stream number of SCTP that is too high");
        }
        let kind = kind.ok_or(SHORT)?;
        if p.inn.len() <= place {
            p.inn.resize_with(place + 1, Default::default);
        }
        let (head, rest) = bytes.split_first_chunk::<HEAD_LEN>().ok_or(SHORT)?;
        let flags = head[FLAGS_AT];
        if flags & !FLAG_TELL != 0 || head[FLAGS_AT + 1..] != [0; HEAD_LEN - FLAGS_AT - 1] {
            return Err("a record of SCTP with a reserved bit");
        }
        self.was_read(st, now, peer, stream, u64_at(head, 0))?;
        match kind {
            kind::ACK => {
                if !rest.len().is_multiple_of(ENTRY_LEN) {
                    return Err(SHORT);
                }
                for entry in rest.chunks_exact(ENTRY_LEN) {
                    if entry[2..8] != [0; 6] {
                        return Err("a record of SCTP with a reserved bit");
                    }
                    let of = u16::from_le_bytes([entry[0], entry[1]]);
                    self.was_read(st, now, peer, of, u64_at(entry, 8))?;
                }
            }
            kind::WHOLE | kind::CONTROL | kind::MESSAGE | kind::RNDV | kind::CREDIT | kind::GRANT | kind::ABORT => {
                self.counters.records_received += 1;
                self.counters.record_bytes_received += rest.len() as u64;
                act(st, now, peer, kind, rest)?;
            }
            _ => return Err("a record of an unknown kind"),
        }
        let Some(p) = self.there_mut(peer) else { return Ok(()) };
        p.inn[place].read += 1;
        if kind != kind::ACK {
            p.untold_bytes += bytes.len();
            let at_once = flags & FLAG_TELL != 0 || p.untold_bytes >= TELL_BYTES;
            let at = if at_once { now } else { now.plus_ns(TELL_WAIT_NS) };
            p.tell_at = Some(p.tell_at.map_or(at, |t| t.min(at)));
        }
        Ok(())
    }

    /// The peer says that it has read so many user messages of a stream.
    fn was_read(
        &mut self,
        st: &mut State,
        now: Time,
        peer: PeerId,
        stream: u16,
        read: u64,
    ) -> Result<(), &'static str> {
        let Some(p) = self.there_mut(peer) else { return Ok(()) };
        let Some(o) = p.out.get_mut(usize::from(stream)) else {
            return if read == 0 { Ok(()) } else { Err("more read of a stream of SCTP than was sent") };
        };
        if read > o.sent {
            return Err("more read of a stream of SCTP than was sent");
        }
        if read <= o.read {
            return Ok(());
        }
        o.read = read;
        p.acked_at = now;
        if o.handed.any_within(read) {
            let handed = &mut o.handed;
            st.messages.with_events(now, &[], |proto, events| {
                if let Some((s, common)) = proto.sessions_mut().get_mut(peer) {
                    handed.read(read, s, common, events, |_| ());
                }
            });
        }
        let is_opening = self.there(peer).is_some_and(|p| matches!(p.phase, Phase::Opening(_)));
        if is_opening {
            self.comes_up(st, peer);
        }
        Ok(())
    }

    // What leaves.

    /// Tells the peer what was read of each stream, as far as it does not know.
    pub(super) fn tell(&mut self, now: Time, peer: PeerId) {
        let mut record = std::mem::take(&mut self.record);
        record.clear();
        record.resize(HEAD_LEN, 0);
        let Some(p) = self.there_mut(peer) else { return };
        for (stream, i) in p.inn.iter().enumerate().filter(|(_, i)| i.told < i.read) {
            record.extend_from_slice(&(stream as u64).to_le_bytes());
            record.extend_from_slice(&i.read.to_le_bytes());
        }
        let is_told = record.len() == HEAD_LEN || self.put(peer, 0, kind::ACK, &mut record, false).is_ok();
        if is_told && let Some(p) = self.there_mut(peer) {
            p.inn.iter_mut().for_each(|i| i.told = i.read);
            (p.tell_at, p.untold_bytes) = (None, 0);
            self.counters.acks_sent += u64::from(record.len() > HEAD_LEN);
        } else if let Some(p) = self.there_mut(peer) {
            // What had no room is told when a packet has made some, or in a while: a time that has
            // passed would keep whoever sleeps awake.
            (p.tell_at, p.full) = (Some(now.plus_ns(TICK_NS)), true);
        }
        self.record = record;
    }

    /// Hands a record to SCTP, whose first bytes are written here. Where it ends in its stream.
    fn put(&mut self, peer: PeerId, stream: u16, kind: u16, record: &mut [u8], tell: bool) -> Result<u64, Given> {
        let p = self.there_mut(peer).ok_or(Given::Over)?;
        let i = p.inn.get(usize::from(stream)).copied().unwrap_or_default();
        record[..8].copy_from_slice(&i.read.to_le_bytes());
        record[FLAGS_AT..HEAD_LEN].fill(0);
        record[FLAGS_AT] = if tell { FLAG_TELL } else { 0 };
        match p.association.send(stream, PPID | u32::from(kind), record) {
            Ok(()) => {}
            Err(SendError::Full) => return Err(Given::NoRoom),
            Err(SendError::Over) => return Err(Given::Over),
        }
        if let Some(i) = p.inn.get_mut(usize::from(stream)) {
            i.told = i.read;
        }
        if p.tell_at.is_some() && p.inn.iter().all(|i| i.told == i.read) {
            (p.tell_at, p.untold_bytes) = (None, 0);
        }
        let o = p.out.get_mut(usize::from(stream)).ok_or(Given::Over)?;
        o.sent += 1;
        Ok(o.sent)
    }

    /// Hands over one thing of a session.
    pub(super) fn give(&mut self, st: &mut State, peer: PeerId) -> Given {
        let mut record = std::mem::take(&mut self.record);
        record.clear();
        record.resize(HEAD_LEN, 0);
        let given = match self.next(st, peer, &mut record) {
            None => Given::Nothing,
            Some(n) => {
                let put = self.put(peer, n.stream, n.kind, &mut record, n.tell);
                self.took(st, peer, &n, record.len(), put)
            }
        };
        self.record = record;
        given
    }

    /// A record was handed over, or not.
    fn took(&mut self, st: &mut State, peer: PeerId, n: &Next, len: usize, put: Result<u64, Given>) -> Given {
        let Some((s, _)) = st.proto_mut().sessions_mut().get_mut(peer) else { return Given::Nothing };
        let end = match put {
            Ok(end) => end,
            Err(given) => {
                if n.from == From::Notices {
                    // It was taken: it is to be told still.
                    s.lost(n.fragment);
                }
                return given;
            }
        };
        let flow = match n.fragment {
            Fragment::Message { mseq, offset, len } => Some((Flow::Message(mseq), u64::from(offset) + u64::from(len))),
            Fragment::Rndv { slot, generation, offset, len } => {
                Some((Flow::Rndv(slot, generation), offset + u64::from(len)))
            }
            _ => None,
        };
        let to = flow.map_or(0, |(_, to)| to);
        match n.from {
            From::Notices => {}
            From::Control => s.took_control(),
            From::Small => s.took_small(to),
            From::Lost => s.took_lost(to),
            From::Flows => {
                if !s.took_flow(Line::Main, to) && self.control != SctpControl::A {
                    s.end_turn(Line::Main);
                }
            }
        }
        let begun = flow.map(|(flow, _)| flow).filter(|flow| s.is_begun(*flow));
        let Some(p) = self.there_mut(peer) else { return Given::Over };
        if let Some(flow) = begun
            && !p.begun.iter().any(|(other, _)| *other == flow)
        {
            p.begun.push((flow, n.stream));
        }
        if let Some(o) = p.out.get_mut(usize::from(n.stream)) {
            o.handed.push(end, n.fragment);
        }
        self.counters.records_sent += 1;
        self.counters.record_bytes_sent += (len - HEAD_LEN) as u64;
        Given::Record
    }

    /// Writes what goes next, without its first bytes. Only of notices it is taken out of the
    /// session by that.
    fn next(&mut self, st: &mut State, peer: PeerId, record: &mut Vec<u8>) -> Option<Next> {
        let control = self.control;
        let p = self.there_mut(peer)?;
        let data_streams = u64::from(p.streams - 1);
        let (s, common) = st.proto_mut().sessions_mut().get_mut(peer)?;
        p.begun.retain(|(flow, _)| s.is_begun(*flow));
        // Option A: a long message is under way, and nothing else goes before its end.
        let holds_on = control == SctpControl::A && !p.begun.is_empty();
        // The stream of something of control, if it may go now.
        let stream_of = |number: u64| match control {
            SctpControl::B => {
                let stream = 1 + (number % data_streams) as u16;
                (!p.begun.iter().any(|(_, busy)| *busy == stream)).then_some(stream)
            }
            SctpControl::A | SctpControl::C => (!holds_on).then_some(0),
        };
        if s.has_notices()
            && let Some(stream) = stream_of(0)
        {
            let notice = if let Some((msgs, bytes)) = s.take_credit(common) {
                Some((kind::CREDIT, Fragment::Credit, msgs, bytes))
            } else if let Some((handle, limit)) = s.take_grant(common) {
                Some((kind::GRANT, Fragment::Grant { handle }, handle, limit))
            } else {
                let abort = s.take_abort();
                abort.map(|(handle, code)| (kind::ABORT, Fragment::Abort { handle, code }, handle, u64::from(code)))
            };
            if let Some((kind, fragment, a, b)) = notice {
                record.extend_from_slice(&two_words(a, b));
                return Some(Next { from: From::Notices, stream, kind, fragment, tell: false });
            }
        }
        let (next, payload) = if let Some((mseq, m, _)) = s.next_control()
            && let Some(stream) = stream_of(mseq)
        {
            record.extend_from_slice(&control_head(mseq, m.envelope().len()));
            record.extend_from_slice(m.envelope());
            let tell = !(m.patient || m.token == 0);
            let fragment = Fragment::Control { mseq };
            let next = Next { from: From::Control, stream, kind: kind::CONTROL, fragment, tell };
            (next, (m.token, 0, u64::from(m.len)))
        } else if !holds_on
            && let Some(piece) = s.next_small()
            // (What was cut for longer packets goes as what is long does.)
            && piece.to <= PIECE_MAX
            && let Flow::Message(mseq) = piece.flow
        {
            let m = s.message(mseq)?;
            record.extend_from_slice(&whole_head(m.stream, m.envelope().len(), m.sseq, mseq));
            record.extend_from_slice(m.envelope());
            let stream = 1 + (u64::from(m.stream) % data_streams) as u16;
            let fragment = Fragment::of(piece.flow, 0, piece.to);
            let tell = !(m.patient || m.token == 0);
            let next = Next { from: From::Small, stream, kind: kind::WHOLE, fragment, tell };
            (next, (m.token, 0, piece.to))
        } else {
            let (from, piece) = if holds_on {
                (From::Flows, s.next_flow(Line::Main)?)
            } else if let Some(piece) = s.next_small() {
                (From::Small, piece)
            } else if let Some(piece) = s.next_lost() {
                (From::Lost, piece)
            } else {
                (From::Flows, s.next_flow(Line::Main)?)
            };
            let end = piece.to.min(piece.from + PIECE_MAX);
            let (head, patient) = piece_head(s, piece.flow, piece.from, end)?;
            record.extend_from_slice(&head);
            let (kind, token, number, is_last) = match piece.flow {
                Flow::Message(mseq) => {
                    let m = s.message(mseq)?;
                    (kind::MESSAGE, m.token, u64::from(m.stream), end == u64::from(m.len))
                }
                Flow::Rndv(slot, generation) => {
                    let b = s.rndv(slot, generation)?;
                    (kind::RNDV, b.token, b.handle, end == b.len)
                }
            };
            let stream = 1 + (number % data_streams) as u16;
            let fragment = Fragment::of(piece.flow, piece.from, end);
            let next = Next { from, stream, kind, fragment, tell: !patient && is_last };
            (next, (token, piece.from, end - piece.from))
        };
        append_payload(st, record, payload);
        Some(next)
    }
}

/// Copies payload behind a head. Of an operation that was given up the memory is the caller's
/// again, and nobody looks at these bytes.
fn append_payload(st: &State, record: &mut Vec<u8>, (token, offset, len): (u64, u64, u64)) {
    let end = record.len() + len as usize;
    if let Some(source) = st.messages.payload(token) {
        let mut slices: SmallVec<[IoSlice<'_>; 4]> = SmallVec::new();
        slices_of(source, offset, len as usize, &mut slices);
        slices.iter().for_each(|slice| record.extend_from_slice(slice));
    }
    record.resize(end, 0);
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

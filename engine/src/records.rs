//! The records by which a carrier in order has its sessions' messages: what stands in them
//! (spec/shm.md 10), and what becomes of one that has come. Rings and SCTP have the same.

use crate::state::State;
use smallvec::SmallVec;
use weir_link::{PeerId, Time};
use weir_session::{Flow, FragmentIn, Session};

/// Kinds of records (spec/shm.md 10).
pub mod kind {
    pub const HELLO: u16 = 1;
    pub const WHOLE: u16 = 2;
    pub const CONTROL: u16 = 3;
    pub const MESSAGE: u16 = 4;
    pub const RNDV: u16 = 5;
    pub const MESSAGE_AT: u16 = 6;
    pub const RNDV_AT: u16 = 7;
    pub const CREDIT: u16 = 8;
    pub const GRANT: u16 = 9;
    pub const ABORT: u16 = 10;
    pub const BYE: u16 = 11;
    /// Of SCTP alone (spec/sctp.md 4).
    pub const ACK: u16 = 12;

    /// Whether the record says where its payload lies.
    pub fn is_list(kind: u16) -> bool {
        matches!(kind, MESSAGE_AT | RNDV_AT)
    }

    /// Whether the record bears payload itself, behind a head and perhaps an envelope.
    pub fn is_payload(kind: u16) -> bool {
        matches!(kind, WHOLE | MESSAGE | RNDV)
    }
}

/// Bytes of the heads of records.
pub const WHOLE_LEN: usize = 12;
pub const CONTROL_LEN: usize = 8;
pub const MESSAGE_LEN: usize = 32;
pub const RNDV_LEN: usize = 24;

/// What goes before envelope and payload of a message that is whole.
#[inline]
pub fn whole_head(stream: u16, envelope_len: usize, sseq: u32, mseq: u64) -> [u8; WHOLE_LEN] {
    let mut head = [0; WHOLE_LEN];
    head[..2].copy_from_slice(&stream.to_le_bytes());
    head[2..4].copy_from_slice(&(envelope_len as u16).to_le_bytes());
    head[4..8].copy_from_slice(&sseq.to_le_bytes());
    head[8..].copy_from_slice(&(mseq as u32).to_le_bytes());
    head
}

/// A message that is all there goes to the receive that waits for it. False: nothing was done.
#[inline]
pub fn take_whole(st: &mut State, peer: PeerId, bytes: &[u8]) -> bool {
    let Some((head, rest)) = bytes.split_first_chunk::<WHOLE_LEN>() else { return false };
    let [s0, s1, e0, e1, q0, q1, q2, q3, m0, m1, m2, m3] = *head;
    let Some((envelope, payload)) = rest.split_at_checked(usize::from(u16::from_le_bytes([e0, e1]))) else {
        return false;
    };
    let Some(session) = st.proto().sessions().get(peer) else { return false };
    let fragment = FragmentIn {
        stream: u16::from_le_bytes([s0, s1]),
        mseq: session.message_number(u32::from_le_bytes([m0, m1, m2, m3])),
        sseq: u32::from_le_bytes([q0, q1, q2, q3]),
        // (A record is far shorter.)
        total_len: payload.len() as u32,
        offset: 0,
    };
    st.messages.whole(peer, &fragment, envelope, payload)
}

/// What is said at the head of a record that bears payload, and where that begins.
pub enum Head {
    Message { fragment: FragmentIn, envelope: usize, start: usize },
    Rndv { handle: u64, offset: u64, start: usize },
}

/// Reads the head of a record of `len` bytes, of which `bytes` are the first. `number` expands the
/// low half of a message's number.
pub fn read_head(kind: u16, bytes: &[u8], len: usize, number: impl Fn(u32) -> u64) -> Option<Head> {
    let u16_at = |at: usize| bytes.get(at..at + 2).map(|b| u16::from_le_bytes(b.try_into().expect("two bytes")));
    let u32_at = |at: usize| bytes.get(at..at + 4).map(|b| u32::from_le_bytes(b.try_into().expect("four bytes")));
    let u64_at = |at: usize| bytes.get(at..at + 8).map(|b| u64::from_le_bytes(b.try_into().expect("eight bytes")));
    let (head, start) = match kind {
        kind::WHOLE => {
            let start = WHOLE_LEN + usize::from(u16_at(2)?);
            let total_len = u32::try_from(len.checked_sub(start)?).ok()?;
            let (stream, sseq, mseq) = (u16_at(0)?, u32_at(4)?, number(u32_at(8)?));
            let fragment = FragmentIn { stream, mseq, sseq, total_len, offset: 0 };
            (Head::Message { fragment, envelope: WHOLE_LEN, start }, start)
        }
        kind::MESSAGE | kind::MESSAGE_AT => {
            let start = MESSAGE_LEN + usize::from(u16_at(2)?);
            let (stream, sseq, mseq) = (u16_at(0)?, u32_at(4)?, u64_at(8)?);
            let (total_len, offset, part) = (u32_at(16)?, u32_at(20)?, u32_at(24)?);
            if offset.checked_add(part)? > total_len
                || (kind == kind::MESSAGE && len.checked_sub(start)? != part as usize)
            {
                return None;
            }
            let fragment = FragmentIn { stream, mseq, sseq, total_len, offset };
            (Head::Message { fragment, envelope: MESSAGE_LEN, start }, start)
        }
        _ => {
            let (handle, offset) = (u64_at(0)?, u64_at(8)?);
            (Head::Rndv { handle, offset, start: RNDV_LEN }, RNDV_LEN)
        }
    };
    (start <= bytes.len() && start <= len).then_some(head)
}

/// What is wrong with a record that is too short for its kind.
pub const SHORT: &str = "a record whose head is none";

/// What goes before envelope and payload of a control message.
#[inline]
pub fn control_head(mseq: u64, envelope_len: usize) -> [u8; CONTROL_LEN] {
    let mut head = [0; CONTROL_LEN];
    head[..4].copy_from_slice(&(mseq as u32).to_le_bytes());
    head[4..6].copy_from_slice(&(envelope_len as u16).to_le_bytes());
    head
}

/// What goes before the payload `[from, end)` of a flow, envelope included, and whether nobody
/// waits for it. `None`: it is over.
pub fn piece_head(s: &Session, flow: Flow, from: u64, end: u64) -> Option<(SmallVec<[u8; 96]>, bool)> {
    let mut head = SmallVec::new();
    let len = ((end - from) as u32).to_le_bytes();
    match flow {
        Flow::Message(mseq) => {
            let m = s.message(mseq)?;
            head.extend_from_slice(&m.stream.to_le_bytes());
            head.extend_from_slice(&(m.envelope().len() as u16).to_le_bytes());
            head.extend_from_slice(&m.sseq.to_le_bytes());
            head.extend_from_slice(&mseq.to_le_bytes());
            head.extend_from_slice(&m.len.to_le_bytes());
            head.extend_from_slice(&(from as u32).to_le_bytes());
            head.extend_from_slice(&len);
            head.extend_from_slice(&[0; 4]);
            head.extend_from_slice(m.envelope());
            Some((head, m.patient))
        }
        Flow::Rndv(slot, generation) => {
            let b = s.rndv(slot, generation)?;
            head.extend_from_slice(&b.handle.to_le_bytes());
            head.extend_from_slice(&from.to_le_bytes());
            head.extend_from_slice(&len);
            head.extend_from_slice(&[0; 4]);
            Some((head, false))
        }
    }
}

/// Two numbers: all there is of CREDIT, GRANT and ABORT.
#[inline]
pub fn two_words(a: u64, b: u64) -> [u8; 16] {
    let mut words = [0; 16];
    words[..8].copy_from_slice(&a.to_le_bytes());
    words[8..].copy_from_slice(&b.to_le_bytes());
    words
}

/// Acts on one record that is all in `bytes`: of any kind but those of one carrier alone.
///
/// # Errors
/// The rule that the peer broke.
pub fn act(st: &mut State, now: Time, peer: PeerId, kind: u16, bytes: &[u8]) -> Result<(), &'static str> {
    let u64_at = |at: usize| bytes.get(at..at + 8).map(|b| u64::from_le_bytes(b.try_into().expect("eight bytes")));
    match kind {
        kind::WHOLE if take_whole(st, peer, bytes) => Ok(()),
        kind::WHOLE | kind::MESSAGE | kind::RNDV => {
            let sessions = st.proto().sessions();
            let number = |low| sessions.get(peer).map_or(0, |s| s.message_number(low));
            let head = read_head(kind, bytes, bytes.len(), number).ok_or(SHORT)?;
            st.messages.with_events(now, bytes, |proto, events| {
                let (s, common) = proto.sessions_mut().get_mut(peer).ok_or("no session")?;
                match head {
                    Head::Message { fragment, envelope, start } => {
                        s.on_message(common, &fragment, &(envelope..start), &(start..bytes.len()), events)
                    }
                    Head::Rndv { handle, offset, start } => {
                        s.on_rndv(common, now, (handle, offset), &(start..bytes.len()), events).map(|_| ())
                    }
                }
            })
        }
        kind::CONTROL => {
            let (low, rest) = bytes.split_first_chunk::<CONTROL_LEN>().ok_or(SHORT)?;
            let [a, b, c, d, e, f, _, _] = *low;
            let start = CONTROL_LEN + usize::from(u16::from_le_bytes([e, f]));
            if start - CONTROL_LEN > rest.len() {
                return Err(SHORT);
            }
            st.messages.with_events(now, bytes, |proto, events| {
                let (s, common) = proto.sessions_mut().get_mut(peer).ok_or("no session")?;
                let low = u32::from_le_bytes([a, b, c, d]);
                s.on_control(common, low, CONTROL_LEN..start, start..bytes.len(), events)
            })
        }
        kind::CREDIT | kind::GRANT | kind::ABORT => {
            let (a, b) = (u64_at(0).ok_or(SHORT)?, u64_at(8).ok_or(SHORT)?);
            st.messages.with_events(now, &[], |proto, events| {
                let (s, common) = proto.sessions_mut().get_mut(peer).ok_or("no session")?;
                match kind {
                    kind::CREDIT => s.on_credit(common, a as u32, b),
                    kind::GRANT => s.on_grant(common, a, b),
                    _ => s.on_abort(common, a, b as u16, events),
                }
                proto.sessions_mut().touch(peer);
                Ok(())
            })
        }
        _ => Err("a record of an unknown kind"),
    }
}

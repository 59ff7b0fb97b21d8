//! Frames: what a PROTECTED packet carries (spec 2.2). Types and parsing; the writers are in
//! `write`, ACK in `ack`.

mod ack;
mod show;
mod write;

use core::ops::Range;

pub use ack::{ACK_ENTRY_LEN, ACK_HEAD_LEN, Ack, AckRanges, AckTimes, write_ack, write_ack_of_one};
pub use write::{
    close_len, write_bulk, write_close, write_credit, write_grant, write_marked, write_msg_head, write_padding,
    write_parity_head, write_path_challenge, write_path_response, write_ping, write_recovered, write_rndv_abort,
    write_rndv_head,
};

use crate::bytes::{le16, le32, le64};
use crate::packet::MAX_PATH;
use crate::{MAX_ENVELOPE_LEN, MAX_PARITY_COUNT, MAX_PARITY_ROWS};

/// Bytes of a MSG frame before the envelope.
pub const MSG_HEAD_LEN: usize = 24;
/// Bytes of an RNDV frame before the payload.
pub const RNDV_HEAD_LEN: usize = 24;
/// Bytes of a PARITY frame before the payload.
pub const PARITY_HEAD_LEN: usize = 24;
/// Bytes of a PING frame.
pub const PING_LEN: usize = 1;
/// Bytes of a CREDIT frame.
pub const CREDIT_LEN: usize = 16;
/// Bytes of a GRANT frame.
pub const GRANT_LEN: usize = 24;
/// Bytes of a PATH_CHALLENGE or PATH_RESPONSE frame.
pub const PATH_LEN: usize = 16;
/// Bytes of an RNDV_ABORT frame.
pub const RNDV_ABORT_LEN: usize = 16;
/// Bytes of a RECOVERED frame.
pub const RECOVERED_LEN: usize = 24;
/// Bytes of a BULK frame.
pub const BULK_LEN: usize = 16;
/// Bytes of a MARKED frame.
pub const MARKED_LEN: usize = 8;
/// Bytes of a CLOSE frame before the reason.
pub const CLOSE_HEAD_LEN: usize = 5;
/// Longest reason in a CLOSE frame in bytes.
pub const MAX_REASON_LEN: usize = 255;

pub(crate) mod types {
    //! Type bytes.
    pub(crate) const PADDING: u8 = 0x00;
    pub(crate) const PING: u8 = 0x01;
    pub(crate) const ACK: u8 = 0x02;
    pub(crate) const CREDIT: u8 = 0x03;
    pub(crate) const GRANT: u8 = 0x04;
    pub(crate) const MSG: u8 = 0x05;
    pub(crate) const RNDV: u8 = 0x06;
    pub(crate) const PATH_CHALLENGE: u8 = 0x07;
    pub(crate) const PATH_RESPONSE: u8 = 0x08;
    pub(crate) const CLOSE: u8 = 0x0a;
    pub(crate) const RNDV_ABORT: u8 = 0x0b;
    pub(crate) const PARITY: u8 = 0x0c;
    pub(crate) const RECOVERED: u8 = 0x0d;
    pub(crate) const BULK: u8 = 0x0e;
    pub(crate) const MARKED: u8 = 0x0f;
}

const MSG_CONTROL: u8 = 1;
const RECOVERED_MESSAGE: u8 = 1;
const PARITY_MESSAGE: u8 = 0x80;
const BULK_OVER: u8 = 1;

/// Why the frames of a packet are malformed. The packet is dropped unacknowledged and counted (spec
/// 2.2).
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// No such frame type in this version.
    #[error("unknown frame type {0:#04x}")]
    Type(u8),
    /// The frame runs past the end of the packet.
    #[error("frame of type {0:#04x} is cut off")]
    Truncated(u8),
    /// A field has a value that the specification excludes.
    #[error("field `{1}` of a frame of type {0:#04x} out of range")]
    Field(u8, &'static str),
}

/// What a PARITY or RECOVERED frame is about.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DataKey {
    /// A matched message, by its full `mseq`.
    Message(u64),
    /// A rendezvous transfer, by the handle the receiver opened.
    Rndv(u64),
}

/// CREDIT: what may be sent of matched messages, cumulative (spec 5).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Credit {
    /// Low 32 bits of the number of messages allowed since the start of the association.
    pub msgs_limit: u32,
    /// Sum of the `total_len` allowed since the start of the association.
    pub bytes_limit: u64,
}

/// GRANT: how far the sender of a rendezvous transfer may go (spec 5).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Grant {
    /// The rendezvous transfer.
    pub handle: u64,
    /// Bytes `[0, limit)` may be sent.
    pub limit: u64,
}

/// The fixed part of a MSG frame.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct MsgHead {
    /// Unordered control message; `stream` and `sseq` are 0 and it is never fragmented.
    pub control: bool,
    /// Stream of a matched message.
    pub stream: u16,
    /// Low 32 bits of the message's number in the association (or among control messages).
    pub mseq: u32,
    /// The message's number in its stream.
    pub sseq: u32,
    /// Bytes of the whole message.
    pub total_len: u32,
    /// Where this fragment begins.
    pub offset: u32,
    /// Bytes in this fragment: 0 only if `total_len` is 0.
    pub len: u16,
}

/// MSG: a fragment of a message. Ranges index the datagram.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Msg {
    /// The fixed part.
    pub head: MsgHead,
    /// The envelope, at most [`MAX_ENVELOPE_LEN`] bytes.
    pub envelope: Range<usize>,
    /// The fragment: bytes `[offset, offset + len)` of the message.
    pub payload: Range<usize>,
}

/// RNDV: a fragment of a rendezvous transfer. The range indexes the datagram.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rndv {
    /// The handle the receiver opened.
    pub handle: u64,
    /// Where this fragment begins; `offset` + length does not overflow.
    pub offset: u64,
    /// The fragment.
    pub payload: Range<usize>,
}

/// RNDV_ABORT: the sender of a rendezvous transfer gives up.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RndvAbort {
    /// The rendezvous transfer.
    pub handle: u64,
    /// The upper layer's reason.
    pub code: u16,
}

/// CLOSE: the sender is done with the association.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Close<'a> {
    /// 0 for an orderly end.
    pub code: u16,
    /// For people to read.
    pub reason: &'a str,
}

/// The fixed part of a PARITY frame: a weighted sum of `count` fragments of `frag` bytes from
/// `base` on, a short last one taken as filled up with zeros.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ParityHead {
    /// Message or rendezvous data.
    pub key: DataKey,
    /// Fragments covered, 1 to [`MAX_PARITY_COUNT`].
    pub count: u8,
    /// How they are weighted, below [`MAX_PARITY_ROWS`]; row 0 is their XOR.
    pub row: u8,
    /// Bytes of each fragment and of the payload, at least 1.
    pub frag: u16,
    /// Offset of the first fragment; `base + count * frag` does not overflow.
    pub base: u64,
}

/// PARITY: one row of a group (spec 6.6). The range indexes the datagram.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parity {
    /// The fixed part.
    pub head: ParityHead,
    /// `head.frag` bytes.
    pub payload: Range<usize>,
}

/// RECOVERED: bytes that the receiver restored from a PARITY frame; counts as their
/// acknowledgement.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Recovered {
    /// Message or rendezvous data.
    pub key: DataKey,
    /// Where the restored bytes begin; `offset + len` does not overflow.
    pub offset: u64,
    /// How many they are, at least 1.
    pub len: u16,
}

/// BULK: the peer is asked to connect one (number 0), or told how much of it was read, and perhaps
/// that it is over (spec/bulk.md 2, 4, 5).
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Bulk {
    /// Number of the bulk connection.
    pub bulk: u32,
    /// Bytes of complete records that the sender of this frame has read of it.
    pub read: u64,
    /// It reads no more of it, nor of any with a lower number.
    pub over: bool,
}

/// MARKED: how many packets of one path came with the mark of a switch whose queue is long (spec
/// 6.7).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Marked {
    /// The path by the number of the frame's receiver: that of the marked packets' heads, at most
    /// [`crate::packet::MAX_PATH`].
    pub path: u8,
    /// Low 32 bits of their count since the association began.
    pub count: u32,
}

/// One frame.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the types say it, and spec 2.2")]
pub enum Frame<'a> {
    /// The rest of the packet is filling.
    Padding,
    /// Asks for nothing but an acknowledgement.
    Ping,
    Ack(Ack<'a>),
    Credit(Credit),
    Grant(Grant),
    Msg(Msg),
    Rndv(Rndv),
    /// Data that the peer is to send back on the same path.
    PathChallenge(u64),
    /// Data of the challenge answered.
    PathResponse(u64),
    Close(Close<'a>),
    RndvAbort(RndvAbort),
    Parity(Parity),
    Recovered(Recovered),
    Bulk(Bulk),
    Marked(Marked),
}

impl Frame<'_> {
    /// Whether a packet with this frame must be acknowledged (spec 2.2, last column).
    #[inline]
    #[must_use]
    pub fn is_ack_eliciting(&self) -> bool {
        !matches!(self, Frame::Padding | Frame::Ack(_) | Frame::PathResponse(_) | Frame::Close(_) | Frame::Marked(_))
    }
}

/// So many frames of a packet are kept as they are read when they are checked: an acknowledgement
/// and a message, as in most.
const KEPT: usize = 2;

/// The frames of one packet, all of which are well formed.
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    datagram: &'a [u8],
    begin: usize,
    ack_eliciting: bool,
    /// The first of them, how many these are, and where the next begins.
    kept: [Frame<'a>; KEPT],
    kept_len: usize,
    rest: usize,
}

impl<'a> Frames<'a> {
    /// Checks the frames in `range` of the datagram (the result of
    /// [`crate::seal::RecvKeys::open`]); a range outside the datagram is cut to it. No frames at
    /// all is well formed and means nothing.
    ///
    /// # Errors
    /// The first thing found wrong.
    #[inline]
    pub fn parse(datagram: &'a [u8], range: Range<usize>) -> Result<Frames<'a>, FrameError> {
        let mut frames = Frames::none();
        frames.read(datagram, range)?;
        Ok(frames)
    }

    /// Those of no packet.
    #[inline]
    #[must_use]
    pub const fn none() -> Frames<'a> {
        Frames {
            datagram: &[],
            begin: 0,
            ack_eliciting: false,
            kept: [const { Frame::Padding }; KEPT],
            kept_len: 0,
            rest: 0,
        }
    }

    /// What [`Frames::parse`] does, in place: a result that is not moved costs less. After an error
    /// the frames are not to be used.
    ///
    /// # Errors
    /// The first thing found wrong.
    #[inline]
    pub fn read(&mut self, datagram: &'a [u8], range: Range<usize>) -> Result<(), FrameError> {
        let end = range.end.min(datagram.len());
        let begin = range.start.min(end);
        (self.datagram, self.begin, self.rest) = (&datagram[..end], begin, begin);
        (self.ack_eliciting, self.kept_len) = (false, 0);
        let d = self.datagram;
        while self.rest < d.len() && self.kept_len < KEPT {
            let kept = &mut self.kept[self.kept_len];
            self.rest = parse_one(d, self.rest, kept)?;
            self.ack_eliciting |= kept.is_ack_eliciting();
            self.kept_len += 1;
        }
        let mut at = self.rest;
        let mut frame = Frame::Padding;
        while at < d.len() {
            at = parse_one(d, at, &mut frame)?;
            self.ack_eliciting |= frame.is_ack_eliciting();
        }
        Ok(())
    }

    /// Whether the packet must be acknowledged.
    #[inline]
    #[must_use]
    pub fn is_ack_eliciting(&self) -> bool {
        self.ack_eliciting
    }

    /// Shows the frames in order, until `act` returns false. Most were read when they were checked,
    /// and are not read again.
    #[inline(always)]
    pub fn each(&self, mut act: impl FnMut(&Frame<'a>) -> bool) {
        let (mut n, mut at) = (0, self.rest);
        let mut read = Frame::Padding;
        loop {
            let frame = if n < self.kept_len && n < KEPT {
                &self.kept[n]
            } else if at < self.datagram.len()
                && let Ok(next) = parse_one(self.datagram, at, &mut read)
            {
                at = next;
                &read
            } else {
                return;
            };
            n += 1;
            if !act(frame) {
                return;
            }
        }
    }

    /// The frames in order.
    #[inline]
    #[must_use]
    pub fn iter(&self) -> FrameIter<'a> {
        FrameIter { datagram: self.datagram, at: self.begin }
    }
}

impl<'a> IntoIterator for Frames<'a> {
    type Item = Frame<'a>;
    type IntoIter = FrameIter<'a>;
    fn into_iter(self) -> FrameIter<'a> {
        self.iter()
    }
}

impl<'a> IntoIterator for &Frames<'a> {
    type Item = Frame<'a>;
    type IntoIter = FrameIter<'a>;
    fn into_iter(self) -> FrameIter<'a> {
        self.iter()
    }
}

/// Iterator over checked frames.
#[derive(Clone, Debug)]
pub struct FrameIter<'a> {
    datagram: &'a [u8],
    at: usize,
}

impl<'a> Iterator for FrameIter<'a> {
    type Item = Frame<'a>;

    #[inline]
    fn next(&mut self) -> Option<Frame<'a>> {
        if self.at >= self.datagram.len() {
            return None;
        }
        // Frames::parse has seen these bytes already, so this does not fail.
        let mut frame = Frame::Padding;
        self.at = parse_one(self.datagram, self.at, &mut frame).ok()?;
        Some(frame)
    }
}

/// Reads the frame at `at` (below the length of `d`) into `to`. Where the next begins.
fn parse_one<'a>(d: &'a [u8], at: usize, to: &mut Frame<'a>) -> Result<usize, FrameError> {
    match d[at] {
        types::MSG => parse_msg(d, at, to),
        types::ACK => ack::parse(d, at, to),
        types::RNDV => parse_rndv(d, at, to),
        _ => {
            let (frame, next) = parse_rare(d, at)?;
            *to = frame;
            Ok(next)
        }
    }
}

/// The `N` bytes of a frame's fixed part.
#[inline(always)]
pub(crate) fn head<const N: usize>(d: &[u8], at: usize) -> Result<&[u8; N], FrameError> {
    d[at..].first_chunk::<N>().ok_or(FrameError::Truncated(d[at]))
}

/// The `len` bytes from `start` on, if they lie within the packet.
#[inline(always)]
fn span(d: &[u8], at: usize, start: usize, len: usize) -> Result<Range<usize>, FrameError> {
    // No overflow: `start` is within the packet and `len` fits 16 bits.
    let end = start + len;
    if end > d.len() { Err(FrameError::Truncated(d[at])) } else { Ok(start..end) }
}

#[inline]
fn parse_msg(d: &[u8], at: usize, to: &mut Frame<'_>) -> Result<usize, FrameError> {
    let bad = |field| Err(FrameError::Field(types::MSG, field));
    let h = head::<MSG_HEAD_LEN>(d, at)?;
    if h[1] & !MSG_CONTROL != 0 {
        return bad("flags");
    }
    let msg = MsgHead {
        control: h[1] & MSG_CONTROL != 0,
        stream: le16(h, 2),
        mseq: le32(h, 4),
        sseq: le32(h, 8),
        total_len: le32(h, 12),
        offset: le32(h, 16),
        len: le16(h, 20),
    };
    let env_len = usize::from(h[22]);
    if env_len > MAX_ENVELOPE_LEN {
        return bad("env_len");
    }
    let len = u32::from(msg.len);
    if msg.offset.checked_add(len).is_none_or(|end| end > msg.total_len) {
        return bad("offset");
    }
    if len == 0 && msg.total_len != 0 {
        return bad("len");
    }
    if msg.control && (msg.stream != 0 || msg.sseq != 0 || len != msg.total_len) {
        return bad("control");
    }
    let envelope = span(d, at, at + MSG_HEAD_LEN, env_len)?;
    let payload = span(d, at, envelope.end, usize::from(msg.len))?;
    let next = payload.end;
    *to = Frame::Msg(Msg { head: msg, envelope, payload });
    Ok(next)
}

#[inline]
fn parse_rndv(d: &[u8], at: usize, to: &mut Frame<'_>) -> Result<usize, FrameError> {
    let h = head::<RNDV_HEAD_LEN>(d, at)?;
    if h[1] != 0 {
        return Err(FrameError::Field(types::RNDV, "flags"));
    }
    let (len, handle, offset) = (le16(h, 2), le64(h, 8), le64(h, 16));
    if offset.checked_add(u64::from(len)).is_none() {
        return Err(FrameError::Field(types::RNDV, "offset"));
    }
    let payload = span(d, at, at + RNDV_HEAD_LEN, usize::from(len))?;
    let next = payload.end;
    *to = Frame::Rndv(Rndv { handle, offset, payload });
    Ok(next)
}

fn parse_rare(d: &[u8], at: usize) -> Result<(Frame<'_>, usize), FrameError> {
    match d[at] {
        types::PADDING => Ok((Frame::Padding, d.len())),
        types::PING => Ok((Frame::Ping, at + PING_LEN)),
        types::CREDIT => {
            let h = head::<CREDIT_LEN>(d, at)?;
            Ok((Frame::Credit(Credit { msgs_limit: le32(h, 4), bytes_limit: le64(h, 8) }), at + CREDIT_LEN))
        }
        types::GRANT => {
            let h = head::<GRANT_LEN>(d, at)?;
            Ok((Frame::Grant(Grant { handle: le64(h, 8), limit: le64(h, 16) }), at + GRANT_LEN))
        }
        types::PATH_CHALLENGE => Ok((Frame::PathChallenge(le64(head::<PATH_LEN>(d, at)?, 8)), at + PATH_LEN)),
        types::PATH_RESPONSE => Ok((Frame::PathResponse(le64(head::<PATH_LEN>(d, at)?, 8)), at + PATH_LEN)),
        types::RNDV_ABORT => {
            let h = head::<RNDV_ABORT_LEN>(d, at)?;
            Ok((Frame::RndvAbort(RndvAbort { code: le16(h, 2), handle: le64(h, 8) }), at + RNDV_ABORT_LEN))
        }
        types::CLOSE => parse_close(d, at),
        types::PARITY => parse_parity(d, at),
        types::RECOVERED => parse_recovered(d, at),
        types::BULK => parse_bulk(d, at),
        types::MARKED => parse_marked(d, at),
        other => Err(FrameError::Type(other)),
    }
}

fn parse_bulk(d: &[u8], at: usize) -> Result<(Frame<'_>, usize), FrameError> {
    let h = head::<BULK_LEN>(d, at)?;
    let bulk = Bulk { bulk: le32(h, 4), read: le64(h, 8), over: h[1] & BULK_OVER != 0 };
    if h[1] & !BULK_OVER != 0 || (bulk.over && bulk.bulk == 0) {
        return Err(FrameError::Field(types::BULK, "flags"));
    }
    Ok((Frame::Bulk(bulk), at + BULK_LEN))
}

fn parse_marked(d: &[u8], at: usize) -> Result<(Frame<'_>, usize), FrameError> {
    let h = head::<MARKED_LEN>(d, at)?;
    if h[1] > MAX_PATH {
        return Err(FrameError::Field(types::MARKED, "path"));
    }
    Ok((Frame::Marked(Marked { path: h[1], count: le32(h, 4) }), at + MARKED_LEN))
}

fn parse_close(d: &[u8], at: usize) -> Result<(Frame<'_>, usize), FrameError> {
    let h = head::<CLOSE_HEAD_LEN>(d, at)?;
    let text = span(d, at, at + CLOSE_HEAD_LEN, usize::from(h[4]))?;
    let next = text.end;
    let reason = core::str::from_utf8(&d[text]).map_err(|_| FrameError::Field(types::CLOSE, "reason"))?;
    Ok((Frame::Close(Close { code: le16(h, 2), reason }), next))
}

fn parse_parity(d: &[u8], at: usize) -> Result<(Frame<'_>, usize), FrameError> {
    let bad = |field| Err(FrameError::Field(types::PARITY, field));
    let h = head::<PARITY_HEAD_LEN>(d, at)?;
    let (count, frag, key, base) = (h[1] & !PARITY_MESSAGE, le16(h, 2), le64(h, 8), le64(h, 16));
    if count == 0 || count > MAX_PARITY_COUNT {
        return bad("count");
    }
    if frag == 0 {
        return bad("frag");
    }
    let row = h[4];
    if row >= MAX_PARITY_ROWS {
        return bad("row");
    }
    if base.checked_add(u64::from(count) * u64::from(frag)).is_none() {
        return bad("base");
    }
    let key = if h[1] & PARITY_MESSAGE != 0 { DataKey::Message(key) } else { DataKey::Rndv(key) };
    let payload = span(d, at, at + PARITY_HEAD_LEN, usize::from(frag))?;
    let next = payload.end;
    Ok((Frame::Parity(Parity { head: ParityHead { key, count, row, frag, base }, payload }), next))
}

fn parse_recovered(d: &[u8], at: usize) -> Result<(Frame<'_>, usize), FrameError> {
    let bad = |field| Err(FrameError::Field(types::RECOVERED, field));
    let h = head::<RECOVERED_LEN>(d, at)?;
    let (flags, len, key, offset) = (h[1], le16(h, 2), le64(h, 8), le64(h, 16));
    if flags & !RECOVERED_MESSAGE != 0 {
        return bad("flags");
    }
    if len == 0 {
        return bad("len");
    }
    if offset.checked_add(u64::from(len)).is_none() {
        return bad("offset");
    }
    let key = if flags & RECOVERED_MESSAGE != 0 { DataKey::Message(key) } else { DataKey::Rndv(key) };
    Ok((Frame::Recovered(Recovered { key, offset, len }), at + RECOVERED_LEN))
}

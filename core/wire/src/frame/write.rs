//! Writers of frames: each appends one frame, or the fixed part of one, to a packet.
//!
//! A writer is given values that are valid by the caller's own logic; it checks them in debug
//! builds only, and the peer's parser refuses the packet otherwise.

use alloc::vec::Vec;

use super::{
    BULK_LEN, BULK_OVER, Bulk, CLOSE_HEAD_LEN, CREDIT_LEN, Credit, DataKey, GRANT_LEN, Grant, MARKED_LEN,
    MAX_REASON_LEN, MSG_CONTROL, MSG_HEAD_LEN, Marked, MsgHead, PARITY_HEAD_LEN, PARITY_MESSAGE, PATH_LEN, ParityHead,
    RECOVERED_LEN, RECOVERED_MESSAGE, RNDV_ABORT_LEN, RNDV_HEAD_LEN, Recovered, RndvAbort, types,
};

use crate::{MAX_ENVELOPE_LEN, MAX_PARITY_COUNT, MAX_PARITY_ROWS};

/// PADDING up to `packet_len` bytes of packet; nothing if it is that long already.
pub fn write_padding(packet_len: usize, out: &mut Vec<u8>) {
    if out.len() < packet_len {
        out.resize(packet_len, types::PADDING);
    }
}

/// PING.
#[inline]
pub fn write_ping(out: &mut Vec<u8>) {
    out.push(types::PING);
}

/// CREDIT.
#[inline]
pub fn write_credit(credit: &Credit, out: &mut Vec<u8>) {
    let mut f = [0; CREDIT_LEN];
    f[0] = types::CREDIT;
    f[4..8].copy_from_slice(&credit.msgs_limit.to_le_bytes());
    f[8..16].copy_from_slice(&credit.bytes_limit.to_le_bytes());
    out.extend_from_slice(&f);
}

/// GRANT.
#[inline]
pub fn write_grant(grant: &Grant, out: &mut Vec<u8>) {
    let mut f = [0; GRANT_LEN];
    f[0] = types::GRANT;
    f[8..16].copy_from_slice(&grant.handle.to_le_bytes());
    f[16..24].copy_from_slice(&grant.limit.to_le_bytes());
    out.extend_from_slice(&f);
}

/// MSG up to and with the envelope; exactly `head.len` bytes of payload must follow (in `out`, or
/// gathered behind it by whoever sends the packet).
#[inline]
pub fn write_msg_head(head: &MsgHead, envelope: &[u8], out: &mut Vec<u8>) {
    debug_assert!(envelope.len() <= MAX_ENVELOPE_LEN);
    debug_assert!(u64::from(head.offset) + u64::from(head.len) <= u64::from(head.total_len));
    let mut f = [0; MSG_HEAD_LEN];
    f[0] = types::MSG;
    f[1] = if head.control { MSG_CONTROL } else { 0 };
    f[2..4].copy_from_slice(&head.stream.to_le_bytes());
    f[4..8].copy_from_slice(&head.mseq.to_le_bytes());
    f[8..12].copy_from_slice(&head.sseq.to_le_bytes());
    f[12..16].copy_from_slice(&head.total_len.to_le_bytes());
    f[16..20].copy_from_slice(&head.offset.to_le_bytes());
    f[20..22].copy_from_slice(&head.len.to_le_bytes());
    let envelope = &envelope[..envelope.len().min(MAX_ENVELOPE_LEN)];
    #[expect(clippy::cast_possible_truncation, reason = "at most 48")]
    let env_len = envelope.len() as u8;
    f[22] = env_len;
    out.extend_from_slice(&f);
    out.extend_from_slice(envelope);
}

/// RNDV up to the payload; exactly `len` bytes must follow.
#[inline]
pub fn write_rndv_head(handle: u64, offset: u64, len: u16, out: &mut Vec<u8>) {
    let mut f = [0; RNDV_HEAD_LEN];
    f[0] = types::RNDV;
    f[2..4].copy_from_slice(&len.to_le_bytes());
    f[8..16].copy_from_slice(&handle.to_le_bytes());
    f[16..24].copy_from_slice(&offset.to_le_bytes());
    out.extend_from_slice(&f);
}

fn write_path(frame_type: u8, data: u64, out: &mut Vec<u8>) {
    let mut f = [0; PATH_LEN];
    f[0] = frame_type;
    f[8..16].copy_from_slice(&data.to_le_bytes());
    out.extend_from_slice(&f);
}

/// PATH_CHALLENGE.
pub fn write_path_challenge(data: u64, out: &mut Vec<u8>) {
    write_path(types::PATH_CHALLENGE, data, out);
}

/// PATH_RESPONSE.
pub fn write_path_response(data: u64, out: &mut Vec<u8>) {
    write_path(types::PATH_RESPONSE, data, out);
}

/// The part of a reason that fits a CLOSE frame, cut at a character.
fn cut(reason: &str) -> &str {
    let mut end = reason.len().min(MAX_REASON_LEN);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    &reason[..end]
}

/// Bytes of a CLOSE frame with this reason.
#[must_use]
pub fn close_len(reason: &str) -> usize {
    CLOSE_HEAD_LEN + cut(reason).len()
}

/// CLOSE; the reason is cut at [`MAX_REASON_LEN`] bytes.
pub fn write_close(code: u16, reason: &str, out: &mut Vec<u8>) {
    let reason = cut(reason);
    let [c0, c1] = code.to_le_bytes();
    #[expect(clippy::cast_possible_truncation, reason = "at most 255")]
    out.extend_from_slice(&[types::CLOSE, 0, c0, c1, reason.len() as u8]);
    out.extend_from_slice(reason.as_bytes());
}

/// RNDV_ABORT.
pub fn write_rndv_abort(abort: &RndvAbort, out: &mut Vec<u8>) {
    let mut f = [0; RNDV_ABORT_LEN];
    f[0] = types::RNDV_ABORT;
    f[2..4].copy_from_slice(&abort.code.to_le_bytes());
    f[8..16].copy_from_slice(&abort.handle.to_le_bytes());
    out.extend_from_slice(&f);
}

/// PARITY up to the payload; exactly `head.frag` bytes must follow.
pub fn write_parity_head(head: &ParityHead, out: &mut Vec<u8>) {
    debug_assert!(head.frag > 0 && (1..=MAX_PARITY_COUNT).contains(&head.count) && head.row < MAX_PARITY_ROWS);
    let (bit, key) = match head.key {
        DataKey::Message(mseq) => (PARITY_MESSAGE, mseq),
        DataKey::Rndv(handle) => (0, handle),
    };
    let mut f = [0; PARITY_HEAD_LEN];
    f[0] = types::PARITY;
    f[1] = head.count | bit;
    f[2..4].copy_from_slice(&head.frag.to_le_bytes());
    f[4] = head.row;
    f[8..16].copy_from_slice(&key.to_le_bytes());
    f[16..24].copy_from_slice(&head.base.to_le_bytes());
    out.extend_from_slice(&f);
}

/// RECOVERED.
pub fn write_recovered(recovered: &Recovered, out: &mut Vec<u8>) {
    debug_assert!(recovered.len > 0);
    let (bit, key) = match recovered.key {
        DataKey::Message(mseq) => (RECOVERED_MESSAGE, mseq),
        DataKey::Rndv(handle) => (0, handle),
    };
    let mut f = [0; RECOVERED_LEN];
    f[0] = types::RECOVERED;
    f[1] = bit;
    f[2..4].copy_from_slice(&recovered.len.to_le_bytes());
    f[8..16].copy_from_slice(&key.to_le_bytes());
    f[16..24].copy_from_slice(&recovered.offset.to_le_bytes());
    out.extend_from_slice(&f);
}

/// BULK.
pub fn write_bulk(bulk: &Bulk, out: &mut Vec<u8>) {
    let mut f = [0; BULK_LEN];
    (f[0], f[1]) = (types::BULK, if bulk.over { BULK_OVER } else { 0 });
    f[4..8].copy_from_slice(&bulk.bulk.to_le_bytes());
    f[8..16].copy_from_slice(&bulk.read.to_le_bytes());
    out.extend_from_slice(&f);
}

/// MARKED.
pub fn write_marked(marked: &Marked, out: &mut Vec<u8>) {
    let mut f = [0; MARKED_LEN];
    (f[0], f[1]) = (types::MARKED, marked.path);
    f[4..8].copy_from_slice(&marked.count.to_le_bytes());
    out.extend_from_slice(&f);
}

//! Lanes: the greeting and the heads of units on an association's TCP connection (spec/lanes.md 2, 3).

use alloc::vec::Vec;

use ring::hmac;
use subtle::ConstantTimeEq;

use crate::bytes::{le16, le32, le64, part};
use crate::frame::Credit;
use crate::{BodyKey, MAX_ENVELOPE_LEN};

/// Bytes of a greeting.
pub const GREETING_LEN: usize = 40;
/// Bytes of a unit's head, without the envelope.
pub const UNIT_HEAD_LEN: usize = 64;
/// Largest payload of a unit in bytes.
pub const UNIT_MAX: u32 = 1 << 24;

const MAGIC: &[u8; 8] = b"WEIRLANE";
const VERSION: u8 = 2;
const SIGNED_LEN: usize = 24;
const CRC_AT: usize = 60;
const KIND_MESSAGE: u8 = 1;
const KIND_BODY: u8 = 2;
const FLAGS_AT: usize = 56;
const FLAG_TELL: u8 = 1;

/// The key that both sides of an association greet with.
#[derive(Clone)]
pub struct LaneKey([u8; 32]);

impl LaneKey {
    pub(crate) const fn new(key: [u8; 32]) -> LaneKey {
        LaneKey(key)
    }

    fn mac(&self, bytes: &[u8]) -> [u8; GREETING_LEN - SIGNED_LEN] {
        part(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &self.0), bytes).as_ref(), 0)
    }
}

/// What stands in a greeting; [`Greeting::is_genuine`] says whether its sender knows the key.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Greeting {
    /// Number of the lane within the association.
    pub lane: u32,
    /// Association id chosen by the receiver of the greeting.
    pub association: u64,
}

impl Greeting {
    /// Its bytes.
    #[must_use]
    pub fn write(&self, key: &LaneKey) -> [u8; GREETING_LEN] {
        let mut out = [0; GREETING_LEN];
        out[..8].copy_from_slice(MAGIC);
        out[8] = VERSION;
        out[12..16].copy_from_slice(&self.lane.to_le_bytes());
        out[16..24].copy_from_slice(&self.association.to_le_bytes());
        let mac = key.mac(&out[..SIGNED_LEN]);
        out[SIGNED_LEN..].copy_from_slice(&mac);
        out
    }

    /// Reads one; `None` if it is none of this version.
    #[must_use]
    pub fn read(bytes: &[u8; GREETING_LEN]) -> Option<Greeting> {
        let known = bytes[..8] == *MAGIC && bytes[8] == VERSION && bytes[9..12] == [0; 3];
        let greeting = Greeting { lane: le32(bytes, 12), association: le64(bytes, 16) };
        (known && greeting.lane != 0).then_some(greeting)
    }

    /// Whether the bytes end in the MAC that `key` makes.
    #[must_use]
    pub fn is_genuine(bytes: &[u8; GREETING_LEN], key: &LaneKey) -> bool {
        key.mac(&bytes[..SIGNED_LEN]).ct_eq(&bytes[SIGNED_LEN..]).into()
    }
}

/// What a unit carries.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum UnitKind {
    /// A part of a matched message.
    Message {
        /// Its stream.
        stream: u16,
        /// Its number within the stream.
        sseq: u32,
        /// Its number, all of it.
        mseq: u64,
        /// Bytes of the whole message.
        total_len: u64,
    },
    /// A part of a body, by its handle.
    Body(u64),
}

/// Why a head is none.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum UnitError {
    /// Its checksum is wrong, or what stands there of its length: it is not what was sent.
    Damaged,
    /// It is as it was sent, and breaks a rule.
    Malformed,
}

/// The head of a unit.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct UnitHead {
    /// What it carries.
    pub kind: UnitKind,
    /// Where its payload begins in the message or body.
    pub offset: u64,
    /// Bytes of payload.
    pub len: u32,
    /// What its sender takes of matched messages, as in a CREDIT frame.
    pub credit: Credit,
    /// Bytes of complete units that its sender has read of this lane.
    pub read: u64,
    /// Somebody waits to hear that it was read, and its sender has no more in line.
    pub tell: bool,
}

impl UnitHead {
    /// Message or body.
    #[must_use]
    pub fn key(&self) -> BodyKey {
        match self.kind {
            UnitKind::Message { mseq, .. } => BodyKey::Message(mseq),
            UnitKind::Body(handle) => BodyKey::Body(handle),
        }
    }

    /// Appends head and envelope. `crc` continues a checksum from the direction's salt.
    pub fn write(&self, envelope: &[u8], crc: impl Fn(&[u8], &[u8]) -> u32, out: &mut Vec<u8>) {
        debug_assert!(envelope.len() <= MAX_ENVELOPE_LEN);
        let mut h = [0; UNIT_HEAD_LEN];
        match self.kind {
            UnitKind::Message { stream, sseq, mseq, total_len } => {
                h[0] = KIND_MESSAGE;
                h[1] = envelope.len() as u8;
                h[2..4].copy_from_slice(&stream.to_le_bytes());
                h[4..8].copy_from_slice(&sseq.to_le_bytes());
                h[8..16].copy_from_slice(&mseq.to_le_bytes());
                h[24..32].copy_from_slice(&total_len.to_le_bytes());
            }
            UnitKind::Body(handle) => {
                h[0] = KIND_BODY;
                h[8..16].copy_from_slice(&handle.to_le_bytes());
            }
        }
        h[16..24].copy_from_slice(&self.offset.to_le_bytes());
        h[32..36].copy_from_slice(&self.len.to_le_bytes());
        h[36..40].copy_from_slice(&self.credit.msgs_limit.to_le_bytes());
        h[40..48].copy_from_slice(&self.credit.bytes_limit.to_le_bytes());
        h[48..56].copy_from_slice(&self.read.to_le_bytes());
        h[FLAGS_AT] = if self.tell { FLAG_TELL } else { 0 };
        let crc = crc(&h[..CRC_AT], envelope);
        h[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        out.extend_from_slice(&h);
        out.extend_from_slice(envelope);
    }

    /// How many bytes the head that begins here has with its envelope, once its second byte is known.
    #[must_use]
    pub fn len_with_envelope(bytes: &[u8]) -> Option<usize> {
        bytes.get(1).map(|n| UNIT_HEAD_LEN + usize::from(*n).min(MAX_ENVELOPE_LEN))
    }

    /// Reads a head and its envelope, exactly.
    ///
    /// # Errors
    /// [`UnitError::Damaged`] if the checksum is wrong, or cannot be reckoned because `bytes` are not as many as the head says; else [`UnitError::Malformed`] for what
    /// nobody may send.
    pub fn read(bytes: &[u8], crc: impl Fn(&[u8], &[u8]) -> u32) -> Result<UnitHead, UnitError> {
        let (h, envelope) = bytes.split_first_chunk::<UNIT_HEAD_LEN>().ok_or(UnitError::Damaged)?;
        let whole = envelope.len() == usize::from(h[1]) && envelope.len() <= MAX_ENVELOPE_LEN;
        if !whole || le32(h, CRC_AT) != crc(&h[..CRC_AT], envelope) {
            return Err(UnitError::Damaged);
        }
        if le32(h, FLAGS_AT) > u32::from(FLAG_TELL) {
            return Err(UnitError::Malformed);
        }
        let (stream, sseq, key, total_len) = (le16(h, 2), le32(h, 4), le64(h, 8), le64(h, 24));
        let (offset, len) = (le64(h, 16), le32(h, 32));
        let plain = h[1] == 0 && stream == 0 && sseq == 0 && total_len == 0;
        let inside = (1..=UNIT_MAX).contains(&len) && offset.checked_add(u64::from(len)).is_some();
        let kind = match h[0] {
            KIND_MESSAGE if inside && offset + u64::from(len) <= total_len => {
                UnitKind::Message { stream, sseq, mseq: key, total_len }
            }
            KIND_BODY if inside && plain => UnitKind::Body(key),
            _ => return Err(UnitError::Malformed),
        };
        let credit = Credit { msgs_limit: le32(h, 36), bytes_limit: le64(h, 40) };
        Ok(UnitHead { kind, offset, len, credit, read: le64(h, 48), tell: h[FLAGS_AT] != 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CREDIT: Credit = Credit { msgs_limit: 7, bytes_limit: 1 << 40 };

    fn crc(a: &[u8], b: &[u8]) -> u32 {
        crate::crc32c_append(crate::crc32c_append(7, a), b)
    }

    fn written(head: &UnitHead, envelope: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        head.write(envelope, crc, &mut out);
        out
    }

    // spec: L-2.5
    #[test]
    fn a_greeting_is_known_by_its_key_and_by_nothing_else() {
        let (key, other) = (LaneKey::new([1; 32]), LaneKey::new([2; 32]));
        let greeting = Greeting { lane: 3, association: 0x1122_3344_5566_7788 };
        let bytes = greeting.write(&key);
        assert_eq!(bytes[..24], *b"WEIRLANE\x02\0\0\0\x03\0\0\0\x88\x77\x66\x55\x44\x33\x22\x11");
        assert_eq!(Greeting::read(&bytes), Some(greeting));
        assert!(Greeting::is_genuine(&bytes, &key) && !Greeting::is_genuine(&bytes, &other));
        for i in 0..GREETING_LEN {
            let mut bad = bytes;
            bad[i] ^= 4;
            assert!(Greeting::read(&bad).is_none() || !Greeting::is_genuine(&bad, &key), "byte {i}");
        }
        assert_eq!(Greeting::read(&Greeting { lane: 0, association: 1 }.write(&key)), None);
    }

    // spec: L-3.3
    #[test]
    fn any_changed_bit_of_a_head_is_seen() {
        let kind = UnitKind::Message { stream: 5, sseq: 6, mseq: 7, total_len: 100_000 };
        let head = UnitHead { kind, offset: 1000, len: 99_000, credit: CREDIT, read: 5, tell: true };
        let bytes = written(&head, b"abcd");
        assert_eq!(UnitHead::len_with_envelope(&bytes), Some(bytes.len()));
        assert_eq!(UnitHead::read(&bytes, crc), Ok(head));
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(UnitHead::read(&bad, crc), Err(UnitError::Damaged), "bit {bit}");
        }
        for cut in 0..bytes.len() {
            assert_eq!(UnitHead::read(&bytes[..cut], crc), Err(UnitError::Damaged));
        }
    }

    // spec: L-3.4
    #[test]
    fn what_the_specification_excludes_is_malformed() {
        let message = |stream, total_len| UnitKind::Message { stream, sseq: 0, mseq: 0, total_len };
        let bad = [
            UnitHead { kind: message(0, 10), offset: 1, len: 10, credit: CREDIT, read: 5, tell: true },
            UnitHead { kind: message(0, 10), offset: 0, len: 0, credit: CREDIT, read: 5, tell: true },
            UnitHead { kind: message(0, u64::MAX), offset: u64::MAX, len: 1, credit: CREDIT, read: 5, tell: true },
            UnitHead { kind: UnitKind::Body(1), offset: 0, len: UNIT_MAX + 1, credit: CREDIT, read: 5, tell: true },
            UnitHead { kind: UnitKind::Body(1), offset: u64::MAX, len: 1, credit: CREDIT, read: 5, tell: true },
        ];
        for head in bad {
            assert_eq!(UnitHead::read(&written(&head, b""), crc), Err(UnitError::Malformed), "{head:?}");
        }
    }

    proptest! {
        #[test]
        fn heads_come_back(kind in 0..2u8, words in prop::array::uniform4(any::<u32>()), len in 1..=UNIT_MAX, envelope in prop::collection::vec(any::<u8>(), 0..=48)) {
            let offset = u64::from(words[0]);
            let kind = if kind == 0 {
                UnitKind::Message { stream: words[1] as u16, sseq: words[2], mseq: u64::from(words[3]) << 7, total_len: offset + u64::from(len) + u64::from(words[1]) }
            } else {
                UnitKind::Body(u64::from(words[3]))
            };
            let envelope = if matches!(kind, UnitKind::Body(_)) { &[][..] } else { &envelope[..] };
            let head = UnitHead { kind, offset, len, credit: Credit { msgs_limit: words[2], bytes_limit: u64::from(words[1]) << 9 }, read: u64::from(words[3]), tell: words[0] % 2 == 1 };
            prop_assert_eq!(UnitHead::read(&written(&head, envelope), crc), Ok(head));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = UnitHead::read(&bytes, |_, _| bytes.get(60..64).map_or(0, |b| u32::from_le_bytes(b.try_into().unwrap())));
        }
    }
}

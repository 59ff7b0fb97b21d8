//! Bulk connections: the greeting and the heads of records on an association's TCP connection
//! (spec/bulk.md 2, 3).

use alloc::vec::Vec;

use ring::hmac;
use subtle::ConstantTimeEq;

use crate::bytes::{le16, le32, le64, part};
use crate::frame::Credit;
use crate::{DataKey, MAX_ENVELOPE_LEN};

/// Bytes of a greeting.
pub const GREETING_LEN: usize = 40;
/// Bytes of a record's head, without the envelope.
pub const RECORD_HEAD_LEN: usize = 64;
/// Largest payload of a record in bytes.
pub const RECORD_MAX: u32 = 1 << 24;

const MAGIC: &[u8; 8] = b"WEIRLANE";
const VERSION: u8 = 2;
const SIGNED_LEN: usize = 24;
const CRC_AT: usize = 60;
const KIND_MESSAGE: u8 = 1;
const KIND_RNDV: u8 = 2;
const FLAGS_AT: usize = 56;
const FLAG_TELL: u8 = 1;

/// The key that both sides of an association greet with.
#[derive(Clone)]
pub struct BulkKey([u8; 32]);

impl BulkKey {
    pub(crate) const fn new(key: [u8; 32]) -> BulkKey {
        BulkKey(key)
    }

    pub(crate) fn mac(&self, bytes: &[u8]) -> [u8; GREETING_LEN - SIGNED_LEN] {
        part(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &self.0), bytes).as_ref(), 0)
    }
}

/// What stands in a greeting; [`Greeting::is_genuine`] says whether its sender knows the key.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Greeting {
    /// Number of the bulk connection within the association.
    pub bulk: u32,
    /// Association id chosen by the receiver of the greeting.
    pub association: u64,
}

impl Greeting {
    /// Its bytes.
    #[must_use]
    pub fn write(&self, key: &BulkKey) -> [u8; GREETING_LEN] {
        let mut out = [0; GREETING_LEN];
        out[..8].copy_from_slice(MAGIC);
        out[8] = VERSION;
        out[12..16].copy_from_slice(&self.bulk.to_le_bytes());
        out[16..24].copy_from_slice(&self.association.to_le_bytes());
        let mac = key.mac(&out[..SIGNED_LEN]);
        out[SIGNED_LEN..].copy_from_slice(&mac);
        out
    }

    /// Reads one; `None` if it is none of this version.
    #[must_use]
    pub fn read(bytes: &[u8; GREETING_LEN]) -> Option<Greeting> {
        let known = bytes[..8] == *MAGIC && bytes[8] == VERSION && bytes[9..12] == [0; 3];
        let greeting = Greeting { bulk: le32(bytes, 12), association: le64(bytes, 16) };
        (known && greeting.bulk != 0).then_some(greeting)
    }

    /// Whether the bytes end in the MAC that `key` makes.
    #[must_use]
    pub fn is_genuine(bytes: &[u8; GREETING_LEN], key: &BulkKey) -> bool {
        key.mac(&bytes[..SIGNED_LEN]).ct_eq(&bytes[SIGNED_LEN..]).into()
    }
}

/// What a record carries.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum RecordKind {
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
    /// A part of a rendezvous transfer, by its handle.
    Rndv(u64),
}

/// Why a head is none.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum RecordError {
    /// Its checksum is wrong, or what stands there of its length: it is not what was sent.
    Damaged,
    /// It is as it was sent, and breaks a rule.
    Malformed,
}

/// The head of a record.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RecordHead {
    /// What it carries.
    pub kind: RecordKind,
    /// Where its payload begins in the message or rendezvous data.
    pub offset: u64,
    /// Bytes of payload.
    pub len: u32,
    /// What its sender takes of matched messages, as in a CREDIT frame.
    pub credit: Credit,
    /// Bytes of complete records that its sender has read of this bulk connection.
    pub read: u64,
    /// Somebody waits to hear that it was read, and its sender has no more in line.
    pub tell: bool,
}

impl RecordHead {
    /// Message or rendezvous data.
    #[must_use]
    pub fn key(&self) -> DataKey {
        match self.kind {
            RecordKind::Message { mseq, .. } => DataKey::Message(mseq),
            RecordKind::Rndv(handle) => DataKey::Rndv(handle),
        }
    }

    /// Appends head and envelope. `crc` continues a checksum from the direction's salt.
    pub fn write(&self, envelope: &[u8], crc: impl Fn(&[u8], &[u8]) -> u32, out: &mut Vec<u8>) {
        debug_assert!(envelope.len() <= MAX_ENVELOPE_LEN);
        let mut h = [0; RECORD_HEAD_LEN];
        match self.kind {
            RecordKind::Message { stream, sseq, mseq, total_len } => {
                h[0] = KIND_MESSAGE;
                h[1] = envelope.len() as u8;
                h[2..4].copy_from_slice(&stream.to_le_bytes());
                h[4..8].copy_from_slice(&sseq.to_le_bytes());
                h[8..16].copy_from_slice(&mseq.to_le_bytes());
                h[24..32].copy_from_slice(&total_len.to_le_bytes());
            }
            RecordKind::Rndv(handle) => {
                h[0] = KIND_RNDV;
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

    /// How many bytes the head that begins here has with its envelope, once its second byte is
    /// known.
    #[must_use]
    pub fn len_with_envelope(bytes: &[u8]) -> Option<usize> {
        bytes.get(1).map(|n| RECORD_HEAD_LEN + usize::from(*n).min(MAX_ENVELOPE_LEN))
    }

    /// Bytes of payload, if the head that begins here, which has been [read](RecordHead::read), is
    /// that of a whole message.
    #[must_use]
    pub fn whole_message(bytes: &[u8]) -> Option<u32> {
        let h = bytes.first_chunk::<RECORD_HEAD_LEN>()?;
        let (offset, total_len, len) = (le64(h, 16), le64(h, 24), le32(h, 32));
        (h[0] == KIND_MESSAGE && offset == 0 && total_len == u64::from(len)).then_some(len)
    }

    /// Reads a head and its envelope, exactly.
    ///
    /// # Errors
    /// [`RecordError::Damaged`] if the checksum is wrong, or cannot be reckoned because `bytes` are
    /// not as many as the head says; else [`RecordError::Malformed`] for what nobody may send.
    pub fn read(bytes: &[u8], crc: impl Fn(&[u8], &[u8]) -> u32) -> Result<RecordHead, RecordError> {
        let (h, envelope) = bytes.split_first_chunk::<RECORD_HEAD_LEN>().ok_or(RecordError::Damaged)?;
        let whole = envelope.len() == usize::from(h[1]) && envelope.len() <= MAX_ENVELOPE_LEN;
        if !whole || le32(h, CRC_AT) != crc(&h[..CRC_AT], envelope) {
            return Err(RecordError::Damaged);
        }
        RecordHead::read_again(bytes)
    }

    /// The same of one that was read before, and so is as it was sent.
    ///
    /// # Errors
    /// [`RecordError::Malformed`] for what nobody may send.
    pub fn read_again(bytes: &[u8]) -> Result<RecordHead, RecordError> {
        let h = bytes.first_chunk::<RECORD_HEAD_LEN>().ok_or(RecordError::Malformed)?;
        if le32(h, FLAGS_AT) > u32::from(FLAG_TELL) {
            return Err(RecordError::Malformed);
        }
        let (stream, sseq, key, total_len) = (le16(h, 2), le32(h, 4), le64(h, 8), le64(h, 24));
        let (offset, len) = (le64(h, 16), le32(h, 32));
        let plain = h[1] == 0 && stream == 0 && sseq == 0 && total_len == 0;
        let inside = (1..=RECORD_MAX).contains(&len) && offset.checked_add(u64::from(len)).is_some();
        let kind = match h[0] {
            KIND_MESSAGE if inside && offset + u64::from(len) <= total_len => {
                RecordKind::Message { stream, sseq, mseq: key, total_len }
            }
            KIND_RNDV if inside && plain => RecordKind::Rndv(key),
            _ => return Err(RecordError::Malformed),
        };
        let credit = Credit { msgs_limit: le32(h, 36), bytes_limit: le64(h, 40) };
        Ok(RecordHead { kind, offset, len, credit, read: le64(h, 48), tell: h[FLAGS_AT] != 0 })
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

    fn written(head: &RecordHead, envelope: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        head.write(envelope, crc, &mut out);
        out
    }

    // spec: L-2.5
    #[test]
    fn a_greeting_is_known_by_its_key_and_by_nothing_else() {
        let (key, other) = (BulkKey::new([1; 32]), BulkKey::new([2; 32]));
        let greeting = Greeting { bulk: 3, association: 0x1122_3344_5566_7788 };
        let bytes = greeting.write(&key);
        assert_eq!(bytes[..24], *b"WEIRLANE\x02\0\0\0\x03\0\0\0\x88\x77\x66\x55\x44\x33\x22\x11");
        assert_eq!(Greeting::read(&bytes), Some(greeting));
        assert!(Greeting::is_genuine(&bytes, &key) && !Greeting::is_genuine(&bytes, &other));
        for i in 0..GREETING_LEN {
            let mut bad = bytes;
            bad[i] ^= 4;
            assert!(Greeting::read(&bad).is_none() || !Greeting::is_genuine(&bad, &key), "byte {i}");
        }
        assert_eq!(Greeting::read(&Greeting { bulk: 0, association: 1 }.write(&key)), None);
    }

    // spec: L-3.3
    #[test]
    fn any_changed_bit_of_a_head_is_seen() {
        let kind = RecordKind::Message { stream: 5, sseq: 6, mseq: 7, total_len: 100_000 };
        let head = RecordHead { kind, offset: 1000, len: 99_000, credit: CREDIT, read: 5, tell: true };
        let bytes = written(&head, b"abcd");
        assert_eq!(RecordHead::len_with_envelope(&bytes), Some(bytes.len()));
        assert_eq!(RecordHead::read(&bytes, crc), Ok(head));
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(RecordHead::read(&bad, crc), Err(RecordError::Damaged), "bit {bit}");
        }
        for cut in 0..bytes.len() {
            assert_eq!(RecordHead::read(&bytes[..cut], crc), Err(RecordError::Damaged));
        }
    }

    // spec: L-3.4
    #[test]
    fn what_the_specification_excludes_is_malformed() {
        let message = |stream, total_len| RecordKind::Message { stream, sseq: 0, mseq: 0, total_len };
        let bad = [
            RecordHead { kind: message(0, 10), offset: 1, len: 10, credit: CREDIT, read: 5, tell: true },
            RecordHead { kind: message(0, 10), offset: 0, len: 0, credit: CREDIT, read: 5, tell: true },
            RecordHead { kind: message(0, u64::MAX), offset: u64::MAX, len: 1, credit: CREDIT, read: 5, tell: true },
            RecordHead {
                kind: RecordKind::Rndv(1),
                offset: 0,
                len: RECORD_MAX + 1,
                credit: CREDIT,
                read: 5,
                tell: true,
            },
            RecordHead { kind: RecordKind::Rndv(1), offset: u64::MAX, len: 1, credit: CREDIT, read: 5, tell: true },
        ];
        for head in bad {
            assert_eq!(RecordHead::read(&written(&head, b""), crc), Err(RecordError::Malformed), "{head:?}");
        }
    }

    proptest! {
        #[test]
        fn heads_come_back(kind in 0..3u8, words in prop::array::uniform4(any::<u32>()), len in 1..=RECORD_MAX, envelope in prop::collection::vec(any::<u8>(), 0..=48)) {
            let offset = if kind == 2 { 0 } else { u64::from(words[0]) };
            let kind = if kind == 2 {
                RecordKind::Message { stream: words[1] as u16, sseq: words[2], mseq: u64::from(words[3]), total_len: len.into() }
            } else if kind == 0 {
                RecordKind::Message { stream: words[1] as u16, sseq: words[2], mseq: u64::from(words[3]) << 7, total_len: offset + u64::from(len) + u64::from(words[1]) }
            } else {
                RecordKind::Rndv(u64::from(words[3]))
            };
            let envelope = if matches!(kind, RecordKind::Rndv(_)) { &[][..] } else { &envelope[..] };
            let head = RecordHead { kind, offset, len, credit: Credit { msgs_limit: words[2], bytes_limit: u64::from(words[1]) << 9 }, read: u64::from(words[3]), tell: words[0] % 2 == 1 };
            let bytes = written(&head, envelope);
            prop_assert_eq!(RecordHead::read(&bytes, crc), Ok(head));
            prop_assert_eq!(RecordHead::read_again(&bytes), Ok(head));
            let is_whole = matches!(kind, RecordKind::Message { total_len, .. } if offset == 0 && total_len == u64::from(len));
            prop_assert_eq!(RecordHead::whole_message(&bytes), is_whole.then_some(len));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = (RecordHead::read_again(&bytes), RecordHead::whole_message(&bytes));
            let _ = RecordHead::read(&bytes, |_, _| bytes.get(60..64).map_or(0, |b| u32::from_le_bytes(b.try_into().unwrap())));
        }
    }
}

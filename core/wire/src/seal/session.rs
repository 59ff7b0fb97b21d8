//! Protection of PROTECTED packets with the keys of one association (spec 2.1, 3.3).

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

use aes_gcm::aead::AeadInOut;
use aes_gcm::{Aes256Gcm, KeyInit};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

use super::{JobKey, crc32c_append, hkdf_sha256};
use crate::bulk::BulkKey;
use crate::bytes::{le32, part};
use crate::handshake;
use crate::packet::{CRC_LEN, HEADER_LEN, Level, PacketError, TAG_LEN};

/// Bytes of a direction's CRC salt.
pub const SALT_LEN: usize = 4;

const KEY_LEN: usize = 32;
const IV_LEN: usize = 12;
const DIRECTION_LEN: usize = KEY_LEN + IV_LEN + SALT_LEN;

/// Which side of the handshake we are.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Role {
    /// Sent INIT.
    Opener,
    /// Sent ACCEPT.
    Responder,
}

/// The keys of both directions of an association.
pub struct SessionKeys {
    /// For packets we send.
    pub send: SendKeys,
    /// For packets we receive.
    pub recv: RecvKeys,
    /// For greetings on bulk connections, both ways.
    pub bulk: BulkKey,
}

impl SessionKeys {
    /// Derives the keys (spec 3.3). `level` is the association's: at level integrity no cipher is
    /// set up.
    #[must_use]
    pub fn derive(
        job_key: &JobKey,
        level: Level,
        role: Role,
        opener_nonce: &[u8; handshake::NONCE_LEN],
        responder_nonce: &[u8; handshake::NONCE_LEN],
        opener_id: u64,
        responder_id: u64,
    ) -> SessionKeys {
        let mut salt = [0; 2 * handshake::NONCE_LEN];
        salt[..handshake::NONCE_LEN].copy_from_slice(opener_nonce);
        salt[handshake::NONCE_LEN..].copy_from_slice(responder_nonce);
        let info: [&[u8]; 3] = [b"weir 1", &opener_id.to_le_bytes(), &responder_id.to_le_bytes()];
        let okm: [u8; 2 * DIRECTION_LEN] = hkdf_sha256(job_key, &salt, &info);
        let from_opener = Direction::new(level, &okm[..DIRECTION_LEN]);
        let from_responder = Direction::new(level, &okm[DIRECTION_LEN..]);
        let (send, recv) = match role {
            Role::Opener => (from_opener, from_responder),
            Role::Responder => (from_responder, from_opener),
        };
        let info: [&[u8]; 3] = [b"weir 1 lane", &opener_id.to_le_bytes(), &responder_id.to_le_bytes()];
        SessionKeys {
            send: SendKeys(send),
            recv: RecvKeys(recv),
            bulk: BulkKey::new(hkdf_sha256(job_key, &salt, &info)),
        }
    }
}

/// What one direction is protected with. Ciphers are boxed so that an association at level
/// integrity stays small.
enum Protection {
    Integrity { salt: u32 },
    Auth(Box<Aes256Gcm>),
    Encrypt(Box<LessSafeKey>),
}

struct Direction {
    protection: Protection,
    iv: [u8; IV_LEN],
}

impl Direction {
    /// From `DIRECTION_LEN` bytes of key material.
    fn new(level: Level, okm: &[u8]) -> Direction {
        let key: [u8; KEY_LEN] = part(okm, 0);
        let protection = match level {
            Level::Integrity => Protection::Integrity { salt: le32(okm, KEY_LEN + IV_LEN) },
            Level::Auth => Protection::Auth(Box::new(Aes256Gcm::new(&key.into()))),
            Level::Encrypt => {
                let key = UnboundKey::new(&AES_256_GCM, &key).expect("the cipher takes keys of 32 bytes");
                Protection::Encrypt(Box::new(LessSafeKey::new(key)))
            }
        };
        Direction { protection, iv: part(okm, KEY_LEN) }
    }

    /// The CRC over two pieces from the direction's salt, of what is not a packet; 0 at levels that
    /// have none.
    fn crc(&self, first: &[u8], second: &[u8]) -> u32 {
        match self.protection {
            Protection::Integrity { salt } => crc32c_append(crc32c_append(salt, first), second),
            Protection::Auth(_) | Protection::Encrypt(_) => 0,
        }
    }

    fn level(&self) -> Level {
        match self.protection {
            Protection::Integrity { .. } => Level::Integrity,
            Protection::Auth(_) => Level::Auth,
            Protection::Encrypt(_) => Level::Encrypt,
        }
    }

    /// As [`RecvKeys::open`].
    #[inline]
    fn open(&self, level: Level, number: u64, datagram: &mut [u8]) -> Result<Range<usize>, PacketError> {
        if level != self.level() {
            return Err(PacketError::Field("level"));
        }
        if datagram.len() < level.overhead() {
            return Err(PacketError::Length);
        }
        let frames = level.frames_offset()..datagram.len() - level.trailer_len();
        let opened = match &self.protection {
            Protection::Integrity { salt } => {
                let crc = le32(datagram, HEADER_LEN);
                packet_crc(*salt, datagram) == crc
            }
            Protection::Auth(cipher) => {
                let (clear, tag) = datagram.split_at(frames.end);
                let tag: [u8; TAG_LEN] = part(tag, 0);
                let nonce = self.nonce(number).into();
                cipher.decrypt_inout_detached(&nonce, clear, (&mut [][..]).into(), &tag.into()).is_ok()
            }
            Protection::Encrypt(cipher) => {
                let nonce = Nonce::assume_unique_for_key(self.nonce(number));
                let (head, sealed) = datagram.split_at_mut(HEADER_LEN);
                cipher.open_in_place(nonce, Aad::from(&*head), sealed).is_ok()
            }
        };
        if opened { Ok(frames) } else { Err(PacketError::Check) }
    }

    /// The direction's IV xor the packet number, the number in its last 8 bytes in network order as
    /// in RFC 9001 5.3.
    fn nonce(&self, number: u64) -> [u8; IV_LEN] {
        let mut nonce = self.iv;
        for (n, b) in nonce[IV_LEN - 8..].iter_mut().zip(number.to_be_bytes()) {
            *n ^= b;
        }
        nonce
    }
}

/// CRC over the head and what follows the CRC field, whose contents are lost. A call costs as much
/// as some hundred bytes: so the head is moved over the field for a moment and all of it is one
/// piece.
fn packet_crc(salt: u32, packet: &mut [u8]) -> u32 {
    if packet.len() < HEADER_LEN + CRC_LEN {
        return crc32c_append(salt, &packet[..packet.len().min(HEADER_LEN)]);
    }
    let head: [u8; HEADER_LEN] = part(packet, 0);
    packet[CRC_LEN..CRC_LEN + HEADER_LEN].copy_from_slice(&head);
    let crc = crc32c_append(salt, &packet[CRC_LEN..]);
    packet[..HEADER_LEN].copy_from_slice(&head);
    crc
}

/// Protects the packets of one direction.
pub struct SendKeys(Direction);

impl SendKeys {
    /// The level these keys are for.
    #[must_use]
    pub fn level(&self) -> Level {
        self.0.level()
    }

    /// Completes a packet begun with [`crate::Header::write`] (at the same level) and filled with
    /// frames: fills in the CRC, or encrypts and appends the tag. `number` is the full packet
    /// number, never used before with these keys.
    ///
    /// # Panics
    /// If `packet` has no head, which is a mistake of the caller and never depends on what a peer
    /// sent.
    pub fn seal(&self, number: u64, packet: &mut Vec<u8>) {
        // Both ciphers fail only beyond 2^36 bytes.
        let tag: [u8; TAG_LEN] = match &self.0.protection {
            Protection::Integrity { salt } => {
                let crc = packet_crc(*salt, packet);
                return Self::crc_finish(packet, crc);
            }
            Protection::Auth(cipher) => cipher
                .encrypt_inout_detached(&self.0.nonce(number).into(), packet, (&mut [][..]).into())
                .expect("packet shorter than the cipher's limit")
                .into(),
            Protection::Encrypt(cipher) => {
                let nonce = Nonce::assume_unique_for_key(self.0.nonce(number));
                let (head, frames) = packet.split_at_mut(HEADER_LEN);
                let tag = cipher
                    .seal_in_place_separate_tag(nonce, Aad::from(&*head), frames)
                    .expect("packet shorter than the cipher's limit");
                part(tag.as_ref(), 0)
            }
        };
        packet.extend_from_slice(&tag);
    }

    /// Opens a packet sealed with these keys again, for traces: as [`RecvKeys::open`] does at the
    /// peer.
    ///
    /// # Errors
    /// As [`RecvKeys::open`].
    pub fn reopen(&self, number: u64, packet: &mut [u8]) -> Result<Range<usize>, PacketError> {
        self.0.open(self.level(), number, packet)
    }

    /// Level integrity, for payload that is gathered behind `packet` when it is sent: the CRC over
    /// what is in `packet` (0 at other levels, which have none); the CRC field is clobbered.
    /// Continue it over the payload with [`crc32c_append`], then call [`SendKeys::crc_finish`].
    #[inline]
    #[must_use]
    pub fn crc_begin(&self, packet: &mut [u8]) -> u32 {
        match self.0.protection {
            Protection::Integrity { salt } => packet_crc(salt, packet),
            Protection::Auth(_) | Protection::Encrypt(_) => 0,
        }
    }

    /// The CRC of a record's head and envelope (spec/bulk.md 3).
    #[must_use]
    pub fn record_crc(&self, head: &[u8], envelope: &[u8]) -> u32 {
        self.0.crc(head, envelope)
    }

    /// Puts the CRC into its place in a level-integrity packet.
    ///
    /// # Panics
    /// If `packet` has no head.
    #[inline]
    pub fn crc_finish(packet: &mut [u8], crc: u32) {
        packet[HEADER_LEN..HEADER_LEN + CRC_LEN].copy_from_slice(&crc.to_le_bytes());
    }
}

/// Verifies and opens the packets of one direction.
pub struct RecvKeys(Direction);

impl RecvKeys {
    /// The level these keys are for.
    #[must_use]
    pub fn level(&self) -> Level {
        self.0.level()
    }

    /// The CRC that a record's head and envelope must bear (spec/bulk.md 3).
    #[must_use]
    pub fn record_crc(&self, head: &[u8], envelope: &[u8]) -> u32 {
        self.0.crc(head, envelope)
    }

    /// Verifies a PROTECTED packet, decrypts its frames in place and returns where they lie.
    /// `number` is the expanded packet number. A packet of another level than the association's
    /// fails. The CRC field is clobbered.
    ///
    /// # Errors
    /// [`PacketError::Length`], [`PacketError::Field`] for another level, [`PacketError::Check`].
    /// After an error the contents of `datagram` mean nothing.
    pub fn open(&self, level: Level, number: u64, datagram: &mut [u8]) -> Result<Range<usize>, PacketError> {
        self.0.open(level, number, datagram)
    }
}

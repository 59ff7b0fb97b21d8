//! Byte 0 of every packet and the head of PROTECTED packets (spec 2, 2.1).

use alloc::vec::Vec;

use crate::VERSION;
use crate::bytes::{le32, le64};

/// Bytes of a PROTECTED head that every level has.
pub const HEADER_LEN: usize = 16;
/// Bytes of the CRC32C behind the head at level integrity.
pub const CRC_LEN: usize = 4;
/// Bytes of the tag at the end at levels auth and encrypt.
pub const TAG_LEN: usize = 16;
/// Highest path number (spec 8: up to 8 paths).
pub const MAX_PATH: u8 = 7;

const FLAG_LEVEL: u8 = 0b011;
const FLAG_ACK_NOW: u8 = 0b100;

/// What a packet is (spec 2).
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Kind {
    /// The opener's first packet.
    Init = 0,
    /// The responder's stateless answer.
    Cookie = 1,
    /// The opener shows that it can receive at its address.
    Confirm = 2,
    /// The responder has made the association.
    Accept = 3,
    /// The opening is refused.
    Refuse = 4,
    /// Frames of an established association.
    Protected = 5,
    /// The sender has no such association.
    Reset = 6,
}

/// How packets are protected (spec 2.1).
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum Level {
    /// CRC32C from a salt of the session: guards against damage and stragglers, not against an
    /// attacker.
    #[default]
    Integrity = 0,
    /// AES-256-GCM over clear frames (GMAC).
    Auth = 1,
    /// AES-256-GCM, frames encrypted.
    Encrypt = 2,
}

impl Level {
    /// The level with this number on the wire.
    #[must_use]
    pub const fn from_wire(byte: u8) -> Option<Level> {
        match byte {
            0 => Some(Level::Integrity),
            1 => Some(Level::Auth),
            2 => Some(Level::Encrypt),
            _ => None,
        }
    }

    /// Offset of the first frame in a PROTECTED packet.
    #[inline]
    #[must_use]
    pub const fn frames_offset(self) -> usize {
        match self {
            Level::Integrity => HEADER_LEN + CRC_LEN,
            Level::Auth | Level::Encrypt => HEADER_LEN,
        }
    }

    /// Bytes behind the last frame in a PROTECTED packet.
    #[inline]
    #[must_use]
    pub const fn trailer_len(self) -> usize {
        match self {
            Level::Integrity => 0,
            Level::Auth | Level::Encrypt => TAG_LEN,
        }
    }

    /// Bytes of a PROTECTED packet that are not frames.
    #[inline]
    #[must_use]
    pub const fn overhead(self) -> usize {
        self.frames_offset() + self.trailer_len()
    }
}

/// Why a datagram is no packet. It is dropped and counted; nothing else happens (spec 2).
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PacketError {
    /// Another protocol version.
    #[error("protocol version {0} is not {VERSION}")]
    Version(u8),
    /// No such kind of packet.
    #[error("unknown packet kind {0}")]
    Kind(u8),
    /// Too short, or not of the length its kind and counts demand.
    #[error("wrong packet length")]
    Length,
    /// A field has a value that the specification excludes.
    #[error("field `{0}` out of range")]
    Field(&'static str),
    /// CRC, MAC or tag does not fit: damaged, forged, or of another session or job key.
    #[error("integrity check failed")]
    Check,
}

/// Byte 0 of a packet of this kind.
#[inline]
#[must_use]
pub const fn first_byte(kind: Kind) -> u8 {
    VERSION << 4 | kind as u8
}

/// The kind of a datagram by its first byte.
///
/// # Errors
/// [`PacketError::Length`] for an empty datagram, [`PacketError::Version`], [`PacketError::Kind`].
#[inline]
pub fn kind(datagram: &[u8]) -> Result<Kind, PacketError> {
    let &first = datagram.first().ok_or(PacketError::Length)?;
    if first >> 4 != VERSION {
        return Err(PacketError::Version(first >> 4));
    }
    Ok(match first & 0x0f {
        0 => Kind::Init,
        1 => Kind::Cookie,
        2 => Kind::Confirm,
        3 => Kind::Accept,
        4 => Kind::Refuse,
        5 => Kind::Protected,
        6 => Kind::Reset,
        other => return Err(PacketError::Kind(other)),
    })
}

/// The head of a PROTECTED packet (spec 2.1).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// Protection of this packet.
    pub level: Level,
    /// The sender asks for an acknowledgement without delay.
    pub ack_now: bool,
    /// The sender's own number of the path, 0 to 7.
    pub path: u8,
    /// Low 32 bits of the packet number; see [`crate::expand`].
    pub number: u32,
    /// The association id that the receiver of this packet chose.
    pub association: u64,
}

impl Header {
    /// Reads the head of a PROTECTED packet. Nothing is verified yet but its form; see
    /// [`crate::seal::RecvKeys::open`].
    ///
    /// # Errors
    /// Not a PROTECTED packet of this version, too short for its level, or a field out of range.
    #[inline]
    pub fn parse(datagram: &[u8]) -> Result<Header, PacketError> {
        match kind(datagram)? {
            Kind::Protected => {}
            other => return Err(PacketError::Kind(other as u8)),
        }
        let head = datagram.first_chunk::<HEADER_LEN>().ok_or(PacketError::Length)?;
        let flags = head[1];
        if flags & !(FLAG_LEVEL | FLAG_ACK_NOW) != 0 {
            return Err(PacketError::Field("flags"));
        }
        let level = Level::from_wire(flags & FLAG_LEVEL).ok_or(PacketError::Field("level"))?;
        if head[2] > MAX_PATH {
            return Err(PacketError::Field("path"));
        }
        if datagram.len() < level.overhead() {
            return Err(PacketError::Length);
        }
        Ok(Header {
            level,
            ack_now: flags & FLAG_ACK_NOW != 0,
            path: head[2],
            number: le32(head, 4),
            association: le64(head, 8),
        })
    }

    /// The 16 bytes every level has.
    #[inline]
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        debug_assert!(self.path <= MAX_PATH);
        let ack_now = if self.ack_now { FLAG_ACK_NOW } else { 0 };
        let mut head = [0; HEADER_LEN];
        head[0] = first_byte(Kind::Protected);
        head[1] = self.level as u8 | ack_now;
        head[2] = self.path & MAX_PATH;
        head[4..8].copy_from_slice(&self.number.to_le_bytes());
        head[8..16].copy_from_slice(&self.association.to_le_bytes());
        head
    }

    /// Clears `packet` and starts it with this head; at level integrity the place of the CRC is
    /// left zero for [`crate::seal::SendKeys::seal`]. Frames are appended next.
    #[inline]
    pub fn write(&self, packet: &mut Vec<u8>) {
        packet.clear();
        packet.extend_from_slice(&self.encode());
        if self.level == Level::Integrity {
            packet.extend_from_slice(&[0; CRC_LEN]);
        }
    }

    /// Sets ACK_NOW in a packet that was begun with [`Header::write`] and not yet sealed.
    #[inline]
    pub fn set_ack_now(packet: &mut [u8]) {
        if let Some(flags) = packet.get_mut(1) {
            *flags |= FLAG_ACK_NOW;
        }
    }
}

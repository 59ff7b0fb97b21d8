//! Handshake packets, REFUSE and RESET (spec 2.3, 2.5). Each ends in a MAC with the handshake key,
//! so that only members of the job can make them.

use alloc::vec::Vec;

use crate::MIN_DATAGRAM_LEN;
use crate::addr::{self, AddrList, MAX_ADDRESSES};
use crate::bytes::Reader;
use crate::packet::{self, Kind, Level, PacketError};
use crate::seal::{HandshakeKey, MAC_LEN};

/// Bytes of an INIT, MAC included: more than a COOKIE, so a forged source address gains an attacker
/// nothing.
pub const INIT_LEN: usize = 160;
/// Bytes of a COOKIE packet.
pub const COOKIE_PACKET_LEN: usize = 64;
/// Bytes of a REFUSE.
pub const REFUSE_LEN: usize = 40;
/// Bytes of a RESET.
pub const RESET_LEN: usize = 40;
/// Bytes of the cookie itself.
pub const COOKIE_LEN: usize = 32;
/// Bytes of either side's nonce.
pub const NONCE_LEN: usize = 16;
/// Bytes of the parameters before the addresses.
pub const PARAMS_LEN: usize = 36;
/// No handshake packet is longer.
pub const MAX_HANDSHAKE_LEN: usize = 80 + PARAMS_LEN + MAX_ADDRESSES * addr::MAX_ADDRESS_LEN + MAC_LEN;

/// What the parameters say of ECN: version 1 of it. (Another is another's: it is none to us.)
const ECN: u8 = 1;

/// Where CONFIRM and ACCEPT say which rows of parity their sender takes.
const PARITY_ROWS_AT: usize = 4;

/// What an opener says in INIT and again in CONFIRM.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Opening {
    /// Level wanted.
    pub level: Level,
    /// Feature bits wanted.
    pub features: u16,
    /// Who opens.
    pub opener_id: u64,
    /// Which incarnation it means to reach.
    pub responder_id: u64,
    /// The association id under which the opener wants to receive.
    pub opener_association: u64,
    /// Fresh randomness of the opener.
    pub nonce: [u8; NONCE_LEN],
}

/// What each side tells about itself (spec 2.5).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Params {
    /// Largest UDP payload accepted, in bytes; at least [`MIN_DATAGRAM_LEN`].
    pub max_datagram: u16,
    /// Streams for matched messages, at least 1; both use the smaller number.
    pub streams: u16,
    /// Credit at the start, in messages.
    pub initial_credit_msgs: u32,
    /// Credit at the start, in bytes.
    pub initial_credit_bytes: u64,
    /// Size of the socket's receive buffer.
    pub rx_buffer_bytes: u64,
    /// Longest delay of an acknowledgement.
    pub ack_delay_max_us: u32,
    /// Silence after which the association is dead.
    pub peer_timeout_ms: u32,
    /// Version of bulk connections taken (spec/bulk.md 1), 0 for none.
    pub bulk_connections: u8,
    /// What it sends is ECN-capable, and it takes MARKED frames (spec 6.7).
    pub ecn: bool,
    /// Version of the SCTP carrier taken (spec/sctp.md 2), 0 for none.
    pub sctp: u8,
    /// Rows of parity of one group taken (spec 6.6); 0 is as 1. It stands in the packet's first
    /// bytes.
    pub parity_rows: u8,
    /// All addresses, in order of preference.
    pub addresses: AddrList,
}

/// CONFIRM.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Confirm {
    /// As in the INIT.
    pub opening: Opening,
    /// The responder's cookie, unchanged.
    pub cookie: [u8; COOKIE_LEN],
    /// The opener's parameters.
    pub params: Params,
}

/// COOKIE.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Cookie {
    /// Says which opening is answered.
    pub opener_association: u64,
    /// Made by [`crate::seal::CookieKey::cookie`]; means nothing to the opener.
    pub cookie: [u8; COOKIE_LEN],
}

/// ACCEPT.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Accept {
    /// Level of both directions.
    pub level: Level,
    /// Features of both.
    pub features: u16,
    /// Says which opening is answered.
    pub opener_association: u64,
    /// Who answers.
    pub responder_id: u64,
    /// The association id under which the responder wants to receive.
    pub responder_association: u64,
    /// Fresh randomness of the responder.
    pub nonce: [u8; NONCE_LEN],
    /// The responder's parameters.
    pub params: Params,
}

/// Why an opening was refused (spec 2.3).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum RefuseCode {
    /// The endpoint id wanted is not (or no longer) this endpoint's.
    StaleIncarnation,
    /// Version or features.
    Features,
    /// The level wanted is too low.
    Level,
    /// No room for another association.
    NoRoom,
    /// The endpoint is shutting down.
    ShuttingDown,
    /// A code of a later version; the opening has failed all the same.
    Other(u8),
}

impl RefuseCode {
    /// The byte on the wire.
    #[must_use]
    pub const fn to_wire(self) -> u8 {
        match self {
            RefuseCode::StaleIncarnation => 1,
            RefuseCode::Features => 2,
            RefuseCode::Level => 3,
            RefuseCode::NoRoom => 4,
            RefuseCode::ShuttingDown => 5,
            RefuseCode::Other(code) => code,
        }
    }

    /// The code of a byte on the wire.
    #[must_use]
    pub const fn from_wire(byte: u8) -> RefuseCode {
        match byte {
            1 => RefuseCode::StaleIncarnation,
            2 => RefuseCode::Features,
            3 => RefuseCode::Level,
            4 => RefuseCode::NoRoom,
            5 => RefuseCode::ShuttingDown,
            other => RefuseCode::Other(other),
        }
    }
}

/// REFUSE.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Refuse {
    /// Why.
    pub code: RefuseCode,
    /// Says which opening is answered.
    pub opener_association: u64,
    /// Who refuses.
    pub endpoint_id: u64,
}

/// RESET.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Reset {
    /// The association id in the packet that could not be placed.
    pub association: u64,
    /// Who could not place it.
    pub endpoint_id: u64,
}

/// Any packet but PROTECTED.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the types say it")]
pub enum Handshake {
    Init(Opening),
    Cookie(Cookie),
    Confirm(Confirm),
    Accept(Accept),
    Refuse(Refuse),
    Reset(Reset),
}

impl Handshake {
    /// Reads a packet and verifies its MAC. Form first, as that is cheap.
    ///
    /// # Errors
    /// Another version or kind (also PROTECTED), a length or field that cannot be, or a MAC that is
    /// not the job's.
    pub fn parse(datagram: &[u8], key: &HandshakeKey) -> Result<Handshake, PacketError> {
        let packet = Handshake::parse_unverified(datagram)?;
        if key.verify(datagram) { Ok(packet) } else { Err(PacketError::Check) }
    }

    /// Reads a packet without verifying its MAC: for tools that show packets, and fuzzing. Never
    /// act on the result.
    ///
    /// # Errors
    /// As [`Handshake::parse`], but for the MAC.
    pub fn parse_unverified(datagram: &[u8]) -> Result<Handshake, PacketError> {
        let kind = packet::kind(datagram)?;
        let rndv = datagram.len().checked_sub(MAC_LEN).ok_or(PacketError::Length)?;
        let mut r = Reader::new(&datagram[..rndv]);
        let parsed = match kind {
            Kind::Init => read_init(&mut r),
            Kind::Cookie => read_cookie(&mut r),
            Kind::Confirm => read_confirm(&mut r),
            Kind::Accept => read_accept(&mut r),
            Kind::Refuse => read_refuse(&mut r),
            Kind::Reset => read_reset(&mut r),
            Kind::Protected => return Err(PacketError::Kind(kind as u8)),
        }?;
        if r.rest().is_empty() { Ok(parsed) } else { Err(PacketError::Length) }
    }

    /// Clears `out` and writes the packet with its MAC; at most [`MAX_HANDSHAKE_LEN`] bytes.
    pub fn write(&self, key: &HandshakeKey, out: &mut Vec<u8>) {
        out.clear();
        match self {
            Handshake::Init(opening) => {
                write_opening(Kind::Init, opening, out);
                out.resize(INIT_LEN - MAC_LEN, 0);
            }
            Handshake::Cookie(p) => {
                out.extend_from_slice(&[packet::first_byte(Kind::Cookie), 0, 0, 0, 0, 0, 0, 0]);
                out.extend_from_slice(&p.opener_association.to_le_bytes());
                out.extend_from_slice(&p.cookie);
            }
            Handshake::Confirm(p) => {
                write_opening(Kind::Confirm, &p.opening, out);
                out[PARITY_ROWS_AT] = p.params.parity_rows;
                out.extend_from_slice(&p.cookie);
                p.params.write(out);
            }
            Handshake::Accept(p) => {
                write_first(Kind::Accept, p.level as u8, p.features, out);
                out[PARITY_ROWS_AT] = p.params.parity_rows;
                for id in [p.opener_association, p.responder_id, p.responder_association] {
                    out.extend_from_slice(&id.to_le_bytes());
                }
                out.extend_from_slice(&p.nonce);
                p.params.write(out);
            }
            Handshake::Refuse(p) => {
                write_first(Kind::Refuse, p.code.to_wire(), 0, out);
                out.extend_from_slice(&p.opener_association.to_le_bytes());
                out.extend_from_slice(&p.endpoint_id.to_le_bytes());
            }
            Handshake::Reset(p) => {
                write_first(Kind::Reset, 0, 0, out);
                out.extend_from_slice(&p.association.to_le_bytes());
                out.extend_from_slice(&p.endpoint_id.to_le_bytes());
            }
        }
        let mac = key.mac(out);
        out.extend_from_slice(&mac);
    }
}

/// The opener's association id in an INIT of another protocol version (spec 2.6), if the datagram
/// is one of this job.
#[must_use]
pub fn foreign_opening(datagram: &[u8], key: &HandshakeKey) -> Option<u64> {
    let &first = datagram.first()?;
    let is_one = first >> 4 != crate::VERSION && first & 0x0f == Kind::Init as u8 && datagram.len() == INIT_LEN;
    (is_one && key.verify(datagram)).then(|| crate::bytes::le64(datagram, 24))
}

/// The first eight bytes.
fn write_first(kind: Kind, second: u8, features: u16, out: &mut Vec<u8>) {
    let [f0, f1] = features.to_le_bytes();
    out.extend_from_slice(&[packet::first_byte(kind), second, f0, f1, 0, 0, 0, 0]);
}

fn write_opening(kind: Kind, p: &Opening, out: &mut Vec<u8>) {
    write_first(kind, p.level as u8, p.features, out);
    for id in [p.opener_id, p.responder_id, p.opener_association] {
        out.extend_from_slice(&id.to_le_bytes());
    }
    out.extend_from_slice(&p.nonce);
}

/// Length errors are the only ones that a missing byte can mean.
fn need<T>(value: Option<T>) -> Result<T, PacketError> {
    value.ok_or(PacketError::Length)
}

fn read_opening(r: &mut Reader<'_>) -> Result<Opening, PacketError> {
    let [_kind, level, f0, f1, _, _, _, _] = need(r.array::<8>())?;
    Ok(Opening {
        level: Level::from_wire(level).ok_or(PacketError::Field("level"))?,
        features: u16::from_le_bytes([f0, f1]),
        opener_id: need(r.u64())?,
        responder_id: need(r.u64())?,
        opener_association: need(r.u64())?,
        nonce: need(r.array())?,
    })
}

fn read_init(r: &mut Reader<'_>) -> Result<Handshake, PacketError> {
    let opening = read_opening(r)?;
    // The filling is covered by the MAC and otherwise ignored.
    need(r.take(INIT_LEN - MAC_LEN - r.position()))?;
    Ok(Handshake::Init(opening))
}

fn read_cookie(r: &mut Reader<'_>) -> Result<Handshake, PacketError> {
    need(r.take(8))?;
    Ok(Handshake::Cookie(Cookie { opener_association: need(r.u64())?, cookie: need(r.array())? }))
}

fn read_confirm(r: &mut Reader<'_>) -> Result<Handshake, PacketError> {
    let parity_rows = need(r.peek(PARITY_ROWS_AT))?;
    let opening = read_opening(r)?;
    Ok(Handshake::Confirm(Confirm { opening, cookie: need(r.array())?, params: Params::read(r, parity_rows)? }))
}

fn read_accept(r: &mut Reader<'_>) -> Result<Handshake, PacketError> {
    let [_kind, level, f0, f1, parity_rows, _, _, _] = need(r.array::<8>())?;
    Ok(Handshake::Accept(Accept {
        level: Level::from_wire(level).ok_or(PacketError::Field("level"))?,
        features: u16::from_le_bytes([f0, f1]),
        opener_association: need(r.u64())?,
        responder_id: need(r.u64())?,
        responder_association: need(r.u64())?,
        nonce: need(r.array())?,
        params: Params::read(r, parity_rows)?,
    }))
}

fn read_refuse(r: &mut Reader<'_>) -> Result<Handshake, PacketError> {
    let first = need(r.array::<8>())?;
    let code = RefuseCode::from_wire(first[1]);
    Ok(Handshake::Refuse(Refuse { code, opener_association: need(r.u64())?, endpoint_id: need(r.u64())? }))
}

fn read_reset(r: &mut Reader<'_>) -> Result<Handshake, PacketError> {
    need(r.take(8))?;
    Ok(Handshake::Reset(Reset { association: need(r.u64())?, endpoint_id: need(r.u64())? }))
}

impl Params {
    fn write(&self, out: &mut Vec<u8>) {
        debug_assert!(self.max_datagram >= MIN_DATAGRAM_LEN && self.streams > 0);
        out.extend_from_slice(&self.max_datagram.to_le_bytes());
        out.extend_from_slice(&self.streams.to_le_bytes());
        out.extend_from_slice(&self.initial_credit_msgs.to_le_bytes());
        out.extend_from_slice(&self.initial_credit_bytes.to_le_bytes());
        out.extend_from_slice(&self.rx_buffer_bytes.to_le_bytes());
        out.extend_from_slice(&self.ack_delay_max_us.to_le_bytes());
        out.extend_from_slice(&self.peer_timeout_ms.to_le_bytes());
        #[expect(clippy::cast_possible_truncation, reason = "at most 8")]
        let count = self.addresses.len() as u8;
        out.extend_from_slice(&[count, self.bulk_connections, if self.ecn { ECN } else { 0 }, self.sctp]);
        for a in &self.addresses {
            addr::write(a, out);
        }
    }

    fn read(r: &mut Reader<'_>, parity_rows: u8) -> Result<Params, PacketError> {
        let max_datagram = need(r.u16())?;
        let streams = need(r.u16())?;
        let initial_credit_msgs = need(r.u32())?;
        let initial_credit_bytes = need(r.u64())?;
        let rx_buffer_bytes = need(r.u64())?;
        let ack_delay_max_us = need(r.u32())?;
        let peer_timeout_ms = need(r.u32())?;
        let [count, bulk_connections, ecn, sctp] = need(r.array::<4>())?;
        if max_datagram < MIN_DATAGRAM_LEN {
            return Err(PacketError::Field("max_datagram"));
        }
        if streams == 0 {
            return Err(PacketError::Field("streams"));
        }
        let addresses = addr::read_list(r, count).ok_or(PacketError::Field("addresses"))?;
        Ok(Params {
            max_datagram,
            streams,
            initial_credit_msgs,
            initial_credit_bytes,
            rx_buffer_bytes,
            ack_delay_max_us,
            peer_timeout_ms,
            bulk_connections,
            ecn: ecn == ECN,
            sctp,
            parity_rows,
            addresses,
        })
    }
}

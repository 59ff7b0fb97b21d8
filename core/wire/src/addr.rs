//! Addresses in handshake packets and ADDRESSES frames (spec 2.4).

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use arrayvec::ArrayVec;

use crate::bytes::Reader;

/// Most addresses of one endpoint (spec 2.5).
pub const MAX_ADDRESSES: usize = 8;
/// Largest size of one encoded address in bytes.
pub const MAX_ADDRESS_LEN: usize = 20;

/// The addresses of one endpoint, in its order of preference.
pub type AddrList = ArrayVec<SocketAddr, MAX_ADDRESSES>;

pub(crate) const FAMILY_V4: u8 = 4;
pub(crate) const FAMILY_V6: u8 = 6;

/// Bytes of this address on the wire.
#[must_use]
pub const fn encoded_len(addr: &SocketAddr) -> usize {
    match addr {
        SocketAddr::V4(_) => 8,
        SocketAddr::V6(_) => MAX_ADDRESS_LEN,
    }
}

/// Appends an address. Scope and flow label of IPv6 addresses mean nothing to another host and do
/// not travel.
pub fn write(addr: &SocketAddr, out: &mut Vec<u8>) {
    match addr {
        SocketAddr::V4(v4) => {
            out.extend_from_slice(&[FAMILY_V4, 0]);
            out.extend_from_slice(&v4.port().to_le_bytes());
            out.extend_from_slice(&v4.ip().octets());
        }
        SocketAddr::V6(v6) => {
            out.extend_from_slice(&[FAMILY_V6, 0]);
            out.extend_from_slice(&v6.port().to_le_bytes());
            out.extend_from_slice(&v6.ip().octets());
        }
    }
}

/// Reads one address; `None` if the family is unknown or bytes are missing.
pub(crate) fn read(r: &mut Reader<'_>) -> Option<SocketAddr> {
    let [family, _pad, port_low, port_high] = r.array()?;
    let ip = match family {
        FAMILY_V4 => IpAddr::V4(Ipv4Addr::from(r.array::<4>()?)),
        FAMILY_V6 => IpAddr::V6(Ipv6Addr::from(r.array::<16>()?)),
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_le_bytes([port_low, port_high])))
}

/// Reads `count` addresses; `None` also if there are more than [`MAX_ADDRESSES`].
pub(crate) fn read_list(r: &mut Reader<'_>, count: u8) -> Option<AddrList> {
    let mut list = AddrList::new();
    for _ in 0..count {
        list.try_push(read(r)?).ok()?;
    }
    Some(list)
}

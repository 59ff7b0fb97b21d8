//! The endpoint name: 48 bytes that launchers hand around (spec 7).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use arrayvec::ArrayVec;

use crate::VERSION;
use crate::addr::{FAMILY_V4, FAMILY_V6};
use crate::bytes::{Reader, le64, part};

/// Bytes of a name, whatever it holds.
pub const NAME_LEN: usize = 48;
/// Most addresses in a name (all IPv4).
pub const MAX_NAME_ADDRESSES: usize = 6;

const ADDRESSES_AT: usize = 16;

/// Who and where an endpoint is. Equal names encode to equal bytes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct EndpointName {
    /// UDP port, the same for all addresses.
    pub port: u16,
    /// Tells job keys apart before anything is sent; see [`crate::seal::fingerprint`].
    pub fingerprint: [u8; 4],
    /// Random id of the incarnation.
    pub endpoint_id: u64,
    /// Addresses in order of preference. Together they must fit 32 bytes: 5 for an IPv4, 17 for an
    /// IPv6 address; [`EndpointName::push`] sees to that.
    pub addresses: ArrayVec<IpAddr, MAX_NAME_ADDRESSES>,
}

/// Why bytes are no endpoint name.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NameError {
    /// Not 48 bytes.
    #[error("an endpoint name has {NAME_LEN} bytes, not {0}")]
    Length(usize),
    /// Another protocol version.
    #[error("the name is of protocol version {0}, not {VERSION}")]
    Version(u8),
    /// Unknown family, addresses that run past the end, or a tail that is not zero.
    #[error("the name's address list is malformed")]
    Addresses,
}

impl EndpointName {
    /// A name without addresses.
    #[must_use]
    pub fn new(port: u16, fingerprint: [u8; 4], endpoint_id: u64) -> EndpointName {
        EndpointName { port, fingerprint, endpoint_id, addresses: ArrayVec::new() }
    }

    /// Adds an address if there is room for it; tells whether there was.
    pub fn push(&mut self, ip: IpAddr) -> bool {
        let used: usize = self.addresses.iter().map(encoded_len).sum();
        used + encoded_len(&ip) <= NAME_LEN - ADDRESSES_AT && self.addresses.try_push(ip).is_ok()
    }

    /// The 48 bytes. Addresses from the first that does not fit on are left out.
    #[must_use]
    pub fn encode(&self) -> [u8; NAME_LEN] {
        let mut name = [0; NAME_LEN];
        name[0] = VERSION;
        name[2..4].copy_from_slice(&self.port.to_be_bytes());
        name[4..8].copy_from_slice(&self.fingerprint);
        name[8..16].copy_from_slice(&self.endpoint_id.to_le_bytes());
        let mut at = ADDRESSES_AT;
        for ip in &self.addresses {
            let end = at + encoded_len(ip);
            let Some(place) = name.get_mut(at..end) else {
                break;
            };
            match ip {
                IpAddr::V4(v4) => {
                    place[0] = FAMILY_V4;
                    place[1..].copy_from_slice(&v4.octets());
                }
                IpAddr::V6(v6) => {
                    place[0] = FAMILY_V6;
                    place[1..].copy_from_slice(&v6.octets());
                }
            }
            name[1] += 1;
            at = end;
        }
        name
    }

    /// Reads a name.
    ///
    /// # Errors
    /// See [`NameError`].
    pub fn decode(bytes: &[u8]) -> Result<EndpointName, NameError> {
        let name: &[u8; NAME_LEN] = bytes.try_into().map_err(|_| NameError::Length(bytes.len()))?;
        if name[0] != VERSION {
            return Err(NameError::Version(name[0]));
        }
        let mut r = Reader::new(&name[ADDRESSES_AT..]);
        let addresses = read_addresses(&mut r, name[1]).ok_or(NameError::Addresses)?;
        if r.rest().iter().any(|&b| b != 0) {
            return Err(NameError::Addresses);
        }
        Ok(EndpointName {
            port: u16::from_be_bytes(part(name, 2)),
            fingerprint: part(name, 4),
            endpoint_id: le64(name, 8),
            addresses,
        })
    }
}

fn encoded_len(ip: &IpAddr) -> usize {
    if ip.is_ipv4() { 5 } else { 17 }
}

fn read_addresses(r: &mut Reader<'_>, count: u8) -> Option<ArrayVec<IpAddr, MAX_NAME_ADDRESSES>> {
    let mut addresses = ArrayVec::new();
    for _ in 0..count {
        let ip = match r.u8()? {
            FAMILY_V4 => IpAddr::V4(Ipv4Addr::from(r.array::<4>()?)),
            FAMILY_V6 => IpAddr::V6(Ipv6Addr::from(r.array::<16>()?)),
            _ => return None,
        };
        addresses.try_push(ip).ok()?;
    }
    Some(addresses)
}

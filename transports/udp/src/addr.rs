//! Socket addresses and ancillary data as the kernel lays them out, encoded and decoded in safe
//! code.
//!
//! Layouts: `struct sockaddr_in` and `sockaddr_in6` (ip(7), ipv6(7)); `struct cmsghdr` (cmsg(3)):
//! length `size_t`, level and type `int`, data, padded to the size of `size_t`. Linux only.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// A socket address in the kernel's form.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub struct RawAddr {
    bytes: [u8; 28],
    /// Bytes in use; the kernel writes it on reception.
    pub len: u32,
}

const V4_BYTES: u32 = 16;
const V6_BYTES: u32 = 28;

impl RawAddr {
    /// Room for any address.
    pub const EMPTY: RawAddr = RawAddr { bytes: [0; 28], len: V6_BYTES };
    /// No address: the socket knows to whom it sends.
    pub const NONE: RawAddr = RawAddr { bytes: [0; 28], len: 0 };
    /// What to offer the kernel as room.
    pub const ROOM: u32 = V6_BYTES;

    /// Encodes `addr` for a socket of the given family: IPv4 addresses are mapped when the socket
    /// is an IPv6 one.
    pub fn encode(addr: SocketAddr, v6_socket: bool) -> RawAddr {
        let mut raw = RawAddr::EMPTY;
        match addr {
            SocketAddr::V4(a) if !v6_socket => {
                raw.bytes[0..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
                raw.bytes[2..4].copy_from_slice(&a.port().to_be_bytes());
                raw.bytes[4..8].copy_from_slice(&a.ip().octets());
                raw.len = V4_BYTES;
            }
            SocketAddr::V4(a) => raw.put_v6(&SocketAddrV6::new(a.ip().to_ipv6_mapped(), a.port(), 0, 0)),
            SocketAddr::V6(a) => raw.put_v6(&a),
        }
        raw
    }

    fn put_v6(&mut self, a: &SocketAddrV6) {
        self.bytes[0..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
        self.bytes[2..4].copy_from_slice(&a.port().to_be_bytes());
        self.bytes[8..24].copy_from_slice(&a.ip().octets());
        self.bytes[24..28].copy_from_slice(&a.scope_id().to_ne_bytes());
        self.len = V6_BYTES;
    }

    /// Decodes; mapped IPv4 addresses become plain ones. `None`: not an IP address.
    #[inline]
    pub fn decode(&self) -> Option<SocketAddr> {
        let b = &self.bytes;
        let family = i32::from(u16::from_ne_bytes([b[0], b[1]]));
        let port = u16::from_be_bytes([b[2], b[3]]);
        if family == libc::AF_INET && self.len >= V4_BYTES {
            return Some(SocketAddr::from(([b[4], b[5], b[6], b[7]], port)));
        }
        if family != libc::AF_INET6 || self.len < V6_BYTES {
            return None;
        }
        let mut octets = [0; 16];
        octets.copy_from_slice(&b[8..24]);
        let ip = Ipv6Addr::from(octets);
        Some(match ip.to_ipv4_mapped() {
            Some(v4) => SocketAddr::from((v4, port)),
            None => {
                let scope = u32::from_ne_bytes([b[24], b[25], b[26], b[27]]);
                SocketAddr::V6(SocketAddrV6::new(ip, port, 0, scope))
            }
        })
    }

    /// The address bytes, for a system call.
    pub fn as_ptr(&self) -> *const u8 {
        self.bytes.as_ptr()
    }

    /// The address bytes, for a system call that fills them.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.bytes.as_mut_ptr()
    }
}

const WORD: usize = size_of::<usize>();
const HEADER: usize = WORD + 8;

fn padded(len: usize) -> usize {
    len.next_multiple_of(WORD)
}

/// Ancillary data of one message. 128 bytes hold everything asked for here: packet info of both
/// families, segment size, traffic class.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub struct Control {
    pub bytes: [u8; 128],
    /// Bytes in use, for sending.
    pub len: usize,
}

impl Control {
    /// Nothing in it.
    pub const EMPTY: Control = Control { bytes: [0; 128], len: 0 };

    fn put(&mut self, level: i32, kind: i32, data: &[u8]) {
        let cmsg_len = HEADER + data.len();
        let Some(room) = self.bytes.get_mut(self.len..self.len + padded(cmsg_len)) else {
            return;
        };
        room[..WORD].copy_from_slice(&cmsg_len.to_ne_bytes());
        room[WORD..WORD + 4].copy_from_slice(&level.to_ne_bytes());
        room[WORD + 4..HEADER].copy_from_slice(&kind.to_ne_bytes());
        room[HEADER..cmsg_len].copy_from_slice(data);
        self.len += padded(cmsg_len);
    }

    /// Asks for segmentation into datagrams of `bytes`.
    pub fn put_segment(&mut self, bytes: u16) {
        self.put(libc::SOL_UDP, libc::UDP_SEGMENT, &bytes.to_ne_bytes());
    }

    /// Sets the source address.
    pub fn put_source(&mut self, ip: IpAddr, v6_socket: bool) {
        match ip {
            // struct in_pktinfo: interface index, source, (unused) destination
            IpAddr::V4(v4) if !v6_socket => {
                let mut info = [0; 12];
                info[4..8].copy_from_slice(&v4.octets());
                self.put(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
            }
            // struct in6_pktinfo: source, interface index
            _ => {
                let v6 = match ip {
                    IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                    IpAddr::V6(v6) => v6,
                };
                let mut info = [0; 20];
                info[..16].copy_from_slice(&v6.octets());
                self.put(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
            }
        }
    }
}

/// What the ancillary data of a received message said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Segment size of a super-packet.
    pub segment: Option<usize>,
    /// The address it was sent to.
    pub local: Option<IpAddr>,
    /// ECN bits.
    pub ecn: u8,
}

/// Each (level, type, data) in the ancillary data of a received message.
pub fn messages(mut control: &[u8]) -> impl Iterator<Item = (i32, i32, &[u8])> {
    std::iter::from_fn(move || {
        let word = control.get(..WORD)?;
        let len = usize::from_ne_bytes(word.try_into().ok()?);
        let data = control.get(HEADER..len)?;
        let int = |at: usize| control.get(at..at + 4).and_then(|b| b.try_into().ok()).map(i32::from_ne_bytes);
        let item = (int(WORD)?, int(WORD + 4)?, data);
        control = control.get(padded(len)..).unwrap_or(&[]);
        Some(item)
    })
}

/// Reads the ancillary data of a received message.
pub fn parse_control(control: &[u8]) -> Received {
    let mut out = Received::default();
    for (level, kind, data) in messages(control) {
        match (level, kind, data) {
            (libc::SOL_UDP, libc::UDP_GRO, [a, b, c, d, ..]) => {
                out.segment = usize::try_from(i32::from_ne_bytes([*a, *b, *c, *d])).ok().filter(|&n| n > 0);
            }
            // in_pktinfo: index, local address of the packet (the interface's), header destination
            (libc::IPPROTO_IP, libc::IP_PKTINFO, [_, _, _, _, a, b, c, d, ..]) => {
                out.local = Some(IpAddr::V4(Ipv4Addr::new(*a, *b, *c, *d)));
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info) if info.len() >= 16 => {
                let mut octets = [0; 16];
                octets.copy_from_slice(&info[..16]);
                out.local = Some(IpAddr::V6(Ipv6Addr::from(octets)).to_canonical());
            }
            (libc::IPPROTO_IP, libc::IP_TOS, [tos, ..]) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, [tos, ..]) => {
                out.ecn = tos & 3;
            }
            _ => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn addresses_survive_the_round_trip_in_both_kinds_of_socket() {
        for text in ["10.1.2.3:7000", "[2001:db8::1]:65535", "[fe80::2%3]:1", "0.0.0.0:0"] {
            let addr: SocketAddr = text.parse().expect("an address");
            assert_eq!(RawAddr::encode(addr, true).decode(), Some(addr), "{text} in an IPv6 socket");
            if addr.is_ipv4() {
                assert_eq!(RawAddr::encode(addr, false).decode(), Some(addr), "{text} in an IPv4 socket");
            }
        }
    }

    #[test]
    fn something_that_is_no_ip_address_decodes_to_none() {
        assert_eq!(RawAddr::EMPTY.decode(), None);
        let mut short = RawAddr::encode("[::1]:9".parse().expect("an address"), true);
        short.len = 12;
        assert_eq!(short.decode(), None);
    }

    #[test]
    fn control_messages_are_found_in_any_order_and_cut_ones_end_the_walk() {
        let mut c = Control::EMPTY;
        c.put(libc::IPPROTO_IP, libc::IP_TOS, &[3]);
        c.put_source(IpAddr::from([10, 0, 0, 7]), false);
        c.put(libc::SOL_UDP, libc::UDP_GRO, &1472i32.to_ne_bytes());
        let all = parse_control(&c.bytes[..c.len]);
        assert_eq!(all, Received { segment: Some(1472), local: Some(IpAddr::from([10, 0, 0, 7])), ecn: 3 });
        for cut in 0..c.len {
            let part = parse_control(&c.bytes[..cut]);
            assert!(part.segment.is_none() || cut >= c.len - 4, "a cut message was believed at {cut}");
        }
        let mut lying = c;
        lying.bytes[..WORD].copy_from_slice(&usize::MAX.to_ne_bytes());
        assert_eq!(parse_control(&lying.bytes), Received::default());
    }

    #[test]
    fn mapped_source_addresses_come_back_plain() {
        let mut c = Control::EMPTY;
        c.put_source(IpAddr::from([10, 0, 0, 7]), true);
        assert_eq!(parse_control(&c.bytes[..c.len]).local, Some(IpAddr::from([10, 0, 0, 7])));
    }

    /// A control message of any header and data; now and then one that the kernel could send.
    fn message() -> impl Strategy<Value = (i32, i32, Vec<u8>)> {
        let known = [
            (libc::SOL_UDP, libc::UDP_GRO),
            (libc::IPPROTO_IP, libc::IP_PKTINFO),
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO),
            (libc::IPPROTO_IP, libc::IP_TOS),
        ];
        let kind = prop_oneof![any::<(i32, i32)>(), proptest::sample::select(known.to_vec())];
        (kind, proptest::collection::vec(any::<u8>(), 0..24)).prop_map(|((level, kind), data)| (level, kind, data))
    }

    /// What is read of any bytes is within them and comes to an end.
    fn judge(control: &[u8]) -> Result<(), proptest::test_runner::TestCaseError> {
        let all: Vec<_> = messages(control).collect();
        prop_assert!(all.iter().map(|(_, _, data)| HEADER + data.len()).sum::<usize>() <= control.len());
        let told = parse_control(control);
        prop_assert!(told.segment != Some(0) && told.ecn <= 3, "{told:?}");
        Ok(())
    }

    proptest! {
        #[test]
        fn any_bytes_are_control_messages_and_addresses_or_none(
            control in proptest::collection::vec(any::<u8>(), 0..200), head: Option<u8>, bytes: [u8; 28], v6: bool, len in 0u32..40,
        ) {
            judge(&control)?;
            let mut plausible = control;
            // A length that fits, or nearly.
            plausible.iter_mut().take(WORD).enumerate().for_each(|(i, b)| *b = if i == 0 { head.unwrap_or(16) } else { 0 });
            judge(&plausible)?;
            let mut raw = RawAddr { bytes, len };
            raw.decode();
            let family = if v6 { libc::AF_INET6 } else { libc::AF_INET } as u16;
            raw.bytes[..2].copy_from_slice(&family.to_ne_bytes());
            let enough = len >= if v6 { V6_BYTES } else { V4_BYTES };
            prop_assert_eq!(raw.decode().is_some(), enough);
        }

        #[test]
        fn written_control_messages_read_back_and_damaged_ones_do_no_harm(
            list in proptest::collection::vec(message(), 0..6), at in 0usize..128, to: u8, cut in 0usize..=128,
        ) {
            let mut control = Control::EMPTY;
            let mut fitting = Vec::new();
            for (level, kind, data) in list {
                let before = control.len;
                control.put(level, kind, &data);
                if control.len > before {
                    fitting.push((level, kind, data));
                }
            }
            let read: Vec<_> = messages(&control.bytes[..control.len]).map(|(l, k, data)| (l, k, data.to_vec())).collect();
            prop_assert_eq!(read, fitting);
            control.bytes[at] = to;
            judge(&control.bytes)?;
            judge(&control.bytes[..cut])?;
        }
    }
}

//! Ethernet frames with a UDP datagram: what is written before one, and what is read of a frame
//! received (spec/xdp.md 5).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::{Deref, Range};

/// An Ethernet address.
pub type Mac = [u8; 6];

const ETHER_BYTES: usize = 14;
const V4_BYTES: usize = 20;
const V6_BYTES: usize = 40;
const UDP_BYTES: usize = 8;
/// All headers, of either family.
const V4_HEAD: usize = ETHER_BYTES + V4_BYTES + UDP_BYTES;
const V6_HEAD: usize = ETHER_BYTES + V6_BYTES + UDP_BYTES;
const ETHERTYPE_V4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_V6: [u8; 2] = [0x86, 0xdd];
const UDP: u8 = 17;
const TTL: u8 = 64;
/// "Don't fragment", no offset.
const DONT_FRAGMENT: [u8; 2] = [0x40, 0x00];

/// The sum of 16-bit words in ones' complement (RFC 1071), not folded: the carries stand in the
/// upper half. An odd last byte counts as the first of a word.
#[inline]
fn sum(bytes: &[u8]) -> u64 {
    let mut total = 0u64;
    let mut words = bytes.chunks_exact(4);
    for word in &mut words {
        // (32 bits at a time: 2^16 = 1 modulo 2^16 - 1.)
        total += u64::from(u32::from_be_bytes([word[0], word[1], word[2], word[3]]));
    }
    let rest = words.remainder();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    total + u64::from(u32::from_be_bytes(last))
}

/// The sum folded to 16 bits.
#[inline]
fn folded(mut total: u64) -> u16 {
    total = (total & 0xffff_ffff) + (total >> 32);
    total = (total & 0xffff) + (total >> 16);
    total = (total & 0xffff) + (total >> 16);
    total = (total & 0xffff) + (total >> 16);
    total as u16
}

/// The headers of all datagrams of one route; what differs are lengths and checksums.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    head: [u8; V6_HEAD],
    v4: bool,
    /// Sums of what does not differ: the IPv4 header; addresses, protocol and ports for UDP's
    /// checksum.
    ip_sum: u64,
    udp_sum: u64,
}

impl Template {
    /// Headers from `own` to `remote`; `None`: their families differ.
    #[must_use]
    pub fn new(own_mac: Mac, next_mac: Mac, own: SocketAddr, remote: SocketAddr) -> Option<Template> {
        let mut head = [0; V6_HEAD];
        head[..6].copy_from_slice(&next_mac);
        head[6..12].copy_from_slice(&own_mac);
        let (at, v4) = match (own.ip(), remote.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                head[12..14].copy_from_slice(&ETHERTYPE_V4);
                head[14] = 0x45;
                head[20..22].copy_from_slice(&DONT_FRAGMENT);
                head[22] = TTL;
                head[23] = UDP;
                head[26..30].copy_from_slice(&from.octets());
                head[30..34].copy_from_slice(&to.octets());
                (ETHER_BYTES + V4_BYTES, true)
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                head[12..14].copy_from_slice(&ETHERTYPE_V6);
                head[14] = 0x60;
                head[20] = UDP;
                head[21] = TTL;
                head[22..38].copy_from_slice(&from.octets());
                head[38..54].copy_from_slice(&to.octets());
                (ETHER_BYTES + V6_BYTES, false)
            }
            _ => return None,
        };
        head[at..at + 2].copy_from_slice(&own.port().to_be_bytes());
        head[at + 2..at + 4].copy_from_slice(&remote.port().to_be_bytes());
        let addresses = if v4 { 26..34 } else { 22..54 };
        Some(Template {
            ip_sum: if v4 { sum(&head[ETHER_BYTES..ETHER_BYTES + V4_BYTES]) } else { 0 },
            udp_sum: sum(&head[addresses]) + u64::from(UDP) + sum(&head[at..at + 4]),
            head,
            v4,
        })
    }

    /// Bytes of the headers.
    #[inline]
    #[must_use]
    pub fn head_bytes(&self) -> usize {
        if self.v4 { V4_HEAD } else { V6_HEAD }
    }

    /// Bytes of the IP packet of a datagram of `len` bytes.
    #[inline]
    #[must_use]
    pub fn packet_bytes(&self, len: usize) -> usize {
        self.head_bytes() - ETHER_BYTES + len
    }

    /// Writes a datagram, `first` and then `rest`, with all its headers into `frame`, and returns
    /// its bytes; `None`: it does not fit.
    #[inline]
    pub fn write<P: Deref<Target = [u8]>>(&self, frame: &mut [u8], first: &[u8], rest: &[P]) -> Option<usize> {
        let head = self.head_bytes();
        let mut end = head;
        for part in std::iter::once(first).chain(rest.iter().map(|p| &**p)) {
            let to = frame.get_mut(end..end.checked_add(part.len())?)?;
            to.copy_from_slice(part);
            end += part.len();
        }
        let udp_bytes = u16::try_from(end - head + UDP_BYTES).ok()?;
        frame[..head].copy_from_slice(&self.head[..head]);
        let ip = &mut frame[ETHER_BYTES..];
        if self.v4 {
            let total = udp_bytes.checked_add(V4_BYTES as u16)?;
            ip[2..4].copy_from_slice(&total.to_be_bytes());
            // (The sum was taken with lengths of 0.)
            ip[10..12].copy_from_slice(&(!folded(self.ip_sum + u64::from(total))).to_be_bytes());
        } else {
            ip[4..6].copy_from_slice(&udp_bytes.to_be_bytes());
        }
        let udp = head - UDP_BYTES;
        frame[udp + 4..udp + 6].copy_from_slice(&udp_bytes.to_be_bytes());
        let checksum = !folded(self.udp_sum + 2 * u64::from(udp_bytes) + sum(&frame[head..end]));
        // 0 would say that there is none (RFC 768).
        let checksum = if checksum == 0 { 0xffff } else { checksum };
        frame[udp + 6..udp + 8].copy_from_slice(&checksum.to_be_bytes());
        Some(end)
    }
}

/// What is read of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Who sent it.
    pub remote: SocketAddr,
    /// Where it was sent to.
    pub own: SocketAddr,
    /// ECN bits (RFC 3168).
    pub ecn: u8,
    /// Where in the frame its bytes are.
    pub payload: Range<usize>,
}

fn port(frame: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]))
}

/// Reads a frame; `None`: it holds no whole UDP datagram as the program steers.
#[must_use]
#[inline]
pub fn read(frame: &[u8]) -> Option<Datagram> {
    let kind = [*frame.get(12)?, *frame.get(13)?];
    let (udp, ip_end, from, to, ecn) = match kind {
        ETHERTYPE_V4 => {
            let ip = frame.get(ETHER_BYTES..ETHER_BYTES + V4_BYTES)?;
            let total = usize::from(port(ip, 2)?);
            let fragment = [ip[6] & 0x3f, ip[7]] != [0, 0];
            if ip[0] != 0x45 || ip[9] != UDP || fragment || folded(sum(ip)) != 0xffff {
                return None;
            }
            let [from, to] = [12, 16].map(|at| IpAddr::V4(Ipv4Addr::new(ip[at], ip[at + 1], ip[at + 2], ip[at + 3])));
            (ETHER_BYTES + V4_BYTES, ETHER_BYTES + total, from, to, ip[1] & 3)
        }
        ETHERTYPE_V6 => {
            let ip = frame.get(ETHER_BYTES..ETHER_BYTES + V6_BYTES)?;
            if ip[0] >> 4 != 6 || ip[6] != UDP {
                return None;
            }
            let address = |at: usize| {
                let octets: [u8; 16] = ip.get(at..at + 16)?.try_into().ok()?;
                Some(IpAddr::V6(Ipv6Addr::from(octets)))
            };
            let end = ETHER_BYTES + V6_BYTES + usize::from(port(ip, 4)?);
            (ETHER_BYTES + V6_BYTES, end, address(8)?, address(24)?, (ip[1] >> 4) & 3)
        }
        _ => return None,
    };
    let begin = udp + UDP_BYTES;
    let end = udp + usize::from(port(frame, udp + 4)?);
    if end < begin || end > ip_end || ip_end > frame.len() {
        return None;
    }
    Some(Datagram {
        remote: SocketAddr::new(from, port(frame, udp)?),
        own: SocketAddr::new(to, port(frame, udp + 2)?),
        ecn,
        payload: begin..end,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{NetSlice, SlicedPacket, TransportSlice};
    use proptest::prelude::*;

    fn addresses() -> impl Strategy<Value = (SocketAddr, SocketAddr)> {
        prop_oneof![
            any::<([u8; 4], [u8; 4], u16, u16)>().prop_map(|(a, b, p, q)| ((a, p).into(), (b, q).into())),
            any::<([u16; 8], [u16; 8], u16, u16)>().prop_map(|(a, b, p, q)| ((a, p).into(), (b, q).into())),
        ]
    }

    fn written(own: SocketAddr, remote: SocketAddr, parts: &[Vec<u8>]) -> Vec<u8> {
        let t = Template::new([1; 6], [2; 6], own, remote).expect("one family");
        let mut frame = vec![0xee; 2048];
        let (first, rest) = parts.split_first().expect("one part at least");
        let len = t.write(&mut frame, first, rest).expect("it fits");
        frame.truncate(len);
        frame
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back_and_another_parser_agrees(
            (own, remote) in addresses(), parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 1..5),
        ) {
            let frame = written(own, remote, &parts);
            let bytes = parts.concat();
            let got = read(&frame).expect("a good frame");
            prop_assert_eq!(&frame[got.payload.clone()], &bytes[..]);
            // As the other side sees it.
            prop_assert_eq!((got.remote, got.own, got.ecn), (own, remote, 0));

            let other = SlicedPacket::from_ethernet(&frame).expect("a good frame");
            let Some(TransportSlice::Udp(udp)) = &other.transport else { panic!("no UDP") };
            prop_assert_eq!(udp.payload(), &bytes[..]);
            prop_assert_eq!((udp.source_port(), udp.destination_port()), (own.port(), remote.port()));
            let checksum = match &other.net {
                Some(NetSlice::Ipv4(ip)) => {
                    prop_assert_eq!(ip.header().header_checksum(), ip.header().to_header().calc_header_checksum());
                    prop_assert!(ip.header().dont_fragment() && ip.header().ttl() == 64);
                    udp.to_header().calc_checksum_ipv4(&ip.header().to_header(), &bytes)
                }
                Some(NetSlice::Ipv6(ip)) => udp.to_header().calc_checksum_ipv6(&ip.header().to_header(), &bytes),
                _ => panic!("no IP"),
            };
            prop_assert_eq!(Ok(udp.checksum()), checksum);
        }

        #[test]
        fn any_frame_is_a_datagram_within_it_or_none((own, remote) in addresses(), body in proptest::collection::vec(any::<u8>(), 0..80), changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4), cut: prop::sample::Index) {
            let mut frame = written(own, remote, &[body]);
            for (at, to) in changes {
                let at = at.index(frame.len());
                frame[at] = to;
            }
            frame.truncate(cut.index(frame.len() + 1));
            if let Some(got) = read(&frame) {
                prop_assert!(got.payload.start <= got.payload.end && got.payload.end <= frame.len());
            }
        }

        #[test]
        fn any_bytes_do_no_harm(frame in proptest::collection::vec(any::<u8>(), 0..120)) {
            if let Some(got) = read(&frame) {
                prop_assert!(got.payload.end <= frame.len());
            }
        }
    }

    #[test]
    fn fragments_options_and_damaged_headers_are_no_datagrams() {
        let good = written(([10, 0, 0, 1], 7).into(), ([10, 0, 0, 2], 8).into(), &[vec![5; 20]]);
        assert!(read(&good).is_some());
        // A fragment, with a right header checksum: it is the sum's complement that moves along.
        let mut fragment = good.clone();
        fragment[20] = 0x20;
        fragment[24] = fragment[24].wrapping_add(0x20);
        assert_eq!(folded(sum(&fragment[14..34])), 0xffff, "the test's own arithmetic");
        assert_eq!(read(&fragment), None);
        let mut damaged = good.clone();
        damaged[22] ^= 1;
        assert_eq!(read(&damaged), None);
        let mut short = good.clone();
        short.pop();
        assert_eq!(read(&short), None, "the IP packet is longer than the frame");
        let mut padded = good.clone();
        padded.extend([0; 18]);
        assert_eq!(read(&padded).map(|d| d.payload), read(&good).map(|d| d.payload), "Ethernet pads short frames");
    }
}

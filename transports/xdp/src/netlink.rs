//! What is asked of the kernel about links, routes and neighbours (rtnetlink(7)), and what it tells
//! unasked.
//!
//! Two questions and one list: less than what a crate for all of rtnetlink would bring into every
//! MPI process.

use crate::frame::Mac;
use crate::sys;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;

const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_GETADDR: u16 = 22;
const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const RTM_GETROUTE: u16 = 26;
const RTM_NEWNEIGH: u16 = 28;
const RTM_DELNEIGH: u16 = 29;
const RTM_GETNEIGH: u16 = 30;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const REQUEST: u16 = 1;
const DUMP: u16 = 0x300;

/// Groups of what is told unasked: links, neighbours, addresses, routes and rules
/// (linux/rtnetlink.h, a bit each).
const CHANGES: u32 = 0x1 | 0x4 | 0x10 | 0x40 | 0x80 | 0x100 | 0x400;
/// Those of addresses alone.
const OF_ADDRESSES: u32 = 0x10 | 0x100;

/// States of a neighbour whose address may be used: REACHABLE, STALE, DELAY, PROBE, NOARP,
/// PERMANENT.
const VALID: u16 = 0x02 | 0x04 | 0x08 | 0x10 | 0x40 | 0x80;
/// A route to a host elsewhere (`RTN_UNICAST`).
const UNICAST: u8 = 1;

const HEAD_BYTES: usize = 16;

/// A question.
struct Question(Vec<u8>);

impl Question {
    fn new(kind: u16, flags: u16, fixed: &[u8]) -> Question {
        let mut bytes = vec![0; HEAD_BYTES];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(REQUEST | flags).to_ne_bytes());
        bytes.extend_from_slice(fixed);
        Question(bytes)
    }

    fn address(mut self, kind: u16, ip: IpAddr) -> Question {
        let (v4, v6);
        let octets: &[u8] = match ip {
            IpAddr::V4(ip) => {
                v4 = ip.octets();
                &v4
            }
            IpAddr::V6(ip) => {
                v6 = ip.octets();
                &v6
            }
        };
        self.0.extend((octets.len() as u16 + 4).to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(octets);
        self
    }

    fn finish(mut self, sequence: u32) -> Vec<u8> {
        let len = self.0.len() as u32;
        self.0[..4].copy_from_slice(&len.to_ne_bytes());
        self.0[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.0
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// One message of the kernel's.
struct Message<'a> {
    kind: u16,
    sequence: u32,
    body: &'a [u8],
}

/// The messages of what one call has read.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let len = u32_at(bytes, 0)? as usize;
        let (kind, sequence) = (u16_at(bytes, 4)?, u32_at(bytes, 8)?);
        let body = bytes.get(HEAD_BYTES..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some(Message { kind, sequence, body })
    })
}

/// The attributes behind a fixed part of `fixed` bytes.
fn attributes(body: &[u8], fixed: usize) -> impl Iterator<Item = (u16, &[u8])> {
    let mut bytes = body.get(fixed..).unwrap_or(&[]);
    std::iter::from_fn(move || {
        let len = usize::from(u16_at(bytes, 0)?);
        let kind = u16_at(bytes, 2)? & 0x3fff;
        let value = bytes.get(4..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, value))
    })
}

fn address(value: &[u8]) -> Option<IpAddr> {
    match value.len() {
        4 => Some(IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(value).ok()?))),
        16 => Some(IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(value).ok()?))),
        _ => None,
    }
}

fn family(ip: IpAddr) -> u8 {
    (if ip.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }) as u8
}

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its own Ethernet address; `None`: it is no Ethernet (loopback, tunnels).
    pub mac: Option<Mac>,
    /// Largest IP packet, bytes.
    pub mtu: u32,
    /// Up, with a carrier.
    pub up: bool,
}

/// `struct ifinfomsg`: family, pad, type, index, flags, change.
fn link(body: &[u8]) -> Option<Link> {
    const ETHER: u16 = 1;
    const IFLA_ADDRESS: u16 = 1;
    const IFLA_IFNAME: u16 = 3;
    const IFLA_MTU: u16 = 4;
    let flags = u32_at(body, 8)?;
    let wanted = (libc::IFF_UP | libc::IFF_LOWER_UP) as u32;
    let mut found =
        Link { index: u32_at(body, 4)?, name: String::new(), mac: None, mtu: 0, up: flags & wanted == wanted };
    let is_ether = u16_at(body, 2)? == ETHER && flags & libc::IFF_LOOPBACK as u32 == 0;
    for (kind, value) in attributes(body, 16) {
        match kind {
            IFLA_ADDRESS if is_ether => found.mac = value.try_into().ok(),
            IFLA_IFNAME => found.name = String::from_utf8_lossy(value.strip_suffix(&[0]).unwrap_or(value)).into_owned(),
            IFLA_MTU => found.mtu = u32_at(value, 0)?,
            _ => {}
        }
    }
    Some(found)
}

/// `struct ifaddrmsg`: family, prefix length, flags, scope, index. Where both are told the local
/// address is ours, the other a peer's.
fn own_address(body: &[u8]) -> Option<(u32, IpAddr)> {
    const IFA_ADDRESS: u16 = 1;
    const IFA_LOCAL: u16 = 2;
    let find = |wanted| attributes(body, 8).find(|(kind, _)| *kind == wanted).and_then(|(_, value)| address(value));
    Some((u32_at(body, 4)?, find(IFA_LOCAL).or_else(|| find(IFA_ADDRESS))?))
}

/// A way to a host elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// The interface it leaves by.
    pub interface: u32,
    /// The neighbour it goes to.
    pub next: IpAddr,
    /// The address of ours that the kernel would send from.
    pub source: Option<IpAddr>,
    /// Largest IP packet, where the route says one.
    pub mtu: Option<u32>,
}

/// `struct rtmsg`: family, lengths of destination and source, tos, table, protocol, scope, type,
/// flags.
fn way(body: &[u8], to: IpAddr) -> Option<Way> {
    const RTA_OIF: u16 = 4;
    const RTA_GATEWAY: u16 = 5;
    const RTA_PREFSRC: u16 = 7;
    const RTA_METRICS: u16 = 8;
    const RTA_VIA: u16 = 18;
    const RTAX_MTU: u16 = 2;
    if *body.get(7)? != UNICAST {
        return None;
    }
    let (mut interface, mut next, mut source, mut mtu) = (None, to, None, None);
    for (kind, value) in attributes(body, 12) {
        match kind {
            RTA_OIF => interface = u32_at(value, 0),
            RTA_GATEWAY => next = address(value)?,
            // Family, address: an IPv6 gateway of an IPv4 route.
            RTA_VIA => next = address(value.get(2..)?)?,
            RTA_PREFSRC => source = address(value),
            RTA_METRICS => {
                let told = attributes(value, 0).find(|(kind, _)| *kind == RTAX_MTU);
                mtu = told.and_then(|(_, value)| u32_at(value, 0)).filter(|&n| n > 0);
            }
            _ => {}
        }
    }
    Some(Way { interface: interface?, next, source, mtu })
}

/// `struct ndmsg`: family, pads, index, state, flags, type. The address of a neighbour that can be
/// used.
fn neighbour(body: &[u8]) -> Option<Mac> {
    const NDA_LLADDR: u16 = 2;
    if u16_at(body, 8)? & VALID == 0 {
        return None;
    }
    attributes(body, 12).find(|(kind, _)| *kind == NDA_LLADDR).and_then(|(_, value)| value.try_into().ok())
}

/// A netlink socket for questions.
#[derive(Debug)]
pub struct Netlink {
    socket: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

/// More than any one message, and what the kernel likes for lists.
const BUFFER_BYTES: usize = 32 << 10;

impl Netlink {
    /// Opens one. Needs no rights.
    ///
    /// # Errors
    /// Out of descriptors; no such sockets here.
    pub fn open() -> io::Result<Netlink> {
        Ok(Netlink { socket: sys::netlink(0)?, sequence: 0, buffer: vec![0; BUFFER_BYTES] })
    }

    /// Asks, and gives each message of the answer to `take`. (The kernel answers before the call
    /// that asks returns.)
    fn ask(&mut self, question: Question, list: bool, mut take: impl FnMut(u16, &[u8])) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        sys::send(&self.socket, &question.finish(self.sequence))?;
        loop {
            let n = match sys::recv(&self.socket, &mut self.buffer) {
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            for m in messages(&self.buffer[..n]).filter(|m| m.sequence == self.sequence) {
                match m.kind {
                    NLMSG_DONE => return Ok(()),
                    NLMSG_ERROR => {
                        let error = u32_at(m.body, 0).map_or(-libc::EIO, |n| n as i32);
                        return if error == 0 {
                            Ok(())
                        } else {
                            Err(io::Error::from_raw_os_error(error.saturating_neg()))
                        };
                    }
                    kind => take(kind, m.body),
                }
                if !list {
                    return Ok(());
                }
            }
        }
    }

    /// An interface, by its index.
    ///
    /// # Errors
    /// ENODEV: there is none.
    pub fn link(&mut self, index: u32) -> io::Result<Link> {
        let mut fixed = [0; 16];
        fixed[4..8].copy_from_slice(&index.to_ne_bytes());
        let mut found = None;
        self.ask(Question::new(RTM_GETLINK, 0, &fixed), false, |kind, body| {
            if kind == RTM_NEWLINK {
                found = link(body);
            }
        })?;
        found.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))
    }

    /// All addresses of this host, with the index of their interface.
    ///
    /// # Errors
    /// The kernel's.
    pub fn addresses(&mut self) -> io::Result<Vec<(u32, IpAddr)>> {
        let mut found = Vec::new();
        self.ask(Question::new(RTM_GETADDR, DUMP, &[0; 8]), true, |kind, body| {
            if kind == RTM_NEWADDR {
                found.extend(own_address(body));
            }
        })?;
        Ok(found)
    }

    /// The way to a host, sent from `source` if that is said. `None`: it is not elsewhere, or
    /// cannot be reached.
    ///
    /// # Errors
    /// The kernel's, other than that there is no way.
    pub fn way(&mut self, to: IpAddr, source: Option<IpAddr>) -> io::Result<Option<Way>> {
        const RTA_DST: u16 = 1;
        const RTA_SRC: u16 = 2;
        let bits = |ip: IpAddr| if ip.is_ipv4() { 32 } else { 128 };
        let mut fixed = [0; 12];
        (fixed[0], fixed[1], fixed[2]) = (family(to), bits(to), source.map_or(0, bits));
        let mut question = Question::new(RTM_GETROUTE, 0, &fixed).address(RTA_DST, to);
        if let Some(source) = source {
            question = question.address(RTA_SRC, source);
        }
        let mut found = None;
        let asked = self.ask(question, false, |kind, body| {
            if kind == RTM_NEWROUTE {
                found = way(body, to);
            }
        });
        match asked {
            Err(e)
                if matches!(
                    e.raw_os_error(),
                    Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EACCES | libc::EINVAL)
                ) =>
            {
                Ok(None)
            }
            other => other.map(|()| found),
        }
    }

    /// The Ethernet address of a neighbour, if the kernel knows one that is good.
    ///
    /// # Errors
    /// The kernel's, other than that it does not know.
    pub fn neighbour(&mut self, interface: u32, ip: IpAddr) -> io::Result<Option<Mac>> {
        const NDA_DST: u16 = 1;
        let mut fixed = [0; 12];
        fixed[0] = family(ip);
        fixed[4..8].copy_from_slice(&interface.to_ne_bytes());
        let mut found = None;
        let asked = self.ask(Question::new(RTM_GETNEIGH, 0, &fixed).address(NDA_DST, ip), false, |kind, body| {
            if kind == RTM_NEWNEIGH {
                found = neighbour(body);
            }
        });
        match asked {
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            other => other.map(|()| found),
        }
    }
}

/// A netlink socket that is told of changes.
#[derive(Debug)]
pub struct Changes {
    socket: OwnedFd,
    buffer: Vec<u8>,
}

impl Changes {
    /// Listens from now on. Needs no rights.
    ///
    /// # Errors
    /// As [`Netlink::open`].
    pub fn open() -> io::Result<Changes> {
        Ok(Changes { socket: sys::netlink(CHANGES)?, buffer: vec![0; BUFFER_BYTES] })
    }

    /// Listens to changes of addresses alone. Needs no rights.
    ///
    /// # Errors
    /// As [`Netlink::open`].
    pub fn of_addresses() -> io::Result<Changes> {
        Ok(Changes { socket: sys::netlink(OF_ADDRESSES)?, buffer: vec![0; BUFFER_BYTES] })
    }

    /// The socket, readable when something has changed.
    #[must_use]
    pub fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Whether anything has changed since the last question that may concern what leaves by this
    /// interface.
    pub fn any(&mut self, interface: u32) -> bool {
        let mut changed = false;
        // (Bounded: who is told more than this in one go asks again soon.)
        for _ in 0..64 {
            match sys::recv(&self.socket, &mut self.buffer) {
                Ok(n) => changed |= messages(&self.buffer[..n]).any(|m| concerns(m.kind, m.body, interface)),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // Too much to be kept (ENOBUFS): anything may have changed.
                Err(_) => return true,
            }
        }
        changed
    }
}

/// Whether a change may concern what leaves by this interface: links and neighbours only if they
/// are its own.
fn concerns(kind: u16, body: &[u8], interface: u32) -> bool {
    match kind {
        RTM_NEWLINK | RTM_DELLINK | RTM_NEWNEIGH | RTM_DELNEIGH => u32_at(body, 4) == Some(interface),
        RTM_NEWADDR | RTM_DELADDR | RTM_NEWROUTE | RTM_DELROUTE => true,
        // Rules, and what newer kernels tell.
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn loopback_is_found_with_its_address_and_is_no_ethernet() {
        let mut n = Netlink::open().expect("netlink");
        let addresses = n.addresses().expect("a list");
        let home = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let (index, _) = addresses.iter().find(|(_, ip)| *ip == home).expect("127.0.0.1");
        let lo = n.link(*index).expect("a link");
        assert_eq!((lo.name.as_str(), lo.mac), ("lo", None));
        assert!(lo.mtu >= 1500);
        assert_eq!(n.way(home, None).expect("asked"), None, "one's own host is not elsewhere");
        assert_eq!(n.link(0x7fff_fffe).map_err(|e| e.raw_os_error()), Err(Some(libc::ENODEV)));
        assert_eq!(n.neighbour(*index, IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1))).expect("asked"), None);
    }

    proptest! {
        #[test]
        fn any_bytes_of_the_kernels_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..300), len in 0u32..80, interface: u32) {
            let mut plausible = bytes.clone();
            plausible.iter_mut().zip(len.to_ne_bytes()).for_each(|(to, from)| *to = from);
            for bytes in [&bytes, &plausible] {
                for m in messages(bytes) {
                    concerns(m.kind, m.body, interface);
                }
                link(bytes);
                own_address(bytes);
                way(bytes, IpAddr::V4(Ipv4Addr::LOCALHOST));
                neighbour(bytes);
            }
        }
    }
}

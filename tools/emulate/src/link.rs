//! Interfaces, addresses, neighbours, bridges and shapers through rtnetlink, in the calling
//! thread's namespace.

use crate::model::PipeSpec;
use crate::netlink::{ACK, CREATE, Message, Netlink, REPLACE, attribute};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_NEWROUTE: u16 = 24;
const RTM_NEWNEIGH: u16 = 28;
const RTM_NEWQDISC: u16 = 36;

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_STATS64: u16 = 23;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;

/// Bits that the IPv4 addresses of a network have in common.
pub const PREFIX_BITS: u8 = 24;

/// An Ethernet address.
pub type Mac = [u8; 6];

/// One end of a veth pair.
#[derive(Clone, Debug)]
pub struct End<'a> {
    /// The interface's name.
    pub name: &'a str,
    /// Its Ethernet address.
    pub mac: Mac,
    /// The namespace to put it in; the calling thread's if absent.
    pub namespace: Option<BorrowedFd<'a>>,
}

/// Counters of an interface as the kernel keeps them.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkCounters {
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Received packets that the kernel dropped.
    pub rx_dropped: u64,
    /// Packets to be sent that the kernel dropped.
    pub tx_dropped: u64,
}

fn link_head(index: u32, flags: u32, change: u32) -> [u8; 16] {
    let mut head = [0; 16];
    head[4..8].copy_from_slice(&index.to_ne_bytes());
    head[8..12].copy_from_slice(&flags.to_ne_bytes());
    head[12..16].copy_from_slice(&change.to_ne_bytes());
    head
}

fn describe(message: &mut Message, end: &End<'_>, mtu: u32) {
    message.string(IFLA_IFNAME, end.name).attr(IFLA_ADDRESS, &end.mac).u32(IFLA_MTU, mtu);
    if let Some(namespace) = end.namespace {
        message.u32(IFLA_NET_NS_FD, namespace.as_raw_fd() as u32);
    }
}

/// Makes a veth pair.
pub fn make_veth(netlink: &mut Netlink, here: &End<'_>, there: &End<'_>, mtu: u32) -> io::Result<()> {
    let mut message = Message::new(RTM_NEWLINK, ACK | CREATE, &link_head(0, 0, 0));
    describe(&mut message, here, mtu);
    message.nest(IFLA_LINKINFO, |m| {
        m.string(IFLA_INFO_KIND, "veth").nest(IFLA_INFO_DATA, |m| {
            m.nest(VETH_INFO_PEER, |m| {
                m.raw(&link_head(0, 0, 0));
                describe(m, there, mtu);
            });
        });
    });
    netlink.request(message)
}

/// Makes a bridge without spanning tree.
pub fn make_bridge(netlink: &mut Netlink, name: &str, mtu: u32) -> io::Result<()> {
    let mut message = Message::new(RTM_NEWLINK, ACK | CREATE, &link_head(0, 0, 0));
    message.string(IFLA_IFNAME, name).u32(IFLA_MTU, mtu);
    message.nest(IFLA_LINKINFO, |m| {
        m.string(IFLA_INFO_KIND, "bridge");
    });
    netlink.request(message)
}

/// Puts an interface under a bridge.
pub fn set_master(netlink: &mut Netlink, name: &str, bridge: &str) -> io::Result<()> {
    let mut message = Message::new(RTM_NEWLINK, ACK, &link_head(index(name)?, 0, 0));
    message.u32(IFLA_MASTER, index(bridge)?);
    netlink.request(message)
}

/// Switches an interface on.
pub fn set_up(netlink: &mut Netlink, name: &str) -> io::Result<()> {
    let up = libc::IFF_UP as u32;
    netlink.request(Message::new(RTM_NEWLINK, ACK, &link_head(index(name)?, up, up)))
}

/// Switches an interface off: it loses its routes, and the other end of its cable its carrier.
pub fn set_down(netlink: &mut Netlink, interface: u32) -> io::Result<()> {
    netlink.request(Message::new(RTM_NEWLINK, ACK, &link_head(interface, 0, libc::IFF_UP as u32)))
}

/// Sets the longest packet that an interface takes, of its own as of others: the kernel drops what
/// arrives longer, and tells nobody.
pub fn set_mtu(netlink: &mut Netlink, interface: u32, mtu: u32) -> io::Result<()> {
    let mut message = Message::new(RTM_NEWLINK, ACK, &link_head(interface, 0, 0));
    message.u32(IFLA_MTU, mtu);
    netlink.request(message)
}

/// Replaces the route to an interface's own network of 24 bits: TCP connections over it get this
/// congestion control of the kernel, or the one that they would have without a route that names
/// one; and this least time before they send again, or the system's.
pub fn set_congestion(
    netlink: &mut Netlink,
    interface: u32,
    own: Ipv4Addr,
    algorithm: Option<&str>,
    rto_min: Option<Duration>,
) -> io::Result<()> {
    const PREFIX_BITS: u8 = 24;
    const RT_TABLE_MAIN: u8 = 254;
    const RTPROT_BOOT: u8 = 3;
    const RT_SCOPE_LINK: u8 = 253;
    const RTN_UNICAST: u8 = 1;
    const RTA_DST: u16 = 1;
    const RTA_OIF: u16 = 4;
    const RTA_PREFSRC: u16 = 7;
    const RTA_METRICS: u16 = 8;
    const RTAX_LOCK: u16 = 1;
    const RTAX_RTO_MIN: u16 = 13;
    const RTAX_CC_ALGO: u16 = 16;
    let [a, b, c, _] = own.octets();
    // struct rtmsg: family, bits of destination and source, type of service, table, origin, scope,
    // type; flags.
    let family = libc::AF_INET as u8;
    let head = [family, PREFIX_BITS, 0, 0, RT_TABLE_MAIN, RTPROT_BOOT, RT_SCOPE_LINK, RTN_UNICAST, 0, 0, 0, 0];
    let mut message = Message::new(RTM_NEWROUTE, ACK | REPLACE, &head);
    message.attr(RTA_DST, &[a, b, c, 0]).u32(RTA_OIF, interface).attr(RTA_PREFSRC, &own.octets());
    if algorithm.is_some() || rto_min.is_some() {
        message.nest(RTA_METRICS, |m| {
            if let Some(algorithm) = algorithm {
                m.string(RTAX_CC_ALGO, algorithm);
            }
            if let Some(least) = rto_min {
                // The kernel heeds it only where it is locked.
                m.u32(RTAX_LOCK, 1 << RTAX_RTO_MIN);
                m.u32(RTAX_RTO_MIN, u32::try_from(least.as_millis()).unwrap_or(u32::MAX).max(1));
            }
        });
    }
    netlink.request(message)
}

/// Gives an interface an address, usable at once.
pub fn add_address(netlink: &mut Netlink, name: &str, address: IpAddr, prefix: u8) -> io::Result<()> {
    netlink.request(about_address(RTM_NEWADDR, ACK | CREATE, index(name)?, address, prefix))
}

/// Takes an address from an interface.
pub fn take_address(netlink: &mut Netlink, interface: u32, address: IpAddr, prefix: u8) -> io::Result<()> {
    netlink.request(about_address(RTM_DELADDR, ACK, interface, address, prefix))
}

fn about_address(kind: u16, flags: u16, interface: u32, address: IpAddr, prefix: u8) -> Message {
    const IFA_ADDRESS: u16 = 1;
    const IFA_LOCAL: u16 = 2;
    const IFA_F_NODAD: u8 = 2;
    let (family, bytes) = octets(address);
    let mut head = [family, prefix, IFA_F_NODAD, 0, 0, 0, 0, 0];
    head[4..8].copy_from_slice(&interface.to_ne_bytes());
    let mut message = Message::new(kind, flags, &head);
    message.attr(IFA_LOCAL, &bytes).attr(IFA_ADDRESS, &bytes);
    message
}

/// Tells the kernel once and for all which Ethernet addresses its neighbours have, so that it never
/// has to ask.
pub fn add_neighbours(netlink: &mut Netlink, name: &str, neighbours: &[(IpAddr, Mac)]) -> io::Result<()> {
    const NDA_DST: u16 = 1;
    const NDA_LLADDR: u16 = 2;
    const NUD_PERMANENT: u16 = 0x80;
    let interface = index(name)?;
    let messages = neighbours.iter().map(|(address, mac)| {
        let (family, bytes) = octets(*address);
        let mut head = [0; 12];
        head[0] = family;
        head[4..8].copy_from_slice(&interface.to_ne_bytes());
        head[8..10].copy_from_slice(&NUD_PERMANENT.to_ne_bytes());
        let mut message = Message::new(RTM_NEWNEIGH, REPLACE, &head);
        message.attr(NDA_DST, &bytes).attr(NDA_LLADDR, mac);
        message
    });
    netlink.requests(messages.collect())
}

/// How many bytes an uplink's shaper may let through at once: enough for a millisecond, so that a
/// late timer of a busy kernel does not cost rate, but never more than half of what the uplink's
/// own queue takes.
fn burst_bytes(uplink: &PipeSpec, mtu: u32) -> u32 {
    let packet = u64::from(mtu) + 14;
    let wish = uplink.rate_bytes_per_s / 1000;
    let packets = uplink.queue.packets.map_or(u64::MAX, |p| u64::from(p) * packet);
    let room = packets.min(uplink.queue.bytes.unwrap_or(u64::MAX)) / 2;
    // The kernel needs room for one packet at least, and sends nothing with less.
    wish.min(room).clamp(2 * packet, 16 << 20) as u32
}

/// Shapes what an interface sends with the kernel's token bucket filter, so that senders feel the
/// rate as they do on a real interface: their socket buffers fill up, nothing is lost.
pub fn shape(netlink: &mut Netlink, interface: u32, uplink: &PipeSpec, mtu: u32) -> io::Result<()> {
    const TC_H_ROOT: u32 = 0xffff_ffff;
    const TCA_KIND: u16 = 1;
    const TCA_OPTIONS: u16 = 2;
    const TCA_TBF_PARMS: u16 = 1;
    const TCA_TBF_RATE64: u16 = 4;
    const TCA_TBF_BURST: u16 = 6;
    const LINKLAYER_ETHERNET: u8 = 1;
    let (rate, burst) = (uplink.rate_bytes_per_s, burst_bytes(uplink, mtu));
    let limit = 1000 * (mtu + 14);
    let rate32 = u32::try_from(rate).unwrap_or(u32::MAX);
    let buffer_ticks = (u64::from(burst) * 1_000_000_000 / rate.max(1) / 64).min(u64::from(u32::MAX)) as u32;
    // struct tc_tbf_qopt: rate, peakrate (tc_ratespec each), limit, buffer, mtu
    let mut options = Vec::with_capacity(36);
    options.extend_from_slice(&[0, LINKLAYER_ETHERNET, 0, 0, 0, 0, 0, 0]);
    options.extend_from_slice(&rate32.to_ne_bytes());
    options.extend_from_slice(&[0; 12]);
    for value in [limit, buffer_ticks, 0] {
        options.extend_from_slice(&value.to_ne_bytes());
    }
    let mut head = [0; 20];
    head[4..8].copy_from_slice(&interface.to_ne_bytes());
    head[12..16].copy_from_slice(&TC_H_ROOT.to_ne_bytes());
    let mut message = Message::new(RTM_NEWQDISC, ACK | REPLACE, &head);
    message.string(TCA_KIND, "tbf").nest(TCA_OPTIONS, |m| {
        m.attr(TCA_TBF_PARMS, &options).u32(TCA_TBF_BURST, burst);
        if rate > u64::from(u32::MAX) {
            m.attr(TCA_TBF_RATE64, &rate.to_ne_bytes());
        }
    });
    netlink.request(message)
}

/// Reads an interface's counters.
pub fn counters(netlink: &mut Netlink, interface: u32) -> io::Result<LinkCounters> {
    let message = Message::new(RTM_GETLINK, 0, &link_head(interface, 0, 0));
    netlink.get(message, |body| {
        let stats = body.get(16..).and_then(|attributes| attribute(attributes, IFLA_STATS64)).unwrap_or_default();
        let field = |number: usize| {
            stats.get(number * 8..number * 8 + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_ne_bytes)
        };
        LinkCounters { rx_packets: field(0), tx_packets: field(1), rx_dropped: field(6), tx_dropped: field(7) }
    })
}

/// Waits until an interface counts as running, and if it is a port of a bridge, forwards. The
/// kernel does both some time after the interface was switched on; programs that look earlier see a
/// link that is down.
pub fn wait_running(netlink: &mut Netlink, interface: u32) -> io::Result<()> {
    const IFLA_INFO_SLAVE_DATA: u16 = 5;
    const IFLA_BRPORT_STATE: u16 = 1;
    const FORWARDING: u8 = 3;
    let end = Instant::now() + Duration::from_secs(5);
    loop {
        let message = Message::new(RTM_GETLINK, 0, &link_head(interface, 0, 0));
        let ready = netlink.get(message, |body| {
            let flags = body.get(8..12).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes);
            let attributes = body.get(16..).unwrap_or_default();
            let port = attribute(attributes, IFLA_LINKINFO).and_then(|info| attribute(info, IFLA_INFO_SLAVE_DATA));
            let state = port.and_then(|data| attribute(data, IFLA_BRPORT_STATE)).and_then(|value| value.first());
            flags & libc::IFF_RUNNING as u32 != 0 && state.is_none_or(|state| *state == FORWARDING)
        })?;
        if ready {
            return Ok(());
        }
        if Instant::now() >= end {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the interface does not come up"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The kernel's number for an interface.
pub fn index(name: &str) -> io::Result<u32> {
    Ok(nix::net::if_::if_nametoindex(name)?)
}

fn octets(address: IpAddr) -> (u8, Vec<u8>) {
    match address {
        IpAddr::V4(v4) => (libc::AF_INET as u8, Ipv4Addr::octets(&v4).to_vec()),
        IpAddr::V6(v6) => (libc::AF_INET6 as u8, Ipv6Addr::octets(&v6).to_vec()),
    }
}

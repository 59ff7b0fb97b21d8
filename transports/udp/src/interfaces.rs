//! The machine's network interfaces: which addresses to offer to peers, and how large a datagram may be on the way to one.

use nix::net::if_::InterfaceFlags;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsRawFd;

/// One address of one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name, for example `eth0`.
    pub name: String,
    /// The address.
    pub addr: IpAddr,
    /// MTU of the interface, bytes of an IP packet.
    pub mtu_bytes: u32,
    /// The interface is up and has a carrier.
    pub up: bool,
    /// The loopback interface.
    pub loopback: bool,
    /// A tunnel or other link without neighbours.
    pub point_to_point: bool,
    /// By its name a bridge for containers or virtual machines on this machine: other machines do not reach it.
    pub local_bridge: bool,
}

impl Interface {
    /// Order of preference: plain links, tunnels, container bridges, loopback.
    fn rank(&self) -> u8 {
        match self {
            Interface { loopback: true, .. } => 3,
            Interface { local_bridge: true, .. } => 2,
            Interface { point_to_point: true, .. } => 1,
            _ => 0,
        }
    }
}

/// Name prefixes that container and virtual-machine software gives its bridges.
const BRIDGES: [&str; 8] = ["docker", "br-", "virbr", "lxcbr", "lxdbr", "cni", "podman", "flannel"];

/// Every address of every interface, in the kernel's order.
///
/// # Errors
/// What getifaddrs(3) reports.
pub fn interfaces() -> io::Result<Vec<Interface>> {
    let probe = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None)
        .or_else(|_| socket2::Socket::new(socket2::Domain::IPV6, socket2::Type::DGRAM, None))?;
    let mut out = Vec::new();
    for entry in nix::ifaddrs::getifaddrs()? {
        let Some(address) = entry.address else {
            continue;
        };
        let addr = if let Some(v4) = address.as_sockaddr_in() {
            IpAddr::V4(v4.ip())
        } else if let Some(v6) = address.as_sockaddr_in6() {
            IpAddr::V6(v6.ip())
        } else {
            continue;
        };
        out.push(Interface {
            addr,
            mtu_bytes: mtu_of(probe.as_raw_fd(), &entry.interface_name).unwrap_or(1500),
            up: is_up(entry.flags),
            loopback: entry.flags.contains(InterfaceFlags::IFF_LOOPBACK),
            point_to_point: entry.flags.contains(InterfaceFlags::IFF_POINTOPOINT),
            local_bridge: BRIDGES.iter().any(|b| entry.interface_name.starts_with(b)),
            name: entry.interface_name,
        });
    }
    Ok(out)
}

/// Up and with a carrier. The kernel says RUNNING up to a second after the carrier is there (its link watch runs that seldom), and an endpoint opened meanwhile would offer loopback for
/// the rest of its life.
fn is_up(flags: InterfaceFlags) -> bool {
    flags.contains(InterfaceFlags::IFF_UP)
        && flags.intersects(InterfaceFlags::IFF_RUNNING | InterfaceFlags::IFF_LOWER_UP)
}

fn mtu_of(fd: i32, name: &str) -> Option<u32> {
    // SAFETY: ifreq is made of integers, for which zero is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return None;
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    // SAFETY: SIOCGIFMTU reads the name, which ends in a zero byte, and writes the MTU into this ifreq.
    if unsafe { libc::ioctl(fd, libc::SIOCGIFMTU as _, &raw mut request) } != 0 {
        return None;
    }
    // SAFETY: the successful call above has filled this member.
    u32::try_from(unsafe { request.ifr_ifru.ifru_mtu }).ok()
}

/// The addresses to offer, best first: of interfaces that are up, IPv4 where an interface has both families, without link-local IPv6 (useless without the peer's scope); loopback only
/// when nothing else is left. `names` keeps only interfaces of these names (then loopback and bridges are as good as any).
pub fn usable(all: &[Interface], names: &[String]) -> Vec<Interface> {
    let link_local = |ip: &IpAddr| matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local());
    let mut list: Vec<Interface> = all
        .iter()
        .filter(|i| i.up && !link_local(&i.addr) && (names.is_empty() || names.contains(&i.name)))
        .cloned()
        .collect();
    // A second family on the same interface is no second path; serving both costs control messages on every datagram.
    let with_v4: Vec<String> = list.iter().filter(|i| i.addr.is_ipv4()).map(|i| i.name.clone()).collect();
    list.retain(|i| i.addr.is_ipv4() || !with_v4.contains(&i.name));
    if names.is_empty() && list.iter().any(|i| !i.loopback) {
        list.retain(|i| !i.loopback);
    }
    list.sort_by_key(Interface::rank);
    list
}

/// Largest UDP payload in an IP packet of `mtu_bytes` towards `remote`.
pub fn payload_of_mtu(mtu_bytes: u32, remote: IpAddr) -> u16 {
    let (header, most) = if remote.is_ipv4() { (28, MAX_PAYLOAD_V4) } else { (48, MAX_PAYLOAD_V6) };
    u16::try_from(mtu_bytes.saturating_sub(header)).unwrap_or(u16::MAX).min(most)
}

/// Largest UDP payload over IPv4: 65535 less the IP and UDP headers.
pub const MAX_PAYLOAD_V4: u16 = 65507;
/// Largest UDP payload over IPv6 that is also the most a super-packet may hold: the kernel counts the IP header in.
pub const MAX_PAYLOAD_V6: u16 = 65487;

/// Is it "any address" of its family?
pub fn is_any(ip: IpAddr) -> bool {
    ip == IpAddr::V4(Ipv4Addr::UNSPECIFIED) || ip.is_unspecified()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, addr: &str) -> Interface {
        Interface {
            name: name.into(),
            addr: addr.parse().expect("an address"),
            mtu_bytes: 1500,
            up: true,
            loopback: name == "lo",
            point_to_point: name.starts_with("tun"),
            local_bridge: BRIDGES.iter().any(|b| name.starts_with(b)),
        }
    }

    fn names(list: &[Interface]) -> Vec<&str> {
        list.iter().map(|i| i.name.as_str()).collect()
    }

    #[test]
    fn a_link_is_up_as_soon_as_it_has_a_carrier() {
        use InterfaceFlags as F;
        assert!(is_up(F::IFF_UP | F::IFF_LOWER_UP) && is_up(F::IFF_UP | F::IFF_RUNNING));
        assert!(!is_up(F::IFF_UP) && !is_up(F::IFF_LOWER_UP | F::IFF_RUNNING));
    }

    #[test]
    fn plain_links_come_first_and_loopback_only_alone() {
        let mut down = entry("eth9", "10.9.0.1");
        down.up = false;
        let all = [
            entry("lo", "127.0.0.1"),
            entry("docker0", "172.17.0.1"),
            entry("tun0", "10.8.0.1"),
            entry("eth0", "fe80::1"),
            entry("eth0", "10.0.0.1"),
            down,
        ];
        assert_eq!(names(&usable(&all, &[])), ["eth0", "tun0", "docker0"]);
        assert_eq!(names(&usable(&all[..1], &[])), ["lo"]);
        assert_eq!(names(&usable(&all, &["docker0".into(), "lo".into()])), ["docker0", "lo"]);
        assert!(usable(&all, &["eth9".into()]).is_empty());
    }

    #[test]
    fn the_loopback_interface_is_listed_with_its_mtu() {
        let lo = interfaces().expect("getifaddrs").into_iter().find(|i| i.loopback && i.addr.is_ipv4());
        let lo = lo.expect("an IPv4 loopback address");
        assert!(lo.mtu_bytes >= 1500 && lo.name == "lo");
    }

    #[test]
    fn payload_sizes_follow_the_headers() {
        let v4: IpAddr = "10.0.0.1".parse().expect("an address");
        let v6: IpAddr = "2001:db8::1".parse().expect("an address");
        assert_eq!(
            [payload_of_mtu(1500, v4), payload_of_mtu(1500, v6), payload_of_mtu(65536, v4), payload_of_mtu(10, v4)],
            [1472, 1452, 65507, 0]
        );
    }
}

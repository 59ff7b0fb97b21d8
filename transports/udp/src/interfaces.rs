//! The machine's network interfaces: which addresses to offer to peers, and how large a datagram
//! may be on the way to one.

use nix::net::if_::InterfaceFlags;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsRawFd;
use std::path::Path;

/// One address of one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name, for example `eth0`.
    pub name: String,
    /// The address.
    pub addr: IpAddr,
    /// How many of its leading bits all neighbours have in common; the whole address if the kernel
    /// does not tell.
    pub prefix_len: u8,
    /// MTU of the interface, bytes of an IP packet.
    pub mtu_bytes: u32,
    /// The interface is up and has a carrier.
    pub up: bool,
    /// The loopback interface.
    pub loopback: bool,
    /// A tunnel or other link without neighbours.
    pub point_to_point: bool,
    /// For containers or virtual machines on this machine, by its name or since it is a bridge that
    /// no network card belongs to: other machines do not reach it.
    pub local_bridge: bool,
}

impl Interface {
    /// Order of preference: plain links, tunnels, container bridges, loopback.
    fn rank(&self) -> u8 {
        match self {
            Interface { loopback: true, .. } => 3,
            Interface { local_bridge: true, .. } => 2,
            // Taken where nobody gave one (RFC 3927).
            Interface { addr: IpAddr::V4(v4), .. } if v4.is_link_local() => 2,
            Interface { point_to_point: true, .. } => 1,
            _ => 0,
        }
    }

    /// The network that it is on: what neighbours' addresses begin with.
    fn network(&self) -> (bool, u128) {
        let (bits, width) = match self.addr {
            IpAddr::V4(v4) => (u128::from(u32::from(v4)), 32),
            IpAddr::V6(v6) => (u128::from(v6), 128),
        };
        let rest = width - u32::from(self.prefix_len).min(width);
        (self.addr.is_ipv4(), bits.checked_shr(rest).unwrap_or(0))
    }
}

/// Name prefixes that software for containers and virtual machines gives what it makes.
const LOCAL: [&str; 16] = [
    "docker",
    "br-",
    "virbr",
    "lxcbr",
    "lxdbr",
    "incusbr",
    "cni",
    "podman",
    "flannel",
    "cali",
    "cilium",
    "weave",
    "veth",
    "vnet",
    "vboxnet",
    "nodelocaldns",
];

/// Where the kernel shows interfaces.
const SYSTEM: &str = "/sys/class/net";

/// Whether other machines are on the far side of an interface, as far as its name and `system`
/// tell.
fn is_local(system: &Path, name: &str) -> bool {
    LOCAL.iter().any(|start| name.starts_with(start)) || is_bridge_of_guests(&system.join(name))
}

/// A bridge none of whose ports is a network card, or stands on one (`folder`: what the kernel
/// shows of it).
fn is_bridge_of_guests(folder: &Path) -> bool {
    if !folder.join("bridge").is_dir() {
        return false;
    }
    let entries = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten();
    // A card has a device; a bond or VLAN has interfaces below it; ends of cables to containers and
    // virtual machines have neither.
    let leads_out = |port: &Path| {
        port.join("device").exists()
            || entries(port).any(|entry| entry.file_name().to_string_lossy().starts_with("lower_"))
    };
    let ports: Vec<_> = entries(&folder.join("brif")).map(|entry| entry.path()).collect();
    // What stands below `brif` are links of the bridge's side; the port itself is beside the
    // bridge.
    let beside = |port: &Path| folder.parent().zip(port.file_name()).map(|(all, name)| all.join(name));
    !ports.iter().filter_map(|port| beside(port)).any(|port| leads_out(&port))
}

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
        let mask = entry.netmask.and_then(|mask| {
            let v4 = mask.as_sockaddr_in().map(|v4| u32::from(v4.ip()).leading_ones());
            v4.or_else(|| mask.as_sockaddr_in6().map(|v6| u128::from(v6.ip()).leading_ones()))
        });
        out.push(Interface {
            addr,
            prefix_len: mask.and_then(|bits| u8::try_from(bits).ok()).unwrap_or(if addr.is_ipv4() { 32 } else { 128 }),
            mtu_bytes: mtu_of(probe.as_raw_fd(), &entry.interface_name).unwrap_or(1500),
            up: is_up(entry.flags),
            loopback: entry.flags.contains(InterfaceFlags::IFF_LOOPBACK),
            point_to_point: entry.flags.contains(InterfaceFlags::IFF_POINTOPOINT),
            local_bridge: is_local(Path::new(SYSTEM), &entry.interface_name),
            name: entry.interface_name,
        });
    }
    Ok(out)
}

/// Up and with a carrier. The kernel says RUNNING up to a second after the carrier is there (its
/// link watch runs that seldom), and an endpoint opened meanwhile would offer loopback for the rest
/// of its life.
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
    // SAFETY: SIOCGIFMTU reads the name, which ends in a zero byte, and writes the MTU into this
    // ifreq.
    if unsafe { libc::ioctl(fd, libc::SIOCGIFMTU as _, &raw mut request) } != 0 {
        return None;
    }
    // SAFETY: the successful call above has filled this member.
    u32::try_from(unsafe { request.ifr_ifru.ifru_mtu }).ok()
}

/// The addresses to offer, best first: of interfaces that are up, IPv4 where an interface has both
/// families, without link-local IPv6 (useless without the peer's scope); loopback only when nothing
/// else is left. `names` keeps only interfaces of these names (then loopback and bridges are as
/// good as any).
///
/// A name has room for six IPv4 addresses (`spec/protocol.md` 7), so that the first count most: of
/// several on one network the first comes where it belongs, and the others behind all of their
/// kind, for they are no other way.
pub fn usable(all: &[Interface], names: &[String]) -> Vec<Interface> {
    let link_local = |ip: &IpAddr| matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local());
    let mut list: Vec<Interface> = all
        .iter()
        .filter(|i| i.up && !link_local(&i.addr) && (names.is_empty() || names.contains(&i.name)))
        .cloned()
        .collect();
    // A second family on the same interface is no second path; serving both costs control messages
    // on every datagram.
    let with_v4: Vec<String> = list.iter().filter(|i| i.addr.is_ipv4()).map(|i| i.name.clone()).collect();
    list.retain(|i| i.addr.is_ipv4() || !with_v4.contains(&i.name));
    if names.is_empty() && list.iter().any(|i| !i.loopback) {
        list.retain(|i| !i.loopback);
    }
    let networks: Vec<_> = list.iter().map(Interface::network).collect();
    let mut seen = Vec::new();
    let again: Vec<bool> = networks
        .into_iter()
        .map(|one| {
            seen.contains(&one) || {
                seen.push(one);
                false
            }
        })
        .collect();
    let mut keyed: Vec<_> = list.into_iter().zip(again).collect();
    keyed.sort_by_key(|(one, again)| (one.rank(), *again));
    keyed.into_iter().map(|(one, _)| one).collect()
}

/// Largest UDP payload in an IP packet of `mtu_bytes` towards `remote`.
pub fn payload_of_mtu(mtu_bytes: u32, remote: IpAddr) -> u16 {
    let (header, most) = if remote.is_ipv4() { (28, MAX_PAYLOAD_V4) } else { (48, MAX_PAYLOAD_V6) };
    u16::try_from(mtu_bytes.saturating_sub(header)).unwrap_or(u16::MAX).min(most)
}

/// Largest UDP payload over IPv4: 65535 less the IP and UDP headers.
pub const MAX_PAYLOAD_V4: u16 = 65507;
/// Largest UDP payload over IPv6 that is also the most a super-packet may hold: the kernel counts
/// the IP header in.
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
            prefix_len: 24,
            mtu_bytes: 1500,
            up: true,
            loopback: name == "lo",
            point_to_point: name.starts_with("tun"),
            local_bridge: is_local(Path::new("/nowhere"), name),
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
    fn of_twenty_interfaces_the_first_six_are_of_six_networks_that_lead_somewhere() {
        let mut all = vec![entry("lo", "127.0.0.1"), entry("docker0", "172.17.0.1"), entry("br-9a", "172.18.0.1")];
        for host in 1..9 {
            all.push(entry("eth0", &format!("10.0.0.{host}")));
        }
        all.push(entry("veth7", "169.254.9.9"));
        all.push(entry("usb0", "169.254.3.1"));
        for net in 1..6 {
            all.push(entry(&format!("eth{net}"), &format!("10.0.{net}.1")));
        }
        let mut down = entry("eth9", "10.9.0.1");
        down.up = false;
        all.push(down);
        let list = usable(&all, &[]);
        assert_eq!(names(&list[..6]), ["eth0", "eth1", "eth2", "eth3", "eth4", "eth5"]);
        assert_eq!(names(&list[6..13]), ["eth0"; 7]);
        assert_eq!(names(&list[13..]), ["docker0", "br-9a", "veth7", "usb0"]);
    }

    #[test]
    fn networks_are_told_by_the_length_of_their_prefix() {
        let mut wide = entry("eth0", "10.0.0.1");
        assert_eq!(wide.network(), entry("eth1", "10.0.0.200").network());
        assert_ne!(wide.network(), entry("eth1", "10.0.1.1").network());
        assert_ne!(wide.network(), entry("eth1", "::a00:1").network());
        for length in [0, 32, 200] {
            wide.prefix_len = length;
            assert_eq!(wide.network() == entry("lo", "0.0.0.1").network(), length == 0);
        }
    }

    #[test]
    fn a_bridge_is_local_unless_a_card_belongs_to_it() {
        let dir = tempfile::tempdir().expect("a folder");
        let make = |path: &str| std::fs::create_dir_all(dir.path().join(path)).expect("made");
        for (bridge, port) in [("br0", "eth0"), ("br1", "tap0"), ("br2", "bond0")] {
            make(&format!("{bridge}/bridge"));
            make(&format!("{bridge}/brif/{port}"));
        }
        for path in ["eth0/device", "tap0", "bond0/lower_eth1", "br3/bridge"] {
            make(path);
        }
        let local = |name| is_local(dir.path(), name);
        assert_eq!(
            ["br0", "br1", "br2", "br3", "eth0", "docker0", "nowhere"].map(local),
            [false, true, false, true, false, true, false]
        );
    }

    #[test]
    fn the_loopback_interface_is_listed_with_its_mtu() {
        let lo = interfaces().expect("getifaddrs").into_iter().find(|i| i.loopback && i.addr.is_ipv4());
        let lo = lo.expect("an IPv4 loopback address");
        assert!(lo.mtu_bytes >= 1500 && lo.name == "lo" && lo.prefix_len == 8);
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

//! The network interfaces of this machine, and which of them Weir would use.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::Result;
use nix::net::if_::InterfaceFlags;
use serde::Serialize;

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its addresses, link-local ones left out.
    pub addresses: Vec<IpAddr>,
    /// Largest packet, bytes; none if the system does not tell.
    pub mtu: Option<u32>,
    /// Up and connected.
    pub up: bool,
    /// The machine's own loop.
    pub loopback: bool,
    /// Weir would use it.
    pub chosen: bool,
    /// For containers or virtual machines on this machine, as far as can be told.
    pub local: bool,
    /// The address by which peers hear of it first is among those that a name has room for.
    pub told: bool,
}

/// All interfaces with an address, by name; `only` is the user's choice (`WEIR_IFACE`).
///
/// # Errors
/// If the system does not list them.
pub fn list(only: &[String]) -> Result<Vec<Interface>> {
    let mut all: BTreeMap<String, Interface> = BTreeMap::new();
    for entry in nix::ifaddrs::getifaddrs()? {
        let name = entry.interface_name;
        let one = all.entry(name.clone()).or_insert_with(|| Interface {
            mtu: read_number(&format!("/sys/class/net/{name}/mtu")),
            // As the transport sees it: RUNNING comes up to a second after the carrier.
            up: entry.flags.contains(InterfaceFlags::IFF_UP)
                && entry.flags.intersects(InterfaceFlags::IFF_RUNNING | InterfaceFlags::IFF_LOWER_UP),
            loopback: entry.flags.contains(InterfaceFlags::IFF_LOOPBACK),
            addresses: Vec::new(),
            chosen: false,
            local: false,
            told: false,
            name,
        });
        let Some(address) = entry.address else { continue };
        if let Some(v4) = address.as_sockaddr_in() {
            one.addresses.push(v4.ip().into());
        } else if let Some(v6) = address.as_sockaddr_in6()
            && !v6.ip().is_unicast_link_local()
        {
            one.addresses.push(v6.ip().into());
        }
    }
    let mut all: Vec<Interface> = all.into_values().filter(|one| !one.addresses.is_empty()).collect();
    // The transport itself is asked.
    choose(&mut all, &weir_udp::usable(&weir_udp::interfaces()?, only));
    Ok(all)
}

/// Addresses that an endpoint's name has room for, if all are IPv4 (`spec/protocol.md` P-7.5).
pub const NAMED: usize = 6;

/// Marks those that the transport offers, best first.
fn choose(all: &mut [Interface], offered: &[weir_udp::Interface]) {
    for one in all {
        let place = offered.iter().position(|other| other.name == one.name);
        one.chosen = place.is_some();
        one.told = place.is_some_and(|place| place < NAMED);
        one.local = place.is_some_and(|place| offered[place].local_bridge);
    }
}

/// The names in `WEIR_IFACE`.
pub fn named(env: &weir_job::Env) -> Vec<String> {
    let value = env.get("FI_WEIR_IFACE").or_else(|| env.get("WEIR_IFACE"));
    let text = value.map(|v| v.to_string_lossy().into_owned()).unwrap_or_default();
    text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// The number in a one-line file of the kernel's.
pub fn read_number<T: std::str::FromStr>(path: &str) -> Option<T> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str) -> Interface {
        let name = name.to_owned();
        Interface {
            name,
            addresses: vec![],
            mtu: Some(1500),
            up: true,
            loopback: false,
            chosen: false,
            local: false,
            told: false,
        }
    }

    fn offered(name: &str, local_bridge: bool) -> weir_udp::Interface {
        weir_udp::Interface {
            name: name.into(),
            addr: [10, 0, 0, 1].into(),
            prefix_len: 24,
            mtu_bytes: 1500,
            up: true,
            loopback: false,
            point_to_point: false,
            local_bridge,
        }
    }

    #[test]
    fn what_the_transport_offers_is_marked_and_what_names_have_no_room_for() {
        let mut all: Vec<Interface> = ["a", "b", "c", "d"].map(one).into();
        let mut list = vec![offered("b", false); NAMED];
        list.extend([offered("a", false), offered("d", true)]);
        choose(&mut all, &list);
        let marks: Vec<(bool, bool, bool)> = all.iter().map(|one| (one.chosen, one.told, one.local)).collect();
        let nothing = (false, false, false);
        assert_eq!(marks, [(true, false, false), (true, true, false), nothing, (true, false, true)]);
    }

    #[test]
    fn this_machine_has_a_loop() {
        let all = list(&[]).unwrap();
        assert!(all.iter().any(|i| i.loopback && i.mtu.is_some()), "{all:?}");
        assert!(all.iter().any(|i| i.chosen && i.told), "{all:?}");
    }
}

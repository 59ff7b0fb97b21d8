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
    choose(&mut all, only);
    Ok(all)
}

/// As the provider does: the named ones; without a name all that are up, the loop only if there
/// is nothing else.
fn choose(all: &mut [Interface], only: &[String]) {
    let outside = all.iter().any(|one| one.up && !one.loopback);
    for one in all {
        one.chosen = one.up && if only.is_empty() { !one.loopback || !outside } else { only.contains(&one.name) };
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

    fn one(name: &str, up: bool, loopback: bool) -> Interface {
        Interface { name: name.into(), addresses: vec![], mtu: Some(1500), up, loopback, chosen: false }
    }

    fn chosen(mut all: Vec<Interface>, only: &[&str]) -> Vec<String> {
        choose(&mut all, &only.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        all.into_iter().filter(|i| i.chosen).map(|i| i.name).collect()
    }

    #[test]
    fn the_loop_is_the_last_resort() {
        assert_eq!(chosen(vec![one("lo", true, true), one("eth0", true, false)], &[]), ["eth0"]);
        assert_eq!(chosen(vec![one("lo", true, true), one("eth0", false, false)], &[]), ["lo"]);
    }

    #[test]
    fn a_named_interface_is_taken_alone() {
        assert_eq!(chosen(vec![one("a", true, false), one("b", true, false)], &["b"]), ["b"]);
        assert!(chosen(vec![one("a", true, false)], &["c"]).is_empty());
    }

    #[test]
    fn this_machine_has_a_loop() {
        let all = list(&[]).unwrap();
        assert!(all.iter().any(|i| i.loopback && i.mtu.is_some()), "{all:?}");
    }
}

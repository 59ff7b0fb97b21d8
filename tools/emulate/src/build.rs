//! Putting a network together: namespaces, interfaces, addresses, and the data plane's thread.

use crate::error::{Context, Result};
use crate::launch::RunDir;
use crate::link::{self, End, Mac};
use crate::model::{Fabric, PipeSpec, PortId};
use crate::namespace::{Namespace, write_sysctl};
use crate::netlink::Netlink;
use crate::network::{HostLinks, Loss, PlaneDoor};
use crate::nft;
use crate::plane::{Change, NewRate, Plane};
use crate::pool::Pool;
use crate::spec::Spec;
use crate::sys::{self, Offload, RxRing, TxBatch};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

const RING_BYTES: usize = 32 << 20;
const POOL_BYTES: usize = 512 << 20;
/// The control network's name, and that of its interfaces.
pub(crate) const CONTROL_NETWORK: &str = "ctrl";
const CONTROL_NUMBER: u8 = 0;

/// A network that is ready, but for its control socket.
pub(crate) struct Built {
    pub hosts: Vec<Arc<Namespace>>,
    pub links: Vec<HostLinks>,
    /// Absent on plain networks.
    pub plane: Option<Started>,
    /// Namespaces of bridges and of the switch, to be kept as long as the network lives.
    pub inside: Vec<Namespace>,
    pub warnings: Vec<String>,
}

/// A running data plane.
pub(crate) struct Started {
    pub door: PlaneDoor,
    pub thread: JoinHandle<()>,
    pub rates: Receiver<NewRate>,
}

/// The number of a host's interface on a network in the model.
pub(crate) fn port(spec: &Spec, network: usize, host: usize) -> PortId {
    network * spec.hosts.len() + host
}

/// The Ethernet address of a host's interface. Network 0 is the control network, others count
/// from 1.
fn mac(network: u8, host: usize) -> Mac {
    [0x02, 0x77, 0, network, 0, host as u8 + 1]
}

/// The Ethernet address of the other end of that interface, inside the switch.
fn switch_mac(network: u8, host: usize) -> Mac {
    [0x02, 0x77, 1, network, 0, host as u8 + 1]
}

/// Makes everything.
pub(crate) fn build(spec: &Spec, dir: &RunDir) -> Result<Built> {
    let mut warnings = Vec::new();
    let mut hosts = Vec::new();
    for name in &spec.hosts {
        hosts.push(Arc::new(Namespace::host(name, &dir.hosts(), &mut warnings)?));
    }
    let (bridges, switch) = (Namespace::network()?, Namespace::network()?);
    if !spec.plain {
        switch.run(|| wire_switch(spec, &hosts))??;
    } else if spec.hosts.len() == 2 {
        // Not where the caller is: in the host's own namespace only root may.
        bridges.run(|| join_two(spec, &hosts))??;
    } else {
        for (index, network) in spec.networks.iter().enumerate() {
            join_by_bridge(&bridges, &network.name, index as u8 + 1, network.mtu, &hosts)?;
        }
    }
    if spec.control {
        join_by_bridge(&bridges, CONTROL_NETWORK, CONTROL_NUMBER, 1500, &hosts)?;
    }
    let mut links = Vec::new();
    for (index, host) in hosts.iter().enumerate() {
        links.push(host.run(|| set_up_host(spec, index, &mut warnings))??);
    }
    if spec.plain || spec.control {
        bridges.run(wait_for_bridges)?.context(|| "wait for the bridges")?;
    }
    for (kernel, name) in links.iter_mut().zip(&spec.hosts) {
        for interface in &kernel.interfaces {
            link::wait_running(&mut kernel.route, *interface)
                .context(|| format!("wait for the interfaces of {name}"))?;
        }
    }
    let plane = if spec.plain { None } else { Some(start_plane(spec, &switch, &mut warnings)?) };
    Ok(Built { hosts, links, plane, inside: vec![bridges, switch], warnings })
}

/// Two hosts, each network one veth pair between them.
fn join_two(spec: &Spec, hosts: &[Arc<Namespace>]) -> Result<()> {
    let mut netlink = Netlink::route().context(|| "open netlink")?;
    for (index, network) in spec.networks.iter().enumerate() {
        let end = |host: usize| End {
            name: &network.name,
            mac: mac(index as u8 + 1, host),
            namespace: Some(hosts[host].net().as_fd()),
        };
        link::make_veth(&mut netlink, &end(0), &end(1), network.mtu).context(|| format!("join {}", network.name))?;
    }
    Ok(())
}

/// A kernel bridge in the namespace `place`, with a veth pair to each host.
fn join_by_bridge(place: &Namespace, name: &str, number: u8, mtu: u32, hosts: &[Arc<Namespace>]) -> Result<()> {
    let bridge = format!("b-{name}");
    place
        .run(|| -> std::io::Result<()> {
            let mut netlink = Netlink::route()?;
            link::make_bridge(&mut netlink, &bridge, mtu)?;
            for (host, namespace) in hosts.iter().enumerate() {
                let local = format!("b{number}p{}", host + 1);
                let here = End { name: &local, mac: switch_mac(number, host), namespace: None };
                let there = End { name, mac: mac(number, host), namespace: Some(namespace.net().as_fd()) };
                link::make_veth(&mut netlink, &here, &there, mtu)?;
                link::set_master(&mut netlink, &local, &bridge)?;
                link::set_up(&mut netlink, &local)?;
            }
            link::set_up(&mut netlink, &bridge)
        })?
        .context(|| format!("make the bridge of {name}"))
}

/// In the bridges' namespace: waits until every interface runs and every port forwards.
fn wait_for_bridges() -> std::io::Result<()> {
    let mut netlink = Netlink::route()?;
    for interface in nix::net::if_::if_nameindex()?.iter() {
        if interface.name().to_bytes().starts_with(b"b") {
            link::wait_running(&mut netlink, interface.index())?;
        }
    }
    Ok(())
}

fn switch_interface(network: usize, host: usize) -> String {
    format!("n{}h{}", network + 1, host + 1)
}

/// In the switch's namespace: a veth pair to each host for each network.
fn wire_switch(spec: &Spec, hosts: &[Arc<Namespace>]) -> Result<()> {
    let mut netlink = Netlink::route().context(|| "open netlink")?;
    for (index, network) in spec.networks.iter().enumerate() {
        let number = index as u8 + 1;
        for (host, namespace) in hosts.iter().enumerate() {
            let local = switch_interface(index, host);
            let here = End { name: &local, mac: switch_mac(number, host), namespace: None };
            let there = End { name: &network.name, mac: mac(number, host), namespace: Some(namespace.net().as_fd()) };
            link::make_veth(&mut netlink, &here, &there, network.mtu)
                .and_then(|()| link::set_up(&mut netlink, &local))
                .context(|| format!("join {} to {}", spec.hosts[host], network.name))?;
        }
    }
    Ok(())
}

/// In a host's namespace: offloads, addresses, neighbours, shapers, loss.
fn set_up_host(spec: &Spec, host: usize, warnings: &mut Vec<String>) -> Result<HostLinks> {
    let name = &spec.hosts[host];
    let mut route = Netlink::route().context(|| "open netlink")?;
    link::set_up(&mut route, "lo").context(|| "set lo up")?;
    let mut interfaces = Vec::new();
    for (index, network) in spec.networks.iter().enumerate() {
        set_up_interface(spec, &mut route, index, host).context(|| format!("set up {} of {name}", network.name))?;
        let interface = link::index(&network.name).context(|| format!("find {}", network.name))?;
        interfaces.push(interface);
        let (up, _) = spec.pipes(index, host)?;
        if up.rate_bytes_per_s > 0
            && let Err(e) = link::shape(&mut route, interface, &up, network.mtu)
        {
            warnings.push(format!(
                "{name}: the kernel does not shape {} ({e}); senders see losses in the uplink's queue instead",
                network.name
            ));
        }
    }
    if spec.control {
        set_up_control(spec, &mut route, host).context(|| format!("set up the control network of {name}"))?;
    }
    for (key, value) in &spec.sysctl {
        write_sysctl(key, value).context(|| format!("{name}: set {key} to {value}"))?;
    }
    let loss = match spec.nft_loss {
        None => Loss::None,
        Some(part) => lose(spec, name, &interfaces, part)?,
    };
    Ok(HostLinks { route, loss, interfaces })
}

/// Loses a part of what a host receives.
fn lose(spec: &Spec, name: &str, interfaces: &[u32], part: f64) -> Result<Loss> {
    if let Ok(programs) = interfaces.iter().map(|interface| weir_xdp::Loss::new(*interface, part)).collect() {
        return Ok(Loss::Programs(programs));
    }
    let mut socket = Netlink::netfilter().context(|| "open netlink for nftables")?;
    for network in &spec.networks {
        nft::drop_received(&mut socket, &network.name, part)
            .context(|| format!("{name}: set up random loss by nftables (does the kernel have nf_tables, numgen?)"))?;
    }
    Ok(Loss::Nftables(socket))
}

fn set_up_interface(spec: &Spec, route: &mut Netlink, network: usize, host: usize) -> std::io::Result<()> {
    let name = &spec.networks[network].name;
    if !spec.offload() {
        let control = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
        // Checksums must be complete in every packet that user space carries or damages, and every
        // packet must be a packet. Segmentation in software above the interface (GSO) stays on: it
        // saves the sender's time and is finished before the interface sees anything.
        for offload in [Offload::Gro, Offload::Tso, Offload::TxChecksum] {
            sys::set_offload(control.as_fd(), name, offload, false)?;
        }
    }
    link::set_up(route, name)?;
    link::add_address(route, name, IpAddr::V4(spec.ipv4(network, host)), link::PREFIX_BITS)?;
    if let Some(v6) = spec.ipv6(network, host) {
        link::add_address(route, name, IpAddr::V6(v6), 64)?;
    }
    let mut neighbours = Vec::new();
    for other in (0..spec.hosts.len()).filter(|other| *other != host) {
        let address = mac(network as u8 + 1, other);
        neighbours.push((IpAddr::V4(spec.ipv4(network, other)), address));
        neighbours.extend(spec.ipv6(network, other).map(|v6| (IpAddr::V6(v6), address)));
    }
    link::add_neighbours(route, name, &neighbours)
}

fn set_up_control(spec: &Spec, route: &mut Netlink, host: usize) -> std::io::Result<()> {
    link::set_up(route, CONTROL_NETWORK)?;
    link::add_address(route, CONTROL_NETWORK, IpAddr::V4(spec.control_ipv4(host)), 24)?;
    let others = (0..spec.hosts.len()).filter(|other| *other != host);
    let neighbours: Vec<_> =
        others.map(|other| (IpAddr::V4(spec.control_ipv4(other)), mac(CONTROL_NUMBER, other))).collect();
    link::add_neighbours(route, CONTROL_NETWORK, &neighbours)
}

/// Starts the data plane's thread inside the switch's namespace.
fn start_plane(spec: &Spec, switch: &Namespace, warnings: &mut Vec<String>) -> Result<Started> {
    let (commands, requests) = channel();
    let (rates, new_rates) = channel();
    let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
    let wake = Arc::new(EventFd::from_flags(flags).context(|| "make an eventfd")?);
    let mut fabric = Fabric::new();
    let (mut addresses, mut most_bytes, mut names) = (BTreeMap::new(), Vec::new(), Vec::new());
    for (network, spec_network) in spec.networks.iter().enumerate() {
        if spec_network.bus {
            if spec_network.collisions {
                fabric.make_colliding_bus(network);
            } else {
                fabric.make_bus(network);
            }
        }
        for host in 0..spec.hosts.len() {
            let (up, down): (PipeSpec, PipeSpec) = spec.pipes(network, host)?;
            let number = fabric.add_port(network, up, down, spec.seed);
            addresses.insert(mac(network as u8 + 1, host), number);
            most_bytes.push(spec_network.mtu + 14);
            names.push(switch_interface(network, host));
        }
    }
    let mut changes = Vec::new();
    for event in &spec.events {
        let network = spec.network_index(&event.network)?;
        let port = port(spec, network, spec.host_index(&event.host)?);
        for (direction, action) in spec.directed(network, event.direction, event.action.clone()) {
            changes.push((event.at_ns, Change { port, direction, action }));
        }
    }
    let packet_bytes = most_bytes.iter().max().map_or(0, |most| *most as usize);
    // Made on a thread inside the namespace; sockets keep to the namespace they were made in.
    let (interfaces, ring, tx) = switch
        .run(|| -> std::io::Result<_> {
            let interfaces: std::io::Result<Vec<i32>> = names.iter().map(|n| Ok(link::index(n)? as i32)).collect();
            Ok((interfaces?, RxRing::open(packet_bytes, RING_BYTES)?, TxBatch::open()?))
        })?
        .context(|| "open the packet sockets")?;
    let plane = Plane {
        fabric,
        interfaces,
        addresses,
        most_bytes,
        schedule: changes.into_iter().collect(),
        commands: requests,
        wake: Arc::clone(&wake),
        rates,
        ring,
        tx,
        pool: Pool::new(packet_bytes, POOL_BYTES),
        transit_ns: 0,
        napped: false,
        wake_ns: 0,
    };
    let realtime = spec.realtime;
    let (ready, priority) = channel();
    let thread = std::thread::Builder::new().name("emulate-plane".into()).spawn(move || {
        let _ = nix::sys::prctl::set_timerslack(1);
        let _ = ready.send(if realtime { sys::real_time() } else { Ok(()) });
        plane.run();
    });
    let thread = thread.context(|| "start the data plane")?;
    if let Ok(Err(e)) = priority.recv() {
        warnings.push(format!("no real-time priority ({e}): timing suffers while other programs use all cores"));
    }
    Ok(Started { door: PlaneDoor { commands: Mutex::new(commands), wake }, thread, rates: new_rates })
}

//! A way past the kernel's UDP beside the socket, where it is wanted and can be had (spec/xdp.md).

use crate::config::{EngineConfig, XdpUse};
use crate::device::Device;
use std::os::fd::BorrowedFd;
use weir_udp::UdpTransport;
use weir_xdp::helper::NoHelp;
use weir_xdp::{Ask, Broker, Holder, Layout, MOST, Mode, Pair, Port, XdpCounters, helper, interface_of};

/// The socket, with XDP beside it if there is any; else, where it was asked for, why not.
pub fn beside(udp: UdpTransport, cfg: &EngineConfig) -> (Pair<UdpTransport>, Option<String>) {
    let mut pair = Pair::alone(udp);
    let why = match cfg.xdp {
        XdpUse::Off => None,
        // The usual host: nobody is asked what its interfaces are.
        XdpUse::Auto if !cfg.xdp_socket.exists() => None,
        XdpUse::Auto | XdpUse::On => add(&mut pair, cfg).err().filter(|_| cfg.xdp == XdpUse::On),
    };
    (pair, why.map(|why| why.text))
}

/// Why there is no XDP.
#[derive(Clone, Debug)]
pub struct WhyNot {
    /// One line.
    pub text: String,
    /// No helper listens, and it is not to be had without.
    pub nobody_listens: bool,
    /// The helper does not answer, whatever interface it is asked for.
    pub stuck: bool,
}

impl From<String> for WhyNot {
    fn from(text: String) -> WhyNot {
        WhyNot { text, nobody_listens: false, stuck: false }
    }
}

/// Adds XDP on the first interface of those whose addresses are served at which it can be had.
fn add(pair: &mut Pair<UdpTransport>, cfg: &EngineConfig) -> Result<(), WhyNot> {
    let udp = pair.device();
    let mut tried = Vec::new();
    let mut first_why = None;
    for ip in udp.local_addrs().iter().map(std::net::SocketAddr::ip).filter(|ip| !ip.is_loopback()).collect::<Vec<_>>()
    {
        let interface = match interface_of(ip) {
            Ok(Some(interface)) => interface,
            Ok(None) => continue,
            Err(e) => return Err(format!("the interface of {ip} cannot be asked for: {e}").into()),
        };
        if tried.contains(&interface) {
            continue;
        }
        tried.push(interface);
        match add_on(pair, cfg, interface) {
            Ok(()) => return Ok(()),
            Err(why) if why.stuck => return Err(why),
            Err(why) => first_why = first_why.or(Some(why)),
        }
    }
    Err(first_why.unwrap_or_else(|| "only loopback is served".to_owned().into()))
}

fn add_on(pair: &mut Pair<UdpTransport>, cfg: &EngineConfig, interface: u32) -> Result<(), WhyNot> {
    let udp = pair.device();
    let port =
        Port { port: udp.local_addrs().first().map_or(0, std::net::SocketAddr::port), tells_local: udp.tells_local() };
    let ask = Ask { interface, most: MOST };
    let [socket, _] = udp.fds();
    let (bound, holder) = match helper::ask(&cfg.xdp_socket, socket, ask) {
        Ok((connection, bound)) => (bound, Holder::Helper(connection)),
        Err(nobody @ NoHelp::Nobody { .. }) if cfg.xdp == XdpUse::On => {
            // SAFETY: the first socket of a device that lives through this.
            let udp = unsafe { BorrowedFd::borrow_raw(socket) }.try_clone_to_owned().map_err(|e| e.to_string())?;
            let mut broker = Broker::new(Mode::Ring);
            let (_, bound) = broker.grant(udp, ask).map_err(|own| WhyNot {
                text: format!("{nobody}; without it: {own}"),
                nobody_listens: true,
                stuck: false,
            })?;
            (bound, Holder::Own(Box::new(broker)))
        }
        Err(why) => {
            let (nobody_listens, stuck) = (
                matches!(why, NoHelp::Nobody { .. }),
                matches!(why, NoHelp::Unreachable { .. } | NoHelp::Silent { .. }),
            );
            return Err(WhyNot { text: why.to_string(), nobody_listens, stuck });
        }
    };
    pair.add(bound, holder, port).map_err(|e| format!("the socket cannot be used: {e}").into())
}

/// Where XDP is, for people.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Place {
    /// The interface.
    pub interface: String,
    /// Its queue; of a ring, which serves all queues, its number.
    pub queue: u32,
    /// `ring`: received from a ring buffer, sent by UDP. Else AF_XDP: `generic`, `native`, or
    /// `zero-copy` where the frames are the network card's.
    pub mode: &'static str,
    /// Whether it is in use still.
    pub in_use: bool,
}

/// What there is to tell of it, if there is or was any.
pub fn told(device: &Device) -> Option<(XdpCounters, Place)> {
    let pair = device.device().device();
    let (layout, link) = pair.place()?;
    let mode = mode_of(&layout);
    let place = Place { interface: link.name, queue: layout.queue, mode, in_use: pair.has_xdp() };
    Some((pair.counters()?, place))
}

/// What `weir doctor` says: at which interface and queue an endpoint of this process would have XDP
/// with these settings.
///
/// # Errors
/// Why it would not.
pub fn would_have(cfg: &EngineConfig) -> Result<String, WhyNot> {
    let udp = crate::socket::socket_alone(cfg).map_err(|e| e.to_string())?;
    let mut pair = Pair::alone(udp);
    add(&mut pair, cfg)?;
    let (layout, link) = pair.place().ok_or_else(|| "it went away at once".to_owned())?;
    Ok(format!("{} queue {}, {}", link.name, layout.queue, mode_of(&layout)))
}

fn mode_of(layout: &Layout) -> &'static str {
    match (layout.ring, layout.native, layout.zero_copy) {
        (true, ..) => "ring",
        (_, _, true) => "zero-copy",
        (_, true, false) => "native",
        (_, false, false) => "generic",
    }
}

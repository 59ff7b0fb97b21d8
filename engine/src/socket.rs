//! The sockets of an endpoint: which are opened, and whose fault it is if they cannot be.

use crate::bulk_connections::BulkConnections;
use crate::config::EngineConfig;
use crate::{EngineError, policy};
use weir_udp::{UdpConfig, UdpTransport};

/// The datagram socket, and the listener for bulk connections at the same port. Of a port that the
/// system chooses, or of a range, the other half may be taken: then another is tried. Where a
/// firewall or TCP itself stands against it there are no bulk connections.
pub fn sockets(cfg: &EngineConfig) -> std::io::Result<(UdpTransport, Option<BulkConnections>)> {
    const TRIES: u16 = 8;
    let wanted = policy::takes_bulk(cfg);
    let mut udp = UdpTransport::bind(&udp_config(cfg))?;
    if !wanted {
        return Ok((udp, None));
    }
    let mut bulk_connections = BulkConnections::open(udp.local_addrs());
    let mut ports = udp_config(cfg);
    for _ in 1..TRIES {
        let bound = udp.local_addrs().first().map_or(0, std::net::SocketAddr::port);
        let next = ports.port.checked_add(ports.port_span - 1).filter(|last| bound < *last);
        if bulk_connections.is_ok() || cfg.bind.is_some() || (cfg.port != 0 && next.is_none()) {
            break;
        }
        if let (Some(last), true) = (next, cfg.port != 0) {
            (ports.port, ports.port_span) = (bound + 1, last - bound);
        }
        // One without bulk connections is better than none.
        let Ok(other) = UdpTransport::bind(&ports) else { break };
        let there = BulkConnections::open(other.local_addrs());
        (udp, bulk_connections) = (other, there);
    }
    Ok((udp, bulk_connections.ok()))
}

/// The datagram socket alone, to try what can be had beside it.
pub fn socket_alone(cfg: &EngineConfig) -> std::io::Result<UdpTransport> {
    UdpTransport::bind(&udp_config(cfg))
}

/// An interface or address that is not on this host is the fault of the setting that names it.
pub fn no_socket(cfg: &EngineConfig, source: std::io::Error) -> EngineError {
    let named =
        if !cfg.addrs.is_empty() { Some("WEIR_ADDR") } else { (!cfg.ifaces.is_empty()).then_some("WEIR_IFACE") };
    // The transport looked and did not find it; what the system itself refuses is of another kind.
    let absent = source.kind() == std::io::ErrorKind::NotFound;
    match named {
        Some(variable) if absent && cfg.bind.is_none() => {
            EngineError::Config { variable: variable.into(), problem: source.to_string() }
        }
        _ => EngineError::Io { doing: "opening the UDP socket".into(), source },
    }
}

fn udp_config(cfg: &EngineConfig) -> UdpConfig {
    UdpConfig {
        addrs: cfg.addrs.clone(),
        ifaces: cfg.ifaces.clone(),
        bind: cfg.bind,
        everywhere: cfg.everywhere,
        port: cfg.port,
        port_span: cfg.port_span.max(1),
        rcvbuf_bytes: cfg.rcvbuf_bytes,
        sndbuf_bytes: cfg.rcvbuf_bytes,
        offload: cfg.offload,
        ecn: cfg.ecn.is_on(),
        ..UdpConfig::default()
    }
}

//! Opening a socket: which addresses, which family, which options.

use crate::config::UdpConfig;
use crate::interfaces::{self, Interface};
use crate::sys;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};

/// A socket, bound and set up.
pub struct Opened {
    pub socket: Socket,
    /// What it serves, best first.
    pub local: Vec<SocketAddr>,
    /// It is an IPv6 socket (perhaps with IPv4 addresses mapped).
    pub v6: bool,
    /// It serves IPv4 addresses.
    pub v4: bool,
    /// It serves several addresses, so that source addresses must be told apart.
    pub multi: bool,
    /// Receive buffer got, bytes of payload.
    pub rcvbuf_bytes: u64,
    /// Largest payload that any served interface carries.
    pub max_datagram: u16,
}

/// Opens and binds.
pub fn open(cfg: &UdpConfig) -> io::Result<Opened> {
    let all = interfaces::interfaces()?;
    let chosen = choose(cfg, &all)?;
    let v6_wanted = cfg.everywhere || chosen.iter().any(|i| i.addr.is_ipv6());
    let v4_wanted = cfg.everywhere || chosen.iter().any(|i| i.addr.is_ipv4());
    let (socket, v6) = match make(v6_wanted, v4_wanted) {
        Ok(socket) => (socket, v6_wanted),
        // No IPv6 in this kernel, yet an IPv6 address was asked for next to IPv4 ones: serve those.
        Err(_) if v6_wanted && v4_wanted => (make(false, true)?, false),
        Err(e) => return Err(e),
    };
    let served: Vec<&Interface> = chosen.iter().filter(|i| v6 || i.addr.is_ipv4()).collect();
    let multi = served.len() > 1 || cfg.everywhere;
    let ip = match served.as_slice() {
        [only] if !cfg.everywhere => only.addr,
        _ if v6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        _ => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    };
    let port = bind(&socket, ip, cfg)?;
    set_options(&socket, cfg, v6, v4_wanted, multi)?;
    Ok(Opened {
        local: served.iter().map(|i| SocketAddr::new(i.addr, port)).collect(),
        max_datagram: served.iter().map(|i| interfaces::payload_of_mtu(i.mtu_bytes, i.addr)).max().unwrap_or(1472),
        rcvbuf_bytes: set_buffers(&socket, cfg)?,
        v6,
        v4: v4_wanted,
        multi,
        socket,
    })
}

fn error(kind: io::ErrorKind, text: String) -> io::Error {
    io::Error::new(kind, text)
}

/// The addresses to serve, with what is known of their interfaces.
fn choose(cfg: &UdpConfig, all: &[Interface]) -> io::Result<Vec<Interface>> {
    let wanted: Vec<IpAddr> = cfg.bind.map_or_else(|| cfg.addrs.clone(), |b| vec![b.ip()]);
    if wanted.is_empty() {
        let list = interfaces::usable(all, &cfg.ifaces);
        if list.is_empty() {
            let text = if cfg.ifaces.is_empty() {
                "no network interface is up with an IP address, not even loopback".to_owned()
            } else {
                format!(
                    "no interface named {} is up with an IP address; there are: {}",
                    cfg.ifaces.join(" or ").escape_debug(),
                    present(all)
                )
            };
            return Err(error(io::ErrorKind::NotFound, text));
        }
        return Ok(list);
    }
    let mut list = Vec::new();
    for ip in wanted {
        let found: Vec<Interface> = if interfaces::is_any(ip) {
            interfaces::usable(all, &[]).into_iter().filter(|i| i.addr.is_ipv4() == ip.is_ipv4()).collect()
        } else if let Some(i) = all.iter().find(|i| i.addr == ip) {
            vec![i.clone()]
        } else if let Some(lo) = all.iter().find(|i| i.loopback && i.addr.is_ipv4() && ip.is_loopback() && ip.is_ipv4())
        {
            // All of 127.0.0.0/8 is local though only 127.0.0.1 is listed.
            vec![Interface { addr: ip, ..lo.clone() }]
        } else {
            Vec::new()
        };
        if found.is_empty() {
            let text = format!("no interface has the address {ip}; there are: {}", present(all));
            return Err(error(io::ErrorKind::NotFound, text));
        }
        list.extend(found);
    }
    Ok(list)
}

fn present(all: &[Interface]) -> String {
    all.iter().map(|i| format!("{} ({})", i.addr, i.name)).collect::<Vec<_>>().join(", ")
}

/// A socket not yet bound.
pub fn make(v6: bool, v4: bool) -> io::Result<Socket> {
    let domain = if v6 { Domain::IPV6 } else { Domain::IPV4 };
    let socket = Socket::new(domain, Type::DGRAM.nonblocking().cloexec(), Some(Protocol::UDP))?;
    if v6 {
        socket.set_only_v6(!v4)?;
    }
    Ok(socket)
}

/// Binds to the first free port asked for; returns it.
fn bind(socket: &Socket, ip: IpAddr, cfg: &UdpConfig) -> io::Result<u16> {
    let first = cfg.bind.map_or(cfg.port, |b| b.port());
    let span = if first == 0 || cfg.bind.is_some() { 1 } else { cfg.port_span.max(1) };
    let last = first.saturating_add(span - 1);
    for port in first..=last {
        match socket.bind(&SocketAddr::new(ip, port).into()) {
            Ok(()) => {
                let bound = socket.local_addr()?.as_socket();
                return bound
                    .map(|a| a.port())
                    .ok_or_else(|| error(io::ErrorKind::Unsupported, "not an IP socket".into()));
            }
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => {}
            Err(e) => {
                return Err(error(e.kind(), format!("binding UDP {ip} port {port}: {e}")));
            }
        }
    }
    let which = if first == last {
        format!("port {first} on {ip} is")
    } else {
        format!("ports {first} to {last} on {ip} are all")
    };
    Err(error(
        io::ErrorKind::AddrInUse,
        format!(
            "UDP {which} in use by another program, or by another rank of this job: WEIR_PORT takes a range, such as 45000-45100, for several ranks on a machine; 0 is any free port (a BMI server's URL names its port: name another)"
        ),
    ))
}

/// What the first socket and the connected one have in common, but for telling addresses of ours
/// apart, which only one that serves several needs.
pub fn set_options(socket: &Socket, cfg: &UdpConfig, v6: bool, v4: bool, multi: bool) -> io::Result<()> {
    let fd = socket.as_raw_fd();
    let ip = |name, value| sys::set_option(fd, libc::IPPROTO_IP, name, value);
    let ip6 = |name, value| sys::set_option(fd, libc::IPPROTO_IPV6, name, value);
    // Don't fragment, and let no cached path MTU refuse a datagram: the protocol probes for itself
    // (RFC 8899). Without the option (unusual kernels) datagrams may be fragmented, which only
    // costs speed.
    if v4 {
        let _ = ip(libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE);
        let _ = ip(libc::IP_RECVERR, 1);
    }
    if v6 {
        let _ = ip6(libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE);
        let _ = ip6(libc::IPV6_RECVERR, 1);
    }
    if multi && v6 {
        ip6(libc::IPV6_RECVPKTINFO, 1)?;
    } else if multi {
        ip(libc::IP_PKTINFO, 1)?;
    }
    if cfg.ecn {
        const ECT_0: i32 = 2;
        if v4 {
            ip(libc::IP_TOS, ECT_0)?;
            ip(libc::IP_RECVTOS, 1)?;
        }
        if v6 {
            ip6(libc::IPV6_TCLASS, ECT_0)?;
            ip6(libc::IPV6_RECVTCLASS, 1)?;
        }
    }
    if cfg.busy_poll_us > 0 {
        // Needs CAP_NET_ADMIN above the system's default; without it the socket works all the same.
        let _ = sys::set_option(
            fd,
            libc::SOL_SOCKET,
            libc::SO_BUSY_POLL,
            i32::try_from(cfg.busy_poll_us).unwrap_or(i32::MAX),
        );
    }
    Ok(())
}

/// Sizes a send buffer, as [`set_buffers`] does.
pub fn set_send_buffer(fd: RawFd, bytes: usize) -> io::Result<()> {
    set_buffer(fd, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, bytes)
}

fn set_buffer(fd: RawFd, force: i32, plain: i32, bytes: usize) -> io::Result<()> {
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX / 2).min(i32::MAX / 2);
    if sys::set_option(fd, libc::SOL_SOCKET, force, bytes).is_err() {
        sys::set_option(fd, libc::SOL_SOCKET, plain, bytes)?;
    }
    Ok(())
}

/// Sizes the buffers, beyond the system's limit when privileged. Returns the receive buffer got, in
/// bytes of payload: the kernel doubles what is asked for, to pay for its own bookkeeping
/// (socket(7)), and reports the double.
pub fn set_buffers(socket: &Socket, cfg: &UdpConfig) -> io::Result<u64> {
    let fd = socket.as_raw_fd();
    set_buffer(fd, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, cfg.rcvbuf_bytes)?;
    set_send_buffer(fd, cfg.sndbuf_bytes)?;
    let got = sys::get_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUF)?;
    Ok(u64::try_from(got).unwrap_or(0) / 2)
}

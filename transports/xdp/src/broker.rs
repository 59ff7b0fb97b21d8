//! Who attaches the program and makes sockets, for itself or for others: the rights of spec/xdp.md
//! 6 are needed here alone.

use crate::netlink::Netlink;
use crate::program::{Program, QUEUES_MAX, Ring};
use crate::routes::addresses_of;
use crate::sys;
use crate::words::{Ask, Refused};
use crate::xsk::{Bound, Layout};
use nix::sys::socket::{SockaddrLike, SockaddrStorage, getsockname};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

/// Longest datagram that goes by an AF_XDP socket: longer ones are parts of long messages nearly
/// always, which come joined, and an XDP program cannot tell those from one long datagram. Senders
/// keep shorter ones apart (`APART_BYTES` of `transports/udp/src/tx.rs`).
const MOST_BY_SOCKET: u16 = 1200;
/// Addresses of one rank's port that are steered at the most.
const ADDRESSES_MAX: usize = 16;

/// How long a queue that nobody of ours holds is waited for: the kernel sets it free in a work item
/// of its own.
const RELEASE_TRIES: u32 = 20;
const RELEASE_PAUSE: Duration = Duration::from_millis(1);

/// What takes packets, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Mode {
    /// A program at the network stack's entry (tc) copies them into ring buffers, one for each
    /// rank; they are sent by UDP. Needs Linux 6.6.
    #[default]
    Ring,
    /// AF_XDP sockets, with the program in the network stack: works with every driver.
    Generic,
    /// The same, with the program in the driver.
    Native,
}

/// Why there is no socket, and what the system said, where it did.
#[derive(Debug, thiserror::Error)]
#[error("{why}{}", .cause.as_ref().map(|c| format!(" ({c})")).unwrap_or_default())]
pub struct NoSocket {
    /// The reason.
    pub why: Refused,
    /// What the system said.
    pub cause: Option<String>,
}

impl From<Refused> for NoSocket {
    fn from(why: Refused) -> NoSocket {
        NoSocket { why, cause: None }
    }
}

fn no(why: Refused) -> impl FnOnce(io::Error) -> NoSocket {
    move |e| NoSocket { why, cause: Some(e.to_string()) }
}

/// What one rank was given.
#[derive(Debug)]
struct Granted {
    interface: u32,
    queue: u32,
    steered: Vec<SocketAddr>,
}

/// The program on one interface.
#[derive(Debug)]
struct Attached {
    program: Program,
    /// While this lives the program is attached.
    link: OwnedFd,
}

/// Programs on interfaces, and who was given sockets. Dropped, the kernel detaches all.
#[derive(Debug, Default)]
pub struct Broker {
    mode: Mode,
    /// The program may be given frames in several pieces.
    frags: bool,
    attached: HashMap<u32, Attached>,
    granted: HashMap<u64, Granted>,
    next: u64,
}

/// The name of what was granted, to give it back by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grant(u64);

impl Broker {
    /// Attaches nothing yet.
    ///
    /// In generic mode the program asks for frames in one piece: for one that takes them in several
    /// the kernel copies each packet into pages of its own, which costs every short one 0.1 to 0.4
    /// us, and TCP is no faster for it (docs/lab/2026-11-25-xdp.md). In native mode it takes
    /// several: drivers attach no other where packets are long.
    #[must_use]
    pub fn new(mode: Mode) -> Broker {
        Broker { mode, frags: mode == Mode::Native, ..Broker::default() }
    }

    /// The other choice of pieces, for measurements.
    #[must_use]
    pub fn with_frags(mut self, frags: bool) -> Broker {
        self.frags = frags;
        self
    }

    /// Makes a socket for the owner of `udp`, and steers the packets of that socket's port to it.
    /// What the kernel sets free when the socket is closed may be named here for a while;
    /// [`Broker::release`] forgets it.
    ///
    /// # Errors
    /// Why not.
    pub fn grant(&mut self, udp: &OwnedFd, ask: Ask) -> Result<(Grant, Bound), NoSocket> {
        let steered = steered_by(udp, ask.interface)?;
        if self.granted.values().any(|g| g.steered.iter().any(|a| steered.contains(a))) {
            return Err(Refused::Taken.into());
        }
        self.attach(ask.interface)?;
        let bound = if self.mode == Mode::Ring { self.ring(ask)? } else { self.bind(ask)? };
        let queue = bound.layout.queue;
        let Some(attached) = self.attached.get(&ask.interface) else { return Err(Refused::System.into()) };
        if self.mode != Mode::Ring {
            attached.program.set_socket(queue, &bound.socket).map_err(no(Refused::System))?;
        }
        for to in &steered {
            if let Err(e) = attached.program.steer(*to, queue, bound.layout.most) {
                steered.iter().for_each(|to| attached.program.steer_no_more(*to));
                attached.program.remove_ring(queue);
                return Err(no(Refused::Full)(e));
            }
        }
        self.next += 1;
        self.granted.insert(self.next, Granted { interface: ask.interface, queue, steered });
        Ok((Grant(self.next), bound))
    }

    /// A ring buffer at the first place that is free.
    fn ring(&self, ask: Ask) -> Result<Bound, NoSocket> {
        let held = |place| self.granted.values().any(|g| g.interface == ask.interface && g.queue == place);
        let place = (0..QUEUES_MAX).find(|place| !held(*place)).ok_or(Refused::Full)?;
        let ring = Ring::new().map_err(no(Refused::System))?;
        let Some(attached) = self.attached.get(&ask.interface) else { return Err(Refused::System.into()) };
        attached.program.set_ring(place, &ring).map_err(no(Refused::System))?;
        let layout = Layout {
            interface: ask.interface,
            queue: place,
            rx_frames: 0,
            tx_frames: 0,
            frame_bytes: 0,
            native: false,
            zero_copy: false,
            ring: true,
            most: ask.most,
        };
        Ok(Bound { socket: ring.ring, memory: ring.bell, layout })
    }

    /// The first queue that is free. The kernel lets go of a dead rank's queue a moment after its
    /// socket: that is waited for.
    fn bind(&self, ask: Ask) -> Result<Bound, NoSocket> {
        for _ in 0..RELEASE_TRIES {
            let (bound, busy) = self.bind_now(ask)?;
            match bound {
                Some(bound) => return Ok(bound),
                None if busy => std::thread::sleep(RELEASE_PAUSE),
                None => break,
            }
        }
        Err(Refused::Queues.into())
    }

    /// The same, without waiting; and whether a queue is taken that none of ours holds.
    fn bind_now(&self, ask: Ask) -> Result<(Option<Bound>, bool), NoSocket> {
        let most = ask.most.min(MOST_BY_SOCKET);
        let native = self.mode == Mode::Native;
        let held = |queue| self.granted.values().any(|g| g.interface == ask.interface && g.queue == queue);
        let mut busy = false;
        for queue in (0..QUEUES_MAX).filter(|q| !held(*q)) {
            match Bound::new(ask.interface, queue, native, most) {
                Ok(bound) => return Ok((Some(bound), busy)),
                Err(e) if e.raw_os_error() == Some(libc::EBUSY) => busy = true,
                // No such queue, if there was one before.
                Err(e) if e.raw_os_error() == Some(libc::EINVAL) && queue > 0 => break,
                Err(e) => return Err(no(Refused::System)(e)),
            }
        }
        Ok((None, busy))
    }

    fn attach(&mut self, interface: u32) -> Result<(), NoSocket> {
        if !self.attached.contains_key(&interface) {
            let loaded = if self.mode == Mode::Ring { Program::load_for_rings() } else { Program::load(self.frags) };
            let program = loaded.map_err(no(Refused::Attach))?;
            let link = program.attach(interface, self.mode == Mode::Native).map_err(no(Refused::Attach))?;
            self.attached.insert(interface, Attached { program, link });
        }
        Ok(())
    }

    /// Steers no more to what was granted.
    pub fn release(&mut self, grant: Grant) {
        if let Some(gone) = self.granted.remove(&grant.0)
            && let Some(attached) = self.attached.get(&gone.interface)
        {
            gone.steered.iter().for_each(|to| attached.program.steer_no_more(*to));
            attached.program.remove_ring(gone.queue);
        }
    }

    /// Steers no more what was sent to an address that its interface has no longer: it may be
    /// another host's now, whose packets pass here.
    pub fn drop_absent(&mut self) {
        for granted in self.granted.values_mut() {
            let Ok(present) = addresses_of(granted.interface) else { continue };
            let gone = granted.steered.extract_if(.., |a| !present.contains(&a.ip()));
            for to in gone {
                if let Some(attached) = self.attached.get(&granted.interface) {
                    attached.program.steer_no_more(to);
                }
            }
        }
    }

    /// How many hold sockets.
    #[must_use]
    pub fn holders(&self) -> usize {
        self.granted.len()
    }

    /// The interfaces that the program is attached to and nobody uses.
    pub fn idle(&self) -> impl Iterator<Item = u32> {
        let used = |index: &u32| self.granted.values().any(|g| g.interface == *index);
        self.attached.keys().copied().filter(move |index| !used(index))
    }

    /// Detaches from an interface.
    pub fn detach(&mut self, interface: u32) {
        self.attached.remove(&interface);
    }

    /// Detaches from an interface as another tool would, keeping all else: for tests.
    ///
    /// # Errors
    /// The kernel's.
    pub fn detach_unasked(&self, interface: u32) -> io::Result<()> {
        self.attached.get(&interface).map_or(Ok(()), |a| sys::detach(&a.link))
    }
}

/// Whether packets of this socket can be steered at all: it is a UDP socket of this process's
/// network namespace.
///
/// # Errors
/// That it is not.
pub fn may_be_steered(udp: &OwnedFd) -> Result<(), NoSocket> {
    let here = sys::netlink(0).and_then(|s| sys::namespace_of(&s)).map_err(no(Refused::System))?;
    let is_udp = sys::kind_of(udp).is_ok_and(|k| k == (libc::SOCK_DGRAM, libc::IPPROTO_UDP));
    if is_udp && sys::namespace_of(udp).ok() == Some(here) { Ok(()) } else { Err(Refused::Socket.into()) }
}

/// The addresses and port that are the right of whoever holds this socket, on this interface.
fn steered_by(udp: &OwnedFd, interface: u32) -> Result<Vec<SocketAddr>, NoSocket> {
    may_be_steered(udp)?;
    let bound = bound_to(udp).filter(|a| a.port() != 0).ok_or(Refused::Unbound)?;
    let mut addresses = addresses_of(interface).map_err(no(Refused::Interface))?;
    if bound.ip().is_unspecified() {
        // An IPv6 socket may take both families; one that does not gets no IPv4 packet that was its
        // own before, and none is on its way to another's socket.
        addresses.retain(|ip| bound.is_ipv6() || ip.is_ipv4());
        if bound.is_ipv6() && is_six_only(udp) {
            addresses.retain(IpAddr::is_ipv6);
        }
        addresses.truncate(ADDRESSES_MAX);
    } else {
        addresses.retain(|ip| *ip == bound.ip());
    }
    if addresses.is_empty() {
        return Err(Refused::Interface.into());
    }
    Ok(addresses.into_iter().map(|ip| SocketAddr::new(ip, bound.port())).collect())
}

/// Where a socket is bound; mapped IPv4 addresses become plain ones.
fn bound_to(udp: &OwnedFd) -> Option<SocketAddr> {
    let name: SockaddrStorage = getsockname(udp.as_raw_fd()).ok()?;
    match name.family()? {
        nix::sys::socket::AddressFamily::Inet => {
            let a = name.as_sockaddr_in()?;
            Some(SocketAddr::new(IpAddr::V4(a.ip()), a.port()))
        }
        nix::sys::socket::AddressFamily::Inet6 => {
            let a = name.as_sockaddr_in6()?;
            Some(SocketAddr::new(IpAddr::V6(a.ip()).to_canonical(), a.port()))
        }
        _ => None,
    }
}

fn is_six_only(udp: &OwnedFd) -> bool {
    nix::sys::socket::getsockopt(udp, nix::sys::socket::sockopt::Ipv6V6Only).unwrap_or(true)
}

/// The interface that has this address.
///
/// # Errors
/// The kernel's.
pub fn interface_of(ip: IpAddr) -> io::Result<Option<u32>> {
    Ok(Netlink::open()?.addresses()?.into_iter().find(|(_, own)| *own == ip).map(|(index, _)| index))
}

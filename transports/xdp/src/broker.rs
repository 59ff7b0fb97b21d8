//! Who attaches the program and makes sockets, for itself or for others: the rights of spec/xdp.md
//! 6 are needed here alone.

use crate::netlink::{Changes, Netlink};
use crate::program::{Program, QUEUES_MAX, Ring};
use crate::sys;
use crate::words::{Ask, Refused};
use crate::xsk::{Bound, Layout};
use nix::sys::socket::{SockaddrLike, SockaddrStorage, getsockname};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
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
    most: u16,
    /// By right of which its packets are steered. Held, so that the port cannot become another's.
    udp: OwnedFd,
    /// Where that was bound when it was last looked at, and to which interface.
    bound: Option<(SocketAddr, u32)>,
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
    /// Places on interfaces with rings that nobody holds any more. They are used first.
    stale: Vec<(u32, u32)>,
    kernel: Option<Kernel>,
}

/// What is asked about addresses, and what tells of new ones: of the network of the first who
/// asked.
#[derive(Debug)]
struct Kernel {
    changes: Changes,
    netlink: Netlink,
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
    pub fn grant(&mut self, udp: OwnedFd, ask: Ask) -> Result<(Grant, Bound), NoSocket> {
        self.grant_all(vec![(udp, ask)]).pop().unwrap_or_else(|| Err(Refused::System.into()))
    }

    /// The same of several at once: the kernel takes some 10 ms to put rings into a program's
    /// table, and no more for many than for one. As many answers, in order.
    pub fn grant_all(&mut self, asks: Vec<(OwnedFd, Ask)>) -> Vec<Result<(Grant, Bound), NoSocket>> {
        let mut all: Vec<_> = asks.into_iter().map(|(udp, ask)| self.prepare(udp, ask)).collect();
        self.enter_rings(&mut all);
        for one in &mut all {
            if let Ok((grant, _)) = one
                && let Err(no) = self.steer(*grant)
            {
                self.release(*grant);
                *one = Err(no);
            }
        }
        all
    }

    /// A place and a socket, that nothing is steered to yet.
    fn prepare(&mut self, udp: OwnedFd, ask: Ask) -> Result<(Grant, Bound), NoSocket> {
        let (bound, steered) = self.right_of(&udp, ask.interface)?;
        if self.granted.values().any(|g| g.steered.iter().any(|a| steered.contains(a))) {
            return Err(Refused::Taken.into());
        }
        self.attach(ask.interface)?;
        let socket = if self.mode == Mode::Ring { self.ring(ask)? } else { self.bind(ask)? };
        let Layout { queue, most, .. } = socket.layout;
        let Some(attached) = self.attached.get(&ask.interface) else { return Err(Refused::System.into()) };
        if self.mode != Mode::Ring {
            attached.program.set_socket(queue, &socket.socket).map_err(no(Refused::System))?;
        }
        self.next += 1;
        let granted = Granted { interface: ask.interface, queue, most, udp, bound: Some(bound), steered };
        self.granted.insert(self.next, granted);
        Ok((Grant(self.next), socket))
    }

    /// Puts new rings into the tables of their interfaces' programs.
    fn enter_rings(&mut self, all: &mut [Result<(Grant, Bound), NoSocket>]) {
        if self.mode != Mode::Ring {
            return;
        }
        let mut interfaces: Vec<u32> = all.iter().flatten().map(|(_, bound)| bound.layout.interface).collect();
        interfaces.sort_unstable();
        interfaces.dedup();
        for interface in interfaces {
            let here = |one: &Result<(Grant, Bound), NoSocket>| {
                one.as_ref().is_ok_and(|(_, bound)| bound.layout.interface == interface)
            };
            let rings = all.iter().filter(|one| here(one)).flatten();
            let rings: Vec<_> = rings.map(|(_, b)| (b.layout.queue, &b.socket, &b.memory)).collect();
            let entered = self.attached.get(&interface).map(|attached| attached.program.set_rings(&rings));
            let Some(Err(e)) = entered else { continue };
            for one in all.iter_mut().filter(|one| here(one)) {
                let why = NoSocket { why: Refused::System, cause: Some(e.to_string()) };
                if let Ok((grant, _)) = std::mem::replace(one, Err(why)) {
                    self.release(grant);
                }
            }
        }
    }

    /// Steers to what was granted.
    fn steer(&self, grant: Grant) -> Result<(), NoSocket> {
        let Some(g) = self.granted.get(&grant.0) else { return Err(Refused::System.into()) };
        let Some(attached) = self.attached.get(&g.interface) else { return Err(Refused::System.into()) };
        g.steered.iter().try_for_each(|to| attached.program.steer(*to, g.queue, g.most)).map_err(no(Refused::Full))
    }

    /// A ring buffer for the first place that is free.
    fn ring(&mut self, ask: Ask) -> Result<Bound, NoSocket> {
        let ring = Ring::new().map_err(no(Refused::System))?;
        let place = self.place(ask.interface).ok_or(Refused::Full)?;
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

    /// A place that nobody holds, best one whose ring is to go.
    fn place(&mut self, interface: u32) -> Option<u32> {
        if let Some(at) = self.stale.iter().position(|(of, _)| *of == interface) {
            return Some(self.stale.swap_remove(at).1);
        }
        let held = |place| self.granted.values().any(|g| g.interface == interface && g.queue == place);
        (0..QUEUES_MAX).find(|place| !held(*place))
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

    /// Loads the program of this mode, attached to nothing.
    ///
    /// # Errors
    /// The kernel's.
    pub fn load(&self) -> io::Result<Program> {
        if self.mode == Mode::Ring { Program::load_for_rings() } else { Program::load(self.frags) }
    }

    /// Attaches the program, unless it is there. Where another tool has detached it, or the
    /// interface went and came, it is attached anew with all that it steers.
    fn attach(&mut self, interface: u32) -> Result<(), NoSocket> {
        let native = self.mode == Mode::Native;
        if let Some(attached) = self.attached.get_mut(&interface) {
            // (A kernel that does not tell is believed to have it still.)
            if sys::link_interface(&attached.link).unwrap_or(interface) != interface {
                attached.link = attached.program.attach(interface, native).map_err(no(Refused::Attach))?;
            }
            return Ok(());
        }
        let program = self.load().map_err(no(Refused::Attach))?;
        let link = program.attach(interface, native).map_err(no(Refused::Attach))?;
        self.attached.insert(interface, Attached { program, link });
        Ok(())
    }

    /// Steers no more to what was granted, and lets go of the UDP socket.
    pub fn release(&mut self, grant: Grant) {
        let Some(gone) = self.granted.remove(&grant.0) else { return };
        if let Some(attached) = self.attached.get(&gone.interface) {
            gone.steered.iter().for_each(|to| attached.program.steer_no_more(*to));
            if self.mode == Mode::Ring {
                self.stale.push((gone.interface, gone.queue));
            }
        }
    }

    /// Whether there are rings of those who are gone.
    #[must_use]
    pub fn is_untidy(&self) -> bool {
        !self.stale.is_empty()
    }

    /// Frees one of them: the kernel takes some 10 ms for each.
    pub fn tidy(&mut self) {
        if let Some((interface, place)) = self.stale.pop()
            && let Some(attached) = self.attached.get(&interface)
        {
            attached.program.remove_ring(place);
        }
    }

    /// What says that addresses have changed, by being readable, once somebody was granted
    /// something.
    #[must_use]
    pub fn changes(&self) -> Option<BorrowedFd<'_>> {
        self.kernel.as_ref().map(|k| k.changes.socket().as_fd())
    }

    /// Looks whether addresses have come or gone, or a UDP socket is not bound any more as it was:
    /// what is steered is what would come to that socket.
    pub fn refresh(&mut self) {
        let Some(kernel) = &mut self.kernel else { return };
        let moved = |g: &Granted| bound_to(&g.udp) != g.bound;
        let addresses = kernel.changes.any(0);
        let concerned = |g: &&mut Granted| addresses || moved(g);
        if !addresses && !self.granted.values().any(moved) {
            return;
        }
        // (Not to be had: nothing is known better than it was.)
        let Ok(present) = kernel.netlink.addresses() else { return };
        let mut taken: Vec<(u32, SocketAddr)> = Vec::new();
        for g in self.granted.values() {
            taken.extend(g.steered.iter().map(|a| (g.interface, *a)));
        }
        for g in self.granted.values_mut().filter(concerned) {
            let Some(attached) = self.attached.get(&g.interface) else { continue };
            let (bound, wanted) = match rights(&g.udp, g.interface, &present) {
                Ok((bound, wanted)) => (Some(bound), wanted),
                Err(_) => (bound_to(&g.udp), Vec::new()),
            };
            g.bound = bound;
            for to in g.steered.extract_if(.., |a| !wanted.contains(a)) {
                attached.program.steer_no_more(to);
            }
            for to in wanted {
                // What another held when this began is his.
                if !taken.contains(&(g.interface, to)) && attached.program.steer(to, g.queue, g.most).is_ok() {
                    taken.push((g.interface, to));
                    g.steered.push(to);
                }
            }
        }
    }

    /// What the holder of this socket has a right to on this interface, and where it is bound.
    fn right_of(&mut self, udp: &OwnedFd, interface: u32) -> Result<Rights, NoSocket> {
        may_be_steered(udp)?;
        if self.kernel.is_none() {
            let opened = Changes::of_addresses().and_then(|changes| Ok(Kernel { changes, netlink: Netlink::open()? }));
            self.kernel = Some(opened.map_err(no(Refused::System))?);
        }
        let Some(kernel) = &mut self.kernel else { return Err(Refused::System.into()) };
        let present = kernel.netlink.addresses().map_err(no(Refused::Interface))?;
        rights(udp, interface, &present)
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
        self.stale.retain(|(of, _)| *of != interface);
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

/// Where a socket is bound, and to which interface; the addresses and port whose packets come to
/// it.
type Rights = ((SocketAddr, u32), Vec<SocketAddr>);

/// What comes to this socket by this interface.
fn rights(udp: &OwnedFd, interface: u32, present: &[(u32, IpAddr)]) -> Result<Rights, NoSocket> {
    let (bound, device) = bound_to(udp).filter(|(a, _)| a.port() != 0).ok_or(Refused::Unbound)?;
    // One that is bound to another interface gets nothing from this one; that port may be another's
    // here.
    if device != 0 && device != interface {
        return Err(Refused::Socket.into());
    }
    let is_local = |ip: &IpAddr| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    let here = present.iter().filter(|(index, ip)| *index == interface && !is_local(ip));
    let mut addresses: Vec<IpAddr> = here.map(|(_, ip)| *ip).collect();
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
    Ok(((bound, device), addresses.into_iter().map(|ip| SocketAddr::new(ip, bound.port())).collect()))
}

/// Where a socket is bound, and to which interface (0: to none); mapped IPv4 addresses become plain
/// ones.
fn bound_to(udp: &OwnedFd) -> Option<(SocketAddr, u32)> {
    let name: SockaddrStorage = getsockname(udp.as_raw_fd()).ok()?;
    let address = match name.family()? {
        nix::sys::socket::AddressFamily::Inet => {
            let a = name.as_sockaddr_in()?;
            SocketAddr::new(IpAddr::V4(a.ip()), a.port())
        }
        nix::sys::socket::AddressFamily::Inet6 => {
            let a = name.as_sockaddr_in6()?;
            SocketAddr::new(IpAddr::V6(a.ip()).to_canonical(), a.port())
        }
        _ => return None,
    };
    Some((address, sys::bound_device(udp).ok()?))
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

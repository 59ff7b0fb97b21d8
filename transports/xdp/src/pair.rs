//! A device and, beside it, XDP: either may carry any datagram (spec/xdp.md 1).
//!
//! Without XDP each call costs one look whether there is any.

use crate::broker::Broker;
use crate::buffer::Buffer;
use crate::counters::XdpCounters;
use crate::frame;
use crate::helper::Hold;
use crate::netlink::{Link, Netlink};
use crate::program::Ring;
use crate::ring::Broken;
use crate::routes::{Kernel, Routes};
use crate::xsk::{Bound, Frame, Layout, Xsk};
use std::ffi::c_int;
use std::io;
use std::net::SocketAddr;
use std::ops::Deref;
use std::os::fd::{AsRawFd, OwnedFd};
use weir_net::{Datagrams, Route, RxInfo, TimeNs, WAKE_SOURCES};

/// Times of spec/xdp.md 8.
const LIVE_NS: TimeNs = 1_000_000;
const CHECK_NS: TimeNs = 100_000_000;
const REST_NS: TimeNs = 100_000_000;

/// Frames read at one look.
const BATCH: u32 = 64;
/// Datagrams that wait for the end of their batch, to go by XDP if no long one comes. More of them
/// are a message's parts, which the socket sends together.
const WAITING_MAX: usize = 4;
/// While the ring is in use, which it is until so long after its last frame, the socket is looked
/// at once in so many looks: such a look is a system call, and a frame that comes meanwhile waits
/// for it.
const RING_LIVE_NS: TimeNs = 200_000;
const SOCKET_EVERY_BUSY: u32 = 32;
/// Else once in so many.
const SOCKET_EVERY: u32 = 2;
/// Who has not looked for so long may have been woken by either.
const AWAY_NS: TimeNs = 20_000;

/// What keeps XDP alive: while this lives the program is attached and steers here.
pub enum Holder {
    /// What the helper gave.
    Helper(Hold),
    /// This process has attached the program itself.
    Own(Box<Broker>),
}

/// Where the batch now being pushed goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Batch {
    /// By XDP, as far as it has come.
    Undecided,
    Socket,
}

/// What packets are received from.
#[allow(
    clippy::large_enum_variant,
    reason = "there is one in an endpoint, behind a pointer, and each packet passes it"
)]
enum Source {
    Xsk(Xsk),
    Buffer(Buffer),
}

/// What a look at it found: how far to read.
#[derive(Clone, Copy)]
struct Look {
    any: bool,
    to: u64,
}

impl Source {
    #[inline]
    fn look(&mut self) -> Result<Look, Broken> {
        match self {
            Source::Xsk(xsk) => xsk.waiting().map(|n| Look { any: n > 0, to: u64::from(n.min(BATCH)) }),
            Source::Buffer(buffer) => {
                buffer.awake();
                Ok(Look { any: buffer.has_any(), to: buffer.end() })
            }
        }
    }

    fn fd(&self) -> c_int {
        match self {
            Source::Xsk(xsk) => xsk.fd(),
            Source::Buffer(buffer) => buffer.fd(),
        }
    }

    fn end(self) -> io::Result<OwnedFd> {
        match self {
            Source::Xsk(xsk) => xsk.end(),
            Source::Buffer(buffer) => buffer.end_use(),
        }
    }
}

/// What is to be read first, since the ring was nearly full.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Overdue {
    Nothing,
    /// The ring up to here; it was read so far at the last look.
    Ring {
        end: u64,
        read: u64,
    },
    /// The socket, until it is empty.
    Socket,
}

/// XDP in use.
struct Fast {
    source: Source,
    /// Only where something is sent by an AF_XDP socket.
    routes: Option<Routes<Kernel>>,
    layout: Layout,
    link: Link,
    holder: Holder,
    port: u16,
    /// Whether the owner is told which of our addresses a datagram came to.
    tells_local: bool,
    most: usize,
    batch: Batch,
    waiting: Vec<(Route, Frame, usize, usize)>,
    looks: u32,
    overdue: Overdue,
    looked_ns: TimeNs,
    socket_heard_ns: TimeNs,
    ring_heard_ns: TimeNs,
    /// Nothing is sent by XDP before.
    rest_until_ns: TimeNs,
    check_ns: TimeNs,
    counters: XdpCounters,
}

/// What became of XDP.
enum State {
    Off,
    On(Box<Fast>),
    /// The descriptor's number, never readable, and what was counted.
    Ended(OwnedFd, XdpCounters, Box<(Layout, Link)>),
}

/// Two ways for datagrams: a device `D`, and XDP while there is some.
pub struct Pair<D> {
    device: D,
    state: State,
}

/// What is to be known of the endpoint to be helped.
#[derive(Clone, Copy, Debug)]
pub struct Port {
    /// Its UDP port.
    pub port: u16,
    /// The device tells which of our addresses a datagram came to.
    pub tells_local: bool,
}

impl<D: Datagrams<Error = io::Error>> Pair<D> {
    /// The device alone.
    pub fn alone(device: D) -> Pair<D> {
        Pair { device, state: State::Off }
    }

    /// Takes XDP into use beside the device: a bound socket, and what keeps it steered to.
    ///
    /// # Errors
    /// The socket is not as it is said to be, or the system refuses memory or descriptors. The
    /// device goes on alone.
    pub fn add(&mut self, bound: Bound, holder: Holder, of: Port) -> io::Result<()> {
        let interface = bound.layout.interface;
        let most = usize::from(bound.layout.most);
        let layout = bound.layout;
        let (source, routes) = if layout.ring {
            let Bound { socket: ring, memory: bell, .. } = bound;
            (Source::Buffer(Buffer::open(Ring { ring, bell })?), None)
        } else {
            let routes = Routes::new(Kernel::new(interface, of.port)?);
            (Source::Xsk(Xsk::open(bound)?), Some(routes))
        };
        let fast = Fast {
            source,
            routes,
            layout,
            link: Netlink::open()?.link(interface)?,
            holder,
            port: of.port,
            tells_local: of.tells_local,
            most,
            batch: Batch::Undecided,
            waiting: Vec::with_capacity(WAITING_MAX),
            looks: 0,
            overdue: Overdue::Nothing,
            looked_ns: 0,
            socket_heard_ns: 0,
            ring_heard_ns: 0,
            rest_until_ns: 0,
            check_ns: 0,
            counters: XdpCounters::default(),
        };
        self.state = State::On(Box::new(fast));
        Ok(())
    }

    /// The device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Whether there is XDP now.
    #[must_use]
    pub fn has_xdp(&self) -> bool {
        matches!(self.state, State::On(_))
    }

    /// What XDP has done, if there is or was any.
    #[must_use]
    pub fn counters(&self) -> Option<XdpCounters> {
        match &self.state {
            State::Off => None,
            State::Ended(_, counters, _) => Some(*counters),
            State::On(fast) => Some(fast.told()),
        }
    }

    /// Where it is or was: socket and interface.
    #[must_use]
    pub fn place(&self) -> Option<(Layout, Link)> {
        match &self.state {
            State::Off => None,
            State::Ended(_, _, place) => Some((**place).clone()),
            State::On(fast) => Some((fast.layout, fast.link.clone())),
        }
    }

    /// The rights of this process, if it attached the program itself: for tests.
    #[must_use]
    pub fn broker(&self) -> Option<&Broker> {
        match &self.state {
            State::On(fast) => match &fast.holder {
                Holder::Own(broker) => Some(broker),
                Holder::Helper(_) => None,
            },
            _ => None,
        }
    }

    /// XDP is over. What waited goes by the socket.
    #[cold]
    fn end(&mut self, now_ns: TimeNs) {
        let State::On(mut fast) = std::mem::replace(&mut self.state, State::Off) else { return };
        fast.give_to(&mut self.device, now_ns);
        fast.counters.ended = 1;
        let counters = fast.told();
        let place = Box::new((fast.layout, fast.link.clone()));
        // Out of descriptors: the number is closed, and who waits for it is not woken by it. (The
        // watchdog looks all the same.)
        if let Ok(number) = fast.source.end() {
            self.state = State::Ended(number, counters, place);
        }
    }
}

impl Fast {
    fn told(&self) -> XdpCounters {
        let (route_lookups, route_changes) = self.routes.as_ref().map_or((0, 0), |r| (r.lookups, r.changes));
        XdpCounters { route_lookups, route_changes, ..self.counters }
    }

    /// Whether anything is sent this way.
    #[inline]
    fn sends(&self) -> bool {
        self.routes.is_some()
    }

    /// Reads what a look found.
    #[inline]
    fn receive(&mut self, look: Look, mut deliver: impl FnMut(&RxInfo, &mut [u8])) -> Result<usize, Broken> {
        let (port, tells_local, interface) = (self.port, self.tells_local, self.layout.interface);
        let counters = &mut self.counters;
        let mut n = 0;
        let take = |bytes: &mut [u8]| {
            let Some(got) = frame::read(bytes).filter(|got| got.own.port() == port) else {
                counters.rx_malformed += 1;
                return;
            };
            let remote = match got.remote {
                SocketAddr::V6(mut v6) if v6.ip().is_unicast_link_local() => {
                    v6.set_scope_id(interface);
                    SocketAddr::V6(v6)
                }
                other => other,
            };
            let local = tells_local.then(|| got.own.ip());
            deliver(&RxInfo { remote, local, ecn: got.ecn, fresh: n == 0 }, &mut bytes[got.payload]);
            n += 1;
        };
        let read = match &mut self.source {
            Source::Xsk(xsk) => {
                xsk.receive(look.to as u32, take);
                Ok(())
            }
            Source::Buffer(buffer) => buffer.receive(look.to, BATCH, take),
        };
        counters.rx_datagrams += n as u64;
        counters.rx_batches += 1;
        read.map(|()| n)
    }

    /// Of a ring that was nearly full all that was there is read before the socket: what the socket
    /// has may have found no room there, and came later. Then the socket is read until it is empty,
    /// or brings nothing for `LIVE`, before that can be so again. True: the socket waits; `look`
    /// goes no further than what was there.
    #[inline]
    fn is_overdue(&mut self, now_ns: TimeNs, look: &mut Look) -> bool {
        let Source::Buffer(buffer) = &self.source else { return false };
        let at = buffer.position();
        self.overdue = match self.overdue {
            // (A record whose writer lost its core holds up those behind it.)
            Overdue::Ring { end, read } if at < end && at != read => Overdue::Ring { end, read: at },
            Overdue::Ring { .. } => Overdue::Socket,
            Overdue::Socket if self.is_socket_live(now_ns) => Overdue::Socket,
            _ if buffer.is_nearly_full(look.to) => Overdue::Ring { end: look.to, read: at },
            _ => Overdue::Nothing,
        };
        let Overdue::Ring { end, .. } = self.overdue else { return false };
        look.to = end;
        true
    }

    /// Whether the socket is to be looked at this time, when something or nothing waits in the
    /// ring.
    #[inline]
    fn is_sockets_turn(&mut self, now_ns: TimeNs, waiting: bool) -> bool {
        self.looks = self.looks.wrapping_add(1);
        let away = now_ns.saturating_sub(self.looked_ns) > AWAY_NS;
        self.looked_ns = now_ns;
        if waiting {
            self.ring_heard_ns = now_ns;
        }
        let is_ring_live = now_ns.saturating_sub(self.ring_heard_ns) < RING_LIVE_NS;
        let every = if is_ring_live { SOCKET_EVERY_BUSY } else { SOCKET_EVERY };
        let is_overdue = self.overdue == Overdue::Socket;
        away || is_overdue || self.looks.is_multiple_of(every) || self.is_socket_live(now_ns)
    }

    #[inline]
    fn is_socket_live(&self, now_ns: TimeNs) -> bool {
        now_ns.saturating_sub(self.socket_heard_ns) < LIVE_NS
    }

    /// Writes a datagram into a frame, if it may go by XDP; the frame is to be sent by
    /// [`Fast::send`].
    #[inline]
    fn write<P: Deref<Target = [u8]>>(
        &mut self,
        now_ns: TimeNs,
        route: Route,
        first: &[u8],
        rest: &[P],
    ) -> Result<Option<(Frame, usize, usize)>, Broken> {
        let len = first.len() + rest.iter().map(|p| p.len()).sum::<usize>();
        if len > self.most || now_ns < self.rest_until_ns {
            return Ok(None);
        }
        let (Source::Xsk(xsk), Some(routes)) = (&mut self.source, &mut self.routes) else { return Ok(None) };
        let Some(template) = routes.find(now_ns, route, len) else {
            self.counters.tx_by_socket += 1;
            return Ok(None);
        };
        let Some(frame) = xsk.take_free()? else {
            self.counters.tx_no_frame += 1;
            return Ok(None);
        };
        let head = template.head_bytes();
        match template.write(xsk.bytes(frame), first, rest) {
            Some(end) => Ok(Some((frame, head, end))),
            None => {
                xsk.put_back(frame);
                Ok(None)
            }
        }
    }

    /// Has the kernel send what is in the ring.
    #[inline]
    fn kick(&mut self, now_ns: TimeNs) -> Result<(), Broken> {
        let Source::Xsk(xsk) = &mut self.source else { return Ok(()) };
        self.counters.tx_calls += 1;
        match xsk.kick() {
            Ok(()) => Ok(()),
            // The interface is down; it may come up again.
            Err(libc::ENETDOWN) => {
                self.counters.tx_refused += 1;
                self.rest_until_ns = now_ns + REST_NS;
                Ok(())
            }
            Err(_) => Err(Broken),
        }
    }

    /// What waits for the end of its batch goes by the other device, in order.
    #[cold]
    fn give_to<D: Datagrams>(&mut self, device: &mut D, now_ns: TimeNs) {
        let (Source::Xsk(xsk), Some(routes)) = (&mut self.source, &mut self.routes) else { return };
        for (route, frame, head, end) in self.waiting.drain(..) {
            routes.went_by_socket(now_ns, route);
            device.push::<&[u8]>(now_ns, route, &xsk.bytes(frame)[head..end], &[]);
            xsk.put_back(frame);
        }
    }

    /// What waits for the end of its batch leaves.
    #[inline]
    fn send_waiting(&mut self, now_ns: TimeNs) -> Result<(), Broken> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        self.counters.tx_datagrams += self.waiting.len() as u64;
        if let Source::Xsk(xsk) = &mut self.source {
            self.waiting.drain(..).for_each(|(_, frame, _, end)| xsk.send(frame, end));
        }
        self.kick(now_ns)
    }

    /// Looked at now and then: whether there is still somebody who keeps this way, and what was
    /// left in the ring.
    #[cold]
    fn check(&mut self, now_ns: TimeNs) -> Result<(), Broken> {
        self.check_ns = now_ns + CHECK_NS;
        match &mut self.holder {
            Holder::Helper(hold) if hold.is_over() => {
                // Nothing more comes, but what lies in the ring is good.
                let has_more = matches!(&self.source, Source::Buffer(buffer) if buffer.has_any());
                self.check_ns = now_ns;
                return if has_more { Ok(()) } else { Err(Broken) };
            }
            Holder::Helper(_) => {}
            Holder::Own(broker) => broker.refresh(),
        }
        let left = match &mut self.source {
            Source::Xsk(xsk) => xsk.is_sending(),
            Source::Buffer(_) => false,
        };
        if left && now_ns >= self.rest_until_ns { self.kick(now_ns) } else { Ok(()) }
    }
}

impl<D: Datagrams<Error = io::Error>> Datagrams for Pair<D> {
    type Error = io::Error;

    #[inline]
    fn recv(
        &mut self,
        now_ns: TimeNs,
        batches: usize,
        mut deliver: impl FnMut(&RxInfo, &mut [u8]),
    ) -> io::Result<usize> {
        let State::On(fast) = &mut self.state else { return self.device.recv(now_ns, batches, deliver) };
        if now_ns >= fast.check_ns && fast.check(now_ns).is_err() {
            self.end(now_ns);
            return self.device.recv(now_ns, batches, deliver);
        }
        let Ok(mut look) = fast.source.look() else {
            self.end(now_ns);
            return self.device.recv(now_ns, batches, deliver);
        };
        let mut total = 0;
        if !fast.is_overdue(now_ns, &mut look) && fast.is_sockets_turn(now_ns, look.any) {
            total = self.device.recv(now_ns, batches, &mut deliver)?;
            if total > 0 {
                fast.socket_heard_ns = now_ns;
                fast.counters.rx_by_socket += total as u64;
            } else {
                fast.overdue = Overdue::Nothing;
            }
        }
        if look.any {
            let device = &mut self.device;
            let read = fast.receive(look, |info, bytes| {
                device.heard(info.remote, info.local);
                deliver(info, bytes);
            });
            match read {
                Ok(n) => total += n,
                Err(Broken) => self.end(now_ns),
            }
        }
        Ok(total)
    }

    #[inline]
    fn push<P: Deref<Target = [u8]>>(&mut self, now_ns: TimeNs, route: Route, head: &[u8], payload: &[P]) {
        let fast = match &mut self.state {
            State::On(fast) if fast.sends() => fast,
            _ => return self.device.push(now_ns, route, head, payload),
        };
        if fast.batch == Batch::Undecided && fast.waiting.len() < WAITING_MAX && self.device.blocked_at().is_none() {
            match fast.write(now_ns, route, head, payload) {
                Ok(Some((frame, begin, end))) => return fast.waiting.push((route, frame, begin, end)),
                Ok(None) => {}
                Err(Broken) => {
                    self.end(now_ns);
                    return self.device.push(now_ns, route, head, payload);
                }
            }
        }
        if !fast.waiting.is_empty() {
            fast.give_to(&mut self.device, now_ns);
        }
        fast.batch = Batch::Socket;
        if let Some(routes) = &mut fast.routes {
            routes.went_by_socket(now_ns, route);
        }
        self.device.push(now_ns, route, head, payload);
    }

    #[inline]
    fn send_now(&mut self, now_ns: TimeNs, route: Route, datagram: &[u8]) {
        let fast = match &mut self.state {
            State::On(fast) if fast.sends() => fast,
            _ => return self.device.send_now(now_ns, route, datagram),
        };
        if fast.batch == Batch::Undecided && fast.waiting.is_empty() && self.device.blocked_at().is_none() {
            let sent = match fast.write::<&[u8]>(now_ns, route, datagram, &[]) {
                Ok(None) => return self.device.send_now(now_ns, route, datagram),
                Ok(Some(written)) => {
                    fast.waiting.push((route, written.0, written.1, written.2));
                    fast.send_waiting(now_ns)
                }
                Err(Broken) => {
                    self.end(now_ns);
                    return self.device.send_now(now_ns, route, datagram);
                }
            };
            if sent.is_err() {
                // (This one is lost with the ring.)
                self.end(now_ns);
            }
            return;
        }
        self.push::<&[u8]>(now_ns, route, datagram, &[]);
        self.flush(now_ns);
    }

    #[inline]
    fn flush(&mut self, now_ns: TimeNs) {
        if let State::On(fast) = &mut self.state {
            let sent = fast.send_waiting(now_ns);
            fast.batch = Batch::Undecided;
            if sent.is_err() {
                self.end(now_ns);
            }
        }
        self.device.flush(now_ns);
    }

    #[inline]
    fn blocked_at(&self) -> Option<c_int> {
        self.device.blocked_at()
    }

    fn next_due_ns(&self) -> Option<TimeNs> {
        self.device.next_due_ns()
    }

    fn next_leaving_ns(&self) -> Option<TimeNs> {
        self.device.next_leaving_ns()
    }

    fn wake_sources(&self) -> [c_int; WAKE_SOURCES] {
        let mut all = self.device.wake_sources();
        let own = match &self.state {
            State::Off => -1,
            State::On(fast) => fast.source.fd(),
            State::Ended(number, ..) => number.as_raw_fd(),
        };
        if let Some(free) = all.iter_mut().find(|fd| **fd < 0).filter(|_| own >= 0) {
            *free = own;
        }
        all
    }

    fn set_backlog(&mut self, bytes: Option<u64>) {
        // A ring's room comes on top.
        self.device.set_backlog(bytes);
    }

    fn prepare_sleep(&mut self) -> bool {
        let ready = match &mut self.state {
            State::On(fast) => match &mut fast.source {
                Source::Buffer(buffer) => buffer.prepare_sleep(),
                Source::Xsk(_) => true,
            },
            _ => true,
        };
        ready && self.device.prepare_sleep()
    }

    fn local_addrs(&self) -> &[SocketAddr] {
        self.device.local_addrs()
    }

    fn max_datagram(&self) -> u16 {
        self.device.max_datagram()
    }

    fn rx_buffer_bytes(&self) -> u64 {
        self.device.rx_buffer_bytes()
    }

    #[inline]
    fn take_refused(&mut self, tell: impl FnMut(SocketAddr)) {
        self.device.take_refused(tell);
    }
}

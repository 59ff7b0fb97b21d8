//! Which datagrams may go by XDP, and with which headers: routes and neighbours as the kernel has
//! them, kept current (spec/xdp.md 4).

use crate::frame::Template;
use crate::netlink::{Changes, Link, Netlink};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use weir_net::{Route, TimeNs};

/// Times and bounds of spec/xdp.md 8.
pub const EVENTS_NS: TimeNs = 10_000_000;
const CONFIRM_NS: TimeNs = 1_000_000_000;
const RETRY_NS: TimeNs = 1_000_000;
pub const STICKY_NS: TimeNs = 50_000;
const ROUTES_MAX: usize = 4096;

/// What is known of one route.
struct Known {
    route: Route,
    /// The headers, and the most bytes of a datagram; `None`: it goes by the socket.
    way: Option<(Template, usize)>,
    /// When a datagram is to go by the socket, and all to be asked anew.
    confirm_ns: TimeNs,
    /// How long after that again.
    every_ns: TimeNs,
    /// Until then datagrams go by the socket.
    socket_until_ns: TimeNs,
}

/// What may be asked of the kernel.
pub trait Ask {
    /// The headers to this route and the most bytes of a datagram, if it leaves by our interface to
    /// a neighbour that is known.
    fn ask(&mut self, route: Route) -> Option<(Template, usize)>;
    /// Whether anything has changed since the last question.
    fn changed(&mut self) -> bool;
}

/// The kernel of this host.
pub struct Kernel {
    questions: Netlink,
    changes: Changes,
    link: Link,
    /// The port that is sent from.
    port: u16,
}

impl Kernel {
    /// What leaves by this interface, from this port.
    ///
    /// # Errors
    /// The system's; and if the interface is no Ethernet.
    pub fn new(interface: u32, port: u16) -> io::Result<Kernel> {
        // First, so that nothing is missed in between.
        let changes = Changes::open()?;
        let mut questions = Netlink::open()?;
        let link = questions.link(interface)?;
        if link.mac.is_none() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, format!("{} is no Ethernet", link.name)));
        }
        Ok(Kernel { questions, changes, link, port })
    }
}

impl Ask for Kernel {
    fn ask(&mut self, (remote, local): Route) -> Option<(Template, usize)> {
        let mac = self.link.mac.filter(|_| self.link.up)?;
        let way = self.questions.way(remote.ip(), local).ok()??;
        if way.interface != self.link.index {
            return None;
        }
        let source = local.or(way.source).filter(|ip| !ip.is_unspecified())?;
        let next = self.questions.neighbour(way.interface, way.next).ok()??;
        let template = Template::new(mac, next, SocketAddr::new(source, self.port), remote)?;
        let mtu = way.mtu.unwrap_or(self.link.mtu).min(self.link.mtu) as usize;
        let most = mtu.checked_sub(template.packet_bytes(0))?;
        Some((template, most))
    }

    fn changed(&mut self) -> bool {
        let changed = self.changes.any(self.link.index);
        if changed && let Ok(link) = self.questions.link(self.link.index) {
            self.link = link;
        }
        changed
    }
}

/// The routes that datagrams were sent on.
pub struct Routes<A> {
    asks: A,
    known: Vec<Known>,
    places: HashMap<Route, usize>,
    /// The one used last.
    last: usize,
    look_ns: TimeNs,
    /// Questions asked of the kernel, and times that all was forgotten.
    pub lookups: u64,
    pub changes: u64,
}

impl<A: Ask> Routes<A> {
    /// No routes yet.
    pub fn new(asks: A) -> Routes<A> {
        Routes { asks, known: Vec::new(), places: HashMap::new(), last: 0, look_ns: 0, lookups: 0, changes: 0 }
    }

    /// Forgets what is outdated, now and then.
    #[inline]
    fn look(&mut self, now_ns: TimeNs) {
        if now_ns >= self.look_ns {
            self.look_ns = now_ns + EVENTS_NS;
            if self.asks.changed() {
                self.changes += 1;
                self.forget();
            }
        }
    }

    fn forget(&mut self) {
        self.known.clear();
        self.places.clear();
    }

    /// The headers for a datagram of `len` bytes; `None`: it goes by the socket.
    #[inline]
    pub fn find(&mut self, now_ns: TimeNs, route: Route, len: usize) -> Option<&Template> {
        self.look(now_ns);
        let at = match self.known.get(self.last) {
            Some(k) if k.route == route => self.last,
            _ => self.place(now_ns, route),
        };
        self.last = at;
        let known = self.known.get_mut(at)?;
        if now_ns >= known.confirm_ns {
            // This one goes by the socket; what is known then serves from the next one on.
            known.way = self.asks.ask(route);
            known.every_ns = if known.way.is_some() { CONFIRM_NS } else { (2 * known.every_ns).min(CONFIRM_NS) };
            known.confirm_ns = now_ns + known.every_ns;
            self.lookups += 1;
            return None;
        }
        let (template, most) = known.way.as_ref()?;
        (now_ns >= known.socket_until_ns && len <= *most).then_some(template)
    }

    /// Where a route is kept; asked for, if it is new.
    #[cold]
    fn place(&mut self, now_ns: TimeNs, route: Route) -> usize {
        if let Some(&at) = self.places.get(&route) {
            return at;
        }
        if self.known.len() >= ROUTES_MAX {
            self.forget();
        }
        self.lookups += 1;
        let way = self.asks.ask(route);
        // A neighbour that is not known yet is found by the datagram that goes by the socket now.
        let every_ns = if way.is_some() { CONFIRM_NS } else { RETRY_NS };
        self.known.push(Known { route, way, confirm_ns: now_ns + every_ns, every_ns, socket_until_ns: 0 });
        self.places.insert(route, self.known.len() - 1);
        self.known.len() - 1
    }

    /// A batch to this route goes by the socket: what follows it soon does too.
    #[inline]
    pub fn went_by_socket(&mut self, now_ns: TimeNs, route: Route) {
        let at = match self.known.get(self.last) {
            Some(k) if k.route == route => Some(self.last),
            _ => self.places.get(&route).copied(),
        };
        if let Some(known) = at.and_then(|at| self.known.get_mut(at)) {
            known.socket_until_ns = now_ns + STICKY_NS;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel that knows what it is told.
    #[derive(Default)]
    struct Told {
        reachable: bool,
        changed: bool,
        asked: u32,
    }

    impl Ask for Told {
        fn ask(&mut self, (remote, _): Route) -> Option<(Template, usize)> {
            self.asked += 1;
            let template = Template::new([1; 6], [2; 6], ([10, 0, 0, 1], 7).into(), remote);
            template.filter(|_| self.reachable).map(|t| (t, 1000))
        }

        fn changed(&mut self) -> bool {
            std::mem::take(&mut self.changed)
        }
    }

    fn to(last: u8) -> Route {
        (([10, 0, 0, last], 9).into(), None)
    }

    #[test]
    fn a_route_is_asked_for_once_and_one_datagram_in_a_second_goes_by_the_socket() {
        let mut r = Routes::new(Told { reachable: true, ..Told::default() });
        let by_xdp = (0..3000u64).filter(|ms| r.find(ms * 1_000_000, to(2), 8).is_some()).count();
        assert_eq!((by_xdp, r.asks.asked), (3000 - 2, 3));
        assert!(r.find(2_999_000_001, to(2), 1001).is_none(), "longer than the route takes");
    }

    #[test]
    fn a_change_makes_all_be_asked_anew() {
        let mut r = Routes::new(Told { reachable: true, ..Told::default() });
        assert!(r.find(0, to(2), 8).is_some());
        r.asks.reachable = false;
        assert!(r.find(EVENTS_NS, to(2), 8).is_some(), "nothing was told");
        r.asks.changed = true;
        assert!(r.find(2 * EVENTS_NS, to(2), 8).is_none());
        assert_eq!(r.changes, 1);
    }

    #[test]
    fn what_is_not_known_is_asked_for_soon_and_then_ever_more_seldom() {
        let mut r = Routes::new(Told::default());
        for ms in 0..1000u64 {
            assert!(r.find(ms * RETRY_NS, to(2), 8).is_none());
        }
        assert_eq!(r.asks.asked, 10, "after 1, 3, 7, ... 511 ms");
        r.asks.reachable = true;
        let known = (1000..3000u64).find(|ms| r.find(ms * RETRY_NS, to(2), 8).is_some());
        assert_eq!(known, Some(1024));
    }

    #[test]
    fn what_follows_a_batch_by_the_socket_goes_by_it_too_on_that_route_alone() {
        let mut r = Routes::new(Told { reachable: true, ..Told::default() });
        assert!(r.find(0, to(2), 8).is_some() && r.find(0, to(3), 8).is_some());
        r.went_by_socket(0, to(2));
        assert!(r.find(STICKY_NS - 1, to(2), 8).is_none());
        assert!(r.find(STICKY_NS - 1, to(3), 8).is_some());
        assert!(r.find(STICKY_NS, to(2), 8).is_some());
    }

    #[test]
    fn the_number_of_routes_is_bounded() {
        let mut r = Routes::new(Told { reachable: true, ..Told::default() });
        for n in 0..3 * ROUTES_MAX as u32 {
            let ip = std::net::Ipv4Addr::from_bits(0x0a00_0000 + n);
            assert!(r.find(0, ((ip, 9).into(), None), 8).is_some());
            assert!(r.known.len() <= ROUTES_MAX && r.places.len() == r.known.len());
        }
    }
}

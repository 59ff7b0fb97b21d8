//! A second socket at the same port, connected to the peer that most arrives from.
//!
//! The kernel finds route and socket of what goes through it without looking them up for each
//! datagram, and nobody needs to be told which address a datagram was sent to: half a round trip of
//! 8 bytes takes 3.4 us instead of 3.9 (two namespaces, `docs/lab/2026-11-22-second-socket.md`).
//! Peers notice nothing: datagrams leave from the same port, and the kernel gives those of the
//! connected peer to this socket and all others to the first one.
//!
//! It is bound once, to the address of ours that the first such peer uses; connected it can be anew
//! to any peer that uses the same.

use crate::config::UdpConfig;
use crate::open;
use crate::sys;
use socket2::{SockAddr, Socket};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};

/// Where to, and from which of our addresses.
pub type Pair = (SocketAddr, IpAddr);

/// The second socket. Its descriptor stays the same from the beginning, so that whoever sleeps may
/// wait for it before it is used.
pub struct Connected {
    socket: Socket,
    v6: bool,
    port: u16,
    bound: Option<IpAddr>,
    /// It cannot be bound: nothing ever arrives at it.
    failed: bool,
}

impl Connected {
    /// A socket of the family and with the options of the first one, not yet bound: nothing arrives
    /// at it.
    ///
    /// # Errors
    /// The system's, when out of descriptors.
    pub fn new(cfg: &UdpConfig, v6: bool, v4: bool, port: u16) -> io::Result<Connected> {
        let socket = open::make(v6, v4)?;
        open::set_options(&socket, cfg, v6, v4, false)?;
        open::set_buffers(&socket, cfg)?;
        Ok(Connected { socket, v6, port, bound: None, failed: false })
    }

    pub fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Connects it to this peer from now on, beside `first`, the socket that serves everybody.
    /// False: that cannot be, and it stays connected as it was. What has arrived in it meanwhile,
    /// from whomever, is read as from any socket.
    pub fn turn_to(&mut self, first: &Socket, (remote, local): Pair) -> bool {
        if self.failed || self.bound.is_some_and(|ip| ip != local) || (remote.is_ipv6() && !self.v6) {
            return false;
        }
        if self.bound.is_none() {
            self.failed = self.bind(first, (remote, local)).is_err();
            if self.failed {
                return false;
            }
            self.bound = Some(local);
        }
        self.socket.connect(&self.address(remote)).is_ok()
    }

    /// Whether something may arrive at it.
    pub fn is_bound(&self) -> bool {
        self.bound.is_some()
    }

    /// Binds to the port of `first`. Both must be willing to share it in this moment; for the rest
    /// of the time it is theirs alone.
    fn bind(&self, first: &Socket, (remote, local): Pair) -> io::Result<()> {
        let scope = |ip| match (SocketAddr::new(ip, self.port), remote) {
            (SocketAddr::V6(mut own), SocketAddr::V6(to)) => {
                own.set_scope_id(to.scope_id());
                SocketAddr::V6(own)
            }
            (own, _) => own,
        };
        first.set_reuse_address(true)?;
        let bound = self.socket.set_reuse_address(true).and_then(|()| self.socket.bind(&self.address(scope(local))));
        let kept = first.set_reuse_address(false);
        bound.and(kept)?;
        self.socket.set_reuse_address(false)
    }

    fn address(&self, addr: SocketAddr) -> SockAddr {
        match addr {
            SocketAddr::V4(a) if self.v6 => SocketAddr::new(a.ip().to_ipv6_mapped().into(), a.port()).into(),
            other => other.into(),
        }
    }

    /// Datagrams the kernel dropped at its receive buffer.
    pub fn receive_drops(&self) -> Option<u32> {
        sys::receive_drops(self.fd())
    }
}

/// At least so many messages must come one after the other from one peer before the socket is
/// connected to it ...
const FIRST_RUN: u32 = 64;
/// ... and so many, with none from the peer it is connected to, before it turns to another.
const NEXT_RUN: u32 = 256;

/// Who writes, as seen at the first socket.
pub struct Candidate {
    pair: Option<(SocketAddr, Option<IpAddr>)>,
    run: u32,
    wanted_run: u32,
}

impl Candidate {
    pub const NOBODY: Candidate = Candidate { pair: None, run: 0, wanted_run: FIRST_RUN };

    /// A message from `remote` came to the first socket.
    #[inline]
    pub fn heard(&mut self, remote: SocketAddr, local: Option<IpAddr>) {
        if self.pair == Some((remote, local)) {
            self.run += 1;
        } else {
            self.pair = Some((remote, local));
            self.run = 1;
        }
    }

    /// The connected peer was heard: nobody else is alone.
    #[inline]
    pub fn interrupted(&mut self) {
        self.run = 0;
    }

    /// Has one peer been alone for long enough?
    #[inline]
    pub fn is_chosen(&self) -> bool {
        self.run >= self.wanted_run
    }

    /// Who that is; the count begins anew.
    pub fn take(&mut self) -> Option<(SocketAddr, Option<IpAddr>)> {
        self.run = 0;
        self.wanted_run = NEXT_RUN;
        self.pair.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_peer_alone_is_chosen_and_later_only_after_more() {
        let (a, b) = (SocketAddr::from(([10, 0, 0, 1], 1)), SocketAddr::from(([10, 0, 0, 1], 2)));
        let mut c = Candidate::NOBODY;
        let hear = |c: &mut Candidate, who, n| (0..n).for_each(|_| c.heard(who, None));
        hear(&mut c, a, FIRST_RUN - 1);
        assert!(!c.is_chosen());
        hear(&mut c, b, 1);
        hear(&mut c, a, FIRST_RUN - 1);
        assert!(!c.is_chosen(), "another came between");
        hear(&mut c, a, 1);
        assert!(c.is_chosen());
        assert_eq!(c.take(), Some((a, None)));
        assert!(!c.is_chosen());
        hear(&mut c, b, NEXT_RUN - 1);
        c.interrupted();
        hear(&mut c, b, NEXT_RUN - 1);
        assert!(!c.is_chosen(), "the connected one came between");
        hear(&mut c, b, 1);
        assert!(c.is_chosen());
    }

    #[test]
    fn the_address_of_ours_counts() {
        let a = SocketAddr::from(([10, 0, 0, 1], 1));
        let own = |last| Some(IpAddr::from([10, 0, 0, last]));
        let mut c = Candidate::NOBODY;
        for _ in 0..FIRST_RUN {
            c.heard(a, own(2));
            c.heard(a, own(3));
        }
        assert!(!c.is_chosen());
    }
}

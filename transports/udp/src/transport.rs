//! The socket as the engine sees it.

use crate::config::UdpConfig;
use crate::connected::Connected;
use crate::counters::UdpCounters;
use crate::open::{self, Opened};
use crate::probe;
use crate::rx::{self, Rx};
use crate::sys;
use crate::tx::Tx;
use socket2::Socket;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::ops::Deref;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;
use weir_net::{Datagrams, Route, RxInfo, TimeNs, WAKE_SOURCES};

/// A destination that could not be reached, as the kernel or an ICMP message said. A hint only:
/// ICMP can be forged, and the next datagram may get through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreachable {
    /// The destination.
    pub remote: SocketAddr,
    /// What kind: for example `ConnectionRefused` when no program has the port, `HostUnreachable`,
    /// `NetworkUnreachable`.
    pub kind: io::ErrorKind,
}

/// Hints kept until asked for.
const MAX_HINTS: usize = 32;

/// One UDP port, non-blocking, serving all peers: by one socket, and a second one for the peer that
/// most arrives from.
pub struct UdpTransport {
    socket: Socket,
    connected: Option<Connected>,
    local: Vec<SocketAddr>,
    rcvbuf_bytes: u64,
    /// What a send buffer holds by its setting, and holds now.
    sndbuf_bytes: usize,
    backlog_bytes: usize,
    max_datagram: u16,
    rx: Rx,
    tx: Tx,
    counters: UdpCounters,
    hints: Vec<Unreachable>,
}

impl UdpTransport {
    /// Opens a socket.
    ///
    /// # Errors
    /// No such address or interface, port taken, no permission: each in one line that names the
    /// value.
    pub fn bind(cfg: &UdpConfig) -> io::Result<UdpTransport> {
        let Opened { socket, local, v6, v4, multi, rcvbuf_bytes, max_datagram } = open::open(cfg)?;
        let fd = socket.as_raw_fd();
        let (mut segments, mut receive_offload) = (1, false);
        if cfg.offload {
            let found = probe::probe(v6 && local.iter().all(SocketAddr::is_ipv6));
            segments = found.segments;
            receive_offload = found.receive;
            if receive_offload {
                // Refused: datagrams just come one by one.
                let _ = sys::set_option(fd, libc::SOL_UDP, libc::UDP_GRO, 1);
            }
        }
        let port = local.first().map_or(0, SocketAddr::port);
        // Out of descriptors: then without.
        let connected = if cfg.connected { Connected::new(cfg, v6, v4, port).ok() } else { None };
        if let Some(c) = connected.as_ref().filter(|_| receive_offload) {
            let _ = sys::set_option(c.fd(), libc::SOL_UDP, libc::UDP_GRO, 1);
        }
        Ok(UdpTransport {
            rx: Rx::new(fd),
            tx: Tx::new(fd, v6, multi, segments, cfg.parked_limit_bytes),
            socket,
            connected,
            local,
            rcvbuf_bytes,
            sndbuf_bytes: cfg.sndbuf_bytes,
            backlog_bytes: cfg.sndbuf_bytes,
            max_datagram,
            counters: UdpCounters::default(),
            hints: Vec::new(),
        })
    }

    /// The addresses it serves, best first.
    #[must_use]
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.local
    }

    /// Largest UDP payload that any served interface carries.
    #[must_use]
    pub fn max_datagram(&self) -> u16 {
        self.max_datagram
    }

    /// Receive buffer the kernel gave, bytes of payload. Small datagrams use several times their
    /// size of it.
    #[must_use]
    pub fn rx_buffer_bytes(&self) -> u64 {
        self.rcvbuf_bytes
    }

    /// Whether it tells which of its addresses a datagram came to: it serves several.
    #[must_use]
    pub fn tells_local(&self) -> bool {
        self.tx.is_multi()
    }

    /// The descriptors, for poll(2); -1 is none. They stay the same.
    #[must_use]
    pub fn fds(&self) -> [RawFd; 2] {
        [self.socket.as_raw_fd(), self.connected.as_ref().map_or(-1, Connected::fd)]
    }

    /// Reads what has arrived, in at most `max_batches` system calls, and calls `f` for each
    /// datagram (super-packets are cut). Returns their number; 0 means that nothing was there.
    /// After silence only one datagram is read: more may be waiting.
    ///
    /// # Errors
    /// Only such as mean that the socket itself is unusable.
    #[inline]
    pub fn recv(&mut self, max_batches: usize, f: impl FnMut(&RxInfo, &mut [u8])) -> io::Result<usize> {
        let n = self.rx.receive(max_batches, &mut self.counters, f);
        if self.rx.errors_pending {
            self.rx.errors_pending = false;
            self.drain_errors();
        }
        if self.rx.candidate.is_chosen() {
            self.connect();
        }
        n.map_err(io::Error::from_raw_os_error)
    }

    /// One peer has been alone for a while: connects the second socket to it.
    #[cold]
    fn connect(&mut self) {
        let Some((remote, told)) = self.rx.candidate.take() else {
            return;
        };
        let local = told.or_else(|| self.local.iter().map(SocketAddr::ip).find(|ip| ip.is_ipv4() == remote.is_ipv4()));
        let (Some(connected), Some(local)) = (&mut self.connected, local) else {
            return;
        };
        let pair = (remote, local);
        if connected.turn_to(&self.socket, pair) {
            self.tx.set_connected(connected.fd(), pair);
            self.counters.connects += 1;
        }
        if connected.is_bound() {
            self.rx.add_connected(connected.fd(), told);
        }
    }

    /// Queues a copy of one datagram, `head` and then `payload`. `local` is the source address, for
    /// sockets that serve several. Sends by itself when the batch is full. One that is too long is
    /// counted and dropped, as the network would.
    #[inline]
    pub fn push(&mut self, remote: SocketAddr, local: Option<IpAddr>, head: &[u8], payload: &[IoSlice<'_>]) {
        self.tx.push((remote, local), head, payload, &mut self.counters);
    }

    /// Sends what is queued. What the socket has no room for is kept ([`UdpTransport::blocked`]).
    /// Datagrams the kernel refuses are counted as lost.
    ///
    /// # Errors
    /// None at present; the result is there for transports that can break.
    #[inline]
    pub fn flush(&mut self) -> io::Result<()> {
        self.tx.flush(&mut self.counters);
        if self.tx.take_errors_pending() {
            self.drain_errors();
        }
        Ok(())
    }

    /// Is something waiting for room in the socket? Then `flush` again after `wait`, and push
    /// little more: the waiting room is bounded.
    #[must_use]
    #[inline]
    pub fn blocked(&self) -> bool {
        self.tx.blocked()
    }

    /// The descriptor that [`UdpTransport::blocked`] waits for: to be polled for room.
    #[must_use]
    pub fn blocked_at(&self) -> Option<RawFd> {
        self.tx.blocked_at()
    }

    /// Sleeps until something can be read (or, when blocked, sent) or the time is over; `None`
    /// waits for ever. Returns whether there is something to do; an interrupting signal counts as
    /// such.
    ///
    /// # Errors
    /// What ppoll(2) reports.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<bool> {
        sys::wait(self.fds(), self.blocked_at(), timeout)
    }

    /// Whether [`UdpTransport::take_unreachable`] has something to tell.
    #[must_use]
    #[inline]
    pub fn has_unreachable(&self) -> bool {
        !self.hints.is_empty() || self.tx.has_refused()
    }

    /// Destinations that turned out unreachable since the last question (at most 32 are kept).
    pub fn take_unreachable(&mut self) -> impl Iterator<Item = Unreachable> {
        let refused = self.tx.refused().map(|(remote, e)| unreachable(remote, e));
        self.hints.drain(..).chain(refused)
    }

    /// What has been done so far.
    #[must_use]
    pub fn counters(&self) -> &UdpCounters {
        &self.counters
    }

    /// Datagrams the kernel dropped because the receive buffer was full, where it can tell.
    #[must_use]
    pub fn receive_drops(&self) -> Option<u32> {
        let second = self.connected.as_ref().and_then(Connected::receive_drops).unwrap_or(0);
        sys::receive_drops(self.socket.as_raw_fd()).map(|n| n + second)
    }

    /// Datagrams a super-packet may hold; 1: segmentation offload is off.
    #[must_use]
    pub fn offload_segments(&self) -> usize {
        self.tx.segments()
    }

    #[cold]
    fn drain_errors(&mut self) {
        let hints = &mut self.hints;
        let mut note = |remote, e| {
            let hint = unreachable(remote, e);
            // Too long is not unreachable, and was counted by the call that met it.
            if e != libc::EMSGSIZE && hints.len() < MAX_HINTS && !hints.contains(&hint) {
                hints.push(hint);
            }
        };
        for fd in [self.socket.as_raw_fd(), self.connected.as_ref().map_or(-1, Connected::fd)] {
            self.counters.icmp_errors += rx::drain_errors(fd, &mut note);
        }
    }
}

impl Datagrams for UdpTransport {
    type Error = io::Error;

    #[inline]
    fn recv(&mut self, _: TimeNs, batches: usize, deliver: impl FnMut(&RxInfo, &mut [u8])) -> io::Result<usize> {
        UdpTransport::recv(self, batches, deliver)
    }

    #[inline]
    fn push<P: Deref<Target = [u8]>>(&mut self, _: TimeNs, route: Route, head: &[u8], payload: &[P]) {
        self.tx.push(route, head, payload, &mut self.counters);
    }

    #[inline]
    fn send_now(&mut self, _: TimeNs, route: Route, datagram: &[u8]) {
        if !self.tx.send_now(route, datagram, &mut self.counters) {
            self.push(route.0, route.1, datagram, &[]);
        }
        let _ = UdpTransport::flush(self);
    }

    #[inline]
    fn flush(&mut self, _: TimeNs) {
        // Errors of single datagrams are losses, and counted.
        let _ = UdpTransport::flush(self);
    }

    #[inline]
    fn blocked_at(&self) -> Option<RawFd> {
        UdpTransport::blocked_at(self)
    }

    fn set_backlog(&mut self, bytes: Option<u64>) {
        let bytes = bytes
            .map_or(self.sndbuf_bytes, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX).min(self.sndbuf_bytes));
        if bytes == self.backlog_bytes {
            return;
        }
        self.backlog_bytes = bytes;
        for fd in self.fds().into_iter().filter(|fd| *fd >= 0) {
            // A hint: where it is refused, more waits.
            let _ = open::set_send_buffer(fd, bytes);
        }
    }

    fn wake_sources(&self) -> [RawFd; WAKE_SOURCES] {
        let [first, second] = self.fds();
        [first, second, -1]
    }

    #[inline]
    fn heard(&mut self, remote: SocketAddr, local: Option<IpAddr>) {
        if self.tx.is_connected_to((remote, local)) {
            self.rx.candidate.interrupted();
            return;
        }
        self.rx.candidate.heard(remote, local);
        if self.rx.candidate.is_chosen() {
            self.connect();
        }
    }

    fn local_addrs(&self) -> &[SocketAddr] {
        UdpTransport::local_addrs(self)
    }

    fn max_datagram(&self) -> u16 {
        UdpTransport::max_datagram(self)
    }

    fn rx_buffer_bytes(&self) -> u64 {
        UdpTransport::rx_buffer_bytes(self)
    }

    #[inline]
    fn take_refused(&mut self, tell: impl FnMut(SocketAddr)) {
        if self.has_unreachable() {
            let refused = |u: &Unreachable| u.kind == io::ErrorKind::ConnectionRefused;
            self.take_unreachable().filter(refused).map(|u| u.remote).for_each(tell);
        }
    }
}

fn unreachable(remote: SocketAddr, error: i32) -> Unreachable {
    Unreachable { remote, kind: io::Error::from_raw_os_error(error).kind() }
}

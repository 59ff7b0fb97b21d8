//! TCP connections for the bulk connections of associations (spec/bulk.md): never blocking,
//! gathered writes and scattered reads, and what the kernel knows of their state.
//!
//! This crate moves bytes. Greetings, records and when a bulk connection is wanted are the
//! protocol's affair (`core/link/src/bulk.rs`).

mod state;

use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

/// Connections that wait to be accepted, at most; more are refused by the kernel.
const BACKLOG: i32 = 128;

/// How long what is written may stay unacknowledged.
const USER_TIMEOUT: Duration = Duration::from_secs(5);

/// Takes connections at the port of the endpoint's UDP socket.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
}

impl Listener {
    /// Listens at the addresses' port: at the address if there is only one, else at all of the
    /// machine.
    ///
    /// # Errors
    /// The system's, when the port is another's or out of descriptors; `InvalidInput` without an
    /// address.
    pub fn bind(addrs: &[SocketAddr]) -> io::Result<Listener> {
        let first = addrs.first().ok_or(io::ErrorKind::InvalidInput)?;
        let v6 = addrs.iter().any(SocketAddr::is_ipv6);
        let ip = match addrs {
            [only] => only.ip(),
            _ if v6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            _ => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        };
        let socket = make(v6)?;
        if v6 {
            socket.set_only_v6(addrs.iter().all(SocketAddr::is_ipv6))?;
        }
        // Connections of before, which nobody has any more, hold the port for a minute else.
        socket.set_reuse_address(true)?;
        socket.bind(&SocketAddr::new(ip, first.port()).into())?;
        socket.listen(BACKLOG)?;
        Ok(Listener { socket })
    }

    /// The next connection, if one waits.
    ///
    /// # Errors
    /// The system's; the listener stays usable.
    pub fn accept(&self) -> io::Result<Option<Connection>> {
        if !self.has_some() {
            return Ok(None);
        }
        match self.socket.accept() {
            // One that is not even good for this was given up meanwhile.
            Ok((socket, _)) => Ok(socket.set_nonblocking(true).and_then(|()| Connection::new(socket)).ok()),
            // Of a connection that was given up meanwhile (ECONNABORTED) nobody wants to hear.
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted) => Ok(None),
            Err(e) => Err(e),
        }
    }
}

impl Listener {
    /// Whether to accept may bring one. To find out by accepting costs several times as much: the
    /// kernel makes a socket first, and has it freed behind a grace period of RCU, whose thread
    /// then runs on the core of who polls.
    fn has_some(&self) -> bool {
        let mut of = libc::pollfd { fd: self.socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid entry.
        unsafe { libc::poll(&raw mut of, 1, 0) != 0 }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// `TCP_RTO_MIN_US` (Linux 6.15 and later) and what it is set to: TCP's timer for what is not
/// acknowledged runs out after a round trip and this, instead of 200 ms; so does its probe for a
/// single segment. More than the 40 ms by which any Linux delays an acknowledgement where the round
/// trip is short, whatever it is set to there (spec/bulk.md 5).
const RTO_MIN_US: (libc::c_int, libc::c_int) = (45, 60_000);
/// `TCP_DELACK_MAX_US` (Linux 6.16 and later), by which an acknowledgement is delayed at most: well
/// below the peer's timer.
const DELACK_MAX_US: (libc::c_int, libc::c_int) = (46, 10_000);

/// One connection.
#[derive(Debug)]
pub struct Connection {
    socket: Socket,
}

impl Connection {
    fn new(socket: Socket) -> io::Result<Connection> {
        socket.set_tcp_nodelay(true)?;
        // Whoever vanished is not written to for the quarter of an hour that TCP would try.
        socket.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
        let connection = Connection { socket };
        for option in [RTO_MIN_US, DELACK_MAX_US] {
            connection.set_tcp(option);
        }
        Ok(connection)
    }

    /// Sets an option of TCP's; a kernel that does not know it, or does not take the value, stays
    /// as it is.
    fn set_tcp(&self, (option, value): (libc::c_int, libc::c_int)) {
        let len = size_of_val(&value) as libc::socklen_t;
        let from = (&raw const value).cast();
        // SAFETY: the descriptor is open; `value` is as long as it is said to be.
        unsafe { libc::setsockopt(self.socket.as_raw_fd(), libc::IPPROTO_TCP, option, from, len) };
    }
}

/// A connection as its user sees it: the system's ([`Connection`]), or one for tests, of which each
/// call does what a test says.
pub trait Tcp: AsFd + Sized {
    /// What connections come from.
    type Listener: AsFd;

    /// Listens at these addresses, which have one port.
    ///
    /// # Errors
    /// The system's, the port being another's among them.
    fn bind(addrs: &[SocketAddr]) -> io::Result<Self::Listener>;

    /// Takes the next connection that somebody made, if there is one.
    ///
    /// # Errors
    /// The system's, out of descriptors among them.
    fn accept(listener: &Self::Listener) -> io::Result<Option<Self>>;

    /// Begins to connect; writable, or failed, later.
    ///
    /// # Errors
    /// The system's: no route, no descriptors, no such source address.
    fn connect(remote: SocketAddr, local: Option<IpAddr>) -> io::Result<Self>;

    /// Whether it is connected by now.
    ///
    /// # Errors
    /// Why it will never be.
    fn is_connected(&self) -> io::Result<bool>;

    /// Ends it both ways, whoever else has a copy of its descriptor.
    fn shutdown(&self);

    /// Where the peer's end is. None: not connected (any more).
    fn remote(&self) -> Option<SocketAddr>;

    /// Segments that the network lost since it was made, as far as the system tells.
    ///
    /// # Errors
    /// The system's.
    fn lost_segments(&self) -> io::Result<u32>;

    /// Writes what there is room for; 0: none.
    ///
    /// # Errors
    /// The connection is over.
    fn write(&mut self, data: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Reads what is there into these pieces of memory.
    ///
    /// # Errors
    /// The connection is over.
    ///
    /// # Safety
    /// Each piece is writable.
    unsafe fn read(&mut self, pieces: &mut [libc::iovec]) -> io::Result<Arrived>;
}

impl Tcp for Connection {
    type Listener = Listener;

    fn bind(addrs: &[SocketAddr]) -> io::Result<Listener> {
        Listener::bind(addrs)
    }

    fn accept(listener: &Listener) -> io::Result<Option<Connection>> {
        listener.accept()
    }

    fn lost_segments(&self) -> io::Result<u32> {
        Connection::lost_segments(self)
    }

    fn remote(&self) -> Option<SocketAddr> {
        self.socket.peer_addr().ok()?.as_socket()
    }

    fn connect(remote: SocketAddr, local: Option<IpAddr>) -> io::Result<Self> {
        let socket = make(remote.is_ipv6())?;
        if let Some(ip) = local.filter(|ip| ip.is_ipv6() == remote.is_ipv6()) {
            socket.bind(&SocketAddr::new(ip, 0).into())?;
        }
        match socket.connect(&remote.into()) {
            Ok(()) => {}
            Err(e) if e.raw_os_error() == Some(libc::EINPROGRESS) => {}
            Err(e) => return Err(e),
        }
        Connection::new(socket)
    }

    fn is_connected(&self) -> io::Result<bool> {
        if let Some(e) = self.socket.take_error()? {
            return Err(e);
        }
        match self.socket.peer_addr() {
            Ok(_) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::NotConnected => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn shutdown(&self) {
        // One that was never connected, or has failed, has no need of it.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }

    fn write(&mut self, data: &[IoSlice<'_>]) -> io::Result<usize> {
        // Not write(2), which kills a program that does not ignore SIGPIPE when the peer is gone.
        retried(|| self.socket.send_vectored_with_flags(data, libc::MSG_NOSIGNAL))
    }

    unsafe fn read(&mut self, pieces: &mut [libc::iovec]) -> io::Result<Arrived> {
        if pieces.iter().all(|p| p.iov_len == 0) {
            return Ok(Arrived::Bytes(0));
        }
        let mut would_block = false;
        let n = retried(|| {
            // SAFETY: the descriptor is open; the pieces are writable (caller). There are at most
            // some hundred of them.
            let n = unsafe { libc::readv(self.socket.as_raw_fd(), pieces.as_ptr(), pieces.len() as libc::c_int) };
            let r = usize::try_from(n).map_err(|_| io::Error::last_os_error());
            would_block = matches!(&r, Err(e) if e.kind() == io::ErrorKind::WouldBlock);
            r
        })?;
        Ok(if n == 0 && !would_block { Arrived::End } else { Arrived::Bytes(n) })
    }
}

/// What reading brought.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Arrived {
    /// So many bytes, perhaps none.
    Bytes(usize),
    /// The peer will write nothing more.
    End,
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn make(v6: bool) -> io::Result<Socket> {
    let domain = if v6 { Domain::IPV6 } else { Domain::IPV4 };
    let socket = Socket::new(domain, Type::STREAM.nonblocking().cloexec(), Some(Protocol::TCP))?;
    // Where a bulk connection is used nothing is lost, and what counts is a burst's time: BBR,
    // where that is the system's default, paces it (1 MiB over veth: 500 us; cubic: 110). It must
    // never have begun: what it switches on, a timer between any two segments, stays on when
    // another takes over. Who is accepted inherits it. reno is always allowed.
    if socket.set_tcp_congestion(b"cubic").is_err() {
        let _ = socket.set_tcp_congestion(b"reno");
    }
    Ok(socket)
}

/// Nothing to do is 0; an interruption is no answer.
fn retried(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(0),
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn until(mut done: impl FnMut() -> bool) {
        let start = Instant::now();
        while !done() {
            assert!(start.elapsed() < Duration::from_secs(20), "it never happens");
            std::thread::yield_now();
        }
    }

    /// Reads into two pieces.
    fn read(c: &mut Connection, first: &mut [u8], second: &mut [u8]) -> Arrived {
        let piece = |b: &mut [u8]| libc::iovec { iov_base: b.as_mut_ptr().cast(), iov_len: b.len() };
        // SAFETY: both are live slices.
        unsafe { c.read(&mut [piece(first), piece(second)]) }.unwrap()
    }

    /// Connects to the listener, and to nobody else.
    fn meet(listener: &Listener, connect: impl FnOnce(SocketAddr) -> Connection) -> (Connection, Connection) {
        let a = connect(listener.socket.local_addr().unwrap().as_socket().unwrap());
        let mut b = None;
        until(|| {
            b = listener.accept().unwrap();
            b.is_some()
        });
        until(|| a.is_connected().unwrap());
        (a, b.unwrap())
    }

    fn pair() -> (Connection, Connection) {
        let probe = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let listener = Listener::bind(&[probe]).unwrap();
        meet(&listener, |to| Connection::connect(to, Some(to.ip())).unwrap())
    }

    /// Two that begin with BBR and change when they are connected. None where the kernel has no
    /// BBR, or not for everybody: then it is nobody's default.
    fn pair_too_late() -> Option<(Connection, Connection)> {
        let begun = || {
            let socket = make(false).unwrap();
            socket.set_tcp_congestion(b"bbr").ok().map(|()| socket)
        };
        let listener = Listener { socket: begun()? };
        listener.socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        listener.socket.listen(1).unwrap();
        let a = begun()?;
        let (a, b) = meet(&listener, |to| {
            let _ = a.connect(&to.into());
            Connection::new(a).unwrap()
        });
        for c in [&a, &b] {
            c.socket.set_tcp_congestion(b"cubic").or_else(|_| c.socket.set_tcp_congestion(b"reno")).unwrap();
        }
        Some((a, b))
    }

    fn is_bbrs(s: &Socket) -> bool {
        s.tcp_congestion().unwrap().starts_with(b"bbr\0")
    }

    /// BBR sets the rate in another proportion to the window than the others, and that stays until
    /// something is sent: so it shows who began, whoever has taken over.
    fn began_as_bbr(c: &Connection) -> bool {
        let sysctl = |name| std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap();
        let gain = c.pacing_gain().unwrap();
        !["tcp_pacing_ss_ratio", "tcp_pacing_ca_ratio"].iter().any(|name| {
            let percent: f64 = sysctl(name).trim().parse().unwrap();
            (gain * 100.0 - percent).abs() < 5.0
        })
    }

    /// Set later it would be too late: pacing stays on.
    #[test]
    fn no_socket_begins_with_bbr() {
        assert!(!is_bbrs(&make(false).unwrap()) && !is_bbrs(&make(true).unwrap()));
        let (a, b) = pair();
        assert!(!is_bbrs(&a.socket) && !is_bbrs(&b.socket));
        assert!(!began_as_bbr(&a) && !began_as_bbr(&b), "{:?} {:?}", a.pacing_gain(), b.pacing_gain());
        if let Some((a, b)) = pair_too_late() {
            assert!(!is_bbrs(&a.socket) && !is_bbrs(&b.socket));
            assert!(began_as_bbr(&a) && began_as_bbr(&b), "{:?} {:?}", a.pacing_gain(), b.pacing_gain());
        }
    }

    #[test]
    fn bytes_come_in_order_scattered_and_the_end_is_seen_after_them() {
        let (mut a, mut b) = pair();
        assert_eq!(read(&mut b, &mut [0; 4], &mut []), Arrived::Bytes(0));
        assert_eq!(a.write(&[IoSlice::new(b"gathered "), IoSlice::new(b"bytes")]).unwrap(), 14);
        let (mut first, mut second) = ([0; 5], [0; 20]);
        let mut n = 0;
        until(|| {
            if let Arrived::Bytes(got) = read(&mut b, &mut first, &mut second) {
                n += got;
            }
            n > 0
        });
        assert_eq!((n, &first, &second[..9]), (14, b"gathe", &b"red bytes"[..]));
        drop(a);
        until(|| read(&mut b, &mut first, &mut []) == Arrived::End);
    }

    #[test]
    fn nothing_is_lost_on_loopback() {
        let (mut a, mut b) = pair();
        let data = vec![7; 1 << 20];
        let (mut written, mut come) = (0, 0);
        let mut buf = vec![0; 1 << 20];
        until(|| {
            written += a.write(&[IoSlice::new(&data[..data.len() - written])]).unwrap();
            if let Arrived::Bytes(n) = read(&mut b, &mut buf, &mut []) {
                come += n;
            }
            come == data.len()
        });
        assert_eq!(a.lost_segments().unwrap(), 0);
    }

    /// What the kernel says of an option; none: it does not know it.
    fn option_of(c: &Connection, option: libc::c_int) -> Option<libc::c_int> {
        let mut value: libc::c_int = 0;
        let mut len = size_of_val(&value) as libc::socklen_t;
        let to = (&raw mut value).cast();
        // SAFETY: the descriptor is open; at most `len` bytes of `value` are written.
        let r = unsafe { libc::getsockopt(c.socket.as_raw_fd(), libc::IPPROTO_TCP, option, to, &raw mut len) };
        (r == 0).then_some(value)
    }

    // spec: L-5.18
    #[test]
    fn the_kernels_timers_are_set_on_both_sides_where_it_has_them() {
        let (a, b) = pair();
        assert_eq!(a.remote().map(|r| r.ip()), Some(IpAddr::from([127, 0, 0, 1])));
        for c in [&a, &b] {
            for (option, want) in [RTO_MIN_US, DELACK_MAX_US] {
                // In ticks of the kernel, of 10 ms at most.
                let set = option_of(c, option);
                assert!(set.is_none_or(|us| (us - want).abs() <= 10_000), "{option}: {set:?}, not {want}");
            }
        }
    }

    #[test]
    fn nobody_listening_is_an_error_in_time() {
        let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        match Connection::connect(gone, None) {
            Err(e) => assert_eq!(e.kind(), io::ErrorKind::ConnectionRefused),
            Ok(c) => until(|| c.is_connected().is_err()),
        }
    }

    // spec: L-1.2
    #[test]
    fn several_addresses_are_served_by_one_listener() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let other = SocketAddr::new("127.0.0.2".parse().unwrap(), free.port());
        let listener = Listener::bind(&[free, other]).unwrap();
        let _a = Connection::connect(free, None).unwrap();
        let _b = Connection::connect(other, None).unwrap();
        let mut n = 0;
        until(|| {
            n += u32::from(listener.accept().unwrap().is_some());
            n == 2
        });
        assert!(Listener::bind(&[]).is_err());
        assert_eq!(Listener::bind(&[free]).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }
}

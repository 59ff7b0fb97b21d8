//! Sockets that never block, and the set of those that are ready.

use crate::codes::{self, Code};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::resource::{Resource, getrlimit};
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

/// Connections that wait to be accepted, at most.
const BACKLOG: i32 = 256;
/// Room to send for who is on this host, bytes (the system doubles it), unless the program names
/// another: no more is ever under way there, and what lies longer leaves the processor's cache
/// before it is read. By itself the system lets 4 MiB lie.
const NEAR_SEND: usize = 512 << 10;
/// Sockets told of in one look.
const READY_MAX: usize = 128;
/// Where nothing is under way the system asks each second, and sooner only if it is told to.
const ASKS_EVERY: Duration = Duration::from_secs(1);
/// So many questions in a row without an answer, at least, are the silence of a host: one in fifty
/// is lost, or its answer, where the network loses one packet in a hundred, and hundreds of
/// connections are asked each second.
const QUESTIONS: u8 = 4;

/// Why a connection is over.
#[derive(Debug)]
pub enum Failure {
    /// The peer closed it.
    Ended,
    /// The system says so.
    System(io::Error),
    /// Nobody answered in time.
    NoAnswer,
    /// What it sent is no message.
    Refused(String),
    /// It was dropped here.
    Local,
}

impl Failure {
    /// The system has none for what comes: that is told, and only this connection ends.
    #[must_use]
    pub fn no_memory() -> Failure {
        Failure::Refused("no memory for its message".to_owned())
    }

    /// What operations end with; `dialling`: it was never up.
    #[must_use]
    pub fn code(&self, dialling: bool) -> Code {
        match self {
            Failure::NoAnswer => Code::ETIMEDOUT,
            Failure::System(error) if dialling => codes::of_io(error),
            _ => Code::ECONNRESET,
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::System(error)
    }
}

fn make(to: SocketAddr) -> io::Result<Socket> {
    // SOCK_CLOEXEC comes with it.
    let socket = Socket::new(Domain::for_address(to), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    Ok(socket)
}

fn set_options(socket: &Socket, silence: Duration) -> io::Result<()> {
    // (Nagle's algorithm was all of the latency that the first implementation lacked.)
    socket.set_tcp_nodelay(true)?;
    // Of patience where nothing is under way: what of it the system does not have is done without.
    // No TCP_USER_TIMEOUT: it would count a receiver that has no room among the silent.
    let retries = u32::try_from(silence.as_secs()).unwrap_or(u32::MAX).clamp(1, 60) + u32::from(QUESTIONS);
    let keepalive = TcpKeepalive::new().with_time(ASKS_EVERY).with_interval(ASKS_EVERY).with_retries(retries);
    let _ = socket.set_tcp_keepalive(&keepalive);
    Ok(())
}

/// 0 is as none: OrangeFS says it unless its configuration names a size, and means what the system
/// has.
fn set_buffers(socket: &Socket, [receive, send]: [Option<usize>; 2]) {
    if let Some(bytes) = receive.filter(|bytes| *bytes > 0) {
        let _ = socket.set_recv_buffer_size(bytes);
    }
    if let Some(bytes) = send.filter(|bytes| *bytes > 0) {
        let _ = socket.set_send_buffer_size(bytes);
    }
}

/// Bounds what lies between two of one host.
fn bound_near(socket: &Socket, peer: IpAddr, [_, send]: [Option<usize>; 2]) {
    let own = || socket.local_addr().ok().and_then(|a| a.as_socket()).map(|a| a.ip().to_canonical());
    if send.is_none_or(|bytes| bytes == 0) && (peer.is_loopback() || own() == Some(peer)) {
        let _ = socket.set_send_buffer_size(NEAR_SEND);
    }
}

/// Dials; true: it is not up yet.
///
/// # Errors
/// The system's.
pub fn dial(to: SocketAddr, buffers: [Option<usize>; 2], silence: Duration) -> io::Result<(Socket, bool)> {
    let socket = make(to)?;
    set_options(&socket, silence)?;
    set_buffers(&socket, buffers);
    let begun = socket.connect(&to.into());
    bound_near(&socket, to.ip().to_canonical(), buffers);
    match begun {
        Ok(()) => Ok((socket, false)),
        // On this host it may be up by now, and what is posted can leave at once. (That it is
        // refused is told in its time: the question would take the answer away.)
        Err(e) if e.raw_os_error() == Some(libc::EINPROGRESS) => {
            let up = socket.peer_addr().is_ok();
            Ok((socket, !up))
        }
        Err(e) => Err(e),
    }
}

/// Whether a socket that was dialled is up.
///
/// # Errors
/// It never will be.
pub fn connected(socket: &Socket) -> Result<bool, Failure> {
    if let Some(error) = socket.take_error()? {
        return Err(Failure::System(error));
    }
    match socket.peer_addr() {
        Ok(_) => Ok(true),
        Err(e) if e.kind() == ErrorKind::NotConnected => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// Sends from these pieces. None: there is no room.
///
/// # Errors
/// The connection is over.
pub fn send(socket: &Socket, pieces: &[libc::iovec]) -> Result<Option<usize>, Failure> {
    // SAFETY: an all-zero msghdr is one without name, control and flags.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = pieces.as_ptr().cast_mut();
    message.msg_iovlen = pieces.len() as _;
    // SAFETY: the pieces name memory that is readable until the operation's end is told, or our
    // own.
    let n = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) };
    if let Ok(n) = usize::try_from(n) {
        return Ok(Some(n));
    }
    match io::Error::last_os_error() {
        e if matches!(e.kind(), ErrorKind::WouldBlock) => Ok(None),
        e if matches!(e.kind(), ErrorKind::Interrupted) => send(socket, pieces),
        e => Err(e.into()),
    }
}

/// What has left by a connection and was not acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unanswered {
    /// Something, or something waits for room.
    pub any: bool,
    /// Segments are under way and were sent again, or the receiver had no room and does not say any
    /// more whether it has, or several questions whether it is there had no answer.
    pub repeated: bool,
    /// Since the peer's system last acknowledged anything, if that was asked for.
    pub silent: Duration,
}

impl Unanswered {
    /// The peer's host is given up, where something has been under way for `watched`.
    #[must_use]
    pub fn is_too_long(&self, watched: Duration, silence: Duration) -> bool {
        self.repeated && watched.min(self.silent) >= silence
    }

    /// The peer's host is to be asked now whether it is there: nothing is under way that it could
    /// acknowledge, and it is soon silent for too long.
    #[must_use]
    pub fn is_to_be_asked(&self, silence: Duration) -> bool {
        !self.any && self.silent >= ASKS_EVERY && self.silent + ASKS_EVERY >= silence
    }
}

/// Asks the peer's host whether it is there, if nothing came of it for a second. (The system's next
/// question is due a second after its last one; it looks whether one is when it is told that.)
pub fn ask(socket: &Socket) {
    let second: libc::c_int = 1;
    let value = (&raw const second).cast();
    let len = size_of_val(&second) as libc::socklen_t;
    // SAFETY: an open socket, and an int.
    unsafe { libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, value, len) };
}

/// What of it the system knows; nothing where it does not tell. `waits`: for something of the
/// peer.
#[must_use]
pub fn unanswered(socket: &Socket, waits: bool) -> Unanswered {
    let mut bytes: libc::c_int = 0;
    // SAFETY: an open socket, and a place for an int.
    let told = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    let any = told == 0 && bytes > 0;
    if !any && !waits {
        return Unanswered::default();
    }
    // SAFETY: integers, for which zeros are a value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut len = size_of_val(&info) as libc::socklen_t;
    let into = (&raw mut info).cast();
    // SAFETY: an open socket, and a place of this length; the system writes no more than that.
    let told = unsafe { libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, into, &raw mut len) };
    let repeated = match any {
        // The last question to a receiver without room may be under way.
        true => info.tcpi_unacked > 0 && info.tcpi_retransmits > 0 || info.tcpi_probes > 1,
        false => info.tcpi_probes >= QUESTIONS,
    };
    Unanswered { any, repeated: told == 0 && repeated, silent: Duration::from_millis(info.tcpi_last_ack_recv.into()) }
}

/// Receives into these pieces. None: nothing is there.
///
/// # Errors
/// The connection is over.
pub fn receive(socket: &Socket, pieces: &[libc::iovec]) -> Result<Option<usize>, Failure> {
    // SAFETY: as in `send`.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = pieces.as_ptr().cast_mut();
    message.msg_iovlen = pieces.len() as _;
    // SAFETY: the pieces name memory that is writable until the operation's end is told, or our
    // own.
    let n = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
    match usize::try_from(n) {
        Ok(0) => Err(Failure::Ended),
        Ok(n) => Ok(Some(n)),
        Err(_) => match io::Error::last_os_error() {
            e if matches!(e.kind(), ErrorKind::WouldBlock) => Ok(None),
            e if matches!(e.kind(), ErrorKind::Interrupted) => receive(socket, pieces),
            e => Err(e.into()),
        },
    }
}

/// Descriptors that this process may have at a time.
#[must_use]
pub fn descriptors_max() -> usize {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(usize::MAX, |(soft, _)| usize::try_from(soft).unwrap_or(usize::MAX))
}

/// Takes connections.
pub struct Listener {
    socket: Socket,
    port: u16,
    buffers: [Option<usize>; 2],
}

impl Listener {
    /// Listens at an address's port, of all addresses of the host unless `only`.
    ///
    /// # Errors
    /// The system's.
    pub fn bind(at: SocketAddr, only: bool) -> io::Result<Listener> {
        let bind = |ip: IpAddr| {
            let to = SocketAddr::new(ip, at.port());
            let socket = make(to)?;
            if ip.is_ipv6() {
                socket.set_only_v6(only)?;
            }
            socket.set_reuse_address(true)?;
            socket.bind(&to.into())?;
            socket.listen(BACKLOG)?;
            let port = socket.local_addr()?.as_socket().map_or(0, |a| a.port());
            Ok::<_, io::Error>(Listener { socket, port, buffers: [None; 2] })
        };
        if only {
            return bind(at.ip());
        }
        match bind(Ipv6Addr::UNSPECIFIED.into()) {
            // No IPv6 on this host.
            Err(e) if !matches!(e.kind(), ErrorKind::AddrInUse | ErrorKind::PermissionDenied) => {
                bind(Ipv4Addr::UNSPECIFIED.into())
            }
            result => result,
        }
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its descriptor.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Of what is accepted from now on.
    pub fn set_buffers(&mut self, buffers: [Option<usize>; 2]) {
        self.buffers = buffers;
        set_buffers(&self.socket, buffers);
    }

    /// The next connection, if one waits.
    ///
    /// # Errors
    /// The system's: there is no descriptor left.
    pub fn accept(&self, silence: Duration) -> io::Result<Option<(Socket, SocketAddr)>> {
        loop {
            let (socket, from) = match self.socket.accept() {
                Ok(accepted) => accepted,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(None),
                // One that was given up meanwhile.
                Err(e) if matches!(e.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => continue,
                Err(e) => return Err(e),
            };
            let Some(from) = from.as_socket() else { continue };
            let from = match from.ip() {
                IpAddr::V6(ip) => SocketAddr::new(ip.to_canonical(), from.port()),
                IpAddr::V4(_) => from,
            };
            bound_near(&socket, from.ip(), self.buffers);
            if socket.set_nonblocking(true).and_then(|()| set_options(&socket, silence)).is_ok() {
                return Ok(Some((socket, from)));
            }
        }
    }
}

/// A socket that is ready.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    /// As given to [`Poll::add`].
    pub id: u64,
    /// Something can be read, or reading says why not.
    pub readable: bool,
    /// There is room to write, or writing says why not.
    pub writable: bool,
    /// Both directions are over.
    pub over: bool,
}

/// The set of sockets.
pub struct Poll(Epoll);

impl Poll {
    /// None in it.
    ///
    /// # Errors
    /// The system's.
    pub fn new() -> io::Result<Poll> {
        Ok(Poll(Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?))
    }

    /// Its descriptor: readable when one of them is ready.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.0.0.as_raw_fd()
    }

    fn event(id: u64, read: bool, write: bool) -> EpollEvent {
        let mut flags = EpollFlags::empty();
        flags.set(EpollFlags::EPOLLIN, read);
        flags.set(EpollFlags::EPOLLOUT, write);
        EpollEvent::new(flags, id)
    }

    /// One more.
    ///
    /// # Errors
    /// The system's.
    pub fn add(&self, fd: RawFd, id: u64, read: bool, write: bool) -> io::Result<()> {
        // SAFETY: the caller's socket is open.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        Ok(self.0.add(fd, Self::event(id, read, write))?)
    }

    /// Something else is waited for.
    pub fn modify(&self, fd: RawFd, id: u64, read: bool, write: bool) {
        // SAFETY: as above.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        let _ = self.0.modify(fd, &mut Self::event(id, read, write));
    }

    /// One less.
    pub fn remove(&self, fd: RawFd) {
        // SAFETY: as above.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        let _ = self.0.delete(fd);
    }

    /// Those that are ready. The system begins where it ended last time.
    pub fn look(&self, out: &mut Vec<Ready>) {
        let mut events = [EpollEvent::empty(); READY_MAX];
        let n = self.0.wait(&mut events, EpollTimeout::ZERO).unwrap_or(0);
        out.extend(events[..n].iter().map(|e| {
            let (flags, ends) = (e.events(), EpollFlags::EPOLLERR | EpollFlags::EPOLLHUP);
            let over = flags.intersects(ends);
            let (readable, writable) =
                (over || flags.contains(EpollFlags::EPOLLIN), over || flags.contains(EpollFlags::EPOLLOUT));
            Ready { id: e.data(), readable, writable, over }
        }));
    }
}

/// A dialling that is to say whether somebody is there.
pub struct Dial {
    socket: Socket,
    connecting: bool,
}

impl Dial {
    /// Dials.
    ///
    /// # Errors
    /// The system's.
    pub fn new(to: SocketAddr, silence: Duration) -> io::Result<Dial> {
        let (socket, connecting) = dial(to, [None; 2], silence)?;
        Ok(Dial { socket, connecting })
    }

    /// Whether somebody is, if that is known.
    #[must_use]
    pub fn result(&self) -> Option<Result<(), Code>> {
        if !self.connecting {
            return Some(Ok(()));
        }
        match connected(&self.socket) {
            Ok(true) => Some(Ok(())),
            Ok(false) => None,
            Err(failure) => Some(Err(failure.code(true))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1.1: without it each socket would have the least that there is, 4608 and 2304 bytes.
    #[test]
    fn buffers_of_no_bytes_are_those_of_the_system() {
        let mut listener = Listener::bind("127.0.0.1:0".parse().expect("address"), true).expect("a port");
        let sizes = |listener: &Listener| {
            let both = (listener.socket.recv_buffer_size(), listener.socket.send_buffer_size());
            (both.0.expect("known"), both.1.expect("known"))
        };
        let before = sizes(&listener);
        listener.set_buffers([Some(0), Some(0)]);
        assert_eq!(sizes(&listener), before);
        listener.set_buffers([Some(16 << 10), Some(8 << 10)]);
        assert_eq!(sizes(&listener), (32 << 10, 16 << 10));
    }

    /// T13.
    #[test]
    fn what_lies_between_two_of_one_host_is_bounded_unless_the_program_says_how_much() {
        let silence = Duration::from_secs(2);
        let mut listener = Listener::bind("127.0.0.1:0".parse().expect("address"), true).expect("a port");
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, listener.port()));
        let mut pair = |buffers| {
            listener.set_buffers(buffers);
            let (dialled, _) = dial(at, buffers, silence).expect("it listens");
            let accepted = std::iter::repeat_with(|| listener.accept(silence).expect("descriptors")).flatten().next();
            [dialled, accepted.expect("one comes").0].map(|socket| socket.send_buffer_size().expect("known"))
        };
        let [dialled, accepted] = pair([None; 2]);
        // (As much of it as the system grants, doubled.)
        assert!(dialled == accepted && dialled <= 2 * NEAR_SEND && dialled > 64 << 10, "{dialled} {accepted}");
        assert_eq!(pair([None, Some(8 << 10)]), [16 << 10; 2]);
    }

    /// T10.
    #[test]
    fn who_is_waited_for_is_asked_several_times_before_it_is_given_up() {
        let silence = Duration::from_secs(2);
        let of = |ms| Unanswered { any: false, repeated: false, silent: Duration::from_millis(ms) };
        assert!(!of(999).is_to_be_asked(silence) && of(1000).is_to_be_asked(silence));
        assert!(!of(3900).is_to_be_asked(Duration::from_secs(5)) && of(4000).is_to_be_asked(Duration::from_secs(5)));
        // What is under way is acknowledged, or sent again.
        assert!(!Unanswered { any: true, ..of(1500) }.is_to_be_asked(silence));
        assert!(super::super::WATCHES >= 2 * u32::from(QUESTIONS), "each look of the last second asks once");
    }

    #[test]
    fn who_has_no_room_or_was_asked_just_now_is_not_given_up() {
        let silence = Duration::from_secs(2);
        let of = |repeated, secs| Unanswered { any: true, repeated, silent: Duration::from_secs(secs) };
        assert!(of(true, 2).is_too_long(silence, silence));
        // It has told that there is no room.
        assert!(!of(false, 60).is_too_long(silence * 30, silence));
        // It was not asked anything for a minute, and was now.
        assert!(!of(true, 60).is_too_long(silence / 2, silence));
        // It goes slowly.
        assert!(!of(true, 1).is_too_long(silence * 30, silence));
    }
}

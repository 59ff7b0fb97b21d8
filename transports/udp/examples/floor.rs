//! What the kernel leaves to any protocol: half a round trip of messages of many sizes over plain
//! TCP, and over plain UDP datagrams of 1472 bytes in segmented super-packets, without any protocol
//! on top: no checksum of ours, no acknowledgement, no copy but the kernel's. Both ends poll.
//!
//! * `floor`: on loopback, the ends as two threads, and what the layout of a batch costs its
//!   sender.
//! * `floor layout`: only that. The copying itself too: `rep movsb` by the distance of source and
//!   destination modulo a page.
//! * `floor serve ADDR` and `floor client ADDR`: as two processes, for example in two namespaces
//!   joined by veth. The server ends with the client.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

const PORT: u16 = 7710;
const DATAGRAM_BYTES: usize = 1472;
/// Datagrams of that size in the largest super-packet.
const SEGMENTS: usize = 44;
const SIZES: [usize; 8] = [8, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
/// Both transports in turn, so often, each time for so long.
const TURNS: usize = 5;
const TURN: Duration = Duration::from_millis(200);
/// With silence for so long something was lost; the message is given up.
const SILENCE: Duration = Duration::from_secs(1);
const SERVER_PATIENCE: Duration = Duration::from_secs(60);
/// Says "this is over" to the server.
const OVER: usize = usize::MAX;

fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let parse = |text: &str| text.parse::<IpAddr>().map_err(|e| invalid(format!("'{text}': {e}")));
    match args.as_slice() {
        [] => {
            layout::table()?;
            let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
            let server = Server::bind(ip)?;
            let thread = std::thread::spawn(move || server.serve());
            client(ip)?;
            thread.join().map_err(|_| io::Error::other("the server thread panicked"))?
        }
        ["layout"] => layout::table(),
        ["serve", ip] => Server::bind(parse(ip)?)?.serve(),
        ["client", ip] => client(parse(ip)?),
        _ => Err(invalid("usage: floor [layout | serve ADDR | client ADDR]".into())),
    }
}

fn invalid(text: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, text)
}

fn set(s: &impl AsRawFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: the pointer and length describe `value`.
    match unsafe { libc::setsockopt(s.as_raw_fd(), level, name, (&raw const value).cast(), 4) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn datagrams(bind: SocketAddr) -> io::Result<UdpSocket> {
    let s = UdpSocket::bind(bind)?;
    s.set_nonblocking(true)?;
    set(&s, libc::SOL_UDP, libc::UDP_GRO, 1)?;
    // Beyond the system's limit where that is allowed.
    for (name, forced) in [(libc::SO_RCVBUF, libc::SO_RCVBUFFORCE), (libc::SO_SNDBUF, libc::SO_SNDBUFFORCE)] {
        set(&s, libc::SOL_SOCKET, forced, 16 << 20).or_else(|_| set(&s, libc::SOL_SOCKET, name, 16 << 20))?;
    }
    Ok(s)
}

/// Tells by the clock, now and then, that nothing has come for too long.
struct Patience {
    since: Instant,
    polls: u32,
    limit: Duration,
}

impl Patience {
    fn new(limit: Duration) -> Patience {
        Patience { since: Instant::now(), polls: 0, limit }
    }

    fn is_over(&mut self) -> bool {
        self.polls = self.polls.wrapping_add(1);
        self.polls.is_multiple_of(4096) && self.since.elapsed() > self.limit
    }
}

/// A message either way: `size` bytes, the first eight of which say how many there are.
trait Wire {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Its length; `None`: part of it was lost, or nothing came.
    fn receive(&mut self, buffer: &mut [u8], limit: Duration) -> io::Result<Option<usize>>;
}

fn length(buffer: &[u8]) -> usize {
    buffer.first_chunk().map_or(0, |b| u64::from_le_bytes(*b) as usize)
}

struct Tcp(TcpStream);

impl Wire for Tcp {
    fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.0.write(bytes) {
                Ok(n) => bytes = &bytes[n..],
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn receive(&mut self, buffer: &mut [u8], limit: Duration) -> io::Result<Option<usize>> {
        let (mut have, mut patience) = (0, Patience::new(limit));
        loop {
            match self.0.read(&mut buffer[have..]) {
                Ok(0) => return Ok(Some(OVER)),
                Ok(n) => have += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock && patience.is_over() => return Ok(None),
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
            if have >= 8 && (length(buffer) == OVER || have >= length(buffer)) {
                return Ok(Some(length(buffer)));
            }
        }
    }
}

struct Udp(UdpSocket);

impl Wire for Udp {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        set(
            &self.0,
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            if bytes.len() > DATAGRAM_BYTES { DATAGRAM_BYTES as i32 } else { 0 },
        )?;
        for batch in bytes.chunks(SEGMENTS * DATAGRAM_BYTES) {
            while let Err(e) = self.0.send(batch) {
                if e.kind() != ErrorKind::WouldBlock {
                    return Err(e);
                }
            }
        }
        Ok(())
    }

    fn receive(&mut self, buffer: &mut [u8], limit: Duration) -> io::Result<Option<usize>> {
        let (mut have, mut patience) = (0, Patience::new(limit));
        loop {
            match self.0.recv(&mut buffer[have..]) {
                Ok(n) => have += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock && patience.is_over() => return Ok(None),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionRefused) => {}
                Err(e) => return Err(e),
            }
            if have >= 8 && (length(buffer) == OVER || have >= length(buffer)) {
                return Ok(Some(length(buffer)));
            }
        }
    }
}

struct Server {
    ip: IpAddr,
    listener: TcpListener,
}

impl Server {
    fn bind(ip: IpAddr) -> io::Result<Server> {
        Ok(Server { ip, listener: TcpListener::bind((ip, PORT))? })
    }

    /// Tells its UDP port over TCP, then answers on whichever the client uses.
    fn serve(self) -> io::Result<()> {
        let (mut tcp, _) = self.listener.accept()?;
        tcp.set_nodelay(true)?;
        let udp = datagrams((self.ip, 0).into())?;
        let mut port = [0; 2];
        tcp.write_all(&udp.local_addr()?.port().to_le_bytes())?;
        tcp.read_exact(&mut port)?;
        udp.connect((tcp.peer_addr()?.ip(), u16::from_le_bytes(port)))?;
        tcp.set_nonblocking(true)?;
        let mut wires: [Box<dyn Wire>; 2] = [Box::new(Tcp(tcp)), Box::new(Udp(udp))];
        let mut buffer = buffer();
        loop {
            for wire in &mut wires {
                // Until the client says that it is the other's turn.
                loop {
                    match wire.receive(&mut buffer, SERVER_PATIENCE)? {
                        Some(OVER) => break,
                        Some(n) => wire.send(&buffer[..n])?,
                        None => return Ok(()),
                    }
                }
            }
            if length(&buffer[8..]) == OVER {
                return Ok(());
            }
        }
    }
}

fn buffer() -> Vec<u8> {
    vec![7; SIZES[SIZES.len() - 1] + 65536]
}

fn client(server: IpAddr) -> io::Result<()> {
    let mut tcp = TcpStream::connect((server, PORT))?;
    tcp.set_nodelay(true)?;
    let udp = datagrams((tcp.local_addr()?.ip(), 0).into())?;
    let mut port = [0; 2];
    tcp.read_exact(&mut port)?;
    tcp.write_all(&udp.local_addr()?.port().to_le_bytes())?;
    udp.connect((server, u16::from_le_bytes(port)))?;
    tcp.set_nonblocking(true)?;
    let mut wires: [Box<dyn Wire>; 2] = [Box::new(Tcp(tcp)), Box::new(Udp(udp))];
    println!("half a round trip, us: median of {TURNS} turns' medians (least, greatest)");
    println!("{:>8}  {:>24}  {:>24}  TCP / UDP", "bytes", "TCP", "UDP, super-packets");
    for (i, size) in SIZES.into_iter().enumerate() {
        let mut medians = [Vec::new(), Vec::new()];
        for turn in 0..TURNS {
            let last = i + 1 == SIZES.len() && turn + 1 == TURNS;
            for (wire, medians) in wires.iter_mut().zip(&mut medians) {
                medians.push(ping_pong(&mut **wire, size)?);
                let over = [OVER.to_le_bytes(), (if last { OVER } else { 0 }).to_le_bytes()].concat();
                wire.send(&over)?;
            }
        }
        let text = |m: &mut Vec<f64>| {
            m.sort_by(f64::total_cmp);
            format!("{:.2} ({:.2}-{:.2})", m[TURNS / 2], m[0], m[TURNS - 1])
        };
        let (tcp, udp) = (text(&mut medians[0]), text(&mut medians[1]));
        println!("{size:>8}  {tcp:>24}  {udp:>24}  {:.2}", medians[0][TURNS / 2] / medians[1][TURNS / 2]);
    }
    Ok(())
}

/// Median half round trip in microseconds.
fn ping_pong(wire: &mut dyn Wire, size: usize) -> io::Result<f64> {
    let mut buffer = buffer();
    let mut times = Vec::new();
    let start = Instant::now();
    while start.elapsed() < TURN || times.len() < 3 {
        buffer[..8].copy_from_slice(&size.to_le_bytes());
        let before = Instant::now();
        wire.send(&buffer[..size])?;
        match wire.receive(&mut buffer, SILENCE)? {
            Some(n) if n == size => times.push(before.elapsed().as_secs_f64() * 5e5),
            _ => return Err(io::Error::new(ErrorKind::TimedOut, format!("a message of {size} bytes was lost"))),
        }
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

/// What the layout of a batch costs its sender.
mod layout {
    use super::*;

    const ROUNDS: usize = 4000;
    const HEAD_BYTES: usize = 64;

    pub fn table() -> io::Result<()> {
        println!("`rep movsb` of 32 KiB, ns, by (destination - source) modulo 4096:");
        for distance in [0, 1, 32, 63, 64, 128, 2048] {
            println!("{distance:>8}  {:.0}", movsb_ns(distance));
        }
        let (a, b) = (datagrams((Ipv4Addr::LOCALHOST, 0).into())?, datagrams((Ipv4Addr::LOCALHOST, 0).into())?);
        a.connect(b.local_addr()?)?;
        set(&a, libc::SOL_UDP, libc::UDP_SEGMENT, DATAGRAM_BYTES as i32)?;
        println!("sending {SEGMENTS} datagrams of {DATAGRAM_BYTES} bytes in one call on loopback, median us:");
        for (what, layout) in [
            ("in one piece, at a cache line", Layout::Whole(0)),
            ("in one piece, 16 bytes beside", Layout::Whole(16)),
            ("heads and payloads gathered", Layout::Gathered),
            ("the same, copied into one piece first", Layout::Copied),
        ] {
            println!("{:>8.2}  {what}", send_us(&a, &b, layout)?);
        }
        Ok(())
    }

    enum Layout {
        Whole(usize),
        Gathered,
        Copied,
    }

    fn aligned(bytes: usize) -> (Vec<u8>, usize) {
        let v = vec![1u8; bytes + 8192];
        let start = v.as_ptr().align_offset(4096);
        (v, start)
    }

    fn send_us(a: &UdpSocket, b: &UdpSocket, layout: Layout) -> io::Result<f64> {
        let total = SEGMENTS * DATAGRAM_BYTES;
        let (heads, h) = aligned(SEGMENTS * HEAD_BYTES);
        let (user, u) = aligned(total + 64);
        let (mut arena, s) = aligned(total);
        let mut sink = vec![0; 1 << 17];
        let mut times = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            let before = Instant::now();
            match layout {
                Layout::Whole(off) => a.send(&user[u + off..][..total])?,
                Layout::Gathered => gather(a, &parts(&heads[h..], &user[u + 16..]))?,
                Layout::Copied => {
                    let mut rest = &mut arena[s..];
                    for part in parts(&heads[h..], &user[u + 16..]) {
                        rest[..part.len()].copy_from_slice(&part);
                        rest = &mut rest[part.len()..];
                    }
                    a.send(&arena[s..][..total])?
                }
            };
            times.push(before.elapsed().as_secs_f64() * 1e6);
            while b.recv(&mut sink).is_ok() {}
        }
        times.sort_by(f64::total_cmp);
        Ok(times[ROUNDS / 2])
    }

    /// Head, payload, head, payload...
    fn parts<'a>(heads: &'a [u8], user: &'a [u8]) -> Vec<IoSlice<'a>> {
        let payload = DATAGRAM_BYTES - HEAD_BYTES;
        let pair = |i: usize| [&heads[i * HEAD_BYTES..][..HEAD_BYTES], &user[i * payload..][..payload]];
        (0..SEGMENTS).flat_map(pair).map(IoSlice::new).collect()
    }

    fn gather(s: &UdpSocket, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        // SAFETY: zero is valid for msghdr; IoSlice has the layout of iovec, and the kernel only
        // reads.
        let n = unsafe {
            let mut m: libc::msghdr = std::mem::zeroed();
            m.msg_iov = parts.as_ptr().cast_mut().cast();
            m.msg_iovlen = parts.len() as _;
            libc::sendmsg(s.as_raw_fd(), &raw const m, 0)
        };
        if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n as usize) }
    }

    #[cfg(target_arch = "x86_64")]
    fn movsb_ns(distance: usize) -> f64 {
        const BYTES: usize = 32 << 10;
        let (mut v, start) = aligned(4 * BYTES);
        let from = v[start..].as_mut_ptr();
        let times = (0..2000).map(|_| {
            let before = Instant::now();
            // SAFETY: both ranges lie in `v`, apart from each other.
            unsafe {
                let to = from.add(2 * BYTES + distance);
                std::arch::asm!("rep movsb", inout("rcx") BYTES => _, inout("rsi") from => _, inout("rdi") to => _);
            }
            before.elapsed().as_secs_f64() * 1e9
        });
        let mut times: Vec<f64> = times.collect();
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn movsb_ns(_distance: usize) -> f64 {
        f64::NAN
    }
}

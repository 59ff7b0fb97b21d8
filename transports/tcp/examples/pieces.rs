//! What plain TCP leaves to a protocol that frames and checks what it carries: half a round trip of
//! messages that go in pieces, each behind a head of 64 bytes, and the same with the CRC32C of each
//! piece at both ends and a copy at the receiver. Both ends poll.
//!
//! `pieces` on loopback, the ends as two threads; `pieces serve ADDR` and `pieces client ADDR` as
//! two processes, for example in two namespaces joined by veth. The server ends with the client.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

const PORT: u16 = 7711;
const HEAD_BYTES: usize = 64;
const SIZES: [usize; 5] = [16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
/// Bytes of a piece, and whether its check and a copy come on top.
const WAYS: [(usize, bool); 4] = [(65_000, false), (65_000, true), (1 << 20, false), (1 << 20, true)];
/// All ways in turn, so often, each time for so long.
const TURNS: usize = 5;
const TURN: Duration = Duration::from_millis(150);
/// With silence for so long the other end is gone.
const SILENCE: Duration = Duration::from_secs(10);

fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        [] => {
            let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
            let listener = TcpListener::bind((ip, PORT))?;
            let server = std::thread::spawn(move || serve(&listener));
            client(ip)?;
            server.join().map_err(|_| io::Error::other("the server thread panicked"))?
        }
        ["serve", ip] => serve(&TcpListener::bind((parse(ip)?, PORT))?),
        ["client", ip] => client(parse(ip)?),
        _ => Err(io::Error::new(ErrorKind::InvalidInput, "usage: pieces [serve ADDR | client ADDR]")),
    }
}

fn parse(text: &str) -> io::Result<IpAddr> {
    text.parse().map_err(|e| io::Error::new(ErrorKind::InvalidInput, format!("'{text}': {e}")))
}

struct End {
    tcp: TcpStream,
    /// The message, and where a piece is read to if it is copied from there.
    message: Vec<u8>,
    piece: Vec<u8>,
}

impl End {
    fn new(tcp: TcpStream) -> io::Result<End> {
        tcp.set_nodelay(true)?;
        // As bulk connections do: BBR, the default of some systems, paces every burst.
        socket2::SockRef::from(&tcp).set_tcp_congestion(b"cubic")?;
        tcp.set_nonblocking(true)?;
        Ok(End { tcp, message: vec![7; SIZES[SIZES.len() - 1]], piece: vec![0; 1 << 20] })
    }

    fn send(&mut self, size: usize, (piece, checked): (usize, bool)) -> io::Result<()> {
        let chunks = self.message[..size].chunks(piece);
        for chunk in chunks {
            let mut head = [0; HEAD_BYTES];
            let words = [size, piece, usize::from(checked), chunk.len()];
            for (word, to) in words.iter().zip(head.chunks_exact_mut(8)) {
                to.copy_from_slice(&word.to_le_bytes());
            }
            let crc = if checked { weir_wire::crc32c_append(0, chunk) } else { 0 };
            head[32..36].copy_from_slice(&crc.to_le_bytes());
            let mut parts = &mut [io::IoSlice::new(&head), io::IoSlice::new(chunk)][..];
            while !parts.is_empty() {
                match self.tcp.write_vectored(parts) {
                    Ok(n) => io::IoSlice::advance_slices(&mut parts, n),
                    Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                    Err(e) => return Err(e),
                }
            }
        }
        Ok(())
    }

    /// Size and way of the message that came; `None` at the end of the connection.
    fn receive(&mut self) -> io::Result<Option<(usize, (usize, bool))>> {
        let mut at = 0;
        loop {
            let mut head = [0; HEAD_BYTES];
            if !fill(&mut self.tcp, &mut head)? {
                return Ok(None);
            }
            let word = |i: usize| usize::from_le_bytes(head[8 * i..][..8].try_into().unwrap_or_default());
            let (size, piece, checked, len) = (word(0), word(1), word(2) != 0, word(3));
            let to = self.message.get_mut(at..at + len).ok_or_else(|| io::Error::other("longer than a message"))?;
            if checked {
                let from = &mut self.piece[..len];
                fill(&mut self.tcp, from)?;
                if weir_wire::crc32c_append(0, from).to_le_bytes() != head[32..36] {
                    return Err(io::Error::other("a piece was altered"));
                }
                to.copy_from_slice(from);
            } else {
                fill(&mut self.tcp, to)?;
            }
            at += len;
            if at >= size {
                return Ok(Some((size, (piece, checked))));
            }
        }
    }
}

/// False: the connection ended.
fn fill(tcp: &mut TcpStream, mut to: &mut [u8]) -> io::Result<bool> {
    let (mut polls, mut since) = (0u32, Instant::now());
    while !to.is_empty() {
        match tcp.read(to) {
            Ok(0) => return Ok(false),
            Ok(n) => {
                to = &mut to[n..];
                since = Instant::now();
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                polls = polls.wrapping_add(1);
                if polls.is_multiple_of(4096) && since.elapsed() > SILENCE {
                    return Err(ErrorKind::TimedOut.into());
                }
            }
            Err(e) => return Err(e),
        }
    }
    Ok(true)
}

fn serve(listener: &TcpListener) -> io::Result<()> {
    let mut end = End::new(listener.accept()?.0)?;
    while let Some((size, way)) = end.receive()? {
        end.send(size, way)?;
    }
    Ok(())
}

fn client(server: IpAddr) -> io::Result<()> {
    let mut end = End::new(TcpStream::connect((server, PORT))?)?;
    println!("half a round trip, us: median of {TURNS} turns' medians (least, greatest)");
    print!("{:>8}", "bytes");
    for (piece, checked) in WAYS {
        print!("  {:>26}", format!("{piece}{}", if checked { ", CRC and copy" } else { "" }));
    }
    println!();
    for size in SIZES {
        let mut medians = WAYS.map(|_| Vec::new());
        for _ in 0..TURNS {
            for (way, medians) in WAYS.into_iter().zip(&mut medians) {
                medians.push(ping_pong(&mut end, size, way)?);
            }
        }
        print!("{size:>8}");
        for m in &mut medians {
            m.sort_by(f64::total_cmp);
            print!("  {:>26}", format!("{:.1} ({:.1}-{:.1})", m[TURNS / 2], m[0], m[TURNS - 1]));
        }
        println!();
    }
    Ok(())
}

/// Median half round trip, us.
fn ping_pong(end: &mut End, size: usize, way: (usize, bool)) -> io::Result<f64> {
    let mut times = Vec::new();
    let start = Instant::now();
    while start.elapsed() < TURN || times.len() < 3 {
        let before = Instant::now();
        end.send(size, way)?;
        if end.receive()? != Some((size, way)) {
            return Err(io::Error::other("another message came back"));
        }
        times.push(before.elapsed().as_secs_f64() * 5e5);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

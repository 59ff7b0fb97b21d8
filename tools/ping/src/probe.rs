//! Datagrams and connections of plain sockets, by which a host's ways are told apart from Weir's
//! own.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};

const MARK: [u8; 8] = *b"weirping";
/// Mark and number.
pub const HEAD_BYTES: usize = 16;
/// Largest datagram that is sent.
pub const MOST_BYTES: usize = 65_000;
/// Datagrams of one question.
const MOST_DATAGRAMS: usize = 1000;
/// Numbers that may count at a time.
const MOST_EXPECTED: usize = 4096;
/// Connections of strangers that are looked at at a time.
const MOST_CONNECTIONS: usize = 32;
/// How long a stranger may take to say his number.
const STRANGER: Duration = Duration::from_secs(1);
/// How often threads look whether they are still needed.
const LOOK: Duration = Duration::from_millis(2);

type Counts = BTreeMap<u64, BTreeMap<usize, u32>>;

/// Sockets of a host that hear probes, until this is dropped.
pub struct Probes {
    counts: Arc<Mutex<Counts>>,
    over: Arc<AtomicBool>,
    /// Where datagrams are heard.
    pub udp_port: u16,
    /// Where connections are taken.
    pub tcp_port: u16,
}

fn lock(counts: &Mutex<Counts>) -> MutexGuard<'_, Counts> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Probes {
    /// Opens them at ports of this range, the last that are free first, as endpoints take the
    /// first; at any free ones if it is none.
    ///
    /// # Errors
    /// The system's.
    pub fn open(port: u16, span: u16) -> std::io::Result<Probes> {
        let (udp, tcp) = if span > 1 {
            let ports = (0..span).rev().filter_map(|i| port.checked_add(i));
            let found = ports.filter_map(|p| Some((udp_at(p).ok()?, tcp_at(p).ok()?))).next();
            found.ok_or_else(|| {
                std::io::Error::other(format!(
                    "no port of {port}-{} is free for probes",
                    u32::from(port) + u32::from(span) - 1
                ))
            })?
        } else {
            (udp_at(0)?, tcp_at(0)?)
        };
        udp.set_read_timeout(Some(Duration::from_millis(50)))?;
        tcp.set_nonblocking(true)?;
        let (udp_port, tcp_port) = (udp.local_addr()?.port(), tcp.local_addr()?.port());
        let (counts, over) = (Arc::<Mutex<Counts>>::default(), Arc::new(AtomicBool::new(false)));
        let (own, stop) = (counts.clone(), over.clone());
        std::thread::spawn(move || hear(&udp, &own, &stop));
        let (own, stop) = (counts.clone(), over.clone());
        std::thread::spawn(move || take(&tcp, &own, &stop));
        Ok(Probes { counts, over, udp_port, tcp_port })
    }

    /// This number counts from now on.
    pub fn expect(&self, nonce: u64) {
        let mut counts = lock(&self.counts);
        if counts.len() < MOST_EXPECTED {
            counts.entry(nonce).or_default();
        }
    }

    /// Datagrams of a number, by size.
    #[must_use]
    pub fn heard(&self, nonce: u64) -> BTreeMap<usize, u32> {
        lock(&self.counts).get(&nonce).cloned().unwrap_or_default()
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// Of both families where the host has both.
fn udp_at(port: u16) -> std::io::Result<UdpSocket> {
    UdpSocket::bind((Ipv6Addr::UNSPECIFIED, port)).or_else(|_| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)))
}

fn tcp_at(port: u16) -> std::io::Result<TcpListener> {
    TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))
}

/// The number of a probe.
fn number(bytes: &[u8]) -> Option<u64> {
    let (mark, rest) = bytes.split_first_chunk::<8>()?;
    (*mark == MARK).then(|| rest.first_chunk().map(|b| u64::from_le_bytes(*b))).flatten()
}

fn head(nonce: u64) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[..8].copy_from_slice(&MARK);
    head[8..].copy_from_slice(&nonce.to_le_bytes());
    head
}

fn hear(socket: &UdpSocket, counts: &Mutex<Counts>, over: &AtomicBool) {
    let mut buffer = vec![0; MOST_BYTES + 1];
    while !over.load(Ordering::Relaxed) {
        let Ok((len, _)) = socket.recv_from(&mut buffer) else { continue };
        let Some(nonce) = number(&buffer[..len]) else { continue };
        if let Some(by_size) = lock(counts).get_mut(&nonce) {
            *by_size.entry(len).or_default() += 1;
        }
    }
}

fn take(listener: &TcpListener, counts: &Arc<Mutex<Counts>>, over: &AtomicBool) {
    let open = Arc::new(AtomicUsize::new(0));
    while !over.load(Ordering::Relaxed) {
        let Ok((stream, _)) = listener.accept() else {
            std::thread::sleep(LOOK);
            continue;
        };
        if open.fetch_add(1, Ordering::Relaxed) >= MOST_CONNECTIONS {
            open.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let (counts, open) = (counts.clone(), open.clone());
        std::thread::spawn(move || {
            let _ = repeat(stream, &counts);
            open.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

/// Repeats an expected number.
fn repeat(mut stream: TcpStream, counts: &Mutex<Counts>) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(STRANGER))?;
    stream.set_write_timeout(Some(STRANGER))?;
    let mut bytes = [0; HEAD_BYTES];
    stream.read_exact(&mut bytes)?;
    if number(&bytes).is_some_and(|nonce| lock(counts).contains_key(&nonce)) {
        stream.write_all(&bytes)?;
    }
    Ok(())
}

/// Sends datagrams that nobody may cut; returns how many of each size left.
///
/// # Errors
/// No socket can be had, or nothing left and why.
pub fn send(to: SocketAddr, nonce: u64, sizes: &[usize], copies: u32) -> std::io::Result<BTreeMap<usize, u32>> {
    let any = if to.is_ipv4() { IpAddr::from(Ipv4Addr::UNSPECIFIED) } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    match to {
        SocketAddr::V4(_) => sockopt::set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::PROBE)?,
        SocketAddr::V6(_) => sockopt::set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::PROBE)?,
    }
    let mut left = BTreeMap::new();
    let mut failed = None;
    for &size in sizes.iter().take(MOST_DATAGRAMS) {
        let mut bytes = vec![0; size.clamp(HEAD_BYTES, MOST_BYTES)];
        bytes[..HEAD_BYTES].copy_from_slice(&head(nonce));
        for _ in 0..copies.min(16) {
            match socket.send_to(&bytes, to) {
                Ok(_) => *left.entry(bytes.len()).or_default() += 1,
                Err(error) => failed = Some(error),
            }
        }
    }
    match failed {
        Some(error) if left.is_empty() => Err(error),
        _ => Ok(left),
    }
}

/// Connects and has the number repeated; returns how long that took.
///
/// # Errors
/// In words what did not work.
pub fn connect(to: SocketAddr, nonce: u64, limit: Duration) -> Result<Duration, String> {
    let begun = Instant::now();
    let mut stream = TcpStream::connect_timeout(&to, limit).map_err(|error| match error.kind() {
        std::io::ErrorKind::TimedOut | std::io::ErrorKind::WouldBlock => {
            format!("not answered within {} ms", limit.as_millis())
        }
        std::io::ErrorKind::ConnectionRefused => "refused".to_owned(),
        _ => error.to_string(),
    })?;
    let left = limit.saturating_sub(begun.elapsed()).max(Duration::from_millis(1));
    let set = stream.set_read_timeout(Some(left)).and_then(|()| stream.write_all(&head(nonce)));
    let mut back = [0; HEAD_BYTES];
    set.and_then(|()| stream.read_exact(&mut back))
        .map_err(|_| "taken by somebody who is not the other end".to_owned())?;
    match number(&back) {
        Some(number) if number == nonce => Ok(begun.elapsed()),
        _ => Err("taken by somebody who is not the other end".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn wait_for(probes: &Probes, nonce: u64, count: u32) -> u32 {
        let begun = Instant::now();
        loop {
            let sum = probes.heard(nonce).values().sum();
            if sum >= count || begun.elapsed() > Duration::from_secs(20) {
                return sum;
            }
            std::thread::sleep(LOOK);
        }
    }

    #[test]
    fn only_expected_numbers_count_and_only_they_are_repeated() {
        let probes = Probes::open(0, 1).unwrap();
        probes.expect(5);
        let to = SocketAddr::new(LOCAL, probes.udp_port);
        send(to, 6, &[100], 2).unwrap();
        assert_eq!(send(to, 5, &[100, 1200], 3).unwrap(), [(100, 3), (1200, 3)].into());
        assert_eq!(wait_for(&probes, 5, 6), 6);
        assert!(probes.heard(6).is_empty());
        let to = SocketAddr::new(LOCAL, probes.tcp_port);
        assert!(connect(to, 5, Duration::from_secs(20)).is_ok());
        assert!(connect(to, 6, Duration::from_secs(20)).unwrap_err().contains("not the other end"));
    }

    #[test]
    fn what_is_not_there_is_refused_in_a_word() {
        let free = TcpListener::bind((LOCAL, 0)).unwrap().local_addr().unwrap();
        assert_eq!(connect(free, 1, Duration::from_secs(20)).unwrap_err(), "refused");
    }

    #[test]
    fn numbers_are_read_from_probes_only() {
        assert_eq!(number(&head(77)), Some(77));
        assert_eq!((number(b"weirping"), number(b""), number(&[0; 16])), (None, None, None));
    }
}

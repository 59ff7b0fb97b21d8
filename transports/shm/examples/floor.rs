//! What shared memory costs between two processes: half a round trip of small and large messages,
//! through the ring and by direct reading; waking who sleeps; how long looking at many peers takes;
//! what an idle peer holds. Prints medians of the turns with least and greatest.
//!
//! `cargo run --release -p weir-shm --example floor`, on a quiet machine with two processors. The
//! second process is this program again.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::AsRawFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use weir_shm::{Config, Event, PeerIx, RemotePiece, Shm, State};

const KEY: [u8; 32] = [0x5a; 32];
const TURNS: usize = 7;
const TURN: Duration = Duration::from_millis(20);
/// Messages up to the end of a record go whole, longer ones in pieces of so many bytes (a whole
/// number of lines with its header).
const PIECES: [usize; 3] = [8 << 10, 16 << 10, 32 << 10];
const SIZES: [usize; 7] = [4 << 10, 16 << 10, 64 << 10, 128 << 10, 256 << 10, 1 << 20, 4 << 20];
const PEERS: [usize; 4] = [1, 8, 64, 256];
const PATIENCE: Duration = Duration::from_secs(20);

/// What a record says: its kind.
const ECHO: u16 = 1;
/// A piece of a message of (u64) bytes in all, which comes back when it is whole; its first 16
/// bytes are the length and the size of pieces.
const BEGIN: u16 = 2;
const PIECE: u16 = 3;
/// An address and a length (u64 each), to be pulled; the answer is a DONE, then the same the other
/// way.
const PULL: u16 = 4;
const DONE: u16 = 5;
/// Sleep before looking for the next record, with the wait descriptor.
const SLEEP: u16 = 6;
const OVER: u16 = 7;

struct Side {
    shm: Shm,
    peer: PeerIx,
    begin: Instant,
    events: Vec<Event>,
    /// What is received; another than what is sent, as in the MPI benchmarks.
    buffer: Vec<u8>,
    out: Vec<u8>,
    looks: u32,
}

fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().collect();
    match args.get(1).map(String::as_str) {
        Some("serve") => serve(args[2].parse().map_err(io::Error::other)?),
        _ => measure(),
    }
}

fn serve(id: u64) -> io::Result<()> {
    let shm = Shm::open(id, &KEY, config()).map_err(io::Error::other)?;
    io::stdout().write_all(b"r")?;
    io::stdout().flush()?;
    let mut side = Side::wait(shm, None)?;
    loop {
        let kind = side.next()?;
        match kind {
            ECHO => side.small(ECHO)?,
            BEGIN => {
                let (len, piece) = side.begun()?;
                side.collect(len, piece)?;
                side.through_ring(len, piece)?;
            }
            PULL => {
                let at = side.pull_told()?;
                side.done()?;
                side.told(at)?;
                side.expect(DONE)?;
            }
            SLEEP => side.sleep_then_echo()?,
            _ => return Ok(()),
        }
    }
}

impl Side {
    fn wait(shm: Shm, id: Option<u64>) -> io::Result<Side> {
        let mut shm = shm;
        let begin = Instant::now();
        let mut events = Vec::new();
        if let Some(id) = id {
            shm.connect(id, 0).map_err(io::Error::other)?;
        }
        loop {
            shm.poll(nanos(begin), &mut events);
            match events.pop() {
                Some(Event::Up { peer, .. }) => {
                    let out: Vec<u8> = (0..4usize << 20).map(|i| i as u8).collect();
                    return Ok(Side { shm, peer, begin, events, buffer: out.clone(), out, looks: 0 });
                }
                Some(Event::Over { why, .. }) => return Err(io::Error::other(why)),
                None if begin.elapsed() > PATIENCE => return Err(io::ErrorKind::TimedOut.into()),
                None => std::thread::yield_now(),
            }
        }
    }

    /// As an engine looks: the ring each time, the sockets now and then.
    #[inline]
    fn idle(&mut self) -> io::Result<()> {
        std::hint::spin_loop();
        self.looks += 1;
        if self.looks.is_multiple_of(64) {
            self.shm.poll(nanos(self.begin), &mut self.events);
            if self.shm.state(self.peer) != Some(State::Up) && self.shm.next_ready().is_none() {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
        }
        Ok(())
    }

    /// Waits for a record, and takes it into the buffer's beginning if it is short.
    #[inline]
    fn next(&mut self) -> io::Result<u16> {
        loop {
            let ready = self.shm.next_ready().map(|peer| self.shm.try_recv(peer));
            if let Some(record) = ready.transpose().map_err(io::Error::other)?.flatten() {
                let len = record.len().min(64);
                record.bytes().copy_to(0, &mut self.buffer[..len]);
                return Ok(record.kind());
            }
            self.idle()?;
        }
    }

    fn expect(&mut self, kind: u16) -> io::Result<()> {
        let got = self.next()?;
        if got == kind { Ok(()) } else { Err(io::Error::other(format!("record {got}, not {kind}"))) }
    }

    #[inline]
    fn small(&mut self, kind: u16) -> io::Result<()> {
        self.shm.send(self.peer, kind, &[IoSlice::new(&[1; 8])]).map_err(io::Error::other)
    }

    fn done(&mut self) -> io::Result<()> {
        self.small(DONE)
    }

    fn word(&self, i: usize) -> usize {
        let bytes = self.buffer[8 * i..8 * i + 8].try_into().expect("8 bytes");
        u64::from_ne_bytes(bytes) as usize
    }

    fn begun(&self) -> io::Result<(usize, usize)> {
        Ok((self.word(0).min(self.buffer.len()), self.word(1).max(64)))
    }

    fn collect(&mut self, len: usize, _piece: usize) -> io::Result<()> {
        let mut at = 0;
        while at < len {
            if let Some(record) = self.shm.try_recv(self.peer).map_err(io::Error::other)? {
                at += record.bytes().copy_to(0, &mut self.buffer[at..len]);
                continue;
            }
            self.idle()?;
        }
        Ok(())
    }

    /// Sends `len` bytes in pieces.
    fn through_ring(&mut self, len: usize, piece: usize) -> io::Result<()> {
        let mut head = [0; 16];
        head[..8].copy_from_slice(&(len as u64).to_ne_bytes());
        head[8..].copy_from_slice(&(piece as u64).to_ne_bytes());
        self.shm.send(self.peer, BEGIN, &[IoSlice::new(&head)]).map_err(io::Error::other)?;
        let mut at = 0;
        while at < len {
            let end = (at + piece - 8).min(len);
            match self.shm.send(self.peer, PIECE, &[IoSlice::new(&self.out[at..end])]) {
                Ok(()) => at = end,
                Err(weir_shm::SendError::Full) => self.idle()?,
                Err(e) => return Err(io::Error::other(e)),
            }
        }
        Ok(())
    }

    /// Tells where `len` bytes lie.
    fn told(&mut self, len: usize) -> io::Result<()> {
        let (at, len) = ((self.out.as_ptr() as u64).to_ne_bytes(), (len as u64).to_ne_bytes());
        self.shm.send(self.peer, PULL, &[IoSlice::new(&at), IoSlice::new(&len)]).map_err(io::Error::other)
    }

    fn pull_told(&mut self) -> io::Result<usize> {
        let (address, len) = (self.word(0) as u64, self.word(1).min(self.buffer.len()));
        let mut at = 0;
        while at < len {
            let remote = [RemotePiece { address: address + at as u64, len: (len - at) as u64 }];
            at += self.shm.pull(self.peer, &remote, &mut [IoSliceMut::new(&mut self.buffer[at..len])])?;
        }
        Ok(len)
    }

    fn sleep_then_echo(&mut self) -> io::Result<()> {
        while !self.shm.prepare_sleep() {
            if self.shm.next_ready().is_some() {
                break;
            }
            self.shm.poll(nanos(self.begin), &mut self.events);
        }
        let mut fd = libc::pollfd { fd: self.shm.wait_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: the pointer is to one pollfd.
        unsafe { libc::poll(&raw mut fd, 1, 1000) };
        self.shm.cancel_sleep();
        self.shm.poll(nanos(self.begin), &mut self.events);
        self.expect(ECHO)?;
        self.small(ECHO)
    }
}

fn nanos(begin: Instant) -> u64 {
    u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

fn measure() -> io::Result<()> {
    println!("load at the beginning: {}", std::fs::read_to_string("/proc/loadavg")?.trim());
    let mut server = Server::start()?;
    let mut id = [0; 8];
    getrandom::fill(&mut id).map_err(io::Error::other)?;
    let shm = Shm::open(u64::from_ne_bytes(id), &KEY, config()).map_err(io::Error::other)?;
    let mut side = Side::wait(shm, Some(server.id))?;
    println!("resident of the pair's memory, KiB: {} when new", resident_kib()?);
    println!("direct reading: {:?}", side.shm.can_pull(side.peer));

    println!("\nhalf a round trip, us: median of {TURNS} turns (least-greatest)");
    report("8 B, both spin", &mut || {
        round_trips(&mut side, &mut |side| {
            side.small(ECHO)?;
            side.expect(ECHO)
        })
    })?;
    for len in SIZES {
        for piece in PIECES.into_iter().filter(|piece| *piece <= len) {
            report(&format!("{} KiB, two copies, pieces of {} KiB", len >> 10, piece >> 10), &mut || {
                round_trips(&mut side, &mut |side| {
                    side.through_ring(len, piece)?;
                    side.expect(BEGIN)?;
                    side.collect(len, piece)
                })
            })?;
        }
        if side.shm.can_pull(side.peer) == Some(Ok(())) {
            report(&format!("{} KiB, process_vm_readv", len >> 10), &mut || {
                round_trips(&mut side, &mut |side| {
                    side.told(len)?;
                    side.expect(DONE)?;
                    side.expect(PULL)?;
                    side.pull_told()?;
                    side.done()
                })
            })?;
        }
    }

    println!("\none way to a sleeper and back, us (the answer finds a spinning side)");
    report("8 B, the other sleeps", &mut || {
        let mut all = Vec::new();
        for _ in 0..100 {
            side.small(SLEEP)?;
            std::thread::sleep(Duration::from_micros(300));
            let begin = Instant::now();
            side.small(ECHO)?;
            side.expect(ECHO)?;
            all.push(begin.elapsed().as_secs_f64() * 1e6);
        }
        Ok(median(&mut all))
    })?;

    println!("\nlooking at all peers when none has sent, ns");
    for peers in PEERS {
        looking_at(peers)?;
    }
    let used = resident_kib()?;
    // The other side gives back its own ring's pages; it spins and polls meanwhile, as this one
    // does.
    let until = side.begin.elapsed() + Duration::from_millis(700);
    while side.begin.elapsed() < until {
        side.idle()?;
    }
    println!("\nresident of the pair's memory, KiB: {used} after all this, {} after 0.7 s without", resident_kib()?);
    side.small(OVER)?;
    server.child.wait()?;
    println!("\nload at the end: {}", std::fs::read_to_string("/proc/loadavg")?.trim());
    Ok(())
}

struct Server {
    child: Child,
    id: u64,
}

impl Server {
    fn start() -> io::Result<Server> {
        let mut id = [0; 8];
        getrandom::fill(&mut id).map_err(io::Error::other)?;
        let id = u64::from_ne_bytes(id);
        let program = std::env::current_exe()?;
        let mut child = Command::new(program).args(["serve", &id.to_string()]).stdout(Stdio::piped()).spawn()?;
        let out = child.stdout.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        out.read_exact(&mut [0; 1])?;
        Ok(Server { child, id })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One turn of round trips; half the mean one, in microseconds.
fn round_trips(side: &mut Side, trip: &mut dyn FnMut(&mut Side) -> io::Result<()>) -> io::Result<f64> {
    for _ in 0..10 {
        trip(side)?;
    }
    let (begin, mut count) = (Instant::now(), 0u32);
    while begin.elapsed() < TURN {
        for _ in 0..20 {
            trip(side)?;
        }
        count += 20;
    }
    Ok(begin.elapsed().as_secs_f64() * 1e6 / f64::from(count) / 2.0)
}

fn median(all: &mut [f64]) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn report(name: &str, turn: &mut dyn FnMut() -> io::Result<f64>) -> io::Result<()> {
    let mut all = (0..TURNS).map(|_| turn()).collect::<io::Result<Vec<f64>>>()?;
    let middle = median(&mut all);
    println!("{name:48} {middle:9.3} ({:.3}-{:.3})", all[0], all[TURNS - 1]);
    Ok(())
}

/// Of a pair's mapping, what is in memory.
fn resident_kib() -> io::Result<u64> {
    let maps = std::fs::read_to_string("/proc/self/smaps")?;
    let lines = maps.lines().skip_while(|line| !line.contains("memfd:weir-shm"));
    let rss = lines.skip(1).find_map(|line| line.strip_prefix("Rss:")).unwrap_or("0 kB");
    rss.trim().trim_end_matches(" kB").parse().map_err(io::Error::other)
}

/// An endpoint with so many idle peers, all in this process.
fn looking_at(count: usize) -> io::Result<()> {
    let base = 0x1000 + count as u64 * 0x1_0000 + u64::from(std::process::id()) * 0x1_0000_0000;
    let mut hub = Shm::open(base, &KEY, Config::default()).map_err(io::Error::other)?;
    let mut others = Vec::new();
    let (mut events, mut now) = (Vec::new(), 0);
    for i in 1..=count as u64 {
        let mut other = Shm::open(base + i, &KEY, Config::default()).map_err(io::Error::other)?;
        other.connect(base, now).map_err(io::Error::other)?;
        let begin = Instant::now();
        while other.counters().peers_up == 0 || hub.counters().peers_up < i {
            now += 30_000;
            hub.poll(now, &mut events);
            other.poll(now, &mut events);
            if begin.elapsed() > PATIENCE {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        others.push(other);
    }
    report(&format!("{count} peers"), &mut || {
        let begin = Instant::now();
        for _ in 0..100_000 {
            assert!(std::hint::black_box(&mut hub).next_ready().is_none());
        }
        Ok(begin.elapsed().as_secs_f64() * 1e9 / 1e5)
    })
}

/// Idle pages go back sooner than they do else, so that it can be seen here.
fn config() -> Config {
    Config { trim_ns: 200_000_000, ..Config::default() }
}

//! What the tests on namespaces share.

#![allow(dead_code)] // each test program uses its part

use libtest_mimic::Failed;
use nix::sys::socket::{setsockopt, sockopt};
use std::net::{SocketAddr, UdpSocket};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weir_emulate::model::Counters;
use weir_emulate::stats::Stats;
use weir_emulate::{Network, spec::Spec};

/// Payload of a full UDP packet below an MTU of 1200, so that it fits every network of the tests.
pub const PAYLOAD_BYTES: usize = 1158;

/// Nothing takes this long, however busy the machine, but what never comes.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Starts the network that this text describes.
pub fn net(toml: &str) -> Result<Network, Failed> {
    let network = Network::start(&Spec::from_toml(toml)?)?;
    for warning in network.warnings() {
        eprintln!("warning: {warning}");
    }
    Ok(network)
}

/// A UDP socket on a host's address, with a buffer as large as may be had.
pub fn socket(network: &Network, host: usize, name: &str) -> Result<UdpSocket, Failed> {
    const BUFFER_BYTES: usize = 4 << 20;
    let address = network.host(host)?.ipv4(name)?;
    let socket = network.host(host)?.run(|| UdpSocket::bind((address, 0)))??;
    // Only the system's own root may go beyond the system's limit.
    if setsockopt(&socket, sockopt::RcvBufForce, &BUFFER_BYTES).is_err() {
        setsockopt(&socket, sockopt::RcvBuf, &BUFFER_BYTES)?;
    }
    socket.set_read_timeout(Some(LIMIT))?;
    Ok(socket)
}

/// What a call on a socket says in the end: one that waits for a limited time is broken off where
/// the process is stopped and goes on, as a debugger or a suspended machine may have it.
pub fn undisturbed<T>(mut call: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// A full packet that carries a number.
pub fn numbered(number: u64) -> [u8; PAYLOAD_BYTES] {
    let mut data = [0; PAYLOAD_BYTES];
    data[..8].copy_from_slice(&number.to_be_bytes());
    data
}

/// Sends packets that carry the numbers from 0.
pub fn send_all(socket: &UdpSocket, to: SocketAddr, count: u64) -> std::io::Result<()> {
    (0..count).try_for_each(|number| socket.send_to(&numbered(number), to).map(drop))
}

/// Packets that a pipe has taken and not yet forwarded or counted as dropped.
fn under_way(pipe: &Counters) -> u64 {
    let dropped = pipe.dropped_queue + pipe.dropped_loss + pipe.dropped_cut + pipe.dropped_collisions;
    (pipe.offered_packets + pipe.duplicated).saturating_sub(pipe.forwarded_packets + dropped)
}

/// Waits until nothing is under way in the emulator: what the hosts have sent was handed to its
/// receivers, or is counted as dropped.
pub fn settle(network: &Network) -> Result<Stats, Failed> {
    let (start, mut before) = (Instant::now(), None);
    loop {
        let stats = network.stats()?;
        let pipes = || stats.links.iter().flat_map(|l| [&l.up, &l.down]).flatten();
        let sent: u64 = stats.links.iter().map(|l| l.interface_tx_packets).sum();
        // Before it answers the data plane takes what waits for it: if nothing came since the last
        // answer, nothing waits.
        let now = (sent, pipes().map(|p| p.offered_packets).sum::<u64>());
        if pipes().all(|p| under_way(p) == 0) && before == Some(now) {
            return Ok(stats);
        }
        if start.elapsed() > LIMIT {
            return Err(format!("packets are under way for ever: {stats}").into());
        }
        before = Some(now);
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The numbers that arrive, in their order, while `send` runs and after it until nothing is under
/// way any more. `send` is given the count up to which it has been heard: one more than the largest
/// number.
pub fn receive_while(
    network: &Network,
    sink: &UdpSocket,
    send: impl FnOnce(&AtomicU64) -> Result<(), Failed>,
) -> Result<Vec<u64>, Failed> {
    /// What the emulator has handed to the kernel, the kernel delivers without waiting for anybody.
    const QUIET: Duration = Duration::from_millis(300);
    sink.set_read_timeout(Some(QUIET))?;
    let (heard, settled) = (AtomicU64::new(0), AtomicBool::new(false));
    let receive = || {
        let (mut data, mut numbers) = ([0; 2000], Vec::new());
        loop {
            let last = settled.load(Ordering::Acquire);
            match undisturbed(|| sink.recv(&mut data)) {
                Ok(length) => {
                    if let (PAYLOAD_BYTES, Some(number)) = (length, data.first_chunk::<8>()) {
                        numbers.push(u64::from_be_bytes(*number));
                        heard.fetch_max(u64::from_be_bytes(*number) + 1, Ordering::Relaxed);
                    }
                }
                Err(_) if last => return numbers,
                Err(_) => {}
            }
        }
    };
    std::thread::scope(|scope| {
        let receiver = scope.spawn(receive);
        let outcome = send(&heard).and_then(|()| settle(network));
        settled.store(true, Ordering::Release);
        let numbers = receiver.join().map_err(|_| "receiver failed")?;
        outcome.map(|_| numbers)
    })
}

/// Sends packets from the first host to the second, and returns the numbers that arrived.
pub fn receive_all(network: &Network, count: u64) -> Result<Vec<u64>, Failed> {
    /// So far may the sender be ahead of the receiver: no more than fits the least buffer of a
    /// socket, or what nobody counts would be lost wherever the receiver has to wait for a
    /// processor.
    const AHEAD: u64 = 75;
    const GROUP: u64 = 25;
    /// All that the sender is ahead by may be lost on the way: then it goes on after this time.
    const LOST: Duration = Duration::from_millis(500);
    let (sink, source) = (socket(network, 1, "net1")?, socket(network, 0, "net1")?);
    let to = sink.local_addr()?;
    receive_while(network, &sink, |heard| {
        for number in 0..count {
            let start = Instant::now();
            while number % GROUP == 0 && number > heard.load(Ordering::Relaxed) + AHEAD && start.elapsed() < LOST {
                std::thread::sleep(Duration::from_micros(50));
            }
            source.send_to(&numbered(number), to)?;
        }
        Ok(())
    })
}

/// Fails unless the value lies in the range.
pub fn bounded(what: &str, value: u64, range: Range<u64>) -> Result<(), Failed> {
    if range.contains(&value) {
        Ok(())
    } else {
        Err(format!("{what}: {value} is not in {}..{}", range.start, range.end).into())
    }
}

/// Measures until a value lies in the range.
///
/// For what depends on how fast this machine is and what else it does: that spoils a measurement,
/// or many in a row, but a wrong emulator is wrong in each. The caller says what a wrong one would
/// show; what must hold each time, also on a busy machine, `measure` checks itself.
pub fn right_once(
    what: &str,
    range: Range<u64>,
    mut measure: impl FnMut() -> Result<u64, Failed>,
) -> Result<(), Failed> {
    const PATIENCE: Duration = Duration::from_secs(20);
    const LEAST_TRIES: u32 = 10;
    let off = |value: u64| value.abs_diff(value.clamp(range.start, range.end - 1));
    let (start, mut tries, mut nearest) = (Instant::now(), 0, None);
    while tries < LEAST_TRIES || start.elapsed() < PATIENCE {
        let value = measure()?;
        if range.contains(&value) {
            return Ok(());
        }
        nearest = nearest.into_iter().chain([value]).min_by_key(|v| off(*v));
        tries += 1;
    }
    let nearest = nearest.unwrap_or_default();
    Err(format!("{what}: in {tries} measurements never in {}..{}, at best {nearest}", range.start, range.end).into())
}

/// Fails unless `hits` of `count` trials is within five standard deviations of the probability.
pub fn within_five_sigma(what: &str, hits: u64, count: u64, probability: f64) -> Result<(), Failed> {
    let mean = count as f64 * probability;
    let sigma = (mean * (1.0 - probability)).sqrt();
    let range = (mean - 5.0 * sigma).max(0.0) as u64..(mean + 5.0 * sigma).ceil() as u64 + 1;
    bounded(what, hits, range)
}

//! What the tests on namespaces share.

#![allow(dead_code)] // each test program uses its part

use libtest_mimic::Failed;
use std::net::{SocketAddr, UdpSocket};
use std::ops::Range;
use std::time::Duration;
use weir_emulate::{Network, spec::Spec};

/// Payload of a full UDP packet below an MTU of 1200, so that it fits every network of the tests.
pub const PAYLOAD_BYTES: usize = 1158;

/// Starts the network that this text describes.
pub fn net(toml: &str) -> Result<Network, Failed> {
    let network = Network::start(&Spec::from_toml(toml)?)?;
    for warning in network.warnings() {
        eprintln!("warning: {warning}");
    }
    Ok(network)
}

/// A UDP socket with a large buffer on a host's address.
pub fn socket(network: &Network, host: usize, name: &str) -> Result<UdpSocket, Failed> {
    let address = network.host(host)?.ipv4(name)?;
    let socket = network.host(host)?.run(|| UdpSocket::bind((address, 0)))??;
    nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::RcvBuf, &(4 << 20))?;
    socket.set_read_timeout(Some(Duration::from_secs(5)))?;
    Ok(socket)
}

/// Sends packets that carry the numbers from 0.
pub fn send_all(socket: &UdpSocket, to: SocketAddr, count: u64) -> std::io::Result<()> {
    let mut data = [0; PAYLOAD_BYTES];
    for number in 0..count {
        data[..8].copy_from_slice(&number.to_be_bytes());
        socket.send_to(&data, to)?;
    }
    Ok(())
}

/// Sends packets from the first host to the second, in groups small enough for the receiver's buffer, and returns the
/// numbers that arrived.
pub fn receive_all(network: &Network, count: u64) -> Result<Vec<u64>, Failed> {
    const GROUP: u64 = 50;
    let (sink, source) = (socket(network, 1, "net1")?, socket(network, 0, "net1")?);
    let to = sink.local_addr()?;
    sink.set_read_timeout(Some(Duration::from_millis(600)))?;
    std::thread::scope(|scope| {
        let receiver = scope.spawn(move || {
            let (mut data, mut numbers) = ([0; 2000], Vec::new());
            while let Ok(length) = sink.recv(&mut data) {
                if let (PAYLOAD_BYTES, Some(number)) = (length, data.first_chunk::<8>()) {
                    numbers.push(u64::from_be_bytes(*number));
                }
            }
            numbers
        });
        let mut data = [0; PAYLOAD_BYTES];
        for number in 0..count {
            data[..8].copy_from_slice(&number.to_be_bytes());
            source.send_to(&data, to)?;
            if number % GROUP == GROUP - 1 {
                std::thread::sleep(Duration::from_micros(300));
            }
        }
        receiver.join().map_err(|_| "receiver failed".into())
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

/// Fails unless `hits` of `count` trials is within five standard deviations of the probability.
pub fn within_five_sigma(what: &str, hits: u64, count: u64, probability: f64) -> Result<(), Failed> {
    let mean = count as f64 * probability;
    let sigma = (mean * (1.0 - probability)).sqrt();
    let range = (mean - 5.0 * sigma).max(0.0) as u64..(mean + 5.0 * sigma).ceil() as u64 + 1;
    bounded(what, hits, range)
}

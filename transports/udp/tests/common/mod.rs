//! What the tests of real sockets share.

// Each test program uses its part.
#![allow(dead_code)]

use std::io::IoSlice;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use weir_udp::{RxInfo, UdpConfig, UdpTransport};

pub fn config(bind: &str) -> UdpConfig {
    UdpConfig { bind: Some(bind.parse().expect("an address")), ..UdpConfig::default() }
}

pub fn loopback() -> UdpTransport {
    UdpTransport::bind(&config("127.0.0.1:0")).expect("a socket on loopback")
}

/// Nothing takes this long, however busy the machine, but what never comes.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Reads until `n` datagrams are here, or none comes any more.
pub fn collect(t: &mut UdpTransport, n: usize) -> Vec<(RxInfo, Vec<u8>)> {
    let mut out = Vec::new();
    let end = Instant::now() + LIMIT;
    while out.len() < n && Instant::now() < end {
        if t.recv(8, |info, d| out.push((*info, d.to_vec()))).expect("a usable socket") == 0 {
            t.wait(Some(Duration::from_millis(50))).expect("ppoll");
        }
    }
    out
}

pub fn send(t: &mut UdpTransport, to: SocketAddr, head: &[u8], payload: &[u8]) {
    t.push(to, None, head, &[IoSlice::new(payload)]);
}

pub fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + seed * 17 + (i >> 8)) as u8).collect()
}

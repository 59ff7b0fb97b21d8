//! Does segmentation offload work here? Asked on loopback when a socket is opened, quietly: old
//! kernels lack it, some sandboxes pretend.
//!
//! What the network card or a tunnel does later is another matter; there the sending half falls
//! back by itself.

use crate::counters::UdpCounters;
use crate::rx::Rx;
use crate::sys;
use crate::tx::Tx;
use socket2::{Domain, Socket, Type};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// What the kernel can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offload {
    /// Most segments of a super-packet (`UDP_MAX_SEGMENTS`: 64, from Linux 6.9 on 128); 1: none.
    pub segments: usize,
    /// Received super-packets come whole.
    pub receive: bool,
}

/// All kernels with the feature take so many.
const SEGMENTS: usize = 64;
/// Newer kernels take so many.
const MORE_SEGMENTS: usize = 128;
/// Loopback delivers within the call; this is for a starved machine.
const PATIENCE: Duration = Duration::from_millis(20);

/// Asks.
pub fn probe(v6: bool) -> Offload {
    // Where loopback is down nothing can be tried: trust the kernel, and the fallback when sending.
    let unknown = Offload { segments: SEGMENTS, receive: true };
    let Some((from, to, addr)) = pair(v6) else {
        return unknown;
    };
    if sys::get_option(from.as_raw_fd(), libc::SOL_UDP, libc::UDP_SEGMENT).is_err() {
        return Offload { segments: 1, receive: false };
    }
    let receive = sys::set_option(to.as_raw_fd(), libc::SOL_UDP, libc::UDP_GRO, 1).is_ok();
    let mut rx = Rx::new(to.as_raw_fd());
    // Two equal datagrams and a shorter one.
    let three = |rx: &mut Rx| round(&from, rx, addr, v6, SEGMENTS, &[100, 100, 37]);
    match three(&mut rx) {
        Round::Unsent => return unknown,
        Round::Right => {}
        Round::Singly => {
            return Offload { segments: 1, receive };
        }
        Round::Wrong if receive => {
            let _ = sys::set_option(to.as_raw_fd(), libc::SOL_UDP, libc::UDP_GRO, 0);
            let segments = if three(&mut rx) == Round::Right { SEGMENTS } else { 1 };
            return Offload { segments, receive: false };
        }
        Round::Wrong => {
            return Offload { segments: 1, receive };
        }
    }
    let many = round(&from, &mut rx, addr, v6, MORE_SEGMENTS, &[1; MORE_SEGMENTS]);
    Offload { segments: if many == Round::Right { MORE_SEGMENTS } else { SEGMENTS }, receive }
}

fn pair(v6: bool) -> Option<(Socket, Socket, SocketAddr)> {
    let ip = if v6 { IpAddr::V6(Ipv6Addr::LOCALHOST) } else { IpAddr::V4(Ipv4Addr::LOCALHOST) };
    let domain = if v6 { Domain::IPV6 } else { Domain::IPV4 };
    let make = || {
        let s = Socket::new(domain, Type::DGRAM.nonblocking().cloexec(), None).ok()?;
        s.bind(&SocketAddr::new(ip, 0).into()).ok()?;
        Some(s)
    };
    let (from, to) = (make()?, make()?);
    let addr = to.local_addr().ok()?.as_socket()?;
    Some((from, to, addr))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    /// Went as one super-packet, arrived as it was.
    Right,
    /// Had to be sent one by one.
    Singly,
    /// Did not arrive as it was.
    Wrong,
    /// Could not be sent at all.
    Unsent,
}

/// Sends datagrams of these sizes together and looks at what arrives.
fn round(from: &Socket, rx: &mut Rx, to: SocketAddr, v6: bool, segments: usize, sizes: &[usize]) -> Round {
    let mut tx = Tx::new(from.as_raw_fd(), v6, false, segments, 0);
    let mut counters = UdpCounters::default();
    let want: Vec<Vec<u8>> = sizes.iter().enumerate().map(|(i, &n)| vec![i as u8; n]).collect();
    for d in &want {
        tx.push::<&[u8]>((to, None), d, &[], &mut counters);
    }
    tx.flush(&mut counters);
    if counters.tx_datagrams == 0 {
        return Round::Unsent;
    }
    let own = from.local_addr().ok().and_then(|a| a.as_socket());
    let mut got: Vec<Vec<u8>> = Vec::new();
    while got.len() < want.len() {
        let read = rx.receive(want.len(), &mut counters, |info, d| {
            // Others may send to this port too.
            if Some(info.remote) == own {
                got.push(d.to_vec());
            }
        });
        if !matches!(read, Ok(1..)) && !rx.wait(PATIENCE) {
            break;
        }
    }
    match (got == want, counters.tx_offload_failures) {
        (true, 0) => Round::Right,
        (_, 1..) => Round::Singly,
        (false, 0) => Round::Wrong,
    }
}

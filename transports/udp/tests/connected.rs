//! The second socket, which is connected to the peer that most arrives from: nothing is lost by it,
//! doubled or told wrong.

mod common;

use common::{LIMIT, collect, loopback, pattern, send};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::FromRawFd;
use std::time::{Duration, Instant};
use weir_net::Datagrams;
use weir_udp::{RxInfo, UdpConfig, UdpTransport};

/// Enough datagrams of one peer to connect to it at any time.
const MANY: u32 = 600;

fn address(t: &UdpTransport) -> SocketAddr {
    t.local_addrs()[0]
}

/// `n` datagrams from `a` to `b` and each back again; what goes and comes is checked.
fn ping_pong(a: &mut UdpTransport, b: &mut UdpTransport, n: u32) {
    let (at_a, at_b) = (address(a), address(b));
    let pass = |from: &mut UdpTransport, to: &mut UdpTransport, at: (SocketAddr, SocketAddr), i: u32| {
        send(from, at.1, &i.to_le_bytes(), b"ping");
        from.flush().expect("flush");
        let got = collect(to, 1);
        assert_eq!(got.len(), 1, "datagram {i} to {}", at.1);
        assert_eq!((got[0].0.remote, &got[0].1[..4]), (at.0, &i.to_le_bytes()[..]));
    };
    for i in 0..n {
        pass(a, b, (at_a, at_b), i);
        pass(b, a, (at_b, at_a), i);
    }
}

fn nothing_more(t: &mut UdpTransport) {
    for _ in 0..200 {
        assert_eq!(t.recv(8, |info, d| panic!("{info:?} {d:?}")).expect("recv"), 0);
    }
}

#[test]
fn a_peer_that_is_alone_is_connected_to_and_others_are_heard_beside_it() {
    let (mut a, mut b, mut c) = (loopback(), loopback(), loopback());
    ping_pong(&mut a, &mut b, MANY);
    assert_eq!((a.counters().connects, b.counters().connects), (1, 1));
    ping_pong(&mut c, &mut a, 5);
    ping_pong(&mut a, &mut b, 5);
    ping_pong(&mut b, &mut c, 5);
    assert_eq!(a.counters().connects, 1, "five datagrams are no reason to turn away");
    nothing_more(&mut a);
    nothing_more(&mut b);
    let exact = |t: &UdpTransport, n: u64| assert_eq!((t.counters().rx_datagrams, t.counters().tx_datagrams), (n, n));
    exact(&a, u64::from(MANY) + 10);
    exact(&b, u64::from(MANY) + 10);
}

#[test]
fn it_turns_to_another_when_that_one_is_alone() {
    let (mut a, mut b, mut c) = (loopback(), loopback(), loopback());
    ping_pong(&mut a, &mut b, MANY);
    ping_pong(&mut c, &mut a, MANY);
    assert_eq!(a.counters().connects, 2);
    // Of those that take turns none is alone.
    for _ in 0..MANY {
        ping_pong(&mut a, &mut b, 1);
        ping_pong(&mut a, &mut c, 1);
    }
    assert_eq!(a.counters().connects, 2);
    nothing_more(&mut a);
}

/// What is sent at once goes after what is queued, whether there is a connected socket or not, and
/// is counted as any other.
#[test]
fn what_is_sent_at_once_keeps_its_place() {
    let (mut a, mut b) = (loopback(), loopback());
    for connected in [0, 1] {
        assert_eq!(a.counters().connects, connected);
        let before = (a.counters().tx_datagrams, a.counters().tx_bytes);
        for round in 0..50u32 {
            send(&mut a, address(&b), &(2 * round).to_le_bytes(), b"");
            Datagrams::send_now(&mut a, 0, (address(&b), None), &(2 * round + 1).to_le_bytes());
            Datagrams::send_now(&mut a, 0, (address(&b), None), &round.to_le_bytes());
            let got: Vec<u32> = collect(&mut b, 3)
                .iter()
                .map(|(_, bytes)| u32::from_le_bytes(bytes[..4].try_into().expect("four bytes")))
                .collect();
            assert_eq!(got, [2 * round, 2 * round + 1, round]);
        }
        assert_eq!((a.counters().tx_datagrams - before.0, a.counters().tx_bytes - before.1), (150, 600));
        ping_pong(&mut a, &mut b, MANY);
    }
    Datagrams::send_now(&mut a, 0, (address(&b), None), &[0; 65_535]);
    assert_eq!(a.counters().tx_too_long, 1);
    nothing_more(&mut b);
}

#[test]
fn it_can_be_left_out() {
    let plain =
        || UdpTransport::bind(&UdpConfig { connected: false, ..common::config("127.0.0.1:0") }).expect("a socket");
    let (mut a, mut b) = (plain(), loopback());
    ping_pong(&mut a, &mut b, MANY);
    assert_eq!((a.counters().connects, b.counters().connects), (0, 1));
    assert_eq!(a.fds()[1], -1);
}

#[test]
fn super_packets_go_through_it() {
    let (mut a, mut b) = (loopback(), loopback());
    ping_pong(&mut a, &mut b, MANY);
    let to = address(&b);
    let sizes = [1400, 1400, 1400, 900, 1400, 1400, 20];
    let want: Vec<Vec<u8>> = sizes.iter().enumerate().map(|(i, &n)| pattern(i, n)).collect();
    for d in &want {
        send(&mut a, to, &[], d);
    }
    a.flush().expect("flush");
    let got: Vec<Vec<u8>> = collect(&mut b, want.len()).into_iter().map(|(_, d)| d).collect();
    assert_eq!(got, want);
    if a.offload_segments() > 1 {
        assert_eq!(a.counters().tx_super_packets, 2);
    }
    nothing_more(&mut b);
}

/// A socket that serves several addresses tells which one a datagram came to, connected or not;
/// what goes to the same peer from another address of ours does not go through it.
#[test]
fn addresses_of_ours_are_told_apart() {
    let ip = |last: u8| IpAddr::from([127, 0, 0, last]);
    let cfg = UdpConfig { addrs: vec![ip(1), ip(2)], ..UdpConfig::default() };
    let (mut a, mut b) = (UdpTransport::bind(&cfg).expect("a socket"), loopback());
    let at_b = address(&b);
    let port = address(&a).port();
    let mut exchange = |own: IpAddr| {
        send(&mut b, SocketAddr::new(own, port), b"to", b"");
        b.flush().expect("flush");
        let got = collect(&mut a, 1);
        assert_eq!(got.iter().map(|(i, _)| (i.remote, i.local)).collect::<Vec<_>>(), [(at_b, Some(own))]);
        a.push(at_b, Some(own), b"back", &[]);
        a.flush().expect("flush");
        let got = collect(&mut b, 1);
        assert_eq!(got.iter().map(|(i, _)| i.remote).collect::<Vec<_>>(), [SocketAddr::new(own, port)]);
        a.counters().connects
    };
    for _ in 0..MANY {
        exchange(ip(2));
    }
    assert_eq!(exchange(ip(2)), 1);
    for _ in 0..MANY {
        // Bound to the other address as it is, it stays what it was.
        assert_eq!(exchange(ip(1)), 1);
    }
    exchange(ip(2));
    nothing_more(&mut a);
}

#[test]
fn a_connected_peer_that_is_gone_is_told_and_its_successor_is_heard() {
    let (mut a, mut b) = (loopback(), loopback());
    ping_pong(&mut a, &mut b, MANY);
    let gone = address(&b);
    drop(b);
    let end = Instant::now() + LIMIT;
    while !a.has_unreachable() {
        assert!(Instant::now() < end, "nobody says that {gone} is gone");
        send(&mut a, gone, b"there?", b"");
        a.flush().expect("flush");
        a.recv(8, |_, _| panic!("who answers?")).expect("recv");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(a.take_unreachable().any(|u| u.remote == gone && u.kind == std::io::ErrorKind::ConnectionRefused));
    let mut other = loopback();
    ping_pong(&mut other, &mut a, MANY);
    assert_eq!(a.counters().connects, 2);
}

#[test]
fn a_sleeper_hears_both() {
    let (mut a, mut b, mut c) = (loopback(), loopback(), loopback());
    ping_pong(&mut a, &mut b, MANY);
    let to = address(&a);
    for turn in 0..3 {
        let sender = if turn == 1 { &mut c } else { &mut b };
        let mut got: Vec<RxInfo> = Vec::new();
        send(sender, to, b"wake", b"");
        sender.flush().expect("flush");
        let end = Instant::now() + LIMIT;
        while got.is_empty() {
            assert!(a.wait(Some(LIMIT)).expect("ppoll"), "asleep beside a datagram");
            a.recv(8, |info, _| got.push(*info)).expect("recv");
            assert!(Instant::now() < end);
        }
        assert_eq!(got[0].remote, address(sender));
    }
}

/// Somebody who takes its descriptor for his own: what is sent goes by the first socket.
#[test]
fn a_broken_one_is_left() {
    let (mut a, mut b) = (loopback(), loopback());
    ping_pong(&mut a, &mut b, MANY);
    // SAFETY: the descriptor is open; the transport still owns it.
    let second = std::mem::ManuallyDrop::new(unsafe { socket2::Socket::from_raw_fd(a.fds()[1]) });
    second.shutdown(std::net::Shutdown::Write).expect("shutdown");
    send(&mut a, address(&b), b"lost", b"");
    a.flush().expect("flush");
    assert_eq!(a.counters().tx_refused, 1);
    ping_pong(&mut a, &mut b, 5);
}

/// Only in the moment of binding do the two share their port.
#[test]
fn nobody_else_gets_the_port() {
    let (mut a, mut b) = (loopback(), loopback());
    ping_pong(&mut a, &mut b, MANY);
    let other = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).expect("a socket");
    other.set_reuse_address(true).expect("an option");
    let refused = other.bind(&address(&a).into()).expect_err("the port is taken");
    assert_eq!(refused.kind(), std::io::ErrorKind::AddrInUse);
}

//! Sockets on bad days: nobody there, nonsense sizes.

mod common;

use common::{LIMIT, collect, config, loopback, pattern, send};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;
use weir_udp::UdpTransport;

/// A port nobody listens on.
fn dead_port() -> SocketAddr {
    loopback().local_addrs()[0]
}

#[test]
fn a_refused_destination_disturbs_no_other() {
    let (mut a, mut b) = (loopback(), loopback());
    let dead = dead_port();
    let to = b.local_addrs()[0];
    for i in 0..20u8 {
        send(&mut a, dead, &[0; 30], &[]);
        a.flush().expect("flush");
        send(&mut a, to, &[i; 30], &[]);
        a.flush().expect("flush");
    }
    let got: Vec<u8> = collect(&mut b, 20).into_iter().map(|(_, d)| d[0]).collect();
    assert_eq!(got, (0..20).collect::<Vec<u8>>());
    assert_eq!(a.recv(4, |_, _| panic!("nobody answers")).expect("still usable"), 0);
    assert!(a.counters().icmp_errors > 0, "{:?}", a.counters());
    let hints: Vec<_> = a.take_unreachable().collect();
    assert_eq!(hints.len(), 1, "one hint a destination: {hints:?}");
    assert_eq!((hints[0].remote, hints[0].kind), (dead, ErrorKind::ConnectionRefused));
    assert_eq!(a.take_unreachable().count(), 0);
}

#[test]
fn a_waiting_owner_is_woken_once_by_an_error_not_for_ever() {
    let mut a = loopback();
    send(&mut a, dead_port(), b"anyone?", &[]);
    a.flush().expect("flush");
    assert!(a.wait(Some(LIMIT)).expect("ppoll"), "the ICMP message wakes");
    assert_eq!(a.recv(4, |_, _| panic!("nobody answers")).expect("still usable"), 0);
    assert!(!a.wait(Some(Duration::from_millis(20))).expect("ppoll"), "then it is quiet");
    assert_eq!(a.counters().icmp_errors, 1);
}

#[test]
fn a_datagram_too_long_for_the_interface_leaves_nothing_that_wakes() {
    let mut a = UdpTransport::bind(&config("[::1]:0")).expect("a socket on the IPv6 loopback address");
    let mut b = UdpTransport::bind(&config("[::1]:0")).expect("a socket on the IPv6 loopback address");
    let to = b.local_addrs()[0];
    // Less than UDP over IPv6 may carry, more than the loopback interface's 65536 leave after both
    // headers.
    for len in [65_500, 100] {
        send(&mut a, to, &[], &pattern(len, len));
        a.flush().expect("flush");
    }
    assert_eq!(collect(&mut b, 1)[0].1.len(), 100);
    assert_eq!(a.counters().tx_too_long, 1);
    assert!(!a.wait(Some(Duration::from_millis(20))).expect("ppoll"), "a sleeper would spin");
    assert_eq!(a.take_unreachable().count(), 0);
}

#[test]
fn datagrams_beyond_what_ip_carries_are_counted_and_dropped() {
    let (mut a, mut b) = (loopback(), loopback());
    let to = b.local_addrs()[0];
    for len in [65_507, 65_508, 200_000, 1] {
        send(&mut a, to, &[], &pattern(len, len));
        a.flush().expect("flush");
    }
    let lens: Vec<usize> = collect(&mut b, 2).iter().map(|(_, d)| d.len()).collect();
    assert_eq!((lens, a.counters().tx_too_long), (vec![65_507, 1], 2));
}

#[test]
fn an_empty_datagram_is_delivered_as_such() {
    let (mut a, mut b) = (loopback(), loopback());
    send(&mut a, b.local_addrs()[0], &[], &[]);
    send(&mut a, b.local_addrs()[0], &[], &[]);
    a.flush().expect("flush");
    let got = collect(&mut b, 2);
    assert_eq!(got.iter().map(|(_, d)| d.len()).collect::<Vec<_>>(), [0, 0]);
}

#[test]
fn an_ipv6_destination_of_an_ipv4_socket_is_refused_quietly() {
    let mut a = loopback();
    send(&mut a, "[2001:db8::1]:9".parse().expect("an address"), b"x", &[]);
    a.flush().expect("flush");
    assert_eq!((a.counters().tx_refused, a.counters().tx_datagrams), (1, 0));
}

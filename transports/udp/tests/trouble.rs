//! Sockets on bad days: nobody there, nonsense sizes, injected faults, a disk that is full.

mod common;

use common::{LIMIT, collect, config, loopback, pattern, send};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;
use weir_udp::{UdpConfig, UdpTransport};

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
    // Less than UDP over IPv6 may carry, more than the loopback interface's 65536 leave after both headers.
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

#[test]
fn injected_faults_show_at_the_receiver() {
    let bad = UdpConfig { faults: Some("loss=20%,dup=10%,delay=1ms,seed=9".into()), ..config("127.0.0.1:0") };
    let mut a = UdpTransport::bind(&bad).expect("a socket");
    let mut b = loopback();
    let to = b.local_addrs()[0];
    for i in 0..500u32 {
        send(&mut a, to, &i.to_le_bytes(), &[]);
    }
    a.flush().expect("flush");
    let mut got = 0;
    // Held datagrams wake their owner, who then lets them go.
    while a.wait(Some(Duration::from_millis(100))).expect("ppoll") {
        a.recv(1, |_, _| panic!("nothing was sent here")).expect("usable");
        got += collect(&mut b, 1).len();
    }
    got += collect_rest(&mut b);
    let sent = a.counters().tx_datagrams as usize;
    assert_eq!(got, sent, "loopback itself loses nothing");
    assert!((380..500).contains(&sent), "{sent} of 500 at 20 % loss and 10 % doubled");
    let e = UdpTransport::bind(&UdpConfig { faults: Some("lost=1".into()), ..config("127.0.0.1:0") });
    let told = e.as_ref().err().map(ToString::to_string).unwrap_or_default();
    assert!(told.starts_with("WEIR_FAULTS='lost=1': 'lost' is none of loss,"), "{told}");
    assert!(e.err().expect("nonsense").to_string().contains("lost=1"));
}

fn collect_rest(t: &mut UdpTransport) -> usize {
    let mut n = 0;
    while t.wait(Some(Duration::from_millis(20))).expect("ppoll") {
        n += t.recv(8, |_, _| {}).expect("usable");
    }
    n
}

#[test]
fn faults_on_the_way_in_spare_the_way_out() {
    let bad = UdpConfig { faults: Some("rx_loss=100%".into()), ..config("127.0.0.1:0") };
    let mut a = UdpTransport::bind(&bad).expect("a socket");
    let mut b = loopback();
    send(&mut a, b.local_addrs()[0], b"out", &[]);
    a.flush().expect("flush");
    let (info, _) = collect(&mut b, 1)[0];
    send(&mut b, info.remote, b"in", &[]);
    b.flush().expect("flush");
    assert!(a.wait(Some(LIMIT)).expect("ppoll"));
    assert_eq!(a.recv(1, |_, _| panic!("all is lost")).expect("usable"), 0);
    assert_eq!((a.counters().rx_datagrams, a.counters().faults_injected), (1, 1));
}

#[test]
fn a_capture_holds_every_datagram_with_its_addresses() {
    let path = std::env::temp_dir().join(format!("weir-udp-{}.pcapng", std::process::id()));
    let (mut a, mut b) = (loopback(), loopback());
    assert!(a.capture_to(&path, nobody()).expect("a file"));
    assert!(!b.capture_to(&path, nobody()).expect("it opens"), "two would write one file");
    let to = b.local_addrs()[0];
    for len in [5, 5, 3] {
        send(&mut a, to, b"h", &pattern(len, len));
    }
    a.flush().expect("flush");
    let (info, _) = collect(&mut b, 3)[0];
    send(&mut b, info.remote, b"back", &[]);
    b.flush().expect("flush");
    assert_eq!(collect(&mut a, 1).len(), 1);
    let own = a.local_addrs()[0];
    drop(a);
    let file = std::fs::read(&path).expect("the capture");
    std::fs::remove_file(&path).expect("the capture");
    let packets = read_pcapng(&file);
    let want: Vec<(u32, u16, u16, Vec<u8>)> = vec![
        (2, own.port(), to.port(), [b"h", &pattern(5, 5)[..]].concat()),
        (2, own.port(), to.port(), [b"h", &pattern(5, 5)[..]].concat()),
        (2, own.port(), to.port(), [b"h", &pattern(3, 3)[..]].concat()),
        (1, to.port(), own.port(), b"back".to_vec()),
    ];
    assert_eq!(packets, want);
}

/// (direction, source port, destination port, UDP payload) of each packet, checking block lengths and IPv4 headers on the way.
fn read_pcapng(mut file: &[u8]) -> Vec<(u32, u16, u16, Vec<u8>)> {
    let word = |b: &[u8], at: usize| u32::from_le_bytes(b[at..at + 4].try_into().expect("four bytes"));
    let half = |b: &[u8], at: usize| u16::from_be_bytes([b[at], b[at + 1]]);
    assert_eq!(word(file, 0), 0x0a0d_0d0a);
    let mut out = Vec::new();
    while !file.is_empty() {
        let total = word(file, 4) as usize;
        let (block, rest) = file.split_at(total);
        assert_eq!(word(block, total - 4) as usize, total);
        if word(block, 0) == 6 {
            let len = word(block, 20) as usize;
            let ip = &block[28..28 + len];
            assert_eq!((ip[0], ip[9], half(ip, 2) as usize, half(ip, 24) as usize), (0x45, 17, len, len - 20));
            let flags_at = 28 + len.next_multiple_of(4) + 4;
            out.push((word(block, flags_at), half(ip, 20), half(ip, 22), ip[28..].to_vec()));
        }
        file = rest;
    }
    out
}

/// Who does not want to know why a capture ended.
fn nobody() -> weir_udp::CaptureEnded {
    Box::new(|_| {})
}

#[test]
fn a_full_disk_ends_the_capture_and_nothing_else() {
    let (mut a, mut b) = (loopback(), loopback());
    let (tell, told) = std::sync::mpsc::channel();
    let ended = Box::new(move |line: &str| tell.send(line.to_owned()).expect("somebody listens"));
    a.capture_to("/dev/full", ended).expect("it opens");
    let to = b.local_addrs()[0];
    let mut n = 0;
    while a.is_capturing() {
        assert!(n < 100, "the buffer must overflow some time");
        send(&mut a, to, &[7; 50_000], &[]);
        a.flush().expect("flush");
        n += collect(&mut b, 1).len();
    }
    assert!(n > 0);
    let line = told.try_recv().expect("it is told");
    assert!(line.contains("/dev/full") && line.contains("stopped"), "{line}");
    send(&mut a, to, b"still here", &[]);
    a.flush().expect("flush");
    assert_eq!(collect(&mut b, 1)[0].1, b"still here");
    let e = a.capture_to("/nonexistent/dir/file", nobody()).expect_err("no such directory").to_string();
    assert!(e.contains("/nonexistent/dir/file"), "{e}");
}

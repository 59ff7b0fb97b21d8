//! Tests that need something a machine may lack: IPv6, UDP GSO, or a network namespace with a slow
//! link. Where it is missing they are reported as ignored, not as passed.

mod common;
#[path = "common/slow_link.rs"]
mod slow_link;

use common::{LIMIT, collect, config, loopback, pattern, send};
use libtest_mimic::{Arguments, Trial};
use std::process::ExitCode;
use std::time::Instant;
use weir_udp::{UdpConfig, UdpTransport};

fn main() -> ExitCode {
    if slow_link::is_inside() {
        a_full_send_buffer_loses_nothing();
        return ExitCode::SUCCESS;
    }
    let ipv6 = UdpTransport::bind(&config("[::1]:0")).is_ok();
    let trials = vec![
        Trial::test("one_socket_speaks_ipv4_and_ipv6", || {
            one_socket_speaks_ipv4_and_ipv6();
            Ok(())
        })
        .with_ignored_flag(!ipv6),
        Trial::test("a_message_in_one_super_packet_is_one_call_each_way", || {
            a_message_in_one_super_packet_is_one_call_each_way();
            Ok(())
        })
        .with_ignored_flag(loopback().offload_segments() == 1),
        slow_link::trial("a_full_send_buffer_loses_nothing"),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Behind a short end nothing is asked for, behind a full one there is.
fn a_message_in_one_super_packet_is_one_call_each_way() {
    for (last, empty_calls) in [(700, 0), (1201, 1)] {
        let (mut a, mut b) = (loopback(), loopback());
        let to = b.local_addrs()[0];
        for n in [1201, 1201, last] {
            send(&mut a, to, b"head", &pattern(1, n));
        }
        a.flush().expect("flush");
        b.wait(Some(LIMIT)).expect("ppoll");
        assert_eq!(b.recv(8, |_, _| {}).expect("recv"), 3);
        let c = b.counters();
        assert_eq!((c.rx_super_packets, c.rx_calls, c.rx_empty_calls), (1, 1, empty_calls), "{last}");
    }
}

fn one_socket_speaks_ipv4_and_ipv6() {
    let both = UdpConfig {
        addrs: vec!["127.0.0.1".parse().expect("an address"), "::1".parse().expect("an address")],
        ..UdpConfig::default()
    };
    let mut t = UdpTransport::bind(&both).expect("a dual-stack socket");
    for (bind, i) in [("127.0.0.1:0", 0), ("[::1]:0", 1)] {
        let mut peer = UdpTransport::bind(&config(bind)).expect("a socket");
        let own = t.local_addrs()[i];
        for len in [10, 10, 4] {
            send(&mut peer, own, &vec![7; len], &[]);
        }
        peer.flush().expect("flush");
        let got = collect(&mut t, 3);
        assert_eq!(got.iter().map(|(_, d)| d.len()).collect::<Vec<_>>(), [10, 10, 4]);
        assert!(got.iter().all(|(info, _)| info.local == Some(own.ip()) && info.remote == peer.local_addrs()[0]));
        for len in [9, 9, 2] {
            t.push(peer.local_addrs()[0], Some(own.ip()), &vec![8; len], &[]);
        }
        t.flush().expect("flush");
        let back = collect(&mut peer, 3);
        assert_eq!(back.iter().map(|(_, d)| d.len()).collect::<Vec<_>>(), [9, 9, 2]);
        assert!(back.iter().all(|(info, _)| info.remote == own));
        // Enough to connect a second socket to the first of them, which is bound to the one
        // address.
        for n in 0..600u32 {
            send(&mut peer, own, &n.to_le_bytes(), &[]);
            peer.flush().expect("flush");
            let got = collect(&mut t, 1);
            assert_eq!(got.len(), 1);
            assert_eq!((got[0].0.local, got[0].0.remote), (Some(own.ip()), peer.local_addrs()[0]));
            t.push(peer.local_addrs()[0], Some(own.ip()), &n.to_le_bytes(), &[]);
            t.flush().expect("flush");
            assert_eq!(collect(&mut peer, 1)[0].0.remote, own);
        }
        assert_eq!((t.counters().connects, peer.counters().connects), (1, 1));
    }
}

fn a_full_send_buffer_loses_nothing() {
    for offload in [true, false] {
        let small = UdpConfig { sndbuf_bytes: 1, offload, ..config("127.0.0.1:0") };
        let mut a = UdpTransport::bind(&small).expect("a socket");
        let mut b = loopback();
        let to = b.local_addrs()[0];
        let mut pushed = Vec::new();
        while !a.blocked() {
            assert!(pushed.len() < 10_000, "the send buffer never fills");
            let mut payload = pattern(pushed.len(), 1000);
            send(&mut a, to, &(pushed.len() as u32).to_le_bytes(), &payload);
            a.flush().expect("flush");
            pushed.push(payload.clone());
            // What is parked must be a copy.
            payload.fill(0);
        }
        // A little more while blocked: kept too.
        for _ in 0..20 {
            let payload = pattern(pushed.len(), 1000);
            send(&mut a, to, &(pushed.len() as u32).to_le_bytes(), &payload);
            pushed.push(payload);
        }
        let end = Instant::now() + LIMIT;
        while a.blocked() && Instant::now() < end {
            assert!(a.wait(Some(LIMIT)).expect("ppoll"), "the socket gets room again");
            a.flush().expect("flush");
        }
        let got = collect(&mut b, pushed.len());
        assert_eq!(got.len(), pushed.len(), "{:?}", a.counters());
        for (i, (_, d)) in got.iter().enumerate() {
            assert_eq!(d[..4], (i as u32).to_le_bytes());
            assert_eq!(d[4..], pushed[i]);
        }
        assert!(a.counters().tx_blocked > 0);
        assert_eq!((a.counters().tx_parked_overflow, a.counters().tx_refused), (0, 0));
    }
    parking_is_bounded();
}

fn parking_is_bounded() {
    let small = UdpConfig { sndbuf_bytes: 1, parked_limit_bytes: 8192, ..config("127.0.0.1:0") };
    let mut a = UdpTransport::bind(&small).expect("a socket");
    let b = loopback();
    let start = Instant::now();
    // As fast as it goes, which is faster than the link unless we have to wait ourselves.
    while !a.blocked() || a.counters().tx_parked_overflow <= 50 {
        send(&mut a, b.local_addrs()[0], &[7; 1000], &[]);
        a.flush().expect("flush");
        assert!(start.elapsed() < LIMIT, "without bound: {:?}", a.counters());
    }
}

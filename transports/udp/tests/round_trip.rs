//! Datagrams over real sockets on loopback: what goes in comes out, cut as it was pushed.

mod common;

use common::{LIMIT, collect, config, loopback, pattern, send};
use std::io::IoSlice;
use std::net::IpAddr;
use weir_udp::{UdpConfig, UdpTransport};

#[test]
fn one_small_datagram_is_one_call_each_way() {
    let (mut a, mut b) = (loopback(), loopback());
    let to = b.local_addrs()[0];
    for i in 0..5u8 {
        send(&mut a, to, &[i; 20], b"payload!");
        a.flush().expect("flush");
        b.wait(Some(LIMIT)).expect("ppoll");
        let mut got = Vec::new();
        assert_eq!(b.recv(8, |info, d| got.push((info.remote, d.to_vec()))).expect("recv"), 1);
        assert_eq!(got, [(a.local_addrs()[0], [&[i; 20][..], b"payload!"].concat())]);
        assert_eq!(b.recv(8, |_, _| panic!("nothing more was sent")).expect("recv"), 0);
    }
    assert_eq!((a.counters().tx_calls, b.counters().rx_calls, b.counters().rx_empty_calls), (5, 5, 5));
}

#[test]
fn super_packets_of_odd_sizes_arrive_datagram_by_datagram() {
    let (mut a, mut b) = (loopback(), loopback());
    let to = b.local_addrs()[0];
    let payloads: Vec<Vec<u8>> =
        [1201, 1201, 1201, 700, 700, 3, 1201, 1, 65000, 9, 9].iter().enumerate().map(|(i, &n)| pattern(i, n)).collect();
    for p in &payloads {
        send(&mut a, to, b"head", p);
    }
    a.flush().expect("flush");
    let got = collect(&mut b, payloads.len());
    let want: Vec<Vec<u8>> = payloads.iter().map(|p| [b"head", &p[..]].concat()).collect();
    let got: Vec<Vec<u8>> = got.into_iter().map(|(_, d)| d).collect();
    assert_eq!(got, want);
    if a.offload_segments() > 1 {
        assert!(a.counters().tx_super_packets >= 2, "the equal ones go together: {:?}", a.counters());
    }
}

#[test]
fn a_megabyte_in_pieces_of_user_memory_arrives_whole() {
    let (mut a, mut b) = (loopback(), loopback());
    let to = b.local_addrs()[0];
    let user = pattern(5, 1 << 20);
    let mut got = Vec::new();
    let pieces: Vec<&[u8]> = user.chunks(1400).collect();
    for (i, piece) in pieces.iter().enumerate() {
        let (left, right) = piece.split_at(piece.len() / 3);
        a.push(to, None, &(i as u32).to_le_bytes(), &[IoSlice::new(left), IoSlice::new(right)]);
        // Keep within the receive buffer.
        if i % 90 == 89 || i + 1 == pieces.len() {
            a.flush().expect("flush");
            got.extend(collect(&mut b, i + 1 - got.len()));
        }
    }
    assert_eq!(got.len(), pieces.len());
    for (i, (_, d)) in got.iter().enumerate() {
        assert_eq!(d[..4], (i as u32).to_le_bytes());
        assert_eq!(&d[4..], pieces[i]);
    }
    assert_eq!(a.counters().tx_bytes, b.counters().rx_bytes);
}

#[test]
fn mixed_destinations_get_what_is_theirs_in_order() {
    let mut a = loopback();
    let mut sinks: Vec<UdpTransport> = (0..5).map(|_| loopback()).collect();
    // (Short ones are not sent as one.)
    let datagram = |round: u8, i: usize| [vec![round, i as u8], vec![0; 700]].concat();
    for round in 0..40u8 {
        for (i, s) in sinks.iter().enumerate() {
            send(&mut a, s.local_addrs()[0], &datagram(round, i), &[]);
        }
    }
    a.flush().expect("flush");
    for (i, s) in sinks.iter_mut().enumerate() {
        let got: Vec<Vec<u8>> = collect(s, 40).into_iter().map(|(_, d)| d).collect();
        let want: Vec<Vec<u8>> = (0..40).map(|round| datagram(round, i)).collect();
        assert_eq!(got, want, "sink {i}");
    }
    assert_eq!(a.counters().tx_datagrams, 200);
    if a.offload_segments() > 1 {
        assert_eq!(a.counters().tx_calls, 1);
    }
}

#[test]
fn without_offload_everything_still_arrives() {
    let cfg = UdpConfig { offload: false, ..config("127.0.0.1:0") };
    let mut a = UdpTransport::bind(&cfg).expect("a socket");
    let mut b = UdpTransport::bind(&cfg).expect("a socket");
    let to = b.local_addrs()[0];
    for i in 0..200u8 {
        send(&mut a, to, &[i; 100], &[]);
    }
    a.flush().expect("flush");
    let got: Vec<u8> = collect(&mut b, 200).into_iter().map(|(_, d)| d[0]).collect();
    assert_eq!(got, (0..200).collect::<Vec<u8>>());
    assert_eq!((a.counters().tx_super_packets, b.counters().rx_super_packets), (0, 0));
}

// spec: P-6.24
#[test]
fn what_is_sent_is_ecn_capable_where_that_is_wanted() {
    for bind in ["127.0.0.1:0", "[::1]:0"] {
        let with = |ecn| UdpTransport::bind(&UdpConfig { ecn, ..config(bind) });
        // A host may be without IPv6.
        let (Ok(mut capable), Ok(mut other), Ok(mut reader)) = (with(true), with(false), with(true)) else {
            assert!(bind.starts_with('['));
            continue;
        };
        for (from, bits) in [(&mut capable, 2), (&mut other, 0)] {
            let to = reader.local_addrs()[0];
            for len in [8, 1400, 1400, 1400] {
                send(from, to, &[7; 8], &vec![7; len]);
            }
            from.flush().expect("flush");
            let got: Vec<u8> = collect(&mut reader, 4).into_iter().map(|(info, _)| info.ecn).collect();
            assert_eq!(got, [bits; 4], "{bind}");
        }
        // Who did not ask is told nothing.
        let to = other.local_addrs()[0];
        send(&mut capable, to, b"ask", &[]);
        capable.flush().expect("flush");
        assert_eq!(collect(&mut other, 1)[0].0.ecn, 0);
    }
}

#[test]
fn replies_of_a_socket_with_several_addresses_come_from_the_one_asked() {
    let several =
        UdpConfig { addrs: vec![IpAddr::from([127, 0, 0, 1]), IpAddr::from([127, 0, 0, 2])], ..UdpConfig::default() };
    let mut multi = UdpTransport::bind(&several).expect("a socket");
    let mut peer = loopback();
    for to in multi.local_addrs().to_vec() {
        send(&mut peer, to, b"ask", &[]);
        peer.flush().expect("flush");
        let (info, _) = collect(&mut multi, 1)[0];
        assert_eq!(info.local, Some(to.ip()));
        multi.push(info.remote, info.local, b"answer", &[]);
        multi.flush().expect("flush");
        assert_eq!(collect(&mut peer, 1)[0].0.remote, to);
    }
}

#[test]
fn a_taken_port_and_a_foreign_address_are_named() {
    let a = loopback();
    let taken = a.local_addrs()[0];
    let e = UdpTransport::bind(&config(&taken.to_string())).err().expect("the port is taken").to_string();
    assert!(e.contains(&taken.port().to_string()) && e.contains("in use"), "{e}");
    let e = UdpTransport::bind(&config("203.0.113.9:0")).err().expect("not our address").to_string();
    assert!(e.contains("203.0.113.9") && e.contains("127.0.0.1"), "{e}");
    let e = UdpTransport::bind(&UdpConfig { ifaces: vec!["nope7".into()], ..UdpConfig::default() })
        .err()
        .expect("no such interface")
        .to_string();
    assert!(e.contains("nope7"), "{e}");
    let span = UdpConfig { addrs: vec![taken.ip()], port: taken.port(), port_span: 20, ..UdpConfig::default() };
    let b = UdpTransport::bind(&span).expect("another port of the range");
    assert_ne!(b.local_addrs()[0].port(), taken.port());
}

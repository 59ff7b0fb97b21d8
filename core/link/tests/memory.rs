//! Heap memory of idle peers, and that steady traffic allocates nothing.

mod counting;
mod net;

use counting::{calls, held};
use net::Net;
use weir_link::*;

// One test only: the counters are of the whole process.
#[test]
fn idle_peers_are_small_and_steady_traffic_allocates_nothing() {
    const PEERS: usize = 1000;
    let mut n = Net::new(PEERS + 1, 1, &Config::default(), 1);
    let endpoint = |n: &mut Net, f: &mut dyn FnMut(&mut Net)| {
        let before = held();
        f(n);
        held() - before
    };
    // Both sides of 1000 associations, each used: ten small messages and one of 64 KiB each way.
    let all = endpoint(&mut n, &mut |n| {
        for p in 1..=PEERS {
            for _ in 0..10 {
                n.send(0, p, false, 1, 0, 0, 100).unwrap();
            }
            n.send(0, p, false, 2, 0, 0, 65_536).unwrap();
        }
        assert!(n.run(std::time::Duration::from_secs(20), Net::quiet));
        n.run(std::time::Duration::from_secs(2), |_| false);
        for node in &mut n.nodes {
            node.messages.clear();
            node.mseqs.clear();
            node.sent = Vec::new();
            node.ups = Vec::new();
        }
        n.sizes = Vec::new();
    });
    let each = all / (2 * PEERS as i64);
    println!("{each} bytes for an idle peer");
    assert!(each <= 16 << 10, "{each}");

    steady();
}

/// Two endpoints in steady exchange: no call of the allocator for thousands of packets.
fn steady() {
    let a1 = net::addr(0, 0);
    let a2 = net::addr(1, 0);
    let cfg = Config { mtu_probing: false, ..Config::default() };
    let mut x = Endpoint::new(cfg.clone(), [1; 32], 1, &[a1], [1; 32]);
    let mut y = Endpoint::new(cfg, [1; 32], 2, &[a2], [2; 32]);
    let py = x.peer(&y.name()).unwrap();
    let px = y.peer(&x.name()).unwrap();
    let (mut buf, mut wire, mut ev) = (PacketBuf::new(), Vec::with_capacity(4096), Vec::with_capacity(64));
    let mut now = Time(1);
    let mut before = 0;
    for round in 0..20_000 {
        if round == 10_000 {
            before = calls();
        }
        for (a, b, pa, pb, from) in [(&mut x, &mut y, py, px, a1)] {
            if round > 100 {
                for _ in 0..3 {
                    a.send(
                        now,
                        pa,
                        Message { control: false, stream: 1, envelope: &[0; 20], len: 8, patient: false, token: 1 },
                    )
                    .unwrap();
                }
                b.send(
                    now,
                    pb,
                    Message { control: true, stream: 0, envelope: &[0; 20], len: 8, patient: false, token: 1 },
                )
                .unwrap();
            } else if round == 0 {
                a.send(
                    now,
                    pa,
                    Message { control: false, stream: 1, envelope: &[0; 20], len: 8, patient: false, token: 1 },
                )
                .unwrap();
            }
            for _ in 0..4 {
                while a.poll_transmit(now, &net::Pattern, &mut buf).is_some() {
                    wire.clear();
                    wire.extend_from_slice(&buf.head);
                    b.handle(
                        now,
                        RxMeta { remote: from, local: None, receiver_delay_ns: 0, ecn: 0 },
                        &mut wire,
                        &mut ev,
                    );
                    for e in ev.drain(..) {
                        if let Event::Message { control: false, total_len, .. } = e {
                            b.consume(pb, 1, u64::from(total_len));
                        }
                    }
                }
                while b.poll_transmit(now, &net::Pattern, &mut buf).is_some() {
                    wire.clear();
                    wire.extend_from_slice(&buf.head);
                    a.handle(now, RxMeta { remote: a2, local: None, receiver_delay_ns: 0, ecn: 0 }, &mut wire, &mut ev);
                    ev.clear();
                }
                now = now.plus_ns(10_000);
            }
            for s in [a, b] {
                if s.next_timeout().is_some_and(|t| t <= now) {
                    s.handle_timeout(now, &mut ev);
                    ev.clear();
                }
            }
        }
    }
    let made = calls() - before;
    assert_eq!(x.counters().packets_lost, 0);
    assert!(y.counters().session.messages_received > 50_000);
    assert!(made <= 4, "{made} allocations in 10000 rounds");
}

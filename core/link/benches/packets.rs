//! Cost of the protocol in nanoseconds per packet, without sockets. `cargo bench -p weir-link`.
//!
//! Two endpoints in one thread hand datagrams to each other; virtual time advances by a fixed
//! amount. What is measured is therefore the sum of both sides; the CRC over bulk payload is left
//! out (as if the network card did it).

use std::net::SocketAddr;
use std::time::Instant;

use weir_link::*;

struct Zeros;
impl Payloads for Zeros {
    fn read(&self, _: u64, _: u64, dst: &mut [u8]) {
        dst.fill(0);
    }
    fn crc(&self, _: u64, _: u64, _: usize, crc: u32) -> u32 {
        crc
    }
}

struct Side {
    ep: Endpoint,
    addr: SocketAddr,
    events: Vec<Event>,
}

/// Moves every datagram of `a` to `b`; returns how many. `corrupting` payloads are not transported
/// at all: the receiver's check would fail, so bulk goes through the copying path with a CRC that
/// is counted.
fn pump(now: Time, a: &mut Side, b: &mut Side, buf: &mut PacketBuf, scratch: &mut Vec<u8>) -> u64 {
    let mut n = 0;
    while let Some(t) = a.ep.poll_transmit(now, &Zeros, buf) {
        scratch.clear();
        scratch.extend_from_slice(&buf.head);
        assert!(t.payload.is_none());
        let meta = RxMeta { remote: a.addr, local: None, receiver_delay_ns: 0, ecn: 0 };
        b.ep.handle(now, meta, scratch, &mut b.events);
        n += 1;
    }
    n
}

fn main() {
    let addr = |p| SocketAddr::from(([127, 0, 0, 1], p));
    let cfg = Config {
        gather: false,
        max_window_bytes: 1 << 20,
        rx_buffer_bytes: 64 << 20,
        session: SessionConfig { grant_budget: 1 << 20, ..SessionConfig::default() },
        ..Config::default()
    };
    let mut x =
        Side { ep: Endpoint::new(cfg.clone(), [1; 32], 1, &[addr(1)], [1; 32]), addr: addr(1), events: Vec::new() };
    let mut y = Side { ep: Endpoint::new(cfg, [1; 32], 2, &[addr(2)], [2; 32]), addr: addr(2), events: Vec::new() };
    let py = x.ep.peer(&y.ep.name()).expect("name");
    let px = y.ep.peer(&x.ep.name()).expect("name");
    let (mut buf, mut scratch) = (PacketBuf::new(), Vec::new());
    let mut now = Time(1);
    let ping = |n: &mut Side, p, now| {
        n.ep.send(now, p, Message { control: false, stream: 1, envelope: &[0; 20], len: 8, patient: false, token: 1 })
            .expect("send");
    };

    for (name, rounds) in [("warm up", 10_000u64), ("ping-pong 8 B", 1_000_000)] {
        let (t0, mut packets) = (Instant::now(), 0);
        for _ in 0..rounds {
            ping(&mut x, py, now);
            packets += pump(now, &mut x, &mut y, &mut buf, &mut scratch);
            y.events.clear();
            y.ep.consume(px, 1, 8);
            ping(&mut y, px, now);
            packets += pump(now, &mut y, &mut x, &mut buf, &mut scratch);
            x.events.clear();
            x.ep.consume(py, 1, 8);
            now = now.plus_ns(2000);
            for s in [&mut x, &mut y] {
                if s.ep.next_timeout().is_some_and(|t| t <= now) {
                    s.ep.handle_timeout(now, &mut s.events);
                }
            }
        }
        let ns = t0.elapsed().as_nanos() as f64;
        println!(
            "{name}: {:.0} ns for a message (both sides), {:.2} packets for each",
            ns / (2 * rounds) as f64,
            packets as f64 / (2 * rounds) as f64
        );
    }

    let (t0, mut packets) = (Instant::now(), 0);
    let rounds = 2000u64;
    for i in 0..rounds {
        let len = 1u64 << 20;
        let o = y.ep.open_rndv(now, px, len).expect("open");
        x.ep.send_rndv(now, py, o.handle, o.granted, len, i).expect("send_rndv");
        let mut done = false;
        while !done {
            packets += pump(now, &mut x, &mut y, &mut buf, &mut scratch);
            y.events.clear();
            packets += pump(now, &mut y, &mut x, &mut buf, &mut scratch);
            done = x.events.iter().any(|e| matches!(e, Event::Sent { token, .. } if *token == i));
            x.events.clear();
            now = now.plus_ns(5000);
            for s in [&mut x, &mut y] {
                if s.ep.next_timeout().is_some_and(|t| t <= now) {
                    s.ep.handle_timeout(now, &mut s.events);
                }
            }
        }
    }
    let ns = t0.elapsed().as_nanos() as f64;
    println!(
        "bulk 1 MiB: {:.0} ns for a packet (both sides, two CRCs and two copies of it), {:.0} packets for each MiB",
        ns / packets as f64,
        packets as f64 / rounds as f64
    );
    let c = x.ep.counters();
    println!(
        "lost {} timeouts {} stalls: window {} pacing {}",
        c.packets_lost, c.probe_timeouts, c.stalls_window, c.stalls_pacing
    );
}

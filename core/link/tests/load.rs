//! Throughput under loss, and incast into a small buffer: figures are printed (`--nocapture`),
//! floors are asserted.

mod net;

use std::time::Duration;

use net::{Faults, Net};
use weir_link::*;

const S: Duration = Duration::from_secs(1);

/// Goodput of `count` rendezvous transfers of `len` bytes from each of `fan` hosts to host 0, as a
/// part of the wire's rate.
fn incast(fan: usize, len: u64, count: usize) -> f64 {
    let mut n = Net::new(fan + 1, 1, &Config::default(), 3);
    n.faults = Faults { rate: 125_000_000, delay_ns: 20_000, queue: 64 * 1514, ..Faults::default() };
    for h in 1..=fan {
        n.send(h, 0, false, 0, 0, 0, 1).unwrap();
    }
    n.run(S, |_| false);
    let t0 = n.now;
    for _ in 0..count {
        for h in 1..=fan {
            n.offer(h, 0, len);
        }
    }
    assert!(n.run(60 * S, Net::quiet));
    let goodput = (len * (count * fan) as u64) as f64 / (n.now - t0).as_secs_f64() / 125e6;
    let lost: u64 = n.nodes.iter().map(|x| x.ep.counters().packets_lost).sum();
    let ptos: u64 = n.nodes.iter().map(|x| x.ep.counters().probe_timeouts).sum();
    println!("incast {fan} x {count} x {len}: {:.3} of the wire, {lost} lost, {ptos} timeouts", goodput);
    goodput
}

#[test]
fn incast_keeps_the_wire_busy() {
    assert!(incast(8, 64 << 10, 20) > 0.8);
    assert!(incast(8, 1 << 20, 4) > 0.8);
    assert!(incast(32, 64 << 10, 10) > 0.8);
    assert!(incast(32, 1 << 20, 2) > 0.8);
}

/// Goodput of one 20 MB rendezvous transfer at this loss, as a part of the wire's rate.
fn stream(loss: u32, delay_us: u64) -> f64 {
    let mut n = Net::new(2, 1, &Config::default(), 4);
    n.faults = Faults { rate: 125_000_000, delay_ns: delay_us * 1000, queue: 512 * 1514, loss, ..Faults::default() };
    n.offer(0, 1, 1 << 20);
    assert!(n.run(60 * S, Net::quiet));
    let t0 = n.now;
    n.offer(0, 1, 20_000_000);
    assert!(n.run(60 * S, Net::quiet));
    let goodput = 20e6 / (n.now - t0).as_secs_f64() / 125e6;
    println!(
        "stream loss {:.1} %, {delay_us} us: {goodput:.3} of the wire; {:?}",
        f64::from(loss) / 1e4,
        n.nodes[0].ep.peer_stats(PeerId(0)).paths[0]
    );
    goodput
}

#[test]
fn random_loss_costs_little() {
    for (delay_us, floor) in [(20, 0.8), (1000, 0.6), (10_000, 0.3)] {
        let clean = stream(0, delay_us);
        assert!(clean > floor, "{clean}");
        for loss in [10_000, 20_000] {
            let lossy = stream(loss, delay_us);
            assert!(lossy > 0.7 * clean, "{lossy} of {clean}");
        }
    }
}

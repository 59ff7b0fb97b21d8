//! What a path is told to deliver, where links are cut and healed and receivers come late.

use weir_sim::run::{Watch, build};
use weir_sim::scenario::{EndpointSpec, Scenario};
use weir_sim::spec::*;
use weir_sim::work::Workload;

/// Two links of 25 MB/s.
const LINK_BYTES_PER_S: u64 = 25_000_000;

fn scenario(faults: Vec<TimedFault>) -> Scenario {
    let link = LinkSpec { rate_bits_per_s: LINK_BYTES_PER_S * 8, delay_ns: 50 * US, ..LinkSpec::default() };
    let network = NetworkSpec { up: link.clone(), down: link, ..NetworkSpec::default() };
    let mut net = NetSpec::single(2, network.clone());
    net.networks.push(network);
    net.faults = faults;
    let work = Workload::Stream { len: (1 << 20, 1 << 20), count: 40, tags: 4, window: 4 };
    Scenario { seed: 1, net, endpoint: EndpointSpec::default(), work }
}

/// The most that any path of the sender was said to deliver, looked at each half millisecond until the work is done, and the last.
fn told(s: &Scenario) -> (u64, Vec<u64>) {
    let mut w = build(s, Watch::default());
    let (mut most, mut last) = (0, Vec::new());
    let mut at = 0;
    loop {
        at += MS / 2;
        let done = w.run_until(at, |shared| shared.unfinished.is_empty());
        for host in 0..2 {
            let Some(node) = w.node(host) else { continue };
            for peer in 0..2 {
                let rates: Vec<u64> = node
                    .endpoint()
                    .peer_stats(weir_link::PeerId(peer))
                    .paths
                    .iter()
                    .map(|p| p.rate_bytes_per_s)
                    .collect();
                most = most.max(rates.iter().copied().max().unwrap_or(0));
                if rates.iter().any(|r| *r > 0) {
                    last = rates;
                }
            }
        }
        if done || at > 20 * SEC {
            return (most, last);
        }
    }
}

#[test]
fn a_healed_link_and_a_late_receiver_do_not_make_a_path_faster_than_its_link() {
    let fault = |at_ns, fault| TimedFault { at_ns, fault };
    let direction = Direction::Both;
    let mut faults = vec![
        fault(60 * MS, Fault::Cut { host: 0, net: 1, direction }),
        fault(300 * MS, Fault::Heal { host: 0, net: 1, direction }),
    ];
    println!("healed: {:?}", told(&scenario(faults.clone())));
    // The receiver has no processor for 4 of each 20 ms.
    let late = (1..60).map(|n| fault(n * 20 * MS, Fault::Stall { host: 0, until_ns: n * 20 * MS + 4 * MS }));
    faults.extend(late.clone());
    println!("healed, late: {:?}", told(&scenario(faults)));
    println!("late: {:?}", told(&scenario(late.collect())));
    let late = (1..60).map(|n| fault(n * 20 * MS, Fault::Stall { host: 1, until_ns: n * 20 * MS + 4 * MS }));
    println!("late 1: {:?}", told(&scenario(late.collect())));
    println!("plain: {:?}", told(&scenario(Vec::new())));
}

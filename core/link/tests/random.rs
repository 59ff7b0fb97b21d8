//! Random operations under random faults: once the faults stop, everything is delivered exactly
//! once.

mod net;

use std::time::Duration;

use net::{Faults, Net};
use proptest::prelude::*;
use weir_link::*;

#[derive(Clone, Debug)]
enum Op {
    Send { from: usize, to: usize, stream: u16, len: u32 },
    Control { from: usize, to: usize, len: u32 },
    Offer { from: usize, to: usize, len: u64 },
    Run { us: u64 },
    Faults { loss: u32, dup: u32, corrupt: u32, truncate: u32, jitter_us: u64, rate_kb_ms: u64 },
    Cut { net: u8 },
    Heal,
    Mtu { mtu: usize },
}

fn len() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0u32), 1..300u32, 1100..1500u32, 0..50_000u32]
}

fn op() -> impl Strategy<Value = Op> {
    let pair = (0..3usize, 1..3usize).prop_map(|(a, d)| (a, (a + d) % 3));
    prop_oneof![
        6 => (pair.clone(), 0..4u16, len()).prop_map(|((from, to), stream, len)| Op::Send { from, to, stream, len }),
        3 => (pair.clone(), 0..900u32).prop_map(|((from, to), len)| Op::Control { from, to, len }),
        3 => (pair, 1..400_000u64).prop_map(|((from, to), len)| Op::Offer { from, to, len }),
        8 => (1..20_000u64).prop_map(|us| Op::Run { us }),
        2 => (0..400_000u32, 0..200_000u32, 0..50_000u32, 0..50_000u32, 0..500u64, 0..200u64)
            .prop_map(|(loss, dup, corrupt, truncate, jitter_us, rate_kb_ms)| Op::Faults { loss, dup, corrupt, truncate, jitter_us, rate_kb_ms }),
        1 => (0..2u8).prop_map(|net| Op::Cut { net }),
        1 => Just(Op::Heal),
        1 => prop_oneof![Just(1250usize), Just(1472), Just(65535)].prop_map(|mtu| Op::Mtu { mtu }),
    ]
}

fn run(seed: u64, level: u8, reno: bool, parity: bool, ops: &[Op]) {
    let cfg = Config {
        level: [Level::Integrity, Level::Auth, Level::Encrypt][usize::from(level)],
        congestion: if reno { CongestionKind::Reno } else { CongestionKind::Target },
        session: SessionConfig { initial_credit_msgs: 64, initial_credit_bytes: 200_000, ..SessionConfig::default() },
        parity,
        parity_min_rtt: Duration::from_micros(10),
        ..Config::default()
    };
    if std::env::var_os("WEIR_TRACE").is_some() {
        eprintln!("run({seed}, {level}, {reno}, {parity}, &{ops:?})");
    }
    let mut n = Net::new(3, 2, &cfg, seed);
    let mut expected = 0;
    for o in ops {
        match o.clone() {
            Op::Send { from, to, stream, len } => {
                expected += usize::from(n.send(from, to, false, stream, 0, 0, len).is_ok())
            }
            Op::Control { from, to, len } => expected += usize::from(n.send(from, to, true, 0, 0, 0, len).is_ok()),
            Op::Offer { from, to, len } => {
                n.offer(from, to, len);
                expected += 3;
            }
            Op::Run { us } => {
                n.run(Duration::from_micros(us), |_| false);
            }
            Op::Faults { loss, dup, corrupt, truncate, jitter_us, rate_kb_ms } => {
                n.faults = Faults {
                    loss,
                    dup,
                    corrupt,
                    truncate,
                    jitter_ns: jitter_us * 1000,
                    rate: rate_kb_ms * 1_000_000,
                    queue: 100_000,
                    ..n.faults
                };
            }
            Op::Cut { net } => {
                n.cut.insert(net);
            }
            Op::Heal => n.cut.clear(),
            Op::Mtu { mtu } => n.faults.mtu = mtu,
        }
    }
    n.cut.clear();
    n.faults = Faults::default();
    let ok = n.run(Duration::from_secs(20), Net::quiet);
    let stats = || {
        n.nodes
            .iter()
            .map(|x| (x.open_tokens.clone(), x.ep.peers().map(|p| x.ep.peer_stats(p)).collect::<Vec<_>>()))
            .collect::<Vec<_>>()
    };
    assert!(ok, "not delivered: {:#?}", stats());
    let mut got = 0;
    for x in &n.nodes {
        assert!(x.downs.is_empty() && x.failed.is_empty());
        assert_eq!(x.ep.counters().violations, 0, "{}", x.ep.counters().last_violation);
        assert!(x.messages.values().all(|r| r.complete && r.bytes == r.total));
        assert!(x.rndvs.values().all(|r| r.complete && r.bytes == r.total));
        got += x.messages.len() + x.rndvs.len();
    }
    assert_eq!(got, expected);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    // spec: P-4.20, P-5.24
    #[test]
    fn everything_arrives_exactly_once(seed: u64, level in 0..3u8, reno: bool, parity: bool, ops in proptest::collection::vec(op(), 1..60)) {
        run(seed, level, reno, parity, &ops);
    }
}

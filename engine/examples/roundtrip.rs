//! Cost of an 8-byte round trip above the system calls: two endpoints in one thread over loopback.
//! Prints nanoseconds a half round trip; run it under `valgrind --tool=callgrind` for instructions,
//! which do not depend on what else the machine does.
//!
//! `cargo run --release -p weir-engine --example roundtrip -- [count] [bytes]`

use std::time::Instant;
use weir_engine::{Class, Endpoint, EngineConfig, Iov, Queue, RecvOp, SendMode, SendOp};

fn main() {
    let mut args = std::env::args().skip(1).map(|a| a.parse::<usize>().expect("a number"));
    let count = args.next().unwrap_or(100_000);
    let len = args.next().unwrap_or(8);
    let cfg =
        EngineConfig { addrs: vec!["127.0.0.1".parse().expect("address")], watchdog_us: 0, ..EngineConfig::default() };
    let a = Endpoint::open_with_key(cfg.clone(), [1; 32]).expect("open");
    let b = Endpoint::open_with_key(cfg, [1; 32]).expect("open");
    let (to_b, to_a) = (a.insert_peer(&b.name()).expect("name"), b.insert_peer(&a.name()).expect("name"));
    let mut data = vec![1u8; len];
    let mut out = Vec::with_capacity(16);
    let mode = if len <= weir_engine::MAX_INJECT_BYTES { SendMode::Inject } else { SendMode::Delivery };
    let mut half = |from: &Endpoint, peer: u32, to: &Endpoint| {
        let iov = [Iov { base: data.as_mut_ptr(), len }];
        let recv = RecvOp {
            source: None,
            class: Class::Tagged,
            tag: 1,
            ignore: 0,
            memory: &iov,
            context: 1,
            multi_min: None,
            report: true,
            user: 0,
        };
        let send = SendOp {
            peer,
            class: Class::Tagged,
            tag: 1,
            data: None,
            memory: &iov,
            mode,
            copy: false,
            report: false,
            context: 2,
            user: 0,
        };
        // SAFETY: `data` outlives both operations, which end before the closure returns or are
        // copied.
        unsafe {
            to.recv(&recv).expect("receive");
            from.send(&send).expect("send");
        }
        while to.poll(Queue::Recv, &mut out, 1) == 0 {
            from.progress();
        }
        out.clear();
    };
    for _ in 0..1000 {
        half(&a, to_b, &b);
        half(&b, to_a, &a);
    }
    let start = Instant::now();
    for _ in 0..count {
        half(&a, to_b, &b);
        half(&b, to_a, &a);
    }
    println!("{:.0} ns a half round trip of {len} bytes", start.elapsed().as_nanos() as f64 / (2 * count) as f64);
}

//! Runs made for tests.
#![allow(dead_code)] // each test file uses some

use std::path::Path;

use weir_distribution::*;

/// Samples of two ranks: rising times, every tenth much longer, the first of each rank warm-up.
pub fn samples(n: u32, base_ns: f64) -> Vec<Sample> {
    let one = |i: u32| Sample {
        rank: i % 2,
        peer: (1 - i % 2).cast_signed(),
        repetition: i / 2,
        start_ns: i64::from(i) * 10_000,
        duration_ns: base_ns + f64::from(i % 10) * 100.0 + if i % 40 == 39 { 50.0 * base_ns } else { 0.0 },
        error_ns: 12.5,
        flags: if i < 2 { flags::WARM_UP } else { 0 },
    };
    (0..n).map(one).collect()
}

/// A small run: two sizes of ping-pong and a barrier.
pub fn small_run(dir: &Path) {
    let mut writer = Writer::create(dir, Run::new("perseus"), Existing::Refuse).unwrap();
    writer.begin_launch(Launch::default()).unwrap();
    for size in [0, 128] {
        let cell = Cell { measured: 50, ..Cell::new(0, 0, Configuration::pair("ping-pong", size)) };
        writer.write_cell(cell, &samples(50, 1000.0 + size as f64)).unwrap();
    }
    let barrier = Configuration { pairs: 0, start: StartSync::Barrier, ..Configuration::pair("barrier", 0) };
    let summary = SummaryRecord {
        count: 18,
        min_ns: 2000.0,
        p1_ns: 2000.0,
        p25_ns: 2200.0,
        p50_ns: 2450.5,
        p75_ns: 2700.0,
        p99_ns: 2900.0,
        p999_ns: 2900.0,
        max_ns: 2900.0,
        mean_ns: 2444.4,
        stddev_ns: 300.0,
        ..SummaryRecord::default()
    };
    let barrier = Cell { summary: Some(summary), measured: 20, ..Cell::new(0, 0, barrier) };
    writer.write_cell(barrier, &samples(20, 2000.0)).unwrap();
    writer.finish(State::Complete).unwrap();
}

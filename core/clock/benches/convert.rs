//! Cost of turning local times into global ones, which happens for every sample after a run.

#![allow(missing_docs, reason = "criterion_group! makes an undocumented function")]

use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use weir_clock::{Assumptions, Bound, Model, TickPair, Ticks, Timeline};

fn model(anchor_ns: i64) -> Model {
    let bound = Bound {
        fixed_ns: 300.0,
        inner_ns: 200.0,
        tilt: 0.0,
        half_span_ns: 5e7,
        slope_error: 1e-7,
        wander_per_ns: 2e-18,
    };
    Model::new(anchor_ns, 123_456_789_012, 1.7e-5, bound).unwrap()
}

fn convert(c: &mut Criterion) {
    let one = model(1_000_000_000);
    c.bench_function("model at", |b| b.iter(|| black_box(&one).at(black_box(1_500_000_123))));

    let mut run = Timeline::new(one, &Assumptions::default());
    for i in 2..=8 {
        run.push(model(i * 1_000_000_000)).unwrap();
    }
    c.bench_function("timeline at, 8 synchronisations", |b| {
        b.iter(|| black_box(&run).at(black_box(4_700_000_123)));
    });
    c.bench_function("timeline duration, 8 synchronisations", |b| {
        b.iter(|| black_box(&run).duration(black_box(4_700_000_123), black_box(4_700_009_123)));
    });

    let pair =
        |i: u64| TickPair { before: i * 2_500_000, monotonic_ns: i as i64 * 1_000_000, after: i * 2_500_000 + 60 };
    let pairs: Vec<TickPair> = (0..50).map(pair).collect();
    let ticks = Ticks::calibrate(&pairs).unwrap();
    c.bench_function("ticks to ns", |b| b.iter(|| black_box(&ticks).to_ns(black_box(987_654_321))));
}

criterion_group!(benches, convert);
criterion_main!(benches);

//! What the statistics cost: a sample recorded, a summary, fits, comparisons. The memory of 10^7
//! samples is printed first.

#![allow(missing_docs, reason = "criterion_group! makes an undocumented public function")]

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use weir_stats::choice::fit_all;
use weir_stats::compare::Comparison;
use weir_stats::fit::fit;
use weir_stats::goodness::GoodnessOptions;
use weir_stats::{Distribution, Family, Recorder, RecorderConfig, Sample, Summary, seeded};

const LATENCY: Distribution = Distribution::Pearson5 { location: 1000.0, shape: 2.5, scale: 400.0 };

fn durations(count: usize) -> Vec<f64> {
    let mut random = seeded(1);
    (0..count).map(|_| LATENCY.sample(&mut random)).collect()
}

fn record(c: &mut Criterion) {
    let values = durations(1 << 16);
    let mut group = c.benchmark_group("record");
    group.throughput(Throughput::Elements(values.len() as u64));
    for (name, reservoir) in [("reservoir filling", 1 << 17), ("reservoir full", 1000)] {
        group.bench_function(name, |b| {
            b.iter_batched_ref(
                || {
                    let mut recorder = Recorder::new(RecorderConfig { reservoir, ..Default::default() }).unwrap();
                    recorder.reserve();
                    recorder
                },
                |recorder| values.iter().for_each(|v| assert!(recorder.record(black_box(*v)).is_ok())),
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

fn describe(c: &mut Criterion) {
    let mut group = c.benchmark_group("summary");
    group.sample_size(10);
    for count in [10_000, 10_000_000] {
        let values = durations(count);
        group.throughput(Throughput::Elements(count as u64));
        group.bench_function(format!("sort and sum up {count}"), |b| {
            b.iter_batched(|| values.clone(), |v| Summary::of(&Sample::durations(v).unwrap()), BatchSize::PerIteration);
        });
    }
    group.finish();
}

fn fits(c: &mut Criterion) {
    let mut group = c.benchmark_group("fit");
    group.sample_size(10);
    for count in [500, 100_000] {
        let sample = Sample::durations(durations(count)).unwrap();
        for family in Family::ALL {
            group.bench_function(format!("{family} to {count}"), |b| b.iter(|| fit(family, black_box(&sample))));
        }
        group.bench_function(format!("all families, tested, to {count}"), |b| {
            b.iter(|| fit_all(&sample, &Family::ALL, &GoodnessOptions::default(), &mut seeded(2)));
        });
    }
    group.finish();
}

fn compare(c: &mut Criterion) {
    let (a, b) = (durations(200_000), durations(100_000));
    let (a, b) = (Sample::durations(a).unwrap(), Sample::durations(b).unwrap());
    let mut group = c.benchmark_group("compare");
    group.sample_size(10);
    group.bench_function("100000 with 200000", |bench| bench.iter(|| Comparison::of(&a, &b, 0.95)));
    group.finish();
}

/// Not a time: resident memory before and after 10^7 samples kept, sorted and summed up, and
/// recorded.
fn memory(_: &mut Criterion) {
    let before = peak_kib();
    let mut recorder = Recorder::new(RecorderConfig::default()).unwrap();
    let mut random = seeded(3);
    (0..10_000_000).for_each(|_| assert!(recorder.record(LATENCY.sample(&mut random)).is_ok()));
    let recorded = peak_kib();
    black_box(Summary::of(&Sample::durations(durations(10_000_000)).unwrap()));
    println!(
        "memory: peak {before} KiB before, {recorded} KiB after recording 10^7, {} KiB after keeping 10^7",
        peak_kib()
    );
}

fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

// Memory first: a peak never falls.
criterion_group!(benches, memory, record, describe, fits, compare);
criterion_main!(benches);

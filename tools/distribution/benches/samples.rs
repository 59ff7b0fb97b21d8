//! Writing and reading samples files: time for each sample.

#![allow(missing_docs, reason = "criterion_group! makes an undocumented public function")]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use weir_distribution::{Cell, Configuration, Existing, Reader, Run, Sample, Writer};

const COUNT: u32 = 1_000_000;

/// Times spread as measured ones are: without pattern in their last bits.
fn samples() -> Vec<Sample> {
    let mut state = 1_u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f64::from((state >> 40) as u32)
    };
    let mut one = |i: u32| Sample {
        rank: i % 16,
        peer: ((i + 8) % 16).cast_signed(),
        repetition: i / 16,
        start_ns: i64::from(i) * 700 + random() as i64 % 500,
        duration_ns: 5000.0 + random() / 7000.0,
        error_ns: 40.0,
        flags: 0,
    };
    (0..COUNT).map(&mut one).collect()
}

fn cell() -> Cell {
    let configuration =
        Configuration { ranks_per_node: 8, ranks: 16, pairs: 8, ..Configuration::pair("ping-pong", 64) };
    Cell::new(0, 0, configuration)
}

fn files(c: &mut Criterion) {
    let samples = samples();
    let dir = tempfile::tempdir().expect("a temporary folder");
    let mut group = c.benchmark_group("samples");
    group.sample_size(10).throughput(Throughput::Elements(COUNT.into()));
    group.bench_function("write", |b| {
        b.iter(|| {
            let mut writer = Writer::create(dir.path(), Run::new("bench"), Existing::Overwrite).expect("writable");
            writer.write_cell(cell(), &samples).expect("written")
        });
    });
    let reader = Reader::open(dir.path()).expect("just written");
    group.bench_function("read", |b| {
        b.iter(|| black_box(reader.read_samples(&reader.run().cells[0]).expect("whole").len()))
    });
    group.finish();
}

criterion_group!(benches, files);
criterion_main!(benches);

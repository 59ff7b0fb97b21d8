//! What the harness adds to a sample on top of two readings of the clock, and what rank 0 does with
//! ten million samples.
//!
//! `cargo bench -p weir-bench`

use criterion::{BatchSize, Criterion, Throughput, criterion_main};
use std::hint::black_box;

use weir_bench::Result;
use weir_bench::cell::{Measured, Noted};
use weir_bench::collect::{self, Relations, Rules};
use weir_bench::exchange::{Access, Leg};
use weir_bench::machine::{Apart, Look, Machine, Mail, Messages, Room, Tag, Work};
use weir_bench::measure::{self, Slots, Starts};
use weir_bench::operation::Operation;
use weir_bench::pairing::{Layout, Pairing};
use weir_bench::plan::Spec;
use weir_bench::sys::counter::Source;
use weir_clock::TickPair;
use weir_distribution::StartSync;

/// A machine on which nothing takes time but the clock.
struct Nothing(Source);

impl Messages for Nothing {
    #[inline(always)]
    fn ticks(&self) -> u64 {
        self.0.read()
    }

    fn send(&self, _: &[u8], _: usize, _: Tag) -> Result<()> {
        Ok(())
    }

    fn recv(&self, _: &mut [u8], _: usize, _: Tag) -> Result<()> {
        Ok(())
    }

    fn sendrecv(&self, _: &[u8], _: usize, _: &mut [u8], _: usize, _: Tag) -> Result<()> {
        Ok(())
    }

    fn send_window(&self, _: &[u8], _: usize, _: usize, _: Tag) -> Result<()> {
        Ok(())
    }

    fn recv_window(&self, _: &mut [u8], _: usize, _: usize, _: Tag) -> Result<()> {
        Ok(())
    }
}

impl Machine for Nothing {
    type Group = ();
    type Blocks = ();
    type Window = ();
    type Persistent<'b> = ();

    fn rank(&self) -> usize {
        0
    }
    fn size(&self) -> usize {
        2
    }
    fn tick_pair(&self) -> TickPair {
        self.0.pair()
    }
    fn pause(&self, _: u64) {}
    fn clock_source(&self) -> &'static str {
        self.0.name()
    }
    fn recv_any(&self, _: &mut [u8], _: Tag) -> Result<usize> {
        Ok(1)
    }
    fn arrived(&self, _: usize, _: Tag) -> Result<bool> {
        Ok(true)
    }
    fn isend_wait(&self, _: &[u8], _: usize, _: Tag) -> Result<()> {
        Ok(())
    }
    fn duplex(&self, _: &[u8], _: &mut [u8], _: usize, _: Tag) -> Result<u64> {
        Ok(self.ticks())
    }
    fn group(&self, _: &[usize]) -> Result<Option<()>> {
        Ok(Some(()))
    }
    fn barrier(&self, (): &()) -> Result<()> {
        Ok(())
    }
    fn bcast(&self, (): &(), _: &mut [u8]) -> Result<()> {
        Ok(())
    }
    fn gather(&self, (): &(), _: &[u8], _: &mut [u8]) -> Result<()> {
        Ok(())
    }
    fn scatter(&self, (): &(), _: &[u8], _: &mut [u8]) -> Result<()> {
        Ok(())
    }
    fn allgather(&self, (): &(), _: &[u8], _: &mut [u8]) -> Result<()> {
        Ok(())
    }
    fn alltoall(&self, (): &(), _: &[u8], _: &mut [u8]) -> Result<()> {
        Ok(())
    }
    fn reduce(&self, (): &(), _: &[f64], _: &mut [f64]) -> Result<()> {
        Ok(())
    }
    fn allreduce(&self, (): &(), _: &[f64], _: &mut [f64]) -> Result<()> {
        Ok(())
    }
    fn lacks_threads(&self) -> Option<String> {
        None
    }
    fn threads<W: Work>(&self, _: &W, _: Vec<W::Seat>, _: Apart, _: usize, _: Look<'_>) -> Result<Vec<W::Out>> {
        Ok(Vec::new())
    }
    fn exchange_all(&self, _: &[u8], _: &[Leg], _: &mut [u8], _: &[Leg], _: Tag) -> Result<()> {
        Ok(())
    }
    fn exchange_meanwhile(&self, _: &[u8], _: &[Leg], _: &mut [u8], _: &[Leg], _: Tag, _: impl FnOnce()) -> Result<()> {
        Ok(())
    }
    fn mail<'a, T>(&self, (): &(), _: Room, _: impl FnOnce(&mut dyn Mail<'a>) -> Result<T>) -> Result<T> {
        Err(weir_bench::BenchError::Told("nothing has no mail".into()))
    }
    fn persistent<'b>(&self, _: &'b [u8], _: &'b mut [u8], _: usize, _: Tag) -> Result<()> {
        Ok(())
    }
    fn start_and_wait(&self, (): &mut ()) -> Result<()> {
        Ok(())
    }
    fn blocks(&self, _: &[usize]) -> Result<()> {
        Ok(())
    }
    fn gatherv(&self, (): &(), _: &[u8], _: &mut [u8], (): &()) -> Result<()> {
        Ok(())
    }
    fn scatterv(&self, (): &(), _: &[u8], _: &mut [u8], (): &()) -> Result<()> {
        Ok(())
    }
    fn allgatherv(&self, (): &(), _: &[u8], _: &mut [u8], (): &()) -> Result<()> {
        Ok(())
    }
    fn alltoallv(&self, (): &(), _: &[u8], _: &mut [u8], (): &()) -> Result<()> {
        Ok(())
    }
    fn reduce_scatter(&self, (): &(), _: &[f64], _: &mut [f64], (): &()) -> Result<()> {
        Ok(())
    }
    fn scan(&self, (): &(), _: &[f64], _: &mut [f64]) -> Result<()> {
        Ok(())
    }
    fn exscan(&self, (): &(), _: &[f64], _: &mut [f64]) -> Result<()> {
        Ok(())
    }
    fn ibarrier(&self, (): &()) -> Result<()> {
        Ok(())
    }
    fn iallreduce(&self, (): &(), _: &[f64], _: &mut [f64]) -> Result<()> {
        Ok(())
    }
    fn window(&self, (): &(), _: usize, _: Access) -> Result<()> {
        Ok(())
    }
    fn put(&self, (): &(), _: &[u8], _: usize) -> Result<()> {
        Ok(())
    }
    fn get(&self, (): &(), _: &mut [u8], _: usize) -> Result<()> {
        Ok(())
    }
    fn accumulate(&self, (): &(), _: &[f64], _: usize) -> Result<()> {
        Ok(())
    }
    fn fetch_add(&self, (): &(), number: i64, _: usize) -> Result<i64> {
        Ok(number)
    }
    fn fence(&self, (): &()) -> Result<()> {
        Ok(())
    }
    fn look(&self, (): &(), _: &mut [u8]) -> Result<()> {
        Ok(())
    }
    fn abort(&self, _: i32) {}
}

const SAMPLES: usize = 10_000;
/// Repetitions at each of two ranks that make ten million samples.
const SAMPLES_OF_TEN_MILLION: usize = 5_000_000;

fn samples(c: &mut Criterion) {
    let m = Nothing(Source::best());
    let mut group = c.benchmark_group("per-sample");
    group.throughput(Throughput::Elements(SAMPLES as u64));
    group.bench_function("two readings of the clock", |b| {
        b.iter(|| {
            for _ in 0..SAMPLES {
                black_box((m.ticks(), m.ticks()));
            }
        });
    });
    let room = || {
        let mut slots = Slots::default();
        slots.grow(SAMPLES);
        slots
    };
    group.bench_function("an empty sample", |b| {
        b.iter_batched(
            room,
            |mut slots| {
                let done = measure::together(&m, &(), &Starts::None, &mut slots, 0, || Ok(()));
                (done.is_ok(), slots)
            },
            BatchSize::LargeInput,
        );
    });
    group.finish();
}

struct OneNode;

impl Relations for OneNode {
    fn same_node(&self, _: usize, _: usize) -> bool {
        true
    }
    fn same_clock(&self, _: usize, _: usize) -> bool {
        true
    }
}

fn ten_million(c: &mut Criterion) {
    const COUNT: usize = SAMPLES_OF_TEN_MILLION;
    let layout = Layout { nodes: vec![0, 0] };
    let pairing = Pairing { pairs: vec![(0, 1)], locality: weir_distribution::Locality::Intra };
    let spec = Spec {
        operation: Operation::named("send").unwrap_or_default()[0],
        size: 8,
        placement: layout.everybody(),
        pairing: Some(pairing),
        locality: weir_distribution::Locality::Intra,
        start: StartSync::None,
        count: 0,
        pattern: None,
        threads: None,
        tagged: None,
    };
    let noted = || {
        let begin: Vec<i64> = (0..COUNT as i64).map(|i| i * 1000).collect();
        let end = begin.iter().map(|t| t + 300 + t * 7919 % 101).collect();
        Noted {
            length_ns: vec![300.0; COUNT],
            begin_ns: begin,
            end_ns: end,
            error_ns: 0.0,
            least_ns: 0.0,
            missed: Vec::new(),
            moved: Vec::new(),
            carried: None,
            cpu_ns: None,
            alone_ns: None,
            waits: Vec::new(),
        }
    };
    let measured = Measured {
        ranks: vec![noted(), noted()],
        repetitions: COUNT,
        pilot: 2,
        why: "repetitions".into(),
        span_ns: (0, 1),
        window_ns: None,
        start: StartSync::None,
        windows_failed: None,
        agreed_ns: Vec::new(),
        elapsed_ns: 0.0,
        lost: Default::default(),
    };
    let rules = Rules { keep: 200_000, warm_up: None, percentile: 0.99, multiplier: 5.0, seed: 1, counted: None };
    let mut group = c.benchmark_group("collect");
    group.sample_size(10).throughput(Throughput::Elements(2 * COUNT as u64));
    group.bench_function("ten million samples into a cell", |b| {
        b.iter(|| collect::cell(&spec, &measured, &rules, &OneNode).is_ok());
    });
    group.finish();
    peak_memory(|| collect::cell(&spec, &measured, &rules, &OneNode).is_ok());
}

/// Most memory that is asked for with ten million samples, bytes.
const MEMORY_LIMIT_BYTES: u64 = 1 << 30;

/// Prints the most memory that this process, with ten million samples in it, held during `work`.
/// Linux alone tells, and only if its high-water mark can be set back (proc(5): `clear_refs`).
fn peak_memory(work: impl FnOnce() -> bool) {
    if let Err(error) = std::fs::write("/proc/self/clear_refs", "5") {
        println!("collect: peak memory is not known: /proc/self/clear_refs: {error}");
        return;
    }
    // Each rank still has its own readings while rank 0 makes a cell of what it got.
    let mut own = Slots::default();
    own.grow(SAMPLES_OF_TEN_MILLION);
    let good = work();
    black_box(&own);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix("kB"));
    let peak = peak.and_then(|kib| kib.trim().parse::<u64>().ok()).map_or(0, |kib| kib * 1024);
    let verdict = if good && (1..MEMORY_LIMIT_BYTES).contains(&peak) { "passed" } else { "FAILED" };
    println!(
        "collect: peak memory with ten million samples {} MiB, allowed {} MiB: {verdict}",
        peak >> 20,
        MEMORY_LIMIT_BYTES >> 20
    );
}

#[allow(missing_docs, reason = "the macro writes a public function")]
mod group {
    use super::{samples, ten_million};
    criterion::criterion_group!(benches, samples, ten_million);
}
use group::benches;
criterion_main!(benches);

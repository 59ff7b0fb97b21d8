//! The harness on a simulated machine: what was planted must come out.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Parser;
use weir_bench::host::Facts;
use weir_bench::machine::Machine;
use weir_bench::machine::sim::{self, Model, Phases, Shape, Stall, Warming, Wrong};
use weir_bench::options::{Args, Settings};
use weir_bench::run::{About, Desk, Report, Silent, Watcher, fit, launch, launch_at};
use weir_bench::{BenchError, Result};
use weir_distribution::{Cell, Locality, Reader, Run, Sample, StartSync, State, Warning, flags};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

fn settings(line: &str) -> Settings {
    let words = ["bench"].into_iter().chain(line.split_whitespace());
    Line::try_parse_from(words).unwrap_or_else(|error| panic!("{error}")).args.settings().unwrap()
}

/// Measures on a simulated machine; the report of rank 0, and how each rank ended.
fn bench_with(
    model: &Model,
    line: &str,
    watcher: impl Fn() -> Box<dyn Watcher> + Sync,
    stop: &AtomicBool,
) -> Vec<Result<Option<Report>>> {
    let settings = settings(line);
    let about = About { backend: "sim".into(), ..About::default() };
    sim::run(model, |m| {
        let mut facts = Facts::unknown(&format!("node{}", model.nodes[m.rank()]));
        (facts.processors, facts.online) = (vec![m.rank() as u32], model.nodes.len());
        launch(m, &settings, &about, &facts, stop, watcher().as_mut())
    })
}

fn bench(model: &Model, line: &str) -> Report {
    let mut all = bench_with(model, line, || Box::new(Silent), &AtomicBool::new(false));
    for (rank, one) in all.iter().enumerate() {
        assert!(one.is_ok(), "rank {rank}: {:?}", one.as_ref().err().map(ToString::to_string));
    }
    all.remove(0).unwrap().unwrap()
}

/// Measures into a folder and reads it.
fn bench_and_read(model: &Model, line: &str) -> (Run, Vec<Vec<Sample>>) {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("run");
    bench(model, &format!("{line} -o {}", dir.display()));
    read(&dir)
}

fn read(dir: &Path) -> (Run, Vec<Vec<Sample>>) {
    let reader = Reader::open(dir).unwrap();
    let samples = reader.run().cells.iter().map(|cell| reader.read_samples(cell).unwrap()).collect();
    (reader.run().clone(), samples)
}

/// The durations that count.
fn fair(samples: &[Sample]) -> Vec<f64> {
    samples.iter().filter(|s| s.counts()).map(|s| s.duration_ns).collect()
}

/// Largest distance of the samples' distribution from another one (Kolmogorov and Smirnov), times
/// the root of their number.
fn distance(mut values: Vec<f64>, cdf: impl Fn(f64) -> f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let n = values.len() as f64;
    let gaps = values.iter().enumerate().map(|(i, &x)| {
        let p = cdf(x);
        (p - i as f64 / n).abs().max(((i + 1) as f64 / n - p).abs())
    });
    gaps.fold(0.0, f64::max) * n.sqrt()
}

/// Gamma(1 + 1 / 3.6).
const MEAN_OF_WEIBULL_3_6: f64 = 0.901_105_7;

/// Beyond this the hypothesis is wrong with a probability of 0.9999.
const KS_LIMIT: f64 = 2.2;

#[test]
fn planted_one_way_times_come_out_as_planted() {
    let model = Model {
        shape: Shape::Weibull { shape: 3.6, scale: 2000.0 },
        floor_ns: 20_000.0,
        byte_ns: 1.0,
        local_ns: 100.0,
        reading_ns: 10.0,
        clocks: (0..4).map(|r| Wrong { offset_ns: 1e6 * f64::from(r), drift: 1e-5 * f64::from(r) }).collect(),
        ..Model::plain(4)
    };
    for operation in ["send", "isend", "duplex-isend"] {
        let (run, samples) = bench_and_read(&model, &format!("-t {operation} -s 1000 --reps 2000 --warm-up 0"));
        let bound = run.cells[0].clock_error_ns.unwrap();
        assert!((1.0..20_000.0).contains(&bound), "{operation}: clocks may be {bound} ns apart");
        // A reading of the clock takes 10 ns; the clocks may shift all by their error at most.
        let cdf = |x: f64| {
            let above = ((x - 21_000.0 - 10.0) / 2000.0).max(0.0);
            1.0 - (-above.powf(3.6)).exp()
        };
        let values = fair(&samples[0]);
        assert_eq!(values.len(), 8000);
        for rank in 0..4 {
            let own: Vec<f64> = samples[0].iter().filter(|s| s.rank == rank).map(|s| s.duration_ns).collect();
            // What the clocks add is the same in all samples of a rank but for their drift, which
            // within the cell is nothing: it is how far the mean is off, to 4 standard errors of
            // 0.6 us in 2000 samples.
            let planted = 21_010.0 + MEAN_OF_WEIBULL_3_6 * 2000.0;
            let error = own.iter().sum::<f64>() / own.len() as f64 - planted;
            let said =
                samples[0].iter().filter(|s| s.rank == rank).map(|s| f64::from(s.error_ns)).fold(f64::MAX, f64::min);
            assert!(
                error.abs() <= said + 54.0,
                "{operation}, rank {rank}: off by {error} ns, said to be within {said}"
            );
            // Offsets of milliseconds and drifts of 10 ppm are known to a fraction of the spread,
            // whatever the bound is.
            assert!(error.abs() < 400.0, "{operation}, rank {rank}: off by {error} ns");
            let least = distance(own.iter().map(|x| x - error).collect(), cdf);
            assert!(least < KS_LIMIT, "{operation}, rank {rank}: {least}");
        }
    }
}

#[test]
fn round_trips_are_halved_and_need_one_clock_only() {
    let model = Model { shape: Shape::Exponential(1000.0), local_ns: 0.0, reading_ns: 10.0, ..Model::plain(2) };
    // The half of two exponential times above twice the floor, and one reading: Erlang of order 2.
    let cdf = |x: f64| {
        let t = (2.0 * (x - 10_005.0) / 1000.0).max(0.0);
        1.0 - (1.0 + t) * (-t).exp()
    };
    for operation in ["ping-pong", "ping-pong-filled"] {
        let (run, samples) = bench_and_read(&model, &format!("-t {operation} -s 0 --reps 4000 --warm-up 0"));
        let values = fair(&samples[0]);
        // Both halves of the machine time.
        assert_eq!(values.len(), 8000);
        assert!(samples[0].iter().all(|s| s.error_ns == 0.0));
        assert!(distance(values, cdf) < KS_LIMIT, "{operation}");
        assert_eq!(run.cells[0].configuration.pairs, 1);
    }
}

/// Counts of durations about each of these values.
fn peaks(values: &[f64], at: &[f64], width: f64) -> Vec<usize> {
    at.iter().map(|peak| values.iter().filter(|v| (*v - peak).abs() < width).count()).collect()
}

#[test]
fn a_binomial_broadcast_over_16_processes_shows_its_five_peaks() {
    let (transit, local) = (20_000.0, 1000.0);
    let model =
        Model { shape: Shape::Exponential(50.0), floor_ns: transit, byte_ns: 0.0, local_ns: local, ..Model::plain(16) };
    let (run, samples) = bench_and_read(&model, "-t bcast -s 128 --reps 200 --warm-up 0 --start window");
    let cell = &run.cells[0];
    assert_eq!(cell.configuration.start, StartSync::Window);
    assert!(cell.missed_windows < 5, "{} repetitions did not begin together", cell.missed_windows);
    let good = (cell.repetitions - cell.missed_windows - cell.warm_up) as usize;
    let values = fair(&samples[0]);
    assert_eq!(values.len(), 16 * good);
    // Reached over j messages, a process waits for or sends 4 - j others.
    let at: Vec<f64> = (0..5).map(|j| f64::from(j) * transit + f64::from(4 - j) * local).collect();
    assert_eq!(peaks(&values, &at, 0.4 * transit), [1, 4, 6, 4, 1].map(|share| share * good));
    let near = peaks(&values, &at, 3000.0);
    assert!(near.iter().sum::<usize>() > 15 * good, "{near:?}");
}

#[test]
fn planted_outliers_are_found_and_kept() {
    let model = Model { shape: Shape::Exponential(500.0), outlier_every: 500, outlier_ns: 200e6, ..Model::plain(2) };
    let (run, samples) = bench_and_read(&model, "-t send -s 8 --reps 10000 --warm-up 0");
    let outliers = run.cells[0].outliers.as_ref().unwrap();
    let late: Vec<&Sample> = samples[0].iter().filter(|s| s.duration_ns > 100e6).collect();
    assert!((20..80).contains(&late.len()), "{} of 20000", late.len());
    assert_eq!(outliers.count, late.len() as u64);
    assert!(late.iter().all(|s| s.is_outlier() && s.counts()));
    assert_eq!(samples[0].iter().filter(|s| s.is_outlier()).count(), late.len());
    assert!(run.cells[0].summary.as_ref().unwrap().max_ns > 200e6);
}

#[test]
fn the_clock_begins_repetitions_closer_together_than_a_barrier() {
    let clocks: Vec<Wrong> =
        (0..8).map(|r| Wrong { offset_ns: 1e7 * f64::from(r), drift: 2e-6 * f64::from(r) }).collect();
    let model = Model { shape: Shape::Exponential(100.0), clocks, ..Model::plain(8) };
    let skew = |start: &str| {
        let report = bench(&model, &format!("-t allreduce -s 8 --reps 300 --start {start}"));
        let cell = &report.run.cells[0];
        (cell.skew.clone().unwrap().summary.p50_ns, cell.clone())
    };
    let ((by_clock, cell), (by_barrier, _)) = (skew("window"), skew("barrier"));
    assert!(by_clock < 500.0 && by_clock * 2.0 < by_barrier, "{by_clock} against {by_barrier}");
    assert!(cell.window_ns.unwrap() >= 50_000.0);
}

#[test]
fn who_misses_an_agreed_start_is_flagged_and_does_not_count() {
    // Now and then a message takes longer than a window is wide.
    let model = Model { shape: Shape::Constant, outlier_every: 300, outlier_ns: 3e6, ..Model::plain(4) };
    let (run, samples) = bench_and_read(&model, "-t bcast -s 8 --reps 400 --warm-up 0 --start window");
    let cell = &run.cells[0];
    assert!(cell.missed_windows > 0);
    let missed: std::collections::BTreeSet<u32> =
        samples[0].iter().filter(|s| s.flags & flags::MISSED_WINDOW != 0).map(|s| s.repetition).collect();
    assert_eq!(missed.len() as u64, cell.missed_windows);
    // Missed at one is missed at all.
    assert_eq!(samples[0].iter().filter(|s| missed.contains(&s.repetition) && s.counts()).count(), 0);
    assert_eq!(cell.summary.as_ref().unwrap().count, 4 * (cell.repetitions - cell.missed_windows - cell.warm_up));
    // They are made up for.
    assert_eq!(cell.repetitions - cell.missed_windows - cell.warm_up, 400);
}

#[test]
fn contention_shows_at_the_levels_it_was_planted_at() {
    let model = Model { shape: Shape::Exponential(1000.0), contention: 1.0, ..Model::plain(8) };
    let (run, samples) = bench_and_read(&model, "-t send -s 8 --pairs 1,4 --reps 1500 --warm-up 0 --locality inter");
    let mean = |pairs: u32| {
        let place = run.cells.iter().position(|c| c.configuration.pairs == pairs).unwrap();
        let values = fair(&samples[place]);
        assert_eq!(values.len(), 2 * pairs as usize * 1500);
        values.iter().sum::<f64>() / values.len() as f64 - 10_010.0
    };
    // With one pair nothing else is under way; with four up to three messages are.
    let (alone, together) = (mean(1), mean(4));
    assert!((800.0..1200.0).contains(&alone), "{alone}");
    assert!(together > 2.5 * alone, "{together} against {alone}");
}

/// The mean of what is above `floor`.
fn mean_above(values: &[f64], floor: f64) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64 - floor
}

#[test]
fn each_threads_times_are_its_own_and_stand_where_its_number_says() {
    // A message of thread t takes 3 us more for each t.
    let model = Model { shape: Shape::Exponential(200.0), thread_ns: 3000.0, byte_ns: 0.0, ..Model::plain(4) };
    // Where a sample is of a message there and its answer, both are the thread's; two windows of a
    // stream share such a round.
    for (operation, ways) in [("ping-pong", 1.0), ("sendrecv", 1.0), ("message-rate", 2.0), ("stream", 1.0)] {
        let line = format!("-t {operation} -s 8 --reps 1203 --warm-up 0 --window 1 --threads 4 --locality inter");
        let (run, samples) = bench_and_read(&model, &line);
        let configuration = &run.cells[0].configuration;
        assert_eq!(configuration.parameters["threads"], "4", "{operation}");
        assert_eq!(samples[0].len(), 4 * 1203, "{operation}: one for each rank and repetition");
        let of = |thread: u32| -> Vec<f64> {
            let own = samples[0].iter().filter(|s| s.repetition % 4 == thread && s.counts());
            own.map(|s| s.duration_ns).collect()
        };
        let first = mean_above(&of(0), 0.0);
        for thread in 1..4 {
            let (values, planted) = (of(thread), 3000.0 * f64::from(thread));
            assert!(values.len() > 1190, "{operation}, thread {thread}: {} samples", values.len());
            let more = mean_above(&values, first);
            assert!((more - ways * planted).abs() < 150.0, "{operation}, thread {thread}: {more} of {planted}");
        }
    }
}

#[test]
fn threads_are_under_way_together_until_the_last_is_done() {
    // What varies grows with each other message under way: of four pairs of threads one message
    // each, of which the fastest threads, done first, go on.
    let model = Model { shape: Shape::Exponential(1000.0), contention: 1.0, thread_ns: 2000.0, ..Model::plain(2) };
    let (run, samples) = bench_and_read(&model, "-t ping-pong -s 0 --reps 4000 --warm-up 0 --threads 1,4");
    let above = |threads: &str, thread: u32, of: u32| {
        let place = run.cells.iter().position(|c| c.configuration.parameters["threads"] == threads).unwrap();
        let own = samples[place].iter().filter(|s| s.repetition % of == thread);
        let own: Vec<f64> = own.map(|s| s.duration_ns).collect();
        mean_above(&own, 10_005.0 + 2000.0 * f64::from(thread))
    };
    let (alone, slowest) = (above("1", 0, 1), above("4", 3, 4));
    assert!((900.0..1100.0).contains(&alone), "{alone}");
    assert!(slowest > 3.0 * alone, "{slowest} against {alone}");
}

#[test]
fn threads_of_several_pairs_end_together_and_each_number_is_a_cell() {
    let model =
        Model { nodes: vec![0, 0, 0, 1], shape: Shape::Exponential(1000.0), contention: 1.0, ..Model::plain(4) };
    let line = "-t ping-pong,stream -s 64 --reps 500 --threads 1,3 --threads-by tag";
    let (run, samples) = bench_and_read(&model, line);
    let threads = |cell: &Cell| cell.configuration.parameters["threads"].clone();
    for count in ["1", "3"] {
        assert_eq!(
            run.cells.iter().filter(|cell| threads(cell) == count).count(),
            4,
            "two operations, within and mixed"
        );
    }
    assert!(run.cells.iter().all(|cell| cell.configuration.parameters["threads_by"] == "tag"));
    for (cell, samples) in run.cells.iter().zip(&samples) {
        assert_eq!(cell.repetitions - cell.warm_up, 500);
        assert!(samples.iter().all(|s| s.duration_ns > 0.0 && s.duration_ns < 1e6), "{:?}", cell.configuration);
    }
    let same = |line: &str| bench(&model, line).run.cells.iter().map(|c| c.summary.clone()).collect::<Vec<_>>();
    let line = "-t ping-pong -s 64 --reps 300 --seed 3 --threads 3";
    assert_eq!(same(line), same(line), "the same seed gives the same run");
}

#[test]
fn a_machine_without_threads_refuses_them_at_every_rank_before_it_measures() {
    let model = Model { no_threads: true, ..Model::plain(2) };
    let all = bench_with(&model, "-t ping-pong,bcast --threads 2", || Box::new(Silent), &AtomicBool::new(false));
    for one in all {
        let error = one.map(|_| ()).unwrap_err();
        assert!(matches!(&error, BenchError::Usage(_)));
        assert_eq!(error.to_string(), "--threads: this machine has one thread for each rank");
    }
}

#[test]
fn a_rank_that_dies_takes_the_threads_of_its_partner_with_it() {
    let model = Model { death: Some((1, 40e6)), ..Model::plain(2) };
    let line = "-t ping-pong -s 8 --reps 100000 --threads 3";
    let all = bench_with(&model, line, || Box::new(Silent), &AtomicBool::new(false));
    assert!(all.iter().all(Result::is_err), "nobody hangs, and nobody has a result");
}

#[test]
fn pairs_that_are_done_early_go_on_until_all_are() {
    // One pair within a node, ten times as fast as the other one between nodes.
    let model =
        Model { nodes: vec![0, 0, 0, 1], shape: Shape::Exponential(1000.0), contention: 1.0, ..Model::plain(4) };
    let (run, samples) = bench_and_read(&model, "-t send -s 8 --reps 1000 --warm-up 0");
    let mixed = run.cells.iter().position(|c| c.configuration.locality == Locality::Mixed).unwrap();
    let slow = samples[mixed].iter().filter(|s| s.flags & flags::SAME_NODE == 0);
    let above: Vec<f64> = slow.map(|s| s.duration_ns - 10_011.0).collect();
    assert_eq!(above.len(), 2000);
    // A message of the other pair, timed or not, is under way nearly always: that doubles what
    // varies. Alone it would be 1000.
    let mean = above.iter().sum::<f64>() / above.len() as f64;
    assert!(mean > 1600.0, "{mean}");
}

#[test]
fn all_pairs_send_one_way_then_all_send_the_other_way() {
    let (run, samples) = bench_and_read(&Model::plain(8), "-t send -s 8 --reps 600 --warm-up 0");
    assert_eq!(run.cells[0].configuration.pairs, 4);
    let mut by_start: Vec<(i64, bool)> = samples[0].iter().map(|s| (s.start_ns, s.rank < 4)).collect();
    by_start.sort_unstable();
    let turns = by_start.windows(2).filter(|pair| pair[0].1 != pair[1].1).count();
    // Twice in each batch, of which there are few.
    assert!((1..30).contains(&turns), "{turns} turns in {} messages", by_start.len());
}

#[test]
fn who_takes_no_part_sends_nothing_while_others_are_measured() {
    let model = Model { nodes: vec![0; 6], ..Model::plain(6) };
    for line in ["-t send -s 8 --pairs 1", "-t bcast -s 8 --placement 1x2 --start barrier"] {
        let sent = |reps: u32| {
            let settings = settings(&format!("{line} --reps {reps} --warm-up 0"));
            let about = About { backend: "sim".into(), ..About::default() };
            let all = sim::run(&model, |m| {
                let facts = Facts::unknown("node");
                launch(m, &settings, &about, &facts, &AtomicBool::new(false), &mut Silent).unwrap();
                m.messages_sent()
            });
            all[5]
        };
        // Longer cells have more batches, and none of them is this rank's business.
        assert_eq!(sent(20), sent(5000), "{line}");
    }
}

#[test]
fn as_many_repetitions_count_as_were_asked_for() {
    for (operation, start) in [("send", "none"), ("barrier", "barrier"), ("allreduce", "window"), ("ping-pong", "none")]
    {
        for reps in [2, 7, 8, 10, 50, 400] {
            for seed in 1..3 {
                let model = Model { seed, ..Model::plain(4) };
                let report = bench(&model, &format!("-t {operation} -s 8 --reps {reps} --start {start}"));
                // Each of them gives a sample at every rank.
                let counted = report.run.cells[0].summary.as_ref().unwrap().count;
                assert_eq!(counted, 4 * reps, "{operation}, seed {seed}");
            }
        }
    }
}

#[test]
fn a_heavy_tail_does_not_make_windows_as_wide_as_its_longest_times() {
    let model = Model { shape: Shape::Lognormal { mu: 8.0, sigma: 1.8 }, ..Model::plain(8) };
    let report = bench(&model, "-t allreduce -s 8 --time 0.5 --start window");
    let cell = &report.run.cells[0];
    let good = cell.repetitions - cell.missed_windows - cell.warm_up;
    assert_eq!(cell.configuration.start, StartSync::Window);
    assert!(good > 500, "{good} of {} repetitions, windows of {:?} ns", cell.repetitions, cell.window_ns);
    assert!(cell.missed_windows * 8 < cell.repetitions, "{} of {}", cell.missed_windows, cell.repetitions);
}

#[test]
fn overhead_is_compared_with_what_lies_between_two_readings() {
    // A reading is 0.75 % of there and back, and 1.5 % of the half of it; of eight messages it is
    // less.
    let model = Model { shape: Shape::Constant, reading_ns: 150.0, local_ns: 0.0, ..Model::plain(2) };
    for line in ["-t ping-pong -s 0", "-t message-rate -s 0 --window 64"] {
        let report = bench(&model, &format!("{line} --reps 50"));
        let codes: Vec<&str> = report.run.launches[0].warnings.iter().map(|w| w.code.as_str()).collect();
        assert!(!codes.contains(&"overhead"), "{line}: {codes:?}");
    }
    let report = bench(&Model { reading_ns: 1500.0, ..model }, "-t ping-pong -s 0 --reps 50");
    assert!(report.run.launches[0].warnings.iter().any(|w| w.code == "overhead"));
}

#[test]
fn what_is_left_out_is_told() {
    let report = bench(&Model::plain(2), "-t allreduce -s 4,8 --reps 5 --start barrier");
    let told = report.run.launches[0].warnings.iter().find(|w| w.code == "left-out").unwrap();
    assert!(told.message.contains("allreduce is not measured at 4 bytes"), "{}", told.message);
}

#[test]
fn fitting_ends_when_asked_to() {
    struct StopAtSecond<'a>(&'a AtomicBool);
    impl Watcher for StopAtSecond<'_> {
        fn begin(&mut self, _: &Run, _: usize) {}
        fn cell(&mut self, _: &Cell, _: usize, _: usize, _: f64) {}
        fn warning(&mut self, _: &Warning) {}
        fn fitting(&mut self, done: usize, _: usize, _: f64) {
            self.0.store(done == 1, Ordering::Relaxed);
        }
    }
    let mut report = bench(&Model::plain(2), "-t send -s 1,2,4,8 --reps 300");
    let stop = AtomicBool::new(false);
    assert!(!fit(&mut report, &stop, &mut StopAtSecond(&stop)).unwrap());
    let fitted = report.run.cells.iter().filter(|cell| !cell.fits.is_empty()).count();
    assert_eq!(fitted, 2);
}

#[test]
fn warm_up_is_found_and_left_out() {
    let report = bench(&Model::plain(2), "-t send -s 8 --reps 500 --warm-up 37");
    assert_eq!((report.run.cells[0].warm_up, report.run.cells[0].summary.as_ref().unwrap().count), (37, 2 * 500));
    // The first batch always is warm-up, as connections are made in it, and nothing more where
    // nothing more was planted.
    let report = bench(&Model::plain(2), "-t send -s 5000 --reps 500");
    let cold = report.run.cells[0].warm_up;
    assert!((2..10).contains(&cold), "{cold}");
    // The first 60 messages of each rank take twice as long.
    let model = Model { warming: Some(Warming { messages: 60, bytes: 5000, longer_ns: 10_000.0 }), ..Model::plain(2) };
    let (run, samples) = bench_and_read(&model, "-t send -s 5000 --reps 500");
    let cell = &run.cells[0];
    // To the batch of 5 repetitions in which it ends, or some more by chance.
    assert!((60..=100).contains(&cell.warm_up), "{} repetitions", cell.warm_up);
    let slow = |s: &&Sample| s.duration_ns > 18_000.0;
    assert_eq!(samples[0].iter().filter(slow).count(), 120, "as planted");
    assert!(samples[0].iter().filter(slow).all(|s| s.flags & flags::WARM_UP != 0 && !s.counts()));
    assert_eq!(cell.summary.as_ref().unwrap().count, 2 * (cell.repetitions - cell.warm_up));
    // What is found to be warm-up is made up for, and no more than that.
    assert_eq!(cell.repetitions - cell.warm_up, 500);
    assert_eq!(samples[0].iter().map(|s| u64::from(s.repetition)).max(), Some(cell.repetitions - 1));
}

fn order(report: &Report) -> Vec<String> {
    report.run.cells.iter().map(|c| format!("{} {}", c.configuration.label(), c.configuration.size_bytes)).collect()
}

#[test]
fn cells_are_shuffled_by_the_seed() {
    let model = Model::plain(4);
    let line = "-t collectives -s 8,64 --reps 5 --start barrier";
    let one = order(&bench(&model, &format!("{line} --seed 5")));
    assert_eq!(one, order(&bench(&model, &format!("{line} --seed 5"))));
    assert_ne!(one, order(&bench(&model, &format!("{line} --seed 6"))));
    let mut sorted = one.clone();
    sorted.sort();
    assert_ne!(one, sorted);
    // Eleven with parts and sums of old, eight by lengths, sums of four more kinds, incast; two
    // barriers.
    assert_eq!(one.len(), (11 + 8 + 4 + 1) * 2 + 2);
}

#[test]
fn the_time_asked_for_is_kept() {
    let report = bench(&Model::plain(4), "-t send,barrier,bcast -s 8,1k --time 2 --start barrier");
    let spans = report.run.cells.iter().map(|c| c.elapsed_ns.unwrap());
    let first = report.run.cells.iter().map(|c| c.started_ns.unwrap()).min().unwrap();
    let last = report.run.cells.iter().map(|c| c.started_ns.unwrap() + c.elapsed_ns.unwrap()).max().unwrap();
    assert!(spans.sum::<i64>() > 1_500_000_000);
    assert!((1_800_000_000..2_400_000_000).contains(&(last - first)), "{}", last - first);
    assert!(report.run.cells.iter().all(|c| c.stopped_by.as_deref() == Some("time")));
}

/// Repetitions of each cell in the order measured, how long it took in s, and when the last ended.
fn pace(report: &Report) -> (Vec<u64>, Vec<f64>, f64) {
    let cells = &report.run.cells;
    let first = cells[0].started_ns.unwrap();
    let last = cells.last().map(|c| c.started_ns.unwrap() + c.elapsed_ns.unwrap() - first).unwrap();
    let took = cells.iter().map(|c| c.elapsed_ns.unwrap() as f64 / 1e9).collect();
    (cells.iter().map(|c| c.repetitions).collect(), took, last as f64 / 1e9)
}

#[test]
fn a_stall_in_one_cell_takes_nothing_from_it_nor_from_the_others() {
    let line = "-t send -s 1,2,4,8,16,32,64,128 --time 4 --seed 3";
    let (plain, took, _) = pace(&bench(&Model::plain(2), line));
    let least = *plain.iter().min().unwrap();
    // In the second cell, for less than a quarter of the launch's time, and for ten times all of
    // it.
    for (for_s, part) in [(0.9, 0.8), (40.0, 0.4)] {
        let at_ns = 1e9 * (took[0] + took[1] / 2.0) + 0.4e9;
        let model = Model { stalls: vec![Stall { at_ns, for_ns: for_s * 1e9 }], ..Model::plain(2) };
        let (stalled, took, all) = pace(&bench(&model, line));
        let hit = took.iter().position(|s| *s > for_s).expect("no cell was hit");
        assert!(hit < 4, "the stall came too late to harm: {took:?}");
        assert!(stalled[hit] as f64 > 0.8 * least as f64, "the cell that was hit, {hit}: {stalled:?}, plain {plain:?}");
        let poorest = stalled.iter().min().unwrap();
        assert!(*poorest as f64 > part * least as f64, "{for_s} s: {stalled:?}, plain {plain:?}");
        assert!(all < 4.4 + for_s, "{all}");
    }
}

#[test]
fn samples_that_depend_on_each_other_do_not_end_a_cell_too_early() {
    // Some hundred repetitions of a phase are worth one.
    let phases = Some(Phases { each_ns: 2e6, longer_ns: 20_000.0 });
    let model = Model { shape: Shape::Exponential(500.0), phases, ..Model::plain(2) };
    let report = bench(&model, "-t ping-pong -s 8 --time 60 --ci 4");
    let cell = &report.run.cells[0];
    assert_eq!(cell.stopped_by.as_deref(), Some("confidence"));
    let s = cell.summary.as_ref().unwrap();
    let width = (s.median_high_ns.unwrap() - s.median_low_ns.unwrap()) / s.p50_ns;
    // Two ranks judge half of the samples each, so that the interval of all is narrower; by chance
    // it may be wider.
    assert!(width < 0.05, "{width} with {} repetitions", cell.repetitions);
    let worth = cell.independence.as_ref().unwrap().effective_count;
    assert!(worth * 5.0 < s.count as f64, "{worth} of {}: nothing was planted", s.count);
}

#[test]
fn a_narrow_interval_ends_a_cell_early() {
    let model = Model { shape: Shape::Exponential(500.0), ..Model::plain(2) };
    let report = bench(&model, "-t send -s 8 --time 20 --ci 1");
    let cell = &report.run.cells[0];
    assert_eq!(cell.stopped_by.as_deref(), Some("confidence"));
    let s = cell.summary.as_ref().unwrap();
    assert!((s.median_high_ns.unwrap() - s.median_low_ns.unwrap()) < 0.011 * s.p50_ns);
    assert!(cell.elapsed_ns.unwrap() < 5_000_000_000);
}

#[test]
fn a_reservoir_keeps_some_and_the_histogram_all() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("run");
    bench(&Model::plain(2), &format!("-t send -s 8 --reps 3000 --keep 500 --warm-up 0 -o {}", dir.display()));
    let (run, samples) = read(&dir);
    assert_eq!((run.cells[0].measured, fair(&samples[0]).len()), (6000, 500));
    assert!(samples[0].iter().all(|s| s.counts() || s.is_beside()));
    assert_eq!(run.cells[0].summary.as_ref().unwrap().count, 6000);
}

/// Asks to stop when so many cells are finished.
struct StopAfter(usize, &'static AtomicBool);

impl Watcher for StopAfter {
    fn begin(&mut self, _: &Run, _: usize) {}
    fn cell(&mut self, _: &Cell, done: usize, _: usize, _: f64) {
        if done == self.0 {
            self.1.store(true, Ordering::Relaxed);
        }
    }
    fn warning(&mut self, _: &Warning) {}
    fn fitting(&mut self, _: usize, _: usize, _: f64) {}
}

/// Takes the books when so many cells are finished, as who ends a launch that hangs does.
struct TakeAfter(usize, Desk, &'static Mutex<Option<(Run, u32)>>);

impl Watcher for TakeAfter {
    fn begin(&mut self, _: &Run, _: usize) {}
    fn cell(&mut self, _: &Cell, done: usize, _: usize, _: f64) {
        if done == self.0 {
            *self.2.lock().unwrap() = self.1.take_over(Duration::ZERO);
        }
    }
    fn warning(&mut self, _: &Warning) {}
    fn fitting(&mut self, _: usize, _: usize, _: f64) {}
}

#[test]
fn who_ends_a_launch_that_hangs_finds_its_finished_cells_and_leaves_the_folder_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("run");
    let taken: &'static Mutex<Option<(Run, u32)>> = Box::leak(Box::new(Mutex::new(None)));
    let desk = Desk::default();
    assert!(desk.take_over(Duration::ZERO).is_none(), "nothing is begun");
    let settings = settings(&format!("-t send -s 1,2,4,8,16 --reps 50 -o {}", dir.display()));
    let model = Model::plain(4);
    let all = sim::run(&model, |m| {
        let mut watcher = TakeAfter(2, desk.clone(), taken);
        // Each process has a desk, and all that is on it is rank 0's.
        let own = if m.rank() == 0 { desk.clone() } else { Desk::default() };
        let facts = Facts::unknown(&format!("node{}", model.nodes[m.rank()]));
        launch_at(m, &settings, &About::default(), &facts, &AtomicBool::new(false), &mut watcher, &own)
    });
    assert!(all.into_iter().all(|one| one.unwrap().is_none()), "nobody has a report any more");
    let (shown, launch) = taken.lock().unwrap().take().unwrap();
    assert_eq!((shown.cells.len(), launch, shown.launches[0].state), (2, 0, State::Stopped));
    let (run, samples) = read(&dir);
    assert_eq!((run.cells.len(), run.state, run.launches[0].state), (2, State::Stopped, State::Stopped));
    assert!(samples.iter().all(|s| !s.is_empty()));
    assert!(!dir.join("run.lock").exists());
    assert!(desk.take_over(Duration::ZERO).is_none(), "they are taken once");
}

#[test]
fn a_launch_that_stalls_says_how_much_longer_it_took_and_why() {
    // Half a minute in which nothing moves, in a launch of ten seconds.
    let stall = Stall { at_ns: 3e9, for_ns: 30e9 };
    let model = Model { stalls: vec![stall], ..Model::plain(2) };
    let report = bench(&model, "-t send,ping-pong -s 8,64 --time 10");
    let told: Vec<&Warning> = report.run.launches[0].warnings.iter().filter(|w| w.code == "took-longer").collect();
    assert_eq!(told.len(), 1);
    let text = &told[0].message;
    assert!(text.contains("10 s were asked for") && text.contains(" s went to the machine standing still"), "{text}");
    let calm = bench(&Model::plain(2), "-t send,ping-pong -s 8,64 --time 10");
    assert!(calm.run.launches[0].warnings.iter().all(|w| w.code != "took-longer"));
}

#[test]
fn an_interrupted_run_keeps_its_finished_cells_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("run");
    // Lives as long as the process: a watcher is a box without a life of its own.
    let stop: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
    let line = format!("-t send -s 1,2,4,8,16 --reps 50 -o {}", dir.display());
    let all = bench_with(&Model::plain(4), &line, || Box::new(StopAfter(2, stop)), stop);
    let report = all.into_iter().next().unwrap().unwrap().unwrap();
    assert!(!report.complete);
    let (run, samples) = read(&dir);
    assert_eq!((run.cells.len(), run.state, run.launches[0].state), (2, State::Stopped, State::Stopped));
    assert!(samples.iter().all(|s| !s.is_empty()));
}

#[test]
fn a_launch_that_ends_before_its_first_cell_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("run");
    let line = format!("-t send -s 8 --time 10 -o {}", dir.display());
    let stopped = || {
        let all = bench_with(&Model::plain(4), &line, || Box::new(Silent), &AtomicBool::new(true));
        all.into_iter().next().unwrap().unwrap().unwrap()
    };
    let report = stopped();
    assert_eq!((report.complete, report.run.cells.len()), (false, 0));
    assert!(!dir.exists());
    // A rank that dies does no more.
    let dying = Model { death: Some((3, 5e9)), ..Model::plain(4) };
    let all = bench_with(&dying, &line, || Box::new(Silent), &AtomicBool::new(false));
    assert!(all.iter().all(Result::is_err) && !dir.exists());
    // A folder that was there stays.
    std::fs::create_dir(&dir).unwrap();
    stopped();
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
    // And so does what a run has already.
    bench(&Model::plain(4), &format!("-t send -s 8 --reps 10 -o {}", dir.display()));
    let before = read(&dir).0;
    let line = format!("-t send -s 8 --time 10 --append -o {}", dir.display());
    bench_with(&Model::plain(4), &line, || Box::new(Silent), &AtomicBool::new(true));
    assert_eq!(read(&dir).0, before);
}

#[test]
fn a_rank_that_dies_ends_the_run_and_finished_cells_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("run");
    let model = Model { death: Some((3, 3e9)), ..Model::plain(4) };
    let line = format!("-t send -s 1,2,4,8,16,32 --time 10 -o {}", dir.display());
    let all = bench_with(&model, &line, || Box::new(Silent), &AtomicBool::new(false));
    for one in &all {
        let text = one.as_ref().err().unwrap().to_string();
        assert!(text.contains("rank 3 died") && !text.contains('\n'), "{text}");
    }
    let (run, samples) = read(&dir);
    assert!((1..5).contains(&run.cells.len()), "{}", run.cells.len());
    assert_eq!((run.state, samples.len()), (State::Stopped, run.cells.len()));
}

#[test]
fn launches_are_added_to_a_run_of_the_same_machine_only() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("run");
    let line = format!("-t barrier --reps 20 --start barrier -o {}", dir.display());
    bench(&Model::plain(2), &line);
    bench(&Model::plain(2), &format!("{line} --append"));
    let (run, _) = read(&dir);
    assert_eq!((run.launches.len(), run.cells.len()), (2, 2));
    assert_eq!(run.cells[0].configuration, run.cells[1].configuration);
    let refusal = |model: &Model, line: &str| {
        let all = bench_with(model, line, || Box::new(Silent), &AtomicBool::new(false));
        all.into_iter().next().unwrap().err().unwrap().to_string()
    };
    // Without --append nothing is touched.
    assert!(refusal(&Model::plain(2), &line).contains("run"), "a run was overwritten");
    let other = refusal(&Model::plain(4), &format!("{line} --append"));
    assert!(other.contains("list of nodes of the run in"), "{other}");
}

#[test]
fn the_kernels_run_under_the_harness() {
    let report = bench(&Model::plain(4), "-t kernels -s 64,5k --reps 3 --iterations 5 --warm-up 0");
    // The farm has sizes.
    assert_eq!(report.run.cells.len(), 5);
    for cell in &report.run.cells {
        assert_eq!(cell.summary.as_ref().unwrap().count, 12, "{}", cell.configuration.label());
        assert_eq!(cell.configuration.parameters["iterations"], "5");
    }
}

#[test]
fn every_operation_gives_samples_at_every_process() {
    let model = Model { nodes: vec![0, 0, 1, 1], ..Model::plain(4) };
    let (run, samples) = bench_and_read(&model, "-t all -s 64 --reps 4 --iterations 2 --warm-up 0 --window 3");
    // Thirteen between pairs and twelve on the partner's memory, between and within nodes; 26
    // collectives; four kernels.
    assert_eq!(run.cells.len(), 2 * (13 + 12) + 26 + 4);
    for (cell, samples) in run.cells.iter().zip(&samples) {
        for rank in 0..4 {
            let own = samples.iter().filter(|s| s.rank == rank && s.counts()).count();
            assert_eq!(own, 4, "{} at rank {rank}", cell.configuration.label());
        }
    }
}

#[test]
fn an_operation_on_anothers_memory_takes_there_and_back() {
    let model = Model { shape: Shape::Exponential(1000.0), byte_ns: 1.0, local_ns: 0.0, ..Model::plain(4) };
    for operation in ["put", "get", "accumulate"] {
        let (run, samples) = bench_and_read(&model, &format!("-t {operation} -s 800 --reps 1500 --warm-up 0"));
        let values = fair(&samples[0]);
        // Each rank begins in one half of each batch.
        assert_eq!((values.len(), run.cells[0].configuration.pairs), (6000, 2));
        // The sum of two exponential times above twice the floor, 800 bytes and one reading: Erlang
        // of order 2.
        let cdf = |x: f64| {
            let t = ((x - 20_810.0) / 1000.0).max(0.0);
            1.0 - (1.0 + t) * (-t).exp()
        };
        let distance = distance(values, cdf);
        assert!(distance < KS_LIMIT, "{operation}: {distance}");
    }
    // A fence is a barrier besides, in which each waits for the others' operations: who ends last
    // finds all there.
    let (_, samples) = bench_and_read(&model, "-t put-fence -s 800 --reps 200 --warm-up 0");
    let values = fair(&samples[0]);
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    assert!(values.iter().all(|ns| *ns > 20_800.0) && mean > 26_000.0, "{mean}");
    // A lock is one more way there and back.
    let model = Model { shape: Shape::Constant, ..model };
    for (operation, bytes) in [("put-lock", 800.0), ("get-lock", 800.0), ("accumulate-lock", 800.0)] {
        let (_, samples) = bench_and_read(&model, &format!("-t {operation} -s 800 --reps 100 --warm-up 0"));
        let values = fair(&samples[0]);
        let planted = 4.0 * model.floor_ns + bytes + model.reading_ns;
        assert!(values.len() == 400 && values.iter().all(|ns| (ns - planted).abs() < 1.0), "{operation}: {values:?}");
    }
}

#[test]
fn a_stream_goes_at_the_rate_of_its_sender_and_its_bandwidth_is_in_the_record() {
    // Sending takes 2 us, and a message 30 us; answers come while others are under way.
    let model =
        Model { shape: Shape::Constant, local_ns: 2000.0, floor_ns: 30_000.0, reading_ns: 10.0, ..Model::plain(2) };
    let (run, samples) = bench_and_read(&model, "-t stream,message-rate -s 1000 --window 40 --reps 100");
    let of = |name: &str| run.cells.iter().position(|cell| cell.configuration.operation == name).unwrap();
    let (stream, rate) = (&run.cells[of("stream")], &run.cells[of("message-rate")]);
    let median = |cell: &Cell| cell.summary.as_ref().unwrap().p50_ns;
    assert!((2000.0..2100.0).contains(&median(stream)), "{}", median(stream));
    // 60 us there and back, shared by 40 messages.
    assert!(median(rate) > 3400.0, "{}", median(rate));
    for cell in [stream, rate] {
        let b = cell.bandwidth.unwrap();
        assert!((b.p50_bytes_per_s - 1000.0 / median(cell) * 1e9).abs() < 1.0 && b.bytes == 1000.0);
        assert!(b.p1_bytes_per_s <= b.p50_bytes_per_s && b.p50_bytes_per_s <= b.p99_bytes_per_s);
        let least = 1000.0 / cell.summary.as_ref().unwrap().max_ns * 1e9;
        assert_eq!(b.min_bytes_per_s, Some(least), "of the longest");
        assert_eq!(cell.cpu_ns, None, "ranks that are no processes");
    }
    assert!(samples[of("stream")].iter().all(|s| s.peer >= 0 && s.peer as u32 != s.rank));
}

#[test]
fn overlap_is_what_computing_hides_of_an_exchange() {
    // A rank is kept by its send for a while, in which it cannot compute.
    for (local_ns, percent) in [(0.0, 100.0), (5000.0, 75.0), (10_000.0, 50.0)] {
        let model = Model { shape: Shape::Constant, local_ns, floor_ns: 20_000.0, reading_ns: 0.0, ..Model::plain(4) };
        let (run, samples) = bench_and_read(&model, "-t overlap -s 0 --reps 100 --warm-up 0");
        let overlap = run.cells[0].overlap.unwrap();
        assert!((overlap.alone_ns - 20_000.0).abs() < 10.0 && overlap.compute_ns == overlap.alone_ns, "{overlap:?}");
        assert!((overlap.percent - percent).abs() < 1.0, "{overlap:?}");
        let together = 20_000.0 + local_ns;
        let as_planted = samples[0].iter().filter(|s| (s.duration_ns - together).abs() < 50.0).count();
        assert!(as_planted > 350, "{as_planted} of 400 with {local_ns} ns");
    }
}

/// One message in so many is this much later than the others, ns, and holds up none of another tag.
fn lossy(every: u32) -> Model {
    Model {
        shape: Shape::Constant,
        streams: true,
        outlier_every: every,
        outlier_ns: 1e6,
        reading_ns: 10.0,
        floor_ns: 20_000.0,
        byte_ns: 0.0,
        ..Model::plain(2)
    }
}

#[test]
fn an_open_loop_times_each_message_from_when_it_was_due() {
    let line = "-t open-loop -s 100 --interval 100 --reps 1000 --warm-up 0 --tags 4 --outstanding 3";
    let usual = |ns: f64| (19_990.0..20_100.0).contains(&ns);
    // Nothing is late: the message takes what is planted, and leaves each 100 us of its loop.
    let (run, samples) = bench_and_read(&lossy(0), line);
    let parameters = &run.cells[0].configuration.parameters;
    let expected = [("interval_us", "100"), ("outstanding", "3"), ("receive", "named"), ("tags", "4")];
    assert_eq!(parameters.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect::<Vec<_>>(), expected);
    assert_eq!(samples[0].len(), 2000);
    assert!(fair(&samples[0]).into_iter().all(usual), "{:?}", run.cells[0].summary);
    let of_one: Vec<i64> = samples[0].iter().filter(|s| s.rank == 1).map(|s| s.start_ns).collect();
    // Two messages come before the loop.
    assert!(of_one[2..].windows(2).all(|pair| (pair[1] - pair[0] - 100_000).abs() < 50), "{of_one:?}");
    assert!(samples[0].iter().all(|s| s.peer == 1 - s.rank as i32));

    // One in fifty is 1 ms late, in which nine others are due that would come before it does. By
    // named tags it holds up those of its own tag among them, two, which come when it does; by any
    // tag all nine.
    let late = |receive: &str| {
        let (_, samples) = bench_and_read(&lossy(50), &format!("{line} --receive {receive}"));
        let values = fair(&samples[0]);
        let held = values.iter().filter(|ns| !usual(**ns)).count() as f64 / values.len() as f64;
        // Those that are held up are late by what is left of the millisecond.
        let ns = |step: f64| 1_020_000.0 - 1e5 * step;
        let step = if receive == "named" { 4.0 } else { 1.0 };
        let second = values.iter().filter(|value| (*value - ns(step)).abs() < 200.0).count();
        let first = values.iter().filter(|value| (*value - ns(0.0)).abs() < 200.0).count();
        (held, first, second)
    };
    let (named, any) = (late("named"), late("any"));
    // 3 and 10 of fifty, but where they meet.
    assert!((0.045..0.065).contains(&named.0) && (0.15..0.25).contains(&any.0), "{named:?} {any:?}");
    for (_, first, second) in [named, any] {
        assert!((20..60).contains(&first) && second * 10 > first * 8 && second <= first, "{named:?} {any:?}");
    }
}

#[test]
fn an_open_loop_goes_on_without_a_pause() {
    let (run, samples) = bench_and_read(&lossy(0), "-t open-loop -s 8 --interval 250 --time 2");
    // Two seconds, each way one.
    let count = run.cells[0].repetitions;
    assert!((3900..4010).contains(&count), "{count}");
    let of_one: Vec<i64> = samples[0].iter().filter(|s| s.rank == 0).map(|s| s.start_ns).collect();
    assert!(of_one[2..].windows(2).all(|pair| (pair[1] - pair[0] - 250_000).abs() < 50));
    assert_eq!(run.cells[0].stopped_by.as_deref(), Some("time"));
}

#[test]
fn a_farm_takes_what_its_messages_do_and_tells_how_long_answers_were_waited_for() {
    // Workers ask one at a time: there, the task back, 50 us of computing, and there again with the
    // result and the next request together.
    let model = Model { shape: Shape::Constant, local_ns: 0.0, reading_ns: 0.0, byte_ns: 0.0, ..Model::plain(4) };
    let line = "-t farm -s 1000 --iterations 300 --tags 1 --outstanding 1 --compute 50 --reps 3 --warm-up 0";
    let (run, samples) = bench_and_read(&model, line);
    let cell = &run.cells[0];
    let master: Vec<f64> = samples[0].iter().filter(|s| s.rank == 0).map(|s| s.duration_ns).collect();
    // A hundred turns of each worker: 20 us there and back and 50 us. A barrier lets go of some
    // ranks later than of others.
    assert!(master.iter().all(|ns| (7e6..7.06e6).contains(ns)), "{master:?}");
    let bandwidth = cell.bandwidth.unwrap();
    assert_eq!(bandwidth.bytes, 300_000.0);
    let mean_bytes_per_s = 300_000.0 * 3.0 / master.iter().sum::<f64>() * 1e9;
    assert!((bandwidth.mean_bytes_per_s / mean_bytes_per_s - 1.0).abs() < 1e-9);
    let waits = &cell.waits.as_ref().unwrap().summary;
    assert_eq!(waits.count, 900);
    assert!((20_000.0..20_010.0).contains(&waits.p50_ns), "{waits:?}");
    let said: Vec<(&str, &str)> = cell.configuration.parameters.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    let expected = [
        ("compute_us", "50"),
        ("fanout", "1"),
        ("iterations", "300"),
        ("outstanding", "1"),
        ("receive", "named"),
        ("tags", "1"),
    ];
    assert_eq!(said, expected);
}

#[test]
fn a_late_task_holds_up_its_own_tag_or_all() {
    let late = |receive: &str| {
        let model = Model { local_ns: 0.0, ..lossy(40) };
        let line = format!(
            "-t farm -s 1000 --iterations 2000 --fanout 10 --compute 20 --reps 2 --warm-up 0 --receive {receive}"
        );
        let (run, samples) = bench_and_read(&model, &line);
        assert_eq!(run.cells[0].waits.as_ref().unwrap().summary.count, 2 * 200);
        samples[0].iter().filter(|s| s.rank == 0).map(|s| s.duration_ns).sum::<f64>()
    };
    let (named, any) = (late("named"), late("any"));
    // Ten requests of ten tasks are under way: a millisecond is less than their computing takes.
    assert!(named < any, "{named} {any}");
}

#[test]
fn a_farm_that_is_not_done_in_the_time_it_is_given_ends_the_measurement_and_says_how_far_it_was() {
    let line = "-t farm -s 8 --iterations 1000 --reps 1 --timeout 0.05 --compute 1000";
    let all = bench_with(&Model::plain(2), line, || Box::new(Silent), &AtomicBool::new(false));
    let said = all[0].as_ref().err().unwrap().to_string();
    assert!(
        said.starts_with("farm: ") && said.ends_with(" of 1000 tasks were done in 0.05 s, the time it was given"),
        "{said}"
    );
    // One farm is a measurement.
    let report = bench(&Model::plain(2), "-t farm -s 8 --iterations 10 --reps 1 --warm-up 0 --timeout 10");
    assert_eq!(report.run.cells[0].summary.as_ref().unwrap().count, 2);
}

#[test]
fn an_incast_has_the_bandwidth_of_what_comes_to_the_first_rank() {
    let model = Model { shape: Shape::Constant, ..Model::plain(5) };
    let report = bench(&model, "-t incast -s 1000 --reps 40");
    let cell = &report.run.cells[0];
    let bandwidth = cell.bandwidth.unwrap();
    assert_eq!(bandwidth.bytes, 4000.0);
    // Asked and answered: two messages one after the other.
    let least_ns = 4000.0 / bandwidth.p99_bytes_per_s * 1e9;
    assert!((20_000.0..40_000.0).contains(&least_ns), "{least_ns}");
}

#[test]
fn the_span_of_a_collective_is_from_the_first_start_to_the_last_end() {
    // A broadcast over eight: the last to hear of it is three messages from its beginning.
    let model = Model { shape: Shape::Constant, local_ns: 100.0, floor_ns: 20_000.0, ..Model::plain(8) };
    let (run, samples) = bench_and_read(&model, "-t bcast,send -s 8 --reps 100 --start window");
    let bcast = run.cells.iter().position(|cell| cell.configuration.operation == "bcast").unwrap();
    let span = run.cells[bcast].span.as_ref().unwrap();
    let counted: Vec<&Sample> = samples[bcast].iter().filter(|s| s.counts()).collect();
    let spans = counted.iter().map(|s| s.repetition).collect::<std::collections::BTreeSet<_>>();
    assert_eq!(span.summary.count, spans.len() as u64);
    assert!((60_000.0..62_000.0).contains(&span.summary.p50_ns), "{}", span.summary.p50_ns);
    // No sample is longer than its repetition's span, but for how late the first start was.
    let longest = counted.iter().map(|s| s.duration_ns).fold(0.0, f64::max);
    assert!(span.summary.max_ns + 1000.0 > longest && run.cells[bcast].summary.as_ref().unwrap().p50_ns < longest);
    assert!(run.cells[1 - bcast].span.is_none(), "pairs have none");
}

#[test]
fn a_rank_that_changes_its_processor_is_flagged_and_named() {
    let line = "-t send,barrier -s 8 --reps 4000 --warm-up 0 --seed 1 --start barrier";
    let still = bench(&Model::plain(4), line);
    assert!(still.run.cells.iter().all(|cell| cell.moved.is_empty()));
    assert!(still.run.launches[0].warnings.iter().all(|w| w.code != "moved-ranks"));
    // The clocks are brought together first, which takes some of the time.
    let moves = vec![(2, 0.45e9), (2, 0.5e9), (2, 0.55e9), (2, 0.6e9)];
    let (run, samples) = bench_and_read(&Model { moves, ..Model::plain(4) }, line);
    let moved: Vec<weir_distribution::Moved> = run.cells.iter().flat_map(|cell| cell.moved.clone()).collect();
    let batches: u64 = moved.iter().map(|moved| moved.batches).sum();
    assert!((1..=4).contains(&batches) && moved.iter().all(|moved| moved.rank == 2), "{moved:?}");
    let told: Vec<&Warning> = run.launches[0].warnings.iter().filter(|w| w.code == "moved-ranks").collect();
    assert!(told.len() == 1 && told[0].message.starts_with("rank 2 changed processor within"), "{told:?}");
    for (cell, samples) in run.cells.iter().zip(&samples) {
        let flagged: Vec<&Sample> = samples.iter().filter(|s| s.flags & flags::MOVED != 0).collect();
        // Those of the rank itself, and of messages between it and its partner.
        assert_eq!(flagged.is_empty(), cell.moved.is_empty());
        assert!(flagged.iter().all(|s| s.rank == 2 || s.peer == 2));
        assert!(samples.iter().any(|s| s.rank == 2 && s.flags & flags::MOVED == 0));
        assert!(flagged.iter().any(|s| s.counts()) || flagged.is_empty());
    }
}

#[test]
fn a_pattern_of_ones_own_is_measured_at_each_size() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("halo.pattern");
    let text = "weir-pattern 1\nranks 4\nstep\n* -> ^2 size\n* -> ^1 8\nstep\ncompute 0 50us\n1..3 -> 0 size/2\n";
    std::fs::write(&file, text).unwrap();
    let model = Model { shape: Shape::Constant, byte_ns: 0.0, ..Model::plain(4) };
    let line = format!("--pattern {} -s 8,64 --reps 20 --start window", file.display());
    let (run, samples) = bench_and_read(&model, &line);
    assert_eq!(run.cells.len(), 2);
    for (cell, samples) in run.cells.iter().zip(&samples) {
        assert_eq!((cell.configuration.label().as_str(), cell.configuration.pairs), ("pattern", 0));
        assert!(cell.configuration.parameters["pattern"].starts_with("halo:"));
        // Rank 0 computes between two messages that take 10 us each; the others have sent before.
        let of = |rank: u32| fair(&samples.iter().filter(|s| s.rank == rank).copied().collect::<Vec<_>>());
        assert!(of(0).iter().all(|ns| (60_000.0..75_000.0).contains(ns)), "{:?}", of(0));
        assert!(of(3).iter().all(|ns| (10_000.0..15_000.0).contains(ns)), "{:?}", of(3));
    }
    // What is wrong with it is told by file and line, at all ranks.
    std::fs::write(&file, "weir-pattern 1\nranks 2..\nstep\n0 -> 7 size\n").unwrap();
    let all = bench_with(&model, &line, || Box::new(Silent), &AtomicBool::new(false));
    let told = format!("{}:4: rank 7 does not exist: there are 4 (0 to 3)", file.display());
    assert!(all.iter().all(|one| matches!(one, Err(BenchError::Usage(text)) if *text == told)));
    std::fs::remove_file(&file).unwrap();
    let all = bench_with(&model, &line, || Box::new(Silent), &AtomicBool::new(false));
    assert!(all.iter().all(|one| matches!(one, Err(BenchError::Usage(text)) if text.contains("cannot read"))));
}

#[test]
fn a_machine_that_cannot_do_what_is_asked_refuses_at_all_ranks() {
    let all = bench_with(&Model::plain(3), "-t send", || Box::new(Silent), &AtomicBool::new(false));
    assert!(all.iter().all(|one| matches!(one, Err(BenchError::Usage(text)) if text.contains("3 is odd"))));
}

#[test]
fn a_folder_that_cannot_be_written_is_told_at_all_ranks() {
    let line = "-t send -s 8 --reps 10 -o /proc/nowhere/run";
    let all = bench_with(&Model::plain(2), line, || Box::new(Silent), &AtomicBool::new(false));
    assert!(all.iter().all(|one| one.as_ref().is_err_and(|e| e.to_string().contains("/proc/nowhere"))));
}

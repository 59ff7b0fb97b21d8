//! How repetitions are begun, on a simulated machine: the same way in all launches of a run and in
//! all repetitions of a cell, by clocks that are brought together often enough, and timed from the
//! start that was agreed.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use clap::Parser;
use weir_bench::Result;
use weir_bench::host::Facts;
use weir_bench::machine::Machine;
use weir_bench::machine::sim::{self, Model, Shape, Stall, Wrong};
use weir_bench::options::{Args, Settings};
use weir_bench::run::{About, Report, Silent, launch};
use weir_distribution::{Reader, Run, Sample, StartSync, State, flags};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

fn settings(line: &str) -> Settings {
    let words = ["bench"].into_iter().chain(line.split_whitespace());
    Line::try_parse_from(words).unwrap_or_else(|error| panic!("{error}")).args.settings().unwrap()
}

/// Measures into a folder, with facts changed as told; how rank 0 ended.
fn measure(model: &Model, line: &str, dir: &Path, change: impl Fn(&mut Facts) + Sync) -> Result<Option<Report>> {
    let settings = settings(&format!("{line} -o {}", dir.display()));
    let about = About { backend: "sim".into(), ..About::default() };
    let all = sim::run(model, |m| {
        let mut facts = Facts::unknown(&format!("node{}", model.nodes[m.rank()]));
        (facts.processors, facts.online) = (vec![m.rank() as u32], model.nodes.len());
        change(&mut facts);
        launch(m, &settings, &about, &facts, &AtomicBool::new(false), &mut Silent)
    });
    all.into_iter().next().unwrap()
}

fn read(dir: &Path) -> (Run, Vec<Vec<Sample>>) {
    let reader = Reader::open(dir).unwrap();
    let samples = reader.run().cells.iter().map(|cell| reader.read_samples(cell).unwrap()).collect();
    (reader.run().clone(), samples)
}

fn measure_once(model: &Model, line: &str) -> (Run, Vec<Vec<Sample>>) {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("run");
    assert!(measure(model, line, &dir, |_| ()).unwrap_or_else(|error| panic!("{error}")).is_some());
    read(&dir)
}

/// Ranks on one node, whose clock is one.
fn together(ranks: usize) -> Model {
    Model { nodes: vec![0; ranks], shape: Shape::Constant, ..Model::plain(ranks) }
}

#[test]
fn launches_of_a_run_begin_their_repetitions_in_one_way() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("run");
    let line = "-t bcast,barrier,send -s 8 --reps 20";
    measure(&together(4), line, &dir, |_| ()).unwrap();
    // Now the ranks have to share a processor: alone, this launch would begin by barriers.
    measure(&together(4), &format!("{line} --append"), &dir, |facts| facts.quota = Some(1.0)).unwrap();
    let (run, _) = read(&dir);
    let of = |launch: u32| {
        let own = run.cells.iter().filter(|cell| cell.launch == launch);
        let mut own: Vec<(String, StartSync)> =
            own.map(|cell| (cell.configuration.operation.0.clone(), cell.configuration.start)).collect();
        own.sort_by(|a, b| a.0.cmp(&b.0));
        own
    };
    let expected = [("barrier", StartSync::Window), ("bcast", StartSync::Window), ("send", StartSync::None)];
    assert_eq!(of(0), expected.map(|(name, start)| (name.to_owned(), start)));
    assert_eq!(of(1), of(0));
    assert!(run.launches[1].warnings.iter().any(|w| w.code == "oversubscribed"), "{:?}", run.launches[1].warnings);
    // What cannot be pooled is refused.
    let refused = measure(&together(4), &format!("{line} --append --start barrier"), &dir, |_| ());
    let text = refused.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(text.contains("--start barrier: earlier launches of this run began"), "{text}");
    assert_eq!(read(&dir).0.launches.len(), 2);
}

/// Configurations of a run's cells, in order.
fn configurations(dir: &Path) -> Vec<weir_distribution::Configuration> {
    let mut all: Vec<_> = read(dir).0.cells.into_iter().map(|cell| cell.configuration).collect();
    all.sort();
    all
}

#[test]
fn the_like_of_a_run_has_a_partner_for_each_of_its_cells() {
    let folder = tempfile::tempdir().unwrap();
    let dir = |name: &str| folder.path().join(name);
    let line = "-t bcast,barrier,send,message-rate,jacobi -s 8,64 --reps 20 --pairs 1,2 --window 5 --iterations 2";
    measure(&together(4), line, &dir("first"), |_| ()).unwrap();
    // By itself the second would begin by barriers, as its ranks have to share a processor.
    let crowded = |facts: &mut Facts| facts.quota = Some(1.0);
    measure(&together(4), line, &dir("alone"), crowded).unwrap();
    assert_ne!(configurations(&dir("alone")), configurations(&dir("first")));
    let like = format!("--reps 20 --like {}", dir("first").display());
    measure(&together(4), &like, &dir("second"), crowded).unwrap();
    assert_eq!(configurations(&dir("second")), configurations(&dir("first")));
    let warnings = &read(&dir("second")).0.launches[0].warnings;
    assert!(!warnings.iter().any(|w| w.code == "left-out"), "{warnings:?}");
    // And a launch more of it.
    measure(&together(4), &format!("{like} --append"), &dir("second"), crowded).unwrap();
    assert_eq!(read(&dir("second")).0.launches.len(), 2);
    let refusal = |model: &Model, like: &str| {
        let ended = measure(model, &format!("--reps 20 --like {like}"), &dir("third"), |_| ());
        ended.err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert!(refusal(&together(2), &dir("first").display().to_string()).contains("it was measured on 4 ranks as 1x4"));
    assert!(refusal(&together(4), "/nonexistent/run").starts_with("--like: /nonexistent/run"));
}

/// Messages now and then take longer than the widest window.
fn without_windows() -> Model {
    Model { outlier_every: 3, outlier_ns: 3e9, ..together(4) }
}

#[test]
fn a_cell_in_which_windows_do_not_work_is_begun_by_barriers_as_a_whole() {
    let (run, samples) = measure_once(&without_windows(), "-t bcast -s 8 --reps 300 --warm-up 0");
    let cell = &run.cells[0];
    assert_eq!((cell.configuration.start, cell.window_ns, cell.missed_windows), (StartSync::Barrier, None, 0));
    // Those of the first batch come on top: they do not count.
    assert_eq!((cell.repetitions - cell.warm_up, samples[0].len() as u64), (300, 4 * cell.repetitions));
    assert!(samples[0].iter().all(|s| s.flags & flags::MISSED_WINDOW == 0));
    assert!(cell.warnings.iter().any(|w| w.code == "windows-missed" && w.message.contains("by a barrier instead")));
}

/// A busy machine: it works for 5 ms and then stands still for 30.
fn busy() -> Model {
    let stalls = (0..2000).map(|n| Stall { at_ns: 5e6 + 35e6 * f64::from(n), for_ns: 30e6 });
    Model { stalls: stalls.collect(), ..together(4) }
}

#[test]
fn no_cell_of_a_busy_machine_ends_with_next_to_nothing_as_long_as_barriers_give_more() {
    // A tenth of a second for each cell: too little to judge windows by hundreds of them.
    let line = "-t bcast,allreduce,alltoall -s 8,1k,64k --time 0.9";
    let (run, _) = measure_once(&busy(), line);
    assert_eq!(run.cells.len(), 9);
    for cell in &run.cells {
        let (name, c) = (cell.configuration.label(), &cell.configuration);
        let count = cell.summary.as_ref().map_or(0, |s| s.count);
        assert!(count >= 100, "{name} {} B, {:?}: {count} of {} repetitions", c.size_bytes, c.start, cell.repetitions);
    }
    assert!(run.cells.iter().any(|cell| cell.configuration.start == StartSync::Barrier), "nothing was planted");
    // One operation is one curve: its sizes are begun in one way.
    for cell in &run.cells {
        let c = &cell.configuration;
        let same = run.cells.iter().filter(|other| other.configuration.operation == c.operation);
        assert!(
            same.clone().count() == 3 && same.clone().all(|other| other.configuration.start == c.start),
            "{}",
            c.operation
        );
    }
    assert_eq!(run.state, State::Complete);
}

#[test]
fn what_was_spent_on_windows_is_not_taken_from_the_barriers_that_replace_them() {
    let repetitions = |start: &str| {
        let (run, _) = measure_once(&busy(), &format!("-t allreduce -s 8 --time 0.5 --start {start}"));
        assert_eq!(run.cells[0].configuration.start, StartSync::Barrier, "{start}");
        run.cells[0].repetitions
    };
    let (instead, alone) = (repetitions("auto"), repetitions("barrier"));
    assert!(10 * instead > 8 * alone, "{instead} instead of windows, {alone} without them");
}

#[test]
fn a_launch_with_a_cell_in_which_nothing_counts_names_it_and_is_not_complete() {
    // An operation longer than the widest window, and word of a plan that always comes too late.
    let model = Model { floor_within_ns: 3e9, ..together(2) };
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("run");
    let line = "-t bcast -s 8 --time 30 --start window";
    let report = measure(&model, line, &dir, |_| ()).unwrap_or_else(|error| panic!("{error}")).unwrap();
    assert_eq!((report.complete, report.empty), (true, 1));
    let (run, _) = read(&dir);
    assert!(run.cells[0].summary.is_none(), "{:?}", run.cells[0]);
    assert_eq!((run.state, run.launches[0].state), (State::Stopped, State::Stopped));
    let told = run.launches[0].warnings.iter().find(|w| w.code == "no-samples").expect("a warning");
    assert_eq!(told.message, "1 of 1 cell has no sample that counts: bcast 8 B");
    // Where nobody asked for windows, barriers take their place.
    let (run, samples) = measure_once(&model, "-t bcast -s 8 --time 30");
    assert!(run.launches[0].warnings.iter().all(|w| w.code != "no-samples"));
    assert_eq!((run.state, run.cells[0].configuration.start), (State::Complete, StartSync::Barrier));
    assert!(samples[0].iter().any(Sample::counts));
}

#[test]
fn windows_that_were_asked_for_are_kept_and_the_cell_says_how_they_did() {
    let (run, _) = measure_once(&without_windows(), "-t bcast -s 8 --reps 100 --warm-up 0 --start window");
    let cell = &run.cells[0];
    assert_eq!(cell.configuration.start, StartSync::Window);
    // Most broadcasts hold a message of 3 s: no window is wide enough.
    assert!(cell.window_ns.unwrap() >= 2e9, "{:?}", cell.window_ns);
    assert!(cell.missed_windows > 20, "{}", cell.missed_windows);
    assert!(cell.warnings.iter().any(|w| w.code == "windows-missed" && w.message.contains("many starts")));
}

#[test]
fn windows_hold_a_long_operation_of_many_repetitions() {
    let model = Model { floor_within_ns: 3e8, ..together(2) };
    let (run, _) = measure_once(&model, "-t allreduce -s 8 --reps 200 --warm-up 0 --start window");
    let cell = &run.cells[0];
    assert!(cell.window_ns.unwrap() >= 3e8, "{:?}", cell.window_ns);
    assert!(cell.missed_windows <= 3, "{}", cell.missed_windows);
}

#[test]
fn repetitions_begun_by_a_window_are_timed_from_the_agreed_start() {
    let clocks = (0..4).map(|r| Wrong { offset_ns: 1e7 * f64::from(r), drift: 3e-6 * f64::from(r) }).collect();
    let model = Model { clocks, ..Model::plain(4) };
    let (run, samples) = measure_once(&model, "-t allreduce -s 8 --reps 60 --warm-up 0 --start window");
    let counted: Vec<&Sample> = samples[0].iter().filter(|s| s.counts()).collect();
    assert!(counted.len() >= 200, "{}", counted.len());
    for s in &counted {
        let same = counted.iter().find(|other| other.repetition == s.repetition).unwrap();
        assert_eq!(s.start_ns, same.start_ns, "repetition {}", s.repetition);
        assert!(s.error_ns > 0.0, "its end was read on this rank's own clock");
    }
    // They began when they did: that is what the skew is made of.
    assert!(run.cells[0].skew.as_ref().unwrap().summary.max_ns > 0.0);
    assert!(run.cells[0].clock_error_ns.unwrap() > 0.0);
}

#[test]
fn clocks_are_brought_together_within_a_long_cell_too() {
    let model = Model { floor_ns: 1e6, shape: Shape::Constant, ..Model::plain(2) };
    let (run, _) = measure_once(&model, "-t send -s 8 --time 30");
    assert_eq!(run.cells.len(), 1);
    let clock = run.launches[0].clock.as_ref().unwrap();
    let at: Vec<i64> = clock.resyncs.iter().map(|r| r.at_ns).collect();
    let gaps: Vec<i64> = at.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(at.len() > 5 && gaps.iter().all(|gap| *gap < 7_000_000_000), "{at:?}");
    // The worst over the launch, not what the last synchronisation left.
    let worst = clock.ranks.iter().map(|r| r.error_ns).fold(0.0, f64::max);
    let left = clock.resyncs.iter().map(|r| r.error_ns).fold(0.0, f64::max);
    assert!(worst >= left, "{worst} {left}");
}

#[test]
fn one_counter_read_by_two_ranks_has_an_error_too() {
    let (run, samples) = measure_once(&together(2), "-t send -s 8 --reps 20");
    // A tick of 1 ns, and a reading of 10.
    assert!(samples[0].iter().all(|s| s.error_ns == 11.0), "{:?}", samples[0][0]);
    assert_eq!(run.launches[0].clock.as_ref().unwrap().algorithm, "none");
}

#[test]
fn ranks_that_read_the_kernels_clock_share_it_on_a_node() {
    let model = Model { kernel_clocks: vec![0, 1, 2, 3], nodes: vec![0, 0, 1, 1], ..Model::plain(4) };
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("run");
    let line = "-t send -s 8 --reps 20 --locality inter,intra";
    measure(&model, line, &dir, |facts| facts.shared_counter = false).unwrap();
    let (run, samples) = read(&dir);
    for (cell, samples) in run.cells.iter().zip(&samples) {
        let worst = samples.iter().map(|s| s.error_ns).fold(0.0, f32::max);
        match cell.configuration.locality {
            weir_distribution::Locality::Intra => assert_eq!(worst, 11.0),
            _ => assert!(worst > 11.0),
        }
    }
}

#[test]
fn the_window_of_message_rate_is_divided_by_its_messages() {
    let model = Model { shape: Shape::Constant, ..Model::plain(2) };
    let (_, samples) = measure_once(&model, "-t message-rate -s 8 --window 8 --reps 20 --warm-up 0");
    // The eighth message leaves after seven sends of 500 ns; it takes 10 000.8 ns, the answer 10
    // 000, a reading of the clock 10.
    let each = (7.0 * 500.0 + 10_000.8 + 10_000.0 + 10.0) / 8.0;
    assert!(samples[0].iter().all(|s| (s.duration_ns - each).abs() < 0.3), "{each}: {:?}", samples[0][0]);
}

#[test]
fn a_run_with_a_launch_that_did_not_end_is_not_complete() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("run");
    let line = "-t send -s 8 --reps 20";
    // The first launch is cut off by the death of a rank, with some cells finished.
    let dying = Model { death: Some((1, 0.8e9)), ..together(2) };
    assert!(measure(&dying, "-t send -s 1,2,4,8,16 --time 1", &dir, |_| ()).is_err());
    assert!((1..5).contains(&read(&dir).0.cells.len()));
    measure(&together(2), &format!("{line} --append"), &dir, |_| ()).unwrap();
    let (run, _) = read(&dir);
    assert_eq!(run.launches.iter().map(|l| l.state).collect::<Vec<_>>(), [State::Stopped, State::Complete]);
    assert_eq!(run.state, State::Stopped);
}

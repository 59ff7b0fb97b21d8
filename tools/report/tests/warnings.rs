//! What a report warns of: the same for people and for programs, with commands that can be typed.

mod common;

use std::path::{Path, PathBuf};

use common::Shape;
use serde_json::Value;
use weir_distribution::{
    Cell, Configuration, Independence, Launch, Links, Network, Placement, Run, StartSync, State, SummaryRecord,
    Transport, Warning,
};
use weir_report::cli::{Format, ReportArgs, report};
use weir_report::condense::digest;
use weir_report::digest::Digest;
use weir_report::json::{comparison_json, run_json};
use weir_report::table::Table;
use weir_report::{compare, load};

/// A cell of `bcast` with a summary of so many samples; none: with nothing at all.
fn cell(launch: u32, size_bytes: u64, count: u64, p50_ns: f64) -> Cell {
    let configuration =
        Configuration { pairs: 0, start: StartSync::Barrier, ..Configuration::pair("bcast", size_bytes) };
    let summary = SummaryRecord {
        count,
        min_ns: 0.9 * p50_ns,
        p50_ns,
        p99_ns: 2.0 * p50_ns,
        max_ns: 9.0 * p50_ns,
        median_low_ns: Some(0.99 * p50_ns),
        median_high_ns: Some(1.01 * p50_ns),
        median_level: Some(0.95),
        ..SummaryRecord::default()
    };
    Cell { summary: (count > 0).then_some(summary), clock_error_ns: Some(0.0), ..Cell::new(0, launch, configuration) }
}

/// A run as `weir bench --launches` makes it, in the folder `a b/run1`.
fn measured(launches: u32, cells: Vec<Cell>) -> Digest {
    let mut run = Run::new("m");
    run.state = State::Complete;
    run.command =
        "weir bench -o elsewhere --time 2 --launches 5 -- mpiexec -n 2".split(' ').map(str::to_owned).collect();
    run.transport = Transport { backend: "mpi".into(), ..Transport::default() };
    let placement = vec![Placement::default(); 2];
    let launch = |number| Launch { number, state: State::Complete, placement: placement.clone(), ..Launch::default() };
    run.launches = (0..launches).map(launch).collect();
    run.cells = cells;
    let digest = digest(run, "run1", &|_| Err("there are no samples".into()));
    Digest { folder: Some(PathBuf::from("a b/run1")), ..digest }
}

/// A cell whose repetitions resemble each other, and that is worth so many independent samples.
fn alike(launch: u32, size_bytes: u64, lag1: f64, worth: f64) -> Cell {
    let independence = Independence {
        repetitions: 500,
        autocorrelation: vec![lag1, 0.5],
        runs_p: 1e-9,
        ljung_box_p: 1e-9,
        effective_count: worth,
    };
    Cell { independence: Some(independence), ..cell(launch, size_bytes, 1000, 500.0) }
}

fn warning(digest: &Digest, code: &str) -> Option<Warning> {
    weir_report::warnings::of_run(digest).into_iter().find(|w| w.code == code)
}

/// What a report prints, taken from a file.
fn text(runs: &[&Path]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("tables.txt");
    let runs = runs.iter().map(|run| run.to_path_buf()).collect();
    report(&ReportArgs {
        runs,
        format: Format::Text,
        output: Some(output.clone()),
        anyway: false,
        json: false,
        quiet: true,
    })
    .unwrap();
    std::fs::read_to_string(output).unwrap()
}

/// The warnings of a text and those of a document: messages and advice in the order told.
fn told(text: &str, json: &Value) -> (Vec<String>, Vec<String>) {
    let lines = text.lines().filter_map(|l| l.strip_prefix("warning: ").or_else(|| l.strip_prefix("  to do: ")));
    let all = json["warnings"].as_array().expect("a list").iter();
    let words = all.flat_map(|w| [w["message"].as_str(), w["advice"].as_str()]).flatten();
    (lines.map(str::to_owned).collect(), words.map(str::to_owned).collect())
}

#[test]
fn programs_get_the_warnings_that_people_get() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (dir.path().join("one"), dir.path().join("two"));
    // Few samples, clocks that are off, and cells without a partner.
    let shape = Shape { clock_error_ns: 900.0, fits: false, ..Shape::small() };
    common::write(&one, &shape).unwrap();
    common::write(&two, &Shape { sizes: vec![0, 8], ..shape }).unwrap();
    let (first, second) = (load(&one).unwrap(), load(&two).unwrap());

    let json = run_json(&first);
    let (people, programs) = told(&text(&[&one]), &json);
    assert!(people.len() >= 5 && people == programs, "{people:#?}\n{programs:#?}");
    let codes: Vec<&str> = json["warnings"].as_array().unwrap().iter().filter_map(|w| w["code"].as_str()).collect();
    assert!(codes.contains(&"clock-bounds") && codes.contains(&"frequency-scaling"), "{codes:?}");

    let json = comparison_json(&first, &second, &compare::compare(&first, &second));
    let (people, programs) = told(&text(&[&one, &two]), &json);
    assert!(people.len() >= 6 && people == programs, "{people:#?}\n{programs:#?}");
    let of = |code: &str| json["warnings"].as_array().unwrap().iter().find(|w| w["code"] == code).expect("a warning");
    assert!(of("one-launch")["run"].is_null() && of("no-partner")["run"].is_null());
    assert_eq!((&of("frequency-scaling")["run"], &of("clock-bounds")["run"]), (&"both".into(), &"first".into()));
}

#[test]
fn cells_without_any_sample_count_among_those_with_few_and_have_no_clock_error() {
    let digest =
        measured(1, vec![cell(0, 8, 1000, 500.0), cell(0, 64, 2, 500.0), cell(0, 1024, 0, 0.0), cell(0, 8192, 0, 0.0)]);
    let told = warning(&digest, "few-samples").expect("a warning");
    let expected =
        "3 of 4 cells have fewer than 100 samples, 2 of them none at all (the least: 0, bcast at 1 KiB): their 99th";
    assert!(told.message.starts_with(expected), "{}", told.message);
    let digest = measured(1, vec![cell(0, 8, 99, 500.0)]);
    let told = warning(&digest, "few-samples").expect("a warning");
    assert!(told.message.starts_with("1 of 1 cell has fewer than 100 samples (the least: 99,"), "{}", told.message);
    // What somebody wrote by hand, with a histogram and no sample, lacks none.
    let bins = vec![weir_distribution::HistogramBin { low_ns: 10.0, high_ns: 20.0, count: 1.0 }];
    let histogram = weir_distribution::HistogramRecord::Bins(weir_distribution::BinsHistogram { bins });
    let digest = measured(1, vec![Cell { histogram: Some(histogram), ..cell(0, 8, 0, 0.0) }]);
    assert_eq!(warning(&digest, "few-samples"), None);
    // The clocks of no sample are not exact, they are not known.
    let error = |cells| {
        let mut cells: Vec<Cell> = cells;
        cells.iter_mut().for_each(|c| c.clock_error_ns = Some(if c.summary.is_some() { 7.0 } else { 0.0 }));
        Table::of_profile(&measured(1, cells).profiles[0]).text()
    };
    let table = error(vec![cell(0, 8, 1000, 500.0), cell(0, 64, 0, 0.0)]);
    assert!(table.contains("±7 ns") && !table.contains("±0"), "{table}");
}

#[test]
fn what_samples_are_worth_is_told_of_medians_and_not_where_they_do_not_depend_on_the_phase() {
    let message = |cells| warning(&measured(1, cells), "dependence").expect("a warning").message;
    let told = message(vec![alike(0, 8, 0.7, 1000.0), alike(0, 64, 0.4, 990.0)]);
    assert!(told.starts_with("Dependence: in 2 of 2 cells a repetition resembles the one before"), "{told}");
    assert!(told.contains("most in bcast at 8 B (autocorrelation 0.70)"), "{told}");
    assert!(told.contains("worth as much as independent ones") && !told.contains("1\u{202f}000"), "{told}");
    // What is worth least is another cell than that of the highest autocorrelation.
    let told = message(vec![alike(0, 8, 0.7, 1000.0), alike(0, 64, 0.4, 12.0), alike(0, 1024, 0.1, 5.0)]);
    assert!(told.contains("most in bcast at 8 B (autocorrelation 0.70)"), "{told}");
    let expected =
        "the samples of bcast at 64 B are worth least: 1\u{202f}000 tell as much as 12 independent ones would.";
    assert!(told.contains(expected), "{told}");
}

#[test]
fn launches_are_advised_by_a_command_that_can_be_typed_and_only_while_there_are_too_few() {
    let dependence = |launches: u32| {
        let cells = (0..launches).map(|launch| alike(launch, 8, 0.7, 40.0)).collect();
        warning(&measured(launches, cells), "dependence").expect("a warning")
    };
    let command = |more: u32| format!("weir bench -o 'a b/run1' --time 2 --append --launches {more} -- mpiexec -n 2");
    let one = dependence(1);
    assert_eq!(one.advice, Some(format!("add 4 launches, set up as then: {}", command(4))));
    assert!(one.message.ends_with("but another launch may well see another state of the machine."), "{}", one.message);
    assert_eq!(dependence(4).advice, Some(format!("add 1 launch, set up as then: {}", command(1))));
    let five = dependence(5);
    assert!(five.advice.is_none() && five.message.ends_with("Intervals allow for it."), "{five:?}");

    let cells = (0..5).map(|launch| cell(launch, 8, 1000, if launch == 3 { 5000.0 } else { 500.0 })).collect();
    let apart = warning(&measured(5, cells), "launches-apart").expect("a warning").advice;
    let expected = format!("more launches tell which is usual: add 5 launches, set up as then: {}", command(5));
    assert_eq!(apart, Some(expected));
    // Of a run that no weir bench made, in words.
    let mut digest = measured(1, vec![alike(0, 8, 0.7, 40.0)]);
    digest.run.command.clear();
    let advice = warning(&digest, "dependence").and_then(|w| w.advice);
    let expected = "add 4 launches with the command that made the run, --append and --launches 4";
    assert_eq!(advice.as_deref(), Some(expected));
}

#[test]
fn a_comparison_asks_for_launches_of_the_run_that_has_too_few() {
    let of = |launches: u32| measured(launches, (0..launches).map(|launch| cell(launch, 8, 1000, 500.0)).collect());
    let advice = |first: u32, second: u32, code: &str| {
        let (first, second) = (of(first), of(second));
        let all = weir_report::warnings::of_two((&first, &second), &compare::compare(&first, &second));
        all.into_iter().find(|told| told.warning.code == code).map(|told| (told.warning.message, told.warning.advice))
    };
    let command = |more: u32| {
        let launches = if more == 1 { "launch" } else { "launches" };
        format!(
            "add {more} {launches}, set up as then: weir bench -o 'a b/run1' --time 2 --append --launches {more} -- mpiexec -n 2"
        )
    };
    let (message, told) = advice(1, 5, "one-launch").expect("a warning");
    assert!(message.starts_with("1 of 1 cell has only one launch in one of the runs:"), "{message}");
    assert_eq!(told, Some(command(4)));
    let (_, told) = advice(3, 4, "few-launches").expect("a warning");
    assert_eq!(told, Some(format!("{}; and: {}", command(2), command(1))));
    assert_eq!(advice(5, 5, "few-launches"), None);
}

#[test]
fn a_launch_that_was_cut_off_comes_with_the_command_that_adds_another() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("one");
    common::write(&run, &Shape { fits: false, ..Shape::small() }).unwrap();
    let file = run.join("run.json");
    let mut value: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    value["launches"][0]["state"] = "running".into();
    value["state"] = "running".into();
    std::fs::write(&file, value.to_string()).unwrap();
    let digest = load(&run).unwrap();
    let told = digest.warnings.iter().find(|w| w.code == "cut-off").expect("a warning");
    let finished = digest.run.cells.len();
    let expected = format!("Launch 1 was cut off after {finished} finished cells, which are whole: it did not end");
    assert!(told.message.starts_with(&expected), "{}", told.message);
    // The ranks of this run were put on its nodes in turn.
    let command = format!(
        "weir bench -o {} --append --launches 1 -- mpiexec -n 16 -ppn 1 -hosts node1,node2,node3,node4",
        run.display()
    );
    assert_eq!(told.advice, Some(format!("add 1 launch, set up as then: {command}")));
}

#[test]
fn networks_that_differ_are_told_and_shown() {
    let over = |rate: Option<&str>| {
        let mut digest = measured(5, vec![cell(0, 8, 1000, 500.0)]);
        digest.run.network = rate.map(|rate| Network {
            emulator: "weir emulate".into(),
            seed: Some(7),
            networks: vec![Links {
                name: "net1".into(),
                settings: [("rate".into(), rate.into()), ("delay".into(), "1ms".into())].into(),
                ..Links::default()
            }],
            ..Network::default()
        });
        digest
    };
    let told = |one: &Digest, other: &Digest| {
        let all = weir_report::warnings::of_two((one, other), &compare::compare(one, other));
        all.into_iter().find(|told| told.warning.code == "networks-differ").map(|told| told.warning.message)
    };
    let (slow, fast, real) = (over(Some("10m")), over(Some("1g")), over(None));
    let mut again = over(Some("10m"));
    again.run.network.as_mut().unwrap().seed = Some(8);
    assert_eq!(told(&slow, &again), None);
    assert_eq!(told(&real, &real), None);
    assert_eq!(
        told(&slow, &fast).unwrap(),
        "Networks: the runs had different ones, and what differs between their times may be due to that. \
         The first: emulated by weir emulate; net1: rate 10m, delay 1ms. The second: emulated by weir emulate; net1: rate 1g, delay 1ms."
    );
    assert!(told(&fast, &real).unwrap().contains("The second: none that was emulated"));
    let shown = ("Network", "emulated by weir emulate; net1: rate 10m, delay 1ms".to_owned());
    assert!(weir_report::page::facts(&slow).contains(&shown));
    assert!(!weir_report::page::facts(&real).iter().any(|fact| fact.0 == "Network"));
    assert_eq!(run_json(&slow)["network"]["networks"][0]["settings"]["rate"], "10m");
    let both = comparison_json(&slow, &real, &compare::compare(&slow, &real));
    assert_eq!((&both["first"]["network"]["seed"], &both["second"]["network"]), (&7.into(), &Value::Null));
}

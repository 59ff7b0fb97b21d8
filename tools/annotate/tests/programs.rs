//! Programs as people write them: the model sends what the program sends, counted by hand, or what
//! it does not follow is told with its line. `cargo xtask predictions` holds these models against
//! recorded runs of the same programs.

use std::collections::BTreeMap;

use weir_annotate::{Options, annotate};
use weir_annotations::{Setting, Source, Value, parse};
use weir_predict::observe::Recording;
use weir_predict::{Machine, Options as How, Time, Verdict, evaluate_observed};

/// What is said of a program, without the times of what it computes.
fn told(name: &str) -> (String, Vec<String>) {
    let path = format!("{}/tests/programs/{name}.c", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).expect("a program");
    let found = annotate(&text, name, &Options::default()).unwrap_or_else(|e| panic!("{name}: {e}"));
    let asked = |u: &&weir_annotate::Unknown| u.parameter.as_ref().is_none_or(|p| !p.starts_with("serial_"));
    (found.text(), found.unknown.iter().filter(asked).map(ToString::to_string).collect())
}

/// Messages between two and their bytes, and how many parts collectives had, of a run of the model
/// with what is given.
fn run(name: &str, numprocs: u32, given: &[(&str, i64)]) -> (u64, u64) {
    let (text, _) = told(name);
    let parsed = parse(&[Source { name, text: &text }]).unwrap_or_else(|f| panic!("{name}: {f:?}\n{text}"));
    let warnings: Vec<_> = parsed.warnings.iter().filter(|w| w.code != "skipped").collect();
    assert!(warnings.is_empty(), "{name}: {warnings:?}\n{text}");
    let mut parameters: BTreeMap<String, Value> =
        given.iter().map(|(name, value)| ((*name).to_owned(), Value::Int(*value))).collect();
    for parameter in parsed.program.parameters.iter().filter(|p| p.name.starts_with("serial_")) {
        parameters.entry(parameter.name.clone()).or_insert(Value::Int(0));
    }
    let setting = Setting { numprocs, parameters, ..Setting::default() };
    let model = parsed.program.model(&setting).unwrap_or_else(|f| panic!("{name}: {f:?}\n{text}")).model;
    let machine = Machine::simplest(Time::from_us(10.0), 1e8);
    let mut seen = Recording::default();
    let outcome = evaluate_observed(&model, &machine, &How::default(), 1, &mut seen);
    assert_eq!(outcome.verdict, Verdict::Finished, "{name} with {numprocs}\n{text}");
    let between = || seen.messages.iter().filter(|m| !m.collective);
    (between().count() as u64, between().map(|m| m.bytes).sum())
}

/// A program that is followed altogether: how many messages with how many bytes it sends.
fn follows(name: &str, given: &[(&str, i64)], sends: impl Fn(u64) -> (u64, u64)) {
    let (text, told) = told(name);
    assert_eq!(told.len(), given.len(), "{name}: {told:?}\n{text}");
    for (parameter, _) in given {
        assert!(told.iter().any(|t| t.contains(parameter)), "{name}: {told:?}");
    }
    for numprocs in [2, 4, 8] {
        assert_eq!(run(name, numprocs, given), sends(u64::from(numprocs)), "{name} with {numprocs}\n{text}");
    }
}

#[test]
fn a_ring() {
    follows("ring", &[], |n| (5 * n, 20 * n));
}

#[test]
fn a_pipeline() {
    follows("pipeline", &[], |n| (12 * (n - 1), 12 * (n - 1) * 8000));
}

#[test]
fn records_as_bytes() {
    // What `sizeof` of what a pointer points to is, is asked for.
    let given = [("size_count_39", 8192)];
    follows("structs", &given, |n| (2 * (n - 1), (32 + 3200) * (n - 1)));
}

#[test]
fn messages_some_calls_down() {
    follows("levels", &[], |n| (5 * n, (1 + 2 + 3 + 2 + 3) * 80 * n));
}

#[test]
fn a_chain_with_open_ends() {
    follows("shift", &[], |n| (70 * (n - 1), 560 * (n - 1)));
}

#[test]
fn requests_made_once() {
    // How many requests there are is asked for where each is freed by itself: none is then.
    follows("persistent", &[("n_26", 0)], |n| (50 * (n - 1), 400 * (n - 1)));
}

#[test]
fn a_server_that_takes_what_is_there() {
    follows("some", &[], |n| (n - 1, 4 * (n - 1)));
}

#[test]
fn trees_by_hand() {
    follows("tree", &[], |n| (2 * (n - 1), 2 * 256 * (n - 1)));
}

#[test]
fn recursive_doubling() {
    let (_, told) = told("doubling");
    assert!(told.len() == 1 && told[0].starts_with("13: MPI_Abort"), "{told:?}");
    for n in [2u32, 4, 8] {
        let messages = u64::from(n * n.ilog2());
        assert_eq!(run("doubling", n, &[]), (messages, 8 * messages));
    }
}

#[test]
fn partners_by_phase() {
    let pairs =
        |n: u64| (0..n).map(|phase| (0..n).filter(|r| (phase + r) % 2 == 0 && r + 1 < n).count() as u64).sum::<u64>();
    follows("oddeven", &[], |n| (2 * pairs(n), 2 * 512 * pairs(n)));
}

#[test]
fn a_master_and_whoever_asks() {
    follows("master", &[], |n| (80 + n - 1, 4 * (40 + n - 1) + 8 * 40));
}

#[test]
fn polling_beside_computing() {
    // What is computed between two looks takes no time here: a look waits for what can change its
    // answer.
    follows("overlap", &[], |n| (8 * n, 8 * 4096 * n));
}

#[test]
fn a_datatype_of_another() {
    follows("transpose", &[("pair_bytes", 16)], |_| (0, 0));
}

#[test]
fn sizes_that_data_decide_are_asked_for() {
    follows("samplesort", &[("size_35", 1000)], |_| (0, 0));
}

#[test]
fn a_loop_that_data_end_is_asked_for() {
    follows("cg", &[("rho_28", 1), ("next", 1)], |n| (400 * (n - 1), 3200 * (n - 1)));
}

#[test]
fn other_communicators_are_told_at_each_call() {
    let (text, told) = told("split");
    let lines = |what: &str| told.iter().filter(|t| t.contains(what)).count();
    assert_eq!(lines("goes by the communicator row"), 4, "{told:?}\n{text}");
    assert!(lines("ranks of row are taken for those of MPI_COMM_WORLD") >= 1, "{told:?}");
}

/// Columns of 64 numbers, rows of 48; a process has a neighbour on each side but at the border.
#[test]
fn neighbours_on_a_grid() {
    let sends = |rows: u64, columns: u64| {
        let (vertical, horizontal) = (2 * (rows - 1) * columns, 2 * rows * (columns - 1));
        (20 * (vertical + horizontal), 20 * (vertical * 48 * 8 + horizontal * 64 * 8))
    };
    for (rows, columns) in [(2, 2), (1, 4), (4, 2), (3, 3)] {
        let given = [("dims_0", rows), ("column_bytes", 512)];
        let numprocs = u32::try_from(rows * columns).expect("few");
        assert_eq!(run("halo2d", numprocs, &given), sends(rows as u64, columns as u64), "{rows} x {columns}");
    }
    let (text, told) = told("halo2d");
    assert_eq!(told.len(), 2, "{told:?}\n{text}");
    // What cannot be followed is told, with its line.
    let path = format!("{}/tests/programs/halo2d.c", env!("CARGO_MANIFEST_DIR"));
    let source = std::fs::read_to_string(path).expect("a program");
    for (from, to) in [
        ("periods[2] = {0, 0}", "periods[2]"),
        ("periods, 0, &grid", "periods, 1, &grid"),
        ("    MPI_Cart_shift(grid, 0", "    if (rank > 0) dims[0] = 1;\n    MPI_Cart_shift(grid, 0"),
    ] {
        assert!(source.contains(from));
        let found = annotate(&source.replace(from, to), "halo2d", &Options::default()).expect("annotated");
        let said: Vec<String> = found.unknown.iter().map(ToString::to_string).collect();
        assert!(said.iter().any(|t| t.contains("north") && t.contains("in each process to another value")), "{said:?}");
    }
}

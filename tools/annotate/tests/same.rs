//! What the annotator writes predicts the same as what people write.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_annotate::{Options, annotate};
use weir_annotations::program::Table;
use weir_annotations::{Diagnostic, Model, Program, Setting, Source, Value, parse};
use weir_predict::{Machine, Verdict, evaluate, hypothetical};

fn text(name: &str) -> String {
    let path = format!("{}/../../examples/predict/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn program(name: &str, text: &str) -> Program {
    let words = |found: Vec<Diagnostic>| {
        found.iter().map(|d| format!("{name}:{}: {}\n", d.place.line, d.message)).collect::<String>()
    };
    parse(&[Source { name, text }]).unwrap_or_else(|found| panic!("{}\n{text}", words(found))).program
}

/// The model for so many processes; parameters that the program does not have are left out.
fn model(program: &Program, numprocs: u32, values: &[(&str, i64)]) -> Model {
    let known = |name: &str| program.parameters.iter().any(|p| p.name == name);
    let values = values.iter().filter(|(name, _)| known(name));
    let parameters: BTreeMap<String, Value> = values.map(|(name, v)| ((*name).to_owned(), Value::Int(*v))).collect();
    let streams = program.streams.iter().map(|_| Arc::new(jobs())).collect();
    let setting = Setting { numprocs, parameters, processor: None, speed_mhz: None, streams };
    program.model(&setting).unwrap_or_else(|found| panic!("{found:?}")).model
}

/// The jobs of the farm.
fn jobs() -> Table {
    let text = text("farm-jobs.csv");
    let mut lines = text.lines();
    let columns = lines.next().expect("a header").split(',').map(str::to_owned).collect();
    let values = lines.flat_map(|l| l.split(',')).map(|v| Value::Int(v.parse().expect("a number"))).collect();
    Table { columns, values }
}

/// Times vary, links are shared, nodes have limits.
fn varied() -> Machine {
    let network = "[network]\nlatency_us = 40\nbandwidth_MB_per_s = 100\nspread = { family = \"pearson5\", mean = 0.2, shape = 3 }\n";
    hypothetical(network).expect("a machine")
}

/// The plain source annotated, with the serial times of the hand annotation.
fn from_plain(name: &str, time: &str) -> Program {
    let plain = text(&format!("plain/{name}.c"));
    let mut found =
        annotate(&plain, &format!("{name}.c"), &Options { timed: true, ..Options::default() }).expect("annotated");
    for segment in found.segments.clone() {
        found.set_time(&segment, time.to_owned());
    }
    program(&format!("{name}.c"), &found.text())
}

fn same(name: &str, time: &str, counts: &[u32], values: &[(&str, i64)]) {
    let (hand, own) = (program(name, &text(&format!("{name}.c"))), from_plain(name, time));
    for &numprocs in counts {
        for seed in 1..4 {
            let run = |program: &Program| {
                evaluate(&model(program, numprocs, values), &varied(), &weir_predict::Options::default(), seed)
            };
            let (hand, own) = (run(&hand), run(&own));
            assert_eq!(hand.verdict, Verdict::Finished, "{name} with {numprocs}");
            assert!(hand.time.seconds() > 0.0);
            assert_eq!(
                (own.time, own.messages, own.bytes),
                (hand.time, hand.messages, hand.bytes),
                "{name} with {numprocs}, seed {seed}"
            );
            assert_eq!(own.losses.by_process, hand.losses.by_process, "{name} with {numprocs}, seed {seed}");
        }
    }
}

#[test]
fn jacobi_from_plain_source_predicts_what_the_hand_annotation_does() {
    same(
        "jacobi",
        "relax_ms/numprocs ms",
        &[1, 2, 3, 4, 8, 16],
        &[("iterations", 50), ("columns", 256), ("relax_ms", 2)],
    );
}

#[test]
fn the_fourier_transform_does_too() {
    same("fft", "half_ms/numprocs ms", &[1, 2, 4, 8], &[("transforms", 5), ("side", 256), ("half_ms", 3)]);
}

#[test]
fn the_farm_ends_with_any_number_of_workers_and_more_are_faster() {
    let farm = program("farm.c", &text("farm.c"));
    let mut last = f64::INFINITY;
    for numprocs in [2, 3, 5, 9] {
        let outcome = evaluate(&model(&farm, numprocs, &[]), &varied(), &weir_predict::Options::default(), 1);
        assert_eq!(outcome.verdict, Verdict::Finished, "{numprocs}");
        assert_eq!(outcome.unreceived_count, 0);
        let workers = u64::from(numprocs - 1);
        // Two messages each way for each of 500 jobs, and one that ends each worker.
        assert_eq!(outcome.messages, 500 * 4 + workers);
        assert!(outcome.time.seconds() < last);
        last = outcome.time.seconds();
    }
}

//! How long the page of a run of 10^7 samples takes: `cargo bench -p weir-report`.
//!
//! The run is made up first, on disk, which is not timed.

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::Instant;

use weir_report::{compare, load, page};

fn main() {
    let dir = std::env::temp_dir().join(format!("weir-report-bench-{}", std::process::id()));
    let shape = common::Shape { repetitions: 3800, fits: false, ..common::Shape::typical() };
    if let Err(error) = common::write(&dir, &shape) {
        eprintln!("cannot make a run in {}: {error}", dir.display());
        std::process::exit(1);
    }
    for round in 1..=3 {
        let began = Instant::now();
        let digest = load(&dir).expect("the run that was just written");
        let read = began.elapsed();
        let text = page::of_run(&digest);
        println!(
            "round {round}: {} samples in {} cells, read and condensed in {:.2} s, page of {:.1} MB drawn in {:.2} s",
            digest.samples,
            digest.run.cells.len(),
            read.as_secs_f64(),
            text.len() as f64 / 1e6,
            (began.elapsed() - read).as_secs_f64()
        );
    }
    let began = Instant::now();
    let (first, second) = (load(&dir).expect("read"), load(&dir).expect("read"));
    let comparison = compare::compare(&first, &second);
    let size = page::of_two(&first, &second, &comparison).len();
    println!(
        "compared with itself: {} cells in {:.2} s, page of {:.1} MB",
        comparison.pairs().count(),
        began.elapsed().as_secs_f64(),
        size as f64 / 1e6
    );
    let _ = std::fs::remove_dir_all(dir);
}

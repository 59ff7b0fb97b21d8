//! Writes a run that was never measured, to try `weir report` on, and its page:
//!
//! ```text
//! cargo run -p weir-report --example made-up-run -- run1 [FACTOR] [REPETITIONS] [LAUNCHES]
//! cargo run -p weir-report --example made-up-run -- against run1 run2
//! ```

#[path = "../tests/common/mod.rs"]
mod common;

use std::path::Path;

use weir_report::cli::{Format, ReportArgs, report};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let runs = match args.first().map(String::as_str) {
        Some("against") => args[1..].iter().map(Into::into).collect(),
        _ => vec![make(&args).into()],
    };
    for format in [Format::Html, Format::Svg] {
        let done = report(&ReportArgs {
            runs: runs.clone(),
            format,
            output: None,
            anyway: false,
            json: false,
            quiet: format == Format::Svg,
        });
        if let Err(error) = done {
            eprintln!("made-up-run: {error}");
            std::process::exit(1);
        }
    }
}

fn make(args: &[String]) -> String {
    let number = |i: usize, default: f64| args.get(i).and_then(|a| a.parse().ok()).unwrap_or(default);
    let dir = args.first().map_or("run1", String::as_str);
    let mut shape = common::Shape::typical();
    shape.factor = number(1, 1.0);
    shape.seed = (shape.factor * 1000.0) as u64;
    shape.repetitions = number(2, f64::from(shape.repetitions)) as u32;
    shape.launches = number(3, 1.0) as u32;
    shape.launch_spread = 0.02;
    if let Err(error) = common::write(Path::new(dir), &shape) {
        eprintln!("made-up-run: {error}");
        std::process::exit(1);
    }
    dir.to_owned()
}

//! The conformance suite: the C programs of `tests/c`, each of which shows one behaviour, compiled
//! as C and as C++ and run with 1 to 8 processes on every carrier.
//!
//! A program says of itself, in comments of its first lines: `p:` the numbers of processes,
//! `fails:` and `also:` that all processes are to end with one line of error that contains these
//! texts, `says:` what is printed of a program that does not fail, `env:` what to set.

mod common;

use common::{Job, Lang, compile};
use libtest_mimic::{Arguments, Failed, Trial};
use std::path::{Path, PathBuf};

/// Numbers of processes on shared memory, and on carriers between hosts.
const HERE: [usize; 5] = [1, 2, 3, 4, 8];
const BETWEEN: [usize; 2] = [2, 3];

/// What a program says of itself.
#[derive(Default)]
struct Wanted {
    processes: Option<Vec<usize>>,
    fails: Vec<String>,
    says: Vec<String>,
    env: Vec<(String, String)>,
}

impl Wanted {
    fn of(source: &Path) -> Wanted {
        let text = std::fs::read_to_string(source).expect("a program");
        let mut wanted = Wanted::default();
        for line in text.lines().take_while(|line| line.starts_with("/*")) {
            let line = line.trim_start_matches("/*").trim_end_matches("*/").trim();
            if let Some(numbers) = line.strip_prefix("p:") {
                wanted.processes = Some(numbers.split_whitespace().map(|n| n.parse().expect("a number")).collect());
            } else if let Some(text) = line.strip_prefix("fails:").or_else(|| line.strip_prefix("also:")) {
                wanted.fails.push(text.trim().to_owned());
            } else if let Some(text) = line.strip_prefix("says:") {
                wanted.says.push(text.trim().to_owned());
            } else if let Some((name, value)) = line.strip_prefix("env:").and_then(|pair| pair.split_once('=')) {
                wanted.env.push((name.trim().to_owned(), value.trim().to_owned()));
            }
        }
        wanted
    }
}

fn run(source: &Path, carrier: &str) -> Result<(), Failed> {
    let wanted = Wanted::of(source);
    let usual = if carrier == "shm" { &HERE[..] } else { &BETWEEN[..] };
    let usual = usual.iter().copied().filter(|p| wanted.processes.as_ref().is_none_or(|all| all.contains(p)));
    let programs = [compile(source, Lang::C)?, compile(source, Lang::Cxx)?];
    for (i, p) in usual.enumerate() {
        // As C and as C++ by turns; the first number of processes both.
        let turns = if i == 0 { &programs[..] } else { &programs[i % 2..=i % 2] };
        for program in turns {
            let mut job = Job::new(program, p).env("WEIR_CARRIER", carrier);
            for (name, value) in &wanted.env {
                job = job.env(name, value);
            }
            let ended = job.run();
            let (told, lines) = (ended.told(), ended.errors());
            if wanted.fails.is_empty() {
                let all_said = wanted.says.iter().all(|text| lines.iter().any(|line| line.contains(text.as_str())));
                if !ended.all_succeeded() || !all_said || (wanted.says.is_empty() && !lines.is_empty()) {
                    return Err(format!("{p} processes: {told}").into());
                }
            } else {
                let one = lines.len() == 1 && wanted.fails.iter().all(|text| lines[0].contains(text.as_str()));
                if !ended.none_well() || !one {
                    return Err(format!("{p} processes: not just one line with {:?}: {told}", wanted.fails).into());
                }
            }
        }
    }
    Ok(())
}

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c");
    let mut sources: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("the programs")
        .map(|entry| entry.expect("a file").path())
        .filter(|path| path.extension().is_some_and(|e| e == "c"))
        .collect();
    sources.sort();
    let trials = sources.iter().flat_map(|source| {
        let name = source.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        ["shm", "udp", "tcp"].map(|carrier| {
            let source = source.clone();
            Trial::test(format!("{name} over {carrier}"), move || run(&source, carrier))
        })
    });
    let mut arguments = Arguments::from_args();
    // Eight processes each: more at a time only get in each other's way.
    arguments.test_threads.get_or_insert(1);
    libtest_mimic::run(&arguments, trials.collect()).exit();
}

//! `weir annotate --measure`: the program with its segments timed, compiled, run, and the medians
//! as times of the model.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::emit;
use crate::error::{Error, Unknown};
use crate::{Annotated, Segment};

const RUNTIME: &str = include_str!("segments.c");

/// How a program is compiled and run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The compiler, an MPI's `mpicc`.
    pub compiler: OsString,
    /// What it is given besides the source.
    pub compiler_arguments: Vec<OsString>,
    /// The launcher, an MPI's `mpiexec`.
    pub launcher: OsString,
    /// What it is given besides `-n COUNT`.
    pub launcher_arguments: Vec<OsString>,
    /// Numbers of processes, one run each.
    pub counts: Vec<u32>,
    /// The program's own arguments.
    pub arguments: Vec<OsString>,
    /// How long a run may take.
    pub limit: Duration,
}

/// The source with a timer around each segment. Lines stay where they are.
#[must_use]
pub fn instrumented(source: &str, segments: &[Segment], file: &str) -> String {
    let mut places: Vec<(usize, String)> = Vec::new();
    for (number, segment) in segments.iter().enumerate() {
        let (open, close) = if segment.listed { ("", "") } else { ("{ ", " }") };
        places.push((segment.at, format!("{open}weir_segment_begin({number}); ")));
        places.push((segment.end, format!(" weir_segment_end({number});{close}")));
    }
    places.sort_by_key(|(at, _)| *at);
    let name = file.replace('\\', "\\\\").replace('"', "\\\"");
    let mut out = format!("void weir_segment_begin(int); void weir_segment_end(int);\n#line 1 \"{name}\"\n");
    let mut done = 0;
    for (at, text) in places {
        out += source.get(done..at).unwrap_or("");
        out += &text;
        done = at;
    }
    out + source.get(done..).unwrap_or("")
}

/// Compiles, runs and fills in the times.
///
/// # Errors
/// If the compiler, the launcher or the program fails, or takes longer than it may.
pub fn measure(annotated: &mut Annotated, path: &Path, plan: &Plan) -> Result<(), Error> {
    if annotated.segments.is_empty() {
        return Ok(());
    }
    let folder =
        tempfile::tempdir().map_err(|e| Error::Run { what: format!("cannot make a folder for the program: {e}") })?;
    let program = compile(annotated, path, plan, folder.path())?;
    let mut medians: Vec<BTreeMap<u32, f64>> = vec![BTreeMap::new(); annotated.segments.len()];
    for &count in &plan.counts {
        let samples = folder.path().join(format!("samples-{count}"));
        fs::create_dir(&samples).map_err(|source| Error::Write { path: samples.clone(), source })?;
        run(plan, &program, count, &samples)?;
        for (number, mut found) in read(&samples, annotated.segments.len())?.into_iter().enumerate() {
            if let Some(median) = median(&mut found) {
                medians[number].insert(count, median);
            }
        }
    }
    let segments = annotated.segments.clone();
    for (segment, by_count) in segments.iter().zip(&medians) {
        let Some((time, doubt)) = law(by_count) else { continue };
        annotated.set_time(segment, time);
        if let Some(why) = doubt {
            annotated.unknown.push(Unknown { line: segment.line, parameter: None, why });
        }
    }
    annotated.unknown.sort();
    Ok(())
}

fn compile(annotated: &Annotated, path: &Path, plan: &Plan, folder: &Path) -> Result<PathBuf, Error> {
    let text = instrumented(annotated.source(), &annotated.segments, &path.display().to_string());
    let (source, runtime, program) = (folder.join("timed.c"), folder.join("segments.c"), folder.join("timed"));
    for (file, text) in [(&source, text.as_str()), (&runtime, RUNTIME)] {
        fs::write(file, text).map_err(|source| Error::Write { path: file.clone(), source })?;
    }
    let mut command = Command::new(&plan.compiler);
    command.arg("-O2").arg(format!("-DWEIR_SEGMENTS={}", annotated.segments.len()));
    let beside = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    command.arg("-I").arg(beside).arg(&source).arg(&runtime).arg("-o").arg(&program);
    command.args(&plan.compiler_arguments).arg("-lm");
    ended(&mut command, Duration::from_secs(300))?;
    Ok(program)
}

fn run(plan: &Plan, program: &Path, count: u32, samples: &Path) -> Result<(), Error> {
    let mut command = Command::new(&plan.launcher);
    command.args(&plan.launcher_arguments).arg("-n").arg(count.to_string()).arg(program).args(&plan.arguments);
    command.env("WEIR_SEGMENTS_DIR", samples);
    ended(&mut command, plan.limit)
}

/// Runs a command to its end; its words are told if it fails.
fn ended(command: &mut Command, limit: Duration) -> Result<(), Error> {
    let name = command.get_program().to_string_lossy().into_owned();
    let failed = |what: String| Error::Run { what: format!("{name} {what}") };
    let words = tempfile::tempfile().map_err(|e| failed(format!("has nowhere to write: {e}")))?;
    let copy = words.try_clone().and_then(|c| Ok((c.try_clone()?, c)));
    let (out, err) = copy.map_err(|e| failed(format!("has nowhere to write: {e}")))?;
    command.stdin(Stdio::null()).stdout(out).stderr(err);
    let mut child = command.spawn().map_err(|e| failed(format!("cannot be started: {e}")))?;
    let status = weir_mpi::ended(&mut child, limit).map_err(|e| failed(format!("cannot be waited for: {e}")))?;
    let Some(status) = status else {
        let what = format!("was still running after {} s; give it less to do, or more by --limit", limit.as_secs());
        return Err(failed(what));
    };
    if status.success() {
        return Ok(());
    }
    Err(failed(format!("failed ({status}): {}", last_words(words))))
}

/// The first lines that a command said, in one.
fn last_words(mut words: fs::File) -> String {
    use std::io::{Read as _, Seek as _, SeekFrom};
    let mut text = Vec::new();
    let read = words.seek(SeekFrom::Start(0)).and_then(|_| words.take(4000).read_to_end(&mut text));
    if read.is_err() {
        return String::new();
    }
    let text = String::from_utf8_lossy(&text);
    text.lines().map(str::trim).filter(|l| !l.is_empty()).take(6).collect::<Vec<_>>().join(" | ")
}

/// Samples of each segment, in nanoseconds, of all processes of a run.
fn read(folder: &Path, segments: usize) -> Result<Vec<Vec<f64>>, Error> {
    let mut all = vec![Vec::new(); segments];
    let bad = |source| Error::Read { path: folder.to_owned(), source };
    for entry in fs::read_dir(folder).map_err(bad)? {
        let path = entry.map_err(bad)?.path();
        let text = fs::read_to_string(&path).map_err(|source| Error::Read { path: path.clone(), source })?;
        for line in text.lines() {
            let Some((number, ns)) = line.split_once(' ') else { continue };
            if let (Ok(number), Ok(ns)) = (number.parse::<usize>(), ns.parse::<f64>())
                && let Some(list) = all.get_mut(number)
            {
                list.push(ns);
            }
        }
    }
    Ok(all)
}

fn median(samples: &mut [f64]) -> Option<f64> {
    samples.sort_by(f64::total_cmp);
    match samples.len() {
        0 => None,
        n if n % 2 == 1 => Some(samples[n / 2]),
        n => Some(f64::midpoint(samples[n / 2 - 1], samples[n / 2])),
    }
}

/// How far a law may be from what was measured before it is told.
const CLOSE: f64 = 0.25;

/// A segment's time from its medians by number of processes: the same with any, or shared by all.
/// With a doubt, where neither fits or only one number was tried.
fn law(by_count: &BTreeMap<u32, f64>) -> Option<(String, Option<String>)> {
    let (&count, &only) = by_count.first_key_value()?;
    if by_count.len() == 1 {
        let doubt =
            format!("measured with {count} processes only: give several to -n to learn how it depends on their number");
        return Some((emit::time(only), Some(doubt)));
    }
    let fit = |form: &dyn Fn(f64) -> f64| {
        let ratios: Vec<f64> = by_count.iter().map(|(n, t)| t / form(f64::from(*n))).collect();
        let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
        let off = ratios.iter().map(|r| if mean > 0.0 { (r / mean - 1.0).abs() } else { 0.0 }).fold(0.0, f64::max);
        (mean, off)
    };
    let (same, shared) = (fit(&|_| 1.0), fit(&|n| 1.0 / n));
    let (time, off) = if same.1 <= shared.1 {
        (emit::time(same.0), same.1)
    } else {
        let time = emit::time(shared.0);
        let (value, unit) = time.split_once(' ').unwrap_or((&time, "ns"));
        // (Of two whole numbers, as in C, a quotient is whole, and 3/4 nothing.)
        let real = if value.contains('.') { "" } else { ".0" };
        (format!("{value}{real}/numprocs {unit}"), shared.1)
    };
    let measured = by_count.iter().map(|(n, t)| format!("{} with {n}", emit::time(*t))).collect::<Vec<_>>().join(", ");
    let doubt = (off > CLOSE)
        .then(|| format!("the time is neither the same for any number of processes nor shared by all: {measured}"));
    Some((time, doubt))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_follow_the_number_of_processes_as_far_as_that_is_plain() {
        let of = |all: &[(u32, f64)]| law(&all.iter().copied().collect());
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[(2, 1500.0), (4, 1600.0)]), Some(("1.55 us".into(), None)));
        assert_eq!(of(&[(2, 1500.0), (4, 750.0), (8, 375.0)]), Some(("3.0/numprocs us".into(), None)));
        let (time, doubt) = of(&[(4, 2e6)]).unwrap();
        assert!(time == "2 ms" && doubt.unwrap().contains("4 processes only"));
        assert!(of(&[(2, 100.0), (4, 1000.0)]).unwrap().1.is_some());
    }

    #[test]
    fn the_median_of_none_is_none() {
        assert_eq!(median(&mut []), None);
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }
}

//! `weir tune`: starts the processes that measure, where no launcher has; the rest is
//! `weir-bsp-tool`'s.

use std::ffi::OsString;
use std::io::IsTerminal;

use anyhow::{Result, anyhow};
use weir_bsp_tool::Error;
use weir_bsp_tool::args::TuneArgs;
use weir_bsp_tool::tune::{can_be_kept, keep, measure, show};
use weir_job::Env;
use weir_job::launch::{Launcher, detect, parents};

use crate::commands::{print_all, wrong_line};
use crate::local;

/// Does what is asked.
///
/// # Errors
/// What went wrong, in one line.
pub fn run(env: &Env, args: &TuneArgs) -> Result<u8> {
    if env.get("WEIR_BSP_MEET").is_some() {
        return as_rank(args);
    }
    match detect(env, &parents()) {
        Ok(Launcher::None) => here(env, args),
        Err(_) if args.processes.is_some() => here(env, args),
        Ok(_) if args.processes.is_some() => {
            wrong_line("-n: a launcher has started the processes already; leave -n out, or start one alone")
        }
        Ok(_) => as_rank(args),
        Err(error) => Err(error.into()),
    }
}

/// This process is one of those that measure. What went wrong is the same for all: process 0 says
/// it.
fn as_rank(args: &TuneArgs) -> Result<u8> {
    match measure(args) {
        Ok(None) => Ok(0),
        Ok(Some(tuned)) => {
            // What cannot be kept is shown all the same.
            let kept = keep(args, &tuned);
            let code = print_all(show(args, &tuned).as_bytes())?;
            kept?;
            Ok(code)
        }
        Err(Error::Usage(what)) => Err(anyhow!(what)),
        Err(other) => Err(other.into()),
    }
}

/// Starts the processes on this machine.
fn here(env: &Env, args: &TuneArgs) -> Result<u8> {
    can_be_kept(args)?;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let processes = args.processes.unwrap_or_else(|| u32::try_from(cores.clamp(2, 64)).unwrap_or(2));
    local::run_own(env, processes, &words(args))
}

/// What a process that measures is told.
fn words(args: &TuneArgs) -> Vec<OsString> {
    let mut words: Vec<OsString> = [
        "tune",
        "--h",
        &args.h.to_string(),
        "--pattern",
        args.pattern.name(),
        "--samples",
        &args.samples.to_string(),
        "--time",
        &args.time.to_string(),
    ]
    .map(OsString::from)
    .to_vec();
    match &args.slots {
        Some(slots) if slots.is_empty() => words.push("--slots".into()),
        Some(slots) => words.extend(["--slots".into(), joined(slots).into()]),
        None => words.extend(["--queues".into(), joined(&args.queues).into()]),
    }
    if let Some(file) = &args.output {
        words.extend(["--output".into(), file.into()]);
    }
    words.extend([(args.json, "--json"), (args.quiet, "--quiet")].iter().filter(|w| w.0).map(|w| w.1.into()));
    if std::io::stderr().is_terminal() {
        words.push("--bar".into());
    }
    words
}

fn joined(values: &[impl ToString]) -> String {
    values.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use clap::Parser;

    fn parsed<T: Into<OsString> + Clone>(words: &[T]) -> TuneArgs {
        let words = std::iter::once(OsString::from("weir")).chain(words.iter().cloned().map(Into::into));
        match Args::try_parse_from(words).unwrap().command {
            Command::Tune(args) => *args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn processes_that_measure_are_told_what_was_asked_for() {
        let line = "tune -n 4 --h 64K --pattern shift --queues 16K,system --samples 9 --time 0.5 -o out --json -q";
        let asked = parsed(&line.split(' ').collect::<Vec<_>>());
        let told = parsed(&words(&asked));
        assert_eq!((told.h, told.pattern, &told.queues), (asked.h, asked.pattern, &asked.queues));
        assert_eq!((told.samples, told.time, told.json, told.quiet), (9, 0.5, true, true));
        assert_eq!((asked.processes, told.processes, told.output), (Some(4), None, asked.output));
        for line in ["tune --slots -n 4", "tune -n 4 --slots 1250,100 --json"] {
            let asked = parsed(&line.split(' ').collect::<Vec<_>>());
            assert_eq!(parsed(&words(&asked)).slots, asked.slots, "{line}");
        }
        assert_eq!(parsed(&["tune", "--slots", "1250,100"]).slots, Some(vec![1250, 100]));
        assert_eq!(parsed(&["tune", "--slots"]).slots, Some(vec![]));
        for refused in [&["weir", "tune", "--slots", "0"][..], &["weir", "tune", "--slots", "--queues", "system"]] {
            assert!(Args::try_parse_from(refused).is_err(), "{refused:?}");
        }
    }
}

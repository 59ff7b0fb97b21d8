//! `weir bsp`: starts the processes that measure, where no launcher has; the rest is
//! `weir-bsp-tool`'s.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use weir_bench::speaker::Part;
use weir_bsp_tool::Error;
use weir_bsp_tool::args::{BspArgs, BspCommand, ParamsArgs};
use weir_bsp_tool::commands::{earlier, keep, leave, measure, report, show};
use weir_bsp_tool::params::Params;
use weir_job::Env;
use weir_job::launch::{Launcher, detect, parents};

use crate::commands::{print_all, wrong_line};
use crate::local;

/// Does what is asked.
///
/// # Errors
/// What went wrong, in one line.
pub fn run(env: &Env, args: BspArgs) -> Result<u8> {
    let done = match args.command {
        BspCommand::Report(args) => {
            report(&args).map_err(anyhow::Error::from).and_then(|text| print_all(text.as_bytes()))
        }
        BspCommand::Params(args) => params(env, &args),
    };
    done.or_else(|error| match error.downcast_ref::<Error>() {
        Some(Error::Usage(said)) => wrong_line(said),
        _ => Err(anyhow!("{error:#}")),
    })
}

fn params(env: &Env, args: &ParamsArgs) -> Result<u8> {
    if !args.from.is_empty() {
        return kept_and_shown(args, &earlier(args)?);
    }
    // Processes that meet in a folder (spec/bsp.md 7) have no launcher, and are started all the
    // same.
    if env.get("WEIR_BSP_MEET").is_some() {
        return as_rank(env, args);
    }
    match detect(env, &parents()) {
        // A launcher that cannot be spoken to is no hindrance where processes are to be started
        // here.
        Ok(Launcher::None) => here(env, args),
        Err(_) if !args.processes.is_empty() => here(env, args),
        Ok(_) => as_rank(env, args),
        Err(error) => Err(error.into()),
    }
}

/// This process is one of those that measure.
fn as_rank(env: &Env, args: &ParamsArgs) -> Result<u8> {
    // What cannot be added to is not measured for nothing.
    let earlier = match earlier(args) {
        _ if !args.processes.is_empty() => Err(Error::Usage(
            "-n: a launcher has started the processes already; leave -n out, or start one alone".into(),
        )),
        earlier => earlier,
    };
    let earlier = match (earlier, Part::of(env, true)) {
        (Ok(earlier), _) => earlier,
        // Only process 0 adds to it.
        (Err(error), Part::Silent | Part::SaysLate(_)) if !matches!(error, Error::Usage(_)) => Params::default(),
        (Err(error), Part::Says) => return Err(error.into()),
        // Another one says the same.
        (Err(_), part) => {
            part.say("");
            return Ok(1);
        }
    };
    let Some(machine) = measure(args)? else { return Ok(0) };
    if let Some(part) = &args.part {
        leave(machine, part)?;
        return Ok(0);
    }
    let mut all = earlier;
    all.merge(Params { machines: vec![machine] });
    kept_and_shown(args, &all)
}

/// What cannot be kept is shown all the same.
fn kept_and_shown(args: &ParamsArgs, all: &Params) -> Result<u8> {
    let kept = keep(args, all);
    let code = print_all(show(args, all).as_bytes())?;
    kept?;
    Ok(code)
}

/// Starts the processes on this machine, for each number of them in turn.
fn here(env: &Env, args: &ParamsArgs) -> Result<u8> {
    let mut all = earlier(args)?;
    let folder = tempfile::tempdir().context("cannot make a folder for what is measured")?;
    for p in counts(args) {
        let part = folder.path().join(format!("{p}.json"));
        let code = local::run_own(env, p, &words(args, &part))?;
        if code != 0 {
            // What was measured before is not lost.
            if args.output.is_some() && !all.machines.is_empty() {
                kept_and_shown(args, &all)?;
            }
            return Ok(code);
        }
        all.merge(Params::read(&part)?);
    }
    kept_and_shown(args, &all)
}

/// With how many processes: as said, else 2, 4, ... up to the cores.
fn counts(args: &ParamsArgs) -> Vec<u32> {
    if !args.processes.is_empty() {
        let mut asked = args.processes.clone();
        asked.sort_unstable();
        asked.dedup();
        return asked;
    }
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let doubled = std::iter::successors(Some(2u32), |p| p.checked_mul(2));
    doubled.take_while(|p| *p == 2 || *p as usize <= cores).collect()
}

/// What a process that measures is told.
fn words(args: &ParamsArgs, part: &Path) -> Vec<OsString> {
    fn list<T: ToString>(all: &[T]) -> String {
        all.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }
    let by: Vec<&str> = args.by.iter().map(|by| by.name()).collect();
    let patterns: Vec<&str> = args.patterns.iter().map(|pattern| pattern.name()).collect();
    let mut words: Vec<OsString> = [
        "bsp",
        "params",
        "--h",
        &list(&args.h),
        "--blocks",
        &list(&args.blocks),
        "--patterns",
        &list(&patterns),
        "--by",
        &list(&by),
        "--samples",
        &args.samples.to_string(),
        "--time",
        &args.time.to_string(),
        "--part",
    ]
    .map(OsString::from)
    .to_vec();
    words.push(part.into());
    if args.quiet {
        words.push("--quiet".into());
    }
    if std::io::stderr().is_terminal() {
        words.push("--bar".into());
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use clap::Parser;

    fn parsed<T: Into<OsString> + Clone>(words: &[T]) -> ParamsArgs {
        let words = std::iter::once(OsString::from("weir")).chain(words.iter().cloned().map(Into::into));
        match Args::try_parse_from(words).unwrap().command {
            Command::Bsp(BspArgs { command: BspCommand::Params(args) }) => *args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn processes_that_measure_are_told_what_was_asked_for() {
        let asked = parsed(&[
            "bsp",
            "params",
            "-n",
            "4,2,4",
            "--h",
            "64K",
            "--blocks",
            "8,1K",
            "--patterns",
            "shift",
            "--samples",
            "7",
            "--time",
            "0.25",
            "--by",
            "put,send",
            "-q",
        ]);
        assert_eq!(counts(&asked), [2, 4]);
        let told = parsed(&words(&asked, Path::new("/t/2.json")));
        assert_eq!(
            (&told.h, &told.blocks, &told.patterns, &told.by),
            (&asked.h, &asked.blocks, &asked.patterns, &asked.by)
        );
        assert_eq!((told.samples, told.time, told.quiet, told.part), (7, 0.25, true, Some("/t/2.json".into())));
        assert!(counts(&parsed(&["bsp", "params"])).starts_with(&[2]));
    }
}

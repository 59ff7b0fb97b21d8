//! The command `weir`: runs programs over Weir, says what is wrong, shows counters, emulates
//! networks.

mod args;
mod bench;
mod bmi;
mod bsp;
mod carriers;
mod change;
mod commands;
mod compile;
mod doctor;
mod environment;
mod help;
mod interfaces;
mod jobs;
mod local;
mod mpi;
mod pages;
mod provider;
mod run;
mod running;
mod settings;
mod shell;
mod slurm;
mod stat;
mod tune;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};
use weir_bench::speaker::prints_what_the_parser_says;
use weir_job::Env;

/// The version, and the commit where whoever built it said so (`WEIR_COMMIT`, as `cargo xtask dist`
/// and `install` do).
pub(crate) fn version() -> String {
    let version = env!("CARGO_PKG_VERSION");
    match option_env!("WEIR_COMMIT") {
        Some(commit) if !commit.is_empty() => format!("{version} ({commit})"),
        _ => version.to_owned(),
    }
}

fn main() -> ExitCode {
    weir_emulate::process::quietly(command)
}

/// Whether this is one of the commands that launchers start many times: of any other each process
/// says for itself what is wrong.
fn is_started_by_launchers() -> bool {
    let words: Vec<_> = std::env::args_os().skip(1).take(2).collect();
    let own = words.get(1).is_some_and(|word| word == "serverload");
    words.first().is_some_and(|word| word == "bench") && !own
        || words == ["bsp", "params"]
        || words.first().is_some_and(|word| word == "tune")
}

/// Prints what the parser says: help or the version, which somebody asked for and may be written
/// to a full disk, or what is wrong with the command line.
fn said_by_the_parser(error: &clap::Error) -> ExitCode {
    use std::io::Write;
    let code = ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(args::EXIT_FAILED));
    match error.print().and_then(|()| std::io::stdout().flush()) {
        Err(lost) if lost.kind() == std::io::ErrorKind::BrokenPipe => weir_emulate::process::reader_is_gone(),
        Err(lost) if !error.use_stderr() => {
            weir_put::tell!("weir: standard output: {lost}");
            ExitCode::from(args::EXIT_FAILED)
        }
        _ => code,
    }
}

fn command() -> ExitCode {
    let parsed =
        help::flowing(args::Args::command(), help::width()).try_get_matches_from(args::with_np(std::env::args_os()));
    let args = match parsed.and_then(|matches| args::Args::from_arg_matches(&matches)) {
        Ok(args) => args,
        Err(error) if is_started_by_launchers() && !prints_what_the_parser_says(&Env::from_process()) => {
            // Of the processes of a job one prints it.
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(args::EXIT_FAILED));
        }
        Err(error) => return said_by_the_parser(&error),
    };
    let emulates = matches!(args.command, args::Command::Emulate(_));
    match commands::run(args) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            // One line with all its causes: what failed first comes last.
            weir_put::tell!("weir: {error:#}");
            ExitCode::from(if emulates { weir_emulate::cli::exit_code_of(&error) } else { args::EXIT_FAILED })
        }
    }
}

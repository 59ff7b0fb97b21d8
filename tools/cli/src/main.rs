//! The command `weir`: runs programs over Weir, says what is wrong, shows counters, emulates networks.

mod args;
mod commands;
mod doctor;
mod environment;
mod interfaces;
mod mpi;
mod provider;
mod run;
mod settings;
mod stat;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    weir_emulate::process::quietly(command)
}

fn command() -> ExitCode {
    let args = args::Args::parse();
    let emulates = matches!(args.command, args::Command::Emulate(_));
    match commands::run(args) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            // One line with all its causes: what failed first comes last.
            eprintln!("weir: {error:#}");
            ExitCode::from(if emulates { weir_emulate::cli::exit_code_of(&error) } else { args::EXIT_FAILED })
        }
    }
}

//! The command `weir`: runs programs over Weir, says what is wrong, shows counters, emulates networks.

mod args;
mod commands;
mod doctor;
mod elf;
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
    let args = args::Args::parse();
    match commands::run(args) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            // One line with all its causes: what failed first comes last.
            eprintln!("weir: {error:#}");
            ExitCode::from(args::EXIT_FAILED)
        }
    }
}

//! `weir-emulate`: the command `weir emulate` as a program of its own.

use clap::Parser;
use std::process::ExitCode;

/// The network this machine cannot give: hosts on stars with rate, delay, faults, cut and heal
#[derive(Parser)]
#[command(name = "weir-emulate", version)]
struct Program {
    #[command(flatten)]
    args: weir_emulate::cli::Args,
}

fn main() -> ExitCode {
    weir_emulate::process::quietly(|| match weir_emulate::cli::run(Program::parse().args) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            weir_put::tell!("weir-emulate: {error:#}");
            ExitCode::from(weir_emulate::cli::exit_code_of(&error))
        }
    })
}

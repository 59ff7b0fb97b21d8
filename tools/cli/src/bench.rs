//! `weir bench`: what it needs of this program, which knows where the library is and how hosts are
//! reached.

use weir_bench::options::{Args, BenchCommand};
use weir_bench::serverload::{Around, Hosts};
use weir_job::Env;

use crate::bmi;

/// Does what is asked; returns the exit code.
pub fn run(env: &Env, args: &Args) -> u8 {
    let Some(BenchCommand::Serverload(args)) = &args.command else { return weir_bench::command::run(args) };
    let library = || bmi::find(env).map_err(|error| format!("{error:#}"));
    weir_bench::serverload::run(args, &Around { library: &library, hosts: &hosts })
}

/// Started on other hosts as `weir ping` starts its ends there.
fn hosts(agent: Option<&str>, weir: Option<&str>) -> Result<Hosts, String> {
    let by = weir_ping::command::agent(agent, weir).map_err(|error| error.to_string())?;
    let environment = weir_ping::environment::for_host();
    Ok(Hosts { agent: by.command, environment, weir: by.weir, ..Hosts::default() })
}

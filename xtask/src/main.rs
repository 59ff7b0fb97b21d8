//! The project's chores: `cargo xtask <chore>`.

mod lab;
mod launch;
mod mpi;
mod paths;
mod process;
mod stack;

use anyhow::Result;
use clap::{Parser, Subcommand};

use paths::Paths;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The project's chores", max_term_width = 100)]
struct Args {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Fetch the pinned MPICH, Open MPI and mpi4py, and compile the MPI test programs.
    SetupMpi,
    /// Run one MPI program on one stack in a network of hosts.
    Mpirun(RunArgs),
}

#[derive(clap::Args)]
struct RunArgs {
    /// The stack, such as weir-mpich or mpich-tcp-cubic.
    #[arg(long, default_value = "weir-mpich")]
    stack: String,
    #[arg(short, default_value_t = 2)]
    n: usize,
    #[arg(long, default_value_t = 0.0)]
    loss: f64,
    program: String,
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

fn main() -> Result<()> {
    let paths = Paths::find();
    match Args::parse().chore {
        Chore::SetupMpi => {
            mpi::set_up(&paths)?;
            mpi::compile(&paths)
        }
        Chore::Mpirun(run) => {
            lab::acquire()?;
            let stacks = stack::Stack::all(&["cubic".into(), "bbr".into()]);
            let lab = lab::Lab::start(run.n, &lab::Wire::plain(run.loss))?;
            for stack in stacks.iter().filter(|s| s.name == run.stack || run.stack == "all") {
                if let Some(c) = &stack.congestion { println!("{}", lab.set_congestion(c)?); }
                let program = mpi::program(&paths, stack.mpi, &run.program);
                let job = launch::Job { stack, ranks: run.n, program: &program, args: &run.args, limit: std::time::Duration::from_secs(20), env: &[] };
                let before = lab.counts()?;
                match job.run(&paths, Some(&lab)) {
                    Ok(outcome) => println!("{} {} {:?} {:?}", stack.name, outcome.cause(), launch::result_of(&outcome).map(|v| v.to_string()), lab.counts()?.since(before)),
                    Err(e) => println!("{} {e:#}", stack.name),
                }
            }
            Ok(())
        }
    }
}

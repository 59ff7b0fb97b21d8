//! A rank of a job, for trying launchers: `weir run -n 4 rank`, `mpiexec -n 4 rank`,
//! `srun --mpi=pmi2 -n 4 rank`, ...
//!
//! Its arguments are steps, done in order: `exchange` (all names arrive, by rank), `fence`,
//! `sleep:MS`, `print:TEXT`, `read` (a line of standard input), `child` (starts one that sleeps,
//! and goes on), `end` (leaves the job), and only on rank R: `R/STEP`, also with `abort:CODE`,
//! `exit:CODE`, `kill`, `stop`. Without arguments: `exchange fence end`.

use std::io::BufRead;
use std::process::{Command, ExitCode, exit};
use std::time::Duration;

use weir_job::Env;
use weir_job::launch::{Job, LAST_WORDS, LaunchError};
use weir_job::ranks::say;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(format_args!("rank: {error}"));
            std::thread::sleep(LAST_WORDS);
            ExitCode::from(7)
        }
    }
}

fn run() -> Result<(), LaunchError> {
    let mut job = Some(Job::from_env(&Env::from_process())?);
    let (rank, size) = job.as_ref().map_or((0, 0), |job| (job.rank(), job.size()));
    let given: Vec<String> = std::env::args().skip(1).collect();
    let usual = ["exchange", "fence", "end"].map(String::from).to_vec();
    for step in if given.is_empty() { usual } else { given } {
        let (only, step) = step.split_once('/').map_or((None, step.as_str()), |(only, step)| (only.parse().ok(), step));
        if only.is_some_and(|only: u32| only != rank) {
            continue;
        }
        let (name, value) = step.split_once(':').unwrap_or((step, ""));
        let number = value.parse().unwrap_or(0);
        match (name, &mut job) {
            ("exchange", Some(job)) => exchange(job)?,
            ("fence", Some(job)) => job.fence()?,
            ("end", _) => job.take().map_or(Ok(()), Job::finalize)?,
            ("abort", Some(job)) => {
                let code = i32::try_from(number).unwrap_or(1);
                if !job.shows_abort() {
                    say(format_args!("rank {rank} aborts as it was told to"));
                }
                job.abort(code, "as it was told to")?;
                exit(code);
            }
            ("sleep", _) => std::thread::sleep(Duration::from_millis(number)),
            ("print", _) => println!("rank {rank} of {size}: {value}"),
            ("key", Some(job)) => println!("key {} from {}", job.key().fingerprint(), job.key().source),
            ("who", Some(job)) => {
                println!("rank {rank} of {size}, {:?} here, by {}, job {}", job.ranks_here(), job.launcher(), job.id());
            }
            ("read", _) => read(rank),
            ("child", _) => drop(Command::new("sleep").arg("600").spawn()),
            ("exit", _) => exit(i32::try_from(number).unwrap_or(1)),
            ("kill", _) => drop(Command::new("kill").args(["-9", &std::process::id().to_string()]).status()),
            ("stop", _) => drop(Command::new("kill").args(["-STOP", &std::process::id().to_string()]).status()),
            _ => say(format_args!("rank {rank}: no step {step:?} now")),
        }
    }
    Ok(())
}

/// Every rank gives as many bytes as its number says, and must see everybody's.
fn exchange(job: &mut Job) -> Result<(), LaunchError> {
    let of = |rank: u32| vec![rank.to_le_bytes()[0]; 48 + (rank as usize * 37) % 900];
    let all = job.exchange(&of(job.rank()))?;
    let right = all.len() == job.size() as usize && (0..job.size()).zip(&all).all(|(rank, data)| *data == of(rank));
    println!("rank {} of {}: {}", job.rank(), job.size(), if right { "all data are right" } else { "WRONG DATA" });
    Ok(())
}

fn read(rank: u32) {
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    println!("rank {rank} read {read:?}: {}", line.trim_end());
}

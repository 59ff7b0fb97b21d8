//! Many ranks: how long a job of them takes to start on a few emulated hosts, and what each then
//! holds, over Weir and over libfabric's `tcp`.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};

use crate::e2e::judged;
use crate::lab::{self, Lab, Wire};
use crate::launch::Job;
use crate::mpi;
use crate::paths::Paths;
use crate::stack::Stack;

/// What is asked for.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  cargo xtask bench ranks
  cargo xtask bench ranks --ranks 256 --stacks weir-mpich,mpich-tcp --launches 1
  cargo xtask bench ranks --no-build --json
  cargo xtask bench ranks --ranks 256 --env WEIR_CONNECT_TIMEOUT_MS=60000 --env WEIR_PEER_TIMEOUT_MS=60000")]
pub struct Options {
    /// Numbers of ranks
    #[arg(long, value_delimiter = ',', default_value = "64,128,256", value_parser = clap::value_parser!(u32).range(2..=1024))]
    ranks: Vec<u32>,
    /// Hosts that they are spread over
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=32))]
    hosts: u32,
    /// The stacks, by name
    #[arg(long, value_delimiter = ',', default_value = "weir-mpich,mpich-tcp")]
    stacks: Vec<String>,
    /// Launches of each, in turn; told is the one in the middle by its time
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=20))]
    launches: u32,
    /// A launch is ended after this many seconds
    #[arg(long, default_value_t = 120)]
    limit: u64,
    /// Environment for the ranks, as NAME=VALUE
    #[arg(long)]
    env: Vec<String>,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
    /// Measure the provider that is there, without building
    #[arg(long)]
    no_build: bool,
}

/// What the program tells, its name in the table, and its digits behind the point.
const FACTS: [(&str, &str, usize); 8] = [
    ("start_s", "start to end, s", 2),
    ("init_s", "MPI_Init, s", 2),
    ("barrier_s", "barrier, s", 3),
    ("first_s", "all to all, s", 3),
    ("second_s", "again, s", 3),
    ("rss_kib", "resident, KiB", 0),
    ("descriptors", "descriptors", 0),
    ("threads", "threads", 0),
];

/// What the middle launch of a stack told, or why there is none.
type Told = Result<Map<String, Value>, String>;

/// Runs them and prints a table.
///
/// # Errors
/// If there can be no hosts, a stack has no such name, or nothing is built.
pub fn run(paths: &Paths, options: &Options) -> Result<()> {
    lab::acquire()?;
    let all = Stack::all(&[]);
    let find = |name: &String| all.iter().find(|stack| stack.name == *name);
    if let Some(unknown) = options.stacks.iter().find(|name| find(name).is_none()) {
        bail!("no stack {unknown}; there are: {}", all.iter().map(|s| s.name.as_str()).collect::<Vec<_>>().join(", "));
    }
    if !options.no_build {
        crate::dist::build(paths)?;
    }
    mpi::set_up(paths)?;
    mpi::compile(paths)?;
    let pairs = options.env.iter().map(|text| {
        let (name, value) = text.split_once('=').with_context(|| format!("--env wants NAME=VALUE, not {text}"))?;
        Ok((name.to_owned(), value.to_owned()))
    });
    let env = pairs.collect::<Result<Vec<_>>>()?;
    let lab = Lab::start(options.hosts as usize, &Wire::plain(0.0))?;
    let mut rows = Vec::new();
    let stacks: Vec<&Stack> = options.stacks.iter().filter_map(find).collect();
    for ranks in &options.ranks {
        let mut launches: Vec<Vec<Told>> = vec![Vec::new(); stacks.len()];
        for _ in 0..options.launches {
            for (stack, told) in stacks.iter().zip(&mut launches) {
                told.push(launch(paths, &lab, stack, *ranks, options.limit, &env));
            }
        }
        let of_each = stacks.iter().zip(launches);
        rows.extend(of_each.map(|(stack, told)| (*ranks, stack.name.clone(), middle(told))));
    }
    if options.json {
        let rows: Vec<Value> = rows
            .iter()
            .map(|(ranks, stack, told)| match told {
                Ok(facts) => json!({"ranks": ranks, "hosts": options.hosts, "stack": stack, "facts": facts}),
                Err(why) => json!({"ranks": ranks, "hosts": options.hosts, "stack": stack, "error": why}),
            })
            .collect();
        println!("{:#}", Value::from(rows));
    } else {
        print!("{}", table(options.hosts, &rows));
    }
    Ok(())
}

/// One launch: what its program told, and how long it took from the launcher's start to its end.
fn launch(paths: &Paths, lab: &Lab, stack: &Stack, ranks: u32, limit: u64, env: &[(String, String)]) -> Told {
    let program = mpi::program(paths, stack.mpi, "start");
    let limit = Duration::from_secs(limit);
    let job = Job { stack, ranks: ranks as usize, program: &program, args: &[], limit, env };
    let outcome = job.run(paths, Some(lab)).map_err(|error| format!("{error:#}"))?;
    let seconds = outcome.elapsed.as_secs_f64();
    let mut told = judged(Ok(outcome))?.as_object().cloned().unwrap_or_default();
    told.insert("start_s".into(), seconds.into());
    Ok(told)
}

/// Of several launches the one in the middle by its time; an error if one had one.
fn middle(launches: Vec<Told>) -> Told {
    let mut all = launches.into_iter().collect::<Result<Vec<_>, _>>()?;
    let time = |told: &Map<String, Value>| told.get("start_s").and_then(Value::as_f64).unwrap_or(f64::MAX);
    all.sort_by(|a, b| time(a).total_cmp(&time(b)));
    let at = all.len() / 2;
    if all.is_empty() { Err("no launch".into()) } else { Ok(all.swap_remove(at)) }
}

fn table(hosts: u32, rows: &[(u32, String, Told)]) -> String {
    let mut text = format!("Ranks on {hosts} hosts of this machine; of all ranks the most.\n\n| ranks | stack |");
    text += &FACTS.map(|(_, name, _)| format!(" {name} |")).concat();
    text += &format!("\n|--:|:--|{}\n", "--:|".repeat(FACTS.len()));
    for (ranks, stack, told) in rows {
        text += &format!("| {ranks} | {stack} |");
        match told {
            Ok(told) => {
                for (key, _, digits) in FACTS {
                    let value = told.get(key).and_then(Value::as_f64);
                    text += &value.map_or_else(|| " - |".to_owned(), |value| format!(" {value:.digits$} |"));
                }
            }
            Err(why) => text += &format!(" {} |", why.lines().next().unwrap_or_default().replace('|', "/")),
        }
        text += "\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(seconds: f64) -> Map<String, Value> {
        [("start_s".to_owned(), seconds.into()), ("rss_kib".to_owned(), 12_345.6.into())].into_iter().collect()
    }

    #[test]
    fn of_several_launches_the_middle_one_is_told_unless_one_failed() {
        let all = || vec![Ok(told(3.0)), Ok(told(1.0)), Ok(told(2.0))];
        assert_eq!(middle(all()).unwrap()["start_s"], 2.0);
        let mut failed = all();
        failed.push(Err("it hung".into()));
        assert_eq!(middle(failed).unwrap_err(), "it hung");
        assert!(middle(Vec::new()).is_err());
    }

    #[test]
    fn the_table_has_a_row_for_each_and_a_dash_for_what_was_not_told() {
        let rows =
            [(64, "weir-mpich".to_owned(), Ok(told(2.0))), (64, "mpich-tcp".to_owned(), Err("no\nlines".into()))];
        let text = table(8, &rows);
        assert!(text.contains("| 64 | weir-mpich | 2.00 | - |") && text.contains("| 12346 | - | - |"), "{text}");
        assert!(text.ends_with("| 64 | mpich-tcp | no |\n"), "{text}");
    }
}

//! `weir stat` without a process, and with a job: who uses Weir here, as which rank of which job.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStringExt;

use anyhow::{Result, bail};
use serde_json::{Value, json};
use weir_job::Env;
use weir_report::table::clean;

use crate::{change, running, stat};

/// Programs that start ranks: the outermost of a rank's ancestors that is one names its job, where
/// no variable does.
const LAUNCHERS: [&str; 10] = [
    "mpiexec",
    "mpiexec.hydra",
    "mpirun",
    "hydra_pmi_proxy",
    "prterun",
    "prte",
    "prted",
    "orterun",
    "srun",
    "slurmstepd",
];
/// Ancestors that are looked at: nobody nests deeper.
const MOST_ANCESTORS: usize = 64;

/// A process that uses Weir.
#[derive(Clone, Debug)]
pub struct Process {
    pid: u32,
    rank: Option<u32>,
    /// The launcher's name of the job.
    job: Option<String>,
    /// The process that started it, and those before.
    ancestors: Vec<u32>,
    /// The outermost launcher among them.
    launcher: Option<u32>,
    program: String,
    /// Or why it did not answer, though it serves some.
    counters: Result<Value, stat::Silent>,
}

/// The user's processes with an endpoint in this network namespace, by job and rank.
pub fn processes() -> Vec<Process> {
    let mut all: Vec<Process> = running::answers().into_iter().map(|(pid, counters)| look(pid, counters)).collect();
    all.sort_by_key(|one| (one.name(), one.rank, one.pid));
    all
}

fn look(pid: u32, counters: Result<Value, stat::Silent>) -> Process {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let pairs = environment.split(|byte| *byte == 0).filter_map(|line| {
        let at = line.iter().position(|byte| *byte == b'=')?;
        let text = |bytes: &[u8]| std::ffi::OsString::from_vec(bytes.to_vec());
        Some((text(&line[..at]).into_string().ok()?, text(&line[at + 1..])))
    });
    let identity = weir_job::identity(&Env::from_pairs(pairs));
    let ancestors = ancestors(pid);
    let launcher = ancestors.iter().rev().find(|pid| LAUNCHERS.contains(&program(**pid).as_str())).copied();
    Process { pid, rank: identity.rank, job: identity.job, launcher, ancestors, program: program(pid), counters }
}

/// What the kernel calls a process.
fn program(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).map_or_else(|_| "?".into(), |name| clean(name.trim_end()))
}

fn ancestors(pid: u32) -> Vec<u32> {
    let parent = |pid: &u32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The program's name stands in brackets, and may hold brackets too.
        text.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok().filter(|pid| *pid > 0)
    };
    std::iter::successors(parent(&pid), parent).take(MOST_ANCESTORS).collect()
}

impl Process {
    /// The job's name, or its launcher's number; empty for a program that nobody launched.
    fn name(&self) -> String {
        let launcher = || self.launcher.map(|pid| pid.to_string());
        self.job.as_deref().map(clean).or_else(launcher).unwrap_or_default()
    }

    fn is_of(&self, job: &str) -> bool {
        self.job.as_deref() == Some(job)
            || job.parse().is_ok_and(|pid| self.pid == pid || self.ancestors.contains(&pid))
    }

    fn endpoints(&self) -> impl Iterator<Item = &Value> {
        self.counters.iter().filter_map(|counters| counters["endpoints"].as_array()).flatten()
    }

    fn sum(&self, names: &[&str]) -> u64 {
        let of = |endpoint: &Value| {
            names.iter().filter_map(|name| endpoint["engine"][*name].as_u64()).fold(0, u64::saturating_add)
        };
        self.endpoints().map(of).fold(0, u64::saturating_add)
    }

    /// What carries its messages to others.
    fn carriers(&self) -> String {
        let peers = self.endpoints().flat_map(|e| e["peers"].as_array().into_iter().flatten());
        let words: BTreeSet<String> =
            peers.filter_map(|peer| peer["carrier"].as_str()).filter(|word| *word != "self").map(clean).collect();
        words.into_iter().collect::<Vec<_>>().join(" ")
    }

    /// A line of the list.
    fn row(&self) -> [String; 7] {
        let messages = self.sum(&["eager_sends", "rendezvous_sends", "writes", "reads", "atomics"]);
        let answered = |text: String| if self.counters.is_ok() { text } else { "-".to_owned() };
        let dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
        [
            self.pid.to_string(),
            dash(self.rank.map(|rank| rank.to_string()).unwrap_or_default()),
            dash(self.name()),
            answered(messages.to_string()),
            answered(format!("{:.1}", self.sum(&["payload_bytes"]) as f64 / 1e6)),
            self.counters.as_ref().map_or_else(|why| why.in_short(), |_| dash(self.carriers())),
            self.program.clone(),
        ]
    }

    fn json(&self) -> Value {
        let job = self.name();
        json!({"pid": self.pid, "rank": self.rank, "job": (!job.is_empty()).then_some(job), "program": self.program, "counters": self.counters.as_ref().ok()})
    }
}

/// The list for people.
pub fn table(all: &[Process]) -> String {
    if all.is_empty() {
        return "no process of yours has a Weir endpoint open in this network namespace\n".into();
    }
    let head = ["PID", "RANK", "JOB", "MESSAGES", "SENT MB", "CARRIERS", "PROGRAM"].map(str::to_owned);
    let rows: Vec<[String; 7]> = std::iter::once(head).chain(all.iter().map(Process::row)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..7).map(width).collect();
    let mut out = String::new();
    for row in &rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            // Words begin at the left, numbers end at the right.
            let _ = match column {
                2 | 5 | 6 => write!(line, "{cell:width$}  "),
                _ => write!(line, "{cell:>width$}  "),
            };
        }
        out += line.trim_end();
        out.push('\n');
    }
    out
}

/// The list as a document.
pub fn document(all: &[Process]) -> Value {
    json!({"processes": all.iter().map(Process::json).collect::<Vec<_>>()})
}

/// All counters of a job's ranks, each under its head.
///
/// # Errors
/// If no process of that job uses Weir here.
pub fn of_job(job: &str) -> Result<Vec<Process>> {
    let all: Vec<Process> = processes().into_iter().filter(|process| process.is_of(job)).collect();
    if all.is_empty() {
        bail!("no process of job {} has a Weir endpoint open here; weir stat lists those that have", clean(job));
    }
    Ok(all)
}

/// The later processes, each with what was counted between: one that is new, or that did not
/// answer, as it is.
pub fn between(before: &[Process], after: &[Process]) -> Vec<Process> {
    let one = |process: &Process| {
        let earlier = before.iter().find(|earlier| earlier.pid == process.pid);
        let both = earlier.and_then(|earlier| earlier.counters.as_ref().ok().zip(process.counters.as_ref().ok()));
        let change = both.map(|(earlier, later)| Ok(change::between(earlier, later)));
        Process { counters: change.unwrap_or_else(|| process.counters.clone()), ..process.clone() }
    };
    after.iter().map(one).collect()
}

/// Counters of ranks one behind the other, for people.
pub fn render(all: &[Process], zeros: bool) -> String {
    let one = |process: &Process| {
        let rank = process.rank.map_or_else(|| "process".to_owned(), |rank| format!("rank {rank}, process"));
        let counters = process
            .counters
            .as_ref()
            .map_or_else(|why| format!("{}\n", why.in_short()), |all| stat::render(all, zeros));
        format!("--- {rank} {}, {}\n{counters}", process.pid, process.program)
    };
    all.iter().map(one).collect()
}

/// That a process without an endpoint has started some that have one.
pub fn hint(pid: u32) -> Option<String> {
    let started = processes().iter().filter(|process| process.ancestors.contains(&pid)).count();
    started_some(started, pid)
}

fn started_some(started: usize, pid: u32) -> Option<String> {
    let words = if started == 1 { "one process that has one" } else { "processes that have one" };
    let count = if started == 1 { String::new() } else { format!("{started} ") };
    (started > 0).then(|| format!("it started {count}{words}: weir stat --job {pid}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, rank: Option<u32>, counters: Value) -> Process {
        Process {
            pid,
            rank,
            job: None,
            ancestors: vec![40, 30, 1],
            launcher: Some(30),
            program: "solver".into(),
            counters: Ok(counters),
        }
    }

    #[test]
    fn a_row_says_who_it_is_and_what_carries_its_messages() {
        let counters = json!({"endpoints": [
            {"engine": {"eager_sends": 3, "writes": 2, "payload_bytes": 2_500_000}, "peers": [{"carrier": "self"}, {"carrier": "udp"}, {"carrier": "shm"}]},
            {"engine": {"eager_sends": 1}, "peers": [{"carrier": "udp"}]},
        ]});
        let all = [process(50, Some(1), counters), process(7, None, json!([1]))];
        let text = table(&all);
        let words: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(words[1], ["50", "1", "30", "6", "2.5", "shm", "udp", "solver"], "{text}");
        assert_eq!(words[2], ["7", "-", "30", "0", "0.0", "-", "solver"], "{text}");
        assert!(table(&[]).starts_with("no process"));
    }

    #[test]
    fn who_does_not_answer_is_shown_all_the_same() {
        let silent = Process { counters: Err(stat::Silent::Stopped), ..process(51, Some(2), json!({})) };
        let all = [process(50, Some(1), json!({"endpoints": []})), silent];
        let text = table(&all);
        let row = text.lines().nth(2).expect("a row");
        assert!(row.starts_with(" 51     2  30") && row.contains("  stopped  ") && row.contains("  -"), "{text}");
        assert_eq!(render(&all[1..], false), "--- rank 2, process 51, solver\nstopped\n");
        assert!(document(&all)["processes"][1]["counters"].is_null());
    }

    #[test]
    fn of_each_process_that_answers_is_told_what_was_counted_between() {
        let counted = |n: u64| json!({"endpoints": [{"endpoint": "ab", "engine": {"polls": n}}]});
        let silent = Process { counters: Err(stat::Silent::Stopped), ..process(52, Some(2), json!({})) };
        let before = [process(50, Some(0), counted(3)), silent.clone()];
        let after = [process(50, Some(0), counted(10)), process(51, Some(1), counted(4)), silent];
        let told: Vec<Value> = between(&before, &after).iter().map(|one| one.json()["counters"].clone()).collect();
        assert_eq!(told, [counted(7), counted(4), Value::Null]);
    }

    #[test]
    fn a_job_is_named_by_its_launchers_name_or_by_any_process_above() {
        let named = Process { job: Some("prterun-1@1".into()), ..process(50, Some(1), json!({})) };
        for job in ["prterun-1@1", "50", "40", "30"] {
            assert!(named.is_of(job), "{job}");
        }
        for job in ["2", "prterun-1", ""] {
            assert!(!named.is_of(job), "{job}");
        }
    }

    #[test]
    fn one_process_that_was_started_is_told_as_one() {
        assert_eq!(started_some(0, 7), None);
        assert_eq!(started_some(1, 7).unwrap(), "it started one process that has one: weir stat --job 7");
        assert_eq!(started_some(2, 7).unwrap(), "it started 2 processes that have one: weir stat --job 7");
    }

    #[test]
    fn this_process_has_its_parent_above() {
        let above = ancestors(std::process::id());
        assert_eq!(above.first(), Some(&std::os::unix::process::parent_id()));
    }
}

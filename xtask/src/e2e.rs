//! End-to-end tests: real MPI programs on real MPIs, across emulated hosts.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::Value;

use crate::lab::{DATA_IFACE, Lab, SECOND_IFACE, Wire};
use crate::launch::{Job, crash_in, result_of};
use crate::mpi::{self, Mpi};
use crate::paths::Paths;
use crate::process::Outcome;
use crate::stack::{Carrier, Stack};

/// A case that runs longer is ended. Alone on a machine each takes seconds; the rest is for
/// machines that do much else.
const LIMIT: Duration = Duration::from_secs(240);

/// One program on one network.
pub struct Case {
    /// Its name.
    pub name: &'static str,
    /// Ranks, one on each host.
    pub ranks: usize,
    /// The program in `tests/mpi`; or words for Python.
    pub program: &'static str,
    /// Its arguments.
    pub args: &'static str,
    /// Loss each way.
    pub loss: f64,
    /// Left out of the quick run.
    pub slow: bool,
    /// Settings of all ranks.
    pub env: &'static [(&'static str, &'static str)],
    /// What the counters of the ranks, one document each, have to show.
    pub counted: fn(&[Value]) -> Result<(), String>,
}

const fn case(
    name: &'static str,
    ranks: usize,
    program: &'static str,
    args: &'static str,
    loss: f64,
    slow: bool,
) -> Case {
    Case { name, ranks, program, args, loss, slow, env: &[], counted: |_| Ok(()) }
}

/// What is run on every stack under test.
pub const CASES: [Case; 27] = [
    case("pingpong-8B", 2, "pingpong", "--size 8 --reps 2000 --seconds 5", 0.0, false),
    case("pingpong-1MiB", 2, "pingpong", "--size 1048576 --reps 200 --warmup 10 --seconds 5", 0.0, false),
    case("stream-64KiB", 2, "stream", "--size 65536 --windows 20 --seconds 5", 0.0, false),
    case("order", 2, "order", "--rounds 2", 0.0, false),
    case("order-4-ranks", 4, "order", "--rounds 1 --messages 100", 0.0, false),
    case("rma", 2, "rma", "--reps 3", 0.0, false),
    case("onesided-fetch", 2, "onesided", "--op 0 --reps 500 --seconds 20", 0.0, false),
    case("onesided-swap-lossy", 2, "onesided", "--op 3 --reps 500 --seconds 20", 0.02, false),
    case("onesided-put-64KiB", 2, "onesided", "--op 5 --size 65536 --reps 100 --seconds 20", 0.0, true),
    case("farm", 3, "farm", "--tasks 500 --seconds 60", 0.0, false),
    case("order-lossy", 2, "order", "--rounds 2 --seed 9", 0.02, false),
    case("farm-lossy", 3, "farm", "--tasks 500 --seconds 60", 0.02, false),
    case("rma-lossy", 2, "rma", "--reps 2 --count 2000", 0.02, true),
    case("rma-lossy-large", 3, "rma", "--reps 6 --count 6000", 0.02, true),
    case("pingpong-lossy", 2, "pingpong", "--size 300000 --reps 500 --warmup 10 --seconds 10", 0.02, true),
    case("overlap", 2, "overlap", "--reps 20 --seconds 5", 0.0, true),
    Case {
        env: &[("WEIR_LEVEL", "auth")],
        counted: |r| level_is(r, 1),
        ..case("order-auth", 2, "order", "--rounds 1", 0.0, false)
    },
    Case {
        env: &[("WEIR_LEVEL", "encrypt")],
        counted: |r| level_is(r, 2),
        ..case("order-encrypt-lossy", 2, "order", "--rounds 1", 0.01, true)
    },
    case("threads", 2, "threads", "--threads 4 --messages 150", 0.0, false),
    Case {
        // Hardly anything may be sent ahead: threads wait for each other's receives.
        env: &[("WEIR_CREDIT_BYTES", "4096"), ("WEIR_CREDIT_MSGS", "16"), ("WEIR_BULK", "always")],
        ..case("threads-narrow-lossy", 2, "threads", "--threads 6 --messages 60", 0.01, true)
    },
    // Neighbours send each other messages of one tag, to 300 KB, at the same time.
    case("ring", 4, "ring", "--rounds 160 --both 1", 0.0, true),
    // More than the memory for copies holds, before anybody receives.
    case("isend-flood", 2, "isend_flood", "--size 8192 --count 20000", 0.0, false),
    Case {
        // More than the receiver's credit and the sender's queue hold.
        env: &[("WEIR_UNEXPECTED_BYTES", "1048576")],
        ..case("isend-flood-queue", 2, "isend_flood", "--size 8 --count 40000", 0.0, false)
    },
    case("isend-flood-8B", 2, "isend_flood", "--size 8 --count 100000", 0.0, true),
    case("isend-flood-64KiB", 2, "isend_flood", "--size 65536 --count 2000", 0.0, true),
    // Three ranks send to one that sleeps for a second before it looks.
    case("ring-late", 4, "ring", "--rounds 40 --late-ms 1000", 0.0, false),
    // One process comes five seconds after the others, before it has called MPI at all.
    case("ring-late-start", 3, "ring", "--rounds 40 --late-start-ms 5000 --both 1", 0.0, true),
];

/// The ranks agreed on this level. (Which of them tells it depends on who ends first: the other's
/// peer is forgotten then.)
fn level_is(ranks: &[Value], level: u64) -> Result<(), String> {
    let peers = ranks.iter().filter_map(|rank| rank.get("peers")?.as_array()).flatten();
    let levels: Vec<u64> = peers.filter_map(|peer| peer.get("level")?.as_u64()).collect();
    // A rank is a peer of its own, with which nothing is agreed.
    let right = levels.contains(&level) && levels.iter().all(|of_one| [0, level].contains(of_one));
    if right { Ok(()) } else { Err(format!("levels of the ranks' peers: {levels:?}, not {level}")) }
}

/// How a case ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// As it should.
    Passed,
    /// Otherwise; why.
    Failed(String),
    /// Not run, since something is not there; what.
    Skipped(String),
}

impl From<Result<(), String>> for Ended {
    fn from(result: Result<(), String>) -> Self {
        result.map_or_else(Self::Failed, |()| Self::Passed)
    }
}

/// Runs the cases whose names contain `only` on Weir under both MPIs; `report` hears of each as it
/// ends. None is begun after `deadline`: those left have failed.
///
/// # Errors
/// If a network cannot be made.
pub fn run(
    paths: &Paths,
    quick: bool,
    only: &str,
    deadline: Instant,
    mut report: impl FnMut(&str, &Ended),
) -> Result<()> {
    let stacks: Vec<Stack> = Stack::all(&[]).into_iter().filter(|stack| stack.carrier == Carrier::Weir).collect();
    for case in CASES.iter().filter(|case| !(quick && case.slow) && case.name.contains(only)) {
        let lab = Lab::start(case.ranks, &Wire::plain(case.loss))?;
        for stack in &stacks {
            let late = Instant::now() >= deadline;
            let ended = if late { Err("no time left".to_owned()) } else { one(paths, &lab, stack, case) };
            report(&format!("{} on {}", case.name, stack.name), &ended.into());
        }
    }
    on_intel(paths, only, &mut report)?;
    for stack in stacks.iter().filter(|_| !quick && CUT_LINKS.contains(only)) {
        let late = Instant::now() >= deadline;
        let ended = if late { Err("no time left".to_owned()) } else { across_cut_links(paths, stack) };
        report(&format!("{CUT_LINKS} on {}", stack.name), &ended.into());
    }
    Ok(())
}

/// The cases that Intel MPI is tried with: short and long messages in order, windows, a farm that
/// loses packets.
const ON_INTEL: [&str; 4] = ["pingpong-8B", "order-4-ranks", "rma", "farm-lossy"];

/// Runs a few of the cases on Weir under Intel MPI; it is fetched here, and where it cannot be had
/// they count as skipped.
///
/// # Errors
/// If a network cannot be made.
pub fn on_intel(paths: &Paths, only: &str, mut report: impl FnMut(&str, &Ended)) -> Result<()> {
    let title = |case: &Case| format!("{} on weir-impi", case.name);
    let cases: Vec<&Case> =
        CASES.iter().filter(|case| ON_INTEL.contains(&case.name) && title(case).contains(only)).collect();
    let Some(stack) = Stack::of_intel(&[]).into_iter().find(Stack::is_ours).filter(|_| !cases.is_empty()) else {
        return Ok(());
    };
    let programs: Vec<&str> = cases.iter().map(|case| case.program).collect();
    let there = mpi::set_up_one(paths, Mpi::Intel).and_then(|()| mpi::compile_these(paths, Mpi::Intel, &programs));
    for case in cases {
        let ended = match &there {
            Err(why) => Ended::Skipped(format!("{why:#}")),
            Ok(()) => one(paths, &Lab::start(case.ranks, &Wire::plain(case.loss))?, &stack, case).into(),
        };
        report(&title(case), &ended);
    }
    Ok(())
}

/// Runs what needs no namespaces: ranks on the loopback interface, with losses made inside Weir, as
/// the demo does where namespaces are refused.
///
/// # Errors
/// If there is no place for the counters.
pub fn run_on_loopback(paths: &Paths, mut report: impl FnMut(&str, &Ended)) -> Result<()> {
    let program = "farm";
    let args: Vec<String> = "--tasks 300 --seconds 60".split(' ').map(str::to_owned).collect();
    for stack in Stack::all(&[]).into_iter().filter(|stack| stack.carrier == Carrier::Weir) {
        let stats = tempfile::tempdir()?;
        let counters = stats.path().join("%p").display().to_string();
        let env = [("WEIR_FAULTS".to_owned(), "loss=2%".to_owned()), ("WEIR_STATS".to_owned(), counters)];
        let program = mpi::program(paths, stack.mpi, program);
        let job = Job { stack: &stack, ranks: 3, program: &program, args: &args, limit: LIMIT, env: &env };
        let lost = || sum_of(&counters_in(stats.path()), "/protocol/packets_lost");
        let repaired = || if lost() > 0 { Ok(()) } else { Err("Weir counted no losses".into()) };
        let ended = judged(job.run(paths, None)).and_then(|_| repaired());
        report(&format!("farm on loopback with losses inside on {}", stack.name), &ended.into());
    }
    Ok(())
}

/// What the ranks that ended left in this folder, one document each.
pub(crate) fn counters_in(folder: &Path) -> Vec<Value> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let texts = files.filter_map(|file| fs::read_to_string(file.path()).ok());
    texts.filter_map(|text| serde_json::from_str(&text).ok()).collect()
}

/// One counter of all ranks together.
pub(crate) fn sum_of(ranks: &[Value], pointer: &str) -> u64 {
    ranks.iter().filter_map(|rank| rank.pointer(pointer)?.as_u64()).sum()
}

/// Every rank has sent packets by Weir. There is a document of each endpoint: Open MPI has one more
/// for windows in each process. A job that was begun twice left more.
pub(crate) fn carried(documents: &[Value], ranks: usize) -> Result<(), String> {
    let mut sent: BTreeMap<u64, u64> = BTreeMap::new();
    for d in documents {
        let of_one = d.pointer("/protocol/packets_sent").and_then(Value::as_u64).unwrap_or(0);
        *sent.entry(d.get("pid").and_then(Value::as_u64).unwrap_or(0)).or_default() += of_one;
    }
    let right = sent.len() >= ranks && sent.values().all(|packets| *packets > 0);
    if right { Ok(()) } else { Err(format!("Weir did not carry it: packets sent by {ranks} ranks: {sent:?}")) }
}

/// The windows of Open MPI went by Weir: without atomic operations of its provider they would by
/// Open MPI's own TCP, and nobody would notice.
fn windows_carried(documents: &[Value]) -> Result<(), String> {
    let [asked, executed] = ["atomics", "atomics_executed"].map(|name| sum_of(documents, &format!("/engine/{name}")));
    if asked > 0 && executed > 0 {
        Ok(())
    } else {
        Err(format!("{asked} atomic operations were asked for, {executed} executed"))
    }
}

/// What a job's program reported, if the job ended well and did its work.
pub(crate) fn judged(run: Result<Outcome>) -> Result<Value, String> {
    let outcome = run.map_err(words)?;
    if !outcome.ok() {
        return Err(outcome.cause());
    }
    if let Some(word) = crash_in(&outcome) {
        return Err(format!("it ended well, but something crashed: {word}"));
    }
    match result_of(&outcome) {
        None => Err("the program reported nothing".into()),
        Some(value) if value.get("complete") == Some(&Value::Bool(false)) => Err("not complete in its time".into()),
        Some(value) => Ok(value),
    }
}

fn words(error: anyhow::Error) -> String {
    format!("{error:#}")
}

pub(crate) fn no_folder(error: std::io::Error) -> String {
    format!("no folder: {error}")
}

fn one(paths: &Paths, lab: &Lab, stack: &Stack, case: &Case) -> Result<(), String> {
    let program = mpi::program(paths, stack.mpi, case.program);
    let args: Vec<String> = case.args.split_whitespace().map(str::to_owned).collect();
    let folder = tempfile::tempdir().map_err(no_folder)?;
    let mut env: Vec<_> = case.env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    env.push(("WEIR_STATS".into(), folder.path().join("%p").display().to_string()));
    let job = Job { stack, ranks: case.ranks, program: &program, args: &args, limit: LIMIT, env: &env };
    let before = lab.counts().map_err(words)?;
    judged(job.run(paths, Some(lab)))?;
    let lost = lab.counts().map_err(words)?.since(before).lost;
    let documents = counters_in(folder.path());
    carried(&documents, case.ranks)?;
    if case.loss > 0.0 && lost == 0 {
        return Err("the network lost nothing, although it was to".into());
    }
    if stack.mpi == Mpi::Openmpi && ["rma", "onesided"].contains(&case.program) {
        windows_carried(&documents)?;
    }
    (case.counted)(&documents)
}

/// What [`across_cut_links`] is called.
const CUT_LINKS: &str = "ring-across-cut-links";

/// Longest time that the ring may stand still when one of two networks is cut. A ring that waits
/// for the link to heal stands for [`CUT`]; moving on takes a tenth of that, on a machine with
/// nothing else to do.
const LONGEST_MS: f64 = 1000.0;

/// A ring between two hosts that two networks join; one after the other is cut, and healed, while
/// it goes on.
fn across_cut_links(paths: &Paths, stack: &Stack) -> Result<(), String> {
    let lab = Lab::start(2, &Wire { two_networks: true, ..Wire::default() }).map_err(words)?;
    let folder = tempfile::tempdir().map_err(no_folder)?;
    let stats = tempfile::tempdir().map_err(no_folder)?;
    let (begun, end) = (folder.path().join("begun"), folder.path().join("end"));
    let text = |path: &Path| path.display().to_string();
    let env = [
        ("TEST_BEGUN".to_owned(), text(&begun)),
        ("TEST_END".to_owned(), text(&end)),
        ("WEIR_STATS".to_owned(), text(&stats.path().join("%p"))),
    ];
    let args = ["--seconds", "180"].map(str::to_owned);
    let program = mpi::program(paths, stack.mpi, "ring");
    let job = Job { stack, ranks: 2, program: &program, args: &args, limit: LIMIT, env: &env };
    let run = job.run_beside(paths, &lab, &begun, || {
        let cuts = cut_one_after_the_other(&lab);
        // Also after an error: nothing is to wait for more.
        fs::write(&end, "").map_err(anyhow::Error::from).and(cuts)
    });
    let said = judged(run)?;
    let documents = counters_in(stats.path());
    carried(&documents, 2)?;
    // Whichever network the data took first, it was cut once.
    let failovers = sum_of(&documents, "/protocol/failovers");
    let dropped = lab.counts().map_err(words)?.cut;
    if failovers == 0 || dropped == 0 {
        return Err(format!("{failovers} failovers, {dropped} packets met a cut"));
    }
    moved_on(&said)
}

/// The ring told of no wait that is too long.
fn moved_on(said: &Value) -> Result<(), String> {
    match said.get("longest_ms").and_then(Value::as_f64) {
        Some(longest_ms) if longest_ms < LONGEST_MS => Ok(()),
        longest_ms => Err(format!("it stood still for {longest_ms:?} ms, not below {LONGEST_MS}")),
    }
}

/// How long a link stays cut, and then whole.
const CUT: Duration = Duration::from_secs(2);

/// Cuts and heals each network, in the middle of the program's work.
fn cut_one_after_the_other(lab: &Lab) -> Result<()> {
    // Time for the second way to be found good; were it not, the ring would wait for the first to
    // heal.
    thread::sleep(Duration::from_secs(1));
    for network in [DATA_IFACE, SECOND_IFACE] {
        lab.cut(network)?;
        thread::sleep(CUT);
        lab.heal(network)?;
        thread::sleep(CUT);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_job_that_weir_did_not_carry_is_told_from_one_that_it_did() {
        let rank = |pid: u64, packets: u64| json!({"pid": pid, "protocol": {"packets_sent": packets}});
        assert_eq!(carried(&[rank(7, 3), rank(8, 1)], 2), Ok(()));
        // Open MPI's second endpoints, for windows that there are none of.
        assert_eq!(carried(&[rank(7, 3), rank(7, 0), rank(8, 0), rank(8, 1)], 2), Ok(()));
        // No endpoint of Weir's, in one rank or in any; or nothing went by it.
        for documents in
            [&[][..], &[rank(7, 3)], &[rank(7, 3), rank(7, 3)], &[rank(7, 3), rank(8, 0)], &[rank(7, 3), json!({})]]
        {
            let cause = carried(documents, 2).unwrap_err();
            assert!(cause.starts_with("Weir did not carry it"), "{cause}");
        }
    }

    #[test]
    fn a_ring_that_waits_for_a_link_to_heal_has_not_moved_on() {
        assert_eq!(moved_on(&json!({"longest_ms": 180.5})), Ok(()));
        let cut_ms = CUT.as_secs_f64() * 1e3;
        for said in [json!({"longest_ms": cut_ms}), json!({"longest_ms": 1000.0}), json!({})] {
            assert!(moved_on(&said).is_err(), "{said}");
        }
    }

    #[test]
    fn windows_that_open_mpi_carries_by_itself_are_noticed() {
        let of = |asked: u64, executed: u64| json!({"engine": {"atomics": asked, "atomics_executed": executed}});
        assert_eq!(windows_carried(&[of(5, 0), of(0, 5)]), Ok(()));
        assert!(windows_carried(&[of(0, 0), json!({})]).is_err());
    }
}

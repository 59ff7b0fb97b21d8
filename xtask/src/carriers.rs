//! MPI programs on each carrier: ranks of one host over shared memory, packets, bulk TCP
//! connections, and SCTP; and ranks of which some share a host. The counters have to show that what
//! was asked for is what carried.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::Value;

use crate::e2e::{Ended, counters_in, judged, no_folder, sum_of};
use crate::lab::{Lab, Wire};
use crate::launch::Job;
use crate::mpi::{self, Mpi};
use crate::paths::Paths;
use crate::stack::{self, Stack};

/// A case that runs longer is ended. Each takes seconds; the rest is for machines that do much
/// else.
const LIMIT: Duration = Duration::from_secs(120);

/// What is to carry the messages between different ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carried {
    /// Shared memory alone, chosen by default: no packet.
    Shm,
    /// Packets alone.
    Udp,
    /// Packets, and TCP connections for long payload.
    Tcp,
    /// SCTP, after the first messages.
    Sctp,
    /// Shared memory with this many ranks of the same host, packets with the others; chosen by
    /// default.
    Mixed(usize),
}

impl Carried {
    const ON_ONE_HOST: [Self; 4] = [Self::Shm, Self::Udp, Self::Tcp, Self::Sctp];

    /// The setting that asks for it; none: the default.
    fn setting(self) -> Option<&'static str> {
        match self {
            Self::Shm | Self::Mixed(_) => None,
            Self::Udp => Some("udp"),
            Self::Tcp => Some("tcp"),
            Self::Sctp => Some("sctp"),
        }
    }

    /// What it lacks on this machine.
    fn absent(self) -> Option<String> {
        (self == Self::Sctp).then(weir_sctp::available)?.err().map(|why| why.to_string())
    }

    fn word(self) -> &'static str {
        match self {
            Self::Shm => "shared memory",
            Self::Udp => "packets",
            Self::Tcp => "bulk TCP",
            Self::Sctp => "SCTP",
            Self::Mixed(_) => "shared memory and packets",
        }
    }
}

/// One program.
struct Case {
    name: &'static str,
    ranks: usize,
    /// In `tests/mpi`.
    program: &'static str,
    args: &'static str,
    /// Its messages are long enough for TCP connections.
    long: bool,
}

const fn case(name: &'static str, ranks: usize, program: &'static str, args: &'static str, long: bool) -> Case {
    Case { name, ranks, program, args, long }
}

/// On one host, by each carrier.
const ON_ONE_HOST: [Case; 8] = [
    case("order", 4, "order", "--rounds 1 --messages 100", true),
    case("ring", 4, "ring", "--rounds 160", true),
    case("threads", 2, "threads", "--threads 4 --messages 60", true),
    case("rma", 2, "rma", "--reps 3 --count 10000", true),
    case("isend-flood", 2, "isend_flood", "--size 8192 --count 4000", false),
    case("pause", 2, "pause", "--pause-us 2000 --reps 60", false),
    case("crowd", 4, "crowd", "--seconds 0.6", false),
    case("crowd-threads", 4, "crowd", "--threads 2 --seconds 0.6", false),
];

/// On two hosts with two ranks each.
const MIXED: [Case; 4] = [
    case("order", 4, "order", "--rounds 1 --messages 100", true),
    case("ring", 4, "ring", "--rounds 160", true),
    case("rma", 4, "rma", "--reps 2 --count 3000", true),
    case("crowd", 4, "crowd", "--seconds 0.6", false),
];

/// Loss between the two hosts.
const LOSSES: [f64; 2] = [0.0, 0.01];

/// The ranks on each of them.
const PER_HOST: usize = 2;

/// What a case on a stack is called: what Weir does not carry is not to be taken for its work
/// (docs/conformance.md).
fn title(case: &Case, stack: &Stack, by: Carried, loss: f64) -> String {
    let place = if matches!(by, Carried::Mixed(_)) { "two hosts" } else { "one host" };
    let loss = if loss > 0.0 { format!(", {} % loss between them", loss * 100.0) } else { String::new() };
    let own = if case.program == "rma" && stack.mpi == Mpi::Openmpi {
        ", one-sided operations by Open MPI's own"
    } else {
        ""
    };
    format!("{} with {} ranks on {place} by {}{loss} on {}{own}", case.name, case.ranks, by.word(), stack.name)
}

fn stacks() -> Vec<Stack> {
    Stack::all(&[]).into_iter().filter(|stack| stack.carrier == stack::Carrier::Weir).collect()
}

/// Runs the cases of one host whose titles contain `only` on Weir under both MPIs; needs no
/// namespaces. Quickly: over shared memory only. None is begun after `deadline`: those left have
/// failed.
pub fn on_one_host(paths: &Paths, quick: bool, only: &str, deadline: Instant, mut report: impl FnMut(&str, &Ended)) {
    let carriers = if quick { &Carried::ON_ONE_HOST[..1] } else { &Carried::ON_ONE_HOST[..] };
    for case in &ON_ONE_HOST {
        for by in carriers {
            for stack in &stacks() {
                let title = title(case, stack, *by, 0.0);
                if title.contains(only) {
                    let ended = match by.absent() {
                        Some(why) => Ended::Skipped(why),
                        None => bounded(deadline, || one(paths, None, stack, case, *by)),
                    };
                    report(&title, &ended);
                }
            }
        }
    }
}

/// The same of two hosts.
///
/// # Errors
/// If a network cannot be made.
pub fn mixed(paths: &Paths, only: &str, deadline: Instant, mut report: impl FnMut(&str, &Ended)) -> Result<()> {
    let by = Carried::Mixed(PER_HOST);
    for loss in LOSSES {
        let all: Vec<_> = MIXED.iter().flat_map(|case| stacks().into_iter().map(move |stack| (case, stack))).collect();
        let wanted: Vec<_> = all.iter().filter(|(case, stack)| title(case, stack, by, loss).contains(only)).collect();
        if wanted.is_empty() {
            continue;
        }
        let lab = Lab::start(2, &Wire::plain(loss))?;
        for (case, stack) in wanted {
            report(&title(case, stack, by, loss), &bounded(deadline, || one(paths, Some(&lab), stack, case, by)));
        }
    }
    Ok(())
}

/// What a rank of Weir's may have resident beyond one of libfabric's `tcp`, KiB.
const MORE_KIB: i64 = 16 << 10;

/// The memory of ranks of one host that exchange much, beside that of the same ranks over
/// libfabric's `tcp`; under Open MPI, which here does not start over that, beside what they had at
/// their start.
pub fn memory(paths: &Paths, only: &str, mut report: impl FnMut(&str, &Ended)) {
    let all = Stack::all(&[]);
    let rival = |mpi| all.iter().find(|stack| mpi == Mpi::Mpich && stack.name == "mpich-tcp");
    for stack in &stacks() {
        let title = format!("resident memory of 3 ranks on one host on {}", stack.name);
        if title.contains(only) {
            report(&title, &compared(paths, stack, rival(stack.mpi)).into());
        }
    }
}

fn compared(paths: &Paths, stack: &Stack, rival: Option<&Stack>) -> Result<(), String> {
    let (start_kib, after_kib) = resident(paths, stack)?;
    let other_kib = rival.map_or(Ok(start_kib), |rival| resident(paths, rival).map(|(_, after_kib)| after_kib))?;
    if after_kib <= other_kib + MORE_KIB {
        return Ok(());
    }
    Err(format!("{start_kib} KiB at the start and {after_kib} after, against {other_kib}"))
}

/// What the largest rank has resident when it has said hello to each other one, and when it has
/// exchanged 128 MiB with them.
fn resident(paths: &Paths, stack: &Stack) -> Result<(i64, i64), String> {
    // Open MPI's threads that send first at once stall in its own PMIx (docs/conformance.md).
    let threads = if stack.mpi == Mpi::Mpich { "4" } else { "0" };
    let program = mpi::program(paths, stack.mpi, "resident");
    let args = ["--mib", "128", "--threads", threads].map(str::to_owned);
    let job = Job { stack, ranks: 3, program: &program, args: &args, limit: LIMIT, env: &[] };
    let said = judged(job.run(paths, None))?;
    let kib = |when: &str| said.pointer(&format!("/{when}/rss_kib")).and_then(Value::as_i64).ok_or("no such figure");
    Ok((kib("start")?, kib("after")?))
}

fn bounded(deadline: Instant, run: impl FnOnce() -> Result<(), String>) -> Ended {
    if Instant::now() >= deadline { Ended::Failed("no time left".to_owned()) } else { run().into() }
}

fn one(paths: &Paths, lab: Option<&Lab>, stack: &Stack, case: &Case, by: Carried) -> Result<(), String> {
    let program = mpi::program(paths, stack.mpi, case.program);
    let args: Vec<String> = case.args.split_whitespace().map(str::to_owned).collect();
    let folder = tempfile::tempdir().map_err(no_folder)?;
    let mut env = vec![("WEIR_STATS".to_owned(), folder.path().join("%p").display().to_string())];
    env.extend(by.setting().map(|carrier| ("WEIR_CARRIER".to_owned(), carrier.to_owned())));
    let job = Job { stack, ranks: case.ranks, program: &program, args: &args, limit: LIMIT, env: &env };
    judged(job.run(paths, lab)).map(drop)?;
    let documents = counters_in(folder.path());
    let processes = by_process(&documents);
    if processes.len() < case.ranks {
        return Err(format!("{} ranks left counters of {} processes", case.ranks, processes.len()));
    }
    processes.values().try_for_each(|of_one| carried(of_one, by))?;
    // Open MPI's windows of one host are memory that it shares itself.
    let long = case.long && !(case.program == "rma" && stack.mpi == Mpi::Openmpi);
    connections(sum_of(&documents, "/protocol/bulk_bytes_sent"), by, long)
}

/// The counters of each process: Open MPI has an endpoint for messages and one for windows, which
/// may carry nothing.
fn by_process(documents: &[Value]) -> BTreeMap<u64, Vec<&Value>> {
    let mut processes: BTreeMap<u64, Vec<&Value>> = BTreeMap::new();
    for document in documents {
        processes.entry(document.get("pid").and_then(Value::as_u64).unwrap_or(0)).or_default().push(document);
    }
    processes
}

/// Why an endpoint's counters do not show that SCTP carried what it sent, if they do not: it came
/// up, did not end, and gave nothing back to packets. (With a peer that is met at the end it may be
/// under way still.) An endpoint that knows nobody (Open MPI's second one) has nothing to show.
fn not_by_sctp(endpoint: &Value) -> Option<String> {
    let count = |pointer: &str| endpoint.pointer(pointer).and_then(Value::as_u64);
    let of = |name: &str| count(&format!("/sctp/{name}"));
    let (Some(opened), Some(up), Some(over), Some(sent), Some(given_back)) =
        (of("opened"), of("up"), of("over"), of("records_sent"), of("records_given_back"))
    else {
        return Some("no counters of SCTP".to_owned());
    };
    let is_used = opened > 0 || count("/protocol/packets_sent") > Some(0);
    let right = up > 0 && up <= opened && over == 0 && given_back == 0 && sent > 0;
    let told = format!("{up} of {opened} up, {over} over, {sent} records, {given_back} given back to packets");
    (is_used && !right).then_some(told)
}

/// One rank's counters, of all its endpoints, show that this carried its messages, and nothing
/// else.
fn carried(endpoints: &[&Value], by: Carried) -> Result<(), String> {
    let all = |pointer: &str| endpoints.iter().filter_map(|d| d.pointer(pointer)?.as_u64()).collect::<Vec<u64>>();
    let records = all("/shared_memory/tx_records").into_iter().reduce(|a, b| a + b);
    let shared_with = all("/shared_memory/peers_up").into_iter().max();
    let by_sctp: u64 = all("/sctp/records_sent").into_iter().sum();
    if by == Carried::Sctp
        && let Some(why) = endpoints.iter().find_map(|endpoint| not_by_sctp(endpoint))
    {
        return Err(format!("an endpoint was to send by SCTP: {why}"));
    }
    let packets = all("/protocol/packets_sent").into_iter().reduce(|a, b| a + b).ok_or("counters without packets")?;
    let right = match by {
        Carried::Shm => records > Some(0) && packets == 0,
        Carried::Udp | Carried::Tcp => records.is_none() && by_sctp == 0 && packets > 0,
        Carried::Sctp => records.is_none() && by_sctp > 0,
        Carried::Mixed(per_host) => records > Some(0) && shared_with < Some(per_host as u64) && packets > 0,
    };
    if right {
        return Ok(());
    }
    let told = format!("{records:?} records to {shared_with:?} peers, {packets} packets, {by_sctp} records by SCTP");
    Err(format!("it was to go by {}: {told}", by.word()))
}

/// The bytes of all ranks in bulk TCP connections fit what was asked for.
fn connections(bytes: u64, by: Carried, long: bool) -> Result<(), String> {
    match by {
        Carried::Shm | Carried::Udp | Carried::Sctp if bytes > 0 => {
            Err(format!("{bytes} bytes by TCP connections, which were not to be"))
        }
        Carried::Tcp if long && bytes == 0 => Err("no byte by TCP connections".into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn counters(records: u64, peers_up: u64, packets: u64) -> Value {
        json!({"shared_memory": {"tx_records": records, "peers_up": peers_up}, "protocol": {"packets_sent": packets}})
    }

    #[test]
    fn what_went_another_way_is_noticed() {
        let udp = json!({"shared_memory": null, "protocol": {"packets_sent": 9}});
        assert!(carried(&[&counters(5, 3, 0)], Carried::Shm).is_ok());
        assert!(carried(&[&counters(5, 3, 1)], Carried::Shm).is_err());
        // Open MPI's second endpoint, for windows that there are none of; and one that went another
        // way.
        assert!(carried(&[&counters(5, 3, 0), &counters(0, 0, 0)], Carried::Shm).is_ok());
        assert!(carried(&[&counters(5, 3, 0), &counters(0, 0, 2)], Carried::Shm).is_err());
        assert!(carried(&[&counters(0, 0, 0)], Carried::Shm).is_err() && carried(&[&udp], Carried::Shm).is_err());
        assert!(carried(&[&udp], Carried::Udp).is_ok() && carried(&[&udp], Carried::Tcp).is_ok());
        assert!(carried(&[&counters(5, 3, 9)], Carried::Udp).is_err());
        let by_sctp = sctp(&json!({}));
        assert!(carried(&[&by_sctp], Carried::Sctp).is_ok() && carried(&[&by_sctp], Carried::Udp).is_err());
        assert!(carried(&[&udp], Carried::Sctp).is_err());
        assert!(carried(&[&counters(5, 1, 9)], Carried::Mixed(2)).is_ok());
        assert!(carried(&[&counters(5, 3, 9)], Carried::Mixed(2)).is_err(), "shared with ranks of another host");
        assert!(
            carried(&[&counters(5, 1, 0)], Carried::Mixed(2)).is_err() && carried(&[&udp], Carried::Mixed(2)).is_err()
        );
        assert!(connections(0, Carried::Udp, true).is_ok() && connections(1, Carried::Udp, true).is_err());
        assert!(connections(0, Carried::Tcp, true).is_err() && connections(0, Carried::Tcp, false).is_ok());
    }

    /// Counters of an endpoint whose SCTP is as it should be, but for these.
    fn sctp(other: &Value) -> Value {
        let mut counters = json!({"opened": 3, "up": 3, "over": 0, "records_sent": 5, "records_given_back": 0});
        for (name, value) in other.as_object().into_iter().flatten() {
            counters[name] = value.clone();
        }
        json!({"shared_memory": null, "sctp": counters, "protocol": {"packets_sent": 9}})
    }

    #[test]
    fn sctp_has_to_carry_for_each_endpoint_in_use() {
        let good = sctp(&json!({}));
        let unused = json!({
            "shared_memory": null,
            "sctp": {"opened": 0, "up": 0, "over": 0, "records_sent": 0, "records_given_back": 0},
            "protocol": {"packets_sent": 0},
        });
        let told = |endpoints: &[&Value]| carried(endpoints, Carried::Sctp);
        assert!(told(&[&good]).is_ok() && told(&[&good, &good]).is_ok() && told(&[&good, &unused]).is_ok());
        assert!(told(&[&sctp(&json!({"opened": 4}))]).is_ok(), "with one it was under way");
        assert!(told(&[&unused]).is_err(), "nobody sent by SCTP");
        let wrong = [
            json!({"over": 1}),
            json!({"records_given_back": 1}),
            json!({"records_sent": 0}),
            json!({"opened": 2}),
            json!({"up": 0, "opened": 0}),
            json!({"over": null}),
        ];
        for other in wrong {
            let bad = sctp(&other);
            // What another endpoint of the process did is no excuse.
            for endpoints in [&[&bad][..], &[&good, &bad], &[&bad, &good]] {
                assert!(told(endpoints).is_err_and(|why| why.contains("SCTP")), "{other}");
            }
        }
        let mut without = good.clone();
        without["sctp"] = Value::Null;
        assert!(told(&[&good, &without]).is_err());
    }

    #[test]
    fn every_title_is_one_of_its_own() {
        let mut titles = std::collections::BTreeSet::new();
        let stacks = stacks();
        for stack in &stacks {
            for case in &ON_ONE_HOST {
                titles.extend(Carried::ON_ONE_HOST.map(|by| title(case, stack, by, 0.0)));
            }
            for case in &MIXED {
                titles.extend(LOSSES.map(|loss| title(case, stack, Carried::Mixed(PER_HOST), loss)));
            }
        }
        assert_eq!(
            titles.len(),
            stacks.len() * (ON_ONE_HOST.len() * Carried::ON_ONE_HOST.len() + MIXED.len() * LOSSES.len())
        );
    }
}

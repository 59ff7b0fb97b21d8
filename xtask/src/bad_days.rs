//! Bad input and bad days, as an MPI job sees them: each case must end in bounded time, either complete and right or with a line that names the cause.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::e2e::Ended;
use crate::lab::{Lab, Wire};
use crate::launch::{Job, result_of};
use crate::mpi;
use crate::paths::Paths;
use crate::process::Outcome;
use crate::stack::{Carrier, Stack};

/// A case that has not ended then has failed: well above every time that Weir is given here to find out.
const LIMIT: Duration = Duration::from_secs(120);
/// The same where a rank gives up at once: what takes longer is the launcher's own ([`ABORTED_TRIES`]).
const LIMIT_AT_ONCE: Duration = Duration::from_secs(20);
/// What MPICH says of a rank that gives up.
const ABORTED: &str = "Abort(";
/// MPICH's launcher now and then (one of seven such ends) does not end the others although a rank of theirs gave up in MPI_Init: they wait for it in PMI, asleep in a read. A job that is
/// to fail, and has said the cause, is tried so often until it ends as well. No other job: one that is to pass must not abort at all.
const ABORTED_TRIES: usize = 4;
/// What each rank's shell does first: its number in `R`, its process in `P`, and how to wait until the program has exchanged messages for a second: how long the launcher takes to come
/// so far depends on the machine.
const BEGIN: &str = "R=${PMI_RANK:-${OMPI_COMM_WORLD_RANK:-$PMIX_RANK}}; P=$$; \
    begun() { until [ -e \"$TEST_BEGUN\" ]; do sleep 0.05; done; sleep 1; }; ";

/// What must come of a case.
#[derive(Clone, Copy)]
enum Expect {
    /// The program's own checks pass, and somebody says this (if it is not empty).
    Passes(&'static str),
    /// The job fails, and somebody says this (if it is not empty).
    Fails(&'static str),
}

/// One thing that goes wrong.
struct Case {
    name: &'static str,
    /// Shell commands that each rank runs before the program takes its place.
    before: &'static str,
    program: &'static str,
    args: &'static str,
    expect: Expect,
    /// Both ranks on this machine's loop interface instead of two hosts.
    one_host: bool,
}

const SHORT: &str = "--size 8 --reps 1000 --seconds 5";
const LONG: &str = "--size 300000 --reps 1000000 --warmup 10 --seconds 6";

const fn case(name: &'static str, before: &'static str, args: &'static str, expect: Expect) -> Case {
    Case { name, before, program: "pingpong", args, expect, one_host: false }
}

const CASES: [Case; 13] = [
    case(
        "no usable key",
        "unset WEIR_KEY; export WEIR_KEY_FILE=/nonexistent/key; ",
        SHORT,
        Expect::Fails("/nonexistent/key"),
    ),
    case(
        "two keys in one job",
        "[ $R = 1 ] && export WEIR_KEY=0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef; ",
        SHORT,
        Expect::Fails("another job key"),
    ),
    case(
        "two protection levels in one job",
        // The higher of two sides' holds between them.
        "export WEIR_STATS=-; [ $R = 1 ] && export WEIR_LEVEL=encrypt; ",
        SHORT,
        Expect::Passes("\"level\": 2"),
    ),
    case(
        "no such protection level",
        "export WEIR_LEVEL=encrypted; ",
        SHORT,
        Expect::Fails("none of integrity, auth, encrypt"),
    ),
    Case { one_host: true, ..case("port taken", "export WEIR_PORT=47917; ", SHORT, Expect::Fails("47917")) },
    case(
        "address nobody answers at",
        // Each takes the other for a neighbour on its own loop interface.
        "export WEIR_IFACE=lo WEIR_CONNECT_TIMEOUT_MS=2000; ",
        SHORT,
        Expect::Fails("address unreachable"),
    ),
    case("misspelt setting", "export WEIR_EAGERBYTES=9; ", SHORT, Expect::Passes("WEIR_EAGER_BYTES?")),
    case(
        "full disk under trace, capture and counters",
        "export WEIR_STATS=/dev/full WEIR_CAPTURE=/dev/full WEIR_TRACE=2 WEIR_TRACE_FILE=/dev/full; ",
        SHORT,
        Expect::Passes("No space left"),
    ),
    case(
        "large packets vanish in the middle",
        // What is longer than the interface takes is dropped on arrival, and nobody is told.
        "export WEIR_STATS=-; [ $R = 1 ] && (begun; ip link set dev net1 mtu 1300) & ",
        "--size 300000 --reps 1000000 --warmup 10 --seconds 12",
        Expect::Passes("\"mtu_black_holes\": 1"),
    ),
    case(
        "a rank stopped for two seconds",
        "[ $R = 1 ] && (begun; kill -STOP $P; sleep 2; kill -CONT $P) & ",
        LONG,
        Expect::Passes(""),
    ),
    case(
        "a rank stopped for good",
        "export WEIR_PEER_TIMEOUT_MS=2000; [ $R = 1 ] && (begun; kill -STOP $P) & ",
        LONG,
        Expect::Fails("unreachable"),
    ),
    Case {
        program: "isend_flood",
        ..case(
            "more sent before it is received than memory is set aside for",
            "export WEIR_COPIED_BYTES=65536 WEIR_UNEXPECTED_BYTES=1048576 WEIR_SEND_TIMEOUT_MS=5000; ",
            "--size 8 --count 40000",
            Expect::Fails("that nobody receives: the program sends more"),
        )
    },
    case("a rank killed", "[ $R = 1 ] && (begun; kill -KILL $P) & ", LONG, Expect::Fails("")),
];

/// Runs the cases whose names contain `only` on Weir under both MPIs; `report` hears of each as it ends. None is begun after `deadline`: those left have failed.
///
/// # Errors
/// If a network cannot be made.
pub fn run(paths: &Paths, only: &str, deadline: Instant, mut report: impl FnMut(&str, &Ended)) -> Result<()> {
    let stacks: Vec<Stack> = Stack::all(&[]).into_iter().filter(|stack| stack.carrier == Carrier::Weir).collect();
    for case in CASES.iter().filter(|case| case.name.contains(only)) {
        for stack in &stacks {
            // A network of its own: what a case does to it stays there. Without offloads, or packets would be as large as messages.
            let wire = Wire { no_offload: true, ..Wire::plain(0.0) };
            let lab = if case.one_host { None } else { Some(Lab::start(2, &wire)?) };
            let name = format!("{} ({})", case.name, stack.name);
            let late = Instant::now() >= deadline;
            let ended = if late { Ended::Failed("no time left".into()) } else { one(paths, lab.as_ref(), stack, case) };
            report(&name, &ended);
        }
    }
    Ok(())
}

fn one(paths: &Paths, lab: Option<&Lab>, stack: &Stack, case: &Case) -> Ended {
    let folder = match tempfile::tempdir() {
        Ok(folder) => folder,
        Err(error) => return Ended::Failed(format!("no folder: {error}")),
    };
    let env = [("TEST_BEGUN".to_owned(), folder.path().join("begun").display().to_string())];
    let script = format!("{BEGIN}{}exec \"$0\" \"$@\"", case.before);
    let program = mpi::program(paths, stack.mpi, case.program);
    let mut args = vec!["-c".to_owned(), script, program.display().to_string()];
    args.extend(case.args.split_whitespace().map(str::to_owned));
    let limit = if case.one_host { LIMIT_AT_ONCE } else { LIMIT };
    let job = Job { stack, ranks: 2, program: Path::new("/bin/sh"), args: &args, limit, env: &env };
    let mut outcome = job.run(paths, lab);
    for _ in 1..ABORTED_TRIES {
        if !matches!(&outcome, Ok(o) if is_left_waiting(o, case.expect)) {
            break;
        }
        eprintln!("{}: the launcher does not end ranks that wait for one that gave up; trying again", stack.name);
        outcome = job.run(paths, lab);
    }
    match outcome {
        Err(error) => Ended::Failed(format!("{error:#}")),
        Ok(outcome) => judge(&outcome, case.expect),
    }
}

/// A rank said why it gave up, as it should, and only the launcher has not ended.
fn is_left_waiting(outcome: &Outcome, expect: Expect) -> bool {
    let Expect::Fails(cause) = expect else { return false };
    outcome.status.is_none() && outcome.stderr.contains(ABORTED) && outcome.stderr.contains(cause)
}

fn judge(outcome: &Outcome, expect: Expect) -> Ended {
    let said = |text: &str| outcome.stdout.contains(text) || outcome.stderr.contains(text);
    let complete =
        outcome.ok() && result_of(outcome).is_some_and(|v| v.get("complete") != Some(&serde_json::Value::Bool(false)));
    match expect {
        _ if outcome.status.is_none() => Ended::Failed(format!("hangs: {}", outcome.cause())),
        Expect::Passes(_) if !complete => Ended::Failed(outcome.cause()),
        Expect::Fails(_) if outcome.ok() => Ended::Failed("it passed".into()),
        Expect::Passes(text) | Expect::Fails(text) if !said(text) => {
            Ended::Failed(format!("nobody said {text:?}: {}", outcome.cause()))
        }
        Expect::Passes(_) | Expect::Fails(_) => Ended::Passed,
    }
}

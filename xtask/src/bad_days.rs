//! Bad input and bad days, as an MPI job sees them: each case must end in bounded time, either
//! complete and right or with a line that names the cause.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::e2e::Ended;
use crate::lab::{Lab, Wire};
use crate::launch::{Job, crash_in, result_of};
use crate::mpi;
use crate::paths::Paths;
use crate::process::Outcome;
use crate::stack::{Carrier, Stack};

/// A case that has not ended then has failed: well above every time that Weir is given here to find
/// out.
const LIMIT: Duration = Duration::from_secs(120);
/// The same where a rank gives up at once: what takes longer is the launcher's own
/// ([`ABORTED_TRIES`]).
const LIMIT_AT_ONCE: Duration = Duration::from_secs(20);
/// What MPICH says of a rank that gives up.
const ABORTED: &str = "Abort(";
/// MPICH's launcher now and then (one of seven such ends) does not end the others although a rank
/// of theirs gave up in MPI_Init: they wait for it in PMI, asleep in a read. A job that is to fail,
/// and has said the cause, is tried so often until it ends as well. No other job: one that is to
/// pass must not abort at all.
const ABORTED_TRIES: usize = 4;
/// What each rank's shell does first: its number in `R`, its process in `P`, and how to wait until
/// the program has exchanged messages for a second: how long the launcher takes to come so far
/// depends on the machine.
const BEGIN: &str = "R=${PMI_RANK:-${OMPI_COMM_WORLD_RANK:-$PMIX_RANK}}; P=$$; \
    begun() { until [ -e \"$TEST_BEGUN\" ]; do sleep 0.05; done; sleep 1; }; ";

/// What must come of a case, in which nothing may crash either.
#[derive(Clone, Copy)]
enum Expect {
    /// The program's own checks pass, and somebody says this (if it is not empty).
    Passes(&'static str),
    /// The same; large payload went by a TCP connection that was given up, and no exchange took
    /// longer than [`STALL_MS`].
    MovesOn,
    /// The job fails, and somebody says one of these.
    Fails(&'static [&'static str]),
}

/// Longest exchange of messages when one of two links ends.
const STALL_MS: f64 = 200.0;
/// How often a case is tried in which it took longer: with ten programs for two cores one of a
/// dozen does, whatever carries the messages. A wait of Weir's own comes each time.
const STALL_TRIES: usize = 3;
/// How its failure begins.
const STOOD_STILL: &str = "it stood still";

/// One thing that goes wrong.
struct Case {
    name: &'static str,
    /// Shell commands that each rank runs before the program takes its place.
    before: &'static str,
    program: &'static str,
    args: &'static str,
    expect: Expect,
    /// What is done to the network once the program has exchanged messages for a second.
    during: Option<fn(&Lab) -> Result<()>>,
    /// What joins the ranks.
    place: Place,
}

/// Where the two ranks are.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    /// On two hosts with one network.
    Hosts,
    /// On two hosts with a cable between them, and another.
    TwoCables,
    /// Both on this machine: over shared memory, unless something keeps them from it.
    OneHost,
}

const SHORT: &str = "--size 8 --reps 1000 --seconds 5";
const LONG: &str = "--size 300000 --reps 1000000 --warmup 10 --seconds 6";

const fn case(name: &'static str, before: &'static str, args: &'static str, expect: Expect) -> Case {
    Case { name, before, program: "pingpong", args, expect, during: None, place: Place::Hosts }
}

/// A ping-pong by a TCP connection over the first of two cables, which ends.
const fn cable(name: &'static str, during: fn(&Lab) -> Result<()>) -> Case {
    Case {
        during: Some(during),
        place: Place::TwoCables,
        ..case(name, "export WEIR_STATS=-; ", "--size 30000 --reps 100000000 --warmup 10 --seconds 5", Expect::MovesOn)
    }
}

const CASES: [Case; 24] = [
    cable("the cable pulled at the first rank", |lab| lab.pull(0)),
    cable("the cable pulled at the second rank", |lab| lab.pull(1)),
    cable("the cable cut, and nobody told", |lab| lab.mute(0..2)),
    cable("the cable cut one way, and nobody told", |lab| lab.mute(0..1)),
    cable("the cable cut the other way, and nobody told", |lab| lab.mute(1..2)),
    cable("the first rank's address taken away", |lab| lab.take_address(0)),
    cable("the second rank's address taken away", |lab| lab.take_address(1)),
    case(
        "no usable key",
        "unset WEIR_KEY; export WEIR_KEY_FILE=/nonexistent/key; ",
        SHORT,
        Expect::Fails(&["/nonexistent/key"]),
    ),
    case(
        "two keys in one job",
        "[ $R = 1 ] && export WEIR_KEY=0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef; ",
        SHORT,
        Expect::Fails(&["another job key"]),
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
        Expect::Fails(&["none of integrity, auth, encrypt"]),
    ),
    Case { place: Place::OneHost, ..case("port taken", "export WEIR_PORT=47917; ", SHORT, Expect::Fails(&["47917"])) },
    case(
        "address nobody answers at",
        // Each takes the other for a neighbour on its own loop interface.
        "export WEIR_IFACE=lo WEIR_CONNECT_TIMEOUT_MS=2000; ",
        SHORT,
        Expect::Fails(&["address unreachable"]),
    ),
    case("misspelt setting", "export WEIR_EAGERBYTES=9; ", SHORT, Expect::Passes("WEIR_EAGER_BYTES?")),
    case(
        "full disk under trace, capture and counters",
        "export WEIR_STATS=/dev/full WEIR_CAPTURE=/dev/full WEIR_TRACE=2 WEIR_TRACE_FILE=/dev/full; ",
        SHORT,
        Expect::Passes("No space left"),
    ),
    Case {
        during: Some(|lab| lab.set_mtu_of_last(1300)),
        ..case(
            "large packets vanish in the middle",
            "export WEIR_STATS=-; ",
            "--size 300000 --reps 1000000 --warmup 10 --seconds 12",
            Expect::Passes("\"mtu_black_holes\": 1"),
        )
    },
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
        Expect::Fails(&["unreachable"]),
    ),
    Case {
        program: "isend_flood",
        ..case(
            "more sent before it is received than memory is set aside for",
            "export WEIR_COPIED_BYTES=65536 WEIR_UNEXPECTED_BYTES=1048576 WEIR_SEND_TIMEOUT_MS=5000; ",
            "--size 8 --count 40000",
            Expect::Fails(&["that nobody receives: the program sends more"]),
        )
    },
    Case {
        place: Place::OneHost,
        ..case(
            "a rank stopped for longer than the peer timeout, on the host of the others",
            // No packet, or it would have been taken for dead.
            "export WEIR_STATS=- WEIR_PEER_TIMEOUT_MS=300; [ $R = 1 ] && (begun; kill -STOP $P; sleep 2; kill -CONT $P) & ",
            LONG,
            Expect::Passes("\"packets_sent\": 0"),
        )
    },
    Case {
        place: Place::OneHost,
        ..case(
            "a rank killed behind its launcher's back, on the host of the others",
            // Found out long before anybody has been silent for so long.
            "export WEIR_PEER_TIMEOUT_MS=60000; if [ $R = 1 ]; then \"$0\" \"$@\" & P=$!; begun; kill -KILL $P; sleep 60; exit 0; fi; ",
            LONG,
            Expect::Fails(&["its program has ended; taken for dead"]),
        )
    },
    Case {
        place: Place::OneHost,
        ..case(
            "a rank killed while it is stopped, on the host of the others",
            "export WEIR_PEER_TIMEOUT_MS=60000; \
             if [ $R = 1 ]; then \"$0\" \"$@\" & P=$!; begun; kill -STOP $P; sleep 1; kill -KILL $P; sleep 60; exit 0; fi; ",
            LONG,
            Expect::Fails(&["its program has ended; taken for dead"]),
        )
    },
    case(
        "a rank killed",
        "[ $R = 1 ] && (begun; kill -KILL $P) & ",
        LONG,
        // The launcher ends the others at once, before they find out: MPICH's says the first, Open
        // MPI's the second.
        Expect::Fails(&["EXIT CODE: 9\n", "signal 9 (Killed)"]),
    ),
    case(
        "a rank killed behind its launcher's back",
        // Its shell, which is all that the launcher sees, stays: the other rank is the one to find
        // out.
        "if [ $R = 1 ]; then \"$0\" \"$@\" & P=$!; begun; kill -KILL $P; sleep 60; exit 0; fi; ",
        LONG,
        Expect::Fails(&["its program is gone; taken for dead"]),
    ),
];

/// Runs the cases whose names contain `only` on Weir under both MPIs; `report` hears of each as it
/// ends. None is begun after `deadline`: those left have failed.
///
/// # Errors
/// If a network cannot be made.
pub fn run(paths: &Paths, only: &str, deadline: Instant, mut report: impl FnMut(&str, &Ended)) -> Result<()> {
    let stacks: Vec<Stack> = Stack::all(&[]).into_iter().filter(|stack| stack.carrier == Carrier::Weir).collect();
    for case in CASES.iter().filter(|case| case.name.contains(only)) {
        for stack in &stacks {
            let name = format!("{} ({})", case.name, stack.name);
            let mut ended = Ended::Failed("no time left".into());
            for _ in 0..STALL_TRIES {
                if Instant::now() >= deadline {
                    break;
                }
                ended = in_place(paths, stack, case)?;
                if !matches!(&ended, Ended::Failed(why) if why.starts_with(STOOD_STILL)) {
                    break;
                }
                eprintln!("{name}: it stood still; a busy machine does that too, so trying again");
            }
            report(&name, &ended);
        }
    }
    Ok(())
}

/// In a network of its own: what a case does to it stays there. Without offloads, or packets would
/// be as large as messages.
fn in_place(paths: &Paths, stack: &Stack, case: &Case) -> Result<Ended> {
    let lab = match case.place {
        Place::OneHost => None,
        Place::Hosts => Some(Lab::start(2, &Wire { no_offload: true, ..Wire::plain(0.0) })?),
        // With offloads: a cable as fast as TCP is worth having on.
        Place::TwoCables => Some(Lab::start(2, &Wire { two_cables: true, ..Wire::plain(0.0) })?),
    };
    Ok(one(paths, lab.as_ref(), stack, case))
}

fn one(paths: &Paths, lab: Option<&Lab>, stack: &Stack, case: &Case) -> Ended {
    let folder = match tempfile::tempdir() {
        Ok(folder) => folder,
        Err(error) => return Ended::Failed(format!("no folder: {error}")),
    };
    let begun = folder.path().join("begun");
    let env = [
        ("TEST_BEGUN".to_owned(), begun.display().to_string()),
        // What an MPI does after an error is its own; here no crash is excused.
        ("TEST_EXIT_ON_ERROR".to_owned(), "1".to_owned()),
    ];
    let script = format!("{BEGIN}{}exec \"$0\" \"$@\"", case.before);
    let program = mpi::program(paths, stack.mpi, case.program);
    let mut args = vec!["-c".to_owned(), script, program.display().to_string()];
    args.extend(case.args.split_whitespace().map(str::to_owned));
    let limit = if case.place == Place::OneHost { LIMIT_AT_ONCE } else { LIMIT };
    let job = Job { stack, ranks: 2, program: Path::new("/bin/sh"), args: &args, limit, env: &env };
    let run = || match (case.during, lab) {
        (Some(during), Some(lab)) => job.run_beside(paths, lab, &begun, || {
            thread::sleep(Duration::from_secs(1));
            during(lab)
        }),
        _ => job.run(paths, lab),
    };
    let mut outcome = run();
    for _ in 1..ABORTED_TRIES {
        if !matches!(&outcome, Ok(o) if is_left_waiting(o, case.expect)) {
            break;
        }
        eprintln!("{}: the launcher does not end ranks that wait for one that gave up; trying again", stack.name);
        outcome = run();
    }
    match outcome {
        Err(error) => Ended::Failed(format!("{error:#}")),
        Ok(outcome) => judge(&outcome, case.expect),
    }
}

/// A rank said why it gave up, as it should, and only the launcher has not ended.
fn is_left_waiting(outcome: &Outcome, expect: Expect) -> bool {
    let Expect::Fails(causes) = expect else { return false };
    let said = |text: &&str| outcome.stderr.contains(text);
    outcome.status.is_none() && said(&ABORTED) && causes.iter().any(said)
}

fn judge(outcome: &Outcome, expect: Expect) -> Ended {
    let said = |text: &str| outcome.stdout.contains(text) || outcome.stderr.contains(text);
    let complete =
        outcome.ok() && result_of(outcome).is_some_and(|v| v.get("complete") != Some(&serde_json::Value::Bool(false)));
    if let Some(word) = crash_in(outcome) {
        return Ended::Failed(format!("a crash ({word}): {}", outcome.cause()));
    }
    let missing = |texts: &[&str]| Ended::Failed(format!("nobody said {texts:?}: {}", outcome.cause()));
    match expect {
        _ if outcome.status.is_none() => Ended::Failed(format!("hangs: {}", outcome.cause())),
        Expect::Passes(_) | Expect::MovesOn if !complete => Ended::Failed(outcome.cause()),
        Expect::Passes(text) if !said(text) => missing(&[text]),
        Expect::Fails(_) if outcome.ok() => Ended::Failed("it passed".into()),
        Expect::Fails(texts) if !texts.iter().any(|text| said(text)) => missing(texts),
        Expect::MovesOn => moved_on(outcome),
        Expect::Passes(_) | Expect::Fails(_) => Ended::Passed,
    }
}

/// A TCP connection was in use, was given up, and nobody waited long for what it had.
fn moved_on(outcome: &Outcome) -> Ended {
    let counted = |name: &str| {
        let of_rank = |text: &str| text.trim_start().split(|c: char| !c.is_ascii_digit()).next()?.parse::<u64>().ok();
        outcome.stderr.split(&format!("\"{name}\":")).skip(1).filter_map(of_rank).sum::<u64>()
    };
    if counted("bulk_connections_opened") == 0 || counted("bulk_connections_failed") == 0 {
        return Ended::Failed("no TCP connection was in use, or none was given up".into());
    }
    match result_of(outcome).and_then(|said| said.get("longest_ms")?.as_f64()) {
        Some(longest_ms) if longest_ms <= STALL_MS => Ended::Passed,
        longest_ms => Ended::Failed(format!("{STOOD_STILL} for {longest_ms:?} ms, not below {STALL_MS}")),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    fn ended(code: i32, stderr: &str) -> Outcome {
        Outcome {
            status: Some(ExitStatus::from_raw(code << 8)),
            stdout: "{\"program\":\"pingpong\"}".into(),
            stderr: stderr.into(),
            elapsed: Duration::from_secs(1),
            alone: false,
            shared: None,
        }
    }

    #[test]
    fn a_crash_is_no_way_to_fail_or_to_pass() {
        let killed = Expect::Fails(&["EXIT CODE: 9\n", "signal 9 (Killed)"]);
        for kill in ["exited on\nsignal 9 (Killed).", "=   EXIT CODE: 9\n"] {
            assert_eq!(judge(&ended(9, kill), killed), Ended::Passed);
        }
        let crashes =
            ["signal 11 (Segmentation fault)", "=   EXIT CODE: 11\n", "thread 'w' panicked at engine/src/core.rs:1:1"];
        for crash in crashes {
            let both = format!("signal 9 (Killed)\n{crash}");
            assert!(matches!(judge(&ended(9, &both), killed), Ended::Failed(_)), "{crash}");
            assert!(matches!(judge(&ended(0, crash), Expect::Passes("")), Ended::Failed(_)), "{crash}");
        }
    }

    #[test]
    fn who_stands_still_or_used_no_connection_has_not_moved_on() {
        let told = |longest_ms: f64, counters: &str| Outcome {
            stdout: format!("{{\"program\":\"pingpong\",\"longest_ms\":{longest_ms}}}"),
            ..ended(0, counters)
        };
        let counters = "\"bulk_connections_opened\": 1,\n\"bulk_connections_failed\": 0,\n\"bulk_connections_opened\": 1,\n\"bulk_connections_failed\": 1\n";
        assert_eq!(judge(&told(199.0, counters), Expect::MovesOn), Ended::Passed);
        assert!(matches!(judge(&told(201.0, counters), Expect::MovesOn), Ended::Failed(_)));
        assert!(matches!(judge(&told(1.0, "\"bulk_connections_opened\": 1\n"), Expect::MovesOn), Ended::Failed(_)));
        assert!(matches!(judge(&ended(0, counters), Expect::MovesOn), Ended::Failed(_)));
    }

    #[test]
    fn a_failure_without_its_cause_is_not_what_was_to_come() {
        let fails = Expect::Fails(&["taken for dead"]);
        assert!(matches!(judge(&ended(1, "no such thing"), fails), Ended::Failed(_)));
        assert!(matches!(judge(&ended(0, "taken for dead"), fails), Ended::Failed(_)));
        assert_eq!(judge(&ended(0, ""), Expect::Passes("")), Ended::Passed);
    }
}

//! What became of a run that did not end, in words and with the lines.

use weir_annotations::{Diagnostic, Model, Place};
use weir_predict::{Blocked, Deadlock, Missing, Outcome, Verdict, WaitsFor};

use crate::error::{EXIT_DEADLOCK, EXIT_ENDLESS, EXIT_MODEL};
use crate::table::duration;

/// Processes that are shown with their lines.
const MOST_SHOWN: usize = 8;

/// The diagnostic of a run that did not end as it should, and the exit code.
pub fn verdict(outcome: &Outcome, model: &Model, seed: u64) -> (Diagnostic, u8) {
    let place = |op: u32| model.ops.get(op as usize).map_or(Place::default(), |op| op.place);
    match &outcome.verdict {
        Verdict::Finished => (Diagnostic::error("model", Place::default(), "a run ended"), EXIT_MODEL),
        Verdict::Failed(failure) => {
            let said =
                format!("{} (process {} at {})", failure.message, failure.process, duration(failure.at.seconds()));
            (Diagnostic::error("model", place(failure.op), said), EXIT_MODEL)
        }
        Verdict::OutOfBudget { process, op, at } => {
            let said = format!("no end after {} steps, at {}", outcome.steps, duration(at.seconds()));
            let fault = Diagnostic::error("endless", place(*op), said)
                .with_place(place(*op), format!("process {process} was here"))
                .with_help("is a `while` never left? else give more with --budget");
            (fault, EXIT_ENDLESS)
        }
        Verdict::Deadlock(deadlock) => (of_deadlock(deadlock, outcome, model, seed), EXIT_DEADLOCK),
    }
}

fn of_deadlock(deadlock: &Deadlock, outcome: &Outcome, model: &Model, seed: u64) -> Diagnostic {
    let place = |op: u32| model.ops.get(op as usize).map_or(Place::default(), |op| op.place);
    let blocked = |process: u32| deadlock.blocked.iter().find(|b| b.process == process);
    let in_cycle: Vec<&Blocked> = deadlock.cycle.iter().filter_map(|p| blocked(*p)).collect();
    let shown: Vec<&Blocked> = if in_cycle.is_empty() { deadlock.blocked.iter().collect() } else { in_cycle };
    let waiting = match deadlock.blocked.len() {
        1 => "1 process waits".to_owned(),
        n => format!("{n} processes wait"),
    };
    let said =
        format!("deadlock: {waiting} for ever, of {}, since {}", model.numprocs, duration(outcome.time.seconds()));
    let first = shown.first().map_or(Place::default(), |b| place(b.op));
    let mut fault = Diagnostic::error("deadlock", first, said);
    for one in shown.iter().take(MOST_SHOWN) {
        fault = fault.with_place(place(one.op), waits(one));
    }
    let mut help = if deadlock.cycle.is_empty() {
        "what they wait for never comes: its process has ended or waits for something else".to_owned()
    } else {
        let around: Vec<String> = deadlock.cycle.iter().take(MOST_SHOWN).map(u32::to_string).collect();
        let more = if deadlock.cycle.len() > MOST_SHOWN { " ..." } else { "" };
        let back = deadlock.cycle.first().map(|p| format!(" -> {p}")).unwrap_or_default();
        format!("each waits for the next: {}{more}{back}", around.join(" -> "))
    };
    if outcome.unreceived_count > 0 {
        let n = outcome.unreceived_count;
        help.push_str(&format!("; {n} message{} lie unreceived", if n == 1 { "" } else { "s" }));
    }
    if seed != 1 {
        help.push_str(&format!("; this was the run with --seed {seed}"));
    }
    fault.with_help(help)
}

fn waits(one: &Blocked) -> String {
    let Some(wait) = one.waits.first() else { return format!("process {} waits here", one.process) };
    let more = match one.waits.len() {
        0 | 1 => String::new(),
        n => format!(", and for {} more", n - 1),
    };
    format!("process {} waits for {}{more}", one.process, awaited(wait))
}

fn awaited(wait: &WaitsFor) -> String {
    let who = match wait.process {
        Some(process) => format!("process {process}"),
        None => "any process".to_owned(),
    };
    let tag = wait.tag.map(|tag| format!(", tag {tag}")).unwrap_or_default();
    let comm = if wait.comm == 0 { String::new() } else { format!(", communicator {}", wait.comm) };
    match wait.what {
        Missing::Message => format!("a message from {who}{tag}{comm}"),
        Missing::Receive => format!("a receive by {who}{tag}{comm}"),
        Missing::Collective => format!("{who} to come to this collective{comm}"),
    }
}

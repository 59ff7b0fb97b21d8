//! What became of a run that did not end, in words and with the lines.

use weir_annotations::{Diagnostic, Model, Place};
use weir_predict::{Blocked, Deadlock, Missing, NO_OP, Outcome, Verdict, WaitsFor};

use crate::error::Reason;
use crate::table::duration;

/// Processes of a cycle, and others, that are shown with their lines.
const MOST_SHOWN: usize = 8;

/// Steps of each process that say nothing of a loop that is never left.
const FEW_STEPS: u64 = 1000;

/// The diagnostic of a run that did not end as it should, and what that is called.
pub fn verdict(outcome: &Outcome, model: &Model, seed: u64) -> (Diagnostic, Reason) {
    let place = |op: u32| model.ops.get(op as usize).map_or(Place::default(), |op| op.place);
    match &outcome.verdict {
        Verdict::Finished => (Diagnostic::error("model", Place::default(), "a run ended"), Reason::Model),
        Verdict::Failed(failure) => {
            let whose = format!(" (process {} at {})", failure.process, duration(failure.at.seconds()));
            let said = format!("{}{}", failure.message, if failure.op == NO_OP { "" } else { &whose });
            let fault = Diagnostic::error("model", place(failure.op), said);
            let also = failure.also.iter();
            (also.fold(fault, |fault, (op, what)| fault.with_place(place(*op), what.clone())), Reason::Model)
        }
        Verdict::OutOfBudget { process, op, at, endless } => {
            let at = duration(at.seconds());
            let (said, help) = if *endless {
                let said = format!("no end: at {at} this repeats, and time stands still");
                (said, "what a `while` waits for never comes: let something in it take time, or leave it")
            } else {
                // Of a great many processes each had a few only.
                let each = outcome.steps / u64::from(model.numprocs.max(1));
                if model.numprocs > 1 && each < FEW_STEPS {
                    let said = format!("no end after {} steps, some {each} of each process, at {at}", outcome.steps);
                    (said, "that many processes need more: give it with --budget")
                } else {
                    let said = format!("no end after {} steps, at {at}", outcome.steps);
                    (said, "is a `while` never left? else give more with --budget")
                }
            };
            let fault = Diagnostic::error("endless", place(*op), said)
                .with_place(place(*op), format!("process {process} was here"))
                .with_help(help);
            (fault, Reason::Endless)
        }
        Verdict::Crowded(crowded) => {
            let said = format!(
                "{} messages, requests and collectives are under way at {}, which is more than may be",
                crowded.under_way,
                duration(crowded.at.seconds())
            );
            let fault = Diagnostic::error("overflow", place(crowded.op), said)
                .with_place(place(crowded.op), format!("{} of them are from here", crowded.of_op))
                .with_help("is a receive or a wait forgotten? else give more with --most-under-way");
            (fault, Reason::Crowded)
        }
        Verdict::Deadlock(deadlock) => (of_deadlock(deadlock, outcome, model, seed), Reason::Deadlock),
    }
}

fn of_deadlock(deadlock: &Deadlock, outcome: &Outcome, model: &Model, seed: u64) -> Diagnostic {
    let place = |op: u32| model.ops.get(op as usize).map_or(Place::default(), |op| op.place);
    let blocked = |process: u32| deadlock.blocked.iter().find(|b| b.process == process);
    let in_cycle: Vec<&Blocked> = deadlock.cycle.iter().filter_map(|p| blocked(*p)).take(MOST_SHOWN).collect();
    // Behind the cycle, who else waits: they are held up by it, or by somebody who has ended.
    let others = deadlock.blocked.iter().filter(|b| !deadlock.cycle.contains(&b.process)).take(MOST_SHOWN);
    let shown: Vec<&Blocked> = in_cycle.into_iter().chain(others).collect();
    let waiting = match deadlock.blocked.len() {
        1 => "1 process waits".to_owned(),
        n => format!("{n} processes wait"),
    };
    let said =
        format!("deadlock: {waiting} for ever, of {}, since {}", model.numprocs, duration(outcome.time.seconds()));
    let first = shown.first().map_or(Place::default(), |b| place(b.op));
    let mut fault = Diagnostic::error("deadlock", first, said);
    for one in &shown {
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
    let others = deadlock.blocked.len() - deadlock.cycle.len();
    if others > 0 && !deadlock.cycle.is_empty() {
        help.push_str(&format!("; {others} more wait{}", if others == 1 { "s" } else { "" }));
    }
    if deadlock.blocked.len() > shown.len() {
        help.push_str(&format!("; {} are not shown", deadlock.blocked.len() - shown.len()));
    }
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

//! What a run came to.

use weir_annotations::program::Pc;

use crate::loss::Losses;
use crate::{Cause, Time};

/// What a run came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// How it ended.
    pub verdict: Verdict,
    /// From the beginning until the last process ended, or until nothing moved any more.
    pub time: Time,
    /// When each process ended; of one that did not, until when it is known.
    pub ends: Vec<Time>,
    /// Messages sent, those of collectives included.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Of these, messages that were lost and sent again, counted each time.
    pub lost: u64,
    /// Steps taken: ops, events and `looked`. The budget bounds them.
    pub steps: u64,
    /// Of these, entries of lists that were looked at to find a match or a rate. Some may be taken
    /// already, until a list is tidied: so a run that skips loops may look at a few more than one
    /// that does not.
    pub looked: u64,
    /// Loops that repeated exactly, of which whole periods were skipped. All other fields are as if
    /// they had been run, but `steps` and `looked`.
    pub skipped: Vec<Skipped>,
    /// Where the time went.
    pub losses: Losses,
    /// Messages that nobody received, at most [`LISTED`] of them.
    pub unreceived: Vec<Unreceived>,
    /// How many they are.
    pub unreceived_count: u64,
    /// What should be known about this run besides the machine's own notices: extrapolations. Each
    /// a line for people.
    pub notices: Vec<String>,
}

/// What of a loop was not run because it repeats what was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Skipped {
    /// The loop's `LoopBegin`.
    pub op: Pc,
    /// Its iterations, as one process counts them.
    pub iterations: u64,
    /// Virtual time.
    pub time: Time,
    /// Messages of all processes.
    pub messages: u64,
}

/// No op of any model.
pub const NO_OP: Pc = Pc::MAX;

/// Entries of a list that is for people.
pub const LISTED: usize = 100;

impl Outcome {
    /// The share of all processes' time that a cause took, from 0 to 1.
    #[must_use]
    pub fn share(&self, cause: Cause) -> f64 {
        let all = self.time.seconds() * self.ends.len() as f64;
        if all > 0.0 { self.losses.total().of(cause).seconds() / all } else { 0.0 }
    }
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// All processes came to their end.
    Finished,
    /// Some wait for ever.
    Deadlock(Deadlock),
    /// The model is wrong.
    Failed(Failure),
    /// It took more steps than it may, or goes round in a circle.
    OutOfBudget {
        /// A process that was running then.
        process: u32,
        /// At this op.
        op: Pc,
        /// At this time.
        at: Time,
        /// What it does repeats without time going on: no budget helps.
        endless: bool,
    },
    /// It has more under way than it may.
    Crowded(Crowded),
}

/// More is under way than may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crowded {
    /// Messages, requests and collectives under way.
    pub under_way: u64,
    /// The op that most of them come from.
    pub op: Pc,
    /// How many do.
    pub of_op: u64,
    /// At this time.
    pub at: Time,
}

/// The model is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// In this process.
    pub process: u32,
    /// At this op; [`NO_OP`]: before any.
    pub op: Pc,
    /// At this time.
    pub at: Time,
    /// What is wrong, one line.
    pub message: String,
    /// Other ops that belong to it, each with what is there.
    pub also: Vec<(Pc, String)>,
}

/// Processes wait for ever.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deadlock {
    /// All that wait, by process.
    pub blocked: Vec<Blocked>,
    /// Processes each of which waits for the next and the last for the first; empty if they wait
    /// for one that has ended.
    pub cycle: Vec<u32>,
}

/// A process that waits for ever.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocked {
    /// Which.
    pub process: u32,
    /// At this op.
    pub op: Pc,
    /// Since.
    pub since: Time,
    /// For what, at most [`LISTED`].
    pub waits: Vec<WaitsFor>,
}

/// What a process waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitsFor {
    /// The process that would have to do something; none: any.
    pub process: Option<u32>,
    /// What it would have to do.
    pub what: Missing,
    /// The op that began what is waited for.
    pub op: Pc,
    /// The tag; none: any.
    pub tag: Option<i64>,
    /// The communicator.
    pub comm: u32,
}

/// What is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// A message.
    Message,
    /// A receive.
    Receive,
    /// Its part in a collective.
    Collective,
}

/// A message that nobody received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unreceived {
    /// Its sender.
    pub from: u32,
    /// To whom.
    pub to: u32,
    /// Its tag; -1: it is of a collective.
    pub tag: i64,
    /// The communicator.
    pub comm: u32,
    /// Its bytes.
    pub bytes: u64,
    /// The op that sent it.
    pub op: Pc,
}

//! Watching a run: for traces and space-time diagrams.

use weir_annotations::program::Pc;

use crate::Time;

/// What a process does for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Doing {
    /// It computes.
    Compute,
    /// It is kept by a send (local part).
    Send,
    /// It is kept by the end of a receive (local part).
    Receive,
    /// It waits.
    Wait,
}

impl Doing {
    /// The name in traces.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Send => "send",
            Self::Receive => "receive",
            Self::Wait => "wait",
        }
    }
}

/// A stretch of a process's time. Those of one process touch each other and never overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Whose.
    pub process: u32,
    /// From.
    pub start: Time,
    /// To, after `start`.
    pub end: Time,
    /// What it does.
    pub doing: Doing,
    /// Which op of the model; its place is [`weir_annotations::program::Op::place`].
    pub op: Pc,
}

/// A message that was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passed {
    /// Its sender.
    pub from: u32,
    /// Its receiver.
    pub to: u32,
    /// Its bytes.
    pub bytes: u64,
    /// Its tag; of a collective's messages a number of no meaning.
    pub tag: i64,
    /// The communicator.
    pub comm: u32,
    /// Whether a collective is made of it.
    pub collective: bool,
    /// When its send began.
    pub sent: Time,
    /// When all of it was there.
    pub arrived: Time,
    /// When a receive had it: not before it was posted.
    pub received: Time,
    /// The op that sent it.
    pub send_op: Pc,
    /// The op that received it.
    pub receive_op: Pc,
}

/// Steps between two calls of [`Observer::steps`]: some tenths of a second.
pub const STEPS_TOLD: u64 = 1 << 20;

/// Who watches a run. Calls come in the order in which things are decided.
pub trait Observer {
    /// Whether it wants to be told all: then nothing is skipped.
    fn watches(&self) -> bool {
        true
    }

    /// So many steps have been taken, and virtual time is there: told each [`STEPS_TOLD`] steps.
    fn steps(&mut self, steps: u64, now: Time) {
        let _ = (steps, now);
    }

    /// A stretch of a process's time is known. `end` may be ahead of what is told of others.
    fn span(&mut self, span: &Span) {
        let _ = span;
    }

    /// A message has been received; `received` never goes back from one call to the next.
    fn message(&mut self, message: &Passed) {
        let _ = message;
    }
}

/// Nobody watches.
#[derive(Debug, Clone, Copy, Default)]
pub struct Nobody;

impl Observer for Nobody {
    fn watches(&self) -> bool {
        false
    }
}

/// Keeps all of it: for small runs.
#[derive(Debug, Clone, Default)]
pub struct Recording {
    /// Spans, of each process in order.
    pub spans: Vec<Span>,
    /// Messages, by when they were received.
    pub messages: Vec<Passed>,
}

impl Observer for Recording {
    fn span(&mut self, span: &Span) {
        self.spans.push(*span);
    }

    fn message(&mut self, message: &Passed) {
        self.messages.push(*message);
    }
}

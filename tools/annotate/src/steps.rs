//! What the model says at places of the source, before it is written there.

use tree_sitter::Node;

use crate::c::line;

/// One thing that the model says. Places are bytes of the source.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Computing between two calls.
    Serial(Segment),
    /// Communication.
    Message {
        /// Before what it stands.
        at: usize,
        /// Its line.
        line: u32,
        /// Which function of MPI.
        kind: String,
        /// Its attributes, in order.
        attributes: Vec<(String, String)>,
    },
    /// A call of a function that has directives of its own.
    Call {
        /// Before what it stands.
        at: usize,
        /// Its line.
        line: u32,
    },
    /// A call that the model leaves out.
    Skip {
        /// Before what it stands.
        at: usize,
        /// Its line.
        line: u32,
    },
    /// A variable of the model gets a value.
    Set {
        /// Before what it stands.
        at: usize,
        /// Behind what ends there, instead, indented as this.
        behind: Option<usize>,
        /// Its line.
        line: u32,
        /// The variable.
        name: String,
        /// The value.
        value: String,
    },
    /// Repetition.
    Loop {
        /// Before what it stands.
        at: usize,
        /// Behind what it ends.
        end: usize,
        /// Its line.
        line: u32,
        /// How long.
        head: Head,
        /// The name of the index, if something uses it.
        index: Option<String>,
        /// What is repeated.
        body: Vec<Step>,
    },
    /// One of several ways.
    Branch {
        /// Before what it stands.
        at: usize,
        /// Its line.
        line: u32,
        /// Whether chance decides; then labels are weights, else conditions.
        random: bool,
        /// The ways.
        arms: Vec<Arm>,
    },
}

/// How long a loop goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Head {
    /// So many times.
    Iterations(String),
    /// While this holds.
    While(String),
}

/// One way of a branch.
#[derive(Debug, Clone, PartialEq)]
pub struct Arm {
    /// Its condition or weight.
    pub label: String,
    /// Where it begins.
    pub at: usize,
    /// Behind what it ends.
    pub end: usize,
    /// What is done.
    pub body: Vec<Step>,
}

/// Statements one after the other that do not communicate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Where they begin.
    pub at: usize,
    /// Behind what they end.
    pub end: usize,
    /// Their first line.
    pub line: u32,
    /// Whether they take time worth a directive.
    pub heavy: bool,
    /// Whether they stand in a list of statements, so that others may stand before and behind them.
    pub listed: bool,
}

impl Segment {
    /// Of one statement.
    #[must_use]
    pub fn of(node: Node<'_>) -> Self {
        let listed = node.parent().is_some_and(|p| p.kind() == "compound_statement");
        Self { at: node.start_byte(), end: node.end_byte(), line: line(node), heavy: false, listed }
    }

    /// With what follows. What is cheap before the first that is not does not belong to it.
    #[must_use]
    pub fn with(self, next: Self) -> Self {
        if !self.heavy {
            return next;
        }
        Self { end: if next.heavy { next.end } else { self.end }, ..self }
    }

    /// The parameter that stands for its time.
    #[must_use]
    pub fn parameter(&self) -> String {
        format!("serial_{}", self.line)
    }
}

impl Step {
    /// A variable gets a value before what begins at a place.
    #[must_use]
    pub fn set(at: usize, line: u32, name: String, value: String) -> Self {
        Self::Set { at, behind: None, line, name, value }
    }

    /// The line it belongs to.
    #[must_use]
    pub fn line(&self) -> u32 {
        match self {
            Self::Serial(segment) => segment.line,
            Self::Message { line, .. }
            | Self::Skip { line, .. }
            | Self::Call { line, .. }
            | Self::Set { line, .. }
            | Self::Loop { line, .. }
            | Self::Branch { line, .. } => *line,
        }
    }

    /// Visits all segments in it.
    pub fn segments<'a>(steps: &'a [Self], visit: &mut dyn FnMut(&'a Segment)) {
        for step in steps {
            match step {
                Self::Serial(segment) => visit(segment),
                Self::Loop { body, .. } => Self::segments(body, visit),
                Self::Branch { arms, .. } => arms.iter().for_each(|arm| Self::segments(&arm.body, visit)),
                _ => {}
            }
        }
    }
}

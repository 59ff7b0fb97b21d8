//! How the command ends when it cannot predict.

use std::path::Path;

use serde_json::Value;
use thiserror::Error;

/// A file cannot be read or written.
pub const EXIT_FAILED: u8 = 1;
/// The model is wrong, or something it needs is missing.
pub const EXIT_MODEL: u8 = 3;
/// The program deadlocks.
pub const EXIT_DEADLOCK: u8 = 4;
/// The program does not end within its budget.
pub const EXIT_ENDLESS: u8 = 5;

/// Why a process count, or the whole program, is not predicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The model is wrong, or something it needs is missing.
    Model,
    /// The program deadlocks.
    Deadlock,
    /// It does not end within its budget of steps.
    Endless,
    /// It has more under way than it may.
    Crowded,
}

impl Reason {
    /// The command's exit code.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Model => EXIT_MODEL,
            Self::Deadlock => EXIT_DEADLOCK,
            Self::Endless | Self::Crowded => EXIT_ENDLESS,
        }
    }

    /// The word for it in tables and in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Model => "error",
            Self::Deadlock => "deadlock",
            Self::Endless => "no end",
            Self::Crowded => "overflow",
        }
    }
}

/// Why there is no prediction at all.
#[derive(Debug, Error)]
pub enum Failure {
    /// One line: exit code 1.
    #[error("{0}")]
    Failed(String),
    /// One line about what the program or its machine is: exit code 3.
    #[error("{0}")]
    Model(String),
    /// One line: exit code 2.
    #[error("{0}")]
    Usage(String),
    /// What is wrong has been shown: the exit code, and the same for JSON.
    #[error("")]
    Shown(u8, Value),
}

impl Failure {
    /// A file that is not what it should be.
    pub fn content(path: &Path, what: impl std::fmt::Display) -> Self {
        Self::Model(format!("{}: {what}", path.display()))
    }

    /// A file that cannot be read or written.
    pub fn file(path: &Path, what: impl std::fmt::Display) -> Self {
        Self::Failed(format!("{}: {what}", path.display()))
    }
}

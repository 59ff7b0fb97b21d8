//! How the command ends when it cannot predict.

use std::path::Path;

use thiserror::Error;

/// The model is wrong, or something it needs is missing.
pub const EXIT_MODEL: u8 = 3;
/// The program deadlocks.
pub const EXIT_DEADLOCK: u8 = 4;
/// The program does not end within its budget.
pub const EXIT_ENDLESS: u8 = 5;

/// Why there is no prediction.
#[derive(Debug, Error)]
pub enum Failure {
    /// One line: exit code 1.
    #[error("{0}")]
    Failed(String),
    /// One line: exit code 2.
    #[error("{0}")]
    Usage(String),
    /// What is wrong has been shown: the exit code.
    #[error("")]
    Shown(u8),
}

impl Failure {
    /// A file that cannot be used.
    pub fn file(path: &Path, what: impl std::fmt::Display) -> Self {
        Self::Failed(format!("{}: {what}", path.display()))
    }
}

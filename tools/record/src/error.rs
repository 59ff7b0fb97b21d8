//! What can go wrong, as one line for people.

use std::path::PathBuf;

use crate::log::LogError;

/// Why there is no model.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file is no recording.
    #[error("{} {source}", path.display())]
    Log {
        /// Which.
        path: PathBuf,
        /// Why.
        source: LogError,
    },
    /// A compiler, launcher or program failed.
    #[error("{0}")]
    Run(String),
    /// What was recorded makes no model.
    #[error("{0}")]
    Refused(String),
    /// The model does not say what was recorded: a fault of ours.
    #[error("the model does not repeat what was recorded: {0}")]
    Differs(String),
    /// The command line makes no sense.
    #[error("{0}")]
    Usage(String),
}

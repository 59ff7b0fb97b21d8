//! `weir bsp`: what a BSP machine costs, measured by a program that runs on it; and what the
//! supersteps of a BSP program cost, from its ledger.
//!
//! | module | holds |
//! |---|---|
//! | `args` | the command line |
//! | `measure` | the program that measures, run by every process; `sys` are the primitives as it calls them |
//! | `relation` | who sends how much to whom in a superstep that is measured; pure |
//! | `params` | the file of what was measured (`spec/bsp-params.md`) |
//! | `estimate` | p, l, g, s and their spread; edges, larger machines; pure |
//! | `ledger` | the ledger of a run, added up by superstep |
//! | `summary` | supersteps by the line of the program that ended them; what was predicted |
//! | `params_text`, `report_text` | tables for people and JSON |
//! | `params_page`, `report_page`, `plots` | pages |
//! | `tune`, `tune_rule` | `weir tune`: supersteps with each value of a setting; which is best |
//! | `commands` | what is done when |
#![deny(unsafe_code)]

pub mod args;
pub mod commands;
pub mod estimate;
pub mod ledger;
mod measure;
pub mod params;
mod params_page;
mod params_text;
mod plots;
mod relation;
mod report_page;
mod report_text;
pub mod summary;
#[allow(unsafe_code)]
mod sys;
pub mod tune;
pub mod tune_rule;

use std::path::{Path, PathBuf};

fn put(path: &Path, text: &str) -> Result<(), Error> {
    weir_put::text(Some(path), text, |path, cause| Error::Write { path: path.to_owned(), cause })
}

/// What can go wrong; each is one line for people.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {cause}", path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
    /// What was read cannot be.
    #[error("{place}: {what}")]
    Wrong {
        /// The file, with line and column where they are known.
        place: String,
        /// What is wrong there.
        what: String,
    },
    /// The command line asks for what makes no sense.
    #[error("{0}")]
    Usage(String),
}

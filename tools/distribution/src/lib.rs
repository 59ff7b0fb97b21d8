//! The distribution format: what a benchmark measured, as files. The normative text is
//! `spec/distribution-format.md`.
//!
//! A run is a folder: `run.json` says what was measured on what, `samples/` holds a Parquet file of
//! samples for each cell. [`Writer`] makes one so that every finished cell survives whatever
//! happens next, [`Reader`] reads one and names file and field of whatever is wrong with it,
//! [`export`] turns one into text for other programs.

#![forbid(unsafe_code)]

mod check;
mod error;
pub mod export;
mod files;
mod foreign;
mod journal;
mod json;
mod lock;
pub mod model;
mod reader;
mod samples;
mod writer;

pub use error::{Error, Result, cause};
pub use json::parse_run;
pub use model::*;
pub use reader::Reader;
pub use samples::{SampleStream, read_samples};
pub use writer::{CellWriter, Existing, Writer};

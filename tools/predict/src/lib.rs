//! `weir predict`: how long an annotated program runs on a machine, how much that varies, and where
//! the time is lost.
//!
//! Reads what [`weir_annotations`] (the program) and [`weir_predict`] (machine, virtual time) need
//! from files, runs replicas on all processors, and prints tables or JSON. `spec/annotations.md`
//! has the language, `spec/prediction.md` what is computed.
#![forbid(unsafe_code)]

pub mod args;
mod command;
pub mod counts;
mod document;
mod error;
mod explain;
mod input;
mod measured;
mod parameters;
mod pictures;
mod progress;
mod show;
mod source_network;
mod sweep;
mod table;
mod whatif;

pub use command::{Streams, run, run_to};
pub use error::{EXIT_DEADLOCK, EXIT_ENDLESS, EXIT_MODEL};

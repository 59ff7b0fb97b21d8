//! The harness behind `weir bench`: every operation timed at every process on a global clock, under
//! measured contention, all samples kept.
//!
//! * [`machine`]: what is measured, seen from one rank: MPI, Weir's own endpoint, or a simulation
//!   with planted times.
//! * [`operation`], [`sizes`], [`pairing`], [`plan`]: what is measured, at which sizes, between
//!   whom, in which order.
//! * [`exchange`], [`pattern`]: several messages at once, and a user's own.
//! * [`talk`]: exchanges of messages alone; [`threads`]: the same between single threads of ranks.
//! * [`tagged`], `open_loop`: messages by tags that the user chooses, also at a steady pace.
//! * [`measure`]: the loops that are timed. [`cell`]: one cell, in batches. [`budget`]: when it is
//!   enough.
//! * [`clock`]: this rank's place on the global clock.
//! * [`serverload`]: a server and its clients, over any BMI library or plain sockets, with
//!   processes of its own and the same books.
//!
//! Source: Grove, "Performance modelling of message-passing parallel programs" (PhD thesis,
//! Adelaide 2003), section 4.3 and appendix B (MPIBench); Hunold and Carpen-Amarie, "MPI
//! benchmarking revisited" (2016) for launches as a factor and shuffled order.

#![deny(unsafe_code)]

pub mod append;
pub mod book;
pub mod budget;
pub mod carried;
pub mod cell;
pub mod clock;
pub mod collect;
pub mod command;
pub mod error;
pub mod exchange;
pub mod host;
pub mod kernels;
mod leader;
pub mod like;
pub mod machine;
pub mod measure;
pub mod memory;
mod open_loop;
pub mod operation;
pub mod options;
pub mod overlap;
pub mod pairing;
pub mod pattern;
pub mod plan;
pub mod run;
pub mod serverload;
pub mod show;
pub mod sizes;
pub mod spawn;
pub mod speaker;
pub mod stop;
#[allow(unsafe_code)]
pub mod sys;
pub mod tagged;
pub mod talk;
pub mod threads;
pub mod typed;
pub mod warnings;

pub use error::{BenchError, Result};

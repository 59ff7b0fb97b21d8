#![forbid(unsafe_code)]
//! A network in virtual time, and programs that check what the protocol promises
//! (`docs/simulation.md`).
//!
//! No clock, socket or thread: a run is a function of its [`spec::NetSpec`], its work and one seed,
//! bit for bit.

pub mod ablation;
pub mod check;
pub mod link_table;
mod log;
pub mod mark_table;
mod net;
pub mod planted;
mod queue;
pub mod rank;
mod rng;
pub mod rows;
pub mod run;
pub mod scenario;
pub mod service_table;
pub mod shrink;
pub mod spec;
pub mod step_many;
pub mod step_table;
pub mod storm;
pub mod table;
mod tcp;
mod up;
pub mod work;
mod world;

pub use log::Log;
pub use net::NetCounters;
pub use rng::{MILLION, Ppm, Rng, mix};
pub use tcp::{Arrived, Broken, Socket, TcpCounters};
pub use world::{Host, Node, Received, Violation, World};

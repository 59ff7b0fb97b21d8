//! Starting the ranks of a job on this machine, for programs that have their place from
//! [`crate::launch`]: `weir run` on a laptop.
//!
//! [`run`] starts them, answers them, hands on what they print and ends them all when one fails.
//! [`guard`] is the process above it, which leaves nothing behind when [`run`]'s own process is
//! killed. What ranks ask is answered by [`Hub`], which knows no process.

mod below;
mod deaths;
mod hub;
mod output;
mod run;
mod signals;

pub use hub::{Answer, Fault, Hub, To};
pub use output::say;
pub use run::{Start, guard, run};

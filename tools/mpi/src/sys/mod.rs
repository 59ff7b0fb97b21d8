//! The only unsafe code of the crate: the MPI library and the calls into it. What leaves this room is safe.
//!
//! * [`functions`]: the table of function pointers, resolved once.
//! * [`abi`]: which ABI a library has, and the constants of each.
//! * [`library`]: loading, initialising, ending: [`Mpi`].
//! * [`communicator`], [`collectives`]: [`Communicator`] and its operations.
//! * [`requests`]: operations that go on while the caller does: [`Requests`].

#![allow(unsafe_code)]

pub mod abi;
mod collectives;
mod communicator;
mod functions;
mod library;
mod requests;

pub use communicator::{Communicator, Status};
pub use library::{Mpi, load_only};
pub use requests::{Request, Requests, Scope};

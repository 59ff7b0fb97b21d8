//! The only unsafe code of the crate: the MPI library and the calls into it. What leaves it is
//! safe.
//!
//! * [`functions`]: the table of function pointers, resolved once.
//! * [`abi`]: which ABI a library has, and the constants of each.
//! * [`library`]: loading, initialising, ending: [`Mpi`].
//! * [`communicator`], [`collectives`]: [`Communicator`] and its operations.
//! * [`uneven`]: collectives whose blocks differ in length, and running sums.
//! * [`windows`]: memory that other ranks reach: [`Window`].
//! * [`persistent`]: an exchange that is set up once and made again and again: [`Persistent`].
//! * [`inbox`]: receives that stand posted: [`Inbox`].
//! * [`requests`]: operations that go on while the caller does: [`Requests`].
//! * [`threads`]: several threads of a process at once: [`Mpi::threads`](crate::Mpi::threads).

#![allow(unsafe_code)]

pub mod abi;
mod collectives;
mod communicator;
mod functions;
mod inbox;
mod library;
mod persistent;
mod requests;
mod threads;
mod uneven;
mod windows;

pub use communicator::{Communicator, Status};
pub use inbox::Inbox;
pub use library::{Mpi, load_only};
pub use persistent::Persistent;
pub use requests::{Request, Requests, Scope};
pub use threads::ThreadWork;
pub use uneven::Blocks;
pub use windows::{Access, Window};

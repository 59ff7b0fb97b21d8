//! Any MPI library, found and called at run time: one binary runs under whatever `mpiexec` started
//! it.
//!
//! ```no_run
//! # fn main() -> Result<(), weir_mpi::Error> {
//! let mpi = weir_mpi::Mpi::load()?;
//! let world = mpi.world()?;
//! let (next, before) = ((world.rank() + 1) % world.size(), (world.rank() + world.size() - 1) % world.size());
//! let (out, mut inbox) = ([7; 64], [0; 64]);
//! let mut requests = mpi.requests(2);
//! requests.scope(|scope| {
//!     let receive = scope.receive(&world, &mut inbox, before, 0)?;
//!     scope.send(&world, &out, next, 0)?;
//!     println!("{} bytes", scope.wait(receive)?.bytes()?);
//!     scope.wait_all()
//! })?;
//! mpi.finalize()
//! # }
//! ```
//!
//! * [`find`]: which MPI the launcher of this process belongs to, and where its library is.
//! * [`Mpi`], [`Communicator`], [`Requests`]: the calls. A call costs what MPI's does and a few
//!   nanoseconds: the functions are resolved once, nothing is allocated, and which ABI it is costs
//!   a branch that always goes one way.
//! * [`Window`], [`Persistent`], [`Inbox`]: memory of other ranks, exchanges that are set up once,
//!   and receives that stand posted.
//! * [`Mpi::threads`]: several threads at once, where the library gives [`Level::Multiple`].
//! * [`ended`]: a launcher and its processes, ended in time.
//! * [`elf`]: what a program or library says it needs and is.
//!
//! Three ABIs are known: MPICH's, Open MPI's and that of the MPI 5.0 standard. Whose a library is
//! is read from its SONAME and symbols. Counts are `int`s, as in all MPIs before 4.0; longer
//! messages are refused.

#![deny(unsafe_code)]

pub mod elf;
mod error;
pub mod find;
mod launched;
mod level;
mod message;
mod sys;

pub use error::Error;
pub use launched::ended;
pub use level::Level;
pub use message::{Reduction, Source, Tag};
pub use sys::abi::Abi;
pub use sys::{
    Access, Blocks, Communicator, Inbox, Mpi, Persistent, Request, Requests, Scope, Status, ThreadWork, Window,
    load_only,
};

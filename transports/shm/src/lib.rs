//! Shared memory between two endpoints of one host and one user (spec/shm.md): found by abstract
//! Unix sockets, proved by the job's key, rings of records in a sealed memfd, large payload by one
//! copy from the peer's memory, waking through the socket. And boards: memory of all processes of a
//! program on one host, by which they meet.
//!
//! This crate moves records. What they mean is the engine's affair. [`Shm`] is one endpoint with
//! all its peers.
//!
//! `unsafe` is in `sys` (system calls), `mapped` and `place` (where rings and boards lie) and
//! `bytes` (copying what others may change).
//!
//! The rings and boards are model-checked (`cargo xtask test` does it), and the same code on
//! ordinary memory is made so that Miri can run it:
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p weir-shm --release --test loom --target-dir target/loom
//! cargo +nightly miri test -p weir-shm --test ring
//! ```

pub mod board;
pub mod bytes;
pub mod ring;
mod sync;

#[cfg(not(loom))]
mod counters;
#[cfg(not(loom))]
mod endpoint;
#[cfg(not(loom))]
pub mod handshake;
#[cfg(all(test, not(loom)))]
mod hostile_tests;
#[cfg(not(loom))]
mod mapped;
#[cfg(not(loom))]
mod peers;
#[cfg(not(loom))]
mod place;
#[cfg(not(loom))]
mod pull;
#[cfg(not(loom))]
mod service;
#[cfg(not(loom))]
mod strangers;
#[cfg(not(loom))]
mod sys;
#[cfg(not(loom))]
mod tags;
#[cfg(not(loom))]
mod why;

#[cfg(not(loom))]
pub use counters::ShmCounters;
#[cfg(not(loom))]
pub use endpoint::{Config, ConnectError, Event, RecvError, SendError, Shm};
#[cfg(not(loom))]
pub use mapped::{MEMORY_BYTES, MappedRing, RING_BYTES};
#[cfg(not(loom))]
pub use peers::{PeerIx, State};
#[cfg(not(loom))]
pub use place::{BoardMemory, Made, NoBoard, Ticket, join as join_board, make as make_board};
#[cfg(not(loom))]
pub use sys::RemotePiece;
#[cfg(not(loom))]
pub use why::{NoPull, OpenError, Why};

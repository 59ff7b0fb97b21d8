//! Operations on messages from call to completion: sends (eager and by rendezvous), receives,
//! remote reads and writes, looking before receiving, cancelling, and what may be held for peers.
//!
//! Pure: no clock, socket or thread, and no memory of its caller but by the trait [`Memory`].
//! [`Messages`] takes operations, datagrams and time, and gives datagrams, completions and the next
//! timeout. The engine drives it over sockets and real memory, the simulator over its network and
//! patterns, the fuzz targets over whatever comes.
//!
//! Contract: after each call that changes it, [`Messages::poll_transmit`] until it returns `None`,
//! and take the completions; then sleep until something arrives or [`Messages::next_timeout`] has
//! passed. The same calls give the same results, bit by bit.
//!
//! # Modules
//!
//! `use` lines point upwards in this list only:
//!
//! | module | holds |
//! |---|---|
//! | `memory`, `api`, `notice`, `keys` | the words spoken with the caller, and the names of things |
//! | `counters`, `limits`, `budget`, `config`, `source` | what is counted, what may be under way and what held, the settings, payloads and buffers |
//! | `sends`, `receives`, `arrivals`, `rndvs`, `regions`, `completions`, `peers` | one table each |
//! | `asked` | messages that a caller takes as they come |
//! | `session`, `lives` | the protocol below; what the trace knows of requests |
//! | `messages` | all of these together |
//! | `trace` | the lines of the trace |
//! | `answers`, `ending`, `noticed` | answering a peer, ending an operation, notices of remote writes |
//! | `delivering`, `binding` | the end of a message that has arrived; the receive that takes it |
//! | `receiving`, `peek` | posting, cancelling, placing; looking before receiving |
//! | `straight` | short messages that skip the tables |
//! | `sending`, `remote`, `atomics`, `control` | sends and what peers answer to them; remote memory begun here; atomic operations, begun and executed; control messages of peers |
//! | `events` | what the protocol reports, and the death of a peer |
//! | `loopback` | the carrier for what this endpoint sends to itself |
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod answers;
mod api;
mod arrivals;
mod asked;
mod atomics;
mod binding;
mod budget;
mod completions;
mod config;
mod control;
mod counters;
mod delivering;
mod ending;
mod events;
mod keys;
mod limits;
mod lives;
mod loopback;
mod memory;
mod messages;
mod notice;
mod noticed;
mod peek;
mod peers;
mod receives;
mod receiving;
mod regions;
mod remote;
mod rndvs;
mod sending;
mod sends;
mod session;
mod source;
mod straight;
#[cfg(test)]
mod testing;
mod trace;

pub use api::*;
pub use asked::{Handed, Wanted};
pub use atomics::AMO_COUNT_MAX;
pub use config::{Config, MultiOrder};
pub use counters::{Counters, StreamCounters, Streams, Totals};
pub use memory::Memory;
pub use messages::Messages;
pub use notice::{Notice, Sink, Step};
pub use receiving::Room;
pub use sending::INJECT_BYTES;
pub use source::{INLINE_BYTES, Source};
pub use straight::Straight;

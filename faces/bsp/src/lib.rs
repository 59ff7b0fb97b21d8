//! BSPlib on Weir: `libweir-bsp.so`, whose C interface is `include/bsp.h` and whose rules are
//! `spec/bsp.md`.
//!
//! | module | holds |
//! |---|---|
//! | `entry` | the symbols that C calls; arguments are checked there |
//! | `process` | one process from `bsp_begin` to `bsp_end` |
//! | `superstep`, `effects`, `writing` | the end of a superstep; what it does to memory; puts that have come |
//! | `counts`, `forwarding` | how heads come to many processes in rounds: pure; on the wire |
//! | `meeting` | how processes of one host meet there, without messages |
//! | `lending` | unbuffered puts there, from memory to memory |
//! | `pacing` | what the engine is told of a superstep |
//! | `checking`, `conflicts` | check mode: which puts and gets meet; finding them is pure |
//! | `ledger`, `collecting` | what each superstep cost, and how it comes to files |
//! | `settings` | `WEIR_BSP_*` |
//! | `tuning` | what `weir tune` changes while it runs |
//! | `wire` | its messages, over the engine |
//! | `registry`, `packing`, `head` | registered memory; what is asked for, packed; the heads of messages. Pure, without `unsafe` |
//! | `short` | short puts until they are packed, a block at a time |
//! | `queue`, `aligned` | messages of `bsp_send` that have come; memory that messages come into |
//! | `bootstrap` | who takes part |
//! | `fail` | the end of all when one of them fails |
//! | `place` | lines of the program |

mod aligned;
mod bootstrap;
mod checking;
mod collecting;
pub mod conflicts;
pub mod counts;
mod effects;
mod entry;
mod fail;
mod forwarding;
pub mod head;
pub mod ledger;
mod lending;
mod meeting;
mod pacing;
pub mod packing;
mod place;
mod process;
mod queue;
pub mod registry;
pub mod settings;
pub mod short;
mod superstep;
pub mod tuning;
mod wire;
pub mod writing;

pub use entry::*;

//! BSPlib on Weir: `libweir-bsp.so`, whose C interface is `include/bsp.h` and whose rules are `spec/bsp.md`.
//!
//! | module | holds |
//! |---|---|
//! | `entry` | the symbols that C calls; arguments are checked there |
//! | `process` | one process from `bsp_begin` to `bsp_end` |
//! | `superstep` | the end of a superstep |
//! | `wire` | its messages, over the engine |
//! | `registry`, `packing`, `head` | registered memory; what is asked for, packed; the heads of messages. Pure, without `unsafe` |
//! | `queue`, `aligned` | messages of `bsp_send` that have come; memory that messages come into |
//! | `bootstrap` | who takes part |
//! | `fail` | the end of all when one of them fails |
//! | `place` | lines of the program |

mod aligned;
mod bootstrap;
mod entry;
mod fail;
pub mod head;
pub mod packing;
mod place;
mod process;
mod queue;
pub mod registry;
mod superstep;
mod wire;

pub use entry::*;

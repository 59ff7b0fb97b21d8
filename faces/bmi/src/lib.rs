//! BMI, the Buffered Message Interface: client/server messages for parallel file systems and remote
//! procedure calls, over Weir and over the TCP wire of the originals (`spec/bmi.md`,
//! `include/bmi.h`).
//!
//! # Modules
//!
//! `use` lines point upwards in this list only:
//!
//! | module | holds |
//! |---|---|
//! | `codes`, `log` | numbers of the interface; lines for people |
//! | `tcp::codec` | headers of the TCP wire, pure |
//! | `memory`, `settings` | memory that programs are given; what can be set |
//! | `addresses`, `ops`, `inbox` | one table each: addresses, operations and contexts, unexpected messages |
//! | `tables` | these together, which methods share |
//! | `weir`, `tcp` | the two methods |
//! | `module` | methods from outside, loaded |
//! | `method`, `library` | whichever method it is; all of the library, for one thread at a time |
//! | `instance` | the one library of the process: locking, sleeping, fork |
//! | `support` | what modules are made of: operation lists, ids, allocators, logging |
//! | `entry` | the functions of C |

pub mod addresses;
#[cfg(feature = "bare")]
pub mod bare;
pub mod codes;
pub mod entry;
mod inbox;
mod instance;
mod library;
mod log;
mod memory;
mod method;
mod module;
pub mod ops;
#[cfg(test)]
mod scenarios;
mod settings;
pub mod support;
mod tables;
pub mod tcp;
mod weir;

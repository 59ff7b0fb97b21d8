//! `libweir-fi.so`: the libfabric provider named `weir`.
//!
//! libfabric loads the library (`FI_PROVIDER_PATH`), calls [`fi_prov_ini`] and from then on goes
//! through tables of functions. This face translates: libfabric's objects, addresses, flags and
//! completion formats on one side, one engine per endpoint on the other. It owns no protocol and no
//! matching.
//!
//! | file | subject |
//! |---|---|
//! | `abi` | the C interface as `repr(C)` types |
//! | `provider`, `info`, `params`, `host`, `lines`, `news` | loading, what is offered, parameters, libfabric's log, lines for people |
//! | `fabric`, `domain`, `domain_calls`, `mr`, `av`, `eq` | fabric, domain, memory regions, address vectors, event queues |
//! | `cq`, `cntr`, `wait` | completion queues, counters, sleeping |
//! | `ep_core`, `ep`, `ep_calls` | endpoints: what they share with their queues, the object, its making and setting |
//! | `transfer`, `msg`, `tagged`, `rma`, `atomic` | data transfer |
//! | `handle`, `guard` | objects as C names them, errors and panics at the border |
//! | `table`, `maybe_lock`, `addr` | small tools |

#[allow(dead_code, reason = "the tables and enumerations are complete even where this face uses part of them")]
mod abi;
mod addr;
mod atomic;
mod av;
mod cntr;
mod cq;
mod domain;
mod domain_calls;
mod ep;
mod ep_calls;
mod ep_core;
mod eq;
mod fabric;
mod guard;
mod handle;
mod host;
mod info;
mod kept;
mod libraries;
mod lines;
mod maybe_lock;
mod mr;
mod msg;
mod news;
mod params;
mod provider;
mod rma;
mod table;
mod tagged;
#[cfg(test)]
mod tests;
mod transfer;
mod wait;

pub use provider::{fi_prov_ini, weir_carried, weir_version};

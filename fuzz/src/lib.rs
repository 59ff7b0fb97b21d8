//! What the fuzz targets do, apart from the engine that feeds them, so that the same code also runs
//! as ordinary tests on random inputs (`tests/random.rs`).

extern crate alloc;

pub mod annotate;
pub mod annotations;
pub mod bmi;
pub mod bmi_tcp;
pub mod bmi_weir;
pub mod bsp;
pub mod bsp_files;
pub mod bulk;
pub mod distribution;
pub mod driver;
pub mod engine;
pub mod engine_bulk;
pub mod forge;
pub mod guarded;
pub mod hostile;
pub mod input;
pub mod launch;
pub mod matching;
pub mod pair;
pub mod parsers;
pub mod pattern;
pub mod predict;
pub mod record;
mod row;
pub mod sctp;
pub mod shm;
pub mod upper;
pub mod xdp;

/// Where the matcher's reference model, borrowed from its tests, looks for its types.
mod types {
    pub(crate) use weir_match::*;
}

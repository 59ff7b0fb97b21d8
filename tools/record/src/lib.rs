//! From a run to a model: records the MPI calls of a small run by a library that is preloaded
//! (PMPI), and makes of them a program in the directive language (`spec/annotations.md`) whose
//! number of processes can be changed where the calls show how.
//!
//! * [`record`]: runs a program with the recorder (`recorder.c`), reads what it wrote
//! * [`log`]: the files (`spec/recording.md`)
//! * [`runs`]: recorded calls become [`acts`], what depended on the run is told
//! * [`fold`], [`split`]: loops are found; [`merge`]: all processes become one program
//! * [`rules`], [`times`]: numbers become expressions, sets of processes conditions, times laws
//! * [`emit`]: the text; [`check`]: proves that it repeats what was recorded
//! * [`model`]: all of these
#![forbid(unsafe_code)]

pub mod acts;
pub mod check;
pub mod cli;
pub mod emit;
pub mod error;
pub mod fold;
pub mod lines;
pub mod log;
pub mod merge;
pub mod model;
pub mod record;
pub mod rules;
pub mod runs;
pub mod split;
pub mod times;

pub use error::Error;

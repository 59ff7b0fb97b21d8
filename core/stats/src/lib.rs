//! Histograms, empirical and fitted distributions, intervals, tests: the statistics of measured
//! durations, pure.
//!
//! Values are `f64` in the caller's unit (nanoseconds in Weir). Whatever is random takes a seeded
//! generator ([`Random`]), so that every result repeats bit by bit. No data and no argument makes a
//! function panic: what cannot be answered is an [`Error`].
//!
//! * [`Sample`], [`Summary`], [`quantile_interval`], [`bootstrap_interval`]: describing one cell
//! * [`Recorder`]: the same in constant memory while samples come in
//! * [`outliers`], [`warmup`], [`stopping`], [`independence`]: judging the samples
//! * [`compare`], [`means`]: two runs against each other
//! * [`Distribution`], [`fit`], [`goodness`], [`choice`]: families with a location shift
//! * [`bins`]: histograms for plots, and sampling from them
#![forbid(unsafe_code)]

mod error;
mod random;
mod recorder;
mod reservoir;
mod sample;
mod search;
mod shape;
mod special;
mod summary;

pub mod bins;
pub mod choice;
pub mod compare;
mod distribution;
pub mod fit;
pub mod goodness;
pub mod independence;
pub mod means;
pub mod outliers;
pub mod stopping;
pub mod warmup;

pub use distribution::{Distribution, Family};
pub use error::Error;
pub use random::{Random, open_unit, seeded};
pub use recorder::{Moments, Recorder, RecorderConfig, histogram_from_base64, histogram_from_v2_deflate};
pub use reservoir::Slots;
pub use sample::Sample;
pub use summary::{CONFIDENCE, Interval, Summary, bootstrap_interval, dependent_quantile_interval, quantile_interval};

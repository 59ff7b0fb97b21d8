//! The virtual parallel machine: runs a [`weir_annotations::Model`] in virtual time on a
//! [`Machine`] and says how long it takes, where the time is lost, and whether it deadlocks
//! (`spec/prediction.md`).
//!
//! Pure: no file, clock or thread. One [`evaluate`] is one possible run; the same model, machine,
//! options and seed give the same [`Outcome`] everywhere. Replicas are runs with other seeds, which
//! the caller may make in parallel ([`summarise`] puts them together).
//!
//! ```
//! use weir_predict::{Machine, Options, Time, evaluate};
//! # use weir_annotations::{expr::Expr, place::Place, program::*};
//! # let place = Place::default();
//! # let half = Time::from_us(500.0);
//! # let serial = Serial { times: vec![(None, weir_annotations::program::Time { law: Law::Fixed(Expr::int(1)), unit_ns: 1e6 }, place)] };
//! # let ops = vec![Op { kind: OpKind::Serial(Box::new(serial)), place }, Op { kind: OpKind::End, place }];
//! # let model = Model { files: [].into(), ops, slots: vec![Default::default(); 2], slot_names: vec![], numprocs: 4,
//! #     slowness: vec![], streams: vec![], requests: vec![], fields: vec![], network: None };
//! let machine = Machine::simplest(Time::from_us(50.0), 100e6);
//! let outcome = evaluate(&model, &machine, &Options::default(), 1);
//! assert_eq!(outcome.time, half + half);
//! ```
#![forbid(unsafe_code)]

// So that the models of the crate's tests can be used in its own modules.
#[cfg(test)]
extern crate self as weir_predict;

mod calibrate;
mod flows;
mod hypothetical;
mod loss;
pub mod machine;
mod matching;
mod network;
pub mod observe;
mod options;
mod outcome;
mod pattern;
mod published;
mod quantiles;
mod summary;
mod time;
mod tour;
mod vm;

pub use calibrate::{CalibrationError, Cell, USUAL_EAGER_BYTES, Wishes, calibrate};
pub use hypothetical::{DescriptionError, hypothetical};
pub use loss::{ByCause, CAUSES, Cause, Losses};
pub use machine::{Draw, Machine};
pub use observe::{Nobody, Observer};
pub use options::{Options, USUAL_BUDGET, USUAL_UNDER_WAY, USUAL_UNDER_WAY_EACH};
pub use outcome::{
    Blocked, Crowded, Deadlock, Failure, LISTED, Missing, NO_OP, Outcome, Skipped, Unreceived, Verdict, WaitsFor,
};
pub use published::{PUBLISHED, published};
pub use quantiles::Quantiles;
pub use summary::{Summary, summarise};
pub use time::Time;
pub use vm::{MOST_PROCESSES, evaluate, evaluate_observed};

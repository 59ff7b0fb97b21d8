//! Offset and drift models, the global clock and its error bounds.
//!
//! Pure: no clock, socket or thread. The caller reads clocks and moves messages; this crate says
//! which probes to make, turns their times into models, and converts local times to the root's with
//! a bound on the error. All times are nanoseconds in `i64` (each clock has an origin of its own),
//! all lengths and errors nanoseconds in `f64`.
//!
//! # How a program uses it
//!
//! 1. *Local clock.* [`Ticks::calibrate`] fits a counter to the monotonic clock, or refuses it.
//!    Everything else speaks of local nanoseconds, so a program without a good counter passes
//!    monotonic nanoseconds as they are.
//! 2. *Synchronise.* [`Schedule::new`] (or [`Schedule::with_domains`], where ranks share a clock)
//!    gives who measures against whom in which round. Each rank builds a [`Participant`] and either
//!    obeys its [`Action`]s or hands it to [`synchronise`] with an [`Exchange`] that moves the
//!    messages. The result is a [`Model`]: local to global.
//! 3. *Convert.* Put the model of each synchronisation into a [`Timeline`] and convert after the
//!    last one: [`Timeline::at`] gives a [`Reading`] (global time and error bound),
//!    [`Timeline::duration`] the length between two local times of one rank, [`Reading::until`] the
//!    length between readings of two ranks.
//! 4. *Start together.* [`Windows`] plans the global instants at which all ranks start, and widens
//!    them when missed.
//!
//! ```
//! use weir_clock::{Assumptions, Fit, Probe, Timeline};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A remote clock 5 s ahead, 10 us each way, probed in 3 batches of 30; made up here, an `Exchange` measures it.
//! let probe = |t: i64| Probe { send_ns: t, remote_ns: t + 10_000 + 5_000_000_000, receive_ns: t + 20_000 };
//! let batch = |from: i64| -> Vec<Probe> { (0..30).map(|i| probe(from + i * 25_000)).collect() };
//! let assumptions = Assumptions::default();
//! let fit = Fit::from_batches(&[batch(0), batch(10_000_000), batch(20_000_000)], &assumptions)?;
//!
//! // A synchronisation before the run and one after it; times between them are interpolated.
//! let mut clock = Timeline::new(fit.model, &assumptions);
//! let later = Fit::from_batches(&[batch(1_000_000_000), batch(1_010_000_000)], &assumptions)?;
//! clock.push(later.model)?;
//! let reading = clock.at(500_000_000);
//! assert!((reading.global_ns - 5_500_000_000).abs() as f64 <= reading.error_ns);
//! // Floors that differ by a tenth of 20 us at most shift by 1 us at most; little comes on top.
//! assert!(reading.error_ns < 1_500.0);
//! # Ok(())
//! # }
//! ```
//!
//! # Error model
//!
//! What is measured: for each probe the send and receive times on the prober's clock and a time on
//! the remote clock. What is wanted: `o(t)`, remote clock minus own clock, at own time `t`. One
//! probe proves, with no assumption at all, `remote - receive <= o <= remote - send` (Cristian
//! 1989). An [`Envelope`](Estimate::envelope) intersects these intervals over a batch (as SKaMPI
//! does; Worsch, Reussner & Augustin 2002). Its *width* is the least delay seen forth plus the
//! least delay seen back; half of it is the *hard* bound.
//!
//! Everything tighter rests on what [`Assumptions`] states, and holds only as far as it does:
//!
//! * **asymmetry**: the least possible delays forth and back, `m1` and `m2`, differ by at most this
//!   share of their sum. This error is the same for all probes between two ranks, so it does not
//!   touch drift; it is carried apart as [`Bound::fixed_ns`]. 1 means nothing is assumed.
//! * **queueing**: delay above `m1 + m2` cannot be told from asymmetry in one probe, but in many:
//!   the excess of a batch's width over the smallest width of all batches was seen, and how far
//!   that smallest may still be above the floor is told from the spacing of the smallest delays.
//!   This part is statistics, see [`Assumptions::floor_bits`]; queues that stand through all
//!   batches look like a longer path and fall under asymmetry.
//! * **honesty**: remote times were read when they say. A wrong one that contradicts the others is
//!   refused, and warns of wrong ones that do not: from then on one in each batch and direction may
//!   be wrong.
//! * **drift**: the rates of two clocks differ by at most `max_drift`, and that difference changes
//!   by at most `wander_per_s` a second.
//!
//! A fitted line is then judged, not trusted: all lines (truths) that pass through all the offset
//! intervals are bounded by linear programming in two variables (convex-hull method of Duda,
//! Harrus, Haddad & Bernard 1987; Moon, Skelly & Towsley 1999), and the farthest of them is the
//! line's error, within its span and beyond it. Along a tree of references the bounds add
//! ([`Model::then`]).
//!
//! # Sources
//!
//! * Cristian, "Probabilistic clock synchronization", Distributed Computing 3 (1989).
//! * Worsch, Reussner & Augustin, "On benchmarking collective MPI operations", EuroPVM/MPI 2002
//!   (SKaMPI; windows).
//! * Hunold & Carpen-Amarie, "Hierarchical clock synchronization in MPI", IEEE CLUSTER 2018 (HCA3).
//! * Maillet & Tron, "On efficiently implementing global time for performance evaluation on
//!   multiprocessor systems", JPDC 28 (1995), and Grove, "Performance modelling of message-passing
//!   parallel programs", PhD thesis, Adelaide 2003, section 4.3.2 (stop rule, interpolation between
//!   a synchronisation before and one after).
//! * Duda, Harrus, Haddad & Bernard, "Estimating global time in distributed systems", ICDCS 1987.
//! * Moon, Skelly & Towsley, "Estimation and removal of clock skew from network delay
//!   measurements", INFOCOM 1999.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod feasible;
mod fit;
mod hca3;
mod model;
mod number;
mod probe;
mod schedule;
mod ticks;
mod timeline;
mod window;

pub use fit::{Fit, FitError};
pub use hca3::{Action, Effort, Exchange, Participant, SyncError, synchronise};
pub use model::{Bound, MODEL_BYTES, Model, ModelError, Reading, Span};
pub use number::LIMIT_NS;
pub use probe::{Assumptions, Estimate, MinimumFilter, Probe, Rate, StopRule, Verdict};
pub use schedule::{Kind, Schedule, Step};
pub use ticks::{TickError, TickPair, Ticks};
pub use timeline::{Timeline, TimelineError};
pub use window::{Arrival, Outcome, Plan, WindowConfig, Windows};

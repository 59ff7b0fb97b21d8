//! The plots of one run, and those of two.

mod against;
pub mod bandwidth;
pub mod between;
pub mod clock;
pub mod compare;
pub mod cumulative;
pub mod fits;
pub mod overview;
mod parts;
pub mod ratios;
pub mod ridgeline;
pub mod sizes;
pub mod strays;
pub mod surface;

pub use parts::{Detail, drawn_levels, sentence};

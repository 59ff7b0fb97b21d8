//! What can be wrong with data or arguments. Nothing here panics.

use thiserror::Error;

/// Why a result could not be given. One line each, with the value and its place.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum Error {
    /// A value is NaN or infinite.
    #[error("value {index} is {value}: samples must be finite numbers")]
    NotFinite {
        /// Place of the value in the input, from 0.
        index: usize,
        /// The value.
        value: f64,
    },
    /// A duration is below zero.
    #[error("value {index} is {value}: a duration cannot be negative (differences belong in Sample::signed)")]
    Negative {
        /// Place of the value in the input, from 0.
        index: usize,
        /// The value.
        value: f64,
    },
    /// There are too few values for what was asked.
    #[error("{have} values where at least {need} are needed")]
    TooFew {
        /// Values there are.
        have: usize,
        /// Values needed.
        need: usize,
    },
    /// All values are equal, so that no shape, width or scale can be found.
    #[error("all {count} values equal {value}: there is no spread to work with")]
    NoSpread {
        /// How many values there are.
        count: usize,
        /// The one value.
        value: f64,
    },
    /// An argument is outside what the function is defined for.
    #[error("{name} is {value}: must be {need}")]
    Argument {
        /// Name of the argument.
        name: &'static str,
        /// What was given.
        value: f64,
        /// What it must be.
        need: &'static str,
    },
    /// No parameters with a finite likelihood were found.
    #[error("no {family} fits these {count} values")]
    NoFit {
        /// Name of the family.
        family: &'static str,
        /// How many values there are.
        count: usize,
    },
    /// Stored bytes are not what they should be.
    #[error("stored histogram cannot be read: {0}")]
    Corrupt(String),
}

/// Checks that `value` satisfies `good`, else an [`Error::Argument`].
pub(crate) fn argument(name: &'static str, value: f64, good: bool, need: &'static str) -> Result<(), Error> {
    if good { Ok(()) } else { Err(Error::Argument { name, value, need }) }
}

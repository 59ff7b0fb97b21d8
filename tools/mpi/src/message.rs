//! How messages are named: where from, under which tag.

/// Whose message a receive takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Anybody's (`MPI_ANY_SOURCE`).
    Any,
    /// This rank's.
    Rank(usize),
}

impl From<usize> for Source {
    fn from(rank: usize) -> Self {
        Self::Rank(rank)
    }
}

/// Which tag a receive takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// Any (`MPI_ANY_TAG`).
    Any,
    /// This one: from 0 to what the MPI allows, at least 32767.
    Is(i32),
}

impl From<i32> for Tag {
    fn from(tag: i32) -> Self {
        Self::Is(tag)
    }
}

/// How numbers are combined by a reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// `MPI_SUM`.
    Sum,
    /// `MPI_MIN`.
    Min,
    /// `MPI_MAX`.
    Max,
}

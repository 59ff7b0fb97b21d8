//! What threads of a process may do with MPI.

/// A level of threads (MPI 4.1, 11.6.2), the lowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// There is one thread (`MPI_THREAD_SINGLE`).
    Single,
    /// One of them calls MPI, that which initialised it (`MPI_THREAD_FUNNELED`).
    Funneled,
    /// All may, one at a time (`MPI_THREAD_SERIALIZED`).
    Serialized,
    /// All may at once (`MPI_THREAD_MULTIPLE`).
    Multiple,
}

impl Level {
    /// All, rising.
    pub const ALL: [Level; 4] = [Level::Single, Level::Funneled, Level::Serialized, Level::Multiple];

    /// Its name in the standard, without what all have in common, in small letters.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Level::Single => "single",
            Level::Funneled => "funneled",
            Level::Serialized => "serialized",
            Level::Multiple => "multiple",
        }
    }
}

impl std::fmt::Display for Level {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MPI_THREAD_{}", self.word().to_uppercase())
    }
}

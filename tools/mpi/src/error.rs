//! What can go wrong, each as one line for people.

use std::path::PathBuf;

/// Why no MPI could be had, or why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No library was found; says where it was looked for.
    #[error("no MPI library found: {0}")]
    NotFound(String),
    /// Libraries of several MPIs were found, and nothing tells which one is meant.
    #[error("{0}")]
    Ambiguous(String),
    /// The launcher is one MPI's, the library another's.
    #[error("{0}")]
    Mixed(String),
    /// The dynamic linker refused the library.
    #[error("cannot load {}: {cause}", .library.display())]
    Load {
        /// The file.
        library: PathBuf,
        /// The linker's words.
        cause: String,
    },
    /// A library whose ABI is not one of those known here.
    #[error("{}: {cause}", .library.display())]
    Unknown {
        /// The file.
        library: PathBuf,
        /// What was found instead of what.
        cause: String,
    },
    /// The launcher started several processes, but MPI took each for a job of its own.
    #[error("{0}")]
    Singleton(String),
    /// Several threads were to call MPI at once, and the library does not allow it.
    #[error("several threads at once need MPI_THREAD_MULTIPLE, and {library} gives {given}")]
    Threads {
        /// What the library says it is.
        library: String,
        /// What it gives.
        given: crate::Level,
    },
    /// A process can initialise MPI once.
    #[error("MPI was already initialised by this process")]
    AlreadyLoaded,
    /// The operation came after [`Mpi::finalize`](crate::Mpi::finalize).
    #[error("{0} after MPI_Finalize")]
    Finalized(&'static str),
    /// MPI was to end while operations may be under way.
    #[error("MPI_Finalize within a scope of requests")]
    Open,
    /// MPI counts in `int`; longer messages are refused rather than cut.
    #[error("a message of {0} bytes: MPI's calls take at most 2147483647 at once")]
    TooLong(usize),
    /// No such rank in the communicator.
    #[error("rank {rank} does not exist: the communicator has {size}")]
    NoSuchRank {
        /// The rank that was named.
        rank: usize,
        /// Ranks there are.
        size: usize,
    },
    /// A tag or colour that some MPIs would take for a wildcard.
    #[error("{what} {value}: has to be 0 or more")]
    Negative {
        /// What the number is for.
        what: &'static str,
        /// The number.
        value: i32,
    },
    /// A buffer that does not have the length the collective operation needs.
    #[error("{function}: a buffer of {is} elements where {wanted} are needed")]
    Length {
        /// The MPI function.
        function: &'static str,
        /// Its length in elements.
        is: usize,
        /// What it has to be.
        wanted: usize,
    },
    /// A place outside of the memory that all ranks made known.
    #[error("{function}: bytes {at} to {end} of another rank's window, which has {bytes}", end = .at.saturating_add(*.length))]
    OutOfWindow {
        /// The MPI function.
        function: &'static str,
        /// The first byte.
        at: usize,
        /// How many bytes.
        length: usize,
        /// Bytes of the shortest of the ranks' windows.
        bytes: usize,
    },
    /// More operations at once than the table has room for.
    #[error("more than {0} operations at once: the table of requests is full")]
    TooManyRequests(usize),
    /// The request has been waited for already, or belongs to another table.
    #[error("the request is no longer pending")]
    NotPending,
    /// MPI itself reported an error.
    #[error("{function}: {text}")]
    Failed {
        /// The MPI function.
        function: &'static str,
        /// The error class of the MPI in use (its number differs between MPIs).
        class: i32,
        /// MPI's own text.
        text: Box<str>,
    },
}

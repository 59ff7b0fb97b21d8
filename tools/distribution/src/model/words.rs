//! The words of the format: versions, states, operations, modes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The name in `run.json`'s field `format`.
pub const FORMAT: &str = "weir-distribution";

/// The version this crate writes.
pub const VERSION: Version = Version { major: 1, minor: 8 };

/// Version of the format, `"major.minor"` in the file. A reader refuses another major; a newer
/// minor only adds fields, which an older reader may leave unread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// Grows when old readers would misread.
    pub major: u32,
    /// Grows when fields are added.
    pub minor: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for Version {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let number = |part: &str| part.bytes().all(|b| b.is_ascii_digit()).then(|| part.parse().ok()).flatten();
        s.split_once('.')
            .and_then(|(major, minor)| Some(Self { major: number(major)?, minor: number(minor)? }))
            .ok_or_else(|| format!("`{s}` is not a version: expected two numbers, such as \"1.0\""))
    }
}

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Whether a run or a launch has all its cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Being written, or its writer was killed: the cells listed are whole.
    Running,
    /// Ended early but in order (interrupted, out of space, a rank failed): the cells listed are
    /// whole.
    Stopped,
    /// All that was asked for is here.
    #[default]
    Complete,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Running => "running",
            Self::Stopped => "stopped",
            Self::Complete => "complete",
        })
    }
}

/// Name of an operation, without its size mode: an open set, so that a reader meets operations of
/// its future.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Operation(pub String);

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        impl Operation {
            $($(#[$doc])* pub const $name: &'static str = $text;)*

            /// All names that this version of the format gives a meaning.
            pub const KNOWN: &'static [&'static str] = &[$($text),*];
        }
    };
}

operations! {
    /// Out and back between two ranks, halved; timed at the rank that began.
    PING_PONG = "ping-pong";
    /// The same, each message filled by the program before it leaves and compared when it has come.
    PING_PONG_FILLED = "ping-pong-filled";
    /// Blocking send: from the sender's start to the receiver's end, on the global clock.
    SEND = "send";
    /// Non-blocking send: from the sender's start to the receiver's end.
    ISEND = "isend";
    /// Non-blocking send until the sender may use its buffer again.
    ISENDLOCAL = "isendlocal";
    /// Send and receive in one call, at each of both ranks.
    SENDRECV = "sendrecv";
    /// Two independent streams of non-blocking sends in opposite directions.
    DUPLEX_ISEND = "duplex-isend";
    /// Receive and send begun at once, until both are complete, at each of both ranks.
    ISEND_IRECV = "isend-irecv";
    /// The same, and between their begin and their wait so much computing as the exchange takes
    /// alone; see [`crate::Overlap`].
    OVERLAP = "overlap";
    /// Receive and send by requests that are set up once.
    PERSISTENT = "persistent";
    /// A window of messages after the other without a pause; timed at the receiver.
    STREAM = "stream";
    /// Messages that leave at a steady pace, from the instant at which each was due to its receipt;
    /// see `parameters`.
    OPEN_LOOP = "open-loop";
    /// Written into the partner's memory, and flushed.
    PUT = "put";
    /// Read from the partner's memory, and flushed.
    GET = "get";
    /// Added to the partner's memory, and flushed.
    ACCUMULATE = "accumulate";
    /// A number added to one of the partner's, and what that was, flushed.
    FETCH_AND_OP = "fetch-and-op";
    /// Written into the partner's memory, and a fence.
    PUT_FENCE = "put-fence";
    /// Read from the partner's memory, and a fence.
    GET_FENCE = "get-fence";
    /// Added to the partner's memory, and a fence.
    ACCUMULATE_FENCE = "accumulate-fence";
    /// A number added to one of the partner's, and what that was, and a fence.
    FETCH_AND_OP_FENCE = "fetch-and-op-fence";
    /// Written into the partner's memory, which is locked for it.
    PUT_LOCK = "put-lock";
    /// Read from the partner's memory, which is locked for it.
    GET_LOCK = "get-lock";
    /// Added to the partner's memory, which is locked for it.
    ACCUMULATE_LOCK = "accumulate-lock";
    /// A number added to one of the partner's, and what that was; its memory is locked for it.
    FETCH_AND_OP_LOCK = "fetch-and-op-lock";
    /// Barrier.
    BARRIER = "barrier";
    /// Broadcast.
    BCAST = "bcast";
    /// Gather.
    GATHER = "gather";
    /// Scatter.
    SCATTER = "scatter";
    /// Gather to all.
    ALLGATHER = "allgather";
    /// All to all.
    ALLTOALL = "alltoall";
    /// Reduce.
    REDUCE = "reduce";
    /// Reduce to all.
    ALLREDUCE = "allreduce";
    /// A window of messages without waiting for each; see `parameters`.
    MESSAGE_RATE = "message-rate";
    /// Gather by lengths of each rank.
    GATHERV = "gatherv";
    /// Scatter by lengths of each rank.
    SCATTERV = "scatterv";
    /// Gather to all by lengths of each rank.
    ALLGATHERV = "allgatherv";
    /// All to all by lengths of each rank.
    ALLTOALLV = "alltoallv";
    /// Reduce, of which each rank keeps a part.
    REDUCE_SCATTER = "reduce-scatter";
    /// Sums up to each rank.
    SCAN = "scan";
    /// Sums of the ranks below each.
    EXSCAN = "exscan";
    /// Barrier that is begun and then waited for.
    IBARRIER = "ibarrier";
    /// Reduce to all that is begun and then waited for.
    IALLREDUCE = "iallreduce";
    /// All others answer the first rank at once.
    INCAST = "incast";
    /// A server answers many clients at once; timed at each client.
    SERVERLOAD = "serverload";
    /// A pattern of messages of the user's own (`spec/pattern-format.md`); see `parameters`.
    PATTERN = "pattern";
    /// Kernel: a task farm.
    FARM = "farm";
    /// Kernel: bag of tasks.
    BOTS = "bots";
    /// Kernel: two-dimensional Fourier transform.
    FFT = "fft";
    /// Kernel: Jacobi iteration.
    JACOBI = "jacobi";
}

impl Operation {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Operation {
    fn from(name: &str) -> Self {
        Self(name.to_owned())
    }
}

impl PartialEq<str> for Operation {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl PartialEq<&str> for Operation {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What the size of a cell counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SizeMode {
    /// One message, or the buffer of an operation that has only one (bcast, reduce); 0 for a
    /// barrier.
    #[default]
    Message,
    /// What each process contributes; the total grows with the processes.
    Each,
    /// All processes together; each contributes its share.
    Total,
}

/// Where the partners of an operation were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Locality {
    /// Each message went to another node.
    #[default]
    Inter,
    /// No message left its node.
    Intra,
    /// Both kinds, as in a collective over several nodes with several ranks each; flag 8 tells
    /// samples apart.
    Mixed,
}

/// How the processes started each repetition together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StartSync {
    /// Not at all: repetitions follow each other.
    #[default]
    None,
    /// A barrier before each repetition; its skew is in the samples.
    Barrier,
    /// Each waited for an agreed instant of the global clock; who came late is flagged.
    Window,
}

/// Name of a family of distributions: an open set. The parameters of each are in the specification,
/// section "Families".
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Family(pub String);

impl Family {
    /// Normal: `mean_ns`, `stddev_ns`.
    pub const NORMAL: &'static str = "normal";
    /// Lognormal: `mu`, `sigma` of the logarithm of nanoseconds above the location.
    pub const LOGNORMAL: &'static str = "lognormal";
    /// Gamma: `shape`, `scale_ns`.
    pub const GAMMA: &'static str = "gamma";
    /// Weibull: `shape`, `scale_ns`.
    pub const WEIBULL: &'static str = "weibull";
    /// Pearson 5 (inverse gamma): `shape`, `scale_ns`.
    pub const PEARSON5: &'static str = "pearson5";
    /// Exponential: `scale_ns`.
    pub const EXPONENTIAL: &'static str = "exponential";
    /// Generalised gamma in Prentice's form: `mu`, `sigma`, `lambda`.
    pub const GENERALISED_GAMMA: &'static str = "generalised-gamma";
    /// All families that this version of the format gives a meaning.
    pub const KNOWN: &'static [&'static str] = &[
        Self::NORMAL,
        Self::LOGNORMAL,
        Self::GAMMA,
        Self::WEIBULL,
        Self::PEARSON5,
        Self::EXPONENTIAL,
        Self::GENERALISED_GAMMA,
    ];

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Family {
    fn from(name: &str) -> Self {
        Self(name.to_owned())
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

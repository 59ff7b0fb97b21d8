//! What can be measured, by name.

use std::fmt;

use weir_distribution::{Operation as Name, SizeMode};

use crate::error::{BenchError, Result};
use crate::exchange::Access;

/// An operation without its size mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Out and back between two ranks, halved.
    PingPong,
    /// The same, each message filled and compared by the program.
    PingPongFilled,
    /// Blocking send, end to end.
    Send,
    /// Non-blocking send, end to end.
    Isend,
    /// Non-blocking send until its buffer is free.
    IsendLocal,
    /// Both ways in one call.
    Sendrecv,
    /// Non-blocking sends both ways at once, end to end.
    DuplexIsend,
    /// A window of sends, per message.
    MessageRate,
    /// Receive and send begun at once, until both are complete.
    Exchange,
    /// The same, and so much computing between begin and wait as it takes alone.
    Overlap,
    /// Receive and send at once by persistent requests.
    Persistent,
    /// Windows of messages without a pause, seen by their receiver.
    Stream,
    /// Messages that leave at a steady pace, from the instant at which each was due.
    OpenLoop,
    /// One-sided: write, flushed.
    Put,
    /// One-sided: read, flushed.
    Get,
    /// One-sided: add numbers, flushed.
    Accumulate,
    /// One-sided: add a number and tell what was there, flushed.
    FetchAndOp,
    /// One-sided: write, and a fence.
    PutFence,
    /// One-sided: read, and a fence.
    GetFence,
    /// One-sided: add numbers, and a fence.
    AccumulateFence,
    /// One-sided: add a number and tell what was there, and a fence.
    FetchAndOpFence,
    /// One-sided: write, under a lock of its own.
    PutLock,
    /// One-sided: read, under a lock of its own.
    GetLock,
    /// One-sided: add numbers, under a lock of its own.
    AccumulateLock,
    /// One-sided: add a number and tell what was there, under a lock of its own.
    FetchAndOpLock,
    /// Barrier.
    Barrier,
    /// Broadcast.
    Bcast,
    /// Gather.
    Gather,
    /// Scatter.
    Scatter,
    /// Gather to all.
    Allgather,
    /// All to all.
    Alltoall,
    /// Reduce.
    Reduce,
    /// Reduce to all.
    Allreduce,
    /// Gather by lengths of each rank.
    Gatherv,
    /// Scatter by lengths of each rank.
    Scatterv,
    /// Gather to all by lengths of each rank.
    Allgatherv,
    /// All to all by lengths of each rank.
    Alltoallv,
    /// Reduce, of which each rank keeps a part.
    ReduceScatter,
    /// Sums up to each rank.
    Scan,
    /// Sums of the ranks below each.
    Exscan,
    /// Barrier that is begun and then waited for.
    Ibarrier,
    /// Reduce to all that is begun and then waited for.
    Iallreduce,
    /// All others answer the first rank at once.
    Incast,
    /// A pattern of messages of the user's own.
    Pattern,
    /// A server answers many clients at once: no operation of an MPI, but a benchmark of its own
    /// (`weir bench serverload`).
    Serverload,
    /// Kernel: a task farm.
    Farm,
    /// Kernel: bag of tasks.
    Bots,
    /// Kernel: two-dimensional Fourier transform.
    Fft,
    /// Kernel: Jacobi iteration.
    Jacobi,
}

/// An operation as the user names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Operation {
    /// What is done.
    pub kind: Kind,
    /// What its size counts.
    pub mode: SizeMode,
}

/// A set of operations that share their shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Between pairs of ranks.
    PointToPoint,
    /// Between pairs of ranks, of which one has nothing to do.
    OneSided,
    /// All ranks together.
    Collective,
    /// An application.
    Kernel,
}

/// Where the two ends of a sample are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    /// At one process.
    Local,
    /// Begins at the sender, ends at the receiver.
    OneWay,
}

const KINDS: [(Kind, &str); 48] = [
    (Kind::PingPong, Name::PING_PONG),
    (Kind::PingPongFilled, Name::PING_PONG_FILLED),
    (Kind::Send, Name::SEND),
    (Kind::Isend, Name::ISEND),
    (Kind::IsendLocal, Name::ISENDLOCAL),
    (Kind::Sendrecv, Name::SENDRECV),
    (Kind::DuplexIsend, Name::DUPLEX_ISEND),
    (Kind::MessageRate, Name::MESSAGE_RATE),
    (Kind::Exchange, Name::ISEND_IRECV),
    (Kind::Overlap, Name::OVERLAP),
    (Kind::Persistent, Name::PERSISTENT),
    (Kind::Stream, Name::STREAM),
    (Kind::OpenLoop, Name::OPEN_LOOP),
    (Kind::Put, Name::PUT),
    (Kind::Get, Name::GET),
    (Kind::Accumulate, Name::ACCUMULATE),
    (Kind::FetchAndOp, Name::FETCH_AND_OP),
    (Kind::PutFence, Name::PUT_FENCE),
    (Kind::GetFence, Name::GET_FENCE),
    (Kind::AccumulateFence, Name::ACCUMULATE_FENCE),
    (Kind::FetchAndOpFence, Name::FETCH_AND_OP_FENCE),
    (Kind::PutLock, Name::PUT_LOCK),
    (Kind::GetLock, Name::GET_LOCK),
    (Kind::AccumulateLock, Name::ACCUMULATE_LOCK),
    (Kind::FetchAndOpLock, Name::FETCH_AND_OP_LOCK),
    (Kind::Barrier, Name::BARRIER),
    (Kind::Bcast, Name::BCAST),
    (Kind::Gather, Name::GATHER),
    (Kind::Scatter, Name::SCATTER),
    (Kind::Allgather, Name::ALLGATHER),
    (Kind::Alltoall, Name::ALLTOALL),
    (Kind::Reduce, Name::REDUCE),
    (Kind::Allreduce, Name::ALLREDUCE),
    (Kind::Gatherv, Name::GATHERV),
    (Kind::Scatterv, Name::SCATTERV),
    (Kind::Allgatherv, Name::ALLGATHERV),
    (Kind::Alltoallv, Name::ALLTOALLV),
    (Kind::ReduceScatter, Name::REDUCE_SCATTER),
    (Kind::Scan, Name::SCAN),
    (Kind::Exscan, Name::EXSCAN),
    (Kind::Ibarrier, Name::IBARRIER),
    (Kind::Iallreduce, Name::IALLREDUCE),
    (Kind::Incast, Name::INCAST),
    (Kind::Pattern, Name::PATTERN),
    (Kind::Farm, Name::FARM),
    (Kind::Bots, Name::BOTS),
    (Kind::Fft, Name::FFT),
    (Kind::Jacobi, Name::JACOBI),
];

/// Names that stand for several operations.
const SETS: [&str; 6] = ["default", "point-to-point", "one-sided", "collectives", "kernels", "all"];

/// Words from this similarity on (Jaro and Winkler's, 1 is equal) are taken for misspelt ones.
const ALIKE: f64 = 0.75;

impl Kind {
    /// The name in the distribution format.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Serverload => Name::SERVERLOAD,
            _ => KINDS.iter().find(|(kind, _)| *kind == self).map_or("", |(_, name)| name),
        }
    }

    /// What is timed, in a few words.
    #[must_use]
    pub fn description(self) -> &'static str {
        match self {
            Kind::PingPong => "out and back between two ranks; times are half of the round trip",
            Kind::PingPongFilled => {
                "ping-pong of messages that are filled before they leave and compared when they have come, as programs do"
            }
            Kind::Send => "blocking send, from its begin to the end of its receive",
            Kind::Isend => "non-blocking send, from its begin to the end of its receive",
            Kind::IsendLocal => "non-blocking send, until its buffer may be used again",
            Kind::Sendrecv => "both ways in one call",
            Kind::DuplexIsend => "non-blocking sends both ways at once, from begin to the end of the receive",
            Kind::MessageRate => "a window of non-blocking sends and the answer to the last, per message",
            Kind::Exchange => "non-blocking receive and send with the partner, from begin until both are complete",
            Kind::Overlap => "isend-irecv with as much computing between begin and wait as it takes alone, see below",
            Kind::Persistent => "isend-irecv by persistent requests, from their start until both are complete",
            Kind::Stream => "windows of non-blocking sends without a pause, per message, at the receiver",
            Kind::OpenLoop => {
                "messages at a steady pace whatever became of those before, from the instant at which each was due to the end of its receive"
            }
            Kind::Put => "one-sided write into the partner's memory, and a flush",
            Kind::Get => "one-sided read from the partner's memory, and a flush",
            Kind::Accumulate => "one-sided addition of 64-bit floats to the partner's memory, and a flush",
            Kind::FetchAndOp => "one-sided addition to a 64-bit number of the partner's, which is told, and a flush",
            Kind::PutFence => "one-sided write into the partner's memory, and a fence of all",
            Kind::GetFence => "one-sided read from the partner's memory, and a fence of all",
            Kind::AccumulateFence => "one-sided addition of 64-bit floats to the partner's memory, and a fence of all",
            Kind::FetchAndOpFence => {
                "one-sided addition to a 64-bit number of the partner's, which is told, and a fence of all"
            }
            Kind::PutLock => "one-sided write into the partner's memory, which is locked and unlocked for it",
            Kind::GetLock => "one-sided read from the partner's memory, which is locked and unlocked for it",
            Kind::AccumulateLock => {
                "one-sided addition of 64-bit floats to the partner's memory, which is locked and unlocked for it"
            }
            Kind::FetchAndOpLock => {
                "one-sided addition to a 64-bit number of the partner's, which is told, and its memory locked and unlocked for it"
            }
            Kind::Barrier => "barrier",
            Kind::Bcast => "broadcast from the first rank",
            Kind::Gather => "gather at the first rank",
            Kind::Scatter => "scatter from the first rank",
            Kind::Allgather => "gather at all ranks",
            Kind::Alltoall => "every rank to every rank",
            Kind::Reduce => "sum of 64-bit floats at the first rank",
            Kind::Allreduce => "sum of 64-bit floats at all ranks",
            Kind::Gatherv => "gather at the first rank, by the length of each part",
            Kind::Scatterv => "scatter from the first rank, by the length of each part",
            Kind::Allgatherv => "gather at all ranks, by the length of each part",
            Kind::Alltoallv => "every rank to every rank, by the length of each part",
            Kind::ReduceScatter => "sum of 64-bit floats, of which each rank keeps its part",
            Kind::Scan => "sum of 64-bit floats of the ranks up to each",
            Kind::Exscan => "sum of 64-bit floats of the ranks below each",
            Kind::Ibarrier => "non-blocking barrier, and its wait",
            Kind::Iallreduce => "non-blocking sum of 64-bit floats at all ranks, and its wait",
            Kind::Incast => "the first rank asks all others at once, each answers with a message",
            Kind::Pattern => "the messages of a file (--pattern), all its steps",
            Kind::Serverload => "a server answers many clients at once; times are the clients'",
            Kind::Farm => "kernel: a task farm, whose workers ask for tasks and send small results",
            Kind::Bots => "kernel: a bag of tasks",
            Kind::Fft => "kernel: a two-dimensional Fourier transform",
            Kind::Jacobi => "kernel: Jacobi iteration",
        }
    }

    /// What kind of operation it is.
    #[must_use]
    pub fn class(self) -> Class {
        match self {
            Kind::PingPong
            | Kind::PingPongFilled
            | Kind::Send
            | Kind::Isend
            | Kind::IsendLocal
            | Kind::Sendrecv
            | Kind::DuplexIsend
            | Kind::MessageRate
            | Kind::Exchange
            | Kind::Overlap
            | Kind::Persistent
            | Kind::Stream
            | Kind::OpenLoop => Class::PointToPoint,
            Kind::Put
            | Kind::Get
            | Kind::Accumulate
            | Kind::FetchAndOp
            | Kind::PutFence
            | Kind::GetFence
            | Kind::AccumulateFence
            | Kind::FetchAndOpFence
            | Kind::PutLock
            | Kind::GetLock
            | Kind::AccumulateLock
            | Kind::FetchAndOpLock => Class::OneSided,
            Kind::Bots | Kind::Fft | Kind::Jacobi | Kind::Farm => Class::Kernel,
            _ => Class::Collective,
        }
    }

    /// Where its samples begin and end.
    #[must_use]
    pub fn timing(self) -> Timing {
        match self {
            Kind::Send | Kind::Isend | Kind::DuplexIsend | Kind::OpenLoop => Timing::OneWay,
            _ => Timing::Local,
        }
    }

    /// Whether a message's end is read at another rank, and only there.
    #[must_use]
    pub fn is_seen_elsewhere(self) -> bool {
        matches!(self, Kind::Send | Kind::Isend)
    }

    /// Whether a size belongs to it.
    #[must_use]
    pub fn has_size(self) -> bool {
        !self.is_one_number()
            && !matches!(self, Kind::Barrier | Kind::Ibarrier)
            && (self.class() != Class::Kernel || self == Kind::Farm)
    }

    /// The one size of an operation that has no other, bytes.
    #[must_use]
    pub fn only_size(self) -> u64 {
        if self.is_one_number() { 8 } else { 0 }
    }

    /// Whether it is of one 64-bit number.
    fn is_one_number(self) -> bool {
        matches!(self, Kind::FetchAndOp | Kind::FetchAndOpFence | Kind::FetchAndOpLock)
    }

    /// How an operation on the partner's memory is completed, if it is one.
    #[must_use]
    pub fn access(self) -> Option<Access> {
        match self {
            Kind::PutFence | Kind::GetFence | Kind::AccumulateFence | Kind::FetchAndOpFence => Some(Access::Fence),
            Kind::PutLock | Kind::GetLock | Kind::AccumulateLock | Kind::FetchAndOpLock => Some(Access::Lock),
            _ if self.class() == Class::OneSided => Some(Access::Flush),
            _ => None,
        }
    }

    /// Whether a repetition is a window of messages, whose time is divided by their number.
    #[must_use]
    pub fn has_window(self) -> bool {
        matches!(self, Kind::MessageRate | Kind::Stream)
    }

    /// Whether it is made of messages by their tags, which the user chooses.
    #[must_use]
    pub fn is_tagged(self) -> bool {
        matches!(self, Kind::Farm | Kind::OpenLoop)
    }

    /// Whether its repetitions go on without a pause, so that all of them are one batch.
    #[must_use]
    pub fn is_unbroken(self) -> bool {
        self == Kind::OpenLoop
    }

    /// Whether it is measured between threads of ranks, too.
    #[must_use]
    pub fn has_threads(self) -> bool {
        matches!(self, Kind::PingPong | Kind::PingPongFilled | Kind::Sendrecv | Kind::MessageRate | Kind::Stream)
    }

    /// Whether it computes: its sizes are of 64-bit floats.
    #[must_use]
    pub fn sums(self) -> bool {
        matches!(
            self,
            Kind::Reduce
                | Kind::Allreduce
                | Kind::ReduceScatter
                | Kind::Scan
                | Kind::Exscan
                | Kind::Iallreduce
                | Kind::Accumulate
                | Kind::AccumulateFence
                | Kind::AccumulateLock
        )
    }

    /// Whether its size may be counted for each process or in total.
    #[must_use]
    pub fn has_modes(self) -> bool {
        matches!(
            self,
            Kind::Gather
                | Kind::Scatter
                | Kind::Allgather
                | Kind::Alltoall
                | Kind::Gatherv
                | Kind::Scatterv
                | Kind::Allgatherv
                | Kind::Alltoallv
        )
    }
}

impl Class {
    /// Whether it is between two ranks.
    #[must_use]
    pub fn is_paired(self) -> bool {
        matches!(self, Class::PointToPoint | Class::OneSided)
    }

    /// Its name: but for kernels and collectives a set of one name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Class::PointToPoint => "point-to-point",
            Class::OneSided => "one-sided",
            Class::Collective => "collective",
            Class::Kernel => "kernel",
        }
    }
}

/// All operations for people: name, class, and what is timed.
#[must_use]
pub fn list() -> String {
    let line = |op: &Operation| {
        let mode = match op.mode {
            SizeMode::Message => String::new(),
            SizeMode::Each => format!("; a size is of each rank's part ({} alone is the same)", op.kind.name()),
            SizeMode::Total => "; a size is of all ranks' parts together".to_owned(),
        };
        let threads = if op.kind.has_threads() { "; with --threads between threads, too" } else { "" };
        format!("{:<18} {:<15} {}{mode}{threads}\n", op.to_string(), op.kind.class().name(), op.kind.description())
    };
    Operation::all().iter().map(line).collect()
}

/// The same for programs, as one JSON document.
///
/// * `operations`, each with `name`, as -t takes it, and `aliases`, which it takes as well;
///   `operation` and `size_mode`, as the distribution format names it; `class`: `point-to-point`,
///   `one-sided`, `collective` or `kernel`; `description`; `ends_at`: `same-rank` if both ends of a
///   sample are read by one rank, else `other-rank`; and what of the command line it heeds: `sizes`
///   (with `size_multiple_bytes`), `pairs`, `start`, `window`, `tags` (and what belongs to them),
///   `threads`, `pattern`, `iterations`
/// * `sets`: the names in each set that -t takes as well
#[must_use]
pub fn list_json() -> serde_json::Value {
    let one = |op: &Operation| {
        let (kind, class) = (op.kind, op.kind.class());
        serde_json::json!({
            "name": op.to_string(), "aliases": op.alias().into_iter().collect::<Vec<_>>(), "operation": kind.name(), "size_mode": op.mode, "class": class.name(),
            "description": kind.description(),
            "ends_at": if kind.timing() == Timing::Local { "same-rank" } else { "other-rank" },
            "sizes": kind.has_size(), "size_multiple_bytes": if kind.sums() { 8 } else { 1 },
            "pairs": class.is_paired(), "start": class == Class::Collective,
            "window": kind.has_window(), "tags": kind.is_tagged(), "threads": kind.has_threads(), "pattern": kind == Kind::Pattern, "iterations": class == Class::Kernel,
        })
    };
    let names =
        |set: &str| Operation::named(set).unwrap_or_default().iter().map(ToString::to_string).collect::<Vec<_>>();
    let sets: serde_json::Map<String, serde_json::Value> =
        SETS.iter().map(|set| ((*set).to_owned(), names(set).into())).collect();
    serde_json::json!({ "operations": Operation::all().iter().map(one).collect::<Vec<_>>(), "sets": sets })
}

impl Operation {
    /// All operations, in the order of the manual.
    #[must_use]
    pub fn all() -> Vec<Operation> {
        let modes = |kind: Kind| -> &[SizeMode] {
            if kind.has_modes() { &[SizeMode::Each, SizeMode::Total] } else { &[SizeMode::Message] }
        };
        KINDS.iter().flat_map(|&(kind, _)| modes(kind).iter().map(move |&mode| Operation { kind, mode })).collect()
    }

    /// Its short name beside its own: `gather` alone is what the other benchmarks mean by it.
    #[must_use]
    pub fn alias(self) -> Option<&'static str> {
        (self.mode == SizeMode::Each).then(|| self.kind.name())
    }

    /// Those of the one-minute run.
    fn default_set() -> Vec<Operation> {
        let kinds = [Kind::PingPong, Kind::Send, Kind::Sendrecv, Kind::Barrier, Kind::Bcast, Kind::Allreduce];
        let plain = kinds.into_iter().map(|kind| Operation { kind, mode: SizeMode::Message });
        plain.chain([Operation { kind: Kind::Alltoall, mode: SizeMode::Each }]).collect()
    }

    /// Bytes of one block in an operation over `ranks` ranks of `size` bytes.
    #[must_use]
    pub fn block_bytes(self, size: u64, ranks: usize) -> u64 {
        if self.mode == SizeMode::Total { size / ranks.max(1) as u64 } else { size }
    }

    /// Bytes of the buffers (sent from, received into) that one rank needs at most.
    #[must_use]
    pub fn buffer_bytes(self, size: u64, ranks: usize, window: usize) -> (u64, u64) {
        let block = self.block_bytes(size, ranks);
        let all = block.saturating_mul(ranks as u64);
        match self.kind {
            // These have arrays of numbers instead.
            _ if self.kind.sums() => (0, 0),
            Kind::Barrier | Kind::Ibarrier | Kind::Bots | Kind::Fft | Kind::Jacobi | Kind::Pattern => (0, 0),
            // Messages by their tags lie elsewhere.
            _ if self.kind.is_tagged() => (0, 0),
            // Messages that are under way at once lie in different places, as a program's do: one
            // in the place of all would stay in a cache.
            Kind::MessageRate | Kind::Stream => {
                let all = size.saturating_mul(window as u64);
                (all, all)
            }
            Kind::Gather | Kind::Gatherv | Kind::Allgather | Kind::Allgatherv | Kind::Incast => (block, all),
            Kind::Scatter | Kind::Scatterv => (all, block),
            Kind::Alltoall | Kind::Alltoallv => (all, all),
            _ => (block, block),
        }
    }

    /// The operations that a word names: one, or a set.
    ///
    /// # Errors
    /// [`BenchError::Usage`] with the nearest name.
    pub fn named(word: &str) -> Result<Vec<Operation>> {
        let is_of = |op: &Operation, class| op.kind.class() == class && op.kind != Kind::Pattern;
        let of_class = |class| Operation::all().into_iter().filter(|op| is_of(op, class)).collect();
        match word {
            "default" => return Ok(Operation::default_set()),
            // A pattern is the user's own.
            "all" => return Ok(Operation::all().into_iter().filter(|op| op.kind != Kind::Pattern).collect()),
            "point-to-point" => return Ok(of_class(Class::PointToPoint)),
            "one-sided" => return Ok(of_class(Class::OneSided)),
            "collectives" => return Ok(of_class(Class::Collective)),
            "kernels" => return Ok(of_class(Class::Kernel)),
            _ => {}
        }
        let all = Operation::all();
        if let Some(op) = all.iter().find(|op| op.to_string() == word || op.alias() == Some(word)) {
            return Ok(vec![*op]);
        }
        let names: Vec<String> = all.iter().map(ToString::to_string).chain(SETS.map(str::to_owned)).collect();
        let alike = |name: &str| strsim::jaro_winkler(name, &word.to_lowercase());
        let nearest = names.iter().max_by(|a, b| alike(a).total_cmp(&alike(b))).filter(|name| alike(name) >= ALIKE);
        let hint = match nearest {
            Some(name) => format!("; did you mean {name}?"),
            // Of names that have nothing to do with it, the nearest would be chance.
            None => {
                let names = names[..all.len()].join(", ");
                format!("; one of {names} (without -each it is the same), or a set: {}", SETS.join(", "))
            }
        };
        Err(BenchError::Usage(format!("unknown operation {word:?}{hint} (weir bench --list shows all)")))
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = match self.mode {
            SizeMode::Message => "",
            SizeMode::Each => "-each",
            SizeMode::Total => "-total",
        };
        write!(f, "{}{mode}", self.kind.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_the_format_is_an_operation() {
        // A server and its clients are measured by a command of their own.
        for name in Name::KNOWN.iter().filter(|name| **name != Kind::Serverload.name()) {
            assert!(Operation::named(name).is_ok(), "{name}");
        }
        assert_eq!(Operation::all().len(), 56);
    }

    #[test]
    fn the_list_holds_every_operation_for_people_and_for_programs() {
        let (text, json) = (list(), list_json());
        assert_eq!((text.lines().count(), json["operations"].as_array().unwrap().len()), (56, 56));
        for (line, one) in text.lines().zip(json["operations"].as_array().unwrap()) {
            let name = one["name"].as_str().unwrap();
            assert_eq!(line.split_whitespace().next(), Some(name));
            let op = Operation::named(name).unwrap()[0];
            assert_eq!((one["class"].as_str(), op.to_string().as_str()), (Some(op.kind.class().name()), name));
            assert!(!one["description"].as_str().unwrap().is_empty());
        }
        let of =
            |name: &str| json["operations"].as_array().unwrap().iter().find(|o| o["name"] == name).unwrap().clone();
        assert_eq!(
            (of("allreduce")["size_multiple_bytes"].as_u64(), of("barrier")["sizes"].as_bool()),
            (Some(8), Some(false))
        );
        assert_eq!(
            (of("send")["ends_at"].as_str(), of("fft")["iterations"].as_bool()),
            (Some("other-rank"), Some(true))
        );
        assert_eq!(
            (of("gather-each")["aliases"][0].as_str(), of("bcast")["aliases"][0].as_str()),
            (Some("gather"), None)
        );
        let threaded = text.lines().filter(|line| line.ends_with("; with --threads between threads, too")).count();
        assert_eq!(
            (threaded, of("stream")["threads"].as_bool(), of("send")["threads"].as_bool()),
            (5, Some(true), Some(false))
        );
        assert!(text.contains("each rank's part (gather alone is the same)"), "{text}");
        assert_eq!(json["sets"]["kernels"], serde_json::json!(["farm", "bots", "fft", "jacobi"]));
        assert_eq!(json["sets"].as_object().unwrap().len(), SETS.len());
    }

    #[test]
    fn names_and_sets_are_understood() {
        let one = |word| Operation::named(word).unwrap()[0].to_string();
        assert_eq!(one("gather-total"), "gather-total");
        assert_eq!(one("gather"), "gather-each");
        assert_eq!(Operation::named("kernels").unwrap().len(), 4);
        assert_eq!(Operation::named("one-sided").unwrap().len(), 12);
        // Nobody has a pattern who does not name one.
        assert_eq!(Operation::named("all").unwrap().len(), Operation::all().len() - 1);
        let pattern = Operation::named("pattern").unwrap()[0];
        assert!(!Operation::named("collectives").unwrap().contains(&pattern));
    }

    #[test]
    fn an_unknown_name_is_told_with_the_nearest() {
        let error = Operation::named("pingpong").unwrap_err().to_string();
        assert!(error.contains("did you mean ping-pong?"), "{error}");
        let error = Operation::named("colectives").unwrap_err().to_string();
        assert!(error.contains("did you mean collectives?"), "{error}");
        let error = Operation::named("AllReduce").unwrap_err().to_string();
        assert!(error.contains("did you mean allreduce?"), "{error}");
        for word in ["foo", "xyz", "q"] {
            let error = Operation::named(word).unwrap_err().to_string();
            assert!(
                !error.contains("did you mean") && error.contains("one of ping-pong, ping-pong-filled, send, "),
                "{error}"
            );
            assert!(error.contains("or a set: default, point-to-point"), "{error}");
            for line in list().lines() {
                let name = line.split_whitespace().next().unwrap();
                assert!(error.contains(&format!(" {name}")), "{name}: {error}");
            }
        }
    }

    #[test]
    fn blocks_are_divided_in_total_mode_only() {
        let op = |word| Operation::named(word).unwrap()[0];
        assert_eq!(op("alltoall-total").block_bytes(4096, 32), 128);
        assert_eq!(op("alltoall-each").buffer_bytes(128, 32, 1), (4096, 4096));
        assert_eq!(op("gather-each").buffer_bytes(8, 4, 1), (8, 32));
        assert_eq!(op("message-rate").buffer_bytes(8, 4, 64), (512, 512));
    }
}

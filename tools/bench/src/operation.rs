//! What can be measured, by name.

use std::fmt;

use weir_distribution::{Operation as Name, SizeMode};

use crate::error::{BenchError, Result};

/// An operation without its size mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Out and back between two ranks, halved.
    PingPong,
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

const KINDS: [(Kind, &str); 18] = [
    (Kind::PingPong, Name::PING_PONG),
    (Kind::Send, Name::SEND),
    (Kind::Isend, Name::ISEND),
    (Kind::IsendLocal, Name::ISENDLOCAL),
    (Kind::Sendrecv, Name::SENDRECV),
    (Kind::DuplexIsend, Name::DUPLEX_ISEND),
    (Kind::MessageRate, Name::MESSAGE_RATE),
    (Kind::Barrier, Name::BARRIER),
    (Kind::Bcast, Name::BCAST),
    (Kind::Gather, Name::GATHER),
    (Kind::Scatter, Name::SCATTER),
    (Kind::Allgather, Name::ALLGATHER),
    (Kind::Alltoall, Name::ALLTOALL),
    (Kind::Reduce, Name::REDUCE),
    (Kind::Allreduce, Name::ALLREDUCE),
    (Kind::Bots, Name::BOTS),
    (Kind::Fft, Name::FFT),
    (Kind::Jacobi, Name::JACOBI),
];

/// Names that stand for several operations.
const SETS: [&str; 5] = ["default", "point-to-point", "collectives", "kernels", "all"];

/// Words from this similarity on (Jaro and Winkler's, 1 is equal) are taken for misspelt ones.
const ALIKE: f64 = 0.75;

impl Kind {
    /// The name in the distribution format.
    #[must_use]
    pub fn name(self) -> &'static str {
        KINDS.iter().find(|(kind, _)| *kind == self).map_or("", |(_, name)| name)
    }

    /// What is timed, in a few words.
    #[must_use]
    pub fn description(self) -> &'static str {
        match self {
            Kind::PingPong => "out and back between two ranks; times are half of the round trip",
            Kind::Send => "blocking send, from its begin to the end of its receive",
            Kind::Isend => "non-blocking send, from its begin to the end of its receive",
            Kind::IsendLocal => "non-blocking send, until its buffer may be used again",
            Kind::Sendrecv => "both ways in one call",
            Kind::DuplexIsend => "non-blocking sends both ways at once, from begin to the end of the receive",
            Kind::MessageRate => "a window of non-blocking sends and the answer to the last, per message",
            Kind::Barrier => "barrier",
            Kind::Bcast => "broadcast from the first rank",
            Kind::Gather => "gather at the first rank",
            Kind::Scatter => "scatter from the first rank",
            Kind::Allgather => "gather at all ranks",
            Kind::Alltoall => "every rank to every rank",
            Kind::Reduce => "sum of 64-bit floats at the first rank",
            Kind::Allreduce => "sum of 64-bit floats at all ranks",
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
            | Kind::Send
            | Kind::Isend
            | Kind::IsendLocal
            | Kind::Sendrecv
            | Kind::DuplexIsend
            | Kind::MessageRate => Class::PointToPoint,
            Kind::Bots | Kind::Fft | Kind::Jacobi => Class::Kernel,
            _ => Class::Collective,
        }
    }

    /// Where its samples begin and end.
    #[must_use]
    pub fn timing(self) -> Timing {
        match self {
            Kind::Send | Kind::Isend | Kind::DuplexIsend => Timing::OneWay,
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
        self != Kind::Barrier && self.class() != Class::Kernel
    }

    /// Whether it computes: its sizes are of 64-bit floats.
    #[must_use]
    pub fn sums(self) -> bool {
        matches!(self, Kind::Reduce | Kind::Allreduce)
    }

    /// Whether its size may be counted for each process or in total.
    #[must_use]
    pub fn has_modes(self) -> bool {
        matches!(self, Kind::Gather | Kind::Scatter | Kind::Allgather | Kind::Alltoall)
    }
}

impl Class {
    /// Its name: but for kernels and collectives a set of one name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Class::PointToPoint => "point-to-point",
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
        format!("{:<16} {:<15} {}{mode}\n", op.to_string(), op.kind.class().name(), op.kind.description())
    };
    Operation::all().iter().map(line).collect()
}

/// The same for programs, as one JSON document.
///
/// * `operations`, each with `name`, as -t takes it, and `aliases`, which it takes as well; `operation` and `size_mode`, as the distribution format names it; `class`:
///   `point-to-point`, `collective` or `kernel`; `description`; `ends_at`: `same-rank` if both ends of a sample are read by one rank, else
///   `other-rank`; and what of the command line it heeds: `sizes` (with `size_multiple_bytes`), `pairs`, `start`, `window`, `iterations`
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
            "pairs": class == Class::PointToPoint, "start": class == Class::Collective,
            "window": kind == Kind::MessageRate, "iterations": class == Class::Kernel,
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
            Kind::Reduce | Kind::Allreduce => (0, 0),
            Kind::Barrier | Kind::Bots | Kind::Fft | Kind::Jacobi => (0, 0),
            Kind::MessageRate => (size, size.saturating_mul(window as u64)),
            Kind::Gather | Kind::Allgather => (block, all),
            Kind::Scatter => (all, block),
            Kind::Alltoall => (all, all),
            _ => (block, block),
        }
    }

    /// The operations that a word names: one, or a set.
    ///
    /// # Errors
    /// [`BenchError::Usage`] with the nearest name.
    pub fn named(word: &str) -> Result<Vec<Operation>> {
        let of_class = |class| Operation::all().into_iter().filter(move |op| op.kind.class() == class).collect();
        match word {
            "default" => return Ok(Operation::default_set()),
            "all" => return Ok(Operation::all()),
            "point-to-point" => return Ok(of_class(Class::PointToPoint)),
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
        for name in Name::KNOWN {
            assert!(Operation::named(name).is_ok(), "{name}");
        }
        assert_eq!(Operation::all().len(), 22);
    }

    #[test]
    fn the_list_holds_every_operation_for_people_and_for_programs() {
        let (text, json) = (list(), list_json());
        assert_eq!((text.lines().count(), json["operations"].as_array().unwrap().len()), (22, 22));
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
        assert!(text.contains("each rank's part (gather alone is the same)"), "{text}");
        assert_eq!(json["sets"]["kernels"], serde_json::json!(["bots", "fft", "jacobi"]));
        assert_eq!(json["sets"].as_object().unwrap().len(), SETS.len());
    }

    #[test]
    fn names_and_sets_are_understood() {
        let one = |word| Operation::named(word).unwrap()[0].to_string();
        assert_eq!(one("gather-total"), "gather-total");
        assert_eq!(one("gather"), "gather-each");
        assert_eq!(Operation::named("kernels").unwrap().len(), 3);
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
            assert!(!error.contains("did you mean") && error.contains("one of ping-pong, send, "), "{error}");
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
        assert_eq!(op("message-rate").buffer_bytes(8, 4, 64), (8, 512));
    }
}

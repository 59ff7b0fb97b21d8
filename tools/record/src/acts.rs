//! What a process did, as the directive language can say it: kinds of messages with numbers.

use crate::log::{ANY, COLLECTIVES, SENDS};

/// What a number of an act means; also how it may depend on process and count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// The receiver.
    To,
    /// The sender, or any.
    From,
    /// Bytes.
    Size,
    /// Tag of a send.
    Tag,
    /// Tag that is wanted, or any.
    RecvTag,
    /// The communicator's number.
    Comm,
    /// A request's number.
    Request,
    /// The root's process number.
    Root,
    /// A group's first process.
    Low,
    /// A group's last process.
    High,
    /// One of a group.
    Member,
}

impl Field {
    /// Whether it is a process.
    #[must_use]
    pub fn is_process(self) -> bool {
        matches!(self, Self::To | Self::From | Self::Root | Self::Low | Self::High | Self::Member)
    }
}

/// The processes of a collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// All.
    World,
    /// From one to another.
    Range,
    /// So many, each named.
    List(usize),
}

/// A kind of act.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A send; counts in [`SENDS`].
    Send(u8),
    /// A receive that waits.
    Recv,
    /// One that begins only.
    Irecv,
    /// Both.
    Sendrecv,
    /// A probe that waits.
    Probe,
    /// A wait for so many requests, by number.
    Wait(usize),
    /// A wait for the oldest request.
    WaitOldest,
    /// A wait for all requests there are.
    WaitAll,
    /// A request is given up.
    Free,
    /// A collective; counts in [`COLLECTIVES`].
    Collective {
        /// Which.
        kind: u8,
        /// Whether it begins only.
        begins: bool,
        /// Whether it has a root.
        rooted: bool,
        /// Who takes part.
        group: Group,
    },
    /// The end of the program.
    End,
}

impl Kind {
    /// What its numbers mean, in order; `requests`: whether requests are told apart by number.
    #[must_use]
    pub fn fields(self, requests: bool) -> Vec<Field> {
        use Field::{Comm, From, High, Low, Member, RecvTag, Request, Root, Size, Tag, To};
        let mut all = match self {
            Self::Send(_) => vec![To, Size, Tag, Comm],
            Self::Recv | Self::Irecv | Self::Probe => vec![From, RecvTag, Comm],
            Self::Sendrecv => vec![To, Size, Tag, From, RecvTag, Comm],
            Self::Wait(count) => return vec![Request; count],
            Self::Free => return vec![Request],
            Self::WaitOldest | Self::WaitAll | Self::End => return Vec::new(),
            Self::Collective { rooted, group, .. } => {
                let mut all = vec![Size, Comm];
                all.extend(rooted.then_some(Root));
                match group {
                    Group::World => {}
                    Group::Range => all.extend([Low, High]),
                    Group::List(count) => all.extend(vec![Member; count]),
                }
                all
            }
        };
        all.extend((self.begins() && requests).then_some(Request));
        all
    }

    /// Whether it leaves a request.
    #[must_use]
    pub fn begins(self) -> bool {
        matches!(self, Self::Send(4..) | Self::Irecv | Self::Collective { begins: true, .. })
    }

    /// MPI's name for it.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Send(kind) => format!("MPI_{}", SENDS.get(usize::from(kind)).unwrap_or(&"Send")),
            Self::Recv => "MPI_Recv".into(),
            Self::Irecv => "MPI_Irecv".into(),
            Self::Sendrecv => "MPI_Sendrecv".into(),
            Self::Probe => "MPI_Probe".into(),
            Self::Wait(1) | Self::WaitOldest => "MPI_Wait".into(),
            Self::Wait(_) | Self::WaitAll => "MPI_Waitall".into(),
            Self::Free => "MPI_Request_free".into(),
            Self::Collective { kind, begins, .. } => {
                let name = COLLECTIVES.get(usize::from(kind)).unwrap_or(&"Barrier");
                if begins { format!("MPI_I{}", name.to_lowercase()) } else { format!("MPI_{name}") }
            }
            Self::End => "MPI_Finalize".into(),
        }
    }
}

/// One act of one process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Act {
    /// What.
    pub kind: Kind,
    /// Its numbers, as [`Kind::fields`] has them. [`ANY`] is any, -1 `MPI_PROC_NULL`.
    pub numbers: Vec<i64>,
}

impl Act {
    /// For people.
    #[must_use]
    pub fn shown(&self, requests: bool) -> String {
        let fields = self.kind.fields(requests);
        let mut out = self.kind.name();
        for (field, number) in fields.iter().zip(&self.numbers) {
            let number = if *number == ANY { "ANY".to_owned() } else { number.to_string() };
            out += &format!(" {} {number}", format!("{field:?}").to_lowercase());
        }
        out
    }
}

/// One process of a recorded run.
#[derive(Debug, Clone, Default)]
pub struct Sample {
    /// How many processes the run had.
    pub n: i64,
    /// Which one this is.
    pub p: i64,
    /// What it did.
    pub acts: Vec<Act>,
    /// How long it computed before each, in nanoseconds.
    pub before_ns: Vec<u64>,
    /// Where each stands: a number in a table of places.
    pub places: Vec<u32>,
}

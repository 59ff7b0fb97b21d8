//! What `run.json` says, as plain data. Field names here are the names in the file;
//! `spec/distribution-format.md` is their definition. Times are in nanoseconds, sizes in bytes,
//! unless the name says otherwise.

mod carried;
mod cell;
mod machine;
mod network;
mod sample;
mod words;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use carried::{Carried, Carrier, Label};
pub use cell::{
    Bandwidth, BinsHistogram, Cell, Configuration, FitRecord, HdrHistogram, HistogramBin, HistogramRecord,
    Independence, Moved, Outliers, Overlap, SamplesFile, Service, Skew, SummaryRecord, TestRecord,
};
pub use machine::{
    ClockInfo, MpiInfo, Node, Overhead, Placement, RankClock, Resync, Transport, TscInfo, is_of_a_launch,
};
pub use network::{Between, Links, NETWORK_VARIABLE, Network};
pub use sample::{Sample, flags};
pub use words::{FORMAT, Family, Locality, Operation, SizeMode, StartSync, State, VERSION, Version};

/// A run: one machine, one message-passing library, any number of launches of the program; the
/// whole of `run.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Always [`FORMAT`].
    pub format: String,
    /// Version of the format that the file was written in.
    pub version: Version,
    /// Who wrote it.
    #[serde(default)]
    pub tool: Tool,
    /// Short name of the machine, for titles and names of exported files, e.g. `perseus`.
    pub machine: String,
    /// A line about the run, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// When the run began: RFC 3339 in UTC, e.g. `2026-11-21T20:00:00Z`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_utc: Option<String>,
    /// Whether all that was asked for is here.
    #[serde(default)]
    pub state: State,
    /// The command line, word by word.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// The nodes; [`Placement::node`] counts into this list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<Node>,
    /// The MPI library; absent for a back end without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mpi: Option<MpiInfo>,
    /// What carries the messages, as far as can be told from outside.
    #[serde(default)]
    pub transport: Transport,
    /// The network between the nodes, where an emulator makes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// Selected environment variables of rank 0 (those that steer MPI, its transports and the
    /// harness; never secrets).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// The launches, by [`Launch::number`]; empty in a machine written by hand.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub launches: Vec<Launch>,
    /// What makes the numbers less worth than they look, about the run as a whole.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
    /// What was measured, in the order in which it was.
    pub cells: Vec<Cell>,
}

impl Run {
    /// An empty run in the current version of the format: everything else at its default.
    #[must_use]
    pub fn new(machine: &str) -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            tool: Tool::default(),
            machine: machine.to_owned(),
            title: None,
            created_utc: None,
            state: State::Running,
            command: Vec::new(),
            nodes: Vec::new(),
            mpi: None,
            transport: Transport::default(),
            network: None,
            environment: BTreeMap::new(),
            launches: Vec::new(),
            warnings: Vec::new(),
            cells: Vec::new(),
        }
    }

    /// The launch with this number.
    #[must_use]
    pub fn launch(&self, number: u32) -> Option<&Launch> {
        self.launches.iter().find(|l| l.number == number)
    }
}

/// The program that wrote a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tool {
    /// Name, e.g. `weir bench`, or `by hand`.
    #[serde(default)]
    pub name: String,
    /// Its version.
    #[serde(default)]
    pub version: String,
}

/// One start of the program: launches differ more than repetitions do, so each has its own clock,
/// placement and cells.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    /// Counts from 0.
    pub number: u32,
    /// Wall-clock time of the launch's origin, the instant that is 0 on its global clock: RFC 3339
    /// in UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin_utc: Option<String>,
    /// Whether all cells of the launch are here.
    #[serde(default)]
    pub state: State,
    /// Where each rank ran, by rank.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub placement: Vec<Placement>,
    /// The global clock of the launch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockInfo>,
    /// What the harness itself adds to a sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overhead: Option<Overhead>,
    /// What threads might do with MPI: `single`, `funneled`, `serialized`, `multiple`. Open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_level: Option<String>,
    /// Warnings about this launch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
}

/// Something that makes numbers less worth than they look, and what to do about it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// One word for programs, e.g. `unpinned-ranks`, `frequency-scaling`, `oversubscribed`,
    /// `clock-error`, `overhead`. Open: readers show what they do not know.
    pub code: String,
    /// One line for people: what was seen, with values.
    pub message: String,
    /// The next command to type, or what to change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

//! The machine: nodes, MPI, transport, where ranks ran, clock.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::SummaryRecord;

/// One node (host). What could not be found out is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Host name.
    pub name: String,
    /// Model of the processor, as it names itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    /// Processor sockets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sockets: Option<u32>,
    /// Physical cores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
    /// Logical processors (hardware threads).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// Memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Operating system and kernel, e.g. `Linux 6.12.0 x86_64`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Frequency governor, e.g. `performance`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub governor: Option<String>,
    /// Whether the frequency may rise above the nominal one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turbo: Option<bool>,
    /// The cycle counter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tsc: Option<TscInfo>,
}

/// What is known about a node's cycle counter.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TscInfo {
    /// Counts at one rate whatever the core does.
    pub invariant: bool,
    /// Ticks a second, as calibrated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frequency_hz: Option<f64>,
    /// The clock source the kernel itself chose, e.g. `tsc`; another one hints that it distrusts
    /// the counter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_clocksource: Option<String>,
}

/// The MPI library.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MpiInfo {
    /// What the library says of itself (`MPI_Get_library_version`), first line.
    pub library_version: String,
    /// The shared library that was opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub library_path: Option<String>,
    /// Version of the standard it claims, e.g. `4.1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standard: Option<String>,
    /// Binary interface: `mpich`, `open-mpi`, `standard`. Open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abi: Option<String>,
    /// What started the processes, e.g. `hydra`, `prte`, `slurm`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launcher: Option<String>,
    /// The command that started the processes, word by word up to the program, where it told them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub launcher_command: Vec<String>,
}

/// What carries the messages, as far as can be told from outside.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transport {
    /// Back end of the harness: `mpi`, `weir`, `sim`, or `hypothetical`. Open.
    #[serde(default)]
    pub backend: String,
    /// Name of the provider or component, e.g. `tcp`, `weir`, `ucx`; absent if the library chose in
    /// silence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Settings seen (variables of libfabric, Open MPI's components, UCX), by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
}

/// Where a rank ran.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// The rank.
    pub rank: u32,
    /// Index into [`super::Run::nodes`].
    pub node: u32,
    /// Logical processors it may use; empty if not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processors: Vec<u32>,
    /// Whether it may use only one core.
    #[serde(default)]
    pub pinned: bool,
}

/// A launch's global clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClockInfo {
    /// What is read: `tsc` or `monotonic-raw`. Open.
    pub source: String,
    /// Ticks a second of rank 0's source, if it has ticks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frequency_hz: Option<f64>,
    /// Smallest step seen between two readings that differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution_ns: Option<f64>,
    /// How the ranks' clocks were brought together, e.g. `hca3`, `linear`, `none` (one clock for
    /// all). Open.
    pub algorithm: String,
    /// How far each rank's idea of the global time may be off, by rank.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<RankClock>,
    /// Times at which clocks were brought together anew, the first included.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resyncs: Vec<Resync>,
}

/// One rank's global clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RankClock {
    /// The rank.
    pub rank: u32,
    /// Bound on its distance from rank 0's clock: the worst over the launch.
    pub error_ns: f64,
    /// How fast its clock ran against rank 0's, in parts per million.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift_ppm: Option<f64>,
}

/// One synchronisation of the clocks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Resync {
    /// When, on the launch's global clock.
    pub at_ns: i64,
    /// The largest error bound over ranks afterwards.
    pub error_ns: f64,
}

/// What the harness itself adds to a sample, measured by timing nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Overhead {
    /// Duration of an empty sample: two readings of the clock and the storing.
    pub per_sample: SummaryRecord,
    /// One reading of the clock, median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_read_ns: Option<f64>,
}

/// Whether a variable of the environment says who or where a process of one launch is, or holds a
/// secret: nothing about the machine, so that it neither sets launches or runs apart nor is worth
/// showing.
#[must_use]
pub fn is_of_a_launch(variable: &str) -> bool {
    // An emulated network is made for each launch. The list says which variables go to other
    // machines, not what they say.
    const NAMES: [&str; 11] = [
        "OMPI_MCA_PREFIXES",
        "OMPI_MCA_cpu_type",
        "OMPI_MCA_initial_wdir",
        "OMPI_MCA_mca_base_env_list",
        "OMPI_MCA_num_procs",
        "WEIR_EMULATE_DIR",
        "WEIR_EMULATE_NAME",
        super::NETWORK_VARIABLE,
        "WEIR_HOSTFILE",
        "WEIR_LAUNCH_AGENT",
        "WEIR_RUN_COMMAND",
    ];
    const BEGINNINGS: [&str; 7] = [
        "OMPI_MCA_ess",
        "OMPI_MCA_orte_",
        "OMPI_MCA_prte_",
        "OMPI_MCA_shmem_RUNTIME",
        "WEIR_AGENT_",
        "WEIR_BENCH_",
        "WEIR_KEY",
    ];
    NAMES.contains(&variable) || BEGINNINGS.iter().any(|b| variable.starts_with(b))
}

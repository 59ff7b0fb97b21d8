//! The command line of `weir predict`.

use std::path::PathBuf;

use clap::ValueEnum;

use crate::counts::Counts;
use crate::parameters::Assignment;
use crate::whatif::WhatIf;

/// How communication times are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// From their distributions
    Full,
    /// Always the mean
    Avg,
    /// Always the least: a lower bound, but for pathological programs
    Min,
    /// Always the greatest: an upper bound, likewise
    Max,
    /// The mean of two processes alone on the machine: what a ping-pong knows
    #[value(name = "2x1-avg")]
    AloneAvg,
    /// The least of two processes alone
    #[value(name = "2x1-min")]
    AloneMin,
}

/// What to leave out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Without {
    /// Messages do not slow each other
    Contention,
    /// Nodes send and take any number of bytes at once (no gather contention)
    NodeLimits,
    /// No message is lost
    Losses,
}

/// Arguments of `weir predict`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Process counts (-n) are a list of:
  N         that many
  A..B      A, 2A, 4A, ... up to B: 2,4,8..64 is 2, 4, 8, 16, 32, 64
  A..BxF    each F times the one before: 1..1000x10 is 1, 10, 100, 1000
  A..B+S    each S more than the one before: 1..8+1 is 1, 2, 3, 4, 5, 6, 7, 8

What if (--what-if, each evaluated besides, with the same seeds):
  no-contention        messages do not meet, nodes have no limits, nothing is lost; times scatter still
  infinite-bandwidth   bytes take no time
  balanced             each process computes as much as they do on average
  cpu=F                processors are F times as fast

Examples:
  weir predict jacobi.c --machine run1/ -n 2,4,8..64
  weir predict jacobi.c --machine hypothetical.toml -n 8 -p iterations=1000 --what-if no-contention --what-if cpu=2
  weir predict farm.c --machine run1/ -n 2..64 --runs 100 --json
  weir predict jacobi.c --machine run1/ -n 16 --html jacobi.html --trace jacobi.json

Where nothing varies, one run says all; else each process count is run --runs times, with seeds that follow from --seed. \
The median is that of the middle run (the lower of two), and its losses are those of that run: they sum to its time x processes. \
Between `low` and `high` lie 95 % of the runs. The same seed gives the same numbers on every machine.

A count that has no prediction does not keep the others from theirs: table, page and JSON say why it has none. The exit code \
is that of the first such count. --json prints one whole document, whatever happens once the command line was read (spec/prediction.md 12):
  {\"predictions\": [{\"numprocs\", \"median_s\", \"low_s\", \"high_s\", \"p95_s\", \"loss\": {cause: s}, \"notices\": [line]}, ...],
   \"notices\": [line]}
with \"error\": {\"kind\", \"exit_code\", \"message\", \"diagnostics\"} in place of the numbers of a count that has no prediction, and at the \
top where there is no count at all, or the page or the trace could not be written.

On a terminal a bar shows how far it is, also within a run: of one run how many of the steps it may take it has taken. Ctrl-C ends it.

Times in programs are in milliseconds unless they have a unit. What a program leaves open are parameters: -p n=1000,alpha=0.5.

Exit codes:
  0    all predicted
  1    failed: a file cannot be read or written
  2    the command line is wrong
  3    the model is wrong, or something it needs is missing; the lines are shown
  4    the program deadlocks
  5    the program does not end within --budget steps, or has more under way than --most-under-way")]
pub struct PredictArgs {
    /// The annotated program: C sources or plain files of directives, together one program
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// The machine: the folder of a weir bench run, a description by hand (.toml), or a published
    /// one by its name alone (perseus, orion, apac; ./perseus is a file or folder); else the links
    /// of the source's Network
    #[arg(short, long, value_name = "RUN|FILE.toml|NAME")]
    pub machine: Option<PathBuf>,
    /// Numbers of processes; else the source's `Default numprocs`
    #[arg(short = 'n', long, value_name = "LIST")]
    pub numprocs: Option<Counts>,
    /// Values of parameters, and of constants of the source in place of theirs
    #[arg(short, long = "parameter", value_name = "NAME=VALUE", value_delimiter = ',')]
    pub parameters: Vec<Assignment>,
    /// The processor whose serial times count, where the source names several
    #[arg(long, value_name = "NAME")]
    pub processor: Option<String>,
    /// The clock of all processors in MHz, in place of the source's `speed`
    #[arg(long, value_name = "MHZ", value_parser = positive)]
    pub speed: Option<f64>,
    /// Of a measured machine: processes on a node, else as most of what was measured
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub ranks_per_node: Option<u32>,
    /// Of a measured machine: sends of up to so many bytes complete without their receive
    #[arg(long, value_name = "BYTES")]
    pub eager: Option<u64>,
    /// Of a measured machine: collectives (alltoall, bcast, ...) whose times are drawn from what
    /// was measured of them; all others are made of messages
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub measured: Vec<String>,
    /// How often each process count is run where something varies
    #[arg(long, default_value = "30", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub runs: u32,
    /// What chance begins with
    #[arg(long, default_value = "1")]
    pub seed: u64,
    /// How communication times are drawn
    #[arg(long, value_enum, default_value = "full")]
    pub mode: Mode,
    /// Leave something out, for comparison
    #[arg(long, value_enum, value_delimiter = ',')]
    pub without: Vec<Without>,
    /// Ask what would be
    #[arg(long, value_name = "CHANGE")]
    pub what_if: Vec<WhatIf>,
    /// Run each iteration of loops that repeat exactly; else whole periods of them are skipped,
    /// with the same result
    #[arg(long)]
    pub every_iteration: bool,
    /// Steps after which a run is given up, each run by itself; what is skipped takes none
    #[arg(long, default_value_t = weir_predict::USUAL_BUDGET, value_parser = clap::value_parser!(u64).range(1..))]
    pub budget: u64,
    /// Messages, requests and collectives that may be under way at once before a run is given up,
    /// 0.3 to 0.5 KB each; else 2 000 000 and 16 for each process
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub most_under_way: Option<u64>,
    /// Print one JSON document instead of tables
    #[arg(long)]
    pub json: bool,
    /// Write a page with speed-up curve, run times and a diagram of the largest count
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write what happens in the median run of the largest count, for Perfetto (ui.perfetto.dev)
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// How many source lines to show by the time lost there
    #[arg(long, default_value = "5", value_name = "N")]
    pub lines: usize,
    /// No warnings, no progress
    #[arg(short, long)]
    pub quiet: bool,
}

fn positive(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|v: &f64| *v > 0.0 && v.is_finite()).ok_or_else(|| "a number above 0 is meant".to_owned())
}

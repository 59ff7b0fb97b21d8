//! The command line of `weir bench`, and what it comes to.

use std::path::PathBuf;
use std::sync::Arc;

use clap::ValueEnum;

use crate::error::{BenchError, Result};
use crate::machine::{Apart, MOST_THREADS};
use crate::operation::{Kind, Operation};
use crate::pattern::Pattern;
use crate::serverload::ServerloadArgs;
use crate::sizes;
use crate::tagged::TaggedArgs;

/// Sizes of the one-minute run.
const DEFAULT_SIZES: &str = "8,64,1k,8k,64k,512k";

/// What the columns of the table are, for those who read it.
pub(crate) const COLUMNS: &str = "samples: those that count, without warm-up and missed starts. +-: half the width of the 95 % interval of the median, no\n\
less than half a step of the clock. p99: 99 % of the samples are shorter; - where there are fewer than 100. outliers: beyond --outlier-multiplier times --outlier-percentile; they count.\n\
span: of a collective, median of last end minus first start. MB/s: median of the bandwidth, 10^6 bytes a second. \
overlap %: how much of an exchange went on while its ranks computed. wait: how long an answer was waited for, median of all requests.";

// A paragraph is one line: clap breaks it where the terminal ends.
const EXAMPLES: &str = "Examples:
  mpiexec -n 4 weir bench -o run1              about a minute; then: weir report run1
  mpiexec -n 4 weir bench -o run1 --append     another launch into the same run
  weir bench -o run1b --launches 3 -- mpiexec -n 4
                                               three launches
  mpiexec -n 2 weir bench -o run2 -t ping-pong,send -s 0-128-1024 --reps 10000
  mpiexec -n 8 weir bench -o run3 -t isend -s 8..4M --pairs 1,2,4
  mpiexec -n 4 weir bench -o run4 -t kernels --time 10
  weir bench --transport weir -n 2 -o run5     Weir's own endpoint, without any MPI
  weir bench --transport weir -n 2 -o run6 --launches 3
                                               the same, three launches
  weir emulate --hosts 2 --rate 1g --delay 50us -- sh -c 'weir bench --transport weir --hosts $WEIR_HOSTS -o run6b'
                                               between emulated hosts, a rank on each
  mpiexec -n 4 weir bench -o run7 --like run1  what run1 measured, e.g. over another
                                               transport; then: weir report run1 run7
  mpiexec -n 4 weir bench -o run8 -t one-sided
                                               put, get, accumulate, fetch-and-op
  mpiexec -n 2 weir bench -o run9 -t ping-pong,message-rate --threads 1,2,4
                                               pairs of threads
  mpiexec -n 4 weir bench -o run10 --pattern halo.pattern
                                               messages of your own, see below
  weir bench serverload -o run11               a server and many clients over BMI
  weir bench --list                            all operations

Sizes are in bytes: a list (8,64,1k), from-step-to (0-128-1024), powers (8..1M, of 4: 8..1M*4); k, M, G and T are powers of 1024.

Operations whose size may be counted in two ways have two names: of gather-each a size is each rank's part, of gather-total all parts together; \
the same for scatter, allgather, alltoall and those of them that end in v. Without an ending the name stands for -each: gather is gather-each.

A pattern is a text file: \"weir-pattern 1\", then \"ranks 4\" (or 2.., or 2..16), then steps. In each \"step\" the lines FROM -> TO SIZE say who sends what to \
whom: \"* -> +1 size\" is from everybody to the next around the ring, of the size that --sizes gives; \"1..3 -> 0 64\" are 64 bytes from each of three \
to rank 0; ^K is the rank whose number is the sender's exclusive-or K. \"compute * 10us\" keeps processors busy before the messages of its step. A rank begins all \
receives and sends of a step at once and waits for all. \"#\" begins a comment. The format is spec/pattern-format.md.

One-sided operations reach the memory of the partner. Each is timed at the rank that calls it until it is complete there, by a flush, or, for those \
that end in -fence, by a fence of all ranks of the cell; those that end in -lock lock the partner's memory for themselves alone, and unlock it, each time. What a transport does not have is left out with a warning.

Of overlap each pair first finds how long the exchange of isend-irecv takes alone (in a fifth of the cell's time at most); then each rank begins it, computes for \
so long without calling the library, and waits. Overlap is what that saves of the exchange: 100 % where computing costs nothing extra, 0 where both add up, less \
where they disturb each other. A library that carries messages only within its calls has little of it for long messages.

Of open-loop messages leave every --interval microseconds whatever became of those before, and each counts from the instant at which it was due: a time in which nothing \
gets through makes the times of all that fell due meanwhile longer. They have --tags in turn. Receives name their tags, or with --receive any take whatever comes: by MPI's order such \
a receive waits for any message that is missing, where one that names its tag waits for those of its own. A cell is one such loop each way, of all its repetitions, after a short one.

Of farm the first rank hands out --iterations tasks of the size asked for, by --tags in turn. A worker has --outstanding receives posted, which name tags or take any, and asks as often; each \
request is answered by --fanout tasks. A worker computes for --compute microseconds, sends a result of 64 bytes for each task, and asks again for each answer that it has done. Nobody \
waits for a send, and each task is compared whole. A time ends at the first rank with the last result. The record has the bandwidth of tasks, and how long each answer was waited for. \
One farm of many tasks: --reps 1 --warm-up 0.

Of stream, message-rate and incast the record has the bandwidth as well, of each pair or of the first rank. A rank that changed its processor while a batch was \
measured is named in a warning, and its samples are flagged.

A time of ping-pong is half of the round trip. Ranks send from one buffer and receive into another; each message of a window has a place of its own in both. Of \
ping-pong-filled each message is filled by its rank before it leaves, and compared whole when it has come, so that caches hold what a program left there: half of \
what the answering rank does of that is part of the time.

The table at the end, in microseconds: samples are those that count, without warm-up and missed starts; +- is half the width of the 95 % \
interval of the median, which is no narrower than a step of the clock; 99 % of the samples are shorter than p99, which fewer than 100 samples do \
not tell (-); outliers are beyond --outlier-multiplier times the quantile --outlier-percentile, and count.

Pairs: one half of the ranks begins all exchanges, then the other half. A pair that is done goes on, untimed, until all are, so that every \
sample is of the contention that its cell states.

Threads: with --threads 4 each rank of a pair has four threads, one of them the rank's own, and thread 2 talks to thread 2 of the partner, by a communicator or a tag \
of its own. All threads of a side begin together; one that is done goes on, untimed, until all threads of all pairs are. Each thread's times are samples: of four threads, repetition 6 is the \
second one of thread 2 (6 modulo 4), and --reps counts the repetitions of all threads together. --threads 1 is one thread in a library that other threads might call, which has its price: the \
operation without --threads is measured in a run without it, as all of a run is under one level of threads. A library that gives less than MPI_THREAD_MULTIPLE is refused; over Weir's own endpoints \
there are no threads. Give each rank a processor for each thread, e.g. mpiexec -bind-to core:4, or with Open MPI --map-by slot:PE=4.

Time: --time is shared equally among the cells; what a cell leaves, those after it may use. Time for which the machine stands still (a batch \
that takes more than four times as long as others of its cell; the two longest such times), or that was spent on agreed starts which did not \
work, does not count in the cell that it hits, which goes on for its share. What a cell takes beyond its share, be it that or ten repetitions \
of something slow, is not taken from the others as long as it comes to a quarter of --time in all: the launch then takes longer by that. What \
is beyond, those to come give up evenly, but each keeps half of its share. With --ci a cell ends when the interval that the report will show \
is narrow enough: samples that depend on each other count for as many as they are worth.

Starts: by itself (--start auto) a launch begins the repetitions of collectives at instants that all agree on, if the clocks are good and \
every rank has a processor, else by a barrier. It does so for each cell: where too many agreed starts are missed, or too few repetitions fit \
into the time, this cell is begun anew by barriers, and of one operation some sizes may be begun by the clock and others by a barrier, each \
kind in a table of its own. Cells that began in different ways are not compared. --like begins each cell as in the other run; how long is \
measured (--time, --reps, --ci) is said anew. A start that was asked for, by --start or --like, or that earlier launches of the run had, is \
kept; a cell in which no sample counts then is named in a warning, and the launch is not complete.

Ctrl-C or SIGTERM drops the cell that is under way, keeps those that are finished and shows them. A second signal, a second or more later, \
ends the process at once. Where a call to MPI hangs, the finished cells are shown after a second and a half without waiting for it, and the \
ranks end within six seconds. Open MPI's launcher passes on nothing that is said after Ctrl-C, and kills half a second later: the finished \
cells are in the folder, and weir report shows them.

Several launches: launches differ more than repetitions do. Either start the program again and again with --append, or give --launches N and \
the launcher's command after --, to which this program and its options are added for each launch.

Exit codes:
  0    all cells are measured
  1    failed, one line on standard error says why; or there are cells in which no sample counts, which a warning names. Cells finished before are in the run's folder
  2    the command line is wrong, or asks for what this machine cannot do
  130  interrupted; cells finished before are in the run's folder

Environment:
  WEIR_MPI_LIBRARY  the MPI library to load, a file or its name; --mpi-library goes before it
  WEIR_KEY, WEIR_ADDR, WEIR_IFACE, ...  with --transport weir: see fi_weir(7)";

/// The option, for this program itself, of a launch that is one of several.
pub(crate) const OF_SEVERAL: &str = "of-several";

/// How a run is named and told: the same for all that measure.
#[derive(Clone, Debug, clap::Args)]
pub struct Telling {
    /// A line about the run, kept in its folder
    #[arg(long, value_name = "TEXT")]
    pub title: Option<String>,
    /// Short name of the machine; its first node's name if not given
    #[arg(long, value_name = "NAME")]
    pub machine: Option<String>,
    /// Answer with one JSON document
    #[arg(long)]
    pub json: bool,
    /// Show no progress; warnings stay
    #[arg(short, long)]
    pub quiet: bool,
}

/// Measure a machine: time distributions of every operation, at every process, on a global clock
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct Args {
    /// What is measured with processes of another kind.
    #[command(subcommand)]
    pub command: Option<BenchCommand>,
    /// Folder to write; without it only the table is shown
    #[arg(short, long, value_name = "FOLDER")]
    pub output: Option<PathBuf>,
    /// Add another launch to the run in the folder
    #[arg(long, requires = "output")]
    pub append: bool,
    /// What to measure: names (--list shows them) or sets (default, point-to-point, one-sided,
    /// collectives, kernels, all), separated by commas
    #[arg(
        short = 't',
        long = "test",
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "default",
        default_value_if("pattern", clap::builder::ArgPredicate::IsPresent, "pattern")
    )]
    pub operations: Vec<String>,
    /// Measure the messages of this file: who sends what to whom, in steps; see below. Without -t
    /// nothing else is measured
    #[arg(long, value_name = "FILE")]
    pub pattern: Option<PathBuf>,
    /// Sizes in bytes, see below
    #[arg(short, long, value_name = "SIZES", default_value = DEFAULT_SIZES)]
    pub sizes: String,
    /// Contention: how many pairs exchange messages at once; all if not given
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    pub pairs: Vec<u32>,
    /// Where the partners of point-to-point operations are; each that this machine has if not given
    #[arg(long, value_enum, value_name = "WHERE", value_delimiter = ',')]
    pub locality: Vec<Where>,
    /// Nodes x ranks on each, e.g. 2x1,4x2; all ranks if not given
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub placement: Vec<String>,
    /// How repetitions of collectives begin
    #[arg(long, value_enum, default_value = "auto")]
    pub start: Start,
    /// Measure what the run in this folder measured: same operations, sizes, placements, contention
    /// and starts, so that each cell has a partner when the two are compared
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["operations", "sizes", "pairs", "locality", "placement", "start", "window", "iterations"])]
    pub like: Option<PathBuf>,
    /// Exactly so many repetitions of each cell count, however long they take (--time bounds
    /// nothing then): warm-up and missed starts come on top; else as many as the time allows
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000_000), allow_negative_numbers = true)]
    pub reps: Option<u32>,
    /// Time for all cells of a launch together, seconds; shared equally, see below
    #[arg(long, value_name = "SECONDS", default_value_t = 55.0, allow_negative_numbers = true)]
    pub time: f64,
    /// End a cell early when the 95 % interval of the median is narrower than this percentage of it
    #[arg(long, value_name = "PERCENT", allow_negative_numbers = true)]
    pub ci: Option<f64>,
    /// Repetitions to leave out at the beginning of a cell; found from the samples if not given
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub warm_up: Option<u32>,
    /// Samples kept of a cell; of more, a random choice is kept, while the histogram and the
    /// statistics count all
    #[arg(long, value_name = "N", default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(100..), allow_negative_numbers = true)]
    pub keep: u32,
    /// Messages in a window of message-rate and stream
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65_536), allow_negative_numbers = true)]
    pub window: u32,
    /// Between how many pairs of threads: each rank has so many, each with the same thread of the
    /// partner's; those of ping-pong, ping-pong-filled, sendrecv, message-rate and stream, see
    /// below. The MPI library is asked for MPI_THREAD_MULTIPLE
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_THREADS)), conflicts_with = "bind", allow_negative_numbers = true)]
    pub threads: Vec<u32>,
    /// What tells the threads' messages apart: a communicator for each thread, or a tag for each in
    /// one communicator
    #[arg(long, value_enum, value_name = "WHAT", default_value = "communicator", requires = "threads")]
    pub threads_by: Apart,
    /// Iterations, transforms or tasks in a repetition of a kernel
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), allow_negative_numbers = true)]
    pub iterations: Option<u32>,
    /// How farm and open-loop use tags.
    #[command(flatten)]
    pub tagged: TaggedArgs,
    /// Outliers are beyond MULTIPLIER times this quantile
    #[arg(long, value_name = "QUANTILE", default_value_t = 0.99, allow_negative_numbers = true)]
    pub outlier_percentile: f64,
    /// See --outlier-percentile
    #[arg(long, value_name = "FACTOR", default_value_t = 5.0, allow_negative_numbers = true)]
    pub outlier_multiplier: f64,
    /// Seed of the order of cells; a new one for each launch if not given
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub seed: Option<u64>,
    /// Fit no distributions to what was measured, which takes a second or so for each cell after
    /// the last
    #[arg(long)]
    pub no_fits: bool,
    /// Keep each rank on one processor of those its launcher gave it
    #[arg(long)]
    pub bind: bool,
    /// What carries the messages
    #[arg(long, value_enum, default_value = "mpi")]
    pub transport: Transport,
    /// Number of ranks, with --transport weir; over MPI the launcher says it
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536), allow_negative_numbers = true)]
    pub ranks: Option<u32>,
    /// With --transport weir: hosts on which the ranks start in turn, one rank on each without -n.
    /// They share this machine's files, as those of weir emulate do
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub hosts: Vec<String>,
    /// With --transport weir: words before each rank's command, e.g. "ip netns exec %h"; %h stands
    /// for the rank's host, of --hosts, and %r for its number, from 0
    /// [default with --hosts: "$WEIR_LAUNCH_AGENT %h", which weir emulate sets]
    #[arg(long, value_name = "WORDS")]
    pub agent: Option<String>,
    /// The MPI library to load, a file or its name; else the one that WEIR_MPI_LIBRARY names, else
    /// the launcher's
    #[arg(long, value_name = "FILE")]
    pub mpi_library: Option<PathBuf>,
    /// Start so many launches of the command after --, or of the ranks themselves with --transport
    /// weir
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000), allow_negative_numbers = true)]
    pub launches: Option<u32>,
    /// How the run is named and told.
    #[command(flatten)]
    pub telling: Telling,
    /// List all operations, with what each times, and end; with --json as one JSON document
    #[arg(long)]
    pub list: bool,
    /// With --transport weir: where the ranks meet
    #[arg(long, hide = true, value_name = "SOCKET")]
    pub meet: Option<PathBuf>,
    /// This launch is one of several
    #[arg(long = OF_SEVERAL, hide = true)]
    pub of_several: bool,
    /// The command line that was typed, where another process has changed it for this one
    #[arg(long, hide = true, value_name = "WORDS")]
    pub typed: Option<String>,
    /// The launcher's command, with --launches
    #[arg(last = true, value_name = "LAUNCHER")]
    pub launcher: Vec<std::ffi::OsString>,
}

/// Benchmarks whose processes are no ranks.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum BenchCommand {
    // With its own words on help.
    #[allow(missing_docs, reason = "its help is that of its arguments")]
    Serverload(Box<ServerloadArgs>),
}

/// Where partners are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Where {
    /// On different nodes.
    Inter,
    /// On one node.
    Intra,
}

/// How repetitions of collectives are begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Start {
    /// By a window where the clocks are good, every rank has a processor and starts are not missed,
    /// else by a barrier: each cell as suits it.
    Auto,
    /// A barrier before each.
    Barrier,
    /// An agreed instant of the global clock.
    Window,
    /// Not at all: they follow each other.
    None,
}

/// What carries the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Transport {
    /// The MPI of the launcher.
    Mpi,
    /// Weir's own endpoint.
    Weir,
}

/// What the command line comes to.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What to measure, each once.
    pub operations: Vec<Operation>,
    /// At which sizes.
    pub sizes: Vec<u64>,
    /// n x p; empty: all ranks.
    pub placements: Vec<(usize, usize)>,
    /// The user's own messages, once rank 0 has read them.
    pub pattern: Option<Arc<Pattern>>,
    /// The rest.
    pub args: Args,
}

impl Args {
    /// Reads the words that clap leaves as they are.
    ///
    /// # Errors
    /// [`BenchError::Usage`].
    pub fn settings(&self) -> Result<Settings> {
        let mut operations = Vec::new();
        for word in self.operations.iter().map(|word| word.trim()).filter(|word| !word.is_empty()) {
            operations.extend(Operation::named(word)?);
        }
        if self.pattern.is_some() && self.like.is_none() {
            operations.extend(Operation::named(Kind::Pattern.name())?);
        } else if operations.iter().any(|op| op.kind == Kind::Pattern) && self.like.is_none() {
            return Err(BenchError::Usage("pattern: no file is named; weir bench --pattern FILE".into()));
        }
        operations.sort_unstable();
        operations.dedup();
        if operations.is_empty() {
            return Err(BenchError::Usage("no operation is named (weir bench --list shows all)".into()));
        }
        if !self.threads.is_empty() && self.like.is_none() && !operations.iter().any(|op| op.kind.has_threads()) {
            let all = Operation::all().into_iter().filter(|op| op.kind.has_threads());
            let names: Vec<String> = all.map(|op| op.to_string()).collect();
            let text = format!("--threads: nothing of -t is measured between threads; what is: {}", names.join(", "));
            return Err(BenchError::Usage(text));
        }
        let limits: [(&str, f64, f64, f64); 4] = [
            ("--time", self.time, 0.01, 1e7),
            ("--ci", self.ci.unwrap_or(1.0), 0.001, 100.0),
            ("--outlier-percentile", self.outlier_percentile, 0.5, 0.999_999),
            ("--outlier-multiplier", self.outlier_multiplier, 1.0, 1e6),
        ];
        for (name, value, low, high) in limits {
            if !(low..=high).contains(&value) {
                return Err(BenchError::Usage(format!("{name} is {value}, it may be from {low} to {high}")));
            }
        }
        self.tagged.make_sense()?;
        self.of_one_transport()?;
        let placements = self.placement.iter().map(|word| placement(word)).collect::<Result<_>>()?;
        Ok(Settings { operations, sizes: sizes::parse(&self.sizes)?, placements, pattern: None, args: self.clone() })
    }

    /// Refuses options that the transport would not heed.
    fn of_one_transport(&self) -> Result<()> {
        let by_launcher = "over MPI the launcher says how many ranks there are, e.g. mpiexec -n 4 weir bench";
        let refused = match self.transport {
            Transport::Mpi if self.ranks.is_some() => format!("-n needs --transport weir: {by_launcher}"),
            Transport::Mpi if self.agent.is_some() => {
                "--agent needs --transport weir: over MPI the launcher starts the ranks".into()
            }
            Transport::Mpi if !self.hosts.is_empty() => {
                "--hosts needs --transport weir: over MPI the launcher is told, e.g. weir run -n 2 --hosts host1,host2 weir bench".into()
            }
            Transport::Weir if self.mpi_library.is_some() => {
                "--mpi-library has no use with --transport weir, which needs no MPI".into()
            }
            _ => return Ok(()),
        };
        Err(BenchError::Usage(refused))
    }
}

fn placement(word: &str) -> Result<(usize, usize)> {
    let numbers = word.split_once('x').and_then(|(n, p)| Some((n.trim().parse().ok()?, p.trim().parse().ok()?)));
    match numbers {
        Some((n, p)) if n > 0 && p > 0 => Ok((n, p)),
        _ => Err(BenchError::Usage(format!("placement {word:?} is not nodes x ranks, e.g. 2x1"))),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    /// The arguments, as from a command line.
    pub(crate) fn args(words: &[&str]) -> Args {
        Line::try_parse_from(["bench"].iter().chain(words)).map(|line| line.args).unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn the_defaults_are_sound() {
        let settings = args(&[]).settings().unwrap();
        assert_eq!(settings.operations.len(), 7);
        assert_eq!(settings.sizes, [8, 64, 1024, 8192, 65_536, 524_288]);
    }

    #[test]
    fn what_a_transport_does_not_heed_is_refused() {
        let line = ["--transport", "weir", "-n", "2", "--agent", "ssh h%r"];
        assert!(args(&line).settings().is_ok());
        let error = args(&[&line[..4], &["--mpi-library", "libmpi.so"]].concat()).settings().unwrap_err().to_string();
        assert!(error.contains("--mpi-library has no use"), "{error}");
    }

    #[test]
    fn a_number_below_zero_is_refused_as_a_number() {
        for option in [
            "--reps",
            "--warm-up",
            "--keep",
            "--window",
            "--threads",
            "--iterations",
            "--tags",
            "--outstanding",
            "--fanout",
            "--seed",
            "--ranks",
            "--launches",
        ] {
            let error = Line::try_parse_from(["bench", option, "-1"]).err().unwrap().to_string();
            assert!(error.contains("invalid value '-1'") && !error.contains("tip"), "{error}");
        }
    }

    #[test]
    fn threads_are_asked_for_where_something_is_measured_between_them() {
        let threads = |words: &[&str]| args(words).settings().map(|settings| settings.args.threads);
        assert_eq!(threads(&["-t", "ping-pong,bcast", "--threads", "1,4"]).unwrap(), [1, 4]);
        let error = threads(&["-t", "send,bcast", "--threads", "2"]).unwrap_err().to_string();
        assert_eq!(
            error,
            "--threads: nothing of -t is measured between threads; what is: ping-pong, ping-pong-filled, sendrecv, message-rate, stream"
        );
        for words in
            [&["--threads", "0"][..], &["--threads", "257"], &["--threads", "2", "--bind"], &["--threads-by", "tag"]]
        {
            assert!(Line::try_parse_from(["bench"].iter().chain(words)).is_err(), "{words:?}");
        }
    }

    #[test]
    fn what_another_run_decides_is_not_said_as_well() {
        for words in [["-t", "send"], ["-s", "8"], ["--start", "window"], ["--pairs", "1"], ["--placement", "2x1"]] {
            let line = ["bench", "--like", "run1"].iter().chain(&words);
            assert!(Line::try_parse_from(line).is_err(), "{words:?}");
        }
        assert!(args(&["--like", "run1", "--time", "5", "--ci", "1"]).like.is_some());
    }

    #[test]
    fn a_pattern_is_measured_alone_unless_something_else_is_named_too() {
        let names = |words: &[&str]| {
            let operations = args(words).settings().unwrap().operations;
            operations.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(names(&["--pattern", "ring.pattern"]), ["pattern"]);
        assert_eq!(names(&["--pattern", "ring.pattern", "-t", "send"]), ["send", "pattern"]);
        let error = args(&["-t", "pattern"]).settings().unwrap_err().to_string();
        assert!(error.contains("no file is named"), "{error}");
    }

    #[test]
    fn operations_are_measured_once_however_often_named() {
        let settings = args(&["-t", "send,point-to-point, send"]).settings().unwrap();
        assert_eq!(settings.operations.len(), 13);
    }

    #[test]
    fn what_cannot_be_is_named() {
        let cases = [
            (["-t", "sned"], "did you mean send?"),
            (["-s", "8..x"], "\"x\" is no suffix"),
            (["--time", "0"], "--time is 0"),
            (["--placement", "2x0"], "\"2x0\" is not nodes x ranks"),
            (["--ci", "NaN"], "--ci is NaN"),
            (["--time", "-1"], "--time is -1, it may be from 0.01"),
            (["--interval", "0"], "--interval is 0, it may be from 0.1"),
            (["--timeout", "NaN"], "--timeout is NaN"),
            (["-n", "4"], "-n needs --transport weir: over MPI the launcher says how many ranks"),
            (["--agent", "foo"], "--agent needs --transport weir"),
            (["--hosts", "host1"], "--hosts needs --transport weir: over MPI the launcher is told"),
        ];
        for (words, expected) in cases {
            let error = args(&words).settings().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}

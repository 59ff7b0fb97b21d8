//! The command line of `weir bsp`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `weir bsp`.
#[derive(Debug, Args)]
pub struct BspArgs {
    /// What to do
    #[command(subcommand)]
    pub command: BspCommand,
}

/// What `weir bsp` does.
#[derive(Debug, Subcommand)]
pub enum BspCommand {
    /// Measure what a superstep costs on this machine: p, l, g, s with their spread
    #[command(after_help = "Examples:
  weir bsp params                           2, 4, ... processes on this machine, as many as it has cores
  weir bsp params -n 2,4,8 -o here.json --html here.html
  mpiexec -n 16 weir bsp params -o cluster.json     the processes of any launcher measure
  weir run -n 32 --hosts node1,node2 weir bsp params -o cluster.json --append
  weir bsp params --from cluster.json --predict 64,128
  weir bsp params -n 2 --patterns scatter --by put,send --blocks 4,256,1400    many short ones
  weir bsp params --h 64K --blocks 1M --patterns total -n 2,4,8    the edges of an h-relation of 16384 words

A superstep costs w + h g + l: the longest computation of a process, the most bytes h that one sends or gets times g, and l. Supersteps without \
communication give l. g is (time - l) / h of a total exchange with the largest h in the largest blocks; the table has the same for other patterns \
and blocks. s is the speed of a multiplication and an addition on vectors in the cache, while all processes compute.

An edge is the part of one process in a total exchange. Its distribution is the p-th root of the measured one: if the edges of several p are alike, \
processes do not disturb each other, and g grows with p only because the slowest of more edges counts. So edges predict g of larger p.

The file keeps every sample; spec/bsp-params.md has its format. weir bsp report takes it with --params.
Exit codes: 0 done, 1 failed, 2 the command line is wrong.")]
    Params(Box<ParamsArgs>),
    /// Show what each superstep of a program cost, by the line of its bsp_sync
    #[command(after_help = "Examples:
  WEIR_BSP_LEDGER=run.jsonl weir run -n 4 ./program; weir bsp report run.jsonl
  weir bsp report run.jsonl --params here.json        with what p, l, g, s predict
  weir bsp report run.jsonl --params here.json --html run.html
  weir bsp report before.jsonl after.jsonl --json

Of each line of the program that ended supersteps: how many, the time they took, the longest computation of a process, how evenly all computed, the \
rest (communication and synchronisation), h (the most bytes that a process sent or got, summed), and with --params what was predicted. The page has \
the profile: in the order of time, communication as bars, as wide as it took, as high as bytes went out (above) and came in (below); between them gaps as \
wide as the longest computation.
Exit codes: 0 done, 1 failed, 2 the command line is wrong.")]
    Report(ReportArgs),
}

/// A number of bytes: `4096`, `64K`, `1M`, `1G`.
///
/// # Errors
/// If it is none.
pub fn bytes(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.trim().to_ascii_uppercase() {
        text if text.ends_with('K') => (text[..text.len() - 1].to_owned(), 10),
        text if text.ends_with('M') => (text[..text.len() - 1].to_owned(), 20),
        text if text.ends_with('G') => (text[..text.len() - 1].to_owned(), 30),
        text => (text, 0),
    };
    let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    number
        .filter(|number| (8..=1 << 30).contains(number))
        .ok_or_else(|| "bytes from 8 to 1G, with K, M or G".to_owned())
}

/// A time in seconds.
fn seconds(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.001..=100_000.0).contains(&value) { Ok(value) } else { Err("seconds from 0.001 to 100000".into()) }
}

/// `weir bsp params`.
#[derive(Debug, Clone, Args)]
pub struct ParamsArgs {
    /// Numbers of processes to measure with, separated by commas; all are started on this machine.
    /// Not under a launcher, which has started them
    #[arg(short = 'n', long = "processes", value_delimiter = ',', value_name = "P", value_parser = clap::value_parser!(u32).range(2..=4096))]
    pub processes: Vec<u32>,
    /// Most bytes that a process sends or gets, separated by commas; with K, M or G
    #[arg(long = "h", value_delimiter = ',', value_name = "BYTES", default_value = "64K,256K,1M", value_parser = bytes)]
    pub h: Vec<u64>,
    /// Bytes of a put or message, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "BYTES", default_value = "8,128,2K,32K,1M", value_parser = block)]
    pub blocks: Vec<u64>,
    /// Who sends to whom, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "PATTERN", default_value = "total,shift,gather,scatter,random", value_parser = pattern)]
    pub patterns: Vec<crate::params::Pattern>,
    /// By which primitive, separated by commas: hpput, put, send
    #[arg(long, value_delimiter = ',', value_name = "PRIMITIVE", default_value = "hpput", value_parser = primitive)]
    pub by: Vec<crate::params::By>,
    /// Supersteps of each kind; of those that l and g are taken from, five times as many
    #[arg(long, default_value_t = 100, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(5..=100_000))]
    pub samples: u32,
    /// Longest time for supersteps of one kind, seconds; at least 5 are measured
    #[arg(long, default_value = "2", value_name = "SECONDS", value_parser = seconds)]
    pub time: f64,
    /// Show what was measured before and stands in this file, instead of measuring; may be given
    /// several times
    #[arg(long, value_name = "FILE", conflicts_with_all = ["processes", "append"])]
    pub from: Vec<PathBuf>,
    /// Predict g and l for these numbers of processes too, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "P", value_parser = clap::value_parser!(u32).range(2..=1_048_576))]
    pub predict: Vec<u32>,
    /// Show histograms of l, g and s too
    #[arg(long, conflicts_with = "json")]
    pub histograms: bool,
    /// Write what was measured into this file
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Add to what the file has; a number of processes that it has already is replaced
    #[arg(long, requires = "output")]
    pub append: bool,
    /// Write a page with the plots into this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Answer with one JSON document
    #[arg(long)]
    pub json: bool,
    /// Show no progress
    #[arg(short, long)]
    pub quiet: bool,
    /// For processes that weir bsp params starts itself: where process 0 leaves what was measured
    #[arg(long, hide = true, value_name = "FILE")]
    pub part: Option<PathBuf>,
    /// Draw the progress on the terminal
    #[arg(long, hide = true)]
    pub bar: bool,
}

/// `weir tune`.
#[derive(Debug, Clone, Args)]
pub struct TuneArgs {
    /// Processes to start on this machine. Not under a launcher, which has started them
    #[arg(short = 'n', long = "processes", value_name = "P", value_parser = clap::value_parser!(u32).range(2..=4096))]
    pub processes: Option<u32>,
    /// Most bytes that a process sends or gets in a superstep; with K, M or G
    #[arg(long = "h", value_name = "BYTES", default_value = "4M", value_parser = bytes)]
    pub h: u64,
    /// Who sends to whom
    #[arg(long, value_name = "PATTERN", default_value = "total", value_parser = pattern)]
    pub pattern: crate::params::Pattern,
    /// What may wait in a host's interface, separated by commas: bytes with K, M or G; system: as
    /// much as the system lets wait. auto, the default, is tried in any case
    #[arg(long, value_delimiter = ',', value_name = "BYTES", default_value = "16K,32K,64K,128K,256K,512K,1M,system", value_parser = queue)]
    pub queues: Vec<weir_bsp::tuning::OwnQueue>,
    /// Instead: lengths of slots, for a medium that all processes share, microseconds, separated by
    /// commas. Without a list those around the time that a packet takes there. No slots, the
    /// default, is tried in any case
    #[arg(long, num_args = 0..=1, value_delimiter = ',', value_name = "US", conflicts_with = "queues", value_parser = slot)]
    pub slots: Option<Vec<u64>>,
    /// Supersteps with each of them
    #[arg(long, default_value_t = 60, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(6..=100_000))]
    pub samples: u32,
    /// Longest time for all, seconds; two rounds are measured in any case
    #[arg(long, default_value = "60", value_name = "SECONDS", value_parser = seconds)]
    pub time: f64,
    /// Write the setting into this file, for a shell to read
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Answer with one JSON document
    #[arg(long)]
    pub json: bool,
    /// Show no progress
    #[arg(short, long)]
    pub quiet: bool,
    /// Draw the progress on the terminal
    #[arg(long, hide = true)]
    pub bar: bool,
}

fn queue(text: &str) -> Result<weir_bsp::tuning::OwnQueue, String> {
    text.parse().map_err(|what: &str| what.to_owned())
}

fn slot(text: &str) -> Result<u64, String> {
    let most = weir_bsp::tuning::MOST_SLOT_US;
    let us = text.trim().parse().ok().filter(|us| (1..=most).contains(us));
    us.ok_or_else(|| format!("microseconds from 1 to {most}"))
}

/// The length of a put or message.
fn block(text: &str) -> Result<u64, String> {
    text.trim().parse().ok().filter(|number| (1..8).contains(number)).map_or_else(|| bytes(text), Ok)
}

fn primitive(text: &str) -> Result<crate::params::By, String> {
    let all = crate::params::By::ALL;
    let found = all.into_iter().find(|by| by.name() == text.trim());
    found.ok_or_else(|| format!("one of: {}", all.map(crate::params::By::name).join(", ")))
}

fn pattern(text: &str) -> Result<crate::params::Pattern, String> {
    let all = crate::params::Pattern::ALL;
    let found = all.into_iter().find(|pattern| pattern.name() == text.trim());
    found.ok_or_else(|| format!("one of: {}", all.map(crate::params::Pattern::name).join(", ")))
}

/// `weir bsp report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Ledgers, as WEIR_BSP_LEDGER makes them
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Compare with what these parameters predict: a file of weir bsp params
    #[arg(long, value_name = "FILE")]
    pub params: Option<PathBuf>,
    /// Write a page with the profile into this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Answer with one JSON document
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_bytes_are_read_with_their_unit() {
        for (text, wanted) in [("8", 8), ("64K", 65_536), ("1m", 1 << 20), ("1G", 1 << 30)] {
            assert_eq!(bytes(text), Ok(wanted));
        }
        assert_eq!((block("1"), block("8"), block("2K")), (Ok(1), Ok(8), Ok(2048)));
        assert!(block("0").is_err());
        for text in ["", "K", "7", "1.5K", "-1", "99999999999G", "64KB", "2G", "é"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }
}

//! The command line of `weir bench serverload`.

use std::path::PathBuf;

use clap::ValueEnum;

use crate::error::{BenchError, Result};
use crate::options::Telling;
use crate::sizes;
use crate::sys::bmi::Dialect;

use super::carry::MOST_BYTES;
use super::serve::ServeArgs;
use super::words::Place;

const EXAMPLES: &str = "Examples:
  weir bench serverload -o served                     2, 8 and 64 clients on this host
  weir bench serverload --method tcp --clients 8 --sizes 100000 -o served-tcp
  weir report served served-tcp                       the two beside each other
  weir bench serverload --method sockets              plain TCP sockets: what BMI costs shows beside them
  weir bench serverload --launches 5 -o served5       five launches: what launches differ by shows
  weir bench serverload --loop open --rate 2000 --clients 8 --sizes 10000
  weir bench serverload --hosts n1,n2,n3 --clients 64 n1 serves, the clients are on n2 and n3
  weir emulate --hosts 9 --rate 1g --queue 64p -- sh -c \\
    'weir bench serverload --hosts $WEIR_HOSTS --clients 8 -o served-1g'
  weir bench serverload serve weir://n1:4000          on n1: only serves, until Ctrl-C
  weir bench serverload --server weir://n1:4000 --clients 16   elsewhere: clients of that server
  weir bench serverload --library /opt/bmi/lib/libbmi.so --method tcp -o served-radix

A request is an unexpected message of 8 bytes that names a size, its answer a message of that size. Each client is a process.

Closed loop: in each round all clients are released at one instant, each asks once, and the next round begins when all have their answers. A time is a \
client's own, from its post to the whole answer. max/min is the longest time of a round over the shortest; Jain's index is 1 where all clients of a round \
were served at one rate, and 1/n where one of n got everything.

Open loop: requests are due at instants drawn beforehand, --rate of all clients together in a second, whatever has become of those before. A time counts from the \
instant at which the request was due, not from when it could be sent: a server that stands still shows in all requests that fell due meanwhile.

Columns: cpu is processor time of the server's process for each request (what the kernel does for it in interrupts is not in it), memory the most that was \
resident of it.

With --server nothing is known of what the server uses: it says so itself when it ends. Clients of several hosts are released at one instant by their own clocks, whose distances are found \
anew before each cell (weir bench's own clock code); the bound of what they may be wrong by is in the run.

Hosts are reached by $WEIR_LAUNCH_AGENT, which weir emulate sets, else ssh; what is measured goes between --address and the clients, which may be another network than \
the launchers'. Nobody needs to share files, but each host needs weir, the library, and for method weir the same key.

Ctrl-C drops the cell that is under way and keeps those that are finished. Exit codes are those of weir bench.";

/// Measure a server and many clients: how long requests take, and whether all are served alike
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct ServerloadArgs {
    /// Not to measure, but to serve
    #[command(subcommand)]
    pub command: Option<ServerloadCommand>,
    /// Folder to write; without it only the table is shown
    #[arg(short, long, value_name = "FOLDER")]
    pub output: Option<PathBuf>,
    /// Add another launch to the run in the folder
    #[arg(long, requires = "output")]
    pub append: bool,
    /// So many launches, one after the other, each with processes of its own
    #[arg(long, value_name = "N", default_value_t = 1, requires = "output", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub launches: u32,
    /// What carries requests and answers: a BMI method (weir, tcp, sctp, one of your own), or
    /// sockets, plain TCP
    #[arg(long, value_name = "NAME", default_value = "weir")]
    pub method: String,
    /// Numbers of clients
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "2,8,64", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub clients: Vec<u32>,
    /// Sizes of answers in bytes, at most 16M; written as for weir bench
    #[arg(short, long, value_name = "SIZES", default_value = "10000,100000")]
    pub sizes: String,
    /// What makes a client ask
    #[arg(long = "loop", value_enum, default_value = "closed")]
    pub loops: Loop,
    /// Requests a second of all clients together, with --loop open
    #[arg(long, value_name = "RATE", required_if_eq("loops", "open"))]
    pub rate: Option<f64>,
    /// Time for each cell, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, allow_negative_numbers = true)]
    pub time: f64,
    /// Exactly so many rounds of each cell count, with --loop closed
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    pub rounds: Option<u32>,
    /// A request that is not answered for so long ends the measurement, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, allow_negative_numbers = true)]
    pub timeout: f64,
    /// Hosts: the first serves, the clients are on the others in turn; on this host if not given
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    pub hosts: Vec<String>,
    /// A server that is there already (weir bench serverload serve), as METHOD://HOST:PORT: all of
    /// --hosts have clients
    #[arg(long, value_name = "URL", conflicts_with_all = ["method", "address", "port"])]
    pub server: Option<String>,
    /// Where the server listens and clients find it [default: the first of --hosts, else 127.0.0.1]
    #[arg(long, value_name = "ADDRESS")]
    pub address: Option<String>,
    /// The server's port; else one that is free
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
    /// With --hosts: what starts a command on a host [default: $WEIR_LAUNCH_AGENT, else ssh]
    #[arg(long, value_name = "COMMAND", requires = "hosts")]
    pub agent: Option<String>,
    /// With --hosts: the weir on the hosts [default: this program's file]
    #[arg(long, value_name = "FILE", requires = "hosts")]
    pub weir: Option<String>,
    /// The BMI library, on all hosts [default: Weir's own]
    #[arg(long, value_name = "FILE")]
    pub library: Option<PathBuf>,
    /// Whose functions the library has; Weir's own has both
    #[arg(long, value_enum, default_value = "radix")]
    pub dialect: Dialect,
    /// Samples kept of a cell; of more, a random choice is kept
    #[arg(long, value_name = "N", default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(100..))]
    pub keep: u32,
    /// Rounds to leave out at the beginning of a cell; found from the samples if not given
    #[arg(long, value_name = "N")]
    pub warm_up: Option<u32>,
    /// Seed of the order of cells, and of when requests are due
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// How the run is named and told.
    #[command(flatten)]
    pub telling: Telling,
    /// Do what standard input says
    #[arg(long, hide = true)]
    pub part: bool,
}

/// What else can be done.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum ServerloadCommand {
    /// Serve by itself, for clients that others start with --server
    Serve(ServeArgs),
}

/// What makes a client ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Loop {
    /// All at one instant, again when all are answered.
    Closed,
    /// The time of day: requests do not wait for answers.
    Open,
}

/// A cell to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Clients.
    pub clients: u32,
    /// Bytes of an answer.
    pub bytes: u64,
}

/// Requests due of all clients in a cell that the leader has memory for.
const MOST_REQUESTS: f64 = 5e6;

impl ServerloadArgs {
    /// The cells that are asked for.
    ///
    /// # Errors
    /// [`BenchError::Usage`].
    pub fn cells(&self) -> Result<Vec<Load>> {
        self.makes_sense()?;
        let sizes = sizes::parse(&self.sizes)?;
        if let Some(wrong) = sizes.iter().find(|bytes| !(1..=MOST_BYTES).contains(*bytes)) {
            return Err(BenchError::Usage(format!("an answer of {wrong} bytes: it may have from 1 to {MOST_BYTES}")));
        }
        let (mut clients, all) = (self.clients.clone(), &sizes);
        clients.sort_unstable();
        clients.dedup();
        Ok(clients.into_iter().flat_map(|clients| all.iter().map(move |&bytes| Load { clients, bytes })).collect())
    }

    /// The server that is there already, if one is named.
    ///
    /// # Errors
    /// [`BenchError::Usage`].
    pub fn server(&self) -> Result<Option<Place>> {
        let place = self.server.as_deref().map(Place::parse).transpose()?;
        match place {
            Some(place) if place.port.is_none() => {
                Err(BenchError::Usage(format!("--server {}: at which port?", self.server.as_deref().unwrap_or(""))))
            }
            place => Ok(place),
        }
    }

    fn makes_sense(&self) -> Result<()> {
        let usage = |text: String| Err(BenchError::Usage(text));
        let within = |name: &str, value: f64, low: f64, high: f64| match (low..=high).contains(&value) {
            true => Ok(()),
            false => usage(format!("{name} is {value}, it may be from {low} to {high}")),
        };
        within("--time", self.time, 0.01, 1e5)?;
        within("--timeout", self.timeout, 0.1, 1e5)?;
        let named = self.method.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if self.method.is_empty() || !named || self.method.starts_with("bmi_") {
            return usage(format!(
                "--method {:?} is not a method's name without bmi_, such as weir or tcp",
                self.method
            ));
        }
        match (self.loops, self.rate) {
            (Loop::Closed, Some(_)) => {
                return usage("--rate needs --loop open: in a closed loop answers bring requests".into());
            }
            (Loop::Open, _) if self.rounds.is_some() => {
                return usage("--rounds needs --loop closed: an open loop has none".into());
            }
            (Loop::Open, Some(rate)) => {
                within("--rate", rate, 0.01, 1e7)?;
                within("requests of a cell (--rate times --time)", rate * self.time, 1.0, MOST_REQUESTS)?;
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ServerloadArgs,
    }

    pub(in crate::serverload) fn args(words: &[&str]) -> ServerloadArgs {
        let line = Line::try_parse_from(["serverload"].iter().chain(words));
        line.map(|line| line.args).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn the_defaults_are_those_of_the_thesis() {
        let cells = args(&[]).cells().unwrap();
        assert_eq!(cells.len(), 6);
        assert_eq!((cells[0], cells[5]), (Load { clients: 2, bytes: 10_000 }, Load { clients: 64, bytes: 100_000 }));
    }

    #[test]
    fn what_cannot_be_is_named() {
        let cases: [(&[&str], &str); 8] = [
            (&["--rate", "5"], "--rate needs --loop open"),
            (&["--loop", "open", "--rate", "5", "--rounds", "9"], "--rounds needs --loop closed"),
            (&["--loop", "open", "--rate", "0"], "--rate is 0"),
            (&["--loop", "open", "--rate", "1e7", "--time", "60"], "requests of a cell"),
            (&["-s", "0"], "an answer of 0 bytes"),
            (&["-s", "17M"], "may have from 1 to 16777216"),
            (&["--method", "bmi_tcp"], "without bmi_"),
            (&["--time", "-1"], "--time is -1"),
        ];
        for (words, expected) in cases {
            let error = args(words).cells().unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains('\n'), "{error}");
        }
        assert!(Line::try_parse_from(["serverload", "--loop", "open"]).is_err(), "at which rate?");
    }
}

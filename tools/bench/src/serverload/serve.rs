//! `weir bench serverload serve`: a server by itself, that clients of other hosts find with
//! `--server`, until it is told to end.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::command::{EXIT_DONE, EXIT_INTERRUPTED, print};
use crate::error::{BenchError, Result};
use crate::host;
use crate::stop::{self, Then};
use crate::sys::bmi::Dialect;
use crate::sys::process;

use super::ask::IDLE;
use super::words::{Place, Stack};
use super::{Around, key, part, stack};

const EXAMPLES: &str = "Examples:
  on n1:  weir bench serverload serve weir://n1:4000
  on n2:  weir bench serverload --server weir://n1:4000 --clients 16 -o served
  weir bench serverload serve sockets://10.0.0.1:4000 --for 600

It says where it serves as soon as clients may come, and at its end what requests cost it. Ctrl-C or SIGTERM ends it in good order, with exit code 0. Clients may come and go; those of several \
commands at once are all served.

It answers whoever reaches it and, for weir, has the same key: which it has is in its first lines. When packets come that are not sealed with it, the library says so once, and at its end how many there were.";

/// Serve by itself, for clients that others start with --server
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct ServeArgs {
    /// Where to listen: METHOD://HOST:PORT, such as weir://n1:4000, tcp://10.0.0.1:4000 or
    /// sockets://10.0.0.1:4000 (plain TCP); without a port at one that is free
    #[arg(value_name = "URL")]
    url: String,
    /// End after so many seconds [default: when told to]
    #[arg(long = "for", value_name = "SECONDS", allow_negative_numbers = true)]
    seconds: Option<f64>,
    /// The BMI library [default: Weir's own]
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// Whose functions the library has; Weir's own has both
    #[arg(long, value_enum, default_value = "radix")]
    dialect: Dialect,
    /// Say both in JSON, a document a line
    #[arg(long)]
    json: bool,
}

/// Serves; returns the exit code.
///
/// # Errors
/// It cannot listen there, or what carries requests is broken.
pub fn run(args: &ServeArgs, around: &Around<'_>) -> Result<u8> {
    let end = match args.seconds {
        Some(seconds) if !(0.1..=1e7).contains(&seconds) => {
            return Err(BenchError::Usage(format!("--for is {seconds}, it may be from 0.1 to 10000000")));
        }
        seconds => seconds.map(Duration::from_secs_f64),
    };
    let place = Place::parse(&args.url)?;
    let own = Stack { method: place.method.clone(), library: args.library.clone(), dialect: args.dialect };
    let stack = stack(own, true, around)?;
    let asked = stop::listen(Then::Look, EXIT_INTERRUPTED)?;
    let (mut serving, port) = part::listen_at(&stack, &place.host, place.port)?;
    let url = place.with_port(port);
    let key = key::told(&stack);
    say(&if args.json { json!({ "serving": url, "key": key }).to_string() } else { format!("serving at {url}") })?;
    if let Some(key) = key.as_ref().filter(|_| !args.json) {
        say(&format!("to whoever has {key}"))?;
    }
    let (begun, used_ns, mut requests) = (Instant::now(), process::cpu_ns(), 0);
    while !asked.stop.load(Ordering::Relaxed) && end.is_none_or(|end| begun.elapsed() < end) {
        requests += serving.turn(IDLE)?;
    }
    let refused = serving.refused();
    let cpu_ns = (requests > 0).then(|| (process::cpu_ns() - used_ns) as f64 / requests as f64);
    let (seconds, peak_bytes) = (begun.elapsed().as_secs_f64(), host::peak_memory_bytes());
    say(&if args.json {
        json!({ "seconds": seconds, "requests": requests, "cpu_ns": cpu_ns, "peak_bytes": peak_bytes, "refused": refused }).to_string()
    } else {
        told(seconds, requests, cpu_ns, peak_bytes) + &of_strangers(refused)
    })?;
    Ok(EXIT_DONE)
}

fn of_strangers(refused: u64) -> String {
    if refused == 0 {
        return String::new();
    }
    format!("; {refused} packets were refused: not sealed with its key, or damaged")
}

fn say(line: &str) -> Result<()> {
    print(&format!("{line}\n")).map(|_| ())
}

fn told(seconds: f64, requests: u64, cpu_ns: Option<f64>, peak_bytes: Option<u64>) -> String {
    let cpu = cpu_ns.map_or_else(String::new, |ns| format!(", {:.1} us of processor time each", ns / 1e3));
    let memory = peak_bytes
        .map_or_else(String::new, |bytes| format!(", {:.1} MiB of memory at most", bytes as f64 / f64::from(1 << 20)));
    format!("{requests} requests in {seconds:.1} s{cpu}{memory}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_what_requests_cost_if_there_were_any() {
        assert_eq!(
            told(2.0, 10, Some(1500.0), Some(3 << 20)),
            "10 requests in 2.0 s, 1.5 us of processor time each, 3.0 MiB of memory at most"
        );
        assert_eq!(told(2.0, 0, None, None) + &of_strangers(0), "0 requests in 2.0 s");
        assert!(of_strangers(7).contains("7 packets were refused"));
    }
}

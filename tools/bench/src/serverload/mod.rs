//! `weir bench serverload`: a server and many clients, each a process, over any BMI library or
//! plain sockets. How long requests take, whether all clients are served alike, and what it costs
//! the server.
//!
//! The process that was started leads: it starts the others ([`crew`]), here or on other hosts,
//! tells them what to do and hears what they timed, a JSON document a line ([`words`]), and enters
//! cells into the books of the harness as any operation's. A server may also be started by itself
//! ([`serve`]) and found by the clients of others. [`part`] is a process that serves or asks,
//! [`ask`] its loops, [`carry`] and [`sockets`] what carries requests, [`fairness`] the arithmetic.
//!
//! Sources: Carns, "Design and analysis of a network transfer layer for parallel file systems"
//! (M.S. thesis, Clemson 2001), section 5.2.3, for the load; Schroeder, Wierman and Harchol-Balter,
//! "Open versus closed: a cautionary tale" (NSDI 2006), for why there are two loops.

mod args;
mod ask;
mod carry;
mod crew;
mod fairness;
mod key;
mod lead;
mod part;
mod record;
mod serve;
mod sockets;
mod words;

use std::path::PathBuf;

use crate::book::{self, Book, Report};
use crate::collect::Rules;
use crate::command::{EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE, Manner, conclude, print};
use crate::error::{BenchError, Result};
use crate::pairing::Layout;
use crate::run::{Watcher, fresh_seed};
use crate::stop::{self, Asked, Then};
use crate::{plan, show};

pub use args::{Load, Loop, ServerloadArgs, ServerloadCommand};
pub use crew::Hosts;

use ask::{Monotonic, Time};
use lead::Group;
use words::Stack;

/// Outliers are beyond so many times this quantile, as by default elsewhere.
const OUTLIERS: (f64, f64) = (0.99, 5.0);

/// Finds how processes are started on hosts, by `--agent` and `--weir`; the hosts' names are added
/// here.
type Start<'a> = dyn Fn(Option<&str>, Option<&str>) -> std::result::Result<Hosts, String> + 'a;

/// What this command needs of the program around it.
pub struct Around<'a> {
    /// Finds Weir's own BMI library.
    pub library: &'a dyn Fn() -> std::result::Result<PathBuf, String>,
    /// What starts a command on a host.
    pub hosts: &'a Start<'a>,
}

/// Does what the command line asks; returns the exit code.
#[must_use]
pub fn run(args: &ServerloadArgs, around: &Around<'_>) -> u8 {
    if args.part {
        return part::run();
    }
    let done = match &args.command {
        Some(ServerloadCommand::Serve(args)) => serve::run(args, around),
        None => lead(args, around),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            weir_put::tell!("weir bench: {error}");
            if matches!(error, BenchError::Usage(_)) { EXIT_USAGE } else { EXIT_FAILED }
        }
    }
}

fn lead(args: &ServerloadArgs, around: &Around<'_>) -> Result<u8> {
    let cells = args.cells()?;
    let server = args.server()?;
    let method = server.as_ref().map_or_else(|| args.method.clone(), |server| server.method.clone());
    let own = Stack { method, library: args.library.clone(), dialect: args.dialect };
    // Processes may be started elsewhere.
    let stack = stack(own, args.hosts.is_empty(), around)?;
    let hosts = match args.hosts.as_slice() {
        [] => Hosts { server, ..Hosts::default() },
        names => {
            let by = (around.hosts)(args.agent.as_deref(), args.weir.as_deref()).map_err(BenchError::Usage)?;
            Hosts { names: names.to_vec(), server, ..by }
        }
    };
    let asked = stop::listen(Then::Look, EXIT_INTERRUPTED)?;
    let mut code = EXIT_DONE;
    for number in 1..=args.launches {
        let args = ServerloadArgs { append: args.append || number > 1, ..args.clone() };
        code = launch(&args, &stack, &hosts, &cells, &asked, number)?;
        if code != EXIT_DONE {
            break;
        }
    }
    Ok(code)
}

/// One launch; what it came to is told, of the last one also what all came to.
fn launch(
    args: &ServerloadArgs,
    stack: &Stack,
    hosts: &Hosts,
    cells: &[Load],
    asked: &Asked,
    number: u32,
) -> Result<u8> {
    let (several, last) = (args.launches > 1, number == args.launches);
    let manner = Manner {
        output: args.output.clone(),
        json: args.telling.json,
        quiet: args.telling.quiet,
        no_fits: false,
        of_several: several && !last,
    };
    if several && !args.telling.quiet && !args.telling.json {
        weir_put::tell!("launch {number} of {}", args.launches);
    }
    let mut watcher = manner.watcher();
    let Some(mut report) = measure(args, stack, hosts, cells.to_vec(), asked, watcher.as_mut())? else {
        weir_put::tell!("interrupted before the first cell was finished: nothing is kept");
        return Ok(EXIT_INTERRUPTED);
    };
    // One document is promised: that of the run, at the end.
    if args.telling.json && !last && report.complete {
        return Ok(if book::fit(&mut report, &asked.stop, watcher.as_mut())? { EXIT_DONE } else { EXIT_INTERRUPTED });
    }
    let all = (several && last && !args.telling.json && report.complete).then(|| show::launches(&report.run));
    let code = conclude(report, &manner, &asked.stop, watcher)?;
    match all {
        Some(all) => print(&all).map(|_| code),
        None => Ok(code),
    }
}

/// The stack with its library found: Weir's own if none is named, the file's full name if it is
/// `here`.
fn stack(mut stack: Stack, here: bool, around: &Around<'_>) -> Result<Stack> {
    match &stack.library {
        Some(file) if stack.is_sockets() => {
            let text = format!("--library {} has no use with plain sockets", file.display());
            return Err(BenchError::Usage(text));
        }
        Some(file) if here => {
            let found = file.canonicalize();
            stack.library =
                Some(found.map_err(|error| BenchError::Usage(format!("--library {}: {error}", file.display())))?);
        }
        None if !stack.is_sockets() => stack.library = Some((around.library)().map_err(BenchError::Told)?),
        _ => {}
    }
    Ok(stack)
}

/// Measures all cells. Those with most clients come first: of them everybody is known whom the run
/// names. Nothing if it was asked to stop before anybody was there.
fn measure(
    args: &ServerloadArgs,
    stack: &Stack,
    hosts: &Hosts,
    mut cells: Vec<Load>,
    asked: &Asked,
    watcher: &mut dyn Watcher,
) -> Result<Option<Report>> {
    let seed = args.seed.unwrap_or_else(fresh_seed);
    plan::shuffle(&mut cells, seed);
    cells.sort_by_key(|load| std::cmp::Reverse(load.clients));
    let mut work = Work { args, stack, hosts, asked, seed, origin_ns: Monotonic.now_ns(), all: cells.len(), done: 0 };
    let mut book = None;
    for some in cells.chunk_by(|a, b| a.clients == b.clients) {
        if let Err(error) = work.group(some, &mut book, watcher) {
            let stopped = matches!(&error, BenchError::Told(text) if text == crew::STOPPED);
            return match book {
                Some(book) if stopped => book.finish(false, Vec::new()).map(Some),
                None if stopped => Ok(None),
                None => Err(error),
                Some(mut book) => {
                    // What is finished is in the folder whatever comes of this.
                    book.stop();
                    Err(error)
                }
            };
        }
    }
    let Some(book) = book else { return Err(BenchError::Usage("there is nothing to measure".into())) };
    book.finish(true, Vec::new()).map(Some)
}

struct Work<'a> {
    args: &'a ServerloadArgs,
    stack: &'a Stack,
    hosts: &'a Hosts,
    asked: &'a Asked,
    seed: u64,
    origin_ns: i64,
    all: usize,
    done: usize,
}

impl Work<'_> {
    /// The cells of so many clients, with a server of their own: what others left in its memory is
    /// in none of them.
    fn group(&mut self, cells: &[Load], book: &mut Option<Book>, watcher: &mut dyn Watcher) -> Result<()> {
        let args = self.args;
        let clients = cells.first().map_or(1, |load| load.clients);
        let mut group = Group::start(args, self.stack, self.hosts, self.asked, clients, self.origin_ns)?;
        let names: Vec<String> = group.facts.iter().map(|facts| facts.identity.clone()).collect();
        let layout = Layout::of_names(&names);
        if book.is_none() {
            let (run, launch) = record::head(args, self.stack, &group.facts, &layout);
            let mut new = book::open(args.output.as_deref(), args.append, run, launch)?;
            new.launch().clock = Some(record::clock(&group.offsets));
            watcher.begin(&new.run, self.all);
            new.launch().warnings.clone().iter().for_each(|warning| watcher.warning(warning));
            *book = Some(new);
        }
        let Some(book) = book else { return Ok(()) };
        for &load in cells {
            let spec = record::spec(load, args.loops, &layout);
            let rules = Rules {
                keep: args.keep as usize,
                warm_up: if args.loops == Loop::Open { Some(args.warm_up.unwrap_or(0)) } else { args.warm_up },
                percentile: OUTLIERS.0,
                multiplier: OUTLIERS.1,
                seed: self.seed ^ self.done as u64,
                counted: args.rounds.map(u64::from),
            };
            let measured = group.measure(load, &spec, &rules)?;
            let (cell, samples) = record::cell(args, &spec, &measured, &rules, &layout)?;
            book.add(cell, &samples, rules.seed)?;
            self.done += 1;
            let each_s = (Monotonic.now_ns() - self.origin_ns) as f64 / 1e9 / self.done as f64;
            if let Some(cell) = book.run.cells.last() {
                watcher.cell(cell, self.done, self.all, each_s * (self.all - self.done) as f64);
            }
        }
        Ok(())
    }
}

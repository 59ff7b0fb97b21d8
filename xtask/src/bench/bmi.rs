//! `cargo xtask bench bmi`: requests and answers over BMI beside raw sockets, and beside the
//! original libraries where they are; one server and many clients at once are in
//! [`super::serverload`], many messages one way in [`super::bulk`], what is sent to many, and
//! clients that come and go or are idle, in [`super::many`], storage software in
//! [`super::storage`].

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use indicatif::ProgressBar;
use serde_json::{Value, json};

use super::beside::{BySide, Common, about_json, bar, by_side_json, failures, head, in_turns, spread, wanted};
use super::measure::Spread;
use super::{bulk, many, orangefs, serverload, storage};
use crate::lab::{self, Lab, Wire};
use crate::paths::Paths;
use crate::process::{run_limited, run_quiet};

/// What to measure, and how much.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  cargo xtask bench bmi
  cargo xtask bench bmi --only host/round-trip --launches 7
  cargo xtask bench bmi --radix ~/radix-bmi --orangefs ~/orangefs --json
  cargo xtask bench bmi --orangefs ~/orangefs --only veth/storage,loss/storage --storage-mib 256
  cargo xtask bench bmi --zmq ~/pyzmq/pyzmq.libs/libzmq.so --nng /usr/lib/x86_64-linux-gnu/libnng.so.1")]
pub struct Options {
    /// Only cells whose names start so: host, veth/requests, 100mbit
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Where radix-io/bmi is installed (include/bmi.h, lib/libbmi.so): a rival more
    #[arg(long, value_name = "FOLDER")]
    radix: Option<PathBuf>,
    /// Where OrangeFS was built (src/io/bmi/bmi.h, lib/libpvfs2.a): a rival more, and with its
    /// server, tools and lib/libpvfs2.so the storage cells
    #[arg(long, value_name = "FOLDER")]
    orangefs: Option<PathBuf>,
    /// ZeroMQ's library (libzmq.so; the one in pip's pyzmq will do): a rival more
    #[arg(long, value_name = "FILE")]
    zmq: Option<PathBuf>,
    /// nng's library, version 1 (libnng.so.1 of Debian's libnng1): a rival more
    #[arg(long, value_name = "FILE")]
    nng: Option<PathBuf>,
    /// Where Mercury is installed (include/na.h, lib/libna.so): a rival more, by shared memory and
    /// by libfabric's tcp
    #[arg(long, value_name = "FOLDER")]
    mercury: Option<PathBuf>,
    #[command(flatten)]
    storage: orangefs::Amounts,
    /// Name of the report in docs/lab
    #[arg(long, default_value = "bmi")]
    name: String,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Requests of so many clients, each with so many under way.
#[derive(Clone, Copy, Debug)]
struct Cell {
    id: &'static str,
    bytes: u32,
    clients: u32,
    window: u32,
    /// Two hosts; otherwise one.
    veth: bool,
}

const fn round_trip(id: &'static str, bytes: u32, veth: bool) -> Cell {
    Cell { id, bytes, clients: 1, window: 1, veth }
}

const fn requests(id: &'static str, bytes: u32, clients: u32, veth: bool) -> Cell {
    Cell { id, bytes, clients, window: 16, veth }
}

const CELLS: [Cell; 11] = [
    round_trip("host/round-trip/8", 8, false),
    round_trip("host/round-trip/1024", 1024, false),
    round_trip("host/round-trip/4096", 4096, false),
    round_trip("veth/round-trip/8", 8, true),
    round_trip("veth/round-trip/1024", 1024, true),
    round_trip("veth/round-trip/4096", 4096, true),
    requests("host/requests/64", 64, 16, false),
    requests("host/requests/4096", 4096, 16, false),
    requests("host/clients/1", 64, 1, false),
    requests("host/clients/64", 64, 64, false),
    requests("veth/requests/64", 64, 16, true),
];

impl Cell {
    /// The number that is compared, and in what.
    fn metric(&self) -> (&'static str, &'static str) {
        if self.window == 1 { ("median_us", "us") } else { ("per_second", "requests/s") }
    }

    fn describe(&self) -> String {
        let network = if self.veth { "two hosts, veth" } else { "one host" };
        format!("{} bytes, {} clients, window {}, {network}", self.bytes, self.clients, self.window)
    }
}

/// A way of carrying them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    /// In tables.
    pub name: &'static str,
    /// Of its URLs.
    pub scheme: &'static str,
    /// Which program.
    pub build: Build,
    /// Its settings.
    pub env: &'static [(&'static str, &'static str)],
}

/// Which library: `tests/bmi/exchange.c` is compiled against it, `weir bench serverload` loads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Build {
    /// Weir's.
    Ours,
    /// OrangeFS's.
    OrangeFs,
    /// radix-io's.
    Radix,
    /// Weir's, with Mercury's beside it.
    Mercury,
}

/// Whoever polls is never asleep: its tests wait for nothing.
const POLLS: (&str, &str) = ("EXCHANGE_POLL", "1");

const SIDES: [Side; 15] = [
    Side { name: "bmi_tcp", scheme: "tcp", build: Build::Ours, env: &[] },
    Side { name: "bmi_weir, packets", scheme: "weir", build: Build::Ours, env: &[("WEIR_CARRIER", "udp")] },
    Side { name: "bmi_weir, shared memory", scheme: "weir", build: Build::Ours, env: &[("WEIR_CARRIER", "shm")] },
    Side {
        name: "bmi_weir, shared memory, polling",
        scheme: "weir",
        build: Build::Ours,
        env: &[("WEIR_CARRIER", "shm"), POLLS],
    },
    Side { name: "bmi_weir and bmi_tcp", scheme: "weir,tcp", build: Build::Ours, env: &[] },
    Side { name: "bmi_tcp and bmi_weir", scheme: "tcp,weir", build: Build::Ours, env: &[] },
    Side { name: "OrangeFS's bmi_tcp", scheme: "tcp", build: Build::OrangeFs, env: &[] },
    Side { name: "radix-io's bmi_tcp", scheme: "tcp", build: Build::Radix, env: &[] },
    Side { name: "ZeroMQ", scheme: "zmq", build: Build::Ours, env: &[] },
    Side { name: "nng", scheme: "nng", build: Build::Ours, env: &[] },
    Side { name: "Mercury's na+sm", scheme: "na+sm", build: Build::Mercury, env: &[] },
    Side { name: "Mercury's na+sm, polling", scheme: "na+sm", build: Build::Mercury, env: &[POLLS] },
    Side { name: "Mercury's ofi+tcp", scheme: "ofi+tcp", build: Build::Mercury, env: &[] },
    Side { name: "raw TCP", scheme: "raw-tcp", build: Build::Ours, env: &[] },
    Side { name: "raw UDP", scheme: "raw-udp", build: Build::Ours, env: &[] },
];

impl Side {
    fn is_of(&self, cell: &Cell) -> bool {
        match self.name {
            "bmi_weir, shared memory" | "Mercury's na+sm" => !cell.veth,
            // (With more clients than processors whoever polls takes the others' time.)
            "bmi_weir, shared memory, polling" | "Mercury's na+sm, polling" => !cell.veth && cell.clients == 1,
            // Every other client asks by the second.
            "bmi_weir and bmi_tcp" | "bmi_tcp and bmi_weir" => cell.clients > 1,
            // Whoever sends many datagrams at once without looking after them loses some.
            "raw UDP" => cell.window == 1,
            _ => true,
        }
    }
}

impl Options {
    /// The library that `others.c` is to load for these URLs, and the variable that names it; none
    /// if it links what it needs.
    fn other(&self, scheme: &str) -> Option<(&'static str, Option<&PathBuf>)> {
        match scheme {
            "zmq" => Some(("EXCHANGE_ZMQ", self.zmq.as_ref())),
            "nng" => Some(("EXCHANGE_NNG", self.nng.as_ref())),
            _ => None,
        }
    }

    fn has(&self, side: &Side) -> bool {
        self.other(side.scheme).is_none_or(|(_, file)| file.is_some())
    }

    /// The rivals that are loaded, for the page: their files' names hold their versions.
    fn others(&self) -> Vec<(String, String)> {
        let named = |name: &str, file: &Option<PathBuf>| {
            let file = file.as_ref()?.canonicalize().ok()?;
            Some((name.to_owned(), file.file_name()?.to_string_lossy().into_owned()))
        };
        let na = self.mercury.as_ref().map(|prefix| prefix.join("lib/libna.so"));
        [named("ZeroMQ", &self.zmq), named("nng", &self.nng), named("Mercury's na", &na)]
            .into_iter()
            .flatten()
            .collect()
    }
}

/// Measures and reports.
///
/// # Errors
/// If something cannot be built, or the report cannot be written. A launch that fails is told in
/// its row.
pub fn run(paths: &Paths, options: &Options) -> Result<()> {
    let cells: Vec<Cell> = CELLS.into_iter().filter(|cell| wanted(&options.only, cell.id)).collect();
    let loads = serverload::CELLS.into_iter().filter(|cell| wanted(&options.only, cell.id));
    let loads: Vec<serverload::Cell> = loads.collect();
    let bulks: Vec<bulk::Cell> = bulk::CELLS.into_iter().filter(|cell| wanted(&options.only, cell.id)).collect();
    let crowds: Vec<many::Cell> = many::CELLS.into_iter().filter(|cell| wanted(&options.only, cell.id)).collect();
    // (Without a tree they are left out, as any rival that is not there, unless they are asked
    // for.)
    let is_stored = options.orangefs.is_some() || options.only.iter().any(|start| start.contains("/storage"));
    let stores = storage::CELLS.into_iter().filter(|cell| is_stored && wanted(&options.only, cell.id));
    let stores: Vec<storage::Cell> = stores.collect();
    if cells.is_empty() && loads.is_empty() && bulks.is_empty() && crowds.is_empty() && stores.is_empty() {
        bail!("no cell has such a name; there are {}", every_cell().join(", "));
    }
    let how = lab::acquire()?;
    let folder = options.common.library(paths, "bmi")?;
    let build = |is_wanted: bool, sources: &[&str]| match is_wanted {
        true => build(paths, options, &folder, sources),
        false => Ok(BTreeMap::new()),
    };
    let programs = build(!cells.is_empty(), &["exchange.c", "others.c", "mercury.c"])?;
    let bulk_programs = build(!bulks.is_empty(), &["bulk.c"])?;
    let many_programs = build(!crowds.is_empty(), &["many.c"])?;
    let stored =
        (!stores.is_empty()).then(|| orangefs::Plan::make(paths, &options.storage, &folder, options.orangefs.as_ref()));
    let stored = stored.transpose()?;
    let libraries = libraries(options, &folder);
    let mut about = options.common.about(paths, how);
    about.extend(options.others());
    let is_there = |side: &Side| programs.contains_key(&side.build) && options.has(side);
    let sides: Vec<Side> = SIDES.into_iter().filter(is_there).collect();
    let each = |cell: &Cell| sides.iter().filter(|side| side.is_of(cell)).count();
    let exchanges = cells.iter().map(each).sum::<usize>() * options.common.launches as usize;
    let others = serverload::launches(options, &loads, &libraries) + bulk::launches(options, &bulks, &bulk_programs);
    let others = others + many::launches(options, &crowds, &many_programs);
    let others = others + storage::launches(options.common.launches, &stores);
    let bar = bar(exchanges + others)?;
    let results = measure(options, &cells, &sides, &programs, &bar)?;
    let served = match loads.as_slice() {
        [] => BySide::new(),
        loads => serverload::measure(options, loads, &weir(paths, options)?, &libraries, &bar)?,
    };
    let carried = bulk::measure(options, &bulks, &bulk_programs, &bar)?;
    let crowded = many::measure(options, &crowds, &many_programs, &bar)?;
    let kept = storage::measure(options.common.launches, &stores, stored.as_ref(), &bar)?;
    bar.finish_and_clear();
    let page = page(&results, &cells, &sides, &about)
        + &serverload::section(&served, &loads, &libraries)
        + &bulk::section(&carried, &bulks, &bulk_programs)
        + &many::section(&crowded, &crowds, &many_programs)
        + &storage::section(&kept, &stores, stored.as_ref());
    let json = json!({
        "about": about_json(&about), "cells": by_side_json(&results), "serverload": by_side_json(&served), "bulk": by_side_json(&carried), "many": by_side_json(&crowded),
        "storage": by_side_json(&kept),
    });
    options.common.publish(paths, &options.name, &page, &json)
}

/// The names of all cells.
fn every_cell() -> Vec<&'static str> {
    let of_others = serverload::CELLS.iter().map(|cell| cell.id).chain(bulk::CELLS.iter().map(|cell| cell.id));
    let of_others = of_others.chain(many::CELLS.iter().map(|cell| cell.id));
    let of_others = of_others.chain(storage::CELLS.iter().map(|cell| cell.id));
    CELLS.iter().map(|cell| cell.id).chain(of_others).collect()
}

/// The command, as it is now.
fn weir(paths: &Paths, options: &Options) -> Result<PathBuf> {
    let file = paths.target.join("release/weir");
    if !options.common.no_build || !file.exists() {
        run_quiet(paths.cargo().args(["build", "--release", "-p", "weir"])).context("weir does not build")?;
    }
    Ok(file)
}

/// The libraries that `weir bench serverload` can load.
fn libraries(options: &Options, folder: &Path) -> BTreeMap<Build, PathBuf> {
    let radix = options.radix.as_ref().map(|prefix| (Build::Radix, prefix.join("lib/libbmi.so")));
    let orangefs = options.orangefs.as_ref().map(|tree| (Build::OrangeFs, tree.join("lib/libpvfs2.so")));
    std::iter::once((Build::Ours, folder.join("libweir-bmi.so"))).chain(radix).chain(orangefs).collect()
}

/// The program of these sources, for each library that is there.
fn build(paths: &Paths, options: &Options, folder: &Path, sources: &[&str]) -> Result<BTreeMap<Build, PathBuf>> {
    let name = sources[0].trim_end_matches(".c");
    let sources: Vec<PathBuf> = sources.iter().map(|name| paths.root.join("tests/bmi").join(name)).collect();
    let compile = |name: &str, flags: &[String]| -> Result<PathBuf> {
        let program = folder.join(name);
        let mut cc = Command::new("cc");
        cc.args(["-O2", "-std=gnu11"]).args(&sources).arg("-o").arg(&program).args(flags).arg("-ldl");
        run_quiet(&mut cc).with_context(|| format!("{} does not compile for {name}", sources[0].display()))?;
        Ok(program)
    };
    let include = |folder: &Path| format!("-I{}", folder.display());
    let mut programs = BTreeMap::new();
    let ours = [
        "-Wall".to_owned(),
        "-Wextra".to_owned(),
        "-Werror".to_owned(),
        include(&paths.root.join("include")),
        format!("-L{}", folder.display()),
        "-lweir-bmi".to_owned(),
        format!("-Wl,-rpath,{}", folder.display()),
    ];
    programs.insert(Build::Ours, compile(name, &ours)?);
    if let Some(prefix) = options.mercury.as_ref().filter(|_| sources.iter().any(|file| file.ends_with("mercury.c"))) {
        let lib = prefix.join("lib");
        let flags = [
            "-DMERCURY".to_owned(),
            include(&prefix.join("include")),
            lib.join("libna.so").display().to_string(),
            format!("-Wl,-rpath,{}", lib.display()),
        ];
        let flags: Vec<String> = ours.iter().cloned().chain(flags).collect();
        programs.insert(Build::Mercury, compile(&format!("{name}-mercury"), &flags)?);
    }
    if let Some(prefix) = &options.radix {
        let lib = prefix.join("lib");
        let flags = [
            "-DRADIX".to_owned(),
            include(&prefix.join("include")),
            lib.join("libbmi.so").display().to_string(),
            format!("-Wl,-rpath,{}", lib.display()),
            "-pthread".to_owned(),
        ];
        programs.insert(Build::Radix, compile(&format!("{name}-radix"), &flags)?);
    }
    if let Some(tree) = &options.orangefs {
        let headers = ["", "include", "src/io/bmi", "src/common/gossip", "src/common/misc"];
        let mut flags = vec!["-DORANGEFS".to_owned(), "-w".to_owned()];
        flags.extend(headers.map(|folder| include(&tree.join(folder))));
        flags.push(tree.join("lib/libpvfs2.a").display().to_string());
        flags.extend(["-lssl", "-lcrypto", "-lm", "-pthread"].map(str::to_owned));
        programs.insert(Build::OrangeFs, compile(&format!("{name}-orangefs"), &flags)?);
    }
    Ok(programs)
}

fn measure(
    options: &Options,
    cells: &[Cell],
    sides: &[Side],
    programs: &BTreeMap<Build, PathBuf>,
    bar: &ProgressBar,
) -> Result<BySide> {
    let mut port = FIRST_PORT;
    let place = |cell: &Cell| (cell.id, cell.veth.then(|| (2, Wire::default())));
    let of_cell = |cell: &Cell| sides.iter().filter(|side| side.is_of(cell)).map(|side| (side.name, *side)).collect();
    in_turns(options.common.launches, cells, place, of_cell, bar, |cell, side, lab| {
        port += 1;
        launch(options, cell, side, &programs[&side.build], lab, port)
    })
}

/// Servers listen from here on, each at a port of its own: none waits for what the one before has
/// left.
const FIRST_PORT: u16 = 23_400;

/// Of a server with two methods the second listens so much higher.
const SECOND_PORT: u16 = 500;

/// A server, which is gone with this.
pub struct Server {
    child: Child,
    /// Where it says it can be found: a port, for most.
    at: String,
}

impl Server {
    /// Starts one and waits until it says that it is ready; what else it says can be read.
    ///
    /// # Errors
    /// If it does not start, or ends.
    pub fn start(command: &mut Command) -> Result<(Server, BufReader<ChildStdout>)> {
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut server = Server { child: child.context("the server does not start")?, at: String::new() };
        let mut said = BufReader::new(server.child.stdout.take().context("no output")?);
        let mut line = String::new();
        said.read_line(&mut line)?;
        match line.strip_prefix("ready") {
            Some(at) => server.at = at.trim().to_owned(),
            None => bail!("the server ended"),
        }
        Ok((server, said))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command on a host of the lab, or on this one, without the settings of whoever measures.
pub fn plain_command(
    lab: Option<&Lab>,
    host: usize,
    program: &Path,
    env: &[(&'static str, &'static str)],
) -> Result<Command> {
    let mut command = match lab {
        Some(lab) => lab.command_on(host, program)?,
        None => Command::new(program),
    };
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("WEIR_")) {
        command.env_remove(name);
    }
    command.env("WEIR_BMI_OPEN", "1").envs(env.iter().copied());
    Ok(command)
}

fn launch(options: &Options, cell: &Cell, side: &Side, program: &Path, lab: Option<&Lab>, port: u16) -> Result<Value> {
    let seconds = options.common.seconds;
    let on = |host: usize| -> Result<Command> {
        let mut command = plain_command(lab, host, program, side.env)?;
        if let Some((name, Some(file))) = options.other(side.scheme) {
            command.env(name, file);
        }
        Ok(command)
    };
    let host = match lab {
        Some(lab) => lab.data_address(0)?,
        None => "127.0.0.1".to_owned(),
    };
    // (`bmi_weir` takes the TCP port of its number, too.)
    let ports = (port..).step_by(usize::from(SECOND_PORT));
    let urls = side.scheme.split(',').zip(ports).map(|(scheme, port)| format!("{scheme}://{host}:{port}"));
    let mut url = urls.collect::<Vec<_>>().join(",");
    let (server, _said) = Server::start(on(0)?.args(["serve", &url]))?;
    if side.scheme == "na+sm" {
        url = format!("na+sm://{}", server.at);
    }
    let numbers = [cell.bytes, cell.clients, cell.window].map(|number| number.to_string());
    let mut ask = on(1)?;
    ask.args(["ask", &url]).args(numbers).arg(seconds.to_string());
    let outcome = run_limited(&mut ask, Duration::from_secs_f64(seconds * 4.0 + 20.0))?;
    if !outcome.ok() {
        bail!("{}", outcome.cause());
    }
    serde_json::from_str(outcome.stdout.trim()).context("it told no result")
}

fn of(results: &BySide, cell: &Cell, side: &Side, key: &str) -> Option<Spread> {
    spread(results.get(&(cell.id, side.name)), key)
}

fn page(results: &BySide, cells: &[Cell], sides: &[Side], about: &[(String, String)]) -> String {
    let intro = "A request is an unexpected message, its answer has as many bytes (`tests/bmi/exchange.c`). Raw TCP: blocking clients with TCP_NODELAY, a server with epoll.\n\
        Raw UDP: a datagram each way, nothing looked after. ZeroMQ (DEALER, ROUTER) and nng (REQ, REP, a context for each request under way) go by TCP (`tests/bmi/others.c`). Mercury is its network abstraction alone, without its RPC (`tests/bmi/mercury.c`). BMI programs test with an idle time of 10 ms, as the originals' own do, and Mercury's waits at its descriptor as long; who polls waits for nothing. Where a server has two methods, half of its clients ask by each; the share is that of the answers which went by the second.\n";
    let mut text = head("BMI: requests and answers", intro, about);
    for cell in cells {
        let (key, unit) = cell.metric();
        let _ = writeln!(text, "\n## {}: {}\n", cell.id, cell.describe());
        let _ = writeln!(
            text,
            "| | median of launches (least to most), {unit} | p99, us | times raw TCP's |\n|---|---|---|---|"
        );
        let raw = SIDES.iter().find(|side| side.name == "raw TCP").and_then(|side| of(results, cell, side, key));
        for side in sides.iter().filter(|side| side.is_of(cell)) {
            text += &row(results, cell, side, raw);
        }
    }
    text
}

fn row(results: &BySide, cell: &Cell, side: &Side, raw: Option<Spread>) -> String {
    let key = cell.metric().0;
    let failed = failures(results.get(&(cell.id, side.name)));
    let Some(s) = of(results, cell, side, key) else {
        return format!("| {}{failed} | - | - | - |\n", side.name);
    };
    let p99 = of(results, cell, side, "p99_us").map_or_else(|| "-".to_owned(), |s| format!("{:.1}", s.median));
    let times = raw.map_or_else(|| "-".to_owned(), |raw| format!("{:.2}", s.median / raw.median));
    let number = |value: f64| if cell.window == 1 { format!("{value:.2}") } else { format!("{value:.0}") };
    let (median, min, max) = (number(s.median), number(s.min), number(s.max));
    let second =
        of(results, cell, side, "of_second").map_or_else(String::new, |s| format!(", {:.2} by the second", s.median));
    format!("| {}{second}{failed} | {median} ({min} to {max}) | {p99} | {times} |\n", side.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_there_and_each_cell_has_a_rival() {
        for source in ["exchange.c", "others.c", "mercury.c", "bulk.c", "many.c"] {
            assert!(Paths::find().root.join("tests/bmi").join(source).is_file(), "{source}");
        }
        for cell in &CELLS {
            let all: Vec<&Side> = SIDES.iter().filter(|side| side.is_of(cell)).collect();
            assert!(all.iter().any(|side| side.name == "raw TCP") && all.len() >= 5, "{}", cell.id);
        }
    }

    #[test]
    fn rows_compare_with_raw_tcp_and_say_what_failed() {
        let cell = &CELLS[0];
        let mut results = BySide::new();
        results.insert((cell.id, "raw TCP"), vec![Ok(json!({ "median_us": 10.0, "p99_us": 20.0 }))]);
        results.insert(
            (cell.id, "bmi_tcp"),
            vec![Ok(json!({ "median_us": 15.0, "p99_us": 30.0 })), Err("it | broke".to_owned())],
        );
        let text = page(&results, &CELLS[..1], &SIDES, &[]);
        assert!(
            text.contains("| bmi_tcp (1 of 2 failed: it / broke) | 15.00 (15.00 to 15.00) | 30.0 | 1.50 |"),
            "{text}"
        );
        assert!(text.contains("| raw UDP | - | - | - |"), "{text}");
    }
}

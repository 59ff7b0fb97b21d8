//! The cells of `cargo xtask bench bmi` with one server and many clients at once:
//! `weir bench serverload` over each library, by turns, on networks that the emulator makes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use indicatif::ProgressBar;
use serde_json::{Value, json};

use super::beside::{BySide, failures, in_turns, spread};
use super::bmi::{Build, Options};
use crate::lab::{Lab, Wire};
use crate::process::run_limited;

/// What is between the server and its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Net {
    /// Nothing: one host.
    Host,
    /// Two hosts, as fast as the machine.
    Veth,
    /// A server and clients on eight hosts, at a switch with links of 100 Mbit/s.
    Slow,
    /// The same with links of 1 Gbit/s and room for 64 packets at each port.
    Queue,
    /// Two hosts, of whose packets 1 % is lost.
    Loss,
}

impl Net {
    fn wire(self) -> Option<(usize, Wire)> {
        match self {
            Net::Host => None,
            Net::Veth => Some((2, Wire::default())),
            Net::Slow => Some((9, Wire::shaped(100, 0, 0.0))),
            Net::Queue => Some((9, Wire { queue_packets: Some(64), ..Wire::shaped(1000, 0, 0.0) })),
            Net::Loss => Some((2, Wire::plain(0.01))),
        }
    }

    fn describe(self) -> String {
        self.wire().map_or_else(|| "one host".into(), |(hosts, wire)| format!("{hosts} hosts, {}", wire.describe()))
    }

    /// Where the kernel's congestion control decides.
    fn is_hard(self) -> bool {
        matches!(self, Net::Queue | Net::Loss)
    }
}

/// So many clients that ask for so many bytes at once.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// Its name.
    pub id: &'static str,
    clients: u32,
    bytes: u32,
    net: Net,
}

/// All of them.
pub const CELLS: [Cell; 6] = [
    Cell { id: "host/serverload/8x100000", clients: 8, bytes: 100_000, net: Net::Host },
    Cell { id: "veth/serverload/8x10000", clients: 8, bytes: 10_000, net: Net::Veth },
    Cell { id: "veth/serverload/64x100000", clients: 64, bytes: 100_000, net: Net::Veth },
    Cell { id: "100mbit/serverload/64x100000", clients: 64, bytes: 100_000, net: Net::Slow },
    Cell { id: "1gbit-queue64/serverload/32x65536", clients: 32, bytes: 65_536, net: Net::Queue },
    Cell { id: "loss/serverload/32x65536", clients: 32, bytes: 65_536, net: Net::Loss },
];

/// A way of carrying them.
#[derive(Clone, Copy, Debug)]
struct Side {
    name: &'static str,
    method: &'static str,
    /// Which library; none: no BMI.
    build: Option<Build>,
    env: &'static [(&'static str, &'static str)],
    /// The kernel's congestion control on the measured network, in cells where it decides.
    congestion: Option<&'static str>,
}

const fn side(name: &'static str, method: &'static str, build: Option<Build>) -> Side {
    Side { name, method, build, env: &[], congestion: None }
}

const SIDES: [Side; 9] = [
    side("bmi_tcp", "tcp", Some(Build::Ours)),
    Side { env: &[("WEIR_CARRIER", "udp")], ..side("bmi_weir, packets", "weir", Some(Build::Ours)) },
    Side { env: &[("WEIR_CARRIER", "shm")], ..side("bmi_weir, shared memory", "weir", Some(Build::Ours)) },
    side("bmi_weir", "weir", Some(Build::Ours)),
    side("OrangeFS's bmi_tcp", "tcp", Some(Build::OrangeFs)),
    side("radix-io's bmi_tcp", "tcp", Some(Build::Radix)),
    // By the kernel's default.
    side("raw TCP", "sockets", None),
    Side { congestion: Some("cubic"), ..side("raw TCP, cubic", "sockets", None) },
    Side { congestion: Some("bbr"), ..side("raw TCP, BBR", "sockets", None) },
];

impl Side {
    fn is_of(&self, cell: &Cell, libraries: &BTreeMap<Build, PathBuf>) -> bool {
        let there = self.build.is_none_or(|build| libraries.contains_key(&build));
        let fits = match self.name {
            "bmi_weir, shared memory" => cell.net == Net::Host,
            // On one host that would be shared memory again.
            "bmi_weir" => cell.net != Net::Host,
            _ => self.congestion.is_none() || cell.net.is_hard(),
        };
        there && fits
    }
}

/// How many launches there will be.
pub fn launches(options: &Options, cells: &[Cell], libraries: &BTreeMap<Build, PathBuf>) -> usize {
    let each = |cell: &Cell| SIDES.iter().filter(|side| side.is_of(cell, libraries)).count();
    cells.iter().map(each).sum::<usize>() * options.common.launches as usize
}

/// Measures all cells, the sides in turn.
///
/// # Errors
/// If a network cannot be made. A launch that fails is told in its row.
pub fn measure(
    options: &Options,
    cells: &[Cell],
    weir: &Path,
    libraries: &BTreeMap<Build, PathBuf>,
    bar: &ProgressBar,
) -> Result<BySide> {
    let place = |cell: &Cell| (cell.id, cell.net.wire());
    let sides =
        |cell: &Cell| SIDES.iter().filter(|side| side.is_of(cell, libraries)).map(|side| (side.name, *side)).collect();
    in_turns(options.common.launches, cells, place, sides, bar, |cell, side, lab| {
        let library = side.build.and_then(|build| Some((build, libraries.get(&build)?.as_path())));
        let told = launch(cell, side, weir, library, lab, options.common.seconds);
        lab.inspect(|lab| lab.clear());
        told
    })
}

fn launch(
    cell: &Cell,
    side: &Side,
    weir: &Path,
    library: Option<(Build, &Path)>,
    lab: Option<&Lab>,
    seconds: f64,
) -> Result<Value> {
    let mut command = match lab {
        Some(lab) => lab.command(weir)?,
        None => std::process::Command::new(weir),
    };
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("WEIR_")) {
        command.env_remove(name);
    }
    command.env("WEIR_BMI_OPEN", "1").envs(side.env.iter().copied());
    command.args(["bench", "serverload", "--json", "--method", side.method]);
    command.args(["--clients", &cell.clients.to_string(), "--sizes", &cell.bytes.to_string()]);
    command.args(["--time", &seconds.to_string(), "--timeout", "30"]);
    if let Some((build, file)) = library {
        command.arg("--library").arg(file);
        command.args(["--dialect", if build == Build::OrangeFs { "orangefs" } else { "radix" }]);
    }
    if let Some(lab) = lab {
        lab.set_congestion(side.congestion)?;
        command.env("WEIR_LAUNCH_AGENT", &lab.agent).args(["--hosts", &lab.hosts.join(",")]);
        command.args(["--address", &lab.data_address(0)?]);
        // Not by the launchers' network, whose links are no part of the cell.
        command.env("WEIR_IFACE", lab.data_ifaces());
    }
    // Starting all of them, some rounds, and one that is not answered.
    let outcome = run_limited(&mut command, Duration::from_secs_f64(seconds * 4.0 + 120.0))?;
    if !outcome.ok() {
        bail!("{}", outcome.cause());
    }
    let run: Value = serde_json::from_str(outcome.stdout.trim()).context("it told no result")?;
    told(&run).context("it told of no cell")
}

/// What the table shows of a run with one cell.
fn told(run: &Value) -> Option<Value> {
    let cell = run["cells"].as_array()?.first()?;
    let (summary, service) = (cell["summary"].as_object()?, cell["service"].as_object()?);
    let ms = |name: &str| summary.get(name)?.as_f64().map(|ns| ns / 1e6);
    Some(json!({
        "mean_ms": ms("mean_ns")?, "min_ms": ms("min_ns")?, "p99_ms": ms("p99_ns")?, "max_ms": ms("max_ns")?,
        "spread": service.get("spread_p50")?, "spread_max": service.get("spread_max")?,
        "jain": service.get("jain_p50")?, "jain_min": service.get("jain_min")?,
        "rounds": service.get("rounds")?, "answers_per_s": service.get("answers_per_s")?,
        "cpu_us": service.get("server_cpu_ns").and_then(Value::as_f64).map(|ns| ns / 1e3),
        "peak_mib": service.get("server_peak_bytes").and_then(Value::as_f64).map(|bytes| bytes / f64::from(1 << 20)),
    }))
}

/// The tables of the page.
pub fn section(results: &BySide, cells: &[Cell], libraries: &BTreeMap<Build, PathBuf>) -> String {
    let mut text = String::new();
    if !cells.is_empty() {
        text += "\nServerload (`weir bench serverload`): in each round all clients ask at one instant, each once. max/min: the longest time of a round over the shortest. \
            Jain: of the clients' rates in a round. Both are medians over rounds, and so is each column over launches. CPU is of the server's process, for each request.\n";
    }
    for cell in cells {
        let (id, clients, bytes, net) = (cell.id, cell.clients, cell.bytes, cell.net.describe());
        let _ = writeln!(text, "\n## {id}: {clients} clients, answers of {bytes} bytes, {net}\n");
        text += "| | mean of launches (least to most), ms | times raw TCP's | min, ms | p99, ms | max, ms | max/min | Jain | CPU, us | memory, MiB |\n|---|---|---|---|---|---|---|---|---|---|\n";
        for side in SIDES.iter().filter(|side| side.is_of(cell, libraries)) {
            text += &row(results, cell, side);
        }
    }
    text
}

fn row(results: &BySide, cell: &Cell, side: &Side) -> String {
    let all = results.get(&(cell.id, side.name));
    let failed = failures(all);
    let Some(mean) = spread(all, "mean_ms") else {
        return format!("| {}{failed} | - | - | - | - | - | - | - | - | - |\n", side.name);
    };
    let raw = spread(results.get(&(cell.id, "raw TCP")), "mean_ms");
    let times = raw.map_or_else(|| "-".to_owned(), |raw| format!("{:.2}", mean.median / raw.median));
    let number = |key: &str, digits: usize| {
        spread(all, key).map_or_else(|| "-".to_owned(), |s| format!("{:.digits$}", s.median))
    };
    format!(
        "| {}{failed} | {:.2} ({:.2} to {:.2}) | {times} | {} | {} | {} | {} | {} | {} | {} |\n",
        side.name,
        mean.median,
        mean.min,
        mean.max,
        number("min_ms", 2),
        number("p99_ms", 2),
        number("max_ms", 2),
        number("spread", 2),
        number("jain", 3),
        number("cpu_us", 1),
        number("peak_mib", 1)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> BTreeMap<Build, PathBuf> {
        [Build::Ours, Build::OrangeFs, Build::Radix].map(|build| (build, PathBuf::new())).into()
    }

    #[test]
    fn each_cell_has_rivals_and_only_sides_that_are_there() {
        for cell in &CELLS {
            let names = |libraries| {
                let sides = SIDES.iter().filter(|side| side.is_of(cell, libraries));
                sides.map(|side| side.name).collect::<Vec<_>>()
            };
            let (every, own) = (all(), BTreeMap::from([(Build::Ours, PathBuf::new())]));
            let (every, own) = (names(&every), names(&own));
            assert!(every.contains(&"raw TCP") && every.contains(&"OrangeFS's bmi_tcp"), "{}", cell.id);
            assert!(own.contains(&"raw TCP") && !own.contains(&"radix-io's bmi_tcp"), "{}", cell.id);
            assert_eq!(own.contains(&"bmi_weir, shared memory"), cell.net == Net::Host);
            for chosen in ["raw TCP, cubic", "raw TCP, BBR"] {
                assert_eq!(own.contains(&chosen), cell.net.is_hard());
            }
        }
    }

    #[test]
    fn rows_hold_what_a_run_tells_beside_raw_tcp() {
        let run = |mean_ns: f64, spread: f64| {
            json!({"cells": [{
                "summary": {"mean_ns": mean_ns, "min_ns": 1e6, "p99_ns": 4e6, "max_ns": 5e6},
                "service": {"rounds": 9, "spread_p50": spread, "spread_max": 9.0, "jain_p50": 0.99, "jain_min": 0.9,
                            "answers_per_s": 7.0, "server_cpu_ns": 12_340.0, "server_peak_bytes": 3 << 20}
            }]})
        };
        let cell = &CELLS[0];
        let mut results = BySide::new();
        results.insert((cell.id, "raw TCP"), vec![Ok(told(&run(2e6, 2.0)).unwrap())]);
        results.insert((cell.id, "bmi_tcp"), vec![Ok(told(&run(3e6, 1.25)).unwrap()), Err("it | broke".into())]);
        let text = section(&results, &CELLS[..1], &all());
        let expected = "| bmi_tcp (1 of 2 failed: it / broke) | 3.00 (3.00 to 3.00) | 1.50 | 1.00 | 4.00 | 5.00 | 1.25 | 0.990 | 12.3 | 3.0 |";
        assert!(text.contains(expected), "{text}");
        assert!(told(&json!({"cells": []})).is_none());
    }
}

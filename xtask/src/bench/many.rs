//! The cells of `cargo xtask bench bmi` with many peers (`tests/bmi/many.c`): messages pushed to
//! all clients by one server or several, clients that come and go, and one client that asks beside
//! many that are idle.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use indicatif::ProgressBar;
use serde_json::Value;

use super::beside::{BySide, Told, failures, in_turns, spread};
use super::bmi::{Build, Options, Server, Side, plain_command};
use super::bulk::{Net, RAW, SIDES};
use super::measure::Spread;
use crate::lab::Lab;
use crate::process::run_limited;

/// What is done.
#[derive(Clone, Copy, Debug)]
enum What {
    /// So many servers send to so many clients, round after round.
    Push { servers: u16, clients: u32, bytes: u32, rounds: u32 },
    /// So many clients begin, ask once and end, eight at a time; every tenth is killed.
    Churn { clients: u32 },
    /// So many clients are connected and idle, one asks so often.
    Idle { idle: u32, requests: u32 },
}

/// One of them.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// Its name.
    pub id: &'static str,
    what: What,
    net: Net,
}

const fn push(id: &'static str, servers: u16, clients: u32, bytes: u32, rounds: u32, net: Net) -> Cell {
    Cell { id, what: What::Push { servers, clients, bytes, rounds }, net }
}

/// All of them.
pub const CELLS: [Cell; 7] = [
    push("host/push/1x8x10000", 1, 8, 10_000, 500, Net::Host),
    push("host/push/1x64x100000", 1, 64, 100_000, 20, Net::Host),
    push("host/push/4x16x10000", 4, 16, 10_000, 200, Net::Host),
    push("veth/push/1x16x100000", 1, 16, 100_000, 50, Net::Veth),
    Cell { id: "host/churn/20000", what: What::Churn { clients: 20_000 }, net: Net::Host },
    Cell { id: "host/idle/1000", what: What::Idle { idle: 1000, requests: 5000 }, net: Net::Host },
    push("100mbit/push/1x16x10000", 1, 16, 10_000, 50, Net::Slow),
];

impl Cell {
    fn describe(&self) -> String {
        match self.what {
            What::Push { servers, clients, bytes, .. } => {
                let network = match self.net {
                    Net::Host => "one host",
                    Net::Veth => "two hosts, veth",
                    Net::Slow => "two hosts, 100 Mbit/s",
                };
                let who = if servers == 1 { "one server sends".to_owned() } else { format!("{servers} servers send") };
                format!("{who} {bytes} bytes to each of {clients} clients, {network}")
            }
            What::Churn { clients } => format!("{clients} clients come and go, every tenth is killed"),
            What::Idle { idle, .. } => format!("one client asks, alone and beside {idle} that are idle"),
        }
    }

    /// The columns behind the name.
    fn columns(&self) -> &'static [&'static str] {
        match self.what {
            What::Push { .. } => &[
                "median of launches (least to most), MB/s",
                "of raw TCP's",
                "CPU of servers, us a message",
                "posts complete at once",
            ],
            What::Churn { .. } => &[
                "server's memory after a tenth, MiB",
                "after half of them, MiB",
                "grown with the other half (least to most), MiB",
                "addresses known then",
                "not served",
                "CPU of the server, us a client",
            ],
            What::Idle { .. } => &[
                "server's memory, KiB an idle client",
                "grown while one asks (least to most), KiB",
                "CPU of the server, us a request: alone, beside them",
                "median, us: alone, beside them",
            ],
        }
    }

    fn words(&self) -> Vec<String> {
        let (word, numbers) = match self.what {
            What::Push { clients, bytes, rounds, .. } => ("push", vec![clients, bytes, rounds]),
            What::Churn { clients } => ("churn", vec![clients, 8]),
            What::Idle { idle, requests } => ("idle", vec![idle, requests]),
        };
        std::iter::once(word.to_owned()).chain(numbers.iter().map(ToString::to_string)).collect()
    }

    fn servers(&self) -> u16 {
        if let What::Push { servers, .. } = self.what { servers } else { 1 }
    }

    fn has(&self, side: &Side, programs: &BTreeMap<Build, PathBuf>) -> bool {
        let fits = match side.name {
            "bmi_weir, shared memory" => self.net == Net::Host,
            RAW => matches!(self.what, What::Push { .. }),
            _ => true,
        };
        fits && programs.contains_key(&side.build)
    }
}

/// How many launches there will be.
pub fn launches(options: &Options, cells: &[Cell], programs: &BTreeMap<Build, PathBuf>) -> usize {
    let each = |cell: &Cell| SIDES.iter().filter(|side| cell.has(side, programs)).count();
    cells.iter().map(each).sum::<usize>() * options.common.launches as usize
}

/// Servers listen from here on, each at its own port.
const FIRST_PORT: u16 = 25_400;
/// No launch takes so long but one that hangs: twenty thousand processes on a busy machine.
const LIMIT: Duration = Duration::from_secs(600);

/// Measures all cells, the sides in turn.
///
/// # Errors
/// If a network cannot be made. A launch that fails is told in its row.
pub fn measure(
    options: &Options,
    cells: &[Cell],
    programs: &BTreeMap<Build, PathBuf>,
    bar: &ProgressBar,
) -> Result<BySide> {
    let mut port = FIRST_PORT;
    let place = |cell: &Cell| (cell.id, cell.net.wire().map(|wire| (2, wire)));
    let sides =
        |cell: &Cell| SIDES.iter().filter(|side| cell.has(side, programs)).map(|side| (side.name, *side)).collect();
    in_turns(options.common.launches, cells, place, sides, bar, |cell, side, lab| {
        let first = port;
        port += cell.servers();
        launch(cell, side, programs, lab, first)
    })
}

fn launch(
    cell: &Cell,
    side: &Side,
    programs: &BTreeMap<Build, PathBuf>,
    lab: Option<&Lab>,
    port: u16,
) -> Result<Value> {
    let program = programs.get(&side.build).context("it was not built")?;
    let host = lab.map_or_else(|| Ok("127.0.0.1".to_owned()), |lab| lab.data_address(0))?;
    let (mut servers, mut urls) = (Vec::new(), Vec::new());
    for port in port..port + cell.servers() {
        let url = format!("{}://{host}:{port}", side.scheme);
        servers.push(Server::start(plain_command(lab, 0, program, side.env)?.args(["serve", &url]))?);
        urls.push(url);
    }
    let words = cell.words();
    let mut ask = plain_command(lab, 1, program, side.env)?;
    let outcome = run_limited(ask.arg(&words[0]).arg(urls.join(",")).args(&words[1..]), LIMIT)?;
    if !outcome.ok() {
        bail!("{}", outcome.cause());
    }
    serde_json::from_str(outcome.stdout.trim()).context("it told no result")
}

/// The tables of the page.
pub fn section(results: &BySide, cells: &[Cell], programs: &BTreeMap<Build, PathBuf>) -> String {
    let mut text = String::new();
    if !cells.is_empty() {
        text += "\nMany peers (`tests/bmi/many.c`). Of what is sent to many: all of a round is posted before the first is asked for, and each client says that it has it; raw TCP: a server with poll. Memory is \
            what is resident of the server; it forgets clients that are gone (`BMI_AUTO_REF_COUNT`).\n";
    }
    for cell in cells {
        let _ = writeln!(text, "\n## {}: {}\n", cell.id, cell.describe());
        let columns = cell.columns();
        let _ = writeln!(text, "| | {} |\n|---|{}", columns.join(" | "), "---|".repeat(columns.len()));
        for side in SIDES.iter().filter(|side| cell.has(side, programs)) {
            text += &row(results, cell, side);
        }
    }
    text
}

fn row(results: &BySide, cell: &Cell, side: &Side) -> String {
    let all: Option<&Vec<Told>> = results.get(&(cell.id, side.name));
    let shown = |key: &str, unit: f64, digits: usize| {
        spread(all, key).map_or_else(|| "-".to_owned(), |s| format!("{:.digits$}", s.median / unit))
    };
    let range = |s: Spread, unit: f64, digits: usize| {
        let [median, min, max] = [s.median, s.min, s.max].map(|value| format!("{:.digits$}", value / unit));
        format!("{median} ({min} to {max})")
    };
    let ranged = |s: Option<Spread>, unit, digits| s.map_or_else(|| "-".to_owned(), |s: Spread| range(s, unit, digits));
    let columns = match cell.what {
        What::Push { .. } => {
            let rate = |name| {
                spread(
                    results.iter().find(|((c, s), _)| *c == cell.id && *s == name).map(|(_, all)| all),
                    "bytes_per_second",
                )
            };
            let share = rate(side.name)
                .zip(rate(RAW))
                .map_or_else(|| "-".to_owned(), |(own, raw)| format!("{:.3}", own.median / raw.median));
            vec![ranged(rate(side.name), 1e6, 1), share, shown("cpu_us", 1.0, 2), shown("immediate", 1.0, 2)]
        }
        What::Churn { .. } => {
            let grown = told_of(all, |told| Some(told["rss_kb_many"].as_f64()? - told["rss_kb_half"].as_f64()?));
            vec![
                shown("rss_kb_few", 1024.0, 2),
                shown("rss_kb_half", 1024.0, 2),
                ranged(Spread::of(grown), 1024.0, 2),
                // (A library that does not say gives -1.)
                spread(all, "addresses")
                    .filter(|s| s.min >= 0.0)
                    .map_or_else(|| "-".into(), |s| format!("{:.0}", s.median)),
                shown("not_served", 1.0, 0),
                shown("cpu_us", 1.0, 1),
            ]
        }
        What::Idle { .. } => {
            let both = |alone: &str, beside: &str| format!("{}, {}", shown(alone, 1.0, 2), shown(beside, 1.0, 2));
            vec![
                shown("kb_each", 1.0, 2),
                ranged(spread(all, "grown_kb"), 1.0, 0),
                both("cpu_us_alone", "cpu_us"),
                both("median_us_alone", "median_us"),
            ]
        }
    };
    format!("| {}{} | {} |\n", side.name, failures(all), columns.join(" | "))
}

fn told_of(all: Option<&Vec<Told>>, value: impl Fn(&Value) -> Option<f64>) -> Vec<f64> {
    all.into_iter().flatten().filter_map(|told| value(told.as_ref().ok()?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rows_say_what_was_pushed_what_has_grown_and_who_is_missing() {
        let programs = BTreeMap::from([(Build::Ours, PathBuf::new())]);
        let mut results = BySide::new();
        let mut add = |cell: &Cell, side, told| results.insert((cell.id, side), vec![Ok(told)]);
        let pushed = |rate: f64| json!({ "bytes_per_second": rate, "cpu_us": 3.0, "immediate": 0.5 });
        add(&CELLS[0], RAW, pushed(2e8));
        add(&CELLS[0], "bmi_tcp", pushed(1e8));
        let churned = json!({ "rss_kb_few": 2048, "rss_kb_half": 2304, "rss_kb_many": 2560, "addresses": -1, "not_served": 1, "cpu_us": 80.0 });
        add(&CELLS[4], "bmi_tcp", churned);
        let idle = json!({ "kb_each": 1.25, "grown_kb": 4, "cpu_us_alone": 2.0, "cpu_us": 2.5, "median_us_alone": 20.0, "median_us": 21.0 });
        add(&CELLS[5], "bmi_tcp", idle);
        let text = section(&results, &CELLS, &programs);
        for row in [
            "| bmi_tcp | 100.0 (100.0 to 100.0) | 0.500 | 3.00 | 0.50 |",
            "| bmi_tcp | 2.00 | 2.25 | 0.25 (0.25 to 0.25) | - | 1 | 80.0 |",
            "| bmi_tcp | 1.25 | 4 (4 to 4) | 2.00, 2.50 | 20.00, 21.00 |",
            "| bmi_weir, packets | - | - | - | - |",
        ] {
            assert!(text.contains(row), "{row}\n{text}");
        }
        assert_eq!(text.matches("raw TCP |").count(), 5, "{text}");
        for heading in ["one server sends 10000 bytes to each of 8 clients", "4 servers send 10000 bytes to each of 16"]
        {
            assert!(text.contains(heading), "{heading}\n{text}");
        }
    }

    #[test]
    fn each_cell_is_told_to_the_program_as_it_takes_it() {
        let words: Vec<String> = CELLS.iter().map(|cell| cell.words().join(" ")).collect();
        assert_eq!(words[0], "push 8 10000 500");
        assert_eq!((words[4].as_str(), words[5].as_str()), ("churn 20000 8", "idle 1000 5000"));
    }
}

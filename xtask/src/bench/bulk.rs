//! The cells of `cargo xtask bench bmi` with many messages one way, all posted before the first is
//! asked for (`tests/bmi/bulk.c`): what share of a slow wire they get, and what an operation costs
//! when many are outstanding.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use indicatif::ProgressBar;
use serde_json::{Value, json};

use super::beside::{BySide, failures, in_turns, spread};
use super::bmi::{Build, Options, Server, Side, plain_command};
use crate::lab::{Lab, Wire};
use crate::process::run_limited;

/// Between which hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Net {
    /// One.
    Host,
    /// Two, with the kernel's path between them.
    Veth,
    /// Two with links of 100 Mbit/s.
    Slow,
}

impl Net {
    /// What the lab is to make.
    pub fn wire(self) -> Option<Wire> {
        match self {
            Net::Host => None,
            Net::Veth => Some(Wire::default()),
            Net::Slow => Some(Wire::shaped(100, 0, 0.0)),
        }
    }
}

/// So many messages of so many bytes.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// Its name.
    pub id: &'static str,
    bytes: u32,
    count: u32,
    net: Net,
    /// Compared by its rate, beside a raw stream; else by what an operation costs.
    rate: bool,
    /// In parts of 64, receives posted before them or behind.
    parts: Option<&'static str>,
}

const fn bandwidth(id: &'static str, net: Net, bytes: u32, count: u32) -> Cell {
    Cell { id, bytes, count, net, rate: true, parts: None }
}

const fn outstanding(id: &'static str, count: u32) -> Cell {
    Cell { id, bytes: 1000, count, net: Net::Host, rate: false, parts: None }
}

const fn in_parts(id: &'static str, parts: &'static str) -> Cell {
    Cell { id, bytes: 1000, count: 20_000, net: Net::Host, rate: false, parts: Some(parts) }
}

/// All of them: 1 MB of short messages and 10 MB of long ones, as in Carns' thesis (5.2.1); up to a
/// million operations that are outstanding at once; receives posted before the message comes and
/// after; and 1 GB where no link is slow.
pub const CELLS: [Cell; 16] = [
    bandwidth("100mbit/bandwidth/100", Net::Slow, 100, 10_000),
    bandwidth("100mbit/bandwidth/500", Net::Slow, 500, 2_000),
    bandwidth("100mbit/bandwidth/1000", Net::Slow, 1_000, 1_000),
    bandwidth("100mbit/bandwidth/10000", Net::Slow, 10_000, 1_000),
    bandwidth("100mbit/bandwidth/100000", Net::Slow, 100_000, 100),
    bandwidth("100mbit/bandwidth/1000000", Net::Slow, 1_000_000, 10),
    outstanding("host/outstanding/1000", 1_000),
    outstanding("host/outstanding/10000", 10_000),
    outstanding("host/outstanding/100000", 100_000),
    outstanding("host/outstanding/1000000", 1_000_000),
    in_parts("host/parts/posted", "posted"),
    in_parts("host/parts/late", "late"),
    bandwidth("host/bandwidth/10000", Net::Host, 10_000, 100_000),
    bandwidth("host/bandwidth/1000000", Net::Host, 1_000_000, 1_000),
    bandwidth("veth/bandwidth/10000", Net::Veth, 10_000, 100_000),
    bandwidth("veth/bandwidth/1000000", Net::Veth, 1_000_000, 1_000),
];

/// All of them; the second and third are one method by two ways.
pub const SIDES: [Side; 6] = [
    Side { name: "bmi_tcp", scheme: "tcp", build: Build::Ours, env: &[] },
    Side { name: "bmi_weir, packets", scheme: "weir", build: Build::Ours, env: &[("WEIR_CARRIER", "udp")] },
    Side { name: "bmi_weir, shared memory", scheme: "weir", build: Build::Ours, env: &[("WEIR_CARRIER", "shm")] },
    Side { name: "OrangeFS's bmi_tcp", scheme: "tcp", build: Build::OrangeFs, env: &[] },
    Side { name: "radix-io's bmi_tcp", scheme: "tcp", build: Build::Radix, env: &[] },
    Side { name: RAW, scheme: "raw-tcp", build: Build::Ours, env: &[] },
];

/// A stream of the same bytes without heads.
pub const RAW: &str = "raw TCP";

impl Cell {
    fn has(&self, side: &Side, programs: &BTreeMap<Build, PathBuf>) -> bool {
        let fits = match side.name {
            "bmi_weir, shared memory" => self.net == Net::Host,
            // A stream has no operations.
            RAW => self.rate,
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

/// Messages of one launch begin at ports from here on, each at its own.
const FIRST_PORT: u16 = 24_400;
/// No launch takes so long but one that hangs: a million operations on a busy machine.
const LIMIT: Duration = Duration::from_secs(180);

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
        port += 1;
        launch(cell, side, programs, lab, port)
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
    let url = format!("{}://{host}:{port}", side.scheme);
    let numbers = [cell.bytes, cell.count].map(|number| number.to_string());
    let mut take = plain_command(lab, 0, program, side.env)?;
    let (_taker, mut said) = Server::start(take.args(["take", &url]).args(&numbers).args(cell.parts))?;
    let mut give = plain_command(lab, 1, program, side.env)?;
    let outcome = run_limited(give.args(["give", &url]).args(&numbers).args(cell.parts), LIMIT)?;
    if !outcome.ok() {
        bail!("{}", outcome.cause());
    }
    let mut rest = String::new();
    said.read_to_string(&mut rest)?;
    let json = |text: &str| serde_json::from_str::<Value>(text.trim()).context("it told no result");
    Ok(told(&json(&outcome.stdout)?, &json(&rest)?))
}

/// What the table shows: the giver's times are from its first post to the taker's word that it has
/// all.
fn told(give: &Value, take: &Value) -> Value {
    json!({
        "mbit": give["bytes_per_second"].as_f64().map(|rate| rate * 8.0 / 1e6), "us": give["us"],
        "give_cpu_us": give["cpu_us"], "take_cpu_us": take["cpu_us"],
        "give_immediate": give["immediate"], "take_immediate": take["immediate"],
        "give_instructions": give["instructions"], "take_instructions": take["instructions"],
    })
}

/// The tables of the page.
pub fn section(results: &BySide, cells: &[Cell], programs: &BTreeMap<Build, PathBuf>) -> String {
    let mut text = String::new();
    if !cells.is_empty() {
        text += "\nMany messages one way, all posted before the first is asked for (`tests/bmi/bulk.c`); raw TCP: a stream of the same bytes without heads. A time is from the first post to the receiver's word that it \
            has all. Processor time is of the process, in user and kernel mode, instructions of it in user mode only; both for each message, of the sender and of the receiver. In parts: 64 messages, whose receives are posted before the sender is told to begin, or when it says that it has sent them.\n";
    }
    for cell in cells {
        let _ = writeln!(text, "\n## {}: {} messages of {} bytes\n", cell.id, cell.count, cell.bytes);
        text += if cell.parts.is_some() {
            "| | median of launches (least to most), us a message | CPU, us | instructions | posts complete at once |\n|---|---|---|---|---|\n"
        } else if cell.rate {
            "| | median of launches (least to most), Mbit/s | of raw TCP's | CPU, us | instructions |\n|---|---|---|---|---|\n"
        } else {
            "| | median of launches (least to most), us a message | of that with 1000 | CPU, us | instructions | of those with 1000 |\n|---|---|---|---|---|---|\n"
        };
        for side in SIDES.iter().filter(|side| cell.has(side, programs)) {
            text += &row(results, cell, side);
        }
    }
    text
}

fn row(results: &BySide, cell: &Cell, side: &Side) -> String {
    let all = results.get(&(cell.id, side.name));
    let of = |cell: &str, side: &str, key: &str| {
        let all = results.iter().find(|((c, s), _)| *c == cell && *s == side).map(|(_, all)| all);
        spread(all, key).map(|s| s.median)
    };
    let failed = failures(all);
    let key = if cell.rate { "mbit" } else { "us" };
    let Some(s) = spread(all, key) else {
        return format!(
            "| {}{failed} |{}\n",
            side.name,
            " - |".repeat(if cell.rate || cell.parts.is_some() { 4 } else { 5 })
        );
    };
    let ratio = |a: Option<f64>, b: Option<f64>| {
        a.zip(b.filter(|b| *b > 0.0)).map_or_else(|| "-".to_owned(), |(a, b)| format!("{:.3}", a / b))
    };
    let both = |give: &str, take: &str, digits: usize| {
        let one = |key| of(cell.id, side.name, key).map_or_else(|| "-".to_owned(), |v| format!("{v:.digits$}"));
        format!("{}, {}", one(give), one(take))
    };
    let (cpu, instructions) =
        (both("give_cpu_us", "take_cpu_us", 2), both("give_instructions", "take_instructions", 0));
    let head = format!("| {}{failed} | {:.2} ({:.2} to {:.2}) |", side.name, s.median, s.min, s.max);
    if cell.rate {
        let share = ratio(Some(s.median), of(cell.id, RAW, key));
        return format!("{head} {share} | {cpu} | {instructions} |\n");
    }
    if cell.parts.is_some() {
        let immediate = both("give_immediate", "take_immediate", 2);
        return format!("{head} {cpu} | {instructions} | {immediate} |\n");
    }
    let few = "host/outstanding/1000";
    let same = |key: &str| ratio(of(cell.id, side.name, key), of(few, side.name, key));
    let flat = format!("{}, {}", same("give_instructions"), same("take_instructions"));
    format!("{head} {} | {cpu} | {instructions} | {flat} |\n", same("us"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidth_is_beside_raw_tcp_and_many_beside_few() {
        let give = |us: f64, n: Option<f64>| json!({"bytes_per_second": 1e9 / us, "us": us, "cpu_us": 2.0, "instructions": n, "immediate": 1.0});
        let mut results = BySide::new();
        let mut add = |cell: &Cell, side, us, n| {
            results.insert((cell.id, side), vec![Ok(told(&give(us, n), &give(us, n)))]);
        };
        let (few, many) = (&CELLS[6], &CELLS[9]);
        add(&CELLS[2], RAW, 80.0, None);
        add(&CELLS[2], "bmi_tcp", 100.0, None);
        add(few, "bmi_tcp", 2.0, Some(100.0));
        add(&CELLS[11], "bmi_tcp", 4.0, None);
        add(many, "bmi_tcp", 3.0, Some(105.0));
        let programs = BTreeMap::from([(Build::Ours, PathBuf::new())]);
        let text = section(&results, &[CELLS[2], *many, CELLS[11]], &programs);
        assert!(text.contains("| bmi_tcp | 4.00 (4.00 to 4.00) | 2.00, 2.00 | -, - | 1.00, 1.00 |"), "{text}");
        assert!(text.contains("| bmi_tcp | 80.00 (80.00 to 80.00) | 0.800 | 2.00, 2.00 | -, - |"), "{text}");
        assert!(
            text.contains("| bmi_tcp | 3.00 (3.00 to 3.00) | 1.500 | 2.00, 2.00 | 105, 105 | 1.050, 1.050 |"),
            "{text}"
        );
        assert!(text.contains("| bmi_weir, packets | - | - | - | - | - |"), "{text}");
    }
}

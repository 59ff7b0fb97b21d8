//! The cells of `cargo xtask bench bmi` with storage software: two servers of OrangeFS, which keep
//! metadata and data in memory, and a client that copies one large file in and out (`pvfs2-cp -t`)
//! and makes, lists, reads and removes many small ones (`tests/bmi/files.c`). OrangeFS as it is,
//! and with this project's library in place of its BMI.
//!
//! Each launch has servers and storage of its own, on emulated hosts: what is in memory is mounted
//! in these only, so that nothing of a bench is left behind, however it ends.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use indicatif::ProgressBar;
use serde_json::{Map, Value};

use super::beside::{BySide, Told, failures, in_turns, spread};
use super::bmi::{Build, plain_command};
use super::measure::Spread;
use super::orangefs::{LIMIT, Plan, alias, configuration};
use crate::lab::{Lab, Wire};
use crate::process::run_limited;

/// Two servers and a client on a network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// Its name.
    pub id: &'static str,
    /// One host has all; else each has its own.
    one_host: bool,
    offload: bool,
    loss: f64,
}

const fn cell(id: &'static str) -> Cell {
    Cell { id, one_host: false, offload: true, loss: 0.0 }
}

/// All of them.
pub const CELLS: [Cell; 4] = [
    Cell { one_host: true, ..cell("host/storage") },
    cell("veth/storage"),
    Cell { offload: false, ..cell("no-offload/storage") },
    Cell { offload: false, loss: 0.01, ..cell("loss/storage") },
];

impl Cell {
    /// So many hosts, and what is between them. (One host is emulated, too: with it ends what runs
    /// there, and its memory is given back.)
    fn place(&self) -> (usize, Wire) {
        let wire = Wire { no_offload: !self.offload, ..Wire::plain(self.loss) };
        (if self.one_host { 1 } else { SERVERS + 1 }, wire)
    }

    fn describe(&self) -> String {
        match self.one_host {
            true => "servers and client on one host".to_owned(),
            false => format!("each on a host of its own, {}", self.place().1.describe()),
        }
    }
}

/// A library and a method.
#[derive(Clone, Copy, Debug)]
struct Side {
    name: &'static str,
    scheme: &'static str,
    build: Build,
}

/// All of them; the first is what the others are held against.
const SIDES: [Side; 3] = [
    Side { name: "original", scheme: "tcp", build: Build::OrangeFs },
    Side { name: "bmi_tcp", scheme: "tcp", build: Build::Ours },
    Side { name: "bmi_weir", scheme: "weir", build: Build::Ours },
];

const SERVERS: usize = 2;
/// Bytes of a small file.
const FILE_BYTES: u32 = 4096;
/// Where clients see the file system.
const MOUNT: &str = "/weir-storage";
/// Servers listen from here on, each at a port of its own.
const FIRST_PORT: u16 = 27_400;
/// What is done with small files, in this order.
const PHASES: [&str; 4] = ["create", "list", "read", "remove"];

/// How many launches there will be.
pub fn launches(launches: u32, cells: &[Cell]) -> usize {
    cells.len() * SIDES.len() * launches as usize
}

/// Measures all cells, the sides in turn.
///
/// # Errors
/// If a network cannot be made. A launch that fails is told in its row.
pub fn measure(launches: u32, cells: &[Cell], plan: Option<&Plan>, bar: &ProgressBar) -> Result<BySide> {
    let Some(plan) = plan else { return Ok(BySide::new()) };
    let mut port = FIRST_PORT;
    let place = |cell: &Cell| (cell.id, Some(cell.place()));
    let sides = |_: &Cell| SIDES.iter().map(|side| (side.name, *side)).collect();
    in_turns(launches, cells, place, sides, bar, |_, side, lab| {
        port += 10;
        let stand = Stand { plan, side, lab: lab.context("no hosts")?, port, servers: Vec::new() };
        stand.launch()
    })
}

/// Servers, a client, and their hosts. Servers are gone with this.
struct Stand<'a> {
    plan: &'a Plan,
    side: &'a Side,
    lab: &'a Lab,
    port: u16,
    servers: Vec<Child>,
}

impl Drop for Stand<'_> {
    fn drop(&mut self) {
        for server in &mut self.servers {
            let _ = server.kill();
            let _ = server.wait();
        }
        self.lab.clear();
    }
}

impl Stand<'_> {
    fn launch(mut self) -> Result<Value> {
        self.prepare()?;
        self.start()?;
        let mut told = Map::new();
        let source = self.plan.space().join("source").display().to_string();
        let copied = self.plan.space().join("copied").display().to_string();
        let stored = format!("{MOUNT}/large");
        told.insert("in_mb_per_s".into(), self.copy(&source, &stored).context("copy in")?.into());
        told.insert("out_mb_per_s".into(), self.copy(&stored, &copied).context("copy out")?.into());
        self.shell(self.client(), &format!("cmp '{source}' '{copied}' && rm '{copied}'"), self.plan.copy_limit())
            .context("what was copied differs")?;
        for phase in PHASES {
            let all = self.files(phase).with_context(|| format!("files, {phase}"))?;
            for (key, value) in all.as_object().into_iter().flatten() {
                told.insert(format!("{phase}_{key}"), value.clone());
            }
        }
        Ok(told.into())
    }

    fn host_of(&self, server: usize) -> usize {
        server.min(self.lab.hosts.len() - 1)
    }

    fn client(&self) -> usize {
        self.host_of(SERVERS)
    }

    fn url(&self, server: usize) -> Result<String> {
        let host = match self.lab.hosts.len() {
            1 => "127.0.0.1".to_owned(),
            _ => self.lab.data_address(self.host_of(server))?,
        };
        Ok(format!("{}://{host}:{}", self.side.scheme, usize::from(self.port) + server))
    }

    /// A line for a host's shell, to be done in time.
    fn shell(&self, host: usize, line: &str, limit: Duration) -> Result<()> {
        let outcome = run_limited(&mut self.lab.on(host, line)?, limit)?;
        if !outcome.ok() {
            bail!("{line}: {}", outcome.cause());
        }
        Ok(())
    }

    /// A program on a host, whose packets take the measured network only.
    fn command(&self, host: usize, program: &Path) -> Result<Command> {
        let mut command = plain_command(Some(self.lab), host, program, &[])?;
        if self.lab.hosts.len() > 1 {
            command.env("WEIR_IFACE", self.lab.data_ifaces());
        }
        Ok(command)
    }

    /// A program of the client's.
    fn client_command(&self, program: &Path) -> Result<Command> {
        let mut command = self.command(self.client(), program)?;
        command.env("PVFS2TAB_FILE", self.plan.folder.join("pvfs2tab")).env("LD_LIBRARY_PATH", &self.plan.folder);
        if self.side.build == Build::Ours {
            command.env("LD_PRELOAD", &self.plan.library);
        }
        Ok(command)
    }

    /// Memory on each host, empty but for what is to be copied; and the configuration.
    fn prepare(&self) -> Result<()> {
        let space = self.plan.space().display().to_string();
        for host in 0..self.lab.hosts.len() {
            let mount = format!("mountpoint -q '{space}' || mount -t tmpfs -o size=80% none '{space}'");
            self.shell(host, &format!("{mount}; cd '{space}' && rm -rf server-* copied"), LIMIT)?;
        }
        let make = format!("[ -s '{space}/source' ] || head -c {} /dev/urandom > '{space}/source'", self.plan.bytes);
        self.shell(self.client(), &make, self.plan.copy_limit())?;
        let urls = (0..SERVERS).map(|server| self.url(server)).collect::<Result<Vec<_>>>()?;
        fs::write(self.plan.folder.join("pvfs2tab"), format!("{}/weir {MOUNT} pvfs2 defaults 0 0\n", urls[0]))?;
        Ok(fs::write(self.plan.folder.join("fs.conf"), configuration(self.side.scheme, &urls, &space))?)
    }

    /// Makes the servers' storage, starts them, and waits until they say that they are ready.
    fn start(&mut self) -> Result<()> {
        let program = match self.side.build {
            Build::Ours => self.plan.server.clone(),
            _ => self.plan.tree.join("src/server/pvfs2-server"),
        };
        let configuration = self.plan.folder.join("fs.conf");
        for server in 0..SERVERS {
            let mut make = self.command(self.host_of(server), &program)?;
            let outcome = run_limited(make.arg("-f").arg(&configuration).args(["-a", &alias(server)]), LIMIT)?;
            if !outcome.ok() {
                bail!("no storage: {}", outcome.cause());
            }
        }
        for server in 0..SERVERS {
            let said = File::create(self.said(server))?;
            let mut serve = self.command(self.host_of(server), &program)?;
            serve.arg("-d").arg(&configuration).args(["-a", &alias(server)]);
            let child = serve.stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said).spawn();
            self.servers.push(child.context("a server does not start")?);
        }
        self.wait_until_ready()
    }

    /// What a server says goes here.
    fn said(&self, server: usize) -> PathBuf {
        self.plan.folder.join(format!("{}.log", alias(server)))
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + LIMIT;
        for server in 0..SERVERS {
            loop {
                let said = String::from_utf8_lossy(&fs::read(self.said(server))?).into_owned();
                if said.contains("Server ready") {
                    break;
                }
                let ended = self.servers[server].try_wait()?;
                if ended.is_some() || Instant::now() > deadline {
                    let why = ended.map_or_else(|| "is not ready".to_owned(), |status| format!("ended, {status}"));
                    bail!("server {server} {why}: {}", said.lines().last().unwrap_or("it says nothing"));
                }
                thread::sleep(Duration::from_millis(10));
            }
        }
        Ok(())
    }

    /// Copies, and returns MB/s as `pvfs2-cp` times it.
    fn copy(&self, from: &str, to: &str) -> Result<f64> {
        let mut cp = self.client_command(&self.plan.tree.join("src/apps/admin/pvfs2-cp"))?;
        let outcome = run_limited(cp.args(["-t", from, to]), self.plan.copy_limit())?;
        if !outcome.ok() {
            bail!("{}", outcome.cause());
        }
        let (bytes, seconds) =
            copied(&outcome.stdout).with_context(|| format!("it told no time: {}", outcome.stdout))?;
        if bytes != self.plan.bytes {
            bail!("it copied {bytes} of {} bytes", self.plan.bytes);
        }
        Ok(bytes as f64 / seconds / 1e6)
    }

    fn files(&self, phase: &str) -> Result<Value> {
        let mut files = self.client_command(&self.plan.files)?;
        files.args([phase, MOUNT]).args([self.plan.count, FILE_BYTES].map(|number| number.to_string()));
        let outcome = run_limited(&mut files, self.plan.files_limit())?;
        if !outcome.ok() {
            bail!("{}", outcome.cause());
        }
        serde_json::from_str(outcome.stdout.trim()).context("it told no result")
    }
}

/// Bytes and seconds of "Wrote N bytes in S seconds. ...".
fn copied(said: &str) -> Option<(u64, f64)> {
    let line = said.lines().find_map(|line| line.strip_prefix("Wrote "))?;
    let (bytes, rest) = line.split_once(" bytes in ")?;
    let seconds: f64 = rest.split_once(" seconds")?.0.parse().ok()?;
    Some((bytes.parse().ok()?, seconds)).filter(|(_, seconds)| *seconds > 0.0)
}

/// What is shown: its key, its name, digits behind the point, and whether more is better.
const ROWS: [(&str, &str, usize, bool); 10] = [
    ("in_mb_per_s", "copy in, MB/s", 0, true),
    ("out_mb_per_s", "copy out, MB/s", 0, true),
    ("create_s", "create and write, s", 3, false),
    ("list_s", "list, s", 4, false),
    ("read_s", "look up and read, s", 3, false),
    ("remove_s", "remove, s", 3, false),
    ("create_p50_ms", "create and write, a file, median, ms", 2, false),
    ("create_p99_ms", "create and write, a file, p99, ms", 2, false),
    ("read_p99_ms", "look up and read, a file, p99, ms", 2, false),
    ("remove_p99_ms", "remove, a file, p99, ms", 2, false),
];

/// The tables of the page.
pub fn section(results: &BySide, cells: &[Cell], plan: Option<&Plan>) -> String {
    let Some(plan) = plan else { return String::new() };
    let (mib, count) = (plan.bytes >> 20, plan.count);
    let mut text = format!(
        "\nStorage: two servers of OrangeFS, metadata and data on both and in memory, and one client; `pvfs2-cp -t` of {mib} MiB, compared afterwards, and {count} files of {FILE_BYTES} bytes one behind the other \
        (`tests/bmi/files.c`), each phase a process of its own. Original: OrangeFS as it is. Else the server is linked with `-lweir-bmi`, and the client has it by `LD_PRELOAD`. Medians of launches (least to most), and how many times as fast as the original.\n"
    );
    for cell in cells {
        let _ = writeln!(text, "\n## {}: {}\n", cell.id, cell.describe());
        let names = SIDES.map(|side| format!("{}{}", side.name, failures(of(results, cell, &side))));
        let others: Vec<String> = SIDES[1..].iter().map(|side| format!("{}, times as fast", side.name)).collect();
        let _ = writeln!(text, "| | {} | {} |", names.join(" | "), others.join(" | "));
        let _ = writeln!(text, "|---|{}", "---|".repeat(names.len() + others.len()));
        for row in &ROWS {
            text += &line(results, cell, row);
        }
    }
    text
}

fn of<'a>(results: &'a BySide, cell: &Cell, side: &Side) -> Option<&'a Vec<Told>> {
    results.get(&(cell.id, side.name))
}

fn line(results: &BySide, cell: &Cell, row: &(&str, &str, usize, bool)) -> String {
    let (key, name, digits, more_is_better) = *row;
    let all = SIDES.map(|side| spread(of(results, cell, &side), key));
    let shown = |s: &Option<Spread>| match s {
        Some(s) => format!("{:.digits$} ({:.digits$} to {:.digits$})", s.median, s.min, s.max),
        None => "-".to_owned(),
    };
    let times = |s: &Option<Spread>| match (s, &all[0]) {
        (Some(own), Some(original)) if more_is_better => format!("{:.2}", own.median / original.median),
        (Some(own), Some(original)) => format!("{:.2}", original.median / own.median),
        _ => "-".to_owned(),
    };
    let words: Vec<String> = all.iter().map(shown).chain(all[1..].iter().map(times)).collect();
    format!("| {name} | {} |\n", words.join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths::Paths;
    use serde_json::json;

    fn plan() -> Plan {
        let path = PathBuf::new;
        let (tree, files, server, library, folder) = (path(), path(), path(), path(), path());
        Plan { tree, files, server, library, folder, bytes: 1 << 30, count: 1000 }
    }

    #[test]
    fn rows_hold_each_side_against_the_original() {
        let mut results = BySide::new();
        let told = |rate: f64, seconds: f64| Ok(json!({ "in_mb_per_s": rate, "remove_s": seconds }));
        results.insert((CELLS[0].id, "original"), vec![told(400.0, 1.0)]);
        results.insert((CELLS[0].id, "bmi_weir"), vec![told(300.0, 0.5), Err("it | broke".into()), told(320.0, 0.5)]);
        let text = section(&results, &CELLS[..1], Some(&plan()));
        for part in [
            "| | original | bmi_tcp | bmi_weir (1 of 3 failed: it / broke) | bmi_tcp, times as fast | bmi_weir, times as fast |",
            "| copy in, MB/s | 400 (400 to 400) | - | 310 (300 to 320) | - | 0.78 |",
            "| remove, s | 1.000 (1.000 to 1.000) | - | 0.500 (0.500 to 0.500) | - | 2.00 |",
            "`pvfs2-cp -t` of 1024 MiB",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(section(&results, &CELLS, None).is_empty());
    }

    #[test]
    fn a_copy_tells_its_bytes_and_seconds() {
        assert_eq!(copied("Wrote 1073741824 bytes in 2.500000 seconds. 409.6 MB/seconds\n"), Some((1 << 30, 2.5)));
        for wrong in ["", "Wrote x bytes in 1 seconds", "Wrote 5 bytes in 0.0 seconds"] {
            assert_eq!(copied(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn one_host_has_all_or_each_has_its_own() {
        assert!(Paths::find().root.join("tests/bmi/files.c").is_file());
        assert_eq!(CELLS.map(|cell| cell.place().0), [1, 3, 3, 3]);
        assert!(CELLS[3].describe().contains("1 % loss") && CELLS[2].describe().contains("offloads off"));
        assert_eq!(launches(5, &CELLS), 60);
    }
}

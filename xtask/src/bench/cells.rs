//! What is measured: the project's table of numbers to reach, cell by cell.

use std::time::Duration;

use crate::lab::{Second, Wire};
use crate::mpi::{Mpi, PROGRAMS};
use crate::stack::Stack;

/// The program of cells that `weir bench` measures; the others' are in `tests/mpi`.
pub const WEIR_BENCH: &str = "weir bench";

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Times.
    Less,
    /// Rates.
    More,
}

/// A number that a program reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name in the program's JSON.
    pub key: &'static str,
    /// Its name and unit in tables.
    pub label: &'static str,
    /// Which way is better.
    pub better: Better,
}

const MEDIAN: Metric = Metric { key: "median_us", label: "median us", better: Better::Less };
const MEAN: Metric = Metric { key: "mean_us", label: "mean us", better: Better::Less };
const P99: Metric = Metric { key: "p99_us", label: "p99 us", better: Better::Less };
const BANDWIDTH: Metric = Metric { key: "mb_per_s", label: "MB/s", better: Better::More };
const RATE: Metric = Metric { key: "messages_per_s", label: "messages/s", better: Better::More };
const CPU: Metric = Metric { key: "cpu_ns_per_byte", label: "CPU ns/B", better: Better::Less };
const SECONDS: Metric = Metric { key: "seconds", label: "s", better: Better::Less };
const GOODPUT: Metric = Metric { key: "goodput_mbit_per_s", label: "Mbit/s", better: Better::More };
const STALL: Metric = Metric { key: "longest_stall_ms", label: "longest stall ms", better: Better::Less };
const BARRIER: Metric = Metric { key: "barrier_us", label: "barrier us", better: Better::Less };
const ALL_TO_ALL: Metric = Metric { key: "alltoall_us", label: "all-to-all us", better: Better::Less };
const SWEEP: Metric = Metric { key: "sweep_us", label: "sweep us", better: Better::Less };
const EXCHANGE: Metric = Metric { key: "exchange_us", label: "exchange us", better: Better::Less };
const OVERLAP: Metric = Metric { key: "overlap", label: "overlap", better: Better::More };

/// What Weir is to reach in a cell.
#[derive(Clone, Debug, PartialEq)]
pub enum Goal {
    /// Our number over that of the best rival whose name starts so (empty: of all).
    ToRival {
        /// The number.
        metric: Metric,
        /// The rivals' common start of name.
        rival: &'static str,
        /// The ratio to reach: at most this for times, at least this for rates.
        ratio: f64,
    },
    /// Our number over our own in another cell.
    ToOwn {
        /// The number.
        metric: Metric,
        /// The other cell.
        cell: String,
        /// The ratio to reach.
        ratio: f64,
    },
    /// Our number itself.
    Absolute {
        /// The number.
        metric: Metric,
        /// The value to reach.
        value: f64,
    },
}

/// At least the best rival's rate.
const AHEAD: Goal = Goal::ToRival { metric: BANDWIDTH, rival: "", ratio: 1.0 };

/// One program with its arguments on one network.
#[derive(Clone, Debug)]
pub struct Cell {
    /// A name that stays the same between runs.
    pub id: String,
    /// The group it belongs to, for `--only`.
    pub section: &'static str,
    /// The network.
    pub wire: Wire,
    /// How many ranks, one on each host.
    pub ranks: usize,
    /// All ranks are on this machine, and nothing goes over a network.
    pub one_host: bool,
    /// Loops beside it of which each wants a core.
    pub busy: usize,
    /// The program in `tests/mpi`, or [`WEIR_BENCH`].
    pub program: &'static str,
    /// Its arguments.
    pub args: Vec<String>,
    /// What is reported; the first is the main one.
    pub metrics: Vec<Metric>,
    /// What is to be reached.
    pub goals: Vec<Goal>,
    /// Also run Weir with one stream.
    pub ablate_streams: bool,
    /// Also run the rivals; else the cell compares Weir with itself.
    pub rivals: bool,
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// A shorter list with shorter runs.
    pub quick: bool,
    /// How long a program measures at most.
    pub seconds: f64,
}

/// The groups of cells, in the order of the table of numbers.
pub const SECTIONS: [&str; 18] = [
    "latency",
    "bandwidth",
    "stream",
    "packets",
    "links",
    "loss",
    "wan",
    "exchange",
    "jitter",
    "farm",
    "streams",
    "incast",
    "rate",
    "overlap",
    "host",
    "cold",
    "passive",
    "crowd",
];

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn percent(loss: f64) -> String {
    format!("{}%", loss * 100.0)
}

impl Cell {
    fn new(section: &'static str, id: String, wire: Wire, ranks: usize, command: &str, metrics: &[Metric]) -> Self {
        let (program, args) = match command.strip_prefix(WEIR_BENCH) {
            Some(args) => (WEIR_BENCH, args),
            None => {
                let (first, args) = command.split_once(' ').unwrap_or((command, ""));
                (PROGRAMS.into_iter().find(|name| *name == first).unwrap_or_default(), args)
            }
        };
        Self {
            id,
            section,
            wire,
            ranks,
            one_host: false,
            busy: 0,
            program,
            args: words(args),
            metrics: metrics.to_vec(),
            goals: Vec::new(),
            ablate_streams: false,
            rivals: true,
        }
    }

    /// The number after `--name`.
    fn argument(&self, name: &str) -> Option<f64> {
        let at = self.args.iter().position(|word| word == name)?;
        self.args.get(at + 1)?.parse().ok()
    }

    /// How long the program was asked to run at most, in seconds.
    pub fn asked_seconds(&self) -> f64 {
        ["--seconds", "--timeout", "--time"].into_iter().find_map(|name| self.argument(name)).unwrap_or(10.0)
    }

    /// When a launch is ended: a program looks at the clock between messages, so half as long as
    /// asked is added, and time to start and end all ranks on a busy machine; `weir bench` makes
    /// ten repetitions in any case, which is longer than asked where each takes a second.
    pub fn limit(&self) -> Duration {
        let least = if self.program == WEIR_BENCH { 8.0 } else { 0.0 };
        Duration::from_secs((self.asked_seconds() * 1.5 + 6.0 + least + 0.4 * self.ranks as f64).ceil() as u64)
    }

    /// About how long a launch takes on a machine that does nothing else, in seconds.
    pub fn likely_seconds(&self, stack: &Stack) -> f64 {
        let (once, each) = if stack.mpi == Mpi::Mpich { (0.1, 0.03) } else { (0.4, 0.09) };
        let start = once + each * self.ranks as f64 + if stack.congestion.is_some() { 0.15 } else { 0.0 };
        let asked = self.asked_seconds();
        let work = match (self.argument("--iterations"), self.argument("-s")) {
            // A farm ends with its tasks; Weir and clean links carry about 80 MB/s, others with
            // loss perhaps 30.
            (Some(tasks), Some(size)) => {
                let rate = if stack.is_ours() || self.wire.loss == 0.0 { 80e6 } else { 30e6 };
                let compute = self.argument("--compute").unwrap_or(0.0) * 1e-6;
                asked.min(tasks * (size / rate + compute))
            }
            _ => asked,
        };
        start + work
    }

    /// What carries it, for people.
    pub fn network(&self) -> String {
        let network = if self.one_host { "one host".into() } else { self.wire.describe() };
        if self.busy > 0 { format!("{network}, beside {} busy loops", self.busy) } else { network }
    }

    /// Whether packets are lost there, at random or because a queue is full: only then it matters
    /// when a stack sends again.
    pub fn may_lose(&self) -> bool {
        self.wire.loss > 0.0 || self.wire.queue_packets.is_some() || self.section == "incast"
    }

    fn goal(mut self, goal: Goal) -> Self {
        self.goals.push(goal);
        self
    }
}

/// All cells of these sections, or whose names start so (all, if none is named).
pub fn cells(only: &[String], extent: Extent) -> Vec<Cell> {
    let all = [
        latency(extent),
        bandwidth(extent),
        stream(extent),
        packets(extent),
        links(extent),
        loss(extent),
        wan(extent),
        exchange(extent),
        jitter(extent),
        farm(extent),
        streams(extent),
        incast(extent),
        rate(extent),
        overlap(extent),
        host(extent),
        cold(extent),
        passive(extent),
        crowd(extent),
    ];
    let wanted = |cell: &Cell| {
        let by_name = |name: &String| name.contains('/') && cell.id.starts_with(name.as_str());
        only.iter().any(|name| name == cell.section || by_name(name))
    };
    all.into_iter().flatten().filter(|cell| only.is_empty() || wanted(cell)).collect()
}

/// Round trips that make connections. Where packets are lost no more are left out: in a short
/// launch that stands still, all stalls would be among twenty that do not count, and what is left
/// would look as if nothing was lost.
const FIRST: usize = 2;

/// Round trips of messages of so many bytes. What the first of them are is the same for all stacks,
/// so that no stack's slow ones are taken for warm-up.
fn ping_pong(size: usize, warm_up: usize, seconds: f64) -> String {
    format!("{WEIR_BENCH} -t ping-pong -s {size} --warm-up {warm_up} --time {seconds}")
}

/// Windows of messages, each answered.
fn windows(size: usize, window: usize, seconds: f64) -> String {
    format!("{WEIR_BENCH} -t message-rate -s {size} --window {window} --warm-up 2 --time {seconds}")
}

fn latency(e: Extent) -> Vec<Cell> {
    let goal = Goal::ToRival { metric: MEDIAN, rival: "", ratio: 0.75 };
    let (id, command) = ("latency/8B".into(), ping_pong(8, 500, e.seconds));
    vec![Cell::new("latency", id, Wire::plain(0.0), 2, &command, &[MEDIAN, P99]).goal(goal)]
}

fn sizes(e: Extent) -> &'static [usize] {
    if e.quick {
        &[1 << 10, 1 << 16, 1 << 20]
    } else {
        &[1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22]
    }
}

fn bandwidth(e: Extent) -> Vec<Cell> {
    let one = |&size: &usize| {
        let command = ping_pong(size, 50, e.seconds);
        Cell::new("bandwidth", format!("bandwidth/{size}"), Wire::plain(0.0), 2, &command, &[BANDWIDTH, MEDIAN, P99])
            .goal(AHEAD)
    };
    sizes(e).iter().map(one).collect()
}

fn stream(e: Extent) -> Vec<Cell> {
    let one = |&size: &usize| {
        let window = if size < 1 << 20 { 64 } else { 16 };
        let command = windows(size, window, e.seconds);
        Cell::new("stream", format!("stream/{size}"), Wire::plain(0.0), 2, &command, &[BANDWIDTH, CPU]).goal(AHEAD)
    };
    sizes(e).iter().map(one).collect()
}

/// What a packet of 1500 bytes costs where nothing is offloaded: messages too short for a bulk
/// connection, so many under way that no rank waits.
fn packets(e: Extent) -> Vec<Cell> {
    let one = |loss| {
        let (command, wire) = (windows(30_000, 64, e.seconds), Wire { no_offload: true, ..Wire::plain(loss) });
        let id = format!("packets/30000/{}", percent(loss));
        let goal = Goal::ToRival { metric: CPU, rival: "", ratio: 1.0 };
        Cell::new("packets", id, wire, 2, &command, &[BANDWIDTH, CPU]).goal(goal)
    };
    [0.0, 0.01].map(one).into()
}

/// Two links: as one twice as fast, and no slower than the better one where they differ. So slow
/// that two cores emulate them.
fn links(e: Extent) -> Vec<Cell> {
    let one = Wire::shaped(200, 50, 0.0);
    let two = Wire { two_networks: true, ..one.clone() };
    let slower = Second { rate_mbit_per_s: Some(20), ..Second::default() };
    let later = Second { delay_us: Some(500), ..Second::default() };
    let wires = [
        ("one", one, None),
        ("two", two.clone(), Some(1.9)),
        ("10to1", Wire { second: slower, ..two.clone() }, Some(1.0)),
        ("later", Wire { second: later, ..two }, Some(1.0)),
    ];
    let cell = |(size, (kind, wire, goal)): (usize, &(&str, Wire, Option<f64>))| {
        let command = windows(size, 4, e.seconds * 2.0);
        let id = |kind: &str| format!("links/{kind}/{size}");
        let cell = Cell::new("links", id(kind), wire.clone(), 2, &command, &[BANDWIDTH]);
        let cell = cell.goal(AHEAD);
        match *goal {
            Some(ratio) => cell.goal(Goal::ToOwn { metric: BANDWIDTH, cell: id("one"), ratio }),
            None => cell,
        }
    };
    [300_000, 1_048_576].into_iter().flat_map(|size| wires.iter().map(move |wire| cell((size, wire)))).collect()
}

/// Ranks of one host: shared memory.
fn host(e: Extent) -> Vec<Cell> {
    let one = |size: usize| {
        let command = ping_pong(size, 500, e.seconds);
        let goal = if size == 8 {
            Goal::ToRival { metric: MEDIAN, rival: "mpich-ofi-shm", ratio: 1.0 }
        } else {
            Goal::ToRival { metric: BANDWIDTH, rival: "", ratio: 0.9 }
        };
        let id = format!("host/{size}");
        let cell = Cell::new("host", id, Wire::plain(0.0), 2, &command, &[MEDIAN, BANDWIDTH, P99]);
        Cell { one_host: true, ..cell.goal(goal) }
    };
    let longer = sizes(e).iter().copied().filter(|&size| size >= 4096);
    std::iter::once(8).chain(longer).map(one).collect()
}

fn loss(e: Extent) -> Vec<Cell> {
    let mut cells = Vec::new();
    for size in [30_000, 300_000] {
        for loss in [0.0, 0.01, 0.02] {
            let wire = Wire { no_offload: true, ..Wire::plain(loss) };
            let command = ping_pong(size, FIRST, e.seconds * 2.0);
            let mut cell = Cell::new(
                "loss",
                format!("loss/{size}/{}", percent(loss)),
                wire,
                2,
                &command,
                &[BANDWIDTH, MEDIAN, P99],
            );
            if loss > 0.0 {
                let (ratio, p99_us) = if size == 30_000 { (5.0, 150.0) } else { (6.0, 500.0) };
                cell = cell.goal(Goal::ToRival { metric: BANDWIDTH, rival: "", ratio });
                cell = cell.goal(Goal::Absolute { metric: P99, value: p99_us });
            }
            cells.push(cell);
        }
    }
    cells
}

/// Both ranks send at once, as codes do that exchange their borders.
fn both_ways(e: Extent, section: &'static str, (name, wire): (&str, Wire), bytes: u32) -> Cell {
    let seconds = e.seconds * 6.0;
    let command = format!("{WEIR_BENCH} -t sendrecv -s {bytes} --warm-up {FIRST} --time {seconds}");
    let id = format!("{section}/{name}/{bytes}");
    Cell::new(section, id, wire, 2, &command, &[BANDWIDTH, MEDIAN, P99]).goal(AHEAD)
}

/// Exchanges, where nothing is late or lost.
fn exchange(e: Extent) -> Vec<Cell> {
    let wires = [("50us", 50, 1_000_000), ("5ms", 5000, 1_000_000), ("50us", 50, 100_000)];
    let taken = if e.quick { 1 } else { wires.len() };
    let one = |(name, delay_us, bytes)| both_ways(e, "exchange", (name, Wire::shaped(1000, delay_us, 0.0)), bytes);
    wires.into_iter().take(taken).map(one).collect()
}

/// Delay that varies by a millisecond.
fn jitter(e: Extent) -> Vec<Cell> {
    let wire = |delay_us| Wire { jitter_us: 1000, ..Wire::shaped(1000, delay_us, 0.0) };
    [("50us", 50), ("5ms", 5000)].map(|(name, d)| both_ways(e, "jitter", (name, wire(d)), 1_000_000)).into()
}

fn wan(e: Extent) -> Vec<Cell> {
    let mut cells = Vec::new();
    let delays: &[u32] = if e.quick { &[1000] } else { &[1000, 10_000] };
    for &delay_us in delays {
        for size in [30_000, 300_000] {
            for loss in [0.0, 0.01, 0.02] {
                let base = format!("wan/{}ms/{size}", delay_us / 1000);
                let command = ping_pong(size, FIRST, e.seconds * 3.0);
                let id = format!("{base}/{}", percent(loss));
                let mut cell =
                    Cell::new("wan", id, Wire::shaped(1000, delay_us, loss), 2, &command, &[BANDWIDTH, MEDIAN, P99]);
                if loss == 0.01 {
                    cell = cell.goal(Goal::ToOwn { metric: BANDWIDTH, cell: format!("{base}/0%"), ratio: 0.7 });
                }
                let ratio = match (loss > 0.0, size) {
                    (false, _) => 1.0,
                    (true, 30_000) => 4.0,
                    (true, _) if loss == 0.01 => 1.3,
                    (true, _) => 1.5,
                };
                cells.push(cell.goal(Goal::ToRival { metric: BANDWIDTH, rival: "", ratio }));
            }
        }
    }
    cells
}

/// 10 000 tasks of 30 KB and 1000 of 300 KB take about three seconds of the wire; fewer in a
/// shorter run, but enough that each worker's requests are answered many times.
fn farm_tasks(e: Extent, size: usize) -> usize {
    let most = 300_000_000 / size;
    ((most as f64 * e.seconds / 3.0) as usize).clamp(1000.min(most), most)
}

/// One farm, to its end or its time. (The order of messages that MPI obliges a library to keep is
/// what it is there for: ten tags, which receives name or not.)
fn one_farm(e: Extent, tasks: usize, size: usize, fanout: u32, named: bool) -> String {
    format!(
        "{WEIR_BENCH} -t farm -s {size} --iterations {tasks} --reps 1 --warm-up 0 --fanout {fanout} --receive {} --timeout {}",
        receive(named),
        f64::max(e.seconds * 10.0, 10.0)
    )
}

fn receive(named: bool) -> &'static str {
    if named { "named" } else { "any" }
}

fn farm(e: Extent) -> Vec<Cell> {
    let mut cells = Vec::new();
    let workers: &[usize] = if e.quick { &[3] } else { &[3, 7] };
    let sizes: &[usize] = if e.quick { &[30_000] } else { &[30_000, 300_000] };
    // With and without named tags: by MPI's rule a receive for any tag waits for what is missing,
    // whatever the streams.
    let kinds: &[(u32, bool)] = if e.quick { &[(1, false)] } else { &[(1, false), (10, false), (10, true)] };
    for &workers in workers {
        for &size in sizes {
            for &(fanout, named) in kinds {
                for loss in [0.0, 0.01, 0.02] {
                    let tasks = if e.quick { 1000 } else { farm_tasks(e, size) };
                    let base = format!("farm/{workers}w/{size}/f{fanout}{}", if named { "-named" } else { "" });
                    let (id, command) = (format!("{base}/{}", percent(loss)), one_farm(e, tasks, size, fanout, named));
                    let wire = Wire::shaped(1000, 50, loss);
                    let mut cell = Cell::new("farm", id, wire, workers + 1, &command, &[SECONDS, BANDWIDTH]);
                    cell.ablate_streams = fanout > 1;
                    cell.rivals = !named;
                    if cell.rivals {
                        cell = cell.goal(Goal::ToRival { metric: SECONDS, rival: "", ratio: 0.9 });
                    }
                    if loss == 0.02 {
                        cell = cell.goal(Goal::ToOwn { metric: SECONDS, cell: format!("{base}/0%"), ratio: 1.3 });
                    }
                    cells.push(cell);
                }
            }
        }
    }
    cells
}

/// What streams are worth: messages of one packet, on a path so long that a lost one holds up many
/// that are long there. At a steady pace, and as a farm of small tasks.
fn streams(e: Extent) -> Vec<Cell> {
    let tasks = ((e.seconds * 3000.0) as usize).clamp(1000, 10_000);
    let mut cells = Vec::new();
    let mut add = |id: String, loss: f64, ranks: usize, command: &str, metrics: &[Metric]| {
        let id = format!("streams/{id}/{}", percent(loss));
        let cell = Cell::new("streams", id, Wire::shaped(1000, 5000, loss), ranks, command, metrics);
        cells.push(Cell { ablate_streams: true, rivals: false, ..cell });
    };
    for named in [true, false] {
        // A loop each way, each as long as half of it.
        let (kind, time) = (receive(named), e.seconds * 10.0);
        let pace =
            format!("{WEIR_BENCH} -t open-loop -s 1000 --interval 1000 --receive {kind} --warm-up 2 --time {time}");
        let farm = format!("{} --compute 200", one_farm(e, tasks, 1000, 10, named));
        for loss in [0.0, 0.02] {
            add(kind.into(), loss, 2, &pace, &[MEDIAN, MEAN, P99]);
            add(format!("farm-{kind}"), loss, 4, &farm, &[SECONDS]);
        }
    }
    cells
}

fn incast(e: Extent) -> Vec<Cell> {
    let mut cells = Vec::new();
    let fans: &[usize] = if e.quick { &[8] } else { &[8, 32] };
    for &senders in fans {
        for size in [65_536, 1 << 20] {
            let wire = Wire { queue_packets: Some(64), ..Wire::shaped(1000, 25, 0.0) };
            let seconds = e.seconds * 2.0;
            let command = format!("{WEIR_BENCH} -t incast -s {size} --start none --warm-up 2 --time {seconds}");
            let cell =
                Cell::new("incast", format!("incast/{senders}/{size}"), wire, senders + 1, &command, &[GOODPUT, STALL]);
            // Nine busy threads share two cores there, or 33.
            let mbit_per_s = if senders == 8 { 900.0 } else { 600.0 };
            cells.push(
                cell.goal(Goal::ToRival { metric: GOODPUT, rival: "", ratio: 1.1 })
                    .goal(Goal::Absolute { metric: GOODPUT, value: mbit_per_s })
                    .goal(Goal::Absolute { metric: STALL, value: 20.0 }),
            );
        }
    }
    cells
}

fn rate(e: Extent) -> Vec<Cell> {
    let command = windows(8, 64, e.seconds);
    let goal = Goal::ToRival { metric: RATE, rival: "", ratio: 1.5 };
    vec![Cell::new("rate", "rate/8B".into(), Wire::plain(0.0), 2, &command, &[RATE]).goal(goal)]
}

fn overlap(e: Extent) -> Vec<Cell> {
    let command = format!("{WEIR_BENCH} -t overlap -s 1048576 --warm-up 5 --time {}", e.seconds * 2.0);
    vec![Cell::new("overlap", "overlap/1MiB".into(), Wire::plain(0.0), 2, &command, &[OVERLAP])]
}

/// Round trips in which each buffer is filled and checked by the program between messages.
fn cold(e: Extent) -> Vec<Cell> {
    let all: &[usize] = &[8, 512, 2048, 4096, 8192, 16_384, 32_768, 65_536];
    let sizes = if e.quick { &[8, 4096, 65_536] } else { all };
    let one =
        |size: &usize| {
            let command = format!("{WEIR_BENCH} -t ping-pong-filled -s {size} --warm-up 500 --time {}", e.seconds);
            Cell::new("cold", format!("cold/{size}"), Wire::plain(0.0), 2, &command, &[MEDIAN, P99])
                .goal(Goal::ToRival { metric: MEDIAN, rival: "mpich-tcp", ratio: 1.0 })
        };
    sizes.iter().map(one).collect()
}

/// Passive targets: lock, one operation, unlock.
fn passive(e: Extent) -> Vec<Cell> {
    let one = |name: &str| {
        let command = format!("{WEIR_BENCH} -t {name}-lock -s 8 --warm-up 200 --time {}", e.seconds);
        Cell::new("passive", format!("passive/{name}"), Wire::plain(0.0), 2, &command, &[MEDIAN, P99])
            .goal(Goal::ToRival { metric: MEDIAN, rival: "mpich-tcp", ratio: 1.0 })
    };
    ["put", "get", "accumulate"].map(one).into()
}

/// Busy loops beside ranks: as many as this project's machine has cores.
const LOOPS: usize = 2;

/// More ranks, or threads of ranks, than cores.
fn crowd(e: Extent) -> Vec<Cell> {
    let collective: &[Metric] = &[BARRIER, ALL_TO_ALL, SWEEP];
    let mut cells = Vec::new();
    for (place, one_host) in [("hosts", false), ("host", true)] {
        for (kind, threads, metrics) in [("ranks", 0, collective), ("threads", 4, &[EXCHANGE])] {
            for (beside, busy) in [("alone", 0), ("busy", LOOPS)] {
                let command = format!("crowd --threads {threads} --seconds {}", e.seconds * 1.5);
                let id = format!("crowd/{place}/{kind}/{beside}");
                let mut cell = Cell::new("crowd", id, Wire::plain(0.0), 4, &command, metrics);
                (cell.one_host, cell.busy) = (one_host, busy);
                cell.goals = metrics.iter().map(|&metric| Goal::ToRival { metric, rival: "", ratio: 1.2 }).collect();
                cells.push(cell);
            }
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_goals_refer_to_cells() {
        for quick in [true, false] {
            let all = cells(&[], Extent { quick, seconds: 1.0 });
            let ids: std::collections::BTreeSet<_> = all.iter().map(|c| c.id.clone()).collect();
            assert_eq!(ids.len(), all.len());
            for goal in all.iter().flat_map(|c| &c.goals) {
                if let Goal::ToOwn { cell, .. } = goal {
                    assert!(ids.contains(cell), "{cell}");
                }
            }
        }
    }

    #[test]
    fn a_launch_may_take_little_more_than_its_program_was_asked_to_run() {
        for cell in cells(&[], Extent { quick: false, seconds: 1.0 }) {
            let (asked, limit) = (cell.asked_seconds(), cell.limit().as_secs_f64());
            assert!(limit > asked + 5.0 && limit < asked * 1.5 + 29.0, "{}: {asked} s, ended after {limit} s", cell.id);
            for stack in Stack::all(&[]) {
                assert!(cell.likely_seconds(&stack) < limit, "{} on {}", cell.id, stack.name);
            }
        }
    }

    #[test]
    fn every_row_of_the_table_of_numbers_has_its_cells() {
        let ids: Vec<String> = cells(&[], Extent { quick: false, seconds: 1.0 }).into_iter().map(|c| c.id).collect();
        let mut rows = vec!["latency/8B".to_owned(), "rate/8B".to_owned()];
        for kind in ["bandwidth", "stream"] {
            rows.extend((10..=22).step_by(2).map(|bits| format!("{kind}/{}", 1 << bits)));
        }
        for (size, loss) in [30_000, 300_000].into_iter().flat_map(|size| [0, 1, 2].map(|loss| (size, loss))) {
            rows.push(format!("loss/{size}/{loss}%"));
            rows.extend([1, 10].map(|ms| format!("wan/{ms}ms/{size}/{loss}%")));
            for workers in [3, 7] {
                rows.extend(["f1", "f10", "f10-named"].map(|how| format!("farm/{workers}w/{size}/{how}/{loss}%")));
            }
        }
        rows.extend(["named/2%", "farm-named/0%", "farm-named/2%"].map(|cell| format!("streams/{cell}")));
        rows.extend([8, 32].into_iter().flat_map(|n| [1 << 16, 1 << 20].map(|size| format!("incast/{n}/{size}"))));
        for row in rows {
            assert!(ids.contains(&row), "{row}");
        }
    }

    #[test]
    fn cells_are_chosen_by_section_or_start_of_name() {
        let extent = Extent { quick: false, seconds: 1.0 };
        let ids = |only: &str| cells(&[only.to_owned()], extent).into_iter().map(|c| c.id).collect::<Vec<_>>();
        assert_eq!(ids("wan/10ms/30000/1"), ["wan/10ms/30000/1%"]);
        assert_eq!(ids("stream").len(), 7, "not those of streams, nor bandwidth");
        assert!(ids("farm/7w").iter().all(|id| id.starts_with("farm/7w")) && ids("farm/7w").len() == 18);
        assert!(ids("nothing").is_empty());
    }

    #[test]
    fn each_section_has_cells_of_a_program_that_exists() {
        for section in SECTIONS {
            let some = cells(&[section.to_owned()], Extent { quick: true, seconds: 1.0 });
            let is_there = |c: &Cell| c.program == WEIR_BENCH || PROGRAMS.contains(&c.program);
            assert!(!some.is_empty() && some.iter().all(is_there), "{section}");
        }
    }
}

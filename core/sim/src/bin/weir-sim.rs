//! The simulator's command: swarms of seeds, single runs, tables.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use clap::{Args, Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use peak_alloc::PeakAlloc;
use rayon::prelude::*;
use weir_sim::run::{Report, Watch, build, run};
use weir_sim::scenario::{EndpointSpec, Profile, Scenario};
use weir_sim::spec::{MS, SEC, US};
use weir_sim::table::{self, Point};
use weir_sim::work::Workload;
use weir_sim::work::supersteps::{Bsp, Relation, Uses};
use weir_sim::{
    ablation, link_table, mark_table, planted, rows, service_table, shrink, step_many, step_table, storm, table::Wire,
};
use weir_superstep::OwnQueue;

/// Counts the bytes that the memory table reports.
#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Runs the Weir protocol on simulated networks, in virtual time.
#[derive(Parser)]
#[command(
    version,
    after_help = "Examples:\n  weir-sim swarm --seeds 0..1000\n  weir-sim run --seed 42 --trace\n  weir-sim shrink --seed 42 --profile crash\n  weir-sim planted\n  weir-sim table incast\n  weir-sim table marks\n  weir-sim table links --scenario 'cut at 30 ms stream 1M' > row.json\n  weir-sim run --scenario row.json --trace\n  weir-sim ablation parity\n  weir-sim incast --senders 1000\n  weir-sim service --clients 1000 --all-faults\n  weir-sim storm --ranks 512\n  weir-sim memory --peers 1000"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs many seeds with random faults on all cores; stops at the first broken promise.
    Swarm {
        /// Seeds, `first..end`.
        #[arg(long, default_value = "0..1000", value_parser = parse_range)]
        seeds: std::ops::Range<u64>,
        /// What may go wrong.
        #[arg(long, default_value = "all", value_parser = parse_profile)]
        profile: Profile,
        /// Go on after broken promises and list them all.
        #[arg(long)]
        keep_going: bool,
    },
    /// Runs one seed (or a scenario from a file) twice and compares.
    Run {
        #[command(flatten)]
        which: Which,
        /// Print every event.
        #[arg(long)]
        trace: bool,
        /// Print the scenario as JSON and do not run it.
        #[arg(long)]
        show: bool,
    },
    /// Makes the scenario of a failing seed as small as it still fails in the same way, and prints
    /// it as JSON.
    Shrink {
        #[command(flatten)]
        which: Which,
    },
    /// Shows that the checkers find defects: switches each on in all ranks and runs seeds until a
    /// broken promise is seen. Fails if one is not found.
    Planted {
        /// Only these (see the list it prints).
        names: Vec<String>,
        /// Seeds to search, `first..end`.
        #[arg(long, default_value = "0..2000", value_parser = parse_range)]
        seeds: std::ops::Range<u64>,
        /// One JSON array of what was found and what was not.
        #[arg(long)]
        json: bool,
    },
    /// Goodput and message times over loss x delay x queue x fan-in.
    Table {
        /// Which table.
        #[arg(value_parser = ["all", "incast", "marks", "fan-in", "pingpong", "stream", "jitter", "exchange", "links", "supersteps", "many", "many-big", "service", "storm"], default_value = "all")]
        what: String,
        /// NewReno instead of the default controller.
        #[arg(long)]
        reno: bool,
        /// Messages up to this size are sent without asking where window and receiver allow it.
        #[arg(long, default_value_t = EndpointSpec::default().eager_max)]
        eager: u64,
        /// No parity fragments.
        #[arg(long)]
        no_parity: bool,
        /// The seed of all chance.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Only the rows in whose names this stands, such as "exchange 2 x     4M  100M".
        #[arg(long)]
        only: Option<String>,
        /// Print the scenario of the row of this name as JSON and do not run it, for
        /// `weir-sim run --scenario`.
        #[arg(long, value_name = "ROW", conflicts_with = "only")]
        scenario: Option<String>,
        /// Leave out a part of the congestion control, named as `weir-sim ablation` does.
        #[arg(long)]
        without: Option<String>,
    },
    /// What each part of the congestion control is worth: leaves one out at a time, on the networks
    /// of all tables, and prints what got worse and better.
    Ablation {
        /// Only these (see the list it prints); all without.
        names: Vec<String>,
        /// Seeds, `first..end`: a cell counts where all of them agree.
        #[arg(long, default_value = "1..4", value_parser = parse_range)]
        seeds: std::ops::Range<u64>,
        /// One JSON document with all cells that count.
        #[arg(long)]
        json: bool,
    },
    /// Many senders to one receiver.
    Incast {
        /// Number of senders.
        #[arg(long, default_value_t = 1000)]
        senders: u32,
        /// Bytes of a message.
        #[arg(long, default_value_t = 64 << 10)]
        len: u64,
        /// Messages from each.
        #[arg(long, default_value_t = 4)]
        count: u32,
        /// Sends open at a time, each sender.
        #[arg(long, default_value_t = 2)]
        window: usize,
        /// Queue of the receiver's switch port, packets.
        #[arg(long, default_value_t = 64)]
        queue: u32,
        /// So many packets that wait at a port make it mark those that come (ECN); without it no
        /// switch marks.
        #[arg(long)]
        mark: Option<u32>,
        /// Leave out a part of the congestion control, named as `weir-sim ablation` does.
        #[arg(long)]
        without: Option<String>,
        /// NewReno instead of the default controller.
        #[arg(long)]
        reno: bool,
        /// Messages up to this size are sent without asking where window and receiver allow it.
        #[arg(long, default_value_t = EndpointSpec::default().eager_max)]
        eager: u64,
        /// Print the scenario as JSON and do not run it.
        #[arg(long)]
        show: bool,
    },
    /// Supersteps: a reduction that tells the counts, then an h-relation; how long each took, how
    /// much that varies, and how it compares with h g + l.
    Supersteps(Supersteps),
    /// A server and many clients, each of which asks and waits (spec/bmi.md); with everything that
    /// can go wrong, or without.
    Service(Service),
    /// A start in which every rank opens to every other at once, where processors and socket
    /// buffers are short (spec/protocol.md 3.4).
    Storm(Storm),
    /// Memory of an endpoint with many idle peers.
    Memory {
        /// Number of peers.
        #[arg(long, default_value_t = 1000)]
        peers: u32,
    },
}

#[derive(Args)]
struct Service {
    /// Clients.
    #[arg(long, default_value_t = 1000)]
    clients: u32,
    /// Bytes of an answer.
    #[arg(long, default_value_t = 10_000)]
    len: u64,
    /// Requests of each client.
    #[arg(long, default_value_t = 4)]
    requests: u32,
    /// Queue of each switch port, packets.
    #[arg(long, default_value_t = 64)]
    queue: u32,
    /// Packets lost by chance, parts per million.
    #[arg(long, default_value_t = 0)]
    loss_ppm: u32,
    /// Bad links, clients that die, come again, are cut off, stop and leave, a server that is cut
    /// off and stops: in place of the above.
    #[arg(long)]
    all_faults: bool,
    /// The seed of all chance.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Args)]
struct Storm {
    /// Ranks; several, separated by commas: one run for each.
    #[arg(long, value_delimiter = ',', default_value = "128")]
    ranks: Vec<u32>,
    /// Cores that the ranks share.
    #[arg(long, default_value_t = 2)]
    cores: u32,
    /// Microseconds that a core needs to take in a packet, and to send one.
    #[arg(long, default_value_t = 20)]
    cost_us: u64,
    /// Microseconds that a rank which has slept waits for its turn, for each rank that shares its
    /// core.
    #[arg(long, default_value_t = 200)]
    turn_us: u64,
    /// KiB of each socket's receive buffer, as Linux counts.
    #[arg(long, default_value_t = 416)]
    buffer_kib: u64,
    /// So many ranks begin late ...
    #[arg(long, default_value_t = 0)]
    late: u32,
    /// ... by so many milliseconds.
    #[arg(long, default_value_t = 3000)]
    late_ms: u64,
    /// Packets lost by chance, parts per million.
    #[arg(long, default_value_t = 0)]
    loss_ppm: u32,
    /// The seed of all chance.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Args)]
struct Supersteps {
    /// Processes, one on each host.
    #[arg(long, default_value_t = 8)]
    processes: u32,
    /// Who sends to whom.
    #[arg(long, value_parser = ["total", "shift", "sparse", "to-one"], default_value = "total")]
    relation: String,
    /// Bytes of a message; with --relation sparse the most, and a hundredth of it the least.
    #[arg(long, default_value_t = 256 << 10)]
    len: u64,
    /// Destinations of each process, with --relation sparse.
    #[arg(long, default_value_t = 8)]
    degree: u32,
    /// Supersteps.
    #[arg(long, default_value_t = 20)]
    steps: u32,
    /// Each cable of the star, Mbit/s.
    #[arg(long, default_value_t = 1000)]
    rate_mbit: u64,
    /// Microseconds from host to host, one way.
    #[arg(long, default_value_t = 10)]
    delay_us: u64,
    /// Microseconds until a process notices a packet: more where it shares its processor with
    /// others.
    #[arg(long, default_value_t = 0.5)]
    wake_us: f64,
    /// Queue of each switch port, packets.
    #[arg(long, default_value_t = 64)]
    queue: u32,
    /// Packets lost by chance, parts per million.
    #[arg(long, default_value_t = 0)]
    loss_ppm: u32,
    /// A bus of 10 Mbit/s that all share, instead of a star of 1 Gbit/s.
    #[arg(long)]
    bus: bool,
    /// With --bus: hosts collide and back off as on a half-duplex Ethernet (CSMA/CD).
    #[arg(long, requires = "bus")]
    collisions: bool,
    /// Destinations in the order 0, 1, 2 ...
    #[arg(long)]
    ascending: bool,
    /// Destinations in the order of the symmetric square.
    #[arg(long)]
    mirrored: bool,
    /// Endpoints are told nothing of the plan.
    #[arg(long)]
    untold: bool,
    /// Data goes as soon as a process has its counts.
    #[arg(long)]
    at_once: bool,
    /// Bytes let in ahead (0: none).
    #[arg(long, default_value_t = EndpointSpec::default().expect_ahead)]
    ahead: u64,
    /// What may wait in a host's interface: auto, system, or bytes.
    #[arg(long, default_value = "auto")]
    own_queue: OwnQueue,
    /// Data goes in random slots so long, microseconds, as many as there are processes; several,
    /// separated by commas: one run for each (0: no slots).
    #[arg(long, value_delimiter = ',', default_value = "0")]
    slot_us: Vec<f64>,
    /// The seed of all chance.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print the scenario as JSON and do not run it.
    #[arg(long)]
    show: bool,
}

impl Supersteps {
    fn points(&self) -> Vec<Point> {
        let relation = match self.relation.as_str() {
            "total" => Relation::Total(self.len),
            "shift" => Relation::Shift(self.len),
            "to-one" => Relation::ToOne(self.len),
            _ => Relation::Sparse { degree: self.degree, bytes: ((self.len / 100).max(1), self.len.max(1)) },
        };
        let own_queue = match self.own_queue {
            OwnQueue::Auto => 0,
            OwnQueue::System => u64::MAX,
            OwnQueue::Bytes(bytes) => bytes,
        };
        let endpoint = EndpointSpec { expect_ahead: self.ahead, ..EndpointSpec::default() };
        let point = |slot_us: &f64| {
            let slot_ns = (slot_us * 1e3) as u64;
            let (order, mirrored, told, hold) = (!self.ascending, self.mirrored, !self.untold, !self.at_once);
            let uses = Uses { order, mirrored, told, hold, slot_ns, own_queue };
            let bsp = Bsp { steps: self.steps, relation, compute_ns: 0, uses };
            let name = format!("{} x {} {}, slot {slot_us} us", self.relation, self.processes, table::size(self.len));
            let mut p = if self.bus {
                step_table::bus(&name, self.processes, self.queue, self.collisions, &endpoint, bsp)
            } else {
                let wire = Wire {
                    rate_bits_per_s: self.rate_mbit * 1_000_000,
                    delay_ns: self.delay_us * US,
                    queue_packets: self.queue,
                    loss_ppm: self.loss_ppm,
                    ..Wire::GIGABIT
                };
                step_table::star(&name, wire, self.processes, &endpoint, bsp)
            };
            p.scenario.seed = self.seed;
            p.scenario.net.host.wake_ns = (self.wake_us * 1e3) as u64;
            p
        };
        self.slot_us.iter().map(point).collect()
    }
}

#[derive(Args)]
struct Which {
    /// The seed.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// What may go wrong.
    #[arg(long, default_value = "all", value_parser = parse_profile)]
    profile: Profile,
    /// A scenario in JSON instead.
    #[arg(long)]
    scenario: Option<PathBuf>,
}

impl Which {
    fn scenario(&self) -> Result<Scenario, String> {
        let Some(path) = &self.scenario else {
            return Ok(Scenario::draw(self.seed, self.profile));
        };
        let text = std::fs::read_to_string(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
        serde_json::from_str(&text).map_err(|e| format!("{} is no scenario: {e}", path.display()))
    }

    fn command(&self) -> String {
        match &self.scenario {
            Some(path) => format!("weir-sim run --scenario {} --trace", path.display()),
            None => repro(self.seed, self.profile),
        }
    }
}

fn repro(seed: u64, profile: Profile) -> String {
    format!("cargo run --release -p weir-sim -- run --seed {seed} --profile {} --trace", profile.name())
}

fn parse_range(s: &str) -> Result<std::ops::Range<u64>, String> {
    let (a, b) = s.split_once("..").ok_or("write first..end")?;
    let number = |t: &str| t.replace('_', "").parse::<u64>().map_err(|e| format!("{t}: {e}"));
    Ok(number(a)?..number(b)?)
}

fn parse_profile(s: &str) -> Result<Profile, String> {
    let names: Vec<_> = Profile::NAMES.iter().map(|(n, _)| *n).collect();
    Profile::from_name(s).ok_or(format!("one of {}", names.join(", ")))
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Swarm { seeds, profile, keep_going } => swarm(seeds, profile, keep_going),
        Command::Run { which, trace, show } => run_one(&which, trace, show),
        Command::Shrink { which } => shrink_one(&which),
        Command::Planted { names, seeds, json } => planted_defects(&names, &seeds, json),
        Command::Table { what, reno, eager, no_parity, seed, only, scenario, without } => {
            without.as_deref().map(part_named).transpose().and_then(|part| {
                let left_out = part.into_iter().collect();
                let e =
                    EndpointSpec { reno, eager_max: eager, parity: !no_parity, left_out, ..EndpointSpec::default() };
                if let Some(row) = scenario {
                    let row = rows::scenario(&what, &e, &row)?;
                    print_scenario(&Scenario { seed, ..row });
                    return Ok(true);
                }
                tables(&what, &e, only.as_deref(), |p| {
                    p.scenario.seed = seed;
                    only.as_ref().is_none_or(|only| p.name.contains(only))
                });
                Ok(true)
            })
        }
        Command::Incast { senders, len, count, window, queue, mark, without, reno, eager, show: show_only } => {
            let left_out = match without.as_deref().map(part_named).transpose() {
                Ok(part) => part.into_iter().collect(),
                Err(e) => {
                    eprintln!("weir-sim: {e}");
                    return ExitCode::from(2);
                }
            };
            let endpoint = EndpointSpec { reno, eager_max: eager, left_out, ..EndpointSpec::default() };
            let wire = Wire { queue_packets: queue, mark_packets: mark, ..Wire::GIGABIT };
            let name = format!("incast {senders}:1 {} queue {queue}", table::size(len));
            let p = table::point(name, wire, senders + 1, &endpoint, Workload::Incast { len, count, window });
            if show_only {
                return print_scenario(&p.scenario);
            }
            let reports = show(&[p]);
            Ok(reports.iter().all(|r| r.violation.is_none()))
        }
        Command::Supersteps(s) => supersteps(&s),
        Command::Service(s) => service(&s),
        Command::Storm(s) => storms(&s),
        Command::Ablation { names, seeds, json } => ablations(&names, &seeds, json),
        Command::Memory { peers } => memory(peers),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("weir-sim: {e}");
            ExitCode::from(2)
        }
    }
}

/// A line on standard output. Who reads it may have gone away, as in `weir-sim run ... | head`:
/// then nobody wants the rest.
fn say(line: std::fmt::Arguments<'_>) {
    use std::io::Write;
    // What a shell says of a program that SIGPIPE ended: 128 + 13.
    const READER_IS_GONE: i32 = 141;
    if writeln!(std::io::stdout(), "{line}").is_err() {
        std::process::exit(READER_IS_GONE);
    }
}

macro_rules! say {
    ($($piece:tt)*) => { say(format_args!($($piece)*)) };
}

fn print_scenario(s: &Scenario) -> ExitCode {
    match serde_json::to_string_pretty(s) {
        Ok(text) => say!("{text}"),
        Err(e) => eprintln!("weir-sim: {e}"),
    }
    ExitCode::SUCCESS
}

/// Runs a scenario; a panic is a broken promise too.
fn run_caught(s: &Scenario, watch: Watch) -> Result<Report, String> {
    std::panic::catch_unwind(|| run(s, watch)).map_err(|p| {
        let text = p.downcast_ref::<String>().cloned().or_else(|| p.downcast_ref::<&str>().map(|s| (*s).to_string()));
        format!("panic: {}", text.unwrap_or_default())
    })
}

fn outcome(s: &Scenario) -> Option<String> {
    match run_caught(s, Watch::default()) {
        Ok(r) => r.violation.map(|v| format!("{}: {} (virtual time {:.6} s)", v.kind, v.detail, v.at_ns as f64 / 1e9)),
        Err(e) => Some(e),
    }
}

fn swarm(seeds: std::ops::Range<u64>, profile: Profile, keep_going: bool) -> Result<bool, String> {
    let total = seeds.end.saturating_sub(seeds.start);
    let bar = ProgressBar::new(total);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} seeds, {per_sec}, {eta} left {msg}") {
        bar.set_style(style);
    }
    let began = Instant::now();
    let failures = Mutex::new(Vec::new());
    let (slowest, events) = (Mutex::new((0.0f64, 0u64)), AtomicU64::new(0));
    let bulk_connections = [0; 5].map(AtomicU64::new);
    let stop = AtomicU64::new(u64::MAX);
    std::panic::set_hook(Box::new(|_| {}));
    seeds.into_par_iter().for_each(|seed| {
        if seed > stop.load(Ordering::Relaxed) {
            return;
        }
        let t = Instant::now();
        let s = Scenario::draw(seed, profile);
        let failure = match run_caught(&s, Watch::default()) {
            Ok(r) => {
                events.fetch_add(r.events, Ordering::Relaxed);
                for (sum, n) in bulk_connections
                    .iter()
                    .zip(r.bulk_connections.into_iter().chain([u64::from(r.bulk_connections[2] > 0)]))
                {
                    sum.fetch_add(n, Ordering::Relaxed);
                }
                r.violation.map(|v| format!("{}: {} (virtual time {:.6} s)", v.kind, v.detail, v.at_ns as f64 / 1e9))
            }
            Err(e) => Some(e),
        };
        if let (Some(f), Ok(mut all)) = (failure, failures.lock()) {
            bar.set_message(format!("| {} broken", all.len() + 1));
            all.push((seed, f));
            if !keep_going {
                stop.fetch_min(seed, Ordering::Relaxed);
            }
        }
        if let Ok(mut slow) = slowest.lock() {
            let took = t.elapsed().as_secs_f64();
            if took > slow.0 {
                *slow = (took, seed);
            }
        }
        bar.inc(1);
    });
    let _ = std::panic::take_hook();
    bar.finish_and_clear();
    let mut failures = failures.into_inner().unwrap_or_default();
    failures.sort();
    let took = began.elapsed().as_secs_f64();
    let slow = slowest.into_inner().unwrap_or_default();
    say!(
        "{total} seeds of profile {} in {took:.1} s, {} events; slowest seed {} with {:.2} s",
        profile.name(),
        events.into_inner(),
        slow.1,
        slow.0
    );
    let [up, failed, records, bytes, seeds] = bulk_connections.map(AtomicU64::into_inner);
    say!("bulk connections: ends up {up}, failed {failed}, records {records} with {bytes} bytes, in {seeds} seeds");
    for (seed, f) in &failures {
        say!("seed {seed}: {f}\n    {}", repro(*seed, profile));
    }
    if let (Some((seed, _)), false) = (failures.first(), keep_going) {
        tell(&Scenario::draw(*seed, profile), 60);
    }
    say!("{} broken promises", failures.len());
    Ok(failures.is_empty())
}

/// A defect, and what became of the search for it.
#[derive(serde::Serialize)]
struct Search {
    defect: &'static str,
    promise: &'static str,
    profile: &'static str,
    found_at_seed: Option<u64>,
    found_by: Option<String>,
    said: Option<String>,
    took_s: f64,
}

fn planted_defects(names: &[String], seeds: &std::ops::Range<u64>, json: bool) -> Result<bool, String> {
    if let Some(n) = names.iter().find(|n| !planted::ALL.iter().any(|k| k.name == n.as_str())) {
        let known: Vec<_> = planted::ALL.iter().map(|k| k.name).collect();
        return Err(format!("no defect is named {n}; there are {}", known.join(", ")));
    }
    let chosen = planted::ALL.iter().filter(|k| names.is_empty() || names.iter().any(|n| n == k.name));
    if !json {
        say!("{:<18} {:<50} {:<8} {:>6} {:<16} {:>7}", "defect", "promise", "profile", "seed", "found by", "s");
    }
    let mut all = Vec::new();
    std::panic::set_hook(Box::new(|_| {}));
    for known in chosen {
        let began = Instant::now();
        let found = planted::find(known, seeds.clone());
        let took_s = began.elapsed().as_secs_f64();
        if !json {
            let (seed, by) = found.as_ref().map_or(("-".into(), "NOT FOUND"), |f| (f.seed.to_string(), &*f.kind));
            let (name, profile) = (known.name, known.profile.name());
            say!("{name:<18} {:<50} {profile:<8} {seed:>6} {by:<16} {took_s:>7.2}", known.promise);
        }
        let (seed, (kind, detail)) = (found.as_ref().map(|f| f.seed), found.map(|f| (f.kind, f.detail)).unzip());
        all.push(Search {
            defect: known.name,
            promise: known.promise,
            profile: known.profile.name(),
            found_at_seed: seed,
            found_by: kind,
            said: detail,
            took_s,
        });
    }
    let _ = std::panic::take_hook();
    if json {
        say!("{}", serde_json::to_string_pretty(&all).map_err(|e| e.to_string())?);
    }
    let missed = all.iter().filter(|s| s.found_at_seed.is_none()).count();
    if missed > 0 {
        let were = if missed == 1 { "defect was" } else { "defects were" };
        eprintln!("{missed} {were} not found in seeds {}..{}", seeds.start, seeds.end);
    }
    Ok(missed == 0)
}

fn part_named(name: &str) -> Result<ablation::Part, String> {
    ablation::ALL.into_iter().find(|part| part.name() == name).ok_or_else(|| {
        let known: Vec<_> = ablation::ALL.iter().map(|part| part.name()).collect();
        format!("no part is named {name}; there are {}", known.join(", "))
    })
}

fn ablations(names: &[String], seeds: &std::ops::Range<u64>, json: bool) -> Result<bool, String> {
    if seeds.is_empty() {
        return Err("no seeds".into());
    }
    let mut parts = names.iter().map(|name| part_named(name)).collect::<Result<Vec<_>, _>>()?;
    if parts.is_empty() {
        parts.extend(ablation::ALL);
    }
    let seeds: Vec<u64> = seeds.clone().collect();
    let cells = ablation::points(&EndpointSpec::default()).len();
    let bar = ProgressBar::new((cells * seeds.len() * (parts.len() + 1)) as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} runs, {eta} left") {
        bar.set_style(style);
    }
    let tick = || bar.inc(1);
    let with = ablation::Measured::new(&[], &seeds, &tick);
    if !json {
        bar.suspend(|| say!("{}", ablation::MARKDOWN_HEAD));
    }
    let mut all = Vec::new();
    for part in parts {
        let effects = with.without(part, &tick);
        if json {
            all.push(serde_json::json!({"left_out": part, "effects": effects}));
        } else {
            bar.suspend(|| say!("{}", ablation::markdown(part, &effects)));
        }
    }
    bar.finish_and_clear();
    if json {
        say!("{}", serde_json::to_string_pretty(&all).map_err(|e| e.to_string())?);
    }
    Ok(true)
}

/// Prints the last events before a broken promise.
fn tell(s: &Scenario, keep: usize) {
    if let Ok(r) = run_caught(s, Watch { keep, ..Watch::default() }) {
        for line in &r.story {
            say!("  {line}");
        }
    }
}

fn run_one(which: &Which, trace: bool, show_only: bool) -> Result<bool, String> {
    let s = which.scenario()?;
    if show_only {
        say!("{}", serde_json::to_string_pretty(&s).map_err(|e| e.to_string())?);
        return Ok(true);
    }
    let r = run_caught(&s, Watch { keep: 60, live: trace, ..Watch::default() })?;
    let again = run_caught(&s, Watch::default())?;
    say!(
        "hash {:016x}, {} events, done at {:.6} s (virtual), {} messages, {} bytes",
        r.hash,
        r.events,
        r.finished_ns as f64 / 1e9,
        r.message_ns.len(),
        r.bytes
    );
    say!("network: {:?}", r.net);
    say!(
        "lost {} (spurious {}), probe timeouts {}, bytes resent {}",
        r.packets_lost,
        r.losses_spurious,
        r.probe_timeouts,
        r.bytes_resent
    );
    if r.tcp.tried > 0 {
        let [up, failed, records, bytes] = r.bulk_connections;
        say!("bulk connections: ends up {up}, failed {failed}, records {records} with {bytes} bytes; {:?}", r.tcp);
    }
    for (from, to, sent, took, len) in &r.slowest {
        say!(
            "slow: {len} bytes from {from} to {to} sent at {:.6} s took {:.6} s",
            *sent as f64 / 1e9,
            *took as f64 / 1e9
        );
    }
    if again.hash != r.hash {
        say!("NOT REPRODUCIBLE: the second run has hash {:016x}", again.hash);
        return Ok(false);
    }
    let Some(v) = &r.violation else {
        return Ok(true);
    };
    for line in &r.story {
        say!("  {line}");
    }
    say!(
        "seed {}: {}: {} (virtual time {:.6} s)\n    {}",
        s.seed,
        v.kind,
        v.detail,
        v.at_ns as f64 / 1e9,
        which.command()
    );
    Ok(false)
}

fn shrink_one(which: &Which) -> Result<bool, String> {
    let s = which.scenario()?;
    std::panic::set_hook(Box::new(|_| {}));
    let small = shrink::shrink(s, |s| outcome(s).map(|o| o.split(':').next().unwrap_or("").to_string()));
    let _ = std::panic::take_hook();
    let Some(small) = small else {
        eprintln!("this scenario breaks no promise");
        return Ok(true);
    };
    say!("{}", serde_json::to_string_pretty(&small).map_err(|e| e.to_string())?);
    eprintln!("{}", outcome(&small).unwrap_or_default());
    Ok(false)
}

fn show(points: &[Point]) -> Vec<Report> {
    let reports: Vec<Report> = points.par_iter().map(table::measure).collect();
    say!("{}", table::table(points, &reports).trim_end());
    reports
}

/// Prints tables of the points that `wanted` keeps, which it may change before.
fn tables(what: &str, e: &EndpointSpec, only: Option<&str>, wanted: impl Fn(&mut Point) -> bool) {
    let kept = |name: &str| {
        let mut tables = if what == "all" || what == name { rows::points(name, e) } else { Vec::new() };
        tables.iter_mut().for_each(|points| points.retain_mut(&wanted));
        tables.retain(|points| !points.is_empty());
        tables
    };
    kept("incast").iter().for_each(|points| _ = show(points));
    for points in kept("marks") {
        let reports: Vec<Report> = points.par_iter().map(table::measure).collect();
        say!("{}", mark_table::table(&points, &reports).trim_end());
    }
    for name in ["fan-in", "pingpong", "stream", "exchange"] {
        kept(name).iter().for_each(|points| _ = show(points));
    }
    if what == "all" || what == "links" {
        let mut lines = rows::links(e);
        lines.retain(|l| only.is_none_or(|part| l.name().contains(part)));
        let measured: Vec<_> = lines.par_iter().map(link_table::Line::measure).collect();
        say!("{}", link_table::table(&lines, &measured).trim_end());
    }
    for points in kept("supersteps") {
        let measured: Vec<_> = points.par_iter().map(step_table::measure).collect();
        say!("{}", step_table::table(&points, &measured).trim_end());
    }
    if what == "many" || what == "many-big" {
        let series = step_many::series(what == "many-big");
        // One after another: each may take some gigabytes.
        let measured: Vec<_> = series.iter().map(step_many::Series::measure).collect();
        say!("{}", step_many::table(&series, &measured).trim_end());
    }
    for points in kept("service") {
        let measured: Vec<_> = points.par_iter().map(service_table::measure).collect();
        say!("{}", service_table::table(&points, &measured).trim_end());
        let points = service_table::round_points();
        let measured: Vec<_> = points.par_iter().map(service_table::measure).collect();
        say!("{}", service_table::round_table(&points, &measured).trim_end());
    }
    if what == "all" || what == "storm" {
        let storms = rows::storms();
        let outcomes: Vec<_> = storms.iter().map(storm::measure).collect();
        say!("{}", storm::table(&storms, &outcomes).trim_end());
    }
    kept("jitter").iter().for_each(|points| _ = show(points));
}

fn service(s: &Service) -> Result<bool, String> {
    if s.clients == 0 || s.clients > 60_000 {
        return Err("--clients must be from 1 to 60000".into());
    }
    let mut p = if s.all_faults {
        service_table::all_faults(s.clients, s.seed)
    } else {
        let wire = Wire { queue_packets: s.queue, loss_ppm: s.loss_ppm, ..Wire::GIGABIT };
        service_table::clients(s.clients, wire, (s.len, s.len), s.requests)
    };
    p.scenario.seed = s.seed;
    let report = service_table::measure(&p);
    say!("{}", service_table::table(&[p], std::slice::from_ref(&report)).trim_end());
    report.story.iter().for_each(|line| say!("    {line}"));
    Ok(report.violation.is_none())
}

fn storms(s: &Storm) -> Result<bool, String> {
    if s.ranks.iter().any(|n| *n < 2 || *n > 60_000) || s.cores == 0 {
        return Err("--ranks must be from 2 to 60000, and --cores at least 1".into());
    }
    let one = |&ranks: &u32| storm::Storm {
        ranks,
        cores: s.cores,
        cost_ns: s.cost_us * US,
        turn_ns: s.turn_us * US,
        buffer_bytes: s.buffer_kib << 10,
        late: s.late,
        late_ns: s.late_ms * MS,
        loss_ppm: s.loss_ppm,
        seed: s.seed,
    };
    let storms: Vec<_> = s.ranks.iter().map(one).collect();
    // One after another: each may take some gigabytes.
    let outcomes: Vec<_> = storms.iter().map(storm::measure).collect();
    say!("{}", storm::table(&storms, &outcomes).trim_end());
    Ok(outcomes.iter().all(|o| o.violation.is_none() && o.finished_ns.is_some()))
}

fn supersteps(s: &Supersteps) -> Result<bool, String> {
    if s.processes < 2 {
        return Err("--processes must be at least 2".into());
    }
    let points = s.points();
    if s.show {
        points.iter().for_each(|p| _ = print_scenario(&p.scenario));
        return Ok(true);
    }
    let measured: Vec<_> = points.par_iter().map(step_table::measure).collect();
    say!("{}", step_table::table(&points, &measured).trim_end());
    Ok(measured.iter().all(|(r, _)| r.violation.is_none()))
}

fn memory(peers: u32) -> Result<bool, String> {
    let wire = Wire { queue_packets: 10_000, ..Wire::GIGABIT };
    let work = Workload::Incast { len: 64, count: 1, window: 1 };
    let p = table::point("memory".into(), wire, peers + 1, &EndpointSpec::default(), work);
    let mut w = build(&p.scenario, Watch::default());
    if !w.run_until(60 * SEC, |s| s.unfinished.is_empty()) {
        return Err(format!("the peers did not all connect: {:?}", w.violation()));
    }
    let connected = w.now();
    // Long enough for keep-alive and standby probes to have come and gone.
    w.run_until(connected + 30 * SEC, |_| false);
    let Some(hub) = w.take_node(0) else {
        return Err("host 0 is down".into());
    };
    let before = MEMORY.current_usage();
    drop(hub);
    let freed = before - MEMORY.current_usage();
    let each = freed / peers as usize;
    say!("{peers} peers idle for 30 s (virtual): {freed} bytes in all, {each} bytes each; goal 16384");
    Ok(each <= 16384)
}

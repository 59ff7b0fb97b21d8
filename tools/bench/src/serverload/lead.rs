//! The process that leads: it starts the server and its clients, releases the clients, and brings
//! what they timed together.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use weir_clock::{Assumptions, Estimate, Probe, Rate};
use weir_distribution::StartSync;

use crate::cell::{Measured, Noted};
use crate::collect::{self, Rules};
use crate::error::{BenchError, Result};
use crate::host::{self, Facts};
use crate::plan::Spec;
use crate::stop::Asked;

use super::args::{Load, Loop, ServerloadArgs};
use super::ask::{Monotonic, Time};
use super::crew::{Crew, Hosts};
use super::words::{Due, Order, Report, Stack, Timed};

/// A process is started within this time, a password typed included.
const START: Duration = Duration::from_secs(60);
/// Clients started at once: an ssh daemon takes no more new ones.
const AT_ONCE: usize = 8;
/// What an order and its report may take beyond what is waited for.
const SLACK: Duration = Duration::from_secs(20);
/// Clients are told so long before they are to begin, and so much longer for each of them.
const LEAD: Duration = Duration::from_millis(2);
const LEAD_EACH: Duration = Duration::from_micros(200);
/// Where orders come late all the same, twice as long, up to this.
const LONGEST_LEAD: Duration = Duration::from_millis(500);
/// Rounds of a cell, however long they take.
const FEWEST: usize = 3;
/// In the first round of a cell memory is touched and windows open.
const PILOT: usize = 1;
/// Rounds beyond those asked for that are made up for: what is found to be warm-up may be half of
/// them.
const MADE_UP: usize = 16;
/// Readings of another host's clock.
const PROBES: usize = 40;

/// What the server used in a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Used {
    /// Processor time for each request, ns.
    pub cpu_ns: Option<f64>,
    /// The most memory that was resident.
    pub peak_bytes: Option<u64>,
}

/// A process's clock against the leader's.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Offset {
    /// To be added to the leader's time.
    pub ns: i64,
    /// Bound on what it is wrong by.
    pub error_ns: f64,
}

/// A server and clients that are ready.
pub struct Group<'a> {
    args: &'a ServerloadArgs,
    crew: Crew,
    /// Of every process, by rank.
    pub facts: Vec<Facts>,
    /// Of every process, by rank.
    pub offsets: Vec<Offset>,
    /// Whose clock each reads; of a server that is somebody else's: nobody's.
    clocks: Vec<String>,
    /// The server is ours: it does what it is told.
    is_told: bool,
    origin_ns: i64,
    lead: Duration,
}

impl<'a> Group<'a> {
    /// Starts a server and so many clients, and has each client find the server. Times will count
    /// from `origin_ns` on the leader's clock.
    ///
    /// # Errors
    /// One does not come, or the leader is asked to stop.
    pub fn start(
        args: &'a ServerloadArgs,
        stack: &Stack,
        hosts: &Hosts,
        asked: &Asked,
        clients: u32,
        origin_ns: i64,
    ) -> Result<Group<'a>> {
        let mut crew = Crew::new(asked);
        let (facts, address, at) = match &hosts.server {
            Some(place) => {
                crew.add_others(place);
                (of_others(&place.host), place.host.clone(), place.port.unwrap_or(0))
            }
            None => start_server(&mut crew, args, stack, hosts)?,
        };
        let mut found = vec![(0, facts)];
        let url = stack.url(&address, at);
        crew.serves_at(&url);
        let order = Order::Ask { stack: stack.clone(), url, timeout_ms: timeout_ms(args) };
        let ranks: Vec<usize> = (1..=clients as usize).collect();
        for some in ranks.chunks(AT_ONCE) {
            for _ in some {
                crew.add(hosts, &order)?;
            }
            crew.hear(some.iter().copied(), START, |rank, report| {
                found.push((rank, of_ready(report)?.0));
                Ok(())
            })?;
        }
        found.sort_by_key(|(rank, _)| *rank);
        let (facts, clocks): (Vec<Facts>, Vec<String>) = found.into_iter().map(|(_, one)| one).unzip();
        let lead = LEAD + LEAD_EACH * clients;
        let is_told = hosts.server.is_none();
        let mut group = Group { args, crew, facts, offsets: Vec::new(), clocks, is_told, origin_ns, lead };
        group.synchronise()?;
        Ok(group)
    }

    /// Finds how far the clocks of other hosts are off, each once.
    fn synchronise(&mut self) -> Result<()> {
        let mut known = BTreeMap::from([(host::clock_identity(), Offset::default())]);
        // (Of a server that is somebody else's no time is needed.)
        known.insert(String::new(), Offset::default());
        self.offsets.clear();
        for (rank, clock) in self.clocks.clone().into_iter().enumerate() {
            let offset = match known.get(&clock) {
                Some(offset) => *offset,
                None => self.probe(rank)?,
            };
            known.insert(clock, offset);
            self.offsets.push(offset);
        }
        Ok(())
    }

    fn probe(&mut self, rank: usize) -> Result<Offset> {
        let mut probes = Vec::with_capacity(PROBES);
        for _ in 0..PROBES {
            let send_ns = Monotonic.now_ns();
            self.crew.tell(rank, &Order::Time)?;
            self.crew.hear([rank], START, |_, report| {
                if let Report::Time(remote_ns) = report {
                    probes.push(Probe { send_ns, remote_ns, receive_ns: Monotonic.now_ns() });
                }
                Ok(())
            })?;
        }
        let assumptions = Assumptions::default();
        let estimate = Estimate::envelope(&probes, Rate::unknown(&assumptions), &assumptions);
        let estimate =
            estimate.ok_or_else(|| BenchError::machine("another host's clock", "its readings make no sense"))?;
        Ok(Offset { ns: estimate.offset_ns, error_ns: estimate.hard_bound_ns(&assumptions) })
    }

    /// Measures a cell.
    ///
    /// # Errors
    /// The server or a client fails, or the leader is asked to stop.
    pub fn measure(&mut self, load: Load, spec: &Spec, rules: &Rules) -> Result<(Measured, Used)> {
        // Clocks drift: what was found at the start is wrong by milliseconds an hour later.
        self.synchronise()?;
        self.used()?;
        let begun = Instant::now();
        let (rounds, why) = match self.args.loops {
            Loop::Closed => self.rounds(load, spec, rules)?,
            Loop::Open => (self.stream(load, rules.seed)?, "time"),
        };
        let used = self.used()?;
        Ok((self.measured(&rounds, why, begun.elapsed(), spec.start), used))
    }

    /// What the server has used since the last time.
    fn used(&mut self) -> Result<Used> {
        let mut used = Used::default();
        if !self.is_told {
            return Ok(used);
        }
        self.crew.tell(0, &Order::Usage)?;
        self.crew.hear([0], SLACK, |_, report| {
            if let Report::Usage { cpu_ns, peak_bytes, requests } = report {
                used = Used { cpu_ns: (requests > 0).then(|| cpu_ns as f64 / requests as f64), peak_bytes };
            }
            Ok(())
        })?;
        Ok(used)
    }

    fn begin_ns(&self, rank: usize, at_ns: i64) -> i64 {
        at_ns + self.offsets[rank].ns
    }

    /// One round after the other.
    fn rounds(&mut self, load: Load, spec: &Spec, rules: &Rules) -> Result<(Vec<Round>, &'static str)> {
        let (mut rounds, begun) = (Vec::new(), Instant::now());
        loop {
            rounds.push(self.round(load)?);
            let late = |round: &Round| round.late.iter().any(|late| *late);
            if rounds.last().is_some_and(late) {
                self.lead = (self.lead * 2).min(LONGEST_LEAD);
            }
            let Some(asked) = self.args.rounds.map(|rounds| rounds as usize) else {
                if rounds.len() >= FEWEST + PILOT && begun.elapsed().as_secs_f64() >= self.args.time {
                    return Ok((rounds, "time"));
                }
                continue;
            };
            // To look at all of them takes a while.
            let fair = rounds.iter().filter(|round| !late(round)).count();
            if fair < asked + PILOT || !fair.is_multiple_of(1 + fair / 16) {
                if rounds.len() < 4 * asked + MADE_UP {
                    continue;
                }
                return Ok((rounds, "samples"));
            }
            let measured = self.measured(&rounds, "", begun.elapsed(), spec.start);
            if collect::counted(spec, &measured, rules) >= asked as u64 {
                return Ok((rounds, "repetitions"));
            }
            if rounds.len() >= 2 * asked + MADE_UP {
                return Ok((rounds, "samples"));
            }
        }
    }

    fn round(&mut self, load: Load) -> Result<Round> {
        let at_ns = Monotonic.now_ns() + self.lead.as_nanos() as i64;
        let (bytes, timeout_ms) = (load.bytes, timeout_ms(self.args));
        let ranks = 1..=load.clients as usize;
        for rank in ranks.clone() {
            let begin_ns = self.begin_ns(rank, at_ns);
            self.crew.tell(rank, &Order::Round { begin_ns, bytes, timeout_ms })?;
        }
        let mut round = Round::new(load.clients as usize);
        let patience = self.lead + Duration::from_millis(timeout_ms) + SLACK;
        let offsets = &self.offsets;
        self.crew.hear(ranks, patience, |rank, report| {
            if let Report::Round { timed, late } = report {
                round.enter(rank, timed, offsets[rank].ns, late);
            }
            Ok(())
        })?;
        Ok(round)
    }

    /// Requests when they are due; as rounds, of which the k-th holds each client's k-th request.
    fn stream(&mut self, load: Load, seed: u64) -> Result<Vec<Round>> {
        let (rate, clients) = (self.args.rate.unwrap_or(1.0), f64::from(load.clients));
        let count = ((rate * self.args.time / clients).round() as u32).max(1);
        let gap_ns = clients / rate * 1e9;
        let at_ns = Monotonic.now_ns() + self.lead.as_nanos() as i64;
        let (bytes, timeout_ms) = (load.bytes, timeout_ms(self.args));
        let ranks = 1..=load.clients as usize;
        for rank in ranks.clone() {
            let due = Due { count, gap_ns, seed: seed ^ (rank as u64) << 32 };
            let begin_ns = self.begin_ns(rank, at_ns);
            self.crew.tell(rank, &Order::Stream { begin_ns, bytes, due, timeout_ms })?;
        }
        let mut rounds = vec![Round::new(load.clients as usize); count as usize];
        // Gaps are drawn: few of them may come to much more than their mean.
        let drawn = Duration::from_secs_f64(gap_ns / 1e9 * (f64::from(count) + 10.0 * f64::from(count).sqrt() + 10.0));
        let (patience, offsets) = (self.lead + drawn + Duration::from_millis(timeout_ms) + SLACK, &self.offsets);
        self.crew.hear(ranks, patience, |rank, report| match report {
            Report::Stream(all) if all.len() == rounds.len() => {
                rounds.iter_mut().zip(all).for_each(|(round, timed)| round.enter(rank, timed, offsets[rank].ns, false));
                Ok(())
            }
            _ => Err(BenchError::Told("it timed another number of requests".into())),
        })?;
        Ok(rounds)
    }

    /// What was timed, as the harness has it: nothing at rank 0, which serves.
    fn measured(&self, rounds: &[Round], why: &str, elapsed: Duration, start: StartSync) -> Measured {
        let clients = rounds.first().map_or(0, |round| round.timed.len());
        let noted = |client: usize| {
            let timed = || rounds.iter().map(move |round| round.timed[client]);
            let late = rounds.iter().zip(0..).filter(|(round, _)| round.late[client]).map(|(_, k)| k);
            Noted {
                begin_ns: timed().map(|one| one.begin_ns - self.origin_ns).collect(),
                end_ns: timed().map(|one| one.begin_ns + one.length_ns - self.origin_ns).collect(),
                length_ns: timed().map(|one| one.length_ns as f64).collect(),
                error_ns: self.offsets[client + 1].error_ns as f32,
                missed: late.collect(),
                ..Noted::default()
            }
        };
        let ranks: Vec<Noted> = std::iter::once(Noted::default()).chain((0..clients).map(noted)).collect();
        let begin = ranks.iter().flat_map(|noted| noted.begin_ns.iter().min()).min();
        let end = ranks.iter().flat_map(|noted| noted.end_ns.iter().max()).max();
        Measured {
            repetitions: rounds.len(),
            pilot: if start == StartSync::Window { PILOT } else { 0 },
            why: why.to_owned(),
            span_ns: (begin.copied().unwrap_or(0), end.copied().unwrap_or(0)),
            window_ns: None,
            start,
            windows_failed: None,
            agreed_ns: Vec::new(),
            elapsed_ns: elapsed.as_nanos() as f64,
            lost: crate::budget::Lost::default(),
            ranks,
        }
    }
}

/// What the clients timed in a round, on the leader's clock.
#[derive(Clone, Debug, PartialEq)]
struct Round {
    timed: Vec<Timed>,
    /// Who was told too late.
    late: Vec<bool>,
}

impl Round {
    fn new(clients: usize) -> Round {
        Round { timed: vec![Timed { begin_ns: 0, length_ns: 0 }; clients], late: vec![false; clients] }
    }

    fn enter(&mut self, rank: usize, timed: Timed, offset_ns: i64, late: bool) {
        self.timed[rank - 1] = Timed { begin_ns: timed.begin_ns - offset_ns, ..timed };
        self.late[rank - 1] = late;
    }
}

/// Starts the server; what is known of it, and where it is.
fn start_server(
    crew: &mut Crew,
    args: &ServerloadArgs,
    stack: &Stack,
    hosts: &Hosts,
) -> Result<((Facts, String), String, u16)> {
    let address = args.address.clone().or_else(|| hosts.of(0).map(str::to_owned));
    let address = address.unwrap_or_else(|| "127.0.0.1".to_owned());
    crew.add(hosts, &Order::Serve { stack: stack.clone(), address: address.clone(), port: args.port })?;
    let mut found = None;
    crew.hear([0], START, |_, report| {
        found = Some(of_ready(report)?);
        Ok(())
    })?;
    let (facts, port) = found.ok_or_else(|| BenchError::machine("starting", "the server says nothing"))?;
    Ok((facts, address, port))
}

/// What can be known of somebody else's server: whether it is on this host, for then its address
/// can be bound here.
fn of_others(host: &str) -> (Facts, String) {
    let is_here = std::net::TcpListener::bind((host, 0)).is_ok();
    (if is_here { Facts::here() } else { Facts::unknown(host) }, String::new())
}

fn timeout_ms(args: &ServerloadArgs) -> u64 {
    (args.timeout * 1e3) as u64
}

/// What a process says of itself at its start.
fn of_ready(report: Report) -> Result<((Facts, String), u16)> {
    match report {
        Report::Ready { facts, clock, port } if facts.version == env!("CARGO_PKG_VERSION") => {
            Ok(((*facts, clock), port))
        }
        Report::Ready { facts, .. } => {
            let (there, here) = (&facts.version, env!("CARGO_PKG_VERSION"));
            let text =
                format!("there is weir {there} ({}), here {here}; --weir names another one there", facts.node.name);
            Err(BenchError::Usage(text))
        }
        _ => Err(BenchError::Told("it answers something else than that it is ready".into())),
    }
}

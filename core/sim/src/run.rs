//! Runs a scenario from start to end and judges it.

use std::rc::Rc;

use crate::check::{Tally, idle, liveness};
use crate::log::Log;
use crate::net::NetCounters;
use crate::planted::Defect;
use crate::rank::{Rank, Shared};
use crate::scenario::Scenario;
use crate::spec::{Fault, MS, Ns, SEC};
use crate::tcp::TcpCounters;
use crate::world::{Violation, World};

/// After all work is done: time for the last acknowledgements.
const SETTLE_NS: Ns = 5 * SEC;
/// After closing: `Config::linger` and some slack.
const LINGER_NS: Ns = 6 * SEC;

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Report {
    /// The first broken promise.
    pub violation: Option<Violation>,
    /// Hash over all events.
    pub hash: u64,
    /// Number of events.
    pub events: u64,
    /// When the last program was done.
    pub finished_ns: Ns,
    /// From sending to receiving, each message that arrived, sorted.
    pub message_ns: Vec<Ns>,
    /// When each message was received and its sender, for fairness and gaps: (sender, when, bytes),
    /// by time.
    pub arrivals: Vec<(u32, Ns, u64)>,
    /// The slowest messages: (from, to, when sent, how long, bytes), slowest first.
    pub slowest: Vec<(u32, u32, Ns, Ns, u64)>,
    /// When the first and the last process had got all of each superstep.
    pub superstep_ends: Vec<(Ns, Ns)>,
    /// From each request of a service to its answer, sorted.
    pub answer_ns: Vec<Ns>,
    /// The most bytes that any endpoint that is there at the end held of messages nobody had asked
    /// for.
    pub held_bytes: u64,
    /// Payload bytes received.
    pub bytes: u64,
    /// What the network did.
    pub net: NetCounters,
    /// The longest any output queue of a switch was in each second, packets.
    pub deepest_queues: Vec<u64>,
    /// Sum over all endpoints.
    pub packets_lost: u64,
    /// Sum over all endpoints: declared lost although they arrived.
    pub losses_spurious: u64,
    /// Sum over all endpoints.
    pub probe_timeouts: u64,
    /// Sum over all endpoints.
    pub bytes_resent: u64,
    /// Sum over all endpoints: fragments restored from parity.
    pub parity_used: u64,
    /// Sum over all endpoints: bulk connections that were up, those that failed, records read to
    /// their end, their payload bytes.
    pub bulk_connections: [u64; 4],
    /// Sum over all endpoints: marks of which senders were told; windows, and budgets of grants,
    /// made smaller for marks.
    pub marks: [u64; 3],
    /// Sum over all endpoints: remote writes and reads begun; and notices of writes that came.
    pub remote: [u64; 3],
    /// Sum over all endpoints: elements of memory on which atomic operations were executed.
    pub atomics: u64,
    /// How often ranks ended, were forgotten, and received several messages in a buffer.
    pub tally: Tally,
    /// What TCP connections came to.
    pub tcp: TcpCounters,
    /// Last events and the state of every unfinished rank, if a promise was broken.
    pub story: Vec<String>,
}

impl Report {
    /// Payload bits per second from the start to the end of all work.
    #[must_use]
    pub fn goodput_bits_per_s(&self) -> f64 {
        self.bytes as f64 * 8e9 / self.finished_ns.max(1) as f64
    }

    /// The `q` quantile of the message times (0 to 1), 0 if there is none.
    #[must_use]
    pub fn quantile_ns(&self, q: f64) -> Ns {
        let n = self.message_ns.len();
        let at = ((n as f64 * q).ceil() as usize).clamp(1, n.max(1)) - 1;
        self.message_ns.get(at).copied().unwrap_or(0)
    }
}

/// Options of a run. But for a planted defect they do not change what happens in it.
#[derive(Copy, Clone, Debug, Default)]
pub struct Watch {
    /// Events kept for the story.
    pub keep: usize,
    /// Print all events.
    pub live: bool,
    /// Every rank has this defect.
    pub planted: Option<Defect>,
}

/// Builds the world of a scenario.
#[must_use]
pub fn build(s: &Scenario, watch: Watch) -> World<Rank> {
    let (work, hosts, seed) = (s.work.clone(), s.net.hosts, s.seed);
    let make = Rc::new(move |program| work.app(program, hosts, seed));
    let config = s.endpoint.config(&s.net.host);
    let mut shared = Shared::new(s.seed, s.net.networks.len() as u8, config, s.endpoint.messages(), make);
    shared.checks.liveness.silence_kills = s.silence_kills();
    shared.planted = watch.planted;
    shared.bulk_connections = s.endpoint.bulk_connections.clone();
    shared.checks.memory.limits.wire_bytes = s.net.wire_bytes();
    shared.checks.memory.limits.rate = s.net.rate_bytes_per_s();
    shared.checks.memory.limits.round_trip_ns = s.net.round_trip_ns();
    shared.restarting = s
        .net
        .faults
        .iter()
        .filter_map(|f| if let Fault::Restart { host } = f.fault { Some(host) } else { None })
        .collect();
    let mut log = Log::new(watch.keep, watch.live);
    log.describe_with(describe);
    World::new(s.net.clone(), s.seed, shared, log, Rank::new)
}

/// Runs a scenario and judges it.
#[must_use]
pub fn run(s: &Scenario, watch: Watch) -> Report {
    let mut w = build(s, watch);
    let (bytes, messages) = s.work.volume(s.net.hosts);
    let begin = s.net.last_fault_ns().max(s.work.last_act_ns());
    let someone_dies = s.someone_dies() || s.silence_kills();
    let (chain, bulk_connections) = (s.work.chain(), s.endpoint.bulk_connections.is_some());
    let more = if bulk_connections { liveness::bulk_connections_allowance_ns(&s.net, bytes, chain) } else { 0 };
    // 10 s until a verdict on one that had just opened, else 5, and 2 s of slack; and 10 s for each
    // time more that its endpoints have patience.
    let verdict = if someone_dies { 12 * SEC + 10 * SEC * u64::from(s.endpoint.patience - 1) } else { 0 };
    let deadline = begin + liveness::allowance_ns(&s.net, bytes, messages, chain) + verdict + more;
    let done = w.run_until(deadline, |shared| shared.unfinished.is_empty());
    if !done && w.violation().is_none() {
        let detail =
            format!("not done {} ms after the last fault and act, at {} ms", (deadline - begin) / MS, deadline / MS);
        w.violate("liveness", detail);
    }
    if w.violation().is_none() {
        wind_up(&mut w, s);
    }
    report(s, &w)
}

/// All work is done: acknowledgements settle, nothing may be left over, and everyone closes.
fn wind_up(w: &mut World<Rank>, s: &Scenario) {
    let settled = w.now().max(s.net.last_fault_ns()) + SETTLE_NS;
    w.run_until(settled - idle::WINDOW_NS, |_| false);
    let before = packets_sent(w, s);
    w.run_until(settled, |_| false);
    if w.violation().is_some() {
        return;
    }
    if let Err(e) = idle::check(&before, &packets_sent(w, s)) {
        return w.violate("chatter", e);
    }
    if let Err(e) = w.shared.checks.counters.check_all() {
        return w.violate("exactly-once", e);
    }
    let told: u64 = (0..s.net.hosts).filter_map(|h| w.node(h)).map(|n| n.endpoint().counters().marks_told).sum();
    let made = w.counters().marked;
    if told > made {
        return w.violate("marks", format!("senders were told of {told} marked packets, and switches marked {made}"));
    }
    for host in 0..s.net.hosts {
        let now = w.now();
        w.with_node(host, |n, h| n.forget_again(now, h.shared));
        if let Some(Err(e)) = w.node(host).map(|n| n.check_empty(&w.shared)) {
            return w.violate("left-over", e);
        }
    }
    w.shared.closing = true;
    for host in 0..s.net.hosts {
        w.with_node(host, |n, h| n.close(h.now));
    }
    let end = w.now() + LINGER_NS;
    w.run_until(end, |_| false);
    let open = (0..s.net.hosts).find(|h| w.node(*h).is_some_and(|n| !n.is_drained()));
    if let (Some(host), None) = (open, w.violation()) {
        w.violate("close", format!("host {host} is not drained {} s after closing", LINGER_NS / SEC));
    }
    let connections = w.connections();
    if connections > 0 && w.violation().is_none() {
        w.violate("left-over", format!("{connections} TCP connections outlive their endpoints"));
    }
}

/// What those have sent each other that live.
fn packets_sent(w: &World<Rank>, s: &Scenario) -> idle::Sent {
    (0..s.net.hosts).filter_map(|h| w.node(h)).flat_map(|rank| rank.packets_sent(&w.shared)).collect()
}

fn report(s: &Scenario, w: &World<Rank>) -> Report {
    let messages = w.shared.checks.delivery.messages.iter().flat_map(|(p, m)| m.values().map(move |m| (p.host, m)));
    let mut arrivals: Vec<(u32, Ns, u64)> = Vec::new();
    let mut message_ns = Vec::new();
    let mut slowest = Vec::new();
    for (from, m) in messages {
        if let Some(at) = m.received_ns {
            arrivals.push((from, at, m.len));
            message_ns.push(at - m.sent_ns);
            slowest.push((from, m.to.host, m.sent_ns, at - m.sent_ns, m.len));
        }
    }
    message_ns.sort_unstable();
    slowest.sort_by_key(|m| std::cmp::Reverse(m.3));
    slowest.truncate(5);
    arrivals.sort_unstable_by_key(|a| (a.1, a.0));
    let mut story = Vec::new();
    if w.violation().is_some() {
        story = w.log.recent();
        story.extend(w.shared.unfinished.iter().filter_map(|h| w.node(*h)).map(Rank::state));
    }
    let mut answer_ns = w.shared.answer_ns.clone();
    answer_ns.sort_unstable();
    let messages = || (0..s.net.hosts).filter_map(|h| w.node(h)).map(Rank::counters);
    let counters = || (0..s.net.hosts).filter_map(|h| w.node(h)).map(|n| n.endpoint().counters());
    Report {
        violation: w.violation().cloned(),
        hash: w.log.hash(),
        events: w.log.events(),
        finished_ns: w.shared.finished_ns,
        answer_ns,
        held_bytes: messages().map(|c| c.unexpected_bytes_peak).max().unwrap_or(0),
        superstep_ends: w.shared.superstep_ends.clone(),
        bytes: arrivals.iter().map(|a| a.2).sum(),
        message_ns,
        slowest,
        arrivals,
        net: w.counters(),
        deepest_queues: w.deepest_queues().to_vec(),
        packets_lost: counters().map(|c| c.packets_lost).sum(),
        losses_spurious: counters().map(|c| c.losses_spurious).sum(),
        probe_timeouts: counters().map(|c| c.probe_timeouts).sum(),
        bytes_resent: counters().map(|c| c.bytes_resent).sum(),
        parity_used: counters().map(|c| c.parity_used).sum(),
        marks: [
            counters().map(|c| c.marks_told).sum(),
            counters().map(|c| c.marks_windows).sum(),
            counters().map(|c| c.marks_grants).sum(),
        ],
        bulk_connections: [
            counters().map(|c| c.bulk.opened).sum(),
            counters().map(|c| c.bulk.failed).sum(),
            counters().map(|c| c.bulk.records_received).sum(),
            counters().map(|c| c.bulk.bytes_received).sum(),
        ],
        remote: [
            messages().map(|c| c.writes).sum(),
            messages().map(|c| c.reads).sum(),
            w.shared.checks.remote.writes.values().filter(|w| w.noticed).count() as u64,
        ],
        atomics: messages().map(|c| c.atomics_executed).sum(),
        tally: w.shared.checks.tally,
        tcp: w.tcp_counters(),
        story,
    }
}

/// A packet's head in words (spec 2).
fn describe(head: &[u8]) -> String {
    const KINDS: [&str; 7] = ["INIT", "COOKIE", "CONFIRM", "ACCEPT", "REFUSE", "PROTECTED", "RESET"];
    let Some(first) = head.first() else {
        return "empty".into();
    };
    let kind = KINDS.get(usize::from(first & 15)).copied().unwrap_or("?");
    if *first != 0x15 || head.len() < 21 {
        return kind.into();
    }
    let number = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
    let ask = if head[1] & 4 != 0 { " ACK_NOW" } else { "" };
    let first_frame = match head[1] & 3 {
        0 => head.get(20),
        1 => head.get(16),
        _ => None,
    };
    const FRAMES: [&str; 16] = [
        "PADDING",
        "PING",
        "ACK",
        "CREDIT",
        "GRANT",
        "MSG",
        "RNDV",
        "PATH_CHALLENGE",
        "PATH_RESPONSE",
        "",
        "CLOSE",
        "RNDV_ABORT",
        "PARITY",
        "RECOVERED",
        "BULK",
        "MARKED",
    ];
    let frame = first_frame.and_then(|f| FRAMES.get(usize::from(*f))).copied().unwrap_or("");
    format!("#{number} path {} {frame}{ask}", head[2])
}

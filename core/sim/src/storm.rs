//! A start in which every rank opens to every other at once, where processors and socket buffers
//! are short (`spec/protocol.md` 3.4).

use std::fmt::Write as _;

use crate::run::{Watch, build};
use crate::scenario::{EndpointSpec, Scenario};
use crate::spec::{Fault, HostSpec, Ns, SEC, TimedFault, US};
use crate::table::{Wire, point, time};
use crate::work::Workload;
use crate::world::Violation;

/// Every rank waits for all others by then, or the start has failed.
const LIMIT_NS: Ns = 120 * SEC;
/// What Linux counts for a datagram of a handshake besides its bytes.
const SOCKET_OVERHEAD_BYTES: u64 = 608;
/// Packets that a switch port holds: the hosts are to be what is short.
const QUEUE_PACKETS: u32 = 10_000;

/// Such a start.
#[derive(Clone, Debug)]
pub struct Storm {
    /// Ranks, each on a host of its own ...
    pub ranks: u32,
    /// ... that has its share of so many cores.
    pub cores: u32,
    /// What a core needs to take in a packet, and to send one.
    pub cost_ns: Ns,
    /// How long a rank that has slept waits for its turn, for each rank that shares its core.
    pub turn_ns: Ns,
    /// Each socket's receive buffer, as Linux counts.
    pub buffer_bytes: u64,
    /// So many ranks, the last ones, begin later ...
    pub late: u32,
    /// ... by this.
    pub late_ns: Ns,
    /// Packets lost by chance.
    pub loss_ppm: u32,
    /// The seed of all chance.
    pub seed: u64,
}

impl Default for Storm {
    /// The ranks of a laptop's trial on two cores, with the buffers that Linux gives.
    fn default() -> Self {
        Storm {
            ranks: 128,
            cores: 2,
            cost_ns: 20 * US,
            turn_ns: 200 * US,
            buffer_bytes: 416 << 10,
            late: 0,
            late_ns: 0,
            loss_ppm: 0,
            seed: 1,
        }
    }
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// When the last rank had all its messages; none if it never had.
    pub finished_ns: Option<Ns>,
    /// Datagrams sent.
    pub packets: u64,
    /// INITs and CONFIRMs that were sent again.
    pub repeated: u64,
    /// Datagrams for which a socket had no room.
    pub overflowed: u64,
    /// Peers given up.
    pub given_up: u64,
    /// The first broken promise.
    pub violation: Option<Violation>,
}

impl Storm {
    /// What runs: each says 8 bytes to each.
    #[must_use]
    pub fn scenario(&self) -> Scenario {
        let wire = Wire { queue_packets: QUEUE_PACKETS, loss_ppm: self.loss_ppm, ..Wire::GIGABIT };
        let work = Workload::AllToAll { len: 8, rounds: 1 };
        let mut s = point(String::new(), wire, self.ranks, &EndpointSpec::default(), work).scenario;
        s.seed = self.seed;
        // What a packet costs a rank that has a part of a core only.
        let share = |ns: Ns| ns * u64::from(self.ranks.max(self.cores)) / u64::from(self.cores.max(1));
        s.net.host = HostSpec {
            rx_buffer_bytes: self.buffer_bytes,
            rx_overhead_bytes: SOCKET_OVERHEAD_BYTES,
            rx_cost_ns: share(self.cost_ns),
            tx_cost_ns: share(self.cost_ns),
            wake_ns: share(self.turn_ns),
            ..HostSpec::default()
        };
        let late = self.ranks - self.late.min(self.ranks)..self.ranks;
        let stall = |host| TimedFault { at_ns: 0, fault: Fault::Stall { host, until_ns: self.late_ns } };
        s.net.faults = late.map(stall).collect();
        s
    }

    /// The rows of `weir-sim table storm`: over ranks, buffers, loss, and ranks that begin late.
    #[must_use]
    pub fn points(ranks: &[u32]) -> Vec<Storm> {
        let mut all = Vec::new();
        for &ranks in ranks {
            let usual = Storm { ranks, ..Storm::default() };
            all.extend([
                usual.clone(),
                Storm { buffer_bytes: 64 << 10, ..usual.clone() },
                Storm { loss_ppm: 20_000, ..usual.clone() },
                Storm { late: ranks / 2, late_ns: 3 * SEC, ..usual.clone() },
                Storm { cores: ranks, ..usual },
            ]);
        }
        all
    }

    /// First columns of its line.
    #[must_use]
    pub fn name(&self) -> String {
        let late =
            if self.late > 0 { format!(", {} late by {}", self.late, time(self.late_ns)) } else { String::new() };
        let loss =
            if self.loss_ppm > 0 { format!(", loss {} %", f64::from(self.loss_ppm) / 1e4) } else { String::new() };
        format!("{:>4} ranks, {:>4} cores, buffer {:>4}K{loss}{late}", self.ranks, self.cores, self.buffer_bytes >> 10)
    }
}

/// Runs it.
#[must_use]
pub fn measure(storm: &Storm) -> Outcome {
    let mut w = build(&storm.scenario(), Watch::default());
    let done = w.run_until(LIMIT_NS, |shared| shared.unfinished.is_empty());
    let counters = || (0..storm.ranks).filter_map(|h| w.node(h)).map(|n| n.endpoint().counters());
    Outcome {
        finished_ns: done.then(|| w.now()),
        packets: w.counters().sent,
        repeated: counters().map(|c| c.handshakes_repeated).sum(),
        overflowed: w.counters().socket_full,
        given_up: counters().map(|c| c.peers_down).sum(),
        violation: w.violation().cloned(),
    }
}

/// Writes one line for each. Packets are those of each ordered pair of ranks.
#[must_use]
pub fn table(storms: &[Storm], outcomes: &[Outcome]) -> String {
    let names: Vec<String> = storms.iter().map(Storm::name).collect();
    let width = names.iter().map(String::len).max().unwrap_or(0);
    let mut s = format!(
        "{:<width$} {:>11} {:>8} {:>9} {:>11} {:>9}\n",
        "start storm", "all up", "packets", "repeated", "overflowed", "given up"
    );
    for ((storm, o), name) in storms.iter().zip(outcomes).zip(&names) {
        let pairs = (u64::from(storm.ranks) * u64::from(storm.ranks.saturating_sub(1))).max(1) as f64;
        let _ = write!(
            s,
            "{name:<width$} {:>11} {:>8.2} {:>9.2} {:>11} {:>9}",
            o.finished_ns.map_or_else(|| "never".into(), time),
            o.packets as f64 / pairs,
            o.repeated as f64 / pairs,
            o.overflowed,
            o.given_up,
        );
        if let Some(v) = &o.violation {
            let _ = write!(s, "  VIOLATION {}: {}", v.kind, v.detail);
        }
        s.push('\n');
    }
    s
}

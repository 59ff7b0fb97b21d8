//! Liveness checker: once faults are over, everything ends within a stated time, and nobody is
//! declared dead who lives.

use std::collections::{BTreeMap, BTreeSet};

use super::Program;
use crate::spec::{LinkSpec, MS, NetSpec, NetworkSpec, Ns, SEC, Topology};

/// The longest probe timeout (`Config::pto_max`).
const PTO_MAX_NS: Ns = 250 * MS;

/// When everything must be done, counted from the end of the last fault.
///
/// * 8 s for what protocols wait for after a silence: the longest probe timeout (250 ms), the
///   longest interval between probes of a suspect path (1 s, three answers needed) and a dozen
///   repeats of a lost handshake packet at 500 ms;
/// * 40 times what the slowest link needs for all bytes, and 60 round trips plus 8 for each link of
///   the longest chain of messages that wait for one another: loss of up to a fifth, one packet per
///   round trip at worst at the floor of the window, still ends well within that;
/// * where more than a twentieth is lost, one round trip for each kilobyte more, as often as a
///   packet and its acknowledgement must be sent until both arrive: the window lies at its floor
///   then; and as often the longest probe timeout for each link of the chain, and twelve times
///   more, for one message in e^12 has as bad luck.
///
/// What verdicts on the dead take comes on top.
#[must_use]
pub fn allowance_ns(net: &NetSpec, bytes: u64, messages: u64, chain: u64) -> Ns {
    let trunk = |n: &NetworkSpec| match &n.topology {
        Topology::Tree { trunk, .. } => Some(trunk.clone()),
        Topology::Star | Topology::Bus | Topology::CollidingBus => None,
    };
    let ends = net.networks.iter().flat_map(|n| [n.up.clone(), n.down.clone()]);
    let links: Vec<LinkSpec> = ends.chain(net.networks.iter().filter_map(trunk)).collect();
    let slowest = links.iter().map(|l| l.rate_bits_per_s).filter(|r| *r > 0).min().unwrap_or(u64::MAX);
    let on_wire = (bytes + messages * 200) as u128 * 8 * u128::from(SEC) / u128::from(slowest);
    let round_trip = |n: &NetworkSpec| 2 * n.way().iter().map(|l| l.delay_ns + l.jitter_ns + l.reorder_ns).sum::<Ns>();
    let round_trip = net.networks.iter().map(round_trip).sum::<Ns>() + MS;
    let bad = links.iter().any(|l| l.mean_loss_ppm() > 50_000);
    // The worst network may be the one that carries everything.
    let tries_percent = worst_tries_percent(net);
    let crawl = if bad { (bytes / 1000 * round_trip + (12 + chain) * PTO_MAX_NS) / 100 * tries_percent } else { 0 };
    8 * SEC + 40 * on_wire as Ns + round_trip * (60 + 8 * chain) + crawl
}

/// How many times the usual a rank of this network must wait before it takes silence for death. The
/// usual is twenty questions: where four of five go unanswered by chance, all twenty do once in a
/// hundred times, and that is no death.
#[must_use]
pub fn patience(net: &NetSpec) -> u32 {
    ((worst_tries_percent(net) + 50) / 100) as u32
}

/// How much later everything may be done where bulk connections are taken: each may have to be
/// given up, which takes 2 s, and so may one that comes after it, at any link of the chain; and
/// until then they may crawl, a retransmission time-out (200 ms) for every eighth loss.
#[must_use]
pub fn bulk_connections_allowance_ns(net: &NetSpec, bytes: u64, chain: u64) -> Ns {
    let losses = worst_tries_percent(net) - 100;
    let segments = bytes / u64::from(net.host.tcp.segment_bytes.clamp(64, 1448)) + chain;
    5 * SEC + chain * SEC / 2 + segments * losses / 100 * 25 * MS
}

/// How often a packet is sent until it and its acknowledgement arrive, on average and in percent.
fn tries_percent(n: &NetworkSpec) -> u64 {
    let arrive = |ppm: u64, l: &&LinkSpec| ppm * (1_000_000 - u64::from(l.mean_loss_ppm()).min(900_000)) / 1_000_000;
    let there = n.way().iter().fold(1_000_000, arrive).max(1000);
    100_000_000_000_000 / (there * there)
}

/// The same of the network where it is most.
fn worst_tries_percent(net: &NetSpec) -> u64 {
    net.networks.iter().map(tries_percent).max().unwrap_or(100)
}

/// Who is alive, and who was declared dead by whom.
#[derive(Debug, Default)]
pub struct Liveness {
    died_ns: BTreeMap<Program, Ns>,
    /// Who has done with whom.
    dropped: BTreeSet<(Program, Program)>,
    /// The scenario contains silences longer than the peer timeout: any verdict is right.
    pub silence_kills: bool,
}

impl Liveness {
    /// A program has died.
    pub fn died(&mut self, program: Program, now: Ns) {
        self.died_ns.insert(program, now);
    }

    /// A program has done with another, which may live.
    pub fn dropped(&mut self, by: Program, other: Program) {
        self.dropped.insert((by, other));
    }

    /// Whether the program is dead.
    #[must_use]
    pub fn is_dead(&self, program: Program) -> bool {
        self.died_ns.contains_key(&program)
    }

    /// An endpoint declares a peer dead.
    ///
    /// # Errors
    /// The peer lives.
    pub fn verdict(&self, by: Program, on: Program, reason: &str) -> Result<(), String> {
        let parted = [(by, on), (on, by)].iter().any(|pair| self.dropped.contains(pair));
        if self.silence_kills || self.is_dead(on) || parted {
            return Ok(());
        }
        Err(format!("{by} declared {on} dead ({reason}), but it lives and was never silent for long"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_grows_with_loss() {
        let with = |loss| {
            let link = LinkSpec { loss, ..LinkSpec::default() };
            NetSpec::single(2, NetworkSpec { up: link.clone(), down: link, ..NetworkSpec::default() })
        };
        // Half of all answers lost: seen twice as seldom. A third of each link's packets: four of
        // five answers.
        assert_eq!([0, 50_000, 160_000, 340_000].map(|loss| patience(&with(loss))), [1, 1, 2, 5]);
    }

    #[test]
    fn only_the_dead_may_be_declared_dead() {
        let (p, q) = (Program { host: 0, incarnation: 0 }, Program { host: 1, incarnation: 0 });
        let mut l = Liveness::default();
        assert!(l.verdict(p, q, "").is_err());
        l.died(q, 5);
        assert!(l.verdict(p, q, "").is_ok());
        assert!(l.verdict(q, p, "").is_err());
    }
}

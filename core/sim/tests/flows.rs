//! Flows that share a port for longer than a non-congestive delay is believed (10 s, spec 6): none
//! may take what the others queue for a given and add to it in turn.

use weir_sim::run::Report;
use weir_sim::scenario::EndpointSpec;
use weir_sim::spec::{MS, Ns, SEC};
use weir_sim::table::{Wire, measure, point};
use weir_sim::work::{Flow, Workload};

/// Eight flows of eager messages, none of which waits for a grant.
const FLOWS: u64 = 8;
/// Two seconds at the flows' rate: nothing of theirs is dropped here unless the queue grows without
/// end.
const QUEUE_PACKETS: u32 = 1000;
/// What eight newcomers may send before any of them hears of the queue: 32 packets each.
const FRESH_PACKETS: u64 = 32 * FLOWS;
/// How much deeper the queue may be in the last third of the time they share than in the first.
const GROWTH_MAX: u64 = 2;

/// What the flows did from the start of the last on.
struct Shared {
    report: Report,
    begin: Ns,
    /// The first was done, and half of them.
    first_end: Ns,
    half_end: Ns,
    /// Payload of each until the first was done, and what all could have had, bytes.
    got: Vec<f64>,
    wire_bytes: f64,
}

/// Eight flows at 100 Mbit/s, each begins `gap_ns` after the one before and has a little more to
/// send.
fn share(gap_ns: Ns, jitter_ns: Ns) -> Shared {
    let wire = Wire { rate_bits_per_s: 100_000_000, queue_packets: QUEUE_PACKETS, jitter_ns, ..Wire::GIGABIT };
    let flow = |i| Flow { start_ns: i * gap_ns, len: 32_000, count: 2500 + 150 * i as u32, window: 32 };
    let flows: Vec<Flow> = (0..FLOWS).map(flow).collect();
    let begin = (FLOWS - 1) * gap_ns;
    let p = point("flows".into(), wire, FLOWS as u32 + 1, &EndpointSpec::default(), Workload::Flows(flows));
    let report = measure(&p);
    assert_eq!(report.violation, None);
    let last = |h| report.arrivals.iter().rev().find(|a| a.0 == h).expect("it arrives").1;
    let mut ends: Vec<Ns> = (1..=FLOWS as u32).map(last).collect();
    ends.sort_unstable();
    let (first_end, half_end) = (ends[0], ends[ends.len() / 2 - 1]);
    let shared = |at: Ns| (begin..first_end).contains(&at);
    let got = |h| report.arrivals.iter().filter(|a| a.0 == h && shared(a.1)).map(|a| a.2 as f64).sum();
    let got = (1..=FLOWS as u32).map(got).collect();
    let wire_bytes = p.wire_bits_per_s / 8e9 * (first_end - begin) as f64;
    Shared { report, begin, first_end, half_end, got, wire_bytes }
}

impl Shared {
    /// The deepest queue of the first and of the last third of the time that half of them share,
    /// packets.
    fn deepest(&self) -> (u64, u64) {
        let seconds = &self.report.deepest_queues[(self.begin / SEC) as usize..(self.half_end / SEC) as usize];
        let third = seconds.len() / 3;
        let most = |s: &[u64]| s.iter().copied().max().unwrap_or(0);
        (most(&seconds[..third]), most(&seconds[seconds.len() - third..]))
    }

    fn say(&self) -> String {
        let parts: Vec<_> = self.got.iter().map(|g| format!("{:.3}", g / self.wire_bytes)).collect();
        format!(
            "{} to {} and {} ms, deepest queue of each second {:?}, {} dropped, shares {}",
            self.begin / MS,
            self.first_end / MS,
            self.half_end / MS,
            self.report.deepest_queues,
            self.report.net.switch_full,
            parts.join(" ")
        )
    }

    fn queue_stays(&self) {
        let (first, last) = self.deepest();
        let said = self.say();
        assert!(self.half_end - self.begin > 25 * SEC, "they must share longer than a delay is believed: {said}");
        assert_eq!(self.report.net.switch_full, 0, "{said}");
        assert!(self.report.net.deepest_queue <= FRESH_PACKETS, "{said}");
        assert!(last <= first * GROWTH_MAX, "{said}");
    }

    fn nobody_starves(&self) {
        let sum: f64 = self.got.iter().sum();
        assert!(sum >= 0.9 * self.wire_bytes, "{}", self.say());
        let fair = self.wire_bytes / FLOWS as f64;
        // Not more: a newcomer takes the queue it finds for the length of the path and has most of
        // it until the others have forgotten how long it was without.
        assert!(self.got.iter().all(|g| *g >= fair / 4.0), "{}", self.say());
    }
}

// spec: P-6.4
#[test]
fn flows_that_begin_together_keep_their_queue_and_their_shares() {
    let s = share(0, 0);
    s.queue_stays();
    s.nobody_starves();
}

// spec: P-6.4
#[test]
fn flows_that_begin_one_after_another_keep_their_queue_and_their_shares() {
    let s = share(SEC, 0);
    s.queue_stays();
    s.nobody_starves();
}

/// Where the delay varies, too, no shares are promised: only that all end and the queue has its
/// bounds.
// spec: P-6.11
#[test]
fn flows_through_jitter_keep_their_queue() {
    share(SEC, MS).queue_stays();
}

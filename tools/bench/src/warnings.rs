//! What makes the numbers less worth than they look, and the next command to type.

use std::collections::BTreeMap;

use weir_distribution::Warning;

use crate::host::Facts;
use crate::pairing::Layout;

/// Clocks that are off by more are told: the accuracy of the original MPIBench, ns.
pub const CLOCK_LIMIT_NS: f64 = 2000.0;
/// Overhead above this share of the smallest operation is told.
const OVERHEAD_SHARE: f64 = 0.01;

fn warning(code: &str, message: String, advice: &str) -> Warning {
    Warning { code: code.into(), message, advice: Some(advice.into()) }
}

/// Ranks, as people write them.
fn list(ranks: &[usize]) -> String {
    let words: Vec<String> = ranks.iter().take(8).map(ToString::to_string).collect();
    format!("{}{}", words.join(", "), if ranks.len() > 8 { ", ..." } else { "" })
}

/// About how the ranks were placed, and their nodes. `family` is the launcher's MPI, if known.
#[must_use]
pub fn of_placement(facts: &[Facts], layout: &Layout, open_mpi: bool) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let pin = if open_mpi {
        "mpiexec --bind-to core ..., or weir bench --bind"
    } else {
        "mpiexec -bind-to core ..., or weir bench --bind"
    };
    let loose: Vec<usize> = (0..facts.len()).filter(|&r| facts[r].processors.len() > 1).collect();
    if !loose.is_empty() {
        let text = format!("ranks {} may move between processors, which shows in the tails", list(&loose));
        warnings.push(warning("unpinned-ranks", text, pin));
    }
    for node in 0..layout.count() {
        let here: Vec<usize> = (0..facts.len()).filter(|&r| layout.nodes[r] == node).collect();
        let Some(&one) = here.first() else { continue };
        let (name, online) = (&facts[one].node.name, facts[one].online);
        let mut pinned: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for &rank in here.iter().filter(|&&r| facts[r].processors.len() == 1) {
            pinned.entry(facts[rank].processors[0]).or_default().push(rank);
        }
        if here.len() > online {
            let text =
                format!("{name} has {online} processors for {} ranks: what is measured is the scheduler", here.len());
            let advice = format!("mpiexec -n {} weir bench ...", online.max(2));
            warnings.push(warning("oversubscribed", text, &advice));
        } else if let Some((cpu, ranks)) = pinned.iter().find(|(_, ranks)| ranks.len() > 1) {
            let text = format!("ranks {} are all kept on processor {cpu} of {name}", list(ranks));
            warnings.push(warning("oversubscribed", text, pin));
        }
        if let Some(governor) = facts[one].node.governor.as_ref().filter(|g| *g != "performance") {
            let text = format!("{name} changes its frequency (governor {governor})");
            warnings.push(warning("frequency-scaling", text, "cpupower frequency-set -g performance"));
        }
    }
    warnings
}

/// About the clocks.
#[must_use]
pub fn of_clock(worst_ns: f64, source: &str) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if worst_ns > CLOCK_LIMIT_NS {
        let text =
            format!("the ranks' clocks may be {:.1} us apart; one-way times are that uncertain", worst_ns / 1000.0);
        let advice = "use ping-pong and sendrecv, which need one clock only; or a quieter network, and ranks on processors of their own";
        warnings.push(warning("clock-error", text, advice));
    }
    if source == "monotonic-raw" {
        let text =
            "the cycle counter is not steady here; the kernel's clock is read instead, which takes longer".into();
        warnings.push(warning(
            "clock-source",
            text,
            "cat /sys/devices/system/clocksource/clocksource0/current_clocksource",
        ));
    }
    warnings
}

/// About what is not measured of what was asked for.
#[must_use]
pub fn of_plan(left_out: &[String]) -> Vec<Warning> {
    let advice = "give such --sizes, or leave the operation out of -t";
    left_out.iter().map(|line| warning("left-out", line.clone(), advice)).collect()
}

/// About the harness itself: what it adds between two readings of the clock, against the smallest median of these.
#[must_use]
pub fn of_overhead(overhead_ns: f64, smallest: Option<(&str, f64)>) -> Option<Warning> {
    let (name, median) = smallest?;
    (overhead_ns > OVERHEAD_SHARE * median).then(|| {
        let share = 100.0 * overhead_ns / median;
        let text = format!("reading the clock takes {overhead_ns:.0} ns, {share:.1} % of {name} ({median:.0} ns)");
        warning("overhead", text, "measure longer operations, or subtract it: it is in run.json as overhead")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_distribution::Node;

    fn facts(processors: &[u32], online: usize, governor: Option<&str>) -> Facts {
        let node = Node { name: "n".into(), governor: governor.map(str::to_owned), ..Node::default() };
        Facts { node, processors: processors.to_vec(), online, ..Facts::unknown("n") }
    }

    fn codes(facts: &[Facts]) -> Vec<String> {
        let layout = Layout { nodes: vec![0; facts.len()] };
        of_placement(facts, &layout, false).into_iter().map(|w| w.code).collect()
    }

    #[test]
    fn each_flaw_of_a_placement_is_told_once() {
        assert_eq!(codes(&[facts(&[0], 2, None), facts(&[1], 2, Some("performance"))]), [""; 0]);
        assert_eq!(codes(&[facts(&[0, 1], 2, None), facts(&[0, 1], 2, None)]), ["unpinned-ranks"]);
        assert_eq!(codes(&[facts(&[0], 2, None), facts(&[0], 2, None)]), ["oversubscribed"]);
        let three = vec![facts(&[0], 2, Some("powersave")); 3];
        assert_eq!(codes(&three), ["oversubscribed", "frequency-scaling"]);
    }

    #[test]
    fn overhead_is_told_above_a_hundredth() {
        assert!(of_overhead(10.0, Some(("send", 1001.0))).is_none());
        assert!(of_overhead(10.0, Some(("send", 999.0))).unwrap().message.contains("1.0 % of send"));
        assert!(of_overhead(10.0, None).is_none());
    }
}

//! What makes the numbers less worth than they look, and the next command to type.

use std::collections::{BTreeMap, BTreeSet};

use weir_distribution::{Cell, Moved, Warning};

use crate::budget::Lost;
use crate::host::Facts;
use crate::pairing::Layout;
use crate::plan;

/// Clocks that are off by more are told: the accuracy of the original MPIBench, ns.
pub const CLOCK_LIMIT_NS: f64 = 2000.0;
/// Overhead above this share of the smallest operation is told.
const OVERHEAD_SHARE: f64 = 0.01;

fn warning(code: &str, message: String, advice: &str) -> Warning {
    Warning { code: code.into(), message, advice: Some(advice.into()) }
}

/// Who starts the ranks: what there is to type depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// MPICH's, or one alike.
    Mpich,
    /// Open MPI's.
    OpenMpi,
    /// Either of them, by `weir run`.
    WeirRun {
        /// Open MPI's.
        open_mpi: bool,
    },
    /// `weir bench` itself.
    Own,
}

impl Launcher {
    /// How each rank is kept on processors of its own: one, or one for each of its threads, which
    /// `--bind` does not do.
    fn pin(self, threads: usize) -> String {
        match (self, threads) {
            (Launcher::Own, _) | (Launcher::WeirRun { .. }, 0 | 1) => "weir bench --bind".into(),
            (Launcher::Mpich, 0 | 1) => "mpiexec -bind-to core ..., or weir bench --bind".into(),
            (Launcher::OpenMpi, 0 | 1) => "mpiexec --bind-to core ..., or weir bench --bind".into(),
            (Launcher::Mpich, _) => format!("mpiexec -bind-to core:{threads} ..."),
            (Launcher::WeirRun { open_mpi: false }, _) => {
                format!("weir run --launcher-arg=-bind-to --launcher-arg=core:{threads} ...")
            }
            (Launcher::WeirRun { open_mpi: true }, _) => format!(
                "weir run --launcher-arg=--map-by --launcher-arg=slot:PE={threads} --launcher-arg=--bind-to --launcher-arg=core ..."
            ),
            (Launcher::OpenMpi, _) => format!("mpiexec --map-by slot:PE={threads} --bind-to core ..."),
        }
    }
}

/// Ranks, as people write them.
fn list(ranks: &[usize]) -> String {
    let words: Vec<String> = ranks.iter().take(8).map(ToString::to_string).collect();
    format!("{}{}", words.join(", "), if ranks.len() > 8 { ", ..." } else { "" })
}

/// Processors that a node's ranks may use together: those that any of them may run on, as far as
/// that is known, and no more than their control group gives them time for.
fn usable(facts: &[Facts], ranks: &[usize]) -> usize {
    let allowed: BTreeSet<u32> = ranks.iter().flat_map(|&r| facts[r].processors.iter().copied()).collect();
    let known = ranks.iter().all(|&r| !facts[r].processors.is_empty());
    let online = ranks.first().map_or(1, |&r| facts[r].online);
    let count = if known { allowed.len() } else { online };
    let quota = ranks.iter().filter_map(|&r| facts[r].quota).reduce(f64::min);
    quota.map_or(count, |quota| count.min(quota.floor() as usize)).max(1)
}

/// Ranks that are kept on one processor together, if any are, and the processor.
fn stacked(facts: &[Facts], ranks: &[usize]) -> Option<(u32, Vec<usize>)> {
    let mut pinned: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for &rank in ranks.iter().filter(|&&r| facts[r].processors.len() == 1) {
        pinned.entry(facts[rank].processors[0]).or_default().push(rank);
    }
    pinned.into_iter().find(|(_, ranks)| ranks.len() > 1)
}

fn ranks_of(layout: &Layout, node: usize) -> Vec<usize> {
    (0..layout.nodes.len()).filter(|&r| layout.nodes[r] == node).collect()
}

/// Whether anywhere ranks must share a processor: who spins there keeps another from running.
#[must_use]
pub fn is_crowded(facts: &[Facts], layout: &Layout) -> bool {
    (0..layout.count())
        .map(|node| ranks_of(layout, node))
        .any(|here| here.len() > usable(facts, &here) || stacked(facts, &here).is_some())
}

/// About how the ranks were placed, and their nodes, where a rank has so many threads at most.
#[must_use]
pub fn of_placement(facts: &[Facts], layout: &Layout, threads: usize, launcher: Launcher) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let pin = launcher.pin(threads);
    // Where there are more ranks than processors, to keep each on one would not help.
    let has_room = |rank: usize| {
        let here = ranks_of(layout, layout.nodes[rank]);
        here.len() <= usable(facts, &here)
    };
    let loose: Vec<usize> = (0..facts.len()).filter(|&r| facts[r].processors.len() > 1 && has_room(r)).collect();
    // Threads of one rank are not to be kept on one.
    if !loose.is_empty() && threads <= 1 {
        let ranks = if loose.len() == 1 { "rank" } else { "ranks" };
        let text = format!("{ranks} {} may move between processors, which shows in the tails", list(&loose));
        warnings.push(warning("unpinned-ranks", text, &pin));
    }
    for node in 0..layout.count() {
        let here = ranks_of(layout, node);
        let Some(&one) = here.first() else { continue };
        let (name, online, usable) = (&facts[one].node.name, facts[one].online, usable(facts, &here));
        if here.len() > online {
            let text =
                format!("{name} has {online} processors for {} ranks: what is measured is the scheduler", here.len());
            let fewer = online.max(2);
            let advice = match launcher {
                Launcher::Own => format!("weir bench --transport weir -n {fewer} ..."),
                Launcher::WeirRun { .. } => format!("weir run -n {fewer} weir bench ..."),
                Launcher::Mpich | Launcher::OpenMpi => format!("mpiexec -n {fewer} weir bench ..."),
            };
            warnings.push(warning("oversubscribed", text, &advice));
        } else if let Some((cpu, ranks)) = stacked(facts, &here) {
            let text = format!("ranks {} are all kept on processor {cpu} of {name}", list(&ranks));
            warnings.push(warning("oversubscribed", text, &pin));
        } else if here.len() > usable {
            let text = format!(
                "of the {online} processors of {name}, its {} ranks may use {usable}: what is measured is the scheduler",
                here.len()
            );
            let advice = "ask the launcher, the batch system or the container for a processor for each rank";
            warnings.push(warning("oversubscribed", text, advice));
        }
        if let Some(governor) = facts[one].node.governor.as_ref().filter(|g| *g != "performance") {
            let text = format!("{name} changes its frequency (governor {governor})");
            warnings.push(warning("frequency-scaling", text, "cpupower frequency-set -g performance"));
        }
    }
    warnings
}

/// About pairs of threads, the most of which a rank has: whether each has a processor.
#[must_use]
pub fn of_threads(facts: &[Facts], layout: &Layout, threads: usize, launcher: Launcher) -> Option<Warning> {
    let short = |rank: &usize| (1..threads).contains(&facts[*rank].processors.len());
    let tight: Vec<usize> = (0..facts.len()).filter(short).collect();
    let advice = format!("{}, or fewer threads", launcher.pin(threads));
    if let Some(&one) = tight.first() {
        let text = format!(
            "{} {} may use {} for {threads} threads: what is measured is the scheduler",
            if tight.len() == 1 { "rank" } else { "ranks" },
            list(&tight),
            plan::many(facts[one].processors.len(), "processor"),
        );
        return Some(warning("oversubscribed", text, &advice));
    }
    let crowded = (0..layout.count()).map(|node| ranks_of(layout, node)).find_map(|here| {
        let usable = usable(facts, &here);
        // Where even the ranks are too many, that is told already.
        (threads > 1 && here.len() <= usable && here.len() * threads > usable).then_some((here, usable))
    });
    crowded.map(|(here, usable)| {
        let name = here.first().map_or("", |&rank| facts[rank].node.name.as_str());
        let text = format!(
            "{name} has {usable} processors for {} of {threads} threads each: what is measured is the scheduler",
            plan::many(here.len(), "rank")
        );
        warning("oversubscribed", text, "fewer threads, or fewer ranks on each node")
    })
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

/// About what this transport does not have of what was asked for.
#[must_use]
pub fn of_transport(lacking: &[String]) -> Vec<Warning> {
    let advice = "measure it over an MPI, or leave it out of -t";
    lacking.iter().map(|line| warning("left-out", line.clone(), advice)).collect()
}

/// About ranks that changed their processor while a batch was measured, of so many threads at most.
#[must_use]
pub fn of_moved(cells: &[&Cell], threads: usize, launcher: Launcher) -> Option<Warning> {
    let all: Vec<&Moved> = cells.iter().flat_map(|cell| &cell.moved).collect();
    let ranks: BTreeSet<usize> = all.iter().map(|moved| moved.rank as usize).collect();
    let batches: u64 = all.iter().map(|moved| moved.batches).sum();
    let hit = cells.iter().filter(|cell| !cell.moved.is_empty()).count();
    (!ranks.is_empty()).then(|| {
        let ranks: Vec<usize> = ranks.into_iter().collect();
        let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
        let text = format!(
            "{noun} {} changed processor within {} of {hit} of {}",
            list(&ranks),
            plan::many(batches as usize, "batch").replace("batchs", "batches"),
            plan::many(cells.len(), "cell")
        );
        warning("moved-ranks", text, &format!("{}; their samples have flag 32", launcher.pin(threads)))
    })
}

/// About cells in which no repetition counts: their names, and how many cells the launch has.
#[must_use]
pub fn of_empty(empty: &[String], cells: usize) -> Option<Warning> {
    /// More are not named.
    const NAMED: usize = 12;
    let first = empty.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    let more = if empty.len() > NAMED { format!(", and {} more", empty.len() - NAMED) } else { String::new() };
    (!empty.is_empty()).then(|| {
        let have = if empty.len() == 1 && cells == 1 { "has" } else { "have" };
        let text =
            format!("{} of {} {have} no sample that counts: {first}{more}", empty.len(), plan::many(cells, "cell"));
        warning("no-samples", text, "weir bench --start barrier, more --time, or fewer ranks than processors")
    })
}

/// A launch that took longer than asked for by more than this part, and by more than so many
/// seconds, is told.
const LONGER: f64 = 0.25;
/// See [`LONGER`].
const LONGER_LEAST_S: f64 = 2.0;

/// About time: how much longer than asked for the launch took, and what it went to.
#[must_use]
pub fn of_time(asked_s: f64, took_s: f64, lost: &Lost) -> Option<Warning> {
    let more_s = took_s - asked_s;
    if more_s <= (LONGER * asked_s).max(LONGER_LEAST_S) {
        return None;
    }
    let mut parts = [
        (lost.stalls_ns, "the machine standing still"),
        (lost.missed_ns, "repetitions whose agreed start was missed"),
        (lost.anew_ns, "cells begun anew by barriers, as agreed starts were missed"),
        (lost.slow_ns, "repetitions of which the fewest take longer than their cell's share"),
        (lost.between_ns, "clocks, gathering and writing between cells"),
    ];
    parts.sort_by(|a, b| b.0.total_cmp(&a.0));
    // A twentieth of it explains nothing.
    let told = parts.iter().filter(|part| part.0 / 1e9 > 0.05 * more_s);
    let told: Vec<String> = told.map(|(ns, what)| format!("{:.1} s went to {what}", ns / 1e9)).collect();
    let why = if told.is_empty() { String::new() } else { format!(": {}", told.join(", ")) };
    let text = format!("the launch took {took_s:.0} s where {asked_s} s were asked for (--time){why}");
    Some(warning(
        "took-longer",
        text,
        "measure when nothing else runs, with a processor for each rank; or fewer operations and sizes",
    ))
}

/// About the harness itself: what it adds between two readings of the clock, against the smallest
/// median of these.
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
        of_placement(facts, &layout, 1, Launcher::Mpich).into_iter().map(|w| w.code).collect()
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
    fn to_keep_ranks_on_processors_is_advised_only_where_there_are_enough() {
        assert_eq!(codes(&vec![facts(&[0, 1], 2, None); 4]), ["oversubscribed"]);
        let layout = Layout { nodes: vec![0, 0, 0, 1] };
        let told = of_placement(&vec![facts(&[0, 1], 2, None); 4], &layout, 1, Launcher::Mpich);
        assert_eq!(told.iter().map(|w| w.code.as_str()).collect::<Vec<_>>(), ["unpinned-ranks", "oversubscribed"]);
        assert!(told[0].message.starts_with("rank 3 may move"), "{}", told[0].message);
    }

    #[test]
    fn threads_are_counted_against_processors() {
        let layout = Layout { nodes: vec![0, 0] };
        let told = |facts: &[Facts], threads| of_threads(facts, &layout, threads, Launcher::Mpich).map(|w| w.message);
        let four = [0, 1, 2, 3].map(|n| n + 1);
        let wide = vec![facts(&four, 4, None); 2];
        assert_eq!((told(&wide, 1), told(&wide, 2)), (None, None));
        let expected = "n has 4 processors for 2 ranks of 3 threads each: what is measured is the scheduler";
        assert_eq!(told(&wide, 3).as_deref(), Some(expected));
        let pinned = [facts(&[0], 4, None), facts(&[1, 2], 4, None)];
        let expected = "rank 0 may use 1 processor for 2 threads: what is measured is the scheduler";
        assert_eq!((told(&pinned, 1), told(&pinned, 2).as_deref()), (None, Some(expected)));
        let of_placement = of_placement(&wide, &layout, 2, Launcher::Mpich);
        assert!(of_placement.is_empty(), "threads are not to be kept on one processor: {of_placement:?}");
    }

    #[test]
    fn ranks_that_moved_are_named_once_with_how_often() {
        let cell = |moved: &[(u32, u64)]| {
            let mut cell = Cell::new(0, 0, weir_distribution::Configuration::pair("send", 8));
            cell.moved = moved.iter().map(|&(rank, batches)| Moved { rank, batches }).collect();
            cell
        };
        let cells = [cell(&[]), cell(&[(3, 2), (1, 1)]), cell(&[(3, 1)])];
        assert_eq!(of_moved(&[&cells[0]], 1, Launcher::Mpich), None);
        let told = of_moved(&cells.iter().collect::<Vec<_>>(), 1, Launcher::Mpich).unwrap();
        assert_eq!(told.message, "ranks 1, 3 changed processor within 4 batches of 2 of 3 cells");
        let told = of_moved(&[&cell(&[(0, 1)])], 1, Launcher::Mpich).unwrap();
        assert_eq!(told.message, "rank 0 changed processor within 1 batch of 1 of 1 cell");
    }

    #[test]
    fn what_is_advised_can_be_typed_where_it_is_said() {
        let mut cell = Cell::new(0, 0, weir_distribution::Configuration::pair("send", 8));
        cell.moved = vec![Moved { rank: 0, batches: 1 }];
        let advice = |threads, launcher| of_moved(&[&cell], threads, launcher).and_then(|w| w.advice).unwrap();
        assert_eq!(
            advice(1, Launcher::OpenMpi),
            "mpiexec --bind-to core ..., or weir bench --bind; their samples have flag 32"
        );
        // Threads go not with --bind, nor an mpiexec with ranks that are started without.
        assert_eq!(advice(4, Launcher::Mpich), "mpiexec -bind-to core:4 ...; their samples have flag 32");
        assert_eq!(advice(1, Launcher::Own), "weir bench --bind; their samples have flag 32");
        let run = |open_mpi| Launcher::WeirRun { open_mpi };
        assert_eq!(advice(1, run(true)), "weir bench --bind; their samples have flag 32");
        let threads = "weir run --launcher-arg=-bind-to --launcher-arg=core:4 ...";
        assert!(advice(4, run(false)).starts_with(threads), "{}", advice(4, run(false)));
        let crowded = |launcher| {
            let mut told = of_placement(&vec![facts(&[0, 1], 2, None); 4], &Layout { nodes: vec![0; 4] }, 1, launcher);
            told.remove(0).advice.unwrap_or_default()
        };
        assert_eq!(crowded(Launcher::Own), "weir bench --transport weir -n 2 ...");
        assert_eq!(crowded(run(false)), "weir run -n 2 weir bench ...");
    }

    #[test]
    fn cells_without_samples_are_named() {
        let names: Vec<String> = (0..14).map(|n| format!("bcast {n} B")).collect();
        assert_eq!(of_empty(&[], 37), None);
        let told = |n: usize, cells| of_empty(&names[..n], cells).unwrap().message;
        assert_eq!(told(2, 37), "2 of 37 cells have no sample that counts: bcast 0 B, bcast 1 B");
        assert_eq!(told(1, 1), "1 of 1 cell has no sample that counts: bcast 0 B");
        assert!(told(14, 37).ends_with("bcast 11 B, and 2 more"));
    }

    #[test]
    fn ranks_are_counted_against_the_processors_that_they_may_use() {
        let layout = Layout { nodes: vec![0; 3] };
        let crowded =
            |facts: &[Facts]| (is_crowded(facts, &layout), codes(facts).contains(&"oversubscribed".to_owned()));
        // A batch system gave the three ranks two of 64 processors.
        assert_eq!(crowded(&vec![facts(&[4, 5], 64, None); 3]), (true, true));
        assert_eq!(crowded(&vec![facts(&[4, 5, 6], 64, None); 3]), (false, false));
        assert_eq!(crowded(&[facts(&[4], 64, None), facts(&[5], 64, None), facts(&[6], 64, None)]), (false, false));
        assert_eq!(crowded(&[facts(&[4], 64, None), facts(&[4], 64, None), facts(&[5, 6], 64, None)]), (true, true));
        let limited = |quota| vec![Facts { quota: Some(quota), ..facts(&[4, 5, 6], 64, None) }; 3];
        assert_eq!(crowded(&limited(2.5)), (true, true));
        assert_eq!(crowded(&limited(3.0)), (false, false));
        // Nothing is known but how many there are.
        assert_eq!(crowded(&vec![facts(&[], 2, None); 3]), (true, true));
    }

    #[test]
    fn a_launch_that_takes_longer_says_what_it_went_to() {
        let lost = Lost { stalls_ns: 21.4e9, missed_ns: 0.2e9, anew_ns: 9e9, ..Lost::default() };
        let told = |asked_s, took_s| of_time(asked_s, took_s, &lost).map(|w| w.message);
        let expected = "the launch took 57 s where 20 s were asked for (--time): 21.4 s went to the machine standing still, 9.0 s went to cells begun anew by barriers, as agreed starts were missed";
        assert_eq!(told(20.0, 57.2).as_deref(), Some(expected));
        // As much is said to happen, and as little is nothing.
        assert_eq!((told(20.0, 24.9), told(0.1, 2.0)), (None, None));
    }

    #[test]
    fn overhead_is_told_above_a_hundredth() {
        assert!(of_overhead(10.0, Some(("send", 1001.0))).is_none());
        assert!(of_overhead(10.0, Some(("send", 999.0))).unwrap().message.contains("1.0 % of send"));
        assert!(of_overhead(10.0, None).is_none());
    }
}

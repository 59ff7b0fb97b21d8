//! What a measurement says: tables for people, JSON for programs, and which goals are reached.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use super::cells::{Better, Cell, Goal, Metric};
use super::measure::{Launch, Results, Spread, stacks_of};
use crate::lab::Counts;
use crate::stack::Stack;

/// How a goal came out.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The goal in words.
    pub text: String,
    /// What was reached: a ratio or a value; none if something was not measured.
    pub reached: Option<f64>,
    /// Whether that is enough.
    pub met: Option<bool>,
}

/// The best of the rivals whose names start with `rival`: its name and median.
pub fn best_rival(
    results: &Results,
    cell: &Cell,
    stacks: &[Stack],
    rival: &str,
    metric: Metric,
) -> Option<(String, f64)> {
    let stacks = stacks_of(cell, stacks);
    let rivals = stacks.iter().filter(|stack| !stack.is_ours() && stack.name.starts_with(rival));
    let values =
        rivals.filter_map(|stack| Some((stack.name.clone(), results.spread(&cell.id, &stack.name, metric)?.median)));
    match metric.better {
        Better::Less => values.min_by(|a, b| a.1.total_cmp(&b.1)),
        Better::More => values.max_by(|a, b| a.1.total_cmp(&b.1)),
    }
}

fn ours(results: &Results, cell: &str, metric: Metric) -> Option<f64> {
    Some(results.spread(cell, "weir-mpich", metric)?.median)
}

fn enough(better: Better, reached: f64, wanted: f64) -> bool {
    match better {
        Better::Less => reached <= wanted,
        Better::More => reached >= wanted,
    }
}

/// Judges a goal for Weir under MPICH.
pub fn judge(results: &Results, cell: &Cell, stacks: &[Stack], goal: &Goal) -> Verdict {
    let sign = |better| if better == Better::Less { "<=" } else { ">=" };
    let (metric, text, wanted, reached) = match goal {
        Goal::ToRival { metric, rival, ratio } => {
            let best = best_rival(results, cell, stacks, rival, *metric);
            let mine = ours(results, &cell.id, *metric);
            let its = stacks_of(cell, stacks);
            let rivals = || its.iter().filter(|s| !s.is_ours() && s.name.starts_with(rival));
            let none_through = best.is_none() && rivals().any(|s| !results.of(&cell.id, &s.name).is_empty());
            if none_through || (mine.is_none() && best.is_some() && !results.of(&cell.id, "weir-mpich").is_empty()) {
                let text = format!("{} {} {ratio} x the best rival", metric.label, sign(metric.better));
                let text = if none_through { format!("{text}; no rival got through") } else { text };
                return Verdict { text, reached: mine, met: Some(mine.is_some()) };
            }
            let name = best.as_ref().map_or_else(|| rival.to_string(), |(name, _)| name.clone());
            let reached = ours(results, &cell.id, *metric).zip(best).map(|(mine, (_, theirs))| mine / theirs);
            (
                *metric,
                format!(
                    "{} {} {ratio} x the best rival{}{name}",
                    metric.label,
                    sign(metric.better),
                    if name.is_empty() { "" } else { ", " }
                ),
                *ratio,
                reached,
            )
        }
        Goal::ToOwn { metric, cell: other, ratio } => {
            let reached =
                ours(results, &cell.id, *metric).zip(ours(results, other, *metric)).map(|(mine, clean)| mine / clean);
            (*metric, format!("{} {} {ratio} x our own in {other}", metric.label, sign(metric.better)), *ratio, reached)
        }
        Goal::Absolute { metric, value } => (
            *metric,
            format!("{} {} {value}", metric.label, sign(metric.better)),
            *value,
            ours(results, &cell.id, *metric),
        ),
    };
    Verdict { text, reached, met: reached.map(|reached| enough(metric.better, reached, wanted)) }
}

/// A number with about four digits.
pub fn number(value: f64) -> String {
    let digits = if value == 0.0 { 0 } else { (3 - value.abs().log10().floor() as i32).clamp(0, 4) };
    format!("{value:.*}", digits as usize)
}

/// The report as Markdown.
pub fn markdown(results: &Results, cells: &[Cell], stacks: &[Stack], about: &[(String, String)]) -> String {
    let mut text = String::from("# Weir beside its rivals\n\n");
    for (name, value) in about {
        let _ = writeln!(text, "- {name}: {value}");
    }
    for (asked, effective) in &results.congestion {
        let _ = writeln!(text, "- congestion control asked for: {asked}; in effect: {effective}");
    }
    text += "\nEach number is the median over the launches, with the least and the greatest in brackets. The ratio is to the best rival.\n";
    let mut section = "";
    for cell in cells.iter().filter(|cell| results.has(&cell.id)) {
        if cell.section != section {
            section = cell.section;
            let _ = write!(text, "\n## {section}\n");
            if let Some(note) = note(section) {
                let _ = write!(text, "\n{note}\n");
            }
        }
        cell_table(&mut text, results, cell, stacks);
    }
    text
}

/// Our number with ten streams over that with one.
fn streams_ratio(results: &Results, cell: &Cell, metric: Metric) -> Option<f64> {
    let one = results.spread(&cell.id, &Stack::one_stream().name, metric)?.median;
    Some(ours(results, &cell.id, metric)? / one)
}

/// Our number over that of `stack`, if that is Weir of another build.
fn beside_before(results: &Results, cell: &Cell, stack: &Stack, metric: Metric) -> Option<f64> {
    let median = |name: &str| Some(results.spread(&cell.id, name, metric)?.median);
    Some(median(&stack.is_before()?)? / median(&stack.name)?)
}

/// How long a lost packet held up a worker of a farm, in milliseconds: what the farm took longer
/// than without losses, by all its workers, divided by the packets lost in a launch.
fn held_up_ms(results: &Results, cell: &Cell, stack: &Stack) -> Option<f64> {
    let metric = cell.metrics.first().filter(|_| cell.section == "farm" && cell.wire.loss > 0.0)?;
    let clean = format!("{}/0%", cell.id.rsplit_once('/')?.0);
    let longer =
        results.spread(&cell.id, &stack.name, *metric)?.median - results.spread(&clean, &stack.name, *metric)?.median;
    let good = results.of(&cell.id, &stack.name).iter().filter(|launch| launch.result.is_ok());
    let lost = Spread::of(good.map(|launch| launch.counts.lost as f64).collect())?.median;
    (lost > 0.0).then(|| longer * 1e3 * (cell.ranks - 1) as f64 / lost)
}

/// What a reader must know to read the cells of a section.
fn note(section: &str) -> Option<&'static str> {
    match section {
        "farm" => Some(
            "`weir-mpich-1stream` is Weir with one stream instead of ten. Ten streams and one should be alike here: each \
             packet of a task carries the task's envelope, so of a task of 30 KB all packets would have to be lost to \
             hold up others, with streams or without. What streams are worth is in the section `streams`.",
        ),
        "streams" => Some(
            "Weir with ten streams beside Weir with one (`weir-mpich-1stream`), without rivals. Messages of one packet: a \
             lost one holds up those behind it that MPI's order binds to it. `named`: each receive names its tag, so with \
             ten streams a tag waits for its own only. `any`: receives take any tag, by MPI's rule they wait for \
             whatever is missing, and streams should change nothing; nor should they without loss. The farm hands out \
             tasks of 1000 bytes with 10 tags to three workers, ten at a time.",
        ),
        _ => None,
    }
}

fn cell_table(text: &mut String, results: &Results, cell: &Cell, stacks: &[Stack]) {
    let _ = write!(
        text,
        "\n### {}\n\n{}; `{} {}`, {} ranks",
        cell.id,
        cell.network(),
        cell.program,
        cell.args.join(" "),
        cell.ranks
    );
    if let Some(loss) = results.loss_seen(&cell.id).filter(|_| cell.wire.loss > 0.0) {
        let _ = write!(text, "; loss seen {:.2} %", loss * 100.0);
    }
    text.push_str("\n\n| stack |");
    for metric in &cell.metrics {
        let _ = write!(text, " {} | ratio |", metric.label);
    }
    text.push_str(" trouble |\n|---|");
    text.push_str(&"---:|---:|".repeat(cell.metrics.len()));
    text.push_str("---|\n");
    for stack in stacks_of(cell, stacks) {
        let _ = write!(text, "| {} |", stack.name);
        for metric in &cell.metrics {
            match results.spread(&cell.id, &stack.name, *metric) {
                Some(s) => {
                    let ratio = best_rival(results, cell, stacks, "", *metric)
                        .map_or_else(|| "-".to_owned(), |(_, best)| format!("{:.2}", s.median / best));
                    let _ = write!(text, " {} ({}-{}) | {ratio} |", number(s.median), number(s.min), number(s.max));
                }
                None => text.push_str(" - | - |"),
            }
        }
        let trouble = results.trouble(&cell.id, &stack.name).unwrap_or_default();
        let _ = writeln!(text, " {} |", trouble.replace('|', "/"));
    }
    for metric in cell.metrics.iter().filter(|_| cell.ablate_streams) {
        if let Some(ratio) = streams_ratio(results, cell, *metric) {
            let _ = writeln!(text, "\nTen streams beside one, {}: {}.", metric.label, number(ratio));
        }
    }
    let held_up = |stack: &Stack| Some(format!("{} {:.3}", stack.name, held_up_ms(results, cell, stack)?));
    let held_up: Vec<String> = stacks_of(cell, stacks).iter().filter_map(held_up).collect();
    if !held_up.is_empty() {
        let _ = writeln!(text, "\nA lost packet held up a worker by so many ms: {}.", held_up.join(", "));
    }
    for stack in stacks_of(cell, stacks) {
        for metric in &cell.metrics {
            if let Some(ratio) = beside_before(results, cell, &stack, *metric) {
                let _ = writeln!(text, "\nThis build beside {}, {}: {}.", stack.name, metric.label, number(ratio));
            }
        }
    }
    for goal in &cell.goals {
        let verdict = judge(results, cell, stacks, goal);
        let reached = verdict.reached.map_or_else(|| "not measured".to_owned(), number);
        let word = match verdict.met {
            Some(true) => "reached",
            Some(false) => "**not reached**",
            None => "open",
        };
        let _ = writeln!(text, "\nGoal: {}: {reached}, {word}.", verdict.text);
    }
}

/// One launch, as JSON.
fn launch_to_json(launch: &Launch) -> Value {
    let Counts { sent, lost, queue_full, .. } = launch.counts;
    let mut value = match &launch.result {
        Ok(value) => json!({"result": value}),
        Err(cause) => json!({"failed": cause}),
    };
    if let Some(limit) = launch.ended_by_limit {
        value["ended_by_limit_s"] = limit.as_secs().into();
    }
    value["took_s"] = ((launch.took.as_secs_f64() * 100.0).round() / 100.0).into();
    value["packets"] = json!({"sent": sent, "lost": lost, "queue_full": queue_full});
    value
}

fn launch_from_json(value: &Value) -> Option<Launch> {
    let result = match value.get("result") {
        Some(result) => Ok(result.clone()),
        None => Err(value.get("failed")?.as_str()?.to_owned()),
    };
    let packets = value.get("packets")?;
    let count = |key| packets.get(key).and_then(Value::as_u64);
    let counts =
        Counts { sent: count("sent")?, lost: count("lost")?, queue_full: count("queue_full")?, ..Counts::default() };
    let ended_by_limit = value.get("ended_by_limit_s").and_then(Value::as_u64).map(Duration::from_secs);
    let took = Duration::try_from_secs_f64(value.get("took_s")?.as_f64()?).ok()?;
    Some(Launch { result, ended_by_limit, took, counts })
}

/// What an earlier run of the same commit measured of these cells, from its JSON; cells that were
/// other then are left out.
pub fn resume(report: &Value, cells: &[Cell], commit: &str) -> Results {
    let mut results = Results::default();
    if report.pointer("/about/commit").and_then(Value::as_str) != Some(commit) {
        return results;
    }
    let congestion = report.get("congestion_in_effect").and_then(Value::as_object);
    for (asked, effective) in congestion.into_iter().flatten() {
        results.congestion.insert(asked.clone(), effective.as_str().unwrap_or_default().to_owned());
    }
    let old = report.get("cells").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    for cell in cells {
        let same = |value: &&Value| what_it_is(cell).iter().all(|(key, is)| value.get(key) == Some(is));
        let Some(value) = old.iter().find(same) else { continue };
        for stack in value.get("stacks").and_then(Value::as_array).into_iter().flatten() {
            let launches = stack.get("launches").and_then(Value::as_array);
            let launches: Vec<Launch> = launches.into_iter().flatten().filter_map(launch_from_json).collect();
            if let (Some(name), false) = (stack.get("stack").and_then(Value::as_str), launches.is_empty()) {
                results.launches.insert((cell.id.clone(), name.to_owned()), launches);
            }
        }
    }
    results
}

/// What makes a cell this cell.
fn what_it_is(cell: &Cell) -> [(&'static str, Value); 5] {
    [
        ("id", cell.id.clone().into()),
        ("network", cell.network().into()),
        ("ranks", cell.ranks.into()),
        ("program", cell.program.into()),
        ("args", cell.args.clone().into()),
    ]
}

/// Everything, as JSON.
pub fn to_json(results: &Results, cells: &[Cell], stacks: &[Stack], about: &[(String, String)]) -> Value {
    let cell_value = |cell: &Cell| {
        let stack_value = |stack: &Stack| {
            let launches: Vec<Value> = results.of(&cell.id, &stack.name).iter().map(launch_to_json).collect();
            json!({"stack": stack.name, "launches": launches})
        };
        let goals: Vec<Value> = cell
            .goals
            .iter()
            .map(|goal| {
                let verdict = judge(results, cell, stacks, goal);
                json!({"goal": verdict.text, "reached": verdict.reached, "met": verdict.met})
            })
            .collect();
        json!({
            "id": cell.id, "section": cell.section, "network": cell.network(), "ranks": cell.ranks, "program": cell.program, "args": cell.args,
            "loss_asked": cell.wire.loss, "loss_seen": results.loss_seen(&cell.id),
            "stacks": stacks_of(cell, stacks).iter().map(stack_value).collect::<Vec<_>>(), "goals": goals,
        })
    };
    let about: serde_json::Map<String, Value> = about.iter().map(|(k, v)| (k.clone(), v.clone().into())).collect();
    json!({"about": about, "congestion_in_effect": results.congestion, "cells": cells.iter().filter(|cell| results.has(&cell.id)).map(cell_value).collect::<Vec<_>>()})
}

#[cfg(test)]
mod tests {
    use super::super::cells::{Extent, cells};
    use super::*;

    fn results(cell: &str, values: &[(&str, f64)]) -> Results {
        let mut results = Results::default();
        for (stack, value) in values {
            let result = Ok(json!({"median_us": value, "p99_us": value}));
            let (ended_by_limit, took) = (None, Duration::from_secs(1));
            let launch = Launch { result, ended_by_limit, took, counts: Counts::default() };
            results.launches.insert((cell.to_owned(), (*stack).to_owned()), vec![launch]);
        }
        results
    }

    #[test]
    fn a_latency_goal_is_judged_against_the_best_rival() {
        let all = cells(&["latency".into()], Extent { quick: true, seconds: 1.0 });
        let stacks = Stack::all(&["cubic".into()]);
        let good = results(&all[0].id, &[("weir-mpich", 3.0), ("mpich-tcp-cubic", 5.0), ("mpich-rxd", 4.0)]);
        let verdict = judge(&good, &all[0], &stacks, &all[0].goals[0]);
        assert_eq!((verdict.reached, verdict.met), (Some(0.75), Some(true)));
        assert!(verdict.text.contains("mpich-rxd"), "{}", verdict.text);
        let bad = results(&all[0].id, &[("weir-mpich", 5.0), ("mpich-rxd", 4.0)]);
        assert_eq!(judge(&bad, &all[0], &stacks, &all[0].goals[0]).met, Some(false));
        let open = results(&all[0].id, &[("weir-mpich", 5.0)]);
        assert_eq!(judge(&open, &all[0], &stacks, &all[0].goals[0]).met, None);
        assert!(markdown(&bad, &all, &stacks, &[]).contains("**not reached**"));
    }

    #[test]
    fn a_farm_tells_what_a_lost_packet_cost() {
        let all = cells(&["farm".into()], Extent { quick: true, seconds: 1.0 });
        let lossy = all.iter().find(|cell| cell.wire.loss > 0.0).unwrap();
        let clean = all.iter().find(|cell| cell.section == "farm" && cell.wire.loss == 0.0).unwrap();
        let mut results = Results::default();
        for (cell, seconds, lost) in [(clean, 1.0, 0), (lossy, 1.5, 300)] {
            let counts = Counts { lost, ..Counts::default() };
            let (result, took) = (Ok(json!({"seconds": seconds, "mb_per_s": 1.0})), Duration::from_secs(1));
            let launch = Launch { result, ended_by_limit: None, took, counts };
            results.launches.insert((cell.id.clone(), "weir-mpich".to_owned()), vec![launch]);
        }
        let text = markdown(&results, &all, &Stack::all(&["cubic".into()]), &[]);
        // Half a second longer for each of three workers, and 300 packets.
        assert_eq!(text.matches("held up a worker").count(), 1, "{text}");
        assert!(text.contains("held up a worker by so many ms: weir-mpich 5.000."), "{text}");
    }

    #[test]
    fn a_goal_against_rivals_that_all_failed_is_reached_by_getting_through() {
        let all = cells(&["latency".into()], Extent { quick: true, seconds: 1.0 });
        let stacks = Stack::all(&["cubic".into()]);
        let mut some = results(&all[0].id, &[("weir-mpich", 3.0), ("mpich-rxd", 4.0)]);
        for launch in some.launches.get_mut(&(all[0].id.clone(), "mpich-rxd".to_owned())).unwrap() {
            launch.result = Err("signal 11".into());
        }
        let verdict = judge(&some, &all[0], &stacks, &all[0].goals[0]);
        assert!(verdict.met == Some(true) && verdict.text.ends_with("no rival got through"), "{verdict:?}");
        let mut other = results(&all[0].id, &[("weir-mpich", 3.0), ("mpich-rxd", 4.0)]);
        other.launches.get_mut(&(all[0].id.clone(), "weir-mpich".to_owned())).unwrap()[0].result = Err("died".into());
        assert_eq!(judge(&other, &all[0], &stacks, &all[0].goals[0]).met, Some(false));
    }

    #[test]
    fn ten_streams_are_shown_beside_one() {
        let all = cells(&["streams".into()], Extent { quick: true, seconds: 1.0 });
        let cell = all.iter().position(|cell| cell.id == "streams/named/2%").unwrap();
        let some = results(&all[cell].id, &[("weir-mpich", 3.0), ("weir-mpich-1stream", 4.0)]);
        let text = markdown(&some, &all, &Stack::all(&["cubic".into()]), &[]);
        assert!(text.contains("Ten streams beside one, median us: 0.7500."), "{text}");
        assert!(text.contains("MPI's order binds"), "{text}");
    }

    #[test]
    fn a_build_is_shown_beside_the_one_before() {
        let all = cells(&["latency".into(), "host".into()], Extent { quick: true, seconds: 1.0 });
        let mut stacks = Stack::all(&["cubic".into()]);
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("libweir-fi.so"), "").unwrap();
        stacks.extend(Stack::of_build(folder.path(), &stacks).unwrap());
        for cell in [&all[0], all.last().unwrap()] {
            let some = results(&cell.id, &[("weir-mpich", 3.0), ("before-mpich", 4.0)]);
            let text = markdown(&some, &all, &stacks, &[]);
            assert!(text.contains("This build beside before-mpich, median us: 0.7500."), "{text}");
        }
    }

    #[test]
    fn a_page_of_a_measurement_under_way_shows_what_is_measured() {
        let all = cells(&["bandwidth".into()], Extent { quick: true, seconds: 1.0 });
        let stacks = Stack::all(&["cubic".into()]);
        let some = results(&all[0].id, &[("weir-mpich", 3.0)]);
        let text = markdown(&some, &all, &stacks, &[]);
        assert!(text.contains(&all[0].id) && !text.contains(&all[1].id), "{text}");
        assert_eq!(to_json(&some, &all, &stacks, &[])["cells"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn an_earlier_run_of_the_same_commit_and_cells_is_taken_up() {
        let all = cells(&["latency".into()], Extent { quick: true, seconds: 1.0 });
        let stacks = Stack::all(&["cubic".into()]);
        let mut some = results(&all[0].id, &[("weir-mpich", 3.0), ("mpich-rxd", 4.0)]);
        let hung = some.launches.get_mut(&(all[0].id.clone(), "mpich-rxd".to_owned())).unwrap();
        hung[0].result = Err("timeout".into());
        hung[0].ended_by_limit = Some(Duration::from_secs(12));
        hung[0].counts = Counts { sent: 10, lost: 2, queue_full: 1, cut: 0, overrun: 0 };
        some.congestion.insert("cubic".into(), "cubic".into());
        let about = [("commit".to_owned(), "abc".to_owned())];
        let json = to_json(&some, &all, &stacks, &about);
        let taken = resume(&json, &all, "abc");
        assert_eq!(to_json(&taken, &all, &stacks, &about), json);
        assert!(resume(&json, &all, "abd").launches.is_empty(), "another commit");
        let longer = cells(&["latency".into()], Extent { quick: true, seconds: 2.0 });
        assert!(resume(&json, &longer, "abc").launches.is_empty(), "another command");
    }

    #[test]
    fn numbers_keep_four_digits() {
        let shown: Vec<String> = [3.70219, 8921.4, 0.0123, 129.37, 0.0].into_iter().map(number).collect();
        assert_eq!(shown, ["3.702", "8921", "0.0123", "129.4", "0"]);
    }
}

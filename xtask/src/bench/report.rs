//! What a measurement says: tables for people, JSON for programs, and which goals are reached.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::cells::{Better, Cell, Goal, Metric};
use super::measure::{Results, stacks_of};
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
    for cell in cells {
        if cell.section != section {
            section = cell.section;
            let _ = write!(text, "\n## {section}\n");
        }
        cell_table(&mut text, results, cell, stacks);
    }
    text
}

fn cell_table(text: &mut String, results: &Results, cell: &Cell, stacks: &[Stack]) {
    let _ = write!(
        text,
        "\n### {}\n\n{}; `{} {}`, {} ranks",
        cell.id,
        cell.wire.describe(),
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

/// Everything, as JSON.
pub fn to_json(results: &Results, cells: &[Cell], stacks: &[Stack], about: &[(String, String)]) -> Value {
    let cell_value = |cell: &Cell| {
        let stack_value = |stack: &Stack| {
            let launches: Vec<Value> = results.of(&cell.id, &stack.name).iter().map(|launch| {
                let counts = json!({"sent": launch.counts.sent, "lost": launch.counts.lost, "queue_full": launch.counts.queue_full});
                match &launch.result {
                    Ok(value) => json!({"result": value, "packets": counts}),
                    Err(cause) => json!({"failed": cause, "packets": counts}),
                }
            }).collect();
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
            "id": cell.id, "section": cell.section, "network": cell.wire.describe(), "ranks": cell.ranks, "program": cell.program, "args": cell.args,
            "loss_asked": cell.wire.loss, "loss_seen": results.loss_seen(&cell.id),
            "stacks": stacks_of(cell, stacks).iter().map(stack_value).collect::<Vec<_>>(), "goals": goals,
        })
    };
    let about: serde_json::Map<String, Value> = about.iter().map(|(k, v)| (k.clone(), v.clone().into())).collect();
    json!({"about": about, "congestion_in_effect": results.congestion, "cells": cells.iter().map(cell_value).collect::<Vec<_>>()})
}

#[cfg(test)]
mod tests {
    use super::super::cells::{Extent, cells};
    use super::super::measure::Launch;
    use super::*;
    use crate::lab::Counts;

    fn results(cell: &str, values: &[(&str, f64)]) -> Results {
        let mut results = Results::default();
        for (stack, value) in values {
            let launch = Launch { result: Ok(json!({"median_us": value, "p99_us": value})), counts: Counts::default() };
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
    fn numbers_keep_four_digits() {
        let shown: Vec<String> = [3.70219, 8921.4, 0.0123, 129.37, 0.0].into_iter().map(number).collect();
        assert_eq!(shown, ["3.702", "8921", "0.0123", "129.4", "0"]);
    }
}

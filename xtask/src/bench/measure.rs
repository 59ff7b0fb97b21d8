//! Runs cells on stacks: several launches of each, interleaved, so that a change of the machine's
//! mood hits all stacks alike.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

use super::cells::{Cell, Metric};
use crate::lab::{Counts, Lab};
use crate::launch::{Job, result_of};
use crate::mpi;
use crate::paths::Paths;
use crate::stack::Stack;

/// One launch.
#[derive(Clone, Debug)]
pub struct Launch {
    /// What the program reported, or why there is nothing.
    pub result: Result<Value, String>,
    /// What the network counted.
    pub counts: Counts,
}

/// All launches, by cell and stack.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// Launches in the order they were made.
    pub launches: BTreeMap<(String, String), Vec<Launch>>,
    /// The congestion control that connections really had, by the one asked for.
    pub congestion: BTreeMap<String, String>,
}

/// A median with its spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The median of the launches.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
    /// How many launches.
    pub n: usize,
}

impl Spread {
    /// Of these values; none if there are none.
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let half = values.len() / 2;
        let median = if values.len() % 2 == 1 { values[half] } else { (values[half - 1] + values[half]) / 2.0 };
        Some(Self { median, min, max, n: values.len() })
    }
}

impl Results {
    /// A number over the launches that ended well.
    pub fn spread(&self, cell: &str, stack: &str, metric: Metric) -> Option<Spread> {
        let launches = self.launches.get(&(cell.to_owned(), stack.to_owned()))?;
        let good = launches.iter().filter_map(|launch| launch.result.as_ref().ok());
        Spread::of(
            good.filter(|value| value.get("complete") != Some(&Value::Bool(false)))
                .filter_map(|value| value.get(metric.key)?.as_f64())
                .collect(),
        )
    }

    /// The launches of one cell on one stack.
    pub fn of(&self, cell: &str, stack: &str) -> &[Launch] {
        self.launches.get(&(cell.to_owned(), stack.to_owned())).map_or(&[], Vec::as_slice)
    }

    /// Why a cell has no number on a stack, or how many of its launches failed.
    pub fn trouble(&self, cell: &str, stack: &str) -> Option<String> {
        let launches = self.of(cell, stack);
        let mut causes = launches.iter().filter_map(|launch| match &launch.result {
            Err(cause) => Some(cause.clone()),
            Ok(value) if value.get("complete") == Some(&Value::Bool(false)) => {
                Some("not complete in its time".to_owned())
            }
            Ok(_) => None,
        });
        let first = causes.next()?;
        Some(format!("{} of {}: {first}", causes.count() + 1, launches.len()))
    }

    /// The share of packets the network really lost on purpose, over all launches of a cell.
    pub fn loss_seen(&self, cell: &str) -> Option<f64> {
        let all = self.launches.iter().filter(|((id, _), _)| id == cell).flat_map(|(_, launches)| launches);
        let sum = all.fold(Counts::default(), |sum, launch| Counts {
            sent: sum.sent + launch.counts.sent,
            lost: sum.lost + launch.counts.lost,
            ..sum
        });
        sum.loss()
    }
}

/// Which stacks a cell runs on.
pub fn stacks_of(cell: &Cell, stacks: &[Stack]) -> Vec<Stack> {
    let mut all = stacks.to_vec();
    if cell.ablate_streams && stacks.iter().any(|stack| stack.name == "weir-mpich") {
        all.push(Stack::one_stream());
    }
    all
}

/// Measures all cells; networks are made once for all cells that share one.
///
/// # Errors
/// If a network cannot be made. A stack that fails is in the results.
pub fn measure(paths: &Paths, cells: &[Cell], stacks: &[Stack], launches: usize, limit: Duration) -> Result<Results> {
    let mut results = Results::default();
    let total: usize = cells.iter().map(|cell| stacks_of(cell, stacks).len() * launches).sum();
    let bar = ProgressBar::new(total as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} ({elapsed}, about {eta} left)") {
        bar.set_style(style);
    }
    let mut done = BTreeSet::new();
    for first in cells {
        let group: Vec<&Cell> = cells
            .iter()
            .filter(|c| {
                c.wire == first.wire && c.ranks == first.ranks && c.section == first.section && !done.contains(&c.id)
            })
            .collect();
        if group.is_empty() {
            continue;
        }
        let lab = Lab::start(first.ranks, &first.wire)?;
        for _ in 0..launches {
            for cell in &group {
                for stack in &stacks_of(cell, stacks) {
                    bar.set_message(format!("{} on {}", cell.id, stack.name));
                    let launch = launch(paths, &lab, cell, stack, limit, &mut results.congestion)?;
                    results.launches.entry((cell.id.clone(), stack.name.clone())).or_default().push(launch);
                    bar.inc(1);
                }
            }
        }
        done.extend(group.iter().map(|cell| cell.id.clone()));
    }
    bar.finish_and_clear();
    Ok(results)
}

fn launch(
    paths: &Paths,
    lab: &Lab,
    cell: &Cell,
    stack: &Stack,
    limit: Duration,
    seen: &mut BTreeMap<String, String>,
) -> Result<Launch> {
    if let Some(name) = &stack.congestion {
        let effective = lab.set_congestion(name)?;
        seen.insert(name.clone(), effective);
    }
    let program = mpi::program(paths, stack.mpi, cell.program);
    let job = Job { stack, ranks: cell.ranks, program: &program, args: &cell.args, limit, env: &[] };
    let before = lab.counts()?;
    let result = match job.run(paths, Some(lab)) {
        Err(error) => Err(format!("{error:#}")),
        Ok(outcome) if !outcome.ok() => Err(outcome.cause()),
        Ok(outcome) => result_of(&outcome).ok_or_else(|| format!("no result: {}", outcome.cause())),
    };
    let counts = lab.counts()?.since(before);
    let result = if counts.overrun > 0 {
        Err(format!("{} packets lost by an overloaded machine", counts.overrun))
    } else {
        result
    };
    Ok(Launch { result, counts })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_of_the_middle() {
        assert_eq!(Spread::of(vec![3.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0, n: 3 }));
        assert_eq!(Spread::of(vec![4.0, 1.0]).map(|s| s.median), Some(2.5));
        assert_eq!(Spread::of(vec![]), None);
    }

    #[test]
    fn an_incomplete_farm_is_no_number() {
        let metric = Metric { key: "seconds", label: "s", better: super::super::cells::Better::Less };
        let mut results = Results::default();
        let launch = |value: Value| Launch { result: Ok(value), counts: Counts::default() };
        let values = vec![
            launch(serde_json::json!({"seconds": 1.0, "complete": false})),
            launch(serde_json::json!({"seconds": 5.0, "complete": true})),
        ];
        results.launches.insert(("c".into(), "s".into()), values);
        assert_eq!(results.spread("c", "s", metric).map(|s| s.median), Some(5.0));
        assert_eq!(results.trouble("c", "s").as_deref(), Some("1 of 2: not complete in its time"));
    }
}

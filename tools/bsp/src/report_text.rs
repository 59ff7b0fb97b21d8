//! `weir bsp report` for people and for programs.

use std::fmt::Write as _;

use serde::{Serialize, Serializer};
use weir_report::table::clean;
use weir_report::units;

use crate::estimate::Costs;
use crate::ledger::{Carried, Profile};
use crate::summary::{Row, Summary};

/// Supersteps that are shown one by one.
const COSTLIEST: usize = 10;

/// A cell of a table.
fn time(ns: f64) -> String {
    units::time_in_column(ns)
}

fn percent(value: Option<f64>) -> String {
    value.map_or_else(|| "–".into(), |value| format!("{value:.0} %"))
}

/// Columns that end at the right but for the first, which begins at the left.
pub fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|c| c.chars().count()).max();
    let widths: Vec<usize> = (0..count).map(|column| width(column).unwrap_or(0)).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let _ = if column == 0 { write!(line, "{cell:width$}") } else { write!(line, "  {cell:>width$}") };
        }
        out += line.trim_end();
        out.push('\n');
    }
    out
}

fn row(row: &Row, has_costs: bool) -> Vec<String> {
    let mut cells = vec![
        clean(&row.place),
        row.supersteps.to_string(),
        time(row.span_ns as f64),
        time(row.work_ns as f64),
        percent(row.balance_percent()),
        time(row.cost_ns as f64),
        units::size(row.h_bytes),
    ];
    if has_costs {
        cells.push(row.predicted_cost_ns.map_or_else(|| "–".into(), time));
        cells.push(row.predicted_ratio().map_or_else(|| "–".into(), |ratio| format!("{ratio:.2}")));
    }
    cells
}

/// Names of the columns.
fn heads(has_costs: bool) -> Vec<String> {
    let usual = ["ended at", "supersteps", "time", "computing", "balance", "communicating", "h"];
    let more = if has_costs { &["predicted", "pred./meas."][..] } else { &[] };
    usual.iter().chain(more).map(|head| (*head).to_owned()).collect()
}

/// What the columns mean.
pub const EXPLANATION: &str = "time: of supersteps from begin to end. computing: the longest of a process. balance: what processes computed on average, of that. \
communicating: the rest of the time. h: most bytes that a process sent or got. predicted: h g + l; pred./meas.: that and computing, over the time.";

/// A run for people.
#[must_use]
pub fn text(profile: &Profile, summary: &Summary) -> String {
    let has_costs = summary.costs.is_some();
    let mut out = format!(
        "{}: {}, {}, {}\n",
        clean(&summary.file),
        units::plural_es(u64::from(summary.processes), "process"),
        units::plural(summary.total.supersteps, "superstep"),
        units::time(summary.total.span_ns as f64),
    );
    if !summary.root.is_empty() {
        let _ = writeln!(out, "lines are of files in {}", clean(&summary.root));
    }
    for notice in &summary.notices {
        let _ = writeln!(out, "warning: {notice}");
    }
    if let Some(costs) = &summary.costs {
        let _ = writeln!(
            out,
            "predicted with l = {} and g = {} ns a byte",
            units::time(costs.l_ns),
            units::number(costs.g_ns_per_byte)
        );
    }
    let mut rows = vec![heads(has_costs)];
    rows.extend(summary.rows.iter().map(|one| row(one, has_costs)));
    if summary.rows.len() > 1 {
        rows.push(row(&summary.total, has_costs));
    }
    let _ = write!(out, "\n{}", columns(&rows));
    let _ = write!(out, "\n{}", costliest(profile, summary));
    let _ = write!(out, "\n{}", wire(&summary.total));
    out
}

/// The supersteps that took longest.
fn costliest(profile: &Profile, summary: &Summary) -> String {
    let mut order: Vec<usize> = (0..profile.steps.len()).collect();
    order.sort_by_key(|nth| (std::cmp::Reverse(profile.steps[*nth].span_max_ns), *nth));
    let mut rows = vec![vec!["superstep".to_owned()]];
    rows[0].extend(heads(summary.costs.is_some()).into_iter().filter(|head| head != "supersteps"));
    for nth in order.iter().take(COSTLIEST) {
        let one = Row::of(profile, &profile.steps[*nth], summary.costs.as_ref());
        let mut cells = row(&one, summary.costs.is_some());
        cells.remove(1);
        cells.insert(0, nth.to_string());
        rows.push(cells);
    }
    format!("costliest supersteps\n{}", columns(&rows))
}

/// What went over the wire, and what the program asked for.
fn wire(total: &Row) -> String {
    let c = &total.carried;
    let mut parts = vec![
        format!("bytes sent {}", total.out_bytes),
        format!("got {}", total.in_bytes),
        format!("messages of bsp_send {}", total.letters),
    ];
    for (name, value) in counters(c) {
        if value > 0 {
            parts.push(format!("{} {value}", name.replace('_', " ")));
        }
    }
    format!("in all: {}\n", parts.join(", "))
}

/// The counters of the wire by name.
pub fn counters(c: &Carried) -> [(&'static str, u64); 10] {
    [
        ("slotted_bytes", c.slotted_bytes),
        ("packets_sent", c.packets_sent),
        ("packets_received", c.packets_received),
        ("acks_sent", c.acks_sent),
        ("acks_received", c.acks_received),
        ("packets_lost", c.packets_lost),
        ("repairs_sent", c.repairs_sent),
        ("stalls", c.stalls),
        ("records_sent", c.records_sent),
        ("records_received", c.records_received),
    ]
}

/// A run for programs. Supersteps are written as they are made: there may be a million.
#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    summary: &'a Summary,
    #[serde(serialize_with = "steps")]
    supersteps: (&'a Profile, Option<Costs>),
}

/// A superstep for programs.
#[derive(Serialize)]
struct OneStep<'a> {
    place: &'a str,
    work_max_ns: u64,
    work_mean_ns: f64,
    wait_mean_ns: f64,
    cost_ns: u64,
    span_ns: u64,
    h_bytes: u64,
    out_bytes: u64,
    in_bytes: u64,
    letters: u64,
    predicted_ns: Option<f64>,
}

fn steps<S: Serializer>((profile, costs): &(&Profile, Option<Costs>), to: S) -> Result<S::Ok, S::Error> {
    let mean = |sum: u64| sum as f64 / f64::from(profile.processes.max(1));
    to.collect_seq(profile.steps.iter().map(|step| OneStep {
        place: profile.place(step),
        work_max_ns: step.work_max_ns,
        work_mean_ns: mean(step.work_sum_ns),
        wait_mean_ns: mean(step.wait_sum_ns),
        cost_ns: step.cost_ns(),
        span_ns: step.span_max_ns,
        h_bytes: step.h_bytes(),
        out_bytes: step.out_bytes,
        in_bytes: step.in_bytes,
        letters: step.letters,
        predicted_ns: costs.map(|costs| costs.superstep_ns(step.work_max_ns, step.h_bytes())),
    }))
}

/// The same of all runs, as one document.
#[must_use]
pub fn document(runs: &[(Profile, Summary)]) -> String {
    #[derive(Serialize)]
    struct All<'a> {
        runs: Vec<Document<'a>>,
    }
    let runs = runs.iter().map(|(profile, summary)| Document { summary, supersteps: (profile, summary.costs) });
    // Numbers and names always have a text.
    serde_json::to_string(&All { runs: runs.collect() }).unwrap_or_default() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Step;
    use crate::summary::summary;

    #[test]
    fn the_table_has_a_line_for_each_place_and_the_prediction_where_there_is_one() {
        let step =
            Step { work_max_ns: 1000, work_sum_ns: 1500, span_max_ns: 3000, out_max_bytes: 4096, ..Step::default() };
        let profile = Profile {
            name: "r".into(),
            processes: 2,
            places: vec!["mg.c:7".into()],
            steps: vec![step, step],
            ..Profile::default()
        };
        let plain = text(&profile, &summary(&profile, None));
        assert!(plain.contains("r: 2 processes, 2 supersteps, 6 µs\n"), "{plain}");
        assert!(plain.contains("mg.c:7             2  6.00 µs    2.00 µs     75 %        4.00 µs  8 KiB\n"), "{plain}");
        assert!(!plain.contains("predicted"), "{plain}");
        let costs = Costs { p: 2, l_ns: 976.0, g_ns_per_byte: 0.25 };
        let summary = summary(&profile, Some((costs, None)));
        let told = text(&profile, &summary);
        assert!(told.contains("1.00\n") && told.contains("predicted with l = 976 ns and g = 0.25 ns a byte"), "{told}");
        let value: serde_json::Value = serde_json::from_str(&document(&[(profile, summary)])).unwrap();
        let run = &value["runs"][0];
        assert_eq!(run["supersteps"][1]["predicted_ns"], 3000.0);
        assert_eq!((&run["places"][0]["h_bytes"], &run["processes"]), (&8192.into(), &2.into()));
    }
}

//! `weir bsp params` for people and for programs.

use std::fmt::Write as _;

use serde_json::{Value, json};
use weir_report::units;

use crate::estimate::{Costs, Spread, bins};
use crate::params::{Machine, Params, Pattern};
use crate::report_text::columns;

/// Where supersteps without communication spread by more percent than this, something else used the
/// machine.
const SPREAD_PERCENT: f64 = 100.0;
/// Below so many times l, what a superstep takes says little of g.
const REACH: f64 = 3.0;

fn with_sd(spread: &Spread, words: fn(f64) -> String) -> String {
    format!("{} ± {:.0} %", words(spread.mean), spread.sd_percent())
}

/// g, nanoseconds a byte.
fn gap(ns_per_byte: f64) -> String {
    units::number(ns_per_byte)
}

/// Bytes a second of a process, where a byte takes so long.
#[must_use]
pub fn rate(ns_per_byte: f64) -> String {
    if ns_per_byte > 0.0 { units::rate(1e9 / ns_per_byte) } else { "–".into() }
}

/// What should be known before the numbers are believed.
#[must_use]
pub fn notices(params: &Params) -> Vec<String> {
    let short = params.machines.iter().filter(|machine| machine.reach() < REACH);
    let short = short.filter(|machine| !is_below_zero(machine)).map(|machine| {
        format!(
            "p = {}: supersteps with the largest h take only {:.1} times l longer than l, so g is uncertain: use a larger --h",
            machine.p,
            machine.reach().max(0.0)
        )
    });
    let slow = params.machines.iter().filter(|machine| machine.barrier_ns.len() < 30);
    let few = slow.map(|machine| {
        format!(
            "p = {}: only {} supersteps without communication: give more --time",
            machine.p,
            machine.barrier_ns.len()
        )
    });
    let disturbed = params.machines.iter().filter(|machine| machine.l_ns().sd_percent() > SPREAD_PERCENT);
    let disturbed = disturbed.map(|machine| {
        let l = machine.l_ns();
        format!(
            "p = {}: the times of supersteps without communication spread by {:.0} % (median {}, greatest {}): other programs used the processors or the network, or there are more processes than processors",
            machine.p,
            l.sd_percent(),
            units::time(l.median),
            units::time(l.max)
        )
    });
    let impossible = params.machines.iter().filter(|machine| is_below_zero(machine)).map(|machine| {
        format!(
            "p = {}: supersteps with the largest h took less time than those in which nothing is sent, so g is below zero: other programs used the processors or the network, or h is too small; measure again when they are idle, or use a larger --h",
            machine.p
        )
    });
    short.chain(impossible).chain(few).chain(disturbed).collect()
}

/// Whether the g that was measured is one that no machine has.
fn is_below_zero(machine: &Machine) -> bool {
    machine.g_ns_per_byte().mean < 0.0
}

/// What the edges of a number of processes say of another one.
pub struct Prediction {
    /// From which.
    pub from: u32,
    /// l and g.
    pub costs: Costs,
    /// g if edges were normal, nanoseconds a byte.
    pub normal_g: f64,
    /// g that was measured, nanoseconds a byte, and how far apart the edges of both are (Kolmogorov
    /// and Smirnov); where it was measured.
    pub measured: Option<(f64, f64)>,
}

/// From the smallest number of processes to all greater ones, from each to the next, and to those
/// that were asked for from the greatest below.
#[must_use]
pub fn predictions(params: &Params, asked: &[u32]) -> Vec<Prediction> {
    let mut out = Vec::new();
    let of = |from: &Machine, p: u32, measured: Option<&Machine>| Prediction {
        from: from.p,
        costs: params.predicted(from, p),
        normal_g: Params::normal_g(from, p),
        measured: measured.map(|m| (m.g_ns_per_byte().mean, from.edge().distance(&m.edge()))),
    };
    if let [first, others @ ..] = params.machines.as_slice() {
        out.extend(others.iter().map(|to| of(first, to.p, Some(to))));
        out.extend(others.windows(2).map(|two| of(&two[0], two[1].p, Some(&two[1]))));
    }
    for &p in asked.iter().filter(|p| params.of(**p).is_none()) {
        let from = params.machines.iter().rev().find(|machine| machine.p < p).or_else(|| params.machines.first());
        out.extend(from.map(|from| of(from, p, None)));
    }
    out
}

/// Bins of a histogram.
const BINS: usize = 20;

/// Histograms of l, g and s for people.
#[must_use]
pub fn histograms(params: &Params) -> String {
    const WIDTH: u64 = 50;
    let words: [fn(f64) -> String; 3] =
        [units::time, |g| format!("{} ns/byte", gap(g)), |s| format!("{:.0} Mop/s", s / 1e6)];
    let mut out = String::new();
    for machine in &params.machines {
        for ((name, values), words) in machine.spreads().into_iter().zip(words) {
            let Some(bins) = bins(&values, BINS) else { continue };
            let most = bins.counts.iter().copied().max().unwrap_or(1).max(1);
            let left_out = values.len() as u64 - bins.total();
            let beyond = if left_out > 0 { format!(", {left_out} beyond") } else { String::new() };
            let _ = writeln!(out, "\np = {}, {name}: {} values{beyond}", machine.p, values.len());
            let rows = bins.iter().map(|(from, _, count)| {
                // What is there is seen, however little.
                let bar = "#".repeat((count * WIDTH).div_ceil(most) as usize);
                vec![String::new(), format!("from {}", words(from)), count.to_string(), format!("{bar:50}")]
            });
            out += &columns(&rows.collect::<Vec<_>>());
        }
    }
    out
}

/// All of it for people.
#[must_use]
pub fn text(params: &Params, asked: &[u32]) -> String {
    let mut out = String::new();
    for notice in notices(params) {
        let _ = writeln!(out, "warning: {notice}");
    }
    out += &columns(&machines(params));
    out += "\n± is the standard deviation. A word is 32 bits, an operation a multiplication or an addition.\n";
    for machine in &params.machines {
        let _ = write!(out, "\n{}", relations(machine));
    }
    let predicted = predictions(params, asked);
    if !predicted.is_empty() {
        let _ = write!(out, "\nlarger p from the edges of smaller p\n{}", columns(&prediction_rows(&predicted)));
    }
    out
}

fn machines(params: &Params) -> Vec<Vec<String>> {
    let heads = ["p", "hosts", "l", "median", "g ns/byte", "bytes/s", "s Mop/s", "l ops", "g ops/word"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    for machine in &params.machines {
        let (l, g, s) = (machine.l_ns(), machine.g_ns_per_byte(), machine.s_ops_per_s());
        let operations = machine.in_operations();
        rows.push(vec![
            machine.p.to_string(),
            machine.hosts.to_string(),
            with_sd(&l, units::time),
            units::time(l.median),
            with_sd(&g, gap),
            rate(g.mean),
            with_sd(&s, |ops| format!("{:.0}", ops / 1e6)),
            format!("{:.0}", operations.l),
            units::number(operations.g),
        ]);
    }
    rows
}

/// g of all relations of a machine.
fn relations(machine: &Machine) -> String {
    let mut rows = vec![["h-relation", "h", "by", "time", "g ns/byte", "bytes/s"].map(str::to_owned).to_vec()];
    for pattern in Pattern::ALL {
        for relation in machine.relations.iter().filter(|relation| relation.pattern == pattern) {
            let g = Spread::of(&machine.gaps(relation));
            let times: Vec<f64> = relation.samples.iter().map(|sample| sample.1).collect();
            let skewed = if pattern.is_balanced() { "" } else { " (skewed)" };
            rows.push(vec![
                format!("{}{skewed}", pattern.words()),
                units::size(relation.wanted_bytes),
                format!("{} of {}", relation.by.name(), units::size(relation.block_bytes)),
                with_sd(&Spread::of(&times), units::time),
                with_sd(&g, gap),
                rate(g.mean),
            ]);
        }
    }
    format!("p = {}: g = (time - l) / h\n{}", machine.p, columns(&rows))
}

/// Rows of the table of predictions.
fn prediction_rows(all: &[Prediction]) -> Vec<Vec<String>> {
    let heads = ["p", "from p", "l", "g ns/byte", "if normal", "measured", "distance of edges"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    for one in all {
        let (g, distance) = one.measured.map_or(("–".into(), "–".into()), |(g, d)| (gap(g), format!("{d:.2}")));
        rows.push(vec![
            one.costs.p.to_string(),
            one.from.to_string(),
            units::time(one.costs.l_ns),
            gap(one.costs.g_ns_per_byte),
            gap(one.normal_g),
            g,
            distance,
        ]);
    }
    rows
}

/// The same for programs, without the samples.
#[must_use]
pub fn document(params: &Params, asked: &[u32]) -> Value {
    let machines = params.machines.iter().map(|machine| {
        let operations = machine.in_operations();
        let relations = machine.relations.iter().map(|relation| {
            let times: Vec<f64> = relation.samples.iter().map(|sample| sample.1).collect();
            json!({"by": relation.by, "pattern": relation.pattern, "balanced": relation.pattern.is_balanced(), "wanted_bytes": relation.wanted_bytes,
                "block_bytes": relation.block_bytes, "time_ns": Spread::of(&times), "g_ns_per_byte": Spread::of(&machine.gaps(relation))})
        });
        let histograms = machine.spreads().into_iter().filter_map(|(name, values)| {
            let bins = bins(&values, BINS)?;
            Some((name.to_owned(), json!({"start": bins.start, "width": bins.width, "counts": bins.counts})))
        });
        let histograms: serde_json::Map<String, Value> = histograms.collect();
        json!({"histograms": histograms, "p": machine.p, "hosts": machine.hosts, "measured_unix_s": machine.measured_unix_s, "l_ns": machine.l_ns(),
            "g_ns_per_byte": machine.g_ns_per_byte(), "s_ops_per_s": machine.s_ops_per_s(), "l_ops": operations.l,
            "g_ops_per_word": operations.g, "relations": relations.collect::<Vec<_>>()})
    });
    let predicted = predictions(params, asked);
    let predicted = predicted.iter().map(|one| {
        json!({"p": one.costs.p, "from": one.from, "l_ns": one.costs.l_ns, "g_ns_per_byte": one.costs.g_ns_per_byte,
            "normal_g_ns_per_byte": one.normal_g, "measured_g_ns_per_byte": one.measured.map(|m| m.0),
            "edge_distance": one.measured.map(|m| m.1)})
    });
    json!({"machines": machines.collect::<Vec<_>>(), "predictions": predicted.collect::<Vec<_>>(), "notices": notices(params)})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::tests::machine;

    #[test]
    fn the_tables_have_the_parameters_the_relations_and_the_predictions() {
        let params = Params { machines: vec![machine(2, 1000.0, 0.5), machine(4, 3000.0, 0.5)] };
        let told = text(&params, &[8, 4]);
        for part in
            ["1 µs ± 0 %", "2 GB/s", "1250", "all to one (skewed)", "p = 4: g = ", "7 µs", "warning: p = 2: only 2"]
        {
            assert!(told.contains(part), "{part}: {told}");
        }
        let value = document(&params, &[8, 4]);
        // What was measured is not predicted again.
        let predicted = value["predictions"].as_array().unwrap();
        assert_eq!(predicted.len(), 2);
        assert_eq!((&predicted[0]["p"], &predicted[0]["from"]), (&json!(4), &json!(2)));
        assert!((predicted[1]["g_ns_per_byte"].as_f64().unwrap() - 0.5).abs() < 1e-9);
        assert_eq!(value["machines"][1]["histograms"]["l_ns"]["counts"], json!([2]));
        let drawn = histograms(&params);
        assert!(drawn.contains("p = 4, s_ops_per_s: 2 values") && drawn.contains("  2  #####"), "{drawn}");
        assert_eq!(value["machines"][0]["relations"].as_array().unwrap().len(), 10);
    }

    #[test]
    fn a_gap_below_zero_is_told_with_its_cause() {
        let told = notices(&Params { machines: vec![machine(2, 1e6, -0.5)] });
        assert!(told.iter().any(|notice| notice.contains("g is below zero: other programs")), "{told:?}");
        assert_eq!(told.iter().filter(|notice| notice.contains("larger --h")).count(), 1, "{told:?}");
        assert!(!notices(&Params { machines: vec![machine(2, 1.0, 0.5)] }).iter().any(|n| n.contains("below zero")));
    }
}

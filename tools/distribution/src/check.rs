//! What must hold in a `run.json` beyond the types of its fields. The writer asks too, so that it
//! never writes what the reader refuses. Each check names the field.

use std::collections::BTreeSet;

use crate::model::{
    Bandwidth, BinsHistogram, Cell, Configuration, Family, FitRecord, HistogramRecord, Independence, Outliers, Overlap,
    Run, SamplesFile, Service, SummaryRecord,
};

/// Field and problem.
type Wrong = (String, String);

fn wrong<T>(field: String, problem: impl Into<String>) -> Result<T, Wrong> {
    Err((field, problem.into()))
}

fn ensure(ok: bool, field: impl FnOnce() -> String, problem: impl FnOnce() -> String) -> Result<(), Wrong> {
    if ok { Ok(()) } else { Err((field(), problem())) }
}

/// The run with all its cells.
pub(crate) fn run(run: &Run) -> Result<(), Wrong> {
    head(run)?;
    let mut ids = BTreeSet::new();
    for (i, c) in run.cells.iter().enumerate() {
        let at = format!("cells[{i}]");
        ensure(ids.insert(c.id), || format!("{at}.id"), || format!("{} is the id of an earlier cell too", c.id))?;
        cell(run, &at, c)?;
    }
    Ok(())
}

/// All but the cells.
pub(crate) fn head(run: &Run) -> Result<(), Wrong> {
    ensure(!run.machine.is_empty(), || "machine".into(), || "empty; a short name is needed".into())?;
    let mut numbers = BTreeSet::new();
    for (i, l) in run.launches.iter().enumerate() {
        let at = format!("launches[{i}]");
        let again = || format!("{} is the number of an earlier launch too", l.number);
        ensure(numbers.insert(l.number), || format!("{at}.number"), again)?;
        for (j, p) in l.placement.iter().enumerate() {
            let known = (p.node as usize) < run.nodes.len();
            ensure(known, || format!("{at}.placement[{j}].node"), || format!("{} of {}", p.node, run.nodes.len()))?;
        }
        for (j, r) in l.clock.iter().flat_map(|c| &c.ranks).enumerate() {
            not_negative(&format!("{at}.clock.ranks[{j}].error_ns"), r.error_ns)?;
        }
        if let Some(o) = &l.overhead {
            summary(&format!("{at}.overhead.per_sample"), &o.per_sample)?;
        }
    }
    Ok(())
}

/// One cell of a run whose head holds.
pub(crate) fn cell(run: &Run, at: &str, c: &Cell) -> Result<(), Wrong> {
    configuration(&format!("{at}.configuration"), &c.configuration)?;
    let known = run.launches.is_empty() || run.launch(c.launch).is_some();
    ensure(known, || format!("{at}.launch"), || format!("there is no launch {} in `launches`", c.launch))?;
    ensure(
        c.samples.is_some() || c.summary.is_some() || c.histogram.is_some() || !c.fits.is_empty(),
        || at.to_owned(),
        || "has no distribution: give it samples, a histogram, a fit or a summary".into(),
    )?;
    if let Some(s) = &c.samples {
        samples(&format!("{at}.samples"), s)?;
    }
    if let Some(s) = &c.summary {
        summary(&format!("{at}.summary"), s)?;
    }
    if let Some(h) = &c.histogram {
        histogram(&format!("{at}.histogram"), h)?;
    }
    if let Some(i) = &c.independence {
        independence(&format!("{at}.independence"), i)?;
    }
    if let Some(o) = &c.outliers {
        outliers(&format!("{at}.outliers"), o)?;
    }
    for (name, between) in [("skew", &c.skew), ("span", &c.span), ("waits", &c.waits)] {
        let Some(s) = between else { continue };
        summary(&format!("{at}.{name}.summary"), &s.summary)?;
        if let Some(h) = &s.histogram {
            histogram(&format!("{at}.{name}.histogram"), h)?;
        }
    }
    if let Some(b) = &c.bandwidth {
        bandwidth(&format!("{at}.bandwidth"), b)?;
    }
    if let Some(o) = &c.overlap {
        overlap(&format!("{at}.overlap"), o)?;
    }
    not_negative(&format!("{at}.cpu_ns"), c.cpu_ns.unwrap_or(0.0))?;
    if let Some(s) = &c.service {
        service(&format!("{at}.service"), s)?;
    }
    for (i, f) in c.fits.iter().enumerate() {
        fit(&format!("{at}.fits[{i}]"), f)?;
        let second = f.chosen && c.fits[..i].iter().any(|g| g.chosen);
        ensure(!second, || format!("{at}.fits[{i}].chosen"), || "only one fit of a cell can be chosen".into())?;
    }
    Ok(())
}

fn configuration(at: &str, c: &Configuration) -> Result<(), Wrong> {
    ensure(!c.operation.0.is_empty(), || format!("{at}.operation"), || "empty".into())?;
    for (name, value) in [("nodes", c.nodes), ("ranks_per_node", c.ranks_per_node), ("ranks", c.ranks)] {
        ensure(value > 0, || format!("{at}.{name}"), || "0; at least one takes part".into())?;
    }
    let room = u64::from(c.nodes) * u64::from(c.ranks_per_node);
    let fits = u64::from(c.ranks) <= room;
    let problem = || format!("{} ranks do not fit on {} nodes of {}", c.ranks, c.nodes, c.ranks_per_node);
    ensure(fits, || format!("{at}.ranks"), problem)
}

/// The path stays within the run's folder whatever the file says.
fn samples(at: &str, s: &SamplesFile) -> Result<(), Wrong> {
    let plain = |part: &str| !matches!(part, "" | "." | "..") && !part.contains(['\\', ':', '\0']);
    let inside = s.path.split('/').all(plain) && s.path.len() < 4096;
    ensure(
        inside,
        || format!("{at}.path"),
        || "not a path within the run's folder, such as samples/00001.parquet".into(),
    )
}

fn summary(at: &str, s: &SummaryRecord) -> Result<(), Wrong> {
    ensure(s.count > 0, || format!("{at}.count"), || "0; leave out the summary of nothing".into())?;
    let rising = [
        ("min_ns", s.min_ns),
        ("p1_ns", s.p1_ns),
        ("p25_ns", s.p25_ns),
        ("p50_ns", s.p50_ns),
        ("p75_ns", s.p75_ns),
        ("p99_ns", s.p99_ns),
        ("p999_ns", s.p999_ns),
        ("max_ns", s.max_ns),
    ];
    for (name, value) in rising.into_iter().chain([("mean_ns", s.mean_ns)]) {
        finite(&format!("{at}.{name}"), value)?;
    }
    for pair in rising.windows(2) {
        let ((below, low), (name, high)) = (pair[0], pair[1]);
        ensure(low <= high, || format!("{at}.{name}"), || format!("{high} is less than {below}, {low}"))?;
    }
    not_negative(&format!("{at}.stddev_ns"), s.stddev_ns)
}

fn histogram(at: &str, h: &HistogramRecord) -> Result<(), Wrong> {
    match h {
        HistogramRecord::Hdr(h) => {
            ensure(h.unit_ns > 0.0, || format!("{at}.hdr.unit_ns"), || format!("{} is not above 0", h.unit_ns))
        }
        HistogramRecord::Bins(b) => bins(&format!("{at}.bins"), b),
    }
}

fn bins(at: &str, b: &BinsHistogram) -> Result<(), Wrong> {
    let mut edge = f64::NEG_INFINITY;
    for (i, bin) in b.bins.iter().enumerate() {
        let at = || format!("{at}.bins[{i}]");
        finite(&format!("{}.low_ns", at()), bin.low_ns)?;
        finite(&format!("{}.high_ns", at()), bin.high_ns)?;
        let rising = bin.low_ns < bin.high_ns && edge <= bin.low_ns;
        ensure(rising, at, || "bins must rise without overlap".into())?;
        not_negative(&format!("{}.count", at()), bin.count)?;
        edge = bin.high_ns;
    }
    let sum: f64 = b.bins.iter().map(|b| b.count).sum();
    ensure(sum > 0.0, || format!("{at}.bins"), || "the counts are all 0".into())
}

fn independence(at: &str, i: &Independence) -> Result<(), Wrong> {
    for (lag, r) in i.autocorrelation.iter().enumerate() {
        let field = || format!("{at}.autocorrelation[{lag}]");
        ensure((-1.0..=1.0).contains(r), field, || format!("{r} is not between -1 and 1"))?;
    }
    for (name, p) in [("runs_p", i.runs_p), ("ljung_box_p", i.ljung_box_p)] {
        ensure((0.0..=1.0).contains(&p), || format!("{at}.{name}"), || format!("{p} is not between 0 and 1"))?;
    }
    not_negative(&format!("{at}.effective_count"), i.effective_count)
}

fn overlap(at: &str, o: &Overlap) -> Result<(), Wrong> {
    for (name, ns) in [("alone_ns", o.alone_ns), ("compute_ns", o.compute_ns)] {
        ensure(ns.is_finite() && ns > 0.0, || format!("{at}.{name}"), || format!("{ns} is not above 0"))?;
    }
    let fine = o.percent.is_finite() && o.percent <= 100.0;
    ensure(fine, || format!("{at}.percent"), || format!("{} is above 100", o.percent))
}

fn bandwidth(at: &str, b: &Bandwidth) -> Result<(), Wrong> {
    let rising = [("p1", b.p1_bytes_per_s), ("p50", b.p50_bytes_per_s), ("p99", b.p99_bytes_per_s)];
    let all = rising.into_iter().chain([("mean", b.mean_bytes_per_s)]);
    ensure(b.bytes.is_finite() && b.bytes > 0.0, || format!("{at}.bytes"), || format!("{} is not above 0", b.bytes))?;
    for (name, rate) in all {
        let field = || format!("{at}.{name}_bytes_per_s");
        ensure(rate.is_finite() && rate > 0.0, field, || format!("{rate} is not above 0"))?;
    }
    if let Some(least) = b.min_bytes_per_s {
        let fine = least > 0.0 && least <= b.p1_bytes_per_s;
        ensure(fine, || format!("{at}.min_bytes_per_s"), || format!("{least} is not between 0 and p1_bytes_per_s"))?;
    }
    for pair in rising.windows(2) {
        let field = || format!("{at}.{}_bytes_per_s", pair[1].0);
        ensure(pair[0].1 <= pair[1].1, field, || {
            format!("{} is less than {}_bytes_per_s, {}", pair[1].1, pair[0].0, pair[0].1)
        })?;
    }
    Ok(())
}

fn service(at: &str, s: &Service) -> Result<(), Wrong> {
    not_negative(&format!("{at}.answers_per_s"), s.answers_per_s)?;
    not_negative(&format!("{at}.server_cpu_ns"), s.server_cpu_ns.unwrap_or(0.0))?;
    for (name, spread) in [("spread_p50", s.spread_p50), ("spread_max", s.spread_max)] {
        let fine = spread.is_none_or(|ratio| ratio.is_finite() && ratio >= 1.0);
        ensure(fine, || format!("{at}.{name}"), || "not a number from 1 up".into())?;
    }
    for (name, index) in [("jain_p50", s.jain_p50), ("jain_min", s.jain_min), ("jain_clients", s.jain_clients)] {
        let fine = index.is_none_or(|index| index > 0.0 && index <= 1.0);
        ensure(fine, || format!("{at}.{name}"), || "not between 0 and 1".into())?;
    }
    Ok(())
}

fn outliers(at: &str, o: &Outliers) -> Result<(), Wrong> {
    let inside = o.percentile > 0.0 && o.percentile <= 1.0;
    ensure(inside, || format!("{at}.percentile"), || format!("{} is not between 0 and 1", o.percentile))?;
    ensure(o.multiplier > 0.0, || format!("{at}.multiplier"), || format!("{} is not above 0", o.multiplier))
}

/// Parameters a family needs, and whether each must be above 0. `None`: an unknown family, which a
/// reader may know tomorrow.
fn parameters(family: &str) -> Option<&'static [(&'static str, bool)]> {
    Some(match family {
        Family::NORMAL => &[("mean_ns", false), ("stddev_ns", true)],
        Family::LOGNORMAL => &[("mu", false), ("sigma", true)],
        Family::GAMMA | Family::WEIBULL | Family::PEARSON5 => &[("shape", true), ("scale_ns", true)],
        Family::EXPONENTIAL => &[("scale_ns", true)],
        Family::GENERALISED_GAMMA => &[("mu", false), ("sigma", true), ("lambda", false)],
        _ => return None,
    })
}

fn fit(at: &str, f: &FitRecord) -> Result<(), Wrong> {
    finite(&format!("{at}.location_ns"), f.location_ns)?;
    for &(name, above_zero) in parameters(f.family.as_str()).unwrap_or_default() {
        let field = format!("{at}.parameters.{name}");
        match f.parameters.get(name) {
            None => return wrong(field, format!("missing; {} needs it", f.family)),
            Some(&v) => ensure(!above_zero || v > 0.0, || field, || format!("{v} is not above 0"))?,
        }
    }
    for (i, t) in f.tests.iter().enumerate() {
        if let Some(p) = t.p_value {
            let field = || format!("{at}.tests[{i}].p_value");
            ensure((0.0..=1.0).contains(&p), field, || format!("{p} is not between 0 and 1"))?;
        }
    }
    Ok(())
}

fn finite(field: &str, value: f64) -> Result<(), Wrong> {
    ensure(value.is_finite(), || field.to_owned(), || format!("{value} is not a finite number"))
}

fn not_negative(field: &str, value: f64) -> Result<(), Wrong> {
    ensure(value.is_finite() && value >= 0.0, || field.to_owned(), || format!("{value} is not a number from 0 up"))
}

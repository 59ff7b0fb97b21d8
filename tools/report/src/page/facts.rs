//! What must be known of a run before its numbers are read, as pairs of words.

use weir_distribution::{ClockInfo, Label, Launch, Node, Run, State, Warning, is_of_a_launch};

use crate::compare::ENOUGH_LAUNCHES;
use crate::digest::{Digest, Point, Profile};
use crate::notes::{self, NOT_CARRIED, warning};
use crate::{again, units};

/// A name and what is so.
pub type Fact = (&'static str, String);

/// The command as somebody typed it, without what `weir bench` gives the ranks that it starts.
fn command(run: &Run) -> String {
    let mut words = Vec::new();
    let mut all = run.command.iter();
    while let Some(word) = all.next() {
        match word.as_str() {
            "--meet" => drop(all.next()),
            word if word.starts_with("--meet=") => {}
            word => words.push(word),
        }
    }
    again::line(words)
}

/// The facts of a run, in the order in which they matter.
#[must_use]
pub fn facts(digest: &Digest) -> Vec<Fact> {
    let run = &digest.run;
    let mut out =
        vec![("Machine", nodes(run)), ("MPI", mpi(run)), ("Transport", transport(run)), ("Placement", placement(run))];
    out.push(("Clock", clock(digest)));
    if let Some(overhead) =
        run.launches.iter().filter_map(|l| l.overhead.as_ref()).map(|o| o.per_sample.p50_ns).reduce(f64::max)
    {
        out.push(("Harness", format!("adds {} to a sample (median)", units::time(overhead))));
    }
    out.push(("Measured", measured(digest)));
    if !run.command.is_empty() {
        out.push(("Command", command(run)));
    }
    out
}

fn nodes(run: &Run) -> String {
    if run.nodes.is_empty() {
        return "not recorded".into();
    }
    // Nodes of one kind are one line.
    let mut kinds: Vec<(String, Vec<&str>)> = Vec::new();
    for node in &run.nodes {
        let kind = kind(node);
        match kinds.iter_mut().find(|k| k.0 == kind) {
            Some(found) => found.1.push(&node.name),
            None => kinds.push((kind, vec![&node.name])),
        }
    }
    let lines = kinds.into_iter().map(|(kind, names)| {
        let shown = names.iter().take(6).copied().collect::<Vec<_>>().join(", ");
        let more = if names.len() > 6 { format!(" and {} more", names.len() - 6) } else { String::new() };
        format!("{} × {kind} ({shown}{more})", names.len())
    });
    lines.collect::<Vec<_>>().join("; ")
}

fn kind(node: &Node) -> String {
    let mut parts = vec![node.cpu.clone().unwrap_or_else(|| "node of unknown kind".into())];
    match (node.cores, node.threads) {
        (Some(cores), Some(threads)) if cores != threads => parts.push(format!("{cores} cores, {threads} threads")),
        (Some(n), _) | (None, Some(n)) => parts.push(format!("{n} cores")),
        (None, None) => {}
    }
    parts.extend(node.memory_bytes.map(|b| format!("{} memory", units::size(b >> 28 << 28))));
    parts.extend(node.kernel.clone());
    parts.extend(node.governor.as_ref().map(|g| format!("governor {g}")));
    parts.extend(node.turbo.filter(|t| *t).map(|_| "turbo on".to_owned()));
    parts.join(", ")
}

fn mpi(run: &Run) -> String {
    let Some(mpi) = &run.mpi else { return "none: measured without MPI".into() };
    let mut parts = vec![mpi.library_version.trim().to_owned()];
    parts.extend(mpi.standard.as_ref().map(|s| format!("MPI {s}")));
    parts.extend(mpi.abi.as_ref().map(|a| format!("{a} ABI")));
    parts.extend(mpi.launcher.as_ref().map(|l| format!("started by {l}")));
    parts.extend(mpi.library_path.clone());
    parts.join("; ")
}

fn transport(run: &Run) -> String {
    let transport = &run.transport;
    let mut parts = Vec::new();
    parts.extend(Label::of(run).told());
    if !transport.backend.is_empty() {
        parts.push(format!("back end {}", transport.backend));
    }
    let settings = transport.settings.iter().filter(|s| !is_of_a_launch(s.0));
    parts.extend(settings.map(|(name, value)| format!("{name}={value}")));
    if parts.is_empty() { "not recorded".into() } else { parts.join("; ") }
}

fn placement(run: &Run) -> String {
    let Some(launch) = run.launches.iter().find(|l| !l.placement.is_empty()) else { return "not recorded".into() };
    let mut counts = std::collections::BTreeMap::new();
    for place in &launch.placement {
        *counts.entry(place.node).or_insert(0usize) += 1;
    }
    let (least, most) = (counts.values().min().copied().unwrap_or(0), counts.values().max().copied().unwrap_or(0));
    let each = if least == most { format!("{least}") } else { format!("{least} to {most}") };
    let pinned = launch.placement.iter().filter(|p| p.pinned).count();
    let pins = match pinned {
        n if n == launch.placement.len() => "each pinned to a core".to_owned(),
        0 => "not pinned".to_owned(),
        n => format!("{n} of {} pinned", launch.placement.len()),
    };
    let (ranks, nodes) =
        (units::plural(launch.placement.len() as u64, "rank"), units::plural(counts.len() as u64, "node"));
    format!("{ranks} on {nodes}, {each} on each, {pins}")
}

fn clock(digest: &Digest) -> String {
    let clocks: Vec<(&Launch, &ClockInfo)> =
        digest.run.launches.iter().filter_map(|l| Some((l, l.clock.as_ref()?))).collect();
    let Some((_, first)) = clocks.first() else {
        return "not recorded: durations between nodes cannot be judged".into();
    };
    let mut text = first.source.clone();
    if let Some(hz) = first.frequency_hz.filter(|f| f.is_finite() && *f > 0.0) {
        text += &format!(" at {} MHz", units::number(hz / 1e6));
    }
    if first.algorithm == "none" {
        return text + ", one clock for all ranks";
    }
    text += &format!(", brought together by {}", first.algorithm);
    let resyncs: usize = clocks.iter().map(|c| c.1.resyncs.len()).sum();
    if resyncs > 0 {
        text += &format!("; synchronised {}", units::plural(resyncs as u64, "time"));
    }
    match worst_bound(digest) {
        Some(worst) if worst > 0.0 => text += &format!("; off by at most {} in any sample", units::time(worst)),
        Some(_) => text += "; no sample depends on it: both ends of each were read from one clock",
        None => {}
    }
    text
}

/// The largest bound on a duration's error that samples carry: the one number for how good the clocks were.
fn worst_bound(digest: &Digest) -> Option<f64> {
    digest.spans.iter().map(|s| s.error_ns.0).filter(|e| e.is_finite()).reduce(f64::max)
}

/// Where starts are closer together than the clocks can tell: durations may be exact and skews are not.
fn skew_warning(digest: &Digest) -> Option<Warning> {
    let bounds = digest.run.launches.iter().flat_map(|l| {
        let ranks = l.clock.iter().flat_map(|c| &c.ranks);
        ranks.map(|r| (l.number, r.error_ns))
    });
    let of = |launch: u32| bounds.clone().filter(|b| b.0 == launch && b.1.is_finite()).map(|b| b.1).fold(0.0, f64::max);
    let skewed: Vec<_> = digest.spans.iter().filter_map(|s| Some((s.skew_ns?.0, of(s.launch)))).collect();
    let hidden: Vec<_> = skewed.iter().filter(|(skew, bound)| skew < bound).collect();
    let worst = hidden.iter().map(|h| h.1).reduce(f64::max)?;
    let message = format!(
        "Skew of starts: in {} it is less than the ranks' clocks may be apart ({}): it says nothing there.",
        units::of_cells(hidden.len(), skewed.len()),
        units::time(worst)
    );
    let advice = "a quieter network, and ranks on processors of their own";
    Some(warning("skew-within-clock-error", message, Some(advice.to_owned())))
}

fn measured(digest: &Digest) -> String {
    let run = &digest.run;
    let mut parts = Vec::new();
    parts.extend(run.created_utc.clone());
    let total: u64 = run.cells.iter().map(|c| c.measured).sum();
    let kept = digest.samples;
    // As everywhere else: what several launches measured is one cell.
    let cells: usize = digest.profiles.iter().map(|p| p.points.len()).sum();
    parts.push(units::plural(cells as u64, "cell"));
    parts.push(if total > kept {
        format!("{} samples, {} of them kept", units::count(total), units::count(kept))
    } else {
        format!("{} samples", units::count(kept))
    });
    if run.launches.len() > 1 {
        parts.push(launches(run, cells));
    }
    if !run.tool.name.is_empty() {
        parts.push(format!("{} {}", run.tool.name, run.tool.version));
    }
    parts.join("; ")
}

/// How many launches there are, and how many of the `cells` those measured that did not measure all.
fn launches(run: &Run, cells: usize) -> String {
    let of = |number: u32| run.cells.iter().filter(|c| c.launch == number).count();
    let short = run.launches.iter().map(|l| (l.number, of(l.number))).filter(|(_, n)| *n < cells);
    let short: Vec<String> =
        short.map(|(number, n)| format!("{} measured {n} of them", notes::launches(&[number]))).collect();
    let but = if short.is_empty() { String::new() } else { format!(" ({})", short.join(", ")) };
    format!("{} launches{but}", run.launches.len())
}

/// Warnings of a digest with those that follow from the data.
#[must_use]
pub fn warnings(digest: &Digest) -> Vec<Warning> {
    let mut out = Vec::new();
    match digest.run.state {
        State::Complete => {}
        // Where it is known which of the two it was, a warning says so.
        State::Running if digest.warnings.iter().any(|w| ["cut-off", "being-written"].contains(&w.code.as_str())) => {}
        State::Running => {
            let text = "The run was still being written, or its writer was killed: what is here is whole, but not all.";
            out.push(warning("not-ended", text.to_owned(), None));
        }
        State::Stopped => {
            let text = "The run ended early: what is here is whole, but not all.";
            out.push(warning("ended-early", text.to_owned(), None));
        }
    }
    out.extend(label_warning(digest));
    out.extend(clock_warning(digest));
    out.extend(skew_warning(digest));
    out.extend(notes::far_apart(digest));
    out.extend(notes::few_samples(digest));
    out.extend(dependence_warning(digest));
    out.extend(digest.warnings.iter().cloned());
    out
}

/// That what the environment names did not carry all cells, or none. The writer says so too, of its launch: this holds for the whole run, and for
/// runs of writers that did not look.
fn label_warning(digest: &Digest) -> Option<Warning> {
    let label = Label::of(&digest.run);
    let (kept, others) = label.kept().filter(|(_, others)| *others > 0)?;
    let (name, told) = (label.named.as_deref()?, label.told()?);
    let message = match kept {
        0 => format!("Transport: FI_PROVIDER={name} was set, and nothing went by it: this is {told}."),
        _ => format!(
            "Transport: {others} of {} did not go by {name}: {told}.",
            units::plural((kept + others) as u64, "cell")
        ),
    };
    let said = digest.run.launches.iter().flat_map(|l| &l.warnings).find(|w| w.code == NOT_CARRIED);
    Some(warning(NOT_CARRIED, message, said.and_then(|w| w.advice.clone())))
}

/// From this autocorrelation of one repetition with the next on, a cell's launch saw few states of the machine.
const STRONG: f64 = 0.3;

/// Where a repetition resembles the one before strongly, and what samples are worth for a median then.
///
/// The two are not the same: however long a phase of the machine lasts, the median of all samples does not depend on it where it
/// lies between the times of some ranks and those of the others in every repetition, as with a bcast's root.
fn dependence_warning(digest: &Digest) -> Option<Warning> {
    let points = || digest.profiles.iter().flat_map(|p| p.points.values().map(move |point| (p, point)));
    let strong: Vec<_> =
        points().filter_map(|(p, point)| Some((p, point, point.lag1.filter(|r| *r >= STRONG)?))).collect();
    let (profile, worst, lag1) = strong.iter().max_by(|a, b| a.2.total_cmp(&b.2))?;
    let launches = digest.run.launches.len();
    let another = match launches {
        0 | 1 => ", but another launch may well see another state of the machine",
        _ => "",
    };
    let message = format!(
        "Dependence: in {} a repetition resembles the one before, all its ranks together; most in {} at {} (autocorrelation {lag1:.2}). {} Intervals allow for it{another}.",
        units::of_cells(strong.len(), points().count()),
        profile.title,
        units::size(worst.size_bytes),
        worth(strong.iter().map(|s| (s.0, s.1))),
    );
    let missing = ENOUGH_LAUNCHES.saturating_sub(launches);
    Some(warning("dependence", message, (missing > 0).then(|| again::advice(digest, missing))))
}

/// What the samples of these cells are worth for their medians.
fn worth<'a>(cells: impl Iterator<Item = (&'a Profile, &'a Point)>) -> String {
    let share = |p: &Point| Some(p.effective? / p.row.count.max(1) as f64);
    let least = cells.filter_map(|(profile, p)| Some((profile, p, share(p)?))).min_by(|a, b| a.2.total_cmp(&b.2));
    match least {
        Some((profile, point, share)) if share < 0.95 => format!(
            "For a median, the samples of {} at {} are worth least: {} tell as much as {} independent ones would.",
            profile.title,
            units::size(point.size_bytes),
            units::count(point.row.count),
            units::count(point.effective.unwrap_or(0.0) as u64)
        ),
        Some(_) => "For a median, the samples of each are worth as much as independent ones: it lies between the times of some ranks and those of others, whatever the repetition.".to_owned(),
        None => String::new(),
    }
}

/// Where the clocks' error is more than a tenth of the least time.
fn clock_warning(digest: &Digest) -> Option<Warning> {
    let points = || digest.profiles.iter().flat_map(|p| p.points.values().map(move |point| (p, point)));
    let bad: Vec<_> = points().filter(|(_, p)| p.has_row() && p.clock_error_ns > 0.1 * p.row.min_ns.max(0.0)).collect();
    let (profile, worst) = bad.iter().max_by(|a, b| {
        (a.1.clock_error_ns / a.1.row.min_ns.max(1.0)).total_cmp(&(b.1.clock_error_ns / b.1.row.min_ns.max(1.0)))
    })?;
    let message = format!(
        "Clock error: in {} the clocks may be off by more than a tenth of the shortest time; worst in {} at {} (±{} of {}).",
        units::of_cells(bad.len(), points().count()),
        profile.title,
        units::size(worst.size_bytes),
        units::time(worst.clock_error_ns),
        units::time(worst.row.min_ns)
    );
    let advice =
        "ping-pong and sendrecv need one clock only; or a quieter network, and ranks on processors of their own";
    Some(warning("clock-bounds", message, Some(advice.to_owned())))
}

//! What must be known of a run before its numbers are read, as pairs of words.

use weir_distribution::{Between, ClockInfo, Label, Launch, Node, Run, is_of_a_launch};

use crate::digest::Digest;
use crate::notes;
use crate::{again, units};

/// A name and what is so.
pub type Fact = (&'static str, String);

/// The command as somebody typed it, without what `weir bench` gives the ranks that it starts, and
/// behind the one that started the ranks, where that is known.
fn command(run: &Run) -> String {
    let mut words = Vec::new();
    if !run.command.iter().any(|word| word == "--") {
        words.extend(run.mpi.iter().flat_map(|mpi| &mpi.launcher_command).map(String::as_str));
    }
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
    let mut out = vec![("Machine", nodes(run)), ("MPI", mpi(run)), ("Transport", transport(run))];
    let between = Between::nodes_of(run);
    if between != Between::Nothing {
        out.push(("Network", between.told()));
    }
    out.push(("Placement", placement(run)));
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
    let levels: std::collections::BTreeSet<&str> =
        run.launches.iter().filter_map(|l| l.thread_level.as_deref()).collect();
    // As everywhere, unless something else was asked for.
    parts.extend(levels.iter().filter(|l| **l != "funneled").map(|l| format!("MPI_THREAD_{}", l.to_uppercase())));
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

/// The largest bound on a duration's error that samples carry: the one number for how good the
/// clocks were.
fn worst_bound(digest: &Digest) -> Option<f64> {
    digest.periods.iter().map(|s| s.error_ns.0).filter(|e| e.is_finite()).reduce(f64::max)
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

/// How many launches there are, and how many of the `cells` those measured that did not measure
/// all.
fn launches(run: &Run, cells: usize) -> String {
    let of = |number: u32| run.cells.iter().filter(|c| c.launch == number).count();
    let short = run.launches.iter().map(|l| (l.number, of(l.number))).filter(|(_, n)| *n < cells);
    let short: Vec<String> =
        short.map(|(number, n)| format!("{} measured {n} of them", notes::launches(&[number]))).collect();
    let but = if short.is_empty() { String::new() } else { format!(" ({})", short.join(", ")) };
    format!("{} launches{but}", run.launches.len())
}

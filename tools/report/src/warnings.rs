//! All warnings of a run and of a comparison: those of its record, and those that follow from the
//! data; and what each is about, in a few plain words.

use std::collections::BTreeSet;

use weir_distribution::{Between, Configuration, Label, StartSync, State, Warning};

use crate::compare::{Comparison, ENOUGH_LAUNCHES, Verdict};
use crate::digest::{Digest, Point, Profile};
use crate::notes::{self, NOT_CARRIED, warning};
use crate::{again, units};

/// Warnings of a digest with those that follow from the data.
#[must_use]
pub fn of_run(digest: &Digest) -> Vec<Warning> {
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
    out.extend(moved_warning(digest));
    out.extend(digest.warnings.iter().cloned());
    out
}

/// That what the environment names did not carry all cells, or none. The writer says so too, of its
/// launch: this holds for the whole run, and for runs of writers that did not look.
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

/// From this autocorrelation of one repetition with the next on, a cell's launch saw few states of
/// the machine.
const STRONG: f64 = 0.3;

/// Where a repetition resembles the one before strongly, and what samples are worth for a median
/// then.
///
/// The two are not the same: however long a phase of the machine lasts, the median of all samples
/// does not depend on it where it lies between the times of some ranks and those of the others in
/// every repetition, as with a bcast's root.
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

/// That ranks changed their processor, where the writer did not come to say so, as it does at the
/// end of a launch.
fn moved_warning(digest: &Digest) -> Option<Warning> {
    const MOVED: &str = "moved-ranks";
    if digest.warnings.iter().any(|w| w.code == MOVED) {
        return None;
    }
    let points = || digest.profiles.iter().flat_map(|p| p.points.values().map(move |point| (p, point)));
    let batches = |p: &Point| p.moved.iter().map(|m| m.batches).fold(0, u64::saturating_add);
    let (profile, worst) = points().filter(|(_, p)| !p.moved.is_empty()).max_by_key(|(_, p)| batches(p))?;
    let message = format!(
        "Ranks moved: in {} ranks changed their processor during a batch of repetitions; most in {} at {} ({}).",
        units::of_cells(points().filter(|(_, p)| !p.moved.is_empty()).count(), points().count()),
        profile.title,
        units::size(worst.size_bytes),
        notes::moved_ranks(worst)?,
    );
    Some(warning(MOVED, message, Some("weir bench --bind, or mpiexec -bind-to core".to_owned())))
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

/// Where starts are closer together than the clocks can tell: durations may be exact and skews are
/// not.
fn skew_warning(digest: &Digest) -> Option<Warning> {
    let bounds = digest.run.launches.iter().flat_map(|l| {
        let ranks = l.clock.iter().flat_map(|c| &c.ranks);
        ranks.map(|r| (l.number, r.error_ns))
    });
    let of = |launch: u32| bounds.clone().filter(|b| b.0 == launch && b.1.is_finite()).map(|b| b.1).fold(0.0, f64::max);
    let skewed: Vec<_> = digest.periods.iter().filter_map(|s| Some((s.skew_ns?.0, of(s.launch)))).collect();
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

/// A warning, and the run that it is about.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    /// `first`, `second` or `both`; none: about the comparison.
    pub run: Option<&'static str>,
    /// What is said, the run among it.
    pub warning: Warning,
}

/// What must be known before the comparison is believed, with what to do about it.
#[must_use]
pub fn of_two(digests: (&Digest, &Digest), comparison: &Comparison) -> Vec<Told> {
    let about_both = of_comparison(digests, comparison).into_iter().map(|warning| Told { run: None, warning });
    let mut out: Vec<Told> = about_both.collect();
    let (one, other) = (of_run(digests.0), of_run(digests.1));
    for (which, warnings, of_other) in [("first", &one, &other), ("second", &other, &one)] {
        for warning in warnings {
            // What is so in both is said once.
            let (run, place) = match (of_other.contains(warning), which) {
                (true, "first") => ("both", "In both runs".to_owned()),
                (true, _) => continue,
                (false, _) => (which, format!("In the {which} run")),
            };
            let message = format!("{place}: {}", warning.message);
            out.push(Told { run: Some(run), warning: Warning { message, ..warning.clone() } });
        }
    }
    out
}

/// What the comparison itself lacks.
fn of_comparison(digests: (&Digest, &Digest), comparison: &Comparison) -> Vec<Warning> {
    let mut out = Vec::new();
    let n = comparison.pairs().count();
    let some = |some: usize| format!("{} {}", units::of_cells(some, n), units::verb(some, "has", "have"));
    if comparison.single > 0 {
        let text = format!(
            "{} only one launch in one of the runs: one launch cannot tell a difference of the machines from one between launches of the same machine, and whether the machines differ is undecided there.",
            some(comparison.single)
        );
        out.push(warning("one-launch", text, add_launches(digests)));
    } else if comparison.few > 0 {
        let text = format!(
            "{} fewer than five launches in one of the runs: only large differences can be told there from what launches differ.",
            some(comparison.few)
        );
        out.push(warning("few-launches", text, add_launches(digests)));
    }
    out.extend(networks_warning(digests));
    let (first, second) = comparison.unmatched;
    if first + second > 0 {
        let (text, advice) = without_partner((first, second), digests);
        out.push(warning("no-partner", text, advice));
    }
    let few = comparison.count(Verdict::TooFew);
    if few > 0 {
        let text = format!(
            "{} {} too few samples for an interval of {} median in one launch, and {} not compared.",
            units::plural(few as u64, "cell"),
            units::verb(few, "has", "have"),
            units::verb(few, "its", "their"),
            units::verb(few, "is", "are")
        );
        out.push(warning("too-few", text, None));
    }
    out
}

/// That the runs were measured over different networks, where at least one was emulated.
fn networks_warning((first, second): (&Digest, &Digest)) -> Option<Warning> {
    let (one, other) = (Between::nodes_of(&first.run), Between::nodes_of(&second.run));
    let text = || {
        format!(
            "Networks: the runs had different ones, and what differs between their times may be due to that. The first: {}. The second: {}.",
            one.told(),
            other.told()
        )
    };
    one.differs_from(other).then(|| warning("networks-differ", text(), None))
}

/// How to come to enough launches of both runs; nothing where both have them, but not in every
/// cell.
fn add_launches((first, second): (&Digest, &Digest)) -> Option<String> {
    let few = [first, second].into_iter().filter(|digest| digest.run.launches.len() < ENOUGH_LAUNCHES);
    let advice = few.map(|digest| again::advice(digest, ENOUGH_LAUNCHES - digest.run.launches.len()));
    let advice: Vec<String> = advice.collect();
    (!advice.is_empty()).then(|| advice.join("; and: "))
}

/// Cells that only one of the runs has, and how to measure the second run so that it has them.
fn without_partner((first, second): (usize, usize), digests: (&Digest, &Digest)) -> (String, Option<String>) {
    let mut message = match (first, second) {
        (n, 0) => format!("{} of the first run", units::plural(n as u64, "cell")),
        (0, n) => format!("{} of the second run", units::plural(n as u64, "cell")),
        (n, m) => format!("{} of the first run and {m} of the second", units::plural(n as u64, "cell")),
    };
    message += match first + second {
        1 => " has no partner with equal configuration and is left out.",
        _ => " have no partner with equal configuration and are left out.",
    };
    let (one, other) = (configurations(digests.0), configurations(digests.1));
    let apart = one.difference(&other).filter(|c| begun_in_each_way(c).iter().any(|c| other.contains(c))).count();
    if apart > 0 {
        message += &format!(
            " Of these, {apart} of the first run {} in the second as well, but {} repetitions were begun in another way (--start).",
            units::verb(apart, "is", "are"),
            units::verb(apart, "its", "their")
        );
    }
    let folders = digests.0.folder.as_deref().zip(digests.1.folder.as_deref());
    let command = folders.and_then(|(a, b)| again::command(a, &digests.0.run, b, &digests.1.run));
    let advice =
        command.map(|command| format!("measure the second again as the first was, set up as it was then: {command}"));
    (message, advice.filter(|_| first > 0))
}

fn begun_in_each_way(c: &Configuration) -> [Configuration; 3] {
    [StartSync::None, StartSync::Barrier, StartSync::Window].map(|start| Configuration { start, ..c.clone() })
}

fn configurations(digest: &Digest) -> BTreeSet<&Configuration> {
    digest.run.cells.iter().map(|cell| &cell.configuration).collect()
}

/// What warnings are about, by their code, in words that need no explanation.
const PLAIN: [(&str, &str); 31] = [
    ("being-written", "still being measured"),
    ("clock-bounds", "clocks too far apart for short times"),
    ("clock-error", "clocks far apart"),
    ("clock-source", "a slow clock"),
    ("cut-line", "the last cell is lost"),
    ("cut-off", "a launch was cut off"),
    ("damaged-histogram", "a distribution is damaged"),
    ("dependence", "samples depend on each other"),
    ("ended-early", "the run ended early"),
    ("few-launches", "few launches for a comparison"),
    ("few-repetitions", "fewer repetitions than asked for"),
    ("few-samples", "few samples in some cells"),
    ("frequency-scaling", "processors change their speed"),
    ("launches-apart", "launches differ much"),
    ("left-out", "some of what was asked for was not measured"),
    ("moved-ranks", "ranks changed their processor"),
    ("networks-differ", "the runs had different networks"),
    ("no-partner", "cells that only one run has"),
    ("no-samples", "cells without samples"),
    ("not-carried", "messages did not go by what was set"),
    ("not-ended", "the run did not end"),
    ("not-settled", "times still changed at the end"),
    ("one-launch", "one launch only"),
    ("overhead", "reading the clock takes long"),
    ("oversubscribed", "more ranks than processors"),
    ("skew-within-clock-error", "starts closer together than clocks can tell"),
    ("too-few", "too few samples to compare"),
    ("unknown-fields", "fields that nobody knows"),
    ("unpinned-ranks", "ranks may move"),
    ("unreadable-samples", "samples are missing or damaged"),
    ("windows-missed", "agreed starts were missed"),
];

/// What a warning is about, in a few plain words; of a code that is not known here, the code's own.
#[must_use]
pub fn plain(code: &str) -> String {
    let known = PLAIN.iter().find(|p| p.0 == code).map(|p| p.1);
    known.map_or_else(|| code.replace(['-', '_'], " "), str::to_owned)
}

/// Warnings by what they are about, in the order in which each was told first.
#[must_use]
pub fn classes(all: &[Warning]) -> Vec<(String, Vec<&Warning>)> {
    let mut out: Vec<(String, Vec<&Warning>)> = Vec::new();
    for warning in all {
        let words = plain(&warning.code);
        match out.iter_mut().find(|c| c.0 == words) {
            Some(class) => class.1.push(warning),
            None => out.push((words, vec![warning])),
        }
    }
    out
}

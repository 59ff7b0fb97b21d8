//! Warnings: those that the record of a run holds, said once each whatever the number of launches
//! and cells, and those that follow from what was read.

use std::collections::BTreeMap;

use weir_distribution::{HdrHistogram, HistogramRecord, Run, Warning};

use crate::compare::ENOUGH_LAUNCHES;
use crate::digest::{Digest, Point, Profile};
use crate::reading::{APART, ENOUGH};
use crate::{again, units};

/// Code of a warning: a samples file is missing, not what `run.json` says, or damaged.
pub const UNREADABLE: &str = "unreadable-samples";
/// Code of a warning: a histogram cannot be read.
pub const DAMAGED: &str = "damaged-histogram";
/// Code of a warning: what the environment names did not carry all cells. The report words it for
/// the run as a whole.
pub const NOT_CARRIED: &str = "not-carried";
/// Code of the writer's warning about its clocks, which it gave before it measured.
const CLOCK: &str = "clock-error";

/// Warnings of the run, its launches and its cells; of one kind there is one, which names the
/// launches or counts the cells.
///
/// What the writer said about the clocks beforehand is left out where there are cells: these carry
/// the bounds that held.
#[must_use]
pub fn of_record(run: &Run) -> Vec<Warning> {
    let mut out: Vec<Warning> = run.warnings.clone();
    out.extend(
        of_launches(run)
            .into_iter()
            .filter(|w| run.cells.is_empty() || ![CLOCK, NOT_CARRIED].contains(&w.code.as_str())),
    );
    // What differs in numbers only is one kind; what says something else is not, whatever its code.
    let mut kinds: BTreeMap<(&str, String), (usize, &Warning, String)> = BTreeMap::new();
    for cell in &run.cells {
        for warning in &cell.warnings {
            let c = &cell.configuration;
            let place = || format!("{} at {}", c.label(), units::size(c.size_bytes));
            let kind = (warning.code.as_str(), without_numbers(&warning.message));
            kinds.entry(kind).or_insert_with(|| (0, warning, place())).0 += 1;
        }
    }
    for (n, warning, place) in kinds.into_values() {
        let more = if n > 1 { format!(" (and {} more)", units::plural(n as u64 - 1, "cell")) } else { String::new() };
        out.push(Warning { message: format!("{place}: {}{more}", warning.message), ..warning.clone() });
    }
    out
}

/// A text that is the same for texts that differ in their numbers only.
fn without_numbers(text: &str) -> String {
    text.chars().filter(|c| !c.is_ascii_digit()).collect()
}

/// A warning that follows from what was read.
#[must_use]
pub fn warning(code: &str, message: String, advice: Option<String>) -> Warning {
    Warning { code: code.into(), message, advice }
}

/// What is said, and the launches that say it.
type Said<'a> = Vec<(&'a str, Vec<u32>)>;

/// One warning for each kind: what each launch says, equal words once.
fn of_launches(run: &Run) -> Vec<Warning> {
    let mut kinds: Vec<(&Warning, Said)> = Vec::new();
    for launch in &run.launches {
        for warning in &launch.warnings {
            let place = kinds.iter().position(|k| k.0.code == warning.code && k.0.advice == warning.advice);
            let place = place.unwrap_or_else(|| {
                kinds.push((warning, Vec::new()));
                kinds.len() - 1
            });
            let said = &mut kinds[place].1;
            match said.iter_mut().find(|s| s.0 == warning.message) {
                Some(known) => known.1.push(launch.number),
                None => said.push((&warning.message, vec![launch.number])),
            }
        }
    }
    let message = |said: &[(&str, Vec<u32>)]| match (said, run.launches.len()) {
        ([(one, _)], 1) => (*one).to_owned(),
        ([(one, numbers)], n) if n == numbers.len() => format!("in each of the {n} launches: {one}"),
        _ => said.iter().map(|(text, of)| format!("{}: {text}", launches(of))).collect::<Vec<_>>().join("; "),
    };
    kinds.iter().map(|(first, said)| Warning { message: message(said), ..(*first).clone() }).collect()
}

/// Launches as people count them, from 1: `launch 3`, `launches 1 to 4`, `launches 1, 3`.
#[must_use]
pub fn launches(numbers: &[u32]) -> String {
    let shown: Vec<u64> = numbers.iter().map(|n| u64::from(*n) + 1).collect();
    match shown[..] {
        [one] => format!("launch {one}"),
        [first, .., last] if shown.windows(2).all(|w| w[1] == w[0] + 1) && shown.len() > 2 => {
            format!("launches {first} to {last}")
        }
        _ => format!("launches {}", shown.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")),
    }
}

/// Whether less can be said of a cell, as it has too few samples or none; not of one that somebody
/// described by its histogram alone.
fn is_poor(point: &Point) -> bool {
    !point.knows_p99() && (point.has_row() || point.curve.is_empty())
}

/// Cells with so few samples that less can be said of them, those with none among them; nothing if
/// all have enough.
#[must_use]
pub fn few_samples(digest: &Digest) -> Option<Warning> {
    let all = || digest.profiles.iter().flat_map(|p| p.points.values().map(move |point| (p, point)));
    let few: Vec<_> = all().filter(|(_, p)| is_poor(p)).collect();
    let (profile, least) = few.iter().min_by_key(|(_, p)| p.row.count / u64::from(p.launches.max(1)))?;
    let each = if least.launches > 1 { " in each launch" } else { "" };
    let none = match few.iter().filter(|(_, p)| !p.has_row()).count() {
        0 => String::new(),
        n => format!(", {n} of them none at all"),
    };
    let message = format!(
        "{} {} fewer than {ENOUGH} samples{none} (the least: {}{each}, {} at {}): their 99th percentile, the form of their distribution and fits would be chance and are left out.",
        units::of_cells(few.len(), all().count()),
        units::verb(few.len(), "has", "have"),
        units::count(least.row.count / u64::from(least.launches.max(1))),
        profile.title,
        units::size(least.size_bytes),
    );
    let advice = "measure for longer (--time), or fewer sizes (--sizes) or operations (--test)";
    Some(warning("few-samples", message, Some(advice.to_owned())))
}

/// Cells whose launches are so far apart that a median between them stands for none of them.
#[must_use]
pub fn far_apart(digest: &Digest) -> Option<Warning> {
    let all = || digest.profiles.iter().flat_map(|p| p.points.values().map(move |point| (p, point)));
    let apart: Vec<_> = all().filter_map(|(p, point)| Some((p, point, point.apart()?))).collect();
    let (profile, worst, factor) = apart.iter().max_by(|a, b| a.2.total_cmp(&b.2))?;
    let (low, high) = worst.launch_range()?;
    let message = format!(
        "Launches far apart: in {} the launches' medians are more than {} times apart; most in {} at {} ({} times: {}). The median between them stands for none of them.",
        units::of_cells(apart.len(), all().count()),
        units::number(APART),
        profile.title,
        units::size(worst.size_bytes),
        units::number(*factor),
        units::range(low, high),
    );
    let advice = format!("more launches tell which is usual: {}", again::advice(digest, ENOUGH_LAUNCHES));
    Some(warning("launches-apart", message, Some(advice)))
}

/// Ranks that changed their processor while a point was measured: `rank 3`, `ranks 0, 3`; at most
/// eight by number.
#[must_use]
pub fn moved_ranks(point: &Point) -> Option<String> {
    const SHOWN: usize = 8;
    let numbers: Vec<String> = point.moved.iter().take(SHOWN).map(|m| m.rank.to_string()).collect();
    let more = match point.moved.len().saturating_sub(SHOWN) {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    let word = if point.moved.len() == 1 { "rank" } else { "ranks" };
    (!numbers.is_empty()).then(|| format!("{word} {}{more}", numbers.join(", ")))
}

/// Whether a cell of this operation has too few samples for a quantile or a form, which its tables
/// and plots say.
#[must_use]
pub fn has_few(profile: &Profile) -> bool {
    profile.points.values().any(is_poor)
}

/// Histograms of a run that cannot be read: field of `run.json`, and what is wrong with it.
#[must_use]
pub fn damaged_histograms(run: &Run) -> Vec<(String, String)> {
    let mut out = Vec::new();
    for (i, cell) in run.cells.iter().enumerate() {
        let of_skew = cell.skew.as_ref().and_then(|s| s.histogram.as_ref());
        let of_span = cell.span.as_ref().and_then(|s| s.histogram.as_ref());
        let of_waits = cell.waits.as_ref().and_then(|s| s.histogram.as_ref());
        let all = [
            ("histogram", cell.histogram.as_ref()),
            ("skew.histogram", of_skew),
            ("span.histogram", of_span),
            ("waits.histogram", of_waits),
        ];
        for (at, histogram) in all {
            let Some(HistogramRecord::Hdr(hdr)) = histogram else { continue };
            if let Err(problem) = check(hdr) {
                let c = &cell.configuration;
                let field = format!("cells[{i}].{at}.hdr.v2_deflate_base64");
                out.push((field, format!("{problem} ({} at {})", c.label(), units::size(c.size_bytes))));
            }
        }
    }
    out
}

fn check(hdr: &HdrHistogram) -> Result<(), String> {
    let histogram = weir_stats::histogram_from_base64(&hdr.v2_deflate_base64).map_err(|e| e.to_string())?;
    if histogram.len() != hdr.count {
        return Err(format!("holds {} values where count says {}", histogram.len(), hdr.count));
    }
    Ok(())
}

/// The same as warnings.
#[must_use]
pub fn of_histograms(run: &Run) -> Vec<Warning> {
    let warning = |(field, problem): (String, String)| Warning {
        code: DAMAGED.into(),
        message: format!("run.json: {field}: {problem}"),
        advice: Some("take run.json from a copy of the run, or measure the cell again".into()),
    };
    damaged_histograms(run).into_iter().map(warning).collect()
}

/// Whether a part of the run is missing or damaged, so that not all of it is shown.
#[must_use]
pub fn is_damaged(digest: &Digest) -> bool {
    digest.warnings.iter().any(|w| [UNREADABLE, DAMAGED].contains(&w.code.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_distribution::{Cell, Launch};

    fn warning(code: &str, message: &str) -> Warning {
        Warning { code: code.into(), message: message.into(), advice: Some("do".into()) }
    }

    fn run(launches: &[&[(&str, &str)]]) -> Run {
        let mut run = Run::new("m");
        for (number, warnings) in launches.iter().enumerate() {
            let warnings = warnings.iter().map(|(code, message)| warning(code, message)).collect();
            run.launches.push(Launch { number: number as u32, warnings, ..Launch::default() });
        }
        run
    }

    fn messages(run: &Run) -> Vec<String> {
        of_record(run).into_iter().map(|w| w.message).collect()
    }

    #[test]
    fn equal_warnings_of_launches_are_one_that_counts_from_one() {
        let (a, b) = (("unpinned", "ranks 0, 1 may move"), ("unpinned", "ranks 0 to 3 may move"));
        assert_eq!(messages(&run(&[&[a]])), ["ranks 0, 1 may move"]);
        assert_eq!(messages(&run(&[&[a], &[a]])), ["in each of the 2 launches: ranks 0, 1 may move"]);
        let mixed = run(&[&[a], &[a], &[a], &[a], &[b, ("crowded", "4 on 2")]]);
        assert_eq!(
            messages(&mixed),
            ["launches 1 to 4: ranks 0, 1 may move; launch 5: ranks 0 to 3 may move", "launch 5: 4 on 2"]
        );
        assert_eq!(launches(&[0, 2]), "launches 1, 3");
    }

    #[test]
    fn cells_that_say_the_same_but_for_numbers_are_counted_together_and_others_are_not() {
        let mut run = run(&[]);
        let said = [
            ("windows-missed", "few repetitions are left"),
            ("windows-missed", "begun by a barrier instead"),
            ("windows-missed", "few repetitions are left"),
            ("not-settled", "changed in the second half of its 135 repetitions"),
            ("not-settled", "changed in the second half of its 80 repetitions"),
            ("windows-missed", "few repetitions are left"),
        ];
        run.cells = said
            .iter()
            .zip(1..)
            .map(|((code, message), id)| {
                let configuration = weir_distribution::Configuration::pair("send", u64::from(id));
                Cell { warnings: vec![warning(code, message)], ..Cell::new(id, 0, configuration) }
            })
            .collect();
        let expected = [
            "send at 4 B: changed in the second half of its 135 repetitions (and 1 cell more)",
            "send at 2 B: begun by a barrier instead",
            "send at 1 B: few repetitions are left (and 2 cells more)",
        ];
        let mut found = messages(&run);
        found.sort_by_key(|m| expected.iter().position(|e| e == m));
        assert_eq!(found, expected);
    }

    #[test]
    fn what_was_said_of_the_clocks_beforehand_gives_way_to_what_cells_carry() {
        let mut run = run(&[&[("clock-error", "2.1 us apart")]]);
        assert_eq!(messages(&run), ["2.1 us apart"]);
        run.cells = vec![Cell::new(0, 0, weir_distribution::Configuration::pair("send", 8))];
        assert!(messages(&run).is_empty());
    }
}

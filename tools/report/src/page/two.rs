//! The page of two runs.

use std::collections::BTreeSet;

use weir_distribution::{Configuration, StartSync, Warning};

use crate::again;
use crate::compare::{Comparison, ENOUGH_LAUNCHES, Match, Verdict};
use crate::digest::Digest;
use crate::notes::warning;
use crate::order::{count_levels, drawn_levels};
use crate::page::facts::{Fact, facts, warnings as run_warnings};
use crate::page::{controls, figure, folded, footer, ids, level_choice};
use crate::plots::{Detail, compare, sentence};
use crate::scale::Kind;
use crate::svg::escape;
use crate::table::Table;
use crate::units;

/// The page's title.
pub fn title(first: &Digest, second: &Digest) -> String {
    format!("{} against {}", second.name, first.name)
}

/// All between the body's tags.
pub fn body(digests: (&Digest, &Digest), comparison: &Comparison, detail: &Detail) -> String {
    let titles = || comparison.matches.iter().map(|m| m.title.clone());
    let ids = ids(titles());
    let mut out = format!("<header><h1>{}</h1>\n", escape(&title(digests.0, digests.1)));
    out += &format!("<p>{}.</p>\n", escape(&sentence(&comparison.summary())));
    let told: Vec<Warning> = all_warnings(digests, comparison).into_iter().map(|told| told.warning).collect();
    out += &folded(&told);
    out += &side_by_side(digests);
    out += METHOD;
    out += "</header>\n";
    out += &controls(&ids.iter().cloned().zip(titles()).collect::<Vec<_>>());
    out += "<main id=\"content\">\n";
    if comparison.matches.is_empty() {
        out += "<p>The two runs have no operation with equal configuration in common: nothing can be compared.</p>\n";
    }
    for (matched, id) in comparison.matches.iter().zip(&ids) {
        out += &section(digests, matched, id, detail);
    }
    out + "</main>\n" + &footer()
}

const METHOD: &str = "<details><summary>How this was judged</summary><p>What stands for a run is the median of its launch or, of several launches, the geometric mean of their medians; the ratio is the quotient of the two. Where both runs have two launches or more, the launch is the unit: Welch's t test on the logarithms of the launches' medians, each of which weighs the same, gives interval and p-value. It assumes that these logarithms are nearly normal; a test by ranks would assume nothing, and find nothing: with five launches each its p-value is 2/252 at least, whatever the difference, which the correction for some tens of cells makes meaningless. Where a run has one launch, the 95 % intervals of the medians are compared, which know how much repetitions depend on each other but not how much launches differ: they can say that these launches differ, but not whether the machines do, which is left undecided. p-values are corrected for the number of cells after Holm, and a difference counts below 0.05. A difference smaller than the sum of both runs' bounds on the clocks' error is none, whatever a test says.</p></details>\n";

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
pub fn all_warnings(digests: (&Digest, &Digest), comparison: &Comparison) -> Vec<Told> {
    let about_both = of_comparison(digests, comparison).into_iter().map(|warning| Told { run: None, warning });
    let mut out: Vec<Told> = about_both.collect();
    let (one, other) = (run_warnings(digests.0), run_warnings(digests.1));
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

/// How to come to enough launches of both runs; nothing where both have them, but not in every cell.
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

fn side_by_side((first, second): (&Digest, &Digest)) -> String {
    let (a, b) = (facts(first), facts(second));
    let mut out = format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Both runs\"><table class=\"facts\"><caption>Both runs; what differs is marked</caption><thead><tr><th scope=\"col\"></th><th scope=\"col\">first: {}</th><th scope=\"col\">second: {}</th></tr></thead><tbody>\n",
        escape(&first.name),
        escape(&second.name)
    );
    let mut names: Vec<&str> = a.iter().map(|f| f.0).collect();
    names.extend(b.iter().map(|f| f.0).filter(|n| !a.iter().any(|f| f.0 == *n)));
    for name in names {
        let of = |all: &[Fact]| all.iter().find(|f| f.0 == name).map_or_else(|| "–".to_owned(), |f| f.1.clone());
        let (one, other) = (of(&a), of(&b));
        // Times of measuring always differ, which says nothing.
        let differs = if one != other && name != "Measured" { " class=\"differs\"" } else { "" };
        out += &format!(
            "<tr{differs}><th scope=\"row\">{name}</th><td>{}</td><td>{}</td></tr>\n",
            escape(&one),
            escape(&other)
        );
    }
    out + "</tbody></table></div>\n"
}

fn section(digests: (&Digest, &Digest), matched: &Match, id: &str, detail: &Detail) -> String {
    let mut out = format!("<section data-operation id=\"{id}\"><h2>{}</h2>\n", escape(&matched.title));
    out += &format!("<p class=\"lead\">{}.</p>\n", escape(&sentence(&matched.key.qualities())));
    let cells = count_levels(&matched.levels, matched.pairs.iter().map(|p| p.level));
    out += &level_choice(&matched.levels, &cells);
    out += &Table::of_match(matched).html();
    out += "<div class=\"figures\">\n";
    out += &figure(&compare::ratios(matched), None, None);
    for level in drawn_levels(&cells, detail.levels) {
        for kind in [Kind::Log, Kind::Linear] {
            out += &compare::sizes(digests, matched, level, kind)
                .map_or_else(String::new, |p| figure(&p, Some(kind.word()), Some(level)));
        }
        out +=
            &compare::cdfs(digests, matched, level, detail).map_or_else(String::new, |p| figure(&p, None, Some(level)));
    }
    out + "</div></section>\n"
}

//! The page of two runs.

use weir_distribution::Warning;

use super::facts::{Fact, facts};
use super::parts::{contents, controls, figure, figures, folded, footer, ids, level_choice, operation, overview};
use crate::compare::{Comparison, Match};
use crate::digest::Digest;
use crate::order::{count_levels, drawn_levels};
use crate::plots::{Detail, compare, overview as pictures, ratios, sentence};
use crate::scale::Kind;
use crate::svg::escape;
use crate::table::Table;
use crate::warnings;

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
    let told: Vec<Warning> = warnings::of_two(digests, comparison).into_iter().map(|told| told.warning).collect();
    out += &folded(&told);
    out += &format!("<details><summary>Both runs beside each other</summary>{}</details>\n", side_by_side(digests));
    out += METHOD;
    out += "</header>\n";
    let pictures = pictures::of_two(digests, comparison);
    out += "<main id=\"content\">\n";
    out += &overview(&pictures, &ids);
    out += &contents(&pictures, &ids, &[]);
    out += &controls(&ids.iter().cloned().zip(titles()).collect::<Vec<_>>());
    if comparison.matches.is_empty() {
        out += "<p>The two runs have no operation with equal configuration in common: nothing can be compared.</p>\n";
    }
    for (matched, id) in comparison.matches.iter().zip(&ids) {
        let words = pictures::words_of_two(matched);
        out += &operation(id, &matched.title, &words, comparison.matches.len(), &inside(digests, matched, detail));
    }
    out + "</main>\n" + &footer()
}

const METHOD: &str = "<details><summary>How this was judged</summary><p>What stands for a run is the median of its launch or, of several launches, the geometric mean of their medians; the ratio is the quotient of the two. Where both runs have two launches or more, the launch is the unit: Welch's t test on the logarithms of the launches' medians, each of which weighs the same, gives interval and p-value. It assumes that these logarithms are nearly normal; a test by ranks would assume nothing, and find nothing: with five launches each its p-value is 2/252 at least, whatever the difference, which the correction for some tens of cells makes meaningless. Where a run has one launch, the 95 % intervals of the medians are compared, which know how much repetitions depend on each other but not how much launches differ: they can say that these launches differ, but not whether the machines do, which is left undecided. p-values are corrected for the number of cells after Holm, and a difference counts below 0.05. A difference smaller than the sum of both runs' bounds on the clocks' error is none, whatever a test says.</p></details>\n";

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

/// What is inside of an operation: its table, its plots.
fn inside(digests: (&Digest, &Digest), matched: &Match, detail: &Detail) -> String {
    let mut out = format!("<p class=\"lead\">{}.</p>\n", escape(&sentence(&matched.key.qualities())));
    let cells = count_levels(&matched.levels, matched.pairs.iter().map(|p| p.level));
    out += &level_choice(&matched.levels, &cells);
    let levels = drawn_levels(&cells, detail.levels);
    let mut first = figure(&ratios::ratios(matched), None, None);
    for &level in &levels {
        for kind in [Kind::Log, Kind::Linear] {
            let plots = [
                compare::sizes(digests, matched, level, kind),
                compare::bandwidths(matched, level, kind),
                compare::spans(matched, level, kind),
            ];
            let plots = plots.iter().flatten();
            first += &plots.map(|p| figure(p, Some(kind.word()), Some(level))).collect::<String>();
        }
    }
    out += &figures(&first);
    out += &Table::of_match(matched).html();
    let forms = levels.iter().filter_map(|level| Some((*level, compare::cdfs(digests, matched, *level, detail)?)));
    out + &figures(&forms.map(|(level, p)| figure(&p, None, Some(level))).collect::<String>())
}

//! The page of two runs.

use crate::compare::{Comparison, Match, Verdict};
use crate::digest::Digest;
use crate::order::{count_levels, drawn_levels};
use crate::page::facts::{Fact, facts, warnings as run_warnings};
use crate::page::{controls, figure, footer, ids, level_choice, warnings};
use crate::plots::{Detail, compare, sentence};
use crate::scale::Kind;
use crate::svg::escape;
use crate::table::Table;

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
    out += &warnings(&all_warnings(digests, comparison));
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

const METHOD: &str = "<details><summary>How this was judged</summary><p>The ratio is the Hodges-Lehmann estimate on logarithms (the median of all ratios of a time of the second run to one of the first) with its 95 % interval. Samples are compared by the Brunner-Munzel test, medians of launches, where both runs have five or more, by the Mann-Whitney test; p-values are corrected for the number of cells after Holm, and a difference counts below 0.05. A difference of medians that is smaller than the sum of both runs' bounds on the clocks' error is none, whatever a test says. Samples of one launch depend on each other more than a test knows: measure with several launches before you believe a small difference.</p></details>\n";

/// What must be known before the comparison is believed, with what to do about it.
#[must_use]
pub fn all_warnings(digests: (&Digest, &Digest), comparison: &Comparison) -> Vec<(String, Option<String>)> {
    let mut out = Vec::new();
    if comparison.few_launches && comparison.pairs().next().is_some() {
        let advice = "weir bench --launches 5 on both machines".to_owned();
        out.push(("Some cells have fewer than five launches in one of the runs: what differs from launch to launch of one machine is not told from what differs between the runs.".to_owned(), Some(advice)));
    }
    let (first, second) = comparison.unmatched;
    if first + second > 0 {
        out.push((format!("{first} cells of the first run and {second} of the second have no partner with equal configuration and are left out."), None));
    }
    let few = comparison.count(Verdict::TooFew);
    if few > 0 {
        out.push((format!("{few} cells have no samples, or one, and are not compared."), None));
    }
    for (which, digest) in [("first", digests.0), ("second", digests.1)] {
        out.extend(
            run_warnings(digest)
                .into_iter()
                .map(|(message, advice)| (format!("In the {which} run: {message}"), advice)),
        );
    }
    out
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

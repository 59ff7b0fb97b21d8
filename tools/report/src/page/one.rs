//! The page of one run.

use super::facts::facts;
use super::parts::{contents, controls, figure, figures, folded, footer, ids, level_choice, operation, overview};
use crate::digest::{Digest, Point, Profile};
use crate::frame::Plot;
use crate::plots::{
    Detail, bandwidth, between, clock, cumulative, drawn_levels, fits, overview as pictures, ridgeline, sentence,
    sizes, strays, surface,
};
use crate::scale::Kind;
use crate::svg::escape;
use crate::table::Table;
use crate::warnings;

/// The page's title.
pub fn title(digest: &Digest) -> String {
    match &digest.run.title {
        Some(title) => format!("{}: {title}", digest.run.machine),
        None => format!("{}: times of messages", digest.run.machine),
    }
}

/// The section of what is about no single operation.
const WHOLE: &str = "whole";

/// All between the body's tags.
pub fn body(digest: &Digest, detail: &Detail) -> String {
    let titles = || digest.profiles.iter().map(|p| p.title.clone());
    let ids = ids(titles());
    let mut out = format!("<header><h1>{}</h1>\n", escape(&title(digest)));
    out += &folded(&warnings::of_run(digest));
    out += &header(digest);
    out += "</header>\n";
    let pictures = pictures::of_run(digest);
    let whole: Vec<Plot> = [strays::of_run(digest, detail), clock::clock(digest)].into_iter().flatten().collect();
    let last: &[_] = if whole.is_empty() { &[] } else { &[(WHOLE, "The run as a whole")] };
    out += "<main id=\"content\">\n";
    out += &overview(&pictures, &ids);
    out += &contents(&pictures, &ids, last);
    out += &controls(&ids.iter().cloned().zip(titles()).collect::<Vec<_>>());
    if digest.profiles.is_empty() {
        out += "<p>This run holds no finished cell.</p>\n";
    }
    for (profile, id) in digest.profiles.iter().zip(&ids) {
        let words = pictures::words_of(profile);
        out += &operation(id, &profile.title, &words, digest.profiles.len(), &inside(profile, detail));
    }
    if !whole.is_empty() {
        out += &format!("<section id=\"{WHOLE}\"><h2>The run as a whole</h2>\n<div class=\"figures\">\n");
        out += &whole.iter().map(|p| figure(p, None, None)).collect::<String>();
        out += "</div></section>\n";
    }
    out + "</main>\n" + &footer()
}

fn header(digest: &Digest) -> String {
    let facts = facts(digest);
    // What was measured over what stands in sight; the rest is there for who asks.
    let first = facts.iter().filter(|f| ["Transport", "Measured"].contains(&f.0));
    let first: Vec<String> = first.map(|f| sentence(&f.1)).collect();
    let mut out = format!("<p class=\"lead\">{}.</p>\n", escape(&first.join(". ")));
    out += "<details><summary>Machine, MPI, transport, placement, clock</summary><dl>\n";
    for (name, text) in &facts {
        out += &format!("<dt>{name}</dt><dd>{}</dd>\n", escape(text));
    }
    out += "</dl></details>\n";
    let environment: Vec<_> =
        digest.run.environment.iter().filter(|v| !weir_distribution::is_of_a_launch(v.0)).collect();
    if !environment.is_empty() {
        out += "<details><summary>Environment</summary><dl>\n";
        for (name, value) in environment {
            out += &format!("<dt><code>{}</code></dt><dd><code>{}</code></dd>\n", escape(name), escape(value));
        }
        out += "</dl></details>\n";
    }
    out
}

/// What is inside of an operation: its table, its plots.
fn inside(profile: &Profile, detail: &Detail) -> String {
    let mut out = format!("<p class=\"lead\">{}.</p>\n", escape(&sentence(&profile.key.qualities())));
    out += &level_choice(&profile.levels, &profile.cells());
    let levels = drawn_levels(profile, detail);
    // What is asked first: how long, how fast. Then the numbers, then the forms.
    out += &figures(&against(profile, &levels, detail));
    out += &Table::of_profile(profile).html();
    out += &Table::of_service(profile).map_or_else(String::new, |t| t.html());
    let mut forms: String = levels.iter().map(|level| of_level(profile, *level, detail)).collect();
    let rest = [surface::surface(profile), strays::of_profile(profile, detail), fits::parameters(profile, detail)];
    forms += &rest.into_iter().flatten().map(|p| figure(&p, None, None)).collect::<String>();
    out += &figures(&forms);
    out += &Table::of_fits(profile).map_or_else(String::new, |t| t.html());
    if levels.len() < profile.levels.len() {
        out += &format!(
            "<p class=\"muted\">To keep the page small, {} of {} levels are drawn; <code>weir report --format svg</code> draws all.</p>\n",
            levels.len(),
            profile.levels.len()
        );
    }
    out
}

/// Time, bandwidth and span against size, or time against level.
fn against(profile: &Profile, levels: &[usize], detail: &Detail) -> String {
    let mut out = String::new();
    if profile.sizes.len() == 1 && profile.levels.len() > 1 {
        for kind in [Kind::Log, Kind::Linear] {
            out += &figure(&sizes::against_level(profile, kind, detail), Some(kind.word()), None);
        }
    }
    for &level in levels {
        for kind in [Kind::Log, Kind::Linear] {
            let time = || sizes::against_size(profile, level, kind, detail);
            let plots = [
                (profile.at_level(level).count() > 1).then(time),
                bandwidth::against_size(profile, level, kind),
                between::span_against_size(profile, level, kind),
            ];
            let plots = plots.iter().flatten();
            out += &plots.map(|p| figure(p, Some(kind.word()), Some(level))).collect::<String>();
        }
    }
    out
}

/// The forms of distributions at a level.
fn of_level(profile: &Profile, level: usize, detail: &Detail) -> String {
    let mut out = String::new();
    for kind in [Kind::Log, Kind::Linear] {
        let mut plots = Vec::new();
        if profile.at_level(level).any(|p| !p.curve.is_empty()) {
            if profile.at_level(level).any(Point::has_form) {
                plots.push(ridgeline::ridgeline(profile, level, kind, detail));
            }
            plots.push(cumulative::cdf(profile, level, kind, detail));
        }
        out += &plots.iter().map(|p| figure(p, Some(kind.word()), Some(level))).collect::<String>();
    }
    if profile.at_level(level).any(|p| !p.curve.is_empty()) {
        out += &figure(&cumulative::tail(profile, level, detail), None, Some(level));
    }
    let rest = [
        between::histograms(profile, level, between::SPAN, detail),
        between::histograms(profile, level, between::SKEW, detail),
        fits::overlay(profile, level, detail),
    ];
    out + &rest.into_iter().flatten().map(|p| figure(&p, None, Some(level))).collect::<String>()
}

//! The page of one run.

use crate::digest::{Digest, Point, Profile};
use crate::page::facts::{facts, warnings as run_warnings};
use crate::page::{controls, figure, footer, ids, level_choice, warnings};
use crate::plots::{Detail, clock, cumulative, drawn_levels, fits, ridgeline, sentence, sizes, skew, strays, surface};
use crate::scale::Kind;
use crate::svg::escape;
use crate::table::Table;

/// The page's title.
pub fn title(digest: &Digest) -> String {
    match &digest.run.title {
        Some(title) => format!("{}: {title}", digest.run.machine),
        None => format!("{}: times of messages", digest.run.machine),
    }
}

/// All between the body's tags.
pub fn body(digest: &Digest, detail: &Detail) -> String {
    let titles = || digest.profiles.iter().map(|p| p.title.clone());
    let ids = ids(titles());
    let mut out = format!("<header><h1>{}</h1>\n", escape(&title(digest)));
    out += &warnings(&run_warnings(digest));
    out += &header(digest);
    out += "</header>\n";
    out += &controls(&ids.iter().cloned().zip(titles()).collect::<Vec<_>>());
    out += "<main id=\"content\">\n";
    if digest.profiles.is_empty() {
        out += "<p>This run holds no finished cell.</p>\n";
    }
    for (profile, id) in digest.profiles.iter().zip(&ids) {
        out += &section(profile, id, detail);
    }
    let whole: Vec<_> = [strays::of_run(digest, detail), clock::clock(digest)].into_iter().flatten().collect();
    if !whole.is_empty() {
        out += "<section><h2>The run as a whole</h2>\n<div class=\"figures\">\n";
        out += &whole.iter().map(|p| figure(p, None, None)).collect::<String>();
        out += "</div></section>\n";
    }
    out + "</main>\n" + &footer()
}

fn header(digest: &Digest) -> String {
    let mut out = String::from("<dl>\n");
    for (name, text) in facts(digest) {
        out += &format!("<dt>{name}</dt><dd>{}</dd>\n", escape(&text));
    }
    out += "</dl>\n";
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

fn section(profile: &Profile, id: &str, detail: &Detail) -> String {
    let mut out = format!("<section data-operation id=\"{id}\"><h2>{}</h2>\n", escape(&profile.title));
    out += &format!("<p class=\"lead\">{}.</p>\n", escape(&sentence(&profile.key.qualities())));
    out += &level_choice(&profile.levels, &profile.cells());
    out += &Table::of_profile(profile).html();
    out += &Table::of_service(profile).map_or_else(String::new, |t| t.html());
    out += "<div class=\"figures\">\n";
    if profile.sizes.len() == 1 && profile.levels.len() > 1 {
        for kind in [Kind::Log, Kind::Linear] {
            out += &figure(&sizes::against_level(profile, kind, detail), Some(kind.word()), None);
        }
    }
    let levels = drawn_levels(profile, detail);
    for &level in &levels {
        out += &of_level(profile, level, detail);
    }
    let rest = [surface::surface(profile), strays::of_profile(profile, detail), fits::parameters(profile, detail)];
    out += &rest.into_iter().flatten().map(|p| figure(&p, None, None)).collect::<String>();
    out += "</div>\n";
    out += &Table::of_fits(profile).map_or_else(String::new, |t| t.html());
    if levels.len() < profile.levels.len() {
        out += &format!(
            "<p class=\"muted\">To keep the page small, {} of {} levels are drawn; <code>weir report --format svg</code> draws all.</p>\n",
            levels.len(),
            profile.levels.len()
        );
    }
    out + "</section>\n"
}

fn of_level(profile: &Profile, level: usize, detail: &Detail) -> String {
    let mut out = String::new();
    for kind in [Kind::Log, Kind::Linear] {
        let mut plots = Vec::new();
        if profile.at_level(level).count() > 1 {
            plots.push(sizes::against_size(profile, level, kind, detail));
        }
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
    out += &skew::skew(profile, level, detail).map_or_else(String::new, |p| figure(&p, None, Some(level)));
    out += &fits::overlay(profile, level, detail).map_or_else(String::new, |p| figure(&p, None, Some(level)));
    out
}

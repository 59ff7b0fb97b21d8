//! The page: plots, the costliest lines, and a space-time diagram that one can zoom, in one file
//! that needs no network.

use serde_json::json;
use weir_report::page::{Extra, document_with, figure};
use weir_report::svg::escape;
use weir_report::units;

use crate::timeline::{Doing, Timeline};
use crate::{Point, Scene, plots};

const SCRIPT: &str = include_str!("timeline.js");
const STYLE: &str = include_str!("scene.css");

/// SHA-256 of the script in base 64: what the page's policy lets a browser run. A test computes it.
const SCRIPT_HASH: &str = "fXr18LMkQcYvU4RwFr7NN6UNfQDwrMt2USQnZaTL6P0=";

/// The page of a scene.
#[must_use]
pub fn html(scene: &Scene) -> String {
    let data = scene.timeline.as_ref().map_or_else(String::new, data);
    document_with(
        &scene.title,
        &body(scene),
        &Extra { style: STYLE, script: SCRIPT, script_hash: SCRIPT_HASH, data: &data },
    )
}

fn body(scene: &Scene) -> String {
    let mut out = format!("<header><h1>{}</h1>\n<dl>\n", escape(&scene.title));
    for (name, value) in &scene.facts {
        out += &format!("<dt>{}</dt><dd>{}</dd>\n", escape(name), escape(value));
    }
    out += "</dl>\n";
    out += &notices(&scene.notices);
    out += "</header>\n<main id=\"content\">\n";
    if scene.points.is_empty() {
        out += "<p>Nothing was predicted.</p>\n";
    }
    out += &table(&scene.points, scene.work());
    out += &failed(&scene.failed);
    let drawn = [plots::speedup(scene), plots::run_time(scene), plots::causes(scene), plots::distribution(scene)];
    out += "<div class=\"figures\">\n";
    out += &drawn.into_iter().flatten().map(|plot| figure(&plot, None, None)).collect::<String>();
    out += "</div>\n";
    out += &scene.timeline.as_ref().map_or_else(String::new, diagram);
    out += &lines(&scene.points);
    out += "</main>\n";
    out + &format!(
        "<footer><p>Made by weir predict {}. This file needs no network.</p></footer>\n",
        env!("CARGO_PKG_VERSION")
    )
}

fn notices(all: &[String]) -> String {
    if all.is_empty() {
        return String::new();
    }
    let items: String = all.iter().map(|n| format!("<li>{}</li>\n", escape(n))).collect();
    format!(
        "<section class=\"warnings\" aria-label=\"Warnings\"><h2>Read this first</h2><ul>\n{items}</ul></section>\n"
    )
}

fn time(seconds: f64) -> String {
    units::time_in_column(seconds * 1e9)
}

fn table(points: &[Point], work: Option<(u32, f64)>) -> String {
    let Some(first) = points.first() else { return String::new() };
    let names: Vec<&str> = first.causes.iter().map(|(name, _)| name.as_str()).collect();
    let used = |name: &str| points.iter().any(|p| p.causes.iter().any(|(n, s)| n == name && *s > 0.0));
    let names: Vec<&str> = names.into_iter().filter(|n| used(n)).collect();
    let mut out = String::from(
        "<section><h2>Predicted run times</h2>\n<div class=\"scroll\"><table><caption>Times with the band that holds 95 % of runs; shares of all processes' time by what it went to.</caption>\n<thead><tr><th>processes</th><th>median</th><th>95 % from</th><th>to</th><th>speed-up</th>",
    );
    out += &names.iter().map(|n| format!("<th>{}</th>", escape(n))).collect::<String>();
    out += "</tr></thead>\n<tbody>\n";
    for point in points {
        let speedup = work
            .filter(|_| point.median_s > 0.0)
            .map_or_else(|| "–".to_owned(), |(_, s)| format!("{:.2}", s / point.median_s));
        out += &format!(
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td><td>{speedup}</td>",
            point.numprocs,
            time(point.median_s),
            time(point.low_s),
            time(point.high_s)
        );
        let all: f64 = point.causes.iter().map(|c| c.1).sum();
        for name in &names {
            let own: f64 = point.causes.iter().filter(|(n, _)| n == name).map(|c| c.1).sum();
            out += &format!("<td>{:.1} %</td>", if all > 0.0 { own / all * 100.0 } else { 0.0 });
        }
        out += "</tr>\n";
    }
    out + "</tbody></table></div></section>\n"
}

/// Numbers of processes without a prediction.
fn failed(all: &[(u32, String)]) -> String {
    if all.is_empty() {
        return String::new();
    }
    let rows = all.iter().map(|(numprocs, why)| {
        format!("<tr><th scope=\"row\">{numprocs}</th><td class=\"left\">{}</td></tr>\n", escape(why))
    });
    format!(
        "<section><h2>Not predicted</h2>\n<div class=\"scroll\"><table class=\"lines\"><thead><tr><th>processes</th><th class=\"left\">why</th></tr></thead>\n<tbody>\n{}</tbody></table></div></section>\n",
        rows.collect::<String>()
    )
}

/// Costliest lines of each number of processes, the last shown open.
fn lines(points: &[Point]) -> String {
    let with: Vec<&Point> = points.iter().filter(|p| !p.lines.is_empty()).collect();
    if with.is_empty() {
        return String::new();
    }
    let mut out = String::from("<section><h2>Where in the source time is lost</h2>\n");
    for (i, point) in with.iter().enumerate() {
        let all: f64 = point.causes.iter().map(|c| c.1).sum();
        let open = if i + 1 == with.len() { " open" } else { "" };
        out += &format!(
            "<details{open}><summary>{}</summary><div class=\"scroll\"><table class=\"lines\">\n",
            units::plural_es(u64::from(point.numprocs), "process")
        );
        out += "<thead><tr><th>line</th><th class=\"left\">text</th><th>lost</th><th>of all time</th><th class=\"left\">mostly to</th></tr></thead>\n<tbody>\n";
        for line in &point.lines {
            let share = if all > 0.0 { line.total_s() / all * 100.0 } else { 0.0 };
            let causes = line.causes.iter().take(3).filter(|c| c.1 > 0.0);
            let causes =
                causes.map(|(name, s)| format!("{} {}", escape(name), time(*s))).collect::<Vec<_>>().join(", ");
            out += &format!(
                "<tr><th scope=\"row\">{}</th><td class=\"left\"><code>{}</code></td><td>{}</td><td>{share:.1} %</td><td class=\"left\">{causes}</td></tr>\n",
                escape(&line.place),
                escape(line.text.trim()),
                time(line.total_s())
            );
        }
        out += "</tbody></table></div></details>\n";
    }
    out + "</section>\n"
}

fn diagram(timeline: &Timeline) -> String {
    let mut out =
        format!("<section><h2>One run over time, {}</h2>\n", units::plural_es(u64::from(timeline.numprocs), "process"));
    if let Some(cut) = timeline.cut() {
        out += &format!("<p>{}</p>\n", escape(&cut));
    }
    out += "<p class=\"keys\">";
    for doing in Doing::ALL {
        out += &format!("<span class=\"key {0}\"></span>{0} ", doing.name());
    }
    out += "<span class=\"key message\"></span>message</p>\n<div class=\"spacetime\"><canvas id=\"spacetime\" tabindex=\"0\" role=\"img\" aria-label=\"Space-time diagram: a row for each process, time from left to right. Plus and minus zoom, arrow keys move, 0 shows all.\"></canvas></div>\n";
    out += "<p class=\"muted\">Wheel or + and &minus; zoom, dragging or arrow keys move, 0 or a double click shows all. Messages are drawn once there is room for them. <button id=\"whole\" type=\"button\">Show all</button> <output id=\"window\"></output></p>\n";
    out += "<noscript><p>The diagram needs scripts; the plots and tables do not.</p></noscript>\n</section>\n";
    out
}

/// What the script draws: times in whole nanoseconds; bars as `[start, length, doing, place]` for
/// each process, messages as `[from, to, sent, received, bytes, place]`.
fn data(timeline: &Timeline) -> String {
    let rows = timeline
        .bars
        .iter()
        .map(|b| b.process)
        .chain(timeline.arrows.iter().flat_map(|a| [a.from, a.to]))
        .max()
        .map_or(0, |m| m + 1);
    let rows = rows.min(timeline.numprocs) as usize;
    let mut bars: Vec<Vec<u64>> = vec![Vec::new(); rows];
    for bar in &timeline.bars {
        let Some(row) = bars.get_mut(bar.process as usize) else { continue };
        let doing = Doing::ALL.iter().position(|d| *d == bar.doing).unwrap_or(0) as u64;
        row.extend([
            whole(bar.start_ns),
            whole(bar.end_ns).saturating_sub(whole(bar.start_ns)),
            doing,
            u64::from(bar.place),
        ]);
    }
    let inside = |rank: u32| (rank as usize) < rows;
    let arrows = timeline.arrows.iter().filter(|a| inside(a.from) && inside(a.to));
    let arrows: Vec<u64> = arrows
        .flat_map(|a| {
            [u64::from(a.from), u64::from(a.to), whole(a.sent_ns), whole(a.received_ns), a.bytes, u64::from(a.place)]
        })
        .collect();
    json!({"end": whole(timeline.shown_ns), "rows": rows, "bars": bars, "arrows": arrows, "places": timeline.places,
        "doing": Doing::ALL.map(Doing::name)})
    .to_string()
}

fn whole(ns: f64) -> u64 {
    if ns.is_finite() && ns > 0.0 { ns.round() as u64 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine as _;
    use sha2::Digest as _;

    #[test]
    fn the_policy_names_the_script_that_is_there() {
        let hash = base64::engine::general_purpose::STANDARD.encode(sha2::Sha256::digest(SCRIPT));
        assert_eq!(SCRIPT_HASH, hash, "put this into SCRIPT_HASH");
    }
}

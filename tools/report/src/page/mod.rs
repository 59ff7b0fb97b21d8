//! One page for people: everything in one file that opens without a network, for one run or for two.

pub mod facts;
mod one;
mod two;

use weir_distribution::Warning;

use crate::digest::Level;
use crate::frame::{Plot, Sheet};
use crate::order::main_level;
use crate::plots::Detail;
use crate::style;
use crate::svg::escape;

pub use facts::{facts, warnings as run_warnings};
pub use two::{Told, all_warnings as comparison_warnings};

/// Size that a page must not exceed, in bytes.
pub const MAX_BYTES: usize = 10_000_000;

const CSS: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// SHA-256 of the script in base 64: the only script that the page's policy lets a browser run. A test computes it.
const SCRIPT_HASH: &str = "JA0IgFCZAAODUxMZv/nzE0XCE06XQ09P3iyB+j0MrTc=";

/// The page of one run.
#[must_use]
pub fn of_run(digest: &crate::digest::Digest) -> String {
    coarsened(|detail| one::body(digest, detail), &one::title(digest))
}

/// The page of two runs.
#[must_use]
pub fn of_two(
    first: &crate::digest::Digest,
    second: &crate::digest::Digest,
    comparison: &crate::compare::Comparison,
) -> String {
    coarsened(|detail| two::body((first, second), comparison, detail), &two::title(first, second))
}

/// Draws finely, and again more coarsely until the page is small enough.
fn coarsened(body: impl Fn(&Detail) -> String, title: &str) -> String {
    let mut out = String::new();
    for detail in &Detail::STEPS {
        out = document(title, &body(detail));
        if out.len() <= MAX_BYTES {
            break;
        }
    }
    out
}

/// What a page has besides its body: a script of its own with what it shows.
#[derive(Debug, Clone, Copy, Default)]
pub struct Extra<'a> {
    /// Rules after those of all pages.
    pub style: &'a str,
    /// A script after that of all pages; may be empty.
    pub script: &'a str,
    /// The script's SHA-256 in base 64, without which the page's policy keeps it from running.
    pub script_hash: &'a str,
    /// JSON that the script finds in the element `data`; `<` in it is written as an escape.
    pub data: &'a str,
}

fn document(title: &str, body: &str) -> String {
    document_with(title, body, &Extra::default())
}

/// A page with the style and script of all pages; `body` is HTML, `title` text.
#[must_use]
pub fn document_with(title: &str, body: &str, extra: &Extra<'_>) -> String {
    let more = |text: &str, before: &str, after: &str| {
        if text.is_empty() { String::new() } else { format!("{before}{text}{after}") }
    };
    let hash = more(extra.script_hash, " 'sha256-", "'");
    // A data block is not run, so the policy does not ask for its hash; an end tag in it would end it.
    let data =
        more(&extra.data.replace('<', "\\u003c"), "<script type=\"application/json\" id=\"data\">", "</script>\n");
    let script = more(extra.script, "<script>", "</script>\n");
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{SCRIPT_HASH}'{hash}; base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <style>\n{CSS}{plots}{style}</style>\n</head>\n<body>\n<a class=\"skip\" href=\"#content\">Skip to the results</a>\n{body}\
         <div id=\"tip\" role=\"status\" hidden></div>\n{data}<script>{SCRIPT}</script>\n{script}</body>\n</html>\n",
        title = escape(title),
        plots = style::adaptive(".plot "),
        style = extra.style,
    )
}

/// A drawing in a page; `scale` says of which of two it is, `level` to which level it belongs.
#[must_use]
pub fn figure(plot: &Plot, scale: Option<&str>, level: Option<usize>) -> String {
    let scale_attribute = scale.map_or_else(String::new, |s| format!(" data-scale=\"{s}\""));
    // Without the script the logarithmic one is shown.
    let hidden = if scale == Some("linear") { " hidden" } else { "" };
    let level = level.map_or_else(String::new, |l| format!(" data-level=\"{l}\""));
    let (title, explanation) = (escape(&plot.title), escape(&plot.explanation));
    let note = match plot.note.as_str() {
        "" => String::new(),
        note => format!("<p class=\"note\">{}</p>\n", escape(note)),
    };
    format!(
        "<figure tabindex=\"0\" role=\"group\" aria-label=\"Plot: {title}. Arrow keys go through its values.\"{scale_attribute}{level}{hidden}>\n\
         <figcaption><strong>{title}</strong> {explanation}</figcaption>\n<div class=\"chart\">{}</div>\n{note}</figure>\n",
        plot.svg(Sheet::Page)
    )
}

/// The bar that stays in sight: which operation, which scale.
fn controls(operations: &[(String, String)]) -> String {
    let mut out = String::from("<nav class=\"controls\" aria-label=\"What is shown\"><div>");
    out += "<label class=\"pick\"><span>Operation</span> <select id=\"operation\"><option value=\"\">all</option>";
    for (id, title) in operations {
        out += &format!("<option value=\"{}\">{}</option>", escape(id), escape(title));
    }
    out += "</select></label>";
    out += "<fieldset><legend>Scale of times</legend><label><input type=\"radio\" name=\"scale\" value=\"log\" checked> logarithmic</label><label><input type=\"radio\" name=\"scale\" value=\"linear\"> linear</label></fieldset>";
    out += "</div></nav>\n";
    out
}

/// The choice of a level in a section, given the cells of each: [`main_level`] is shown first.
fn level_choice(levels: &[Level], cells: &[usize]) -> String {
    if levels.len() < 2 {
        return String::new();
    }
    let word = if levels.iter().any(|l| l.pairs > 0) { "Contention" } else { "Placement" };
    let mut out = format!("<label class=\"pick\"><span>{word}</span> <select class=\"level\">");
    for (i, level) in levels.iter().enumerate() {
        let selected = if i == main_level(cells) { " selected" } else { "" };
        out += &format!("<option value=\"{i}\"{selected}>{}</option>", escape(&level.label()));
    }
    out + "</select></label>\n"
}

/// Warnings, first of all.
fn warnings(all: &[Warning]) -> String {
    if all.is_empty() {
        return String::new();
    }
    let open = "<section class=\"warnings\" aria-label=\"Warnings\"><h2>Read this first</h2>";
    format!("{open}{}</section>\n", list(all))
}

/// Warnings behind a line that says how many there are: where a result stands first that tells the worst of them itself.
fn folded(all: &[Warning]) -> String {
    if all.is_empty() {
        return String::new();
    }
    let count = crate::units::plural(all.len() as u64, "warning");
    format!(
        "<details class=\"warnings\"><summary>{count}: what to know before this is believed</summary>{}</details>\n",
        list(all)
    )
}

fn list(all: &[Warning]) -> String {
    let mut out = String::from("<ul>\n");
    for Warning { message, advice, .. } in all {
        let advice = advice
            .as_ref()
            .map_or_else(String::new, |a| format!("<br><span class=\"muted\">To do: {}</span>", escape(a)));
        out += &format!("<li>{}{advice}</li>\n", escape(message));
    }
    out + "</ul>"
}

fn footer() -> String {
    format!(
        "<footer><p>Made by weir report {}. This file needs no network and holds no sample but those drawn; all samples are in the run's folder.</p></footer>\n",
        env!("CARGO_PKG_VERSION")
    )
}

/// Ids of sections: unique, and nothing but letters, digits and `-`.
fn ids(titles: impl Iterator<Item = String>) -> Vec<String> {
    titles.enumerate().map(|(i, title)| format!("op{i}-{}", crate::frame::slug(&title))).collect()
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

    #[test]
    fn a_page_that_is_too_large_is_drawn_more_coarsely() {
        let page = coarsened(|detail| "x".repeat(if detail.levels > 2 { MAX_BYTES } else { detail.curve }), "t");
        assert!(page.len() < 100_000);
    }
}

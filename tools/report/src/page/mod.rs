//! One page for people: everything in one file that opens without a network, for one run or for
//! two.

mod facts;
mod one;
mod parts;
mod two;

use crate::plots::Detail;
use crate::style;
use crate::svg::escape;

pub use facts::facts;
pub use parts::figure;

/// Size that a page must not exceed, in bytes.
pub const MAX_BYTES: usize = 10_000_000;

const CSS: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// SHA-256 of the script in base 64: the only script that the page's policy lets a browser run. A
/// test computes it.
const SCRIPT_HASH: &str = "oIb7jPMf+ltx3h+Pz/Vzp2w2th39RJ2wLFUE9dnSO5o=";

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
    // A data block is not run, so the policy does not ask for its hash; an end tag in it would end
    // it.
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

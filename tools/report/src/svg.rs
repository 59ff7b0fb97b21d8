//! A small writer of SVG: elements, paths with short coordinates, and the escaping that both SVG
//! and HTML need.

use std::fmt::Write as _;

/// Text as it may stand in an element or in a quoted attribute of SVG and HTML.
///
/// Characters that XML cannot hold at all (control characters but for tab and line ends) become
/// U+FFFD, so that a hostile or damaged string in a run can neither end an attribute nor make the
/// document unreadable.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\t' | '\n' | '\r' => out.push(' '),
            // Bidirectional overrides could make a table say something else than it holds.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// A coordinate in user units with one decimal, which is finer than any screen shows at these
/// sizes.
///
/// A value that is not finite, which a plot must never ask for, is written as 0: the document stays
/// well formed.
pub fn coordinate(out: &mut String, value: f64) {
    debug_assert!(value.is_finite(), "a mark without a place");
    let tenths = if value.is_finite() { (value * 10.0).round().clamp(-1e7, 1e7) as i64 } else { 0 };
    if tenths < 0 {
        out.push('-');
    }
    let (whole, tenth) = (tenths.abs() / 10, tenths.abs() % 10);
    let _ = if tenth == 0 { write!(out, "{whole}") } else { write!(out, "{whole}.{tenth}") };
}

/// The `d` of a path.
#[derive(Debug, Default, Clone)]
pub struct Path {
    d: String,
}

impl Path {
    /// An empty path.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves to a point.
    pub fn to(&mut self, x: f64, y: f64) -> &mut Self {
        self.step('M', &[x, y])
    }

    /// Draws a line to a point.
    pub fn line(&mut self, x: f64, y: f64) -> &mut Self {
        self.step('L', &[x, y])
    }

    /// Draws a horizontal line as long as `dx`.
    pub fn across(&mut self, dx: f64) -> &mut Self {
        self.step('h', &[dx])
    }

    /// Draws a vertical line as long as `dy`.
    pub fn down(&mut self, dy: f64) -> &mut Self {
        self.step('v', &[dy])
    }

    /// Closes the outline.
    pub fn close(&mut self) -> &mut Self {
        self.d.push('Z');
        self
    }

    /// A line through all points.
    #[must_use]
    pub fn through(points: &[(f64, f64)]) -> Self {
        let mut path = Self::new();
        for (i, &(x, y)) in points.iter().enumerate() {
            if i == 0 {
                path.to(x, y);
            } else {
                path.line(x, y);
            }
        }
        path
    }

    /// A staircase through points that are ordered along x: across first, then up or down.
    #[must_use]
    pub fn stairs(points: &[(f64, f64)]) -> Self {
        let mut path = Self::new();
        let mut last: Option<(f64, f64)> = None;
        for &(x, y) in points {
            match last {
                None => path.to(x, y),
                Some((_, above)) => path.line(x, above).line(x, y),
            };
            last = Some((x, y));
        }
        path
    }

    /// Whether nothing is drawn.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.d.is_empty()
    }

    fn step(&mut self, letter: char, values: &[f64]) -> &mut Self {
        self.d.push(letter);
        for (i, &value) in values.iter().enumerate() {
            // A minus sign parts two numbers as well as a blank does.
            if i > 0 && value > -0.05 {
                self.d.push(' ');
            }
            coordinate(&mut self.d, value);
        }
        self
    }
}

/// Where a text's given point lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// At its left end.
    Start,
    /// In its middle.
    Middle,
    /// At its right end.
    End,
}

/// The inside of one drawing.
#[derive(Debug, Default, Clone)]
pub struct Canvas {
    body: String,
}

impl Canvas {
    /// An empty drawing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What was drawn, as SVG elements.
    #[must_use]
    pub fn into_body(self) -> String {
        self.body
    }

    /// Draws a path of a class (see [`crate::style`]).
    pub fn path(&mut self, class: &str, path: &Path) {
        if !path.is_empty() {
            let _ = writeln!(self.body, "<path class=\"{class}\" d=\"{}\"/>", path.d);
        }
    }

    /// Draws one straight line.
    pub fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let mut path = Path::new();
        path.to(from.0, from.1).line(to.0, to.1);
        self.path(class, &path);
    }

    /// Draws a rectangle.
    pub fn rect(&mut self, class: &str, x: f64, y: f64, width: f64, height: f64) {
        self.body.push_str("<rect");
        for (name, value) in [("x", x), ("y", y), ("width", width.max(0.0)), ("height", height.max(0.0))] {
            let _ = write!(self.body, " {name}=\"");
            coordinate(&mut self.body, value);
            self.body.push('"');
        }
        let _ = writeln!(self.body, " class=\"{class}\"/>");
    }

    /// Writes a text, escaped, with its baseline at `y`.
    pub fn text(&mut self, class: &str, x: f64, y: f64, anchor: Anchor, text: &str) {
        self.words(class, x, y, anchor, "", text);
    }

    /// Writes a text that runs upwards.
    pub fn text_upwards(&mut self, class: &str, x: f64, y: f64, anchor: Anchor, text: &str) {
        let mut turn = String::from(" transform=\"rotate(-90 ");
        coordinate(&mut turn, x);
        turn.push(' ');
        coordinate(&mut turn, y);
        turn.push_str(")\"");
        self.words(class, x, y, anchor, &turn, text);
    }

    fn words(&mut self, class: &str, x: f64, y: f64, anchor: Anchor, more: &str, text: &str) {
        self.body.push_str("<text x=\"");
        coordinate(&mut self.body, x);
        self.body.push_str("\" y=\"");
        coordinate(&mut self.body, y);
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let _ = writeln!(self.body, "\" class=\"{class}\"{anchor}{more}>{}</text>", escape(text));
    }

    /// A point that tells its values: an invisible mark with a title, which browsers show on
    /// hovering and the page's script shows beside the plot.
    pub fn hint(&mut self, x: f64, y: f64, text: &str) {
        self.body.push_str("<circle class=\"hit\" cx=\"");
        coordinate(&mut self.body, x);
        self.body.push_str("\" cy=\"");
        coordinate(&mut self.body, y);
        let _ = writeln!(self.body, "\" r=\"7\"><title>{}</title></circle>", escape(text));
    }

    /// Opens a group; `attributes` must be well formed.
    pub fn open(&mut self, attributes: &str) {
        let _ = writeln!(self.body, "<g {attributes}>");
    }

    /// Closes the group opened last.
    pub fn close(&mut self) {
        self.body.push_str("</g>\n");
    }

    /// Puts SVG elements of another drawing into this one.
    pub fn raw(&mut self, elements: &str) {
        self.body.push_str(elements);
    }
}

/// About how wide a text is, in units of its font size: Noto Sans' average letter, with digits and
/// narrow letters told apart.
///
/// Only used to place legends and to break lines; nothing depends on its being exact.
#[must_use]
pub fn width_em(text: &str) -> f64 {
    text.chars()
        .map(|c| match c {
            'i' | 'l' | 'j' | 'I' | '.' | ',' | ':' | ';' | '\'' | '|' | ' ' => 0.28,
            'f' | 't' | 'r' | '(' | ')' | '-' | '/' => 0.38,
            'm' | 'w' | 'M' | 'W' | '%' | '@' => 0.88,
            c if c.is_ascii_uppercase() => 0.66,
            c if c.is_ascii() => 0.57,
            _ => 0.62,
        })
        .sum()
}

/// Breaks a text at blanks into lines at most `width_em` wide; a longer word stays whole.
#[must_use]
pub fn wrap(text: &str, limit_em: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width_em(line) + 0.28 + width_em(word) <= limit_em => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_ends_it() {
        let hostile = "</text><script>alert(1)</script>\"'&\u{0}\u{202e}";
        let safe = escape(hostile);
        assert!(!safe.contains(['<', '>', '"', '\'', '\u{0}', '\u{202e}']), "{safe}");
        assert!(safe.starts_with("&lt;/text&gt;&lt;script"), "{safe}");
        assert_eq!(escape("µs × 3 – ok"), "µs × 3 – ok");
    }

    #[test]
    fn coordinates_are_short_and_read_back() {
        let written = |value| {
            let mut out = String::new();
            coordinate(&mut out, value);
            out
        };
        assert_eq!(["0", "-0.1", "12.3", "7", "-4"].map(String::from), [0.04, -0.06, 12.34, 7.0, -4.0].map(written));
    }

    #[test]
    fn a_path_parts_its_numbers() {
        let mut path = Path::new();
        path.to(1.0, -2.0).line(-3.5, 4.0).across(-1.0).down(0.0).close();
        assert_eq!(path.d, "M1-2L-3.5 4h-1v0Z");
        assert_eq!(Path::stairs(&[(0.0, 5.0), (2.0, 3.0)]).d, "M0 5L2 5L2 3");
        assert!(Path::through(&[]).is_empty());
    }

    #[test]
    fn long_texts_are_broken_at_blanks() {
        let lines = wrap("one two three four", width_em("one two") + 0.01);
        assert_eq!(lines, ["one two", "three", "four"]);
    }
}

//! What all plots share: the sheet with its title and note, axes, legends; and a finished plot.

use crate::scale::Tick;
use crate::style;
use crate::svg::{Anchor, Canvas, Path, escape, width_em, wrap};

/// A finished drawing.
#[derive(Debug, Clone)]
pub struct Plot {
    /// Its name in file names and anchors: lower-case letters, digits and `-` only.
    pub name: String,
    /// What it shows, as in its title.
    pub title: String,
    /// What a person who does not see it must know.
    pub description: String,
    /// Width in user units (px).
    pub width: f64,
    /// Height in user units (px).
    pub height: f64,
    /// SVG elements.
    pub body: String,
}

/// Which style sheet a drawing brings along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sheet {
    /// None: it lies in a page that has one.
    Page,
    /// One that follows the reader's choice of light or dark.
    Adaptive,
    /// Light only.
    Plain,
}

impl Plot {
    /// The drawing as SVG.
    #[must_use]
    pub fn svg(&self, sheet: Sheet) -> String {
        let (title, description) = (escape(&self.title), escape(&self.description));
        let size = format!("viewBox=\"0 0 {0:.0} {1:.0}\"", self.width, self.height);
        match sheet {
            // The figure around it carries the words for readers of screens.
            Sheet::Page => format!("<svg class=\"plot\" {size} aria-hidden=\"true\">\n{}</svg>\n", self.body),
            Sheet::Adaptive | Sheet::Plain => {
                let css = if sheet == Sheet::Plain { style::plain("") } else { style::adaptive("") };
                format!(
                    "<svg xmlns=\"http://www.w3.org/2000/svg\" {size} width=\"{:.0}\" height=\"{:.0}\" role=\"img\">\n\
                     <title>{title}</title>\n<desc>{description}</desc>\n<style>\n{css}</style>\n\
                     <rect class=\"ground\" x=\"0\" y=\"0\" width=\"{0:.0}\" height=\"{1:.0}\"/>\n{body}</svg>\n",
                    self.width,
                    self.height,
                    body = self.body
                )
            }
        }
    }
}

/// A name made of lower-case letters, digits and single `-`, whatever it is made from.
#[must_use]
pub fn slug(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if c.is_ascii_alphanumeric() {
            out.push(c.to_ascii_lowercase());
        } else if !out.ends_with('-') && !out.is_empty() {
            out.push('-');
        }
        if out.len() >= 80 {
            break;
        }
    }
    out.trim_matches('-').to_owned()
}

/// A sheet with the area between its axes.
#[derive(Debug)]
pub struct Frame {
    /// What is drawn on.
    pub canvas: Canvas,
    /// Left edge of the area.
    pub left: f64,
    /// Right edge of the area.
    pub right: f64,
    /// Upper edge of the area.
    pub top: f64,
    /// Lower edge of the area.
    pub bottom: f64,
    width: f64,
    height: f64,
    title: String,
}

/// Space around the area: left and right; above and below follow from the words there.
#[derive(Debug, Clone, Copy)]
pub struct Margins {
    /// For the words of the vertical axis.
    pub left: f64,
    /// For labels beside the ends of lines.
    pub right: f64,
}

/// Width of all plots.
pub const WIDTH: f64 = 720.0;

impl Frame {
    /// A sheet whose area is `inner` high, below a title and a line or two of explanation.
    #[must_use]
    pub fn new(title: &str, explanation: &str, inner: f64, margins: Margins) -> Self {
        let mut canvas = Canvas::new();
        canvas.text("title", 12.0, 24.0, Anchor::Start, title);
        let mut y = 42.0;
        for line in wrap(explanation, (WIDTH - 24.0) / 12.8) {
            canvas.text("small muted", 12.0, y, Anchor::Start, &line);
            y += 15.0;
        }
        let top = y + 6.0;
        Self {
            canvas,
            left: margins.left,
            right: WIDTH - margins.right,
            top,
            bottom: top + inner,
            width: WIDTH,
            height: top + inner + 48.0,
            title: title.to_owned(),
        }
    }

    /// Draws the horizontal axis with lines through the area at its ticks.
    pub fn x_axis(&mut self, ticks: &[Tick], label: &str) {
        let mut lines = Path::new();
        for tick in ticks {
            lines.to(tick.at, self.top).down(self.bottom - self.top);
        }
        self.canvas.path("grid", &lines);
        let mut free_from = f64::MIN;
        for tick in ticks {
            let half = width_em(&tick.text) * 5.8;
            if tick.at - half >= free_from {
                self.canvas.text("small muted", tick.at, self.bottom + 16.0, Anchor::Middle, &tick.text);
                free_from = tick.at + half + 4.0;
            }
        }
        self.canvas.line("axis", (self.left, self.bottom), (self.right, self.bottom));
        self.canvas.text("small", (self.left + self.right) / 2.0, self.bottom + 36.0, Anchor::Middle, label);
    }

    /// Draws the vertical axis with lines through the area at its ticks.
    pub fn y_axis(&mut self, ticks: &[Tick], label: &str) {
        let mut lines = Path::new();
        for tick in ticks {
            lines.to(self.left, tick.at).across(self.right - self.left);
        }
        self.canvas.path("grid", &lines);
        for tick in ticks {
            self.canvas.text("small muted", self.left - 7.0, tick.at + 4.0, Anchor::End, &tick.text);
        }
        self.canvas.text_upwards("small", 15.0, (self.top + self.bottom) / 2.0, Anchor::Middle, label);
    }

    /// Writes labels to the right of the area at their heights, moved apart where they would overlap; each has the class
    /// of its line's colour as text.
    pub fn end_labels(&mut self, labels: Vec<(f64, String, String)>) {
        const PITCH: f64 = 14.0;
        let mut labels: Vec<_> = labels.into_iter().filter(|l| l.0.is_finite()).collect();
        labels.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut places: Vec<f64> = Vec::with_capacity(labels.len());
        for label in &labels {
            let least = places.last().map_or(self.top, |last| last + PITCH);
            places.push(label.0.max(least));
        }
        // What was pushed out below moves back up.
        let mut most = self.bottom;
        for place in places.iter_mut().rev() {
            *place = place.min(most);
            most = *place - PITCH;
        }
        for ((_, class, text), place) in labels.iter().zip(places) {
            self.canvas.text(&format!("small strong {class}"), self.right + 8.0, place + 4.0, Anchor::Start, text);
        }
    }

    /// Makes the sheet higher, for panels below its upper edge.
    pub fn grow(&mut self, by: f64) {
        self.bottom += by;
        self.height += by;
    }

    /// Ends the sheet with a note below the axis: what was drawn, what was left out.
    #[must_use]
    pub fn finish(mut self, name: &str, description: String, note: &str) -> Plot {
        let mut y = self.height + 4.0;
        for line in wrap(note, (WIDTH - 24.0) / 12.8) {
            self.canvas.text("small muted", 12.0, y, Anchor::Start, &line);
            y += 15.0;
        }
        Plot {
            name: slug(name),
            title: self.title,
            description,
            width: self.width,
            height: y,
            body: self.canvas.into_body(),
        }
    }

    /// A sheet that only says why there is nothing on it.
    #[must_use]
    pub fn empty(name: &str, title: &str, why: &str) -> Plot {
        let mut frame = Self::new(title, "", 60.0, Margins { left: 12.0, right: 12.0 });
        frame.canvas.text("muted", 12.0, frame.top + 24.0, Anchor::Start, why);
        frame.finish(name, why.to_owned(), "")
    }
}

/// A legend in one line: swatches with words, from `x` on.
pub fn legend(canvas: &mut Canvas, x: f64, y: f64, entries: &[(String, String)]) {
    let mut at = x;
    for (class, text) in entries {
        canvas.line(class, (at, y - 4.0), (at + 18.0, y - 4.0));
        canvas.text("small", at + 23.0, y, Anchor::Start, text);
        at += 23.0 + width_em(text) * 12.5 + 14.0;
    }
}

/// Shapes of marks, so that series differ in more than colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// A disc.
    Disc,
    /// A square.
    Square,
    /// A triangle that stands on its base.
    Triangle,
}

/// Adds a mark to a path that is to be filled.
pub fn mark(path: &mut Path, shape: Mark, x: f64, y: f64) {
    match shape {
        // An octagon: a disc as far as one can see, and it needs no arcs.
        Mark::Disc => {
            path.to(x - 1.3, y - 3.0).line(x + 1.3, y - 3.0).line(x + 3.0, y - 1.3).line(x + 3.0, y + 1.3);
            path.line(x + 1.3, y + 3.0).line(x - 1.3, y + 3.0).line(x - 3.0, y + 1.3).line(x - 3.0, y - 1.3)
        }
        Mark::Square => path.to(x - 2.6, y - 2.6).across(5.2).down(5.2).across(-5.2),
        Mark::Triangle => path.to(x, y - 3.6).line(x + 3.4, y + 2.6).line(x - 3.4, y + 2.6),
    }
    .close();
}

/// A small area among several of one sheet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Panel {
    /// Left edge.
    pub left: f64,
    /// Right edge.
    pub right: f64,
    /// Upper edge.
    pub top: f64,
    /// Lower edge.
    pub bottom: f64,
}

impl Panel {
    /// `n` panels in rows of `columns`, each `height` high with room for a heading above and ticks below, and what they
    /// take up in all. Left of each is a `gutter` for the words of its vertical axis.
    #[must_use]
    pub fn grid(frame: &Frame, n: usize, columns: usize, height: f64, gutter: f64) -> (Vec<Self>, f64) {
        const GAP: f64 = 20.0;
        const HEAD: f64 = 34.0;
        const FOOT: f64 = 26.0;
        let gap = GAP + gutter;
        let width = (frame.right - frame.left - gutter - gap * (columns - 1) as f64) / columns as f64;
        let panels = (0..n).map(|i| {
            let (left, top) = (
                frame.left + gutter + (i % columns) as f64 * (width + gap),
                frame.top + (i / columns) as f64 * (HEAD + height + FOOT) + HEAD,
            );
            Self { left, right: left + width, top, bottom: top + height }
        });
        (panels.collect(), n.div_ceil(columns) as f64 * (HEAD + height + FOOT))
    }

    /// Heading in two lines: what it is, and something about it.
    pub fn heading(&self, canvas: &mut Canvas, text: &str, more: &str) {
        canvas.text("small strong", self.left, self.top - 20.0, Anchor::Start, text);
        canvas.text("small muted", self.left, self.top - 6.0, Anchor::Start, more);
    }

    /// Ticks below.
    pub fn x_ticks(&self, canvas: &mut Canvas, ticks: &[Tick]) {
        let mut free_from = self.left - 30.0;
        for tick in ticks {
            let half = width_em(&tick.text) * 5.8;
            if tick.at - half >= free_from && tick.at + half <= self.right + 14.0 {
                canvas.text("small muted", tick.at, self.bottom + 14.0, Anchor::Middle, &tick.text);
                free_from = tick.at + half + 4.0;
            }
        }
        canvas.line("axis", (self.left, self.bottom), (self.right, self.bottom));
    }

    /// Lines at ticks of the vertical axis, with words to their left.
    pub fn y_ticks(&self, canvas: &mut Canvas, ticks: &[Tick]) {
        for tick in ticks {
            canvas.line("grid", (self.left, tick.at), (self.right, tick.at));
            canvas.text("small muted", self.left - 6.0, tick.at + 4.0, Anchor::End, &tick.text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_safe_for_files_and_anchors() {
        assert_eq!(slug("gather-each, 4×2 / ../etc"), "gather-each-4-2-etc");
        assert_eq!(slug("../../<script>"), "script");
        assert_eq!(slug(&"ä".repeat(500)), "");
        assert!(slug(&"a".repeat(500)).len() <= 80);
    }

    #[test]
    fn labels_do_not_overlap() {
        let mut frame = Frame::new("t", "", 200.0, Margins { left: 60.0, right: 80.0 });
        let bottom = frame.bottom;
        frame.end_labels((0..5).map(|i| (bottom, "f0".into(), format!("l{i}"))).collect());
        let body = frame.finish("n", String::new(), "").body;
        let mut places: Vec<f64> = body
            .lines()
            .filter(|l| l.contains("strong"))
            .map(|l| l.split("y=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap())
            .collect();
        places.sort_by(f64::total_cmp);
        assert_eq!(places.len(), 5);
        assert!(places.windows(2).all(|w| w[1] - w[0] >= 13.9) && places[4] <= bottom + 4.1, "{places:?}");
    }

    #[test]
    fn a_drawing_alone_says_what_it_is() {
        let plot = Frame::empty("x", "A <title>", "nothing & no one");
        let svg = plot.svg(Sheet::Adaptive);
        assert!(svg.contains("<title>A &lt;title&gt;</title>") && svg.contains("nothing &amp; no one"));
        assert!(svg.contains("prefers-color-scheme:dark"));
        assert!(!plot.svg(Sheet::Plain).contains("@media"));
    }
}

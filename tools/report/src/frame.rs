//! What all plots share: the sheet with its title and note, axes, legends; and a finished plot.

use crate::scale::Tick;
use crate::style::{self, LETTER};
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
    /// What is said before it is looked at: what is shown, in which setting.
    pub explanation: String,
    /// What is said below it: what was drawn, what was left out. May be empty.
    pub note: String,
    /// SVG elements of the drawing without title, explanation and note.
    pub body: String,
    /// Upper and lower edge of what `body` draws, in user units: title and explanation are above,
    /// the note is below.
    pub area: (f64, f64),
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
        match sheet {
            // The figure around it carries the words, which break into lines as its width demands.
            Sheet::Page => {
                let (top, bottom) = self.area;
                format!(
                    "<svg class=\"plot\" viewBox=\"0 {top:.0} {:.0} {:.0}\" aria-hidden=\"true\">\n{}</svg>\n",
                    self.width,
                    bottom - top,
                    self.body
                )
            }
            Sheet::Adaptive | Sheet::Plain => {
                let size = format!("viewBox=\"0 0 {0:.0} {1:.0}\"", self.width, self.height);
                let css = if sheet == Sheet::Plain { style::plain("") } else { style::adaptive("") };
                format!(
                    "<svg xmlns=\"http://www.w3.org/2000/svg\" {size} width=\"{:.0}\" height=\"{:.0}\" role=\"img\">\n\
                     <title>{title}</title>\n<desc>{description}</desc>\n<style>\n{css}</style>\n\
                     <rect class=\"ground\" x=\"0\" y=\"0\" width=\"{0:.0}\" height=\"{1:.0}\"/>\n{words}{body}</svg>\n",
                    self.width,
                    self.height,
                    words = self.words(),
                    body = self.body
                )
            }
        }
    }

    /// Title, explanation and note as SVG elements.
    fn words(&self) -> String {
        let mut canvas = Canvas::new();
        let titles = title_lines(&self.title, self.width);
        let explanation = explanation_from(titles.len());
        for (class, first, pitch, lines) in [
            ("title", TITLE, TITLE_LINE, titles),
            ("small muted", explanation, LINE, lines_of(&self.explanation, self.width)),
            ("small muted", self.area.1 + NOTE, LINE, lines_of(&self.note, self.width)),
        ] {
            for (i, line) in lines.iter().enumerate() {
                canvas.text(class, SIDE, first + i as f64 * pitch, Anchor::Start, line);
            }
        }
        canvas.into_body()
    }
}

/// Distance of words from the sheet's side.
const SIDE: f64 = 12.0;
/// Baseline of the title's first line, and the distance to what follows.
const TITLE: f64 = 24.0;
const TITLE_LINE: f64 = 18.0;
/// From one line of the explanation or the note to the next.
const LINE: f64 = 16.0;
/// From the last baseline of the words above to the upper edge of the drawing.
const BELOW_WORDS: f64 = 7.0;
/// From the drawing's lower edge to the baseline of the note's first line.
const NOTE: f64 = 10.0;

/// A title in lines that fit a sheet.
fn title_lines(title: &str, width: f64) -> Vec<String> {
    wrap(title, (width - 2.0 * SIDE) / 16.5)
}

/// Baseline of the explanation's first line below a title of so many lines.
fn explanation_from(title_lines: usize) -> f64 {
    TITLE + TITLE_LINE * title_lines.max(1) as f64
}

/// An explanation or a note in lines that fit a sheet.
fn lines_of(text: &str, width: f64) -> Vec<String> {
    wrap(text, (width - 2.0 * SIDE) / (LETTER * 1.16))
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
    explanation: String,
    /// Upper edge of what is drawn, below the words.
    above: f64,
}

/// Space around the area: left and right; above and below follow from the words there.
#[derive(Debug, Clone, Copy)]
pub struct Margins {
    /// For the words of the vertical axis.
    pub left: f64,
    /// For labels beside the ends of lines.
    pub right: f64,
}

/// Width of all plots: a phone shows it whole with letters that can be read, a wide window several
/// side by side.
pub const WIDTH: f64 = 430.0;

impl Frame {
    /// A sheet whose area is `inner` high, below a title and a line or two of explanation.
    #[must_use]
    pub fn new(title: &str, explanation: &str, inner: f64, margins: Margins) -> Self {
        Self::wide(WIDTH, title, explanation, inner, margins)
    }

    /// The same of another width.
    #[must_use]
    pub fn wide(width: f64, title: &str, explanation: &str, inner: f64, margins: Margins) -> Self {
        let first = explanation_from(title_lines(title, width).len());
        let lines = lines_of(explanation, width).len() as f64;
        let top = first + lines * LINE + 6.0;
        Self {
            canvas: Canvas::new(),
            left: margins.left,
            right: width - margins.right,
            top,
            bottom: top + inner,
            width,
            height: top + inner + 42.0,
            title: title.to_owned(),
            explanation: explanation.to_owned(),
            above: first + (lines - 1.0).max(0.0) * LINE + BELOW_WORDS,
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
            let half = width_em(&tick.text) * LETTER * 0.53;
            if tick.at - half >= free_from {
                self.canvas.text("small muted", tick.at, self.bottom + 16.0, Anchor::Middle, &tick.text);
                free_from = tick.at + half + 4.0;
            }
        }
        self.canvas.line("axis", (self.left, self.bottom), (self.right, self.bottom));
        self.canvas.text("small", (self.left + self.right) / 2.0, self.bottom + 35.0, Anchor::Middle, label);
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

    /// Writes labels to the right of the area at their heights, moved apart where they would
    /// overlap; each has the class of its line's colour as text.
    pub fn end_labels(&mut self, labels: Vec<(f64, String, String)>) {
        const PITCH: f64 = 15.0;
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

    /// Writes a legend above the area, in as many rows as it needs, and moves the area down.
    pub fn legend(&mut self, entries: &[Entry]) {
        const ROW: f64 = 17.0;
        let (mut x, mut y) = (self.left, self.top + 10.0);
        for entry in entries {
            if x > self.left && x + entry.width() > self.width - SIDE {
                (x, y) = (self.left, y + ROW);
            }
            entry.draw(&mut self.canvas, x, y);
            x += entry.width();
        }
        let taken = y + 8.0 - self.top;
        self.top += taken;
        self.grow(taken);
    }

    /// Makes the sheet higher, for panels below its upper edge.
    pub fn grow(&mut self, by: f64) {
        self.bottom += by;
        self.height += by;
    }

    /// Ends the sheet with a note below the axis: what was drawn, what was left out.
    #[must_use]
    pub fn finish(self, name: &str, description: String, note: &str) -> Plot {
        let lines = lines_of(note, self.width).len() as f64;
        Plot {
            name: slug(name),
            title: self.title,
            description,
            width: self.width,
            height: self.height + NOTE + lines * LINE,
            explanation: self.explanation,
            note: note.to_owned(),
            body: self.canvas.into_body(),
            area: (self.above, self.height),
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

/// What a line or a mark stands for.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Class of the line; nothing where marks stand alone.
    pub line: String,
    /// Shape and class of the marks on it.
    pub mark: Option<(Mark, String)>,
    /// The words.
    pub text: String,
}

impl Entry {
    /// Of a line without marks.
    #[must_use]
    pub fn line(class: &str, text: &str) -> Self {
        Self { line: class.to_owned(), mark: None, text: shortened(text) }
    }

    /// Of a line with marks.
    #[must_use]
    pub fn marked(class: &str, shape: Mark, fill: &str, text: &str) -> Self {
        Self { mark: Some((shape, fill.to_owned())), ..Self::line(class, text) }
    }

    /// Of marks without a line.
    #[must_use]
    pub fn mark(shape: Mark, fill: &str, text: &str) -> Self {
        Self::marked("", shape, fill, text)
    }

    fn width(&self) -> f64 {
        23.0 + width_em(&self.text) * LETTER * 1.13 + 14.0
    }

    fn draw(&self, canvas: &mut Canvas, x: f64, y: f64) {
        if !self.line.is_empty() {
            canvas.line(&self.line, (x, y - 4.0), (x + 18.0, y - 4.0));
        }
        if let Some((shape, class)) = &self.mark {
            let mut path = Path::new();
            mark(&mut path, *shape, x + 9.0, y - 4.0);
            canvas.path(class, &path);
        }
        canvas.text("small", x + 23.0, y, Anchor::Start, &self.text);
    }
}

/// As much of a text as is at most `limit_em` wide.
pub(crate) fn fitting(text: &str, limit_em: f64) -> String {
    if width_em(text) <= limit_em {
        return text.to_owned();
    }
    let ends = text.char_indices().map(|(end, _)| end);
    let end = ends.take_while(|end| width_em(&text[..*end]) + 0.8 <= limit_em).last().unwrap_or(0);
    format!("{}…", text[..end].trim_end())
}

/// A name that may have any length, as it fits a legend.
fn shortened(text: &str) -> String {
    const MOST: usize = 46;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
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

/// Marks by which series follow each other.
pub const MARKS: [Mark; 3] = [Mark::Disc, Mark::Square, Mark::Triangle];

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
    /// `n` panels in rows of `columns`, each `height` high with room for a heading above and ticks
    /// below, and what they take up in all. Left of each is a `gutter` for the words of its
    /// vertical axis.
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
        let width = self.right - self.left + 8.0;
        canvas.text("small strong", self.left, self.top - 20.0, Anchor::Start, &fitting(text, width / (LETTER * 1.13)));
        canvas.text("small muted", self.left, self.top - 6.0, Anchor::Start, &fitting(more, width / (LETTER * 1.08)));
    }

    /// Ticks below.
    pub fn x_ticks(&self, canvas: &mut Canvas, ticks: &[Tick]) {
        let mut free_from = self.left - 30.0;
        for tick in ticks {
            let half = width_em(&tick.text) * LETTER * 0.53;
            if tick.at - half >= free_from && tick.at + half <= self.right + 14.0 {
                canvas.text("small muted", tick.at, self.bottom + 14.0, Anchor::Middle, &tick.text);
                free_from = tick.at + half + 4.0;
            }
        }
        canvas.line("axis", (self.left, self.bottom), (self.right, self.bottom));
    }

    /// Lines at ticks of the vertical axis, with words to their left; as many as have room, powers
    /// of ten first.
    pub fn y_ticks(&self, canvas: &mut Canvas, ticks: &[Tick]) {
        let is_power =
            |tick: &&Tick| tick.text.starts_with('1') && !tick.text.contains('.') && !tick.text.contains('5');
        let (powers, others): (Vec<&Tick>, Vec<&Tick>) = ticks.iter().partition(is_power);
        let mut placed: Vec<&Tick> = Vec::new();
        for tick in powers.into_iter().chain(others) {
            if placed.iter().all(|p| (p.at - tick.at).abs() >= LETTER + 2.0) {
                placed.push(tick);
            }
        }
        for tick in placed {
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
        assert!(places.windows(2).all(|w| w[1] - w[0] >= 14.9) && places[4] <= bottom + 4.1, "{places:?}");
    }

    #[test]
    fn a_long_legend_takes_further_rows_and_stays_on_the_sheet() {
        let mut frame = Frame::new("t", "", 200.0, Margins { left: 60.0, right: 80.0 });
        let (top, bottom) = (frame.top, frame.bottom);
        let long = "x".repeat(300);
        let texts = (0..9).map(|i| format!("{i} pairs, 64 × 32")).chain([long]);
        frame.legend(&texts.map(|t| Entry::marked("line c0", Mark::Disc, "f0", &t)).collect::<Vec<_>>());
        assert!(
            frame.top > top + 30.0 && (frame.bottom - frame.top - (bottom - top)).abs() < 1e-9,
            "the area is whole"
        );
        let from = frame.top;
        let body = frame.finish("n", String::new(), "").body;
        let number = |line: &str, name: &str| -> f64 {
            line.split(&format!("{name}=\"")).nth(1).unwrap().split('"').next().unwrap().parse().unwrap()
        };
        let texts: Vec<&str> = body.lines().filter(|l| l.starts_with("<text")).collect();
        assert_eq!(texts.len(), 10);
        for line in texts {
            let words = line.split('>').nth(1).unwrap().split('<').next().unwrap();
            assert!(number(line, "x") + width_em(words) * LETTER <= WIDTH, "{line}");
            assert!(number(line, "y") < from, "{line}");
        }
    }

    #[test]
    fn a_heading_stays_in_its_panel() {
        assert_eq!(fitting("slower by 10 %", 20.0), "slower by 10 %");
        let cut = fitting(&"µ wide ".repeat(40), 12.0);
        assert!(cut.ends_with('…') && width_em(&cut) <= 12.1 && width_em(&cut) > 10.0, "{cut}");
        assert_eq!(fitting("abc", 0.0), "…");
    }

    #[test]
    fn words_of_a_page_are_outside_of_its_drawing() {
        let mut frame = Frame::new("A title", "An explanation.", 60.0, Margins { left: 12.0, right: 12.0 });
        let (x, y) = (frame.left, frame.bottom);
        frame.canvas.text("small", x, y, Anchor::Start, "inside");
        let plot = frame.finish("n", String::new(), "A note.");
        let (page, alone) = (plot.svg(Sheet::Page), plot.svg(Sheet::Plain));
        for words in ["A title", "An explanation.", "A note."] {
            assert!(!page.contains(words) && alone.contains(&format!(">{words}</text>")), "{words}");
        }
        assert!(page.contains("inside") && alone.contains("inside"));
        assert!(plot.area.0 < plot.area.1 && plot.area.1 < plot.height);
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

//! Writes what the model says into the source, as comments before the statements that it is about.

use std::collections::{BTreeMap, BTreeSet};

use crate::expr::Expr;
use crate::steps::{Arm, Head, Segment, Step};

/// Lines to be put in, each before a byte of the source.
#[derive(Debug, Default)]
struct Inserts {
    all: Vec<(Place, String)>,
}

/// Where lines go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Before what begins here.
    Before(usize),
    /// Behind what ends at the first; indented as the line of the second.
    Behind(usize, usize),
}

/// What the directives are written with.
#[derive(Debug, Default)]
pub struct Values {
    /// Times of segments that were measured, by their parameter.
    pub times: BTreeMap<String, String>,
    /// Parameters that have a value unless another is given.
    pub defaults: BTreeMap<String, String>,
    /// Arrays of requests of which elements could not be told apart.
    pub unindexed: BTreeSet<String>,
}

/// The source with directives.
#[must_use]
pub fn annotated(text: &str, steps: &[Step], values: &Values) -> String {
    let same_tag = one_tag(steps);
    let mut inserts = Inserts::default();
    if let Some(first) = steps.first() {
        for (name, value) in &values.defaults {
            inserts.put(Place::Before(start_of(first)), format!("Parameter {name} = {value}"));
        }
    }
    for step in steps {
        inserts.step(step, values, same_tag);
    }
    inserts.into(text)
}

fn start_of(step: &Step) -> usize {
    match step {
        Step::Serial(Segment { at, .. })
        | Step::Message { at, .. }
        | Step::Skip { at, .. }
        | Step::Call { at, .. }
        | Step::Set { at, .. }
        | Step::Loop { at, .. }
        | Step::Branch { at, .. } => *at,
    }
}

/// Whether all messages have the same number as a tag, which then says nothing.
fn one_tag(steps: &[Step]) -> bool {
    fn tags<'a>(steps: &'a [Step], out: &mut BTreeSet<&'a str>) {
        for step in steps {
            match step {
                Step::Message { attributes, .. } => {
                    // A status tells the tag.
                    out.extend(attributes.iter().filter(|(name, _)| name == "stat").map(|(name, _)| name.as_str()));
                    out.extend(
                        attributes.iter().filter(|(name, _)| name.ends_with("tag")).map(|(_, value)| value.as_str()),
                    );
                }
                Step::Loop { body, .. } => tags(body, out),
                Step::Branch { arms, .. } => arms.iter().for_each(|arm| tags(&arm.body, out)),
                _ => {}
            }
        }
    }
    let mut all = BTreeSet::new();
    tags(steps, &mut all);
    all.len() == 1 && all.iter().all(|tag| tag.parse::<u32>().is_ok())
}

impl Inserts {
    fn put(&mut self, place: Place, directive: String) {
        self.all.push((place, directive));
    }

    fn step(&mut self, step: &Step, values: &Values, same_tag: bool) {
        match step {
            Step::Serial(segment) => {
                let name = segment.parameter();
                let time = values.times.get(&name).cloned().unwrap_or_else(|| format!("parameter {name}"));
                self.put(Place::Before(segment.at), format!("Serial time = {time}"));
            }
            Step::Message { at, kind, attributes, .. } => {
                self.put(Place::Before(*at), format!("Message type = {kind}"));
                for (name, value) in attributes.iter().filter(|(name, _)| !(same_tag && name.ends_with("tag"))) {
                    let value = if name == "req" { requests(value, &values.unindexed) } else { value.clone() };
                    self.put(Place::Before(*at), format!("&       {name} = {value}"));
                }
            }
            // The call itself stands in the source.
            Step::Call { .. } => {}
            Step::Skip { at, .. } => self.put(Place::Before(*at), "Skip".into()),
            Step::Set { at, behind, name, value, .. } => {
                let place = behind.map_or(Place::Before(*at), |owner| Place::Behind(*at, owner));
                self.put(place, format!("Set {name} = {value}"));
            }
            Step::Loop { at, end, head, index, body, .. } => {
                let head = match head {
                    Head::Iterations(times) => format!("Loop iterations = {times}"),
                    Head::While(condition) => format!("Loop while = {condition}"),
                };
                let index = index.as_ref().map_or_else(String::new, |i| format!(" index = {i}"));
                self.put(Place::Before(*at), head + &index);
                self.put(Place::Before(*at), "{".into());
                for step in body {
                    self.step(step, values, same_tag);
                }
                self.put(Place::Behind(*end, *at), "}".into());
            }
            Step::Branch { at, random, arms, .. } => {
                let word = if *random { "Condition" } else { "Runon" };
                for (i, arm) in arms.iter().enumerate() {
                    let lead = if i == 0 { word.to_owned() } else { format!("&{}", " ".repeat(word.len() - 1)) };
                    self.put(Place::Before(*at), format!("{lead} c{} = {}", i + 1, arm.label));
                }
                for (i, arm) in arms.iter().enumerate() {
                    self.arm(arm, *at, i == 0, values, same_tag);
                }
            }
        }
    }

    fn arm(&mut self, arm: &Arm, owner: usize, first: bool, values: &Values, same_tag: bool) {
        let start = if first { Place::Before(arm.at) } else { Place::Behind(arm.at, owner) };
        self.put(start, "{".into());
        for step in &arm.body {
            self.step(step, values, same_tag);
        }
        self.put(Place::Behind(arm.end, owner), "}".into());
    }

    /// The source with all lines in it. A directive has a line of its own, whatever stands around
    /// it.
    fn into(self, text: &str) -> String {
        let end = if text.contains("\r\n") { "\r\n" } else { "\n" };
        let mut all: Vec<(usize, bool, String, String)> = Vec::with_capacity(self.all.len());
        for (place, directive) in self.all {
            let (at, whole, indent) = settle(text, place);
            all.push((at, whole, indent, directive));
        }
        all.sort_by_key(|(at, ..)| *at);
        let (mut out, mut done) = (String::with_capacity(text.len() * 2), 0);
        for (i, (at, whole, indent, directive)) in all.iter().enumerate() {
            out += text.get(done..*at).unwrap_or("");
            done = *at;
            let continues = i > 0 && all[i - 1].0 == *at;
            if !whole && !continues {
                out += end;
            }
            if *whole && !out.is_empty() && !out.ends_with('\n') {
                out += end;
            }
            out += &format!("{indent}// PEVPM {directive}{end}");
            let last = all.get(i + 1).is_none_or(|next| next.0 != *at);
            if !whole && last {
                out += indent;
                let blanks = text.get(done..).map_or(0, |rest| rest.len() - rest.trim_start_matches([' ', '\t']).len());
                done += blanks;
            }
        }
        out + text.get(done..).unwrap_or("")
    }
}

/// Where a place's lines go: the byte, whether that is the start of a line, and how far its line is
/// indented.
fn settle(text: &str, place: Place) -> (usize, bool, String) {
    let (at, owner) = match place {
        Place::Before(at) => (at, at),
        Place::Behind(at, owner) => (at, owner),
    };
    let at = boundary(text, at);
    let start_of_line = |at: usize| text[..at].rfind('\n').map_or(0, |n| n + 1);
    let indent: String =
        text[start_of_line(boundary(text, owner))..].chars().take_while(|c| matches!(c, ' ' | '\t')).collect();
    let start = start_of_line(at);
    match place {
        Place::Before(_) if text[start..at].trim().is_empty() => (start, true, indent),
        Place::Behind(..) => {
            let next = text[at..].find('\n').map(|n| at + n + 1);
            let rest = text[at..next.unwrap_or(text.len())].trim();
            if rest.is_empty() || (rest.starts_with("//") && !rest.ends_with('\\')) {
                (next.unwrap_or(text.len()), true, indent)
            } else {
                (at, false, indent)
            }
        }
        Place::Before(_) => (at, false, indent),
    }
}

/// The nearest place at or before one where a text may be cut.
fn boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// A list of requests without indices where they could not be told.
fn requests(list: &str, unindexed: &BTreeSet<String>) -> String {
    let mut out: Vec<&str> = Vec::new();
    for one in list.split(", ") {
        let base = one.split('[').next().unwrap_or(one);
        let shown = if unindexed.contains(base) { base } else { one };
        if !out.contains(&shown) {
            out.push(shown);
        }
    }
    out.join(", ")
}

/// How a time in nanoseconds is written.
#[must_use]
pub fn time(ns: f64) -> String {
    let (value, unit) = match ns {
        ns if ns < 1e3 => (ns, "ns"),
        ns if ns < 1e6 => (ns / 1e3, "us"),
        ns if ns < 1e9 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    format!("{} {unit}", Expr::Number(digits(value)))
}

/// Four significant digits.
#[must_use]
pub fn digits(value: f64) -> String {
    let decimals = (3 - value.abs().max(1e-9).log10().floor() as i32).clamp(0, 9) as usize;
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

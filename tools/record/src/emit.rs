//! Writes a program as a plain file of directives (`spec/annotations.md`).

use std::collections::{BTreeMap, BTreeSet};

use crate::acts::{Field, Group, Kind};
use crate::log::ANY;
use crate::merge::Column;
use crate::rules::{self, Demand, Point, Rule};
use crate::runs::Runs;
use crate::times::{self, Moments};

/// What was written.
#[derive(Debug, Clone, Default)]
pub struct Written {
    /// Lines of directives.
    pub text: String,
    /// How many statements.
    pub statements: usize,
    /// What has no rule, each a line.
    pub without_rule: Vec<String>,
    /// What the rules demand of the number of processes.
    pub demands: BTreeSet<Demand>,
    /// What is doubtful, each a line.
    pub doubts: Vec<String>,
    /// Whether times use the parameter `split`.
    pub split: bool,
}

/// Numbers of a changing field that are looked at, at most.
const MOST_POINTS: usize = 200_000;

/// A number as it is written, and whether it changes with the index of a loop.
struct Said {
    text: String,
    depth: Option<usize>,
}

/// What was written of a part, and what its surroundings have to know.
#[derive(Debug, Default)]
struct Part {
    text: String,
    /// Depths of the loops whose index it uses.
    indices: BTreeSet<usize>,
    /// It goes through the processes: by the index of a loop around it, or from any of them.
    walks: bool,
    /// It talks to the process so many further on, which may not be there.
    reach: i64,
}

struct Emitter<'a> {
    runs: &'a Runs,
    /// Whether numbers and conditions may be listed process by process.
    fixed: bool,
    out: Written,
    last_place: u32,
    /// Whether a condition around keeps the last processes out.
    bounds: bool,
}

/// A loop around what is written.
struct Around<'a> {
    of: &'a BTreeMap<usize, u64>,
}

/// Writes columns for these processes (indices of the samples). `fixed`: for their number of
/// processes only.
#[must_use]
pub fn program(columns: &[Column], runs: &Runs, samples: &[usize], fixed: bool) -> Written {
    let mut emitter = Emitter { runs, fixed, out: Written::default(), last_place: 0, bounds: false };
    let all: BTreeSet<usize> = samples.iter().copied().collect();
    let text = emitter.block(columns, &all, &mut Vec::new(), 0).text;
    emitter.out.text = text;
    emitter.out
}

/// Whether a condition keeps the last processes out, or names the process.
fn bounds(condition: &str) -> bool {
    ["procnum != numprocs", "procnum < numprocs", "procnum == ", "< numprocs"]
        .iter()
        .any(|part| condition.contains(part))
}

/// The name of a loop's index.
fn index_name(depth: usize) -> String {
    format!("i{depth}")
}

impl Emitter<'_> {
    /// Columns of processes. Neighbours in the list that the same processes have are one branch.
    fn block<'b>(
        &mut self,
        columns: &'b [Column],
        parent: &BTreeSet<usize>,
        around: &mut Vec<Around<'b>>,
        indent: usize,
    ) -> Part {
        let mut out = Part::default();
        let mut at = 0;
        while at < columns.len() {
            let present = columns[at].present();
            let first = at;
            let whole = present == *parent;
            let condition = if whole { None } else { Some(self.condition(parent, &present, &columns[first])) };
            let bounded = self.bounds;
            self.bounds |= condition.as_deref().is_some_and(bounds);
            let inner = if whole { indent } else { indent + 1 };
            let mut body = String::new();
            while at < columns.len() && (at == first || columns[at].present() == present) {
                let place = self.last_place;
                let mut part = self.column(&columns[at], &present, around, inner);
                if part.reach > 0 && !self.bounds && !self.fixed {
                    // Recorded numbers of processes may never show it; at others the last ones have
                    // nobody there.
                    self.last_place = place;
                    part = self.column(&columns[at], &present, around, inner + 1);
                    let pad = "  ".repeat(inner);
                    part.text =
                        format!("{pad}Runon c1 = procnum + {} < numprocs {{\n{}{pad}}}\n", part.reach, part.text);
                }
                body += &part.text;
                out.indices.extend(part.indices);
                out.walks |= part.walks;
                at += 1;
            }
            self.bounds = bounded;
            match condition.filter(|_| !body.is_empty()) {
                None => out.text += &body,
                Some(condition) => {
                    self.out.statements += 1;
                    self.last_place = 0;
                    let pad = "  ".repeat(indent);
                    out.text += &format!("{pad}Runon c1 = {condition} {{\n{body}{pad}}}\n");
                }
            }
        }
        out
    }

    fn column<'b>(
        &mut self,
        column: &'b Column,
        present: &BTreeSet<usize>,
        around: &mut Vec<Around<'b>>,
        indent: usize,
    ) -> Part {
        match column {
            Column::Leaf { of, .. } => self.leaf(of, around, indent),
            Column::Loop { of, body } => {
                let depth = around.len();
                around.push(Around { of });
                let mut part = self.block(body, present, around, indent + 1);
                around.pop();
                let indexed = part.indices.remove(&depth);
                let points = self.points(of.iter().map(|(s, count)| (*s, 0, count.cast_signed())));
                let count = rules::number(&points, None, part.walks && !self.fixed);
                let count = self.ruled(count, &points, "the iterations of a loop", place_of(column, self.runs));
                self.out.statements += 1;
                let pad = "  ".repeat(indent);
                let index = if indexed { format!(" index = {}", index_name(depth)) } else { String::new() };
                let text = format!("{pad}Loop iterations = {count}{index} {{\n{}{pad}}}\n", part.text);
                // Only the innermost loop goes through the processes.
                Part { text, indices: part.indices, walks: false, reach: 0 }
            }
        }
    }

    fn points(&self, of: impl Iterator<Item = (usize, i64, i64)>) -> Vec<Point> {
        let mut all: Vec<Point> = of
            .filter_map(|(s, i, v)| self.runs.samples.get(s).map(|sample| Point { n: sample.n, p: sample.p, i, v }))
            .collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// A rule's text; where there is none, a table if that may be, else it is noted.
    fn ruled(&mut self, found: Option<Rule>, points: &[Point], what: &str, place: u32) -> String {
        let found = found.or_else(|| if self.fixed { rules::table(points) } else { None });
        if let Some(rule) = found {
            if !self.fixed {
                self.out.demands.extend(rule.demands);
            }
            if !rule.listed || self.fixed {
                return rule.text;
            }
        }
        let shown: Vec<String> = points
            .iter()
            .take(4)
            .map(|x| {
                format!("{} of process {} of {}", if x.v == ANY { "any".to_owned() } else { x.v.to_string() }, x.p, x.n)
            })
            .collect();
        let more = if points.len() > 4 { ", ..." } else { "" };
        self.without_rule(place, &format!("{what}: {}{more}", shown.join(", ")));
        "0".into()
    }

    fn without_rule(&mut self, place: u32, what: &str) {
        let line = match self.runs.places.get(place as usize) {
            Some(name) if !name.is_empty() => format!("{name}: {what}"),
            _ => what.to_owned(),
        };
        if !self.out.without_rule.contains(&line) {
            self.out.without_rule.push(line);
        }
    }

    fn condition(&mut self, parent: &BTreeSet<usize>, present: &BTreeSet<usize>, column: &Column) -> String {
        let place = |s: &usize| self.runs.samples.get(*s).map(|sample| (sample.n, sample.p));
        let all: Vec<(i64, i64)> = parent.iter().filter_map(place).collect();
        let wanted: BTreeSet<(i64, i64)> = present.iter().filter_map(place).collect();
        match rules::condition(&all, &wanted) {
            Some(rule) if !rule.listed || self.fixed => {
                if !self.fixed {
                    self.out.demands.extend(rule.demands);
                }
                rule.text
            }
            _ => {
                let shown: Vec<String> = wanted.iter().take(6).map(|(n, p)| format!("{p} of {n}")).collect();
                let what = format!("who does this: processes {}", shown.join(", "));
                self.without_rule(place_of(column, self.runs), &what);
                "0".into()
            }
        }
    }

    fn leaf(&mut self, of: &BTreeMap<usize, Vec<u32>>, around: &[Around], indent: usize) -> Part {
        let pad = "  ".repeat(indent);
        let mut text = String::new();
        let mut part = Part::default();
        let Some((kind, place)) = first_of(of, self.runs) else { return part };
        if let Some(time) = self.time(of, place) {
            text += &format!("{pad}Serial time = {time}\n");
            self.out.statements += 1;
        }
        if kind == Kind::End {
            return Part { text, ..part };
        }
        let name = self.runs.places.get(place as usize).filter(|name| !name.is_empty() && place != self.last_place);
        if let Some(name) = name {
            text = format!("{pad}# {name}\n{text}");
        }
        self.last_place = place;
        let fields = kind.fields(self.runs.requests);
        let mut said = Vec::new();
        for (k, field) in fields.iter().enumerate() {
            let one = self.field(of, k, *field, kind, place, around);
            part.indices.extend(one.depth);
            part.walks |= field.is_process()
                && (one.depth == around.len().checked_sub(1) && one.depth.is_some() || one.text == "ANY");
            let further =
                one.text.strip_prefix("procnum + ").filter(|_| field.is_process()).and_then(|c| c.parse().ok());
            part.reach = part.reach.max(further.unwrap_or(0));
            said.push((*field, one.text));
        }
        text += &format!("{pad}Message type = {}{}\n", kind.name(), attributes(kind, &said, self.runs));
        self.out.statements += 1;
        Part { text, ..part }
    }

    /// A field of a statement: the same in each iteration, or by the index of one loop around it.
    fn field(
        &mut self,
        of: &BTreeMap<usize, Vec<u32>>,
        k: usize,
        field: Field,
        kind: Kind,
        place: u32,
        around: &[Around],
    ) -> Said {
        let runs = self.runs;
        let value = |s: usize, act: u32| {
            runs.samples.get(s).and_then(|x| x.acts.get(act as usize)?.numbers.get(k)).copied().unwrap_or(0)
        };
        let constant = of.iter().all(|(s, acts)| acts.iter().all(|act| value(*s, *act) == value(*s, acts[0])));
        let what = format!("{}: {}", kind.name(), format!("{field:?}").to_lowercase());
        // Of one process alone, a number is a number.
        let alone = self.fixed && of.len() == 1;
        let rule = |points: &[Point], index: Option<&str>| {
            if points.iter().all(|x| x.v == ANY) {
                return Some(Rule { text: "ANY".into(), demands: None, listed: false });
            }
            if let (true, [only]) = (alone, points) {
                return Some(Rule { text: only.v.to_string(), demands: None, listed: true });
            }
            if field.is_process() { rules::process(points, index) } else { rules::number(points, index, false) }
        };
        if constant {
            let points = self.points(of.iter().map(|(s, acts)| (*s, 0, value(*s, acts[0]))));
            return Said { text: self.ruled(rule(&points, None), &points, &what, place), depth: None };
        }
        for depth in (0..around.len()).rev() {
            let Some(points) = self.by_index(of, depth, around, &value) else { continue };
            if let Some(found) = rule(&points, Some(&index_name(depth))) {
                return Said { text: self.ruled(Some(found), &points, &what, place), depth: Some(depth) };
            }
        }
        let points = self.points(
            of.iter()
                .flat_map(|(s, acts)| acts.iter().take(3).enumerate().map(|(i, act)| (*s, i as i64, value(*s, *act)))),
        );
        // A table knows processes, not iterations.
        let fixed = std::mem::take(&mut self.fixed);
        let text = self.ruled(None, &points, &format!("{what} changes from one time to the next"), place);
        self.fixed = fixed;
        Said { text, depth: None }
    }

    /// The numbers by the index of one loop; none if they depend on more.
    fn by_index(
        &self,
        of: &BTreeMap<usize, Vec<u32>>,
        depth: usize,
        around: &[Around],
        value: &impl Fn(usize, u32) -> i64,
    ) -> Option<Vec<Point>> {
        let mut all = Vec::new();
        for (s, acts) in of {
            let count = |a: &Around| a.of.get(s).copied().unwrap_or(1);
            let inner: u64 = around.get(depth + 1..)?.iter().map(count).product();
            let own = count(around.get(depth)?);
            let mut by_index: BTreeMap<u64, i64> = BTreeMap::new();
            for (o, act) in acts.iter().enumerate() {
                let i = o as u64 / inner.max(1) % own.max(1);
                let v = value(*s, *act);
                if *by_index.entry(i).or_insert(v) != v {
                    return None;
                }
            }
            all.extend(by_index.into_iter().map(|(i, v)| (*s, i.cast_signed(), v)));
            if all.len() > MOST_POINTS {
                return None;
            }
        }
        Some(self.points(all.into_iter()))
    }

    fn time(&mut self, of: &BTreeMap<usize, Vec<u32>>, place: u32) -> Option<String> {
        let mut by_count: BTreeMap<i64, Moments> = BTreeMap::new();
        for (s, acts) in of {
            let Some(sample) = self.runs.samples.get(*s) else { continue };
            let moments = by_count.entry(sample.n).or_default();
            acts.iter().filter_map(|act| sample.before_ns.get(*act as usize)).for_each(|ns| moments.add(*ns as f64));
        }
        let law = times::law(&by_count, self.fixed)?;
        self.out.split |= law.split;
        if let Some(doubt) = law.doubt {
            let name = self.runs.places.get(place as usize).filter(|n| !n.is_empty()).map_or("a call", String::as_str);
            self.out.doubts.push(format!("{name}: what is computed before: {doubt}"));
        }
        Some(law.text)
    }
}

fn first_of(of: &BTreeMap<usize, Vec<u32>>, runs: &Runs) -> Option<(Kind, u32)> {
    let (sample, acts) = of.first_key_value()?;
    let (sample, act) = (runs.samples.get(*sample)?, *acts.first()? as usize);
    Some((sample.acts.get(act)?.kind, sample.places.get(act).copied()?))
}

fn place_of(column: &Column, runs: &Runs) -> u32 {
    match column {
        Column::Leaf { of, .. } => first_of(of, runs).map_or(0, |(_, place)| place),
        Column::Loop { body, .. } => body.first().map_or(0, |column| place_of(column, runs)),
    }
}

/// The attributes of a message, each with a blank before it.
fn attributes(kind: Kind, said: &[(Field, String)], runs: &Runs) -> String {
    let texts = |field: Field| said.iter().filter(move |(f, _)| *f == field).map(|(_, text)| text.as_str());
    let one = |field: Field| texts(field).next();
    let mut out = String::new();
    let mut add = |name: &str, text: Option<&str>| {
        if let Some(text) = text {
            out += &format!("  {name} = {text}");
        }
    };
    let barrier = matches!(kind, Kind::Collective { kind: 0, .. });
    add("size", one(Field::Size).filter(|_| !barrier));
    add("to", one(Field::To));
    add("tag", one(Field::Tag).filter(|_| runs.tags));
    add("from", one(Field::From));
    let wanted = if kind == Kind::Sendrecv { "recvtag" } else { "tag" };
    let any = |text: &&str| *text != "ANY" || kind == Kind::Sendrecv;
    add(wanted, one(Field::RecvTag).filter(|_| runs.tags).filter(any));
    add("root", one(Field::Root));
    match kind {
        Kind::Collective { group: Group::Range, .. } => {
            let group = format!("{}..{}", one(Field::Low).unwrap_or("0"), one(Field::High).unwrap_or("0"));
            add("from", Some(&group));
        }
        Kind::Collective { group: Group::List(_), .. } => {
            add("from", Some(&texts(Field::Member).collect::<Vec<_>>().join(", ")));
        }
        _ => {}
    }
    add("comm", one(Field::Comm).filter(|text| *text != "0"));
    let requests: Vec<String> = texts(Field::Request).map(|text| format!("r[{text}]")).collect();
    if kind.begins() || matches!(kind, Kind::Wait(_) | Kind::WaitOldest | Kind::WaitAll | Kind::Free) {
        add("req", Some(&if requests.is_empty() { "r".to_owned() } else { requests.join(", ") }));
    }
    out
}

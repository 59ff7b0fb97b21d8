//! Goes through the functions that communicate, statement by statement, and puts down what the model must say at each.

use std::collections::{BTreeMap, BTreeSet};

use tree_sitter::Node;

use crate::c::{self, Call, Unit, arguments, line, unwrapped};
use crate::calls::{self, CHEAP, ENDING, Kind};
use crate::error::{Error, Unknown};
use crate::expr::Expr;
use crate::loops;
use crate::steps::{Arm, Segment, Step};
use crate::translate::{LOOPS, Reason, ancestor, statements_of};

/// How deeply statements may be nested.
const MOST_DEPTH: usize = 100;
/// How many directives a model may have.
const MOST_STEPS: usize = 100_000;

/// Where the walk is: in which function, and which variables have a known value there.
#[derive(Debug, Clone)]
pub struct Frame<'t> {
    /// The function.
    pub function: usize,
    /// Variables with their values: indices of the loops around.
    pub given: Vec<(&'t str, Expr)>,
}

/// What is known while the walk goes on.
#[derive(Debug)]
pub struct Walker<'t> {
    /// The file.
    pub unit: Unit<'t>,
    /// Its name, for messages.
    pub file: String,
    /// The function that the model begins with.
    pub start: usize,
    /// What could not be known.
    pub unknown: BTreeSet<Unknown>,
    /// Which variable a parameter stands for: the function of a local one.
    pub owners: BTreeMap<String, Option<usize>>,
    /// Variables whose values are being looked up, so that none is asked for by itself.
    pub resolving: Vec<(usize, &'t str)>,
    /// How deep the expression is that is being translated.
    pub depth: usize,
    /// Formal parameters that directives of their functions name.
    pub formals: BTreeSet<(usize, &'t str)>,
    /// Names of loops' indices that something uses.
    pub used: BTreeSet<String>,
    /// Arrays of requests of which an element could not be told.
    pub unindexed: BTreeSet<String>,
    /// Variables that the model has too, with all their assignments: counters and the like; false: it was tried in vain.
    pub kept: BTreeMap<(usize, &'t str), bool>,
    /// What a parameter is if nobody says otherwise, by its name.
    pub defaults: BTreeMap<String, String>,
    /// Where calls begin that communicate, ordered.
    communicating: Vec<usize>,
    /// Which functions communicate.
    speaks: Vec<bool>,
    /// Statements of the first function that count, if not all.
    region: Option<(usize, usize)>,
    nesting: usize,
    steps: usize,
}

impl<'t> Walker<'t> {
    /// Ready to walk from a function.
    ///
    /// # Errors
    /// If it does not exist, does not communicate, or one that communicates calls itself.
    pub fn new(unit: Unit<'t>, file: &str, function: &str) -> Result<Self, Error> {
        let file = file.to_owned();
        let Some(start) = unit.function(function) else {
            return Err(Error::NoFunction { file, function: function.to_owned() });
        };
        let speaks = speaking(&unit);
        if !speaks[start] {
            return Err(Error::Nothing { file, function: function.to_owned() });
        }
        let spoken = |call: &Call<'t>| is_message(call.name) || unit.function(call.name).is_some_and(|f| speaks[f]);
        let all = unit.functions.iter().flat_map(|f| f.calls.iter());
        let mut communicating: Vec<usize> = all.filter(|c| spoken(c)).map(|c| c.node.start_byte()).collect();
        communicating.sort_unstable();
        Ok(Self {
            unit,
            file,
            start,
            unknown: BTreeSet::new(),
            owners: BTreeMap::new(),
            resolving: Vec::new(),
            depth: 0,
            formals: BTreeSet::new(),
            used: BTreeSet::new(),
            unindexed: BTreeSet::new(),
            kept: BTreeMap::new(),
            defaults: BTreeMap::new(),
            communicating,
            speaks,
            region: None,
            nesting: 0,
            steps: 0,
        })
    }

    /// Only what lies between the first and the last call of `MPI_Wtime` among the first function's own statements counts.
    ///
    /// # Errors
    /// If there are no two such calls.
    pub fn between_clocks(&mut self) -> Result<(), Error> {
        let function = &self.unit.functions[self.start];
        let clocks: Vec<usize> =
            function.calls.iter().filter(|c| c.name == "MPI_Wtime").map(|c| c.node.start_byte()).collect();
        let own = c::children(function.body);
        let mut with = own.iter().filter(|s| clocks.iter().any(|at| s.byte_range().contains(at)));
        match (with.next(), with.next_back()) {
            (Some(first), Some(last)) if LOOPS.iter().all(|l| *l != first.kind() && *l != last.kind()) => {
                self.region = Some((first.end_byte(), last.start_byte()));
                Ok(())
            }
            _ => Err(Error::Usage(format!(
                "{}: {} has no two calls of MPI_Wtime in its own statements; leave out --timed",
                self.file, function.name
            ))),
        }
    }

    /// The steps of all functions that the model needs, in the order of the file.
    ///
    /// # Errors
    /// Recursion, and models beyond bounds.
    pub fn walk(&mut self) -> Result<Vec<Step>, Error> {
        let order = self.callees_first()?;
        let mut all: Vec<(usize, Vec<Step>)> = Vec::new();
        for function in order {
            let body = self.unit.functions[function].body;
            let frame = Frame { function, given: Vec::new() };
            // A variable that turns out to be one of the model's must be set in what was walked before, too.
            loop {
                let (known, mut out) = (self.kept.len(), Vec::new());
                self.list(&c::children(body), &frame, &mut out)?;
                if self.kept.len() == known {
                    all.push((body.start_byte(), out));
                    break;
                }
            }
        }
        all.sort_by_key(|(at, _)| *at);
        if let Some(damaged) = self.unit.damaged {
            self.note(damaged, None, "this is not C as the parser knows it; what is near it may be left out");
        }
        Ok(all.into_iter().flat_map(|(_, steps)| steps).collect())
    }

    /// Functions that communicate and are reached, each behind those that it calls.
    fn callees_first(&self) -> Result<Vec<usize>, Error> {
        let (mut order, mut done) = (Vec::new(), vec![false; self.unit.functions.len()]);
        // A function with how many of its calls have been looked at.
        let mut way: Vec<(usize, usize)> = vec![(self.start, 0)];
        while let Some((function, at)) = way.pop() {
            let calls = &self.unit.functions[function].calls;
            let Some(call) = calls.get(at) else {
                order.push(function);
                done[function] = true;
                continue;
            };
            way.push((function, at + 1));
            let Some(next) = self.unit.function(call.name).filter(|f| self.speaks[*f] && !done[*f]) else { continue };
            if let Some(first) = way.iter().position(|(f, _)| *f == next) {
                let names = way[first..].iter().map(|(f, _)| *f).chain([next]).map(|f| self.unit.functions[f].name);
                return Err(Error::Recursion {
                    file: self.file.clone(),
                    line: line(call.node),
                    function: call.name.to_owned(),
                    chain: names.collect::<Vec<_>>().join(" -> "),
                });
            }
            way.push((next, 0));
        }
        Ok(order)
    }

    /// Takes down what could not be known.
    pub fn note(&mut self, line: u32, parameter: Option<&str>, why: &str) {
        self.unknown.insert(Unknown { line, parameter: parameter.map(str::to_owned), why: why.to_owned() });
    }

    /// Whether something in a node communicates.
    pub fn communicates(&self, node: Node<'_>) -> bool {
        let from = self.communicating.partition_point(|at| *at < node.start_byte());
        self.communicating.get(from).is_some_and(|at| *at < node.end_byte())
    }

    fn counts(&self, node: Node<'_>, frame: &Frame<'_>) -> bool {
        let inside = |(from, to): (usize, usize)| node.start_byte() >= from && node.end_byte() <= to;
        frame.function != self.start || self.region.is_none_or(inside)
    }

    /// A list of statements: what computes between two that communicate is one segment.
    pub fn list(&mut self, statements: &[Node<'t>], frame: &Frame<'t>, out: &mut Vec<Step>) -> Result<(), Error> {
        let mut open: Option<Segment> = None;
        for &statement in statements {
            // What a variable of the model holds matters wherever it is set; that alone ends no segment.
            if let Some(step) = self.assigned(statement, frame) {
                self.push(step, out)?;
            }
            if !self.counts(statement, frame) {
                self.skipped(statement, frame, out);
            } else if self.communicates(statement) {
                close(&mut open, out);
                self.nested(statement, frame, out)?;
            } else if !leaves(statement) {
                let own = Segment { heavy: self.heavy(statement, frame), ..Segment::of(statement) };
                open = Some(open.map_or(own, |before: Segment| before.with(own)));
            }
        }
        close(&mut open, out);
        Ok(())
    }

    fn push(&mut self, step: Step, out: &mut Vec<Step>) -> Result<(), Error> {
        self.steps += 1;
        if self.steps > MOST_STEPS {
            return Err(Error::TooMuch { file: self.file.clone(), line: step.line(), most: MOST_STEPS });
        }
        out.push(step);
        Ok(())
    }

    fn nested(&mut self, statement: Node<'t>, frame: &Frame<'t>, out: &mut Vec<Step>) -> Result<(), Error> {
        self.nesting += 1;
        if self.nesting > MOST_DEPTH {
            return Err(Error::TooDeep { file: self.file.clone(), line: line(statement), most: MOST_DEPTH });
        }
        let result = self.statement(statement, frame, out);
        self.nesting -= 1;
        result
    }

    /// A statement that communicates.
    fn statement(&mut self, node: Node<'t>, frame: &Frame<'t>, out: &mut Vec<Step>) -> Result<(), Error> {
        match node.kind() {
            "compound_statement" => self.list(&c::children(node), frame, out),
            "for_statement" | "while_statement" | "do_statement" => self.repeated(node, frame, out),
            "if_statement" => self.branches(node, frame, out),
            "labeled_statement" => {
                self.note(line(node), None, "a label: what jumps to it is not in the model");
                self.list(&c::children(node), frame, out)
            }
            "switch_statement" => {
                self.note(line(node), None, "a switch with messages is not in the model: make it a chain of if");
                self.skipped(node, frame, out);
                Ok(())
            }
            "preproc_if" | "preproc_ifdef" => {
                self.note(line(node), None, "both branches of a preprocessor condition are in the model");
                self.list(&c::children(node), frame, out)
            }
            "preproc_else" | "preproc_elif" | "else_clause" => self.list(&c::children(node), frame, out),
            _ => self.straight(node, frame, out),
        }
    }

    /// The calls of a statement one after the other.
    fn straight(&mut self, node: Node<'t>, frame: &Frame<'t>, out: &mut Vec<Step>) -> Result<(), Error> {
        let mut before = None;
        for call in self.calls_in(node, frame.function) {
            let at = place_of(call.node, before);
            before = Some(call.node.start_byte());
            if is_message(call.name) {
                let step = self.message(call, at, frame);
                self.push(step, out)?;
            } else if let Some(callee) = self.unit.function(call.name) {
                for step in self.given_to(callee, call, at, frame) {
                    self.push(step, out)?;
                }
            }
        }
        Ok(())
    }

    fn calls_in(&self, node: Node<'t>, function: usize) -> Vec<Call<'t>> {
        let calls = &self.unit.functions[function].calls;
        let from = calls.partition_point(|c| c.node.start_byte() < node.start_byte());
        let inside = calls[from..].iter().take_while(|c| c.node.start_byte() < node.end_byte());
        inside.filter(|c| self.communicating.binary_search(&c.node.start_byte()).is_ok()).copied().collect()
    }

    /// `Skip` for each call of MPI that the model leaves out.
    fn skipped(&mut self, node: Node<'t>, frame: &Frame<'t>, out: &mut Vec<Step>) {
        let mut before = None;
        for call in self.calls_in(node, frame.function) {
            let at = place_of(call.node, before);
            before = Some(call.node.start_byte());
            if is_message(call.name) {
                let step = Step::Skip { at, line: line(call.node) };
                self.steps += 1;
                out.push(step);
            } else {
                let why = format!(
                    "{} communicates, and its messages are in the model although this call is to be left out",
                    call.name
                );
                self.note(line(call.node), None, &why);
            }
        }
    }

    /// Values of variables that a function's directives know as its parameters.
    fn given_to(&mut self, callee: usize, call: Call<'t>, at: usize, frame: &Frame<'t>) -> Vec<Step> {
        let parameters = self.unit.functions[callee].parameters.clone();
        let mut out = Vec::new();
        for (formal, actual) in parameters.iter().zip(arguments(call.node)) {
            if !self.formals.contains(&(callee, formal)) {
                continue;
            }
            if let Err(why) = self.value(actual, frame) {
                self.note(
                    line(call.node),
                    None,
                    &format!("{formal} of {} has no value in the model: {why}", call.name),
                );
                continue;
            }
            for name in self.names_in(actual) {
                let value = self.value(name, frame);
                let text = self.unit.text_of(name);
                let Some(value) = value.ok().filter(|v| {
                    v.to_string() != text && !matches!(v, Expr::Name(n) if n == "procnum" || n == "numprocs")
                }) else {
                    continue;
                };
                out.push(Step::Set { at, line: line(call.node), name: text.to_owned(), value: value.to_string() });
            }
        }
        out
    }

    fn names_in(&self, node: Node<'t>) -> Vec<Node<'t>> {
        let mut all = Vec::new();
        c::each(node, |inner| {
            let known = inner.kind() == "identifier" && inner.parent().is_none_or(|p| p.kind() != "call_expression");
            if known && self.unit.function(self.unit.text_of(inner)).is_none() {
                all.push(inner);
            }
            true
        });
        all
    }

    fn branches(&mut self, node: Node<'t>, frame: &Frame<'t>, out: &mut Vec<Step>) -> Result<(), Error> {
        let (Some(condition), Some(then)) =
            (node.child_by_field_name("condition"), node.child_by_field_name("consequence"))
        else {
            return self.straight(node, frame, out);
        };
        if self.communicates(condition) {
            self.straight(condition, frame, out)?;
        }
        let other = node.child_by_field_name("alternative");
        if !self.communicates(then) && other.is_none_or(|o| !self.communicates(o)) {
            return Ok(());
        }
        let mut arms =
            vec![Arm { label: String::new(), at: node.start_byte(), end: then.end_byte(), body: Vec::new() }];
        self.list(&statements_of(then), frame, &mut arms[0].body)?;
        if let Some(other) = other {
            let mut body = Vec::new();
            self.list(&c::children(other), frame, &mut body)?;
            arms.push(Arm { label: "else".into(), at: then.end_byte(), end: other.end_byte(), body });
        }
        let place = line(node);
        let random = match self.value(condition, frame) {
            Ok(value) if self.decided(&value) => {
                arms[0].label = value.to_string();
                false
            }
            Ok(value) => self.by_chance(place, &format!("{value} is not known before the run"), &mut arms, node, frame),
            Err(why) => self.by_chance(place, &why, &mut arms, node, frame),
        };
        self.push(Step::Branch { at: node.start_byte(), line: place, random, arms }, out)
    }

    /// Whether a condition depends only on what a model knows.
    fn decided(&self, value: &Expr) -> bool {
        !value.any(&mut |e| matches!(e, Expr::Name(n) if n.starts_with("argc")))
    }

    fn by_chance(&mut self, place: u32, why: &str, arms: &mut Vec<Arm>, node: Node<'t>, frame: &Frame<'t>) -> bool {
        let text = node.child_by_field_name("condition").map_or_else(String::new, |c| self.short(c));
        let why = format!("how often {text} holds, from 0 to 1: {why}");
        let chance = self.parameter(&format!("chance_{place}"), node, frame, &why).to_string();
        arms[0].label.clone_from(&chance);
        match arms.get_mut(1) {
            Some(other) => other.label = format!("1-{chance}"),
            None => {
                let end = arms[0].end;
                arms.push(Arm { label: format!("1-{chance}"), at: end, end, body: Vec::new() });
            }
        }
        true
    }

    fn repeated(&mut self, node: Node<'t>, frame: &Frame<'t>, out: &mut Vec<Step>) -> Result<(), Error> {
        let Some(body) = node.child_by_field_name("body") else { return self.straight(node, frame, out) };
        let (head, inner) = loops::head(self, node, body, frame);
        let mut steps = Vec::new();
        // What a condition or update communicates, it does in each iteration.
        let parts = ["condition", "update"].iter().filter_map(|f| node.child_by_field_name(f));
        let parts: Vec<Node<'t>> = parts.filter(|p| self.communicates(*p)).collect();
        let behind = node.kind() == "do_statement";
        if behind {
            self.list(&statements_of(body), &inner.frame, &mut steps)?;
        }
        for part in parts {
            self.straight(part, &inner.frame, &mut steps)?;
        }
        if !behind {
            self.list(&statements_of(body), &inner.frame, &mut steps)?;
        }
        let index = inner.index.filter(|name| self.used.contains(name));
        self.push(
            Step::Loop { at: node.start_byte(), end: node.end_byte(), line: line(node), head, index, body: steps },
            out,
        )
    }

    /// An assignment to a variable that the model has too.
    fn assigned(&mut self, node: Node<'t>, frame: &Frame<'t>) -> Option<Step> {
        if !matches!(node.kind(), "expression_statement" | "declaration") || self.communicates(node) {
            return None;
        }
        let inner = c::children(node)
            .into_iter()
            .find(|n| matches!(n.kind(), "assignment_expression" | "update_expression" | "init_declarator"))?;
        let target = ["left", "argument", "declarator"].iter().find_map(|f| inner.child_by_field_name(f))?;
        let name = self.unit.variable(target)?;
        if self.kept.get(&(frame.function, name)) != Some(&true) && self.bound(name, frame).is_none() {
            return None;
        }
        let value = self.new_value(name, inner, frame).ok()?;
        Some(Step::Set { at: node.start_byte(), line: line(node), name: name.to_owned(), value: value.to_string() })
    }

    /// What an assignment leaves in a variable.
    pub fn new_value(&mut self, name: &'t str, node: Node<'t>, frame: &Frame<'t>) -> Result<Expr, Reason> {
        let field = |field: &str| node.child_by_field_name(field);
        let op = field("operator").map_or("=", |o| self.unit.text_of(o));
        if node.kind() == "update_expression" {
            let op = if op == "++" { "+" } else { "-" };
            return Ok(Expr::binary(op, Expr::name(name), Expr::int(1)));
        }
        let value = self.value(field("right").or_else(|| field("value")).ok_or("no value")?, frame)?;
        if op == "=" {
            return Ok(value);
        }
        let op = crate::expr::operator(op.trim_end_matches('=')).ok_or("an unknown assignment")?;
        Ok(Expr::binary(op, Expr::name(name), value))
    }

    /// Whether the model can have this variable itself: each assignment can be said, and stands where the model goes along.
    pub fn keeps(&mut self, name: &'t str, frame: &Frame<'t>) -> bool {
        let key = (frame.function, name);
        if let Some(known) = self.kept.get(&key) {
            return *known;
        }
        let function = &self.unit.functions[frame.function];
        let single = function.locals.get(name) == Some(&1) && !function.parameters.contains(&name);
        let other = self.owners.contains_key(name)
            || self.kept.iter().any(|((f, n), kept)| *kept && *n == name && *f != frame.function);
        let writes = function.writes.get(name).cloned().unwrap_or_default();
        let followed = |node: Node<'t>| {
            let plain = node.parent().is_some_and(|p| matches!(p.kind(), "expression_statement" | "declaration"));
            let mut around = ancestor(node, &AROUND);
            while let Some(statement) = around {
                if !self.communicates(statement) || statement.kind() == "switch_statement" {
                    return false;
                }
                around = ancestor(statement, &AROUND);
            }
            plain
        };
        let mut fits = single
            && !other
            && writes.len() < 100
            && writes.iter().all(|w| !w.by.starts_with(char::is_alphabetic) && followed(w.node));
        if fits {
            // What is looked at in vain must leave no parameters behind.
            let before = (self.unknown.clone(), self.owners.clone(), self.defaults.clone());
            self.kept.insert(key, true);
            fits = writes.iter().all(|w| self.new_value(name, w.node, frame).is_ok());
            if !fits {
                (self.unknown, self.owners, self.defaults) = before;
            }
        }
        self.kept.insert(key, fits);
        fits
    }

    /// The variable of the model of this name, if a message gives it its value.
    pub fn bound(&self, name: &str, frame: &Frame<'t>) -> Option<Expr> {
        if name.ends_with(".MPI_SOURCE") || name.ends_with(".MPI_TAG") {
            return Some(Expr::name(name));
        }
        let writes = self.unit.functions[frame.function].writes.get(name)?;
        let tested = |by: &str| matches!(by, "MPI_Test" | "MPI_Testall" | "MPI_Iprobe");
        writes.iter().any(|w| tested(w.by)).then(|| Expr::name(name))
    }

    /// Whether a statement computes enough to be a segment: it loops, or calls what is not known to be cheap.
    fn heavy(&self, node: Node<'t>, frame: &Frame<'t>) -> bool {
        let mut found = false;
        c::each(node, |inner| {
            found |= LOOPS.contains(&inner.kind());
            !found
        });
        let calls = &self.unit.functions[frame.function].calls;
        let from = calls.partition_point(|c| c.node.start_byte() < node.start_byte());
        let mut inside = calls[from..].iter().take_while(|c| c.node.start_byte() < node.end_byte());
        let ends = inside.clone().any(|c| ENDING.contains(&c.name));
        // Nobody asks how long it takes to fail.
        !ends
            && (found
                || inside.any(|c| !c.name.starts_with("MPI_") && !CHEAP.contains(&c.name) && !self.is_cheap_copy(*c)))
    }

    /// A copy of one object.
    fn is_cheap_copy(&self, call: Call<'t>) -> bool {
        let size = arguments(call.node).into_iter().nth(2).map(unwrapped);
        matches!(call.name, "memcpy" | "memset" | "memmove") && size.is_some_and(|s| s.kind() == "sizeof_expression")
    }

    /// What stands for a value that is not known at a place.
    pub fn value_or(&mut self, node: Option<Node<'t>>, name: &str, at: Node<'t>, frame: &Frame<'t>) -> Expr {
        let value = match node {
            Some(node) => self.value(node, frame),
            None => Err(Reason::from("the call has too few arguments")),
        };
        match value {
            Ok(value) => value,
            Err(why) => self.parameter(&format!("{name}_{}", line(at)), at, frame, &why),
        }
    }
}

fn close(open: &mut Option<Segment>, out: &mut Vec<Step>) {
    if let Some(segment) = open.take().filter(|s| s.heavy) {
        out.push(Step::Serial(segment));
    }
}

/// Statements that decide whether what is in them is done.
const AROUND: [&str; 5] = ["if_statement", "for_statement", "while_statement", "do_statement", "switch_statement"];

/// Whether a statement only goes elsewhere, or only declares.
fn leaves(node: Node<'_>) -> bool {
    matches!(node.kind(), "return_statement" | "break_statement" | "continue_statement" | "goto_statement" | "comment")
}

/// Where a directive for a call may stand: before its statement, unless other calls begin between there and here.
pub fn place_of(call: Node<'_>, before: Option<usize>) -> usize {
    let kinds = [
        "expression_statement",
        "declaration",
        "return_statement",
        "if_statement",
        "for_statement",
        "while_statement",
        "do_statement",
    ];
    let start =
        ancestor(call, &kinds).filter(|s| s.kind() != "do_statement").map_or(call.start_byte(), |s| s.start_byte());
    if before.is_some_and(|before| before >= start) { call.start_byte() } else { start }
}

/// Whether a function of this name is a message of the model.
pub fn is_message(name: &str) -> bool {
    !matches!(calls::kind(name), None | Some(Ok(Kind::Local | Kind::Abort)))
}

/// Which functions communicate, themselves or by those they call.
fn speaking(unit: &Unit<'_>) -> Vec<bool> {
    let mut callers: Vec<Vec<usize>> = vec![Vec::new(); unit.functions.len()];
    for (caller, function) in unit.functions.iter().enumerate() {
        for callee in function.calls.iter().filter_map(|c| unit.function(c.name)) {
            callers[callee].push(caller);
        }
    }
    let mut speaks: Vec<bool> = unit.functions.iter().map(|f| f.calls.iter().any(|c| is_message(c.name))).collect();
    let mut fresh: Vec<usize> = (0..speaks.len()).filter(|f| speaks[*f]).collect();
    while let Some(function) = fresh.pop() {
        for &caller in &callers[function] {
            if !speaks[caller] {
                speaks[caller] = true;
                fresh.push(caller);
            }
        }
    }
    speaks
}

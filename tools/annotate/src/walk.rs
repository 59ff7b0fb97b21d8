//! Goes through the functions that communicate, statement by statement, and puts down what the
//! model must say at each.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use tree_sitter::Node;

use crate::c::{self, Call, Unit, Var, arguments, line, unwrapped};
use crate::calls::{self, CHEAP, ENDING, Kind};
use crate::error::{Error, Unknown};
use crate::expr::Expr;
use crate::leaving::Way;
use crate::names::Names;
use crate::steps::{Arm, Segment, Step};
use crate::translate::{LOOPS, Reason, statements_of};
use crate::types::Typed;

/// How deeply statements may be nested.
const MOST_DEPTH: usize = 100;
/// How many directives a model may have.
const MOST_STEPS: usize = 100_000;
/// How often the file is gone through until no more variables turn out to be the model's.
const MOST_PASSES: usize = 200;

/// A variable whose value is known in a part of the text: the index of a loop.
#[derive(Debug, Clone)]
pub struct Given {
    /// Which.
    pub var: Var,
    /// Where: bytes.
    pub range: Range<usize>,
    /// Its value there.
    pub value: Typed,
    /// The name of the model's index that the value mentions.
    pub index: String,
}

/// A loop around a place.
#[derive(Debug, Clone)]
pub struct Around {
    /// Its line.
    pub line: u32,
    /// What is 1 when it has been left.
    pub left: String,
    /// What is 1 when the rest of this iteration is left out.
    pub next: String,
    /// Whether its iterations are counted, so that leaving it early is against its count.
    pub counted: bool,
}

/// Where the walk is: in which function, which variables have a known value there, which loops are
/// around.
#[derive(Debug, Clone)]
pub struct Frame {
    /// The function.
    pub function: usize,
    /// Variables with their values: indices of the loops around.
    pub given: Vec<Given>,
    /// The loops around, innermost last.
    pub loops: Vec<Around>,
    /// How many loops are around the innermost condition that a model does not know: what leaves
    /// more than that cannot be followed.
    pub unsure: Option<usize>,
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
    /// The names of the model.
    pub names: Names,
    /// Names that are parameters.
    pub parameters: BTreeSet<String>,
    /// Parameters that stand for what changes while the program runs.
    pub guesses: BTreeSet<String>,
    /// Names of the model that change while it runs.
    pub changing: BTreeSet<String>,
    /// Of these, what messages give a value.
    pub bound: BTreeSet<String>,
    /// Values of variables that have one assignment.
    pub cache: BTreeMap<Var, Typed>,
    /// Variables whose values are being looked up, so that none is asked for by itself.
    pub resolving: Vec<Var>,
    /// How deep the expression is that is being translated.
    pub depth: usize,
    /// Arguments that directives of their functions name.
    pub formals: BTreeSet<Var>,
    /// Names of loops' indices that something uses.
    pub used: BTreeSet<String>,
    /// Arrays of requests of which an element could not be told.
    pub unindexed: BTreeSet<String>,
    /// Variables that the model has too, with all their assignments: counters and the like.
    pub kept: BTreeMap<Var, Option<String>>,
    /// `for` statements that are no counts.
    pub general: BTreeSet<usize>,
    /// What a parameter is if nobody says otherwise, by its name.
    pub defaults: BTreeMap<String, String>,
    /// Functions that the model has.
    pub walked: BTreeSet<usize>,
    /// What was set by the statements walked last to say that a loop or function is left.
    pub cleared: BTreeSet<String>,
    /// Where calls begin that communicate, ordered.
    pub communicating: Vec<usize>,
    /// Where variables that the model has are set, ordered.
    setting: Vec<usize>,
    /// Which functions communicate.
    pub speaks: Vec<bool>,
    /// Statements of the first function that count, if not all.
    region: Option<(usize, usize)>,
    nesting: usize,
    /// How many steps there are.
    pub steps: usize,
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
        let spoken = |call: &Call<'t>| is_message(call.name) || unit.function(call.name).is_some_and(|f| speaks[f]);
        let all = unit.functions.iter().flat_map(|f| f.calls.iter());
        let mut communicating: Vec<usize> = all.filter(|c| spoken(c)).map(|c| c.node.start_byte()).collect();
        communicating.sort_unstable();
        let mut walker = Self {
            unit,
            file,
            start,
            unknown: BTreeSet::new(),
            names: Names::default(),
            parameters: BTreeSet::new(),
            guesses: BTreeSet::new(),
            changing: BTreeSet::new(),
            bound: BTreeSet::new(),
            cache: BTreeMap::new(),
            resolving: Vec::new(),
            depth: 0,
            formals: BTreeSet::new(),
            used: BTreeSet::new(),
            unindexed: BTreeSet::new(),
            kept: BTreeMap::new(),
            general: BTreeSet::new(),
            defaults: BTreeMap::new(),
            walked: BTreeSet::new(),
            cleared: BTreeSet::new(),
            communicating,
            setting: Vec::new(),
            speaks,
            region: None,
            nesting: 0,
            steps: 0,
        };
        if walker.speaks[start] {
            return Ok(walker);
        }
        (0..walker.unit.functions.len()).for_each(|function| walker.hidden(function));
        let hidden = walker.unknown.into_iter().take(3).collect();
        Err(Error::Nothing { file: walker.file, function: function.to_owned(), hidden })
    }

    /// Only what lies between the first and the last call of `MPI_Wtime` among the first function's
    /// own statements counts.
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
        self.walked = order.iter().copied().collect();
        // A variable that turns out to be one of the model's must be set in what was walked before,
        // too.
        for _ in 0..MOST_PASSES {
            let known = (self.kept.len(), self.formals.len(), self.general.len(), self.changing.len());
            let steps = self.pass(&order)?;
            if (self.kept.len(), self.formals.len(), self.general.len(), self.changing.len()) == known {
                return Ok(steps);
            }
        }
        Err(Error::TooMuch { file: self.file.clone(), line: 1, most: MOST_STEPS })
    }

    fn pass(&mut self, order: &[usize]) -> Result<Vec<Step>, Error> {
        self.unknown.clear();
        self.parameters.clear();
        self.defaults.clear();
        self.unindexed.clear();
        self.cache.clear();
        self.steps = 0;
        self.setting = self.all_set();
        let mut all: Vec<(usize, Vec<Step>)> = Vec::new();
        for &function in order {
            let body = self.unit.functions[function].body;
            all.push((body.start_byte(), self.whole_function(function)?));
            self.hidden(function);
        }
        all.sort_by_key(|(at, _)| *at);
        if let Some(damaged) = self.unit.damaged {
            self.note(damaged, "this is not C as the parser knows it; what is near it may be left out");
        }
        for (path, line) in self.unit.includes.clone() {
            self.note(
                line,
                &format!("{path} is not read: what its functions and macros communicate is not in the model"),
            );
        }
        Ok(all.into_iter().flat_map(|(_, steps)| steps).collect())
    }

    fn whole_function(&mut self, function: usize) -> Result<Vec<Step>, Error> {
        let body = self.unit.functions[function].body;
        let frame = Frame { function, given: Vec::new(), loops: Vec::new(), unsure: None };
        let statements = c::children(body);
        let Some(first) = statements.first() else { return Ok(Vec::new()) };
        let (at, place) = (first.start_byte(), line(*first));
        let mut out = Vec::new();
        if function == self.start {
            self.file_variables(at, place, &frame, &mut out);
        }
        let before = out.len();
        self.cleared.clear();
        self.list(&statements, &frame, &mut out)?;
        let gone = self.gone(function);
        if self.cleared.remove(&gone) {
            out.insert(before, Step::set(at, place, gone, "0".into()));
        }
        Ok(out)
    }

    /// What variables outside of functions hold at the start, of those that the model has.
    fn file_variables(&mut self, at: usize, place: u32, frame: &Frame, out: &mut Vec<Step>) {
        let kept: Vec<(Var, String)> = self.kept.iter().filter_map(|(v, n)| Some((*v, n.clone()?))).collect();
        for (var, name) in kept {
            let variable = self.unit.variables[var].clone();
            if variable.function.is_some() {
                continue;
            }
            let first = self.unit.writes_of(variable.name, var).into_iter().find(|w| w.function.is_none());
            let value = first.and_then(|w| w.value).zip(variable.ty);
            let value = value.and_then(|(value, ty)| Some(self.typed(value, frame).ok()?.converted(ty).settled().expr));
            out.push(Step::set(at, place, name, value.unwrap_or(Expr::int(0)).to_string()));
        }
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

    /// Whether something in a node communicates.
    pub fn communicates(&self, node: Node<'_>) -> bool {
        let from = self.communicating.partition_point(|at| *at < node.start_byte());
        self.communicating.get(from).is_some_and(|at| *at < node.end_byte())
    }

    /// Whether something in a node sets a variable that the model has.
    fn sets(&self, node: Node<'t>) -> bool {
        let from = self.setting.partition_point(|at| *at < node.start_byte());
        self.setting.get(from).is_some_and(|at| *at < node.end_byte())
    }

    fn all_set(&self) -> Vec<usize> {
        let kept = self.kept.iter().filter(|(_, name)| name.is_some());
        let writes = kept.flat_map(|(var, _)| self.unit.writes_of(self.unit.variables[*var].name, *var));
        let mut all: Vec<usize> = writes.map(|w| w.node.start_byte()).collect();
        all.sort_unstable();
        all
    }

    fn counts(&self, node: Node<'_>, frame: &Frame) -> bool {
        let inside = |(from, to): (usize, usize)| node.start_byte() >= from && node.end_byte() <= to;
        frame.function != self.start || self.region.is_none_or(inside)
    }

    /// A list of statements: what computes between two that communicate is one segment.
    pub fn list(&mut self, statements: &[Node<'t>], frame: &Frame, out: &mut Vec<Step>) -> Result<(), Error> {
        let mut open: Option<Segment> = None;
        for (number, &statement) in statements.iter().enumerate() {
            let before = std::mem::take(&mut self.cleared);
            self.one(statement, frame, &mut open, out)?;
            let own = std::mem::replace(&mut self.cleared, before);
            if own.is_empty() {
                continue;
            }
            // What follows is done only where the statement has not left the loop or the function.
            self.cleared.extend(own.iter().cloned());
            close(&mut open, out);
            let rest = &statements[number + 1..];
            let (Some(first), Some(last)) = (rest.first(), rest.last()) else { return Ok(()) };
            let mut body = Vec::new();
            self.deeper(*first)?;
            self.list(rest, frame, &mut body)?;
            self.nesting -= 1;
            if !body.is_empty() {
                let arm = Arm { label: self.guard(&own, frame), at: first.start_byte(), end: last.end_byte(), body };
                self.push(Step::Branch { at: arm.at, line: line(*first), random: false, arms: vec![arm] }, out)?;
            }
            return Ok(());
        }
        close(&mut open, out);
        Ok(())
    }

    /// One statement of a list.
    fn one(
        &mut self,
        statement: Node<'t>,
        frame: &Frame,
        open: &mut Option<Segment>,
        out: &mut Vec<Step>,
    ) -> Result<(), Error> {
        let (speaks, counts) = (self.communicates(statement), self.counts(statement, frame));
        let sets = self.sets(statement);
        self.look_ahead(statement, frame);
        if speaks && !counts {
            self.skipped(statement, frame, out);
            return self.assigned(statement, frame, out);
        }
        let (mut steps, mut around) = (Vec::new(), false);
        if speaks {
            self.nested(statement, frame, &mut steps)?;
        } else if sets || self.may_leave(statement) {
            self.nested(statement, frame, &mut steps)?;
            // What is only looked at, and leaves nothing that is followed, is computing as any
            // other.
            around = is_compound(statement) && (sets || !self.cleared.is_empty());
            if !around {
                steps.retain(|step| matches!(step, Step::Set { .. }));
            }
        }
        if !counts {
            without_time(&mut steps);
        }
        if speaks || (around && !steps.is_empty()) {
            close(open, out);
        }
        for step in steps {
            self.push(step, out)?;
        }
        if !speaks && !around && counts && !leaves(statement) {
            let own = Segment { heavy: self.heavy(statement, frame), ..Segment::of(statement) };
            *open = Some(open.map_or(own, |before: Segment| before.with(own)));
        }
        Ok(())
    }

    /// Looks up what a declaration says while little is needed for it: long chains are then short.
    fn look_ahead(&mut self, statement: Node<'t>, frame: &Frame) {
        if statement.kind() != "declaration" {
            return;
        }
        for inner in c::children(statement).into_iter().filter(|n| n.kind() == "init_declarator") {
            let name = inner.child_by_field_name("declarator").and_then(|d| self.unit.variable(d));
            let var = name.and_then(|name| self.unit.resolve(name, inner.start_byte()));
            if let (Some(name), Some(var)) = (name, var)
                && self.unit.writes_of(name, var).len() == 1
            {
                let (unknown, parameters) = (self.unknown.clone(), self.parameters.clone());
                if self.variable(name, inner, frame).is_err() {
                    (self.unknown, self.parameters) = (unknown, parameters);
                }
            }
        }
    }

    /// Takes up a step, within bounds.
    pub fn push(&mut self, step: Step, out: &mut Vec<Step>) -> Result<(), Error> {
        self.steps += 1;
        if self.steps > MOST_STEPS {
            return Err(Error::TooMuch { file: self.file.clone(), line: step.line(), most: MOST_STEPS });
        }
        out.push(step);
        Ok(())
    }

    fn deeper(&mut self, at: Node<'t>) -> Result<(), Error> {
        self.nesting += 1;
        if self.nesting > MOST_DEPTH {
            return Err(Error::TooDeep { file: self.file.clone(), line: line(at), most: MOST_DEPTH });
        }
        Ok(())
    }

    fn nested(&mut self, statement: Node<'t>, frame: &Frame, out: &mut Vec<Step>) -> Result<(), Error> {
        self.deeper(statement)?;
        let result = self.statement(statement, frame, out);
        self.nesting -= 1;
        result
    }

    /// A statement that communicates, sets a variable of the model, or may leave.
    fn statement(&mut self, node: Node<'t>, frame: &Frame, out: &mut Vec<Step>) -> Result<(), Error> {
        match node.kind() {
            "compound_statement" => self.list(&c::children(node), frame, out),
            "for_statement" | "while_statement" | "do_statement" => self.repeated(node, frame, out),
            "if_statement" => self.branches(node, frame, out),
            "labeled_statement" => {
                self.note(line(node), "a label: what jumps to it is not in the model");
                self.list(&c::children(node), frame, out)
            }
            "switch_statement" => {
                if self.communicates(node) {
                    self.note(line(node), "a switch with messages is not in the model: make it a chain of if");
                    self.skipped(node, frame, out);
                }
                self.left_unseen(node, frame);
                Ok(())
            }
            "preproc_if" | "preproc_ifdef" => {
                self.note(line(node), "both branches of a preprocessor condition are in the model");
                self.list(&c::children(node), frame, out)
            }
            "preproc_else" | "preproc_elif" | "else_clause" => self.list(&c::children(node), frame, out),
            "return_statement" => {
                self.straight(node, frame, out)?;
                self.leave(Way::Return, node, frame, out)
            }
            "break_statement" => self.leave(Way::Break, node, frame, out),
            "continue_statement" => self.leave(Way::Continue, node, frame, out),
            "goto_statement" => {
                let text = self.short(node);
                self.note(line(node), &format!("{text}: the model goes on as if it were not there"));
                Ok(())
            }
            _ => {
                self.straight(node, frame, out)?;
                self.assigned(node, frame, out)?;
                match self.ending_call(node) {
                    Some(call) => self.leave(Way::End(call.name), call.node, frame, out),
                    None => Ok(()),
                }
            }
        }
    }

    fn branches(&mut self, node: Node<'t>, frame: &Frame, out: &mut Vec<Step>) -> Result<(), Error> {
        let (Some(condition), Some(then)) =
            (node.child_by_field_name("condition"), node.child_by_field_name("consequence"))
        else {
            return self.straight(node, frame, out);
        };
        if self.communicates(condition) {
            self.straight(condition, frame, out)?;
        }
        let other = node.child_by_field_name("alternative");
        let known = match self.value(condition, frame) {
            Ok(value) if self.is_decided(&value) => Ok(value),
            Ok(value) => Err(format!("{value} is not known before the run")),
            Err(why) => Err(why),
        };
        let mut inner = frame.clone();
        if known.is_err() {
            inner.unsure = Some(frame.loops.len());
        }
        let mut arms =
            vec![Arm { label: String::new(), at: node.start_byte(), end: then.end_byte(), body: Vec::new() }];
        self.list(&statements_of(then), &inner, &mut arms[0].body)?;
        if let Some(other) = other {
            let mut body = Vec::new();
            self.list(&c::children(other), &inner, &mut body)?;
            arms.push(Arm { label: "else".into(), at: then.end_byte(), end: other.end_byte(), body });
        }
        if arms.iter().all(|arm| arm.body.is_empty()) {
            return Ok(());
        }
        let place = line(node);
        let random = match known {
            Ok(value) => {
                arms[0].label = value.to_string();
                false
            }
            Err(why) => self.by_chance(place, &why, &mut arms, condition),
        };
        self.push(Step::Branch { at: node.start_byte(), line: place, random, arms }, out)
    }

    /// A branch by chance, where its condition is not known.
    pub fn by_chance(&mut self, place: u32, why: &str, arms: &mut Vec<Arm>, condition: Node<'t>) -> bool {
        let why = format!("how often {} holds, from 0 to 1: {why}", self.short(condition));
        let chance = self.parameter(&format!("chance_{place}"), condition, &why).to_string();
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

    /// Assignments to variables that the model has too.
    pub fn assigned(&mut self, node: Node<'t>, frame: &Frame, out: &mut Vec<Step>) -> Result<(), Error> {
        if !matches!(node.kind(), "expression_statement" | "declaration") {
            return Ok(());
        }
        // What is set by what a call gives stands behind it.
        let behind = self.communicates(node).then_some(node.start_byte());
        let at = if behind.is_some() { node.end_byte() } else { node.start_byte() };
        for inner in c::children(node) {
            if let Some(step) = self.set_by(inner, at, behind, frame) {
                self.push(step, out)?;
            }
        }
        Ok(())
    }

    /// What an assignment does to a variable that the model has too.
    pub fn set_by(&mut self, node: Node<'t>, at: usize, behind: Option<usize>, frame: &Frame) -> Option<Step> {
        if !matches!(node.kind(), "assignment_expression" | "update_expression" | "init_declarator") {
            return None;
        }
        let target = ["left", "argument", "declarator"].iter().find_map(|f| node.child_by_field_name(f))?;
        let name = self.unit.variable(target)?;
        let var = self.unit.resolve(name, node.start_byte())?;
        let kept = self.kept.get(&var).cloned().flatten()?;
        let value = match self.new_value(name, var, node, frame) {
            Ok(value) => value,
            Err(why) => self.parameter(&format!("{name}_{}", line(node)), node, &why),
        };
        Some(Step::Set { at, behind, line: line(node), name: kept, value: value.to_string() })
    }

    /// What an assignment leaves in a variable.
    fn new_value(&mut self, name: &'t str, var: Var, node: Node<'t>, frame: &Frame) -> Result<Expr, Reason> {
        let field = |field: &str| node.child_by_field_name(field);
        let ty = self.unit.variables[var].ty.ok_or("it is no number")?;
        let op = field("operator").map_or("=", |o| self.unit.text_of(o));
        let value = if node.kind() == "update_expression" {
            let old = self.variable(name, node, frame)?;
            Typed::binary(if op == "++" { "+" } else { "-" }, old, Typed::int(1, crate::types::INT))?
        } else {
            let value = self.typed(field("right").or_else(|| field("value")).ok_or("no value")?, frame)?;
            if op == "=" {
                value
            } else {
                let op = crate::expr::operator(op.trim_end_matches('=')).ok_or("an unknown assignment")?;
                let old = self.variable(name, node, frame)?;
                Typed::binary(op, old, value)?
            }
        };
        match value.converted(ty).settled().expr {
            Expr::Any => Err("it is a wildcard, which no variable of the model can hold".into()),
            expr => Ok(expr),
        }
    }

    /// Whether a statement computes enough to be a segment: it loops, or calls what is not known to
    /// be cheap.
    fn heavy(&self, node: Node<'t>, frame: &Frame) -> bool {
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
    pub fn value_or(&mut self, node: Option<Node<'t>>, name: &str, at: Node<'t>, frame: &Frame) -> Expr {
        let value = match node {
            Some(node) => self.whole(node, frame),
            None => Err(Reason::from("the call has too few arguments")),
        };
        match value {
            Ok(value) => value,
            Err(why) => self.parameter(&format!("{name}_{}", line(at)), at, &why),
        }
    }
}

/// Leaves out what takes time: of statements that are not to be timed.
fn without_time(steps: &mut Vec<Step>) {
    steps.retain(|step| !matches!(step, Step::Serial(_)));
    for step in steps {
        match step {
            Step::Loop { body, .. } => without_time(body),
            Step::Branch { arms, .. } => arms.iter_mut().for_each(|arm| without_time(&mut arm.body)),
            _ => {}
        }
    }
}

/// Whether statements stand in a statement.
fn is_compound(node: Node<'_>) -> bool {
    node.kind() == "compound_statement" || AROUND.contains(&node.kind())
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

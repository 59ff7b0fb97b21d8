//! From statements to code: functions inlined, names resolved, branches and loops laid out.

use std::collections::{BTreeMap, BTreeSet};

use crate::exparse::suggestion;
use crate::expr::{Binary, Expr, PROCNUM, Slot};
use crate::names::{Names, Site};
use crate::place::{Diagnostic, Place, enough};
use crate::program::{
    FieldId, Law, Loop, Op, OpKind, Pc, Processor, ProcessorId, RequestId, RunonInfo, Serial, Stream, StreamId, Take,
    Time, Until,
};
use crate::records::Records;
use crate::syntax::{Attr, CondEx, Ex, Head, LawEx, LawName, RankList, Stmt, StmtKind, TimeEx};
use crate::unit::{Function, Unit};

/// How many statements a program may have after inlining.
pub const MAX_OPS: usize = 200_000;
/// Statements that are walked over to lay them out: calls of functions that come to nothing leave
/// none behind.
const MAX_WALKED: usize = 10 * MAX_OPS;
/// How deep bodies and calls may stand in each other together.
const MAX_NESTING: usize = 128;

/// What is made.
#[derive(Debug, Default)]
pub struct Code {
    pub ops: Vec<Op>,
    pub runons: Vec<RunonInfo>,
    pub requests: Vec<String>,
    pub fields: Vec<String>,
    pub streams: Vec<Stream>,
    pub processors: Vec<Processor>,
    /// Slots of formal arguments: set anew at each call.
    pub formals: BTreeSet<Slot>,
}

/// A `while` whose body is being laid out.
#[derive(Debug)]
struct While {
    condition: Expr,
    mentions: BTreeSet<Slot>,
    /// Jumps that leave it, whose target is not known yet.
    leaves: Vec<usize>,
}

/// A call whose function is being laid out.
#[derive(Debug, Default)]
struct Frame {
    formals: Vec<(String, Option<Slot>)>,
    indices: Vec<(String, Slot)>,
}

/// The compiler.
pub struct Compiler<'a> {
    pub names: Names<'a>,
    pub code: Code,
    pub found: Vec<Diagnostic>,
    pub records: Records,
    /// What waits and tests may bind besides their own.
    pub bound_later: BTreeSet<Slot>,
    unit: &'a Unit,
    function: &'a Function,
    frame: Frame,
    whiles: Vec<While>,
    nesting: usize,
    /// Statements walked over, those of functions anew at each call.
    walked: usize,
    too_large: bool,
    communicators: Vec<String>,
    /// Where each stream of the program stands in a process.
    cursors: BTreeMap<String, Slot>,
    formal_slots: BTreeMap<(usize, String), Slot>,
    /// Formal arguments of each function that directives ask for, in it or in what it calls.
    asked: BTreeMap<usize, BTreeSet<String>>,
}

impl<'a> Compiler<'a> {
    pub fn new(unit: &'a Unit, names: Names<'a>, records: Records, code: Code) -> Self {
        Self {
            bound_later: records.bound_later(&names),
            names,
            code,
            found: Vec::new(),
            records,
            unit,
            function: &unit.functions[unit.entry],
            frame: Frame::default(),
            whiles: Vec::new(),
            nesting: 0,
            walked: 0,
            too_large: false,
            communicators: Vec::new(),
            cursors: BTreeMap::new(),
            formal_slots: BTreeMap::new(),
            asked: BTreeMap::new(),
        }
    }

    /// Lays out the whole program.
    pub fn run(&mut self) {
        let unit = self.unit;
        self.statements(&unit.functions[unit.entry].body);
        self.emit(OpKind::End, unit.functions[unit.entry].place);
    }

    /// An expression where the walk stands.
    pub fn expr(&mut self, ex: &Ex) -> Expr {
        let site = site(self.function, &self.frame);
        self.names.expr(ex, site, &mut self.found)
    }

    /// Whether a name means something here without being given from outside.
    fn is_known(&mut self, name: &str) -> bool {
        let site = site(self.function, &self.frame);
        self.names.is_known(name, site)
    }

    /// The next op's index.
    pub fn here(&self) -> Pc {
        Pc::try_from(self.code.ops.len()).unwrap_or(Pc::MAX)
    }

    pub fn emit(&mut self, kind: OpKind, place: Place) -> usize {
        if self.code.ops.len() >= MAX_OPS {
            self.outgrown(place);
        }
        self.code.ops.push(Op { kind, place });
        self.code.ops.len() - 1
    }

    /// The program has become too large here, which is told once.
    fn outgrown(&mut self, place: Place) {
        if std::mem::replace(&mut self.too_large, true) {
            return;
        }
        self.found.push(
            Diagnostic::error("too-large", place, format!("more than {MAX_OPS} statements once functions are inlined"))
                .with_help("a function that is called from many places stands in each of them; write a Loop"),
        );
    }

    /// Lets a jump lead to what comes next.
    fn land(&mut self, jump: usize) {
        let here = self.here();
        match self.code.ops.get_mut(jump).map(|op| &mut op.kind) {
            Some(OpKind::Jump(to) | OpKind::JumpUnless(_, to)) => *to = here,
            Some(OpKind::LoopBegin(l)) => l.exit = here,
            _ => {}
        }
    }

    fn statements(&mut self, all: &'a [Stmt]) {
        if self.nesting >= MAX_NESTING {
            let place = all.first().map_or(Place::default(), |s| s.place);
            self.found.push(Diagnostic::error(
                "too-deep",
                place,
                format!("bodies and calls, {MAX_NESTING} levels deep"),
            ));
            return;
        }
        self.nesting += 1;
        for statement in all {
            self.walked += 1;
            if self.walked > MAX_WALKED {
                self.outgrown(statement.place);
            }
            if self.too_large || enough(&self.found) {
                break;
            }
            self.statement(statement);
        }
        self.nesting -= 1;
    }

    fn statement(&mut self, statement: &'a Stmt) {
        let place = statement.place;
        match &statement.kind {
            StmtKind::Serial(parts) => self.serial(parts, place),
            StmtKind::Message(head) => self.message(head),
            StmtKind::Loop(head, body) => self.repetition(head, body),
            StmtKind::Runon(conditions, bodies) => self.runon(conditions, bodies, place),
            StmtKind::Condition(weights, bodies) => self.condition(weights, bodies, place),
            StmtKind::Block(body) => self.statements(body),
            StmtKind::Set(name, ex) => {
                let value = self.expr(ex);
                if let Some(slot) = self.names.known_variable(name) {
                    self.emit(OpKind::Set(slot, value), place);
                }
            }
            StmtKind::Take(name) => self.take(name, place),
            StmtKind::Call(name, args, _) => self.call(name, args, place),
        }
    }

    fn serial(&mut self, parts: &[Head], place: Place) {
        let mut times = Vec::new();
        for part in parts {
            let processor = part.name.as_ref().map(|(name, at)| self.processor(name, *at));
            let Some(Attr::Time(time)) = part.attr("time").map(|attr| &attr.value) else {
                if part.broken {
                    continue;
                }
                self.found.push(
                    Diagnostic::error("missing-attribute", part.place, "Serial has no time")
                        .with_help("write `time = ...`, in milliseconds"),
                );
                continue;
            };
            let unit = part.attr("unit").and_then(|attr| match attr.value {
                Attr::Unit(ns) => Some((ns, attr.place)),
                _ => None,
            });
            if let (Some(_), Some((_, at))) = (time.unit_ns, unit) {
                self.found.push(
                    Diagnostic::error("double-attribute", at, "the time has a unit already")
                        .with_place(time.place, "here"),
                );
            }
            let time_out = self.time(time, time.unit_ns.or(unit.map(|(ns, _)| ns)).unwrap_or(1e6));
            times.push((processor, time_out, part.place));
        }
        self.emit(OpKind::Serial(Box::new(Serial { times })), place);
    }

    /// The number of a processor; told if others are declared and this one is not.
    fn processor(&mut self, name: &str, place: Place) -> ProcessorId {
        let at = self.code.processors.iter().position(|p| p.name == name);
        let at = at.unwrap_or_else(|| {
            let declared: Vec<&str> = self.unit.declared_processors.iter().map(String::as_str).collect();
            if !declared.is_empty() {
                let warning =
                    Diagnostic::warning("unknown-processor", place, format!("no Processor describes `{name}`"));
                self.found.push(match suggestion(name, &declared) {
                    Some(help) => warning.with_help(help),
                    None => warning,
                });
            }
            self.code.processors.push(Processor { name: name.to_owned(), basis_mhz: None, place });
            self.code.processors.len() - 1
        });
        ProcessorId(u32::try_from(at).unwrap_or(u32::MAX))
    }

    fn time(&mut self, time: &TimeEx, unit_ns: f64) -> Time {
        let law = match &time.law {
            LawEx::Fixed(ex) => Law::Fixed(self.expr(ex)),
            LawEx::Draw(stream, column, place) => self.draw(stream, column, *place),
            LawEx::Named(name, args) => {
                let mut args = args.iter().map(|arg| self.expr(arg)).collect::<Vec<_>>().into_iter();
                let mut next = || args.next().unwrap_or(Expr::int(0));
                match name {
                    LawName::Uniform => Law::Uniform(next(), next()),
                    LawName::Normal => Law::Normal(next(), next()),
                    LawName::Exponential => Law::Exponential(next()),
                    LawName::Lognormal => Law::Lognormal(next(), next()),
                    LawName::Gamma => Law::Gamma(next(), next()),
                    LawName::Weibull => Law::Weibull(next(), next()),
                    LawName::Pearson5 => Law::Pearson5(next(), next(), next()),
                }
            }
        };
        Time { law, unit_ns }
    }

    fn draw(&mut self, stream: &str, column: &str, place: Place) -> Law {
        match self.column(stream, column, place) {
            Some((id, at)) => Law::Draw(id, at),
            None => Law::Fixed(Expr::int(0)),
        }
    }

    /// A stream and the number of its column, which it has from now on.
    fn column(&mut self, stream: &str, column: &str, place: Place) -> Option<(StreamId, usize)> {
        let Some(at) = self.code.streams.iter().position(|s| s.name == stream) else {
            let known: Vec<&str> = self.code.streams.iter().map(|s| s.name.as_str()).collect();
            let fault = Diagnostic::error("unknown-stream", place, format!("there is no stream `{stream}`"));
            let help = suggestion(stream, &known)
                .unwrap_or_else(|| format!("declare it: `PEVPM Stream {stream} = \"FILE.csv\"`"));
            self.found.push(fault.with_help(help));
            return None;
        };
        let columns = &mut self.code.streams[at].columns;
        let number = columns.iter().position(|c| c == column).unwrap_or_else(|| {
            columns.push(column.to_owned());
            columns.len() - 1
        });
        Some((StreamId(u32::try_from(at).unwrap_or(u32::MAX)), number))
    }

    fn take(&mut self, name: &str, place: Place) {
        let fields: Vec<String> = self.records.fields(name).filter(|f| *f != "valid").map(str::to_owned).collect();
        let mut columns = Vec::new();
        for field in &fields {
            let Some((_, column)) = self.column(name, field, place) else { return };
            if let Some(slot) = self.names.known_variable(&format!("{name}.{field}")) {
                columns.push((column, slot));
            }
        }
        let Some(stream) = self.code.streams.iter().position(|s| s.name == name) else {
            // Tells that it is unknown.
            self.column(name, "", place);
            return;
        };
        let cursor = match self.cursors.get(name) {
            Some(slot) => *slot,
            None => self.names.slot(format!("{name}%row"), 0),
        };
        self.cursors.insert(name.to_owned(), cursor);
        let valid = self.names.variable(&format!("{name}.valid"), 0);
        let stream = StreamId(u32::try_from(stream).unwrap_or(u32::MAX));
        self.emit(OpKind::Take(Box::new(Take { stream, cursor, valid, fields: columns })), place);
    }

    fn repetition(&mut self, head: &Head, body: &'a [Stmt]) {
        let (count, condition) = (head.value_of("iterations").cloned(), head.value_of("while").cloned());
        let index_name = head.name_of("index").map(str::to_owned);
        let left = self.names.slot("loop%left", 0);
        let index = self.names.slot(index_name.clone().unwrap_or_else(|| "loop%index".to_owned()), 0);
        let until = match (count, condition) {
            (Some(count), None) => Until::Count(self.expr(&count)),
            (None, Some(condition)) => {
                Until::While(self.with_index(index_name.as_deref(), index, |c| c.expr(&condition)))
            }
            (Some(_), Some(_)) => {
                self.found.push(Diagnostic::error(
                    "contradiction",
                    head.place,
                    "a Loop has either iterations or while",
                ));
                return;
            }
            (None, None) if head.broken => {
                self.statements(body);
                return;
            }
            (None, None) => {
                self.found.push(
                    Diagnostic::error("missing-attribute", head.place, "Loop says nothing of how long it goes on")
                        .with_help("write `iterations = ...` or `while = ...`"),
                );
                return;
            }
        };
        let is_while = self.begin_while(&until);
        let begin = self.here();
        let at =
            self.emit(OpKind::LoopBegin(Box::new(Loop { until, index, left, exit: 0, steady: false })), head.place);
        self.with_index(index_name.as_deref(), index, |c| c.statements(body));
        self.emit(OpKind::LoopEnd(begin), head.place);
        self.land(at);
        if is_while && let Some(done) = self.whiles.pop() {
            for jump in done.leaves {
                self.land(jump);
            }
        }
    }

    fn begin_while(&mut self, until: &Until) -> bool {
        let Until::While(condition) = until else { return false };
        let mut mentions = BTreeSet::new();
        condition.mentions(&mut |slot| {
            mentions.insert(slot);
            false
        });
        self.whiles.push(While { condition: condition.clone(), mentions, leaves: Vec::new() });
        true
    }

    /// Does something with the index's name known.
    fn with_index<T>(&mut self, name: Option<&str>, slot: Slot, work: impl FnOnce(&mut Self) -> T) -> T {
        let Some(name) = name else { return work(self) };
        self.frame.indices.push((name.to_owned(), slot));
        let out = work(self);
        self.frame.indices.pop();
        out
    }

    /// Behind a message that binds: leaves each `while` around it whose condition may have become
    /// false.
    pub fn leave(&mut self, bound: &BTreeSet<Slot>, place: Place) {
        for at in 0..self.whiles.len() {
            if self.whiles[at].mentions.is_disjoint(bound) {
                continue;
            }
            let jump = self.emit(OpKind::JumpUnless(self.whiles[at].condition.clone(), 0), place);
            self.whiles[at].leaves.push(jump);
        }
    }

    fn runon(&mut self, conditions: &[(CondEx, Place)], bodies: &'a [Vec<Stmt>], place: Place) {
        let mut ends = Vec::new();
        let mut said = Vec::new();
        let mut has_else = false;
        for (at, ((condition, at_place), body)) in conditions.iter().zip(bodies).enumerate() {
            let condition = match condition {
                CondEx::Else => None,
                CondEx::Value(ex) => Some(self.expr(ex)),
                CondEx::Ranks(list) => Some(self.is_among(list)),
            };
            has_else |= condition.is_none();
            said.extend(condition.clone().map(|c| (c, *at_place)));
            let next = condition.map(|c| self.emit(OpKind::JumpUnless(c, 0), *at_place));
            self.statements(body);
            if at + 1 < bodies.len() {
                ends.push(self.emit(OpKind::Jump(0), *at_place));
            }
            if let Some(jump) = next {
                self.land(jump);
            }
        }
        for jump in ends {
            self.land(jump);
        }
        // One condition alone leaves processes out on purpose.
        if conditions.len() > 1 {
            self.code.runons.push(RunonInfo { conditions: said, has_else, place });
        }
    }

    /// Whether `procnum` is in a list of ranks.
    fn is_among(&mut self, list: &RankList) -> Expr {
        let mut any: Vec<Expr> = Vec::new();
        let binary = |op, a, b| Expr::Binary(op, Box::new((a, b)));
        for (low, high) in &list.items {
            let low = self.expr(low);
            any.push(match high {
                None => binary(Binary::Equal, Expr::Slot(PROCNUM), low),
                Some(high) => {
                    let high = self.expr(high);
                    let (a, b) = (
                        binary(Binary::GreaterEqual, Expr::Slot(PROCNUM), low),
                        binary(Binary::LessEqual, Expr::Slot(PROCNUM), high),
                    );
                    binary(Binary::And, a, b)
                }
            });
        }
        // In pairs, so that it stays flat.
        while any.len() > 1 {
            any = any
                .chunks(2)
                .map(|two| two.iter().cloned().reduce(|a, b| binary(Binary::Or, a, b)).unwrap_or(Expr::int(0)))
                .collect();
        }
        any.pop().unwrap_or(Expr::int(0))
    }

    fn condition(&mut self, weights: &[(CondEx, Place)], bodies: &'a [Vec<Stmt>], place: Place) {
        let mut branches = Vec::new();
        for (weight, at) in weights {
            match weight {
                CondEx::Value(ex) => {
                    let weight = self.expr(ex);
                    if weight.constant().is_some_and(|v| v.as_f64() < 0.0) {
                        self.found.push(Diagnostic::error("weight", *at, "a weight below 0"));
                    }
                    branches.push((weight, 0));
                }
                _ => self.found.push(Diagnostic::error("weight", *at, "a weight is an expression")),
            }
        }
        let all_zero = branches.iter().all(|(w, _)| w.constant().is_some_and(|v| v.as_f64() == 0.0));
        if all_zero && !branches.is_empty() {
            self.found.push(Diagnostic::error("weight", place, "no weight is above 0"));
        }
        let choose = self.emit(OpKind::Choose(branches), place);
        let mut ends = Vec::new();
        for (at, body) in bodies.iter().enumerate() {
            let here = self.here();
            if let Some(OpKind::Choose(branches)) = self.code.ops.get_mut(choose).map(|op| &mut op.kind)
                && let Some((_, target)) = branches.get_mut(at)
            {
                *target = here;
            }
            self.statements(body);
            if at + 1 < bodies.len() {
                ends.push(self.emit(OpKind::Jump(0), place));
            }
        }
        for jump in ends {
            self.land(jump);
        }
    }

    fn call(&mut self, name: &str, args: &[Option<Ex>], place: Place) {
        let Some(index) = self.unit.by_name.get(name).copied() else {
            // C's functions without directives say nothing of the model.
            if self.unit.functions.iter().any(|f| f.from_c && f.name.as_deref() == Some(name)) {
                return;
            }
            let known: Vec<&str> = self.unit.by_name.keys().map(String::as_str).collect();
            let fault = Diagnostic::error("unknown-subroutine", place, format!("there is no Subroutine `{name}`"));
            self.found.push(match suggestion(name, &known) {
                Some(help) => fault.with_help(help),
                None => fault,
            });
            return;
        };
        let callee = &self.unit.functions[index];
        if !callee.holds {
            return;
        }
        if !callee.from_c && args.len() != callee.formals.len() {
            let said = format!("`{name}` takes {} arguments, not {}", callee.formals.len(), args.len());
            self.found.push(Diagnostic::error("arguments", place, said).with_place(callee.place, "declared here"));
        }
        let mut formals = Vec::new();
        self.ask(index);
        for (at, formal) in callee.formals.iter().enumerate() {
            // What no directive asks for is not worked out: C's argument may be what the language
            // has no value for.
            let is_asked = !callee.from_c || self.asked.get(&index).is_some_and(|all| all.contains(formal));
            let value = args.get(at).cloned().flatten().filter(|_| is_asked);
            let value = value.filter(|ex| !callee.from_c || self.means_something(ex));
            let slot = value.map(|ex| {
                let value = self.expr(&ex);
                let slot = self.formal_slot(index, formal);
                self.emit(OpKind::Set(slot, value), place);
                slot
            });
            formals.push((formal.clone(), slot));
        }
        let caller = std::mem::replace(&mut self.function, callee);
        let frame = std::mem::replace(&mut self.frame, Frame { formals, indices: Vec::new() });
        self.statements(&callee.body);
        self.frame = frame;
        self.function = caller;
    }

    /// Works out which formal arguments of a function are asked for. Functions do not call
    /// themselves: that has been refused.
    fn ask(&mut self, index: usize) {
        if self.asked.contains_key(&index) {
            return;
        }
        self.asked.insert(index, BTreeSet::new());
        let unit = self.unit;
        let function = &unit.functions[index];
        let own = Records::of_directives(&function.body);
        let mut all: BTreeSet<String> = function.formals.iter().filter(|f| own.mentions(f)).cloned().collect();
        let mut calls = Vec::new();
        calls_in(&function.body, &mut calls);
        for (name, args) in calls {
            let Some(callee) = unit.by_name.get(name).copied().filter(|callee| unit.functions[*callee].from_c) else {
                continue;
            };
            self.ask(callee);
            for (formal, arg) in unit.functions[callee].formals.iter().zip(args) {
                let asked = self.asked.get(&callee).is_some_and(|asked| asked.contains(formal));
                if let Some(ex) = arg.as_ref().filter(|_| asked) {
                    let named = Records::of(ex);
                    all.extend(function.formals.iter().filter(|f| named.mentions(f)).cloned());
                }
            }
        }
        self.asked.insert(index, all);
    }

    fn formal_slot(&mut self, function: usize, name: &str) -> Slot {
        let key = (function, name.to_owned());
        if let Some(slot) = self.formal_slots.get(&key) {
            return *slot;
        }
        let slot = self.names.slot(name, 0);
        self.formal_slots.insert(key, slot);
        self.code.formals.insert(slot);
        slot
    }

    /// Whether all names of an argument in C are known: a buffer is passed as well as a number.
    fn means_something(&mut self, ex: &Ex) -> bool {
        match ex {
            Ex::Number(_) | Ex::Parameter(..) | Ex::SizeOf(..) => true,
            Ex::Name(name, _) => self.is_known(name),
            Ex::Unary(_, a) => self.means_something(a),
            Ex::Binary(_, ab) => self.means_something(&ab.0) && self.means_something(&ab.1),
            Ex::Select(abc) => {
                self.means_something(&abc.0) && self.means_something(&abc.1) && self.means_something(&abc.2)
            }
            Ex::Call(_, args) => args.iter().all(|a| self.means_something(a)),
        }
    }

    /// The number of a request's name.
    pub fn request_id(&mut self, name: &str) -> RequestId {
        RequestId(numbered(&mut self.code.requests, name))
    }

    /// The number of a name under which something is carried.
    pub fn field_id(&mut self, name: &str) -> FieldId {
        FieldId(numbered(&mut self.code.fields, name))
    }

    /// The number of a communicator that is a name: above those that one would write.
    pub fn communicator(&mut self, ex: &Ex) -> Expr {
        // The virtual machine takes numbers below 2^30.
        const NAMED: i64 = 1 << 29;
        if let Ex::Name(name, _) = ex
            && !self.is_known(name)
        {
            return Expr::int(NAMED + i64::from(numbered(&mut self.communicators, name)));
        }
        self.expr(ex)
    }
}

fn site<'s>(function: &'s Function, frame: &'s Frame) -> Site<'s> {
    Site {
        file: function.file,
        function: Some((function.index, &function.scope)),
        formals: &frame.formals,
        indices: &frame.indices,
    }
}

/// The calls of C among statements, with their arguments.
fn calls_in<'b>(body: &'b [Stmt], all: &mut Vec<(&'b str, &'b [Option<Ex>])>) {
    for statement in body {
        match &statement.kind {
            StmtKind::Call(name, args, false) => all.push((name, args)),
            StmtKind::Loop(_, body) | StmtKind::Block(body) => calls_in(body, all),
            StmtKind::Runon(_, bodies) | StmtKind::Condition(_, bodies) => {
                bodies.iter().for_each(|body| calls_in(body, all));
            }
            _ => {}
        }
    }
}

fn numbered(all: &mut Vec<String>, name: &str) -> u32 {
    let at = all.iter().position(|n| n == name).unwrap_or_else(|| {
        all.push(name.to_owned());
        all.len() - 1
    });
    u32::try_from(at).unwrap_or(u32::MAX)
}

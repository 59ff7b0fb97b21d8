//! Builds statements from what happens in a function's text, and checks what can be checked there.

use crate::csource::{is_declaration, is_of_requests};
use crate::directive::head_name;
use crate::place::{Diagnostic, Place};
use crate::syntax::{Attr, CondEx, Event, FunctionText, Head, HeadKind, NamedAttr, Stmt, StmtKind};

/// Calls behind the first left out by `Skip` that are shown.
const SKIPPED_SHOWN: usize = 3;
/// How deep bodies may stand in bodies.
pub const MAX_NESTING: usize = 64;

/// What a function's text says.
#[derive(Debug, Default)]
pub struct Tree {
    pub body: Vec<Stmt>,
    /// Machines, parameters, streams.
    pub declarations: Vec<Head>,
    /// `Subroutine`s: name, formal arguments, body, place.
    pub subroutines: Vec<(String, Vec<String>, Vec<Stmt>, Place)>,
    /// Functions that are called in loops of C without a `Loop`: name, and the loop.
    pub looped: Vec<(String, Place)>,
}

/// Builds a function's statements. `has_mpi`: its file calls MPI.
pub fn build(text: &FunctionText, has_mpi: bool, found: &mut Vec<Diagnostic>) -> Tree {
    let checked = text.events.iter().any(|event| matches!(event, Event::Head(_) | Event::Open(_)));
    let mut builder = Builder {
        events: &text.events,
        at: 0,
        depth: 0,
        too_deep: false,
        tree: Tree::default(),
        found,
        statements: 0,
        calls: Calls { checked, has_mpi, ..Calls::default() },
    };
    let body = builder.statements(None);
    builder.calls.end(builder.found);
    let mut tree = builder.tree;
    tree.body = body;
    tree.looped = builder.calls.looped;
    tree
}

struct Builder<'a> {
    events: &'a [Event],
    at: usize,
    depth: usize,
    too_deep: bool,
    tree: Tree,
    found: &'a mut Vec<Diagnostic>,
    statements: usize,
    calls: Calls,
}

impl<'a> Builder<'a> {
    /// Statements up to the brace that closes the one at `open`, or to the end.
    fn statements(&mut self, open: Option<Place>) -> Vec<Stmt> {
        let mut all: Vec<Stmt> = Vec::new();
        // Whether a `Serial` that comes next belongs to the segment that stands last.
        let mut joins = false;
        while let Some(event) = self.events.get(self.at) {
            self.at += 1;
            match event {
                Event::Head(head) => {
                    self.statements += usize::from(!is_declaration(head.kind));
                    self.calls.directive(head);
                    let was = std::mem::replace(&mut joins, head.kind == HeadKind::Serial);
                    if was && joins && self.joined(&mut all, head) {
                        continue;
                    }
                    all.extend(self.head(head));
                }
                Event::Open(place) => {
                    joins = false;
                    self.calls.boundary();
                    let body = self.body(*place);
                    all.push(Stmt { kind: StmtKind::Block(body), place: *place });
                }
                Event::Close(place) => {
                    self.calls.boundary();
                    self.calls.repeats = None;
                    if open.is_some() {
                        return all;
                    }
                    self.found.push(
                        Diagnostic::error("stray-brace", *place, "`}` closes nothing")
                            .with_help("remove it, or open a body with `PEVPM {`"),
                    );
                }
                Event::More(_, place) => self.found.push(Diagnostic::error(
                    "bodies",
                    *place,
                    "a condition continues where its directive has ended: it has a body for each condition already",
                )),
                Event::CallC(name, args, place) => {
                    self.calls.called(name);
                    all.push(Stmt { kind: StmtKind::Call(name.clone(), args.clone(), false), place: *place });
                }
                other => self.calls.c(other, self.found),
            }
        }
        // What comes behind a body that is too deep was not looked at.
        if let Some(open) = open.filter(|_| !self.too_deep) {
            self.found.push(
                Diagnostic::error("open-body", open, "this body is never closed")
                    .with_help("close it with `PEVPM }` in the same function"),
            );
        }
        all
    }

    /// Adds a `Serial` to the segment that stands last, unless that has one for the processor.
    fn joined(&self, all: &mut [Stmt], head: &Head) -> bool {
        let Some(Stmt { kind: StmtKind::Serial(parts), .. }) = all.last_mut() else { return false };
        let name = |h: &Head| h.name.as_ref().map(|(name, _)| name.clone());
        if parts.iter().any(|part| name(part) == name(head)) {
            return false;
        }
        parts.push(head.clone());
        true
    }

    /// The statements of a body whose brace was just taken.
    fn body(&mut self, open: Place) -> Vec<Stmt> {
        if self.depth == MAX_NESTING {
            self.found.push(Diagnostic::error(
                "too-deep",
                open,
                format!("bodies within bodies, more than {MAX_NESTING} levels deep"),
            ));
            self.at = self.events.len();
            self.too_deep = true;
            return Vec::new();
        }
        self.depth += 1;
        let body = self.statements(Some(open));
        self.depth -= 1;
        body
    }

    fn head(&mut self, head: &'a Head) -> Option<Stmt> {
        let kind = match head.kind {
            kind if is_declaration(kind) => {
                self.declaration(head);
                return None;
            }
            HeadKind::Serial => StmtKind::Serial(vec![head.clone()]),
            HeadKind::Message => StmtKind::Message(Box::new(head.clone())),
            HeadKind::Loop => StmtKind::Loop(Box::new(head.clone()), self.own_body(head)?),
            HeadKind::Runon => {
                let (conditions, bodies) = self.branches(head);
                StmtKind::Runon(conditions, bodies)
            }
            HeadKind::Condition => {
                let (conditions, bodies) = self.branches(head);
                StmtKind::Condition(conditions, bodies)
            }
            HeadKind::Set => StmtKind::Set(head.name.clone()?.0, head.value.clone()?),
            HeadKind::Take => StmtKind::Take(head.name.clone()?.0),
            HeadKind::Call => StmtKind::Call(head.name.clone()?.0, head.actuals.clone(), true),
            HeadKind::Subroutine => {
                self.subroutine(head);
                return None;
            }
            _ => return None,
        };
        Some(Stmt { kind, place: head.place })
    }

    fn declaration(&mut self, head: &Head) {
        let machine = matches!(head.kind, HeadKind::Processor | HeadKind::Network | HeadKind::Default);
        if machine && self.statements > 0 {
            self.found.push(
                Diagnostic::error(
                    "machine-late",
                    head.place,
                    format!("{} stands behind statements", head_name(head.kind)),
                )
                .with_help("directives about machines come first"),
            );
        }
        self.tree.declarations.push(head.clone());
    }

    fn subroutine(&mut self, head: &'a Head) {
        if self.depth > 0 {
            self.found.push(Diagnostic::error("nested-subroutine", head.place, "a Subroutine stands within a body"));
        }
        let (Some((name, _)), Some(body)) = (head.name.clone(), self.own_body(head)) else { return };
        // What stands in a subroutine is no statement of the text around it.
        self.statements = self.statements.saturating_sub(1 + body.len());
        self.tree.subroutines.push((name, head.formals.clone(), body, head.place));
    }

    /// Whether a body comes next; loops of C may stand before it.
    fn open_next(&mut self) -> Option<Place> {
        let mut ahead = self.at;
        while let Some(event @ (Event::LoopC(_) | Event::LoopCEnd)) = self.events.get(ahead) {
            ahead += 1;
            if self.events.get(ahead..).is_some_and(|rest| {
                matches!(rest.iter().find(|e| !matches!(e, Event::LoopC(_) | Event::LoopCEnd)), Some(Event::Open(_)))
            }) {
                self.calls.c(event, self.found);
                self.at = ahead;
            }
        }
        match self.events.get(ahead) {
            Some(Event::Open(place)) => {
                self.at = ahead + 1;
                self.calls.boundary();
                Some(*place)
            }
            _ => None,
        }
    }

    /// The body of a loop or subroutine.
    fn own_body(&mut self, head: &Head) -> Option<Vec<Stmt>> {
        let Some(open) = self.open_next() else {
            if head.broken {
                return None;
            }
            self.found.push(
                Diagnostic::error("no-body", head.place, format!("{} has no body", head_name(head.kind)))
                    .with_help("open it with `PEVPM {` behind this directive"),
            );
            return None;
        };
        Some(self.body(open))
    }

    /// Conditions and bodies, in either order of the grammar.
    fn branches(&mut self, head: &Head) -> (Vec<(CondEx, Place)>, Vec<Vec<Stmt>>) {
        let mut conditions = Vec::new();
        let mut bodies = Vec::new();
        self.conditions(&head.attrs, head, &mut conditions);
        loop {
            if bodies.len() < conditions.len()
                && let Some(open) = self.open_next()
            {
                bodies.push(self.body(open));
            } else if let Some(Event::More(more, _)) = self.events.get(self.at) {
                self.at += 1;
                self.conditions(more, head, &mut conditions);
            } else {
                break;
            }
        }
        if head.broken {
            // What is missing here may be what could not be read.
        } else if conditions.is_empty() {
            let what = if head.kind == HeadKind::Runon { "condition" } else { "weight" };
            self.found.push(
                Diagnostic::error("no-condition", head.place, format!("{} has no {what}", head_name(head.kind)))
                    .with_help("give it as `c1 = ...`"),
            );
        } else if bodies.len() != conditions.len() {
            let said = format!(
                "{} has {} and {}",
                head_name(head.kind),
                counted(conditions.len(), "condition", "conditions"),
                counted(bodies.len(), "body", "bodies")
            );
            let missing = conditions.get(bodies.len()).map(|(_, place)| *place);
            let fault = Diagnostic::error("bodies", head.place, said)
                .with_help("give each a `PEVPM {` ... `PEVPM }`, in their order");
            self.found.push(match missing {
                Some(place) => fault.with_place(place, "this one has no body"),
                None => fault,
            });
        }
        if bodies.len() == conditions.len()
            && !bodies.is_empty()
            && let Some(Event::Open(place)) = self.events.get(self.at)
            && !head.broken
        {
            self.found.push(
                Diagnostic::error(
                    "bodies",
                    *place,
                    format!(
                        "a body too many: {} has {}",
                        head_name(head.kind),
                        counted(conditions.len(), "condition", "conditions")
                    ),
                )
                .with_place(head.place, "this one")
                .with_help("give the body a condition, or take its braces away"),
            );
        }
        conditions.truncate(bodies.len());
        bodies.truncate(conditions.len());
        (conditions, bodies)
    }

    fn conditions(&mut self, attrs: &[NamedAttr], head: &Head, all: &mut Vec<(CondEx, Place)>) {
        for attr in attrs {
            let Attr::Cond(condition) = &attr.value else { continue };
            if attr.number as usize != all.len() + 1 && !head.broken {
                self.found.push(Diagnostic::error(
                    "numbering",
                    attr.place,
                    format!("c{} of {} stands where c{} should", attr.number, head_name(head.kind), all.len() + 1),
                ));
            }
            if all.iter().any(|(c, _)| *c == CondEx::Else) {
                self.found.push(Diagnostic::error("after-else", attr.place, "a condition behind `else` never holds"));
            }
            all.push((condition.clone(), attr.place));
        }
    }
}

fn counted(n: usize, one: &str, many: &str) -> String {
    if n == 1 { format!("1 {one}") } else { format!("{n} {many}") }
}

/// A loop of C.
#[derive(Debug)]
struct LoopOfC {
    place: Place,
    /// A `Serial` stands before it.
    serial: bool,
    /// What had been seen before it.
    seen: usize,
    /// A `Loop` says how often.
    repeated: bool,
    /// Directives in it, those of the loops in it included, and calls.
    directives: usize,
    calls: Vec<String>,
}

/// What C's calls and loops are held against.
#[derive(Debug, Default)]
struct Calls {
    /// The function holds directives.
    checked: bool,
    has_mpi: bool,
    /// The `Message` that no call has followed yet.
    message: Option<(String, Place)>,
    skip: bool,
    /// A `Serial` stands before what comes.
    serial: bool,
    /// Directives and calls so far.
    seen: usize,
    /// Loops of C that are open, the innermost last.
    loops: Vec<LoopOfC>,
    /// A `Loop` stands before what comes, and whether a loop of C is its own already.
    repeats: Option<bool>,
    looped: Vec<(String, Place)>,
    /// Loops without a `Serial`, told if a directive follows.
    bare: Vec<Place>,
    told: Vec<Place>,
    orphans: Vec<(String, Place)>,
    /// Calls that a `Skip` excuses.
    skipped: Vec<(String, Place)>,
}

impl Calls {
    fn directive(&mut self, head: &Head) {
        self.seen += 1;
        self.told.append(&mut self.bare);
        self.comes_next();
        match head.kind {
            HeadKind::Loop => self.repeats = Some(false),
            HeadKind::Message => {
                self.serial = false;
                self.orphans.extend(self.message.take());
                self.message = head.name_of("type").map(|name| (name.to_owned(), head.place));
            }
            HeadKind::Serial => self.serial = true,
            HeadKind::Skip => self.skip = true,
            _ => {}
        }
        if let Some(around) = self.loops.last_mut()
            && !is_declaration(head.kind)
            && !matches!(head.kind, HeadKind::Subroutine | HeadKind::Skip)
        {
            around.directives += 1;
        }
    }

    fn called(&mut self, name: &str) {
        self.seen += 1;
        self.comes_next();
        if let Some(around) = self.loops.last_mut() {
            around.calls.push(name.to_owned());
        }
    }

    /// Something comes that is no loop of C: a `Loop` before it that stands first in one is that
    /// one's.
    fn comes_next(&mut self) {
        if self.repeats.take() == Some(false)
            && let Some(around) = self.loops.last_mut()
            && around.directives == 1
            && around.calls.is_empty()
        {
            around.repeated = true;
        }
    }

    /// A loop of C ends: what stands in it is told if nothing says how often.
    fn loop_ends(&mut self, ended: LoopOfC, found: &mut Vec<Diagnostic>) {
        if ended.directives > 0 {
            self.repeats = None;
        }
        if !ended.repeated {
            if ended.directives > 0 {
                found.push(
                    Diagnostic::warning(
                        "loop-without-loop",
                        ended.place,
                        "no Loop says how often this loop is run: its directives count once",
                    )
                    .with_help("put `PEVPM Loop iterations = ...` and `PEVPM {` before it"),
                );
            }
            self.looped.extend(ended.calls.into_iter().map(|name| (name, ended.place)));
        }
        if let Some(around) = self.loops.last_mut() {
            around.directives += ended.directives;
        }
        if !ended.serial && ended.seen == self.seen && ended.seen > 0 {
            self.bare.push(ended.place);
            self.seen += 1;
        }
    }

    /// A brace: a segment ends.
    fn boundary(&mut self) {
        self.serial = false;
        self.told.append(&mut self.bare);
    }

    fn c(&mut self, event: &Event, found: &mut Vec<Diagnostic>) {
        match event {
            Event::Mpi(name, place) if self.checked => self.call(name, *place, found),
            Event::LoopC(place) => {
                let repeated = self.repeats.is_some();
                if repeated {
                    self.repeats = Some(true);
                }
                let (serial, seen) = (self.serial, self.seen);
                self.loops.push(LoopOfC { place: *place, serial, seen, repeated, directives: 0, calls: Vec::new() });
            }
            Event::LoopCEnd => {
                if let Some(ended) = self.loops.pop() {
                    self.loop_ends(ended, found);
                }
            }
            _ => {}
        }
    }

    fn call(&mut self, name: &str, place: Place, found: &mut Vec<Diagnostic>) {
        self.seen += 1;
        self.comes_next();
        let fits = |said: &str| said == name || (said == "MPI_Sendrecv" && name == "MPI_Sendrecv_replace");
        if is_of_requests(name) && !self.message.as_ref().is_some_and(|(said, _)| fits(said)) {
            return;
        }
        if std::mem::take(&mut self.skip) {
            self.skipped.push((name.to_owned(), place));
            return;
        }
        match self.message.take() {
            Some((said, _)) if fits(&said) => {}
            other => {
                let fault = Diagnostic::error("call-without-message", place, format!("{name} has no Message"))
                    .with_help(format!("put `PEVPM Message type = {name} ...` before it, or `PEVPM Skip`"));
                found.push(match other {
                    Some((said, at)) => fault.with_place(at, format!("this one is for {said}")),
                    None => fault,
                });
            }
        }
    }

    fn end(&mut self, found: &mut Vec<Diagnostic>) {
        self.orphans.extend(self.message.take());
        if self.has_mpi {
            for (name, place) in &self.orphans {
                found.push(
                    Diagnostic::warning(
                        "message-without-call",
                        *place,
                        format!("no call of {name} follows this Message"),
                    )
                    .with_help("directives stand before what they describe"),
                );
            }
        }
        if let Some(((name, place), others)) = self.skipped.split_first() {
            let more = match others.len() {
                0 => String::new(),
                n => format!(" and {}", counted(n, "more call", "more calls")),
            };
            let said = format!("{name}{more}: left out by Skip, what is communicated there is not in the model");
            let mut warning = Diagnostic::warning("skipped", *place, said);
            for (name, place) in others.iter().take(SKIPPED_SHOWN) {
                warning = warning.with_place(*place, format!("{name} too"));
            }
            found.push(warning);
        }
        for place in &self.told {
            found.push(
                Diagnostic::warning(
                    "loop-without-serial",
                    *place,
                    "this loop has no Serial: its time counts as nothing",
                )
                .with_help("put `PEVPM Serial time = ...` before it"),
            );
        }
    }
}

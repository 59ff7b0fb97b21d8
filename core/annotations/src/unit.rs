//! All files together: which functions there are, where the program begins, what calls what.

use std::collections::{BTreeMap, BTreeSet};

use crate::compile::{Code, Compiler};
use crate::csource::CFile;
use crate::cvalues::Scope;
use crate::exparse::is_suggestion;
use crate::lex::{Room, pieces};
use crate::names::{FileNames, Names, Site};
use crate::place::{Diagnostic, Place, Severity};
use crate::program::{MachineDirectives, Network, NetworkLink, Processor, Program, Stream};
use crate::records::{Records, missing};
use crate::steady;
use crate::syntax::{Attr, Ex, FunctionText, Head, HeadKind, Stmt, StmtKind};
use crate::tree::build;

/// Bytes that a file may have.
pub const MAX_BYTES: usize = 16 << 20;

/// A file to be read.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// Its name, for people.
    pub name: &'a str,
    /// What stands in it.
    pub text: &'a str,
}

/// A program, and what is noteworthy about it.
#[derive(Debug, Clone)]
pub struct Parsed {
    /// The program.
    pub program: Program,
    /// Warnings, in the order of their places.
    pub warnings: Vec<Diagnostic>,
}

/// A function that may hold directives.
#[derive(Debug)]
pub struct Function {
    pub name: Option<String>,
    pub formals: Vec<String>,
    pub body: Vec<Stmt>,
    pub scope: Scope,
    pub file: usize,
    /// Its number within the program.
    pub index: usize,
    pub place: Place,
    /// There are directives in it, or in what it calls.
    pub holds: bool,
    /// It is C's, not a `Subroutine`.
    pub from_c: bool,
}

/// All files together.
#[derive(Debug, Default)]
pub struct Unit {
    pub functions: Vec<Function>,
    /// Where the program begins.
    pub entry: usize,
    /// Functions that hold directives.
    pub by_name: BTreeMap<String, usize>,
    pub declared_processors: Vec<String>,
    declarations: Vec<(Head, usize)>,
    /// Functions that are called in loops of C without a `Loop`.
    looped: Vec<(String, Place)>,
}

/// Reads a program from its files.
///
/// # Errors
/// All that is wrong with it, and the warnings, in the order of their places.
pub fn parse(sources: &[Source]) -> Result<Parsed, Vec<Diagnostic>> {
    let mut found = Vec::new();
    let program = read(sources, &mut found);
    found.sort_by(|a, b| (a.place, a.code, &a.message).cmp(&(b.place, b.code, &b.message)));
    found.dedup_by(|a, b| (a.place, a.code, &a.message) == (b.place, b.code, &b.message));
    match program {
        Some(program) if found.iter().all(|d| d.severity == Severity::Warning) => {
            Ok(Parsed { program, warnings: found })
        }
        _ => Err(found),
    }
}

fn read(sources: &[Source], found: &mut Vec<Diagnostic>) -> Option<Program> {
    let mut files = Vec::new();
    let mut left = Room::default();
    for (number, source) in sources.iter().enumerate() {
        let file = u32::try_from(number).ok()?;
        if source.text.len() > MAX_BYTES {
            let place = Place { file, line: 1, column: 1, length: 0 };
            found.push(Diagnostic::error(
                "too-large",
                place,
                format!("the file has more than {} MiB", MAX_BYTES >> 20),
            ));
            return None;
        }
        let pieces = pieces(source.text, file, &mut left, found);
        if left.is_used_up() {
            return None;
        }
        files.push(CFile::new(pieces));
    }
    let defined: BTreeSet<String> = files.iter().flat_map(CFile::names).map(str::to_owned).collect();
    let mut unit = Unit::default();
    let mut names = Vec::new();
    for (number, file) in files.iter().enumerate() {
        let text = file.read(&defined, found);
        names.push(FileNames { scope: text.scope, types: text.types });
        for (function, scope) in text.functions {
            unit.add(&function, scope, number, text.has_mpi, found);
        }
    }
    unit.connect(found);
    unit.unlooped(found);
    unit.entry = unit.find_entry(sources, found)?;
    if unit.recursion(found) {
        return None;
    }
    Some(unit.compile(sources, &names, found))
}

impl Unit {
    fn add(&mut self, text: &FunctionText, scope: Scope, file: usize, has_mpi: bool, found: &mut Vec<Diagnostic>) {
        let tree = build(text, has_mpi, found);
        self.looped.extend(tree.looped);
        self.declarations.extend(tree.declarations.into_iter().map(|head| (head, file)));
        self.push(text.name.clone(), text.formals.clone(), tree.body, scope, file, text.place, true);
        for (name, formals, body, place) in tree.subroutines {
            self.push(Some(name), formals, body, Scope::default(), file, place, false);
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of a function")]
    fn push(
        &mut self,
        name: Option<String>,
        formals: Vec<String>,
        body: Vec<Stmt>,
        scope: Scope,
        file: usize,
        place: Place,
        from_c: bool,
    ) {
        let index = self.functions.len();
        self.functions.push(Function { name, formals, body, scope, file, index, place, holds: !from_c, from_c });
    }

    /// Finds which functions hold directives, and names them.
    fn connect(&mut self, found: &mut Vec<Diagnostic>) {
        let mut callers: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        let mut holding: Vec<usize> = Vec::new();
        for (index, function) in self.functions.iter().enumerate() {
            let mut calls = BTreeSet::new();
            let own = called(&function.body, &mut calls);
            if own || !function.from_c {
                holding.push(index);
            }
            for name in calls {
                callers.entry(name).or_default().push(index);
            }
        }
        let mut holds: BTreeSet<usize> = BTreeSet::new();
        while let Some(index) = holding.pop() {
            if holds.insert(index)
                && let Some(name) = &self.functions[index].name
            {
                holding.extend(callers.get(name.as_str()).into_iter().flatten().copied());
            }
        }
        for index in holds {
            let function = &mut self.functions[index];
            function.holds = true;
            let Some(name) = function.name.clone() else { continue };
            let place = function.place;
            if let Some(other) = self.by_name.insert(name.clone(), index) {
                found.push(
                    Diagnostic::error("defined-twice", place, format!("`{name}` with directives is there twice"))
                        .with_place(self.functions[other].place, "the other"),
                );
            }
        }
    }

    /// Tells of functions with directives that a loop of C calls without a `Loop`.
    fn unlooped(&self, found: &mut Vec<Diagnostic>) {
        for (name, place) in self.looped.iter().filter(|(name, _)| self.by_name.contains_key(name)) {
            found.push(
                Diagnostic::warning(
                    "loop-without-loop",
                    *place,
                    format!("no Loop says how often this loop is run: what `{name}` says counts once"),
                )
                .with_help("put `PEVPM Loop iterations = ...` and `PEVPM {` before it"),
            );
        }
    }

    /// Where the program begins.
    fn find_entry(&self, sources: &[Source], found: &mut Vec<Diagnostic>) -> Option<usize> {
        let loose: Vec<usize> = self.holding().filter(|f| f.name.is_none()).map(|f| f.index).collect();
        let main = self.by_name.get("main").copied();
        match (loose.as_slice(), main) {
            ([], Some(main)) => return Some(main),
            ([one], None) => return Some(*one),
            ([first, ..], Some(main)) => {
                found.push(
                    Diagnostic::error(
                        "two-beginnings",
                        self.functions[*first].place,
                        "directives stand outside of any function",
                    )
                    .with_place(self.functions[main].place, "and in main")
                    .with_help("the program begins with one of them: move the others into functions that it calls"),
                );
                return None;
            }
            ([first, second, ..], None) => {
                found.push(
                    Diagnostic::error(
                        "two-beginnings",
                        self.functions[*second].place,
                        "directives stand outside of any function",
                    )
                    .with_place(self.functions[*first].place, "as they do here"),
                );
                return None;
            }
            ([], None) => {}
        }
        let mut called_names = BTreeSet::new();
        for function in self.holding() {
            called(&function.body, &mut called_names);
        }
        let roots: Vec<&Function> =
            self.holding().filter(|f| f.name.as_deref().is_some_and(|name| !called_names.contains(name))).collect();
        match roots.as_slice() {
            [one] => Some(one.index),
            [] if self.holding().next().is_none() => {
                // A directive that could not be read is told, and may have been the only one.
                // But who gives a C file without any is helped by this.
                let meant = sources.iter().any(|s| s.text.contains("PEVPM"))
                    || found.iter().flat_map(|d| &d.help).any(|help| is_suggestion(help));
                if meant && found.iter().any(|d| d.severity == Severity::Error) {
                    return None;
                }
                let place = Place { file: 0, line: 1, column: 1, length: 0 };
                let name = sources.first().map_or("", |s| s.name);
                found.push(
                    Diagnostic::error("nothing", place, format!("{name} holds no directives that do anything"))
                        .with_help("write them as comments `// PEVPM ...`, or let `weir annotate` write them"),
                );
                None
            }
            // All are called by each other: a circle, which is told.
            [] => self.holding().next().map(|f| f.index),
            [first, second, ..] => {
                found.push(
                    Diagnostic::error(
                        "two-beginnings",
                        second.place,
                        "more than one function that no other calls holds directives, and none is main",
                    )
                    .with_place(first.place, "the other"),
                );
                None
            }
        }
    }

    fn holding(&self) -> impl Iterator<Item = &Function> {
        self.functions.iter().filter(|f| f.holds)
    }

    /// Whether a function calls itself, over others or not; tells each circle that can be reached
    /// from the entry once.
    fn recursion(&self, found: &mut Vec<Diagnostic>) -> bool {
        let mut done = BTreeSet::new();
        let mut way: Vec<(usize, Vec<(usize, Place)>)> = vec![(self.entry, self.calls_of(self.entry))];
        let mut circles = 0;
        while let Some((index, calls)) = way.last_mut() {
            let Some((callee, place)) = calls.pop() else {
                done.insert(*index);
                way.pop();
                continue;
            };
            if let Some(at) = way.iter().position(|(index, _)| *index == callee) {
                let name = |index: usize| self.functions[index].name.as_deref().unwrap_or("the program");
                let chain: Vec<&str> = way[at..].iter().map(|(index, _)| name(*index)).chain([name(callee)]).collect();
                found.push(
                    Diagnostic::error("recursion", place, format!("recursion: {}", chain.join(" calls ")))
                        .with_help("functions are put in the place of their calls: write the repetition as a Loop"),
                );
                circles += 1;
            } else if !done.contains(&callee) {
                way.push((callee, self.calls_of(callee)));
            }
        }
        circles > 0
    }

    fn calls_of(&self, index: usize) -> Vec<(usize, Place)> {
        let mut all = Vec::new();
        calls_with_places(&self.functions[index].body, &mut all);
        all.into_iter().rev().filter_map(|(name, place)| Some((*self.by_name.get(name)?, place))).collect()
    }

    fn compile(&mut self, sources: &[Source], files: &[FileNames], found: &mut Vec<Diagnostic>) -> Program {
        let mut names = Names::new(files);
        let mut records = Records::default();
        for function in self.holding() {
            records.read(&function.body);
        }
        records.variables(&mut names, found);
        let mut machine = MachineDirectives::default();
        let mut code = Code::default();
        self.declared(&mut names, &mut machine, &mut code, found);
        self.declared_processors = machine.processors.iter().map(|p| p.name.clone()).collect();
        code.processors.clone_from(&machine.processors);
        let mut compiler = Compiler::new(self, names, records, code);
        compiler.run();
        let (mut code, names) = (compiler.code, compiler.names);
        found.append(&mut compiler.found);
        machine.processors = std::mem::take(&mut code.processors);
        steady::mark(&mut code);
        let mut parameters = names.parameters;
        parameters.sort_by(|a, b| (&a.name, a.slot).cmp(&(&b.name, b.slot)));
        Program {
            files: sources.iter().map(|s| s.name.to_owned()).collect(),
            ops: code.ops,
            slots: names.slots,
            parameters,
            streams: code.streams,
            requests: code.requests,
            fields: code.fields,
            machine,
            runons: code.runons,
        }
    }

    /// Takes up machines, parameters and streams.
    fn declared(
        &self,
        names: &mut Names,
        machine: &mut MachineDirectives,
        code: &mut Code,
        found: &mut Vec<Diagnostic>,
    ) {
        for (head, file) in &self.declarations {
            if head.kind == HeadKind::Parameter
                && let Some((name, place)) = &head.name
                && !names.declare(name, head.value.clone(), *place, *file)
            {
                found.push(Diagnostic::error("defined-twice", *place, format!("parameter `{name}` is declared twice")));
            }
        }
        names.declare_all(found);
        for (head, file) in &self.declarations {
            match head.kind {
                HeadKind::Processor => processor(head, machine, names, *file, found),
                HeadKind::Network => network(head, machine, found),
                HeadKind::Default => defaults(head, machine, names, *file, found),
                HeadKind::Stream => stream(head, code, found),
                _ => {}
            }
        }
    }
}

/// Collects whom statements call; whether there are others than calls.
fn called<'a>(body: &'a [Stmt], calls: &mut BTreeSet<&'a str>) -> bool {
    let mut other = false;
    for statement in body {
        match &statement.kind {
            StmtKind::Call(name, _, written) => {
                calls.insert(name);
                other |= written;
            }
            kind => {
                other = true;
                for inner in bodies(kind) {
                    called(inner, calls);
                }
            }
        }
    }
    other
}

fn calls_with_places<'a>(body: &'a [Stmt], all: &mut Vec<(&'a str, Place)>) {
    for statement in body {
        if let StmtKind::Call(name, ..) = &statement.kind {
            all.push((name, statement.place));
        }
        for inner in bodies(&statement.kind) {
            calls_with_places(inner, all);
        }
    }
}

fn bodies(kind: &StmtKind) -> impl Iterator<Item = &Vec<Stmt>> {
    let (one, many) = match kind {
        StmtKind::Loop(_, body) | StmtKind::Block(body) => (Some(body), None),
        StmtKind::Runon(_, bodies) | StmtKind::Condition(_, bodies) => (None, Some(bodies)),
        _ => (None, None),
    };
    one.into_iter().chain(many.into_iter().flatten())
}

/// An expression that may mention parameters and constants, outside of any function.
fn outer_expr(ex: &Ex, names: &mut Names, file: usize, found: &mut Vec<Diagnostic>) -> crate::expr::Expr {
    names.expr(ex, Site { file, function: None, formals: &[], indices: &[] }, found)
}

fn processor(
    head: &Head,
    machine: &mut MachineDirectives,
    names: &mut Names,
    file: usize,
    found: &mut Vec<Diagnostic>,
) {
    let Some(name) = head.name_of("description") else {
        if !head.broken {
            found.push(missing(head, "description", "write `description = ` and its name"));
        }
        return;
    };
    if machine.processors.iter().any(|p| p.name == name) {
        found.push(Diagnostic::error("defined-twice", head.place, format!("Processor `{name}` is described twice")));
        return;
    }
    let basis = head.value_of("timing basis").map(|ex| outer_expr(ex, names, file, found));
    let basis_mhz = basis.and_then(|expr| expr.constant()).map(crate::expr::Value::as_f64);
    if head.attr("timing basis").is_some() && basis_mhz.is_none_or(|mhz| mhz <= 0.0) {
        found.push(Diagnostic::error("number", head.place, "a timing basis is a number of MHz above 0"));
    }
    machine.processors.push(Processor { name: name.to_owned(), basis_mhz, place: head.place });
}

fn network(head: &Head, machine: &mut MachineDirectives, found: &mut Vec<Diagnostic>) {
    let Some(name) = head.name_of("description") else {
        if !head.broken {
            found.push(missing(head, "description", "write `description = ` and its name"));
        }
        return;
    };
    if machine.networks.iter().any(|n| n.name == name) {
        found.push(Diagnostic::error("defined-twice", head.place, format!("Network `{name}` is described twice")));
        return;
    }
    let mut links: Vec<NetworkLink> = Vec::new();
    for attr in &head.attrs {
        let Attr::Link([link, from, to, profile]) = &attr.value else { continue };
        if links.iter().any(|l| l.name == *link) {
            found.push(Diagnostic::error("defined-twice", attr.place, format!("link `{link}` is there twice")));
        }
        let (name, from, to, profile) = (link.clone(), from.clone(), to.clone(), profile.clone());
        links.push(NetworkLink { name, from, to, profile, place: attr.place });
    }
    machine.networks.push(Network { name: name.to_owned(), links, place: head.place });
}

fn defaults(head: &Head, machine: &mut MachineDirectives, names: &mut Names, file: usize, found: &mut Vec<Diagnostic>) {
    for attr in &head.attrs {
        let first = match (&attr.value, attr.name) {
            (Attr::Name(name), "processor") => machine.processor.replace((name.clone(), attr.place)).map(|(_, p)| p),
            (Attr::Name(name), "network") => machine.network.replace((name.clone(), attr.place)).map(|(_, p)| p),
            (Attr::Value(ex), which) => {
                let value = outer_expr(ex, names, file, found);
                match which {
                    "numprocs" => machine.numprocs.replace((value, attr.place)).map(|(_, p)| p),
                    "speed" => machine.speed_mhz.replace((value, attr.place)).map(|(_, p)| p),
                    _ => {
                        let old = machine.speed_of_mhz.iter().find(|(n, ..)| *n == attr.number).map(|(_, _, p)| *p);
                        machine.speed_of_mhz.push((attr.number, value, attr.place));
                        old
                    }
                }
            }
            _ => None,
        };
        if let Some(first) = first {
            let fault = Diagnostic::error(
                "double-attribute",
                attr.place,
                format!("the default of `{}` is given twice", attr.name),
            );
            found.push(fault.with_place(first, "first here"));
        }
    }
}

fn stream(head: &Head, code: &mut Code, found: &mut Vec<Diagnostic>) {
    let (Some((name, place)), Some(file)) = (&head.name, &head.file) else { return };
    if code.streams.iter().any(|s| s.name == *name) {
        found.push(Diagnostic::error("defined-twice", *place, format!("stream `{name}` is declared twice")));
        return;
    }
    code.streams.push(Stream { name: name.clone(), file: file.clone(), columns: Vec::new(), place: head.place });
}

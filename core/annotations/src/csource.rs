//! What is read from the C around the directives: functions, calls, loops.
//!
//! No compiler: code need not be complete, and what is not understood is passed over.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::cvalues::{Scope, Types, is_loose};
use crate::directive::{Reader, c_arguments};
use crate::lex::{Piece, Tok, Token};
use crate::place::{Diagnostic, Place};
use crate::syntax::{Event, FunctionText, HeadKind};

/// Words before `(` that call nothing.
const KEYWORDS: [&str; 12] =
    ["if", "for", "while", "switch", "return", "sizeof", "do", "else", "case", "defined", "catch", "_Alignof"];

/// Functions of MPI that communicate; `MPI_I...` of collectives besides.
const COMMUNICATES: [&str; 47] = [
    "Send",
    "Ssend",
    "Bsend",
    "Rsend",
    "Isend",
    "Issend",
    "Ibsend",
    "Irsend",
    "Recv",
    "Irecv",
    "Sendrecv",
    "Sendrecv_replace",
    "Probe",
    "Iprobe",
    "Mprobe",
    "Improbe",
    "Mrecv",
    "Imrecv",
    "Wait",
    "Waitall",
    "Waitany",
    "Waitsome",
    "Test",
    "Testall",
    "Testany",
    "Testsome",
    "Start",
    "Startall",
    "Put",
    "Get",
    "Accumulate",
    "Win_fence",
    "Win_lock",
    "Win_unlock",
    "Barrier",
    "Bcast",
    "Scatter",
    "Scatterv",
    "Gather",
    "Gatherv",
    "Reduce",
    "Allgather",
    "Allgatherv",
    "Alltoall",
    "Alltoallv",
    "Alltoallw",
    "Allreduce",
];
const COMMUNICATES_TOO: [&str; 10] = [
    "Reduce_scatter",
    "Reduce_scatter_block",
    "Scan",
    "Exscan",
    "Psend_init",
    "Precv_init",
    "Pready",
    "Pready_range",
    "Pready_list",
    "Parrived",
];
/// Functions that only make or give up requests: a `Message` may stand before them, and need not.
const OF_REQUESTS: [&str; 6] = ["Send_init", "Ssend_init", "Bsend_init", "Rsend_init", "Recv_init", "Request_free"];

/// Whether a function of MPI only makes or gives up a request.
pub fn is_of_requests(name: &str) -> bool {
    name.strip_prefix("MPI_").is_some_and(|rest| OF_REQUESTS.contains(&rest))
}

/// Whether a function of MPI communicates.
pub fn communicates(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("MPI_") else { return false };
    let listed = |n: &str| COMMUNICATES.contains(&n) || COMMUNICATES_TOO.contains(&n);
    // `MPI_Ibarrier`: `I` and the name in small letters.
    let capital =
        || rest.strip_prefix('I').map(|r| r[..r.len().min(1)].to_uppercase() + r.get(1..).unwrap_or_default());
    listed(rest)
        || capital().is_some_and(|n| COMMUNICATES[34..].contains(&n.as_str()) || COMMUNICATES_TOO.contains(&n.as_str()))
}

/// A function's place in a file.
#[derive(Debug)]
struct Span {
    name: String,
    formals: Vec<String>,
    /// Tokens of the head, from the name up to, not including, the brace; and of the body without
    /// its braces.
    head: Range<usize>,
    body: Range<usize>,
    place: Place,
}

/// A file, cut at its functions.
#[derive(Debug)]
pub struct CFile {
    pieces: Vec<Piece>,
    /// The C tokens: their pieces.
    tokens: Vec<usize>,
    /// The token that closes what a token opens.
    closing: Vec<Option<usize>>,
    spans: Vec<Span>,
}

/// What was read from a file.
#[derive(Debug)]
pub struct FileText {
    pub functions: Vec<(FunctionText, Scope)>,
    pub scope: Scope,
    pub types: Types,
    /// Whether it calls MPI.
    pub has_mpi: bool,
}

impl CFile {
    /// Finds the functions.
    pub fn new(pieces: Vec<Piece>) -> Self {
        let tokens = (0..pieces.len()).filter(|at| matches!(pieces[*at], Piece::C(_))).collect();
        let mut file = Self { pieces, tokens, closing: Vec::new(), spans: Vec::new() };
        file.closing = file.brackets();
        file.spans = file.functions();
        file
    }

    /// The names of its functions.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.spans.iter().map(|span| span.name.as_str())
    }

    fn token(&self, at: usize) -> Option<&Token> {
        match self.pieces.get(*self.tokens.get(at)?) {
            Some(Piece::C(token)) => Some(token),
            _ => None,
        }
    }

    fn sign(&self, at: usize) -> &str {
        match self.token(at).map(|t| &t.tok) {
            Some(Tok::Sign(sign)) => sign,
            _ => "",
        }
    }

    fn word(&self, at: usize) -> Option<&str> {
        match self.token(at).map(|t| &t.tok) {
            Some(Tok::Word(word)) => Some(word),
            _ => None,
        }
    }

    fn slice(&self, range: Range<usize>) -> Vec<Token> {
        range.filter_map(|at| self.token(at).cloned()).collect()
    }

    fn brackets(&self) -> Vec<Option<usize>> {
        let mut closing = vec![None; self.tokens.len()];
        let mut open: [Vec<usize>; 3] = Default::default();
        for at in 0..self.tokens.len() {
            match self.sign(at) {
                "(" => open[0].push(at),
                "[" => open[1].push(at),
                "{" => open[2].push(at),
                sign @ (")" | "]" | "}") => {
                    let kind = usize::from(sign != ")") + usize::from(sign == "}");
                    if let Some(opened) = open[kind].pop() {
                        closing[opened] = Some(at);
                    }
                }
                _ => {}
            }
        }
        closing
    }

    fn functions(&self) -> Vec<Span> {
        let mut spans = Vec::new();
        let mut depth = 0_usize;
        // Braces that do not count: of `extern "C"` and of namespaces.
        let mut transparent = BTreeSet::new();
        let mut at = 0;
        while at < self.tokens.len() {
            if let Some(span) = (depth == 0).then(|| self.function_at(at)).flatten() {
                at = span.body.end + 1;
                spans.push(span);
                continue;
            }
            match self.sign(at) {
                "{" if self.is_transparent(at) => {
                    transparent.extend(self.closing[at]);
                }
                "{" => depth += 1,
                "}" if !transparent.contains(&at) => depth = depth.saturating_sub(1),
                _ => {}
            }
            at += 1;
        }
        spans
    }

    fn is_transparent(&self, at: usize) -> bool {
        let before = |n: usize| at.checked_sub(n).and_then(|at| self.word(at));
        let after_text = at.checked_sub(1).and_then(|at| self.token(at)).is_some_and(|t| matches!(t.tok, Tok::Text(_)));
        (after_text && before(2) == Some("extern")) || before(1) == Some("namespace") || before(2) == Some("namespace")
    }

    /// A definition whose name stands here.
    fn function_at(&self, at: usize) -> Option<Span> {
        let name = self.word(at).filter(|word| !KEYWORDS.contains(word))?;
        if self.sign(at + 1) != "(" {
            return None;
        }
        let close = self.closing[at + 1]?;
        if self.sign(close + 1) != "{" {
            return None;
        }
        // A body that is never closed goes on to the end.
        let end = self.closing[close + 1].unwrap_or(self.tokens.len());
        Some(Span {
            name: name.to_owned(),
            formals: self.formals(at + 2..close),
            head: at..close + 1,
            body: close + 2..end,
            place: self.token(at)?.place,
        })
    }

    /// The names of a function's formal arguments: the last word of each.
    fn formals(&self, range: Range<usize>) -> Vec<String> {
        let mut all = Vec::new();
        let mut last = None;
        let mut brackets = 0_usize;
        for at in range.clone() {
            match self.sign(at) {
                "," if brackets == 0 => all.push(last.take().unwrap_or_default()),
                "(" | "[" => brackets += 1,
                ")" | "]" => brackets = brackets.saturating_sub(1),
                _ if brackets == 0 => last = self.word(at).map(str::to_owned).or(last),
                _ => {}
            }
        }
        if let Some(last) = last.filter(|word| word != "void" || !all.is_empty()) {
            all.push(last);
        }
        all
    }

    /// Everything that is read from the file. `defined` are the functions of all files.
    pub fn read(&self, defined: &BTreeSet<String>, found: &mut Vec<Diagnostic>) -> FileText {
        let inside: Vec<&Range<usize>> = self.spans.iter().map(|span| &span.body).collect();
        let mut outside = Vec::new();
        let mut at = 0;
        for range in &inside {
            outside.extend(at..range.start);
            at = range.end;
        }
        outside.extend(at..self.tokens.len());
        let mut types = Types::default();
        let file_tokens: Vec<Token> = outside.iter().filter_map(|at| self.token(*at).cloned()).collect();
        types.read(&file_tokens);
        let mut scope = Scope::read(&file_tokens, &mut types);
        let mut functions = Vec::new();
        let mut events = self.events(defined, found).into_iter();
        let own = events.next().unwrap_or_default();
        for (span, events) in self.spans.iter().zip(events) {
            let body = self.slice(span.body.clone());
            let inner = Scope::read(&body, &mut types);
            scope.changed_elsewhere(&inner);
            let text = FunctionText {
                name: Some(span.name.clone()),
                formals: span.formals.clone(),
                events,
                place: span.place,
            };
            functions.push((text, inner));
        }
        scope.defines(self.pieces.iter().filter_map(|piece| match piece {
            Piece::Define(name, tokens, place) => Some((name, tokens.as_slice(), *place)),
            _ => None,
        }));
        let loose = self.pieces.iter().filter_map(|piece| match piece {
            Piece::Define(name, tokens, _) if is_loose(tokens) => Some(name.clone()),
            _ => None,
        });
        let loose: BTreeSet<String> = loose.collect();
        scope.distrust(&loose);
        functions.iter_mut().for_each(|(_, inner)| inner.distrust(&loose));
        let place = own.iter().find_map(event_place).unwrap_or_default();
        let text = FunctionText { name: None, formals: Vec::new(), events: own, place };
        let has_mpi =
            (0..self.tokens.len()).any(|at| self.word(at).is_some_and(communicates) && self.sign(at + 1) == "(");
        functions.insert(0, (text, Scope::default()));
        FileText { functions, scope, types, has_mpi }
    }

    /// What happens outside of all functions, then in each.
    fn events(&self, defined: &BTreeSet<String>, found: &mut Vec<Diagnostic>) -> Vec<Vec<Event>> {
        let mut walks: Vec<Walk> = (0..=self.spans.len()).map(|_| Walk::default()).collect();
        // The next token, and the first function that does not end before it.
        let (mut token, mut span) = (0, 0);
        for piece in &self.pieces {
            while self.spans.get(span).is_some_and(|s| s.body.end < token) {
                span += 1;
            }
            let near = self.spans.get(span);
            let is_token = matches!(piece, Piece::C(_));
            // A line stands before a token; the last place of a body is before the brace that ends
            // it.
            let within = |s: &Span| token >= s.body.start && token < s.body.end + usize::from(!is_token);
            let walk = &mut walks[if near.is_some_and(within) { span + 1 } else { 0 }];
            match piece {
                Piece::Line(tokens, place) => walk.reader.line(tokens, *place, &mut walk.events, found),
                Piece::C(_) => {
                    if !near.is_some_and(|s| s.head.contains(&token)) {
                        self.c_event(token, !near.is_some_and(within), defined, walk);
                    }
                    token += 1;
                }
                Piece::Define(..) => {}
            }
        }
        walks.into_iter().map(|walk| walk.events).collect()
    }

    /// Loops and calls that begin or end at a token.
    fn c_event(&self, at: usize, outside: bool, defined: &BTreeSet<String>, walk: &mut Walk) {
        let Some(token) = self.token(at) else { return };
        if let Some(word) = self.word(at) {
            if matches!(word, "for" | "while" | "do") {
                if let Some(end) = self.loop_end(at, word == "do") {
                    walk.events.push(Event::LoopC(token.place));
                    *walk.loop_ends.entry(end).or_insert(0) += 1;
                }
            } else if self.sign(at + 1) == "("
                && let Some(close) = self.closing[at + 1]
                && !(outside && self.is_declared(at))
            {
                if communicates(word) || is_of_requests(word) {
                    walk.at_close.entry(close).or_default().push(Event::Mpi(word.to_owned(), token.place));
                } else if defined.contains(word) {
                    let args = c_arguments(&self.slice(at + 2..close), token.place);
                    walk.at_close.entry(close).or_default().push(Event::CallC(word.to_owned(), args, token.place));
                }
            }
        }
        if let Some(events) = walk.at_close.remove(&at) {
            walk.events.extend(events);
        }
        for _ in 0..walk.loop_ends.remove(&at).unwrap_or(0) {
            walk.events.push(Event::LoopCEnd);
        }
    }

    /// Whether the name is declared here, not called: a type stands before it.
    fn is_declared(&self, at: usize) -> bool {
        let Some(before) = at.checked_sub(1) else { return false };
        match self.word(before) {
            Some(word) => !KEYWORDS.contains(&word),
            None => self.sign(before) == "*" && before.checked_sub(1).is_some_and(|b| self.word(b).is_some()),
        }
    }

    /// The last token of a loop's body.
    fn loop_end(&self, at: usize, is_do: bool) -> Option<usize> {
        /// Bodies without braces are short.
        const FAR: usize = 4096;
        let body = if is_do { at + 1 } else { self.closing.get(at + 1).copied().flatten()? + 1 };
        match self.sign(body) {
            "{" => self.closing[body],
            // `do {} while (x);`, or a loop that does nothing.
            ";" => None,
            _ => (body..self.tokens.len().min(body + FAR)).find(|t| self.sign(*t) == ";"),
        }
    }
}

/// Collects what happens in one function.
#[derive(Default)]
struct Walk {
    events: Vec<Event>,
    reader: Reader,
    /// Calls happen behind their arguments.
    at_close: BTreeMap<usize, Vec<Event>>,
    loop_ends: BTreeMap<usize, usize>,
}

/// Where an event stands.
pub fn event_place(event: &Event) -> Option<Place> {
    match event {
        Event::Head(head) => Some(head.place),
        Event::More(_, place)
        | Event::Open(place)
        | Event::Close(place)
        | Event::CallC(_, _, place)
        | Event::Mpi(_, place)
        | Event::LoopC(place) => Some(*place),
        Event::LoopCEnd => None,
    }
}

/// Whether a head describes machines or declares, and is no statement.
pub const fn is_declaration(kind: HeadKind) -> bool {
    matches!(kind, HeadKind::Processor | HeadKind::Network | HeadKind::Default | HeadKind::Parameter | HeadKind::Stream)
}

//! Constants, aliases and sizes of types that C code declares.

use std::collections::{BTreeMap, BTreeSet};

use crate::exparse::{TYPE_WORDS, conversion, number, whole};
use crate::expr::{Binary, Value};
use crate::lex::{Tok, Token};
use crate::place::Place;
use crate::syntax::Ex;

/// A constant's value, or why it has none.
#[derive(Debug, Clone, PartialEq)]
pub enum Constant {
    /// Its initialiser.
    Is(Ex, Place),
    /// It is changed there, or declared again.
    Changed(Place),
    /// Its initialiser is no expression of the language.
    Unknown(Place),
    /// A macro without brackets stands among operators in its initialiser: C takes the macro's text
    /// apart.
    Torn(Place),
}

/// What a name is another name of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alias {
    Procnum,
    Numprocs,
}

/// The names of a function, or of a file outside of its functions.
#[derive(Debug, Default)]
pub struct Scope {
    pub constants: BTreeMap<String, Constant>,
    pub aliases: BTreeMap<String, Alias>,
    declared: BTreeSet<String>,
    changed: BTreeMap<String, Place>,
}

const QUALIFIERS: [&str; 7] = ["const", "static", "register", "volatile", "extern", "constexpr", "inline"];

/// Types of one word with their sizes on 64-bit Linux.
const SIZES: [(&str, u64); 44] = [
    ("char", 1),
    ("bool", 1),
    ("_Bool", 1),
    ("int", 4),
    ("float", 4),
    ("double", 8),
    ("size_t", 8),
    ("ssize_t", 8),
    ("ptrdiff_t", 8),
    ("intptr_t", 8),
    ("uintptr_t", 8),
    ("off_t", 8),
    ("time_t", 8),
    ("MPI_Aint", 8),
    ("MPI_Offset", 8),
    ("MPI_Count", 8),
    ("int8_t", 1),
    ("uint8_t", 1),
    ("int16_t", 2),
    ("uint16_t", 2),
    ("int32_t", 4),
    ("uint32_t", 4),
    ("int64_t", 8),
    ("uint64_t", 8),
    ("MPI_BYTE", 1),
    ("MPI_CHAR", 1),
    ("MPI_SIGNED_CHAR", 1),
    ("MPI_UNSIGNED_CHAR", 1),
    ("MPI_SHORT", 2),
    ("MPI_UNSIGNED_SHORT", 2),
    ("MPI_INT", 4),
    ("MPI_UNSIGNED", 4),
    ("MPI_LONG", 8),
    ("MPI_UNSIGNED_LONG", 8),
    ("MPI_LONG_LONG", 8),
    ("MPI_FLOAT", 4),
    ("MPI_DOUBLE", 8),
    ("MPI_LONG_DOUBLE", 16),
    ("MPI_C_COMPLEX", 8),
    ("MPI_C_FLOAT_COMPLEX", 8),
    ("MPI_C_DOUBLE_COMPLEX", 16),
    ("MPI_INT64_T", 8),
    ("MPI_INT32_T", 4),
    ("MPI_UINT64_T", 8),
];

/// Size and alignment, bytes.
type Layout = (u64, u64);

/// Sizes of the types that a file declares.
#[derive(Debug, Default, Clone)]
pub struct Types {
    /// By name; structures as `struct NAME`.
    known: BTreeMap<String, Layout>,
}

impl Types {
    /// The size of a type given by its words, bytes.
    pub fn size_of(&self, words: &[String], pointer: bool) -> Option<u64> {
        if pointer { Some(8) } else { self.layout(words).map(|(size, _)| size) }
    }

    fn layout(&self, words: &[String]) -> Option<Layout> {
        let words: Vec<&str> = words.iter().map(String::as_str).filter(|w| !QUALIFIERS.contains(w)).collect();
        if let Some(known) = self.known.get(&words.join(" ")) {
            return Some(*known);
        }
        if let [one] = words.as_slice() {
            return SIZES
                .iter()
                .find(|(name, _)| name == one)
                .map(|(_, size)| (*size, (*size).min(16)))
                .or_else(|| arithmetic(&words));
        }
        arithmetic(&words)
    }

    /// Whether a word begins a declaration of a number or of a declared type.
    fn begins(&self, word: &str) -> bool {
        TYPE_WORDS.contains(&word) || SIZES.iter().any(|(name, _)| *name == word) || self.known.contains_key(word)
    }

    /// Reads `typedef`s and structures.
    pub fn read(&mut self, tokens: &[Token]) {
        let mut at = 0;
        while at < tokens.len() {
            at = match word(tokens, at) {
                Some("typedef") => self.typedef(tokens, at + 1),
                Some("struct") => self.structure(tokens, at).map_or(at + 1, |(_, _, end)| end),
                _ => at + 1,
            };
        }
    }

    /// `typedef TYPE NAME;`; returns where to go on.
    fn typedef(&mut self, tokens: &[Token], at: usize) -> usize {
        let (layout, mut end) = if word(tokens, at) == Some("struct") {
            match self.structure(tokens, at) {
                Some((_, layout, end)) => (Some(layout), end),
                None => {
                    let words = vec!["struct".to_owned(), word(tokens, at + 1).unwrap_or_default().to_owned()];
                    (self.layout(&words), at + 2)
                }
            }
        } else {
            let mut words = Vec::new();
            let mut end = at;
            // The last word before the semicolon is the name.
            while word(tokens, end + 1).is_some() || sign(tokens, end + 1) == "*" {
                words.extend(word(tokens, end).map(str::to_owned));
                end += 1;
                if sign(tokens, end) == "*" {
                    break;
                }
            }
            (self.layout(&words), end)
        };
        let pointer = sign(tokens, end) == "*";
        while sign(tokens, end) == "*" {
            end += 1;
        }
        if let (Some(name), ";") = (word(tokens, end), sign(tokens, end + 1))
            && let Some(layout) = if pointer { Some((8, 8)) } else { layout }
        {
            self.known.insert(name.to_owned(), layout);
        }
        end
    }

    /// `struct [NAME] { fields }`: its name, its layout, and the token behind it.
    fn structure(&mut self, tokens: &[Token], at: usize) -> Option<(String, Layout, usize)> {
        let name = word(tokens, at + 1).unwrap_or_default().to_owned();
        let mut at = at + 1 + usize::from(!name.is_empty());
        if sign(tokens, at) != "{" {
            return None;
        }
        at += 1;
        let (mut size, mut align) = (0_u64, 1_u64);
        while sign(tokens, at) != "}" {
            let mut words = Vec::new();
            while let Some(word) = word(tokens, at).filter(|w| {
                self.begins(w)
                    || QUALIFIERS.contains(w)
                    || *w == "struct"
                    || *w == "complex"
                    || words.last().is_some_and(|l| l == "struct")
            }) {
                words.push(word.to_owned());
                at += 1;
            }
            let base = self.layout(&words);
            loop {
                let mut pointer = false;
                while sign(tokens, at) == "*" {
                    pointer = true;
                    at += 1;
                }
                word(tokens, at)?;
                at += 1;
                let mut count = 1_u64;
                while sign(tokens, at) == "[" {
                    let Some(Tok::Number(Value::Int(n))) = tokens.get(at + 1).map(|t| &t.tok) else { return None };
                    count = count.checked_mul(u64::try_from(*n).ok()?)?;
                    at += 3;
                }
                let (one, unit) = if pointer { (8, 8) } else { base? };
                size = size.checked_next_multiple_of(unit)?.checked_add(one.checked_mul(count)?)?;
                align = align.max(unit);
                if sign(tokens, at) != "," {
                    break;
                }
                at += 1;
            }
            if sign(tokens, at) != ";" {
                return None;
            }
            at += 1;
        }
        let layout = (size.checked_next_multiple_of(align)?, align);
        if !name.is_empty() {
            self.known.insert(format!("struct {name}"), layout);
            // In C++ the name alone is the type.
            self.known.entry(name.clone()).or_insert(layout);
        }
        Some((name, layout, at + 1))
    }
}

/// The layout of C's number types of several words.
fn arithmetic(words: &[&str]) -> Option<Layout> {
    let count = |w: &str| words.iter().filter(|word| **word == w).count();
    let complex = count("complex") + count("_Complex");
    let known = ["unsigned", "signed", "char", "short", "int", "long", "float", "double", "complex", "_Complex"];
    if words.is_empty() || !words.iter().all(|word| known.contains(word)) {
        return None;
    }
    let (size, align) = match (count("char"), count("short"), count("long"), count("float"), count("double")) {
        (1, 0, 0, 0, 0) => (1, 1),
        (0, 1, 0, 0, 0) => (2, 2),
        (0, 0, 1 | 2, 0, 0) => (8, 8),
        (0, 0, 0, 1, 0) => (4, 4),
        (0, 0, 0, 0, 1) => (8, 8),
        (0, 0, 1, 0, 1) => (16, 16),
        // `complex` alone says nothing of its parts.
        (0, 0, 0, 0, 0) if complex == 0 => (4, 4),
        _ => return None,
    };
    Some((size << complex.min(1), align))
}

impl Scope {
    /// Reads a scope's declarations and changes.
    pub fn read(tokens: &[Token], types: &mut Types) -> Self {
        let mut scope = Self::default();
        types.read(tokens);
        let mut initialised = BTreeSet::new();
        for at in 0..tokens.len() {
            let begins = at == 0 || matches!(sign(tokens, at - 1), ";" | "{" | "}" | ")" | "(" | ":");
            if begins && word(tokens, at).is_some_and(|w| QUALIFIERS.contains(&w) || types.begins(w)) {
                scope.declaration(tokens, at, types, &mut initialised);
            } else if word(tokens, at) == Some("enum") {
                scope.enumeration(tokens, at + 1, &mut initialised);
            }
        }
        scope.changes(tokens, &initialised);
        let changed: Vec<(String, Place)> = scope.changed.iter().map(|(n, p)| (n.clone(), *p)).collect();
        for (name, place) in changed {
            scope.taint(&name, place);
        }
        scope
    }

    fn taint(&mut self, name: &str, place: Place) {
        if let Some(constant) = self.constants.get_mut(name) {
            *constant = Constant::Changed(place);
        }
    }

    /// What a function changes without declaring it is no constant of the file.
    pub fn changed_elsewhere(&mut self, inner: &Self) {
        for (name, place) in inner.changed.iter().filter(|(name, _)| !inner.declared.contains(*name)) {
            self.taint(name, *place);
        }
        for (name, alias) in inner.aliases.iter().filter(|(name, _)| !inner.declared.contains(*name)) {
            self.aliases.insert(name.clone(), *alias);
        }
    }

    /// Takes up `#define`s; one that is defined again is none.
    pub fn defines<'a>(&mut self, all: impl Iterator<Item = (&'a String, &'a [Token], Place)>) {
        for (name, tokens, place) in all.filter(|(_, tokens, _)| !tokens.is_empty()) {
            let constant = whole(tokens, place).map_or(Constant::Unknown(place), |ex| Constant::Is(ex, place));
            self.add(name, constant, place);
        }
    }

    /// Constants in whose initialisers a macro without brackets stands among operators are none: C
    /// puts in its text, not its value.
    pub fn distrust(&mut self, loose: &BTreeSet<String>) {
        for (own, constant) in &mut self.constants {
            if let Constant::Is(ex, place) = constant
                && is_torn(ex, loose, own)
            {
                *constant = Constant::Torn(*place);
            }
        }
    }

    fn add(&mut self, name: &str, constant: Constant, place: Place) {
        let again = match (self.constants.get(name), &constant) {
            (None, _) => false,
            (Some(Constant::Is(old, _)), Constant::Is(new, _)) => old != new,
            _ => true,
        };
        self.constants.insert(name.to_owned(), if again { Constant::Changed(place) } else { constant });
    }

    fn declaration(&mut self, tokens: &[Token], begin: usize, types: &Types, initialised: &mut BTreeSet<usize>) {
        let mut at = begin;
        let mut typed = false;
        let mut words = Vec::new();
        while let Some(w) = word(tokens, at) {
            let is_type = types.begins(w);
            // A known type may not follow another unless both are C's words.
            if !(QUALIFIERS.contains(&w) || (is_type && (!typed || TYPE_WORDS.contains(&w)))) {
                break;
            }
            typed |= is_type;
            if is_type {
                words.push(w);
            }
            at += 1;
        }
        if !typed {
            return;
        }
        // What a variable is given, it holds as a number of its own type.
        let held = |ex: Ex| match conversion(&words) {
            Some(op) => Ex::Unary(op, Box::new(ex)),
            None => ex,
        };
        loop {
            let pointer = sign(tokens, at) == "*";
            while sign(tokens, at) == "*" {
                at += 1;
            }
            let (Some(name), Some(token)) = (word(tokens, at), tokens.get(at)) else { return };
            self.declared.insert(name.to_owned());
            let name_at = at;
            at += 1;
            let array = sign(tokens, at) == "[";
            while sign(tokens, at) == "[" {
                at = end_of(tokens, at + 1, &["]"]) + 1;
            }
            if sign(tokens, at) == "=" {
                let end = end_of(tokens, at + 1, &[",", ";"]);
                initialised.insert(name_at);
                if !pointer && !array {
                    let init = tokens.get(at + 1..end).and_then(|t| whole(t, token.place));
                    let constant =
                        init.map_or(Constant::Unknown(token.place), |ex| Constant::Is(held(ex), token.place));
                    self.add(name, constant, token.place);
                }
                at = end;
            }
            if sign(tokens, at) != "," {
                return;
            }
            at += 1;
        }
    }

    fn enumeration(&mut self, tokens: &[Token], at: usize, initialised: &mut BTreeSet<usize>) {
        let mut at = at + usize::from(word(tokens, at).is_some());
        if sign(tokens, at) != "{" {
            return;
        }
        at += 1;
        let mut base = Some(number(0));
        let mut offset = 0;
        while let (Some(name), Some(token)) = (word(tokens, at), tokens.get(at)) {
            initialised.insert(at);
            at += 1;
            if sign(tokens, at) == "=" {
                let end = end_of(tokens, at + 1, &[",", "}"]);
                base = tokens.get(at + 1..end).and_then(|t| whole(t, token.place));
                offset = 0;
                at = end;
            }
            let value = base
                .clone()
                .map(|ex| if offset == 0 { ex } else { Ex::Binary(Binary::Add, Box::new((ex, number(offset)))) });
            let constant = value.map_or(Constant::Unknown(token.place), |ex| Constant::Is(ex, token.place));
            self.add(name, constant, token.place);
            offset += 1;
            if sign(tokens, at) != "," {
                return;
            }
            at += 1;
        }
    }

    /// Finds what is assigned, counted up or down, or whose address is taken.
    fn changes(&mut self, tokens: &[Token], initialised: &BTreeSet<usize>) {
        for at in 0..tokens.len() {
            let (Some(name), Some(token)) = (word(tokens, at), tokens.get(at)) else { continue };
            let before = at.checked_sub(1).map_or("", |b| sign(tokens, b));
            if before == "." || before == "->" {
                continue;
            }
            if before == "&" && is_operand_before(tokens, at.saturating_sub(1)) {
                continue;
            }
            if before == "&"
                && let Some(alias) = alias(tokens, at)
            {
                self.aliases.insert(name.to_owned(), alias);
                continue;
            }
            let assigned = matches!(
                sign(tokens, at + 1),
                "=" | "+=" | "-=" | "*=" | "/=" | "%=" | "&=" | "|=" | "^=" | "<<=" | ">>=" | "++" | "--"
            );
            if (assigned && !initialised.contains(&at)) || matches!(before, "++" | "--" | "&") {
                self.changed.entry(name.to_owned()).or_insert(token.place);
            }
        }
    }
}

/// Whether the text of a macro has an operator outside of brackets, so that what stands beside it
/// may take a part of it.
pub fn is_loose(tokens: &[Token]) -> bool {
    let mut depth = 0_usize;
    for at in 0..tokens.len() {
        match sign(tokens, at) {
            "(" => depth += 1,
            ")" => depth = depth.saturating_sub(1),
            "" | "." => {}
            _ if depth == 0 && at > 0 => return true,
            _ => {}
        }
    }
    false
}

/// Whether such a macro, another than this one, stands beside an operator. The outermost conversion
/// is that of the variable.
fn is_torn(ex: &Ex, loose: &BTreeSet<String>, own: &str) -> bool {
    fn inside(ex: &Ex, loose: &dyn Fn(&str) -> bool, alone: bool) -> bool {
        match ex {
            Ex::Name(name, _) => !alone && loose(name),
            Ex::Number(_) | Ex::Parameter(..) | Ex::SizeOf(..) => false,
            Ex::Unary(_, a) => inside(a, loose, false),
            Ex::Binary(_, ab) => inside(&ab.0, loose, false) || inside(&ab.1, loose, false),
            Ex::Select(abc) => [&abc.0, &abc.1, &abc.2].into_iter().any(|part| inside(part, loose, false)),
            Ex::Call(_, args) => args.iter().any(|arg| inside(arg, loose, true)),
        }
    }
    let is_loose = |name: &str| name != own && loose.contains(name);
    match ex {
        Ex::Unary(_, a) if matches!(**a, Ex::Name(..)) => false,
        _ => inside(ex, &is_loose, true),
    }
}

/// Whether the `&` there has a left side: then it takes no address.
fn is_operand_before(tokens: &[Token], at: usize) -> bool {
    let Some(before) = at.checked_sub(1).and_then(|b| tokens.get(b)) else { return false };
    match &before.tok {
        Tok::Word(word) => word != "return",
        Tok::Number(_) => true,
        Tok::Sign(sign) => matches!(*sign, ")" | "]"),
        _ => false,
    }
}

/// `MPI_Comm_rank(MPI_COMM_WORLD, &x)`, x standing at `at`.
fn alias(tokens: &[Token], at: usize) -> Option<Alias> {
    let begin = at.checked_sub(5)?;
    if sign(tokens, begin + 1) != "("
        || word(tokens, begin + 2) != Some("MPI_COMM_WORLD")
        || sign(tokens, begin + 3) != ","
    {
        return None;
    }
    match word(tokens, begin)? {
        "MPI_Comm_rank" => Some(Alias::Procnum),
        "MPI_Comm_size" => Some(Alias::Numprocs),
        _ => None,
    }
}

fn word(tokens: &[Token], at: usize) -> Option<&str> {
    match tokens.get(at).map(|t| &t.tok) {
        Some(Tok::Word(word)) => Some(word),
        _ => None,
    }
}

fn sign(tokens: &[Token], at: usize) -> &str {
    match tokens.get(at).map(|t| &t.tok) {
        Some(Tok::Sign(sign)) => sign,
        _ => "",
    }
}

/// Where the first of the signs stands outside of brackets; the end, if none does. It looks no
/// further than an initialiser of a constant would go.
fn end_of(tokens: &[Token], begin: usize, signs: &[&str]) -> usize {
    const FAR: usize = 4096;
    let mut depth = 0_usize;
    let last = tokens.len().min(begin.saturating_add(FAR));
    for at in begin..last {
        let s = sign(tokens, at);
        if depth == 0 && signs.contains(&s) {
            return at;
        }
        match s {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            ";" => return at,
            _ => {}
        }
    }
    last
}

//! Reads expressions from tokens: C's, by precedence.

use crate::expr::{Binary, Function, MAX_DEPTH, Signed, Unary, Value};
use crate::lex::{Tok, Token};
use crate::place::{Diagnostic, Place};
use crate::syntax::Ex;

/// What stands where an expression was expected, or does not go on as one.
pub type Fault = Box<Diagnostic>;

/// A walk over tokens.
#[derive(Debug, Clone)]
pub struct Cursor<'a> {
    tokens: &'a [Token],
    at: usize,
    /// Where an error at the end of the tokens is.
    end: Place,
}

impl<'a> Cursor<'a> {
    /// Over a line that begins at `begin`.
    pub fn new(tokens: &'a [Token], begin: Place) -> Self {
        let end = tokens.last().map_or(begin, |last| Place {
            column: last.place.column.saturating_add(last.place.length),
            length: 1,
            ..last.place
        });
        Self { tokens, at: 0, end }
    }

    pub fn peek(&self) -> Option<&'a Tok> {
        self.tokens.get(self.at).map(|t| &t.tok)
    }

    pub fn peek_at(&self, n: usize) -> Option<&'a Tok> {
        self.tokens.get(self.at + n).map(|t| &t.tok)
    }

    /// Where the next token stands.
    pub fn place(&self) -> Place {
        self.tokens.get(self.at).map_or(self.end, |t| t.place)
    }

    /// From a place up to the last token that was taken.
    pub fn since(&self, begin: Place) -> Place {
        let Some(last) = self.at.checked_sub(1).and_then(|at| self.tokens.get(at)) else { return begin };
        let end = last.place.column.saturating_add(last.place.length);
        Place { length: end.saturating_sub(begin.column).max(begin.length), ..begin }
    }

    pub fn is_done(&self) -> bool {
        self.at >= self.tokens.len()
    }

    pub fn skip(&mut self) {
        self.at += 1;
    }

    pub fn skip_all(&mut self) {
        self.at = self.tokens.len();
    }

    /// Whether the next token is this sign; takes it.
    pub fn sign(&mut self, sign: &str) -> bool {
        let is = self.is_sign(sign);
        if is {
            self.at += 1;
        }
        is
    }

    pub fn is_sign(&self, sign: &str) -> bool {
        matches!(self.peek(), Some(Tok::Sign(s)) if *s == sign)
    }

    pub fn word(&mut self) -> Option<&'a str> {
        match self.peek() {
            Some(Tok::Word(word)) => {
                self.at += 1;
                Some(word)
            }
            _ => None,
        }
    }

    /// The next token for people.
    pub fn shown(&self) -> String {
        match self.peek() {
            None => "the end of the line".to_owned(),
            Some(Tok::Word(word) | Tok::Other(word)) => format!("`{word}`"),
            Some(Tok::Number(value)) => format!("`{value}`"),
            Some(Tok::Text(text)) => format!("\"{text}\""),
            Some(Tok::Sign(sign)) => format!("`{sign}`"),
        }
    }

    /// The error that something else was expected here.
    pub fn expected(&self, what: &str) -> Fault {
        Box::new(Diagnostic::error("syntax", self.place(), format!("expected {what}, found {}", self.shown())))
    }

    /// Takes the sign, or says what was expected.
    pub fn need(&mut self, sign: &str) -> Result<(), Fault> {
        if self.sign(sign) { Ok(()) } else { Err(self.expected(&format!("`{sign}`"))) }
    }
}

/// The words that make a C number type.
pub const TYPE_WORDS: [&str; 11] =
    ["unsigned", "signed", "char", "short", "int", "long", "float", "double", "_Bool", "bool", "_Complex"];

/// Reads one expression; what follows it is left.
pub fn expression(cursor: &mut Cursor) -> Result<Ex, Fault> {
    select(cursor, 0).map(|(ex, _)| ex)
}

/// Reads tokens that are one expression and nothing else.
pub fn whole(tokens: &[Token], begin: Place) -> Option<Ex> {
    let mut cursor = Cursor::new(tokens, begin);
    let ex = expression(&mut cursor).ok()?;
    cursor.is_done().then_some(ex)
}

/// An expression and its depth.
type Deep = (Ex, usize);

fn bounded(cursor: &Cursor, depth: usize) -> Result<usize, Fault> {
    if depth < MAX_DEPTH {
        return Ok(depth);
    }
    Err(Box::new(
        Diagnostic::error("too-deep", cursor.place(), format!("an expression of more than {MAX_DEPTH} levels"))
            .with_help("give a part of it a name with `PEVPM Set`"),
    ))
}

fn select(cursor: &mut Cursor, level: usize) -> Result<Deep, Fault> {
    bounded(cursor, level)?;
    let (condition, a) = operators(cursor, 0, level)?;
    if !cursor.sign("?") {
        return Ok((condition, a));
    }
    let (yes, b) = select(cursor, level + 1)?;
    cursor.need(":")?;
    let (no, c) = select(cursor, level + 1)?;
    let depth = bounded(cursor, 1 + a.max(b).max(c))?;
    Ok((Ex::Select(Box::new((condition, yes, no))), depth))
}

/// The operator of a sign and how tightly it binds.
fn operator(sign: &str) -> Option<(Binary, u8)> {
    Some(match sign {
        "||" => (Binary::Or, 1),
        "&&" => (Binary::And, 2),
        "|" => (Binary::BitOr, 3),
        "^" => (Binary::BitXor, 4),
        "&" => (Binary::BitAnd, 5),
        "==" => (Binary::Equal, 6),
        "!=" => (Binary::NotEqual, 6),
        "<" => (Binary::Less, 7),
        "<=" => (Binary::LessEqual, 7),
        ">" => (Binary::Greater, 7),
        ">=" => (Binary::GreaterEqual, 7),
        "<<" => (Binary::ShiftLeft, 8),
        ">>" => (Binary::ShiftRight, 8),
        "+" => (Binary::Add, 9),
        "-" => (Binary::Subtract, 9),
        "*" => (Binary::Multiply, 10),
        "/" => (Binary::Divide, 10),
        "%" => (Binary::Remainder, 10),
        _ => return None,
    })
}

/// `& name =` begins the next attribute, unless the `=` is one of `==`.
fn continues(cursor: &Cursor) -> bool {
    cursor.is_sign("&")
        && matches!(cursor.peek_at(1), Some(Tok::Word(_)))
        && matches!(cursor.peek_at(2), Some(Tok::Sign("=")))
}

fn operators(cursor: &mut Cursor, least: u8, level: usize) -> Result<Deep, Fault> {
    let (mut left, mut depth) = prefixed(cursor, level)?;
    while let Some(Tok::Sign(sign)) = cursor.peek() {
        let Some((op, binds)) = operator(sign).filter(|(_, binds)| *binds > least && !continues(cursor)) else { break };
        cursor.skip();
        let (right, other) = operators(cursor, binds, level + 1)?;
        depth = bounded(cursor, 1 + depth.max(other))?;
        left = Ex::Binary(op, Box::new((left, right)));
    }
    Ok((left, depth))
}

fn prefixed(cursor: &mut Cursor, level: usize) -> Result<Deep, Fault> {
    bounded(cursor, level)?;
    let op = match cursor.peek() {
        Some(Tok::Sign("-")) => Unary::Negate,
        Some(Tok::Sign("!")) => Unary::Not,
        Some(Tok::Sign("~")) => Unary::Invert,
        Some(Tok::Sign("+")) => {
            cursor.skip();
            return prefixed(cursor, level + 1);
        }
        Some(Tok::Sign("(")) => {
            if let Some(op) = cast(cursor) {
                let (inner, depth) = prefixed(cursor, level + 1)?;
                return Ok((Ex::Unary(op, Box::new(inner)), bounded(cursor, depth + 1)?));
            }
            return primary(cursor, level);
        }
        _ => return primary(cursor, level),
    };
    cursor.skip();
    let (inner, depth) = prefixed(cursor, level + 1)?;
    Ok((Ex::Unary(op, Box::new(inner)), bounded(cursor, depth + 1)?))
}

/// A cast to a number type, if one stands here.
fn cast(cursor: &mut Cursor) -> Option<Unary> {
    let mut ahead = cursor.clone();
    ahead.skip();
    let mut words = Vec::new();
    while let Some(word) = ahead.word() {
        words.push(word);
    }
    let op = conversion(&words)?;
    if !ahead.sign(")") {
        return None;
    }
    *cursor = ahead;
    Some(op)
}

/// What a conversion to the number type of these words does; none if they are no number type, or
/// one of several parts.
pub fn conversion(words: &[&str]) -> Option<Unary> {
    let words: Vec<&str> = words.iter().copied().filter(|w| !matches!(*w, "const" | "volatile" | "static")).collect();
    let named = |known: &str| words == [known];
    for (name, bytes, signed) in [
        ("int8_t", 1, Signed::Yes),
        ("uint8_t", 1, Signed::No),
        ("int16_t", 2, Signed::Yes),
        ("uint16_t", 2, Signed::No),
        ("int32_t", 4, Signed::Yes),
        ("uint32_t", 4, Signed::No),
        ("int64_t", 8, Signed::Yes),
        ("uint64_t", 8, Signed::No),
        ("size_t", 8, Signed::No),
    ] {
        if named(name) {
            return Some(Unary::Narrow(bytes, signed));
        }
    }
    if words.is_empty() || !words.iter().all(|word| TYPE_WORDS.contains(word)) || words.contains(&"_Complex") {
        return None;
    }
    let has = |word: &str| words.contains(&word);
    if has("double") {
        return Some(Unary::ToFloat);
    }
    if has("float") {
        return Some(Unary::ToSingle);
    }
    if has("bool") || has("_Bool") {
        return Some(Unary::ToBool);
    }
    let bytes = if has("char") {
        1
    } else if has("short") {
        2
    } else if has("long") {
        8
    } else {
        4
    };
    let signed = if has("unsigned") { Signed::No } else { Signed::Yes };
    Some(if bytes == 8 && signed == Signed::Yes { Unary::Truncate } else { Unary::Narrow(bytes, signed) })
}

fn primary(cursor: &mut Cursor, level: usize) -> Result<Deep, Fault> {
    let place = cursor.place();
    match cursor.peek() {
        Some(Tok::Number(value)) => {
            cursor.skip();
            Ok((Ex::Number(*value), 1))
        }
        Some(Tok::Sign("(")) => {
            cursor.skip();
            let inner = select(cursor, level + 1)?;
            cursor.need(")")?;
            Ok(inner)
        }
        Some(Tok::Word(word)) => {
            cursor.skip();
            named(cursor, word, place, level)
        }
        _ => Err(cursor.expected("a number, a name or `(`")),
    }
}

fn named(cursor: &mut Cursor, word: &str, place: Place, level: usize) -> Result<Deep, Fault> {
    match word {
        "parameter" => {
            let place = cursor.place();
            let name = cursor.word().ok_or_else(|| cursor.expected("the name of a parameter"))?;
            return Ok((Ex::Parameter(name.to_owned(), place), 1));
        }
        "sizeof" => return size_of(cursor, place).map(|ex| (ex, 1)),
        _ => {}
    }
    if cursor.is_sign("(") {
        return function(cursor, word, place, level);
    }
    let mut name = word.to_owned();
    while cursor.is_sign(".") && matches!(cursor.peek_at(1), Some(Tok::Word(_))) {
        cursor.skip();
        name.push('.');
        name.push_str(cursor.word().unwrap_or_default());
    }
    Ok((Ex::Name(name, cursor.since(place)), 1))
}

fn size_of(cursor: &mut Cursor, place: Place) -> Result<Ex, Fault> {
    cursor.need("(")?;
    let mut words = Vec::new();
    while let Some(word) = cursor.word() {
        words.push(word.to_owned());
    }
    let mut pointer = false;
    while cursor.sign("*") {
        pointer = true;
    }
    if words.is_empty() {
        return Err(cursor.expected("the name of a type"));
    }
    cursor.need(")")?;
    Ok(Ex::SizeOf(words, pointer, cursor.since(place)))
}

/// Functions by name, with how many arguments each has.
const FUNCTIONS: [(&str, Function, usize); 15] = [
    ("min", Function::Min, 2),
    ("max", Function::Max, 2),
    ("abs", Function::Abs, 1),
    ("fabs", Function::Abs, 1),
    ("labs", Function::Abs, 1),
    ("floor", Function::Floor, 1),
    ("ceil", Function::Ceil, 1),
    ("round", Function::Round, 1),
    ("sqrt", Function::Sqrt, 1),
    ("log", Function::Log, 1),
    ("log2", Function::Log2, 1),
    ("exp", Function::Exp, 1),
    ("pow", Function::Pow, 2),
    ("log10", Function::Log10, 1),
    ("require", Function::Require, 1),
];

fn function(cursor: &mut Cursor, word: &str, place: Place, level: usize) -> Result<Deep, Fault> {
    let Some((_, function, count)) = FUNCTIONS.iter().find(|(name, ..)| *name == word) else {
        let known: Vec<&str> = FUNCTIONS.iter().map(|(name, ..)| *name).collect();
        return Err(Box::new(
            Diagnostic::error("unknown-function", place, format!("`{word}` is no function of the language"))
                .with_help(suggestion(word, &known).unwrap_or_else(|| format!("there are {}", known.join(", ")))),
        ));
    };
    cursor.need("(")?;
    let mut args = Vec::new();
    let mut depth = 0;
    loop {
        let (arg, d) = select(cursor, level + 1)?;
        args.push(arg);
        depth = depth.max(d);
        if !cursor.sign(",") {
            break;
        }
    }
    cursor.need(")")?;
    if args.len() != *count {
        let place = cursor.since(place);
        let said = format!("`{word}` takes {count} argument{}, not {}", if *count == 1 { "" } else { "s" }, args.len());
        return Err(Box::new(Diagnostic::error("arguments", place, said)));
    }
    Ok((Ex::Call(*function, args), bounded(cursor, depth + 1)?))
}

const SUGGESTION: &str = "did you mean ";

/// Whether a help is a [`suggestion`].
pub fn is_suggestion(help: &str) -> bool {
    help.starts_with(SUGGESTION)
}

/// "did you mean", if a known word is near.
pub fn suggestion(word: &str, known: &[&str]) -> Option<String> {
    let lower = word.to_lowercase();
    let distance = |k: &&str| strsim::damerau_levenshtein(&lower, &k.to_lowercase());
    let best = known.iter().copied().min_by_key(|k| distance(k))?;
    (distance(&best) <= 1 + word.len() / 4).then(|| format!("{SUGGESTION}`{best}`?"))
}

/// A number as an expression.
pub const fn number(value: i64) -> Ex {
    Ex::Number(Value::Int(value))
}

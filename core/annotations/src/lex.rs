//! Words, numbers and signs: of directive lines and of the C around them.
//!
//! One walk over a file finds its comments, takes the directive lines out of them and cuts
//! everything into [`Piece`]s, in the order of the text.

use crate::expr::Value;
use crate::place::{Diagnostic, Place, enough};

/// The word that makes a comment a directive.
pub const MARK: &str = "PEVPM";

/// What a token is.
#[derive(Debug, Clone, PartialEq)]
pub enum Tok {
    /// An identifier or keyword.
    Word(String),
    /// A number.
    Number(Value),
    /// A string, without its quotes.
    Text(String),
    /// A sign.
    Sign(&'static str),
    /// Anything else, and numbers beyond their type.
    Other(String),
}

/// A token and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Token {
    /// What it is.
    pub tok: Tok,
    /// Where it stands.
    pub place: Place,
}

/// A piece of a file.
#[derive(Debug, Clone, PartialEq)]
pub enum Piece {
    /// A directive line: what follows the mark, and where the mark (in a plain file: the line)
    /// begins.
    Line(Vec<Token>, Place),
    /// A token of C.
    C(Token),
    /// `#define NAME tokens`, without arguments.
    Define(String, Vec<Token>, Place),
}

/// Longest first, so that the first that fits is the one.
const SIGNS: [&str; 47] = [
    "...", "<<=", ">>=", "..", "->", "++", "--", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "+=", "-=", "*=",
    "/=", "%=", "&=", "|=", "^=", "##", "::", "{", "}", "(", ")", "[", "]", ";", ",", "?", ":", "=", "<", ">", "+",
    "-", "*", "/", "%", "&", "|", "^", "!",
];
const MORE_SIGNS: [&str; 4] = ["~", ".", "#", "@"];

/// Words and signs of all files together at most: a byte of text may take a hundred of memory.
pub const MAX_TOKENS: usize = 2_000_000;
/// Directive lines of all files together at most, each becoming a statement.
pub const MAX_LINES: usize = 200_000;

/// What is left of the room for all files.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    tokens: usize,
    lines: usize,
}

impl Default for Room {
    fn default() -> Self {
        Self { tokens: MAX_TOKENS, lines: MAX_LINES }
    }
}

impl Room {
    /// Whether a file did not fit, which has been told.
    pub const fn is_used_up(self) -> bool {
        self.tokens == 0 || self.lines == 0
    }
}

/// Cuts a file into pieces: as a source, or, if no comment of it is a directive, as a plain file.
/// What does not fit into the room is an error.
pub fn pieces(text: &str, file: u32, left: &mut Room, found: &mut Vec<Diagnostic>) -> Vec<Piece> {
    // A mark of byte order is no character of the text.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut errors = Vec::new();
    let mut lexer = Lexer::new(text, file, *left);
    let pieces = lexer.source(&mut errors);
    if pieces.iter().any(|piece| matches!(piece, Piece::Line(..))) {
        found.append(&mut errors);
        lexer.leave(left, found);
        return pieces;
    }
    drop(pieces);
    let mut lexer = Lexer::new(text, file, *left);
    let pieces = lexer.plain(found);
    lexer.leave(left, found);
    pieces
}

struct Lexer<'a> {
    rest: &'a str,
    file: u32,
    line: u32,
    column: u32,
    room: Room,
}

impl<'a> Lexer<'a> {
    const fn new(text: &'a str, file: u32, room: Room) -> Self {
        Self { rest: text, file, line: 1, column: 1, room }
    }

    /// Gives back the room that is left; that there is none is told.
    fn leave(&self, left: &mut Room, found: &mut Vec<Diagnostic>) {
        *left = self.room;
        if left.is_used_up() {
            let said =
                format!("more than {MAX_TOKENS} words and signs, or {MAX_LINES} lines of directives, in all files");
            found.push(Diagnostic::error("too-large", Place { length: 1, ..self.place() }, said));
        }
    }

    /// Takes up the room of what was read.
    fn takes(&mut self, tokens: usize, lines: usize) {
        self.room.tokens = self.room.tokens.saturating_sub(tokens);
        self.room.lines = self.room.lines.saturating_sub(lines);
    }

    const fn place(&self) -> Place {
        Place { file: self.file, line: self.line, column: self.column, length: 0 }
    }

    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        let c = chars.next()?;
        self.rest = chars.as_str();
        if c == '\n' {
            self.line = self.line.saturating_add(1);
            self.column = 1;
        } else {
            self.column = self.column.saturating_add(1);
        }
        Some(c)
    }

    /// Takes `n` bytes that hold no end of line.
    fn take(&mut self, n: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(n);
        self.rest = rest;
        self.column = self.column.saturating_add(u32::try_from(taken.chars().count()).unwrap_or(u32::MAX));
        taken
    }

    fn take_while(&mut self, holds: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| c == '\n' || !holds(c)).unwrap_or(self.rest.len());
        self.take(end)
    }

    fn source(&mut self, found: &mut Vec<Diagnostic>) -> Vec<Piece> {
        let mut pieces = Vec::new();
        while let Some(c) = self.peek()
            && !self.room.is_used_up()
        {
            let before = pieces.len();
            if c.is_whitespace() || c == '\\' {
                self.next();
            } else if self.rest.starts_with("//") {
                self.take(2);
                let end = self.rest.find('\n').unwrap_or(self.rest.len());
                let comment = self.take(end);
                self.comment_line(comment, end, &mut pieces, found);
            } else if self.rest.starts_with("/*") {
                self.take(2);
                self.block_comment(&mut pieces, found);
            } else if c == '#' {
                self.preprocessor(&mut pieces);
            } else if let Some(token) = self.token() {
                pieces.push(Piece::C(token));
            }
            for piece in &pieces[before..] {
                self.takes_piece(piece);
            }
        }
        pieces
    }

    fn takes_piece(&mut self, piece: &Piece) {
        match piece {
            Piece::Line(tokens, _) => self.takes(tokens.len(), 1),
            Piece::C(_) => self.takes(1, 0),
            Piece::Define(_, tokens, _) => self.takes(tokens.len() + 1, 0),
        }
    }

    /// A line of a comment that was just taken: a directive if its first word is the mark.
    fn comment_line(&self, comment: &'a str, bytes: usize, pieces: &mut Vec<Piece>, found: &mut Vec<Diagnostic>) {
        debug_assert_eq!(comment.len(), bytes);
        let columns = u32::try_from(comment.chars().count()).unwrap_or(u32::MAX);
        let column = self.column.saturating_sub(columns);
        let inner = Lexer { rest: comment, file: self.file, line: self.line, column, room: self.room };
        if let Some(line) = inner.marked(found) {
            pieces.push(line);
        }
    }

    fn block_comment(&mut self, pieces: &mut Vec<Piece>, found: &mut Vec<Diagnostic>) {
        let begin = self.place();
        loop {
            let line_end = self.rest.find('\n').unwrap_or(self.rest.len());
            let close = self.rest[..line_end].find("*/");
            let text = self.take(close.unwrap_or(line_end));
            // Within a block, stars decorate.
            let stars = text.len() - text.trim_start_matches(|c: char| c.is_whitespace() || c == '*').len();
            let column = self.column.saturating_sub(u32::try_from(text.chars().count()).unwrap_or(u32::MAX));
            let skipped = u32::try_from(text[..stars].chars().count()).unwrap_or(0);
            let inner = Lexer {
                rest: &text[stars..],
                file: self.file,
                line: self.line,
                column: column.saturating_add(skipped),
                room: self.room,
            };
            if let Some(line) = inner.marked(found) {
                pieces.push(line);
            }
            if close.is_some() {
                self.take(2);
                return;
            }
            if self.next().is_none() {
                found.push(
                    Diagnostic::error("open-comment", begin, "this comment does not end").with_help("close it with */"),
                );
                return;
            }
        }
    }

    /// The directive line, if the text begins with the mark.
    fn marked(mut self, found: &mut Vec<Diagnostic>) -> Option<Piece> {
        self.take_while(char::is_whitespace);
        let mut place = self.place();
        if self.take_while(is_word) != MARK {
            return None;
        }
        place.length = 5;
        let tokens = self.line_tokens(found);
        Some(Piece::Line(tokens, place))
    }

    /// The tokens up to the end of the text.
    fn line_tokens(mut self, found: &mut Vec<Diagnostic>) -> Vec<Token> {
        let mut tokens = Vec::new();
        while let Some(c) = self.peek()
            && tokens.len() < self.room.tokens
        {
            if c.is_whitespace() {
                self.next();
            } else if self.rest.starts_with("/*") {
                let begin = self.place();
                if let Some(end) = self.rest.find("*/") {
                    self.take(end + 2);
                } else {
                    found.push(Diagnostic::error("open-comment", begin, "this comment does not end on its line"));
                    return tokens;
                }
            } else if self.rest.starts_with("//") {
                return tokens;
            } else if let Some(token) = self.token() {
                if let Tok::Other(text) = &token.tok
                    && !enough(found)
                {
                    let what = if text.starts_with(|c: char| c.is_ascii_digit()) {
                        format!("`{text}` is no number, or too large; a unit of time or size may follow a number")
                    } else {
                        format!("`{text}` means nothing here")
                    };
                    let fault = Diagnostic::error("bad-token", token.place, what);
                    let unit = text.starts_with(|c: char| c.is_ascii_digit())
                        && text.ends_with(|c: char| c.is_ascii_alphabetic());
                    let help = || format!("a unit may follow a number: {}", UNITS.join(", "));
                    found.push(if unit { fault.with_help(help()) } else { fault });
                }
                tokens.push(token);
            }
        }
        tokens
    }

    fn plain(&mut self, found: &mut Vec<Diagnostic>) -> Vec<Piece> {
        let mut pieces = Vec::new();
        while !self.rest.is_empty() && !self.room.is_used_up() {
            let line = self.line;
            let end = self.rest.find('\n').unwrap_or(self.rest.len());
            let text = self.take(end);
            self.next();
            let mut inner = Lexer { rest: text.trim_end(), file: self.file, line, column: 1, room: self.room };
            inner.take_while(char::is_whitespace);
            let commented = inner.rest.starts_with("//");
            if commented {
                inner.take(2);
                inner.take_while(char::is_whitespace);
            }
            let marked = inner.rest.strip_prefix(MARK).is_some_and(|rest| !rest.starts_with(is_word));
            if inner.rest.is_empty() || inner.rest.starts_with('#') || (commented && !marked) {
                continue;
            }
            let mut place = inner.place();
            if marked {
                place.length = 5;
                inner.take(MARK.len());
            }
            let tokens = inner.line_tokens(found);
            if !tokens.is_empty() {
                let piece = Piece::Line(tokens, place);
                self.takes_piece(&piece);
                pieces.push(piece);
            }
        }
        pieces
    }

    /// `#define`s of names; all other lines of the preprocessor are passed over, with their
    /// continuations.
    fn preprocessor(&mut self, pieces: &mut Vec<Piece>) {
        let place = self.place();
        self.take(1);
        self.take_while(char::is_whitespace);
        let word = self.take_while(is_word);
        self.take_while(char::is_whitespace);
        let name = self.take_while(is_word).to_owned();
        let wanted = word == "define" && !name.is_empty() && !self.rest.starts_with('(');
        let mut tokens = Vec::new();
        while let Some(c) = self.peek()
            && tokens.len() < self.room.tokens
        {
            if c == '\n' || self.rest.starts_with("//") {
                break;
            } else if self.rest.starts_with("\\\n") || self.rest.starts_with("\\\r\n") {
                while self.next() != Some('\n') {}
            } else if self.rest.starts_with("/*") {
                // Left to the walk, which looks for directives in it.
                break;
            } else if c.is_whitespace() {
                self.next();
            } else if let Some(token) = self.token() {
                tokens.push(token);
            }
        }
        if wanted {
            pieces.push(Piece::Define(name, tokens, place));
        }
    }

    /// The next token; the next character is no white space.
    fn token(&mut self) -> Option<Token> {
        let mut place = self.place();
        let before = self.rest.len();
        let text = self.rest;
        let c = self.peek()?;
        let tok = if c.is_ascii_digit() || (c == '.' && self.rest[1..].starts_with(|d: char| d.is_ascii_digit())) {
            self.number()
        } else if is_word(c) {
            Tok::Word(self.take_while(is_word).to_owned())
        } else if c == '"' || c == '\'' {
            self.quoted(c)
        } else if let Some(sign) = SIGNS.iter().chain(&MORE_SIGNS).find(|sign| self.rest.starts_with(**sign)) {
            self.take(sign.len());
            Tok::Sign(sign)
        } else {
            self.next();
            Tok::Other(c.to_string())
        };
        let taken = text.get(..before - self.rest.len()).unwrap_or_default();
        place.length = u32::try_from(taken.chars().count()).unwrap_or(1);
        Some(Token { tok, place })
    }

    fn quoted(&mut self, quote: char) -> Tok {
        self.take(1);
        let mut text = String::new();
        loop {
            match self.peek() {
                None | Some('\n') => return Tok::Other(format!("{quote}{text}")),
                Some('\\') => {
                    self.next();
                    // An escaped end of line continues the string; other escapes are kept as they
                    // are.
                    if let Some(c) = self.next().filter(|c| *c != '\n') {
                        text.push('\\');
                        text.push(c);
                    }
                }
                Some(c) => {
                    self.next();
                    if c == quote {
                        break;
                    }
                    text.push(c);
                }
            }
        }
        let mut chars = text.chars();
        match (quote, chars.next(), chars.next()) {
            ('"', ..) => Tok::Text(text),
            (_, Some(c), None) if c.is_ascii() => Tok::Number(Value::Int(i64::from(u32::from(c)))),
            _ => Tok::Other(format!("'{text}'")),
        }
    }

    /// A number as C writes it; `8..10` is 8 and a range.
    fn number(&mut self) -> Tok {
        let text = self.rest;
        let bytes = text.as_bytes();
        let at = |n: usize| bytes.get(n).copied().unwrap_or(0);
        let hex = at(0) == b'0' && matches!(at(1), b'x' | b'X');
        let mut end = 0;
        let mut float = false;
        loop {
            let c = at(end);
            let exponent = !hex && matches!(c, b'e' | b'E');
            if c == b'.' && !hex && at(end + 1) != b'.' {
                float = true;
            } else if exponent
                && (at(end + 1).is_ascii_digit()
                    || (matches!(at(end + 1), b'+' | b'-') && at(end + 2).is_ascii_digit()))
            {
                float = true;
                end += 1;
            } else if !(c.is_ascii_alphanumeric() || c == b'_') {
                break;
            }
            end += 1;
        }
        let whole = &text[..end];
        if let Some(value) = value_of(whole, hex, float) {
            self.take(end);
            return Tok::Number(value);
        }
        // `5us`: the number; its unit is the next word.
        let parted = UNITS.iter().filter_map(|unit| whole.strip_suffix(unit));
        for number in parted {
            if let Some(value) = value_of(number, hex, float) {
                self.take(number.len());
                return Tok::Number(value);
            }
        }
        Tok::Other(self.take(end).to_owned())
    }
}

/// Units that may follow a number without a blank.
const UNITS: [&str; 12] = ["ns", "us", "ms", "s", "B", "KB", "kB", "MB", "GB", "KiB", "MiB", "GiB"];

fn value_of(text: &str, hex: bool, float: bool) -> Option<Value> {
    if hex {
        let digits = text[2..].trim_end_matches(['u', 'U', 'l', 'L']);
        return i64::from_str_radix(digits, 16).ok().map(Value::Int);
    }
    if float {
        let digits = text.trim_end_matches(['f', 'F', 'l', 'L']);
        return digits.parse().ok().filter(|v: &f64| v.is_finite()).map(Value::Float);
    }
    let digits = text.trim_end_matches(['u', 'U', 'l', 'L']);
    let octal = digits.len() > 1 && digits.starts_with('0');
    i64::from_str_radix(digits, if octal { 8 } else { 10 }).ok().map(Value::Int)
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_ascii_alphanumeric()
}

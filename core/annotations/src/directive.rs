//! Reads one directive line: heads, their attributes, braces.

use crate::exparse::{Cursor, Fault, expression, suggestion, whole};
use crate::lex::{Tok, Token};
use crate::place::{Diagnostic, Place, enough};
use crate::syntax::{
    Attr, BindEx, CondEx, Event, Ex, Head, HeadKind, LawEx, LawName, NamedAttr, RankList, RequestEx, TimeEx,
};

/// Heads by name, with the attributes each may have.
const HEADS: [(&str, HeadKind, &[&str]); 15] = [
    ("Processor", HeadKind::Processor, &["description", "timing basis"]),
    ("Network", HeadKind::Network, &["description", "link"]),
    ("Default", HeadKind::Default, &["processor", "numprocs", "speed", "speed_", "network"]),
    ("Serial", HeadKind::Serial, &["time", "unit"]),
    (
        "Message",
        HeadKind::Message,
        &[
            "type", "size", "from", "to", "req", "stat", "req/stat", "tag", "comm", "root", "bind", "carry",
            "recvsize", "recvtag",
        ],
    ),
    ("Loop", HeadKind::Loop, &["iterations", "while", "index"]),
    ("Runon", HeadKind::Runon, &["c"]),
    ("Condition", HeadKind::Condition, &["c"]),
    ("Set", HeadKind::Set, &[]),
    ("Parameter", HeadKind::Parameter, &[]),
    ("Stream", HeadKind::Stream, &[]),
    ("Take", HeadKind::Take, &[]),
    ("Subroutine", HeadKind::Subroutine, &[]),
    ("Call", HeadKind::Call, &[]),
    ("Skip", HeadKind::Skip, &[]),
];

/// The name of a head and its attributes.
fn entry(kind: HeadKind) -> (&'static str, &'static [&'static str]) {
    HEADS.iter().find(|(_, k, _)| *k == kind).map_or(("directive", &[]), |(name, _, attrs)| (name, attrs))
}

/// What a head is called.
pub fn head_name(kind: HeadKind) -> &'static str {
    entry(kind).0
}

/// Reads lines one after the other, so that `&` knows what it continues.
#[derive(Debug, Default)]
pub struct Reader {
    /// The head that a `&` continues, and where it stands among the events.
    last: Option<(HeadKind, usize)>,
    /// Heads whose bodies are open or were just closed: a `&` behind a body continues the one it
    /// belongs to.
    open: Vec<(HeadKind, usize)>,
    closed: Option<(HeadKind, usize)>,
}

impl Reader {
    /// Appends what a line says to the events; what is wrong with it goes to `found`.
    pub fn line(&mut self, tokens: &[Token], begin: Place, events: &mut Vec<Event>, found: &mut Vec<Diagnostic>) {
        let mut cursor = Cursor::new(tokens, begin);
        while !cursor.is_done() && !enough(found) {
            if let Err(fault) = self.part(&mut cursor, events) {
                // A bad token has been told already.
                if !matches!(cursor.peek(), Some(Tok::Other(_))) {
                    found.push(*fault);
                }
                cursor.skip_all();
            }
        }
    }

    fn part(&mut self, cursor: &mut Cursor, events: &mut Vec<Event>) -> Result<(), Fault> {
        let place = cursor.place();
        if cursor.sign("{") {
            self.open.push(self.last.take().unwrap_or((HeadKind::Skip, usize::MAX)));
            self.closed = None;
            events.push(Event::Open(place));
            return Ok(());
        }
        if cursor.sign("}") {
            self.last = None;
            self.closed = self.open.pop();
            events.push(Event::Close(place));
            return Ok(());
        }
        if cursor.sign("&") {
            return self.continuation(cursor, place, events);
        }
        let head = head(cursor)?;
        self.closed = None;
        self.last = Some((head.kind, events.len()));
        events.push(Event::Head(Box::new(head)));
        let Some(Event::Head(head)) = events.last_mut() else { return Ok(()) };
        let mut attrs = Vec::new();
        let read = attributes(cursor, head.kind, &mut attrs);
        head.place = cursor.since(place);
        let added = add(head, attrs);
        head.broken = read.is_err() || added.is_err();
        read.and(added)
    }

    fn continuation(&mut self, cursor: &mut Cursor, place: Place, events: &mut Vec<Event>) -> Result<(), Fault> {
        if let Some((kind, at)) = self.last {
            let mut attrs = Vec::new();
            let read = attributes(cursor, kind, &mut attrs);
            let added = match events.get_mut(at) {
                Some(Event::Head(head)) => {
                    let added = add(head, attrs);
                    head.broken |= read.is_err() || added.is_err();
                    added
                }
                // The head is conditions that continue behind a body.
                Some(Event::More(more, _)) => {
                    more.extend(attrs);
                    Ok(())
                }
                _ => Ok(()),
            };
            return read.and(added);
        }
        if let Some((kind @ (HeadKind::Runon | HeadKind::Condition), at)) = self.closed.take() {
            let mut attrs = Vec::new();
            let read = attributes(cursor, kind, &mut attrs);
            if let (true, Some(Event::Head(head))) = (read.is_err(), events.get_mut(at)) {
                head.broken = true;
            }
            self.last = Some((kind, events.len()));
            events.push(Event::More(attrs, place));
            return read;
        }
        Err(Box::new(
            Diagnostic::error("nothing-to-continue", place, "`&` continues nothing")
                .with_help("it stands behind a directive, or behind a body of Runon or Condition"),
        ))
    }
}

/// Adds attributes; one that is there already is an error, but for those that repeat.
fn add(head: &mut Head, attrs: Vec<NamedAttr>) -> Result<(), Fault> {
    for attr in attrs {
        let twice = head.attrs.iter().find(|old| old.name == attr.name && old.number == attr.number);
        if let Some(old) = twice.filter(|_| attr.name != "link") {
            let shown = if matches!(attr.name, "c" | "speed_") {
                format!("{}{}", attr.name, attr.number)
            } else {
                attr.name.into()
            };
            return Err(Box::new(
                Diagnostic::error(
                    "double-attribute",
                    attr.place,
                    format!("`{shown}` is given twice in one {}", head_name(head.kind)),
                )
                .with_place(old.place, "first here"),
            ));
        }
        head.attrs.push(attr);
    }
    Ok(())
}

/// A head up to its attributes.
fn head(cursor: &mut Cursor) -> Result<Head, Fault> {
    let place = cursor.place();
    let Some(word) = cursor.word() else { return Err(cursor.expected("a directive, `&`, `{` or `}`")) };
    let Some((_, kind, _)) = HEADS.iter().find(|(name, ..)| *name == word) else {
        let known: Vec<&str> = HEADS.iter().map(|(name, ..)| *name).collect();
        return Err(Box::new(
            Diagnostic::error("unknown-directive", place, format!("`{word}` is no directive"))
                .with_help(suggestion(word, &known).unwrap_or_else(|| format!("there are {}", known.join(", ")))),
        ));
    };
    let mut head = Head {
        kind: *kind,
        place,
        name: None,
        value: None,
        file: None,
        formals: Vec::new(),
        actuals: Vec::new(),
        attrs: Vec::new(),
        broken: false,
    };
    operands(cursor, &mut head)?;
    Ok(head)
}

/// What stands between a head's name and its attributes.
fn operands(cursor: &mut Cursor, head: &mut Head) -> Result<(), Fault> {
    match head.kind {
        HeadKind::Serial => {
            if matches!(cursor.peek(), Some(Tok::Word(word)) if word == "on") {
                cursor.skip();
                let place = cursor.place();
                head.name = Some((name(cursor, "the name of a processor")?, place));
            }
        }
        HeadKind::Set => {
            let place = cursor.place();
            head.name = Some((word(cursor, "the name of a variable")?, place));
            cursor.need("=")?;
            head.value = Some(expression(cursor)?);
        }
        HeadKind::Parameter => {
            let place = cursor.place();
            head.name = Some((word(cursor, "the name of a parameter")?, place));
            if cursor.sign("=") {
                head.value = Some(expression(cursor)?);
            }
        }
        HeadKind::Stream => {
            let place = cursor.place();
            head.name = Some((word(cursor, "the name of a stream")?, place));
            cursor.need("=")?;
            head.file = Some(text(cursor, "the name of its file, in quotes")?);
        }
        HeadKind::Take => {
            let place = cursor.place();
            head.name = Some((word(cursor, "the name of a stream")?, place));
        }
        HeadKind::Subroutine => {
            let place = cursor.place();
            head.name = Some((word(cursor, "the name of a subroutine")?, place));
            head.formals = formals(cursor)?;
        }
        HeadKind::Call => {
            let place = cursor.place();
            head.name = Some((word(cursor, "the name of a subroutine")?, place));
            head.actuals = actuals(cursor)?;
        }
        _ => {}
    }
    Ok(())
}

fn formals(cursor: &mut Cursor) -> Result<Vec<String>, Fault> {
    let mut all = Vec::new();
    if !cursor.sign("(") || cursor.sign(")") {
        return Ok(all);
    }
    loop {
        all.push(word(cursor, "the name of an argument")?);
        if !cursor.sign(",") {
            break;
        }
    }
    cursor.need(")")?;
    Ok(all)
}

fn actuals(cursor: &mut Cursor) -> Result<Vec<Option<Ex>>, Fault> {
    let mut all = Vec::new();
    if !cursor.sign("(") || cursor.sign(")") {
        return Ok(all);
    }
    loop {
        all.push(Some(expression(cursor)?));
        if !cursor.sign(",") {
            break;
        }
    }
    cursor.need(")")?;
    Ok(all)
}

fn word(cursor: &mut Cursor, what: &str) -> Result<String, Fault> {
    match cursor.peek() {
        Some(Tok::Word(word)) => {
            cursor.skip();
            Ok(word.clone())
        }
        _ => Err(cursor.expected(what)),
    }
}

fn text(cursor: &mut Cursor, what: &str) -> Result<String, Fault> {
    match cursor.peek() {
        Some(Tok::Text(text)) => {
            cursor.skip();
            Ok(text.clone())
        }
        _ => Err(cursor.expected(what)),
    }
}

/// An identifier or a string; names of machines may hold `-` and `.` in between without blanks.
fn name(cursor: &mut Cursor, what: &str) -> Result<String, Fault> {
    if let Some(Tok::Text(text)) = cursor.peek() {
        cursor.skip();
        return Ok(text.clone());
    }
    let mut name = String::new();
    let mut end = None;
    loop {
        let place = cursor.place();
        if end.is_some_and(|end| end != (place.line, place.column)) {
            break;
        }
        match cursor.peek() {
            Some(Tok::Word(word)) => name.push_str(word),
            Some(Tok::Number(value)) => name.push_str(&value.to_string()),
            Some(Tok::Sign(sign @ ("-" | "." | "/" | ".." | ":"))) => name.push_str(sign),
            _ => break,
        }
        end = Some((place.line, place.column.saturating_add(place.length)));
        cursor.skip();
    }
    if name.is_empty() { Err(cursor.expected(what)) } else { Ok(name) }
}

/// All attributes up to the end of the line, a brace, or a `&` that begins the next. Those before
/// one that cannot be read stay.
fn attributes(cursor: &mut Cursor, kind: HeadKind, all: &mut Vec<NamedAttr>) -> Result<(), Fault> {
    while !cursor.is_done() && !cursor.is_sign("{") && !cursor.is_sign("}") && !cursor.is_sign("&") {
        all.push(attribute(cursor, kind)?);
    }
    Ok(())
}

/// The attribute's name as the table has it, and its number.
fn attribute_name(cursor: &mut Cursor, kind: HeadKind) -> Result<(&'static str, u32), Fault> {
    let place = cursor.place();
    let Some(first) = cursor.word() else { return Err(cursor.expected("an attribute")) };
    let mut written = first.to_owned();
    if first == "timing" {
        written.push(' ');
        written.push_str(cursor.word().unwrap_or_default());
    } else if first == "req" && cursor.is_sign("/") {
        cursor.skip();
        written.push('/');
        written.push_str(cursor.word().unwrap_or_default());
    }
    let (head, known) = entry(kind);
    if let Some(name) = known.iter().find(|name| **name == written && !matches!(**name, "c" | "speed_")) {
        return Ok((name, 0));
    }
    for stem in known.iter().filter(|name| matches!(**name, "c" | "speed_")) {
        if let Some(number) = written.strip_prefix(stem).and_then(|digits| digits.parse().ok()) {
            return Ok((stem, number));
        }
    }
    let place = cursor.since(place);
    let fault = Diagnostic::error("unknown-attribute", place, format!("{head} has no attribute `{written}`"));
    let shown: Vec<&str> = known
        .iter()
        .map(|name| {
            if *name == "c" {
                "c1"
            } else if *name == "speed_" {
                "speed_0"
            } else {
                name
            }
        })
        .collect();
    let help = suggestion(&written, &shown).unwrap_or_else(|| {
        if shown.is_empty() { format!("{head} has none") } else { format!("it has {}", shown.join(", ")) }
    });
    Err(Box::new(fault.with_help(help)))
}

fn attribute(cursor: &mut Cursor, kind: HeadKind) -> Result<NamedAttr, Fault> {
    let place = cursor.place();
    let (attr, number) = attribute_name(cursor, kind)?;
    if attr == "link" {
        let link = name(cursor, "the name of the link")?;
        cursor.need("=")?;
        let from = name(cursor, "the node it comes from")?;
        let to = name(cursor, "the node it goes to")?;
        let file = name(cursor, "the file with its distributions")?;
        let value = Attr::Link([link, from, to, file]);
        return Ok(NamedAttr { name: attr, number, value, place: cursor.since(place) });
    }
    let value = if attr == "bind" && matches!(cursor.peek(), Some(Tok::Word(_))) {
        let place = cursor.place();
        let variable = word(cursor, "a variable")?;
        cursor.need("=")?;
        let what = word(cursor, "what it is bound to")?;
        Attr::Binds(vec![BindEx { variable, what, place: cursor.since(place) }])
    } else {
        cursor.need("=")?;
        value(cursor, attr, kind)?
    };
    Ok(NamedAttr { name: attr, number, value, place: cursor.since(place) })
}

fn value(cursor: &mut Cursor, attr: &'static str, kind: HeadKind) -> Result<Attr, Fault> {
    Ok(match attr {
        "type" => Attr::Type(word(cursor, "a function of MPI, such as MPI_Send")?),
        "from" | "to" => Attr::Ranks(ranks(cursor)?),
        "req" | "req/stat" => Attr::Requests(requests(cursor)?),
        "bind" => Attr::Binds(binds(cursor)?),
        "carry" => Attr::Names(names(cursor)?),
        "stat" | "index" => Attr::Name(word(cursor, "a name")?),
        "description" | "processor" | "network" => Attr::Name(name(cursor, "a name")?),
        "time" => Attr::Time(time(cursor)?),
        "unit" => {
            let place = cursor.place();
            let unit = word(cursor, "ns, us, ms or s")?;
            Attr::Unit(unit_ns(&unit).ok_or_else(|| bad_unit(&unit, place))?)
        }
        "c" => Attr::Cond(condition(cursor, kind)?),
        "tag" | "recvtag" => match cursor.peek() {
            Some(Tok::Word(word)) if is_any(word) => {
                cursor.skip();
                Attr::Any
            }
            _ => Attr::Value(expression(cursor)?),
        },
        "size" | "recvsize" => Attr::Value(size(cursor)?),
        _ => Attr::Value(expression(cursor)?),
    })
}

fn is_any(word: &str) -> bool {
    matches!(word, "ANY" | "MPI_ANY_SOURCE" | "MPI_ANY_TAG")
}

fn ranks(cursor: &mut Cursor) -> Result<RankList, Fault> {
    let place = cursor.place();
    if matches!(cursor.peek(), Some(Tok::Word(word)) if is_any(word)) {
        cursor.skip();
        return Ok(RankList { items: Vec::new(), any: true, place });
    }
    let mut items = Vec::new();
    loop {
        let low = expression(cursor)?;
        let high = if cursor.sign("..") { Some(expression(cursor)?) } else { None };
        items.push((low, high));
        if !cursor.sign(",") {
            return Ok(RankList { items, any: false, place: cursor.since(place) });
        }
    }
}

fn condition(cursor: &mut Cursor, kind: HeadKind) -> Result<CondEx, Fault> {
    if kind == HeadKind::Condition {
        if cursor.is_done() {
            return Err(cursor.expected("a weight"));
        }
        return Ok(CondEx::Value(expression(cursor)?));
    }
    if matches!(cursor.peek(), Some(Tok::Word(word)) if word == "else") {
        cursor.skip();
        return Ok(CondEx::Else);
    }
    let mut list = ranks(cursor)?;
    match list.items.as_mut_slice() {
        [(_, None)] => Ok(list.items.pop().map_or(CondEx::Else, |(ex, _)| CondEx::Value(ex))),
        _ => Ok(CondEx::Ranks(list)),
    }
}

fn requests(cursor: &mut Cursor) -> Result<Vec<RequestEx>, Fault> {
    let mut all = Vec::new();
    loop {
        let name = word(cursor, "the name of a request")?;
        let index = if cursor.sign("[") {
            let index = expression(cursor)?;
            cursor.need("]")?;
            Some(index)
        } else {
            None
        };
        all.push(RequestEx { name, index });
        if !cursor.sign(",") {
            return Ok(all);
        }
    }
}

fn binds(cursor: &mut Cursor) -> Result<Vec<BindEx>, Fault> {
    let all = names(cursor)?;
    Ok(all.into_iter().map(|(name, place)| BindEx { variable: name.clone(), what: name, place }).collect())
}

fn names(cursor: &mut Cursor) -> Result<Vec<(String, Place)>, Fault> {
    let mut all = Vec::new();
    loop {
        let place = cursor.place();
        all.push((word(cursor, "a name")?, place));
        if !cursor.sign(",") {
            return Ok(all);
        }
    }
}

/// A unit that follows a value: a word that is not the next attribute.
fn trailing_unit<'a>(cursor: &Cursor<'a>) -> Option<&'a str> {
    match (cursor.peek(), cursor.peek_at(1)) {
        (Some(Tok::Word(_)), Some(Tok::Sign("="))) => None,
        (Some(Tok::Word(word)), _) if word != "bind" && word != "timing" && word != "unit" && word != "req" => {
            Some(word)
        }
        _ => None,
    }
}

fn unit_ns(unit: &str) -> Option<f64> {
    Some(match unit {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return None,
    })
}

fn bad_unit(unit: &str, place: Place) -> Fault {
    Box::new(
        Diagnostic::error("unit", place, format!("`{unit}` is no unit of time"))
            .with_help("there are ns, us, ms and s"),
    )
}

/// Laws by name, with how many arguments each has.
const LAWS: [(&str, LawName, usize); 7] = [
    ("uniform", LawName::Uniform, 2),
    ("normal", LawName::Normal, 2),
    ("exponential", LawName::Exponential, 1),
    ("lognormal", LawName::Lognormal, 2),
    ("gamma", LawName::Gamma, 2),
    ("weibull", LawName::Weibull, 2),
    ("pearson5", LawName::Pearson5, 3),
];

fn time(cursor: &mut Cursor) -> Result<TimeEx, Fault> {
    let place = cursor.place();
    let law = law(cursor)?;
    let unit_place = cursor.place();
    let unit = match trailing_unit(cursor) {
        Some(unit) => {
            cursor.skip();
            Some(unit_ns(unit).ok_or_else(|| bad_unit(unit, unit_place))?)
        }
        None => None,
    };
    Ok(TimeEx { law, unit_ns: unit, place: cursor.since(place) })
}

fn law(cursor: &mut Cursor) -> Result<LawEx, Fault> {
    let place = cursor.place();
    let (Some(Tok::Word(word)), Some(Tok::Sign("("))) = (cursor.peek(), cursor.peek_at(1)) else {
        return Ok(LawEx::Fixed(expression(cursor)?));
    };
    if word == "draw" {
        cursor.skip();
        cursor.skip();
        let stream = self::word(cursor, "the name of a stream")?;
        cursor.need(".")?;
        let column = self::word(cursor, "the name of its column")?;
        cursor.need(")")?;
        return Ok(LawEx::Draw(stream, column, cursor.since(place)));
    }
    let Some((_, law, count)) = LAWS.iter().find(|(name, ..)| name == word) else {
        return Ok(LawEx::Fixed(expression(cursor)?));
    };
    cursor.skip();
    let args = actuals(cursor)?;
    if args.len() != *count {
        let said = format!("`{word}` takes {count} argument{}, not {}", if *count == 1 { "" } else { "s" }, args.len());
        return Err(Box::new(Diagnostic::error("arguments", cursor.since(place), said)));
    }
    Ok(LawEx::Named(*law, args.into_iter().flatten().collect()))
}

fn size(cursor: &mut Cursor) -> Result<Ex, Fault> {
    let ex = expression(cursor)?;
    let place = cursor.place();
    let Some(unit) = trailing_unit(cursor) else { return Ok(ex) };
    let factor = match unit {
        "B" => 1,
        "KB" | "kB" => 1000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => {
            return Err(Box::new(
                Diagnostic::error("unit", place, format!("`{unit}` is no unit of size"))
                    .with_help("there are B, KB, MB, GB, KiB, MiB and GiB"),
            ));
        }
    };
    cursor.skip();
    Ok(Ex::Binary(crate::expr::Binary::Multiply, Box::new((ex, crate::exparse::number(factor)))))
}

/// The arguments of a call in C, each if it is an expression of the language.
pub fn c_arguments(tokens: &[Token], place: Place) -> Vec<Option<Ex>> {
    let mut all = Vec::new();
    let mut depth = 0_usize;
    let mut begin = 0;
    for (at, token) in tokens.iter().enumerate() {
        match &token.tok {
            Tok::Sign("(" | "[" | "{") => depth += 1,
            Tok::Sign(")" | "]" | "}") => depth = depth.saturating_sub(1),
            Tok::Sign(",") if depth == 0 => {
                all.push(whole(&tokens[begin..at], place));
                begin = at + 1;
            }
            _ => {}
        }
    }
    if begin < tokens.len() {
        all.push(whole(&tokens[begin..], place));
    }
    all
}

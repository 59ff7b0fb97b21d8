//! The tree of a file's directives, before names mean anything.

use crate::expr::{Binary, Function, Unary, Value};
use crate::place::Place;

/// An expression over names.
#[derive(Debug, Clone, PartialEq)]
pub enum Ex {
    Number(Value),
    /// A name, with dots for fields: `job.send`.
    Name(String, Place),
    /// `parameter NAME`
    Parameter(String, Place),
    /// `sizeof(type)`: the type's words, and whether it is a pointer.
    SizeOf(Vec<String>, bool, Place),
    Unary(Unary, Box<Ex>),
    Binary(Binary, Box<(Ex, Ex)>),
    Select(Box<(Ex, Ex, Ex)>),
    Call(Function, Vec<Ex>),
}

/// Ranks as written: `1, 2, 8..10`.
#[derive(Debug, Clone, PartialEq)]
pub struct RankList {
    pub items: Vec<(Ex, Option<Ex>)>,
    pub any: bool,
    pub place: Place,
}

impl RankList {
    /// The expression, if it is a single one.
    pub fn single(&self) -> Option<&Ex> {
        match self.items.as_slice() {
            [(ex, None)] if !self.any => Some(ex),
            _ => None,
        }
    }
}

/// The law of a time.
#[derive(Debug, Clone, PartialEq)]
pub enum LawEx {
    Fixed(Ex),
    /// The law's name and arguments, as many as it takes.
    Named(LawName, Vec<Ex>),
    /// `draw(stream.column)`
    Draw(String, String, Place),
}

/// Laws with arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LawName {
    Uniform,
    Normal,
    Exponential,
    Lognormal,
    Gamma,
    Weibull,
    Pearson5,
}

/// A time with the unit that follows it, if any.
#[derive(Debug, Clone, PartialEq)]
pub struct TimeEx {
    pub law: LawEx,
    pub unit_ns: Option<f64>,
    pub place: Place,
}

/// A request as written.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestEx {
    pub name: String,
    pub index: Option<Ex>,
}

/// What `bind` binds: the variable, and what to it.
#[derive(Debug, Clone, PartialEq)]
pub struct BindEx {
    pub variable: String,
    pub what: String,
    pub place: Place,
}

/// A condition of `Runon` or the weight of a `Condition`.
#[derive(Debug, Clone, PartialEq)]
pub enum CondEx {
    Else,
    Ranks(RankList),
    Value(Ex),
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum Attr {
    Type(String),
    /// An expression: size, tag, root, iterations, ...
    Value(Ex),
    /// Any: of tags.
    Any,
    Ranks(RankList),
    Requests(Vec<RequestEx>),
    Binds(Vec<BindEx>),
    Names(Vec<(String, Place)>),
    /// Names: stat, index, description, ...
    Name(String),
    Time(TimeEx),
    Unit(f64),
    Cond(CondEx),
    /// `link a = from to file`: name, from, to, file.
    Link([String; 4]),
}

/// A named attribute.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedAttr {
    /// Its name; `c` for all conditions, `speed_` for all numbered speeds.
    pub name: &'static str,
    /// The number of `c1` or `speed_1`.
    pub number: u32,
    pub value: Attr,
    pub place: Place,
}

/// What a head is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadKind {
    Processor,
    Network,
    Default,
    Serial,
    Message,
    Loop,
    Runon,
    Condition,
    Set,
    Parameter,
    Stream,
    Take,
    Subroutine,
    Call,
    Skip,
}

/// A directive's head with all its attributes.
#[derive(Debug, Clone, PartialEq)]
pub struct Head {
    pub kind: HeadKind,
    pub place: Place,
    /// Of `Serial on`, `Set`, `Parameter`, `Stream`, `Take`, `Subroutine`, `Call`.
    pub name: Option<(String, Place)>,
    /// Of `Set`, `Parameter`.
    pub value: Option<Ex>,
    /// Of `Stream`.
    pub file: Option<String>,
    /// Of `Subroutine`.
    pub formals: Vec<String>,
    /// Of `Call`.
    pub actuals: Vec<Option<Ex>>,
    pub attrs: Vec<NamedAttr>,
    /// A part of it could not be read, which has been told: what seems to be missing may have stood
    /// there.
    pub broken: bool,
}

impl Head {
    /// The attribute of that name.
    pub fn attr(&self, name: &str) -> Option<&NamedAttr> {
        self.attrs.iter().find(|attr| attr.name == name)
    }

    /// The expression of that name.
    pub fn value_of(&self, name: &str) -> Option<&Ex> {
        self.attr(name).and_then(|attr| match &attr.value {
            Attr::Value(ex) => Some(ex),
            _ => None,
        })
    }

    /// The name that is the value of an attribute.
    pub fn name_of(&self, name: &str) -> Option<&str> {
        self.attr(name).and_then(|attr| match &attr.value {
            Attr::Name(text) | Attr::Type(text) => Some(text.as_str()),
            _ => None,
        })
    }
}

/// What happens in a function's text, in its order.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    Head(Box<Head>),
    /// Attributes behind a body: conditions that continue.
    More(Vec<NamedAttr>, Place),
    Open(Place),
    Close(Place),
    /// A call in C of a function that may hold directives, with its arguments as far as they are
    /// expressions.
    CallC(String, Vec<Option<Ex>>, Place),
    /// A call of MPI that communicates.
    Mpi(String, Place),
    /// A loop of C begins, at this depth of C's braces, and where it ends: index of the event
    /// behind it.
    LoopC(Place),
    /// The end of the innermost loop of C that is open.
    LoopCEnd,
}

/// A function: C's, a `Subroutine`, or what stands outside of any.
#[derive(Debug, Clone, PartialEq)]
pub struct FunctionText {
    /// None: outside of any.
    pub name: Option<String>,
    pub formals: Vec<String>,
    pub events: Vec<Event>,
    pub place: Place,
}

/// A statement.
#[derive(Debug, Clone, PartialEq)]
pub struct Stmt {
    pub kind: StmtKind,
    pub place: Place,
}

/// What a statement does.
#[derive(Debug, Clone, PartialEq)]
pub enum StmtKind {
    /// One segment: the directives of its processors.
    Serial(Vec<Head>),
    Message(Box<Head>),
    Loop(Box<Head>, Vec<Stmt>),
    Runon(Vec<(CondEx, Place)>, Vec<Vec<Stmt>>),
    Condition(Vec<(CondEx, Place)>, Vec<Vec<Stmt>>),
    Block(Vec<Stmt>),
    Set(String, Ex),
    Take(String),
    /// A call, and whether a directive says it: else C does.
    Call(String, Vec<Option<Ex>>, bool),
}

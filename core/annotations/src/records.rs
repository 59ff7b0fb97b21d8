//! Variables of the model and their fields, found before anything is resolved.
//!
//! A record has the fields that some expression mentions; what is bound to a record that a message
//! carries has the same.

use std::collections::{BTreeMap, BTreeSet};

use crate::directive::head_name;
use crate::expr::Slot;
use crate::names::Names;
use crate::place::{Diagnostic, Place};
use crate::syntax::{Attr, BindEx, CondEx, Ex, Head, LawEx, RankList, Stmt, StmtKind};

/// What `bind` may name besides what is carried.
pub const RESERVED: [&str; 6] = ["source", "tag", "size", "flag", "index", "outcount"];

/// Names with dots, and names without, that are used.
#[derive(Debug, Default)]
pub struct Records {
    fields: BTreeMap<String, BTreeSet<String>>,
    plain: BTreeSet<String>,
    binds: Vec<BindEx>,
    stats: Vec<String>,
    sets: Vec<(String, Place)>,
    takes: Vec<String>,
    /// Variables that receives bind which complete later.
    later: BTreeSet<String>,
    /// Arguments of calls in C are passed over.
    without_calls: bool,
}

impl Records {
    /// What one expression mentions.
    pub fn of(ex: &Ex) -> Self {
        let mut own = Self::default();
        own.ex(ex);
        own
    }

    /// Whether a name is used, with a dot or without.
    pub fn mentions(&self, name: &str) -> bool {
        self.plain.contains(name) || self.fields.contains_key(name)
    }

    /// The fields of a record that are used.
    pub fn fields(&self, name: &str) -> impl Iterator<Item = &str> {
        self.fields.get(name).into_iter().flatten().map(String::as_str)
    }

    /// Whether the name is used without a dot.
    pub fn is_plain(&self, name: &str) -> bool {
        self.plain.contains(name)
    }

    /// The slots that a wait or test may give a value because a receive that began before binds
    /// them.
    pub fn bound_later(&self, names: &Names) -> BTreeSet<Slot> {
        let fields = |name: &String| self.fields(name).map(|f| format!("{name}.{f}")).collect::<Vec<_>>();
        let all = self.later.iter().flat_map(|name| fields(name).into_iter().chain([name.clone()]));
        all.filter_map(|name| names.known_variable(&name)).collect()
    }

    /// What directives mention, without what the calls of C that stand between them are given.
    pub fn of_directives(body: &[Stmt]) -> Self {
        let mut own = Self { without_calls: true, ..Self::default() };
        own.read(body);
        own
    }

    /// Looks through statements.
    pub fn read(&mut self, all: &[Stmt]) {
        for statement in all {
            match &statement.kind {
                StmtKind::Serial(parts) => parts.iter().for_each(|head| self.head(head)),
                StmtKind::Message(head) => self.head(head),
                StmtKind::Loop(head, body) => {
                    self.head(head);
                    self.read(body);
                }
                StmtKind::Runon(conditions, bodies) | StmtKind::Condition(conditions, bodies) => {
                    conditions.iter().for_each(|(c, _)| self.condition(c));
                    bodies.iter().for_each(|body| self.read(body));
                }
                StmtKind::Block(body) => self.read(body),
                StmtKind::Set(name, ex) => {
                    self.sets.push((name.clone(), statement.place));
                    self.ex(ex);
                }
                StmtKind::Take(name) => self.takes.push(name.clone()),
                StmtKind::Call(_, _, false) if self.without_calls => {}
                StmtKind::Call(_, args, _) => args.iter().flatten().for_each(|ex| self.ex(ex)),
            }
        }
    }

    fn head(&mut self, head: &Head) {
        for attr in &head.attrs {
            match &attr.value {
                Attr::Value(ex) => self.ex(ex),
                Attr::Ranks(list) => self.ranks(list),
                Attr::Requests(list) => list.iter().filter_map(|r| r.index.as_ref()).for_each(|ex| self.ex(ex)),
                Attr::Binds(binds) => {
                    if matches!(head.name_of("type"), Some("MPI_Irecv" | "MPI_Recv_init")) {
                        self.later.extend(binds.iter().map(|bind| bind.variable.clone()));
                    }
                    self.binds.extend(binds.iter().cloned());
                }
                Attr::Time(time) => match &time.law {
                    LawEx::Fixed(ex) => self.ex(ex),
                    LawEx::Named(_, args) => args.iter().for_each(|ex| self.ex(ex)),
                    LawEx::Draw(..) => {}
                },
                Attr::Name(name) if attr.name == "stat" => self.stats.push(name.clone()),
                _ => {}
            }
        }
        if let Some(Attr::Requests(list)) = head.attr("req/stat").map(|attr| &attr.value) {
            self.stats.extend(list.iter().map(|r| r.name.clone()));
        }
    }

    fn condition(&mut self, condition: &CondEx) {
        match condition {
            CondEx::Else => {}
            CondEx::Ranks(list) => self.ranks(list),
            CondEx::Value(ex) => self.ex(ex),
        }
    }

    fn ranks(&mut self, list: &RankList) {
        for (low, high) in &list.items {
            self.ex(low);
            high.iter().for_each(|ex| self.ex(ex));
        }
    }

    fn ex(&mut self, ex: &Ex) {
        match ex {
            Ex::Number(_) | Ex::Parameter(..) | Ex::SizeOf(..) => {}
            Ex::Name(name, _) => match name.split_once('.') {
                Some((record, field)) => {
                    self.fields.entry(record.to_owned()).or_default().insert(field.to_owned());
                }
                None => {
                    self.plain.insert(name.clone());
                }
            },
            Ex::Unary(_, a) => self.ex(a),
            Ex::Binary(_, ab) => {
                self.ex(&ab.0);
                self.ex(&ab.1);
            }
            Ex::Select(abc) => {
                self.ex(&abc.0);
                self.ex(&abc.1);
                self.ex(&abc.2);
            }
            Ex::Call(_, args) => args.iter().for_each(|a| self.ex(a)),
        }
    }

    /// Gives every variable of the model its slot.
    pub fn variables(&mut self, names: &mut Names, found: &mut Vec<Diagnostic>) {
        for bind in self.binds.clone() {
            if RESERVED.contains(&bind.what.as_str()) {
                let initial = if matches!(bind.what.as_str(), "source" | "tag" | "index") { -1 } else { 0 };
                names.variable(&bind.variable, initial);
                continue;
            }
            // What the sender puts in has the fields that the receiver uses.
            let own = self.fields.get(&bind.variable).cloned().unwrap_or_default();
            if self.plain.contains(&bind.variable) {
                self.plain.insert(bind.what.clone());
                names.variable(&bind.variable, 0);
            }
            self.fields.entry(bind.what.clone()).or_default().extend(own);
            self.record(&bind.variable, names);
        }
        for name in self.takes.clone() {
            self.fields.entry(name.clone()).or_default().insert("valid".to_owned());
            self.record(&name, names);
        }
        for name in &self.stats {
            for field in ["MPI_SOURCE", "MPI_TAG"] {
                names.variable(&format!("{name}.{field}"), -1);
            }
        }
        for (name, place) in &self.sets {
            if crate::names::is_builtin(name) {
                found.push(Diagnostic::error("not-a-variable", *place, format!("`{name}` cannot be set")));
            } else {
                names.variable(name, 0);
            }
        }
    }

    fn record(&self, name: &str, names: &mut Names) {
        for field in self.fields(name) {
            names.variable(&format!("{name}.{field}"), 0);
        }
    }
}

/// Says that an attribute is missing.
pub fn missing(head: &Head, attr: &str, help: &str) -> Diagnostic {
    let name = head.name_of("type").unwrap_or(head_name(head.kind));
    Diagnostic::error("missing-attribute", head.place, format!("{name} has no `{attr}`")).with_help(help)
}

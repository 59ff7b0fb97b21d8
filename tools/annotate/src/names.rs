//! Names of the model: its variables, parameters and indices, none of which may mean two things.

use std::collections::{BTreeMap, BTreeSet};

use tree_sitter::Node;

use crate::c::{Home, Unit, Var, line};
use crate::error::Unknown;
use crate::expr::Expr;
use crate::walk::Walker;

/// Words that mean something to the directive language where a name may stand.
const TAKEN: [&str; 28] = [
    "procnum",
    "numprocs",
    "parameter",
    "sizeof",
    "ANY",
    "min",
    "max",
    "abs",
    "fabs",
    "labs",
    "floor",
    "ceil",
    "round",
    "sqrt",
    "log",
    "log2",
    "log10",
    "exp",
    "pow",
    "unit",
    "else",
    "true",
    "false",
    "uniform",
    "normal",
    "draw",
    "on",
    "index",
];

/// What a name of the model stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// A variable of the program, which the model has too.
    Variable(Var),
    /// A parameter for a variable that is not known.
    Asked(Var),
    /// A parameter for something else, by its wish and its place.
    Place(String, usize),
    /// Indices of loops; those of loops within each other are told apart by their owner.
    Index,
    /// What the annotator made up, by its wish.
    Flag(String),
}

/// The names that are given away.
#[derive(Debug, Default)]
pub struct Names {
    given: BTreeMap<String, Owner>,
    of: BTreeMap<(u8, usize, String), String>,
}

impl Names {
    /// Who has a name.
    #[must_use]
    pub fn owner(&self, name: &str) -> Option<&Owner> {
        self.given.get(name)
    }

    /// A name for an owner: the first of the wishes that is free, else one with a number.
    fn take(&mut self, unit: &Unit<'_>, wishes: &[String], owner: &Owner, plain: bool) -> String {
        let numbered = (2..).map(|n| format!("{}_{n}", wishes[wishes.len() - 1]));
        let free = |name: &str, first: bool| match self.given.get(name) {
            Some(known) => known == owner,
            // The first wish is the program's own name where that is meant.
            None => !TAKEN.contains(&name) && ((first && plain) || !unit.knows(name)),
        };
        let mut found = None;
        for (at, wish) in wishes.iter().cloned().chain(numbered).enumerate() {
            if free(&wish, at == 0) {
                found = Some(wish);
                break;
            }
        }
        let name = found.unwrap_or_default();
        self.given.insert(name.clone(), owner.clone());
        name
    }
}

impl Unit<'_> {
    /// Whether a name means something in the file.
    fn knows(&self, name: &str) -> bool {
        self.means(name) > 0 || self.function(name).is_some() || self.macros.contains_key(name)
    }

    /// How many things of the file have a name.
    fn means(&self, name: &str) -> usize {
        self.variables.iter().filter(|v| v.name == name && v.home != Home::Define).count()
            + usize::from(self.constants.contains_key(name))
            + usize::from(self.macros.contains_key(name))
    }
}

impl<'t> Walker<'t> {
    /// The model's name of a variable of the program.
    pub fn name_of(&mut self, var: Var) -> String {
        let owner = Owner::Variable(var);
        let key = (0, var, String::new());
        if let Some(name) = self.names.of.get(&key) {
            return name.clone();
        }
        let variable = &self.unit.variables[var];
        let formal = matches!(variable.home, Home::Formal(_));
        let function = variable.function.map_or("file", |f| self.unit.functions[f].name);
        let plain = !formal && self.unit.means(variable.name) == 1;
        let long = format!("{function}_{}", variable.name);
        let wishes = if formal { vec![long] } else { vec![variable.name.to_owned(), long] };
        let name = self.names.take(&self.unit, &wishes, &owner, plain && !formal);
        self.names.of.insert(key, name.clone());
        name
    }

    /// The name of the index of a loop: that of its variable, if the index has the variable's
    /// value.
    pub fn index_name(&mut self, variable: &str, same: bool, around: &[String], at: Node<'t>) -> String {
        let wish = if same { variable.to_owned() } else { format!("{variable}_round") };
        let free = |name: &String, names: &Names| {
            !around.contains(name) && names.owner(name).is_none_or(|o| *o == Owner::Index)
        };
        if free(&wish, &self.names) && !TAKEN.contains(&wish.as_str()) && (same || !self.unit.knows(&wish)) {
            self.names.given.insert(wish.clone(), Owner::Index);
            return wish;
        }
        let owner = Owner::Flag(format!("{variable}_round_{}", at.start_byte()));
        self.names.take(&self.unit, &[format!("{variable}_round_{}", line(at))], &owner, false)
    }

    /// A name that the annotator makes up: a mark that a loop has been left, and the like.
    pub fn flag(&mut self, wish: &str, place: usize) -> String {
        let owner = Owner::Flag(format!("{wish}@{place}"));
        let key = (1, place, wish.to_owned());
        if let Some(name) = self.names.of.get(&key) {
            return name.clone();
        }
        let name = self.names.take(&self.unit, &[wish.to_owned()], &owner, false);
        self.names.of.insert(key, name.clone());
        self.changing.insert(name.clone());
        name
    }

    /// A parameter that stands for a variable, with its reason; `here`: for what it holds at this
    /// place.
    pub fn parameter_of(&mut self, written: &str, var: Var, here: bool, at: Node<'t>, why: &str) -> Expr {
        let clean = cleaned(written);
        let lined = format!("{clean}_{}", line(at));
        // The name of a formal argument would be read as that.
        let formal = |v: &crate::c::Variable<'_>| {
            let walked = v.function.is_some_and(|f| self.walked.contains(&f));
            matches!(v.home, Home::Formal(_)) && v.name == clean && walked
        };
        let hidden = self.unit.variables.iter().enumerate().any(|(v, is)| formal(is) && v != var);
        let own = self.unit.variables[var].function.map(|f| format!("{}_{clean}", self.unit.functions[f].name));
        let (owner, wishes) = match here {
            true => (Owner::Place(clean.clone(), at.start_byte()), vec![lined]),
            false if hidden => (Owner::Asked(var), vec![own.unwrap_or(lined)]),
            false => (Owner::Asked(var), vec![clean, lined]),
        };
        let name = self.names.take(&self.unit, &wishes, &owner, !here && !hidden);
        self.asked(name, at, why)
    }

    /// A parameter that stands for something at a place.
    pub fn parameter(&mut self, wish: &str, at: Node<'t>, why: &str) -> Expr {
        let clean = cleaned(wish);
        let owner = Owner::Place(clean.clone(), at.start_byte());
        let name = self.names.take(&self.unit, &[clean], &owner, false);
        self.guesses.insert(name.clone());
        self.asked(name, at, why)
    }

    /// A parameter that stands for something of the whole file, such as a type.
    pub fn parameter_for(&mut self, wish: &str, at: Node<'t>, why: &str) -> Expr {
        let clean = cleaned(wish);
        let name = self.names.take(&self.unit, std::slice::from_ref(&clean), &Owner::Place(clean.clone(), 0), false);
        self.asked(name, at, why)
    }

    fn asked(&mut self, name: String, at: Node<'t>, why: &str) -> Expr {
        self.parameters.insert(name.clone());
        self.unknown.insert(Unknown { line: line(at), parameter: Some(name.clone()), why: why.to_owned() });
        Expr::Name(name)
    }

    /// Takes down what the model does not have.
    pub fn note(&mut self, line: u32, why: &str) {
        self.unknown.insert(Unknown { line, parameter: None, why: why.to_owned() });
    }
}

/// A text as the language takes names.
fn cleaned(text: &str) -> String {
    let clean: String = text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect();
    if clean.is_empty() || clean.starts_with(|c: char| c.is_ascii_digit()) { format!("p{clean}") } else { clean }
}

/// The names that a text of the directive language mentions, fields with their variables.
pub fn mentioned(text: &str, into: &mut BTreeSet<String>) {
    let word = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    for found in text.split(|c| !word(c)).filter(|w| w.starts_with(|c: char| c.is_alphabetic() || c == '_')) {
        into.insert(found.to_owned());
        if let Some((base, _)) = found.split_once('.') {
            into.insert(base.to_owned());
        }
    }
}

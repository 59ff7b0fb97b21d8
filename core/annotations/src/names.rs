//! What names mean: slots of variables, parameters and constants; expressions over names become
//! expressions over slots.

use std::collections::{BTreeMap, BTreeSet};

use crate::cvalues::{Alias, Constant, Scope, Types};
use crate::expr::{Expr, NUMPROCS, PROCNUM, Slot, Value};
use crate::place::{Diagnostic, Place};
use crate::program::{Parameter, SlotInfo};
use crate::syntax::Ex;

/// How long a chain of constants that are defined by others may be.
const MAX_CHAIN: usize = 64;

/// A file's names and types.
#[derive(Debug, Default)]
pub struct FileNames {
    pub scope: Scope,
    pub types: Types,
}

/// Where a name stands: what it may mean there.
#[derive(Debug, Clone, Copy)]
pub struct Site<'a> {
    pub file: usize,
    /// The function's own names; none outside of any.
    pub function: Option<(usize, &'a Scope)>,
    /// The function's formal arguments; a slot where the call gave a value.
    pub formals: &'a [(String, Option<Slot>)],
    /// Indices of the loops around it, innermost last.
    pub indices: &'a [(String, Slot)],
}

/// Where a constant or parameter was found: outside, in a file, in a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Home {
    Outside,
    File(usize),
    Function(usize, usize),
}

/// What a name means; none: nothing that may stand there.
type Lookup<'f, 'a> = dyn FnMut(&mut Names<'a>, &str, Place, &mut Vec<Diagnostic>) -> Option<Expr> + 'f;

/// All names of a program.
#[derive(Debug)]
pub struct Names<'a> {
    pub slots: Vec<SlotInfo>,
    pub parameters: Vec<Parameter>,
    files: &'a [FileNames],
    by_home: BTreeMap<(Home, String), usize>,
    variables: BTreeMap<String, Slot>,
    declared: BTreeMap<String, (Option<Ex>, Place, usize)>,
    under_way: BTreeSet<(Home, String)>,
}

impl<'a> Names<'a> {
    pub fn new(files: &'a [FileNames]) -> Self {
        let slot = |name: &str| SlotInfo { name: name.to_owned(), initial: Value::Int(0) };
        Self {
            slots: vec![slot("procnum"), slot("numprocs")],
            parameters: Vec::new(),
            files,
            by_home: BTreeMap::new(),
            variables: BTreeMap::new(),
            declared: BTreeMap::new(),
            under_way: BTreeSet::new(),
        }
    }

    /// A new slot.
    pub fn slot(&mut self, name: impl Into<String>, initial: i64) -> Slot {
        let slot = Slot(u32::try_from(self.slots.len()).unwrap_or(u32::MAX));
        self.slots.push(SlotInfo { name: name.into(), initial: Value::Int(initial) });
        slot
    }

    /// The slot of a variable of the model, made if there is none.
    pub fn variable(&mut self, name: &str, initial: i64) -> Slot {
        if let Some(slot) = self.variables.get(name) {
            return *slot;
        }
        let slot = self.slot(name, initial);
        self.variables.insert(name.to_owned(), slot);
        slot
    }

    /// The slot of a variable that there is.
    pub fn known_variable(&self, name: &str) -> Option<Slot> {
        self.variables.get(name).copied()
    }

    /// Takes up a `Parameter` of a file; false if there is one of that name.
    pub fn declare(&mut self, name: &str, default: Option<Ex>, place: Place, file: usize) -> bool {
        self.declared.insert(name.to_owned(), (default, place, file)).is_none()
    }

    /// Gives every declared parameter a slot, so that it may be given even if nothing uses it.
    pub fn declare_all(&mut self, found: &mut Vec<Diagnostic>) {
        let all: Vec<(String, Place)> =
            self.declared.iter().map(|(name, (_, place, _))| (name.clone(), *place)).collect();
        for (name, place) in all {
            self.outside(&name, place, None, found);
        }
    }

    /// An expression over slots. What has no meaning is told, and is 0.
    pub fn expr(&mut self, ex: &Ex, site: Site<'_>, found: &mut Vec<Diagnostic>) -> Expr {
        self.resolved(ex, &mut |names, name, place, found| Some(names.name(name, place, site, found)), site.file, found)
            .unwrap_or(Expr::int(0))
    }

    fn resolved(
        &mut self,
        ex: &Ex,
        name: &mut Lookup<'_, 'a>,
        file: usize,
        found: &mut Vec<Diagnostic>,
    ) -> Option<Expr> {
        let out = match ex {
            Ex::Number(value) => Expr::Const(*value),
            Ex::Name(text, place) => name(self, text, *place, found)?,
            Ex::Parameter(text, place) => self.outside(text, *place, None, found),
            Ex::SizeOf(words, pointer, place) => self.size_of(words, *pointer, *place, file, found),
            Ex::Unary(op, a) => Expr::Unary(*op, Box::new(self.resolved(a, name, file, found)?)),
            Ex::Binary(op, ab) => {
                let (a, b) = (self.resolved(&ab.0, name, file, found)?, self.resolved(&ab.1, name, file, found)?);
                Expr::Binary(*op, Box::new((a, b)))
            }
            Ex::Select(abc) => Expr::Select(Box::new((
                self.resolved(&abc.0, name, file, found)?,
                self.resolved(&abc.1, name, file, found)?,
                self.resolved(&abc.2, name, file, found)?,
            ))),
            Ex::Call(function, args) => {
                let mut all = Vec::new();
                for arg in args {
                    all.push(self.resolved(arg, name, file, found)?);
                }
                Expr::Call(*function, all)
            }
        };
        Some(out.settled())
    }

    fn size_of(&self, words: &[String], pointer: bool, place: Place, file: usize, found: &mut Vec<Diagnostic>) -> Expr {
        let size = self.files.get(file).and_then(|f| f.types.size_of(words, pointer));
        if let Some(size) = size {
            return Expr::int(i64::try_from(size).unwrap_or(i64::MAX));
        }
        if words == ["complex"] {
            found.push(
                Diagnostic::warning("complex", place, "`complex` is taken for two floats, 8 bytes")
                    .with_help("write `float complex` or `double complex`, or declare it with a typedef"),
            );
            return Expr::int(8);
        }
        found.push(
            Diagnostic::error("unknown-type", place, format!("the size of `{}` is not known", words.join(" ")))
                .with_help("write the number of bytes, or declare the type in this file"),
        );
        Expr::int(0)
    }

    /// What a name means at a site (`spec/annotations.md` 3).
    fn name(&mut self, name: &str, place: Place, site: Site<'_>, found: &mut Vec<Diagnostic>) -> Expr {
        if let Some(known) = builtin(name) {
            return known;
        }
        let mut note = None;
        if let Some((_, slot)) = site.formals.iter().find(|(formal, _)| formal == name) {
            match slot {
                Some(slot) => return Expr::Slot(*slot),
                None => {
                    note = Some((place, format!("`{name}` is an argument whose value at the call is no expression")))
                }
            }
        }
        if let Some((_, slot)) = site.indices.iter().rev().find(|(index, _)| index == name) {
            return Expr::Slot(*slot);
        }
        if let Some(slot) = self.variables.get(name) {
            return Expr::Slot(*slot);
        }
        if name.contains('.') {
            found.push(
                Diagnostic::error("no-value", place, format!("nothing gives `{name}` a value"))
                    .with_help("`bind`, `stat` or `Take` does"),
            );
            return Expr::int(0);
        }
        if note.is_none() && !self.declared.contains_key(name) {
            match self.constant(name, place, site, found) {
                Ok(expr) => return expr,
                Err(why) => note = why,
            }
        }
        self.outside(name, place, note, found)
    }

    /// Whether the name means something without being given.
    pub fn is_known(&mut self, name: &str, site: Site<'_>) -> bool {
        builtin(name).is_some()
            || site.formals.iter().any(|(formal, slot)| formal == name && slot.is_some())
            || site.indices.iter().any(|(index, _)| index == name)
            || self.variables.contains_key(name)
            || self.declared.contains_key(name)
            || self.constant(name, Place::default(), site, &mut Vec::new()).is_ok()
    }

    /// A constant or alias of the C code; else why it is none.
    fn constant(
        &mut self,
        name: &str,
        place: Place,
        site: Site<'_>,
        found: &mut Vec<Diagnostic>,
    ) -> Result<Expr, Option<(Place, String)>> {
        let files = self.files;
        let own = site.function.map(|(index, scope)| (Home::Function(site.file, index), scope));
        let outer = files.get(site.file).map(|file| (Home::File(site.file), &file.scope));
        for (home, scope) in own.into_iter().chain(outer) {
            match scope.aliases.get(name) {
                Some(Alias::Procnum) => return Ok(Expr::Slot(PROCNUM)),
                Some(Alias::Numprocs) => return Ok(Expr::Slot(NUMPROCS)),
                None => {}
            }
            match scope.constants.get(name) {
                None => {}
                Some(Constant::Changed(at)) => return Err(Some((*at, format!("`{name}` is changed here")))),
                Some(Constant::Unknown(at)) => {
                    return Err(Some((*at, format!("the value of `{name}` is no expression of the language"))));
                }
                Some(Constant::Torn(at)) => {
                    let why = format!("among the operators that define `{name}` is a macro without brackets");
                    return Err(Some((*at, why)));
                }
                Some(Constant::Is(ex, at)) => return self.defined(name, ex, *at, place, home, site, found),
            }
        }
        Err(None)
    }

    /// The slot of a constant with its initialiser as default.
    #[expect(clippy::too_many_arguments, reason = "a constant, where it is defined and where it is used")]
    fn defined(
        &mut self,
        name: &str,
        ex: &Ex,
        defined_at: Place,
        used_at: Place,
        home: Home,
        site: Site<'_>,
        found: &mut Vec<Diagnostic>,
    ) -> Result<Expr, Option<(Place, String)>> {
        let key = (home, name.to_owned());
        if let Some(known) = self.by_home.get(&key).and_then(|at| self.parameters.get_mut(*at)) {
            note_place(&mut known.places, used_at);
            return Ok(Expr::Slot(known.slot));
        }
        let not_constant = |why: &str| Err(Some((defined_at, format!("{why} `{name}`"))));
        if self.under_way.len() >= MAX_CHAIN || !self.under_way.insert(key.clone()) {
            return not_constant("a circle, or too long a chain, of constants defines");
        }
        // In an initialiser names mean constants; what changes is none.
        let outer = Site { function: if matches!(home, Home::Function(..)) { site.function } else { None }, ..site };
        let value = self.resolved(
            ex,
            &mut |names, inner, place, found| names.in_constant(inner, place, outer, found),
            site.file,
            found,
        );
        self.under_way.remove(&key);
        let Some(default) = value else { return not_constant("what is no constant defines") };
        let slot = self.slot(name, 0);
        self.by_home.insert(key, self.parameters.len());
        let mut places = Vec::new();
        note_place(&mut places, used_at);
        self.parameters.push(Parameter {
            name: name.to_owned(),
            slot,
            default: Some(default),
            places,
            note: Some((defined_at, "its value in the source".to_owned())),
        });
        Ok(Expr::Slot(slot))
    }

    fn in_constant(&mut self, name: &str, place: Place, site: Site<'_>, found: &mut Vec<Diagnostic>) -> Option<Expr> {
        if let Some(known) = builtin(name) {
            return Some(known);
        }
        if self.declared.contains_key(name) {
            return Some(self.outside(name, place, None, found));
        }
        if self.variables.contains_key(name) || site.formals.iter().any(|(formal, _)| formal == name) {
            return None;
        }
        match self.constant(name, place, site, found) {
            Ok(expr) => Some(expr),
            Err(Some(_)) => None,
            // Given from outside: then what is defined by it is known.
            Err(None) => Some(self.outside(name, place, None, found)),
        }
    }

    /// A parameter given from outside.
    fn outside(
        &mut self,
        name: &str,
        place: Place,
        note: Option<(Place, String)>,
        found: &mut Vec<Diagnostic>,
    ) -> Expr {
        let key = (Home::Outside, name.to_owned());
        if let Some(known) = self.by_home.get(&key).and_then(|at| self.parameters.get_mut(*at)) {
            note_place(&mut known.places, place);
            return Expr::Slot(known.slot);
        }
        let slot = self.slot(name, 0);
        let at = self.parameters.len();
        self.by_home.insert(key.clone(), at);
        self.parameters.push(Parameter { name: name.to_owned(), slot, default: None, places: vec![place], note });
        if let Some((Some(ex), declared_at, file)) = self.declared.get(name).cloned() {
            self.under_way.insert(key.clone());
            let site = Site { file, function: None, formals: &[], indices: &[] };
            let default = self.resolved(
                &ex,
                &mut |names, inner, place, found| names.in_constant(inner, place, site, found),
                file,
                found,
            );
            self.under_way.remove(&key);
            if default.is_none() {
                found.push(Diagnostic::error(
                    "not-constant",
                    declared_at,
                    format!("the default of `{name}` is no constant"),
                ));
            }
            if let Some(parameter) = self.parameters.get_mut(at) {
                parameter.default = default;
            }
        }
        Expr::Slot(slot)
    }
}

fn note_place(places: &mut Vec<Place>, place: Place) {
    if place != Place::default() && !places.contains(&place) && places.len() < 64 {
        places.push(place);
    }
}

fn builtin(name: &str) -> Option<Expr> {
    Some(match name {
        "procnum" => Expr::Slot(PROCNUM),
        "numprocs" => Expr::Slot(NUMPROCS),
        "MPI_PROC_NULL" => Expr::int(-1),
        "MPI_COMM_WORLD" | "false" => Expr::int(0),
        "true" => Expr::int(1),
        _ => return None,
    })
}

/// Whether a name means the same everywhere.
pub fn is_builtin(name: &str) -> bool {
    builtin(name).is_some()
}

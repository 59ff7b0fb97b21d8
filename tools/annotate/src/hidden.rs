//! Communication that does not stand in the file as a call of MPI by name: macros, pointers to
//! functions, other files. The model does not have it, and it is said.

use std::collections::BTreeSet;

use tree_sitter::Node;

use crate::c::{self, Home, line};
use crate::calls::{CHEAP, LIBRARY, kind};
use crate::walk::Walker;

impl<'t> Walker<'t> {
    /// Says what a function may communicate without its being seen. Each name once.
    pub fn hidden(&mut self, function: usize) {
        let body = self.unit.functions[function].body;
        let mut all = Vec::new();
        c::each(body, |node| {
            match node.kind() {
                "call_expression" => all.push(node),
                "type_identifier" => all.push(node),
                "identifier" if node.parent().is_none_or(|p| p.child_by_field_name("function") != Some(node)) => {
                    all.push(node);
                }
                _ => {}
            }
            true
        });
        let mut told = BTreeSet::new();
        for node in all {
            let (name, why) = if node.kind() == "call_expression" { self.call(node) } else { self.word(node) };
            if let Some(why) = why.filter(|_| told.insert(name)) {
                self.note(line(node), &why);
            }
        }
    }

    /// What a call may hide.
    fn call(&self, call: Node<'t>) -> (&'t str, Option<String>) {
        let Some(function) = call.child_by_field_name("function") else { return ("", None) };
        let name = self.unit.text_of(function);
        let by_pointer = function.kind() != "identifier" || self.unit.resolve(name, call.start_byte()).is_some();
        if by_pointer {
            return (name, Some(format!("{name} is called by a pointer: what it communicates is not in the model")));
        }
        if let Some(is) = self.unit.macros.get(name) {
            let why = self.communicates_in(is.body).map(|inner| {
                format!(
                    "{name} is a macro (line {}) that calls {inner}: not in the model; write the call itself",
                    is.line
                )
            });
            return (name, why);
        }
        if let Some(callee) = self.unit.function(name) {
            let ends = !self.speaks[callee] && self.ends_well(callee);
            return (name, ends.then(|| format!("{name} may end the program: the model goes on as if it did not")));
        }
        let known = kind(name).is_some() || CHEAP.contains(&name) || LIBRARY.contains(&name);
        let why = "is not in this file: what it communicates is not in the model";
        (name, (!known).then(|| format!("{name} {why}")))
    }

    /// What a name that is not called may hide: a macro, or a function that is handed on.
    fn word(&self, node: Node<'t>) -> (&'t str, Option<String>) {
        let name = self.unit.text_of(node);
        let var = self.unit.resolve(name, node.start_byte());
        if var.is_some_and(|var| self.unit.variables[var].home != Home::Define) {
            return (name, None);
        }
        if let Some(is) = self.unit.macros.get(name).filter(|m| !m.takes) {
            let why = self.communicates_in(is.body).map(|inner| {
                format!(
                    "{name} is a macro (line {}) that calls {inner}: not in the model; write the call itself",
                    is.line
                )
            });
            return (name, why);
        }
        let handed =
            self.unit.function(name).is_some_and(|f| self.speaks[f]) || name == "MPI_Send" || name == "MPI_Recv";
        (
            name,
            handed.then(|| {
                format!("{name} is handed on: what is communicated by calls of it elsewhere is not in the model")
            }),
        )
    }

    /// A call in the text of a macro that communicates, or may.
    fn communicates_in(&self, body: &str) -> Option<String> {
        let word = |c: char| c.is_alphanumeric() || c == '_';
        let words = body.split(|c| !word(c)).filter(|w| !w.is_empty());
        let called = words.filter(|w| {
            let speaks = self.unit.function(w).is_some_and(|f| self.speaks[f]);
            speaks || matches!(kind(w), Some(Err(()))) || crate::walk::is_message(w)
        });
        let mut called = called;
        called.next().map(str::to_owned)
    }
}

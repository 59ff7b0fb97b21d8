//! The calls within a statement: in which order and under which conditions C makes them, what the
//! functions that they call are given.

use tree_sitter::Node;

use crate::c::{Call, arguments, line};
use crate::calls;
use crate::error::Error;
use crate::expr::Expr;
use crate::steps::{Arm, Step};
use crate::translate::ancestor;
use crate::types::Typed;
use crate::walk::{Frame, Walker, is_message};

impl<'t> Walker<'t> {
    /// The calls of a statement one after the other, as C makes them: arguments before the call
    /// that they are for.
    pub fn straight(&mut self, node: Node<'t>, frame: &Frame, out: &mut Vec<Step>) -> Result<(), Error> {
        let mut before = None;
        let mut calls = self.calls_in(node, frame.function);
        calls.sort_by_key(|c| c.node.end_byte());
        for at in 0..calls.len() {
            let call = calls[at];
            let inner = calls[..at].iter().filter(|c| call.node.byte_range().contains(&c.node.start_byte()));
            let place = match inner.map(|c| c.node.end_byte()).max() {
                Some(end) => end,
                None => place_of(call.node, before),
            };
            before = Some(before.unwrap_or(0).max(call.node.start_byte()));
            let conditions = around_call(call.node, node);
            let mut steps = Vec::new();
            if is_message(call.name) {
                let at = if conditions.is_empty() { place } else { call.node.start_byte() };
                steps.push(self.message(call, at, frame));
            } else if let Some(callee) = self.unit.function(call.name) {
                let at = if conditions.is_empty() { place } else { call.node.start_byte() };
                steps = self.given_to(callee, call, at, frame);
            }
            if conditions.is_empty() {
                for step in steps {
                    self.push(step, out)?;
                }
            } else {
                self.conditional(call, &conditions, steps, frame, out)?;
            }
        }
        Ok(())
    }

    /// A call that is made only where conditions within its statement hold.
    fn conditional(
        &mut self,
        call: Call<'t>,
        conditions: &[(Node<'t>, bool)],
        steps: Vec<Step>,
        frame: &Frame,
        out: &mut Vec<Step>,
    ) -> Result<(), Error> {
        let (at, place) = (call.node.start_byte(), line(call.node));
        let mut all: Option<Expr> = None;
        let mut unknown = None;
        for (condition, holds) in conditions {
            match self.value(*condition, frame) {
                Ok(value) if self.is_decided(&value) => {
                    let value = if *holds { value } else { value.inverted() };
                    all = Some(match all {
                        Some(before) => Expr::Binary("&&", Box::new((before, value))),
                        None => value,
                    });
                }
                Ok(value) => unknown = Some((*condition, format!("{value} is not known before the run"))),
                Err(why) => unknown = Some((*condition, why)),
            }
        }
        let mut arms = vec![Arm { label: String::new(), at, end: call.node.end_byte(), body: steps }];
        let random = match (unknown, all) {
            (Some((condition, why)), _) => self.by_chance(place, &why, &mut arms, condition),
            (None, Some(all)) => {
                arms[0].label = all.to_string();
                false
            }
            (None, None) => false,
        };
        self.push(Step::Branch { at, line: place, random, arms }, out)
    }

    /// The calls in a node that communicate, in the order in which they begin.
    pub fn calls_in(&self, node: Node<'t>, function: usize) -> Vec<Call<'t>> {
        let calls = &self.unit.functions[function].calls;
        let from = calls.partition_point(|c| c.node.start_byte() < node.start_byte());
        let inside = calls[from..].iter().take_while(|c| c.node.start_byte() < node.end_byte());
        inside.filter(|c| self.communicating.binary_search(&c.node.start_byte()).is_ok()).copied().collect()
    }

    /// `Skip` for each call of MPI that the model leaves out.
    pub fn skipped(&mut self, node: Node<'t>, frame: &Frame, out: &mut Vec<Step>) {
        let mut before = None;
        for call in self.calls_in(node, frame.function) {
            let at = place_of(call.node, before);
            before = Some(call.node.start_byte());
            if is_message(call.name) {
                if calls::wants_skip(call.name) {
                    self.steps += 1;
                    out.push(Step::Skip { at, line: line(call.node) });
                }
            } else {
                let why = format!(
                    "{} communicates, and its messages are in the model although this call is to be left out",
                    call.name
                );
                self.note(line(call.node), &why);
                if let Some(callee) = self.unit.function(call.name) {
                    out.extend(self.given_to(callee, call, at, frame));
                }
            }
        }
    }

    /// Values of a function's arguments that its directives name.
    fn given_to(&mut self, callee: usize, call: Call<'t>, at: usize, frame: &Frame) -> Vec<Step> {
        let body = self.unit.functions[callee].body.start_byte();
        let parameters = self.unit.functions[callee].parameters.clone();
        let actuals = arguments(call.node);
        let mut out = Vec::new();
        for (number, formal) in parameters.iter().enumerate() {
            let Some(var) = self.unit.resolve(formal, body).filter(|v| self.formals.contains(v)) else { continue };
            let Some(ty) = self.unit.variables[var].ty else { continue };
            let value = match actuals.get(number) {
                Some(actual) => self.typed(*actual, frame),
                None => Err("the call has too few arguments".into()),
            };
            let value = match value {
                Ok(Typed { expr: Expr::Any, .. }) => {
                    Err("it is a wildcard, which no variable of the model can hold".into())
                }
                other => other,
            };
            let value = match value {
                Ok(value) => value.converted(ty).settled().expr,
                Err(why) => {
                    let why = format!("{formal} of {}: {why}", call.name);
                    self.parameter(&format!("{formal}_{}", line(call.node)), call.node, &why)
                }
            };
            let name = self.name_of(var);
            out.push(Step::set(at, line(call.node), name, value.to_string()));
        }
        out.push(Step::Call { at, line: line(call.node) });
        out
    }
}

/// Conditions within a statement, and whether they must hold, for a call in it to be made.
fn around_call<'t>(call: Node<'t>, statement: Node<'t>) -> Vec<(Node<'t>, bool)> {
    let mut out = Vec::new();
    let mut at = call;
    while at != statement {
        let Some(parent) = at.parent() else { break };
        let field = |name: &str| parent.child_by_field_name(name);
        match parent.kind() {
            "binary_expression" if field("right") == Some(at) => {
                let op = field("operator").map_or("", |o| o.kind());
                if let (Some(left), "&&" | "||") = (field("left"), op) {
                    out.push((left, op == "&&"));
                }
            }
            "conditional_expression" if field("condition") != Some(at) => {
                if let Some(condition) = field("condition") {
                    out.push((condition, field("consequence") == Some(at)));
                }
            }
            _ => {}
        }
        at = parent;
    }
    out.reverse();
    out
}

/// Where a directive for a call may stand: before its statement, unless other calls begin between
/// there and here.
pub fn place_of(call: Node<'_>, before: Option<usize>) -> usize {
    let kinds = [
        "expression_statement",
        "declaration",
        "return_statement",
        "if_statement",
        "for_statement",
        "while_statement",
        "do_statement",
    ];
    let start =
        ancestor(call, &kinds).filter(|s| s.kind() != "do_statement").map_or(call.start_byte(), |s| s.start_byte());
    if before.is_some_and(|before| before >= start) { call.start_byte() } else { start }
}

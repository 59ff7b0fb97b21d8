//! What leaves a loop, an iteration, a function or the program before its end.
//!
//! Where the conditions around it are known to the model, it is followed: a mark is set, and what
//! would have come is done only where the mark is not set. Elsewhere it is told, but for ways out
//! of a program that fails: a model is one of runs that do not.

use std::collections::BTreeSet;

use tree_sitter::Node;

use crate::c::{self, Call, arguments, line};
use crate::calls::ENDING;
use crate::error::Error;
use crate::expr::Expr;
use crate::steps::Step;
use crate::translate::LOOPS;
use crate::walk::{Frame, Walker};

/// How something is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way<'t> {
    /// The innermost loop.
    Break,
    /// The rest of its iteration.
    Continue,
    /// The function.
    Return,
    /// The program, by the function of this name.
    End(&'t str),
}

/// What holds while a mark is not set.
#[must_use]
pub fn not(mark: &str) -> Expr {
    Expr::Unary("!", Box::new(Expr::name(mark)))
}

impl<'t> Walker<'t> {
    /// What is 1 when a function has been left.
    pub fn gone(&mut self, function: usize) -> String {
        let (name, at) = (self.unit.functions[function].name, self.unit.functions[function].body.start_byte());
        self.flag(&format!("gone_{name}"), at)
    }

    /// What must hold for a list of statements to go on behind one that set these marks.
    pub fn guard(&mut self, marks: &BTreeSet<String>, frame: &Frame) -> String {
        let own: Vec<String> = match frame.loops.last() {
            Some(around) => [&around.left, &around.next].into_iter().filter(|m| marks.contains(*m)).cloned().collect(),
            None => vec![self.gone(frame.function)],
        };
        let all = own.iter().map(|mark| not(mark)).reduce(|a, b| Expr::Binary("&&", Box::new((a, b))));
        all.unwrap_or(Expr::int(1)).to_string()
    }

    /// Whether something in a statement leaves more than the statement.
    pub fn may_leave(&self, statement: Node<'t>) -> bool {
        let mut found = false;
        let inside = |node: Node<'t>, kinds: &[&str]| {
            let mut at = Some(node);
            while let Some(node) = at {
                if kinds.contains(&node.kind()) {
                    return true;
                }
                if node == statement {
                    return false;
                }
                at = node.parent();
            }
            false
        };
        c::each(statement, |node| {
            found |= match node.kind() {
                "return_statement" | "goto_statement" => true,
                "break_statement" => !inside(node, &[&LOOPS[..], &["switch_statement"]].concat()),
                "continue_statement" => !inside(node, &LOOPS),
                "call_expression" => self.ends(node).is_some(),
                _ => false,
            };
            !found
        });
        found
    }

    /// The function's name, if a call ends the program.
    fn ends(&self, call: Node<'t>) -> Option<&'t str> {
        let name = call.child_by_field_name("function").map(|f| self.unit.text_of(f))?;
        ENDING.contains(&name).then_some(name)
    }

    /// The call of a statement that ends the program, if it is the statement.
    pub fn ending_call(&self, statement: Node<'t>) -> Option<Call<'t>> {
        if statement.kind() != "expression_statement" {
            return None;
        }
        let call = c::children(statement).into_iter().next().filter(|n| n.kind() == "call_expression")?;
        self.ends(call).map(|name| Call { name, node: call })
    }

    /// Leaves something: sets marks where that is followed, else says so.
    ///
    /// # Errors
    /// Models beyond bounds.
    pub fn leave(&mut self, way: Way<'t>, node: Node<'t>, frame: &Frame, out: &mut Vec<Step>) -> Result<(), Error> {
        let own = frame.function == self.start;
        let text = self.short(node);
        let unsure = match way {
            Way::Break | Way::Continue => frame.unsure == Some(frame.loops.len()),
            Way::Return | Way::End(_) => frame.unsure.is_some(),
        };
        if unsure {
            if !self.fails(way, node, own) {
                self.not_followed(way, node, &text, frame);
            }
            return Ok(());
        }
        let marks: Vec<String> = match (way, frame.loops.last()) {
            (Way::Break, Some(around)) => vec![around.left.clone()],
            (Way::Continue, Some(around)) => vec![around.next.clone()],
            (Way::Break | Way::Continue, None) => return Ok(()),
            (Way::End(name), _) if !own || matches!(name, "MPI_Abort" | "abort") => {
                self.not_followed(way, node, &text, frame);
                return Ok(());
            }
            (Way::Return | Way::End(_), _) => {
                let loops = frame.loops.iter().map(|around| around.left.clone());
                loops.chain([self.gone(frame.function)]).collect()
            }
        };
        for mark in marks {
            self.push(Step::set(node.start_byte(), line(node), mark.clone(), "1".into()), out)?;
            self.cleared.insert(mark);
        }
        Ok(())
    }

    fn not_followed(&mut self, way: Way<'t>, node: Node<'t>, text: &str, frame: &Frame) {
        let why = match (way, frame.loops.last()) {
            (Way::Break, Some(around)) if around.counted => {
                format!("the loop of line {} may be left here: the model counts all its iterations", around.line)
            }
            (Way::End(_), _) => format!("{text} ends the program here: the model goes on as if it were not there"),
            (_, Some(around)) => {
                format!("{text} within the loop of line {}: the model goes on as if it were not there", around.line)
            }
            (_, None) => format!("{text}: the model goes on as if it were not there"),
        };
        self.note(line(node), &why);
    }

    /// Whether a way out is that of a program that has failed.
    fn fails(&self, way: Way<'t>, node: Node<'t>, own: bool) -> bool {
        match way {
            Way::End("exit" | "_exit" | "_Exit") => {
                let status = arguments(node).first().map_or("0", |a| self.unit.text_of(*a));
                !matches!(status, "0" | "EXIT_SUCCESS")
            }
            Way::End(_) => true,
            Way::Return if own => {
                let value = c::children(node).into_iter().next().map_or("0", |v| self.unit.text_of(v));
                value == "EXIT_FAILURE" || value.parse::<i64>().is_ok_and(|v| v != 0)
            }
            _ => false,
        }
    }

    /// Says what leaves from within a statement that is not followed.
    pub fn left_unseen(&mut self, statement: Node<'t>, frame: &Frame) {
        let mut found = Vec::new();
        c::each(statement, |node| {
            match node.kind() {
                "return_statement" => found.push((Way::Return, node)),
                "continue_statement" => found.push((Way::Continue, node)),
                "call_expression" => found.extend(self.ends(node).map(|name| (Way::End(name), node))),
                _ => {}
            }
            !LOOPS.contains(&node.kind())
        });
        let own = frame.function == self.start;
        for (way, node) in found.into_iter().filter(|(way, node)| !self.fails(*way, *node, own)).collect::<Vec<_>>() {
            let text = self.short(node);
            self.not_followed(way, node, &text, frame);
        }
    }

    /// Whether a function that has no messages may end the program in a way that is no failure.
    pub fn ends_well(&self, function: usize) -> bool {
        let calls = &self.unit.functions[function].calls;
        calls.iter().any(|c| self.ends(c.node).is_some_and(|name| !self.fails(Way::End(name), c.node, true)))
    }
}

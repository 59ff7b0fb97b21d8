//! Loops: a count where C's `for` tells one; else a condition that the model can follow, with the
//! variables it asks about; else a parameter.
//!
//! Leaving a loop early is followed by marks (`leaving.rs`): `left_N` is 1 when the loop of line N
//! has been left, `next_N` when the rest of an iteration is left out, `going_N` while it goes on.

use tree_sitter::Node;

use crate::c::{self, Home, Var, line, unwrapped};
use crate::error::Error;
use crate::expr::Expr;
use crate::leaving::not;
use crate::steps::{Arm, Head, Step as Said};
use crate::translate::statements_of;
use crate::types::{Ty, Typed};
use crate::walk::{Around, Frame, Given, Walker};

/// A `for` that counts.
struct Counted<'t> {
    variable: &'t str,
    var: Var,
    from: Typed,
    /// How often it goes round.
    times: Expr,
    step: i64,
    value: Typed,
}

/// What is known of a loop once its body has been walked.
struct Walked {
    steps: Vec<Said>,
    /// Whether something in it leaves it.
    left: bool,
    /// Whether something in it leaves out the rest of an iteration.
    next: bool,
}

impl<'t> Walker<'t> {
    /// A loop.
    ///
    /// # Errors
    /// Models beyond bounds.
    pub fn repeated(&mut self, node: Node<'t>, frame: &Frame, out: &mut Vec<Said>) -> Result<(), Error> {
        let Some(body) = node.child_by_field_name("body") else { return self.straight(node, frame, out) };
        let (at, place) = (node.start_byte(), line(node));
        if let Some(first) = node.child_by_field_name("initializer").filter(|n| self.communicates(*n)) {
            self.straight(first, frame, out)?;
        }
        let around = Around {
            line: place,
            left: self.flag(&format!("left_{place}"), at),
            next: self.flag(&format!("next_{place}"), at),
            counted: false,
        };
        if node.kind() == "for_statement"
            && let Some(counted) = counted(self, node, body, frame)
        {
            return self.by_count(node, body, counted, around, frame, out);
        }
        self.by_condition(node, body, around, frame, out)
    }

    fn by_count(
        &mut self,
        node: Node<'t>,
        body: Node<'t>,
        counted: Counted<'t>,
        around: Around,
        frame: &Frame,
        out: &mut Vec<Said>,
    ) -> Result<(), Error> {
        let same = counted.step == 1 && counted.from.expr.as_int() == Some(0);
        let indices: Vec<String> = frame.given.iter().map(|g| g.index.clone()).collect();
        let index = self.index_name(counted.variable, same, &indices, node);
        let mut inner = frame.clone();
        let turns = Expr::binary("*", Expr::Name(index.clone()), Expr::int(counted.step));
        let expr = match counted.from.expr.as_int() {
            Some(_) => Expr::binary("+", turns, counted.from.expr),
            None => Expr::binary("+", counted.from.expr, turns),
        };
        let value = Typed { expr, ..counted.value };
        inner.given.push(Given { var: counted.var, range: node.byte_range(), value, index: index.clone() });
        inner.loops.push(Around { counted: true, ..around.clone() });
        let Walked { mut steps, left, .. } = self.body(node, body, &inner, &around)?;
        if steps.is_empty() {
            return Ok(());
        }
        self.begins(node, left, &around, out)?;
        if left {
            steps = vec![guarded(not(&around.left), node, body, steps)];
        }
        let index = Some(index).filter(|name| self.used.contains(name));
        let head = Head::Iterations(counted.times.to_string());
        let (at, end) = (node.start_byte(), node.end_byte());
        self.push(Said::Loop { at, end, line: around.line, head, index, body: steps }, out)
    }

    fn by_condition(
        &mut self,
        node: Node<'t>,
        body: Node<'t>,
        around: Around,
        frame: &Frame,
        out: &mut Vec<Said>,
    ) -> Result<(), Error> {
        if node.kind() == "for_statement" {
            self.general.insert(node.id());
        }
        let mut inner = frame.clone();
        inner.loops.push(around.clone());
        for step in self.header(node, "initializer", node.start_byte(), None, frame) {
            self.push(step, out)?;
        }
        let condition = node.child_by_field_name("condition").map(unwrapped);
        let asked = condition.map(|c| self.value(c, frame));
        let endless = match &asked {
            None => true,
            Some(Ok(value)) => value.as_int().is_some_and(|v| v != 0),
            Some(Err(_)) => false,
        };
        let Walked { mut steps, left, next } = self.body(node, body, &inner, &around)?;
        let updates = self.header(node, "update", node.end_byte(), Some(node.start_byte()), frame);
        let known = match asked {
            Some(Ok(value)) if !endless && self.is_decided(&value) && (left || self.mentions_change(&value)) => {
                Some(value)
            }
            _ => None,
        };
        self.begins(node, left, &around, out)?;
        let (at, end, place) = (node.start_byte(), node.end_byte(), around.line);
        let update = |step: Said| match step {
            Said::Set { at, behind, line, name, value } if left => {
                let value = format!("{} ? {name} : {value}", around.left);
                Said::Set { at, behind, line, name, value }
            }
            other => other,
        };
        let head = match known {
            Some(value) => {
                let asks_bound = value.any(&mut |e| matches!(e, Expr::Name(n) if self.bound.contains(n)));
                // Where a message gives what the condition asks, the language leaves the loop
                // there, C at its end.
                let at_end = asks_bound && (left || next || !updates.is_empty() || !ends_with_message(&steps));
                steps.extend(updates.into_iter().map(update));
                let value = if left { both(not(&around.left), value) } else { value };
                if node.kind() == "do_statement" || at_end {
                    let going = self.flag(&format!("going_{place}"), at);
                    let first = if node.kind() == "do_statement" { "1".to_owned() } else { value.to_string() };
                    self.push(Said::set(at, place, going.clone(), first), out)?;
                    let (name, value) = (going.clone(), value.to_string());
                    steps.push(Said::Set { at: end, behind: Some(at), line: place, name, value });
                    Head::While(going)
                } else {
                    Head::While(value.to_string())
                }
            }
            None if endless && left => {
                steps.extend(updates.into_iter().map(update));
                Head::While(not(&around.left).to_string())
            }
            None if steps.is_empty() => return Ok(()),
            None => {
                steps.extend(updates.into_iter().map(update));
                let text = condition.map_or_else(|| "for (;;)".to_owned(), |c| self.short(c));
                let why = match breaks(body).first() {
                    Some(place) if endless => {
                        format!("how often the loop goes round: it ends by line {}", line(*place))
                    }
                    _ => format!("how often the loop goes round: that is decided by {text}"),
                };
                let times = self.parameter(&format!("iterations_{place}"), node, &why);
                if left {
                    steps = vec![guarded(not(&around.left), node, body, steps)];
                }
                Head::Iterations(times.to_string())
            }
        };
        self.push(Said::Loop { at, end, line: place, head, index: None, body: steps }, out)
    }

    /// What a loop does in each iteration but for its update.
    fn body(&mut self, node: Node<'t>, body: Node<'t>, inner: &Frame, around: &Around) -> Result<Walked, Error> {
        let mut steps = Vec::new();
        let behind = node.kind() == "do_statement";
        let condition = node.child_by_field_name("condition").filter(|c| self.communicates(*c));
        if let Some(condition) = condition.filter(|_| !behind) {
            let why = "a call in the condition of a loop: the model makes it once for each iteration, not once more at the end";
            self.note(line(condition), why);
            self.straight(condition, inner, &mut steps)?;
        }
        self.list(&statements_of(body), inner, &mut steps)?;
        if let Some(condition) = condition.filter(|_| behind) {
            self.straight(condition, inner, &mut steps)?;
        }
        if let Some(update) = node.child_by_field_name("update").filter(|u| self.communicates(*u)) {
            self.note(
                line(update),
                "a call in the update of a loop is not in the model: put it at the end of the body",
            );
            self.skipped(update, inner, &mut steps);
        }
        let (left, next) = (self.cleared.remove(&around.left), self.cleared.remove(&around.next));
        if next {
            let first = statements_of(body).first().map_or(body.start_byte(), Node::start_byte);
            steps.insert(0, Said::set(first, around.line, around.next.clone(), "0".into()));
        }
        Ok(Walked { steps, left, next })
    }

    /// The mark of a loop that has been left is taken back before it begins.
    fn begins(&mut self, node: Node<'t>, left: bool, around: &Around, out: &mut Vec<Said>) -> Result<(), Error> {
        if !left {
            return Ok(());
        }
        self.push(Said::set(node.start_byte(), around.line, around.left.clone(), "0".into()), out)
    }

    /// What the head of a `for` does to variables of the model.
    fn header(&mut self, node: Node<'t>, part: &str, at: usize, behind: Option<usize>, frame: &Frame) -> Vec<Said> {
        let Some(part) = node.child_by_field_name(part) else { return Vec::new() };
        let all = if part.kind() == "declaration" { c::children(part) } else { vec![part] };
        all.into_iter().filter_map(|inner| self.set_by(inner, at, behind, frame)).collect()
    }

    fn mentions_change(&self, value: &Expr) -> bool {
        value.any(&mut |e| matches!(e, Expr::Name(n) if self.changing.contains(n)))
    }

    /// Whether an expression stays the same while a loop goes on.
    fn stays(&self, value: &Expr, node: Node<'t>) -> bool {
        let set_inside = |name: &String| {
            let var = self.kept.iter().find(|(_, kept)| kept.as_ref() == Some(name)).map(|(var, _)| *var);
            // A mark, what a message binds, or a variable of the file, which a function may set.
            let Some(var) = var.filter(|v| self.unit.variables[*v].home != Home::File) else { return true };
            let writes = self.unit.writes_of(self.unit.variables[var].name, var);
            writes.iter().any(|w| node.byte_range().contains(&w.node.start_byte()))
        };
        !value.any(&mut |e| matches!(e, Expr::Name(n) if self.changing.contains(n) && set_inside(n)))
    }
}

/// Steps that are done only where a condition holds.
fn guarded(condition: Expr, node: Node<'_>, body: Node<'_>, steps: Vec<Said>) -> Said {
    let at = statements_of(body).first().map_or(body.start_byte(), Node::start_byte);
    let arm = Arm { label: condition.to_string(), at, end: node.end_byte(), body: steps };
    Said::Branch { at, line: line(node), random: false, arms: vec![arm] }
}

fn both(a: Expr, b: Expr) -> Expr {
    Expr::Binary("&&", Box::new((a, b)))
}

/// Whether nothing follows the only message of a body that binds something.
fn ends_with_message(steps: &[Said]) -> bool {
    let binds = |step: &Said| match step {
        Said::Message { attributes, .. } => attributes.iter().any(|(n, _)| n.starts_with("bind") || n == "stat"),
        Said::Loop { .. } | Said::Branch { .. } => true,
        _ => false,
    };
    steps.last().is_some_and(|last| matches!(last, Said::Message { .. }))
        && steps.split_last().is_some_and(|(_, before)| !before.iter().any(binds))
}

/// The `break`s that end this loop.
fn breaks(body: Node<'_>) -> Vec<Node<'_>> {
    let mut found = Vec::new();
    c::each(body, |inner| {
        if inner.kind() == "break_statement" {
            found.push(inner);
        }
        !crate::translate::LOOPS.contains(&inner.kind()) && inner.kind() != "switch_statement"
    });
    found
}

/// A `for` whose variable starts somewhere, goes on evenly, and ends at a bound, none of which
/// change on the way.
fn counted<'t>(walker: &mut Walker<'t>, node: Node<'t>, body: Node<'t>, frame: &Frame) -> Option<Counted<'t>> {
    let field = |name: &str| node.child_by_field_name(name);
    let (variable, from) = started(walker, field("initializer")?)?;
    let (op, bound) = bounded(walker, unwrapped(field("condition")?), variable)?;
    let step = stepped(walker, unwrapped(field("update")?), variable)?;
    let var = walker.unit.resolve(variable, body.start_byte())?;
    let (home, ty) = (walker.unit.variables[var].home, walker.unit.variables[var].ty?);
    let Ty::Int { bytes: 4 | 8, signed } = ty else { return None };
    let writes = walker.unit.writes_of(variable, var);
    let own = writes.iter().filter(|w| node.byte_range().contains(&w.node.start_byte())).count();
    let exposed = writes.iter().any(|w| w.by == "&" || w.by.starts_with(char::is_alphabetic));
    if own != 2 || exposed || home != Home::Local || (!signed && step < 0) {
        return None;
    }
    let (from, bound) = (walker.typed(from, frame).ok()?, walker.typed(bound, frame).ok()?);
    let (from, bound) = (from.converted(ty).settled(), bound.settled());
    let whole = |v: &Typed| !v.ty.floats() && v.expr != Expr::Any;
    if !whole(&from) || !whole(&bound) || !walker.stays(&from.expr, node) || !walker.stays(&bound.expr, node) {
        return None;
    }
    // C compares without sign if one side has none.
    let unsigned = matches!(bound.ty, Ty::Int { signed: false, bytes } if bytes >= 4) || !signed;
    if unsigned && (from.low < 0 || bound.low < 0 || step < 0) {
        return None;
    }
    let times = times(walker, &from, &bound, op, step)?;
    let (low, high) = ty.bounds();
    let (low, high) =
        if step > 0 { (from.low, bound.high.clamp(low, high)) } else { (bound.low.clamp(low, high), from.high) };
    Some(Counted { variable, var, times, value: Typed::within(Expr::int(0), ty, low, high), from, step })
}

fn started<'t>(walker: &Walker<'t>, node: Node<'t>) -> Option<(&'t str, Node<'t>)> {
    let node = match node.kind() {
        "declaration" => {
            let mut cursor = node.walk();
            let mut all = node.children_by_field_name("declarator", &mut cursor);
            let only = all.next()?;
            if all.next().is_some() {
                return None;
            }
            only
        }
        _ => node,
    };
    let name = |field: &str| {
        let target = node.child_by_field_name(field).map(unwrapped)?;
        (target.kind() == "identifier").then(|| walker.unit.text_of(target))
    };
    match node.kind() {
        "init_declarator" => Some((name("declarator")?, node.child_by_field_name("value")?)),
        "assignment_expression" if node.child_by_field_name("operator").is_none_or(|o| o.kind() == "=") => {
            Some((name("left")?, node.child_by_field_name("right")?))
        }
        _ => None,
    }
}

fn bounded<'t>(walker: &Walker<'t>, node: Node<'t>, variable: &str) -> Option<(&'t str, Node<'t>)> {
    if node.kind() != "binary_expression" {
        return None;
    }
    let (left, right) = (node.child_by_field_name("left")?, node.child_by_field_name("right")?);
    let op = walker.unit.text_of(node.child_by_field_name("operator")?);
    let asks = |side: Node<'t>| {
        let mut found = false;
        c::each(side, |n| {
            found |= n.kind() == "identifier" && walker.unit.text_of(n) == variable;
            !found
        });
        found
    };
    if walker.unit.variable(left) == Some(variable) && !asks(right) {
        return Some((op, right));
    }
    let turned = match op {
        "<" => ">",
        "<=" => ">=",
        ">" => "<",
        ">=" => "<=",
        "!=" => "!=",
        _ => return None,
    };
    (walker.unit.variable(right) == Some(variable) && !asks(left)).then_some((turned, left))
}

fn stepped<'t>(walker: &Walker<'t>, node: Node<'t>, variable: &str) -> Option<i64> {
    let text = |name: &str| node.child_by_field_name(name).map(|n| walker.unit.text_of(n));
    match node.kind() {
        "update_expression" if text("argument")? == variable => Some(if text("operator")? == "++" { 1 } else { -1 }),
        "assignment_expression" if text("left")? == variable => {
            let by: i64 = text("right").and_then(|t| t.parse().ok()).filter(|by| (1..1 << 30).contains(by))?;
            match text("operator")? {
                "+=" => Some(by),
                "-=" => Some(-by),
                _ => None,
            }
        }
        _ => None,
    }
}

/// How often a loop goes round.
fn times(walker: &Walker<'_>, from: &Typed, bound: &Typed, op: &str, step: i64) -> Option<Expr> {
    let one = || Expr::int(1);
    let (a, b) = (from.expr.clone(), bound.expr.clone());
    let (distance, least) = match (op, step) {
        ("<", 1..) | ("!=", 1) => (Expr::binary("-", b, a), bound.low - from.high),
        ("<=", 1..) => (Expr::binary("-", Expr::binary("+", b, one()), a), bound.low - from.high + 1),
        (">", ..=-1) | ("!=", -1) => (Expr::binary("-", a, b), from.low - bound.high),
        (">=", ..=-1) => (Expr::binary("-", Expr::binary("+", a, one()), b), from.low - bound.high + 1),
        _ => return None,
    };
    let by = step.saturating_abs();
    let rounds = match by {
        1 => distance,
        _ => Expr::binary("/", Expr::binary("+", distance, Expr::int(by - 1)), Expr::int(by)),
    };
    let known = least >= 0 || never_negative(walker, &rounds);
    Some(if known { rounds } else { Expr::Call("max", vec![Expr::int(0), rounds]) })
}

/// Whether an expression is at least 0 where parameters are; for one below, the language has an
/// error.
fn never_negative(walker: &Walker<'_>, value: &Expr) -> bool {
    match value {
        Expr::Number(_) | Expr::Sizeof(_) => true,
        Expr::Name(name) => name == "procnum" || name == "numprocs" || walker.parameters.contains(name),
        Expr::Binary("+" | "*" | "/", ab) => never_negative(walker, &ab.0) && never_negative(walker, &ab.1),
        _ => false,
    }
}

//! How long a loop goes on: a count where C's `for` tells one, a condition on what messages bind, else a parameter.

use tree_sitter::Node;

use crate::c::{self, line, unwrapped};
use crate::expr::Expr;
use crate::steps::Head;
use crate::translate::{LOOPS, ancestor, statements_of};
use crate::walk::{Frame, Walker};

/// The inside of a loop.
pub struct Inner<'t> {
    /// What is known there.
    pub frame: Frame<'t>,
    /// The name of the index.
    pub index: Option<String>,
}

/// A `for` that counts.
struct Counted<'t> {
    variable: &'t str,
    from: Expr,
    /// How often it goes round.
    times: Expr,
    step: Step,
}

#[derive(Clone, Copy, PartialEq)]
enum Step {
    Add(i64),
    Double,
}

/// How long a loop goes on, and what is known in its body.
pub fn head<'t>(walker: &mut Walker<'t>, node: Node<'t>, body: Node<'t>, frame: &Frame<'t>) -> (Head, Inner<'t>) {
    leaving(walker, node, body);
    if node.kind() == "for_statement"
        && let Some(counted) = counted(walker, node, body, frame)
    {
        if let Some(place) = breaks(walker, body).first() {
            let why = format!("the loop of line {} may be left here: the model counts all its iterations", line(node));
            walker.note(line(*place), None, &why);
        }
        let mut inner = frame.clone();
        let index = Expr::name(counted.variable);
        let value = match counted.step {
            Step::Add(step) => match counted.from.as_int() {
                Some(_) => Expr::binary("+", Expr::binary("*", index, Expr::int(step)), counted.from),
                None => Expr::binary("+", counted.from, Expr::binary("*", index, Expr::int(step))),
            },
            Step::Double => Expr::binary("<<", counted.from, index),
        };
        inner.given.push((counted.variable, value));
        return (
            Head::Iterations(counted.times.to_string()),
            Inner { frame: inner, index: Some(counted.variable.to_owned()) },
        );
    }
    let inner = Inner { frame: frame.clone(), index: None };
    let condition = node.child_by_field_name("condition").map(unwrapped);
    let endless = condition.is_none_or(|c| matches!(walker.unit.text_of(c), "1" | "true"));
    let text = condition.map_or_else(|| "for (;;)".to_owned(), |c| walker.short(c));
    if endless {
        if let Some(condition) = left_by_message(walker, body, frame) {
            return (Head::While(condition), inner);
        }
    } else if let Some(condition) = condition
        && let Ok(value) = walker.value(condition, frame)
        && depends_on_messages(walker, &value, frame)
    {
        return (Head::While(begun(&value)), inner);
    }
    let why = match breaks(walker, body).first() {
        Some(place) if endless => format!("how often the loop goes round: it ends by line {}", line(*place)),
        _ => format!("how often the loop goes round: that is decided by {text}"),
    };
    let times = walker.parameter(&format!("iterations_{}", line(node)), node, frame, &why);
    (Head::Iterations(times.to_string()), inner)
}

/// Tells what leaves a loop or an iteration in a way that the model does not have.
fn leaving<'t>(walker: &mut Walker<'t>, node: Node<'t>, body: Node<'t>) {
    let mut found = Vec::new();
    c::each(body, |inner| {
        if matches!(inner.kind(), "continue_statement" | "return_statement" | "goto_statement") {
            found.push(inner);
        }
        !LOOPS.contains(&inner.kind())
    });
    for place in found {
        let text = walker.short(place);
        let why = format!("{text} within the loop of line {}: the model goes on as if it were not there", line(node));
        walker.note(line(place), None, &why);
    }
}

/// The `break`s that end this loop.
fn breaks<'t>(_walker: &Walker<'t>, body: Node<'t>) -> Vec<Node<'t>> {
    let mut found = Vec::new();
    c::each(body, |inner| {
        if inner.kind() == "break_statement" {
            found.push(inner);
        }
        !LOOPS.contains(&inner.kind()) && inner.kind() != "switch_statement"
    });
    found
}

fn depends_on_messages<'t>(walker: &Walker<'t>, value: &Expr, frame: &Frame<'t>) -> bool {
    value.any(&mut |e| matches!(e, Expr::Name(n) if walker.bound(n, frame).is_some()))
}

/// The condition with what makes it hold before anything has been received: a status has source and tag -1 then.
fn begun(value: &Expr) -> String {
    let mut field = None;
    value.any(&mut |e| {
        if let Expr::Name(name) = e
            && (name.ends_with(".MPI_TAG") || name.ends_with(".MPI_SOURCE"))
        {
            field = Some(name.clone());
        }
        false
    });
    match field {
        // Nothing has the tag or source -1, so this holds at the start by itself.
        Some(_) if matches!(value, Expr::Binary("!=", _)) => value.to_string(),
        Some(field) => {
            let at_start = Expr::binary("==", Expr::Name(field), Expr::int(-1));
            Expr::binary("||", at_start, value.clone()).to_string()
        }
        None => value.to_string(),
    }
}

/// `for (;;) { receive; if (what it bound) break; ... }`: while the opposite holds.
fn left_by_message<'t>(walker: &mut Walker<'t>, body: Node<'t>, frame: &Frame<'t>) -> Option<String> {
    let all = breaks(walker, body);
    let [only] = all.as_slice() else { return None };
    let branch = ancestor(*only, &["if_statement"])?;
    let statements = statements_of(body);
    let at = statements.iter().position(|s| *s == branch)?;
    let plain = branch.child_by_field_name("alternative").is_none()
        && branch.child_by_field_name("consequence").is_some_and(|c| statements_of(c) == [*only]);
    let before = *statements[..at].iter().rev().find(|s| walker.communicates(**s)).filter(|_| plain)?;
    let value = walker.value(branch.child_by_field_name("condition")?, frame).ok()?;
    // The message right before the condition must be the one that it asks about.
    let text = walker.unit.text_of(before);
    let asks = value.any(&mut |e| matches!(e, Expr::Name(n) if text.contains(n.split('.').next().unwrap_or(n))));
    (asks && depends_on_messages(walker, &value, frame)).then(|| begun(&value.inverted()))
}

/// A `for` whose variable starts somewhere, goes on evenly, and ends at a bound.
fn counted<'t>(walker: &mut Walker<'t>, node: Node<'t>, body: Node<'t>, frame: &Frame<'t>) -> Option<Counted<'t>> {
    let field = |name: &str| node.child_by_field_name(name);
    let (variable, from) = started(walker, field("initializer")?)?;
    let (op, bound) = bounded(walker, unwrapped(field("condition")?), variable)?;
    let step = stepped(walker, unwrapped(field("update")?), variable)?;
    let inside = |at: usize| body.byte_range().contains(&at);
    let writes = walker.unit.functions[frame.function].writes.get(variable);
    if writes.into_iter().flatten().any(|w| inside(w.node.start_byte())) {
        return None;
    }
    let (from, bound) = (walker.value(from, frame).ok()?, walker.value(bound, frame).ok()?);
    Some(Counted { variable, times: times(&from, &bound, op, step)?, from, step })
}

fn started<'t>(walker: &Walker<'t>, node: Node<'t>) -> Option<(&'t str, Node<'t>)> {
    let node = match node.kind() {
        "declaration" => node.child_by_field_name("declarator")?,
        _ => node,
    };
    match node.kind() {
        "init_declarator" => {
            Some((walker.unit.variable(node.child_by_field_name("declarator")?)?, node.child_by_field_name("value")?))
        }
        "assignment_expression" => {
            Some((walker.unit.variable(node.child_by_field_name("left")?)?, node.child_by_field_name("right")?))
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
    if walker.unit.variable(left) == Some(variable) {
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
    (walker.unit.variable(right) == Some(variable)).then_some((turned, left))
}

fn stepped<'t>(walker: &Walker<'t>, node: Node<'t>, variable: &str) -> Option<Step> {
    let text = |name: &str| node.child_by_field_name(name).map(|n| walker.unit.text_of(n));
    match node.kind() {
        "update_expression" if text("argument")? == variable => {
            Some(Step::Add(if text("operator")? == "++" { 1 } else { -1 }))
        }
        "assignment_expression" if text("left")? == variable => {
            let by: Option<i64> = text("right").and_then(|t| t.parse().ok());
            match (text("operator")?, by) {
                ("+=", Some(by)) if by > 0 => Some(Step::Add(by)),
                ("-=", Some(by)) if by > 0 => Some(Step::Add(-by)),
                ("*=", Some(2)) | ("<<=", Some(1)) => Some(Step::Double),
                _ => None,
            }
        }
        _ => None,
    }
}

/// How often a loop goes round.
fn times(from: &Expr, bound: &Expr, op: &str, step: Step) -> Option<Expr> {
    let one = || Expr::int(1);
    let distance = match (op, step) {
        ("<", Step::Add(1..)) | ("!=", Step::Add(1)) => Expr::binary("-", bound.clone(), from.clone()),
        ("<=", Step::Add(1..)) => Expr::binary("-", Expr::binary("+", bound.clone(), one()), from.clone()),
        (">", Step::Add(..=-1)) | ("!=", Step::Add(-1)) => Expr::binary("-", from.clone(), bound.clone()),
        (">=", Step::Add(..=-1)) => Expr::binary("-", Expr::binary("+", from.clone(), one()), bound.clone()),
        ("<", Step::Double) => {
            let ratio = Expr::binary("/", Expr::binary("*", Expr::Number("1.0".into()), bound.clone()), from.clone());
            return Some(Expr::Call("ceil", vec![Expr::Call("log2", vec![ratio])]));
        }
        _ => return None,
    };
    let Step::Add(by) = step else { return None };
    let by = by.saturating_abs();
    let rounds = match by {
        1 => distance,
        _ => Expr::binary("/", Expr::binary("+", distance, Expr::int(by - 1)), Expr::int(by)),
    };
    Some(if never_negative(&rounds) { rounds } else { Expr::Call("max", vec![Expr::int(0), rounds]) })
}

/// Whether an expression is plainly at least 0, where counts and parameters are.
fn never_negative(value: &Expr) -> bool {
    match value {
        Expr::Number(_) | Expr::Name(_) | Expr::Sizeof(_) => true,
        Expr::Binary("-", ab) => ab.0 == Expr::name("numprocs") && ab.1.as_int() == Some(1),
        Expr::Binary("+" | "*" | "/", ab) => never_negative(&ab.0) && never_negative(&ab.1),
        _ => false,
    }
}

//! From expressions of C to expressions of the model: what a variable holds is looked up where it is assigned, what cannot be
//! known becomes a parameter with a reason.

use tree_sitter::Node;

use crate::c::{self, Write, line, unwrapped};
use crate::expr::{Expr, MOST_PARTS, operator};
use crate::walk::{Frame, Walker};

/// How deep expressions and what they refer to may go.
const MOST_DEPTH: usize = 60;

/// Why an expression has no value in a model.
pub type Reason = String;

/// Functions that C and the directive language have both.
const FUNCTIONS: [(&str, &str); 18] = [
    ("min", "min"),
    ("max", "max"),
    ("MIN", "min"),
    ("MAX", "max"),
    ("fmin", "min"),
    ("fmax", "max"),
    ("abs", "abs"),
    ("labs", "abs"),
    ("fabs", "abs"),
    ("floor", "floor"),
    ("ceil", "ceil"),
    ("round", "round"),
    ("sqrt", "sqrt"),
    ("log", "log"),
    ("log2", "log2"),
    ("exp", "exp"),
    ("pow", "pow"),
    ("powf", "pow"),
];

/// Names that mean something to the directive language.
const TAKEN: [&str; 8] = ["procnum", "numprocs", "parameter", "sizeof", "ANY", "min", "max", "unit"];

/// Words that make up C's number types, with the typedefs that everybody has.
const NUMBERS: [&str; 21] = [
    "char", "short", "int", "long", "signed", "unsigned", "float", "double", "complex", "_Complex", "bool", "_Bool",
    "size_t", "int8_t", "uint8_t", "int16_t", "uint16_t", "int32_t", "uint32_t", "int64_t", "uint64_t",
];

impl<'t> Walker<'t> {
    /// The value of a node as an expression of the model.
    ///
    /// # Errors
    /// Why it has none. A variable that is not known is no error: it becomes a parameter.
    pub fn value(&mut self, node: Node<'t>, frame: &Frame<'t>) -> Result<Expr, Reason> {
        if self.depth > MOST_DEPTH {
            return Err("nested too deeply".into());
        }
        self.depth += 1;
        let value = self.value_of(unwrapped(node), frame);
        self.depth -= 1;
        value.and_then(|v| if v.parts() > MOST_PARTS { Err("too long an expression".into()) } else { Ok(v) })
    }

    fn value_of(&mut self, node: Node<'t>, frame: &Frame<'t>) -> Result<Expr, Reason> {
        let field = |name: &str| node.child_by_field_name(name).ok_or_else(|| "not an expression of C".to_owned());
        match node.kind() {
            "number_literal" => number(self.unit.text_of(node)),
            "char_literal" => character(self.unit.text_of(node)),
            "true" => Ok(Expr::int(1)),
            "false" | "null" => Ok(Expr::int(0)),
            "identifier" | "field_expression" => match self.unit.variable(node) {
                Some(name) => self.variable(name, node, frame),
                None => Err("it is reached by a pointer".into()),
            },
            "cast_expression" => self.cast(field("type")?, field("value")?, frame),
            "sizeof_expression" => self.size_of(node),
            "unary_expression" => {
                let inner = self.value(field("argument")?, frame)?;
                match self.unit.text_of(field("operator")?) {
                    "+" => Ok(inner),
                    "-" => Ok(inner
                        .as_int()
                        .and_then(i64::checked_neg)
                        .map_or_else(|| Expr::Unary("-", Box::new(inner)), Expr::int)),
                    "!" => Ok(Expr::Unary("!", Box::new(inner))),
                    "~" => Ok(Expr::Unary("~", Box::new(inner))),
                    other => Err(format!("the operator {other}")),
                }
            }
            "binary_expression" => {
                let text = self.unit.text_of(field("operator")?);
                let op = operator(text).ok_or_else(|| format!("the operator {text}"))?;
                let left = self.value(field("left")?, frame)?;
                Ok(Expr::binary(op, left, self.value(field("right")?, frame)?))
            }
            "conditional_expression" => {
                let condition = self.value(field("condition")?, frame)?;
                let (a, b) = (self.value(field("consequence")?, frame)?, self.value(field("alternative")?, frame)?);
                Ok(Expr::Choice(Box::new((condition, a, b))))
            }
            "call_expression" => self.result_of(node, frame),
            "subscript_expression" => Err(format!("it is an element of an array, {}", self.short(node))),
            "assignment_expression" | "update_expression" | "comma_expression" => {
                Err(format!("{} changes a variable", self.short(node)))
            }
            _ => Err(format!("no directive can say {}", self.short(node))),
        }
    }

    /// A node's text as it fits a line for people.
    pub fn short(&self, node: Node<'t>) -> String {
        const MOST: usize = 40;
        let words: Vec<&str> = self.unit.text_of(node).split_whitespace().take(MOST).collect();
        let text = words.join(" ");
        match text.char_indices().nth(MOST) {
            Some((end, _)) => format!("{}...", &text[..end]),
            None => text,
        }
    }

    fn result_of(&mut self, call: Node<'t>, frame: &Frame<'t>) -> Result<Expr, Reason> {
        let name = call.child_by_field_name("function").map_or("", |f| self.unit.text_of(f));
        let Some((_, function)) = FUNCTIONS.iter().find(|(c, _)| *c == name) else {
            return Err(format!("it comes from {}", self.short(call)));
        };
        let mut values = Vec::new();
        for argument in c::arguments(call) {
            values.push(self.value(argument, frame)?);
        }
        if values.len() != if matches!(*function, "min" | "max" | "pow") { 2 } else { 1 } {
            return Err(format!("it comes from {}", self.short(call)));
        }
        Ok(Expr::Call(function, values))
    }

    fn cast(&mut self, to: Node<'t>, value: Node<'t>, frame: &Frame<'t>) -> Result<Expr, Reason> {
        let inner = self.value(value, frame)?;
        let text = self.unit.text_of(to);
        if text.contains('*') {
            return Err("it is a pointer".into());
        }
        if text.contains("float") || text.contains("double") {
            return Ok(Expr::binary("*", Expr::Number("1.0".into()), inner));
        }
        let fraction = |e: &Expr| match e {
            Expr::Number(text) => text.contains(['.', 'e', 'E']),
            Expr::Call(name, _) => !matches!(*name, "min" | "max" | "abs" | "floor" | "ceil" | "round"),
            _ => false,
        };
        Ok(if inner.any(&mut |e| fraction(e)) { Expr::Call("floor", vec![inner]) } else { inner })
    }

    /// `sizeof` of a type that the language knows, or finds declared in the file.
    fn size_of(&self, node: Node<'t>) -> Result<Expr, Reason> {
        let inner = node.child_by_field_name("type").or_else(|| node.child_by_field_name("value").map(unwrapped));
        let text = inner.map_or("", |n| self.unit.text_of(n)).split_whitespace().collect::<Vec<_>>().join(" ");
        let basic = text.split(' ').all(|word| NUMBERS.contains(&word)) && !text.is_empty();
        let named = self.unit.types.contains_key(text.strip_prefix("struct ").unwrap_or(&text));
        if basic || named || text.ends_with('*') { Ok(Expr::Sizeof(text)) } else { Err(format!("the size of {text}")) }
    }

    /// What a variable holds at a place.
    fn variable(&mut self, name: &'t str, at: Node<'t>, frame: &Frame<'t>) -> Result<Expr, Reason> {
        if let Some((_, value)) = frame.given.iter().rev().find(|(given, _)| *given == name) {
            let value = value.clone();
            value.any(&mut |part| {
                if let Expr::Name(name) = part {
                    self.used.insert(name.clone());
                }
                false
            });
            return Ok(value);
        }
        match name {
            "MPI_PROC_NULL" => return Ok(Expr::Null),
            "MPI_ANY_SOURCE" | "MPI_ANY_TAG" => return Ok(Expr::Any),
            "NULL" => return Ok(Expr::int(0)),
            _ => {}
        }
        if let Some(bound) = self.bound(name, frame) {
            return Ok(bound);
        }
        let function = &self.unit.functions[frame.function];
        let base = base_of(name);
        let local = function.locals.get(base).copied();
        if local.is_none() && self.constant(name) {
            return Ok(Expr::name(name));
        }
        if local == Some(1) && function.parameters.contains(&name) && !function.writes.contains_key(name) {
            if frame.function == self.start {
                return Ok(self.parameter(name, at, frame, "an argument of the function that the model begins with"));
            }
            self.formals.insert((frame.function, name));
            return Ok(Expr::name(name));
        }
        let writes = self.writes_of(name, local.is_some(), frame.function);
        if local.unwrap_or(0) > 1 {
            return Ok(self.parameter(
                &format!("{name}_{}", line(at)),
                at,
                frame,
                &format!("there are several variables {name}"),
            ));
        }
        self.written(name, at, &writes, frame)
    }

    /// Whether a name is a constant that the language itself reads: of an `enum`, or a plain `#define`.
    fn constant(&self, name: &str) -> bool {
        let number = |node: Node<'t>| {
            let mut plain = true;
            c::each(node, |n| {
                plain &= !matches!(n.kind(), "identifier" | "call_expression" | "ERROR");
                plain
            });
            plain
        };
        if let Some((value, _)) = self.unit.constants.get(name) {
            return value.is_none_or(number);
        }
        self.unit.writes.get(name).is_some_and(|writes| match writes.as_slice() {
            [one] => one.node.start_byte() >= self.unit.own_bytes && one.value.is_some_and(number),
            _ => false,
        })
    }

    /// All that is assigned to a variable: in its function, or for one of the file in all of them.
    fn writes_of(&self, name: &str, local: bool, function: usize) -> Vec<Write<'t>> {
        if local {
            return self.unit.functions[function].writes.get(name).cloned().unwrap_or_default();
        }
        let mut all = self.unit.writes.get(name).cloned().unwrap_or_default();
        let base = base_of(name);
        for other in self.unit.functions.iter().filter(|f| !f.locals.contains_key(base)) {
            all.extend(other.writes.get(name).into_iter().flatten().copied());
        }
        all
    }

    fn written(
        &mut self,
        name: &'t str,
        at: Node<'t>,
        writes: &[Write<'t>],
        frame: &Frame<'t>,
    ) -> Result<Expr, Reason> {
        for (call, value) in [("MPI_Comm_rank", "procnum"), ("MPI_Comm_size", "numprocs")] {
            if writes.iter().any(|w| w.by == call)
                && writes.iter().all(|w| w.by == call || (w.by == "=" && w.node.kind() == "init_declarator"))
            {
                self.other_communicator(writes, at);
                return Ok(Expr::name(value));
            }
        }
        if self.kept.get(&(frame.function, name)) == Some(&true) {
            return Ok(Expr::name(name));
        }
        if self.resolving.contains(&(frame.function, name)) {
            return Ok(self.parameter(&format!("{name}_{}", line(at)), at, frame, "its value depends on itself"));
        }
        self.resolving.push((frame.function, name));
        let value = self.folded(name, writes, frame);
        self.resolving.pop();
        match value {
            Ok(value) => Ok(value),
            Err(_) if writes.len() > 1 && self.keeps(name, frame) => Ok(Expr::name(name)),
            // One value throughout: the name itself says what is meant.
            Err(why) if writes.len() <= 1 => Ok(self.parameter(name, at, frame, &why)),
            Err(why) if writes.iter().all(|w| w.by == "=" && ancestor(w.node, &LOOPS).is_none()) => {
                let start = writes[0].value.and_then(|v| self.value(v, frame).ok());
                let parameter = self.parameter(name, at, frame, &why);
                if let (Some(start), Expr::Name(name)) = (start.filter(|s| s.as_int().is_some()), &parameter) {
                    self.defaults.insert(name.clone(), start.to_string());
                }
                Ok(parameter)
            }
            Err(why) => Ok(self.parameter(&format!("{name}_{}", line(at)), at, frame, &why)),
        }
    }

    /// The value that a variable has after all its assignments, if they follow a pattern that can be said in one expression.
    fn folded(&mut self, name: &'t str, writes: &[Write<'t>], frame: &Frame<'t>) -> Result<Expr, Reason> {
        let Some((first, rest)) = writes.split_first() else {
            return Err("nothing in this file gives it a value".into());
        };
        let start = match (first.value, first.by) {
            (Some(value), _) => self.value(value, frame),
            (None, "=" | "++") => Err(format!("it changes in line {}", line(first.node))),
            (None, by) if by.ends_with('=') => Err(format!("it changes in line {}", line(first.node))),
            (None, by) => Err(format!("{by} sets it in line {}", line(first.node))),
        };
        if rest.is_empty() {
            return start;
        }
        if let [second] = rest
            && let Some(value) = self.of_both_branches(first, second, frame)
        {
            return value;
        }
        let mut current = start?;
        for write in rest {
            let changes = || format!("{current} at first; line {} changes it", line(write.node));
            let (Some(value), Some(branch)) = (write.value, ancestor(write.node, &["if_statement"])) else {
                return Err(changes());
            };
            let plain = ancestor(write.node, &LOOPS).is_none() && branch.child_by_field_name("alternative").is_none();
            let Some(condition) = branch.child_by_field_name("condition").filter(|_| plain) else {
                return Err(changes());
            };
            let mut before = frame.clone();
            before.given.push((name, current.clone()));
            let asked = self.value(condition, &before).and_then(|c| Ok((c, self.value(value, &before)?)));
            let (condition, value) = asked.map_err(|why| format!("{}: {why}", changes()))?;
            if condition.any(&mut |e| matches!(e, Expr::Name(n) if n.starts_with("argc") || n.starts_with("argv"))) {
                return Err(changes());
            }
            current = Expr::Choice(Box::new((condition, value, current)));
        }
        Ok(current)
    }

    /// `if (c) v = a; else v = b;`
    fn of_both_branches(&mut self, a: &Write<'t>, b: &Write<'t>, frame: &Frame<'t>) -> Option<Result<Expr, Reason>> {
        let (first, second) = (ancestor(a.node, &["if_statement"])?, ancestor(b.node, &["if_statement"])?);
        let other = first.child_by_field_name("alternative")?;
        let apart = other.start_byte() > a.node.start_byte() && other.byte_range().contains(&b.node.start_byte());
        if first != second || !apart || ancestor(a.node, &LOOPS).is_some() {
            return None;
        }
        let condition = first.child_by_field_name("condition")?;
        let (x, y) = (a.value?, b.value?);
        Some((|| {
            let condition = self.value(condition, frame)?;
            Ok(Expr::Choice(Box::new((condition, self.value(x, frame)?, self.value(y, frame)?))))
        })())
    }

    /// Says so where a rank or number of processes is that of another communicator than `MPI_COMM_WORLD`.
    fn other_communicator(&mut self, writes: &[Write<'t>], at: Node<'t>) {
        let calls = writes.iter().filter(|w| w.by.starts_with("MPI_Comm_"));
        let comms: Vec<&str> =
            calls.filter_map(|w| c::arguments(w.node).first().map(|a| self.unit.text_of(*a))).collect();
        if let Some(comm) = comms.iter().find(|c| **c != "MPI_COMM_WORLD") {
            let why = format!("ranks of {comm} are taken for those of MPI_COMM_WORLD");
            self.note(line(at), None, &why);
        }
    }

    /// A parameter that stands for what is not known, with its reason. The same name for two variables gets a line.
    pub fn parameter(&mut self, name: &str, at: Node<'t>, frame: &Frame<'t>, why: &str) -> Expr {
        let clean: String = name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect();
        let function = &self.unit.functions[frame.function];
        let base = base_of(name);
        let owner = function.locals.contains_key(base).then_some(frame.function);
        let taken = TAKEN.contains(&clean.as_str());
        let other = self.owners.get(&clean).is_some_and(|known| *known != owner);
        let clean = if taken || other { format!("{clean}_{}", line(at)) } else { clean };
        self.owners.insert(clean.clone(), owner);
        self.note(line(at), Some(&clean), why);
        Expr::Name(clean)
    }
}

/// The variable that a field belongs to.
fn base_of(name: &str) -> &str {
    name.split(['.', '-']).next().unwrap_or(name)
}

/// Statements that repeat.
pub const LOOPS: [&str; 3] = ["for_statement", "while_statement", "do_statement"];

/// The innermost statement of some kinds around a node, within its function.
pub fn ancestor<'t>(node: Node<'t>, kinds: &[&str]) -> Option<Node<'t>> {
    // A deep nest is looked at only so far: asking for parents is slow.
    const MOST: usize = 100;
    let mut at = node.parent();
    for _ in 0..MOST {
        let parent = at?;
        if kinds.contains(&parent.kind()) {
            return Some(parent);
        }
        if parent.kind() == "function_definition" {
            return None;
        }
        at = parent.parent();
    }
    None
}

fn number(text: &str) -> Result<Expr, Reason> {
    let lower = text.to_ascii_lowercase().replace('\'', "");
    let bad = || format!("the number {text}");
    if let Some(digits) = lower.strip_prefix("0x") {
        let digits = digits.trim_end_matches(['u', 'l']);
        return i64::from_str_radix(digits, 16).map(Expr::int).map_err(|_| bad());
    }
    if let Some(digits) = lower.strip_prefix("0b") {
        return i64::from_str_radix(digits.trim_end_matches(['u', 'l']), 2).map(Expr::int).map_err(|_| bad());
    }
    if lower.contains(['.', 'e']) {
        let digits = lower.trim_end_matches(['f', 'l']);
        return match digits.parse::<f64>() {
            Ok(value) if value.is_finite() => {
                Ok(Expr::Number(if digits.contains('e') { format!("{value:?}") } else { tidy(digits) }))
            }
            _ => Err(bad()),
        };
    }
    let digits = lower.trim_end_matches(['u', 'l']);
    if digits.len() > 1 && digits.starts_with('0') {
        return i64::from_str_radix(digits, 8).map(Expr::int).map_err(|_| bad());
    }
    digits.parse::<i64>().map(Expr::int).map_err(|_| bad())
}

/// `.5` and `5.` with the digits that they leave out.
fn tidy(digits: &str) -> String {
    let front = if digits.starts_with('.') { "0" } else { "" };
    let back = if digits.ends_with('.') { "0" } else { "" };
    format!("{front}{digits}{back}")
}

fn character(text: &str) -> Result<Expr, Reason> {
    let inner = text.trim_matches('\'');
    let mut chars = inner.chars();
    match (chars.next(), chars.next()) {
        (Some(c), None) if c != '\\' => Ok(Expr::int(i64::from(u32::from(c)))),
        _ => Err(format!("the character {text}")),
    }
}

/// The statements of a body, with brackets or without.
pub fn statements_of(body: Node<'_>) -> Vec<Node<'_>> {
    if body.kind() == "compound_statement" { c::children(body) } else { vec![body] }
}

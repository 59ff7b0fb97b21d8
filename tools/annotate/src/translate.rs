//! From expressions of C to expressions of the model, with C's types; what a variable holds is
//! looked up (`vars.rs`), what cannot be known becomes a parameter with a reason.

use tree_sitter::Node;

use crate::c::{self, unwrapped};
use crate::expr::{Expr, MOST_PARTS, operator};
use crate::types::{INT, LONG, SIZE, Ty, Typed};
use crate::walk::{Frame, Walker};

/// How deep expressions and what they refer to may go.
const MOST_DEPTH: usize = 60;

/// Why an expression has no value in a model.
pub type Reason = String;

/// Functions that C and the directive language have both, and what C makes of them: of `double` by
/// rule, else of the type of its arguments.
const FUNCTIONS: [(&str, &str, bool); 18] = [
    ("min", "min", false),
    ("max", "max", false),
    ("MIN", "min", false),
    ("MAX", "max", false),
    ("fmin", "min", true),
    ("fmax", "max", true),
    ("abs", "abs", false),
    ("labs", "abs", false),
    ("fabs", "abs", true),
    ("floor", "floor", true),
    ("ceil", "ceil", true),
    ("round", "round", true),
    ("sqrt", "sqrt", true),
    ("log", "log", true),
    ("log2", "log2", true),
    ("log10", "log10", true),
    ("exp", "exp", true),
    ("pow", "pow", true),
];

impl<'t> Walker<'t> {
    /// The value of a node as an expression of the model.
    ///
    /// # Errors
    /// Why it has none. A variable that is not known is no error: it becomes a parameter.
    pub fn value(&mut self, node: Node<'t>, frame: &Frame) -> Result<Expr, Reason> {
        Ok(self.typed(node, frame)?.settled().expr)
    }

    /// The same as a count or rank, which C makes an `int`. What does not fit one is no message, so
    /// that nothing is cut.
    pub fn whole(&mut self, node: Node<'t>, frame: &Frame) -> Result<Expr, Reason> {
        let value = self.typed(node, frame)?;
        Ok(if value.ty.floats() { value.converted(INT).settled().expr } else { value.expr })
    }

    /// The value of a node, with its type.
    ///
    /// # Errors
    /// As [`Self::value`].
    pub fn typed(&mut self, node: Node<'t>, frame: &Frame) -> Result<Typed, Reason> {
        if self.depth > MOST_DEPTH {
            return Err("nested too deeply".into());
        }
        self.depth += 1;
        let value = self.value_of(unwrapped(node), frame);
        self.depth -= 1;
        value.and_then(|v| if v.expr.parts() > MOST_PARTS { Err("too long an expression".into()) } else { Ok(v) })
    }

    /// An operand: a value that may stand among operators.
    fn operand(&mut self, node: Node<'t>, frame: &Frame) -> Result<Typed, Reason> {
        if let Some(name) = self.loose(node) {
            return Err(format!("{name} is a macro without brackets around what it stands for"));
        }
        match self.typed(node, frame)? {
            Typed { expr: Expr::Any, .. } => Err("a wildcard among operators".into()),
            value => Ok(value),
        }
    }

    /// The name, if a node is that of a macro whose parts an operator beside it may take.
    fn loose(&self, node: Node<'t>) -> Option<&'t str> {
        let name = Some(node).filter(|n| n.kind() == "identifier").map(|n| self.unit.text_of(n))?;
        let macro_of = self.unit.macros.get(name).filter(|m| !m.takes)?;
        let var = self.unit.resolve(name, node.start_byte())?;
        let value = self.unit.writes_of(name, var).first()?.value?;
        let kind = unwrapped(value).kind();
        let bracketed = macro_of.body.trim_start().starts_with('(') && macro_of.body.trim_end().ends_with(')');
        (matches!(kind, "binary_expression" | "conditional_expression") && !bracketed).then_some(name)
    }

    fn value_of(&mut self, node: Node<'t>, frame: &Frame) -> Result<Typed, Reason> {
        let field = |name: &str| node.child_by_field_name(name).ok_or_else(|| "not an expression of C".to_owned());
        match node.kind() {
            "number_literal" => number(self.unit.text_of(node)),
            "char_literal" => character(self.unit.text_of(node)),
            "true" => Ok(Typed::int(1, INT)),
            "false" => Ok(Typed::int(0, INT)),
            "identifier" | "field_expression" => match self.unit.variable(node) {
                Some(name) => self.variable(name, node, frame),
                None => Err("it is reached by a pointer".into()),
            },
            "cast_expression" => self.cast(field("type")?, field("value")?, frame),
            "sizeof_expression" => self.size_of(node, frame),
            "unary_expression" => {
                let inner = self.operand(field("argument")?, frame)?;
                Typed::unary(self.unit.text_of(field("operator")?), inner)
            }
            "binary_expression" => {
                let text = self.unit.text_of(field("operator")?);
                let op = operator(text).ok_or_else(|| format!("the operator {text}"))?;
                let left = self.operand(field("left")?, frame)?;
                Typed::binary(op, left, self.operand(field("right")?, frame)?)
            }
            "conditional_expression" => {
                let condition = self.operand(field("condition")?, frame)?;
                let (a, b) = (field("consequence")?, field("alternative")?);
                let a = self.operand(a, frame)?;
                Ok(Typed::choice(condition, a, self.operand(b, frame)?))
            }
            "call_expression" => self.result_of(node, frame),
            "subscript_expression" => Err(format!("it is an element of an array, {}", self.short(node))),
            "assignment_expression" | "update_expression" | "comma_expression" => {
                Err(format!("{} changes a variable", self.short(node)))
            }
            "null" => Err("it is a pointer".into()),
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

    fn result_of(&mut self, call: Node<'t>, frame: &Frame) -> Result<Typed, Reason> {
        let name = call.child_by_field_name("function").map_or("", |f| self.unit.text_of(f));
        let own = self.unit.function(name).is_some();
        let from = || format!("it comes from {}", self.short(call));
        let Some((_, function, double)) = FUNCTIONS.iter().find(|(c, ..)| *c == name && !own).copied() else {
            return Err(from());
        };
        if self.unit.macros.get(name).is_some_and(|m| !is_usual(function, m.body)) {
            return Err(format!("{name} is a macro of this file"));
        }
        let arguments = c::arguments(call);
        if arguments.len() != if matches!(function, "min" | "max" | "pow") { 2 } else { 1 } {
            return Err(from());
        }
        let mut values = Vec::new();
        for argument in arguments {
            values.push(self.operand(argument, frame)?);
        }
        let ty = match (double, values.as_slice()) {
            (true, _) => Ty::Double,
            // Both have one type, as with C's operators.
            (false, [a, b]) => Typed::choice(Typed::of(Expr::name(""), INT), a.clone(), b.clone()).ty,
            _ if name == "labs" => LONG,
            _ => INT,
        };
        let (low, high) =
            values.iter().fold((i128::MAX, i128::MIN), |(low, high), v| (low.min(v.low), high.max(v.high)));
        let converted: Vec<Expr> = values.into_iter().map(|v| v.converted(ty).settled().expr).collect();
        let result = Expr::Call(function, converted);
        Ok(match (ty, function) {
            // The language rounds to whole numbers, C to doubles.
            (Ty::Double, "floor" | "ceil" | "round") => Typed::of(Expr::Cast("double", Box::new(result)), ty),
            (Ty::Int { .. }, "min" | "max") => {
                let (least, most) = ty.bounds();
                Typed::within(result, ty, low.clamp(least, most), high.clamp(least, most))
            }
            _ => Typed::of(result, ty),
        })
    }

    fn cast(&mut self, to: Node<'t>, value: Node<'t>, frame: &Frame) -> Result<Typed, Reason> {
        let inner = self.operand(value, frame)?;
        let text = self.unit.text_of(to);
        if text.contains('*') {
            return Err("it is a pointer".into());
        }
        let ty = self.unit.type_of(text.trim()).ok_or_else(|| format!("a cast to {text}"))?;
        Ok(inner.converted(ty).settled())
    }

    /// `sizeof` of a type that the language knows, or finds declared in the file.
    fn size_of(&mut self, node: Node<'t>, frame: &Frame) -> Result<Typed, Reason> {
        const MOST: i128 = 1 << 30;
        let mut count = None;
        let text = match (node.child_by_field_name("type"), node.child_by_field_name("value").map(unwrapped)) {
            (Some(of), _) => self.unit.text_of(of),
            // `sizeof(x)` of a variable is that of its type; of a type, the parser may take it for
            // one.
            (None, Some(value)) => match self.unit.resolve(self.unit.text_of(value), node.start_byte()) {
                Some(var) if self.unit.variables[var].ty.is_some() => self.unit.variables[var].words,
                Some(var) => {
                    let (words, extents) = (self.unit.variables[var].words, self.unit.variables[var].extents.clone());
                    let all = extents.and_then(|extents| self.product(&extents, frame));
                    count = Some(all.ok_or_else(|| format!("the size of {}", self.short(value)))?);
                    words
                }
                None => self.unit.text_of(value),
            },
            _ => "",
        };
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let named = self.unit.types.contains_key(text.strip_prefix("struct ").unwrap_or(&text));
        let known = Ty::of(&text).is_some() || matches!(text.as_str(), "long double");
        if known || named || text.ends_with('*') {
            Ok(match count {
                None | Some(1) => Typed::within(Expr::Sizeof(text), SIZE, 1, MOST),
                Some(count) => {
                    let parts = (Expr::Number(count.to_string()), Expr::Sizeof(text));
                    Typed::within(Expr::Binary("*", Box::new(parts)), SIZE, 0, MOST.saturating_mul(count.into()))
                }
            })
        } else {
            Err(format!("the size of {text}"))
        }
    }
}

impl<'t> Walker<'t> {
    /// How many numbers an array has, where the program says it in constants.
    fn product(&mut self, extents: &[Node<'t>], frame: &Frame) -> Option<u32> {
        let mut all = 1u32;
        for extent in extents {
            let value = self.operand(*extent, frame).ok().filter(|value| value.low == value.high)?;
            all = all.checked_mul(u32::try_from(value.low).ok()?)?;
        }
        Some(all)
    }
}

/// Whether the text of a macro is that of the minimum or maximum as everybody writes it.
fn is_usual(function: &str, body: &str) -> bool {
    let bare: String = body.chars().filter(|c| !c.is_whitespace() && !matches!(c, '(' | ')')).collect();
    let forms: &[&str] = match function {
        "min" => &[
            "a<b?a:b", "a<=b?a:b", "x<y?x:y", "x<=y?x:y", "b<a?b:a", "y<x?y:x", "a>b?b:a", "x>y?y:x", "X<Y?X:Y",
            "A<B?A:B",
        ],
        "max" => &[
            "a>b?a:b", "a>=b?a:b", "x>y?x:y", "x>=y?x:y", "b>a?b:a", "y>x?y:x", "a<b?b:a", "x<y?y:x", "X>Y?X:Y",
            "A>B?A:B",
        ],
        _ => &[],
    };
    forms.contains(&bare.as_str())
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

/// C's type of a whole number as it is written: the first that holds it.
fn whole_number(value: i64, suffix: &str, decimal: bool) -> Typed {
    let unsigned = suffix.contains('u');
    let long = suffix.contains('l');
    let fits = |ty: Ty| i128::from(value) <= ty.bounds().1;
    let uint = Ty::Int { bytes: 4, signed: false };
    let ty = match () {
        () if !unsigned && !long && fits(INT) => INT,
        () if (unsigned || !decimal) && !long && fits(uint) => uint,
        () if unsigned => SIZE,
        () => LONG,
    };
    Typed::int(value, ty)
}

fn number(text: &str) -> Result<Typed, Reason> {
    let lower = text.to_ascii_lowercase().replace('\'', "");
    let bad = || format!("the number {text}");
    let radix = |digits: &str, radix: u32| {
        let plain = digits.trim_end_matches(['u', 'l']);
        let value = i64::from_str_radix(plain, radix).map_err(|_| bad())?;
        Ok(whole_number(value, &digits[plain.len()..], radix == 10))
    };
    if let Some(digits) = lower.strip_prefix("0x") {
        return if digits.contains(['.', 'p']) { Err(bad()) } else { radix(digits, 16) };
    }
    if let Some(digits) = lower.strip_prefix("0b") {
        return radix(digits, 2);
    }
    if lower.contains(['.', 'e']) {
        if lower.ends_with('l') {
            return Err(bad());
        }
        let digits = lower.trim_end_matches('f');
        let ty = if digits.len() < lower.len() { Ty::Single } else { Ty::Double };
        return match digits.parse::<f64>() {
            Ok(value) if value.is_finite() => {
                let text = if digits.contains('e') { format!("{value:?}") } else { tidy(digits) };
                // A float's nearest number is not always the double's.
                let text = Expr::Number(text);
                let exact = ty == Ty::Double || f64::from(value as f32) == value;
                Ok(Typed::of(if exact { text } else { Expr::Cast("float", Box::new(text)) }, ty))
            }
            _ => Err(bad()),
        };
    }
    let octal = lower.len() > 1 && lower.starts_with('0') && lower.as_bytes()[1].is_ascii_digit();
    radix(&lower, if octal { 8 } else { 10 })
}

/// `.5` and `5.` with the digits that they leave out.
fn tidy(digits: &str) -> String {
    let front = if digits.starts_with('.') { "0" } else { "" };
    let back = if digits.ends_with('.') { "0" } else { "" };
    format!("{front}{digits}{back}")
}

fn character(text: &str) -> Result<Typed, Reason> {
    let inner = text.trim_matches('\'');
    let mut chars = inner.chars();
    match (chars.next(), chars.next()) {
        (Some(c), None) if c != '\\' && c.is_ascii() => Ok(Typed::int(i64::from(u32::from(c)), INT)),
        _ => Err(format!("the character {text}")),
    }
}

/// The statements of a body, with brackets or without.
pub fn statements_of(body: Node<'_>) -> Vec<Node<'_>> {
    if body.kind() == "compound_statement" { c::children(body) } else { vec![body] }
}

//! Expressions, resolved: names have become slots, constants are folded, what is left is evaluated
//! over a flat array.
//!
//! Numbers are C's: `long` (64 bits) or `double`; an operation on two integers gives an integer,
//! `/` cuts towards zero, `%` has the sign of its left side, comparisons and logic give 0 or 1.
//! Where C would be undefined, there is an [`EvalError`].

use std::fmt;

use thiserror::Error;

/// Beyond the integers.
const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;

/// A number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// A whole number.
    Int(i64),
    /// A number with a fraction; always finite.
    Float(f64),
}

impl Default for Value {
    fn default() -> Self {
        Self::Int(0)
    }
}

impl Value {
    /// The number as a floating one.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "C's conversion to double")]
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Int(v) => v as f64,
            Self::Float(v) => v,
        }
    }

    /// The number as a whole one, if it is one: 3.0 is, 3.5 is not.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "bounds are looked at")]
    pub fn as_i64(self) -> Option<i64> {
        match self {
            Self::Int(v) => Some(v),
            // 2^63 itself is no i64.
            Self::Float(v) if v.fract() == 0.0 && (-TWO_TO_63..TWO_TO_63).contains(&v) => Some(v as i64),
            Self::Float(_) => None,
        }
    }

    /// Whether it counts as true: it is not 0.
    #[must_use]
    pub fn truth(self) -> bool {
        match self {
            Self::Int(v) => v != 0,
            Self::Float(v) => v != 0.0,
        }
    }

    fn finite(v: f64) -> Result<Self, EvalError> {
        if v.is_finite() { Ok(Self::Float(v)) } else { Err(EvalError::NotFinite) }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(v) => write!(f, "{v}"),
            // Nobody counts zeros.
            Self::Float(v) if v.abs() >= 1e16 => write!(f, "{v:e}"),
            Self::Float(v) => write!(f, "{v}"),
        }
    }
}

/// Why an expression has no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum EvalError {
    /// A division by zero, or its rest.
    #[error("division by zero")]
    DivideByZero,
    /// The argument of `require` is false.
    #[error("this model holds only where the condition in `require` is true: here it is not")]
    Required,
    /// A whole number beyond 64 bits.
    #[error("a whole number beyond 64 bits")]
    Overflow,
    /// Infinite, or no number.
    #[error("a result that is not finite")]
    NotFinite,
    /// A fraction where a whole number is needed.
    #[error("{0}: a fraction where a whole number is needed")]
    Fraction(Fraction),
    /// A shift by less than 0 or more than 63.
    #[error("a shift by less than 0 or more than 63 bits")]
    Shift,
    /// The slot does not exist; an error of whoever made the array.
    #[error("slot {0} does not exist")]
    NoSlot(u32),
}

/// The offending fraction, kept as bits so that errors can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fraction(pub u64);

impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", f64::from_bits(self.0))
    }
}

/// The number of a slot in a process's array of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u32);

/// The process's own number.
pub const PROCNUM: Slot = Slot(0);
/// The number of processes.
pub const NUMPROCS: Slot = Slot(1);

/// Operators of one operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unary {
    /// `-`
    Negate,
    /// `!`
    Not,
    /// `~`
    Invert,
    /// A cast to `long`: cuts towards zero.
    Truncate,
    /// A cast to an integer type of so many bytes, 1, 2, 4 or 8: cuts towards zero; a whole number
    /// beyond the type's wraps, a fraction beyond it has no value. Of 8 bytes without sign, what is
    /// below 0 has no value here.
    Narrow(u8, Signed),
    /// A cast to `_Bool`: 1 if it is not 0.
    ToBool,
    /// A cast to `double`.
    ToFloat,
    /// A cast to `float`: the nearest of 32 bits.
    ToSingle,
}

/// Whether a type has negative numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "what they are called says it")]
pub enum Signed {
    Yes,
    No,
}

/// Operators of two operands. `&&` and `||` look at their right side only if they must.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is C's operator of that name")]
pub enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Equal,
    NotEqual,
    And,
    Or,
    BitAnd,
    BitOr,
    BitXor,
    ShiftLeft,
    ShiftRight,
}

/// Functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the function of that name in C's math library, or plain")]
pub enum Function {
    Min,
    Max,
    Abs,
    Floor,
    Ceil,
    Round,
    Sqrt,
    Log,
    Log2,
    Log10,
    Exp,
    Pow,
    /// 0 where the argument is true; else there is no value: the program is no model of this run.
    Require,
}

/// An expression over slots.
///
/// Never deeper than the parser's bound ([`MAX_DEPTH`]), so that evaluation may recurse.
#[derive(Debug, Clone, PartialEq)]
pub enum Expr {
    /// A number.
    Const(Value),
    /// What is in a slot.
    Slot(Slot),
    /// An operator of one operand.
    Unary(Unary, Box<Expr>),
    /// An operator of two operands.
    Binary(Binary, Box<(Expr, Expr)>),
    /// `c ? a : b`
    Select(Box<(Expr, Expr, Expr)>),
    /// A function of one or two arguments.
    Call(Function, Vec<Expr>),
}

/// How deep an expression may be.
pub const MAX_DEPTH: usize = 64;

impl Expr {
    /// A whole number.
    #[must_use]
    pub const fn int(value: i64) -> Self {
        Self::Const(Value::Int(value))
    }

    /// Its value over a process's slots.
    ///
    /// # Errors
    /// Where C's result would be undefined, infinite or no number.
    #[inline]
    pub fn eval(&self, slots: &[Value]) -> Result<Value, EvalError> {
        match self {
            Self::Const(value) => Ok(*value),
            Self::Slot(slot) => slots.get(slot.0 as usize).copied().ok_or(EvalError::NoSlot(slot.0)),
            Self::Unary(op, a) => unary(*op, a.eval(slots)?),
            Self::Binary(Binary::And, ab) => {
                Ok(Value::Int(i64::from(ab.0.eval(slots)?.truth() && ab.1.eval(slots)?.truth())))
            }
            Self::Binary(Binary::Or, ab) => {
                Ok(Value::Int(i64::from(ab.0.eval(slots)?.truth() || ab.1.eval(slots)?.truth())))
            }
            Self::Binary(op, ab) => binary(*op, ab.0.eval(slots)?, ab.1.eval(slots)?),
            Self::Select(abc) => {
                if abc.0.eval(slots)?.truth() {
                    abc.1.eval(slots)
                } else {
                    abc.2.eval(slots)
                }
            }
            Self::Call(function, args) => call(*function, args, slots),
        }
    }

    /// Its value as a whole number.
    ///
    /// # Errors
    /// As [`Self::eval`], and if it is a fraction.
    #[inline]
    pub fn int_value(&self, slots: &[Value]) -> Result<i64, EvalError> {
        let value = self.eval(slots)?;
        value.as_i64().ok_or(EvalError::Fraction(Fraction(value.as_f64().to_bits())))
    }

    /// The number it is, if it is a constant.
    #[must_use]
    pub const fn constant(&self) -> Option<Value> {
        match self {
            Self::Const(value) => Some(*value),
            _ => None,
        }
    }

    /// Whether a slot for which `is` holds occurs in it.
    pub fn mentions(&self, is: &mut impl FnMut(Slot) -> bool) -> bool {
        match self {
            Self::Const(_) => false,
            Self::Slot(slot) => is(*slot),
            Self::Unary(_, a) => a.mentions(is),
            Self::Binary(_, ab) => ab.0.mentions(is) || ab.1.mentions(is),
            Self::Select(abc) => abc.0.mentions(is) || abc.1.mentions(is) || abc.2.mentions(is),
            Self::Call(_, args) => args.iter().any(|a| a.mentions(is)),
        }
    }

    /// The same with slots replaced by numbers where `known` knows one, and folded. What has no
    /// value (`1/0`) stays as it is: it is an error only if it is evaluated.
    #[must_use]
    pub fn folded(&self, known: &impl Fn(Slot) -> Option<Value>) -> Self {
        let rebuilt = match self {
            Self::Const(_) => return self.clone(),
            Self::Slot(slot) => return known(*slot).map_or_else(|| self.clone(), Self::Const),
            Self::Unary(op, a) => Self::Unary(*op, Box::new(a.folded(known))),
            Self::Binary(op, ab) => return binary_folded(*op, ab.0.folded(known), ab.1.folded(known)),
            Self::Select(abc) => {
                let condition = abc.0.folded(known);
                if let Some(value) = condition.constant() {
                    return if value.truth() { abc.1.folded(known) } else { abc.2.folded(known) };
                }
                return Self::Select(Box::new((condition, abc.1.folded(known), abc.2.folded(known))));
            }
            Self::Call(function, args) => Self::Call(*function, args.iter().map(|a| a.folded(known)).collect()),
        };
        rebuilt.settled()
    }

    /// Itself as a number, if all it needs are numbers and it has a value.
    #[must_use]
    pub(crate) fn settled(self) -> Self {
        let constant = match &self {
            Self::Unary(_, a) => a.constant().is_some(),
            Self::Binary(_, ab) => ab.0.constant().is_some() && ab.1.constant().is_some(),
            Self::Call(_, args) => args.iter().all(|a| a.constant().is_some()),
            _ => false,
        };
        if !constant {
            return self;
        }
        self.eval(&[]).map_or(self, Self::Const)
    }
}

/// Folds `&&` and `||` by their left side alone where that decides.
fn binary_folded(op: Binary, a: Expr, b: Expr) -> Expr {
    match (op, a.constant().map(Value::truth)) {
        (Binary::And, Some(false)) => Expr::int(0),
        (Binary::Or, Some(true)) => Expr::int(1),
        _ => Expr::Binary(op, Box::new((a, b))).settled(),
    }
}

fn unary(op: Unary, a: Value) -> Result<Value, EvalError> {
    match (op, a) {
        (Unary::Negate, Value::Int(v)) => v.checked_neg().map(Value::Int).ok_or(EvalError::Overflow),
        (Unary::Negate, Value::Float(v)) => Ok(Value::Float(-v)),
        (Unary::Not, v) => Ok(Value::Int(i64::from(!v.truth()))),
        (Unary::Invert, v) => Ok(Value::Int(!whole(v)?)),
        (Unary::Truncate, Value::Int(_)) => Ok(a),
        (Unary::Truncate, Value::Float(v)) => {
            Value::Float(v.trunc()).as_i64().map(Value::Int).ok_or(EvalError::Overflow)
        }
        (Unary::Narrow(bytes, signed), v) => narrowed(v, bytes, signed),
        (Unary::ToBool, v) => Ok(Value::Int(i64::from(v.truth()))),
        (Unary::ToFloat, v) => Ok(Value::Float(v.as_f64())),
        (Unary::ToSingle, v) => single(v),
    }
}

fn narrowed(v: Value, bytes: u8, signed: Signed) -> Result<Value, EvalError> {
    let whole = match v {
        Value::Int(v) => v,
        Value::Float(v) => Value::Float(v.trunc()).as_i64().ok_or(EvalError::Overflow)?,
    };
    let bits = 8 * u32::from(bytes.clamp(1, 8));
    if bits == 64 {
        return if signed == Signed::No && whole < 0 { Err(EvalError::Overflow) } else { Ok(Value::Int(whole)) };
    }
    let wrapped = match signed {
        Signed::Yes => whole << (64 - bits) >> (64 - bits),
        Signed::No => whole & ((1 << bits) - 1),
    };
    // Of a fraction beyond the type C says nothing.
    if matches!(v, Value::Float(_)) && wrapped != whole { Err(EvalError::Overflow) } else { Ok(Value::Int(wrapped)) }
}

#[expect(clippy::cast_possible_truncation, reason = "what a cast to float does")]
fn single(v: Value) -> Result<Value, EvalError> {
    let near = match v {
        Value::Int(v) => v as f32,
        Value::Float(v) => v as f32,
    };
    Value::finite(f64::from(near))
}

fn whole(v: Value) -> Result<i64, EvalError> {
    v.as_i64().ok_or(EvalError::Fraction(Fraction(v.as_f64().to_bits())))
}

#[inline]
fn binary(op: Binary, a: Value, b: Value) -> Result<Value, EvalError> {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => ints(op, a, b),
        _ => floats(op, a.as_f64(), b.as_f64()),
    }
}

#[inline]
fn ints(op: Binary, a: i64, b: i64) -> Result<Value, EvalError> {
    let truth = |t: bool| Ok(Value::Int(i64::from(t)));
    let checked = match op {
        Binary::Add => a.checked_add(b),
        Binary::Subtract => a.checked_sub(b),
        Binary::Multiply => a.checked_mul(b),
        Binary::Divide | Binary::Remainder if b == 0 => return Err(EvalError::DivideByZero),
        Binary::Divide => a.checked_div(b),
        Binary::Remainder => a.checked_rem(b),
        Binary::Less => return truth(a < b),
        Binary::LessEqual => return truth(a <= b),
        Binary::Greater => return truth(a > b),
        Binary::GreaterEqual => return truth(a >= b),
        Binary::Equal => return truth(a == b),
        Binary::NotEqual => return truth(a != b),
        Binary::And => return truth(a != 0 && b != 0),
        Binary::Or => return truth(a != 0 || b != 0),
        Binary::BitAnd => Some(a & b),
        Binary::BitOr => Some(a | b),
        Binary::BitXor => Some(a ^ b),
        Binary::ShiftLeft => return shifted_left(a, b),
        Binary::ShiftRight => return shift(b).map(|by| Value::Int(a >> by)),
    };
    checked.map(Value::Int).ok_or(EvalError::Overflow)
}

fn shift(by: i64) -> Result<u32, EvalError> {
    u32::try_from(by).ok().filter(|by| *by < 64).ok_or(EvalError::Shift)
}

fn shifted_left(a: i64, by: i64) -> Result<Value, EvalError> {
    let by = shift(by)?;
    let out = a << by;
    if out >> by == a { Ok(Value::Int(out)) } else { Err(EvalError::Overflow) }
}

#[expect(clippy::float_cmp, reason = "C's comparison of doubles")]
fn floats(op: Binary, a: f64, b: f64) -> Result<Value, EvalError> {
    let truth = |t: bool| Ok(Value::Int(i64::from(t)));
    match op {
        Binary::Add => Value::finite(a + b),
        Binary::Subtract => Value::finite(a - b),
        Binary::Multiply => Value::finite(a * b),
        Binary::Divide | Binary::Remainder if b == 0.0 => Err(EvalError::DivideByZero),
        Binary::Divide => Value::finite(a / b),
        Binary::Less => truth(a < b),
        Binary::LessEqual => truth(a <= b),
        Binary::Greater => truth(a > b),
        Binary::GreaterEqual => truth(a >= b),
        Binary::Equal => truth(a == b),
        Binary::NotEqual => truth(a != b),
        Binary::And => truth(a != 0.0 && b != 0.0),
        Binary::Or => truth(a != 0.0 || b != 0.0),
        // Defined for integers only: two whole numbers are taken as such.
        Binary::Remainder
        | Binary::BitAnd
        | Binary::BitOr
        | Binary::BitXor
        | Binary::ShiftLeft
        | Binary::ShiftRight => ints(op, whole(Value::Float(a))?, whole(Value::Float(b))?),
    }
}

fn call(function: Function, args: &[Expr], slots: &[Value]) -> Result<Value, EvalError> {
    let arg = |n: usize| args.get(n).unwrap_or(&Expr::Const(Value::Int(0))).eval(slots);
    let (a, two) = (arg(0)?, args.len() > 1);
    let b = if two { arg(1)? } else { Value::Int(0) };
    match function {
        Function::Min => Ok(if binary(Binary::Less, b, a)?.truth() { b } else { a }),
        Function::Max => Ok(if binary(Binary::Greater, b, a)?.truth() { b } else { a }),
        Function::Abs => match a {
            Value::Int(v) => v.checked_abs().map(Value::Int).ok_or(EvalError::Overflow),
            Value::Float(v) => Ok(Value::Float(v.abs())),
        },
        Function::Floor => rounded(a, f64::floor),
        Function::Ceil => rounded(a, f64::ceil),
        Function::Round => rounded(a, f64::round),
        Function::Sqrt => Value::finite(libm::sqrt(a.as_f64())),
        Function::Log => Value::finite(libm::log(a.as_f64())),
        Function::Log2 => log2(a),
        Function::Log10 => Value::finite(libm::log10(a.as_f64())),
        Function::Exp => Value::finite(libm::exp(a.as_f64())),
        Function::Pow => Value::finite(libm::pow(a.as_f64(), b.as_f64())),
        Function::Require => {
            if a.truth() {
                Ok(Value::Int(0))
            } else {
                Err(EvalError::Required)
            }
        }
    }
}

/// A whole number, unlike C's: `ceil(log2(numprocs))` counts rounds.
fn rounded(a: Value, by: impl Fn(f64) -> f64) -> Result<Value, EvalError> {
    match a {
        Value::Int(_) => Ok(a),
        Value::Float(v) => Value::Float(by(v)).as_i64().map(Value::Int).ok_or(EvalError::Overflow),
    }
}

/// Exact for powers of two on every machine: `log2(8)` is 3.
fn log2(a: Value) -> Result<Value, EvalError> {
    match a {
        Value::Int(v) if v > 0 && v & (v - 1) == 0 => Ok(Value::Float(f64::from(v.trailing_zeros()))),
        _ => Value::finite(libm::log2(a.as_f64())),
    }
}

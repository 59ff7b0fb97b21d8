//! C's number types, and values that have one: what conversions and operators do to them, as C says
//! and a 64-bit Linux has it.
//!
//! The directive language knows 64-bit whole numbers and doubles. A value of a smaller type, or of
//! one without sign, is kept as a whole number that is the same but for what wraps ([`Typed::low`],
//! [`Typed::high`] say how far it may be off), and is cast where that would show.

use crate::expr::Expr;
use crate::translate::Reason;

/// A number type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ty {
    /// A whole number.
    Int {
        /// 1, 2, 4 or 8.
        bytes: u8,
        /// Whether it may be below 0.
        signed: bool,
    },
    /// `_Bool`.
    Bool,
    /// `float`.
    Single,
    /// `double`.
    Double,
}

/// `int`.
pub const INT: Ty = Ty::Int { bytes: 4, signed: true };
/// `long`.
pub const LONG: Ty = Ty::Int { bytes: 8, signed: true };
/// `size_t`.
pub const SIZE: Ty = Ty::Int { bytes: 8, signed: false };

/// Names of types that everybody has.
const NAMED: [(&str, Ty); 16] = [
    ("size_t", SIZE),
    ("uintptr_t", SIZE),
    ("uint64_t", SIZE),
    ("ssize_t", LONG),
    ("ptrdiff_t", LONG),
    ("intptr_t", LONG),
    ("int64_t", LONG),
    ("MPI_Aint", LONG),
    ("MPI_Offset", LONG),
    ("MPI_Count", LONG),
    ("int8_t", Ty::Int { bytes: 1, signed: true }),
    ("uint8_t", Ty::Int { bytes: 1, signed: false }),
    ("int16_t", Ty::Int { bytes: 2, signed: true }),
    ("uint16_t", Ty::Int { bytes: 2, signed: false }),
    ("int32_t", INT),
    ("uint32_t", Ty::Int { bytes: 4, signed: false }),
];

impl Ty {
    /// The type of these words; none if it is no number, or one whose arithmetic is not followed
    /// (`long double`, complex).
    #[must_use]
    pub fn of(text: &str) -> Option<Self> {
        const KNOWN: [&str; 10] =
            ["char", "short", "int", "long", "signed", "unsigned", "float", "double", "bool", "_Bool"];
        let words: Vec<&str> = text.split_whitespace().filter(|w| !matches!(*w, "const" | "register")).collect();
        if let [one] = words.as_slice()
            && let Some((_, ty)) = NAMED.iter().find(|(name, _)| name == one)
        {
            return Some(*ty);
        }
        let has = |word: &str| words.contains(&word);
        if words.is_empty() || !words.iter().all(|w| KNOWN.contains(w)) || (has("long") && has("double")) {
            return None;
        }
        let signed = !has("unsigned");
        Some(match () {
            () if has("double") => Self::Double,
            () if has("float") => Self::Single,
            () if has("bool") || has("_Bool") => Self::Bool,
            () if has("char") => Self::Int { bytes: 1, signed },
            () if has("short") => Self::Int { bytes: 2, signed },
            () if has("long") => Self::Int { bytes: 8, signed },
            () => Self::Int { bytes: 4, signed },
        })
    }

    /// As a cast of the directive language has it.
    fn cast(self) -> &'static str {
        match self {
            Self::Int { bytes: 1, signed: true } => "char",
            Self::Int { bytes: 1, signed: false } => "unsigned char",
            Self::Int { bytes: 2, signed: true } => "short",
            Self::Int { bytes: 2, signed: false } => "unsigned short",
            Self::Int { bytes: 4, signed: true } => "int",
            Self::Int { bytes: 4, signed: false } => "unsigned",
            Self::Int { signed: true, .. } => "long",
            Self::Int { signed: false, .. } => "unsigned long",
            Self::Bool => "bool",
            Self::Single => "float",
            Self::Double => "double",
        }
    }

    /// Least and greatest whole number.
    #[must_use]
    pub fn bounds(self) -> (i128, i128) {
        match self {
            Self::Int { bytes, signed: true } => (-(1 << (8 * bytes - 1)), (1 << (8 * bytes - 1)) - 1),
            Self::Int { bytes, signed: false } => (0, (1 << (8 * bytes)) - 1),
            Self::Bool => (0, 1),
            Self::Single | Self::Double => (i128::MIN, i128::MAX),
        }
    }

    /// Whether it has fractions.
    #[must_use]
    pub fn floats(self) -> bool {
        matches!(self, Self::Single | Self::Double)
    }

    /// C's integer promotion.
    fn promoted(self) -> Self {
        match self {
            Self::Int { bytes: 1 | 2, .. } | Self::Bool => INT,
            other => other,
        }
    }

    /// The type in which C works with two.
    fn common(self, other: Self) -> Self {
        match (self.promoted(), other.promoted()) {
            (Self::Double, _) | (_, Self::Double) => Self::Double,
            (Self::Single, _) | (_, Self::Single) => Self::Single,
            (Self::Int { bytes: a, signed: x }, Self::Int { bytes: b, signed: y }) => {
                let bytes = a.max(b);
                let unsigned = (!x && a == bytes) || (!y && b == bytes);
                Self::Int { bytes, signed: !unsigned }
            }
            (a, _) => a,
        }
    }
}

/// An expression with its type in C.
#[derive(Debug, Clone, PartialEq)]
pub struct Typed {
    /// The expression: of a whole number, the value but for multiples of 2^bits of its type.
    pub expr: Expr,
    /// Its type.
    pub ty: Ty,
    /// The least that the expression gives, if it is a whole number.
    pub low: i128,
    /// The greatest.
    pub high: i128,
}

impl Typed {
    /// Something that has a value of this type.
    #[must_use]
    pub fn of(expr: Expr, ty: Ty) -> Self {
        let (low, high) = ty.bounds();
        Self { expr, ty, low, high }
    }

    /// Something that has a value of this type, between bounds.
    #[must_use]
    pub fn within(expr: Expr, ty: Ty, low: i128, high: i128) -> Self {
        Self { expr, ty, low, high }
    }

    /// A whole number.
    #[must_use]
    pub fn int(value: i64, ty: Ty) -> Self {
        Self { expr: Expr::int(value), ty, low: i128::from(value), high: i128::from(value) }
    }

    /// Cast to its own type if it may be beyond it.
    #[must_use]
    pub fn settled(self) -> Self {
        let (low, high) = self.ty.bounds();
        if self.ty.floats() || (self.low >= low && self.high <= high) {
            return self;
        }
        if let (Some(value), Ty::Int { bytes: bytes @ (1 | 2 | 4), .. }) = (self.expr.as_int(), self.ty) {
            let modulus = 1_i128 << (8 * bytes);
            let wrapped = (i128::from(value) - low).rem_euclid(modulus) + low;
            return Self::int(i64::try_from(wrapped).unwrap_or(0), self.ty);
        }
        Self::of(Expr::Cast(self.ty.cast(), Box::new(self.expr)), self.ty)
    }

    /// Converted to another type.
    #[must_use]
    pub fn converted(self, to: Ty) -> Self {
        if self.ty == to {
            return self;
        }
        match (self.ty, to) {
            (_, Ty::Bool) => {
                let inner = self.settled().expr;
                let expr = match inner.as_int() {
                    Some(value) => Expr::int(i64::from(value != 0)),
                    None => Expr::binary("!=", inner, Expr::int(0)),
                };
                Self::of(expr, to)
            }
            (Ty::Int { bytes, .. }, Ty::Int { bytes: other, .. }) => {
                let own = if other > bytes { self.settled() } else { self };
                Self { ty: to, ..own }
            }
            (Ty::Bool, Ty::Int { .. }) => Self { ty: to, ..self },
            (Ty::Single, Ty::Double) => Self { ty: to, ..self },
            (Ty::Int { .. } | Ty::Bool, Ty::Double | Ty::Single) => {
                let inner = self.settled().expr;
                const EXACT: i64 = 1 << 24;
                let expr = match inner.as_int() {
                    Some(value) if (0..EXACT).contains(&value) => Expr::Number(format!("{value}.0")),
                    _ => Expr::Cast(to.cast(), Box::new(inner)),
                };
                Self::of(expr, to)
            }
            _ => Self::of(Expr::Cast(to.cast(), Box::new(self.expr)), to),
        }
    }

    /// An operator of one operand.
    ///
    /// # Errors
    /// If C has no such operation.
    pub fn unary(op: &str, inner: Self) -> Result<Self, Reason> {
        if op == "!" {
            let inner = inner.settled().expr;
            let expr = match inner.as_int() {
                Some(value) => Expr::int(i64::from(value == 0)),
                None => Expr::Unary("!", Box::new(inner)),
            };
            return Ok(Self::within(expr, INT, 0, 1));
        }
        let ty = inner.ty.promoted();
        let inner = inner.settled().converted(ty);
        match op {
            "+" => Ok(inner),
            "-" if inner.expr.as_int().is_some_and(|v| v != i64::MIN) => {
                let value = -inner.expr.as_int().unwrap_or(0);
                Ok(Self::within(Expr::int(value), ty, i128::from(value), i128::from(value)).clamped())
            }
            "-" => {
                let (low, high) = if ty.floats() { ty.bounds() } else { (-inner.high, -inner.low) };
                Ok(Self::within(Expr::Unary("-", Box::new(inner.expr)), ty, low, high).clamped())
            }
            "~" if !ty.floats() => {
                Ok(Self::within(Expr::Unary("~", Box::new(inner.expr)), ty, -1 - inner.high, -1 - inner.low))
            }
            _ => Err(format!("the operator {op}")),
        }
    }

    /// An operator of two operands.
    ///
    /// # Errors
    /// If C has no such operation.
    pub fn binary(op: &'static str, a: Self, b: Self) -> Result<Self, Reason> {
        match op {
            "&&" | "||" => {
                let expr = Expr::Binary(op, Box::new((a.settled().expr, b.settled().expr)));
                Ok(Self::within(expr, INT, 0, 1))
            }
            "==" | "!=" | "<" | "<=" | ">" | ">=" => {
                let ty = a.ty.common(b.ty);
                let (a, b) = (a.converted(ty).settled(), b.converted(ty).settled());
                Ok(Self::within(Expr::binary(op, a.expr, b.expr), INT, 0, 1))
            }
            "<<" | ">>" => Self::shifted(op, a, b),
            "+" | "-" | "*" | "/" => Self::arithmetic(op, a, b),
            "%" | "&" | "|" | "^" => {
                let ty = a.ty.common(b.ty);
                if ty.floats() {
                    return Err(format!("the operator {op} on a fraction"));
                }
                let (a, b) = (a.converted(ty).settled(), b.converted(ty).settled());
                let (low, high) = match op {
                    "%" if a.low >= 0 => (0, a.high.min((b.high - 1).max(-b.low - 1).max(0))),
                    "&" if a.low >= 0 || b.low >= 0 => (
                        0,
                        if a.low < 0 {
                            b.high
                        } else if b.low < 0 {
                            a.high
                        } else {
                            a.high.min(b.high)
                        },
                    ),
                    _ => ty.bounds(),
                };
                Ok(Self::within(Expr::binary(op, a.expr, b.expr), ty, low, high))
            }
            other => Err(format!("the operator {other}")),
        }
    }

    fn shifted(op: &'static str, a: Self, b: Self) -> Result<Self, Reason> {
        let ty = a.ty.promoted();
        if ty.floats() || b.ty.floats() {
            return Err(format!("the operator {op} on a fraction"));
        }
        let (a, b) = (a.settled().converted(ty), b.settled());
        let (low, high) = match op {
            ">>" if a.low >= 0 => (0, a.high),
            ">>" => (a.low, a.high.max(0)),
            // How far it may go is not followed: without sign it is cast where it shows.
            _ => {
                let by = b.high.clamp(0, 63) as u32;
                let far = |v: i128| v.saturating_mul(1 << by);
                (far(a.low).min(a.low), far(a.high).max(a.high))
            }
        };
        Ok(Self::within(Expr::binary(op, a.expr, b.expr), ty, low, high).clamped())
    }

    fn arithmetic(op: &'static str, a: Self, b: Self) -> Result<Self, Reason> {
        let ty = a.ty.common(b.ty);
        let (mut a, mut b) = (a.converted(ty), b.converted(ty));
        if ty.floats() {
            let expr = Expr::Binary(op, Box::new((a.expr, b.expr)));
            let expr = if ty == Ty::Single { Expr::Cast("float", Box::new(expr)) } else { expr };
            return Ok(Self::of(expr, ty));
        }
        if op == "/" || matches!(ty, Ty::Int { signed: true, .. }) {
            (a, b) = (a.settled(), b.settled());
        }
        let corners = |f: fn(i128, i128) -> i128| {
            let all = [f(a.low, b.low), f(a.low, b.high), f(a.high, b.low), f(a.high, b.high)];
            (all.into_iter().min().unwrap_or(0), all.into_iter().max().unwrap_or(0))
        };
        let (low, high) = match op {
            "+" => (a.low.saturating_add(b.low), a.high.saturating_add(b.high)),
            "-" => (a.low.saturating_sub(b.high), a.high.saturating_sub(b.low)),
            "*" => corners(i128::saturating_mul),
            _ => {
                let most = a.low.saturating_abs().max(a.high.saturating_abs());
                (if a.low < 0 || b.low < 0 { -most } else { 0 }, most)
            }
        };
        Ok(Self::within(Expr::binary(op, a.expr, b.expr), ty, low, high).clamped())
    }

    /// With the bounds of its type, if it has a sign: C says nothing of what goes beyond.
    fn clamped(self) -> Self {
        let (low, high) = self.ty.bounds();
        match self.ty {
            Ty::Int { signed: true, .. } => {
                Self { low: self.low.clamp(low, high), high: self.high.clamp(low, high), ..self }
            }
            _ => self,
        }
    }

    /// One of two, by a condition.
    #[must_use]
    pub fn choice(condition: Self, a: Self, b: Self) -> Self {
        let ty = a.ty.common(b.ty);
        let (a, b) = (a.converted(ty).settled(), b.converted(ty).settled());
        match condition.expr.as_int() {
            Some(0) => b,
            Some(_) => a,
            None => {
                let (low, high) = (a.low.min(b.low), a.high.max(b.high));
                let expr = Expr::Choice(Box::new((condition.settled().expr, a.expr, b.expr)));
                Self::within(expr, ty, low, high)
            }
        }
    }
}

//! Expressions of a model while they are put together from C: small trees that print as the
//! directive language has them.

use std::fmt;

/// How many parts an expression may have before it becomes a parameter: what people can read, and
/// what no chain of definitions can blow up.
pub const MOST_PARTS: usize = 200;

/// An expression of a model.
#[derive(Debug, Clone, PartialEq)]
pub enum Expr {
    /// A number as C writes it.
    Number(String),
    /// `procnum`, `numprocs`, a parameter, a loop's index, a bound variable.
    Name(String),
    /// `sizeof` of a type that the language knows.
    Sizeof(String),
    /// `MPI_PROC_NULL`: no process.
    Null,
    /// `MPI_ANY_SOURCE` or `MPI_ANY_TAG`.
    Any,
    /// An operator of one operand.
    Unary(&'static str, Box<Expr>),
    /// A conversion to a number type.
    Cast(&'static str, Box<Expr>),
    /// An operator of two operands.
    Binary(&'static str, Box<(Expr, Expr)>),
    /// `c ? a : b`.
    Choice(Box<(Expr, Expr, Expr)>),
    /// A function of the language.
    Call(&'static str, Vec<Expr>),
}

/// Operators of two operands with how tightly they bind; C's order.
const OPERATORS: [(&str, u8); 18] = [
    ("*", 10),
    ("/", 10),
    ("%", 10),
    ("+", 9),
    ("-", 9),
    ("<<", 8),
    (">>", 8),
    ("<", 7),
    ("<=", 7),
    (">", 7),
    (">=", 7),
    ("==", 6),
    ("!=", 6),
    ("&", 5),
    ("^", 4),
    ("|", 3),
    ("&&", 2),
    ("||", 1),
];
const UNARY: u8 = 11;
const ATOM: u8 = 12;

/// The language's own spelling of an operator of two operands, if it has it.
#[must_use]
pub fn operator(text: &str) -> Option<&'static str> {
    OPERATORS.iter().map(|(name, _)| *name).find(|name| *name == text)
}

fn binding(op: &str) -> u8 {
    OPERATORS.iter().find(|(name, _)| *name == op).map_or(0, |(_, binding)| *binding)
}

impl Expr {
    /// A whole number.
    #[must_use]
    pub fn int(value: i64) -> Self {
        if value < 0 {
            return Self::Unary("-", Box::new(Self::Number(value.unsigned_abs().to_string())));
        }
        Self::Number(value.to_string())
    }

    /// A name.
    #[must_use]
    pub fn name(text: &str) -> Self {
        Self::Name(text.to_owned())
    }

    /// The whole number it is, if it is one.
    #[must_use]
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Self::Number(text) => text.parse().ok(),
            Self::Unary("-", inner) => inner.as_int().and_then(i64::checked_neg),
            _ => None,
        }
    }

    /// An operation on two operands, worked out where that is plain.
    #[must_use]
    pub fn binary(op: &'static str, a: Self, b: Self) -> Self {
        if let (Some(x), Some(y)) = (a.as_int(), b.as_int()) {
            let folded = match op {
                "+" => x.checked_add(y),
                "-" => x.checked_sub(y),
                "*" => x.checked_mul(y),
                "/" => x.checked_div(y),
                "%" => x.checked_rem(y),
                "&" => Some(x & y),
                "|" => Some(x | y),
                "^" => Some(x ^ y),
                "==" => Some(i64::from(x == y)),
                "!=" => Some(i64::from(x != y)),
                "<" => Some(i64::from(x < y)),
                "<=" => Some(i64::from(x <= y)),
                ">" => Some(i64::from(x > y)),
                ">=" => Some(i64::from(x >= y)),
                _ => None,
            };
            if let Some(value) = folded {
                return Self::int(value);
            }
        }
        match (op, a.as_int(), b.as_int()) {
            ("*", Some(1), _) | ("+", Some(0), _) => b,
            ("*" | "/", _, Some(1)) | ("+" | "-" | "<<" | ">>", _, Some(0)) => a,
            _ => Self::Binary(op, Box::new((a, b))),
        }
    }

    /// What holds where this does not.
    #[must_use]
    pub fn inverted(&self) -> Self {
        if let Self::Binary(op, ab) = self {
            let other = match *op {
                "==" => "!=",
                "!=" => "==",
                "<" => ">=",
                ">=" => "<",
                ">" => "<=",
                "<=" => ">",
                _ => "",
            };
            if let Some(other) = operator(other) {
                return Self::Binary(other, ab.clone());
            }
        }
        match self {
            Self::Unary("!", inner) => (**inner).clone(),
            other => Self::Unary("!", Box::new(other.clone())),
        }
    }

    /// How many parts it has.
    #[must_use]
    pub fn parts(&self) -> usize {
        match self {
            Self::Unary(_, a) | Self::Cast(_, a) => 1 + a.parts(),
            Self::Binary(_, ab) => 1 + ab.0.parts() + ab.1.parts(),
            Self::Choice(abc) => 1 + abc.0.parts() + abc.1.parts() + abc.2.parts(),
            Self::Call(_, args) => 1 + args.iter().map(Self::parts).sum::<usize>(),
            _ => 1,
        }
    }

    /// Whether a part of it is such.
    pub fn any(&self, is: &mut dyn FnMut(&Self) -> bool) -> bool {
        is(self)
            || match self {
                Self::Unary(_, a) | Self::Cast(_, a) => a.any(is),
                Self::Binary(_, ab) => ab.0.any(is) || ab.1.any(is),
                Self::Choice(abc) => abc.0.any(is) || abc.1.any(is) || abc.2.any(is),
                Self::Call(_, args) => args.iter().any(|a| a.any(is)),
                _ => false,
            }
    }

    fn begins_with_minus(&self) -> bool {
        match self {
            Self::Unary("-", _) | Self::Null => true,
            Self::Binary(op, ab) => ab.0.binds() >= binding(op) && ab.0.begins_with_minus(),
            _ => false,
        }
    }

    fn binds(&self) -> u8 {
        match self {
            Self::Unary(..) | Self::Cast(..) => UNARY,
            Self::Binary(op, _) => binding(op),
            Self::Choice(_) => 0,
            _ => ATOM,
        }
    }

    fn inside(&self, f: &mut fmt::Formatter<'_>, least: u8) -> fmt::Result {
        if self.binds() < least { write!(f, "({self})") } else { write!(f, "{self}") }
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(text) | Self::Name(text) => f.write_str(text),
            Self::Sizeof(what) => write!(f, "sizeof({what})"),
            Self::Null => f.write_str("-1"),
            Self::Any => f.write_str("ANY"),
            Self::Unary(op, a) => {
                f.write_str(op)?;
                a.inside(f, ATOM)
            }
            Self::Cast(ty, a) => {
                write!(f, "({ty})")?;
                a.inside(f, UNARY)
            }
            Self::Binary(op, ab) => {
                let own = binding(op);
                ab.0.inside(f, own)?;
                if own < 8 {
                    write!(f, " {op} ")?
                } else {
                    f.write_str(op)?
                }
                // `a--1` would be read as another operator.
                let minus = matches!(*op, "-") && ab.1.binds() > own && ab.1.begins_with_minus();
                if minus { write!(f, "({})", ab.1) } else { ab.1.inside(f, own + 1) }
            }
            Self::Choice(abc) => {
                abc.0.inside(f, 1)?;
                f.write_str(" ? ")?;
                abc.1.inside(f, 1)?;
                f.write_str(" : ")?;
                abc.2.inside(f, 0)
            }
            Self::Call(name, args) => {
                write!(f, "{name}(")?;
                for (i, arg) in args.iter().enumerate() {
                    if i > 0 {
                        f.write_str(", ")?;
                    }
                    write!(f, "{arg}")?;
                }
                f.write_str(")")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_stand_only_where_they_must() {
        let (n, two) = (Expr::name("n"), Expr::int(2));
        let sum = Expr::binary("+", n.clone(), two.clone());
        assert_eq!(Expr::binary("*", sum.clone(), two.clone()).to_string(), "(n+2)*2");
        assert_eq!(Expr::binary("-", n.clone(), sum.clone()).to_string(), "n-(n+2)");
        assert_eq!(Expr::binary("-", sum.clone(), n.clone()).to_string(), "n+2-n");
        assert_eq!(Expr::binary("==", Expr::binary("%", n, two), Expr::int(0)).inverted().to_string(), "n%2 != 0");
        assert_eq!(Expr::Unary("-", Box::new(sum)).to_string(), "-(n+2)");
    }

    #[test]
    fn plain_numbers_are_worked_out() {
        assert_eq!(Expr::binary("-", Expr::int(3), Expr::int(5)).as_int(), Some(-2));
        assert_eq!(Expr::binary("/", Expr::int(1), Expr::int(0)).to_string(), "1/0");
        assert_eq!(Expr::binary("*", Expr::int(i64::MAX), Expr::int(2)).as_int(), None);
        assert_eq!(Expr::binary("+", Expr::name("n"), Expr::int(0)), Expr::name("n"));
    }
}

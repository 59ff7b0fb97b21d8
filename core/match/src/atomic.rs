//! Atomic operations on one element of memory: which there are, and what each makes of a value
//! (`spec/envelopes.md` 6).
//!
//! Values are the elements' own bytes as a number, the rest zeros; so an element of a peer with
//! another order of bytes is the same number.

/// What is done to an element. The numbers are those of the envelope.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum AtomicOp {
    /// The operand if it is less.
    Min = 0,
    /// The operand if it is greater.
    Max = 1,
    /// The sum; of integers modulo 2^bits.
    Sum = 2,
    /// The product; of integers modulo 2^bits.
    Prod = 3,
    /// 1 if one of them is not 0.
    LogicalOr = 4,
    /// 1 if neither is 0.
    LogicalAnd = 5,
    /// Bit by bit; integers only.
    BitOr = 6,
    /// Bit by bit; integers only.
    BitAnd = 7,
    /// 1 if exactly one of them is not 0.
    LogicalXor = 8,
    /// Bit by bit; integers only.
    BitXor = 9,
    /// The element is only read.
    Read = 10,
    /// The operand, whatever was there.
    Write = 11,
    /// The operand, if what is compared with the element is equal to it.
    SwapIfEqual = 12,
    /// The same if it is unequal.
    SwapIfUnequal = 13,
    /// The same if it is less or equal.
    SwapIfAtMost = 14,
    /// The same if it is less.
    SwapIfLess = 15,
    /// The same if it is greater or equal.
    SwapIfAtLeast = 16,
    /// The same if it is greater.
    SwapIfGreater = 17,
    /// The bits of the operand that are set in what is compared; integers only.
    MaskedSwap = 18,
}

/// What an element is. The numbers are those of the envelope.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names say it")]
pub enum AtomicType {
    I8 = 1,
    U8 = 2,
    I16 = 3,
    U16 = 4,
    I32 = 5,
    U32 = 6,
    I64 = 7,
    U64 = 8,
    F32 = 9,
    F64 = 10,
}

/// An operation on an element of a type, of those that there are.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Atomic {
    op: AtomicOp,
    of: AtomicType,
}

impl AtomicOp {
    /// All, by their numbers.
    pub const ALL: [AtomicOp; 19] = {
        use AtomicOp::*;
        [
            Min,
            Max,
            Sum,
            Prod,
            LogicalOr,
            LogicalAnd,
            BitOr,
            BitAnd,
            LogicalXor,
            BitXor,
            Read,
            Write,
            SwapIfEqual,
            SwapIfUnequal,
            SwapIfAtMost,
            SwapIfLess,
            SwapIfAtLeast,
            SwapIfGreater,
            MaskedSwap,
        ]
    };

    /// It has an operand.
    #[must_use]
    pub fn has_operand(self) -> bool {
        self != AtomicOp::Read
    }

    /// It has something that is compared with the element, or a mask.
    #[must_use]
    pub fn has_compare(self) -> bool {
        self as u8 >= AtomicOp::SwapIfEqual as u8
    }
}

impl AtomicType {
    /// All, by their numbers (the first is 1).
    pub const ALL: [AtomicType; 10] = {
        use AtomicType::*;
        [I8, U8, I16, U16, I32, U32, I64, U64, F32, F64]
    };

    /// Size of an element, bytes: 1, 2, 4 or 8.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            AtomicType::I8 | AtomicType::U8 => 1,
            AtomicType::I16 | AtomicType::U16 => 2,
            AtomicType::I32 | AtomicType::U32 | AtomicType::F32 => 4,
            AtomicType::I64 | AtomicType::U64 | AtomicType::F64 => 8,
        }
    }

    /// The bits that a value of this type may have.
    #[must_use]
    pub fn mask(self) -> u64 {
        u64::MAX >> (64 - 8 * self.bytes())
    }
}

impl Atomic {
    /// None where the operation is not for this type.
    #[must_use]
    pub fn new(op: AtomicOp, of: AtomicType) -> Option<Atomic> {
        let bits = matches!(op, AtomicOp::BitOr | AtomicOp::BitAnd | AtomicOp::BitXor | AtomicOp::MaskedSwap);
        let float = matches!(of, AtomicType::F32 | AtomicType::F64);
        (!(bits && float)).then_some(Atomic { op, of })
    }

    /// What is done.
    #[must_use]
    pub fn op(self) -> AtomicOp {
        self.op
    }

    /// To what.
    #[must_use]
    pub fn of(self) -> AtomicType {
        self.of
    }

    /// What the element holds afterwards, if it held `old`.
    #[must_use]
    pub fn apply(self, old: u64, operand: u64, compare: u64) -> u64 {
        let Atomic { op, of } = self;
        let new = match op {
            AtomicOp::BitOr => old | operand,
            AtomicOp::BitAnd => old & operand,
            AtomicOp::BitXor => old ^ operand,
            AtomicOp::MaskedSwap => (operand & compare) | (old & !compare),
            AtomicOp::Read => old,
            AtomicOp::Write => operand,
            _ => match of {
                AtomicType::I8 => of_type::<i8>(op, old, operand, compare),
                AtomicType::U8 => of_type::<u8>(op, old, operand, compare),
                AtomicType::I16 => of_type::<i16>(op, old, operand, compare),
                AtomicType::U16 => of_type::<u16>(op, old, operand, compare),
                AtomicType::I32 => of_type::<i32>(op, old, operand, compare),
                AtomicType::U32 => of_type::<u32>(op, old, operand, compare),
                AtomicType::I64 => of_type::<i64>(op, old, operand, compare),
                AtomicType::U64 => of_type::<u64>(op, old, operand, compare),
                AtomicType::F32 => of_type::<f32>(op, old, operand, compare),
                AtomicType::F64 => of_type::<f64>(op, old, operand, compare),
            },
        };
        new & of.mask()
    }

    /// Its code in the envelope.
    pub(crate) fn code(self) -> u16 {
        u16::from_le_bytes([self.op as u8, self.of as u8])
    }

    /// The operation of a code, if there is one.
    pub(crate) fn from_code(code: u16) -> Option<Atomic> {
        let [op, of] = code.to_le_bytes();
        let op = *AtomicOp::ALL.get(usize::from(op))?;
        let of = *AtomicType::ALL.get(usize::from(of).checked_sub(1)?)?;
        Atomic::new(op, of)
    }
}

/// A number of some type, as the low bits of a word.
trait Number: Copy + PartialOrd {
    const ZERO: Self;
    const ONE: Self;
    fn of_word(word: u64) -> Self;
    fn word(self) -> u64;
    fn plus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
}

macro_rules! integers {
    ($($t:ty)*) => {$(
        impl Number for $t {
            const ZERO: Self = 0;
            const ONE: Self = 1;
            fn of_word(word: u64) -> Self {
                word as $t
            }
            /// The bits beyond those of the type are cut off by who asked.
            fn word(self) -> u64 {
                self as u64
            }
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            fn times(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
        }
    )*};
}

integers!(i8 u8 i16 u16 i32 u32 i64 u64);

macro_rules! floats {
    ($($t:ty, $bits:ty;)*) => {$(
        impl Number for $t {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            fn of_word(word: u64) -> Self {
                <$t>::from_bits(word as $bits)
            }
            fn word(self) -> u64 {
                self.to_bits().into()
            }
            fn plus(self, other: Self) -> Self {
                self + other
            }
            fn times(self, other: Self) -> Self {
                self * other
            }
        }
    )*};
}

floats!(f32, u32; f64, u64;);

/// The operations that depend on what the bits mean.
fn of_type<T: Number>(op: AtomicOp, old_word: u64, operand_word: u64, compare: u64) -> u64 {
    let (old, operand, compare) = (T::of_word(old_word), T::of_word(operand_word), T::of_word(compare));
    let (a, b) = (old != T::ZERO, operand != T::ZERO);
    let logical = |holds: bool| if holds { T::ONE.word() } else { T::ZERO.word() };
    // Bits, not numbers: what is not a number in a float stays as it is.
    let choose = |holds: bool| if holds { operand_word } else { old_word };
    match op {
        AtomicOp::Min => choose(operand < old),
        AtomicOp::Max => choose(operand > old),
        AtomicOp::Sum => old.plus(operand).word(),
        AtomicOp::Prod => old.times(operand).word(),
        AtomicOp::LogicalOr => logical(a || b),
        AtomicOp::LogicalAnd => logical(a && b),
        AtomicOp::LogicalXor => logical(a != b),
        AtomicOp::SwapIfEqual => choose(compare == old),
        AtomicOp::SwapIfUnequal => choose(compare != old),
        AtomicOp::SwapIfAtMost => choose(compare <= old),
        AtomicOp::SwapIfLess => choose(compare < old),
        AtomicOp::SwapIfAtLeast => choose(compare >= old),
        AtomicOp::SwapIfGreater => choose(compare > old),
        AtomicOp::BitOr
        | AtomicOp::BitAnd
        | AtomicOp::BitXor
        | AtomicOp::MaskedSwap
        | AtomicOp::Read
        | AtomicOp::Write => old_word,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(op: AtomicOp, of: AtomicType, old: u64, operand: u64, compare: u64) -> u64 {
        Atomic::new(op, of).expect("there is one").apply(old, operand, compare)
    }

    #[test]
    fn each_operation_makes_what_the_specification_says() {
        use AtomicOp::*;
        // (operation, old, operand, compare, as i8, as u8)
        let cases = [
            (Min, 0xff, 1, 0, 0xff, 1),
            (Max, 0xff, 1, 0, 1, 0xff),
            (Sum, 0xff, 2, 0, 1, 1),
            (Prod, 0xff, 3, 0, 0xfd, 0xfd),
            (LogicalOr, 0, 0x80, 0, 1, 1),
            (LogicalOr, 0, 0, 0, 0, 0),
            (LogicalAnd, 7, 8, 0, 1, 1),
            (LogicalAnd, 7, 0, 0, 0, 0),
            (LogicalXor, 7, 8, 0, 0, 0),
            (LogicalXor, 7, 0, 0, 1, 1),
            (BitOr, 0x50, 0x0f, 0, 0x5f, 0x5f),
            (BitAnd, 0x5f, 0x3c, 0, 0x1c, 0x1c),
            (BitXor, 0x5f, 0x3c, 0, 0x63, 0x63),
            (Read, 9, 1, 2, 9, 9),
            (Write, 9, 1, 2, 1, 1),
            (SwapIfEqual, 9, 1, 9, 1, 1),
            (SwapIfEqual, 9, 1, 8, 9, 9),
            (SwapIfUnequal, 9, 1, 9, 9, 9),
            (SwapIfUnequal, 9, 1, 8, 1, 1),
            (SwapIfAtMost, 9, 1, 9, 1, 1),
            (SwapIfAtMost, 9, 1, 0xff, 1, 9),
            (SwapIfLess, 9, 1, 9, 9, 9),
            (SwapIfLess, 9, 1, 0xff, 1, 9),
            (SwapIfAtLeast, 9, 1, 9, 1, 1),
            (SwapIfAtLeast, 9, 1, 0xff, 9, 1),
            (SwapIfGreater, 9, 1, 9, 9, 9),
            (SwapIfGreater, 9, 1, 0xff, 9, 1),
            (MaskedSwap, 0x55, 0xff, 0x0f, 0x5f, 0x5f),
        ];
        for (op, old, operand, compare, signed, unsigned) in cases {
            let got = [AtomicType::I8, AtomicType::U8].map(|of| apply(op, of, old, operand, compare));
            assert_eq!(got, [signed, unsigned], "{op:?} of {old:#x} with {operand:#x}, {compare:#x}");
        }
    }

    #[test]
    fn floats_are_compared_and_added_as_numbers() {
        use AtomicOp::*;
        let (f, g) = (|x: f32| u64::from(x.to_bits()), |x: f64| x.to_bits());
        assert_eq!(apply(Sum, AtomicType::F32, f(1.5), f(-2.0), 0), f(-0.5));
        assert_eq!(apply(Prod, AtomicType::F64, g(1.5), g(-2.0), 0), g(-3.0));
        assert_eq!(apply(Min, AtomicType::F64, g(1.5), g(-2.0), 0), g(-2.0));
        assert_eq!(apply(LogicalAnd, AtomicType::F32, f(0.5), f(-2.0), 0), f(1.0));
        assert_eq!(apply(SwapIfEqual, AtomicType::F64, g(0.0), g(7.0), g(-0.0)), g(7.0));
        // What is not a number is neither greater nor equal, and stays bit by bit.
        let odd = u64::from(0x7fc0_1234u32);
        assert_eq!(apply(Max, AtomicType::F32, odd, f(1.0), 0), odd);
        assert_eq!(apply(SwapIfEqual, AtomicType::F32, odd, f(1.0), odd), odd);
    }

    #[test]
    fn results_have_no_bits_beyond_the_type_and_codes_name_one_operation() {
        for op in AtomicOp::ALL {
            for of in AtomicType::ALL {
                let Some(atomic) = Atomic::new(op, of) else { continue };
                let mask = of.mask();
                for (old, operand) in [(0, 0), (mask, mask), (mask, 1), (1, mask), (mask ^ mask >> 1, 3 & mask)] {
                    let new = atomic.apply(old, operand, 1);
                    assert_eq!(new & !mask, 0, "{op:?} {of:?} {old:#x} {operand:#x}");
                }
                assert_eq!(Atomic::from_code(atomic.code()), Some(atomic));
            }
        }
        let known = (0..=u16::MAX).filter(|code| Atomic::from_code(*code).is_some()).count();
        assert_eq!(known, 19 * 10 - 4 * 2, "the others are no operation");
    }
}

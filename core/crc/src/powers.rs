//! Powers of x modulo the polynomial, reflected as the register is: the highest bit is x^0.

/// The polynomial of CRC32C, reflected.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// x^0.
pub(crate) const ONE: u32 = 1 << 31;

/// x^n mod P.
pub(crate) const fn power(n: u32) -> u32 {
    let mut power = ONE;
    let mut i = 0;
    while i < n {
        power = if power & 1 == 0 { power >> 1 } else { (power >> 1) ^ POLYNOMIAL };
        i += 1;
    }
    power
}

/// What the two halves of a vector of 128 bits are multiplied by so that it moves by `bits`, low
/// half first. The product of a half and a power is one of 95 bits in a register of 128, which
/// multiplies it by x^33; the low half stands for the first 64 bits of the text.
pub(crate) const fn moving(bits: u32) -> [i64; 2] {
    [power(bits + 64 - 33) as i64, power(bits - 33) as i64]
}

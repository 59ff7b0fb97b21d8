//! Arithmetic of bytes as elements of the field of 256, in which the rows of a group's parity are
//! weighted (`spec/protocol.md` 6.6). Addition is XOR.

/// x^8 + x^4 + x^3 + x^2 + 1, without its highest term: 2 generates all elements but 0.
const POLYNOMIAL: u8 = 0x1d;
/// How many powers of 2 there are.
const ORDER: usize = 255;
/// Bytes that are multiplied side by side.
const LANES: usize = 64;

const fn doubled(x: u8) -> u8 {
    (x << 1) ^ (POLYNOMIAL & (((x as i8) >> 7) as u8))
}

/// Powers of 2, and the exponent of each element (that of 0 means nothing).
const TABLES: ([u8; ORDER], [u8; 256]) = {
    let (mut powers, mut exponents) = ([0; ORDER], [0; 256]);
    let (mut x, mut i) = (1u8, 0);
    while i < ORDER {
        powers[i] = x;
        exponents[x as usize] = i as u8;
        x = doubled(x);
        i += 1;
    }
    (powers, exponents)
};

/// 2 to the power of this.
#[must_use]
pub fn power(exponent: usize) -> u8 {
    TABLES.0[exponent % ORDER]
}

/// The product.
#[must_use]
pub fn times(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    power(usize::from(TABLES.1[usize::from(a)]) + usize::from(TABLES.1[usize::from(b)]))
}

/// 1 divided by it; 0 of 0, which has none.
#[must_use]
pub fn inverse(a: u8) -> u8 {
    if a == 0 { 0 } else { power(ORDER - usize::from(TABLES.1[usize::from(a)])) }
}

/// Doubles each byte.
pub fn double(bytes: &mut [u8]) {
    bytes.iter_mut().for_each(|b| *b = doubled(*b));
}

/// Adds `factor` times the bytes of `from` to those of `to`, as far as both reach.
pub fn add_times(to: &mut [u8], from: &[u8], factor: u8) {
    if factor == 1 {
        return to.iter_mut().zip(from).for_each(|(x, b)| *x ^= b);
    }
    let n = to.len().min(from.len());
    for (to, from) in to[..n].chunks_mut(LANES).zip(from[..n].chunks(LANES)) {
        // From here on of one length, which the compiler knows.
        let mut lanes = [0; LANES];
        lanes[..from.len()].copy_from_slice(from);
        let mut sum = [0; LANES];
        for bit in 0..8 {
            if factor >> bit & 1 == 1 {
                sum.iter_mut().zip(&lanes).for_each(|(x, b)| *x ^= b);
            }
            double(&mut lanes);
        }
        to.iter_mut().zip(&sum).for_each(|(x, b)| *x ^= b);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// As taught at school: sums of shifts, less multiples of the polynomial.
    fn slowly(a: u8, b: u8) -> u8 {
        let product = (0..8).filter(|i| b >> i & 1 == 1).fold(0u16, |sum, i| sum ^ (u16::from(a) << i));
        (8..16).rev().fold(product, |p, i| if p >> i & 1 == 1 { p ^ (0x11d << (i - 8)) } else { p }) as u8
    }

    // spec: P-6.36
    #[test]
    fn products_and_inverses_are_those_of_the_field() {
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(times(a, b), slowly(a, b), "{a} x {b}");
            }
            assert_eq!(times(a, inverse(a)), u8::from(a != 0), "{a}");
        }
        let powers: alloc::collections::BTreeSet<u8> = (0..255).map(power).collect();
        assert_eq!(powers.len(), 255);
    }

    #[test]
    fn of_any_length_each_byte_is_added_with_its_factor() {
        for len in [0, 1, 63, 64, 65, 1400] {
            for factor in [0, 1, 2, 0x8e, 255] {
                let from: Vec<u8> = (0..len as u32).map(|i| (i * 7 + 1) as u8).collect();
                let before: Vec<u8> = from.iter().map(|b| b.wrapping_mul(5)).collect();
                let mut to = before.clone();
                add_times(&mut to, &from, factor);
                for ((got, was), b) in to.iter().zip(&before).zip(&from) {
                    assert_eq!(*got, was ^ slowly(*b, factor));
                }
            }
        }
    }
}

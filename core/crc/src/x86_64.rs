//! The instructions of x86-64.

use std::arch::x86_64::{
    __m128i, _mm_clmulepi64_si128, _mm_crc32_u8, _mm_crc32_u32, _mm_crc32_u64, _mm_cvtsi32_si128, _mm_cvtsi128_si64,
    _mm_extract_epi64, _mm_loadu_si128, _mm_set_epi64x, _mm_xor_si128,
};

use crate::powers::{ONE, moving};

/// Bytes up to which the instruction for CRC32C is the fastest: vectors must be put together.
const SHORT: usize = 128;
/// The same where powers of x must be found besides.
const SHORT_OF_FUSED: usize = 256;
/// Bytes that one step of [`fused`] takes: four vectors of 16, and three times 24.
const STEP: usize = 64 + 3 * 24;
/// Bytes from which vectors of 64 had better lie on lines of the cache: each that does not is read
/// from two.
#[rustversion::since(1.89)]
const ALIGNED: usize = 4096;

#[inline]
pub(crate) fn update(register: u32, bytes: &[u8]) -> Option<u32> {
    if !is_x86_feature_detected!("sse4.2") {
        return None;
    }
    if bytes.len() <= SHORT {
        // SAFETY: the processor has what it was compiled for.
        return Some(unsafe { short(register, bytes) });
    }
    Some(long(register, bytes))
}

/// Of more than [`SHORT`] bytes.
#[rustversion::since(1.89)]
fn long(register: u32, bytes: &[u8]) -> u32 {
    if is_x86_feature_detected!("avx512vl") {
        if is_x86_feature_detected!("vpclmulqdq") && is_x86_feature_detected!("pclmulqdq") {
            // SAFETY: the processor has what it was compiled for.
            return unsafe { wide::folded(register, bytes) };
        }
        if bytes.len() > SHORT_OF_FUSED && is_x86_feature_detected!("pclmulqdq") {
            // SAFETY: as above.
            return unsafe { wide::fused(register, bytes) };
        }
    }
    long_of_old(register, bytes)
}

/// Without AVX-512, which is new in the compiler, too.
#[rustversion::before(1.89)]
fn long(register: u32, bytes: &[u8]) -> u32 {
    long_of_old(register, bytes)
}

fn long_of_old(register: u32, bytes: &[u8]) -> u32 {
    if bytes.len() > SHORT_OF_FUSED && is_x86_feature_detected!("pclmulqdq") {
        // SAFETY: the processor has what it was compiled for; `update` has asked for SSE 4.2.
        unsafe { fused(register, bytes) }
    } else {
        // SAFETY: as above.
        unsafe { short(register, bytes) }
    }
}

/// By the instruction for CRC32C, eight bytes at a time.
#[inline]
#[target_feature(enable = "sse4.2")]
fn short(register: u32, bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks();
    let mut register = register;
    for word in words {
        register = take(register, u64::from_le_bytes(*word));
    }
    for byte in rest {
        register = _mm_crc32_u8(register, *byte);
    }
    register
}

/// The register after eight bytes: it and they times x^32.
#[inline]
#[target_feature(enable = "sse4.2")]
fn take(register: u32, word: u64) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "a 32-bit register in 64 bits")]
    let register = _mm_crc32_u64(u64::from(register), word) as u32;
    register
}

/// Four vectors, and three registers beside them: the text's first part is the vectors', then
/// there is one for each register.
#[inline]
#[target_feature(enable = "sse4.2,pclmulqdq")]
fn fused(register: u32, bytes: &[u8]) -> u32 {
    let steps = bytes.len() / STEP;
    if steps == 0 {
        return short(register, bytes);
    }
    let (vectors, rest) = bytes.split_at(steps * 64);
    let (vectors, _) = vectors.as_chunks();
    let (a, rest) = rest.split_at(steps * 24);
    let (b, rest) = rest.split_at(steps * 24);
    let (c, rest) = rest.split_at(steps * 24);
    let (of_a, of_b, of_c) = (a.as_chunks::<24>().0, b.as_chunks::<24>().0, c.as_chunks::<24>().0);
    let mut sums = loaded(&vectors[0]);
    sums[0] = _mm_xor_si128(sums[0], _mm_cvtsi32_si128(register.cast_signed()));
    let mut registers = [0; 3];
    let (mut after, mut words) = (vectors[1..].iter(), of_a.iter().zip(of_b).zip(of_c));
    let by = constant(const { moving(512) });
    for ((a, b), c) in &mut words {
        registers = [take_three(registers[0], a), take_three(registers[1], b), take_three(registers[2], c)];
        if let Some(next) = after.next() {
            let next = loaded(next);
            for (sum, next) in sums.iter_mut().zip(next) {
                *sum = _mm_xor_si128(moved(*sum, by), next);
            }
        }
    }
    let power = power_of_bits(8 * a.len() - 33);
    let mut register = joined(sums);
    for part in registers {
        register = times(register, power) ^ part;
    }
    short(register, rest)
}

#[inline]
#[target_feature(enable = "sse4.2")]
fn take_three(register: u32, bytes: &[u8; 24]) -> u32 {
    let words = bytes.as_chunks().0;
    let word = |n: usize| u64::from_le_bytes(words[n]);
    let (first, second, third) = (word(0), word(1), word(2));
    take(take(take(register, first), second), third)
}

#[inline]
#[target_feature(enable = "sse2")]
fn loaded(bytes: &[u8; 64]) -> [__m128i; 4] {
    let from = bytes.as_ptr().cast::<__m128i>();
    // SAFETY: there are four times 16 bytes, and such loads take any address.
    unsafe {
        [
            _mm_loadu_si128(from),
            _mm_loadu_si128(from.add(1)),
            _mm_loadu_si128(from.add(2)),
            _mm_loadu_si128(from.add(3)),
        ]
    }
}

#[inline]
#[target_feature(enable = "sse2")]
fn constant(halves: [i64; 2]) -> __m128i {
    _mm_set_epi64x(halves[1], halves[0])
}

/// A vector moved by what `by` is for ([`moving`]).
#[inline]
#[target_feature(enable = "pclmulqdq")]
fn moved(vector: __m128i, by: __m128i) -> __m128i {
    _mm_xor_si128(_mm_clmulepi64_si128::<0x00>(vector, by), _mm_clmulepi64_si128::<0x11>(vector, by))
}

/// The register of four vectors, the first of which is the text's first.
#[inline]
#[target_feature(enable = "sse4.2,pclmulqdq")]
fn joined(vectors: [__m128i; 4]) -> u32 {
    let (by_one, by_two) = (constant(const { moving(128) }), constant(const { moving(256) }));
    let [a, b, c, d] = vectors;
    let (ab, cd) = (_mm_xor_si128(moved(a, by_one), b), _mm_xor_si128(moved(c, by_one), d));
    of_vector(_mm_xor_si128(moved(ab, by_two), cd))
}

/// The register of a vector.
#[inline]
#[target_feature(enable = "sse4.2")]
fn of_vector(vector: __m128i) -> u32 {
    take(take(0, _mm_cvtsi128_si64(vector).cast_unsigned()), _mm_extract_epi64::<1>(vector).cast_unsigned())
}

/// The product of two, without remainder: times x.
#[inline]
#[target_feature(enable = "pclmulqdq")]
fn product(a: u32, b: u32) -> u64 {
    let (a, b) = (_mm_cvtsi32_si128(a.cast_signed()), _mm_cvtsi32_si128(b.cast_signed()));
    _mm_cvtsi128_si64(_mm_clmulepi64_si128::<0>(a, b)).cast_unsigned()
}

/// The product of a register and a power, times x^33.
#[inline]
#[target_feature(enable = "sse4.2,pclmulqdq")]
fn times(register: u32, power: u32) -> u32 {
    take(0, product(register, power))
}

/// x^n mod P. From x^m follow x^(2m + 33) by [`times`], and x^(2m + 32) without the x of
/// [`product`].
#[inline]
#[target_feature(enable = "sse4.2,pclmulqdq")]
fn power_of_bits(n: usize) -> u32 {
    let mut left = n;
    // Above a one, which bounds them, whether what was halved was odd, the last one lowest.
    let mut halved = 1u64;
    while left > 191 {
        halved = halved << 1 | (left & 1) as u64;
        left = left / 2 - 16;
    }
    let mut power = ONE >> (left % 32);
    for _ in 0..left / 32 {
        power = _mm_crc32_u32(power, 0);
    }
    while halved > 1 {
        power = take(0, product(power, power) << (!halved & 1));
        halved >>= 1;
    }
    power
}

/// What needs AVX-512.
#[rustversion::since(1.89)]
mod wide {
    use std::arch::x86_64::{
        __m512i, _mm_cvtsi32_si128, _mm_ternarylogic_epi64, _mm_xor_si128, _mm512_broadcast_i32x4,
        _mm512_castsi512_si128, _mm512_clmulepi64_epi128, _mm512_extracti32x4_epi32, _mm512_loadu_si512,
        _mm512_set_epi64, _mm512_ternarylogic_epi64, _mm512_xor_si512, _mm512_zextsi128_si512,
    };

    use super::{ALIGNED, constant, moving, of_vector, short};

    /// The exclusive or of three, as the instruction for any function of three bits takes it.
    const XOR: i32 = 0x96;

    /// As [`super::fused`], where three vectors are combined by one instruction.
    #[target_feature(enable = "sse4.2,pclmulqdq,avx512vl")]
    pub(super) fn fused(register: u32, bytes: &[u8]) -> u32 {
        super::fused(register, bytes)
    }

    /// By vectors of 64 bytes, three at a time while there are as many.
    #[target_feature(enable = "sse4.2,pclmulqdq,avx512vl,vpclmulqdq")]
    pub(super) fn folded(register: u32, bytes: &[u8]) -> u32 {
        if bytes.len() < ALIGNED {
            return folded_as_it_lies(register, bytes);
        }
        let (before, bytes) = bytes.split_at(bytes.as_ptr().align_offset(64).min(63));
        folded_as_it_lies(short(register, before), bytes)
    }

    #[inline]
    #[target_feature(enable = "sse4.2,pclmulqdq,avx512vl,vpclmulqdq")]
    fn folded_as_it_lies(register: u32, bytes: &[u8]) -> u32 {
        let (blocks, rest) = bytes.as_chunks();
        let Some((first, blocks)) = blocks.split_first() else { return short(register, bytes) };
        let register = _mm512_zextsi128_si512(_mm_cvtsi32_si128(register.cast_signed()));
        let mut sum = _mm512_xor_si512(loaded(first), register);
        let by_one = every(const { moving(512) });
        let mut blocks = blocks;
        if let Some(([second, third], after)) = blocks.split_first_chunk() {
            let mut sums = [sum, loaded(second), loaded(third)];
            let (threes, after) = after.as_chunks();
            let by_three = every(const { moving(3 * 512) });
            for [a, b, c] in threes {
                sums = [
                    moved_onto(sums[0], by_three, loaded(a)),
                    moved_onto(sums[1], by_three, loaded(b)),
                    moved_onto(sums[2], by_three, loaded(c)),
                ];
            }
            sum = moved_onto(moved_onto(sums[0], by_one, sums[1]), by_one, sums[2]);
            blocks = after;
        }
        for block in blocks {
            sum = moved_onto(sum, by_one, loaded(block));
        }
        short(joined(sum), rest)
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn loaded(bytes: &[u8; 64]) -> __m512i {
        // SAFETY: there are 64 bytes, and such loads take any address.
        unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
    }

    /// The same for each of the four vectors of 16 bytes.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn every(halves: [i64; 2]) -> __m512i {
        _mm512_broadcast_i32x4(constant(halves))
    }

    /// `vector` moved by what `by` is for ([`moving`]), and `onto`.
    #[inline]
    #[target_feature(enable = "avx512f,vpclmulqdq")]
    fn moved_onto(vector: __m512i, by: __m512i, onto: __m512i) -> __m512i {
        let low = _mm512_clmulepi64_epi128::<0x00>(vector, by);
        _mm512_ternarylogic_epi64::<XOR>(low, _mm512_clmulepi64_epi128::<0x11>(vector, by), onto)
    }

    /// The register of a vector: its first three quarters are moved onto the last.
    #[inline]
    #[target_feature(enable = "sse4.2,avx512vl,vpclmulqdq")]
    fn joined(vector: __m512i) -> u32 {
        let ([a, b], [c, d], [e, f]) = (const { moving(384) }, const { moving(256) }, const { moving(128) });
        let by = _mm512_set_epi64(0, 0, f, e, d, c, b, a);
        let low = _mm512_clmulepi64_epi128::<0x00>(vector, by);
        let moved = _mm512_xor_si512(low, _mm512_clmulepi64_epi128::<0x11>(vector, by));
        let (first, second) = (_mm512_castsi512_si128(moved), _mm512_extracti32x4_epi32::<1>(moved));
        let (third, last) = (_mm512_extracti32x4_epi32::<2>(moved), _mm512_extracti32x4_epi32::<3>(vector));
        of_vector(_mm_xor_si128(_mm_ternarylogic_epi64::<XOR>(first, second, third), last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Each way that this processor can go, whichever it would.
    fn all(register: u32, bytes: &[u8]) -> Vec<(&'static str, u32)> {
        let mut found = vec![("as called", update(register, bytes).unwrap())];
        // SAFETY: the processor has what each was compiled for.
        unsafe {
            found.push(("short", short(register, bytes)));
            if is_x86_feature_detected!("pclmulqdq") {
                found.push(("fused", fused(register, bytes)));
                found.extend(of_avx512(register, bytes));
            }
        }
        found
    }

    #[rustversion::since(1.89)]
    fn of_avx512(register: u32, bytes: &[u8]) -> Vec<(&'static str, u32)> {
        let mut found = Vec::new();
        if is_x86_feature_detected!("avx512vl") {
            // SAFETY: the processor has what each was compiled for.
            unsafe {
                found.push(("fused by AVX-512", wide::fused(register, bytes)));
                if is_x86_feature_detected!("vpclmulqdq") {
                    found.push(("folded", wide::folded(register, bytes)));
                }
            }
        }
        found
    }

    #[rustversion::before(1.89)]
    fn of_avx512(_: u32, _: &[u8]) -> Vec<(&'static str, u32)> {
        Vec::new()
    }

    fn agree(register: u32, bytes: &[u8]) {
        let want = !crc32c::crc32c_append(!register, bytes);
        for (way, got) in all(register, bytes) {
            assert_eq!(got, want, "{way}, {} bytes", bytes.len());
        }
    }

    #[test]
    fn every_way_agrees_at_every_length_of_a_few_packets() {
        let bytes: Vec<u8> = (0..4000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for len in 0..bytes.len() {
            agree(0x1234_5678, &bytes[..len]);
        }
        for from in 0..64 {
            agree(!0, &bytes[from..]);
        }
    }

    #[test]
    fn every_way_agrees_on_a_long_text() {
        let bytes: Vec<u8> = (0..3_000_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
        for len in [65_535, 65_536, 65_537, 1 << 20, bytes.len()] {
            agree(7, &bytes[..len]);
        }
        // From 4 KiB on vectors are read from lines of the cache, wherever the text begins.
        for from in 0..64 {
            agree(!0, &bytes[from..from + 4096 + from]);
        }
    }

    proptest! {
        #[test]
        fn every_way_agrees(register in any::<u32>(), bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
            agree(register, &bytes);
        }
    }
}

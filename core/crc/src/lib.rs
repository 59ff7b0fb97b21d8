//! CRC32C (Castagnoli) by the instructions of the processor that the program finds itself on: of
//! `core/` the only crate that is `unsafe`, which loads of vectors are, and calls of what is
//! compiled for more than the oldest processor.
//!
//! How: the remainder of a long text is folded, 64 or 192 bytes at a step, by carry-less
//! multiplication (Gopal and others, *Fast CRC computation for generic polynomials*, Intel 2009).
//! Beside 128-bit vectors the instruction for CRC32C itself works on three more parts of the text,
//! whose remainders are put together at the end (<https://www.corsix.org/content/fast-crc32c-4k>).

#[cfg(target_arch = "x86_64")]
mod powers;
#[cfg(target_arch = "x86_64")]
mod x86_64;

/// The register of CRC32C after `bytes`, from what it was before them: all ones at the beginning,
/// the checksum's complement at the end. None where the processor has no instruction for it.
#[cfg(target_arch = "x86_64")]
#[inline]
#[must_use]
pub fn update(register: u32, bytes: &[u8]) -> Option<u32> {
    x86_64::update(register, bytes)
}

/// The register of CRC32C after `bytes`, from what it was before them: all ones at the beginning,
/// the checksum's complement at the end. None where the processor has no instruction for it.
#[cfg(not(target_arch = "x86_64"))]
#[must_use]
pub fn update(register: u32, bytes: &[u8]) -> Option<u32> {
    use crc_fast::{CrcAlgorithm, Digest};
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(register));
    digest.update(bytes);
    #[expect(clippy::cast_possible_truncation, reason = "a 32-bit register in 64 bits")]
    let register = digest.get_state() as u32;
    Some(register)
}

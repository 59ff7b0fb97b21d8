//! CRC32C (Castagnoli), the check of level integrity.

/// Continues the CRC32C `crc` over `bytes`. Start from 0 for the plain checksum, or from a salt (spec 2.1); the value
/// after each call is a finished checksum, so slices may be taken one after the other.
#[inline]
#[must_use]
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, bytes)
}

//! CRC32C (Castagnoli), the check of level integrity.

/// Continues the CRC32C `crc` over `bytes`. Start from 0 for the plain checksum, or from a salt
/// (spec 2.1); the value after each call is a finished checksum, so slices may be taken one after
/// the other.
#[inline]
#[must_use]
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    // The register holds the complement of the finished checksum.
    #[cfg(feature = "fast-crc")]
    if let Some(register) = weir_crc::update(!crc, bytes) {
        return !register;
    }
    by_table(!crc, bytes)
}

fn by_table(register: u32, bytes: &[u8]) -> u32 {
    use crc::{CRC_32_ISCSI, Crc, Table};
    static CRC32C: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISCSI);
    // The crate takes the register as the polynomial reads it, most significant bit first.
    let mut digest = CRC32C.digest_with_initial(register.reverse_bits());
    digest.update(bytes);
    digest.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn tables_and_instructions_agree(crc in any::<u32>(), bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let bytes: Vec<u8> = bytes;
            prop_assert_eq!(by_table(!crc, &bytes), crc32c_append(crc, &bytes));
        }
    }
}

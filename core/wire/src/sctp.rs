//! The first message of each side of an SCTP association (spec/sctp.md 3): whose it is.

use subtle::ConstantTimeEq;

use crate::bulk::BulkKey;

/// Version of `spec/sctp.md` that is spoken here.
pub const VERSION: u8 = 1;
/// Bytes of a HELLO.
pub const HELLO_LEN: usize = 40;

const MAGIC: &[u8; 8] = b"WEIRSCTP";
const SIGNED_LEN: usize = 24;

/// The HELLO for an association, which its receiver calls by this id.
#[must_use]
pub fn hello(association: u64, key: &BulkKey) -> [u8; HELLO_LEN] {
    let mut out = [0; HELLO_LEN];
    out[..8].copy_from_slice(MAGIC);
    out[8] = VERSION;
    out[16..SIGNED_LEN].copy_from_slice(&association.to_le_bytes());
    let mac = key.mac(&out[..SIGNED_LEN]);
    out[SIGNED_LEN..].copy_from_slice(&mac);
    out
}

/// Whether these bytes are the HELLO for an association that we call by this id, made by somebody
/// who knows the key.
#[must_use]
pub fn is_hello(bytes: &[u8], association: u64, key: &BulkKey) -> bool {
    bytes.ct_eq(&hello(association, key)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_is_that_of_one_association_and_key_and_no_bit_else() {
        let (key, other) = (BulkKey::new([7; 32]), BulkKey::new([8; 32]));
        let good = hello(0x0102_0304_0506_0708, &key);
        assert_eq!(good[..24], *b"WEIRSCTP\x01\0\0\0\0\0\0\0\x08\x07\x06\x05\x04\x03\x02\x01");
        assert!(is_hello(&good, 0x0102_0304_0506_0708, &key));
        assert!(!is_hello(&good, 0x0102_0304_0506_0709, &key) && !is_hello(&good, 0x0102_0304_0506_0708, &other));
        assert!(!is_hello(&good[..39], 0x0102_0304_0506_0708, &key) && !is_hello(&[], 0x0102_0304_0506_0708, &key));
        for bit in 0..HELLO_LEN * 8 {
            let mut damaged = good;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_hello(&damaged, 0x0102_0304_0506_0708, &key), "bit {bit}");
        }
    }
}

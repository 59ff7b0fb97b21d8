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

//! Keys, checks and encryption (spec 2.1, 2.3, 3, 3.3, 7).

mod crc;
mod handshake;
mod session;

pub use crc::crc32c_append;
pub use handshake::{COOKIE_EPOCH_S, CookieKey, HandshakeKey, MAC_LEN, fingerprint};
pub use session::{RecvKeys, Role, SALT_LEN, SendKeys, SessionKeys};

/// The key that all members of a job share.
pub type JobKey = [u8; 32];

use ring::hkdf;

/// HKDF-SHA256 (RFC 5869).
fn hkdf_sha256<const N: usize>(key: &JobKey, salt: &[u8], info: &[&[u8]]) -> [u8; N] {
    struct Len(usize);
    impl hkdf::KeyType for Len {
        fn len(&self) -> usize {
            self.0
        }
    }
    let mut out = [0; N];
    let prk = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(key);
    // Fails only for more than 255 blocks of output; N is a small constant of ours.
    prk.expand(info, Len(N)).and_then(|okm| okm.fill(&mut out)).expect("HKDF output of constant, small length");
    out
}

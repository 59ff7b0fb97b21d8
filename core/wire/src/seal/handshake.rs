//! MACs of handshake packets, cookies, and the fingerprint in endpoint names.

use core::net::SocketAddr;

use ring::{digest, hmac};
use subtle::ConstantTimeEq;

use super::{JobKey, hkdf_sha256};
use crate::handshake::{COOKIE_LEN, Opening};

/// Bytes of a handshake packet's MAC.
pub const MAC_LEN: usize = 16;
/// Seconds for which one epoch of cookies lasts; a cookie is good for its own and the next (spec
/// 3).
pub const COOKIE_EPOCH_S: u64 = 8;

/// The key of handshake packets.
pub struct HandshakeKey(hmac::Key);

impl HandshakeKey {
    /// HKDF of the job key (spec 3.3).
    #[must_use]
    pub fn derive(job_key: &JobKey) -> HandshakeKey {
        let key: [u8; 32] = hkdf_sha256(job_key, &[], &[b"weir 1 handshake"]);
        HandshakeKey(hmac::Key::new(hmac::HMAC_SHA256, &key))
    }

    /// The MAC of a packet's bytes.
    #[must_use]
    pub fn mac(&self, bytes: &[u8]) -> [u8; MAC_LEN] {
        let mut mac = [0; MAC_LEN];
        mac.copy_from_slice(&hmac::sign(&self.0, bytes).as_ref()[..MAC_LEN]);
        mac
    }

    /// Whether a packet ends in the MAC of the bytes before it.
    #[must_use]
    pub fn verify(&self, packet: &[u8]) -> bool {
        let Some((bytes, mac)) = packet.split_last_chunk::<MAC_LEN>() else {
            return false;
        };
        self.mac(bytes).ct_eq(mac).into()
    }
}

/// A responder's own secret, new at every start, from which cookies are made and known again
/// without state.
pub struct CookieKey(hmac::Key);

impl CookieKey {
    /// From 32 random bytes.
    #[must_use]
    pub fn new(boot_secret: &[u8; 32]) -> CookieKey {
        CookieKey(hmac::Key::new(hmac::HMAC_SHA256, boot_secret))
    }

    /// The cookie for an opening that came from `opener_addr`. `epoch` counts periods of
    /// [`COOKIE_EPOCH_S`].
    #[must_use]
    pub fn cookie(&self, opener_addr: &SocketAddr, opening: &Opening, epoch: u64) -> [u8; COOKIE_LEN] {
        let mut c = hmac::Context::with_key(&self.0);
        // Fixed lengths, IPv4 as mapped, so that no two inputs read the same.
        let ip = match opener_addr.ip() {
            core::net::IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            core::net::IpAddr::V6(v6) => v6,
        };
        c.update(&ip.octets());
        c.update(&opener_addr.port().to_le_bytes());
        for word in [opening.opener_id, opening.responder_id, opening.opener_association, epoch] {
            c.update(&word.to_le_bytes());
        }
        c.update(&opening.nonce);
        let mut cookie = [0; COOKIE_LEN];
        cookie.copy_from_slice(c.sign().as_ref());
        cookie
    }

    /// Whether `cookie` was made in this epoch or the last.
    #[must_use]
    pub fn verify(&self, cookie: &[u8; COOKIE_LEN], opener_addr: &SocketAddr, opening: &Opening, epoch: u64) -> bool {
        let made_in = |e| bool::from(self.cookie(opener_addr, opening, e).ct_eq(cookie));
        made_in(epoch) || epoch.checked_sub(1).is_some_and(made_in)
    }
}

/// Key fingerprint for endpoint names (spec 7). Says nothing useful about the key.
#[must_use]
pub fn fingerprint(job_key: &JobKey) -> [u8; 4] {
    let mut c = digest::Context::new(&digest::SHA256);
    c.update(b"weir fingerprint");
    c.update(job_key);
    let mut out = [0; 4];
    out.copy_from_slice(&c.finish().as_ref()[..4]);
    out
}

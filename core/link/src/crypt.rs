//! Keys of the endpoint and of an association, as the rest of the crate uses them.

use alloc::vec::Vec;
use core::net::SocketAddr;

use rand_chacha::ChaCha12Rng;
use rand_core::RngCore;
use weir_wire::handshake::{NONCE_LEN, Opening};
use weir_wire::seal::{COOKIE_EPOCH_S, CookieKey, HandshakeKey, Role, SessionKeys, fingerprint};
use weir_wire::{EndpointName, Level};

use crate::{NameError, Time};

/// Keys of an association.
pub(crate) struct Crypt {
    pub(crate) keys: SessionKeys,
}

impl Crypt {
    pub(crate) fn level(&self) -> Level {
        self.keys.send.level()
    }
}

/// Keys with which associations are made.
pub(crate) struct Handshake {
    pub(crate) key: HandshakeKey,
    cookies: CookieKey,
    job_key: [u8; 32],
    pub(crate) fingerprint: [u8; 4],
}

impl Handshake {
    pub(crate) fn new(job_key: &[u8; 32], rng: &mut ChaCha12Rng) -> Self {
        let mut secret = [0; 32];
        rng.fill_bytes(&mut secret);
        Handshake {
            key: HandshakeKey::derive(job_key),
            cookies: CookieKey::new(&secret),
            job_key: *job_key,
            fingerprint: fingerprint(job_key),
        }
    }

    /// The name was made with our job key.
    pub(crate) fn check_name(&self, name: &EndpointName) -> Result<(), NameError> {
        if name.fingerprint == self.fingerprint { Ok(()) } else { Err(NameError::Key) }
    }

    /// The cookie epoch.
    pub(crate) fn epoch(now: Time) -> u64 {
        now.0 / (COOKIE_EPOCH_S * 1_000_000_000)
    }

    pub(crate) fn cookie(&self, now: Time, from: &SocketAddr, o: &Opening) -> [u8; 32] {
        self.cookies.cookie(from, o, Self::epoch(now))
    }

    pub(crate) fn cookie_is_good(&self, now: Time, cookie: &[u8; 32], from: &SocketAddr, o: &Opening) -> bool {
        self.cookies.verify(cookie, from, o, Self::epoch(now))
    }

    /// Session keys from both nonces.
    pub(crate) fn session(&self, level: Level, role: Role, o: &Opening, responder_nonce: &[u8; NONCE_LEN]) -> Crypt {
        Crypt {
            keys: SessionKeys::derive(
                &self.job_key,
                level,
                role,
                &o.nonce,
                responder_nonce,
                o.opener_id,
                o.responder_id,
            ),
        }
    }

    /// A handshake packet's bytes.
    pub(crate) fn write(&self, p: &weir_wire::Handshake) -> Vec<u8> {
        let mut out = Vec::new();
        p.write(&self.key, &mut out);
        out
    }
}

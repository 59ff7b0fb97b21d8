//! How a listener and a driver prove to each other that they have the job's key, and sign what they
//! say after that (`spec/ping.md` 4).

use ring::hmac::{HMAC_SHA256, Key, Tag, sign, verify};

use crate::{hex, unhex};

/// Bytes of a number used once.
pub const NONCE_BYTES: usize = 16;

/// Who proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Who asks.
    Driver,
    /// Who listens.
    End,
}

/// The numbers of a meeting: the listener's, the driver's.
#[derive(Clone, Copy, Debug)]
pub struct Nonces {
    /// The listener's.
    pub end: [u8; NONCE_BYTES],
    /// The driver's.
    pub driver: [u8; NONCE_BYTES],
}

fn text(label: &str, nonces: &Nonces) -> Vec<u8> {
    [label.as_bytes(), &nonces.end, &nonces.driver].concat()
}

fn label(role: Role) -> &'static str {
    match role {
        Role::Driver => "weir ping driver",
        Role::End => "weir ping end",
    }
}

/// The proof of a role, in hexadecimal.
#[must_use]
pub fn of(key: &[u8; 32], role: Role, nonces: &Nonces) -> String {
    hex(sign(&Key::new(HMAC_SHA256, key), &text(label(role), nonces)).as_ref())
}

/// Whether this is the proof of a role.
#[must_use]
pub fn holds(key: &[u8; 32], role: Role, nonces: &Nonces, proof: &str) -> bool {
    let Some(given) = unhex::<32>(proof) else { return false };
    verify(&Key::new(HMAC_SHA256, key), &text(label(role), nonces), &given).is_ok()
}

/// What signs lines, and checks those of the other side.
pub struct Session {
    key: Key,
    role: Role,
    sent: u64,
    received: u64,
}

impl Session {
    /// Of the side of `role`.
    #[must_use]
    pub fn new(key: &[u8; 32], role: Role, nonces: &Nonces) -> Session {
        let session: Tag = sign(&Key::new(HMAC_SHA256, key), &text("weir ping session", nonces));
        Session { key: Key::new(HMAC_SHA256, session.as_ref()), role, sent: 0, received: 0 }
    }

    fn signed(from: Role, number: u64, line: &str) -> Vec<u8> {
        let direction: &[u8] = if from == Role::Driver { b">" } else { b"<" };
        [direction, &number.to_le_bytes(), line.as_bytes()].concat()
    }

    /// A line with its code.
    pub fn sign(&mut self, line: &str) -> String {
        let code = sign(&self.key, &Self::signed(self.role, self.sent, line));
        self.sent += 1;
        format!("{} {line}", hex(code.as_ref()))
    }

    /// The line behind a code, if it is right.
    pub fn check<'a>(&mut self, line: &'a str) -> Option<&'a str> {
        let (code, rest) = line.split_once(' ')?;
        let from = if self.role == Role::Driver { Role::End } else { Role::Driver };
        verify(&self.key, &Self::signed(from, self.received, rest), &unhex::<32>(code)?).ok()?;
        self.received += 1;
        Some(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONCES: Nonces = Nonces { end: [1; 16], driver: [2; 16] };

    #[test]
    fn a_proof_is_of_one_key_role_and_meeting() {
        let proof = of(&[7; 32], Role::Driver, &NONCES);
        assert!(holds(&[7; 32], Role::Driver, &NONCES, &proof));
        assert!(!holds(&[8; 32], Role::Driver, &NONCES, &proof));
        assert!(!holds(&[7; 32], Role::End, &NONCES, &proof));
        assert!(!holds(&[7; 32], Role::Driver, &Nonces { end: [3; 16], ..NONCES }, &proof));
        assert!(
            !holds(&[7; 32], Role::Driver, &NONCES, "") && !holds(&[7; 32], Role::Driver, &NONCES, &"é".repeat(32))
        );
    }

    #[test]
    fn a_line_counts_once_in_its_place_and_its_direction() {
        let session = |role| Session::new(&[7; 32], role, &NONCES);
        let (mut driver, mut end) = (session(Role::Driver), session(Role::End));
        let (first, second) = (driver.sign("{}"), driver.sign("{}"));
        assert_ne!(first, second);
        assert_eq!(end.check(&second), None, "not in its place");
        assert_eq!(end.check(&first), Some("{}"));
        assert_eq!(end.check(&first), None, "once");
        assert_eq!(end.check(&second), Some("{}"));
        assert_eq!(session(Role::Driver).check(&first), None, "sent back to who sent it");
        let mut wrong = first.clone();
        wrong.push('x');
        assert_eq!(session(Role::End).check(&wrong), None);
        assert_eq!(session(Role::End).check(""), None);
    }
}

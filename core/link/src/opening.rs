//! One opening, as either side keeps it; its course is the affair of `handshake`.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use weir_wire::handshake as wire;

use crate::Time;

/// An opening ends after so many times `connect_timeout`, whatever is heard of the peer: what was
/// recorded may be repeated by anybody.
const OPENING_MOST: u32 = 6;
/// And after so many times that, whatever the endpoint itself was late by.
const LATE_MOST: u32 = 12;

/// State of an opening (the opener's side).
pub(crate) struct Opening {
    pub(crate) opening: wire::Opening,
    /// The responder's cookie and where it came from.
    pub(crate) cookie: Option<([u8; wire::COOKIE_LEN], SocketAddr, Option<IpAddr>)>,
    /// Never while it waits for a place.
    pub(crate) send_at: Time,
    /// Never before its first INIT.
    pub(crate) give_up: Time,
    /// When it ends though the peer is heard.
    pub(crate) last: Time,
    /// When it ends whatever the endpoint was late by.
    pub(crate) end: Time,
    /// What the endpoint had been late by when these were set.
    pub(crate) late_ns: u64,
    /// It is one of those that may be unanswered (spec 3.4).
    pub(crate) has_place: bool,
    /// It waits to become one.
    pub(crate) is_queued: bool,
    pub(crate) interval_ns: u64,
    /// When the first INIT, or the first CONFIRM with this cookie, was sent.
    pub(crate) asked_at: Time,
    pub(crate) tries: u32,
    pub(crate) confirms: u32,
    /// A CONFIRM went out: the responder may hold this opening for established.
    pub(crate) confirmed: bool,
    /// Answers of another endpoint at the peer's addresses, at most one for each INIT.
    pub(crate) strangers: u32,
}

impl Opening {
    /// It has a place: the first INIT is due, or the first CONFIRM with a cookie.
    pub(crate) fn start(&mut self, now: Time, late_ns: u64, connect_timeout: Duration) {
        let is_first = self.waits();
        (self.has_place, self.is_queued) = (true, false);
        self.send_at = now;
        if is_first {
            self.give_up = now + connect_timeout;
            self.last = now + connect_timeout * OPENING_MOST;
            self.end = now + connect_timeout * LATE_MOST;
            self.late_ns = late_ns;
        }
        self.hear(now, connect_timeout);
    }

    /// Nothing was sent of it: nobody else can know of it.
    pub(crate) fn waits(&self) -> bool {
        self.tries == 0 && self.give_up == Time::MAX
    }

    /// The peer lives: it has sent something that belongs to this opening, or opens itself.
    pub(crate) fn hear(&mut self, now: Time, connect_timeout: Duration) {
        if !self.waits() {
            self.give_up = self.give_up.max(now + connect_timeout).min(self.last);
        }
    }

    /// Whether it is to be given up. What the endpoint was itself late by, and the time of a start
    /// of many, do not count, up to a bound.
    pub(crate) fn is_over(&mut self, now: Time, late_ns: u64) -> bool {
        let late = late_ns - self.late_ns;
        if self.give_up <= now && late > 0 {
            let later = |t: Time| t.plus_ns(late).min(self.end);
            (self.give_up, self.last) = (later(self.give_up), later(self.last));
            self.late_ns = late_ns;
        }
        self.give_up <= now
    }
}

/// What a responder keeps of an opening: a repeated CONFIRM gets the same answer.
pub(crate) struct Accepted {
    pub(crate) nonce: [u8; wire::NONCE_LEN],
    pub(crate) packet: Vec<u8>,
}

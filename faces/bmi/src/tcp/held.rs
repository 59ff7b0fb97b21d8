//! What is held of messages that nobody has posted for or collected yet, and how much more may be
//! (spec/bmi.md 7, T5). Pure.

use super::codec::EAGER_MAX;
use crate::settings::Settings;

/// Messages held of a peer. A message of no bytes takes memory too, of which the bytes say nothing.
pub const MESSAGES_MAX: usize = 1024;
/// The same, all peers.
pub const ALL_MESSAGES_MAX: usize = 1 << 18;
/// So many of each peer have room whatever is held of others: it is not to be starved by those who
/// fill the budget of all.
const OWN_MESSAGES: usize = 16;

/// What is held, of a peer or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Payload, bytes.
    pub bytes: u64,
    /// Messages, those of which some has come among them.
    pub messages: usize,
}

impl Held {
    /// A message of so many bytes.
    #[must_use]
    pub fn one(bytes: u64) -> Held {
        Held { bytes, messages: 1 }
    }

    /// More is held.
    pub fn add(&mut self, more: Held) {
        self.bytes += more.bytes;
        self.messages += more.messages;
    }

    /// Less is.
    pub fn take(&mut self, less: Held) {
        self.bytes = self.bytes.saturating_sub(less.bytes);
        self.messages = self.messages.saturating_sub(less.messages);
    }
}

/// Whether a peer's next message may begin.
#[must_use]
pub fn may_begin(peer: Held, all: Held) -> bool {
    peer.messages < MESSAGES_MAX && (all.messages < ALL_MESSAGES_MAX || peer.messages < OWN_MESSAGES)
}

/// How many bytes more a peer's message of `size` bytes, of which `has` are held, may bring in.
#[must_use]
pub fn may_bring(peer: Held, all: Held, has: u64, size: u64, settings: &Settings) -> u64 {
    let of_peer = if peer.bytes == has { u64::MAX } else { settings.peer_bytes.saturating_sub(peer.bytes) };
    // A short message has room whatever others fill: a request is short, and is to be heard. (A
    // part of a long one would be of no use.)
    let own = if size <= EAGER_MAX { EAGER_MAX.saturating_sub(peer.bytes) } else { 0 };
    of_peer.min(settings.bytes.saturating_sub(all.bytes).max(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings::read(&|_| None).expect("valid")
    }

    /// H12, F6.
    #[test]
    fn messages_are_counted_however_short_they_are_and_each_peer_has_room_for_a_few() {
        let messages = |messages| Held { bytes: 0, messages };
        assert!(may_begin(messages(MESSAGES_MAX - 1), messages(MESSAGES_MAX - 1)));
        assert!(!may_begin(messages(MESSAGES_MAX), messages(MESSAGES_MAX)));
        let full = messages(ALL_MESSAGES_MAX);
        assert!(may_begin(messages(OWN_MESSAGES - 1), full) && !may_begin(messages(OWN_MESSAGES), full));
    }

    /// B1, F6.
    #[test]
    fn a_request_has_room_whatever_others_have_filled() {
        let s = settings();
        let full = Held { bytes: s.bytes, messages: 4 };
        assert_eq!(may_bring(Held::one(0), full, 0, 100, &s), EAGER_MAX);
        assert_eq!(may_bring(Held::one(60), full, 60, 100, &s), EAGER_MAX - 60);
        // A long one waits, and so does a second when the first has filled the room.
        assert_eq!(may_bring(Held::one(0), full, 0, EAGER_MAX + 1, &s), 0);
        assert_eq!(may_bring(Held { bytes: EAGER_MAX, messages: 2 }, full, 0, 100, &s), 0);
        // Where there is room for all a peer has its own share, or one message of any length.
        let some = Held { bytes: s.peer_bytes, messages: 4 };
        assert_eq!(may_bring(some, some, s.peer_bytes, 16 << 20, &s), s.bytes - s.peer_bytes);
        assert_eq!(may_bring(some, some, 0, 100, &s), 0);
    }
}

//! The settings that decide what happens to messages.

use crate::budget::HELD_BYTES;
use crate::limits::{ANSWERS_MAX, ATOMICS_MAX, NOTICES_MAX, READS_MAX, REQUESTS_MAX, WRITES_OPEN_MAX};
use core::time::Duration;
use weir_match::StreamBits;

/// Settings of one endpoint's messages. [`EngineConfig`](https://docs.rs/weir-engine) of the engine
/// says by which names users set them, and why the defaults are what they are.
#[derive(Clone, Debug)]
pub struct Config {
    /// Messages up to this size are sent without asking, of more than 32 KiB as far as path and
    /// receiver have room (`spec/protocol.md` 5, "Unasked").
    pub eager_bytes: u32,
    /// Sends up to this size are copied and complete at once when the caller asks only for reusable
    /// memory, of long ones in a row the first; to peers a millisecond and more away all that go
    /// unasked, unless it is 0.
    pub copy_bytes: usize,
    /// Whether the caller is told of peers ([`Messages::take_news`](crate::Messages::take_news)),
    /// and how many may be known at a time that it never inserted. With none, nothing is told, and
    /// completions do not name who was not inserted.
    pub strangers_max: Option<usize>,
    /// Whether a message that arrives and that no receive takes counts as something to wake a
    /// sleeper for, until somebody looks for it ([`Messages::peek`](crate::Messages::peek)).
    pub tell_unasked: bool,
    /// Streams per peer, 1 to 64.
    pub streams: u16,
    /// What of a tag decides over its stream. All endpoints of a job have the same: two that differ
    /// refuse to talk.
    pub stream_bits: StreamBits,
    /// In which order the messages of a peer that went into multi-receives are reported.
    pub multi_order: MultiOrder,
    /// A send that has found no memory for this long, while messages wait that the program does not
    /// receive, fails.
    pub send_timeout: Duration,
    /// Unexpected messages a peer may have sent ahead.
    pub credit_msgs: u32,
    /// Memory for messages nobody has asked for, all peers together, bytes. While less is held, a
    /// peer may send beyond `credit_msgs`.
    pub unexpected_bytes: u64,
    /// Copies of payloads for all peers, bytes. Beyond it what must be copied is refused, until it
    /// has had to wait for too long; beyond half of it other sends are not copied, and
    /// complete when they are acknowledged.
    pub copied_bytes: u64,
    /// Copies for one peer that could be done without, bytes.
    pub copied_peer_bytes: u64,
}

impl Config {
    /// Messages of one peer that may be here at a time: its window, and those whose place in it was
    /// made good ahead.
    pub(crate) fn messages_max(&self) -> u32 {
        let ahead = u32::try_from(self.unexpected_bytes / HELD_BYTES).unwrap_or(u32::MAX);
        self.credit_msgs.saturating_add(ahead)
    }

    /// `link` as messages with these settings need it: what they hold at a time and bound
    /// themselves, and the rules that both sides must follow.
    #[must_use]
    pub fn protocol(&self, proto: weir_link::Config) -> weir_link::Config {
        let messages_max = self.messages_max();
        let session = weir_link::SessionConfig {
            streams: self.streams,
            initial_credit_msgs: self.credit_msgs,
            // Every rendezvous the credit lets in, the large writes of a peer that behaves, and
            // reads of our own.
            rndvs_max: messages_max as usize + 4 * REQUESTS_MAX as usize,
            // An answer that finds no room waits, and credit with it: room for one to each message
            // the credit lets in twice over (answered, and come anew before the answers were
            // acknowledged), and to each request.
            control_queue: messages_max
                .saturating_mul(2)
                .saturating_add(4 * REQUESTS_MAX + ATOMICS_MAX)
                .max(weir_link::SessionConfig::default().control_queue),
            // Bounded here, by number and then by memory.
            send_queue_msgs: usize::MAX,
            ..proto.session
        };
        weir_link::Config { session, features: self.stream_bits.features(), ..proto }
    }

    /// Answers that a peer which behaves can wait for at a time: to each message that its credit
    /// lets in, to each small write that it wants answered, to each large write and each read of
    /// its that may be under way, to each element of its atomic operations, and the news that its
    /// notices were taken, which is told for many at once.
    pub(crate) fn answers_max(&self) -> usize {
        let remote = ANSWERS_MAX + WRITES_OPEN_MAX + READS_MAX + ATOMICS_MAX + NOTICES_MAX;
        self.messages_max() as usize + remote as usize
    }
}

/// In which order the messages of one peer that went into multi-receives are reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MultiOrder {
    /// Each as soon as it is all there.
    #[default]
    AsCompleted,
    /// As they were sent: one that is all there waits for those before it.
    AsSent,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            eager_bytes: 128 << 10,
            copy_bytes: 64 << 10,
            streams: 10,
            strangers_max: None,
            tell_unasked: false,
            stream_bits: StreamBits::default(),
            multi_order: MultiOrder::default(),
            send_timeout: Duration::from_secs(600),
            credit_msgs: 4096,
            unexpected_bytes: 64 << 20,
            copied_bytes: 64 << 20,
            copied_peer_bytes: 16 << 20,
        }
    }
}

//! The words spoken with the matcher: receives, arrivals, matches and counters.

/// The caller's name for a posted receive. Must be unique among the receives that are posted.
pub type OpToken = u64;
/// The caller's name for an arrived message.
pub type MsgToken = u64;

/// The two kinds of messages; a receive of one class never takes a message of the other.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// Carries a 64-bit tag (`fi_tsend`, `fi_trecv`).
    Tagged,
    /// Carries no tag (`fi_send`, `fi_recv`); tag and ignore mask are not looked at.
    Untagged,
}

/// Whose messages a receive takes.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Source {
    /// Any peer's (`FI_ADDR_UNSPEC`).
    Any,
    /// Only this peer's (`FI_DIRECTED_RECV`).
    Peer(u32),
}

/// What a receive, a peek or a claim accepts.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Pattern {
    /// Tagged or untagged.
    pub class: Class,
    /// From whom.
    pub source: Source,
    /// The tag wanted.
    pub tag: u64,
    /// Bits of the tag that do not matter.
    pub ignore: u64,
}

impl Pattern {
    /// Whether a message of this peer, class and tag is accepted. Says nothing about order.
    #[inline]
    pub fn accepts(&self, peer: u32, class: Class, tag: u64) -> bool {
        self.class == class
            && match self.source {
                Source::Any => true,
                Source::Peer(p) => p == peer,
            }
            && (class == Class::Untagged || (self.tag ^ tag) & !self.ignore == 0)
    }

    /// Whether all tags accepted agree in these bits: all messages accepted of one peer travel on
    /// one stream, so order within that stream is enough. (`ignore` need not be 0: a face may keep
    /// bits in the tag that nearly all of its receives ignore.)
    #[inline]
    pub fn is_on_one_stream(&self, bits: StreamBits) -> bool {
        self.class == Class::Tagged && self.ignore & bits.0 == 0
    }
}

/// A multi-receive buffer (`FI_MULTI_RECV`): takes message after message until little room is left.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Multi {
    /// Bytes in the buffer.
    pub room: u64,
    /// The buffer is released once fewer bytes than this are left, or none
    /// (`FI_OPT_MIN_MULTI_RECV`).
    pub min_room: u64,
}

/// A receive to be posted.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Posted {
    /// Tagged or untagged.
    pub class: Class,
    /// From whom.
    pub source: Source,
    /// The tag wanted.
    pub tag: u64,
    /// Bits of the tag that do not matter.
    pub ignore: u64,
    /// The caller's name for the receive.
    pub op: OpToken,
    /// Set for a multi-receive buffer.
    pub multi: Option<Multi>,
}

impl Posted {
    /// The messages this receive accepts.
    #[inline]
    pub fn pattern(&self) -> Pattern {
        Pattern { class: self.class, source: self.source, tag: self.tag, ignore: self.ignore }
    }
}

/// First sight of a message. Each (peer, mseq) is told once.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// From whom: a dense index (memory is kept for each index up to the largest that ever sent).
    pub peer: u32,
    /// Tagged or untagged.
    pub class: Class,
    /// Number among the peer's matched messages of both classes, from 0, without gaps.
    pub mseq: u64,
    /// Stream, a function of class and tag (see [`stream_of`]).
    pub stream: u16,
    /// Number among the messages of that stream, from 0, without gaps, wrapping.
    pub sseq: u32,
    /// Tag; not looked at for untagged messages.
    pub tag: u64,
    /// Bytes in the message (also those a rendezvous will bring).
    pub len: u64,
    /// The caller's name for the message.
    pub msg: MsgToken,
}

/// A receive and the message it takes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Match {
    /// The receive.
    pub op: OpToken,
    /// The message.
    pub msg: MsgToken,
    /// Where in the multi-receive buffer the message goes, in bytes; `None` for an ordinary
    /// receive.
    pub multi_offset: Option<u64>,
    /// Bytes of the multi-receive buffer from there to its end (0 for an ordinary receive). A
    /// longer message is truncated to this (`FI_ETRUNC`).
    pub multi_room: u64,
    /// The multi-receive buffer is released: this is the last message it takes.
    pub multi_done: bool,
}

/// How many messages found a receive waiting and how many had to wait for one, by size.
#[derive(Copy, Clone, Default, PartialEq, Eq, Debug)]
pub struct QueueStatistics {
    /// The receive was posted first; at most 64 KiB.
    pub expected_short: u64,
    /// The receive was posted first; more than 64 KiB.
    pub expected_long: u64,
    /// The message was eligible before its receive was posted, or was claimed; at most 64 KiB.
    pub unexpected_short: u64,
    /// The same, more than 64 KiB.
    pub unexpected_long: u64,
}

/// Counters of a [`Matcher`](crate::Matcher).
#[derive(Copy, Clone, Default, PartialEq, Eq, Debug)]
pub struct Stats {
    /// Matches so far, by kind.
    pub queue_statistics: QueueStatistics,
    /// Receives posted now.
    pub posted: usize,
    /// Messages waiting now, whether for a receive or for a gap to close.
    pub unexpected: usize,
    /// Of these, messages with a gap in their peer's numbering below them.
    pub behind_gap: usize,
    /// The most messages that ever waited at a time.
    pub unexpected_peak: usize,
}

/// The bits of a tag that decide over the stream; sender and receiver must agree in them
/// (`spec/envelopes.md` 3). A face chooses them for its tags: all that its receives name, as a
/// rule, and none that they ignore. The more bits, the more messages are independent; one bit too
/// many that a receive ignores, and it waits for all streams of its peer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct StreamBits(pub u64);

impl Default for StreamBits {
    /// All: for a face whose receives name whole tags.
    fn default() -> Self {
        StreamBits(u64::MAX)
    }
}

/// Feature bits of the handshake that all endpoints of this version have (`spec/envelopes.md` 5):
/// rules of matching and envelopes that both sides must follow. Bit 0: streams by stream bits that
/// bits 4 to 15 tell of. Bit 1: remote writes are answered as [`crate::envelope::Envelope::Done`]
/// says, and only one that travels whole has immediate data. Bit 2: atomic operations. Bit 3: an
/// ACK tells when its packet was read.
const FEATURES: u16 = 15;

impl StreamBits {
    /// The feature bits of the handshake for an endpoint with these stream bits: two whose bits
    /// differ do not talk. (Of the stream bits 12 bits of a hash are told: enough to refuse what
    /// was set up by mistake. Who lies harms only the order of its own messages.)
    #[must_use]
    pub const fn features(self) -> u16 {
        const TOLD: u32 = 12;
        FEATURES | ((mix(self.0) >> (u64::BITS - TOLD)) as u16) << (u16::BITS - TOLD)
    }
}

/// The stream for a message: 0 for untagged ones, 1 .. `streams` (exclusive) for tagged ones, mixed
/// so that strided tags and tags that differ in a few bits spread evenly. Depends on the stream
/// `bits` of the tag only. `streams` counts stream 0; with fewer than 2 all messages share
/// stream 0. The result is always below `max(streams, 1)`.
#[inline]
pub fn stream_of(tag: u64, class: Class, streams: u16, bits: StreamBits) -> u16 {
    if class == Class::Untagged || streams < 2 {
        return 0;
    }
    let pool = u64::from(streams - 1);
    // The high half of hash * pool is a number in 0..pool that depends on all bits of the hash.
    1 + ((u128::from(mix(tag & bits.0)) * u128::from(pool)) >> 64) as u16
}

/// Bijective mixing of 64 bits (the finaliser of SplitMix64): each input bit moves about half of
/// the output bits.
#[inline]
pub(crate) const fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

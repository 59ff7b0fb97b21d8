//! What is counted of messages.

use crate::api::OpKind;
use alloc::vec::Vec;

/// Counts of one endpoint's messages since it was opened. Packets and repairs are counted by the
/// protocol and the transport.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Counters {
    /// Messages sent with their payload at once.
    pub eager_sends: u64,
    /// Messages sent by rendezvous.
    pub rendezvous_sends: u64,
    /// Payload of messages sent, of remote writes and of remote reads asked for, bytes; operands of
    /// atomic operations are not in it.
    pub payload_bytes: u64,
    /// Sends refused because a queue was full.
    pub refused_sends: u64,
    /// Receives posted.
    pub receives: u64,
    /// Messages that found their receive posted.
    pub expected: u64,
    /// Messages that had to wait for their receive.
    pub unexpected: u64,
    /// Bytes now held for unexpected messages.
    pub unexpected_bytes: u64,
    /// The most that were ever held.
    pub unexpected_bytes_peak: u64,
    /// Messages of credit given ahead of their being received, for a peer to go on although nobody
    /// takes what it sent.
    pub credit_ahead: u64,
    /// Messages for which none was given, because the budget of unexpected messages was used up.
    pub credit_withheld: u64,
    /// Bytes now held as copies of payloads, so that the caller's memory is free.
    pub copied_bytes: u64,
    /// The most that were ever held.
    pub copied_bytes_peak: u64,
    /// Times that the budget of copies was doubled because sends waited for room and got none.
    pub copied_bytes_raised: u64,
    /// Sends whose memory was lent until the acknowledgement, because the budget of copies
    /// was used up.
    pub lent_sends: u64,
    /// Messages longer than their receive.
    pub truncated: u64,
    /// Remote writes begun.
    pub writes: u64,
    /// Remote reads begun.
    pub reads: u64,
    /// Supersteps of which was told what is sent and received.
    pub supersteps: u64,
    /// Atomic operations begun.
    pub atomics: u64,
    /// Elements of memory here on which atomic operations of peers were executed.
    pub atomics_executed: u64,
    /// Remote operations refused for key, range or access.
    pub access_errors: u64,
    /// Envelopes that made no sense.
    pub malformed: u64,
    /// Answers to peers that had to wait for room in the queue of control messages.
    pub answers_kept: u64,
    /// Peers given up because they asked for more than they may.
    pub overruns: u64,
    /// Strangers that were turned away for want of a place.
    pub strangers_refused: u64,
    /// Notices of remote writes that the program has not taken.
    pub notices_peak: u64,
}

/// Messages of one stream of one peer, since that peer's association began. A rendezvous counts
/// with the bytes that it announces; messages to oneself are not counted. Those received are sorted
/// as in the endpoint's queue statistics: whether their receive was posted first, and whether they
/// are longer than 64 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct StreamCounters {
    pub messages_out: u64,
    pub bytes_out: u64,
    pub messages_in: u64,
    pub bytes_in: u64,
    pub expected_short: u64,
    pub expected_long: u64,
    pub unexpected_short: u64,
    pub unexpected_long: u64,
}

impl StreamCounters {
    #[inline]
    fn note_met(&mut self, len: u64, expected: bool) {
        *match (expected, len > weir_match::QUEUE_STATISTICS_LONG_BYTES) {
            (true, false) => &mut self.expected_short,
            (true, true) => &mut self.expected_long,
            (false, false) => &mut self.unexpected_short,
            (false, true) => &mut self.unexpected_long,
        } += 1;
    }
}

/// Those of one peer, by stream; as many as were used.
#[derive(Clone, Debug, Default)]
pub struct Streams(Vec<StreamCounters>);

impl Streams {
    #[inline]
    fn of(&mut self, stream: u16) -> &mut StreamCounters {
        let i = usize::from(stream);
        if i >= self.0.len() {
            self.0.resize(i + 1, StreamCounters::default());
        }
        &mut self.0[i]
    }

    /// A message was accepted for sending.
    #[inline]
    pub fn sent(&mut self, stream: u16, len: u64) {
        let s = self.of(stream);
        s.messages_out += 1;
        s.bytes_out += len;
    }

    /// A message was seen for the first time. The protocol has checked that there can be such a
    /// stream.
    #[inline]
    pub fn received(&mut self, stream: u16, len: u64) {
        let s = self.of(stream);
        s.messages_in += 1;
        s.bytes_in += len;
    }

    /// A message has met its receive, which was posted first (`expected`) or came to it.
    #[inline]
    pub fn met(&mut self, stream: u16, len: u64, expected: bool) {
        self.of(stream).note_met(len, expected);
    }

    /// A message was seen and has been received with that: [`Streams::received`] and
    /// [`Streams::met`] in one.
    #[inline]
    pub fn met_at_once(&mut self, stream: u16, len: u64, expected: bool) {
        let s = self.of(stream);
        s.messages_in += 1;
        s.bytes_in += len;
        s.note_met(len, expected);
    }

    /// Those that were used, with their numbers.
    pub fn used(&self) -> impl Iterator<Item = (usize, &StreamCounters)> {
        self.0.iter().enumerate().filter(|(_, s)| **s != StreamCounters::default())
    }
}

/// Operations ended, by kind, whether or not anybody wanted their completion: what completion
/// counters of a face add up. Atomic operations that fetch count as reads, others as writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Totals {
    pub sends: u64,
    pub send_errors: u64,
    pub recvs: u64,
    pub recv_errors: u64,
    pub writes: u64,
    pub write_errors: u64,
    pub reads: u64,
    pub read_errors: u64,
}

impl Totals {
    /// Adds one.
    pub fn count(&mut self, kind: OpKind, ok: bool) {
        let field = match (kind, ok) {
            (OpKind::Send, true) => &mut self.sends,
            (OpKind::Send, false) => &mut self.send_errors,
            (OpKind::Recv | OpKind::Peek, true) => &mut self.recvs,
            (OpKind::Recv | OpKind::Peek | OpKind::MultiRecvReleased, false) => &mut self.recv_errors,
            // What a peer did is no operation of this endpoint.
            (OpKind::MultiRecvReleased, true) | (OpKind::RemoteWrite, _) => return,
            (OpKind::Write | OpKind::Atomic, true) => &mut self.writes,
            (OpKind::Write | OpKind::Atomic, false) => &mut self.write_errors,
            (OpKind::Read | OpKind::FetchAtomic, true) => &mut self.reads,
            (OpKind::Read | OpKind::FetchAtomic, false) => &mut self.read_errors,
        };
        *field += 1;
    }
}

//! What an endpoint counts beside its transport and its protocol.

/// Counts of one endpoint since it was opened.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct EngineCounters {
    /// What messages did.
    #[serde(flatten)]
    pub messages: weir_message::Counters,
    /// What the engine did for them.
    #[serde(flatten)]
    pub engine: OwnCounters,
}

/// What the engine counts of its own work.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct OwnCounters {
    /// Times the watchdog thread made progress because nobody polled.
    pub watchdog_steps: u64,
    /// Passes of progress by who polled another endpoint of the process.
    pub turns: u64,
    /// Empty polls after which the core was yielded.
    pub yields: u64,
    /// Polls of the socket.
    pub polls: u64,
    /// Polls of the socket that failed.
    pub socket_errors: u64,
    /// Bulk connections to peers that live which were not answered, or were refused: a firewall may
    /// drop TCP. Large messages go in packets.
    pub bulk_connects_failed: u64,
    /// The system refused to hand out a connection that had come (no descriptors, no memory, a
    /// filter): none are taken for a second.
    pub bulk_accepts_failed: u64,
}

/// What went over the wire so far, in numbers that only grow: for a face that tells what each of
/// its steps cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Packets sent and received, acknowledgements included.
    pub packets_sent: u64,
    /// The same.
    pub packets_received: u64,
    /// Acknowledgements sent and received, alone in their packets or not.
    pub acks_sent: u64,
    /// The same.
    pub acks_received: u64,
    /// Packets taken for lost.
    pub packets_lost: u64,
    /// Pieces of messages sent again.
    pub repairs_sent: u64,
    /// Times that sending had to wait for the window or the pace.
    pub stalls: u64,
    /// Records through shared memory, sent and received.
    pub records_sent: u64,
    /// The same.
    pub records_received: u64,
}

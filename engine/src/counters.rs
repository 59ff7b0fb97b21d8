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
    /// TCP connections for lanes to peers that live which were not answered, or were refused: a firewall may drop TCP. Large messages go in packets.
    pub lane_connects_failed: u64,
    /// The system refused to hand out a connection that had come (no descriptors, no memory, a filter): none are taken for a second.
    pub lane_accepts_failed: u64,
}

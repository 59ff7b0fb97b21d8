//! What this way has done, for `weir stat` and for tests.

/// Counts since the endpoint was opened; none of them goes down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct XdpCounters {
    /// Datagrams sent by XDP.
    pub tx_datagrams: u64,
    /// System calls that sent them.
    pub tx_calls: u64,
    /// Short datagrams that went by the socket, because no route by XDP was known or it was the
    /// socket's turn.
    pub tx_by_socket: u64,
    /// Short datagrams that went by the socket, because no frame was free.
    pub tx_no_frame: u64,
    /// Times the kernel refused to send (interface down and the like), so that the socket took over
    /// for a while.
    pub tx_refused: u64,
    /// Datagrams received by XDP.
    pub rx_datagrams: u64,
    /// Looks at the ring that found something.
    pub rx_batches: u64,
    /// Frames received that held no datagram for this port.
    pub rx_malformed: u64,
    /// Datagrams received by the socket.
    pub rx_by_socket: u64,
    /// Routes asked for.
    pub route_lookups: u64,
    /// Times that all routes were asked for anew because something had changed.
    pub route_changes: u64,
    /// Times that XDP was lost for good: the helper gone, the interface gone, a ring broken. 0
    /// or 1.
    pub ended: u64,
}

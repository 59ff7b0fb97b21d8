//! What a socket has done, for `weir stat` and for tests.

/// Counts since the socket was opened. A loss here is one that this side knows of; the network adds
/// its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct UdpCounters {
    /// Datagrams handed to the kernel.
    pub tx_datagrams: u64,
    /// Their payload bytes.
    pub tx_bytes: u64,
    /// System calls that sent something.
    pub tx_calls: u64,
    /// Super-packets among what was sent (each counts once, its segments as datagrams).
    pub tx_super_packets: u64,
    /// Times the socket's send buffer was full, so that the rest was parked.
    pub tx_blocked: u64,
    /// Datagrams dropped because the parking space was full too.
    pub tx_parked_overflow: u64,
    /// Datagrams that the kernel refused: unreachable, not permitted, device queue full.
    pub tx_refused: u64,
    /// Datagrams above what the interface or IP allows (path MTU probes, usually).
    pub tx_too_long: u64,
    /// Super-packets that had to be sent one datagram at a time.
    pub tx_offload_failures: u64,
    /// Datagrams received.
    pub rx_datagrams: u64,
    /// Their payload bytes.
    pub rx_bytes: u64,
    /// System calls that received something.
    pub rx_calls: u64,
    /// Reads that found nothing.
    pub rx_empty_calls: u64,
    /// Times the second socket was connected to a peer.
    pub connects: u64,
    /// Super-packets received (their segments count as datagrams).
    pub rx_super_packets: u64,
    /// Datagrams dropped as cut off or without a usable sender address.
    pub rx_malformed: u64,
    /// ICMP errors read (port or host unreachable and the like).
    pub icmp_errors: u64,
}

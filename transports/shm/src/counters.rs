//! What an endpoint's shared memory has done, for `weir stat` and for tests.

/// Counts since the endpoint was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct ShmCounters {
    /// Records published.
    pub tx_records: u64,
    /// Their payload bytes.
    pub tx_bytes: u64,
    /// Times a ring had no room for a record.
    pub tx_full: u64,
    /// Peers woken from sleep, each time one system call.
    pub tx_wakes: u64,
    /// Records received.
    pub rx_records: u64,
    /// Their payload bytes.
    pub rx_bytes: u64,
    /// Times this side was woken.
    pub rx_wakes: u64,
    /// Bytes read directly from peers' memory.
    pub pulled_bytes: u64,
    /// System calls that read them.
    pub pulls: u64,
    /// Associations that came up.
    pub peers_up: u64,
    /// Associations that ended.
    pub peers_over: u64,
    /// Connections of other users, closed at once.
    pub refused_other_user: u64,
    /// Connections whose proof did not fit our key.
    pub refused_key: u64,
    /// Connections refused for anything else: version, form, memory, no room.
    pub refused_other: u64,
    /// Connections closed because their handshake took too long, or newer ones wanted the place.
    pub strangers_expired: u64,
    /// Times connections could not be taken for want of descriptors.
    pub accept_failures: u64,
    /// Times the pages of an idle ring were given back.
    pub trims: u64,
    /// Times the sockets were looked at.
    pub socket_checks: u64,
}

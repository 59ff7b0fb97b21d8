//! Counters: what the endpoint and each association saw, for people and tests.

use serde::Serialize;

/// Counters of one endpoint since its start. All only grow.
#[derive(Clone, Default, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "each name says it; groups are commented")]
pub struct Counters {
    // Datagrams and bytes, both ways.
    pub packets_sent: u64,
    pub bytes_sent: u64,
    pub packets_received: u64,
    pub bytes_received: u64,
    // Received and dropped, by cause.
    pub dropped_malformed: u64,
    pub dropped_check: u64,
    pub dropped_replay: u64,
    pub dropped_unknown: u64,
    pub dropped_state: u64,
    pub dropped_rate_limit: u64,
    // Messages, credit and grants.
    #[serde(flatten)]
    pub session: weir_session::Counters,
    // Acknowledgement and repair.
    pub acks_sent: u64,
    pub acks_received: u64,
    pub packets_lost: u64,
    pub losses_spurious: u64,
    pub probe_timeouts: u64,
    pub repairs_sent: u64,
    pub bytes_resent: u64,
    pub parity_sent: u64,
    pub parity_used: u64,
    // Marks of switches (ECN): packets that came marked, packets of ours that peers told came
    // marked, windows and grant budgets made smaller for them, and what peers told that cannot be.
    pub marks_received: u64,
    pub marks_told: u64,
    pub marks_windows: u64,
    pub marks_grants: u64,
    pub marks_refused: u64,
    // Bulk connections.
    #[serde(flatten)]
    pub bulk: weir_bulk::Counters,
    // Transmissions that had to wait for window or pacing.
    pub stalls_window: u64,
    pub stalls_pacing: u64,
    // Paths and life.
    pub handshakes_opened: u64,
    pub handshakes_repeated: u64,
    pub handshakes_accepted: u64,
    pub handshakes_refused: u64,
    pub resets_sent: u64,
    pub failovers: u64,
    pub mtu_black_holes: u64,
    pub peers_down: u64,
    pub violations: u64,
    /// Text of the last violation seen, empty if none.
    pub last_violation: &'static str,
}

/// What was counted of one peer since its association began: its part of the endpoint's counters of
/// the same names, which count handshakes and peers that are gone too.
#[derive(Copy, Clone, Default, Debug, PartialEq, Eq, Serialize)]
pub struct PeerCounters {
    /// Packets sent, acknowledgements included.
    pub packets_sent: u64,
    /// Packets received and accepted.
    pub packets_received: u64,
    /// Acknowledgements sent, in packets of their own or with other frames.
    pub acks_sent: u64,
    /// Acknowledgements received.
    pub acks_received: u64,
    /// Packets declared lost.
    pub packets_lost: u64,
    /// Losses that proved spurious: what they carried was repaired in vain, unless that was not
    /// sent yet.
    pub losses_spurious: u64,
    /// Pieces of messages and rendezvous transfers sent again.
    pub repairs_sent: u64,
    /// Their payload, bytes.
    pub bytes_resent: u64,
    /// Packets that came marked by a switch whose queue was long (ECN).
    pub marks_received: u64,
    /// Packets of ours that the peer told came marked.
    pub marks_told: u64,
    /// Rounds after which a window was made smaller for marks.
    pub marks_windows: u64,
    /// Credit and grants.
    #[serde(flatten)]
    pub session: weir_session::PeerCounters,
    /// Times that transmission had to wait for the window.
    pub stalls_window: u64,
    /// Times that it had to wait for pacing.
    pub stalls_pacing: u64,
    /// Changes to another path.
    pub failovers: u64,
}

/// Counts something for the endpoint and for the peer.
macro_rules! count {
    ($association:expr, $cx:expr, $name:ident, $n:expr) => {
        $cx.counters.$name += $n;
        $association.counts.$name += $n;
    };
    ($association:expr, $cx:expr, $name:ident) => {
        count!($association, $cx, $name, 1)
    };
}
pub(crate) use count;

/// What is known about one peer now.
#[derive(Clone, Default, Debug, PartialEq, Serialize)]
pub struct PeerStats {
    /// "idle", "opening", "up", "closing", "down".
    pub state: &'static str,
    /// Protection level agreed: 0 integrity, 1 auth, 2 encrypt.
    pub level: u8,
    /// Index of the path that carries data.
    pub primary_path: u8,
    /// TCP connections that carry large payload now.
    pub bulk_connections_open: usize,
    /// Matched messages accepted and not completely acknowledged.
    pub messages_open: usize,
    /// Matched messages waiting for credit.
    pub messages_waiting: usize,
    /// Outgoing rendezvous transfers not completely acknowledged.
    pub rndvs_open: usize,
    /// Incoming rendezvous transfers open.
    pub rndvs_in: usize,
    /// What was counted.
    #[serde(flatten)]
    pub counts: PeerCounters,
    /// The paths.
    pub paths: alloc::vec::Vec<PathStats>,
}

/// What is known about one path now.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PathStats {
    /// Remote address, as text.
    pub remote: alloc::string::String,
    /// "unvalidated", "valid", "suspect".
    pub state: &'static str,
    /// Smoothed round-trip time.
    pub srtt_us: f64,
    /// Smallest round-trip time of the last ten seconds.
    pub min_rtt_us: f64,
    /// Delay of others' making beside it, such as jitter, in us (`spec/protocol.md` 6.3).
    pub noncongestive_us: f64,
    /// Mean deviation.
    pub rttvar_us: f64,
    /// Congestion window.
    pub window_bytes: u64,
    /// Bytes of packets sent by it, all in all.
    pub bytes_sent: u64,
    /// Bytes of packets received by it, all in all.
    pub bytes_received: u64,
    /// What it was seen to deliver of late, bytes per second; 0: not known, as while it is suspect
    /// and until it has carried enough since.
    pub rate_bytes_per_s: u64,
    /// Bytes sent and not yet acknowledged or declared lost.
    pub in_flight_bytes: u64,
    /// Largest datagram known to pass.
    pub mtu: u16,
    /// Reordering threshold of loss detection, packets.
    pub reorder_threshold: u32,
    /// Probe timeouts since something was last acknowledged; each added two packets to those in
    /// flight.
    pub probe_timeouts: u32,
}

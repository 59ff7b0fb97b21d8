//! Constants of sessions that an endpoint may be given otherwise, with their reasons
//! (`spec/protocol.md` 11).

use core::time::Duration;

/// Constants of all sessions of an endpoint. `Default` gives the values of the specification.
#[derive(Clone, Debug)]
pub struct Config {
    /// Streams this side spreads its matched messages over. 64: enough that tags rarely share one,
    /// 4 bytes of state each and side.
    pub streams: u16,
    /// Receiver: matched messages a peer may send before any is consumed. 1024: several windows of
    /// a message-rate test; 48 bytes of state each at worst.
    pub initial_credit_msgs: u32,
    /// Receiver: their bytes. 1 MiB: what an unexpected flood may cost per peer.
    pub initial_credit_bytes: u64,
    /// Sender: matched messages accepted beyond what was handed to a carrier. 4096: deep enough for
    /// windows of any benchmark, 128 bytes each.
    pub send_queue_msgs: usize,
    /// Sender: control messages handed over and not yet known to have arrived. The receiver keeps
    /// at most 4096 ahead of its lowest missing.
    pub control_window: u32,
    /// Sender: control messages accepted and not yet known to have arrived. 65536: answers to all a
    /// peer may ask within its credit, for they must not be lost; what is sent unasked should keep
    /// to [`crate::Session::control_room`].
    pub control_queue: u32,
    /// Longest control message, bytes: it fits the smallest packet of any carrier.
    pub control_len_max: usize,
    /// Bytes of rendezvous data granted and not received, over all peers, besides what the wires
    /// hold. 256 KiB: hides the scheduling of a polling receiver; above it queues only grow.
    pub grant_budget: u64,
    /// Ceiling of the grant budget when round trips are long. 64 MiB: 10 Gbit/s for 50 ms.
    pub grant_budget_max: u64,
    /// Smallest step by which a grant is raised: 16 KiB, one grant per 11 packets.
    pub grant_step: u64,
    /// What newly opened rendezvous data gets at once if the budget has room.
    pub grant_share: u64,
    /// Others that may be served before one that came earlier: bounds waiting under smallest-first.
    pub grant_overtake: u8,
    /// After this wait a share is granted whatever the order. 10 ms: no starvation.
    pub grant_patience: Duration,
    /// A peer that sends less than a step of what it was granted in so many intervals of
    /// `regrant_min` (or 4 smoothed round trips) is silent: what it holds is left to others. 8:
    /// beyond any repair of losses, below `grant_patience`.
    pub grant_silence: u32,
    /// Bytes that a peer with a bulk connection may be granted beyond the budget: TCP holds the
    /// rest back.
    pub grant_bulk_extra: u64,
    /// Bytes that a peer is let in more from its first bulk connection on (`spec/bulk.md` L-6.8).
    /// None: its initial credit once more, so that messages of up to 1 MiB need not be asked for.
    pub bulk_credit_bytes: Option<u64>,
    /// The same over all peers, at most. 64 MiB: 64 peers with the usual credit.
    pub bulk_credit_max: u64,
    /// Bytes that peers may be told ahead to be let in beside their initial credit, over all of
    /// them (`spec/superstep.md` 5). 16 MiB: a round trip of 10 ms at 10 Gbit/s; what comes of it
    /// before its receive is posted is held.
    pub expect_ahead: u64,
    /// Open incoming rendezvous data per peer; more are refused. 4096 bounds the state.
    pub rndvs_max: usize,
    /// Granted data silent for 4 smoothed round trips, at least this long, gets its grant again.
    pub regrant_min: Duration,
    /// The same, if its sender has a bulk connection: what waits its turn there is not lost.
    pub bulk_regrant: Duration,
}

/// What a peer is let in more over a long round trip, times its initial credit: with 1 MiB of it
/// messages of up to 3 MiB need not be asked for, which is 10 ms of 2.5 Gbit/s.
const LONG_CREDIT_TIMES: u64 = 3;

impl Default for Config {
    fn default() -> Self {
        Config {
            streams: 64,
            initial_credit_msgs: 1024,
            initial_credit_bytes: 1 << 20,
            send_queue_msgs: 4096,
            control_window: 2048,
            control_queue: 65536,
            control_len_max: 1024,
            grant_budget: 256 << 10,
            grant_budget_max: 64 << 20,
            grant_step: 16 << 10,
            grant_share: 64 << 10,
            grant_overtake: 8,
            grant_patience: Duration::from_millis(10),
            grant_silence: 8,
            grant_bulk_extra: 4 << 20,
            bulk_credit_bytes: None,
            bulk_credit_max: 64 << 20,
            expect_ahead: 16 << 20,
            rndvs_max: 4096,
            regrant_min: Duration::from_millis(1),
            bulk_regrant: Duration::from_millis(20),
        }
    }
}

impl Config {
    /// Bytes that a peer is let in more from its first bulk connection on.
    #[must_use]
    pub fn bulk_credit(&self) -> u64 {
        self.bulk_credit_bytes.unwrap_or(self.initial_credit_bytes)
    }

    /// Bytes that a peer is let in more over a long round trip.
    #[must_use]
    pub fn long_credit(&self) -> u64 {
        self.initial_credit_bytes.saturating_mul(LONG_CREDIT_TIMES)
    }
}

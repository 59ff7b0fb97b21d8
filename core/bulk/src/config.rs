//! Constants of bulk connections with their reasons (`spec/protocol.md` 11), and what is counted of
//! them.

use core::time::Duration;

use serde::Serialize;

/// Constants of an endpoint's bulk connections. `Default` gives the values of the specification.
#[derive(Clone, Debug)]
pub struct Config {
    /// Bulk connections are taken (spec/bulk.md): the driver listens for TCP connections at the
    /// endpoint's port.
    pub on: bool,
    /// Shorter messages do not go by a bulk connection: up to about here a datagram is quicker.
    pub min_bytes: u32,
    /// But one of so many bytes does where messages of several packets go by turns, or follow each
    /// other unanswered: nothing is there that it could share a packet's system call with, or
    /// enough that several share one of TCP's.
    pub lone_bytes: u32,
    /// A bulk connection is wanted only on paths whose least round trip is at most this, ...
    pub rtt_max: Duration,
    /// ... that deliver at least so much, bytes per second (a slower link is filled by UDP as
    /// well), ...
    pub min_rate: u64,
    /// ... and lose at most so much, parts per million: what a receiver's buffer overflowed by now
    /// and then must not keep TCP out, which would not overflow it.
    pub loss_max_ppm: u32,
    /// Most payload in one record: what others of the bulk connection wait for.
    pub record_bytes: u32,
    /// No new bulk connection for so long after one failed: what was queued has gone in packets by
    /// then, and a loss that was an accident costs no more than this. Doubles ...
    pub pause: Duration,
    /// ... up to this, for where bulk connections never hold (losses, a firewall) a connection
    /// tried each minute costs nothing; a bulk connection that lives for so long sets it back.
    pub pause_max: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            on: false,
            min_bytes: 8 << 10,
            lone_bytes: 2 << 10,
            rtt_max: Duration::from_millis(1),
            min_rate: 400_000_000,
            loss_max_ppm: 1000,
            record_bytes: 1 << 20,
            pause: Duration::from_millis(100),
            pause_max: Duration::from_secs(60),
        }
    }
}

impl Config {
    /// Whether a path is one where TCP is at its best (spec/bulk.md 6): by its least round trip,
    /// its loss and the rate that it has shown.
    #[must_use]
    pub fn pays(&self, rtt_ns: u64, loss_ppm: u32, rate_bytes_per_s: u64) -> bool {
        u128::from(rtt_ns) <= self.rtt_max.as_nanos()
            && loss_ppm <= self.loss_max_ppm
            && rate_bytes_per_s >= self.min_rate
    }

    /// Longest pause.
    pub(crate) fn pause_max_ns(&self) -> u64 {
        self.pause_max.as_nanos() as u64
    }
}

/// What was counted of all bulk connections of an endpoint. All only grow.
#[derive(Clone, Default, Debug, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Those that were up.
    #[serde(rename = "bulk_connections_opened")]
    pub opened: u64,
    /// Those that failed, because segments were lost, the peer told nothing or ended its
    /// connection, or none could be made.
    #[serde(rename = "bulk_connections_failed")]
    pub failed: u64,
    /// Records that the peer has read.
    #[serde(rename = "bulk_records_sent")]
    pub records_sent: u64,
    /// Their payload, bytes.
    #[serde(rename = "bulk_bytes_sent")]
    pub bytes_sent: u64,
    /// Records read here.
    #[serde(rename = "bulk_records_received")]
    pub records_received: u64,
    /// Their payload, bytes.
    #[serde(rename = "bulk_bytes_received")]
    pub bytes_received: u64,
    /// Greetings refused, and answers to them.
    #[serde(rename = "bulk_greetings_refused")]
    pub greetings_refused: u64,
    /// Heads of records that came with a wrong checksum.
    #[serde(rename = "bulk_heads_damaged")]
    pub heads_damaged: u64,
}

//! The constants of the protocol that an endpoint may be given otherwise, with their reasons. The
//! others stand, with theirs, where they are used (spec 11).

use core::time::Duration;

/// Largest number of paths (spec 8).
pub(crate) const PATHS_MAX: usize = 8;

/// Which congestion controller paths use (spec 6).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum CongestionKind {
    /// Delay target with tolerance of random loss: the default.
    Target,
    /// RFC 9002 section 7, for comparison.
    Reno,
}

pub use crate::Level;

/// Parts of the default congestion control (`spec/protocol.md` 6). All are on; one is switched off
/// to see what it is worth (`weir-sim ablation`, `docs/ablation.md`).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Mechanisms {
    /// Only RTT probes steer; else each acknowledgement does.
    pub rtt_probes: bool,
    /// The delay is the lesser of round trip and one-way time; else the round trip alone.
    pub one_way_delay: bool,
    /// Small windows bear more delay; else all aim at the same.
    pub small_window_targets: bool,
    /// Bursts grow while little is lost; else they are always the least.
    pub learnt_bursts: bool,
    /// Delay that varies whatever the window is is not taken for a queue.
    pub non_congestive_delay: bool,
    /// Windows shrink when what they sent is marked by a switch.
    pub marked_windows: bool,
    /// Less is granted when what comes is marked.
    pub marked_grants: bool,
}

impl Default for Mechanisms {
    fn default() -> Self {
        Mechanisms {
            rtt_probes: true,
            one_way_delay: true,
            small_window_targets: true,
            learnt_bursts: true,
            non_congestive_delay: true,
            marked_windows: true,
            marked_grants: true,
        }
    }
}

/// Constants of an endpoint. `Default` gives the values of the specification.
#[derive(Clone, Debug)]
pub struct Config {
    /// Least protection asked for; the association gets the higher of both sides.
    pub level: Level,
    /// Rules of the layer above that both sides must follow, one bit each; a peer with others is
    /// refused.
    pub features: u16,
    /// Largest UDP payload this side sends or accepts. 1472: Ethernet over IPv4; the driver raises
    /// it to what its interfaces carry.
    pub max_datagram: u16,
    /// Leave the last payload of a packet to the driver to gather (level integrity only). Off:
    /// everything is copied into `PacketBuf::head`.
    pub gather: bool,
    /// Payloads shorter than this are copied even when gathering: below it that is cheaper than for
    /// the driver to look them up.
    pub gather_min: u16,

    /// The driver sends all datagrams as ECN-capable (ECT(0)): marks are asked for, and heeded.
    /// What comes marked is told to peers that ask whether this is on or not, if the driver reports
    /// ECN bits.
    pub ecn: bool,
    /// SCTP is offered (spec/sctp.md): the driver has it, and moves its packets.
    pub sctp: bool,
    /// Size of the socket's receive buffer, announced to peers, which keep less than half of it
    /// waiting there.
    pub rx_buffer_bytes: u64,

    /// Longest delay of an acknowledgement on short paths. 50 us: enough for the answer to a
    /// message of 64 KiB to carry it.
    pub ack_delay_max: Duration,
    /// An acknowledgement goes out after this many packets (64: what one segmentation-offload batch
    /// holds; of full packets the bytes come first) ...
    pub ack_every_packets: u32,
    /// ... or bytes: the size of a segmentation-offload batch.
    pub ack_every_bytes: u32,
    /// Round-trip time assumed before the first sample. 1 ms: a cluster; the timeout is then 3 ms.
    pub initial_rtt: Duration,
    /// Later packets acknowledged before one is taken as lost (RFC 9002 6.1.1).
    pub reorder_threshold: u32,
    /// How far spurious losses may raise that.
    pub reorder_threshold_max: u32,
    /// Added to 9/8 RTT in loss detection by time: scheduling noise of hosts.
    pub loss_time_extra: Duration,
    /// Least variance part of the probe timeout: below it timers race with the peer's scheduler.
    pub pto_var_min: Duration,
    /// A path with a measured loss above this (parts per million) is lossy: nobody waits long for
    /// the last packets of a message.
    pub lossy_ppm: u32,
    /// Largest probe timeout after back-off. 250 ms: whoever was cut off is tried again within
    /// that, and 20 times before `peer_timeout` is over.
    pub pto_max: Duration,
    /// For each silent peer so much, where that is longer. 10 ms: two packets each at the most
    /// every 10 ms, whatever the number of peers. (128 ranks on two cores that probe each other
    /// every 250 ms have time for nothing else.)
    pub pto_each: Duration,

    /// Packets remembered behind one that is not acknowledged; with more the association ends.
    /// 2^19: four times what credit and the largest window let out, acknowledgements besides; 16
    /// MiB at 32 bytes each.
    pub sent_packets_max: usize,

    /// Congestion controller.
    pub congestion: CongestionKind,
    /// What of the default one is on.
    pub mechanisms: Mechanisms,
    /// Initial window in packets: 32, about 47 KB, less than half of any switch port's buffer
    /// share.
    pub initial_window_packets: u32,
    /// Floor of the window in packets: fewer than 2 would wait for delayed acknowledgements.
    pub min_window_packets: u32,
    /// While the queueing delay is at most half the target, one packet more for each such time of
    /// round trip (2 ms: 6 Mbit/s, so that a long path with a third of random loss does not crawl;
    /// a floor that holds on short paths too, of 4 or 8 packets, costs incasts and farms) ...
    pub quiet_window_interval: Duration,
    /// ... but no more than this altogether.
    pub quiet_window_packets_max: u32,
    /// Ceiling of the window.
    pub max_window_bytes: u64,
    /// Queueing delay aimed at, besides base/16. 300 us: above scheduling noise, 37 KB at 1 Gbit/s.
    pub delay_target: Duration,
    /// Largest burst the pacer lets out: one segmentation-offload batch.
    pub pacing_burst_bytes: u64,
    /// Smallest burst, in packets, the initial window of RFC 9002, 7.2; it grows by an eighth in
    /// each round without notable loss, up to 256 packets.
    pub pacing_burst_packets: u32,
    /// Packets to one peer before another is served: what one segmentation-offload batch holds.
    pub peer_batch_packets: u32,
    /// The same in a superstep, to peers it sends to. 4: the trains of several senders meet at a
    /// port and must fit its queue together; with 1 each packet is acknowledged alone.
    pub told_batch_packets: u32,
    /// Packets of one stream or rendezvous transfer before another of the same peer is served. 48:
    /// a message of 64 KiB is not cut up, for of several that are as long the first should be there
    /// first.
    pub flow_batch_packets: u32,
    /// Send parity fragments on lossy long paths.
    pub parity: bool,
    /// Fragments for each row of their group's parity (spec 6.6).
    pub parity_group: u8,
    /// Parity needs a measured loss above this (parts per million) ...
    pub parity_min_loss_ppm: u32,
    /// ... and a least round trip above this: repair by asking is quick enough below, and a queue
    /// gets only longer by it.
    pub parity_min_rtt: Duration,

    /// Sessions. Their longest control message is set by what fits a packet.
    pub session: weir_session::Config,
    /// Bulk TCP connections.
    pub bulk: weir_bulk::Config,

    /// First retransmission of a handshake packet; doubles ... 5 ms: on a network that loses 2 %,
    /// an eighth of all first messages waits for it, and three packets more to a peer that is not
    /// there yet cost nothing.
    pub handshake_retry: Duration,
    /// ... up to this.
    pub handshake_retry_max: Duration,
    /// ... or up to this, once the peer has answered. 100 ms: it is there, and may hold the
    /// association for up already; with one packet in two lost, four of the handshake must still
    /// pass well within its `peer_timeout`.
    pub handshake_retry_answered: Duration,
    /// Where more than 8 openings are in progress, no interval is shorter than this for each of
    /// them (nor has to be longer than `handshake_retry_max`). 1 ms: what a rank can do in the
    /// hundredth of a core that it may have.
    pub handshake_retry_each: Duration,
    /// ... and intervals grow up to this for each, where that is more than the above ...
    pub handshake_retry_each_max: Duration,
    /// ... but not beyond this, once a CONFIRM was sent half of it: several must fit into the time
    /// in which the peer is to be heard.
    pub handshake_retry_crowd: Duration,
    /// Openings that hold a place at a time: a first answer to what they sent may still come. The
    /// others wait. 16: with more the packets that wait in front of each answer are the more where
    /// processors are short (`docs/lab/2026-11-26-start-storm.md`), and where they are not an
    /// endpoint opens to 10^5 peers a second.
    pub openings_max: u32,
    /// Opening fails when the peer was not heard for this long. 10 s: launchers start ranks seconds
    /// apart.
    pub connect_timeout: Duration,
    /// A peer is dead when nothing was heard for this long; a PING goes out after half of it.
    pub peer_timeout: Duration,
    /// Whether a peer that did not leave in good order may be named again once it was forgotten. To
    /// a job it is dead for good; a server that was cut off for a while is not.
    pub dead_may_return: bool,
    /// Least time between the questions to a peer that is said to be gone (spec 9).
    pub doubt_interval: Duration,
    /// PINGs in the last quarter of it (25: with half of the packets lost each way, one peer in
    /// 10^5 that lives is given up after a silence, not one in 300).
    pub last_pings: u32,
    /// How long a closing endpoint keeps resending.
    pub linger: Duration,
    /// Handshake packets of a kind looked at in a second: bounds the HMACs a stranger can make us
    /// compute.
    pub init_rate_per_s: u32,
    /// RESET packets a second: it must not serve as an amplifier.
    pub reset_rate_per_s: u32,
    /// Associations accepted from peers that were not named by `peer()`. Bounds memory.
    pub peers_max: usize,

    /// A path is suspect when nothing came for this long while data was in flight ...
    pub path_suspect_after: Duration,
    /// ... or after this many probe timeouts in a row, ...
    pub path_suspect_ptos: u32,
    /// ... but not before this: a peer whose process waits for a core is silent for some
    /// milliseconds on all its paths.
    pub path_suspect_min: Duration,
    /// First probe of a suspect path. 50 ms: with three answers wanted (`path_return_probes`) a
    /// path whose trouble was short is back within 200. Doubles ...
    pub path_probe_min: Duration,
    /// ... up to this, which is also the interval on standby paths. 1 s: a packet that costs
    /// nothing, and a link that heals, or a standby that fails, is noticed in a few seconds.
    pub path_probe_max: Duration,
    /// Answers in a row that make a suspect path valid again.
    pub path_return_probes: u32,
    /// Fragments go by all valid paths; else by the primary alone.
    pub stripe: bool,
    /// Search for a larger path MTU.
    pub mtu_probing: bool,
    /// Datagram size that must pass everywhere (RFC 8899 BASE_PLPMTU).
    pub mtu_base: u16,
    /// After a black hole the search starts again this much later.
    pub mtu_retry: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            level: Level::Integrity,
            features: 0,
            max_datagram: 1472,
            gather: true,
            gather_min: 256,
            ecn: false,
            sctp: false,
            rx_buffer_bytes: 4 << 20,
            ack_delay_max: Duration::from_micros(50),
            ack_every_packets: 64,
            ack_every_bytes: 64 << 10,
            initial_rtt: Duration::from_millis(1),
            reorder_threshold: 3,
            reorder_threshold_max: 64,
            loss_time_extra: Duration::from_micros(50),
            pto_var_min: Duration::from_micros(100),
            lossy_ppm: 1000,
            pto_max: Duration::from_millis(250),
            pto_each: Duration::from_millis(10),
            sent_packets_max: 1 << 19,
            congestion: CongestionKind::Target,
            mechanisms: Mechanisms::default(),
            initial_window_packets: 32,
            min_window_packets: 2,
            quiet_window_interval: Duration::from_millis(2),
            quiet_window_packets_max: 16,
            max_window_bytes: 64 << 20,
            delay_target: Duration::from_micros(300),
            pacing_burst_bytes: 64 << 10,
            pacing_burst_packets: 10,
            peer_batch_packets: 44,
            told_batch_packets: 4,
            flow_batch_packets: 48,
            parity: true,
            parity_group: 16,
            parity_min_loss_ppm: 3000,
            parity_min_rtt: Duration::from_micros(500),
            session: weir_session::Config::default(),
            bulk: weir_bulk::Config::default(),
            handshake_retry: Duration::from_millis(5),
            handshake_retry_max: Duration::from_millis(500),
            handshake_retry_answered: Duration::from_millis(100),
            handshake_retry_each: Duration::from_millis(1),
            handshake_retry_each_max: Duration::from_millis(20),
            handshake_retry_crowd: Duration::from_secs(2),
            openings_max: 16,
            connect_timeout: Duration::from_secs(10),
            peer_timeout: Duration::from_secs(5),
            dead_may_return: false,
            doubt_interval: Duration::from_millis(50),
            last_pings: 25,
            linger: Duration::from_secs(5),
            init_rate_per_s: 100_000,
            reset_rate_per_s: 100,
            peers_max: 1 << 20,
            path_suspect_after: Duration::from_millis(100),
            path_suspect_ptos: 2,
            path_suspect_min: Duration::from_millis(20),
            path_probe_min: Duration::from_millis(50),
            path_probe_max: Duration::from_secs(1),
            path_return_probes: 3,
            stripe: true,
            mtu_probing: true,
            mtu_base: 1200,
            mtu_retry: Duration::from_secs(10),
        }
    }
}

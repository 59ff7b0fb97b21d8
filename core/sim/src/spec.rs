//! What a simulated network is made of: plain data, so that it can be generated from a seed,
//! printed and shrunk.

use serde::{Deserialize, Serialize};
use weir_net::{Chance, Loss, Mark, PipeSpec, QueueLimit, Reorder};

use crate::rng::Ppm;

/// Nanoseconds of virtual time since the start of the run.
pub type Ns = u64;
/// A host: 0 .. `NetSpec::hosts`.
pub type HostId = u32;
/// A network: index in `NetSpec::networks`.
pub type NetId = u8;

/// One microsecond.
pub const US: Ns = 1_000;
/// One millisecond.
pub const MS: Ns = 1_000_000;
/// One second.
pub const SEC: Ns = 1_000_000_000;

/// What a datagram costs on the wire besides its bytes: UDP 8, IPv4 20, Ethernet 14 + 4, preamble
/// and gap 20.
pub const WIRE_OVERHEAD_BYTES: u64 = 66;
/// What a datagram occupies in a switch besides its bytes: all of the above that is stored.
pub const FRAME_OVERHEAD_BYTES: u64 = 46;

/// Two-state loss (Gilbert-Elliott): a packet moves the state, then is lost with the state's
/// probability. Each millisecond without a packet moves it too.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Burst {
    /// From the good state to the bad.
    pub enter: Ppm,
    /// From the bad state to the good.
    pub leave: Ppm,
    /// Loss in the bad state (in the good state: `LinkSpec::loss`).
    pub loss: Ppm,
}

/// One direction of a cable.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LinkSpec {
    /// Bits per second, in whole bytes; 0: infinitely fast.
    pub rate_bits_per_s: u64,
    /// Propagation delay.
    pub delay_ns: Ns,
    /// Added delay, uniform in `0..=jitter_ns`; keeps packets in order.
    pub jitter_ns: Ns,
    /// Independent loss.
    pub loss: Ppm,
    /// Burst loss.
    pub burst: Option<Burst>,
    /// A second copy arrives ...
    pub duplicate: Ppm,
    /// ... up to this much later than the first should.
    #[serde(default)]
    pub duplicate_ns: Ns,
    /// The packet is overtaken: it arrives up to `reorder_ns` later than it should.
    pub reorder: Ppm,
    /// See `reorder`.
    pub reorder_ns: Ns,
    /// Bits are flipped or the end is cut off.
    pub corrupt: Ppm,
    /// Larger datagrams (UDP payload) vanish.
    pub mtu: u32,
}

impl Default for LinkSpec {
    /// A perfect gigabit cable of 2 us.
    fn default() -> Self {
        LinkSpec {
            rate_bits_per_s: 1_000_000_000,
            delay_ns: 2 * US,
            jitter_ns: 0,
            loss: 0,
            burst: None,
            duplicate: 0,
            duplicate_ns: 0,
            reorder: 0,
            reorder_ns: 0,
            corrupt: 0,
            mtu: 65_507,
        }
    }
}

impl LinkSpec {
    /// Packets lost in the long run, bursts included.
    #[must_use]
    pub fn mean_loss_ppm(&self) -> Ppm {
        let Some(b) = self.burst else { return self.loss };
        let bad = f64::from(b.enter) / f64::from((b.enter + b.leave).max(1));
        (f64::from(b.loss) * bad + f64::from(self.loss) * (1.0 - bad)) as Ppm
    }

    /// The link as the model of networks has it, with a queue of its own of this limit.
    pub(crate) fn pipe(&self, queue: QueueLimit) -> PipeSpec {
        PipeSpec {
            rate_bytes_per_s: self.rate_bits_per_s / 8,
            wire_overhead_bytes: WIRE_OVERHEAD_BYTES as u32,
            queue_overhead_bytes: FRAME_OVERHEAD_BYTES as u32,
            queue,
            mark: Mark::default(),
            delay_ns: self.delay_ns,
            jitter_ns: self.jitter_ns,
            loss: Loss {
                each: Chance::ppm(self.loss),
                burst: self.burst.map(|b| weir_net::Burst {
                    to_bad: Chance::ppm(b.enter),
                    to_good: Chance::ppm(b.leave),
                    loss: Chance::ppm(b.loss),
                    idle_step_ns: MS,
                }),
            },
            duplicate: Chance::ppm(self.duplicate),
            duplicate_ns: self.duplicate_ns,
            reorder: Reorder { chance: Chance::ppm(self.reorder), least_ns: 0, most_ns: self.reorder_ns },
            corrupt: Chance::ppm(self.corrupt),
            corrupt_hidden: Chance::NEVER,
            mtu_bytes: self.mtu,
        }
    }
}

/// A switch: output queues that share one memory. A packet that does not fit is dropped on arrival
/// (tail drop).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SwitchSpec {
    /// Memory shared by all ports.
    pub shared_bytes: u64,
    /// Limit of one output queue in bytes.
    pub port_bytes: u64,
    /// Limit of one output queue in packets.
    pub port_packets: u32,
    /// One queue may take at most this many percent of the memory that is free (dynamic threshold);
    /// 0: no such limit.
    pub dynamic_percent: u32,
    /// A packet that finds so many waiting at its port is marked, if it is ECN-capable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark_packets: Option<u32>,
}

impl Default for SwitchSpec {
    /// 4 MiB, no further limits.
    fn default() -> Self {
        SwitchSpec {
            shared_bytes: 4 << 20,
            port_bytes: u64::MAX,
            port_packets: u32::MAX,
            dynamic_percent: 0,
            mark_packets: None,
        }
    }
}

/// How the switches of a network are wired.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Topology {
    /// All hosts on one switch.
    Star,
    /// All hosts on one medium that carries one packet at a time, the hosts in turn: `up` says how
    /// fast it is, and the limits of a port of the switch hold for each host's queue for it.
    Bus,
    /// The same with collisions, back-off and no turns ([`weir_net::Collisions`]).
    CollidingBus,
    /// Leaf switches of `hosts_per_leaf` hosts each, joined by one core switch over `trunk` links.
    Tree {
        /// Hosts on each leaf switch.
        hosts_per_leaf: u32,
        /// Each direction between a leaf and the core.
        trunk: LinkSpec,
    },
}

/// One network; every host has one interface on it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NetworkSpec {
    /// Wiring.
    pub topology: Topology,
    /// From each host to its switch.
    pub up: LinkSpec,
    /// From the switch to each host.
    pub down: LinkSpec,
    /// Every switch.
    pub switch: SwitchSpec,
    /// Bytes that may wait in a host's interface; a host that has more stops sending until half of
    /// it is gone.
    pub nic_queue_bytes: u64,
}

impl Default for NetworkSpec {
    fn default() -> Self {
        NetworkSpec {
            topology: Topology::Star,
            up: LinkSpec::default(),
            down: LinkSpec::default(),
            switch: SwitchSpec::default(),
            nic_queue_bytes: 208 << 10,
        }
    }
}

/// How a host behaves.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HostSpec {
    /// Socket receive buffer; what does not fit is dropped.
    pub rx_buffer_bytes: u64,
    /// What a waiting datagram occupies besides its bytes.
    pub rx_overhead_bytes: u64,
    /// Processor time to take in a datagram.
    pub rx_cost_ns: Ns,
    /// Processor time to send one.
    pub tx_cost_ns: Ns,
    /// From the arrival of a datagram at a waiting host until it runs.
    pub wake_ns: Ns,
    /// Datagrams read before the host does anything else.
    pub batch: u32,
    /// Its TCP connections.
    #[serde(default)]
    pub tcp: TcpSpec,
}

/// TCP connections.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TcpSpec {
    /// What a program may have written that is not known to have arrived.
    pub send_buffer_bytes: u32,
    /// What may have arrived and not been read.
    pub receive_buffer_bytes: u32,
    /// Bytes that travel together, at most.
    pub segment_bytes: u32,
    /// A connection is refused, or the attempt ignored.
    pub refuses: Ppm,
    /// On every second connection: it breaks with this segment, in the middle of it.
    pub breaks: Ppm,
}

impl Default for TcpSpec {
    /// As Linux begins, and nothing goes wrong.
    fn default() -> Self {
        TcpSpec {
            send_buffer_bytes: 256 << 10,
            receive_buffer_bytes: 128 << 10,
            segment_bytes: 64 << 10,
            refuses: 0,
            breaks: 0,
        }
    }
}

impl Default for HostSpec {
    /// A host that polls: it notices a packet within half a microsecond.
    fn default() -> Self {
        HostSpec {
            rx_buffer_bytes: 4 << 20,
            rx_overhead_bytes: 64,
            rx_cost_ns: 500,
            tx_cost_ns: 500,
            wake_ns: 500,
            batch: 64,
            tcp: TcpSpec::default(),
        }
    }
}

/// How endpoints use bulk connections (spec/bulk.md).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BulkSpec {
    /// `weir_bulk::Config::min_bytes`.
    pub min_bytes: u32,
    /// `weir_bulk::Config::record_bytes`.
    pub record_bytes: u32,
    /// `weir_bulk::Config::loss_max_ppm`.
    pub loss_max: Ppm,
    /// `weir_bulk::Config::pause`.
    pub pause_ns: Ns,
    /// `weir_bulk::Config::pause_max`.
    pub pause_max_ns: Ns,
    /// `Config::grant_bulk_extra`.
    pub extra_bytes: u64,
    /// The driver can ask its system what the network lost.
    pub sees_losses: bool,
    /// A greeting is sent again when its bulk connection is over, by somebody who heard it.
    pub replays: Ppm,
}

impl Default for BulkSpec {
    /// The protocol's values, and a driver on Linux.
    fn default() -> Self {
        BulkSpec {
            min_bytes: 8 << 10,
            record_bytes: 1 << 20,
            loss_max: 1000,
            pause_ns: 100 * MS,
            pause_max_ns: 60 * SEC,
            extra_bytes: 4 << 20,
            sees_losses: true,
            replays: 0,
        }
    }
}

/// Which half of a host's cable.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Direction {
    /// From the host.
    Up,
    /// To the host.
    Down,
    /// Both.
    Both,
}

/// Something that happens to the network or a host.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Fault {
    /// The host's cable is cut: everything on it and into it is lost.
    Cut {
        /// Whose cable.
        host: HostId,
        /// On which network.
        net: NetId,
        /// Which half.
        direction: Direction,
    },
    /// The cable is mended.
    Heal {
        /// Whose cable.
        host: HostId,
        /// On which network.
        net: NetId,
        /// Which half.
        direction: Direction,
    },
    /// The host does not run until `until_ns`; packets wait in its socket buffer.
    Stall {
        /// The host.
        host: HostId,
        /// End of the stall.
        until_ns: Ns,
    },
    /// The host's process dies without a word.
    Crash {
        /// The host.
        host: HostId,
    },
    /// The host's program ends its endpoint in order, and is gone when what it had accepted has
    /// gone.
    Leave {
        /// The host.
        host: HostId,
    },
    /// Every TCP connection of the host breaks, in the middle of what is under way.
    Sever {
        /// The host.
        host: HostId,
    },
    /// Datagrams from and to the host are lost, and TCP is not.
    Dark {
        /// The host.
        host: HostId,
        /// On which network.
        net: NetId,
        /// Until then.
        until_ns: Ns,
    },
    /// A new incarnation starts; of one that is leaving nothing is left.
    Restart {
        /// The host.
        host: HostId,
    },
    /// The network's links pass only smaller datagrams from now on.
    Mtu {
        /// Which network.
        net: NetId,
        /// Largest UDP payload.
        bytes: u32,
    },
}

/// The host a fault befalls, if it befalls one.
#[must_use]
pub fn fault_host(f: &Fault) -> Option<HostId> {
    match *f {
        Fault::Cut { host, .. }
        | Fault::Heal { host, .. }
        | Fault::Stall { host, .. }
        | Fault::Crash { host }
        | Fault::Leave { host }
        | Fault::Sever { host }
        | Fault::Dark { host, .. }
        | Fault::Restart { host } => Some(host),
        Fault::Mtu { .. } => None,
    }
}

/// A fault and its time.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TimedFault {
    /// When.
    pub at_ns: Ns,
    /// What.
    pub fault: Fault,
}

/// A whole network.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NetSpec {
    /// Number of hosts.
    pub hosts: u32,
    /// Parallel networks, at most 8; more than one makes the hosts multihomed.
    pub networks: Vec<NetworkSpec>,
    /// All hosts.
    pub host: HostSpec,
    /// What goes wrong, in any order.
    pub faults: Vec<TimedFault>,
}

impl NetworkSpec {
    /// All links from a host to another.
    #[must_use]
    pub fn way(&self) -> Vec<&LinkSpec> {
        let mut links = vec![&self.up, &self.down];
        if let Topology::Tree { trunk, .. } = &self.topology {
            links.extend([trunk, trunk]);
        }
        links
    }
}

impl NetSpec {
    /// `hosts` hosts on one network.
    #[must_use]
    pub fn single(hosts: u32, network: NetworkSpec) -> Self {
        NetSpec { hosts, networks: vec![network], host: HostSpec::default(), faults: Vec::new() }
    }

    /// What the cables and interfaces between two hosts hold at most, there and back, on all
    /// networks together.
    #[must_use]
    pub fn wire_bytes(&self) -> u64 {
        let link = |l: &LinkSpec| {
            (u128::from(l.rate_bits_per_s / 8) * u128::from(2 * (l.delay_ns + l.jitter_ns)) / u128::from(SEC)) as u64
        };
        let trunk = |n: &NetworkSpec| if let Topology::Tree { trunk, .. } = &n.topology { link(trunk) } else { 0 };
        self.networks.iter().map(|n| link(&n.up) + link(&n.down) + 2 * trunk(n) + n.nic_queue_bytes).sum()
    }

    /// What the fastest network passes on from host to host: the rate of its slowest link.
    #[must_use]
    pub fn rate_bytes_per_s(&self) -> u64 {
        let slowest = |n: &NetworkSpec| n.way().iter().map(|l| l.rate_bits_per_s).filter(|r| *r > 0).min();
        self.networks.iter().filter_map(slowest).max().unwrap_or(0) / 8
    }

    /// The shortest round trip between hosts, over cables alone.
    #[must_use]
    pub fn round_trip_ns(&self) -> Ns {
        let one = |n: &NetworkSpec| 2 * n.way().iter().map(|l| l.delay_ns).sum::<Ns>();
        self.networks.iter().map(one).min().unwrap_or(0)
    }

    /// When the last fault begins or ends.
    #[must_use]
    pub fn last_fault_ns(&self) -> Ns {
        let end = |f: &TimedFault| match f.fault {
            Fault::Stall { until_ns, .. } | Fault::Dark { until_ns, .. } => until_ns.max(f.at_ns),
            _ => f.at_ns,
        };
        self.faults.iter().map(end).max().unwrap_or(0)
    }
}

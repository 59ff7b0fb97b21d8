//! A scenario: network, endpoints, work and faults, as plain data; and how one is drawn from a
//! seed.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_link::{BulkConfig, Config, CongestionKind, Level, SessionConfig};
use weir_message::{MultiOrder, StreamBits};

use crate::ablation::Part;
use crate::check::liveness::patience;
use crate::rng::Rng;
use crate::spec::{
    BulkSpec, Burst, Direction, Fault, HostId, HostSpec, LinkSpec, MS, NetId, NetSpec, NetworkSpec, Ns, SEC,
    SwitchSpec, TcpSpec, TimedFault, Topology, US,
};
use crate::work::Workload;
use crate::work::farm::Farm;
use crate::work::traffic::{Bounds, Traffic};

/// How endpoints differ from their defaults.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EndpointSpec {
    /// 0 integrity, 1 auth, 2 encrypt.
    pub level: u8,
    /// Payload is gathered rather than copied.
    pub gather: bool,
    /// Largest datagram.
    pub max_datagram: u16,
    /// `weir_session::Config::initial_credit_msgs`.
    pub credit_msgs: u32,
    /// `weir_session::Config::initial_credit_bytes`.
    pub credit_bytes: u64,
    /// `weir_session::Config::send_queue_msgs`.
    pub send_queue_msgs: usize,
    /// `weir_session::Config::grant_budget`.
    pub grant_budget: u64,
    /// `weir_session::Config::streams`.
    pub streams: u16,
    /// `weir_message::Config::eager_bytes`.
    pub eager_max: u64,
    /// NewReno instead of the default controller.
    pub reno: bool,
    /// Parity fragments.
    pub parity: bool,
    /// Path MTU search.
    pub mtu_probing: bool,
    /// What it sends is ECN-capable, and marks are heeded.
    #[serde(default)]
    pub ecn: bool,
    /// Bulk connections are taken, wherever the network might bear one.
    #[serde(default)]
    pub bulk_connections: Option<BulkSpec>,
    /// Memory for messages that nobody has asked for yet
    /// (`weir_message::Config::unexpected_bytes`).
    #[serde(default = "unexpected_bytes")]
    pub unexpected_bytes: u64,
    /// Messages that went into buffers for several are told as they were sent
    /// (`weir_message::MultiOrder::AsSent`).
    #[serde(default)]
    pub many_as_sent: bool,
    /// `weir_session::Config::expect_ahead`.
    #[serde(default = "expect_ahead")]
    pub expect_ahead: u64,
    /// How many times the usual it waits before it takes silence for death ([`patience`]).
    #[serde(default = "usual_patience")]
    pub patience: u32,
    /// What of the protocol is left out, to see what it is worth.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<Part>,
}

fn expect_ahead() -> u64 {
    SessionConfig::default().expect_ahead
}

const fn usual_patience() -> u32 {
    1
}

fn unexpected_bytes() -> u64 {
    weir_message::Config::default().unexpected_bytes
}

impl Default for EndpointSpec {
    fn default() -> Self {
        let c = Config::default();
        EndpointSpec {
            level: 0,
            gather: c.gather,
            max_datagram: c.max_datagram,
            credit_msgs: c.session.initial_credit_msgs,
            credit_bytes: c.session.initial_credit_bytes,
            send_queue_msgs: c.session.send_queue_msgs,
            grant_budget: c.session.grant_budget,
            streams: c.session.streams,
            eager_max: u64::from(weir_message::Config::default().eager_bytes),
            reno: false,
            parity: c.parity,
            mtu_probing: c.mtu_probing,
            ecn: true,
            bulk_connections: None,
            unexpected_bytes: unexpected_bytes(),
            many_as_sent: false,
            expect_ahead: expect_ahead(),
            patience: usual_patience(),
            left_out: Vec::new(),
        }
    }
}

impl EndpointSpec {
    /// The settings of its messages.
    #[must_use]
    pub fn messages(&self) -> weir_message::Config {
        weir_message::Config {
            eager_bytes: self.eager_max as u32,
            streams: self.streams,
            // Its programs have tags as MPI libraries make them, with protocol bits that receives
            // ignore.
            stream_bits: StreamBits(0x0007_fffc_ffff_ffff),
            credit_msgs: self.credit_msgs,
            unexpected_bytes: self.unexpected_bytes,
            multi_order: if self.many_as_sent { MultiOrder::AsSent } else { MultiOrder::AsCompleted },
            ..weir_message::Config::default()
        }
    }

    /// The configuration of an endpoint on such hosts.
    #[must_use]
    pub fn config(&self, host: &HostSpec) -> Config {
        let bulk_connections = self.bulk_connections.as_ref().map_or_else(Config::default, with_bulk_connections);
        let config = Config {
            level: match self.level {
                0 => Level::Integrity,
                1 => Level::Auth,
                _ => Level::Encrypt,
            },
            gather: self.gather,
            max_datagram: self.max_datagram,
            session: SessionConfig {
                initial_credit_bytes: self.credit_bytes,
                grant_budget: self.grant_budget,
                expect_ahead: self.expect_ahead,
                ..bulk_connections.session
            },
            congestion: if self.reno { CongestionKind::Reno } else { CongestionKind::Target },
            parity: self.parity,
            mtu_probing: self.mtu_probing,
            ecn: self.ecn,
            rx_buffer_bytes: host.rx_buffer_bytes,
            // A launcher starts ranks seconds apart; here a host may be cut off for a few.
            connect_timeout: Duration::from_secs(10),
            ..bulk_connections
        };
        // Messages bound the queue themselves, by more than a run fills: here the protocol refuses
        // too, and what it refuses is begun again.
        let mut config = self.messages().protocol(config);
        config.session.send_queue_msgs = self.send_queue_msgs;
        config.connect_timeout *= self.patience;
        config.peer_timeout *= self.patience;
        self.left_out.iter().for_each(|part| part.leave_out(&mut config));
        config
    }
}

/// Bulk connections on any path, for simulated ones are rarely as good as bulk connections ask for.
fn with_bulk_connections(l: &BulkSpec) -> Config {
    Config {
        bulk: BulkConfig {
            on: true,
            min_bytes: l.min_bytes,
            lone_bytes: l.min_bytes / 4,
            record_bytes: l.record_bytes,
            loss_max_ppm: l.loss_max,
            rtt_max: Duration::from_secs(1),
            min_rate: 0,
            pause: Duration::from_nanos(l.pause_ns),
            pause_max: Duration::from_nanos(l.pause_max_ns),
        },
        session: SessionConfig { grant_bulk_extra: l.extra_bytes, ..SessionConfig::default() },
        ..Config::default()
    }
}

/// Everything that makes a run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Scenario {
    /// Seed of all chance within the run.
    pub seed: u64,
    /// The network and its faults.
    pub net: NetSpec,
    /// The endpoints.
    pub endpoint: EndpointSpec,
    /// The work.
    pub work: Workload,
}

/// Which faults a drawn scenario may have.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Profile {
    /// Any of the others.
    #[default]
    All,
    /// Nothing goes wrong but full queues.
    Clean,
    /// Loss, duplication, reordering, corruption.
    Lossy,
    /// Several networks, one of which is cut and healed.
    Multihome,
    /// Cuts and stalls of everything.
    Faults,
    /// Hosts die and come back.
    Crash,
    /// Small queues, many senders.
    Incast,
    /// The path MTU shrinks.
    Mtu,
    /// Ranks end in order, or are dropped by others, and come back as new incarnations at the same
    /// addresses.
    Leave,
    /// TCP connections break in the middle of messages, and datagrams are lost for a while on ways
    /// that TCP takes.
    Carriers,
    /// Hosts are cut off for longer than the peer timeout, perhaps one way only: verdicts fall, and
    /// all that waits must fail.
    Partition,
}

impl Profile {
    /// All profiles with their names.
    pub const NAMES: [(&'static str, Profile); 11] = [
        ("all", Profile::All),
        ("clean", Profile::Clean),
        ("lossy", Profile::Lossy),
        ("multihome", Profile::Multihome),
        ("faults", Profile::Faults),
        ("crash", Profile::Crash),
        ("incast", Profile::Incast),
        ("mtu", Profile::Mtu),
        ("partition", Profile::Partition),
        ("leave", Profile::Leave),
        ("carriers", Profile::Carriers),
    ];

    /// The profile of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Profile> {
        Self::NAMES.iter().find(|(n, _)| *n == name).map(|(_, p)| *p)
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, p)| *p == self).map_or("", |(n, _)| n)
    }
}

impl Scenario {
    /// Draws a scenario: equal seeds and profiles give equal scenarios. Half of them take bulk
    /// connections.
    #[must_use]
    pub fn draw(seed: u64, profile: Profile) -> Scenario {
        let mut s = Scenario::draw_without_bulk_connections(seed, profile);
        // From a stream of its own: a seed without bulk connections is what it was before there
        // were any.
        let mut rng = Rng::new(seed, u64::MAX - 1);
        let of_carriers = |f: &TimedFault| matches!(f.fault, Fault::Sever { .. } | Fault::Dark { .. });
        if rng.chance(500_000) || s.net.faults.iter().any(of_carriers) {
            s.draw_bulk_connections(&mut rng);
        }
        let mut rng = Rng::new(seed, u64::MAX - 5);
        if let Workload::Traffic(t) = &mut s.work
            && rng.chance(500_000)
        {
            t.draw_remote(&mut rng, s.net.hosts, 1 << 20);
        }
        let mut rng = Rng::new(seed, u64::MAX - 6);
        if let Workload::Traffic(t) = &mut s.work
            && rng.chance(500_000)
        {
            t.draw_atomics(&mut rng, s.net.hosts);
        }
        let mut rng = Rng::new(seed, u64::MAX - 7);
        if let Workload::Traffic(t) = &mut s.work
            && rng.chance(500_000)
        {
            t.draw_looks(&mut rng);
        }
        let mut rng = Rng::new(seed, u64::MAX - 8);
        if let Workload::Traffic(t) = &mut s.work
            && rng.chance(400_000)
        {
            t.draw_many(&mut rng, s.net.hosts);
            s.endpoint.many_as_sent = rng.chance(500_000);
        }
        let mut rng = Rng::new(seed, u64::MAX - 9);
        if rng.chance(400_000) {
            s.draw_marks(&mut rng);
        }
        s.endpoint.unexpected_bytes = Rng::new(seed, u64::MAX - 4).pick(&[unexpected_bytes(), 16 << 10, 0]);
        s
    }

    /// The same, and all goes in packets.
    #[must_use]
    pub fn draw_without_bulk_connections(seed: u64, profile: Profile) -> Scenario {
        let mut rng = Rng::new(seed, u64::MAX);
        let profile = match profile {
            Profile::All => Profile::NAMES[1 + rng.below(Profile::NAMES.len() as u64 - 1) as usize].1,
            p => p,
        };
        let hosts = match profile {
            Profile::Incast => rng.between(3, 20) as u32,
            _ if rng.chance(100_000) => rng.between(9, 24) as u32,
            _ => rng.between(2, 6) as u32,
        };
        let networks = match profile {
            Profile::Multihome => rng.between(2, 3),
            Profile::Incast | Profile::Mtu => 1,
            _ => rng.pick(&[1, 1, 1, 2]),
        };
        let first = draw_network(&mut rng, profile);
        let mut nets = vec![first];
        for _ in 1..networks {
            let n = if rng.chance(700_000) { nets[0].clone() } else { draw_network(&mut rng, profile) };
            nets.push(n);
        }
        let mut net = NetSpec { hosts, networks: nets, host: draw_host(&mut rng), faults: Vec::new() };
        let endpoint = EndpointSpec { patience: patience(&net), ..draw_endpoint(&mut rng, profile) };
        let work = draw_work(&mut rng, &mut net, profile, &endpoint);
        Scenario { seed, net, endpoint, work }
    }

    /// Has its switches mark: some what finds anything waiting, some what finds a queue that is
    /// nearly full.
    fn draw_marks(&mut self, rng: &mut Rng) {
        for n in &mut self.net.networks {
            n.switch.mark_packets = Some(rng.log_between(1, u64::from(n.switch.port_packets)) as u32);
        }
        self.endpoint.ecn = rng.chance(900_000);
    }

    /// Has its endpoints take bulk connections.
    fn draw_bulk_connections(&mut self, rng: &mut Rng) {
        let pause_ns = rng.log_between(100 * US, 100 * MS);
        let bulk_connections = BulkSpec {
            min_bytes: rng.log_between(100, 12 << 10) as u32,
            record_bytes: rng.log_between(500, 1 << 20) as u32,
            loss_max: rng.pick(&[1_000_000, 1_000_000, 1000]),
            pause_ns,
            pause_max_ns: rng.log_between(pause_ns, 2 * SEC),
            extra_bytes: rng.pick(&[0, 64 << 10, 4 << 20]),
            sees_losses: rng.chance(700_000),
            replays: rng.pick(&[0, 300_000]),
        };
        self.net.host.tcp = TcpSpec {
            send_buffer_bytes: rng.log_between(4 << 10, 4 << 20) as u32,
            receive_buffer_bytes: rng.log_between(4 << 10, 1 << 20) as u32,
            segment_bytes: rng.log_between(500, 64 << 10) as u32,
            refuses: rng.pick(&[0, 0, 100_000, 500_000]),
            breaks: rng.pick(&[0, 1_000, 10_000, 100_000]),
        };
        if let Workload::Traffic(t) = &mut self.work {
            // Most messages are too short for them.
            let mut rest = 2 << 20;
            for m in &mut t.messages {
                if m.len < u64::from(bulk_connections.min_bytes) && rng.chance(300_000) {
                    m.len = rng.log_between(u64::from(bulk_connections.min_bytes), 128 << 10).min(rest);
                    rest -= m.len;
                }
            }
        }
        self.endpoint.level = 0;
        self.endpoint.bulk_connections = Some(bulk_connections);
    }

    /// Whether silences outlast the peer timeout, so that verdicts on the living are right.
    #[must_use]
    pub fn silence_kills(&self) -> bool {
        // Cuts come in pairs with their healing; a multihomed host is silent only if all its
        // networks are cut.
        let cuts = |host: HostId| {
            let on = |net: usize| {
                self.net.faults.iter().any(|cut| {
                    matches!(cut.fault, Fault::Cut { host: h, net: n, .. } if h == host && usize::from(n) == net)
                        && !self.net.faults.iter().any(|heal| {
                            matches!(heal.fault, Fault::Heal { host: h, net: n, .. } if h == host && usize::from(n) == net)
                                && heal.at_ns >= cut.at_ns
                                && heal.at_ns <= cut.at_ns + 5 * SEC
                        })
                })
            };
            (0..self.net.networks.len()).all(on)
        };
        (0..self.net.hosts).any(cuts)
    }

    /// Whether anyone dies.
    #[must_use]
    pub fn someone_dies(&self) -> bool {
        self.net.faults.iter().any(|f| matches!(f.fault, Fault::Crash { .. } | Fault::Leave { .. }))
    }
}

fn draw_link(rng: &mut Rng, profile: Profile) -> LinkSpec {
    let mut l = LinkSpec {
        rate_bits_per_s: rng.pick(&[100_000_000, 1_000_000_000, 1_000_000_000, 10_000_000_000, 100_000_000_000]),
        delay_ns: rng.log_between(500, 5 * MS),
        ..LinkSpec::default()
    };
    if rng.chance(300_000) {
        l.jitter_ns = rng.log_between(100, l.delay_ns + 1000);
    }
    if profile == Profile::Clean {
        return l;
    }
    let much = profile == Profile::Lossy;
    let ppm = |rng: &mut Rng, max: u64| {
        if rng.chance(if much { 600_000 } else { 300_000 }) { rng.log_between(100, max) as u32 } else { 0 }
    };
    l.loss = ppm(rng, if much { 200_000 } else { 20_000 });
    l.duplicate = ppm(rng, 50_000);
    // Late copies are replays; they may outlive an incarnation.
    l.duplicate_ns = if rng.chance(300_000) { rng.log_between(US, 3 * SEC) } else { 0 };
    l.reorder = ppm(rng, 100_000);
    l.reorder_ns = rng.log_between(US, 2 * MS);
    l.corrupt = ppm(rng, 20_000);
    if rng.chance(if much { 300_000 } else { 100_000 }) {
        let (enter, leave) = (rng.log_between(100, 10_000) as u32, rng.log_between(20_000, 500_000) as u32);
        l.burst = Some(Burst { enter, leave, loss: rng.between(200_000, 1_000_000) as u32 });
    }
    l
}

fn draw_network(rng: &mut Rng, profile: Profile) -> NetworkSpec {
    let up = draw_link(rng, profile);
    let down = if rng.chance(800_000) { up.clone() } else { draw_link(rng, profile) };
    let small = profile == Profile::Incast;
    let port_packets = rng.log_between(if small { 8 } else { 32 }, if small { 100 } else { 2000 }) as u32;
    let shared_bytes = rng.log_between(100_000, 8 << 20);
    let dynamic_percent = rng.pick(&[0, 0, 50, 100]);
    let topology = if rng.chance(150_000) {
        Topology::Tree { hosts_per_leaf: rng.between(1, 4) as u32, trunk: draw_link(rng, profile) }
    } else {
        Topology::Star
    };
    NetworkSpec {
        topology,
        up,
        down,
        switch: SwitchSpec { shared_bytes, port_packets, dynamic_percent, port_bytes: u64::MAX, mark_packets: None },
        nic_queue_bytes: rng.log_between(20_000, 1 << 20),
    }
}

fn draw_host(rng: &mut Rng) -> HostSpec {
    HostSpec {
        rx_buffer_bytes: rng.log_between(64 << 10, 8 << 20),
        rx_overhead_bytes: rng.pick(&[0, 64, 512]),
        rx_cost_ns: rng.log_between(50, 5000),
        tx_cost_ns: rng.log_between(50, 5000),
        wake_ns: rng.log_between(100, 50 * US),
        batch: rng.pick(&[1, 8, 64, 64]),
        tcp: TcpSpec::default(),
    }
}

fn draw_endpoint(rng: &mut Rng, profile: Profile) -> EndpointSpec {
    let mut e = EndpointSpec {
        level: rng.pick(&[0, 0, 0, 1, 2]),
        gather: rng.chance(700_000),
        max_datagram: rng.pick(&[1472, 1472, 1472, 1452, 1200, 8972]),
        reno: rng.chance(100_000),
        streams: rng.pick(&[64, 64, 1, 2, 8]),
        ..EndpointSpec::default()
    };
    if profile == Profile::Mtu {
        e.max_datagram = rng.pick(&[1472, 8972]);
    }
    if rng.chance(300_000) {
        e.credit_bytes = rng.log_between(16 << 10, 1 << 20);
        e.credit_msgs = rng.log_between(4, 1024) as u32;
        e.send_queue_msgs = rng.log_between(4, 4096) as usize;
        e.grant_budget = rng.log_between(32 << 10, 1 << 20);
    }
    e.eager_max = rng.log_between(512, 64 << 10).min(e.credit_bytes / 2);
    e
}

fn draw_work(rng: &mut Rng, net: &mut NetSpec, profile: Profile, endpoint: &EndpointSpec) -> Workload {
    let bytes_max = 2 << 20;
    let hosts = net.hosts;
    let each = bytes_max / u64::from(hosts);
    match profile {
        Profile::Incast if rng.chance(700_000) => {
            let len = rng.log_between(100, each);
            return Workload::Incast {
                len,
                count: (each / len).clamp(1, 40) as u32,
                window: rng.between(1, 8) as usize,
            };
        }
        Profile::Clean | Profile::Lossy | Profile::Incast if rng.chance(400_000) => {
            return draw_pattern(rng, hosts, each);
        }
        _ => {}
    }
    let spread_ns = rng.log_between(100 * US, if profile == Profile::Carriers { 30 * MS } else { 500 * MS });
    let directed = matches!(profile, Profile::Crash | Profile::Partition | Profile::Leave);
    let messages = rng.log_between(5, 300);
    let len_max = rng.log_between(if profile == Profile::Carriers { 64 << 10 } else { 64 }, 1 << 20);
    let bounds = Bounds { hosts, messages, len_max, bytes_max, spread_ns, directed };
    let mut traffic = Traffic::default();
    traffic.draw(rng, &bounds, 0, 0);
    // Verdicts on a silence fall that much later.
    let patience_ns = 5 * SEC * u64::from(endpoint.patience - 1);
    match profile {
        Profile::Crash => {
            traffic.crashing = draw_crashes(rng, net, spread_ns);
            traffic.phase_ns = net.last_fault_ns() + rng.log_between(US, SEC);
            // The verdict on a peer falls after 5 s of silence, its timer may have started late,
            // and probes take their time.
            traffic.forget_ns = net.last_fault_ns() + 8 * SEC + patience_ns;
            let (bounds, begin) = (Bounds { messages: messages / 2 + 1, ..bounds }, traffic.phase_ns);
            traffic.draw(rng, &bounds, 1, begin);
        }
        Profile::Partition => {
            draw_partition(rng, net, spread_ns);
            traffic.crashing = (0..hosts).collect();
            // The last verdict: 10 s for a handshake that began as the cut ended, 5 s for a
            // silence.
            traffic.forget_ns = net.last_fault_ns().max(2 * spread_ns) + 12 * SEC + 2 * patience_ns;
        }
        Profile::Leave => {
            traffic.crashing = draw_leaves(rng, net, spread_ns);
            traffic.drops = draw_drops(rng, net, spread_ns);
            traffic.forget_ns = net.last_fault_ns() + 8 * SEC + patience_ns;
            // Soon after, or when nothing is known any more of those that were forgotten.
            let later = traffic.forget_ns + 21 * SEC;
            traffic.phase_ns = if rng.chance(600_000) { net.last_fault_ns() + rng.log_between(US, SEC) } else { later };
            let (bounds, begin) = (Bounds { messages: messages / 2 + 1, ..bounds }, traffic.phase_ns);
            traffic.draw(rng, &bounds, 1, begin);
        }
        Profile::Carriers => draw_breaks(rng, net, spread_ns),
        Profile::Faults => draw_faults(rng, net, spread_ns),
        Profile::Multihome => draw_failovers(rng, net, spread_ns),
        Profile::Mtu => {
            let at_ns = rng.below(spread_ns + 1);
            let bytes = rng.between(1200, u64::from(endpoint.max_datagram)) as u32;
            net.faults.push(TimedFault { at_ns, fault: Fault::Mtu { net: 0, bytes } });
        }
        _ => {}
    }
    // With small credit, receives posted much later than the messages before them would hold up all
    // others: post them first.
    if endpoint.credit_msgs < 1024 || endpoint.credit_bytes < 1 << 20 {
        for m in &mut traffic.messages {
            m.receive_at_ns = m.receive_at_ns.min(if m.phase == 0 { 0 } else { traffic.phase_ns });
        }
    }
    Workload::Traffic(traffic)
}

fn draw_pattern(rng: &mut Rng, hosts: u32, each: u64) -> Workload {
    let len = rng.log_between(8, each / 4);
    let some = |max: u64| (each / len.max(100)).clamp(1, max);
    match rng.below(5) {
        0 => Workload::PingPong { len, rounds: some(50) as u32 },
        1 => Workload::Stream {
            len: (1, len),
            count: some(300) as u32,
            tags: rng.between(1, 20),
            window: rng.between(1, 64) as usize,
        },
        2 => Workload::AllToAll { len: len / u64::from(hosts), rounds: some(4) as u32 },
        3 => Workload::Superstep {
            steps: some(6) as u32,
            len: (1, len / u64::from(hosts) + 1),
            compute_ns: rng.log_between(US, MS),
        },
        _ => Workload::Farm(Farm {
            tasks: some(60) * u64::from(hosts - 1),
            task_bytes: len,
            result_bytes: rng.log_between(1, len),
            fan_out: rng.between(1, 4),
            tags: rng.pick(&[1, 10]),
            compute_ns: rng.log_between(US, MS),
            named: rng.chance(500_000),
        }),
    }
}

/// Some hosts die without a word and come back. Host 0 stays.
fn draw_crashes(rng: &mut Rng, net: &mut NetSpec, spread_ns: Ns) -> Vec<HostId> {
    let mut crashing = Vec::new();
    for host in 1..net.hosts {
        if crashing.len() as u32 * 2 < net.hosts && (crashing.is_empty() || rng.chance(300_000)) {
            let at_ns = rng.below(spread_ns + 1);
            // Not before the last act of phase 0, which is meant for the first incarnation.
            let back_ns = (at_ns + rng.log_between(100 * US, 7 * SEC)).max(2 * spread_ns);
            net.faults.push(TimedFault { at_ns, fault: Fault::Crash { host } });
            net.faults.push(TimedFault { at_ns: back_ns, fault: Fault::Restart { host } });
            crashing.push(host);
        }
    }
    crashing
}

/// Some hosts end in order, or die without a word, and come back. Host 0 stays.
fn draw_leaves(rng: &mut Rng, net: &mut NetSpec, spread_ns: Ns) -> Vec<HostId> {
    let mut leaving = Vec::new();
    for host in 1..net.hosts {
        if leaving.len() as u32 * 2 < net.hosts && (leaving.is_empty() || rng.chance(400_000)) {
            let at_ns = rng.below(spread_ns + spread_ns / 4 + 1);
            // Not before the last act of phase 0, which is meant for the first incarnation; it may
            // still be leaving.
            let back_ns = (at_ns + rng.log_between(100 * US, 7 * SEC)).max(2 * spread_ns);
            let fault = if rng.chance(800_000) { Fault::Leave { host } } else { Fault::Crash { host } };
            net.faults.push(TimedFault { at_ns, fault });
            net.faults.push(TimedFault { at_ns: back_ns, fault: Fault::Restart { host } });
            leaving.push(host);
        }
    }
    leaving
}

/// Some have done with a host that leaves, before it does or after.
fn draw_drops(rng: &mut Rng, net: &NetSpec, spread_ns: Ns) -> Vec<(HostId, HostId, Ns)> {
    let share = rng.pick(&[0, 300_000]);
    let ends = |f: &TimedFault| match f.fault {
        Fault::Leave { host } | Fault::Crash { host } => Some((host, f.at_ns)),
        _ => None,
    };
    let mut drops = Vec::new();
    for (host, at_ns) in net.faults.iter().filter_map(ends) {
        for by in (0..net.hosts).filter(|by| *by != host) {
            if rng.chance(share) {
                let around = (at_ns / 2 + rng.below(at_ns + 1)).min(2 * spread_ns);
                drops.push((by, host, around));
            }
        }
    }
    drops
}

/// Connections of some hosts break, time and again, and datagrams vanish for less than half the
/// peer timeout in all.
fn draw_breaks(rng: &mut Rng, net: &mut NetSpec, spread_ns: Ns) {
    let mut left = 2 * SEC;
    for _ in 0..rng.between(2, 12) {
        let at_ns = rng.below(spread_ns + 20 * MS);
        let host = rng.below(u64::from(net.hosts)) as HostId;
        if rng.chance(700_000) {
            net.faults.push(TimedFault { at_ns, fault: Fault::Sever { host } });
            continue;
        }
        let len = rng.log_between(100 * US, SEC).min(left);
        left -= len;
        for which in 0..net.networks.len() as NetId {
            if which == 0 || rng.chance(500_000) {
                net.faults.push(TimedFault { at_ns, fault: Fault::Dark { host, net: which, until_ns: at_ns + len } });
            }
        }
    }
}

fn draw_direction(rng: &mut Rng) -> Direction {
    rng.pick(&[Direction::Up, Direction::Down, Direction::Both])
}

/// Cuts and stalls; their lengths add up to less than half the peer timeout, so that nobody may be
/// declared dead.
fn draw_faults(rng: &mut Rng, net: &mut NetSpec, spread_ns: Ns) {
    let mut left = 2 * SEC;
    for _ in 0..rng.between(1, 6) {
        let at_ns = rng.below(spread_ns + 1);
        let len = rng.log_between(10 * US, SEC).min(left);
        left -= len;
        let host = rng.below(u64::from(net.hosts)) as HostId;
        if rng.chance(400_000) {
            net.faults.push(TimedFault { at_ns, fault: Fault::Stall { host, until_ns: at_ns + len } });
            continue;
        }
        let (cut, direction) = (rng.below(net.networks.len() as u64) as NetId, draw_direction(rng));
        net.faults.push(TimedFault { at_ns, fault: Fault::Cut { host, net: cut, direction } });
        net.faults.push(TimedFault { at_ns: at_ns + len, fault: Fault::Heal { host, net: cut, direction } });
    }
}

/// Some hosts are cut off on all networks for longer than the peer timeout.
fn draw_partition(rng: &mut Rng, net: &mut NetSpec, spread_ns: Ns) {
    let at_ns = rng.below(spread_ns + 1);
    let len = rng.between(6 * SEC, 12 * SEC);
    let direction = draw_direction(rng);
    for host in 0..net.hosts {
        if host == 0 || rng.chance(200_000) {
            for which in 0..net.networks.len() as NetId {
                net.faults.push(TimedFault { at_ns, fault: Fault::Cut { host, net: which, direction } });
                net.faults.push(TimedFault { at_ns: at_ns + len, fault: Fault::Heal { host, net: which, direction } });
            }
        }
    }
}

/// One network fails for everyone or for some, possibly for long, while another stands; then it
/// heals.
fn draw_failovers(rng: &mut Rng, net: &mut NetSpec, spread_ns: Ns) {
    let at_ns = rng.below(spread_ns + 1);
    let len = rng.log_between(100 * US, 5 * SEC);
    let which = rng.below(net.networks.len() as u64) as NetId;
    let everyone = rng.chance(500_000);
    for host in 0..net.hosts {
        if everyone || rng.chance(300_000) {
            let direction = draw_direction(rng);
            net.faults.push(TimedFault { at_ns, fault: Fault::Cut { host, net: which, direction } });
            net.faults.push(TimedFault { at_ns: at_ns + len, fault: Fault::Heal { host, net: which, direction } });
        }
    }
}

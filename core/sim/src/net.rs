//! Links and switches: what happens to a packet between two hosts.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::log::{Drop, Log, Note};
use crate::queue::{PacketIx, Packets, Queue, What};
use crate::rng::{MILLION, Ppm, Rng};
use crate::spec::{
    Direction, FRAME_OVERHEAD_BYTES, HostId, LinkSpec, MS, NetId, NetSpec, NetworkSpec, Ns, SEC, Topology,
};

/// Where a link ends.
#[derive(Copy, Clone, Debug)]
enum End {
    Switch(u32),
    Host,
}

/// One direction of a cable, with the state of its luck.
#[derive(Debug)]
struct Link {
    spec: LinkSpec,
    end: End,
    rng: Rng,
    in_burst: bool,
    cut: bool,
    /// When the last packet has left the sender.
    free_at: Ns,
    /// When the last packet left, if the link has bursts.
    last_left: Ns,
    /// When the last packet arrived: later ones do not overtake it by jitter.
    last_arrival: Ns,
}

impl Link {
    fn new(spec: &LinkSpec, end: End, seed: u64, stream: u64) -> Self {
        Link {
            spec: spec.clone(),
            end,
            rng: Rng::new(seed, stream),
            in_burst: false,
            cut: false,
            free_at: 0,
            last_left: 0,
            last_arrival: 0,
        }
    }

    /// Whether chance loses this packet, which leaves the sender at `left`.
    fn loses(&mut self, left: Ns) -> bool {
        if let Some(b) = self.spec.burst {
            // A burst also passes without packets, or whoever backs off would never see the end of it.
            let silent = (left.saturating_sub(self.last_left) / MS).min(100);
            self.last_left = left;
            for _ in 0..=silent {
                let turn = if self.in_burst { b.leave } else { b.enter };
                self.in_burst ^= self.rng.chance(turn);
            }
            if self.in_burst {
                return self.rng.chance(b.loss);
            }
        }
        self.rng.chance(self.spec.loss)
    }

    /// Arrival of a packet that leaves the sender completely at `left`.
    fn arrival(&mut self, left: Ns) -> Ns {
        let jitter = self.rng.below(self.spec.jitter_ns.saturating_add(1));
        if self.rng.chance(self.spec.reorder) {
            return left + self.spec.delay_ns + jitter + self.rng.below(self.spec.reorder_ns.saturating_add(1));
        }
        self.last_arrival = self.last_arrival.max(left + self.spec.delay_ns + jitter);
        self.last_arrival
    }
}

/// An output queue of a switch.
#[derive(Debug)]
struct Port {
    link: Link,
    /// Departure and size of each packet waiting here.
    waiting: VecDeque<(Ns, u64)>,
    waiting_bytes: u64,
}

#[derive(Debug)]
struct Switch {
    ports: Vec<Port>,
    used_bytes: u64,
    /// Departures of all packets in the shared memory.
    leaving: BinaryHeap<Reverse<(Ns, u64)>>,
}

#[derive(Debug)]
struct Network {
    spec: NetworkSpec,
    /// From each host.
    up: Vec<Link>,
    switches: Vec<Switch>,
}

/// The way from one host to another, for what does not share the queues of packets.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Way {
    /// Sum over its links.
    pub(crate) delay_ns: Ns,
    pub(crate) jitter_ns: Ns,
    /// The slowest link; 0: infinitely fast.
    rate_bits_per_s: u64,
    /// Chance that a packet is lost or damaged.
    pub(crate) loss: Ppm,
    pub(crate) is_cut: bool,
}

impl Way {
    pub(crate) fn serialise_ns(&self, bytes: u64) -> Ns {
        if self.rate_bits_per_s == 0 { 0 } else { (bytes * 8 * SEC).div_ceil(self.rate_bits_per_s) }
    }

    fn over(mut self, l: &Link) -> Way {
        self.delay_ns += l.spec.delay_ns;
        self.jitter_ns += l.spec.jitter_ns;
        let rate = l.spec.rate_bits_per_s;
        if rate > 0 && (self.rate_bits_per_s == 0 || rate < self.rate_bits_per_s) {
            self.rate_bits_per_s = rate;
        }
        let lost = u64::from((l.spec.mean_loss_ppm() + l.spec.corrupt).min(MILLION));
        let passed = u64::from(MILLION - self.loss) * (u64::from(MILLION) - lost) / u64::from(MILLION);
        self.loss = MILLION - passed as u32;
        self.is_cut |= l.cut;
        self
    }
}

/// What the network did with packets so far.
#[derive(Copy, Clone, Default, PartialEq, Eq, Debug)]
pub struct NetCounters {
    /// Datagrams handed to interfaces.
    pub sent: u64,
    /// Their bytes (UDP payload).
    pub sent_bytes: u64,
    /// Datagrams that reached a socket buffer.
    pub delivered: u64,
    /// Lost by chance.
    pub lost: u64,
    /// Lost on a cut cable.
    pub cut: u64,
    /// Dropped by a full switch.
    pub switch_full: u64,
    /// Dropped by a full socket buffer.
    pub socket_full: u64,
    /// Larger than the link passes.
    pub too_big: u64,
    /// For a host that is down or does not exist.
    pub nobody: u64,
    /// Copies made.
    pub duplicated: u64,
    /// Packets damaged.
    pub corrupted: u64,
    /// The longest any output queue has been, in packets.
    pub deepest_queue: u64,
}

/// All networks.
#[derive(Debug)]
pub(crate) struct Net {
    networks: Vec<Network>,
    pub(crate) counters: NetCounters,
    /// The longest any output queue has been in each second, packets.
    pub(crate) deepest: Vec<u64>,
}

impl Net {
    pub(crate) fn new(spec: &NetSpec, seed: u64) -> Self {
        let networks =
            spec.networks.iter().enumerate().map(|(i, n)| Network::new(n, spec.hosts, seed, i as u64)).collect();
        Net { networks, counters: NetCounters::default(), deepest: Vec::new() }
    }

    pub(crate) fn networks(&self) -> usize {
        self.networks.len()
    }

    /// Time until at most `bytes` wait in the host's interface; `None`: already so.
    pub(crate) fn nic_room_at(&self, net: NetId, host: HostId, now: Ns, half: bool) -> Option<Ns> {
        let n = &self.networks[usize::from(net)];
        let link = &n.up[host as usize];
        let limit = if half { n.spec.nic_queue_bytes / 2 } else { n.spec.nic_queue_bytes };
        let drained = link.free_at.saturating_sub(link.spec.serialise_ns(limit as usize));
        (drained > now).then_some(drained)
    }

    /// A host hands over a packet.
    pub(crate) fn send(&mut self, now: Ns, packet: PacketIx, packets: &mut Packets, queue: &mut Queue, log: &mut Log) {
        let (net, from, len) = {
            let p = packets.get(packet);
            (p.net, p.from, p.data.len())
        };
        self.counters.sent += 1;
        self.counters.sent_bytes += len as u64;
        log.packet(now, Note::Send, packets.get(packet));
        let link = &mut self.networks[usize::from(net)].up[from as usize];
        link.free_at = link.free_at.max(now) + link.spec.serialise_ns(len);
        let left = link.free_at;
        travel(link, left, packet, packets, queue, log, &mut self.counters);
    }

    /// A packet reaches a switch.
    pub(crate) fn at_switch(
        &mut self,
        now: Ns,
        packet: PacketIx,
        switch: u32,
        packets: &mut Packets,
        queue: &mut Queue,
        log: &mut Log,
    ) {
        let (net, to, len) = {
            let p = packets.get(packet);
            (p.net, p.to, p.data.len())
        };
        let n = &mut self.networks[usize::from(net)];
        let port = route(&n.spec.topology, &n.switches, switch, to);
        let s = &mut n.switches[switch as usize];
        s.forget_departed(now);
        let frame = len as u64 + FRAME_OVERHEAD_BYTES;
        let p = &mut s.ports[port];
        while let Some(&(_, bytes)) = p.waiting.front().filter(|w| w.0 <= now) {
            p.waiting.pop_front();
            p.waiting_bytes -= bytes;
        }
        let free = n.spec.switch.shared_bytes.saturating_sub(s.used_bytes);
        let share = match n.spec.switch.dynamic_percent {
            0 => u64::MAX,
            percent => free.saturating_mul(u64::from(percent)) / 100,
        };
        let fits = frame <= free
            && p.waiting_bytes + frame <= n.spec.switch.port_bytes.min(share)
            && p.waiting.len() < n.spec.switch.port_packets as usize;
        if !fits {
            self.counters.switch_full += 1;
            log.packet(now, Note::Dropped(Drop::SwitchFull), packets.get(packet));
            packets.release(packet);
            return;
        }
        p.link.free_at = p.link.free_at.max(now) + p.link.spec.serialise_ns(len);
        let left = p.link.free_at;
        p.waiting.push_back((left, frame));
        p.waiting_bytes += frame;
        let (depth, second) = (p.waiting.len() as u64, (now / SEC) as usize);
        self.counters.deepest_queue = self.counters.deepest_queue.max(depth);
        if second >= self.deepest.len() {
            self.deepest.resize(second + 1, 0);
        }
        self.deepest[second] = self.deepest[second].max(depth);
        s.used_bytes += frame;
        s.leaving.push(Reverse((left, frame)));
        travel(&mut p.link, left, packet, packets, queue, log, &mut self.counters);
    }

    /// Whether what arrives at the host now comes out of a cut cable.
    pub(crate) fn is_cut(&self, net: NetId, host: HostId) -> bool {
        let n = &self.networks[usize::from(net)];
        let (switch, port) = n.port_of(host);
        n.switches[switch].ports[port].link.cut
    }

    /// The way from a host to another, as it is now.
    pub(crate) fn way(&self, net: NetId, from: HostId, to: HostId) -> Way {
        let n = &self.networks[usize::from(net)];
        let nothing = Way { delay_ns: 0, jitter_ns: 0, rate_bits_per_s: 0, loss: 0, is_cut: false };
        let (leaf, port) = n.port_of(to);
        let mut way = nothing.over(&n.up[from as usize]);
        let (mut at, _) = n.port_of(from);
        while at != leaf {
            let out = &n.switches[at].ports[route(&n.spec.topology, &n.switches, at as u32, to)].link;
            way = way.over(out);
            let End::Switch(next) = out.end else { break };
            at = next as usize;
        }
        way.over(&n.switches[leaf].ports[port].link)
    }

    /// Cuts or heals a host's cable.
    pub(crate) fn set_cut(&mut self, net: NetId, host: HostId, direction: Direction, cut: bool) {
        let Some(n) = self.networks.get_mut(usize::from(net)) else {
            return;
        };
        if host as usize >= n.up.len() {
            return;
        }
        if direction != Direction::Down {
            n.up[host as usize].cut = cut;
        }
        if direction != Direction::Up {
            let (switch, port) = n.port_of(host);
            n.switches[switch].ports[port].link.cut = cut;
        }
    }

    /// Changes what all links of a network pass.
    pub(crate) fn set_mtu(&mut self, net: NetId, bytes: u32) {
        let Some(n) = self.networks.get_mut(usize::from(net)) else {
            return;
        };
        let ports = n.switches.iter_mut().flat_map(|s| &mut s.ports).map(|p| &mut p.link);
        for link in n.up.iter_mut().chain(ports) {
            link.spec.mtu = bytes;
        }
    }
}

impl Network {
    fn new(spec: &NetworkSpec, hosts: u32, seed: u64, index: u64) -> Self {
        let mut stream = index << 32;
        let mut link = |spec: &LinkSpec, end: End| {
            stream += 1;
            Link::new(spec, end, seed, stream)
        };
        let leaf_of = |h: u32| match spec.topology {
            Topology::Star => 0,
            Topology::Tree { hosts_per_leaf, .. } => h / hosts_per_leaf.max(1),
        };
        let up = (0..hosts).map(|h| link(&spec.up, End::Switch(leaf_of(h)))).collect();
        let mut switches = Vec::new();
        match &spec.topology {
            Topology::Star => switches.push(Switch::new((0..hosts).map(|_| link(&spec.down, End::Host)).collect())),
            Topology::Tree { hosts_per_leaf, trunk } => {
                let per = (*hosts_per_leaf).max(1);
                let leaves = hosts.div_ceil(per);
                for leaf in 0..leaves {
                    let below = (hosts - leaf * per).min(per);
                    let mut links: Vec<Link> = (0..below).map(|_| link(&spec.down, End::Host)).collect();
                    links.push(link(trunk, End::Switch(leaves)));
                    switches.push(Switch::new(links));
                }
                switches.push(Switch::new((0..leaves).map(|l| link(trunk, End::Switch(l))).collect()));
            }
        }
        Network { spec: spec.clone(), up, switches }
    }

    /// Switch and port of a host's cable.
    fn port_of(&self, host: HostId) -> (usize, usize) {
        match self.spec.topology {
            Topology::Star => (0, host as usize),
            Topology::Tree { hosts_per_leaf, .. } => {
                let per = hosts_per_leaf.max(1);
                ((host / per) as usize, (host % per) as usize)
            }
        }
    }
}

/// The port by which a switch forwards to `to`.
fn route(topology: &Topology, switches: &[Switch], switch: u32, to: HostId) -> usize {
    let per = match topology {
        Topology::Star => return to as usize,
        Topology::Tree { hosts_per_leaf, .. } => (*hosts_per_leaf).max(1),
    };
    let leaf = to / per;
    let core = switches.len() as u32 - 1;
    if switch == core {
        leaf as usize
    } else if switch == leaf {
        (to % per) as usize
    } else {
        // The trunk lies behind the hosts' ports.
        switches[switch as usize].ports.len() - 1
    }
}

/// Sends a packet over a link it leaves the sender of at `left`: chance and cuts decide whether, when and how it arrives.
fn travel(
    link: &mut Link,
    left: Ns,
    packet: PacketIx,
    packets: &mut Packets,
    queue: &mut Queue,
    log: &mut Log,
    counters: &mut NetCounters,
) {
    let len = packets.get(packet).data.len();
    let fate = if link.cut {
        counters.cut += 1;
        Some(Drop::Cut)
    } else if len > link.spec.mtu as usize {
        counters.too_big += 1;
        Some(Drop::TooBig)
    } else if link.loses(left) {
        counters.lost += 1;
        Some(Drop::Chance)
    } else {
        None
    };
    if let Some(drop) = fate {
        log.packet(left, Note::Dropped(drop), packets.get(packet));
        packets.release(packet);
        return;
    }
    let end = link.end;
    let arrive = |packet| match end {
        End::Switch(switch) => What::AtSwitch { packet, switch },
        End::Host => What::AtHost { packet },
    };
    if link.rng.chance(link.spec.duplicate) {
        counters.duplicated += 1;
        let copy = packets.copy(packet);
        let late = link.rng.below(link.spec.duplicate_ns.saturating_add(1));
        queue.push(link.arrival(left) + late, arrive(copy));
    }
    if link.rng.chance(link.spec.corrupt) {
        counters.corrupted += 1;
        damage(&mut packets.get_mut(packet).data, &mut link.rng);
        log.packet(left, Note::Corrupted, packets.get(packet));
    }
    queue.push(link.arrival(left), arrive(packet));
}

/// Flips up to three bits, or cuts the end off.
fn damage(data: &mut Vec<u8>, rng: &mut Rng) {
    if data.is_empty() || rng.chance(200_000) {
        let keep = rng.below(data.len() as u64 + 1);
        data.truncate(keep as usize);
        return;
    }
    for _ in 0..rng.between(1, 3) {
        let bit = rng.below(data.len() as u64 * 8);
        data[(bit / 8) as usize] ^= 1 << (bit % 8);
    }
}

impl Switch {
    fn new(links: Vec<Link>) -> Self {
        let ports = links.into_iter().map(|link| Port { link, waiting: VecDeque::new(), waiting_bytes: 0 }).collect();
        Switch { ports, used_bytes: 0, leaving: BinaryHeap::new() }
    }

    fn forget_departed(&mut self, now: Ns) {
        while let Some(Reverse((at, bytes))) = self.leaving.peek().copied() {
            if at > now {
                break;
            }
            self.leaving.pop();
            self.used_bytes -= bytes;
        }
    }
}

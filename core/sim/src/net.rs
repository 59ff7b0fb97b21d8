//! Links and switches: what happens to a packet between two hosts.

use std::collections::BTreeMap;

use rand_pcg::Pcg32;
use weir_net::{Chance, Collisions, Mark, Memory, Offer, Pipe, PipeSpec, QueueLimit, Switch, Why, below, serialise_ns};

use crate::log::{Drop, Log, Note};
use crate::queue::{CE, NOT_ECT, Packet, PacketIx, Packets, Queue, Transit, What};
use crate::rng::{MILLION, Ppm, Rng};
use crate::spec::{Direction, HostId, LinkSpec, NetId, NetSpec, NetworkSpec, Ns, SEC, Topology};
use crate::up::{Link, Up};

/// Where a link ends.
#[derive(Copy, Clone, Debug)]
enum End {
    Switch(u32),
    Host,
}

#[derive(Debug)]
struct Network {
    spec: NetworkSpec,
    up: Up,
    switches: Vec<Switch<Pcg32>>,
    ends: Ends,
}

/// Where the links of a network end.
#[derive(Copy, Clone, Debug)]
struct Ends {
    /// `None`: all hosts are on one switch.
    hosts_per_leaf: Option<u32>,
    /// The switch that joins the leaves; they are numbered below it.
    core: u32,
    hosts: u32,
}

/// The way from one host to another, for what does not share the queues of packets.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Way {
    /// Sum over its links.
    pub(crate) delay_ns: Ns,
    pub(crate) jitter_ns: Ns,
    /// The slowest link; 0: infinitely fast.
    rate_bytes_per_s: u64,
    /// Chance that a packet is lost or damaged.
    pub(crate) loss: Ppm,
    pub(crate) is_cut: bool,
}

impl Way {
    pub(crate) fn serialise_ns(&self, bytes: u64) -> Ns {
        serialise_ns(self.rate_bytes_per_s, bytes)
    }

    fn over(mut self, l: &LinkSpec, is_cut: bool) -> Way {
        self.delay_ns += l.delay_ns;
        self.jitter_ns += l.jitter_ns;
        let rate = l.rate_bits_per_s / 8;
        if rate > 0 && (self.rate_bytes_per_s == 0 || rate < self.rate_bytes_per_s) {
            self.rate_bytes_per_s = rate;
        }
        let lost = u64::from((l.mean_loss_ppm() + l.corrupt).min(MILLION));
        let passed = u64::from(MILLION - self.loss) * (u64::from(MILLION) - lost) / u64::from(MILLION);
        self.loss = MILLION - passed as u32;
        self.is_cut |= is_cut;
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
    /// Marked by a switch.
    pub marked: u64,
    /// Dropped by a full socket buffer.
    pub socket_full: u64,
    /// Given up on a medium after too many collisions.
    pub given_up: u64,
    /// Attempts on a medium that collided.
    pub collisions: u64,
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
    /// Until when datagrams from and to a host are lost on a network.
    dark: BTreeMap<(NetId, HostId), Ns>,
    /// What hosts count; the links count the rest.
    pub(crate) counters: NetCounters,
    /// The longest any output queue has been in each second, packets.
    pub(crate) deepest: Vec<u64>,
    own_queue: BTreeMap<HostId, u64>,
}

impl Net {
    pub(crate) fn new(spec: &NetSpec, seed: u64) -> Self {
        let networks =
            spec.networks.iter().enumerate().map(|(i, n)| Network::new(n, spec.hosts, seed, i as u64)).collect();
        Net {
            networks,
            dark: BTreeMap::new(),
            counters: NetCounters::default(),
            deepest: Vec::new(),
            own_queue: BTreeMap::new(),
        }
    }

    pub(crate) fn networks(&self) -> usize {
        self.networks.len()
    }

    /// What happened so far.
    pub(crate) fn counters(&self) -> NetCounters {
        let mut all = self.counters;
        for n in &self.networks {
            let ports = n.switches.iter().flat_map(|s| s.ports());
            // What waits for a shared medium waits in the network.
            let is_shared = matches!(n.up, Up::Shared(_));
            let up = (0..n.up.hosts()).map(|host| (is_shared, n.up.link(host)));
            for (is_port, link) in up.chain(ports.map(|l| (true, l))) {
                let c = link.counters();
                all.lost += c.dropped_loss;
                all.cut += c.dropped_cut;
                all.too_big += c.dropped_too_big;
                all.given_up += c.dropped_collisions;
                all.collisions += c.collisions;
                all.duplicated += c.duplicated;
                all.corrupted += c.corrupted;
                if is_port {
                    all.switch_full += c.dropped_queue;
                    all.marked += c.marked;
                    all.deepest_queue = all.deepest_queue.max(c.queue_peak_packets);
                }
            }
        }
        all
    }

    /// Time until at most `bytes` wait in the host's interface; `None`: already so.
    pub(crate) fn nic_room_at(&self, net: NetId, host: HostId, now: Ns, half: bool) -> Option<Ns> {
        let n = &self.networks[usize::from(net)];
        let whole = self.own_queue.get(&host).map_or(n.spec.nic_queue_bytes, |q| n.spec.nic_queue_bytes.min(*q));
        let limit = if half { whole / 2 } else { whole };
        let drained = n.up.drained_ns(host, limit);
        (drained > now).then_some(drained)
    }

    /// So much waits in the interfaces of a host.
    pub(crate) fn set_own_queue(&mut self, host: HostId, bytes: Option<u64>) {
        match bytes {
            Some(bytes) => _ = self.own_queue.insert(host, bytes),
            None => _ = self.own_queue.remove(&host),
        }
    }

    /// A host hands over a packet.
    pub(crate) fn send(&mut self, now: Ns, packet: PacketIx, packets: &mut Packets, queue: &mut Queue, log: &mut Log) {
        let p = packets.get_mut(packet);
        self.counters.sent += 1;
        self.counters.sent_bytes += p.data.len() as u64;
        log.packet(now, Note::Send, p);
        let is_dark = |host| self.dark.get(&(p.net, host)).is_some_and(|until| now < *until);
        if is_dark(p.from) || is_dark(p.to) {
            self.counters.cut += 1;
            log.packet(now, Note::Dropped(Drop::Cut), p);
            return packets.release(packet);
        }
        let n = &mut self.networks[usize::from(p.net)];
        let link = match &mut n.up {
            Up::Own(links) => &mut links[p.from as usize],
            Up::Shared(bus) => {
                let at = bus.enters_ns(now, p.from, p.data.len() as u32);
                return queue.push(at, What::AtMedium { packet });
            }
        };
        p.on = Transit { port: None, epoch: link.epoch() };
        let offer = link.offer(now, p.data.len() as u32, |_, rng| Damage::draw(p.data.len(), rng));
        let end = End::Switch(n.ends.leaf_of(p.from));
        travel(offer, end, packet, packets, queue, log);
    }

    /// A packet comes to its host's queue for the medium.
    pub(crate) fn at_medium(
        &mut self,
        now: Ns,
        packet: PacketIx,
        packets: &mut Packets,
        queue: &mut Queue,
        log: &mut Log,
    ) {
        let p = packets.get(packet);
        let (net, host, bytes) = (p.net, p.from, p.data.len() as u32);
        self.leave_medium(now, net, packets, queue, log);
        let Up::Shared(bus) = &mut self.networks[usize::from(net)].up else { return packets.release(packet) };
        if let Err((why, packet)) = bus.medium.offer(now, host as usize, bytes, packet) {
            log.packet(now, Note::Dropped(dropped(why)), packets.get(packet));
            packets.release(packet);
        }
        if let Some(at) = bus.ask() {
            queue.push(at, What::Medium { net });
        }
    }

    /// What the medium of a network has sent by now comes to the switch behind it.
    pub(crate) fn leave_medium(
        &mut self,
        now: Ns,
        net: NetId,
        packets: &mut Packets,
        queue: &mut Queue,
        log: &mut Log,
    ) {
        let Network { up: Up::Shared(bus), ends, .. } = &mut self.networks[usize::from(net)] else { return };
        loop {
            let damage = |_, packet: &PacketIx, rng: &mut _| Damage::draw(packets.get(*packet).data.len(), rng);
            let Some(passed) = bus.medium.pop(now, damage) else { break };
            let packet = passed.item;
            let link = bus.medium.pipe_mut(passed.station);
            let p = packets.get_mut(packet);
            p.on = Transit { port: None, epoch: link.epoch() };
            if is_marked(&passed.offer, p) {
                link.count_marked();
            }
            let end = End::Switch(ends.leaf_of(p.from));
            travel(passed.offer, end, packet, packets, queue, log);
        }
        if let Some(at) = bus.ask() {
            queue.push(at, What::Medium { net });
        }
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
        let p = packets.get_mut(packet);
        if !self.arrive(p) {
            log.packet(now, Note::Dropped(Drop::Cut), p);
            return packets.release(packet);
        }
        let n = &mut self.networks[usize::from(p.net)];
        let (port, end) = n.ends.route(switch, p.to);
        let s = &mut n.switches[switch as usize];
        p.on = Transit { port: Some((switch, port)), epoch: s.ports()[port as usize].epoch() };
        let offer = s.offer(port as usize, now, p.data.len() as u32, |_, rng| Damage::draw(p.data.len(), rng));
        if !matches!(offer, Offer::Drop(Why::Queue, _)) {
            let (depth, second) = (s.ports_mut()[port as usize].waiting_packets(now) as u64, (now / SEC) as usize);
            if second >= self.deepest.len() {
                self.deepest.resize(second + 1, 0);
            }
            self.deepest[second] = self.deepest[second].max(depth);
        }
        if is_marked(&offer, p) {
            s.ports_mut()[port as usize].count_marked();
        }
        travel(offer, end, packet, packets, queue, log);
    }

    /// A packet has come to the end of its link; false if a cut took it.
    pub(crate) fn arrive(&mut self, p: &Packet) -> bool {
        let n = &mut self.networks[usize::from(p.net)];
        let link = match p.on.port {
            None => n.up.link_mut(p.from),
            Some((switch, port)) => &mut n.switches[switch as usize].ports_mut()[port as usize],
        };
        link.arrive(p.on.epoch, p.data.len() as u32)
    }

    /// The way from a host to another, as it is now.
    pub(crate) fn way(&self, net: NetId, from: HostId, to: HostId) -> Way {
        let n = &self.networks[usize::from(net)];
        let nothing = Way { delay_ns: 0, jitter_ns: 0, rate_bytes_per_s: 0, loss: 0, is_cut: false };
        let mut way = nothing.over(&n.spec.up, n.up.link(from).is_cut());
        let mut at = n.ends.leaf_of(from);
        loop {
            let (port, end) = n.ends.route(at, to);
            let is_cut = n.switches[at as usize].ports()[port as usize].is_cut();
            match (end, &n.spec.topology) {
                (End::Switch(next), Topology::Tree { trunk, .. }) => (way, at) = (way.over(trunk, is_cut), next),
                _ => return way.over(&n.spec.down, is_cut),
            }
        }
    }

    /// Datagrams from and to a host are lost until then.
    pub(crate) fn set_dark(&mut self, net: NetId, host: HostId, until: Ns) {
        let dark = self.dark.entry((net, host)).or_default();
        *dark = until.max(*dark);
    }

    /// Cuts or heals a host's cable.
    pub(crate) fn set_cut(&mut self, net: NetId, host: HostId, direction: Direction, cut: bool) {
        let Some(n) = self.networks.get_mut(usize::from(net)).filter(|n| host < n.up.hosts()) else {
            return;
        };
        if direction != Direction::Down {
            n.up.link_mut(host).set_cut(cut);
        }
        if direction != Direction::Up {
            let leaf = n.ends.leaf_of(host);
            let (port, _) = n.ends.route(leaf, host);
            n.switches[leaf as usize].ports_mut()[port as usize].set_cut(cut);
        }
    }

    /// Changes what all links of a network pass.
    pub(crate) fn set_mtu(&mut self, net: NetId, bytes: u32) {
        let Some(n) = self.networks.get_mut(usize::from(net)) else {
            return;
        };
        let shrink = |link: &mut Link| link.set_spec(PipeSpec { mtu_bytes: bytes, ..*link.spec() });
        (0..n.up.hosts()).for_each(|host| shrink(n.up.link_mut(host)));
        n.switches.iter_mut().flat_map(|s| s.ports_mut()).for_each(shrink);
    }
}

impl Network {
    fn new(spec: &NetworkSpec, hosts: u32, seed: u64, index: u64) -> Self {
        let s = &spec.switch;
        // Unlimited: a host stops before it has put too much into its interface.
        let interface = QueueLimit::default();
        let output = QueueLimit { packets: Some(s.port_packets), bytes: Some(s.port_bytes), counts_sending: true };
        let mark = Mark { packets: s.mark_packets, bytes: None };
        let memory = Some(Memory { bytes: s.shared_bytes, dynamic_percent: s.dynamic_percent });
        let mut stream = index << 32;
        let mut links = |count: u32, spec: &LinkSpec, queue: QueueLimit| -> Vec<Link> {
            let link = |_| {
                stream += 1;
                let mark = if queue.counts_sending { mark } else { Mark::default() };
                Pipe::new(PipeSpec { mark, ..spec.pipe(queue) }, Rng::new(seed, stream).into_inner())
            };
            (0..count).map(link).collect()
        };
        let up = match spec.topology {
            Topology::Bus => Up::shared(links(hosts, &spec.up, output), None),
            Topology::CollidingBus => Up::shared(links(hosts, &spec.up, output), Some(Collisions::default())),
            Topology::Star | Topology::Tree { .. } => Up::Own(links(hosts, &spec.up, interface)),
        };
        let mut switches = Vec::new();
        let mut ends = Ends { hosts_per_leaf: None, core: 0, hosts };
        match &spec.topology {
            Topology::Star | Topology::Bus | Topology::CollidingBus => {
                switches.push(Switch::new(links(hosts, &spec.down, output), memory));
            }
            Topology::Tree { hosts_per_leaf, trunk } => {
                let per = (*hosts_per_leaf).max(1);
                let leaves = hosts.div_ceil(per);
                for leaf in 0..leaves {
                    let mut ports = links((hosts - leaf * per).min(per), &spec.down, output);
                    ports.append(&mut links(1, trunk, output));
                    switches.push(Switch::new(ports, memory));
                }
                switches.push(Switch::new(links(leaves, trunk, output), memory));
                ends = Ends { hosts_per_leaf: Some(per), core: leaves, hosts };
            }
        }
        Network { spec: spec.clone(), up, switches, ends }
    }
}

impl Ends {
    /// The switch that a host's cable goes to.
    fn leaf_of(&self, host: HostId) -> u32 {
        self.hosts_per_leaf.map_or(0, |per| host / per)
    }

    /// The port by which a switch forwards to `to`, and where it leads.
    fn route(&self, switch: u32, to: HostId) -> (u32, End) {
        let Some(per) = self.hosts_per_leaf else { return (to, End::Host) };
        let leaf = to / per;
        if switch == self.core {
            (leaf, End::Switch(leaf))
        } else if switch == leaf {
            (to % per, End::Host)
        } else {
            // The trunk lies behind the hosts' ports.
            (per.min(self.hosts - switch * per), End::Switch(self.core))
        }
    }
}

fn dropped(why: Why) -> Drop {
    match why {
        Why::Queue => Drop::SwitchFull,
        Why::Loss => Drop::Chance,
        Why::Cut => Drop::Cut,
        Why::TooBig => Drop::TooBig,
        Why::Collisions => Drop::Collisions,
    }
}

/// A packet that a link marks says so from there on, if it is ECN-capable.
fn is_marked(offer: &Offer<Damage>, p: &mut Packet) -> bool {
    let is_marked = matches!(offer, Offer::Deliver { marked: true, .. }) && p.ecn != NOT_ECT;
    if is_marked {
        p.ecn = CE;
    }
    is_marked
}

/// Does with a packet what its link has decided.
fn travel(offer: Offer<Damage>, end: End, packet: PacketIx, packets: &mut Packets, queue: &mut Queue, log: &mut Log) {
    let (left, at, copy_at, damage) = match offer {
        Offer::Deliver { left_ns, at_ns, copy_at_ns, damage, .. } => (left_ns, at_ns, copy_at_ns, damage),
        Offer::Drop(why, at) => {
            log.packet(at, Note::Dropped(dropped(why)), packets.get(packet));
            return packets.release(packet);
        }
    };
    let arrive = |packet| match end {
        End::Switch(switch) => What::AtSwitch { packet, switch },
        End::Host => What::AtHost { packet },
    };
    if let Some(copy_at) = copy_at {
        queue.push(copy_at, arrive(packets.copy(packet)));
    }
    if let Some(damage) = damage {
        damage.apply(&mut packets.get_mut(packet).data);
        log.packet(left, Note::Corrupted, packets.get(packet));
    }
    queue.push(at, arrive(packet));
}

/// What befalls the bytes of a packet.
enum Damage {
    /// Only so many are left.
    Keep(usize),
    /// So many of these bits are flipped.
    Flip([u64; 3], usize),
}

impl Damage {
    /// Flips up to three bits, or cuts the end off.
    fn draw(len: usize, rng: &mut Pcg32) -> Self {
        let len = len as u64;
        if len == 0 || Chance::ppm(200_000).happens(rng) {
            return Damage::Keep(below(rng, len + 1) as usize);
        }
        let count = 1 + below(rng, 3) as usize;
        let mut bits = [0; 3];
        bits[..count].fill_with(|| below(rng, len * 8));
        Damage::Flip(bits, count)
    }

    fn apply(self, data: &mut Vec<u8>) {
        match self {
            Damage::Keep(bytes) => data.truncate(bytes),
            Damage::Flip(bits, count) => {
                for bit in &bits[..count] {
                    data[(bit / 8) as usize] ^= 1 << (bit % 8);
                }
            }
        }
    }
}

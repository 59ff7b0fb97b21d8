//! The description of a network: what `--spec net.toml` holds, and what the simple flags make.
//!
//! The format is described in `spec/network-toml.md`.

use crate::error::{Error, Result};
use crate::model::{Burst, Chance, Loss, Mark, PipeSpec, QueueLimit};
use crate::units;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{DeserializeOwned, Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::io::Read as _;
use std::marker::PhantomData;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

/// Most hosts of a network.
pub const MAX_HOSTS: usize = 250;
/// Most networks, the control network not counted.
pub const MAX_NETWORKS: usize = 16;
/// The queue of a pipe with a rate whose spec names no queue: the usual transmit queue of a Linux
/// interface.
pub const DEFAULT_QUEUE_PACKETS: u32 = 1000;

const MAX_EVENTS: usize = 10_000;
/// Largest file that is read: the most events there may be have about a megabyte.
const MAX_FILE_BYTES: u64 = 4 << 20;
const MAX_PORTS: usize = 1000;

/// A whole emulated network.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// The name for `weir emulate ctl`; chosen from the process id if absent.
    #[serde(default)]
    pub name: Option<String>,
    /// The hosts' names, in order.
    #[serde(deserialize_with = "hosts")]
    pub hosts: Vec<String>,
    /// The seed of all randomness.
    #[serde(default)]
    pub seed: u64,
    /// Join the hosts by a kernel bridge at full speed, without the user-space switch and without
    /// faults.
    #[serde(default)]
    pub plain: bool,
    /// With `plain`: each packet that a host receives is dropped with this probability, by
    /// a program in the kernel before anything takes it (in a user namespace by nftables).
    #[serde(default, deserialize_with = "option_probability")]
    pub nft_loss: Option<f64>,
    /// Whether host interfaces keep their offloads. Default: yes if `plain` and without `nft_loss`,
    /// otherwise no.
    #[serde(default)]
    pub offload: Option<bool>,
    /// Add a perfect network `ctrl` for launchers; host names then resolve to addresses on it.
    #[serde(default)]
    pub control: bool,
    /// Run the data plane with real-time priority if the system allows it.
    #[serde(default = "yes")]
    pub realtime: bool,
    /// Kernel settings below `net.` written in every host, such as
    /// `net.ipv4.tcp_congestion_control`.
    #[serde(default)]
    pub sysctl: BTreeMap<String, String>,
    /// Settings of all links of all networks.
    #[serde(default)]
    pub link: LinkSettings,
    /// The networks. One named `net1` if absent.
    #[serde(default, rename = "network", deserialize_with = "networks")]
    pub networks: Vec<NetworkSpec>,
    /// Settings laid over all others, in order; the command line's flags.
    #[serde(skip)]
    pub overlays: Vec<LinkSettings>,
    /// What happens to links at which time after the start.
    #[serde(default, rename = "event", deserialize_with = "events")]
    pub events: Vec<Event>,
}

/// What Ethernet adds to a frame with its header: preamble, checksum, gap.
const ETHERNET_OVERHEAD_BYTES: u32 = 24;

/// One star, or one bus.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkSpec {
    /// The network's name, also that of each host's interface on it; in a file `net<its number>` if
    /// absent.
    #[serde(default)]
    pub name: String,
    /// Largest IP packet in bytes.
    #[serde(default = "mtu_default")]
    pub mtu: u32,
    /// The first address of the network, a /24; `10.77.<number of the network>.0` if absent.
    #[serde(default)]
    pub subnet: Option<Ipv4Addr>,
    /// All hosts share one half-duplex medium; what they receive comes from it, without a queue of
    /// its own.
    #[serde(default)]
    pub bus: bool,
    /// With `bus`: hosts collide and back off as on a half-duplex Ethernet.
    #[serde(default)]
    pub collisions: bool,
    /// Settings of all links of this network.
    #[serde(default)]
    pub link: LinkSettings,
    /// Settings of single hosts' links.
    #[serde(default)]
    pub host: BTreeMap<String, LinkSettings>,
}

impl NetworkSpec {
    /// A network with default settings.
    pub fn new(name: &str) -> Self {
        NetworkSpec {
            name: name.into(),
            mtu: mtu_default(),
            subnet: None,
            bus: false,
            collisions: false,
            link: LinkSettings::default(),
            host: BTreeMap::new(),
        }
    }
}

/// The settings of a pipe, and those of a link, which in the file has the tables `up` and `down`
/// beside them: one list of fields for both. With serde's flatten misspelt keys would pass, and
/// errors would lose their lines.
macro_rules! pipe_settings {
    ($($(#[$attribute:meta])* pub $field:ident: $type:ty,)*) => {
        /// Settings of one direction of a link; what is absent stays as it was.
        #[derive(Clone, Debug, Default, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct PipeSettings {
            $($(#[$attribute])* pub $field: $type,)*
        }

        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct RawLink {
            $($(#[$attribute])* $field: $type,)*
            #[serde(default)]
            up: PipeSettings,
            #[serde(default)]
            down: PipeSettings,
        }

        impl From<RawLink> for LinkSettings {
            fn from(raw: RawLink) -> Self {
                LinkSettings { flat: PipeSettings { $($field: raw.$field,)* }, up: raw.up, down: raw.down }
            }
        }
    };
}

pipe_settings! {
    /// Bits per second.
    #[serde(default, deserialize_with = "option_rate")]
    pub rate: Option<u64>,
    /// Bytes added to each packet when its transmission time is computed.
    #[serde(default, deserialize_with = "option_size")]
    pub overhead: Option<u64>,
    /// Queue limit in packets, bytes or both.
    #[serde(default, deserialize_with = "option_queue")]
    pub queue: Option<QueueLimit>,
    /// What waits at least when ECN-capable packets are marked.
    #[serde(default, deserialize_with = "option_mark")]
    pub mark: Option<Mark>,
    /// Propagation time in nanoseconds.
    #[serde(default, deserialize_with = "option_time")]
    pub delay: Option<u64>,
    /// Extra uniform delay in nanoseconds, keeping order.
    #[serde(default, deserialize_with = "option_time")]
    pub jitter: Option<u64>,
    /// Mean loss probability.
    #[serde(default, deserialize_with = "option_probability")]
    pub loss: Option<f64>,
    /// Mean length of a burst of losses in packets: makes `loss` a Gilbert-Elliott process.
    #[serde(default, deserialize_with = "option_float")]
    pub burst: Option<f64>,
    /// A Gilbert-Elliott process given by its four parameters.
    #[serde(default)]
    pub gilbert: Option<Gilbert>,
    /// Probability of a second copy.
    #[serde(default, deserialize_with = "option_probability")]
    pub duplicate: Option<f64>,
    /// Probability that a packet is held back.
    #[serde(default, deserialize_with = "option_probability")]
    pub reorder: Option<f64>,
    /// How long a packet is held back, in nanoseconds; 1 ms if absent.
    #[serde(default, deserialize_with = "option_time")]
    pub reorder_hold: Option<u64>,
    /// Probability of a flipped bit.
    #[serde(default, deserialize_with = "option_probability")]
    pub corrupt: Option<f64>,
    /// Probability of damage that the Internet checksum cannot see.
    #[serde(default, deserialize_with = "option_probability")]
    pub corrupt_hidden: Option<f64>,
}

/// The four parameters of a Gilbert-Elliott process.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gilbert {
    /// Probability of good to bad before a packet.
    #[serde(deserialize_with = "req_probability")]
    pub to_bad: f64,
    /// Probability of bad to good before a packet.
    #[serde(deserialize_with = "req_probability")]
    pub to_good: f64,
    /// Loss probability in the good state.
    #[serde(default, deserialize_with = "req_probability")]
    pub loss_good: f64,
    /// Loss probability in the bad state.
    #[serde(default = "one", deserialize_with = "req_probability")]
    pub loss_bad: f64,
}

/// Loss in bursts, whose state only packets move.
fn bursts(to_bad: f64, to_good: f64, loss_good: f64, loss_bad: f64) -> Loss {
    let [to_bad, to_good, each, loss] = [to_bad, to_good, loss_good, loss_bad].map(Chance::of);
    Loss { each, burst: Some(Burst { to_bad, to_good, loss, idle_step_ns: 0 }) }
}

impl PipeSettings {
    /// Lays these settings over existing ones.
    pub fn apply(&self, pipe: &mut PipeSpec) -> std::result::Result<(), String> {
        if let Some(rate) = self.rate {
            if pipe.rate_bytes_per_s == 0 && pipe.queue == QueueLimit::default() {
                pipe.queue.packets = Some(DEFAULT_QUEUE_PACKETS);
            }
            pipe.rate_bytes_per_s = rate.div_ceil(8);
        }
        if let Some(overhead) = self.overhead {
            pipe.wire_overhead_bytes =
                u32::try_from(overhead).ok().filter(|o| *o <= 1000).ok_or("overhead above 1000 bytes")?;
        }
        pipe.queue = self.queue.unwrap_or(pipe.queue);
        pipe.mark = self.mark.unwrap_or(pipe.mark);
        pipe.delay_ns = self.delay.unwrap_or(pipe.delay_ns);
        pipe.jitter_ns = self.jitter.unwrap_or(pipe.jitter_ns);
        self.apply_loss(pipe)?;
        pipe.duplicate = self.duplicate.map_or(pipe.duplicate, Chance::of);
        let mut hold_ns = pipe.reorder.most_ns;
        if let Some(probability) = self.reorder {
            pipe.reorder.chance = Chance::of(probability);
            if hold_ns == 0 {
                hold_ns = 1_000_000;
            }
        }
        hold_ns = self.reorder_hold.unwrap_or(hold_ns);
        (pipe.reorder.least_ns, pipe.reorder.most_ns) = (hold_ns, hold_ns);
        pipe.corrupt = self.corrupt.map_or(pipe.corrupt, Chance::of);
        pipe.corrupt_hidden = self.corrupt_hidden.map_or(pipe.corrupt_hidden, Chance::of);
        Ok(())
    }

    fn apply_loss(&self, pipe: &mut PipeSpec) -> std::result::Result<(), String> {
        match (self.gilbert, self.loss, self.burst) {
            (None, None, None) => {}
            (Some(g), None, None) => {
                pipe.loss = bursts(g.to_bad, g.to_good, g.loss_good, g.loss_bad);
            }
            (None, Some(loss), None) => pipe.loss = Loss::independent(Chance::of(loss)),
            (None, Some(loss), Some(burst)) => {
                if burst < 1.0 || loss >= 1.0 {
                    return Err("burst is a mean length of at least 1 packet, with a loss below 100%".into());
                }
                // All packets of the bad state are lost, so its share of the time is the loss:
                // solve for to_bad.
                let to_good = 1.0 / burst;
                let to_bad = to_good * loss / (1.0 - loss);
                if to_bad > 1.0 {
                    return Err(format!("a loss of {loss} in bursts of {burst} packets leaves no good state"));
                }
                pipe.loss = bursts(to_bad, to_good, 0.0, 1.0);
            }
            (None, None, Some(_)) => {
                return Err("burst needs loss, the mean share of packets lost".into());
            }
            (Some(_), _, _) => return Err("give either gilbert or loss, not both".into()),
        }
        Ok(())
    }

    /// Whether it says how much may wait, or when what comes is marked.
    fn bounds_queue(&self) -> bool {
        self.queue.is_some() || self.mark.is_some()
    }

    /// Settings from words such as `loss=2%`.
    pub fn from_words<'a>(words: impl IntoIterator<Item = &'a str>) -> std::result::Result<Self, String> {
        let mut table = toml::Table::new();
        for word in words {
            let (key, value) =
                word.split_once('=').ok_or_else(|| format!("'{word}' is not KEY=VALUE, as in loss=2%"))?;
            table.insert(key.to_owned(), toml::Value::String(value.to_owned()));
        }
        from_table(table)
    }
}

/// Settings of both directions of a link.
///
/// Flat settings describe the way from host to host as its two ends see it: they apply to the
/// direction `down`, from the switch to the host, whose queue is the switch output port; `rate` and
/// `overhead` apply to `up` as well. On a bus, whose medium is waited for by who sends, those two,
/// `queue` and `mark` apply to `up` alone.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "RawLink")]
pub struct LinkSettings {
    /// The flat settings.
    pub flat: PipeSettings,
    /// Host to switch only.
    pub up: PipeSettings,
    /// Switch to host only.
    pub down: PipeSettings,
}

impl LinkSettings {
    fn apply(&self, is_bus: bool, up: &mut PipeSpec, down: &mut PipeSpec) -> std::result::Result<(), String> {
        let flat = &self.flat;
        let mut above = PipeSettings { rate: flat.rate, overhead: flat.overhead, ..Default::default() };
        let mut below = flat.clone();
        if is_bus {
            (above.queue, above.mark) = (flat.queue, flat.mark);
            (below.rate, below.overhead, below.queue, below.mark) = (None, None, None, None);
        }
        above.apply(up)?;
        self.up.apply(up)?;
        below.apply(down)?;
        self.down.apply(down)
    }

    fn is_empty(&self) -> bool {
        let mut pipes = (PipeSpec::default(), PipeSpec::default());
        self.apply(false, &mut pipes.0, &mut pipes.1).is_ok() && pipes == (PipeSpec::default(), PipeSpec::default())
    }
}

/// Settings of which each alone is some; the first one that is wrong is named.
fn from_table<T: DeserializeOwned>(table: toml::Table) -> std::result::Result<T, String> {
    let all = T::deserialize(toml::Value::Table(table.clone()));
    all.map_err(|whole| {
        let alone = |(key, value): (String, toml::Value)| {
            let one = toml::Table::from_iter([(key.clone(), value)]);
            let error = T::deserialize(toml::Value::Table(one)).err()?;
            let message = error.message().to_owned();
            // What is wrong with the key itself names it.
            Some(if message.contains(&format!("`{key}`")) { message } else { format!("{key}: {message}") })
        };
        table.into_iter().find_map(alone).unwrap_or_else(|| whole.message().to_owned())
    })
}

/// Which direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Host to switch.
    Up,
    /// Switch to host.
    Down,
    /// Both.
    #[default]
    Both,
    /// What is usual where none is named: of cuts both, of settings down, which is the switch's
    /// side, but for the queue and mark of a bus, which are up.
    #[serde(skip)]
    Usual,
}

impl std::str::FromStr for Direction {
    type Err = String;
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "up" => Ok(Direction::Up),
            "down" => Ok(Direction::Down),
            "both" => Ok(Direction::Both),
            _ => Err(format!("'{text}' is not a direction: up, down or both")),
        }
    }
}

/// What happens to a link.
#[derive(Clone, Debug)]
pub enum Action {
    /// Nothing passes, and what is in flight is lost.
    Cut,
    /// Everything passes again.
    Heal,
    /// New settings.
    Set(Box<PipeSettings>),
}

/// A change of a link at a time.
#[derive(Clone, Debug)]
pub struct Event {
    /// When, in nanoseconds after the start of the network.
    pub at_ns: u64,
    /// Whose link.
    pub host: String,
    /// On which network.
    pub network: String,
    /// Which direction.
    pub direction: Direction,
    /// What happens.
    pub action: Action,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Verb {
    Cut,
    Heal,
    Set,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEvent {
    #[serde(deserialize_with = "req_time")]
    at: u64,
    action: Verb,
    host: String,
    network: String,
    direction: Option<Direction>,
    set: Option<PipeSettings>,
}

impl<'de> Deserialize<'de> for Event {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let raw = RawEvent::deserialize(deserializer)?;
        let action = match (raw.action, raw.set) {
            (Verb::Cut, None) => Action::Cut,
            (Verb::Heal, None) => Action::Heal,
            (Verb::Set, Some(settings)) => Action::Set(Box::new(settings)),
            (Verb::Set, None) => {
                return Err(D::Error::custom("an event with action = \"set\" needs a table set = { ... }"));
            }
            (Verb::Cut | Verb::Heal, Some(_)) => {
                return Err(D::Error::custom("set = { ... } belongs to action = \"set\""));
            }
        };
        let direction = raw.direction.unwrap_or(Direction::Usual);
        Ok(Event { at_ns: raw.at, host: raw.host, network: raw.network, direction, action })
    }
}

/// What is wrong with which key and in which line; the parser's own words draw the place in
/// several.
fn in_one_line(text: &str, mut error: toml::de::Error) -> String {
    let line = |at: usize| text.get(..at).map(|before| before.matches('\n').count() + 1);
    let place =
        error.span().and_then(|span| line(span.start)).map_or_else(String::new, |line| format!("line {line}: "));
    // Only where it has no text to draw does the parser tell the keys that lead there, behind the
    // message.
    error.set_input(None);
    let (whole, message) = (error.to_string(), error.message());
    let keys = whole.strip_prefix(message).and_then(|rest| rest.trim().strip_prefix("in `")?.strip_suffix('`'));
    let key = keys.map_or_else(String::new, |keys| format!("{keys}: "));
    let what = message.trim_end().replace(TOP_LEVEL_LISTS.0, TOP_LEVEL_LISTS.1).replace('\n', ", ");
    format!("{place}{key}{what}").replace(char::is_control, " ")
}

/// The last of the keys that the parser says are expected at the top level, and how they are
/// written.
const TOP_LEVEL_LISTS: (&str, &str) = ("`link`, `network`, `event`", "`[link]`, `[[network]]`, `[[event]]`");

impl Spec {
    /// `hosts` hosts named `host1`, `host2`, ... on one perfect network `net1`.
    pub fn star(hosts: usize) -> Self {
        Spec {
            name: None,
            hosts: (1..=hosts).map(|i| format!("host{i}")).collect(),
            seed: 0,
            plain: false,
            nft_loss: None,
            offload: None,
            control: false,
            realtime: true,
            sysctl: BTreeMap::new(),
            link: LinkSettings::default(),
            networks: vec![NetworkSpec::new("net1")],
            overlays: Vec::new(),
            events: Vec::new(),
        }
    }

    /// Reads a spec from TOML text.
    pub fn from_toml(text: &str) -> Result<Self> {
        let mut spec: Spec = toml::from_str(text).map_err(|e| Error::Spec(in_one_line(text, e)))?;
        if spec.networks.is_empty() {
            spec.networks.push(NetworkSpec::new("net1"));
        }
        for (index, network) in spec.networks.iter_mut().enumerate() {
            if network.name.is_empty() {
                network.name = format!("net{}", index + 1);
            }
        }
        spec.check()?;
        Ok(spec)
    }

    /// Reads a spec from a TOML file.
    pub fn from_file(path: &Path) -> Result<Self> {
        let fail = |message: String| Error::SpecFile { path: path.to_owned(), message };
        let file = std::fs::File::open(path).map_err(|e| fail(e.to_string()))?;
        let mut text = String::new();
        let read = file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).map_err(|e| fail(e.to_string()))?;
        if read as u64 > MAX_FILE_BYTES {
            return Err(fail(format!("more than {} MiB: this is no description of a network", MAX_FILE_BYTES >> 20)));
        }
        Spec::from_toml(&text).map_err(|e| match e {
            Error::Spec(message) => fail(message),
            other => other,
        })
    }

    /// The index of a host.
    pub fn host_index(&self, name: &str) -> Result<usize> {
        self.hosts.iter().position(|h| h == name).ok_or_else(|| {
            Error::Request(format!("there is no host '{name}'; the hosts are {}", self.hosts.join(", ")))
        })
    }

    /// The index of a network.
    pub fn network_index(&self, name: &str) -> Result<usize> {
        self.networks.iter().position(|n| n.name == name).ok_or_else(|| {
            let names: Vec<_> = self.networks.iter().map(|n| n.name.as_str()).collect();
            Error::Request(format!("there is no network '{name}'; the networks are {}", names.join(", ")))
        })
    }

    /// The IPv4 address of a host on a network.
    pub fn ipv4(&self, network: usize, host: usize) -> Ipv4Addr {
        let base = self.networks[network].subnet.unwrap_or(Ipv4Addr::new(10, 77, network as u8 + 1, 0));
        Ipv4Addr::from(u32::from(base) + host as u32 + 1)
    }

    /// The IPv6 address of a host on a network; networks with an MTU below 1280 carry no IPv6.
    pub fn ipv6(&self, network: usize, host: usize) -> Option<Ipv6Addr> {
        (self.networks[network].mtu >= 1280)
            .then(|| Ipv6Addr::new(0xfd77, 0, 0, network as u16 + 1, 0, 0, 0, host as u16 + 1))
    }

    /// The IPv4 address of a host on the control network.
    pub fn control_ipv4(&self, host: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, 0, host as u8 + 1)
    }

    /// The parameters of both directions of a link: (up, down).
    pub fn pipes(&self, network: usize, host: usize) -> Result<(PipeSpec, PipeSpec)> {
        let (mut up, mut down) = (PipeSpec::default(), PipeSpec::default());
        let spec = &self.networks[network];
        let own = spec.host.get(&self.hosts[host]);
        for settings in [Some(&self.link), Some(&spec.link), own].into_iter().flatten().chain(&self.overlays) {
            settings.apply(spec.bus, &mut up, &mut down).map_err(Error::Spec)?;
        }
        Ok((up, down))
    }

    /// Whether host interfaces keep their offloads.
    pub fn offload(&self) -> bool {
        self.offload.unwrap_or(self.plain && self.nft_loss.is_none())
    }

    /// Finds everything wrong with the spec that can be found without the kernel.
    pub fn check(&self) -> Result<()> {
        let fail = |message: String| Err(Error::Spec(message));
        if self.hosts.is_empty() || self.hosts.len() > MAX_HOSTS {
            return fail(format!("{} hosts; from 1 to {MAX_HOSTS} are possible", self.hosts.len()));
        }
        if self.networks.is_empty() || self.networks.len() > MAX_NETWORKS {
            return fail(format!("{} networks; from 1 to {MAX_NETWORKS} are possible", self.networks.len()));
        }
        if self.networks.len() * self.hosts.len() > MAX_PORTS {
            return fail(format!("more than {MAX_PORTS} interfaces (hosts x networks)"));
        }
        if self.events.len() > MAX_EVENTS {
            return fail(format!("more than {MAX_EVENTS} events"));
        }
        self.check_names()?;
        for (index, network) in self.networks.iter().enumerate() {
            if !(576..=9000).contains(&network.mtu) {
                return fail(format!("network {}: mtu {} is not in 576..9000", network.name, network.mtu));
            }
            if let Some(subnet) = network.subnet {
                check_subnet(subnet)
                    .map_err(|e| Error::Spec(format!("network {}: subnet {subnet}: {e}", network.name)))?;
            }
            for host in network.host.keys() {
                self.host_index(host).map_err(|e| Error::Spec(format!("network {}: {e}", network.name)))?;
            }
            self.check_pipes(index)?;
        }
        self.check_subnets()?;
        for event in &self.events {
            self.host_index(&event.host).map_err(|e| Error::Spec(format!("event: {e}")))?;
            let network = self.network_index(&event.network).map_err(|e| Error::Spec(format!("event: {e}")))?;
            self.check_change(network, event.direction, &event.action)
                .map_err(|e| Error::Spec(format!("event: {e}")))?;
        }
        for key in self.sysctl.keys() {
            let plain = key.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
            if !key.starts_with("net.") || !plain || key.contains("..") {
                return fail(format!("sysctl '{key}': only names below net. belong to a host"));
            }
        }
        self.check_plain()
    }

    /// Every pipe can be made, and a bus has one rate.
    fn check_pipes(&self, network: usize) -> Result<()> {
        let (mut medium, of) = (None, &self.networks[network]);
        if of.collisions && !of.bus {
            return Err(Error::Spec(format!("network {}: only on a bus are there collisions", of.name)));
        }
        for host in 0..self.hosts.len() {
            let (up, _) = self.pipes(network, host)?;
            let own = (up.rate_bytes_per_s, up.wire_overhead_bytes);
            if of.collisions && up.wire_overhead_bytes < ETHERNET_OVERHEAD_BYTES {
                return Err(Error::Spec(format!(
                    "network {}: collisions need an overhead of {ETHERNET_OVERHEAD_BYTES} or more, which counts \
                     preamble, checksum and gap",
                    of.name
                )));
            }
            if of.bus && own.0 == 0 {
                return Err(Error::Spec(format!("network {}: a bus needs a rate", of.name)));
            }
            if of.bus && *medium.get_or_insert(own) != own {
                return Err(Error::Spec(format!("network {}: all hosts of a bus have one rate and overhead", of.name)));
            }
        }
        Ok(())
    }

    /// Whether this may happen to a link of a running network.
    pub(crate) fn check_change(
        &self,
        network: usize,
        direction: Direction,
        action: &Action,
    ) -> std::result::Result<(), String> {
        let Action::Set(settings) = action else { return Ok(()) };
        settings.apply(&mut PipeSpec::default())?;
        let of = &self.networks[network];
        if of.bus && (settings.rate.is_some() || settings.overhead.is_some()) {
            // Of one link it would be another rate than the others', or a second limit behind the
            // medium.
            return Err(format!(
                "network {} is a bus: its rate and overhead are those of all its hosts and stay as the network began",
                of.name
            ));
        }
        if of.bus && direction == Direction::Down && settings.bounds_queue() {
            return Err(format!(
                "network {} is a bus: what waits stands in front of its medium; queue and mark are of the direction up",
                of.name
            ));
        }
        Ok(())
    }

    /// A change in the directions that it is meant for.
    pub(crate) fn directed(&self, network: usize, direction: Direction, action: Action) -> Vec<(Direction, Action)> {
        let settings = match action {
            Action::Set(settings) if direction == Direction::Usual => settings,
            action if direction == Direction::Usual => return vec![(Direction::Both, action)],
            action => return vec![(direction, action)],
        };
        if !self.networks[network].bus || !settings.bounds_queue() {
            return vec![(Direction::Down, Action::Set(settings))];
        }
        let up = PipeSettings { queue: settings.queue, mark: settings.mark, ..PipeSettings::default() };
        let down = PipeSettings { queue: None, mark: None, ..*settings };
        [(Direction::Up, up), (Direction::Down, down)].map(|(to, set)| (to, Action::Set(Box::new(set)))).into()
    }

    /// Two networks with the same addresses: packets would leave by either.
    fn check_subnets(&self) -> Result<()> {
        let mut seen = BTreeMap::new();
        if self.control {
            seen.insert(self.control_ipv4(0), "ctrl");
        }
        for (index, network) in self.networks.iter().enumerate() {
            if let Some(other) = seen.insert(self.ipv4(index, 0), &network.name) {
                let text = format!("network {}: its subnet is that of network {other} too", network.name);
                return Err(Error::Spec(text));
            }
        }
        Ok(())
    }

    fn check_names(&self) -> Result<()> {
        let networks = self.networks.iter().map(|n| &n.name);
        let mut seen = std::collections::BTreeSet::new();
        for (name, most) in
            self.hosts.iter().map(|h| (h, 40)).chain(networks.map(|n| (n, 12))).chain(self.name.iter().map(|n| (n, 40)))
        {
            let plain = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
            if !plain || name.is_empty() || name.len() > most || name.starts_with('-') {
                return Err(Error::Spec(format!(
                    "name '{name}': use 1 to {most} of a-z, 0-9 and -, not beginning with -"
                )));
            }
            if ["lo", "ctrl", "localhost"].contains(&name.as_str()) {
                return Err(Error::Spec(format!("the name '{name}' is taken")));
            }
        }
        for name in self.hosts.iter().chain(self.networks.iter().map(|n| &n.name)) {
            if !seen.insert(name) {
                return Err(Error::Spec(format!("the name '{name}' occurs twice")));
            }
        }
        Ok(())
    }

    fn check_plain(&self) -> Result<()> {
        let shaped = |s: &LinkSettings| !s.is_empty();
        let links = self
            .networks
            .iter()
            .flat_map(|n| n.host.values().chain([&n.link]))
            .chain([&self.link])
            .chain(&self.overlays);
        if self.plain && self.networks.iter().any(|n| n.bus) {
            return Err(Error::Spec("a plain network has no medium that all share, so no bus".into()));
        }
        if self.plain && (links.into_iter().any(shaped) || !self.events.is_empty()) {
            return Err(Error::Spec(
                "a plain network has no user-space switch, so no rate, delay, fault or event; only nft_loss".into(),
            ));
        }
        if !self.plain && self.nft_loss.is_some() {
            return Err(Error::Spec("nft_loss belongs to plain networks; use loss".into()));
        }
        Ok(())
    }
}

/// Whether hosts can have the addresses of this /24 and reach each other by them. Not those of
/// "this network" (0.0.0.0/8), loopback (127.0.0.0/8), multicast (224.0.0.0/4) and what is reserved
/// above (RFC 6890), where masks such as 255.255.255.0 are: kernels and programs differ in which of
/// these they refuse.
fn check_subnet(subnet: Ipv4Addr) -> std::result::Result<(), &'static str> {
    let [first, .., last] = subnet.octets();
    if last != 0 {
        return Err("not the first address of a /24, such as 10.1.2.0");
    }
    if matches!(first, 0 | 127 | 224..) {
        return Err("no host can have its addresses; write the first address of a /24, such as 10.1.2.0");
    }
    Ok(())
}

fn yes() -> bool {
    true
}

fn one() -> f64 {
    1.0
}

fn mtu_default() -> u32 {
    1500
}

/// A quantity, which TOML may hold as text or as a number; `expected` says in words what it is.
struct Quantity<F> {
    expected: &'static str,
    parse: F,
}

impl<T, F: Fn(&str) -> std::result::Result<T, String>> Visitor<'_> for Quantity<F> {
    type Value = T;

    fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> std::result::Result<T, E> {
        (self.parse)(text).map_err(E::custom)
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> std::result::Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> std::result::Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> std::result::Result<T, E> {
        self.visit_str(&number.to_string())
    }
}

macro_rules! quantities {
    ($($name:ident, $option:ident, $type:ty, $parse:expr, $expected:expr;)*) => { $(
        #[allow(dead_code)] // both forms of each kind, whichever the structs above use
        fn $name<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<$type, D::Error> {
            deserializer.deserialize_any(Quantity { expected: $expected, parse: $parse })
        }
        #[allow(dead_code)]
        fn $option<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Option<$type>, D::Error> {
            $name(deserializer).map(Some)
        }
    )* };
}

quantities! {
    req_rate, option_rate, u64, units::rate_bits_per_s, "a rate such as \"100m\"";
    req_time, option_time, u64, units::time_ns, "a time such as \"1ms\"";
    req_probability, option_probability, f64, units::probability, "a probability such as \"1%\"";
    req_size, option_size, u64, units::size_bytes, "a size in bytes such as 24";
    req_mark, option_mark, Mark, units::mark, "what waits when packets are marked, such as \"20p\"";
    req_queue, option_queue, QueueLimit, units::queue, "a queue limit such as \"64p\"";
    req_float, option_float, f64, finite, "a number";
}

fn finite(text: &str) -> std::result::Result<f64, String> {
    text.parse().ok().filter(|number: &f64| number.is_finite()).ok_or_else(|| format!("'{text}' is not a number"))
}

fn hosts<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Vec<String>, D::Error> {
    struct Hosts;
    impl<'de> Visitor<'de> for Hosts {
        type Value = Vec<String>;

        fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
            write!(f, "a number of hosts from 1 to {MAX_HOSTS}, or a list of their names")
        }

        fn visit_i64<E: serde::de::Error>(self, count: i64) -> std::result::Result<Vec<String>, E> {
            match usize::try_from(count) {
                Ok(count @ 1..=MAX_HOSTS) => Ok((1..=count).map(|i| format!("host{i}")).collect()),
                _ => Err(E::custom(format!("{count} hosts; from 1 to {MAX_HOSTS} are possible"))),
            }
        }

        fn visit_seq<A: SeqAccess<'de>>(self, names: A) -> std::result::Result<Vec<String>, A::Error> {
            Vec::deserialize(SeqAccessDeserializer::new(names))
        }
    }
    deserializer.deserialize_any(Hosts)
}

/// A list of tables, each of which begins with its name in two brackets: with one it would be one
/// table.
fn tables<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
    header: &'static str,
) -> std::result::Result<Vec<T>, D::Error> {
    struct Tables<T>(&'static str, PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Tables<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
            write!(f, "{}, once for each", self.0)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> std::result::Result<Vec<T>, A::Error> {
            Vec::deserialize(SeqAccessDeserializer::new(list))
        }
    }
    deserializer.deserialize_any(Tables(header, PhantomData))
}

fn networks<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Vec<NetworkSpec>, D::Error> {
    tables(deserializer, "[[network]]")
}

fn events<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Vec<Event>, D::Error> {
    tables(deserializer, "[[event]]")
}

#[cfg(test)]
#[path = "spec_tests.rs"]
mod tests;

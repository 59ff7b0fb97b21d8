//! A network of hosts on this machine to run MPI programs in, made by the project's emulator.
//!
//! Every host has an interface `net1` on the network that is measured and one on a clean network
//! that only the launchers use, so that starting a job does not suffer from the faults and does
//! not disturb the measurement.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use weir_emulate::spec::Spec;
use weir_emulate::{Network, privilege};

use crate::process::{end_all, run_limited};

/// The interface that is measured.
pub const DATA_IFACE: &str = "net1";
/// The interface on the second network, where there is one.
pub const SECOND_IFACE: &str = "net2";

/// The interface on the network that only the launchers use.
const CONTROL_IFACE: &str = "ctrl";

/// Comes before the least retransmission timeout in the name of a congestion control.
pub const TUNED: &str = "-rto";

/// What Ethernet adds to a frame on the wire: preamble, checksum, gap.
const ETHERNET_OVERHEAD_BYTES: u32 = 8 + 4 + 12;

/// What the network between the hosts does.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wire {
    /// Each packet is lost with this probability, each way.
    pub loss: f64,
    /// Rate of each host's link each way, in Mbit/s; none: as fast as the machine.
    pub rate_mbit_per_s: Option<u32>,
    /// Time of flight between two hosts, one way, in microseconds.
    pub delay_us: u32,
    /// And up to so much more, each packet another time, in order.
    pub jitter_us: u32,
    /// All hosts share one half-duplex medium of the rate, on which a frame's preamble, checksum
    /// and gap take time too.
    pub bus: bool,
    /// With `bus`: hosts collide and back off.
    pub collisions: bool,
    /// Room of a switch port's queue, in packets; of each host's for the bus.
    pub queue_packets: Option<u32>,
    /// What waits there, in packets, when it marks ECN-capable ones.
    pub mark_packets: Option<u32>,
    /// Segmentation offload off, although nothing is lost: to compare with what is.
    pub no_offload: bool,
    /// A second network beside the first, with interfaces of its own; either can be cut.
    pub two_networks: bool,
    /// What is different on the second.
    pub second: Second,
    /// Longest packet, in bytes.
    pub mtu_bytes: Option<u32>,
    /// Two networks, each a cable between the two hosts there are, without a switch; interfaces,
    /// addresses and cables can be taken away.
    pub two_cables: bool,
}

/// In what the second of two networks differs from the first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Second {
    /// Rate of its links, in Mbit/s.
    pub rate_mbit_per_s: Option<u32>,
    /// Time of flight, one way, in microseconds.
    pub delay_us: Option<u32>,
    /// Longest packet, in bytes.
    pub mtu_bytes: Option<u32>,
}

impl Second {
    /// In words, behind those of the first.
    fn describe(&self) -> String {
        let rate = self.rate_mbit_per_s.map(|rate| format!("{rate} Mbit/s"));
        let delay = self.delay_us.map(|delay| format!("{} ms", f64::from(delay) / 1000.0));
        let mtu = self.mtu_bytes.map(|mtu| format!("packets of {mtu} bytes"));
        let own: Vec<String> = [rate, delay, mtu].into_iter().flatten().collect();
        if own.is_empty() { String::new() } else { format!(" (the second {})", own.join(", ")) }
    }

    /// The end of its table of the specification.
    fn spec(&self) -> String {
        let mut text = String::new();
        if let Some(rate) = self.rate_mbit_per_s {
            text += &format!("link.rate = \"{rate}m\"\n");
        }
        if let Some(delay) = self.delay_us {
            text += &format!("link.delay = \"{delay}us\"\n");
        }
        text
    }
}

impl Wire {
    /// The kernel's own path with these losses. With losses, offloads are off: one drop would
    /// take 64 KB at once.
    pub fn plain(loss: f64) -> Self {
        Self { loss, ..Self::default() }
    }

    /// Links of a rate and delay, with a user-space switch between them.
    pub fn shaped(rate_mbit_per_s: u32, delay_us: u32, loss: f64) -> Self {
        Self { loss, rate_mbit_per_s: Some(rate_mbit_per_s), delay_us, ..Self::default() }
    }

    /// The kernel's path alone cannot do it.
    fn is_shaped(&self) -> bool {
        let is_switch_shaped = self.queue_packets.is_some() || self.mark_packets.is_some();
        let is_shaped = self.rate_mbit_per_s.is_some() || self.mtu_bytes.is_some();
        is_shaped || self.delay_us > 0 || self.jitter_us > 0 || is_switch_shaped || self.two_networks || self.bus
    }

    /// In words, for tables.
    pub fn describe(&self) -> String {
        let mut words = Vec::new();
        if self.bus {
            words.push(if self.collisions { "a bus with collisions" } else { "a bus" }.to_owned());
        }
        match self.rate_mbit_per_s {
            Some(rate) => words.push(format!("{rate} Mbit/s, {} ms", f64::from(self.delay_us) / 1000.0)),
            None if self.loss > 0.0 || self.no_offload => words.push("veth, offloads off".into()),
            None => words.push("veth".into()),
        }
        if self.jitter_us > 0 {
            words.push(format!("up to {} ms more", f64::from(self.jitter_us) / 1000.0));
        }
        if let Some(queue) = self.queue_packets {
            words.push(format!("queue of {queue}"));
        }
        if let Some(mark) = self.mark_packets {
            words.push(format!("marks from {mark}"));
        }
        if self.two_networks || self.two_cables {
            words.push(format!("two networks{}", self.second.describe()));
        }
        words.push(format!("{} % loss", self.loss * 100.0));
        words.join(", ")
    }

    /// The table of a network in the specification.
    fn network(&self, name: &str, mtu_bytes: Option<u32>) -> String {
        let mtu = mtu_bytes.map_or_else(String::new, |bytes| format!("mtu = {bytes}\n"));
        let bus = if self.bus { "bus = true\n" } else { "" };
        let collisions = if self.collisions { "collisions = true\n" } else { "" };
        format!("[[network]]\nname = \"{name}\"\n{mtu}{bus}{collisions}")
    }

    fn spec(&self, hosts: usize) -> String {
        let mut text = format!("hosts = {hosts}\ncontrol = true\n");
        if self.is_shaped() {
            text += &format!("[link]\nloss = \"{}%\"\ndelay = \"{}us\"\n", self.loss * 100.0, self.delay_us);
            if let Some(rate) = self.rate_mbit_per_s {
                text += &format!("rate = \"{rate}m\"\n");
            }
            if self.jitter_us > 0 {
                text += &format!("jitter = \"{}us\"\n", self.jitter_us);
            }
            if self.bus {
                text += &format!("overhead = {ETHERNET_OVERHEAD_BYTES}\n");
            }
            if let Some(queue) = self.queue_packets {
                text += &format!("queue = \"{queue}p\"\n");
            }
            if let Some(mark) = self.mark_packets {
                text += &format!("mark = \"{mark}p\"\n");
            }
            text += &self.network(DATA_IFACE, self.mtu_bytes);
            if self.two_networks {
                text += &self.network(SECOND_IFACE, self.second.mtu_bytes.or(self.mtu_bytes));
                text += &self.second.spec();
            }
        } else {
            text += "plain = true\n";
            if self.loss > 0.0 {
                text += &format!("nft_loss = {}\n", self.loss);
            } else if self.no_offload {
                text += "offload = false\n";
            }
            for name in [DATA_IFACE, SECOND_IFACE].iter().filter(|_| self.two_cables) {
                text += &format!("[[network]]\nname = \"{name}\"\n");
            }
        }
        text
    }
}

/// Gets the right to make networks: call first thing in `main`, while there is one thread.
///
/// # Errors
/// The reason why no namespaces can be had here.
pub fn acquire() -> Result<&'static str> {
    Ok(match privilege::acquire()? {
        privilege::Privilege::Root => "network namespaces, as root",
        privilege::Privilege::UserNamespace => "network namespaces in a user namespace, without privilege",
    })
}

/// What a name of a kernel's congestion control says: the algorithm, and the least retransmission
/// timeout if it ends with `-rto5ms`.
fn tuned(name: &str) -> Result<(&str, Option<Duration>)> {
    let Some((algorithm, least)) = name.split_once(TUNED) else { return Ok((name, None)) };
    let number = least.strip_suffix("ms").and_then(|number| number.parse().ok()).filter(|ms| (1..=1000).contains(ms));
    let ms = number.with_context(|| format!("{name}: not algorithm{TUNED}1ms to {TUNED}1000ms"))?;
    Ok((algorithm, Some(Duration::from_millis(ms))))
}

/// A running network; it goes away with everything that runs in it when this is dropped.
#[derive(Debug)]
pub struct Lab {
    /// The hosts' names.
    pub hosts: Vec<String>,
    /// The stand-in for ssh: `agent HOST COMMAND`.
    pub agent: PathBuf,
    /// The inode numbers of the hosts' network namespaces.
    spaces: BTreeSet<u64>,
    network: Network,
}

impl Lab {
    /// Makes a network of `hosts` hosts. Needs [`acquire`].
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn start(hosts: usize, wire: &Wire) -> Result<Self> {
        let spec = Spec::from_toml(&wire.spec(hosts))?;
        let network =
            Network::start(&spec).with_context(|| format!("a network of {hosts} hosts, {}", wire.describe()))?;
        let find = |name: &str| network.environment().into_iter().find(|(key, _)| key == name).map(|(_, value)| value);
        let agent = find("WEIR_LAUNCH_AGENT").context("the emulator names no launch agent")?.into();
        let mut spaces = BTreeSet::new();
        for host in 0..network.spec().hosts.len() {
            // Seen from a thread inside.
            spaces.insert(network.host(host)?.run(|| fs::metadata("/proc/thread-self/ns/net").map(|is| is.ino()))??);
        }
        Ok(Self { hosts: network.spec().hosts.clone(), agent, spaces, network })
    }

    /// Ends everything that runs on the hosts: a launcher that was stopped, or that failed, may
    /// leave daemons and ranks in sessions of their own, which would take the next launch's time.
    pub fn clear(&self) {
        end_all(|pid| fs::metadata(format!("/proc/{pid}/ns/net")).is_ok_and(|is| self.spaces.contains(&is.ino())));
    }

    /// The interfaces that data may take, separated by commas.
    pub fn data_ifaces(&self) -> String {
        let names: Vec<&str> = self.network.spec().networks.iter().map(|network| network.name.as_str()).collect();
        if names.is_empty() { DATA_IFACE.to_owned() } else { names.join(",") }
    }

    /// Cuts the first host's link to a network. Its interface does not notice.
    ///
    /// # Errors
    /// If there is no such network, or the kernel alone joins the hosts.
    pub fn cut(&self, network: &str) -> Result<()> {
        Ok(self.network.cut(&self.hosts[0], network)?)
    }

    /// Heals it.
    ///
    /// # Errors
    /// As above.
    pub fn heal(&self, network: &str) -> Result<()> {
        Ok(self.network.heal(&self.hosts[0], network)?)
    }

    /// Switches the measured interface of a host off, as when its cable is pulled there.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn pull(&self, host: usize) -> Result<()> {
        Ok(self.network.pull(&self.hosts[host], DATA_IFACE)?)
    }

    /// Takes a host's address on the measured network away.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn take_address(&self, host: usize) -> Result<()> {
        Ok(self.network.take_address(&self.hosts[host], DATA_IFACE)?)
    }

    /// Drops what hosts receive on the measured network; nobody is told.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn mute(&self, hosts: std::ops::Range<usize>) -> Result<()> {
        hosts.into_iter().try_for_each(|host| Ok(self.network.mute(&self.hosts[host], DATA_IFACE)?))
    }

    /// Sets the longest packet that the last host's interface on the measured network takes. What
    /// arrives longer is dropped, and nobody is told.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn set_mtu_of_last(&self, mtu_bytes: u32) -> Result<()> {
        Ok(self.network.set_mtu(&self.hosts[self.hosts.len() - 1], DATA_IFACE, mtu_bytes)?)
    }

    /// A command that runs on the first host, where launchers run.
    ///
    /// # Errors
    /// Only if there are no hosts.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Result<Command> {
        Ok(self.network.host(0)?.command(program))
    }

    /// A command that runs on this host.
    ///
    /// # Errors
    /// If there is no such host.
    pub fn command_on(&self, host: usize, program: impl AsRef<std::ffi::OsStr>) -> Result<Command> {
        Ok(self.network.host(host)?.command(program))
    }

    /// A host's address on the measured network.
    ///
    /// # Errors
    /// If there is no such host.
    pub fn data_address(&self, host: usize) -> Result<String> {
        Ok(self.network.host(host)?.ipv4(DATA_IFACE)?.to_string())
    }

    /// The first host's address on the launchers' network.
    pub fn launcher_address(&self) -> String {
        self.network.spec().control_ipv4(0).to_string()
    }

    /// That network's interface on each host.
    pub fn launcher_network(&self) -> &'static str {
        CONTROL_IFACE
    }

    /// Whether the kernel's TCP of all hosts uses selective acknowledgements on connections made
    /// from now on.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn set_sack(&self, on: bool) -> Result<()> {
        let line = format!("echo {} > /proc/sys/net/ipv4/tcp_sack", u8::from(on));
        for host in 0..self.hosts.len() {
            let outcome = run_limited(&mut self.on(host, &line)?, Duration::from_secs(10))?;
            if !outcome.ok() {
                bail!("selective acknowledgements cannot be set: {}", outcome.cause());
            }
        }
        Ok(())
    }

    /// A host's address on that network.
    pub fn control_address(&self, host: usize) -> String {
        self.network.spec().control_ipv4(host).to_string()
    }

    /// A line for the shell of a host.
    ///
    /// # Errors
    /// Only if there is no such host.
    pub fn on(&self, host: usize, line: &str) -> Result<Command> {
        let mut command = self.network.host(host)?.command("sh");
        command.args(["-c", line]);
        Ok(command)
    }

    /// Sets the kernel's congestion control for the measured network on all hosts, or none (then a
    /// socket has the one it chose, or the system's default: a route's goes before a socket's), and
    /// returns the one a new connection really gets.
    ///
    /// A name such as `cubic-rto5ms` also sets the least retransmission timeout: what an
    /// administrator can do for TCP by a route.
    ///
    /// # Errors
    /// If the kernel does not have it.
    pub fn set_congestion(&self, name: Option<&str>) -> Result<String> {
        let (algorithm, rto_min) = name.map(tuned).transpose()?.unzip();
        let rto_min = rto_min.flatten();
        for host in &self.hosts {
            self.network.set_congestion(host, DATA_IFACE, algorithm, rto_min)?;
        }
        let used = self.congestion()?;
        Ok(rto_min.map_or_else(|| used.clone(), |least| format!("{used}, rto_min {} ms", least.as_millis())))
    }

    /// The kernel's congestion control that a new connection on the measured network gets.
    ///
    /// # Errors
    /// If it cannot be asked for.
    pub fn congestion(&self) -> Result<String> {
        let address = self.network.host(self.hosts.len() - 1)?.ipv4(DATA_IFACE)?;
        // Even a connection that is refused has chosen its algorithm.
        let ask = format!(
            "python3 -c 'import socket as s; c = s.socket(); c.settimeout(5); c.connect_ex((\"{address}\", 9)); \
             print(c.getsockopt(6, 13, 16).split(b\"\\0\")[0].decode())'"
        );
        let outcome = run_limited(&mut self.on(0, &ask)?, Duration::from_secs(10))?;
        if !outcome.ok() {
            bail!("cannot ask for the congestion control in use: {}", outcome.cause());
        }
        Ok(outcome.stdout.trim().to_owned())
    }

    /// Packets that travelled on the measured network, and those lost on purpose, since the start.
    ///
    /// # Errors
    /// If the counters cannot be read.
    pub fn counts(&self) -> Result<Counts> {
        let stats = self.network.stats()?;
        let mut counts = Counts { overrun: stats.overrun + stats.no_memory, ..Counts::default() };
        let measured = |name: &str| [DATA_IFACE, SECOND_IFACE].contains(&name);
        for link in stats.links.iter().filter(|link| measured(&link.network)) {
            counts.sent += link.interface_tx_packets;
            counts.lost += link.nft_dropped.unwrap_or(0);
            for pipe in [&link.up, &link.down].into_iter().flatten() {
                counts.lost += pipe.dropped_loss;
                counts.queue_full += pipe.dropped_queue + pipe.dropped_collisions;
                counts.cut += pipe.dropped_cut;
            }
        }
        Ok(counts)
    }
}

/// Packet counters of a network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that hosts sent.
    pub sent: u64,
    /// Of these, packets dropped at random, as asked.
    pub lost: u64,
    /// Packets dropped by full queues.
    pub queue_full: u64,
    /// Packets dropped by links that were cut.
    pub cut: u64,
    /// Packets lost since this machine did not keep up: not zero means the run is no good.
    pub overrun: u64,
}

impl Counts {
    /// What was counted after `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            sent: self.sent.saturating_sub(earlier.sent),
            lost: self.lost.saturating_sub(earlier.lost),
            queue_full: self.queue_full.saturating_sub(earlier.queue_full),
            cut: self.cut.saturating_sub(earlier.cut),
            overrun: self.overrun.saturating_sub(earlier.overrun),
        }
    }

    /// Why nothing measured meanwhile counts, if the emulator lost packets of its own accord:
    /// nobody asked for those losses.
    pub fn spoilt(self) -> Option<String> {
        (self.overrun > 0).then(|| format!("{} packets lost by an overloaded machine", self.overrun))
    }

    /// The share of packets that was lost as asked, if any was sent.
    pub fn loss(self) -> Option<f64> {
        (self.sent > 0).then(|| self.lost as f64 / self.sent as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_congestion_control_may_bring_a_least_timeout() {
        assert_eq!(tuned("cubic").unwrap(), ("cubic", None));
        assert_eq!(tuned("bbr-rto5ms").unwrap(), ("bbr", Some(Duration::from_millis(5))));
        for wrong in ["bbr-rto", "bbr-rto5", "bbr-rto0ms", "bbr-rto1001ms", "bbr-rto-1ms"] {
            assert!(tuned(wrong).unwrap_err().to_string().contains(wrong));
        }
    }

    #[test]
    fn every_wire_makes_a_valid_spec() {
        let mut queue = Wire::shaped(1000, 50, 0.01);
        queue.queue_packets = Some(64);
        let two = Wire { two_networks: true, ..Wire::default() };
        let second = Second { rate_mbit_per_s: Some(10), delay_us: Some(1000), mtu_bytes: Some(9000) };
        let unequal = Wire { second, mtu_bytes: Some(1500), rate_mbit_per_s: Some(100), ..two.clone() };
        let text = unequal.spec(2);
        let spec = Spec::from_toml(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        assert_eq!([0, 1].map(|n| spec.networks[n].mtu), [1500, 9000], "{text}");
        let cables = Wire { two_cables: true, no_offload: true, ..Wire::default() };
        let bus = Wire { bus: true, ..Wire::shaped(10, 5, 0.0) };
        let late = Wire { jitter_us: 1000, ..Wire::default() };
        assert!(late.spec(2).contains("jitter = \"1000us\"") && !late.spec(2).contains("plain"), "{}", late.spec(2));
        let stars = [Wire::plain(0.0), Wire::plain(0.02), Wire::shaped(100, 0, 0.0), queue, two, unequal, cables, late];
        let colliding = Wire { collisions: true, ..bus.clone() };
        for wire in stars.into_iter().chain([bus, colliding]) {
            let text = wire.spec(4);
            let spec = Spec::from_toml(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
            assert_eq!(spec.hosts.len(), 4);
            assert_eq!(spec.networks[0].bus, wire.bus, "{text}");
            assert_eq!(spec.networks[0].collisions, wire.collisions, "{text}");
            assert_eq!(spec.networks.len(), if wire.two_networks || wire.two_cables { 2 } else { 1 });
            assert!(spec.control, "{text}");
        }
    }

    #[test]
    fn wires_are_named_by_what_they_do() {
        assert_eq!(Wire::plain(0.0).describe(), "veth, 0 % loss");
        assert_eq!(Wire::plain(0.01).describe(), "veth, offloads off, 1 % loss");
        assert_eq!(Wire::shaped(1000, 1000, 0.02).describe(), "1000 Mbit/s, 1 ms, 2 % loss");
        let bus = Wire { bus: true, ..Wire::shaped(10, 5, 0.0) };
        assert_eq!(bus.describe(), "a bus, 10 Mbit/s, 0.005 ms, 0 % loss");
    }
}

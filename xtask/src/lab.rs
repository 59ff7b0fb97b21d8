//! A network of hosts on this machine to run MPI programs in.
//!
//! Every host is a network namespace with an interface `net1` on the network that is measured and
//! one named `ctrl` on a clean network that only the launchers use, so that starting a job does
//! not suffer from the faults and does not disturb the measurement.
//!
//! Everything is made inside a mount and network namespace of this process's own (and a user
//! namespace, where the user is not root), so nothing stays behind, however the process ends.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process::{run_limited, run_quiet};

/// The interface that is measured.
pub const DATA_IFACE: &str = "net1";
/// The launchers' interface.
pub const CONTROL_IFACE: &str = "ctrl";
const INSIDE: &str = "WEIR_XTASK_INSIDE";

/// What the network between the hosts does.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wire {
    /// Each packet is lost with this probability, on its way in each direction.
    pub loss: f64,
    /// Send packets of full size to the network card, to be cut there; always off with loss, where
    /// one drop would take 64 KB at once.
    pub offload: bool,
    /// Rate of each host's link each way, in Mbit/s; none: as fast as the machine.
    pub rate_mbit_per_s: Option<u32>,
    /// Time of flight between two hosts, one way, in microseconds.
    pub delay_us: u32,
    /// Room of a switch port's queue, in packets.
    pub queue_packets: Option<u32>,
}

impl Wire {
    /// The kernel's own path with these losses.
    pub fn plain(loss: f64) -> Self {
        Self { loss, offload: loss == 0.0, ..Self::default() }
    }

    /// Links of a rate and delay, with a user-space switch between them.
    pub fn shaped(rate_mbit_per_s: u32, delay_us: u32, loss: f64) -> Self {
        Self { loss, rate_mbit_per_s: Some(rate_mbit_per_s), delay_us, ..Self::default() }
    }

    /// Needs the emulator; the kernel's path alone cannot do it.
    pub fn is_shaped(&self) -> bool {
        self.rate_mbit_per_s.is_some() || self.delay_us > 0 || self.queue_packets.is_some()
    }

    /// In words, for tables.
    pub fn describe(&self) -> String {
        let mut words = Vec::new();
        match self.rate_mbit_per_s {
            Some(rate) => words.push(format!("{rate} Mbit/s, {} ms", f64::from(self.delay_us) / 1000.0)),
            None => words.push(if self.offload { "veth".into() } else { "veth, offloads off".into() }),
        }
        if let Some(queue) = self.queue_packets {
            words.push(format!("queue {queue}"));
        }
        words.push(format!("{} % loss", self.loss * 100.0));
        words.join(", ")
    }
}

/// Moves this process into namespaces of its own, where it may make networks, by running itself
/// again under `unshare`. Returns only if it is inside already, or if the system forbids it.
///
/// # Errors
/// The reason why no namespaces can be had here.
pub fn enter_world() -> Result<()> {
    if std::env::var_os(INSIDE).is_some() {
        // The tools keep their handles under /run/netns; ours are nobody else's business.
        run_quiet(Command::new("mount").args(["-t", "tmpfs", "weir", "/run"]))?;
        return run_quiet(Command::new("ip").args(["link", "set", "lo", "up"])).map(drop);
    }
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--net", "--uts"]);
    if !rustix::process::geteuid().is_root() {
        unshare.args(["--user", "--map-root-user"]);
    }
    let try_it = Command::new("unshare").args(unshare.get_args()).args(["--", "ip", "link", "set", "lo", "up"]).output();
    match try_it {
        Ok(out) if out.status.success() => {}
        Ok(out) => bail!("namespaces are not allowed here: {}", String::from_utf8_lossy(&out.stderr).trim()),
        Err(error) => bail!("unshare(1) cannot be run: {error}"),
    }
    let me = std::env::current_exe()?;
    unshare.arg("--").arg(me).args(std::env::args_os().skip(1)).env(INSIDE, "1");
    let status = unshare.status().context("cannot start unshare")?;
    std::process::exit(status.code().unwrap_or(1));
}

/// A running network.
#[derive(Debug)]
pub struct Lab {
    /// The hosts' names.
    pub hosts: Vec<String>,
    /// What is between them.
    pub wire: Wire,
    /// The stand-in for ssh: `agent HOST COMMAND`.
    pub agent: PathBuf,
    folder: tempfile::TempDir,
    backend: Backend,
}

#[derive(Debug)]
enum Backend {
    Plain,
    Emulated(crate::emulated::Emulated),
}

impl Lab {
    /// Makes a network of `hosts` hosts. Needs [`enter_world`].
    ///
    /// # Errors
    /// If a tool is missing (`ip`, `nft` for losses) or the kernel refuses.
    pub fn start(hosts: usize, wire: &Wire) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let agent = folder.path().join("agent");
        let (names, backend, enter) = if wire.is_shaped() {
            let emulated = crate::emulated::Emulated::start(hosts, wire)?;
            let enter = emulated.enter();
            (emulated.hosts(), Backend::Emulated(emulated), enter)
        } else {
            let names: Vec<String> = (1..=hosts).map(|i| format!("h{i}")).collect();
            make_plain(&names, wire)?;
            (names, Backend::Plain, ENTER_NETNS.to_owned())
        };
        write_agent(&agent, &enter)?;
        Ok(Self { hosts: names, wire: wire.clone(), agent, folder, backend })
    }

    /// A command that runs a shell line on a host.
    pub fn on(&self, host: &str, line: &str) -> Command {
        let mut command = Command::new(&self.agent);
        command.arg(host).arg(line);
        command
    }

    /// The program that goes before a launcher's command so that it runs where it reaches all hosts.
    pub fn hub(&self) -> Vec<String> {
        match &self.backend {
            Backend::Plain => Vec::new(),
            Backend::Emulated(emulated) => emulated.hub(),
        }
    }

    /// The launcher's address on the control network.
    pub fn hub_address(&self) -> String {
        match &self.backend {
            Backend::Plain => HUB_ADDRESS.to_owned(),
            Backend::Emulated(emulated) => emulated.hub_address(),
        }
    }

    /// A scratch folder that goes away with the network.
    pub fn scratch(&self) -> &Path {
        self.folder.path()
    }

    /// Sets the kernel's congestion control for the measured network on all hosts, and returns the
    /// one a new connection really gets.
    ///
    /// It is set on the route: a namespace may not choose every algorithm as its default, since
    /// the kernel counts some as restricted.
    ///
    /// # Errors
    /// If the kernel does not have it.
    pub fn set_congestion(&self, name: &str) -> Result<String> {
        for host in &self.hosts {
            let line = format!(
                "r=$(ip -4 route show dev {DATA_IFACE} scope link | head -n1 | cut -d' ' -f1) && \
                 src=$(ip -4 -o addr show dev {DATA_IFACE} | awk '{{print $4}}' | cut -d/ -f1) && \
                 ip route replace $r dev {DATA_IFACE} src $src congctl {name}"
            );
            run_quiet(&mut self.on(host, &line)).with_context(|| format!("congestion control {name}"))?;
        }
        self.effective_congestion()
    }

    fn effective_congestion(&self) -> Result<String> {
        let (Some(first), Some(last)) = (self.hosts.first(), self.hosts.last()) else { bail!("no hosts") };
        let line = format!("ip -4 -o addr show dev {DATA_IFACE} | awk '{{print $4}}' | cut -d/ -f1");
        let address = run_quiet(&mut self.on(last, &line))?.trim().to_owned();
        // A connection to a closed port has chosen its algorithm by the time it is refused.
        let ask = format!(
            "python3 -c 'import socket as s; c = s.socket(); c.settimeout(3); c.connect_ex((\"{address}\", 9)); \
             print(c.getsockopt(6, 13, 16).split(b\"\\0\")[0].decode())'"
        );
        let outcome = run_limited(&mut self.on(first, &ask), std::time::Duration::from_secs(10))?;
        if !outcome.ok() {
            bail!("cannot ask for the congestion control in use: {}", outcome.cause());
        }
        Ok(outcome.stdout.trim().to_owned())
    }

    /// Packets that came and packets that were lost on purpose, over all hosts, since the start.
    ///
    /// # Errors
    /// If the counters cannot be read.
    pub fn counts(&self) -> Result<Counts> {
        match &self.backend {
            Backend::Plain => self.plain_counts(),
            Backend::Emulated(emulated) => emulated.counts(),
        }
    }

    fn plain_counts(&self) -> Result<Counts> {
        let mut counts = Counts::default();
        if self.wire.loss == 0.0 {
            return Ok(counts);
        }
        for host in &self.hosts {
            let text = run_quiet(Command::new("ip").args(["netns", "exec", host, "nft", "-j", "list", "counters"]))?;
            let value: serde_json::Value = serde_json::from_str(&text)?;
            for entry in value["nftables"].as_array().into_iter().flatten() {
                let packets = entry["counter"]["packets"].as_u64().unwrap_or(0);
                match entry["counter"]["name"].as_str() {
                    Some("seen") => counts.seen += packets,
                    Some("lost") => counts.lost += packets,
                    _ => {}
                }
            }
        }
        Ok(counts)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if matches!(self.backend, Backend::Plain) {
            for host in &self.hosts {
                let _ = run_quiet(Command::new("ip").args(["netns", "del", host]));
            }
            for bridge in [DATA_BRIDGE, CONTROL_BRIDGE] {
                let _ = run_quiet(Command::new("ip").args(["link", "del", bridge]));
            }
        }
    }
}

/// Packet counters of a network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that reached a host's link.
    pub seen: u64,
    /// Of these, packets that the network dropped on purpose.
    pub lost: u64,
}

impl Counts {
    /// What was counted after `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self { seen: self.seen.saturating_sub(earlier.seen), lost: self.lost.saturating_sub(earlier.lost) }
    }

    /// The share that was lost, if any packet was seen.
    pub fn loss(self) -> Option<f64> {
        (self.seen > 0).then(|| self.lost as f64 / self.seen as f64)
    }
}

const HUB_ADDRESS: &str = "10.78.0.254";
const DATA_BRIDGE: &str = "br-data";
const CONTROL_BRIDGE: &str = "br-ctrl";
const ENTER_NETNS: &str = "ip netns exec \"$host\" unshare --uts";

/// Launchers call it as they would call ssh: options, host, words of a command for the shell.
/// Hosts get names of their own: Open MPI takes ranks with one host name for ranks on one machine.
fn write_agent(path: &Path, enter: &str) -> Result<()> {
    let text = format!(
        "#!/bin/sh\n\
         while :; do case $1 in -*) shift ;; *) break ;; esac; done\n\
         host=$1\n\
         shift\n\
         exec {enter} sh -c 'echo \"$0\" > /proc/sys/kernel/hostname; eval \"$1\"' \"$host\" \"$*\"\n"
    );
    fs::write(path, text)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

/// Two hosts are joined by one veth pair; more by a bridge.
fn make_plain(hosts: &[String], wire: &Wire) -> Result<()> {
    let ip = |args: &str| run_quiet(Command::new("ip").args(args.split(' '))).map(drop);
    ip(&format!("link add {CONTROL_BRIDGE} type bridge"))?;
    ip(&format!("addr add {HUB_ADDRESS}/24 dev {CONTROL_BRIDGE}"))?;
    ip(&format!("link set {CONTROL_BRIDGE} up"))?;
    let direct = hosts.len() == 2;
    if !direct {
        ip(&format!("link add {DATA_BRIDGE} type bridge"))?;
        ip(&format!("link set {DATA_BRIDGE} up"))?;
    }
    for host in hosts {
        ip(&format!("netns add {host}"))?;
        ip(&format!("-n {host} link set lo up"))?;
    }
    if direct {
        ip(&format!("link add {DATA_IFACE} netns {} type veth peer name {DATA_IFACE} netns {}", hosts[0], hosts[1]))?;
    }
    for (i, host) in hosts.iter().enumerate() {
        let number = i + 1;
        if !direct {
            ip(&format!("link add d{number} type veth peer name {DATA_IFACE} netns {host}"))?;
            ip(&format!("link set d{number} master {DATA_BRIDGE} up"))?;
        }
        ip(&format!("link add c{number} type veth peer name {CONTROL_IFACE} netns {host}"))?;
        ip(&format!("link set c{number} master {CONTROL_BRIDGE} up"))?;
        for (iface, net) in [(DATA_IFACE, "10.77.1"), (CONTROL_IFACE, "10.78.0")] {
            ip(&format!("-n {host} addr add {net}.{number}/24 dev {iface}"))?;
            ip(&format!("-n {host} link set {iface} up"))?;
        }
        if !wire.offload {
            ip(&format!("-n {host} link set {DATA_IFACE} gso_max_segs 1"))?;
        }
        if wire.loss > 0.0 {
            add_loss(host, wire.loss)?;
        }
    }
    Ok(())
}

fn add_loss(host: &str, loss: f64) -> Result<()> {
    let per_million = (loss * 1e6).round();
    let rules = format!(
        "table netdev weir {{\n counter seen {{ }}\n counter lost {{ }}\n chain in {{\n\
         type filter hook ingress device \"{DATA_IFACE}\" priority 0; policy accept;\n\
         ether type ip counter name seen\n\
         ether type ip numgen random mod 1000000 < {per_million} counter name lost drop\n }}\n}}\n"
    );
    let file = tempfile::NamedTempFile::new()?;
    fs::write(file.path(), rules)?;
    run_quiet(Command::new("ip").args(["netns", "exec", host, "nft", "-f"]).arg(file.path()))
        .context("losses on plain links need nft (Debian: apt-get install nftables)")
        .map(drop)
}

//! The command `weir emulate`.

use crate::control;
use crate::launch::{RunDir, base_dir, tell};
use crate::network::Network;
use crate::spec::{LinkSettings, NetworkSpec, PipeSettings, Spec};
use crate::supervise::{Running, Signals, supervise};
use crate::units;
use crate::{privilege, process};
use anyhow::{Context, bail};
use clap::{Args as ClapArgs, Subcommand};
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const EXAMPLES: &str = "\
Examples:
  Two hosts, 1 Gbit/s, 1 ms each way, 1 % loss each way; ping from the first to the second:
      weir emulate --hosts 2 --rate 1g --delay 1ms --loss 1% -- ping -c 5 host2
  Eight senders to one port with a queue of 64 packets:
      weir emulate --hosts 9 --rate 1g --queue 64p --stats -- ./incast.sh
  The same where switches mark (ECN), with what heeds it:
      weir emulate --hosts 9 --rate 1g --queue 64p --mark 20p --stats -- env WEIR_ECN=on ./incast.sh
  Eight hosts on one shared 10 Mbit/s Ethernet, preamble, checksum and gap counted:
      weir emulate --hosts 8 --bus --rate 10m --overhead 24 --queue 64p --stats -- ./shift.sh
  MPI over it, one rank a host:
      weir emulate --hosts 4 --loss 1% -- sh -c \\
        'mpiexec -launcher ssh -launcher-exec $WEIR_LAUNCH_AGENT -hosts $WEIR_HOSTS -ppn 1 ./prog'
  Two networks described in a file, one of them cut while the program runs:
      weir emulate --spec net.toml --name lab -- ./prog &
      weir emulate ctl lab cut host2 net1
      weir emulate ctl lab heal host2 net1
    where net.toml is, for example:
      hosts = 3
      [link]
      rate = \"1g\"
      [[network]]
      [[network]]
      link = { delay = \"2ms\", loss = \"1%\" }
  As fast as the kernel's veth, with 1 % of the packets dropped as they arrive:
      weir emulate --hosts 2 --plain --nft-loss 1% -- ./bench

The command runs inside the first host and finds WEIR_HOSTS, WEIR_HOSTFILE, \
WEIR_LAUNCH_AGENT and WEIR_NETWORKS in its environment. Rates, delays and faults \
hold from host to host: an RTT is twice --delay, and --loss applies once each way.";

/// Emulates a network of hosts and runs a command in it.
#[derive(Debug, ClapArgs)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    /// Describe the network by a TOML file, also its hosts and networks; the other flags below then
    /// override it
    #[arg(long, value_name = "FILE")]
    spec: Option<PathBuf>,
    /// Number of hosts
    #[arg(long, value_name = "N", conflicts_with = "spec")]
    hosts: Option<usize>,
    /// Number of parallel networks; each host has one interface on each
    #[arg(long, value_name = "N", conflicts_with = "spec")]
    networks: Option<usize>,
    /// Name for `ctl` and `exec`
    #[arg(long)]
    name: Option<String>,
    /// Seed of all randomness
    #[arg(long)]
    seed: Option<u64>,
    /// All hosts of a network share one half-duplex medium of the rate, as on a coaxial Ethernet
    /// (without --collisions): one frame at a time, the hosts in turn; --queue then is that of each
    /// host
    #[arg(long)]
    bus: bool,
    /// With --bus (here, or in the file): hosts collide and back off as on a half-duplex Ethernet
    /// (CSMA/CD), in no turns, and give a frame up after 16 attempts; needs --overhead 24
    #[arg(long)]
    collisions: bool,
    #[command(flatten)]
    link: LinkFlags,
    /// Largest IP packet in bytes
    #[arg(long, value_name = "BYTES")]
    mtu: Option<u32>,
    /// Join the hosts by the kernel alone: no rate, no delay, no fault, full speed
    #[arg(long)]
    plain: bool,
    /// With --plain: random loss of what hosts receive, which also switches offloads off
    #[arg(long, value_name = "P", value_parser = units::probability, requires = "plain")]
    nft_loss: Option<f64>,
    /// With --plain: offloads of host interfaces on or off
    #[arg(long, value_name = "on|off", value_parser = on_off, requires = "plain")]
    offload: Option<bool>,
    /// Add a perfect network `ctrl` for launchers; host names then resolve to it
    #[arg(long)]
    control: bool,
    /// Set a kernel parameter below net. in every host
    #[arg(long, value_name = "KEY=VALUE")]
    sysctl: Vec<String>,
    /// Do not ask for real-time priority
    #[arg(long)]
    no_realtime: bool,
    /// Where the command runs: a host's name, or `outside`
    #[arg(long, value_name = "HOST", default_value = "")]
    at: String,
    /// Print counters to standard error at the end
    #[arg(long)]
    stats: bool,
    /// Print counters as JSON to standard error at the end
    #[arg(long)]
    json: bool,
    /// Write counters as JSON to a file at the end
    #[arg(long, value_name = "FILE")]
    stats_file: Option<PathBuf>,
    /// The command; without one the network stays up until Ctrl-C or `ctl NAME stop`
    #[arg(last = true)]
    command: Vec<OsString>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Talk to a running network: cut, heal, set, stats, info, stop
    #[command(
        after_help = "Examples:\n  weir emulate ctl lab cut host2 net1\n  weir emulate ctl lab heal host2 net1\n  \
        weir emulate ctl lab set host1 net1 down loss=2% delay=5ms\n  weir emulate ctl lab stats\n\n\
        Requests:\n  cut HOST NETWORK [up|down]\n  heal HOST NETWORK [up|down]\n  \
        set HOST NETWORK [up|down|both] KEY=VALUE...   (keys as in the spec: loss=2%, delay=5ms, rate=100m, ...)\n  \
        stats\n  info\n  stop   (the command with its process group, and all that runs inside the hosts: SIGTERM, 5 s later SIGKILL)"
    )]
    Ctl {
        /// The network's name
        name: String,
        /// The request
        #[arg(required = true, trailing_var_arg = true)]
        request: Vec<String>,
    },
    /// Run a command inside a host of a running network
    #[command(
        after_help = "Examples:\n  weir emulate exec lab host2 ip address\n  weir emulate exec lab host1 ping -c 3 host2\n  \
        weir emulate exec lab host1 sh"
    )]
    Exec {
        /// The network's name
        name: String,
        /// The host
        host: String,
        /// The command
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// List the running networks
    #[command(after_help = "Examples:\n  weir emulate list\n  weir emulate list --json\n\n\
        With --json the answer is {\"networks\": [...]}; of each network what `ctl NAME info` tells:\n  \
        name, pid      its name, and the emulator's process\n  \
        hosts          the hosts' names\n  \
        networks       the names of its networks, which are those of the interfaces\n  \
        plain          joined by the kernel alone\n  \
        elapsed_s      seconds since it began\n  \
        environment    the variables that its command finds\n\
        A network that does not answer has name and error instead.")]
    List {
        /// Answer with one JSON document that tells of each network its hosts, networks, process
        /// and more
        #[arg(long)]
        json: bool,
    },
}

/// Settings of all links.
#[derive(Debug, ClapArgs)]
struct LinkFlags {
    /// Rate of each interface, both directions, such as 100m or 1g; of the medium with --bus
    #[arg(long, allow_hyphen_values = true)]
    rate: Option<String>,
    /// One-way delay from host to host, such as 50us or 1ms
    #[arg(long, allow_hyphen_values = true)]
    delay: Option<String>,
    /// Extra delay, uniform from 0 to this, keeping the order
    #[arg(long, allow_hyphen_values = true)]
    jitter: Option<String>,
    /// Loss probability each way, such as 1%
    #[arg(long, allow_hyphen_values = true)]
    loss: Option<String>,
    /// Mean number of packets lost together: makes --loss a Gilbert-Elliott process
    #[arg(long, value_name = "PACKETS", requires = "loss", allow_hyphen_values = true)]
    burst: Option<String>,
    /// Queue limit of each switch output port (with --bus: of each host), such as 64p, 100kB or
    /// both as 64p,100kB
    #[arg(long, allow_hyphen_values = true)]
    queue: Option<String>,
    /// What waits at such a port when it marks ECN-capable packets, such as 20p or 30kB
    #[arg(long, value_name = "LIMIT", allow_hyphen_values = true)]
    mark: Option<String>,
    /// Probability that a packet arrives twice
    #[arg(long, allow_hyphen_values = true)]
    duplicate: Option<String>,
    /// Probability that a packet is held back so that others overtake it
    #[arg(long, allow_hyphen_values = true)]
    reorder: Option<String>,
    /// How long such a packet is held back (default 1ms)
    #[arg(long, allow_hyphen_values = true)]
    reorder_hold: Option<String>,
    /// Probability of a flipped bit
    #[arg(long, allow_hyphen_values = true)]
    corrupt: Option<String>,
    /// Probability of damage that the Internet checksum does not see
    #[arg(long, allow_hyphen_values = true)]
    corrupt_hidden: Option<String>,
    /// Bytes added to each packet's length when its transmission time is computed
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    overhead: Option<String>,
}

impl LinkFlags {
    fn settings(&self) -> anyhow::Result<PipeSettings> {
        let flags = [
            ("rate", &self.rate),
            ("delay", &self.delay),
            ("jitter", &self.jitter),
            ("loss", &self.loss),
            ("burst", &self.burst),
            ("queue", &self.queue),
            ("mark", &self.mark),
            ("duplicate", &self.duplicate),
            ("reorder", &self.reorder),
            ("reorder_hold", &self.reorder_hold),
            ("corrupt", &self.corrupt),
            ("corrupt_hidden", &self.corrupt_hidden),
            ("overhead", &self.overhead),
        ];
        let words: Vec<_> =
            flags.iter().filter_map(|(key, value)| value.as_ref().map(|v| format!("{key}={v}"))).collect();
        PipeSettings::from_words(words.iter().map(String::as_str)).map_err(anyhow::Error::msg)
    }
}

fn on_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("write on or off".into()),
    }
}

/// A number of things, before so many are made.
fn within(things: &str, count: usize, most: usize) -> anyhow::Result<usize> {
    if !(1..=most).contains(&count) {
        bail!("{count} {things}; from 1 to {most} are possible");
    }
    Ok(count)
}

impl Args {
    fn into_spec(self) -> anyhow::Result<(Spec, Job)> {
        let mut spec = match (&self.spec, self.hosts) {
            (Some(path), _) => Spec::from_file(path)?,
            (None, Some(hosts)) => Spec::star(within("hosts", hosts, crate::spec::MAX_HOSTS)?),
            (None, None) => bail!("say how many hosts (--hosts N) or describe the network (--spec FILE); see --help"),
        };
        if let Some(networks) = self.networks {
            let networks = within("networks", networks, crate::spec::MAX_NETWORKS)?;
            spec.networks = (1..=networks).map(|i| NetworkSpec::new(&format!("net{i}"))).collect();
        }
        let flat = self.link.settings()?;
        let flags = LinkSettings { flat, ..LinkSettings::default() };
        spec.overlays.push(flags);
        for network in &mut spec.networks {
            network.mtu = self.mtu.unwrap_or(network.mtu);
            network.bus |= self.bus;
            network.collisions |= self.collisions;
        }
        for word in &self.sysctl {
            let (key, value) = word.split_once('=').with_context(|| format!("--sysctl {word}: write KEY=VALUE"))?;
            spec.sysctl.insert(key.into(), value.into());
        }
        spec.name = self.name.or(spec.name);
        spec.seed = self.seed.unwrap_or(spec.seed);
        spec.plain |= self.plain;
        spec.nft_loss = self.nft_loss.or(spec.nft_loss);
        spec.offload = self.offload.or(spec.offload);
        spec.control |= self.control;
        spec.realtime &= !self.no_realtime;
        spec.check()?;
        let job = Job {
            at: if self.at.is_empty() { spec.hosts[0].clone() } else { self.at },
            stats: self.stats,
            json: self.json,
            stats_file: self.stats_file,
            command: self.command,
        };
        Ok((spec, job))
    }
}

/// What to do with a network.
struct Job {
    at: String,
    stats: bool,
    json: bool,
    stats_file: Option<PathBuf>,
    command: Vec<OsString>,
}

/// Exit code for an emulator that failed itself, as of env(1), nohup(1) and timeout(1).
pub const EXIT_FAILED: u8 = 125;
/// Exit codes for a command that cannot be started, and for one that is not there.
const EXIT_NOT_STARTED: u8 = 126;
const EXIT_NOT_FOUND: u8 = 127;

/// The exit code that tells this failure.
#[must_use]
pub fn exit_code_of(error: &anyhow::Error) -> u8 {
    match error.downcast_ref::<NotStarted>() {
        Some(NotStarted(cause)) if cause.kind() == std::io::ErrorKind::NotFound => EXIT_NOT_FOUND,
        Some(_) => EXIT_NOT_STARTED,
        None => EXIT_FAILED,
    }
}

/// The command could not be started, and why.
#[derive(Debug, thiserror::Error)]
#[error("cannot start the command")]
struct NotStarted(#[source] std::io::Error);

/// Prints a line, or says why it cannot.
fn say(line: &str) -> anyhow::Result<()> {
    match writeln!(std::io::stdout(), "{line}") {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => process::reader_is_gone(),
        done => done.context("standard output"),
    }
}

/// Runs the command line and returns the exit code: that of the command, or 128 plus the signal
/// that ended it. Call it from a process with a single thread, so that it can enter a user
/// namespace if it has to.
pub fn run(args: Args) -> anyhow::Result<u8> {
    match args.action {
        Some(Action::Ctl { name, request }) => {
            let reply = control::request(&name, &request)?;
            if reply.as_object().is_some_and(|o| !o.is_empty()) {
                say(&serde_json::to_string_pretty(&reply)?)?;
            }
            Ok(0)
        }
        Some(Action::Exec { name, host, command }) => exec(&name, &host, &command),
        Some(Action::List { json: true }) => {
            let all: Vec<_> = running().iter().map(|name| about(name)).collect();
            say(&serde_json::json!({ "networks": all }).to_string())?;
            Ok(0)
        }
        Some(Action::List { json: false }) => {
            for name in running() {
                say(&name)?;
            }
            Ok(0)
        }
        None => {
            let (spec, job) = args.into_spec()?;
            emulate(&spec, &job)
        }
    }
}

/// The names of this user's running networks.
fn running() -> Vec<String> {
    let entries = std::fs::read_dir(base_dir()).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.filter_map(|e| e.file_name().into_string().ok()).collect();
    names.retain(|name| RunDir::of(name).is_live());
    names.sort();
    names
}

/// What a running network says of itself; of one that does not answer its name and why.
fn about(name: &str) -> serde_json::Value {
    control::request(name, &["info".to_owned()])
        .unwrap_or_else(|error| serde_json::json!({ "name": name, "error": error.to_string() }))
}

fn exec(name: &str, host: &str, command: &[String]) -> anyhow::Result<u8> {
    let dir = RunDir::of(name);
    if !dir.is_live() {
        bail!("no network named '{name}' is running; see: weir emulate list");
    }
    // The agent, like ssh, gives its words to a shell: quote them. The shell is to become the
    // command: who ends this process means that one.
    let quoted = command.iter().map(|word| format!("'{}'", word.replace('\'', "'\\''")));
    let mut agent = Command::new(dir.agent());
    let info = control::request(name, &["info".to_owned()])?;
    let hosts: Vec<&str> = info["hosts"].as_array().into_iter().flatten().filter_map(|one| one.as_str()).collect();
    if !hosts.contains(&host) {
        bail!("there is no host '{host}' in '{name}'; the hosts are {}", hosts.join(", "));
    }
    let environment = info["environment"].as_object().into_iter().flatten();
    tell(&mut agent, environment.map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned())));
    Err(agent.arg(host).arg("exec").args(quoted).exec()).context("start the launch agent")
}

fn emulate(spec: &Spec, job: &Job) -> anyhow::Result<u8> {
    privilege::acquire()?;
    if let Some(path) = &job.stats_file {
        can_be_written(path)?;
    }
    let mut signals = Signals::block(!job.command.is_empty())?;
    let network = Network::start(spec)?;
    for warning in network.warnings() {
        weir_put::tell!("weir emulate: warning: {warning}");
    }
    let code = if job.command.is_empty() {
        weir_put::tell!("weir emulate: {} is up: {}", network.name(), spec.hosts.join(" "));
        weir_put::tell!("weir emulate: try: weir emulate exec {} {} sh", network.name(), spec.hosts[0]);
        supervise(&network, None, &mut signals)?
    } else {
        let running = start(&network, job)?;
        supervise(&network, Some(running), &mut signals)?
    };
    match report(&network, job) {
        // The command's failure is the one to tell; that its counters are lost is said beside it.
        Err(error) if code != 0 => weir_put::tell!("weir emulate: {error:#}"),
        other => other?,
    }
    Ok(code)
}

/// Refuses a file that the counters cannot go to, before the command has run for them. Nothing is
/// written yet; a pipe or a device, which opening may block or change, is left to the end.
fn can_be_written(path: &Path) -> anyhow::Result<()> {
    if path.metadata().is_ok_and(|meta| !meta.is_file() && !meta.is_dir()) {
        return Ok(());
    }
    let said = || format!("--stats-file {}", path.display());
    let is_there = path.symlink_metadata().is_ok();
    weir_put::looks_writable(path).with_context(said)?;
    if path.exists() || !is_there {
        std::fs::OpenOptions::new().append(true).create(true).open(path).with_context(said)?;
    }
    // What fails before the command starts leaves no empty file behind.
    if is_there { Ok(()) } else { std::fs::remove_file(path).with_context(said) }
}

fn start(network: &Network, job: &Job) -> anyhow::Result<Running> {
    let (program, arguments) = job.command.split_first().context("no command")?;
    let mut command = if job.at == "outside" {
        let mut command = Command::new(program);
        command.envs(network.environment());
        command
    } else {
        network.host(network.spec().host_index(&job.at)?)?.command(program)
    };
    command.args(arguments);
    Running::start(command)
        .map_err(|cause| anyhow::Error::new(NotStarted(cause)).context(program.to_string_lossy().into_owned()))
}

fn report(network: &Network, job: &Job) -> anyhow::Result<()> {
    let stats = network.stats()?;
    if job.stats {
        weir_put::told(&stats.to_string());
    }
    if job.json {
        weir_put::tell!("{}", serde_json::to_string(&stats)?);
    }
    if let Some(path) = &job.stats_file {
        let text = serde_json::to_string_pretty(&stats)?;
        std::fs::write(path, text + "\n").with_context(|| format!("write {}", path.display()))?;
    }
    if !job.stats && (stats.overrun > 0 || stats.no_memory > 0) {
        weir_put::tell!(
            "weir emulate: warning: {} packets were lost by the emulator itself",
            stats.overrun + stats.no_memory
        );
    }
    Ok(())
}

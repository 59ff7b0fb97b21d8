//! A running network: the programmatic interface.

use crate::build::{self, Built};
use crate::control;
use crate::error::{Context, Error, Result};
use crate::launch::{self, Guard, RunDir};
use crate::link;
use crate::namespace::Namespace;
use crate::netlink::Netlink;
use crate::nft;
use crate::plane::{Change, Command as PlaneCommand, NewRate};
use crate::spec::{Action, Direction, Spec};
use crate::stats::{LinkStats, PlaneStats, Stats};
use crate::summary::MOST_TOLD;
use nix::sys::eventfd::EventFd;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::net::Ipv4Addr;
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A host's sockets for questions to its kernel, and the numbers of its interfaces by network.
#[derive(Debug)]
pub(crate) struct HostLinks {
    pub route: Netlink,
    /// What loses packets on networks with `nft_loss`.
    pub loss: Loss,
    pub interfaces: Vec<u32>,
}

/// What loses packets that a host receives.
#[derive(Debug)]
pub(crate) enum Loss {
    None,
    /// Programs in the kernel, one for each network, in front of all that take packets.
    Programs(Vec<weir_xdp::Loss>),
    /// nftables, in user namespaces, whose root may load no programs; nobody else takes packets
    /// there either.
    Nftables(Netlink),
}

/// The way to the data plane.
#[derive(Debug)]
pub(crate) struct PlaneDoor {
    pub commands: Mutex<Sender<PlaneCommand>>,
    pub wake: Arc<EventFd>,
}

impl PlaneDoor {
    fn send(&self, command: PlaneCommand) -> Result<()> {
        let sent = lock(&self.commands).send(command);
        let _ = self.wake.write(1);
        sent.map_err(|_| Error::Request("the data plane has ended".into()))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the control thread and the owner of the network share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub name: String,
    pub spec: Spec,
    pub dir: RunDir,
    pub links: Vec<Mutex<HostLinks>>,
    /// Absent on plain networks.
    pub door: Option<PlaneDoor>,
    pub started: Instant,
    pub stop: AtomicBool,
    /// What was changed by the control socket, oldest first; the last ones.
    pub changes: Mutex<Vec<String>>,
}

impl Shared {
    pub(crate) fn change(&self, host: &str, network: &str, direction: Direction, action: Action) -> Result<()> {
        let (host, network) = (self.spec.host_index(host)?, self.spec.network_index(network)?);
        let Some(door) = &self.door else {
            return Err(Error::Request("a plain network has no user-space switch, so links cannot be changed".into()));
        };
        self.spec.check_change(network, direction, &action).map_err(Error::Request)?;
        let port = build::port(&self.spec, network, host);
        for (direction, action) in self.spec.directed(network, direction, action) {
            door.send(PlaneCommand::Change(Change { port, direction, action }))?;
        }
        // The answer to a question asked now comes after the change was made.
        self.ask(door).map(drop)
    }

    /// Remembers a change that was asked for by these words.
    pub(crate) fn note_change(&self, words: &[&str]) {
        const MOST_LETTERS: usize = 200;
        let mut changes = lock(&self.changes);
        if changes.len() == MOST_TOLD {
            changes.remove(0);
        }
        changes.push(words.join(" ").chars().take(MOST_LETTERS).collect());
    }

    fn environment(&self) -> Vec<(String, String)> {
        self.dir.environment(&self.spec, &self.name, &lock(&self.changes))
    }

    fn host_environment(&self) -> Vec<(String, String)> {
        self.dir.host_environment(&self.spec, &self.name, &lock(&self.changes))
    }

    /// Lets `work` change something of a host's interface in its kernel.
    fn in_kernel(
        &self,
        host: &str,
        network: &str,
        what: &str,
        work: impl FnOnce(&mut Netlink, u32) -> std::io::Result<()>,
    ) -> Result<()> {
        let (index, number) = (self.spec.host_index(host)?, self.spec.network_index(network)?);
        let mut kernel = lock(&self.links[index]);
        let interface = kernel.interfaces[number];
        work(&mut kernel.route, interface).context(|| format!("set the {what} of {network} on {host}"))
    }

    fn ask(&self, door: &PlaneDoor) -> Result<PlaneStats> {
        let (reply, answer) = channel();
        door.send(PlaneCommand::Stats(reply))?;
        answer.recv_timeout(Duration::from_secs(5)).map_err(|_| Error::Request("the data plane does not answer".into()))
    }

    pub(crate) fn stats(&self) -> Result<Stats> {
        let plane = self.door.as_ref().map(|door| self.ask(door)).transpose()?;
        let pipes = plane.as_ref().map(|p| p.pipes.clone());
        let plane = plane.unwrap_or_default();
        let mut links = Vec::new();
        for (network, spec) in self.spec.networks.iter().enumerate() {
            for (host, name) in self.spec.hosts.iter().enumerate() {
                let mut kernel = lock(&self.links[host]);
                let interface = kernel.interfaces[network];
                let count = link::counters(&mut kernel.route, interface).context(|| "read interface counters")?;
                let nft_dropped = match &mut kernel.loss {
                    Loss::None => None,
                    Loss::Programs(all) => Some(all[network].dropped()),
                    Loss::Nftables(socket) => {
                        Some(nft::dropped(socket, &spec.name).context(|| "read nftables counters")?)
                    }
                };
                let pipe = pipes.as_ref().and_then(|p| p.get(build::port(&self.spec, network, host)));
                links.push(LinkStats {
                    host: name.clone(),
                    network: spec.name.clone(),
                    up: pipe.map(|p| p.0),
                    down: pipe.map(|p| p.1),
                    interface_tx_packets: count.tx_packets,
                    interface_rx_packets: count.rx_packets,
                    interface_dropped: count.rx_dropped + count.tx_dropped,
                    nft_dropped,
                });
            }
        }
        Ok(Stats {
            name: self.name.clone(),
            elapsed_s: self.started.elapsed().as_secs_f64(),
            links,
            unreachable: plane.unreachable,
            overrun: plane.overrun,
            oversize: plane.oversize,
            no_memory: plane.no_memory,
            refused: plane.refused,
            late_us: plane.late_us,
            cpu_s: plane.cpu_s,
        })
    }

    pub(crate) fn info(&self) -> Value {
        let environment: serde_json::Map<_, _> =
            self.host_environment().into_iter().map(|(k, v)| (k, Value::from(v))).collect();
        json!({
            "name": self.name,
            "pid": std::process::id(),
            "hosts": self.spec.hosts,
            "networks": self.spec.networks.iter().map(|n| &n.name).collect::<Vec<_>>(),
            "plain": self.spec.plain,
            "elapsed_s": self.started.elapsed().as_secs_f64(),
            "environment": environment,
        })
    }

    pub(crate) fn request_stop(&self) {
        self.stop.store(true, Ordering::Release);
    }
}

/// A running emulated network. Dropping it kills what still runs inside its hosts and removes every
/// trace.
#[derive(Debug)]
pub struct Network {
    shared: Arc<Shared>,
    hosts: Vec<Arc<Namespace>>,
    plane: Option<JoinHandle<()>>,
    control: Option<JoinHandle<()>>,
    control_stop: Arc<EventFd>,
    /// Kept for the interfaces in them.
    _inside: Vec<Namespace>,
    warnings: Vec<String>,
    /// Last: it cleans up after everything else has ended.
    guard: Option<Guard>,
}

impl Network {
    /// Starts a network. The process needs the right to make namespaces: see
    /// [`crate::privilege::acquire`].
    pub fn start(spec: &Spec) -> Result<Self> {
        use std::sync::atomic::AtomicU32;
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        spec.check()?;
        let name = spec.name.clone().unwrap_or_else(|| match SERIAL.fetch_add(1, Ordering::Relaxed) {
            0 => format!("net-{}", std::process::id()),
            serial => format!("net-{}-{serial}", std::process::id()),
        });
        let dir = RunDir::make(&name)?;
        let made = Self::start_in(spec, name, &dir);
        if made.is_err() {
            let _ = std::fs::remove_dir_all(&dir.path);
        }
        made
    }

    fn start_in(spec: &Spec, name: String, dir: &RunDir) -> Result<Self> {
        dir.write_names(spec)?;
        let Built { hosts, links, plane, inside, warnings } = build::build(spec, dir)?;
        dir.write_agent(spec, &hosts)?;
        let guard = Guard::start(dir, &hosts)?;
        let listener = UnixListener::bind(dir.socket()).context(|| "open the control socket")?;
        listener.set_nonblocking(true).context(|| "open the control socket")?;
        let (door, plane, rates) = match plane {
            None => (None, None, None),
            Some(started) => (Some(started.door), Some(started.thread), Some(started.rates)),
        };
        let links = links.into_iter().map(Mutex::new).collect();
        let shared = Arc::new(Shared {
            name,
            spec: spec.clone(),
            dir: dir.clone(),
            links,
            door,
            started: Instant::now(),
            stop: AtomicBool::new(false),
            changes: Mutex::default(),
        });
        let control_stop = Arc::new(EventFd::new().context(|| "make an eventfd")?);
        let mut network = Network {
            shared,
            hosts,
            plane,
            control: None,
            control_stop,
            _inside: inside,
            warnings,
            guard: Some(guard),
        };
        network.start_threads(listener, rates)?;
        Ok(network)
    }

    fn start_threads(&mut self, listener: UnixListener, rates: Option<Receiver<NewRate>>) -> Result<()> {
        let (shared, stop) = (Arc::clone(&self.shared), Arc::clone(&self.control_stop));
        let thread = std::thread::Builder::new().name("emulate-control".into());
        let control = thread.spawn(move || control::serve(&listener, &shared, &stop));
        self.control = Some(control.context(|| "start the control thread")?);
        if let Some(rates) = rates {
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new().name("emulate-shape".into());
            // Ends when the data plane, which holds the other end of the channel, does.
            thread.spawn(move || follow_rates(&shared, &rates)).context(|| "start the shaping thread")?;
        }
        Ok(())
    }

    /// The network's name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The spec it was started with.
    pub fn spec(&self) -> &Spec {
        &self.shared.spec
    }

    /// What could not be set up but can be lived without.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The host with this index.
    pub fn host(&self, index: usize) -> Result<Host<'_>> {
        match self.hosts.get(index) {
            Some(namespace) => Ok(Host { network: self, namespace, index }),
            None => Err(Error::Request(format!("there is no host {index}; there are {}", self.hosts.len()))),
        }
    }

    /// The variables that tell a program about the network: `WEIR_HOSTS`, `WEIR_HOSTFILE`,
    /// `WEIR_LAUNCH_AGENT`, ...
    pub fn environment(&self) -> Vec<(String, String)> {
        self.shared.environment()
    }

    /// Cuts a link: nothing passes, what is in flight is lost. The host's interface does not
    /// notice.
    pub fn cut(&self, host: &str, network: &str) -> Result<()> {
        self.shared.change(host, network, Direction::Both, Action::Cut)
    }

    /// Heals a link.
    pub fn heal(&self, host: &str, network: &str) -> Result<()> {
        self.shared.change(host, network, Direction::Both, Action::Heal)
    }

    /// Changes a link; when this returns the change is in force.
    pub fn change(&self, host: &str, network: &str, direction: Direction, action: Action) -> Result<()> {
        self.shared.change(host, network, direction, action)
    }

    /// Sets the longest packet that a host's interface takes. What arrives longer is dropped, and
    /// nobody is told.
    pub fn set_mtu(&self, host: &str, network: &str, mtu_bytes: u32) -> Result<()> {
        self.shared.in_kernel(host, network, "MTU", |netlink, interface| link::set_mtu(netlink, interface, mtu_bytes))
    }

    /// Switches a host's interface off, as when its cable is pulled: it loses its routes, and on a
    /// plain network of two hosts the other end its carrier.
    pub fn pull(&self, host: &str, network: &str) -> Result<()> {
        self.shared.in_kernel(host, network, "state", link::set_down)
    }

    /// Takes a host's IPv4 address on a network away.
    pub fn take_address(&self, host: &str, network: &str) -> Result<()> {
        let spec = &self.shared.spec;
        let own = spec.ipv4(spec.network_index(network)?, spec.host_index(host)?);
        self.shared.in_kernel(host, network, "address", |netlink, interface| {
            link::take_address(netlink, interface, own.into(), link::PREFIX_BITS)
        })
    }

    /// Drops all that a host receives on a network from now on, and tells nobody. Its interface
    /// does not notice. (On a plain network too; else see [`Network::cut`].)
    pub fn mute(&self, host: &str, network: &str) -> Result<()> {
        self.shared.spec.network_index(network)?;
        self.host(self.shared.spec.host_index(host)?)?
            .run(|| Netlink::netfilter().and_then(|mut netlink| nft::drop_received(&mut netlink, network, 1.0)))?
            .context(|| format!("drop what {host} receives on {network}"))
    }

    /// Sets the kernel's congestion control for TCP connections that a host makes over a network,
    /// or none: then a socket has the one it chose, or the system's default. It is set on the
    /// route, which goes before both: a namespace may not choose every algorithm as its default,
    /// since the kernel counts some as restricted. `rto_min`: these connections' least
    /// retransmission timeout, in whole milliseconds; none: the system's, 200 ms.
    pub fn set_congestion(
        &self,
        host: &str,
        network: &str,
        algorithm: Option<&str>,
        rto_min: Option<Duration>,
    ) -> Result<()> {
        let spec = &self.shared.spec;
        let own = spec.ipv4(spec.network_index(network)?, spec.host_index(host)?);
        let what = algorithm.map_or("congestion control".to_owned(), |name| format!("congestion control {name}"));
        self.shared.in_kernel(host, network, &what, |netlink, interface| {
            link::set_congestion(netlink, interface, own, algorithm, rto_min)
        })
    }

    /// The counters so far.
    pub fn stats(&self) -> Result<Stats> {
        self.shared.stats()
    }

    /// True once somebody asked over the control socket that the network end.
    pub fn stop_requested(&self) -> bool {
        self.shared.stop.load(Ordering::Acquire)
    }

    /// Whether a process is inside one of the hosts.
    pub(crate) fn holds(&self, pid: i32) -> bool {
        use std::os::unix::fs::MetadataExt;
        let space = std::fs::metadata(format!("/proc/{pid}/ns/net")).map(|space| space.ino());
        space.is_ok_and(|space| self.hosts.iter().any(|host| host.net_inode().is_ok_and(|own| own == space)))
    }

    /// The data plane has ended although nobody told it to: it must have failed.
    pub fn failed(&self) -> bool {
        self.plane.as_ref().is_some_and(JoinHandle::is_finished)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = self.control_stop.write(1);
        if let Some(control) = self.control.take() {
            let _ = control.join();
        }
        if let Some(door) = &self.shared.door {
            let _ = door.send(PlaneCommand::Stop);
        }
        if let Some(plane) = self.plane.take() {
            let _ = plane.join();
        }
        drop(self.guard.take());
    }
}

/// Keeps the kernel's shapers at the rates of the uplinks.
fn follow_rates(shared: &Shared, rates: &Receiver<NewRate>) {
    while let Ok(rate) = rates.recv() {
        let (network, host) = (rate.port / shared.spec.hosts.len(), rate.port % shared.spec.hosts.len());
        let mut kernel = lock(&shared.links[host]);
        let interface = kernel.interfaces[network];
        let mtu = shared.spec.networks[network].mtu;
        // Without the shaper the uplink's own queue still holds the rate.
        if rate.uplink.rate_bytes_per_s > 0 {
            let _ = link::shape(&mut kernel.route, interface, &rate.uplink, mtu);
        }
    }
}

/// One host of a running network.
#[derive(Clone, Copy, Debug)]
pub struct Host<'a> {
    network: &'a Network,
    namespace: &'a Arc<Namespace>,
    index: usize,
}

impl Host<'_> {
    /// The host's name.
    pub fn name(&self) -> &str {
        &self.network.spec().hosts[self.index]
    }

    /// The host's address on a network.
    pub fn ipv4(&self, network: &str) -> Result<Ipv4Addr> {
        let spec = self.network.spec();
        Ok(spec.ipv4(spec.network_index(network)?, self.index))
    }

    /// A command that will run inside the host, with the variables of [`Network::environment`] and,
    /// beside a control network, what keeps launchers on it.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        launch::tell(&mut command, self.network.shared.host_environment());
        self.namespace.enter(&mut command);
        command
    }

    /// Runs a function on a new thread inside the host's network namespace, for example to open
    /// sockets there.
    pub fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> Result<R> {
        self.namespace.run(work)
    }
}

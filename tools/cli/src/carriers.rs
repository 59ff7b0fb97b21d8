//! What can carry messages on this machine: shared memory, packets, bulk TCP connections; found by
//! trying.

use std::collections::hash_map::RandomState;
use std::fmt::Display;
use std::hash::BuildHasher;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use weir_engine::{CarrierUse, EngineConfig, XdpUse, shares_memory, takes_bulk, xdp};
use weir_job::Env;
use weir_shm::{Config, Event, NoPull, Shm, Why};

use crate::settings;

/// All of them.
#[derive(Clone, Debug, Serialize)]
pub struct Carriers {
    /// Between processes of this host and user.
    pub shared_memory: SharedMemory,
    /// To everybody.
    pub udp: Udp,
    /// Beside packets, for what is long.
    pub bulk_tcp: BulkTcp,
    /// Beside the UDP socket.
    pub xdp: Xdp,
    /// In the place of packets, where it is asked for.
    pub sctp: Sctp,
}

/// What two processes of this user found when they tried to share memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedMemory {
    /// They could.
    pub usable: bool,
    /// One could read the other's memory: large messages are copied once.
    pub single_copy: bool,
    /// Why not, if either is so.
    pub why: Option<String>,
    /// The command that mends it.
    pub fix: Option<String>,
    /// Why endpoints share none although they could: a setting.
    pub left_out: Option<String>,
}

/// What the kernel does for packets.
#[derive(Clone, Debug, Serialize)]
pub struct Udp {
    /// A socket can be had.
    pub usable: bool,
    /// It cuts what is sent into packets.
    pub gso: bool,
    /// It joins packets that came.
    pub gro: bool,
    /// Why there is no socket.
    pub why: Option<String>,
}

/// The way past the kernel's UDP.
#[derive(Clone, Debug, Serialize)]
pub struct Xdp {
    /// The settings let endpoints use it.
    pub wanted: bool,
    /// They ask for it, or a helper is there that does not answer, for which each rank waits: where
    /// it cannot be had that is worth a warning.
    #[serde(skip)]
    pub asked: bool,
    /// An endpoint would have it now: interface and queue.
    pub place: Option<String>,
    /// Why not.
    pub why: Option<String>,
    /// No helper listens.
    #[serde(skip)]
    pub nobody: bool,
}

/// SCTP by the library usrsctp.
#[derive(Clone, Debug, Serialize)]
pub struct Sctp {
    /// The settings ask for it.
    pub wanted: bool,
    /// The library is there.
    pub usable: bool,
    /// Why not.
    pub why: Option<String>,
}

/// TCP connections for large messages.
#[derive(Clone, Debug, Serialize)]
pub struct BulkTcp {
    /// The settings let endpoints use them.
    pub usable: bool,
    /// Which does not.
    pub why: Option<String>,
}

/// Tries them all.
pub fn find(env: &Env) -> Carriers {
    // A setting that cannot be understood is told of where they are looked at.
    let config = settings::understood(env).unwrap_or_default();
    let mut shared_memory = try_shared_memory();
    if !shares_memory(&config) {
        shared_memory.left_out = Some(without_memory(env, &config));
    }
    Carriers {
        shared_memory,
        udp: try_udp(),
        bulk_tcp: bulk_tcp(env, &config),
        xdp: try_xdp(env, &config),
        sctp: try_sctp(&config),
    }
}

/// Whether the kernel takes the socket options for cutting and for joining UDP packets.
fn try_udp() -> Udp {
    use nix::sys::socket::{setsockopt, sockopt};
    // A host may have one of the two protocols only.
    match std::net::UdpSocket::bind("127.0.0.1:0").or_else(|e| std::net::UdpSocket::bind("[::1]:0").map_err(|_| e)) {
        Ok(socket) => Udp {
            usable: true,
            gso: setsockopt(&socket, sockopt::UdpGsoSegment, &1200).is_ok(),
            gro: setsockopt(&socket, sockopt::UdpGroSegment, &true).is_ok(),
            why: None,
        },
        Err(error) => Udp { usable: false, gso: false, gro: false, why: Some(error.to_string()) },
    }
}

/// Asks for a socket as an endpoint would, and gives it back. Where none is wanted nothing is
/// asked.
fn try_xdp(env: &Env, config: &EngineConfig) -> Xdp {
    if config.xdp == XdpUse::Off {
        let name = settings::set_as(env, "WEIR_XDP");
        let why = format!("{name} is off, so all packets come by UDP");
        return Xdp { wanted: false, asked: false, place: None, why: Some(why), nobody: false };
    }
    let asked = config.xdp == XdpUse::On;
    match xdp::would_have(config) {
        Ok(place) => Xdp { wanted: true, asked, place: Some(place), why: None, nobody: false },
        Err(why) => {
            let (asked, nobody) = (asked || why.stuck, why.nobody_listens);
            Xdp { wanted: true, asked, place: None, nobody, why: Some(why.text) }
        }
    }
}

/// Looks for the library.
fn try_sctp(config: &EngineConfig) -> Sctp {
    let found = weir_engine::sctp_available();
    let wanted = config.carrier == CarrierUse::Sctp;
    Sctp { wanted, usable: found.is_ok(), why: found.err().map(|why| why.to_string()) }
}

/// Which setting keeps endpoints from sharing memory.
fn without_memory(env: &Env, config: &EngineConfig) -> String {
    let name = match (&config.capture, &config.faults) {
        _ if settings::value(env, "WEIR_CARRIER").is_some() => "WEIR_CARRIER",
        (Some(_), _) => "WEIR_CAPTURE",
        (_, Some(_)) => "WEIR_FAULTS",
        _ => "WEIR_CARRIER",
    };
    format!("{} is set", settings::set_as(env, name))
}

fn bulk_tcp(env: &Env, config: &EngineConfig) -> BulkTcp {
    if takes_bulk(config) {
        return BulkTcp { usable: true, why: None };
    }
    let name =
        ["WEIR_LEVEL", "WEIR_BULK", "WEIR_CARRIER"].into_iter().find(|name| settings::value(env, name).is_some());
    let name = settings::set_as(env, name.unwrap_or("WEIR_BULK"));
    BulkTcp { usable: false, why: Some(format!("{name} is set")) }
}

impl SharedMemory {
    fn none(why: impl Display) -> Self {
        Self { why: Some(why.to_string()), ..Self::default() }
    }

    /// One line for people.
    pub fn describe(&self) -> String {
        let why = self.why.as_deref().unwrap_or("for no known reason");
        let text = match (self.usable, self.single_copy) {
            (true, true) => "usable; large messages are copied once, from the sender's memory".to_owned(),
            (true, false) => format!("usable; large messages are copied twice: {why}"),
            (false, _) => format!("not usable: {why}"),
        };
        match &self.left_out {
            Some(setting) => format!("{text}; not used by endpoints: {setting}"),
            None => text,
        }
    }
}

impl Udp {
    /// One line for people.
    pub fn describe(&self) -> String {
        match (self.usable, self.gso, self.gro) {
            (false, ..) => format!("not usable: {}", self.why.as_deref().unwrap_or("no socket")),
            (true, true, true) => "usable; the kernel cuts and joins packets (GSO and GRO)".into(),
            (true, true, false) => "usable; the kernel cuts packets (GSO), but joins none (GRO)".into(),
            (true, false, true) => "usable; the kernel joins packets (GRO), but cuts none (GSO)".into(),
            (true, false, false) => "usable; the kernel neither cuts nor joins packets (GSO, GRO)".into(),
        }
    }
}

impl Xdp {
    /// One line for people.
    pub fn describe(&self) -> String {
        match (&self.place, &self.why) {
            (Some(place), _) => format!("usable: {place}"),
            (None, Some(why)) if self.wanted => format!("not usable: {why}"),
            (None, why) => format!("not used: {}", why.as_deref().unwrap_or("for no known reason")),
        }
    }
}

impl Sctp {
    /// One line for people.
    pub fn describe(&self) -> String {
        match (&self.why, self.wanted) {
            (Some(why), _) => format!("not usable: {why}"),
            (None, true) => "usable, and asked for by WEIR_CARRIER".into(),
            (None, false) => "usable; not used unless WEIR_CARRIER=sctp asks for it".into(),
        }
    }
}

impl BulkTcp {
    /// One line for people.
    pub fn describe(&self) -> String {
        match &self.why {
            None => "usable, for large messages where the network loses nothing".into(),
            Some(why) => format!("not used: {why}"),
        }
    }
}

/// Between connection and verdict; a handshake's own limit is 2 s.
const LIMIT: Duration = Duration::from_secs(5);
/// How often the two ends are looked at.
const LOOK: Duration = Duration::from_micros(200);

/// Shares memory with a process started for it. That one is to read our memory and not the other
/// way round: a system may let a process read those that it has started, and ranks of a job have
/// not started each other.
fn try_shared_memory() -> SharedMemory {
    tried().unwrap_or_else(|error| SharedMemory::none(format!("{error:#}")))
}

fn tried() -> Result<SharedMemory> {
    // Nothing but a few words of our own can be had with this key, and by this user only.
    let key: [u8; 32] = std::array::from_fn(|i| RandomState::new().hash_one(i) as u8);
    let id = RandomState::new().hash_one("endpoint");
    let mut shm = Shm::open(id, &key, Config::default())?;
    let mut other = Other::start(id, &key)?;
    let (mut events, begin) = (Vec::new(), Instant::now());
    while !other.has_told()? {
        shm.poll(now_ns(begin), &mut events);
        if begin.elapsed() > LIMIT {
            bail!("a process started to try it did not end within {} s", LIMIT.as_secs());
        }
        std::thread::sleep(LOOK);
    }
    other.told()
}

fn now_ns(begin: Instant) -> u64 {
    u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// The process started for it; ended when this is dropped.
struct Other(Child);

impl Other {
    fn start(id: u64, key: &[u8]) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("probe-shared-memory").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().context("cannot start a process")?;
        let key: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        // Not as an argument, which others could read.
        let told = child.stdin.take().context("no pipe").and_then(|mut pipe| Ok(writeln!(pipe, "{id:x} {key}")?));
        told.map(|()| Self(child))
    }

    fn has_told(&mut self) -> Result<bool> {
        Ok(self.0.try_wait()?.is_some())
    }

    fn told(&mut self) -> Result<SharedMemory> {
        let out = self.0.stdout.take().context("no pipe")?;
        let line = BufReader::new(out).lines().next().context("a process started to try it said nothing")??;
        Ok(serde_json::from_str(&line)?)
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The other process: connects to the endpoint named on standard input, and says what it found.
///
/// # Errors
/// If it is not told what to do.
pub fn probe() -> Result<SharedMemory> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    let (id, hex) = line.trim().split_once(' ').context("no endpoint and key on standard input")?;
    let theirs = u64::from_str_radix(id, 16)?;
    let mut key = [0; 32];
    for (i, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(hex.get(2 * i..2 * i + 2).context("short key")?, 16)?;
    }
    let mut shm = match Shm::open(theirs ^ 1, &key, Config::default()) {
        Ok(shm) => shm,
        Err(error) => return Ok(SharedMemory::none(error)),
    };
    let begin = Instant::now();
    let peer = shm.connect(theirs, 0)?;
    let mut events = Vec::new();
    while events.is_empty() && begin.elapsed() < LIMIT {
        shm.poll(now_ns(begin), &mut events);
        std::thread::sleep(LOOK);
    }
    Ok(match events.first() {
        Some(Event::Up { .. }) => read_by(shm.can_pull(peer)),
        Some(Event::Over { why, .. }) => SharedMemory::none(why),
        None => SharedMemory::none(Why::TimedOut),
    })
}

/// What is told of memory that is shared.
fn read_by(pull: Option<Result<(), NoPull>>) -> SharedMemory {
    let reason = pull.and_then(Result::err);
    SharedMemory {
        usable: true,
        single_copy: pull == Some(Ok(())),
        why: reason.map(|why| why.to_string()),
        fix: (reason == Some(NoPull::Yama)).then(|| "sudo sysctl -w kernel.yama.ptrace_scope=0".to_owned()),
        left_out: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_with_its_cause_and_repair() {
        let told = read_by(Some(Err(NoPull::Yama)));
        assert!(
            told.usable && !told.single_copy && told.fix.as_deref().is_some_and(|fix| fix.contains("ptrace_scope=0"))
        );
        assert!(told.describe().contains("copied twice: not permitted"), "{}", told.describe());
        let told = read_by(Some(Err(NoPull::OtherPidNamespace)));
        assert!(told.describe().contains("another pid namespace") && told.fix.is_none());
        let told = SharedMemory::none(Why::NoMemory);
        assert!(told.describe().starts_with("not usable: the system gives no memory to share"), "{}", told.describe());
        assert!(read_by(Some(Ok(()))).why.is_none());
    }

    #[test]
    fn a_setting_that_leaves_a_carrier_out_is_named_as_it_was_set() {
        let env = |name: &str, value: &str| Env::from_pairs([(name, value)]);
        let by = |env: &Env| {
            let config = settings::understood(env).unwrap();
            ((!shares_memory(&config)).then(|| without_memory(env, &config)), bulk_tcp(env, &config).why)
        };
        assert_eq!(by(&env("PATH", "/")), (None, None));
        let both = by(&env("FI_WEIR_CARRIER", "udp"));
        assert_eq!(both, (Some("FI_WEIR_CARRIER is set".into()), Some("FI_WEIR_CARRIER is set".into())));
        assert_eq!(by(&env("WEIR_FAULTS", "loss=1%")), (Some("WEIR_FAULTS is set".into()), None));
        assert_eq!(by(&env("WEIR_LEVEL", "auth")), (None, Some("WEIR_LEVEL is set".into())));
    }
}

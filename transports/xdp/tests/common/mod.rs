//! Hosts in network namespaces of their own, joined by virtual Ethernet, inside a namespace that
//! the test program was started in.

// Each test program uses its part.
#![allow(dead_code)]

use libtest_mimic::{Failed, Trial};
use std::net::{IpAddr, SocketAddr};
use std::process::{Command, Output};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};
use weir_net::Datagrams;
use weir_udp::{UdpConfig, UdpTransport};
use weir_xdp::{Ask, Broker, Holder, MOST, Mode, Pair, Port};

/// Tells the test program which of its tests to do, inside.
const INSIDE: &str = "WEIR_TEST_XDP";
/// The "test" that only tries whether programs can be loaded and attached.
const PROBE: &str = "probe";
/// Waits are bounded by this, on a machine that does much else.
pub const LIMIT: Duration = Duration::from_secs(60);

pub type Both = Pair<UdpTransport>;

/// A test by its name, and what it does inside.
pub type Test = (&'static str, fn());

/// Runs the tests, each in a process and a namespace of its own; or, inside, the one that is asked
/// for.
pub fn main(tests: &[Test]) -> std::process::ExitCode {
    if let Ok(wanted) = std::env::var(INSIDE) {
        match tests.iter().find(|(name, _)| *name == wanted) {
            Some((_, test)) => test(),
            None => probe(),
        }
        return std::process::ExitCode::SUCCESS;
    }
    let args = libtest_mimic::Arguments::from_args();
    let missing = run_inside(PROBE).err().map(|e| e.message().unwrap_or("no XDP here").to_owned());
    if let Some(reason) = &missing {
        eprintln!("\nIGNORED, not passed: tests that need root, network namespaces and XDP. {reason}\n");
    }
    let is_missing = |name: &str| missing.is_some() || (name.contains("vlan") && lacks_vlans());
    let trials =
        tests.iter().map(|&(name, _)| Trial::test(name, move || run_inside(name)).with_ignored_flag(is_missing(name)));
    libtest_mimic::run(&args, trials.collect()).exit_code()
}

/// Whether this kernel has no VLANs.
fn lacks_vlans() -> bool {
    let make = "ip link add ve0 type dummy && ip link add link ve0 name ve0.5 type vlan id 5";
    let out = Command::new("unshare").args(["-n", "sh", "-c", make]).output();
    let lacks = !out.is_ok_and(|out| out.status.success());
    if lacks {
        eprintln!("\nIGNORED, not passed: the tests of VLANs. This kernel makes none (8021q)\n");
    }
    lacks
}

fn probe() {
    let [a, _b] = hosts();
    drop(a.open(Mode::Generic));
}

fn run_inside(name: &'static str) -> Result<(), Failed> {
    let exe = std::env::current_exe()?;
    let out = Command::new("unshare").arg("-n").arg(exe).env(INSIDE, name).output()?;
    if out.status.success() {
        return Ok(());
    }
    Err(format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr)).into())
}

type Work = Box<dyn FnOnce() + Send>;

/// A host: a thread in a network namespace, which does what it is given.
pub struct Host {
    work: Sender<Work>,
    tid: i32,
    pub ip: IpAddr,
    pub six: IpAddr,
    /// The interface's name.
    pub name: &'static str,
}

/// `ip` (iproute2) in the namespace of the calling thread.
pub fn ip(args: &str) -> Output {
    let out = Command::new("ip").args(args.split_whitespace()).output().expect("iproute2");
    assert!(out.status.success(), "ip {args}: {}", String::from_utf8_lossy(&out.stderr));
    out
}

impl Host {
    fn new(name: &'static str, last: u8) -> Host {
        let (work, todo) = channel::<Work>();
        let (tell, told) = channel();
        std::thread::spawn(move || {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).expect("a namespace");
            tell.send(nix::unistd::gettid().as_raw()).expect("the test lives");
            todo.into_iter().for_each(|work| work());
        });
        let six = format!("fd00::{last}").parse().expect("an address");
        Host { work, tid: told.recv().expect("a thread"), ip: [10, 77, 0, last].into(), six, name }
    }

    /// Does something in the host's namespace.
    pub fn run<R: Send + 'static>(&self, work: impl FnOnce() -> R + Send + 'static) -> R {
        let (tell, told) = channel();
        self.work.send(Box::new(move || drop(tell.send(work())))).expect("the host lives");
        told.recv().expect("what was to be done failed")
    }

    /// The thread that is in the host's namespace.
    pub fn tid(&self) -> i32 {
        self.tid
    }

    /// `ip` on the host.
    pub fn ip(&self, args: &str) {
        let args = args.to_owned();
        self.run(move || drop(ip(&args)));
    }

    /// A socket at a free port, and XDP beside it, attached by this process.
    pub fn open(&self, mode: Mode) -> Both {
        self.open_at(self.ip, Broker::new(mode))
    }

    /// The same at another address, by this broker.
    pub fn open_at(&self, ip: IpAddr, broker: Broker) -> Both {
        self.try_open_at(ip, broker).expect("XDP")
    }

    /// The same; or why there is no XDP.
    pub fn try_open_at(&self, ip: IpAddr, mut broker: Broker) -> Result<Both, String> {
        self.run(move || {
            let udp = udp(ip);
            let ask = Ask { interface: weir_xdp::interface_of(ip).expect("asked").expect("there"), most: MOST };
            let (_, bound) = broker.grant(owned(&udp), ask).map_err(|e| e.to_string())?;
            let port = Port { port: udp.local_addrs()[0].port(), tells_local: udp.tells_local() };
            let mut pair = Pair::alone(udp);
            pair.add(bound, Holder::Own(Box::new(broker)), port).map_err(|e| e.to_string())?;
            Ok(pair)
        })
    }

    /// A socket alone.
    pub fn plain(&self) -> Both {
        let ip = self.ip;
        self.run(move || Pair::alone(udp(ip)))
    }
}

/// Another descriptor of the device's first socket.
pub fn owned(udp: &UdpTransport) -> std::os::fd::OwnedFd {
    // SAFETY: open as long as the device, which lives through this call.
    let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(udp.fds()[0]) };
    fd.try_clone_to_owned().expect("a descriptor")
}

pub fn udp(ip: IpAddr) -> UdpTransport {
    UdpTransport::bind(&UdpConfig { bind: Some(SocketAddr::new(ip, 0)), ..UdpConfig::default() }).expect("a socket")
}

/// Two hosts, `ve0` and `ve1` between them with an address of either family.
pub fn hosts() -> [Host; 2] {
    hosts_with("")
}

/// The same with more arguments for each end of the link.
pub fn hosts_with(each: &str) -> [Host; 2] {
    let (a, b) = (Host::new("ve0", 1), Host::new("ve1", 2));
    ip(&format!("link add ve0 {each} type veth peer name ve1 {each}"));
    for host in [&a, &b] {
        let (name, tid) = (host.name, host.tid);
        ip(&format!("link set {name} netns {tid}"));
        host.ip("link set lo up");
        host.ip(&format!("link set {name} up"));
        host.ip(&format!("addr add {}/24 dev {name}", host.ip));
        host.ip(&format!("addr add {}/64 dev {name} nodad", host.six));
    }
    [a, b]
}

/// Now, as devices count.
pub fn now_ns() -> u64 {
    use std::sync::OnceLock;
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64 + 1_000_000_000
}

/// Sends one datagram alone.
pub fn send(from: &mut Both, to: SocketAddr, bytes: &[u8]) {
    from.send_now(now_ns(), (to, None), bytes);
}

/// What has arrived, with its sender.
pub fn arrived(at: &mut Both) -> Vec<(SocketAddr, Vec<u8>)> {
    let mut all = Vec::new();
    at.recv(now_ns(), 8, |info, bytes| all.push((info.remote, bytes.to_vec()))).expect("a device");
    all
}

/// Waits until `done`, looking at the device, and returns all that has arrived.
pub fn collect(at: &mut Both, mut done: impl FnMut(&[(SocketAddr, Vec<u8>)]) -> bool) -> Vec<(SocketAddr, Vec<u8>)> {
    let mut all = Vec::new();
    let end = Instant::now() + LIMIT;
    while !done(&all) {
        all.extend(arrived(at));
        assert!(Instant::now() < end, "only {} datagrams arrived; {:?}", all.len(), at.counters());
    }
    all
}

/// Waits for one datagram of these bytes and returns its sender. Others, which came twice or late,
/// are passed over.
pub fn expect(at: &mut Both, bytes: &[u8]) -> SocketAddr {
    let all = collect(at, |all| all.iter().any(|(_, b)| b == bytes));
    all.into_iter().find(|(_, b)| b == bytes).expect("it came").0
}

/// One message there and back, repeated until it gets through, as a link would do.
pub fn exchange(a: &mut Both, b: &mut Both, n: u32) {
    let (to_a, to_b) = (a.local_addrs()[0], b.local_addrs()[0]);
    let end = Instant::now() + LIMIT;
    let step = |from: &mut Both, at: &mut Both, to, bytes: &[u8]| loop {
        send(from, to, bytes);
        let again = Instant::now() + Duration::from_millis(20);
        while Instant::now() < again {
            arrived(from);
            if arrived(at).iter().any(|(_, got)| got == bytes) {
                return;
            }
        }
        assert!(Instant::now() < end, "nothing gets through: {:?} {:?}", from.counters(), at.counters());
    };
    step(a, b, to_b, &[&n.to_le_bytes()[..], b"there"].concat());
    step(b, a, to_a, &[&n.to_le_bytes()[..], b"back"].concat());
}

/// Datagrams sent and received by XDP so far.
pub fn by_xdp(of: &Both) -> (u64, u64) {
    of.counters().map_or((0, 0), |c| (c.tx_datagrams, c.rx_datagrams))
}

/// Exchanges messages until both sides send and receive by XDP. (At first the neighbours are not
/// known.)
pub fn until_by_xdp(a: &mut Both, b: &mut Both) {
    let end = Instant::now() + LIMIT;
    let before = [by_xdp(a), by_xdp(b)];
    let moved = |now: (u64, u64), before: (u64, u64)| now.0 > before.0 && now.1 > before.1;
    while !(moved(by_xdp(a), before[0]) && moved(by_xdp(b), before[1])) {
        exchange(a, b, 0);
        assert!(Instant::now() < end, "XDP carries nothing: {:?} {:?}", a.counters(), b.counters());
    }
}

/// Keeps the calling thread on one core, where there is such a core.
pub fn pin(core: usize) {
    let mut set = nix::sched::CpuSet::new();
    let _ = set.set(core).and_then(|()| nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set));
}

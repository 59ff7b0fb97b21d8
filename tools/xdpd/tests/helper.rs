//! The helper and ranks without rights, in network namespaces. Needs root and AF_XDP; where one is
//! missing the tests are reported as ignored.

#[path = "../../../transports/xdp/tests/common/mod.rs"]
mod common;

use clap::Parser;
use common::{Both, Host, LIMIT, by_xdp, exchange, hosts, hosts_with, until_by_xdp};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use weir_net::Datagrams;
use weir_xdp::{Ask, Holder, MOST, Mode, Pair, Port, Refused, helper};
use weir_xdpd::XdpdArgs;

/// Tells the test program that it is the helper, and its arguments.
const HELPER: &str = "WEIR_TEST_XDPD";
/// Nobody: who has no rights at all.
const NOBODY: u32 = 65534;

/// The command line of the helper.
#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: XdpdArgs,
}

fn main() -> std::process::ExitCode {
    if let Ok(line) = std::env::var(HELPER) {
        let args = Line::parse_from(std::iter::once("xdpd").chain(line.split_whitespace())).args;
        let Err(e) = weir_xdpd::run(&args) else { return std::process::ExitCode::SUCCESS };
        eprintln!("weir xdpd: {e:#}");
        return std::process::ExitCode::FAILURE;
    }
    common::main(&[
        ("a_rank_without_rights_gets_a_socket_and_who_is_not_on_the_list_none", a_rank_without_rights_gets_a_socket),
        ("each_queue_serves_one_rank_and_the_next_one_goes_by_udp", each_queue_serves_one_rank),
        ("a_helper_that_is_killed_costs_nothing_but_speed", a_helper_that_is_killed_costs_nothing_but_speed),
        ("a_dead_rank_leaves_its_place_to_the_next", a_dead_rank_leaves_its_place_to_the_next),
        ("the_program_is_detached_when_idle_and_attached_when_asked", the_program_is_detached_when_idle),
        ("strangers_and_nonsense_harm_nobody", strangers_and_nonsense_harm_nobody),
        ("ranks_without_rights_get_rings_and_a_killed_helper_costs_nothing_but_speed", ranks_without_rights_get_rings),
        ("a_helper_that_could_serve_nobody_does_not_start", a_helper_that_could_serve_nobody_does_not_start),
        ("a_port_is_its_ranks_as_long_as_it_is_steered", a_port_is_its_ranks_as_long_as_it_is_steered),
        ("a_socket_bound_to_another_interface_gives_no_right", a_socket_bound_to_another_interface_gives_no_right),
        ("an_address_that_comes_back_is_steered_again", an_address_that_comes_back_is_steered_again),
        ("many_ranks_that_start_at_once_are_all_served", many_ranks_that_start_at_once_are_all_served),
        ("descriptors_that_nobody_asked_for_are_closed", descriptors_that_nobody_asked_for_are_closed),
        ("members_of_a_group_are_served", members_of_a_group_are_served),
        ("a_rank_asks_no_stranger", a_rank_asks_no_stranger),
        ("what_lies_in_the_ring_of_a_dead_helper_is_read", what_lies_in_the_ring_of_a_dead_helper_is_read),
        ("the_helper_keeps_no_rights_but_those_needed", the_helper_keeps_no_rights),
    ])
}

/// A helper's process.
struct Helper {
    process: Child,
    socket: PathBuf,
    _folder: tempfile::TempDir,
}

impl Helper {
    /// Started on a host, and listening.
    fn start(host: &Host, more: &str) -> Helper {
        let helper = Helper::start_by(host, &["env"], more, Stdio::inherit());
        helper.wait_until_listening();
        helper
    }

    /// Started on a host by another program; what it says goes there.
    fn start_by(host: &Host, by: &[&'static str], more: &str, errors: Stdio) -> Helper {
        let folder = tempfile::tempdir().expect("a folder");
        // Others may go through it.
        std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("ours");
        let socket = folder.path().join("s");
        let line = format!("--interface {} --allow {NOBODY} --socket {} {more}", host.name, socket.display());
        let line = if more.contains("--mode") { line } else { format!("{line} --mode generic") };
        let by = by.to_owned();
        let process = host.run(move || {
            let exe = std::env::current_exe().expect("this program");
            let mut command = Command::new(by[0]);
            command.args(&by[1..]).arg(exe).env(HELPER, line).stdin(Stdio::null()).stderr(errors);
            command.spawn().expect("the helper")
        });
        Helper { process, socket, _folder: folder }
    }

    fn wait_until_listening(&self) {
        wait_until("the helper listens", || {
            let ask = Ask { interface: u32::MAX, most: MOST };
            let udp = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
            let fd = std::os::fd::AsRawFd::as_raw_fd(&udp);
            !matches!(helper::ask(&self.socket, fd, ask), Err(helper::NoHelp::Nobody { .. }))
        });
    }

    fn kill(&mut self) {
        self.process.kill().expect("ours");
        self.process.wait().expect("ours");
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !done() {
        assert!(Instant::now() < end, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn a_helper_that_could_serve_nobody_does_not_start() {
    let [ha, _hb] = hosts();
    let without_raw = ["setpriv", "--bounding-set=-net_raw", "--inh-caps=-net_raw"];
    for mode in ["generic", "native"] {
        let mut helper = Helper::start_by(&ha, &without_raw, &format!("--mode {mode}"), Stdio::piped());
        wait_until("it ends", || helper.process.try_wait().expect("ours").is_some());
        let said = std::io::read_to_string(helper.process.stderr.take().expect("a pipe")).expect("text");
        assert!(said.contains("this needs CAP_NET_RAW, which root has") && said.lines().count() == 1, "{said}");
    }
    // Ring buffers need no such right.
    let helper = Helper::start_by(&ha, &without_raw, "--mode ring", Stdio::inherit());
    helper.wait_until_listening();
    drop(open(&ha, NOBODY, &helper.socket).expect("a ring"));
}

/// Does something on a host as a user without rights.
fn as_user<R: Send + 'static>(host: &Host, user: u32, work: impl FnOnce() -> R + Send + 'static) -> R {
    host.run(move || {
        std::thread::scope(|s| {
            let thread = s.spawn(move || {
                // SAFETY: no pointers. The system call changes this thread alone, which ends with
                // what it does here.
                let r = unsafe { libc::syscall(libc::SYS_setresuid, user, user, user) };
                assert_eq!(r, 0, "to become user {user}");
                work()
            });
            thread.join().unwrap_or_else(|e| std::panic::resume_unwind(e))
        })
    })
}

/// A rank's device as its user opens it.
fn open(host: &Host, user: u32, socket: &Path) -> Result<Both, helper::NoHelp> {
    let (ip, socket) = (host.ip, socket.to_owned());
    as_user(host, user, move || {
        let udp = common::udp(ip);
        let ask = Ask { interface: weir_xdp::interface_of(ip).expect("asked").expect("there"), most: MOST };
        let (connection, bound) = helper::ask(&socket, udp.fds()[0], ask)?;
        let port = Port { port: udp.local_addrs()[0].port(), tells_local: udp.tells_local() };
        let mut pair = Pair::alone(udp);
        pair.add(bound, Holder::Helper(connection), port).expect("a socket that can be used");
        Ok(pair)
    })
}

fn refused(got: Result<Both, helper::NoHelp>) -> Refused {
    match got {
        Err(helper::NoHelp::Refused(why)) => why,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was given a socket"),
    }
}

/// Whether a program is attached to the host's interface.
fn is_attached(host: &Host) -> bool {
    let name = host.name;
    host.run(move || String::from_utf8_lossy(&common::ip(&format!("link show dev {name}")).stdout).contains("xdp"))
}

fn a_rank_without_rights_gets_a_socket() {
    let [ha, hb] = hosts();
    let helper = Helper::start(&ha, "");
    assert_eq!(refused(open(&ha, 1234, &helper.socket)), Refused::User);
    let mut a = open(&ha, NOBODY, &helper.socket).expect("a socket");
    let mut b = hb.open(Mode::Generic);
    until_by_xdp(&mut a, &mut b);
    // What the rank holds does not let it do what the helper may.
    let tried = as_user(&ha, NOBODY, || weir_xdp::Program::load(true).map(|_| ()));
    assert!(tried.is_err(), "no rights for programs");
}

fn each_queue_serves_one_rank() {
    let [ha, hb] = hosts_with("numrxqueues 2 numtxqueues 2");
    let helper = Helper::start(&ha, "");
    let mut first = open(&ha, NOBODY, &helper.socket).expect("the first queue");
    let second = open(&ha, NOBODY, &helper.socket).expect("the second queue");
    let queues = [&first, &second].map(|p| p.place().expect("XDP").0.queue);
    assert_eq!(queues, [0, 1]);
    assert_eq!(refused(open(&ha, NOBODY, &helper.socket)), Refused::Queues);
    // A frame that comes to another queue than the rank's passes to its UDP socket: nothing is
    // lost.
    let (mut second, mut b) = (second, hb.open(Mode::Generic));
    until_by_xdp(&mut first, &mut b);
    for n in 0..200 {
        exchange(&mut first, &mut b, n);
        exchange(&mut second, &mut b, n);
    }
    assert!(by_xdp(&second).0 > 0, "it sends by its own queue");
}

fn a_helper_that_is_killed_costs_nothing_but_speed() {
    let [ha, hb] = hosts();
    let mut helper = Helper::start(&ha, "");
    let mut a = open(&ha, NOBODY, &helper.socket).expect("a socket");
    let mut b = hb.open(Mode::Generic);
    until_by_xdp(&mut a, &mut b);
    let sources = a.wake_sources();
    helper.kill();
    wait_until("the kernel detaches the program", || !is_attached(&ha));
    let end = Instant::now() + LIMIT;
    while a.has_xdp() {
        exchange(&mut a, &mut b, 7);
        assert!(Instant::now() < end, "the rank does not notice");
    }
    for n in 0..200 {
        exchange(&mut a, &mut b, n);
    }
    assert_eq!(a.wake_sources(), sources, "who sleeps on them need not know");
    assert_eq!(a.counters().map(|c| c.ended), Some(1));
    // Another helper serves the next rank, at the same queue.
    let again = Helper::start(&ha, "");
    let mut next = open(&ha, NOBODY, &again.socket).expect("the queue is free");
    until_by_xdp(&mut next, &mut b);
}

fn a_dead_rank_leaves_its_place_to_the_next() {
    let [ha, hb] = hosts();
    let helper = Helper::start(&ha, "");
    let mut b = hb.open(Mode::Generic);
    for n in 0..5 {
        let mut a = open_when_free(&ha, &helper.socket);
        until_by_xdp(&mut a, &mut b);
        if n < 4 {
            // With frames in flight.
            let to = a.local_addrs()[0];
            (0..100).for_each(|_| common::send(&mut b, to, b"in flight"));
        }
        assert_eq!(refused(open(&ha, NOBODY, &helper.socket)), Refused::Queues);
    }
}

/// A rank's device, once the helper has heard that the one before it is gone.
fn open_when_free(host: &Host, socket: &Path) -> Both {
    let mut got = None;
    wait_until("the queue is free", || {
        got = open(host, NOBODY, socket).ok();
        got.is_some()
    });
    got.expect("it is")
}

fn the_program_is_detached_when_idle() {
    let [ha, hb] = hosts();
    let helper = Helper::start(&ha, "--idle 1");
    assert!(!is_attached(&ha), "nobody has asked");
    for _ in 0..2 {
        let mut a = open(&ha, NOBODY, &helper.socket).expect("a socket");
        let mut b = hb.open(Mode::Generic);
        assert!(is_attached(&ha));
        until_by_xdp(&mut a, &mut b);
        drop(a);
        wait_until("it is detached", || !is_attached(&ha));
    }
}

fn strangers_and_nonsense_harm_nobody() {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
    use std::os::fd::AsRawFd;
    let [ha, hb] = hosts();
    let helper = Helper::start(&ha, "");
    let mut a = open(&ha, NOBODY, &helper.socket).expect("a socket");
    let mut b = hb.open(Mode::Generic);
    let connected = || {
        let fd = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).expect("a socket");
        connect(fd.as_raw_fd(), &UnixAddr::new(&helper.socket).expect("a path")).expect("the helper listens");
        helper::wait_at_most(&fd).expect("an option");
        fd
    };
    // More that say nothing than are borne.
    let silent: Vec<_> = (0..100).map(|_| connected()).collect();
    for message in [[0; 64], Ask { interface: 1, most: 1 }.encode(), Ask { interface: 1, most: 64 }.encode()] {
        let fd = connected();
        helper::send(&fd, &message, &[]).expect("sent");
        let (answer, with) = helper::recv(&fd).expect("an answer");
        assert!(with.is_empty() && matches!(weir_xdp::Answer::decode(&answer), Ok(weir_xdp::Answer::Refuse(_))));
    }
    // A descriptor that gives no right to a port: of another kind, and of another network.
    let interface = ha.run(|| nix::net::if_::if_nametoindex("ve0").expect("there"));
    let foreign = hb.plain();
    let file = std::fs::File::open("/dev/null").expect("there");
    for fd in [file.as_raw_fd(), foreign.device().fds()[0]] {
        // Whatever interface has that number where it comes from.
        for interface in [interface, u32::MAX] {
            let got = helper::ask(&helper.socket, fd, Ask { interface, most: MOST });
            assert!(matches!(got, Err(helper::NoHelp::Refused(Refused::Socket))), "{:?}", got.err());
        }
    }
    // One of this network that has no port yet is told so, and not of other networks.
    let unbound = ha.run(|| socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None));
    let unbound = unbound.expect("a socket");
    let got = helper::ask(&helper.socket, unbound.as_raw_fd(), Ask { interface, most: MOST });
    assert!(matches!(got, Err(helper::NoHelp::Refused(Refused::Unbound))), "{:?}", got.err());
    drop(silent);
    until_by_xdp(&mut a, &mut b);
}

fn ranks_without_rights_get_rings() {
    let [ha, hb] = hosts();
    let mut helper = Helper::start(&ha, "--mode ring");
    assert_eq!(refused(open(&ha, 1234, &helper.socket)), Refused::User);
    let mut all: Vec<Both> = (0..10).map(|_| open(&ha, NOBODY, &helper.socket).expect("a ring")).collect();
    let mut b = hb.plain();
    all.iter_mut().for_each(|a| until_by_ring(a, &mut b));
    // One dies, and another takes its place.
    all.remove(4);
    let mut next = open(&ha, NOBODY, &helper.socket).expect("a ring");
    until_by_ring(&mut next, &mut b);
    let sources = all[0].wake_sources();
    helper.kill();
    let end = Instant::now() + LIMIT;
    for a in &mut all {
        while a.has_xdp() {
            exchange(a, &mut b, 7);
            assert!(Instant::now() < end, "the rank does not notice");
        }
        (0..50).for_each(|n| exchange(a, &mut b, n));
    }
    assert_eq!(all[0].wake_sources(), sources);
    let again = Helper::start(&ha, "--mode ring");
    until_by_ring(&mut open(&ha, NOBODY, &again.socket).expect("a ring"), &mut b);
}

/// Exchanges until something comes by the ring.
fn until_by_ring(a: &mut Both, b: &mut Both) {
    let (before, end) = (by_xdp(a).1, Instant::now() + LIMIT);
    while by_xdp(a).1 == before {
        exchange(a, b, 1);
        assert!(Instant::now() < end, "{:?}", a.counters());
    }
}

/// A hold on the packets of a socket of that host, without a device.
fn hold(host: &Host, socket: &Path, udp: std::net::UdpSocket) -> (helper::Hold, std::net::UdpSocket) {
    let (ip, socket) = (host.ip, socket.to_owned());
    as_user(host, NOBODY, move || {
        let interface = weir_xdp::interface_of(ip).expect("asked").expect("there");
        let fd = std::os::fd::AsRawFd::as_raw_fd(&udp);
        let (hold, _) = helper::ask(&socket, fd, Ask { interface, most: MOST }).expect("a ring");
        (hold, udp)
    })
}

fn a_port_is_its_ranks_as_long_as_it_is_steered() {
    let [ha, hb] = hosts();
    let helper = Helper::start(&ha, "--mode ring");
    let ip = ha.ip;
    let udp = ha.run(move || std::net::UdpSocket::bind((ip, 0)).expect("a port"));
    let at = udp.local_addr().expect("bound");
    let (hold, udp) = hold(&ha, &helper.socket, udp);
    drop(udp);
    let is_free = move || std::net::UdpSocket::bind(at).is_ok();
    assert!(!ha.run(is_free), "somebody could have it whose packets would go to the rank");
    drop(hold);
    assert!(ha.run(is_free), "free at once");
    // One that is bound to another interface afterwards does not keep the port from others.
    let udp = ha.run(move || std::net::UdpSocket::bind((ip, 0)).expect("a port"));
    let at = udp.local_addr().expect("bound");
    let (_other_hold, udp) = self::hold(&ha, &helper.socket, udp);
    let other = ha.run(move || {
        use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, setsockopt, socket, sockopt};
        setsockopt(&udp, sockopt::BindToDevice, &"lo".into()).expect("bound");
        let other = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None).expect("a socket");
        setsockopt(&other, sockopt::BindToDevice, &"ve0".into()).expect("bound");
        let std::net::SocketAddr::V4(v4) = at else { panic!("an IPv4 address") };
        bind(std::os::fd::AsRawFd::as_raw_fd(&other), &SockaddrIn::from(v4)).expect("it is free there");
        std::net::UdpSocket::from(other)
    });
    gets_what_is_sent_there(&hb, &other, at);
    // The kernel takes a port back from one that disconnects. (The device at that port is another's
    // then, and what it gets comes by its socket.)
    let udp = ha.run(move || std::net::UdpSocket::bind((ip, 0)).expect("a port"));
    let at = udp.local_addr().expect("bound");
    let (_hold, udp) = self::hold(&ha, &helper.socket, udp);
    // SAFETY: an address of that length; a number of descriptor that is open.
    let gone = unsafe {
        let mut none: libc::sockaddr = std::mem::zeroed();
        none.sa_family = libc::AF_UNSPEC as u16;
        libc::connect(std::os::fd::AsRawFd::as_raw_fd(&udp), &raw const none, size_of_val(&none) as u32)
    };
    assert_eq!(gone, 0);
    let other = ha.run(move || std::net::UdpSocket::bind(at).expect("it is free"));
    gets_what_is_sent_there(&hb, &other, at);
}

fn gets_what_is_sent_there(from: &Host, other: &std::net::UdpSocket, at: std::net::SocketAddr) {
    other.set_read_timeout(Some(Duration::from_millis(20))).expect("an option");
    let mut b = from.plain();
    wait_until("what is sent there comes to who has the port", || {
        common::send(&mut b, at, b"yours");
        other.recv(&mut [0; 8]).is_ok()
    });
}

fn a_socket_bound_to_another_interface_gives_no_right() {
    let [ha, _hb] = hosts();
    let helper = Helper::start(&ha, "--mode ring");
    let (ip, socket) = (ha.ip, helper.socket.clone());
    let ask = move |device: &'static str| {
        let interface = weir_xdp::interface_of(ip).expect("asked").expect("there");
        let udp = std::net::UdpSocket::bind("0.0.0.0:0").expect("a port");
        nix::sys::socket::setsockopt(&udp, nix::sys::socket::sockopt::BindToDevice, &device.into()).expect("bound");
        helper::ask(&socket, std::os::fd::AsRawFd::as_raw_fd(&udp), Ask { interface, most: MOST }).map(|_| ())
    };
    let (elsewhere, here) = ha.run(move || (ask("lo"), ask("ve0")));
    assert!(matches!(elsewhere, Err(helper::NoHelp::Refused(Refused::Socket))), "{elsewhere:?}");
    assert!(here.is_ok(), "{here:?}");
}

fn an_address_that_comes_back_is_steered_again() {
    let [ha, hb] = hosts();
    let helper = Helper::start(&ha, "--mode ring");
    let mut a = open(&ha, NOBODY, &helper.socket).expect("a ring");
    let mut b = hb.plain();
    until_by_ring(&mut a, &mut b);
    let (address, name) = (ha.ip, ha.name);
    for _ in 0..3 {
        ha.ip(&format!("addr del {address}/24 dev {name}"));
        std::thread::sleep(Duration::from_millis(20));
        ha.ip(&format!("addr add {address}/24 dev {name}"));
        until_by_ring(&mut a, &mut b);
    }
}

fn many_ranks_that_start_at_once_are_all_served() {
    const RANKS: usize = 128;
    let [ha, _hb] = hosts();
    let helper = Helper::start(&ha, "--mode ring");
    let (ip, socket) = (ha.ip, helper.socket.clone());
    // Twice: places of who is gone are given anew.
    for _ in 0..2 {
        let socket = socket.clone();
        let took = ha.run(move || {
            let interface = weir_xdp::interface_of(ip).expect("asked").expect("there");
            let start = std::sync::Arc::new(std::sync::Barrier::new(RANKS + 1));
            let rank = |_| {
                let (socket, start) = (socket.clone(), start.clone());
                // (The namespace is the parent's.)
                std::thread::spawn(move || {
                    let udp = std::net::UdpSocket::bind((ip, 0)).expect("a port");
                    start.wait();
                    let fd = std::os::fd::AsRawFd::as_raw_fd(&udp);
                    let got = helper::ask(&socket, fd, Ask { interface, most: MOST });
                    got.map(|got| (got, udp)).map_err(|e| e.to_string())
                })
            };
            let all: Vec<_> = (0..RANKS).map(rank).collect();
            start.wait();
            let begun = Instant::now();
            let all: Vec<_> = all.into_iter().map(|one| one.join().expect("it lives")).collect();
            let took = begun.elapsed();
            for one in &all {
                assert!(one.is_ok(), "{:?}", one.as_ref().err());
            }
            took
        });
        eprintln!("{RANKS} ranks were served in {took:?}");
        assert!(took < Duration::from_secs(helper::WAIT_S as u64));
    }
}

fn descriptors_that_nobody_asked_for_are_closed() {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
    use std::os::fd::AsRawFd;
    let [ha, _hb] = hosts();
    let helper = Helper::start(&ha, "--mode ring");
    let folder = format!("/proc/{}/fd", helper.process.id());
    let open = || std::fs::read_dir(&folder).expect("ours").count();
    let file = std::fs::File::open("/dev/null").expect("there");
    let before = open();
    for user in [0, 1234] {
        for count in [1, 2, 5, 200, 253] {
            let path = helper.socket.clone();
            let fds = vec![file.as_raw_fd(); count];
            let answer = as_user(&ha, user, move || {
                let fd =
                    socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).expect("a socket");
                connect(fd.as_raw_fd(), &UnixAddr::new(&path).expect("a path")).expect("the helper listens");
                helper::wait_at_most(&fd).expect("an option");
                helper::send(&fd, &Ask { interface: 1, most: MOST }.encode(), &fds).expect("sent");
                helper::recv(&fd).expect("an answer").0
            });
            let why = if user == 0 { Refused::Socket } else { Refused::User };
            assert_eq!(weir_xdp::Answer::decode(&answer), Ok(weir_xdp::Answer::Refuse(why)), "{user} {count}");
        }
    }
    wait_until("all are closed", || open() <= before);
}

fn members_of_a_group_are_served() {
    let [ha, _hb] = hosts();
    let helper = Helper::start(&ha, "--mode ring --allow @root");
    // (A user without rights, whose group is root's as it was.)
    drop(open(&ha, 1234, &helper.socket).expect("a ring"));
    let socket = helper.socket.clone();
    let without = ha.run(move || {
        std::thread::spawn(move || {
            let none = std::ptr::null::<libc::gid_t>();
            // SAFETY: no groups; system calls that change this thread alone.
            let changed = unsafe {
                libc::syscall(libc::SYS_setgroups, 0, none) | libc::syscall(libc::SYS_setresgid, NOBODY, NOBODY, NOBODY)
            };
            assert_eq!(changed, 0);
            // SAFETY: no pointers.
            assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, 1234, 1234, 1234) }, 0);
            let udp = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
            helper::ask(&socket, std::os::fd::AsRawFd::as_raw_fd(&udp), Ask { interface: 1, most: MOST }).map(|_| ())
        })
        .join()
        .expect("it lives")
    });
    assert!(matches!(without, Err(helper::NoHelp::Refused(Refused::User))), "{without:?}");
}

fn a_rank_asks_no_stranger() {
    use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket};
    use std::os::fd::AsRawFd;
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).expect("ours");
    let path = folder.path().join("s");
    let [ha, _hb] = hosts();
    let there = path.clone();
    let listener = as_user(&ha, NOBODY, move || {
        let fd = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).expect("a socket");
        bind(fd.as_raw_fd(), &UnixAddr::new(&there).expect("a path")).expect("bound");
        listen(&fd, Backlog::new(4).expect("a number")).expect("it listens");
        fd
    });
    let udp = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    let got = helper::ask(&path, udp.as_raw_fd(), Ask { interface: 1, most: MOST });
    assert!(matches!(got, Err(helper::NoHelp::Stranger { .. })), "{:?}", got.err());
    drop(listener);
}

fn what_lies_in_the_ring_of_a_dead_helper_is_read() {
    const WAITING: usize = 500;
    let [ha, hb] = hosts();
    let mut helper = Helper::start(&ha, "--mode ring");
    let mut a = open(&ha, NOBODY, &helper.socket).expect("a ring");
    let mut b = hb.plain();
    until_by_ring(&mut a, &mut b);
    common::collect(&mut a, |_| true);
    let (before, to) = (by_xdp(&a).1, a.local_addrs()[0]);
    for n in 0..WAITING {
        common::send(&mut b, to, &n.to_le_bytes());
    }
    helper.kill();
    std::thread::sleep(Duration::from_millis(150));
    let got = common::collect(&mut a, |got| got.len() >= WAITING);
    assert_eq!((got.len(), by_xdp(&a).1 - before), (WAITING, WAITING as u64));
    let end = Instant::now() + LIMIT;
    while a.has_xdp() {
        exchange(&mut a, &mut b, 7);
        assert!(Instant::now() < end, "the rank does not notice");
    }
}

fn the_helper_keeps_no_rights() {
    let [ha, _hb] = hosts();
    let helper = Helper::start(&ha, "--mode ring");
    let status = std::fs::read_to_string(format!("/proc/{}/status", helper.process.id())).expect("ours");
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).expect("there");
        line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ")
    };
    let (user, group) = (field("Uid:"), field("Gid:"));
    let all: Vec<u32> = user.split(' ').map(|id| id.parse().expect("a number")).collect();
    assert!(all.iter().all(|id| (61184..=65519).contains(id)), "{user}: nobody's, not the user nobody's");
    assert_eq!((group, field("Groups:")), (user, String::new()));
    assert_eq!([field("NoNewPrivs:"), field("Seccomp:")], ["1", "2"]);
    // CAP_NET_ADMIN (12), CAP_NET_RAW (13), CAP_IPC_LOCK (14), CAP_BPF (39).
    let rights = u64::from_str_radix(&field("CapPrm:"), 16).expect("a number");
    assert_eq!(rights & !(1 << 12 | 1 << 13 | 1 << 14 | 1 << 39), 0, "{rights:x}");
}

//! A link that is cut, and a server that does not read, on `bmi_tcp` (spec/bmi.md T10): two network
//! namespaces, joined by a bridge in a third one, which this program makes anew for itself. Where
//! that cannot be had these tests are reported as ignored.

mod common;

use common::{KEY, build};
use libtest_mimic::{Arguments, Failed, Trial};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Tells this program that it runs inside, and which test it is to do.
const INSIDE: &str = "WEIR_TEST_CUT";
/// The bridge, and what can be tried beforehand.
const BRIDGE: &str = "ip link set lo up && ip link add br0 type bridge && ip link set br0 up";
/// What a silent peer may take to be given up (F4: 2 s), on a machine that does nothing else; it is
/// tried again on one that does.
const SILENCE_MS: u64 = 3000;
/// What it may take on any machine. (TCP by itself would take minutes.)
const SILENCE_MOST_MS: u64 = 30_000;
const TRIES: usize = 4;
/// A peer that is heard again after this is not silent: part of the second in which it is asked
/// whether it is there, on `bmi_tcp` with nothing under way.
const PAUSE: Duration = Duration::from_millis(1300);
/// Later than this it may well be.
const PAUSE_MOST: Duration = Duration::from_millis(1600);
/// So long a receiver has no room: several times the silence that is death.
const BUSY: Duration = Duration::from_secs(7);

fn unshare() -> Option<Command> {
    ["-n", "-rn"].into_iter().find_map(|flags| {
        let mut c = Command::new("unshare");
        let works = Command::new("unshare").args([flags, "sh", "-c", BRIDGE]).output().ok()?.status.success();
        works.then(|| {
            c.arg(flags);
            c
        })
    })
}

/// A process, ended with this.
struct Kept(Child);

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ip(line: &str) {
    let done = Command::new("ip").args(line.split(' ')).output().expect("ip");
    assert!(done.status.success(), "ip {line}: {}", String::from_utf8_lossy(&done.stderr));
}

/// A host at the bridge, by a cable of this name.
struct Host {
    keeper: Kept,
    cable: &'static str,
}

impl Host {
    fn new(cable: &'static str, address: &str) -> Host {
        // It says so when its namespace is there.
        let mut child = Command::new("unshare")
            .args(["-n", "sh", "-c", "ip link set lo up; echo there; exec sleep 3600"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("there");
        let host = Host { keeper: Kept(child), cable };
        ip(&format!("link add {cable} type veth peer name eth0 netns {}", host.keeper.0.id()));
        ip(&format!("link set {cable} master br0 up"));
        for line in [format!("ip addr add {address}/24 dev eth0"), "ip link set eth0 up".into()] {
            let done = host.command("sh").args(["-c", &line]).status().expect("nsenter");
            assert!(done.success(), "{line}");
        }
        host
    }

    fn command(&self, program: &str) -> Command {
        let mut c = Command::new("nsenter");
        c.args(["-t", &self.keeper.0.id().to_string(), "-n", program]);
        c.env("WEIR_KEY", KEY);
        c
    }

    /// Nothing passes any more, and nobody is told: its interface stays up.
    fn cut(&self) {
        ip(&format!("link set {} nomaster", self.cable));
    }

    fn mend(&self) {
        ip(&format!("link set {} master br0", self.cable));
    }
}

/// A program at work, and what it says.
struct Running {
    child: Kept,
    says: BufReader<std::process::ChildStdout>,
}

impl Running {
    fn start(mut command: Command) -> Running {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("started");
        let says = BufReader::new(child.stdout.take().expect("piped"));
        Running { child: Kept(child), says }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.says.read_line(&mut line).expect("a line");
        line.trim().to_owned()
    }

    fn go(&mut self) {
        self.child.0.stdin.as_mut().expect("piped").write_all(b"go\n").expect("it listens");
    }

    /// (nsenter becomes the program it starts.)
    fn signal(&self, signal: &str) {
        let done = Command::new("kill").args([signal, &self.child.0.id().to_string()]).status().expect("kill");
        assert!(done.success());
    }
}

struct Net {
    server_host: Host,
    client_host: Host,
    server: Running,
    url: String,
}

impl Net {
    fn new() -> Net {
        let done = Command::new("sh").args(["-c", BRIDGE]).status().expect("sh");
        assert!(done.success());
        let (server_host, client_host) = (Host::new("vs", "10.77.0.1"), Host::new("vc", "10.77.0.2"));
        let program = build("conformance", &[]);
        let mut command = server_host.command(program.to_str().expect("a path"));
        command.args(["--serve", "tcp://10.77.0.1:0", "bmi_tcp"]);
        let mut server = Running::start(command);
        let line = server.line();
        let port = line.strip_prefix("ready ").expect("it says where it is");
        let url = format!("tcp://10.77.0.1:{port}");
        Net { server_host, client_host, server, url }
    }

    fn client(&self, mode: &str) -> Running {
        let program = build("cut", &[]);
        let mut command = self.client_host.command(program.to_str().expect("a path"));
        command.args([&self.url, mode]);
        let mut client = Running::start(command);
        assert_eq!(client.line(), "ready");
        client
    }
}

/// What became of the operation, and after how many milliseconds.
fn outcome(client: &mut Running) -> (String, u64) {
    let line = client.line();
    let (code, ms) = line.split_once(' ').unwrap_or_else(|| panic!("it says '{line}'"));
    (code.to_owned(), ms.parse().expect("a number"))
}

/// Cuts the link; the operation ends soon. Mended, the server is reached again.
fn is_given_up(mode: &str) {
    let net = Net::new();
    let mut took = Vec::new();
    for _ in 0..TRIES {
        let mut client = net.client(mode);
        net.server_host.cut();
        client.go();
        let (code, ms) = outcome(&mut client);
        net.server_host.mend();
        assert_eq!(code, "BMI_ECONNRESET");
        assert!(ms <= SILENCE_MOST_MS, "a silent peer was given up after {ms} ms");
        took.push(ms);
        if ms < SILENCE_MS {
            return;
        }
    }
    panic!("a silent peer was given up after {took:?} ms, never within {SILENCE_MS}");
}

/// The first questions whether it is there are lost, as single ones are on a network with losses.
fn a_short_silence() {
    let net = Net::new();
    for _ in 0..TRIES {
        let mut client = net.client("pause");
        let since = Instant::now();
        net.server_host.cut();
        client.go();
        std::thread::sleep(PAUSE);
        net.server_host.mend();
        let took = since.elapsed();
        let (code, ms) = outcome(&mut client);
        // (On a machine that does much else it may have been longer.)
        if took < PAUSE_MOST {
            assert_eq!(code, "BMI_SUCCESS", "after {ms} ms");
            return;
        }
    }
    panic!("the link was never cut for {PAUSE:?} only");
}

/// Its host answers, whatever its program does.
fn a_busy_receiver() {
    let net = Net::new();
    let mut client = net.client("busy");
    net.server.signal("-STOP");
    client.go();
    std::thread::sleep(BUSY);
    net.server.signal("-CONT");
    let (code, ms) = outcome(&mut client);
    assert_eq!(code, "BMI_SUCCESS", "after {ms} ms");
    assert!(ms as u128 >= BUSY.as_millis(), "it was not busy for long: {ms} ms");
    net.server.signal("-KILL");
}

const TESTS: [(&str, fn()); 4] = [
    ("a_peer_that_is_waited_for_is_given_up_when_its_link_is_cut", || is_given_up("idle")),
    ("a_peer_that_is_sent_to_is_given_up_when_its_link_is_cut", || is_given_up("sending")),
    ("a_peer_whose_link_is_cut_for_a_second_is_not_given_up", a_short_silence),
    ("a_receiver_that_has_no_room_for_long_is_not_given_up", a_busy_receiver),
];

fn run_inside(name: &str) -> Result<(), Failed> {
    let mut c = unshare().ok_or("namespaces are gone")?;
    for (variable, _) in std::env::vars().filter(|(name, _)| name.starts_with("WEIR_")) {
        c.env_remove(variable);
    }
    let out = c.arg(std::env::current_exe()?).env(INSIDE, name).output()?;
    if out.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&out.stderr).into_owned().into()) }
}

fn main() {
    if let Ok(name) = std::env::var(INSIDE) {
        let (_, test) = TESTS.into_iter().find(|(n, _)| *n == name).expect("one of these");
        return test();
    }
    let missing = unshare().is_none();
    if missing {
        eprintln!(
            "\nIGNORED, not passed: links that are cut. There are no network namespaces, or no bridges (ip, unshare)\n"
        );
    }
    let trials = TESTS.map(|(name, _)| Trial::test(name, move || run_inside(name)).with_ignored_flag(missing));
    libtest_mimic::run(&Arguments::from_args(), trials.into()).exit();
}

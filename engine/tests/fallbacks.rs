//! Where shared memory cannot be had, or only in part, messages go another way, and `weir stat`
//! says why. Each trial makes the other process live under a condition of its own: another user, a
//! container's namespaces, a filter of system calls. What a machine does not permit is reported as
//! ignored, not as passed.

mod common;

use common::{KEY, LIMIT, config, open, post, send};
use libtest_mimic::{Arguments, Failed, Trial};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Instant;
use weir_engine::{CarrierUse, Completion, Endpoint, EngineConfig, Queue, SendMode};

/// What the other process lives under.
#[derive(Clone, Copy, PartialEq)]
enum Condition {
    OtherUser,
    PidNamespace,
    UserNamespace,
    NotPermitted,
    NoSuchCall,
    NoMemfd,
    SmallFiles,
    NoUnixSocket,
}

/// A condition, what each side says of the other afterwards, and which speaks first.
struct Case {
    name: &'static str,
    condition: Condition,
    other_begins: bool,
    /// Carrier and a part of the reason, as the other process tells them.
    there: (&'static str, &'static str),
    /// The same here.
    here: (&'static str, &'static str),
}

const ONCE: (&str, &str) = ("shm", "large messages are read from the sender's memory");

/// What is sent from here goes by memory made here, one way packets, the other way records: unless
/// the other's packets were here before anything was sent.
const EITHER: (&str, &str) = ("", "memory");

const CASES: [Case; 9] = [
    Case {
        name: "a_peer_of_another_user_is_reached_by_packets",
        condition: Condition::OtherUser,
        other_begins: false,
        there: ("udp", "shared memory"),
        here: ("udp", "no shared memory: the peer runs as another user"),
    },
    Case {
        name: "another_user_reaches_us_by_packets",
        condition: Condition::OtherUser,
        other_begins: true,
        there: ("udp", "no shared memory: the peer runs as another user"),
        here: ("udp", "shared memory"),
    },
    Case {
        name: "a_process_of_another_pid_namespace_copies_twice",
        condition: Condition::PidNamespace,
        other_begins: false,
        there: ("shm", "large messages are copied twice: the peer is in another pid namespace"),
        here: ONCE,
    },
    Case {
        name: "a_process_of_another_user_namespace_copies_twice",
        condition: Condition::UserNamespace,
        other_begins: false,
        there: ("shm", "large messages are copied twice: not permitted to read the peer's memory"),
        here: ONCE,
    },
    Case {
        name: "who_may_not_read_memory_copies_twice",
        condition: Condition::NotPermitted,
        other_begins: true,
        there: ("shm", "large messages are copied twice: not permitted to read the peer's memory"),
        here: ONCE,
    },
    Case {
        name: "who_lacks_the_system_call_copies_twice",
        condition: Condition::NoSuchCall,
        other_begins: false,
        there: ("shm", "large messages are copied twice: the system has no process_vm_readv"),
        here: ONCE,
    },
    Case {
        name: "who_can_make_no_memory_to_share_sends_packets",
        condition: Condition::NoMemfd,
        other_begins: true,
        there: ("udp", "no shared memory: the system gives no memory to share"),
        here: EITHER,
    },
    Case {
        name: "who_may_have_short_files_only_sends_packets_and_is_not_killed",
        condition: Condition::SmallFiles,
        other_begins: true,
        there: ("udp", "no shared memory: the limit of file sizes is below the memory to share (ulimit -f)"),
        here: EITHER,
    },
    Case {
        name: "who_cannot_listen_for_shared_memory_sends_packets",
        condition: Condition::NoUnixSocket,
        other_begins: false,
        there: ("udp", "this endpoint shares no memory: listening at an abstract Unix socket failed"),
        here: ("udp", "no shared memory: no such endpoint on this host"),
    },
];

const CONDITION: &str = "WEIR_TEST_CONDITION";
/// What the other says if the machine does not let it live so.
const CANNOT: &str = "cannot ";

fn main() -> ExitCode {
    if let Some(at) = std::env::var(CONDITION).ok().and_then(|at| at.parse::<usize>().ok()) {
        other(&CASES[at]);
        return ExitCode::SUCCESS;
    }
    let trials = (0..CASES.len()).map(|at| {
        // Asked beforehand, for whether a trial is ignored is told before it runs.
        let mut other = Other::start(at);
        let cannot = other.line().strip_prefix(CANNOT).map(str::to_owned);
        if let Some(why) = &cannot {
            eprintln!("IGNORED, not passed: {}. {why}", CASES[at].name);
        }
        let trial = Trial::test(CASES[at].name, move || {
            run(&CASES[at], Other::start(at));
            Ok::<(), Failed>(())
        });
        trial.with_ignored_flag(cannot.is_some())
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

/// Packets where shared memory is not to be had, whatever the suites run over.
fn any() -> EngineConfig {
    EngineConfig { carrier: CarrierUse::Auto, ..config() }
}

struct Other {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
}

impl Other {
    fn start(at: usize) -> Other {
        let mut command = Command::new(std::env::current_exe().expect("own path"));
        command.env(CONDITION, at.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("spawn");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        Other { child, out }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("a pipe");
        line.trim().to_owned()
    }

    fn tell(&mut self, line: &str) {
        let pipe = self.child.stdin.as_mut().expect("piped");
        writeln!(pipe, "{line}").and_then(|()| pipe.flush()).expect("told");
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // It ends when there is nothing to read any more: killed, it might leave a child of its
        // own.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn hex(name: &[u8]) -> String {
    name.iter().map(|b| format!("{b:02x}")).collect()
}

fn name_of(hex: &str) -> Vec<u8> {
    (0..48).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).expect("hexadecimal")).collect()
}

const SIZES: [usize; 4] = [8, 3000, 40_000, 700_000];

/// Messages of all lengths, there and back.
fn exchange(ep: &Endpoint, peer: u32, begins: bool) {
    for len in SIZES {
        let (mut out, mut back) = (common::pattern(len, 3), vec![0; len]);
        post(ep, Some(peer), 1, &mut back);
        if begins {
            send(ep, peer, 1, &mut out, SendMode::Delivery).expect("sent");
        }
        wait(ep, Queue::Recv);
        if !begins {
            send(ep, peer, 1, &mut out, SendMode::Delivery).expect("sent");
        }
        wait(ep, Queue::Send);
        assert!(back == out, "{len} bytes differ");
    }
}

fn wait(ep: &Endpoint, queue: Queue) -> Completion {
    let (start, mut out) = (Instant::now(), Vec::new());
    while ep.poll(queue, &mut out, 1) == 0 {
        assert!(start.elapsed() < LIMIT, "no completion: {}", ep.counters_json());
    }
    assert_eq!(out[0].result, Ok(()));
    out[0]
}

/// What carries messages to the only peer, and why.
fn carrier(ep: &Endpoint) -> (String, String) {
    let json = ep.counters_json();
    let text = |name: &str| {
        let from = json.find(&format!("\"{name}\":\"")).unwrap_or_else(|| panic!("no {name} in {json}"));
        json[from + name.len() + 4..].split('"').next().unwrap_or_default().to_owned()
    };
    (text("carrier"), text("carrier_why"))
}

fn check(who: &str, (carrier, why): (&str, &str), (wanted, because): (&str, &str)) {
    assert!(carrier.starts_with(wanted) && why.contains(because), "{who}: {carrier}: {why}");
}

fn run(case: &Case, mut other: Other) {
    assert_eq!(other.line(), "can");
    let ep = open(any());
    other.tell(&hex(&ep.name()));
    let to = ep.insert_peer(&name_of(&other.line())).expect("name");
    exchange(&ep, to, !case.other_begins);
    let (told, because) = (other.line(), other.line());
    check("there", (&told, &because), case.there);
    let (carrier, why) = carrier(&ep);
    check("here", (&carrier, &why), case.here);
    other.tell("over");
    ep.close();
}

/// The other process.
fn other(case: &Case) {
    if let Err(why) = live_under(case.condition) {
        println!("{CANNOT}{why}");
        return;
    }
    println!("can");
    let mut lines = std::io::stdin().lines();
    // Only asked whether it can.
    let Some(Ok(name)) = lines.next() else { return };
    let ep = Endpoint::open_with_key(any(), KEY).expect("open");
    println!("{}", hex(&ep.name()));
    let peer = ep.insert_peer(&name_of(&name)).expect("name");
    exchange(&ep, peer, case.other_begins);
    let (carrier, why) = carrier(&ep);
    println!("{carrier}\n{why}");
    let _ = lines.next();
    ep.close();
}

/// Makes this process, which has one thread, live under it; with another pid namespace a child of
/// it goes on.
fn live_under(condition: Condition) -> Result<(), String> {
    match condition {
        Condition::OtherUser => become_nobody(),
        Condition::PidNamespace => in_pid_namespace(),
        // SAFETY: takes no pointer; this process has one thread.
        Condition::UserNamespace => system("unshare", unsafe { libc::unshare(libc::CLONE_NEWUSER) }),
        Condition::NotPermitted => refuse(libc::SYS_process_vm_readv, libc::EPERM),
        Condition::NoSuchCall => refuse(libc::SYS_process_vm_readv, libc::ENOSYS),
        Condition::NoMemfd => refuse(libc::SYS_memfd_create, libc::ENOSYS),
        Condition::SmallFiles => {
            let limit = libc::rlimit { rlim_cur: 400 << 10, rlim_max: 400 << 10 };
            // SAFETY: the pointer is to `limit`, which lives through the call.
            system("setrlimit", unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) })
        }
        // Only endpoints listen here.
        Condition::NoUnixSocket => refuse(libc::SYS_listen, libc::EPERM),
    }
}

fn system(call: &str, result: i32) -> Result<(), String> {
    if result == 0 { Ok(()) } else { Err(format!("{call}: {}", std::io::Error::last_os_error())) }
}

fn become_nobody() -> Result<(), String> {
    const NOBODY: u32 = 65534;
    // SAFETY: no pointers but the empty list; this process has one thread.
    unsafe {
        if libc::geteuid() == NOBODY {
            return Err("this user is the other one already".into());
        }
        system("setgroups", libc::setgroups(0, std::ptr::null()))?;
        system("setresgid", libc::setresgid(NOBODY, NOBODY, NOBODY))?;
        system("setresuid", libc::setresuid(NOBODY, NOBODY, NOBODY))
    }
}

fn in_pid_namespace() -> Result<(), String> {
    // SAFETY: takes no pointer; this process has one thread.
    system("unshare", unsafe { libc::unshare(libc::CLONE_NEWPID) })?;
    // SAFETY: this process has one thread.
    match unsafe { libc::fork() } {
        0 => Ok(()),
        -1 => Err("fork failed".into()),
        child => {
            let mut status = 0;
            // SAFETY: our own child; the status is a valid place.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            std::process::exit(status);
        }
    }
}

/// From now on this system call fails in this process, as under a container's filter.
fn refuse(call: libc::c_long, errno: i32) -> Result<(), String> {
    use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, sock_filter};
    let line = |code: u32, jt, jf, k: u32| sock_filter { code: code as u16, jt, jf, k };
    let mut filter = [
        // The call's number is the first word of what a filter sees.
        line(BPF_LD | BPF_W | BPF_ABS, 0, 0, 0),
        line(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, call as u32),
        line(BPF_RET | BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | errno as u32),
        line(BPF_RET | BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program and its filter live through the call, which copies them.
    unsafe {
        system("PR_SET_NO_NEW_PRIVS", libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
        system("PR_SET_SECCOMP", libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program))
    }
}

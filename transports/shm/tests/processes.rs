//! Two processes: this program starts itself as the other. What goes wrong with processes: killed,
//! stopped, forked, out of descriptors.

use libtest_mimic::{Arguments, Failed, Trial};
use std::io::{IoSlice, Read, Write};
use std::os::fd::AsRawFd;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use weir_shm::{Config, ConnectError, Event, PeerIx, RecvError, SendError, Shm, State, Why};

const KEY: [u8; 32] = [11; 32];
/// Far beyond what anything here takes.
const LIMIT: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    if let ["--role", role, id] = args.iter().skip(1).map(String::as_str).collect::<Vec<_>>()[..] {
        child(role, id.parse().expect("an id"));
        return ExitCode::SUCCESS;
    }
    let trial = |name: &str, run: fn()| {
        Trial::test(name, move || {
            run();
            Ok::<(), Failed>(())
        })
    };
    let trials = vec![
        trial("records_cross_between_processes", records_cross_between_processes),
        trial("a_killed_peer_wakes_who_sleeps_and_its_records_are_read", killed),
        trial("a_stopped_peer_fills_its_ring_and_goes_on", stopped),
        trial("a_killed_peer_is_noticed_though_a_forked_child_has_its_descriptors", orphaned)
            .with_ignored_flag(!pidfd()),
        trial("a_forked_child_cannot_use_the_endpoint_and_does_not_end_it", forked),
        trial("who_is_out_of_descriptors_takes_connections_later", starved),
        trial("associations_leave_no_descriptors_and_mappings_behind", cycles),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn pidfd() -> bool {
    // SAFETY: no pointers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, std::process::id(), 0) };
    if fd >= 0 {
        // SAFETY: it was just made, for us alone.
        unsafe { libc::close(fd as i32) };
    }
    fd >= 0
}

fn id() -> u64 {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).expect("randomness");
    u64::from_ne_bytes(bytes)
}

fn open(id: u64) -> Shm {
    Shm::open(id, &KEY, Config::default()).expect("an endpoint")
}

/// An endpoint with its clock.
struct Here {
    shm: Shm,
    begin: Instant,
    events: Vec<Event>,
}

impl Here {
    fn new(shm: Shm) -> Here {
        Here { shm, begin: Instant::now(), events: Vec::new() }
    }

    fn poll(&mut self) {
        let now = u64::try_from(self.begin.elapsed().as_nanos()).expect("short");
        self.shm.poll(now, &mut self.events);
    }

    fn until<T>(&mut self, mut found: impl FnMut(&mut Here) -> Option<T>) -> T {
        let begin = Instant::now();
        loop {
            self.poll();
            if let Some(found) = found(self) {
                return found;
            }
            assert!(begin.elapsed() < LIMIT, "nothing more happens: {:?}", self.events);
            std::thread::yield_now();
        }
    }

    fn up(&mut self) -> PeerIx {
        self.until(|here| {
            here.events.first().map(|event| match event {
                Event::Up { peer, .. } => *peer,
                Event::Over { why, .. } => panic!("{why}"),
            })
        })
    }

    fn over(&mut self) -> Why {
        self.until(|here| {
            here.events.iter().find_map(|event| match event {
                Event::Over { why, .. } => Some(*why),
                Event::Up { .. } => None,
            })
        })
    }

    fn receive(&mut self, peer: PeerIx) -> (u16, Vec<u8>) {
        self.until(|here| {
            here.shm.try_recv(peer).expect("whole").map(|record| (record.kind(), record.bytes().to_vec()))
        })
    }

    fn send(&mut self, peer: PeerIx, kind: u16, payload: &[u8]) {
        self.until(|here| match here.shm.send(peer, kind, &[IoSlice::new(payload)]) {
            Ok(()) => Some(()),
            Err(SendError::Full) => None,
            Err(cause) => panic!("{cause}"),
        });
    }

    /// Sleeps until the wait descriptor is readable.
    fn sleep(&mut self) {
        while !self.shm.prepare_sleep() {
            self.poll();
        }
        let mut fd = libc::pollfd { fd: self.shm.wait_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: the pointer is to one pollfd.
        let n = unsafe { libc::poll(&raw mut fd, 1, LIMIT.as_millis() as i32) };
        assert_eq!(n, 1, "nobody woke us");
        self.shm.cancel_sleep();
    }
}

/// The other process; killed at the end.
struct Other(Child);

impl Other {
    fn start(role: &str, id: u64) -> Other {
        let program = std::env::current_exe().expect("this program");
        let mut command = Command::new(program);
        command.args(["--role", role, &id.to_string()]).stdout(Stdio::piped()).stdin(Stdio::piped());
        Other(command.spawn().expect("a process"))
    }

    /// Waits for its next byte; none at its end.
    fn says(&mut self) -> Option<u8> {
        let mut byte = [0];
        let n = self.0.stdout.as_mut().expect("a pipe").read(&mut byte).expect("a pipe");
        (n == 1).then_some(byte[0])
    }

    fn signal(&self, signal: i32) {
        // SAFETY: no pointers; the process is our child and was not waited for.
        unsafe { libc::kill(self.0.id() as i32, signal) };
    }

    fn succeeds(mut self) {
        assert!(self.0.wait().expect("a child").success());
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn say(byte: u8) {
    std::io::stdout().write_all(&[byte]).expect("a pipe");
    std::io::stdout().flush().expect("a pipe");
}

/// A started process that listens, and an association with it.
fn with(role: &str) -> (Other, Here, PeerIx) {
    let theirs = id();
    let mut other = Other::start(role, theirs);
    assert_eq!(other.says(), Some(b'r'));
    let mut here = Here::new(open(id()));
    let peer = here.shm.connect(theirs, 0).expect("begun");
    assert_eq!(here.up(), peer);
    (other, here, peer)
}

fn child(role: &str, own: u64) {
    if role == "cycles" {
        return child_cycles(own);
    }
    let mut here = Here::new(open(own));
    say(b'r');
    if role == "starved" {
        return child_starved(&mut here);
    }
    let peer = here.up();
    match role {
        "echo" => loop {
            let (kind, bytes) = here.receive(peer);
            if kind == 0 {
                return;
            }
            here.send(peer, kind, &bytes);
        },
        "speak" => {
            here.send(peer, 5, b"what was said before");
            say(b's');
            std::thread::sleep(LIMIT);
        }
        "orphan" => {
            // SAFETY: this process has one thread.
            if unsafe { libc::fork() } == 0 {
                // Holds copies of all descriptors until the test's end of the pipe goes.
                let _ = std::io::stdin().read(&mut [0]);
                std::process::exit(0);
            }
            say(b's');
            std::thread::sleep(LIMIT);
        }
        "forked" => child_forked(&mut here, peer),
        _ => panic!("no such role"),
    }
}

fn child_forked(here: &mut Here, peer: PeerIx) {
    // SAFETY: this process has one thread.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let shm = &mut here.shm;
        let refused = shm.send(peer, 1, &[]) == Err(SendError::Forked)
            && shm.try_recv(peer).err() == Some(RecvError::Forked)
            && shm.connect(1, 0) == Err(ConnectError::Forked)
            && shm.next_ready().is_none();
        let mut events = Vec::new();
        shm.poll(u64::MAX, &mut events);
        shm.forget(peer);
        // SAFETY: the parent's copy, in its own process, is not touched; this one is not used
        // again.
        unsafe { std::ptr::drop_in_place(shm) };
        // SAFETY: ends this process without running anything of the parent's.
        unsafe { libc::_exit(if refused && events.is_empty() { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: the pointer is to `status`.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(status, 0, "the forked child could use its parent's endpoint");
    here.send(peer, 7, b"the parent goes on");
    assert_eq!(here.receive(peer).0, 8);
}

fn limit(soft: u64) -> u64 {
    let mut old = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointers are to `old` and `new`.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut old) };
    let new = libc::rlimit { rlim_cur: soft.min(old.rlim_max), ..old };
    // SAFETY: as above.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const new) };
    old.rlim_cur
}

fn child_starved(here: &mut Here) {
    let before = limit(3);
    here.until(|here| (here.shm.counters().accept_failures > 0).then_some(()));
    // Whoever sleeps now is not woken by the connection that it cannot take.
    let mut fd = libc::pollfd { fd: here.shm.wait_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: the pointer is to one pollfd.
    assert_eq!(unsafe { libc::poll(&raw mut fd, 1, 0) }, 0);
    assert!(here.shm.next_timeout_ns().is_some());
    limit(before);
    let peer = here.up();
    here.send(peer, 4, b"late");
    assert_eq!(here.over(), Why::Closed);
}

fn child_cycles(own: u64) {
    let mut hub = open(own);
    let mut now = 1;
    let mut cycle = || {
        let theirs = id();
        let mut other = open(theirs);
        let mut peer = other.connect(own, now).expect("begun");
        let mut events = Vec::new();
        let begin = Instant::now();
        while other.state(peer) != Some(State::Up) || !hub.peers().iter().any(|ix| hub.peer_id(*ix) == Some(theirs)) {
            now += 30_000;
            hub.poll(now, &mut events);
            other.poll(now, &mut events);
            assert!(begin.elapsed() < LIMIT);
        }
        peer = hub.peers()[0];
        hub.forget(peer);
    };
    let count = |path: &str| std::fs::read_dir(path).expect("procfs").count();
    let maps = || std::fs::read_to_string("/proc/self/maps").expect("procfs").matches("weir-shm (deleted)").count();
    cycle();
    let before = count("/proc/self/fd");
    for _ in 0..100 {
        cycle();
    }
    assert_eq!((count("/proc/self/fd"), maps()), (before, 0));
}

fn records_cross_between_processes() {
    let (other, mut here, peer) = with("echo");
    for n in 1..3000u32 {
        let payload: Vec<u8> = (0..n * 13 % 20_000).map(|i| (i ^ n) as u8).collect();
        here.send(peer, n as u16, &payload);
        if n % 100 == 0 {
            // The answer finds a sleeper.
            here.sleep();
        }
        assert_eq!(here.receive(peer), (n as u16, payload));
    }
    here.send(peer, 0, &[]);
    assert_eq!(here.over(), Why::Closed);
    other.succeeds();
}

fn killed() {
    let (mut other, mut here, peer) = with("speak");
    assert_eq!(other.says(), Some(b's'));
    here.poll();
    // Taken before the end, so that only the end can wake.
    assert_eq!(here.receive(peer), (5, b"what was said before".to_vec()));
    other.signal(libc::SIGKILL);
    here.sleep();
    assert_eq!(here.over(), Why::Died);
    let (mut other, mut here, peer) = with("speak");
    assert_eq!(other.says(), Some(b's'));
    other.signal(libc::SIGKILL);
    assert_eq!(here.over(), Why::Died);
    assert_eq!(here.receive(peer), (5, b"what was said before".to_vec()));
}

fn stopped() {
    let (other, mut here, peer) = with("echo");
    other.signal(libc::SIGSTOP);
    let mut sent = 0;
    while here.shm.send(peer, 3, &[IoSlice::new(&[3; 6000])]) != Err(SendError::Full) {
        sent += 1;
        here.poll();
    }
    assert_eq!(here.shm.state(peer), Some(State::Up));
    other.signal(libc::SIGCONT);
    for _ in 0..sent {
        assert_eq!(here.receive(peer), (3, vec![3; 6000]));
    }
}

fn orphaned() {
    let (mut other, mut here, _) = with("orphan");
    assert_eq!(other.says(), Some(b's'));
    other.signal(libc::SIGKILL);
    assert_eq!(here.over(), Why::Died);
}

fn forked() {
    let (other, mut here, peer) = with("forked");
    assert_eq!(here.receive(peer), (7, b"the parent goes on".to_vec()));
    here.send(peer, 8, &[]);
    assert_eq!(here.over(), Why::Closed);
    other.succeeds();
}

fn starved() {
    let (other, mut here, peer) = with("starved");
    assert_eq!(here.receive(peer), (4, b"late".to_vec()));
    drop(here);
    other.succeeds();
}

fn cycles() {
    Other::start("cycles", id()).succeeds();
}

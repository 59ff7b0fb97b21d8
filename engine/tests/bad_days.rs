//! What a bad day brings: stopped and killed processes, full disks, taken ports, no memory, no key,
//! a broken socket. Each ends in bounded time, with one line that names the cause, and nothing that
//! was acknowledged is lost.

mod common;

use common::{
    KEY, LIMIT, about_packets, config, iov, open, open_keeping, post, recv_op, send, send_op, send_when_accepted, told,
    try_post,
};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_engine::{
    BulkUse, CarrierUse, Completion, Endpoint, EngineConfig, EngineError, OpError, Queue, RecvOp, SendMode, SendOp,
};

fn wait(ep: &Endpoint, queue: Queue) -> Completion {
    let (start, mut out) = (Instant::now(), Vec::new());
    while ep.poll(queue, &mut out, 1) == 0 {
        assert!(start.elapsed() < LIMIT, "no completion: {}", ep.counters_json());
    }
    out[0]
}

/// Another process that runs one part of this file.
struct Other {
    child: Child,
    out: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Other {
    fn start(part: &str, env: &[(&str, String)]) -> Other {
        let mut command = Command::new(std::env::current_exe().expect("own path"));
        command.args(["--exact", "part", "--nocapture"]).env("WEIR_TEST_PART", part).env("RUST_BACKTRACE", "0");
        command.envs(env.iter().map(|(k, v)| (*k, v.as_str())));
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("spawn");
        let out = BufReader::new(child.stdout.take().expect("piped")).lines();
        Other { child, out }
    }

    /// The rest of the next line that begins with `word`.
    fn line(&mut self, word: &str) -> String {
        let found = self.out.by_ref().map_while(Result::ok).find_map(|l| l.strip_prefix(word).map(str::to_owned));
        found.unwrap_or_else(|| panic!("the other process said no {word:?}"))
    }

    fn name(&mut self) -> Vec<u8> {
        let hex = self.line("name ");
        (0..48).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).expect("hexadecimal")).collect()
    }

    fn signal(&self, signal: i32) {
        // SAFETY: a signal to our own child, which has not been waited for.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }

    /// Stops it; returns when it has stopped.
    fn stop(&self) {
        self.signal(libc::SIGSTOP);
        let mut status = 0;
        // SAFETY: our own child; the status is a valid place.
        let pid = unsafe { libc::waitpid(self.child.id() as i32, &raw mut status, libc::WUNTRACED) };
        assert!(pid > 0 && libc::WIFSTOPPED(status), "not stopped");
    }

    /// Whether it is stopped still: somebody else on the machine may have let it go on (a debugger,
    /// a suspended machine).
    fn is_stopped(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
    }

    /// What it says on standard error until its end.
    fn complaints(mut self) -> Vec<String> {
        drop(self.child.stdin.take());
        let lines: Vec<String> =
            BufReader::new(self.child.stderr.take().expect("piped")).lines().map_while(Result::ok).collect();
        let start = Instant::now();
        while self.child.try_wait().expect("wait").is_none() {
            assert!(start.elapsed() < LIMIT, "the other process does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
        lines
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test of its own: the other processes.
#[test]
fn part() {
    match std::env::var("WEIR_TEST_PART").as_deref() {
        Ok("echo") => echo(config()),
        Ok("patient echo") => echo(patient()),
        Ok("echo on this host") => echo(on_this_host()),
        Ok("full") => {
            let full = "/dev/full".to_owned();
            echo(EngineConfig {
                stats: Some(full.clone()),
                trace: 2,
                trace_file: Some(full.clone().into()),
                capture: Some(full),
                ..config()
            });
        }
        Ok("traced") => {
            let file = |name: &str| std::env::var(name).expect("set by the test");
            echo(EngineConfig {
                trace: 2,
                trace_file: Some(file("WEIR_TEST_TRACE").into()),
                capture: Some(file("WEIR_TEST_CAPTURE")),
                ..config()
            });
        }
        Ok("little room") => {
            let file = |name: &str| std::env::var(name).expect("set by the test");
            limit_files();
            echo(EngineConfig {
                trace: file("WEIR_TEST_LEVEL").parse().expect("level"),
                trace_file: Some(file("WEIR_TEST_TRACE").into()),
                capture: Some(file("WEIR_TEST_CAPTURE")),
                ..config()
            });
        }
        Ok("limited") => {
            limit_memory();
            echo(config());
        }
        Ok("limited before") => {
            limit_memory_to(0);
            if let Err(e) = Endpoint::open_with_key(config(), KEY) {
                let _ = writeln!(std::io::stderr(), "weir: {e}");
            }
        }
        Ok("environment") => {
            if let Err(e) = EngineConfig::from_env().and_then(|config| Endpoint::open(config, told())) {
                let _ = writeln!(std::io::stderr(), "weir: {e}");
            }
        }
        _ => {}
    }
}

/// Who waits for longer than anything here lasts.
fn patient() -> EngineConfig {
    EngineConfig { peer_timeout: LIMIT, ..config() }
}

/// By shared memory, whatever the suite runs over, with a timeout that would be over soon.
fn on_this_host() -> EngineConfig {
    EngineConfig { carrier: CarrierUse::Shm, peer_timeout: Duration::from_millis(100), ..config() }
}

/// Sends back each message with tag 1 under tag 2, until standard input closes.
fn echo(cfg: EngineConfig) {
    let ep = open(cfg);
    println!("\nname {}", ep.name().iter().map(|b| format!("{b:02x}")).collect::<String>());
    let mut peer = [0u8; 48];
    std::io::Read::read_exact(&mut std::io::stdin(), &mut peer).expect("the name of the one who asks");
    let peer = ep.insert_peer(&peer).expect("name");
    let over = std::thread::spawn(|| {
        let _ = std::io::Read::read(&mut std::io::stdin(), &mut [0]);
    });
    let mut buf = vec![0; 1 << 20];
    post(&ep, None, 1, &mut buf);
    let mut out = Vec::new();
    while !over.is_finished() {
        out.clear();
        if ep.poll(Queue::Recv, &mut out, 1) == 0 {
            continue;
        }
        let Completion { len, result: Ok(()), .. } = out[0] else { break };
        if send(&ep, peer, 2, &mut buf[..len], SendMode::Delivery).is_err() || wait(&ep, Queue::Send).result.is_err() {
            break;
        }
        if try_post(&ep, None, 1, &mut buf).is_err() {
            break;
        }
    }
    ep.close();
}

fn limit_memory_to(more_bytes: u64) {
    let status = std::fs::read_to_string("/proc/self/statm").expect("statm");
    let pages: u64 = status.split(' ').next().and_then(|n| n.parse().ok()).expect("number");
    let most = pages * 4096 + more_bytes;
    let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: a valid structure; it limits this process only.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
}

/// Most bytes of a file where there is little room: no multiple of anything.
const ROOM_BYTES: u64 = 200_011;

/// As a disk that is nearly full: what goes beyond is written in part, then refused.
fn limit_files() {
    let limit = libc::rlimit { rlim_cur: ROOM_BYTES, rlim_max: ROOM_BYTES };
    // SAFETY: a valid structure, and a signal that is ignored from now on; both concern this
    // process only.
    unsafe {
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit), 0);
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

fn limit_memory() {
    // What an endpoint, its threads (whose stacks and arenas are address space) and one peer's
    // credit need.
    limit_memory_to(128 << 20);
}

fn connect(other: &mut Other, cfg: EngineConfig) -> (Arc<Endpoint>, u32) {
    let ep = open(cfg);
    let to = introduce(other, &ep);
    (ep, to)
}

/// Makes the two known to each other; returns what the other is for `ep`.
fn introduce(other: &mut Other, ep: &Endpoint) -> u32 {
    let to = ep.insert_peer(&other.name()).expect("name");
    let stdin = other.child.stdin.as_mut().expect("piped");
    stdin.write_all(&ep.name()).and_then(|()| stdin.flush()).expect("told");
    to
}

/// One message there and back.
fn ask(ep: &Endpoint, to: u32, len: usize, seed: u8) {
    let mut data: Vec<u8> = (0..len).map(|i| (i as u8).wrapping_mul(31) ^ seed).collect();
    let mut back = vec![0; len];
    post(ep, Some(to), 2, &mut back);
    send(ep, to, 1, &mut data, SendMode::Delivery).expect("sent");
    for _ in 0..2 {
        assert_eq!(wait(ep, Queue::Both).result, Ok(()));
    }
    assert!(back == data, "payload differs");
}

#[test]
fn a_process_stopped_for_less_than_the_timeout_loses_nothing() {
    let mut other = Other::start("patient echo", &[]);
    let (ep, to) = connect(&mut other, patient());
    ask(&ep, to, 8, 1);
    for round in 0..2 {
        other.stop();
        let mut data: Vec<u8> = vec![round; 300_000];
        let mut back = vec![0; 300_000];
        post(&ep, Some(to), 2, &mut back);
        send(&ep, to, 1, &mut data, SendMode::Delivery).expect("sent");
        let (start, mut out) = (Instant::now(), Vec::new());
        while start.elapsed() < Duration::from_millis(700) {
            let n = ep.poll(Queue::Both, &mut out, 1);
            assert!(n == 0 || !other.is_stopped(), "answered while stopped: {out:?}");
        }
        other.signal(libc::SIGCONT);
        while out.len() < 2 {
            out.push(wait(&ep, Queue::Both));
        }
        assert!(out.iter().all(|c| c.result.is_ok()), "{out:?}");
        assert!(back == data);
    }
}

#[test]
fn who_waits_for_a_stopped_process_is_answered_by_a_third() {
    let (mut stopped, mut third) = (Other::start("patient echo", &[]), Other::start("patient echo", &[]));
    let ep = open(patient());
    let (to_stopped, to_third) = (introduce(&mut stopped, &ep), introduce(&mut third, &ep));
    ask(&ep, to_stopped, 8, 1);
    ask(&ep, to_third, 8, 2);
    stopped.stop();
    // More than its credit, its window and its socket take.
    const STOPPED: u64 = 9;
    let mut held: Vec<Vec<u8>> = (0..40).map(|i| vec![i as u8; [200_000, 20_000, 8][i % 3]]).collect();
    let mut back: Vec<Vec<u8>> = held.iter().map(|data| vec![0xff; data.len()]).collect();
    for (data, back) in held.iter_mut().zip(&mut back) {
        let (there, into) = (iov(data), iov(back));
        // SAFETY: both live to the end of the test.
        unsafe { ep.recv(&RecvOp { user: STOPPED, ..recv_op(Some(to_stopped), 2, &into) }) }.expect("receive");
        send_when_accepted(&ep, &SendOp { user: STOPPED, ..send_op(to_stopped, 1, &there, SendMode::Match) });
    }
    for i in 0..300 {
        let len = [8, 3000, 60_000, 500_000][i % 4];
        let (mut question, mut answer) = (vec![i as u8; len], vec![0; len]);
        post(&ep, Some(to_third), 2, &mut answer);
        send(&ep, to_third, 1, &mut question, SendMode::Delivery).expect("sent");
        for _ in 0..2 {
            let c = wait(&ep, Queue::Both);
            assert_eq!((c.result, c.user), (Ok(()), 0), "of the third, and it alone");
        }
        assert!(answer == question, "question {i}");
    }
    assert!(stopped.is_stopped(), "somebody has let it go on");
    stopped.signal(libc::SIGCONT);
    for _ in 0..2 * held.len() {
        let c = wait(&ep, Queue::Both);
        assert_eq!((c.result, c.user), (Ok(()), STOPPED));
    }
    assert!(back == held);
}

#[test]
fn a_process_stopped_for_longer_is_dead_for_both_sides() {
    if about_packets("Over shared memory silence is no sign of death: the test of a process of this host") {
        return;
    }
    let mut other = Other::start("echo", &[]);
    const TIMEOUT: Duration = Duration::from_secs(1);
    let (ep, deaths) = open_keeping(EngineConfig { peer_timeout: TIMEOUT, ..config() });
    let to = introduce(&mut other, &ep);
    // It is heard after this.
    let alive = Instant::now();
    ask(&ep, to, 8, 1);
    let mut back = [0; 8];
    post(&ep, Some(to), 2, &mut back);
    let (mut start, mut out) = (Instant::now(), Vec::new());
    other.stop();
    while ep.poll(Queue::Recv, &mut out, 1) == 0 {
        if !other.is_stopped() {
            start = Instant::now();
            other.stop();
        }
        assert!(start.elapsed() < LIMIT, "no verdict: {}", ep.counters_json());
    }
    let (lived, took) = (alive.elapsed(), start.elapsed());
    let Err(OpError::PeerDown(reason)) = out[0].result else { panic!("{:?}", out[0].result) };
    assert!(reason.to_string().contains("unreachable"), "{reason}");
    let deaths = deaths.lock().expect("kept");
    let told = deaths.iter().any(|line| line.contains("peer 127.0.0.1:") && line.contains("silent for 1.0 s"));
    assert!(told, "{deaths:?}");
    assert!(lived >= TIMEOUT, "taken for dead after {lived:?}");
    // Sooner than one who was told of no such timeout.
    assert!(took < EngineConfig::packets().peer_timeout, "{took:?}");
    assert!(matches!(send(&ep, to, 1, &mut [0; 8], SendMode::Inject), Err(EngineError::PeerDown(_))));
    // Awake again it learns that it was given up, and its own operations fail too: it comes to its
    // end by itself.
    other.signal(libc::SIGCONT);
    let mut keep = Vec::new();
    let start = Instant::now();
    while other.child.try_wait().expect("wait").is_none() && start.elapsed() < Duration::from_secs(3) {
        ep.poll(Queue::Both, &mut keep, 1);
    }
}

/// Silence says nothing where the system tells of the end of a process (spec/shm.md 7).
#[test]
fn a_process_of_this_host_may_be_stopped_for_long_and_its_end_is_known_all_the_same() {
    let mut other = Other::start("echo on this host", &[]);
    let (ep, to) = connect(&mut other, on_this_host());
    ask(&ep, to, 8, 1);
    other.stop();
    let (mut data, mut back) = (vec![7u8; 300_000], vec![0; 300_000]);
    post(&ep, Some(to), 2, &mut back);
    send(&ep, to, 1, &mut data, SendMode::Delivery).expect("sent");
    let (start, mut out) = (Instant::now(), Vec::new());
    while start.elapsed() < Duration::from_secs(1) {
        let n = ep.poll(Queue::Both, &mut out, 1);
        assert!(n == 0 || !other.is_stopped(), "ended while stopped: {out:?}");
    }
    other.signal(libc::SIGCONT);
    while out.len() < 2 {
        out.push(wait(&ep, Queue::Both));
    }
    assert!(out.iter().all(|c| c.result.is_ok()) && back == data, "{out:?}");
    post(&ep, Some(to), 2, &mut back);
    other.stop();
    other.signal(libc::SIGKILL);
    let c = wait(&ep, Queue::Recv);
    assert!(matches!(c.result, Err(OpError::PeerDown(weir_link::DownReason::Gone))), "{c:?}");
}

#[test]
fn full_disks_stop_trace_capture_and_counters_but_no_traffic() {
    let mut other = Other::start("full", &[]);
    let (ep, to) = connect(&mut other, config());
    for i in 0..200 {
        ask(&ep, to, 3000, i);
    }
    let lines = other.complaints();
    for what in ["trace", "capture", "counters"] {
        let about: Vec<&String> = lines.iter().filter(|l| l.starts_with("weir") && l.contains(what)).collect();
        assert_eq!(about.len(), 1, "{what}: {lines:?}");
        assert!(about[0].contains("No space left"), "{about:?}");
    }
}

/// Whether a capture consists of whole blocks.
fn is_whole_capture(mut bytes: &[u8]) -> bool {
    let word = |at: &[u8]| at.first_chunk().map_or(0, |b| u32::from_le_bytes(*b) as usize);
    while let Some(len) = bytes.get(4..).map(word) {
        if len < 12 || len > bytes.len() || word(&bytes[len - 4..]) != len {
            return false;
        }
        bytes = &bytes[len..];
    }
    bytes.is_empty()
}

#[test]
fn what_a_full_disk_cuts_short_ends_with_a_whole_line_or_packet() {
    if about_packets("Shared memory has no packets to be captured and traced") {
        return;
    }
    let file = |what: &str| std::env::temp_dir().join(format!("weir-cut-{}-{what}", std::process::id()));
    let (trace, capture) = (file("trace"), file("capture"));
    for level in ["2", "3"] {
        let mut other = Other::start(
            "little room",
            &[
                ("WEIR_TEST_TRACE", trace.display().to_string()),
                ("WEIR_TEST_CAPTURE", capture.display().to_string()),
                ("WEIR_TEST_LEVEL", level.to_owned()),
            ],
        );
        let (ep, to) = connect(&mut other, config());
        for i in (0..200).cycle().take(2000) {
            ask(&ep, to, 3000, i);
        }
        let lines = other.complaints();
        for what in ["trace stopped", "capture to"] {
            let about = lines.iter().filter(|l| l.starts_with("weir: ") && l.contains(what)).count();
            assert_eq!(about, 1, "{what}: {lines:?}");
        }
        let text = std::fs::read_to_string(&trace).expect("trace");
        let room = ROOM_BYTES as usize;
        assert!(text.ends_with('\n') && text.len() <= room, "level {level}: {} bytes", text.len());
        assert!(text.len() > room - 1000, "what there was room for is there: {} bytes", text.len());
        let packets = std::fs::read(&capture).expect("capture");
        assert!(is_whole_capture(&packets), "level {level}: {} bytes of packets", packets.len());
        // Packets may be as long as IP carries them.
        assert!(packets.len() > room - 70_000 && packets.len() <= room, "{} bytes of packets", packets.len());
    }
    for file in [trace, capture] {
        std::fs::remove_file(file).expect("it was there");
    }
}

#[test]
fn of_processes_that_name_one_file_the_first_writes_it_and_the_others_say_so() {
    let file = |what: &str| std::env::temp_dir().join(format!("weir-shared-{}-{what}", std::process::id()));
    let (trace, capture) = (file("trace"), file("capture"));
    let env = [("WEIR_TEST_TRACE", trace.display().to_string()), ("WEIR_TEST_CAPTURE", capture.display().to_string())];
    let mut first = Other::start("traced", &env);
    let (ep, to) = connect(&mut first, config());
    let mut second = Other::start("traced", &env);
    second.name();
    let lines = second.complaints();
    for variable in ["WEIR_TRACE_FILE", "WEIR_CAPTURE"] {
        let about: Vec<&String> = lines.iter().filter(|l| l.contains(variable)).collect();
        assert!(about.len() == 1 && about[0].contains("%p"), "{variable}: {lines:?}");
    }
    ask(&ep, to, 3000, 1);
    assert_eq!(first.complaints(), Vec::<String>::new());
    let text = std::fs::read_to_string(&trace).expect("trace");
    assert_eq!(text.lines().filter(|l| l.contains("level 2, time 0 is")).count(), 1, "{text}");
    assert!(text.lines().next().is_some_and(|l| l.contains("time 0 is")), "{text}");
    assert!(std::fs::read(&capture).expect("capture").starts_with(&0x0a0d_0d0a_u32.to_le_bytes()));
    for file in [trace, capture] {
        std::fs::remove_file(file).expect("it was there");
    }
}

#[test]
fn a_process_short_of_memory_keeps_what_it_accepted() {
    let mut other = Other::start("limited", &[]);
    let (ep, to) = connect(&mut other, config());
    ask(&ep, to, 8, 1);
    // Far more than the limit, unexpected: the credit slows the sender, the receiver never holds
    // more.
    let mut data = vec![5u8; 60_000];
    let mut out = Vec::new();
    for _ in 0..3000 {
        send(&ep, to, 77, &mut data, SendMode::Transmit).expect("fewer than the credit has");
        ep.poll(Queue::Send, &mut out, 16);
    }
    assert!(out.iter().all(|c| c.result.is_ok()));
    let (mut back, mut question) = (vec![0; 1 << 20], vec![3u8; 1 << 20]);
    post(&ep, Some(to), 2, &mut back);
    send(&ep, to, 1, &mut question, SendMode::Delivery).expect("sent");
    while wait(&ep, Queue::Both).tag != 2 {}
    assert!(back == question);
}

#[test]
fn no_memory_at_all_is_said_in_a_line() {
    let lines = Other::start("limited before", &[]).complaints();
    // (A library of SCTP that finds no room is told in the words of the loader.)
    let causes = ["memory", "starting", "failed to map"];
    assert!(lines.iter().any(|line| causes.iter().any(|cause| line.contains(cause))), "{lines:?}");
}

#[test]
fn a_missing_key_is_said_in_a_line() {
    let env = [("WEIR_KEY_FILE", "/nonexistent/key".to_owned()), ("WEIR_ADDR", "127.0.0.1".to_owned())];
    let lines = Other::start("environment", &env).complaints();
    let about: Vec<&String> = lines.iter().filter(|l| l.starts_with("weir: ")).collect();
    assert!(about.len() == 1 && about[0].contains("/nonexistent/key"), "{lines:?}");
}

// spec: P-7.3
#[test]
fn a_name_of_another_version_is_refused_with_a_clear_word() {
    let (a, b) = (open(config()), open(config()));
    let mut name = b.name();
    name[0] = 2;
    let error = a.insert_peer(&name).expect_err("must be refused").to_string();
    assert!(error.contains("version"), "{error}");
    // Packets of another version are dropped, and counted.
    let to = a.insert_peer(&b.name()).expect("name");
    let port = u16::from_be_bytes([b.name()[2], b.name()[3]]);
    let stranger = std::net::UdpSocket::bind("127.0.0.1:0").expect("socket");
    for kind in 0x20..0x27 {
        stranger.send_to(&[kind; 160], ("127.0.0.1", port)).expect("sent");
    }
    let mut buf = [0; 8];
    post(&b, None, 1, &mut buf);
    send(&a, to, 1, &mut [3; 8], SendMode::Inject).expect("sent");
    let start = Instant::now();
    let mut out = Vec::new();
    while b.poll(Queue::Recv, &mut out, 1) == 0 {
        a.progress();
        assert!(start.elapsed() < LIMIT);
    }
    assert_eq!(buf, [3; 8]);
    assert!(b.counters_json().contains("\"dropped_malformed\":7"), "{}", b.counters_json());
}

#[test]
fn a_taken_port_is_said_in_a_line() {
    let a = open(config());
    let port = u16::from_be_bytes([a.name()[2], a.name()[3]]);
    let Err(error) = Endpoint::open_with_key(EngineConfig { port, ..config() }, KEY) else { panic!("must be refused") };
    let text = error.to_string();
    assert!(text.contains(&port.to_string()) && text.contains("in use") && !text.contains('\n'), "{text}");
}

#[test]
fn endpoints_share_a_range_of_ports_until_it_is_full() {
    // Below those that the system gives away by itself; where another program sits in the range
    // there is less of it.
    let range = EngineConfig { port: 23_457, port_span: 4, bulk_connections: BulkUse::Auto, ..config() };
    let port_of = |ep: &Endpoint| u16::from_be_bytes([ep.name()[2], ep.name()[3]]);
    let mut open = Vec::new();
    let error = loop {
        match Endpoint::open_with_key(range.clone(), KEY) {
            Ok(ep) => open.push(ep),
            Err(error) => break error.to_string(),
        }
        assert!(open.len() <= 4, "more than the range has");
    };
    let mut ports: Vec<u16> = open.iter().map(|ep| port_of(ep)).collect();
    ports.dedup();
    assert!(ports.len() == open.len() && ports.len() >= 2, "{ports:?}: {error}");
    assert!(ports.iter().all(|port| (23_457..23_461).contains(port)), "{ports:?}");
    assert!(error.contains("ports 23457 to 23460") && error.contains("all in use"), "{error}");
}

#[test]
fn an_address_nobody_answers_at_fails_its_operations_in_bounded_time() {
    let ep = open(EngineConfig { connect_timeout: Duration::from_millis(500), ..config() });
    // A place for documentation only (RFC 5737); bound to the loop interface the kernel refuses it
    // at once.
    let mut name = open(config()).name();
    name[16..21].copy_from_slice(&[4, 192, 0, 2, 1]);
    let to = ep.insert_peer(&name).expect("name");
    let start = Instant::now();
    let mut data = [0; 8];
    send(&ep, to, 1, &mut data, SendMode::Delivery).expect("accepted");
    let Err(OpError::PeerDown(reason)) = wait(&ep, Queue::Send).result else { panic!("must fail") };
    // Sooner than one who was told of no such timeout.
    assert!(start.elapsed() < EngineConfig::packets().connect_timeout, "{:?}", start.elapsed());
    assert!(reason.to_string().contains("unreachable"), "{reason}");
}

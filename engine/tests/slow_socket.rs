//! A socket whose send buffer stays full: the endpoint waits for room, asleep, and queues nothing of its own. Needs a network namespace with a slow link; where that is missing the
//! test is reported as ignored, not as passed.

use libtest_mimic::{Arguments, Failed, Trial};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_engine::{Class, Endpoint, EngineConfig, Iov, RecvOp, SendMode, SendOp};

const INSIDE: &str = "WEIR_TEST_SLOW_SOCKET";
const KEY: [u8; 32] = [7; 32];
const LIMIT: Duration = Duration::from_secs(60);

/// Loopback at 40 Mbit/s, so that datagrams stay in the queue and are charged to the socket.
const SLOW_LOOPBACK: &str = "ip link set lo up && tc qdisc add dev lo root tbf rate 40mbit burst 10kb latency 10s";

fn main() -> ExitCode {
    if std::env::var_os(INSIDE).is_some() {
        a_full_send_buffer_is_waited_for();
        return ExitCode::SUCCESS;
    }
    let slow_link = unshare()
        .and_then(|mut c| c.args(["sh", "-c", SLOW_LOOPBACK]).output().ok())
        .is_some_and(|o| o.status.success());
    let trials = vec![Trial::test("a_full_send_buffer_is_waited_for", in_namespace).with_ignored_flag(!slow_link)];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// A command line that runs the rest in a new network namespace.
fn unshare() -> Option<Command> {
    ["-n", "-rn"].into_iter().find_map(|flags| {
        let works = Command::new("unshare").args([flags, "true"]).output().ok()?.status.success();
        works.then(|| {
            let mut c = Command::new("unshare");
            c.arg(flags);
            c
        })
    })
}

fn in_namespace() -> Result<(), Failed> {
    let exe = std::env::current_exe()?;
    let script = format!("{SLOW_LOOPBACK} && exec \"$0\"");
    let mut c = unshare().ok_or("namespaces are gone")?;
    let out = c.args(["sh", "-c", &script]).arg(exe).env(INSIDE, "1").output()?;
    if out.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&out.stderr).into_owned().into()) }
}

fn open() -> Arc<Endpoint> {
    let addrs = vec!["127.0.0.1".parse().expect("address")];
    Endpoint::open_with_key(EngineConfig { addrs, ..EngineConfig::default() }, KEY).expect("open")
}

/// Gives the datagram sockets of this process the smallest send buffer there is.
fn shrink_send_buffers() {
    let mut found = 0;
    for fd in 3..100 {
        let (mut kind, mut len) = (0i32, size_of::<i32>() as libc::socklen_t);
        let least = 1i32;
        // SAFETY: pointers to live integers of the lengths given; whatever the descriptor is, the calls only fail.
        unsafe {
            let r = libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_TYPE, (&raw mut kind).cast(), &raw mut len);
            if r == 0 && kind == libc::SOCK_DGRAM {
                found += 1;
                libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, (&raw const least).cast(), len);
            }
        }
    }
    assert!(found >= 2, "{found} sockets found");
}

fn counter(ep: &Endpoint, name: &str) -> u64 {
    let json = ep.counters_json();
    let at = json.split(&format!("\"{name}\":")).nth(1).unwrap_or_else(|| panic!("no {name} in {json}"));
    at.split([',', '}']).next().and_then(|n| n.parse().ok()).expect("number")
}

fn a_full_send_buffer_is_waited_for() {
    const LEN: usize = 2 << 20;
    let (a, b) = (open(), open());
    let to_b = a.insert_peer(&b.name()).expect("name");
    b.insert_peer(&a.name()).expect("name");
    shrink_send_buffers();
    let mut data: Vec<u8> = (0..LEN).map(|i| ((i * 7) >> 3) as u8).collect();
    let mut buf = vec![0u8; LEN];
    let receive = RecvOp {
        source: None,
        class: Class::Tagged,
        tag: 1,
        ignore: 0,
        iov: &[Iov { base: buf.as_mut_ptr(), len: LEN }],
        multi_min: None,
        report: true,
        context: 1,
        user: 0,
    };
    // SAFETY: the buffer lives to the end.
    unsafe { b.recv(&receive) }.expect("receive");
    let send = SendOp {
        peer: to_b,
        class: Class::Tagged,
        tag: 1,
        data: None,
        iov: &[Iov { base: data.as_mut_ptr(), len: LEN }],
        mode: SendMode::Delivery,
        copy: false,
        report: true,
        context: 1,
        user: 0,
    };
    // SAFETY: as above.
    unsafe { a.send(&send) }.expect("send");
    // Nobody polls: the watchdog threads do all the work.
    let start = Instant::now();
    while b.totals().recvs == 0 || a.totals().sends == 0 {
        std::thread::sleep(Duration::from_millis(20));
        assert!(start.elapsed() < LIMIT, "{} {}", a.counters_json(), b.counters_json());
    }
    assert_eq!(data, buf);
    let (tried, sent) = (counter(&a, "tx_blocked"), counter(&a, "tx_datagrams"));
    assert!(tried > 0, "the link was not slow enough for this test");
    // Who is told of room sends at least one datagram before it is full again; polled, it was tried twice for each.
    assert!(tried < sent, "a full socket was tried {tried} times for {sent} datagrams");
}

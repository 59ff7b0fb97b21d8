//! Tests that need something a machine may lack: IPv6, or a network namespace with a slow link. Where it is missing they are reported as
//! ignored, not as passed.

mod common;

use common::{collect, config, loopback, pattern, send};
use libtest_mimic::{Arguments, Failed, Trial};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};
use weir_udp::{UdpConfig, UdpTransport};

const INSIDE: &str = "WEIR_UDP_TEST_INSIDE";

fn main() -> ExitCode {
    if std::env::var_os(INSIDE).is_some() {
        a_full_send_buffer_loses_nothing();
        return ExitCode::SUCCESS;
    }
    let ipv6 = UdpTransport::bind(&config("[::1]:0")).is_ok();
    let slow_link = unshare()
        .and_then(|mut c| c.args(["sh", "-c", SLOW_LOOPBACK]).output().ok())
        .is_some_and(|o| o.status.success());
    let trials = vec![
        Trial::test("one_socket_speaks_ipv4_and_ipv6", || {
            one_socket_speaks_ipv4_and_ipv6();
            Ok(())
        })
        .with_ignored_flag(!ipv6),
        Trial::test("a_full_send_buffer_loses_nothing", in_namespace).with_ignored_flag(!slow_link),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Loopback at 40 Mbit/s, so that datagrams stay in the queue and are charged to the socket.
const SLOW_LOOPBACK: &str = "ip link set lo up && tc qdisc add dev lo root tbf rate 40mbit burst 10kb latency 10s";

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

fn one_socket_speaks_ipv4_and_ipv6() {
    let both = UdpConfig {
        addrs: vec!["127.0.0.1".parse().expect("an address"), "::1".parse().expect("an address")],
        ..UdpConfig::default()
    };
    let mut t = UdpTransport::bind(&both).expect("a dual-stack socket");
    for (bind, i) in [("127.0.0.1:0", 0), ("[::1]:0", 1)] {
        let mut peer = UdpTransport::bind(&config(bind)).expect("a socket");
        let own = t.local_addrs()[i];
        for len in [10, 10, 4] {
            send(&mut peer, own, &vec![7; len], &[]);
        }
        peer.flush().expect("flush");
        let got = collect(&mut t, 3);
        assert_eq!(got.iter().map(|(_, d)| d.len()).collect::<Vec<_>>(), [10, 10, 4]);
        assert!(got.iter().all(|(info, _)| info.local == Some(own.ip()) && info.remote == peer.local_addrs()[0]));
        for len in [9, 9, 2] {
            t.push(peer.local_addrs()[0], Some(own.ip()), &vec![8; len], &[]);
        }
        t.flush().expect("flush");
        let back = collect(&mut peer, 3);
        assert_eq!(back.iter().map(|(_, d)| d.len()).collect::<Vec<_>>(), [9, 9, 2]);
        assert!(back.iter().all(|(info, _)| info.remote == own));
    }
}

fn a_full_send_buffer_loses_nothing() {
    for offload in [true, false] {
        let small = UdpConfig { sndbuf_bytes: 1, offload, ..config("127.0.0.1:0") };
        let mut a = UdpTransport::bind(&small).expect("a socket");
        let mut b = loopback();
        let to = b.local_addrs()[0];
        let mut pushed = Vec::new();
        while !a.blocked() {
            assert!(pushed.len() < 10_000, "the send buffer never fills");
            let mut payload = pattern(pushed.len(), 1000);
            send(&mut a, to, &(pushed.len() as u32).to_le_bytes(), &payload);
            a.flush().expect("flush");
            pushed.push(payload.clone());
            // What is parked must be a copy.
            payload.fill(0);
        }
        // A little more while blocked: kept too.
        for _ in 0..20 {
            let payload = pattern(pushed.len(), 1000);
            send(&mut a, to, &(pushed.len() as u32).to_le_bytes(), &payload);
            pushed.push(payload);
        }
        let end = Instant::now() + Duration::from_secs(10);
        while a.blocked() && Instant::now() < end {
            assert!(a.wait(Some(Duration::from_secs(5))).expect("ppoll"), "the socket gets room again");
            a.flush().expect("flush");
        }
        let got = collect(&mut b, pushed.len());
        assert_eq!(got.len(), pushed.len(), "{:?}", a.counters());
        for (i, (_, d)) in got.iter().enumerate() {
            assert_eq!(d[..4], (i as u32).to_le_bytes());
            assert_eq!(d[4..], pushed[i]);
        }
        assert!(a.counters().tx_blocked > 0);
        assert_eq!((a.counters().tx_parked_overflow, a.counters().tx_refused), (0, 0));
    }
    parking_is_bounded();
}

fn parking_is_bounded() {
    let small = UdpConfig { sndbuf_bytes: 1, parked_limit_bytes: 8192, ..config("127.0.0.1:0") };
    let mut a = UdpTransport::bind(&small).expect("a socket");
    let b = loopback();
    for i in 0..200 {
        send(&mut a, b.local_addrs()[0], &[i; 1000], &[]);
        a.flush().expect("flush");
    }
    assert!(a.blocked() && a.counters().tx_parked_overflow > 50, "{:?}", a.counters());
}

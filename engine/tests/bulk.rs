//! Bulk connections between whole endpoints: large payload goes by TCP, and whatever becomes of the
//! connections it arrives once and whole.

mod common;

use common::{LIMIT, Pair, counter, iov, open, packets, pair_of, pair_with, pattern, post, recv_op, send, wait};
use socket2::{SockFilter, SockRef};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{BorrowedFd, FromRawFd, RawFd};
use std::time::Instant;
use weir_engine::{BulkUse, Endpoint, EngineConfig, Queue, RecvOp, SendMode};

fn always() -> EngineConfig {
    EngineConfig { bulk_connections: BulkUse::Always, ..packets() }
}

/// One message from `a` to `b`, received while it comes, or (`late`) when it has come.
fn message(p: &Pair, tag: u64, len: usize, late: bool) {
    let (mut data, mut buf) = (pattern(len, tag as u8), vec![0; len + 1]);
    if !late {
        post(&p.b, None, tag, &mut buf[..len]);
    }
    send(&p.a, p.to_b, tag, &mut data, SendMode::Delivery).expect("send");
    if late {
        let sent = len <= 64 << 10;
        if sent {
            wait(&p.a, &p.b, Queue::Send);
        }
        post(&p.b, None, tag, &mut buf[..len]);
        wait(&p.b, &p.a, Queue::Recv);
        if !sent {
            wait(&p.a, &p.b, Queue::Send);
        }
    } else {
        let c = wait(&p.b, &p.a, Queue::Recv);
        assert_eq!((c.result, c.len), (Ok(()), len));
        wait(&p.a, &p.b, Queue::Send);
    }
    assert!(buf[..len] == data[..], "message {tag} of {len} bytes");
    assert_eq!(buf[len], 0, "bytes behind the receive were written");
}

/// Sends until the bulk connection is there.
fn with_bulk(p: &Pair) {
    let start = Instant::now();
    while counter(&p.a, "bulk_connections_opened") == 0 || counter(&p.b, "bulk_connections_opened") == 0 {
        // More than a datagram of loopback's.
        message(p, 1, 100_000, false);
        assert!(start.elapsed() < LIMIT, "no bulk connection: {} {}", p.a.counters_json(), p.b.counters_json());
    }
}

/// The descriptors of this process.
fn descriptors() -> impl Iterator<Item = RawFd> {
    let all = std::fs::read_dir("/proc/self/fd").expect("proc");
    all.filter_map(|e| e.ok()?.file_name().to_str()?.parse::<RawFd>().ok())
}

/// The ports of the two endpoints.
fn ports(p: &Pair) -> [u16; 2] {
    [p.a.name(), p.b.name()].map(|name| u16::from_be_bytes([name[2], name[3]]))
}

/// TCP connections of this process between the two endpoints (whose sockets have these ports).
fn connections(p: &Pair) -> Vec<RawFd> {
    let ports = ports(p);
    descriptors()
        .filter(|fd| {
            // SAFETY: only asks; the descriptor is not closed by this copy.
            let s = std::mem::ManuallyDrop::new(unsafe { TcpStream::from_raw_fd(*fd) });
            let at = |a: std::io::Result<SocketAddr>| a.is_ok_and(|a| ports.contains(&a.port()));
            // Only TCP has the option; datagram sockets may be connected too.
            s.nodelay().is_ok() && s.peer_addr().is_ok() && (at(s.peer_addr()) || at(s.local_addr()))
        })
        .collect()
}

#[test]
fn messages_of_all_lengths_expected_and_not_are_whole() {
    let p = pair_with(always());
    with_bulk(&p);
    let before = counter(&p.b, "bulk_bytes_received");
    let mut large = 0;
    for (i, len) in [0, 1, 1000, 65_500, 65_537, 200_000, 262_144, 262_145, 1 << 20, 5_000_000].into_iter().enumerate()
    {
        for late in [false, true] {
            message(&p, 10 + i as u64, len, late);
            // What fits one datagram goes in one.
            large += if len >= 65_500 { len as u64 } else { 0 };
            // (On a machine that is too busy for its own timers TCP repeats itself, and the bulk
            // connection makes a pause.)
            if counter(&p.a, "bulk_connections_failed") == 0 {
                assert_eq!(counter(&p.b, "bulk_bytes_received") - before, large, "after {len} {late}");
            }
        }
    }
    // What came by the bulk connection comes in no packet. (Packets are repeated too early on a
    // machine that is too busy.)
    assert!(counter(&p.b, "duplicate_bytes") <= counter(&p.a, "bytes_resent"), "{}", p.b.counters_json());
}

#[test]
fn a_receive_too_short_takes_its_part_and_says_so() {
    let p = pair_with(always());
    with_bulk(&p);
    for len in [60_000usize, 400_000] {
        let (mut data, mut buf) = (pattern(len, 3), vec![0; 50_001]);
        post(&p.b, None, 5, &mut buf[..50_000]);
        send(&p.a, p.to_b, 5, &mut data, SendMode::Delivery).expect("send");
        let c = wait(&p.b, &p.a, Queue::Recv);
        assert!(c.result.is_err() && buf[..50_000] == data[..50_000] && buf[50_000] == 0, "{c:?}");
        wait(&p.a, &p.b, Queue::Send);
        message(&p, 6, 70_000, false);
    }
}

#[test]
fn several_pieces_of_memory_are_filled_in_order() {
    let p = pair_with(always());
    with_bulk(&p);
    let mut data = pattern(100_000, 9);
    let (mut first, mut second) = (vec![0; 33_333], vec![0; 66_667]);
    let pieces = [iov(&mut first)[0], iov(&mut second)[0]];
    // SAFETY: the buffers live to the end of the test.
    unsafe { p.b.recv(&RecvOp { ..recv_op(None, 7, &pieces) }) }.expect("receive");
    send(&p.a, p.to_b, 7, &mut data, SendMode::Delivery).expect("send");
    wait(&p.b, &p.a, Queue::Recv);
    assert!(data[..33_333] == first && data[33_333..] == second);
}

// spec: L-5.3
#[test]
fn a_connection_that_is_cut_costs_nothing_but_time() {
    let p = pair_with(always());
    let mut cut = 0;
    for round in 0..5u8 {
        let start = Instant::now();
        while connections(&p).is_empty() {
            message(&p, 5, 100_000, false);
            assert!(start.elapsed() < LIMIT, "no bulk connection: {}", p.a.counters_json());
        }
        let mut data = pattern(6_000_000, round);
        let mut buf = vec![0; data.len()];
        post(&p.b, None, 77, &mut buf);
        send(&p.a, p.to_b, 77, &mut data, SendMode::Delivery).expect("send");
        // Somewhere in the middle.
        for _ in 0..20 * u32::from(round) {
            p.a.progress();
            p.b.progress();
        }
        for fd in connections(&p) {
            // SAFETY: as in `connections`.
            let s = std::mem::ManuallyDrop::new(unsafe { TcpStream::from_raw_fd(fd) });
            cut += u32::from(s.shutdown(std::net::Shutdown::Write).is_ok());
        }
        wait(&p.b, &p.a, Queue::Recv);
        wait(&p.a, &p.b, Queue::Send);
        assert!(buf == data, "round {round}");
    }
    assert!(
        cut >= 5 && counter(&p.a, "bulk_connections_failed") > 0 && counter(&p.a, "bulk_connections_opened") > 1,
        "{}",
        p.a.counters_json()
    );
    assert_eq!(counter(&p.a, "violations") + counter(&p.b, "violations"), 0);
}

#[test]
fn answers_are_found_however_many_bulk_connections_there_are() {
    // One that has bulk connections with three others; what it is sent and what it sends end at the
    // same time.
    let hub = open(always());
    let others: Vec<Pair> = (0..3)
        .map(|_| {
            let a = open(always());
            let to_b = a.insert_peer(&hub.name()).expect("name");
            let to_a = hub.insert_peer(&a.name()).expect("name");
            Pair { a, b: hub.clone(), to_b, to_a }
        })
        .collect();
    others.iter().for_each(with_bulk);
    for round in 0..30 {
        for p in &others {
            // The last record of such a message is a head and some bytes, read at once.
            let len = (1 << 20) + 100 + round;
            let (mut there, mut back) = (pattern(len, 1), pattern(len, 2));
            let (mut got, mut got_back) = (vec![0; len], vec![0; len]);
            post(&hub, Some(p.to_a), 1, &mut got);
            post(&p.a, Some(p.to_b), 2, &mut got_back);
            send(&p.a, p.to_b, 1, &mut there, SendMode::Delivery).expect("send");
            send(&hub, p.to_a, 2, &mut back, SendMode::Delivery).expect("send");
            for queue in [Queue::Recv, Queue::Send] {
                wait(&hub, &p.a, queue);
                wait(&p.a, &hub, queue);
            }
            assert!(got == there && got_back == back);
        }
    }
    assert!(others.iter().all(|p| counter(&p.a, "bulk_bytes_received") > 20 << 20), "{}", hub.counters_json());
}

#[test]
fn nobody_wakes_up_for_a_bulk_connection_on_which_nothing_happens() {
    let p = pair_with(always());
    with_bulk(&p);
    let mut strangers: Vec<TcpStream> = Vec::new();
    let port = u16::from_be_bytes([p.a.name()[2], p.a.name()[3]]);
    strangers.push(TcpStream::connect(("127.0.0.1", port)).expect("somebody listens"));
    // The threads settle; what they do in the next second is keeping the peers alive.
    std::thread::sleep(std::time::Duration::from_millis(2500));
    let before = [counter(&p.a, "polls"), counter(&p.b, "polls")];
    std::thread::sleep(std::time::Duration::from_secs(1));
    for (ep, before) in [&p.a, &p.b].into_iter().zip(before) {
        let passes = counter(ep, "polls") - before;
        assert!(passes < 200, "{passes} passes in a second: {}", ep.counters_json());
    }
}

// spec: L-7.1
#[test]
fn strangers_at_the_port_get_nothing_and_disturb_nobody() {
    let p = pair_with(always());
    let port = u16::from_be_bytes([p.a.name()[2], p.a.name()[3]]);
    let mut strangers: Vec<TcpStream> =
        (0..100).map(|_| TcpStream::connect(("127.0.0.1", port)).expect("somebody listens")).collect();
    for (i, s) in strangers.iter_mut().enumerate() {
        let _ = s.write_all(&vec![b'W'; i]);
        if i % 10 == 0 {
            let _ = s.write_all(&[b"WEIRLANE\x02\0\0\0\x01\0\0\0".as_slice(), &[9; 200]].concat());
        }
    }
    with_bulk(&p);
    message(&p, 3, 3_000_000, true);
    assert!(counter(&p.a, "bulk_greetings_refused") > 0);
    assert_eq!(counter(&p.a, "violations"), 0);
}

// spec: L-1.1, L-1.3
#[test]
fn without_a_bulk_connection_on_either_side_everything_goes_in_datagrams() {
    for (a, b) in [(BulkUse::Off, BulkUse::Always), (BulkUse::Always, BulkUse::Off)] {
        let p = pair_of(
            EngineConfig { bulk_connections: a, ..packets() },
            EngineConfig { bulk_connections: b, ..packets() },
        );
        for i in 0..5 {
            message(&p, i, 500_000, false);
        }
        assert_eq!(counter(&p.a, "bulk_connections_opened") + counter(&p.b, "bulk_connections_opened"), 0);
    }
}

#[test]
fn who_closes_with_payload_under_way_still_delivers_it() {
    let p = pair_with(always());
    with_bulk(&p);
    let (mut data, mut buf) = (pattern(200_000, 1), vec![0; 200_000]);
    send(&p.a, p.to_b, 9, &mut data, SendMode::Delivery).expect("send");
    let a = p.a.clone();
    let closing = std::thread::spawn(move || a.close());
    post(&p.b, None, 9, &mut buf);
    let c = wait(&p.b, &p.b, Queue::Recv);
    assert_eq!(c.result, Ok(()));
    assert!(buf == data);
    closing.join().expect("close");
    assert!(counter(&p.b, "bulk_bytes_received") >= 200_000, "{}", p.b.counters_json());
}

/// The sockets that take connections for the two endpoints.
fn with_listeners(p: &Pair, act: impl Fn(&SockRef<'_>) -> std::io::Result<()>) {
    let ports = ports(p);
    let mut listeners = 0;
    for fd in descriptors() {
        // SAFETY: of this process, and used at once; where it was closed meanwhile its questions
        // fail.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        let s = SockRef::from(&fd);
        let port = s.local_addr().ok().and_then(|a| Some(a.as_socket()?.port()));
        if port.is_some_and(|port| ports.contains(&port)) && s.is_listener().is_ok_and(|yes| yes) {
            act(&s).expect("a listener obeys");
            listeners += 1;
        }
    }
    assert_eq!(listeners, 2);
}

/// Where the trace of an endpoint of this test goes.
fn trace_file(who: &str) -> std::path::PathBuf {
    std::env::temp_dir().join(format!("weir-no-tcp-{}-{who}", std::process::id()))
}

/// Two that keep a trace of troubles, in files of these names.
fn traced(names: [&str; 2]) -> Pair {
    let [a, b] = names.map(|who| EngineConfig { trace: 1, trace_file: Some(trace_file(who)), ..always() });
    pair_of(a, b)
}

/// Sends until so many connections could not be made. Returns who wanted them, and the port of the
/// other.
fn until_no_tcp(p: &Pair, times: u64) -> (&Endpoint, u16) {
    let start = Instant::now();
    let failed = |ep: &Endpoint| counter(ep, "bulk_connects_failed");
    while failed(&p.a) + failed(&p.b) < times {
        message(p, 1, 100_000, false);
        assert!(start.elapsed() < LIMIT, "{} {}", p.a.counters_json(), p.b.counters_json());
    }
    assert_eq!(counter(&p.a, "bulk_connections_opened") + counter(&p.b, "bulk_connections_opened"), 0);
    let [port_a, port_b] = ports(p);
    if failed(&p.a) > 0 { (&p.a, port_b) } else { (&p.b, port_a) }
}

/// The lines about TCP in both traces, once the endpoints are gone.
fn lines_about_tcp(p: Pair, names: [&str; 2]) -> Vec<String> {
    drop(p);
    let text = names.map(|who| std::fs::read_to_string(trace_file(who)).expect("trace")).concat();
    for who in names {
        std::fs::remove_file(trace_file(who)).expect("it was there");
    }
    text.lines().filter(|l| l.contains("TCP")).map(str::to_owned).collect()
}

// spec: L-5.10
#[test]
fn a_firewall_that_drops_tcp_is_told_once_and_costs_no_message() {
    let names = ["dropped-a", "dropped-b"];
    let p = traced(names);
    // One instruction: return, and let 0 bytes of it pass. To who connects that is a firewall's
    // silence.
    with_listeners(&p, |s| s.attach_filter(&[SockFilter::new(0x06, 0, 0, 0)]));
    let (one, port) = until_no_tcp(&p, 2);
    let list = format!("\"no_tcp_to\":[\"127.0.0.1:{port}\"]");
    assert!(one.counters_json().contains(&list), "{}", one.counters_json());

    with_listeners(&p, |s| s.detach_filter());
    with_bulk(&p);
    assert!(one.counters_json().contains("\"no_tcp_to\":[]"), "{}", one.counters_json());
    let lines = lines_about_tcp(p, names);
    let want = format!("TCP to 127.0.0.1:{port} was not answered: large messages go in packets; a firewall may drop");
    assert!(lines.len() == 1 && lines[0].contains(&want) && lines[0].contains("WEIR_BULK=off"), "{lines:?}");
}

#[test]
fn a_refusal_of_tcp_is_told_with_its_cause() {
    let names = ["refused-a", "refused-b"];
    let p = traced(names);
    with_listeners(&p, |s| s.shutdown(std::net::Shutdown::Both));
    let (_, port) = until_no_tcp(&p, 1);
    let lines = lines_about_tcp(p, names);
    let want = format!("TCP to 127.0.0.1:{port} failed (connection refused): large messages go in packets");
    assert!(lines.len() == 1 && lines[0].contains(&want), "{lines:?}");
}

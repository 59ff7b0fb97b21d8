//! Endpoints whose packets come past the UDP stack, between two network namespaces. Needs
//! root and AF_XDP; where one is missing the tests are reported as ignored.

mod common;
#[path = "../../transports/xdp/tests/common/mod.rs"]
mod net;

use common::{KEY, LIMIT, counter, pattern, post, send, wait};
use net::{Host, hosts};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use weir_engine::{Completion, Diagnostic, Endpoint, EngineConfig, Queue, SendMode, XdpUse};

fn main() -> std::process::ExitCode {
    net::main(&[
        ("messages_of_all_sizes_arrive_and_packets_come_by_the_ring", messages_of_all_sizes_arrive),
        ("losses_and_captures_are_as_with_udp", losses_and_captures_are_as_with_udp),
        ("who_sleeps_is_woken_by_what_comes_by_xdp", who_sleeps_is_woken_by_what_comes_by_xdp),
        ("who_asks_for_xdp_and_cannot_have_it_is_told_why", who_asks_for_xdp_and_cannot_have_it_is_told_why),
    ])
}

/// The usual settings on that host, with XDP.
fn config(host: &Host) -> EngineConfig {
    let xdp_socket = "/nobody/listens".into();
    EngineConfig { addrs: vec![host.ip], xdp: XdpUse::On, xdp_socket, ..EngineConfig::packets() }
}

/// An endpoint on a host, and what it has to say.
fn open(host: &Host, cfg: EngineConfig) -> (Arc<Endpoint>, Arc<Mutex<Vec<String>>>) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let keep = told.clone();
    let diagnostics = Arc::new(move |what: &Diagnostic<'_>| {
        if let Diagnostic::Notice(line) = what {
            keep.lock().expect("kept").push((*line).to_owned());
        }
    });
    (host.run(move || Endpoint::open_told(cfg, KEY, diagnostics).expect("open")), told)
}

/// Two endpoints that know each other, with each other's number.
fn pair(hosts: &[Host; 2], change: impl Fn(&mut EngineConfig)) -> [(Arc<Endpoint>, u32); 2] {
    let [a, b] = hosts.each_ref().map(|host| {
        let mut cfg = config(host);
        change(&mut cfg);
        let (ep, told) = open(host, cfg);
        assert_eq!(*told.lock().expect("kept"), Vec::<String>::new(), "XDP can be had");
        ep
    });
    let (to_b, to_a) = (a.insert_peer(&b.name()).expect("name"), b.insert_peer(&a.name()).expect("name"));
    [(a, to_b), (b, to_a)]
}

/// One message of so many bytes.
fn message(from: &(Arc<Endpoint>, u32), to: &(Arc<Endpoint>, u32), bytes: usize, tag: u64) {
    let mut data = pattern(bytes, tag as u8);
    let mut buf = vec![0; bytes];
    post(&to.0, Some(to.1), tag, &mut buf);
    send(&from.0, from.1, tag, &mut data, SendMode::Transmit).expect("accepted");
    let got = wait(&to.0, &from.0, Queue::Recv);
    assert_eq!((got.result, got.len), (Ok(()), bytes));
    assert!(buf == data, "{bytes} bytes differ");
    assert_eq!(wait(&from.0, &to.0, Queue::Send).result, Ok(()));
}

/// Datagrams received past the UDP stack.
fn by_ring(ep: &Endpoint) -> u64 {
    let json: serde_json::Value = serde_json::from_str(&ep.counters_json()).expect("JSON");
    let count = |name: &str| json["xdp"][name].as_u64().unwrap_or_else(|| panic!("no {name} in {json}"));
    count("rx_datagrams")
}

fn messages_of_all_sizes_arrive() {
    let hosts = hosts();
    let [a, b] = pair(&hosts, |_| ());
    for round in 0..20 {
        for (n, bytes) in [0, 1, 8, 64, 65, 900, 1100, 1400, 4096, 30_000, 300_000, 2 << 20].into_iter().enumerate() {
            let tag = round * 100 + n as u64;
            message(&a, &b, bytes, tag);
            message(&b, &a, bytes, tag);
        }
    }
    for n in 0..500 {
        message(&a, &b, 8, 10_000 + n);
        message(&b, &a, 8, 20_000 + n);
    }
    for ep in [&a.0, &b.0] {
        assert!(by_ring(ep) > 500, "{}", ep.counters_json());
    }
}

fn losses_and_captures_are_as_with_udp() {
    let hosts = hosts();
    let folder = std::env::temp_dir().join(format!("weir-xdp-{}", std::process::id()));
    let file = folder.with_extension("%p.pcapng");
    let [a, b] = pair(&hosts, |cfg| {
        cfg.faults = Some("loss=5%,dup=2%,corrupt=2%,seed=3".into());
        cfg.capture = Some(file.display().to_string());
    });
    for n in 0..300 {
        message(&a, &b, 8 + n as usize, n);
        message(&b, &a, 2000, n);
    }
    assert!(by_ring(&a.0) > 100 && by_ring(&b.0) > 100);
    assert!(counter(&a.0, "faults_injected") > 10);
    // (One of the two writes it: they are one process.)
    let written = folder.with_extension(format!("{}.pcapng", std::process::id()));
    let bytes = std::fs::metadata(&written).expect("a capture").len();
    std::fs::remove_file(&written).expect("ours");
    assert!(bytes > 300 * 100, "{bytes} bytes");
}

fn who_sleeps_is_woken_by_what_comes_by_xdp() {
    let hosts = hosts();
    let [a, b] = pair(&hosts, |_| ());
    let end = Instant::now() + LIMIT;
    let mut tag = 0;
    while by_ring(&a.0) == 0 || by_ring(&b.0) == 0 {
        tag += 1;
        message(&a, &b, 8, tag);
        message(&b, &a, 8, tag);
        assert!(Instant::now() < end, "{}", a.0.counters_json());
    }
    for n in 0..20 {
        let tag = 1000 + n;
        let (mut data, mut buf) = (pattern(8, 1), vec![0; 8]);
        post(&b.0, Some(b.1), tag, &mut buf);
        while !b.0.arm() {
            b.0.poll(Queue::Both, &mut Vec::<Completion>::new(), 16);
        }
        // The watchdog falls asleep on the descriptors.
        std::thread::sleep(std::time::Duration::from_millis(5));
        send(&a.0, a.1, tag, &mut data, SendMode::Transmit).expect("accepted");
        let mut set = libc::pollfd { fd: b.0.notify_fd(), events: libc::POLLIN, revents: 0 };
        while {
            // SAFETY: one valid entry.
            unsafe { libc::poll(&raw mut set, 1, 50) != 1 }
        } {
            a.0.progress();
            assert!(Instant::now() < end, "nobody wakes: {}", b.0.counters_json());
        }
        assert_eq!(wait(&b.0, &a.0, Queue::Recv).result, Ok(()));
        wait(&a.0, &b.0, Queue::Send);
    }
}

fn who_asks_for_xdp_and_cannot_have_it_is_told_why() {
    let [ha, _hb] = hosts();
    // Several of one process have it.
    let [(first, told), (second, _)] = [open(&ha, config(&ha)), open(&ha, config(&ha))];
    assert!(told.lock().expect("kept").is_empty());
    // Loopback has none.
    let home = || EngineConfig { addrs: vec!["127.0.0.1".parse().expect("address")], ..config(&ha) };
    let (third, told) = open(&ha, home());
    let lines = told.lock().expect("kept").clone();
    assert!(lines.len() == 1 && lines[0].contains("WEIR_XDP=on") && lines[0].contains("loopback"), "{lines:?}");
    // Nothing is said by who takes it only where a helper gives it.
    let (fourth, told) = open(&ha, EngineConfig { xdp: XdpUse::Auto, ..config(&ha) });
    assert!(told.lock().expect("kept").is_empty());
    let has = |ep: &Endpoint| !ep.counters_json().contains("\"xdp\":null");
    assert_eq!([&first, &second, &third, &fourth].map(|ep| has(ep)), [true, true, false, false]);
    let (to_fourth, to_second) =
        (second.insert_peer(&fourth.name()).expect("name"), fourth.insert_peer(&second.name()).expect("name"));
    message(&(second, to_fourth), &(fourth, to_second), 8, 1);
}

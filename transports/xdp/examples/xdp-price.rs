//! What the kernel's TCP loses on an interface with a program attached:
//! `xdp-price [SECONDS] [ROUNDS]`, as root. One connection between two network namespaces, 1 MiB
//! writes.

#[path = "../tests/common/mod.rs"]
mod common;

use common::{Both, Host, hosts};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};
use weir_xdp::{Broker, Mode};

/// A name, and what is attached at either end.
type Kind = (&'static str, fn(&Host) -> Both);

const KINDS: [Kind; 6] = [
    ("nothing attached", |h| h.plain()),
    ("ring", |h| h.open_at(h.ip, Broker::new(Mode::Ring))),
    ("generic", |h| h.open_at(h.ip, Broker::new(Mode::Generic))),
    ("generic, in pieces", |h| h.open_at(h.ip, Broker::new(Mode::Generic).with_frags(true))),
    ("native", |h| h.open_at(h.ip, Broker::new(Mode::Native))),
    ("native, one piece", |h| h.open_at(h.ip, Broker::new(Mode::Native).with_frags(false))),
];

fn main() {
    if std::env::var_os("WEIR_XDP_PRICE").is_none() {
        let exe = std::env::current_exe().expect("this program");
        let mut again = std::process::Command::new("unshare");
        again.arg("-n").arg(exe).args(std::env::args().skip(1)).env("WEIR_XDP_PRICE", "1");
        std::process::exit(again.status().ok().and_then(|s| s.code()).unwrap_or(1));
    }
    let number = |n: usize, usual: f64| std::env::args().nth(n).and_then(|a| a.parse().ok()).unwrap_or(usual);
    let (seconds, rounds) = (number(1, 0.5), number(2, 5.0) as usize);
    let mut all: Vec<Vec<f64>> = KINDS.iter().map(|_| Vec::new()).collect();
    for _ in 0..rounds {
        for ((_, open), results) in KINDS.iter().zip(&mut all) {
            let [ha, hb] = hosts();
            let _attached = (open(&ha), open(&hb));
            results.push(stream(&ha, &hb, Duration::from_secs_f64(seconds)));
            ha.ip("link del ve0");
        }
    }
    println!("TCP, 1 MiB writes, Gbit/s of each launch");
    for ((name, _), results) in KINDS.iter().zip(&all) {
        let told: Vec<String> = results.iter().map(|r| format!("{r:.1}")).collect();
        println!("{name:20} {}", told.join(" "));
    }
}

/// Gbit/s from one host to the other.
fn stream(from: &Host, to: &Host, time: Duration) -> f64 {
    let ip = to.ip;
    let listener = to.run(move || TcpListener::bind((ip, 0)).expect("a port"));
    let at = listener.local_addr().expect("bound");
    let sink = std::thread::spawn(move || {
        common::pin(1);
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut room = vec![0; 1 << 20];
        let (begin, mut bytes) = (Instant::now(), 0u64);
        while let Ok(n @ 1..) = stream.read(&mut room) {
            bytes += n as u64;
        }
        bytes as f64 * 8.0 / begin.elapsed().as_nanos() as f64
    });
    let mut stream = from.run(move || TcpStream::connect(at).expect("a connection"));
    common::pin(0);
    let (end, data) = (Instant::now() + time, vec![7; 1 << 20]);
    while Instant::now() < end {
        stream.write_all(&data).expect("taken");
    }
    drop(stream);
    sink.join().expect("the sink")
}

//! Half a round trip of the bare device between two network namespaces, with XDP and without, in
//! turns: `xdp-raw [BYTES] [SECONDS] [ROUNDS]`, as root.

#[path = "../tests/common/mod.rs"]
mod common;

use common::{Both, Host, exchange, hosts};
use std::time::{Duration, Instant};
use weir_net::Datagrams;
use weir_xdp::{Broker, Mode};

/// One kind of pair of devices.
struct Kind {
    name: &'static str,
    open: fn(&Host) -> Both,
}

const KINDS: [Kind; 5] = [
    Kind { name: "udp", open: |h| h.plain() },
    Kind { name: "ring", open: |h| h.open_at(h.ip, Broker::new(Mode::Ring)) },
    Kind { name: "generic", open: |h| h.open_at(h.ip, Broker::new(Mode::Generic)) },
    Kind { name: "generic, in pieces", open: |h| h.open_at(h.ip, Broker::new(Mode::Generic).with_frags(true)) },
    Kind { name: "native", open: |h| h.open_at(h.ip, Broker::new(Mode::Native)) },
];

fn main() {
    if std::env::var_os("WEIR_XDP_RAW").is_none() {
        let exe = std::env::current_exe().expect("this program");
        let status = std::process::Command::new("unshare")
            .arg("-n")
            .arg(exe)
            .args(std::env::args().skip(1))
            .env("WEIR_XDP_RAW", "1")
            .status();
        std::process::exit(status.ok().and_then(|s| s.code()).unwrap_or(1));
    }
    let number = |n: usize, usual: f64| std::env::args().nth(n).and_then(|a| a.parse().ok()).unwrap_or(usual);
    let (bytes, seconds, rounds) = (number(1, 60.0) as usize, number(2, 0.5), number(3, 5.0) as usize);
    let mut all: Vec<Vec<[f64; 3]>> = KINDS.iter().map(|_| Vec::new()).collect();
    for _ in 0..rounds {
        for (kind, results) in KINDS.iter().zip(&mut all) {
            let [ha, hb] = hosts();
            let (mut a, mut b) = ((kind.open)(&ha), (kind.open)(&hb));
            // Until the neighbours are known.
            (0..200).for_each(|n| exchange(&mut a, &mut b, n));
            results.push(ping_pong(a, b, bytes, Duration::from_secs_f64(seconds)));
            ha.ip("link del ve0");
        }
    }
    println!("half a round trip of {bytes} bytes, us: least, median, 99 % of each launch");
    for (kind, results) in KINDS.iter().zip(&all) {
        let told: Vec<String> = results.iter().map(|[a, b, c]| format!("{a:.2} {b:.2} {c:.1}")).collect();
        println!("{:20} {}", kind.name, told.join(" | "));
    }
}

fn clock() -> u64 {
    common::now_ns()
}

/// Least, median and 99 % of half a round trip, us.
fn ping_pong(mut a: Both, mut b: Both, bytes: usize, time: Duration) -> [f64; 3] {
    let (to_a, to_b) = (a.local_addrs()[0], b.local_addrs()[0]);
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let over = stop.clone();
    let echo = std::thread::spawn(move || {
        common::pin(1);
        let message = vec![7; bytes];
        while !over.load(std::sync::atomic::Ordering::Relaxed) {
            let now = clock();
            let got = b.recv(now, 8, |_, _| ()).expect("a device");
            (0..got).for_each(|_| b.send_now(now, (to_a, None), &message));
        }
    });
    common::pin(0);
    let message = vec![7; bytes];
    let mut times = Vec::new();
    let end = Instant::now() + time;
    while Instant::now() < end {
        let begin = clock();
        a.send_now(begin, (to_b, None), &message);
        let lost = begin + 20_000_000;
        loop {
            let now = clock();
            if a.recv(now, 8, |_, _| ()).expect("a device") > 0 {
                times.push((clock() - begin) as f64 / 2000.0);
                break;
            }
            if now > lost {
                break;
            }
        }
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    echo.join().expect("the echo");
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times.get((times.len() as f64 * share) as usize).copied().unwrap_or(f64::NAN);
    [at(0.0), at(0.5), at(0.99)]
}

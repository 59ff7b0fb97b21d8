//! How fast the switch forwards 1500-byte packets, and what one costs:
//! `cargo bench -p weir-emulate`, for several launches and a page of the laboratory book
//! `cargo xtask bench emulator`.
//!
//! One host floods another with UDP for two seconds, through a perfect link and through links with
//! rate, delay and loss. A word selects links; `--json` prints a line of JSON for each. On a busy
//! machine give the sender priority too: `chrt -f 1 cargo bench ...`. Needs the right to make
//! namespaces, says so and fails if there is none.

use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir_emulate::{Network, spec::Spec};

const SECONDS: u64 = 2;
const PAYLOAD_BYTES: usize = 1472;
/// What one packet is on the wire: payload, UDP, IP and Ethernet.
const FRAME_BYTES: usize = PAYLOAD_BYTES + 8 + 20 + 14;

const LINKS: [(&str, &str); 6] = [
    ("perfect", "hosts = 2"),
    ("perfect, no real-time priority", "hosts = 2\nrealtime = false"),
    ("4g, 1 ms, 1 % loss", "hosts = 2\n[link]\nrate = \"4g\"\ndelay = \"1ms\"\nloss = \"1%\""),
    ("2g, 100 us", "hosts = 2\n[link]\nrate = \"2g\"\ndelay = \"100us\""),
    ("1g, 1 ms", "hosts = 2\n[link]\nrate = \"1g\"\ndelay = \"1ms\""),
    ("100m, 1 ms", "hosts = 2\n[link]\nrate = \"100m\"\ndelay = \"1ms\""),
];

fn main() {
    // Cargo adds `--bench`.
    let as_json = std::env::args().any(|word| word == "--json");
    let wanted = std::env::args().skip(1).find(|word| !word.starts_with("--"));
    weir_emulate::privilege::acquire().expect("the right to make namespaces");
    let chosen = LINKS.iter().filter(|(name, _)| wanted.as_ref().is_none_or(|word| name.contains(word.as_str())));
    for (name, toml) in chosen {
        let result = measure(name, toml);
        if as_json {
            println!("{result}");
        } else {
            println!("{result:#}");
        }
    }
}

/// Floods a network for a while; what its switch did meanwhile.
fn measure(name: &str, toml: &str) -> Value {
    let network = Network::start(&Spec::from_toml(toml).expect("a spec")).expect("a network");
    let before = network.stats().expect("stats");
    let (offered, elapsed_s) = flood(&network);
    let after = network.stats().expect("stats");
    let pipe = after.links[1].down.as_ref().expect("a switch");
    let packets = pipe.forwarded_packets as f64;
    let cpu_s = after.cpu_s - before.cpu_s;
    json!({
        "link": name,
        "offered_packets_per_s": offered as f64 / elapsed_s,
        "forwarded_packets_per_s": packets / elapsed_s,
        "gbit_per_s": packets * (FRAME_BYTES * 8) as f64 / elapsed_s / 1e9,
        "cores": cpu_s / elapsed_s,
        "cpu_ns_per_packet": cpu_s / packets * 1e9,
        // Lost because the switch did not keep up; those that the sender's kernel dropped before.
        "overrun_packets": after.overrun,
        "interface_dropped_packets": after.links[0].interface_dropped,
        "late_us": after.late_us,
    })
}

/// Packets sent, and in how many seconds.
fn flood(network: &Network) -> (u64, f64) {
    let to = (network.host(1).expect("host2").ipv4("net1").expect("an address"), 9);
    let sink = network.host(1).expect("host2").run(|| UdpSocket::bind(("0.0.0.0", 9))).expect("run").expect("bind");
    let socket = network.host(0).expect("host1").run(|| UdpSocket::bind(("0.0.0.0", 0))).expect("run").expect("bind");
    socket.connect(to).expect("connect");
    assert!(sink.as_raw_fd() >= 0); // open but never read: the kernel drops what its buffer cannot take
    let data = [7u8; PAYLOAD_BYTES];
    let start = Instant::now();
    let mut sent = 0u64;
    while start.elapsed() < Duration::from_secs(SECONDS) {
        for _ in 0..32 {
            sent += u64::from(socket.send(&data).is_ok());
        }
    }
    (sent, start.elapsed().as_secs_f64())
}

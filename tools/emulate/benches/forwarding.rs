//! How fast the switch forwards 1500-byte packets, and what one costs: `cargo bench -p weir-emulate`.
//!
//! One host floods another with UDP for two seconds, first through a perfect link, then through one with rate, delay
//! and loss. On a busy machine give the sender priority too: `chrt -f 1 cargo bench ...`. Needs the right to make namespaces, says so and fails if there is none.

use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};
use weir_emulate::{Network, spec::Spec};

const SECONDS: u64 = 2;
const PAYLOAD_BYTES: usize = 1472;

fn main() {
    // Cargo adds `--bench`; any other word selects links.
    let wanted = std::env::args().skip(1).find(|word| !word.starts_with("--"));
    weir_emulate::privilege::acquire().expect("the right to make namespaces");
    println!("{:<44} {:>9} {:>9} {:>8} {:>8} {:>8}", "link", "kpps", "Gbit/s", "ns/pkt", "cores", "overrun");
    for (name, toml) in [
        ("perfect", "hosts = 2"),
        ("perfect, no real-time priority", "hosts = 2\nrealtime = false"),
        ("4g, 1 ms, 1 % loss", "hosts = 2\n[link]\nrate = \"4g\"\ndelay = \"1ms\"\nloss = \"1%\""),
        ("2g, 100 us", "hosts = 2\n[link]\nrate = \"2g\"\ndelay = \"100us\""),
        ("1g, 1 ms", "hosts = 2\n[link]\nrate = \"1g\"\ndelay = \"1ms\""),
        ("100m, 1 ms", "hosts = 2\n[link]\nrate = \"100m\"\ndelay = \"1ms\""),
    ] {
        if wanted.as_ref().is_some_and(|word| !name.contains(word.as_str())) {
            continue;
        }
        let network = Network::start(&Spec::from_toml(toml).expect("a spec")).expect("a network");
        let before = network.stats().expect("stats");
        let elapsed_s = flood(&network);
        let after = network.stats().expect("stats");
        let packets = after.links[1].down.as_ref().expect("a switch").forwarded_packets as f64;
        let cpu_s = after.cpu_s - before.cpu_s;
        println!(
            "{name:<44} {:>9.1} {:>9.2} {:>8.0} {:>8.2} {:>8}",
            packets / elapsed_s / 1e3,
            packets * (PAYLOAD_BYTES + 42) as f64 * 8.0 / elapsed_s / 1e9,
            cpu_s / packets * 1e9,
            cpu_s / elapsed_s,
            after.overrun,
        );
        println!("    late us {:?}, dropped by the hosts' kernels {}", after.late_us, after.links[0].interface_dropped);
    }
}

fn flood(network: &Network) -> f64 {
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
    let elapsed_s = start.elapsed().as_secs_f64();
    println!("    offered {:.1} kpps", sent as f64 / elapsed_s / 1e3);
    elapsed_s
}

//! The emulator on real namespaces: what programs inside measure is what the spec says.
//!
//! Where namespaces cannot be made every test is reported as ignored, with the reason. The tests run one at a time:
//! several of them measure time. Bounds on time use the best of many samples, because the machine may be busy; bounds
//! on counts are exact or five sigma.

mod support;

use libtest_mimic::{Arguments, Failed, Trial};
use std::time::{Duration, Instant};
use support::{PAYLOAD_BYTES, bounded, net, receive_all, send_all, socket, within_five_sigma};
use weir_emulate::model::Counters;
use weir_emulate::spec::{Action, Direction, PipeSettings};
use weir_emulate::stats::Stats;

type Outcome = Result<(), Failed>;
type Test = fn() -> Outcome;

fn main() {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let tests: [(&str, Test); 18] = [
        ("round trip takes twice the delay", rtt_is_twice_the_delay),
        ("a short delay is precise", short_delay_is_precise),
        ("udp gets the rate and loses nothing to backpressure", udp_gets_the_rate),
        ("tcp gets the rate", tcp_gets_the_rate),
        ("random loss is binomial and counted", random_loss),
        ("burst loss has mean and length", burst_loss),
        ("incast meets one queue", incast),
        ("a queue in bytes", queue_in_bytes),
        ("cut and heal on command", cut_and_heal),
        ("cut and heal by schedule", schedule),
        ("settings change while it runs", set),
        ("copies, damage and overtaking", copies_damage_overtaking),
        ("hidden damage reaches the program", hidden_damage),
        ("two networks fail apart, ipv6 works", two_networks),
        ("super-packets are cut to the mtu", super_packets),
        ("a seed reproduces the losses", seed),
        ("plain network with nftables loss", plain_nft),
        ("plain bridge carries and keeps no counters of pipes", plain_bridge),
    ];
    let reason = weir_emulate::privilege::acquire().err();
    if let Some(reason) = &reason {
        eprintln!("\nIGNORED, not passed: all {} tests on namespaces. {reason}\n", tests.len());
    }
    let trials = tests.map(|(name, test)| Trial::test(name, test).with_ignored_flag(reason.is_some()));
    libtest_mimic::run(&arguments, trials.into()).exit();
}

fn down<'a>(stats: &'a Stats, host: &str, network: &str) -> &'a Counters {
    let link = stats.links.iter().find(|l| l.host == host && l.network == network);
    link.and_then(|l| l.down.as_ref()).expect("the link exists")
}

/// The least round trip of `count` pings from the first host to the second, in microseconds.
fn least_rtt_us(toml: &str, count: usize) -> Result<u64, Failed> {
    let network = net(toml)?;
    let echo = socket(&network, 1, "net1")?;
    let ping = socket(&network, 0, "net1")?;
    ping.connect(echo.local_addr()?)?;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut data = [0; 64];
            for _ in 0..count {
                let Ok((length, from)) = echo.recv_from(&mut data) else {
                    return;
                };
                let _ = echo.send_to(&data[..length], from);
            }
        });
        let mut least = u64::MAX;
        for _ in 0..count {
            let start = Instant::now();
            ping.send(&[1; 32])?;
            ping.recv(&mut [0; 64])?;
            least = least.min(start.elapsed().as_micros() as u64);
        }
        Ok(least)
    })
}

fn rtt_is_twice_the_delay() -> Outcome {
    let rtt_us = least_rtt_us("hosts = 2\n[link]\ndelay = \"5ms\"", 40)?;
    bounded("rtt in us", rtt_us, 10_000..10_250)
}

fn short_delay_is_precise() -> Outcome {
    let without_us = least_rtt_us("hosts = 2", 2000)?;
    let with_us = least_rtt_us("hosts = 2\n[link]\ndelay = \"50us\"", 2000)?;
    // Without delay the round trip is two passages through kernel and switch; each way may be off by 20 us.
    bounded("rtt added by two times 50 us, in us", with_us.saturating_sub(without_us), 60..140)
}

fn udp_gets_the_rate() -> Outcome {
    const TRIES: usize = 10;
    let network = net("hosts = 2\n[link]\nrate = \"100m\"\nqueue = \"64p\"")?;
    let mut seen = Vec::new();
    // A machine that does much else lets sender, switch or receiver wait: that shifts a single measurement, but a wrong
    // rate would be wrong each time.
    for _ in 0..TRIES {
        let mbit_per_s = udp_rate_mbit_per_s(&network)?;
        if (98..103).contains(&mbit_per_s) {
            return Ok(());
        }
        seen.push(mbit_per_s);
    }
    Err(format!("Mbit/s on the wire: never in 98..103: {seen:?}").into())
}

/// Sends for a second as fast as backpressure allows; nothing may be lost.
fn udp_rate_mbit_per_s(network: &weir_emulate::Network) -> Result<u64, Failed> {
    let (sink, source) = (socket(network, 1, "net1")?, socket(network, 0, "net1")?);
    let to = sink.local_addr()?;
    const COUNT: u64 = 8000; // 0.97 s at 100 Mbit/s
    std::thread::scope(|scope| {
        let receiver = scope.spawn(move || {
            sink.set_read_timeout(Some(Duration::from_secs(5)))?;
            let mut data = [0; 2000];
            sink.recv(&mut data)?;
            let start = Instant::now();
            let mut count = 1;
            while count < COUNT && sink.recv(&mut data).is_ok() {
                count += 1;
            }
            std::io::Result::Ok((count, start.elapsed()))
        });
        send_all(&source, to, COUNT)?;
        let (count, time) = receiver.join().map_err(|_| "receiver failed")??;
        bounded("packets received", count, COUNT..COUNT + 1)?;
        let mbit_per_s = (count - 1) as f64 * (PAYLOAD_BYTES + 42) as f64 * 8.0 / time.as_secs_f64() / 1e6;
        Ok(mbit_per_s.round() as u64)
    })
}

fn tcp_gets_the_rate() -> Outcome {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    let network = net("hosts = 2\n[link]\nrate = \"200m\"\ndelay = \"1ms\"\nqueue = \"200p\"")?;
    let address = (network.host(1)?.ipv4("net1")?, 7001);
    let listener = network.host(1)?.run(|| TcpListener::bind(address))??;
    const BYTES: usize = 25_000_000;
    std::thread::scope(|scope| {
        let receiver = scope.spawn(move || {
            let (mut stream, _) = listener.accept()?;
            let (mut data, mut count) = (vec![0; 1 << 16], 0);
            let start = Instant::now();
            while count < BYTES {
                count += match stream.read(&mut data)? {
                    0 => break,
                    length => length,
                };
            }
            std::io::Result::Ok((count, start.elapsed()))
        });
        let mut stream = network.host(0)?.run(|| TcpStream::connect(address))??;
        stream.write_all(&vec![5; BYTES])?;
        let (count, time) = receiver.join().map_err(|_| "receiver failed")??;
        bounded("bytes", count as u64, BYTES as u64..BYTES as u64 + 1)?;
        // 1448 of 1514 bytes are payload; slow start and a busy machine take some.
        let mbit_per_s = count as f64 * 8.0 / time.as_secs_f64() / 1e6;
        bounded("Mbit/s of payload", mbit_per_s as u64, 100..193)
    })
}

fn random_loss() -> Outcome {
    let network = net("hosts = 2\nseed = 3\n[link]\nrate = \"1g\"\nloss = \"2%\"")?;
    const COUNT: u64 = 20_000;
    let numbers = receive_all(&network, COUNT)?;
    let stats = network.stats()?;
    let pipe = down(&stats, "host2", "net1");
    let lost = COUNT - numbers.len() as u64;
    within_five_sigma("packets lost", lost, COUNT, 0.02)?;
    bounded("losses counted", pipe.dropped_loss, lost..lost + 1)?;
    bounded("losses for other reasons", pipe.dropped_queue + stats.overrun + stats.refused, 0..1)
}

fn burst_loss() -> Outcome {
    let network = net("hosts = 2\nseed = 4\n[link]\nrate = \"1g\"\nloss = \"5%\"\nburst = 10")?;
    const COUNT: u64 = 40_000;
    let numbers = receive_all(&network, COUNT)?;
    let lost = COUNT - numbers.len() as u64;
    let bursts = numbers.windows(2).filter(|w| w[1] != w[0] + 1).count() as u64;
    // About 200 bursts: their mean length has a relative deviation of 1 / sqrt(200) = 7 %.
    bounded("packets lost", lost, 1300..2800)?;
    bounded("packets lost per burst", lost / bursts.max(1), 7..14)
}

fn incast() -> Outcome {
    let network = net("hosts = 9\n[link]\nqueue = \"64p\"\ndown = { rate = \"10m\" }")?;
    let sink = socket(&network, 0, "net1")?;
    let to = sink.local_addr()?;
    for sender in 1..9 {
        send_all(&socket(&network, sender, "net1")?, to, 50)?;
    }
    sink.set_read_timeout(Some(Duration::from_millis(700)))?;
    let mut count = 0;
    while sink.recv(&mut [0; 2000]).is_ok() {
        count += 1;
    }
    let stats = network.stats()?;
    let pipe = down(&stats, "host1", "net1");
    bounded("most packets waiting", pipe.queue_peak_packets, 64..65)?;
    // Hosts' kernels say things to everybody too (ARP, multicast listener reports), which may be dropped here: as many as were
    // offered besides the datagrams, no more.
    bounded("received or dropped", pipe.dropped_queue + count, 400..pipe.offered_packets + 1)?;
    bounded("lost before the queue", stats.overrun + stats.refused, 0..1)?;
    // 1.2 ms a packet: while 400 are sent a few leave the queue, or many if the machine is busy.
    bounded("packets received", count, 65..200)
}

fn queue_in_bytes() -> Outcome {
    let network = net("hosts = 2\n[link]\nqueue = \"20kB\"\ndown = { rate = \"1m\" }")?;
    let (sink, source) = (socket(&network, 1, "net1")?, socket(&network, 0, "net1")?);
    send_all(&source, sink.local_addr()?, 60)?;
    std::thread::sleep(Duration::from_millis(50));
    let stats = network.stats()?;
    let pipe = down(&stats, "host2", "net1");
    bounded("most bytes waiting", pipe.queue_peak_bytes, 18_000..20_001)?;
    bounded("packets dropped", pipe.dropped_queue, 40..47)
}

/// True if a packet gets from the first host to the second within a second.
fn passes(network: &weir_emulate::Network, name: &str) -> Result<bool, Failed> {
    let (sink, source) = (socket(network, 1, name)?, socket(network, 0, name)?);
    sink.set_read_timeout(Some(Duration::from_millis(400)))?;
    source.send_to(b"x", sink.local_addr()?)?;
    Ok(sink.recv(&mut [0; 10]).is_ok())
}

fn expect(what: &str, is: bool) -> Outcome {
    if is { Ok(()) } else { Err(format!("not so: {what}").into()) }
}

fn cut_and_heal() -> Outcome {
    let network = net("hosts = 2\n[[network]]\nname = \"net1\"\nmtu = 1200\n[link]\ndelay = \"1ms\"")?;
    expect("a whole link passes", passes(&network, "net1")?)?;
    network.cut("host2", "net1")?;
    expect("a cut link does not pass", !passes(&network, "net1")?)?;
    network.heal("host2", "net1")?;
    expect("a healed link passes", passes(&network, "net1")?)?;
    network.change("host1", "net1", Direction::Down, Action::Cut)?;
    expect("the other direction passes", passes(&network, "net1")?)?;
    network.change("host1", "net1", Direction::Up, Action::Cut)?;
    expect("the sender's own direction does not", !passes(&network, "net1")?)?;
    bounded("packets counted as cut", down(&network.stats()?, "host2", "net1").dropped_cut, 1..2)?;
    expect("an unknown host is an error", network.cut("host9", "net1").is_err())?;
    expect("an unknown network is an error", network.cut("host1", "net9").is_err())
}

fn schedule() -> Outcome {
    let network = net(r#"
        hosts = 2
        event = [
            { at = "500ms", action = "cut", host = "host2", network = "net1" },
            { at = "1s", action = "heal", host = "host2", network = "net1" },
        ]"#)?;
    let start = Instant::now();
    let (sink, source) = (socket(&network, 1, "net1")?, socket(&network, 0, "net1")?);
    sink.set_read_timeout(Some(Duration::from_millis(5)))?;
    let to = sink.local_addr()?;
    let (mut longest, mut last) = (Duration::ZERO, start);
    while start.elapsed() < Duration::from_millis(1600) {
        source.send_to(b"x", to)?;
        if sink.recv(&mut [0; 10]).is_ok() {
            longest = longest.max(last.elapsed());
            last = Instant::now();
        }
    }
    bounded("longest silence in ms", longest.as_millis() as u64, 495..600)
}

fn set() -> Outcome {
    let network = net("hosts = 2\n[link]\nrate = \"1g\"")?;
    let settings = |words: &[&str]| PipeSettings::from_words(words.iter().copied()).map(|s| Action::Set(Box::new(s)));
    network.change("host2", "net1", Direction::Down, settings(&["loss=100%"])?)?;
    expect("everything is lost", !passes(&network, "net1")?)?;
    network.change("host2", "net1", Direction::Down, settings(&["loss=0", "delay=20ms"])?)?;
    let start = Instant::now();
    expect("nothing is lost", passes(&network, "net1")?)?;
    expect("the delay is in force", start.elapsed() >= Duration::from_millis(20))?;
    // The uplink's rate is also the kernel shaper's: 80 packets at 10 Mbit/s take 77 ms, and 20 ms more.
    network.change("host1", "net1", Direction::Up, settings(&["rate=10m"])?)?;
    let (sink, source) = (socket(&network, 1, "net1")?, socket(&network, 0, "net1")?);
    sink.set_read_timeout(Some(Duration::from_secs(1)))?;
    std::thread::sleep(Duration::from_millis(20));
    let start = Instant::now();
    send_all(&source, sink.local_addr()?, 80)?;
    for _ in 0..80 {
        sink.recv(&mut [0; 2000])?;
    }
    bounded("time of 80 packets in ms", start.elapsed().as_millis() as u64, 90..250)
}

fn copies_damage_overtaking() -> Outcome {
    let toml = "hosts = 2\nseed = 5\n[link]\nrate = \"1g\"\nduplicate = \"2%\"\ncorrupt = \"1%\"\n\
                reorder = \"3%\"\nreorder_hold = \"500us\"";
    let network = net(toml)?;
    const COUNT: u64 = 20_000;
    let numbers = receive_all(&network, COUNT)?;
    let stats = network.stats()?;
    let pipe = down(&stats, "host2", "net1");
    within_five_sigma("copies", pipe.duplicated, COUNT, 0.02)?;
    within_five_sigma("damaged", pipe.corrupted, COUNT, 0.01)?;
    within_five_sigma("held", pipe.reordered, COUNT, 0.03)?;
    let mut sorted = numbers.clone();
    sorted.sort_unstable();
    sorted.dedup();
    // Nearly every flipped bit is noticed by the checksum of IP or UDP; a flip in the addresses sends it elsewhere.
    let missing = COUNT - sorted.len() as u64;
    expect("damaged packets do not arrive", missing > pipe.corrupted / 2 && missing <= pipe.corrupted)?;
    expect("copies arrive", (numbers.len() - sorted.len()) as u64 > pipe.duplicated * 8 / 10)?;
    // A copy takes its original's place in line, so a step back is a packet that was overtaken.
    let back = numbers.windows(2).filter(|w| w[1] < w[0]).count() as u64;
    bounded("packets overtaken", back, pipe.reordered / 3..pipe.reordered + 1)
}

fn hidden_damage() -> Outcome {
    let network = net("hosts = 2\n[link]\ncorrupt_hidden = \"100%\"")?;
    let (sink, source) = (socket(&network, 1, "net1")?, socket(&network, 0, "net1")?);
    sink.set_read_timeout(Some(Duration::from_secs(1)))?;
    let sent: Vec<u8> = (0..200).collect();
    source.send_to(&sent, sink.local_addr()?)?;
    let mut data = [0; 300];
    let length = sink.recv(&mut data).map_err(|_| "the checksum noticed")?;
    expect("the length is right", length == 200)?;
    let wrong = sent.iter().zip(&data).filter(|(a, b)| a != b).count();
    bounded("bytes changed", wrong as u64, 2..5)
}

fn two_networks() -> Outcome {
    let network = net("hosts = 3\n[[network]]\nname = \"red\"\n[[network]]\nname = \"blue\"\nmtu = 9000")?;
    expect("red passes", passes(&network, "red")?)?;
    network.cut("host2", "red")?;
    expect("red is cut", !passes(&network, "red")?)?;
    expect("blue passes", passes(&network, "blue")?)?;
    let v6 = network.spec().ipv6(1, 1).ok_or("no address")?;
    let sink = network.host(1)?.run(|| std::net::UdpSocket::bind((v6, 0)))??;
    let source = network.host(0)?.run(|| std::net::UdpSocket::bind("[::]:0"))??;
    sink.set_read_timeout(Some(Duration::from_secs(1)))?;
    source.send_to(&[1; 8900], sink.local_addr()?)?;
    bounded("bytes over IPv6 in one packet", sink.recv(&mut [0; 9000])? as u64, 8900..8901)?;
    let pipe_packets = down(&network.stats()?, "host2", "blue").forwarded_packets;
    // One of each test above, and what multicast listeners say at the start.
    bounded("packets on blue", pipe_packets, 2..12)
}

fn super_packets() -> Outcome {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    let network = net("hosts = 2")?;
    let address = (network.host(1)?.ipv4("net1")?, 7002);
    let listener = network.host(1)?.run(|| TcpListener::bind(address))??;
    let mut stream = network.host(0)?.run(|| TcpStream::connect(address))??;
    let (mut other, _) = listener.accept()?;
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || std::io::copy(&mut other, &mut std::io::sink()));
        stream.write_all(&vec![0; 3_000_000])?;
        drop(stream);
        let bytes = reader.join().map_err(|_| "reader failed")??;
        bounded("bytes", bytes, 3_000_000..3_000_001)
    })?;
    let stats = network.stats()?;
    let pipe = down(&stats, "host2", "net1");
    bounded("packets above the mtu", stats.oversize, 0..1)?;
    bounded("packets", pipe.forwarded_packets, 2072..4000)
}

fn seed() -> Outcome {
    let run = |seed: u64| -> Result<Vec<u64>, Failed> {
        let toml = format!(
            "hosts = 2\nseed = {seed}\n[[network]]\nname = \"net1\"\nmtu = 1200\n[link]\nrate = \"1g\"\nloss = \"10%\""
        );
        receive_all(&net(&toml)?, 2000) // mtu below 1280: no IPv6, so no packet but ours
    };
    let first = run(1)?;
    expect("the same seed loses the same packets", first == run(1)?)?;
    expect("another seed loses others", first != run(2)?)
}

fn plain_nft() -> Outcome {
    let network = net("hosts = 2\nplain = true\nnft_loss = \"5%\"")?;
    const COUNT: u64 = 20_000;
    let numbers = receive_all(&network, COUNT)?;
    let stats = network.stats()?;
    let lost = COUNT - numbers.len() as u64;
    within_five_sigma("packets lost", lost, COUNT, 0.05)?;
    let counted = stats.links.iter().find(|l| l.host == "host2").and_then(|l| l.nft_dropped);
    bounded("losses counted by nftables", counted.ok_or("no count")?, lost..lost + 3)?;
    expect("a plain link cannot be cut", network.cut("host1", "net1").is_err())
}

fn plain_bridge() -> Outcome {
    let network = net("hosts = 4\nplain = true\ncontrol = true")?;
    expect("packets pass", passes(&network, "net1")?)?;
    let stats = network.stats()?;
    expect("no pipes", stats.links.iter().all(|l| l.up.is_none() && l.down.is_none()))?;
    let address = network.spec().control_ipv4(3);
    let sink = network.host(3)?.run(|| std::net::UdpSocket::bind((address, 0)))??;
    let source = network.host(2)?.run(|| std::net::UdpSocket::bind("0.0.0.0:0"))??;
    sink.set_read_timeout(Some(Duration::from_secs(1)))?;
    source.send_to(b"x", sink.local_addr()?)?;
    bounded("bytes over the control network", sink.recv(&mut [0; 10])? as u64, 1..2)
}

//! Associations between two ends of this process, by packets that the test moves, loses, damages
//! and turns around. Without the library they are reported as ignored.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};
use weir_sctp::{Association, Config, Ended, MESSAGE_MAX, NoSctp, Received, SendError, available, port_of, tick};

/// Nothing takes this long but what hangs.
const LIMIT: Duration = Duration::from_secs(60);

type Case = (&'static str, fn());

const CASES: [Case; 8] = [
    ("messages_of_several_streams_come_whole_and_in_the_order_of_their_stream", all_come),
    ("they_do_where_packets_are_lost_doubled_and_reordered", all_come_through_a_bad_network),
    ("a_damaged_packet_changes_nothing", damaged),
    ("no_packet_is_longer_than_the_path_takes", short_packets),
    ("a_loss_in_one_stream_does_not_hold_up_another", streams_are_apart),
    ("a_full_buffer_takes_no_more_until_the_other_end_has_read", full),
    ("an_end_that_closes_is_heard_of_and_one_that_is_gone_is_answered", over),
    ("a_forked_child_has_no_sctp_and_lets_go_of_its_parents_untouched", forked),
];

fn main() -> ExitCode {
    let absent = available().err();
    if let Some(why) = &absent {
        eprintln!("ignored: {why}");
    }
    let trials = CASES.map(|(name, test)| {
        Trial::test(name, move || {
            test();
            Ok::<(), Failed>(())
        })
        .with_ignored_flag(absent.is_some())
    });
    libtest_mimic::run(&Arguments::from_args(), trials.into()).exit_code()
}

/// What becomes of packets.
#[derive(Clone, Copy, Default)]
struct Network {
    /// Of 1000.
    lost: u64,
    doubled: u64,
    turned: u64,
    damaged: u64,
}

/// Two ends.
struct Pair {
    ends: [Association; 2],
    up: [u16; 2],
    got: [Vec<(u16, u32, Vec<u8>)>; 2],
    over: [Option<Ended>; 2],
    random: u64,
    longest: usize,
    start: Instant,
}

fn config() -> Config {
    Config { streams: 11, rto_min_ms: 20, packet_bytes: 1400 }
}

impl Pair {
    fn new() -> Pair {
        // Several tests share the process, and each has ports of its own.
        static PLACE: AtomicU64 = AtomicU64::new(0);
        let place = PLACE.fetch_add(2, Ordering::Relaxed) as u32;
        let ports = [place, place + 1].map(|place| port_of(place).expect("few"));
        let open = |i: usize| Association::open(ports[i], ports[1 - i], &config()).expect("an association");
        Pair {
            ends: [open(0), open(1)],
            up: [0; 2],
            got: Default::default(),
            over: [None; 2],
            random: 0x9e37_79b9_7f4a_7c15,
            longest: 0,
            start: Instant::now(),
        }
    }

    fn chance(&mut self, of_1000: u64) -> bool {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % 1000 < of_1000
    }

    /// Moves what there is once.
    fn step(&mut self, network: Network) {
        static CLOCK: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
        tick(CLOCK.elapsed().as_nanos() as u64 + 1_000_000_000);
        for from in 0..2 {
            let mut packets = Vec::new();
            while let Some(packet) = self.ends[from].next_packet() {
                self.longest = self.longest.max(packet.len());
                if self.chance(network.lost) {
                    continue;
                }
                if self.chance(network.doubled) {
                    packets.push(packet.clone());
                }
                packets.push(packet);
                let n = packets.len();
                if n > 1 && self.chance(network.turned) {
                    packets.swap(n - 1, n - 2);
                }
            }
            for mut packet in packets {
                if self.chance(network.damaged) {
                    let at = packet.len() / 2;
                    packet[at] ^= 0x40;
                }
                self.ends[1 - from].packet(&packet);
            }
        }
        let mut message = Vec::new();
        for at in 0..2 {
            loop {
                match self.ends[at].receive(&mut message) {
                    Received::Nothing => break,
                    Received::Up { streams } => self.up[at] = streams,
                    Received::Message { stream, ppid } => self.got[at].push((stream, ppid, message.clone())),
                    Received::Over(why) => self.over[at] = Some(why),
                }
            }
        }
        assert!(self.start.elapsed() < LIMIT, "it hangs: {:?} {:?}", self.up, self.over);
        std::thread::sleep(Duration::from_micros(50));
    }

    fn connect(&mut self, network: Network) {
        while self.up.contains(&0) {
            self.step(network);
        }
        assert_eq!(self.up, [11, 11]);
    }
}

fn content(stream: u16, n: u32, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i as u32).wrapping_mul(31).wrapping_add(n * 7 + u32::from(stream)) as u8).collect()
}

/// Sends messages of many lengths by all streams both ways, and checks what comes.
fn exchange(network: Network, each: u32) {
    const LENGTHS: [usize; 6] = [1, 40, 1399, 5000, 16 << 10, MESSAGE_MAX];
    let mut pair = Pair::new();
    pair.connect(network);
    let mut next = [[0u32; 11]; 2];
    while next.iter().flatten().any(|n| *n < each) || (0..2).any(|at| pair.got[at].len() < 11 * each as usize) {
        for (end, next) in pair.ends.iter_mut().zip(&mut next) {
            for stream in 0..11u16 {
                let n = next[usize::from(stream)];
                let len = LENGTHS[(n as usize + usize::from(stream)) % LENGTHS.len()];
                if n < each && end.send(stream, n, &content(stream, n, len)) == Ok(()) {
                    next[usize::from(stream)] += 1;
                }
            }
        }
        pair.step(network);
    }
    for got in &pair.got {
        let mut expected = [0u32; 11];
        for (stream, ppid, bytes) in got {
            let n = &mut expected[usize::from(*stream)];
            assert_eq!(*ppid, *n, "stream {stream}");
            let len = LENGTHS[(*n as usize + usize::from(*stream)) % LENGTHS.len()];
            assert!(*bytes == content(*stream, *n, len), "message {n} of stream {stream}");
            *n += 1;
        }
        assert_eq!(expected, [each; 11], "each once");
    }
    assert_eq!(pair.over, [None; 2]);
    assert!(pair.longest <= 1400, "a packet of {} bytes", pair.longest);
}

fn all_come() {
    exchange(Network::default(), 60);
}

fn all_come_through_a_bad_network() {
    exchange(Network { lost: 20, doubled: 20, turned: 50, damaged: 0 }, 30);
}

fn damaged() {
    exchange(Network { damaged: 20, ..Network::default() }, 20);
}

fn short_packets() {
    let mut pair = Pair::new();
    pair.connect(Network::default());
    pair.ends[0].set_packet_bytes(700).expect("taken");
    pair.longest = 0;
    pair.ends[0].send(3, 9, &content(3, 0, 16 << 10)).expect("room");
    while pair.got[1].is_empty() {
        pair.step(Network::default());
    }
    assert!((600..=700).contains(&pair.longest), "{}", pair.longest);
}

fn streams_are_apart() {
    let mut pair = Pair::new();
    pair.connect(Network::default());
    while pair.ends.iter().any(Association::has_packets) {
        pair.step(Network::default());
    }
    pair.ends[0].send(1, 1, &content(1, 0, 500)).expect("room");
    while pair.ends[0].next_packet().is_some() {}
    pair.ends[0].send(2, 2, &content(2, 0, 500)).expect("room");
    while pair.got[1].len() < 2 {
        pair.step(Network::default());
    }
    let order: Vec<u16> = pair.got[1].iter().map(|m| m.0).collect();
    assert_eq!(order, [2, 1], "the first packet was lost");
}

fn full() {
    let mut pair = Pair::new();
    pair.connect(Network::default());
    let piece = content(1, 0, 16 << 10);
    let mut taken = 0;
    while pair.ends[0].send(1, taken, &piece) == Ok(()) {
        taken += 1;
        assert!(taken < 1000, "a bound");
    }
    assert!(taken > 10 && pair.ends[0].waiting() > 0, "{taken}");
    assert_eq!(pair.ends[0].send(1, taken, &piece), Err(SendError::Full));
    while pair.got[1].len() < taken as usize {
        pair.step(Network::default());
    }
    while pair.ends[0].waiting() > 0 {
        pair.step(Network::default());
    }
    pair.ends[0].send(1, taken, &piece).expect("there is room again");
}

fn over() {
    let mut pair = Pair::new();
    pair.connect(Network::default());
    pair.ends[0].close();
    assert_eq!(pair.ends[0].send(1, 1, b"x"), Err(SendError::Over));
    while pair.over[1].is_none() {
        pair.step(Network::default());
    }
    assert_eq!(pair.over[1], Some(Ended::Lost));
    // Its ABORT is lost: who sends to it is told all the same.
    let mut pair = Pair::new();
    pair.connect(Network::default());
    pair.ends[0].close();
    while pair.ends[0].next_packet().is_some() {}
    pair.ends[1].send(1, 1, b"to whom?").expect("it does not know");
    while pair.over[1].is_none() {
        pair.step(Network::default());
    }
}

fn forked() {
    let mut pair = Pair::new();
    pair.connect(Network::default());
    // SAFETY: the child calls nothing that may wait for another thread of this process, allocates
    // by a library that is ready for that, and leaves by _exit; one that hangs is killed.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: plain calls; the ends are not used again in this process.
        unsafe {
            libc::alarm(20);
            let none = matches!(available(), Err(NoSctp::Forked));
            let refused = Association::open(port_of(1).unwrap_or(0), port_of(2).unwrap_or(0), &config()).is_err();
            std::ptr::drop_in_place(&raw mut pair.ends);
            libc::_exit(i32::from(!(none && refused)));
        }
    }
    let mut status = 0;
    // SAFETY: the pointer is to `status`.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(status, 0, "the forked child hung, or could use SCTP");
    pair.ends[0].send(1, 7, b"the parent goes on").expect("it is up");
    while pair.got[1].is_empty() {
        pair.step(Network::default());
    }
    assert_eq!(pair.got[1][0].2, b"the parent goes on");
}

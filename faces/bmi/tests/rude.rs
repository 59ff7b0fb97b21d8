//! What clients of `bmi_tcp` notice of others that send a byte a second, announce what never comes,
//! reset in the middle of a header, say nothing, or close one half (spec/bmi.md T3 to T6, F6).

mod common;

use common::LIMIT;
use common::wire::Server;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Of each kind that stays, and of those that say nothing.
const EACH: usize = 150;
const SILENT: usize = 1000;
/// Descriptors of the server: half of them are for strangers.
const DESCRIPTORS: usize = 4096;
const QUESTIONS: usize = 3000;
/// Others' 99th percentile is to stay below twice the quiet one; on a busy machine that is tried
/// again.
const TRIES: usize = 6;

/// Asks so often, each time for 24 bytes. The 99th percentile.
fn p99(server: &Server, stream: &mut TcpStream) -> Duration {
    const IDLE: i32 = 8;
    let mut took: Vec<Duration> = (0..QUESTIONS)
        .map(|_| {
            let begun = Instant::now();
            stream.write_all(&server.request(IDLE, 9, 0, 0)).expect("sent");
            stream.read_exact(&mut [0; 48]).expect("answered");
            begun.elapsed()
        })
        .collect();
    took.sort();
    took[QUESTIONS * 99 / 100]
}

/// Connections that stay, each with something of its own.
struct Crowd {
    slow: Vec<TcpStream>,
    others: Vec<TcpStream>,
}

impl Crowd {
    fn new(server: &Server) -> Crowd {
        let mut others = Vec::new();
        for _ in 0..EACH {
            // A payload that never comes.
            let mut stream = server.connect();
            stream.write_all(&server.header(8, 1, 16 << 20)).expect("sent");
            others.push(stream);
            // One half closed: in a header, and behind a message that nobody posts for.
            let mut stream = server.connect();
            stream.write_all(&server.header(4, 1, 5)[..7]).expect("sent");
            stream.shutdown(Shutdown::Write).expect("open");
            others.push(stream);
            let mut stream = server.connect();
            stream.write_all(&[server.header(4, 1, 500), vec![0; 500]].concat()).expect("sent");
            stream.shutdown(Shutdown::Write).expect("open");
            others.push(stream);
        }
        others.extend((0..SILENT).map(|_| server.connect()));
        Crowd { slow: (0..EACH).map(|_| server.connect()).collect(), others }
    }

    /// A byte a second of a header each, and now and then somebody who resets in the middle of one.
    fn goes_on(mut self, server: &Server, until: &AtomicBool) {
        let header = server.header(4, 1, 5);
        let mut next = Instant::now();
        let mut at = 0;
        while !until.load(Ordering::Acquire) {
            if next <= Instant::now() {
                self.slow.iter_mut().for_each(|stream| stream.write_all(&header[at..=at]).expect("sent"));
                (at, next) = (at + 1, next + Duration::from_secs(1));
                assert!(at < header.len(), "it takes longer than {at} s");
            }
            let mut stream = server.connect();
            stream.write_all(&header[..7]).expect("sent");
            let linger = socket2::SockRef::from(&stream);
            linger.set_linger(Some(Duration::ZERO)).expect("set");
            drop(stream);
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(self.others);
    }
}

#[test]
fn others_do_not_notice_rude_ones() {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("told");
    assert!(hard >= DESCRIPTORS as u64, "ulimit -Hn says {hard}");
    setrlimit(Resource::RLIMIT_NOFILE, soft.max(DESCRIPTORS as u64), hard).expect("set");
    let mut seen = Vec::new();
    for _ in 0..TRIES {
        let server = Server::with_descriptors(DESCRIPTORS);
        let mut good = server.connect();
        good.set_nodelay(true).expect("set");
        server.answers(&mut good);
        p99(&server, &mut good);
        let (before, memory) = (server.descriptors(), server.memory());
        let quiet = p99(&server, &mut good);
        let crowd = Crowd::new(&server);
        let over = AtomicBool::new(false);
        let beside = std::thread::scope(|scope| {
            scope.spawn(|| crowd.goes_on(&server, &over));
            let beside = p99(&server, &mut good);
            over.store(true, Ordering::Release);
            beside
        });
        assert!(server.memory().saturating_sub(memory) < 32 << 20, "{} before", memory);
        // They are gone, and so is what was theirs.
        let begun = Instant::now();
        while server.descriptors() > before {
            server.answers(&mut good);
            assert!(begun.elapsed() < LIMIT);
        }
        seen.push((quiet, beside));
        if beside < quiet * 2 {
            return;
        }
    }
    panic!("99th percentiles without and with the rude ones: {seen:?}");
}

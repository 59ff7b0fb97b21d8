//! A socket whose send buffer stays full: the endpoint waits for room, asleep, and queues nothing
//! of its own. Needs a network namespace with a slow link; where that is missing the test is
//! reported as ignored, not as passed.

mod common;
#[path = "../../transports/udp/tests/common/slow_link.rs"]
mod slow_link;

use common::{LIMIT, counter, packets, pair_with, post, send};
use libtest_mimic::Arguments;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use weir_engine::SendMode;

fn main() -> ExitCode {
    if slow_link::is_inside() {
        a_full_send_buffer_is_waited_for();
        return ExitCode::SUCCESS;
    }
    let trials = vec![slow_link::trial("a_full_send_buffer_is_waited_for")];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Gives the datagram sockets of this process the smallest send buffer there is.
fn shrink_send_buffers() {
    let mut found = 0;
    for fd in 3..100 {
        let (mut kind, mut len) = (0i32, size_of::<i32>() as libc::socklen_t);
        let least = 1i32;
        // SAFETY: pointers to live integers of the lengths given; whatever the descriptor is, the
        // calls only fail.
        unsafe {
            let r = libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_TYPE, (&raw mut kind).cast(), &raw mut len);
            if r == 0 && kind == libc::SOCK_DGRAM {
                found += 1;
                libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, (&raw const least).cast(), len);
            }
        }
    }
    assert!(found >= 2, "{found} sockets found");
}

fn a_full_send_buffer_is_waited_for() {
    const LEN: usize = 2 << 20;
    let p = pair_with(packets());
    shrink_send_buffers();
    let mut data: Vec<u8> = (0..LEN).map(|i| ((i * 7) >> 3) as u8).collect();
    let mut buf = vec![0u8; LEN];
    post(&p.b, None, 1, &mut buf);
    send(&p.a, p.to_b, 1, &mut data, SendMode::Delivery).expect("sent");
    // Nobody polls: the watchdog threads do all the work.
    let start = Instant::now();
    while p.b.totals().recvs == 0 || p.a.totals().sends == 0 {
        std::thread::sleep(Duration::from_millis(20));
        assert!(start.elapsed() < LIMIT, "{} {}", p.a.counters_json(), p.b.counters_json());
    }
    assert_eq!(data, buf);
    let (tried, sent) = (counter(&p.a, "tx_blocked"), counter(&p.a, "tx_datagrams"));
    assert!(tried > 0, "the link was not slow enough for this test");
    // Who is told of room sends at least one datagram before it is full again; polled, it was tried
    // twice for each.
    assert!(tried < sent, "a full socket was tried {tried} times for {sent} datagrams");
}

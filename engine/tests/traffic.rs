//! What the endpoints of a process carried, as who measures is told it. Alone in its process: the
//! sums are of all its endpoints.

mod common;

use common::{LIMIT, config, iov, open, over_shared_memory, recv_op, send_op, send_when_accepted};
use std::time::Instant;
use weir_engine::{Queue, SendMode, Traffic, traffic};

const SIZES: [usize; 3] = [8, 3000, 300_000];

#[test]
fn payload_of_all_endpoints_is_counted_those_that_are_closed_included() {
    assert_eq!(traffic(), Traffic::default());
    let (from, to) = (open(config()), open(config()));
    let (peer, begun) = (from.insert_peer(&to.name()).expect("name"), Instant::now());
    assert_eq!(traffic(), Traffic { endpoints: 2, ..Traffic::default() });
    for (i, size) in SIZES.into_iter().enumerate() {
        let (mut data, mut buf, mut done) = (vec![1u8; size], vec![0u8; size], Vec::new());
        let (out, into) = (iov(&mut data), iov(&mut buf));
        // SAFETY: the memory outlives the completions, which are awaited below.
        unsafe { to.recv(&recv_op(None, i as u64, &into)) }.expect("receive");
        send_when_accepted(&from, &send_op(peer, i as u64, &out, SendMode::Transmit));
        let mut left = 2;
        while left > 0 {
            for ep in [&from, &to] {
                ep.poll(Queue::Both, &mut done, 8);
            }
            left -= done.drain(..).inspect(|c| assert_eq!(c.result, Ok(()))).count();
            assert!(begun.elapsed() < LIMIT, "{}", from.counters_json());
        }
    }
    let sum: u64 = SIZES.iter().map(|size| *size as u64).sum();
    let open = traffic();
    assert_eq!((open.endpoints, open.messages, open.payload_bytes), (2, 3, sum));
    // The longest may go by a bulk TCP connection, of which is counted what the peer has told that
    // it read.
    let by = if over_shared_memory() { open.shm_bytes >= sum } else { open.udp_bytes >= 3008 };
    assert!(by, "{open:?}");
    from.close();
    to.close();
    let closed = traffic();
    assert_eq!((closed.endpoints, closed.messages, closed.payload_bytes), (0, 3, sum));
    assert_eq!(closed.since(&open).payload_bytes, 0);
}

//! Two endpoints over a faulty pipe: the end-to-end behaviour of the protocol.

mod net;

use std::time::Duration;

use net::{Faults, Net};
use weir_proto::*;

const S: Duration = Duration::from_secs(1);

#[test]
fn first_message_and_reply() {
    let mut n = Net::new(2, 1, &Config::default(), 1);
    n.send(0, 1, false, 3, 0, 0, 8).unwrap();
    assert!(n.run(S, Net::quiet));
    assert_eq!(n.nodes[1].messages.len(), 1);
    n.send(1, 0, false, 3, 0, 0, 8).unwrap();
    assert!(n.run(S, Net::quiet));
    assert_eq!(n.nodes[0].messages.len(), 1);
    assert_eq!(n.nodes[0].ups.len() + n.nodes[1].ups.len(), 2);
}

#[test]
fn all_sizes_over_a_lossy_pipe() {
    for (seed, loss) in [(1, 0), (2, 20_000), (3, 100_000), (4, 300_000)] {
        let mut n = Net::new(2, 1, &Config::default(), seed);
        n.faults = Faults { loss, dup: loss / 2, corrupt: loss / 2, truncate: loss / 4, jitter_ns: 30_000, ..Faults::default() };
        for (k, len) in [0u32, 1, 8, 255, 256, 1200, 1400, 1401, 1500, 3000, 30_000, 300_000, 100_000, 5].into_iter().enumerate() {
            n.send(0, 1, false, k as u16, 0, 0, len).unwrap();
            n.send(1, 0, false, k as u16, 0, 0, len).unwrap();
            n.send(0, 1, true, 0, 0, 0, len.min(1000)).unwrap();
        }
        for len in [1u64, 1500, 100_000, 3_000_000] {
            n.offer(0, 1, len);
            n.offer(1, 0, len);
        }
        let t0 = n.now;
        assert!(n.run(30 * S, Net::quiet), "loss {loss}: {:?} {:?}", n.nodes[0].ep.peer_stats(PeerId(0)), n.nodes[0].open_tokens);
        println!("loss {loss}: {:?} {:?}", n.now - t0, n.nodes[0].ep.peer_stats(PeerId(0)));
        for node in &n.nodes {
            assert!(node.failed.is_empty());
            assert!(node.messages.values().all(|r| r.complete) && node.bodies.values().all(|r| r.complete));
            assert_eq!(node.bodies.len(), 4);
        }
        assert_eq!(n.nodes[1].messages.len(), 14 + 14 + 4 + 4);
    }
}

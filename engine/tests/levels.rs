//! Protection levels between whole endpoints: what is asked for is what is used, everything arrives
//! under each, and each does what it is for.

mod common;

use common::{
    Pair, counter, iov, packets, pair_of, pair_with, pattern, post, register, rma_op, send, send_op,
    send_when_accepted, wait,
};
use weir_engine::{BulkUse, EngineConfig, Level, Queue, SendMode};

/// Each level and the number by which the counters tell it.
const LEVELS: [(Level, u64); 3] = [(Level::Integrity, 0), (Level::Auth, 1), (Level::Encrypt, 2)];

fn at(level: Level) -> EngineConfig {
    EngineConfig { level, ..packets() }
}

/// One message each way at the same time, received expected (`b`'s) and unexpected (`a`'s).
fn exchange(p: &Pair, tag: u64, len: usize) {
    let (mut there, mut back) = (pattern(len, 1), pattern(len, 2));
    let (mut got, mut got_back) = (vec![0; len + 1], vec![0; len + 1]);
    post(&p.b, Some(p.to_a), tag, &mut got[..len]);
    let (iov_there, iov_back) = (iov(&mut there), iov(&mut back));
    send_when_accepted(&p.a, &send_op(p.to_b, tag, &iov_there, SendMode::Delivery));
    send_when_accepted(&p.b, &send_op(p.to_a, tag, &iov_back, SendMode::Match));
    let c = wait(&p.b, &p.a, Queue::Recv);
    assert_eq!((c.result, c.len, c.tag), (Ok(()), len, tag));
    post(&p.a, None, tag, &mut got_back[..len]);
    let c = wait(&p.a, &p.b, Queue::Recv);
    assert_eq!((c.result, c.len, c.tag), (Ok(()), len, tag));
    assert_eq!(wait(&p.a, &p.b, Queue::Send).result, Ok(()));
    assert_eq!(wait(&p.b, &p.a, Queue::Send).result, Ok(()));
    assert!(got[..len] == there[..] && got_back[..len] == back[..], "payload of {len} bytes differs");
    assert_eq!((got[len], got_back[len]), (0, 0), "written behind a receive");
}

/// What both have agreed on.
fn agreed(p: &Pair) -> (u64, u64) {
    (counter(&p.a, "level"), counter(&p.b, "level"))
}

#[test]
fn messages_and_remote_memory_of_all_sizes_are_whole_at_each_level() {
    for (level, number) in LEVELS {
        // Where a bulk connection may not carry what is to be protected, it must not, however much
        // bulk connections are wanted.
        for bulk_connections in [BulkUse::Off, BulkUse::Always] {
            let p = pair_with(EngineConfig { bulk_connections, ..at(level) });
            for (i, len) in [0, 1, 8, 1300, 1473, 30_000, 65_536, 131_073, 300_000, 2 << 20].into_iter().enumerate() {
                exchange(&p, i as u64, len);
            }
            let mut memory = vec![0u8; 400_000];
            let key = register(&p.b, &mut memory);
            let (mut data, mut back) = (pattern(400_000, 7), vec![0; 400_000]);
            let (out, into) = (iov(&mut data), iov(&mut back));
            // SAFETY: the buffers live to the end of the round.
            unsafe { p.a.write(&rma_op(p.to_b, key, &out)) }.expect("write");
            assert_eq!(wait(&p.a, &p.b, Queue::Send).result, Ok(()));
            // SAFETY: as above.
            unsafe { p.a.read(&rma_op(p.to_b, key, &into)) }.expect("read");
            assert_eq!(wait(&p.a, &p.b, Queue::Send).result, Ok(()));
            assert!(memory == data && back == data);
            assert_eq!(agreed(&p), (number, number), "{level:?}");
            assert_eq!(counter(&p.b, "dropped_check") + counter(&p.b, "dropped_malformed"), 0);
            let opened = counter(&p.a, "bulk_connections_opened");
            assert!(
                opened == 0 || (level == Level::Integrity && bulk_connections == BulkUse::Always),
                "{level:?} by a bulk connection"
            );
        }
    }
}

// spec: P-3.8
#[test]
fn two_sides_that_ask_for_different_levels_use_the_higher() {
    for (a, na) in LEVELS {
        for (b, nb) in LEVELS {
            let p = pair_of(at(a), at(b));
            for len in [8, 300_000] {
                exchange(&p, 1, len);
            }
            assert_eq!(agreed(&p), (na.max(nb), na.max(nb)), "{a:?} with {b:?}");
        }
    }
}

#[test]
fn what_is_damaged_on_its_way_is_dropped_and_repeated_at_each_level() {
    for (level, _) in LEVELS {
        // Bulk connections are TCP's, and the faults are made behind our own socket only.
        let faults = Some("corrupt=3%,rx_corrupt=3%,seed=5".to_owned());
        let p = pair_with(EngineConfig { faults, bulk_connections: BulkUse::Off, ..at(level) });
        let mut rounds = 0;
        while counter(&p.a, "dropped_check") == 0 || counter(&p.b, "dropped_check") == 0 {
            exchange(&p, 1, 300_000);
            exchange(&p, 1, 100);
            rounds += 1;
            assert!(rounds < 500, "nothing was found damaged: {}", p.a.counters_json());
        }
    }
}

// spec: P-2.10
#[test]
fn encrypted_payload_and_tags_are_on_no_wire_and_others_are() {
    const SECRET: &[u8] = b"the payload that nobody may read";
    const TAG: u64 = 0x5ec2_e754_6a9f_0d31;
    let folder = std::env::temp_dir().join(format!("weir-levels-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("folder");
    for (level, number) in LEVELS {
        let file = folder.join(format!("{number}.pcapng"));
        let capture = Some(file.display().to_string());
        let p = pair_of(EngineConfig { capture, bulk_connections: BulkUse::Off, ..at(level) }, at(level));
        for len in [SECRET.len(), 200 * SECRET.len(), 10_000 * SECRET.len()] {
            let mut data = SECRET.repeat(len / SECRET.len());
            let mut buf = vec![0; len];
            post(&p.b, None, TAG, &mut buf);
            send(&p.a, p.to_b, TAG, &mut data, SendMode::Delivery).expect("send");
            wait(&p.b, &p.a, Queue::Recv);
            wait(&p.a, &p.b, Queue::Send);
            assert!(buf == data);
        }
        p.b.close();
        p.a.close();
        drop(p);
        let wire = std::fs::read(&file).expect("capture");
        assert!(wire.len() > 300_000, "{} bytes of capture", wire.len());
        let seen = |what: &[u8]| wire.windows(what.len()).any(|w| w == what);
        assert_eq!(seen(SECRET), level != Level::Encrypt, "payload at {level:?}");
        assert_eq!(seen(&TAG.to_le_bytes()), level != Level::Encrypt, "tag at {level:?}");
    }
    std::fs::remove_dir_all(&folder).expect("removed");
}

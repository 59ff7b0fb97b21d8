//! The ring against a model, on ordinary memory: `cargo test -p weir-shm --test ring`, and under
//! Miri `cargo +nightly miri test -p weir-shm --test ring`.
#![cfg(not(loom))]

use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::Arc;
use weir_shm::ring::{Consumer, Corrupt, HeapRing, KIND_MAX, MIN_WORDS, NoRoom, Producer};

/// 1 KiB: records of up to 248 bytes, and a lap is a handful of them.
const WORDS: usize = 128;
/// Not the ring's beginning, as with real peers.
const ORIGIN: usize = 5;

fn ring(words: usize) -> (Arc<HeapRing>, Producer<Arc<HeapRing>>, Consumer<Arc<HeapRing>>) {
    let memory = Arc::new(HeapRing::new(words));
    (Arc::clone(&memory), Producer::new(Arc::clone(&memory), ORIGIN), Consumer::new(memory, ORIGIN))
}

fn send(tx: &mut Producer<Arc<HeapRing>>, kind: u16, payload: &[u8]) -> Result<(), NoRoom> {
    let mut room = tx.reserve(kind, payload.len())?;
    room.write(0, payload);
    room.commit();
    Ok(())
}

fn receive(rx: &mut Consumer<Arc<HeapRing>>) -> Option<(u16, Vec<u8>)> {
    rx.try_recv().expect("nobody scribbles").map(|record| (record.kind(), record.bytes().to_vec()))
}

#[derive(Clone, Debug)]
enum Step {
    Commit(u16, usize),
    GiveUp(usize),
    Publish,
    Receive,
    Sleep,
    WaitForRoom,
    Trim,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..=KIND_MAX, 0..=260usize).prop_map(|(kind, len)| Step::Commit(kind, len)),
        1 => (0..=260usize).prop_map(Step::GiveUp),
        3 => Just(Step::Publish),
        5 => Just(Step::Receive),
        1 => Just(Step::Sleep),
        1 => Just(Step::WaitForRoom),
        1 => Just(Step::Trim),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 512 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_published_is_received_once_whole_and_in_order(steps in prop::collection::vec(step(), 0..if cfg!(miri) { 60 } else { 400 })) {
        let (memory, mut tx, mut rx) = ring(WORDS);
        let (mut committed, mut published) = (VecDeque::new(), VecDeque::new());
        let (mut sleeps, mut fill) = (false, 0u8);
        for step in steps {
            match step {
                Step::Commit(kind, len) => {
                    fill = fill.wrapping_add(1) | 0x80;
                    let payload: Vec<u8> = (0..len).map(|i| fill ^ i as u8).collect();
                    match send(&mut tx, kind, &payload) {
                        Ok(()) => committed.push_back((kind, payload)),
                        Err(NoRoom::TooLong) => prop_assert!(len > tx.max_payload()),
                        Err(cause) => {
                            prop_assert_eq!(cause, NoRoom::Full);
                            // Three records of the longest kind always leave too little, one never
                            // does.
                            prop_assert!(!committed.is_empty() || !published.is_empty());
                        }
                    }
                }
                Step::GiveUp(len) => {
                    if let Ok(mut room) = tx.reserve(1, len) {
                        room.write(0, &vec![0xff; len]);
                    }
                }
                Step::Publish => {
                    let shows = !committed.is_empty();
                    let woken = tx.publish();
                    // A skip alone may be published too, so it may wake without a record; a record
                    // always wakes.
                    prop_assert!(woken || !(shows && sleeps));
                    sleeps &= !woken;
                    published.append(&mut committed);
                }
                Step::Receive => {
                    prop_assert_eq!(receive(&mut rx), published.pop_front());
                    rx.cancel_sleep();
                    sleeps = false;
                }
                Step::Sleep => {
                    sleeps = rx.prepare_sleep();
                    prop_assert!(!sleeps || published.is_empty());
                }
                Step::WaitForRoom => {
                    let _ = tx.prepare_sleep().expect("nobody scribbles");
                    tx.cancel_sleep();
                }
                Step::Trim => {
                    if let Some(ranges) = tx.unused(64).expect("nobody scribbles") {
                        prop_assert!(committed.is_empty() && published.is_empty());
                        for word in ranges.into_iter().flat_map(|range| range.start / 8..range.end / 8) {
                            memory.scribble(4 + word, 0);
                        }
                    }
                }
            }
        }
        let _ = tx.close();
        published.append(&mut committed);
        while let Some(expected) = published.pop_front() {
            prop_assert_eq!(receive(&mut rx), Some(expected));
        }
        prop_assert_eq!(receive(&mut rx), None);
        prop_assert!(rx.is_closed());
    }

    #[test]
    fn bytes_are_read_from_any_place(at in 0..300usize, len in 0..300usize) {
        let (_, mut tx, mut rx) = ring(512);
        let payload: Vec<u8> = (0..290).map(|i| i as u8).collect();
        send(&mut tx, 0, &payload).expect("room");
        let _ = tx.publish();
        let record = rx.try_recv().expect("whole").expect("there");
        let mut out = vec![0xaa; len];
        let n = record.bytes().copy_to(at, &mut out);
        prop_assert_eq!(n, 290usize.saturating_sub(at).min(len));
        prop_assert_eq!(&out[..n], payload.get(at..at + n).unwrap_or(&[]));
        let word = record.bytes().read_at::<4>(at);
        prop_assert_eq!(word, payload.get(at..at + 4).map(|b| <[u8; 4]>::try_from(b).expect("four")));
    }

    #[test]
    fn scribbling_ends_in_an_error_or_in_wrong_bytes(words in prop::collection::vec((0..WORDS + 4, any::<u64>(), 0..8u8), 1..60)) {
        let (memory, mut tx, mut rx) = ring(WORDS);
        for (word, value, what) in words {
            match what {
                0..3 => memory.scribble(word, value),
                // A header that could be: right check for the first laps, any length and kind.
                3 => memory.scribble(4 + (word & !7), value & 0x0001_ffff_01ff | 1 << 63 | (word as u64 / 8) << 48),
                4 | 5 => {
                    let _ = send(&mut tx, 3, &[1; 100]);
                    let _ = tx.publish();
                }
                6 => { let _ = tx.unused(64); }
                _ => {
                    for _ in 0..3 {
                        if let Ok(Some(record)) = rx.try_recv() {
                            prop_assert!(record.bytes().to_vec().len() <= tx.max_payload());
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn a_record_that_was_given_up_leaves_nothing_behind() {
    let (_, mut tx, mut rx) = ring(WORDS);
    send(&mut tx, 1, &[1; 8]).expect("room");
    let _ = tx.publish();
    // Longer than a line, so that it writes over the place of the next header.
    tx.reserve(2, 200).expect("room").write(0, &[0xff; 200]);
    send(&mut tx, 3, &[3; 8]).expect("room");
    let _ = tx.publish();
    assert_eq!(receive(&mut rx), Some((1, vec![1; 8])));
    assert_eq!(receive(&mut rx), Some((3, vec![3; 8])));
    assert_eq!(receive(&mut rx), None);
}

#[test]
fn room_is_told_once_to_who_would_sleep_for_it() {
    let (_, mut tx, mut rx) = ring(WORDS);
    while send(&mut tx, 1, &[1; 200]).is_ok() {}
    let _ = tx.publish();
    assert_eq!(tx.prepare_sleep(), Ok(true));
    tx.cancel_sleep();
    while receive(&mut rx).is_some() {}
    assert_eq!(tx.prepare_sleep(), Ok(false));
    // Whoever gave the record up can sleep.
    assert_eq!(tx.prepare_sleep(), Ok(true));
}

#[test]
fn nothing_is_seen_before_it_is_published() {
    let (_, mut tx, mut rx) = ring(WORDS);
    for kind in 0..3 {
        send(&mut tx, kind, &[9; 20]).expect("room");
    }
    assert!(!rx.has_record() && tx.has_unpublished());
    let _ = tx.publish();
    for kind in 0..3 {
        assert_eq!(receive(&mut rx), Some((kind, vec![9; 20])));
    }
}

#[test]
fn impossible_positions_and_headers_are_errors() {
    let (memory, mut tx, mut rx) = ring(MIN_WORDS);
    // The ring has four lines.
    memory.scribble(4 + ORIGIN % 4 * 8, 0x1234);
    assert_eq!(rx.try_recv().err(), Some(Corrupt::Header));
    assert_eq!(rx.try_recv().err(), Some(Corrupt::Header));
    for head in [64 * 1000, 1, u64::MAX] {
        memory.scribble(0, head);
        while send(&mut tx, 0, &[]).is_ok() {}
        assert_eq!(send(&mut tx, 0, &[]), Err(NoRoom::Corrupt(Corrupt::Head)), "{head}");
    }
}

#[test]
fn threads_exchange_records_in_order() {
    let laps = if cfg!(miri) { 60 } else { 20_000 };
    let (_, mut tx, mut rx) = ring(WORDS);
    let writer = std::thread::spawn(move || {
        for n in 0..laps as u32 {
            let payload = vec![n as u8; n as usize % 200];
            while send(&mut tx, n as u16 & 0xff, &payload).is_err() {
                let _ = tx.publish();
                std::thread::yield_now();
            }
            if n % 3 == 0 {
                let _ = tx.publish();
            }
        }
        let _ = tx.close();
    });
    for n in 0..laps as u32 {
        let got = loop {
            match receive(&mut rx) {
                Some(got) => break got,
                None => std::thread::yield_now(),
            }
        };
        assert_eq!(got, (n as u16 & 0xff, vec![n as u8; n as usize % 200]));
    }
    writer.join().expect("the writer ends well");
}

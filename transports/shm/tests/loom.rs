//! The ring and the board under the model checker, in every order that the memory model permits
//! (bounded to two or three preemptions):
//! `RUSTFLAGS="--cfg loom" cargo test -p weir-shm --release --test loom --target-dir target/loom`.
//! Without `--cfg loom` there is nothing here.
//!
//! What it cannot show: loom gives a load no value that is stored later, so that `head` stored
//! without release semantics, which lets a record be written over while it is copied out, goes
//! unnoticed.
#![cfg(loom)]

use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use loom::thread;
use std::sync::Arc;
use weir_shm::board::{Board, ROW_BYTES, Seen, Shape};
use weir_shm::ring::{Consumer, HeapRing, MIN_WORDS, Producer};

type Ends = (Producer<Arc<HeapRing>>, Consumer<Arc<HeapRing>>);

/// The smallest ring: a record takes one of its four lines.
fn ring() -> Ends {
    let memory = Arc::new(HeapRing::new(MIN_WORDS));
    (Producer::new(Arc::clone(&memory), 1), Consumer::new(memory, 1))
}

fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

fn send(tx: &mut Producer<Arc<HeapRing>>, n: u64) -> bool {
    let Ok(mut room) = tx.reserve(n as u16, 16) else { return false };
    room.write(0, &n.to_le_bytes());
    room.write(8, &(!n).to_le_bytes());
    room.commit();
    true
}

/// The next record's number, after a look at all of it.
fn receive(rx: &mut Consumer<Arc<HeapRing>>) -> Option<u64> {
    let record = rx.try_recv().expect("nobody scribbles")?;
    let n = u64::from_le_bytes(record.bytes().read_at(0).expect("16 bytes"));
    assert_eq!(record.bytes().read_at(8), Some((!n).to_le_bytes()), "a record is seen whole or not at all");
    assert_eq!(u64::from(record.kind()), n);
    Some(n)
}

#[test]
fn records_are_seen_whole_and_in_order_over_a_lap() {
    check(2, || {
        let (mut tx, mut rx) = ring();
        let writer = thread::spawn(move || {
            for n in 1..=5 {
                while !send(&mut tx, n) {
                    thread::yield_now();
                }
                let _ = tx.publish();
            }
        });
        for n in 1..=5 {
            loop {
                match receive(&mut rx) {
                    Some(got) => break assert_eq!(got, n),
                    None => thread::yield_now(),
                }
            }
        }
        writer.join().expect("the writer ends");
        assert_eq!(receive(&mut rx), None);
    });
}

#[test]
fn records_published_together_are_seen_whole_and_in_order() {
    check(3, || {
        let (mut tx, mut rx) = ring();
        let writer = thread::spawn(move || {
            assert!(send(&mut tx, 1) && send(&mut tx, 2) && send(&mut tx, 3));
            let _ = tx.publish();
        });
        let mut last = 0;
        for _ in 0..4 {
            match receive(&mut rx) {
                Some(n) => {
                    assert_eq!(n, last + 1);
                    last = n;
                }
                None => thread::yield_now(),
            }
        }
        writer.join().expect("the writer ends");
        while let Some(n) = receive(&mut rx) {
            assert_eq!(n, last + 1);
            last = n;
        }
        assert_eq!(last, 3);
    });
}

#[test]
fn a_sleeper_sees_the_record_or_is_woken() {
    check(3, || {
        let (mut tx, mut rx) = ring();
        let woken = Arc::new(AtomicBool::new(false));
        let wake = Arc::clone(&woken);
        let writer = thread::spawn(move || {
            for n in 1..=2 {
                assert!(send(&mut tx, n));
                if tx.publish() {
                    wake.store(true, Ordering::Release);
                }
            }
        });
        let sleeps = rx.prepare_sleep();
        writer.join().expect("the writer ends");
        assert!(!sleeps || woken.load(Ordering::Acquire), "it would sleep for ever");
        rx.cancel_sleep();
        assert_eq!((receive(&mut rx), receive(&mut rx), receive(&mut rx)), (Some(1), Some(2), None));
    });
}

/// A ring that is looked at only after a waking, by who does not sleep (spec/shm.md 5.6): each
/// record is read, or lies behind a waking that was not taken yet.
#[test]
fn a_record_in_a_ring_left_to_its_socket_is_read_or_a_waking_is_under_way() {
    check(3, || {
        let (mut tx, mut rx) = ring();
        let packets = Arc::new(AtomicU64::new(0));
        let socket = Arc::clone(&packets);
        let writer = thread::spawn(move || {
            for n in 1..=2 {
                assert!(send(&mut tx, n));
                if tx.publish() {
                    socket.fetch_add(1, Ordering::Release);
                }
            }
        });
        let (mut got, mut taken, mut left) = (0, 0, rx.prepare_sleep());
        for _ in 0..2 {
            let sent = packets.load(Ordering::Acquire);
            if left && sent == taken {
                thread::yield_now();
                continue;
            }
            taken = sent;
            rx.cancel_sleep();
            while receive(&mut rx).is_some() {
                got += 1;
            }
            left = rx.prepare_sleep();
        }
        writer.join().expect("the writer ends");
        if !left || packets.load(Ordering::Acquire) != taken {
            while receive(&mut rx).is_some() {
                got += 1;
            }
        }
        assert_eq!(got, 2, "nobody would ever look");
    });
}

#[test]
fn a_sleeper_sees_the_end_or_is_woken() {
    check(3, || {
        let (mut tx, rx) = ring();
        let woken = Arc::new(AtomicBool::new(false));
        let wake = Arc::clone(&woken);
        let writer = thread::spawn(move || wake.store(tx.close(), Ordering::Release));
        let sleeps = rx.prepare_sleep();
        writer.join().expect("the writer ends");
        assert!(!sleeps || woken.load(Ordering::Acquire), "it would sleep for ever");
        assert!(rx.is_closed());
    });
}

#[test]
fn a_producer_that_sleeps_for_room_sees_it_or_is_woken() {
    check(3, || {
        let (mut tx, mut rx) = ring();
        assert!(send(&mut tx, 1) && send(&mut tx, 2) && send(&mut tx, 3) && !send(&mut tx, 4));
        let _ = tx.publish();
        let reader = thread::spawn(move || {
            let mut wakes = false;
            while receive(&mut rx).is_some() {
                wakes |= rx.take_wake();
            }
            wakes
        });
        let sleeps = tx.prepare_sleep().expect("nobody scribbles");
        let woken = reader.join().expect("the reader ends");
        assert!(!sleeps || woken, "it would sleep for ever");
        assert!(send(&mut tx, 4));
    });
}

/// What a member says in a step is what the other reads of that step, and it is not written over
/// while it reads: the two sides of the board.
#[test]
fn members_of_a_board_read_what_was_said_in_the_step() {
    check(2, || {
        let shape = Shape::with_heap(2, 8).expect("a shape");
        let memory: Arc<[AtomicU64]> = (0..shape.words()).map(|_| AtomicU64::new(0)).collect();
        let member = move |own: usize, memory: Arc<[AtomicU64]>| {
            let (mut board, other) = (Board::new(memory, shape, own, 1).expect("a board"), 1 - own);
            for step in 1..=3 {
                let bytes = (step << 8 | own as u64).to_le_bytes();
                assert!(board.say(step, other, &[step as u8; ROW_BYTES], &[&bytes]));
                board.post(step, 1);
                loop {
                    match board.look(other, step, 1) {
                        Seen::NotYet => thread::yield_now(),
                        seen => break assert_eq!(seen, Seen::Here { says: true }),
                    }
                }
                assert!(board.tells(other, step));
                let row = board.row(other, step);
                assert_eq!(row.says, [step as u8; ROW_BYTES]);
                let bytes = board.bytes(other, step, row.at.expect("there"), 8).expect("there");
                assert_eq!(bytes.read_at(0), Some((step << 8 | other as u64).to_le_bytes()));
            }
        };
        let theirs = Arc::clone(&memory);
        let there = thread::spawn(move || member(1, theirs));
        member(0, memory);
        there.join().expect("the other ends");
    });
}

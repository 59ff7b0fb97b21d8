//! Boards on ordinary memory: members that are threads, and members that scribble.
#![cfg(not(loom))]

use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_shm::board::{Board, ROW_BYTES, Seen, Shape};

type Memory = Arc<[AtomicU64]>;

fn memory(shape: Shape) -> Memory {
    (0..shape.words()).map(|_| AtomicU64::new(0)).collect()
}

fn board(memory: &Memory, shape: Shape, own: usize) -> Board<Memory> {
    Board::new(Arc::clone(memory), shape, own, 1).expect("a board")
}

/// What member `from` says to `to` in a step: nothing, or so many bytes.
fn said(from: usize, to: usize, step: u64) -> Option<Vec<u8>> {
    let seed = step as usize * 31 + from * 7 + to;
    (!seed.is_multiple_of(3)).then(|| (0..seed % 40).map(|i| (seed + i) as u8).collect())
}

fn row(from: usize, to: usize, step: u64) -> [u8; ROW_BYTES] {
    let mut row = [from as u8; ROW_BYTES];
    row[8..16].copy_from_slice(&step.to_le_bytes());
    row[16] = to as u8;
    row
}

/// One step of a member: says, posts, waits for all, and reads what is said to it.
fn step(board: &mut Board<Memory>, own: usize, members: usize, step: u64) {
    for to in (0..members).filter(|to| *to != own) {
        if let Some(bytes) = said(own, to, step) {
            let (a, b) = bytes.split_at(bytes.len() / 8 * 4);
            // There is room for one of them.
            let fits = board.say(step, to, &row(own, to, step), &[a, b]);
            assert!(fits || !bytes.is_empty());
        }
    }
    board.post(step, 1);
    for from in (0..members).filter(|from| *from != own) {
        let says = loop {
            match board.look(from, step, 1) {
                Seen::Here { says } => break says,
                Seen::NotYet => std::thread::yield_now(),
                other => panic!("{from} of {step}: {other:?}"),
            }
        };
        let expected = said(from, own, step);
        assert_eq!(says && board.tells(from, step), expected.is_some(), "{from} to {own} in {step}");
        if let Some(expected) = expected {
            let found = board.row(from, step);
            assert_eq!(found.says, row(from, own, step));
            if let Some(at) = found.at {
                let bytes = board.bytes(from, step, at, expected.len() as u64).expect("in the heap");
                assert_eq!(bytes.to_vec(), expected);
            }
        }
    }
}

#[test]
fn members_meet_step_after_step_and_read_what_is_said_to_them() {
    for members in [2, 3, 7] {
        let shape = Shape::with_heap(members, 64).expect("a shape");
        let memory = memory(shape);
        std::thread::scope(|s| {
            for own in 0..members {
                let memory = &memory;
                s.spawn(move || {
                    let mut board = board(memory, shape, own);
                    (1..500).for_each(|n| step(&mut board, own, members, n));
                });
            }
        });
    }
}

#[test]
fn a_board_is_for_2_to_64_and_its_memory_is_as_large_as_its_shape() {
    assert!(Shape::of(0).is_none() && Shape::of(1).is_none() && Shape::of(65).is_none());
    for members in [2, 3, 64] {
        let shape = Shape::of(members).expect("a shape");
        assert!(shape.heap_bytes() >= 64 << 10 && shape.words() < 20 << 20);
    }
    let shape = Shape::with_heap(2, 64).expect("a shape");
    let short: Memory = (0..shape.words() - 1).map(|_| AtomicU64::new(0)).collect();
    assert!(Board::new(short, shape, 0, 1).is_none());
    assert!(Board::new(memory(shape), shape, 2, 1).is_none());
}

#[test]
fn ends_of_another_kind_and_nonsense_are_told_from_who_is_late() {
    let shape = Shape::with_heap(2, 64).expect("a shape");
    let memory = memory(shape);
    let (mut one, other) = (board(&memory, shape, 0), board(&memory, shape, 1));
    assert_eq!(other.look(0, 1, 1), Seen::NotYet);
    one.post(1, 2);
    assert_eq!(other.look(0, 1, 1), Seen::OtherKind);
    assert_eq!(other.look(0, 3, 1), Seen::NotYet, "two steps later");
    assert_eq!(other.look(0, 5, 1), Seen::Nonsense, "four steps later it cannot be there");
    assert!(one.are_own_lines_whole(1) && !one.are_own_lines_whole(3));
    one.post(3, 1);
    assert!(!one.are_own_lines_whole(3), "nor is the one before");
    assert_eq!(other.look(0, 1, 1), Seen::Nonsense, "nobody goes on without the others");
}

#[test]
fn what_finds_no_room_is_told_all_the_same() {
    let shape = Shape::with_heap(3, 64).expect("a shape");
    let memory = memory(shape);
    let (mut one, other) = (board(&memory, shape, 0), board(&memory, shape, 1));
    assert!(!one.say(1, 1, &[1; ROW_BYTES], &[&[0; 65]]));
    assert!(one.say(1, 2, &[2; ROW_BYTES], &[&[3; 64]]));
    one.post(1, 1);
    assert_eq!(other.look(0, 1, 1), Seen::Here { says: true });
    assert!(other.tells(0, 1));
    assert_eq!((other.row(0, 1).says, other.row(0, 1).at), ([1; ROW_BYTES], None));
    assert!(one.say(2, 1, &[1; ROW_BYTES], &[&[0; 64]]), "the other half is free");
}

#[test]
fn what_is_lent_is_listed_and_its_owner_sees_when_it_was_read() {
    let shape = Shape::with_heap(2, 128).expect("a shape");
    let memory = memory(shape);
    let (mut one, mut other) = (board(&memory, shape, 0), board(&memory, shape, 1));
    assert!(!one.reaches(1));
    other.set_reach(1);
    assert!(one.reaches(1) && !other.reaches(0));
    assert!(one.say(1, 1, &[1; ROW_BYTES], &[&[2; 8]]) && one.lend(1, 1, &[7; 16]) && !one.lend(1, 1, &[7; 8]));
    assert!(other.row(0, 1).list.is_none(), "what found no room is not told");
    one.post(1, 1);
    assert!(one.say(2, 1, &[1; ROW_BYTES], &[]) && one.lend(2, 1, &[7; 16]));
    one.post(2, 1);
    let list = other.row(0, 2).list.expect("told");
    let list = other.bytes(0, 2, list, 16).expect("there");
    assert_eq!((list.word(1), list.word(2)), (Some(u64::from_le_bytes([7; 8])), None));
    assert_eq!(list.words(0..2).collect::<Vec<_>>(), [[u64::from_le_bytes([7; 8]); 2]]);
    assert_eq!((list.words::<1>(1..2).count(), list.words::<2>(1..2).count()), (1, 0));
    assert_eq!((list.words::<1>(1..3).count(), list.words::<1>(9..9).count()), (0, 0));
    assert!(!one.is_done(1, 2));
    other.done(2);
    assert!(one.is_done(1, 2) && !one.is_done(1, 4));
    assert!(one.say(4, 1, &[1; ROW_BYTES], &[]));
    assert!(other.row(0, 4).list.is_none(), "a row of before is not this one");
}

proptest! {
    /// Whatever is written where, nothing is read beyond a heap, and nothing panics.
    #[test]
    fn scribbling_makes_bytes_wrong_and_nothing_else(
        scribbles in prop::collection::vec((0usize..600, prop_oneof![any::<u64>(), 0u64..100]), 0..60),
        at in any::<u64>(), len in any::<u64>(),
    ) {
        let shape = Shape::with_heap(2, 64).expect("a shape");
        let memory = memory(shape);
        let (mut one, other) = (board(&memory, shape, 0), board(&memory, shape, 1));
        one.say(1, 1, &[1; ROW_BYTES], &[&[7; 24]]);
        one.post(1, 1);
        for (word, value) in scribbles {
            memory[word % shape.words()].store(value, Ordering::Relaxed);
        }
        for step in [1, 2, 7] {
            let _ = (other.look(0, step, 1), other.tells(0, step), other.are_own_lines_whole(step));
            let row = other.row(0, step);
            let _ = (other.reaches(0), other.is_done(0, step));
            for at in [row.at.unwrap_or(0), row.list.unwrap_or(0), at] {
                if let Some(bytes) = other.bytes(0, step, at, len) {
                    prop_assert!(at + len <= 64);
                    prop_assert_eq!(bytes.to_vec().len() as u64, len);
                }
            }
        }
    }
}

//! What is packed reads back as what was asked for, whatever that is; and what arrives is read or
//! refused, whatever it is.

use proptest::collection::vec;
use proptest::prelude::*;
use weir_bsp::head::{Ends, HEAD_BYTES, Head};
use weir_bsp::packing::{Letters, Records, Run, Runs, letter, start_of};

const AREAS: usize = 3;
const BYTES: usize = 300;

/// Slots and offsets that take eight bytes, and such that do not.
fn places() -> impl Strategy<Value = (u32, u64)> {
    prop_oneof![
        4 => (0u32..AREAS as u32, 0u64..200),
        1 => (prop_oneof![Just(2046u32), Just(2047), Just(2048), Just(4096), Just(u32::MAX)], 0u64..100),
        1 => (0u32..3, prop_oneof![Just((1u64 << 40) - 8), Just(1 << 40), Just((1 << 40) + 8), Just(u64::MAX - 8)]),
    ]
}

/// What puts do, byte by byte: the last one stays.
fn effect<'a>(puts: impl Iterator<Item = (u32, u64, &'a [u8])>) -> std::collections::BTreeMap<(u32, u64), u8> {
    let mut memory = std::collections::BTreeMap::new();
    for (slot, offset, data) in puts {
        for (i, byte) in data.iter().enumerate() {
            memory.insert((slot, offset.wrapping_add(i as u64)), *byte);
        }
    }
    memory
}

proptest! {
    #[test]
    fn packed_puts_do_what_the_calls_do(
        calls in vec((places(), vec(any::<u8>(), 0..20), any::<bool>()), 0..60), separate: bool,
    ) {
        let mut records = Records::default();
        records.separate = separate;
        let mut done: Vec<(u32, u64, Vec<u8>)> = Vec::new();
        for ((slot, offset), data, goes_on) in calls {
            // Half of them where the one before ended, in words.
            let (slot, offset, data) = match done.last().filter(|_| goes_on) {
                Some((slot, offset, last)) => (*slot, offset.wrapping_add(last.len() as u64), data.into_iter().chain(0..8).take(8).collect()),
                None => (slot, offset, data),
            };
            let eight = start_of(slot, offset).zip(<[u8; 8]>::try_from(&data[..]).ok());
            if !eight.is_some_and(|(start, data)| records.put_eight(start, data)) {
                records.put(slot, offset, &data);
            }
            done.push((slot, offset, data));
        }
        let runs: Vec<(Run, &[u8])> = Runs::puts(records.bytes()).collect::<Result<_, _>>().expect("readable");
        prop_assert_eq!(records.bytes().len() % 8, 0);
        prop_assert!(runs.len() <= done.len() && (!separate || runs.len() == done.len()));
        let packed = effect(runs.iter().map(|(run, data)| (run.slot, run.offset, *data)));
        prop_assert_eq!(packed, effect(done.iter().map(|(slot, offset, data)| (*slot, *offset, &data[..]))));
        records.clear();
        prop_assert!(records.bytes().is_empty());
    }

    #[test]
    fn packed_gets_ask_for_the_same_bytes_in_the_same_order(calls in vec((places(), 0u64..20, any::<bool>(), any::<bool>()), 0..60)) {
        let mut records = Records::default();
        let (mut bytes, mut wanted) = (Vec::new(), Vec::new());
        let mut end = (0, 0);
        for ((slot, offset), len, goes_on, may_continue) in calls {
            let (slot, offset, len) = if goes_on { (end.0, end.1, 8) } else { (slot, offset, len) };
            if !records.get(slot, offset, len, may_continue) {
                wanted.push(0);
            }
            if let Some(last) = wanted.last_mut() {
                *last += len;
            }
            bytes.extend((0..len).map(|i| (slot, offset.wrapping_add(i))));
            end = (slot, offset.wrapping_add(len));
        }
        let runs: Vec<(Run, &[u8])> = Runs::gets(records.bytes()).collect::<Result<_, _>>().expect("readable");
        let asked: Vec<(u32, u64)> = runs.iter().flat_map(|(r, _)| (0..r.len).map(|i| (r.slot, r.offset.wrapping_add(i)))).collect();
        prop_assert_eq!(asked, bytes);
        prop_assert_eq!(runs.iter().map(|(r, _)| r.len).collect::<Vec<_>>(), wanted);
    }

    #[test]
    fn messages_read_back(sent in vec((vec(any::<u8>(), 5), vec(any::<u8>(), 0..40)), 0..20)) {
        let mut letters = Letters::default();
        for (tag, payload) in &sent {
            letters.send(tag, payload);
        }
        let (mut at, bytes) = (0, letters.bytes());
        for (tag, payload) in &sent {
            let found = letter(bytes, at, 5).expect("a message");
            prop_assert_eq!(&bytes[found.tag..found.tag + 5], &tag[..]);
            prop_assert_eq!(&bytes[found.payload..found.payload + found.len], &payload[..]);
            prop_assert!(found.payload.is_multiple_of(16) && found.end.is_multiple_of(16));
            at = found.end;
        }
        prop_assert_eq!((at, letters.count), (bytes.len(), sent.len() as u64));
        prop_assert!(letter(bytes, at, 5).is_err());
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in vec(prop_oneof![any::<u8>(), Just(0), Just(0xff)], 0..BYTES), tag in 0usize..40, at in 0usize..400) {
        for runs in [Runs::puts(&bytes), Runs::gets(&bytes)] {
            for run in runs {
                let Ok((run, data)) = run else { break };
                prop_assert!(data.is_empty() || data.len() as u64 == run.len);
            }
        }
        if let Ok(found) = letter(&bytes, at, tag) {
            prop_assert!(found.end <= bytes.len() && found.payload + found.len <= found.end && found.tag + tag <= found.payload);
        }
        let _ = Head::decode(&bytes);
    }

    #[test]
    fn heads_read_back_and_damaged_ones_are_refused_or_consistent(
        parts in (0u64..100, 0u64..100, 0u64..100, 100u64..200, 0u64..9), superstep: u64, ends: bool, tag: u32, place in 0..HEAD_BYTES, flip in 1u8..,
    ) {
        let (events, letters, gets, puts, places) = parts;
        let head = Head {
            ends: if ends { Ends::Program } else { Ends::Sync }, superstep, events: events * 16, letters: letters * 16, gets: gets * 8,
            puts: puts * 8, places: places * 8, letter_count: letters, letter_payload: letters, puts_apart: 3, tag,
            has_board: tag % 2 == 1, dense: superstep % 3 == 0,
        };
        let mut wire = head.encode();
        prop_assert_eq!(Head::decode(&wire), Ok(head));
        prop_assert!(Head::decode(&wire[..HEAD_BYTES - 1]).is_err());
        wire[place] ^= flip;
        if let Ok(other) = Head::decode(&wire) {
            let parts = other.parts();
            prop_assert_eq!(parts.places.end as u64, other.body());
        }
    }
}

//! What is packed reads back as what was asked for, whatever that is; and what arrives is read or
//! refused, whatever it is.

use proptest::collection::vec;
use proptest::prelude::*;
use weir_bsp::head::{Ends, HEAD_BYTES, Head};
use weir_bsp::packing::{BLOCK, Letters, Malformed, PACKED_MAX, Record, Records, Run, Runs, letter};
use weir_bsp::short::{Aim, Short, Way};
use weir_bsp::writing::{Memory, apply};

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

/// Puts to one process, as the library has them: short ones are collected, and packed before what
/// is none.
#[derive(Default)]
struct Puts {
    short: Short,
    records: Records,
    /// Blocks have room for so many bytes.
    free: u64,
}

impl Puts {
    /// Of an area that all have as large. `collect`: short ones are.
    fn put(&mut self, slot: u32, size: u64, offset: u64, data: &[u8], collect: bool) {
        let mut word = [0; 8];
        if data.len() <= 8 {
            word[..data.len()].copy_from_slice(data);
        }
        let (base, value) = (slot as usize + 1, u64::from_le_bytes(word));
        let aim = Aim::of(base, slot, size);
        let takes = matches!(data.len(), 1 | 2 | 4 | 8) && aim.takes(base, offset as usize, data.len());
        if !collect || !takes {
            self.short.pack(&mut self.records);
            return self.records.put(slot, offset, data);
        }
        if data.len() == 8 && self.short.put_eight(base, offset as usize, || Some(value)) {
            return;
        }
        match self.short.way(&aim, data.len(), self.records.is_empty()) {
            Way::Block => {}
            Way::Begin => {
                self.short.pack(&mut self.records);
                assert!(self.short.begin(data.len(), self.free) <= self.free);
            }
            Way::Alone => {
                self.short.pack(&mut self.records);
                return self.records.put_short(aim.start(offset as usize), data.len(), value);
            }
        }
        self.short.put(&aim, offset as usize, value);
    }

    fn bytes(&mut self) -> &[u8] {
        self.short.pack(&mut self.records);
        self.records.bytes()
    }
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

/// How the next put of a program differs from the last one.
#[derive(Clone, Debug)]
enum Step {
    /// It follows it in memory.
    Follows,
    /// It is so far from it.
    Strides(u64),
    /// It is elsewhere in its area, ...
    Jumps(u64),
    /// ... or in another one, with another length.
    Turns((u32, u64), usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => Just(Step::Follows),
        1 => (0u64..40).prop_map(Step::Strides),
        2 => (0u64..60_000).prop_map(Step::Jumps),
        1 => (places(), 0usize..20).prop_map(|(place, len)| Step::Turns(place, len)),
        1 => (places(), prop_oneof![Just(1), Just(2), Just(4), Just(8)]).prop_map(|(place, len)| Step::Turns(place, len)),
    ];
    // Each often, as in a loop.
    vec((step, prop_oneof![1usize..4, 1usize..200]), 0..12)
        .prop_map(|all| all.into_iter().flat_map(|(step, times)| vec![step; times]).collect())
}

/// Where they put, and what.
fn calls(steps: &[Step]) -> Vec<(u32, u64, Vec<u8>)> {
    let (mut slot, mut offset, mut len) = (0, 0u64, 8);
    let mut calls = Vec::new();
    for (nth, step) in steps.iter().enumerate() {
        offset = match step {
            Step::Follows => offset.wrapping_add(len as u64),
            Step::Strides(by) => offset.wrapping_add(by * len as u64),
            Step::Jumps(to) => (to * 77 + nth as u64 * 4_099) % 70_000 * len as u64 % 550_000,
            Step::Turns(place, bytes) => {
                (slot, len) = (place.0, *bytes);
                place.1
            }
        };
        calls.push((slot, offset, (0..len).map(|i| (nth * 7 + i) as u8).collect()));
    }
    calls
}

fn put_all(calls: &[(u32, u64, Vec<u8>)], free: u64, collect: impl Fn(usize) -> bool) -> Puts {
    let mut puts = Puts { free, ..Puts::default() };
    for (nth, (slot, offset, data)) in calls.iter().enumerate() {
        puts.put(*slot, u64::MAX - 1, *offset, data, collect(nth));
    }
    puts
}

/// First words of all kinds, and others.
fn words() -> impl Strategy<Value = u64> {
    let list = (0u64..3, 0u64..40, 0u64..10, any::<bool>(), 0u64..2).prop_map(|(slot, count, len, wide, odd)| {
        5 << 61 | u64::from(wide) << 60 | odd << 52 | len << 48 | count << 32 | slot
    });
    prop_oneof![
        3 => list,
        2 => (0u64..3, 0u64..90, 0u64..90).prop_map(|(slot, len, offset)| slot << 52 | len << 40 | offset),
        1 => (0u64..3).prop_map(|slot| 1 << 63 | slot),
        3 => 0u64..90,
        1 => any::<u64>(),
    ]
}

/// Writes puts to these areas.
fn write(bytes: &[u8], memory: &mut std::collections::BTreeMap<u32, Vec<u8>>, apart: bool) -> Result<(), Malformed> {
    let areas: Vec<(u32, Memory)> = memory
        .iter_mut()
        .map(|(slot, bytes)| (*slot, Memory { base: bytes.as_mut_ptr(), size: bytes.len() as u64 }))
        .collect();
    let area = |slot| areas.iter().find(|(known, _)| *known == slot).map(|(_, memory)| *memory);
    // SAFETY: these are vectors, which nobody else uses meanwhile.
    unsafe { apply(&bytes.as_chunks().0, apart, area) }
}

// spec/bsp.md 6.27
#[test]
fn eight_that_follow_each_other_at_the_end_are_a_run() {
    // (The first words of records but for their lengths, in area 0.)
    let starts: Vec<u64> = std::iter::once(4000).chain((0..8).map(|nth| 800 + nth * 8)).collect();
    for behind in 0..4 {
        let starts: Vec<u64> = (0..behind).map(|nth| 9000 + nth * 80).chain(starts.iter().copied()).collect();
        let mut records = Records::default();
        records.pack::<8>(&starts, &vec![7; starts.len()]);
        let lens: Vec<u64> = Runs::puts(records.bytes()).map(|run| run.expect("readable").0.len).collect();
        assert_eq!(lens.last(), Some(&64), "{behind}: {lens:?}");
    }
}

// spec/bsp.md 6.27
#[test]
fn puts_of_two_lengths_by_turns_into_one_area_go_by_themselves() {
    let (aim, mut short) = (Aim::of(1, 0, 1 << 20), Short::default());
    for nth in 0..20 {
        let len = if nth % 2 == 0 { 8 } else { 4 };
        assert_eq!(short.way(&aim, len, nth == 0), Way::Alone, "{nth}: a block of one is packed for each");
    }
    let ways: Vec<Way> = (0..4).map(|_| short.way(&aim, 8, false)).collect();
    assert_eq!(ways, [Way::Alone, Way::Alone, Way::Alone, Way::Begin]);
}

// spec/bsp.md 6.28
#[test]
fn ten_thousand_puts_of_eight_bytes_take_little_more_than_their_bytes() {
    const MANY: u64 = 10_000;
    /// Payload of a packet on an Ethernet.
    const PACKET: usize = 1428;
    let packed = |offset: &dyn Fn(u64) -> u64, areas: u32| {
        let put = |nth: u64| ((nth % u64::from(areas)) as u32, offset(nth), nth.to_le_bytes().to_vec());
        put_all(&(0..MANY).map(put).collect::<Vec<_>>(), u64::MAX, |_| true).bytes().len()
    };
    let bytes = 8 * MANY as usize;
    let follow = packed(&|nth| nth * 8, 1);
    assert_eq!(follow, bytes + 208);
    assert!(follow.div_ceil(PACKET) <= bytes.div_ceil(PACKET) + 1);
    // Three by themselves, then lists of a block each, of which the last one has 13.
    let list = |offset: usize| 3 * 8 + 78 * (8 + offset * BLOCK) + 8 + (13 * offset).next_multiple_of(8);
    assert_eq!(packed(&|nth| nth * 7919 % MANY * 8, 1), bytes + list(2));
    assert_eq!(packed(&|nth| nth * 7919 % MANY * 8 * 100, 1), bytes + list(4));
    assert_eq!(packed(&|nth| nth * 7919 % MANY * 8 + nth % 2, 1), bytes + list(4));
    assert_eq!(packed(&|nth| nth * 7919 % MANY * 8, 2), 2 * bytes);
    // Rows of ten.
    let rows = packed(&|nth| nth / 10 * 800 + nth % 10 * 8, 1);
    assert_eq!(rows, bytes + bytes / 10);
}

proptest! {
    #[test]
    fn packed_puts_do_what_the_calls_do(
        steps in steps(), separate: bool, some: bool, free in prop_oneof![Just(u64::MAX), 16u64..2000],
    ) {
        let calls = calls(&steps);
        let mut puts = Puts { free, ..Puts::default() };
        puts.records.separate = separate;
        for (nth, (slot, offset, data)) in calls.iter().enumerate() {
            puts.put(*slot, u64::MAX - 1, *offset, data, !separate && (some || nth % 3 > 0));
        }
        let runs: Vec<(Run, &[u8])> = Runs::puts(puts.bytes()).collect::<Result<_, _>>().expect("readable");
        prop_assert!(runs.len() <= calls.len() && (!separate || runs.len() == calls.len()));
        let packed = effect(runs.iter().map(|(run, data)| (run.slot, run.offset, *data)));
        prop_assert_eq!(packed, effect(calls.iter().map(|(slot, offset, data)| (*slot, *offset, &data[..]))));
        let bytes = puts.bytes().len();
        prop_assert_eq!(bytes % 8, 0);
        let most: usize = calls.iter().map(|(_, _, data)| PACKED_MAX.max(24 + data.len().next_multiple_of(8))).sum();
        prop_assert!(bytes <= most);
        puts.records.clear();
        prop_assert!(puts.bytes().is_empty());
    }

    #[test]
    fn puts_that_have_come_are_written_where_they_belong(steps in steps(), some: bool) {
        let calls: Vec<_> = calls(&steps).into_iter().filter(|(_, offset, _)| *offset < 600_000).collect();
        let mut puts = put_all(&calls, u64::MAX, |nth| some || nth % 3 > 0);
        let mut memory = std::collections::BTreeMap::<u32, Vec<u8>>::new();
        let mut wanted = memory.clone();
        for (slot, offset, data) in &calls {
            let at = *offset as usize;
            wanted.entry(*slot).or_insert_with(|| vec![0; 600_200])[at..at + data.len()].copy_from_slice(data);
            memory.entry(*slot).or_insert_with(|| vec![0; 600_200]);
        }
        prop_assert_eq!(write(puts.bytes(), &mut memory, false), Ok(()));
        prop_assert!(memory == wanted);
    }

    /// Whatever the words are, nothing is written beside the areas (or Miri and the allocator would
    /// tell), and what is read one way is read the other way.
    #[test]
    fn forged_puts_are_written_to_their_areas_or_refused(
        words in vec(words(), 0..40), flips in vec((any::<prop::sample::Index>(), any::<u8>()), 0..3), steps in steps(), forged: bool,
    ) {
        let mut bytes = if forged {
            words.iter().flat_map(|word| word.to_le_bytes()).collect()
        } else {
            put_all(&calls(&steps), u64::MAX, |_| true).bytes().to_vec()
        };
        for (at, byte) in flips.iter().filter(|_| !bytes.is_empty()).map(|(at, byte)| (at.index(bytes.len()), *byte)).collect::<Vec<_>>() {
            bytes[at] = byte;
        }
        let mut memory: std::collections::BTreeMap<u32, Vec<u8>> = (0..2).map(|slot| (slot, vec![0; 80])).collect();
        let written = write(&bytes, &mut memory, true);
        let mut wanted = Ok(());
        let mut model: std::collections::BTreeMap<u32, Vec<u8>> = (0..2).map(|slot| (slot, vec![0; 80])).collect();
        for run in Runs::puts(&bytes) {
            let end = run.as_ref().ok().and_then(|(run, _)| run.offset.checked_add(run.len));
            match run {
                Ok((run, data)) if run.slot < 2 && end.is_some_and(|end| end <= 80) => {
                    let at = run.offset as usize;
                    model.get_mut(&run.slot).expect("one")[at..at + data.len()].copy_from_slice(data);
                }
                _ => wanted = Err(()),
            }
            if wanted.is_err() {
                break;
            }
        }
        prop_assert_eq!(written.is_ok(), wanted.is_ok());
        prop_assert!(memory == model || written.is_err());
    }

    #[test]
    fn a_first_word_is_read_as_one_thing(word: u64, more: [u64; 2]) {
        let mut rest = more.into_iter();
        if let Some(Record::List(list)) = Record::read(word, || rest.next()) {
            prop_assert!(matches!(list.len, 1 | 2 | 4 | 8) && (1..=1 << 16).contains(&list.count));
        }
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

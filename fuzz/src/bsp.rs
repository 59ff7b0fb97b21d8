//! What arrives of a process at the end of a superstep: heads, rounds of heads, runs, messages,
//! places, calls that all make alike.

use weir_bsp::conflicts::{Access, Places, find};
use weir_bsp::counts::{Common, Counts, ROUND_HEAD_BYTES, RoundHead};
use weir_bsp::head::{Ends, HEAD_BYTES, Head};
use weir_bsp::packing::{Runs, letter};
use weir_bsp::registry::{EVENT_BYTES, Event, Registry};
use weir_bsp::writing::{Memory, apply};

/// A superstep message: no panic, what is read lies within what came, and a head writes back as the
/// same.
pub fn message(data: &[u8]) {
    let Ok(head) = Head::decode(data) else { return };
    assert_eq!(head.encode()[..], data[..HEAD_BYTES]);
    let parts = head.parts();
    assert_eq!(parts.places.end as u64, head.body());
    let body = &data[HEAD_BYTES..];
    let part = |range: std::ops::Range<usize>| body.get(range).unwrap_or(&[]);
    events(part(parts.events));
    letters(part(parts.letters), head.tag as usize % 64);
    runs(part(parts.puts), part(parts.gets), part(parts.places));
}

/// A round of heads, as process 2 of `n` takes it; what it took is passed on without a panic.
pub fn round(data: &[u8], n: usize) {
    let Ok(head) = RoundHead::decode(data, n) else { return };
    let mut counts = Counts::default();
    let own = vec![Head::empty(Ends::Sync, 0); n];
    counts.begin(2, &own, Common::of(2, Ends::Sync, false, false), |_, _| ());
    if counts.read(0, &head, &data[ROUND_HEAD_BYTES..]).is_ok() {
        counts.write(1, &mut Vec::new());
        let mut heads = Vec::new();
        if counts.finish(&mut heads, |_, _| ()).is_ok() {
            assert!(heads.len() == n && heads.iter().all(|head| Head::decode(&head.encode()).as_ref() == Ok(head)));
        }
    }
}

/// Calls that one process makes, beside one that made others.
pub fn events(data: &[u8]) {
    let read: Option<Vec<Event>> = data.as_chunks::<EVENT_BYTES>().0.iter().map(Event::decode).collect();
    let Some(there) = read else { return };
    let mut registry = Registry::new(0);
    for event in &there {
        match event {
            Event::Push(bytes) => registry.push(64 + (*bytes % 7) as usize, *bytes % 100, ()),
            Event::Pop(serial) => drop(registry.pop(64 + (*serial % 7) as usize, ())),
            Event::TagSize(bytes) => registry.tag_size(*bytes, ()),
        }
    }
    let here: Vec<Event> = registry.events().collect();
    let _ = registry.agree(&[&here, &there]);
}

/// Messages of `bsp_send`.
pub fn letters(data: &[u8], tag: usize) {
    let mut at = 0;
    while let Ok(found) = letter(data, at, tag) {
        assert!(found.end > at && found.end <= data.len() && found.payload + found.len <= found.end);
        at = found.end;
    }
}

/// How many areas [`written`] has, of how many bytes each, and how many lie around each.
const AREAS: usize = 2;
const AREA: usize = 120;
const AROUND: usize = 64;

/// Puts, as they are written to memory: what each run of them says, byte by byte, and nothing
/// beside the areas.
#[allow(unsafe_code, reason = "what is put is written to a program's memory")]
pub fn written(puts: &[u8]) {
    let words = puts.as_chunks().0;
    let mut memory = [[0u8; AREA + 2 * AROUND]; AREAS];
    let base = memory.as_mut_ptr().cast::<[u8; AREA + 2 * AROUND]>();
    let area = |slot: u32| {
        // SAFETY: within the array.
        let of = |slot: usize| unsafe { base.add(slot).cast::<u8>().add(AROUND) };
        ((slot as usize) < AREAS).then(|| Memory { base: of(slot as usize), size: AREA as u64 })
    };
    // SAFETY: the areas are within the array, which nobody else uses meanwhile.
    let result = unsafe { apply(&words, true, area) };
    let (mut wanted, mut good) = ([[0u8; AREA + 2 * AROUND]; AREAS], true);
    for run in Runs::puts(words.as_flattened()) {
        let end = run.as_ref().ok().and_then(|(run, _)| run.offset.checked_add(run.len));
        match run {
            Ok((run, data)) if (run.slot as usize) < AREAS && end.is_some_and(|end| end <= AREA as u64) => {
                let at = AROUND + run.offset as usize;
                wanted[run.slot as usize][at..at + data.len()].copy_from_slice(data);
            }
            _ => {
                good = false;
                break;
            }
        }
    }
    assert_eq!(result.is_ok(), good);
    let around = |area: &[u8; AREA + 2 * AROUND]| area[..AROUND].iter().chain(&area[AROUND + AREA..]).all(|b| *b == 0);
    assert!(memory.iter().all(around) && (memory == wanted || !good));
}

/// Runs, and where they were asked for.
pub fn runs(puts: &[u8], gets: &[u8], places: &[u8]) {
    let places = Places::decode(places).unwrap_or_default();
    assert_eq!(Places::decode(&places.encode()).as_ref(), Ok(&places));
    let mut accesses = Vec::new();
    for (nth, run) in Runs::puts(puts).enumerate() {
        let Ok((run, data)) = run else { break };
        assert!(run.apart || data.len() as u64 == run.len);
        let (place, unbuffered) = places.of_put(nth);
        let (start, end) = (run.offset, run.offset.saturating_add(run.len));
        accesses.push(Access { start, end, pid: nth % 3, place, writes: true, unbuffered });
    }
    for (nth, run) in Runs::gets(gets).enumerate() {
        let Ok((run, _)) = run else { break };
        let (place, unbuffered) = places.of_get(nth);
        let (start, end) = (run.offset, run.offset.saturating_add(run.len));
        accesses.push(Access { start, end, pid: nth % 3, place, writes: false, unbuffered });
    }
    for conflict in find(accesses) {
        assert!(conflict.bytes > 0 && (conflict.first.writes || conflict.second.writes));
    }
}

/// Bits 63 and 61 of a first word; and what a list may have beside them, of few puts into the first
/// areas.
const LIST: u64 = 5 << 61;
const LIST_MASK: u64 = 1 << 60 | 0xf << 48 | 0x3f << 32 | 3;

/// All of it, from one input: as a whole message, and each part by itself.
pub fn run(data: &[u8]) {
    message(data);
    round(data, 3 + data.len() % 40);
    events(data);
    letters(data, data.first().map_or(0, |byte| usize::from(*byte) % 40));
    let (a, rest) = data.split_at(data.len() / 3);
    let (b, c) = rest.split_at(rest.len() / 2);
    runs(a, b, c);
    written(data);
    written(c);
    // As a list, whatever it says.
    let mut list = data.to_vec();
    if let Some(word) = list.first_chunk_mut::<8>() {
        *word = (u64::from_le_bytes(*word) & LIST_MASK | LIST).to_le_bytes();
        written(&list);
        runs(&list, &list, &[]);
    }
}

//! What arrives of a process at the end of a superstep: heads, rounds of heads, runs, messages,
//! places, calls that all make alike.

use weir_bsp::conflicts::{Access, Places, find};
use weir_bsp::counts::{Common, Counts, ROUND_HEAD_BYTES, RoundHead};
use weir_bsp::head::{Ends, HEAD_BYTES, Head};
use weir_bsp::packing::{Runs, letter};
use weir_bsp::registry::{EVENT_BYTES, Event, Registry};

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

/// All of it, from one input: as a whole message, and each part by itself.
pub fn run(data: &[u8]) {
    message(data);
    round(data, 3 + data.len() % 40);
    events(data);
    letters(data, data.first().map_or(0, |byte| usize::from(*byte) % 40));
    let (a, rest) = data.split_at(data.len() / 3);
    let (b, c) = rest.split_at(rest.len() / 2);
    runs(a, b, c);
}

//! The end of a superstep: what was asked for takes effect (`spec/bsp.md` 5 and 6).
//!
//! 1. Everybody tells everybody how much there is for it; what is short goes with it. Who has heard all knows that all are here: the barrier.
//! 2. Bodies that are long follow, each into memory of its size.
//! 3. What others get is read and sent.
//! 4. What was got is written, then what is put, in the order of the processes; then registrations take effect, and messages are in the queue.

use crate::aligned::Aligned;
use crate::fail;
use crate::head::{BODY_MAX, Ends, HEAD_BYTES, Head};
use crate::packing::{Malformed, Run, Runs};
use crate::place::Place;
use crate::process::{Outgoing, Process, Wanted};
use crate::registry::{Disagreement, EVENT_BYTES, Event, NULL_AREA};
use crate::wire::{Kind, WireError};
use weir_engine::Iov;

/// A superstep message up to this length is one message of the engine, with its head.
pub const SHORT_BYTES: usize = 4096;
/// Replies up to this length are copied.
const COPIED_BYTES: usize = 16 << 10;

/// Why a superstep does not end.
enum Trouble {
    Wire(WireError),
    /// What a process sent cannot be.
    Bad(usize, Malformed),
    /// A line for people.
    Wrong(String),
}

impl From<WireError> for Trouble {
    fn from(e: WireError) -> Self {
        Trouble::Wire(e)
    }
}

/// What arrived of a process: its parts.
#[derive(Clone, Copy, Default)]
struct Arrived<'a> {
    events: &'a [u8],
    letters: &'a [u8],
    gets: &'a [u8],
    puts: &'a [u8],
    count: u64,
    payload: u64,
}

/// Memory that the engine sends from, until it has.
#[derive(Default)]
struct Flight {
    pieces: [Vec<u8>; 3],
    wanted: Vec<Wanted>,
}

/// Ends the superstep of a process.
pub fn end(process: &mut Process, ends: Ends, place: Place) {
    let name = if ends == Ends::Sync { "bsp_sync" } else { "bsp_end" };
    if let Err(trouble) = exchange(process, ends) {
        let doing = format!("{place}{name}, superstep {}: ", process.superstep);
        match trouble {
            Trouble::Wire(error) => fail::wire_failed(process, &doing, error),
            Trouble::Bad(pid, what) => fail::fail(Some(process), &format!("{doing}what process {pid} sent: {what}")),
            Trouble::Wrong(text) => fail::fail(Some(process), &format!("{doing}{text}")),
        }
    }
}

fn exchange(process: &mut Process, ends: Ends) -> Result<(), Trouble> {
    let (pid, n, superstep) = (process.pid(), process.nprocs(), process.superstep);
    let events: Vec<u8> = process.registry.events().flat_map(Event::encode).collect();
    let heads: Vec<Head> = (0..n).map(|to| head_for(process, to, ends, events.len())).collect();
    let mut flights: Vec<Flight> = Vec::new();
    flights.resize_with(n, Flight::default);

    // 1. Heads.
    await_firsts(process, superstep)?;
    for to in order(pid, n) {
        send_first(process, to, &heads[to], &events)?;
    }
    if let Some(wire) = &mut process.wire {
        wire.wait(Kind::first(superstep))?;
    }
    let theirs = read_heads(process, &heads[pid], ends)?;

    // 2. Bodies.
    for from in order(pid, n) {
        let body = theirs[from].body() as usize;
        if body + HEAD_BYTES > SHORT_BYTES {
            await_body(process, from, body, superstep)?;
        }
    }
    for (to, flight) in flights.iter_mut().enumerate() {
        take_out(&mut process.out[to], flight);
    }
    for to in order(pid, n) {
        if heads[to].body() as usize + HEAD_BYTES > SHORT_BYTES {
            send_body(process, to, &events, &flights[to], superstep)?;
        }
    }
    if let Some(wire) = &mut process.wire {
        wire.wait(Kind::Body)?;
    }

    // Own messages stay until the end of the next superstep, as all others do.
    let side = (superstep % 2) as usize;
    let own = &mut process.bodies[side][pid];
    let letters = &flights[pid].pieces[0];
    own.reserve(letters.len());
    // SAFETY: it has room for them, and nobody else has it now.
    unsafe { own.base().copy_from_nonoverlapping(letters.as_ptr(), letters.len()) };

    let process_at: *mut Process = process;
    let arrived: Vec<Arrived<'_>> = (0..n)
        .map(|from| {
            // SAFETY: buffers of this superstep, which nobody writes to before the one after the next; what is changed of the process below is something else.
            let buffers = unsafe { &*process_at };
            if from == pid {
                let letters = flights[pid].pieces[0].len();
                // SAFETY: nobody writes to it any more in this superstep and the next.
                let letters = unsafe { buffers.bodies[side][pid].bytes(letters) };
                let Head { letter_count: count, letter_payload: payload, .. } = heads[pid];
                return Arrived {
                    events: &events,
                    letters,
                    gets: &flights[pid].pieces[1],
                    puts: &flights[pid].pieces[2],
                    count,
                    payload,
                };
            }
            let head = &theirs[from];
            let body = head.body() as usize;
            // SAFETY: all of it has come, and nobody writes to it any more in this superstep and the next.
            let bytes = unsafe {
                if body + HEAD_BYTES > SHORT_BYTES {
                    buffers.bodies[side][from].bytes(body)
                } else {
                    buffers.firsts[side][from].bytes(HEAD_BYTES + body).get(HEAD_BYTES..).unwrap_or(&[])
                }
            };
            let parts = head.parts();
            let part = |range: std::ops::Range<usize>| bytes.get(range).unwrap_or(&[]);
            let (count, payload) = (head.letter_count, head.letter_payload);
            let [events, letters] = [parts.events, parts.letters].map(part);
            let [gets, puts] = [parts.gets, parts.puts].map(part);
            Arrived { events, letters, gets, puts, count, payload }
        })
        .collect();

    // 3. Gets.
    let mut answers: Vec<Aligned> = Vec::new();
    answers.resize_with(n, Aligned::default);
    for from in order(pid, n) {
        let bytes = flights[from].wanted.iter().map(|w| w.len).sum::<usize>();
        if bytes > 0 {
            answers[from].reserve(bytes);
            let memory = [Iov { base: answers[from].base(), len: bytes }];
            if let Some(wire) = &mut process.wire {
                // SAFETY: it is looked at below only, when all have come.
                unsafe { wire.post(from, Kind::Reply, superstep, &memory)? };
            }
        }
    }
    let mut replies: Vec<Vec<u8>> = Vec::new();
    replies.resize_with(n, Vec::new);
    for from in std::iter::once(pid).chain(order(pid, n)) {
        replies[from] = reply(process, arrived[from].gets).map_err(|e| Trouble::Bad(from, e))?;
        if from == pid || replies[from].is_empty() {
            continue;
        }
        let Some(wire) = &mut process.wire else { continue };
        if replies[from].len() <= COPIED_BYTES {
            wire.send_copy(from, Kind::Reply, superstep, &[&replies[from]])?;
        } else {
            let memory = [Iov { base: replies[from].as_mut_ptr(), len: replies[from].len() }];
            // SAFETY: `replies` lives until `finish_sends`.
            unsafe { wire.send(from, Kind::Reply, superstep, &memory, from)? };
        }
    }
    if let Some(wire) = &mut process.wire {
        wire.wait(Kind::Reply)?;
    }

    // 4. Effects.
    for from in 0..n {
        let total = flights[from].wanted.iter().map(|w| w.len).sum::<usize>();
        // SAFETY: it has come.
        let data = if from == pid { &replies[pid][..] } else { unsafe { answers[from].bytes(total) } };
        let mut at = 0;
        for w in &flights[from].wanted {
            let Some(piece) = data.get(at..at + w.len) else {
                return Err(Trouble::Bad(from, Malformed("a reply is too short")));
            };
            // SAFETY: the program said that it has this memory until the end of the superstep (`bsp_get`).
            unsafe { w.into.copy_from(piece.as_ptr(), piece.len()) };
            at += w.len;
        }
    }
    for (from, arrived) in arrived.iter().enumerate() {
        apply(process, arrived.puts).map_err(|e| Trouble::Bad(from, e))?;
    }
    agree(process, &arrived)?;
    process.inbox.clear(process.tags[1]);
    for (from, arrived) in arrived.iter().enumerate() {
        // SAFETY: buffers of this superstep stay as they are until the end of the next one, which clears the queue before.
        unsafe { process.inbox.append(arrived.letters, arrived.count, arrived.payload) }
            .map_err(|e| Trouble::Bad(from, e))?;
    }
    process.tags = [process.tags[1], process.tags[2], process.tags[2]];
    process.superstep += 1;
    if ends == Ends::Sync {
        // What comes of the next superstep while the program computes has its place.
        await_firsts(process, superstep + 1)?;
    }
    finish_sends(process)?;
    drop(arrived);
    for (out, flight) in process.out.iter_mut().zip(flights) {
        give_back(out, flight);
    }
    Ok(())
}

/// To whom in which order: a row of a Latin square, in each of whose columns everybody sends to another one.
fn order(pid: usize, n: usize) -> impl Iterator<Item = usize> {
    (1..n).map(move |step| (pid + step) % n)
}

fn head_for(process: &Process, to: usize, ends: Ends, events: usize) -> Head {
    let out = &process.out[to];
    Head {
        events: events as u64,
        letters: out.letters.bytes().len() as u64,
        gets: out.gets.bytes().len() as u64,
        puts: out.puts.bytes().len() as u64,
        letter_count: out.letters.count,
        letter_payload: out.letters.payload,
        tag: process.tags[1] as u32,
        ..Head::empty(ends, process.superstep)
    }
}

fn await_firsts(process: &mut Process, superstep: u64) -> Result<(), Trouble> {
    let (pid, n, side) = (process.pid(), process.nprocs(), (superstep % 2) as usize);
    let Some(wire) = &mut process.wire else { return Ok(()) };
    if wire.awaits(superstep) {
        return Ok(());
    }
    for from in order(pid, n) {
        let buffer = &mut process.firsts[side][from];
        buffer.reserve(SHORT_BYTES);
        let memory = [Iov { base: buffer.base(), len: SHORT_BYTES }];
        // SAFETY: it is looked at when all have come, and is then nobody's until it is posted again, two supersteps later.
        unsafe { wire.post(from, Kind::first(superstep), superstep, &memory)? };
    }
    wire.set_awaits(superstep);
    Ok(())
}

fn send_first(process: &mut Process, to: usize, head: &Head, events: &[u8]) -> Result<(), Trouble> {
    let Some(wire) = &mut process.wire else { return Ok(()) };
    let (out, encoded) = (&process.out[to], head.encode());
    if head.body() > BODY_MAX {
        return Err(Trouble::Wrong(format!("{} bytes for process {to}: more than {BODY_MAX}", head.body())));
    }
    let parts: [&[u8]; 5] = [&encoded, events, out.letters.bytes(), out.gets.bytes(), out.puts.bytes()];
    let pieces = if head.body() as usize + HEAD_BYTES > SHORT_BYTES { &parts[..1] } else { &parts[..] };
    Ok(wire.send_copy(to, Kind::first(head.superstep), head.superstep, pieces)?)
}

fn read_heads(process: &Process, own: &Head, ends: Ends) -> Result<Vec<Head>, Trouble> {
    let (side, superstep) = ((process.superstep % 2) as usize, process.superstep);
    let mut heads = Vec::with_capacity(process.nprocs());
    for from in 0..process.nprocs() {
        if from == process.pid() {
            heads.push(*own);
            continue;
        }
        let len = process.wire.as_ref().map_or(0, |wire| wire.first_len(superstep, from));
        // SAFETY: it has come, and nobody writes to it any more in this superstep and the next.
        let bytes = unsafe { process.firsts[side][from].bytes(len) };
        let head = Head::decode(bytes).map_err(|e| Trouble::Bad(from, e))?;
        let whole = HEAD_BYTES as u64 + head.body();
        let here = if whole > SHORT_BYTES as u64 { HEAD_BYTES as u64 } else { whole };
        if head.superstep != superstep || len as u64 != here {
            return Err(Trouble::Bad(from, Malformed("it is of another superstep or length")));
        }
        if head.ends != ends {
            let name = |ends: Ends| if ends == Ends::Sync { "bsp_sync" } else { "bsp_end" };
            return Err(Trouble::Wrong(format!(
                "process {from} called {} where this one called {}: all must call bsp_sync equally often",
                name(head.ends),
                name(ends)
            )));
        }
        heads.push(head);
    }
    Ok(heads)
}

fn await_body(process: &mut Process, from: usize, body: usize, superstep: u64) -> Result<(), Trouble> {
    let Some(wire) = &mut process.wire else { return Ok(()) };
    let buffer = &mut process.bodies[(superstep % 2) as usize][from];
    buffer.reserve(body);
    let memory = [Iov { base: buffer.base(), len: body }];
    // SAFETY: as in `await_firsts`.
    unsafe { wire.post(from, Kind::Body, superstep, &memory)? };
    Ok(())
}

fn take_out(out: &mut Outgoing, flight: &mut Flight) {
    let [letters, gets, puts] = &mut flight.pieces;
    out.letters.swap(letters);
    out.gets.swap(gets);
    out.puts.swap(puts);
    std::mem::swap(&mut out.wanted, &mut flight.wanted);
}

/// Its memory serves the next superstep.
fn give_back(out: &mut Outgoing, flight: Flight) {
    let [mut letters, mut gets, mut puts] = flight.pieces;
    [&mut letters, &mut gets, &mut puts].into_iter().for_each(Vec::clear);
    out.letters.swap(&mut letters);
    out.gets.swap(&mut gets);
    out.puts.swap(&mut puts);
    out.wanted = flight.wanted;
    out.wanted.clear();
}

fn send_body(process: &mut Process, to: usize, events: &[u8], flight: &Flight, superstep: u64) -> Result<(), Trouble> {
    let Some(wire) = &mut process.wire else { return Ok(()) };
    let [letters, gets, puts] = &flight.pieces;
    let parts: [&[u8]; 4] = [events, letters, gets, puts];
    let memory = parts.map(|part| Iov { base: part.as_ptr().cast_mut(), len: part.len() });
    // SAFETY: `events` and `flight` live and stay as they are until `finish_sends`, or until the process ends.
    unsafe { wire.send(to, Kind::Body, superstep, &memory, to)? };
    Ok(())
}

/// Waits until the engine has no memory any more to send from.
fn finish_sends(process: &mut Process) -> Result<(), Trouble> {
    let Some(wire) = &mut process.wire else { return Ok(()) };
    while wire.is_sending() {
        wire.turn()?;
    }
    wire.take_sent();
    Ok(())
}

/// The memory here that a process means.
fn target(process: &Process, run: &Run) -> Result<*mut u8, Malformed> {
    const WRONG: Malformed = Malformed("it names memory that is not registered");
    let (base, size) = process.registry.area(run.slot, process.pid()).ok_or(WRONG)?;
    let end = run.offset.checked_add(run.len).ok_or(WRONG)?;
    if size == NULL_AREA || end > size {
        return Err(WRONG);
    }
    Ok((base + run.offset as usize) as *mut u8)
}

/// What these gets ask for.
fn reply(process: &Process, gets: &[u8]) -> Result<Vec<u8>, Malformed> {
    let mut out = Vec::new();
    for run in Runs::gets(gets) {
        let (run, _) = run?;
        let at = target(process, &run)?;
        // SAFETY: the program registered this memory (`bsp_push_reg`); it lives until it is deregistered.
        out.extend_from_slice(unsafe { std::slice::from_raw_parts(at, run.len as usize) });
    }
    Ok(out)
}

fn apply(process: &Process, puts: &[u8]) -> Result<(), Malformed> {
    for run in Runs::puts(puts) {
        let (run, data) = run?;
        let at = target(process, &run)?;
        // SAFETY: the program registered this memory, and does not look at it now.
        unsafe { at.copy_from(data.as_ptr(), data.len()) };
    }
    Ok(())
}

/// What all do alike: registrations and the size of tags.
fn agree(process: &mut Process, arrived: &[Arrived<'_>]) -> Result<(), Trouble> {
    if arrived.iter().all(|a| a.events.is_empty()) {
        return Ok(());
    }
    let mut all: Vec<Vec<Event>> = Vec::with_capacity(arrived.len());
    for (from, a) in arrived.iter().enumerate() {
        let events = a.events.as_chunks::<EVENT_BYTES>().0.iter().map(Event::decode).collect::<Option<Vec<_>>>();
        all.push(events.ok_or(Trouble::Bad(from, Malformed("it names an unknown call")))?);
    }
    let views: Vec<&[Event]> = all.iter().map(Vec::as_slice).collect();
    process.registry.agree(&views).map_err(|d| Trouble::Wrong(about(&d)))?;
    process.forget_cache();
    Ok(())
}

fn about(d: &Disagreement<Place>) -> String {
    let nth = d.nth + 1;
    let there = |event: Event| match event {
        Event::TagSize(bytes) => format!("bsp_set_tagsize to {bytes}"),
        other => other.name().to_owned(),
    };
    let (here, place) = match d.here {
        Some((event, place)) => (there(event), place),
        None => ("no more of them".to_owned(), Place::UNKNOWN),
    };
    let theirs = d.there.map_or_else(|| "no more of them".to_owned(), there);
    format!(
        "{place}the processes differ in their {nth}th call of bsp_push_reg, bsp_pop_reg and bsp_set_tagsize of this superstep: here {here}, process {} {theirs}; all must call the same in the same order, for the same memory",
        d.pid
    )
}

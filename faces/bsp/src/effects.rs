//! What superstep messages do to the memory of this process.

use crate::head::HEAD_BYTES;
use crate::head::Head;
use crate::packing::{Malformed, Run, Runs};
use crate::place::Place;
use crate::process::{Outgoing, Process, Wanted};
use crate::registry::{Disagreement, EVENT_BYTES, Event, NULL_AREA};
use crate::superstep::Trouble;
use crate::writing::{self, Memory};
use weir_engine::SharedBytes;

/// How a body comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Came {
    /// With the head, in one message.
    First,
    /// It was copied from the board; or there is none.
    Copied,
    /// The same but for puts: they are read where they are.
    ButPuts,
    /// In a message of its own, later.
    Later,
}

/// How what a process says comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coming {
    /// Its body.
    pub body: Came,
    /// What is put and travels alone is lent, and not sent.
    pub lends: bool,
}

/// What arrived of a process: its parts.
#[derive(Clone, Copy, Default)]
pub struct Arrived<'a> {
    /// Calls that all make alike.
    pub events: &'a [u8],
    /// Messages.
    pub letters: &'a [u8],
    /// What is got.
    pub gets: &'a [u8],
    /// What is put.
    pub puts: &'a [u8],
    /// Where both were asked for, in check mode.
    pub places: &'a [u8],
    /// How many messages.
    pub count: u64,
    /// Bytes of their payloads.
    pub payload: u64,
    /// Runs that are put and travel alone.
    pub puts_apart: u32,
}

/// What arrived of all processes, by pid; of this one it is what it asked for itself. The bytes
/// live as long as the buffers of this superstep do, that is until the end of the next one.
pub fn arrived<'a>(
    process: &mut Process,
    theirs: &[Head],
    events: &'a [u8],
    own: &'a Outgoing,
    coming: &[Coming],
) -> Vec<Arrived<'a>> {
    let (pid, side) = (process.pid(), (process.superstep % 2) as usize);
    let of = |(from, (head, coming)): (usize, (&Head, &Coming))| {
        let (count, payload, puts_apart) = (head.letter_count, head.letter_payload, head.puts_apart);
        if from == pid {
            // SAFETY: of this side's buffers, which nobody writes to any more in this superstep and
            // the next.
            let letters = unsafe { long(process.bodies[side][pid].bytes(own.letters.bytes().len())) };
            let (gets, puts) = (own.gets.bytes(), own.puts.bytes());
            return Arrived { events, letters, gets, puts, places: &own.sealed, count, payload, puts_apart };
        }
        let parts = head.parts();
        let body = if coming.body == Came::ButPuts { parts.puts.start } else { head.body() as usize };
        // SAFETY: all of it has come, and nobody writes to it any more in this superstep and the
        // next.
        let bytes = unsafe {
            if coming.body == Came::First {
                long(process.firsts[side][from].bytes(HEAD_BYTES + body)).get(HEAD_BYTES..).unwrap_or(&[])
            } else {
                long(process.bodies[side][from].bytes(body)).get(..body).unwrap_or(&[])
            }
        };
        let part = |range: std::ops::Range<usize>| bytes.get(range).unwrap_or(&[]);
        let [events, letters, gets] = [parts.events, parts.letters, parts.gets].map(part);
        let [puts, places] = [parts.puts, parts.places].map(part);
        Arrived { events, letters, gets, puts, places, count, payload, puts_apart }
    };
    theirs.iter().zip(coming).enumerate().map(of).collect()
}

/// # Safety
/// The bytes stay where and as they are while the result is used.
unsafe fn long<'a>(bytes: &[u8]) -> &'a [u8] {
    // SAFETY: the caller's.
    unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) }
}

/// The memory here of an area: where it begins, and how long it is.
#[inline]
fn memory(process: &Process, slot: u32) -> Option<Memory> {
    let (base, size) = process.registry.area(slot, process.pid())?;
    (size != NULL_AREA).then_some(Memory { base: base as *mut u8, size })
}

/// The memory here that a process means.
///
/// # Errors
/// It is not registered.
#[inline]
pub fn target(process: &Process, run: &Run) -> Result<*mut u8, Malformed> {
    memory(process, run.slot).and_then(|memory| memory.place(run)).ok_or(writing::NOT_REGISTERED)
}

/// What these gets ask for, one behind the other; not what travels alone.
///
/// # Errors
/// They cannot be.
pub fn reply(process: &Process, gets: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
    out.clear();
    for run in Runs::gets(gets) {
        let (run, _) = run?;
        let at = target(process, &run)?;
        if !run.apart {
            // SAFETY: the program registered this memory (`bsp_push_reg`); it lives until it is
            // deregistered.
            out.extend_from_slice(unsafe { std::slice::from_raw_parts(at, run.len as usize) });
        }
    }
    Ok(())
}

/// Writes what was got to where the program wants it.
///
/// # Errors
/// It is not as much as was asked for.
pub fn write_got(wanted: &[Wanted], data: &[u8]) -> Result<(), Malformed> {
    let mut at = 0;
    for w in wanted {
        let piece = data.get(at..at + w.len).ok_or(Malformed("a reply is too short"))?;
        // SAFETY: the program said that it has this memory until the end of the superstep
        // (`bsp_get`).
        unsafe { w.into.copy_from(piece.as_ptr(), piece.len()) };
        at += w.len;
    }
    Ok(())
}

/// Writes what is put. (The bytes of what travels alone come otherwise.)
///
/// # Errors
/// It cannot be.
pub fn apply(process: &Process, puts: &[u8]) -> Result<(), Malformed> {
    // SAFETY: the program registered this memory, and does not look at it now.
    unsafe { writing::apply(&puts.as_chunks().0, true, |slot| memory(process, slot)) }
}

/// The same from where its sender has written it. None of the runs travels alone.
///
/// # Errors
/// It cannot be.
pub fn apply_shared(process: &Process, puts: &SharedBytes<'_>) -> Result<(), Malformed> {
    // SAFETY: the same.
    unsafe { writing::apply(puts, false, |slot| memory(process, slot)) }
}

/// What all do alike: registrations and the size of tags.
///
/// # Errors
/// They do not.
pub fn agree(process: &mut Process, arrived: &[Arrived<'_>]) -> Result<(), Trouble> {
    let mut all: Vec<Vec<Event>> = Vec::with_capacity(arrived.len());
    for (from, a) in arrived.iter().enumerate() {
        let events = a.events.as_chunks::<EVENT_BYTES>().0.iter().map(Event::decode).collect::<Option<Vec<_>>>();
        all.push(events.ok_or(Trouble::Bad(from, Malformed("it names an unknown call")))?);
    }
    let views: Vec<&[Event]> = all.iter().map(Vec::as_slice).collect();
    process.registry.agree(&views).map_err(|d| Trouble::Common(about(&d)))?;
    process.forget_cache();
    Ok(())
}

fn about(d: &Disagreement<Place>) -> String {
    let nth = d.nth + 1;
    let call = |event: Event| match event {
        Event::TagSize(bytes) => format!("bsp_set_tagsize to {bytes}"),
        other => other.name().to_owned(),
    };
    let (here, place) = match d.here {
        Some((event, place)) => (call(event), place.text().map_or_else(String::new, |text| format!(" ({text})"))),
        None => ("none more".to_owned(), String::new()),
    };
    let theirs = d.there.map_or_else(|| "none more".to_owned(), call);
    format!(
        "call {nth} of bsp_push_reg, bsp_pop_reg and bsp_set_tagsize in this superstep is {here}{place} here and {theirs} in process {}: all must call the same, for the same memory, in the same order",
        d.pid
    )
}

//! Check mode: tells which puts and gets of a superstep meet in this process's memory.

use crate::conflicts::{Access, Conflict, Places, find};
use crate::effects::{Arrived, target};
use crate::fail;
use crate::packing::{Run, Runs};
use crate::process::{Outgoing, Process};

/// Lines of a process, at most: a program with one conflict in a loop has made it known.
const LINES_MAX: usize = 100;

/// Looks at what arrived before it takes effect.
pub fn look<'a>(process: &mut Process, arrived: &[Arrived<'_>], own: impl Iterator<Item = &'a Outgoing>) {
    if process.told >= LINES_MAX {
        return;
    }
    let places: Vec<Places> = arrived.iter().map(|a| Places::decode(a.places).unwrap_or_default()).collect();
    let mut accesses = Vec::new();
    for (pid, (a, places)) in arrived.iter().zip(&places).enumerate() {
        for (nth, run) in Runs::puts(a.puts).filter_map(Result::ok).enumerate() {
            accesses.extend(access(process, &run.0, pid, places.of_put(nth), true));
        }
        for (nth, run) in Runs::gets(a.gets).filter_map(Result::ok).enumerate() {
            accesses.extend(access(process, &run.0, pid, places.of_get(nth), false));
        }
    }
    // What this process gets is written here, too.
    let pid = process.pid();
    for out in own {
        for (wanted, place, unbuffered) in out.wanted_places() {
            let start = wanted.into as u64;
            let end = start + wanted.len as u64;
            accesses.push(Access { start, end, pid, place, writes: true, unbuffered });
        }
    }
    let lines: Vec<String> = find(accesses).iter().map(|conflict| line(process, conflict)).collect();
    for line in lines {
        if process.told < LINES_MAX {
            fail::say(Some(pid), &line);
        }
        process.told += 1;
    }
    if process.told >= LINES_MAX {
        fail::say(Some(pid), "check: that is enough of it; no more conflicts of this process are told");
    }
}

fn access<'a>(
    process: &Process,
    run: &Run,
    pid: usize,
    (place, unbuffered): (&'a str, bool),
    writes: bool,
) -> Option<Access<'a>> {
    let start = target(process, run).ok()? as u64;
    Some(Access { start, end: start + run.len, pid, place, writes, unbuffered })
}

fn line(process: &Process, c: &Conflict<'_>) -> String {
    let who = |a: &Access<'_>| {
        let place = if a.place.is_empty() { "an unknown line" } else { a.place };
        let how = if a.unbuffered { ", unbuffered" } else { "" };
        format!("a {} of process {} at {place}{how}", if a.writes { "write" } else { "read" }, a.pid)
    };
    let outcome = match (c.undetermined, c.first.writes && c.second.writes) {
        (true, _) => "what comes of it is not determined",
        (false, true) => "the write of the greater process stays",
        (false, false) => "the read sees what was there before",
    };
    format!(
        "check: superstep {}: {} and {} meet in {} bytes of this process's memory: {outcome}",
        process.superstep,
        who(&c.first),
        who(&c.second),
        c.bytes
    )
}

//! What the engine is told of a superstep (`spec/superstep.md` 3): how much goes to whom and comes
//! from whom, in the order of service, as soon as it is known. Long bodies after the heads; what
//! travels alone after the bodies.
//!
//! It pays where packets carry much. Shared memory holds back by itself, and a superstep of short
//! messages is over before anything could be granted: then nothing is said.

use std::time::{Duration, Instant};

use weir_superstep::{Slots, hold_ns};

use crate::counts;
use crate::effects::Arrived;
use crate::head::Head;
use crate::packing::Runs;
use crate::process::{Outgoing, Process};
use crate::settings::Order;
use crate::superstep::{Trouble, rides};
use crate::tuning;
use crate::wire::Pace;

/// Less by packets, to or from a process, is not told. Where two cores carry eight processes, 0.9
/// MB a process are as fast told or a fiftieth slower (`docs/lab/2026-11-26-bsp-told.md` beside
/// `2026-11-26-bsp-star.md`).
const PACED_BYTES: u64 = 4 << 20;
/// The same where somebody says what may wait in this host's interface, or names a slot: whose
/// network is the bound gains from here on. Less goes unasked (`spec/protocol.md` 5.2).
const PACED_BYTES_ASKED: u64 = 64 << 10;

/// The heads have come: bodies follow.
pub fn bodies(process: &mut Process, order: &[usize], heads: &[Head], theirs: &[Head]) -> Result<(), Trouble> {
    if let Some(wire) = &mut process.wire {
        wire.end_pace(process.superstep)?;
    }
    let rides = rides(process);
    let long = |head: &Head| if head.body() <= rides { 0 } else { head.body() };
    tell(process, order, |to| long(&heads[to]), |from| long(&theirs[from]))
}

/// The bodies have come: what travels alone follows, and what was got.
pub fn apart(
    process: &mut Process,
    order: &[usize],
    flights: &[Outgoing],
    arrived: &[Arrived<'_>],
) -> Result<(), Trouble> {
    let runs = |runs: Runs<'_>, all: bool| -> u64 {
        runs.filter_map(Result::ok).filter(|(run, _)| all || run.apart).map(|(run, _)| run.len).sum()
    };
    let lengths = |list: &[crate::process::Wanted]| list.iter().map(|w| w.len as u64).sum::<u64>();
    let out = |to: usize| lengths(&flights[to].puts_apart) + runs(Runs::gets(arrived[to].gets), true);
    let inn = |from: usize| {
        let parts = &arrived[from];
        let puts = if parts.puts_apart == 0 { 0 } else { runs(Runs::puts(parts.puts), false) };
        puts + flights[from].wanted_bytes() as u64 + lengths(&flights[from].gets_apart)
    };
    tell(process, order, out, inn)
}

/// Holds back what is sent, so many bytes in all, until the others have their heads too
/// (`spec/superstep.md` 2.4).
pub fn hold(process: &mut Process, bytes: u64) -> Result<(), Trouble> {
    let (pid, n) = (process.pid(), process.nprocs());
    let Some(wire) = process.wire.as_mut().filter(|_| bytes > 0) else { return Ok(()) };
    let trip_ns = wire.least_round_trip_ns((0..counts::rounds(n)).map(|round| counts::to(pid, n, round)));
    let held = Duration::from_nanos(hold_ns(u32::try_from(n).unwrap_or(u32::MAX), bytes, trip_ns));
    let begin = Instant::now();
    while begin.elapsed() < held {
        wire.turn()?;
    }
    Ok(())
}

fn tell(
    process: &mut Process,
    order: &[usize],
    out: impl Fn(usize) -> u64,
    inn: impl Fn(usize) -> u64,
) -> Result<(), Trouble> {
    let is_latin = process.settings.order == Order::Latin;
    let asked = tuning::own_queue(process.settings.queue);
    let slot_ns = tuning::slot_ns(process.settings.slot_ns);
    let slots = slot_ns.map(|slot_ns| Slots { slots: process.nprocs() as u32, slot_ns });
    let least = if asked.is_some() || slots.is_some() { PACED_BYTES_ASKED } else { PACED_BYTES };
    let Some(wire) = &mut process.wire else { return Ok(()) };
    let sends = order.iter().map(|to| (*to, out(*to)));
    // Who is served at a step is not who serves: the last one served serves first.
    let sources = |nth: usize| if is_latin { order[order.len() - 1 - nth] } else { order[nth] };
    let receives = (0..order.len()).map(sources).map(|from| (from, inn(from)));
    let pace = Pace { least, queue: asked.unwrap_or_default(), slots };
    Ok(wire.pace(process.superstep, sends, receives, pace)?)
}

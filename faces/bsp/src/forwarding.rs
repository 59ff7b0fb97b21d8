//! The rounds of heads of a superstep on the wire: what [`crate::counts`] writes is sent, and what
//! comes is given to it (`spec/bsp.md` 6.16 to 6.24).

use crate::aligned::Aligned;
use crate::counts::{self, Common, Counts, ROUND_HEAD_BYTES, RoundHead};
use crate::head::{HEAD_BYTES, Head};
use crate::packing::Malformed;
use crate::process::Process;
use crate::superstep::{SHORT_BYTES, Trouble};
use crate::wire::{Hold, Kind, WireError};
use weir_engine::Iov;

/// What rounds come into and leave from, of even and odd supersteps, by round.
#[derive(Debug, Default)]
pub struct Buffers {
    /// What comes: as much of a round as fits into a short message, ...
    firsts: [Vec<Aligned>; 2],
    /// ... and the rest of it, of the round that is waited for.
    rest: Aligned,
    /// What leaves.
    out: [Vec<Vec<u8>>; 2],
}

/// Posts the receives of all rounds of a superstep, if they are not yet.
///
/// # Errors
/// [`WireError`].
pub fn await_rounds(process: &mut Process, superstep: u64) -> Result<(), WireError> {
    let (pid, n, side) = (process.pid(), process.nprocs(), (superstep % 2) as usize);
    let Some(wire) = &mut process.wire else { return Ok(()) };
    if wire.awaits(superstep) {
        return Ok(());
    }
    let buffers = &mut process.rounds.firsts[side];
    buffers.resize_with(counts::rounds(n), Aligned::default);
    for (round, buffer) in buffers.iter_mut().enumerate() {
        buffer.reserve(SHORT_BYTES);
        let memory = [Iov { base: buffer.base(), len: SHORT_BYTES }];
        // SAFETY: it is looked at when it has come, and is then nobody's until it is posted again,
        // two supersteps later.
        unsafe { wire.post_round(counts::from(pid, n, round), superstep, round, &memory)? };
    }
    wire.set_awaits(superstep);
    Ok(())
}

/// Brings heads to those that they are for; `heads` are this process's, by destination, and `body`
/// writes the body of one that travels along. `theirs` are then those of the others, by source;
/// bodies that came along lie behind the place of a head in `firsts` of the process. Returns what
/// holds for all.
///
/// # Errors
/// What came cannot be, or does not come.
pub fn forward(
    process: &mut Process,
    counts: &mut Counts,
    heads: &[Head],
    common: Common,
    theirs: &mut Vec<Head>,
    body: impl FnMut(usize, &mut Vec<u8>),
) -> Result<Common, Trouble> {
    let (pid, superstep, side) = (process.pid(), process.superstep, (process.superstep % 2) as usize);
    await_rounds(process, superstep)?;
    counts.begin(pid, heads, common, body);
    for round in 0..counts::rounds(process.nprocs()) {
        send(process, counts, superstep, round)?;
        receive(process, counts, superstep, round)?;
    }
    let firsts = &mut process.firsts[side];
    let keep = |from: usize, body: &[u8]| {
        firsts[from].reserve(HEAD_BYTES + body.len());
        // SAFETY: it has room for both, and nobody else has it now.
        unsafe { firsts[from].base().add(HEAD_BYTES).copy_from_nonoverlapping(body.as_ptr(), body.len()) };
    };
    counts.finish(theirs, keep).map_err(|e| Trouble::Bad(pid, e))?;
    Ok(counts.common().unwrap_or(common))
}

fn send(process: &mut Process, counts: &mut Counts, superstep: u64, round: usize) -> Result<(), Trouble> {
    let (to, side) = (counts::to(process.pid(), process.nprocs(), round), (superstep % 2) as usize);
    let Some(wire) = &mut process.wire else { return Ok(()) };
    let outs = &mut process.rounds.out[side];
    if outs.len() <= round {
        outs.resize_with(round + 1, Vec::new);
    }
    let out = &mut outs[round];
    counts.write(round, out);
    let (first, rest) = out.split_at(out.len().min(SHORT_BYTES));
    wire.send_round(to, superstep, round, first)?;
    if !rest.is_empty() {
        let memory = [Iov { base: rest.as_ptr().cast_mut(), len: rest.len() }];
        // SAFETY: this side's buffer stays as it is until `wait_sent`, two supersteps later.
        unsafe { wire.send(to, Kind::Rest, superstep, &memory, Hold::of(superstep))? };
    }
    Ok(())
}

fn receive(process: &mut Process, counts: &mut Counts, superstep: u64, round: usize) -> Result<(), Trouble> {
    let n = process.nprocs();
    let from = counts::from(process.pid(), n, round);
    let bad = |e| Trouble::Bad(from, e);
    let Some(wire) = &mut process.wire else { return Ok(()) };
    let len = wire.wait_round(superstep, round)?;
    let buffers = &mut process.rounds;
    // SAFETY: it has come, and nobody writes to it any more in this superstep and the next.
    let first = unsafe { buffers.firsts[(superstep % 2) as usize][round].bytes(len) };
    let head = RoundHead::decode(first, n).map_err(bad)?;
    let here = &first[ROUND_HEAD_BYTES..];
    let missing = head.bytes.checked_sub(here.len()).ok_or_else(|| bad(Malformed("a round is longer than it says")))?;
    if missing == 0 {
        return counts.read(round, &head, here).map_err(bad);
    }
    buffers.rest.reserve(missing);
    let memory = [Iov { base: buffers.rest.base(), len: missing }];
    // SAFETY: it is looked at when it has come, which is waited for here.
    unsafe { wire.post(from, Kind::Rest, superstep, &memory)? };
    wire.wait(Kind::Rest)?;
    // SAFETY: it has come, and is posted again by the next call of this only.
    let whole = [here, unsafe { buffers.rest.bytes(missing) }].concat();
    counts.read(round, &head, &whole).map_err(bad)
}

//! The end of a superstep: what was asked for takes effect (`spec/bsp.md` 4 to 6).
//!
//! 1. Everybody hears how much there is for it; what is short goes with it. Who has heard all knows
//!    that all are here: the barrier. By messages, from each directly or in rounds (`forwarding`),
//!    or on a board where all are on one host (`meeting`).
//! 2. Bodies that are long follow, each into memory of its size.
//! 3. What others get is read and sent; runs that travel alone go from memory to memory.
//! 4. What was got is written, then what is put, in the order of the processes; then registrations
//!    take effect, and messages are in the queue.

use crate::aligned::Aligned;
use crate::checking;
use crate::counts::{self, Common, Counts};
use crate::effects::{self, Arrived, Came, Coming};
use crate::fail;
use crate::forwarding;
use crate::head::{BODY_MAX, Ends, HEAD_BYTES, Head};
use crate::ledger::{Entry, since};
use crate::lending;
use crate::meeting;
use crate::pacing;
use crate::packing::{Malformed, Runs};
use crate::place::Place;
use crate::process::{Outgoing, Process};
use crate::registry::Event;
use crate::settings::Order;
use crate::wire::{Hold, Kind, WireError};
use weir_engine::{Carried, Iov};

/// A superstep message up to this length is one message of the engine, with its head. Three
/// packets; as much as is copied in the time of a message of its own.
pub const SHORT_BYTES: usize = 4096;
/// Longest body in one.
const DIRECT_BYTES: usize = SHORT_BYTES - HEAD_BYTES;
/// Supersteps in which it is asked again whose memory can be read.
const REACHING: u64 = 32;
/// Replies up to this length are copied.
const COPIED_BYTES: usize = 16 << 10;

/// Why a superstep does not end.
pub enum Trouble {
    /// Messages do not go on.
    Wire(WireError),
    /// What a process sent cannot be.
    Bad(usize, Malformed),
    /// A line for people, of this process alone.
    Wrong(String),
    /// One that all processes find.
    Common(String),
}

impl From<WireError> for Trouble {
    fn from(e: WireError) -> Self {
        Trouble::Wire(e)
    }
}

/// Memory of a superstep that the next ones use again.
#[derive(Debug, Default)]
pub struct Scratch {
    /// Calls that all make alike, as they travel; of even and odd supersteps.
    events: [Vec<u8>; 2],
    /// Heads, by destination, ...
    heads: Vec<Head>,
    /// ... and by source.
    theirs: Vec<Head>,
    /// Whose bodies went with the heads, by destination; to whom was lent what travels alone; ...
    went: Vec<bool>,
    lent: Vec<bool>,
    /// ... and how all that comes, by source.
    came: Vec<Coming>,
    /// What leaves, by destination; of even and odd supersteps.
    flights: [Vec<Outgoing>; 2],
    /// What others got, by them; of even and odd supersteps.
    replies: [Vec<Vec<u8>>; 2],
    /// In which order the others are served.
    order: Vec<usize>,
    /// What was got, by source.
    answers: Vec<Aligned>,
    /// Heads that are forwarded.
    counts: Counts,
}

/// Ends the superstep of a process.
pub fn end(process: &mut Process, ends: Ends, place: Place) {
    let name = if ends == Ends::Sync { "bsp_sync" } else { "bsp_end" };
    let superstep = process.superstep;
    let met = match meet_idle(process, ends) {
        Ok(Met::All) => return,
        Ok(met) => Ok(met),
        Err(trouble) => Err(trouble),
    };
    // Taken out, so that it and the process can be changed side by side. If it does not come back,
    // nothing does.
    let mut scratch = std::mem::take(&mut process.scratch);
    let result = met.and_then(|met| exchange(process, &mut scratch, ends, place, met));
    process.scratch = scratch;
    let Err(trouble) = result else { return };
    let doing = format!("{place}{name}, superstep {superstep}: ");
    match trouble {
        Trouble::Wire(error) => fail::wire_failed(process, &doing, error),
        Trouble::Bad(pid, what) => fail::fail(Some(process), &format!("{doing}what process {pid} sent: {what}")),
        Trouble::Wrong(text) => fail::fail(Some(process), &format!("{doing}{text}")),
        Trouble::Common(text) => fail::all_failed(process, &format!("{doing}{text}")),
    }
}

/// How far a superstep has come before the long way is gone.
enum Met {
    /// Not at all.
    Not,
    /// All have met, and some have said something to this process: a bit for each.
    Telling(u64),
    /// To its end: nobody had asked for anything.
    All,
}

/// The end of a superstep in which this process has asked for nothing, where all meet on a board.
/// Most that is done elsewhere is not to be done here, and is not looked at.
#[inline]
fn meet_idle(process: &mut Process, ends: Ends) -> Result<Met, Trouble> {
    let superstep = process.superstep;
    if ends != Ends::Sync || superstep < meeting::FIRST || !process.is_idle() {
        return Ok(Met::Not);
    }
    let Some(meeting) = &mut process.meeting else { return Ok(Met::Not) };
    meeting.post(superstep, ends);
    let telling = meeting::wait_for_all(process, ends)?;
    if telling != 0 {
        return Ok(Met::Telling(telling));
    }
    process.inbox.clear(process.tags[1]);
    process.tags = [process.tags[1], process.tags[2], process.tags[2]];
    process.superstep += 1;
    Ok(Met::All)
}

/// Longest body that goes with its head in a message, in this superstep.
pub fn rides(process: &Process) -> u64 {
    if process.is_direct() { DIRECT_BYTES as u64 } else { counts::RIDE_BYTES as u64 }
}

fn exchange(process: &mut Process, scratch: &mut Scratch, ends: Ends, place: Place, met: Met) -> Result<(), Trouble> {
    let (pid, n, superstep) = (process.pid(), process.nprocs(), process.superstep);
    let side = (superstep % 2) as usize;
    let mut entry = process.ledger.is_some().then(|| begin_entry(process));
    let Scratch { events, heads, theirs, went, lent, came, flights, replies, order, answers, counts } = scratch;
    let (events, flights, replies) = (&mut events[side], &mut flights[side], &mut replies[side]);

    // What left two supersteps ago has left by now, mostly; its memory is used again.
    if let Some(wire) = &mut process.wire {
        wire.wait_sent(Hold::of(superstep))?;
    }
    process.end_asking();
    events.clear();
    events.extend(process.registry.events().flat_map(Event::encode));
    let check = process.check;
    flights.resize_with(n, || Outgoing::new(check));
    replies.resize_with(n, Vec::new);
    answers.resize_with(n, Aligned::default);
    for (out, flight) in process.out.iter_mut().zip(flights.iter_mut()) {
        out.seal();
        flight.clear();
        std::mem::swap(out, flight);
    }
    heads.clear();
    let (tag, has_board) = (process.tags[1], process.meeting.is_some());
    let head = |flight: &Outgoing| Head { has_board, ..head_of(flight, ends, superstep, events.len(), tag) };
    heads.extend(flights.iter().map(head));
    set_order(process, order);
    check_lengths(heads)?;

    // 1. Heads.
    for (flags, value) in [(&mut *went, true), (&mut *lent, false)] {
        flags.clear();
        flags.resize(n, value);
    }
    let on_board = process.meeting.is_some() && superstep >= meeting::FIRST;
    let mut all = Common::of(pid, ends, false, has_board);
    if on_board {
        let telling = match met {
            Met::Telling(telling) => telling,
            Met::Not | Met::All => {
                // (Who was greeted is connected a little later.)
                if superstep < meeting::FIRST + REACHING
                    && let (Some(meeting), Some(wire)) = (&mut process.meeting, &process.wire)
                {
                    meeting.set_reach(wire.reach());
                }
                post(process, heads, (went, lent), flights, events)?;
                meeting::wait_for_all(process, ends)?
            }
        };
        met_now(process, &mut entry);
        read_rows(process, theirs, came, &heads[pid], telling)?;
    } else {
        let rides = rides(process);
        all = if process.is_direct() {
            tell_directly(process, heads, theirs, (events, flights, order))?
        } else {
            all.dense = counts::is_dense(pid, heads, DIRECT_BYTES);
            let body = |to: usize, out: &mut Vec<u8>| {
                for part in parts(events, &flights[to]) {
                    out.extend_from_slice(part);
                }
            };
            forwarding::forward(process, counts, heads, all, theirs, body)?
        };
        met_now(process, &mut entry);
        check_ends(&all, ends)?;
        went.clear();
        went.extend(heads.iter().map(|head| head.body() <= rides));
        came.clear();
        let body = |head: &Head| if head.body() <= rides { Came::First } else { Came::Later };
        came.extend(theirs.iter().map(|head| Coming { body: body(head), lends: false }));
        check_memory(process, theirs, rides)?;
    }

    // 2. Bodies.
    if !on_board {
        pacing::bodies(process, order, heads, theirs)?;
    }
    for &from in order.iter() {
        if came[from].body == Came::Later {
            await_body(process, from, &theirs[from], superstep)?;
        }
        await_got(process, from, &flights[from], &mut answers[from], superstep)?;
    }
    let bodies: u64 = heads.iter().zip(went.iter()).filter(|(_, went)| !**went).map(|(head, _)| head.body()).sum();
    if !on_board {
        pacing::hold(process, bodies)?;
    }
    for &to in order.iter() {
        if !went[to] {
            send_body(process, to, events, &flights[to], superstep)?;
        }
    }
    if let Some(wire) = &mut process.wire {
        wire.wait(Kind::Body)?;
    }
    keep_own_letters(process, &flights[pid], side);
    let arrived = effects::arrived(process, theirs, events, &flights[pid], came);

    // 3. What travels alone, and gets. All that is to come has its place before anything is sent:
    //    who sends more than is taken in elsewhere waits, and two that wait for each other would go
    //    on only by what the engine does against that.
    if !on_board {
        pacing::apart(process, order, flights, &arrived)?;
    }
    for &from in order.iter() {
        if !came[from].lends {
            await_apart(process, from, &arrived[from], superstep)?;
        }
    }
    if !on_board && bodies == 0 {
        pacing::hold(process, flights.iter().flat_map(|out| &out.puts_apart).map(|put| put.len as u64).sum())?;
    }
    for &to in order.iter().filter(|to| !lent[**to]) {
        send_apart(process, to, &flights[to], superstep)?;
    }
    for from in std::iter::once(pid).chain(order.iter().copied()) {
        let parts = &arrived[from];
        let reply = &mut replies[from];
        effects::reply(process, parts.gets, reply).map_err(|e| Trouble::Bad(from, e))?;
        if from != pid {
            send_reply(process, from, parts, reply, superstep)?;
        }
    }
    for &from in order.iter().filter(|from| came[**from].lends) {
        lending::take(process, from, &arrived[from])?;
    }
    lending::finish(process, came.iter().any(|coming| coming.lends), lent)?;
    if let Some(wire) = &mut process.wire {
        wire.wait(Kind::Reply)?;
        wire.wait(Kind::ApartReply)?;
        wire.wait(Kind::Apart)?;
    }

    // 4. Effects.
    if process.check {
        checking::look(process, &arrived, flights.iter());
    }
    for from in 0..n {
        let (wanted, total) = (&flights[from].wanted, flights[from].wanted_bytes());
        // SAFETY: all of it has come.
        let data = if from == pid { &replies[pid][..] } else { unsafe { answers[from].bytes(total) } };
        effects::write_got(wanted, data).map_err(|e| Trouble::Bad(from, e))?;
    }
    for (from, parts) in arrived.iter().enumerate() {
        match &process.meeting {
            Some(meeting) if came[from].body == Came::ButPuts => {
                meeting.puts(from, &theirs[from]).and_then(|puts| effects::apply_shared(process, &puts))
            }
            _ => effects::apply(process, parts.puts),
        }
        .map_err(|e| Trouble::Bad(from, e))?;
    }
    if arrived.iter().any(|parts| !parts.events.is_empty()) {
        effects::agree(process, &arrived)?;
    }
    process.inbox.clear(process.tags[1]);
    for (from, parts) in arrived.iter().enumerate().filter(|(_, parts)| !parts.letters.is_empty()) {
        // SAFETY: buffers of this superstep stay as they are until the end of the next one, which
        // clears the queue before.
        unsafe { process.inbox.append(parts.letters, parts.count, parts.payload) }
            .map_err(|e| Trouble::Bad(from, e))?;
    }
    process.tags = [process.tags[1], process.tags[2], process.tags[2]];
    process.superstep += 1;
    process.was_dense = all.dense;
    if superstep + 1 == meeting::FIRST {
        begin_meeting(process, all.boards)?;
    }
    if ends == Ends::Sync && process.meeting.is_none() {
        // What comes of the next superstep while the program computes has its place.
        await_heads(process, superstep + 1)?;
    }
    if let Some(wire) = &mut process.wire {
        wire.wait_sent(Hold::Program)?;
        if ends == Ends::Program {
            wire.wait_sent(Hold::Even)?;
            wire.wait_sent(Hold::Odd)?;
        }
    }
    if let Some(entry) = entry {
        let moved = moved(pid, &arrived, flights);
        end_entry(process, entry, moved, (heads, theirs), place);
    }
    Ok(())
}

fn met_now(process: &Process, entry: &mut Option<(Entry, Carried)>) {
    if let Some((entry, _)) = entry {
        entry.met_ns = process.begun.elapsed().as_nanos() as u64;
    }
}

/// All have the board, or nobody uses it.
fn begin_meeting(process: &mut Process, all_have: bool) -> Result<(), Trouble> {
    if !all_have {
        process.meeting = None;
    }
    let (Some(meeting), Some(wire)) = (&mut process.meeting, &mut process.wire) else { return Ok(()) };
    wire.pace_no_more()?;
    wire.watch()?;
    meeting.begin(wire.reach());
    Ok(())
}

/// Tells the others, on the board, what there is for them. Bodies that find no room there follow as
/// messages.
fn post(
    process: &mut Process,
    heads: &[Head],
    (went, lent): (&mut [bool], &mut [bool]),
    flights: &[Outgoing],
    events: &[u8],
) -> Result<(), Trouble> {
    let pid = process.pid();
    for (to, head) in heads.iter().enumerate().filter(|(to, head)| *to != pid && head.body() > 0) {
        let Some(meeting) = &mut process.meeting else { return Ok(()) };
        went[to] = meeting.say(to, head, &parts(events, &flights[to]));
        lent[to] = lending::lend(process, to, &flights[to]);
    }
    if let (Some(own), Some(meeting)) = (heads.get(pid), &mut process.meeting) {
        meeting.post(own.superstep, own.ends);
    }
    Ok(())
}

/// What the others say on the board to this process; `telling`: who does. Bodies that are there are
/// copied: from then on nobody changes them.
fn read_rows(
    process: &mut Process,
    theirs: &mut Vec<Head>,
    came: &mut Vec<Coming>,
    own: &Head,
    telling: u64,
) -> Result<(), Trouble> {
    let (pid, superstep, side) = (process.pid(), own.superstep, (own.superstep % 2) as usize);
    theirs.clear();
    came.clear();
    let tells = |from: usize| telling >> from & 1 != 0;
    for from in 0..process.nprocs() {
        let mut head = Head { tag: own.tag, ..Head::empty(own.ends, superstep) };
        let mut coming = Coming { body: Came::Copied, lends: false };
        if let Some(meeting) = process.meeting.as_ref().filter(|_| tells(from)) {
            let (said, is_there, lends) = meeting.head(from, superstep).map_err(|e| Trouble::Bad(from, e))?;
            head = said;
            coming.lends = lends && head.puts_apart > 0;
            coming.body = match is_there {
                false => Came::Later,
                // Who wants to look at all puts has them copied.
                true if process.check || process.ledger.is_some() || head.puts_apart > 0 => Came::Copied,
                true => Came::ButPuts,
            };
            if head.superstep != superstep || head.ends != own.ends {
                return Err(Trouble::Bad(from, Malformed("it is of another superstep")));
            }
            check_tag(from, &head, own)?;
        }
        theirs.push(if from == pid { *own } else { head });
        came.push(coming);
    }
    check_memory(process, theirs, DIRECT_BYTES as u64)?;
    for from in (0..process.nprocs()).filter(|from| tells(*from) && came[*from].body != Came::Later) {
        let Some(meeting) = &process.meeting else { return Ok(()) };
        let body = &mut process.bodies[side][from];
        meeting.body(from, &theirs[from], came[from].body, body).map_err(|e| Trouble::Bad(from, e))?;
    }
    Ok(())
}

fn check_tag(from: usize, head: &Head, own: &Head) -> Result<(), Trouble> {
    if head.tag == own.tag { Ok(()) } else { Err(Trouble::Bad(from, Malformed("its tags have another size"))) }
}

fn check_lengths(heads: &[Head]) -> Result<(), Trouble> {
    match heads.iter().enumerate().find(|(_, head)| head.body() > BODY_MAX) {
        Some((to, head)) => {
            Err(Trouble::Wrong(format!("{} bytes for process {to}: more than {BODY_MAX}", head.body())))
        }
        None => Ok(()),
    }
}

/// All processes find the same.
fn check_ends(all: &Common, ends: Ends) -> Result<(), Trouble> {
    match (all.sync, all.end) {
        (Some(sync), Some(end)) => {
            let other = if ends == Ends::Sync { end } else { sync };
            Err(Trouble::Common(meeting::ended_otherwise(other, ends)))
        }
        _ => Ok(()),
    }
}

/// To whom in which order.
fn set_order(process: &mut Process, order: &mut Vec<usize>) {
    let (pid, n) = (process.pid(), process.nprocs());
    match process.settings.order {
        // A row of a Latin square, in each of whose columns everybody sends to another one.
        Order::Latin if order.is_empty() => order.extend((1..n).map(|step| (pid + step) % n)),
        Order::Ascending if order.is_empty() => order.extend((0..n).filter(|to| *to != pid)),
        Order::Latin | Order::Ascending => {}
        Order::Random => {
            order.clear();
            order.extend((0..n).filter(|to| *to != pid));
            for i in (1..order.len()).rev() {
                order.swap(i, (process.chance() % (i as u64 + 1)) as usize);
            }
        }
    }
}

fn head_of(out: &Outgoing, ends: Ends, superstep: u64, events: usize, tag: usize) -> Head {
    Head {
        events: events as u64,
        letters: out.letters.bytes().len() as u64,
        gets: out.gets.bytes().len() as u64,
        puts: out.puts.bytes().len() as u64,
        places: out.sealed.len() as u64,
        letter_count: out.letters.count,
        letter_payload: out.letters.payload,
        puts_apart: out.puts_apart.len() as u32,
        tag: tag as u32,
        ..Head::empty(ends, superstep)
    }
}

fn await_heads(process: &mut Process, superstep: u64) -> Result<(), Trouble> {
    if process.is_direct() {
        return await_firsts(process, superstep);
    }
    Ok(forwarding::await_rounds(process, superstep)?)
}

/// Each head to each process by itself.
fn tell_directly(
    process: &mut Process,
    heads: &mut [Head],
    theirs: &mut Vec<Head>,
    (events, flights, order): (&[u8], &[Outgoing], &[usize]),
) -> Result<Common, Trouble> {
    let (pid, superstep) = (process.pid(), process.superstep);
    let dense = counts::is_dense(pid, heads, DIRECT_BYTES);
    heads.iter_mut().for_each(|head| head.dense = dense);
    await_firsts(process, superstep)?;
    for &to in order {
        send_first(process, to, &heads[to], events, &flights[to])?;
    }
    if let Some(wire) = &mut process.wire {
        wire.wait(Kind::first(superstep))?;
    }
    read_heads(process, theirs, &heads[pid])?;
    let lowest = |ends| theirs.iter().position(|head| head.ends == ends);
    let (dense, boards) = (theirs.iter().all(|head| head.dense), theirs.iter().all(|head| head.has_board));
    Ok(Common { sync: lowest(Ends::Sync), end: lowest(Ends::Program), dense, boards })
}

fn await_firsts(process: &mut Process, superstep: u64) -> Result<(), Trouble> {
    let (pid, n, side) = (process.pid(), process.nprocs(), (superstep % 2) as usize);
    let Some(wire) = &mut process.wire else { return Ok(()) };
    if wire.awaits(superstep) {
        return Ok(());
    }
    for from in (0..n).filter(|from| *from != pid) {
        let buffer = &mut process.firsts[side][from];
        buffer.reserve(SHORT_BYTES);
        let memory = [Iov { base: buffer.base(), len: SHORT_BYTES }];
        // SAFETY: it is looked at when all have come, and is then nobody's until it is posted
        // again, two supersteps later.
        unsafe { wire.post(from, Kind::first(superstep), superstep, &memory)? };
    }
    wire.set_awaits(superstep);
    Ok(())
}

/// The parts of a body, in their order.
fn parts<'a>(events: &'a [u8], out: &'a Outgoing) -> [&'a [u8]; 5] {
    [events, out.letters.bytes(), out.gets.bytes(), out.puts.bytes(), &out.sealed]
}

fn send_first(process: &mut Process, to: usize, head: &Head, events: &[u8], out: &Outgoing) -> Result<(), Trouble> {
    let Some(wire) = &mut process.wire else { return Ok(()) };
    let encoded = head.encode();
    let [a, b, c, d, e] = parts(events, out);
    let pieces: [&[u8]; 6] = [&encoded, a, b, c, d, e];
    let pieces = if head.body() <= DIRECT_BYTES as u64 { &pieces[..] } else { &pieces[..1] };
    Ok(wire.send_copy(to, Kind::first(head.superstep), head.superstep, pieces)?)
}

fn read_heads(process: &Process, heads: &mut Vec<Head>, own: &Head) -> Result<(), Trouble> {
    let (side, superstep) = ((process.superstep % 2) as usize, process.superstep);
    heads.clear();
    for from in 0..process.nprocs() {
        if from == process.pid() {
            heads.push(*own);
            continue;
        }
        let len = process.wire.as_ref().map_or(0, |wire| wire.first_len(superstep, from));
        // SAFETY: it has come, and nobody writes to it any more in this superstep and the next.
        let bytes = unsafe { process.firsts[side][from].bytes(len) };
        let head = Head::decode(bytes).map_err(|e| Trouble::Bad(from, e))?;
        let here = HEAD_BYTES as u64 + if head.body() <= DIRECT_BYTES as u64 { head.body() } else { 0 };
        if head.superstep != superstep || len as u64 != here {
            return Err(Trouble::Bad(from, Malformed("it is of another superstep or length")));
        }
        check_tag(from, &head, own)?;
        heads.push(head);
    }
    Ok(())
}

/// What arrives is buffered too, but for bodies up to `free`.
fn check_memory(process: &Process, theirs: &[Head], free: u64) -> Result<(), Trouble> {
    let bytes: u64 = theirs.iter().map(Head::body).filter(|body| *body > free).sum();
    if bytes <= process.budget {
        return Ok(());
    }
    Err(Trouble::Wrong(format!(
        "{bytes} bytes come to this process, more than the {} it may buffer (WEIR_BSP_MEMORY): use bsp_hpput for what is large, or more supersteps",
        process.budget
    )))
}

fn await_body(process: &mut Process, from: usize, head: &Head, superstep: u64) -> Result<(), Trouble> {
    let Some(wire) = &mut process.wire else { return Ok(()) };
    let body = head.body() as usize;
    let buffer = &mut process.bodies[(superstep % 2) as usize][from];
    buffer.reserve(body);
    let memory = [Iov { base: buffer.base(), len: body }];
    // SAFETY: it is looked at when it has come, and is then nobody's until it is posted again, two
    // supersteps later.
    unsafe { wire.post(from, Kind::Body, superstep, &memory)? };
    Ok(())
}

/// What was asked for of a process: into memory of this library, or straight into the program's.
fn await_got(
    process: &mut Process,
    from: usize,
    out: &Outgoing,
    answer: &mut Aligned,
    superstep: u64,
) -> Result<(), Trouble> {
    let Some(wire) = &mut process.wire else { return Ok(()) };
    let bytes = out.wanted_bytes();
    if bytes > 0 {
        answer.reserve(bytes);
        let memory = [Iov { base: answer.base(), len: bytes }];
        // SAFETY: it is looked at only when all have come.
        unsafe { wire.post(from, Kind::Reply, superstep, &memory)? };
    }
    for wanted in &out.gets_apart {
        let memory = [Iov { base: wanted.into, len: wanted.len }];
        // SAFETY: the program gave it until the end of the superstep (`bsp_hpget`), and that waits
        // for all of this kind.
        unsafe { wire.post(from, Kind::ApartReply, superstep, &memory)? };
    }
    Ok(())
}

fn send_body(process: &mut Process, to: usize, events: &[u8], out: &Outgoing, superstep: u64) -> Result<(), Trouble> {
    let Some(wire) = &mut process.wire else { return Ok(()) };
    let memory = parts(events, out).map(|part| Iov { base: part.as_ptr().cast_mut(), len: part.len() });
    // SAFETY: events and flights of even and odd supersteps stay as they are until `wait_sent`, two
    // supersteps later.
    unsafe { wire.send(to, Kind::Body, superstep, &memory, Hold::of(superstep))? };
    Ok(())
}

fn send_apart(process: &mut Process, to: usize, out: &Outgoing, superstep: u64) -> Result<(), Trouble> {
    let Some(wire) = &mut process.wire else { return Ok(()) };
    for source in &out.puts_apart {
        let memory = [Iov { base: source.into, len: source.len }];
        // SAFETY: the program leaves it as it is until the end of the superstep (`bsp_hpput`), and
        // that waits for it.
        unsafe { wire.send(to, Kind::Apart, superstep, &memory, Hold::Program)? };
    }
    Ok(())
}

/// Own messages stay until the end of the next superstep, as all others do.
fn keep_own_letters(process: &mut Process, out: &Outgoing, side: usize) {
    let (own, letters) = (&mut process.bodies[side][process.pid], out.letters.bytes());
    own.reserve(letters.len());
    // SAFETY: it has room for them, and nobody else has it now.
    unsafe { own.base().copy_from_nonoverlapping(letters.as_ptr(), letters.len()) };
}

/// Runs that are put and travel alone: into the memory they are for.
fn await_apart(process: &mut Process, from: usize, arrived: &Arrived<'_>, superstep: u64) -> Result<(), Trouble> {
    if arrived.puts_apart == 0 {
        return Ok(());
    }
    for run in Runs::puts(arrived.puts) {
        let (run, _) = run.map_err(|e| Trouble::Bad(from, e))?;
        if run.apart {
            let at = effects::target(process, &run).map_err(|e| Trouble::Bad(from, e))?;
            let memory = [Iov { base: at, len: run.len as usize }];
            let Some(wire) = &mut process.wire else { return Ok(()) };
            // SAFETY: the program registered this memory, and does not look at it until the
            // superstep has ended, which waits for all of this kind.
            unsafe { wire.post(from, Kind::Apart, superstep, &memory)? };
        }
    }
    Ok(())
}

fn send_reply(
    process: &mut Process,
    to: usize,
    arrived: &Arrived<'_>,
    reply: &mut [u8],
    superstep: u64,
) -> Result<(), Trouble> {
    for run in Runs::gets(arrived.gets) {
        let (run, _) = run.map_err(|e| Trouble::Bad(to, e))?;
        if run.apart {
            let at = effects::target(process, &run).map_err(|e| Trouble::Bad(to, e))?;
            let memory = [Iov { base: at, len: run.len as usize }];
            let Some(wire) = &mut process.wire else { return Ok(()) };
            // SAFETY: the program registered this memory, and changes nothing there until the
            // superstep has ended, which waits for it.
            unsafe { wire.send(to, Kind::ApartReply, superstep, &memory, Hold::Program)? };
        }
    }
    let Some(wire) = process.wire.as_mut().filter(|_| !reply.is_empty()) else { return Ok(()) };
    if reply.len() <= COPIED_BYTES {
        return Ok(wire.send_copy(to, Kind::Reply, superstep, &[reply])?);
    }
    let memory = [Iov { base: reply.as_mut_ptr(), len: reply.len() }];
    // SAFETY: flights stay as they are until `wait_sent`, two supersteps later.
    unsafe { wire.send(to, Kind::Reply, superstep, &memory, Hold::of(superstep))? };
    Ok(())
}

fn begin_entry(process: &Process) -> (Entry, Carried) {
    let called_ns = process.begun.elapsed().as_nanos() as u64;
    // (What there was before; the end takes it off.)
    let slotted_bytes = process.wire.as_ref().map_or(0, |wire| wire.slotted_bytes());
    let entry = Entry { begun_ns: process.left_ns, called_ns, met_ns: called_ns, slotted_bytes, ..Entry::default() };
    (entry, process.wire.as_ref().map(|wire| wire.carried()).unwrap_or_default())
}

/// Bytes of payload to others, and from them.
fn moved(pid: usize, arrived: &[Arrived<'_>], flights: &[Outgoing]) -> (u64, u64) {
    let runs = |runs: Runs<'_>| runs.filter_map(Result::ok).map(|(run, _)| run.len).sum::<u64>();
    let mut moved = (0, 0);
    for (_, (there, out)) in arrived.iter().zip(flights).enumerate().filter(|(other, _)| *other != pid) {
        moved.0 += runs(Runs::puts(out.puts.bytes())) + out.letters.payload + runs(Runs::gets(there.gets));
        moved.1 += runs(Runs::puts(there.puts)) + there.payload + runs(Runs::gets(out.gets.bytes()));
    }
    moved
}

fn end_entry(
    process: &mut Process,
    (mut entry, before): (Entry, Carried),
    moved: (u64, u64),
    (heads, theirs): (&[Head], &[Head]),
    place: Place,
) {
    let pid = process.pid();
    let others = |heads: &[Head]| {
        let others = heads.iter().enumerate().filter(|(other, _)| *other != pid);
        others.filter(|(_, h)| h.body() > h.events).count() as u32
    };
    (entry.out_partners, entry.in_partners) = (others(heads), others(theirs));
    entry.letters = heads.iter().enumerate().filter(|(to, _)| *to != pid).map(|(_, h)| h.letter_count).sum();
    (entry.out_bytes, entry.in_bytes) = moved;
    entry.slotted_bytes = process.wire.as_ref().map_or(0, |wire| wire.slotted_bytes()) - entry.slotted_bytes;
    entry.carried = since(&before, &process.wire.as_ref().map(|wire| wire.carried()).unwrap_or_default());
    entry.ended_ns = process.begun.elapsed().as_nanos() as u64;
    process.left_ns = entry.ended_ns;
    if let Some(ledger) = &mut process.ledger {
        ledger.add(place.text().unwrap_or("unknown"), entry);
    }
}

//! How processes of one host meet at the end of a superstep: on a board (`spec/bsp.md` 11), where a
//! process that asked for nothing writes one cache line and reads one of each other.
//!
//! Everything else is as without it: the engine makes progress and tells who is gone, only that
//! nobody asks it before the others have not come for a while.

use crate::aligned::Aligned;
use crate::effects::Came;
use crate::head::{Ends, HEAD_BYTES, Head};
use crate::packing::Malformed;
use crate::process::Process;
use crate::superstep::Trouble;
use crate::wire::WireError;
use std::ops::Range;
use std::time::{Duration, Instant};
use weir_engine::board::{Board, ROW_BYTES, Seen, Shape};
use weir_engine::{BoardMemory, MadeBoard, NoBoard, SharedBytes, join_board, make_board};

/// The superstep that is met on it first: the one before it tells who has it.
pub const FIRST: u64 = 1;
/// Looks at a line before anything else is done: some 5 us, for who has a core; where processes
/// want each other's core, hardly any.
const LOOKS: u32 = 512;
const LOOKS_CROWDED: u32 = 16;
/// Looks between two turns of the engine.
const LOOKS_BETWEEN: u32 = 64;
/// A process that does not come and shares no memory with this one is spoken to so often: its
/// silence tells of its death.
const NUDGE: Duration = Duration::from_secs(1);

/// The processes of a host and their board.
pub struct Meeting {
    board: Board<BoardMemory>,
    /// Kept open until all have it.
    made: Option<std::os::fd::OwnedFd>,
    looks: u32,
}

/// What the maker of a board tells the others, and what it has of it.
pub struct Offer(MadeBoard, Shape);

impl Offer {
    /// Makes the board of so many processes. `None`: there are too many for one, or only one.
    ///
    /// # Errors
    /// Why there is none.
    pub fn make(processes: usize) -> Result<Option<Offer>, NoBoard> {
        Shape::of(processes).map(|shape| make_board(shape).map(|made| Offer(made, shape))).transpose()
    }

    /// By what the others find it.
    #[must_use]
    pub fn ticket(&self) -> String {
        self.0.ticket.to_string()
    }

    /// The maker's part.
    #[must_use]
    pub fn keep(self, crowded: bool) -> Option<Meeting> {
        let board = Board::new(self.0.board, self.1, 0, FIRST)?;
        Some(Meeting { board, made: Some(self.0.memory), looks: looks(crowded) })
    }
}

fn looks(crowded: bool) -> u32 {
    if crowded { LOOKS_CROWDED } else { LOOKS }
}

impl Meeting {
    /// The board that process 0 has made, for process `own` of so many.
    ///
    /// # Errors
    /// Why it cannot be had.
    pub fn join(ticket: &str, own: usize, processes: usize, crowded: bool) -> Result<Meeting, NoBoard> {
        let shape = Shape::of(processes).ok_or(NoBoard::Ticket)?;
        let memory = join_board(&ticket.parse()?, shape)?;
        let board = Board::new(memory, shape, own, FIRST).ok_or(NoBoard::Other)?;
        Ok(Meeting { board, made: None, looks: looks(crowded) })
    }

    /// All have it. `reach`: of which of them this process can read the memory, a bit for each.
    pub fn begin(&mut self, reach: u64) {
        self.made = None;
        self.board.set_reach(reach);
    }

    /// Of which of the others this process can read the memory, from the next superstep that it
    /// posts on.
    pub fn set_reach(&mut self, reach: u64) {
        self.board.set_reach(reach);
    }

    /// Whether a process can read this one's memory.
    #[must_use]
    pub fn reaches(&self, other: usize) -> bool {
        self.board.reaches(other)
    }

    /// Tells a process to which something was said where what it is lent lies: addresses, in the
    /// order of the runs. False: there is no room for that.
    pub fn lend(&mut self, superstep: u64, to: usize, addresses: &[u8]) -> bool {
        self.board.lend(superstep, to, addresses)
    }

    /// Where a process has what it lends for a run, of so many.
    ///
    /// # Errors
    /// It does not say.
    pub fn lent(&self, from: usize, superstep: u64, runs: u32, number: usize) -> Result<u64, Malformed> {
        let list = self.board.row(from, superstep).list;
        let list = list.and_then(|at| self.board.bytes(from, superstep, at, 8 * u64::from(runs)));
        list.and_then(|list| list.word(number)).ok_or(Malformed("it does not say where what it lends lies"))
    }

    /// This process is done with what it was lent.
    pub fn done(&mut self, superstep: u64) {
        self.board.done(superstep);
    }

    /// Tells a process what there is for it. True: the body goes with it.
    pub fn say(&mut self, to: usize, head: &Head, parts: &[&[u8]]) -> bool {
        self.board.say(head.superstep, to, &head.encode(), parts)
    }

    /// So many bytes more will be said in this superstep, behind so many.
    pub fn expect(&self, superstep: u64, behind: usize, bytes: usize) {
        if superstep >= FIRST {
            self.board.expect(superstep, behind, bytes);
        }
    }

    /// This process has come to the end of its superstep.
    #[inline]
    pub fn post(&mut self, superstep: u64, ends: Ends) {
        self.board.post(superstep, ends.code());
    }

    /// What a process says to this one, whether its body is on the board, and whether it lends what
    /// is put and travels alone.
    ///
    /// # Errors
    /// It cannot be.
    pub fn head(&self, from: usize, superstep: u64) -> Result<(Head, bool, bool), Malformed> {
        let row = self.board.row(from, superstep);
        Ok((Head::decode(&row.says)?, row.at.is_some(), row.list.is_some()))
    }

    /// Copies the body that goes with a head, or what of it lies before the puts.
    ///
    /// # Errors
    /// It cannot be there.
    pub fn body(&self, from: usize, head: &Head, how: Came, to: &mut Aligned) -> Result<(), Malformed> {
        let bytes = self.bytes(from, head, 0..head.body() as usize)?;
        let len = if how == Came::ButPuts { head.parts().puts.start } else { bytes.len() };
        to.reserve(len);
        // SAFETY: it has room for so many, and nobody else has it now.
        bytes.copy_to(0, unsafe { std::slice::from_raw_parts_mut(to.base(), len) });
        Ok(())
    }

    /// The puts of the body that goes with a head, where their sender has written them.
    ///
    /// # Errors
    /// They cannot be there.
    pub fn puts(&self, from: usize, head: &Head) -> Result<SharedBytes<'_>, Malformed> {
        self.bytes(from, head, head.parts().puts)
    }

    fn bytes(&self, from: usize, head: &Head, part: Range<usize>) -> Result<SharedBytes<'_>, Malformed> {
        let at = self.board.row(from, head.superstep).at.and_then(|at| at.checked_add(part.start as u64));
        let bytes = at.and_then(|at| self.board.bytes(from, head.superstep, at, part.len() as u64));
        bytes.ok_or(Malformed("its body lies beyond what is shared"))
    }
}

const _: () = assert!(ROW_BYTES == HEAD_BYTES);

/// Waits until all others have come to the end of this superstep too. Which of them have said
/// something to this process: a bit for each.
///
/// # Errors
/// One is gone, or ended its superstep otherwise, or somebody writes what is not its own.
#[inline]
pub fn wait_for_all(process: &mut Process, ends: Ends) -> Result<u64, Trouble> {
    let (pid, n) = (process.pid(), process.nprocs());
    let mut telling = 0;
    for step in 1..n {
        let other = if pid + step < n { pid + step } else { pid + step - n };
        telling |= u64::from(wait_for(process, other, ends)?) << other;
    }
    Ok(telling)
}

#[inline]
fn wait_for(process: &mut Process, other: usize, ends: Ends) -> Result<bool, Trouble> {
    let Some(meeting) = &process.meeting else { return Ok(false) };
    let (board, superstep, code) = (&meeting.board, process.superstep, ends.code());
    for _ in 0..meeting.looks {
        match board.look(other, superstep, code) {
            Seen::Here { says } => return Ok(says && board.tells(other, superstep)),
            Seen::NotYet => std::hint::spin_loop(),
            Seen::OtherKind | Seen::Nonsense => break,
        }
    }
    wait_long(process, other, ends)
}

/// The same for one that takes its time.
#[cold]
fn wait_long(process: &mut Process, other: usize, ends: Ends) -> Result<bool, Trouble> {
    let (superstep, code) = (process.superstep, ends.code());
    wait_by(process, other, |board, own| match board.look(other, superstep, code) {
        Seen::Here { says } => Ok(Some(says && board.tells(other, superstep))),
        Seen::NotYet if own => whole_lines(board, superstep).map(|()| None),
        Seen::NotYet => Ok(None),
        Seen::OtherKind => Err(Trouble::Common(ended_otherwise(other, ends))),
        Seen::Nonsense => Err(Trouble::Bad(other, SCRIBBLED)),
    })
}

/// Waits until a process is done with what this one has lent it.
///
/// # Errors
/// It is gone.
pub fn wait_until_done(process: &mut Process, other: usize) -> Result<(), Trouble> {
    let superstep = process.superstep;
    for _ in 0..process.meeting.as_ref().map_or(0, |meeting| meeting.looks) {
        if process.meeting.as_ref().is_some_and(|meeting| meeting.board.is_done(other, superstep)) {
            return Ok(());
        }
        std::hint::spin_loop();
    }
    wait_by(process, other, |board, own| match board.is_done(other, superstep) {
        true => Ok(Some(())),
        false if own => whole_lines(board, superstep).map(|()| None),
        false => Ok(None),
    })
}

fn whole_lines(board: &Board<BoardMemory>, superstep: u64) -> Result<(), Trouble> {
    if board.are_own_lines_whole(superstep) { Ok(()) } else { Err(Trouble::Wrong(SCRIBBLED_HERE.to_owned())) }
}

/// Waits until `look` sees what is waited for of a process (it is told when it may look longer).
/// The engine has its turns, which gives the core to others and tells who is gone.
fn wait_by<T: Default>(
    process: &mut Process,
    other: usize,
    look: impl Fn(&Board<BoardMemory>, bool) -> Result<Option<T>, Trouble>,
) -> Result<T, Trouble> {
    let mut nudge_at = Instant::now() + NUDGE;
    if let Some(wire) = &process.wire {
        wire.begin_wait();
    }
    loop {
        let Some(meeting) = &process.meeting else { return Ok(T::default()) };
        let crowded = meeting.looks < LOOKS;
        for n in 0..if crowded { 1 } else { LOOKS_BETWEEN } {
            if let Some(seen) = look(&meeting.board, n == 0)? {
                return Ok(seen);
            }
            std::hint::spin_loop();
        }
        let Some(wire) = &mut process.wire else { return Ok(T::default()) };
        if let Some(reason) = wire.lost(other) {
            // What it did before it went has happened: looked at once more.
            return match look(&meeting.board, true)? {
                Some(seen) => Ok(seen),
                None => Err(Trouble::Wire(WireError::Gone { pid: other, reason })),
            };
        }
        if crowded {
            std::thread::yield_now();
        }
        wire.turn()?;
        if Instant::now() >= nudge_at {
            wire.nudge(other)?;
            nudge_at = Instant::now() + NUDGE;
        }
    }
}

/// Of a line that holds what nobody writes who keeps the rules.
const SCRIBBLED: Malformed = Malformed("its line in shared memory is impossible");
const SCRIBBLED_HERE: &str = "another process has written over this one's line in shared memory";

/// For people: processes do not call `bsp_sync` equally often.
pub fn ended_otherwise(other: usize, ends: Ends) -> String {
    let (here, there) = if ends == Ends::Sync { ("bsp_sync", "bsp_end") } else { ("bsp_end", "bsp_sync") };
    format!("process {other} called {there} where this one called {here}: all must call bsp_sync equally often")
}

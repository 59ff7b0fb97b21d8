//! Unbuffered puts between processes of a host: who puts lends its memory, who is put to reads it
//! from there into its place, in one copy and without a message (`spec/bsp.md` 11).

use crate::effects::{Arrived, target};
use crate::meeting::{self, FIRST};
use crate::packing::{Malformed, Runs};
use crate::process::{Outgoing, Process};
use crate::superstep::Trouble;
use weir_engine::{Iov, RemotePiece};

/// Less than this in all is sent: a system call costs more than copying it twice (`spec/shm.md` 10,
/// `PULL_MIN`).
const LENT_MIN: usize = 32 << 10;
/// Bytes that are read at a time; the engine is locked meanwhile.
const READ_MAX: usize = 4 << 20;
/// Pieces that are read at a time.
const PIECES_MAX: usize = 256;

/// Lends a process what is put to it and travels alone, if it can read that. What was said to it is
/// posted later. True: it is lent, and stays so until the process is done with it.
pub fn lend(process: &mut Process, to: usize, out: &Outgoing) -> bool {
    let superstep = process.superstep;
    let bytes = out.puts_apart.iter().fold(0usize, |sum, source| sum.saturating_add(source.len));
    let Some(meeting) = process.meeting.as_mut().filter(|_| superstep > FIRST && bytes >= LENT_MIN) else {
        return false;
    };
    let addresses = out.puts_apart.iter().flat_map(|source| (source.into as u64).to_le_bytes());
    meeting.reaches(to) && meeting.lend(superstep, to, &addresses.collect::<Vec<u8>>())
}

/// Pieces to be read at once.
#[derive(Default)]
struct Batch {
    remote: Vec<RemotePiece>,
    local: Vec<Iov>,
    bytes: usize,
}

impl Batch {
    fn is_full(&self) -> bool {
        self.bytes >= READ_MAX || self.local.len() >= PIECES_MAX
    }

    /// As much of a run as there is room for: how many bytes.
    fn add(&mut self, address: u64, at: *mut u8, len: usize) -> usize {
        let len = len.min(READ_MAX - self.bytes);
        self.remote.push(RemotePiece { address, len: len as u64 });
        self.local.push(Iov { base: at, len });
        self.bytes += len;
        len
    }

    fn read(&mut self, process: &mut Process, from: usize) -> Result<(), Trouble> {
        if let Some(wire) = process.wire.as_mut().filter(|_| self.bytes > 0) {
            // SAFETY: the program registered this memory, and does not look at it until the
            // superstep has ended.
            unsafe { wire.read_memory(from, &self.remote, &self.local) }?;
        }
        self.remote.clear();
        self.local.clear();
        self.bytes = 0;
        Ok(())
    }
}

/// Reads all that a process has lent for puts into this one's memory.
///
/// # Errors
/// It is not there, or the process is gone.
pub fn take(process: &mut Process, from: usize, arrived: &Arrived<'_>) -> Result<(), Trouble> {
    let bad = |e| Trouble::Bad(from, e);
    let (mut batch, mut number) = (Batch::default(), 0);
    for run in Runs::puts(arrived.puts) {
        let (run, _) = run.map_err(bad)?;
        if !run.apart {
            continue;
        }
        let at = target(process, &run).map_err(bad)?;
        let address = match &process.meeting {
            Some(meeting) => meeting.lent(from, process.superstep, arrived.puts_apart, number).map_err(bad)?,
            None => return Err(bad(Malformed("it lends memory that cannot be read"))),
        };
        number += 1;
        let (len, mut done) = (run.len as usize, 0);
        while done < len {
            done += batch.add(address.wrapping_add(done as u64), at.wrapping_add(done), len - done);
            if batch.is_full() {
                batch.read(process, from)?;
            }
        }
    }
    batch.read(process, from)
}

/// All has been read that was lent to this process. Waits until the others have done the same with
/// what it has lent to them (`lent`, by process).
///
/// # Errors
/// One is gone.
pub fn finish(process: &mut Process, took: bool, lent: &[bool]) -> Result<(), Trouble> {
    let superstep = process.superstep;
    if let Some(meeting) = process.meeting.as_mut().filter(|_| took) {
        meeting.done(superstep);
    }
    for to in (0..lent.len()).filter(|to| lent[*to]) {
        meeting::wait_until_done(process, to)?;
    }
    Ok(())
}

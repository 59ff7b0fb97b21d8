//! What is measured: a machine of ranks that exchange messages, seen from one of them.
//!
//! A back end carries the messages: [`mpi`] any MPI library, [`weir`] Weir's own endpoint, [`sim`] processes in virtual time whose message times are planted. The harness is the same for
//! all, and is compiled for each: nothing stands between the two readings of the clock but the call that is timed.

mod control;
pub mod mpi;
pub mod sim;
mod tree;
pub mod weir;

pub use control::Control;

use weir_clock::TickPair;

use crate::error::Result;

/// Names a message's purpose: a receive takes messages of its tag only.
pub type Tag = u16;

/// Messages that are timed.
pub const TAG_DATA: Tag = 1;
/// Answers that are not timed.
pub const TAG_ANSWER: Tag = 2;
/// The harness's own exchanges.
pub const TAG_CONTROL: Tag = 3;
/// Probes of the clock.
pub const TAG_CLOCK: Tag = 4;
/// Headers of the task farm.
pub const TAG_TASK: Tag = 5;
/// Data of the task farm.
pub const TAG_WORK: Tag = 6;
/// A pair has all its repetitions, or all pairs have.
pub const TAG_DONE: Tag = 7;
/// Whether a pair exchanges more messages that are not timed.
pub const TAG_MORE: Tag = 8;

/// One rank's view of the machine.
///
/// Buffers passed to a collective over `n` ranks hold `n` blocks of equal length where each rank has its own; block `i` belongs to the group's `i`-th member.
pub trait Machine {
    /// Ranks that call a collective together.
    type Group;

    /// This process's number, from 0.
    fn rank(&self) -> usize;
    /// How many processes there are.
    fn size(&self) -> usize;

    /// This process's clock in ticks: never goes back, and no call before it in the program is still under way when it is read.
    fn ticks(&self) -> u64;
    /// Keeps the processor until the clock shows `until`; returns what it shows then.
    fn spin_until(&self, until: u64) -> u64 {
        loop {
            let now = self.ticks();
            if now >= until {
                return now;
            }
        }
    }

    /// A reading of the node's own steady clock between two of [`Machine::ticks`], by which they are calibrated.
    fn tick_pair(&self) -> TickPair;
    /// Lets some time pass without the processor, ns.
    fn pause(&self, ns: u64);
    /// Reads the node's own steady clock instead of the counter from now on; false if there is no other, or it is read already.
    fn distrust_counter(&self) -> bool {
        false
    }
    /// What is read.
    fn clock_source(&self) -> &'static str;
    /// Longest message, bytes.
    fn most_bytes(&self) -> u64 {
        u64::MAX
    }

    /// Sends; returns when `data` may be used again.
    fn send(&self, data: &[u8], to: usize, tag: Tag) -> Result<()>;
    /// Receives exactly `into.len()` bytes from `from`.
    fn recv(&self, into: &mut [u8], from: usize, tag: Tag) -> Result<()>;
    /// Receives at most `into.len()` bytes from anybody; returns from whom.
    fn recv_any(&self, into: &mut [u8], tag: Tag) -> Result<usize>;
    /// Whether a message with this tag from `from` could be received at once.
    fn arrived(&self, from: usize, tag: Tag) -> Result<bool>;
    /// Begins a send without waiting, then waits until `data` may be used again.
    fn isend_wait(&self, data: &[u8], to: usize, tag: Tag) -> Result<()>;
    /// Sends and receives in one call.
    fn sendrecv(&self, data: &[u8], to: usize, into: &mut [u8], from: usize, tag: Tag) -> Result<()>;
    /// Begins a send to `peer`, receives from it, reads the clock, then waits for the send; returns the reading.
    fn duplex(&self, data: &[u8], into: &mut [u8], peer: usize, tag: Tag) -> Result<u64>;
    /// Begins `count` sends of the same data, then waits for all.
    fn send_window(&self, data: &[u8], count: usize, to: usize, tag: Tag) -> Result<()>;
    /// Begins `count` receives of `into.len() / count` bytes each, then waits for all.
    fn recv_window(&self, into: &mut [u8], count: usize, from: usize, tag: Tag) -> Result<()>;

    /// Makes a group of these ranks (ascending). Every rank of the machine calls it with the same list; who is not in it gets `None`.
    fn group(&self, members: &[usize]) -> Result<Option<Self::Group>>;
    /// Makes the room that the group's collectives need for messages of so many bytes, so that none is taken while they are timed.
    fn make_room(&self, group: &Self::Group, bytes: usize) {
        let _ = (group, bytes);
    }
    /// Returns when all of the group have called it.
    fn barrier(&self, group: &Self::Group) -> Result<()>;
    /// Member 0's `data` comes to all.
    fn bcast(&self, group: &Self::Group, data: &mut [u8]) -> Result<()>;
    /// Everybody's `data` comes to member 0's `into`, by member; others' `into` is not looked at.
    fn gather(&self, group: &Self::Group, data: &[u8], into: &mut [u8]) -> Result<()>;
    /// Member 0's blocks in `data` go one to each `into`.
    fn scatter(&self, group: &Self::Group, data: &[u8], into: &mut [u8]) -> Result<()>;
    /// Everybody's `data` comes to everybody's `into`, by member.
    fn allgather(&self, group: &Self::Group, data: &[u8], into: &mut [u8]) -> Result<()>;
    /// Block `i` of `data` goes to member `i`, which finds it at this member's place in `into`.
    fn alltoall(&self, group: &Self::Group, data: &[u8], into: &mut [u8]) -> Result<()>;
    /// Sums everybody's `data`, place by place, into member 0's `into`.
    fn reduce(&self, group: &Self::Group, data: &[f64], into: &mut [f64]) -> Result<()>;
    /// The same sum, for everybody.
    fn allreduce(&self, group: &Self::Group, data: &[f64], into: &mut [f64]) -> Result<()>;

    /// What Weir endpoints of this process have carried so far, with none open where there are none; nothing where it makes no sense to ask.
    fn carried(&self) -> Option<weir_engine::Traffic> {
        None
    }

    /// Ends the whole job at once, after something failed: other ranks may wait for this one for ever.
    fn abort(&self, code: i32);
}

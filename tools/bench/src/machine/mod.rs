//! What is measured: a machine of ranks that exchange messages, seen from one of them.
//!
//! A back end carries the messages: [`mpi`] any MPI library, [`weir`] Weir's own endpoint, [`sim`]
//! processes in virtual time whose message times are planted. The harness is the same for all, and
//! is compiled for each: nothing stands between the two readings of the clock but the call that is
//! timed.

mod control;
mod mail;
pub mod mpi;
pub mod sim;
mod tree;
pub mod weir;

pub use control::Control;
pub use mail::{Landed, MAIL_TAGS, Mail, Room};

use weir_clock::TickPair;

use crate::error::Result;
use crate::exchange::{Access, Leg};
use crate::operation::Kind;

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

/// An exchange with one rank, to be made again and again, for machines that have nothing better
/// than to make it anew.
pub struct Again<'b> {
    /// What is sent.
    pub out: &'b [u8],
    /// Where it arrives.
    pub into: &'b mut [u8],
    /// With whom.
    pub peer: usize,
    /// By which tag.
    pub tag: Tag,
}

/// Of a thread's pair, from here on: three tags each ([`of_thread`]).
const TAG_THREADS: Tag = 64;

/// The tag that stands for one of [`TAG_DATA`], [`TAG_ANSWER`] and [`TAG_MORE`] among the messages
/// of a thread.
#[must_use]
pub fn of_thread(tag: Tag, thread: usize) -> Tag {
    let place = match tag {
        TAG_DATA => 0,
        TAG_ANSWER => 1,
        _ => 2,
    };
    TAG_THREADS + 3 * thread as Tag + place
}

/// Most threads of a rank: tags are [`Tag`]s, and MPIs know few thousand communicators.
pub const MOST_THREADS: u32 = 256;

/// What one thread of a rank can do: messages to and from one other rank, and looking at the clock.
pub trait Messages {
    /// This process's clock in ticks: never goes back, and no call before it in the program is
    /// still under way when it is read.
    fn ticks(&self) -> u64;
    /// The processor on which this thread runs now, if that is known.
    fn processor(&self) -> Option<u32> {
        None
    }
    /// Sends; returns when `data` may be used again.
    fn send(&self, data: &[u8], to: usize, tag: Tag) -> Result<()>;
    /// Receives exactly `into.len()` bytes from `from`.
    fn recv(&self, into: &mut [u8], from: usize, tag: Tag) -> Result<()>;
    /// Sends and receives in one call.
    fn sendrecv(&self, data: &[u8], to: usize, into: &mut [u8], from: usize, tag: Tag) -> Result<()>;
    /// Begins `count` sends of `data.len() / count` bytes each, then waits for all.
    fn send_window(&self, data: &[u8], count: usize, to: usize, tag: Tag) -> Result<()>;
    /// Begins `count` receives of `into.len() / count` bytes each, then waits for all.
    fn recv_window(&self, into: &mut [u8], count: usize, from: usize, tag: Tag) -> Result<()>;
}

/// What threads of a rank do at once: [`Machine::threads`].
pub trait Work: Sync {
    /// What one of them is given.
    type Seat: Send;
    /// What one of them leaves.
    type Out: Send;

    /// The work of one thread. The first, which is the rank's own, is given `look`, and may call it
    /// as often as it likes.
    ///
    /// # Errors
    /// The machine's.
    fn run<T: Messages>(&self, m: &T, seat: Self::Seat, look: Option<Look<'_>>) -> Result<Self::Out>;
}

/// Something that only the rank's own thread may look at.
pub type Look<'a> = &'a mut dyn FnMut() -> Result<bool>;

/// What tells the messages of a rank's threads apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Apart {
    /// A communicator for each thread: a library may have a channel for each.
    Communicator,
    /// A tag for each, in one communicator.
    Tag,
}

/// One rank's view of the machine.
///
/// Buffers passed to a collective over `n` ranks hold `n` blocks of equal length where each rank
/// has its own; block `i` belongs to the group's `i`-th member.
pub trait Machine: Messages {
    /// Ranks that call a collective together.
    type Group;
    /// Lengths of blocks, one for each member of a group.
    type Blocks;
    /// Memory at each member of a group that the others reach.
    type Window;
    /// An exchange that is set up once.
    type Persistent<'b>;

    /// This process's number, from 0.
    fn rank(&self) -> usize;
    /// How many processes there are.
    fn size(&self) -> usize;

    /// Keeps the processor until the clock shows `until`; returns what it shows then.
    fn spin_until(&self, until: u64) -> u64 {
        loop {
            let now = self.ticks();
            if now >= until {
                return now;
            }
        }
    }

    /// A reading of the node's own steady clock between two of [`Messages::ticks`], by which they
    /// are calibrated.
    fn tick_pair(&self) -> TickPair;
    /// Lets some time pass without the processor, ns.
    fn pause(&self, ns: u64);
    /// Reads the node's own steady clock instead of the counter from now on; false if there is no
    /// other, or it is read already.
    fn distrust_counter(&self) -> bool {
        false
    }
    /// Why this machine has no such operation, if it has none.
    fn lacks(&self, kind: Kind) -> Option<&'static str> {
        let _ = kind;
        None
    }
    /// What is read.
    fn clock_source(&self) -> &'static str;
    /// Longest message, bytes.
    fn most_bytes(&self) -> u64 {
        u64::MAX
    }

    /// Receives at most `into.len()` bytes from anybody; returns from whom.
    fn recv_any(&self, into: &mut [u8], tag: Tag) -> Result<usize>;
    /// Whether a message with this tag from `from` could be received at once.
    fn arrived(&self, from: usize, tag: Tag) -> Result<bool>;
    /// Begins a send without waiting, then waits until `data` may be used again.
    fn isend_wait(&self, data: &[u8], to: usize, tag: Tag) -> Result<()>;
    /// Begins a send to `peer`, receives from it, reads the clock, then waits for the send; returns
    /// the reading.
    fn duplex(&self, data: &[u8], into: &mut [u8], peer: usize, tag: Tag) -> Result<u64>;

    /// Why threads of a rank cannot send messages at once, if they cannot.
    fn lacks_threads(&self) -> Option<String>;
    /// Makes what so many threads of each rank need to tell their messages apart. Every rank of the
    /// machine calls it.
    fn make_threads(&self, count: usize, apart: Apart) -> Result<()> {
        let _ = (count, apart);
        Ok(())
    }
    /// Runs `work` in one thread for each of `seats`, the first of which is this one; each has room
    /// for `window` messages at once. If one fails the others cannot go on: the job is ended, or
    /// all fail.
    fn threads<W: Work>(
        &self,
        work: &W,
        seats: Vec<W::Seat>,
        apart: Apart,
        window: usize,
        look: Look<'_>,
    ) -> Result<Vec<W::Out>>;

    /// Begins all receives, one behind the other in `into`, and all sends, each from the beginning
    /// of `out`; waits for all.
    #[inline]
    fn exchange_all(&self, out: &[u8], sends: &[Leg], into: &mut [u8], receives: &[Leg], tag: Tag) -> Result<()> {
        self.exchange_meanwhile(out, sends, into, receives, tag, || {})
    }
    /// The same, and between the begin and the wait `meanwhile` is done, in which this rank makes
    /// no call of the machine's that carries messages.
    fn exchange_meanwhile(
        &self,
        out: &[u8],
        sends: &[Leg],
        into: &mut [u8],
        receives: &[Leg],
        tag: Tag,
        meanwhile: impl FnOnce(),
    ) -> Result<()>;
    /// Runs `work`, which may send messages by tags of their own to members of the group, apart
    /// from all others, and receive them in so much room. When this returns all sends are over, and
    /// receives to which nothing came are taken back.
    fn mail<'a, T>(
        &self,
        group: &Self::Group,
        room: Room,
        work: impl FnOnce(&mut dyn Mail<'a>) -> Result<T>,
    ) -> Result<T>;
    /// Sets up an exchange with `peer`; nothing is sent yet.
    fn persistent<'b>(&self, out: &'b [u8], into: &'b mut [u8], peer: usize, tag: Tag) -> Result<Self::Persistent<'b>>;
    /// Makes it once: starts it and waits for its end.
    fn start_and_wait(&self, exchange: &mut Self::Persistent<'_>) -> Result<()>;

    /// Makes a group of these ranks (ascending). Every rank of the machine calls it with the same
    /// list; who is not in it gets `None`.
    fn group(&self, members: &[usize]) -> Result<Option<Self::Group>>;
    /// Makes the room that the group's collectives need for messages of so many bytes, so that none
    /// is taken while they are timed.
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

    /// Lengths of the members' blocks, in bytes, or in numbers for [`Machine::reduce_scatter`].
    fn blocks(&self, lengths: &[usize]) -> Result<Self::Blocks>;
    /// As [`Machine::gather`], by the members' lengths.
    fn gatherv(&self, group: &Self::Group, data: &[u8], into: &mut [u8], blocks: &Self::Blocks) -> Result<()>;
    /// As [`Machine::scatter`], by the members' lengths.
    fn scatterv(&self, group: &Self::Group, data: &[u8], into: &mut [u8], blocks: &Self::Blocks) -> Result<()>;
    /// As [`Machine::allgather`], by the members' lengths.
    fn allgatherv(&self, group: &Self::Group, data: &[u8], into: &mut [u8], blocks: &Self::Blocks) -> Result<()>;
    /// As [`Machine::alltoall`], with these lengths both ways.
    fn alltoallv(&self, group: &Self::Group, data: &[u8], into: &mut [u8], blocks: &Self::Blocks) -> Result<()>;
    /// Sums everybody's `data`, place by place; each member has its block of the sums in `into`.
    fn reduce_scatter(&self, group: &Self::Group, data: &[f64], into: &mut [f64], blocks: &Self::Blocks) -> Result<()>;
    /// Sums of the members up to this one.
    fn scan(&self, group: &Self::Group, data: &[f64], into: &mut [f64]) -> Result<()>;
    /// Sums of the members below this one; member 0's `into` stays as it is.
    fn exscan(&self, group: &Self::Group, data: &[f64], into: &mut [f64]) -> Result<()>;
    /// A barrier that is begun without waiting, and then waited for.
    fn ibarrier(&self, group: &Self::Group) -> Result<()>;
    /// The same of [`Machine::allreduce`].
    fn iallreduce(&self, group: &Self::Group, data: &[f64], into: &mut [f64]) -> Result<()>;

    /// Makes so many bytes known at each member, which the others reach; they are zero. All members
    /// call it.
    fn window(&self, group: &Self::Group, bytes: usize, access: Access) -> Result<Self::Window>;
    /// Writes to member `to`'s window; complete there when it returns. Of [`Access::Fence`] it is a
    /// fence as well, and who reaches nobody calls [`Machine::fence`].
    fn put(&self, window: &Self::Window, data: &[u8], to: usize) -> Result<()>;
    /// Reads from member `from`'s window, and completes it as [`Machine::put`] does.
    fn get(&self, window: &Self::Window, into: &mut [u8], from: usize) -> Result<()>;
    /// Adds numbers to those in member `to`'s window, and completes it as [`Machine::put`] does.
    fn accumulate(&self, window: &Self::Window, data: &[f64], to: usize) -> Result<()>;
    /// Adds a number to the first in member `to`'s window, completes it as [`Machine::put`] does,
    /// and returns what that was.
    fn fetch_add(&self, window: &Self::Window, number: i64, to: usize) -> Result<i64>;
    /// Ends a phase together with all members.
    fn fence(&self, window: &Self::Window) -> Result<()>;
    /// What this rank's own window holds. Nobody may be writing there.
    fn look(&self, window: &Self::Window, into: &mut [u8]) -> Result<()>;

    /// What Weir endpoints of this process have carried so far, with none open where there are
    /// none; nothing where it makes no sense to ask.
    fn carried(&self) -> Option<weir_engine::Traffic> {
        None
    }

    /// Processor time that this rank's process has had, all its threads, ns; nothing where a rank
    /// is no process.
    fn cpu_ns(&self) -> Option<u64> {
        None
    }

    /// Ends the whole job at once, after something failed: other ranks may wait for this one for
    /// ever.
    fn abort(&self, code: i32);
}

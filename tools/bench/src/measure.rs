//! The loops that are timed. Each holds two readings of the clock, the call between them and the
//! storing into arrays made before: nothing else.

use crate::error::Result;
use crate::exchange::{Leg, Turn};
use crate::kernels::Kernel;
use crate::machine::{Machine, TAG_ANSWER, TAG_DATA, TAG_DONE, TAG_MORE};
use crate::operation::Kind;
use crate::talk::{self, BothWays, Filled, MORE, NO_MORE, PingPong, Plain, Rate, Stream, Talk};

/// What one rank noted, in ticks of its own clock, by repetition.
///
/// For [`crate::operation::Timing::Local`] both belong to one sample; for `OneWay` `begin` is where
/// this rank's own message began and `end` where its partner's arrived, which for `send` and
/// `isend` is in the other half of the batch.
#[derive(Clone, Debug, Default)]
pub struct Slots {
    /// Where it began.
    pub begin: Vec<u64>,
    /// Where it ended.
    pub end: Vec<u64>,
}

impl Slots {
    /// Makes room for `count` more and touches it, as the kernel must not give memory while
    /// something is timed; returns the first new place.
    pub fn grow(&mut self, count: usize) -> usize {
        let first = self.begin.len();
        self.begin.resize(first + count, u64::MAX);
        self.end.resize(first + count, u64::MAX);
        first
    }

    /// The places from `first` on.
    pub(crate) fn places(&mut self, first: usize) -> impl Iterator<Item = (&mut u64, &mut u64)> {
        self.begin[first..].iter_mut().zip(&mut self.end[first..])
    }
}

/// A buffer that begins at a page, all of it touched.
pub struct Buffer {
    memory: Vec<u8>,
    skip: usize,
    len: usize,
}

const PAGE_BYTES: usize = 4096;

impl Buffer {
    /// Of `len` bytes. They are 1: as floats tiny and normal, as a message compressible by nobody
    /// we know.
    #[must_use]
    pub fn new(len: usize) -> Buffer {
        let memory = vec![1; len + PAGE_BYTES];
        let skip = memory.as_ptr().align_offset(PAGE_BYTES).min(PAGE_BYTES);
        Buffer { memory, skip, len }
    }

    /// The bytes.
    #[must_use]
    pub fn get(&self) -> &[u8] {
        &self.memory[self.skip..self.skip + self.len]
    }

    /// The bytes.
    pub fn get_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.skip..self.skip + self.len]
    }
}

/// This rank's part in a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The partner.
    pub peer: usize,
    /// Whether this rank begins.
    pub first: bool,
}

/// What a batch of a pair's operation works on.
pub struct Pair<'a, M: Machine> {
    /// With whom, and which bytes.
    pub talk: Talk<'a>,
    /// Whether this rank begins.
    pub first: bool,
    /// All pairs of the cell: none stops before the last of them is done. Alone if there are none.
    pub pairs: &'a [(usize, usize)],
    /// What is added to the partner's memory.
    pub numbers: &'a [f64],
    /// Memory of all ranks of the cell, for operations on that of others, and the partner's place
    /// among them.
    pub memory: Option<(&'a M::Window, usize)>,
    /// The exchange that is made again and again, once it is set up: it has the buffers then.
    pub again: Option<M::Persistent<'a>>,
    /// How long a rank computes in each exchange of `overlap`, ticks.
    pub compute: u64,
}

impl<'a, M: Machine> Pair<'a, M> {
    /// A pair that sends and receives, alone.
    #[must_use]
    pub fn alone(part: Part, out: &'a mut [u8], into: &'a mut [u8]) -> Pair<'a, M> {
        let (talk, first, numbers) = (Talk::of_ranks(part.peer, out, into, 1), part.first, &[][..]);
        Pair { talk, first, pairs: &[], numbers, memory: None, again: None, compute: 0 }
    }
}

/// Fills the places of `slots` from `first` on with an operation between pairs.
///
/// Where a message goes one way or to and fro, one half of the machine begins all exchanges and the
/// other answers, then the other way round, as in the seed: all messages that are timed go in the
/// same direction, as many at once as there are pairs. `between` is called between the halves, and
/// brings the pairs together. After its repetitions a pair goes on, untimed, until all pairs have
/// theirs: every sample is of the contention that its cell states.
///
/// # Errors
/// The machine's.
pub fn pair<M: Machine>(
    m: &M,
    kind: Kind,
    p: &mut Pair<'_, M>,
    slots: &mut Slots,
    first: usize,
    between: impl FnOnce() -> Result<()>,
) -> Result<()> {
    match kind {
        Kind::Send => halves::<M, OneWay<false>>(m, p, slots, first, between),
        Kind::Isend => halves::<M, OneWay<true>>(m, p, slots, first, between),
        Kind::IsendLocal => halves::<M, Local>(m, p, slots, first, between),
        Kind::MessageRate => halves::<M, Ranks<Rate>>(m, p, slots, first, between),
        Kind::Sendrecv => half::<M, Ranks<BothWays>>(m, p, slots, first, p.first),
        Kind::DuplexIsend => half::<M, Duplex>(m, p, slots, first, p.first),
        Kind::Exchange => half::<M, AtOnce>(m, p, slots, first, p.first),
        Kind::Overlap => half::<M, Computing>(m, p, slots, first, p.first),
        Kind::Persistent => {
            let (out, into) = (std::mem::take(&mut p.talk.out), std::mem::take(&mut p.talk.into));
            p.again = Some(m.persistent(out, into, p.talk.peer, TAG_DATA)?);
            half::<M, Again>(m, p, slots, first, p.first)
        }
        Kind::PingPongFilled => halves::<M, Ranks<Filled>>(m, p, slots, first, between),
        Kind::Stream => halves::<M, Ranks<Stream>>(m, p, slots, first, between),
        Kind::Put => halves::<M, Remote<PUT, false>>(m, p, slots, first, between),
        Kind::Get => halves::<M, Remote<GET, false>>(m, p, slots, first, between),
        Kind::Accumulate => halves::<M, Remote<ADD, false>>(m, p, slots, first, between),
        Kind::FetchAndOp => halves::<M, Remote<FETCH, false>>(m, p, slots, first, between),
        Kind::PutFence => halves::<M, Remote<PUT, true>>(m, p, slots, first, between),
        Kind::GetFence => halves::<M, Remote<GET, true>>(m, p, slots, first, between),
        Kind::AccumulateFence => halves::<M, Remote<ADD, true>>(m, p, slots, first, between),
        Kind::FetchAndOpFence => halves::<M, Remote<FETCH, true>>(m, p, slots, first, between),
        Kind::PutLock => halves::<M, Remote<PUT, false>>(m, p, slots, first, between),
        Kind::GetLock => halves::<M, Remote<GET, false>>(m, p, slots, first, between),
        Kind::AccumulateLock => halves::<M, Remote<ADD, false>>(m, p, slots, first, between),
        Kind::FetchAndOpLock => halves::<M, Remote<FETCH, false>>(m, p, slots, first, between),
        _ => halves::<M, Ranks<PingPong>>(m, p, slots, first, between),
    }
}

/// Both halves.
fn halves<M: Machine, E: Exchange<M>>(
    m: &M,
    p: &mut Pair<'_, M>,
    slots: &mut Slots,
    first: usize,
    between: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let begins = p.first;
    half::<M, E>(m, p, slots, first, begins)?;
    between()?;
    half::<M, E>(m, p, slots, first, !begins)
}

/// All repetitions on one side, and what comes after them.
fn half<M: Machine, E: Exchange<M>>(
    m: &M,
    p: &mut Pair<'_, M>,
    slots: &mut Slots,
    first: usize,
    leads: bool,
) -> Result<()> {
    if leads {
        for (begin, end) in slots.places(first) {
            E::lead(m, p, begin, end)?;
        }
    } else {
        for (begin, end) in slots.places(first) {
            E::follow(m, p, begin, end)?;
        }
    }
    go_on::<M, E>(m, p, leads)?;
    E::finish(m, p, leads)
}

/// An operation between two ranks; `begin` and `end` are where a repetition's readings go.
trait Exchange<M: Machine> {
    /// One repetition, at the rank that begins.
    fn lead(m: &M, p: &mut Pair<'_, M>, begin: &mut u64, end: &mut u64) -> Result<()>;
    /// The same, at its partner; where both do the same, it is not written again.
    #[inline(always)]
    fn follow(m: &M, p: &mut Pair<'_, M>, begin: &mut u64, end: &mut u64) -> Result<()> {
        Self::lead(m, p, begin, end)
    }
    /// Whether all pairs make each repetition together anyway.
    const TOGETHER: bool = false;
    /// What is left to do when all repetitions are made.
    fn finish(_: &M, _: &mut Pair<'_, M>, _leads: bool) -> Result<()> {
        Ok(())
    }
}

/// What threads make as well, made by a rank as a whole.
struct Ranks<E>(std::marker::PhantomData<E>);

impl<M: Machine, E: Plain> Exchange<M> for Ranks<E> {
    #[inline(always)]
    fn lead(m: &M, p: &mut Pair<'_, M>, begin: &mut u64, end: &mut u64) -> Result<()> {
        E::lead(m, &mut p.talk, begin, end)
    }

    #[inline(always)]
    fn follow(m: &M, p: &mut Pair<'_, M>, begin: &mut u64, end: &mut u64) -> Result<()> {
        E::follow(m, &mut p.talk, begin, end)
    }

    fn finish(m: &M, p: &mut Pair<'_, M>, leads: bool) -> Result<()> {
        E::finish(m, &mut p.talk, leads)
    }
}

/// A message, timed from its sender's start to its receiver's end; an empty answer, not timed, lets
/// the next one go: no more than one message of a pair is under way.
struct OneWay<const NON_BLOCKING: bool>;

impl<M: Machine, const NON_BLOCKING: bool> Exchange<M> for OneWay<NON_BLOCKING> {
    #[inline(always)]
    fn lead(m: &M, p: &mut Pair<'_, M>, begin: &mut u64, _: &mut u64) -> Result<()> {
        let peer = p.talk.peer;
        let start = m.ticks();
        if NON_BLOCKING {
            m.isend_wait(p.talk.out, peer, TAG_DATA)?;
        } else {
            m.send(p.talk.out, peer, TAG_DATA)?;
        }
        m.recv(&mut [], peer, TAG_ANSWER)?;
        *begin = start;
        Ok(())
    }

    #[inline(always)]
    fn follow(m: &M, p: &mut Pair<'_, M>, _: &mut u64, end: &mut u64) -> Result<()> {
        let peer = p.talk.peer;
        m.recv(p.talk.into, peer, TAG_DATA)?;
        let stop = m.ticks();
        m.send(&[], peer, TAG_ANSWER)?;
        *end = stop;
        Ok(())
    }
}

/// Local completion at the sender; the answer as above.
struct Local;

impl<M: Machine> Exchange<M> for Local {
    #[inline(always)]
    fn lead(m: &M, p: &mut Pair<'_, M>, begin: &mut u64, end: &mut u64) -> Result<()> {
        let peer = p.talk.peer;
        let start = m.ticks();
        m.isend_wait(p.talk.out, peer, TAG_DATA)?;
        let stop = m.ticks();
        m.recv(&mut [], peer, TAG_ANSWER)?;
        (*begin, *end) = (start, stop);
        Ok(())
    }

    #[inline(always)]
    fn follow(m: &M, p: &mut Pair<'_, M>, _: &mut u64, _: &mut u64) -> Result<()> {
        m.recv(p.talk.into, p.talk.peer, TAG_DATA)?;
        m.send(&[], p.talk.peer, TAG_ANSWER)
    }
}

struct Duplex;

impl<M: Machine> Exchange<M> for Duplex {
    #[inline(always)]
    fn lead(m: &M, p: &mut Pair<'_, M>, begin: &mut u64, end: &mut u64) -> Result<()> {
        let start = m.ticks();
        let stop = m.duplex(p.talk.out, p.talk.into, p.talk.peer, TAG_DATA)?;
        (*begin, *end) = (start, stop);
        Ok(())
    }
}

/// A receive and a send with the partner, both begun before either is waited for.
struct AtOnce;

impl<M: Machine> Exchange<M> for AtOnce {
    #[inline(always)]
    fn lead(m: &M, p: &mut Pair<'_, M>, begin: &mut u64, end: &mut u64) -> Result<()> {
        let legs = |bytes| [Leg { peer: p.talk.peer, bytes }];
        let (sends, receives) = (legs(p.talk.out.len()), legs(p.talk.into.len()));
        let start = m.ticks();
        m.exchange_all(p.talk.out, &sends, p.talk.into, &receives, TAG_DATA)?;
        let stop = m.ticks();
        (*begin, *end) = (start, stop);
        Ok(())
    }
}

/// The same, and between its begin and its wait the rank computes.
struct Computing;

impl<M: Machine> Exchange<M> for Computing {
    #[inline(always)]
    fn lead(m: &M, p: &mut Pair<'_, M>, begin: &mut u64, end: &mut u64) -> Result<()> {
        let legs = |bytes| [Leg { peer: p.talk.peer, bytes }];
        let (sends, receives, compute) = (legs(p.talk.out.len()), legs(p.talk.into.len()), p.compute);
        let meanwhile = || {
            m.spin_until(m.ticks() + compute);
        };
        let start = m.ticks();
        m.exchange_meanwhile(p.talk.out, &sends, p.talk.into, &receives, TAG_DATA, meanwhile)?;
        let stop = m.ticks();
        (*begin, *end) = (start, stop);
        Ok(())
    }
}

/// A receive and a send at once by requests that were set up before.
struct Again;

impl<M: Machine> Exchange<M> for Again {
    #[inline(always)]
    fn lead(m: &M, p: &mut Pair<'_, M>, begin: &mut u64, end: &mut u64) -> Result<()> {
        let Some(exchange) = &mut p.again else { return Ok(()) };
        let start = m.ticks();
        m.start_and_wait(exchange)?;
        let stop = m.ticks();
        (*begin, *end) = (start, stop);
        Ok(())
    }
}

/// Operations on the partner's memory.
const PUT: u8 = 0;
const GET: u8 = 1;
const ADD: u8 = 2;
const FETCH: u8 = 3;

/// An operation on the partner's memory until it is complete there. Flushed or under a lock, the
/// partner knows nothing of it, and waits for the end of the half as it would for a barrier; with a
/// fence all ranks end it together.
struct Remote<const OPERATION: u8, const FENCE: bool>;

impl<M: Machine, const OPERATION: u8, const FENCE: bool> Exchange<M> for Remote<OPERATION, FENCE> {
    const TOGETHER: bool = FENCE;

    #[inline(always)]
    fn lead(m: &M, p: &mut Pair<'_, M>, begin: &mut u64, end: &mut u64) -> Result<()> {
        let Some((window, place)) = p.memory else { return Ok(()) };
        let start = m.ticks();
        match OPERATION {
            PUT => m.put(window, p.talk.out, place)?,
            GET => m.get(window, p.talk.into, place)?,
            ADD => m.accumulate(window, p.numbers, place)?,
            _ => {
                m.fetch_add(window, 1, place)?;
            }
        }
        let stop = m.ticks();
        (*begin, *end) = (start, stop);
        Ok(())
    }

    #[inline(always)]
    fn follow(m: &M, p: &mut Pair<'_, M>, _: &mut u64, _: &mut u64) -> Result<()> {
        match p.memory {
            Some((window, _)) if FENCE => m.fence(window),
            _ => Ok(()),
        }
    }
}

/// Exchanges more messages, untimed, until all pairs have their repetitions.
fn go_on<M: Machine, E: Exchange<M>>(m: &M, p: &mut Pair<'_, M>, leads: bool) -> Result<()> {
    if p.pairs.len() < 2 || E::TOGETHER {
        return Ok(());
    }
    let peer = p.talk.peer;
    let count = talk::between_words(p.talk.bytes);
    let (mut begin, mut end) = (0, 0);
    if leads {
        let mut others = Others::of(m.rank(), p.pairs);
        while !others.all_done(m)? {
            m.send(&MORE, peer, TAG_MORE)?;
            (0..count).try_for_each(|_| E::lead(m, p, &mut begin, &mut end))?;
        }
        return m.send(&NO_MORE, peer, TAG_MORE);
    }
    loop {
        let mut word = NO_MORE;
        m.recv(&mut word, peer, TAG_MORE)?;
        if word == NO_MORE {
            return Ok(());
        }
        (0..count).try_for_each(|_| E::follow(m, p, &mut begin, &mut end))?;
    }
}

/// How those that begin learn that all pairs have their repetitions: word goes up a binary tree of
/// the pairs, from each when it and those below it are done, and comes down again. While its own
/// repetitions are timed, two empty messages at most come to a rank.
pub(crate) struct Others {
    above: Option<usize>,
    below: Vec<usize>,
    waited_for: Vec<usize>,
    told: bool,
}

impl Others {
    /// Those of a rank among these pairs.
    pub(crate) fn of(rank: usize, pairs: &[(usize, usize)]) -> Others {
        // All that begin now are the firsts of their pairs, or all the seconds.
        let place = pairs.iter().position(|&(a, b)| a == rank || b == rank).unwrap_or(0);
        let firsts = pairs.get(place).is_some_and(|pair| pair.0 == rank);
        let leader = |place: usize| pairs.get(place).map(|&(a, b)| if firsts { a } else { b });
        let below: Vec<usize> = [2 * place + 1, 2 * place + 2].into_iter().filter_map(leader).collect();
        let above = place.checked_sub(1).and_then(|before| leader(before / 2));
        Others { above, waited_for: below.clone(), below, told: false }
    }

    /// Looks whether there is word; never waits.
    pub(crate) fn all_done<M: Machine>(&mut self, m: &M) -> Result<bool> {
        while let Some(&one) = self.waited_for.last() {
            if !m.arrived(one, TAG_DONE)? {
                return Ok(false);
            }
            m.recv(&mut [], one, TAG_DONE)?;
            self.waited_for.pop();
        }
        if let Some(above) = self.above {
            if !self.told {
                m.send(&[], above, TAG_DONE)?;
                self.told = true;
            }
            if !m.arrived(above, TAG_DONE)? {
                return Ok(false);
            }
            m.recv(&mut [], above, TAG_DONE)?;
        }
        self.below.iter().try_for_each(|&one| m.send(&[], one, TAG_DONE))?;
        Ok(true)
    }
}

/// How repetitions of a collective begin.
pub enum Starts<'a> {
    /// When the one before is over.
    None,
    /// After a barrier.
    Barrier,
    /// When this rank's clock shows these ticks, by repetition.
    Window(&'a [u64]),
}

/// Fills the places of `slots` from `first` on, each repetition begun as `starts` says.
///
/// # Errors
/// The machine's.
pub fn together<M: Machine>(
    m: &M,
    group: &M::Group,
    starts: &Starts<'_>,
    slots: &mut Slots,
    first: usize,
    mut call: impl FnMut() -> Result<()>,
) -> Result<()> {
    match starts {
        Starts::Window(instants) => {
            for ((begin, end), &instant) in slots.places(first).zip(*instants) {
                // The reading that saw the instant come is the start.
                let start = m.spin_until(instant);
                call()?;
                let stop = m.ticks();
                (*begin, *end) = (start, stop);
            }
        }
        Starts::Barrier => {
            for (begin, end) in slots.places(first) {
                m.barrier(group)?;
                let start = m.ticks();
                call()?;
                let stop = m.ticks();
                (*begin, *end) = (start, stop);
            }
        }
        Starts::None => {
            for (begin, end) in slots.places(first) {
                let start = m.ticks();
                call()?;
                let stop = m.ticks();
                (*begin, *end) = (start, stop);
            }
        }
    }
    Ok(())
}

/// What a batch of a collective works on.
pub struct Together<'a, M: Machine> {
    /// Who takes part.
    pub group: &'a M::Group,
    /// What is sent.
    pub out: &'a [u8],
    /// Where it arrives.
    pub into: &'a mut [u8],
    /// What is summed.
    pub numbers: &'a [f64],
    /// Where the sums go.
    pub sums: &'a mut [f64],
    /// Lengths of the members' blocks.
    pub blocks: &'a M::Blocks,
    /// What this rank sends and receives where messages are not a collective's of the machine.
    pub turns: &'a [Turn],
    /// Ticks in a microsecond.
    pub ticks_per_us: f64,
}

/// All turns of a rank, one after the other.
#[inline]
fn turns<M: Machine>(m: &M, turns: &[Turn], out: &[u8], into: &mut [u8], ticks_per_us: f64) -> Result<()> {
    turns.iter().try_for_each(|turn| {
        if turn.compute_ns > 0 {
            m.spin_until(m.ticks() + (turn.compute_ns as f64 / 1000.0 * ticks_per_us) as u64);
        }
        if turn.sends.is_empty() && turn.receives.is_empty() {
            return Ok(());
        }
        m.exchange_all(out, &turn.sends, into, &turn.receives, TAG_DATA)
    })
}

/// Fills the places of `slots` from `first` on with a collective.
///
/// # Errors
/// The machine's.
pub fn collective<M: Machine>(
    m: &M,
    kind: Kind,
    t: &mut Together<'_, M>,
    starts: &Starts<'_>,
    slots: &mut Slots,
    first: usize,
) -> Result<()> {
    let Together { group, out, into, numbers, sums, blocks, turns: own, ticks_per_us } = t;
    let (g, b) = (*group, *blocks);
    match kind {
        Kind::Bcast => together(m, g, starts, slots, first, || m.bcast(g, into)),
        Kind::Gather => together(m, g, starts, slots, first, || m.gather(g, out, into)),
        Kind::Scatter => together(m, g, starts, slots, first, || m.scatter(g, out, into)),
        Kind::Allgather => together(m, g, starts, slots, first, || m.allgather(g, out, into)),
        Kind::Alltoall => together(m, g, starts, slots, first, || m.alltoall(g, out, into)),
        Kind::Reduce => together(m, g, starts, slots, first, || m.reduce(g, numbers, sums)),
        Kind::Allreduce => together(m, g, starts, slots, first, || m.allreduce(g, numbers, sums)),
        Kind::Gatherv => together(m, g, starts, slots, first, || m.gatherv(g, out, into, b)),
        Kind::Scatterv => together(m, g, starts, slots, first, || m.scatterv(g, out, into, b)),
        Kind::Allgatherv => together(m, g, starts, slots, first, || m.allgatherv(g, out, into, b)),
        Kind::Alltoallv => together(m, g, starts, slots, first, || m.alltoallv(g, out, into, b)),
        Kind::ReduceScatter => together(m, g, starts, slots, first, || m.reduce_scatter(g, numbers, sums, b)),
        Kind::Scan => together(m, g, starts, slots, first, || m.scan(g, numbers, sums)),
        Kind::Exscan => together(m, g, starts, slots, first, || m.exscan(g, numbers, sums)),
        Kind::Iallreduce => together(m, g, starts, slots, first, || m.iallreduce(g, numbers, sums)),
        Kind::Ibarrier => together(m, g, starts, slots, first, || m.ibarrier(g)),
        Kind::Incast | Kind::Pattern => {
            together(m, g, starts, slots, first, || turns(m, own, out, into, *ticks_per_us))
        }
        _ => together(m, g, starts, slots, first, || m.barrier(g)),
    }
}

/// Fills the places of `slots` from `first` on with runs of a kernel.
///
/// # Errors
/// The machine's.
pub fn kernel<M: Machine>(
    m: &M,
    kernel: &mut Kernel,
    group: &M::Group,
    starts: &Starts<'_>,
    slots: &mut Slots,
    first: usize,
) -> Result<()> {
    match kernel {
        // It begins by barriers, and says itself when it was over.
        Kernel::Farm(farm) => farm.run(m, group, slots.places(first)),
        _ => together(m, group, starts, slots, first, || kernel.run(m, group)),
    }
}

/// Ticks between two readings with nothing between them, by the same loop: what the harness adds to
/// each sample.
pub fn nothing<M: Machine>(m: &M, count: usize) -> Slots {
    let mut slots = Slots::default();
    let first = slots.grow(count);
    for (begin, end) in slots.places(first) {
        let start = m.ticks();
        let stop = m.ticks();
        (*begin, *end) = (start, stop);
    }
    slots
}

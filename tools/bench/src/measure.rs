//! The loops that are timed. Each holds two readings of the clock, the call between them and the storing into arrays made before: nothing else.

use crate::error::Result;
use crate::kernels::Kernel;
use crate::machine::{Machine, TAG_ANSWER, TAG_DATA};
use crate::operation::Kind;

/// What one rank noted, in ticks of its own clock, by repetition.
///
/// For [`crate::operation::Timing::Local`] both belong to one sample; for `OneWay` `begin` is where this rank's own message began and `end` where its partner's arrived.
#[derive(Clone, Debug, Default)]
pub struct Slots {
    /// Where it began.
    pub begin: Vec<u64>,
    /// Where it ended.
    pub end: Vec<u64>,
}

impl Slots {
    /// Makes room for `count` more and touches it, as the kernel must not give memory while something is timed; returns the first new place.
    pub fn grow(&mut self, count: usize) -> usize {
        let first = self.begin.len();
        self.begin.resize(first + count, u64::MAX);
        self.end.resize(first + count, u64::MAX);
        first
    }

    /// The places from `first` on.
    fn places(&mut self, first: usize) -> impl Iterator<Item = (&mut u64, &mut u64)> {
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
    /// Of `len` bytes. They are 1: as floats tiny and normal, as a message compressible by nobody we know.
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
pub struct Pair<'a> {
    /// This rank's part.
    pub part: Part,
    /// What is sent.
    pub out: &'a [u8],
    /// Where it arrives.
    pub into: &'a mut [u8],
    /// Messages in a window of `message-rate`.
    pub window: usize,
}

/// Fills the places of `slots` from `first` on with an operation between pairs.
///
/// # Errors
/// The machine's.
pub fn pair<M: Machine>(m: &M, kind: Kind, p: &mut Pair<'_>, slots: &mut Slots, first: usize) -> Result<()> {
    match kind {
        Kind::Send => one_way(m, p, slots, first, |m, p| m.send(p.out, p.part.peer, TAG_DATA)),
        Kind::Isend => one_way(m, p, slots, first, |m, p| m.isend_wait(p.out, p.part.peer, TAG_DATA)),
        Kind::Sendrecv => both_ways(m, p, slots, first),
        Kind::DuplexIsend => duplex(m, p, slots, first),
        Kind::IsendLocal => local_send(m, p, slots, first),
        Kind::MessageRate => halves(m, p, slots, first, send_windows, take_windows),
        _ => halves(m, p, slots, first, ping, pong),
    }
}

/// Messages to and fro, each timed from its sender's start to its receiver's end.
fn one_way<M: Machine>(
    m: &M,
    p: &mut Pair<'_>,
    slots: &mut Slots,
    first: usize,
    send: impl Fn(&M, &Pair<'_>) -> Result<()>,
) -> Result<()> {
    let peer = p.part.peer;
    if p.part.first {
        for (begin, end) in slots.places(first) {
            let start = m.ticks();
            send(m, p)?;
            m.recv(p.into, peer, TAG_DATA)?;
            let stop = m.ticks();
            (*begin, *end) = (start, stop);
        }
    } else {
        for (begin, end) in slots.places(first) {
            m.recv(p.into, peer, TAG_DATA)?;
            let stop = m.ticks();
            let start = m.ticks();
            send(m, p)?;
            (*begin, *end) = (start, stop);
        }
    }
    Ok(())
}

fn both_ways<M: Machine>(m: &M, p: &mut Pair<'_>, slots: &mut Slots, first: usize) -> Result<()> {
    let peer = p.part.peer;
    for (begin, end) in slots.places(first) {
        let start = m.ticks();
        m.sendrecv(p.out, peer, p.into, peer, TAG_DATA)?;
        let stop = m.ticks();
        (*begin, *end) = (start, stop);
    }
    Ok(())
}

fn duplex<M: Machine>(m: &M, p: &mut Pair<'_>, slots: &mut Slots, first: usize) -> Result<()> {
    for (begin, end) in slots.places(first) {
        let start = m.ticks();
        let stop = m.duplex(p.out, p.into, p.part.peer, TAG_DATA)?;
        (*begin, *end) = (start, stop);
    }
    Ok(())
}

/// Local completion at the sender, in turns, so that no more than one message of each pair is under way.
fn local_send<M: Machine>(m: &M, p: &mut Pair<'_>, slots: &mut Slots, first: usize) -> Result<()> {
    let peer = p.part.peer;
    let begins = p.part.first;
    for (begin, end) in slots.places(first) {
        if !begins {
            m.recv(p.into, peer, TAG_DATA)?;
        }
        let start = m.ticks();
        m.isend_wait(p.out, peer, TAG_DATA)?;
        let stop = m.ticks();
        (*begin, *end) = (start, stop);
        if begins {
            m.recv(p.into, peer, TAG_DATA)?;
        }
    }
    Ok(())
}

type Half<M> = fn(&M, &mut Pair<'_>, &mut Slots, usize) -> Result<()>;

/// First one half of the machine times and the other answers, then the other way round.
fn halves<M: Machine>(
    m: &M,
    p: &mut Pair<'_>,
    slots: &mut Slots,
    first: usize,
    timing: Half<M>,
    answering: Half<M>,
) -> Result<()> {
    let (one, other) = if p.part.first { (timing, answering) } else { (answering, timing) };
    one(m, p, slots, first)?;
    other(m, p, slots, first)
}

fn ping<M: Machine>(m: &M, p: &mut Pair<'_>, slots: &mut Slots, first: usize) -> Result<()> {
    let peer = p.part.peer;
    for (begin, end) in slots.places(first) {
        let start = m.ticks();
        m.send(p.out, peer, TAG_DATA)?;
        m.recv(p.into, peer, TAG_DATA)?;
        let stop = m.ticks();
        (*begin, *end) = (start, stop);
    }
    Ok(())
}

fn pong<M: Machine>(m: &M, p: &mut Pair<'_>, slots: &mut Slots, first: usize) -> Result<()> {
    let peer = p.part.peer;
    for _ in slots.places(first) {
        m.recv(p.into, peer, TAG_DATA)?;
        m.send(p.out, peer, TAG_DATA)?;
    }
    Ok(())
}

fn send_windows<M: Machine>(m: &M, p: &mut Pair<'_>, slots: &mut Slots, first: usize) -> Result<()> {
    let (peer, window) = (p.part.peer, p.window);
    for (begin, end) in slots.places(first) {
        let start = m.ticks();
        m.send_window(p.out, window, peer, TAG_DATA)?;
        m.recv(&mut [], peer, TAG_ANSWER)?;
        let stop = m.ticks();
        (*begin, *end) = (start, stop);
    }
    Ok(())
}

fn take_windows<M: Machine>(m: &M, p: &mut Pair<'_>, slots: &mut Slots, first: usize) -> Result<()> {
    let (peer, window) = (p.part.peer, p.window);
    for _ in slots.places(first) {
        m.recv_window(p.into, window, peer, TAG_DATA)?;
        m.send(&[], peer, TAG_ANSWER)?;
    }
    Ok(())
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
    let Together { group, out, into, numbers, sums } = t;
    let g = *group;
    match kind {
        Kind::Bcast => together(m, g, starts, slots, first, || m.bcast(g, into)),
        Kind::Gather => together(m, g, starts, slots, first, || m.gather(g, out, into)),
        Kind::Scatter => together(m, g, starts, slots, first, || m.scatter(g, out, into)),
        Kind::Allgather => together(m, g, starts, slots, first, || m.allgather(g, out, into)),
        Kind::Alltoall => together(m, g, starts, slots, first, || m.alltoall(g, out, into)),
        Kind::Reduce => together(m, g, starts, slots, first, || m.reduce(g, numbers, sums)),
        Kind::Allreduce => together(m, g, starts, slots, first, || m.allreduce(g, numbers, sums)),
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
    together(m, group, starts, slots, first, || kernel.run(m, group))
}

/// Ticks between two readings with nothing between them, by the same loop: what the harness adds to each sample.
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

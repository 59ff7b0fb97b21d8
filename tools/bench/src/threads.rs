//! Pairs of threads: several threads of a rank, each with the same thread of the partner's.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::error::Result;
use crate::machine::{Apart, Look, Machine, Messages, TAG_ANSWER, TAG_DATA, TAG_MORE, Tag, Work, of_thread};
use crate::measure::{Buffer, Others, Part, Slots};
use crate::operation::Kind;
use crate::talk::{BothWays, Filled, MORE, NO_MORE, PingPong, Plain, Rate, Stream, Talk, between_words};

/// Threads at each rank of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threads {
    /// How many.
    pub count: u32,
    /// What tells their messages apart.
    pub apart: Apart,
}

/// What a batch of pairs of threads works on.
pub struct Batch<'a> {
    /// This rank's part.
    pub part: Part,
    /// All pairs of the cell.
    pub pairs: &'a [(usize, usize)],
    /// What is sent and where it arrives, by thread.
    pub buffers: &'a mut [(Buffer, Buffer)],
    /// What tells the threads' messages apart.
    pub apart: Apart,
    /// Messages in a window.
    pub window: usize,
}

/// Fills the places of `slots` from `first` on with an operation between pairs of threads: place k
/// is thread k mod T's of T. Returns whether a thread changed its processor.
///
/// Halves and what comes after a thread's repetitions are as of pairs of ranks
/// ([`crate::measure::pair`]): a thread goes on, untimed, until all threads of all pairs have
/// theirs.
///
/// # Errors
/// The machine's.
pub fn pair<M: Machine>(
    m: &M,
    kind: Kind,
    batch: &mut Batch<'_>,
    slots: &mut Slots,
    first: usize,
    between: impl FnOnce() -> Result<()>,
) -> Result<bool> {
    let (threads, begins) = (batch.buffers.len(), batch.part.first);
    let count = slots.begin.len() - first;
    let places = |thread: usize| (0..count).filter(move |k| (first + k) % threads == thread).map(move |k| first + k);
    let fresh = (0..threads).map(|thread| {
        let mut own = Slots::default();
        own.grow(places(thread).count());
        (own, false)
    });
    let mut all: Vec<(Slots, bool)> = fresh.collect();
    match kind {
        Kind::Sendrecv => half::<M, BothWays>(m, batch, &mut all, begins)?,
        Kind::PingPongFilled => halves::<M, Filled>(m, batch, &mut all, between)?,
        Kind::MessageRate => halves::<M, Rate>(m, batch, &mut all, between)?,
        Kind::Stream => halves::<M, Stream>(m, batch, &mut all, between)?,
        _ => halves::<M, PingPong>(m, batch, &mut all, between)?,
    }
    for (thread, (own, _)) in all.iter().enumerate() {
        for (place, (begin, end)) in places(thread).zip(own.begin.iter().zip(&own.end)) {
            (slots.begin[place], slots.end[place]) = (*begin, *end);
        }
    }
    Ok(all.iter().any(|(_, moved)| *moved))
}

fn halves<M: Machine, E: Plain>(
    m: &M,
    batch: &mut Batch<'_>,
    all: &mut Vec<(Slots, bool)>,
    between: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let begins = batch.part.first;
    half::<M, E>(m, batch, all, begins)?;
    between()?;
    half::<M, E>(m, batch, all, !begins)
}

/// All repetitions of all threads on one side, and what comes after them.
fn half<M: Machine, E: Plain>(m: &M, batch: &mut Batch<'_>, all: &mut Vec<(Slots, bool)>, leads: bool) -> Result<()> {
    let Batch { part, pairs, buffers, apart, window } = batch;
    let noted = std::mem::take(all).into_iter().enumerate();
    let seats: Vec<Seat<'_>> = buffers
        .iter_mut()
        .zip(noted)
        .map(|((out, into), (thread, (slots, moved)))| {
            let tags = (of_thread(TAG_DATA, thread), of_thread(TAG_ANSWER, thread));
            let talk = Talk::new(part.peer, out.get_mut(), into.get_mut(), *window, tags);
            Seat { talk, more: of_thread(TAG_MORE, thread), slots, moved }
        })
        .collect();
    let threads = seats.len();
    let side = Side::<E> {
        leads,
        alone: threads == 1 && pairs.len() < 2,
        threads,
        done: AtomicUsize::new(0),
        over: AtomicBool::new(false),
        of: PhantomData,
    };
    let mut others = Others::of(m.rank(), pairs);
    let mut look = || if pairs.len() < 2 { Ok(true) } else { others.all_done(m) };
    *all = m.threads(&side, seats, *apart, *window, &mut look)?;
    Ok(())
}

/// What a thread works on.
struct Seat<'a> {
    talk: Talk<'a>,
    /// The tag of words about whether to go on.
    more: Tag,
    slots: Slots,
    moved: bool,
}

/// What the threads of one side of a pair do.
struct Side<'a, E> {
    leads: bool,
    /// Nobody else is to be waited for.
    alone: bool,
    threads: usize,
    /// Threads of this rank that have their repetitions.
    done: AtomicUsize,
    /// All threads of all pairs have theirs.
    over: AtomicBool,
    of: PhantomData<fn(&'a E)>,
}

impl<'a, E: Plain> Work for Side<'a, E> {
    type Seat = Seat<'a>;
    type Out = (Slots, bool);

    fn run<T: Messages>(&self, m: &T, mut seat: Seat<'a>, look: Option<Look<'_>>) -> Result<(Slots, bool)> {
        let before = m.processor();
        let Seat { talk, slots, .. } = &mut seat;
        if self.leads {
            for (begin, end) in slots.places(0) {
                E::lead(m, talk, begin, end)?;
            }
        } else {
            for (begin, end) in slots.places(0) {
                E::follow(m, talk, begin, end)?;
            }
        }
        let moved = seat.moved || m.processor() != before;
        self.done.fetch_add(1, Ordering::SeqCst);
        if !self.alone {
            self.go_on(m, &mut seat, look)?;
        }
        E::finish(m, &mut seat.talk, self.leads)?;
        Ok((seat.slots, moved))
    }
}

impl<E: Plain> Side<'_, E> {
    /// Exchanges more messages, untimed, until all threads of all pairs have their repetitions.
    fn go_on<T: Messages>(&self, m: &T, seat: &mut Seat<'_>, mut look: Option<Look<'_>>) -> Result<()> {
        let (peer, more, (mut begin, mut end)) = (seat.talk.peer, seat.more, (0, 0));
        let count = between_words(seat.talk.out.len());
        if !self.leads {
            loop {
                let mut word = NO_MORE;
                m.recv(&mut word, peer, more)?;
                if word == NO_MORE {
                    return Ok(());
                }
                (0..count).try_for_each(|_| E::follow(m, &mut seat.talk, &mut begin, &mut end))?;
            }
        }
        while !self.over.load(Ordering::SeqCst) {
            // The rank's own thread asks the other pairs, once the other threads are done.
            if let Some(look) = look.as_mut().filter(|_| self.done.load(Ordering::SeqCst) == self.threads)
                && look()?
            {
                self.over.store(true, Ordering::SeqCst);
                break;
            }
            m.send(&MORE, peer, more)?;
            (0..count).try_for_each(|_| E::lead(m, &mut seat.talk, &mut begin, &mut end))?;
        }
        m.send(&NO_MORE, peer, more)
    }
}

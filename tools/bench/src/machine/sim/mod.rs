//! A machine in virtual time: processes are threads of which one runs at a time, always the one
//! that is furthest behind.
//!
//! A process that waits for a message stands where that message arrives. As nobody runs who is not
//! furthest behind, no message that arrives earlier can still be sent, so that every receive, also
//! one from anybody, is decided rightly, and the same seed gives the same run on every machine.

mod model;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use rand_pcg::Pcg64;
use weir_clock::TickPair;

pub use model::{Model, Phases, Shape, Stall, Warming, Wrong};

use super::mail::TAG_MAIL;
use super::tree::{self, Members};
use super::{Again, Apart, Landed, Look, MAIL_TAGS, Machine, Mail, Messages, Room, Tag, Work};
use crate::error::{BenchError, Result};
use crate::exchange::{Access, Leg};

struct Message {
    from: usize,
    /// Which of its threads.
    by: usize,
    tag: Tag,
    arrives: f64,
    data: Vec<u8>,
}

/// Which messages a receive takes: from this rank or anybody, with this tag or any of mail's.
#[derive(Clone, Copy)]
struct Want {
    from: Option<usize>,
    tag: Option<Tag>,
}

impl Want {
    fn fits(&self, message: &Message) -> bool {
        self.from.is_none_or(|from| from == message.from)
            && self.tag.map_or(message.tag >= TAG_MAIL, |tag| tag == message.tag)
    }
}

/// Where a process stands.
enum Standing {
    /// It acts next at this time.
    At(f64),
    /// It wants a message that one of these receives takes, the first posted first, and has come to
    /// this time.
    Wants(Vec<Want>, f64),
    /// It waits for its threads.
    Waits,
    Ended,
}

struct World {
    /// By who acts: the ranks first, which are their own threads 0, then all other threads that
    /// there ever were at once.
    standing: Vec<Standing>,
    /// Of each, its rank.
    rank_of: Vec<usize>,
    wake: Vec<Arc<Condvar>>,
    /// Of each rank, threads that have not ended, and the latest end of the others, ns.
    running: Vec<(usize, f64)>,
    inbox: Vec<VecDeque<Message>>,
    /// When messages under way arrive: what the contention is counted by.
    flying: Vec<f64>,
    /// Memory that others reach, by window and rank; windows so far.
    windows: BTreeMap<(u64, usize), Vec<u8>>,
    made: u64,
    /// Why nobody can go on.
    failed: Option<String>,
}

impl World {
    /// The message that a receive would get, by its place in the inbox: of each sender's the first
    /// that was sent, of all senders' that which arrives first.
    fn match_of(&self, rank: usize, want: &Want) -> Option<usize> {
        let inbox = &self.inbox[rank];
        let mut fitting = inbox.iter().enumerate().filter(|(_, message)| want.fits(message));
        if want.from.is_some() {
            return fitting.next().map(|(place, _)| place);
        }
        let mut heads: Vec<usize> = Vec::new();
        for (place, message) in fitting {
            if heads.iter().all(|&head| (inbox[head].from, inbox[head].by) != (message.from, message.by)) {
                heads.push(place);
            }
        }
        heads.into_iter().min_by(|&a, &b| inbox[a].arrives.total_cmp(&inbox[b].arrives))
    }

    /// Which of several receives gets a message first, and which.
    fn first_of(&self, rank: usize, wants: &[Want]) -> Option<(usize, usize)> {
        let found = wants.iter().enumerate().filter_map(|(place, want)| Some((place, self.match_of(rank, want)?)));
        found.min_by(|(_, a), (_, b)| self.inbox[rank][*a].arrives.total_cmp(&self.inbox[rank][*b].arrives))
    }

    /// When somebody acts next, if they can.
    fn next(&self, who: usize) -> Option<f64> {
        let rank = self.rank_of[who];
        match &self.standing[who] {
            Standing::At(time) => Some(*time),
            Standing::Waits | Standing::Ended => None,
            Standing::Wants(wants, time) => {
                self.first_of(rank, wants).map(|(_, i)| self.inbox[rank][i].arrives.max(*time))
            }
        }
    }

    /// Whose turn it is.
    fn turn(&self) -> Option<usize> {
        let next = (0..self.standing.len()).filter_map(|who| Some((who, self.next(who)?)));
        next.min_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(who, _)| who)
    }

    /// One more that acts for a rank from now on, in the place of one that has ended if there is
    /// one.
    fn enter(&mut self, rank: usize, now: f64) -> usize {
        let ranks = self.running.len();
        let free = (ranks..self.standing.len()).find(|&who| matches!(self.standing[who], Standing::Ended));
        let who = free.unwrap_or_else(|| {
            self.standing.push(Standing::Ended);
            self.rank_of.push(rank);
            self.wake.push(Arc::default());
            self.standing.len() - 1
        });
        (self.standing[who], self.rank_of[who]) = (Standing::At(now), rank);
        who
    }

    /// A thread of a rank has come to its end: with the last of them the rank goes on.
    fn left(&mut self, rank: usize, now: f64) {
        let (running, latest) = &mut self.running[rank];
        (*running, *latest) = (running.saturating_sub(1), latest.max(now));
        if *running == 0 && matches!(self.standing[rank], Standing::Waits) {
            self.standing[rank] = Standing::At(*latest);
        }
    }
}

struct Shared<'a> {
    model: &'a Model,
    world: Mutex<World>,
}

/// A process of the simulated machine, or a thread of one.
pub struct Sim<'a> {
    shared: &'a Shared<'a>,
    rank: usize,
    /// Which of its threads.
    thread: usize,
    /// By which it is known among all that act.
    who: usize,
    /// How often its process has had threads.
    crews: Cell<usize>,
    /// This process's time, ns.
    time: Cell<f64>,
    /// Whether it reads the kernel's clock instead of a cycle counter.
    kernel_clock: Cell<bool>,
    /// Pairs of readings made.
    pairs: Cell<u32>,
    random: RefCell<Pcg64>,
    /// Messages that count for a warm-up.
    posted: Cell<u32>,
    /// Messages sent so far.
    sent: Cell<u64>,
}

/// Runs `program` as every rank of the machine; returns what each returned, by rank.
pub fn run<T: Send>(model: &Model, program: impl Fn(&Sim<'_>) -> T + Sync) -> Vec<T> {
    let ranks = model.nodes.len();
    let world = World {
        standing: (0..ranks).map(|_| Standing::At(0.0)).collect(),
        rank_of: (0..ranks).collect(),
        wake: (0..ranks).map(|_| Arc::default()).collect(),
        running: vec![(0, 0.0); ranks],
        inbox: (0..ranks).map(|_| VecDeque::new()).collect(),
        flying: Vec::new(),
        windows: BTreeMap::new(),
        made: 0,
        failed: None,
    };
    let shared = Shared { model, world: Mutex::new(world) };
    let one = |rank: usize| {
        let sim = Sim {
            shared: &shared,
            rank,
            thread: 0,
            who: rank,
            crews: Cell::new(0),
            time: Cell::new(0.0),
            kernel_clock: Cell::new(model.kernel_clocks.contains(&rank)),
            pairs: Cell::new(0),
            random: RefCell::new(model.random(rank)),
            posted: Cell::new(0),
            sent: Cell::new(0),
        };
        // A program that panics must not leave the others waiting.
        let ended = Leaving(&sim);
        drop(sim.wait_turn(Standing::At(0.0)));
        let result = program(&sim);
        drop(ended);
        result
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..ranks).map(|rank| scope.spawn(move || one(rank))).collect();
        let results = threads.into_iter().map(|thread| thread.join());
        results.map(|r| r.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

struct Leaving<'a, 'b>(&'b Sim<'a>);

impl Drop for Leaving<'_, '_> {
    fn drop(&mut self) {
        let mut world = self.0.lock();
        world.standing[self.0.who] = Standing::Ended;
        if self.0.thread > 0 {
            world.left(self.0.rank, self.0.time.get());
        }
        self.0.pass_on(&mut world);
    }
}

impl Sim<'_> {
    /// Messages that this process has sent so far.
    #[must_use]
    pub fn messages_sent(&self) -> u64 {
        self.sent.get()
    }

    fn lock(&self) -> MutexGuard<'_, World> {
        self.shared.world.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Wakes whose turn it is; if it is nobody's while somebody waits, all fail.
    fn pass_on(&self, world: &mut World) {
        match world.turn() {
            Some(who) => world.wake[who].notify_one(),
            None if world.standing.iter().any(|s| matches!(s, Standing::Wants(..))) => {
                world.failed.get_or_insert_with(|| "every process waits for another".into());
            }
            None => {}
        }
        if world.failed.is_some() {
            world.wake.iter().for_each(|wake| wake.notify_one());
        }
    }

    /// Stands as told until it is this process's turn.
    fn wait_turn(&self, standing: Standing) -> Result<MutexGuard<'_, World>> {
        let mut world = self.lock();
        world.standing[self.who] = standing;
        if world.turn() != Some(self.who) {
            self.pass_on(&mut world);
        }
        let wake = Arc::clone(&world.wake[self.who]);
        loop {
            if let Some(cause) = &world.failed {
                return Err(BenchError::machine("simulated machine", cause));
            }
            if world.turn() == Some(self.who) {
                return Ok(world);
            }
            world = wake.wait(world).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }

    /// One more thread of this process, from now on; the `crew`th time that it has some.
    fn another(&self, thread: usize, who: usize, crew: usize) -> Sim<'_> {
        let model = self.shared.model;
        Sim {
            shared: self.shared,
            rank: self.rank,
            thread,
            who,
            crews: Cell::new(0),
            time: self.time.clone(),
            kernel_clock: self.kernel_clock.clone(),
            pairs: Cell::new(0),
            random: RefCell::new(model.random(self.rank + model.nodes.len() * (thread + crew * 1024))),
            posted: self.posted.clone(),
            sent: Cell::new(0),
        }
    }

    /// Nobody can go on any more.
    fn fail(&self, cause: &str) {
        let mut world = self.lock();
        world.failed.get_or_insert_with(|| cause.to_owned());
        self.pass_on(&mut world);
    }

    /// Stands still until all threads of this process have ended; it is as late then as the latest
    /// of them.
    fn wait_for_threads(&self) {
        let mut world = self.lock();
        let (running, latest) = world.running[self.rank];
        world.running[self.rank].1 = latest.max(self.time.get());
        let standing = if running == 0 { Standing::At(world.running[self.rank].1) } else { Standing::Waits };
        drop(world);
        if let Ok(world) = self.wait_turn(standing) {
            self.time.set(world.running[self.rank].1);
        }
    }

    fn alive(&self) -> Result<()> {
        match self.shared.model.death {
            Some((rank, at)) if rank == self.rank && self.time.get() >= at => {
                self.lock().failed.get_or_insert_with(|| format!("rank {rank} died"));
                Err(BenchError::machine("simulated machine", format!("rank {rank} died")))
            }
            _ => Ok(()),
        }
    }

    /// When a message that leaves now arrives, if it overtakes what it likes.
    fn arrival(&self, world: &mut World, to: usize, bytes: usize, now: f64) -> f64 {
        world.flying.retain(|&arrives| arrives > now);
        let (others, model) = (world.flying.len(), self.shared.model);
        let transit = model.transit_ns(&mut self.random.borrow_mut(), self.rank, to, bytes, others)
            + model.warming_ns(&self.posted, bytes)
            + model.phase_ns(now)
            + model.thread_ns * self.thread as f64;
        model.after_stalls(now + transit)
    }

    /// Works on another's memory when a message of so many bytes has come there, and waits for an
    /// answer of so many.
    fn remote<T>(
        &self,
        window: &Window<'_>,
        to: usize,
        (out, back): (usize, usize),
        work: impl FnOnce(&mut [u8]) -> T,
    ) -> Result<T> {
        if window.access == Access::Lock {
            self.there_and_back(window.members.rank(to), (0, 0), |_| Ok(()))?;
        }
        let rank = window.members.rank(to);
        let result = self.there_and_back(rank, (out, back), |world| {
            let memory = world.windows.get_mut(&(window.id, rank));
            memory.map(|memory| work(memory)).ok_or_else(|| BenchError::machine("simulated machine", "no such window"))
        })?;
        if window.access == Access::Fence {
            tree::barrier(self, &window.members)?;
        }
        Ok(result)
    }

    /// Does something when a message of so many bytes has come to `rank`, and waits for an answer
    /// of so many.
    fn there_and_back<T>(
        &self,
        rank: usize,
        (out, back): (usize, usize),
        work: impl FnOnce(&mut World) -> Result<T>,
    ) -> Result<T> {
        self.alive()?;
        let now = self.time.get();
        let mut world = self.wait_turn(Standing::At(now))?;
        let there = self.arrival(&mut world, rank, out, now);
        world.flying.push(there);
        drop(world);
        let mut world = self.wait_turn(Standing::At(there))?;
        let result = work(&mut world)?;
        let answer = self.arrival(&mut world, rank, back, there);
        world.flying.push(answer);
        self.time.set(answer);
        world.standing[self.who] = Standing::At(answer);
        drop(world);
        Ok(result)
    }

    fn post(&self, data: &[u8], to: usize, tag: Tag) -> Result<()> {
        self.alive()?;
        let now = self.time.get();
        self.sent.set(self.sent.get() + 1);
        let mut world = self.wait_turn(Standing::At(now))?;
        let model = self.shared.model;
        let arrives = self.arrival(&mut world, to, data.len(), now);
        // Messages of one sender do not overtake each other, but, where a machine has streams,
        // those of other tags.
        let bound = |m: &&Message| {
            (m.from, m.by) == (self.rank, self.thread) && (!model.streams || m.tag < TAG_MAIL || m.tag == tag)
        };
        let earlier = world.inbox[to].iter().filter(bound).map(|m| m.arrives);
        let arrives = earlier.fold(arrives, f64::max);
        world.inbox[to].push_back(Message { from: self.rank, by: self.thread, tag, arrives, data: data.to_vec() });
        world.flying.push(arrives);
        self.time.set(now + model.local_ns);
        world.standing[self.who] = Standing::At(self.time.get());
        Ok(())
    }

    fn take(&self, into: &mut [u8], from: Option<usize>, tag: Tag) -> Result<(usize, usize)> {
        let (_, message) = self.take_first(vec![Want { from, tag: Some(tag) }])?;
        let (len, room) = (message.data.len(), into.len());
        if len > room {
            let cause = format!("a message of {len} bytes from rank {} for {room} bytes", message.from);
            return Err(BenchError::machine("simulated machine", cause));
        }
        into[..len].copy_from_slice(&message.data);
        Ok((message.from, len))
    }

    /// Waits for the first message that one of these receives takes; which, and the message.
    fn take_first(&self, wants: Vec<Want>) -> Result<(usize, Message)> {
        self.alive()?;
        let mut world = self.wait_turn(Standing::Wants(wants.clone(), self.time.get()))?;
        let found = world.first_of(self.rank, &wants);
        let found = found.and_then(|(place, i)| Some((place, world.inbox[self.rank].remove(i)?)));
        let Some((place, message)) = found else { return Err(BenchError::machine("simulated machine", "no message")) };
        self.time.set(self.time.get().max(message.arrives));
        world.standing[self.who] = Standing::At(self.time.get());
        Ok((place, message))
    }
}

/// Mail: receives are looked at when their rank waits for one of them.
struct Posted<'m, 'a> {
    sim: &'m Sim<'a>,
    members: &'m Members,
    room: usize,
    /// The places that are posted, the first posted first, and what they take.
    order: Vec<(usize, Want)>,
    /// What came last, by place.
    memory: Vec<Vec<u8>>,
}

impl<'d> Mail<'d> for Posted<'_, '_> {
    fn send(&mut self, data: &'d [u8], to: usize, tag: Tag) -> Result<()> {
        self.sim.post(data, self.members.rank(to), TAG_MAIL + tag)
    }

    fn post(&mut self, place: usize, from: Option<usize>, tag: Option<Tag>) -> Result<()> {
        if place >= self.memory.len() || self.order.iter().any(|(posted, _)| *posted == place) {
            return Err(BenchError::machine("simulated machine", "a receive at a place that is not free"));
        }
        let from = from.map(|from| self.members.rank(from));
        self.order.push((place, Want { from, tag: tag.map(|tag| TAG_MAIL + tag) }));
        Ok(())
    }

    fn next(&mut self) -> Result<Landed> {
        let (which, message) = self.sim.take_first(self.order.iter().map(|(_, want)| *want).collect())?;
        let (place, _) = self.order.remove(which);
        let bytes = message.data.len();
        if bytes > self.room {
            let cause = format!("a message of {bytes} bytes for {} bytes", self.room);
            return Err(BenchError::machine("simulated machine", cause));
        }
        let from = (0..self.members.count()).find(|of| self.members.rank(*of) == message.from).unwrap_or_default();
        self.memory[place] = message.data;
        Ok(Landed { place, tag: message.tag & (MAIL_TAGS - 1), from, bytes })
    }

    fn memory(&self, place: usize) -> &[u8] {
        &self.memory[place]
    }

    fn spin_until(&mut self, until: u64) -> Result<u64> {
        Ok(self.sim.spin_until(until))
    }
}

/// Memory that others reach without its rank's doing.
pub struct Window<'a> {
    shared: &'a Shared<'a>,
    id: u64,
    rank: usize,
    members: Members,
    access: Access,
}

impl Drop for Window<'_> {
    fn drop(&mut self) {
        let mut world = self.shared.world.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        world.windows.remove(&(self.id, self.rank));
    }
}

/// The place of what is reached, if the window has it.
fn within(memory: &mut [u8], len: usize) -> Result<&mut [u8]> {
    let room = memory.len();
    memory
        .get_mut(..len)
        .ok_or_else(|| BenchError::machine("simulated machine", format!("{len} bytes of a window that has {room}")))
}

impl Messages for Sim<'_> {
    fn ticks(&self) -> u64 {
        let model = self.shared.model;
        let clock = model.clock(self.rank);
        self.time.set(self.time.get() + model.reading_ns);
        (model.ticks_per_ns * (1.0 + clock.drift) * (self.time.get() + clock.offset_ns)) as u64
    }

    fn send(&self, data: &[u8], to: usize, tag: Tag) -> Result<()> {
        self.post(data, to, tag)
    }

    fn recv(&self, into: &mut [u8], from: usize, tag: Tag) -> Result<()> {
        let len = self.take(into, Some(from), tag)?.1;
        if len == into.len() {
            return Ok(());
        }
        let cause = format!("a message of {len} bytes from rank {from}, {} were expected", into.len());
        Err(BenchError::machine("simulated machine", cause))
    }

    fn sendrecv(&self, data: &[u8], to: usize, into: &mut [u8], from: usize, tag: Tag) -> Result<()> {
        self.post(data, to, tag)?;
        self.recv(into, from, tag)
    }

    fn send_window(&self, data: &[u8], count: usize, to: usize, tag: Tag) -> Result<()> {
        let each = data.len() / count.max(1);
        (0..count).try_for_each(|i| self.post(&data[i * each..(i + 1) * each], to, tag))
    }

    fn recv_window(&self, into: &mut [u8], count: usize, from: usize, tag: Tag) -> Result<()> {
        let each = into.len() / count.max(1);
        (0..count).try_for_each(|i| self.recv(&mut into[i * each..(i + 1) * each], from, tag))
    }

    fn processor(&self) -> Option<u32> {
        Some(self.shared.model.processor(self.rank, self.time.get()))
    }
}

impl<'a> Machine for Sim<'a> {
    type Group = Members;
    type Blocks = Vec<usize>;
    type Window = Window<'a>;
    type Persistent<'b> = Again<'b>;

    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.shared.model.nodes.len()
    }

    fn spin_until(&self, until: u64) -> u64 {
        let (model, clock) = (self.shared.model, self.shared.model.clock(self.rank));
        // The last reading is made early enough that the time when it is over is the one wanted.
        let wanted = until as f64 / (model.ticks_per_ns * (1.0 + clock.drift)) - clock.offset_ns - model.reading_ns;
        self.time.set(self.time.get().max(wanted));
        loop {
            let now = self.ticks();
            if now >= until {
                return now;
            }
        }
    }

    fn tick_pair(&self) -> TickPair {
        let before = self.ticks();
        let after = self.ticks();
        // The node's own clock is as wrong as its counter: nobody can tell but by messages.
        let middle = before + (after - before) / 2;
        let model = self.shared.model;
        let given_up = self.kernel_clock.get() && !model.kernel_clocks.contains(&self.rank);
        let jumps = model.unsteady.contains(&self.rank) && !given_up;
        self.pairs.set(self.pairs.get() + 1);
        // Tens of milliseconds to and fro.
        let jump_ns = if jumps { i64::from(self.pairs.get() / 7 % 3) * 20_000_000 } else { 0 };
        TickPair { before, monotonic_ns: (middle as f64 / model.ticks_per_ns) as i64 + jump_ns, after }
    }

    fn pause(&self, ns: u64) {
        self.time.set(self.time.get() + ns as f64);
    }

    fn distrust_counter(&self) -> bool {
        !self.kernel_clock.replace(true)
    }

    fn clock_source(&self) -> &'static str {
        if self.kernel_clock.get() { "monotonic-raw" } else { "virtual" }
    }

    fn recv_any(&self, into: &mut [u8], tag: Tag) -> Result<usize> {
        Ok(self.take(into, None, tag)?.0)
    }

    fn arrived(&self, from: usize, tag: Tag) -> Result<bool> {
        self.alive()?;
        // Looking takes time, so that who looks again and again comes to the time when something is
        // there.
        self.time.set(self.time.get() + self.shared.model.reading_ns.max(1.0));
        let now = self.time.get();
        let world = self.wait_turn(Standing::At(now))?;
        let found = world.match_of(self.rank, &Want { from: Some(from), tag: Some(tag) });
        Ok(found.is_some_and(|i| world.inbox[self.rank][i].arrives <= now))
    }

    fn isend_wait(&self, data: &[u8], to: usize, tag: Tag) -> Result<()> {
        self.post(data, to, tag)
    }

    fn duplex(&self, data: &[u8], into: &mut [u8], peer: usize, tag: Tag) -> Result<u64> {
        self.post(data, peer, tag)?;
        self.recv(into, peer, tag)?;
        Ok(self.ticks())
    }

    fn lacks_threads(&self) -> Option<String> {
        self.shared.model.no_threads.then(|| "this machine has one thread for each rank".into())
    }

    fn threads<W: Work>(
        &self,
        work: &W,
        mut seats: Vec<W::Seat>,
        _: Apart,
        _: usize,
        look: Look<'_>,
    ) -> Result<Vec<W::Out>> {
        if seats.is_empty() {
            return Ok(Vec::new());
        }
        let own = seats.remove(0);
        let now = self.time.get();
        let mut world = self.wait_turn(Standing::At(now))?;
        world.running[self.rank] = (seats.len(), now);
        let others: Vec<usize> = seats.iter().map(|_| world.enter(self.rank, now)).collect();
        drop(world);
        let crew = self.crews.replace(self.crews.get() + 1);
        // Made before any of them runs: they begin as this thread stands now.
        let others: Vec<Sim<'_>> = (1..).zip(others).map(|(thread, who)| self.another(thread, who, crew)).collect();
        let one = |sim: Sim<'_>, seat: W::Seat| {
            let ended = Leaving(&sim);
            drop(sim.wait_turn(Standing::At(now)));
            let result = work.run(&sim, seat, None);
            if let Err(error) = &result {
                sim.fail(&error.to_string());
            }
            drop(ended);
            (result, sim.sent.get())
        };
        let one = &one;
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                others.into_iter().zip(seats).map(|(sim, seat)| scope.spawn(move || one(sim, seat))).collect();
            let result = work.run(self, own, Some(look));
            if let Err(error) = &result {
                self.fail(&error.to_string());
            }
            self.wait_for_threads();
            let mut left = vec![result];
            for thread in threads {
                let (result, sent) = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                self.sent.set(self.sent.get() + sent);
                left.push(result);
            }
            left.into_iter().collect()
        })
    }

    fn exchange_meanwhile(
        &self,
        out: &[u8],
        sends: &[Leg],
        into: &mut [u8],
        receives: &[Leg],
        tag: Tag,
        meanwhile: impl FnOnce(),
    ) -> Result<()> {
        let short = || BenchError::machine("simulated machine", "a buffer is shorter than its messages");
        for leg in sends {
            self.post(out.get(..leg.bytes).ok_or_else(short)?, leg.peer, tag)?;
        }
        meanwhile();
        let mut rest = into;
        for leg in receives {
            let (one, others) = rest.split_at_mut_checked(leg.bytes).ok_or_else(short)?;
            self.recv(one, leg.peer, tag)?;
            rest = others;
        }
        Ok(())
    }

    fn mail<'d, T>(&self, group: &Members, room: Room, work: impl FnOnce(&mut dyn Mail<'d>) -> Result<T>) -> Result<T> {
        let memory = vec![Vec::new(); room.places];
        work(&mut Posted { sim: self, members: group, room: room.bytes, order: Vec::new(), memory })
    }

    fn window(&self, group: &Members, bytes: usize, access: Access) -> Result<Window<'a>> {
        let mut id = [0; 8];
        if group.own() == 0 {
            let mut world = self.lock();
            world.made += 1;
            id = world.made.to_le_bytes();
        }
        tree::bcast(self, group, &mut id)?;
        let id = u64::from_le_bytes(id);
        self.lock().windows.insert((id, self.rank), vec![0; bytes]);
        // Nobody reaches what is not there yet.
        tree::barrier(self, group)?;
        Ok(Window { shared: self.shared, id, rank: self.rank, members: group.clone(), access })
    }

    fn put(&self, window: &Window<'a>, data: &[u8], to: usize) -> Result<()> {
        self.remote(window, to, (data.len(), 0), |memory| {
            within(memory, data.len())?.copy_from_slice(data);
            Ok(())
        })?
    }

    fn get(&self, window: &Window<'a>, into: &mut [u8], from: usize) -> Result<()> {
        self.remote(window, from, (0, into.len()), |memory| {
            into.copy_from_slice(within(memory, into.len())?);
            Ok(())
        })?
    }

    fn accumulate(&self, window: &Window<'a>, data: &[f64], to: usize) -> Result<()> {
        self.remote(window, to, (8 * data.len(), 0), |memory| {
            for (place, number) in within(memory, 8 * data.len())?.chunks_exact_mut(8).zip(data) {
                let held = place.first_chunk().map_or(0.0, |bytes| f64::from_ne_bytes(*bytes));
                place.copy_from_slice(&(held + number).to_ne_bytes());
            }
            Ok(())
        })?
    }

    fn fetch_add(&self, window: &Window<'a>, number: i64, to: usize) -> Result<i64> {
        self.remote(window, to, (8, 8), |memory| {
            let place = within(memory, 8)?;
            let held = place.first_chunk().map_or(0, |bytes| i64::from_ne_bytes(*bytes));
            place.copy_from_slice(&held.wrapping_add(number).to_ne_bytes());
            Ok(held)
        })?
    }

    fn fence(&self, window: &Window<'a>) -> Result<()> {
        tree::barrier(self, &window.members)
    }

    fn look(&self, window: &Window<'a>, into: &mut [u8]) -> Result<()> {
        let mut world = self.wait_turn(Standing::At(self.time.get()))?;
        let memory = world.windows.get_mut(&(window.id, self.rank));
        let memory = memory.ok_or_else(|| BenchError::machine("simulated machine", "no such window"))?;
        into.copy_from_slice(within(memory, into.len())?);
        Ok(())
    }

    tree::collectives!();

    fn abort(&self, _code: i32) {
        self.fail(&format!("rank {} ended the job", self.rank));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::TAG_DATA;

    #[test]
    fn a_message_takes_what_was_planted_and_clocks_show_what_they_should() {
        let model = Model {
            shape: Shape::Constant,
            reading_ns: 0.0,
            clocks: vec![Wrong { offset_ns: 0.0, drift: 0.0 }, Wrong { offset_ns: 5000.0, drift: 1e-3 }],
            ..Model::plain(2)
        };
        let ticks = run(&model, |m| {
            if m.rank() == 0 {
                m.send(&[7; 100], 1, TAG_DATA).unwrap();
            } else {
                let mut into = [0; 100];
                m.recv(&mut into, 0, TAG_DATA).unwrap();
                assert_eq!(into, [7; 100]);
            }
            m.ticks()
        });
        assert_eq!(ticks, [500, ((10_000.0 + 10.0 + 5000.0) * 1.001) as u64]);
    }

    #[test]
    fn who_receives_from_anybody_gets_what_arrives_first() {
        let model = Model { shape: Shape::Constant, nodes: vec![0, 0, 1], ..Model::plain(3) };
        let order = run(&model, |m| {
            if m.rank() != 0 {
                m.spin_until(if m.rank() == 1 { 5000 } else { 0 });
                m.send(&[0], 0, TAG_DATA).unwrap();
                return Vec::new();
            }
            (0..2).map(|_| m.recv_any(&mut [0], TAG_DATA).unwrap()).collect()
        });
        // Rank 1 sends later, but is on the same node.
        assert_eq!(order[0], [1, 2]);
    }

    #[test]
    fn a_circle_of_waiting_fails_instead_of_hanging() {
        let results = run(&Model::plain(2), |m| m.recv(&mut [0], 1 - m.rank(), TAG_DATA));
        assert!(results.iter().all(|r| r.as_ref().is_err_and(|e| e.to_string().contains("waits for another"))));
    }

    #[test]
    fn collectives_move_what_they_should() {
        for n in [1, 2, 3, 5, 8] {
            run(&Model::plain(n), |m| {
                let all: Vec<usize> = (0..n).collect();
                let g = m.group(&all).unwrap().unwrap();
                let own = m.rank() as u8;
                m.barrier(&g).unwrap();
                let mut data = [if own == 0 { 42 } else { 0 }; 5];
                m.bcast(&g, &mut data).unwrap();
                assert_eq!(data, [42; 5]);
                let mut into = vec![0; 3 * n];
                m.allgather(&g, &[own; 3], &mut into).unwrap();
                let expected: Vec<u8> = (0..n as u8).flat_map(|r| [r; 3]).collect();
                assert_eq!(into, expected);
                let mut gathered = vec![0; 3 * n];
                m.gather(&g, &[own; 3], &mut gathered).unwrap();
                assert!(own != 0 || gathered == expected);
                let mut piece = [0; 3];
                m.scatter(&g, &expected, &mut piece).unwrap();
                assert_eq!(piece, [own; 3]);
                let out: Vec<u8> = (0..n as u8).map(|to| own * 16 + to).collect();
                let mut back = vec![0; n];
                m.alltoall(&g, &out, &mut back).unwrap();
                assert_eq!(back, (0..n as u8).map(|from| from * 16 + own).collect::<Vec<_>>());
                let mut sum = [0.0; 3];
                m.allreduce(&g, &[f64::from(own) + 1.0; 3], &mut sum).unwrap();
                assert_eq!(sum, [(n * (n + 1) / 2) as f64; 3]);
                let mut sum = [0.0; 2];
                m.reduce(&g, &[1.5, 2.0], &mut sum).unwrap();
                assert!(own != 0 || sum == [1.5 * n as f64, 2.0 * n as f64]);
            });
        }
    }

    #[test]
    fn what_is_done_to_others_memory_is_done_there_and_takes_there_and_back() {
        let model = Model { shape: Shape::Constant, reading_ns: 0.0, byte_ns: 1.0, ..Model::plain(3) };
        for access in [Access::Flush, Access::Fence, Access::Lock] {
            run(&model, |m| {
                let g = m.group(&[0, 1, 2]).unwrap().unwrap();
                let window = m.window(&g, 16, access).unwrap();
                let took = |what: &dyn Fn() -> Result<()>| {
                    m.barrier(&g).unwrap();
                    let begun = m.ticks();
                    if m.rank() == 0 {
                        what().unwrap();
                        return m.ticks() - begun;
                    }
                    if access == Access::Fence {
                        m.fence(&window).unwrap();
                    }
                    0
                };
                let flushed = m.rank() == 0 && access == Access::Flush;
                let (out, back) = (took(&|| m.put(&window, &[7; 16], 2)), took(&|| m.get(&window, &mut [0; 4], 2)));
                assert!(!flushed || (out, back) == (20_016, 20_004), "{out} {back}");
                took(&|| {
                    let mut held = [0; 16];
                    m.get(&window, &mut held, 2)?;
                    assert_eq!(held, [7; 16]);
                    Ok(())
                });
                let seven = i64::from_ne_bytes([7; 8]);
                let add = |number: i64, held: i64| {
                    took(&|| {
                        assert_eq!(m.fetch_add(&window, number, 2)?, held);
                        Ok(())
                    })
                };
                add(3, seven);
                add(0, seven + 3);
                took(&|| m.put(&window, &2.5f64.to_ne_bytes(), 1));
                took(&|| m.accumulate(&window, &[0.25, 1.0], 1));
                m.barrier(&g).unwrap();
                let mut own = [0; 16];
                m.look(&window, &mut own).unwrap();
                let floats = [own[..8].first_chunk(), own[8..].first_chunk()].map(|b| f64::from_ne_bytes(*b.unwrap()));
                assert!(m.rank() != 1 || floats == [2.75, 1.0], "{floats:?}");
                assert!(m.rank() != 0 || own == [0; 16]);
                let beyond = took(&|| {
                    assert!(m.put(&window, &[0; 17], 2).is_err());
                    Ok(())
                });
                assert!(beyond > 0 || m.rank() != 0);
                // The window is there until all are done.
                m.barrier(&g).unwrap();
            });
        }
    }

    #[test]
    fn several_messages_are_exchanged_at_once() {
        run(&Model::plain(3), |m| {
            let (next, before) = ((m.rank() + 1) % 3, (m.rank() + 2) % 3);
            let out: Vec<u8> = (0..9).map(|i| 10 * m.rank() as u8 + i).collect();
            let leg = |peer, bytes| Leg { peer, bytes };
            let mut into = [0; 14];
            let sends = [leg(next, 9), leg(before, 3), leg(next, 2)];
            let receives = [leg(before, 9), leg(next, 3), leg(before, 2)];
            m.exchange_all(&out, &sends, &mut into, &receives, TAG_DATA).unwrap();
            let of = |rank: usize, len: u8| (0..len).map(move |i| 10 * rank as u8 + i);
            assert_eq!(into.to_vec(), of(before, 9).chain(of(next, 3)).chain(of(before, 2)).collect::<Vec<_>>());
        });
    }

    #[test]
    fn the_same_seed_gives_the_same_run() {
        let program = |m: &Sim<'_>| {
            for _ in 0..50 {
                let peer = 1 - m.rank();
                m.sendrecv(&[0; 8], peer, &mut [0; 8], peer, TAG_DATA).unwrap();
            }
            m.ticks()
        };
        let one = run(&Model::plain(2), program);
        assert_eq!(one, run(&Model::plain(2), program));
        assert_ne!(one, run(&Model { seed: 2, ..Model::plain(2) }, program));
    }
}

//! Any MPI library, by `weir-mpi`.

use std::cell::{Cell, RefCell};
use std::path::Path;

use weir_clock::TickPair;
use weir_mpi::{
    Blocks, Communicator, Inbox, Level, Mpi, Persistent, Reduction, Requests, Scope, Source, Status, ThreadWork, Window,
};

use super::{Apart, Landed, Look, Machine, Mail, Messages, Room, Tag, Work};
use crate::error::{BenchError, Result};
use crate::exchange::{Access, Leg};
use crate::sys::{affinity, carried, counter, process};

/// Operations at once: a window of messages, and some.
const REQUESTS: usize = 65_536 + 16;
/// When so many sends of mail are pending it is looked which of them are over; twice as many from
/// then on, if more than half are not.
const LOOKED_AT: usize = 256;

impl From<weir_mpi::Error> for BenchError {
    fn from(error: weir_mpi::Error) -> Self {
        BenchError::machine("MPI", error)
    }
}

/// A rank of an MPI job.
pub struct MpiMachine {
    mpi: Mpi,
    world: Communicator,
    requests: RefCell<Requests>,
    source: Cell<counter::Source>,
    /// Communicators of threads, those that were ever needed.
    lines: RefCell<Vec<Communicator>>,
    /// The Weir provider, once the library has loaded it.
    provider: Cell<Option<carried::Provider>>,
}

impl MpiMachine {
    /// Loads and initialises the launcher's MPI, or the one named, so that several threads may call
    /// it if they shall.
    ///
    /// # Errors
    /// [`BenchError::Machine`], with what `weir-mpi` says.
    pub fn load(library: Option<&Path>, threads: bool) -> Result<MpiMachine> {
        let level = if threads { Level::Multiple } else { Level::Funneled };
        let mpi = Mpi::load_at(&weir_job::Env::from_process(), library, level)?;
        let world = mpi.world()?;
        // A table as large as a window is made for those who need it.
        let requests = RefCell::new(mpi.requests(REQUESTS));
        Ok(MpiMachine {
            mpi,
            world,
            requests,
            source: Cell::new(counter::Source::best()),
            lines: RefCell::default(),
            provider: Cell::new(None),
        })
    }

    /// The library.
    #[must_use]
    pub fn mpi(&self) -> &Mpi {
        &self.mpi
    }

    /// Ends MPI in good order.
    ///
    /// # Errors
    /// MPI's.
    pub fn finish(self) -> Result<()> {
        drop(self.requests);
        drop(self.lines);
        drop(self.world);
        Ok(self.mpi.finalize()?)
    }
}

fn too_short() -> BenchError {
    BenchError::machine("MPI", "a buffer is shorter than its messages")
}

fn send_window(
    via: &Communicator,
    requests: &mut Requests,
    data: &[u8],
    count: usize,
    (to, tag): (usize, Tag),
) -> Result<()> {
    let each = data.len() / count.max(1);
    requests.scope(|scope| {
        let mut rest = data;
        for _ in 0..count {
            let (one, others) = rest.split_at(each);
            let _ = scope.send(via, one, to, tag.into())?;
            rest = others;
        }
        Ok(scope.wait_all()?)
    })
}

fn recv_window(
    via: &Communicator,
    requests: &mut Requests,
    into: &mut [u8],
    count: usize,
    (from, tag): (usize, Tag),
) -> Result<()> {
    let each = into.len() / count.max(1);
    requests.scope(|scope| {
        let mut rest = into;
        for _ in 0..count {
            let (one, others) = rest.split_at_mut(each);
            let _ = scope.receive(via, one, from, i32::from(tag))?;
            rest = others;
        }
        Ok(scope.wait_all()?)
    })
}

/// Mail by a group's communicator, by which nobody else sends.
struct ByGroup<'m, 'table, 'a> {
    machine: &'m MpiMachine,
    group: &'m Communicator,
    sends: &'m mut Scope<'table, 'a>,
    inbox: Inbox<'m>,
    looked_at: usize,
}

/// What a receive of mail takes.
fn selected(from: Option<usize>, tag: Option<Tag>) -> (Source, weir_mpi::Tag) {
    let tag = tag.map_or(weir_mpi::Tag::Any, |tag| weir_mpi::Tag::Is(tag.into()));
    (from.map_or(Source::Any, Source::Rank), tag)
}

fn landed(place: usize, status: &Status) -> Result<Landed> {
    Ok(Landed { place, tag: status.tag() as Tag, from: status.source(), bytes: status.bytes()? })
}

impl ByGroup<'_, '_, '_> {
    /// Gives up the places of sends that are over; waits while there is none for another.
    fn make_room(&mut self) -> Result<()> {
        self.sends.test_some()?;
        if self.sends.pending() > self.looked_at / 2 {
            self.looked_at = (2 * self.looked_at).min(REQUESTS);
        }
        while self.sends.pending() == REQUESTS {
            self.sends.test_some()?;
        }
        Ok(())
    }
}

impl<'a> Mail<'a> for ByGroup<'_, '_, 'a> {
    fn send(&mut self, data: &'a [u8], to: usize, tag: Tag) -> Result<()> {
        if self.sends.pending() >= self.looked_at {
            self.make_room()?;
        }
        let _ = self.sends.send(self.group, data, to, tag.into())?;
        Ok(())
    }

    fn post(&mut self, place: usize, from: Option<usize>, tag: Option<Tag>) -> Result<()> {
        let (source, tag) = selected(from, tag);
        Ok(self.inbox.post(place, source, tag)?)
    }

    fn next(&mut self) -> Result<Landed> {
        let (place, status) = self.inbox.wait_any()?;
        landed(place, &status)
    }

    fn receive(&mut self, place: usize, from: Option<usize>, tag: Option<Tag>) -> Result<Landed> {
        let (source, tag) = selected(from, tag);
        landed(place, &self.inbox.receive(place, source, tag)?)
    }

    fn memory(&self, place: usize) -> &[u8] {
        self.inbox.memory(place)
    }

    fn spin_until(&mut self, until: u64) -> Result<u64> {
        loop {
            let now = self.machine.ticks();
            if now >= until {
                return Ok(now);
            }
            self.sends.test_all()?;
        }
    }
}

/// What sends by a communicator, with requests of its own: a rank, or one of its threads.
trait OnLine {
    fn line(&self) -> &Communicator;
    fn with_requests<T>(&self, act: impl FnOnce(&mut Requests) -> T) -> T;
    fn source(&self) -> counter::Source;
}

impl<T: OnLine> Messages for T {
    #[inline(always)]
    fn ticks(&self) -> u64 {
        self.source().read()
    }

    fn processor(&self) -> Option<u32> {
        affinity::current()
    }

    #[inline]
    fn send(&self, data: &[u8], to: usize, tag: Tag) -> Result<()> {
        Ok(self.line().send(data, to, tag.into())?)
    }

    #[inline]
    fn recv(&self, into: &mut [u8], from: usize, tag: Tag) -> Result<()> {
        self.line().receive(into, from, i32::from(tag))?;
        Ok(())
    }

    #[inline]
    fn sendrecv(&self, data: &[u8], to: usize, into: &mut [u8], from: usize, tag: Tag) -> Result<()> {
        let tag = i32::from(tag);
        self.line().send_receive((data, to, tag), (into, Source::Rank(from), tag.into()))?;
        Ok(())
    }

    fn send_window(&self, data: &[u8], count: usize, to: usize, tag: Tag) -> Result<()> {
        self.with_requests(|requests| send_window(self.line(), requests, data, count, (to, tag)))
    }

    fn recv_window(&self, into: &mut [u8], count: usize, from: usize, tag: Tag) -> Result<()> {
        self.with_requests(|requests| recv_window(self.line(), requests, into, count, (from, tag)))
    }
}

/// One of a rank's threads.
struct Thread<'a> {
    line: &'a Communicator,
    requests: RefCell<&'a mut Requests>,
    source: counter::Source,
}

impl OnLine for Thread<'_> {
    #[inline(always)]
    fn line(&self) -> &Communicator {
        self.line
    }

    fn with_requests<T>(&self, act: impl FnOnce(&mut Requests) -> T) -> T {
        act(&mut self.requests.borrow_mut())
    }

    #[inline(always)]
    fn source(&self) -> counter::Source {
        self.source
    }
}

/// The work of threads that may fail: then the job ends, as the others would wait for ever.
struct Running<'w, W> {
    work: &'w W,
    source: counter::Source,
}

impl<W: Work> Running<'_, W> {
    fn go(&self, line: &Communicator, requests: &mut Requests, seat: W::Seat, look: Option<Look<'_>>) -> W::Out {
        let thread = Thread { line, requests: RefCell::new(requests), source: self.source };
        self.work.run(&thread, seat, look).unwrap_or_else(|error| {
            weir_put::tell!("weir bench: rank {}: a thread: {error}", line.rank());
            line.abort(1)
        })
    }
}

impl<W: Work> ThreadWork for Running<'_, W> {
    type Seat = W::Seat;
    type Out = W::Out;

    fn run(&self, line: &Communicator, requests: &mut Requests, seat: W::Seat) -> W::Out {
        self.go(line, requests, seat, None)
    }
}

impl OnLine for MpiMachine {
    #[inline(always)]
    fn line(&self) -> &Communicator {
        &self.world
    }

    fn with_requests<T>(&self, act: impl FnOnce(&mut Requests) -> T) -> T {
        act(&mut self.requests.borrow_mut())
    }

    #[inline(always)]
    fn source(&self) -> counter::Source {
        self.source.get()
    }
}

impl Machine for MpiMachine {
    type Group = Communicator;
    type Blocks = Blocks;
    type Window = Window;
    type Persistent<'b> = Persistent<'b>;

    #[inline]
    fn rank(&self) -> usize {
        self.world.rank()
    }

    #[inline]
    fn size(&self) -> usize {
        self.world.size()
    }

    fn tick_pair(&self) -> TickPair {
        self.source.get().pair()
    }

    fn pause(&self, ns: u64) {
        std::thread::sleep(std::time::Duration::from_nanos(ns));
    }

    fn distrust_counter(&self) -> bool {
        self.source.replace(counter::Source::MonotonicRaw) == counter::Source::Tsc
    }

    fn clock_source(&self) -> &'static str {
        self.source.get().name()
    }

    fn most_bytes(&self) -> u64 {
        i32::MAX as u64
    }

    fn recv_any(&self, into: &mut [u8], tag: Tag) -> Result<usize> {
        Ok(self.world.receive(into, Source::Any, i32::from(tag))?.source())
    }

    fn arrived(&self, from: usize, tag: Tag) -> Result<bool> {
        Ok(self.world.probe_now(from, i32::from(tag))?.is_some())
    }

    #[inline]
    fn isend_wait(&self, data: &[u8], to: usize, tag: Tag) -> Result<()> {
        self.requests.borrow_mut().scope(|scope| {
            let request = scope.send(&self.world, data, to, tag.into())?;
            scope.wait(request)?;
            Ok(())
        })
    }

    #[inline]
    fn duplex(&self, data: &[u8], into: &mut [u8], peer: usize, tag: Tag) -> Result<u64> {
        self.requests.borrow_mut().scope(|scope| {
            let request = scope.send(&self.world, data, peer, tag.into())?;
            self.world.receive(into, peer, i32::from(tag))?;
            let now = self.ticks();
            scope.wait(request)?;
            Ok(now)
        })
    }

    fn lacks_threads(&self) -> Option<String> {
        (self.mpi.level() < Level::Multiple).then(|| self.mpi.refuses_threads().to_string())
    }

    fn make_threads(&self, count: usize, apart: Apart) -> Result<()> {
        let mut lines = self.lines.borrow_mut();
        while apart == Apart::Communicator && lines.len() < count {
            lines.push(self.world.duplicate()?);
        }
        Ok(())
    }

    fn threads<W: Work>(
        &self,
        work: &W,
        mut seats: Vec<W::Seat>,
        apart: Apart,
        window: usize,
        look: Look<'_>,
    ) -> Result<Vec<W::Out>> {
        if seats.is_empty() {
            return Ok(Vec::new());
        }
        let own = seats.remove(0);
        let lines = self.lines.borrow();
        let all: Vec<&Communicator> = match apart {
            Apart::Communicator => lines.iter().collect(),
            Apart::Tag => vec![&self.world; seats.len() + 1],
        };
        let running = Running { work, source: self.source.get() };
        let first = |line: &Communicator, requests: &mut Requests| running.go(line, requests, own, Some(look));
        Ok(self.mpi.threads(&running, &all, window + 1, seats, first)?)
    }

    #[inline]
    fn exchange_meanwhile(
        &self,
        out: &[u8],
        sends: &[Leg],
        into: &mut [u8],
        receives: &[Leg],
        tag: Tag,
        meanwhile: impl FnOnce(),
    ) -> Result<()> {
        let tag = i32::from(tag);
        self.requests.borrow_mut().scope(|scope| {
            let mut rest = into;
            for leg in receives {
                let (one, others) = rest.split_at_mut_checked(leg.bytes).ok_or_else(too_short)?;
                let _ = scope.receive(&self.world, one, leg.peer, tag)?;
                rest = others;
            }
            for leg in sends {
                let data = out.get(..leg.bytes).ok_or_else(too_short)?;
                let _ = scope.send(&self.world, data, leg.peer, tag)?;
            }
            meanwhile();
            Ok(scope.wait_all()?)
        })
    }

    fn mail<'a, T>(
        &self,
        group: &Communicator,
        room: Room,
        work: impl FnOnce(&mut dyn Mail<'a>) -> Result<T>,
    ) -> Result<T> {
        self.requests.borrow_mut().scope(|sends| {
            let inbox = group.inbox(room.places, room.bytes)?;
            work(&mut ByGroup { machine: self, group, sends, inbox, looked_at: LOOKED_AT })
        })
    }

    fn persistent<'b>(&self, out: &'b [u8], into: &'b mut [u8], peer: usize, tag: Tag) -> Result<Persistent<'b>> {
        Ok(self.world.persistent((out, peer, tag.into()), (into, peer))?)
    }

    #[inline]
    fn start_and_wait(&self, exchange: &mut Persistent<'_>) -> Result<()> {
        Ok(exchange.exchange()?)
    }

    fn group(&self, members: &[usize]) -> Result<Option<Communicator>> {
        let member = members.contains(&self.rank());
        Ok(self.world.split(member.then_some(0), 0)?)
    }

    #[inline]
    fn barrier(&self, group: &Communicator) -> Result<()> {
        Ok(group.barrier()?)
    }

    #[inline]
    fn bcast(&self, group: &Communicator, data: &mut [u8]) -> Result<()> {
        Ok(group.broadcast(data, 0)?)
    }

    #[inline]
    fn gather(&self, group: &Communicator, data: &[u8], into: &mut [u8]) -> Result<()> {
        Ok(group.gather(data, into, 0)?)
    }

    #[inline]
    fn scatter(&self, group: &Communicator, data: &[u8], into: &mut [u8]) -> Result<()> {
        Ok(group.scatter(data, into, 0)?)
    }

    #[inline]
    fn allgather(&self, group: &Communicator, data: &[u8], into: &mut [u8]) -> Result<()> {
        Ok(group.all_gather(data, into)?)
    }

    #[inline]
    fn alltoall(&self, group: &Communicator, data: &[u8], into: &mut [u8]) -> Result<()> {
        Ok(group.all_to_all(data, into)?)
    }

    #[inline]
    fn reduce(&self, group: &Communicator, data: &[f64], into: &mut [f64]) -> Result<()> {
        Ok(group.reduce(data, into, Reduction::Sum, 0)?)
    }

    #[inline]
    fn allreduce(&self, group: &Communicator, data: &[f64], into: &mut [f64]) -> Result<()> {
        Ok(group.all_reduce(data, into, Reduction::Sum)?)
    }

    fn blocks(&self, lengths: &[usize]) -> Result<Blocks> {
        Ok(Blocks::new(lengths)?)
    }

    #[inline]
    fn gatherv(&self, group: &Communicator, data: &[u8], into: &mut [u8], blocks: &Blocks) -> Result<()> {
        Ok(group.gather_blocks(data, into, blocks, 0)?)
    }

    #[inline]
    fn scatterv(&self, group: &Communicator, data: &[u8], into: &mut [u8], blocks: &Blocks) -> Result<()> {
        Ok(group.scatter_blocks(data, into, blocks, 0)?)
    }

    #[inline]
    fn allgatherv(&self, group: &Communicator, data: &[u8], into: &mut [u8], blocks: &Blocks) -> Result<()> {
        Ok(group.all_gather_blocks(data, into, blocks)?)
    }

    #[inline]
    fn alltoallv(&self, group: &Communicator, data: &[u8], into: &mut [u8], blocks: &Blocks) -> Result<()> {
        Ok(group.all_to_all_blocks((data, blocks), (into, blocks))?)
    }

    #[inline]
    fn reduce_scatter(&self, group: &Communicator, data: &[f64], into: &mut [f64], blocks: &Blocks) -> Result<()> {
        Ok(group.reduce_scatter(data, into, blocks, Reduction::Sum)?)
    }

    #[inline]
    fn scan(&self, group: &Communicator, data: &[f64], into: &mut [f64]) -> Result<()> {
        Ok(group.scan(data, into, Reduction::Sum)?)
    }

    #[inline]
    fn exscan(&self, group: &Communicator, data: &[f64], into: &mut [f64]) -> Result<()> {
        Ok(group.scan_below(data, into, Reduction::Sum)?)
    }

    #[inline]
    fn ibarrier(&self, group: &Communicator) -> Result<()> {
        Ok(group.barrier_begun()?)
    }

    #[inline]
    fn iallreduce(&self, group: &Communicator, data: &[f64], into: &mut [f64]) -> Result<()> {
        Ok(group.all_reduce_begun(data, into, Reduction::Sum)?)
    }

    fn window(&self, group: &Communicator, bytes: usize, access: Access) -> Result<Window> {
        let access = match access {
            Access::Flush => weir_mpi::Access::Flush,
            Access::Fence => weir_mpi::Access::Fence,
            Access::Lock => weir_mpi::Access::Lock,
        };
        let window = group.window(bytes, access)?;
        // The kernel gives memory to who first writes there.
        window.write(&vec![0; bytes], 0)?;
        if access == weir_mpi::Access::Fence {
            window.fence()?;
        }
        group.barrier()?;
        Ok(window)
    }

    #[inline]
    fn put(&self, window: &Window, data: &[u8], to: usize) -> Result<()> {
        Ok(window.put(data, to, 0)?)
    }

    #[inline]
    fn get(&self, window: &Window, into: &mut [u8], from: usize) -> Result<()> {
        Ok(window.get(into, from, 0)?)
    }

    #[inline]
    fn accumulate(&self, window: &Window, data: &[f64], to: usize) -> Result<()> {
        Ok(window.accumulate(data, to, 0, Reduction::Sum)?)
    }

    #[inline]
    fn fetch_add(&self, window: &Window, number: i64, to: usize) -> Result<i64> {
        Ok(window.fetch_and_op(number, to, 0, Reduction::Sum)?)
    }

    #[inline]
    fn fence(&self, window: &Window) -> Result<()> {
        Ok(window.fence()?)
    }

    fn look(&self, window: &Window, into: &mut [u8]) -> Result<()> {
        Ok(window.read(into, 0)?)
    }

    fn carried(&self) -> Option<weir_engine::Traffic> {
        if self.provider.get().is_none() {
            self.provider.set(carried::Provider::loaded());
        }
        Some(self.provider.get().map(carried::Provider::carried).unwrap_or_default())
    }

    fn cpu_ns(&self) -> Option<u64> {
        Some(process::cpu_ns())
    }

    fn abort(&self, code: i32) {
        self.mpi.abort(code)
    }
}

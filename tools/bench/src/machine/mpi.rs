//! Any MPI library, by `weir-mpi`.

use std::cell::{Cell, RefCell};
use std::path::Path;

use weir_clock::TickPair;
use weir_mpi::{Communicator, Mpi, Reduction, Requests, Source};

use super::{Machine, Tag};
use crate::error::{BenchError, Result};
use crate::sys::{carried, counter};

/// Operations at once: a window of messages, and some.
const REQUESTS: usize = 65_536 + 16;

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
    /// The Weir provider, once the library has loaded it.
    provider: Cell<Option<carried::Provider>>,
}

impl MpiMachine {
    /// Loads and initialises the launcher's MPI, or the one named.
    ///
    /// # Errors
    /// [`BenchError::Machine`], with what `weir-mpi` says.
    pub fn load(library: Option<&Path>) -> Result<MpiMachine> {
        let mpi = Mpi::load_with(&weir_job::Env::from_process(), library)?;
        let world = mpi.world()?;
        // A table as large as a window is made for those who need it.
        let requests = RefCell::new(mpi.requests(REQUESTS));
        Ok(MpiMachine { mpi, world, requests, source: Cell::new(counter::Source::best()), provider: Cell::new(None) })
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
        drop(self.world);
        Ok(self.mpi.finalize()?)
    }
}

impl Machine for MpiMachine {
    type Group = Communicator;

    #[inline]
    fn rank(&self) -> usize {
        self.world.rank()
    }

    #[inline]
    fn size(&self) -> usize {
        self.world.size()
    }

    #[inline(always)]
    fn ticks(&self) -> u64 {
        self.source.get().read()
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

    #[inline]
    fn send(&self, data: &[u8], to: usize, tag: Tag) -> Result<()> {
        Ok(self.world.send(data, to, tag.into())?)
    }

    #[inline]
    fn recv(&self, into: &mut [u8], from: usize, tag: Tag) -> Result<()> {
        self.world.receive(into, from, i32::from(tag))?;
        Ok(())
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
    fn sendrecv(&self, data: &[u8], to: usize, into: &mut [u8], from: usize, tag: Tag) -> Result<()> {
        let tag = i32::from(tag);
        self.world.send_receive((data, to, tag), (into, Source::Rank(from), tag.into()))?;
        Ok(())
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

    fn send_window(&self, data: &[u8], count: usize, to: usize, tag: Tag) -> Result<()> {
        self.requests.borrow_mut().scope(|scope| {
            for _ in 0..count {
                let _ = scope.send(&self.world, data, to, tag.into())?;
            }
            Ok(scope.wait_all()?)
        })
    }

    fn recv_window(&self, into: &mut [u8], count: usize, from: usize, tag: Tag) -> Result<()> {
        let each = into.len() / count.max(1);
        let tag = i32::from(tag);
        self.requests.borrow_mut().scope(|scope| {
            let mut rest = into;
            for _ in 0..count {
                let (one, others) = rest.split_at_mut(each);
                let _ = scope.receive(&self.world, one, from, tag)?;
                rest = others;
            }
            Ok(scope.wait_all()?)
        })
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

    fn carried(&self) -> Option<weir_engine::Traffic> {
        if self.provider.get().is_none() {
            self.provider.set(carried::Provider::loaded());
        }
        Some(self.provider.get().map(carried::Provider::carried).unwrap_or_default())
    }

    fn abort(&self, code: i32) {
        self.mpi.abort(code)
    }
}

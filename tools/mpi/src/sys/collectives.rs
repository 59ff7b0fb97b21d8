//! Operations of all ranks of a communicator. All must call them in the same order, with buffers of
//! the lengths named.

use super::communicator::{Communicator, count, data, room};
use super::functions::Raw;
use super::library::on;
use crate::error::Error;
use crate::message::Reduction;

pub(super) fn must_be(function: &'static str, is: usize, wanted: usize) -> Result<(), Error> {
    if is == wanted { Ok(()) } else { Err(Error::Length { function, is, wanted }) }
}

impl Communicator {
    /// Waits until all ranks are here (`MPI_Barrier`).
    ///
    /// # Errors
    /// If MPI fails.
    #[inline]
    pub fn barrier(&self) -> Result<(), Error> {
        self.library.must_run("MPI_Barrier")?;
        // SAFETY: the communicator is not freed before `self`.
        let code = on!(self.library, t => unsafe { (t.f.barrier)(Raw::of(self.handle)) });
        self.library.check("MPI_Barrier", code)
    }

    /// Copies the root's buffer to all, who have the same length (`MPI_Bcast`).
    ///
    /// # Errors
    /// If there is no such rank, the buffer is too long, or MPI fails.
    #[inline]
    pub fn broadcast(&self, buffer: &mut [u8], root: usize) -> Result<(), Error> {
        self.library.must_run("MPI_Bcast")?;
        let (length, root) = (count(buffer.len())?, self.peer(root)?);
        let (data, comm) = (buffer.as_mut_ptr().cast(), self.handle);
        // SAFETY: `data` can be read and written for `length` bytes until the call returns.
        let code = on!(self.library, t => unsafe { (t.f.bcast)(data, length, t.k.byte, root, Raw::of(comm)) });
        self.library.check("MPI_Bcast", code)
    }

    /// Collects a block of every rank at the root, in order of ranks (`MPI_Gather`). `all` has room
    /// for all blocks at the root; elsewhere it is not looked at.
    ///
    /// # Errors
    /// If there is no such rank, a buffer has the wrong length, or MPI fails.
    #[inline]
    pub fn gather(&self, block: &[u8], all: &mut [u8], root: usize) -> Result<(), Error> {
        self.library.must_run("MPI_Gather")?;
        if root == self.rank() {
            must_be("MPI_Gather", all.len(), block.len().saturating_mul(self.size()))?;
        }
        let (length, root) = (count(block.len())?, self.peer(root)?);
        let (from, to, comm) = (data(block), room(all), self.handle);
        // SAFETY: `from` can be read for `length` bytes; at the root, the only one that looks at
        // it, `to` can be written for as many of every rank.
        let code = on!(self.library, t => unsafe {
            (t.f.gather)(from, length, t.k.byte, to, length, t.k.byte, root, Raw::of(comm))
        });
        self.library.check("MPI_Gather", code)
    }

    /// Hands out one block of the root's buffer to every rank, in order of ranks (`MPI_Scatter`).
    /// `all` holds all blocks at the root; elsewhere it is not looked at.
    ///
    /// # Errors
    /// If there is no such rank, a buffer has the wrong length, or MPI fails.
    #[inline]
    pub fn scatter(&self, all: &[u8], block: &mut [u8], root: usize) -> Result<(), Error> {
        self.library.must_run("MPI_Scatter")?;
        if root == self.rank() {
            must_be("MPI_Scatter", all.len(), block.len().saturating_mul(self.size()))?;
        }
        let (length, root) = (count(block.len())?, self.peer(root)?);
        let (from, to, comm) = (data(all), room(block), self.handle);
        // SAFETY: `to` can be written for `length` bytes; at the root, the only one that looks at
        // it, `from` can be read for as many for every rank.
        let code = on!(self.library, t => unsafe {
            (t.f.scatter)(from, length, t.k.byte, to, length, t.k.byte, root, Raw::of(comm))
        });
        self.library.check("MPI_Scatter", code)
    }

    /// Collects a block of every rank at every rank (`MPI_Allgather`).
    ///
    /// # Errors
    /// If a buffer has the wrong length, or MPI fails.
    #[inline]
    pub fn all_gather(&self, block: &[u8], all: &mut [u8]) -> Result<(), Error> {
        self.library.must_run("MPI_Allgather")?;
        must_be("MPI_Allgather", all.len(), block.len().saturating_mul(self.size()))?;
        let length = count(block.len())?;
        let (from, to, comm) = (data(block), room(all), self.handle);
        // SAFETY: `from` can be read for `length` bytes, `to` written for as many of every rank.
        let code = on!(self.library, t => unsafe {
            (t.f.allgather)(from, length, t.k.byte, to, length, t.k.byte, Raw::of(comm))
        });
        self.library.check("MPI_Allgather", code)
    }

    /// Sends the n-th block of `from` to rank n, and puts the block of rank n at the n-th place in
    /// `to` (`MPI_Alltoall`).
    ///
    /// # Errors
    /// If the buffers are not as long as each other and a multiple of the size, or MPI fails.
    #[inline]
    pub fn all_to_all(&self, from: &[u8], to: &mut [u8]) -> Result<(), Error> {
        self.library.must_run("MPI_Alltoall")?;
        let block = from.len() / self.size();
        must_be("MPI_Alltoall", from.len(), block * self.size())?;
        must_be("MPI_Alltoall", to.len(), from.len())?;
        let length = count(block)?;
        let (from, to, comm) = (data(from), room(to), self.handle);
        // SAFETY: both hold `length` bytes for every rank.
        let code = on!(self.library, t => unsafe {
            (t.f.alltoall)(from, length, t.k.byte, to, length, t.k.byte, Raw::of(comm))
        });
        self.library.check("MPI_Alltoall", code)
    }

    /// Combines the numbers of all ranks, place by place, at the root (`MPI_Reduce`). Elsewhere
    /// `result` is not looked at.
    ///
    /// # Errors
    /// If there is no such rank, a buffer has the wrong length, or MPI fails.
    #[inline]
    pub fn reduce(&self, numbers: &[f64], result: &mut [f64], by: Reduction, root: usize) -> Result<(), Error> {
        self.library.must_run("MPI_Reduce")?;
        if root == self.rank() {
            must_be("MPI_Reduce", result.len(), numbers.len())?;
        }
        let (length, root) = (count(numbers.len())?, self.peer(root)?);
        let (from, to, comm) = (numbers.as_ptr().cast(), result.as_mut_ptr().cast(), self.handle);
        // SAFETY: `from` can be read for `length` doubles; at the root, the only one that looks at
        // it, `to` written for as many.
        let code = on!(self.library, t => unsafe {
            (t.f.reduce)(from, to, length, t.k.double, t.k.operation(by), root, Raw::of(comm))
        });
        self.library.check("MPI_Reduce", code)
    }

    /// Combines the numbers of all ranks, place by place, at every rank (`MPI_Allreduce`).
    ///
    /// # Errors
    /// If a buffer has the wrong length, or MPI fails.
    #[inline]
    pub fn all_reduce(&self, numbers: &[f64], result: &mut [f64], by: Reduction) -> Result<(), Error> {
        self.library.must_run("MPI_Allreduce")?;
        must_be("MPI_Allreduce", result.len(), numbers.len())?;
        let length = count(numbers.len())?;
        let (from, to, comm) = (numbers.as_ptr().cast(), result.as_mut_ptr().cast(), self.handle);
        // SAFETY: `from` can be read and `to` written for `length` doubles.
        let code = on!(self.library, t => unsafe {
            (t.f.allreduce)(from, to, length, t.k.double, t.k.operation(by), Raw::of(comm))
        });
        self.library.check("MPI_Allreduce", code)
    }
}

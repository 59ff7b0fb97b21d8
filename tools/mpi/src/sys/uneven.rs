//! Collectives whose blocks may differ in length, running sums, and collectives that are begun and
//! then waited for.

use std::ffi::c_int;

use super::collectives::must_be;
use super::communicator::{Communicator, count, data, room};
use super::functions::{Raw, RawStatus};
use super::library::{lost, on};
use crate::error::Error;
use crate::message::Reduction;

/// The blocks of a buffer, one for each rank, behind each other: counts and displacements as MPI
/// takes them, made once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocks {
    counts: Box<[c_int]>,
    places: Box<[c_int]>,
    all: usize,
}

impl Blocks {
    /// Blocks of these lengths (bytes, or numbers where numbers are summed), by rank.
    ///
    /// # Errors
    /// If they are longer together than MPI counts.
    pub fn new(lengths: &[usize]) -> Result<Self, Error> {
        let counts = lengths.iter().map(|&length| count(length)).collect::<Result<_, _>>()?;
        let mut all = 0usize;
        let mut places = Vec::with_capacity(lengths.len());
        for &length in lengths {
            places.push(count(all)?);
            all = all.saturating_add(length);
        }
        count(all)?;
        Ok(Self { counts, places: places.into(), all })
    }

    /// All of them together.
    #[must_use]
    pub fn all(&self) -> usize {
        self.all
    }

    /// The length of a rank's block; 0 for a rank that has none.
    #[must_use]
    pub fn of(&self, rank: usize) -> usize {
        self.counts.get(rank).map_or(0, |&count| count as usize)
    }
}

impl Communicator {
    /// Whether there is a block for each rank, and the buffer is as long as all.
    #[inline]
    fn must_fit(&self, function: &'static str, length: usize, blocks: &Blocks) -> Result<(), Error> {
        must_be(function, blocks.counts.len(), self.size())?;
        must_be(function, length, blocks.all)
    }

    /// Collects every rank's block at the root (`MPI_Gatherv`). `all` is not looked at elsewhere.
    ///
    /// # Errors
    /// If there is no such rank, a buffer has the wrong length, or MPI fails.
    #[inline]
    pub fn gather_blocks(&self, block: &[u8], all: &mut [u8], blocks: &Blocks, root: usize) -> Result<(), Error> {
        self.library.must_run("MPI_Gatherv")?;
        must_be("MPI_Gatherv", block.len(), blocks.of(self.rank()))?;
        must_be("MPI_Gatherv", blocks.counts.len(), self.size())?;
        if root == self.rank() {
            self.must_fit("MPI_Gatherv", all.len(), blocks)?;
        }
        let (length, root) = (count(block.len())?, self.peer(root)?);
        let (from, to, comm) = (data(block), room(all), self.handle);
        let (counts, places) = (blocks.counts.as_ptr(), blocks.places.as_ptr());
        // SAFETY: `from` can be read for `length` bytes; at the root `to` can be written for all
        // blocks, of which there is one for each rank.
        let code = on!(self.library, t => unsafe {
            (t.f.gatherv)(from, length, t.k.byte, to, counts, places, t.k.byte, root, Raw::of(comm))
        });
        self.library.check("MPI_Gatherv", code)
    }

    /// Hands out the root's blocks (`MPI_Scatterv`). `all` is not looked at elsewhere.
    ///
    /// # Errors
    /// If there is no such rank, a buffer has the wrong length, or MPI fails.
    #[inline]
    pub fn scatter_blocks(&self, all: &[u8], block: &mut [u8], blocks: &Blocks, root: usize) -> Result<(), Error> {
        self.library.must_run("MPI_Scatterv")?;
        must_be("MPI_Scatterv", block.len(), blocks.of(self.rank()))?;
        must_be("MPI_Scatterv", blocks.counts.len(), self.size())?;
        if root == self.rank() {
            self.must_fit("MPI_Scatterv", all.len(), blocks)?;
        }
        let (length, root) = (count(block.len())?, self.peer(root)?);
        let (from, to, comm) = (data(all), room(block), self.handle);
        let (counts, places) = (blocks.counts.as_ptr(), blocks.places.as_ptr());
        // SAFETY: `to` can be written for `length` bytes; at the root `from` can be read for all
        // blocks, of which there is one for each rank.
        let code = on!(self.library, t => unsafe {
            (t.f.scatterv)(from, counts, places, t.k.byte, to, length, t.k.byte, root, Raw::of(comm))
        });
        self.library.check("MPI_Scatterv", code)
    }

    /// Collects every rank's block at every rank (`MPI_Allgatherv`).
    ///
    /// # Errors
    /// If a buffer has the wrong length, or MPI fails.
    #[inline]
    pub fn all_gather_blocks(&self, block: &[u8], all: &mut [u8], blocks: &Blocks) -> Result<(), Error> {
        self.library.must_run("MPI_Allgatherv")?;
        must_be("MPI_Allgatherv", block.len(), blocks.of(self.rank()))?;
        self.must_fit("MPI_Allgatherv", all.len(), blocks)?;
        let length = count(block.len())?;
        let (from, to, comm) = (data(block), room(all), self.handle);
        let (counts, places) = (blocks.counts.as_ptr(), blocks.places.as_ptr());
        // SAFETY: `from` can be read for `length` bytes, `to` written for all blocks, of which
        // there is one for each rank.
        let code = on!(self.library, t => unsafe {
            (t.f.allgatherv)(from, length, t.k.byte, to, counts, places, t.k.byte, Raw::of(comm))
        });
        self.library.check("MPI_Allgatherv", code)
    }

    /// Sends the n-th block of `from` to rank n, and puts the block of rank n at the n-th place in
    /// `to` (`MPI_Alltoallv`).
    ///
    /// # Errors
    /// If a buffer has the wrong length, or MPI fails.
    #[inline]
    pub fn all_to_all_blocks(
        &self,
        (from, out): (&[u8], &Blocks),
        (to, inward): (&mut [u8], &Blocks),
    ) -> Result<(), Error> {
        self.library.must_run("MPI_Alltoallv")?;
        self.must_fit("MPI_Alltoallv", from.len(), out)?;
        self.must_fit("MPI_Alltoallv", to.len(), inward)?;
        // Two empty buffers must not be one: MPICH refuses what it takes for the same.
        let (from, to, comm) = (data(from), room(to), self.handle);
        let to = if from == to.cast_const() { to.wrapping_byte_add(1) } else { to };
        let (counts, places) = (out.counts.as_ptr(), out.places.as_ptr());
        let (room, at) = (inward.counts.as_ptr(), inward.places.as_ptr());
        // SAFETY: each buffer holds all its blocks, of which there is one for each rank.
        let code = on!(self.library, t => unsafe {
            (t.f.alltoallv)(from, counts, places, t.k.byte, to, room, at, t.k.byte, Raw::of(comm))
        });
        self.library.check("MPI_Alltoallv", code)
    }

    /// Combines the numbers of all ranks, place by place, and leaves each rank its block of the
    /// result (`MPI_Reduce_scatter`).
    ///
    /// # Errors
    /// If a buffer has the wrong length, or MPI fails.
    #[inline]
    pub fn reduce_scatter(
        &self,
        numbers: &[f64],
        result: &mut [f64],
        blocks: &Blocks,
        by: Reduction,
    ) -> Result<(), Error> {
        self.library.must_run("MPI_Reduce_scatter")?;
        self.must_fit("MPI_Reduce_scatter", numbers.len(), blocks)?;
        must_be("MPI_Reduce_scatter", result.len(), blocks.of(self.rank()))?;
        let (from, to, comm) = (numbers.as_ptr().cast(), result.as_mut_ptr().cast(), self.handle);
        let counts = blocks.counts.as_ptr();
        // SAFETY: `from` can be read for all blocks, of which there is one for each rank, and `to`
        // written for this rank's.
        let code = on!(self.library, t => unsafe {
            (t.f.reduce_scatter)(from, to, counts, t.k.double, t.k.operation(by), Raw::of(comm))
        });
        self.library.check("MPI_Reduce_scatter", code)
    }

    /// Combines the numbers of the ranks up to this one, place by place (`MPI_Scan`).
    ///
    /// # Errors
    /// If a buffer has the wrong length, or MPI fails.
    #[inline]
    pub fn scan(&self, numbers: &[f64], result: &mut [f64], by: Reduction) -> Result<(), Error> {
        self.library.must_run("MPI_Scan")?;
        must_be("MPI_Scan", result.len(), numbers.len())?;
        let length = count(numbers.len())?;
        let (from, to, comm) = (numbers.as_ptr().cast(), result.as_mut_ptr().cast(), self.handle);
        // SAFETY: `from` can be read and `to` written for `length` doubles.
        let code = on!(self.library, t => unsafe {
            (t.f.scan)(from, to, length, t.k.double, t.k.operation(by), Raw::of(comm))
        });
        self.library.check("MPI_Scan", code)
    }

    /// Combines the numbers of the ranks below this one, place by place (`MPI_Exscan`); rank 0's
    /// result stays as it is.
    ///
    /// # Errors
    /// If a buffer has the wrong length, or MPI fails.
    #[inline]
    pub fn scan_below(&self, numbers: &[f64], result: &mut [f64], by: Reduction) -> Result<(), Error> {
        self.library.must_run("MPI_Exscan")?;
        must_be("MPI_Exscan", result.len(), numbers.len())?;
        let length = count(numbers.len())?;
        let (from, to, comm) = (numbers.as_ptr().cast(), result.as_mut_ptr().cast(), self.handle);
        // SAFETY: `from` can be read and `to` written for `length` doubles.
        let code = on!(self.library, t => unsafe {
            (t.f.exscan)(from, to, length, t.k.double, t.k.operation(by), Raw::of(comm))
        });
        self.library.check("MPI_Exscan", code)
    }

    /// Begins a barrier without waiting, then waits for it (`MPI_Ibarrier`, `MPI_Wait`).
    ///
    /// # Errors
    /// If MPI fails.
    #[inline]
    pub fn barrier_begun(&self) -> Result<(), Error> {
        self.library.must_run("MPI_Ibarrier")?;
        let mut status = RawStatus::EMPTY;
        let at = &raw mut status;
        let (begun, waited) = on!(self.library, t => {
            let mut request = t.k.request_null;
            // SAFETY: the communicator is not freed before `self`.
            let begun = unsafe { (t.f.ibarrier)(Raw::of(self.handle), &raw mut request) };
            // SAFETY: the request just begun, or none; `at` can be written for a status of any ABI.
            let waited = if begun == 0 { unsafe { (t.f.wait)(&raw mut request, at) } } else { 0 };
            (begun, waited)
        });
        self.library.check("MPI_Ibarrier", begun)?;
        self.library.check("MPI_Wait", waited)
    }

    /// Begins to combine the numbers of all ranks without waiting, then waits for the result
    /// (`MPI_Iallreduce`, `MPI_Wait`).
    ///
    /// # Errors
    /// If a buffer has the wrong length, or MPI fails; if it fails in the middle, the job is ended.
    #[inline]
    pub fn all_reduce_begun(&self, numbers: &[f64], result: &mut [f64], by: Reduction) -> Result<(), Error> {
        self.library.must_run("MPI_Iallreduce")?;
        must_be("MPI_Iallreduce", result.len(), numbers.len())?;
        let length = count(numbers.len())?;
        let (from, to, comm) = (numbers.as_ptr().cast(), result.as_mut_ptr().cast(), self.handle);
        let mut status = RawStatus::EMPTY;
        let at = &raw mut status;
        let (begun, waited) = on!(self.library, t => {
            let (mut request, by) = (t.k.request_null, t.k.operation(by));
            // SAFETY: `from` can be read and `to` written for `length` doubles, until the wait
            // below has ended.
            let begun = unsafe { (t.f.iallreduce)(from, to, length, t.k.double, by, Raw::of(comm), &raw mut request) };
            // SAFETY: the request just begun, or none; `at` can be written for a status of any ABI.
            let waited = if begun == 0 { unsafe { (t.f.wait)(&raw mut request, at) } } else { 0 };
            (begun, waited)
        });
        self.library.check("MPI_Iallreduce", begun)?;
        if waited != 0 {
            lost(self.library, "MPI_Wait", waited);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_lie_behind_each_other() {
        let blocks = Blocks::new(&[3, 0, 5]).unwrap();
        assert_eq!((blocks.all(), blocks.of(0), blocks.of(1), blocks.of(2), blocks.of(3)), (8, 3, 0, 5, 0));
        assert_eq!((&*blocks.counts, &*blocks.places), (&[3, 0, 5][..], &[0, 3, 3][..]));
    }

    #[test]
    fn blocks_beyond_what_mpi_counts_are_refused() {
        let half = 1 << 30;
        assert_eq!(Blocks::new(&[half, half]), Err(Error::TooLong(1 << 31)));
        assert!(Blocks::new(&[half, half - 1]).is_ok());
    }
}

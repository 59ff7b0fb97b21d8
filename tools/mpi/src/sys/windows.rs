//! Memory that other ranks write, read and add to without this rank's doing: MPI's windows.
//!
//! A window is used in one way for all its life: by ranks that reach others' memory whenever they
//! like and flush ([`Access::Flush`]) or lock it each time ([`Access::Lock`]), or in phases that
//! all ranks end together ([`Access::Fence`]). Every operation is complete when its call returns,
//! so that the caller's buffers are borrowed for as long as MPI uses them.

use std::ffi::c_int;

use super::communicator::{Communicator, count};
use super::functions::{Aint, Handle, Raw};
use super::library::{Library, lost, on};
use crate::error::Error;
use crate::message::Reduction;

/// How operations on a window are completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Passive target: all are locked (`MPI_Win_lock_all`), and each operation is flushed at its
    /// target (`MPI_Win_flush`).
    Flush,
    /// Active target: each operation ends with a fence (`MPI_Win_fence`), which is collective.
    /// Ranks that reach nobody's memory call [`Window::fence`].
    Fence,
    /// Passive target: for each operation its target alone is locked (`MPI_Win_lock`, exclusive),
    /// and unlocked when it is complete there (`MPI_Win_unlock`).
    Lock,
}

/// As many bytes at each rank of a communicator as the others may reach. Made and freed by all
/// ranks together.
pub struct Window {
    library: &'static Library,
    handle: Handle,
    base: *mut u8,
    bytes: usize,
    size: usize,
    rank: usize,
    access: Access,
}

impl Communicator {
    /// Makes a window (`MPI_Win_allocate`) and begins its first epoch. Collective. If ranks ask for
    /// different lengths, the shortest is what can be reached.
    ///
    /// # Errors
    /// If MPI fails.
    pub fn window(&self, bytes: usize, access: Access) -> Result<Window, Error> {
        self.library.must_run("MPI_Win_allocate")?;
        count(bytes)?;
        let mut least = [0.0];
        self.all_reduce(&[bytes as f64], &mut least, Reduction::Min)?;
        let mut base: *mut u8 = std::ptr::null_mut();
        let (at, comm) = (&raw mut base, self.handle);
        let (code, handle) = on!(self.library, t => {
            // Overwritten where the call succeeds; looked at nowhere else.
            let mut made = t.k.comm_null;
            // SAFETY: the communicator is not freed before `self`; `at` can be written for an
            // address.
            let code = unsafe {
                (t.f.win_allocate)(bytes as Aint, 1, t.k.info_null, Raw::of(comm), at.cast(), &raw mut made)
            };
            (code, made.keep())
        });
        self.library.check("MPI_Win_allocate", code)?;
        let window = Window {
            library: self.library,
            handle,
            base,
            bytes: (least[0] as usize).min(bytes),
            size: self.size(),
            rank: self.rank(),
            access,
        };
        window.begin()?;
        Ok(window)
    }
}

impl Window {
    fn begin(&self) -> Result<(), Error> {
        // SAFETY: the handles are this library's own.
        let code = on!(self.library, t => unsafe { (t.f.win_set_errhandler)(Raw::of(self.handle), t.k.errors_return) });
        self.library.check("MPI_Win_set_errhandler", code)?;
        match self.access {
            Access::Flush => {
                // SAFETY: a window of this library in no epoch.
                let code = on!(self.library, t => unsafe { (t.f.win_lock_all)(0, Raw::of(self.handle)) });
                self.library.check("MPI_Win_lock_all", code)
            }
            Access::Fence => self.fence(),
            // Each operation is an epoch of its own.
            Access::Lock => Ok(()),
        }
    }

    /// Bytes of each rank that can be reached.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The target as MPI takes it, if so many bytes from `at` on are in its window.
    #[inline]
    fn target(&self, function: &'static str, rank: usize, at: usize, length: usize) -> Result<c_int, Error> {
        self.library.must_run(function)?;
        if rank >= self.size {
            return Err(Error::NoSuchRank { rank, size: self.size });
        }
        if at.checked_add(length).is_none_or(|end| end > self.bytes) {
            return Err(Error::OutOfWindow { function, at, length, bytes: self.bytes });
        }
        Ok(rank as c_int)
    }

    /// What comes before an operation on `rank`'s memory.
    #[inline]
    fn enter(&self, rank: c_int) -> Result<(), Error> {
        if self.access == Access::Lock { self.lock(rank) } else { Ok(()) }
    }

    #[inline]
    fn lock(&self, rank: c_int) -> Result<(), Error> {
        // SAFETY: a window of this library, of which this rank locks nothing else.
        let code = on!(self.library, t => unsafe {
            (t.f.win_lock)(t.k.lock_exclusive, rank, 0, Raw::of(self.handle))
        });
        self.library.check("MPI_Win_lock", code)
    }

    #[inline]
    fn unlock(&self, rank: c_int) -> c_int {
        // SAFETY: locked by `lock`.
        on!(self.library, t => unsafe { (t.f.win_unlock)(rank, Raw::of(self.handle)) })
    }

    /// Ends an operation that MPI accepted; its buffers are given back after this.
    #[inline]
    fn complete(&self, function: &'static str, code: c_int, rank: c_int) -> Result<(), Error> {
        let accepted = self.library.check(function, code);
        let window = self.handle;
        let (function, code) = match self.access {
            // Locked already, whether the operation was accepted or not.
            Access::Lock => ("MPI_Win_unlock", self.unlock(rank)),
            _ if accepted.is_err() => return accepted,
            Access::Flush => {
                // SAFETY: the window is locked.
                let code = on!(self.library, t => unsafe { (t.f.win_flush)(rank, Raw::of(window)) });
                ("MPI_Win_flush", code)
            }
            Access::Fence => {
                // SAFETY: the window is in an epoch begun by a fence.
                let code = on!(self.library, t => unsafe { (t.f.win_fence)(0, Raw::of(window)) });
                ("MPI_Win_fence", code)
            }
        };
        if code != 0 {
            lost(self.library, function, code);
        }
        accepted
    }

    /// Writes `data` into `rank`'s window from `at` on (`MPI_Put`); complete at the target when it
    /// returns.
    ///
    /// # Errors
    /// If there is no such place, or MPI refuses; if MPI fails later, the job is ended.
    #[inline]
    pub fn put(&self, data: &[u8], rank: usize, at: usize) -> Result<(), Error> {
        let (rank, length) = (self.target("MPI_Put", rank, at, data.len())?, count(data.len())?);
        let (from, at, window) = (data.as_ptr().cast(), at as Aint, self.handle);
        self.enter(rank)?;
        // SAFETY: `from` can be read for `length` bytes until `complete` has returned; the target
        // has room for them.
        let code = on!(self.library, t => unsafe {
            (t.f.put)(from, length, t.k.byte, rank, at, length, t.k.byte, Raw::of(window))
        });
        self.complete("MPI_Put", code, rank)
    }

    /// Reads from `rank`'s window from `at` on (`MPI_Get`).
    ///
    /// # Errors
    /// As of [`Window::put`].
    #[inline]
    pub fn get(&self, into: &mut [u8], rank: usize, at: usize) -> Result<(), Error> {
        let (rank, length) = (self.target("MPI_Get", rank, at, into.len())?, count(into.len())?);
        let (to, at, window) = (into.as_mut_ptr().cast(), at as Aint, self.handle);
        self.enter(rank)?;
        // SAFETY: `to` can be written for `length` bytes until `complete` has returned; the target
        // has as many.
        let code = on!(self.library, t => unsafe {
            (t.f.get)(to, length, t.k.byte, rank, at, length, t.k.byte, Raw::of(window))
        });
        self.complete("MPI_Get", code, rank)
    }

    /// Combines numbers with those in `rank`'s window, place by place (`MPI_Accumulate`). `at` is
    /// in bytes, and a multiple of 8.
    ///
    /// # Errors
    /// As of [`Window::put`].
    #[inline]
    pub fn accumulate(&self, numbers: &[f64], rank: usize, at: usize, by: Reduction) -> Result<(), Error> {
        let rank = self.target("MPI_Accumulate", rank, at, size_of_val(numbers))?;
        let (length, at, window) = (count(numbers.len())?, aligned("MPI_Accumulate", at)?, self.handle);
        let from = numbers.as_ptr().cast();
        self.enter(rank)?;
        // SAFETY: `from` can be read for `length` doubles until `complete` has returned; the target
        // has as many.
        let code = on!(self.library, t => unsafe {
            let (double, by) = (t.k.double, t.k.operation(by));
            (t.f.accumulate)(from, length, double, rank, at, length, double, by, Raw::of(window))
        });
        self.complete("MPI_Accumulate", code, rank)
    }

    /// Combines a number with one in `rank`'s window and tells what that was before
    /// (`MPI_Fetch_and_op`). `at` is in bytes, and a multiple of 8.
    ///
    /// # Errors
    /// As of [`Window::put`].
    #[inline]
    pub fn fetch_and_op(&self, number: i64, rank: usize, at: usize, by: Reduction) -> Result<i64, Error> {
        let rank = self.target("MPI_Fetch_and_op", rank, at, size_of::<i64>())?;
        let (at, window) = (aligned("MPI_Fetch_and_op", at)?, self.handle);
        let mut before = 0i64;
        let (from, to) = ((&raw const number).cast(), (&raw mut before).cast());
        self.enter(rank)?;
        // SAFETY: one number can be read and one written until `complete` has returned; the target
        // has one at its place.
        let code = on!(self.library, t => unsafe {
            (t.f.fetch_and_op)(from, to, t.k.int64, rank, at, t.k.operation(by), Raw::of(window))
        });
        self.complete("MPI_Fetch_and_op", code, rank)?;
        Ok(before)
    }

    /// Ends a phase together with all ranks, and begins the next (`MPI_Win_fence`). Collective; of
    /// [`Access::Fence`] only.
    ///
    /// # Errors
    /// If MPI fails.
    #[inline]
    pub fn fence(&self) -> Result<(), Error> {
        self.library.must_run("MPI_Win_fence")?;
        // SAFETY: a window of this library.
        let code = on!(self.library, t => unsafe { (t.f.win_fence)(0, Raw::of(self.handle)) });
        self.library.check("MPI_Win_fence", code)
    }

    /// What this rank's own window holds from `at` on. Others should not be writing there, or
    /// anything may be seen.
    ///
    /// # Errors
    /// If there is no such place, or MPI fails.
    pub fn read(&self, into: &mut [u8], at: usize) -> Result<(), Error> {
        self.target("MPI_Win_sync", 0, at, into.len())?;
        self.sync()?;
        for (place, byte) in into.iter_mut().enumerate() {
            // SAFETY: within the window's memory, as `target` has seen; volatile, since other
            // processes change it.
            *byte = unsafe { self.base.add(at + place).read_volatile() };
        }
        Ok(())
    }

    /// Changes what this rank's own window holds from `at` on. Others should not be reaching there.
    ///
    /// # Errors
    /// As of [`Window::read`].
    pub fn write(&self, data: &[u8], at: usize) -> Result<(), Error> {
        self.target("MPI_Win_sync", 0, at, data.len())?;
        for (place, byte) in data.iter().enumerate() {
            // SAFETY: within the window's memory, as `target` has seen; volatile, since other
            // processes read it.
            unsafe { self.base.add(at + place).write_volatile(*byte) };
        }
        self.sync()
    }

    /// Makes what others wrote, or this rank, visible. Between fences the fences do that.
    fn sync(&self) -> Result<(), Error> {
        match self.access {
            Access::Fence => Ok(()),
            Access::Flush => {
                // SAFETY: the window is locked.
                let code = on!(self.library, t => unsafe { (t.f.win_sync)(Raw::of(self.handle)) });
                self.library.check("MPI_Win_sync", code)
            }
            Access::Lock => {
                self.lock(self.rank as c_int)?;
                self.library.check("MPI_Win_unlock", self.unlock(self.rank as c_int))
            }
        }
    }
}

/// A place of numbers of eight bytes.
#[inline]
fn aligned(function: &'static str, at: usize) -> Result<Aint, Error> {
    if at.is_multiple_of(8) { Ok(at as Aint) } else { Err(Error::Length { function, is: at, wanted: at / 8 * 8 }) }
}

impl Drop for Window {
    /// `MPI_Win_free`, if MPI still runs: collective. In a panic the other ranks are elsewhere, and
    /// are not waited for.
    fn drop(&mut self) {
        if !self.library.is_running() || std::thread::panicking() {
            return;
        }
        on!(self.library, t => {
            let mut handle = Raw::of(self.handle);
            if self.access == Access::Flush {
                // SAFETY: locked since it was made. What fails here is of no consequence.
                unsafe { (t.f.win_unlock_all)(handle) };
            }
            // SAFETY: made by this library and freed nowhere else; no operation is under way.
            unsafe { (t.f.win_free)(&raw mut handle) };
        });
    }
}

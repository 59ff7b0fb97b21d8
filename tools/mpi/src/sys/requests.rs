//! Operations that go on while the caller does.
//!
//! MPI reads and writes buffers until a request has completed, whatever becomes of the value that
//! stands for it. So the buffers are lent to a [`Scope`], which does not end before all its
//! requests have: a value that is forgotten harms nothing. The table behind it is made once; no
//! operation allocates.

use std::ffi::c_int;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use super::communicator::{Communicator, Status, count, plain_tag};
use super::functions::{Handle, Raw, RawStatus};
use super::library::{Library, abort, on};
use crate::error::Error;
use crate::message::{Source, Tag};

/// How long requests are given to end after an error, before the job is ended: what a peer needs
/// that is there at all.
const PATIENCE: Duration = Duration::from_secs(10);

/// A table for operations that go on while the caller does: [`Requests::scope`].
pub struct Requests {
    pub(super) library: &'static Library,
    /// MPI's requests, in the width of its handles, from the start; null where nothing is pending.
    pub(super) slots: Box<[Handle]>,
    /// Room for as many statuses of any ABI.
    statuses: Box<[RawStatus]>,
    /// Of each slot: which request it is, and whether it receives.
    serials: Box<[u64]>,
    receives: Box<[bool]>,
    /// Slots below `used` in which nothing is pending.
    free: Vec<usize>,
    /// No slot from here on is pending.
    pub(super) used: usize,
    /// Room for the numbers of those that have ended.
    numbers: Box<[c_int]>,
    /// The next request's serial number, and the oldest that can be pending.
    next: u64,
    oldest: u64,
    /// Whether its scopes are counted, so that MPI does not end within one: not those of threads,
    /// which end before that.
    counted: bool,
}

/// A pending operation of a [`Scope`].
#[derive(Clone, Copy, Debug)]
#[must_use = "wait for it, or for all"]
pub struct Request {
    pub(super) slot: usize,
    serial: u64,
}

/// Lends buffers to MPI for as long as it uses them; see [`Requests::scope`].
pub struct Scope<'table, 'buffers> {
    table: &'table mut Requests,
    /// Neither longer nor shorter than what was promised.
    buffers: PhantomData<&'buffers mut &'buffers ()>,
}

impl Requests {
    pub(super) fn new(library: &'static Library, capacity: usize) -> Self {
        Self::made(library, capacity, true)
    }

    /// A table for a thread of [`Mpi::threads`](crate::Mpi::threads).
    pub(super) fn of_thread(library: &'static Library, capacity: usize) -> Self {
        Self::made(library, capacity, false)
    }

    fn made(library: &'static Library, capacity: usize, counted: bool) -> Self {
        let mut table = Self {
            library,
            slots: vec![Handle(std::ptr::null_mut()); capacity].into(),
            statuses: vec![RawStatus::EMPTY; capacity].into(),
            serials: vec![0; capacity].into(),
            receives: vec![false; capacity].into(),
            free: Vec::with_capacity(capacity),
            used: 0,
            numbers: vec![0; capacity].into(),
            next: 1,
            oldest: 1,
            counted,
        };
        on!(library, t => slots(&mut table.slots, t.k.request_null).fill(t.k.request_null));
        table
    }

    /// How many operations there can be at once.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Runs `work`, which may start operations in buffers that live longer than the scope. They
    /// have all completed when this returns.
    ///
    /// If `work` fails or panics while operations are pending, receives are cancelled and the rest
    /// are given 10 s; after that the job is ended, since the buffers could not be given back.
    ///
    /// # Errors
    /// What `work` returns; or the first error of an operation that was left to complete at the
    /// end.
    #[inline]
    pub fn scope<'buffers, T, E: From<Error>>(
        &mut self,
        work: impl FnOnce(&mut Scope<'_, 'buffers>) -> Result<T, E>,
    ) -> Result<T, E> {
        // Dropped after `work` has ended in whichever way, and then waits.
        if self.counted {
            self.library.scopes.update(|open| open + 1);
        }
        let mut scope = Scope { table: self, buffers: PhantomData };
        let result = work(&mut scope)?;
        scope.wait_all()?;
        Ok(result)
    }

    /// Pending operations.
    #[inline]
    pub(super) fn pending(&self) -> usize {
        self.used - self.free.len()
    }

    /// A slot for one more.
    #[inline]
    pub(super) fn take_slot(&mut self, receives: bool) -> Result<Request, Error> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.used < self.slots.len() => {
                self.used += 1;
                self.used - 1
            }
            None => return Err(Error::TooManyRequests(self.slots.len())),
        };
        let serial = self.next;
        self.next += 1;
        self.serials[slot] = serial;
        self.receives[slot] = receives;
        Ok(Request { slot, serial })
    }

    /// Marks a slot as no longer pending.
    #[inline]
    fn release(&mut self, slot: usize) {
        self.serials[slot] = 0;
        self.free.push(slot);
        if self.free.len() == self.used {
            self.release_all();
        }
    }

    #[inline]
    fn release_all(&mut self) {
        self.free.clear();
        self.used = 0;
        self.oldest = self.next;
    }

    #[inline]
    fn slot_of(&self, request: Request) -> Result<usize, Error> {
        let known = request.serial >= self.oldest && self.serials.get(request.slot) == Some(&request.serial);
        if known { Ok(request.slot) } else { Err(Error::NotPending) }
    }

    /// After MPI was told of a failure: which slots are still pending, by what MPI left in them.
    #[cold]
    fn sweep(&mut self) {
        self.free.clear();
        for slot in 0..self.used {
            if on!(self.library, t => slots(&mut self.slots, t.k.request_null)[slot] == t.k.request_null) {
                self.serials[slot] = 0;
                self.free.push(slot);
            }
        }
        if self.free.len() == self.used {
            self.release_all();
        }
    }

    /// The error of a call that completed several requests: the first one's own, where MPI says to
    /// look into the statuses.
    #[cold]
    fn failure_among(&mut self, function: &'static str, code: c_int) -> Error {
        let own = on!(self.library, t => {
            let ints = t.k.status_bytes / size_of::<c_int>();
            let all = self.statuses.as_ptr().cast::<c_int>();
            let ended = &slots(&mut self.slots, t.k.request_null)[..self.used];
            let mut codes = (0..self.used).map(|i| {
                // SAFETY: MPI wrote its statuses one after the other, each no longer than ours.
                unsafe { all.add(i * ints + t.k.source_at + 2).read() }
            });
            let mut failed = (0..self.used).zip(&mut codes).filter(|(i, own)| *own != 0 && ended[*i] == t.k.request_null);
            failed.next().filter(|_| code == t.k.in_status).map(|(_, own)| own)
        });
        self.library.failure(function, own.unwrap_or(code))
    }

    /// Ends what is pending after an error; ends the job if that cannot be done.
    #[cold]
    pub(super) fn give_up(&mut self) {
        for slot in (0..self.used).filter(|slot| self.receives[*slot]) {
            on!(self.library, t => {
                let request = &mut slots(&mut self.slots, t.k.request_null)[slot];
                if *request != t.k.request_null {
                    // SAFETY: a pending request of this library. If it cannot be cancelled, it is
                    // waited for.
                    unsafe { (t.f.cancel)(request) };
                }
            });
        }
        let deadline = Instant::now() + PATIENCE;
        while self.pending() > 0 {
            // Errors end requests too; `sweep` has counted them.
            let _ = self.test_all();
            if Instant::now() > deadline {
                eprintln!("weir: after an error {} messages did not end within 10 s; ending the job", self.pending());
                abort(self.library, 1);
            }
            std::thread::yield_now();
        }
    }

    #[inline]
    fn test_all(&mut self) -> Result<bool, Error> {
        if self.used == 0 {
            return Ok(true);
        }
        let (used, statuses) = (self.used as c_int, self.statuses.as_mut_ptr());
        let mut flag = 0;
        let code = on!(self.library, t => {
            let first = slots(&mut self.slots, t.k.request_null).as_mut_ptr();
            // SAFETY: the first `used` slots are requests of this library, pending or null; there
            // is a status for each.
            unsafe { (t.f.testall)(used, first, &raw mut flag, statuses) }
        });
        if code != 0 {
            let error = self.failure_among("MPI_Testall", code);
            self.sweep();
            return Err(error);
        }
        if flag != 0 {
            self.release_all();
        }
        Ok(flag != 0)
    }
}

/// The slots in the width of the ABI's handles, of whose type `_like` is.
#[inline]
pub(super) fn slots<H: Raw>(slots: &mut [Handle], _like: H) -> &mut [H] {
    const { assert!(size_of::<H>() <= size_of::<Handle>() && align_of::<H>() <= align_of::<Handle>()) };
    // SAFETY: room for as many `H`, as asserted; every bit pattern is a valid `H`, which is an
    // integer or a pointer.
    unsafe { std::slice::from_raw_parts_mut(slots.as_mut_ptr().cast(), slots.len()) }
}

impl<'buffers> Scope<'_, 'buffers> {
    /// Starts to send `bytes` to `rank` (`MPI_Isend`).
    ///
    /// # Errors
    /// As [`Communicator::send`]; or if the table is full.
    #[inline]
    pub fn send(&mut self, to: &Communicator, bytes: &'buffers [u8], rank: usize, tag: i32) -> Result<Request, Error> {
        let table = &mut *self.table;
        table.library.must_run("MPI_Isend")?;
        let (length, rank, tag) = (count(bytes.len())?, to.peer(rank)?, plain_tag(tag)?);
        let request = table.take_slot(false)?;
        let (data, comm) = (bytes.as_ptr().cast(), to.handle);
        let code = on!(table.library, t => {
            let slot = &raw mut slots(&mut table.slots, t.k.request_null)[request.slot];
            // SAFETY: `data` can be read for 'buffers, and the scope ends before that and not
            // before the request does.
            unsafe { (t.f.isend)(data, length, t.k.byte, rank, tag, Raw::of(comm), slot) }
        });
        table.started("MPI_Isend", code, request)
    }

    /// Starts to receive a message of at most `buffer`'s length (`MPI_Irecv`).
    ///
    /// # Errors
    /// As [`Communicator::receive`], but for messages that do not fit; or if the table is full.
    #[inline]
    pub fn receive(
        &mut self,
        from: &Communicator,
        buffer: &'buffers mut [u8],
        source: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Request, Error> {
        let table = &mut *self.table;
        table.library.must_run("MPI_Irecv")?;
        let (length, (source, tag)) = (count(buffer.len())?, from.selected(source.into(), tag.into())?);
        let request = table.take_slot(true)?;
        let (data, comm) = (buffer.as_mut_ptr().cast(), from.handle);
        let code = on!(table.library, t => {
            let slot = &raw mut slots(&mut table.slots, t.k.request_null)[request.slot];
            // SAFETY: `data` is lent to this request alone for 'buffers, and the scope ends before
            // that and not before the request does.
            unsafe { (t.f.irecv)(data, length, t.k.byte, source, tag, Raw::of(comm), slot) }
        });
        table.started("MPI_Irecv", code, request)
    }

    /// Waits until the request has completed (`MPI_Wait`). The status says something of receives
    /// only.
    ///
    /// # Errors
    /// If it was waited for before, or MPI fails, as with a message that did not fit.
    #[inline]
    pub fn wait(&mut self, request: Request) -> Result<Status, Error> {
        let table = &mut *self.table;
        let slot = table.slot_of(request)?;
        let mut status = RawStatus::EMPTY;
        let at = &raw mut status;
        let code = on!(table.library, t => {
            let request = &raw mut slots(&mut table.slots, t.k.request_null)[slot];
            // SAFETY: a pending request of this library; `at` can be written for a status of any
            // ABI.
            unsafe { (t.f.wait)(request, at) }
        });
        table.ended("MPI_Wait", code, slot)?;
        Ok(Status::new(table.library, status))
    }

    /// Whether the request has completed (`MPI_Test`); after that it is not pending any more.
    ///
    /// # Errors
    /// As [`Scope::wait`].
    #[inline]
    pub fn test(&mut self, request: Request) -> Result<Option<Status>, Error> {
        let table = &mut *self.table;
        let slot = table.slot_of(request)?;
        let (mut status, mut flag) = (RawStatus::EMPTY, 0);
        let (at, done) = (&raw mut status, &raw mut flag);
        let code = on!(table.library, t => {
            let request = &raw mut slots(&mut table.slots, t.k.request_null)[slot];
            // SAFETY: a pending request of this library; `at` can be written for a status of any
            // ABI, `done` for an integer.
            unsafe { (t.f.test)(request, done, at) }
        });
        if code == 0 && flag == 0 {
            return Ok(None);
        }
        table.ended("MPI_Test", code, slot)?;
        Ok(Some(Status::new(table.library, status)))
    }

    /// Waits until all requests of the scope have completed (`MPI_Waitall`).
    ///
    /// # Errors
    /// The error of the first that failed.
    #[inline]
    pub fn wait_all(&mut self) -> Result<(), Error> {
        let table = &mut *self.table;
        if table.used == 0 {
            return Ok(());
        }
        let (used, statuses) = (table.used as c_int, table.statuses.as_mut_ptr());
        let code = on!(table.library, t => {
            let first = slots(&mut table.slots, t.k.request_null).as_mut_ptr();
            // SAFETY: the first `used` slots are requests of this library, pending or null; there
            // is a status for each.
            unsafe { (t.f.waitall)(used, first, statuses) }
        });
        if code != 0 {
            let error = table.failure_among("MPI_Waitall", code);
            table.sweep();
            return Err(error);
        }
        table.release_all();
        Ok(())
    }

    /// Whether all requests of the scope have completed (`MPI_Testall`).
    ///
    /// # Errors
    /// The error of the first that failed.
    #[inline]
    pub fn test_all(&mut self) -> Result<bool, Error> {
        self.table.test_all()
    }

    /// Gives up the places of those that have completed by now (`MPI_Testsome`); never waits.
    ///
    /// # Errors
    /// The error of one that failed.
    pub fn test_some(&mut self) -> Result<(), Error> {
        let table = &mut *self.table;
        if table.pending() == 0 {
            return Ok(());
        }
        let (used, mut count, statuses) = (table.used as c_int, 0, table.statuses.as_mut_ptr());
        let (found, which) = (&raw mut count, table.numbers.as_mut_ptr());
        let code = on!(table.library, t => {
            let first = slots(&mut table.slots, t.k.request_null).as_mut_ptr();
            // SAFETY: the first `used` slots are requests of this library, pending or null; there
            // are a number and a status for each.
            unsafe { (t.f.testsome)(used, first, found, which, statuses) }
        });
        table.sweep();
        table.library.check("MPI_Testsome", code)
    }

    /// Operations that are pending.
    #[inline]
    pub fn pending(&self) -> usize {
        self.table.pending()
    }
}

impl Requests {
    /// After the call that was to start a request.
    #[inline]
    pub(super) fn started(&mut self, function: &'static str, code: c_int, request: Request) -> Result<Request, Error> {
        if code != 0 {
            on!(self.library, t => slots(&mut self.slots, t.k.request_null)[request.slot] = t.k.request_null);
            self.release(request.slot);
            return Err(self.library.failure(function, code));
        }
        Ok(request)
    }

    /// After a call that may have completed the request in `slot`.
    #[inline]
    pub(super) fn ended(&mut self, function: &'static str, code: c_int, slot: usize) -> Result<(), Error> {
        if code != 0 {
            let error = self.library.failure(function, code);
            self.sweep();
            return Err(error);
        }
        self.release(slot);
        Ok(())
    }
}

impl Drop for Scope<'_, '_> {
    /// The buffers are given back after this; so nothing may be pending.
    #[inline]
    fn drop(&mut self) {
        if self.table.pending() > 0 {
            self.table.give_up();
        }
        if self.table.counted {
            self.table.library.scopes.update(|open| open - 1);
        }
    }
}

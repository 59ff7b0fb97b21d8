//! Receives that stand posted, each with memory of its own, of which the next to end is waited for.

use std::cell::UnsafeCell;
use std::ffi::c_int;

use super::communicator::{Communicator, Status, count};
use super::functions::{Raw, RawStatus};
use super::library::on;
use super::requests::{Requests, slots};
use crate::error::Error;
use crate::message::{Source, Tag};

/// Receives at numbered places (`MPI_Irecv`, `MPI_Waitany`). Each place has memory of its own,
/// which is MPI's while its receive is pending and the caller's to read afterwards.
///
/// What is left pending is cancelled when this goes.
pub struct Inbox<'comm> {
    from: &'comm Communicator,
    table: Requests,
    /// Of each slot of the table, the place whose receive has it.
    place_of: Box<[usize]>,
    pending: Box<[bool]>,
    /// All places' memory, one behind the other.
    memory: Box<[UnsafeCell<u8>]>,
    room: usize,
}

impl Communicator {
    /// Places for so many receives of at most `room` bytes each; nothing is posted yet.
    ///
    /// # Errors
    /// If `room` is more than MPI can count.
    pub fn inbox(&self, places: usize, room: usize) -> Result<Inbox<'_>, Error> {
        count(room)?;
        // Filled now: no page is to be had from the kernel while somebody measures.
        let memory = (0..places * room).map(|_| UnsafeCell::new(1)).collect();
        self.library.scopes.update(|open| open + 1);
        let table = Requests::new(self.library, places);
        Ok(Inbox {
            from: self,
            table,
            place_of: vec![0; places].into(),
            pending: vec![false; places].into(),
            memory,
            room,
        })
    }
}

impl Inbox<'_> {
    /// Posts the receive at a place that is not pending (`MPI_Irecv`).
    ///
    /// # Errors
    /// As [`Communicator::receive`]; [`Error::TooManyRequests`] if there is no such place, or its
    /// receive is pending.
    #[inline]
    pub fn post(&mut self, place: usize, source: impl Into<Source>, tag: impl Into<Tag>) -> Result<(), Error> {
        let library = self.table.library;
        library.must_run("MPI_Irecv")?;
        if self.pending.get(place) != Some(&false) {
            return Err(Error::TooManyRequests(self.pending.len()));
        }
        let (source, tag) = self.from.selected(source.into(), tag.into())?;
        let request = self.table.take_slot(true)?;
        let data = self.start_of(place).cast_mut().cast();
        // It was counted when the inbox was made.
        let (length, comm) = (self.room as c_int, self.from.handle);
        let code = on!(library, t => {
            let slot = &raw mut slots(&mut self.table.slots, t.k.request_null)[request.slot];
            // SAFETY: the place's memory is in cells, lives until the inbox has ended all receives,
            // and nobody reads it while its place is pending.
            unsafe { (t.f.irecv)(data, length, t.k.byte, source, tag, Raw::of(comm), slot) }
        });
        let request = self.table.started("MPI_Irecv", code, request)?;
        (self.place_of[request.slot], self.pending[place]) = (place, true);
        Ok(())
    }

    /// Waits until one of the receives has ended (`MPI_Waitany`); its place, and what came.
    ///
    /// # Errors
    /// [`Error::NotPending`] if none is posted; or MPI's, as with a message that did not fit.
    #[inline]
    pub fn wait_any(&mut self) -> Result<(usize, Status), Error> {
        let table = &mut self.table;
        if table.pending() == 0 {
            return Err(Error::NotPending);
        }
        let (used, mut index, mut status) = (table.used as c_int, 0, RawStatus::EMPTY);
        let (which, at) = (&raw mut index, &raw mut status);
        let code = on!(table.library, t => {
            let first = slots(&mut table.slots, t.k.request_null).as_mut_ptr();
            // SAFETY: the first `used` slots are requests of this library, pending or null; `at`
            // can be written for a status of any ABI.
            unsafe { (t.f.waitany)(used, first, which, at) }
        });
        // (Some libraries say of a wait that failed that nothing was pending.)
        let slot = usize::try_from(index).ok().filter(|slot| *slot < self.place_of.len());
        let Some(slot) = slot else { return Err(table.library.failure("MPI_Waitany", code)) };
        table.ended("MPI_Waitany", code, slot)?;
        let place = self.place_of[slot];
        self.pending[place] = false;
        Ok((place, Status::new(table.library, status)))
    }

    /// Receives a message at a place that is not pending, and waits for this one (`MPI_Recv`).
    ///
    /// # Errors
    /// As [`Inbox::post`].
    pub fn receive(&mut self, place: usize, source: impl Into<Source>, tag: impl Into<Tag>) -> Result<Status, Error> {
        if self.pending.get(place) != Some(&false) {
            return Err(Error::TooManyRequests(self.pending.len()));
        }
        let data = self.start_of(place).cast_mut();
        // SAFETY: the place's memory is in cells, which nobody reads meanwhile; the call is over
        // when this is.
        let buffer = unsafe { std::slice::from_raw_parts_mut(data, self.room) };
        self.from.receive(buffer, source, tag)
    }

    /// The memory of a place; nothing while its receive is pending.
    #[inline]
    #[must_use]
    pub fn memory(&self, place: usize) -> &[u8] {
        if self.pending.get(place) != Some(&false) {
            return &[];
        }
        // SAFETY: `room` bytes from there on are the place's, and only a receive that `&mut self`
        // posts writes there.
        unsafe { std::slice::from_raw_parts(self.start_of(place), self.room) }
    }

    #[inline]
    fn start_of(&self, place: usize) -> *const u8 {
        self.memory[place * self.room..].as_ptr().cast()
    }
}

impl Drop for Inbox<'_> {
    /// No receive may be pending when the memory goes.
    fn drop(&mut self) {
        let library = self.table.library;
        if self.table.pending() > 0 && library.is_running() {
            self.table.give_up();
        }
        library.scopes.update(|open| open - 1);
    }
}

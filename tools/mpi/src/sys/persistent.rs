//! An exchange between two ranks that is set up once and made again and again.

use std::marker::PhantomData;

use super::communicator::{Communicator, count, plain_tag};
use super::functions::{Handle, Raw, RawStatus};
use super::library::{Library, lost, on};
use super::requests::slots;
use crate::error::Error;

/// A receive and a send to be made again and again (`MPI_Recv_init`, `MPI_Send_init`). Its buffers
/// are lent for as long as it lives, and MPI uses them only within [`Persistent::exchange`].
pub struct Persistent<'buffers> {
    library: &'static Library,
    /// The receive, then the send, in the width of the ABI's handles.
    requests: [Handle; 2],
    buffers: PhantomData<&'buffers mut [u8]>,
}

impl Communicator {
    /// Sets up a receive of exactly one message of at most `into`'s length and a send of `bytes`.
    ///
    /// # Errors
    /// As of [`Communicator::send`] and [`Communicator::receive`].
    pub fn persistent<'buffers>(
        &self,
        (bytes, to, tag): (&'buffers [u8], usize, i32),
        (into, from): (&'buffers mut [u8], usize),
    ) -> Result<Persistent<'buffers>, Error> {
        self.library.must_run("MPI_Send_init")?;
        let (length, to, tag) = (count(bytes.len())?, self.peer(to)?, plain_tag(tag)?);
        let (room, from) = (count(into.len())?, self.peer(from)?);
        let (data, place, comm) = (bytes.as_ptr().cast(), into.as_mut_ptr().cast(), self.handle);
        let mut made =
            Persistent { library: self.library, requests: [Handle(std::ptr::null_mut()); 2], buffers: PhantomData };
        let (receive, send) = on!(self.library, t => {
            let both = slots(&mut made.requests, t.k.request_null);
            both.fill(t.k.request_null);
            let (first, second) = both.split_at_mut(1);
            let byte = t.k.byte;
            // SAFETY: `place` can be written for `room` bytes for 'buffers, of which the request is
            // let go.
            let receive =
                unsafe { (t.f.recv_init)(place, room, byte, from, tag, Raw::of(comm), first.as_mut_ptr()) };
            // SAFETY: `data` can be read for `length` bytes as long.
            let send = unsafe { (t.f.send_init)(data, length, byte, to, tag, Raw::of(comm), second.as_mut_ptr()) };
            (receive, send)
        });
        self.library.check("MPI_Recv_init", receive)?;
        self.library.check("MPI_Send_init", send)?;
        Ok(made)
    }
}

impl Persistent<'_> {
    /// Starts both and waits until both are complete (`MPI_Startall`, `MPI_Waitall`). If MPI fails
    /// in the middle, the job is ended: the buffers could not be given back.
    ///
    /// # Errors
    /// After MPI's end.
    #[inline]
    pub fn exchange(&mut self) -> Result<(), Error> {
        self.library.must_run("MPI_Startall")?;
        let mut statuses = [RawStatus::EMPTY; 2];
        let at = statuses.as_mut_ptr();
        let (started, waited) = on!(self.library, t => {
            let both = slots(&mut self.requests, t.k.request_null).as_mut_ptr();
            // SAFETY: two persistent requests of this library, neither of them started.
            let started = unsafe { (t.f.startall)(2, both) };
            // SAFETY: the same two, now started; there is a status for each, as long as any ABI's.
            let waited = if started == 0 { unsafe { (t.f.waitall)(2, both, at) } } else { 0 };
            (started, waited)
        });
        if started != 0 {
            lost(self.library, "MPI_Startall", started);
        }
        if waited != 0 {
            lost(self.library, "MPI_Waitall", waited);
        }
        Ok(())
    }
}

impl Drop for Persistent<'_> {
    /// `MPI_Request_free` of both, while MPI runs; neither is started between two calls of
    /// [`Persistent::exchange`].
    fn drop(&mut self) {
        if !self.library.is_running() || std::thread::panicking() {
            return;
        }
        on!(self.library, t => {
            for request in slots(&mut self.requests, t.k.request_null) {
                if *request != t.k.request_null {
                    // SAFETY: a request of this library that is not started.
                    unsafe { (t.f.request_free)(request) };
                }
            }
        });
    }
}

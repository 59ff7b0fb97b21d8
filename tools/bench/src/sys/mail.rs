//! Receives that stand posted at Weir's own endpoint, and sends that are begun without waiting.

use std::cell::UnsafeCell;
use std::marker::PhantomData;

use weir_engine::{Class, Completion, EngineError, Iov, MAX_INJECT_BYTES, OpError, OpKind, RecvOp, SendMode, SendOp};

use super::port::{MAIL, Port};
use crate::error::{BenchError, Result};

/// Sends of mail have this context, its receives those behind it.
const SEND: usize = MAIL;
const FIRST: usize = MAIL + 1;

/// A message that has come: to the receive at a place, from a rank, by a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// The receive's place.
    pub place: usize,
    /// The sender.
    pub rank: usize,
    /// The whole tag.
    pub tag: u64,
    /// Bytes.
    pub bytes: usize,
}

/// What is under way: it ends with the call of [`Port::mail`] that made it, which nobody can leave
/// out.
pub struct Mailbox<'port, 'data> {
    port: &'port Port,
    /// All places' memory, one behind the other.
    memory: Box<[UnsafeCell<u8>]>,
    room: usize,
    posted: Box<[bool]>,
    sending: usize,
    /// What is sent may neither end nor change before this does.
    data: PhantomData<&'data [u8]>,
}

impl Port {
    /// Runs `work` with so many places for receives of at most `room` bytes. When this returns all
    /// sends are over, and receives to which nothing came are taken back.
    ///
    /// # Errors
    /// What `work` returns, or the engine's.
    pub fn mail<'data, T>(
        &self,
        places: usize,
        room: usize,
        work: impl FnOnce(&mut Mailbox<'_, 'data>) -> Result<T>,
    ) -> Result<T> {
        // Filled now: no page is to be had from the kernel while somebody measures.
        let memory = (0..places * room).map(|_| UnsafeCell::new(1)).collect();
        let posted = vec![false; places].into();
        let mut mail = Mailbox { port: self, memory, room, posted, sending: 0, data: PhantomData };
        let result = work(&mut mail)?;
        mail.end(true)?;
        Ok(result)
    }
}

impl<'data> Mailbox<'_, 'data> {
    /// Begins a send.
    ///
    /// # Errors
    /// The engine's.
    pub fn send(&mut self, data: &'data [u8], to: usize, tag: u64) -> Result<()> {
        let inject = data.len() <= MAX_INJECT_BYTES;
        let memory = [Iov { base: data.as_ptr().cast_mut(), len: data.len() }];
        let op = SendOp {
            peer: self.port.peer(to),
            class: Class::Tagged,
            tag,
            data: None,
            memory: &memory[..],
            mode: if inject { SendMode::Inject } else { SendMode::Transmit },
            copy: false,
            report: !inject,
            context: SEND,
            user: 0,
        };
        // SAFETY: `data` can be read for 'data, and this ends before that and not before the send
        // does.
        while !self.begun(Some(to), || unsafe { self.port.endpoint().send(&op) })? {
            self.progress()?;
        }
        self.sending += usize::from(!inject);
        Ok(())
    }

    /// Posts the receive at a place, of tags that are `tag` but for the bits of `ignore`.
    ///
    /// # Errors
    /// The engine's, or if there is no such place that is free.
    pub fn post(&mut self, place: usize, from: Option<usize>, tag: u64, ignore: u64) -> Result<()> {
        if self.posted.get(place) != Some(&false) {
            return Err(BenchError::machine("Weir", "a receive at a place that is not free"));
        }
        let memory = [Iov { base: self.start_of(place).cast_mut(), len: self.room }];
        let op = RecvOp {
            source: from.map(|rank| self.port.peer(rank)),
            class: Class::Tagged,
            tag,
            ignore,
            memory: &memory[..],
            multi_min: None,
            report: true,
            context: FIRST + place,
            user: 0,
        };
        // SAFETY: the place's memory is in cells and lives until all receives have ended; nobody
        // reads it while its place is posted.
        while !self.begun(from, || unsafe { self.port.endpoint().recv(&op) })? {
            self.progress()?;
        }
        self.posted[place] = true;
        Ok(())
    }

    /// Waits until a receive has its message.
    ///
    /// # Errors
    /// The engine's.
    pub fn wait_any(&mut self) -> Result<Arrived> {
        if !self.posted.contains(&true) {
            return Err(BenchError::machine("Weir", "no receive is posted"));
        }
        loop {
            while let Some(done) = self.port.taken() {
                if let Some(arrived) = self.note(&done)? {
                    return Ok(arrived);
                }
            }
            self.port.look()?;
        }
    }

    /// Goes on with what was begun; never waits.
    ///
    /// # Errors
    /// The engine's.
    pub fn progress(&mut self) -> Result<()> {
        self.port.look()
    }

    /// The memory of a place; nothing while it is posted.
    #[must_use]
    pub fn memory(&self, place: usize) -> &[u8] {
        if self.posted.get(place) != Some(&false) {
            return &[];
        }
        // SAFETY: `room` bytes from there on are the place's, and only a receive that `&mut self`
        // posts writes there.
        unsafe { std::slice::from_raw_parts(self.start_of(place), self.room) }
    }

    fn start_of(&self, place: usize) -> *const u8 {
        self.memory[place * self.room..].as_ptr().cast()
    }

    /// Whether an operation was begun; not, if there is no room for it yet.
    fn begun(&self, with: Option<usize>, begin: impl FnOnce() -> std::result::Result<(), EngineError>) -> Result<bool> {
        match begin() {
            Ok(()) => Ok(true),
            Err(EngineError::Again) => Ok(false),
            Err(error) => Err(BenchError::machine(self.port.with(with), error)),
        }
    }

    /// Notes an end; what came, if it is a receive that was not cancelled.
    fn note(&mut self, done: &Completion) -> Result<Option<Arrived>> {
        let place = done.context.checked_sub(FIRST).filter(|_| done.kind == OpKind::Recv);
        match place {
            Some(place) => self.posted[place] = false,
            // An injected send that failed was not counted.
            None if done.report => self.sending = self.sending.saturating_sub(1),
            None => {}
        }
        let rank = done.source.and_then(|peer| self.port.rank_of(peer));
        match (done.result, place, rank) {
            (Err(OpError::Cancelled), ..) | (Ok(()), None, _) => Ok(None),
            (Ok(()), Some(place), Some(rank)) => Ok(Some(Arrived { place, rank, tag: done.tag, bytes: done.len })),
            (Ok(()), Some(_), None) => Err(BenchError::machine("Weir", "a message from nobody")),
            (Err(error), _, rank) => Err(BenchError::machine(self.port.with(rank), error)),
        }
    }

    /// Takes receives back and waits for sends; what fails meanwhile is told if `heed`.
    fn end(&mut self, heed: bool) -> Result<()> {
        for place in 0..self.posted.len() {
            if self.posted[place] {
                self.port.endpoint().cancel(FIRST + place);
            }
        }
        let mut failed = None;
        while self.sending > 0 || self.posted.contains(&true) {
            while let Some(done) = self.port.taken() {
                failed = self.note(&done).err().or(failed);
            }
            if let Err(error) = self.port.look() {
                // Nothing completes any more, and nothing of theirs is touched.
                self.sending = 0;
                self.posted.fill(false);
                failed = Some(error);
            }
        }
        failed.filter(|_| heed).map_or(Ok(()), Err)
    }
}

impl Drop for Mailbox<'_, '_> {
    /// After an error: the memory goes, and so does what is sent.
    fn drop(&mut self) {
        let _ = self.end(false);
    }
}

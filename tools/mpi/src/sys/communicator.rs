//! Groups of ranks and the messages between two of them.

use std::ffi::{c_int, c_void};

use super::functions::{Handle, Raw, RawStatus};
use super::library::{Library, on};
use crate::error::Error;
use crate::message::{Source, Tag};

/// A group of ranks that can send to each other.
///
/// Its operations block as MPI's do. Freeing one is collective: all ranks of a communicator should
/// drop it at the same point of the program. Buffers are bytes.
pub struct Communicator {
    pub(super) library: &'static Library,
    pub(super) handle: Handle,
    rank: usize,
    size: usize,
    owned: bool,
}

/// What is known of a message that arrived, or that a probe found.
#[derive(Clone, Copy)]
pub struct Status {
    library: &'static Library,
    raw: RawStatus,
}

impl Status {
    pub(super) fn new(library: &'static Library, raw: RawStatus) -> Self {
        Self { library, raw }
    }

    fn field(&self, offset: usize) -> c_int {
        on!(self.library, t => self.raw.0[t.k.source_at + offset])
    }

    /// The sender's rank in the communicator.
    pub fn source(&self) -> usize {
        usize::try_from(self.field(0)).unwrap_or(usize::MAX)
    }

    /// The message's tag.
    pub fn tag(&self) -> i32 {
        self.field(1)
    }

    /// The message's length in bytes (`MPI_Get_count`).
    ///
    /// # Errors
    /// If MPI fails.
    pub fn bytes(&self) -> Result<usize, Error> {
        let mut count = 0;
        // SAFETY: the status was written by this library, and is as long as any ABI's.
        let code = on!(self.library, t => unsafe { (t.f.get_count)(&raw const self.raw, t.k.byte, &raw mut count) });
        self.library.check("MPI_Get_count", code)?;
        // Negative is MPI_UNDEFINED: more than an int can say, which no receive of ours can take.
        usize::try_from(count).map_err(|_| Error::TooLong(usize::MAX))
    }
}

impl std::fmt::Debug for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut all = f.debug_struct("Status");
        all.field("source", &self.source()).field("tag", &self.tag()).field("bytes", &self.bytes()).finish()
    }
}

/// A length as MPI counts.
#[inline]
pub fn count(length: usize) -> Result<c_int, Error> {
    c_int::try_from(length).map_err(|_| Error::TooLong(length))
}

/// Where an empty buffer is.
static NOTHING: u8 = 0;

/// The address of what is sent. That of an empty slice may be any, and 1 is Open MPI's
/// `MPI_IN_PLACE`: it is a proper one here.
#[inline]
pub fn data(bytes: &[u8]) -> *const c_void {
    if bytes.is_empty() { (&raw const NOTHING).cast() } else { bytes.as_ptr().cast() }
}

/// The same of what is received; nothing is written behind it if there is no room.
#[inline]
pub fn room(bytes: &mut [u8]) -> *mut c_void {
    if bytes.is_empty() { (&raw const NOTHING).cast_mut().cast() } else { bytes.as_mut_ptr().cast() }
}

/// A number that may not be negative: some MPIs have wildcards there.
#[inline]
pub fn not_negative(what: &'static str, value: i32) -> Result<c_int, Error> {
    if value < 0 { Err(Error::Negative { what, value }) } else { Ok(value) }
}

/// A tag as MPI takes it.
#[inline]
pub fn plain_tag(tag: i32) -> Result<c_int, Error> {
    not_negative("tag", tag)
}

impl Communicator {
    /// The same communicator as `handle`, for another thread: not freed with this value.
    pub(super) fn lent(library: &'static Library, handle: Handle, rank: usize, size: usize) -> Self {
        Self { library, handle, rank, size, owned: false }
    }

    pub(super) fn new(library: &'static Library, handle: Handle, owned: bool) -> Result<Self, Error> {
        let (mut rank, mut size) = (0, 0);
        // SAFETY: a communicator of this library, which runs.
        let code = on!(library, t => unsafe { (t.f.comm_rank)(Raw::of(handle), &raw mut rank) });
        library.check("MPI_Comm_rank", code)?;
        // SAFETY: as above.
        let code = on!(library, t => unsafe { (t.f.comm_size)(Raw::of(handle), &raw mut size) });
        library.check("MPI_Comm_size", code)?;
        let positive = |n: c_int| usize::try_from(n).unwrap_or(0);
        Ok(Self { library, handle, rank: positive(rank), size: positive(size), owned })
    }

    /// This process's rank, from 0.
    #[inline]
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many ranks there are.
    #[inline]
    pub fn size(&self) -> usize {
        self.size
    }

    /// A rank as MPI takes it. MPIs may be built without checks of their own.
    #[inline]
    pub(super) fn peer(&self, rank: usize) -> Result<c_int, Error> {
        // Below the size, which was a c_int.
        if rank < self.size { Ok(rank as c_int) } else { Err(Error::NoSuchRank { rank, size: self.size }) }
    }

    /// Source and tag of a receive as MPI takes them.
    #[inline]
    pub(super) fn selected(&self, source: Source, tag: Tag) -> Result<(c_int, c_int), Error> {
        let source = match source {
            Source::Rank(rank) => self.peer(rank)?,
            Source::Any => on!(self.library, t => t.k.any_source),
        };
        let tag = match tag {
            Tag::Is(tag) => plain_tag(tag)?,
            Tag::Any => on!(self.library, t => t.k.any_tag),
        };
        Ok((source, tag))
    }

    /// Sends `bytes` to `rank`; returns when they may be changed again (`MPI_Send`).
    ///
    /// # Errors
    /// If there is no such rank, the message is too long, or MPI fails.
    #[inline]
    pub fn send(&self, bytes: &[u8], rank: usize, tag: i32) -> Result<(), Error> {
        self.library.must_run("MPI_Send")?;
        let (length, rank, tag) = (count(bytes.len())?, self.peer(rank)?, plain_tag(tag)?);
        let (data, comm) = (bytes.as_ptr().cast(), self.handle);
        // SAFETY: `data` can be read for `length` bytes until the call returns; the communicator is
        // not freed before `self`.
        let code = on!(self.library, t => unsafe { (t.f.send)(data, length, t.k.byte, rank, tag, Raw::of(comm)) });
        self.library.check("MPI_Send", code)
    }

    /// Receives a message of at most `buffer`'s length (`MPI_Recv`).
    ///
    /// # Errors
    /// If there is no such rank, the message does not fit, or MPI fails.
    #[inline]
    pub fn receive(&self, buffer: &mut [u8], source: impl Into<Source>, tag: impl Into<Tag>) -> Result<Status, Error> {
        self.library.must_run("MPI_Recv")?;
        let (length, (source, tag)) = (count(buffer.len())?, self.selected(source.into(), tag.into())?);
        let (data, comm) = (buffer.as_mut_ptr().cast(), self.handle);
        let mut status = RawStatus::EMPTY;
        let at = &raw mut status;
        // SAFETY: `data` can be written for `length` bytes until the call returns, and `at` for a
        // status of any ABI.
        let code = on!(self.library, t => unsafe {
            (t.f.recv)(data, length, t.k.byte, source, tag, Raw::of(comm), at)
        });
        self.library.check("MPI_Recv", code)?;
        Ok(Status::new(self.library, status))
    }

    /// Sends and receives at once, so that pairs of ranks cannot wait for each other
    /// (`MPI_Sendrecv`).
    ///
    /// # Errors
    /// As [`Communicator::send`] and [`Communicator::receive`].
    #[inline]
    pub fn send_receive(
        &self,
        (bytes, rank, send_tag): (&[u8], usize, i32),
        (buffer, source, tag): (&mut [u8], Source, Tag),
    ) -> Result<Status, Error> {
        self.library.must_run("MPI_Sendrecv")?;
        let (out, rank, send_tag) = (count(bytes.len())?, self.peer(rank)?, plain_tag(send_tag)?);
        let (room, (source, tag)) = (count(buffer.len())?, self.selected(source, tag)?);
        let (from, to, comm) = (bytes.as_ptr().cast(), buffer.as_mut_ptr().cast(), self.handle);
        let mut status = RawStatus::EMPTY;
        let at = &raw mut status;
        // SAFETY: `from` can be read and `to` written until the call returns, they do not overlap,
        // and `at` holds any status.
        let code = on!(self.library, t => unsafe {
            let byte = t.k.byte;
            (t.f.sendrecv)(from, out, byte, rank, send_tag, to, room, byte, source, tag, Raw::of(comm), at)
        });
        self.library.check("MPI_Sendrecv", code)?;
        Ok(Status::new(self.library, status))
    }

    /// Waits for a message without receiving it (`MPI_Probe`).
    ///
    /// # Errors
    /// If there is no such rank, or MPI fails.
    #[inline]
    pub fn probe(&self, source: impl Into<Source>, tag: impl Into<Tag>) -> Result<Status, Error> {
        self.library.must_run("MPI_Probe")?;
        let (source, tag) = self.selected(source.into(), tag.into())?;
        let mut status = RawStatus::EMPTY;
        let at = &raw mut status;
        // SAFETY: `at` can be written for a status of any ABI.
        let code = on!(self.library, t => unsafe { (t.f.probe)(source, tag, Raw::of(self.handle), at) });
        self.library.check("MPI_Probe", code)?;
        Ok(Status::new(self.library, status))
    }

    /// Looks for a message without waiting or receiving it (`MPI_Iprobe`).
    ///
    /// # Errors
    /// If there is no such rank, or MPI fails.
    #[inline]
    pub fn probe_now(&self, source: impl Into<Source>, tag: impl Into<Tag>) -> Result<Option<Status>, Error> {
        self.library.must_run("MPI_Iprobe")?;
        let (source, tag) = self.selected(source.into(), tag.into())?;
        let (mut status, mut flag) = (RawStatus::EMPTY, 0);
        let (at, there) = (&raw mut status, &raw mut flag);
        // SAFETY: `at` can be written for a status of any ABI, `there` for an integer.
        let code = on!(self.library, t => unsafe { (t.f.iprobe)(source, tag, Raw::of(self.handle), there, at) });
        self.library.check("MPI_Iprobe", code)?;
        Ok((flag != 0).then(|| Status::new(self.library, status)))
    }

    /// A communicator of the same ranks whose messages do not meet this one's (`MPI_Comm_dup`).
    /// Collective.
    ///
    /// # Errors
    /// If MPI fails.
    pub fn duplicate(&self) -> Result<Self, Error> {
        self.library.must_run("MPI_Comm_dup")?;
        let (code, made) = on!(self.library, t => {
            let mut made = t.k.comm_null;
            // SAFETY: the communicator is not freed before `self`.
            let code = unsafe { (t.f.comm_dup)(Raw::of(self.handle), &raw mut made) };
            (code, made.keep())
        });
        self.library.check("MPI_Comm_dup", code)?;
        Self::new(self.library, made, true)
    }

    /// One communicator for all ranks that name the same colour, which is 0 or more, ordered by
    /// `key`, then by rank (`MPI_Comm_split`); none for ranks that name no colour. Collective.
    ///
    /// # Errors
    /// If the colour is negative, or MPI fails.
    pub fn split(&self, colour: Option<i32>, key: i32) -> Result<Option<Self>, Error> {
        self.library.must_run("MPI_Comm_split")?;
        let colour = colour.map(|colour| not_negative("colour", colour)).transpose()?;
        let (code, made) = on!(self.library, t => {
            let mut made = t.k.comm_null;
            let colour = colour.unwrap_or(t.k.undefined);
            // SAFETY: the communicator is not freed before `self`.
            let code = unsafe { (t.f.comm_split)(Raw::of(self.handle), colour, key, &raw mut made) };
            (code, (made != t.k.comm_null).then(|| made.keep()))
        });
        self.library.check("MPI_Comm_split", code)?;
        made.map(|made| Self::new(self.library, made, true)).transpose()
    }

    /// One communicator for all ranks of each node: those that can share memory
    /// (`MPI_Comm_split_type`). Collective.
    ///
    /// # Errors
    /// If MPI fails.
    pub fn split_by_node(&self) -> Result<Self, Error> {
        self.library.must_run("MPI_Comm_split_type")?;
        let (code, made) = on!(self.library, t => {
            let mut made = t.k.comm_null;
            let comm = Raw::of(self.handle);
            // SAFETY: the communicator is not freed before `self`; the other handle is the
            // library's own.
            let code = unsafe { (t.f.comm_split_type)(comm, t.k.shared, 0, t.k.info_null, &raw mut made) };
            (code, made.keep())
        });
        self.library.check("MPI_Comm_split_type", code)?;
        Self::new(self.library, made, true)
    }

    /// Ends all ranks of the job, as [`Mpi::abort`](crate::Mpi::abort).
    pub fn abort(&self, code: i32) -> ! {
        super::library::abort(self.library, code)
    }
}

impl Drop for Communicator {
    /// `MPI_Comm_free`, if it was made here and MPI still runs. In a panic the other ranks are
    /// elsewhere, and are not waited for.
    fn drop(&mut self) {
        if self.owned && self.library.is_running() && !std::thread::panicking() {
            on!(self.library, t => {
                let mut handle = Raw::of(self.handle);
                // SAFETY: made by this library and freed nowhere else. What fails here is of no
                // consequence.
                unsafe { (t.f.comm_free)(&raw mut handle) };
            });
        }
    }
}

//! Several threads of a process that call MPI at once, where the library allows it.

use std::ffi::c_void;

use super::communicator::Communicator;
use super::functions::Handle;
use super::library::{Library, Mpi, abort};
use super::requests::Requests;
use crate::error::Error;
use crate::level::Level;

/// What threads do: [`Mpi::threads`].
pub trait ThreadWork: Sync {
    /// What one of them is given.
    type Seat: Send;
    /// What one of them leaves.
    type Out: Send;

    /// The work of one thread. Its communicator is the one that it was given, under this thread's
    /// name; its requests are its own.
    fn run(&self, communicator: &Communicator, requests: &mut Requests, seat: Self::Seat) -> Self::Out;
}

/// What a thread needs of another one's communicator.
struct Lent {
    library: &'static Library,
    handle: *mut c_void,
    rank: usize,
    size: usize,
}

// SAFETY: the library's functions may be called by several threads at once, as `Mpi::threads` has
// asked it; a handle is a name that all threads of a process share. Of the two cells in `Library`,
// `running` is written by `Mpi::finalize` and `initialise` alone, and `Mpi::threads` borrows the
// `Mpi` until all its threads have ended; `scopes` is not touched by tables of threads.
unsafe impl Send for Lent {}

impl Lent {
    fn of(communicator: &Communicator) -> Self {
        let (rank, size) = (communicator.rank(), communicator.size());
        Self { library: communicator.library, handle: communicator.handle.0, rank, size }
    }

    fn run<W: ThreadWork>(self, work: &W, capacity: usize, seat: W::Seat) -> W::Out {
        let _ends_the_job = Guard(self.library);
        let communicator = Communicator::lent(self.library, Handle(self.handle), self.rank, self.size);
        work.run(&communicator, &mut Requests::of_thread(self.library, capacity), seat)
    }
}

/// Ends the job if its thread panics: the others may wait for it for ever, here and elsewhere.
struct Guard(&'static Library);

impl Drop for Guard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            abort(self.0, 1);
        }
    }
}

impl Mpi {
    /// Runs `own` in this thread and `work` in one more for each of `seats`, all at once, and
    /// returns what each leaves, `own` first. Each has one of the communicators, in this order,
    /// which may be the same one, and a table for `capacity` operations.
    ///
    /// # Errors
    /// If the library does not give [`Level::Multiple`].
    ///
    /// # Panics
    /// If there are fewer communicators than threads. If another thread panics, the job ends.
    pub fn threads<W: ThreadWork>(
        &self,
        work: &W,
        communicators: &[&Communicator],
        capacity: usize,
        seats: Vec<W::Seat>,
        own: impl FnOnce(&Communicator, &mut Requests) -> W::Out,
    ) -> Result<Vec<W::Out>, Error> {
        if self.level() < Level::Multiple {
            return Err(self.refuses_threads());
        }
        assert!(communicators.len() > seats.len(), "a communicator for each thread");
        let lent = communicators[1..].iter().map(|communicator| Lent::of(communicator));
        Ok(std::thread::scope(|scope| {
            let others: Vec<_> =
                lent.zip(seats).map(|(lent, seat)| scope.spawn(move || lent.run(work, capacity, seat))).collect();
            // The others would wait for this thread, and this one for them.
            let _ends_the_job = Guard(self.library);
            let mut left = vec![own(communicators[0], &mut Requests::of_thread(self.library, capacity))];
            // Who panics has ended the process.
            left.extend(others.into_iter().filter_map(|thread| thread.join().ok()));
            left
        }))
    }

    /// Why this library cannot be called by several threads at once, if it gives less than
    /// [`Level::Multiple`].
    pub fn refuses_threads(&self) -> Error {
        let library = self.version().lines().next().unwrap_or_default().split(',').next().unwrap_or_default();
        Error::Threads { library: library.split_whitespace().collect::<Vec<_>>().join(" "), given: self.level() }
    }
}

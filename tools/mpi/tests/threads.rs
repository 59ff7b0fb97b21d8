//! A library that does not let threads call it at once.

mod fake;

use weir_mpi::{Communicator, Error, Level, Mpi, Requests, ThreadWork};

struct Nothing;

impl ThreadWork for Nothing {
    type Seat = ();
    type Out = ();

    fn run(&self, _: &Communicator, _: &mut Requests, (): ()) {}
}

/// One test, as a process can initialise MPI once.
#[test]
fn threads_are_refused_by_what_the_library_gives_not_by_what_was_asked() {
    let dir = tempfile::tempdir().unwrap();
    // 2048 is MPI_THREAD_SERIALIZED of the standard's ABI; a number between two levels promises the
    // lower one.
    let arguments = ["-DABI_VERSION=1", "-DMOST_THREADS=2050"];
    let library = fake::compile(dir.path(), "libmpi_abi.so.1", 3, &arguments);
    let none = weir_job::Env::from_pairs::<&str, &str>([]);
    let mpi = Mpi::load_at(&none, Some(&library), Level::Multiple).unwrap();
    assert_eq!(mpi.level(), Level::Serialized);
    let world = mpi.world().unwrap();
    let error = mpi.threads(&Nothing, &[&world, &world], 1, vec![()], |_, _| ()).unwrap_err();
    assert_eq!(error, Error::Threads { library: "Made up 1.0".into(), given: Level::Serialized });
    let text = "several threads at once need MPI_THREAD_MULTIPLE, and Made up 1.0 gives MPI_THREAD_SERIALIZED";
    assert_eq!(error.to_string(), text);
}

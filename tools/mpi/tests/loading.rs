//! Loading libraries that are, or only say they are, an MPI.

mod fake;

use std::path::Path;

use fake::compile;
use weir_mpi::{Abi, Error, Mpi, load_only};

const MPICH: &str = "libmpi.so.12";
const OPEN_MPI: &str = "libmpi.so.40";
const STANDARD: &str = "libmpi_abi.so.1";

fn refused(library: &Path) -> String {
    let error = load_only(library).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(&library.display().to_string()) && !text.contains('\n'), "{text}");
    text
}

#[test]
fn each_abi_is_loaded_by_its_name_and_symbols() {
    let dir = tempfile::tempdir().unwrap();
    for (soname, number, abi) in [(MPICH, 1, Abi::Mpich), (OPEN_MPI, 2, Abi::OpenMpi), (STANDARD, 3, Abi::Standard)] {
        let library = compile(dir.path(), soname, number, &["-DABI_VERSION=1"]);
        assert_eq!(load_only(&library), Ok((abi, "Made up 1.0".into())));
    }
}

#[test]
fn a_library_without_a_function_is_refused_by_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let library = compile(dir.path(), MPICH, 1, &["-DWITHOUT_WAITALL"]);
    assert!(refused(&library).ends_with("it has no MPI_Waitall"));
}

#[test]
fn a_library_that_is_another_mpi_than_its_name_says_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let liar = compile(dir.path(), MPICH, 1, &["-DLIAR"]);
    assert!(refused(&liar).contains("ompi_mpi_comm_world"));
    let newer = compile(dir.path(), STANDARD, 3, &["-DABI_VERSION=2"]);
    assert!(refused(&newer).contains("version 2.0"));
    let other = compile(dir.path(), "libother.so.1", 1, &[]);
    assert!(refused(&other).contains("libother.so.1"));
}

#[test]
fn a_library_the_linker_refuses_is_refused_in_its_words() {
    let dir = tempfile::tempdir().unwrap();
    let needs = compile(dir.path(), MPICH, 1, &["-DNEEDS"]);
    assert!(refused(&needs).contains("something_else"));
    let text = dir.path().join("libmpi.so");
    std::fs::write(&text, "INPUT(libmpi.so.12)\n").unwrap();
    assert!(refused(&text).contains("not a shared library"));
    assert!(refused(&dir.path().join("none")).contains("not a shared library"));
}

/// All that needs MPI to be initialised, which a process can do once.
#[test]
fn ranks_that_are_alone_are_refused_and_mpi_is_initialised_once() {
    let dir = tempfile::tempdir().unwrap();
    let library = compile(dir.path(), MPICH, 1, &[]);
    let env = weir_job::Env::from_pairs([("PMI_RANK", "2"), ("PMI_SIZE", "4")]);
    let load = || Mpi::load_with(&env, Some(&library)).err().unwrap();
    let error = load();
    assert!(matches!(error, Error::Singleton(_)), "{error:?}");
    assert!(error.to_string().contains("started 4 processes, but each is alone"), "{error}");
    assert_eq!(load(), Error::AlreadyLoaded);
}

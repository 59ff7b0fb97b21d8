//! The recorder itself, in front of a real MPI: where `cargo xtask` has put MPICH. Elsewhere the
//! test is told as one that is left out.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

const PROGRAM: &str = r#"#include <mpi.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int told = getenv("WEIR_RECORD_DIR") != NULL;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return told;
}
"#;

/// What carries MPI's messages looks at all variables that begin with WEIR_, and calls those that
/// it does not know.
#[test]
fn the_folders_variable_is_gone_when_mpi_begins_and_the_recording_is_made() {
    let mpicc = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/mpi/mpich/bin/mpicc");
    if !mpicc.exists() {
        // `cargo xtask test` counts the line as a test skipped, which the test program itself
        // cannot; not by a macro, as of tests that pass that is not shown.
        let name = "the_folders_variable_is_gone_when_mpi_begins_and_the_recording_is_made";
        let line = format!("IGNORED, not passed: {name}. There is no MPICH: {}\n", mpicc.display());
        let _ = std::io::stderr().write_all(line.as_bytes());
        return;
    }
    let lab = tempfile::tempdir().unwrap();
    let at = |name: &str| lab.path().join(name);
    fs::write(at("program.c"), PROGRAM).unwrap();
    weir_record::record::build(mpicc.as_os_str(), &at("librecorder.so")).unwrap();
    let built = Command::new(&mpicc).arg(at("program.c")).arg("-o").arg(at("program")).status().unwrap();
    assert!(built.success());
    let mut alone = Command::new(at("program"));
    alone.env("LD_PRELOAD", at("librecorder.so")).env("WEIR_RECORD_DIR", lab.path());
    assert_eq!(alone.status().unwrap().code(), Some(0));
    assert!(fs::metadata(at("rank-0.weirrec")).unwrap().len() > 8);
}

//! A chore whose reader goes away, as in `cargo xtask mpirun ... | head`, ends at once and without
//! a word.

use std::process::{Command, Stdio};

#[test]
fn output_that_nobody_reads_ends_the_chore_quietly() {
    let (reader, writer) = std::io::pipe().expect("pipe");
    drop(reader);
    let out = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["bench", "mpi", "--list"])
        .stdin(Stdio::null())
        .stdout(writer)
        .stderr(Stdio::piped())
        .output()
        .expect("start");
    assert_eq!((out.status.code(), String::from_utf8_lossy(&out.stderr).as_ref()), (Some(141), ""));
}

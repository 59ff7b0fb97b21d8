//! A command whose reader goes away, as in `weir stat 1 --every 1 | head`, ends at once and without a word.

use std::process::{Command, Stdio};

/// The writing end of a pipe that nobody reads.
fn nobody() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("pipe");
    drop(reader);
    writer.into()
}

fn weir(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(args).stdin(Stdio::null());
    command
}

#[test]
fn output_that_nobody_reads_ends_the_command_quietly() {
    let out = weir(&["completions", "bash"]).stdout(nobody()).stderr(Stdio::piped()).output().expect("start");
    assert_eq!((out.status.code(), String::from_utf8_lossy(&out.stderr).as_ref()), (Some(141), ""));
}

#[test]
fn complaints_that_nobody_reads_end_the_command_likewise() {
    for args in [&["stat", "--file", "/nonexistent"][..], &["emulate", "exec", "no-such-network", "host1", "true"]] {
        let status = weir(args).stdout(Stdio::null()).stderr(nobody()).status().expect("start");
        assert_eq!(status.code(), Some(141), "{args:?}");
    }
}

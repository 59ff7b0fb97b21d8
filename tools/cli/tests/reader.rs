//! A command whose reader goes away, as in `weir stat 1 --every 1 | head`, ends at once and without
//! a word.

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
fn output_that_cannot_be_written_is_told_in_a_line() {
    for args in [&["emulate", "list", "--json"][..], &["completions", "bash"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
        let out = weir(args).stdout(full).stderr(Stdio::piped()).output().expect("start");
        let told = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(![Some(0), Some(101)].contains(&out.status.code()), "{args:?}: {:?} {told}", out.status);
        assert!(told.starts_with("weir: ") && told.lines().count() == 1, "{args:?}: {told}");
    }
}

#[test]
fn complaints_that_nobody_reads_end_the_command_likewise() {
    for args in [&["stat", "--file", "/nonexistent"][..], &["emulate", "exec", "no-such-network", "host1", "true"]] {
        let status = weir(args).stdout(Stdio::null()).stderr(nobody()).status().expect("start");
        assert_eq!(status.code(), Some(141), "{args:?}");
    }
}

#[test]
fn what_is_said_on_a_full_disk_is_lost_and_the_work_is_done() {
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
    for (args, code) in [
        (&["stat", "--file", "/nonexistent"][..], 1),
        (&["bench", "serverload", "serve", "no-url"], 2),
        (&["bmi", "ping"], 2),
        (&["report", ".", "--format", "svg", "-o", "-"], 1),
        (&["predict", "/nonexistent", "-n", "2"], 1),
    ] {
        let out = weir(args).stdout(Stdio::null()).stderr(full()).status().expect("start");
        assert_eq!(out.code(), Some(code), "{args:?}");
    }
    // The variables are printed though what is said beside them is lost.
    let mut command = weir(&["env", "--mpi", "intel"]);
    command.env("WEIR_KEY", "0".repeat(64)).env_remove("WEIR_KEY_FILE").stderr(full());
    let library = tempfile::tempdir().expect("a folder");
    std::fs::write(library.path().join("libweir-fi.so"), "").expect("a file");
    let out = command.env("WEIR_LIB", library.path()).output().expect("start");
    assert_eq!(out.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&out.stdout).contains("FI_PROVIDER=weir"));
}

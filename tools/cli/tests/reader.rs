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
    for args in [&["completions", "bash"][..], &["--help"], &["bench", "--help"]] {
        let out = weir(args).stdout(nobody()).stderr(Stdio::piped()).output().expect("start");
        assert_eq!((out.status.code(), String::from_utf8_lossy(&out.stderr).as_ref()), (Some(141), ""), "{args:?}");
    }
}

#[test]
fn output_that_cannot_be_written_is_told_in_a_line() {
    let all: &[&[&str]] = &[
        &["emulate", "list", "--json"],
        &["completions", "bash"],
        &["--help"],
        &["-h"],
        &["--version"],
        &["help", "run"],
        &["run", "--help"],
        &["emulate", "--help"],
        &["bench", "serverload", "--help"],
        &["bench", "--list"],
        &["doctor"],
        &["info"],
        &["stat"],
        &["man"],
        &["cc", "--show", "a.c"],
        &["run", "--dry-run", "--local", "true"],
    ];
    for args in all {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
        let out = weir(args).stdout(full).stderr(Stdio::piped()).output().expect("start");
        let told = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(![Some(0), Some(101)].contains(&out.status.code()), "{args:?}: {:?} {told}", out.status);
        assert!(
            (told.starts_with("weir: ") || told.starts_with("weir bench: ")) && told.lines().count() == 1,
            "{args:?}: {told}"
        );
    }
}

#[test]
fn a_long_prediction_is_ended_by_an_interrupt() {
    use std::os::unix::process::ExitStatusExt;
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(at("p"), "Loop while = 1 {\nSerial time = exponential(1)\n}\n").expect("a file");
    std::fs::write(at("m.toml"), "[network]\nlatency_us = 10\nbandwidth_MB_per_s = 100\n").expect("a file");
    // Steps that take longer than anybody waits.
    let budget = u64::MAX.to_string();
    let args = ["predict", &at("p"), "--machine", &at("m.toml"), "-n", "1", "--budget", &budget];
    let mut child = weir(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("start");
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(child.try_wait().expect("wait").is_none(), "it is not long");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.id().cast_signed()), nix::sys::signal::Signal::SIGINT)
        .expect("kill");
    assert_eq!(child.wait().expect("wait").signal(), Some(2));
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

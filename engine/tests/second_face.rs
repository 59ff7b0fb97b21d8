//! The second face (`examples/superstep.rs`) with four processes on each carrier.

#[path = "../examples/superstep.rs"]
mod superstep;

use std::process::{Command, Stdio};

/// Not a test of its own: the processes.
#[test]
fn part() {
    if let Some(result) = superstep::part() {
        let carriers = result.expect("a superstep");
        let wanted = std::env::var("SUPERSTEP_CARRIER").expect("set by the test");
        assert_eq!(carriers, wanted);
    }
}

fn runs(size: usize, carrier: &str, seen: &str) {
    let command = || {
        let mut command = Command::new(std::env::current_exe().expect("own path"));
        command
            .args(["--exact", "part", "--nocapture"])
            .env("WEIR_CARRIER", carrier)
            .env("WEIR_ADDR", "127.0.0.1")
            .env("SUPERSTEP_CARRIER", seen)
            .stdout(Stdio::null());
        command
    };
    superstep::launch(size, command).unwrap_or_else(|e| panic!("{size} processes over {carrier}: {e}"));
}

/// What a face needs of the engine is little: with its launcher and its program it stays readable
/// in one sitting.
#[test]
fn a_second_face_has_at_most_300_lines() {
    assert!(include_str!("../examples/superstep.rs").lines().count() <= 300);
}

// One after the other: each launch has a socket named by the process.
#[test]
fn a_second_face_runs_on_shared_memory_on_packets_and_on_tcp() {
    runs(4, "shm", "shm");
    runs(4, "udp", "udp");
    // With those that a process exchanges nothing long with it has no connection.
    runs(4, "tcp", "udp udp+tcp");
    runs(1, "auto", "");
}

//! Transfers of 64 MiB of which one side is killed or stopped in the middle (spec/bmi.md F1 to F4),
//! by the C program `c/kills.c`: each operation ends once, in the time that is stated, memory comes
//! back, and others are served.

mod common;

use common::{Program, build};

/// What a peer's end may take to be known, ms, on a machine that does nothing else; it is tried
/// again on one that does.
const TRIES: usize = 4;

/// Runs a case until it stays within the limit, which the first does on a quiet machine. `cuts`:
/// so many transfers at least are to be cut, in all.
fn within(limit_ms: u32, cuts: u32, args: &[&str], vars: &[(&str, &str)]) {
    let program = build("kills", &[]);
    let (mut took, mut cut) = (Vec::new(), 0);
    for _ in 0..TRIES {
        let said = Program::new(&program, args).vars(vars).passes();
        let words: Vec<&str> = said.split_whitespace().collect();
        let [ms, "ms", n, "cut"] = words[..] else { panic!("{args:?} says '{said}'") };
        took.push(ms.parse::<u32>().expect("a number"));
        cut += n.parse::<u32>().expect("a number");
        if took.last().is_some_and(|ms| *ms <= limit_ms) && cut >= cuts {
            return;
        }
    }
    panic!("{args:?} {vars:?}: {cut} of {cuts} cut, ends after {took:?} ms, never within {limit_ms}");
}

/// A kernel says at once that a program has ended; over packets it says so when something is sent
/// to it, but in the middle of traffic it may have said it too often by then: the timeout counts.
const SAID_MS: u32 = 100;
const SILENT_MS: u32 = 2200;

fn are_killed(scheme: &str, limit_ms: u32, vars: &[(&str, &str)]) {
    within(limit_ms, 3, &[scheme, "clients", "3"], vars);
    within(limit_ms, 2, &[scheme, "servers", "2"], vars);
}

#[test]
fn killed_over_shared_memory() {
    are_killed("weir", SAID_MS, &[("WEIR_CARRIER", "shm")]);
}

#[test]
fn killed_over_packets() {
    are_killed("weir", SILENT_MS, &[("WEIR_CARRIER", "udp")]);
}

#[test]
fn killed_over_packets_and_bulk_connections() {
    are_killed("weir", SILENT_MS, &[("WEIR_CARRIER", "tcp")]);
}

#[test]
fn killed_over_the_tcp_wire_of_orangefs() {
    are_killed("tcp", SAID_MS, &[]);
}

#[test]
fn killed_over_the_tcp_wire_of_radix() {
    are_killed("tcp", SAID_MS, &[("WEIR_BMI_TCP_WIRE", "radix")]);
}

/// F4, T10. They wait for each other most of the time, so all of them at once.
#[test]
fn stopped() {
    let all: [(&str, &[(&str, &str)]); 4] = [
        ("weir", &[("WEIR_CARRIER", "shm")]),
        ("weir", &[("WEIR_CARRIER", "udp")]),
        ("weir", &[("WEIR_CARRIER", "tcp")]),
        ("tcp", &[]),
    ];
    std::thread::scope(|scope| {
        for (scheme, vars) in all {
            scope.spawn(move || {
                let vars = [vars, &[("WEIR_PEER_TIMEOUT_MS", "1000")]].concat();
                within(1500, if scheme == "tcp" { 0 } else { 3 }, &[scheme, "stops", "300", "2000"], &vars);
            });
        }
    });
}

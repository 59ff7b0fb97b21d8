//! The C program `c/conformance.c` over each carrier and each method.

mod common;

use common::{Program, build};

fn cases(scheme: &str, vars: &[(&str, &str)]) {
    let program = build("conformance", &[]);
    Program::new(&program, &[scheme]).vars(vars).passes();
}

#[test]
fn over_shared_memory() {
    cases("weir", &[("WEIR_CARRIER", "shm")]);
}

#[test]
fn over_packets() {
    cases("weir", &[("WEIR_CARRIER", "udp")]);
}

#[test]
fn over_packets_and_bulk_connections() {
    cases("weir", &[("WEIR_CARRIER", "tcp")]);
}

#[test]
fn over_the_tcp_wire_of_orangefs() {
    cases("tcp", &[]);
}

#[test]
fn over_the_tcp_wire_of_radix() {
    cases("tcp", &[("WEIR_BMI_TCP_WIRE", "radix")]);
}

/// D1.
#[test]
fn with_the_functions_of_orangefs() {
    let program = build("conformance", &["-DDIALECT_ORANGEFS", "-DWEIR_BMI_ORANGEFS"]);
    Program::new(&program, &["weir"]).passes();
}

/// A few mixes of posts, tests and cancels, each another time other ones.
fn mixes(scheme: &str, vars: &[(&str, &str)]) {
    let program = build("mix", &[]);
    let begin = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |t| t.as_secs());
    for seed in (0..3).chain([begin]) {
        Program::new(&program, &[scheme, &seed.to_string()]).vars(vars).passes();
    }
}

/// F11, F12.
#[test]
fn mixes_of_posts_tests_and_cancels_agree_with_the_model_over_shared_memory() {
    mixes("weir", &[("WEIR_CARRIER", "shm")]);
}

#[test]
fn and_over_packets_of_which_some_are_lost() {
    mixes("weir", &[("WEIR_CARRIER", "udp"), ("WEIR_FAULTS", "loss=1%,dup=1%")]);
}

#[test]
fn and_over_the_tcp_wire() {
    mixes("tcp", &[]);
}

//! Two servers that look each other up and send at the same moment (spec/bmi.md H13, T7), by the C
//! program `c/meets.c`: nothing is lost or comes twice.

mod common;

use common::{Program, build};

const CARRIERS: [(&str, &[(&str, &str)]); 4] = [
    ("weir", &[("WEIR_CARRIER", "shm")]),
    ("weir", &[("WEIR_CARRIER", "udp")]),
    ("weir", &[("WEIR_CARRIER", "tcp")]),
    ("tcp", &[]),
];

fn meet(how: &str, rounds: &str) {
    let program = build("meets", &[]);
    for (scheme, vars) in CARRIERS {
        Program::new(&program, &[scheme, how, rounds]).vars(vars).passes();
    }
}

#[test]
fn two_that_dial_each_other_at_once_have_all_of_it_once() {
    meet("dial", "300");
}

/// A6, F3.
#[test]
fn an_address_that_is_dropped_and_looked_up_at_once_is_good() {
    meet("drop", "300");
}

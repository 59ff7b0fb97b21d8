//! The C program `c/conformance.c` over SCTP, which needs usrsctp. Where it is missing the test is
//! reported as ignored, not as passed.

mod common;

use common::{Program, build};
use libtest_mimic::{Arguments, Trial};
use std::process::ExitCode;

fn main() -> ExitCode {
    let missing = weir_engine::sctp_available().err();
    if let Some(why) = &missing {
        eprintln!("ignored: {why}");
    }
    let trial = Trial::test("over_sctp", || {
        let program = build("conformance", &[]);
        Program::new(&program, &["weir"]).vars(&[("WEIR_CARRIER", "sctp")]).passes();
        Ok(())
    });
    libtest_mimic::run(&Arguments::from_args(), vec![trial.with_ignored_flag(missing.is_some())]).exit_code()
}

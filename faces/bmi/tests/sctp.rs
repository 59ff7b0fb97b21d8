//! `bmi_sctp`, and `bmi_weir` over SCTP (spec/bmi.md V1, V6), by the C program `c/conformance.c`.
//! Where usrsctp is missing these tests are reported as ignored, not as passed.

mod common;

use common::{Program, build};
use libtest_mimic::{Arguments, Trial};
use std::path::Path;
use std::process::ExitCode;

/// What the dynamic linker looks for.
const LIBRARY: &str = "libusrsctp.so.2";

fn cases(scheme: &str, vars: &[(&str, &str)]) {
    Program::new(&build("conformance", &[]), &[scheme]).vars(vars).passes();
}

/// V6: where the library is not there, or is none.
fn without_the_library() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("no-sctp");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join(LIBRARY), "no library").expect("written");
    let path = folder.to_str().expect("a path");
    let said = Program::new(&build("nosctp", &[]), &[]).vars(&[("LD_LIBRARY_PATH", path)]).passes_saying();
    let lines =
        said.lines().filter(|line| line.contains("bmi_sctp: no SCTP: ") && line.contains("libusrsctp2")).count();
    assert_eq!(lines, 3, "{said}");
}

fn main() -> ExitCode {
    let missing = weir_engine::sctp_available().err();
    if let Some(why) = &missing {
        eprintln!("ignored: {why}");
    }
    let trials: [(&str, fn()); 3] = [
        ("over_sctp", || cases("weir", &[("WEIR_CARRIER", "sctp")])),
        // Whatever is set.
        ("by_name", || cases("sctp", &[("WEIR_CARRIER", "shm")])),
        ("by_name_beside_bmi_weir", || {
            Program::new(&build("nosctp", &[]), &["there"]).passes();
        }),
    ];
    let of = |(name, run): (&str, fn())| {
        let run = move || {
            run();
            Ok(())
        };
        Trial::test(name, run).with_ignored_flag(missing.is_some())
    };
    let mut trials: Vec<Trial> = trials.into_iter().map(of).collect();
    trials.push(Trial::test("by_name_without_the_library", || {
        without_the_library();
        Ok(())
    }));
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

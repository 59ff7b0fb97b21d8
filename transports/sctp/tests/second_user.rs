//! The library serves one user in a process: who comes second is told so. A program of its own,
//! for the first user here is not this crate. Without the library it is reported as ignored.

use std::process::ExitCode;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use libtest_mimic::{Arguments, Failed, Trial};
use weir_sctp::{Association, Config, NoSctp, available, port_of};

fn main() -> ExitCode {
    // SAFETY: the library's initialisers are its own affair; nothing of it is called.
    let first = unsafe { Library::open(Some("libusrsctp.so.2"), RTLD_NOW | RTLD_LOCAL) };
    let absent = first.is_err();
    if absent {
        eprintln!("ignored: there is no libusrsctp.so.2 (Debian: libusrsctp2)");
    }
    let trial = Trial::test("a_second_user_is_told_that_the_library_is_in_use", || {
        told();
        Ok::<(), Failed>(())
    });
    let ended = libtest_mimic::run(&Arguments::from_args(), vec![trial.with_ignored_flag(absent)]);
    drop(first);
    ended.exit_code()
}

fn told() {
    let config = Config { streams: 3, rto_min_ms: 1000, packet_bytes: 1400 };
    // The first user may go; what was said stays.
    for _ in 0..2 {
        let Err(why) = available() else { panic!("there is another user") };
        assert!(matches!(why, NoSctp::InUse), "{why}");
        let [one, two] = [0, 1].map(|place| port_of(place).expect("a port"));
        let error = Association::open(one, two, &config).expect_err("there is another user");
        assert!(error.to_string().contains("something else in this process uses usrsctp"), "{error}");
    }
}

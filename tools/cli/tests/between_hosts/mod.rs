//! What the tests between two hosts share, which `weir emulate` makes in network namespaces. Where
//! these cannot be made every test is reported as ignored, with the reason.

use std::process::{Command, Output};

use libtest_mimic::{Arguments, Failed, Trial};

pub const WEIR: &str = env!("CARGO_BIN_EXE_weir");
pub const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
#[allow(dead_code, reason = "not each of the test programs has strangers")]
pub const OTHER_KEY: &str = "ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

pub type Test = fn() -> Result<(), Failed>;

/// Runs the tests and ends the program.
pub fn run<const N: usize>(arguments: &Arguments, tests: [(&str, Test); N]) -> ! {
    let probe = emulated("true");
    let said = probe.as_ref().map_or_else(ToString::to_string, |output| text(&output.stderr));
    let works = probe.is_ok_and(|output| output.status.success());
    let ignored = !works && said.contains("cannot make network namespaces");
    if ignored {
        eprintln!("\nIGNORED, not passed: all {N} tests between hosts. {said}\n");
    }
    let trials = tests.map(|(name, test)| Trial::test(name, test).with_ignored_flag(ignored));
    libtest_mimic::run(arguments, trials.into()).exit()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a script says beside two hosts, `host1` and `host2`, with nothing set but the key and
/// `WEIR`.
pub fn emulated(script: &str) -> std::io::Result<Output> {
    emulated_with(script, &[])
}

/// The same with these set too.
pub fn emulated_with(script: &str, set: &[(&str, &str)]) -> std::io::Result<Output> {
    let mut command = Command::new(WEIR);
    command.args(["emulate", "--hosts", "2", "--", "timeout", "120", "sh", "-c", script]);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("WEIR_")) {
        command.env_remove(name);
    }
    command.env("WEIR_KEY", KEY).env("WEIR", WEIR).envs(set.iter().copied()).output()
}

//! A network namespace whose loopback is slow, for tests of full send buffers. Where that cannot be
//! had such a test is to be reported as ignored, not as passed. `engine/tests` includes this file
//! too.

use libtest_mimic::{Failed, Trial};
use std::process::Command;

/// Tells the test program that it runs inside.
const INSIDE: &str = "WEIR_TEST_SLOW_LINK";

/// Loopback at 40 Mbit/s, so that datagrams stay in the queue and are charged to the socket.
const SLOW_LOOPBACK: &str = "ip link set lo up && tc qdisc add dev lo root tbf rate 40mbit burst 10kb latency 10s";

/// Whether this program runs where the link is slow: then it should do its test and nothing else.
pub fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// The test program's one test that needs the link, run by starting the program anew inside.
pub fn trial(name: &str) -> Trial {
    let missing = missing();
    if let Some(reason) = &missing {
        eprintln!("\nIGNORED, not passed: {name}. {reason}\n");
    }
    Trial::test(name, run_inside).with_ignored_flag(missing.is_some())
}

/// Why there is no slow link, if there is none.
fn missing() -> Option<String> {
    let Some(mut c) = unshare() else {
        return Some("There are no network namespaces, or no unshare (util-linux)".into());
    };
    match c.args(["sh", "-c", SLOW_LOOPBACK]).output() {
        Ok(o) if o.status.success() => None,
        Ok(o) => Some(format!(
            "ip and tc (iproute2) cannot slow down loopback: {}",
            String::from_utf8_lossy(&o.stderr).trim()
        )),
        Err(e) => Some(e.to_string()),
    }
}

/// A command line that runs the rest in a new network namespace.
fn unshare() -> Option<Command> {
    ["-n", "-rn"].into_iter().find_map(|flags| {
        let works = Command::new("unshare").args([flags, "true"]).output().ok()?.status.success();
        works.then(|| {
            let mut c = Command::new("unshare");
            c.arg(flags);
            c
        })
    })
}

fn run_inside() -> Result<(), Failed> {
    let exe = std::env::current_exe()?;
    let script = format!("{SLOW_LOOPBACK} && exec \"$0\"");
    let mut c = unshare().ok_or("namespaces are gone")?;
    let out = c.args(["sh", "-c", &script]).arg(exe).env(INSIDE, "1").output()?;
    if out.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&out.stderr).into_owned().into()) }
}

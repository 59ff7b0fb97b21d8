//! `weir ping` between two emulated hosts: what passes, what is dropped, and whose key is another.
//!
//! Where namespaces cannot be made every test is reported as ignored, with the reason.

mod between_hosts;

use std::process::Output;

use between_hosts::{KEY, OTHER_KEY, Test, emulated, text};
use libtest_mimic::{Arguments, Failed};

/// Datagrams that come to host2 are dropped without a word: its own routes are asked after ours.
const DROP_UDP: &str = "$WEIR_LAUNCH_AGENT host2 'ip rule add pref 10 ipproto udp iif \
    $(ip -o -4 addr show | grep -v \" lo \" | head -n 1 | cut -d \" \" -f 2) blackhole; \
    ip rule add pref 20 lookup local; ip rule del pref 0' || exit 9; ";

fn main() {
    let arguments = Arguments::from_args();
    let tests: [(&str, Test); 4] = [
        ("all that passes is told with its numbers", all_passes),
        ("dropped datagrams are told apart from no way at all", udp_dropped),
        ("another key is told with both fingerprints", another_key),
        ("an end that listens is asked by who has the key", listening),
    ];
    between_hosts::run(&arguments, tests)
}

fn check(output: &Output, code: i32, expected: &[&str]) -> Result<(), Failed> {
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    let missing = expected.iter().find(|words| !out.contains(**words) && !err.contains(**words));
    match (output.status.code() == Some(code), missing) {
        (true, None) => Ok(()),
        (_, missing) => Err(format!("{}, {missing:?} not said:\n{out}\n{err}", output.status).into()),
    }
}

fn all_passes() -> Result<(), Failed> {
    let output = emulated("$WEIR_LAUNCH_AGENT host1 $WEIR ping host2 -c 50")?;
    let expected = [
        "ok       version",
        "ok       key          the same on both",
        "ok       udp          UDP passes both ways",
        "ok       tcp          TCP passes both ways",
        "ok       mtu          the largest datagram of those tried that passes has 1472 bytes, both ways",
        "ok       round trip   of 8 bytes: median ",
        "(50 of them)",
        "ok       rate         of messages of 1 MiB: ",
    ];
    check(&output, 0, &expected)
}

fn udp_dropped() -> Result<(), Failed> {
    let output = emulated(&format!("{DROP_UDP} $WEIR_LAUNCH_AGENT host1 $WEIR ping host2"))?;
    let one = "ERROR    udp          UDP from this host to host2 does not pass, TCP does: a firewall or security group drops UDP";
    check(&output, 1, &[one, "ok       tcp", "endpoints do not find each other", "WEIR_PORT=45000-45100"])
}

fn another_key() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let agent = folder.path().join("agent");
    // The host's own key is another one, whatever this shell's is.
    std::fs::write(&agent, format!("host=$1; shift; exec $WEIR_LAUNCH_AGENT $host env WEIR_KEY={OTHER_KEY} \"$@\"\n"))?;
    let file = folder.path().join("key");
    std::fs::write(&file, KEY)?;
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    let ping = format!(
        "unset WEIR_KEY; export WEIR_KEY_FILE={}; $WEIR ping host2 --agent 'sh {}'",
        file.display(),
        agent.display()
    );
    let output = emulated(&format!("$WEIR_LAUNCH_AGENT host1 \"{ping}\""))?;
    check(
        &output,
        1,
        &["ERROR    key          other keys: ", " on this host (from ", " on host2 (from WEIR_KEY)", "ok       udp"],
    )
}

fn listening() -> Result<(), Failed> {
    let listen = "$WEIR_LAUNCH_AGENT host2 $WEIR ping --listen 47470 & sleep 1; ";
    let output = emulated(&format!(
        "{listen} $WEIR_LAUNCH_AGENT host1 $WEIR ping host2:47470 -c 20; code=$?; kill $!; exit $code"
    ))?;
    check(&output, 0, &["listening at ", "ok       round trip", "(20 of them)"])?;
    // Of one host the listener knows at once how the other process ended.
    let beside = emulated(&format!(
        "{listen} $WEIR_LAUNCH_AGENT host2 $WEIR ping host2:47470 -c 20; code=$?; sleep 0.5; kill $!; exit $code"
    ))?;
    check(&beside, 0, &["is done"])?;
    if text(&beside.stderr).contains("taken for dead") {
        return Err(format!("who has got its answers is no dead peer:\n{}", text(&beside.stderr)).into());
    }
    let other = format!(
        "{listen} $WEIR_LAUNCH_AGENT host1 env WEIR_KEY={OTHER_KEY} $WEIR ping host2:47470; code=$?; kill $!; exit $code"
    );
    check(&emulated(&other)?, 1, &["another key: ", "give both hosts the same WEIR_KEY or WEIR_KEY_FILE"])?;
    let closed = emulated("$WEIR_LAUNCH_AGENT host1 $WEIR ping host2:47470")?;
    check(&closed, 1, &["refuses: is weir ping --listen running there"])?;
    let unknown = emulated("$WEIR_LAUNCH_AGENT host1 $WEIR ping no-such-host.invalid:1")?;
    check(&unknown, 1, &["the name no-such-host.invalid is not known here"])
}

//! `weir bench` between two hosts in network namespaces that `weir emulate` makes: Weir's own
//! endpoints, a rank on each.
//!
//! Where namespaces cannot be made every test is reported as ignored, with the reason.

mod between_hosts;

use std::process::Output;

use between_hosts::{Test, emulated, text};
use libtest_mimic::{Arguments, Failed};

fn main() {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let tests: [(&str, Test); 2] = [
        ("a rank on each host of the emulator", each),
        ("hosts by words of one's own, and one that is not there", own_words),
    ];
    between_hosts::run(&arguments, tests)
}

fn said(output: &Output) -> String {
    text(&output.stdout) + &text(&output.stderr)
}

/// What the guide says to type, with less to measure; its title comes through the shells whole.
fn each() -> Result<(), Failed> {
    let script = "folder=$(mktemp -d); trap 'rm -r $folder' EXIT
        $WEIR bench --transport weir --hosts $WEIR_HOSTS -t ping-pong -s 8,64k --reps 50 --title \"it's 'there'\" --json -o $folder/run";
    let output = emulated(script)?;
    let run: serde_json::Value =
        serde_json::from_slice(&output.stdout).map_err(|e| format!("{e}: {}", said(&output)))?;
    let names: Vec<&str> = run["nodes"].as_array().into_iter().flatten().filter_map(|n| n["name"].as_str()).collect();
    let cells = run["cells"].as_array().map_or(0, Vec::len);
    if !output.status.success() || names != ["host1", "host2"] || cells != 2 || run["title"] != "it's 'there'" {
        return Err(format!("{}, nodes {names:?}, {cells} cells, title {}", output.status, run["title"]).into());
    }
    let network = &run["network"];
    if network["emulator"] != "weir emulate" || network["networks"][0]["settings"]["mtu"] != "1500" {
        return Err(format!("the emulated network is not in the record: {network}").into());
    }
    let by_packets = |cell: &serde_json::Value| cell["carried"]["weir_udp_bytes"].as_u64() > Some(0);
    match run["cells"].as_array().is_some_and(|cells| cells.iter().all(by_packets)) {
        true => Ok(()),
        false => Err(format!("not all went by packets: {}", run["cells"]).into()),
    }
}

fn own_words() -> Result<(), Failed> {
    let bench = "$WEIR bench --transport weir -t ping-pong -s 8 --reps 20 -q";
    let words = "--agent \"$WEIR emulate exec $WEIR_EMULATE_NAME %h\"";
    let output = emulated(&format!("{bench} --hosts $WEIR_HOSTS {words}"))?;
    if !output.status.success() || !said(&output).contains("2x1") {
        return Err(said(&output).into());
    }
    let output = emulated(&format!("{bench} --hosts host1,host7"))?;
    let told = said(&output);
    match output.status.code() {
        Some(1) if told.contains("there is no host 'host7'") && told.contains("rank 1 on host7 ended") => Ok(()),
        code => Err(format!("{code:?}: {told}").into()),
    }
}

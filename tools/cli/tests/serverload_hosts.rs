//! `weir bench serverload serve` on one host and its clients on another, in network namespaces that
//! `weir emulate` makes.
//!
//! Where namespaces cannot be made every test is reported as ignored, with the reason.

mod between_hosts;

use std::process::Output;

use between_hosts::{OTHER_KEY, Test, emulated_with, text};
use libtest_mimic::{Arguments, Failed};

/// The fingerprints of the two.
const KEY_NAME: &str = "2f1c412369c47938";
const OTHER_NAME: &str = "4ea86d81a36ee42c";

fn main() {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let tests: [(&str, Test); 3] = [
        ("clients of another host find a server by itself", found),
        ("who has another key is told so on both sides", another_key),
        ("hosts have no key where their leader has none", open),
    ];
    between_hosts::run(&arguments, tests)
}

/// The folder of the library that Cargo has just built beside the tests.
fn library() -> String {
    let folder = std::env::current_exe().expect("this program").parent().expect("its folder").to_owned();
    assert!(folder.join("libweir_bmi.so").exists(), "{}", folder.display());
    folder.to_str().expect("a name").to_owned()
}

/// A server on host1, its command begun `with` these words, until its clients, of this command,
/// have ended; what both say, and the exit code of the clients.
fn served(with: &str, method: &str, clients: &str) -> Result<Output, Failed> {
    let script = format!(
        "folder=$(mktemp -d); trap 'rm -r $folder' EXIT; said=$folder/said
        $WEIR_LAUNCH_AGENT host1 \"echo \\$\\$ >$folder/pid; exec {with} $WEIR bench serverload serve {method}://host1:4000 --for 60\" >$said 2>&1 & server=$!
        until grep -q 'serving at' $said; do kill -0 $server || {{ cat $said; exit 9; }}; sleep 0.05; done
        {clients}; code=$?
        kill -TERM $(cat $folder/pid); wait $server; cat $said; exit $code"
    );
    Ok(emulated_with(&script, &[("WEIR_LIB", &library())])?)
}

fn check(output: &Output, code: i32, expected: &[&str], not: &[&str]) -> Result<(), Failed> {
    let said = text(&output.stdout) + &text(&output.stderr);
    let missing = expected.iter().find(|words| !said.contains(**words));
    let wrong = not.iter().find(|words| said.contains(**words));
    match (output.status.code() == Some(code), missing, wrong) {
        (true, None, None) => Ok(()),
        (_, missing, wrong) => {
            Err(format!("{}, not said: {missing:?}, said: {wrong:?}:\n{said}", output.status).into())
        }
    }
}

const ASK: &str = "$WEIR bench serverload --clients 2 -s 20000 --rounds 5 --quiet";

fn found() -> Result<(), Failed> {
    for method in ["weir", "tcp", "sockets"] {
        let output = served("", method, &format!("$WEIR_LAUNCH_AGENT host2 {ASK} --server {method}://host1:4000"))?;
        check(&output, 0, &["how the clients were served", " us of processor time each"], &[" 0 requests", "refused"])?;
    }
    Ok(())
}

fn another_key() -> Result<(), Failed> {
    let ask = format!("$WEIR_LAUNCH_AGENT host2 env WEIR_KEY={OTHER_KEY} {ASK} --server weir://host1:4000 --timeout 1");
    let server = [
        format!("to whoever has key {KEY_NAME} (from WEIR_KEY)"),
        format!("packets come that are not sealed with key {KEY_NAME}"),
    ];
    let client = "weir://host1:4000 answers nothing: ".to_owned();
    let here = format!("; here is key {OTHER_NAME} (from WEIR_KEY), is it the server's?");
    let expected =
        [&server[0], &server[1], &client, &here, "0 requests in ", " packets were refused: not sealed with its key"];
    check(&served("", "weir", &ask)?, 1, &expected, &[])
}

/// `WEIR_BMI_OPEN` goes to hosts whose shell has it not, as the other settings do.
fn open() -> Result<(), Failed> {
    let agent = "$folder/agent";
    let ask = format!(
        "echo 'host=$1; shift; unset WEIR_BMI_OPEN; exec $WEIR_LAUNCH_AGENT $host \"$@\"' >{agent}
        export WEIR_BMI_OPEN=1; {ASK} --server weir://host1:4000 --hosts host2 --agent \"sh {agent}\""
    );
    let output = served("env WEIR_BMI_OPEN=1", "weir", &ask)?;
    check(
        &output,
        0,
        &["to whoever has everybody's key (WEIR_BMI_OPEN=1)", "how the clients were served"],
        &["refused"],
    )
}

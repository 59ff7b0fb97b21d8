//! `weir stat --every` until the process it watches is gone.

use std::io::Write;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// What the command says and ends with, when the process that it watches is ended, or closes its endpoint, after two answers.
fn watched(ends: bool) -> (u32, Output) {
    let mut process = Command::new("sleep").arg("600").spawn().unwrap();
    let pid = process.id();
    let address = SocketAddr::from_abstract_name(format!("weir-stat-{pid}")).unwrap();
    let listener = UnixListener::bind_addr(&address).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let words = ["stat", &pid.to_string(), "--every", "1", "--json"];
    let command = command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    for polls in [3, 10] {
        let document = format!(r#"{{"pid":{pid},"endpoints":[{{"endpoint":"ab","engine":{{"polls":{polls}}}}}]}}"#);
        listener.accept().unwrap().0.write_all(document.as_bytes()).unwrap();
    }
    if ends {
        process.kill().unwrap();
        // Ended, though nobody has waited for it.
        let state = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        while !state().contains(") Z ") {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    drop(listener);
    let output = command.wait_with_output().unwrap();
    let _ = process.kill();
    process.wait().unwrap();
    (pid, output)
}

#[test]
fn watching_a_process_until_it_ends_is_no_failure() {
    for (ends, told) in [(true, "has ended"), (false, "runs, but has closed its last Weir endpoint")] {
        let (pid, output) = watched(ends);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(stderr, format!("weir: process {pid} {told}\n"));
        assert_eq!(output.status.code(), Some(0), "{stderr}");
        assert!(stdout.lines().count() == 1 && stdout.contains(r#""polls":7"#), "{stdout}");
    }
}

/// Ranks that are stopped are what one looks for where a job hangs: each has its line, and none keeps those after it from being asked.
#[test]
fn processes_that_do_not_answer_are_listed_with_the_others() {
    let spawn = || Command::new("sleep").arg("600").spawn().unwrap();
    let mut all: Vec<_> = (0..5).map(|_| spawn()).collect();
    let listen = |pid: u32| {
        UnixListener::bind_addr(&SocketAddr::from_abstract_name(format!("weir-stat-{pid}")).unwrap()).unwrap()
    };
    let mut pids: Vec<u32> = all.iter().map(std::process::Child::id).collect();
    pids.sort_unstable();
    let listeners: Vec<UnixListener> = pids.iter().map(|pid| listen(*pid)).collect();
    let command = Command::new(env!("CARGO_BIN_EXE_weir")).arg("stat").stdout(Stdio::piped()).spawn().unwrap();
    // The last of them lives.
    let answer = format!(r#"{{"pid":{},"endpoints":[{{"engine":{{"eager_sends":7}}}}]}}"#, pids[4]);
    let lives = listeners[4].try_clone().unwrap();
    std::thread::spawn(move || lives.accept().unwrap().0.write_all(answer.as_bytes()));
    let output = command.wait_with_output().unwrap();
    all.iter_mut().for_each(|process| {
        let _ = process.kill();
        process.wait().unwrap();
    });
    let text = String::from_utf8_lossy(&output.stdout);
    let line = |pid: &u32| {
        let of = |line: &&str| line.split_whitespace().next() == Some(&pid.to_string());
        text.lines().find(of).unwrap_or_else(|| panic!("no line of {pid}: {text}"))
    };
    assert!(pids[..4].iter().all(|pid| line(pid).contains("no answer; is it stopped?")), "{text}");
    assert!(line(&pids[4]).contains(" 7 "), "{text}");
}

#[test]
fn a_file_that_was_left_empty_is_called_so() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_weir")).args(["stat", "--file"]).arg(file.path()).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains(" is empty: ") && told.lines().count() == 1, "{told}");
    assert_eq!(output.status.code(), Some(1));
}

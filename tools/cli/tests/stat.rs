//! `weir stat --every` until the process it watches is gone.

use std::io::Write;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The list asks all processes: also one that another test wants to be asked by its own command.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Processes that end with this, also where the test fails.
struct Ended(Vec<Child>);

impl Drop for Ended {
    fn drop(&mut self) {
        for process in &mut self.0 {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn state_of(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap()
}

/// What the command says and ends with, when the process that it watches is ended, or closes its
/// endpoint, after two answers.
fn watched(ends: bool, as_job: bool) -> (u32, Output) {
    let mut process = Command::new("sleep").arg("600").spawn().unwrap();
    let pid = process.id();
    let address = SocketAddr::from_abstract_name(format!("weir-stat-{pid}")).unwrap();
    let listener = UnixListener::bind_addr(&address).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let whom = if as_job { &["--job"][..] } else { &[] };
    let command = command.arg("stat").args(whom).arg(pid.to_string()).args(["--every", "1", "--json"]);
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    for polls in [3, 10] {
        let document = format!(r#"{{"pid":{pid},"endpoints":[{{"endpoint":"ab","engine":{{"polls":{polls}}}}}]}}"#);
        listener.accept().unwrap().0.write_all(document.as_bytes()).unwrap();
    }
    if ends {
        process.kill().unwrap();
        // Ended, though nobody has waited for it.
        while !state_of(pid).contains(") Z ") {
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
    let _alone = alone();
    for (ends, told) in [(true, "has ended"), (false, "runs, but has closed its last Weir endpoint")] {
        let (pid, output) = watched(ends, false);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(stderr, format!("weir: process {pid} {told}\n"));
        assert_eq!(output.status.code(), Some(0), "{stderr}");
        assert!(stdout.lines().count() == 1 && stdout.contains(r#""polls":7"#), "{stdout}");
    }
}

#[test]
fn a_job_is_watched_until_none_of_its_processes_is_left() {
    let _alone = alone();
    let (pid, output) = watched(true, true);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(stderr, format!("weir: no process of job {pid} has a Weir endpoint open any more\n"));
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(stdout.lines().count() == 1 && stdout.contains(r#""polls":7"#), "{stdout}");
}

/// Ranks that are stopped are what one looks for where a job hangs: each has its line, and none
/// keeps those after it from being asked.
#[test]
fn processes_that_do_not_answer_are_listed_with_the_others_and_called_stopped_only_if_they_are() {
    let _alone = alone();
    let mut all: Vec<Child> = (0..6).map(|_| Command::new("sleep").arg("600").spawn().unwrap()).collect();
    all.sort_unstable_by_key(Child::id);
    let ids: Vec<u32> = all.iter().map(Child::id).collect();
    let ended = Ended(all);
    let listen = |pid: &u32| {
        UnixListener::bind_addr(&SocketAddr::from_abstract_name(format!("weir-stat-{pid}")).unwrap()).unwrap()
    };
    let listeners: Vec<UnixListener> = ids.iter().map(listen).collect();
    for pid in &ids[..4] {
        kill(Pid::from_raw(i32::try_from(*pid).unwrap()), Signal::SIGSTOP).unwrap();
        while !state_of(*pid).contains(") T ") {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    // The last of them answers.
    let answer = format!(r#"{{"pid":{},"endpoints":[{{"engine":{{"eager_sends":7}}}}]}}"#, ids[5]);
    let lives = listeners[5].try_clone().unwrap();
    std::thread::spawn(move || lives.incoming().flatten().for_each(|mut one| drop(one.write_all(answer.as_bytes()))));
    // Where the machine is so busy that its thread does not run for a second, it is asked again.
    let answered = (0..60).any(|_| {
        let output = Command::new(env!("CARGO_BIN_EXE_weir")).arg("stat").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let line = |pid: &u32| {
            let of = |line: &&str| line.split_whitespace().next() == Some(&pid.to_string());
            text.lines().find(of).unwrap_or_else(|| panic!("no line of {pid}: {text}"))
        };
        assert!(ids[..4].iter().all(|pid| line(pid).contains("  stopped  ")), "{text}");
        assert!(ids[4..].iter().all(|pid| !line(pid).contains("stopped")), "{text}");
        assert!(line(&ids[4]).contains("no answer within "), "{text}");
        line(&ids[5]).contains(" 7 ")
    });
    drop(ended);
    assert!(answered);
}

#[test]
fn a_file_that_was_left_empty_is_called_so() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_weir")).args(["stat", "--file"]).arg(file.path()).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains(" is empty: ") && told.lines().count() == 1, "{told}");
    assert_eq!(output.status.code(), Some(1));
}

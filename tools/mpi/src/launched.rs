//! Waiting for a launcher, and ending it so that its processes end with it.

use std::io;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Between two looks at a child.
const LOOK: Duration = Duration::from_millis(10);
/// What a launcher gets to end its processes.
const GRACE: Duration = Duration::from_secs(3);

/// Waits for a child for so long. One that is not done by then is asked to end by `SIGTERM`, for a
/// launcher that is killed leaves its processes behind; what does not end within 3 s is killed.
/// `None`: it was not done.
///
/// # Errors
/// If it cannot be waited for, or not be killed.
pub fn ended(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let status = done_within(child, limit)?;
    if status.is_none() {
        // It may just have ended; it is not waited for yet, so nobody else has its number.
        let _ = kill_process(Pid::from_child(child), Signal::TERM);
        if done_within(child, GRACE)?.is_none() {
            child.kill()?;
            child.wait()?;
        }
    }
    Ok(status)
}

fn done_within(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let begin = Instant::now();
    loop {
        match child.try_wait()? {
            None if begin.elapsed() < limit => std::thread::sleep(LOOK),
            other => return Ok(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn shell(script: &str) -> Child {
        Command::new("sh").args(["-c", script]).stdin(Stdio::null()).spawn().expect("sh starts")
    }

    #[test]
    fn what_a_launcher_started_ends_with_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let pid = folder.path().join("pid");
        // As launchers do: they end their processes when they are asked to end.
        let script =
            format!("sleep 100 & echo $! > {0}.new; mv {0}.new {0}; trap 'kill $!; exit 1' TERM; wait", pid.display());
        let mut launcher = shell(&script);
        assert_eq!(ended(&mut launcher, Duration::from_secs(1)).expect("it can be waited for"), None);
        let pid = std::fs::read_to_string(&pid).expect("the launcher has started its process");
        let lives = || {
            // Nobody may have waited for it yet.
            std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).is_ok_and(|s| !s.contains(") Z "))
        };
        let begin = Instant::now();
        while lives() && begin.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(LOOK);
        }
        assert!(!lives(), "process {} was left behind", pid.trim());
    }

    #[test]
    fn who_does_not_listen_is_killed() {
        let mut deaf = shell("trap '' TERM; while :; do sleep 0.1; done");
        assert_eq!(ended(&mut deaf, Duration::from_millis(300)).expect("it can be waited for"), None);
        assert!(deaf.try_wait().expect("it can be asked").is_some());
    }

    #[test]
    fn who_ends_in_time_tells_how() {
        let status = ended(&mut shell("exit 7"), Duration::from_secs(20)).expect("it can be waited for");
        assert_eq!(status.and_then(|s| s.code()), Some(7));
    }
}

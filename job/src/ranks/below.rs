//! All processes below this one, children of children included, and their end.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpid};
use rustix::io::Errno;
use rustix::process::{WaitOptions, wait};

/// What processes get to be gone after SIGKILL; one may be in the kernel on a device that does not
/// answer.
const GONE_LIMIT: Duration = Duration::from_secs(10);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(2);

/// Makes this process the parent of whatever below it loses its own.
pub fn adopt_orphans() -> nix::Result<()> {
    nix::sys::prctl::set_child_subreaper(true)
}

/// Sends a signal to all below this process. Those that end meanwhile, or are another's, are left
/// out.
pub fn signal_all(signal: Signal) {
    for pid in all() {
        let _ = kill(pid, signal);
    }
}

/// Kills all below this process and waits for them, whatever they start meanwhile.
pub fn end_all() {
    let begin = Instant::now();
    loop {
        signal_all(Signal::SIGKILL);
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(None) | Err(Errno::INTR) => break,
                Ok(Some(_)) => {}
                Err(_) => return,
            }
        }
        if begin.elapsed() > GONE_LIMIT {
            return;
        }
        std::thread::sleep(LOOK);
    }
}

/// The processes below this one, parents before their children.
fn all() -> Vec<Pid> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        // proc(5): after the name in parentheses come the state and the parent.
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let parent = stat.rsplit_once(')').and_then(|(_, after)| after.split_whitespace().nth(1)?.parse::<i32>().ok());
        if let Some(parent) = parent {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = Vec::new();
    let mut queue = vec![getpid().as_raw()];
    while let Some(parent) = queue.pop() {
        for child in children.remove(&parent).into_iter().flatten() {
            found.push(Pid::from_raw(child));
            queue.push(child);
        }
    }
    found
}

//! Running other programs: bounded in time, cleaned up whole, with their output at hand.

use std::collections::BTreeSet;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// What became of a program that ran under a time limit.
#[derive(Debug)]
pub struct Outcome {
    /// `None` if it was stopped because its time was up.
    pub status: Option<ExitStatus>,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
    /// How long it ran.
    pub elapsed: Duration,
    /// Its time was up, and nothing that it had started was running any more.
    pub alone: bool,
    /// Its time was up: how it and its offspring had shared the machine with others.
    pub shared: Option<Shared>,
}

/// How long threads ran, and how long they could have run while others did. That they waited for
/// most of the time says that the machine was too busy, not that they hung.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shared {
    ran: Duration,
    waited: Duration,
}

impl Outcome {
    /// Ended by itself, with exit code 0.
    pub fn ok(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// One line that says how it ended and what it said last.
    pub fn cause(&self) -> String {
        let how = match self.status {
            None => {
                let shared = self.shared.map_or_else(String::new, |shared| format!(" ({})", shared.told()));
                format!("timeout after {:.0} s{shared}", self.elapsed.as_secs_f64())
            }
            Some(status) => status.to_string(),
        };
        let said = self.stderr.lines().chain(self.stdout.lines()).find(|line| is_telling(line));
        said.map_or_else(|| how.clone(), |line| format!("{how}: {}", line.trim()))
    }
}

impl Shared {
    /// Of these processes, as far as they live and the kernel counts it
    /// (`/proc/PID/task/TID/schedstat`).
    fn of(processes: impl Iterator<Item = u32>) -> Option<Self> {
        let threads =
            processes.filter_map(|pid| std::fs::read_dir(format!("/proc/{pid}/task")).ok()).flatten().flatten();
        let texts = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("schedstat")).ok());
        let mut all = Self::default();
        for text in texts {
            let mut ns = text.split_whitespace().filter_map(|word| word.parse().ok()).map(Duration::from_nanos);
            all.ran += ns.next()?;
            all.waited += ns.next()?;
        }
        (!all.ran.is_zero()).then_some(all)
    }

    fn told(self) -> String {
        let (ran, waited) = (self.ran.as_secs_f64(), self.waited.as_secs_f64());
        format!("its processes had run for {ran:.1} s and waited for a processor for {waited:.1} s")
    }
}

/// Launchers frame the one useful line with banners, and warnings come before it.
fn is_telling(line: &str) -> bool {
    let line = line.trim();
    line.len() > 3
        && line.chars().any(char::is_alphanumeric)
        && !line.contains("BAD TERMINATION")
        && !line.contains("Warning")
        && !line.starts_with("warning: ")
}

/// Bytes of output kept of each stream; a runaway program must not fill our memory.
const MAX_OUTPUT_BYTES: usize = 16 << 20;

/// How often it is asked whether to send a signal.
const LOOK: Duration = Duration::from_millis(50);

/// How long the readers wait for the end of the output once the program has ended.
const GRACE: Duration = Duration::from_secs(5);

/// What a stream has said so far, and the thread that listens.
struct Reader {
    text: Arc<Mutex<Vec<u8>>>,
    thread: thread::JoinHandle<()>,
}

fn drain(stream: Option<impl Read + Send + 'static>) -> Reader {
    let text = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&text);
    let thread = thread::spawn(move || {
        let Some(mut stream) = stream else { return };
        let mut chunk = [0; 16 << 10];
        // At an error as at the end: there is nothing more.
        while let Ok(n @ 1..) = stream.read(&mut chunk) {
            let mut text = into.lock().unwrap_or_else(PoisonError::into_inner);
            let room = MAX_OUTPUT_BYTES.saturating_sub(text.len());
            text.extend_from_slice(&chunk[..n.min(room)]);
        }
    });
    Reader { text, thread }
}

impl Reader {
    /// The text. A daemon that slipped away may hold the stream open for ever, so this does not
    /// wait for its end longer than until `deadline`.
    fn finish(self, deadline: Instant) -> String {
        while !self.thread.is_finished() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        String::from_utf8_lossy(&self.text.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}

/// Runs `command` and waits at most `limit`; then it and everything it started is ended.
///
/// # Errors
/// Only if the program cannot be started; that it failed is in the [`Outcome`].
pub fn run_limited(command: &mut Command, limit: Duration) -> Result<Outcome> {
    run_signalled(command, limit, Signal::CONT, || false)
}

/// The same; `signal` is sent to the program itself, not to what it started, as soon as `when` says
/// so, once.
///
/// # Errors
/// As above.
pub fn run_signalled(
    command: &mut Command,
    limit: Duration,
    signal_sent: Signal,
    when: impl Fn() -> bool,
) -> Result<Outcome> {
    // Orphans of an ended launcher come to us, so that they can be found and ended too.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let begin = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot start {}", command.get_program().to_string_lossy()))?;
    let stdout = drain(child.stdout.take());
    let stderr = drain(child.stderr.take());
    let status = wait_signalling(&mut child, begin + limit, signal_sent, when)?;
    let elapsed = begin.elapsed();
    let (mut alone, mut shared) = (false, None);
    if status.is_none() {
        alone = !has_offspring(child.id());
        shared = Shared::of(descendants(child.id()).into_iter().chain([child.id()]));
        end_tree(&mut child)?;
    }
    end_orphans(child.id());
    let deadline = Instant::now() + GRACE;
    Ok(Outcome { status, stdout: stdout.finish(deadline), stderr: stderr.finish(deadline), elapsed, alone, shared })
}

fn wait_signalling(
    child: &mut Child,
    deadline: Instant,
    signal_sent: Signal,
    when: impl Fn() -> bool,
) -> Result<Option<ExitStatus>> {
    while Instant::now() < deadline {
        if let Some(status) = wait_until(child, deadline.min(Instant::now() + LOOK))? {
            return Ok(Some(status));
        }
        if when() {
            signal(child.id(), signal_sent);
            break;
        }
    }
    wait_until(child, deadline)
}

fn wait_until(child: &mut Child, deadline: Instant) -> Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// First asks (launchers then end their ranks on other hosts), after two seconds forces.
fn end_tree(child: &mut Child) -> Result<()> {
    let tree = descendants(child.id());
    signal(child.id(), Signal::TERM);
    if wait_until(child, Instant::now() + Duration::from_secs(2))?.is_none() {
        child.kill()?;
        child.wait()?;
    }
    for pid in tree {
        signal(pid, Signal::KILL);
    }
    Ok(())
}

/// Ends what is left of a launch: processes of its group that now are our children.
fn end_orphans(group: u32) {
    let me = std::process::id();
    end_listed(|| {
        let all = processes().into_iter();
        all.filter(|p| p.parent == me && (p.group == group || p.session == group)).map(|p| p.pid).collect()
    });
}

/// Ends all other processes of which `which` holds, and waits until there are none, though not for
/// ever.
pub fn end_all(which: impl Fn(u32) -> bool) {
    let me = std::process::id();
    end_listed(|| processes().into_iter().map(|p| p.pid).filter(|&pid| pid != me && which(pid)).collect());
}

fn end_listed(list: impl Fn() -> Vec<u32>) {
    for _ in 0..50 {
        let left = list();
        if left.is_empty() {
            return;
        }
        for pid in left {
            signal(pid, Signal::KILL);
            if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
                let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::NOHANG);
            }
        }
        thread::sleep(Duration::from_millis(10));
    }
}

fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
        // It may have ended in the meantime; that is what we want.
        let _ = kill_process(pid, signal);
    }
}

/// Whether something that this process started, and did not leave, is running: not ended, waited
/// for or not.
fn has_offspring(root: u32) -> bool {
    let tree = descendants(root);
    processes().iter().any(|p| tree.contains(&p.pid) && !p.has_ended)
}

struct Process {
    pid: u32,
    has_ended: bool,
    parent: u32,
    group: u32,
    session: u32,
}

/// All processes, from `/proc/*/stat` (proc(5): after the name in parentheses come state, parent,
/// group, session).
fn processes() -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |i: usize| fields.get(i)?.parse().ok();
        Some(Process {
            pid,
            has_ended: fields.first() == Some(&"Z"),
            parent: number(1)?,
            group: number(2)?,
            session: number(3)?,
        })
    })
    .collect()
}

fn descendants(root: u32) -> BTreeSet<u32> {
    let all = processes();
    let mut found = BTreeSet::from([root]);
    loop {
        let before = found.len();
        found.extend(all.iter().filter(|p| found.contains(&p.parent)).map(|p| p.pid).collect::<Vec<_>>());
        if found.len() == before {
            found.remove(&root);
            return found;
        }
    }
}

/// No chore takes this long, but for one that hangs.
const CHORE_LIMIT: Duration = Duration::from_secs(1800);

/// Runs a chore whose output the user should see; fails with the command line if it fails.
pub fn run_shown(command: &mut Command) -> Result<()> {
    let line = line_of(command);
    let mut child = command.stdin(Stdio::null()).spawn().with_context(|| format!("cannot start: {line}"))?;
    match wait_until(&mut child, Instant::now() + CHORE_LIMIT)? {
        None => {
            end_tree(&mut child)?;
            bail!("{line}: not done after {} s", CHORE_LIMIT.as_secs());
        }
        Some(status) if !status.success() => bail!("{line}: {status}"),
        Some(_) => Ok(()),
    }
}

/// Runs a chore quietly; if it fails, the error holds what it said.
pub fn run_quiet(command: &mut Command) -> Result<String> {
    let line = line_of(command);
    let outcome = run_limited(command, CHORE_LIMIT)?;
    match outcome.status {
        None => bail!("{line}: not done after {} s", CHORE_LIMIT.as_secs()),
        Some(status) if !status.success() => bail!("{line}: {status}\n{}", outcome.stderr.trim_end()),
        Some(_) => Ok(outcome.stdout),
    }
}

/// The command as one would type it, for messages and reports.
pub fn line_of(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(|word| {
            let word = word.to_string_lossy();
            let plain = !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || "-_./=:,+@%^".contains(c));
            if plain { word.into_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
        })
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_past_its_time_is_ended_with_its_children() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 600 & echo $!; sleep 600"]);
        // Enough for a busy machine to start them.
        let outcome = run_limited(&mut command, Duration::from_secs(3)).unwrap();
        assert!(outcome.status.is_none() && !outcome.ok() && !outcome.alone);
        assert!(outcome.elapsed < Duration::from_secs(300), "half of what it would have run");
        let grandchild: u32 = outcome.stdout.trim().parse().unwrap();
        let begin = Instant::now();
        while processes().iter().any(|p| p.pid == grandchild && p.parent != std::process::id()) {
            assert!(begin.elapsed() < Duration::from_secs(60), "the grandchild still runs");
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_program_past_its_time_tells_whether_it_had_a_processor() {
        if Shared::of([std::process::id()].into_iter()).is_none() {
            return eprintln!("the kernel does not count");
        }
        // Two that compute on one processor: what the one runs, the other waits for.
        let script = "cpu=$(taskset -pc $$ | sed 's/.*: //; s/[-,].*//'); taskset -pc $cpu $$ >&2; (while :; do :; done) & while :; do :; done";
        let outcome = run_limited(Command::new("sh").args(["-c", script]), Duration::from_secs(3)).unwrap();
        let shared = outcome.shared.expect("its time was up");
        assert!(shared.ran > Duration::from_millis(50) && shared.waited > Duration::from_millis(500), "{shared:?}");
        let cause = Outcome { stderr: String::new(), ..outcome }.cause();
        assert!(cause.starts_with("timeout after ") && cause.contains(" s (its processes had run for "), "{cause}");
        assert!(run_limited(&mut Command::new("true"), Duration::from_secs(60)).unwrap().shared.is_none());
    }

    #[test]
    fn a_program_whose_children_have_ended_is_alone() {
        let outcome = run_limited(Command::new("sh").args(["-c", "true & exec sleep 600"]), Duration::from_secs(2));
        assert!(outcome.unwrap().alone);
        assert!(!run_limited(&mut Command::new("true"), Duration::from_secs(60)).unwrap().alone);
    }

    #[test]
    fn a_daemon_that_keeps_the_stream_open_holds_nobody_up() {
        let mut command = Command::new("sh");
        command.args(["-c", "setsid sleep 600 & echo $!"]);
        let outcome = run_limited(&mut command, Duration::from_secs(60)).unwrap();
        assert!(outcome.ok());
        signal(outcome.stdout.trim().parse().unwrap(), Signal::KILL);
    }

    #[test]
    fn output_and_status_are_kept() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo oh no >&2; exit 3"]);
        let outcome = run_limited(&mut command, Duration::from_secs(60)).unwrap();
        assert_eq!(outcome.stdout, "out\n");
        assert_eq!(outcome.cause(), "exit status: 3: oh no");
    }

    #[test]
    fn command_lines_are_quoted() {
        let mut command = Command::new("env");
        command.args(["A=udp;ofi_rxd", "x"]);
        assert_eq!(line_of(&command), "env 'A=udp;ofi_rxd' x");
    }
}

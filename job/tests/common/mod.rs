//! A launch of the example `rank`, watched from outside.

#![allow(dead_code)]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Nothing here takes long; a machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);
/// By this variable the processes of one test are found.
const MARK: &str = "WEIR_TEST_MARK";

/// A program of this crate.
pub fn example(name: &str) -> PathBuf {
    let me = std::env::current_exe().unwrap();
    me.ancestors().nth(2).unwrap().join("examples").join(name)
}

/// A launch of some ranks, known by its mark.
pub struct Launch {
    mark: String,
    /// To which a test may add.
    pub command: Command,
}

impl Launch {
    /// By this command, to which the example `rank` and its steps are added.
    pub fn new(test: &str, mut command: Command, steps: &[&str]) -> Self {
        let mark = format!("{test}-{}", std::process::id());
        command.arg(example("rank")).args(steps).env(MARK, &mark);
        let set: Vec<_> = command.get_envs().map(|(name, _)| name.to_owned()).collect();
        for (name, _) in std::env::vars() {
            let others = ["WEIR_JOB", "WEIR_LAUNCH", "PMI", "SLURM", "OMPI_"];
            if others.iter().any(|other| name.starts_with(other)) && !set.iter().any(|known| *known == *name) {
                command.env_remove(name);
            }
        }
        Self { mark, command }
    }

    /// Runs it to its end, after which nothing of it may run: at once, since the launcher is
    /// Weir's.
    pub fn output(mut self) -> Output {
        let output = self.command.stdin(Stdio::null()).output().unwrap();
        assert_eq!(self.left(), Vec::<i32>::new(), "processes are left behind");
        output
    }

    /// The same by another's launcher, which may take its time to clear up.
    pub fn output_of_others(mut self) -> Output {
        let child = self.command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let output = child.wait_with_output().unwrap();
        self.nothing_is_left();
        output
    }

    /// The processes of this launch that run, except those that have ended and wait for their
    /// parent.
    pub fn left(&self) -> Vec<i32> {
        let wanted = format!("{MARK}={}", self.mark);
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            let variables = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            if variables.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
                && !is_over(&entry.path())
            {
                found.push(pid);
            }
        }
        found
    }

    /// Waits until nothing runs any more.
    pub fn nothing_is_left(&self) {
        let begin = Instant::now();
        while !self.left().is_empty() {
            assert!(begin.elapsed() < PATIENCE, "left behind: {:?}", self.left());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Starts it, and waits until every rank has printed its line.
    pub fn started(&mut self, ranks: usize) -> Child {
        let mut child =
            self.command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        for _ in 0..ranks {
            assert!(lines.next().unwrap().contains("all data are right"));
        }
        // What is printed later finds no reader, and nothing is.
        child
    }
}

/// Waits for something.
pub fn until(what: &str, mut is: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is() {
        assert!(begin.elapsed() < PATIENCE, "{what}: not yet");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The process that started another, or took it over; 0 where it is gone.
pub fn parent_of(pid: i32) -> i32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
}

/// Whether a process, named by its folder in `/proc`, has ended.
pub fn is_over(process: &Path) -> bool {
    let stat = std::fs::read_to_string(process.join("stat")).unwrap_or_default();
    stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']))
}

/// Output as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Waits for the end of a launcher; its exit code.
pub fn ended(child: &mut Child) -> Option<i32> {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        assert!(begin.elapsed() < PATIENCE, "the launcher goes on");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Sends a signal.
pub fn kill(pid: i32, signal: &str) {
    assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
}

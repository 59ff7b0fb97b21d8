//! Starting a job of Weir's own: this process starts the ranks, tells each the others' names, and
//! waits for all.

use std::ffi::{OsStr, OsString};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use weir_engine::NAME_BYTES;

use crate::error::{BenchError, Result};
use crate::stop::Asked;

/// The rank's number, and how many there are, in the environment of each rank.
pub const RANK: &str = "WEIR_BENCH_RANK";
/// See [`RANK`].
pub const RANKS: &str = "WEIR_BENCH_RANKS";
/// Ranks that do not come within this time do not come.
const MEETING: Duration = Duration::from_secs(60);
/// When one rank has ended badly, or a stop was asked for, the others are given this time: they end
/// by themselves a little earlier.
const GRACE: Duration = Duration::from_secs(8);
/// The same once rank 0 has ended after a stop was asked for: all is said and written.
const AFTER_RANK_0: Duration = Duration::from_secs(2);
/// The exit code of who was asked to stop: 128 + SIGINT.
const INTERRUPTED: u8 = 130;
/// How often the children are looked at.
const LOOK: Duration = Duration::from_millis(5);

/// A job to be started.
pub struct Job {
    /// Ranks.
    pub ranks: usize,
    /// What starts a rank's command where it is to run.
    pub agent: Agent,
    /// This program's own words.
    pub words: Vec<OsString>,
}

/// What starts the ranks' commands, and on which hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Agent {
    /// Words before a command: `%r` stands for the rank, `%h` for its host. None: it starts here.
    words: Vec<String>,
    /// By rank, in turn.
    hosts: Vec<String>,
    /// The words take a command as ssh does: for a shell.
    by_shell: bool,
}

impl Agent {
    /// As the command line says (`--hosts`, `--agent`), and `WEIR_LAUNCH_AGENT`.
    ///
    /// # Errors
    /// In a line: hosts that nothing leads to, or words without a host.
    pub fn of(hosts: &[String], words: Option<&str>, of_emulator: Option<&str>) -> std::result::Result<Agent, String> {
        let hosts = hosts.to_vec();
        let Some(given) = words else {
            let Some(program) = of_emulator.filter(|_| !hosts.is_empty()) else {
                return match hosts.is_empty() {
                    true => Ok(Agent::default()),
                    false => Err(NO_WAY.into()),
                };
            };
            return Ok(Agent { words: vec![program.into(), "%h".into()], hosts, by_shell: true });
        };
        let words: Vec<String> = given.split_whitespace().map(str::to_owned).collect();
        let names = |what: &str| words.iter().any(|word| word.contains(what));
        match (hosts.is_empty(), names("%h")) {
            _ if words.is_empty() => Err("--agent: no word in it".into()),
            (true, true) => Err("--agent: %h is a host of --hosts, which names none".into()),
            (false, false) if !names("%r") => Err(format!("--agent {given:?} leads to no host: %h stands for it")),
            _ => Ok(Agent { words, hosts, by_shell: false }),
        }
    }

    /// A rank as people know it: with its host, else with what starts it elsewhere.
    fn named(&self, rank: usize) -> String {
        match self.hosts.is_empty() && !self.words.is_empty() {
            true => format!("rank {rank}, started by {:?},", self.words_for(rank).collect::<Vec<_>>().join(" ")),
            false => named(&self.hosts, rank),
        }
    }

    /// The words before a rank's command.
    fn words_for(&self, rank: usize) -> impl Iterator<Item = String> {
        let host = host_of(&self.hosts, rank).unwrap_or_default();
        self.words.iter().map(move |word| word.replace("%r", &rank.to_string()).replace("%h", host))
    }

    /// The command of a rank, of these words.
    fn command(&self, rank: usize, words: impl Iterator<Item = OsString>) -> Option<Command> {
        let mut agent = self.words_for(rank);
        let mut words = words;
        let mut command = match agent.next() {
            Some(program) => Command::new(program),
            None => Command::new(words.next()?),
        };
        command.args(agent);
        if self.by_shell {
            // The shell makes room for the command: it is that which signals are for.
            command.arg("exec").args(words.map(|word| quoted(&word)));
        } else {
            command.args(words);
        }
        Some(command)
    }
}

/// The host of a rank, of hosts that have them in turn.
fn host_of(hosts: &[String], rank: usize) -> Option<&str> {
    rank.checked_rem(hosts.len()).map(|at| hosts[at].as_str())
}

/// A rank as people know it, with its host if hosts are named.
#[must_use]
pub fn named(hosts: &[String], rank: usize) -> String {
    host_of(hosts, rank).map_or_else(|| format!("rank {rank}"), |host| format!("rank {rank} on {host}"))
}

/// What is said of hosts that nothing leads to.
const NO_WAY: &str = "--hosts: they are hosts of this machine, as weir emulate makes them, and here is none of its networks (WEIR_LAUNCH_AGENT is not set); \
say by --agent how a command starts on one, e.g. --agent 'ip netns exec %h'; between machines measure over an MPI: weir run -n 2 --hosts node1,node2 weir bench";

/// A word as a shell takes it.
fn quoted(word: &OsStr) -> OsString {
    // Only a zero byte cannot be quoted, and no argument has one.
    let quoted = shlex::bytes::try_quote(word.as_bytes());
    quoted.map_or_else(|_| word.to_owned(), |word| OsString::from_vec(word.into_owned()))
}

/// Starts the ranks and waits until all have ended; returns the worst exit code.
///
/// # Errors
/// If a rank cannot be started or does not come to the meeting.
pub fn run(job: &Job, asked: &Asked) -> Result<u8> {
    let folder = meeting_folder()?;
    let socket = folder.path().join("meet");
    let listener = UnixListener::bind(&socket).map_err(|error| BenchError::file(&socket, error))?;
    listener.set_nonblocking(true).map_err(|error| BenchError::file(&socket, error))?;
    // Hung up on after the ranks have ended: who wrote of a meeting that is over would say it once
    // for each.
    let mut met: Vec<UnixStream> = Vec::new();
    let mut children = Children { all: Vec::new(), agent: &job.agent };
    for rank in 0..job.ranks {
        children.all.push(start(job, rank, &socket)?);
    }
    if !introduce((&listener, &mut met), &mut children, &asked.stop)? {
        weir_put::tell!("weir bench: interrupted while the ranks met: {} of {} had come", met.len(), job.ranks);
        return Ok(INTERRUPTED);
    }
    drop(met);
    children.wait(asked)
}

/// For a rank: lets it stop, as if it were asked to, when the process that started it is killed.
/// (Before that is arranged it ends of itself: there is no meeting any more.)
///
/// # Errors
/// If the system refuses.
pub fn end_with_starter() -> Result<()> {
    let done = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGTERM);
    done.map_err(|error| BenchError::machine("watching who started this rank", std::io::Error::from(error)))
}

/// A folder of this job's own, under a name that nobody else has: a job that was killed leaves its
/// folder, and process ids come again.
fn meeting_folder() -> Result<TempDir> {
    let made = tempfile::Builder::new().prefix("weir-bench-").tempdir();
    made.map_err(|error| BenchError::file(std::env::temp_dir(), error))
}

fn start(job: &Job, rank: usize, socket: &Path) -> Result<Child> {
    let own = std::env::current_exe().map_err(|error| BenchError::machine("this program", error))?;
    let meet = ["--meet".into(), socket.into()];
    let words = std::iter::once(own.into_os_string()).chain(job.words.iter().cloned()).chain(meet);
    let no_word = || BenchError::machine("start", "no command");
    let mut command = job.agent.command(rank, words).ok_or_else(no_word)?;
    command.env(RANK, rank.to_string()).env(RANKS, job.ranks.to_string());
    let chosen = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if job.agent == Agent::default() && !chosen("WEIR_ADDR") && !chosen("WEIR_IFACE") {
        command.env("WEIR_ADDR", "127.0.0.1");
    }
    let (name, rank) = (command.get_program().to_string_lossy().into_owned(), named(&job.agent.hosts, rank));
    command.spawn().map_err(|error| BenchError::machine(format!("{rank}: cannot start {name}"), error))
}

/// Takes every rank's name and gives each the names of all; false if that is not wanted any more.
fn introduce(
    (listener, met): (&UnixListener, &mut Vec<UnixStream>),
    children: &mut Children<'_>,
    stop: &AtomicBool,
) -> Result<bool> {
    let failed = |error: std::io::Error| BenchError::machine("meeting of the ranks", error);
    let ranks = children.all.len();
    let mut names = vec![None; ranks];
    let deadline = Instant::now() + MEETING;
    while met.len() < ranks {
        if stop.load(Ordering::Relaxed) {
            return Ok(false);
        }
        match listener.accept() {
            Ok((mut stream, _)) => {
                stream.set_nonblocking(false).map_err(failed)?;
                stream.set_read_timeout(Some(MEETING)).map_err(failed)?;
                let mut rank = [0; 4];
                // Who came and hung up has ended: that is told below.
                match stream.read_exact(&mut rank) {
                    Err(error) if error.kind() == ErrorKind::UnexpectedEof => continue,
                    other => other.map_err(failed)?,
                }
                let place = names.get_mut(u32::from_le_bytes(rank) as usize);
                let place = place.ok_or_else(|| BenchError::machine("meeting of the ranks", "a stranger came"))?;
                let mut name = [0; NAME_BYTES];
                match stream.read_exact(&mut name) {
                    Err(error) if error.kind() == ErrorKind::UnexpectedEof => continue,
                    other => other.map_err(failed)?,
                }
                *place = Some(name);
                met.push(stream);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if let Some((rank, status)) = children.ended()? {
                    let rank = children.agent.named(rank);
                    let text = format!("{rank} ended with {status} before the others knew it");
                    return Err(BenchError::machine("start", text));
                }
                if Instant::now() > deadline {
                    let absent = names.iter().zip(0..).filter(|(name, _)| name.is_none());
                    let absent: Vec<String> = absent.map(|(_, rank)| children.agent.named(rank)).collect();
                    let more = if absent.len() > 3 { ", ..." } else { "" };
                    let text = format!(
                        "{} of {ranks} ranks came within {} s; not {}{more}",
                        met.len(),
                        MEETING.as_secs(),
                        absent[..absent.len().min(3)].join(" nor ")
                    );
                    return Err(BenchError::machine("meeting of the ranks", text));
                }
                std::thread::sleep(LOOK);
            }
            Err(error) => return Err(failed(error)),
        }
    }
    let all: Vec<u8> = names.into_iter().flatten().flatten().collect();
    met.iter_mut().try_for_each(|stream| stream.write_all(&all)).map_err(failed)?;
    Ok(true)
}

/// The ranks' processes; those left are ended when this is dropped.
struct Children<'a> {
    all: Vec<Child>,
    agent: &'a Agent,
}

impl Children<'_> {
    /// A rank that has ended, if any.
    fn ended(&mut self) -> Result<Option<(usize, std::process::ExitStatus)>> {
        for (rank, child) in self.all.iter_mut().enumerate() {
            if let Some(status) = child.try_wait().map_err(|error| BenchError::machine("waiting for ranks", error))? {
                return Ok(Some((rank, status)));
            }
        }
        Ok(None)
    }

    fn wait(&mut self, asked: &Asked) -> Result<u8> {
        let mut codes: Vec<Option<u8>> = vec![None; self.all.len()];
        let (mut deadline, mut urged) = (None::<Instant>, false);
        while codes.iter().any(Option::is_none) {
            for (rank, child) in self.all.iter_mut().enumerate() {
                if codes[rank].is_some() {
                    continue;
                }
                let status = child.try_wait().map_err(|error| BenchError::machine("waiting for ranks", error))?;
                let Some(status) = status else { continue };
                if status.code().is_none() {
                    let rank = self.agent.named(rank);
                    weir_put::tell!("weir bench: {rank} was killed ({status}); finished cells are kept");
                }
                codes[rank] = Some(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1));
            }
            // Rank 0 has said all there is to say; a second signal ends who still waits for it.
            if !urged && codes[0].is_some() && asked.stop.load(Ordering::Relaxed) {
                urged = true;
                deadline = Some(Instant::now() + AFTER_RANK_0);
                let left = self.all.iter().zip(&codes).filter(|(_, code)| code.is_none());
                left.for_each(|(child, _)| crate::sys::process::interrupt(child));
            }
            let bad = codes.iter().flatten().any(|code| *code != 0);
            if deadline.is_none() && (bad || asked.stop.load(Ordering::Relaxed)) {
                deadline = Some(Instant::now() + GRACE);
                // A terminal has told them already; another process that stops only this one has
                // not.
                let left = self.all.iter().zip(&codes).filter(|(_, code)| code.is_none());
                left.for_each(|(child, _)| crate::sys::process::interrupt(child));
            }
            let urgent = asked.urgent.load(Ordering::Relaxed);
            if urgent || deadline.is_some_and(|deadline| Instant::now() > deadline) {
                break;
            }
            std::thread::sleep(LOOK);
        }
        // 130 comes from all; another code tells more.
        let unknown = if asked.stop.load(Ordering::Relaxed) { INTERRUPTED } else { 1 };
        let known: Vec<u8> = codes.into_iter().map(|code| code.unwrap_or(unknown)).collect();
        Ok(known.iter().copied().find(|code| ![0, INTERRUPTED].contains(code)).or(known.into_iter().max()).unwrap_or(0))
    }
}

impl Drop for Children<'_> {
    fn drop(&mut self) {
        for child in &mut self.all {
            if matches!(child.try_wait(), Ok(None)) {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(hosts: &[&str], words: Option<&str>, of_emulator: Option<&str>) -> std::result::Result<Agent, String> {
        Agent::of(&hosts.iter().map(|host| (*host).to_owned()).collect::<Vec<_>>(), words, of_emulator)
    }

    /// The command of a rank that runs `weir 'a b'`.
    fn line(agent: &Agent, rank: usize) -> String {
        let command = agent.command(rank, ["weir".into(), "a b's".into()].into_iter()).unwrap();
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join("|")
    }

    #[test]
    fn ranks_start_on_the_hosts_in_turn_by_what_leads_there() {
        let here = agent(&[], None, Some("/run/agent")).unwrap();
        assert_eq!((line(&here, 1), here), ("weir|a b's".into(), Agent::default()));
        let emulated = agent(&["host1", "host2"], None, Some("/run/agent")).unwrap();
        assert_eq!(line(&emulated, 0), "/run/agent|host1|exec|weir|\"a b's\"");
        assert!(line(&emulated, 3).starts_with("/run/agent|host2|exec|"));
        let own = agent(&["h1", "h2", "h3"], Some("ip netns exec %h"), Some("/run/agent")).unwrap();
        assert_eq!(line(&own, 2), "ip|netns|exec|h3|weir|a b's");
        assert_eq!(line(&agent(&[], Some("on h%r"), None).unwrap(), 1), "on|h1|weir|a b's");
    }

    #[test]
    fn a_rank_is_named_with_its_host_or_with_what_starts_it() {
        let named = |hosts: &[&str], words| agent(hosts, words, Some("/run/agent")).unwrap().named(3);
        assert_eq!(named(&[], None), "rank 3");
        assert_eq!(named(&["h1", "h2"], None), "rank 3 on h2");
        assert_eq!(named(&["h1", "h2"], Some("ip netns exec %h")), "rank 3 on h2");
        assert_eq!(named(&[], Some("on h%r")), "rank 3, started by \"on h3\",");
    }

    #[test]
    fn who_cannot_be_started_or_ends_at_once_is_told_with_its_host() {
        let told = |words: &str| {
            let agent = agent(&["h1", "h2"], Some(words), None).unwrap();
            let job = Job { ranks: 2, agent, words: Vec::new() };
            run(&job, &Asked::default()).unwrap_err().to_string()
        };
        let said = told("/nonexistent/agent %h");
        assert!(said.starts_with("rank 0 on h1: cannot start /nonexistent/agent: No such file"), "{said}");
        let said = told("test %h = h1 -a");
        assert!(said.contains("rank ") && said.contains(" on h"), "{said}");
        assert!(said.contains("ended with exit status: ") && said.contains("before the others knew it"), "{said}");
    }

    #[test]
    fn hosts_that_nothing_leads_to_are_refused_with_what_does() {
        let refused = |hosts: &[&str], words| agent(hosts, words, None).unwrap_err();
        assert!(refused(&["host1"], None).contains("WEIR_LAUNCH_AGENT is not set"));
        assert!(refused(&["host1"], Some("ip netns exec host1")).contains("%h stands for it"));
        assert!(refused(&[], Some("ip netns exec %h")).contains("--hosts, which names none"));
        assert!(refused(&[], Some(" ")).contains("no word"));
    }

    #[test]
    fn what_a_killed_job_left_is_in_nobodys_way() {
        // As left by a process that had this one's id.
        let left = std::env::temp_dir().join(format!("weir-bench-{}", std::process::id()));
        std::fs::create_dir_all(&left).unwrap();
        let made = meeting_folder();
        std::fs::remove_dir(&left).unwrap();
        let made = made.unwrap();
        assert!(made.path().is_dir() && made.path() != left);
    }
}

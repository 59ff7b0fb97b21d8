//! Starting a job of Weir's own: this process starts the ranks, tells each the others' names, and waits for all.

use std::ffi::OsString;
use std::io::{ErrorKind, Read, Write};
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
/// When one rank has ended badly, or a stop was asked for, the others are given this time: they end by themselves a little earlier.
const GRACE: Duration = Duration::from_secs(8);
/// The same once rank 0 has ended after a stop was asked for: all is said and written.
const AFTER_RANK_0: Duration = Duration::from_secs(2);
/// How often the children are looked at.
const LOOK: Duration = Duration::from_millis(5);

/// A job to be started.
pub struct Job {
    /// Ranks.
    pub ranks: usize,
    /// Words before each rank's command, e.g. `ip netns exec host%r`; `%r` stands for the rank.
    pub agent: Vec<String>,
    /// This program's own words.
    pub words: Vec<OsString>,
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
    let mut children = Children(Vec::new());
    for rank in 0..job.ranks {
        children.0.push(start(job, rank, &socket)?);
    }
    introduce(&listener, &mut children, job.ranks, &asked.stop)?;
    children.wait(asked)
}

/// A folder of this job's own, under a name that nobody else has: a job that was killed leaves its folder, and process ids come again.
fn meeting_folder() -> Result<TempDir> {
    let made = tempfile::Builder::new().prefix("weir-bench-").tempdir();
    made.map_err(|error| BenchError::file(std::env::temp_dir(), error))
}

fn start(job: &Job, rank: usize, socket: &Path) -> Result<Child> {
    let own = std::env::current_exe().map_err(|error| BenchError::machine("this program", error))?;
    let agent: Vec<String> = job.agent.iter().map(|word| word.replace("%r", &rank.to_string())).collect();
    let mut command = match agent.split_first() {
        Some((program, words)) => {
            let mut command = Command::new(program);
            command.args(words).arg(own);
            command
        }
        None => Command::new(own),
    };
    command.args(&job.words).arg("--meet").arg(socket);
    command.env(RANK, rank.to_string()).env(RANKS, job.ranks.to_string());
    let chosen = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if job.agent.is_empty() && !chosen("WEIR_ADDR") && !chosen("WEIR_IFACE") {
        command.env("WEIR_ADDR", "127.0.0.1");
    }
    let name = command.get_program().to_string_lossy().into_owned();
    command.spawn().map_err(|error| BenchError::machine(format!("cannot start {name}"), error))
}

/// Takes every rank's name and gives each the names of all.
fn introduce(listener: &UnixListener, children: &mut Children, ranks: usize, stop: &AtomicBool) -> Result<()> {
    let failed = |error: std::io::Error| BenchError::machine("meeting of the ranks", error);
    let mut names = vec![[0; NAME_BYTES]; ranks];
    let mut met: Vec<UnixStream> = Vec::new();
    let deadline = Instant::now() + MEETING;
    while met.len() < ranks {
        match listener.accept() {
            Ok((mut stream, _)) => {
                stream.set_nonblocking(false).map_err(failed)?;
                stream.set_read_timeout(Some(MEETING)).map_err(failed)?;
                let mut rank = [0; 4];
                stream.read_exact(&mut rank).map_err(failed)?;
                let place = names.get_mut(u32::from_le_bytes(rank) as usize);
                let place = place.ok_or_else(|| BenchError::machine("meeting of the ranks", "a stranger came"))?;
                stream.read_exact(place).map_err(failed)?;
                met.push(stream);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if let Some((rank, status)) = children.ended()? {
                    let text = format!("rank {rank} ended with {status} before the others knew it");
                    return Err(BenchError::machine("start", text));
                }
                if Instant::now() > deadline || stop.load(Ordering::Relaxed) {
                    let text = format!("{} of {ranks} ranks came", met.len());
                    return Err(BenchError::machine("meeting of the ranks", text));
                }
                std::thread::sleep(LOOK);
            }
            Err(error) => return Err(failed(error)),
        }
    }
    let all = names.concat();
    met.iter_mut().try_for_each(|stream| stream.write_all(&all)).map_err(failed)
}

/// The ranks' processes; those left are ended when this is dropped.
struct Children(Vec<Child>);

impl Children {
    /// A rank that has ended, if any.
    fn ended(&mut self) -> Result<Option<(usize, std::process::ExitStatus)>> {
        for (rank, child) in self.0.iter_mut().enumerate() {
            if let Some(status) = child.try_wait().map_err(|error| BenchError::machine("waiting for ranks", error))? {
                return Ok(Some((rank, status)));
            }
        }
        Ok(None)
    }

    fn wait(&mut self, asked: &Asked) -> Result<u8> {
        let mut codes: Vec<Option<u8>> = vec![None; self.0.len()];
        let (mut deadline, mut urged) = (None::<Instant>, false);
        while codes.iter().any(Option::is_none) {
            for (rank, child) in self.0.iter_mut().enumerate() {
                if codes[rank].is_some() {
                    continue;
                }
                let status = child.try_wait().map_err(|error| BenchError::machine("waiting for ranks", error))?;
                let Some(status) = status else { continue };
                if status.code().is_none() {
                    eprintln!("weir bench: rank {rank} was killed ({status}); finished cells are kept");
                }
                codes[rank] = Some(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1));
            }
            // Rank 0 has said all there is to say; a second signal ends who still waits for it.
            if !urged && codes[0].is_some() && asked.stop.load(Ordering::Relaxed) {
                urged = true;
                deadline = Some(Instant::now() + AFTER_RANK_0);
                let left = self.0.iter().zip(&codes).filter(|(_, code)| code.is_none());
                left.for_each(|(child, _)| crate::sys::process::interrupt(child));
            }
            let bad = codes.iter().flatten().any(|code| *code != 0);
            if deadline.is_none() && (bad || asked.stop.load(Ordering::Relaxed)) {
                deadline = Some(Instant::now() + GRACE);
                // A terminal has told them already; another process that stops only this one has not.
                let left = self.0.iter().zip(&codes).filter(|(_, code)| code.is_none());
                left.for_each(|(child, _)| crate::sys::process::interrupt(child));
            }
            let urgent = asked.urgent.load(Ordering::Relaxed);
            if urgent || deadline.is_some_and(|deadline| Instant::now() > deadline) {
                break;
            }
            std::thread::sleep(LOOK);
        }
        // 130 comes from all; another code tells more.
        let unknown = if asked.stop.load(Ordering::Relaxed) { 130 } else { 1 };
        let known: Vec<u8> = codes.into_iter().map(|code| code.unwrap_or(unknown)).collect();
        Ok(known.iter().copied().find(|code| ![0, 130].contains(code)).or(known.into_iter().max()).unwrap_or(0))
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
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

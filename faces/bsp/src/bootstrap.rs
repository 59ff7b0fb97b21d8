//! Who is in the job, and what each of its processes says to all others before they can send
//! messages.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};
use weir_job::launch::{Job, Launcher, Limits};
use weir_job::{Env, KEY_BYTES};

/// How processes of a job find each other.
pub trait Bootstrap {
    /// This process, from 0.
    fn rank(&self) -> usize;
    /// How many were started.
    fn size(&self) -> usize;
    /// All give something, and get what all gave, by rank. All call it equally often.
    ///
    /// # Errors
    /// One line for people.
    fn exchange(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>, String>;
    /// A launcher started it, and looks after it.
    fn is_launched(&self) -> bool;
    /// Whether the launcher shows people what it is told by [`Bootstrap::abort`]. If not, it is
    /// printed before: the launcher may end this process within that call.
    fn shows_abort(&self) -> bool;
    /// The job's key, if it has one of its own.
    fn key(&self) -> Option<[u8; KEY_BYTES]>;
    /// This process has failed. False: another one has before, and tells people. Where only the
    /// launcher could know, and it does not say, everybody is the first.
    fn is_first_to_fail(&self) -> bool;
    /// This process is about to end without having finished, with this code: the launcher may end
    /// the others. True: it tells people the text.
    fn abort(&mut self, code: i32, text: &str) -> bool;
    /// This process has finished in good order.
    fn finish(self: Box<Self>);
}

/// What a launcher says.
struct Launched(Job);

impl Bootstrap for Launched {
    fn rank(&self) -> usize {
        self.0.rank() as usize
    }

    fn size(&self) -> usize {
        self.0.size() as usize
    }

    fn exchange(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        self.0.exchange(own).map_err(|e| e.to_string())
    }

    fn is_launched(&self) -> bool {
        self.0.launcher() != Launcher::None
    }

    fn shows_abort(&self) -> bool {
        self.0.shows_abort()
    }

    fn is_first_to_fail(&self) -> bool {
        true
    }

    fn key(&self) -> Option<[u8; KEY_BYTES]> {
        Some(self.0.key().bytes)
    }

    fn abort(&mut self, code: i32, text: &str) -> bool {
        self.0.abort(code, text).unwrap_or(false)
    }

    fn finish(self: Box<Self>) {
        // All that was to be done is done: a launcher that does not answer any more takes nothing
        // from it.
        let _ = self.0.finalize();
    }
}

/// Finds out how this process was started.
///
/// # Errors
/// One line for people.
pub fn find() -> Result<Box<dyn Bootstrap>, String> {
    if let Some(folder) = Folder::from_env()? {
        return Ok(Box::new(folder));
    }
    let job = Job::from_env(&Env::from_process()).map_err(|e| e.to_string())?;
    Ok(Box::new(Launched(job)))
}

/// Of a process that has failed before it met the others: [`Bootstrap::is_first_to_fail`].
pub fn is_first_to_fail() -> bool {
    Folder::from_env().ok().flatten().is_none_or(|folder| folder.is_first_to_fail())
}

/// Made in the folder by the first process that fails.
const FAILED: &str = "failed";
/// They are looked for so often.
const LOOK: Duration = Duration::from_millis(1);

/// Processes of one host that meet in a folder: `WEIR_BSP_RANK`, `WEIR_BSP_SIZE`, `WEIR_BSP_MEET`.
/// The folder is made before they start, by who starts them, and is empty.
struct Folder {
    rank: usize,
    size: usize,
    folder: PathBuf,
    round: usize,
    /// All have come by then.
    patience: Duration,
}

impl Folder {
    fn from_env() -> Result<Option<Folder>, String> {
        let var = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let Some(folder) = var("WEIR_BSP_MEET") else { return Ok(None) };
        let number = |name: &str| {
            let text = var(name).unwrap_or_default().to_string_lossy().into_owned();
            text.trim().parse::<usize>().map_err(|_| format!("{name}: '{}' is not a number", text.escape_debug()))
        };
        let (rank, size) = (number("WEIR_BSP_RANK")?, number("WEIR_BSP_SIZE")?);
        if rank >= size {
            return Err(format!("WEIR_BSP_RANK: {rank} is not below WEIR_BSP_SIZE, {size}"));
        }
        let limits = Limits::from_env(&Env::from_process()).map_err(|e| e.to_string())?;
        Ok(Some(Folder { rank, size, folder: folder.into(), round: 0, patience: limits.others }))
    }

    fn name(&self, rank: usize) -> String {
        format!("{}.{rank}", self.round)
    }

    fn read(&self, rank: usize, since: Instant) -> Result<Vec<u8>, String> {
        let path = self.folder.join(self.name(rank));
        loop {
            match fs::read(&path) {
                Ok(said) => return Ok(said),
                Err(e) if e.kind() != ErrorKind::NotFound => {
                    return Err(format!("WEIR_BSP_MEET: {}: {e}", path.display()));
                }
                Err(_) if since.elapsed() > self.patience => {
                    let seconds = self.patience.as_secs();
                    return Err(format!("process {rank} has not come within {seconds} s (WEIR_LAUNCH_TIMEOUT)"));
                }
                Err(_) if self.folder.join(FAILED).exists() => return Err("another process has failed".into()),
                Err(_) => sleep(LOOK),
            }
        }
    }
}

impl Bootstrap for Folder {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn exchange(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        let here = self.folder.join(self.name(self.rank));
        let unfinished = here.with_extension(format!("{}.part", self.rank));
        // Whole or not at all.
        fs::write(&unfinished, own)
            .and_then(|()| fs::rename(&unfinished, &here))
            .map_err(|e| format!("WEIR_BSP_MEET: {}: {e}", here.display()))?;
        let since = Instant::now();
        let all = (0..self.size).map(|rank| self.read(rank, since)).collect();
        self.round += 1;
        all
    }

    fn is_launched(&self) -> bool {
        false
    }

    fn shows_abort(&self) -> bool {
        false
    }

    fn is_first_to_fail(&self) -> bool {
        // Who cannot tell is the first: better two lines than none.
        let made = fs::OpenOptions::new().write(true).create_new(true).open(self.folder.join(FAILED));
        !made.is_err_and(|e| e.kind() == ErrorKind::AlreadyExists)
    }

    fn key(&self) -> Option<[u8; KEY_BYTES]> {
        None
    }

    fn abort(&mut self, _code: i32, _text: &str) -> bool {
        false
    }

    fn finish(self: Box<Self>) {}
}

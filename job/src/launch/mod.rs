//! Who this process is in its job, and what the ranks tell each other before they can send
//! messages: `spec/launch.md`.
//!
//! ```no_run
//! # fn main() -> Result<(), weir_job::launch::LaunchError> {
//! use weir_job::Env;
//! use weir_job::launch::Job;
//!
//! let mut job = Job::from_env(&Env::from_process())?;
//! let name = format!("endpoint of rank {}", job.rank()); // opened with job.key()
//! let names = job.exchange(name.as_bytes())?;
//! assert_eq!(names.len(), job.size() as usize);
//! job.fence()?;
//! job.finalize()
//! # }
//! ```
//!
//! Nothing here prints, and nothing waits for ever.

mod detect;
mod error;
mod key;
pub mod local;
pub mod pmi;
mod pmix;
mod spread;

use std::mem::ManuallyDrop;
use std::time::Duration;

pub use detect::{Launcher, detect, parents};
pub use error::LaunchError;
pub use local::frame::BLOB_MAX_BYTES;

use crate::{Env, JobKey};

/// What a rank prints last needs so long to reach its launcher: Hydra and Slurm end a job, and drop
/// what they have not read yet, as soon as a rank aborts or ends with an error. Who fails without
/// [`Job::abort`] waits so long between its last line and its end.
pub const LAST_WORDS: Duration = Duration::from_millis(200);

/// How long is waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// For an answer that the launcher gives by itself.
    pub answer: Duration,
    /// For an answer that needs all ranks: the slowest may still be starting.
    pub others: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { answer: Duration::from_secs(30), others: Duration::from_secs(120) }
    }
}

impl Limits {
    /// With `WEIR_LAUNCH_TIMEOUT` (seconds) for [`Limits::others`].
    ///
    /// # Errors
    /// If its value is no number from 1 to 86 400.
    pub fn from_env(env: &Env) -> Result<Self, LaunchError> {
        let usual = Self::default();
        let Some(value) = env.get("WEIR_LAUNCH_TIMEOUT") else { return Ok(usual) };
        let text = value.to_string_lossy();
        match text.trim().parse::<u64>() {
            Ok(seconds @ 1..=86_400) => Ok(Self { others: Duration::from_secs(seconds), ..usual }),
            _ => Err(LaunchError::Variable {
                variable: "WEIR_LAUNCH_TIMEOUT",
                value: text.into_owned(),
                problem: "not a number of seconds from 1 to 86400".into(),
            }),
        }
    }
}

/// What a way to speak to a launcher can do. After an error nothing more is asked of it.
trait Backend: Send {
    /// All ranks' data, by rank; each at most [`BLOB_MAX_BYTES`].
    fn exchange(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>, LaunchError>;
    /// All ranks get what rank 0 gives; what others give is not looked at. Counts as an exchange.
    fn zeros(&mut self, own: &[u8]) -> Result<Vec<u8>, LaunchError>;
    /// Returns when all ranks have called it.
    fn fence(&mut self) -> Result<(), LaunchError>;
    /// Asks for the end of all ranks; does not wait for it.
    fn abort(&mut self, code: i32, message: &str) -> Result<(), LaunchError>;
    /// Says that this rank may end.
    fn finalize(&mut self) -> Result<(), LaunchError>;
}

/// What is known when a launcher has been greeted.
struct Joined {
    backend: Box<dyn Backend>,
    rank: u32,
    size: u32,
    ranks_here: Option<u32>,
    id: String,
    /// The job's key, if the launcher hands it out itself.
    key: Option<JobKey>,
}

/// This process's place in its job.
pub struct Job {
    launcher: Launcher,
    /// None for a process that nobody launched. What does not finish stays connected until its
    /// process ends: launchers take the end of a connection for the end of the rank, and do not
    /// wait for what it says of why.
    backend: Option<ManuallyDrop<Box<dyn Backend>>>,
    rank: u32,
    size: u32,
    ranks_here: Option<u32>,
    id: String,
    key: JobKey,
    failed: bool,
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job")
            .field("launcher", &self.launcher)
            .field("rank", &self.rank)
            .field("size", &self.size)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl Job {
    /// Finds the launcher by its variables, greets it, and agrees with the other ranks on the job's
    /// key. A process that nobody launched is rank 0 of 1.
    ///
    /// To be called once in a process, by all ranks: the first call waits for the others, at most
    /// [`Limits::others`].
    ///
    /// # Errors
    /// If a launcher is present but cannot be spoken to, does not answer in time, or does not keep
    /// its protocol; if the ranks have different keys. A process never runs alone because its
    /// launcher was not understood.
    pub fn from_env(env: &Env) -> Result<Self, LaunchError> {
        let limits = Limits::from_env(env)?;
        let launcher = detect::detect(env, &detect::parents())?;
        let joined = match launcher {
            Launcher::None => return Self::alone(),
            Launcher::Local => local::client::join(env, limits)?,
            Launcher::Pmi1 | Launcher::Pmi2 => pmi::join(env, launcher, limits)?,
            Launcher::Pmix => pmix::join(env, limits)?,
        };
        let Joined { backend, rank, size, ranks_here, id, key } = joined;
        let mut backend = ManuallyDrop::new(backend);
        let key = match key {
            Some(key) => key,
            None => key::agree(env, rank, |own| backend.zeros(own))?,
        };
        Ok(Self { launcher, backend: Some(backend), rank, size, ranks_here, id, key, failed: false })
    }

    fn alone() -> Result<Self, LaunchError> {
        let id = format!("alone-{}", std::process::id());
        let key = JobKey::for_one_run()?;
        Ok(Self {
            launcher: Launcher::None,
            backend: None,
            rank: 0,
            size: 1,
            ranks_here: Some(1),
            id,
            key,
            failed: false,
        })
    }

    /// How the launcher is spoken to.
    pub fn launcher(&self) -> Launcher {
        self.launcher
    }

    /// This process's number, from 0.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// How many processes the job has, at least 1.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// How many of them are on this host, this one included; none if the launcher does not tell.
    pub fn ranks_here(&self) -> Option<u32> {
        self.ranks_here
    }

    /// The launcher's name of the job, for people to read. Not unique across machines.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The secret that all ranks of the job share, and nobody else.
    pub fn key(&self) -> &JobKey {
        &self.key
    }

    /// Gives `own` to all ranks and returns what each gave, by rank. All ranks call it equally
    /// often and in the same order with [`Job::fence`].
    ///
    /// # Errors
    /// If `own` is longer than [`BLOB_MAX_BYTES`], a rank does not come in time or ends, or the
    /// launcher fails. After an error only [`Job::abort`] is of use.
    pub fn exchange(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>, LaunchError> {
        if own.len() > BLOB_MAX_BYTES {
            return Err(LaunchError::TooLong { bytes: own.len() });
        }
        let all = self.ask(|backend| backend.exchange(own), || vec![own.to_vec()])?;
        if all.len() == self.size as usize {
            return Ok(all);
        }
        self.failed = true;
        let problem = format!("data of {} ranks instead of {}", all.len(), self.size);
        Err(LaunchError::Protocol { launcher: self.launcher, during: "an exchange", problem })
    }

    /// Returns when all ranks have called it.
    ///
    /// # Errors
    /// As [`Job::exchange`].
    pub fn fence(&mut self) -> Result<(), LaunchError> {
        self.ask(|backend| backend.fence(), || ())
    }

    /// Whether the launcher shows people what [`Job::abort`] is told. If not, the caller should,
    /// and before: a launcher may end this process before that call returns. [`Job::abort`] waits
    /// [`LAST_WORDS`] then.
    pub fn shows_abort(&self) -> bool {
        self.launcher.shows_abort()
    }

    /// Asks the launcher to end all ranks, this one too, with exit code `code` where it can;
    /// returns without waiting for it, and the caller ends its process. Returns
    /// [`Job::shows_abort`].
    ///
    /// # Errors
    /// If the launcher cannot be told; it will see this process end.
    pub fn abort(&mut self, code: i32, message: &str) -> Result<bool, LaunchError> {
        let shows = self.launcher.shows_abort();
        let Some(backend) = &mut self.backend else { return Ok(false) };
        if !shows {
            std::thread::sleep(LAST_WORDS);
        }
        backend.abort(code, message).map(|()| shows)
    }

    /// Says that this rank is done: it may end from now on, and the launcher takes that for
    /// success. Does not wait for others.
    ///
    /// # Errors
    /// If the launcher does not answer.
    pub fn finalize(mut self) -> Result<(), LaunchError> {
        self.ask(|backend| backend.finalize(), || ())?;
        drop(self.backend.map(ManuallyDrop::into_inner));
        Ok(())
    }

    /// Lets the backend answer, or what is so for one rank alone.
    fn ask<T>(
        &mut self,
        of: impl FnOnce(&mut dyn Backend) -> Result<T, LaunchError>,
        alone: impl FnOnce() -> T,
    ) -> Result<T, LaunchError> {
        if self.failed {
            return Err(LaunchError::Over);
        }
        let Some(backend) = &mut self.backend else { return Ok(alone()) };
        let answer = of(backend.as_mut());
        self.failed = answer.is_err();
        answer
    }
}

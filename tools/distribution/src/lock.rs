//! One writer at a time: who writes a run holds a lock on it, which the kernel takes back from
//! whoever dies.
//!
//! The lock is on a file of its own, as `run.json` is replaced again and again, and as some network
//! file systems lock no folder. It is removed when the writer is through.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::error::{Error, Result};
use crate::files;

/// The file that is locked.
pub(crate) const LOCK_FILE: &str = "run.lock";
/// A lock file may go away between opening and locking it when another writer ends: so often in a
/// row it does not.
const TRIES: usize = 100;

/// Held by a writer.
#[derive(Debug)]
pub(crate) struct Lock {
    path: PathBuf,
    /// `None` on a file system without locks.
    held: Option<Flock<File>>,
}

impl Lock {
    /// Takes the lock of the run in a folder, which must be there.
    pub(crate) fn take(dir: &Path) -> Result<Lock> {
        let path = dir.join(LOCK_FILE);
        for _ in 0..TRIES {
            let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
            let file = file.map_err(|e| Error::write(&path, 0)(e))?;
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(held) if is_at(&held, &path) => return Ok(Lock { path, held: Some(held) }),
                // Another writer has just ended, and taken the file with it.
                Ok(_) => {}
                Err((_, Errno::EWOULDBLOCK)) => return Err(Error::Busy(dir.to_owned())),
                Err((_, Errno::ENOLCK | Errno::ENOTSUP | Errno::ENOSYS)) => return Ok(Lock { path, held: None }),
                Err((_, error)) => return Err(Error::io("lock", path)(error.into())),
            }
        }
        Err(Error::Busy(dir.to_owned()))
    }

    /// Whether somebody writes the run in a folder now; `None` where that cannot be known.
    pub(crate) fn is_held(dir: &Path) -> Option<bool> {
        let path = dir.join(LOCK_FILE);
        let file = match files::is_a_file(&path).and_then(|()| File::open(&path)) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Some(false),
            Err(_) => return None,
        };
        match Flock::lock(file, FlockArg::LockSharedNonblock) {
            Ok(_) => Some(false),
            Err((_, Errno::EWOULDBLOCK)) => Some(true),
            Err(_) => None,
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // While it is still held: whoever has opened the file by then sees that it is gone, and
        // makes a new one.
        let _ = fs::remove_file(&self.path);
        self.held = None;
    }
}

/// Whether the file is what the path names.
fn is_at(file: &File, path: &Path) -> bool {
    let id = |m: fs::Metadata| (m.dev(), m.ino());
    file.metadata().ok().map(id).is_some_and(|own| fs::metadata(path).ok().map(id) == Some(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holds_the_lock_at_a_time_and_it_leaves_no_trace() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Lock::is_held(dir.path()), Some(false));
        let lock = Lock::take(dir.path()).unwrap();
        assert_eq!(Lock::is_held(dir.path()), Some(true));
        let text = Lock::take(dir.path()).unwrap_err().to_string();
        assert!(text.contains("is being written") && !text.contains('\n'), "{text}");
        assert!(lock.path.exists(), "who was refused took the file away");
        drop(lock);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        Lock::take(dir.path()).unwrap();
    }

    #[test]
    fn what_a_killed_writer_leaves_is_no_lock() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(LOCK_FILE), "").unwrap();
        assert_eq!(Lock::is_held(dir.path()), Some(false));
        Lock::take(dir.path()).unwrap();
    }
}

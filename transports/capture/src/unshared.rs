//! Files that one process writes alone: two that write the same one ruin it, and nobody notices
//! until it is read.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

/// Creates (or empties) a file that nobody else writes as long as it is open; `None` if somebody
/// who opened it in this way does, and then it is left as it is. The lock is the descriptor's
/// (flock(2)): the kernel takes it back from whoever dies. What is no regular file (a pipe, a
/// terminal) is shared, and so is a file where the file system has no locks.
///
/// The lock is that of the open file, of which a child made by fork(2) has a copy: it lasts until
/// the last of the copies is closed, so that such a child keeps the file taken after its parent's
/// end. One that calls execve(2) loses its copy there (`O_CLOEXEC`, which the standard library
/// always sets).
///
/// # Errors
/// The file cannot be created; the error names it.
pub fn create_unshared(path: &Path) -> io::Result<Option<File>> {
    let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    // Emptied only when it is known to be ours.
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path).map_err(named)?;
    if !file.metadata().map_err(named)?.is_file() {
        return Ok(Some(file));
    }
    // SAFETY: a call with plain numbers; the descriptor is open.
    let locked = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0;
    if !locked && io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock {
        return Ok(None);
    }
    file.set_len(0).map_err(named)?;
    Ok(Some(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_one_writer_at_a_time_and_is_emptied_by_the_next() {
        let path = std::env::temp_dir().join(format!("weir-unshared-{}", std::process::id()));
        std::fs::write(&path, "an earlier run").expect("written");
        let first = create_unshared(&path).expect("opened").expect("nobody has it");
        assert_eq!(std::fs::read(&path).expect("read"), b"");
        std::fs::write(&path, "what the first wrote").expect("written");
        assert!(create_unshared(&path).expect("opened").is_none());
        assert_eq!(std::fs::read(&path).expect("read"), b"what the first wrote");
        drop(first);
        assert!(create_unshared(&path).expect("opened").is_some());
        assert_eq!(std::fs::read(&path).expect("read"), b"");
        std::fs::remove_file(&path).expect("removed");
    }

    #[test]
    fn a_program_started_meanwhile_does_not_hold_the_file() {
        let path = std::env::temp_dir().join(format!("weir-unshared-exec-{}", std::process::id()));
        let file = create_unshared(&path).expect("opened").expect("nobody has it");
        // SAFETY: a call with plain numbers; the descriptor is open.
        let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFD) };
        assert!(flags >= 0 && flags & libc::FD_CLOEXEC != 0, "{flags}");
        std::fs::remove_file(&path).expect("removed");
    }

    #[test]
    fn devices_are_shared() {
        let all = [(); 2].map(|()| create_unshared(Path::new("/dev/null")).expect("opened"));
        assert!(all.iter().all(Option::is_some));
    }
}

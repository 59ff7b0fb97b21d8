//! Writes a file for a person: whole or not at all, where the person's name for it leads ([`put`]);
//! a text, to standard output too ([`text`]); or a line on standard error ([`tell!`]).

#![forbid(unsafe_code)]

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

/// Writes the file `path` through `fill`. Errors of the file system become the caller's by
/// `failed`.
///
/// 1. What is a regular file, or is not there, gets its content when that is whole: what fails
///    leaves what was there.
/// 2. Anything else, such as a device or a named pipe, is written in place, and so is what is named
///    under `/dev` or `/proc`.
/// 3. Links are followed: the file behind one is replaced, not the link.
/// 4. A file that is replaced keeps its mode. Where its folder takes no new file, it is written in
///    place.
///
/// # Errors
/// Those of the file system, and of `fill`.
pub fn put<E>(
    path: &Path,
    failed: impl Fn(io::Error) -> E,
    fill: impl FnOnce(&mut dyn Write) -> Result<(), E>,
) -> Result<(), E> {
    let path = behind_links(path).map_err(&failed)?;
    let there = match fs::metadata(&path) {
        Ok(there) => Some(there),
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        Err(e) => return Err(failed(e)),
    };
    let replaced = there.as_ref().is_none_or(fs::Metadata::is_file) && !is_of_the_system(&path);
    let part = if replaced { beside(&path, there.as_ref().map(fs::Metadata::permissions)) } else { Ok(None) };
    if let Some(part) = part.map_err(&failed)? {
        let mut out = BufWriter::new(part);
        fill(&mut out)?;
        let part = out.into_inner().map_err(|e| failed(e.into_error()))?;
        return part.persist(&path).map(|_| ()).map_err(|e| failed(e.error));
    }
    // Not created: a name under /dev that is not there is a mistake. What is a regular file is
    // emptied, unless somebody has it open and this is its name: then it is gone on with.
    let open_already = is_of_the_system(&path);
    let file =
        OpenOptions::new().write(true).append(open_already).truncate(!open_already).open(&path).map_err(&failed)?;
    let mut out = BufWriter::new(file);
    fill(&mut out)?;
    out.flush().map_err(failed)
}

/// Writes a text into a file as [`put`] does, or to standard output where no file is named.
/// `failed` is told where it failed.
///
/// # Errors
/// Those of the file system.
pub fn text<E>(path: Option<&Path>, text: &str, failed: impl Fn(&Path, io::Error) -> E) -> Result<(), E> {
    let Some(path) = path else {
        let mut out = io::stdout().lock();
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        return written.map_err(|e| failed(Path::new("standard output"), e));
    };
    let here = |e| failed(path, e);
    put(path, here, |out| out.write_all(text.as_bytes()).map_err(here))
}

/// What [`told`] unwinds with where nobody reads any more; a command's main function catches it.
#[derive(Debug)]
pub struct ReaderIsGone;

/// A line on standard error, as by `eprintln!`. Where it cannot be written, as on a full disk, the
/// command goes on without it (`eprintln!` panics); where nobody reads any more, it ends.
#[macro_export]
macro_rules! tell {
    ($($words:tt)*) => { $crate::told(&format!("{}\n", format_args!($($words)*))) };
}

/// A text on standard error, as by [`tell!`].
pub fn told(text: &str) {
    if lost_its_reader(&mut io::stderr().lock(), text) {
        std::panic::resume_unwind(Box::new(ReaderIsGone));
    }
}

fn lost_its_reader(out: &mut impl Write, text: &str) -> bool {
    out.write_all(text.as_bytes()).is_err_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}

/// Whether a file can be written to that name, looked at before the work for it: its folder is
/// there, and the name is not a folder's. What only shows when it is written is not found here.
///
/// # Errors
/// Why not.
pub fn looks_writable(path: &Path) -> io::Result<()> {
    let path = behind_links(path)?;
    match fs::metadata(&path) {
        Ok(there) if there.is_dir() => Err(nix::Error::EISDIR.into()),
        Ok(_) => Ok(()),
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        Err(e) if is_of_the_system(&path) => Err(e),
        Err(_) => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            if fs::metadata(folder)?.is_dir() { Ok(()) } else { Err(nix::Error::ENOTDIR.into()) }
        }
    }
}

/// Whether two names lead to the same thing that is there.
#[must_use]
pub fn is_same(one: &Path, other: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let of = |path: &Path| fs::metadata(path).ok().map(|there| (there.dev(), there.ino()));
    of(one).is_some_and(|one| of(other) == Some(one))
}

/// Whether the name is one of the system's for something that is open or a device.
fn is_of_the_system(path: &Path) -> bool {
    ["/dev", "/proc"].iter().any(|root| path.starts_with(root)) && !path.starts_with("/dev/shm")
}

/// Where the name leads, if it is a link. The end of a chain of links need not be there.
fn behind_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    // As many as Linux follows.
    for _ in 0..40 {
        if is_of_the_system(&path) {
            return Ok(path);
        }
        match fs::read_link(&path) {
            Ok(to) => path = path.parent().unwrap_or(Path::new("")).join(to),
            Err(_) => return Ok(path),
        }
    }
    Err(nix::Error::ELOOP.into())
}

/// An empty file in the same folder, with the mode of the file that it is to replace. None if the
/// folder takes none, but holds a file that can be written.
fn beside(path: &Path, mode: Option<Permissions>) -> io::Result<Option<NamedTempFile>> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let is_there = mode.is_some();
    // A replacement must not make writable what was not.
    if is_there {
        OpenOptions::new().write(true).open(path)?;
    }
    let mode = match mode {
        Some(mode) => mode,
        None => usual_mode(),
    };
    let made = tempfile::Builder::new().prefix(".part-").permissions(mode.clone()).tempfile_in(folder);
    match made {
        Ok(part) => {
            // The mask of the process may have taken bits away.
            if is_there {
                part.as_file().set_permissions(mode)?;
            }
            Ok(Some(part))
        }
        Err(e)
            if is_there && matches!(e.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) =>
        {
            Ok(None)
        }
        Err(e) => Err(plain(&e)),
    }
}

/// What a new file is asked to have; the mask of the process takes away from it.
fn usual_mode() -> Permissions {
    use std::os::unix::fs::PermissionsExt;
    Permissions::from_mode(0o666)
}

/// Without the name of the file that was to be made, which nobody knows, and in the system's words,
/// which are plainer than those of a kind ("entity not found").
fn plain(e: &io::Error) -> io::Error {
    let number = match e.kind() {
        io::ErrorKind::NotFound => nix::Error::ENOENT,
        io::ErrorKind::NotADirectory => nix::Error::ENOTDIR,
        io::ErrorKind::PermissionDenied => nix::Error::EACCES,
        io::ErrorKind::ReadOnlyFilesystem => nix::Error::EROFS,
        io::ErrorKind::StorageFull => nix::Error::ENOSPC,
        io::ErrorKind::QuotaExceeded => nix::Error::EDQUOT,
        other => return other.into(),
    };
    number.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};

    fn text(path: &Path, what: &str) -> io::Result<()> {
        super::text(Some(path), what, |named, e| {
            assert_eq!(named, path);
            e
        })
    }

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_written_whole_or_not_at_all_and_keeps_its_mode() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a");
        text(&file, "first").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        text(&file, "second").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "second");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
        let broken = put(
            &file,
            |e| e,
            |out| {
                out.write_all(&[b'x'; 100_000])?;
                Err(io::ErrorKind::StorageFull.into())
            },
        );
        assert_eq!(broken.unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(fs::read_to_string(&file).unwrap(), "second");
        assert_eq!(names(dir.path()), ["a"]);
    }

    #[test]
    fn the_file_behind_links_is_written_and_the_links_stay() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("far")).unwrap();
        symlink("far/file", at("b")).unwrap();
        symlink("b", at("a")).unwrap();
        for what in ["into a link that leads nowhere yet", "again"] {
            text(&at("a"), what).unwrap();
            assert_eq!(fs::read_to_string(at("far/file")).unwrap(), what);
            assert!(fs::symlink_metadata(at("a")).unwrap().is_symlink());
        }
        symlink("loop", at("loop")).unwrap();
        assert!(text(&at("loop"), "").is_err());
    }

    #[test]
    fn devices_and_pipes_are_written_in_place() {
        text(Path::new("/dev/null"), "gone").unwrap();
        assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
        assert_eq!(text(Path::new("/dev/full"), "x").unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(text(Path::new("/dev/no-such-thing"), "x").unwrap_err().kind(), io::ErrorKind::NotFound);
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::read_to_string(pipe).unwrap()
        });
        text(&pipe, "through").unwrap();
        assert_eq!(reader.join().unwrap(), "through");
        assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
        // An open file under its name in /proc: what is behind it is written, not replaced.
        let open = File::create(dir.path().join("open")).unwrap();
        let by_number = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&open));
        text(Path::new(&by_number), "in place").unwrap();
        assert_eq!(open.metadata().unwrap().len(), 8);
    }

    #[test]
    fn errors_are_those_of_the_system() {
        let error = text(Path::new("/no/such/folder/file"), "x").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}");
        assert_eq!(error.to_string(), "No such file or directory (os error 2)");
        let dir = tempfile::tempdir().unwrap();
        assert!(text(dir.path(), "x").is_err(), "a folder");
        assert!(names(dir.path()).is_empty());
    }

    #[test]
    fn a_full_disk_loses_lines_and_only_a_reader_that_is_gone_ends_the_command() {
        let mut full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        assert!(!lost_its_reader(&mut full, "a line\n"));
        let (read, mut write) = io::pipe().unwrap();
        assert!(!lost_its_reader(&mut write, "a line\n"));
        drop(read);
        assert!(lost_its_reader(&mut write, "a line\n"));
    }

    #[test]
    fn what_cannot_be_written_is_mostly_known_before_the_work_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("file"), "").unwrap();
        symlink("new", at("link")).unwrap();
        for name in ["new", "file", "link"] {
            looks_writable(&at(name)).unwrap();
        }
        looks_writable(Path::new("/dev/null")).unwrap();
        looks_writable(Path::new("new")).unwrap();
        for path in [at("no-such/file"), at("file/below"), at(""), "/dev/no-such-thing".into()] {
            assert!(looks_writable(&path).is_err(), "{path:?}");
        }
        assert!(!at("new").exists(), "nothing is made");
    }

    #[test]
    fn the_same_file_is_known_by_any_name() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["a", "b"] {
            fs::write(at(name), "").unwrap();
        }
        symlink("a", at("link")).unwrap();
        assert!(is_same(&at("a"), &at("link")) && is_same(&at("a"), &dir.path().join("./a")));
        assert!(!is_same(&at("a"), &at("b")) && !is_same(&at("new"), &at("new")));
    }
}

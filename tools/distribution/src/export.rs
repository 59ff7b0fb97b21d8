//! Exports of a run for other programs: [`csv`] for spreadsheets, [`classic`] for the five text
//! files that MPIBench wrote (Grove, "Performance modelling of message-passing parallel programs",
//! 2003, appendix B).

pub mod classic;
pub mod csv;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use weir_put::put;

use crate::error::{Error, Result};

/// Writes text files into a folder and remembers their names.
struct Folder {
    dir: PathBuf,
    made: Vec<PathBuf>,
}

impl Folder {
    fn new(dir: &Path) -> Result<Self> {
        fs::create_dir_all(dir).map_err(Error::io("create", dir))?;
        Ok(Self { dir: dir.to_owned(), made: Vec::new() })
    }

    /// Writes one file through `f`, whose errors of the file system get the file's name. It gets
    /// its name when it is whole: what fails leaves what was there.
    fn file(&mut self, name: &str, f: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
        let path = self.dir.join(name);
        put(&path, writing, f).map_err(|e| match e {
            Error::Io { path: p, doing, source } if p.as_os_str().is_empty() => {
                Error::Io { path: path.clone(), doing, source }
            }
            other => other,
        })?;
        self.made.push(path);
        Ok(())
    }
}

/// For `map_err` within [`Folder::file`], which knows the name.
fn writing(e: std::io::Error) -> Error {
    Error::io("write", PathBuf::new())(e)
}

/// Letters that are plain in file names everywhere; others become `_`.
fn plain(text: &str) -> String {
    let keep = |c: char| if c.is_ascii_alphanumeric() || "._+-=".contains(c) { c } else { '_' };
    let name: String = text.chars().take(100).map(keep).collect();
    if name.starts_with('.') { format!("_{name}") } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_could_not_be_written_whole_leaves_what_was_there() {
        let dir = tempfile::tempdir().unwrap();
        let mut folder = Folder::new(dir.path()).unwrap();
        folder.file("a.csv", |out| out.write_all(b"whole\n").map_err(writing)).unwrap();
        for name in ["a.csv", "b.csv"] {
            let failed = folder.file(name, |out| {
                // More than the buffer holds, so that some of it is in the file.
                out.write_all(&[b'x'; 100_000]).map_err(writing)?;
                Err(writing(std::io::ErrorKind::StorageFull.into()))
            });
            let text = failed.unwrap_err().to_string();
            let expected = format!("{}: cannot write: no space left on the device", dir.path().join(name).display());
            assert_eq!(text, expected);
        }
        let names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, ["a.csv"]);
        assert_eq!(fs::read_to_string(dir.path().join("a.csv")).unwrap(), "whole\n");
        assert_eq!(folder.made, [dir.path().join("a.csv")]);
    }
}

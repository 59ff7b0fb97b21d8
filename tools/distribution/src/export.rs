//! Exports of a run for other programs: [`csv`] for spreadsheets, [`classic`] for the five text files that MPIBench wrote
//! (Grove, "Performance modelling of message-passing parallel programs", 2003, appendix B).

pub mod classic;
pub mod csv;

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

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

    /// Writes one file through `f`, whose errors of the file system get the file's name.
    fn file(&mut self, name: &str, f: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
        let path = self.dir.join(name);
        let file = File::create(&path).map_err(Error::io("create", &path))?;
        let mut out = BufWriter::new(file);
        f(&mut out).map_err(|e| match e {
            Error::Io { path: p, doing, source } if p.as_os_str().is_empty() => {
                Error::Io { path: path.clone(), doing, source }
            }
            other => other,
        })?;
        out.flush().map_err(Error::io("write", &path))?;
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

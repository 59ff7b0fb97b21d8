//! Reads a run.

use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::files;
use crate::foreign;
use crate::journal;
use crate::json;
use crate::lock::Lock;
use crate::model::{Cell, Run, Sample};
use crate::samples::SampleStream;

/// A run as it lies on disk: `run.json`, and what a writer that works or was killed has in its
/// journal, are read when opened, samples when asked for.
#[derive(Debug)]
pub struct Reader {
    dir: PathBuf,
    run: Run,
    unknown: Vec<String>,
    cut_line: bool,
}

impl Reader {
    /// Opens a run's folder (or its `run.json`).
    ///
    /// # Errors
    /// No run there, another format, a newer major version, or a field that is missing or wrong;
    /// the message names it.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let dir = match path.file_name() {
            Some(name) if name == RUN_FILE && path.is_file() => path.parent().unwrap_or(Path::new("")).to_owned(),
            _ => path.to_owned(),
        };
        foreign::refuse_files(&dir)?;
        let file = dir.join(RUN_FILE);
        // First: what a writer takes out of it meanwhile is in `run.json` by then.
        let lines = journal::read(&dir)?;
        let text = match files::read_whole(&file) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound && dir.is_dir() => return Err(foreign::not_a_run(dir)),
            Err(e) => return Err(Error::io("read", file)(e)),
        };
        let (mut run, unknown) = json::parse_run(&file, &text)?;
        let cut_line = journal::add(&dir, &lines, &mut run)?;
        Ok(Self { dir, run, unknown, cut_line })
    }

    /// The folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What `run.json` and the journal say.
    #[must_use]
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// Whether somebody writes the run now. A run in [`crate::State::Running`] that nobody writes
    /// was cut off: its writer was killed. `None` where the file system does not tell.
    #[must_use]
    pub fn is_being_written(&self) -> Option<bool> {
        Lock::is_held(&self.dir)
    }

    /// The run without its folder.
    #[must_use]
    pub fn into_run(self) -> Run {
        self.run
    }

    /// Fields of `run.json` that this version does not know, the first few: misspelt, or of a newer
    /// minor version. Worth telling.
    #[must_use]
    pub fn unknown_fields(&self) -> &[String] {
        &self.unknown
    }

    /// Whether the last line of `cells.jsonl` is cut short and was left out: the cell that was
    /// being entered when the writer was killed. Worth telling, unless somebody writes the run now.
    #[must_use]
    pub fn has_cut_line(&self) -> bool {
        self.cut_line
    }

    /// The samples of a cell, in small batches; `None`: it has none.
    ///
    /// # Errors
    /// The file is missing, not what `run.json` says, or damaged.
    pub fn samples(&self, cell: &Cell) -> Result<Option<SampleStream>> {
        let Some(file) = &cell.samples else { return Ok(None) };
        SampleStream::open(&self.dir.join(&file.path), Some(file)).map(Some)
    }

    /// All samples of a cell (40 bytes each); empty if it has none.
    ///
    /// # Errors
    /// As [`Reader::samples`].
    pub fn read_samples(&self, cell: &Cell) -> Result<Vec<Sample>> {
        let mut all = Vec::new();
        if let Some(mut stream) = self.samples(cell)? {
            while stream.next_batch(&mut all)? {}
        }
        Ok(all)
    }

    /// Reads everything once; returns what is wrong with which samples file.
    #[must_use]
    pub fn verify(&self) -> Vec<Error> {
        let mut batch = Vec::new();
        let mut whole = |cell: &Cell| -> Result<()> {
            let Some(mut stream) = self.samples(cell)? else { return Ok(()) };
            while stream.next_batch(&mut batch)? {
                batch.clear();
            }
            Ok(())
        };
        self.run.cells.iter().filter_map(|c| whole(c).err()).collect()
    }
}

/// Name of the file that makes a folder a run.
pub(crate) const RUN_FILE: &str = "run.json";

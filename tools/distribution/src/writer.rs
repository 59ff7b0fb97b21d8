//! Writes a run so that whatever happens (a kill, a full disk), the folder holds a run with every
//! cell that was finished.
//!
//! Order is all: a samples file is complete and on the device under its final name before
//! `run.json` names it, and `run.json` is replaced in one step by a complete successor. What a kill
//! leaves beside that (a `.tmp` file, a samples file that no cell names) is not part of the run,
//! and is overwritten in time.
//!
//! Cost: while `run.json` is short it is written anew for each cell. Of thousands of cells, ten
//! kilobytes each, that would be tens of gigabytes in all: once it is longer than [`WHOLE_BELOW`],
//! a finished cell becomes a line at the end of `cells.jsonl`, and `run.json` is written anew each
//! time these lines come to a quarter of it. What is written in all stays a small multiple of what
//! there is (`cargo run --release -p weir-distribution --example many_cells`).

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::check;
use crate::error::{Error, Result};
use crate::files::{Files, RealFiles};
use crate::journal::{JOURNAL_FILE, Journal};
use crate::json;
use crate::lock::{LOCK_FILE, Lock};
use crate::model::{Cell, Launch, Run, Sample, SamplesFile, State};
use crate::reader::{RUN_FILE, Reader};
use crate::samples::SamplesWriter;

/// What to do where a run is already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Nothing: an error.
    Refuse,
    /// Remove it (the files of a run, nothing else in the folder).
    Overwrite,
}

/// A run being written.
pub struct Writer {
    dir: PathBuf,
    files: Box<dyn Files>,
    run: Run,
    /// The cells of `run` as they stand in `run.json`: each is rendered once, not once for every
    /// cell that follows.
    rendered: Vec<String>,
    /// Bytes of `rendered`.
    rendered_bytes: u64,
    /// The last cells, as long as `run.json` does not name them.
    journal: Journal,
    /// See [`WHOLE_BELOW`].
    whole_below: u64,
    /// Nobody else writes meanwhile.
    _lock: Lock,
    /// Whether the folder was made for this run.
    made: bool,
}

/// Up to so many bytes of cells, all of `run.json` is written for each cell: some milliseconds, and
/// who reads the folder meanwhile finds everything in one file. The cells of a usual launch are
/// fewer.
const WHOLE_BELOW: u64 = 512 << 10;
/// Beyond, lines of the journal may come to this part of `run.json` before it is written anew.
const JOURNAL_PART: u64 = 4;

/// How `run.json` was replaced or the journal grew, or not.
enum Saved {
    /// It is on the device.
    Durable,
    /// It has its new content, which a crash of the whole machine may take back: it could not be
    /// synced.
    Unsynced(Error),
}

/// The samples of a cell being written, in as many parts as one likes.
pub struct CellWriter {
    id: u32,
    path: PathBuf,
    tmp: PathBuf,
    samples: SamplesWriter,
    /// Cells finished before, for messages.
    finished: usize,
}

impl CellWriter {
    /// The id the cell will have.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Appends samples.
    ///
    /// # Errors
    /// The file system refused: the cell is lost, finished ones are not. Give it to
    /// [`Writer::discard`].
    pub fn push(&mut self, samples: &[Sample]) -> Result<()> {
        self.samples.push(samples).map_err(Error::write(&self.path, self.finished))
    }
}

impl Writer {
    /// Makes the folder and an empty run in it. Cells in `run` are left out: they come through
    /// [`Writer::write_cell`].
    ///
    /// # Errors
    /// There is a run or something else already, somebody else writes it, a field of the head makes
    /// no sense, or the file system refused.
    pub fn create(dir: impl AsRef<Path>, run: Run, existing: Existing) -> Result<Self> {
        Self::create_with(dir.as_ref(), run, existing, Box::new(RealFiles))
    }

    fn create_with(dir: &Path, mut run: Run, existing: Existing, files: Box<dyn Files>) -> Result<Self> {
        run.cells.clear();
        check_head(&dir.join(RUN_FILE), &run)?;
        let made = !dir.exists();
        is_ours(dir, existing)?;
        let lock = Lock::take(dir)?;
        // What was there may have changed until the lock was taken.
        is_ours(dir, existing)?;
        let mut writer = Self::of(dir.to_owned(), files, run, lock);
        writer.made = made;
        make_room(dir, &*writer.files)?;
        let samples = dir.join(SAMPLES_DIR);
        fs::create_dir_all(&samples).map_err(Error::io("create", &samples))?;
        writer.save(0)?.durable()?;
        Ok(writer)
    }

    /// Goes on with a run: more cells, or another launch.
    ///
    /// # Errors
    /// There is no run, somebody else writes it, it cannot be read, or the file system refused.
    pub fn append(dir: impl AsRef<Path>) -> Result<Self> {
        let dir = Reader::open(dir.as_ref())?.dir().to_owned();
        let lock = Lock::take(&dir)?;
        // Read under the lock: another launch may have added to it.
        let reader = Reader::open(&dir)?;
        let samples = dir.join(SAMPLES_DIR);
        fs::create_dir_all(&samples).map_err(Error::io("create", &samples))?;
        let (files, run) = (Box::new(RealFiles), reader.into_run());
        let mut writer = Self::of(dir, files, run, lock);
        writer.render_all()?;
        // What a killed writer left in its journal is in `run.json` from now on, and the journal is
        // ours.
        if writer.dir.join(JOURNAL_FILE).exists() {
            writer.save(writer.run.cells.len())?.durable()?;
        }
        Ok(writer)
    }

    fn of(dir: PathBuf, files: Box<dyn Files>, run: Run, lock: Lock) -> Self {
        let journal = Journal::new(&dir);
        let (rendered, rendered_bytes, whole_below) = (Vec::new(), 0, WHOLE_BELOW);
        Self { dir, files, run, rendered, rendered_bytes, journal, whole_below, _lock: lock, made: false }
    }

    /// The run as written so far.
    #[must_use]
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// The folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Changes the head (state, warnings, a launch's clock) or the cells' records and saves.
    ///
    /// # Errors
    /// A field makes no sense, or the file system refused; the run is then as before, unless all
    /// that failed was the syncing of the folder after `run.json` had been replaced.
    pub fn update(&mut self, change: impl FnOnce(&mut Run)) -> Result<()> {
        let before = (self.run.clone(), self.rendered.clone(), self.rendered_bytes);
        change(&mut self.run);
        let result = self.check_all().and_then(|()| self.render_all()).and_then(|()| self.save(self.run.cells.len()));
        if result.is_err() {
            (self.run, self.rendered, self.rendered_bytes) = before;
        }
        result.and_then(Saved::durable)
    }

    /// Takes a cell out of the run, and its samples away.
    ///
    /// # Errors
    /// As [`Writer::update`]. That the samples file cannot be removed is none: no cell names it any
    /// more.
    pub fn remove_cell(&mut self, id: u32) -> Result<()> {
        let samples = self.run.cells.iter().find(|cell| cell.id == id).and_then(|cell| cell.samples.clone());
        self.update(|run| run.cells.retain(|cell| cell.id != id))?;
        if let Some(samples) = samples {
            let _ = fs::remove_file(self.dir.join(samples.path));
        }
        Ok(())
    }

    /// Adds a launch and saves.
    ///
    /// # Errors
    /// As [`Writer::update`].
    pub fn begin_launch(&mut self, launch: Launch) -> Result<()> {
        self.update(|run| {
            run.state = State::Running;
            run.launches.push(launch);
        })
    }

    /// Begins a cell's samples file.
    ///
    /// # Errors
    /// The file system refused.
    pub fn begin_cell(&self) -> Result<CellWriter> {
        let id = self.run.cells.iter().map(|c| c.id + 1).max().unwrap_or(0);
        let path = self.dir.join(SAMPLES_DIR).join(format!("{id:05}.parquet"));
        let tmp = path.with_extension("parquet.tmp");
        let out = self.files.create(&tmp).map_err(self.failed(&path))?;
        let samples = SamplesWriter::new(out).map_err(self.failed(&path))?;
        Ok(CellWriter { id, path, tmp, samples, finished: self.run.cells.len() })
    }

    /// Finishes a cell: its samples, then `run.json` with its record. Sets the record's id and
    /// samples file; returns the id.
    ///
    /// # Errors
    /// A field makes no sense, or the file system refused: the cell is lost, finished ones are not,
    /// and the writer can go on. If all that failed was the syncing of the folder after `run.json`
    /// had been replaced, the cell is in the run ([`Writer::run`]) in spite of the error.
    pub fn finish_cell(&mut self, mut cell: Cell, samples: CellWriter) -> Result<u32> {
        let CellWriter { id, path, tmp, samples, .. } = samples;
        cell.id = id;
        let written = samples.finish().and_then(|w| self.files.rename(&tmp, &path).map(|()| w));
        let written = written.map_err(self.failed(&path));
        let synced = written.and_then(|w| {
            let folder = self.dir.join(SAMPLES_DIR);
            self.files.sync_dir(&folder).map(|()| w).map_err(self.failed(&folder))
        });
        let result = synced.and_then(|w| {
            let name = format!("{SAMPLES_DIR}/{id:05}.parquet");
            cell.samples = Some(SamplesFile { path: name, count: w.count, bytes: Some(w.bytes), crc32: Some(w.crc32) });
            self.add(cell)
        });
        if result.is_err() {
            // Room for others; that it may fail does not matter, no cell names the file.
            let _ = self.files.remove(&tmp);
            let _ = self.files.remove(&path);
        }
        // Once `run.json` names the samples, they stay.
        result.and_then(Saved::durable).map(|()| id)
    }

    /// Drops a cell that was begun.
    pub fn discard(&self, cell: CellWriter) {
        drop(cell.samples);
        let _ = self.files.remove(&cell.tmp);
    }

    /// Writes a cell whose samples are at hand. Sets the record's id and samples file; returns the
    /// id.
    ///
    /// # Errors
    /// As [`Writer::finish_cell`].
    pub fn write_cell(&mut self, cell: Cell, samples: &[Sample]) -> Result<u32> {
        let mut writer = self.begin_cell()?;
        match writer.push(samples) {
            Ok(()) => self.finish_cell(cell, writer),
            Err(e) => {
                self.discard(writer);
                Err(e)
            }
        }
    }

    /// Writes a cell without samples (a hypothetical machine). Sets the record's id; returns it.
    ///
    /// # Errors
    /// As [`Writer::finish_cell`].
    pub fn write_record(&mut self, mut cell: Cell) -> Result<u32> {
        cell.id = self.run.cells.iter().map(|c| c.id + 1).max().unwrap_or(0);
        let id = cell.id;
        self.add(cell).and_then(Saved::durable).map(|()| id)
    }

    /// Ends the run: sets its state, and that of launches still running, and saves.
    ///
    /// # Errors
    /// As [`Writer::update`].
    pub fn finish(mut self, state: State) -> Result<()> {
        self.update(|run| {
            run.state = state;
            for l in run.launches.iter_mut().filter(|l| l.state == State::Running) {
                l.state = state;
            }
        })
    }

    /// Takes back a launch that ended before a cell of it was finished. Where it is the only one,
    /// nothing of the run stays, nor the folder if it was made for it; else the run is as it was
    /// before, in this state.
    ///
    /// # Errors
    /// The file system refused.
    pub fn withdraw(mut self, launch: u32, state: State) -> Result<()> {
        if self.run.launches.iter().any(|l| l.number != launch) || !self.run.cells.is_empty() {
            return self.update(|run| {
                run.launches.retain(|l| l.number != launch);
                run.state = state;
            });
        }
        make_room(&self.dir, &*self.files)?;
        let samples = self.dir.join(SAMPLES_DIR);
        fs::remove_dir(&samples).map_err(Error::io("remove", &samples))?;
        let (dir, made) = (self.dir.clone(), self.made);
        // The lock's file goes with it.
        drop(self);
        if !made {
            return Ok(());
        }
        match fs::remove_dir(&dir) {
            // Somebody else has put something there meanwhile.
            Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
            removed => removed.map_err(Error::io("remove", &dir)),
        }
    }

    fn add(&mut self, cell: Cell) -> Result<Saved> {
        let index = self.run.cells.len();
        let checked = check::cell(&self.run, &format!("cells[{index}]"), &cell);
        checked.map_err(|(field, problem)| self.field(field, problem))?;
        let text = json::render_cell(&self.run_file(), index, &cell)?;
        let line = json::render_line(&self.run_file(), &cell)?;
        let bytes = text.len() as u64;
        self.rendered.push(text);
        self.rendered_bytes += bytes;
        self.run.cells.push(cell);
        let saved = match self.goes_to_journal(line.len() as u64) {
            true => self.append_line(&line, index),
            false => self.save(index),
        };
        if saved.is_err() {
            self.rendered.pop();
            self.rendered_bytes -= bytes;
            self.run.cells.pop();
        }
        saved
    }

    /// Whether a cell of so many bytes more is not worth all of `run.json`.
    fn goes_to_journal(&self, bytes: u64) -> bool {
        let long = self.rendered_bytes >= self.whole_below;
        long && self.journal.takes() && (self.journal.bytes() + bytes) * JOURNAL_PART < self.rendered_bytes
    }

    fn append_line(&mut self, line: &str, kept: usize) -> Result<Saved> {
        let failed = Error::write(self.journal.path().to_owned(), kept);
        match self.journal.append(&*self.files, line) {
            Ok(Ok(())) => Ok(Saved::Durable),
            Ok(Err(unsynced)) => Ok(Saved::Unsynced(failed(unsynced))),
            Err(error) => Err(failed(error)),
        }
    }

    /// For `map_err`.
    fn failed(&self, path: &Path) -> impl FnOnce(io::Error) -> Error + use<> {
        Error::write(path.to_owned(), self.run.cells.len())
    }

    fn run_file(&self) -> PathBuf {
        self.dir.join(RUN_FILE)
    }

    fn field(&self, field: String, problem: String) -> Error {
        Error::Field { file: self.run_file(), field, problem }
    }

    fn check_all(&self) -> Result<()> {
        check::run(&self.run).map_err(|(field, problem)| self.field(field, problem))
    }

    fn render_all(&mut self) -> Result<()> {
        let file = self.run_file();
        let cells = self.run.cells.iter().enumerate();
        self.rendered = cells.map(|(i, c)| json::render_cell(&file, i, c)).collect::<Result<_>>()?;
        self.rendered_bytes = self.rendered.iter().map(|text| text.len() as u64).sum();
        Ok(())
    }

    /// Replaces `run.json`, which has all cells then: the journal goes. `kept`: cells that are
    /// there if this fails.
    fn save(&mut self, kept: usize) -> Result<Saved> {
        let file = self.run_file();
        let cells = std::mem::take(&mut self.run.cells);
        let text = json::render_run(&file, &self.run, &self.rendered);
        self.run.cells = cells;
        let text = text?;
        let tmp = self.dir.join(RUN_TMP);
        let written = self.files.create(&tmp).and_then(|mut out| {
            out.write_all(text.as_bytes())?;
            out.flush()?;
            out.sync()
        });
        if let Err(e) = written {
            let _ = self.files.remove(&tmp);
            return Err(Error::write(&file, kept)(e));
        }
        self.files.rename(&tmp, &file).map_err(Error::write(&file, kept))?;
        let synced = self.files.sync_dir(&self.dir);
        if let Err(e) = synced {
            // A crash of the machine may take the new `run.json` back: what the journal has is kept
            // for that.
            return Ok(Saved::Unsynced(Error::write(&file, kept)(e)));
        }
        // That it may fail does not matter: readers take from a journal only what `run.json` does
        // not have.
        self.journal.clear(&*self.files);
        Ok(Saved::Durable)
    }
}

impl Saved {
    fn durable(self) -> Result<()> {
        match self {
            Saved::Durable => Ok(()),
            Saved::Unsynced(error) => Err(error),
        }
    }
}

fn check_head(file: &Path, run: &Run) -> Result<()> {
    check::head(run).map_err(|(field, problem)| Error::Field { file: file.to_owned(), field, problem })
}

/// Where samples lie.
const SAMPLES_DIR: &str = "samples";
/// The successor of `run.json`.
const RUN_TMP: &str = "run.json.tmp";

/// Makes the folder if there is none; refuses one with something else in it, or a run that must not
/// be overwritten.
fn is_ours(dir: &Path, existing: Existing) -> Result<()> {
    let listing = match fs::read_dir(dir) {
        Ok(listing) => listing,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return fs::create_dir_all(dir).map_err(Error::io("create", dir));
        }
        Err(e) => return Err(Error::io("open", dir)(e)),
    };
    let mut names = Vec::new();
    for entry in listing {
        names.push(entry.map_err(Error::io("open", dir))?.file_name());
    }
    let ours = |name: &std::ffi::OsString| {
        [RUN_FILE, RUN_TMP, SAMPLES_DIR, LOCK_FILE, JOURNAL_FILE].iter().any(|own| name == own)
    };
    match names.iter().any(|n| n == RUN_FILE) {
        true if existing == Existing::Refuse => {
            let (state, cells) =
                Reader::open(dir).map_or((State::Running, 0), |r| (r.run().state, r.run().cells.len()));
            Err(Error::Exists { path: dir.to_owned(), state, cells })
        }
        // A kill before the first `run.json` leaves a folder with nothing in it but ours: that is
        // no run yet.
        false if !names.iter().all(ours) => Err(Error::Foreign(dir.to_owned())),
        _ => Ok(()),
    }
}

/// Removes the run that may be overwritten; `run.json` goes first, so that half a run never looks
/// like one.
fn make_room(dir: &Path, files: &dyn Files) -> Result<()> {
    let run_file = dir.join(RUN_FILE);
    for file in [run_file, dir.join(JOURNAL_FILE)] {
        if file.exists() {
            files.remove(&file).map_err(Error::io("remove", &file))?;
        }
    }
    remove_samples(&dir.join(SAMPLES_DIR), files)
}

/// Removes what a run has in its samples folder: numbered Parquet files and what was becoming one.
fn remove_samples(dir: &Path, files: &dyn Files) -> Result<()> {
    let Ok(listing) = fs::read_dir(dir) else { return Ok(()) };
    for entry in listing {
        let path = entry.map_err(Error::io("open", dir))?.path();
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        let stem = name.strip_suffix(".parquet").or_else(|| name.strip_suffix(".parquet.tmp"));
        if stem.is_some_and(|s| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit())) {
            files.remove(&path).map_err(Error::io("remove", &path))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;

//! Cells that were finished since `run.json` was last written: a line of JSON each in
//! `cells.jsonl`, at whose end only is written.
//!
//! A cell that `run.json` has is left out of the journal when it is read, so that it does not
//! matter whether a kill came before or after the journal of a complete `run.json` was removed.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::files::{self, Files, Output};
use crate::json;
use crate::model::{Cell, Run};

/// Name of the journal in the run's folder.
pub(crate) const JOURNAL_FILE: &str = "cells.jsonl";

/// The journal of a writer.
pub(crate) struct Journal {
    path: PathBuf,
    /// Open from the first line on.
    file: Option<Box<dyn Output>>,
    /// Bytes of the lines in it.
    bytes: u64,
    /// A line could not be written whole: nothing may follow it.
    broken: bool,
}

impl Journal {
    /// Of the run in a folder; no file yet.
    pub(crate) fn new(dir: &Path) -> Journal {
        Journal { path: dir.join(JOURNAL_FILE), file: None, bytes: 0, broken: false }
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of the lines in it.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether a line may be added.
    pub(crate) fn takes(&self) -> bool {
        !self.broken
    }

    /// Adds a line, its end included. The inner result says whether it is on the device; it is in
    /// the file in any case.
    pub(crate) fn append(&mut self, files: &dyn Files, line: &str) -> io::Result<io::Result<()>> {
        let fresh = self.file.is_none();
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(files.append(&self.path)?),
        };
        if let Err(error) = file.write_all(line.as_bytes()).and_then(|()| file.flush()) {
            self.broken = true;
            return Err(error);
        }
        self.bytes += line.len() as u64;
        let synced = file.sync();
        let folder = self.path.parent().filter(|_| fresh);
        Ok(synced.and_then(|()| folder.map_or(Ok(()), |folder| files.sync_dir(folder))))
    }

    /// Removes it, as `run.json` has all that is in it.
    pub(crate) fn clear(&mut self, files: &dyn Files) {
        let was_there = self.file.take().is_some() || self.path.exists();
        if was_there && files.remove(&self.path).is_err() {
            // It stays as it is, and is removed the next time: a line behind a broken one could not
            // be read.
            return;
        }
        (self.bytes, self.broken) = (0, false);
    }
}

/// What there is of a journal: nothing if there is none.
///
/// # Errors
/// It cannot be read.
pub(crate) fn read(dir: &Path) -> Result<Vec<u8>> {
    let path = dir.join(JOURNAL_FILE);
    match files::read_whole(&path) {
        Ok(text) => Ok(text),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(Error::io("read", path)(e)),
    }
}

/// Adds to a run the cells of its journal that it does not have; says whether the last line is cut
/// short, and left out.
///
/// # Errors
/// A line that is no cell, or a cell without sense.
pub(crate) fn add(dir: &Path, text: &[u8], run: &mut Run) -> Result<bool> {
    let file = dir.join(JOURNAL_FILE);
    let mut known: BTreeSet<u32> = run.cells.iter().map(|cell| cell.id).collect();
    let mut added = false;
    for (line, number) in text.split_inclusive(|byte| *byte == b'\n').zip(1..) {
        if !line.ends_with(b"\n") {
            return checked(&file, run, added).map(|()| true);
        }
        let cell: Cell = json::parse_line(&file, number, line)?;
        if known.insert(cell.id) {
            run.cells.push(cell);
            added = true;
        }
    }
    checked(&file, run, added).map(|()| false)
}

fn checked(file: &Path, run: &Run, added: bool) -> Result<()> {
    if added { json::check(file, run) } else { Ok(()) }
}

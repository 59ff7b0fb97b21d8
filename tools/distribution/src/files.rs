//! The few things done to the file system, behind a trait so that tests can let each of them fail.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// What is in a file. A pipe in its place would be waited at for ever, a device may have no end.
pub(crate) fn read_whole(path: &Path) -> io::Result<Vec<u8>> {
    is_a_file(path)?;
    fs::read(path)
}

/// Refuses what is neither a file nor a folder, which reading refuses.
pub(crate) fn is_a_file(path: &Path) -> io::Result<()> {
    let there = fs::metadata(path)?.file_type();
    if there.is_file() || there.is_dir() {
        return Ok(());
    }
    Err(io::Error::other("is no file, but a pipe, a socket or a device"))
}

/// A file being written.
pub(crate) trait Output: Write + Send {
    /// Returns when the content is on the device.
    fn sync(&mut self) -> io::Result<()>;
}

impl Output for File {
    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

/// The file system, as far as a writer needs it.
pub(crate) trait Files: Send {
    /// A new, empty file in the place of whatever was there.
    fn create(&self, path: &Path) -> io::Result<Box<dyn Output>>;
    /// The end of a file, which is made if it is not there.
    fn append(&self, path: &Path) -> io::Result<Box<dyn Output>>;
    /// Gives a file its final name, in one step.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Returns when the folder's names are on the device.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
}

/// The real one.
pub(crate) struct RealFiles;

impl Files for RealFiles {
    fn create(&self, path: &Path) -> io::Result<Box<dyn Output>> {
        Ok(Box::new(File::create(path)?))
    }

    fn append(&self, path: &Path) -> io::Result<Box<dyn Output>> {
        Ok(Box::new(File::options().create(true).append(true).open(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }
}

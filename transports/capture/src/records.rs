//! Files of whole records: what a full disk cuts short ends with its last whole record, so that
//! whoever reads it finds no half one.

use std::fs::File;
use std::io::{self, Write};

/// A file that records are appended to through a buffer.
pub struct RecordFile<W: Sink = File> {
    to: W,
    buffer: Vec<u8>,
    /// Where each record in the buffer ends.
    ends: Vec<usize>,
    /// What is not in the buffer any more, bytes: whole records.
    written: u64,
    /// The first error, after which nothing is written.
    failed: bool,
}

/// What records are written to.
pub trait Sink: Write {
    /// Cuts it off behind this many bytes, as far as it is something that can be cut off.
    fn cut(&mut self, len: u64);
}

impl Sink for File {
    fn cut(&mut self, len: u64) {
        // A pipe or a device refuses, and what it has is gone.
        let _ = self.set_len(len);
    }
}

impl<W: Sink> RecordFile<W> {
    /// An empty file's records, of which up to `buffer_bytes` wait in memory.
    pub fn new(to: W, buffer_bytes: usize) -> RecordFile<W> {
        RecordFile { to, buffer: Vec::with_capacity(buffer_bytes), ends: Vec::new(), written: 0, failed: false }
    }

    /// Appends one record, which is in the file at the next [`RecordFile::flush`] at the latest.
    ///
    /// # Errors
    /// As [`RecordFile::flush`].
    pub fn append(&mut self, record: &[u8]) -> io::Result<()> {
        if self.failed {
            return Ok(());
        }
        if self.buffer.len() + record.len() > self.buffer.capacity() {
            self.flush()?;
        }
        self.buffer.extend_from_slice(record);
        self.ends.push(self.buffer.len());
        Ok(())
    }

    /// Writes what waits.
    ///
    /// # Errors
    /// The file's (disk full), once: the file then ends behind the last record that is there as a
    /// whole, and what is appended later is lost.
    pub fn flush(&mut self) -> io::Result<()> {
        let mut done = 0;
        let mut result = Ok(());
        while done < self.buffer.len() && result.is_ok() {
            match self.to.write(&self.buffer[done..]) {
                Ok(0) => result = Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => result = Err(e),
            }
        }
        if result.is_err() {
            self.failed = true;
            let whole = self.ends.iter().rev().find(|&&end| end <= done).copied().unwrap_or(0);
            self.to.cut(self.written + whole as u64);
        }
        self.written += done as u64;
        self.buffer.clear();
        self.ends.clear();
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Takes so many bytes, in pieces of this size.
    struct Disk {
        has: Vec<u8>,
        room: usize,
        piece: usize,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let n = bytes.len().min(self.piece).min(self.room - self.has.len());
            if n == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.has.extend_from_slice(&bytes[..n]);
            Ok(n)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Sink for Disk {
        fn cut(&mut self, len: u64) {
            self.has.truncate(len as usize);
        }
    }

    proptest! {
        #[test]
        fn a_full_disk_has_the_whole_records_that_it_had_room_for_and_says_so_once(
            lens in prop::collection::vec((1..40usize, any::<bool>()), 1..60),
            room in 0..1500usize,
            piece in 1..200usize,
            buffer_bytes in 0..200usize,
        ) {
            let mut file = RecordFile::new(Disk { has: Vec::new(), room, piece }, buffer_bytes);
            let (mut all, mut whole, mut errors) = (Vec::new(), 0, 0);
            for (i, &(len, flush)) in lens.iter().enumerate() {
                let record = vec![i as u8; len];
                all.extend_from_slice(&record);
                if all.len() <= room {
                    whole = all.len();
                }
                errors += u32::from(file.append(&record).is_err());
                if flush {
                    errors += u32::from(file.flush().is_err());
                }
            }
            errors += u32::from(file.flush().is_err());
            prop_assert_eq!(errors, u32::from(all.len() > room));
            prop_assert_eq!(&file.to.has[..], &all[..whole]);
        }
    }
}

//! The memory of a rank's operations: what is sent is a function of its message and stored nowhere;
//! what is received is kept as it comes, until the receive ends and it is judged.

use std::cell::RefCell;
use std::rc::Rc;

use weir_message::Memory;

use crate::check::payload;

/// Bytes computed at a time.
const CHUNK_BYTES: usize = 1024;

/// Names the memory of an operation.
#[derive(Clone, Debug, Default)]
pub struct Pattern {
    what: What,
    offset: u64,
    len: u64,
    /// Some changes are made twice: a defect, to be found.
    twice: bool,
    /// What is read of it is wrong (`Defect::ParitySpoilt`).
    spoilt: bool,
    /// Parts of it begin a byte too early (`Defect::PartsOverlap`).
    overlapping: bool,
}

#[derive(Clone, Debug, Default)]
enum What {
    #[default]
    Nothing,
    /// The payload of a message, by its key. Nobody may write there.
    Payload(u64),
    /// What was written; behind its end nothing was.
    Room(Rc<RefCell<Vec<u8>>>),
}

impl Pattern {
    /// The payload of a message of `len` bytes.
    #[must_use]
    pub fn payload(key: u64, len: u64) -> Pattern {
        Pattern { what: What::Payload(key), len, ..Pattern::default() }
    }

    /// Room for `len` bytes, and what is in it.
    #[must_use]
    pub fn room(len: u64) -> (Pattern, Rc<RefCell<Vec<u8>>>) {
        let bytes = Rc::default();
        (Pattern { what: What::Room(Rc::clone(&bytes)), len, ..Pattern::default() }, bytes)
    }

    /// Room for counters that starts with zeros. With `twice`, every fiftieth change of one is made
    /// twice.
    #[must_use]
    pub fn counters(len: u64, twice: bool) -> (Pattern, Rc<RefCell<Vec<u8>>>) {
        let (room, bytes) = Pattern::room(len);
        bytes.borrow_mut().resize(len as usize, 0);
        (Pattern { twice, ..room }, bytes)
    }

    /// The same, and what is read of it is wrong if `spoilt`.
    pub(super) fn spoilt(self, spoilt: bool) -> Pattern {
        Pattern { spoilt, ..self }
    }

    /// The same, and its parts begin a byte too early if `overlapping`.
    pub(super) fn overlapping(self, overlapping: bool) -> Pattern {
        Pattern { overlapping, ..self }
    }

    /// How many of `len` bytes from `offset` on there are.
    fn within(&self, offset: u64, len: usize) -> usize {
        self.len.saturating_sub(offset).min(len as u64) as usize
    }
}

impl Memory for Pattern {
    fn len(&self) -> u64 {
        self.len
    }

    fn read(&self, offset: u64, dst: &mut [u8]) {
        let n = self.within(offset, dst.len());
        let (at, dst) = (self.offset + offset, &mut dst[..n]);
        match &self.what {
            What::Nothing => {}
            What::Payload(key) => payload::fill(*key, at, dst),
            What::Room(bytes) => {
                let bytes = bytes.borrow();
                let there = bytes.get(at as usize..).unwrap_or(&[]);
                let (came, missing) = dst.split_at_mut(n.min(there.len()));
                came.copy_from_slice(&there[..came.len()]);
                missing.fill(0);
            }
        }
        if let (true, Some(first)) = (self.spoilt, dst.first_mut()) {
            *first ^= 1;
        }
    }

    fn write(&self, offset: u64, src: &[u8]) -> usize {
        let n = self.within(offset, src.len());
        let What::Room(bytes) = &self.what else {
            assert!(n == 0, "somebody writes into what is sent");
            return 0;
        };
        let (mut bytes, at) = (bytes.borrow_mut(), (self.offset + offset) as usize);
        if n > 0 {
            let end = (at + n).max(bytes.len());
            bytes.resize(end, 0);
            bytes[at..at + n].copy_from_slice(&src[..n]);
        }
        n
    }

    fn part(&self, offset: u64, len: u64) -> Self {
        let offset = offset.min(self.len).saturating_sub(u64::from(self.overlapping));
        Pattern { offset: self.offset + offset, len: len.min(self.len - offset), ..self.clone() }
    }

    fn copy_from(&self, offset: u64, src: &Self, len: u64) {
        let mut bytes = vec![0; len.min(src.len).min(self.len.saturating_sub(offset)) as usize];
        src.read(0, &mut bytes);
        self.write(offset, &bytes);
    }

    /// It begins at a multiple of everything.
    fn update(&self, offset: u64, bytes: usize, mut change: impl FnMut(u64) -> Option<u64>) -> Option<u64> {
        if self.within(offset, bytes) < bytes || !(self.offset + offset).is_multiple_of(bytes as u64) {
            return None;
        }
        let mut word = [0; 8];
        self.read(offset, &mut word[..bytes]);
        let old = u64::from_le_bytes(word);
        if let Some(new) = change(old) {
            let again = if self.twice && old % 50 == 49 { change(new) } else { None };
            let new = again.unwrap_or(new);
            self.write(offset, &new.to_le_bytes()[..bytes]);
        }
        Some(old)
    }

    fn crc32c(&self, offset: u64, len: usize, crc: u32) -> u32 {
        let (mut chunk, all, mut crc, mut done) = ([0; CHUNK_BYTES], self.within(offset, len), crc, 0);
        while done < all {
            let bytes = &mut chunk[..CHUNK_BYTES.min(all - done)];
            self.read(offset + done as u64, bytes);
            crc = weir_wire::crc32c_append(crc, bytes);
            done += bytes.len();
        }
        crc
    }

    fn address(&self) -> usize {
        self.offset as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_names_the_same_bytes_and_what_lies_outside_is_left_out() {
        let (room, bytes) = Pattern::room(10);
        let part = room.part(4, 100);
        assert_eq!((part.len(), part.address(), part.write(2, &[1, 2, 3, 4, 5, 6])), (6, 4, 4));
        assert_eq!(*bytes.borrow(), [0, 0, 0, 0, 0, 0, 1, 2, 3, 4]);
        let mut back = [9; 12];
        room.read(0, &mut back);
        assert_eq!(back, [0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 9, 9]);
        assert_eq!((room.write(10, &[1]), room.part(11, 1).len()), (0, 0));
        assert_eq!(room.crc32c(6, 99, 7), weir_wire::crc32c_append(7, &[1, 2, 3, 4]));
    }

    #[test]
    fn what_is_sent_is_the_pattern_of_its_message() {
        let sent = Pattern::payload(5, 5000);
        let (room, bytes) = Pattern::room(u64::MAX);
        room.copy_from(3, &sent, u64::MAX);
        assert_eq!((bytes.borrow().len(), payload::first_wrong(5, 0, &bytes.borrow()[3..])), (5003, None));
        assert_eq!(sent.crc32c(7, 4000, 0), weir_wire::crc32c_append(0, &bytes.borrow()[10..4010]));
        let mut tail = [0; 8];
        sent.part(4990, 5).read(0, &mut tail);
        assert_eq!(tail[..5], bytes.borrow()[4993..4998]);
    }
}

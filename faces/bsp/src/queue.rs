//! Messages of `bsp_send` that have come: in the order of the processes, and of each in the order
//! of its calls.

use crate::packing::{Letter, Malformed, letter};

/// The messages of one process, where they arrived.
#[derive(Clone, Copy, Debug)]
struct Section {
    at: *const u8,
    len: usize,
}

/// The queue of a process in one superstep.
#[derive(Debug, Default)]
pub struct Inbox {
    sections: Vec<Section>,
    /// Which of them holds the first message, and where in it.
    section: usize,
    at: usize,
    /// Messages that are left.
    pub count: u64,
    /// Bytes of their payloads.
    pub payload: u64,
    tag_bytes: usize,
}

/// A message, where it lies.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Its tag.
    pub tag: *const u8,
    /// Its payload.
    pub payload: *const u8,
    /// Bytes of it.
    pub len: usize,
}

impl Inbox {
    /// Nothing is in it; messages that come have tags of so many bytes.
    pub fn clear(&mut self, tag_bytes: usize) {
        self.sections.clear();
        *self = Inbox { sections: std::mem::take(&mut self.sections), tag_bytes, ..Inbox::default() };
    }

    /// Appends the messages of a process.
    ///
    /// # Errors
    /// They are not `count` messages with so many bytes of payloads.
    ///
    /// # Safety
    /// The bytes stay as they are until [`Inbox::clear`].
    pub unsafe fn append(&mut self, bytes: &[u8], count: u64, payload: u64) -> Result<(), Malformed> {
        let (mut at, mut counted, mut summed) = (0, 0, 0);
        while at < bytes.len() {
            let letter = letter(bytes, at, self.tag_bytes)?;
            at = letter.end;
            counted += 1;
            summed += letter.len as u64;
        }
        if (counted, summed) != (count, payload) {
            return Err(Malformed("it has other messages than its head says"));
        }
        if count > 0 {
            self.sections.push(Section { at: bytes.as_ptr(), len: bytes.len() });
        }
        self.count += count;
        self.payload += payload;
        Ok(())
    }

    /// The first message.
    #[must_use]
    pub fn first(&self) -> Option<Found> {
        let (section, letter) = self.look()?;
        // SAFETY: `letter` lies within the section, whose bytes are there (`append`).
        let (tag, payload) = unsafe { (section.at.add(letter.tag), section.at.add(letter.payload)) };
        Some(Found { tag, payload, len: letter.len })
    }

    fn look(&self) -> Option<(Section, Letter)> {
        let section = *self.sections.get(self.section)?;
        // SAFETY: these bytes are there and nobody writes to them (`append`).
        let bytes = unsafe { std::slice::from_raw_parts(section.at, section.len) };
        letter(bytes, self.at, self.tag_bytes).ok().map(|letter| (section, letter))
    }

    /// Takes the first message.
    pub fn take(&mut self) -> Option<Found> {
        let found = self.first()?;
        let (section, letter) = self.look()?;
        self.at = letter.end;
        if self.at >= section.len {
            (self.section, self.at) = (self.section + 1, 0);
        }
        self.count -= 1;
        self.payload -= letter.len as u64;
        Some(found)
    }
}

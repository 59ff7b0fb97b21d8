//! What is asked for in a superstep, packed by destination as it is called, and read again where it
//! arrives (`spec/bsp.md` 6).
//!
//! A *record* names a run of bytes in an area: `slot`, `offset`, `len`. In eight bytes where they
//! fit, else in 24. Puts have their bytes behind the record, filled up to eight. Puts (and gets)
//! that continue the one before are one record with it.
#![forbid(unsafe_code)]

/// Eight-byte records hold a slot below this, ...
const SHORT_SLOTS: u32 = 1 << 11;
/// ... an offset below this, ...
const SHORT_OFFSETS: u64 = 1 << 40;
/// ... and at most so many bytes.
const SHORT_LEN: u64 = (1 << 12) - 1;
/// Marks a record of 24 bytes.
const LONG: u64 = 1 << 63;
/// Marks one whose bytes travel in a message of their own.
const APART: u64 = 1 << 62;
/// A message of `bsp_send`: its payload lies at a multiple of this, and so does the next.
pub const SEND_ALIGN: usize = 16;
/// A payload's length stands before a tag.
const LEN_BYTES: usize = 8;

/// A run of bytes in an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Of which area.
    pub slot: u32,
    /// From where.
    pub offset: u64,
    /// How many.
    pub len: u64,
    /// They travel in a message of their own.
    pub apart: bool,
}

impl Run {
    /// The first word, if eight bytes will do.
    #[inline]
    fn short(self) -> Option<u64> {
        let fits = self.slot < SHORT_SLOTS && self.offset < SHORT_OFFSETS && self.len <= SHORT_LEN && !self.apart;
        fits.then(|| self.offset | self.len << 40 | u64::from(self.slot) << 52)
    }

    /// Of its first word, and of more if it has more.
    #[inline]
    pub fn read(word: u64, mut more: impl FnMut() -> Option<u64>) -> Option<Run> {
        if word & LONG == 0 {
            let (slot, len) = ((word >> 52) as u32, word >> 40 & SHORT_LEN);
            return Some(Run { slot, offset: word & (SHORT_OFFSETS - 1), len, apart: false });
        }
        let (offset, len) = (more()?, more()?);
        Some(Run { slot: word as u32, offset, len, apart: word & APART != 0 })
    }
}

/// Records for one destination.
#[derive(Debug)]
pub struct Records {
    /// Filled with whatever: memory to be written to without a question. What counts are the first
    /// `used`.
    bytes: Vec<u8>,
    used: usize,
    /// What a record must begin with to continue the last one, which lies at `last`: its slot and
    /// the end of its bytes, as a short record of no length has them.
    continues: u64,
    last: usize,
    /// Each call has a record of its own: in check mode.
    pub separate: bool,
}

/// No record begins like this one: nothing continues.
const NOTHING: u64 = u64::MAX;
/// What is made first where there is no room.
const FIRST_BYTES: usize = 1 << 10;
/// No more is made at a time than what is needed: the system moves what is long without copying it.
const MORE_BYTES: usize = 1 << 20;
/// A put of eight bytes, record and all.
pub const EIGHT_BYTES: usize = 16;
/// Its length, in the first word.
const EIGHT: u64 = 8 << 40;

/// Short records can name every place of an area of so many bytes.
pub const SHORT_AREA: u64 = SHORT_OFFSETS;

/// The first word of a short record but for its length; `None`: no short record can name this.
#[inline]
#[must_use]
pub fn start_of(slot: u32, offset: u64) -> Option<u64> {
    (slot < SHORT_SLOTS && offset < SHORT_OFFSETS).then(|| offset | u64::from(slot) << 52)
}

/// What stands above the offset in the first word of a put of eight bytes; `None`: it is never
/// short in this slot.
#[must_use]
pub fn key_of_eight(slot: u32) -> Option<u64> {
    start_of(slot, 0).map(|start| (start | EIGHT) / SHORT_OFFSETS)
}

impl Default for Records {
    fn default() -> Self {
        Records { bytes: Vec::new(), used: 0, continues: NOTHING, last: 0, separate: false }
    }
}

impl Records {
    /// The packed records.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.used).unwrap_or(&[])
    }

    /// Nothing is in it any more; its memory is kept.
    pub fn clear(&mut self) {
        self.used = 0;
        self.continues = NOTHING;
    }

    /// A put of eight bytes that `start` ([`start_of`]) names, if it begins a record of its own and
    /// there is room for it: the commonest of all. False: [`Records::put`] will do.
    #[inline]
    pub fn put_eight(&mut self, start: u64, data: [u8; 8]) -> bool {
        let at = self.used;
        let Some(room) = self.bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<EIGHT_BYTES>()) else {
            return false;
        };
        if start == self.continues {
            return false;
        }
        *room = (u128::from(start | EIGHT) | u128::from(u64::from_le_bytes(data)) << 64).to_le_bytes();
        (self.last, self.used, self.continues) = (at, at + EIGHT_BYTES, start + 8);
        true
    }

    /// A put, bytes included.
    #[inline]
    pub fn put(&mut self, slot: u32, offset: u64, data: &[u8]) {
        self.record(Run { slot, offset, len: data.len() as u64, apart: false }, true);
        match <&[u8; 8]>::try_from(data) {
            // The commonest of all lengths needs no loop.
            Ok(eight) => self.append_word(u64::from_le_bytes(*eight)),
            Err(_) => self.append(data),
        }
    }

    /// A get. True: it continues the one before, as it may if the caller says so, who must keep
    /// both as one.
    #[inline]
    pub fn get(&mut self, slot: u32, offset: u64, len: u64, may_continue: bool) -> bool {
        self.record(Run { slot, offset, len, apart: false }, may_continue)
    }

    #[inline]
    fn record(&mut self, run: Run, may_continue: bool) -> bool {
        let Some(word) = run.short() else {
            self.append_long(run);
            return false;
        };
        let start = run.offset | u64::from(run.slot) << 52;
        if start == self.continues && may_continue && !self.separate && self.grow(run.len) {
            return true;
        }
        self.last = self.used;
        self.append_word(word);
        // Only a whole number of words can be continued: else there are fill bytes behind it.
        self.continues = if run.len.is_multiple_of(8) { start + run.len } else { NOTHING };
        false
    }

    #[cold]
    fn append_long(&mut self, run: Run) {
        let apart = if run.apart { APART } else { 0 };
        for word in [LONG | apart | u64::from(run.slot), run.offset, run.len] {
            self.append(&word.to_le_bytes());
        }
        self.continues = NOTHING;
    }

    /// A put or get whose bytes travel in a message of their own.
    pub fn apart(&mut self, slot: u32, offset: u64, len: u64) {
        self.append_long(Run { slot, offset, len, apart: true });
    }

    /// The last record is longer by so much; false: it cannot be.
    #[inline]
    fn grow(&mut self, by: u64) -> bool {
        let Some(word) = self.bytes.get_mut(self.last..).and_then(|rest| rest.first_chunk_mut::<8>()) else {
            return false;
        };
        let before = u64::from_le_bytes(*word);
        if (before >> 40 & SHORT_LEN) + by > SHORT_LEN {
            return false;
        }
        *word = (before + (by << 40)).to_le_bytes();
        self.continues = if by.is_multiple_of(8) { self.continues + by } else { NOTHING };
        true
    }

    #[inline]
    fn append_word(&mut self, word: u64) {
        match self.bytes.get_mut(self.used..).and_then(|rest| rest.first_chunk_mut()) {
            Some(room) => {
                *room = word.to_le_bytes();
                self.used += 8;
            }
            None => self.append(&word.to_le_bytes()),
        }
    }

    /// Bytes, and zeros up to a whole word.
    fn append(&mut self, data: &[u8]) {
        let (at, end) = (self.used, self.used + data.len().next_multiple_of(8));
        if end > self.bytes.len() {
            let more = self.bytes.len().clamp(FIRST_BYTES, MORE_BYTES);
            self.bytes.resize((self.bytes.len() + more).max(end), 0);
        }
        if let Some(room) = self.bytes.get_mut(at..end) {
            let (bytes, rest) = room.split_at_mut(data.len());
            bytes.copy_from_slice(data);
            rest.fill(0);
        }
        self.used = end;
    }
}

/// What is wrong with what arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a superstep message is malformed ({0})")]
pub struct Malformed(pub &'static str);

/// Reads records.
#[derive(Clone, Debug)]
pub struct Runs<'a> {
    bytes: &'a [u8],
    /// Puts have their bytes behind them.
    with_data: bool,
}

impl<'a> Runs<'a> {
    /// Of puts.
    #[must_use]
    pub fn puts(bytes: &'a [u8]) -> Self {
        Runs { bytes, with_data: true }
    }

    /// Of gets.
    #[must_use]
    pub fn gets(bytes: &'a [u8]) -> Self {
        Runs { bytes, with_data: false }
    }

    fn word(&mut self) -> Option<u64> {
        let (word, rest) = self.bytes.split_first_chunk::<8>()?;
        self.bytes = rest;
        Some(u64::from_le_bytes(*word))
    }

    fn one(&mut self) -> Option<(Run, &'a [u8])> {
        let word = self.word()?;
        let run = Run::read(word, || self.word())?;
        if !self.with_data || run.apart {
            return Some((run, &[]));
        }
        let len = usize::try_from(run.len).ok()?;
        let (data, rest) = self.bytes.split_at_checked(len)?;
        self.bytes = rest.get(len.wrapping_neg() % 8..)?;
        Some((run, data))
    }
}

impl<'a> Iterator for Runs<'a> {
    type Item = Result<(Run, &'a [u8]), Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.bytes.is_empty() {
            return None;
        }
        let read = self.one();
        if read.is_none() {
            self.bytes = &[];
        }
        Some(read.ok_or(Malformed("a record is cut off")))
    }
}

/// Messages of `bsp_send` for one destination.
#[derive(Debug, Default)]
pub struct Letters {
    bytes: Vec<u8>,
    /// How many.
    pub count: u64,
    /// Bytes of their payloads.
    pub payload: u64,
}

impl Letters {
    /// The packed messages.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Nothing is in it any more; its memory is kept.
    pub fn clear(&mut self) {
        self.bytes.clear();
        (self.count, self.payload) = (0, 0);
    }

    /// A message.
    #[inline]
    pub fn send(&mut self, tag: &[u8], payload: &[u8]) {
        self.count += 1;
        self.payload += payload.len() as u64;
        self.bytes.extend_from_slice(&(payload.len() as u64).to_le_bytes());
        self.bytes.extend_from_slice(tag);
        self.fill();
        self.bytes.extend_from_slice(payload);
        self.fill();
    }

    #[inline]
    fn fill(&mut self) {
        let filled = self.bytes.len().next_multiple_of(SEND_ALIGN);
        self.bytes.resize(filled, 0);
    }
}

/// Where a message of `bsp_send` lies in what arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Letter {
    /// Where its tag begins.
    pub tag: usize,
    /// Where its payload begins.
    pub payload: usize,
    /// Bytes of the payload.
    pub len: usize,
    /// Where the next one begins.
    pub end: usize,
}

/// The message that begins at `at` of `bytes`, with tags of `tag_bytes`.
///
/// # Errors
/// It is cut off.
#[inline]
pub fn letter(bytes: &[u8], at: usize, tag_bytes: usize) -> Result<Letter, Malformed> {
    const CUT: Malformed = Malformed("a message is cut off");
    let len = bytes.get(at..).and_then(|rest| rest.first_chunk()).map(|word| u64::from_le_bytes(*word)).ok_or(CUT)?;
    let len = usize::try_from(len).map_err(|_| CUT)?;
    let tag = at + LEN_BYTES;
    let filled = |end: Option<usize>| end.and_then(|end| end.checked_next_multiple_of(SEND_ALIGN)).ok_or(CUT);
    let payload = filled(tag.checked_add(tag_bytes))?;
    let end = filled(payload.checked_add(len))?;
    if end <= bytes.len() { Ok(Letter { tag, payload, len, end }) } else { Err(CUT) }
}

//! What is asked for in a superstep, packed by destination as it is called, and read again where it
//! arrives (`spec/bsp.md` 6).
//!
//! A *record* names a run of bytes in an area: `slot`, `offset`, `len`. In eight bytes where they
//! fit, else in 24. Puts have their bytes behind the record, filled up to eight. Puts (and gets)
//! that continue the one before are one record with it. A *list* is many short puts of one length
//! into one area, that do not continue each other: their offsets, then their bytes.
#![forbid(unsafe_code)]

/// Eight-byte records hold a slot below this, ...
const SHORT_SLOTS: u32 = 1 << 11;
/// ... an offset below this, ...
const SHORT_OFFSETS: u64 = 1 << 40;
/// ... and at most so many bytes.
const SHORT_LEN: u64 = (1 << 12) - 1;
/// Where the slot begins in their first word.
const SLOT_SHIFT: u32 = 52;
/// Marks a record of 24 bytes, or a list.
const LONG: u64 = 1 << 63;
/// Marks one whose bytes travel in a message of their own.
const APART: u64 = 1 << 62;
/// Marks a list, ...
const LIST: u64 = 1 << 61;
/// ... whose offsets are of 32 bits and in bytes, not of 16 and in units of its puts' length.
const WIDE: u64 = 1 << 60;
/// Where a list has the number of its puts less one, of 16 bits, ...
const COUNT_SHIFT: u32 = 32;
/// ... and their length, of 4 bits. Those between that and [`WIDE`] are 0.
const LEN_SHIFT: u32 = 48;
/// A message of `bsp_send`: its payload lies at a multiple of this, and so does the next.
pub const SEND_ALIGN: usize = 16;
/// A payload's length stands before a tag.
const LEN_BYTES: usize = 8;
/// Bytes of a word.
pub const WORD: usize = 8;

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
        fits.then(|| self.offset | self.len << 40 | u64::from(self.slot) << SLOT_SHIFT)
    }
}

/// Puts of one length into one area: what describes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct List {
    /// The area.
    pub slot: u32,
    /// How many, 1 at least.
    pub count: usize,
    /// Bytes of each: 1, 2, 4 or 8.
    pub len: usize,
    /// Their offsets are of 32 bits.
    pub wide: bool,
}

impl List {
    fn encode(self) -> u64 {
        let (count, len) = (self.count as u64 - 1, self.len as u64);
        let wide = if self.wide { WIDE } else { 0 };
        LONG | LIST | wide | len << LEN_SHIFT | count << COUNT_SHIFT | u64::from(self.slot)
    }

    /// Of a first word with [`LIST`].
    fn decode(word: u64) -> Option<List> {
        let len = (word >> LEN_SHIFT & 0xf) as usize;
        let good = word & APART == 0 && word >> (LEN_SHIFT + 4) & 0xff == 0 && matches!(len, 1 | 2 | 4 | 8);
        let count = (word >> COUNT_SHIFT & 0xffff) as usize + 1;
        good.then_some(List { slot: word as u32, count, len, wide: word & WIDE != 0 })
    }

    /// Words that its offsets take, ...
    #[inline]
    #[must_use]
    pub fn offset_words(self) -> usize {
        (self.count * self.offset_bytes()).div_ceil(WORD)
    }

    /// ... and its puts' bytes.
    #[inline]
    #[must_use]
    pub fn data_words(self) -> usize {
        (self.count * self.len).div_ceil(WORD)
    }

    /// Bytes of an offset.
    #[inline]
    fn offset_bytes(self) -> usize {
        if self.wide { 4 } else { 2 }
    }
}

/// What a first word begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// A run; its bytes follow, if it is put and does not travel alone.
    Run(Run),
    /// A list: its offsets follow, then its bytes.
    List(List),
}

impl Record {
    /// Of its first word, and of more if it has more. `None`: it cannot be, or is cut off.
    #[inline]
    pub fn read(word: u64, mut more: impl FnMut() -> Option<u64>) -> Option<Record> {
        if word & LONG == 0 {
            let (slot, len) = ((word >> SLOT_SHIFT) as u32, word >> 40 & SHORT_LEN);
            return Some(Record::Run(Run { slot, offset: word & (SHORT_OFFSETS - 1), len, apart: false }));
        }
        if word & LIST != 0 {
            return List::decode(word).map(Record::List);
        }
        let (offset, len) = (more()?, more()?);
        Some(Record::Run(Run { slot: word as u32, offset, len, apart: word & APART != 0 }))
    }
}

/// Records for one destination.
#[derive(Debug)]
pub struct Records {
    /// Filled with whatever: memory to be written to without a question. What counts are the first
    /// `used`.
    bytes: Vec<u8>,
    used: usize,
    /// So many of the last ones only fill up to a word.
    fill: usize,
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

/// Short puts that are packed at a time.
pub const BLOCK: usize = 128;
/// No short put takes more when it is packed, record and all.
pub const PACKED_MAX: usize = 16;
/// Short puts end within so many bytes of an area: what is behind may not look as if it began the
/// next one.
pub const SHORT_AREA: u64 = SHORT_OFFSETS - 1;
/// So many that follow each other in memory are a run among others that do not: fewer are shorter
/// as parts of a list.
const RUN_MIN: usize = 8;
/// Fewer are not shorter as a list.
const LIST_MIN: usize = 3;

/// The first word of a short record but for its length; `None`: no short record can name this.
#[inline]
#[must_use]
pub fn start_of(slot: u32, offset: u64) -> Option<u64> {
    (slot < SHORT_SLOTS && offset < SHORT_OFFSETS).then(|| offset | u64::from(slot) << SLOT_SHIFT)
}

/// What follows a start in memory, at this distance; nothing, where an area can have no such place.
#[inline]
fn behind(start: u64, distance: u64) -> u64 {
    let next = start.wrapping_add(distance);
    if next >> 40 == start >> 40 { next } else { NOTHING }
}

impl Default for Records {
    fn default() -> Self {
        Records { bytes: Vec::new(), used: 0, fill: 0, continues: NOTHING, last: 0, separate: false }
    }
}

impl Records {
    /// The packed records.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.used).unwrap_or(&[])
    }

    /// Nothing is in it.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Nothing is in it any more; its memory is kept.
    pub fn clear(&mut self) {
        self.used = 0;
        self.continues = NOTHING;
    }

    /// A put, bytes included.
    #[inline]
    pub fn put(&mut self, slot: u32, offset: u64, data: &[u8]) {
        if self.record(Run { slot, offset, len: data.len() as u64, apart: false }, true) {
            self.used -= self.fill;
        }
        self.append(data);
    }

    /// A short put of so many bytes (1, 2, 4 or 8): where it begins, and its bytes.
    #[inline]
    pub fn put_short(&mut self, start: u64, len: usize, value: u64) {
        let room = self.bytes.get_mut(self.used..).and_then(|rest| rest.first_chunk_mut::<PACKED_MAX>());
        match room.filter(|_| start != self.continues) {
            Some(room) => {
                *room = (u128::from(start | (len as u64) << 40) | u128::from(value) << 64).to_le_bytes();
                (self.last, self.continues) = (self.used, behind(start, len as u64));
                (self.used, self.fill) = (self.used + PACKED_MAX, WORD - len);
            }
            None => self.put_behind(start, len, value),
        }
    }

    /// The same where it may continue the last one, or has no room.
    #[inline(never)]
    fn put_behind(&mut self, start: u64, len: usize, value: u64) {
        self.put((start >> SLOT_SHIFT) as u32, start % SHORT_OFFSETS, &value.to_le_bytes()[..len.min(WORD)]);
    }

    /// Short puts of `LEN` bytes each (1, 2, 4 or 8) into one area, in the order of their calls:
    /// where each begins ([`start_of`]), and its bytes, little-endian. Each ends within
    /// [`SHORT_AREA`], and they are [`BLOCK`] at most.
    pub fn pack<const LEN: usize>(&mut self, starts: &[u64], values: &[u64]) {
        debug_assert!(starts.len() <= BLOCK && starts.len() == values.len());
        if follow_each_other(starts, LEN as u64) {
            return self.run::<LEN>(starts, values);
        }
        // A run of `RUN_MIN` has two of these one after the other. (No sum is another area's start:
        // none of them is so near to the end of what an area can have.)
        let (fours, rest) = starts.as_chunks::<4>();
        let next = fours.iter().skip(1).map(|four| &four[0]).chain(rest.first());
        if !fours.iter().zip(next).any(|(one, next)| one[0] + 4 * LEN as u64 == *next) {
            return self.list::<LEN>(starts, values);
        }
        let (mut listed, mut at) = (0, 0);
        while at < starts.len() {
            let follows = |pair: &&[u64]| pair[0] + LEN as u64 == pair[1];
            let end = at + 1 + starts[at..].windows(2).take_while(follows).count();
            if end - at >= RUN_MIN {
                self.pieces::<LEN>(&starts[listed..at], &values[listed..at]);
                self.run::<LEN>(&starts[at..end], &values[at..end]);
                listed = end;
            }
            at = end;
        }
        self.pieces::<LEN>(&starts[listed..], &values[listed..]);
    }

    /// Short puts between others that are runs.
    fn pieces<const LEN: usize>(&mut self, starts: &[u64], values: &[u64]) {
        if follow_each_other(starts, LEN as u64) {
            self.run::<LEN>(starts, values);
        } else {
            self.list::<LEN>(starts, values);
        }
    }

    /// Short puts that follow each other in memory.
    fn run<const LEN: usize>(&mut self, starts: &[u64], values: &[u64]) {
        let Some(start) = starts.first() else { return };
        let len = (values.len() * LEN) as u64;
        if *start == self.continues && self.grow(len) {
            self.used -= self.fill;
        } else {
            self.begin(*start, len);
        }
        self.append_values::<LEN>(values);
    }

    /// Short puts of which few follow each other.
    fn list<const LEN: usize>(&mut self, starts: &[u64], values: &[u64]) {
        // All have the same slot; what bits have their offsets?
        let bits = starts.iter().fold(0, |all, start| all | start) % SHORT_OFFSETS;
        let Some(first) = starts.first().filter(|_| starts.len() >= LIST_MIN && bits < 1 << 32) else {
            return starts.iter().zip(values).for_each(|(start, value)| self.put_short(*start, LEN, *value));
        };
        let wide = !bits.is_multiple_of(LEN as u64) || bits >= (LEN as u64) << 16;
        let list = List { slot: (first >> SLOT_SHIFT) as u32, count: starts.len(), len: LEN, wide };
        self.append_word(list.encode());
        if wide {
            for (to, start) in self.extend(4 * starts.len()).as_chunks_mut::<4>().0.iter_mut().zip(starts) {
                *to = (*start as u32).to_le_bytes();
            }
        } else {
            for (to, start) in self.extend(2 * starts.len()).as_chunks_mut::<2>().0.iter_mut().zip(starts) {
                *to = ((start / LEN as u64) as u16).to_le_bytes();
            }
        }
        self.append_values::<LEN>(values);
        self.continues = NOTHING;
    }

    /// The lowest `LEN` bytes of each.
    fn append_values<const LEN: usize>(&mut self, values: &[u64]) {
        for (to, value) in self.extend(LEN * values.len()).as_chunks_mut::<LEN>().0.iter_mut().zip(values) {
            if let Some(bytes) = value.to_le_bytes().first_chunk() {
                *to = *bytes;
            }
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
        if run.short().is_none() {
            self.append_long(run);
            return false;
        }
        let start = run.offset | u64::from(run.slot) << SLOT_SHIFT;
        if start == self.continues && may_continue && !self.separate && self.grow(run.len) {
            return true;
        }
        self.begin(start, run.len);
        false
    }

    /// A short record begins.
    #[inline]
    fn begin(&mut self, start: u64, len: u64) {
        self.last = self.used;
        self.append_word(start | len << 40);
        self.continues = behind(start, len);
    }

    #[cold]
    fn append_long(&mut self, run: Run) {
        let apart = if run.apart { APART } else { 0 };
        for word in [LONG | apart | u64::from(run.slot), run.offset, run.len] {
            self.append_word(word);
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
        let Some(word) = self.bytes.get_mut(self.last..).and_then(|rest| rest.first_chunk_mut::<WORD>()) else {
            return false;
        };
        let before = u64::from_le_bytes(*word);
        if (before >> 40 & SHORT_LEN) + by > SHORT_LEN {
            return false;
        }
        *word = (before + (by << 40)).to_le_bytes();
        self.continues = behind(self.continues, by);
        true
    }

    #[inline]
    fn append_word(&mut self, word: u64) {
        match self.bytes.get_mut(self.used..).and_then(|rest| rest.first_chunk_mut()) {
            Some(room) => {
                *room = word.to_le_bytes();
                (self.used, self.fill) = (self.used + WORD, 0);
            }
            None => self.append(&word.to_le_bytes()),
        }
    }

    /// Bytes, and zeros up to a whole word.
    #[inline]
    fn append(&mut self, data: &[u8]) {
        self.extend(data.len()).copy_from_slice(data);
    }

    /// Room for so many bytes more. Behind them are zeros up to a whole word.
    #[inline]
    fn extend(&mut self, len: usize) -> &mut [u8] {
        let (at, end) = (self.used, (self.used + len).next_multiple_of(WORD));
        if end > self.bytes.len() {
            self.make_room(end);
        }
        (self.used, self.fill) = (end, end - at - len);
        let (room, fill) = self.bytes[at..end].split_at_mut(len);
        if !fill.is_empty() {
            fill.fill(0);
        }
        room
    }

    #[cold]
    fn make_room(&mut self, end: usize) {
        let more = self.bytes.len().clamp(FIRST_BYTES, MORE_BYTES);
        self.bytes.resize((self.bytes.len() + more).max(end), 0);
    }
}

/// Whether each begins where the one before ends, `len` bytes on.
#[inline]
fn follow_each_other(starts: &[u64], len: u64) -> bool {
    let [first, .., last] = starts else { return true };
    // (Mostly they do not, and this is all. None is near the end of what an area can have.)
    let mut differ = last ^ (first + (starts.len() as u64 - 1) * len);
    if differ == 0 {
        let mut at = *first;
        for start in starts {
            differ |= start ^ at;
            at += len;
        }
    }
    differ == 0
}

/// What is wrong with what arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a superstep message is malformed ({0})")]
pub struct Malformed(pub &'static str);

/// Reads records; of a list each put by itself.
#[derive(Clone, Debug)]
pub struct Runs<'a> {
    bytes: &'a [u8],
    /// Puts have their bytes behind them.
    with_data: bool,
    /// What is left of a list.
    items: Option<Items<'a>>,
}

/// Puts of a list, from one on.
#[derive(Clone, Debug)]
struct Items<'a> {
    list: List,
    offsets: &'a [u8],
    data: &'a [u8],
}

impl<'a> Items<'a> {
    fn next(&mut self) -> Option<(Run, &'a [u8])> {
        let List { slot, len, .. } = self.list;
        let data = self.data.split_off(..len)?;
        let offset = match self.list.wide {
            true => u64::from(u32::from_le_bytes(*self.offsets.split_off(..4)?.first_chunk()?)),
            false => u64::from(u16::from_le_bytes(*self.offsets.split_off(..2)?.first_chunk()?)) * len as u64,
        };
        Some((Run { slot, offset, len: len as u64, apart: false }, data))
    }
}

impl<'a> Runs<'a> {
    /// Of puts.
    #[must_use]
    pub fn puts(bytes: &'a [u8]) -> Self {
        Runs { bytes, with_data: true, items: None }
    }

    /// Of gets.
    #[must_use]
    pub fn gets(bytes: &'a [u8]) -> Self {
        Runs { bytes, with_data: false, items: None }
    }

    fn word(&mut self) -> Option<u64> {
        let (word, rest) = self.bytes.split_first_chunk::<WORD>()?;
        self.bytes = rest;
        Some(u64::from_le_bytes(*word))
    }

    fn one(&mut self) -> Option<(Run, &'a [u8])> {
        let word = self.word()?;
        let run = match Record::read(word, || self.word())? {
            Record::Run(run) => run,
            Record::List(_) if !self.with_data => return None,
            Record::List(list) => {
                let offsets = self.bytes.split_off(..WORD * list.offset_words())?;
                let data = self.bytes.split_off(..WORD * list.data_words())?;
                let mut items = Items { list, offsets, data: data.get(..list.count * list.len)? };
                let first = items.next();
                self.items = Some(items);
                return first;
            }
        };
        if !self.with_data || run.apart {
            return Some((run, &[]));
        }
        let len = usize::try_from(run.len).ok()?;
        let (data, rest) = self.bytes.split_at_checked(len)?;
        self.bytes = rest.get(len.wrapping_neg() % WORD..)?;
        Some((run, data))
    }
}

impl<'a> Iterator for Runs<'a> {
    type Item = Result<(Run, &'a [u8]), Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if let Some(items) = &mut self.items {
            if let Some(item) = items.next() {
                return Some(Ok(item));
            }
            self.items = None;
        }
        if self.bytes.is_empty() {
            return None;
        }
        let read = self.one();
        if read.is_none() {
            self.bytes = &[];
        }
        Some(read.ok_or(Malformed("a record is cut off, or none")))
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

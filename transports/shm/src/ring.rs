//! One direction of a pair: a ring of records in shared memory, one producer, one consumer
//! (spec/shm.md 4).
//!
//! A record begins at a cache line, and its first word, the header, is also what publishes it: the
//! consumer looks at the line that it is about to read and at nothing else, so that a small message
//! costs one line moved between two caches. The same code runs over a mapped memfd, over ordinary
//! memory (tests, Miri, fuzzing) and over the model checker's memory.

use crate::bytes::{SharedBytes, WORD, copy_in, copy_words_in};
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence, store_then_fence};

/// Bytes of a line: records begin at multiples of it.
pub const LINE: usize = 64;
/// Bytes of a record's header.
pub const HEADER: usize = 8;
/// A record may take this fraction of the ring, so that one that does not fit before the end always
/// fits after it.
const RECORD_FRACTION: usize = 4;
/// Kind of the record that fills the ring up to its end. Not for callers.
const KIND_SKIP: u16 = 0xffff;
/// The largest kind for callers.
pub const KIND_MAX: u16 = KIND_SKIP - 1;

/// What both sides of one direction tell each other beside the records; each word has a line of its
/// own, for each has one writer that writes often and one reader that reads seldom.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Control {
    /// Bytes that the consumer has done with, since the beginning. Written by the consumer.
    head: AtomicU64,
    _head: [u8; LINE - 8],
    /// 1 while the consumer sleeps or is about to. Set by the consumer, cleared by both.
    sleeping: AtomicU32,
    _sleeping: [u8; LINE - 4],
    /// 1 after the producer has published its last record. Written by the producer.
    closed: AtomicU32,
    _closed: [u8; LINE - 4],
    /// 1 while the producer sleeps for want of room. Set by the producer, cleared by both.
    waiting: AtomicU32,
    _waiting: [u8; LINE - 4],
}

impl Default for Control {
    /// That of a new ring.
    fn default() -> Control {
        Control {
            head: AtomicU64::new(0),
            _head: [0; LINE - 8],
            sleeping: AtomicU32::new(0),
            _sleeping: [0; LINE - 4],
            closed: AtomicU32::new(0),
            _closed: [0; LINE - 4],
            waiting: AtomicU32::new(0),
            _waiting: [0; LINE - 4],
        }
    }
}

/// Where a ring lies.
pub trait Memory {
    /// The shared words beside the records.
    fn control(&self) -> &Control;
    /// The records; a power of two of words, at least [`MIN_WORDS`], all zero in the beginning.
    fn data(&self) -> &[AtomicU64];
}

/// Words of the smallest ring: four lines, one for each record that may be under way, one for the
/// zero that ends them.
pub const MIN_WORDS: usize = RECORD_FRACTION * LINE / WORD;

/// A ring in ordinary memory, for tests.
#[derive(Debug)]
pub struct HeapRing {
    control: Control,
    data: Box<[AtomicU64]>,
}

impl HeapRing {
    /// A new ring.
    ///
    /// # Panics
    /// If `words` is no power of two or below [`MIN_WORDS`].
    #[must_use]
    pub fn new(words: usize) -> HeapRing {
        assert!(words.is_power_of_two() && words >= MIN_WORDS, "a ring of {words} words");
        HeapRing { control: Control::default(), data: (0..words).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Writes a word of the shared memory, as a broken peer does: 0 to 3 are the control words,
    /// then come the records.
    pub fn scribble(&self, word: usize, value: u64) {
        match word {
            0 => self.control.head.store(value, Ordering::Relaxed),
            1 => self.control.sleeping.store(value as u32, Ordering::Relaxed),
            2 => self.control.closed.store(value as u32, Ordering::Relaxed),
            3 => self.control.waiting.store(value as u32, Ordering::Relaxed),
            _ => self.data[(word - 4) % self.data.len()].store(value, Ordering::Relaxed),
        }
    }
}

impl<T: core::ops::Deref<Target = HeapRing>> Memory for T {
    fn control(&self) -> &Control {
        &self.control
    }
    fn data(&self) -> &[AtomicU64] {
        &self.data
    }
}

/// The peer wrote something into the ring that nobody who keeps the rules writes. The ring is of no
/// use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Corrupt {
    /// The consumer says to have read more than was written, or less than before.
    #[error("the reader's position in shared memory is impossible")]
    Head,
    /// A record's header has a wrong check or a length beyond what may be.
    #[error("a record's header in shared memory is impossible")]
    Header,
}

/// Why there is no room for a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRoom {
    /// Not now: the consumer has to read first.
    #[error("the ring is full")]
    Full,
    /// Never: longer than [`Producer::max_payload`], or of a kind above [`KIND_MAX`].
    #[error("no such record fits the ring")]
    TooLong,
    /// The peer broke the ring.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
}

/// A header: length in bits 0 to 31, kind in 32 to 47, place in 48 to 62, bit 63 set. The place is
/// that of its line in the ring's history, so that a header left from an earlier lap is not taken
/// for a new one.
fn header(len: u32, kind: u16, position: u64) -> u64 {
    1 << 63 | place(position) << 48 | u64::from(kind) << 32 | u64::from(len)
}

fn place(position: u64) -> u64 {
    (position / LINE as u64) & 0x7fff
}

/// Bytes of a record with its header, in whole lines.
fn record_bytes(len: usize) -> usize {
    (HEADER + len).next_multiple_of(LINE)
}

/// Index of the word at a position.
fn index(position: u64, words: usize) -> usize {
    (position as usize / WORD) & (words - 1)
}

/// The position at which a ring begins.
fn start(memory: &impl Memory, line: usize) -> u64 {
    ((line * LINE) & (memory.data().len() * WORD - 1)) as u64
}

/// The side that writes. All its numbers are its own; what the peer says is taken once and checked.
#[derive(Debug)]
pub struct Producer<M> {
    memory: M,
    /// Where the first record began.
    origin: u64,
    /// Where the next record begins, in bytes since the beginning and with the origin, as all
    /// positions here.
    tail: u64,
    /// The consumer's `head` when it was last looked at.
    head: u64,
    /// The position whose header is known to be zero, beside that at `tail`.
    cleared: u64,
    /// The first record that was committed and is not published: its position and header.
    first: Option<(u64, u64)>,
    /// How much room the record wanted that last found none; 0 if the last one found it.
    lacking: usize,
}

impl<M: Memory> Producer<M> {
    /// The writing side of a new ring whose first record begins at line `origin` of it, the same
    /// for both sides.
    pub fn new(memory: M, origin: usize) -> Producer<M> {
        let origin = start(&memory, origin);
        Producer { memory, origin, tail: origin, head: origin, cleared: origin, first: None, lacking: 0 }
    }

    /// The longest payload of a record, in bytes.
    #[must_use]
    pub fn max_payload(&self) -> usize {
        self.memory.data().len() * WORD / RECORD_FRACTION - HEADER
    }

    /// Room for a record of `len` bytes. It counts only when it is committed; what is not written
    /// of it is what the ring had there.
    ///
    /// # Errors
    /// See [`NoRoom`].
    #[inline]
    pub fn reserve(&mut self, kind: u16, len: usize) -> Result<Reservation<'_, M>, NoRoom> {
        self.make_room(kind, len)?;
        Ok(self.reservation(kind, len))
    }

    /// The first half of [`reserve`](Producer::reserve): there is room.
    #[inline]
    pub(crate) fn make_room(&mut self, kind: u16, len: usize) -> Result<(), NoRoom> {
        if len > self.max_payload() || kind > KIND_MAX {
            return Err(NoRoom::TooLong);
        }
        let bytes = self.memory.data().len() * WORD;
        let total = record_bytes(len);
        let to_end = bytes - (self.tail as usize & (bytes - 1));
        let skip = if total > to_end { to_end } else { 0 };
        // The line behind the record must be free too: its first word is the zero at which the
        // consumer waits.
        let wanted = skip + total + LINE;
        if !self.has_free(wanted)? {
            self.lacking = wanted;
            return Err(NoRoom::Full);
        }
        self.lacking = 0;
        if total > LINE {
            // The payload may write over the line that was cleared, and the reservation may yet be
            // given up.
            self.cleared = self.tail;
        }
        if skip > 0 {
            self.commit_at(KIND_SKIP, 0, skip);
        }
        Ok(())
    }

    /// The second half, directly after the first: nothing is written behind what that found free.
    #[inline]
    pub(crate) fn reservation(&mut self, kind: u16, len: usize) -> Reservation<'_, M> {
        Reservation { ring: self, kind, len }
    }

    #[inline]
    fn has_free(&mut self, wanted: usize) -> Result<bool, Corrupt> {
        let bytes = (self.memory.data().len() * WORD) as u64;
        if bytes - (self.tail - self.head) >= wanted as u64 {
            return Ok(true);
        }
        let head = self.memory.control().head.load(Ordering::Acquire).wrapping_add(self.origin);
        if head < self.head || head > self.tail || !head.is_multiple_of(LINE as u64) {
            return Err(Corrupt::Head);
        }
        self.head = head;
        Ok(bytes - (self.tail - self.head) >= wanted as u64)
    }

    /// Where the next record begins, in bytes since the beginning: what was committed ends there.
    #[inline]
    #[must_use]
    pub fn tail(&self) -> u64 {
        self.tail - self.origin
    }

    /// How far the consumer has read, in bytes since the beginning.
    ///
    /// # Errors
    /// As [`reserve`](Producer::reserve).
    #[inline]
    pub fn read_there(&mut self) -> Result<u64, Corrupt> {
        // Asks for all of it, so that the consumer's position is read.
        self.has_free(self.memory.data().len() * WORD)?;
        Ok(self.head - self.origin)
    }

    fn word(&self, position: u64) -> &AtomicU64 {
        let data = self.memory.data();
        &data[index(position, data.len())]
    }

    #[inline]
    fn commit_at(&mut self, kind: u16, len: usize, total: usize) {
        let (begin, end) = (self.tail, self.tail + total as u64);
        let header = header(len as u32, kind, begin);
        if self.cleared != end {
            self.word(end).store(0, Ordering::Relaxed);
            self.cleared = end;
        }
        // The consumer does not come past the first record that is not published: the others need
        // no order among themselves.
        if self.first.is_some() {
            self.word(begin).store(header, Ordering::Relaxed);
        } else {
            self.first = Some((begin, header));
        }
        self.tail = end;
    }

    /// Shows the consumer all that was committed. True if it sleeps and must be woken; told once
    /// for each of its sleeps.
    #[inline]
    #[must_use]
    pub fn publish(&mut self) -> bool {
        let Some((position, header)) = self.first.take() else { return false };
        store_then_fence(self.word(position), header);
        let sleeping = &self.memory.control().sleeping;
        let wake = sleeping.load(Ordering::SeqCst) != 0 && sleeping.swap(0, Ordering::AcqRel) != 0;
        // The next record, if it is a small one, finds its end cleared, in a line that nobody looks
        // at now.
        let next = self.tail + LINE as u64;
        let bytes = (self.memory.data().len() * WORD) as u64;
        if bytes - (self.tail - self.head) >= 2 * LINE as u64 {
            self.word(next).store(0, Ordering::Relaxed);
            self.cleared = next;
        }
        wake
    }

    /// Says that this side is about to sleep. False, and nothing said, if a record that found no
    /// room has it now: try again.
    ///
    /// # Errors
    /// As [`reserve`](Producer::reserve).
    pub fn prepare_sleep(&mut self) -> Result<bool, Corrupt> {
        if self.lacking == 0 {
            return Ok(true);
        }
        self.memory.control().waiting.store(1, Ordering::Relaxed);
        // Either the consumer sees the word when it next finishes a quarter of the ring, or this
        // side sees what it has finished. More than a quarter is unread where there is no room.
        fence(Ordering::SeqCst);
        let may = !self.has_free(self.lacking)?;
        if !may {
            self.cancel_sleep();
            // Told once: the record may have been given up meanwhile.
            self.lacking = 0;
        }
        Ok(may)
    }

    /// This side looks again.
    pub fn cancel_sleep(&self) {
        if self.lacking > 0 {
            self.memory.control().waiting.store(0, Ordering::Relaxed);
        }
    }

    /// Whether committed records wait to be published.
    #[must_use]
    pub fn has_unpublished(&self) -> bool {
        self.first.is_some()
    }

    /// Nothing is to be said about this side while it looks at other rings: all is published, and
    /// no record waits for room.
    #[must_use]
    pub(crate) fn is_idle(&self) -> bool {
        self.first.is_none() && self.lacking == 0
    }

    /// Publishes what is committed and says that nothing follows. True as for
    /// [`publish`](Producer::publish).
    #[must_use]
    pub fn close(&mut self) -> bool {
        let published = self.publish();
        let control = self.memory.control();
        control.closed.store(1, Ordering::Release);
        fence(Ordering::SeqCst);
        (control.sleeping.load(Ordering::SeqCst) != 0 && control.sleeping.swap(0, Ordering::AcqRel) != 0) || published
    }

    /// The bytes of the ring that hold nothing, of whole pages of `page` bytes and as up to two
    /// ranges, if the consumer has read everything: their memory may be given back, for zero is
    /// what belongs there.
    ///
    /// # Errors
    /// As [`reserve`](Producer::reserve).
    pub fn unused(&mut self, page: usize) -> Result<Option<[core::ops::Range<usize>; 2]>, Corrupt> {
        let bytes = self.memory.data().len() * WORD;
        // Asks for all of it, so that the consumer's position is read.
        if !self.has_free(bytes)? || self.first.is_some() {
            return Ok(None);
        }
        let here = (self.tail as usize & (bytes - 1)) / page * page;
        self.cleared = self.tail;
        Ok(Some([0..here, (here + page).min(bytes)..bytes]))
    }
}

/// Room for a record. Dropped without [`commit`](Reservation::commit) it never was.
#[derive(Debug)]
pub struct Reservation<'a, M: Memory> {
    ring: &'a mut Producer<M>,
    kind: u16,
    len: usize,
}

impl<M: Memory> Reservation<'_, M> {
    /// Copies `src` to byte `at` of the payload: the one copy on this side.
    ///
    /// # Panics
    /// If it would end behind the payload.
    #[inline]
    pub fn write(&mut self, at: usize, src: &[u8]) {
        assert!(at <= self.len && src.len() <= self.len - at, "a record's payload is written within its length");
        let data = self.ring.memory.data();
        copy_in(&data[index(self.ring.tail, data.len())..], HEADER + at, src);
    }

    /// Copies `src`, a multiple of a word long, to the beginning of the payload; what of it lies
    /// behind the payload's end, in its last word, nobody reads.
    ///
    /// # Panics
    /// If it would end behind the payload's last word.
    #[inline]
    pub fn write_words(&mut self, src: &[u8]) {
        assert!(src.len() <= self.len.next_multiple_of(WORD), "a record's payload is written within its length");
        let data = self.ring.memory.data();
        copy_words_in(&data[index(self.ring.tail, data.len()) + HEADER / WORD..], src);
    }

    /// The record is as it should be. It is seen after [`Producer::publish`].
    #[inline]
    pub fn commit(self) {
        self.ring.commit_at(self.kind, self.len, record_bytes(self.len));
    }
}

/// The side that reads.
#[derive(Debug)]
pub struct Consumer<M> {
    memory: M,
    origin: u64,
    /// Where the next record begins.
    head: u64,
    /// The producer waits for the room that was made, and was not woken yet.
    owes_wake: bool,
}

impl<M: Memory> Consumer<M> {
    /// The reading side of a new ring whose first record begins at line `origin` of it.
    pub fn new(memory: M, origin: usize) -> Consumer<M> {
        let origin = start(&memory, origin);
        Consumer { memory, origin, head: origin, owes_wake: false }
    }

    /// Whether something lies there: a load of one word, in this processor's cache unless the
    /// producer has written.
    #[inline]
    #[must_use]
    pub fn has_record(&self) -> bool {
        let data = self.memory.data();
        data[index(self.head, data.len())].load(Ordering::Relaxed) != 0
    }

    /// Whether something lies there, or the producer is to be woken
    /// ([`take_wake`](Consumer::take_wake)).
    #[inline]
    #[must_use]
    pub(crate) fn has_news(&self) -> bool {
        self.owes_wake || self.has_record()
    }

    /// How far this side has read, in bytes.
    #[must_use]
    pub(crate) fn position(&self) -> u64 {
        self.head
    }

    /// The next record, if one is published. It is done with when it is dropped.
    ///
    /// # Errors
    /// [`Corrupt`], now and ever after.
    #[inline]
    pub fn try_recv(&mut self) -> Result<Option<Record<'_, M>>, Corrupt> {
        Ok(self.find()?.map(|found| self.take(found)))
    }

    /// Whether there is a record, and of which shape: the first half of
    /// [`try_recv`](Consumer::try_recv).
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn find(&mut self) -> Result<Option<Found>, Corrupt> {
        // A skip ends at the beginning of the ring, and there none may be: two looks are enough.
        for _ in 0..2 {
            let Some(found) = self.look()? else { return Ok(None) };
            if found.kind != KIND_SKIP {
                return Ok(Some(found));
            }
            self.advance(found.total);
        }
        Err(Corrupt::Header)
    }

    /// The record that was found: the second half.
    #[inline]
    pub fn take(&mut self, found: Found) -> Record<'_, M> {
        Record { ring: self, found }
    }

    /// The header at `head`, taken once and checked.
    #[inline]
    fn look(&self) -> Result<Option<Found>, Corrupt> {
        let data = self.memory.data();
        let bytes = data.len() * WORD;
        let word = data[index(self.head, data.len())].load(Ordering::Acquire);
        if word == 0 {
            return Ok(None);
        }
        if word >> 48 != 1 << 15 | place(self.head) {
            return Err(Corrupt::Header);
        }
        let (kind, len) = ((word >> 32) as u16, word as u32 as usize);
        let to_end = bytes - (self.head as usize & (bytes - 1));
        if kind == KIND_SKIP {
            // Only where the record that follows did not fit, and so never at the beginning.
            let fits = len == 0 && to_end < bytes / RECORD_FRACTION;
            return if fits { Ok(Some(Found { kind, len, total: to_end })) } else { Err(Corrupt::Header) };
        }
        let total = record_bytes(len);
        if total > bytes / RECORD_FRACTION || total > to_end {
            return Err(Corrupt::Header);
        }
        Ok(Some(Found { kind, len, total }))
    }

    #[inline]
    fn advance(&mut self, total: usize) {
        // A power of two, as the ring is: what changes in a position from it on is the quarter.
        let quarter = (self.memory.data().len() * WORD / RECORD_FRACTION) as u64;
        let before = self.head;
        self.head += total as u64;
        let control = self.memory.control();
        control.head.store(self.head - self.origin, Ordering::Release);
        if (self.head ^ before) >= quarter {
            fence(Ordering::SeqCst);
            self.owes_wake |=
                control.waiting.load(Ordering::Relaxed) != 0 && control.waiting.swap(0, Ordering::AcqRel) != 0;
        }
    }

    /// True once after room was made for which the producer sleeps: it must be woken.
    #[inline]
    #[must_use]
    pub fn take_wake(&mut self) -> bool {
        core::mem::take(&mut self.owes_wake)
    }

    /// Says that this side is about to sleep. False, and nothing said, if there is something to
    /// read or the peer has closed. After true, sleep until woken, then
    /// [`cancel_sleep`](Consumer::cancel_sleep).
    #[must_use]
    pub fn prepare_sleep(&self) -> bool {
        let control = self.memory.control();
        control.sleeping.store(1, Ordering::Relaxed);
        // Either the producer sees the word, or this side sees what the producer published before
        // it looked.
        fence(Ordering::SeqCst);
        let may = !self.has_record() && !self.is_closed();
        if !may {
            self.cancel_sleep();
        }
        may
    }

    /// This side looks again.
    pub fn cancel_sleep(&self) {
        self.memory.control().sleeping.store(0, Ordering::Relaxed);
    }

    /// Whether the producer has said that nothing follows what is in the ring.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.memory.control().closed.load(Ordering::Acquire) != 0
    }
}

/// The shape of the record that [`Consumer::find`] found. A copy, checked; the peer cannot change
/// it any more.
#[derive(Debug)]
pub struct Found {
    kind: u16,
    len: usize,
    total: usize,
}

/// A record in the ring. Its room is the producer's again when it is dropped.
#[derive(Debug)]
pub struct Record<'a, M: Memory> {
    ring: &'a mut Consumer<M>,
    found: Found,
}

impl<M: Memory> Record<'_, M> {
    /// The kind that the sender gave it.
    #[must_use]
    pub fn kind(&self) -> u16 {
        self.found.kind
    }

    /// Bytes of its payload.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.found.len
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.found.len == 0
    }

    /// Its payload.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> SharedBytes<'_> {
        let data = self.ring.memory.data();
        let begin = index(self.ring.head, data.len()) + HEADER / WORD;
        SharedBytes::new(&data[begin..], self.found.len)
    }
}

impl<M: Memory> Drop for Record<'_, M> {
    fn drop(&mut self) {
        self.ring.advance(self.found.total);
    }
}

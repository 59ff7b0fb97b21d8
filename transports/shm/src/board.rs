//! A board (spec/shm.md 11): memory of all processes of a program on one host, in which each writes
//! what is its own and reads what is the others'. By it they meet, step after step, without a
//! message: an empty step is one cache line written and one of each other read.
//!
//! Each member has a *line* for even steps and one for odd steps, a *row* for each other member,
//! and a *heap* for what its rows tell of. It writes those of step k + 2 only after it has seen the
//! lines of all of step k + 1, and a member writes its line of k + 1 only when it needs nothing of
//! step k any more.
//!
//! What another member wrote is its word: it is checked, copied out once, and never used as a
//! place. Whoever scribbles makes bytes wrong, or is found out.

use crate::bytes::{SharedBytes, WORD, copy_in, fetch_to_write};
use crate::sync::{AtomicU64, Ordering};

/// Members at most: a word has a bit for each.
pub const MEMBERS_MAX: usize = 64;
/// Bytes of what a row says.
pub const ROW_BYTES: usize = 80;
/// Words of a member's line of one side. A cache line.
const LINE: usize = 8;
/// Words of a row: what it says, and where in the heap what it tells of lies.
const ROW: usize = 16;
/// Words before the lines: what is said of the board itself, and a word of each member.
const HEAD: usize = REACH + MEMBERS_MAX;
/// Where those begin.
const REACH: usize = 16;
/// Where in a line it says in which step its member was done with what others had lent.
const DONE: usize = 2;
/// Where in a row it says where the heap has the list of what is lent.
const LIST: usize = ROW_BYTES / WORD + 1;
/// Words of the smallest page: heaps begin at a page.
const PAGE: usize = 4096 / WORD;
/// Bytes of all heaps of one side, at most, ...
const HEAPS: usize = 32 << 20;
/// ... and of one heap.
const HEAP_MAX: usize = 1 << 20;
/// In a line: how the step ends is in bits 0 and 1, ...
const KIND: u64 = 0b11;
/// ... whether it has rows is bit 2, ...
const SAYS: u64 = 0b100;
/// ... the step above.
const STEP: u32 = 3;

/// How many members, and how large their heaps are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    members: usize,
    heap: usize,
}

impl Shape {
    /// Of so many members; `None`: a board is for 2 to [`MEMBERS_MAX`].
    #[must_use]
    pub fn of(members: usize) -> Option<Shape> {
        let heap = HEAPS / members.max(1);
        Self::with_heap(members, heap.min(HEAP_MAX) / 4096 * 4096)
    }

    /// With heaps of so many bytes, a multiple of 8.
    #[must_use]
    pub fn with_heap(members: usize, heap: usize) -> Option<Shape> {
        let good = (2..=MEMBERS_MAX).contains(&members) && heap.is_multiple_of(WORD);
        good.then_some(Shape { members, heap: heap / WORD })
    }

    /// Words of the whole board.
    #[must_use]
    pub fn words(self) -> usize {
        self.heaps() + 2 * self.members * self.heap
    }

    /// Bytes of a heap.
    #[must_use]
    pub fn heap_bytes(self) -> usize {
        self.heap * WORD
    }

    fn line(self, of: usize, side: usize) -> usize {
        HEAD + (2 * of + side) * LINE
    }

    fn row(self, side: usize, from: usize, to: usize) -> usize {
        HEAD + 2 * self.members * LINE + ((side * self.members + from) * self.members + to) * ROW
    }

    fn heaps(self) -> usize {
        self.row(2, 0, 0).next_multiple_of(PAGE)
    }

    fn heap(self, side: usize, of: usize) -> usize {
        self.heaps() + (2 * of + side) * self.heap
    }
}

/// Where a board lies: as many words as its shape says.
pub trait Words {
    /// All of it.
    fn words(&self) -> &[AtomicU64];
}

impl<T: core::ops::Deref<Target = [AtomicU64]>> Words for T {
    fn words(&self) -> &[AtomicU64] {
        self
    }
}

/// What a member's line says of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Nothing yet.
    NotYet,
    /// It has come to its end. `says`: some rows of it are of this step.
    Here {
        /// Of somebody, not of this member by all means ([`Board::tells`]).
        says: bool,
    },
    /// It has come to an end of another kind.
    OtherKind,
    /// What no member writes.
    Nonsense,
}

/// A row, copied out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// What it says.
    pub says: [u8; ROW_BYTES],
    /// Where in the heap what it tells of begins, as its writer claims; `None`: not there.
    pub at: Option<u64>,
    /// The same of the list of what is lent.
    pub list: Option<u64>,
}

/// The board of a member.
#[derive(Debug)]
pub struct Board<W> {
    words: W,
    shape: Shape,
    own: usize,
    /// The first step that was met by it.
    first: u64,
    /// Whom this member has told something in this step, ...
    told: u64,
    /// ... and how many words of its heap that has taken.
    used: usize,
}

impl<W: Words> Board<W> {
    /// That of member `own`, which meets the others first in step `first`. `None`: the memory is
    /// not as large as its shape says, or there is no such member.
    pub fn new(words: W, shape: Shape, own: usize, first: u64) -> Option<Board<W>> {
        let good = words.words().len() == shape.words() && own < shape.members;
        good.then_some(Board { words, shape, own, first, told: 0, used: 0 })
    }

    #[inline]
    fn word(&self, at: usize) -> &AtomicU64 {
        &self.words.words()[at]
    }

    /// Tells another member something in step `step`: `says`, and these parts, one behind the
    /// other, if there is room for them. False: there was not, and they have to come otherwise.
    pub fn say(&mut self, step: u64, to: usize, says: &[u8; ROW_BYTES], parts: &[&[u8]]) -> bool {
        let row = self.shape.row((step % 2) as usize, self.own, to);
        let place = self.keep(step, parts);
        copy_in(&self.words.words()[row..row + ROW], 0, says);
        self.word(row + ROW_BYTES / WORD).store(place, Ordering::Relaxed);
        self.word(row + LIST).store(0, Ordering::Relaxed);
        self.told |= 1 << to;
        place != 0
    }

    /// Tells a member to which something was said in this step what is lent to it: a list of words.
    /// False: there is no room for it.
    pub fn lend(&mut self, step: u64, to: usize, list: &[u8]) -> bool {
        let row = self.shape.row((step % 2) as usize, self.own, to);
        let place = self.keep(step, &[list]);
        self.word(row + LIST).store(place, Ordering::Relaxed);
        place != 0
    }

    /// Puts these parts into the heap: 1 + where, in bytes; 0: there is no room.
    fn keep(&mut self, step: u64, parts: &[&[u8]]) -> u64 {
        let len = parts.iter().fold(0usize, |sum, part| sum.saturating_add(part.len())).div_ceil(WORD);
        if len > self.shape.heap - self.used {
            return 0;
        }
        let heap = self.shape.heap((step % 2) as usize, self.own) + self.used;
        let (room, mut at) = (&self.words.words()[heap..heap + len], 0);
        for part in parts {
            copy_in(room, at, part);
            at += part.len();
        }
        let place = (self.used * WORD) as u64 + 1;
        // The next one begins a cache line: who reads it does not touch this one's.
        self.used = (self.used + len).next_multiple_of(LINE).min(self.shape.heap);
        place
    }

    /// So many bytes more will be told of in a step, behind so many: their lines in the heap are
    /// fetched while the member does something else. Nothing is said by it.
    pub fn expect(&self, step: u64, behind: usize, bytes: usize) {
        let end = (behind.saturating_add(bytes) / WORD).min(self.shape.heap);
        let heap = self.shape.heap((step % 2) as usize, self.own);
        for line in self.words.words()[heap + end.min(behind / WORD)..heap + end].as_chunks::<LINE>().0 {
            fetch_to_write(&line[0]);
        }
    }

    /// Says, for all steps from the one that is posted next on, whose memory this member can read:
    /// a bit for each.
    pub fn set_reach(&mut self, mask: u64) {
        self.word(REACH + self.own).store(mask, Ordering::Relaxed);
    }

    /// Whether a member can read this one's memory, as it has said before it posted a step that was
    /// seen.
    #[must_use]
    pub fn reaches(&self, member: usize) -> bool {
        self.word(REACH + member).load(Ordering::Relaxed) >> self.own & 1 != 0
    }

    /// This member needs nothing any more that others have lent it in a step.
    pub fn done(&mut self, step: u64) {
        // Reads of what was lent are not done later than this.
        self.word(self.shape.line(self.own, (step % 2) as usize) + DONE).store(step, Ordering::Release);
    }

    /// Whether a member is done with a step.
    #[must_use]
    pub fn is_done(&self, of: usize, step: u64) -> bool {
        self.word(self.shape.line(of, (step % 2) as usize) + DONE).load(Ordering::Acquire) == step
    }

    /// This member has come to the end of a step, of kind 1 to 3.
    #[inline]
    pub fn post(&mut self, step: u64, kind: u8) {
        let line = self.shape.line(self.own, (step % 2) as usize);
        let mut word = step << STEP | u64::from(kind) & KIND;
        if self.told != 0 {
            self.word(line + 1).store(self.told, Ordering::Relaxed);
            word |= SAYS;
            (self.told, self.used) = (0, 0);
        }
        // All that was written before is seen by who sees this.
        self.word(line).store(word, Ordering::Release);
    }

    /// What a member says of a step.
    #[inline]
    #[must_use]
    pub fn look(&self, of: usize, step: u64, kind: u8) -> Seen {
        let word = self.word(self.shape.line(of, (step % 2) as usize)).load(Ordering::Acquire);
        if word & !SAYS == step << STEP | u64::from(kind) & KIND {
            return Seen::Here { says: word & SAYS != 0 };
        }
        self.judge(word, step)
    }

    /// What a word means that is not the one waited for.
    fn judge(&self, word: u64, step: u64) -> Seen {
        let (of, kind) = (word >> STEP, word & KIND);
        // The one before on this side, if there was one.
        let before = if step < self.first + 2 { word == 0 } else { of == step - 2 && kind != 0 };
        match before {
            true => Seen::NotYet,
            false if of == step && kind != 0 => Seen::OtherKind,
            false => Seen::Nonsense,
        }
    }

    /// Whether a member whose line says that it has rows has one for this member.
    #[inline]
    #[must_use]
    pub fn tells(&self, of: usize, step: u64) -> bool {
        let mask = self.word(self.shape.line(of, (step % 2) as usize) + 1).load(Ordering::Relaxed);
        mask >> self.own & 1 != 0
    }

    /// The row of a member for this one. Its line of this step was seen.
    #[must_use]
    pub fn row(&self, from: usize, step: u64) -> Row {
        let row = self.shape.row((step % 2) as usize, from, self.own);
        let words = &self.words.words()[row..row + ROW];
        let mut says = [0; ROW_BYTES];
        SharedBytes::new(words, ROW_BYTES).copy_to(0, &mut says);
        let place = |at: usize| words[at].load(Ordering::Relaxed).checked_sub(1);
        Row { says, at: place(ROW_BYTES / WORD), list: place(LIST) }
    }

    /// The bytes of a member's heap that a row of its names; `None`: they cannot be there.
    #[must_use]
    pub fn bytes(&self, from: usize, step: u64, at: u64, len: u64) -> Option<SharedBytes<'_>> {
        let (at, end) = (usize::try_from(at).ok()?, usize::try_from(at.checked_add(len)?).ok()?);
        let whole = at.is_multiple_of(WORD) && end <= self.shape.heap_bytes();
        let heap = self.shape.heap((step % 2) as usize, from);
        whole.then(|| SharedBytes::new(&self.words.words()[heap + at / WORD..heap + self.shape.heap], end - at))
    }

    /// Whether this member's own lines, of a step that it has posted and of the one before, are as
    /// it has written them. If not, another one has written what is not its own, and others may
    /// wait for what they cannot see any more.
    #[must_use]
    pub fn are_own_lines_whole(&self, step: u64) -> bool {
        let whole = |step: u64| {
            let word = self.word(self.shape.line(self.own, (step % 2) as usize)).load(Ordering::Relaxed);
            word >> STEP == step && word & KIND != 0
        };
        whole(step) && (step <= self.first || whole(step - 1))
    }
}

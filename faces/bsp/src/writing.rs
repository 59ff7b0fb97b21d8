//! Puts that have come, written to where they belong (`spec/bsp.md` 6.7, 6.26): records are read
//! and judged word by word.

use crate::packing::{List, Malformed, Record, Run, WORD};
use std::ops::Range;
use weir_engine::SharedBytes;

/// Why a put is refused that is none of this program's.
pub const NOT_REGISTERED: Malformed = Malformed("it names memory that is not registered");
const CUT: Malformed = Malformed("a record is cut off, or none");
const UNTOLD: Malformed = Malformed("a record travels alone that its head does not tell of");

/// The memory of an area.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Its first byte.
    pub base: *mut u8,
    /// How many there are.
    pub size: u64,
}

impl Memory {
    /// Where in it a run is; `None`: it is not.
    #[inline]
    #[must_use]
    pub fn place(&self, run: &Run) -> Option<*mut u8> {
        let within = run.offset.checked_add(run.len).is_some_and(|end| end <= self.size);
        within.then(|| self.base.wrapping_add(run.offset as usize))
    }
}

/// What is put, word by word: as it came in a message, or where its sender has written it, who may
/// still write there. So each word is read once.
pub trait Words {
    /// How many there are.
    fn count(&self) -> usize;
    /// One of them.
    fn word(&self, number: usize) -> Option<u64>;
    /// Some of them, `N` at a time, a last few that are not so many left out; none if they do not
    /// all lie within.
    fn words<const N: usize>(&self, numbers: Range<usize>) -> impl Iterator<Item = [u64; N]>;
    /// Copies bytes, from a word on, of which there are so many.
    fn copy(&self, number: usize, to: &mut [u8]);
}

impl Words for SharedBytes<'_> {
    fn count(&self) -> usize {
        self.len() / WORD
    }

    #[inline]
    fn word(&self, number: usize) -> Option<u64> {
        SharedBytes::word(self, number)
    }

    #[inline]
    fn words<const N: usize>(&self, numbers: Range<usize>) -> impl Iterator<Item = [u64; N]> {
        SharedBytes::words(self, numbers)
    }

    fn copy(&self, number: usize, to: &mut [u8]) {
        self.copy_to(number * WORD, to);
    }
}

impl Words for &[[u8; WORD]] {
    fn count(&self) -> usize {
        self.len()
    }

    #[inline]
    fn word(&self, number: usize) -> Option<u64> {
        self.get(number).map(|word| u64::from_le_bytes(*word))
    }

    #[inline]
    fn words<const N: usize>(&self, numbers: Range<usize>) -> impl Iterator<Item = [u64; N]> {
        let words = self.get(numbers).unwrap_or(&[]);
        words.as_chunks::<N>().0.iter().map(|words| words.map(u64::from_le_bytes))
    }

    fn copy(&self, number: usize, to: &mut [u8]) {
        if let Some(from) = self.as_flattened().get(number * WORD..number * WORD + to.len()) {
            to.copy_from_slice(from);
        }
    }
}

/// The area of the run before: most of those that follow are in the same.
struct Near<F> {
    areas: F,
    last: Option<(u32, Memory)>,
}

impl<F: Fn(u32) -> Option<Memory>> Near<F> {
    #[inline]
    fn memory(&mut self, slot: u32) -> Result<Memory, Malformed> {
        match self.last {
            Some((known, memory)) if known == slot => Ok(memory),
            _ => {
                let memory = (self.areas)(slot).ok_or(NOT_REGISTERED)?;
                self.last = Some((slot, memory));
                Ok(memory)
            }
        }
    }
}

/// Writes what is put to the areas that these slots name. Of runs that travel alone, which may be
/// there if `apart`, the bytes come otherwise.
///
/// # Errors
/// It cannot be, or is for memory that is no area's. What was before it has been written.
///
/// # Safety
/// All that `areas` gives may be written to.
pub unsafe fn apply<W: Words>(puts: &W, apart: bool, areas: impl Fn(u32) -> Option<Memory>) -> Result<(), Malformed> {
    let (mut near, mut at) = (Near { areas, last: None }, 0);
    while at < puts.count() {
        let mut word = || {
            at += 1;
            puts.word(at - 1)
        };
        let record = word().and_then(|first| Record::read(first, &mut word)).ok_or(CUT)?;
        at += match record {
            Record::Run(run) => {
                let to = near.memory(run.slot)?.place(&run).ok_or(NOT_REGISTERED)?;
                match (run.apart, apart) {
                    // SAFETY: it lies within the area.
                    (false, _) => unsafe { write_run(puts, at, to, run.len as usize)? },
                    (true, true) => 0,
                    (true, false) => return Err(UNTOLD),
                }
            }
            // SAFETY: this area may be written to (caller).
            Record::List(list) => unsafe { write_list(puts, at, near.memory(list.slot)?, list)? },
        };
    }
    Ok(())
}

/// Writes a run whose bytes begin with a word: how many words they are.
///
/// # Safety
/// So many bytes may be written there.
#[inline]
unsafe fn write_run(puts: &impl Words, at: usize, to: *mut u8, len: usize) -> Result<usize, Malformed> {
    let words = len.div_ceil(WORD);
    if words > puts.count().saturating_sub(at) {
        return Err(CUT);
    }
    if len == WORD {
        let data = puts.word(at).ok_or(CUT)?.to_le_bytes();
        // SAFETY: the caller's.
        unsafe { to.cast::<[u8; WORD]>().write(data) };
    } else {
        // SAFETY: the caller's. (Nobody has a reference to them.)
        puts.copy(at, unsafe { std::slice::from_raw_parts_mut(to, len) });
    }
    Ok(words)
}

/// Writes a list whose offsets begin with a word: how many words it is from there on.
///
/// # Safety
/// The memory may be written to.
unsafe fn write_list(puts: &impl Words, at: usize, memory: Memory, list: List) -> Result<usize, Malformed> {
    let (data, words) = (at + list.offset_words(), list.offset_words() + list.data_words());
    if words > puts.count().saturating_sub(at) {
        return Err(CUT);
    }
    let (offsets, values) = (at..data, data..at + words);
    // SAFETY: the caller's.
    let good = unsafe {
        match (list.wide, list.len) {
            (false, 8) => write_eights::<4>(puts, memory, offsets, values),
            (true, 8) => write_eights::<2>(puts, memory, offsets, values),
            (false, 4) => write_each::<4, 4>(puts, memory, offsets, values, list.count),
            (true, 4) => write_each::<2, 4>(puts, memory, offsets, values, list.count),
            (false, 2) => write_each::<4, 2>(puts, memory, offsets, values, list.count),
            (true, 2) => write_each::<2, 2>(puts, memory, offsets, values, list.count),
            (false, _) => write_each::<4, 1>(puts, memory, offsets, values, list.count),
            (true, _) => write_each::<2, 1>(puts, memory, offsets, values, list.count),
        }
    };
    if good { Ok(words) } else { Err(NOT_REGISTERED) }
}

/// Writes values to where a word with their offsets says, of which it has `PER`; false: one is not
/// within the memory.
///
/// # Safety
/// The memory may be written to.
#[inline]
unsafe fn write_some<const PER: usize, const LEN: usize>(
    memory: &Memory,
    mut offsets: u64,
    values: impl IntoIterator<Item = [u8; LEN]>,
) -> bool {
    let (bits, unit) = (u64::BITS / PER as u32, if PER == 4 { LEN as u64 } else { 1 });
    // Offsets from here on are beyond.
    let end = memory.size.saturating_sub(LEN as u64 - 1);
    for value in values {
        let offset = offsets % (1u64 << bits) * unit;
        if offset >= end {
            return false;
        }
        // SAFETY: within the memory.
        unsafe { memory.base.add(offset as usize).cast::<[u8; LEN]>().write(value) };
        offsets >>= bits;
    }
    true
}

/// Writes the puts of a list, of eight bytes each and with `PER` offsets in a word: the commonest,
/// for which nothing is looked at but the offsets. (Apart, so that it has all registers.)
///
/// # Safety
/// The memory may be written to.
#[inline(never)]
unsafe fn write_eights<const PER: usize>(
    puts: &impl Words,
    memory: Memory,
    offsets: Range<usize>,
    values: Range<usize>,
) -> bool {
    let rest = values.end - values.len() % PER;
    let last = puts.words::<1>(rest..values.end).map(|[value]| value.to_le_bytes());
    let mut words = puts.words::<1>(offsets).map(|[word]| word);
    for values in puts.words::<PER>(values.start..rest) {
        let (Some(word), values) = (words.next(), values.map(u64::to_le_bytes)) else { return false };
        // SAFETY: the caller's.
        if !unsafe { write_some::<PER, 8>(&memory, word, values) } {
            return false;
        }
    }
    // SAFETY: the caller's.
    words.next().is_none_or(|word| unsafe { write_some::<PER, 8>(&memory, word, last) })
}

/// Writes the puts of a list of which several lie in a word.
///
/// # Safety
/// The memory may be written to.
unsafe fn write_each<const PER: usize, const LEN: usize>(
    puts: &impl Words,
    memory: Memory,
    offsets: Range<usize>,
    values: Range<usize>,
    count: usize,
) -> bool {
    let of = |word: u64| (0..WORD / LEN).map(move |nth| word >> (8 * LEN * nth));
    let pieces = puts.words::<1>(values).flat_map(|[word]| of(word));
    let mut pieces = pieces.map(|bits| *bits.to_le_bytes().first_chunk().unwrap_or(&[0; LEN])).take(count);
    // SAFETY: the caller's.
    puts.words::<1>(offsets).all(|[word]| unsafe { write_some::<PER, LEN>(&memory, word, pieces.by_ref().take(PER)) })
}

//! Bytes in memory that another process may change at any time.
//!
//! Rust may assume of a `&[u8]` that nobody changes it, so none is ever made of shared memory. It
//! is read and written as atomic words, or by an instruction whose effect the compiler does not
//! look into. A peer that scribbles meanwhile makes the copied bytes wrong, and nothing else.

use crate::sync::{AtomicU64, Ordering};

/// Bytes of a word.
pub const WORD: usize = 8;

/// From here on one string instruction copies, for fewer bytes a loop of words.
#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
const STRING_MIN: usize = 128;

/// The payload of a record in shared memory. It can only be copied out.
#[derive(Clone, Copy)]
pub struct SharedBytes<'a> {
    words: &'a [AtomicU64],
    len: usize,
}

impl<'a> SharedBytes<'a> {
    /// The first `len` bytes of `words`, fewer if there are not so many.
    pub(crate) fn new(words: &'a [AtomicU64], len: usize) -> SharedBytes<'a> {
        SharedBytes { words, len: len.min(words.len() * WORD) }
    }

    /// How many bytes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies from byte `at` on into `dst`; returns how many bytes there were, at most `dst.len()`.
    pub fn copy_to(&self, at: usize, dst: &mut [u8]) -> usize {
        let len = self.len.saturating_sub(at).min(dst.len());
        copy_out(self.words, at, &mut dst[..len]);
        len
    }

    /// Copies whole words into `dst`, a multiple of a word long: the payload from its beginning on,
    /// as much as fits, and behind its end what else its last word holds. Less work than
    /// [`copy_to`](SharedBytes::copy_to) where little is copied.
    #[inline]
    pub fn copy_words(&self, dst: &mut [u8]) {
        #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
        if dst.len() >= STRING_MIN {
            self.copy_to(0, dst);
            return;
        }
        let words = &self.words[..self.len.div_ceil(WORD)];
        for (to, word) in dst.chunks_exact_mut(WORD).zip(words) {
            to.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
    }

    /// The `N` bytes from byte `at` on, if there are so many. What is parsed must be read once, and
    /// this is how.
    #[must_use]
    pub fn read_at<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        let mut out = [0; N];
        let there = at.checked_add(N).is_some_and(|end| end <= self.len);
        there.then(|| {
            copy_out(self.words, at, &mut out);
            out
        })
    }

    /// The word of this number, if it lies within. Read once: what is checked is this value.
    #[must_use]
    #[inline]
    pub fn word(&self, number: usize) -> Option<u64> {
        let there = (number + 1) * WORD <= self.len;
        let word = self.words.get(number).filter(|_| there)?;
        Some(u64::from_le(word.load(Ordering::Relaxed)))
    }

    /// Its words of these numbers, `N` at a time, a last few that are not so many left out; none if
    /// they do not all lie within. Each is read once.
    #[inline]
    pub fn words<const N: usize>(
        &self,
        numbers: core::ops::Range<usize>,
    ) -> impl Iterator<Item = [u64; N]> + use<'a, N> {
        let whole = numbers.end <= self.len / WORD;
        let words = self.words.get(numbers).filter(|_| whole).unwrap_or(&[]);
        let load = |word: &AtomicU64| u64::from_le(word.load(Ordering::Relaxed));
        words.as_chunks::<N>().0.iter().map(move |words| words.each_ref().map(load))
    }

    /// All of it in a vector.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = vec![0; self.len];
        self.copy_to(0, &mut out);
        out
    }
}

impl core::fmt::Debug for SharedBytes<'_> {
    /// The length only: the bytes may change while they are shown.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "SharedBytes({} bytes)", self.len)
    }
}

/// Copies `dst.len()` bytes from byte `at` of `words`; both ends must lie within.
#[inline]
pub(crate) fn copy_out(words: &[AtomicU64], at: usize, dst: &mut [u8]) {
    assert!(at <= words.len() * WORD && dst.len() <= words.len() * WORD - at, "copy beyond the ring");
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
    if dst.len() >= STRING_MIN {
        // SAFETY: the assertion shows that the source lies within `words`; `dst` is a slice of that
        // length.
        return unsafe { copy_string(dst.as_mut_ptr(), words.as_ptr().cast::<u8>().add(at), dst.len()) };
    }
    let (mut at, mut dst) = (at, dst);
    while !dst.is_empty() {
        let (word, shift) = (at / WORD, at % WORD);
        let whole = if shift == 0 { dst.len() / WORD * WORD } else { 0 };
        if whole > 0 {
            let (now, rest) = dst.split_at_mut(whole);
            for (to, word) in now.chunks_exact_mut(WORD).zip(&words[word..]) {
                to.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
            }
            (at, dst) = (at + whole, rest);
            continue;
        }
        let bytes = words[word].load(Ordering::Relaxed).to_le_bytes();
        let n = (WORD - shift).min(dst.len());
        let (now, rest) = dst.split_at_mut(n);
        now.copy_from_slice(&bytes[shift..shift + n]);
        (at, dst) = (at + n, rest);
    }
}

/// Copies `src` to byte `at` of `words`; both ends must lie within, and nobody else may write
/// there.
#[inline]
pub(crate) fn copy_in(words: &[AtomicU64], at: usize, src: &[u8]) {
    assert!(at <= words.len() * WORD && src.len() <= words.len() * WORD - at, "copy beyond the ring");
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
    if src.len() >= STRING_MIN {
        // SAFETY: the assertion shows that the destination lies within `words`, whose atomics may
        // be written through a shared reference; `src` is a slice of that length.
        return unsafe { copy_string(words.as_ptr().cast::<u8>().add(at).cast_mut(), src.as_ptr(), src.len()) };
    }
    let (mut at, mut src) = (at, src);
    while !src.is_empty() {
        let (word, shift) = (at / WORD, at % WORD);
        let whole = if shift == 0 { src.len() / WORD * WORD } else { 0 };
        if whole > 0 {
            let (now, rest) = src.split_at(whole);
            for (from, word) in now.chunks_exact(WORD).zip(&words[word..]) {
                word.store(u64::from_le_bytes(from.try_into().expect("a word")), Ordering::Relaxed);
            }
            (at, src) = (at + whole, rest);
            continue;
        }
        let n = (WORD - shift).min(src.len());
        let (now, rest) = src.split_at(n);
        let mut bytes = words[word].load(Ordering::Relaxed).to_le_bytes();
        bytes[shift..shift + n].copy_from_slice(now);
        words[word].store(u64::from_le_bytes(bytes), Ordering::Relaxed);
        (at, src) = (at + n, rest);
    }
}

/// Copies the first words of `src`, which is a multiple of a word long, to the beginning of
/// `words`; it must fit, and nobody else may write there.
#[inline]
pub(crate) fn copy_words_in(words: &[AtomicU64], src: &[u8]) {
    assert!(src.len().div_ceil(WORD) <= words.len(), "copy beyond the ring");
    for (from, word) in src.chunks_exact(WORD).zip(words) {
        word.store(u64::from_le_bytes(from.try_into().expect("a word")), Ordering::Relaxed);
    }
}

/// Copies by the processor's string instruction, which the compiler does not look into: what
/// another process does to the memory meanwhile is no race in the language's sense.
///
/// # Safety
/// `src` must be readable and `dst` writable for `len` bytes.
#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
#[inline]
unsafe fn copy_string(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller's promise; the direction flag is clear on entry to every asm block.
    unsafe {
        core::arch::asm!("rep movsb", inout("rcx") len => _, inout("rdi") dst => _, inout("rsi") src => _,
            options(nostack, preserves_flags));
    }
}

/// Has the cache line of a word come here, to be written to: a hint, which changes nothing.
#[inline]
pub(crate) fn fetch_to_write(word: &AtomicU64) {
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
    // SAFETY: it writes nothing, and may name any address. (Processors that do not know it do
    // nothing.)
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) word, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(loom), not(miri))))]
    let _ = word;
}

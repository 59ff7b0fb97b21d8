//! Messages that a caller asks for while it looks, and takes as they come: for them nobody posts a
//! receive, and they need no place in the tables.

use alloc::vec::Vec;

/// Which messages a caller takes as they come: tagged ones, of anybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Their tag, all of it.
    pub tag: u64,
    /// So many at the most.
    pub most: usize,
}

/// A message that a caller has asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handed<'a> {
    /// The sender; none if the caller does not know it.
    pub source: Option<u32>,
    /// Immediate data that came with it.
    pub data: Option<u64>,
    /// Its payload.
    pub bytes: &'a [u8],
}

/// What is asked for, and what has come of it.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    wanted: Option<Wanted>,
    /// From whom, immediate data, where the payload ends in `bytes`.
    come: Vec<(u32, Option<u64>, usize)>,
    /// Kept for their memory, as `come`.
    bytes: Vec<u8>,
}

impl Asked {
    /// Somebody looks from now on.
    #[inline]
    pub(crate) fn begin(&mut self, wanted: Wanted) {
        self.wanted = Some(wanted);
    }

    /// Whether a message of this tag is asked for.
    #[inline]
    pub(crate) fn wants(&self, tag: u64) -> bool {
        self.wanted.is_some_and(|wanted| wanted.tag == tag && self.come.len() < wanted.most)
    }

    /// One has come.
    #[inline]
    pub(crate) fn push(&mut self, peer: u32, data: Option<u64>, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.come.push((peer, data, self.bytes.len()));
    }

    /// Nobody looks any more; what has come, oldest first.
    #[inline]
    pub(crate) fn end(&mut self, mut each: impl FnMut(u32, Option<u64>, &[u8])) {
        self.wanted = None;
        let mut begin = 0;
        for (peer, data, end) in self.come.drain(..) {
            each(peer, data, &self.bytes[begin..end]);
            begin = end;
        }
        self.bytes.clear();
    }
}

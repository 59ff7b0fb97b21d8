//! What is missing of a group of fragments whose parity has come (`spec/protocol.md` 6).

/// The part of one fragment that is missing from a group whose parity has come.
///
/// It need not be the whole fragment: what is sent again may be cut otherwise than it was the first
/// time.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Hole {
    /// First byte of the group.
    pub base: u64,
    /// Length of its fragments.
    pub frag: u16,
    /// Number of its fragments.
    pub count: u8,
    /// First missing byte.
    pub offset: u64,
    /// Number of missing bytes; they lie within one fragment.
    pub len: u16,
}

impl Hole {
    /// The missing bytes, computed in place in `parity` from the bytes of the other fragments.
    ///
    /// `total` is the length of what the group is part of; bytes past it count as zero. `read`
    /// copies placed bytes from an offset on. `None` if it cannot, or if the hole is none of this
    /// group.
    pub fn restore<'a>(
        &self,
        total: u64,
        parity: &'a mut [u8],
        mut read: impl FnMut(u64, &mut [u8]) -> bool,
    ) -> Option<&'a [u8]> {
        let frag = u64::from(self.frag);
        let inside = self.offset.checked_sub(self.base)?;
        let (missing, from) = (inside.checked_div(frag)?, inside % frag);
        let missed = parity.get_mut(from as usize..)?.get_mut(..usize::from(self.len))?;
        if missing >= u64::from(self.count) || from + u64::from(self.len) > frag {
            return None;
        }
        let mut piece = [0u8; 512];
        for k in (0..u64::from(self.count)).filter(|k| *k != missing) {
            let start = self.base.checked_add(k * frag + from)?;
            let len = total.saturating_sub(start).min(missed.len() as u64) as usize;
            let mut done = 0u64;
            for part in missed[..len].chunks_mut(piece.len()) {
                let piece = &mut piece[..part.len()];
                if !read(start + done, piece) {
                    return None;
                }
                part.iter_mut().zip(piece).for_each(|(x, b)| *x ^= *b);
                done += part.len() as u64;
            }
        }
        Some(missed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// A group of fragments of 100 bytes in the middle of 1000 bytes, the last of them short.
    // spec: P-6.20, P-6.21
    #[test]
    fn any_part_of_a_fragment_is_restored_and_nothing_else_is_needed() {
        let total = 630;
        let want: Vec<u8> = (0..total as u32).map(|i| (i * i / 7 + 3) as u8).collect();
        let (base, frag, count) = (200u64, 100u16, 5u8);
        let mut parity = [0u8; 100];
        for (i, b) in want[200..].iter().enumerate() {
            parity[i % 100] ^= b;
        }
        for (offset, len) in [(200, 100), (300, 1), (399, 1), (340, 60), (300, 40), (320, 50), (600, 30), (610, 20)] {
            let hole = Hole { base, frag, count, offset, len };
            let gone = offset as usize..offset as usize + usize::from(len);
            let mut sum = parity;
            let got = hole.restore(total, &mut sum, |at, dst| {
                let from = at as usize..at as usize + dst.len();
                assert!(from.end <= gone.start || from.start >= gone.end, "missing bytes are read");
                dst.copy_from_slice(&want[from]);
                true
            });
            assert_eq!(got, Some(&want[gone]), "{hole:?}");
        }
    }

    #[test]
    fn what_is_no_hole_of_the_group_or_cannot_be_read_is_not_restored() {
        let hole = Hole { base: 200, frag: 100, count: 2, offset: 250, len: 50 };
        let restore = |h: Hole, read: bool| h.restore(1000, &mut [0; 100], |_, _| read).is_some();
        assert!(restore(hole, true));
        assert!(!restore(hole, false));
        for wrong in [
            Hole { offset: 199, ..hole },
            Hole { offset: 400, ..hole },
            Hole { len: 51, ..hole },
            Hole { frag: 0, ..hole },
            Hole { frag: 200, offset: 200, len: 101, ..hole },
        ] {
            assert!(!restore(wrong, true), "{wrong:?}");
        }
    }
}

//! What is missing of a group of fragments whose parity has come (`spec/protocol.md` 6.6).

use weir_wire::MAX_PARITY_ROWS;

use crate::galois::{add_times, inverse, power, times};

/// Factors with which the rows of a group's parity are added, so that of the fragments that lack
/// bytes one alone is left in the sum.
pub type Factors = [u8; MAX_PARITY_ROWS as usize];

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
    /// What of each row is in the sum.
    pub factors: Factors,
}

/// The factor of fragment `k` of a group in the row of its parity of this number.
#[must_use]
pub fn factor_in_row(row: u8, k: u64) -> u8 {
    power(usize::from(row) * k as usize)
}

impl Hole {
    /// The factor of fragment `k` in the sum of rows.
    #[must_use]
    pub fn factor_of(&self, k: u64) -> u8 {
        (0..).zip(self.factors).fold(0, |sum, (row, f)| sum ^ times(f, factor_in_row(row, k)))
    }

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
        let own = self.factor_of(missing);
        if own == 0 {
            return None;
        }
        let mut piece = [0u8; 512];
        for k in (0..u64::from(self.count)).filter(|k| *k != missing) {
            let factor = self.factor_of(k);
            if factor == 0 {
                continue;
            }
            let start = self.base.checked_add(k * frag + from)?;
            let len = total.saturating_sub(start).min(missed.len() as u64) as usize;
            let mut done = 0u64;
            for part in missed[..len].chunks_mut(piece.len()) {
                let piece = &mut piece[..part.len()];
                if !read(start + done, piece) {
                    return None;
                }
                add_times(part, piece, factor);
                done += part.len() as u64;
            }
        }
        if own != 1 {
            for part in missed.chunks_mut(piece.len()) {
                let piece = &mut piece[..part.len()];
                piece.copy_from_slice(part);
                part.fill(0);
                add_times(part, piece, inverse(own));
            }
        }
        Some(missed)
    }
}

/// The factors by which the sum of these rows of a group's parity leaves only the first of these
/// fragments of those that lack bytes, which are as many as the rows. `None` where there are none.
#[must_use]
pub fn factors_for(rows: &[u8], lacking: &[u64]) -> Option<Factors> {
    let mut factors = Factors::default();
    let mut set = |row: u8, factor| factors.get_mut(usize::from(row)).map(|f| *f = factor);
    match (rows, lacking) {
        ([row], [_]) => set(*row, 1)?,
        // Each row weighted with the other's factor of the second: it cancels out.
        ([a, b], [_, second]) => {
            set(*a, factor_in_row(*b, *second))?;
            set(*b, factor_in_row(*a, *second))?;
        }
        // (x - 2^second) (x - 2^third), whose zeros are those of the two.
        ([0, 1, 2], [_, second, third]) => {
            let (b, c) = (factor_in_row(1, *second), factor_in_row(1, *third));
            set(0, times(b, c))?;
            set(1, b ^ c)?;
            set(2, 1)?;
        }
        _ => return None,
    }
    Some(factors)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
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
            let hole = Hole { base, frag, count, offset, len, factors: [1, 0, 0] };
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
        let hole = Hole { base: 200, frag: 100, count: 2, offset: 250, len: 50, factors: [1, 0, 0] };
        let restore = |h: Hole, read: bool| h.restore(1000, &mut [0; 100], |_, _| read).is_some();
        assert!(restore(hole, true));
        assert!(!restore(hole, false));
        for wrong in [
            Hole { offset: 199, ..hole },
            Hole { offset: 400, ..hole },
            Hole { len: 51, ..hole },
            Hole { frag: 0, ..hole },
            Hole { frag: 200, offset: 200, len: 101, ..hole },
            Hole { factors: [0; 3], ..hole },
        ] {
            assert!(!restore(wrong, true), "{wrong:?}");
        }
    }

    /// Of a full group any three fragments, by the three rows; and any two by each two of the rows;
    /// the last fragment is short.
    // spec: P-6.20, P-6.36
    #[test]
    fn as_many_fragments_as_rows_came_are_restored() {
        let (frag, count) = (4u64, u64::from(weir_wire::MAX_PARITY_COUNT));
        let total = frag * count - 3;
        let want: Vec<u8> = (0..total as u32).map(|i| (i * i / 7 + 3) as u8).collect();
        let row = |row: u8| {
            let mut sum = vec![0; frag as usize];
            for (k, fragment) in want.chunks(frag as usize).enumerate() {
                add_times(&mut sum, fragment, factor_in_row(row, k as u64));
            }
            sum
        };
        let of_rows: [Vec<u8>; 3] = core::array::from_fn(|j| row(j as u8));
        let restores = |rows: &[u8], lacking: &[u64]| {
            for turn in 0..lacking.len() {
                let mut lacking = lacking.to_vec();
                lacking.rotate_left(turn);
                let factors = factors_for(rows, &lacking).expect("factors");
                let mut sum = vec![0; frag as usize];
                (0..).zip(factors).for_each(|(j, f): (usize, u8)| add_times(&mut sum, &of_rows[j], f));
                let offset = lacking[0] * frag;
                let len = frag.min(total - offset) as u16;
                let hole = Hole { base: 0, frag: frag as u16, count: count as u8, offset, len, factors };
                let got = hole.restore(total, &mut sum, |at, dst| {
                    assert!(!lacking.contains(&(at / frag)), "missing bytes are read");
                    dst.copy_from_slice(&want[at as usize..at as usize + dst.len()]);
                    true
                });
                assert_eq!(got, Some(&want[offset as usize..offset as usize + usize::from(len)]), "{lacking:?}");
            }
        };
        for a in 0..count {
            (0..3).for_each(|j| restores(&[j], &[a]));
            for b in a + 1..count {
                for rows in [[0, 1], [0, 2], [1, 2], [2, 0]] {
                    restores(&rows, &[a, b]);
                }
                for c in (b + 1..count).step_by(5) {
                    restores(&[0, 1, 2], &[a, b, c]);
                }
            }
        }
        assert_eq!(factors_for(&[0, 1], &[3]), None);
        assert_eq!(factors_for(&[], &[]), None);
    }
}

//! Jacobi iteration on a 256 x 256 grid of floats, cut into slabs of rows. Neighbours exchange edge
//! rows by blocking calls in red-black order: even members send first, odd ones receive first.

use crate::error::Result;
use crate::machine::{Machine, TAG_DATA};

/// Rows of the grid.
pub const ROWS: usize = 256;
const COLUMNS: usize = 256;
/// An edge row, bytes.
pub const ROW_BYTES: usize = COLUMNS * size_of::<f32>();

/// One member's slab.
pub struct Jacobi {
    iterations: u32,
    place: usize,
    up: Option<usize>,
    down: Option<usize>,
    /// Own rows between two of the neighbours'.
    old: Vec<[f32; COLUMNS]>,
    new: Vec<[f32; COLUMNS]>,
    wire: Vec<u8>,
}

impl Jacobi {
    pub fn new(iterations: u32, members: &[usize], place: usize) -> Jacobi {
        let n = members.len();
        let (from, to) = (place * ROWS / n, (place + 1) * ROWS / n);
        let row = |y: usize| std::array::from_fn(|x| if y == 0 || x == 0 { 1.0 } else { 0.0 });
        // Row 0 of the slab is the one above `from`; outside the grid it stays at 0.
        let outside = [0.0; COLUMNS];
        let old: Vec<[f32; COLUMNS]> = std::iter::once(outside).chain((from..to).map(row)).chain([outside]).collect();
        Jacobi {
            iterations,
            place,
            up: place.checked_sub(1).map(|p| members[p]),
            down: members.get(place + 1).copied(),
            new: old.clone(),
            old,
            wire: vec![0; ROW_BYTES],
        }
    }

    pub fn run<M: Machine>(&mut self, m: &M) -> Result<()> {
        for _ in 0..self.iterations {
            if self.place.is_multiple_of(2) {
                self.send_edges(m)?;
                self.take_edges(m)?;
            } else {
                self.take_edges(m)?;
                self.send_edges(m)?;
            }
            self.relax();
        }
        Ok(())
    }

    fn send_edges<M: Machine>(&mut self, m: &M) -> Result<()> {
        let last = self.old.len() - 2;
        for (peer, row) in [(self.up, 1), (self.down, last)] {
            let Some(peer) = peer else { continue };
            for (bytes, value) in self.wire.chunks_exact_mut(4).zip(&self.old[row]) {
                bytes.copy_from_slice(&value.to_ne_bytes());
            }
            m.send(&self.wire, peer, TAG_DATA)?;
        }
        Ok(())
    }

    fn take_edges<M: Machine>(&mut self, m: &M) -> Result<()> {
        let beyond = self.old.len() - 1;
        for (peer, row) in [(self.down, beyond), (self.up, 0)] {
            let Some(peer) = peer else { continue };
            m.recv(&mut self.wire, peer, TAG_DATA)?;
            for (bytes, value) in self.wire.chunks_exact(4).zip(&mut self.old[row]) {
                *value = f32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            }
        }
        Ok(())
    }

    /// Each inner point becomes the mean of its four neighbours; the rim of the grid stays.
    fn relax(&mut self) {
        let rows = self.old.len();
        for y in 1..rows - 1 {
            let rim = (self.up.is_none() && y == 1) || (self.down.is_none() && y == rows - 2);
            if rim {
                continue;
            }
            let (above, here, below) = (&self.old[y - 1], &self.old[y], &self.old[y + 1]);
            let new = &mut self.new[y];
            for x in 1..COLUMNS - 1 {
                new[x] = 0.25 * (here[x - 1] + above[x] + here[x + 1] + below[x]);
            }
        }
        std::mem::swap(&mut self.old, &mut self.new);
    }

    pub fn check(&self) -> f64 {
        self.old[1..self.old.len() - 1].iter().flatten().map(|&v| f64::from(v)).sum()
    }
}

//! Two-dimensional Fourier transform of 256 x 256 complex floats: rows, transposition by
//! all-to-all, rows again.

use std::f32::consts::TAU;

use crate::error::Result;
use crate::machine::Machine;

/// Rows and columns.
pub const SIDE: usize = 256;
const POINT_BYTES: usize = 2 * size_of::<f32>();

/// What one process sends to each other, bytes.
pub fn block_bytes(ranks: usize) -> usize {
    let slice = SIDE / ranks.max(1);
    slice * slice * POINT_BYTES
}

type Complex = (f32, f32);

/// One process's rows.
pub struct Fft {
    iterations: u32,
    ranks: usize,
    rows: Vec<[Complex; SIDE]>,
    /// The roots of unity, once for all.
    roots: Vec<Complex>,
    start: Vec<[Complex; SIDE]>,
    out: Vec<u8>,
    into: Vec<u8>,
}

impl Fft {
    pub fn new(iterations: u32, ranks: usize, place: usize) -> Fft {
        let slice = SIDE / ranks;
        let value = |y: usize, x: usize| ((((y * 7 + x * 3) % 32) as f32) / 32.0, 0.0);
        let rows: Vec<[Complex; SIDE]> =
            (place * slice..(place + 1) * slice).map(|y| std::array::from_fn(|x| value(y, x))).collect();
        let roots = (0..SIDE / 2).map(|i| {
            let angle = -TAU * i as f32 / SIDE as f32;
            (angle.cos(), angle.sin())
        });
        let bytes = block_bytes(ranks) * ranks;
        Fft {
            iterations,
            ranks,
            start: rows.clone(),
            rows,
            roots: roots.collect(),
            out: vec![0; bytes],
            into: vec![0; bytes],
        }
    }

    pub fn run<M: Machine>(&mut self, m: &M, group: &M::Group) -> Result<()> {
        for _ in 0..self.iterations {
            // Each transform is of the same data, else the numbers grow beyond floats.
            self.rows.copy_from_slice(&self.start);
            self.rows.iter_mut().for_each(|row| transform(row, &self.roots));
            self.pack();
            m.alltoall(group, &self.out, &mut self.into)?;
            self.unpack();
            self.rows.iter_mut().for_each(|row| transform(row, &self.roots));
        }
        Ok(())
    }

    /// Block `i` holds the columns of member `i`, transposed.
    fn pack(&mut self) {
        let slice = SIDE / self.ranks;
        let points = (0..SIDE).flat_map(|x| (0..slice).map(move |y| (y, x)));
        for (bytes, (y, x)) in self.out.chunks_exact_mut(POINT_BYTES).zip(points) {
            let (re, im) = self.rows[y][x];
            bytes[..4].copy_from_slice(&re.to_ne_bytes());
            bytes[4..].copy_from_slice(&im.to_ne_bytes());
        }
    }

    fn unpack(&mut self) {
        let slice = SIDE / self.ranks;
        let float = |b: &[u8]| f32::from_ne_bytes([b[0], b[1], b[2], b[3]]);
        let points = (0..self.ranks)
            .flat_map(|from| (0..slice).flat_map(move |y| (0..slice).map(move |x| (y, from * slice + x))));
        for (bytes, (y, x)) in self.into.chunks_exact(POINT_BYTES).zip(points) {
            self.rows[y][x] = (float(&bytes[..4]), float(&bytes[4..]));
        }
    }

    /// Sum of magnitudes.
    pub fn check(&self) -> f64 {
        self.rows.iter().flatten().map(|&(re, im)| f64::from(re.hypot(im))).sum()
    }
}

/// Radix-2 transform in place (Cooley and Tukey 1965).
fn transform(row: &mut [Complex; SIDE], roots: &[Complex]) {
    let bits = SIDE.trailing_zeros();
    for i in 0..SIDE {
        let j = i.reverse_bits() >> (usize::BITS - bits);
        if i < j {
            row.swap(i, j);
        }
    }
    let mut half = 1;
    while half < SIDE {
        let step = SIDE / (2 * half);
        for start in (0..SIDE).step_by(2 * half) {
            for k in 0..half {
                let (cos, sin) = roots[k * step];
                let (a, b) = (row[start + k], row[start + k + half]);
                let turned = (b.0 * cos - b.1 * sin, b.0 * sin + b.1 * cos);
                row[start + k] = (a.0 + turned.0, a.1 + turned.1);
                row[start + k + half] = (a.0 - turned.0, a.1 - turned.1);
            }
        }
        half *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wave_becomes_one_point() {
        let fft = Fft::new(1, 1, 0);
        let mut row: [Complex; SIDE] = std::array::from_fn(|x| {
            let angle = TAU * 5.0 * x as f32 / SIDE as f32;
            (angle.cos(), angle.sin())
        });
        transform(&mut row, &fft.roots);
        for (x, &(re, im)) in row.iter().enumerate() {
            let expected = if x == 5 { SIDE as f32 } else { 0.0 };
            assert!((re.hypot(im) - expected).abs() < 1e-2, "{x}: {re} {im}");
        }
    }
}

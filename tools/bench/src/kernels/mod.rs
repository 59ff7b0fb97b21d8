//! Applications under the same harness: regular and local (jacobi), regular and global (fft),
//! irregular (bots, farm). A repetition is a run of `iterations` iterations, transforms or tasks.
//!
//! Source: Grove, "Performance modelling of message-passing parallel programs" (PhD thesis,
//! Adelaide 2003), chapter 6 and appendix B; sizes are those of the thesis, counts are smaller so
//! that a run takes well under a second.

mod bots;
mod farm;
mod fft;
mod jacobi;

pub use farm::{Farm, Wait};

use crate::error::{BenchError, Result};
use crate::machine::Machine;
use crate::operation::Kind;

/// A kernel with its data, ready to run.
pub enum Kernel {
    /// Bag of tasks.
    Bots(bots::Bots),
    /// Task farm.
    Farm(Farm),
    /// Two-dimensional Fourier transform.
    Fft(fft::Fft),
    /// Jacobi iteration.
    Jacobi(jacobi::Jacobi),
}

impl Kernel {
    /// The kernel for member `place` of `members`; `ticks_per_us` tells how long a task computes.
    /// The farm is made by [`Farm::new`].
    ///
    /// # Errors
    /// [`BenchError::Usage`] if it cannot run on so many processes.
    pub fn new(kind: Kind, iterations: u32, members: &[usize], place: usize, ticks_per_us: f64) -> Result<Kernel> {
        fits(kind, members.len())?;
        Ok(match kind {
            Kind::Bots => Kernel::Bots(bots::Bots::new(iterations, members, place, ticks_per_us)),
            Kind::Fft => Kernel::Fft(fft::Fft::new(iterations, members.len(), place)),
            Kind::Jacobi => Kernel::Jacobi(jacobi::Jacobi::new(iterations, members, place)),
            other => return Err(BenchError::Usage(format!("{} is no kernel", other.name()))),
        })
    }

    /// One repetition.
    ///
    /// # Errors
    /// The machine's.
    pub fn run<M: Machine>(&mut self, m: &M, group: &M::Group) -> Result<()> {
        match self {
            Kernel::Bots(bots) => bots.run(m),
            Kernel::Farm(farm) => farm.run(m, group, std::iter::once((&mut 0, &mut 0))),
            Kernel::Fft(fft) => fft.run(m, group),
            Kernel::Jacobi(jacobi) => jacobi.run(m),
        }
    }

    /// A number that follows from all that was computed: the same on every machine, if messages
    /// carry what they should.
    #[must_use]
    pub fn check(&self) -> f64 {
        match self {
            Kernel::Bots(bots) => bots.check(),
            Kernel::Farm(farm) => farm.check(),
            Kernel::Fft(fft) => fft.check(),
            Kernel::Jacobi(jacobi) => jacobi.check(),
        }
    }

    /// How long requests were waited for, of what has some.
    #[must_use]
    pub fn waits(&self) -> &[Wait] {
        match self {
            Kernel::Farm(farm) => farm.waits(),
            _ => &[],
        }
    }
}

/// Iterations of a repetition where the user gives none.
#[must_use]
pub fn default_iterations(kind: Kind) -> u32 {
    match kind {
        Kind::Bots => 100,
        Kind::Farm => 200,
        Kind::Fft => 4,
        _ => 100,
    }
}

/// The largest message of a kernel that has no sizes, bytes: what its cell is filed under.
#[must_use]
pub fn message_bytes(kind: Kind, ranks: usize) -> u64 {
    match kind {
        Kind::Bots => bots::MOST_BYTES as u64,
        Kind::Fft => fft::block_bytes(ranks) as u64,
        _ => jacobi::ROW_BYTES as u64,
    }
}

/// Whether a kernel can run on so many processes.
///
/// # Errors
/// [`BenchError::Usage`], with what it needs.
pub fn fits(kind: Kind, ranks: usize) -> Result<()> {
    let wants = match kind {
        Kind::Fft if !ranks.is_power_of_two() || ranks > fft::SIDE => "a power of two of processes, at most 256",
        Kind::Jacobi if ranks > jacobi::ROWS => "at most 256 processes",
        _ if ranks < 2 => "at least two processes",
        _ => return Ok(()),
    };
    Err(BenchError::Usage(format!("{} needs {wants}, there are {ranks}", kind.name())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::sim::{Model, run};

    fn checks(kind: Kind, ranks: usize) -> Vec<f64> {
        run(&Model::plain(ranks), |m| {
            let all: Vec<usize> = (0..ranks).collect();
            let group = m.group(&all).unwrap().unwrap();
            let mut kernel = match crate::tagged::Tagged::asked(kind, &crate::options::tests::args(&[]).tagged).unwrap()
            {
                Some(of) => Kernel::Farm(Farm::new(20, of, (ranks, m.rank()), 3000, 1000.0, 0)),
                None => Kernel::new(kind, 20, &all, m.rank(), 1000.0).unwrap(),
            };
            kernel.run(m, &group).unwrap();
            kernel.run(m, &group).unwrap();
            kernel.check()
        })
    }

    #[test]
    fn the_sum_of_what_is_computed_does_not_depend_on_the_number_of_processes() {
        for (kind, counts) in
            [(Kind::Jacobi, [2, 4, 6]), (Kind::Fft, [2, 4, 8]), (Kind::Bots, [2, 3, 5]), (Kind::Farm, [2, 3, 6])]
        {
            let sums: Vec<f64> = counts.iter().map(|&ranks| checks(kind, ranks).iter().sum()).collect();
            assert!(sums[0] != 0.0, "{kind:?}");
            for sum in &sums {
                assert!((sum - sums[0]).abs() < 1e-3 * sums[0].abs(), "{kind:?}: {sums:?}");
            }
        }
    }

    #[test]
    fn what_cannot_run_says_what_it_needs() {
        assert!(fits(Kind::Fft, 6).unwrap_err().to_string().contains("fft needs a power of two"));
        assert!(fits(Kind::Bots, 1).is_err());
        assert!(fits(Kind::Jacobi, 6).is_ok());
    }
}

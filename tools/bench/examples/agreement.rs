//! Whether the harness agrees with the mean that other benchmarks take: many round trips between
//! two readings of the clock, divided by their number (checklist row 39 of the seed).
//!
//! Both are measured in turns in the same process, in blocks of about a millisecond over the same
//! buffers, each begun by an exchange that is not timed. What is judged is the median over rounds
//! of the ratio of two neighbouring blocks: whatever else the machine does for longer than that
//! happens to both. Rounds are added until the interval of that median is narrow enough to judge
//! by.
//!
//! `mpiexec -n 2 agreement [seconds]`: prints a line for each size, and ends with 1 if small
//! messages differ by more than 15 % or large ones by more than 2 %, or if the machine is too busy
//! to tell.

use std::time::{Duration, Instant};

use weir_bench::Result;
use weir_bench::machine::mpi::MpiMachine;
use weir_bench::machine::{Control, Machine, Messages, TAG_DATA};
use weir_bench::measure::{self, Buffer, Pair, Part, Slots};
use weir_bench::operation::Kind;

/// Sizes from here on are large.
const LARGE_BYTES: usize = 65_536;
/// Rounds that are measured in any case, and between two looks at the interval.
const ROUNDS: usize = 100;
/// Bytes and messages that take about as long as a block shall last.
const BLOCK_BYTES: usize = 4_000_000;
/// What a message takes besides its bytes, as bytes.
const MESSAGE_BYTES: usize = 5_000;

fn main() {
    match compare() {
        Ok(true) => {}
        Ok(false) => std::process::exit(1),
        Err(error) => {
            eprintln!("agreement: {error}");
            std::process::exit(1);
        }
    }
}

/// What both methods work on.
struct Work<'a> {
    m: &'a MpiMachine,
    part: Part,
    out: Buffer,
    into: Buffer,
    count: usize,
}

impl Work<'_> {
    /// Round trips.
    fn exchange(&mut self, count: usize) -> Result<()> {
        let (m, peer) = (self.m, self.part.peer);
        for _ in 0..count {
            if self.part.first {
                m.send(self.out.get(), peer, TAG_DATA)?;
                m.recv(self.into.get_mut(), peer, TAG_DATA)?;
            } else {
                m.recv(self.into.get_mut(), peer, TAG_DATA)?;
                m.send(self.out.get(), peer, TAG_DATA)?;
            }
        }
        Ok(())
    }

    /// Mean half round trip in ticks, as the harness has it.
    fn harness(&mut self) -> Result<f64> {
        let mut slots = Slots::default();
        let first = slots.grow(self.count);
        self.exchange(1)?;
        let mut pair = Pair::alone(self.part, self.out.get_mut(), self.into.get_mut());
        measure::pair(self.m, Kind::PingPong, &mut pair, &mut slots, first, || Ok(()))?;
        let sum: u64 = slots.begin.iter().zip(&slots.end).map(|(b, e)| e - b).sum();
        Ok(sum as f64 / self.count as f64 / 2.0)
    }

    /// The same as others have it: the clock is read at the beginning and at the end.
    fn classical(&mut self) -> Result<f64> {
        self.exchange(1)?;
        let begin = self.m.ticks();
        self.exchange(self.count)?;
        Ok((self.m.ticks() - begin) as f64 / self.count as f64 / 2.0)
    }

    /// The harness's mean over the other's, of two neighbouring blocks.
    fn ratio(&mut self, ours_first: bool) -> Result<f64> {
        self.m.everybody(&())?;
        if ours_first {
            let ours = self.harness()?;
            Ok(ours / self.classical()?)
        } else {
            let theirs = self.classical()?;
            Ok(self.harness()? / theirs)
        }
    }
}

/// Median and its 95 % interval by order statistics (normal approximation of the binomial, as there
/// are 100 and more).
fn median(ratios: &mut [f64]) -> (f64, f64, f64) {
    ratios.sort_by(f64::total_cmp);
    let n = ratios.len() as f64;
    let at = |place: f64| ratios[(place.max(0.0) as usize).min(ratios.len() - 1)];
    let reach = 0.98 * n.sqrt();
    (at(n / 2.0), at(n / 2.0 - reach - 1.0), at(n / 2.0 + reach))
}

fn compare() -> Result<bool> {
    let seconds: u64 = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(60);
    let m = MpiMachine::load(None, false)?;
    let part = Part { peer: 1 - m.rank().min(1), first: m.rank() == 0 };
    let sizes = [8, 1024, 8192, 65_536, 1 << 20, 4 << 20];
    let each = Duration::from_secs(seconds) / sizes.len() as u32;
    let mut agree = true;
    for size in sizes {
        let count = (BLOCK_BYTES / (size + MESSAGE_BYTES)).max(4);
        let mut work = Work { m: &m, part, out: Buffer::new(size), into: Buffer::new(size), count };
        let limit = if size < LARGE_BYTES { 0.15 } else { 0.02 };
        let (begin, mut ratios) = (Instant::now(), Vec::new());
        let (middle, low, high) = loop {
            for round in 0..ROUNDS {
                // Who comes first changes, so that neither always finds what the other has warmed.
                ratios.push(work.ratio(round % 2 == 0)?);
            }
            let found = median(&mut ratios);
            // Rank 0's own ratios are the ones that are judged.
            if m.share(&(found.2 - found.1 < limit / 2.0 || begin.elapsed() > each))? {
                break found;
            }
        };
        let verdict = match (middle - 1.0).abs() <= limit {
            _ if high - low > 2.0 * limit => "FAILED: the machine is too busy to tell",
            true => "passed",
            false => "FAILED",
        };
        if m.rank() == 0 {
            let rounds = ratios.len();
            println!(
                "{size:>8} bytes: harness over classical mean {middle:.4} ({low:.4} to {high:.4}, {rounds} rounds), allowed {limit} off: {verdict}"
            );
            agree &= verdict == "passed";
        }
    }
    let agree = m.share(&agree)?;
    m.finish()?;
    Ok(agree)
}

//! Whether the harness agrees with the mean that other benchmarks take: many round trips between two readings of the clock, divided by their number. Both are measured in turns in the same process,
//! so that whatever else the machine does happens to both.
//!
//! `mpiexec -n 2 agreement [rounds]`: prints a line for each size, and ends with 1 if small messages differ by more than 15 % or large ones by more than 2 % (checklist row 39 of the seed).

use weir_bench::Result;
use weir_bench::machine::mpi::MpiMachine;
use weir_bench::machine::{Control, Machine, TAG_DATA};
use weir_bench::measure::{self, Buffer, Pair, Part, Slots};
use weir_bench::operation::Kind;

/// Sizes from here on are large.
const LARGE_BYTES: usize = 65_536;

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

/// Mean half round trip in ticks, as the harness has it.
fn harness(m: &MpiMachine, part: Part, out: &Buffer, into: &mut Buffer, count: usize) -> Result<f64> {
    let mut slots = Slots::default();
    let first = slots.grow(count);
    let mut pair = Pair { part, out: out.get(), into: into.get_mut(), window: 1 };
    measure::pair(m, Kind::PingPong, &mut pair, &mut slots, first)?;
    let sum: u64 = slots.begin.iter().zip(&slots.end).map(|(b, e)| e - b).sum();
    Ok(sum as f64 / count as f64 / 2.0)
}

/// The same as others have it: the clock is read at the beginning and at the end.
fn classical(m: &MpiMachine, part: Part, out: &Buffer, into: &mut Buffer, count: usize) -> Result<f64> {
    let begin = m.ticks();
    for _ in 0..count {
        if part.first {
            m.send(out.get(), part.peer, TAG_DATA)?;
            m.recv(into.get_mut(), part.peer, TAG_DATA)?;
        } else {
            m.recv(into.get_mut(), part.peer, TAG_DATA)?;
            m.send(out.get(), part.peer, TAG_DATA)?;
        }
    }
    Ok((m.ticks() - begin) as f64 / count as f64 / 2.0)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn compare() -> Result<bool> {
    let rounds: usize = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(301);
    let m = MpiMachine::load(None)?;
    let part = Part { peer: 1 - m.rank().min(1), first: m.rank() == 0 };
    let mut agree = true;
    for size in [8, 1024, 8192, 65_536, 1 << 20, 4 << 20] {
        // Rounds of about a millisecond: most are over before anything else wants the processor.
        let count = (2_000_000 / (size + 5_000)).max(2);
        let (out, mut into) = (Buffer::new(size), Buffer::new(size));
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            // Who comes first changes, so that neither always finds what the other has warmed.
            for turn in 0..2 {
                m.everybody(&())?;
                if (round + turn) % 2 == 0 {
                    ours.push(harness(&m, part, &out, &mut into, count)?);
                } else {
                    theirs.push(classical(&m, part, &out, &mut into, count)?);
                }
            }
        }
        let ratio = median(ours) / median(theirs);
        let limit = if size < LARGE_BYTES { 0.15 } else { 0.02 };
        let good = (ratio - 1.0).abs() <= limit;
        if m.rank() == 0 {
            let verdict = if good { "agrees" } else { "DIFFERS" };
            println!("{size:>8} bytes: harness over classical mean {ratio:.4}, allowed {limit} off: {verdict}");
            agree &= good;
        }
    }
    let agree = m.share(&agree)?;
    m.finish()?;
    Ok(agree)
}

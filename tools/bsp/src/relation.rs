//! Who sends how much to whom in a superstep that is measured.

use weir_stats::{open_unit, seeded};

use crate::params::Pattern;

/// Most puts of a process in a superstep: beyond that the calls are measured, and nothing else.
pub const PUTS_MAX: u64 = 1 << 20;
/// Random relations that supersteps of one kind take in turn.
const RANDOM: u64 = 16;
/// Runs of blocks of a random relation, each to a process of its own.
const CHUNKS: u64 = 32;
/// What is sent is a multiple of so many bytes.
const UNIT: u64 = 8;

/// A put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Put {
    /// To whom.
    pub to: usize,
    /// Where in the area there.
    pub offset: u64,
    /// How much.
    pub bytes: u64,
}

/// A process's part of a relation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// h: most bytes that any process sends or gets.
    pub h_bytes: u64,
    /// What this process puts.
    pub puts: Vec<Put>,
}

/// What each pair of a pattern exchanges, so that h is as near below what is wanted as can be.
#[must_use]
pub fn share(pattern: Pattern, p: usize, wanted_bytes: u64) -> u64 {
    let pairs = match pattern {
        Pattern::Shift => 1,
        Pattern::Random => CHUNKS,
        Pattern::Total | Pattern::Gather | Pattern::Scatter => (p as u64).saturating_sub(1).max(1),
    };
    (wanted_bytes / pairs / UNIT * UNIT).max(UNIT)
}

/// Bytes of an area that holds what comes.
#[must_use]
pub fn area_bytes(p: usize, wanted_bytes: u64) -> u64 {
    let of = |pattern| share(pattern, p, wanted_bytes);
    let total = of(Pattern::Total).saturating_mul(p as u64);
    total.max(of(Pattern::Shift)).max(of(Pattern::Random).saturating_mul(CHUNKS))
}

/// The relations that supersteps of this kind take in turn, as process `pid` sees them.
#[must_use]
pub fn parts(pattern: Pattern, p: usize, pid: usize, wanted_bytes: u64, block_bytes: u64) -> Vec<Part> {
    if pattern == Pattern::Random {
        return (0..RANDOM).map(|seed| random(p, pid, wanted_bytes, block_bytes, seed)).collect();
    }
    let each = share(pattern, p, wanted_bytes);
    let to_all = |into: &dyn Fn(usize) -> u64| {
        (1..p).map(|step| (pid + step) % p).map(|to| (to, into(to))).collect::<Vec<(usize, u64)>>()
    };
    let flows = match pattern {
        // The first of those who send to it is the next one.
        Pattern::Total => to_all(&|to| ((pid + p - to - 1) % p) as u64 * each),
        Pattern::Shift => vec![((pid + 1) % p, 0)],
        Pattern::Gather if pid > 0 => vec![(0, (pid as u64 - 1) * each)],
        Pattern::Scatter if pid == 0 => to_all(&|_| 0),
        Pattern::Gather | Pattern::Scatter | Pattern::Random => Vec::new(),
    };
    let h_bytes = if pattern == Pattern::Shift { each } else { each * (p as u64 - 1) };
    let puts = flows.iter().flat_map(|(to, offset)| blocks(*to, *offset, each, block_bytes)).collect();
    vec![Part { h_bytes, puts }]
}

/// A run of bytes as puts of at most a block.
fn blocks(to: usize, offset: u64, bytes: u64, block_bytes: u64) -> impl Iterator<Item = Put> {
    let block = block_bytes.max(1);
    (0..bytes.div_ceil(block)).map(move |nth| Put {
        to,
        offset: offset + nth * block,
        bytes: block.min(bytes - nth * block),
    })
}

/// Each process sends runs of blocks to others drawn at random: all draw the same, so each knows h.
fn random(p: usize, pid: usize, wanted_bytes: u64, block_bytes: u64, seed: u64) -> Part {
    let each = share(Pattern::Random, p, wanted_bytes);
    let mut chance = seeded(seed);
    let mut into = vec![0u64; p];
    let mut part = Part { h_bytes: each * CHUNKS, puts: Vec::new() };
    for from in 0..p {
        for chunk in 0..CHUNKS {
            let step = 1 + (open_unit(&mut chance) * (p as f64 - 1.0)) as usize;
            let to = (from + step.min(p - 1)) % p;
            into[to] += each;
            if from == pid {
                part.puts.extend(blocks(to, chunk * each, each, block_bytes));
            }
        }
    }
    part.h_bytes = into.iter().copied().fold(part.h_bytes, u64::max);
    part
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// h is what the busiest process sends or gets, all know the same, and nothing lies outside
        /// of an area.
        #[test]
        fn relations_are_what_they_say(p in 2usize..9, wanted in 8u64..5000, block in 1u64..600) {
            for pattern in Pattern::ALL {
                let all: Vec<Vec<Part>> = (0..p).map(|pid| parts(pattern, p, pid, wanted, block)).collect();
                for (nth, first) in all[0].iter().enumerate() {
                    let (mut out, mut into) = (vec![0u64; p], vec![0u64; p]);
                    for pid in 0..p {
                        prop_assert_eq!(all[pid][nth].h_bytes, first.h_bytes);
                        for put in &all[pid][nth].puts {
                            prop_assert!(put.to != pid && put.to < p && put.bytes > 0 && put.bytes <= block);
                            prop_assert!(put.offset + put.bytes <= area_bytes(p, wanted));
                            out[pid] += put.bytes;
                            into[put.to] += put.bytes;
                        }
                    }
                    let h = out.iter().chain(&into).copied().max().unwrap();
                    prop_assert_eq!(h, first.h_bytes, "{:?}", pattern);
                    if pattern.is_balanced() {
                        prop_assert!(out.iter().chain(&into).all(|bytes| *bytes == h));
                    }
                }
            }
        }
    }

    #[test]
    fn puts_of_a_total_exchange_do_not_meet() {
        let (p, wanted) = (5, 4000);
        let mut taken = vec![Vec::new(); p];
        for pid in 0..p {
            for put in &parts(Pattern::Total, p, pid, wanted, 300)[0].puts {
                taken[put.to].push((put.offset, put.offset + put.bytes));
            }
        }
        for mut runs in taken {
            runs.sort_unstable();
            assert!(runs.windows(2).all(|two| two[0].1 <= two[1].0), "{runs:?}");
        }
    }
}

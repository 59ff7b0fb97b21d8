//! Patterns of messages (`spec/pattern-format.md`): any text is read or refused, and of one that is
//! read every message has both its ends.

use std::collections::BTreeMap;
use std::path::Path;

use weir_bench::pattern::parse;

/// Words of the format, which a byte each stands for: texts that get far.
const WORDS: [&str; 32] = [
    "\n",
    "\n",
    "\n",
    "step\n",
    "* -> +1 size\n",
    "* -> ^1 8\n",
    "*",
    "even",
    "odd",
    "0",
    "1",
    "2..3",
    ",",
    " -> ",
    "+",
    "-",
    "^",
    "1",
    "7",
    " size",
    "*2",
    "/3",
    " 64",
    "1k",
    "compute ",
    " 5us",
    " 1ms",
    "#",
    "ranks ",
    "weir-pattern 1\n",
    "..",
    " ",
];

/// Reads bytes as a text, and as the words of one; whether the latter was a pattern for some number
/// of ranks.
pub fn run(data: &[u8]) -> bool {
    planned(&String::from_utf8_lossy(data));
    let words: String = data.iter().map(|byte| WORDS[usize::from(byte % 32)]).collect();
    planned(&format!("weir-pattern 1\nranks 1..\nstep\n{words}"))
}

fn planned(text: &str) -> bool {
    let Ok(pattern) = parse(text) else { return false };
    let mut any = false;
    for (ranks, size) in [(1, 0), (2, 8), (5, 1000), (8, u64::MAX)] {
        let Ok(plan) = pattern.plan(ranks, size, Path::new("fuzzed")) else { continue };
        any = true;
        assert_eq!(plan.turns.len(), ranks);
        let mut open: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
        for (rank, leg) in plan
            .turns
            .iter()
            .enumerate()
            .flat_map(|(rank, turns)| turns.iter().flat_map(move |t| t.sends.iter().map(move |leg| (rank, leg))))
        {
            assert!(leg.peer < ranks && leg.peer != rank);
            open.entry((rank, leg.peer)).or_default().push(leg.bytes);
        }
        let mut got: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
        for (rank, turns) in plan.turns.iter().enumerate() {
            turns
                .iter()
                .flat_map(|t| &t.receives)
                .for_each(|leg| got.entry((leg.peer, rank)).or_default().push(leg.bytes));
        }
        assert_eq!(open, got, "a message without its other end");
        let (out, _) = plan.buffer_bytes();
        assert_eq!(out, open.values().flatten().map(|bytes| *bytes as u64).max().unwrap_or(0));
    }
    any
}

//! A user's own pattern of messages, read from a file (`spec/pattern-format.md`).

use std::collections::BTreeSet;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::Path;

use crate::exchange::{Leg, Turn};
use crate::sizes;

/// Longest file, bytes.
pub const MOST_BYTES: u64 = 1 << 20;
/// Most messages of all ranks in a repetition.
const MOST_MESSAGES: usize = 1_000_000;
/// Most steps.
const MOST_STEPS: usize = 10_000;
/// Most messages at once at one rank.
const MOST_AT_ONCE: usize = 65_536;
/// Longest message.
const MOST_SIZE: u64 = 1 << 40;
/// Most ranks that a file may speak of.
const MOST_RANKS: usize = 1 << 20;
const MOST_PLACES: usize = 65_535;
const MOST_FACTOR: u64 = 65_536;
const MOST_COMPUTE_NS: u64 = 10_000_000_000;

/// What is wrong with a file, and in which line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// From 1; 0: of no single line.
    pub line: usize,
    /// In a line for people.
    pub what: String,
}

impl Fault {
    /// With the file's name, as people look for it.
    #[must_use]
    pub fn of(&self, file: &Path) -> String {
        match self.line {
            0 => format!("{}: {}", file.display(), self.what),
            line => format!("{}:{line}: {}", file.display(), self.what),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

type Result<T> = std::result::Result<T, Fault>;

/// Some of the ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    All,
    Even,
    Odd,
    Some(RangeInclusive<usize>),
}

/// To whom.
#[derive(Clone, Debug, PartialEq, Eq)]
enum To {
    Set(Vec<Part>),
    Ahead(usize),
    Back(usize),
    Across(usize),
}

/// How long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    Bytes(u64),
    Times(u64),
    Parted(u64),
}

impl Size {
    fn bytes(self, size: u64) -> u64 {
        match self {
            Size::Bytes(bytes) => bytes,
            Size::Times(factor) => size.saturating_mul(factor),
            Size::Parted(parts) => size / parts,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Act {
    Message { from: Vec<Part>, to: To, size: Size },
    Compute { ranks: Vec<Part>, ns: u64 },
}

/// A pattern as it stands in its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// How many ranks it is for, and the line that says so.
    ranks: RangeInclusive<usize>,
    ranks_line: usize,
    /// Each with its line.
    steps: Vec<Vec<(usize, Act)>>,
    digest: u32,
}

/// What each rank does in a repetition, at one size: by rank, its turns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// By rank.
    pub turns: Vec<Vec<Turn>>,
    /// The pattern's name and the digest of its text.
    pub label: String,
}

impl Plan {
    /// Bytes that a rank needs for what it sends and what it receives, the most of all ranks.
    #[must_use]
    pub fn buffer_bytes(&self) -> (u64, u64) {
        let turns = || self.turns.iter().flatten();
        let out = turns().flat_map(|turn| &turn.sends).map(|leg| leg.bytes as u64).max().unwrap_or(0);
        let all = |turn: &Turn| turn.receives.iter().map(|leg| leg.bytes as u64).sum::<u64>();
        (out, turns().map(all).max().unwrap_or(0))
    }

    /// The longest message, bytes.
    #[must_use]
    pub fn longest(&self) -> u64 {
        self.buffer_bytes().0
    }
}

fn fault<T>(line: usize, what: impl Into<String>) -> Result<T> {
    Err(Fault { line, what: what.into() })
}

/// Reads the text of a file.
///
/// # Errors
/// The first line that is wrong.
pub fn parse(text: &str) -> Result<Pattern> {
    if text.len() as u64 > MOST_BYTES {
        return fault(0, format!("longer than {MOST_BYTES} bytes"));
    }
    let lines = text.lines().enumerate().map(|(place, line)| (place + 1, line.split('#').next().unwrap_or("")));
    let mut lines = lines.map(|(line, text)| (line, text.split_whitespace().collect::<Vec<_>>()));
    let mut lines = lines.by_ref().filter(|(_, words)| !words.is_empty());
    match lines.next() {
        Some((_, words)) if words == ["weir-pattern", "1"] => {}
        Some((line, words)) if words[0] == "weir-pattern" && words.len() == 2 => {
            return fault(line, format!("version {} of the format, this program reads 1; use a newer weir", words[1]));
        }
        Some((line, _)) => return fault(line, "the first line is not \"weir-pattern 1\""),
        None => return fault(0, "empty"),
    }
    let (ranks_line, ranks) = match lines.next() {
        Some((line, words)) => match words[..] {
            ["ranks", wanted] => (line, wanted_ranks(line, wanted)?),
            _ => return fault(line, "\"ranks\" is expected, with how many: 4, 2.. or 2..16"),
        },
        None => return fault(0, "it ends before it says for how many ranks it is"),
    };
    let mut steps: Vec<Vec<(usize, Act)>> = Vec::new();
    for (line, words) in lines {
        if words[0] == "step" {
            if steps.len() == MOST_STEPS {
                return fault(line, format!("more than {MOST_STEPS} steps"));
            }
            steps.push(Vec::new());
            continue;
        }
        let act = act(line, &words)?;
        match steps.last_mut() {
            Some(step) => step.push((line, act)),
            None => return fault(line, "a message before the first step"),
        }
    }
    if steps.is_empty() {
        return fault(0, "no step in it");
    }
    Ok(Pattern { ranks, ranks_line, steps, digest: digest(text) })
}

/// FNV-1a of the text, folded.
fn digest(text: &str) -> u32 {
    let all = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    (all >> 32) as u32 ^ all as u32
}

fn wanted_ranks(line: usize, word: &str) -> Result<RangeInclusive<usize>> {
    let number = |text: &str| text.parse::<usize>().ok().filter(|n| (1..=MOST_RANKS).contains(n));
    let range = match word.split_once("..") {
        None => number(word).map(|n| n..=n),
        Some((low, "")) => number(low).map(|low| low..=MOST_RANKS),
        Some((low, high)) => number(low).zip(number(high)).map(|(low, high)| low..=high),
    };
    match range.filter(|range| !range.is_empty()) {
        Some(range) => Ok(range),
        None => fault(line, format!("{word:?} is no number of ranks: 4, 2.. or 2..16")),
    }
}

fn act(line: usize, words: &[&str]) -> Result<Act> {
    match *words {
        ["compute", ranks, time] => Ok(Act::Compute { ranks: set(line, ranks)?, ns: time_ns(line, time)? }),
        ["compute", ..] => fault(line, "a computation is: compute RANKS TIME"),
        [from, "->", to, size] => {
            Ok(Act::Message { from: set(line, from)?, to: target(line, to)?, size: length(line, size)? })
        }
        _ if words.contains(&"->") => fault(line, "a message is FROM -> TO SIZE"),
        _ if words.iter().any(|word| word.contains("->")) => {
            fault(line, "a message is FROM -> TO SIZE, with a space before -> and one behind it")
        }
        _ => fault(line, format!("{:?} begins no line; one of: step, compute, or FROM -> TO SIZE", words[0])),
    }
}

fn set(line: usize, word: &str) -> Result<Vec<Part>> {
    let number = |text: &str| text.parse::<usize>().ok().filter(|n| *n < MOST_RANKS);
    let part = |text: &str| match text {
        "*" => Some(Part::All),
        "even" => Some(Part::Even),
        "odd" => Some(Part::Odd),
        _ => match text.split_once("..") {
            None => number(text).map(|n| Part::Some(n..=n)),
            Some((low, high)) => number(low)
                .zip(number(high))
                .filter(|(low, high)| low <= high)
                .map(|(low, high)| Part::Some(low..=high)),
        },
    };
    match word.split(',').map(part).collect() {
        Some(parts) => Ok(parts),
        None => fault(line, format!("{word:?} is no set of ranks: *, even, odd, 3, 2..5, or several with commas")),
    }
}

fn target(line: usize, word: &str) -> Result<To> {
    let places = |text: &str| match text.parse::<usize>() {
        // A sign of its own would be read as part of the number.
        Ok(n) if (1..=MOST_PLACES).contains(&n) && text.bytes().all(|b| b.is_ascii_digit()) => Ok(n),
        _ => fault(line, format!("{word:?}: places are a number from 1 to {MOST_PLACES}")),
    };
    match word.split_at_checked(1) {
        Some(("+", rest)) => Ok(To::Ahead(places(rest)?)),
        Some(("-", rest)) => Ok(To::Back(places(rest)?)),
        Some(("^", rest)) => Ok(To::Across(places(rest)?)),
        _ => Ok(To::Set(set(line, word)?)),
    }
}

fn length(line: usize, word: &str) -> Result<Size> {
    let factor = |text: &str| match text.parse::<u64>() {
        Ok(n) if (1..=MOST_FACTOR).contains(&n) => Ok(n),
        _ => fault(line, format!("{word:?}: size is multiplied or divided by a number from 1 to {MOST_FACTOR}")),
    };
    if let Some(rest) = word.strip_prefix("size") {
        return match rest.split_at_checked(1) {
            None => Ok(Size::Times(1)),
            Some(("*", n)) => Ok(Size::Times(factor(n)?)),
            Some(("/", n)) => Ok(Size::Parted(factor(n)?)),
            Some(_) => fault(line, format!("{word:?} is no size: size, size*2, size/2, or bytes")),
        };
    }
    match sizes::number(word) {
        Ok(bytes) if bytes <= MOST_SIZE => Ok(Size::Bytes(bytes)),
        Ok(_) => fault(line, format!("{word:?} is longer than a message may be")),
        Err(cause) => fault(line, format!("{word:?}: {cause}")),
    }
}

/// What is wrong with a word that should be a time.
const NO_TIME: &str = "is no time: a whole number with ns, us or ms, 10000ms at most";

fn time_ns(line: usize, word: &str) -> Result<u64> {
    let digits = word.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &word[digits.len()..] {
        "ns" => 1,
        "us" => 1000,
        "ms" => 1_000_000,
        _ => return fault(line, format!("{word:?} {NO_TIME}")),
    };
    match digits.parse::<u64>().ok().and_then(|n| n.checked_mul(unit)) {
        Some(ns) if ns <= MOST_COMPUTE_NS => Ok(ns),
        _ => fault(line, format!("{word:?} {NO_TIME}")),
    }
}

/// The ranks of a set, of so many that there are.
fn members(line: usize, parts: &[Part], ranks: usize) -> Result<BTreeSet<usize>> {
    let mut all = BTreeSet::new();
    for part in parts {
        match part {
            Part::All => all.extend(0..ranks),
            Part::Even => all.extend((0..ranks).step_by(2)),
            Part::Odd => all.extend((1..ranks).step_by(2)),
            Part::Some(range) => {
                exists(line, *range.end(), ranks)?;
                all.extend(range.clone());
            }
        }
    }
    Ok(all)
}

fn exists(line: usize, rank: usize, ranks: usize) -> Result<()> {
    if rank < ranks {
        return Ok(());
    }
    fault(line, format!("rank {rank} does not exist: there are {ranks} (0 to {})", ranks.saturating_sub(1)))
}

impl Pattern {
    /// Whether the size of a cell makes any difference.
    #[must_use]
    pub fn has_size(&self) -> bool {
        let named = |act: &Act| matches!(act, Act::Message { size: Size::Times(_) | Size::Parted(_), .. });
        self.steps.iter().flatten().any(|(_, act)| named(act))
    }

    /// What it is called in a run: the file's name, and what tells it from others of that name.
    #[must_use]
    pub fn label(&self, file: &Path) -> String {
        let name = file.file_stem().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        format!("{name}:{:08x}", self.digest)
    }

    /// What each of so many ranks does, where `size` stands for so many bytes.
    ///
    /// # Errors
    /// What cannot be for so many ranks, by its line.
    pub fn plan(&self, ranks: usize, size: u64, file: &Path) -> Result<Plan> {
        if !self.ranks.contains(&ranks) {
            let (low, high) = (self.ranks.start(), self.ranks.end());
            let wanted = match (low == high, *high == MOST_RANKS) {
                (true, _) => format!("{low}"),
                (_, true) => format!("{low} or more"),
                _ => format!("{low} to {high}"),
            };
            let noun = if *high == 1 { "rank" } else { "ranks" };
            return fault(self.ranks_line, format!("the pattern is for {wanted} {noun}, there are {ranks}"));
        }
        let mut turns: Vec<Vec<Turn>> = vec![Vec::new(); ranks];
        let mut messages = 0;
        for step in &self.steps {
            let mut now = vec![Turn::default(); ranks];
            for (line, act) in step {
                messages += add(*line, act, size, &mut now)?;
                if messages > MOST_MESSAGES {
                    return fault(*line, format!("more than {MOST_MESSAGES} messages in a repetition"));
                }
            }
            for (own, turn) in turns.iter_mut().zip(now) {
                if turn.sends.len() + turn.receives.len() > MOST_AT_ONCE {
                    let line = step.last().map_or(0, |(line, _)| *line);
                    return fault(line, format!("more than {MOST_AT_ONCE} messages at once at one rank"));
                }
                if turn != Turn::default() {
                    own.push(turn);
                }
            }
        }
        if messages == 0 {
            return fault(0, format!("no message in it for {ranks} rank{}", if ranks == 1 { "" } else { "s" }));
        }
        Ok(Plan { turns, label: self.label(file) })
    }
}

/// Adds what a line says to a step; returns how many messages that are.
fn add(line: usize, act: &Act, size: u64, now: &mut [Turn]) -> Result<usize> {
    let ranks = now.len();
    let (from, to, bytes) = match act {
        Act::Compute { ranks: who, ns } => {
            for rank in members(line, who, ranks)? {
                now[rank].compute_ns += ns;
            }
            return Ok(0);
        }
        Act::Message { from, to, size: length } => (members(line, from, ranks)?, to, length.bytes(size)),
    };
    if bytes > MOST_SIZE {
        return fault(line, format!("a message of {bytes} bytes is longer than one may be"));
    }
    let bytes = bytes as usize;
    let everybody = if let To::Set(parts) = to { members(line, parts, ranks)? } else { BTreeSet::new() };
    let mut count = 0;
    for sender in from {
        let one = match to {
            To::Set(_) => None,
            To::Ahead(places) => Some((sender + places) % ranks),
            To::Back(places) => Some((sender + ranks - places % ranks) % ranks),
            To::Across(bits) => Some(sender ^ bits),
        };
        if let Some(receiver) = one {
            exists(line, receiver, ranks)?;
            if receiver == sender {
                return fault(line, format!("rank {sender} would send to itself"));
            }
        }
        for &receiver in everybody.iter().chain(&one).filter(|&&receiver| receiver != sender) {
            now[sender].sends.push(Leg { peer: receiver, bytes });
            now[receiver].receives.push(Leg { peer: sender, bytes });
            count += 1;
            if count > MOST_MESSAGES {
                return fault(line, format!("more than {MOST_MESSAGES} messages in a repetition"));
            }
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::machine::Machine;
    use crate::machine::sim::{Model, run};

    const FILE: &str = "halo.pattern";

    fn planned(text: &str, ranks: usize, size: u64) -> Result<Plan> {
        parse(text)?.plan(ranks, size, Path::new(FILE))
    }

    fn refusal(text: &str, ranks: usize) -> String {
        planned(text, ranks, 8).unwrap_err().of(Path::new(FILE))
    }

    fn leg(peer: usize, bytes: usize) -> Leg {
        Leg { peer, bytes }
    }

    #[test]
    fn lines_say_who_sends_what_to_whom() {
        let text = "# a ring\n\nweir-pattern 1 # the version\nranks 2..4\nstep there\n* -> +1 size\nstep\n odd,0 -> 0 size*2 \ncompute even 3us\n";
        let plan = planned(text, 3, 100).unwrap();
        let ring = |next, before| Turn { compute_ns: 0, sends: vec![leg(next, 100)], receives: vec![leg(before, 100)] };
        assert_eq!(
            plan.turns,
            [
                vec![ring(1, 2), Turn { compute_ns: 3000, receives: vec![leg(1, 200)], ..Turn::default() }],
                vec![ring(2, 0), Turn { sends: vec![leg(0, 200)], ..Turn::default() }],
                vec![ring(0, 1), Turn { compute_ns: 3000, ..Turn::default() }],
            ]
        );
        assert_eq!((plan.buffer_bytes(), plan.longest()), ((200, 200), 200));
        assert!(plan.label.starts_with("halo:") && plan.label.len() == 13, "{}", plan.label);
        assert_ne!(plan.label, planned(&text.replace("3us", "4us"), 3, 100).unwrap().label);
    }

    #[test]
    fn the_examples_of_the_specification_are_patterns() {
        let spec = include_str!("../../../spec/pattern-format.md");
        let examples: Vec<&str> = spec.split("```\n").skip(1).step_by(2).collect();
        assert_eq!(examples.len(), 2);
        assert_eq!(planned(examples[0], 5, 8).unwrap().turns[0][0].sends, [leg(1, 8), leg(4, 8)]);
        let halo = planned(examples[1], 4, 0).unwrap();
        assert_eq!(halo.turns[0].len(), 3);
        assert!(!parse(examples[1]).unwrap().has_size() && parse(examples[0]).unwrap().has_size());
    }

    #[test]
    fn what_is_wrong_is_told_with_file_and_line() {
        let head = "weir-pattern 1\nranks 4\n";
        let with = |rest: &str| format!("{head}{rest}");
        let cases = [
            ("halo".into(), 4, "halo.pattern:1: the first line is not \"weir-pattern 1\""),
            (
                "\n weir-pattern 2".into(),
                4,
                "halo.pattern:2: version 2 of the format, this program reads 1; use a newer weir",
            ),
            ("weir-pattern 1\nstep".into(), 4, "halo.pattern:2: \"ranks\" is expected, with how many: 4, 2.. or 2..16"),
            ("weir-pattern 1\nranks 4..2".into(), 4, "halo.pattern:2: \"4..2\" is no number of ranks"),
            (
                with("step\nsned 0 1"),
                4,
                "halo.pattern:4: \"sned\" begins no line; one of: step, compute, or FROM -> TO SIZE",
            ),
            (with("0 -> 1 8"), 4, "halo.pattern:3: a message before the first step"),
            (with("step\n0 -> 1"), 4, "halo.pattern:4: a message is FROM -> TO SIZE"),
            (with("step\n0->1 8"), 4, "halo.pattern:4: a message is FROM -> TO SIZE, with a space before ->"),
            (
                with("step\n0..x -> 1 8"),
                4,
                "halo.pattern:4: \"0..x\" is no set of ranks: *, even, odd, 3, 2..5, or several with commas",
            ),
            (with("step\n0 -> 1 12q"), 4, "halo.pattern:4: \"12q\": \"q\" is no suffix (k, M, G, T)"),
            (
                with("step\n0 -> 1 size*0"),
                4,
                "halo.pattern:4: \"size*0\": size is multiplied or divided by a number from 1",
            ),
            (with("step\ncompute * 9s"), 4, "halo.pattern:4: \"9s\" is no time"),
            (with("step\ncompute * 1.5ms"), 4, "halo.pattern:4: \"1.5ms\" is no time: a whole number"),
            (with("step\n* -> +1 8"), 6, "halo.pattern:2: the pattern is for 4 ranks, there are 6"),
            (with("step\n0 -> 1 8\n7 -> 1 8"), 4, "halo.pattern:5: rank 7 does not exist: there are 4 (0 to 3)"),
            (with("step\n* -> ^4 8"), 4, "halo.pattern:4: rank 4 does not exist"),
            (with("step\n* -> +4 8"), 4, "halo.pattern:4: rank 0 would send to itself"),
            (with("step\n* -> ++1 8"), 4, "halo.pattern:4: \"++1\": places are a number from 1 to 65535"),
            (with("step\ncompute * 1us"), 4, "halo.pattern: no message in it for 4 ranks"),
            (with("step\n0 -> 0 8"), 4, "halo.pattern: no message in it for 4 ranks"),
            (with("# nothing"), 4, "halo.pattern: no step in it"),
            (String::new(), 4, "halo.pattern: empty"),
        ];
        for (text, ranks, expected) in cases {
            let told = refusal(&text, ranks);
            assert!(told.starts_with(expected) && !told.contains('\n'), "{told}");
        }
        let many = format!("weir-pattern 1\nranks 2000\nstep\n{}", "* -> +1 8\n".repeat(501));
        assert!(refusal(&many, 2000).contains("more than 1000000 messages"));
        assert!(
            refusal(&format!("weir-pattern 1\nranks 2\n{}", "step\n".repeat(10_001)), 2)
                .contains("more than 10000 steps")
        );
    }

    fn sets() -> impl Strategy<Value = String> {
        prop_oneof![
            Just("*".to_owned()),
            Just("even".to_owned()),
            Just("odd,0".to_owned()),
            (0..5usize).prop_map(|n| n.to_string()),
            (0..3usize, 0..2usize).prop_map(|(low, more)| format!("{low}..{}", low + more)),
        ]
    }

    fn lines() -> impl Strategy<Value = String> {
        let to =
            prop_oneof![sets(), (1..4usize).prop_map(|k| format!("+{k}")), (1..4usize).prop_map(|k| format!("-{k}"))];
        let size =
            prop_oneof![(0..2000u64).prop_map(|n| n.to_string()), Just("size".to_owned()), Just("size/3".to_owned())];
        prop_oneof![
            2 => Just("step".to_owned()),
            1 => (sets(), 0..9u32).prop_map(|(set, us)| format!("compute {set} {us}us")),
            6 => (sets(), to, size).prop_map(|(from, to, size)| format!("{from} -> {to} {size}")),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// What one sends the other receives, in the same order; and every pattern that is accepted
        /// comes to its end.
        #[test]
        fn every_pattern_that_is_accepted_ends(ranks in 5usize..8, lines in proptest::collection::vec(lines(), 0..14), size in 0u64..5000) {
            let text = format!("weir-pattern 1\nranks 2..\nstep\n{}\n", lines.join("\n"));
            let Ok(plan) = planned(&text, ranks, size) else { return Ok(()) };
            let mut sent: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
            let mut received = sent.clone();
            for (rank, turns) in plan.turns.iter().enumerate() {
                for turn in turns {
                    turn.sends.iter().for_each(|leg| sent.entry((rank, leg.peer)).or_default().push(leg.bytes));
                    turn.receives.iter().for_each(|leg| received.entry((leg.peer, rank)).or_default().push(leg.bytes));
                }
            }
            prop_assert_eq!(sent, received);
            let (out, into) = plan.buffer_bytes();
            let ended = run(&Model::plain(ranks), |m| {
                let (out, mut into) = (vec![m.rank() as u8; out as usize], vec![0; into as usize]);
                for turn in &plan.turns[m.rank()] {
                    m.exchange_all(&out, &turn.sends, &mut into, &turn.receives, 1).unwrap();
                    let mut place = 0;
                    for leg in &turn.receives {
                        assert!(into[place..place + leg.bytes].iter().all(|byte| *byte == leg.peer as u8));
                        place += leg.bytes;
                    }
                }
            });
            prop_assert_eq!(ended.len(), ranks);
        }

        #[test]
        fn no_text_is_more_than_refused(text in "[ -~\n]{0,200}", ranks in 1usize..9) {
            let _ = planned(&text, ranks, 8);
            let _ = planned(&format!("weir-pattern 1\nranks 1..\nstep\n{text}"), ranks, 8);
        }
    }
}

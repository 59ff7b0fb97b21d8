//! Makes the model: folds, puts the processes together, looks for rules, writes, checks.
//!
//! Three ways of telling calls apart are tried, from the coarsest (a call is its place) to the
//! finest (also its size, tag and where it goes, relative to its process). The first by which
//! everything has a rule is the model. If none does, the model is for the recorded number of
//! processes only: with tables where a rule is missing, or in the end process by process.

use std::collections::{BTreeSet, HashMap};

use crate::acts::{Act, Kind, Sample};
use crate::check::check;
use crate::emit::{self, Written};
use crate::error::Error;
use crate::fold::fold;
use crate::merge::{Column, columns, merge};
use crate::rules::Demand;
use crate::runs::Runs;
use crate::split::split;

/// A finished model.
#[derive(Debug, Clone)]
pub struct Model {
    /// Its text.
    pub text: String,
    /// Whether the number of processes can be another than what was recorded.
    pub scales: bool,
    /// What people have to know, each a line.
    pub notes: Vec<String>,
}

/// Statements of a model, at most: more is not a model that anybody reads.
const MOST_STATEMENTS: usize = 150_000;

/// Makes a model of recorded runs; `title` says of what.
///
/// # Errors
/// If the calls make none.
pub fn model(runs: &Runs, title: &str) -> Result<Model, Error> {
    let all: Vec<usize> = (0..runs.samples.len()).collect();
    let mut counts: Vec<i64> = runs.samples.iter().map(|s| s.n).collect();
    counts.dedup();
    let Some(largest) = counts.iter().max().copied() else {
        return Err(Error::Refused("no process was recorded".into()));
    };
    let mut why = None;
    for finest in 0..LEVELS {
        let written = together(runs, &all, finest, false);
        match written {
            Some(written) if written.without_rule.is_empty() && proven(runs, &all, &written, None).is_ok() => {
                return finished(runs, &all, title, &counts, written, None, Vec::new());
            }
            Some(written) if why.is_none() && !written.without_rule.is_empty() => why = Some(written.without_rule),
            _ => {}
        }
    }
    let why = why.unwrap_or_else(|| vec!["the processes' calls cannot be laid side by side".to_owned()]);
    let samples: Vec<usize> = all.into_iter().filter(|s| runs.samples[*s].n == largest).collect();
    for finest in 0..LEVELS {
        if let Some(written) = together(runs, &samples, finest, true)
            && written.without_rule.is_empty()
            && proven(runs, &samples, &written, Some(largest)).is_ok()
        {
            return finished(runs, &samples, title, &counts, written, Some(largest), why);
        }
    }
    let written = one_by_one(runs, &samples)?;
    finished(runs, &samples, title, &counts, written, Some(largest), why)
}

/// Ways of telling calls apart.
const LEVELS: usize = 3;

/// Numbers by which calls are told apart, for each process.
struct Tokens {
    /// The statement.
    keys: HashMap<(u32, Kind), u32>,
    tokens: HashMap<(u32, Vec<i64>), u32>,
}

impl Tokens {
    fn new() -> Self {
        Self { keys: HashMap::new(), tokens: HashMap::new() }
    }

    /// Statement and token of each act of a process.
    fn of(&mut self, sample: &Sample, finest: usize, requests: bool) -> (Vec<u32>, Vec<u32>) {
        let (mut keys, mut tokens) = (Vec::new(), Vec::new());
        for (act, place) in sample.acts.iter().zip(&sample.places) {
            let next = self.keys.len() as u32;
            let key = *self.keys.entry((*place, act.kind)).or_insert(next);
            let next = self.tokens.len() as u32;
            tokens.push(*self.tokens.entry((key, told_apart_by(act, sample, finest, requests))).or_insert(next));
            keys.push(key);
        }
        (keys, tokens)
    }
}

fn told_apart_by(act: &Act, sample: &Sample, finest: usize, requests: bool) -> Vec<i64> {
    let fields = act.kind.fields(requests);
    let numbers = fields.iter().zip(&act.numbers);
    match finest {
        0 => Vec::new(),
        1 => numbers.filter(|(field, _)| !field.is_process()).map(|(_, v)| *v).collect(),
        2 => numbers
            .map(|(field, v)| if field.is_process() && *v >= 0 { (v - sample.p).rem_euclid(sample.n) } else { *v })
            .collect(),
        _ => act.numbers.clone(),
    }
}

/// All processes as one program. None: they are too unlike to be compared.
fn together(runs: &Runs, samples: &[usize], finest: usize, fixed: bool) -> Option<Written> {
    let mut tokens = Tokens::new();
    let mut merged: Option<Vec<Column>> = None;
    for sample in samples {
        let (keys, list) = tokens.of(runs.samples.get(*sample)?, finest, runs.requests);
        let mut own = columns(*sample, &fold(&list), &keys);
        split(&mut own, *sample, runs.samples.get(*sample)?);
        merged = Some(match merged {
            None => own,
            Some(before) => merge(before, own, &runs.samples)?,
        });
    }
    Some(emit::program(&merged?, runs, samples, fixed))
}

/// Each process by itself, as it was.
fn one_by_one(runs: &Runs, samples: &[usize]) -> Result<Written, Error> {
    let mut tokens = Tokens::new();
    let mut out = Written::default();
    for (at, sample) in samples.iter().enumerate() {
        let (keys, list) = tokens.of(&runs.samples[*sample], LEVELS, runs.requests);
        let own = columns(*sample, &fold(&list), &keys);
        let written = emit::program(&own, runs, &[*sample], true);
        if !written.without_rule.is_empty() {
            return Err(Error::Differs(written.without_rule.join("; ")));
        }
        let lead = if at == 0 { "Runon c1".to_owned() } else { format!("& c{}", at + 1) };
        out.text += &format!("{lead} = procnum == {} {{\n{}}}\n", runs.samples[*sample].p, written.text);
        out.statements += written.statements + 1;
        if out.statements > MOST_STATEMENTS {
            return Err(Error::Refused(format!(
                "the model would have more than {MOST_STATEMENTS} statements, since the calls do not repeat: record a shorter run"
            )));
        }
    }
    Ok(out)
}

/// Whether the text repeats what was recorded; `only`: for that number of processes.
fn proven(runs: &Runs, samples: &[usize], written: &Written, only: Option<i64>) -> Result<(), Error> {
    let chosen: Vec<Sample> = samples.iter().filter_map(|s| runs.samples.get(*s).cloned()).collect();
    check(&whole("", written, only), &chosen, runs.requests)
}

/// The text with its declarations.
fn whole(head: &str, written: &Written, only: Option<i64>) -> String {
    let mut text = head.to_owned();
    if written.split {
        text += "# How much of the computing is shared: 0, each process computes as long with any number; 1, they share it.\n";
        text += "Parameter split = 0\n";
    }
    if let Some(n) = only {
        text += "# An error with any other number of processes.\n";
        text += &format!("Serial time = require(numprocs == {n})\n");
    }
    for demand in &written.demands {
        text += "# An error with a number of processes that the rules do not hold for.\n";
        text += &format!("Serial time = require({})\n", condition_of(*demand));
    }
    text + &written.text
}

const fn condition_of(demand: Demand) -> &'static str {
    match demand {
        Demand::PowerOfTwo => "(numprocs & (numprocs - 1)) == 0",
        Demand::Square => "round(sqrt(numprocs))*round(sqrt(numprocs)) == numprocs",
        Demand::Even => "numprocs % 2 == 0",
    }
}

const fn words_of(demand: Demand) -> &'static str {
    match demand {
        Demand::PowerOfTwo => "a power of two",
        Demand::Square => "a square",
        Demand::Even => "even",
    }
}

fn finished(
    runs: &Runs,
    samples: &[usize],
    title: &str,
    counts: &[i64],
    written: Written,
    only: Option<i64>,
    why: Vec<String>,
) -> Result<Model, Error> {
    let list = |counts: &[i64]| counts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let mut notes = Vec::new();
    if let Some(n) = only {
        notes.push(format!("this model holds for {n} processes only: no rule was found for any number of them"));
        let more = why.len().saturating_sub(SHOWN);
        notes.extend(why.into_iter().take(SHOWN).map(|line| format!("no rule: {line}")));
        if more > 0 {
            notes.push(format!("and {more} more"));
        }
    } else {
        let demands: BTreeSet<&str> = written.demands.iter().map(|d| words_of(*d)).collect();
        let demands = demands.into_iter().collect::<Vec<_>>().join(" and ");
        let of = if demands.is_empty() { String::new() } else { format!(" that is {demands}") };
        if counts.len() == 1 {
            notes.push(format!(
                "recorded with {} processes only: with another number{of} its rules are guesses, and sizes and iterations are taken as the same; record with two numbers or more (-n 2,4) to have them checked",
                list(counts)
            ));
        } else {
            notes.push(format!(
                "this model can be evaluated with any number of processes{of}; its rules fit those that were recorded, and with others they are guesses until a recording there agrees (weir record -n N --check MODEL -- PROGRAM)"
            ));
        }
    }
    notes.extend(written.doubts.iter().cloned());
    notes.extend(runs.notes.iter().cloned());
    let recorded: BTreeSet<u32> = counts.iter().filter_map(|n| u32::try_from(*n).ok()).collect();
    let mut head = format!("# {title}\n{}\n", weir_annotations::recorded_line(&recorded));
    notes.iter().for_each(|note| head += &format!("# {note}\n"));
    let largest = counts.iter().max().copied().unwrap_or(1);
    head += &format!("\nDefault numprocs = {largest}\n");
    let text = whole(&head, &written, only);
    let chosen: Vec<Sample> = samples.iter().filter_map(|s| runs.samples.get(*s).cloned()).collect();
    check(&text, &chosen, runs.requests)?;
    Ok(Model { text, scales: only.is_none(), notes })
}

/// Reasons that are shown.
const SHOWN: usize = 8;

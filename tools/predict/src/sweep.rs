//! Runs a program for each process count: replicas with seeds that follow each other, on all
//! processors.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rayon::prelude::*;
use weir_annotations::program::{Law, OpKind, Table};
use weir_annotations::{Diagnostic, Model, Program, Setting, Value};
use weir_predict::{Cause, Draw, Machine, Options, Outcome, Summary, Verdict, evaluate_observed, summarise};

use crate::args::{Mode, PredictArgs, Without};
use crate::error::Reason;
use crate::progress::Progress;
use crate::whatif::WhatIf;
use crate::{explain, show, table};

/// What is the same for all process counts.
pub struct Sweep<'a> {
    /// The program.
    pub program: &'a Program,
    /// The machine.
    pub machine: &'a Machine,
    /// Values of parameters.
    pub parameters: BTreeMap<String, Value>,
    /// The data of the streams.
    pub streams: Vec<Arc<Table>>,
    /// How it is evaluated.
    pub options: Options,
    /// Of a recorded model: with how many processes.
    pub recorded: Option<BTreeSet<u32>>,
    /// The command line.
    pub args: &'a PredictArgs,
}

/// What is predicted for one process count.
#[derive(Debug)]
pub struct Prediction {
    /// How many processes.
    pub numprocs: u32,
    /// The model.
    pub model: Model,
    /// All runs, by seed.
    pub outcomes: Vec<Outcome>,
    /// The seed of the first.
    pub seed: u64,
    /// What they say together.
    pub summary: Summary,
    /// The same with changes: the change, and the median in seconds.
    pub changed: Vec<(WhatIf, f64)>,
    /// That its model was recorded, but not with so many processes.
    pub guess: Option<String>,
}

impl Prediction {
    /// The run in the middle.
    pub fn median(&self) -> &Outcome {
        &self.outcomes[self.summary.median_run]
    }

    /// Its seed.
    pub fn median_seed(&self) -> u64 {
        self.seed.wrapping_add(self.summary.median_run as u64)
    }

    /// What should be known about it: extrapolations, and messages that nobody received. Each a
    /// line.
    pub fn notices(&self, files: &[String]) -> Vec<String> {
        let median = self.median();
        let mut all: Vec<String> = self.guess.iter().chain(&median.notices).cloned().collect();
        if let Some(first) = median.unreceived.first() {
            let place = self.model.ops.get(first.op as usize).map_or_else(Default::default, |op| op.place);
            let count = match median.unreceived_count {
                1 => "1 message is".to_owned(),
                n => format!("{n} messages are"),
            };
            let at = show::at(place, files);
            all.push(format!("{count} sent and never received, the first from {} to {} ({at})", first.from, first.to));
        }
        all.extend(median.skipped.iter().map(|skipped| {
            let place = self.model.ops.get(skipped.op as usize).map_or_else(Default::default, |op| op.place);
            format!(
                "the loop at {} repeats itself exactly: {} of its iterations, {}, are not run one by one (--every-iteration does)",
                show::at(place, files),
                skipped.iterations,
                table::duration(skipped.time.seconds())
            )
        }));
        all
    }

    /// All processes' time by cause, in seconds, of the median run.
    pub fn losses(&self) -> Vec<(Cause, f64)> {
        self.median().losses.total().iter().map(|(cause, time)| (cause, time.seconds())).collect()
    }
}

/// What became of one process count.
pub type Row = Result<Prediction, NotPredicted>;

/// A process count without a prediction.
#[derive(Debug)]
pub struct NotPredicted {
    /// How many processes.
    pub numprocs: u32,
    /// Why.
    pub reason: Reason,
    /// The same with its lines.
    pub found: Vec<Diagnostic>,
}

/// How the command line wants it evaluated.
pub fn options(args: &PredictArgs) -> Options {
    let mut options = match args.mode {
        Mode::Full => Options::default(),
        Mode::Avg => Options { draw: Draw::Average, ..Options::default() },
        Mode::Min => Options { draw: Draw::Least, ..Options::default() },
        Mode::Max => Options { draw: Draw::Greatest, ..Options::default() },
        Mode::AloneAvg => Options::two_by_one(Draw::Average),
        Mode::AloneMin => Options::two_by_one(Draw::Least),
    };
    options.budget = args.budget;
    options.most_under_way = args.most_under_way;
    options.skip_repeats = !args.every_iteration;
    for without in &args.without {
        match without {
            Without::Contention => options.contention = false,
            Without::NodeLimits => options.node_limits = false,
            Without::Losses => options.losses = false,
        }
    }
    options
}

impl Sweep<'_> {
    /// Predicts for one process count. Warnings about the model are added to `warnings`.
    pub fn predict(&self, numprocs: u32, warnings: &mut Vec<Diagnostic>) -> Row {
        let setting = Setting {
            numprocs,
            parameters: self.parameters.clone(),
            processor: self.args.processor.clone(),
            speed_mhz: self.args.speed,
            streams: self.streams.clone(),
        };
        let prepared =
            self.program.model(&setting).map_err(|found| NotPredicted { numprocs, reason: Reason::Model, found })?;
        warnings.extend(prepared.warnings);
        let model = prepared.model;
        let runs = if varies(&model, self.machine, &self.options) { self.args.runs } else { 1 };
        let all = u64::from(runs) * (1 + self.args.what_if.len() as u64);
        let bar = Progress::new(weir_scene::processes(numprocs), all, self.options.budget, self.args.quiet);
        let seed = self.args.seed;
        let run = |options: &Options, number: u32| {
            let mut run = bar.run();
            let outcome =
                evaluate_observed(&model, self.machine, options, seed.wrapping_add(u64::from(number)), &mut run);
            run.ends();
            outcome
        };
        let outcomes = match until_one_fails(runs, |number| run(&self.options, number)) {
            Ok(outcomes) => outcomes,
            Err((number, outcome)) => {
                bar.clear();
                let (mut fault, reason) = explain::verdict(&outcome, &model, seed.wrapping_add(u64::from(number)));
                if let Some(guess) = self.guess(numprocs) {
                    fault.help = Some(fault.help.map_or_else(|| guess.clone(), |help| format!("{help}; {guess}")));
                }
                return Err(NotPredicted { numprocs, reason, found: vec![fault] });
            }
        };
        let changed = |change: &WhatIf| {
            let all: Vec<Outcome> = (0..runs)
                .into_par_iter()
                .map(|number| run(&change.apply(&self.options, &outcomes[number as usize]), number))
                .collect();
            (*change, summarise(&all).map_or(f64::NAN, |summary| summary.median_s))
        };
        let changed: Vec<(WhatIf, f64)> = self.args.what_if.iter().map(changed).collect();
        bar.clear();
        let Some(summary) = summarise(&outcomes) else {
            return Err(NotPredicted { numprocs, reason: Reason::Model, found: Vec::new() });
        };
        Ok(Prediction { numprocs, model, outcomes, seed, summary, changed, guess: self.guess(numprocs) })
    }

    /// That a recorded model is asked about a number of processes that was not recorded.
    fn guess(&self, numprocs: u32) -> Option<String> {
        let recorded = self.recorded.as_ref().filter(|counts| !counts.contains(&numprocs))?;
        let counts: Vec<String> = recorded.iter().map(u32::to_string).collect();
        Some(format!(
            "the model was recorded with {} processes, not with {numprocs}: its rules are guesses here (weir record -n {numprocs} --check MODEL -- PROGRAM says whether they hold)",
            counts.join(", ")
        ))
    }
}

/// All runs by number; or the first by number that does not come to its end, whatever the order in
/// which they are run. Once one fails those behind it are not begun.
fn until_one_fails(runs: u32, run: impl Fn(u32) -> Outcome + Sync) -> Result<Vec<Outcome>, (u32, Box<Outcome>)> {
    let failed = AtomicU32::new(u32::MAX);
    let one = |number: u32| {
        if number > failed.load(Ordering::Relaxed) {
            return None;
        }
        let outcome = run(number);
        if outcome.verdict != Verdict::Finished {
            failed.fetch_min(number, Ordering::Relaxed);
        }
        Some(outcome)
    };
    let all: Vec<Option<Outcome>> = (0..runs).into_par_iter().with_max_len(1).map(one).collect();
    // Before the first that fails none is left out.
    let mut finished = Vec::new();
    for (number, outcome) in (0..runs).zip(all.into_iter().flatten()) {
        if outcome.verdict != Verdict::Finished {
            return Err((number, Box::new(outcome)));
        }
        finished.push(outcome);
    }
    Ok(finished)
}

/// Whether two runs with different seeds may differ.
fn varies(model: &Model, machine: &Machine, options: &Options) -> bool {
    let program = model.ops.iter().any(|op| match &op.kind {
        OpKind::Serial(serial) => serial.times.iter().any(|(_, time, _)| !matches!(time.law, Law::Fixed(_))),
        OpKind::Choose(_) => true,
        _ => false,
    });
    program || machine.varies(options, model)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_predict::evaluate;

    #[test]
    fn the_first_run_that_fails_ends_the_others() {
        let begun = AtomicU32::new(0);
        let source =
            weir_annotations::Source { name: "p", text: "Loop while = 1 {\nSerial time = exponential(1)\n}\n" };
        let parsed = weir_annotations::parse(&[source]).unwrap();
        let model = parsed.program.model(&Setting { numprocs: 1, ..Setting::default() }).unwrap().model;
        let machine = Machine::simplest(weir_predict::Time::from_us(1.0), 1e9);
        let options = Options { budget: 10_000, ..Options::default() };
        let run = |number: u32| {
            begun.fetch_add(1, Ordering::Relaxed);
            evaluate(&model, &machine, &options, u64::from(number))
        };
        let (number, outcome) = until_one_fails(10_000, run).unwrap_err();
        assert_eq!(number, 0);
        assert!(matches!(outcome.verdict, Verdict::OutOfBudget { .. }));
        assert!(begun.load(Ordering::Relaxed) < 5000, "{begun:?}");
    }
}

//! The command: reads, predicts, prints.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write};

use weir_annotations::{Diagnostic, Parsed, Program, Severity, Value, parse};
use weir_predict::Machine;
use weir_predict::Wishes;

use crate::args::PredictArgs;
use crate::error::{EXIT_MODEL, Failure};
use crate::input::{self, Text};
use crate::sweep::{NotPredicted, Prediction, Sweep, options};
use crate::{explain, measured, parameters, pictures, show, table};

/// Where the command prints.
pub struct Streams<'a> {
    /// Results.
    pub out: &'a mut dyn Write,
    /// All else.
    pub err: &'a mut dyn Write,
    /// Whether the second shows colours.
    pub coloured: bool,
}

impl Streams<'_> {
    fn tell(&mut self, text: &str) {
        // Nobody is left who could be told that this failed.
        let _ = self.err.write_all(text.as_bytes());
    }

    fn show(&mut self, found: &[Diagnostic], texts: &[Text]) {
        let text = show::diagnostics(found, texts, self.coloured);
        self.tell(&text);
    }

    /// Shows what is wrong.
    fn refuse(&mut self, found: &[Diagnostic], texts: &[Text]) -> Failure {
        self.show(found, texts);
        let errors = found.iter().filter(|d| d.severity == Severity::Error).count();
        if errors > 1 {
            self.tell(&format!("weir: {errors} errors\n"));
        }
        Failure::Shown(EXIT_MODEL)
    }
}

/// Runs the command; returns its exit code. What is wrong has been said on standard error.
#[must_use]
pub fn run(args: &PredictArgs) -> u8 {
    let coloured = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    run_to(args, &mut Streams { out: &mut std::io::stdout(), err: &mut std::io::stderr(), coloured })
}

/// The same, printing elsewhere.
#[must_use]
pub fn run_to(args: &PredictArgs, to: &mut Streams) -> u8 {
    let failure = match predicted(args, to) {
        Ok(()) => return 0,
        Err(failure) => failure,
    };
    let code = match failure {
        Failure::Shown(code) => return code,
        Failure::Usage(_) => 2,
        Failure::Failed(_) => 1,
    };
    to.tell(&format!("weir: {failure}\n"));
    code
}

fn predicted(args: &PredictArgs, to: &mut Streams) -> Result<(), Failure> {
    let parameters = parameters::by_name(&args.parameters).map_err(Failure::Usage)?;
    pictures::check(args)?;
    let wishes = Wishes {
        ranks_per_node: args.ranks_per_node,
        eager_bytes: args.eager,
        measured: measured::collectives(&args.measured)?,
    };
    let machine = input::machine(&args.machine, &wishes)?;
    let texts = input::sources(&args.files)?;
    let parsed = parse(&input::as_sources(&texts)).map_err(|found| to.refuse(&found, &texts))?;
    let Parsed { program, mut warnings } = parsed;
    let counts = counts(args, &program, &parameters).map_err(|fault| match fault {
        Ok(fault) => to.refuse(&[fault], &texts),
        Err(failure) => failure,
    })?;
    let streams = input::streams(&program).map_err(|found| to.refuse(&found, &texts))?;
    let sweep = Sweep { program: &program, machine: &machine, parameters, streams, options: options(args), args };
    let mut all = Vec::new();
    for numprocs in counts {
        match sweep.predict(numprocs, &mut warnings) {
            Ok(prediction) => all.push(prediction),
            Err(NotPredicted::Model(found)) => return Err(to.refuse(&found, &texts)),
            Err(NotPredicted::Run { outcome, model, seed }) => {
                warn(args, &warnings, &texts, to);
                let (fault, code) = explain::verdict(&outcome, &model, seed);
                to.show(&[fault], &texts);
                return Err(Failure::Shown(code));
            }
        }
    }
    warn(args, &warnings, &texts, to);
    notices(args, &machine, &all, &texts, to);
    pictures::write(args, &sweep, &all, &texts)?;
    print(args, &machine, &all, &texts, to)
}

/// The numbers of processes that are asked for.
fn counts(
    args: &PredictArgs,
    program: &Program,
    parameters: &BTreeMap<String, Value>,
) -> Result<Vec<u32>, Result<Diagnostic, Failure>> {
    if let Some(counts) = &args.numprocs {
        return Ok(counts.0.clone());
    }
    match program.default_numprocs(parameters) {
        Ok(Some(count)) => Ok(vec![count]),
        Ok(None) => {
            let said = "how many processes? -n 2,4,8..64, or `Default numprocs` in the source";
            Err(Err(Failure::Usage(said.to_owned())))
        }
        Err(fault) => Err(Ok(fault)),
    }
}

/// Shows warnings, each once.
fn warn(args: &PredictArgs, warnings: &[Diagnostic], texts: &[Text], to: &mut Streams) {
    if args.quiet {
        return;
    }
    let mut once: Vec<Diagnostic> = Vec::new();
    for warning in warnings {
        if !once.contains(warning) {
            once.push(warning.clone());
        }
    }
    to.show(&once, texts);
}

/// What should be known about the predictions: assumptions, extrapolations, messages that nobody received.
fn notices(args: &PredictArgs, machine: &Machine, all: &[Prediction], texts: &[Text], to: &mut Streams) {
    if args.quiet {
        return;
    }
    let files: Vec<String> = texts.iter().map(|t| t.name.clone()).collect();
    for notice in &machine.notices {
        to.tell(&format!("weir: note: {notice}\n"));
    }
    for prediction in all {
        let median = prediction.median();
        for notice in &median.notices {
            to.tell(&format!("weir: note: {} processes: {notice}\n", prediction.numprocs));
        }
        if let Some(first) = median.unreceived.first() {
            let place = prediction.model.ops.get(first.op as usize).map_or_else(Default::default, |op| op.place);
            let count = match median.unreceived_count {
                1 => "1 message is".to_owned(),
                n => format!("{n} messages are"),
            };
            let (numprocs, at) = (prediction.numprocs, show::at(place, &files));
            to.tell(&format!(
                "weir: note: {numprocs} processes: {count} sent and never received, the first from {} to {} ({at})\n",
                first.from, first.to,
            ));
        }
    }
}

fn print(
    args: &PredictArgs,
    machine: &Machine,
    all: &[Prediction],
    texts: &[Text],
    to: &mut Streams,
) -> Result<(), Failure> {
    let text = if args.json {
        format!("{}\n", table::as_json(all))
    } else {
        let names: Vec<&str> = texts.iter().map(|t| t.name.as_str()).collect();
        let runs = all.iter().map(|p| p.outcomes.len()).max().unwrap_or(0);
        let runs = if runs > 1 { format!(", {runs} runs of each") } else { String::new() };
        let largest = all.iter().max_by_key(|p| p.numprocs);
        let lines = largest.map(|p| table::lines(p, texts, args.lines)).unwrap_or_default();
        format!("{} on {}{runs}\n\n{}{lines}", names.join(", "), machine.name, table::as_text(all))
    };
    match to.out.write_all(text.as_bytes()).and_then(|()| to.out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::Failed(format!("cannot print: {error}")))
        }
        _ => Ok(()),
    }
}

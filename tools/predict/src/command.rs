//! The command: reads, predicts, prints.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write};

use weir_annotations::{Diagnostic, Parsed, Program, Severity, Value, parse};
use weir_predict::Machine;
use weir_predict::Wishes;

use crate::args::PredictArgs;
use crate::error::{EXIT_FAILED, EXIT_MODEL, Failure, Reason};
use crate::input::{self, Text, names_of};
use crate::sweep::{Row, Sweep, options};
use crate::{document, measured, parameters, pictures, show, source_network, table};

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
        Failure::Shown(Reason::Model.code(), document::error(Reason::Model, found, &names_of(texts)))
    }

    /// Prints a result.
    fn print(&mut self, text: &str) -> Result<(), Failure> {
        match self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush()) {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                Err(Failure::Failed(format!("cannot print: {error}")))
            }
            _ => Ok(()),
        }
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
        Ok(code) => return code,
        Err(failure) => failure,
    };
    let (code, kind) = match failure {
        Failure::Shown(code, _) => (code, ""),
        Failure::Usage(_) => (2, "usage"),
        Failure::Model(_) => (EXIT_MODEL, Reason::Model.name()),
        Failure::Failed(_) => (EXIT_FAILED, "failed"),
    };
    let said = failure.to_string();
    let error = match failure {
        Failure::Shown(_, error) => error,
        _ => {
            to.tell(&format!("weir: {said}\n"));
            document::plain_error(kind, code, &said)
        }
    };
    // A document that cannot be printed is what failed, or its reader has gone: nobody is left to
    // tell.
    if args.json {
        let _ = to.print(&format!("{}\n", document::without_predictions(error)));
    }
    code
}

/// Predicts each count and prints all of them; the exit code is that of the first that has no
/// prediction, or 0.
fn predicted(args: &PredictArgs, to: &mut Streams) -> Result<u8, Failure> {
    let parameters = parameters::by_name(&args.parameters).map_err(Failure::Usage)?;
    pictures::check(args, &[])?;
    pictures::have_folders(args)?;
    let wishes = Wishes {
        ranks_per_node: args.ranks_per_node,
        eager_bytes: args.eager,
        measured: measured::collectives(&args.measured)?,
    };
    // What cannot be read is told before the program is.
    let given = args.machine.as_ref().map(|path| input::machine(path, &wishes)).transpose()?;
    let texts = input::sources(&args.files)?;
    let parsed = parse(&input::as_sources(&texts)).map_err(|found| to.refuse(&found, &texts))?;
    let Parsed { program, mut warnings } = parsed;
    pictures::check(args, &input::named(&program))?;
    let machine = match given {
        Some(machine) => source_network::beside(machine, &program),
        None => source_network::machine(&program, &wishes).map_err(|fault| match fault {
            Ok(found) => to.refuse(&found, &texts),
            Err(failure) => failure,
        })?,
    };
    let counts = counts(args, &program, &parameters).map_err(|fault| match fault {
        Ok(fault) => to.refuse(&[fault], &texts),
        Err(failure) => failure,
    })?;
    let streams = input::streams(&program).map_err(|found| to.refuse(&found, &texts))?;
    let recorded = input::recorded(&texts);
    let options = options(args);
    let sweep = Sweep { program: &program, machine: &machine, parameters, streams, options, recorded, args };
    let rows: Vec<Row> = counts.into_iter().map(|numprocs| sweep.predict(numprocs, &mut warnings)).collect();
    let warnings = once(warnings);
    if !args.quiet {
        to.show(&warnings, &texts);
    }
    faults(&rows, &texts, to);
    let files = names_of(&texts);
    let told = warnings.iter().map(|one| document::warning(one, &files));
    let known: Vec<String> = machine.notices.iter().cloned().chain(told).collect();
    if !args.quiet {
        notices(&machine, &rows, &files, to);
    }
    // What is predicted is told even where its page or trace cannot be written.
    let drawn = pictures::write(args, &sweep, &rows, &known, &texts);
    let failure = drawn.err().map(|failure| failure.to_string());
    to.print(&printed(args, &machine, &rows, &known, &texts, failure.as_deref()))?;
    if let Some(said) = failure {
        to.tell(&format!("weir: {said}\n"));
        return Ok(EXIT_FAILED);
    }
    let failed = rows.iter().find_map(|row| row.as_ref().err());
    if args.trace.is_some() && rows.iter().all(Result::is_err) {
        to.tell("weir: note: no trace is written: nothing is predicted\n");
    }
    Ok(failed.map_or(0, |not| not.reason.code()))
}

/// Shows why counts have no prediction. What is the same for several is said once.
fn faults(rows: &[Row], texts: &[Text], to: &mut Streams) {
    let mut found = Vec::new();
    for not in rows.iter().filter_map(|row| row.as_ref().err()) {
        let of_run = not.reason != Reason::Model && rows.len() > 1;
        found.extend(not.found.iter().cloned().map(|mut one| {
            if of_run {
                one.message = format!("{}: {}", weir_scene::processes(not.numprocs), one.message);
            }
            one
        }));
    }
    let found = once(found);
    to.show(&found, texts);
    if found.len() > 1 {
        to.tell(&format!("weir: {} errors\n", found.len()));
    }
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

/// Each once, in the order of the first.
fn once(all: Vec<Diagnostic>) -> Vec<Diagnostic> {
    let mut once: Vec<Diagnostic> = Vec::new();
    for one in all {
        if !once.contains(&one) {
            once.push(one);
        }
    }
    once
}

/// What should be known about the predictions: assumptions, extrapolations, messages that nobody
/// received.
fn notices(machine: &Machine, rows: &[Row], files: &[String], to: &mut Streams) {
    for notice in &machine.notices {
        to.tell(&format!("weir: note: {notice}\n"));
    }
    for prediction in rows.iter().flatten() {
        for notice in prediction.notices(files) {
            to.tell(&format!("weir: note: {}: {notice}\n", weir_scene::processes(prediction.numprocs)));
        }
    }
}

/// What goes to standard output: nothing where nothing is predicted, unless a document is asked
/// for. `failure`: why page or trace could not be written.
fn printed(
    args: &PredictArgs,
    machine: &Machine,
    rows: &[Row],
    known: &[String],
    texts: &[Text],
    failure: Option<&str>,
) -> String {
    let files = names_of(texts);
    if args.json {
        let error = failure.map(|said| document::plain_error("failed", EXIT_FAILED, said));
        return format!("{}\n", document::document(rows, known, &files, error));
    }
    let Some(largest) = rows.iter().flatten().max_by_key(|p| p.numprocs) else { return String::new() };
    let runs = rows.iter().flatten().map(|p| p.outcomes.len()).max().unwrap_or(0);
    let runs = if runs > 1 { format!(", {runs} runs of each") } else { String::new() };
    let lines = table::lines(largest, texts, args.lines);
    format!("{} on {}{runs}\n\n{}{lines}", files.join(", "), machine.name, table::as_text(rows))
}

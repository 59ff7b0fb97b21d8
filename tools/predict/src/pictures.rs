//! The page (`--html`) and the trace (`--trace`).

use std::path::{Path, PathBuf};

use weir_predict::observe::{self, Observer, Passed, Span};
use weir_predict::{Cause, Time, evaluate_observed};
use weir_scene::timeline::{MOST_IN_A_PAGE, MOST_IN_A_TRACE};
use weir_scene::{Arrow, Bar, Collector, Doing, LineLoss, Point, Scene, Timeline, page, trace};

use crate::args::PredictArgs;
use crate::error::Failure;
use crate::input::{Text, names_of};
use crate::sweep::{NotPredicted, Prediction, Row, Sweep};
use crate::table::{line_text, lost_by_line};
use crate::{document, show};

/// Lines of the source that a page shows for each count.
const MOST_LINES: usize = 10;

/// Whether what is to be written would take the place of what is read, or of each other. `named`:
/// the files that the sources name.
///
/// # Errors
/// Which.
pub fn check(args: &PredictArgs, named: &[PathBuf]) -> Result<(), Failure> {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let is_file = |path: &Path| !path.exists() || path.is_file();
    let outputs: Vec<&Path> = [&args.html, &args.trace].into_iter().flatten().map(AsRef::as_ref).collect();
    for (at, output) in outputs.iter().enumerate().filter(|(_, output)| is_file(output)) {
        // A machine may be a folder.
        let inputs = args.files.iter().chain(&args.machine).chain(named);
        let read = inputs.into_iter().any(|input| real(output).starts_with(real(input)));
        if read || outputs[..at].iter().any(|other| real(other) == real(output)) {
            let what = if read { "it is read" } else { "--html is written there" };
            return Err(Failure::Usage(format!("{}: not overwritten: {what}", output.display())));
        }
    }
    Ok(())
}

/// The folders that pages and traces go to are there: told before the work, not after it.
pub fn have_folders(args: &PredictArgs) -> Result<(), Failure> {
    for output in [&args.html, &args.trace].into_iter().flatten() {
        let folder = output.parent().filter(|f| !f.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|f| !f.is_dir()) {
            return Err(Failure::file(output, format!("there is no folder {}", folder.display())));
        }
    }
    Ok(())
}

/// Writes what is asked for. A page tells of the counts without a prediction, too; a trace needs
/// one that has it.
pub fn write(
    args: &PredictArgs,
    sweep: &Sweep,
    rows: &[Row],
    notices: &[String],
    texts: &[Text],
) -> Result<(), Failure> {
    let largest = rows.iter().flatten().max_by_key(|p| p.numprocs);
    let title = format!("{} on {}", names(texts), sweep.machine.name);
    if let Some(path) = &args.html {
        let timeline = largest.map(|largest| timeline(sweep, largest, MOST_IN_A_PAGE));
        let scene = scene(title.clone(), sweep, rows, notices, texts, timeline);
        let failed = |error| Failure::file(path, error);
        weir_put::put(path, failed, |out| out.write_all(page::html(&scene).as_bytes()).map_err(failed))?;
    }
    if let (Some(path), Some(largest)) = (&args.trace, largest) {
        write_trace(path, &timeline(sweep, largest, MOST_IN_A_TRACE), &title)?;
    }
    Ok(())
}

fn write_trace(path: &Path, timeline: &Timeline, title: &str) -> Result<(), Failure> {
    let failed = |error| Failure::file(path, error);
    weir_put::put(path, failed, |mut out| trace::write(&mut out, timeline, title).map_err(failed))
}

fn names(texts: &[Text]) -> String {
    names_of(texts).join(", ")
}

fn scene(
    title: String,
    sweep: &Sweep,
    rows: &[Row],
    notices: &[String],
    texts: &[Text],
    timeline: Option<Timeline>,
) -> Scene {
    let mut facts = vec![
        ("Program".to_owned(), names(texts)),
        ("Machine".to_owned(), sweep.machine.name.clone()),
        ("Seed".to_owned(), sweep.args.seed.to_string()),
    ];
    facts.extend(sweep.parameters.iter().map(|(name, value)| (name.clone(), value.to_string())));
    let files = names_of(texts);
    let mut notices = notices.to_vec();
    let (mut points, mut failed) = (Vec::new(), Vec::new());
    for row in rows {
        match row {
            Ok(prediction) => {
                let own = prediction.notices(&files);
                notices.extend(own.into_iter().map(|n| format!("{}: {n}", weir_scene::processes(prediction.numprocs))));
                points.push(point(prediction, texts));
            }
            Err(not) => failed.push((not.numprocs, told(not, &files))),
        }
    }
    points.sort_by_key(|point| point.numprocs);
    Scene { title, facts, notices, points, failed, timeline }
}

/// Why a count has no prediction, in one line.
fn told(not: &NotPredicted, files: &[String]) -> String {
    let first = not.found.first().map(|one| document::warning(one, files));
    first.unwrap_or_else(|| not.reason.name().to_owned())
}

fn point(prediction: &Prediction, texts: &[Text]) -> Point {
    let summary = &prediction.summary;
    let lines = lost_by_line(prediction).into_iter().take(MOST_LINES).map(|(line, lost)| {
        let (place, said) = line_text(line, texts);
        let mut causes: Vec<(Cause, Time)> =
            lost.iter().filter(|(cause, time)| *cause != Cause::Computation && *time > Time::ZERO).collect();
        causes.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
        let causes = causes.into_iter().map(|(cause, time)| (cause.name().to_owned(), time.seconds())).collect();
        LineLoss { place, text: said.to_owned(), causes }
    });
    Point {
        numprocs: prediction.numprocs,
        median_s: summary.median_s,
        low_s: summary.band_s.0,
        high_s: summary.band_s.1,
        times_s: prediction.outcomes.iter().map(|outcome| outcome.time.seconds()).collect(),
        causes: prediction.losses().into_iter().map(|(cause, s)| (cause.name().to_owned(), s)).collect(),
        lines: lines.collect(),
    }
}

/// The median run once more, watched.
fn timeline(sweep: &Sweep, prediction: &Prediction, most: usize) -> Timeline {
    let mut watcher = Watcher(Collector::new(most));
    let outcome =
        evaluate_observed(&prediction.model, sweep.machine, &sweep.options, prediction.median_seed(), &mut watcher);
    // Places are numbered as ops are.
    let places = prediction.model.ops.iter().map(|op| show::at(op.place, &prediction.model.files)).collect();
    watcher.0.finish(prediction.numprocs, ns(outcome.time), places)
}

fn ns(time: Time) -> f64 {
    time.seconds() * 1e9
}

struct Watcher(Collector);

impl Observer for Watcher {
    fn span(&mut self, span: &Span) {
        let doing = match span.doing {
            observe::Doing::Compute => Doing::Compute,
            observe::Doing::Send => Doing::Send,
            observe::Doing::Receive => Doing::Receive,
            observe::Doing::Wait => Doing::Wait,
        };
        self.0.bar(Bar {
            process: span.process,
            start_ns: ns(span.start),
            end_ns: ns(span.end),
            doing,
            place: span.op,
        });
    }

    fn message(&mut self, message: &Passed) {
        self.0.arrow(Arrow {
            from: message.from,
            to: message.to,
            bytes: message.bytes,
            sent_ns: ns(message.sent),
            received_ns: ns(message.received),
            place: message.send_op,
        });
    }
}

//! Rank 0's books of a launch: its run with all finished cells, in memory and in the run's folder.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use weir_distribution::{Cell, Existing, Launch, Run, Sample, State, Warning, Writer};

use crate::append;
use crate::budget::Lost;
use crate::collect;
use crate::error::{BenchError, Result};
use crate::run::Watcher;

/// What came out, at rank 0.
pub struct Report {
    /// As in `run.json`.
    pub run: Run,
    /// The launch's number.
    pub launch: u32,
    /// Whether all cells were measured, or somebody asked to stop.
    pub complete: bool,
    /// Cells of the launch that were measured, and in which no sample counts.
    pub empty: usize,
    /// Durations for fitting, by a cell's id.
    durations: Vec<(u32, Vec<f64>)>,
    writer: Option<Writer>,
}

/// Rank 0's books.
pub(crate) struct Book {
    /// With all that is finished.
    pub(crate) run: Run,
    /// The launch's number.
    pub(crate) launch: u32,
    writer: Option<Writer>,
    durations: Vec<(u32, Vec<f64>)>,
    /// Of the harness, in a sample.
    pub(crate) overhead_ns: f64,
    /// Time that measuring took, ns, and what it went to.
    pub(crate) took_ns: f64,
    /// See `took_ns`.
    pub(crate) lost: Lost,
}

impl Book {
    /// The launch that is measured.
    pub(crate) fn launch(&mut self) -> &mut Launch {
        let at = self.run.launches.iter().position(|l| l.number == self.launch).unwrap_or(0);
        &mut self.run.launches[at]
    }

    /// Says that the launch was stopped, or takes it back if there is no finished cell of it. That
    /// it may not be saved does not matter: a launch that never ended says nothing else.
    pub(crate) fn stop(&mut self) {
        self.run.state = State::Stopped;
        self.launch().state = State::Stopped;
        if self.finished() > 0 {
            let _ = save(&self.run, self.writer.as_mut());
        } else if let Some(writer) = self.writer.take() {
            let before: Vec<Launch> =
                writer.run().launches.iter().filter(|l| l.number != self.launch).cloned().collect();
            let _ = writer.withdraw(self.launch, append::state_of(&before));
        }
    }

    /// Takes a cell out again.
    pub(crate) fn remove(&mut self, id: u32) -> Result<()> {
        if let Some(writer) = &mut self.writer {
            writer.remove_cell(id).map_err(|error| BenchError::Told(error.to_string()))?;
        }
        self.run.cells.retain(|cell| cell.id != id);
        self.durations.retain(|(cell, _)| *cell != id);
        Ok(())
    }

    /// The launch's own cells.
    pub(crate) fn cells(&self) -> impl Iterator<Item = &Cell> {
        self.run.cells.iter().filter(|cell| cell.launch == self.launch)
    }

    /// How many there are.
    pub(crate) fn finished(&self) -> usize {
        self.cells().count()
    }

    /// Adds a cell with its samples; `seed` is of the choice of samples to be fitted.
    pub(crate) fn add(&mut self, mut cell: Cell, samples: &[Sample], seed: u64) -> Result<()> {
        cell.launch = self.launch;
        cell.id = self.run.cells.iter().map(|c| c.id + 1).max().unwrap_or(0);
        if let Some(writer) = &mut self.writer {
            writer.write_cell(cell, samples).map_err(|error| BenchError::Told(error.to_string()))?;
            if let Some(written) = writer.run().cells.last() {
                self.run.cells.push(written.clone());
            }
        } else {
            self.run.cells.push(cell);
        }
        let id = self.run.cells.last().map_or(0, |cell| cell.id);
        self.durations.push((id, collect::to_fit(samples, seed)));
        Ok(())
    }

    /// Ends the launch in the books, with what there is to warn of.
    pub(crate) fn finish(mut self, complete: bool, told: Vec<Warning>) -> Result<Report> {
        let launch = self.launch;
        if !complete && self.finished() == 0 {
            self.stop();
            return Ok(Report { run: self.run, launch, complete, empty: 0, durations: Vec::new(), writer: None });
        }
        let empty = self.cells().filter(|cell| cell.summary.is_none()).count();
        let entry = self.launch();
        entry.state = if complete && empty == 0 { State::Complete } else { State::Stopped };
        entry.warnings.extend(told);
        self.run.state = append::state_of(&self.run.launches);
        let mut writer = self.writer;
        save(&self.run, writer.as_mut())?;
        Ok(Report { run: self.run, launch, complete, empty, durations: self.durations, writer })
    }
}

/// Opens the folder, if one is wanted: a new run, or a launch more in the one that is there.
pub(crate) fn open(output: Option<&Path>, append: bool, run: Run, mut launch: Launch) -> Result<Book> {
    let overhead_ns = launch.overhead.as_ref().map_or(0.0, |o| o.per_sample.p50_ns);
    let book = |run, launch, writer| Book {
        run,
        launch,
        writer,
        durations: Vec::new(),
        overhead_ns,
        took_ns: 0.0,
        lost: Lost::default(),
    };
    let Some(dir) = output else {
        let mut run = run;
        run.launches.push(launch);
        return Ok(book(run, 0, None));
    };
    // The format's errors name their file.
    let failed = |error: weir_distribution::Error| BenchError::Told(error.to_string());
    if !append && append::is_run(dir) {
        let text = format!(
            "there is a run in {} already: name another folder, or add a launch to it by --append",
            dir.display()
        );
        return Err(BenchError::Usage(text));
    }
    let mut writer = if append && append::is_run(dir) {
        let writer = Writer::append(dir).map_err(failed)?;
        append::same_machine(dir, writer.run(), &run, &launch)?;
        writer
    } else {
        Writer::create(dir, run, Existing::Refuse).map_err(failed)?
    };
    launch.number = writer.run().launches.iter().map(|l| l.number + 1).max().unwrap_or(0);
    let number = launch.number;
    writer.begin_launch(launch).map_err(failed)?;
    let run = writer.run().clone();
    Ok(book(run, number, Some(writer)))
}

/// Fits distributions to what was measured, and writes them; nobody but rank 0 is needed for it.
/// Returns whether none is missing because of a wish to stop.
///
/// # Errors
/// The folder's.
pub fn fit(report: &mut Report, stop: &AtomicBool, watcher: &mut dyn Watcher) -> Result<bool> {
    let all = report.durations.len();
    let (mut whole, begun) = (true, Instant::now());
    for (done, (id, durations)) in std::mem::take(&mut report.durations).into_iter().enumerate() {
        if stop.load(Ordering::Relaxed) {
            whole = false;
            break;
        }
        watcher.fitting(done, all, begun.elapsed().as_secs_f64() / done.max(1) as f64 * (all - done) as f64);
        if let Some(cell) = report.run.cells.iter_mut().find(|cell| cell.id == id) {
            cell.fits = collect::fits(durations, u64::from(cell.id));
        }
    }
    save(&report.run, report.writer.as_mut())?;
    Ok(whole)
}

fn save(run: &Run, writer: Option<&mut Writer>) -> Result<()> {
    let Some(writer) = writer else { return Ok(()) };
    // Samples files and ids are the writer's; the rest is ours.
    let change = |written: &mut Run| {
        for (ours, theirs) in run.cells.iter().zip(&mut written.cells) {
            theirs.fits.clone_from(&ours.fits);
        }
        written.launches.clone_from(&run.launches);
        written.state = run.state;
    };
    writer.update(change).map_err(|error| BenchError::Told(error.to_string()))
}

//! Plots and pages of what was measured, and comparisons of two runs.
//!
//! [`load`] reads a run once and keeps a [`digest::Digest`] of it, small whatever the number of
//! samples; everything else is made from that: tables ([`table`]), drawings ([`run_plots`],
//! [`comparison_plots`]) as SVG or PNG, and one page ([`page`]) that needs no network.
//! [`compare::compare`] judges two digests against each other.

#![forbid(unsafe_code)]

mod again;
pub mod cli;
pub mod compare;
pub mod condense;
pub mod curve;
pub mod digest;
pub mod families;
pub mod frame;
pub mod goodness;
pub mod json;
pub mod notes;
pub mod order;
pub mod page;
pub mod plots;
pub mod png;
pub mod reading;
pub mod scale;
pub mod style;
pub mod svg;
pub mod table;
pub mod units;
pub mod warnings;

use std::path::{Path, PathBuf};

use weir_distribution::Reader;

use crate::compare::Comparison;
use crate::digest::Digest;
use crate::frame::Plot;
use crate::plots::{Detail, bandwidth, between, clock, cumulative, fits, overview, ridgeline, sizes, strays, surface};
use crate::scale::Kind;

/// What can go wrong; each is one line for people.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A run cannot be read.
    #[error(transparent)]
    Run(#[from] weir_distribution::Error),
    /// A part of a run cannot be read.
    #[error("{}: {field}: {problem}", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// Its field.
        field: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A file cannot be written.
    #[error("cannot write {path}: {cause}; choose another place with -o", path = .path.display(), cause = weir_distribution::cause(.source))]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A drawing cannot be turned into pixels.
    #[error("cannot draw {plot}: {what}")]
    Draw {
        /// Which.
        plot: String,
        /// Why.
        what: String,
    },
    /// There is no plot to write.
    #[error("{0}; no plots are written")]
    NothingToDraw(String),
    /// A run is not what its label says, and would be compared under it.
    #[error(
        "{run}: FI_PROVIDER={named} was set when it was measured, and nothing went by it: this is {told}. Measure it anew{advice}; or compare it as what it is: --anyway"
    )]
    FalseLabel {
        /// The run's name.
        run: String,
        /// What was set.
        named: String,
        /// What it is.
        told: String,
        /// How to do better.
        advice: &'static str,
    },
    /// The command line asks for what makes no sense.
    #[error("{0}")]
    Usage(String),
}

/// Reads a run and condenses it.
///
/// # Errors
/// If `run.json` cannot be read. A samples file that cannot is a warning in the digest: the rest of
/// the run is whole.
pub fn load(path: &Path) -> Result<Digest, Error> {
    let reader = Reader::open(path)?;
    let read = |cell: &weir_distribution::Cell| reader.read_samples(cell).map_err(|e| e.to_string());
    let mut digest = condense::digest(reader.run().clone(), &name_of(reader.dir()), &read);
    digest.folder = Some(reader.dir().to_owned());
    let cut_off = cut_off(&digest, reader.is_being_written());
    digest.warnings.extend(cut_off);
    digest.warnings.extend(notes::of_histograms(reader.run()));
    if reader.has_cut_line() && reader.is_being_written() != Some(true) {
        digest.warnings.push(weir_distribution::Warning {
            code: "cut-line".into(),
            message: "the last line of cells.jsonl is cut short and was left out: the cell that was being entered when the writer was killed".into(),
            advice: None,
        });
    }
    if let Some(first) = reader.unknown_fields().first() {
        let n = reader.unknown_fields().len();
        digest.warnings.push(weir_distribution::Warning {
            code: "unknown-fields".into(),
            message: format!("run.json has fields that this version does not know, {n} or more, such as {first}"),
            advice: None,
        });
    }
    Ok(digest)
}

/// Launches that did not come to their end, as nobody writes them any more: a killed process leaves
/// no word. `writing`: whether somebody writes the run now, which then is its last launch, if that
/// is known.
fn cut_off(digest: &Digest, writing: Option<bool>) -> Vec<weir_distribution::Warning> {
    let Some(writing) = writing else { return Vec::new() };
    let run = &digest.run;
    let finished = |number: u32| run.cells.iter().filter(|c| c.launch == number).count();
    let cells = |number: u32| units::plural(finished(number) as u64, "finished cell");
    // As people count them, whatever number the record has.
    let called = |number: u32| format!("Launch {}", u64::from(number) + 1);
    let last = run.launches.iter().map(|l| l.number).max();
    let open = run.launches.iter().filter(|l| l.state == weir_distribution::State::Running);
    let told = open.map(|l| match writing && Some(l.number) == last {
        true => {
            let text = format!("{} is being measured now, with {} so far.", called(l.number), cells(l.number));
            notes::warning("being-written", text, None)
        }
        false => {
            let text = format!(
                "{} was cut off after {}, which {} whole: it did not end, and no process writes it any more.",
                called(l.number),
                cells(l.number),
                units::verb(finished(l.number), "is", "are")
            );
            notes::warning("cut-off", text, Some(again::advice(digest, 1)))
        }
    });
    told.collect()
}

/// The last part of a path that says something: that of `.` is the folder's own.
fn name_of(dir: &Path) -> String {
    let whole = std::fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
    whole.file_name().map_or_else(|| "run".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// All drawings of a run, for files.
#[must_use]
pub fn run_plots(digest: &Digest) -> Vec<Plot> {
    let detail = &Detail::STEPS[0];
    let mut out: Vec<Plot> = overview::of_run(digest).sheet().into_iter().collect();
    for profile in &digest.profiles {
        for kind in [Kind::Log, Kind::Linear] {
            if profile.sizes.len() == 1 && profile.levels.len() > 1 {
                out.push(sizes::against_level(profile, kind, detail));
            }
            for level in 0..profile.levels.len() {
                out.push(sizes::against_size(profile, level, kind, detail));
                out.extend(bandwidth::against_size(profile, level, kind));
                out.extend(between::span_against_size(profile, level, kind));
                out.push(ridgeline::ridgeline(profile, level, kind, detail));
                out.push(cumulative::cdf(profile, level, kind, detail));
            }
        }
        for level in 0..profile.levels.len() {
            out.push(cumulative::tail(profile, level, detail));
            out.extend(between::histograms(profile, level, between::SKEW, detail));
            out.extend(between::histograms(profile, level, between::SPAN, detail));
            out.extend(fits::overlay(profile, level, detail));
        }
        out.extend(surface::surface(profile));
        out.extend(strays::of_profile(profile, detail));
        out.extend(fits::parameters(profile, detail));
    }
    out.extend(strays::of_run(digest, detail));
    out.extend(clock::clock(digest));
    distinct(out)
}

/// All drawings of a comparison, for files. None has the name of one of [`run_plots`], as both may
/// lie in one folder.
#[must_use]
pub fn comparison_plots(first: &Digest, second: &Digest, comparison: &Comparison) -> Vec<Plot> {
    let detail = &Detail::STEPS[0];
    let mut out: Vec<Plot> = overview::of_two((first, second), comparison).sheet().into_iter().collect();
    for matched in &comparison.matches {
        out.push(plots::ratios::ratios(matched));
        for level in 0..matched.levels.len() {
            for kind in [Kind::Log, Kind::Linear] {
                out.extend(plots::compare::sizes((first, second), matched, level, kind));
                out.extend(plots::compare::bandwidths(matched, level, kind));
                out.extend(plots::compare::spans(matched, level, kind));
            }
            out.extend(plots::compare::cdfs((first, second), matched, level, detail));
        }
    }
    distinct(out)
}

/// Gives each plot a name of its own, whatever two operations are called.
fn distinct(mut plots: Vec<Plot>) -> Vec<Plot> {
    let mut seen = std::collections::BTreeSet::new();
    for plot in &mut plots {
        let name = if plot.name.is_empty() { "plot".to_owned() } else { plot.name.clone() };
        plot.name = (1..)
            .map(|n| if n == 1 { name.clone() } else { format!("{name}-{n}") })
            .find(|n| !seen.contains(n))
            .unwrap_or(name);
        seen.insert(plot.name.clone());
    }
    plots
}

//! CSV (RFC 4180): `cells.csv` with a row for each cell, and samples either in one flat `samples.csv` that repeats the
//! configuration in every row, or in a file for each cell, `samples-00001.csv`, whose cell is named by its number.

use std::fmt::Display;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::{Folder, writing};
use crate::error::Result;
use crate::model::{Cell, Locality, Sample, SizeMode, StartSync};
use crate::reader::Reader;

/// How samples are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// All in `samples.csv`.
    Flat,
    /// A file for each cell.
    PerCell,
}

const CONFIGURATION: &str =
    "cell,launch,operation,size_mode,size_bytes,nodes,ranks_per_node,ranks,pairs,locality,start,parameters";
const SAMPLE: &str = "rank,peer,repetition,start_ns,duration_ns,error_ns,flags";
const SUMMARY: &str = "measured,count,min_ns,p1_ns,p25_ns,p50_ns,p75_ns,p99_ns,p999_ns,max_ns,mean_ns,stddev_ns,\
                       median_low_ns,median_high_ns,outlier_boundary_ns,outliers,clock_error_ns";

/// Writes a run as CSV into a folder; returns the files.
///
/// # Errors
/// A samples file cannot be read, or the file system refused.
pub fn write(reader: &Reader, dir: &Path, layout: Layout) -> Result<Vec<PathBuf>> {
    let mut folder = Folder::new(dir)?;
    folder.file("cells.csv", |out| cells(reader, out))?;
    match layout {
        Layout::Flat => folder.file("samples.csv", |out| {
            writeln!(out, "{CONFIGURATION},{SAMPLE}").map_err(writing)?;
            reader.run().cells.iter().try_for_each(|cell| samples(reader, cell, &configuration(cell), out))
        })?,
        Layout::PerCell => {
            for cell in reader.run().cells.iter().filter(|c| c.samples.is_some()) {
                folder.file(&format!("samples-{:05}.csv", cell.id), |out| {
                    writeln!(out, "{SAMPLE}").map_err(writing)?;
                    samples(reader, cell, "", out)
                })?;
            }
        }
    }
    Ok(folder.made)
}

/// Fields of [`CONFIGURATION`], with a comma behind the last.
fn configuration(cell: &Cell) -> String {
    let c = &cell.configuration;
    let mode = match c.size_mode {
        SizeMode::Message => "message",
        SizeMode::Each => "each",
        SizeMode::Total => "total",
    };
    let locality = match c.locality {
        Locality::Inter => "inter",
        Locality::Intra => "intra",
        Locality::Mixed => "mixed",
    };
    let start = match c.start {
        StartSync::None => "none",
        StartSync::Barrier => "barrier",
        StartSync::Window => "window",
    };
    let parameters: Vec<String> = c.parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
    format!(
        "{},{},{},{mode},{},{},{},{},{},{locality},{start},{},",
        cell.id,
        cell.launch,
        quoted(c.operation.as_str()),
        c.size_bytes,
        c.nodes,
        c.ranks_per_node,
        c.ranks,
        c.pairs,
        quoted(&parameters.join(";")),
    )
}

/// A text field, in quotes where it must be.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

fn samples(reader: &Reader, cell: &Cell, before: &str, out: &mut dyn Write) -> Result<()> {
    let Some(mut stream) = reader.samples(cell)? else { return Ok(()) };
    let mut batch = Vec::new();
    while stream.next_batch(&mut batch)? {
        batch.iter().try_for_each(|s| sample(s, before, out)).map_err(writing)?;
        batch.clear();
    }
    Ok(())
}

fn sample(s: &Sample, before: &str, out: &mut dyn Write) -> std::io::Result<()> {
    let Sample { rank, peer, repetition, start_ns, duration_ns, error_ns, flags } = s;
    writeln!(out, "{before}{rank},{peer},{repetition},{start_ns},{duration_ns},{error_ns},{flags}")
}

fn cells(reader: &Reader, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "{CONFIGURATION},{SUMMARY}").map_err(writing)?;
    for cell in &reader.run().cells {
        writeln!(out, "{}{}", configuration(cell), summary(cell)).map_err(writing)?;
    }
    Ok(())
}

/// Fields of [`SUMMARY`]; empty where not known.
fn summary(cell: &Cell) -> String {
    let text = |v: Option<f64>| v.map_or(String::new(), |v| v.to_string());
    let s = cell.summary.as_ref();
    let numbers = [
        s.map(|s| s.min_ns),
        s.map(|s| s.p1_ns),
        s.map(|s| s.p25_ns),
        s.map(|s| s.p50_ns),
        s.map(|s| s.p75_ns),
        s.map(|s| s.p99_ns),
        s.map(|s| s.p999_ns),
        s.map(|s| s.max_ns),
        s.map(|s| s.mean_ns),
        s.map(|s| s.stddev_ns),
        s.and_then(|s| s.median_low_ns),
        s.and_then(|s| s.median_high_ns),
        cell.outliers.as_ref().map(|o| o.boundary_ns),
    ];
    let count = whole(s.map(|s| s.count));
    let outliers = whole(cell.outliers.as_ref().map(|o| o.count));
    format!("{},{count},{},{outliers},{}", cell.measured, numbers.map(text).join(","), text(cell.clock_error_ns))
}

fn whole(v: Option<impl Display>) -> String {
    v.map_or(String::new(), |v| v.to_string())
}

//! CSV (RFC 4180): `cells.csv` with a row for each cell, and samples either in one flat
//! `samples.csv` that repeats the configuration in every row, or in a file for each cell,
//! `samples-00001.csv`, whose cell is named by its number.

use std::fmt::Display;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::{Folder, writing};
use crate::error::Result;
use crate::model::{Cell, Locality, Sample, SizeMode, StartSync, SummaryRecord};
use crate::reader::Reader;

/// How samples are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// All in `samples.csv`.
    Flat,
    /// A file for each cell.
    PerCell,
    /// No samples: `cells.csv` alone.
    CellsOnly,
}

/// How files are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// As they are.
    Plain,
    /// By gzip, with `.gz` behind their names.
    Gzip,
}

const CONFIGURATION: &str =
    "cell,launch,operation,size_mode,size_bytes,nodes,ranks_per_node,ranks,pairs,locality,start,parameters";
const SAMPLE: &str = "rank,peer,repetition,start_ns,duration_ns,error_ns,flags";
const SUMMARY: &str = "measured,count,min_ns,p1_ns,p25_ns,p50_ns,p75_ns,p99_ns,p999_ns,max_ns,mean_ns,stddev_ns,\
                       median_low_ns,median_high_ns,outlier_boundary_ns,outliers,clock_error_ns";
/// What some operations have besides: behind all others, so that those keep their places.
const BESIDES: &str = "span_count,span_min_ns,span_p1_ns,span_p25_ns,span_p50_ns,span_p75_ns,span_p99_ns,span_p999_ns,span_max_ns,\
                       span_mean_ns,span_stddev_ns,span_median_low_ns,span_median_high_ns,bandwidth_bytes,\
                       bandwidth_p1_bytes_per_s,bandwidth_p50_bytes_per_s,bandwidth_p99_bytes_per_s,bandwidth_mean_bytes_per_s,\
                       waits_count,waits_min_ns,waits_p1_ns,waits_p25_ns,waits_p50_ns,waits_p75_ns,waits_p99_ns,waits_p999_ns,\
                       waits_max_ns,waits_mean_ns,waits_stddev_ns,waits_median_low_ns,waits_median_high_ns";

/// Writes a run as CSV into a folder; returns the files.
///
/// # Errors
/// A samples file cannot be read, or the file system refused.
pub fn write(reader: &Reader, dir: &Path, layout: Layout, packing: Packing) -> Result<Vec<PathBuf>> {
    let mut folder = Folder::new(dir)?;
    file(&mut folder, "cells.csv", packing, |out| cells(reader, out))?;
    match layout {
        Layout::Flat => file(&mut folder, "samples.csv", packing, |out| {
            writeln!(out, "{CONFIGURATION},{SAMPLE}").map_err(writing)?;
            reader.run().cells.iter().try_for_each(|cell| samples(reader, cell, &configuration(cell), out))
        })?,
        Layout::PerCell => {
            for cell in reader.run().cells.iter().filter(|c| c.samples.is_some()) {
                file(&mut folder, &format!("samples-{:05}.csv", cell.id), packing, |out| {
                    writeln!(out, "{SAMPLE}").map_err(writing)?;
                    samples(reader, cell, "", out)
                })?;
            }
        }
        Layout::CellsOnly => {}
    }
    Ok(folder.made)
}

/// One file, packed or not.
fn file(folder: &mut Folder, name: &str, packing: Packing, f: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    match packing {
        Packing::Plain => folder.file(name, f),
        Packing::Gzip => folder.file(&format!("{name}.gz"), |out| {
            let mut packed = flate2::write::GzEncoder::new(out, flate2::Compression::default());
            f(&mut packed)?;
            packed.finish().map(drop).map_err(writing)
        }),
    }
}

/// What the files of samples will hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// Rows.
    pub rows: u64,
    /// Bytes before they are packed, from the first rows of each cell.
    pub bytes: u64,
}

/// How large the files of samples will be, from the first rows of each cell.
///
/// # Errors
/// A samples file cannot be read.
pub fn estimate(reader: &Reader, layout: Layout) -> Result<Estimate> {
    let mut sum = Estimate::default();
    if layout == Layout::CellsOnly {
        return Ok(sum);
    }
    for cell in &reader.run().cells {
        let (Some(known), Some(mut stream)) = (cell.samples.as_ref(), reader.samples(cell)?) else { continue };
        let mut batch = Vec::new();
        stream.next_batch(&mut batch)?;
        let before = if layout == Layout::Flat { configuration(cell) } else { String::new() };
        let mut text = Vec::new();
        batch.iter().take(LOOKED_AT).try_for_each(|s| sample(s, &before, &mut text)).map_err(writing)?;
        let looked_at = batch.len().clamp(1, LOOKED_AT) as f64;
        sum.rows += known.count;
        sum.bytes += (text.len() as f64 / looked_at * known.count as f64) as u64;
    }
    Ok(sum)
}

/// Rows of a cell by which its size is judged.
const LOOKED_AT: usize = 1000;

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
    writeln!(out, "{CONFIGURATION},{SUMMARY},{BESIDES}").map_err(writing)?;
    for cell in &reader.run().cells {
        writeln!(out, "{}{},{}", configuration(cell), summary(cell), besides(cell)).map_err(writing)?;
    }
    Ok(())
}

/// Fields of [`SUMMARY`]; empty where not known.
fn summary(cell: &Cell) -> String {
    let s = cell.summary.as_ref();
    let boundary = text(cell.outliers.as_ref().map(|o| o.boundary_ns));
    let outliers = whole(cell.outliers.as_ref().map(|o| o.count));
    format!("{},{},{boundary},{outliers},{}", cell.measured, statistics(s), text(cell.clock_error_ns))
}

/// Fields of [`BESIDES`]; empty where not known.
fn besides(cell: &Cell) -> String {
    let b = cell.bandwidth.as_ref();
    let numbers = [
        b.map(|b| b.bytes),
        b.map(|b| b.p1_bytes_per_s),
        b.map(|b| b.p50_bytes_per_s),
        b.map(|b| b.p99_bytes_per_s),
        b.map(|b| b.mean_bytes_per_s),
    ];
    let [span, waits] = [&cell.span, &cell.waits].map(|s| statistics(s.as_ref().map(|s| &s.summary)));
    format!("{span},{},{waits}", numbers.map(text).join(","))
}

/// Count, quantiles, mean and deviation, and the interval of the median.
fn statistics(s: Option<&SummaryRecord>) -> String {
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
    ];
    format!("{},{}", whole(s.map(|s| s.count)), numbers.map(text).join(","))
}

fn text(v: Option<f64>) -> String {
    v.map_or(String::new(), |v| v.to_string())
}

fn whole(v: Option<impl Display>) -> String {
    v.map_or(String::new(), |v| v.to_string())
}

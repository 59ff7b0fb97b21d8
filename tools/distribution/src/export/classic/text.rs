//! The five files as text: columns between blanks, comments after `#`, as gnuplot reads them.

use std::io::Write;

use super::Options;
use super::series::{Series, ms};
use crate::error::Result;
use crate::export::writing;
use crate::model::{Cell, Sample, Skew};

/// A time or, where it is not known, what gnuplot takes for missing.
fn time(t: f64) -> String {
    if t.is_finite() { format!("{t:.6}") } else { "?".to_owned() }
}

pub(super) fn summary(title: &str, all: &[Series], out: &mut dyn Write) -> Result<()> {
    let mut lines = || {
        writeln!(out, "# {title}")?;
        writeln!(out, "# times in ms; mean without outliers, mean_all with them")?;
        writeln!(out, "# size_bytes min mean mean_all max boundary samples outliers")?;
        for s in all.iter().filter(|s| s.rule_of_kept) {
            let (size, kept, count) = (s.size_bytes, s.kept, s.count);
            writeln!(out, "# {size}: mean, boundary and outliers are those of {kept} samples kept of {count}")?;
        }
        for s in all {
            let times = [s.min, s.mean, s.mean_all, s.max, s.boundary].map(time).join(" ");
            writeln!(out, "{} {times} {} {}", s.size_bytes, s.count, s.outlier_count)?;
        }
        Ok(())
    };
    lines().map_err(writing)
}

/// A block for each size, two blank lines between them, so that gnuplot's `index` finds it.
pub(super) fn histograms(title: &str, all: &[Series], out: &mut dyn Write) -> Result<()> {
    let mut lines = || {
        writeln!(out, "# {title}")?;
        writeln!(out, "# without outliers; empty bins are left out; density is of unit area, per ms")?;
        for (i, s) in all.iter().enumerate() {
            writeln!(out, "{}# size_bytes low_ms high_ms count density", if i == 0 { "" } else { "\n\n" })?;
            if (1..s.count).contains(&s.kept) {
                writeln!(out, "# of {} samples kept of {}, by chance", s.kept, s.count)?;
            }
            let sum: f64 = s.bins.iter().map(|b| b.2).sum();
            for (low, high, count) in &s.bins {
                let density = count / sum / (high - low);
                writeln!(out, "{} {low:.6} {high:.6} {count} {density:.6}", s.size_bytes)?;
            }
        }
        Ok(())
    };
    lines().map_err(writing)
}

pub(super) fn outliers(title: &str, all: &[Series], o: &Options, out: &mut dyn Write) -> Result<()> {
    let mut lines = || {
        writeln!(out, "# {title}")?;
        let (m, p) = all.first().map_or_else(|| o.rule(), |s| s.rule);
        writeln!(out, "# beyond {m} times quantile {p} of their size; start on the global clock")?;
        writeln!(out, "# size_bytes rank repetition start_ms time_ms")?;
        all.iter().try_for_each(|s| s.outliers.iter().try_for_each(|sample| point(s, sample, out)))
    };
    lines().map_err(writing)
}

pub(super) fn subsamples(title: &str, all: &[Series], o: &Options, out: &mut dyn Write) -> Result<()> {
    let mut lines = || {
        writeln!(out, "# {title}")?;
        writeln!(out, "# {} of each process, spread evenly", o.subsamples)?;
        writeln!(out, "# size_bytes rank repetition start_ms time_ms")?;
        all.iter().try_for_each(|s| s.subsamples.iter().try_for_each(|sample| point(s, sample, out)))
    };
    lines().map_err(writing)
}

/// Times within repetitions, of which a cell has a summary.
pub(super) struct Within {
    /// How the file's name ends.
    pub(super) ending: &'static str,
    /// What the times are.
    pub(super) what: &'static str,
    /// What there are so many of.
    pub(super) counted: &'static str,
    /// A cell's.
    pub(super) of: fn(&Cell) -> Option<&Skew>,
}

/// Of each cell that has them: not pooled, as launches record summaries.
pub(super) fn within(title: &str, within: &Within, all: &[&Cell], out: &mut dyn Write) -> Result<()> {
    let mut lines = || {
        writeln!(out, "# {title}")?;
        writeln!(out, "# {}, in ms; a line for each launch", within.what)?;
        writeln!(out, "# size_bytes launch {} min p1 median p99 max mean", within.counted)?;
        for (cell, skew) in all.iter().filter_map(|cell| Some((cell, (within.of)(cell)?))) {
            let s = &skew.summary;
            let times = [s.min_ns, s.p1_ns, s.p50_ns, s.p99_ns, s.max_ns, s.mean_ns].map(|ns| time(ms(ns))).join(" ");
            writeln!(out, "{} {} {} {times}", cell.configuration.size_bytes, cell.launch, s.count)?;
        }
        Ok(())
    };
    lines().map_err(writing)
}

pub(super) fn bandwidth(title: &str, all: &[&Cell], out: &mut dyn Write) -> Result<()> {
    let mut lines = || {
        writeln!(out, "# {title}")?;
        writeln!(out, "# bytes a second, of the bytes that one time is for; a line for each launch")?;
        writeln!(out, "# size_bytes launch bytes p1 median p99 mean")?;
        for (cell, b) in all.iter().filter_map(|cell| Some((cell, cell.bandwidth.as_ref()?))) {
            let rates = [b.p1_bytes_per_s, b.p50_bytes_per_s, b.p99_bytes_per_s, b.mean_bytes_per_s];
            let rates = rates.map(|rate| format!("{rate:.0}")).join(" ");
            writeln!(out, "{} {} {} {rates}", cell.configuration.size_bytes, cell.launch, b.bytes)?;
        }
        Ok(())
    };
    lines().map_err(writing)
}

fn point(s: &Series, sample: &Sample, out: &mut dyn Write) -> std::io::Result<()> {
    let start = ms(sample.start_ns as f64);
    let t = time(ms(sample.duration_ns));
    writeln!(out, "{} {} {} {start:.6} {t}", s.size_bytes, sample.rank, sample.repetition)
}

/// One page, three plots: times against size, distributions as slices over size, outliers on a log
/// scale.
pub(super) fn gnuplot(title: &str, root: &str, all: &[Series], out: &mut dyn Write) -> Result<()> {
    // Within gnuplot's single quotes only the quote itself is special.
    let title = title.replace('\'', "''");
    let last = all.len().saturating_sub(1);
    let some_outliers = all.iter().any(|s| !s.outliers.is_empty());
    let outliers = if some_outliers {
        format!("'{root}.outliers' using 1:5 with points pt 7 ps 0.3 title 'outliers', ")
    } else {
        String::new()
    };
    let some_subsamples = all.iter().any(|s| !s.subsamples.is_empty());
    let subsamples = if some_subsamples {
        format!("'{root}.subsamples' using 1:5 with dots title 'subsample', ")
    } else {
        String::new()
    };
    let script = format!(
        "# {title}
# gnuplot '{root}.gnu' writes '{root}.svg'
set terminal svg size 800,1200 background 'white'
set output '{root}.svg'
set datafile missing '?'
set multiplot layout 3,1 title '{title}' noenhanced
set xlabel 'size, bytes'
set ylabel 'time, ms'
set key top left
plot {subsamples}'{root}.summary' using 1:2 with linespoints title 'minimum', \\
     '{root}.summary' using 1:3 with linespoints title 'mean'
set ylabel 'time, ms'
set zlabel 'density'
set ticslevel 0
splot for [i=0:{last}] '{root}.histograms' index i using 1:(($2+$3)/2):5 with lines notitle
set ylabel 'time, ms'
set logscale y
plot {outliers}'{root}.summary' using 1:2 with lines title 'minimum', \\
     '{root}.summary' using 1:3 with lines title 'mean', \\
     '{root}.summary' using 1:6 with lines title 'boundary'
unset multiplot
"
    );
    out.write_all(script.as_bytes()).map_err(writing)
}

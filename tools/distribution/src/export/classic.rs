//! The five text files of MPIBench, `ROOT.{summary,histograms,outliers,subsamples,gnu}`, for each
//! operation and placement, and beside them `ROOT.{span,waits,bandwidth}` where a run records
//! these.
//!
//! ROOT is `machine.NxP.operation.INIT-INCR-MAX`, e.g. `perseus.4x1.bcast.0-128-1024`; sizes that
//! do not rise evenly give `INIT-xFACTOR-MAX` or `INIT-list-MAX`. Where runs differ in what ROOT
//! does not say (locality, pairs, start, parameters), it says that too, at its end. Samples of all
//! launches are pooled; those of the warm-up and of missed windows are left out. Times are in
//! milliseconds, as they were then.

mod series;
mod text;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{Folder, plain};
use crate::error::{Error, Result};
use crate::model::{Cell, Configuration, Locality, Run, StartSync};
use crate::reader::Reader;
use series::Series;

/// What could be chosen then, by environment variable.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Width of a histogram's bins, ms (`MPIBENCH_HIST_BIN`). `None`: chosen for each size from the
    /// variance (Scott's rule), because 0.05 ms, the default of then, holds all of a network of
    /// today in one bin.
    pub hist_bin_ms: Option<f64>,
    /// Quantile of the outlier rule (`MPIBENCH_OUTLIER_PERCENTILE`). `None`, if the next one is
    /// too: the boundary that the run records, which its report shows; where there is none, 0.99.
    pub outlier_percentile: Option<f64>,
    /// Samples beyond so many times that quantile are outliers
    /// (`MPIBENCH_OUTLIER_PERCENTILE_MULTIPLIER`). `None`: 5, or as recorded.
    pub outlier_multiplier: Option<f64>,
    /// Raw samples of each process in `ROOT.subsamples` (`MPIBENCH_SUBSAMPLES`).
    pub subsamples: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { hist_bin_ms: None, outlier_percentile: None, outlier_multiplier: None, subsamples: 1 }
    }
}

impl Options {
    /// The defaults with what the variables say; `lookup` gives a variable's value, e.g.
    /// `|name| std::env::var(name).ok()`.
    ///
    /// # Errors
    /// A value is not a number or out of range.
    pub fn from_variables(lookup: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let number = |name: &str, expected: &str, ok: fn(f64) -> bool| -> Result<Option<f64>> {
            let Some(text) = lookup(name) else { return Ok(None) };
            let value = text.trim().parse::<f64>().ok().filter(|&v| v.is_finite() && ok(v));
            let problem = format!("`{text}` is not {expected}");
            value.map(Some).ok_or_else(|| Error::Option { name: name.to_owned(), problem })
        };
        let default = Self::default();
        let above_zero = |v| v > 0.0;
        let hist_bin_ms = number("MPIBENCH_HIST_BIN", "a number of milliseconds above 0", above_zero)?;
        let percentile =
            number("MPIBENCH_OUTLIER_PERCENTILE", "a number above 0 and up to 1", |v| v > 0.0 && v <= 1.0)?;
        let multiplier = number("MPIBENCH_OUTLIER_PERCENTILE_MULTIPLIER", "a number above 0", above_zero)?;
        let whole = |v: f64| v >= 0.0 && v.fract() == 0.0 && v < 1e9;
        let subsamples = number("MPIBENCH_SUBSAMPLES", "a whole number", whole)?;
        let subsamples = subsamples.map_or(default.subsamples, |v| v as usize);
        Ok(Self { hist_bin_ms, outlier_percentile: percentile, outlier_multiplier: multiplier, subsamples })
    }

    /// Multiplier and quantile where the run records none, or is not asked.
    fn rule(&self) -> (f64, f64) {
        (self.outlier_multiplier.unwrap_or(5.0), self.outlier_percentile.unwrap_or(0.99))
    }
}

/// Writes the files into a folder; returns them.
///
/// # Errors
/// A samples file cannot be read, or the file system refused.
pub fn write(reader: &Reader, dir: &Path, options: &Options) -> Result<Vec<PathBuf>> {
    let mut folder = Folder::new(dir)?;
    for (root, sizes) in roots(reader.run()) {
        let title = title(reader.run(), sizes[0].1);
        let series = sizes.iter().map(|(size, configuration)| Series::read(reader, *size, configuration, options));
        let series: Vec<Series> = series.collect::<Result<_>>()?;
        folder.file(&format!("{root}.summary"), |out| text::summary(&title, &series, out))?;
        folder.file(&format!("{root}.histograms"), |out| text::histograms(&title, &series, out))?;
        folder.file(&format!("{root}.outliers"), |out| text::outliers(&title, &series, options, out))?;
        folder.file(&format!("{root}.subsamples"), |out| text::subsamples(&title, &series, options, out))?;
        folder.file(&format!("{root}.gnu"), |out| text::gnuplot(&title, &root, &series, out))?;
        let all: Vec<&Cell> = sizes.iter().flat_map(|(_, configuration)| of(reader.run(), configuration)).collect();
        for within in &WITHIN {
            if all.iter().any(|cell| (within.of)(cell).is_some()) {
                folder.file(&format!("{root}.{}", within.ending), |out| text::within(&title, within, &all, out))?;
            }
        }
        if all.iter().any(|cell| cell.bandwidth.is_some()) {
            folder.file(&format!("{root}.bandwidth"), |out| text::bandwidth(&title, &all, out))?;
        }
    }
    Ok(folder.made)
}

/// The files of times within repetitions.
const WITHIN: [text::Within; 2] = [
    text::Within {
        ending: "span",
        what: "last end minus first start of a repetition",
        counted: "repetitions",
        of: |cell| cell.span.as_ref(),
    },
    text::Within {
        ending: "waits",
        what: "how long an answer was waited for",
        counted: "waits",
        of: |cell| cell.waits.as_ref(),
    },
];

/// The cells of a configuration, by launch.
fn of<'a>(run: &'a Run, configuration: &Configuration) -> Vec<&'a Cell> {
    let mut cells: Vec<&Cell> = run.cells.iter().filter(|cell| cell.configuration == *configuration).collect();
    cells.sort_by_key(|cell| cell.launch);
    cells
}

fn title(run: &Run, c: &Configuration) -> String {
    let what = format!("{}, {}x{} {}", run.machine, c.nodes, c.ranks_per_node, c.label());
    let title = match &run.title {
        Some(t) => format!("{t}: {what}"),
        None => what,
    };
    title.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

type Sizes<'a> = Vec<(u64, &'a Configuration)>;

/// Names, and the configurations of each in the order of their sizes.
fn roots(run: &Run) -> Vec<(String, Sizes<'_>)> {
    // All but the size; then the size. The order of configurations makes the order of files.
    let mut groups: BTreeMap<Configuration, BTreeMap<u64, &Configuration>> = BTreeMap::new();
    for cell in &run.cells {
        let key = Configuration { size_bytes: 0, ..cell.configuration.clone() };
        groups.entry(key).or_default().insert(cell.configuration.size_bytes, &cell.configuration);
    }
    let keys: Vec<&Configuration> = groups.keys().collect();
    let name = |key: &Configuration, sizes: &[u64]| {
        let c = format!("{}x{}.{}", key.nodes, key.ranks_per_node, key.label());
        plain(&format!("{}.{c}.{}{}", run.machine, range(sizes), distinction(key, &keys)))
    };
    let named = groups.iter().map(|(key, sizes)| {
        let all: Vec<u64> = sizes.keys().copied().collect();
        (name(key, &all), sizes.iter().map(|(s, c)| (*s, *c)).collect())
    });
    named.collect()
}

/// `INIT-INCR-MAX`, as MPIBench's `-size` takes it.
fn range(sizes: &[u64]) -> String {
    let (first, last) = (sizes[0], sizes[sizes.len() - 1]);
    let step = sizes.get(1).map_or(0, |second| second - first);
    if sizes.windows(2).all(|w| w[1] - w[0] == step) {
        return format!("{first}-{step}-{last}");
    }
    let factor = sizes[1].checked_div(first).unwrap_or(0);
    if factor > 1 && sizes.windows(2).all(|w| w[0].checked_mul(factor) == Some(w[1])) {
        return format!("{first}-x{factor}-{last}");
    }
    format!("{first}-list-{last}")
}

/// What tells a configuration from others of the same operation and placement.
fn distinction(key: &Configuration, all: &[&Configuration]) -> String {
    let alike =
        |k: &&&Configuration| (k.label(), k.nodes, k.ranks_per_node) == (key.label(), key.nodes, key.ranks_per_node);
    let alike: Vec<&&Configuration> = all.iter().filter(alike).collect();
    let mut out = String::new();
    let mut say = |differs: bool, what: String| {
        if differs {
            out.push('.');
            out.push_str(&what);
        }
    };
    let locality = match key.locality {
        Locality::Inter => "inter",
        Locality::Intra => "intra",
        Locality::Mixed => "mixed",
    };
    let start = match key.start {
        StartSync::None => "free",
        StartSync::Barrier => "barrier",
        StartSync::Window => "window",
    };
    say(alike.iter().any(|k| k.ranks != key.ranks), format!("ranks{}", key.ranks));
    say(alike.iter().any(|k| k.locality != key.locality), locality.to_owned());
    say(alike.iter().any(|k| k.pairs != key.pairs), format!("pairs{}", key.pairs));
    say(alike.iter().any(|k| k.start != key.start), start.to_owned());
    let parameters: Vec<String> = key.parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
    say(alike.iter().any(|k| k.parameters != key.parameters), parameters.join("+"));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_named_as_they_are_typed() {
        assert_eq!(range(&[0, 128, 256]), "0-128-256");
        assert_eq!(range(&[1, 2, 4, 8]), "1-x2-8");
        assert_eq!(range(&[0, 1, 2, 4]), "0-list-4");
        assert_eq!(range(&[64]), "64-0-64");
        assert_eq!(range(&[1, u64::MAX - 1, u64::MAX]), format!("1-list-{}", u64::MAX));
    }

    #[test]
    fn variables_are_read_and_wrong_ones_named() {
        let options = Options::from_variables(|name| match name {
            "MPIBENCH_HIST_BIN" => Some("0.05".to_owned()),
            "MPIBENCH_SUBSAMPLES" => Some("3".to_owned()),
            _ => None,
        });
        let expected = Options { hist_bin_ms: Some(0.05), subsamples: 3, ..Options::default() };
        assert_eq!(options.expect("good values"), expected);
        for (variable, value) in [
            ("MPIBENCH_HIST_BIN", "0"),
            ("MPIBENCH_HIST_BIN", "wide"),
            ("MPIBENCH_OUTLIER_PERCENTILE", "99"),
            ("MPIBENCH_OUTLIER_PERCENTILE_MULTIPLIER", "NaN"),
            ("MPIBENCH_SUBSAMPLES", "1.5"),
        ] {
            let wrong = Options::from_variables(|name| (name == variable).then(|| value.to_owned()));
            let message = wrong.expect_err("a bad value").to_string();
            assert!(message.starts_with(variable) && message.contains(value), "{message}");
        }
    }
}

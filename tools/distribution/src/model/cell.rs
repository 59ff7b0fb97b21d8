//! A cell: one operation in one configuration, in one launch, and what came out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Carried, Family, Locality, Operation, SizeMode, StartSync, Warning};

/// What is measured: cells of several launches with equal configurations repeat each other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Configuration {
    /// The operation.
    pub operation: Operation,
    /// Size; what it counts says `size_mode`.
    pub size_bytes: u64,
    /// What the size counts.
    #[serde(default)]
    pub size_mode: SizeMode,
    /// Nodes that take part (n of n x p).
    pub nodes: u32,
    /// Ranks on each of them (p of n x p).
    pub ranks_per_node: u32,
    /// Ranks that take part.
    pub ranks: u32,
    /// Contention level: messages in flight at once in a point-to-point operation (pairs), 0 for a
    /// collective.
    pub pairs: u32,
    /// Where partners are.
    #[serde(default)]
    pub locality: Locality,
    /// How repetitions are started.
    #[serde(default)]
    pub start: StartSync,
    /// Other axes by name, e.g. `window` of message-rate, `iterations` of a kernel.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
}

impl Configuration {
    /// One pair of ranks on two nodes, and nothing particular besides.
    #[must_use]
    pub fn pair(operation: impl Into<Operation>, size_bytes: u64) -> Self {
        Self {
            operation: operation.into(),
            size_bytes,
            size_mode: SizeMode::default(),
            nodes: 2,
            ranks_per_node: 1,
            ranks: 2,
            pairs: 1,
            locality: Locality::default(),
            start: StartSync::default(),
            parameters: BTreeMap::new(),
        }
    }

    /// Operation with its size mode, as people type it: `gather-each`, `bcast`.
    #[must_use]
    pub fn label(&self) -> String {
        match self.size_mode {
            SizeMode::Message => self.operation.0.clone(),
            SizeMode::Each => format!("{}-each", self.operation),
            SizeMode::Total => format!("{}-total", self.operation),
        }
    }
}

/// One operation in one configuration, in one launch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Unique in the run.
    pub id: u32,
    /// [`super::Launch::number`] of its launch.
    #[serde(default)]
    pub launch: u32,
    /// What was measured.
    pub configuration: Configuration,
    /// When it began, on the launch's global clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_ns: Option<i64>,
    /// How long the cell took as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elapsed_ns: Option<i64>,
    /// Repetitions made, warm-up included.
    #[serde(default)]
    pub repetitions: u64,
    /// Repetitions at the beginning that count as warm-up.
    #[serde(default)]
    pub warm_up: u64,
    /// Repetitions left out because some process came after the agreed start.
    #[serde(default)]
    pub missed_windows: u64,
    /// Distance of agreed starts, where `start` is `window`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_ns: Option<f64>,
    /// Why it ended: `repetitions`, `time`, `confidence`. Open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_by: Option<String>,
    /// Samples taken at all ranks, warm-up and missed windows included. More than
    /// [`SamplesFile::count`] if a reservoir kept some.
    #[serde(default)]
    pub measured: u64,
    /// The largest error bound of a duration due to the clocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_error_ns: Option<f64>,
    /// The samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<SamplesFile>,
    /// Statistics of all that was measured and counts (not only of what the reservoir kept).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<SummaryRecord>,
    /// Histogram of all that was measured and counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub histogram: Option<HistogramRecord>,
    /// How the samples that count depend on each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub independence: Option<Independence>,
    /// Outliers: flagged, never dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outliers: Option<Outliers>,
    /// What carried its messages, as it was counted; absent: nobody counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carried: Option<Carried>,
    /// How far apart the processes started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skew: Option<Skew>,
    /// From the first start of all processes to the last end, of an operation of all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span: Option<Skew>,
    /// Bytes a second, of an operation that is measured for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<Bandwidth>,
    /// How much of an exchange went on while its ranks computed, of an operation that is measured
    /// for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap: Option<Overlap>,
    /// How long answers were waited for, of an operation whose repetitions hold many: those of all
    /// ranks in the repetitions that count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<Skew>,
    /// Processor time that the ranks' processes had for all repetitions; absent: nobody asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ns: Option<f64>,
    /// Of a server and its clients: how even it served them, and at what cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Service>,
    /// Ranks that changed their processor while a batch of repetitions was measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moved: Vec<Moved>,
    /// Fitted distributions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fits: Vec<FitRecord>,
    /// Warnings about this cell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
}

impl Cell {
    /// A cell of which nothing is known yet.
    #[must_use]
    pub fn new(id: u32, launch: u32, configuration: Configuration) -> Self {
        Self {
            id,
            launch,
            configuration,
            started_ns: None,
            elapsed_ns: None,
            repetitions: 0,
            warm_up: 0,
            missed_windows: 0,
            window_ns: None,
            stopped_by: None,
            measured: 0,
            clock_error_ns: None,
            samples: None,
            summary: None,
            histogram: None,
            independence: None,
            outliers: None,
            carried: None,
            skew: None,
            span: None,
            bandwidth: None,
            overlap: None,
            waits: None,
            cpu_ns: None,
            service: None,
            moved: Vec::new(),
            fits: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// The fit that was chosen as the best.
    #[must_use]
    pub fn chosen_fit(&self) -> Option<&FitRecord> {
        self.fits.iter().find(|f| f.chosen)
    }
}

/// How even a server served its clients, and at what cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Service {
    /// Rounds that count; 0 in an open loop.
    pub rounds: u64,
    /// The longest time of a round over its shortest: median over rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread_p50: Option<f64>,
    /// The greatest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread_max: Option<f64>,
    /// Jain's index of the clients' rates in a round: median over rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jain_p50: Option<f64>,
    /// The least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jain_min: Option<f64>,
    /// Jain's index of the clients' rates over the cell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jain_clients: Option<f64>,
    /// Answers a second while requests were under way.
    pub answers_per_s: f64,
    /// Processor time of the server's process for each request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_cpu_ns: Option<f64>,
    /// The most of its memory that was resident.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_peak_bytes: Option<u64>,
}

/// A file of samples. The writer fills this in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SamplesFile {
    /// Path from the run's folder, with `/`.
    pub path: String,
    /// Rows.
    pub count: u64,
    /// Length of the file; absent: not checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// CRC-32 (ISO-HDLC, as zlib's and gzip's) of the file; absent: not checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crc32: Option<u32>,
}

/// Statistics of durations. Quantiles are of the samples themselves (type 1: no interpolation
/// between samples need be assumed; the specification says which).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SummaryRecord {
    /// Samples that went in.
    pub count: u64,
    /// Smallest.
    pub min_ns: f64,
    /// Quantile 0.01.
    pub p1_ns: f64,
    /// Quantile 0.25.
    pub p25_ns: f64,
    /// Median.
    pub p50_ns: f64,
    /// Quantile 0.75.
    pub p75_ns: f64,
    /// Quantile 0.99.
    pub p99_ns: f64,
    /// Quantile 0.999.
    pub p999_ns: f64,
    /// Largest.
    pub max_ns: f64,
    /// Arithmetic mean.
    pub mean_ns: f64,
    /// Standard deviation (n - 1); 0 for one sample.
    pub stddev_ns: f64,
    /// Confidence interval of the median, without assumptions on its shape: lower end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub median_low_ns: Option<f64>,
    /// Its upper end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub median_high_ns: Option<f64>,
    /// Its level, e.g. 0.95.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub median_level: Option<f64>,
}

/// A histogram of durations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HistogramRecord {
    /// An HDR histogram in its own encoding: what `weir bench` writes.
    Hdr(HdrHistogram),
    /// Plain bins: what people write.
    Bins(BinsHistogram),
}

/// An HDR histogram.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HdrHistogram {
    /// Values in it.
    pub count: u64,
    /// What its value 1 stands for.
    pub unit_ns: f64,
    /// Decimal digits that are kept of a value.
    pub significant_digits: u8,
    /// HdrHistogram's encoding V2, deflated, in base 64: the text its other implementations read.
    pub v2_deflate_base64: String,
}

/// Plain bins.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BinsHistogram {
    /// Rising, without overlap.
    pub bins: Vec<HistogramBin>,
}

/// A bin: durations from `low_ns` to below `high_ns`, spread evenly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HistogramBin {
    /// Lower edge, included.
    pub low_ns: f64,
    /// Upper edge, excluded.
    pub high_ns: f64,
    /// How many, or any weight.
    pub count: f64,
}

/// The outlier rule and what it found: beyond `multiplier` times the quantile `percentile`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outliers {
    /// Quantile, e.g. 0.99.
    pub percentile: f64,
    /// Its factor, e.g. 5.
    pub multiplier: f64,
    /// Durations above are outliers.
    pub boundary_ns: f64,
    /// How many of those that count.
    pub count: u64,
}

/// How samples depend on each other: of the series of repetitions, each with its mean over ranks,
/// and of all samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Independence {
    /// Repetitions looked at, the first of those that count.
    pub repetitions: u64,
    /// Autocorrelation of the ranks (places in order) of the repetitions' means, at lags 1, 2, ...
    pub autocorrelation: Vec<f64>,
    /// Runs test above and below the median: probability of so few or so many runs if repetitions
    /// were independent.
    pub runs_p: f64,
    /// Ljung-Box test: probability of such autocorrelations if repetitions were independent.
    pub ljung_box_p: f64,
    /// How many independent samples all that count are worth for their median.
    pub effective_count: f64,
}

/// Bytes a second, from the quantiles of the times: the least bandwidth is of the longest time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bandwidth {
    /// Bytes that one duration is for: of a message, or of all messages to the first rank.
    pub bytes: f64,
    /// The least: of the longest time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_bytes_per_s: Option<f64>,
    /// Quantile 0.01.
    pub p1_bytes_per_s: f64,
    /// Median.
    pub p50_bytes_per_s: f64,
    /// Quantile 0.99.
    pub p99_bytes_per_s: f64,
    /// All bytes over all time.
    pub mean_bytes_per_s: f64,
}

/// How much of an exchange went on while its ranks computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Overlap {
    /// What the exchange took alone: half of the median of two in turn.
    pub alone_ns: f64,
    /// How long a rank computed between its begin and its wait.
    pub compute_ns: f64,
    /// What was saved of both one after the other, in per cent of the shorter of them, by the
    /// median of the times: 100 where one of them costs nothing extra, 0 where they add up, less
    /// where they disturb each other.
    pub percent: f64,
}

impl Overlap {
    /// That of an exchange and as much computing, which together took so long.
    #[must_use]
    pub fn of(alone_ns: f64, compute_ns: f64, together_ns: f64) -> Overlap {
        // (More would be an error of the clock.)
        let percent = (100.0 * (alone_ns + compute_ns - together_ns) / alone_ns.min(compute_ns)).min(100.0);
        Overlap { alone_ns, compute_ns, percent }
    }
}

/// A rank that changed its processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// Which.
    pub rank: u32,
    /// In how many batches, each judged by where it ran before and after.
    pub batches: u64,
}

/// How far apart two instants of a repetition are, over the repetitions that count: the last start
/// from the first, or the last end from the first start; or the waits for answers in them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Skew {
    /// Statistics over repetitions, or over waits.
    pub summary: SummaryRecord,
    /// Their histogram.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub histogram: Option<HistogramRecord>,
}

/// A fitted distribution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FitRecord {
    /// Family.
    pub family: Family,
    /// Shift: the family describes durations minus this.
    pub location_ns: f64,
    /// Parameters by name (specification, "Families").
    pub parameters: BTreeMap<String, f64>,
    /// Samples the fit was made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
    /// Log-likelihood of those, durations in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_likelihood: Option<f64>,
    /// Tests of the fit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tests: Vec<TestRecord>,
    /// The location ended at a bound of its search: nearer to or farther from the least sample
    /// might fit better.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_bound: bool,
    /// The best of its cell: at most one.
    #[serde(default)]
    pub chosen: bool,
    /// Why it was chosen, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A test of goodness of fit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TestRecord {
    /// `ks` (Kolmogorov-Smirnov), `ad` (Anderson-Darling), `chi2` (Pearson's chi-square). Open.
    pub test: String,
    /// Its statistic.
    pub statistic: f64,
    /// Probability of a statistic as large if the fit were true; absent if not known for this
    /// family.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p_value: Option<f64>,
    /// Samples the test looked at (tests reject anything when given too many).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
    /// How the p-value was found: `table` (parameters as if given beforehand), `upper-bound` (the
    /// same although they were fitted to the tested samples: the true one is at most that),
    /// `bootstrap` (samples drawn from the fit and fitted anew). Open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Samples drawn, if by bootstrap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicates: Option<u32>,
}

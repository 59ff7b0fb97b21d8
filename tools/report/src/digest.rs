//! A run without its samples: what is kept of each operation, size and level, small enough to draw
//! and to compare.

use std::collections::BTreeMap;
use std::path::PathBuf;

use weir_distribution::{
    Bandwidth, Configuration, FitRecord, Locality, Moved, Overlap, Run, Service, SizeMode, StartSync, SummaryRecord,
    Warning,
};
use weir_stats::Interval;

use crate::curve::Curve;

/// How much of something was in flight at once: the second axis beside size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Level {
    /// Messages in flight; 0 for a collective.
    pub pairs: u32,
    /// Ranks that take part.
    pub ranks: u32,
    /// Nodes.
    pub nodes: u32,
    /// Ranks on each.
    pub ranks_per_node: u32,
    /// Threads of each rank, where it was measured between them; else 0.
    pub threads: u32,
}

/// The parameter that is a level.
const THREADS: &str = "threads";

impl Level {
    /// That of a cell.
    #[must_use]
    pub fn of(configuration: &Configuration) -> Self {
        let Configuration { pairs, ranks, nodes, ranks_per_node, .. } = *configuration;
        let threads = configuration.parameters.get(THREADS).and_then(|count| count.parse().ok()).unwrap_or(0);
        Self { pairs, ranks, nodes, ranks_per_node, threads }
    }

    /// `8 pairs, 4 × 4` for point-to-point operations, `1 pair of 4 threads, 2 × 1` between
    /// threads, `4 × 2` (nodes by ranks on each) for collectives.
    #[must_use]
    pub fn label(&self) -> String {
        let placement = format!("{} × {}", self.nodes, self.ranks_per_node);
        let threads = match self.threads {
            0 => String::new(),
            1 => " of 1 thread".to_owned(),
            n => format!(" of {n} threads"),
        };
        match self.pairs {
            0 => placement,
            1 => format!("1 pair{threads}, {placement}"),
            n => format!("{n} pairs{threads}, {placement}"),
        }
    }

    /// The same in few letters, for axes; `1·4` is one pair of four threads.
    #[must_use]
    pub fn short(&self) -> String {
        match self.pairs {
            0 => format!("{}×{}", self.nodes, self.ranks_per_node),
            n if self.threads > 0 => format!("{n}·{} ({}×{})", self.threads, self.nodes, self.ranks_per_node),
            n => format!("{n} ({}×{})", self.nodes, self.ranks_per_node),
        }
    }
}

/// Everything that tells operations apart but size and level.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Operation with its size mode, e.g. `gather-each`.
    pub operation: String,
    /// Where partners are.
    pub locality: Locality,
    /// How repetitions are started.
    pub start: StartSync,
    /// Other axes.
    pub parameters: BTreeMap<String, String>,
}

impl Key {
    /// That of a cell.
    #[must_use]
    pub fn of(configuration: &Configuration) -> Self {
        Self {
            operation: configuration.label(),
            locality: configuration.locality,
            start: configuration.start,
            parameters: configuration.parameters.clone().into_iter().filter(|(name, _)| name != THREADS).collect(),
        }
    }

    /// What distinguishes it beside the operation: `within nodes, barrier start, window 64`.
    #[must_use]
    pub fn qualities(&self) -> String {
        let locality = match self.locality {
            Locality::Inter => "between nodes",
            Locality::Intra => "within nodes",
            Locality::Mixed => "between and within nodes",
        };
        let start = match self.start {
            StartSync::None => "free running",
            StartSync::Barrier => "started by barrier",
            StartSync::Window => "started by window",
        };
        let mut text = format!("{locality}, {start}");
        for (name, value) in &self.parameters {
            text += &format!(", {} {value}", name.replace('_', " "));
        }
        text
    }
}

/// One operation in one configuration, over all launches.
#[derive(Debug, Clone)]
pub struct Point {
    /// Size in bytes.
    pub size_bytes: u64,
    /// What the size counts.
    pub size_mode: SizeMode,
    /// Launches that measured it.
    pub launches: u32,
    /// Statistics: of one launch its summary; of several the medians of their statistics, with the
    /// least minimum, the greatest maximum, and an interval that holds those of all launches.
    pub row: SummaryRecord,
    /// Median of each launch.
    pub launch_medians: Vec<f64>,
    /// Its confidence interval, where known.
    pub launch_intervals: Vec<Option<Interval>>,
    /// How many independent samples all are worth for their medians, where known.
    pub effective: Option<f64>,
    /// The greatest autocorrelation of one repetition with the next, of all launches, where known.
    pub lag1: Option<f64>,
    /// Outliers: boundary (of the first launch) and number.
    pub outliers: Option<(f64, u64)>,
    /// Largest bound on a duration's error due to clocks.
    pub clock_error_ns: f64,
    /// Samples read that count, and those set apart as warm-up or missed window.
    pub drawn: u64,
    /// Samples set apart.
    pub excluded: u64,
    /// Their distribution.
    pub curve: Curve,
    /// How far apart processes started: last start minus first.
    pub skew: Between,
    /// How long a repetition took as a whole, of an operation of all ranks: last end minus first
    /// start.
    pub span: Between,
    /// How long answers were waited for, where a repetition holds many.
    pub waits: Between,
    /// Bytes a second as the run records them; of several launches the median of each number.
    pub recorded_bandwidth: Option<Bandwidth>,
    /// How much of an exchange went on while its ranks computed; of several launches the median of
    /// each number.
    pub overlap: Option<Overlap>,
    /// Ranks that changed their processor during a batch of repetitions, with the batches of all
    /// launches.
    pub moved: Vec<Moved>,
    /// Repetitions left out because a process came after the agreed start.
    pub missed: u64,
    /// Fits of the first launch that has some.
    pub fits: Vec<FitRecord>,
    /// Smallest step of a duration that the clock can tell; 0 if not known.
    pub tick_ns: f64,
    /// How a server served its clients, of each launch that tells it.
    pub services: Vec<Service>,
}

/// How far apart two instants of a repetition are, over the repetitions that count.
#[derive(Debug, Clone, Default)]
pub struct Between {
    /// Statistics, where some were recorded; of several launches as in [`Point::row`].
    pub row: Option<SummaryRecord>,
    /// Their distribution, where one was recorded.
    pub curve: Curve,
}

/// A sample far beyond the others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stray {
    /// Launch.
    pub launch: u32,
    /// Start on the launch's clock.
    pub start_ns: i64,
    /// Who timed it.
    pub rank: u32,
    /// How long it took.
    pub duration_ns: f64,
    /// How many times the median of its point that is.
    pub factor: f64,
    /// Whether its rank or the partner changed the processor in that batch of repetitions.
    pub moved: bool,
}

/// One operation at all its sizes and levels.
#[derive(Debug, Clone)]
pub struct Profile {
    /// What it is.
    pub key: Key,
    /// Title: the operation, with what is needed to tell it from others of the run.
    pub title: String,
    /// Levels, from least to most in flight.
    pub levels: Vec<Level>,
    /// Sizes of all levels, ascending.
    pub sizes: Vec<u64>,
    /// What was measured, by (index of level, size).
    pub points: BTreeMap<(usize, u64), Point>,
    /// Samples far beyond the others, the largest where there are too many.
    pub strays: Vec<Stray>,
    /// How many there were in all.
    pub stray_count: u64,
    /// Its cells on the time line.
    pub periods: Vec<Period>,
}

impl Profile {
    /// The points of a level, by size.
    pub fn at_level(&self, level: usize) -> impl Iterator<Item = &Point> + Clone {
        self.points.range((level, 0)..=(level, u64::MAX)).map(|(_, point)| point)
    }

    /// What the first number of its levels counts, as [`Level::short`] writes them; nothing where
    /// they are placements only.
    #[must_use]
    pub fn counted(&self) -> Option<&'static str> {
        let any = |is: fn(&Level) -> bool| self.levels.iter().any(is);
        match (any(|level| level.pairs > 0), any(|level| level.threads > 0)) {
            (false, _) => None,
            (true, false) => Some("pairs"),
            (true, true) => Some("pairs·threads"),
        }
    }
}

/// When a cell ran, how good the clocks were meanwhile, and how far apart processes started.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Period {
    /// Launch.
    pub launch: u32,
    /// Begin and end on the launch's clock.
    pub from_ns: i64,
    /// End.
    pub to_ns: i64,
    /// Largest and median bound on the error of a duration.
    pub error_ns: (f64, f64),
    /// Median of the skew of starts, and its 99th percentile where repetitions are enough for one.
    pub skew_ns: Option<(f64, Option<f64>)>,
}

/// A run without its samples.
#[derive(Debug, Clone)]
pub struct Digest {
    /// The metadata as read.
    pub run: Run,
    /// A name for the run: its folder's.
    pub name: String,
    /// Where it lies, as it was named, if it was read from a folder.
    pub folder: Option<PathBuf>,
    /// Operations by family, then by name ([`order`]).
    pub profiles: Vec<Profile>,
    /// Cells on the time line.
    pub periods: Vec<Period>,
    /// All warnings: of the run, its launches, its cells, and what this pass found.
    pub warnings: Vec<Warning>,
    /// Samples read.
    pub samples: u64,
}

impl Point {
    /// A point of which nothing is known yet.
    #[must_use]
    pub fn empty(configuration: &Configuration) -> Self {
        Self {
            size_bytes: configuration.size_bytes,
            size_mode: configuration.size_mode,
            launches: 0,
            row: SummaryRecord::default(),
            launch_medians: Vec::new(),
            launch_intervals: Vec::new(),
            effective: None,
            lag1: None,
            outliers: None,
            clock_error_ns: 0.0,
            drawn: 0,
            excluded: 0,
            curve: Curve::default(),
            skew: Between::default(),
            span: Between::default(),
            waits: Between::default(),
            recorded_bandwidth: None,
            overlap: None,
            moved: Vec::new(),
            missed: 0,
            fits: Vec::new(),
            tick_ns: 0.0,
            services: Vec::new(),
        }
    }

    /// Whether anything is known of it.
    #[must_use]
    pub fn has_row(&self) -> bool {
        self.row.count > 0
    }

    /// Bytes a second: as recorded, or the size (of one message, or one process' buffer) over
    /// quantiles of the time, of which the least bandwidth has the longest.
    #[must_use]
    pub fn bandwidth(&self) -> Option<Bandwidth> {
        let (bytes, row) = (self.size_bytes as f64, &self.row);
        let over = |ns: f64| bytes / ns * 1e9;
        // A time that is not known, or that the clocks made nothing of, tells no bandwidth: the
        // median's stands for it.
        let or_median = |ns: f64| over(if ns > 0.0 { ns } else { row.p50_ns });
        let computed = || Bandwidth {
            bytes,
            min_bytes_per_s: None,
            p1_bytes_per_s: or_median(row.p99_ns.max(row.p50_ns)),
            p50_bytes_per_s: over(row.p50_ns),
            p99_bytes_per_s: or_median(row.p1_ns),
            mean_bytes_per_s: or_median(row.mean_ns),
        };
        self.recorded_bandwidth.or_else(|| (self.size_bytes > 0 && row.p50_ns > 0.0).then(computed))
    }

    /// Whether its samples are worth less than half of their number.
    #[must_use]
    pub fn is_dependent(&self) -> bool {
        self.effective.is_some_and(|e| e < 0.5 * self.row.count as f64)
    }

    /// The chosen fit.
    #[must_use]
    pub fn chosen_fit(&self) -> Option<&FitRecord> {
        self.fits.iter().find(|f| f.chosen)
    }
}

impl Profile {
    /// An operation of which nothing is known yet.
    #[must_use]
    pub fn empty(key: Key) -> Self {
        Self {
            key,
            title: String::new(),
            levels: Vec::new(),
            sizes: Vec::new(),
            points: BTreeMap::new(),
            strays: Vec::new(),
            stray_count: 0,
            periods: Vec::new(),
        }
    }

    /// Puts levels, which were numbered as they appeared, in order.
    pub fn put_in_order(&mut self) {
        let mut levels = self.levels.clone();
        levels.sort_unstable();
        let place = |old: usize| levels.iter().position(|l| *l == self.levels[old]).unwrap_or(old);
        self.points = std::mem::take(&mut self.points).into_iter().map(|((l, s), p)| ((place(l), s), p)).collect();
        self.levels = levels;
        self.sizes = self.points.keys().map(|(_, size)| *size).collect();
        self.sizes.sort_unstable();
        self.sizes.dedup();
        self.strays.sort_by(|a, b| b.duration_ns.total_cmp(&a.duration_ns));
    }
}

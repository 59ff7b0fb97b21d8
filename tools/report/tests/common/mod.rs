//! Runs that were never measured: for tests, examples and benchmarks.

#![allow(dead_code)] // each user takes some of it

use std::path::Path;

use weir_distribution::{
    Cell, ClockInfo, Configuration, Existing, Family, FitRecord, HdrHistogram, HistogramRecord, Launch, Locality,
    MpiInfo, Node, Outliers, Overhead, Placement, RankClock, Resync, Run, Sample, Skew, StartSync, State,
    SummaryRecord, TestRecord, Tool, Transport, TscInfo, Warning, Writer, flags,
};
use weir_report::condense::summary_record;
use weir_stats::fit::fit;
use weir_stats::{Distribution, Random, open_unit, seeded};

/// What to make up.
#[derive(Debug, Clone)]
pub struct Shape {
    /// Name of the machine.
    pub machine: String,
    /// Where randomness begins.
    pub seed: u64,
    /// Samples at each rank of each cell.
    pub repetitions: u32,
    /// Launches.
    pub launches: u32,
    /// How many times slower than the machine of factor 1.
    pub factor: f64,
    /// How much launches differ, as a part of times.
    pub launch_spread: f64,
    /// Sizes.
    pub sizes: Vec<u64>,
    /// Levels of contention.
    pub pairs: Vec<u32>,
    /// Point-to-point operations.
    pub messages: Vec<&'static str>,
    /// Collective operations.
    pub collectives: Vec<&'static str>,
    /// Bound on the clocks' error.
    pub clock_error_ns: f32,
    /// Samples that are outliers, as a part of all.
    pub outliers: f64,
    /// Whether to fit families.
    pub fits: bool,
}

impl Shape {
    /// A run that shows everything, of some ten thousand samples a cell.
    pub fn typical() -> Self {
        Self {
            machine: "perseus".into(),
            seed: 1,
            repetitions: 800,
            launches: 1,
            factor: 1.0,
            launch_spread: 0.0,
            sizes: std::iter::once(0).chain((0..=20).map(|p| 1 << p)).collect(),
            pairs: vec![1, 2, 4, 8],
            messages: vec!["ping-pong", "send", "isend"],
            collectives: vec!["bcast", "allreduce", "barrier"],
            clock_error_ns: 180.0,
            outliers: 4e-4,
            fits: true,
        }
    }

    /// A run that is made in an instant.
    pub fn small() -> Self {
        Self {
            repetitions: 60,
            sizes: vec![0, 8, 1024, 65_536],
            pairs: vec![1, 4],
            messages: vec!["send"],
            collectives: vec!["barrier"],
            outliers: 0.02,
            ..Self::typical()
        }
    }
}

const RANKS: u32 = 16;
const NODES: u32 = 4;

/// Writes such a run.
pub fn write(dir: &Path, shape: &Shape) -> weir_distribution::Result<()> {
    let mut writer = Writer::create(dir, head(shape), Existing::Overwrite)?;
    let mut random = seeded(shape.seed);
    for number in 0..shape.launches {
        let mut now_ns = 2_000_000_000;
        writer.begin_launch(launch(number, shape))?;
        let drift = shape.factor * (1.0 + shape.launch_spread * (open_unit(&mut random) - 0.5) * 2.0);
        for configuration in configurations(shape) {
            let (cell, samples) = measure(number, configuration, shape, drift, &mut now_ns, &mut random);
            writer.write_cell(cell, &samples)?;
        }
    }
    writer.finish(State::Complete)
}

fn configurations(shape: &Shape) -> Vec<Configuration> {
    let mut out = Vec::new();
    for operation in &shape.messages {
        for &pairs in &shape.pairs {
            out.extend(shape.sizes.iter().map(|&size| configuration(operation, size, pairs, 2 * pairs)));
        }
    }
    for operation in &shape.collectives {
        for ranks in [4, 8, RANKS] {
            let sizes = if *operation == "barrier" { &shape.sizes[..1] } else { &shape.sizes[..] };
            out.extend(sizes.iter().map(|&size| configuration(operation, size, 0, ranks)));
        }
    }
    out
}

fn configuration(operation: &str, size_bytes: u64, pairs: u32, ranks: u32) -> Configuration {
    let collective = pairs == 0;
    Configuration {
        nodes: NODES,
        ranks_per_node: ranks.div_ceil(NODES),
        ranks,
        pairs,
        locality: if collective { Locality::Mixed } else { Locality::Inter },
        start: if collective { StartSync::Window } else { StartSync::None },
        ..Configuration::pair(operation, size_bytes)
    }
}

/// The machine's law: a floor by size, Weibull noise for small messages, Pearson 5 for large ones,
/// worse under contention.
pub fn law(configuration: &Configuration) -> (f64, Distribution) {
    let size = configuration.size_bytes as f64;
    let stages = if configuration.pairs == 0 { f64::from(configuration.ranks).log2() } else { 1.0 };
    let crowd =
        if configuration.pairs == 0 { f64::from(configuration.ranks) / 2.0 } else { f64::from(configuration.pairs) };
    let floor = stages * (1800.0 + size * 0.085 + if size > 16_384.0 { 9000.0 } else { 0.0 });
    let spread = stages * (160.0 + 0.012 * size) * (1.0 + 0.25 * (crowd - 1.0));
    let noise = if size < 4096.0 {
        Distribution::Weibull { location: floor, shape: 3.6 - 0.15 * crowd, scale: 2.0 * spread }
    } else {
        let shape = 6.0 / crowd.powf(0.35);
        Distribution::Pearson5 { location: floor, shape, scale: spread * shape }
    };
    (floor, noise)
}

fn measure(
    launch: u32,
    configuration: Configuration,
    shape: &Shape,
    factor: f64,
    now_ns: &mut i64,
    random: &mut Random,
) -> (Cell, Vec<Sample>) {
    let (_, noise) = law(&configuration);
    let started = *now_ns;
    let warm_up = (shape.repetitions / 20).min(10);
    let mut samples = Vec::new();
    for repetition in 0..shape.repetitions {
        let hiccup = open_unit(random) < shape.outliers;
        for rank in 0..configuration.ranks {
            let mut duration = noise.sample(random) * factor;
            if hiccup && open_unit(random) < 0.7 {
                duration +=
                    [2e8, 6e8, 1.4e9][(open_unit(random) * 3.0) as usize] * 0.01 * (0.97 + 0.06 * open_unit(random));
            }
            let warm = repetition < warm_up;
            samples.push(Sample {
                rank,
                peer: if configuration.pairs > 0 {
                    ((rank + configuration.pairs) % configuration.ranks) as i32
                } else {
                    -1
                },
                repetition,
                start_ns: *now_ns,
                duration_ns: if warm { duration * 1.8 } else { duration },
                error_ns: shape.clock_error_ns * (0.4 + 0.6 * open_unit(random) as f32),
                flags: if warm { flags::WARM_UP } else { 0 },
            });
            *now_ns += (duration / f64::from(configuration.ranks) * 1.3) as i64;
        }
    }
    let cell = record(launch, configuration, shape, &mut samples, (started, *now_ns - started), warm_up);
    *now_ns += 30_000_000;
    (cell, samples)
}

/// What a benchmark would say about samples; flags outliers.
pub fn record(
    launch: u32,
    configuration: Configuration,
    shape: &Shape,
    samples: &mut [Sample],
    (started, elapsed): (i64, i64),
    warm_up: u32,
) -> Cell {
    let mut cell = Cell::new(0, launch, configuration);
    let counted: Vec<f64> = samples.iter().filter(|s| s.counts()).map(|s| s.duration_ns).collect();
    cell.started_ns = Some(started);
    cell.elapsed_ns = Some(elapsed);
    cell.repetitions = samples.iter().map(|s| u64::from(s.repetition) + 1).max().unwrap_or(0);
    cell.warm_up = u64::from(warm_up);
    cell.measured = samples.len() as u64;
    cell.clock_error_ns = Some(f64::from(samples.iter().map(|s| s.error_ns).fold(0.0, f32::max)));
    let Ok(sample) = weir_stats::Sample::signed(counted) else { return cell };
    let boundary = sample.quantile(0.99) * 5.0;
    for s in samples.iter_mut().filter(|s| s.duration_ns > boundary) {
        s.flags |= flags::OUTLIER;
    }
    cell.outliers = Some(Outliers {
        percentile: 0.99,
        multiplier: 5.0,
        boundary_ns: boundary,
        count: samples.iter().filter(|s| s.counts() && s.is_outlier()).count() as u64,
    });
    cell.summary = Some(summary_record(&sample, sample.count() as f64));
    cell.skew = Some(between(150.0));
    // What lies between is longer than what a rank sees of it.
    cell.span = (cell.configuration.pairs == 0).then(|| between(sample.quantile(0.9)));
    if shape.fits {
        cell.fits = fits(&sample);
    }
    cell
}

/// Two hundred repetitions whose instants are from so many ns apart on.
pub fn between(from_ns: f64) -> Skew {
    let mut recorder = weir_stats::Recorder::new(weir_stats::RecorderConfig::default()).expect("sound");
    for i in 0..200 {
        recorder.record(f64::from(i % 37 * (i % 11)) * 4.0 + from_ns).expect("a duration");
    }
    let hdr = HdrHistogram {
        count: recorder.count(),
        unit_ns: 1.0,
        significant_digits: 3,
        v2_deflate_base64: recorder.to_base64(),
    };
    let summary = summary_record(&recorder.sample().expect("some"), recorder.count() as f64);
    Skew { summary, histogram: Some(HistogramRecord::Hdr(hdr)) }
}

fn fits(sample: &weir_stats::Sample) -> Vec<FitRecord> {
    use weir_stats::Family as F;
    // Without the far tail, as a benchmark does that keeps outliers apart.
    let limit = sample.quantile(0.99) * 5.0;
    let body = weir_stats::Sample::signed(sample.sorted().iter().copied().filter(|v| *v <= limit).collect());
    let Ok(body) = body else { return Vec::new() };
    let mut fits: Vec<(f64, FitRecord)> = [F::Normal, F::Lognormal, F::Gamma, F::Weibull, F::Pearson5]
        .into_iter()
        .filter_map(|family| fit(family, &weir_stats::Sample::signed(thin(&body)).ok()?).ok())
        .map(|found| (found.aic, fit_record(&found.distribution, found.log_likelihood)))
        .collect();
    fits.sort_by(|a, b| a.0.total_cmp(&b.0));
    if let Some(best) = fits.first_mut() {
        best.1.chosen = true;
    }
    fits.into_iter().map(|f| f.1).collect()
}

fn thin(sample: &weir_stats::Sample) -> Vec<f64> {
    sample.thinned(300)
}

fn fit_record(distribution: &Distribution, log_likelihood: f64) -> FitRecord {
    let (family, location, parameters): (&str, f64, Vec<(&str, f64)>) = match *distribution {
        Distribution::Lognormal { location, mu, sigma } => {
            (Family::LOGNORMAL, location, vec![("mu", mu), ("sigma", sigma)])
        }
        Distribution::Gamma { location, shape, scale } => {
            (Family::GAMMA, location, vec![("shape", shape), ("scale_ns", scale)])
        }
        Distribution::Weibull { location, shape, scale } => {
            (Family::WEIBULL, location, vec![("shape", shape), ("scale_ns", scale)])
        }
        Distribution::Pearson5 { location, shape, scale } => {
            (Family::PEARSON5, location, vec![("shape", shape), ("scale_ns", scale)])
        }
        ref other => {
            (Family::NORMAL, 0.0, vec![("mean_ns", other.mean().unwrap_or(1.0)), ("stddev_ns", other.parameters()[1])])
        }
    };
    FitRecord {
        family: family.into(),
        location_ns: location,
        parameters: parameters.into_iter().map(|(n, v)| (n.to_owned(), v)).collect(),
        samples: Some(300),
        log_likelihood: Some(log_likelihood),
        tests: vec![TestRecord {
            test: "ks".into(),
            statistic: 0.031,
            p_value: Some(0.4),
            samples: Some(300),
            ..TestRecord::default()
        }],
        at_bound: false,
        chosen: false,
        reason: None,
    }
}

fn head(shape: &Shape) -> Run {
    let mut run = Run::new(&shape.machine);
    run.title = Some("made up, never measured".into());
    run.tool = Tool { name: "made-up-run".into(), version: "1".into() };
    run.created_utc = Some("2026-11-21T20:00:00Z".into());
    run.command = ["weir", "bench", "-o", "run1"].map(String::from).to_vec();
    run.nodes = (1..=NODES).map(node).collect();
    run.mpi = Some(MpiInfo {
        library_version: "MPICH Version: 5.0.2".into(),
        library_path: Some("/opt/mpich/lib/libmpi.so.12".into()),
        standard: Some("5.0".into()),
        abi: Some("mpich".into()),
        launcher: Some("hydra".into()),
        launcher_command: Vec::new(),
    });
    run.transport = Transport {
        backend: "mpi".into(),
        provider: Some("weir".into()),
        settings: [("FI_PROVIDER".to_owned(), "weir".to_owned())].into(),
    };
    run.environment =
        [("FI_PROVIDER".to_owned(), "weir".to_owned()), ("OMP_NUM_THREADS".to_owned(), "1".to_owned())].into();
    run.warnings = vec![Warning {
        code: "frequency-scaling".into(),
        message: "the governor of node3 is powersave".into(),
        advice: Some("cpupower frequency-set -g performance".into()),
    }];
    run
}

fn node(i: u32) -> Node {
    Node {
        name: format!("node{i}"),
        cpu: Some("AMD EPYC 7543 32-Core Processor".into()),
        sockets: Some(1),
        cores: Some(32),
        threads: Some(64),
        memory_bytes: Some(256 << 30),
        kernel: Some("Linux 6.12.0 x86_64".into()),
        governor: Some(if i == 3 { "powersave" } else { "performance" }.into()),
        turbo: Some(true),
        tsc: Some(TscInfo { invariant: true, frequency_hz: Some(2.8e9), kernel_clocksource: Some("tsc".into()) }),
    }
}

fn launch(number: u32, shape: &Shape) -> Launch {
    let error = f64::from(shape.clock_error_ns);
    Launch {
        number,
        origin_utc: Some("2026-11-21T20:00:00Z".into()),
        state: State::Complete,
        placement: (0..RANKS)
            .map(|rank| Placement { rank, node: rank % NODES, processors: vec![rank / NODES], pinned: true })
            .collect(),
        clock: Some(ClockInfo {
            source: "tsc".into(),
            frequency_hz: Some(2.8e9),
            resolution_ns: Some(0.36),
            algorithm: "hca3".into(),
            ranks: (0..RANKS)
                .map(|rank| RankClock {
                    rank,
                    error_ns: error * f64::from(rank) / f64::from(RANKS),
                    drift_ppm: Some(0.1 * f64::from(rank)),
                })
                .collect(),
            resyncs: (0..4).map(|i| Resync { at_ns: i * 4_000_000_000, error_ns: error * 0.4 }).collect(),
        }),
        overhead: Some(Overhead {
            per_sample: SummaryRecord {
                count: 1000,
                min_ns: 30.0,
                p50_ns: 34.0,
                p99_ns: 60.0,
                max_ns: 90.0,
                p1_ns: 30.0,
                p25_ns: 32.0,
                p75_ns: 36.0,
                p999_ns: 80.0,
                mean_ns: 35.0,
                ..SummaryRecord::default()
            },
            clock_read_ns: Some(14.0),
        }),
        thread_level: None,
        warnings: Vec::new(),
    }
}

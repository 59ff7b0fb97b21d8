//! What is written is what is read, to the last bit.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use weir_distribution::*;

fn finite() -> impl Strategy<Value = f64> {
    prop_oneof![any::<f64>().prop_filter("finite", |v| v.is_finite()), 0.0..1e9]
}

fn sample() -> impl Strategy<Value = Sample> {
    let numbers = (any::<u32>(), any::<i32>(), any::<u32>(), any::<i64>());
    (numbers, finite(), 0.0_f32..1e9, any::<u8>()).prop_map(|(n, duration_ns, error_ns, flags)| {
        let (rank, peer, repetition, start_ns) = n;
        Sample { rank, peer, repetition, start_ns, duration_ns, error_ns, flags }
    })
}

fn text() -> impl Strategy<Value = String> {
    any::<String>()
}

fn summary() -> impl Strategy<Value = SummaryRecord> {
    (1..u64::MAX, vec(finite(), 8), finite(), 0.0..1e9, option::of(finite())).prop_map(
        |(count, mut q, mean_ns, stddev_ns, median_low_ns)| {
            q.sort_by(f64::total_cmp);
            SummaryRecord {
                count,
                min_ns: q[0],
                p1_ns: q[1],
                p25_ns: q[2],
                p50_ns: q[3],
                p75_ns: q[4],
                p99_ns: q[5],
                p999_ns: q[6],
                max_ns: q[7],
                mean_ns,
                stddev_ns,
                median_low_ns,
                median_high_ns: None,
                median_level: Some(0.95),
            }
        },
    )
}

fn configuration() -> impl Strategy<Value = Configuration> {
    let words = (
        prop_oneof![Just("ping-pong".to_owned()), "[a-z]{1,9}"],
        prop_oneof![Just(SizeMode::Message), Just(SizeMode::Each), Just(SizeMode::Total)],
        prop_oneof![Just(Locality::Inter), Just(Locality::Intra), Just(Locality::Mixed)],
        prop_oneof![Just(StartSync::None), Just(StartSync::Barrier), Just(StartSync::Window)],
    );
    let numbers = (any::<u64>(), 1..u32::MAX, 1..u32::MAX, any::<u32>());
    let parameters = proptest::collection::btree_map(text(), text(), 0..3);
    (words, numbers, parameters).prop_map(|((operation, size_mode, locality, start), numbers, parameters)| {
        let (size_bytes, nodes, ranks_per_node, pairs) = numbers;
        Configuration {
            operation: Operation(operation),
            size_bytes,
            size_mode,
            nodes,
            ranks_per_node,
            ranks: nodes,
            pairs,
            locality,
            start,
            parameters,
        }
    })
}

fn histogram() -> impl Strategy<Value = HistogramRecord> {
    let hdr = (any::<u64>(), 1e-3..1e3, any::<u8>(), text()).prop_map(|(count, unit_ns, significant_digits, data)| {
        HistogramRecord::Hdr(HdrHistogram { count, unit_ns, significant_digits, v2_deflate_base64: data })
    });
    let bins = vec((1.0..1e6, 1.0..1e6, 0.0..1e6), 1..5).prop_map(|widths| {
        let mut low = -10.0;
        let bin = |(width, gap, count)| {
            let bin = HistogramBin { low_ns: low, high_ns: low + width, count: count + 1.0 };
            low += width + gap;
            bin
        };
        HistogramRecord::Bins(BinsHistogram { bins: widths.into_iter().map(bin).collect() })
    });
    prop_oneof![hdr, bins]
}

fn fit() -> impl Strategy<Value = FitRecord> {
    (finite(), 1e-9..1e9, 1e-9..1e9, option::of(finite()), 0.0..=1.0).prop_map(
        |(location_ns, shape, scale_ns, log_likelihood, p)| FitRecord {
            family: Family::PEARSON5.into(),
            location_ns,
            parameters: BTreeMap::from([("shape".to_owned(), shape), ("scale_ns".to_owned(), scale_ns)]),
            samples: Some(500),
            log_likelihood,
            tests: vec![TestRecord {
                test: "ad".to_owned(),
                statistic: shape,
                p_value: Some(p),
                method: Some("bootstrap".to_owned()),
                replicates: Some(399),
                ..TestRecord::default()
            }],
            at_bound: p < 0.5,
            reason: Some("the only family not rejected".to_owned()),
            chosen: false,
        },
    )
}

fn cell() -> impl Strategy<Value = (Cell, Vec<Sample>)> {
    let records = (option::of(summary()), option::of(histogram()), vec(fit(), 0..3), option::of(summary()));
    let numbers = (any::<u64>(), option::of(any::<i64>()), option::of(finite()));
    (configuration(), numbers, records, vec(sample(), 0..300)).prop_map(|(configuration, numbers, records, samples)| {
        let (measured, started_ns, window_ns) = numbers;
        let (summary, histogram, mut fits, skew) = records;
        if let Some(first) = fits.first_mut() {
            first.chosen = true;
        }
        let skew = skew.map(|summary| Skew { summary, histogram: histogram.clone() });
        let empty = Cell::new(0, 3, configuration);
        let span = skew.clone();
        let bandwidth = window_ns.filter(|ns| (1e-3..1e12).contains(ns)).map(|ns| Bandwidth {
            bytes: 8.0,
            min_bytes_per_s: Some(0.5e9 / ns),
            p1_bytes_per_s: 1e9 / ns,
            p50_bytes_per_s: 2e9 / ns,
            p99_bytes_per_s: 3e9 / ns,
            mean_bytes_per_s: 2e9 / ns,
        });
        let service = bandwidth.map(|b| Service {
            rounds: measured >> 12,
            spread_p50: Some(1.0 + b.bytes),
            jain_min: Some(1.0 / b.bytes),
            answers_per_s: b.p50_bytes_per_s,
            server_cpu_ns: window_ns,
            ..Service::default()
        });
        let moved = started_ns.map(|ns| Moved { rank: 3, batches: ns.unsigned_abs() >> 12 }).into_iter().collect();
        let more = Cell { span, bandwidth, cpu_ns: window_ns.map(f64::abs), service, moved, ..empty };
        (Cell { measured, started_ns, window_ns, summary, histogram, fits, skew, ..more }, samples)
    })
}

fn head() -> impl Strategy<Value = Run> {
    let texts = (text(), option::of(text()), vec(text(), 0..3), proptest::collection::btree_map(text(), text(), 0..3));
    (texts, option::of(summary()), finite()).prop_map(|((machine, title, command, environment), overhead, hz)| {
        let clock = ClockInfo {
            source: "tsc".to_owned(),
            frequency_hz: Some(hz),
            algorithm: "hca3".to_owned(),
            ranks: vec![RankClock { rank: 0, error_ns: 1.0, drift_ppm: Some(hz) }],
            resyncs: vec![Resync { at_ns: -5, error_ns: 7.0 }],
            resolution_ns: None,
        };
        let launch = Launch {
            number: 3,
            placement: vec![Placement { rank: 0, node: 0, processors: vec![1], pinned: true }],
            clock: Some(clock),
            overhead: overhead.map(|per_sample| Overhead { per_sample, clock_read_ns: Some(1.5) }),
            warnings: vec![Warning { code: "x".to_owned(), message: machine.clone(), advice: None }],
            ..Launch::default()
        };
        let links = Links {
            name: machine.clone(),
            settings: environment.clone(),
            hosts: [(machine.clone(), environment.clone())].into(),
            hosts_left_out: 1,
        };
        let network = Network {
            emulator: machine.clone(),
            name: title.clone(),
            hosts: Some(4),
            seed: Some(u64::MAX),
            plain: title.is_some(),
            networks: vec![links],
            sysctl: environment.clone(),
            events: 3,
            changes: command.clone(),
        };
        Run {
            title,
            command,
            environment,
            network: Some(network).filter(|_| hz > 0.0),
            nodes: vec![Node { name: "n1".to_owned(), cores: Some(2), ..Node::default() }],
            mpi: Some(MpiInfo { library_version: machine.clone(), ..MpiInfo::default() }),
            launches: vec![launch],
            ..Run::new(&format!("m{machine}"))
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn a_run_comes_back_as_it_was_written(head in head(), cells in vec(cell(), 0..5)) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run");
        let mut writer = Writer::create(&path, head.clone(), Existing::Refuse).unwrap();
        for (cell, samples) in &cells {
            writer.write_cell(cell.clone(), samples).unwrap();
        }
        writer.update(|run| run.state = State::Stopped).unwrap();
        let written = writer.run().clone();
        let reader = Reader::open(&path).unwrap();
        prop_assert_eq!(reader.run(), &written);
        prop_assert_eq!(&Run { cells: Vec::new(), state: State::Running, ..written }, &head);
        prop_assert!(reader.unknown_fields().is_empty());
        prop_assert_eq!(reader.run().cells.len(), cells.len());
        for (i, (cell, samples)) in cells.iter().enumerate() {
            let read = &reader.run().cells[i];
            let expected = Cell { id: read.id, samples: read.samples.clone(), ..cell.clone() };
            prop_assert_eq!(read, &expected);
            prop_assert_eq!(&reader.read_samples(read).unwrap(), samples);
        }
    }
}

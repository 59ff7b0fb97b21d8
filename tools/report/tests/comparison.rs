//! Verdicts on planted differences.

mod common;

use std::path::Path;
use std::slice::from_ref;

use common::Shape;
use weir_distribution::{Cell, Configuration, Launch, Run, Sample, SamplesFile, SummaryRecord};
use weir_report::compare::{self, Comparison, Verdict};
use weir_report::digest::Digest;
use weir_report::json::comparison_json;
use weir_report::table::Table;
use weir_report::{comparison_plots, load, page};
use weir_stats::{Distribution, Random, seeded};

fn run(dir: &Path, name: &str, shape: &Shape) -> Digest {
    let dir = dir.join(name);
    common::write(&dir, shape).expect("written");
    load(&dir).expect("read")
}

fn base() -> Shape {
    Shape { repetitions: 1500, clock_error_ns: 1.0, fits: false, outliers: 0.0, pairs: vec![4], ..Shape::small() }
}

fn compared(second: Shape) -> Comparison {
    let dir = tempfile::tempdir().unwrap();
    compare::compare(&run(dir.path(), "a", &base()), &run(dir.path(), "b", &second))
}

#[test]
fn one_launch_each_that_differs_decides_nothing_about_the_machines() {
    let comparison = compared(Shape { factor: 1.1, seed: 2, ..base() });
    let n = comparison.pairs().count();
    assert!(n >= 7 && comparison.single == n);
    for pair in comparison.pairs() {
        assert_eq!(pair.verdict, Verdict::LaunchesDiffer, "{pair}");
        assert!((pair.ratio - 1.1).abs() < 0.02, "{pair}");
        assert!(pair.interval.0 <= pair.ratio && pair.ratio <= pair.interval.1);
        assert!(pair.to_string().starts_with("undecided: launches differ (+"), "{pair}");
        assert_eq!(pair.p_of_machines(), None);
    }
    let summary = comparison.summary();
    let expected = format!(
        "undecided, as one launch cannot tell a machine's difference from a launch's: of {n} cells that both runs measured the launches differ in {n} (the second's took longer in {n})"
    );
    assert!(summary.starts_with(&expected), "{summary}");
    for table in comparison.matches.iter().map(|m| Table::of_match(m).text()) {
        assert!(!table.contains("0.001") && table.contains("there is no p-value"), "{table}");
    }
}

#[test]
fn a_machine_that_is_slower_by_a_tenth_in_all_launches_is_said_to_be() {
    let launches = |seed, factor| Shape { launches: 3, launch_spread: 0.0, seed, factor, repetitions: 500, ..base() };
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (run(dir.path(), "a", &launches(5, 1.0)), run(dir.path(), "b", &launches(6, 1.1)));
    let comparison = compare::compare(&a, &b);
    for pair in comparison.pairs() {
        assert!(pair.verdict == Verdict::Slower && (pair.ratio - 1.1).abs() < 0.02, "{pair}");
        assert!(pair.to_string().starts_with("slower by "), "{pair}");
    }
    let n = comparison.pairs().count();
    assert!(comparison.summary().starts_with(&format!(
        "of {n} cells that both runs measured the second is faster in 0 and slower in {n}, no different"
    )));
}

#[test]
fn a_faster_machine_is_said_to_be_faster() {
    let launches = |seed, factor| Shape { launches: 3, launch_spread: 0.0, seed, factor, repetitions: 500, ..base() };
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (run(dir.path(), "a", &launches(3, 1.0)), run(dir.path(), "b", &launches(4, 0.5)));
    let comparison = compare::compare(&a, &b);
    assert!(comparison.pairs().all(|p| p.verdict == Verdict::Faster && (p.ratio - 0.5).abs() < 0.01));
    for pair in comparison.pairs() {
        let percent =
            pair.to_string().strip_prefix("faster by ").and_then(|t| t.split(' ').next()?.parse::<f64>().ok());
        assert!(percent.is_some_and(|p| (p - 50.0).abs() < 1.0), "{pair}");
    }
}

#[test]
fn the_same_machine_measured_twice_is_not_said_to_differ() {
    // With a chance of 5 % of any false difference among all cells, over 6 seeds a fault shows as
    // many of them.
    let false_ones: usize = (10..16)
        .map(|seed| {
            let comparison = compared(Shape { seed, ..base() });
            assert_eq!(comparison.count(Verdict::Faster) + comparison.count(Verdict::Slower), 0);
            comparison.count(Verdict::LaunchesDiffer)
        })
        .sum();
    assert!(false_ones <= 1, "{false_ones} false differences");
}

#[test]
fn a_difference_below_the_clocks_error_is_none_however_sure_a_test_is() {
    // 10 % of about 2 µs is 200 ns; the clocks of both runs may be off by 300 ns each.
    let second = Shape { factor: 1.1, seed: 4, clock_error_ns: 300.0, ..base() };
    let comparison = compared(second);
    let small: Vec<_> = comparison.pairs().filter(|p| p.difference_ns() < 300.0).collect();
    assert!(!small.is_empty());
    for pair in small {
        assert!(pair.p < 1e-6, "the test is sure");
        assert_eq!(pair.verdict, Verdict::WithinClockError);
        assert!(pair.to_string().contains("no difference beyond clock error"), "{pair}");
    }
    assert!(comparison.pairs().any(|p| p.verdict == Verdict::LaunchesDiffer), "large messages differ by more");
}

#[test]
fn launches_that_differ_more_than_machines_hide_no_difference_as_one() {
    let launches = |seed, factor| Shape { launches: 6, launch_spread: 0.1, seed, factor, repetitions: 300, ..base() };
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (run(dir.path(), "a", &launches(5, 1.0)), run(dir.path(), "b", &launches(6, 1.01)));
    let comparison = compare::compare(&a, &b);
    for pair in comparison.pairs() {
        // Medians that happen to be nearly equal may be within the clocks' error too.
        let none = matches!(pair.verdict, Verdict::NoDifference | Verdict::WithinClockError);
        assert!(pair.by_launches && none, "{pair}, p {}, {:?}", pair.p_corrected, pair.interval);
    }
    assert_eq!((comparison.single, comparison.few), (0, 0));
    let (a, b) = (run(dir.path(), "a", &launches(7, 1.0)), run(dir.path(), "b", &launches(8, 1.5)));
    let comparison = compare::compare(&a, &b);
    assert!(comparison.pairs().all(|p| p.verdict == Verdict::Slower), "and one of half as much again is found");
}

#[test]
fn runs_without_a_cell_in_common_are_not_compared() {
    let comparison = compared(Shape { messages: vec!["isend"], collectives: vec!["bcast"], ..base() });
    assert_eq!(comparison.pairs().count(), 0);
    assert!(comparison.unmatched.0 > 0 && comparison.unmatched.1 > 0);
}

#[test]
fn the_page_says_in_words_what_was_found() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (
        run(dir.path(), "mpich-tcp", &base()),
        run(dir.path(), "mpich-weir", &Shape { factor: 0.7, seed: 9, ..base() }),
    );
    let comparison = compare::compare(&a, &b);
    let page = page::of_two(&a, &b, &comparison);
    for part in [
        "mpich-weir against mpich-tcp",
        "only one launch in one of the runs",
        "Undecided, as one launch cannot tell",
        "Holm",
        "time of the second run over the first",
        "cumulative distributions",
    ] {
        assert!(page.contains(part), "{part} is not on the page");
    }
    for pair in comparison.pairs() {
        assert!(pair.verdict == Verdict::LaunchesDiffer && page.contains(&pair.to_string()), "{pair}");
    }
    let at = |part: &str| page.find(part).unwrap_or_else(|| panic!("{part} is not on the page"));
    assert!(at("<p>Undecided") < at("<details class=\"warnings\">"), "what was found comes first");
    assert!(!page.contains("<section class=\"warnings\""), "and warnings are folded");
    assert!(!page.contains("NaN"));
    assert_eq!(page.matches("governor of node3").count(), 1, "what is so in both runs is said once");
    assert!(page.contains("In both runs: the governor of node3"));
    assert!(comparison_plots(&a, &b, &comparison).len() >= 6);
    let json = comparison_json(&a, &b, &comparison);
    assert_eq!(json["operations"][0]["cells"][0]["verdict"], "launches-differ");
    assert!(json["operations"][0]["cells"][0]["p_corrected"].is_null());
}

/// A run of one operation: by size the median of each launch, known to a thousandth, and by how
/// much clocks may be off.
fn digest_of(name: &str, cells: &[Vec<f64>], clock_error_ns: f64) -> Digest {
    let mut run = Run::new(name);
    run.launches = (0..cells.iter().map(Vec::len).max().unwrap_or(0) as u32)
        .map(|number| Launch { number, ..Launch::default() })
        .collect();
    for (size, medians) in cells.iter().enumerate() {
        for (launch, &p50_ns) in medians.iter().enumerate() {
            let mut cell = Cell::new(run.cells.len() as u32, launch as u32, Configuration::pair("send", size as u64));
            cell.clock_error_ns = Some(clock_error_ns);
            cell.summary = Some(SummaryRecord {
                count: 10_000,
                min_ns: 0.9 * p50_ns,
                p50_ns,
                p99_ns: 2.0 * p50_ns,
                max_ns: 9.0 * p50_ns,
                median_low_ns: Some(0.999 * p50_ns),
                median_high_ns: Some(1.001 * p50_ns),
                median_level: Some(0.95),
                ..SummaryRecord::default()
            });
            run.cells.push(cell);
        }
    }
    weir_report::condense::digest(run, name, &|_| Err("there are no samples".into()))
}

#[test]
fn cells_without_partner_come_with_the_command_that_measures_the_second_run_again_as_the_first() {
    use weir_distribution::StartSync;
    let begun = |name: &str, starts: [StartSync; 2]| {
        let mut digest = digest_of(name, &[vec![1000.0], vec![2000.0]], 0.0);
        let mut run = std::mem::take(&mut digest.run.cells);
        run.iter_mut().zip(starts).for_each(|(cell, start)| {
            cell.configuration =
                Configuration { pairs: 0, start, ..Configuration::pair("bcast", cell.configuration.size_bytes) };
        });
        let run = Run {
            cells: run,
            command: ["weir", "bench", "-o", name, "-t", "bcast", "--time", "5"].map(str::to_owned).to_vec(),
            transport: weir_distribution::Transport { backend: "mpi".into(), ..Default::default() },
            launches: vec![Launch { placement: vec![Default::default(); 4], ..Launch::default() }],
            ..digest.run
        };
        let digest = weir_report::condense::digest(run, name, &|_| Err("there are no samples".into()));
        Digest { folder: Some(Path::new("runs").join(name)), ..digest }
    };
    let first = begun("a", [StartSync::Window, StartSync::Window]);
    let second = begun("b", [StartSync::Window, StartSync::Barrier]);
    let told = |one: &Digest, other: &Digest| {
        let warnings = weir_report::warnings::of_two((one, other), &compare::compare(one, other));
        let found = warnings.into_iter().find(|told| told.warning.message.contains("no partner"))?;
        Some((found.warning.message, found.warning.advice))
    };
    let (text, advice) = told(&first, &second).expect("a warning");
    assert!(text.starts_with("1 cell of the first run and 1 of the second have no partner"), "{text}");
    assert!(text.contains("Of these, 1 of the first run is in the second as well, but its repetitions"), "{text}");
    let command = "mpiexec -n 4 weir bench -o runs/b-like-a --like runs/a --time 5";
    assert!(advice.is_some_and(|advice| advice.ends_with(&format!(": {command}"))));
    assert!(told(&first, &first).is_none());
}

/// 40 cells in so many launches, whose medians differ by 2 % (standard deviation).
fn forty(launches: usize, factor_of_17: f64, random: &mut Random) -> Digest {
    let noise = Distribution::Normal { mean: 0.0, sd: 0.02 };
    let mut cell = |size: usize| -> Vec<f64> {
        let centre = 3000.0 * 1.1f64.powi(size as i32) * if size == 17 { factor_of_17 } else { 1.0 };
        (0..launches).map(|_| centre * noise.sample(random).exp()).collect()
    };
    let cells: Vec<Vec<f64>> = (0..40).map(&mut cell).collect();
    digest_of("forty", &cells, 0.0)
}

#[test]
fn a_factor_of_two_in_one_of_forty_cells_is_found_among_launches_and_nothing_else() {
    let mut random = seeded(81);
    for launches in [3, 5] {
        let (trials, mut found, mut false_ones) = (40, 0, 0);
        for _ in 0..trials {
            let comparison = compare::compare(&forty(launches, 1.0, &mut random), &forty(launches, 2.0, &mut random));
            assert_eq!((comparison.pairs().count(), comparison.single), (40, 0));
            for pair in comparison.pairs() {
                assert!(pair.by_launches && pair.launches == (launches, launches));
                let differs = matches!(pair.verdict, Verdict::Faster | Verdict::Slower);
                match pair.size_bytes {
                    17 => found += usize::from(pair.verdict == Verdict::Slower),
                    _ => false_ones += usize::from(differs),
                }
            }
        }
        // A chance of 5 % of any false one in a trial: 2 in 40, more than 7 in one of a thousand.
        assert!(
            found >= if launches == 5 { trials } else { trials * 8 / 10 },
            "{launches} launches: {found} of {trials}"
        );
        assert!(false_ones <= 7, "{launches} launches: {false_ones}");
    }
}

#[test]
fn tenfold_differences_are_found_by_launches_in_every_cell() {
    let mut random = seeded(82);
    let cells = |factor: f64, random: &mut Random| -> Vec<Vec<f64>> {
        let noise = Distribution::Normal { mean: 0.0, sd: 0.05 };
        (0..37).map(|_| (0..5).map(|_| factor * 5000.0 * noise.sample(random).exp()).collect()).collect()
    };
    let (a, b) = (cells(1.0, &mut random), cells(10.0, &mut random));
    let comparison = compare::compare(&digest_of("a", &a, 0.0), &digest_of("b", &b, 0.0));
    assert_eq!(comparison.count(Verdict::Slower), 37, "{}", comparison.summary());
}

#[test]
fn launches_that_agree_by_chance_are_not_known_without_error() {
    // Two launches with the very same median: each is known to a thousandth only, and so are the
    // runs.
    let comparison =
        compare::compare(&digest_of("a", &[vec![5000.0; 2]], 0.0), &digest_of("b", &[vec![5003.0; 2]], 0.0));
    let pair = comparison.pairs().next().unwrap();
    assert!(pair.by_launches && pair.verdict == Verdict::NoDifference, "{pair}, p {}", pair.p);
}

/// A run of one 512 KiB cell: the samples of each launch.
fn sampled(name: &str, launches: &[Vec<f64>]) -> Digest {
    let mut run = Run::new(name);
    for (launch, _) in launches.iter().enumerate() {
        let mut cell = Cell::new(launch as u32, launch as u32, Configuration::pair("send", 512 << 10));
        cell.samples = Some(SamplesFile::default());
        run.cells.push(cell);
    }
    let sample = |(k, d): (usize, &f64)| Sample {
        repetition: k as u32,
        start_ns: k as i64 * 1000,
        duration_ns: *d,
        peer: 1,
        ..Sample::default()
    };
    weir_report::condense::digest(run, name, &|cell| {
        Ok(launches[cell.launch as usize].iter().enumerate().map(sample).collect())
    })
}

#[test]
fn the_ratio_is_that_of_the_columns_shown_whatever_the_launches_sizes() {
    // Launches are in one of two speeds, and the fast ones give five times the samples.
    let mut random = seeded(83);
    let noise = Distribution::Normal { mean: 0.0, sd: 0.02 };
    let mut launch = |centre: f64, count: usize| -> Vec<f64> {
        (0..count).map(|_| centre * noise.sample(&mut random).exp()).collect()
    };
    let a = [launch(90_000.0, 5000), launch(180_000.0, 1000), launch(180_000.0, 1000)];
    let b = [launch(90_000.0, 5000), launch(90_000.0, 5000), launch(180_000.0, 1000)];
    for (a, b, header) in
        [(&a[..], &b[..], "geo. mean of medians"), (&a[..1], &b[2..], "first median"), (&a[..], &b[2..], "geo. mean")]
    {
        let (a, b) = (sampled("a", a), sampled("b", b));
        let comparison = compare::compare(&a, &b);
        let pair = comparison.pairs().next().unwrap();
        let json = comparison_json(&a, &b, &comparison);
        let cell = &json["operations"][0]["cells"][0];
        let number = |name: &str| cell[name].as_f64().unwrap();
        assert!((number("second_ns") / number("first_ns") / number("ratio") - 1.0).abs() < 1e-12, "{cell}");
        assert!(number("ratio_low") <= number("ratio") && number("ratio") <= number("ratio_high"), "{cell}");
        assert_eq!(cell["unit"], if pair.by_launches { "launch" } else { "sample" });
        let text = Table::of_match(&comparison.matches[0]).text();
        assert!(text.contains(header), "{text}");
        // Beside geometric means a bandwidth that is a median is called so.
        assert_eq!(text.contains("median of the launches' own"), header.starts_with("geo."), "{text}");
        // As printed: "512 KiB  143 µs  113 µs  0.794  ...".
        let row: Vec<&str> = text.lines().find(|l| l.contains("512 KiB")).unwrap().split_whitespace().collect();
        let shown: Vec<f64> = row.iter().filter_map(|w| w.parse().ok()).collect();
        assert!((shown[2] / shown[1] / shown[3] - 1.0).abs() < 0.01, "{text}");
    }
    // Each launch weighs the same: 90 x 180 x 180 against 90 x 90 x 180.
    let (a, b) = (sampled("a", &a), sampled("b", &b));
    let comparison = compare::compare(&a, &b);
    let pair = comparison.pairs().next().unwrap();
    assert!((pair.ratio - 0.5f64.powf(1.0 / 3.0)).abs() < 0.005, "{}", pair.ratio);
    assert_eq!(pair.verdict, Verdict::NoDifference, "launches of both speeds on both sides tell nothing");
}

#[test]
fn the_clocks_error_is_held_against_the_numbers_that_are_shown() {
    // Medians of the launches' medians: 1000 and 1000; geometric means: 1000 and 1170.
    let (a, b) = (vec![1000.0, 1000.0, 1000.0], vec![1000.0, 1000.0, 1600.0]);
    for (error, within) in [(40.0, false), (90.0, true)] {
        let comparison = compare::compare(&digest_of("a", from_ref(&a), error), &digest_of("b", from_ref(&b), error));
        let pair = comparison.pairs().next().unwrap();
        assert!((pair.difference_ns() - 169.6).abs() < 0.1, "{}", pair.difference_ns());
        assert_eq!(pair.verdict == Verdict::WithinClockError, within, "{pair}");
    }
}

#[test]
fn one_launch_that_lies_among_those_of_the_other_run_is_no_difference() {
    let (one, five) = (vec![5200.0], vec![5000.0, 5100.0, 5400.0, 4900.0, 5050.0]);
    let comparison = compare::compare(&digest_of("a", &[one], 0.0), &digest_of("b", &[five], 0.0));
    let pair = comparison.pairs().next().unwrap();
    assert_eq!((pair.verdict, pair.by_launches), (Verdict::WithinLaunches, false));
}

#[test]
fn medians_not_above_zero_have_no_ratio_and_no_nan() {
    for (error, verdict) in [(0.0, Verdict::NotPositive), (300.0, Verdict::WithinClockError)] {
        let (a, b) = (digest_of("a", &[vec![-20.0]], error), digest_of("b", &[vec![500.0]], error));
        let comparison = compare::compare(&a, &b);
        let pair = comparison.pairs().next().unwrap();
        assert!(pair.verdict == verdict && pair.ratio.is_nan(), "{pair:?}");
        assert!(!Table::of_match(&comparison.matches[0]).text().contains("NaN"));
    }
}

#[test]
fn dependent_samples_of_one_machine_are_not_said_to_differ_more_often_than_they_may() {
    // A phase of the machine lasts for some ten repetitions. As if independent, half of the
    // comparisons would find something.
    let mut random = seeded(84);
    let normal = Distribution::Normal { mean: 0.0, sd: 1.0 };
    let mut series = |count: usize| -> Vec<f64> {
        let mut value = normal.sample(&mut random);
        let next = |_| {
            value = 0.8 * value + 0.6 * normal.sample(&mut random);
            20_000.0 * (0.05 * value).exp()
        };
        (0..count).map(next).collect()
    };
    let trials = 200;
    let differing = (0..trials).filter(|_| {
        let (a, b) = (sampled("a", &[series(1000)]), sampled("b", &[series(1000)]));
        compare::compare(&a, &b).pairs().any(|p| p.verdict == Verdict::LaunchesDiffer)
    });
    let differing = differing.count();
    // 5 % of 200 are 10, standard deviation 3.1.
    assert!(differing <= 24, "{differing} of {trials}");
}

#[test]
fn a_percentile_out_of_too_few_samples_is_not_drawn_in_a_comparison_either() {
    // At 0 and 1 B both have 60 samples a launch, at 2 B and 3 B the first has 400.
    let cells = |counts: [u64; 4]| {
        let mut digest = digest_of("d", &[vec![1000.0], vec![1100.0], vec![1200.0], vec![1300.0]], 0.0);
        for (point, count) in digest.profiles[0].points.values_mut().zip(counts) {
            (point.row.count, point.row.p99_ns) = (count, 40_000.0);
        }
        digest
    };
    let (a, b) = (cells([60, 60, 400, 400]), cells([60; 4]));
    let comparison = compare::compare(&a, &b);
    let sizes: Vec<_> =
        comparison_plots(&a, &b, &comparison).into_iter().filter(|p| p.title.contains("time against size")).collect();
    assert_eq!(sizes.len(), 2, "of both scales");
    for plot in &sizes {
        let hints: Vec<&str> = plot.body.split("<title>").skip(1).filter_map(|t| t.split('<').next()).collect();
        let p99: Vec<&str> = hints.iter().copied().filter(|h| h.contains("p99")).collect();
        assert_eq!(p99, ["2 B, first: p99 40 µs", "3 B, first: p99 40 µs"]);
        assert_eq!(hints.len(), 8 + 2, "all medians are there: {hints:?}");
        assert!(plot.note.contains("6 99th percentiles left out: fewer than 100 samples"), "{}", plot.note);
        assert!(plot.body.contains(">first, p99<") && !plot.body.contains(">second, p99<"));
    }
    let (a, b) = (cells([60; 4]), cells([60; 4]));
    let comparison = compare::compare(&a, &b);
    let none =
        comparison_plots(&a, &b, &comparison).into_iter().find(|p| p.title.contains("time against size")).unwrap();
    // And nothing of them stretches the axis.
    assert!(
        !none.explanation.contains("99th") && !none.body.contains("p99") && !none.body.contains("20 µs"),
        "{}",
        none.body
    );
}

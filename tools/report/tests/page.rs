//! The page and the plots as a whole, from runs on disk.

mod common;

use std::path::Path;

use common::Shape;
use weir_distribution::{Cell, Configuration, Existing, Run, Sample, State, Warning, Writer};
use weir_report::frame::Sheet;
use weir_report::{compare, load, page, run_plots};

fn small(dir: &Path, shape: &Shape) -> weir_report::digest::Digest {
    common::write(dir, shape).expect("written");
    load(dir).expect("read")
}

/// What every page and drawing must hold to.
fn is_sound(text: &str) {
    for wrong in ["NaN", "inf\"", "Infinity", "-0 ", "=\"\" viewBox"] {
        assert!(!text.contains(wrong), "{wrong} in the text");
    }
}

/// Tags that are opened are closed, in order.
fn is_balanced(xml: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = xml;
    while let Some(start) = rest.find('<') {
        rest = &rest[start + 1..];
        let end = rest.find('>').expect("a tag ends");
        let tag = &rest[..end];
        rest = &rest[end + 1..];
        let name = tag.trim_start_matches('/').split([' ', '\n', '/']).next().unwrap_or("");
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "closed");
        } else if !tag.ends_with('/') && !tag.starts_with(['!', '?']) {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "left open: {open:?}");
}

#[test]
fn a_run_becomes_a_page_with_everything() {
    let dir = tempfile::tempdir().unwrap();
    let digest = small(dir.path(), &Shape { launches: 2, ..Shape::small() });
    let page = page::of_run(&digest);
    is_sound(&page);
    for part in [
        "node1",
        "MPICH Version: 5.0.2",
        "hca3",
        "powersave",
        "cpupower frequency-set",
        "<caption>send, 4 pairs, 4 × 2",
        "barrier",
    ] {
        assert!(page.contains(part), "{part} is not on the page");
    }
    for plot in [
        "time against size",
        "distribution over sizes",
        "cumulative distribution",
        ": tail",
        "contention surface",
        "fits",
        "parameters of the fits",
        "outliers on the time line",
        "Clock error and skew",
        ": skew of starts",
    ] {
        assert!(page.contains(plot), "no plot: {plot}");
    }
    let at = |part: &str| page.find(part).unwrap_or_else(|| panic!("{part} is not on the page"));
    let order = [
        "<details class=\"warnings\">",
        "id=\"overview\"",
        "id=\"contents\"",
        "data-operation",
        "<table",
        "id=\"whole\"",
    ];
    assert!(order.windows(2).all(|two| at(two[0]) < at(two[1])), "warnings, overview, contents, operations, the whole");
}

#[test]
fn a_page_asks_nobody_for_anything() {
    let dir = tempfile::tempdir().unwrap();
    let digest = small(dir.path(), &Shape::small());
    let mut other = digest.clone();
    other.name = "other".into();
    let comparison = compare::compare(&digest, &other);
    for page in [page::of_run(&digest), page::of_two(&digest, &other, &comparison)] {
        for link in [
            "src=",
            "url(",
            "@import",
            "<link",
            "<img",
            "<iframe",
            "<object",
            "fetch(",
            "XMLHttpRequest",
            "WebSocket",
            "import(",
        ] {
            assert!(!page.contains(link), "{link}");
        }
        // The one address is the name of a vocabulary, which nothing is loaded from.
        assert_eq!(page.matches("://").count(), page.matches("http://www.w3.org/2000/svg").count());
        assert!(page.contains("default-src 'none'"));
    }
}

#[test]
fn strings_of_a_run_do_nothing_on_the_page() {
    let dir = tempfile::tempdir().unwrap();
    let hostile = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>&\u{202e}";
    let mut run = Run::new(hostile);
    run.title = Some(hostile.into());
    run.command = vec![hostile.into()];
    run.created_utc = Some("2026-11-21T20:00:00Z".into());
    run.warnings = vec![Warning { code: hostile.into(), message: hostile.into(), advice: Some(hostile.into()) }];
    run.environment.insert(hostile.into(), hostile.into());
    run.transport.provider = Some(hostile.into());
    run.transport.settings.insert(hostile.into(), hostile.into());
    run.nodes = vec![weir_distribution::Node { name: hostile.into(), cpu: Some(hostile.into()), ..Default::default() }];
    run.mpi = Some(weir_distribution::MpiInfo { library_version: hostile.into(), ..Default::default() });
    // The reader refuses some of this; the page must not rely on it.
    let mut configuration = Configuration::pair("send", 8);
    configuration.operation = hostile.into();
    configuration.parameters.insert(hostile.into(), hostile.into());
    let mut cell = Cell::new(0, 0, configuration);
    cell.samples = Some(weir_distribution::SamplesFile::default());
    cell.warnings = vec![Warning { code: "x".into(), message: hostile.into(), advice: None }];
    run.cells = vec![cell];
    let digest = weir_report::condense::digest(run, hostile, &|_| Ok(samples(&[1.0, 2.0, 3.0])));
    let comparison = compare::compare(&digest, &digest);
    let pages = [page::of_run(&digest), page::of_two(&digest, &digest, &comparison)];
    let drawings = run_plots(&digest).into_iter().map(|p| p.svg(Sheet::Adaptive));
    for text in pages.into_iter().chain(drawings) {
        assert!(!text.contains("<script>alert") && !text.contains("<img") && !text.contains('\u{202e}'));
        assert!(!text.contains("\"'>"));
    }
    for plot in run_plots(&digest) {
        assert!(plot.name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-'), "{}", plot.name);
        assert!(!plot.name.is_empty());
    }
    drop(dir);
}

fn samples(durations: &[f64]) -> Vec<Sample> {
    let sample = |(i, d): (usize, &f64)| Sample {
        repetition: i as u32,
        start_ns: i as i64 * 1000,
        duration_ns: *d,
        peer: 1,
        ..Sample::default()
    };
    durations.iter().enumerate().map(sample).collect()
}

/// A run of one operation whose cells have these durations.
fn run_of(dir: &Path, cells: &[(u64, &[f64])]) -> weir_report::digest::Digest {
    let mut writer = Writer::create(dir, Run::new("m"), Existing::Overwrite).unwrap();
    writer.begin_launch(weir_distribution::Launch::default()).unwrap();
    for (size, durations) in cells {
        let mut samples = samples(durations);
        let shape = Shape { fits: false, ..Shape::small() };
        let cell = common::record(0, Configuration::pair("send", *size), &shape, &mut samples, (0, 1000), 0);
        writer.write_cell(cell, &samples).unwrap();
    }
    writer.finish(State::Complete).unwrap();
    load(dir).unwrap()
}

#[test]
fn the_skews_histogram_is_drawn_where_there_is_one() {
    let dir = tempfile::tempdir().unwrap();
    let digest = run_of(dir.path(), &[(8, &[100.0, 110.0, 120.0])]);
    let plots = run_plots(&digest);
    let skew = plots.iter().find(|p| p.title.contains(": skew of starts")).expect("drawn");
    // 200 repetitions, 150 ns to 150 + 4 * 36 * 10 ns apart.
    assert!(
        skew.description.contains("8 B: median ") && skew.description.contains("largest 1.5"),
        "{}",
        skew.description
    );
    // A damaged one is no plot, and does no harm.
    let mut run = digest.run.clone();
    let histogram = &mut run.cells[0].skew.as_mut().unwrap().histogram;
    let Some(weir_distribution::HistogramRecord::Hdr(record)) = histogram else { panic!("{histogram:?}") };
    record.v2_deflate_base64.truncate(record.v2_deflate_base64.len() / 8 * 4);
    let digest = weir_report::condense::digest(run, "damaged", &|_| Ok(samples(&[100.0, 110.0, 120.0])));
    assert!(run_plots(&digest).iter().all(|p| !p.title.contains(": skew of starts")));
}

#[test]
fn outliers_beside_the_choice_are_on_the_time_line_and_nowhere_else() {
    let mut all = samples(&[1000.0; 200]);
    for (k, flags) in [(50, 2 | 16), (120, 2 | 16), (150, 2)] {
        (all[k].duration_ns, all[k].flags) = (1e6, flags);
    }
    let mut cell = Cell::new(0, 0, Configuration::pair("send", 8));
    cell.samples = Some(weir_distribution::SamplesFile::default());
    cell.outliers =
        Some(weir_distribution::Outliers { percentile: 0.99, multiplier: 5.0, boundary_ns: 5000.0, count: 3 });
    let mut run = Run::new("m");
    run.cells = vec![cell];
    let digest = weir_report::condense::digest(run, "m", &move |_| Ok(all.clone()));
    let profile = &digest.profiles[0];
    assert_eq!((profile.strays.len(), profile.stray_count), (3, 3));
    let point = profile.points.values().next().unwrap();
    assert_eq!((point.drawn, point.excluded, point.row.count), (198, 0, 198));
}

#[test]
fn samples_that_depend_on_each_other_are_said_to() {
    // 400 repetitions in phases of 20: the last half of each is slower.
    let durations: Vec<f64> =
        (0..400).map(|k| 1000.0 + f64::from(k % 7) + if k % 20 < 10 { 0.0 } else { 300.0 }).collect();
    let mut cell = Cell::new(0, 0, Configuration::pair("send", 8));
    cell.samples = Some(weir_distribution::SamplesFile::default());
    cell.independence = Some(weir_distribution::Independence {
        repetitions: 400,
        autocorrelation: vec![0.88, 0.7],
        runs_p: 1e-9,
        ljung_box_p: 1e-9,
        effective_count: 33.0,
    });
    let mut run = Run::new("m");
    run.cells = vec![cell];
    let all = samples(&durations);
    let digest = weir_report::condense::digest(run, "m", &move |_| Ok(all.clone()));
    let page = page::of_run(&digest);
    for part in [
        "Dependence: in 1 of 1 cell a",
        "autocorrelation 0.88",
        "<th scope=\"col\">worth</th>",
        "Worth: so many independent",
    ] {
        assert!(page.contains(part), "{part} is not on the page");
    }
    let json = weir_report::json::run_json(&digest);
    assert_eq!(json["operations"][0]["points"][0]["lag1_autocorrelation"], 0.88);
}

#[test]
fn an_empty_run_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let digest = run_of(dir.path(), &[]);
    let page = page::of_run(&digest);
    assert!(page.contains("holds no finished cell"));
    is_sound(&page);
    assert!(run_plots(&digest).is_empty());
}

#[test]
fn one_sample_equal_samples_and_samples_below_zero_are_drawn() {
    let dir = tempfile::tempdir().unwrap();
    let equal = [500.0; 300];
    let cases: [&[(u64, &[f64])]; 5] = [
        &[(8, &[1234.0])],
        &[(8, &equal), (16, &equal)],
        &[(0, &[-20.0, -5.0, 0.0, 30.0, 40.0]), (8, &[0.0])],
        &[(1, &[1e-3, 1e15]), (u64::MAX, &[1e15])],
        &[(8, &[0.0, 0.0, 0.0])],
    ];
    for case in cases {
        let digest = run_of(dir.path(), case);
        let page = page::of_run(&digest);
        is_sound(&page);
        for plot in run_plots(&digest) {
            let svg = plot.svg(Sheet::Adaptive);
            is_sound(&svg);
            is_balanced(&svg);
        }
        let comparison = compare::compare(&digest, &digest);
        is_sound(&page::of_two(&digest, &digest, &comparison));
        use compare::Verdict::{Faster, LaunchesDiffer, Slower};
        assert!(comparison.pairs().all(|p| ![Faster, LaunchesDiffer, Slower].contains(&p.verdict)));
        let json = weir_report::json::run_json(&digest).to_string();
        serde_json::from_str::<serde_json::Value>(&json).unwrap();
    }
}

#[test]
fn a_cell_whose_samples_are_gone_keeps_its_summary() {
    let dir = tempfile::tempdir().unwrap();
    run_of(dir.path(), &[(8, &[100.0, 110.0, 120.0]), (16, &[200.0, 210.0, 220.0])]);
    let first = std::fs::read_dir(dir.path().join("samples")).unwrap().map(|f| f.unwrap().path()).min().unwrap();
    std::fs::remove_file(&first).unwrap();
    let digest = load(dir.path()).unwrap();
    let page = page::of_run(&digest);
    assert!(page.contains("its summary is shown, its distribution is not"));
    assert!(page.contains("110 ns") && page.contains("210 ns"));
}

#[test]
fn what_is_no_run_is_refused_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let error = load(dir.path()).unwrap_err().to_string();
    assert!(!error.contains('\n') && error.contains(&dir.path().display().to_string()), "{error}");
}

/// Writes a run whose cells are these, in this order: operation, size, pairs, launch, number of
/// samples.
fn run_in_order(dir: &Path, launches: u32, cells: &[(&str, u64, u32, u32, u32)]) -> weir_report::digest::Digest {
    let mut run = Run::new("m");
    run.command =
        ["weir", "bench", "--transport", "weir", "--meet", "/tmp/inside/meet", "-o", "r"].map(String::from).to_vec();
    run.transport.settings.insert("OMPI_MCA_PREFIXES".into(), "mca,opal,ompi".into());
    run.transport.settings.insert("OMPI_MCA_btl".into(), "self,tcp".into());
    run.environment.insert("OMPI_MCA_num_procs".into(), "2".into());
    let mut writer = Writer::create(dir, run, Existing::Overwrite).unwrap();
    for number in 0..launches {
        let clock = weir_distribution::ClockInfo {
            source: "tsc".into(),
            algorithm: "none".into(),
            resolution_ns: Some(20.0),
            ..Default::default()
        };
        let warnings = vec![Warning { code: "unpinned".into(), message: "ranks may move".into(), advice: None }];
        let launch = weir_distribution::Launch { number, clock: Some(clock), warnings, ..Default::default() };
        writer.begin_launch(launch).unwrap();
    }
    for &(operation, size, pairs, launch, count) in cells {
        let mut c = Configuration::pair(operation, size);
        (c.pairs, c.ranks, c.ranks_per_node) = (pairs, 2 * pairs.max(1), pairs.max(1));
        let durations: Vec<f64> = (0..count).map(|i| 1000.0 + f64::from(i % 3) * 20.0).collect();
        let mut samples = samples(&durations);
        let shape = Shape { fits: count >= 30, clock_error_ns: 0.0, ..Shape::small() };
        let cell = common::record(launch, c, &shape, &mut samples, (0, 1000), 0);
        writer.write_cell(cell, &samples).unwrap();
    }
    writer.finish(State::Complete).unwrap();
    load(dir).unwrap()
}

#[test]
fn operations_come_by_family_and_name_whatever_the_order_measured() {
    let cells = [
        ("fft", 64, 0, 0, 200),
        ("send", 8, 1, 0, 200),
        ("bcast", 1024, 0, 0, 200),
        ("ping-pong", 8, 1, 0, 200),
        ("bcast", 8, 0, 0, 200),
        ("allreduce", 8, 0, 0, 200),
    ];
    let mut orders = Vec::new();
    for rotation in [0, 2, 5] {
        let dir = tempfile::tempdir().unwrap();
        let mut cells = cells;
        cells.rotate_left(rotation);
        let digest = run_in_order(dir.path(), 1, &cells);
        let names: Vec<String> = digest.profiles.iter().map(|p| p.title.clone()).collect();
        let plots: Vec<String> = run_plots(&digest).into_iter().map(|p| p.name).collect();
        assert_eq!(digest.profiles[2].sizes, [8], "sizes of {names:?}");
        orders.push((names, plots, digest.profiles[3].sizes.clone()));
    }
    assert_eq!(orders[0].0, ["ping-pong", "send", "allreduce", "bcast", "fft"]);
    assert_eq!(orders[0].2, [8, 1024]);
    assert!(orders.iter().all(|o| *o == orders[0]), "{orders:?}");
}

#[test]
fn the_configuration_of_most_cells_is_shown_first() {
    let dir = tempfile::tempdir().unwrap();
    let cells = [("ping-pong", 8, 1, 0, 200), ("ping-pong", 64, 1, 0, 200), ("ping-pong", 8, 2, 1, 200)];
    let digest = run_in_order(dir.path(), 2, &cells);
    let page = page::of_run(&digest);
    assert!(page.contains("<option value=\"0\" selected>1 pair, 2 × 1</option>"), "the odd one is not selected");
    let table = weir_report::table::Table::of_profile(&digest.profiles[0]).text();
    assert!(table.starts_with("ping-pong, 1 pair") && table.contains("ping-pong, 2 pairs"), "{table}");
    assert!(table.contains("half of a round trip"), "{table}");
}

#[test]
fn few_samples_have_neither_p99_nor_form_nor_fits_and_that_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let digest = run_in_order(dir.path(), 1, &[("send", 8, 1, 0, 40), ("send", 64, 1, 0, 400)]);
    let page = page::of_run(&digest);
    assert!(page.contains("1 of 2 cells has fewer than 100 samples (the least: 40, send at 8 B)"));
    let profile = &digest.profiles[0];
    let table = weir_report::table::Table::of_profile(profile).text();
    let row = |size: &str| table.lines().find(|l| l.trim_start().starts_with(size)).unwrap().to_owned();
    assert!(row("8 B").matches("1.04 µs").count() < row("64 B").matches("1.04 µs").count(), "{table}");
    assert!(profile.points.values().all(|p| !p.fits.is_empty()), "both were fitted");
    let fits = weir_report::table::Table::of_fits(profile).expect("of the larger").text();
    assert!(fits.contains("64 B") && !fits.lines().any(|l| l.trim_start().starts_with("8 B")), "{fits}");
    let ridges = run_plots(&digest).into_iter().find(|p| p.name.contains("ridgeline")).unwrap();
    assert_eq!(ridges.body.matches("class=\"ridge").count(), 1, "{}", ridges.body);
}

#[test]
fn a_ridge_at_the_edge_of_the_axis_is_drawn_and_a_row_that_is_not_there_is_told() {
    let dir = tempfile::tempdir().unwrap();
    // The slowest size lies within less than a bin of the axis, but for a tail beyond it.
    let tight = |at: f64| (0..1000).map(|i| if i < 995 { at } else { at * f64::from(i) }).collect::<Vec<f64>>();
    let (small, large) = (tight(1e3), tight(1e9));
    let mut digest = run_of(dir.path(), &[(8, &small), (64, &large), (512, &small)]);
    // Of one size nothing counts: all of it was warm-up.
    let empty = weir_report::curve::Curve::of(&[]);
    digest.profiles[0].points.values_mut().last().unwrap().curve = empty;
    for plot in run_plots(&digest).iter().filter(|p| p.name.contains("ridgeline")) {
        assert_eq!(plot.body.matches("class=\"ridge").count(), 2, "{}: {}", plot.name, plot.body);
        assert!(plot.note.ends_with(" 1 size without a sample that counts left out."), "{}", plot.note);
    }
}

#[test]
fn launches_that_are_far_apart_are_marked_and_named() {
    let digest = run_in_launches(&[1000.0, 4_000_000.0]);
    let table = weir_report::table::Table::of_profile(&digest.profiles[0]).text();
    let row = table.lines().find(|l| l.trim_start().starts_with("64 B")).unwrap();
    assert!(row.contains("‡ 2.00 ms"), "{row}");
    assert!(table.contains("‡ The launches' medians are more than 2 times apart (here up to 4000)"), "{table}");
    let page = page::of_run(&digest);
    assert!(page.contains("Launches far apart: in 2 of 2 cells the launches&#39; medians are more than 2 times apart"));
    let alike = run_in_launches(&[1000.0, 1900.0]);
    assert!(!weir_report::table::Table::of_profile(&alike.profiles[0]).text().contains('‡'));
    assert!(!page::of_run(&alike).contains("Launches far apart"));
}

#[test]
fn a_cell_of_several_launches_counts_once_and_a_launch_that_lacks_some_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let cells = [("send", 8, 1, 0, 40), ("send", 64, 1, 0, 40), ("send", 8, 1, 1, 40), ("send", 64, 1, 2, 40)];
    let digest = run_in_order(dir.path(), 2, &cells[..3]);
    let fact = |digest| page::facts(digest).into_iter().find(|f| f.0 == "Measured").unwrap().1;
    assert!(
        fact(&digest).contains("2 cells; 120 samples; 2 launches (launch 2 measured 1 of them)"),
        "{}",
        fact(&digest)
    );
    let digest = run_in_order(dir.path(), 1, &cells[..2]);
    assert!(fact(&digest).contains("2 cells; 80 samples"), "{}", fact(&digest));
}

#[test]
fn an_interval_that_the_tick_limits_says_so_and_a_kernel_has_no_rate() {
    let dir = tempfile::tempdir().unwrap();
    let digest = run_in_order(dir.path(), 1, &[("fft", 64, 0, 0, 900), ("send", 64, 1, 0, 900)]);
    let table = |i: usize| weir_report::table::Table::of_profile(&digest.profiles[i]).text();
    assert!(table(0).contains("† 1.01 – 1.03 µs") && table(0).contains("a step of the clock, 20 ns"), "{}", table(0));
    assert!(table(0).contains("bandwidth") && !table(1).contains("bandwidth"), "{}", table(1));
    let json = weir_report::json::run_json(&digest);
    assert!(json["operations"][0]["points"][0]["bytes_per_s"].is_number());
    assert!(json["operations"][1]["points"][0]["bytes_per_s"].is_null());
}

#[test]
fn warnings_of_launches_are_merged_and_plumbing_is_not_shown() {
    let dir = tempfile::tempdir().unwrap();
    let digest = run_in_order(dir.path(), 5, &[("send", 8, 1, 0, 200)]);
    let page = page::of_run(&digest);
    assert_eq!(page.matches("ranks may move").count(), 1);
    assert!(page.contains("in each of the 5 launches: ranks may move"));
    assert!(page.contains("OMPI_MCA_btl=self,tcp") && page.contains("weir bench --transport weir -o r"));
    for hidden in ["OMPI_MCA_PREFIXES", "OMPI_MCA_num_procs", "--meet", "/tmp/inside"] {
        assert!(!page.contains(hidden), "{hidden}");
    }
    let mut other = digest.clone();
    other.run.transport.settings.remove("OMPI_MCA_PREFIXES");
    other.run.command.clear();
    other.run.command.extend(["weir", "bench", "--transport", "weir", "-o", "r"].map(String::from));
    let two = page::of_two(&digest, &other, &compare::compare(&digest, &other));
    assert!(!two.contains("class=\"differs\""), "nothing that matters differs");
}

#[test]
fn one_number_says_how_good_the_clocks_were() {
    let dir = tempfile::tempdir().unwrap();
    let mut digest = run_in_order(dir.path(), 1, &[("send", 8, 1, 0, 200)]);
    let clock = digest.run.launches[0].clock.as_mut().unwrap();
    clock.algorithm = "hca3".into();
    clock.ranks = vec![weir_distribution::RankClock { rank: 1, error_ns: 142_000.0, drift_ppm: None }];
    digest.periods.iter_mut().for_each(|s| (s.error_ns, s.skew_ns) = ((0.0, 0.0), Some((22_000.0, Some(30_000.0)))));
    let page = page::of_run(&digest);
    assert!(
        page.contains("no sample depends on it") && page.contains("no sample depends on how well the clocks agree")
    );
    assert!(page.contains("in 1 of 1 cell it is less than the ranks&#39; clocks may be apart (142 µs)"));
    digest.periods.iter_mut().for_each(|s| s.error_ns = (50_000.0, 40_000.0));
    let page = page::of_run(&digest);
    assert!(page.contains("off by at most 50 µs in any sample") && page.contains("a sample is off by at most 50 µs"));
}

/// A run of one cell in launches with these medians; samples lie within 2 ns of them, and the last
/// launch has most.
fn run_in_launches(medians: &[f64]) -> weir_report::digest::Digest {
    let mut run = Run::new("m");
    for launch in 0..medians.len() as u32 {
        let mut cell = Cell::new(launch, launch, Configuration::pair("send", 64));
        cell.samples = Some(weir_distribution::SamplesFile::default());
        run.cells.push(cell);
        let mut other = Cell::new(launch, launch, Configuration::pair("send", 128));
        other.samples = Some(weir_distribution::SamplesFile::default());
        run.cells.push(other);
    }
    let medians = medians.to_vec();
    weir_report::condense::digest(run, "m", &move |cell| {
        let (k, n) = (cell.launch as usize, 150 * (cell.launch + 1).pow(2));
        Ok(samples(&(0..=n).map(|i| medians[k] + 4.0 * (f64::from(i) / f64::from(n) - 0.5)).collect::<Vec<_>>()))
    })
}

#[test]
fn several_launches_say_whose_median_it_is_and_how_they_differ() {
    // The median of all samples would be that of the largest launch, 3000 ns.
    let digest = run_in_launches(&[1000.0, 2000.0, 3000.0]);
    let point = digest.profiles[0].points.values().next().unwrap();
    assert!((point.row.p50_ns - 2000.0).abs() < 1.0 && (point.curve.quantile(0.5).unwrap() - 3000.0).abs() < 2.0);
    let table = weir_report::table::Table::of_profile(&digest.profiles[0]).text();
    let head = table.lines().nth(1).unwrap();
    for column in ["median of medians", "median of p99s", "launches", "their medians"] {
        assert!(head.contains(column), "{column}: {head}");
    }
    let row = table.lines().find(|l| l.trim_start().starts_with("64 B")).unwrap();
    assert!(row.contains("2.00 µs") && row.ends_with("3  1.00 – 3.00 µs"), "{row}");
    assert!(table.contains("medians of their medians"), "{table}");
    let json = weir_report::json::run_json(&digest);
    let of = &json["operations"][0]["points"][0];
    assert_eq!((&of["summary_of"], of["launches"].as_u64()), (&"launches".into(), Some(3)));
    let medians: Vec<f64> = of["launch_medians_ns"].as_array().unwrap().iter().filter_map(|m| m.as_f64()).collect();
    assert!(medians.iter().zip([1000.0, 2000.0, 3000.0]).all(|(a, b)| (a - b).abs() < 1.0), "{medians:?}");
    assert!((of["summary"]["p50_ns"].as_f64().unwrap() - 2000.0).abs() < 1.0);
    let plots = run_plots(&digest);
    let plot = |what: &str| plots.iter().find(|p| p.title.contains(what)).unwrap();
    let sizes = plot("time against size");
    assert!(sizes.explanation.contains("median of their medians"), "{}", sizes.explanation);
    assert!(sizes.body.contains("over 3 launches, whose medians are 1.00 – 3.00 µs"));
    // Three ticks at each of two sizes.
    let ticks = sizes.body.lines().filter(|l| l.contains("\"thin c0\"") && l.matches('h').count() >= 6);
    assert_eq!(ticks.count(), 1, "{}", sizes.body);
    for what in ["cumulative distribution", "tail"] {
        assert!(plot(what).explanation.contains("All launches' samples together"), "{what}");
    }
    assert!(plot("distribution over sizes").explanation.contains("median of their medians"));
}

#[test]
fn one_launch_is_said_to_be_nothing_else() {
    let digest = run_in_launches(&[1000.0]);
    let table = weir_report::table::Table::of_profile(&digest.profiles[0]).text();
    assert!(!table.contains("launch") && !table.contains("median of medians"), "{table}");
    let json = weir_report::json::run_json(&digest);
    assert_eq!(json["operations"][0]["points"][0]["summary_of"], "samples");
    assert!(run_plots(&digest).iter().all(|p| !p.explanation.contains("launch") && !p.body.contains("launch")));
}

#[test]
fn words_of_a_plot_stand_beside_its_drawing_on_a_page() {
    let digest = run_in_launches(&[1000.0, 1010.0]);
    let page = page::of_run(&digest);
    let figures: Vec<&str> = page.split("<figure").skip(1).collect();
    assert!(figures.len() > 5);
    for figure in figures {
        let figure = figure.split("</figure>").next().unwrap();
        let caption =
            figure.split("<figcaption>").nth(1).and_then(|c| c.split("</figcaption>").next()).expect("a caption");
        assert!(
            caption.starts_with("<strong>") && caption.split("</strong>").nth(1).is_some_and(|c| c.len() > 20),
            "{caption}"
        );
    }
}

#[test]
fn starts_of_too_few_repetitions_have_no_99th_percentile() {
    let dir = tempfile::tempdir().unwrap();
    let digest = run_of(dir.path(), &[(8, &[100.0, 110.0, 120.0])]);
    let mut run = digest.run.clone();
    let skew = run.cells[0].skew.as_mut().unwrap();
    skew.summary.count = 40;
    let mut recorder = weir_stats::Recorder::new(weir_stats::RecorderConfig::default()).unwrap();
    for i in 0..40 {
        recorder.record(f64::from(i) * 10.0).unwrap();
    }
    let Some(weir_distribution::HistogramRecord::Hdr(record)) = &mut skew.histogram else { panic!("none") };
    (record.count, record.v2_deflate_base64) = (40, recorder.to_base64());
    let few = weir_report::condense::digest(run, "few", &|_| Ok(samples(&[100.0, 110.0, 120.0])));
    let text = |digest| -> String {
        let plots = run_plots(digest).into_iter().filter(|p| p.title.contains("kew of starts"));
        plots.map(|p| p.svg(Sheet::Adaptive)).collect()
    };
    assert!(text(&digest).matches("p99").count() >= 3, "of 200 repetitions there is one");
    assert!(!text(&few).contains("p99") && text(&few).contains("median"), "{}", text(&few));
}

/// Marks by kind: what a drawing consists of, not where its pixels are.
fn structure(svg: &str) -> String {
    let mut out = String::new();
    for line in svg.lines().filter(|l| l.starts_with('<')) {
        let class = line.split("class=\"").nth(1).and_then(|r| r.split('"').next()).unwrap_or("");
        let tag = line[1..].split([' ', '>']).next().unwrap_or("");
        if !matches!(tag, "svg" | "style" | "/svg" | "/style" | "title" | "desc") {
            let text =
                if tag == "text" { line.split('>').nth(1).and_then(|r| r.split('<').next()).unwrap_or("") } else { "" };
            out += &format!("{tag} {class} {text}\n").replace("  ", " ");
        }
    }
    out
}

#[test]
fn drawings_consist_of_what_they_should() {
    let dir = tempfile::tempdir().unwrap();
    let digest = small(dir.path(), &Shape { sizes: vec![0, 1024], collectives: Vec::new(), ..Shape::small() });
    let plots = run_plots(&digest);
    let mut out = String::new();
    for plot in &plots {
        is_balanced(&plot.svg(Sheet::Adaptive));
        out += &format!("== {}: {}\n{}", plot.name, plot.title, structure(&plot.svg(Sheet::Plain)));
    }
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/structure.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(golden.parent().unwrap()).unwrap();
        std::fs::write(&golden, &out).unwrap();
    }
    let expected = std::fs::read_to_string(&golden).expect("tests/golden/structure.txt; make it with UPDATE_GOLDEN=1");
    assert!(
        expected == out,
        "the drawings changed; look at them, then run with UPDATE_GOLDEN=1. First difference: {:?}",
        first_difference(&expected, &out)
    );
}

fn first_difference<'a>(a: &'a str, b: &'a str) -> Option<(&'a str, &'a str)> {
    a.lines().zip(b.lines()).find(|(x, y)| x != y)
}

#[test]
fn pixels_are_drawn_with_letters_of_our_own() {
    let dir = tempfile::tempdir().unwrap();
    let digest = run_of(dir.path(), &[(8, &[100.0, 110.0, 120.0])]);
    let mut plot = run_plots(&digest).remove(0);
    let with = weir_report::png::png(&plot).unwrap();
    assert_eq!(&with[..8], b"\x89PNG\r\n\x1a\n");
    // The same drawing without its words has other pixels: the words were drawn.
    plot.body = plot.body.lines().filter(|l| !l.starts_with("<text")).collect::<Vec<_>>().join("\n");
    (plot.title, plot.explanation, plot.note) = Default::default();
    let without = weir_report::png::png(&plot).unwrap();
    assert!(with.len() > without.len() + 2000, "{} and {} bytes", with.len(), without.len());
}

#[test]
fn a_page_of_many_cells_stays_small() {
    let mut run = Run::new("large");
    let levels: Vec<u32> = (1..=16).collect();
    for operation in 0..24 {
        for &pairs in &levels {
            for size in 0..22 {
                let mut c = Configuration::pair("send", 1 << size);
                c.operation = format!("op{operation}").as_str().into();
                (c.pairs, c.ranks) = (pairs, 2 * pairs);
                let mut cell = Cell::new(run.cells.len() as u32, 0, c);
                cell.samples = Some(weir_distribution::SamplesFile::default());
                run.cells.push(cell);
            }
        }
    }
    let durations: Vec<f64> = (0..2000).map(|i| 1000.0 + f64::from(i) * 1.7).collect();
    let digest = weir_report::condense::digest(run, "large", &|_| Ok(samples(&durations)));
    let page = page::of_run(&digest);
    assert!(page.len() <= page::MAX_BYTES, "{} bytes", page.len());
    assert!(page.contains("levels are drawn"), "it says what was left out");
}

#[test]
fn a_run_that_was_cut_off_is_told_from_one_that_is_being_measured() {
    use weir_distribution::{Cell, Configuration, Existing, Launch, Operation, Run, SummaryRecord, Writer};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    let mut writer = Writer::create(&path, Run::new("m"), Existing::Refuse).unwrap();
    writer.begin_launch(Launch { state: weir_distribution::State::Running, ..Launch::default() }).unwrap();
    let configuration = Configuration {
        operation: Operation::from(Operation::PING_PONG),
        size_bytes: 8,
        size_mode: Default::default(),
        nodes: 2,
        ranks_per_node: 1,
        ranks: 2,
        pairs: 1,
        locality: Default::default(),
        start: Default::default(),
        parameters: Default::default(),
    };
    let summary = SummaryRecord { count: 1, ..SummaryRecord::default() };
    writer.write_record(Cell { summary: Some(summary), ..Cell::new(0, 0, configuration) }).unwrap();
    // Half of a line, as a writer leaves it for an instant.
    std::fs::write(path.join("cells.jsonl"), "{\"id\": 1, \"conf").unwrap();
    let told = || page::of_run(&load(&path).unwrap());
    let during = told();
    assert!(during.contains("Launch 1 is being measured now, with 1 finished cell so far."));
    // As the kernel does for a process that was killed.
    drop(writer);
    let after = told();
    assert!(after.contains("Launch 1 was cut off after 1 finished cell, which is whole: it did not end"));
    assert!(after.contains("the last line of cells.jsonl is cut short") && !during.contains("cells.jsonl"));
    assert!(!during.contains("still being written") && !after.contains("still being written"));
}

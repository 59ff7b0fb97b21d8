//! What a run records beside times: spans, bandwidths, ranks that moved. Each is in the table, in
//! plots and in the document for programs, of one run and of two.

mod common;

use weir_distribution::{
    Bandwidth, Cell, Configuration, HistogramRecord, Moved, Outliers, Overlap, Run, Sample, SamplesFile, Skew,
    SummaryRecord, flags,
};
use weir_report::compare::compare;
use weir_report::condense::digest;
use weir_report::digest::Digest;
use weir_report::frame::Plot;
use weir_report::json::{comparison_json, run_json};
use weir_report::table::Table;
use weir_report::{comparison_plots, page, run_plots};

fn summary(p50_ns: f64, count: u64) -> SummaryRecord {
    SummaryRecord {
        count,
        min_ns: 0.9 * p50_ns,
        p1_ns: 0.95 * p50_ns,
        p50_ns,
        p99_ns: 2.0 * p50_ns,
        max_ns: 9.0 * p50_ns,
        mean_ns: 1.1 * p50_ns,
        median_low_ns: Some(0.99 * p50_ns),
        median_high_ns: Some(1.01 * p50_ns),
        median_level: Some(0.95),
        ..SummaryRecord::default()
    }
}

fn cell(launch: u32, operation: &str, size_bytes: u64, pairs: u32, p50_ns: f64) -> Cell {
    let configuration = Configuration { pairs, ..Configuration::pair(operation, size_bytes) };
    Cell { summary: Some(summary(p50_ns, 1000)), ..Cell::new(0, launch, configuration) }
}

fn spanning(launch: u32, size: u64, span_ns: f64) -> Cell {
    let span = Skew { summary: summary(span_ns, 1000), histogram: common::between(span_ns).histogram };
    Cell { span: Some(span), ..cell(launch, "bcast", size, 0, 2000.0) }
}

fn streaming(launch: u32, size: u64, p50_bytes_per_s: f64) -> Cell {
    let bandwidth = Bandwidth {
        bytes: size as f64,
        min_bytes_per_s: None,
        p1_bytes_per_s: 0.5 * p50_bytes_per_s,
        p50_bytes_per_s,
        p99_bytes_per_s: 1.5 * p50_bytes_per_s,
        mean_bytes_per_s: 0.9 * p50_bytes_per_s,
    };
    // A time that tells another bandwidth: what is recorded counts.
    Cell { bandwidth: Some(bandwidth), ..cell(launch, "stream", size, 1, 1.0) }
}

fn run(cells: Vec<Cell>) -> Digest {
    let mut run = Run::new("m");
    run.cells = cells.into_iter().zip(0..).map(|(cell, id)| Cell { id, ..cell }).collect();
    digest(run, "run1", &|_| Err("there are no samples".into()))
}

fn table(digest: &Digest, profile: usize) -> String {
    Table::of_profile(&digest.profiles[profile]).text()
}

fn plot<'a>(plots: &'a [Plot], title: &str) -> &'a Plot {
    plots.iter().find(|p| p.title.ends_with(title)).unwrap_or_else(|| panic!("no plot: {title}"))
}

fn row<'a>(table: &'a str, size: &str) -> &'a str {
    table.lines().find(|l| l.trim_start().starts_with(size)).expect("a row")
}

#[test]
fn the_span_of_a_collective_is_in_the_table_in_plots_and_for_programs() {
    let digest = run(vec![spanning(0, 8, 5000.0), spanning(0, 64, 7000.0)]);
    let text = table(&digest, 0);
    assert!(text.contains("  span  ") && row(&text, "8 B").contains("5.00 µs"), "{text}");
    assert!(text.contains("Span: how long a repetition took as a whole"), "{text}");
    let point = &run_json(&digest)["operations"][0]["points"][1];
    assert_eq!((point["span"]["p50_ns"].as_f64(), point["skew"].is_null()), (Some(7000.0), true));
    let plots = run_plots(&digest);
    let sizes = plot(&plots, "span against size");
    assert_eq!(sizes.description, "8 B: span 5 µs; 64 B: span 7 µs");
    for line in ["at a rank", "span p99", ">span<"] {
        assert!(sizes.body.contains(line), "{line}: {}", sizes.body);
    }
    let form = plot(&plots, "distribution of the span");
    // The panel's axis begins where spans do, not at 0, which would leave them a sliver.
    assert!(form.description.starts_with("8 B: median 5.") && form.body.contains("64 B"), "{}", form.description);
    assert!(page::of_run(&digest).contains("bcast: span against size"));
    // Several launches: the median of theirs.
    let several = run(vec![spanning(0, 8, 5000.0), spanning(1, 8, 6000.0), spanning(2, 8, 50_000.0)]);
    assert_eq!(run_json(&several)["operations"][0]["points"][0]["span"]["p50_ns"], 6000.0);
    // Without any there is neither column nor plot.
    let none = run(vec![cell(0, "bcast", 8, 0, 2000.0), cell(0, "bcast", 64, 0, 2000.0)]);
    assert!(!table(&none, 0).contains("span") && !run_plots(&none).iter().any(|p| p.title.contains("span")));
}

#[test]
fn overlap_is_in_the_table_and_for_programs() {
    let overlapping = |launch, size, percent| {
        let overlap = Some(Overlap { alone_ns: 2000.0, compute_ns: 2000.0, percent });
        Cell { overlap, ..cell(launch, "overlap", size, 1, 2000.0) }
    };
    let digest = run(vec![overlapping(0, 8, 99.5), overlapping(0, 64, -12.25)]);
    let text = table(&digest, 0);
    assert!(text.contains("  overlap  ") && text.contains("Overlap: how much of the exchange went on"), "{text}");
    // The time is of computing as well.
    assert!(!text.contains("bandwidth"), "{text}");
    assert!(row(&text, "8 B").contains("99.5 %") && row(&text, "64 B").contains("-12.2 %"), "{text}");
    let point = &run_json(&digest)["operations"][0]["points"][1];
    assert_eq!((&point["overlap"]["percent"], &point["overlap"]["alone_ns"]), (&(-12.25).into(), &2000.0.into()));
    // Several launches: the median of theirs.
    let several = run([30.0, 50.0, 90.0].into_iter().zip(0..).map(|(p, launch)| overlapping(launch, 8, p)).collect());
    assert_eq!(run_json(&several)["operations"][0]["points"][0]["overlap"]["percent"], 50.0);
    let none = run(vec![cell(0, "send", 8, 1, 2000.0)]);
    assert!(!table(&none, 0).to_lowercase().contains("overlap"));
    assert!(run_json(&none)["operations"][0]["points"][0]["overlap"].is_null());
}

#[test]
fn waits_of_a_farm_and_its_bandwidth_are_in_the_table_and_for_programs() {
    let farm = |launch, p50_ns: f64| {
        let summary = SummaryRecord { p50_ns, p99_ns: 9e6, ..cell(launch, "farm", 8, 1, 2000.0).summary.unwrap() };
        let bandwidth = Bandwidth {
            bytes: 8000.0,
            min_bytes_per_s: Some(1e6),
            p1_bytes_per_s: 1e6,
            p50_bytes_per_s: 2e6,
            p99_bytes_per_s: 3e6,
            mean_bytes_per_s: 2e6,
        };
        let waits = Some(Skew { summary, histogram: None });
        Cell { waits, bandwidth: Some(bandwidth), ..cell(launch, "farm", 8, 1, 2000.0) }
    };
    let digest = run(vec![farm(0, 3000.0)]);
    let text = table(&digest, 0);
    assert!(text.contains("waits, p50 – p99") && text.contains("Waits: how long the answer to a request"), "{text}");
    assert!(row(&text, "8 B").contains("3 µs – 9 ms") && row(&text, "8 B").contains("MB/s"), "{text}");
    let several = run((0..).zip([3000.0, 5000.0, 9000.0]).map(|(launch, p50)| farm(launch, p50)).collect());
    assert_eq!(run_json(&several)["operations"][0]["points"][0]["waits"]["p50_ns"], 5000.0);
    let none = run(vec![cell(0, "send", 8, 1, 2000.0)]);
    assert!(!table(&none, 0).to_lowercase().contains("waits"));
    assert!(run_json(&none)["operations"][0]["points"][0]["waits"].is_null());
}

#[test]
fn a_span_of_few_repetitions_has_no_99th_percentile() {
    let mut few = spanning(0, 8, 5000.0);
    few.span.as_mut().unwrap().summary.count = 99;
    let plots = run_plots(&run(vec![few, spanning(0, 64, 7000.0)]));
    let sizes = plot(&plots, "span against size");
    assert_eq!(sizes.note, "1 size with fewer than 100 repetitions has no 99th percentile.");
    assert!(!sizes.body.contains("8 B: span p99") && sizes.body.contains("64 B: span p99"), "{}", sizes.body);
}

#[test]
fn a_recorded_bandwidth_counts_and_another_follows_from_the_times() {
    let cells = vec![
        streaming(0, 1024, 1e9),
        streaming(0, 65_536, 3e9),
        cell(0, "send", 1000, 1, 2000.0),
        cell(0, "send", 4000, 1, 2000.0),
        cell(0, "fft", 1000, 0, 2000.0),
        cell(0, "barrier", 0, 0, 2000.0),
    ];
    let digest = run(cells);
    let json = run_json(&digest);
    let of = |operation: &str| {
        let all = json["operations"].as_array().unwrap();
        &all.iter().find(|o| o["operation"] == operation).unwrap()["points"][0]
    };
    let stream = &of("stream")["bandwidth"];
    assert_eq!((stream["p50_bytes_per_s"].as_f64(), &stream["recorded"]), (Some(1e9), &true.into()));
    assert_eq!(of("stream")["bytes_per_s"], 1e9);
    let send = &of("send")["bandwidth"];
    assert_eq!((send["p50_bytes_per_s"].as_f64(), &send["recorded"]), (Some(5e8), &false.into()));
    // The slowest percent of messages has the lowest bandwidth.
    assert!((send["p1_bytes_per_s"].as_f64().unwrap() - 2.5e8).abs() < 1.0, "{send}");
    assert!(of("fft")["bandwidth"].is_null() && of("barrier")["bandwidth"].is_null());
    let profile = |operation: &str| digest.profiles.iter().position(|p| p.title == operation).unwrap();
    let text = table(&digest, profile("stream"));
    assert!(text.contains("its p1 – p99") && row(&text, "1 KiB").contains("1 GB/s  500 MB/s – 1.5 GB/s"), "{text}");
    let text = table(&digest, profile("send"));
    assert!(text.contains("bandwidth") && !text.contains("its p1") && text.contains("500 MB/s"), "{text}");
    assert!(!table(&digest, profile("fft")).contains("bandwidth"));
    let plots = run_plots(&digest);
    let stream = plot(&plots, "stream: bandwidth against size");
    assert_eq!(stream.note, "The highest median is 3 GB/s at 64 KiB; half of it is reached at 64 KiB.");
    assert!(stream.explanation.contains("as measured") && stream.body.contains("band f0"), "{}", stream.explanation);
    let send = plot(&plots, "send: bandwidth against size");
    assert_eq!(send.note, "The highest median is 2 GB/s at 4000 B; half of it is reached at 4000 B.");
    assert!(!plots.iter().any(|p| p.title.starts_with("fft: bandwidth")));
    assert!(page::of_run(&digest).contains("stream: bandwidth against size"));
}

#[test]
fn ranks_that_moved_are_named_in_the_table_in_plots_and_for_programs() {
    let with = |launch: u32, moved: &[(u32, u64)]| Cell {
        moved: moved.iter().map(|&(rank, batches)| Moved { rank, batches }).collect(),
        ..cell(launch, "send", 8, 1, 2000.0)
    };
    let mut cells = vec![with(0, &[(3, 1)]), with(1, &[(1, 4), (3, 2)]), cell(0, "send", 64, 1, 2000.0)];
    cells.push(cell(1, "send", 64, 1, 2000.0));
    let digest = run(cells);
    let text = table(&digest, 0);
    assert!(row(&text, "8 B").contains("ranks 1, 3") && !row(&text, "64 B").contains("rank"), "{text}");
    assert!(text.contains("Moved: ranks whose processor was another one"), "{text}");
    let json = run_json(&digest);
    let told = |digest: &Digest| {
        let all = weir_report::warnings::of_run(digest).into_iter();
        all.filter(|w| w.code == "moved-ranks").map(|w| w.message).collect::<Vec<_>>()
    };
    let expected = "Ranks moved: in 1 of 2 cells ranks changed their processor during a batch of repetitions; most in send at 8 B (ranks 1, 3).";
    assert_eq!(told(&digest), [expected]);
    // Where the writer said so itself it is said once, in its words.
    let mut said = digest.clone();
    said.warnings.push(weir_report::notes::warning("moved-ranks", "rank 3 moved".into(), None));
    assert_eq!(told(&said), ["rank 3 moved"]);
    let points = &json["operations"][0]["points"];
    let expected = serde_json::json!([{"rank": 1, "batches": 4}, {"rank": 3, "batches": 3}]);
    assert_eq!((&points[0]["moved"], &points[1]["moved"]), (&expected, &serde_json::json!([])));
    let plots = run_plots(&digest);
    let sizes = plot(&plots, "time against size");
    assert!(sizes.note.contains("Triangles at the upper edge: 1 cell in which ranks"), "{}", sizes.note);
    assert!(sizes.body.contains("changed the processor meanwhile: ranks 1, 3") && sizes.body.contains("class=\"f3\""));
    // Nobody moved: nothing is said.
    let none = run(vec![cell(0, "send", 8, 1, 2000.0), cell(0, "send", 64, 1, 2000.0)]);
    assert!(!table(&none, 0).contains("moved") && !plot(&run_plots(&none), "time against size").body.contains("f3"));
}

#[test]
fn an_outlier_in_a_batch_in_which_its_rank_moved_is_marked_on_the_time_line() {
    let marked = |moved: u8| {
        let mut cell = Cell::new(0, 0, Configuration::pair("send", 8));
        cell.samples = Some(SamplesFile::default());
        cell.outliers = Some(Outliers { percentile: 0.99, multiplier: 5.0, boundary_ns: 5000.0, count: 2 });
        let mut run = Run::new("m");
        run.cells = vec![cell];
        let sample =
            |i: u32| Sample { repetition: i, start_ns: i64::from(i) * 1000, duration_ns: 1000.0, ..Sample::default() };
        let mut all: Vec<Sample> = (0..200).map(sample).collect();
        for (k, flag) in [(50, moved), (120, 0)] {
            (all[k].duration_ns, all[k].flags) = (1e6, flags::OUTLIER | flag);
        }
        let digest = digest(run, "m", &move |_| Ok(all.clone()));
        plot(&run_plots(&digest), "outliers on the time line").clone()
    };
    let plain = marked(0);
    assert!(!plain.body.contains("ring c3") && !plain.note.contains("In a box"), "{}", plain.note);
    let moved = marked(flags::MOVED);
    assert!(moved.note.contains("In a box: 1 in a batch in which the rank or its partner"), "{}", moved.note);
    assert!(moved.body.contains("ring c3") && moved.body.matches("changed the processor then").count() == 1);
}

#[test]
fn two_runs_have_their_spans_and_bandwidths_beside_each_other() {
    let of = |factor: f64| {
        run(vec![
            spanning(0, 8, 5000.0 * factor),
            spanning(0, 64, 7000.0 * factor),
            streaming(0, 1024, 1e9 / factor),
            streaming(0, 65_536, 3e9 / factor),
            cell(0, "barrier", 0, 0, 100.0),
        ])
    };
    let (first, second) = (of(1.0), of(2.0));
    let comparison = compare(&first, &second);
    let json = comparison_json(&first, &second, &comparison);
    let of = |operation: &str| {
        let all = json["operations"].as_array().unwrap();
        &all.iter().find(|o| o["operation"] == operation).unwrap()["cells"][0]
    };
    assert_eq!((of("bcast")["first_span_ns"].as_f64(), of("bcast")["second_span_ns"].as_f64()), (Some(5e3), Some(1e4)));
    let stream = of("stream");
    assert_eq!((stream["first_bytes_per_s"].as_f64(), stream["second_bytes_per_s"].as_f64()), (Some(1e9), Some(5e8)));
    assert!(stream["first_span_ns"].is_null() && of("barrier")["first_bytes_per_s"].is_null());
    let text =
        |operation: &str| Table::of_match(comparison.matches.iter().find(|m| m.title == operation).unwrap()).text();
    assert!(
        text("bcast").contains("second span") && row(&text("bcast"), "8 B").contains("5.00 µs      10.0 µs"),
        "{}",
        text("bcast")
    );
    assert!(row(&text("stream"), "1 KiB").contains("1 GB/s") && row(&text("stream"), "1 KiB").contains("500 MB/s"));
    assert!(!text("barrier").contains("span") && !text("barrier").contains("bandwidth"));
    let plots = comparison_plots(&first, &second, &comparison);
    assert_eq!(plot(&plots, "bcast: span against size").description, "8 B: 5 µs and 10 µs; 64 B: 7 µs and 14 µs");
    assert!(plot(&plots, "stream: bandwidth against size").description.starts_with("1 KiB: 1 GB/s and 500 MB/s"));
    let page = page::of_two(&first, &second, &comparison);
    assert!(page.contains("bcast: span against size") && page.contains("stream: bandwidth against size"));
}

#[test]
fn a_damaged_histogram_of_a_span_is_told() {
    let mut cell = spanning(0, 8, 5000.0);
    let Some(HistogramRecord::Hdr(hdr)) = &mut cell.span.as_mut().unwrap().histogram else { panic!("none") };
    hdr.count += 1;
    let digest = run(vec![cell]);
    let found = weir_report::notes::damaged_histograms(&digest.run);
    assert!(found.len() == 1 && found[0].0 == "cells[0].span.histogram.hdr.v2_deflate_base64", "{found:?}");
}

#[test]
fn pairs_of_threads_are_levels_of_their_operation_in_the_order_of_their_number() {
    let threaded = |launch: u32, threads: u32, size: u64, p50_ns: f64| {
        let mut cell = cell(launch, "ping-pong", size, 1, p50_ns);
        cell.configuration.parameters.insert("threads".into(), threads.to_string());
        cell
    };
    let all = |factor: f64| {
        let sizes = [8, 64].into_iter();
        sizes.flat_map(|size| [16, 2].map(|n| threaded(0, n, size, 1000.0 * f64::from(n) * factor))).collect::<Vec<_>>()
    };
    let digest = run(all(1.0));
    assert_eq!((digest.profiles.len(), digest.profiles[0].key.parameters.len()), (1, 0));
    let labels: Vec<String> = digest.profiles[0].levels.iter().map(|level| level.label()).collect();
    assert_eq!(labels, ["1 pair of 2 threads, 2 × 1", "1 pair of 16 threads, 2 × 1"]);
    let text = table(&digest, 0);
    let (two, sixteen) = (text.find("1 pair of 2 threads").unwrap(), text.find("1 pair of 16 threads").unwrap());
    assert!(two < sixteen && text[two..sixteen].contains("2.00 µs"), "{text}");
    let points = &run_json(&digest)["operations"][0]["points"];
    assert_eq!((points[0]["level"]["threads"].as_u64(), points[3]["level"]["threads"].as_u64()), (Some(2), Some(16)));
    let page = page::of_run(&digest);
    assert!(page.contains("1 pair of 16 threads"));
    // Axes with few letters say what they count.
    assert!(page.contains(">pairs·threads<") && page.contains("1·4 is one pair of ranks with 4 threads each"));
    // A cell of ranks as a whole is no partner of one of threads.
    let mut plain = all(2.0);
    plain[0].configuration.parameters.clear();
    let other = run(plain);
    let compared = comparison_json(&digest, &other, &compare(&digest, &other));
    let cells = compared["operations"][0]["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 3, "{cells:?}");
    assert!(cells.iter().all(|cell| cell["level"]["threads"].as_u64().is_some()), "{cells:?}");
    assert!(
        run_json(&run(vec![cell(0, "send", 8, 1, 1.0)]))["operations"][0]["points"][0]["level"]["threads"].is_null()
    );
}

//! Exports against golden files. After a wanted change:
//! `WEIR_UPDATE_GOLDEN=1 cargo test -p weir-distribution --test export`, and look at the
//! difference.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use weir_distribution::export::{classic, csv};
use weir_distribution::*;

/// The files are those of the folder, by name and byte.
fn compare(files: &[PathBuf], golden: &str) {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(golden);
    if std::env::var_os("WEIR_UPDATE_GOLDEN").is_some() {
        let _ = fs::remove_dir_all(&golden);
        fs::create_dir_all(&golden).unwrap();
        for file in files {
            fs::copy(file, golden.join(file.file_name().unwrap())).unwrap();
        }
    }
    let mut expected: Vec<_> = fs::read_dir(&golden).unwrap().map(|e| e.unwrap().file_name()).collect();
    let mut made: Vec<_> = files.iter().map(|f| f.file_name().unwrap().to_owned()).collect();
    expected.sort();
    made.sort();
    assert_eq!(made, expected);
    for file in files {
        let name = file.file_name().unwrap();
        let (made, golden) = (fs::read_to_string(file).unwrap(), fs::read_to_string(golden.join(name)).unwrap());
        assert!(made == golden, "{} differs from its golden file:\n{made}", name.display());
    }
}

fn small() -> (tempfile::TempDir, Reader) {
    let dir = tempfile::tempdir().unwrap();
    common::small_run(&dir.path().join("run"));
    let reader = Reader::open(dir.path().join("run")).unwrap();
    (dir, reader)
}

#[test]
fn flat_csv_is_as_it_was() {
    let (dir, reader) = small();
    compare(&csv::write(&reader, &dir.path().join("out"), csv::Layout::Flat, csv::Packing::Plain).unwrap(), "csv-flat");
}

#[test]
fn packed_csv_holds_what_plain_csv_does_and_its_size_is_known_beforehand() {
    use std::io::Read;
    let (dir, reader) = small();
    let write = |name: &str, layout, packing| csv::write(&reader, &dir.path().join(name), layout, packing).unwrap();
    let plain = write("plain", csv::Layout::Flat, csv::Packing::Plain);
    let packed = write("packed", csv::Layout::Flat, csv::Packing::Gzip);
    for (plain, packed) in plain.iter().zip(&packed) {
        assert_eq!(packed.extension().unwrap(), "gz");
        let mut text = String::new();
        flate2::read::GzDecoder::new(std::fs::File::open(packed).unwrap()).read_to_string(&mut text).unwrap();
        assert_eq!(text, std::fs::read_to_string(plain).unwrap());
    }
    let only = write("only", csv::Layout::CellsOnly, csv::Packing::Plain);
    assert_eq!(only, [dir.path().join("only/cells.csv")]);
    let text = std::fs::read_to_string(&plain[1]).unwrap();
    let told = csv::estimate(&reader, csv::Layout::Flat).unwrap();
    assert_eq!(told.rows as usize, text.lines().count() - 1);
    let head = text.lines().next().unwrap().len() + 1;
    let is = (text.len() - head) as f64;
    assert!((told.bytes as f64 - is).abs() < 0.05 * is, "{} told, {is} written", told.bytes);
    assert_eq!(csv::estimate(&reader, csv::Layout::CellsOnly).unwrap(), csv::Estimate::default());
}

#[test]
fn csv_for_each_cell_is_as_it_was() {
    let (dir, reader) = small();
    compare(
        &csv::write(&reader, &dir.path().join("out"), csv::Layout::PerCell, csv::Packing::Plain).unwrap(),
        "csv-per-cell",
    );
}

#[test]
fn classic_files_are_as_they_were() {
    let (dir, reader) = small();
    let options = classic::Options::default();
    compare(&classic::write(&reader, &dir.path().join("out"), &options).unwrap(), "classic");
}

#[test]
fn classic_files_follow_the_variables() {
    let (dir, reader) = small();
    let options = classic::Options::from_variables(|name| match name {
        "MPIBENCH_HIST_BIN" => Some("0.0005".to_owned()),
        "MPIBENCH_OUTLIER_PERCENTILE" => Some("0.5".to_owned()),
        "MPIBENCH_OUTLIER_PERCENTILE_MULTIPLIER" => Some("1.2".to_owned()),
        "MPIBENCH_SUBSAMPLES" => Some("2".to_owned()),
        _ => None,
    });
    compare(&classic::write(&reader, &dir.path().join("out"), &options.unwrap()).unwrap(), "classic-variables");
}

/// A run of two launches with what some operations record besides: spans, bandwidths, waits.
fn with_more() -> (tempfile::TempDir, Reader) {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(dir.path().join("run"), Run::new("perseus"), Existing::Refuse).unwrap();
    for (number, slower) in [(0, 1.0), (1, 1.5)] {
        writer.begin_launch(Launch { number, ..Launch::default() }).unwrap();
        let summary = |p50_ns: f64| SummaryRecord {
            count: 40,
            min_ns: 0.5 * p50_ns,
            p1_ns: 0.5 * p50_ns,
            p25_ns: 0.75 * p50_ns,
            p50_ns,
            p75_ns: 1.25 * p50_ns,
            p99_ns: 2.0 * p50_ns,
            p999_ns: 3.0 * p50_ns,
            max_ns: 3.0 * p50_ns,
            mean_ns: 1.125 * p50_ns,
            stddev_ns: 0.25 * p50_ns,
            median_low_ns: Some(0.9375 * p50_ns),
            median_high_ns: Some(1.0625 * p50_ns),
            ..SummaryRecord::default()
        };
        for size in [8, 64] {
            let bcast = Configuration { pairs: 0, ..Configuration::pair("bcast", size) };
            let span = Skew { summary: summary(slower * (5000 + size) as f64), histogram: None };
            let cell = Cell { span: Some(span), summary: Some(summary(2000.0)), ..Cell::new(0, number, bcast) };
            writer.write_record(cell).unwrap();
            let p50 = 1e9 / slower;
            let bandwidth = Bandwidth {
                bytes: size as f64,
                min_bytes_per_s: None,
                p1_bytes_per_s: 0.5 * p50,
                p50_bytes_per_s: p50,
                p99_bytes_per_s: 2.0 * p50,
                mean_bytes_per_s: 0.75 * p50,
            };
            let cell = Cell::new(0, number, Configuration::pair("stream", size));
            writer.write_record(Cell { bandwidth: Some(bandwidth), summary: Some(summary(8.0)), ..cell }).unwrap();
            let waits = Some(Skew { summary: summary(slower * (300 + size) as f64), histogram: None });
            let farm = Configuration { pairs: 0, ..Configuration::pair("farm", size) };
            let cell = Cell { waits, summary: Some(summary(9000.0)), ..Cell::new(0, number, farm) };
            writer.write_record(cell).unwrap();
        }
    }
    writer.finish(State::Complete).unwrap();
    let reader = Reader::open(dir.path().join("run")).unwrap();
    (dir, reader)
}

#[test]
fn what_some_operations_have_stands_behind_the_other_columns_of_csv() {
    let (dir, reader) = with_more();
    let made = csv::write(&reader, &dir.path().join("out"), csv::Layout::CellsOnly, csv::Packing::Plain).unwrap();
    compare(&made, "csv-besides");
    let text = fs::read_to_string(&made[0]).unwrap();
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    let place = |name: &str| rows[0].iter().position(|column| *column == name).unwrap();
    let columns = ["span_p50_ns", "bandwidth_p50_bytes_per_s", "waits_p50_ns"].map(place);
    assert!(place("clock_error_ns") < columns[0] && columns.is_sorted());
    assert!(rows.iter().all(|row| row.len() == rows[0].len()));
    let of = |row: usize| columns.map(|column| rows[row][column]);
    assert_eq!([of(1), of(2), of(3)], [["5008", "", ""], ["", "1000000000", ""], ["", "", "308"]]);
}

#[test]
fn what_some_operations_have_is_in_classic_files_of_its_own() {
    let (dir, reader) = with_more();
    let made = classic::write(&reader, &dir.path().join("out"), &classic::Options::default()).unwrap();
    let endings = |part: &str| {
        let of = made.iter().filter(|file| file.to_string_lossy().contains(part));
        of.filter_map(|file| file.extension()?.to_str()).map(str::to_owned).collect::<Vec<_>>()
    };
    let five = ["summary", "histograms", "outliers", "subsamples", "gnu"];
    assert_eq!(endings("bcast"), [&five[..], &["span"]].concat());
    assert_eq!(endings("stream"), [&five[..], &["bandwidth"]].concat());
    assert_eq!(endings("farm"), [&five[..], &["waits"]].concat());
    let more: Vec<PathBuf> = made
        .into_iter()
        .filter(|file| file.extension().is_some_and(|e| five.iter().all(|of_all| e != *of_all)))
        .collect();
    compare(&more, "classic-besides");
}

/// A run of two launches whose recorded boundaries are not what the quantile of the pooled samples
/// would give.
fn with_recorded_outliers() -> (tempfile::TempDir, Reader) {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(dir.path().join("run"), Run::new("m"), Existing::Refuse).unwrap();
    for (number, boundary_ns) in [(0, 40_000.0), (1, 60_000.0)] {
        writer.begin_launch(Launch { number, ..Launch::default() }).unwrap();
        let mut samples = common::samples(50, 1000.0);
        samples.iter_mut().for_each(|s| s.set_outlier(s.duration_ns > boundary_ns));
        let count = samples.iter().filter(|s| s.counts() && s.is_outlier()).count() as u64;
        let outliers = Some(Outliers { percentile: 0.98, multiplier: 4.0, boundary_ns, count });
        let cell = Cell { outliers, ..Cell::new(0, number, Configuration::pair("send", 8)) };
        writer.write_cell(cell, &samples).unwrap();
    }
    writer.finish(State::Complete).unwrap();
    let reader = Reader::open(dir.path().join("run")).unwrap();
    (dir, reader)
}

/// Columns of the one line of `summary`, and the lines of `outliers` without comments.
fn outliers_of(reader: &Reader, dir: &Path, options: &classic::Options) -> (Vec<String>, usize, String) {
    let made = classic::write(reader, dir, options).unwrap();
    let text = |ending: &str| {
        let file = made.iter().find(|f| f.extension().is_some_and(|e| e == ending)).unwrap();
        fs::read_to_string(file).unwrap()
    };
    let summary = text("summary").lines().last().unwrap().split(' ').map(str::to_owned).collect();
    let outliers = text("outliers");
    let listed = outliers.lines().filter(|l| !l.starts_with('#')).count();
    (summary, listed, outliers)
}

#[test]
fn classic_outliers_are_those_that_the_run_records() {
    let (dir, reader) = with_recorded_outliers();
    let (summary, listed, text) = outliers_of(&reader, &dir.path().join("out"), &classic::Options::default());
    // The sample of 51.9 us is beyond the boundary of its launch in the first one only.
    assert_eq!((summary[5].as_str(), summary[7].as_str(), listed), ("0.040000", "1", 1), "{summary:?}");
    assert!(text.contains("beyond 4 times quantile 0.98"), "{text}");
    // Another rule is for all launches together.
    let options = classic::Options { outlier_multiplier: Some(10.0), ..classic::Options::default() };
    let (summary, listed, text) = outliers_of(&reader, &dir.path().join("other"), &options);
    assert_eq!((summary[7].as_str(), listed), ("0", 0), "{summary:?}");
    assert!(text.contains("beyond 10 times quantile 0.99"), "{text}");
}

/// A run of which the samples file holds 300 of 1000 samples, and of the two outliers, one of them
/// beside the choice.
fn with_a_choice_of_samples() -> (tempfile::TempDir, Reader) {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(dir.path().join("run"), Run::new("m"), Existing::Refuse).unwrap();
    let sample =
        |repetition: u32, duration_ns: f64, flags: u8| Sample { repetition, duration_ns, flags, ..Sample::default() };
    let mut samples: Vec<Sample> = (0..300).map(|k| sample(k, 500.0 + f64::from(k), 0)).collect();
    samples.push(sample(400, 50_000.0, flags::OUTLIER));
    samples.push(sample(700, 60_000.0, flags::OUTLIER | flags::BESIDE));
    let summary = SummaryRecord {
        count: 1000,
        min_ns: 90.0,
        p1_ns: 100.0,
        p25_ns: 250.0,
        p50_ns: 300.0,
        p75_ns: 310.0,
        p99_ns: 700.0,
        p999_ns: 50_000.0,
        max_ns: 60_000.0,
        mean_ns: 400.0,
        stddev_ns: 300.0,
        ..SummaryRecord::default()
    };
    let outliers = Some(Outliers { percentile: 0.99, multiplier: 5.0, boundary_ns: 3500.0, count: 2 });
    let cell = Cell { summary: Some(summary), outliers, ..Cell::new(0, 0, Configuration::pair("send", 8)) };
    writer.write_cell(cell, &samples).unwrap();
    writer.finish(State::Complete).unwrap();
    let reader = Reader::open(dir.path().join("run")).unwrap();
    (dir, reader)
}

#[test]
fn classic_statistics_are_those_of_all_samples_that_are_counted() {
    let (dir, reader) = with_a_choice_of_samples();
    let (summary, listed, _) = outliers_of(&reader, &dir.path().join("out"), &classic::Options::default());
    // Of all, 400 ns; without the two outliers (400 000 - 110 000) / 998 ns; the samples kept have
    // 650 ns and more.
    let expected = ["8", "0.000090", "0.000291", "0.000400", "0.060000", "0.003500", "1000", "2"];
    assert_eq!((summary.iter().map(String::as_str).collect::<Vec<_>>(), listed), (expected.to_vec(), 2));
    let histograms = fs::read_to_string(dir.path().join("out/m.2x1.send.8-0-8.histograms")).unwrap();
    assert!(histograms.contains("# of 302 samples kept of 1000, by chance\n"), "{histograms}");
    // By a rule of one's own only what was kept can be judged, which is said.
    let options = classic::Options { outlier_multiplier: Some(1.0), ..classic::Options::default() };
    let (summary, listed, _) = outliers_of(&reader, &dir.path().join("other"), &options);
    assert_eq!((summary[3].as_str(), summary[6].as_str()), ("0.000400", "1000"));
    assert_eq!(summary[7], listed.to_string());
    let text = fs::read_to_string(dir.path().join("other/m.2x1.send.8-0-8.summary")).unwrap();
    assert!(text.contains("# 8: mean, boundary and outliers are those of 302 samples kept of 1000\n"), "{text}");
}

#[test]
fn classic_statistics_without_samples_are_those_of_all_launches() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(dir.path().join("run"), Run::new("m"), Existing::Refuse).unwrap();
    for (number, count, mean_ns, outliers) in [(0, 100, 2000.0, 1), (1, 300, 4000.0, 2)] {
        writer.begin_launch(Launch { number, ..Launch::default() }).unwrap();
        let at = |f: f64| f * mean_ns;
        let summary = SummaryRecord {
            count,
            min_ns: at(0.5),
            p1_ns: at(0.5),
            p25_ns: at(0.8),
            p50_ns: at(0.9),
            p75_ns: at(1.0),
            p99_ns: at(2.0),
            p999_ns: at(3.0),
            max_ns: at(5.0),
            mean_ns,
            ..SummaryRecord::default()
        };
        let outliers = Some(Outliers { percentile: 0.99, multiplier: 2.0, boundary_ns: at(4.0), count: outliers });
        let cell = Cell { summary: Some(summary), outliers, ..Cell::new(0, number, Configuration::pair("send", 8)) };
        writer.write_cell(cell, &[]).unwrap();
    }
    writer.finish(State::Complete).unwrap();
    let reader = Reader::open(dir.path().join("run")).unwrap();
    let (summary, _, _) = outliers_of(&reader, &dir.path().join("out"), &classic::Options::default());
    // 100 samples of 2 us and 300 of 4 us; without the outliers, of which only the number is known,
    // it is not known.
    let expected = ["8", "0.001000", "?", "0.003500", "0.020000", "0.008000", "400", "3"];
    assert_eq!(summary, expected);
}

#[test]
fn configurations_that_root_does_not_tell_apart_get_names_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(dir.path().join("run"), Run::new("a b/../c"), Existing::Refuse).unwrap();
    for (pairs, window) in [(1, "64"), (2, "64"), (2, "128")] {
        let mut configuration = Configuration::pair("message-rate", 8);
        configuration.pairs = pairs;
        configuration.parameters.insert("window".to_owned(), window.to_owned());
        let cell = Cell::new(0, 0, configuration);
        writer.write_cell(cell, &common::samples(5, 100.0)).unwrap();
    }
    writer.finish(State::Complete).unwrap();
    let reader = Reader::open(dir.path().join("run")).unwrap();
    let made = classic::write(&reader, &dir.path().join("out"), &classic::Options::default()).unwrap();
    let names: Vec<String> = made
        .iter()
        .filter(|f| f.extension().is_some_and(|e| e == "summary"))
        .map(|f| f.file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    assert_eq!(
        names,
        [
            "a_b_.._c.2x1.message-rate.8-0-8.pairs1.window=64",
            "a_b_.._c.2x1.message-rate.8-0-8.pairs2.window=128",
            "a_b_.._c.2x1.message-rate.8-0-8.pairs2.window=64",
        ]
    );
}

#[test]
fn an_operation_with_a_comma_stays_one_field_of_csv() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(dir.path().join("run"), Run::new("m"), Existing::Refuse).unwrap();
    let cell = Cell::new(0, 0, Configuration::pair("odd, \"name\"", 8));
    writer.write_cell(cell, &common::samples(5, 100.0)).unwrap();
    let reader = Reader::open(dir.path().join("run")).unwrap();
    let made = csv::write(&reader, &dir.path().join("out"), csv::Layout::Flat, csv::Packing::Plain).unwrap();
    let text = fs::read_to_string(&made[1]).unwrap();
    assert!(text.lines().nth(1).unwrap().starts_with("0,0,\"odd, \"\"name\"\"\",message,8,"), "{text}");
}

//! Exports against golden files. After a wanted change: `WEIR_UPDATE_GOLDEN=1 cargo test -p weir-distribution --test export`,
//! and look at the difference.

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
    compare(&csv::write(&reader, &dir.path().join("out"), csv::Layout::Flat).unwrap(), "csv-flat");
}

#[test]
fn csv_for_each_cell_is_as_it_was() {
    let (dir, reader) = small();
    compare(&csv::write(&reader, &dir.path().join("out"), csv::Layout::PerCell).unwrap(), "csv-per-cell");
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
    let made = csv::write(&reader, &dir.path().join("out"), csv::Layout::Flat).unwrap();
    let text = fs::read_to_string(&made[1]).unwrap();
    assert!(text.lines().nth(1).unwrap().starts_with("0,0,\"odd, \"\"name\"\"\",message,8,"), "{text}");
}

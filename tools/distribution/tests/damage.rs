//! Damaged, newer and hand-edited runs: each gives an error that names file and field, none a
//! panic.

mod common;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use weir_distribution::*;

fn run() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run1");
    common::small_run(&path);
    (dir, path)
}

/// Writes over what is there. (`fs::write` cuts a file to nothing first; ext4 then writes it to the
/// disk when it is closed, a millisecond each time.)
fn rewrite(file: &Path, bytes: &[u8]) {
    let mut file = fs::OpenOptions::new().write(true).open(file).unwrap();
    file.write_all(bytes).unwrap();
    file.set_len(bytes.len() as u64).unwrap();
}

/// Opens and reads everything; the first error as text.
fn read_all(path: &Path) -> std::result::Result<Vec<Vec<Sample>>, String> {
    let reader = Reader::open(path).map_err(|e| e.to_string())?;
    let cells = reader.run().cells.iter();
    cells.map(|c| reader.read_samples(c).map_err(|e| e.to_string())).collect()
}

fn edit(path: &Path, f: impl FnOnce(String) -> String) {
    let file = path.join("run.json");
    let before = fs::read_to_string(&file).unwrap();
    let after = f(before.clone());
    assert_ne!(before, after, "the edit changed nothing");
    fs::write(file, after).unwrap();
}

fn error_after(f: impl FnOnce(String) -> String) -> String {
    let (_dir, path) = run();
    edit(&path, f);
    let text = read_all(&path).expect_err("it was damaged");
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

#[test]
fn run_json_cut_at_any_byte_is_an_error_that_names_it() {
    let (_dir, path) = run();
    let file = path.join("run.json");
    let whole = fs::read(&file).unwrap();
    // Up to the last brace: what follows is a line end.
    for len in 0..whole.len() - 1 {
        let (cut, e) = (&whole[..len], "cut");
        let text = parse_run(Path::new("run.json"), cut).map(drop).expect_err(e).to_string();
        assert!(text.starts_with("run.json: ") && text.lines().count() == 1, "{text} at {len}");
    }
    assert!(parse_run(Path::new("run.json"), &whole).is_ok());
}

#[test]
fn where_run_json_was_cut_is_told_by_field() {
    let (_dir, path) = run();
    let whole = fs::read_to_string(path.join("run.json")).unwrap();
    let at = whole.find("\"p50_ns\"").unwrap() + 12;
    let text = parse_run(Path::new("run.json"), &whole.as_bytes()[..at]).map(drop).unwrap_err().to_string();
    assert!(text.contains("cells[2].summary"), "{text}");
}

#[test]
fn run_json_with_any_bit_flipped_reads_or_is_an_error() {
    let (_dir, path) = run();
    let whole = fs::read(path.join("run.json")).unwrap();
    let mut errors = 0;
    for bit in 0..whole.len() * 8 {
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        errors += usize::from(parse_run(Path::new("run.json"), &flipped).is_err());
    }
    assert!(errors > whole.len(), "only {errors} errors");
}

#[test]
fn samples_cut_at_any_byte_are_an_error_with_and_without_checksum() {
    let (_dir, path) = run();
    let (cell, file) = (0, path.join("samples/00000.parquet"));
    let whole = fs::read(&file).unwrap();
    for len in 0..whole.len() {
        rewrite(&file, &whole[..len]);
        let reader = Reader::open(&path).unwrap();
        let text = reader.read_samples(&reader.run().cells[cell]).expect_err("cut").to_string();
        assert!(text.contains("00000.parquet: cut short"), "{text}");
        let text = read_samples(&file).expect_err("cut").to_string();
        assert!(text.contains("00000.parquet: "), "{text} at {len}");
    }
}

#[test]
fn samples_with_a_bit_of_any_byte_flipped_are_an_error() {
    let (_dir, path) = run();
    let file = path.join("samples/00000.parquet");
    let whole = fs::read(&file).unwrap();
    let reader = Reader::open(&path).unwrap();
    for byte in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[byte] ^= 1 << (byte % 8);
        rewrite(&file, &flipped);
        let text = reader.read_samples(&reader.run().cells[0]).expect_err("flipped").to_string();
        assert!(text.contains("00000.parquet: damaged"), "{text}");
    }
}

#[test]
fn samples_with_any_bit_flipped_never_panic_without_checksum() {
    let (_dir, path) = run();
    let file = path.join("samples/00000.parquet");
    let whole = fs::read(&file).unwrap();
    let mut errors = 0;
    for bit in 0..whole.len() * 8 {
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        rewrite(&file, &flipped);
        match read_samples(&file) {
            Ok(samples) => assert!(samples.len() < 100_000),
            Err(_) => errors += 1,
        }
    }
    assert!(errors > whole.len(), "only {errors} errors");
}

#[test]
fn a_missing_samples_file_is_named() {
    let (_dir, path) = run();
    fs::remove_file(path.join("samples/00001.parquet")).unwrap();
    let text = read_all(&path).unwrap_err();
    assert!(text.contains("samples/00001.parquet") && text.contains("no such file"), "{text}");
    let reader = Reader::open(&path).expect("the rest can be read");
    assert_eq!(reader.verify().len(), 1);
}

#[test]
fn another_samples_file_in_its_place_is_noticed() {
    let (_dir, path) = run();
    fs::copy(path.join("samples/00002.parquet"), path.join("samples/00001.parquet")).unwrap();
    let text = read_all(&path).unwrap_err();
    assert!(text.contains("00001.parquet"), "{text}");
}

#[test]
fn a_wrong_number_of_samples_is_told() {
    let text = error_after(|t| t.replacen("\"count\": 50", "\"count\": 51", 1));
    assert!(text.contains("00000.parquet: holds 50 samples where run.json says 51"), "{text}");
}

#[test]
fn lines_of_the_journal_are_cells_and_what_is_wrong_with_one_is_named() {
    let (_dir, path) = run();
    let last = Reader::open(&path).unwrap().run().cells.last().unwrap().clone();
    let line = |id: u32| serde_json::to_string(&Cell { id, ..last.clone() }).unwrap();
    let with = |text: &str| {
        fs::write(path.join("cells.jsonl"), text).unwrap();
        Reader::open(&path)
    };
    // Cell 2 is in run.json already.
    let reader = with(&format!("{}\n{}\n{}", line(2), line(3), &line(4)[..50])).unwrap();
    assert_eq!(reader.run().cells.iter().map(|c| c.id).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert!(reader.has_cut_line());
    assert!(!with(&format!("{}\n", line(3))).unwrap().has_cut_line());
    let cases = [
        (format!("{}\n{}\n", line(3), &line(4)[..50]), "cells.jsonl: ", "line 2, "),
        (line(3).replace("2450.5", "\"fast\"") + "\n", "cells.jsonl: summary.p50_ns: invalid type", "line 1, "),
        (line(3).replace("\"launch\":0", "\"launch\":9") + "\n", "cells.jsonl: cells[3].launch", ""),
    ];
    for (text, start, end) in cases {
        let text = with(&text).map(drop).unwrap_err().to_string();
        assert!(text.contains(start) && text.contains(end) && !text.contains('\n'), "{text}");
    }
}

#[test]
fn a_newer_major_version_is_refused_and_says_what_to_do() {
    let text = error_after(|t| t.replace("\"1.8\"", "\"2.3\"").replace("\"cells\"", "\"zellen\""));
    assert!(text.contains("format 2.3") && text.contains("newer weir"), "{text}");
}

#[test]
fn a_newer_minor_version_is_read_and_its_new_fields_are_told() {
    let (_dir, path) = run();
    edit(&path, |t| t.replace("\"1.8\"", "\"1.9\"").replacen("\"launch\": 0", "\"launch\": 0, \"colour\": [1]", 1));
    let reader = Reader::open(&path).unwrap();
    assert_eq!(reader.unknown_fields(), ["cells[0].colour"]);
    assert!(reader.verify().is_empty());
}

#[test]
fn a_field_of_another_type_is_named() {
    let text = error_after(|t| t.replace("2450.5", "\"fast\""));
    let expected = "run.json: cells[2].summary.p50_ns: invalid type: string \"fast\", expected a number (line ";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn a_missing_field_is_named() {
    let text = error_after(|t| t.replacen("\"ranks_per_node\": 1,", "", 1));
    assert!(text.contains("cells[0].configuration") && text.contains("`ranks_per_node`"), "{text}");
}

/// The first cell with this bandwidth.
fn bandwidth(bytes: &str, p1: &str) -> String {
    let rates =
        format!("\"p1_bytes_per_s\": {p1}, \"p50_bytes_per_s\": 2, \"p99_bytes_per_s\": 4, \"mean_bytes_per_s\": 2");
    format!("\"bandwidth\": {{\"bytes\": {bytes}, {rates}}}, \"id\": 0")
}

/// The first cell with this overlap.
fn overlap(alone: &str, percent: &str) -> String {
    format!("\"overlap\": {{\"alone_ns\": {alone}, \"compute_ns\": 10, \"percent\": {percent}}}, \"id\": 0")
}

#[test]
fn values_without_sense_are_named() {
    let (zero, negative, falling) = (bandwidth("0", "1"), bandwidth("8", "-1"), bandwidth("8", "3"));
    let fast = bandwidth("8", "1, \"min_bytes_per_s\": 1.5");
    let (still, more) = (overlap("0", "50"), overlap("10", "101"));
    for (from, to, expected) in [
        ("\"p99_ns\": 2900.0", "\"p99_ns\": 1.0", "cells[2].summary.p99_ns: 1 is less than p75_ns"),
        ("\"nodes\": 2", "\"nodes\": 0", "cells[0].configuration.nodes: 0"),
        ("\"ranks\": 2", "\"ranks\": 3", "cells[0].configuration.ranks: 3 ranks do not fit"),
        ("\"launch\": 0", "\"launch\": 9", "cells[0].launch: there is no launch 9"),
        ("\"id\": 1", "\"id\": 0", "cells[1].id: 0"),
        ("\"id\": 0", zero.as_str(), "cells[0].bandwidth.bytes: 0 is not above 0"),
        ("\"id\": 0", negative.as_str(), "cells[0].bandwidth.p1_bytes_per_s: -1 is not above 0"),
        ("\"id\": 0", falling.as_str(), "cells[0].bandwidth.p50_bytes_per_s: 2 is less than p1_bytes_per_s, 3"),
        ("\"id\": 0", "\"cpu_ns\": -1, \"id\": 0", "cells[0].cpu_ns: -1"),
        ("\"id\": 0", still.as_str(), "cells[0].overlap.alone_ns: 0 is not above 0"),
        ("\"id\": 0", more.as_str(), "cells[0].overlap.percent: 101 is above 100"),
        ("\"id\": 0", fast.as_str(), "cells[0].bandwidth.min_bytes_per_s: 1.5 is not between 0 and p1_bytes_per_s"),
        (
            "\"id\": 0",
            "\"service\": {\"rounds\": 1, \"answers_per_s\": 1, \"jain_p50\": 1.5}, \"id\": 0",
            "cells[0].service.jain_p50: not between 0 and 1",
        ),
        (
            "\"id\": 0",
            "\"service\": {\"rounds\": 1, \"answers_per_s\": 1, \"spread_max\": 0.5}, \"id\": 0",
            "cells[0].service.spread_max: not a number from 1 up",
        ),
        ("\"perseus\"", "\"\"", "machine: empty"),
        ("\"weir-distribution\"", "\"weird\"", "format: `weird` is not"),
        ("\"1.8\"", "\"one\"", "version: "),
        ("\"size_mode\": \"message\"", "\"size_mode\": \"huge\"", "cells[0].configuration.size_mode: unknown variant"),
    ] {
        let text = error_after(|t| t.replacen(from, to, 1));
        assert!(text.contains(expected), "{text} instead of {expected}");
    }
}

#[test]
fn a_path_out_of_the_folder_is_refused() {
    for path in ["../secret", "/etc/passwd", "samples/../../x", "", "samples//x", "C:x", "samples\\\\x"] {
        let text = error_after(|t| t.replacen("samples/00000.parquet", path, 1));
        assert!(text.contains("cells[0].samples.path"), "{text}");
    }
}

#[test]
fn what_is_no_run_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let text = Reader::open(dir.path()).unwrap_err().to_string();
    assert!(text.contains("not a run"), "{text}");
    let text = Reader::open(dir.path().join("nothing")).unwrap_err().to_string();
    assert!(text.contains("no such file"), "{text}");
    for content in ["", "[]", "3", "{}", "null", "\u{feff}{}", "{\"format\": 3}"] {
        fs::write(dir.path().join("run.json"), content).unwrap();
        let text = Reader::open(dir.path()).unwrap_err().to_string();
        assert!(text.contains("run.json: ") && text.lines().count() == 1, "{text}");
    }
}

#[test]
fn deep_nesting_is_an_error_not_a_crash() {
    for (field, bracket) in [("x", "["), ("x", "{\"y\":"), ("command", "["), ("nodes", "[")] {
        let deep =
            format!("{{\"format\":\"weir-distribution\",\"version\":\"1.0\",\"{field}\":{}", bracket.repeat(1_000_000));
        let text = parse_run(Path::new("run.json"), deep.as_bytes()).map(drop).unwrap_err().to_string();
        assert!(text.starts_with(&format!("run.json: {field}")), "{text}");
    }
}

#[test]
fn a_file_in_the_place_of_a_run_is_called_one() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let told = Reader::open(file.path()).unwrap_err().to_string();
    let path = file.path().display();
    assert_eq!(
        told,
        format!("{path}: is an empty file: a run is a folder with a run.json in it, as weir bench -o FOLDER writes")
    );
}

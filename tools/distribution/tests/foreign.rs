//! What is taken for a run and is none, and what is taken for a file of one.

use std::fs;
use std::path::Path;
use std::process::Command;

use weir_distribution::{Reader, SampleStream};

fn told(path: &Path, in_folder: &Path) -> String {
    let text = Reader::open(path).unwrap_err().to_string();
    assert_eq!(text.lines().count(), 1, "{text}");
    text.replace(&in_folder.display().to_string(), "T")
}

#[test]
fn whatever_is_no_run_is_told_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let is = |what: &str| format!("is {what}: a run is a folder with a run.json in it, as weir bench -o FOLDER writes");
    fs::write(at("empty"), "").unwrap();
    fs::write(at("text"), "hello").unwrap();
    fs::write(at("ledger"), "{\"weir_bsp_ledger\":1,\"processes\":2}\n").unwrap();
    assert!(Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
    let of = |name: &str| told(&at(name), folder.path());
    assert_eq!(told(Path::new("/dev/null"), folder.path()), format!("/dev/null: {}", is("a device")));
    assert_eq!(of("empty"), format!("T/empty: {}", is("an empty file")));
    assert_eq!(of("text"), format!("T/text: {}", is("a file")));
    assert_eq!(of("pipe"), format!("T/pipe: {}", is("a pipe")));
    let advice = "this is a ledger of supersteps: weir bsp report FILE";
    assert_eq!(of("ledger"), format!("T/ledger: {}; {advice}", is("a file")));
    assert_eq!(of("nothing"), "T/nothing: cannot read: no such file or folder");
    for run in ["a", "b", "c", "d", "a/samples"] {
        fs::create_dir(at(run)).unwrap();
    }
    let none = "T: not a run: there is no run.json in it; ";
    assert_eq!(told(folder.path(), folder.path()), format!("{none}weir bench -o FOLDER writes one"));
    for (run, told_then) in [
        ("a", "T/a is one: name that"),
        ("b", "T/a, T/b are runs: name those"),
        ("c", ""),
        ("d", "T/a, T/b, T/c, ... are runs: name those"),
    ] {
        fs::write(at(run).join("run.json"), "").unwrap();
        let text = told(folder.path(), folder.path());
        assert!(text.starts_with(none) && text.ends_with(told_then), "{text}");
    }
    fs::write(at("a/samples/00000.parquet"), "x").unwrap();
    let advice = "it lies in the run T/a: name that";
    assert_eq!(of("a/samples/00000.parquet"), format!("T/a/samples/00000.parquet: {}; {advice}", is("a file")));
    assert_eq!(of("a"), "T/a/run.json: the file is empty (line 1, column 0)");
}

#[test]
fn a_pipe_in_the_place_of_a_file_of_a_run_is_not_waited_at() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["run.json", "cells.jsonl"] {
        assert!(Command::new("mkfifo").arg(folder.path().join(name)).status().unwrap().success());
        let text = told(folder.path(), folder.path());
        assert!(text.ends_with(": cannot read: is no file, but a pipe, a socket or a device"), "{text}");
    }
    let samples = folder.path().join("samples");
    assert!(Command::new("mkfifo").arg(&samples).status().unwrap().success());
    let text = SampleStream::open(&samples, None).err().unwrap().to_string();
    assert!(text.contains("is no file"), "{text}");
}

//! A writer killed by the kernel, and a device that is really full.
#![cfg(target_os = "linux")]

mod common;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use weir_distribution::*;

const CHILD: &str = "WEIR_TEST_WRITES_UNTIL_KILLED";

fn write_until_killed(dir: &Path) {
    let mut writer = Writer::create(dir, Run::new("killed"), Existing::Refuse).unwrap();
    for n in 0..100_000 {
        let mut cell = Cell::new(0, 0, Configuration::pair("send", n));
        // So long that `run.json` soon is, and cells go to the journal.
        cell.warnings = vec![Warning { code: "long".into(), message: "x".repeat(30_000), advice: None }];
        writer.write_cell(cell, &common::samples(2000, 1.0)).unwrap();
        println!("finished {}", n + 1);
    }
}

#[test]
fn a_killed_writer_keeps_finished_cells() {
    if let Some(dir) = std::env::var_os(CHILD) {
        return write_until_killed(Path::new(&dir));
    }
    let mut in_journal = 0;
    for kill_after in [1, 3, 8, 20, 27, 33] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run");
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_killed_writer_keeps_finished_cells", "--nocapture"])
            .env(CHILD, &path)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut told = 0;
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            // The test harness prints before our first line, on the same line.
            let line = line.unwrap();
            let Some((_, number)) = line.rsplit_once("finished ") else { continue };
            told = number.parse().unwrap();
            if told >= kill_after {
                child.kill().unwrap();
                break;
            }
        }
        child.wait().unwrap();
        assert!(told >= kill_after);
        in_journal += usize::from(path.join("cells.jsonl").exists());
        let reader = Reader::open(&path).unwrap();
        assert!(reader.run().cells.len() >= told, "{} of {told}", reader.run().cells.len());
        assert_eq!(reader.run().state, State::Running);
        assert!(reader.verify().is_empty(), "{:?}", reader.verify());
        let mut writer = Writer::append(&path).unwrap();
        writer.write_cell(Cell::new(0, 0, Configuration::pair("send", 0)), &[]).unwrap();
    }
    assert!(in_journal > 0, "no kill came while cells were in the journal only");
}

#[test]
fn a_full_device_is_told_and_what_was_finished_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    let mut writer = Writer::create(&path, Run::new("full"), Existing::Refuse).unwrap();
    let cell = || Cell::new(0, 0, Configuration::pair("send", 0));
    writer.write_cell(cell(), &common::samples(10, 1.0)).unwrap();
    // The next samples go to a device that has no room.
    std::os::unix::fs::symlink("/dev/full", path.join("samples/00001.parquet.tmp")).unwrap();
    let text = writer.write_cell(cell(), &common::samples(10, 1.0)).unwrap_err().to_string();
    assert!(text.ends_with("no space left on the device; the finished cell is kept"), "{text}");
    writer.write_cell(cell(), &common::samples(10, 1.0)).expect("room again");
    assert!(Reader::open(&path).unwrap().verify().is_empty());
}

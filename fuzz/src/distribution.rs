//! Runs from hostile hands: the text of a `run.json`, a journal of cells, and samples files, made
//! of nothing or of a good one with edits. No panic, memory bounded by the file's length, and what
//! reads as a run writes back as the same run.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use arbitrary::Arbitrary;
use weir_distribution::{
    Cell, Configuration, Existing, FitRecord, Launch, Reader, Run, Sample, SummaryRecord, Writer, parse_run,
    read_samples,
};

/// What is read.
#[derive(Arbitrary, Debug)]
pub enum Input {
    /// Any bytes as a `run.json`.
    Text(Vec<u8>),
    /// A good `run.json` with pieces replaced.
    EditedText(Vec<Replaced>),
    /// A good journal with pieces replaced, beside a good `run.json`.
    EditedJournal(Vec<Replaced>),
    /// Any bytes as a samples file.
    Samples(Vec<u8>),
    /// A good samples file of so many samples, changed.
    EditedSamples {
        /// Which file.
        many: bool,
        /// Places and what is put there; the footer is most of a file, and counted from its end.
        edits: Vec<(bool, u16, u8)>,
        /// Bytes taken out.
        cut: Option<(u16, u8)>,
    },
}

/// A piece of text replaced.
#[derive(Arbitrary, Debug)]
pub struct Replaced {
    at: u16,
    len: u8,
    by: String,
}

struct Good {
    dir: PathBuf,
    text: String,
    /// The cells of `text`, and two more.
    journal: String,
    few: Vec<u8>,
    many: Vec<u8>,
    scratch: PathBuf,
}

/// A run of two cells, made once.
fn good() -> &'static Good {
    static GOOD: OnceLock<Good> = OnceLock::new();
    GOOD.get_or_init(|| {
        let dir = std::env::temp_dir().join(format!("weir-fuzz-distribution-{}", std::process::id()));
        let mut writer =
            Writer::create(&dir, Run::new("fuzz"), Existing::Overwrite).expect("a writable temporary folder");
        writer.begin_launch(Launch::default()).expect("written");
        for n in [3, 5000] {
            writer.write_cell(cell(), &samples(n)).expect("written");
        }
        let read = |name: &str| fs::read(dir.join(name)).expect("just written");
        let line = |id| serde_json::to_string(&Cell { id, ..cell() }).expect("a cell can be written") + "\n";
        Good {
            journal: (0..4).map(line).collect(),
            text: String::from_utf8(read("run.json")).expect("JSON is UTF-8"),
            few: read("samples/00000.parquet"),
            many: read("samples/00001.parquet"),
            scratch: dir.join("scratch.parquet"),
            dir,
        }
    })
}

fn samples(n: u32) -> Vec<Sample> {
    let one =
        |i| Sample { rank: i % 7, repetition: i, start_ns: i.into(), duration_ns: f64::from(i), ..Sample::default() };
    (0..n).map(one).collect()
}

fn cell() -> Cell {
    let fit = FitRecord {
        family: "exponential".into(),
        location_ns: 1.0,
        parameters: [("scale_ns".to_owned(), 2.0)].into(),
        samples: None,
        log_likelihood: None,
        tests: Vec::new(),
        at_bound: false,
        chosen: true,
        reason: None,
    };
    let summary = SummaryRecord { count: 1, ..SummaryRecord::default() };
    Cell { summary: Some(summary), fits: vec![fit], ..Cell::new(0, 0, Configuration::pair("send", 64)) }
}

/// Reads it; returns how much was read: cells or samples.
pub fn run(input: &Input) -> u64 {
    match input {
        Input::Text(text) => read_text(text),
        Input::EditedText(edits) => read_text(&edited(&good().text, edits)),
        Input::EditedJournal(edits) => read_journal(&edited(&good().journal, edits)),
        Input::Samples(bytes) => read_bytes(bytes),
        Input::EditedSamples { many, edits, cut } => {
            let mut bytes = if *many { good().many.clone() } else { good().few.clone() };
            for &(from_end, at, value) in edits {
                let at = usize::from(at) % bytes.len();
                let at = if from_end { bytes.len() - 1 - at } else { at };
                bytes[at] ^= value;
            }
            if let Some((at, len)) = *cut {
                let at = usize::from(at) % bytes.len();
                let end = (at + usize::from(len)).min(bytes.len());
                bytes.drain(at..end);
            }
            read_bytes(&bytes)
        }
    }
}

fn edited(text: &str, edits: &[Replaced]) -> Vec<u8> {
    let mut text = text.as_bytes().to_vec();
    for e in edits {
        let at = usize::from(e.at) % (text.len() + 1);
        let end = (at + usize::from(e.len)).min(text.len());
        text.splice(at..end, e.by.bytes());
    }
    text
}

fn read_journal(text: &[u8]) -> u64 {
    let dir = &good().dir;
    fs::write(dir.join("cells.jsonl"), text).expect("a writable temporary folder");
    match Reader::open(dir) {
        Ok(reader) => {
            let lines = text.iter().filter(|byte| **byte == b'\n').count();
            let cells = reader.run().cells.len();
            assert!((2..=2 + lines).contains(&cells), "{cells} cells of 2 and {lines} lines");
            assert_eq!(reader.has_cut_line(), text.last().is_some_and(|byte| *byte != b'\n'));
            cells as u64
        }
        Err(e) => {
            assert_eq!(e.to_string().lines().count(), 1, "{e}");
            0
        }
    }
}

fn read_text(text: &[u8]) -> u64 {
    match parse_run(Path::new("run.json"), text) {
        Ok((run, _)) => {
            let again = serde_json::to_vec(&run).expect("a run that was read can be written");
            let (same, unknown) = parse_run(Path::new("again"), &again).expect("what was written is read");
            assert_eq!(run, same);
            assert!(unknown.is_empty());
            run.cells.len() as u64
        }
        Err(e) => {
            assert_eq!(e.to_string().lines().count(), 1, "{e}");
            0
        }
    }
}

fn read_bytes(bytes: &[u8]) -> u64 {
    let path = &good().scratch;
    fs::write(path, bytes).expect("a writable temporary folder");
    match read_samples(path) {
        Ok(samples) => {
            assert!(samples.len() as u64 <= 65_536 + 4 * (bytes.len() as u64 + 1));
            assert!(samples.iter().all(|s| s.duration_ns.is_finite() && s.error_ns >= 0.0));
            samples.len() as u64
        }
        Err(e) => {
            assert_eq!(e.to_string().lines().count(), 1, "{e}");
            0
        }
    }
}

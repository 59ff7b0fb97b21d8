//! What is read: sources, streams of data, machines.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_annotations::program::{Program, Stream, Table};
use weir_annotations::{Diagnostic, MAX_BYTES, Place, Source, Value};
use weir_predict::Wishes;
use weir_predict::{Machine, hypothetical, published};

use crate::error::Failure;

/// Rows that a stream may have.
const MAX_ROWS: usize = 10_000_000;
/// Bytes of a stream of data.
const MAX_STREAM: u64 = 256 << 20;
/// Bytes of a machine's description.
const MAX_DESCRIPTION: u64 = 1 << 20;

/// A file's text.
#[derive(Debug)]
pub struct Text {
    /// Its name as given.
    pub name: String,
    /// What stands in it; bytes that are no text have become replacement characters.
    pub text: String,
}

/// Reads the sources.
pub fn sources(paths: &[PathBuf]) -> Result<Vec<Text>, Failure> {
    let mut all = Vec::new();
    for path in paths {
        let bytes = read(path, MAX_BYTES as u64)?;
        let bytes = bytes.ok_or_else(|| Failure::content(path, format!("has more than {} MiB", MAX_BYTES >> 20)))?;
        // Comments may be in any encoding, but no text has a byte 0.
        if bytes.contains(&0) {
            return Err(Failure::content(path, "is no source: it is no text"));
        }
        let text = String::from_utf8_lossy(without_mark(&bytes)).into_owned();
        all.push(Text { name: path.display().to_string(), text });
    }
    Ok(all)
}

/// Text without the mark of byte order that some editors put first.
fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)
}

/// What is in a file; none if that is more than `most` bytes. What has no length, such as a device,
/// is read no further either.
fn read(path: &Path, most: u64) -> Result<Option<Vec<u8>>, Failure> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(|e| Failure::file(path, told(&e)))?;
    file.take(most + 1).read_to_end(&mut bytes).map_err(|e| Failure::file(path, told(&e)))?;
    Ok((bytes.len() as u64 <= most).then_some(bytes))
}

/// The texts as the parser takes them.
pub fn as_sources(texts: &[Text]) -> Vec<Source<'_>> {
    texts.iter().map(|t| Source { name: &t.name, text: &t.text }).collect()
}

/// The names of the texts, in their order.
pub fn names_of(texts: &[Text]) -> Vec<String> {
    texts.iter().map(|t| t.name.clone()).collect()
}

fn told(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "no such file".to_owned(),
        std::io::ErrorKind::PermissionDenied => "may not be read".to_owned(),
        std::io::ErrorKind::IsADirectory => "is a folder".to_owned(),
        _ => error.to_string(),
    }
}

/// With how many processes the texts were recorded, if they were: what all that say so have in
/// common.
pub fn recorded(texts: &[Text]) -> Option<BTreeSet<u32>> {
    let all = texts.iter().filter_map(|text| weir_annotations::recorded_counts(&text.text));
    all.reduce(|one, other| one.intersection(&other).copied().collect())
}

/// Reads the streams of a program; their files are beside the source that names them.
pub fn streams(program: &Program) -> Result<Vec<Arc<Table>>, Vec<Diagnostic>> {
    let mut faults = Vec::new();
    let mut all = Vec::new();
    for stream in &program.streams {
        match table(stream, &program.files) {
            Ok(table) => all.push(Arc::new(table)),
            Err(said) => faults.push(Diagnostic::error("stream", stream.place, said)),
        }
    }
    if faults.is_empty() { Ok(all) } else { Err(faults) }
}

/// The files that the sources of a program name: streams of data, profiles of links.
pub fn named(program: &Program) -> Vec<PathBuf> {
    let streams = program.streams.iter().map(|stream| beside(&stream.file, stream.place, &program.files));
    let links = program.machine.networks.iter().flat_map(|network| &network.links);
    streams.chain(links.map(|link| beside(&link.profile, link.place, &program.files))).collect()
}

/// A file that a source names: it is beside the source.
pub fn beside(name: &str, place: Place, files: &[String]) -> PathBuf {
    let source = files.get(place.file as usize).map(Path::new).and_then(Path::parent).unwrap_or(Path::new(""));
    source.join(name)
}

fn table(stream: &Stream, files: &[String]) -> Result<Table, String> {
    let path = beside(&stream.file, stream.place, files);
    let shown = path.display();
    let file = std::fs::File::open(&path).map_err(|e| format!("{shown}: {}", told(&e)))?;
    let mut reader = csv::ReaderBuilder::new()
        .trim(csv::Trim::All)
        .comment(Some(b'#'))
        .from_reader(std::io::BufReader::new(Bounded { file, left: MAX_STREAM }));
    let header = reader.headers().map_err(|e| format!("{shown}: {}", csv_error(e)))?;
    let columns: Vec<String> = header.iter().map(str::to_owned).collect();
    let mut values = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|e| format!("{shown}: {}", csv_error(e)))?;
        let line = record.position().map_or(0, csv::Position::line);
        for (field, column) in record.iter().zip(&columns) {
            let number = field.parse().map(Value::Int).ok();
            let number = number.or_else(|| field.parse().ok().filter(|v: &f64| v.is_finite()).map(Value::Float));
            values.push(number.ok_or_else(|| format!("{shown}, line {line}: {column}: `{field}` is no number"))?);
        }
        if values.len() > MAX_ROWS * columns.len() {
            return Err(format!("{shown}: more than {MAX_ROWS} rows"));
        }
    }
    Ok(Table { columns, values })
}

/// A file of which no more than so many bytes are read: what has more is an error, not cut.
struct Bounded {
    file: std::fs::File,
    left: u64,
}

impl Read for Bounded {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let read = self.file.read(into)?;
        self.left = self.left.checked_sub(read as u64).ok_or_else(|| {
            std::io::Error::new(std::io::ErrorKind::FileTooLarge, format!("more than {} MiB", MAX_STREAM >> 20))
        })?;
        Ok(read)
    }
}

fn csv_error(error: csv::Error) -> String {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => told(&error),
        csv::ErrorKind::UnequalLengths { pos, expected_len, len } => {
            let line = pos.map_or(0, |p| p.line());
            format!("line {line}: {len} values where the header has {expected_len}")
        }
        csv::ErrorKind::Utf8 { pos, .. } => format!("line {}: no text", pos.map_or(0, |p| p.line())),
        other => format!("{other:?}"),
    }
}

/// Reads a machine: one of the published machines by its name alone; else a description by hand, or
/// what was measured.
pub fn machine(path: &Path, wishes: &Wishes) -> Result<Machine, Failure> {
    if let Some(mut machine) = path.to_str().and_then(published) {
        by_hand(wishes)?;
        if path.exists() {
            let name = path.display();
            machine.notices.push(format!("{name} is the published machine: what is here by that name is ./{name}"));
        }
        return Ok(machine);
    }
    let found = std::fs::metadata(path).map_err(|error| Failure::file(path, told(&error)))?;
    if found.is_dir() {
        return crate::measured::machine(path, wishes);
    }
    let too_long = || Failure::content(path, "is no description of a machine: it has more than 1 MiB");
    let bytes = read(path, MAX_DESCRIPTION)?.ok_or_else(too_long)?;
    let text = String::from_utf8(bytes)
        .map_err(|_| Failure::content(path, "is no description of a machine: it is no text"))?;
    by_hand(wishes)?;
    let mut machine = hypothetical(&text).map_err(|e| Failure::content(path, e))?;
    if machine.name == "hypothetical" {
        machine.name = path.display().to_string();
    }
    Ok(machine)
}

/// A machine that was not measured has no wishes.
fn by_hand(wishes: &Wishes) -> Result<(), Failure> {
    if *wishes == Wishes::default() {
        return Ok(());
    }
    let said = "--ranks-per-node, --eager and --measured are for measured machines: say it in the description";
    Err(Failure::Usage(said.to_owned()))
}

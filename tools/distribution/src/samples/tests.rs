//! Samples files as their bytes: what the writer makes, and what liars make.

use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::Arc;

use parquet::basic::{Compression, Encoding};
use parquet::data_type::{DataType, DoubleType, Int64Type};
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use super::*;
use crate::model::Sample;

fn some(n: u32) -> Vec<Sample> {
    let one = |i: u32| Sample {
        rank: i % 4,
        peer: if i.is_multiple_of(5) { -1 } else { 3 },
        repetition: u32::MAX - i,
        start_ns: i64::from(i) * 1000 - 5000,
        duration_ns: f64::from(i).mul_add(0.1, -3.0),
        error_ns: 0.5,
        flags: (i % 256) as u8,
    };
    (0..n).map(one).collect()
}

fn written(samples: &[Sample]) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.parquet");
    let mut writer = SamplesWriter::new(Box::new(File::create(&path).unwrap())).unwrap();
    writer.push(samples).unwrap();
    let w = writer.finish().unwrap();
    assert_eq!(w.bytes, fs::metadata(&path).unwrap().len());
    assert_eq!(w.count, samples.len() as u64);
    (dir, path)
}

/// A file as others write it: any schema, any properties, each column given as numbers.
fn foreign(schema: &str, properties: WriterProperties, rows: usize, column: impl Fn(usize, usize) -> f64) -> Vec<u8> {
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let mut out = Vec::new();
    let mut file = SerializedFileWriter::new(&mut out, schema, Arc::new(properties)).unwrap();
    let mut group = file.next_row_group().unwrap();
    let mut index = 0;
    while let Some(mut writer) = group.next_column().unwrap() {
        let values = |r| column(index, r);
        match writer.untyped() {
            parquet::column::writer::ColumnWriter::Int64ColumnWriter(w) => {
                put::<Int64Type>(w, (0..rows).map(|r| values(r) as i64).collect());
            }
            parquet::column::writer::ColumnWriter::DoubleColumnWriter(w) => {
                put::<DoubleType>(w, (0..rows).map(values).collect());
            }
            _ => panic!("not used here"),
        }
        writer.close().unwrap();
        index += 1;
    }
    group.close().unwrap();
    file.close().unwrap();
    out
}

fn put<T: DataType>(w: &mut parquet::column::writer::ColumnWriterImpl<'_, T>, values: Vec<T::T>) {
    let levels = vec![1; values.len()];
    // Levels of a required column are ignored.
    w.write_batch(&values, Some(&levels), None).unwrap();
}

const FOREIGN: &str = "message table {
    optional double duration_ns; optional int64 rank; optional int64 flags; optional double note;
    optional int64 peer; optional int64 repetition; optional int64 start_ns; optional double error_ns;
}";

fn read(bytes: &[u8]) -> Result<Vec<Sample>, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.parquet");
    fs::write(&path, bytes).unwrap();
    read_samples(&path).map_err(|e| e.to_string())
}

#[test]
fn samples_over_several_row_groups_come_back() {
    let samples = some((1 << 18) * 2 + 17);
    let (_dir, path) = written(&samples);
    assert!(read_samples(&path).unwrap() == samples);
}

#[test]
fn a_file_without_samples_comes_back_empty() {
    let (_dir, path) = written(&[]);
    assert_eq!(read_samples(&path).unwrap(), []);
}

#[test]
fn files_of_other_writers_are_read_in_any_layout() {
    let versions = [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0];
    let compressions = [Compression::SNAPPY, Compression::UNCOMPRESSED];
    for (version, compression, dictionary) in
        versions.iter().flat_map(|v| compressions.iter().flat_map(move |c| [(v, c, true), (v, c, false)]))
    {
        let properties = WriterProperties::builder()
            .set_writer_version(*version)
            .set_compression(*compression)
            .set_dictionary_enabled(dictionary)
            .build();
        let bytes =
            foreign(FOREIGN, properties, 1000, |c, r| [r as f64 + 0.5, 1.0, 9.0, 0.1, -1.0, 7.0, -1e6, 0.25][c]);
        let samples = read(&bytes).unwrap();
        assert_eq!(samples.len(), 1000);
        let expected = Sample {
            rank: 1,
            peer: -1,
            repetition: 7,
            start_ns: -1_000_000,
            duration_ns: 999.5,
            error_ns: 0.25,
            flags: 9,
        };
        assert_eq!(samples[999], expected);
    }
}

#[test]
fn durations_split_by_bytes_are_read() {
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_encoding(Encoding::PLAIN)
        .set_column_encoding("duration_ns".into(), Encoding::BYTE_STREAM_SPLIT);
    let bytes = foreign(FOREIGN, properties.build(), 10, |c, r| if c == 0 { r as f64 / 3.0 } else { 0.0 });
    assert_eq!(read(&bytes).unwrap()[9].duration_ns, 3.0);
}

#[test]
fn values_out_of_range_are_named_with_column_and_row() {
    for (column, value, name) in [(0, f64::NAN, "duration_ns"), (1, -5e9, "rank"), (2, 256.0, "flags")] {
        let bytes =
            foreign(FOREIGN, WriterProperties::new(), 20, |c, r| if c == column && r == 7 { value } else { 0.0 });
        let text = read(&bytes).unwrap_err();
        assert!(text.contains(&format!("column {name}: row 7")), "{text}");
    }
}

#[test]
fn other_compressions_are_named() {
    // The writer of this crate cannot make one; the codec's number in the metadata of each column
    // can be changed.
    let (_dir, path) = written(&some(10));
    let mut bytes = fs::read(&path).unwrap();
    let len = bytes.len();
    // Field 3 (path) of one element, then field 4 (codec, zigzag: SNAPPY is 1) of the column named
    // there.
    let marker = b"\x19\x18\x0bduration_ns\x15\x02";
    let at = (0..len).rev().find(|&i| bytes[i..].starts_with(marker)).expect("the column's metadata");
    bytes[at + marker.len() - 1] = 12;
    let text = read(&bytes).unwrap_err();
    assert!(text.contains("duration_ns") && text.contains("ZSTD"), "{text}");
}

#[test]
fn missing_and_nested_columns_are_named() {
    let without = FOREIGN.replace("optional int64 start_ns; ", "");
    let text = read(&foreign(&without, WriterProperties::new(), 1, |_, _| 0.0)).unwrap_err();
    assert!(text.contains("column start_ns is missing"), "{text}");
    let nested = FOREIGN.replace("optional double note;", "optional group note { optional double x; }");
    let text = read(&foreign(&nested, WriterProperties::new(), 1, |_, _| 0.0)).unwrap_err();
    assert!(text.contains("nested"), "{text}");
}

#[test]
fn more_rows_than_the_bytes_can_hold_are_refused_before_reading() {
    let bytes = foreign(FOREIGN, WriterProperties::new(), 400_000, |_, _| 0.0);
    let text = read(&bytes).unwrap_err();
    assert!(text.contains("400000 rows cannot be in"), "{text}");
    // Equal values of a modest number are fine.
    assert_eq!(read(&foreign(FOREIGN, WriterProperties::new(), 60_000, |_, _| 0.0)).unwrap().len(), 60_000);
}

#[test]
fn the_least_compressible_bound_holds_for_what_is_written() {
    // Constant samples are what compresses best: the reader's bound on rows must let them pass.
    let (_dir, path) = written(&vec![Sample::default(); 400_000]);
    assert_eq!(read_samples(&path).unwrap().len(), 400_000);
}

//! Writes a samples file, a row group at a time.

use std::io::{self, Write};
use std::sync::Arc;

use crc32fast::Hasher;
use parquet::basic::{Compression, Encoding};
use parquet::data_type::{DataType, DoubleType, FloatType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

use super::SCHEMA;
use crate::files::Output;
use crate::model::Sample;

/// Rows of a row group: about 9 MB in memory, and few enough row groups for a footer of a few KB at
/// 10^7 samples.
const GROUP_ROWS: usize = 1 << 18;

/// Counts and sums what passes through.
struct Summed {
    inner: Box<dyn Output>,
    digest: Hasher,
    bytes: u64,
}

impl Write for Summed {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let n = self.inner.write(data)?;
        self.digest.update(&data[..n]);
        self.bytes += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Rows not yet written, by column.
#[derive(Default)]
struct Columns {
    rank: Vec<i32>,
    peer: Vec<i32>,
    repetition: Vec<i32>,
    start_ns: Vec<i64>,
    duration_ns: Vec<f64>,
    error_ns: Vec<f32>,
    flags: Vec<i32>,
}

impl Columns {
    fn push(&mut self, s: &Sample) {
        self.rank.push(s.rank.cast_signed());
        self.peer.push(s.peer);
        self.repetition.push(s.repetition.cast_signed());
        self.start_ns.push(s.start_ns);
        self.duration_ns.push(s.duration_ns);
        self.error_ns.push(s.error_ns);
        self.flags.push(i32::from(s.flags));
    }

    fn clear(&mut self) {
        self.rank.clear();
        self.peer.clear();
        self.repetition.clear();
        self.start_ns.clear();
        self.duration_ns.clear();
        self.error_ns.clear();
        self.flags.clear();
    }
}

/// What is known of a finished file.
pub(crate) struct Written {
    pub(crate) count: u64,
    pub(crate) bytes: u64,
    pub(crate) crc32: u32,
}

/// A samples file being written.
pub(crate) struct SamplesWriter {
    file: SerializedFileWriter<Summed>,
    columns: Columns,
    count: u64,
}

impl SamplesWriter {
    pub(crate) fn new(out: Box<dyn Output>) -> io::Result<Self> {
        let schema = parse_message_type(SCHEMA).map_err(to_io)?;
        let sink = Summed { inner: out, digest: Hasher::new(), bytes: 0 };
        let file = SerializedFileWriter::new(sink, Arc::new(schema), Arc::new(properties())).map_err(to_io)?;
        Ok(Self { file, columns: Columns::default(), count: 0 })
    }

    pub(crate) fn push(&mut self, samples: &[Sample]) -> io::Result<()> {
        for s in samples {
            self.columns.push(s);
            if self.columns.rank.len() == GROUP_ROWS {
                self.write_group()?;
            }
        }
        Ok(())
    }

    fn write_group(&mut self) -> io::Result<()> {
        self.count += self.columns.rank.len() as u64;
        let c = &self.columns;
        let mut group = self.file.next_row_group().map_err(to_io)?;
        column::<Int32Type>(&mut group, &c.rank)?;
        column::<Int32Type>(&mut group, &c.peer)?;
        column::<Int32Type>(&mut group, &c.repetition)?;
        column::<Int64Type>(&mut group, &c.start_ns)?;
        column::<DoubleType>(&mut group, &c.duration_ns)?;
        column::<FloatType>(&mut group, &c.error_ns)?;
        column::<Int32Type>(&mut group, &c.flags)?;
        group.close().map_err(to_io)?;
        self.columns.clear();
        Ok(())
    }

    /// Writes what is left and the footer, and returns when all is on the device.
    pub(crate) fn finish(mut self) -> io::Result<Written> {
        if !self.columns.rank.is_empty() {
            self.write_group()?;
        }
        // Not `into_inner`, which loses what kind of error it was.
        self.file.finish().map_err(to_io)?;
        let sink = self.file.inner_mut();
        sink.inner.flush()?;
        sink.inner.sync()?;
        let crc32 = sink.digest.clone().finalize();
        Ok(Written { count: self.count, bytes: sink.bytes, crc32 })
    }
}

fn column<T: DataType>(group: &mut SerializedRowGroupWriter<'_, Summed>, values: &[T::T]) -> io::Result<()> {
    let next = group.next_column().map_err(to_io)?;
    let mut column = next.ok_or_else(|| io::Error::other("the schema has fewer columns"))?;
    column.typed::<T>().write_batch(values, None, None).map_err(to_io)?;
    column.close().map_err(to_io)
}

/// Encodings that every reader knows; durations always plain, so that a file's length says how many
/// rows it can hold.
fn properties() -> WriterProperties {
    let mut p = WriterProperties::builder()
        .set_created_by(format!("weir-distribution {}", env!("CARGO_PKG_VERSION")))
        .set_compression(Compression::SNAPPY)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_dictionary_enabled(false)
        .set_max_row_group_row_count(Some(GROUP_ROWS));
    for name in ["rank", "peer", "error_ns", "flags"] {
        p = p.set_column_dictionary_enabled(name.into(), true);
    }
    for name in ["repetition", "start_ns"] {
        p = p.set_column_encoding(name.into(), Encoding::DELTA_BINARY_PACKED);
    }
    p.build()
}

/// The crate's error as what it was before, if it came from the file.
fn to_io(e: ParquetError) -> io::Error {
    match e {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(e) => *e,
            Err(other) => io::Error::other(other.to_string()),
        },
        other => io::Error::other(other.to_string()),
    }
}

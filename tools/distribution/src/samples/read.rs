//! Reads a samples file, a few thousand rows at a time.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crc32fast::Hasher;
use parquet::basic::{Compression, Type as Physical};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::{DataType, DoubleType, FloatType, Int32Type, Int64Type};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, ParquetStatisticsPolicy};
use parquet::file::reader::{FileReader, SerializedFileReader, SerializedPageReader};
use parquet::file::serialized_reader::ReadOptionsBuilder;

use super::COLUMNS;
use super::footer::{self, Leaf};
use super::pages::GuardedPages;
use crate::error::{Error, Result};
use crate::files;
use crate::model::{Sample, SamplesFile};

/// Rows decoded at a time: columns of this length fit in the cache.
const BATCH_ROWS: usize = 8192;
/// Rows a file may have beyond `MAX_ROWS_PER_BYTE`: small files of other writers may pack equal
/// values tightly.
const FREE_ROWS: u64 = 1 << 16;
/// Durations are written plain, 8 bytes, and the compression makes of these at best 3/8 of a byte.
const MAX_ROWS_PER_BYTE: u64 = 4;
/// A footer takes about 1 KB for a row group; this is room for 10^9 rows.
const MAX_FOOTER_BYTES: u64 = 16 << 20;

/// The samples of one file, in its order.
pub struct SampleStream {
    path: PathBuf,
    file: Arc<File>,
    file_bytes: u64,
    metadata: Arc<ParquetMetaData>,
    leaves: Vec<Leaf>,
    /// For each of ours, its place in the file.
    places: [usize; COLUMNS.len()],
    rows: u64,
    read: u64,
    next_group: usize,
    group: Option<Group>,
}

/// A row group being read.
struct Group {
    columns: Vec<ColumnReader>,
    rows_left: u64,
}

/// Reads a samples file whole, without knowing what `run.json` says of it.
///
/// # Errors
/// No such file, not a samples file, or damaged.
pub fn read_samples(path: &Path) -> Result<Vec<Sample>> {
    let mut stream = SampleStream::open(path, None)?;
    let mut all = Vec::new();
    while stream.next_batch(&mut all)? {}
    Ok(all)
}

impl SampleStream {
    /// Opens a samples file; with what `run.json` says of it, length, checksum and count are
    /// checked first.
    ///
    /// # Errors
    /// No such file, not a samples file, not what `run.json` says, or damaged.
    pub fn open(path: &Path, expected: Option<&SamplesFile>) -> Result<Self> {
        let mut file = files::is_a_file(path).and_then(|()| File::open(path)).map_err(Error::io("open", path))?;
        let file_bytes = file.metadata().map_err(Error::io("open", path))?.len();
        if let Some(expected) = expected {
            check_whole(path, &mut file, file_bytes, expected)?;
        }
        let footer = read_footer(path, &mut file, file_bytes)?;
        let leaves = footer::columns(&footer).map_err(|problem| Error::samples(path, problem))?;
        let places = find_columns(path, &leaves)?;
        let metadata = metadata(path, &file, &leaves)?;
        let mut stream = Self {
            path: path.to_owned(),
            file: Arc::new(file),
            file_bytes,
            metadata,
            leaves,
            places,
            rows: 0,
            read: 0,
            next_group: 0,
            group: None,
        };
        stream.rows = stream.count_rows()?;
        if let Some(expected) = expected.filter(|e| e.count != stream.rows) {
            let problem = format!("holds {} samples where run.json says {}", stream.rows, expected.count);
            return Err(Error::samples(path, problem));
        }
        Ok(stream)
    }

    /// Rows in the file.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.rows
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Sums the row groups; what they say must agree with the footer and with the file's length.
    fn count_rows(&self) -> Result<u64> {
        let lies = |problem: &str| Error::samples(&self.path, format!("damaged: {problem}"));
        let mut sum: u64 = 0;
        for group in self.metadata.row_groups() {
            let rows = u64::try_from(group.num_rows()).map_err(|_| lies("a negative number of rows"))?;
            sum = sum.checked_add(rows).ok_or_else(|| lies("too many rows"))?;
        }
        if u64::try_from(self.metadata.file_metadata().num_rows()) != Ok(sum) {
            return Err(lies("its row groups hold another number of rows than it says"));
        }
        if sum.saturating_sub(FREE_ROWS) / MAX_ROWS_PER_BYTE > self.file_bytes {
            return Err(lies(&format!("{sum} rows cannot be in {} bytes", self.file_bytes)));
        }
        Ok(sum)
    }

    /// Appends the next few thousand samples; `false`: there were none left.
    ///
    /// # Errors
    /// The file is damaged. Samples before the damage may have been appended.
    pub fn next_batch(&mut self, out: &mut Vec<Sample>) -> Result<bool> {
        while self.group.as_ref().is_none_or(|g| g.rows_left == 0) {
            if self.next_group == self.metadata.num_row_groups() {
                return Ok(false);
            }
            let group = self.open_group(self.next_group).map_err(|p| Error::samples(&self.path, p))?;
            self.group = Some(group);
            self.next_group += 1;
        }
        let read = self.read;
        let Some(group) = &mut self.group else { return Ok(false) };
        let taken = group.read(&self.places, &self.leaves, read, out).map_err(|p| Error::samples(&self.path, p))?;
        self.read += taken;
        Ok(true)
    }

    fn open_group(&self, index: usize) -> std::result::Result<Group, String> {
        let group = self.metadata.row_group(index);
        let rows_left = u64::try_from(group.num_rows()).unwrap_or(0);
        let mut columns = Vec::with_capacity(COLUMNS.len());
        for (ours, &place) in COLUMNS.iter().zip(&self.places) {
            let chunk = group.columns().get(place).ok_or("damaged: a row group has fewer columns than the file")?;
            let leaf = &self.leaves[place];
            let reader = self.open_column(chunk, leaf, rows_left);
            columns.push(reader.map_err(|e| in_column(ours, &e))?);
        }
        Ok(Group { columns, rows_left })
    }

    fn open_column(
        &self,
        chunk: &ColumnChunkMetaData,
        leaf: &Leaf,
        rows: u64,
    ) -> std::result::Result<ColumnReader, String> {
        let start = chunk.dictionary_page_offset().unwrap_or(chunk.data_page_offset());
        let end = start.checked_add(chunk.compressed_size());
        let inside =
            start >= 0 && chunk.compressed_size() >= 0 && end.is_some_and(|e| e.cast_unsigned() <= self.file_bytes);
        if !inside || chunk.column_type() != leaf.physical || u64::try_from(chunk.num_values()) != Ok(rows) {
            return Err("its place in the file makes no sense".to_owned());
        }
        let compression = chunk.compression();
        let plain = chunk.clone().into_builder().set_compression(Compression::UNCOMPRESSED).build();
        let plain = plain.map_err(|e| e.to_string())?;
        let rows_usize = usize::try_from(rows).map_err(|e| e.to_string())?;
        let pages =
            SerializedPageReader::new(self.file.clone(), &plain, rows_usize, None).map_err(|e| e.to_string())?;
        let guarded =
            GuardedPages::new(pages, compression, leaf.physical, leaf.optional, rows).map_err(|e| e.to_string())?;
        Ok(get_column_reader(chunk.column_descr_ptr(), Box::new(guarded)))
    }
}

fn in_column(column: &str, problem: &str) -> String {
    let problem = problem.strip_prefix("Parquet error: ").unwrap_or(problem);
    format!("damaged: column {column}: {problem}")
}

/// Length and checksum, before anything in the file is believed.
fn check_whole(path: &Path, file: &mut File, bytes: u64, expected: &SamplesFile) -> Result<()> {
    if let Some(want) = expected.bytes.filter(|&want| want != bytes) {
        let how = if bytes < want { "cut short" } else { "too long" };
        return Err(Error::samples(path, format!("{how}: {bytes} bytes where run.json says {want}")));
    }
    let Some(want) = expected.crc32 else { return Ok(()) };
    let mut digest = Hasher::new();
    let mut buffer = vec![0; 1 << 18];
    loop {
        match file.read(&mut buffer).map_err(Error::io("read", path))? {
            0 => break,
            n => digest.update(&buffer[..n]),
        }
    }
    let found = digest.finalize();
    if found != want {
        return Err(Error::samples(path, format!("damaged: its CRC-32 is {found} where run.json says {want}")));
    }
    Ok(())
}

/// The footer: metadata, its length in 4 bytes, `PAR1`.
fn read_footer(path: &Path, file: &mut File, bytes: u64) -> Result<Vec<u8>> {
    let not_parquet = || Error::samples(path, "not a Parquet file, or cut short");
    if bytes < 12 {
        return Err(not_parquet());
    }
    let mut tail = [0; 8];
    file.seek(SeekFrom::Start(bytes - 8)).map_err(Error::io("read", path))?;
    file.read_exact(&mut tail).map_err(Error::io("read", path))?;
    let len = u64::from(u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]));
    if &tail[4..] != b"PAR1" || len > (bytes - 12).min(MAX_FOOTER_BYTES) {
        return Err(not_parquet());
    }
    let mut footer = Vec::new();
    file.seek(SeekFrom::Start(bytes - 8 - len)).map_err(Error::io("read", path))?;
    file.take(len).read_to_end(&mut footer).map_err(Error::io("read", path))?;
    Ok(footer)
}

fn find_columns(path: &Path, leaves: &[Leaf]) -> Result<[usize; COLUMNS.len()]> {
    let mut places = [0; COLUMNS.len()];
    for (column, place) in COLUMNS.iter().zip(&mut places) {
        let mut found = leaves.iter().enumerate().filter(|(_, leaf)| leaf.name == *column);
        let (Some((at, leaf)), None) = (found.next(), found.next()) else {
            return Err(Error::samples(path, format!("column {column} is missing or there twice")));
        };
        if !matches!(leaf.physical, Physical::INT32 | Physical::INT64 | Physical::FLOAT | Physical::DOUBLE) {
            return Err(Error::samples(path, format!("column {column} is not of numbers")));
        }
        *place = at;
    }
    Ok(places)
}

fn metadata(path: &Path, file: &File, leaves: &[Leaf]) -> Result<Arc<ParquetMetaData>> {
    let damaged = |e: parquet::errors::ParquetError| Error::samples(path, format!("damaged: {e}"));
    let options = ReadOptionsBuilder::new()
        .with_parquet_schema(footer::schema(leaves).map_err(damaged)?)
        .with_column_stats_policy(ParquetStatisticsPolicy::SkipAll)
        .with_size_stats_policy(ParquetStatisticsPolicy::SkipAll)
        .with_encoding_stats_policy(ParquetStatisticsPolicy::SkipAll)
        .build();
    let file = file.try_clone().map_err(Error::io("read", path))?;
    let reader = SerializedFileReader::new_with_options(file, options).map_err(damaged)?;
    Ok(Arc::new(reader.metadata().clone()))
}

/// A number of any of the four types, for a column of any of ours.
trait Number: Copy {
    fn whole(self) -> Option<i64>;
    fn real(self) -> f64;
}

impl Number for i32 {
    fn whole(self) -> Option<i64> {
        Some(self.into())
    }
    fn real(self) -> f64 {
        self.into()
    }
}

impl Number for i64 {
    fn whole(self) -> Option<i64> {
        Some(self)
    }
    // What a file of another writer may lose beyond 2^53 ns, 104 days.
    fn real(self) -> f64 {
        self as f64
    }
}

impl Number for f64 {
    fn whole(self) -> Option<i64> {
        (self.fract() == 0.0 && self.abs() < 9.2e18).then_some(self as i64)
    }
    fn real(self) -> f64 {
        self
    }
}

impl Number for f32 {
    fn whole(self) -> Option<i64> {
        f64::from(self).whole()
    }
    fn real(self) -> f64 {
        self.into()
    }
}

impl Group {
    /// Appends up to a batch of rows; `before`: rows read so far, for messages.
    fn read(
        &mut self,
        places: &[usize; COLUMNS.len()],
        leaves: &[Leaf],
        before: u64,
        out: &mut Vec<Sample>,
    ) -> std::result::Result<u64, String> {
        let rows = usize::try_from(self.rows_left).unwrap_or(BATCH_ROWS).min(BATCH_ROWS);
        let first = out.len();
        out.resize(first + rows, Sample::default());
        let samples = &mut out[first..];
        let mut result = Ok(());
        for (i, reader) in self.columns.iter_mut().enumerate() {
            let batch = Batch { column: i, optional: leaves[places[i]].optional, before };
            result = match reader {
                ColumnReader::Int32ColumnReader(r) => batch.read::<Int32Type>(r, samples),
                ColumnReader::Int64ColumnReader(r) => batch.read::<Int64Type>(r, samples),
                ColumnReader::FloatColumnReader(r) => batch.read::<FloatType>(r, samples),
                ColumnReader::DoubleColumnReader(r) => batch.read::<DoubleType>(r, samples),
                _ => Err("not of numbers".to_owned()),
            };
            if let Err(problem) = &result {
                result = Err(in_column(COLUMNS[i], problem));
                break;
            }
        }
        if result.is_err() {
            out.truncate(first);
        }
        self.rows_left -= rows as u64;
        result.map(|()| rows as u64)
    }
}

/// One column's part of a batch.
struct Batch {
    column: usize,
    optional: bool,
    before: u64,
}

impl Batch {
    fn read<T: DataType>(&self, reader: &mut ColumnReaderImpl<T>, out: &mut [Sample]) -> std::result::Result<(), String>
    where
        T::T: Number,
    {
        let mut values: Vec<T::T> = Vec::with_capacity(out.len());
        let mut levels = Vec::new();
        let def = self.optional.then_some(&mut levels);
        let (rows, present, _) = reader.read_records(out.len(), def, None, &mut values).map_err(|e| e.to_string())?;
        if rows != out.len() {
            return Err(format!("ends {} rows early", out.len() - rows));
        }
        if present != rows || values.len() != rows {
            return Err(format!("has empty values near row {}", self.before));
        }
        for (i, (sample, &value)) in out.iter_mut().zip(&values).enumerate() {
            set(sample, self.column, value)
                .ok_or_else(|| format!("row {}: {:?} is out of its range", self.before + i as u64, value.real()))?;
        }
        Ok(())
    }
}

/// Puts a value into the field of a column of [`COLUMNS`]; `None`: it does not fit.
fn set<N: Number>(sample: &mut Sample, column: usize, value: N) -> Option<()> {
    // Unsigned 32-bit columns come as the signed number of the same bits.
    let unsigned = |v: i64| u32::try_from(v).ok().or_else(|| i32::try_from(v).ok().map(i32::cast_unsigned));
    match column {
        0 => sample.rank = unsigned(value.whole()?)?,
        1 => sample.peer = i32::try_from(value.whole()?).ok()?,
        2 => sample.repetition = unsigned(value.whole()?)?,
        3 => sample.start_ns = value.whole()?,
        4 => sample.duration_ns = Some(value.real()).filter(|v| v.is_finite())?,
        5 => sample.error_ns = Some(value.real() as f32).filter(|v| v.is_finite() && *v >= 0.0)?,
        _ => sample.flags = u8::try_from(value.whole()?).ok()?,
    }
    Some(())
}

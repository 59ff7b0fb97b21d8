//! Pages of a column, checked before a decoder sees them.
//!
//! The `parquet` crate's page reader is told that nothing is compressed, so that it hands out the
//! bytes as they are in the file and reserves nothing by what a page says of itself; uncompressing
//! is done here, bounded by what the compression can do.

use bytes::Bytes;
use parquet::basic::{Compression, Encoding, Type as Physical};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};

/// Snappy's best is 64 bytes for a copy of 3 (its format description, 2.2); beyond, a page lies.
const MAX_EXPANSION: usize = 22;
/// Block of DELTA_BINARY_PACKED: writers use 128 to 2048.
const MAX_DELTA_BLOCK: u64 = 1 << 16;

/// Checks and uncompresses what another reader of pages gives.
pub(super) struct GuardedPages<P> {
    inner: P,
    snappy: Option<snap::raw::Decoder>,
    physical: Physical,
    optional: bool,
    /// Rows that the row group still has.
    rows_left: u64,
    has_dictionary: bool,
}

fn bad<T>(problem: impl Into<String>) -> Result<T> {
    Err(ParquetError::General(problem.into()))
}

impl<P: PageReader> GuardedPages<P> {
    pub(super) fn new(
        inner: P,
        compression: Compression,
        physical: Physical,
        optional: bool,
        rows: u64,
    ) -> Result<Self> {
        let snappy = match compression {
            Compression::UNCOMPRESSED => None,
            Compression::SNAPPY => Some(snap::raw::Decoder::new()),
            other => {
                let name = format!("{other:?}");
                let name = name.split('(').next().unwrap_or_default();
                return bad(format!("compressed with {name}; samples are read with SNAPPY or uncompressed"));
            }
        };
        Ok(Self { inner, snappy, physical, optional, rows_left: rows, has_dictionary: false })
    }

    /// Uncompresses all but the first `plain` bytes.
    fn uncompress(&mut self, data: Bytes, plain: usize) -> Result<Bytes> {
        let Some(decoder) = &mut self.snappy else { return Ok(data) };
        if plain > data.len() {
            return bad("a page is shorter than its levels");
        }
        let packed = &data[plain..];
        if packed.is_empty() {
            return Ok(data);
        }
        let len = snap::raw::decompress_len(packed).map_err(|e| ParquetError::General(e.to_string()))?;
        if len / MAX_EXPANSION > packed.len() {
            return bad(format!("a page of {} bytes claims to hold {len}", packed.len()));
        }
        let mut out = vec![0; plain + len];
        out[..plain].copy_from_slice(&data[..plain]);
        let got = decoder.decompress(packed, &mut out[plain..]).map_err(|e| ParquetError::General(e.to_string()))?;
        out.truncate(plain + got);
        Ok(out.into())
    }

    fn width(&self) -> usize {
        match self.physical {
            Physical::INT32 | Physical::FLOAT => 4,
            _ => 8,
        }
    }

    /// The page uncompressed, and what it claims checked.
    fn guard(&mut self, mut page: Page) -> Result<Page> {
        match &mut page {
            Page::DictionaryPage { buf, num_values, .. } => {
                *buf = self.uncompress(std::mem::take(buf), 0)?;
                if (*num_values as usize).saturating_mul(self.width()) > buf.len() {
                    return bad(format!("a dictionary of {} bytes claims {num_values} values", buf.len()));
                }
                self.has_dictionary = true;
            }
            Page::DataPage { buf, num_values, encoding, statistics, .. } => {
                *buf = self.uncompress(std::mem::take(buf), 0)?;
                self.take_rows(*num_values)?;
                let values = if self.optional { after_levels(buf)? } else { buf };
                self.check_values(*encoding, values, *num_values)?;
                *statistics = None;
            }
            Page::DataPageV2 {
                buf,
                num_values,
                encoding,
                num_nulls,
                def_levels_byte_len,
                rep_levels_byte_len,
                is_compressed,
                statistics,
                ..
            } => {
                let levels = *def_levels_byte_len as usize + *rep_levels_byte_len as usize;
                if *is_compressed {
                    *buf = self.uncompress(std::mem::take(buf), levels)?;
                }
                self.take_rows(*num_values)?;
                let Some(values) = buf.get(levels..) else { return bad("a page is shorter than its levels") };
                if *num_nulls != 0 {
                    return bad("has empty values");
                }
                self.check_values(*encoding, values, *num_values)?;
                *statistics = None;
            }
        }
        Ok(page)
    }

    fn take_rows(&mut self, rows: u32) -> Result<()> {
        match self.rows_left.checked_sub(rows.into()) {
            Some(left) => self.rows_left = left,
            None => return bad("its pages hold more rows than its row group"),
        }
        Ok(())
    }

    fn check_values(&self, encoding: Encoding, values: &[u8], count: u32) -> Result<()> {
        match encoding {
            Encoding::PLAIN => Ok(()),
            // The decoder takes the length for granted.
            Encoding::BYTE_STREAM_SPLIT if (count as usize).checked_mul(self.width()) == Some(values.len()) => Ok(()),
            Encoding::BYTE_STREAM_SPLIT => bad(format!("a page of {} bytes claims {count} values", values.len())),
            Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY => {
                if self.has_dictionary {
                    Ok(())
                } else {
                    bad("a page refers to a dictionary that is not there")
                }
            }
            // The decoder takes it for granted that there is a first value.
            Encoding::DELTA_BINARY_PACKED => match delta_head(values) {
                Some((block, total)) if block <= MAX_DELTA_BLOCK && total > 0 && total <= u64::from(count) => Ok(()),
                _ => bad("a page of differences has a head without sense"),
            },
            other => bad(format!("is encoded as {other}, which this reader does not know")),
        }
    }
}

/// What follows the definition levels of a first-version page: 4 bytes of length, then so many.
fn after_levels(buf: &[u8]) -> Result<&[u8]> {
    let rest = buf.split_first_chunk().and_then(|(len, rest)| rest.get(u32::from_le_bytes(*len) as usize..));
    rest.map_or_else(|| bad("a page is shorter than its levels"), Ok)
}

/// The head of differences: the size of a block, and the number of values.
fn delta_head(mut values: &[u8]) -> Option<(u64, u64)> {
    let block = varint(&mut values)?;
    let _parts = varint(&mut values)?;
    Some((block, varint(&mut values)?))
}

/// Takes one number of seven bits a byte off the front.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for i in 0..9 {
        let (&b, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(b & 0x7f) << (7 * i);
        if b & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

impl<P: PageReader> Iterator for GuardedPages<P> {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl<P: PageReader> PageReader for GuardedPages<P> {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        match self.inner.get_next_page()? {
            Some(page) => self.guard(page).map(Some),
            None => Ok(None),
        }
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.inner.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        bad("pages are never skipped")
    }
}

//! Samples files: Parquet, seven flat columns.
//!
//! Writing uses the `parquet` crate as it is. Reading uses its decoders, but trusts no number in
//! the file: the schema is read here (`footer`), pages are uncompressed and checked here before a
//! decoder sees them (`pages`), so that memory is bounded by what the file really holds.

mod footer;
mod pages;
mod read;
mod write;

pub use read::{SampleStream, read_samples};
pub(crate) use write::SamplesWriter;

/// The columns, in the order in which they are written. A reader takes them in any order, among
/// others.
pub(crate) const COLUMNS: [&str; 7] = ["rank", "peer", "repetition", "start_ns", "duration_ns", "error_ns", "flags"];

/// The schema that is written, in Parquet's own notation.
pub(crate) const SCHEMA: &str = "
message samples {
  required int32 rank (integer(32, false));
  required int32 peer;
  required int32 repetition (integer(32, false));
  required int64 start_ns;
  required double duration_ns;
  required float error_ns;
  required int32 flags (integer(8, false));
}";

#[cfg(test)]
mod tests;

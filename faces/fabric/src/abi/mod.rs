//! The part of libfabric's public binary interface that a provider sees, written by hand.
//!
//! Facts from the public headers of libfabric 1.17 to 2.6. Nothing here links with libfabric: the
//! library calls the provider through the tables defined here, and frees what [`crate::info`]
//! allocates with the C allocator. Structures that grew over time are given at their newest size;
//! `abi/tests.rs` compares sizes and offsets with what headers were recorded to say, and
//! `tests/headers.rs` the record with headers installed.

mod consts;
mod objects;
mod structs;

pub use consts::*;
pub use objects::*;
pub use structs::*;

#[cfg(test)]
mod tests;

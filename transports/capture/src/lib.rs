//! What passes a datagram device, in a file: [`Captured`] wraps any device and writes pcapng, which
//! Wireshark reads. And what such files are made of: [`RecordFile`], which a full disk cuts behind
//! a whole record, and [`create_unshared`], by which two endpoints never write one file.

mod capture;
mod captured;
mod records;
mod unshared;

pub use capture::Ended;
pub use captured::Captured;
pub use records::RecordFile;
pub use unshared::create_unshared;

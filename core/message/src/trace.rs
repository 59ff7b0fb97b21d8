//! The lines of the trace, from what the tables say.

mod packets;
mod requests;

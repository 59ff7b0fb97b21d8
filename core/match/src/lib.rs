#![no_std]
#![forbid(unsafe_code)]
//! (to be written)

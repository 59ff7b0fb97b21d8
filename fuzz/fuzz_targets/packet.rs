//! A datagram that claims to be PROTECTED: head, check, frames.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::parsers::packet(data));

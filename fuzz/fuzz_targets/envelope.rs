//! Bytes that claim to be an envelope.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::parsers::envelope(data));

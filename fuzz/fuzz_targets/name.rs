//! Bytes that claim to be an endpoint name.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::parsers::name(data));

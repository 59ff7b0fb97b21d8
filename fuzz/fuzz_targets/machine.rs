//! Descriptions of machines.
#![no_main]
libfuzzer_sys::fuzz_target!(|text: &[u8]| weir_fuzz::predict::description(text));

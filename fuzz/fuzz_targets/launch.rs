//! What launchers and ranks say to each other.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::launch::run(data));

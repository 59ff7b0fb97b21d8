//! Patterns of messages for the benchmark.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    weir_fuzz::pattern::run(data);
});

//! What arrives of a process at the end of a superstep.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    weir_fuzz::bsp::run(data);
});

//! Recordings of MPI calls.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    weir_fuzz::record::run(data);
});

//! Directives in sources and plain files.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    weir_fuzz::annotations::run(data);
});

//! C, or what is given for it, to be annotated.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    weir_fuzz::annotate::run(data);
});

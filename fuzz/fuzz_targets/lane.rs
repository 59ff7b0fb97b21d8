//! Two endpoints with TCP lanes between them, over networks that the input controls.
#![no_main]
libfuzzer_sys::fuzz_target!(|input: weir_fuzz::lane::Input| {
    weir_fuzz::lane::run(&input);
});

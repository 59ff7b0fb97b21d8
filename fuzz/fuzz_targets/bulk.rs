//! Two endpoints with bulk connections between them, over networks that the input controls.
#![no_main]
libfuzzer_sys::fuzz_target!(|input: weir_fuzz::bulk::Input| {
    weir_fuzz::bulk::run(&input);
});

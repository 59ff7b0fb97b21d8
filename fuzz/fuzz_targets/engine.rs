//! Two engines over a network that the input controls.
#![no_main]
libfuzzer_sys::fuzz_target!(|input: weir_fuzz::engine::Input| {
    weir_fuzz::engine::run(&input);
});

//! Two engines with lanes over loopback, of whose calls the input says what they do.
#![no_main]
libfuzzer_sys::fuzz_target!(|input: weir_fuzz::engine_lanes::Input| {
    weir_fuzz::engine_lanes::run(&input);
});

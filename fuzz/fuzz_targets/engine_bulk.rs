//! Two engines with bulk connections over loopback, of whose calls the input says what they do.
#![no_main]
libfuzzer_sys::fuzz_target!(|input: weir_fuzz::engine_bulk::Input| {
    weir_fuzz::engine_bulk::run(&input);
});

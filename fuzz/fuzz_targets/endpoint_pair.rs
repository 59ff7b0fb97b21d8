//! Two honest endpoints over a network that the input controls.
#![no_main]
libfuzzer_sys::fuzz_target!(|input: weir_fuzz::pair::Input| {
    weir_fuzz::pair::run(&input);
});

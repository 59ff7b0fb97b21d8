//! A run's files from hostile hands: `run.json` and samples.
#![no_main]
libfuzzer_sys::fuzz_target!(|input: weir_fuzz::distribution::Input| {
    weir_fuzz::distribution::run(&input);
});

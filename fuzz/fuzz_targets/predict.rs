//! The virtual machine on any model.
#![no_main]
libfuzzer_sys::fuzz_target!(|input: weir_fuzz::predict::Input| {
    weir_fuzz::predict::run(&input);
});

//! An endpoint against a member of the job that sends whatever the input says.
#![no_main]
libfuzzer_sys::fuzz_target!(|input: weir_fuzz::hostile::Input| {
    weir_fuzz::hostile::run(&input);
});

//! A server of `bmi_weir` and a member of its job that is no BMI.
#![no_main]
libfuzzer_sys::fuzz_target!(|input: weir_fuzz::bmi_weir::Input| {
    weir_fuzz::bmi_weir::run(&input);
});

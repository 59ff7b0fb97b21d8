//! A server of `bmi_tcp` and its connections.
#![no_main]
libfuzzer_sys::fuzz_target!(|input: weir_fuzz::bmi_tcp::Input| {
    weir_fuzz::bmi_tcp::run(&input);
});

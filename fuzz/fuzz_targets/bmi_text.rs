//! Addresses and method lists of BMI.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    weir_fuzz::bmi::text(data);
});

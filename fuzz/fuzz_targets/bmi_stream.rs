//! Headers of BMI's TCP wires, in a stream that is cut anywhere.
#![no_main]
libfuzzer_sys::fuzz_target!(|input: weir_fuzz::bmi::Bytes| {
    weir_fuzz::bmi::stream(&input);
});

//! The matcher and its reference model, step by step.
#![no_main]
libfuzzer_sys::fuzz_target!(|steps: weir_fuzz::matching::Steps| weir_fuzz::matching::run(&steps));

//! A ring of shared memory, with a peer that may write anywhere in it.
#![no_main]
libfuzzer_sys::fuzz_target!(|input: weir_fuzz::shm::Steps| {
    weir_fuzz::shm::ring(&input);
});

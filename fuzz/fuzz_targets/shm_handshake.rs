//! The handshake of shared memory with messages that the input changes.
#![no_main]
libfuzzer_sys::fuzz_target!(|input: weir_fuzz::shm::Meddling| {
    weir_fuzz::shm::handshake(&input);
});

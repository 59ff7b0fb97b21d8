//! What a peer that lies says by SCTP.
#![no_main]
libfuzzer_sys::fuzz_target!(|input: weir_fuzz::sctp::Input| {
    weir_fuzz::sctp::run(&input);
});

//! Frames that come by AF_XDP, and what ranks and helper say to each other.
#![no_main]
libfuzzer_sys::fuzz_target!(|input: weir_fuzz::xdp::Input| {
    weir_fuzz::xdp::run(&input);
});

//! A datagram that claims to be a handshake packet.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::parsers::handshake(data));

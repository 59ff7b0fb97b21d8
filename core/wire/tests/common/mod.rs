//! Helpers shared by the tests of this crate.
#![allow(dead_code, reason = "each test file uses some of them")]

use std::net::SocketAddr;

use weir_wire::handshake::{Accept, Confirm, Cookie, Opening, Refuse, Reset};
use weir_wire::{AddrList, Handshake, JobKey, Level, Params, RefuseCode};

/// Bytes 0, 1, 2, ... 31.
pub fn job_key() -> JobKey {
    core::array::from_fn(|i| u8::try_from(i).expect("below 32"))
}

/// Bytes counting up from `first`.
pub fn counting<const N: usize>(first: u8) -> [u8; N] {
    core::array::from_fn(|i| first + u8::try_from(i).expect("short"))
}

/// Bytes of a hex string in which blanks mean nothing.
pub fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().filter_map(|c| c.to_digit(16)).map(|d| u8::try_from(d).expect("a digit")).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

pub fn opening() -> Opening {
    Opening {
        level: Level::Auth,
        features: 3,
        opener_id: 0x1122_3344_5566_7788,
        responder_id: 0x99aa_bbcc_ddee_ff00,
        opener_association: 0x0102_0304_0506_0708,
        nonce: counting(0xa0),
    }
}

pub fn params() -> Params {
    let addresses: AddrList =
        ["10.1.2.3:4791", "[fe80::1]:4791"].iter().map(|a| a.parse::<SocketAddr>().expect("an address")).collect();
    Params {
        max_datagram: 8972,
        streams: 16,
        initial_credit_msgs: 1024,
        initial_credit_bytes: 1 << 20,
        rx_buffer_bytes: 4 << 20,
        ack_delay_max_us: 25,
        peer_timeout_ms: 5000,
        bulk_connections: 0,
        ecn: false,
        sctp: 0,
        parity_rows: 0,
        addresses,
    }
}

/// One of each handshake packet.
pub fn handshakes() -> Vec<Handshake> {
    vec![
        Handshake::Init(opening()),
        Handshake::Cookie(Cookie { opener_association: 0x0102_0304_0506_0708, cookie: counting(0xc0) }),
        Handshake::Confirm(Confirm { opening: opening(), cookie: counting(0xc0), params: params() }),
        Handshake::Accept(Accept {
            level: Level::Encrypt,
            features: 1,
            opener_association: 0x0102_0304_0506_0708,
            responder_id: 0x99aa_bbcc_ddee_ff00,
            responder_association: 0x1112_1314_1516_1718,
            nonce: counting(0xb0),
            params: params(),
        }),
        Handshake::Refuse(Refuse {
            code: RefuseCode::StaleIncarnation,
            opener_association: 0x0102_0304_0506_0708,
            endpoint_id: 0x99aa_bbcc_ddee_ff00,
        }),
        Handshake::Reset(Reset { association: 0x1112_1314_1516_1718, endpoint_id: 0x2122_2324_2526_2728 }),
    ]
}

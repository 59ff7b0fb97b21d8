//! Whole packets and names against fixed bytes. MACs, keys, CRCs and ciphertexts were computed with
//! another implementation (Python's hmac and cryptography), so that both sides of this crate cannot
//! be wrong alike.

mod common;

use common::{counting, handshakes, hex, job_key, opening};
use std::net::IpAddr;
use weir_wire::frame::{self, Frame, Frames};
use weir_wire::seal::{CookieKey, Role, fingerprint};
use weir_wire::{EndpointName, Handshake, HandshakeKey, Header, Level, SessionKeys, crc32c_append};

const PARAMS: &str = "0c23 1000 00040000 0000100000000000 0000400000000000 19000000 88130000 02 000000
    04 00 b712 0a010203  06 00 b712 fe800000000000000000000000000001";

#[test]
fn handshake_packets() {
    let opening = "01 0300 00000000 8877665544332211 00ffeeddccbbaa99 0807060504030201
        a0a1a2a3a4a5a6a7a8a9aaabacadaeaf";
    let cookie = "c0c1c2c3c4c5c6c7c8c9cacbcccdcecfd0d1d2d3d4d5d6d7d8d9dadbdcdddedf";
    let filling = "00".repeat(96);
    let expected = [
        format!("10 {opening} {filling} 1c2a2daa800945219d131ee0107d72e4"),
        format!("11 00000000000000 0807060504030201 {cookie} 7eaa6a9218a20a86576de2952d5ad39f"),
        format!("12 {opening} {cookie} {PARAMS} e40f34e27407211d12fa23eb48f100ab"),
        format!(
            "13 02 0100 00000000 0807060504030201 00ffeeddccbbaa99 1817161514131211
             b0b1b2b3b4b5b6b7b8b9babbbcbdbebf {PARAMS} 822ea4a8bf36de003b18e9023e4c675c"
        ),
        "14 01 000000000000 0807060504030201 00ffeeddccbbaa99 c32937bc7ab390b476ba35476e607ce1".into(),
        "16 00000000000000 1817161514131211 2827262524232221 a1873756a4990ac66763cab4d1f5698b".into(),
    ];
    let key = HandshakeKey::derive(&job_key());
    let mut out = Vec::new();
    for (packet, text) in handshakes().iter().zip(&expected) {
        packet.write(&key, &mut out);
        assert_eq!(out, hex(text), "{packet:?}");
        assert_eq!(Handshake::parse(&out, &key).as_ref(), Ok(packet));
    }
}

/// One PING and one PATH_CHALLENGE under number 2^32 + 7 from opener to responder.
fn protected(level: Level) -> Vec<u8> {
    let number = 0x1_0000_0007;
    let derive = |role| {
        SessionKeys::derive(
            &job_key(),
            level,
            role,
            &counting(0xa0),
            &counting(0xb0),
            0x1122_3344_5566_7788,
            0x99aa_bbcc_ddee_ff00,
        )
    };
    let mut packet = Vec::new();
    let header = Header { level, ack_now: true, path: 3, number: 7, association: 0x1112_1314_1516_1718 };
    header.write(&mut packet);
    frame::write_ping(&mut packet);
    frame::write_path_challenge(0xdead_beef, &mut packet);
    derive(Role::Opener).send.seal(number, &mut packet);

    let mut received = packet.clone();
    assert_eq!(Header::parse(&received), Ok(header));
    let range = derive(Role::Responder).recv.open(level, number, &mut received).expect("genuine");
    let frames: Vec<_> = Frames::parse(&received, range).expect("well formed").iter().collect();
    assert_eq!(frames, [Frame::Ping, Frame::PathChallenge(0xdead_beef)]);
    packet
}

// spec: P-2.8
#[test]
fn protected_integrity() {
    let text = "15 04 03 00 07000000 1817161514131211 9cc908a8 01 07000000 00000000 efbeadde00000000";
    assert_eq!(protected(Level::Integrity), hex(text));
}

// spec: P-2.9, P-2.11
#[test]
fn protected_auth() {
    let text = "15 05 03 00 07000000 1817161514131211 01 07000000 00000000 efbeadde00000000
        4e9f56c0640c7e50f66d65dd0fdc7f9c";
    assert_eq!(protected(Level::Auth), hex(text));
}

// spec: P-2.10, P-2.11
#[test]
fn protected_encrypt() {
    let text = "15 06 03 00 07000000 1817161514131211
        5fee9ece3892d2468329e080f0463e8670 19db609f43bd19b2bc36f5474944ad9e";
    assert_eq!(protected(Level::Encrypt), hex(text));
}

// spec: P-3.5
#[test]
fn cookie_is_good_for_two_epochs_and_one_address() {
    let key = CookieKey::new(&[0x77; 32]);
    let from = "10.1.2.3:4791".parse().expect("an address");
    let cookie = key.cookie(&from, &opening(), 5);
    assert_eq!(cookie.to_vec(), hex("5c6935d276c848ac41971b9151586f4781f278c5b7f2cd8f03e2ca0bc504fc0c"));
    assert!(!key.verify(&cookie, &from, &opening(), 4));
    assert!(key.verify(&cookie, &from, &opening(), 5));
    assert!(key.verify(&cookie, &from, &opening(), 6));
    assert!(!key.verify(&cookie, &from, &opening(), 7));
    let elsewhere = "10.1.2.3:4792".parse().expect("an address");
    assert!(!key.verify(&cookie, &elsewhere, &opening(), 5));
    let mut other = opening();
    other.nonce[15] ^= 1;
    assert!(!key.verify(&cookie, &from, &other, 5));
}

#[test]
fn crc_check_value_of_castagnoli() {
    // RFC 3720 appendix B.4 and the check value of the CRC catalogue.
    assert_eq!(crc32c_append(0, b"123456789"), 0xe306_9283);
    assert_eq!(crc32c_append(0, &[0; 32]), 0x8a91_36aa);
    assert_eq!(crc32c_append(0, &[0xff; 32]), 0x62a8_ab43);
}

// spec: P-7.1
#[test]
fn names() {
    let mut name = EndpointName::new(4791, fingerprint(&job_key()), 0x1122_3344_5566_7788);
    let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
    assert!(name.push(ip("10.1.2.3")));
    assert!(name.push(ip("fe80::1")));
    assert!(name.push(ip("192.168.7.9")));
    assert!(!name.push(ip("fe80::2")), "17 bytes do not fit the last 5");
    let text = "01 03 12b7 2c6e19ba 8877665544332211
        04 0a010203  06 fe800000000000000000000000000001  04 c0a80709  0000000000";
    assert_eq!(name.encode().to_vec(), hex(text));
    assert_eq!(EndpointName::decode(&name.encode()), Ok(name.clone()));
    assert!(name.push(ip("127.0.0.1")), "exactly full");
    assert!(!name.push(ip("127.0.0.2")));
    assert_eq!(EndpointName::decode(&name.encode()), Ok(name));
}

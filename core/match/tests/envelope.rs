//! The envelope codec: golden bytes of spec/envelopes.md, round trips, and bytes that are no
//! envelope.

use proptest::prelude::*;
use weir_match::Class;
use weir_match::Class::{Tagged, Untagged};
use weir_match::atomic::{Atomic, AtomicOp, AtomicType};
use weir_match::envelope::{DecodeError, Envelope, MAX_BYTES, Status};

fn encode(e: &Envelope) -> Vec<u8> {
    let mut buf = [0xee; MAX_BYTES];
    let n = e.encode(&mut buf);
    assert!(buf[n..].iter().all(|b| *b == 0xee), "writes nothing behind the envelope");
    buf[..n].to_vec()
}

fn hex(s: &str) -> Vec<u8> {
    let digits: Vec<char> = s.chars().filter(|c| !c.is_whitespace()).collect();
    let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

fn atomic(op: AtomicOp, of: AtomicType) -> Atomic {
    Atomic::new(op, of).expect("there is one")
}

#[test]
fn golden_bytes() {
    const OP: u64 = 0x1122_3344_5566_7788;
    let eager = |class, tag, data, sync| Envelope::Eager { class, tag, data, sync };
    let cases = [
        (eager(Untagged, 0, None, None), "01000000"),
        (eager(Tagged, 0x0102_0304_0506_0708, None, None), "01010000 0807060504030201"),
        (eager(Tagged, 5, Some(0xdead_beef), None), "01030000 0500000000000000 efbeadde"),
        (eager(Tagged, 5, Some(1 << 32), None), "01070000 0500000000000000 0000000001000000"),
        (eager(Tagged, 5, Some(7), Some(OP)), "010b0000 0500000000000000 8877665544332211 07000000"),
        (
            Envelope::Rts { class: Tagged, tag: 5, data: Some(7), len: 0x10000, op: OP },
            "02030000 0500000000000000 0000010000000000 8877665544332211 07000000",
        ),
        (
            Envelope::Rts { class: Untagged, tag: 0, data: None, len: 1, op: 2 },
            "02000000 0100000000000000 0200000000000000",
        ),
        (
            Envelope::Cts { op: OP, rndv: 2, len: 3, granted: 4 },
            "03000000 8877665544332211 0200000000000000 0300000000000000 0400000000000000",
        ),
        (Envelope::SyncAck { op: OP }, "04000000 8877665544332211"),
        (
            Envelope::Write { key: 1, addr: 2, op: 3, data: Some(4), sync: false },
            "07020000 0100000000000000 0200000000000000 0300000000000000 04000000",
        ),
        (
            Envelope::Write { key: 1, addr: 2, op: 3, data: None, sync: true },
            "07080000 0100000000000000 0200000000000000 0300000000000000",
        ),
        (
            Envelope::WriteRts { key: 1, addr: 2, len: 3, op: 4, data: Some(u64::MAX) },
            "08060000 0100000000000000 0200000000000000 0300000000000000 0400000000000000 ffffffffffffffff",
        ),
        (
            Envelope::Read { key: 1, addr: 2, len: 3, rndv: 4, granted: 5 },
            "09000000 0100000000000000 0200000000000000 0300000000000000 0400000000000000 0500000000000000",
        ),
        (Envelope::Done { op: OP, read: false, status: Status::Ok }, "0a000000 8877665544332211"),
        (Envelope::Done { op: OP, read: true, status: Status::Range }, "0a100300 8877665544332211"),
        (Envelope::Noticed { count: OP }, "0b000000 8877665544332211"),
        (
            Envelope::Atomic {
                atomic: atomic(AtomicOp::Sum, AtomicType::U32),
                key: 1,
                addr: 8,
                op: OP,
                operand: 5,
                compare: 0,
                fetch: true,
            },
            "0c200206 0100000000000000 0800000000000000 8877665544332211 0500000000000000",
        ),
        (
            Envelope::Atomic {
                atomic: atomic(AtomicOp::SwapIfEqual, AtomicType::U64),
                key: 1,
                addr: 8,
                op: 3,
                operand: 5,
                compare: 4,
                fetch: true,
            },
            "0c200c08 0100000000000000 0800000000000000 0300000000000000 0500000000000000 0400000000000000",
        ),
        (
            Envelope::Atomic {
                atomic: atomic(AtomicOp::Read, AtomicType::I8),
                key: 1,
                addr: 8,
                op: 3,
                operand: 0,
                compare: 0,
                fetch: true,
            },
            "0c200a01 0100000000000000 0800000000000000 0300000000000000",
        ),
        (
            Envelope::Atomic {
                atomic: atomic(AtomicOp::Max, AtomicType::F64),
                key: 1,
                addr: 8,
                op: 3,
                operand: u64::MAX,
                compare: 0,
                fetch: false,
            },
            "0c00010a 0100000000000000 0800000000000000 0300000000000000 ffffffffffffffff",
        ),
        (
            Envelope::AtomicDone { op: 3, status: Status::Ok, value: Some(4) },
            "0d200000 0300000000000000 0400000000000000",
        ),
        (Envelope::AtomicDone { op: 3, status: Status::Ok, value: None }, "0d000000 0300000000000000"),
        (Envelope::AtomicDone { op: 3, status: Status::Alignment, value: None }, "0d000600 0300000000000000"),
    ];
    for (envelope, bytes) in cases {
        let bytes = hex(bytes);
        assert_eq!(encode(&envelope), bytes, "{envelope:?}");
        assert_eq!(Envelope::decode(&bytes), Ok(envelope));
    }
}

#[test]
fn what_is_refused_and_why() {
    use DecodeError::*;
    let cases = [
        ("", Short),
        ("010000", Short),
        ("01010000 05000000000000", Short),
        ("01000000 00", Long),
        ("00000000", Kind(0)),
        ("0b000000", Short),
        ("0d000000", Short),
        ("0e000000", Kind(14)),
        // No such operation, no such type, none for this type, nothing wanted of a read, bits
        // beyond the type, a value of what was refused.
        ("0c201308 010000000000000008000000000000000300000000000000 0500000000000000", Code(0x0813)),
        ("0c200200 010000000000000008000000000000000300000000000000 0500000000000000", Code(0x0002)),
        ("0c20020b 010000000000000008000000000000000300000000000000 0500000000000000", Code(0x0b02)),
        ("0c200609 010000000000000008000000000000000300000000000000 0500000000000000", Code(0x0906)),
        ("0c000a08 010000000000000008000000000000000300000000000000", Flags(0)),
        ("0c080208 010000000000000008000000000000000300000000000000 0500000000000000", Flags(0x08)),
        ("0c200206 010000000000000008000000000000000300000000000000 0000000001000000", NotCanonical),
        ("0c200c08 010000000000000008000000000000000300000000000000 0500000000000000", Short),
        ("0c200208 010000000000000008000000000000000300000000000000 0500000000000000 00", Long),
        ("0d200600 0300000000000000 0400000000000000", Flags(0x20)),
        ("0d000700 0300000000000000", Code(7)),
        ("ff000000", Kind(255)),
        ("01100000", Flags(0x10)),
        ("01040000 0000000001000000", Flags(0x04)),
        ("02080000", Flags(0x08)),
        ("08080000", Flags(0x08)),
        ("04010000 8877665544332211", Flags(0x01)),
        ("01000100", Code(1)),
        ("05000000 8877665544332211", Kind(5)),
        ("06000300 8877665544332211", Kind(6)),
        ("0a000700 8877665544332211", Code(7)),
        ("01060000 ffffffff00000000", NotCanonical),
    ];
    for (bytes, error) in cases {
        assert_eq!(Envelope::decode(&hex(bytes)), Err(error), "{bytes}");
        assert!(!error.to_string().is_empty());
    }
}

fn class_and_tag() -> impl Strategy<Value = (weir_match::Class, u64)> {
    prop_oneof![any::<u64>().prop_map(|tag| (Tagged, tag)), Just((Untagged, 0))]
}

fn data() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![Just(None), any::<u32>().prop_map(|d| Some(u64::from(d))), any::<u64>().prop_map(Some)]
}

fn envelope() -> impl Strategy<Value = Envelope> {
    let status = prop::sample::select(vec![
        Status::Ok,
        Status::BadKey,
        Status::Access,
        Status::Range,
        Status::Cancelled,
        Status::NoMemory,
        Status::Alignment,
    ]);
    let words = any::<[u64; 5]>();
    prop_oneof![
        (class_and_tag(), data(), any::<Option<u64>>())
            .prop_map(|((class, tag), data, sync)| { Envelope::Eager { class, tag, data, sync } }),
        (class_and_tag(), data(), words)
            .prop_map(|((class, tag), data, [len, op, ..])| { Envelope::Rts { class, tag, data, len, op } }),
        words.prop_map(|[op, rndv, len, granted, _]| Envelope::Cts { op, rndv, len, granted }),
        any::<u64>().prop_map(|op| Envelope::SyncAck { op }),
        (words, data(), any::<bool>()).prop_map(|([key, addr, op, ..], data, sync)| Envelope::Write {
            key,
            addr,
            op,
            data,
            sync
        }),
        (words, data()).prop_map(|([key, addr, len, op, _], data)| Envelope::WriteRts { key, addr, len, op, data }),
        words.prop_map(|[key, addr, len, rndv, granted]| Envelope::Read { key, addr, len, rndv, granted }),
        (any::<u64>(), any::<bool>(), status.clone()).prop_map(|(op, read, status)| Envelope::Done {
            op,
            read,
            status
        }),
        any::<u64>().prop_map(|count| Envelope::Noticed { count }),
        (any_atomic(), words, any::<bool>()).prop_map(|(atomic, [key, addr, op, operand, compare], fetch)| {
            let (kind, mask) = (atomic.op(), atomic.of().mask());
            Envelope::Atomic {
                atomic,
                key,
                addr,
                op,
                operand: if kind.has_operand() { operand & mask } else { 0 },
                compare: if kind.has_compare() { compare & mask } else { 0 },
                fetch: fetch || kind == AtomicOp::Read,
            }
        }),
        (any::<u64>(), any::<Option<u64>>()).prop_map(|(op, value)| Envelope::AtomicDone {
            op,
            status: Status::Ok,
            value
        }),
        (any::<u64>(), status).prop_map(|(op, status)| Envelope::AtomicDone { op, status, value: None }),
    ]
}

fn any_atomic() -> impl Strategy<Value = Atomic> {
    let parts = (prop::sample::select(AtomicOp::ALL.to_vec()), prop::sample::select(AtomicType::ALL.to_vec()));
    parts.prop_filter_map("not for this type", |(op, of)| Atomic::new(op, of))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn round_trip(e in envelope()) {
        prop_assert_eq!(Envelope::decode(&encode(&e)), Ok(e));
    }

    /// Whatever decodes has just that one encoding.
    #[test]
    fn mutated_bytes_are_refused_or_mean_something_else(
        e in envelope(), at in any::<prop::sample::Index>(), flip in 1..=255u8, cut in 0..3usize, more in 0..3usize,
    ) {
        let original = encode(&e);
        let mut bytes = original.clone();
        let i = at.index(bytes.len().min(12));
        bytes[i] ^= flip;
        bytes.truncate(bytes.len() - cut);
        bytes.extend(std::iter::repeat_n(0, more));
        prop_assume!(bytes != original);
        if let Ok(other) = Envelope::decode(&bytes) {
            prop_assert_eq!(encode(&other), bytes);
            prop_assert_ne!(other, e);
        }
    }

    #[test]
    fn any_bytes(mut bytes in prop::collection::vec(any::<u8>(), 0..64), kind in 0..15u8, flags in 0..64u8) {
        if let Some(head) = bytes.get_mut(..4) {
            head.copy_from_slice(&[kind, flags, head[2] % 20, if kind == 12 { head[3] % 12 } else { 0 }]);
        }
        if let Ok(e) = Envelope::decode(&bytes) {
            prop_assert_eq!(encode(&e), bytes);
        }
    }
}

proptest! {
    #[test]
    fn the_short_way_writes_and_reads_what_the_general_one_does(
        tagged: bool,
        tag: u64,
        data in prop::option::of(prop_oneof![any::<u32>().prop_map(u64::from), any::<u64>()]),
        at in 0..MAX_BYTES,
        mask: u8,
        cut in 0..3usize,
    ) {
        let class = if tagged { Class::Tagged } else { Class::Untagged };
        let (mut short, mut general) = ([0; MAX_BYTES], [0; MAX_BYTES]);
        let n = Envelope::encode_eager(class, tag, data, &mut short);
        prop_assert_eq!(n, Envelope::Eager { class, tag, data, sync: None }.encode(&mut general));
        prop_assert_eq!(&short[..n], &general[..n]);
        let usual = tagged && data.is_none_or(|d| d <= u64::from(u32::MAX));
        prop_assert_eq!(Envelope::decode_eager(&short[..n]), usual.then_some((tag, data)));
        // Whatever else it reads, the general way reads too, and as the same.
        short[at] ^= mask;
        if let Some((tag, data)) = Envelope::decode_eager(&short[..n - cut]) {
            let want = Envelope::Eager { class: Class::Tagged, tag, data, sync: None };
            prop_assert_eq!(Envelope::decode(&short[..n - cut]), Ok(want));
        }
    }
}

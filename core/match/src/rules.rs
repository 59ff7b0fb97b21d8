//! One test for each rule of the crate's documentation, with hand-made cases.

use crate::model::STREAM_BITS;
use crate::*;
use std::vec::Vec;

const A: u64 = 0xa;
const B: u64 = 0xb;
const ALL: u64 = u64::MAX;

/// A matcher with one peer-by-peer sender in front: numbers messages as the protocol does.
struct Bench {
    m: Matcher,
    mseq: [u64; 4],
    sseq: [[u32; 3]; 4],
}

impl Default for Bench {
    fn default() -> Self {
        Bench { m: Matcher::new(STREAM_BITS), mseq: [0; 4], sseq: [[0; 3]; 4] }
    }
}

impl Bench {
    /// Numbers a message; tags that differ get different streams. Its token is its tag times 100
    /// plus its number.
    fn sent(&mut self, peer: u32, class: Class, tag: u64) -> Arrival {
        let stream = if class == Class::Untagged { 0 } else { 1 + (tag % 2) as u16 };
        let p = peer as usize;
        let (mseq, sseq) = (self.mseq[p], self.sseq[p][usize::from(stream)]);
        self.mseq[p] += 1;
        self.sseq[p][usize::from(stream)] += 1;
        Arrival { peer, class, mseq, stream, sseq, tag, len: 10, msg: tag * 100 + mseq }
    }

    fn tagged(&mut self, peer: u32, tag: u64) -> Arrival {
        self.sent(peer, Class::Tagged, tag)
    }

    fn arrive(&mut self, a: Arrival) -> Vec<(OpToken, MsgToken)> {
        let mut out = Vec::new();
        self.m.arrive(a, &mut out);
        out.iter().map(|m| (m.op, m.msg)).collect()
    }

    fn post(&mut self, op: OpToken, source: Source, tag: u64, ignore: u64) -> Vec<(OpToken, MsgToken)> {
        self.post_class(op, Class::Tagged, source, tag, ignore)
    }

    fn post_class(
        &mut self,
        op: OpToken,
        class: Class,
        source: Source,
        tag: u64,
        ignore: u64,
    ) -> Vec<(OpToken, MsgToken)> {
        let mut out = Vec::new();
        self.m.post(Posted { class, source, tag, ignore, op, multi: None }, &mut out);
        out.iter().map(|m| (m.op, m.msg)).collect()
    }
}

const P1: Source = Source::Peer(1);

#[test]
fn expected_and_unexpected() {
    let mut b = Bench::default();
    assert!(b.post(1, P1, A, 0).is_empty());
    let m = b.tagged(1, A);
    assert_eq!(b.arrive(m), [(1, m.msg)]);
    let m = b.tagged(1, A);
    assert!(b.arrive(m).is_empty());
    assert_eq!(b.m.unexpected_count(), 1);
    assert_eq!(b.post(2, P1, A, 0), [(2, m.msg)]);
    b.m.assert_empty();
}

#[test]
fn tag_source_and_mask_decide() {
    let mut b = Bench::default();
    b.post(1, Source::Peer(2), A, 0);
    b.post(2, P1, B, 0);
    b.post(3, P1, 0xff0a, 0xff00);
    b.post(4, Source::Any, A, 0);
    let m = b.tagged(1, A);
    assert_eq!(b.arrive(m), [(3, m.msg)]);
    let m = b.tagged(1, A);
    assert_eq!(b.arrive(m), [(4, m.msg)]);
    let m = b.tagged(1, A);
    assert!(b.arrive(m).is_empty());
}

#[test]
fn classes_never_mix() {
    let mut b = Bench::default();
    b.post(1, Source::Any, 0, ALL);
    let m = b.sent(1, Class::Untagged, 0);
    assert!(b.arrive(m).is_empty());
    let t = b.tagged(1, 0);
    assert_eq!(b.arrive(t), [(1, t.msg)]);
    let t = b.tagged(1, 0);
    b.arrive(t);
    assert_eq!(b.post_class(2, Class::Untagged, P1, 77, 0), [(2, m.msg)]);
    assert!(b.post_class(3, Class::Untagged, Source::Any, 0, ALL).is_empty());
}

#[test]
fn posting_order_decides_between_receives() {
    let mut b = Bench::default();
    b.post(1, Source::Any, 0, ALL);
    b.post(2, P1, A, 0);
    b.post(3, Source::Any, A, 0);
    b.post(4, P1, A, 1);
    for op in 1..=4 {
        let m = b.tagged(1, A);
        assert_eq!(b.arrive(m), [(op, m.msg)]);
    }
}

#[test]
fn message_order_decides_between_messages() {
    let mut b = Bench::default();
    let sent: Vec<Arrival> = [A, B, A, B].iter().map(|t| b.tagged(1, *t)).collect();
    for m in &sent {
        b.arrive(*m);
    }
    assert_eq!(b.post(1, P1, B, 0), [(1, sent[1].msg)]);
    assert_eq!(b.post(2, P1, 0, ALL), [(2, sent[0].msg)]);
    assert_eq!(b.post(3, Source::Any, 0, ALL), [(3, sent[2].msg)]);
    assert_eq!(b.post(4, Source::Any, B, 0), [(4, sent[3].msg)]);
}

#[test]
fn a_gap_in_another_stream_does_not_stall_an_exact_receive() {
    let mut b = Bench::default();
    let (lost, next) = (b.tagged(1, A), b.tagged(1, B));
    b.post(1, P1, B, 0);
    assert_eq!(b.arrive(next), [(1, next.msg)]);
    b.post(2, P1, A, 0);
    assert_eq!(b.arrive(lost), [(2, lost.msg)]);
}

/// Bits 54 and 55: what all receives of MPICH that name a tag ignore.
const MPICH: u64 = 0xc0 << 48;
/// Bit 32: what those of Open MPI ignore.
const OPEN_MPI: u64 = 1 << 32;

#[test]
fn a_gap_in_another_stream_does_not_stall_a_receive_that_ignores_protocol_bits() {
    for protocol in [MPICH, OPEN_MPI] {
        let mut b = Bench::default();
        let (lost, next) = (b.tagged(1, A), b.tagged(1, protocol | B));
        b.post(1, P1, B, protocol);
        assert_eq!(b.arrive(next), [(1, next.msg)]);
        // Nor when the message is there first, with any source, a probe or a claim.
        let (second, third) = (b.tagged(1, B), b.tagged(1, protocol | B));
        b.arrive(second);
        b.arrive(third);
        assert_eq!(b.m.peek(Class::Tagged, Source::Any, B, protocol), Some(second.msg));
        assert_eq!(b.post(2, Source::Any, B, protocol), [(2, second.msg)]);
        assert_eq!(b.m.claim(Class::Tagged, P1, B, protocol), Some(third.msg));
        // The other stream, and a receive that takes any tag, wait.
        let behind = b.tagged(1, A);
        b.arrive(behind);
        assert!(b.post(3, P1, A, protocol).is_empty());
        assert!(b.post(4, P1, 0, protocol | 0x7fff_ffff).is_empty());
        assert_eq!(b.arrive(lost), [(3, lost.msg), (4, behind.msg)]);
        b.m.assert_empty();
    }
}

#[test]
fn two_that_differ_in_the_stream_bits_differ_in_the_features_too() {
    let all = [StreamBits::default(), STREAM_BITS, StreamBits(0), StreamBits(0xffff_ffff), StreamBits(!0 << 32)];
    for (i, a) in all.iter().enumerate() {
        for b in &all[i + 1..] {
            assert_ne!(a.features(), b.features(), "{a:?} {b:?}");
        }
        assert_eq!(a.features() & 0xf, 15, "the rules without bits are those of all");
    }
}

#[test]
fn streams_do_not_depend_on_the_bits_that_mpi_libraries_ignore() {
    for i in 0..1000 {
        for protocol in [MPICH, OPEN_MPI] {
            assert_eq!(0, protocol & STREAM_BITS.0);
            assert_eq!(
                stream_of(i, Class::Tagged, 64, STREAM_BITS),
                stream_of(i | protocol, Class::Tagged, 64, STREAM_BITS)
            );
        }
    }
}

/// A matcher whose receive 1 takes any tag without protocol bits, and waits for a lost message, and
/// whose receive 2 takes A with them or without. The message A that came is held for receive 1:
/// receive 2 may have to take it yet, so it cannot take the later one with the protocol bits,
/// although that one is no business of receive 1.
fn must_not_skip(late: bool) -> (Bench, Arrival, Arrival, Arrival) {
    let mut b = Bench::default();
    let (lost, held, next) = (b.tagged(1, B), b.tagged(1, A), b.tagged(1, MPICH | A));
    b.post(1, P1, 0, 0xffff_ffff);
    b.arrive(held);
    if late {
        b.arrive(next);
        assert_eq!(b.m.peek(Class::Tagged, P1, MPICH | A, 0), Some(next.msg));
        assert_eq!(b.m.peek(Class::Tagged, P1, A, MPICH), None);
        assert_eq!(b.m.claim(Class::Tagged, Source::Any, A, MPICH), None);
        assert!(b.post(2, P1, A, MPICH).is_empty());
    } else {
        b.post(2, P1, A, MPICH);
        assert!(b.arrive(next).is_empty());
    }
    (b, lost, held, next)
}

#[test]
fn a_message_held_for_another_receive_is_not_skipped() {
    for late in [false, true] {
        let (mut b, lost, held, next) = must_not_skip(late);
        b.post(3, P1, A, MPICH);
        assert_eq!(b.arrive(lost), [(1, lost.msg), (2, held.msg), (3, next.msg)]);
        b.m.assert_empty();
    }
}

#[test]
fn what_waits_behind_a_held_message_is_free_when_that_goes() {
    for late in [false, true] {
        let (mut b, _, held, next) = must_not_skip(late);
        let mut out = Vec::new();
        assert!(b.m.forget(held.msg, &mut out));
        assert_eq!((out.len(), out[0].op, out[0].msg), (1, 2, next.msg));
    }
}

#[test]
fn what_waits_behind_a_held_message_is_free_for_the_next_receive_when_its_own_goes() {
    for late in [false, true] {
        let (mut b, _, _, next) = must_not_skip(late);
        assert!(b.post(3, P1, MPICH | A, 0).is_empty());
        let mut out = Vec::new();
        assert!(b.m.cancel(2, &mut out));
        assert_eq!((out.len(), out[0].op, out[0].msg), (1, 3, next.msg));
    }
}

#[test]
fn what_waits_behind_a_held_message_is_free_when_that_is_taken() {
    let mut b = Bench::default();
    let sent = [B, A, B, MPICH | A].map(|tag| b.tagged(1, tag));
    b.post(1, P1, 0, 0xffff_ffff);
    b.post(2, P1, 0, 0xffff_ffff);
    b.post(3, P1, A, MPICH);
    assert!(b.arrive(sent[1]).is_empty());
    assert!(b.arrive(sent[3]).is_empty());
    // The third message is still missing, but it is none of the last one's stream.
    assert_eq!(b.arrive(sent[0]), [(1, sent[0].msg), (2, sent[1].msg), (3, sent[3].msg)]);
    b.arrive(sent[2]);
}

#[test]
fn a_gap_in_the_same_stream_stalls_it() {
    let mut b = Bench::default();
    let (lost, next) = (b.tagged(1, A), b.tagged(1, A));
    b.post(1, P1, A, 0);
    assert!(b.arrive(next).is_empty());
    b.post(2, Source::Any, A, 0);
    assert_eq!(b.arrive(lost), [(1, lost.msg), (2, next.msg)]);
}

#[test]
fn a_gap_stalls_a_masked_receive_and_what_it_holds() {
    let mut b = Bench::default();
    let (lost, next) = (b.tagged(1, A), b.tagged(1, B));
    b.post(1, P1, 0, ALL);
    b.post(2, P1, B, 0);
    // Eligible for receive 2, but receive 1 was posted first and could have it.
    assert!(b.arrive(next).is_empty());
    assert_eq!(b.m.peek(Class::Tagged, P1, B, 0), None);
    assert!(b.post(3, P1, B, 0).is_empty());
    assert_eq!(b.arrive(lost), [(1, lost.msg), (2, next.msg)]);
}

#[test]
fn an_exact_receive_passes_a_masked_one_posted_later() {
    let mut b = Bench::default();
    let (_lost, next) = (b.tagged(1, A), b.tagged(1, B));
    b.post(1, P1, B, 0);
    b.post(2, P1, 0, ALL);
    assert_eq!(b.arrive(next), [(1, next.msg)]);
}

#[test]
fn gaps_of_one_peer_do_not_concern_another() {
    let mut b = Bench::default();
    let (lost, next) = (b.tagged(1, A), b.tagged(1, B));
    b.arrive(next);
    assert!(b.post(1, Source::Any, 0, ALL).is_empty());
    let other = b.tagged(2, B);
    assert_eq!(b.arrive(other), [(1, other.msg)]);
    assert!(b.arrive(lost).is_empty());
    assert_eq!(b.post(2, P1, 0, ALL), [(2, lost.msg)]);
}

#[test]
fn cancelling_a_masked_receive_releases_what_it_held() {
    let mut b = Bench::default();
    let (_lost, next) = (b.tagged(1, A), b.tagged(1, B));
    b.post(1, P1, 0, ALL);
    b.post(2, P1, B, 0);
    b.arrive(next);
    let mut out = Vec::new();
    assert!(b.m.cancel(1, &mut out));
    assert_eq!((out.len(), out[0].op, out[0].msg), (1, 2, next.msg));
    assert!(!b.m.cancel(1, &mut out));
}

#[test]
fn a_masked_receive_taken_by_another_peer_releases_what_it_held() {
    let mut b = Bench::default();
    let (_lost, next) = (b.tagged(1, A), b.tagged(1, B));
    b.post(1, Source::Any, 0, ALL);
    b.post(2, P1, B, 0);
    b.arrive(next);
    let other = b.tagged(2, A);
    assert_eq!(b.arrive(other), [(1, other.msg), (2, next.msg)]);
}

#[test]
fn untagged_messages_wait_for_all_numbers_of_the_peer() {
    let mut b = Bench::default();
    let (lost, next) = (b.tagged(1, A), b.sent(1, Class::Untagged, 0));
    b.post_class(1, Class::Untagged, P1, 0, 0);
    assert!(b.arrive(next).is_empty());
    let mut out = Vec::new();
    b.m.note_other(1, lost.mseq, lost.stream, lost.sseq, &mut out);
    assert_eq!((out.len(), out[0].op, out[0].msg), (1, 1, next.msg));
}

#[test]
fn unexpected_messages_are_searched_in_the_order_of_arrival() {
    let mut b = Bench::default();
    let (late, early) = (b.tagged(2, A), b.tagged(1, A));
    b.arrive(late);
    b.arrive(early);
    assert_eq!(b.m.peek(Class::Tagged, Source::Any, A, 0), Some(late.msg));
    assert_eq!(b.post(1, Source::Any, 0, ALL), [(1, late.msg)]);
    assert_eq!(b.post(2, Source::Any, A, 0), [(2, early.msg)]);
}

#[test]
fn of_one_peer_they_are_searched_in_the_order_of_sending() {
    let mut b = Bench::default();
    let (first, second) = (b.tagged(1, A), b.tagged(1, A));
    b.arrive(second);
    b.arrive(first);
    assert_eq!(b.post(1, Source::Any, A, 0), [(1, first.msg)]);
    assert_eq!(b.post(2, P1, A, 0), [(2, second.msg)]);
}

#[test]
fn peek_leaves_and_claim_takes() {
    let mut b = Bench::default();
    let m = b.tagged(1, A);
    b.arrive(m);
    assert_eq!(b.m.peek(Class::Tagged, P1, A, 0), Some(m.msg));
    assert_eq!(b.m.peek(Class::Tagged, P1, 0, ALL), Some(m.msg));
    assert_eq!(b.m.peek(Class::Tagged, Source::Any, B, 0), None);
    assert_eq!(b.m.claim(Class::Tagged, Source::Any, A, 0), Some(m.msg));
    assert_eq!(b.m.claim(Class::Tagged, Source::Any, A, 0), None);
    b.m.assert_empty();
}

#[test]
fn multi_receive_buffer_fills() {
    let mut b = Bench::default();
    let mut out = Vec::new();
    let unexpected = b.tagged(1, A);
    b.arrive(unexpected);
    let multi = Some(Multi { room: 35, min_room: 6 });
    b.m.post(Posted { class: Class::Tagged, source: Source::Any, tag: A, ignore: 0, op: 1, multi }, &mut out);
    for _ in 0..3 {
        let m = b.tagged(1, A);
        b.m.arrive(m, &mut out);
    }
    let got: Vec<_> = out.iter().map(|m| (m.multi_offset, m.multi_room, m.multi_done)).collect();
    assert_eq!(got, [(Some(0), 35, false), (Some(10), 25, false), (Some(20), 15, true)]);
    assert_eq!(b.m.unexpected_count(), 1);
}

#[test]
fn multi_receive_truncates_what_does_not_fit_and_is_done() {
    let mut b = Bench::default();
    let mut out = Vec::new();
    let multi = Some(Multi { room: 15, min_room: 0 });
    b.m.post(Posted { class: Class::Untagged, source: P1, tag: 0, ignore: 0, op: 1, multi }, &mut out);
    let mut empty = b.sent(1, Class::Untagged, 0);
    empty.len = 0;
    b.m.arrive(empty, &mut out);
    for _ in 0..2 {
        let m = b.sent(1, Class::Untagged, 0);
        b.m.arrive(m, &mut out);
    }
    let got: Vec<_> = out.iter().map(|m| (m.multi_offset, m.multi_room, m.multi_done)).collect();
    assert_eq!(got, [(Some(0), 15, false), (Some(0), 15, false), (Some(10), 5, true)]);
    b.m.assert_empty();
}

#[test]
fn removing_a_peer_returns_what_can_never_match() {
    let mut b = Bench::default();
    let sent: Vec<Arrival> = [A, B, B].iter().map(|t| b.tagged(1, *t)).collect();
    b.arrive(sent[0]);
    b.arrive(sent[2]);
    b.post(1, P1, 7, 0);
    b.post(2, Source::Any, 7, 0);
    b.post(3, P1, 0xf0, 0xf);
    let (mut ops, mut msgs) = (Vec::new(), Vec::new());
    b.m.remove_peer(1, &mut ops, &mut msgs);
    assert_eq!((ops, msgs), (std::vec![1, 3], std::vec![sent[2].msg]));
    assert_eq!(b.m.ahead_count(1), 0);
    // A new life of the same index: numbers start again, and come after what is left of the old
    // one.
    let fresh = Arrival { mseq: 0, stream: 1, sseq: 0, msg: 9, ..sent[0] };
    b.arrive(fresh);
    assert_eq!(b.post(4, P1, A, 0), [(4, sent[0].msg)]);
    assert_eq!(b.post(5, P1, 0, ALL), [(5, 9)]);
    b.m.remove_peer(99, &mut Vec::new(), &mut Vec::new());
}

#[test]
fn queue_statistics_count_by_wait_and_size() {
    let mut b = Bench::default();
    const LONG: u64 = crate::matcher::QUEUE_STATISTICS_LONG_BYTES;
    for (len, posted_first) in [(LONG, true), (LONG + 1, true), (LONG, false), (LONG + 1, false)] {
        let m = Arrival { len, ..b.tagged(1, A) };
        if posted_first {
            b.post(1, P1, A, 0);
        }
        b.arrive(m);
        if !posted_first {
            b.post(1, P1, A, 0);
        }
    }
    let queue_statistics =
        QueueStatistics { expected_short: 1, expected_long: 1, unexpected_short: 1, unexpected_long: 1 };
    let stats = b.m.stats();
    assert_eq!(stats, Stats { queue_statistics, posted: 0, unexpected: 0, behind_gap: 0, unexpected_peak: 1 });
}

#[test]
fn many_masks_are_possible() {
    let mut b = Bench::default();
    for bit in 0..40 {
        b.post(bit, P1, 0, (1 << bit) | (1 << 63));
    }
    for bit in (0..40).rev() {
        let m = b.tagged(1, 1 << bit);
        assert_eq!(b.arrive(m), [(bit, m.msg)]);
    }
    b.m.assert_empty();
}

/// Share of the fullest stream, relative to an even split, for `tags` over `streams`.
fn imbalance(tags: impl Iterator<Item = u64>, streams: u16) -> f64 {
    let mut load = std::vec![0u32; usize::from(streams)];
    let mut n = 0;
    for t in tags {
        load[usize::from(stream_of(t, Class::Tagged, streams, STREAM_BITS))] += 1;
        n += 1;
    }
    assert_eq!(load[0], 0, "stream 0 is for untagged messages");
    let even = f64::from(n) / f64::from(streams - 1);
    f64::from(*load.iter().max().unwrap()) / even
}

#[test]
fn streams_are_evenly_used() {
    const N: u64 = 10_000;
    for streams in [2, 5, 10, 11, 64] {
        for shift in 0..18 {
            assert!(imbalance((0..N).map(|i| i << shift), streams) < 1.35, "stride 2^{shift}");
        }
        for stride in [3, 5, 7, 10, 89, 100, 1000, 6765] {
            assert!(imbalance((0..N).map(|i| i * stride), streams) < 1.35, "stride {stride}");
        }
        // MPICH: context id from bit 31, its number from bit 35; tag in the low 31. One tag in many
        // communicators, and few tags in some.
        assert!(imbalance((0..N).map(|i| i << 35 | 7), streams) < 1.35);
        assert!(imbalance((0..N).map(|i| (i % 100) << 35 | (i / 100)), streams) < 1.35);
        // Open MPI: tag in the low 32 bits, then 2 bits of protocol, then 30 of communicator.
        assert!(imbalance((0..N).map(|i| i << 34 | 1), streams) < 1.35);
        assert!(imbalance((0..N).map(|i| (i % 100) << 34 | 1 << 32 | (i / 100)), streams) < 1.35);
    }
}

#[test]
fn few_tags_use_several_streams() {
    // Ten consecutive tags over nine streams: random hashing uses six on average.
    for context in 0..200u64 {
        let used: std::collections::BTreeSet<u16> =
            (0..10).map(|t| stream_of(context << 31 | t, Class::Tagged, 10, STREAM_BITS)).collect();
        assert!(used.len() >= 3, "communicator {context}: {used:?}");
    }
}

#[test]
fn stream_numbers_stay_in_range() {
    for streams in [0, 1, 2, 3, u16::MAX] {
        for tag in [0, 1, ALL, 1 << 63] {
            assert!(stream_of(tag, Class::Tagged, streams, STREAM_BITS) < streams.max(1));
            assert_eq!(stream_of(tag, Class::Untagged, streams, STREAM_BITS), 0);
        }
    }
}

//! Heads that are forwarded in rounds: all come to whom they are for, whatever is asked for, and
//! nothing that comes is believed.

use proptest::collection::vec;
use proptest::prelude::*;
use weir_bsp::counts::{self, Common, Counts, ROUND_HEAD_BYTES, RoundHead, ridden};
use weir_bsp::head::{Ends, Head};

const SUPERSTEP: u64 = 7;
const TAG: u32 = 5;

/// A head that announces so many bytes of puts; none: nothing.
fn head(ends: Ends, bytes: u64) -> Head {
    Head { puts: bytes * 8, tag: TAG, ..Head::empty(ends, SUPERSTEP) }
}

/// The body that travels along, whose bytes tell whose it is.
fn body(from: usize, to: usize, head: &Head) -> Vec<u8> {
    vec![(from * 31 + to * 7) as u8; ridden(head)]
}

/// All rounds among processes that have these heads for each other; what came of each to each.
fn run(heads: &[Vec<Head>], ends: &[Ends], dense: &[bool]) -> Vec<(Vec<Head>, Vec<Vec<u8>>, Common)> {
    let n = heads.len();
    let mut all: Vec<Counts> = (0..n).map(|_| Counts::default()).collect();
    for (pid, counts) in all.iter_mut().enumerate() {
        let common = Common::of(pid, ends[pid], dense[pid], true);
        counts.begin(pid, &heads[pid], common, |to, out| out.extend(body(pid, to, &heads[pid][to])));
    }
    for round in 0..counts::rounds(n) {
        let mut out = vec![Vec::new(); n];
        for (counts, out) in all.iter_mut().zip(&mut out) {
            counts.write(round, out);
        }
        for (pid, counts) in all.iter_mut().enumerate() {
            let wire = &out[counts::from(pid, n, round)];
            let head = RoundHead::decode(wire, n).expect("of a process that keeps the rules");
            assert_eq!(head.bytes, wire.len() - ROUND_HEAD_BYTES);
            counts.read(round, &head, &wire[ROUND_HEAD_BYTES..]).expect("as well");
        }
    }
    let finish = |counts: &Counts| {
        let (mut theirs, mut bodies) = (Vec::new(), vec![Vec::new(); n]);
        counts.finish(&mut theirs, |from, body| bodies[from] = body.to_vec()).expect("each head came once");
        (theirs, bodies, counts.common().expect("it began"))
    };
    all.iter().map(finish).collect()
}

// spec/bsp.md 6.17 to 6.21
#[test]
fn every_head_comes_to_whom_it_is_for_and_nobody_else() {
    for n in 2..=40_usize {
        for pattern in 0..4 {
            let bytes = |from: usize, to: usize| match pattern {
                0 => 0,
                1 => 1 + (from * n + to) as u64,
                2 if to == (from + 1) % n => 1 << 30,
                3 if (from * 7 + to * 3).is_multiple_of(5) => 3,
                _ => 0,
            };
            let heads: Vec<Vec<Head>> =
                (0..n).map(|from| (0..n).map(|to| head(Ends::Sync, bytes(from, to))).collect()).collect();
            let came = run(&heads, &vec![Ends::Sync; n], &vec![pattern == 1; n]);
            for (to, (theirs, bodies, common)) in came.iter().enumerate() {
                for (from, there) in theirs.iter().enumerate() {
                    assert_eq!(there, &heads[from][to], "{n} processes, pattern {pattern}, {from} to {to}");
                    let sent = if from == to { Vec::new() } else { body(from, to, there) };
                    assert_eq!(bodies[from], sent);
                }
                assert_eq!(*common, Common { sync: Some(0), end: None, dense: pattern == 1, boards: true });
            }
        }
    }
}

// spec/bsp.md 6.23, 6.24
#[test]
fn all_hear_who_ended_otherwise_and_whether_all_were_dense() {
    for n in 2..=20_usize {
        for odd in 0..n {
            let ends: Vec<Ends> = (0..n).map(|pid| if pid == odd { Ends::Program } else { Ends::Sync }).collect();
            let heads: Vec<Vec<Head>> = ends.iter().map(|ends| vec![head(*ends, 0); n]).collect();
            let dense: Vec<bool> = (0..n).map(|pid| pid != odd).collect();
            for (_, _, common) in run(&heads, &ends, &dense) {
                let sync = Some(usize::from(odd == 0));
                assert_eq!(
                    common,
                    Common { sync, end: Some(odd), dense: false, boards: true },
                    "{n} processes, {odd} odd"
                );
            }
        }
    }
}

#[test]
fn an_empty_superstep_costs_a_process_one_short_message_a_round() {
    let n = 1024;
    let mut counts = Counts::default();
    counts.begin(0, &vec![head(Ends::Sync, 0); n], Common::of(0, Ends::Sync, false, false), |_, _| ());
    let mut out = Vec::new();
    let sent: usize = (0..counts::rounds(n))
        .map(|round| {
            counts.write(round, &mut out);
            out.len()
        })
        .sum();
    assert_eq!(sent, 10 * ROUND_HEAD_BYTES);
}

#[test]
fn those_who_wait_for_a_process_in_every_superstep_are_its_neighbours() {
    let of = |gone, n| {
        let mut all: Vec<usize> = counts::watchers(gone, n).collect();
        all.sort_unstable();
        all
    };
    assert_eq!(of(1, 3), [0, 2]);
    assert_eq!(of(6, 8), [0, 2, 7]);
    for n in 2..40 {
        for gone in 0..n {
            let waits = |pid: &usize| {
                *pid != gone
                    && (counts::is_direct(n, false) || (0..counts::rounds(n)).any(|k| counts::from(*pid, n, k) == gone))
            };
            assert_eq!(of(gone, n), (0..n).filter(waits).collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_total_exchange_is_direct_only_where_few_take_part_and_bodies_are_middling() {
    let dense = |n: usize, bytes| counts::is_dense(0, &vec![head(Ends::Sync, bytes); n], 4000);
    assert!(!dense(8, 1) && dense(8, 100) && !dense(8, 1000));
    assert!(counts::is_direct(4, false) && !counts::is_direct(5, false));
    assert!(counts::is_direct(16, true) && !counts::is_direct(17, true));
}

/// What process 1 of these sends process 2 of them in the first round.
fn first_round(n: usize, bytes: u64) -> Vec<u8> {
    let mut counts = Counts::default();
    let heads = vec![head(Ends::Sync, bytes); n];
    counts.begin(1, &heads, Common::of(1, Ends::Sync, false, false), |to, out| out.extend(body(1, to, &heads[to])));
    let mut out = Vec::new();
    counts.write(0, &mut out);
    out
}

fn take(wire: &[u8], n: usize) -> Result<(), weir_bsp::packing::Malformed> {
    let mut counts = Counts::default();
    counts.begin(2, &vec![head(Ends::Sync, 0); n], Common::of(2, Ends::Sync, false, false), |_, _| ());
    let head = RoundHead::decode(wire, n)?;
    counts.read(0, &head, &wire[ROUND_HEAD_BYTES..])?;
    counts.finish(&mut Vec::new(), |_, _| ())
}

// spec/bsp.md 6.22
#[test]
fn heads_that_could_not_have_come_this_way_are_refused() {
    let good = first_round(6, 2);
    take(&good, 6).expect("as it was sent");
    // The first head is from 1 to 0; these two numbers come first.
    for (place, byte) in [(0, 2), (0, 6), (0, 0), (1, 1), (1, 3), (1, 7), (1, 0xff)] {
        let mut wire = good.clone();
        wire[ROUND_HEAD_BYTES + place] = byte;
        assert!(take(&wire, 6).is_err(), "{place} {byte}");
    }
    for len in 0..good.len() {
        assert!(take(&good[..len], 6).is_err(), "cut off at {len}");
    }
    let mut twice = good.clone();
    // The second is for process 2.
    let item: Vec<u8> = good[ROUND_HEAD_BYTES + 26..][..26].to_vec();
    twice.splice(ROUND_HEAD_BYTES.., item.iter().chain(&item).copied());
    twice[28] = 2;
    twice[32] = 52;
    assert_eq!(take(&twice, 6), Err(weir_bsp::packing::Malformed("two heads came of one process")));
}

proptest! {
    #[test]
    fn damaged_rounds_are_refused_or_read_as_something_possible(n in 3usize..20, bytes in 0u64..20, place: prop::sample::Index, byte: u8) {
        let mut wire = first_round(n, bytes);
        let place = place.index(wire.len());
        wire[place] = byte;
        let _ = take(&wire, n);
    }

    #[test]
    fn any_bytes_are_read_or_refused(wire in vec(any::<u8>(), 0..200), n in 2usize..1000) {
        let mut wire = wire;
        let _ = take(&wire, n);
        // The same behind a head that passes.
        let items = wire.len() / 12;
        let mut whole = first_round(n, 0);
        whole[28..32].copy_from_slice(&(items.min(n) as u32).to_le_bytes());
        whole[32..40].copy_from_slice(&(wire.len() as u64).to_le_bytes());
        whole.append(&mut wire);
        let _ = take(&whole, n);
    }
}

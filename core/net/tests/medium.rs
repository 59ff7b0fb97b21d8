//! What a medium that several stations share does to their packets.

use std::collections::BTreeMap;

use proptest::prelude::*;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng;
use weir_net::{Chance, Harm, Loss, Mark, Medium, Offer, Passed, Pipe, PipeSpec, QueueLimit, TimeNs, Why};

/// 10 Mbit/s, with what Ethernet adds to a frame: 1226 bytes take a millisecond.
fn slow() -> PipeSpec {
    PipeSpec {
        rate_bytes_per_s: 1_250_000,
        wire_overhead_bytes: 24,
        queue: QueueLimit { packets: Some(64), ..QueueLimit::default() },
        ..PipeSpec::default()
    }
}

const FULL: u32 = 1226;
const FULL_NS: TimeNs = 1_000_000;

fn medium(stations: usize, spec: PipeSpec) -> Medium<Pcg64Mcg, u64> {
    let mut medium = Medium::default();
    for station in 0..stations {
        medium.add(Pipe::new(spec, Pcg64Mcg::seed_from_u64(station as u64)));
    }
    medium
}

fn passed(medium: &mut Medium<Pcg64Mcg, u64>, until_ns: TimeNs) -> Vec<Passed<u64, Harm>> {
    std::iter::from_fn(|| medium.pop(until_ns, |harm, _, _| harm)).collect()
}

fn delivered_at(passed: &Passed<u64, Harm>) -> Option<TimeNs> {
    match passed.offer {
        Offer::Deliver { at_ns, .. } => Some(at_ns),
        Offer::Drop(..) => None,
    }
}

#[test]
fn all_stations_together_have_its_rate() {
    let mut medium = medium(4, slow());
    for number in 0..40 {
        medium.offer(0, number as usize % 4, FULL, number).unwrap();
    }
    assert_eq!((medium.len(), medium.next_ns()), (40, Some(FULL_NS)));
    assert_eq!(passed(&mut medium, 10 * FULL_NS).len(), 10);
    let rest = passed(&mut medium, TimeNs::MAX);
    assert_eq!(rest.last().and_then(delivered_at), Some(40 * FULL_NS));
    assert!(medium.is_empty() && medium.next_ns().is_none());
}

#[test]
fn two_who_always_have_something_take_turns_whatever_waits_with_each() {
    let mut medium = medium(2, slow());
    // One has much before the other has anything.
    for number in 0..50 {
        medium.offer(0, 0, FULL, number).unwrap();
    }
    assert_eq!(passed(&mut medium, 5 * FULL_NS).len(), 5);
    for number in 100..120 {
        medium.offer(5 * FULL_NS, 1, FULL, number).unwrap();
    }
    let order: Vec<usize> = passed(&mut medium, 45 * FULL_NS).iter().map(|p| p.station).collect();
    assert_eq!(order, [0, 1].repeat(20));
    assert!(passed(&mut medium, TimeNs::MAX).iter().all(|p| p.station == 0));
}

#[test]
fn turns_count_packets_and_who_has_nothing_is_passed_over() {
    let mut medium = medium(8, slow());
    for number in 0..6 {
        medium.offer(0, [2, 7, 5][number as usize % 3], [60, 1514, 700][number as usize % 3], number).unwrap();
    }
    let order: Vec<usize> = passed(&mut medium, TimeNs::MAX).iter().map(|p| p.station).collect();
    assert_eq!(order, [2, 5, 7, 2, 5, 7]);
}

#[test]
fn each_station_has_a_queue_of_its_own_and_what_finds_it_full_comes_back() {
    let limit = QueueLimit { packets: Some(3), ..QueueLimit::default() };
    let mut medium = medium(2, PipeSpec { queue: limit, ..slow() });
    let taken: Vec<bool> = (0..6).map(|number| medium.offer(0, 0, FULL, number).is_ok()).collect();
    assert_eq!(taken, [true, true, true, true, false, false], "one that is sent, three that wait");
    assert_eq!(medium.offer(0, 0, FULL, 7), Err((Why::Queue, 7)));
    assert!(medium.offer(0, 1, FULL, 8).is_ok(), "the other has room");
    let of = *medium.pipe(0).counters();
    assert_eq!((of.offered_packets, of.dropped_queue, of.queue_peak_packets), (7, 3, 3));
    assert_eq!(medium.pipe(1).counters().dropped_queue, 0);
    assert_eq!(passed(&mut medium, TimeNs::MAX).len(), 5);
}

#[test]
fn a_queue_may_count_what_is_sent_and_bytes() {
    let limit = QueueLimit { packets: None, bytes: Some(3000), counts_sending: true };
    let mut medium = medium(1, PipeSpec { queue: limit, ..slow() });
    let taken = |medium: &mut Medium<_, _>, now_ns| medium.offer(now_ns, 0, 1000, 0).is_ok();
    assert_eq!([0; 4].map(|_| taken(&mut medium, 0)), [true, true, true, false]);
    let first_ns = medium.next_ns().unwrap();
    assert_eq!(passed(&mut medium, first_ns).len(), 1);
    assert_eq!([0; 2].map(|_| taken(&mut medium, first_ns)), [true, false]);
}

#[test]
fn what_is_lost_on_the_way_has_used_the_medium() {
    let mut medium = medium(2, slow());
    let lossy = PipeSpec { loss: Loss::independent(Chance::ALWAYS), ..slow() };
    medium.pipe_mut(0).set_spec(lossy);
    medium.offer(0, 0, FULL, 1).unwrap();
    medium.offer(0, 1, FULL, 2).unwrap();
    let all = passed(&mut medium, TimeNs::MAX);
    assert_eq!(all[0].offer, Offer::Drop(Why::Loss, FULL_NS));
    assert_eq!(delivered_at(&all[1]), Some(2 * FULL_NS));
}

#[test]
fn who_is_cut_off_loses_what_waits_and_holds_nobody_up() {
    let mut medium = medium(2, slow());
    for number in 0..10 {
        medium.offer(0, 0, FULL, number).unwrap();
        medium.offer(0, 1, FULL, 100 + number).unwrap();
    }
    medium.pipe_mut(0).set_cut(true);
    assert_eq!(medium.offer(0, 0, FULL, 50), Err((Why::Cut, 50)));
    medium.pipe_mut(0).set_cut(false);
    medium.offer(0, 0, FULL, 51).unwrap();
    let all = passed(&mut medium, TimeNs::MAX);
    let lost = all.iter().filter(|p| matches!(p.offer, Offer::Drop(Why::Cut, _))).count();
    assert_eq!((all.len(), lost), (21, 10));
    // The one that was being sent, ten of the other, and the one after the cut.
    assert_eq!(all.iter().filter_map(delivered_at).max(), Some(12 * FULL_NS));
}

#[test]
fn a_cut_leaves_an_empty_queue_and_no_turn_is_lost_for_what_was_in_it() {
    let limit = QueueLimit { packets: Some(4), ..QueueLimit::default() };
    let mark = Mark { packets: Some(2), ..Mark::default() };
    let mut medium = medium(2, PipeSpec { queue: limit, mark, ..slow() });
    // The first one is sent, and both queues are full.
    for number in 0..5 {
        medium.offer(0, 0, FULL, number).unwrap();
    }
    for number in 100..104 {
        medium.offer(0, 1, FULL, number).unwrap();
    }
    medium.pipe_mut(0).set_cut(true);
    medium.pipe_mut(0).set_cut(false);
    let taken: Vec<bool> = (10..15).map(|number| medium.offer(0, 0, FULL, number).is_ok()).collect();
    assert_eq!(taken, [true, true, true, true, false], "as many as an empty queue takes");
    let of = *medium.pipe(0).counters();
    assert_eq!((of.dropped_queue, of.queue_peak_packets, of.queue_peak_bytes), (1, 4, 4 * u64::from(FULL)));
    let all = passed(&mut medium, TimeNs::MAX);
    assert_eq!(all.iter().filter(|p| matches!(p.offer, Offer::Drop(Why::Cut, _))).count(), 5);
    let left: Vec<u64> = all.iter().filter(|p| delivered_at(p).is_some()).map(|p| p.item).collect();
    assert_eq!(left, [100, 10, 101, 11, 102, 12, 103, 13], "each has every second turn");
    let is_marked = |p: &&Passed<u64, Harm>| matches!(p.offer, Offer::Deliver { marked: true, .. });
    let marked: Vec<u64> = all.iter().filter(is_marked).map(|p| p.item).filter(|item| *item < 100).collect();
    assert_eq!(marked, [12, 13], "those before which two waited");
    // What is being sent does not count either once it is cut off.
    let limit = QueueLimit { packets: Some(1), bytes: None, counts_sending: true };
    medium.pipe_mut(0).set_spec(PipeSpec { queue: limit, ..slow() });
    let now_ns = 100 * FULL_NS;
    medium.offer(now_ns, 0, FULL, 20).unwrap();
    assert!(medium.offer(now_ns, 0, FULL, 21).is_err());
    medium.pipe_mut(0).set_cut(true);
    medium.pipe_mut(0).set_cut(false);
    assert!(medium.offer(now_ns, 0, FULL, 22).is_ok());
    assert_eq!(
        passed(&mut medium, TimeNs::MAX).iter().filter_map(delivered_at).collect::<Vec<_>>(),
        [now_ns + 2 * FULL_NS]
    );
}

proptest! {
    /// Whatever is offered when: nothing is there twice, nothing is lost but what is told, each
    /// station's packets keep their order, one is sent at a time.
    #[test]
    fn one_at_a_time_and_each_once(
        limit in proptest::option::of(0u32..20),
        offers in proptest::collection::vec((0u64..3_000_000, 0usize..5, 14u32..1514), 1..200),
    ) {
        let spec = PipeSpec { queue: QueueLimit { packets: limit, ..QueueLimit::default() }, ..slow() };
        let (all, refused) = {
            let mut medium = medium(5, spec);
            let (mut now_ns, mut all, mut refused) = (0, Vec::new(), 0);
            for (number, (gap_ns, station, bytes)) in offers.iter().enumerate() {
                now_ns += gap_ns;
                // An offer may come only when all before it has been taken.
                all.append(&mut passed(&mut medium, now_ns));
                refused += usize::from(medium.offer(now_ns, *station, *bytes, number as u64).is_err());
            }
            all.append(&mut passed(&mut medium, TimeNs::MAX));
            (all, refused)
        };
        prop_assert_eq!(all.len() + refused, offers.len());
        let (mut free_ns, mut last) = (0, BTreeMap::new());
        for p in &all {
            let at_ns = delivered_at(p).expect("nothing is lost");
            prop_assert!(at_ns >= free_ns + spec.serialise_ns(u64::from(p.bytes)), "two at a time");
            free_ns = at_ns;
            prop_assert!(last.insert(p.station, p.item).is_none_or(|before| before < p.item));
            prop_assert_eq!(p.bytes, offers[p.item as usize].2);
        }
    }
}

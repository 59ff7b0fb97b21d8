//! What holds for every pipe and switch, whatever their settings and whatever is offered.

use std::collections::BTreeMap;

use proptest::prelude::*;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng;
use weir_net::{
    Burst, Chance, Events, Harm, Loss, Memory, Offer, Pipe, PipeSpec, QueueLimit, Reorder, Switch, TimeNs, Why,
};

fn chance() -> impl Strategy<Value = Chance> {
    prop_oneof![
        Just(Chance::NEVER),
        Just(Chance::ALWAYS),
        (0.0..1.0).prop_map(Chance::of),
        (0u32..1000).prop_map(Chance::ppm)
    ]
}

/// Any pipe without faults: rate, overheads, queue, delay, jitter.
fn plain() -> impl Strategy<Value = PipeSpec> {
    let queue = (proptest::option::of(0u32..20), proptest::option::of(0u64..20_000), any::<bool>());
    let rate = prop_oneof![Just(0), 1_000_000u64..10_000_000_000];
    (rate, 0u32..100, 0u32..100, queue, 0u64..100_000, 0u64..100_000).prop_map(
        |(
            rate_bytes_per_s,
            wire_overhead_bytes,
            queue_overhead_bytes,
            (packets, bytes, counts_sending),
            delay_ns,
            jitter_ns,
        )| {
            let queue = QueueLimit { packets, bytes, counts_sending };
            let overhead = PipeSpec { wire_overhead_bytes, queue_overhead_bytes, ..PipeSpec::default() };
            PipeSpec { rate_bytes_per_s, queue, delay_ns, jitter_ns, ..overhead }
        },
    )
}

/// Any pipe.
fn faulty() -> impl Strategy<Value = PipeSpec> {
    let burst = (chance(), chance(), chance(), 0u64..100_000).prop_map(|(to_bad, to_good, loss, idle_step_ns)| Burst {
        to_bad,
        to_good,
        loss,
        idle_step_ns,
    });
    let loss = (chance(), proptest::option::of(burst)).prop_map(|(each, burst)| Loss { each, burst });
    let reorder = (chance(), 0u64..50_000, 0u64..90_000).prop_map(|(chance, least_ns, most_ns)| Reorder {
        chance,
        least_ns,
        most_ns,
    });
    let faults = (loss, chance(), 0u64..50_000, reorder, chance(), chance(), 100u32..3000);
    (plain(), faults).prop_map(
        |(plain, (loss, duplicate, duplicate_ns, reorder, corrupt, corrupt_hidden, mtu_bytes))| PipeSpec {
            loss,
            duplicate,
            duplicate_ns,
            reorder,
            corrupt,
            corrupt_hidden,
            mtu_bytes,
            ..plain
        },
    )
}

/// Gaps and lengths.
fn packets() -> impl Strategy<Value = Vec<(TimeNs, u32)>> {
    proptest::collection::vec((prop_oneof![Just(0), 0u64..3000, 0u64..500_000], 1u32..2000), 1..200)
}

fn pipe(spec: PipeSpec, seed: u64) -> Pipe<Pcg64Mcg> {
    Pipe::new(spec, Pcg64Mcg::seed_from_u64(seed))
}

/// What was delivered: when offered, when sent, when it arrives, its copy, its bytes; in the order
/// of offering.
type Delivered = (TimeNs, TimeNs, TimeNs, Option<TimeNs>, u32);

fn run(pipe: &mut Pipe<Pcg64Mcg>, packets: &[(TimeNs, u32)]) -> Vec<Delivered> {
    let mut now_ns = 0;
    let mut delivered = Vec::new();
    for &(gap_ns, bytes) in packets {
        now_ns += gap_ns;
        if let Offer::Deliver { left_ns, at_ns, copy_at_ns, .. } = pipe.offer(now_ns, bytes, |h, _| h) {
            delivered.push((now_ns, left_ns, at_ns, copy_at_ns, bytes));
        }
    }
    delivered
}

proptest! {
    /// Each packet and each copy is delivered or dropped, once, and counted there; what is under
    /// way is the rest.
    #[test]
    fn no_packet_is_lost_uncounted_or_counted_twice(
        spec in faulty(), seed: u64, packets in packets(), cuts in proptest::collection::vec(any::<bool>(), 200),
    ) {
        let mut pipe = pipe(spec, seed);
        let mut under_way = Events::default();
        let (mut now_ns, mut delivered, mut dropped, mut copies) = (0, 0, [0u64; 4], 0);
        for (&(gap_ns, bytes), cut) in packets.iter().zip(cuts) {
            now_ns += gap_ns;
            while let Some((_, (epoch, bytes))) = under_way.pop(now_ns) {
                if pipe.arrive(epoch, bytes) { delivered += 1 } else { dropped[Why::Cut as usize] += 1 }
            }
            pipe.set_cut(cut && gap_ns % 3 == 0);
            let epoch = pipe.epoch();
            match pipe.offer(now_ns, bytes, |h, _| h) {
                Offer::Drop(why, _) => dropped[why as usize] += 1,
                Offer::Deliver { at_ns, copy_at_ns, .. } => {
                    under_way.push(at_ns, (epoch, bytes));
                    copies += u64::from(copy_at_ns.is_some());
                    copy_at_ns.into_iter().for_each(|at_ns| under_way.push(at_ns, (epoch, bytes)));
                }
            }
            let c = *pipe.counters();
            let gone = c.forwarded_packets + c.dropped_queue + c.dropped_loss + c.dropped_cut + c.dropped_too_big;
            prop_assert_eq!(c.offered_packets + c.duplicated, gone + under_way.len() as u64);
        }
        let c = *pipe.counters();
        prop_assert_eq!((c.offered_packets, c.duplicated, c.forwarded_packets), (packets.len() as u64, copies, delivered));
        prop_assert_eq!([c.dropped_queue, c.dropped_loss, c.dropped_cut, c.dropped_too_big], dropped);
    }

    #[test]
    fn without_reordering_packets_arrive_in_their_order(spec in plain(), seed: u64, packets in packets(), loss in chance()) {
        let mut pipe = pipe(PipeSpec { loss: Loss::independent(loss), ..spec }, seed);
        let delivered = run(&mut pipe, &packets);
        prop_assert!(delivered.windows(2).all(|w| w[0].2 <= w[1].2));
    }

    /// Over any window, from the beginning of one packet to the end of another, no more is sent
    /// than the rate allows.
    #[test]
    fn the_rate_is_never_exceeded(spec in plain(), seed: u64, packets in packets()) {
        prop_assume!(spec.rate_bytes_per_s > 0);
        let delivered = run(&mut pipe(spec, seed), &packets);
        let size = |d: &Delivered| u128::from(d.4 + spec.wire_overhead_bytes);
        for (i, first) in delivered.iter().enumerate() {
            let begins_ns = first.1 - spec.serialise_ns(u64::from(first.4));
            let mut bytes = 0;
            for last in &delivered[i..] {
                bytes += size(last);
                let room = u128::from(last.1 - begins_ns) * u128::from(spec.rate_bytes_per_s);
                prop_assert!(bytes * 1_000_000_000 <= room, "{bytes} bytes in {} ns", last.1 - begins_ns);
            }
        }
    }

    #[test]
    fn nothing_is_faster_than_rate_and_delay(spec in faulty(), seed: u64, packets in packets()) {
        for (offered_ns, left_ns, at_ns, copy_at_ns, bytes) in run(&mut pipe(spec, seed), &packets) {
            prop_assert!(left_ns >= offered_ns + spec.serialise_ns(u64::from(bytes)));
            let least_ns = copy_at_ns.map_or(at_ns, |copy| copy.min(at_ns));
            prop_assert!(least_ns >= offered_ns + spec.least_ns(u64::from(bytes)));
            prop_assert!(least_ns >= left_ns + spec.delay_ns);
        }
    }

    /// Counted anew from what was delivered: how many wait when one more is taken.
    #[test]
    fn the_queue_keeps_its_limit(spec in plain(), seed: u64, packets in packets()) {
        let mut pipe = pipe(spec, seed);
        let delivered = run(&mut pipe, &packets);
        let until_ns = |d: &Delivered| {
            if spec.queue.counts_sending { d.1 } else { d.1 - spec.serialise_ns(u64::from(d.4)) }
        };
        for (i, now) in delivered.iter().enumerate() {
            let waiting: Vec<_> = delivered[..=i].iter().filter(|d| until_ns(d) > now.0).collect();
            let bytes: u64 = waiting.iter().map(|d| u64::from(d.4 + spec.queue_overhead_bytes)).sum();
            prop_assert!(spec.queue.packets.is_none_or(|most| waiting.len() <= most as usize));
            prop_assert!(spec.queue.bytes.is_none_or(|most| bytes <= most));
        }
        let c = pipe.counters();
        prop_assert!(spec.queue.packets.is_none_or(|most| c.queue_peak_packets <= u64::from(most)));
        prop_assert!(spec.queue.bytes.is_none_or(|most| c.queue_peak_bytes <= most));
    }

    /// The queues of a switch together never hold more than its memory, and one no more than its
    /// share.
    #[test]
    fn a_switch_keeps_to_its_memory(
        spec in plain(), bytes in 0u64..50_000, dynamic_percent in 0u32..300, packets in packets(),
        ports in proptest::collection::vec(0usize..3, 200),
    ) {
        let queue = QueueLimit { counts_sending: true, ..spec.queue };
        let spec = PipeSpec { queue, ..spec };
        let pipes = (0..3).map(|seed| pipe(spec, seed)).collect();
        let mut switch = Switch::new(pipes, Some(Memory { bytes, dynamic_percent }));
        let (mut now_ns, mut held) = (0, BTreeMap::<usize, Vec<(TimeNs, u64)>>::new());
        for (&(gap_ns, len), port) in packets.iter().zip(ports) {
            now_ns += gap_ns;
            let sum = |held: &BTreeMap<usize, Vec<(TimeNs, u64)>>, of: Option<usize>| -> u64 {
                let all = held.iter().filter(|(p, _)| of.is_none_or(|of| of == **p)).flat_map(|(_, q)| q);
                all.filter(|h| h.0 > now_ns).map(|h| h.1).sum()
            };
            let free = bytes - sum(&held, None);
            if let Offer::Deliver { left_ns, .. } = switch.offer(port, now_ns, len, |_: Harm, _| ()) {
                held.entry(port).or_default().push((left_ns, u64::from(len + spec.queue_overhead_bytes)));
                let size = u64::from(len + spec.queue_overhead_bytes);
                prop_assert!(size <= free);
                if dynamic_percent > 0 && left_ns > now_ns {
                    prop_assert!(sum(&held, Some(port)) <= free * u64::from(dynamic_percent) / 100);
                }
            }
        }
    }

    #[test]
    fn equal_seeds_give_equal_fates(spec in faulty(), seed: u64, packets in packets()) {
        prop_assert_eq!(run(&mut pipe(spec, seed), &packets), run(&mut pipe(spec, seed), &packets));
    }
}

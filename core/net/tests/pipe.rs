//! What a pipe does to packets, fault by fault.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use weir_net::{Burst, Chance, Counters, Harm, Loss, Mark, Offer, Pipe, PipeSpec, QueueLimit, Reorder, TimeNs, Why};

const GIGABIT: u64 = 125_000_000;

fn pipe(spec: PipeSpec, seed: u64) -> Pipe<Pcg64Mcg> {
    Pipe::new(spec, Pcg64Mcg::seed_from_u64(seed))
}

fn offer(pipe: &mut Pipe<Pcg64Mcg>, now_ns: TimeNs, bytes: u32) -> Offer<Harm> {
    pipe.offer(now_ns, bytes, |harm, _| harm)
}

fn deliver(pipe: &mut Pipe<Pcg64Mcg>, now_ns: TimeNs, bytes: u32) -> TimeNs {
    match offer(pipe, now_ns, bytes) {
        Offer::Deliver { at_ns, .. } => at_ns,
        Offer::Drop(why, _) => panic!("dropped: {why:?}"),
    }
}

fn accepted(spec: PipeSpec, count: usize, bytes: u32) -> (usize, Counters) {
    let mut pipe = pipe(spec, 0);
    let accepted = (0..count).filter(|_| matches!(offer(&mut pipe, 0, bytes), Offer::Deliver { .. })).count();
    (accepted, *pipe.counters())
}

#[test]
fn a_gigabit_sends_1250_bytes_in_ten_microseconds() {
    let mut pipe = pipe(PipeSpec { rate_bytes_per_s: GIGABIT, delay_ns: 500, ..Default::default() }, 0);
    assert_eq!(deliver(&mut pipe, 100, 1250), 10_600);
    assert_eq!(deliver(&mut pipe, 100, 1250), 20_600);
    assert_eq!((pipe.drained_ns(1250), pipe.drained_ns(0)), (10_100, 20_100));
    assert_eq!(deliver(&mut pipe, 1_000_000, 1250), 1_010_500);
}

#[test]
fn overhead_on_the_wire_counts_in_time_only() {
    let mut pipe = pipe(PipeSpec { rate_bytes_per_s: GIGABIT, wire_overhead_bytes: 24, ..Default::default() }, 0);
    assert_eq!(deliver(&mut pipe, 0, 1226), 10_000);
    assert_eq!(pipe.counters().offered_bytes, 1226);
}

#[test]
fn the_queue_holds_exactly_its_limit_in_packets() {
    let queue = QueueLimit { packets: Some(64), ..Default::default() };
    let spec = PipeSpec { rate_bytes_per_s: GIGABIT, queue, ..Default::default() };
    let (taken, c) = accepted(spec, 100, 1000);
    assert_eq!((taken, c.dropped_queue, c.queue_peak_packets), (65, 35, 64), "64 waiting and one being sent");
    let queue = QueueLimit { counts_sending: true, ..queue };
    let (taken, c) = accepted(PipeSpec { queue, ..spec }, 100, 1000);
    assert_eq!((taken, c.dropped_queue, c.queue_peak_packets), (64, 36, 64), "the one being sent among them");
    let mut pipe = pipe(spec, 0);
    (0..65).for_each(|_| assert!(deliver(&mut pipe, 0, 1000) > 0));
    assert_eq!(pipe.waiting_packets(8_000), 63, "one transmission later one fewer waits");
}

#[test]
fn what_finds_enough_waiting_is_marked_and_what_is_dropped_is_not() {
    for (mark, first) in [
        (Mark { packets: Some(20), bytes: None }, 21),
        (Mark { packets: None, bytes: Some(9_500) }, 11),
        (Mark { packets: Some(20), bytes: Some(9_500) }, 11),
        (Mark::default(), 65),
    ] {
        let queue = QueueLimit { packets: Some(64), ..Default::default() };
        let mut pipe = pipe(PipeSpec { rate_bytes_per_s: GIGABIT, queue, mark, ..Default::default() }, 0);
        // One is being sent and does not wait.
        let marked: Vec<bool> = (0..100)
            .filter_map(
                |_| if let Offer::Deliver { marked, .. } = offer(&mut pipe, 0, 1000) { Some(marked) } else { None },
            )
            .collect();
        assert_eq!(marked.len(), 65);
        assert_eq!(marked.iter().position(|m| *m).unwrap_or(65), first, "{mark:?}");
        assert!(marked[first..].iter().all(|m| *m));
    }
}

#[test]
fn the_queue_holds_at_most_its_limit_in_bytes() {
    let queue = QueueLimit { bytes: Some(10_000), ..Default::default() };
    let spec = PipeSpec { rate_bytes_per_s: GIGABIT, queue, ..Default::default() };
    let (taken, c) = accepted(spec, 100, 1500);
    assert_eq!((taken, c.queue_peak_bytes), (7, 9000), "six of 1500 bytes fit in 10000, one is being sent");
    let (taken, c) = accepted(PipeSpec { queue_overhead_bytes: 500, ..spec }, 100, 1500);
    assert_eq!((taken, c.queue_peak_bytes), (6, 10_000), "overhead takes memory too");
}

#[test]
fn jitter_delays_but_never_reorders_and_reorder_does() {
    let spec = PipeSpec { delay_ns: 1000, jitter_ns: 5000, ..Default::default() };
    let times = |spec| {
        let mut pipe = pipe(spec, 5);
        (0..1000u64).map(|i| deliver(&mut pipe, i * 100, 100)).collect::<Vec<_>>()
    };
    let kept = times(spec);
    assert!(kept.windows(2).all(|w| w[0] <= w[1]));
    assert!(kept.iter().enumerate().all(|(i, t)| (1000..=6000).contains(&(t - i as u64 * 100))));
    let reorder = Reorder { chance: Chance::of(0.1), least_ns: 100_000, most_ns: 100_000 };
    let held = times(PipeSpec { reorder, ..spec }).windows(2).filter(|w| w[0] > w[1]).count();
    assert!((50..150).contains(&held), "{held} overtaken");
}

#[test]
fn a_cut_takes_what_is_in_flight_and_a_heal_starts_clean() {
    let mut pipe = pipe(PipeSpec { rate_bytes_per_s: GIGABIT, delay_ns: 1000, ..Default::default() }, 0);
    let epoch = pipe.epoch();
    deliver(&mut pipe, 0, 1250);
    pipe.set_cut(true);
    assert_eq!(offer(&mut pipe, 10, 100), Offer::Drop(Why::Cut, 810));
    assert!(!pipe.arrive(epoch, 1250));
    pipe.set_cut(false);
    assert!(!pipe.arrive(epoch, 1250), "a packet from before the cut stays lost after the heal");
    let epoch = pipe.epoch();
    assert_eq!(deliver(&mut pipe, 20_000, 1250), 31_000);
    assert!(pipe.arrive(epoch, 1250));
    assert_eq!(pipe.counters().dropped_cut, 3);
}

#[test]
fn duplicates_and_damage_come_at_their_rates() {
    let [duplicate, corrupt, corrupt_hidden] = [0.02, 0.03, 0.05].map(Chance::of);
    let mut pipe = pipe(PipeSpec { duplicate, corrupt, corrupt_hidden, ..Default::default() }, 11);
    for i in 0..100_000 {
        offer(&mut pipe, i, 100);
    }
    let c = pipe.counters();
    assert!((1750..2250).contains(&c.duplicated), "{c:?}");
    assert!((2700..3300).contains(&c.corrupted), "{c:?}");
    assert!((4500..5200).contains(&c.corrupted_hidden), "{c:?}");
}

#[test]
fn what_is_longer_than_the_pipe_passes_vanishes() {
    let (taken, c) = accepted(PipeSpec { mtu_bytes: 99, ..Default::default() }, 10, 100);
    assert_eq!((taken, c.dropped_too_big), (0, 10));
}

fn lost(loss: Loss, packets: u64, gap_ns: TimeNs, seed: u64) -> Vec<bool> {
    let mut pipe = pipe(PipeSpec { loss, ..Default::default() }, seed);
    (0..packets).map(|i| matches!(offer(&mut pipe, i * gap_ns, 100), Offer::Drop(Why::Loss, _))).collect()
}

fn bursts(to_bad: f64, to_good: f64, loss: f64) -> Burst {
    let [to_bad, to_good, loss] = [to_bad, to_good, loss].map(Chance::of);
    Burst { to_bad, to_good, loss, idle_step_ns: 0 }
}

#[test]
fn bursts_have_the_mean_and_the_length_asked_for() {
    let loss = Loss { burst: Some(bursts(0.002, 0.2, 1.0)), ..Loss::NONE };
    let fate = lost(loss, 2_000_000, 1, 2);
    let lost = fate.iter().filter(|x| **x).count() as f64;
    let begun = fate.windows(2).filter(|w| !w[0] && w[1]).count() as f64;
    let share = lost / fate.len() as f64;
    assert!((share - loss.mean()).abs() < 0.1 * loss.mean(), "share {share}, mean {}", loss.mean());
    assert!((lost / begun - 5.0).abs() < 0.3, "mean burst {}, 1 / to_good = 5", lost / begun);
}

#[test]
fn a_burst_passes_without_packets_if_asked() {
    let longest = |idle_step_ns| {
        let burst = Burst { idle_step_ns, ..bursts(0.01, 0.05, 1.0) };
        let fate = lost(Loss { burst: Some(burst), ..Loss::NONE }, 100_000, 20_000, 3);
        fate.split(|lost| !lost).map(<[bool]>::len).max().unwrap()
    };
    // In 20 us there are 20 steps of 1 us, each of which may end the burst.
    assert!(longest(1000) < 15 && longest(0) > 50, "{} {}", longest(1000), longest(0));
}

#[test]
fn a_seed_reproduces() {
    let loss = Loss { each: Chance::of(0.01), burst: Some(bursts(0.05, 0.3, 0.7)) };
    assert_eq!(lost(loss, 5000, 1, 9), lost(loss, 5000, 1, 9));
    assert_ne!(lost(loss, 5000, 1, 9), lost(loss, 5000, 1, 10));
}

#[test]
fn whoever_damages_may_draw() {
    let mut pipe = pipe(PipeSpec { corrupt: Chance::ALWAYS, ..Default::default() }, 1);
    let mut draw = || match pipe.offer(0, 100, |_, rng| rng.next_u64()) {
        Offer::Deliver { damage, .. } => damage.unwrap(),
        Offer::Drop(why, _) => panic!("{why:?}"),
    };
    assert_ne!(draw(), draw());
}

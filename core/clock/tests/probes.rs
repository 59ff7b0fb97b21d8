//! One batch of probes, one fit.

mod common;

use common::{Net, READING_NS, Rng, SECOND, Trouble};
use proptest::prelude::*;
use weir_clock::{Assumptions, Estimate, Fit, FitError, MinimumFilter, Probe, Rate, StopRule, Verdict};

fn probe(send_ns: i64, forth_ns: i64, back_ns: i64, offset_ns: i64) -> Probe {
    Probe { send_ns, remote_ns: send_ns + forth_ns + offset_ns, receive_ns: send_ns + forth_ns + back_ns }
}

fn steady() -> (Rate, Assumptions) {
    let assumptions = Assumptions { max_drift: 0.0, resolution_ns: 0.0, floor_bits: 1, ..Assumptions::default() };
    (Rate { slope: 0.0, error: 0.0 }, assumptions)
}

#[test]
fn the_seeds_corrected_formula_is_unbiased_on_a_symmetric_path() {
    // The reference probes at a = 1000, both ways take 250, the client reads r = 50 at 1250: offset
    // a + rtt/2 - r = 1200.
    let p = Probe { send_ns: 1_000, remote_ns: 50, receive_ns: 1_500 };
    assert_eq!(-p.offset_ns(), 1_200);
    assert_eq!(p.rtt_ns(), 500.0);
}

#[test]
fn the_envelope_takes_the_best_of_each_direction() {
    // Neither probe is fast both ways: 100 forth and 900 back, 900 forth and 100 back; one far away
    // is slow.
    let (rate, assumptions) = steady();
    let batch = [probe(0, 100, 900, 77), probe(2_000, 900, 100, 77), probe(9_000, 5_000, 5_000, 77)];
    let e = Estimate::envelope(&batch, rate, &assumptions).unwrap();
    assert_eq!(e.offset_ns, 77);
    // 200 ns of delay; 2 for half-ns roundings of proofs and offset.
    assert_eq!(e.width_ns, 202.0);
    let c = Estimate::cristian(&batch, rate, &assumptions).unwrap();
    assert_eq!(c.offset_ns, 77 - 400);
    assert!(f64::from(400) <= c.hard_bound_ns(&assumptions), "{c:?}");
}

#[test]
fn a_known_floor_narrows_the_hard_bound() {
    let (rate, assumptions) = steady();
    let e = Estimate::envelope(&[probe(0, 600, 400, 5)], rate, &assumptions).unwrap();
    let known = Assumptions { floor_ns: 300.0, ..assumptions };
    assert_eq!(e.hard_bound_ns(&assumptions) - e.hard_bound_ns(&known), 300.0);
    assert!(e.hard_bound_ns(&known) >= 100.0);
}

#[test]
fn too_few_probes_claim_no_more_than_the_hard_bound() {
    let (rate, assumptions) = steady();
    let e = Estimate::envelope(&[probe(0, 500, 500, 0), probe(9, 500, 500, 0)], rate, &assumptions).unwrap();
    assert_eq!(e.bound_ns(&assumptions), e.hard_bound_ns(&assumptions));
    let three = [probe(0, 500, 500, 0), probe(9, 500, 500, 0), probe(19, 500, 500, 0)];
    let e = Estimate::envelope(&three, rate, &assumptions).unwrap();
    assert!(e.bound_ns(&assumptions) < 0.2 * e.hard_bound_ns(&assumptions), "{e:?}");
}

#[test]
fn probes_with_impossible_times_are_refused_and_counted() {
    let (rate, assumptions) = steady();
    let mut batch = vec![probe(0, 500, 500, 9); 7];
    batch.push(Probe { send_ns: 10, remote_ns: 5, receive_ns: 9 });
    batch.push(Probe { send_ns: i64::MIN, remote_ns: i64::MAX, receive_ns: i64::MAX });
    batch.push(probe(20_000, 10, 10, 1_000_000));
    let e = Estimate::envelope(&batch, rate, &assumptions).unwrap();
    assert_eq!((e.offset_ns, e.used, e.refused), (9, 7, 3));
    assert_eq!(Estimate::envelope(&[], rate, &assumptions), None);
    assert_eq!(Estimate::envelope(&batch[7..9], rate, &assumptions), None);
}

#[test]
fn where_one_probe_lies_another_may_that_contradicts_nobody() {
    // The truth is 0. A remote time 480 late proves, wrongly, an offset of 480 or more; up to 500
    // nobody contradicts.
    let (rate, assumptions) = steady();
    let mut batch: Vec<Probe> = (0..20).map(|i| probe(i * 10_000, 500 + i, 500 + i, 0)).collect();
    batch.push(probe(200_000, 980, 20, 0));
    let trusting = Estimate::envelope(&batch, rate, &assumptions).unwrap();
    assert!(trusting.refused == 0 && trusting.offset_ns > 200, "{trusting:?}");
    // Another is a second off, for all to see: now none is believed alone.
    batch.push(probe(300_000, 500, 500, 1_000_000_000));
    let wary = Estimate::envelope(&batch, rate, &assumptions).unwrap();
    assert!(wary.refused == 1 && wary.offset_ns.abs() <= 2, "{wary:?}");
    assert!(wary.hard_bound_ns(&assumptions) >= 500.0 && wary.bound_ns(&assumptions) >= 1.0, "{wary:?}");
    // Several batches warn each other: the lie is in one, the contradiction in another.
    let seen: Vec<Probe> = batch.drain(21..).collect();
    let clean: Vec<Probe> = (0..20).map(|i| probe(1_000_000 + i * 10_000, 500 + i, 500 + i, 0)).chain(seen).collect();
    let fit = Fit::from_batches(&[batch, clean], &assumptions).unwrap();
    let reading = fit.model.at(500_000);
    assert!((reading.global_ns - 500_000).abs() as f64 <= reading.error_ns, "{fit:?}");
}

#[test]
fn a_batch_at_odds_with_itself_gives_nothing() {
    let (rate, assumptions) = steady();
    let batch: Vec<Probe> = (0..9).map(|i| probe(i * 10_000, 50, 50, i * 1_000)).collect();
    assert_eq!(Estimate::envelope(&batch, rate, &assumptions), None);
}

#[test]
fn the_filter_stops_after_its_patience_and_never_past_its_limit() {
    let rule = StopRule { patience: 5, least: 8, most: 30 };
    let count = |mut rtt_of: Box<dyn FnMut(u32) -> Option<i64>>| {
        let mut filter = MinimumFilter::new(rule);
        loop {
            let outcome = rtt_of(filter.tried()).map(|rtt| probe(0, rtt / 2, rtt / 2, 0));
            if filter.offer(outcome) == Verdict::Stop {
                return (filter.tried(), filter.probes().len());
            }
        }
    };
    // The minimum at the 7th probe (index 6), then five without.
    assert_eq!(count(Box::new(|i| Some(if i == 6 { 100 } else { 200 }))), (12, 12));
    // The minimum at once: the least count.
    assert_eq!(count(Box::new(|i| Some(100 + i64::from(i) * 2))), (8, 8));
    // Ever faster: the limit.
    assert_eq!(count(Box::new(|i| Some(1_000 - 2 * i64::from(i)))), (30, 30));
    // All lost.
    assert_eq!(count(Box::new(|_| None)), (8, 0));
}

/// Batches between ranks 1 and 0 every 10 ms.
fn batches(net: &mut Net, count: u32) -> Vec<Vec<Probe>> {
    (0..count).map(|i| net.batch(1, 0, 80, SECOND + f64::from(i) * 1e7)).collect()
}

#[test]
fn a_stepped_clock_is_refused() {
    let mut net = Net::new(2, Trouble::JITTER, 2);
    let mut all = batches(&mut net, 12);
    for batch in &mut all[6..] {
        batch.iter_mut().for_each(|p| p.remote_ns += 2_000_000);
    }
    let result = Fit::from_batches(&all, &Assumptions::default());
    assert!(matches!(result, Err(FitError::Unsteady { points: 12, discarded: 3 })), "{result:?}");
}

#[test]
fn a_drift_beyond_the_limit_is_refused() {
    let mut net = Net::new(2, Trouble { drift: 0.0, ..Trouble::JITTER }, 2);
    net.clocks[0].drift = 900e-6;
    let result = Fit::from_batches(&batches(&mut net, 12), &Assumptions::default());
    assert!(matches!(result, Err(FitError::Unsteady { .. })), "{result:?}");
    let wider = Assumptions { max_drift: 1e-3, ..Assumptions::default() };
    let fit = Fit::from_batches(&batches(&mut net, 12), &wider).unwrap();
    assert!((fit.model.slope() - 900e-6).abs() < 5e-6, "{fit:?}");
}

#[test]
fn a_quarter_of_wild_batches_is_set_aside() {
    let mut net = Net::new(2, Trouble::JITTER, 4);
    let mut all = batches(&mut net, 12);
    for (batch, off_ns) in all.iter_mut().step_by(5).zip([3_000_000, -80_000, 40_000]) {
        batch.iter_mut().for_each(|p| p.remote_ns += off_ns);
    }
    let fit = Fit::from_batches(&all, &Assumptions::default()).unwrap();
    assert_eq!((fit.points, fit.discarded), (9, 3));
    let t = SECOND + 5e7;
    let reading = fit.model.at(net.clocks[1].read(t));
    assert!(net.error_ns(t, reading.global_ns).abs() < 500.0);
}

#[test]
fn counts_out_of_range_are_errors() {
    let assumptions = Assumptions::default();
    assert_eq!(Fit::new(&[], &assumptions), Err(FitError::Empty));
    assert_eq!(Fit::from_batches(&[vec![], vec![]], &assumptions), Err(FitError::Empty));
    let mut net = Net::new(2, Trouble::JITTER, 4);
    let one = Estimate::envelope(&net.batch(1, 0, 50, SECOND), Rate::unknown(&assumptions), &assumptions).unwrap();
    assert_eq!(Fit::new(&[one; 257], &assumptions), Err(FitError::TooMany(257)));
    let single = Fit::new(&[one], &assumptions).unwrap();
    assert_eq!(single.model.bound().slope_error, assumptions.max_drift);
}

proptest! {
    /// Whatever the delays, the truth is within the hard bound; the middle of the fastest probe as
    /// well as the envelope's.
    #[test]
    fn the_hard_bound_needs_no_assumption(seed: u64, count in 1u32..200, drift in -100e-6f64..100e-6) {
        let mut rng = Rng(seed);
        let trouble = Trouble {
            asymmetry: rng.between(-1.0, 1.0),
            jitter_ns: rng.between(1.0, 1e5),
            burst: 0.1,
            burst_ns: 1e5,
            ..Trouble::JITTER
        };
        let mut net = Net::new(2, trouble, seed);
        net.clocks[1].drift = drift;
        let assumptions = Assumptions::default();
        let batch = net.batch(1, 0, count, SECOND);
        for estimate in [Estimate::envelope, Estimate::cristian] {
            let e = estimate(&batch, Rate::unknown(&assumptions), &assumptions).unwrap();
            let t = true_time(&net, e.at_ns);
            let truth = net.clocks[0].exact(t) - net.clocks[1].exact(t);
            let error = (truth - e.offset_ns as f64).abs();
            prop_assert!(error <= e.hard_bound_ns(&assumptions) + READING_NS, "{error} above {e:?}");
        }
    }

    /// The two-pass fit's bound at its anchor without the assumption of asymmetry holds whatever
    /// the asymmetry.
    #[test]
    fn the_hard_error_of_a_fit_holds(seed: u64, asymmetry in 0.0f64..1.0) {
        let mut net = Net::new(2, Trouble { asymmetry, ..Trouble::JITTER }, seed);
        let fit = Fit::from_batches(&batches(&mut net, 8), &Assumptions::default()).unwrap();
        let t = true_time(&net, fit.model.anchor_ns());
        let error = net.error_ns(t, fit.model.at(fit.model.anchor_ns()).global_ns).abs();
        prop_assert!(error <= fit.hard_error_ns + READING_NS, "{error} above {fit:?}");
    }

    /// Arbitrary times from a hostile peer give an estimate or none, never a panic.
    #[test]
    fn hostile_times_do_not_panic(times in prop::collection::vec(any::<(i64, i64, i64)>(), 0..60)) {
        let batch: Vec<Probe> =
            times.iter().map(|(s, m, r)| Probe { send_ns: *s, remote_ns: *m, receive_ns: *r }).collect();
        let assumptions = Assumptions::default();
        if let Some(e) = Estimate::envelope(&batch, Rate::unknown(&assumptions), &assumptions) {
            prop_assert!(e.width_ns >= 0.0 && e.used > 0);
        }
        if let Ok(fit) = Fit::from_batches(&[batch.clone(), batch], &assumptions) {
            prop_assert!(fit.model.at(i64::MAX).error_ns >= 0.0);
        }
    }
}

/// True time at which rank 1's clock shows `local_ns` (Newton; rates are close to 1).
fn true_time(net: &Net, local_ns: i64) -> f64 {
    let mut t = local_ns as f64 - net.clocks[1].origin_ns;
    for _ in 0..5 {
        t -= net.clocks[1].exact(t) - local_ns as f64;
    }
    t
}

//! Calibration of counters, good and bad.

mod common;

use common::Rng;
use proptest::prelude::*;
use weir_clock::{TickError, TickPair, Ticks};

/// Pairs a millisecond apart of a counter with value `count(t)` at monotonic time `t`, each read
/// taking 20 to 60 ns, some interrupted for microseconds.
fn pairs(seed: u64, n: u32, count: impl Fn(f64) -> f64) -> Vec<TickPair> {
    let mut rng = Rng(seed);
    let pair = |i| {
        let start = 5e9 + f64::from(i) * 1e6 + rng.between(0.0, 1e5);
        let first = rng.between(10.0, 30.0);
        let mut second = rng.between(10.0, 30.0);
        if rng.chance(0.05) {
            second += rng.exponential(20_000.0);
        }
        TickPair {
            before: count(start) as u64,
            monotonic_ns: (start + first) as i64,
            after: count(start + first + second) as u64,
        }
    };
    (0..n).map(pair).collect()
}

proptest! {
    #[test]
    fn a_steady_counter_is_recovered_within_its_bounds(seed: u64, ghz in 0.02f64..5.0, zero in 0u64..1 << 60, n in 20u32..100) {
        let zero = zero as f64;
        // Whole numbers of ticks only: f64 is not exact at 2^60, so count from a base.
        let base = zero as u64;
        let all: Vec<TickPair> = pairs(seed, n, |t| (t - 5e9) * ghz)
            .into_iter()
            .map(|p| TickPair { before: base + p.before, after: base + p.after, ..p })
            .collect();
        let ticks = Ticks::calibrate(&all).unwrap();
        let off = (ticks.ns_per_tick() * ghz - 1.0).abs();
        prop_assert!(off <= ticks.rate_error() && ticks.rate_error() < 1e-4, "{off} above {}", ticks.rate_error());
        for ms in [0.0, 5.0, f64::from(n) - 1.0] {
            let t = 5e9 + ms * 1e6;
            let tick = base + ((t - 5e9) * ghz) as u64;
            let error = (ticks.to_ns(tick) as f64 - t).abs();
            prop_assert!(error <= ticks.error_ns() + 1.0 + 1.0 / ghz, "{error} above {}", ticks.error_ns());
            // The tick to spin for is the first one not before the time.
            let (goal, at_ns) = (ticks.from_ns(ticks.to_ns(tick)), ticks.to_ns(tick));
            prop_assert!(ticks.to_ns(goal) >= at_ns && ticks.to_ns(goal.wrapping_sub(2)) <= at_ns);
        }
        prop_assert!((ticks.frequency_hz() / (ghz * 1e9) - 1.0).abs() < 1e-4);
        prop_assert!((ticks.duration_ns(1_000) * ghz - 1_000.0).abs() < 0.1);
    }

    #[test]
    fn hostile_pairs_do_not_panic(raw in prop::collection::vec(any::<(u64, i64, u64)>(), 8..20)) {
        let mut all: Vec<TickPair> =
            raw.iter().map(|(b, m, a)| TickPair { before: *b, monotonic_ns: *m, after: *a }).collect();
        prop_assert!(Ticks::calibrate(&all).is_err() || all.is_sorted_by_key(|p| p.before));
        all.sort_by_key(|p| p.before);
        if let Ok(ticks) = Ticks::calibrate(&all) {
            prop_assert!(ticks.rate_error() <= 1e-4);
        }
    }
}

#[test]
fn interrupted_ends_do_not_make_a_steady_counter_look_unsteady() {
    // The first and the last reading, from which the rough rate comes, took 100 us, and so did one
    // between them. In each the clock was read at the very start or the very end, in all ways.
    for late in 0..8u32 {
        let pair = |i: u64| {
            let interrupted = [0, 10, 19].iter().position(|k| *k == i);
            let before = 5_000_000 + i * 50_000;
            let after = before + if interrupted.is_some() { 5_000 } else { 2 };
            let at = if interrupted.is_some_and(|k| late >> k & 1 == 1) { after } else { before };
            TickPair { before, monotonic_ns: (at * 20) as i64, after }
        };
        let ticks = Ticks::calibrate(&(0..20).map(pair).collect::<Vec<_>>()).unwrap();
        assert!((ticks.ns_per_tick() / 20.0 - 1.0).abs() <= ticks.rate_error(), "{late}: {ticks:?}");
    }
}

#[test]
fn a_counter_that_follows_the_frequency_is_refused() {
    // 3 GHz, dropping to 2.5 in the middle.
    let all = pairs(1, 40, |t| {
        let s = t - 5e9;
        if s < 2e7 { s * 3.0 } else { 6e7 + (s - 2e7) * 2.5 }
    });
    let result = Ticks::calibrate(&all);
    assert!(matches!(result, Err(TickError::Unstable { off_ns }) if off_ns > 100_000.0), "{result:?}");
}

#[test]
fn cores_whose_counters_differ_are_refused() {
    // The process moves to a core that is 2 us ahead, and to one that is 10 us behind.
    let ahead = pairs(2, 40, |t| (t - 5e9) * 3.0 + if t > 5.02e9 { 6_000.0 } else { 0.0 });
    assert!(matches!(Ticks::calibrate(&ahead), Err(TickError::Unstable { .. })), "{:?}", Ticks::calibrate(&ahead));
    let behind = pairs(2, 40, |t| (t - 4e9) * 3.0 - if t > 5.02e9 { 9e6 } else { 0.0 });
    assert_eq!(Ticks::calibrate(&behind), Err(TickError::Backwards(20)));
}

#[test]
fn standing_counters_and_short_spans_are_refused() {
    let standing = pairs(3, 20, |_| 77.0);
    assert!(matches!(Ticks::calibrate(&standing), Err(TickError::Implausible(_))));
    let good = pairs(3, 40, |t| (t - 5e9) * 3.0);
    assert_eq!(Ticks::calibrate(&good[..7]), Err(TickError::Count(7)));
    // The same number of pairs within 20 us.
    let short: Vec<TickPair> = (0..20)
        .map(|i| TickPair { before: i * 3_000, monotonic_ns: i as i64 * 1_000 + 20, after: i * 3_000 + 120 })
        .collect();
    assert!(matches!(Ticks::calibrate(&short), Err(TickError::Imprecise { .. })), "{:?}", Ticks::calibrate(&short));
}

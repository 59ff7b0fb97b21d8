//! Injected offsets and drifts are recovered, and the claimed bounds hold, over whole
//! synchronisations.

mod common;

use common::{Net, READING_NS, SECOND, Trouble, effort, models};
use proptest::prelude::*;
use weir_clock::{Assumptions, Effort, Model, Schedule, Timeline};

/// A run: synchronisations at the given true times.
fn timelines(net: &mut Net, effort: Effort, at_s: &[f64]) -> (Vec<Timeline>, f64) {
    let ranks = net.clocks.len() as u32;
    let schedule = Schedule::new(ranks);
    let mut lines: Vec<Timeline> = Vec::new();
    let mut end = 0.0;
    for s in at_s {
        let (parts, t) = net.synchronise(&schedule, effort, s * SECOND);
        end = t;
        for (rank, model) in models(&parts).into_iter().enumerate() {
            match lines.get_mut(rank) {
                Some(line) => line.push(model).unwrap(),
                None => lines.push(Timeline::new(model, &effort.assumptions)),
            }
        }
    }
    (lines, end)
}

/// Errors of all ranks at the true times: (true error, claimed bound), ns.
fn errors(net: &Net, lines: &[Timeline], times: &[f64]) -> Vec<(f64, f64)> {
    let mut all = Vec::new();
    for (clock, line) in net.clocks.iter().zip(lines) {
        for t in times {
            let reading = line.at(clock.read(*t));
            all.push((net.error_ns(*t, reading.global_ns).abs(), reading.error_ns + READING_NS));
        }
    }
    all
}

fn times(from_s: f64, to_s: f64) -> Vec<f64> {
    (0..=20).map(|i| (from_s + (to_s - from_s) * f64::from(i) / 20.0) * SECOND).collect()
}

/// `n` cases, or as many as `PROPTEST_CASES` says.
fn cases(n: u32) -> ProptestConfig {
    let asked = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if std::env::var_os("PROPTEST_CASES").is_some() { asked } else { ProptestConfig { cases: n, ..asked } }
}

proptest! {
    #![proptest_config(cases(24))]

    /// Offsets of seconds, drifts of 100 ppm either way that change slowly, symmetric jitter:
    /// within 2 us between two synchronisations on up to 64 ranks, and within the bound.
    #[test]
    fn symmetric_jitter_leaves_less_than_2_us(
        ranks in 2u32..=64,
        floors_us in 2.0f64..100.0,
        jitter_us in 0.1f64..5.0,
        gap_s in 2.0f64..20.0,
        seed: u64,
    ) {
        let trouble = Trouble { floors_ns: floors_us * 1e3, jitter_ns: jitter_us * 1e3, ..Trouble::JITTER };
        let mut net = Net::new(ranks, trouble, seed);
        let (lines, _) = timelines(&mut net, effort(), &[1.0, 1.0 + gap_s]);
        for (error, bound) in errors(&net, &lines, &times(1.0, 1.0 + gap_s)) {
            prop_assert!(error <= 2_000.0, "off by {error} ns");
            prop_assert!(error <= bound, "off by {error} ns, claimed {bound} ns");
        }
    }

    /// Asymmetry up to what is assumed, bursts of queueing, loss, late probes, garbage: the bound
    /// holds inside, before and long after the measured span.
    #[test]
    fn no_error_is_above_its_bound(
        ranks in 2u32..=40,
        asymmetry in 0.0f64..0.6,
        jitter_us in 0.1f64..20.0,
        (burst, burst_us) in (0.0f64..0.05, 1.0f64..2_000.0),
        (loss, outlier, garbage) in (0.0f64..0.1, 0.0f64..0.1, 0.0f64..0.1),
        seed: u64,
    ) {
        let trouble = Trouble {
            asymmetry, jitter_ns: jitter_us * 1e3, burst, burst_ns: burst_us * 1e3, loss, outlier, garbage,
            ..Trouble::JITTER
        };
        let assumptions = Assumptions { asymmetry, ..Assumptions::default() };
        let mut net = Net::new(ranks, trouble, seed);
        let effort = Effort { assumptions, ..effort() };
        let (lines, end) = timelines(&mut net, effort, &[1.0, 9.0]);
        let after_s = end / SECOND;
        for (from, to) in [(0.0, 1.0), (1.0, 9.0), (after_s, after_s + 60.0)] {
            for (error, bound) in errors(&net, &lines, &times(from, to)) {
                prop_assert!(error <= bound, "off by {error} ns, claimed {bound} ns, {from} to {to} s");
            }
        }
        let (one, end) = timelines(&mut net, effort, &[20.0]);
        let end_s = end / SECOND;
        for (error, bound) in errors(&net, &one, &times(end_s - 2.0, end_s + 60.0)) {
            prop_assert!(error <= bound, "off by {error} ns, claimed {bound} ns, one synchronisation");
        }
    }

    /// Without any assumption about asymmetry the bound holds for a path that is slow in one
    /// direction only.
    #[test]
    fn assuming_nothing_bounds_a_one_sided_path(ranks in 2u32..=16, asymmetry in 0.6f64..1.0, seed: u64) {
        let assumptions = Assumptions { asymmetry: 1.0, ..Assumptions::default() };
        let mut net = Net::new(ranks, Trouble { asymmetry, ..Trouble::JITTER }, seed);
        let (lines, _) = timelines(&mut net, Effort { assumptions, ..effort() }, &[1.0, 5.0]);
        for (error, bound) in errors(&net, &lines, &times(0.0, 8.0)) {
            prop_assert!(error <= bound, "off by {error} ns, claimed {bound} ns");
        }
    }

    /// Lengths on one rank: within their own bound, which is far below those of the ends.
    #[test]
    fn lengths_on_one_rank_are_known_better_than_times(ranks in 2u32..=16, seed: u64, length_us in 0.1f64..10_000.0) {
        let mut net = Net::new(ranks, Trouble::JITTER, seed);
        let (lines, _) = timelines(&mut net, effort(), &[1.0, 5.0]);
        for (clock, line) in net.clocks.iter().zip(&lines).skip(1) {
            for t in [0.5 * SECOND, 2.0 * SECOND, 30.0 * SECOND] {
                let end = t + length_us * 1e3;
                let (a, b) = (clock.read(t), clock.read(end));
                let span = line.duration(a, b);
                let truth = net.clocks[0].exact(end) - net.clocks[0].exact(t);
                prop_assert!((span.duration_ns - truth).abs() <= span.error_ns + READING_NS);
                let ends = line.at(a).error_ns + line.at(b).error_ns;
                prop_assert!(span.error_ns <= 0.1 * ends, "{} of {ends}", span.error_ns);
            }
        }
    }

    /// Lengths across ranks, start on one and end on the other.
    #[test]
    fn lengths_across_ranks_are_within_their_bound(ranks in 2u32..=16, seed: u64) {
        let mut net = Net::new(ranks, Trouble::JITTER, seed);
        let (lines, _) = timelines(&mut net, effort(), &[1.0, 5.0]);
        for a in 0..ranks as usize {
            let b = ranks as usize - 1 - a;
            let (start, end) = (3.0 * SECOND, 3.0 * SECOND + 25_000.0);
            let span = lines[a].at(net.clocks[a].read(start)).until(lines[b].at(net.clocks[b].read(end)));
            let truth = net.clocks[0].exact(end) - net.clocks[0].exact(start);
            prop_assert!((span.duration_ns - truth).abs() <= span.error_ns + 2.0 * READING_NS);
        }
    }
}

#[test]
fn the_drift_is_recovered_to_a_fraction_of_a_ppm() {
    for seed in 0..20 {
        let mut net = Net::new(2, Trouble::JITTER, seed);
        let (parts, end) = net.synchronise(&Schedule::new(2), Effort::default(), SECOND);
        let model = models(&parts)[1];
        let t = (SECOND + end) / 2.0;
        let truth = (1.0 + net.clocks[0].drift_at(t)) / (1.0 + net.clocks[1].drift_at(t)) - 1.0;
        let off = (model.slope() - truth).abs();
        let bend = model.bound().wander_per_ns * (end - t);
        assert!(off <= model.bound().slope_error + bend, "{off} above {}", model.bound().slope_error);
        // 2 us in a second.
        assert!(off < 2e-6, "seed {seed}: drift off by {off}");
    }
}

#[test]
fn bounds_are_useful_not_only_true() {
    // 40 us round trips, 3 us jitter: a bound of the order of asymmetry (2 us a level at most) and
    // jitter.
    let mut net = Net::new(16, Trouble::JITTER, 7);
    let (lines, _) = timelines(&mut net, effort(), &[1.0, 5.0]);
    for (rank, line) in lines.iter().enumerate() {
        let levels = f64::from((rank as u32).count_ones());
        let bound = line.at(net.clocks[rank].read(3.0 * SECOND)).error_ns;
        assert!(bound <= levels * 5_000.0, "rank {rank}: {bound} ns over {levels} levels");
    }
}

#[test]
fn a_path_less_symmetric_than_assumed_is_not_covered() {
    // Not a promise but a check of the tests: they do see a bound that is too small.
    let assumptions = Assumptions { asymmetry: 0.0, ..Assumptions::default() };
    let mut net = Net::new(2, Trouble { asymmetry: 0.5, ..Trouble::JITTER }, 3);
    let (lines, _) = timelines(&mut net, Effort { assumptions, ..effort() }, &[1.0, 5.0]);
    assert!(errors(&net, &lines, &times(1.0, 5.0)).iter().any(|(error, bound)| error > bound));
}

#[test]
fn the_bound_grows_outside_of_the_synchronisations_only() {
    let mut net = Net::new(2, Trouble::JITTER, 11);
    let (lines, _) = timelines(&mut net, effort(), &[1.0, 5.0]);
    let bound = |s: f64| lines[1].at(net.clocks[1].read(s * SECOND)).error_ns;
    let inside = (0..=10).map(|i| bound(1.5 + 0.3 * f64::from(i))).fold(0.0, f64::max);
    assert!(bound(20.0) > inside && bound(100.0) > 2.0 * bound(20.0) && bound(-20.0) > inside);
}

#[test]
fn the_root_has_no_error_and_shared_clocks_are_adopted() {
    let mut net = Net::new(6, Trouble::JITTER, 5);
    // Ranks 1 and 3 are on the root's host, 4 and 5 on the one of 2.
    for (rank, host) in [(1, 0), (3, 0), (4, 2), (5, 2)] {
        net.clocks[rank] = net.clocks[host];
    }
    let schedule = Schedule::with_domains(&[7, 7, 9, 7, 9, 9]);
    let (parts, _) = net.synchronise(&schedule, effort(), SECOND);
    let models = models(&parts);
    assert_eq!([models[0], models[1], models[3]], [Model::IDENTITY; 3]);
    assert_eq!([models[4], models[5]], [models[2]; 2]);
    assert!(models[2] != Model::IDENTITY && parts[2].fit().is_some() && parts[4].fit().is_none());
}

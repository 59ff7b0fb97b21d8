//! Agreed starts and missed ones.

use proptest::prelude::*;
use weir_clock::{Arrival, Outcome, Plan, WindowConfig, Windows};

fn config() -> WindowConfig {
    WindowConfig { lead_ns: 1_000, width_min_ns: 100, width_max_ns: 100_000, ..WindowConfig::default() }
}

/// Runs a plan on one rank for which a repetition takes `length_ns` and which gets the plan at
/// `got_ns`.
fn run(plan: &Plan, got_ns: i64, length_ns: impl Fn(u32) -> i64) -> Outcome {
    let (mut outcome, mut now) = (Outcome::default(), got_ns);
    for k in 0..plan.count {
        let arrival = plan.arrive(k, now);
        outcome.arrived(k, arrival);
        match arrival {
            Arrival::Wait { until_ns } => {
                now = until_ns + length_ns(k);
                outcome.finished(plan, k, now);
            }
            Arrival::Missed { .. } => now += length_ns(k),
        }
    }
    outcome
}

#[test]
fn starts_are_evenly_spaced_after_the_lead() {
    let plan = Windows::new(config(), 0).plan(5_000, 3, 20.4);
    // 21 ns of clock error before the first start, twice that in every window.
    assert_eq!((plan.first_ns, plan.width_ns), (6_021, 142));
    assert_eq!([plan.start_ns(0), plan.start_ns(1), plan.start_ns(2)], [6_021, 6_163, 6_305]);
    assert_eq!(plan.arrive(1, 6_163), Arrival::Wait { until_ns: 6_163 });
    assert_eq!(plan.arrive(1, 6_164), Arrival::Missed { late_ns: 1 });
}

#[test]
fn a_missed_window_is_flagged_and_the_next_ones_are_wider() {
    let mut windows = Windows::new(config(), 0);
    let plan = windows.plan(0, 4, 0.0);
    // The second repetition takes two and a half windows: the third is missed by 150, the fourth
    // by 60.
    let outcome = run(&plan, 0, |k| if k == 1 { 250 } else { 10 });
    assert_eq!(outcome, Outcome { windows: 4, missed_first: false, missed_later: 2, longest_ns: 250, latest_ns: 150 });
    windows.learn(&outcome);
    // 1.5 times the longest.
    assert_eq!(windows.width_ns(), 375);
    let next = windows.plan(10_000, 4, 0.0);
    assert_eq!(run(&next, 10_000, |_| 250).missed_later, 0);
}

#[test]
fn a_late_plan_lengthens_the_lead_and_not_the_windows() {
    let mut windows = Windows::new(config(), 0);
    let plan = windows.plan(0, 2, 0.0);
    let outcome = run(&plan, 1_040, |_| 10);
    assert_eq!(outcome, Outcome { windows: 2, missed_first: true, missed_later: 0, longest_ns: 10, latest_ns: 40 });
    windows.learn(&outcome);
    assert_eq!((windows.width_ns(), windows.plan(0, 1, 0.0).first_ns), (100, 2_000));
}

#[test]
fn a_late_plan_never_shortens_the_lead() {
    // Windows of a short cell are narrow at the widest.
    let mut windows = Windows::new(WindowConfig { lead_ns: 500_000, ..config() }, 0);
    windows.learn(&Outcome { windows: 2, missed_first: true, latest_ns: 40, ..Outcome::default() });
    assert_eq!(windows.plan(0, 1, 0.0).first_ns, 500_000);
}

#[test]
fn calm_shrinks_by_half_at_most_and_not_below_what_is_needed() {
    let mut windows = Windows::new(config(), 40_000);
    assert_eq!(windows.width_ns(), 60_000);
    let mut widths = vec![windows.width_ns()];
    for _ in 0..64 {
        windows.learn(&Outcome { windows: 10, longest_ns: 7_000, ..Outcome::default() });
        if widths.last() != Some(&windows.width_ns()) {
            widths.push(windows.width_ns());
        }
    }
    assert_eq!(widths, [60_000, 30_000, 15_000, 10_500]);
}

#[test]
fn missing_the_widest_windows_is_said() {
    let mut windows = Windows::new(config(), 0);
    let missed = Outcome { windows: 10, missed_later: 3, ..Outcome::default() };
    for _ in 0..10 {
        windows.learn(&missed);
        assert!(!windows.is_saturated());
    }
    assert_eq!(windows.width_ns(), 100_000);
    windows.learn(&missed);
    assert!(windows.is_saturated());
}

/// Repetitions of which one in `every` takes `long_ns`, the others 60 ns, in plans of 100 windows;
/// widths after each plan.
fn widths_with_a_tail(every: u32, long_ns: i64) -> Vec<i64> {
    let mut windows = Windows::new(config(), 60);
    let mut done = 0;
    let plans = 0..60;
    let widths = plans.map(|_| {
        let plan = windows.plan(0, 100, 0.0);
        let mut outcome = run(&plan, 0, |k| if (done + k).is_multiple_of(every) { long_ns } else { 60 });
        // What windows are to hold is all but the longest of them.
        outcome.longest_ns = 60;
        windows.learn(&outcome);
        done += plan.count;
        windows.width_ns()
    });
    widths.collect()
}

#[test]
fn a_few_long_repetitions_do_not_widen_windows() {
    // One start in 40 is missed because of them, which costs less than windows of their length.
    assert!(widths_with_a_tail(40, 150).iter().all(|&width| width == 100));
    // One in ten is more than may be.
    assert!(widths_with_a_tail(10, 150).iter().any(|&width| width > 150));
}

#[test]
fn merging_keeps_the_worst_of_all_ranks() {
    let a = Outcome { windows: 5, missed_first: false, missed_later: 3, longest_ns: 10, latest_ns: 70 };
    let b = Outcome { windows: 5, missed_first: true, missed_later: 0, longest_ns: 90, latest_ns: 5 };
    let worst = Outcome { windows: 5, missed_first: true, missed_later: 3, longest_ns: 90, latest_ns: 70 };
    assert_eq!((a.merge(b), b.merge(a)), (worst, worst));
}

proptest! {
    /// Operations of any length that fits end up without misses, within a logarithmic number of
    /// plans.
    #[test]
    fn windows_become_wide_enough(length_ns in 1i64..60_000, late_ns in 0i64..60_000) {
        let mut windows = Windows::new(config(), 0);
        let mut calm = 0;
        for round in 0..80 {
            let now_ns = round * 1_000_000_000;
            let plan = windows.plan(now_ns, 5, 0.0);
            let outcome = run(&plan, now_ns + late_ns, |_| length_ns).merge(run(&plan, now_ns, |_| 1));
            windows.learn(&outcome);
            calm = if outcome.missed_first || outcome.missed_later > 2 { 0 } else { calm + 1 };
        }
        prop_assert!(calm >= 30, "only {calm} calm plans at the end");
    }

    /// Any limits and outcomes: widths stay positive and within the limits, nothing overflows.
    #[test]
    fn hostile_numbers_do_no_harm(
        (lead_ns, width_min_ns, width_max_ns, headroom, growth) in any::<(i64, i64, i64, f64, f64)>(),
        (tolerated, slack) in any::<(f64, u32)>(),
        outcomes in prop::collection::vec(any::<(u32, bool, u32, i64, i64)>(), 0..20),
        now_ns: i64,
    ) {
        let config =
            WindowConfig { lead_ns, width_min_ns, width_max_ns, headroom, growth, calm_plans: 2, tolerated, slack };
        let mut windows = Windows::new(config, now_ns);
        for (count, missed_first, missed_later, longest_ns, latest_ns) in outcomes {
            windows.learn(&Outcome { windows: count, missed_first, missed_later, longest_ns, latest_ns });
            prop_assert!(windows.width_ns() >= 1);
            let plan = windows.plan(now_ns, 3, headroom);
            prop_assert!(plan.start_ns(2) >= plan.start_ns(1));
        }
    }
}

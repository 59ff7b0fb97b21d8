//! Verdicts on planted differences.

mod common;

use std::path::Path;

use common::Shape;
use weir_report::compare::{self, Comparison, Verdict};
use weir_report::digest::Digest;
use weir_report::{comparison_plots, load, page};

fn run(dir: &Path, name: &str, shape: &Shape) -> Digest {
    let dir = dir.join(name);
    common::write(&dir, shape).expect("written");
    load(&dir, compare::KEPT).expect("read")
}

fn base() -> Shape {
    Shape { repetitions: 1500, clock_error_ns: 1.0, fits: false, outliers: 0.0, pairs: vec![4], ..Shape::small() }
}

fn compared(second: Shape) -> Comparison {
    let dir = tempfile::tempdir().unwrap();
    compare::compare(&run(dir.path(), "a", &base()), &run(dir.path(), "b", &second))
}

#[test]
fn a_machine_that_is_slower_by_a_tenth_is_said_to_be() {
    let comparison = compared(Shape { factor: 1.1, seed: 2, ..base() });
    assert!(comparison.pairs().count() >= 7);
    for pair in comparison.pairs() {
        assert_eq!(pair.verdict, Verdict::Slower, "{pair}");
        assert!((pair.ratio - 1.1).abs() < 0.02, "{pair}");
        assert!(pair.interval.0 <= pair.ratio && pair.ratio <= pair.interval.1);
        assert!(pair.to_string().starts_with("slower by "), "{pair}");
    }
}

#[test]
fn a_faster_machine_is_said_to_be_faster() {
    let comparison = compared(Shape { factor: 0.5, seed: 3, ..base() });
    assert!(comparison.pairs().all(|p| p.verdict == Verdict::Faster && (p.ratio - 0.5).abs() < 0.01));
    for pair in comparison.pairs() {
        let percent =
            pair.to_string().strip_prefix("faster by ").and_then(|t| t.split(' ').next()?.parse::<f64>().ok());
        assert!(percent.is_some_and(|p| (p - 50.0).abs() < 1.0), "{pair}");
    }
}

#[test]
fn the_same_machine_measured_twice_is_not_said_to_differ() {
    // With a chance of 5 % of any false difference among all cells, over 6 seeds a fault shows as many of them.
    let false_ones: usize = (10..16)
        .map(|seed| {
            let comparison = compared(Shape { seed, ..base() });
            comparison.count(Verdict::Faster) + comparison.count(Verdict::Slower)
        })
        .sum();
    assert!(false_ones <= 1, "{false_ones} false differences");
}

#[test]
fn a_difference_below_the_clocks_error_is_none_however_sure_a_test_is() {
    // 10 % of about 2 µs is 200 ns; the clocks of both runs may be off by 300 ns each.
    let second = Shape { factor: 1.1, seed: 4, clock_error_ns: 300.0, ..base() };
    let comparison = compared(second);
    let small: Vec<_> = comparison.pairs().filter(|p| p.difference_ns() < 300.0).collect();
    assert!(!small.is_empty());
    for pair in small {
        assert!(pair.p < 1e-6, "the test is sure");
        assert_eq!(pair.verdict, Verdict::WithinClockError);
        assert!(pair.to_string().contains("no difference beyond clock error"), "{pair}");
    }
    assert!(comparison.pairs().any(|p| p.verdict == Verdict::Slower), "large messages differ by more");
}

#[test]
fn launches_that_differ_more_than_machines_hide_no_difference_as_one() {
    let launches = |seed, factor| Shape { launches: 6, launch_spread: 0.1, seed, factor, repetitions: 300, ..base() };
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (run(dir.path(), "a", &launches(5, 1.0)), run(dir.path(), "b", &launches(6, 1.01)));
    let comparison = compare::compare(&a, &b);
    for pair in comparison.pairs() {
        // Medians that happen to be nearly equal may be within the clocks' error too.
        let none = matches!(pair.verdict, Verdict::NoDifference | Verdict::WithinClockError);
        assert!(pair.by_launches && none, "{pair}, p {}, {:?}", pair.p_corrected, pair.interval);
    }
    assert!(!comparison.few_launches);
    let (a, b) = (run(dir.path(), "a", &launches(7, 1.0)), run(dir.path(), "b", &launches(8, 1.5)));
    let comparison = compare::compare(&a, &b);
    assert!(comparison.pairs().all(|p| p.verdict == Verdict::Slower), "and one of half as much again is found");
}

#[test]
fn runs_without_a_cell_in_common_are_not_compared() {
    let comparison = compared(Shape { messages: vec!["isend"], collectives: vec!["bcast"], ..base() });
    assert_eq!(comparison.pairs().count(), 0);
    assert!(comparison.unmatched.0 > 0 && comparison.unmatched.1 > 0);
}

#[test]
fn the_page_says_in_words_what_was_found() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (
        run(dir.path(), "mpich-tcp", &base()),
        run(dir.path(), "mpich-weir", &Shape { factor: 0.7, seed: 9, ..base() }),
    );
    let comparison = compare::compare(&a, &b);
    let page = page::of_two(&a, &b, &comparison);
    for part in [
        "mpich-weir against mpich-tcp",
        "fewer than five launches",
        "Holm",
        "time of the second run over the first",
        "cumulative distributions",
    ] {
        assert!(page.contains(part), "{part} is not on the page");
    }
    for pair in comparison.pairs() {
        assert!(pair.verdict == Verdict::Faster && page.contains(&pair.to_string()), "{pair}");
    }
    assert!(!page.contains("NaN"));
    assert!(comparison_plots(&a, &b, &comparison).len() >= 6);
    let json = weir_report::table::comparison_json(&a, &b, &comparison);
    assert_eq!(json["operations"][0]["cells"][0]["verdict"], "faster");
}

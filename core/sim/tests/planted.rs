//! The checkers find what breaks a promise: each defect that can be switched on is found within a
//! few seeds, and nothing is found without one. `weir-sim planted` does it at length.

use weir_sim::planted::{ALL, find};
use weir_sim::run::{Watch, run};
use weir_sim::scenario::Scenario;

/// Most are found within ten.
const SEEDS: u64 = 400;

#[test]
fn each_planted_defect_is_found() {
    let missed: Vec<_> = ALL.iter().filter(|known| find(known, 0..SEEDS).is_none()).map(|known| known.name).collect();
    assert!(missed.is_empty(), "not found in {SEEDS} seeds: {missed:?}");
}

/// What finds a defect finds nothing in the same seed without it.
#[test]
fn what_is_found_is_the_defect() {
    for known in ALL {
        let Some(found) = find(known, 0..SEEDS) else { continue };
        let r = run(&Scenario::draw(found.seed, known.profile), Watch::default());
        assert_eq!(r.violation, None, "{}: seed {}", known.name, found.seed);
    }
}

#[test]
fn defects_have_names_of_their_own() {
    let names: std::collections::BTreeSet<_> = ALL.iter().map(|known| known.name).collect();
    assert_eq!(names.len(), ALL.len());
}

//! A start in which every rank opens to every other at once, where processors and sockets are
//! short: the small table kept as a snapshot.
//! `INSTA_UPDATE=always cargo test -p weir-sim --test storm` accepts a new one;
//! `weir-sim table storm` prints the large one.

use weir_sim::storm::{Storm, measure, table};

// spec: P-3.2, P-3.17
#[test]
fn every_rank_opens_to_every_other() {
    let storms = Storm::points(&[48, 96]);
    let outcomes: Vec<_> = storms.iter().map(measure).collect();
    let text = table(&storms, &outcomes);
    for (storm, o) in storms.iter().zip(&outcomes) {
        assert_eq!(o.violation, None, "{storm:?}");
        assert!(o.finished_ns.is_some() && o.given_up == 0, "{storm:?}:\n{text}");
        let pairs = u64::from(storm.ranks) * u64::from(storm.ranks - 1);
        // Without places and longer intervals 48 ranks sent 21, and 96 gave up peers that lived.
        let most = if storm.late > 0 { 32 } else { 12 };
        assert!(o.packets < most * pairs, "{storm:?}:\n{text}");
    }
    insta::assert_snapshot!("storm", text);
}

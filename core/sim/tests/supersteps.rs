//! Supersteps, kept as a snapshot: what order and grants are worth shows as a diff of numbers. `INSTA_UPDATE=always cargo test -p weir-sim --test supersteps` accepts new ones.

use weir_sim::scenario::EndpointSpec;
use weir_sim::step_table::{self, Steps};

#[test]
fn supersteps() {
    let points = step_table::points(&EndpointSpec::default(), 8);
    let measured: Vec<_> = points.iter().map(step_table::measure).collect();
    for (p, (r, _)) in points.iter().zip(&measured) {
        assert_eq!(r.violation, None, "{}", p.name);
    }
    // Order and grants are worth more than a quarter of the time where messages are long.
    let mean = |name: &str| {
        let i = points.iter().position(|p| p.name == name).expect("a point");
        Steps::of(&points[i], &measured[i].0).mean_ns()
    };
    let [told, untold] = ["told  ", "untold"].map(|what| mean(&format!("{:<22} {what} 0 %", "total 8 x 1M")));
    assert!(told * 4.0 < untold * 3.0, "{told} and {untold}");
    insta::assert_snapshot!("supersteps", step_table::table(&points, &measured));
}

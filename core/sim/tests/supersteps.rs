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
    // Where messages are long, who is told of the superstep is no slower than who is not (P-5.25 divides what a receiver grants in much the same way).
    let mean = |name: &str| {
        let i = points.iter().position(|p| p.name == name).expect("a point");
        Steps::of(&points[i], &measured[i].0).mean_ns()
    };
    let [told, untold] = ["told  ", "untold"].map(|what| mean(&format!("{:<22} {what} 0 %", "total 8 x 1M")));
    assert!(told < untold * 1.05, "{told} and {untold}");
    for (p, (r, _)) in points.iter().zip(&measured) {
        let steps = Steps::of(p, r);
        // Random loss makes no superstep three times as slow as they are without it.
        if let Some(clean) = p.name.strip_suffix("1 %").map(|name| format!("{name}0 %")) {
            let i = points.iter().position(|q| q.name == clean).expect("the same without loss");
            let median = Steps::of(&points[i], &measured[i].0).quantile_ns(0.5);
            assert!(steps.quantile_ns(1.0) <= 3 * median, "{}", p.name);
        }
        // A bus that all share carries more payload than the seed claims, without slots.
        if p.name.starts_with("bus") && p.name.ends_with("   0 us") {
            assert!(steps.of_wire(p.wire_bits_per_s) >= 0.72, "{}", p.name);
        }
    }
    insta::assert_snapshot!("supersteps", step_table::table(&points, &measured));
}

//! Supersteps, kept as a snapshot: what order and grants are worth shows as a diff of numbers.
//! `INSTA_UPDATE=always cargo test -p weir-sim --test supersteps` accepts new ones.

use weir_sim::scenario::EndpointSpec;
use weir_sim::step_table::{self, Steps};

#[test]
fn supersteps() {
    let points = step_table::points(&EndpointSpec::default(), 8);
    let measured: Vec<_> = points.iter().map(step_table::measure).collect();
    for (p, (r, _)) in points.iter().zip(&measured) {
        assert_eq!(r.violation, None, "{}", p.name);
    }
    // Who is told of the superstep is faster than who is not, and never slower.
    let mean = |name: &str| {
        let i = points.iter().position(|p| p.name == name).expect("a point");
        Steps::of(&points[i], &measured[i].0).mean_ns()
    };
    for (relation, part) in [
        ("total 8 x 64K", 0.95),
        ("total 8 x 256K", 0.8),
        ("total 8 x 1M", 0.75),
        ("shift 8 x 1M", 0.95),
        ("sparse 8 x 3 x 1..100K", 1.0),
        ("to one 8 x 256K", 1.01),
    ] {
        let [told, untold] = ["told  ", "untold"].map(|what| mean(&format!("{relation:<22} {what} 0 %")));
        assert!(told < untold * part, "{relation}: {told} and {untold}");
    }
    // A total exchange of long messages takes nine tenths of the wire, each time.
    let long = points.iter().position(|p| p.name == format!("{:<22} told   0 %", "total 8 x 1M")).expect("a point");
    let steps = Steps::of(&points[long], &measured[long].0);
    assert!(steps.of_wire(points[long].wire_bits_per_s) >= 0.9 && steps.variation() < 0.05, "{steps:?}");
    for (p, (r, l_ns)) in points.iter().zip(&measured) {
        let steps = Steps::of(p, r);
        // Random loss makes no superstep three times as slow as they are without it.
        if let Some(clean) = p.name.strip_suffix("1 %").map(|name| format!("{name}0 %")) {
            let i = points.iter().position(|q| q.name == clean).expect("the same without loss");
            let median = Steps::of(&points[i], &measured[i].0).quantile_ns(0.5);
            assert!(steps.quantile_ns(1.0) <= 3 * median, "{}", p.name);
        }
        // A bus that all share carries more payload than the seed claims, with slots and without.
        if p.name.starts_with("bus") {
            assert!(steps.of_wire(p.wire_bits_per_s) >= 0.72, "{}", p.name);
        }
        // The messages of the reduction wait for no slot.
        if let Some(bus) = p.name.strip_suffix("slot 1250 us") {
            let i = points.iter().position(|q| q.name == format!("{bus}slot    0 us")).expect("the same without slots");
            assert!(*l_ns < 1.5 * measured[i].1, "{}: l {l_ns} ns, {} ns without slots", p.name, measured[i].1);
        }
    }
    insta::assert_snapshot!("supersteps", step_table::table(&points, &measured));
}

//! Algebra of models, timelines.

use proptest::prelude::*;
use weir_clock::{Assumptions, Bound, LIMIT_NS, MODEL_BYTES, Model, ModelError, Span, Timeline, TimelineError};

/// A true relation of two clocks: `o(t) = offset + rate (t - at) + bend/2 (t - at)^2`.
#[derive(Clone, Copy, Debug)]
struct Truth {
    at: f64,
    offset: f64,
    rate: f64,
    bend: f64,
}

impl Truth {
    fn map(&self, t: f64) -> f64 {
        let d = t - self.at;
        t + self.offset + self.rate * d + 0.5 * self.bend * d * d
    }
}

/// A truth and a model of it that is wrong by as much as its bound allows, each part with a sign of
/// its own.
fn pair() -> impl Strategy<Value = (Truth, Model)> {
    let sign = || prop::sample::select(vec![-1.0, 1.0]);
    (
        (-1e10f64..1e10, -5e9f64..5e9, -100e-6f64..100e-6),
        (0.0f64..2_000.0, 1.0f64..1_000.0, 0.0f64..1e8, 0.0f64..5e-6, 0.0f64..1e-17),
        (sign(), sign(), sign()),
    )
        .prop_map(|((at, offset, rate), (fixed, inner, half_span, slope_error, wander), (s1, s2, s3))| {
            let (at, offset) = (at.round(), offset.round());
            // The slope's error is free outside of the span only: inside, `inner` has to cover it.
            let slope_off = s2 * slope_error.min(0.5 * inner / half_span.max(1.0));
            let truth =
                Truth { at, offset: offset + s1 * (fixed + 0.4 * inner), rate: rate + slope_off, bend: s3 * wander };
            let bound = Bound {
                fixed_ns: fixed,
                inner_ns: inner,
                tilt: 0.0,
                half_span_ns: half_span,
                slope_error,
                wander_per_ns: wander,
            };
            (truth, Model::new(at as i64, offset as i64, rate, bound).unwrap())
        })
}

/// Times in f64 are exact to about this at 10^10 ns.
const FLOAT_NS: f64 = 1e-3;

proptest! {
    #[test]
    fn a_composition_is_within_its_bound((a, f) in pair(), (b, g) in pair(), (c, h) in pair(), d in -1e9f64..1e9) {
        // Let the parents be used near where they were made, as in a synchronisation.
        let t = (a.at + d).round();
        let chain = f.then(&g).then(&h);
        let truth = c.map(b.map(a.map(t)));
        let reading = chain.at(t as i64);
        prop_assert!((reading.global_ns as f64 - truth).abs() <= reading.error_ns + FLOAT_NS);
        let other = f.then(&g.then(&h)).at(t as i64);
        prop_assert!((other.global_ns as f64 - truth).abs() <= other.error_ns + FLOAT_NS);
        prop_assert!((reading.global_ns - other.global_ns).abs() <= 3);
        prop_assert!(reading.error_ns >= f.at(t as i64).error_ns);
    }

    #[test]
    fn a_composition_knows_lengths((a, f) in pair(), (b, g) in pair(), d in -1e9f64..1e9, length in 0.0f64..1e8) {
        let (start, end) = ((a.at + d).round(), (a.at + d + length).round());
        let truth = b.map(a.map(end)) - b.map(a.map(start));
        let span = f.then(&g).duration(start as i64, end as i64);
        prop_assert!((span.duration_ns - truth).abs() <= span.error_ns + 2.0 * FLOAT_NS, "{span:?} is {truth}");
    }

    #[test]
    fn an_inverse_is_within_its_bound((a, f) in pair(), d in -1e10f64..1e10) {
        let t = (a.at + d).round();
        let back = f.inverse().at(a.map(t).round() as i64);
        prop_assert!((back.global_ns as f64 - t).abs() <= back.error_ns + 1.0, "{back:?} is {t}");
        let round_trip = f.then(&f.inverse()).at(t as i64);
        prop_assert!((round_trip.global_ns - t as i64).abs() <= 2);
    }

    #[test]
    fn bytes_keep_a_model((_, f) in pair()) {
        prop_assert_eq!(Model::from_bytes(&f.to_bytes()), Ok(f));
    }

    #[test]
    fn any_bytes_are_a_sane_model_or_refused(bytes in prop::array::uniform32(any::<u8>()), more in prop::array::uniform32(any::<u8>()), t: i64) {
        let mut all = [0; MODEL_BYTES];
        all[..32].copy_from_slice(&bytes);
        all[32..64].copy_from_slice(&more);
        all[64..].copy_from_slice(&bytes[..8]);
        if let Ok(model) = Model::from_bytes(&all) {
            prop_assert!(model.slope().abs() < 0.5 && model.anchor_ns().abs() <= LIMIT_NS);
            prop_assert!(model.then(&model).at(t).error_ns >= 0.0 && model.inverse().at(t).error_ns >= 0.0);
        }
    }
}

const NONE: Bound =
    Bound { fixed_ns: 0.0, inner_ns: 0.0, tilt: 0.0, half_span_ns: 0.0, slope_error: 0.0, wander_per_ns: 0.0 };

#[test]
fn what_is_no_model_is_refused_by_name() {
    let refused = |anchor, offset, slope, bound| Model::new(anchor, offset, slope, bound).err();
    assert_eq!(refused(LIMIT_NS + 1, 0, 0.0, NONE), Some(ModelError::OutOfRange("anchor_ns")));
    assert_eq!(refused(0, i64::MIN, 0.0, NONE), Some(ModelError::OutOfRange("offset_ns")));
    assert_eq!(refused(0, 0, f64::NAN, NONE), Some(ModelError::OutOfRange("slope")));
    assert_eq!(refused(0, 0, 0.5, NONE), Some(ModelError::OutOfRange("slope")));
    for bad in [f64::NAN, -1.0, f64::INFINITY] {
        let bound = Bound { inner_ns: bad, ..NONE };
        assert_eq!(refused(0, 0, 0.0, bound), Some(ModelError::OutOfRange("bound")));
    }
    // Inside the span the error cannot grow faster than outside.
    assert!(refused(0, 0, 0.0, Bound { tilt: 1e-6, ..NONE }).is_some());
    assert!(Model::from_bytes(&[0xff; MODEL_BYTES]).is_err());
}

#[test]
fn the_identity_changes_nothing_and_costs_nothing() {
    let bound = Bound {
        fixed_ns: 10.0,
        inner_ns: 5.0,
        tilt: 0.0,
        half_span_ns: 100.0,
        slope_error: 1e-6,
        wander_per_ns: 1e-18,
    };
    let model = Model::new(1_000, 77, 3e-5, bound).unwrap();
    let reading = Model::IDENTITY.at(123);
    assert_eq!((reading.global_ns, reading.error_ns), (123, 0.0));
    assert_eq!(Model::IDENTITY.then(&model), model);
    for t in [-1_000_000_000, 0, 1_000, 5_000_000_000] {
        assert_eq!(model.then(&Model::IDENTITY).at(t), model.at(t));
    }
    // A clock that is the parent's, 50 ns behind.
    let shifted = Model::new(0, 50, 0.0, NONE).unwrap().then(&model);
    assert_eq!(shifted.at(950), model.at(1_000));
}

fn exact(anchor_ns: i64, offset_ns: i64, error_ns: f64) -> Model {
    Model::new(anchor_ns, offset_ns, 0.0, Bound { inner_ns: error_ns, slope_error: 1e-4, ..NONE }).unwrap()
}

#[test]
fn interpolation_is_the_seeds_formula() {
    let assumptions = Assumptions { wander_per_s: 0.0, ..Assumptions::default() };
    let mut line = Timeline::new(exact(1_000_000, 500, 10.0), &assumptions);
    line.push(exact(3_000_000, 900, 30.0)).unwrap();
    // theta_b + (theta_a - theta_b) (t - t_b) / (t_a - t_b)
    for (t, theta, error) in
        [(1_000_000, 500, 10.0), (1_500_000, 600, 15.0), (2_000_000, 700, 20.0), (2_999_999, 900, 30.0)]
    {
        let reading = line.at(t);
        assert_eq!(reading.global_ns - t, theta, "at {t}");
        assert!((reading.error_ns - (error + 0.5)).abs() < 1e-3, "at {t}: {}", reading.error_ns);
    }
    // Beyond the ends the line goes on, with the ends' errors in the same proportion: 1.5 * 30 +
    // 0.5 * 10 at 4_000_000.
    let beyond = line.at(4_000_000);
    assert_eq!((beyond.global_ns - 4_000_000, beyond.error_ns), (1_100, 50.5));
    assert_eq!(line.at(0).global_ns, 300);
}

#[test]
fn outside_the_tighter_of_line_and_model_is_used() {
    let assumptions = Assumptions { wander_per_s: 0.0, ..Assumptions::default() };
    let mut line = Timeline::new(exact(0, 0, 5_000.0), &assumptions);
    // The line through these is worth nothing, the second model's own slope 1e-4.
    line.push(exact(1_000, 100, 5_000.0)).unwrap();
    let reading = line.at(1_001_000);
    assert_eq!((reading.global_ns, reading.error_ns), (1_001_100, 5_000.0 + 100.0));
}

#[test]
fn an_unsteady_drift_bends_the_line_by_no_more_than_the_bound() {
    // o(t) = w/2 t^2 between exact ends at 0 and 10 s: the chord is w/8 T^2 off in the middle.
    let wander_per_s = 1e-8;
    let assumptions = Assumptions { wander_per_s, ..Assumptions::default() };
    let truth = |t: f64| 0.5 * wander_per_s * 1e-9 * t * t;
    let mut line = Timeline::new(exact(0, 0, 0.0), &assumptions);
    line.push(exact(10_000_000_000, truth(1e10).round() as i64, 0.0)).unwrap();
    for i in -10..=20 {
        let t = i64::from(i) * 1_000_000_000;
        let reading = line.at(t);
        let error = ((reading.global_ns - t) as f64 - truth(t as f64)).abs();
        assert!(error <= reading.error_ns + 1.0, "at {t}: {error} above {}", reading.error_ns);
        let span = line.duration(t, t + 1_000_000);
        let length = 1e6 + truth(t as f64 + 1e6) - truth(t as f64);
        assert!((span.duration_ns - length).abs() <= span.error_ns, "at {t}: {span:?} is {length}");
    }
    let middle = line.at(5_000_000_000);
    assert!((middle.error_ns - 125.5).abs() < 1e-6, "{middle:?}");
}

#[test]
fn lengths_across_a_synchronisation_count_both_ends() {
    let mut line = Timeline::new(exact(0, 0, 10.0), &Assumptions::default());
    line.push(exact(1_000_000, 100, 10.0)).unwrap();
    line.push(exact(2_000_000, 100, 10.0)).unwrap();
    let inside = line.duration(400_000, 500_000);
    assert!((inside.duration_ns - 100_010.0).abs() < 1e-6 && inside.error_ns < 3.0, "{inside:?}");
    let across = line.duration(900_000, 1_100_000);
    assert_eq!(across.duration_ns, 200_010.0);
    assert!(across.error_ns > 15.0, "{across:?}");
}

#[test]
fn synchronisations_must_follow_each_other() {
    let mut line = Timeline::new(exact(500, 0, 1.0), &Assumptions::default());
    let before = line.clone();
    assert_eq!(line.push(exact(500, 3, 1.0)), Err(TimelineError::NotLater { last_ns: 500, new_ns: 500 }));
    assert_eq!(line, before);
    line.push(exact(501, 3, 1.0)).unwrap();
    assert_eq!((line.synchronisations(), line.latest().anchor_ns()), (2, 501));
}

#[test]
fn the_root_is_never_wrong() {
    let mut root = Timeline::root();
    root.push(Model::IDENTITY).unwrap();
    for t in [-LIMIT_NS, -1, 0, 1, LIMIT_NS] {
        assert_eq!((root.at(t).global_ns, root.at(t).error_ns), (t, 0.0));
    }
    assert_eq!(root.duration(5, 25), Span { duration_ns: 20.0, error_ns: 0.0 });
}

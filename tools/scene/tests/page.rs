//! The page of any scene: well formed, no strangers' markup, nothing from the network.

mod common;

use proptest::prelude::*;
use weir_scene::{LineLoss, Point, Scene, page};

#[test]
fn a_page_holds_what_was_predicted_and_needs_no_network() {
    let html = page::html(&common::scene());
    for expected in [
        "jacobi on cluster",
        "Speed-up",
        "Where the time goes",
        "Distribution of run times",
        "jacobi.c:41",
        "MPI_Recv(&lt;row&gt;)",
        "id=\"spacetime\"",
    ] {
        assert!(html.contains(expected), "{expected}");
    }
    let without_namespace = html.replace("http://www.w3.org/2000/svg", "");
    assert!(
        !without_namespace.contains("http://") && !without_namespace.contains("https://") && !html.contains("src=")
    );
}

#[test]
fn words_of_a_program_are_no_markup() {
    let mut scene = common::scene();
    let evil = "</script><script>alert(1)</script>\"'&";
    scene.title = evil.into();
    scene.notices = vec![evil.into()];
    scene.points[0].lines = vec![LineLoss { place: evil.into(), text: evil.into(), causes: vec![(evil.into(), 1.0)] }];
    scene.points[0].causes[0].0 = evil.into();
    if let Some(timeline) = &mut scene.timeline {
        timeline.places = vec![evil.into()];
    }
    assert!(!page::html(&scene).contains("<script>alert"));
}

fn time() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.0), 1e-9..1e6f64, Just(f64::NAN), Just(f64::INFINITY), Just(-1.0)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// In tests a mark without a place is a panic.
    #[test]
    fn any_numbers_make_a_page(points in prop::collection::vec((1u32..5000, time(), time(), time(), prop::collection::vec(time(), 0..20)), 0..6)) {
        let points = points.into_iter().map(|(numprocs, median_s, low_s, high_s, times_s)| Point {
            numprocs, median_s, low_s, high_s, causes: vec![("computation".into(), median_s), ("latency".into(), low_s)], times_s, lines: vec![],
        }).collect();
        let html = page::html(&Scene { points, ..Scene::default() });
        prop_assert!(html.ends_with("</html>\n"));
    }
}

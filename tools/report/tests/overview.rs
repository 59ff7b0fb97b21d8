//! The head of a page: one line of warnings, the small pictures of all operations, the list of
//! contents; and what they lead to.

mod common;

use common::Shape;
use weir_distribution::{Cell, Configuration, Run, State, SummaryRecord, TestRecord, Warning};
use weir_report::compare::compare;
use weir_report::condense::digest;
use weir_report::digest::Digest;
use weir_report::table::Table;
use weir_report::{comparison_plots, load, page, run_plots, warnings};

/// A run of these operations, with pairs or without, each at two sizes with these medians.
fn run(operations: &[(&str, u32, [f64; 2])], warnings: Vec<Warning>) -> Digest {
    let mut run = Run::new("m");
    (run.warnings, run.state) = (warnings, State::Complete);
    for (operation, pairs, medians) in operations {
        for (size, p50_ns) in [8, 4096].into_iter().zip(medians) {
            let summary = SummaryRecord { count: 50, p50_ns: *p50_ns, ..SummaryRecord::default() };
            let configuration = Configuration { pairs: *pairs, ..Configuration::pair(*operation, size) };
            run.cells.push(Cell { summary: Some(summary), ..Cell::new(run.cells.len() as u32, 0, configuration) });
        }
    }
    digest(run, "run1", &|_| Err("there are no samples".into()))
}

fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let rest = text.split(from).nth(1).unwrap_or_else(|| panic!("{from} is not there"));
    rest.split(to).next().unwrap_or(rest)
}

/// Targets of links in a part of a page.
fn targets(part: &str) -> Vec<&str> {
    part.split("href=\"#").skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

const FIVE: [(&str, u32, [f64; 2]); 5] = [
    ("send", 1, [1000.0, 5000.0]),
    ("ping-pong", 1, [1000.0, 5000.0]),
    ("bcast", 0, [3000.0, 90_000.0]),
    ("barrier", 0, [3000.0, 3000.0]),
    ("fft", 0, [1e9, 2e9]),
];

#[test]
fn each_operation_has_a_picture_and_a_line_that_lead_to_it() {
    let digest = run(&FIVE, Vec::new());
    let page = page::of_run(&digest);
    let pictures = between(&page, "<section id=\"overview\">", "</section>");
    let contents = between(&page, "<nav class=\"contents\"", "</nav>");
    assert_eq!(pictures.matches("<a class=\"tile\"").count(), 5);
    for part in [pictures, contents] {
        let targets = targets(part);
        assert_eq!(targets.len(), 5);
        for target in targets {
            assert_eq!(page.matches(&format!("id=\"{target}\"")).count(), 1, "{target}");
            assert!(
                page.contains(&format!("<details class=\"operation\" data-operation id=\"{target}\">")),
                "{target}"
            );
        }
    }
    for title in ["Between pairs", "All processes together", "Applications"] {
        assert!(pictures.contains(title), "{title}");
    }
    let plain = contents.replace("<span class=\"one\">", "").replace("</span>", "");
    assert!(plain.contains("8 B 1 µs, 4 KiB 5 µs, at best 819 MB/s"), "{contents}");
    // An application has no bandwidth, and says so in nobody's numbers.
    assert!(plain.contains("8 B 1 s, 4 KiB 2 s</li>"), "{contents}");
    // Few operations are open at once; many are closed, so that the overview is not buried.
    let few = page::of_run(&run(&FIVE[..3], Vec::new()));
    assert_eq!(few.matches("data-operation id=").count(), few.matches("\" open><summary>").count());
    assert_eq!(page.matches("\" open><summary>").count(), 0);
}

#[test]
fn equal_times_are_equally_high_in_all_pictures_of_a_group() {
    let lines = |operations: &[(&str, u32, [f64; 2])]| {
        let page = page::of_run(&run(operations, Vec::new()));
        let pictures = between(&page, "<section id=\"overview\">", "</section>").to_owned();
        let lines = pictures.lines().filter(|l| l.starts_with("<path class=\"line c0\"")).map(str::to_owned);
        lines.collect::<Vec<_>>()
    };
    let told = lines(&[("send", 1, [1000.0, 5000.0]), ("ping-pong", 1, [1000.0, 5000.0]), ("bcast", 0, [2.0, 9.0])]);
    assert!(told.len() == 3 && told[0] == told[1], "{told:?}");
    let told = lines(&[("send", 1, [1000.0, 5000.0]), ("ping-pong", 1, [2000.0, 5000.0])]);
    assert_ne!(told[0], told[1]);
}

#[test]
fn warnings_are_one_line_in_plain_words_with_the_rest_behind_it() {
    let warning = |code: &str, message: &str| Warning {
        code: code.into(),
        message: message.into(),
        advice: Some("do something".into()),
    };
    let told = vec![
        warning("moved-ranks", "rank 3 moved in 2 batches"),
        warning("of-the-future", "something else"),
        warning("moved-ranks", "rank 5 moved in 1 batch"),
    ];
    let page = page::of_run(&run(&FIVE, told));
    let line = between(&page, "<details class=\"warnings\"><summary>", "</summary>");
    assert_eq!(line, "4 warnings: few samples in some cells; ranks changed their processor; of the future");
    let rest = between(&page, "<details class=\"warnings\">", "</details>");
    for words in [
        "rank 3 moved",
        "rank 5 moved",
        "something else",
        "To do: do something",
        "<strong>Few samples in some cells</strong>",
    ] {
        assert!(rest.contains(words), "{words}: {rest}");
    }
    assert_eq!(rest.matches("<li>").count(), 3, "one for each class");
    let many = ["moved-ranks", "overhead", "a", "b", "c"].map(|code| warning(code, "told")).to_vec();
    let line = page::of_run(&run(&FIVE, many));
    let line = between(&line, "<details class=\"warnings\"><summary>", "</summary>");
    assert!(line.starts_with("6 warnings: ") && line.ends_with("; a; and 2 more"), "{line}");
    assert!(!page.contains("<details class=\"warnings\" open"), "folded");
}

#[test]
fn every_warning_that_the_report_makes_has_plain_words() {
    let sources = [include_str!("../src/warnings.rs"), include_str!("../src/notes.rs"), include_str!("../src/lib.rs")];
    let code = |rest: &str| rest.trim_start().strip_prefix('"').and_then(|r| r.split('"').next()).map(str::to_owned);
    let mut codes: Vec<String> = sources
        .iter()
        .flat_map(|s| s.split("warning(").chain(s.split("code: ")).skip(1).filter_map(code))
        .filter(|c| c.contains('-') && c.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'))
        .collect();
    codes.sort();
    codes.dedup();
    assert!(codes.len() >= 14, "{codes:?}");
    for code in codes {
        let plain = warnings::plain(&code);
        assert_ne!(plain, code.replace('-', " "), "{code} has no words of its own");
    }
}

#[test]
fn a_comparison_has_pictures_of_both_and_says_what_was_found() {
    let dir = tempfile::tempdir().unwrap();
    let make = |name: &str, factor: f64, seed: u64| {
        let shape = Shape { launches: 5, launch_spread: 0.002, fits: false, factor, seed, ..Shape::small() };
        common::write(&dir.path().join(name), &shape).unwrap();
        load(&dir.path().join(name)).unwrap()
    };
    let (first, second) = (make("one", 1.0, 1), make("two", 1.5, 2));
    let comparison = compare(&first, &second);
    let page = page::of_two(&first, &second, &comparison);
    let pictures = between(&page, "<section id=\"overview\">", "</section>");
    assert_eq!(targets(pictures).len(), 2);
    assert!(pictures.contains("line dash c1"), "the second run's times");
    // Marks of the second run's times, and of the cells where it is slower.
    assert_eq!((pictures.matches("class=\"f1\"").count(), pictures.matches("class=\"f2\"").count()), (4, 0));
    let contents = between(&page, "<nav class=\"contents\"", "</nav>");
    assert!(contents.contains("slower in 8 of 8 cells"), "{contents}");
    let names: Vec<String> = comparison_plots(&first, &second, &comparison).into_iter().map(|p| p.name).collect();
    assert!(names.contains(&"both-overview".to_owned()), "{names:?}");
    let of_one = run_plots(&first);
    assert!(of_one.iter().any(|p| p.name == "overview") && of_one.iter().all(|p| !names.contains(&p.name)));
}

#[test]
fn a_fit_that_tests_reject_is_grey_and_hollow() {
    let dir = tempfile::tempdir().unwrap();
    common::write(dir.path(), &Shape { collectives: Vec::new(), repetitions: 200, ..Shape::small() }).unwrap();
    let sound = load(dir.path()).unwrap();
    let mut rejected = sound.clone();
    for point in rejected.profiles[0].points.values_mut() {
        for fit in &mut point.fits {
            let test = TestRecord { test: "ad".into(), statistic: 99.0, p_value: Some(1e-9), ..TestRecord::default() };
            fit.tests = vec![test];
        }
    }
    let plots = |digest: &Digest, title: &str| {
        let all: Vec<_> = run_plots(digest).into_iter().filter(|p| p.title.ends_with(title)).collect();
        assert!(!all.is_empty(), "{title}");
        all
    };
    for (digest, is_rejected) in [(&sound, false), (&rejected, true)] {
        for plot in plots(digest, ": fits") {
            assert_eq!(plot.body.contains("line thick dash d3 c6"), is_rejected, "{}", plot.body);
            assert_eq!(plot.body.contains("line thick c"), !is_rejected);
            assert_eq!(plot.body.contains(">rejected</text>"), is_rejected, "the legend says what grey is");
        }
        for plot in plots(digest, ": parameters of the fits") {
            assert_eq!(plot.note.contains("Hollow marks: tests reject the fit."), is_rejected, "{}", plot.note);
            assert_eq!(plot.body.contains("thin ground"), is_rejected);
        }
        let table = Table::of_fits(&digest.profiles[0]).expect("fits").html();
        assert_eq!(table.contains("class=\"left rejected\""), is_rejected);
    }
}

#[test]
fn a_time_near_nothing_does_not_stretch_the_axis_and_is_told() {
    let mut run = Run::new("m");
    for size in [8, 64] {
        let mut cell = Cell::new(0, 0, Configuration::pair("send", size));
        cell.samples = Some(weir_distribution::SamplesFile::default());
        run.cells.push(cell);
    }
    let samples = |k: u32| weir_distribution::Sample {
        repetition: k,
        duration_ns: if k == 7 { 1e-3 } else { 2000.0 + f64::from(k) },
        ..Default::default()
    };
    let digest = digest(run, "m", &move |_| Ok((0..400).map(samples).collect()));
    let plots = run_plots(&digest);
    let sizes = plots.iter().find(|p| p.name.contains("time-log")).expect("a plot");
    assert!(sizes.note.contains(" 2 samples lie below the plot, near nothing or less."), "{}", sizes.note);
    assert!(sizes.body.contains(">1 µs</text>") && !sizes.body.contains(">10 ns</text>"), "{}", sizes.body);
    let linear = plots.iter().find(|p| p.name.contains("time-linear")).expect("a plot");
    assert!(!linear.note.contains("below"), "{}", linear.note);
}

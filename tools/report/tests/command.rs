//! What `weir report` and `weir export` write, and where.

mod common;

use std::path::{Path, PathBuf};

use common::Shape;
use weir_report::cli::{EXIT_DAMAGED, ExportArgs, ExportFormat, Format, ReportArgs, export, report, report_to};

fn run(dir: &Path, name: &str) -> PathBuf {
    let run = dir.join(name);
    let shape = Shape { sizes: vec![8, 1024], pairs: vec![1], collectives: Vec::new(), fits: false, ..Shape::small() };
    common::write(&run, &shape).expect("written");
    run
}

fn args(runs: Vec<PathBuf>, format: Format, output: Option<PathBuf>) -> ReportArgs {
    ReportArgs { runs, format, output, anyway: false, json: false, quiet: true }
}

fn endings(dir: &Path) -> Vec<String> {
    let files = std::fs::read_dir(dir)
        .expect("a folder")
        .map(|f| f.expect("a file").file_name().to_string_lossy().into_owned());
    files.filter_map(|f| f.rsplit_once('.').map(|(_, ending)| ending.to_owned())).collect()
}

#[test]
fn a_page_lies_in_the_run_unless_another_place_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (run(dir.path(), "one"), run(dir.path(), "two"));
    report(&args(vec![first.clone()], Format::Html, None)).unwrap();
    assert!(std::fs::read_to_string(first.join("report.html")).unwrap().starts_with("<!DOCTYPE html>"));
    report(&args(vec![first.clone(), second.clone()], Format::Html, None)).unwrap();
    assert!(second.join("report-against-one.html").is_file());
    let elsewhere = dir.path().join("page.html");
    report(&args(vec![first.join("run.json")], Format::Html, Some(elsewhere.clone()))).unwrap();
    assert!(elsewhere.is_file() && !dir.path().join("page.html.part").exists());
}

#[test]
fn plots_become_files_of_the_format_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let run = run(dir.path(), "one");
    for (format, ending) in [(Format::Svg, "svg"), (Format::Png, "png")] {
        let out = dir.path().join(ending);
        report(&args(vec![run.clone()], format, Some(out.clone()))).unwrap();
        let found = endings(&out);
        assert!(found.len() >= 7 && found.iter().all(|e| e == ending), "{found:?}");
    }
}

/// Says of each cell of a run that so many bytes went by Weir.
fn carried(run: &Path, weir_bytes: u64) {
    edit(run, |value| {
        value["transport"]["provider"] = "weir".into();
        for cell in value["cells"].as_array_mut().unwrap() {
            cell["configuration"]["nodes"] = 1.into();
            cell["configuration"]["ranks_per_node"] = 8.into();
            cell["carried"] = serde_json::json!({"weir_ranks": 2, "weir_messages": weir_bytes, "weir_bytes": weir_bytes, "socket_bytes": 0});
        }
    });
}

#[test]
fn a_run_of_which_nothing_went_by_its_provider_is_named_so_and_not_compared() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (run(dir.path(), "one"), run(dir.path(), "two"));
    carried(&first, 1 << 40);
    carried(&second, 0);
    let text = |run: &Path| {
        let file = dir.path().join("x.txt");
        report(&args(vec![run.to_owned()], Format::Text, Some(file.clone()))).unwrap();
        std::fs::read_to_string(file).unwrap()
    };
    assert!(text(&first).contains("  transport   weir;") && !text(&first).contains("unused"), "{}", text(&first));
    assert!(text(&second).contains(" (FI_PROVIDER=weir set, unused); "), "{}", text(&second));
    assert!(text(&second).contains("warning: Transport: FI_PROVIDER=weir was set, and nothing went by it"));
    let two = args(vec![first.clone(), second.clone()], Format::Text, Some(dir.path().join("two.txt")));
    let refused = report(&two).unwrap_err().to_string();
    assert!(
        refused.starts_with("two: FI_PROVIDER=weir was set when it was measured, and nothing went by it"),
        "{refused}"
    );
    assert!(refused.contains("--anyway") && refused.lines().count() == 1, "{refused}");
    report(&ReportArgs { anyway: true, ..two }).unwrap();
    // Nobody counted: nothing is refused.
    let third = run(dir.path(), "three");
    report(&args(vec![first, third], Format::Text, Some(dir.path().join("two.txt")))).unwrap();
}

#[test]
fn only_tables_write_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let run = run(dir.path(), "one");
    let before = endings(&run);
    report(&args(vec![run.clone()], Format::Text, None)).unwrap();
    report(&ReportArgs { json: true, quiet: false, ..args(vec![run.clone()], Format::Html, None) }).unwrap();
    assert_eq!(endings(&run), before);
}

#[test]
fn tables_go_into_the_file_that_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (run(dir.path(), "one"), run(dir.path(), "two"));
    let file = dir.path().join("x.txt");
    report(&args(vec![first.clone()], Format::Text, Some(file.clone()))).unwrap();
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.contains("send, 1 pair") && text.contains("  clock "), "{text}");
    // A folder is a place for it as well, and for the page of a comparison beside that of a run.
    for format in [Format::Text, Format::Html] {
        report(&args(vec![first.clone()], format, Some(dir.path().into()))).unwrap();
        report(&args(vec![first.clone(), second.clone()], format, Some(dir.path().into()))).unwrap();
    }
    let mut names: Vec<String> =
        std::fs::read_dir(dir.path()).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name.starts_with("report"));
    names.sort();
    assert_eq!(names, ["report-against-one.html", "report-against-one.txt", "report.html", "report.txt"]);
}

#[test]
fn plots_of_one_comparison_take_no_other_ones_place() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two, three) = (run(dir.path(), "one"), run(dir.path(), "two"), run(dir.path(), "three"));
    for first in [&one, &two] {
        report(&args(vec![first.clone(), three.clone()], Format::Svg, None)).unwrap();
    }
    report(&args(vec![three.clone()], Format::Svg, None)).unwrap();
    let names = |folder: &str| -> Vec<String> {
        let files = std::fs::read_dir(three.join(folder)).expect("a folder");
        files.map(|f| f.unwrap().file_name().into_string().unwrap()).collect()
    };
    let (own, against) = (names("plots"), names("plots-against-one"));
    assert!(against.contains(&"send-ratio.svg".to_owned()), "{against:?}");
    assert_eq!(names("plots-against-two").len(), against.len());
    // In one folder (-o) they lie side by side, named in one way.
    assert!(own.iter().all(|name| !against.contains(name)), "{own:?} {against:?}");
    assert!(own.contains(&"send-time-log-1-pair-4-1.svg".to_owned()), "{own:?}");
    assert!(against.contains(&"send-both-time-log-1-pair-4-1.svg".to_owned()), "{against:?}");
}

#[test]
fn a_report_goes_where_its_name_leads() {
    let dir = tempfile::tempdir().unwrap();
    let run = run(dir.path(), "one");
    let to = |format, output: &Path| report(&args(vec![run.clone()], format, Some(output.to_owned())));
    to(Format::Html, Path::new("/dev/null")).unwrap();
    assert!(!std::fs::metadata("/dev/null").unwrap().is_file(), "the device is there still");
    let (link, page) = (dir.path().join("link"), dir.path().join("page"));
    std::os::unix::fs::symlink(&page, &link).unwrap();
    to(Format::Html, &link).unwrap();
    assert!(link.is_symlink() && std::fs::read_to_string(page).unwrap().starts_with("<!DOCTYPE html>"));
    let several = to(Format::Svg, Path::new("-")).unwrap_err().to_string();
    assert_eq!(several, "plots are several files: name a folder with -o");
    let two = ReportArgs { json: true, ..args(vec![run.clone()], Format::Html, Some("-".into())) };
    assert!(report(&two).unwrap_err().to_string().contains("leave out -o"));
}

#[test]
fn a_full_disk_is_told_in_the_same_words_by_all_commands() {
    let full = || std::io::Error::from(std::io::ErrorKind::StorageFull);
    let report = weir_report::Error::Write { path: "a/report.html".into(), source: full() }.to_string();
    assert_eq!(report, "cannot write a/report.html: no space left on the device; choose another place with -o");
    let export = weir_distribution::Error::Io { path: "a.csv".into(), doing: "write", source: full() }.to_string();
    assert_eq!(export, "a.csv: cannot write: no space left on the device");
}

#[test]
fn the_file_asked_for_is_written_though_standard_output_is_full_and_tables_are_printed_though_the_file_cannot_be() {
    let dir = tempfile::tempdir().unwrap();
    let run = run(dir.path(), "one");
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    for (json, name) in [(false, "page.html"), (true, "page2.html")] {
        let file = dir.path().join(name);
        let args = ReportArgs { json, quiet: false, ..args(vec![run.clone()], Format::Html, Some(file.clone())) };
        let error = report_to(&mut full(), &args).unwrap_err().to_string();
        assert!(error.starts_with("cannot write standard output: "), "{error}");
        assert!(std::fs::read_to_string(file).unwrap().starts_with("<!DOCTYPE html>"));
    }
    let blocked = run.join("run.json").join("page.html");
    let args = ReportArgs { quiet: false, ..args(vec![run], Format::Html, Some(blocked)) };
    let mut out = Vec::new();
    let error = report_to(&mut out, &args).unwrap_err().to_string();
    assert!(error.contains("page.html") && String::from_utf8_lossy(&out).contains("send, 1 pair"), "{error}");
}

#[test]
fn a_run_is_not_overwritten_by_its_report() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (run(dir.path(), "one"), run(dir.path(), "two"));
    let samples = std::fs::read_dir(first.join("samples")).unwrap().next().unwrap().unwrap().path();
    for file in [first.join("run.json"), samples] {
        let before = std::fs::read(&file).unwrap();
        for runs in [vec![first.clone()], vec![second.clone(), first.clone()], vec![first.join("run.json")]] {
            let error = report(&args(runs, Format::Html, Some(file.clone()))).unwrap_err().to_string();
            assert!(error.ends_with(": not overwritten: it is read"), "{error}");
        }
        assert_eq!(std::fs::read(&file).unwrap(), before);
    }
    // A report of before may be.
    for _ in 0..2 {
        report(&args(vec![first.clone()], Format::Html, Some(first.join("report.html")))).unwrap();
    }
}

#[test]
fn what_cannot_be_done_is_said_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let run = run(dir.path(), "one");
    // A file where a folder is needed refuses root as well.
    let blocked = run.join("run.json").join("page.html");
    let cases = [
        args(vec![run.clone()], Format::Html, Some(blocked.clone())),
        args(vec![run.clone()], Format::Svg, Some(blocked)),
        args(vec![dir.path().join("none")], Format::Html, None),
        args(vec![run, dir.path().join("none")], Format::Html, None),
    ];
    for case in cases {
        let error = report(&case).unwrap_err().to_string();
        assert!(!error.contains('\n') && error.contains(dir.path().to_str().unwrap()), "{error}");
    }
}

#[test]
fn runs_without_a_cell_in_common_leave_no_folder_of_plots() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (run(dir.path(), "one"), dir.path().join("two"));
    let other = Shape { sizes: vec![16], pairs: vec![1], collectives: Vec::new(), fits: false, ..Shape::small() };
    common::write(&second, &other).unwrap();
    let named = dir.path().join("figures");
    for (format, output) in [(Format::Png, None), (Format::Svg, None), (Format::Png, Some(named.clone()))] {
        let error = report(&args(vec![first.clone(), second.clone()], format, output)).unwrap_err().to_string();
        assert_eq!(error, "one and two have no cell in common that can be drawn; no plots are written");
    }
    assert!(!second.join("plots-against-one").exists() && !named.exists());
}

#[test]
fn a_run_without_cells_leaves_no_folder_of_plots() {
    let dir = tempfile::tempdir().unwrap();
    let run = run(dir.path(), "one");
    edit(&run, |value| value["cells"] = serde_json::json!([]));
    let error = report(&args(vec![run.clone()], Format::Png, None)).unwrap_err().to_string();
    assert_eq!(error, "one holds no cell that can be drawn; no plots are written");
    assert!(!run.join("plots").exists());
}

#[test]
fn a_run_is_exported_in_each_format() {
    let dir = tempfile::tempdir().unwrap();
    let run = run(dir.path(), "one");
    for (format, least) in [(ExportFormat::Csv, 2), (ExportFormat::CsvPerCell, 3), (ExportFormat::Classic, 5)] {
        let out = dir.path().join(format!("{format:?}"));
        export(&ExportArgs {
            run: run.clone(),
            format,
            output: Some(out.clone()),
            cells_only: false,
            gzip: false,
            json: false,
            quiet: true,
        })
        .unwrap();
        assert!(std::fs::read_dir(&out).unwrap().count() >= least, "{format:?}");
    }
}

/// Changes a run's file of metadata.
fn edit(run: &Path, change: impl FnOnce(&mut serde_json::Value)) {
    let file = run.join("run.json");
    let mut value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    change(&mut value);
    std::fs::write(&file, value.to_string()).unwrap();
}

#[test]
fn damage_is_named_and_scripts_see_it() {
    let dir = tempfile::tempdir().unwrap();
    let run = run(dir.path(), "one");
    let text = || args(vec![run.clone()], Format::Text, None);
    let out = |name: &str| ExportArgs {
        run: run.clone(),
        format: ExportFormat::Csv,
        output: Some(dir.path().join(name)),
        cells_only: false,
        gzip: false,
        json: false,
        quiet: true,
    };
    let mut recorder = weir_stats::Recorder::new(weir_stats::RecorderConfig::default()).unwrap();
    (0..50).for_each(|i| drop(recorder.record(f64::from(i) * 100.0)));
    let whole = recorder.to_base64();
    let histogram = |text: &str, count: u64| serde_json::json!({"hdr": {"count": count, "unit_ns": 1.0, "significant_digits": 3, "v2_deflate_base64": text}});
    edit(&run, |r| r["cells"][1]["histogram"] = histogram(&whole, 50));
    assert_eq!((report(&text()).unwrap(), export(&out("whole")).unwrap()), (0, 0));
    for damaged in [histogram(&format!("XXXX{}", &whole[4..]), 50), histogram(&whole, 51)] {
        edit(&run, |r| r["cells"][1]["histogram"] = damaged);
        let told = report(&text()).unwrap();
        assert_eq!(told, EXIT_DAMAGED, "{:?}", weir_report::load(&run).unwrap().warnings);
        let warnings = weir_report::load(&run).unwrap().warnings;
        let field = "cells[1].histogram.hdr.v2_deflate_base64";
        assert!(
            warnings.iter().any(|w| w.message.contains(field) && w.message.contains("send at 1 KiB")),
            "{warnings:?}"
        );
        let error = export(&out("damaged")).unwrap_err().to_string();
        assert!(error.contains(field) && !error.contains('\n') && !dir.path().join("damaged").exists(), "{error}");
    }
    edit(&run, |r| drop(r["cells"][1].as_object_mut().unwrap().remove("histogram")));
    let samples = std::fs::read_dir(run.join("samples")).unwrap().map(|f| f.unwrap().path()).min().unwrap();
    std::fs::remove_file(samples).unwrap();
    assert_eq!(report(&text()).unwrap(), EXIT_DAMAGED);
    assert_eq!(report(&args(vec![run.clone(), run.clone()], Format::Text, None)).unwrap(), EXIT_DAMAGED);
    assert!(export(&out("missing")).is_err());
}

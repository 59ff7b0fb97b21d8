//! The command, as people type it.

use std::path::Path;
use std::process::{Command, Output};

fn weir_sim(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir-sim")).args(words).output().expect("weir-sim starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_row_of_a_table_is_printed_as_a_scenario_that_runs() {
    let row = weir_sim(&["table", "links", "--scenario", "cut at 30 ms ping-pong 30000"]);
    assert!(row.status.success(), "{}", text(&row.stderr));
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("row.json");
    std::fs::write(&file, &row.stdout).expect("the scenario is written");
    let ran = weir_sim(&["run", "--scenario", file.to_str().expect("a name in UTF-8"), "--trace"]);
    let told = text(&ran.stdout);
    assert!(ran.status.success() && told.contains("hash ") && told.contains("messages"), "{told}");
    assert!(text(&row.stdout).contains("\"Cut\""), "the cut of the row is in it");
}

#[test]
fn a_row_that_is_not_there_is_refused_with_some_that_are() {
    let none = weir_sim(&["table", "incast", "--scenario", "nobody"]);
    let told = text(&none.stderr);
    assert_eq!((none.status.code(), none.stdout.len()), (Some(2), 0));
    assert!(told.contains("no row of the table incast is named \"nobody\"; there are \""), "{told}");
}

//! What is wrong is told, each with its place and what to do: a corpus of malformed models.
//!
//! `tests/malformed/cases.txt` holds them, each behind a line `=== name`. `INSTA_UPDATE=always`
//! renews what is expected.

mod common;

use std::fmt::Write as _;

use common::{lines, read};
use weir_annotations::Setting;

#[test]
fn each_malformed_model_is_told_as_it_was() {
    let mut told = String::new();
    for case in include_str!("malformed/cases.txt").split("=== ").skip(1) {
        let (name, text) = case.split_once('\n').unwrap();
        let found = match read(text) {
            Err(found) => found,
            Ok(parsed) => {
                let setting = Setting { numprocs: 3, ..Setting::default() };
                let mut found = parsed.warnings.clone();
                match parsed.program.model(&setting) {
                    Ok(prepared) => found.extend(prepared.warnings),
                    Err(more) => found.extend(more),
                }
                found
            }
        };
        assert!(!found.is_empty(), "{name}: nothing is told");
        let _ = writeln!(told, "=== {name}\n{}", lines(&found));
    }
    insta::assert_snapshot!(told);
}

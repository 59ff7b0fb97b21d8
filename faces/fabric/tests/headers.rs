//! The record of libfabric's layouts (`src/abi/recorded.txt`), with which a unit test compares the
//! hand-written types, against the headers installed: they may be newer than it.
//!
//! Without headers this is reported as ignored, which the suite counts as skipped: hence a harness
//! of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const NAME: &str = "the_record_is_what_the_headers_installed_say";
const RECORDED: &str = include_str!("../src/abi/recorded.txt");

/// The directory that holds `rdma/fabric.h`: the one named by `LIBFABRIC_INCLUDE`, or a usual one.
fn headers() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("LIBFABRIC_INCLUDE") {
        // Whoever names a directory wants it looked at: the compiler complains if there is nothing
        // in it.
        return Some(named.into());
    }
    ["/usr/include", "/usr/local/include"].map(PathBuf::from).into_iter().find(|d| d.join("rdma/fabric.h").exists())
}

/// What the C compiler says of the headers in `dir`, line by line.
fn measured(dir: &Path) -> Result<Vec<String>, String> {
    let exe = std::env::temp_dir().join(format!("weir-abi-{}", std::process::id()));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/abi/measure.c");
    let mut cc = Command::new("cc");
    let built = cc.arg("-w").arg("-I").arg(dir).arg(source).arg("-o").arg(&exe).output();
    let built = built.map_err(|e| format!("cc: {e}"))?;
    if !built.status.success() {
        return Err(String::from_utf8_lossy(&built.stderr).into_owned());
    }
    let out = Command::new(&exe).output().map_err(|e| format!("{}: {e}", exe.display()));
    let _ = std::fs::remove_file(&exe);
    Ok(sorted(&String::from_utf8_lossy(&out?.stdout)))
}

fn sorted(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// The lines that differ.
fn check(dir: &Path) -> Result<(), String> {
    let (installed, recorded) = (measured(dir)?, sorted(RECORDED));
    let only = |these: &[String], those: &[String], of: &str| -> String {
        these.iter().filter(|l| !those.contains(l)).map(|l| format!("only {of}: {l}\n")).collect()
    };
    let differences = only(&installed, &recorded, "installed") + &only(&recorded, &installed, "recorded");
    if differences.is_empty() { Ok(()) } else { Err(differences) }
}

fn main() -> ExitCode {
    println!("\nrunning 1 test");
    let outcome = headers().map(|dir| check(&dir));
    let (word, said, counts) = match &outcome {
        None => ("ok", "ignored, no rdma/fabric.h in the usual places; LIBFABRIC_INCLUDE names another", (0, 0, 1)),
        Some(Ok(())) => ("ok", "ok", (1, 0, 0)),
        Some(Err(_)) => ("FAILED", "FAILED", (0, 1, 0)),
    };
    println!("test {NAME} ... {said}");
    let (passed, failed, ignored) = counts;
    if let Some(Err(why)) = &outcome {
        println!("\nfailures:\n\n---- {NAME} ----\n{why}\nfailures:\n    {NAME}");
    }
    println!(
        "\ntest result: {word}. {passed} passed; {failed} failed; {ignored} ignored; 0 measured; 0 filtered out; finished in 0.00s\n"
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

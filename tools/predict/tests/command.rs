//! The command from end to end: closed forms come out to the last digit, and what is wrong has its exit code and its line.

use std::fs;
use std::path::Path;

use clap::Parser;
use serde_json::Value;
use tempfile::TempDir;
use weir_predict_tool::args::PredictArgs;
use weir_predict_tool::{EXIT_DEADLOCK, EXIT_ENDLESS, EXIT_MODEL, Streams, run_to};

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: PredictArgs,
}

/// 50 us and 100 MB/s.
const SIMPLE: &str = "[network]\nlatency_us = 50\nbandwidth_MB_per_s = 100\n";

/// What a message of so many bytes takes on it, in seconds.
fn message(bytes: u32) -> f64 {
    50e-6 + f64::from(bytes) / 100e6
}

struct Ran {
    code: u8,
    out: String,
    err: String,
}

/// Runs the command in a folder that holds the simple machine and a program.
fn run(program: &str, words: &[&str]) -> (Ran, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("simple.toml"), SIMPLE).unwrap();
    fs::write(folder.path().join("program.c"), program).unwrap();
    let ran = run_in(folder.path(), words);
    (ran, folder)
}

fn run_in(folder: &Path, words: &[&str]) -> Ran {
    let inside = |name: &str| folder.join(name).display().to_string();
    let mut line = vec!["predict".to_owned(), inside("program.c")];
    if !words.contains(&"--machine") {
        line.extend(["--machine".to_owned(), inside("simple.toml")]);
    }
    line.extend(words.iter().map(|word| word.replace("FOLDER", &folder.display().to_string())));
    let args = Cli::try_parse_from(line).unwrap().args;
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = run_to(&args, &mut Streams { out: &mut out, err: &mut err, coloured: false });
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code, out: text(out), err: text(err) }
}

/// The predictions, each checked: nothing varies, and the losses sum to the time of all processes.
fn predictions(program: &str, words: &[&str]) -> Vec<(u32, f64)> {
    let (ran, _folder) = run(program, &[words, &["--json"]].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    let json: Value = serde_json::from_str(&ran.out).unwrap();
    let one = |p: &Value| {
        let number = |name: &str| p[name].as_f64().unwrap();
        let (numprocs, median) = (u32::try_from(p["numprocs"].as_u64().unwrap()).unwrap(), number("median_s"));
        assert_eq!((number("low_s"), number("high_s")), (median, median));
        let lost: f64 = p["loss"].as_object().unwrap().values().map(|v| v.as_f64().unwrap()).sum();
        close(lost, median * f64::from(numprocs));
        (numprocs, median)
    };
    json["predictions"].as_array().unwrap().iter().map(one).collect()
}

fn close(is: f64, should: f64) {
    assert!((is - should).abs() <= should.abs() * 1e-12, "{is} where {should} should be");
}

#[test]
fn a_ping_pong_takes_two_messages_a_round() {
    let program = "
Loop iterations = rounds {
  Runon c1 = procnum == 0 {
    Message type = MPI_Send size = n to = 1
    Message type = MPI_Recv from = 1
  }
  & c2 = else {
    Message type = MPI_Recv from = 0
    Message type = MPI_Send size = n to = 0
  }
}";
    for (rounds, bytes) in [(1, 0), (10, 1024), (1000, 1_000_000)] {
        let given = format!("rounds={rounds},n={bytes}");
        let all = predictions(program, &["-n", "2", "-p", &given]);
        close(all[0].1, f64::from(rounds) * 2.0 * message(bytes));
    }
}

#[test]
fn a_ring_takes_a_message_for_each_process_and_round() {
    let program = "
Loop iterations = 7 {
  Runon c1 = procnum == 0 {
    Message type = MPI_Send size = 4 KiB to = 1 % numprocs
    Message type = MPI_Recv from = numprocs - 1
  }
  & c2 = else {
    Message type = MPI_Recv from = procnum - 1
    Message type = MPI_Send size = 4 KiB to = (procnum + 1) % numprocs
  }
}";
    for (numprocs, median) in predictions(program, &["-n", "2,4,8..64"]) {
        close(median, 7.0 * f64::from(numprocs) * message(4096));
    }
}

#[test]
fn the_jacobi_of_the_thesis_takes_two_messages_and_its_computation_an_iteration() {
    let program = include_str!("../../../core/annotations/tests/models/jacobi.c");
    let program = program.replace("Loop iterations = 100000", "Loop iterations = iterations");
    let all = predictions(&program, &["-n", "2,4,8..64", "-p", "iterations=200", "--processor", "perseus"]);
    assert_eq!(all.iter().map(|p| p.0).collect::<Vec<_>>(), [2, 4, 8, 16, 32, 64]);
    for (numprocs, median) in all {
        close(median, 200.0 * (2.0 * message(1024) + 3.24e-3 / f64::from(numprocs)));
    }
}

#[test]
fn a_binomial_broadcast_takes_a_message_for_each_doubling_by_hand_or_as_a_collective() {
    let by_hand = "
Set mask = 1
Loop while = mask < numprocs {
  Runon c1 = procnum < mask && procnum + mask < numprocs {
    Message type = MPI_Send size = 1000 to = procnum + mask
  }
  & c2 = procnum >= mask && procnum < 2*mask {
    Message type = MPI_Recv from = procnum - mask
  }
  Set mask = mask * 2
}";
    let collective = "Message type = MPI_Bcast size = 1000 from = 0 to = 0..numprocs-1";
    for program in [by_hand, collective] {
        for (numprocs, median) in predictions(program, &["-n", "1,2,4,8..128"]) {
            close(median, f64::from(numprocs).log2() * message(1000));
        }
    }
}

#[test]
fn a_deadlock_has_its_own_exit_code_its_cycle_and_its_lines() {
    let program = "// PEVPM Message type = MPI_Recv from = (procnum+1)%numprocs
// PEVPM Message type = MPI_Send size = 8 to = (procnum+numprocs-1)%numprocs\n";
    let (ran, _folder) = run(program, &["-n", "3"]);
    assert_eq!(ran.code, EXIT_DEADLOCK, "{}", ran.err);
    for part in
        ["deadlock: 3 processes wait", "program.c:1:", "process 0 waits for a message from process 1", "each waits"]
    {
        assert!(ran.err.contains(part), "{part}: {}", ran.err);
    }
    assert_eq!(ran.out, "");
}

#[test]
fn a_program_without_an_end_is_given_up() {
    let endless = "Set x = 1\nLoop while = x {\nSerial time = 1 us\n}\n";
    let (ran, _folder) = run(endless, &["-n", "2", "--budget", "10000"]);
    assert_eq!(ran.code, EXIT_ENDLESS, "{}", ran.err);
    assert!(ran.err.contains("no end after") && ran.err.contains("--budget"), "{}", ran.err);
}

#[test]
fn what_is_missing_is_told_all_at_once_with_its_lines() {
    let program = "Serial time = alpha\nMessage type = MPI_Barrier\nSerial time = beta + alpha\n";
    let (ran, _folder) = run(program, &["-n", "2"]);
    assert_eq!(ran.code, EXIT_MODEL);
    for part in ["`alpha` has no value (lines 1, 3)", "`beta` has no value", "-p beta=VALUE", "2 errors"] {
        assert!(ran.err.contains(part), "{part}: {}", ran.err);
    }
}

#[test]
fn errors_of_a_run_have_their_line() {
    let truncated = "Runon c1 = procnum == 0 {\nMessage type = MPI_Send size = 9 to = 1\n}
& c2 = else {\nMessage type = MPI_Recv size = 8 from = 0\n}\n";
    for (program, part) in [
        ("Serial time = 1/(procnum-1)\n", "division by zero"),
        ("Message type = MPI_Send size = 8 to = numprocs\n", "2"),
        ("Message type = MPI_Send size = 8 from = 0 to = 1\n", "put it into a Runon"),
        (truncated, "9"),
    ] {
        let (ran, _folder) = run(program, &["-n", "2"]);
        assert_eq!(ran.code, EXIT_MODEL, "{program}: {}{}", ran.out, ran.err);
        assert!(ran.err.contains(part) && ran.err.contains("program.c:"), "{part}: {}", ran.err);
    }
}

#[test]
fn the_command_line_is_checked() {
    let barrier = "Message type = MPI_Barrier\n";
    assert_eq!(run(barrier, &[]).0.code, 2);
    assert_eq!(run(barrier, &["-n", "2", "-p", "n=1,n=2"]).0.code, 2);
    assert_eq!(run(barrier, &["-n", "2", "-p", "n=1"]).0.code, EXIT_MODEL);
    assert_eq!(run(barrier, &["-n", "2", "--eager", "5"]).0.code, 2);
    assert_eq!(run(barrier, &["-n", "2", "--machine", "FOLDER/none.toml"]).0.code, 1);
    let (ran, _folder) = run(barrier, &["-n", "2", "--machine", "FOLDER"]);
    assert_eq!((ran.code, ran.err.contains("run.json")), (1, true), "{}", ran.err);
    assert!(Cli::try_parse_from(["predict", "f", "--machine", "m", "-n", "8..4"]).is_err());
    assert!(Cli::try_parse_from(["predict", "f", "--machine", "m", "--what-if", "cpu=0"]).is_err());
}

#[test]
fn the_table_has_shares_speed_up_and_the_costliest_lines() {
    let program = "Serial time = 8/numprocs\nMessage type = MPI_Barrier\n";
    let (ran, _folder) = run(program, &["-n", "1,2,4", "--what-if", "infinite-bandwidth", "--what-if", "cpu=2"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    for part in ["speed-up", "computation", "cpu=2", "Most is lost here, with 4 processes", "program.c:2"] {
        assert!(ran.out.contains(part), "{part}: {}", ran.out);
    }
    // 4 ms, then a barrier of one round; twice the CPU halves only the first.
    let row = ran.out.lines().find(|line| line.trim_start().starts_with("2 ")).unwrap();
    let row: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(row[..3], ["2", "4.05000", "ms"], "{}", ran.out);
    assert_eq!(row[row.len() - 2..], ["2.05000", "ms"], "{}", ran.out);
}

#[test]
fn chance_repeats_with_its_seed_and_the_band_holds_the_median() {
    let program = "Serial time = exponential(1)
Condition c1 = 1 & c2 = 3 {\nSerial time = 1\n}\n{\nSerial time = 2\n}\n";
    let get = |words: &[&str]| run(program, &[&["-n", "2", "--json", "--runs", "50"], words].concat()).0.out;
    assert_eq!(get(&[]), get(&["--seed", "1"]));
    assert_ne!(get(&[]), get(&["--seed", "2"]));
    let json: Value = serde_json::from_str(&get(&[])).unwrap();
    let number = |name: &str| json["predictions"][0][name].as_f64().unwrap();
    assert!(number("low_s") < number("median_s") && number("median_s") < number("high_s"));
    assert!(number("low_s") >= 1e-3);
}

#[test]
fn a_machine_is_read_from_what_was_measured() {
    let json = r#"{"format": "weir-distribution", "version": "1.0", "machine": "made-up", "tool": {"name": "by hand"},
        "transport": {"backend": "hypothetical"}, "cells": [
        {"id": 0, "configuration": {"operation": "send", "size_bytes": 0, "nodes": 2, "ranks_per_node": 1, "ranks": 2, "pairs": 1},
         "histogram": {"bins": {"bins": [{"low_ns": 1000, "high_ns": 1001, "count": 5}]}}},
        {"id": 1, "configuration": {"operation": "send", "size_bytes": 8192, "nodes": 2, "ranks_per_node": 1, "ranks": 2, "pairs": 1},
         "fits": [{"family": "exponential", "location_ns": 5000, "parameters": {"scale_ns": 0.001}, "chosen": true}]}]}"#;
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("run.json"), json).unwrap();
    let program = "Runon c1 = procnum == 0 {\nMessage type = MPI_Send size = 4096 to = 1\n}
& c2 = else {\nMessage type = MPI_Recv from = 0\n}\n";
    fs::write(folder.path().join("program.c"), program).unwrap();
    let ran = run_in(folder.path(), &["-n", "2", "--json", "--machine", "FOLDER"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let json: Value = serde_json::from_str(&ran.out).unwrap();
    // Half way between the two sizes that were measured.
    let median = json["predictions"][0]["median_s"].as_f64().unwrap();
    assert!((median - 3e-6).abs() < 1e-9, "{median}");
    // What was assumed is said.
    assert!(ran.err.contains("eager"), "{}", ran.err);
}

#[test]
fn streams_are_read_beside_their_source() {
    let program = "Stream job = \"jobs.csv\"\nTake job\nLoop while = job.valid {\nSerial time = job.ms\nTake job\n}\n";
    let (ran, folder) = run(program, &["-n", "1"]);
    assert_eq!((ran.code, ran.err.contains("no such file")), (EXIT_MODEL, true), "{}", ran.err);
    fs::write(folder.path().join("jobs.csv"), "id, ms\n1, 2.5\n2, 1\n").unwrap();
    let ran = run_in(folder.path(), &["-n", "1", "--json"]);
    let json: Value = serde_json::from_str(&ran.out).unwrap();
    close(json["predictions"][0]["median_s"].as_f64().unwrap(), 3.5e-3);
    fs::write(folder.path().join("jobs.csv"), "id, ms\n1, x\n").unwrap();
    let ran = run_in(folder.path(), &["-n", "1"]);
    assert!(ran.err.contains("line 2: ms: `x` is no number"), "{}", ran.err);
}

#[test]
fn page_and_trace_are_written() {
    let program = "Serial time = 1\nMessage type = MPI_Barrier\n";
    let words = ["-n", "2,4", "--html", "FOLDER/page.html", "--trace", "FOLDER/trace.json"];
    let (ran, folder) = run(program, &words);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let page = fs::read_to_string(folder.path().join("page.html")).unwrap();
    assert!(page.contains("program.c") && page.contains("computation"));
    let trace: Value = serde_json::from_slice(&fs::read(folder.path().join("trace.json")).unwrap()).unwrap();
    let computed = trace["traceEvents"].as_array().unwrap().iter().filter(|e| e["name"] == "compute");
    assert_eq!(computed.count(), 4);
    assert_eq!(run(program, &["-n", "2", "--html", "FOLDER/none/page.html"]).0.code, 1);
}

#[test]
fn communicators_have_numbers_or_names() {
    let with = |comm: &str| {
        let send = format!("// PEVPM Message type = MPI_Send size = 100 from = 0 to = 1 comm = {comm}");
        let recv = send.replace("MPI_Send", "MPI_Recv");
        format!(
            "// PEVPM Runon c1 = procnum == 0\n// PEVPM {{\n{send}\n// PEVPM }}\n// PEVPM Runon c1 = procnum == 1\n// PEVPM {{\n{recv}\n// PEVPM }}\n// PEVPM Message type = MPI_Barrier comm = {comm}\n"
        )
    };
    let by_number = predictions(&with("1"), &["-n", "2"]);
    assert_eq!(predictions(&with("half"), &["-n", "2"]), by_number);
}

#[test]
fn what_is_read_is_not_overwritten() {
    for output in ["--html", "--trace"] {
        for input in ["program.c", "simple.toml"] {
            let (ran, folder) = run("// PEVPM Serial time = 1\n", &["-n", "1", output, &format!("FOLDER/{input}")]);
            assert_eq!(ran.code, 2, "{}", ran.err);
            assert!(ran.err.contains(input) && ran.err.contains("not overwritten: it is read"), "{}", ran.err);
            assert_eq!(fs::read_to_string(folder.path().join("simple.toml")).unwrap(), SIMPLE);
        }
    }
    let both = ["-n", "1", "--html", "FOLDER/one", "--trace", "FOLDER/one"];
    let (ran, folder) = run("// PEVPM Serial time = 1\n", &both);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(!folder.path().join("one").exists());
    let (ran, _folder) = run("// PEVPM Serial time = 1\n", &["-n", "1", "--html", "/dev/null", "--trace", "/dev/null"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
}

#[test]
fn what_has_no_end_is_read_so_far_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::write(path("simple.toml"), SIMPLE).unwrap();
    fs::write(path("program.c"), "// PEVPM Serial time = 1\n").unwrap();
    fs::write(path("stream.c"), "// PEVPM Stream s = \"/dev/zero\"\n// PEVPM Take s\n").unwrap();
    let cases = [
        ("/dev/zero", "simple.toml", "16 MiB"),
        ("program.c", "/dev/zero", "1 MiB"),
        ("stream.c", "simple.toml", "256 MiB"),
    ];
    for (program, machine, told) in cases {
        let at = |name: &str| if name.starts_with('/') { name.to_owned() } else { path(name) };
        let args = Cli::try_parse_from(["predict", &at(program), "--machine", &at(machine), "-n", "1"]).unwrap().args;
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let code = run_to(&args, &mut Streams { out: &mut out, err: &mut err, coloured: false });
        let err = String::from_utf8_lossy(&err);
        assert!(code != 0 && err.contains(told), "{program} {machine}: {code} {err}");
    }
}

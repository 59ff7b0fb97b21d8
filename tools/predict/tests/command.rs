//! The command from end to end: closed forms come out to the last digit, and what is wrong has its
//! exit code and its line.

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
    // So few steps of each say nothing of a loop.
    let (ran, _folder) = run(endless, &["-n", "200", "--budget", "10000"]);
    assert!(ran.err.contains("steps, some 50 of each process") && !ran.err.contains("never left"), "{}", ran.err);
}

#[test]
fn the_usual_budget_ends_what_has_no_end_soon_and_leaves_room_for_a_million_iterations() {
    // 22 s of one slow core where each step is a message's, 6 s where none is.
    const { assert!(weir_predict::USUAL_BUDGET <= 200_000_000) };
    let jacobi = "Loop iterations = 1000 {
  Runon c1 = procnum > 0 {\nMessage type = MPI_Send size = 1024 to = procnum - 1\n}
  Runon c1 = procnum < numprocs - 1 {
    Message type = MPI_Send size = 1024 to = procnum + 1
    Message type = MPI_Recv from = procnum + 1
  }
  Runon c1 = procnum > 0 {\nMessage type = MPI_Recv from = procnum - 1\n}
  Serial time = exponential(1)
}\n";
    let thousandth = (weir_predict::USUAL_BUDGET / 1000).to_string();
    let (ran, _folder) = run(jacobi, &["-n", "8", "--machine", "perseus", "--runs", "3", "--budget", &thousandth]);
    assert_eq!(ran.code, 0, "{}", ran.err);
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
        ("Serial time = 1/(1-procnum)\n", "division by zero"),
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
fn a_computed_time_below_nothing_is_an_error_with_its_line_process_and_value() {
    let stream = "Stream s = \"t.csv\"\nTake s\nSerial time = s.t\n";
    for (program, line, told) in [
        ("Serial time = procnum - 2\n", 1, "a time below 0: -2 (process 0 at 0 s)"),
        ("Serial time = 1\nSerial time = 1 - procnum*2\n", 2, "a time below 0: -1 (process 1 at 1.00000 ms)"),
        ("Set x = -5\nSerial time = x\n", 2, "a time below 0: -5 (process 0"),
        ("Set x = -0.5\nSerial time = x us\n", 2, "a time below 0: -0.5 (process 0"),
        ("Serial time = -5\n", 1, "a time below 0"),
        ("Serial time = uniform(5, 2)\n", 1, "a time that cannot be drawn"),
        ("Serial time = uniform(5, 4 + procnum)\n", 1, "a time that cannot be drawn: uniform(5, 4)"),
        (stream, 3, "a time below 0: -1 (process 0"),
    ] {
        let (_, folder) = run(program, &["-n", "2"]);
        fs::write(folder.path().join("t.csv"), "t\n-1\n").unwrap();
        let ran = run_in(folder.path(), &["-n", "2"]);
        assert_eq!(ran.code, EXIT_MODEL, "{program}: {}{}", ran.out, ran.err);
        assert!(ran.err.contains(told) && ran.err.contains(&format!("program.c:{line}:")), "{told}: {}", ran.err);
    }
    // What is drawn below 0 is no time at all.
    let (ran, _folder) = run("Serial time = uniform(-5, -2)\n", &["-n", "2", "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
}

#[test]
fn the_command_line_is_checked() {
    let barrier = "Message type = MPI_Barrier\n";
    assert_eq!(run(barrier, &[]).0.code, 2);
    assert_eq!(run(barrier, &["-n", "2", "-p", "n=1,n=2"]).0.code, 2);
    assert_eq!(run(barrier, &["-n", "2", "-p", "n=1"]).0.code, EXIT_MODEL);
    assert_eq!(run(barrier, &["-n", "2", "--eager", "5"]).0.code, 2);
    assert_eq!(run(barrier, &["-n", "2", "--machine", "FOLDER/none.toml"]).0.code, 1);
    let (ran, _folder) = run(barrier, &["-n", "2", "--machine", "FOLDER/program.c"]);
    assert_eq!(ran.code, EXIT_MODEL, "{}", ran.err);
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
    let json_text = r#"{"format": "weir-distribution", "version": "1.0", "machine": "made-up", "tool": {"name": "by hand"},
        "transport": {"backend": "hypothetical"}, "cells": [
        {"id": 0, "configuration": {"operation": "send", "size_bytes": 0, "nodes": 2, "ranks_per_node": 1, "ranks": 2, "pairs": 1},
         "histogram": {"bins": {"bins": [{"low_ns": 1000, "high_ns": 1001, "count": 5}]}}},
        {"id": 1, "configuration": {"operation": "send", "size_bytes": 8192, "nodes": 2, "ranks_per_node": 1, "ranks": 2, "pairs": 1},
         "fits": [{"family": "exponential", "location_ns": 5000, "parameters": {"scale_ns": 0.001}, "chosen": true}]},
        {"id": 2, "configuration": {"operation": "send", "size_bytes": 4096, "nodes": 2, "ranks_per_node": 1, "ranks": 2, "pairs": 1,
         "parameters": {"threads": "4"}}, "histogram": {"bins": {"bins": [{"low_ns": 1e9, "high_ns": 2e9, "count": 5}]}}}]}"#;
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("run.json"), json_text).unwrap();
    let program = "Runon c1 = procnum == 0 {\nMessage type = MPI_Send size = 4096 to = 1\n}
& c2 = else {\nMessage type = MPI_Recv from = 0\n}\n";
    fs::write(folder.path().join("program.c"), program).unwrap();
    let ran = run_in(folder.path(), &["-n", "2", "--json", "--machine", "FOLDER"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let json: Value = serde_json::from_str(&ran.out).unwrap();
    // Half way between the two sizes that were measured; what four threads of each rank measured is
    // none of it.
    let median = json["predictions"][0]["median_s"].as_f64().unwrap();
    assert!((median - 3e-6).abs() < 1e-9, "{median}");
    // What was assumed is said.
    assert!(ran.err.contains("eager"), "{}", ran.err);
    // Of threads alone there is no machine, though their operation is there.
    let (start, threads) = (json_text.find("{\"id\": 0").unwrap(), json_text.find("{\"id\": 2").unwrap());
    fs::write(folder.path().join("run.json"), format!("{}{}", &json_text[..start], &json_text[threads..])).unwrap();
    let ran = run_in(folder.path(), &["-n", "2", "--machine", "FOLDER"]);
    assert!(ran.code == 3 && ran.err.contains("without --threads (1 cell is between threads)"), "{}", ran.err);
}

/// A run's `run.json` whose only cells are of so many bytes, in samples.
fn cells_in_samples(folder: &Path, sizes: &[u32]) {
    let cell = |(id, bytes): (usize, &u32)| {
        format!(
            r#"{{"id": {id}, "configuration": {{"operation": "send", "size_bytes": {bytes}, "nodes": 2, "ranks_per_node": 1, "ranks": 2, "pairs": 1}},
            "samples": {{"path": "samples/{id:05}.parquet", "count": 5}}}}"#
        )
    };
    let cells: Vec<String> = sizes.iter().enumerate().map(cell).collect();
    let json = format!(
        r#"{{"format": "weir-distribution", "version": "1.0", "machine": "made-up", "tool": {{"name": "by hand"}},
        "transport": {{"backend": "hypothetical"}}, "cells": [{}]}}"#,
        cells.join(",")
    );
    fs::write(folder.join("run.json"), json).unwrap();
}

#[test]
fn samples_that_cannot_be_read_are_not_told_as_what_was_not_measured() {
    let (_, folder) = run("Serial time = 1\n", &["-n", "2"]);
    cells_in_samples(folder.path(), &[8, 4096]);
    fs::create_dir(folder.path().join("samples")).unwrap();
    fs::write(folder.path().join("samples/00001.parquet"), "no Parquet").unwrap();
    let ran = run_in(folder.path(), &["-n", "2", "--machine", "FOLDER"]);
    assert_eq!(ran.code, EXIT_MODEL, "{}", ran.err);
    for part in [
        "no times of single messages can be read",
        "send of 8 bytes among 2 ranks is left out: ",
        "00000.parquet",
        "no such file",
        "and 1 more",
    ] {
        assert!(ran.err.contains(part), "{part}: {}", ran.err);
    }
    // Nothing of messages at all is what the words say.
    cells_in_samples(folder.path(), &[]);
    let ran = run_in(folder.path(), &["-n", "2", "--machine", "FOLDER"]);
    assert_eq!((ran.code, ran.err.contains("were measured")), (EXIT_MODEL, true), "{}", ran.err);
}

#[test]
fn a_recorded_model_says_where_it_is_a_guess() {
    let program = "# ./ring\n# Recorded with 2, 4 processes by weir record.\n
Runon c1 = procnum == numprocs - 1 && numprocs > 4 {\nMessage type = MPI_Recv from = 0\n}\n";
    let (ran, _folder) = run(program, &["-n", "2,3,8", "--json"]);
    assert_eq!(ran.code, EXIT_DEADLOCK, "{}", ran.err);
    let json: Value = serde_json::from_str(&ran.out).unwrap();
    let notices = |at: usize| json["predictions"][at]["notices"].to_string();
    assert_eq!(notices(0), "[]");
    assert!(notices(1).contains("recorded with 2, 4 processes, not with 3: its rules are guesses"), "{}", notices(1));
    assert!(ran.err.contains("3 processes: the model was recorded with"), "{}", ran.err);
    let help = json["predictions"][2]["error"]["diagnostics"][0]["help"].as_str().unwrap();
    assert!(help.contains("recorded with 2, 4 processes, not with 8"), "{help}");
}

#[test]
fn an_all_to_all_begins_thirty_two_at_once() {
    for (numprocs, median) in predictions("Message type = MPI_Alltoall size = 1000\n", &["-n", "2,33,34,65,66"]) {
        close(median, f64::from((numprocs - 1).div_ceil(32)) * message(1000));
    }
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
    let (ran, _folder) = run(program, &["-n", "2", "--html", "FOLDER/none/page.html"]);
    assert_eq!((ran.code, ran.out.as_str()), (1, ""), "told before the work: {}", ran.err);
    assert!(ran.err.contains("there is no folder"), "{}", ran.err);
}

#[test]
fn the_first_word_is_the_one_that_helps() {
    let (ran, _folder) = run("// PEVPM Mesage type = MPI_Barrier\n", &["-n", "2"]);
    assert_eq!(ran.code, EXIT_MODEL);
    assert!(ran.err.contains("Message") && !ran.err.contains("do anything"), "{}", ran.err);
    let (ran, _folder) = run("\u{7f}ELF\0\0", &["-n", "2"]);
    assert_eq!((ran.code, ran.err.lines().count()), (EXIT_MODEL, 1), "{}", ran.err);
    assert!(ran.err.contains("is no text"), "{}", ran.err);
    let deep = "Loop iterations = 1 {\n".repeat(50_000);
    let (ran, _folder) = run(&deep, &["-n", "2"]);
    assert!(ran.err.contains("64 levels") && !ran.err.contains("never closed"), "{}", ran.err);
    let (ran, _folder) = run("Message type = MPI_Send size = 1 from = 0 to = 0\n", &["-n", "1"]);
    assert!(!ran.err.contains("1 processes"), "{}", ran.err);
    let (ran, _folder) = run("Serial time = require(numprocs == 4)\n", &["-n", "2"]);
    assert_eq!(ran.code, EXIT_MODEL);
    assert!(ran.err.contains("holds only where") && ran.err.contains("numprocs == 4"), "{}", ran.err);
    assert_eq!(run("Serial time = require(numprocs == 4)\nMessage type = MPI_Barrier\n", &["-n", "4"]).0.code, 0);
}

#[test]
fn a_machine_says_what_it_wants_in_words() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("program.c"), "Message type = MPI_Barrier\n").unwrap();
    let digits = "9".repeat(400);
    for (value, part) in [("true", "a number"), (digits.as_str(), "line 2")] {
        fs::write(folder.path().join("m.toml"), format!("[network]\nlatency_us = {value}\nbandwidth_MB_per_s = 1\n"))
            .unwrap();
        let ran = run_in(folder.path(), &["-n", "2", "--machine", "FOLDER/m.toml"]);
        assert_eq!(ran.code, EXIT_MODEL, "{}", ran.err);
        assert!(ran.err.contains(part) && !ran.err.contains("f64"), "{}", ran.err);
    }
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
    for output in ["--html", "--trace"] {
        let (_, folder) =
            run("// PEVPM Stream s = \"s.csv\"\n// PEVPM Take s\n// PEVPM Serial time = s.a\n", &["-n", "1"]);
        fs::write(folder.path().join("s.csv"), "a\n1\n").unwrap();
        let ran = run_in(folder.path(), &["-n", "1", output, "FOLDER/s.csv"]);
        assert_eq!(ran.code, 2, "{}", ran.err);
        assert!(ran.err.contains("s.csv: not overwritten: it is read"), "{}", ran.err);
        assert_eq!(run_in(folder.path(), &["-n", "1", output, "FOLDER/other"]).code, 0);
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

/// Two processes exchange; a third waits for a message that never comes.
const ODD_ONE_OUT: &str = "
Runon c1 = procnum == 0 {
  Message type = MPI_Send size = 1000 to = 1
}
& c2 = procnum == 1 {
  Message type = MPI_Recv from = 0
}
& c3 = else {
  Message type = MPI_Recv from = 0
}";

#[test]
fn a_count_that_deadlocks_leaves_the_others_their_predictions() {
    let words = ["-n", "3,2", "--html", "FOLDER/page.html", "--trace", "FOLDER/trace.json"];
    let (ran, folder) = run(ODD_ONE_OUT, &words);
    assert_eq!(ran.code, EXIT_DEADLOCK, "{}", ran.err);
    let rows: Vec<Vec<&str>> = ran.out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(rows.iter().any(|row| row.starts_with(&["3", "deadlock"])), "{}", ran.out);
    assert!(rows.iter().any(|row| row.starts_with(&["2", "60.0000", "us"])), "{}", ran.out);
    assert!(ran.err.contains("3 processes: deadlock: 1 process waits"), "{}", ran.err);
    let page = fs::read_to_string(folder.path().join("page.html")).unwrap();
    assert!(page.contains("Not predicted") && page.contains("deadlock: 1 process waits"));
    assert!(folder.path().join("trace.json").exists());
}

#[test]
fn the_document_is_whole_whatever_happens() {
    let json = |program: &str, words: &[&str]| {
        let (ran, _folder) = run(program, &[words, &["--json"]].concat());
        let json: Value = serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{e}: {}{}", ran.out, ran.err));
        assert!(json["notices"].is_array() && json["predictions"].is_array());
        (ran.code, json)
    };
    let (code, sweep) = json(ODD_ONE_OUT, &["-n", "2,3"]);
    let [two, three] = sweep["predictions"].as_array().unwrap().as_slice() else { panic!("{sweep}") };
    close(two["median_s"].as_f64().unwrap(), message(1000));
    assert_eq!(two["p95_s"], two["median_s"]);
    let error = &three["error"];
    assert_eq!((code, &error["exit_code"], &error["kind"]), (EXIT_DEADLOCK, &4.into(), &"deadlock".into()));
    assert_eq!(error["diagnostics"][0]["line"], 9);
    assert!(three.get("median_s").is_none());
    // What was not received is a notice of its count.
    let (_, left) = json("Runon c1 = procnum == 0 {\nMessage type = MPI_Send size = 1 to = 1\n}\n", &["-n", "2"]);
    assert!(left["predictions"][0]["notices"][0].as_str().unwrap().contains("never received"), "{left}");
    // A warning is a notice of all.
    let overlap = "Runon c1 = procnum == 0\n&     c2 = procnum == 0\n{\nSerial time = 1\n}\n{\nSerial time = 1\n}\n";
    let (_, warned) = json(overlap, &["-n", "2", "-q"]);
    assert!(warned["notices"].to_string().contains("program.c:1: "), "{warned}");
    for (program, words, exit, kind) in [
        ("Serial time = x\n", vec!["-n", "1"], 3, "error"),
        ("Serail time = 1\n", vec!["-n", "1"], 3, "error"),
        ("Serial time = 1\n", vec![], 2, "usage"),
        ("Serial time = 1\n", vec!["-n", "1", "--machine", "FOLDER/none"], 1, "failed"),
    ] {
        let (code, json) = json(program, &words);
        let error = json.get("error").unwrap_or(&json["predictions"][0]["error"]);
        assert_eq!((code, &error["kind"]), (exit, &kind.into()), "{json}");
        assert!(!error["message"].as_str().unwrap().is_empty());
    }
    // It is one document, too, where the predictions are there and what shows them cannot be
    // written.
    for option in ["--html", "--trace"] {
        for place in ["/dev/full", "FOLDER"] {
            let (code, json) = json("Serial time = 1\n", &["-n", "1", option, place]);
            assert_eq!((code, &json["error"]["kind"], &json["error"]["exit_code"]), (1, &"failed".into(), &1.into()));
            close(json["predictions"][0]["median_s"].as_f64().unwrap(), 1e-3);
        }
    }
}

#[test]
fn times_beyond_the_clock_are_errors_with_their_line() {
    for program in ["Serial time = 1e300\n", "Serial time = 1\nSerial time = 1e300*procnum + 1e25\n"] {
        let (ran, _folder) = run(program, &["-n", "2"]);
        let line = program.lines().count();
        assert_eq!(ran.code, EXIT_MODEL, "{}{}", ran.out, ran.err);
        assert!(ran.err.contains("beyond its end"), "{}", ran.err);
        assert!(ran.err.contains(&format!("program.c:{line}:")), "{}", ran.err);
    }
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("program.c", "Runon c1 = procnum == 0 {\nMessage type = MPI_Send size = 1 GB to = 1\n}\n");
    write("slow.toml", "[network]\nlatency_us = 1\nbandwidth_MB_per_s = 1e-300\n");
    let ran = run_in(folder.path(), &["-n", "2", "--machine", "FOLDER/slow.toml"]);
    assert_eq!(ran.code, EXIT_MODEL, "{}{}", ran.out, ran.err);
    assert!(ran.err.contains("beyond its end") && ran.err.contains("program.c:2:"), "{}", ran.err);
    write("slow.toml", "[network]\nlatency_us = 1e25\nbandwidth_MB_per_s = 100\n");
    let ran = run_in(folder.path(), &["-n", "2", "--machine", "FOLDER/slow.toml"]);
    assert_eq!(ran.code, EXIT_MODEL, "{}{}", ran.out, ran.err);
    assert!(ran.err.contains("network.latency_us"), "{}", ran.err);
}

#[test]
fn a_closed_form_of_a_million_messages_comes_out_to_the_last_digit() {
    let program = "
Loop iterations = 500000 {
  Runon c1 = procnum == 0 {
    Message type = MPI_Send size = n to = 1
    Message type = MPI_Recv from = 1
  }
  & c2 = else {
    Message type = MPI_Recv from = 0
    Message type = MPI_Send size = n to = 0
  }
}";
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("program.c"), program).unwrap();
    // Bytes a second and picoseconds, so that all is whole: 10^6 (latency + n / rate) = (latency x
    // rate + n x 10^12) / (rate x 10^6) s.
    for (rate, latency_ps, bytes) in [(117_300_000u128, 50_000u128, 1000u128), (3_333_333_000, 1, 8), (700_001, 333, 1)]
    {
        let machine = format!(
            "[network]\nlatency_us = {}\nbandwidth_MB_per_s = {}\n",
            latency_ps as f64 / 1e6,
            rate as f64 / 1e6
        );
        fs::write(folder.path().join("ugly.toml"), machine).unwrap();
        let given = format!("n={bytes}");
        let ran = run_in(folder.path(), &["-n", "2", "--json", "-p", &given, "--machine", "FOLDER/ugly.toml"]);
        let json: Value = serde_json::from_str(&ran.out).unwrap();
        let (mut above, below) = (latency_ps * rate + bytes * 1_000_000_000_000, rate * 1_000_000);
        let mut digits = format!("{}.", above / below);
        for _ in 0..30 {
            above = above % below * 10;
            digits.push_str(&(above / below).to_string());
        }
        assert_eq!(
            json["predictions"][0]["median_s"].as_f64().unwrap(),
            digits.parse::<f64>().unwrap(),
            "{given} {rate}"
        );
    }
}

#[test]
fn too_much_under_way_is_told_with_the_line_it_comes_from() {
    let program = "
Message type = MPI_Barrier
Loop iterations = 1000000 {
  Runon c1 = procnum == 0 {
    Message type = MPI_Send size = 8 to = 1
  }
  & c2 = else {
    Serial time = 1 us
  }
}";
    let (ran, _folder) = run(program, &["-n", "2", "--most-under-way", "1000"]);
    assert_eq!(ran.code, EXIT_ENDLESS, "{}{}", ran.out, ran.err);
    for part in ["are under way", "program.c:5:", "are from here", "--most-under-way"] {
        assert!(ran.err.contains(part), "{part}: {}", ran.err);
    }
    let requests = "Loop iterations = 5000 {\nMessage type = MPI_Irecv from = ANY req = r\n}\n";
    let (ran, _folder) = run(requests, &["-n", "1", "--most-under-way", "1000"]);
    assert_eq!((ran.code, ran.err.contains("program.c:2:")), (EXIT_ENDLESS, true), "{}", ran.err);
}

#[test]
fn collectives_that_do_not_match_are_told_with_both_lines() {
    let cases = [
        (
            "Message type = MPI_Bcast size = 8 root = 0",
            "Message type = MPI_Barrier",
            "barrier at process 1, bcast at process 0",
        ),
        ("Message type = MPI_Bcast size = 8 root = 0", "Message type = MPI_Bcast size = 8 root = 1", "root 1"),
        ("Message type = MPI_Allreduce size = 8", "Message type = MPI_Allreduce size = 16", "16 bytes"),
        ("Message type = MPI_Barrier", "Message type = MPI_Ibarrier req = r", "non-blocking barrier"),
    ];
    for (first, second, part) in cases {
        let program = format!("Runon c1 = procnum == 0 {{\n{first}\n}}\n& c2 = else {{\n{second}\n}}\n");
        let (ran, _folder) = run(&program, &["-n", "2"]);
        assert_eq!(ran.code, EXIT_MODEL, "{}{}", ran.out, ran.err);
        for part in [part, "collectives that do not match", "program.c:5:", "process 0 was here"] {
            assert!(ran.err.contains(part), "{part}: {}", ran.err);
        }
    }
    // Where MPI lets sizes differ, they may.
    let (ran, _folder) = run("Message type = MPI_Gatherv size = 8*procnum root = 0\n", &["-n", "4"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
}

#[test]
fn a_machine_has_so_many_places_and_no_more() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("program.c"), "Message type = MPI_Barrier\n").unwrap();
    let machine = format!("{SIMPLE}[nodes]\nranks = 2\n[fabric]\nnodes_per_switch = [2, 1]\n");
    fs::write(folder.path().join("small.toml"), machine).unwrap();
    let ran = run_in(folder.path(), &["-n", "6,7", "--machine", "FOLDER/small.toml"]);
    assert_eq!(ran.code, EXIT_MODEL, "{}{}", ran.out, ran.err);
    assert!(ran.err.contains("7 processes on a machine with places for 6, 2 on a node"), "{}", ran.err);
    assert!(ran.out.lines().any(|line| line.trim_start().starts_with("6 ")), "{}", ran.out);
}

#[test]
fn a_long_loop_without_time_is_no_endless_one() {
    let long = "Loop iterations = 20000000 {\nSet x = procnum\n}\nSerial time = 1\n";
    let (ran, _folder) = run(long, &["-n", "1", "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    // What repeats is known without using up the budget; a test that is never true, too.
    let endless = "Set x = 1\nLoop while = x {\nSet x = 2 - x\n}\n";
    let polls = "Loop while = !there {\nMessage type = MPI_Iprobe from = ANY bind there = flag\n}\n";
    for program in [endless, polls] {
        let (ran, _folder) = run(program, &["-n", "2"]);
        assert_eq!(ran.code, EXIT_ENDLESS, "{}", ran.err);
        assert!(ran.err.contains("time stands still") && ran.err.contains("program.c:"), "{}", ran.err);
    }
}

#[test]
fn a_deadlock_lists_who_waits_beside_the_cycle() {
    let program = "
Runon c1 = procnum < 2 {
  Message type = MPI_Recv from = 1 - procnum
}
& c2 = procnum == 2 {
  Message type = MPI_Recv from = 0 tag = 7
}
& c3 = else {
  Message type = MPI_Recv from = 2
}";
    let (ran, _folder) = run(program, &["-n", "12"]);
    assert_eq!(ran.code, EXIT_DEADLOCK, "{}", ran.err);
    for part in [
        "each waits for the next: 0 -> 1 -> 0",
        "process 2 waits for a message from process 0, tag 7",
        "process 3 waits for a message from process 2",
        "10 more wait",
        "2 are not shown",
    ] {
        assert!(ran.err.contains(part), "{part}: {}", ran.err);
    }
}

#[test]
fn a_mark_of_byte_order_is_no_text() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), format!("\u{feff}{text}")).unwrap();
    write("program.c", "Stream job = \"jobs.csv\"\nTake job\nSerial time = job.ms\n");
    write("simple.toml", SIMPLE);
    write("jobs.csv", "ms\n2.5\n");
    let ran = run_in(folder.path(), &["-n", "1", "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let json: Value = serde_json::from_str(&ran.out).unwrap();
    close(json["predictions"][0]["median_s"].as_f64().unwrap(), 2.5e-3);
}

#[test]
fn what_every_program_has_is_no_parameter() {
    let (ran, _folder) = run("Serial time = 1\n", &["-p", "numprocs=4"]);
    assert_eq!((ran.code, ran.err.contains("-n 4")), (2, true), "{}", ran.err);
}

/// A program that sends 100 KB around all processes.
const RING: &str = "
// PEVPM Network description = net
// PEVPM & link up0 = n0 switch \"fast.toml\"
// PEVPM & link down0 = switch n0 \"fast.toml\"
// PEVPM & link up1 = n1 switch \"slow.toml\"
// PEVPM & link down1 = switch n1 \"fast.toml\"
// PEVPM Default numprocs = 2
// PEVPM Message type = MPI_Sendrecv size = 100000 from = (procnum+1)%numprocs to = (procnum+1)%numprocs
";

#[test]
fn the_links_of_a_source_are_the_machine_where_none_is_given() {
    let (_, folder) = run(RING, &["--machine", "FOLDER/simple.toml"]);
    let in_folder = |words: &[&str]| {
        let inside = |name: &str| folder.path().join(name).display().to_string();
        let line = ["predict".to_owned(), inside("program.c")].into_iter().chain(words.iter().map(|w| (*w).to_owned()));
        let args = Cli::try_parse_from(line).unwrap().args;
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let code = run_to(&args, &mut Streams { out: &mut out, err: &mut err, coloured: false });
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ran { code, out: text(out), err: text(err) }
    };
    let missing = in_folder(&["--json"]);
    assert_eq!(missing.code, EXIT_MODEL, "{}", missing.err);
    assert!(missing.err.contains("fast.toml") && missing.err.contains("program.c:3:"), "{}", missing.err);
    fs::write(folder.path().join("fast.toml"), "[network]\nlatency_us = 10\nbandwidth_MB_per_s = 100\n").unwrap();
    fs::write(folder.path().join("slow.toml"), "[network]\nlatency_us = 10\nbandwidth_MB_per_s = 10\n").unwrap();
    let ran = in_folder(&["--json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let json: Value = serde_json::from_str(&ran.out).unwrap();
    // The message of process 1 goes over the slow link, which is the longest of its two.
    assert_eq!(json["predictions"][0]["median_s"].as_f64().unwrap(), 10e-6 + 100e3 / 10e6);
    assert!(ran.err.contains("nodes of the network, in order: n0, n1; switches: switch"), "{}", ran.err);
    let three = in_folder(&["-n", "3"]);
    assert!(three.code == EXIT_MODEL && three.err.contains("places for 2"), "{}", three.err);
    // A machine that is given counts, and that is told.
    let given = folder.path().join("simple.toml").display().to_string();
    let ran = in_folder(&["--machine", &given]);
    assert!(ran.code == 0 && ran.err.contains("the links of Network `net` are not used"), "{}", ran.err);
    fs::write(folder.path().join("program.c"), "// PEVPM Serial time = 1\n").unwrap();
    let none = in_folder(&["-n", "1"]);
    assert!(none.code == 2 && none.err.contains("which machine?"), "{}", none.err);
    // What goes in one direction only connects nothing.
    let one_way = RING.replace("// PEVPM & link down1 = switch n1 \"fast.toml\"\n", "");
    fs::write(folder.path().join("program.c"), one_way).unwrap();
    let ran = in_folder(&[]);
    assert!(ran.code == EXIT_MODEL && ran.err.contains("no way leads from n0 to n1"), "{}", ran.err);
}

#[test]
fn a_loop_that_repeats_is_skipped_told_and_run_where_that_is_wanted() {
    let program = "
// PEVPM Loop iterations = 100000
// PEVPM {
// PEVPM Message type = MPI_Sendrecv size = 1000 from = (procnum+1)%numprocs to = (procnum+1)%numprocs
// PEVPM Serial time = 1 unit = us
// PEVPM }
";
    let (short, _folder) = run(program, &["-n", "2", "--json"]);
    let (long, _folder) = run(program, &["-n", "2", "--json", "--every-iteration"]);
    let of = |ran: &Ran| serde_json::from_str::<Value>(&ran.out).unwrap()["predictions"][0].clone();
    let (mut short_one, mut long_one) = (of(&short), of(&long));
    assert!(short.err.contains("program.c:2 repeats itself exactly"), "{}", short.err);
    assert!(!long.err.contains("repeats"), "{}", long.err);
    assert!(short_one["notices"][0].as_str().unwrap().contains("--every-iteration"), "{short_one}");
    for one in [&mut short_one, &mut long_one] {
        one.as_object_mut().unwrap().remove("notices");
    }
    assert_eq!(short_one, long_one);
}

#[test]
fn the_published_machines_are_there_by_name() {
    let pair = "// PEVPM Runon c1 = procnum == 0\n// PEVPM & c2 = else\n// PEVPM {\n// PEVPM Message type = MPI_Send size = 0 from = 0 to = 2\n\
                // PEVPM }\n// PEVPM {\n// PEVPM Runon c1 = procnum == 2\n// PEVPM {\n\
                // PEVPM Message type = MPI_Recv size = 0 from = 0 to = 2\n// PEVPM }\n// PEVPM }\n";
    // Two on a node of Perseus, four on the others: 2 is elsewhere on the first only. The least of
    // an empty message.
    let (perseus, _folder) = run(pair, &["--machine", "perseus", "-n", "3", "--json", "--mode", "min"]);
    let json: Value = serde_json::from_str(&perseus.out).unwrap();
    // What varies is never nothing: a little above 160 us.
    let least = json["predictions"][0]["median_s"].as_f64().unwrap();
    assert!((160e-6..165e-6).contains(&least), "{least} {}", perseus.err);
    assert!(json["notices"].to_string().contains("published means"), "{}", json["notices"]);
    for name in ["orion", "apac", "sc"] {
        assert_eq!(run(pair, &["--machine", name, "-n", "3"]).0.code, 0, "{name}");
    }
    // A name is a name, whatever is called so here.
    let name = Path::new("orion");
    fs::create_dir(name).unwrap();
    let (shadowed, _folder) = run(pair, &["--machine", "orion", "-n", "3"]);
    let (meant, _folder) = run(pair, &["--machine", "./orion", "-n", "3"]);
    fs::remove_dir(name).unwrap();
    assert!(shadowed.code == 0 && shadowed.err.contains("what is here by that name is ./orion"), "{}", shadowed.err);
    assert!(meant.code == 1 && meant.err.contains("./orion: not a run"), "{}", meant.err);
    let (nobody, _folder) = run(pair, &["--machine", "cray", "-n", "3"]);
    assert!(nobody.code != 0 && nobody.err.contains("cray: no such file"), "{}", nobody.err);
    let (wishes, _folder) = run(pair, &["--machine", "orion", "--eager", "5", "-n", "3"]);
    assert!(wishes.code == 2 && wishes.err.contains("for measured machines"), "{}", wishes.err);
}

#[test]
fn a_poll_for_what_never_comes_has_no_end_and_says_where() {
    let poll = "// PEVPM Message type = MPI_Irecv size = 1 from = 1-procnum to = procnum req = r\n// PEVPM Set flag = 0\n\
                // PEVPM Loop while = !flag\n// PEVPM {\n// PEVPM Message type = MPI_Test req = r bind = flag\n// PEVPM }\n";
    let (ran, _folder) = run(poll, &["-n", "2"]);
    assert!(ran.code == EXIT_ENDLESS && ran.err.contains("program.c:5"), "{} {}", ran.code, ran.err);
}

#[test]
fn links_can_be_shared_anew() {
    // Two messages of 100 KB into one node: 1 ms each alone. One behind the other, or both at once.
    let gather = "// PEVPM Runon c1 = procnum == 0\n// PEVPM & c2 = else\n// PEVPM {\n\
                  // PEVPM Message type = MPI_Recv size = 100000 from = 1 to = 0\n// PEVPM Serial time = 10\n\
                  // PEVPM Message type = MPI_Recv size = 100000 from = 2 to = 0\n// PEVPM }\n// PEVPM {\n\
                  // PEVPM Message type = MPI_Send size = 100000 from = procnum to = 0\n// PEVPM }\n";
    let limits = "[nodes]\ningress_MB_per_s = 100\n[fabric]\nsharing = ";
    for (sharing, ms) in [("once", 11.05), ("fair", 12.05)] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("program.c"), gather).unwrap();
        fs::write(folder.path().join("star.toml"), format!("{SIMPLE}{limits}\"{sharing}\"\n")).unwrap();
        let ran = run_in(folder.path(), &["--machine", "FOLDER/star.toml", "-n", "3", "--json"]);
        let json: Value = serde_json::from_str(&ran.out).unwrap();
        assert_eq!(json["predictions"][0]["median_s"].as_f64(), Some(ms / 1e3), "{}", ran.err);
    }
}

/// Two processes have nobody to meet, and the account has contention all the same: their messages'
/// times scatter. That is said, and that the question leaves it.
#[test]
fn contention_of_two_processes_is_told_to_be_scatter() {
    let jacobi = include_str!("../../../examples/predict/jacobi.c");
    let told = |words: &[&str]| {
        let (ran, _folder) = run(jacobi, &[&["-n", "2", "--runs", "3"], words].concat());
        assert_eq!(ran.code, 0, "{}", ran.err);
        ran.out
    };
    let asked = told(&["--machine", "apac", "--what-if", "no-contention"]);
    assert!(asked.contains("and as times scatter. no-contention leaves the scatter."), "{asked}");
    let plain = told(&["--machine", "apac"]);
    assert!(plain.contains("and as times scatter.\n") && !plain.contains("no-contention"), "{plain}");
    assert!(!told(&["--what-if", "no-contention"]).contains("scatter"), "nothing scatters on this machine");
}

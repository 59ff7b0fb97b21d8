//! What `weir bench` says before it measures: once for a job, and with the command to type next.

use std::process::{Command, Output, Stdio};

/// The command as a launcher starts it, which tells it its rank by these variables.
fn bench(words: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let told = ["PMI_RANK", "PMI_SIZE", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "SLURM_PROCID"];
    told.iter().for_each(|name| {
        command.env_remove(name);
    });
    command.arg("bench").args(words).envs(variables.iter().copied()).stdin(Stdio::null()).output().expect("start")
}

fn said(out: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (out.status.code(), text(&out.stdout), text(&out.stderr))
}

#[test]
fn a_wrong_word_is_told_by_rank_0_only_and_by_who_does_not_know_its_rank() {
    for name in ["PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK"] {
        for words in [&["--repps", "10"][..], &["-t", "sned"]] {
            let silent = said(&bench(words, &[(name, "1")]));
            assert_eq!(silent, (Some(2), String::new(), String::new()), "{name} {words:?}");
            let (code, _, text) = said(&bench(words, &[(name, "0")]));
            assert!(code == Some(2) && text.contains(words[0]) || text.contains("did you mean send?"), "{text}");
        }
    }
    let (code, _, text) = said(&bench(&["--repps", "10"], &[]));
    assert!(code == Some(2) && text.contains("--repps"), "{text}");
    // Help is for people, too.
    assert_eq!(said(&bench(&["--help"], &[("PMI_RANK", "1")])), (Some(0), String::new(), String::new()));
    assert!(said(&bench(&["--help"], &[("PMI_RANK", "0")])).1.contains("Examples"));
}

#[test]
fn a_missing_mpi_is_told_by_rank_0_only() {
    let words = ["--mpi-library", "/nonexistent/libmpi.so"];
    let job = |rank: &str| said(&bench(&words, &[("PMI_RANK", rank), ("MPI_LOCALRANKID", rank), ("PMI_SIZE", "2")]));
    assert_eq!(job("1"), (Some(1), String::new(), String::new()));
    let (code, _, text) = job("0");
    assert!(code == Some(1) && text.lines().count() == 1 && text.contains("/nonexistent/libmpi.so"), "{text}");
}

#[test]
fn operations_are_listed_for_people_and_for_programs() {
    let (code, text, _) = said(&bench(&["--list"], &[]));
    assert!(code == Some(0) && text.starts_with("ping-pong ") && text.lines().count() == 22, "{text}");
    let (code, text, _) = said(&bench(&["--list", "--json"], &[]));
    let json: serde_json::Value = serde_json::from_str(&text).expect("one document");
    assert_eq!((code, json["operations"][0]["name"].as_str(), text.lines().count()), (Some(0), Some("ping-pong"), 1));
}

#[test]
fn launches_that_fail_end_with_how_many_there_are_and_the_command_that_adds_the_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().join("run");
    let dir = dir.to_str().expect("a name");
    let (code, _, text) = said(&bench(&["-o", dir, "--launches", "3", "-t", "send", "--", "false"], &[]));
    assert_eq!(code, Some(1));
    let last = text.lines().last().unwrap_or_default();
    let expected = "weir bench: 0 of 3 launches are complete, 3 missing: launch 1 ended with exit status: 1. To add what is missing: ";
    assert!(last.starts_with(expected), "{last}");
    let end = format!("bench -o {dir} -t send --launches 3 --append -- false");
    assert!(last.ends_with(&end), "{last}");
    // To type a wrong command again helps nobody; the launch has said what is wrong.
    let (code, _, text) = said(&bench(&["-o", dir, "--launches", "3", "--", "sh", "-c", "exit 2"], &[]));
    assert_eq!((code, text.as_str()), (Some(2), "launch 1 of 3\n"));
}

#[test]
fn a_run_keeps_the_command_that_was_typed_whoever_starts_its_ranks() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().join("a run");
    let dir = dir.to_str().expect("a name");
    let words = ["-o", dir, "--transport", "weir", "-n", "2", "-t", "send", "-s", "8", "--reps", "10"];
    for more in [&["--title", "it's, 1 %"][..], &["--append", "--launches", "1", "--json"]] {
        let words: Vec<&str> = words.iter().chain(more).copied().collect();
        let (code, _, text) = said(&bench(&words, &[]));
        assert_eq!(code, Some(0), "{text}");
    }
    let command = || -> Vec<String> {
        let run = std::fs::read_to_string(format!("{dir}/run.json")).expect("a run");
        let run: serde_json::Value = serde_json::from_str(&run).expect("JSON");
        serde_json::from_value(run["command"].clone()).expect("words")
    };
    let program = env!("CARGO_BIN_EXE_weir");
    let typed = |more: &[&str]| -> Vec<String> {
        [program, "bench"].iter().chain(&words).chain(more).map(|word| (*word).to_owned()).collect()
    };
    // Of a run with several commands it is the first.
    assert_eq!(command(), typed(&["--title", "it's, 1 %"]));
    std::fs::remove_dir_all(dir).expect("removed");
    let words: Vec<&str> = words.iter().chain(&["--launches", "1", "--json"]).copied().collect();
    let (code, _, text) = said(&bench(&words, &[]));
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(command(), typed(&["--launches", "1", "--json"]));
}

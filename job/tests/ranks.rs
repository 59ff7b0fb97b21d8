//! Real processes: ranks started by the local launcher, killed, stopped and aborted, and nothing
//! left behind.
//!
//! The examples `launch` and `rank` are the launcher and the program.

mod common;

use std::io::Read;
use std::process::{Child, Command, Output, Stdio};

use common::{Launch, ended, example, kill, parent_of, text, until};

fn launch(test: &str, words: &[&str], steps: &[&str]) -> Launch {
    let mut command = Command::new(example("launch"));
    command.args(words);
    Launch::new(test, command, steps)
}

/// What the launcher itself said.
fn said(output: &Output) -> Vec<String> {
    text(&output.stderr).lines().filter_map(|line| line.strip_prefix("weir: ")).map(String::from).collect()
}

/// The processes of a launch: guard, launcher, then the others.
fn family(launch: &Launch, guard: &Child) -> (i32, i32, Vec<i32>) {
    let guard = i32::try_from(guard.id()).unwrap();
    let all = launch.left();
    let launcher = *all.iter().find(|pid| parent_of(**pid) == guard).unwrap();
    let ranks = all.iter().copied().filter(|pid| parent_of(*pid) == launcher).collect();
    (guard, launcher, ranks)
}

#[test]
fn ranks_exchange_meet_and_leave() {
    let output = launch("meet", &["-n", "9"], &["who", "exchange", "fence", "exchange", "end"]).output();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let lines = text(&output.stdout);
    assert_eq!(lines.matches("all data are right").count(), 18, "{lines}");
    assert!(lines.contains("rank 8 of 9, Some(9) here, by local, job launch-"), "{lines}");
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn all_ranks_have_the_same_key_and_two_jobs_have_different_ones() {
    let keys = || {
        let output = launch("keys", &["-n", "3"], &["key", "end"]).output();
        let mut lines: Vec<String> = text(&output.stdout).lines().map(String::from).collect();
        lines.dedup();
        assert_eq!(lines.len(), 1, "{lines:?}");
        lines.remove(0)
    };
    let (one, other) = (keys(), keys());
    assert!(one.starts_with("key ") && one != other, "{one}");
}

#[test]
fn an_abort_ends_all_with_one_message_and_its_code() {
    let output = launch("abort", &["-n", "4"], &["exchange", "2/abort:5", "sleep:600000"]).output();
    assert_eq!(output.status.code(), Some(5));
    assert_eq!(text(&output.stderr), "weir: rank 2 aborted the job (code 5): as it was told to\n");
}

#[test]
fn the_first_that_fails_gives_the_exit_code() {
    let output = launch("fails", &["-n", "4"], &["3/exit:9", "fence", "end"]).output();
    assert_eq!(output.status.code(), Some(9));
    assert_eq!(said(&output), ["rank 3 ended with exit code 9"]);
}

#[test]
fn a_rank_that_is_killed_ends_all() {
    let output = launch("killed", &["-n", "4"], &["exchange", "1/kill", "fence", "end"]).output();
    assert_eq!(output.status.code(), Some(128 + 9));
    assert_eq!(said(&output), ["rank 1 was killed by signal 9 (SIGKILL)"]);
}

/// Ranks that run a script of `sh`.
fn scripts(words: &[&str], script: &str) -> Command {
    let mut command = Command::new(example("launch"));
    command.args(words).args(["sh", "-c", script]).stdin(Stdio::null());
    command
}

#[test]
fn however_one_rank_fails_its_code_is_the_jobs() {
    let ways = [
        ("exit 1", 1, "ended with exit code 1"),
        ("exit 255", 255, "ended with exit code 255"),
        ("exit 137", 137, "ended with exit code 137, as a shell does after signal 9 (SIGKILL)"),
        ("kill -KILL $$", 137, "was killed by signal 9 (SIGKILL)"),
        ("kill -TERM $$", 143, "was killed by signal 15 (SIGTERM)"),
        ("ulimit -c 0; kill -SEGV $$", 139, "was killed by signal 11 (SIGSEGV)"),
        ("kill -40 $$", 168, "was killed by signal 40"),
    ];
    for (way, code, words) in ways {
        for rank in [0, 2] {
            for tags in [&["-n", "3"][..], &["-n", "3", "--tag-output"]] {
                let script = format!("test $WEIR_RANK != {rank} || {{ {way}; }}; exec sleep 600");
                let output = scripts(tags, &script).output().unwrap();
                assert_eq!(output.status.code(), Some(code), "{script} {tags:?} {}", text(&output.stderr));
                assert_eq!(said(&output), [format!("rank {rank} {words}")], "{script} {tags:?}");
            }
        }
    }
}

/// Of how many processes a launcher will know in which order they end.
fn watched(launcher: i32) -> usize {
    let entries = std::fs::read_dir(format!("/proc/{launcher}/fdinfo")).into_iter().flatten().flatten();
    let infos = entries.filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
    infos.map(|info| info.lines().filter(|line| line.starts_with("tfd:")).count()).sum()
}

/// A busy launcher finds several that ended, and the kernel shows it the first by number.
#[test]
fn of_several_that_failed_the_first_in_time_gives_the_code() {
    for (way, code) in [("kill -KILL $$", 137), ("exit 3", 3)] {
        for tags in [&["-n", "3"][..], &["-n", "3", "--tag-output"]] {
            let folder = tempfile::tempdir().unwrap();
            let at = |name: &str| folder.path().join(name);
            let wait = "echo $$ >pid$WEIR_RANK.part; mv pid$WEIR_RANK.part pid$WEIR_RANK; \
                        until test -e go$WEIR_RANK; do sleep 0.01; done";
            let script = format!("{wait}; test $WEIR_RANK != 2 || {{ {way}; }}; exit 9");
            let mut command = scripts(tags, &script);
            command.current_dir(folder.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let guard = command.spawn().unwrap();
            let mut pids = [0; 3];
            for (rank, pid) in pids.iter_mut().enumerate() {
                until("a rank starts", || {
                    *pid = std::fs::read_to_string(at(&format!("pid{rank}"))).map_or(0, |t| t.trim().parse().unwrap());
                    *pid != 0
                });
            }
            let launcher = parent_of(pids[0]);
            assert_eq!(parent_of(launcher), i32::try_from(guard.id()).unwrap());
            until("all ranks are watched", || watched(launcher) == 3);
            kill(launcher, "-STOP");
            for rank in [2, 1, 0] {
                std::fs::write(at(&format!("go{rank}")), "").unwrap();
                until("a rank ends", || common::is_over(format!("/proc/{}", pids[rank]).as_ref()));
            }
            kill(launcher, "-CONT");
            let output = guard.wait_with_output().unwrap();
            assert_eq!(output.status.code(), Some(code), "{way} {tags:?} {}", text(&output.stderr));
            assert_eq!(said(&output).len(), 1, "{:?}", said(&output));
        }
    }
}

#[test]
fn output_on_a_full_disk_is_an_error_that_is_told() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = scripts(&["-n", "2", "--tag-output"], "echo a line");
    let output = command.stdout(full).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert_eq!(said(&output), ["standard output: No space left on device (os error 28)"]);
}

#[test]
fn a_frozen_rank_is_named_after_the_limit_and_ended_too() {
    let output = launch("frozen", &["-n", "3", "--limit", "1"], &["exchange", "1/stop", "fence", "end"]).output();
    assert_eq!(output.status.code(), Some(1));
    let said = said(&output);
    assert!(said.len() == 1 && said[0].contains("waited 1 s: rank 1 did not come"), "{said:?}");
}

#[test]
fn a_rank_that_leaves_others_waiting_ends_all() {
    let output = launch("leaves", &["-n", "3"], &["0/exit:0", "fence", "end"]).output();
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output)[0].starts_with("rank 0 ended (exit code 0) without leaving the job"), "{:?}", said(&output));
    let output = launch("early", &["-n", "3"], &["0/end", "fence", "end"]).output();
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output)[0].ends_with("rank 0 has left the job"), "{:?}", said(&output));
}

#[test]
fn what_ranks_leave_running_is_ended_with_the_job() {
    let output = launch("child", &["-n", "2"], &["child", "exchange", "end"]).output();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn lines_are_tagged_and_none_is_torn() {
    let steps = ["print:one", "print:two", "print:three", "end"];
    let output = launch("tags", &["-n", "5", "--tag-output"], &steps).output();
    let mut lines: Vec<String> = text(&output.stdout).lines().map(String::from).collect();
    lines.sort();
    let want = (0..5).flat_map(|rank| ["one", "three", "two"].map(|word| format!("[{rank}] rank {rank} of 5: {word}")));
    assert_eq!(lines, want.collect::<Vec<_>>());
}

#[test]
fn the_first_rank_has_the_standard_input() {
    let mut launch = launch("stdin", &["-n", "2"], &["read", "end"]);
    let mut child = launch.command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"for rank 0\n").unwrap();
    assert_eq!(ended(&mut child), Some(0));
    let mut lines = String::new();
    child.stdout.take().unwrap().read_to_string(&mut lines).unwrap();
    assert!(lines.contains("rank 0 read Ok(11): for rank 0") && lines.contains("rank 1 read Ok(0): "), "{lines}");
}

#[test]
fn whichever_process_is_killed_nothing_is_left() {
    for victim in ["guard", "launcher", "a rank"] {
        let mut launch = launch(&victim.replace(' ', "-"), &["-n", "3"], &["child", "exchange", "sleep:600000"]);
        let mut child = launch.started(3);
        let (guard, launcher, ranks) = family(&launch, &child);
        assert_eq!(ranks.len(), 3, "{victim}");
        kill(
            match victim {
                "guard" => guard,
                "launcher" => launcher,
                _ => ranks[1],
            },
            "-9",
        );
        let code = ended(&mut child);
        assert!(victim == "guard" || code == Some(128 + 9), "{victim}: {code:?}");
        launch.nothing_is_left();
    }
}

#[test]
fn a_signal_to_the_launcher_reaches_all_ranks() {
    let mut launch = launch("term", &["-n", "3"], &["exchange", "sleep:600000"]);
    let mut child = launch.started(3);
    kill(i32::try_from(child.id()).unwrap(), "-TERM");
    assert_eq!(ended(&mut child), Some(128 + 15));
    let mut complaints = String::new();
    child.stderr.take().unwrap().read_to_string(&mut complaints).unwrap();
    assert_eq!(complaints, "");
    launch.nothing_is_left();
}

#[test]
fn a_program_that_cannot_be_started_is_an_error() {
    let output = Command::new(example("launch")).args(["-n", "2", "/no/such/program"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("cannot start rank 0 of 2"), "{}", text(&output.stderr));
}

#[test]
fn a_place_in_a_job_that_is_over_is_an_error_and_no_run_alone() {
    for (number, named) in
        [("99", "WEIR_JOB_FD=99: no socket"), ("x", "WEIR_JOB_FD=x: not the number"), ("0", "no socket")]
    {
        let output = Command::new(example("rank")).env("WEIR_JOB_FD", number).stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(7));
        assert!(text(&output.stderr).contains(named), "{}", text(&output.stderr));
    }
}

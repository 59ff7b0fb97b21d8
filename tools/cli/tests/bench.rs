//! What `weir bench` says before it measures: once for a job, and with the command to type next.

use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use weir_distribution::{Cell, ClockInfo, Configuration, Launch, Run, SummaryRecord};

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

/// The processes that a process has started and that live.
fn children_of(parent: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

fn lives(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

#[test]
fn ranks_end_with_who_started_them_however_that_ends() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args("bench --transport weir -n 2 -t ping-pong -s 8 --time 3000 -q".split(' '));
    command.env("WEIR_KEY", "0".repeat(64)).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut starter = command.spawn().expect("start");
    let wait = |what: &str, is_so: &dyn Fn() -> bool| {
        let end = std::time::Instant::now() + Duration::from_secs(60);
        while !is_so() {
            assert!(std::time::Instant::now() < end, "{what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    wait("two ranks", &|| children_of(starter.id()).len() == 2);
    let ranks = children_of(starter.id());
    // That they measure by now is likely, and not needed.
    std::thread::sleep(Duration::from_secs(1));
    starter.kill().expect("killed");
    starter.wait().expect("waited for");
    wait("ranks measure on", &|| !ranks.iter().any(|rank| lives(*rank)));
}

#[test]
fn operations_are_listed_for_people_and_for_programs() {
    let (code, text, _) = said(&bench(&["--list"], &[]));
    assert!(code == Some(0) && text.starts_with("ping-pong ") && text.lines().count() == 56, "{text}");
    let (code, text, _) = said(&bench(&["--list", "--json"], &[]));
    let json: serde_json::Value = serde_json::from_str(&text).expect("one document");
    assert_eq!((code, json["operations"][0]["name"].as_str(), text.lines().count()), (Some(0), Some("ping-pong"), 1));
}

#[test]
fn a_list_is_printed_by_one_process_of_a_job() {
    for words in [&["--list"][..], &["--list", "--json"]] {
        assert_eq!(said(&bench(words, &[("PMI_RANK", "2")])), (Some(0), String::new(), String::new()));
        assert!(said(&bench(words, &[("PMI_RANK", "0")])).1.contains("ping-pong"));
    }
}

#[test]
fn an_option_that_would_not_be_heeded_is_an_error() {
    for words in [["-n", "4"], ["--agent", "foo"]] {
        let (code, _, text) = said(&bench(&words, &[]));
        assert!(code == Some(2) && text.contains("needs --transport weir"), "{text}");
    }
    let (code, _, text) = said(&bench(&["--time", "-1"], &[]));
    assert_eq!((code, text.as_str()), (Some(2), "weir bench: --time is -1, it may be from 0.01 to 10000000\n"));
}

#[test]
fn help_is_broken_where_the_terminal_ends_and_nowhere_else() {
    for columns in [60, 80, 100] {
        let help = said(&bench(&["--help"], &[("COLUMNS", &columns.to_string())])).1;
        let words = &help[help.find("Sizes are in bytes").expect("words")..help.find("Exit codes:").expect("words")];
        assert!(words.lines().count() > 20, "{words}");
        for paragraph in words.split("\n\n") {
            for (line, next) in paragraph.lines().zip(paragraph.lines().skip(1)) {
                let word = next.split_whitespace().next().unwrap_or_default();
                assert!(
                    line.len() <= columns && line.len() + 1 + word.len() > columns,
                    "{columns}: {line:?}, {next:?}"
                );
            }
        }
        assert!(help.contains("WEIR_MPI_LIBRARY"), "{help}");
    }
}

#[test]
fn a_launcher_that_starts_nothing_is_told_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().join("run");
    let dir = dir.to_str().expect("a name");
    let (code, _, text) = said(&bench(&["-o", dir, "--launches", "2", "--", "true"], &[]));
    assert_eq!((code, text.lines().next()), (Some(1), Some("launch 1 of 2")));
    let expected = "weir bench: 0 of 2 launches are complete, 2 missing: launch 1 measured nothing: ";
    assert!(text.lines().nth(1).is_some_and(|line| line.starts_with(expected)), "{text}");
    assert_eq!(text.lines().count(), 2, "{text}");
}

/// Whether a process runs; one that has ended and that nobody waits for does not.
fn runs(pid: i32) -> bool {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    text.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// A launcher that runs for long, whoever is told to stop.
struct UnderWay {
    weir: Child,
    launcher: i32,
}

impl UnderWay {
    fn begin(folder: &std::path::Path) -> Self {
        let file = folder.join("pid");
        let script = r#"echo $$ > "$0.part"; mv "$0.part" "$0"; exec sleep 600"#;
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(["bench", "-q", "--launches", "2", "-o"]).arg(folder.join("run")).args(["--", "sh", "-c", script]);
        let weir = command.arg(&file).stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("start");
        let launcher = loop {
            match std::fs::read_to_string(&file) {
                Ok(text) => break text.trim().parse().expect("a number"),
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        Self { weir, launcher }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let _ = self.weir.kill();
        let _ = self.weir.wait();
        if runs(self.launcher) {
            let _ = kill(Pid::from_raw(self.launcher), Signal::SIGKILL);
        }
    }
}

#[test]
fn a_launch_ends_with_a_weir_bench_that_is_told_to_stop_again_and_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut launch = UnderWay::begin(folder.path());
    let weir = Pid::from_raw(i32::try_from(launch.weir.id()).expect("a number"));
    let code = loop {
        if let Some(status) = launch.weir.try_wait().expect("wait") {
            break status.code();
        }
        kill(weir, Signal::SIGTERM).expect("told");
        std::thread::sleep(Duration::from_millis(300));
    };
    assert_eq!(code, Some(130));
    // It has been told; that it ends takes as long as it takes, and one that was not told runs for
    // minutes.
    let ended = (0..600).any(|_| {
        let ended = !runs(launch.launcher);
        if !ended {
            std::thread::sleep(Duration::from_millis(100));
        }
        ended
    });
    assert!(ended);
}

/// Half the width of the median's interval, as the table at the end of a launch and as the report
/// have it, us.
fn halves(operation: &str, (low, high): (f64, f64), step_ns: Option<f64>) -> (String, String) {
    let mut run = Run::new("m");
    let clock = ClockInfo { resolution_ns: step_ns, ..ClockInfo::default() };
    run.launches = vec![Launch { clock: Some(clock), ..Launch::default() }];
    let mut cell = Cell::new(0, 0, Configuration::pair(operation, 8));
    let p50_ns = f64::midpoint(low, high);
    cell.summary = Some(SummaryRecord {
        count: 500,
        p50_ns,
        median_low_ns: Some(low),
        median_high_ns: Some(high),
        ..SummaryRecord::default()
    });
    run.cells = vec![cell];
    let table = weir_bench::show::tables(&run, 0);
    let row = table.lines().nth(3).expect("a row").split_whitespace().nth(5).expect("a column").to_owned();
    let digest = weir_report::condense::digest(run, "m", &|_| Ok(Vec::new()));
    let shown = digest.profiles[0].points.values().next().and_then(|point| point.interval()).expect("an interval");
    (row, format!("{:.3}", (shown.high_ns - shown.low_ns) / 2000.0))
}

#[test]
fn the_interval_of_a_launchs_table_is_that_of_the_report() {
    let cases = [
        ("send", (1000.0, 1100.0), Some(20.0), "0.050"),
        ("send", (351.0, 351.0), Some(20.0), "0.010"),
        ("ping-pong", (351.0, 351.0), Some(20.0), "0.005"),
        ("send", (4.0, 4.0), Some(20.0), "0.007"),
        ("send", (-4.0, -4.0), Some(20.0), "0.005"),
        ("send", (351.0, 351.0), None, "0.000"),
    ];
    for (operation, interval, step_ns, expected) in cases {
        let expected = (expected.to_owned(), expected.to_owned());
        assert_eq!(halves(operation, interval, step_ns), expected, "{operation} {interval:?} {step_ns:?}");
    }
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

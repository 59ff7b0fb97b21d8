//! `weir bench serverload` on this host, over Weir's own library and plain sockets: what is
//! measured, what is told, and that nothing stays behind.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use weir_distribution::{Cell, Reader, Run, StartSync, State};

const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
/// Nothing takes this long, however busy the machine, but what hangs.
const LIMIT: Duration = Duration::from_secs(120);

/// The folder of the library that Cargo has just built beside the tests.
fn library() -> PathBuf {
    let folder = std::env::current_exe().expect("this program").parent().expect("its folder").to_owned();
    assert!(folder.join("libweir_bmi.so").exists(), "{}", folder.display());
    folder
}

fn serverload(words: &[&str], variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("WEIR_")) {
        command.env_remove(name);
    }
    command.args(["bench", "serverload"]).args(words).env("WEIR_LIB", library()).env("WEIR_KEY", KEY);
    command.envs(variables.iter().copied()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Waits for the end.
fn ended(child: Child) -> Output {
    let begun = Instant::now();
    let pid = child.id().to_string();
    let watch = std::thread::spawn(move || child.wait_with_output().expect("waited"));
    while !watch.is_finished() {
        if begun.elapsed() > LIMIT {
            let _ = Command::new("kill").args(["-9", &pid]).status();
            panic!("it hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    watch.join().expect("joined")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Measures into a folder; the run, and what was printed.
fn measured(dir: &Path, words: &[&str], variables: &[(&str, &str)]) -> (Run, String) {
    let dir = dir.to_str().expect("a name");
    let all = [words, &["-o", dir]].concat();
    let out = ended(serverload(&all, variables).spawn().expect("started"));
    assert!(out.status.success(), "{}\n{}", text(&out.stdout), text(&out.stderr));
    (Reader::open(Path::new(dir)).expect("a run").into_run(), text(&out.stdout))
}

/// 2 and 8 clients, both sizes: every cell is there, and says all that it has to.
fn closed(method: &str, variables: &[(&str, &str)]) {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().join("run");
    let words = ["--method", method, "--clients", "2,8", "-s", "10000,100000", "--rounds", "6", "--warm-up", "1"];
    let (run, printed) = measured(&dir, &words, variables);
    assert_eq!((run.state, run.cells.len(), run.transport.backend.as_str()), (State::Complete, 4, "bmi"));
    let provider = run.transport.provider.clone().unwrap_or_default();
    assert_eq!(provider.trim_start_matches("bmi_"), method);
    assert_eq!(run.launches[0].placement.len(), 9, "a server and its clients");
    for cell in &run.cells {
        let clients = cell.configuration.pairs;
        assert!([2, 8].contains(&clients) && cell.configuration.ranks == clients + 1);
        assert_eq!(
            (cell.configuration.operation.0.as_str(), cell.configuration.start),
            ("serverload", StartSync::Window)
        );
        let (summary, service) = (cell.summary.as_ref().expect("times"), cell.service.expect("service"));
        assert_eq!((summary.count, service.rounds), (6 * u64::from(clients), 6));
        let spread = service.spread_p50.expect("a spread");
        assert!(spread >= 1.0 && service.spread_max.expect("the worst") >= spread);
        assert!(service.jain_min.expect("the least") <= service.jain_p50.expect("an index"));
        assert!(service.answers_per_s > 0.0 && service.server_peak_bytes.expect("memory") > 1 << 20);
        assert!(service.server_cpu_ns.expect("processor time") > 0.0);
        samples_agree(&dir, cell);
    }
    assert!(printed.contains("how the clients were served") && printed.contains("Jain"), "{printed}");
    opens_in_the_report(&dir);
}

/// Each client has a sample of each round, and the summary is of those that count.
fn samples_agree(dir: &Path, cell: &Cell) {
    let reader = Reader::open(dir).expect("a run");
    let samples = reader.read_samples(cell).expect("samples");
    let clients = cell.configuration.pairs;
    assert!(samples.iter().all(|s| (1..=clients).contains(&s.rank) && s.peer == 0 && s.error_ns == 0.0));
    let counted: Vec<f64> = samples.iter().filter(|s| s.counts()).map(|s| s.duration_ns).collect();
    let mean = counted.iter().sum::<f64>() / counted.len() as f64;
    let summary = cell.summary.as_ref().expect("a summary");
    assert!((mean / summary.mean_ns - 1.0).abs() < 1e-3, "{mean} {}", summary.mean_ns);
}

fn opens_in_the_report(dir: &Path) {
    let out = Command::new(env!("CARGO_BIN_EXE_weir")).args(["report", "--format", "text"]).arg(dir).output();
    let out = out.expect("started");
    let said = text(&out.stdout);
    let there = ["serverload", "how the clients were served", "max/min"].iter().all(|words| said.contains(words));
    assert!(out.status.success() && there, "{said}\n{}", text(&out.stderr));
}

#[test]
fn over_shared_memory() {
    closed("weir", &[("WEIR_CARRIER", "shm")]);
}

#[test]
fn over_packets_of_the_loopback() {
    closed("weir", &[("WEIR_CARRIER", "udp")]);
}

#[test]
fn over_the_tcp_wire() {
    closed("tcp", &[]);
}

#[test]
fn over_plain_sockets() {
    closed("sockets", &[]);
}

#[test]
fn with_the_functions_of_orangefs() {
    let folder = tempfile::tempdir().expect("a folder");
    let words = ["--method", "tcp", "--dialect", "orangefs", "--clients", "2", "-s", "10000", "--rounds", "3"];
    let (run, _) = measured(&folder.path().join("run"), &words, &[]);
    assert_eq!(run.transport.settings.get("dialect").map(String::as_str), Some("orangefs"));
}

#[test]
fn requests_of_an_open_loop_come_when_they_are_due() {
    let folder = tempfile::tempdir().expect("a folder");
    let words = ["--method", "tcp", "--clients", "2", "-s", "10000", "--loop", "open", "--rate", "200", "--time", "1"];
    let (run, _) = measured(&folder.path().join("run"), &words, &[]);
    let cell = &run.cells[0];
    assert_eq!(cell.configuration.parameters.get("loop").map(String::as_str), Some("open"));
    assert_eq!(cell.configuration.parameters.get("rate_per_s").map(String::as_str), Some("200"));
    let service = cell.service.expect("service");
    assert_eq!((cell.summary.as_ref().map(|s| s.count), service.rounds, service.spread_p50), (Some(200), 0, None));
    assert!(cell.span.is_none() && cell.skew.is_none());
    // What arrives is what was due: not more, and not much less.
    assert!((50.0..400.0).contains(&service.answers_per_s), "{service:?}");
}

#[test]
fn a_launch_more_repeats_the_cells() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().join("run");
    let words = ["--method", "sockets", "--clients", "2", "-s", "1000", "--rounds", "3"];
    measured(&dir, &words, &[]);
    let (run, printed) = measured(&dir, &[&words[..], &["--append", "--launches", "2"]].concat(), &[]);
    assert_eq!((run.launches.len(), run.cells.len()), (3, 3));
    assert!(run.cells.iter().all(|cell| cell.configuration == run.cells[0].configuration));
    assert!(run.launches.iter().all(|launch| launch.state == State::Complete), "{:?}", run.launches);
    assert!(printed.contains("medians of launches"), "{printed}");
}

#[test]
fn json_is_one_document() {
    let words = ["--method", "sockets", "--clients", "2", "-s", "1000", "--rounds", "3", "--json"];
    let out = ended(serverload(&words, &[]).spawn().expect("started"));
    let run: serde_json::Value = serde_json::from_slice(&out.stdout).expect("one document");
    assert!(run["cells"][0]["service"]["jain_p50"].as_f64().is_some_and(|index| index <= 1.0), "{run}");
    assert!(run["cells"][0]["summary"]["p99_ns"].is_number());
}

/// Processes that this one has started, and theirs.
fn below(pid: u32) -> Vec<u32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let own: Vec<u32> = children.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    own.iter().copied().chain(own.iter().flat_map(|&child| below(child))).collect()
}

fn signal(signal: &str, pid: u32) {
    let done = Command::new("kill").args([signal, &pid.to_string()]).status().expect("kill");
    assert!(done.success());
}

/// A long measurement with its server and 2 clients, once they are there.
fn long(method: &str) -> (Child, Vec<u32>) {
    let child = serverload(&["--method", method, "--clients", "2", "-s", "1000", "--time", "100"], &[]).spawn();
    let child = child.expect("started");
    let begun = Instant::now();
    while below(child.id()).len() < 3 {
        assert!(begun.elapsed() < LIMIT, "nobody comes");
        std::thread::sleep(Duration::from_millis(10));
    }
    // A few rounds.
    std::thread::sleep(Duration::from_millis(500));
    let all = below(child.id());
    (child, all)
}

fn gone(all: &[u32]) {
    let lives =
        |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
    let begun = Instant::now();
    while all.iter().any(lives) {
        assert!(begun.elapsed() < Duration::from_secs(20), "{all:?} are left");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_server_that_dies_is_told_and_all_end() {
    for method in ["weir", "tcp", "sockets"] {
        let (child, all) = long(method);
        signal("-9", all[0]);
        let begun = Instant::now();
        let out = ended(child);
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{method}: {said}");
        assert!(
            said.contains("weir bench: the server at ")
                && said.contains("127.0.0.1:")
                && said.contains(": it ended (signal: 9"),
            "{method}: {said}"
        );
        assert!(begun.elapsed() < Duration::from_secs(20), "{method}: {:?}", begun.elapsed());
        gone(&all);
    }
}

#[test]
fn ctrl_c_ends_all_and_says_so() {
    let (child, all) = long("tcp");
    signal("-INT", child.id());
    let out = ended(child);
    assert_eq!(out.status.code(), Some(130), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("interrupted before the first cell was finished"), "{}", text(&out.stderr));
    gone(&all);
}

#[test]
fn who_leads_may_be_killed_and_nobody_is_left() {
    let (mut child, all) = long("weir");
    signal("-9", child.id());
    child.wait().expect("waited");
    gone(&all);
}

#[test]
fn what_cannot_be_is_told_in_one_line() {
    let cases: [(&[&str], i32, &str); 13] = [
        (&["--rate", "5"], 2, "--rate needs --loop open"),
        (&["--library", "/nonexistent.so"], 2, "--library /nonexistent.so: No such file"),
        (&["--library", "/bin/sh", "--method", "sockets"], 2, "has no use with plain sockets"),
        (&["--method", "nobody", "--clients", "2"], 1, "the server: listening at nobody://127.0.0.1:"),
        (&["--hosts", "x", "--agent", "false", "--clients", "2"], 1, "the server on x: it ended (exit status: 1)"),
        (&["--server", "weir://127.0.0.1"], 2, "--server weir://127.0.0.1: at which port?"),
        (&["--server", "127.0.0.1:4"], 2, "has no method; write METHOD://HOST:PORT"),
        (&["--server", "tcp://127.0.0.1:9", "--clients", "1"], 1, "client 1: "),
        (&["serve", "n1"], 2, "has no method; write METHOD://HOST:PORT"),
        (&["serve", "weir://127.0.0.1", "--for", "0"], 2, "--for is 0, it may be from 0.1"),
        (&["serve", "tcp://192.0.2.77"], 1, "a port at 192.0.2.77"),
        (&["serve", "nobody://127.0.0.1"], 1, "listening at nobody://127.0.0.1:"),
        (&["--address", "192.0.2.77", "--clients", "2", "--method", "tcp"], 1, "the server: a port at 192.0.2.77"),
    ];
    for (words, code, expected) in cases {
        let out = ended(serverload(words, &[]).spawn().expect("started"));
        let said = text(&out.stderr);
        assert!(out.status.code() == Some(code) && said.contains(expected), "{words:?}: {said}");
        // (A BMI library may say something besides.)
        assert_eq!(said.lines().filter(|line| !line.starts_with("weir-bmi: ")).count(), 1, "{words:?}: {said}");
    }
}

/// A server by itself, and where it says it serves.
fn serving(words: &[&str]) -> (Child, std::io::BufReader<std::process::ChildStdout>, String) {
    let mut child = serverload(&[&["serve"], words].concat(), &[]).spawn().expect("started");
    let mut said = std::io::BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    std::io::BufRead::read_line(&mut said, &mut line).expect("read");
    let url = line.trim_end().strip_prefix("serving at ").unwrap_or_else(|| panic!("{line}")).to_owned();
    (child, said, url)
}

#[test]
fn clients_of_several_commands_find_a_server_that_was_started_by_itself() {
    for method in ["weir", "tcp", "sockets"] {
        let (server, mut said, url) = serving(&[&format!("{method}://127.0.0.1")]);
        assert!(url.starts_with(&format!("{method}://127.0.0.1:")), "{url}");
        let folders = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
        let ask = |folder: &tempfile::TempDir| {
            let dir = folder.path().join("run");
            let words = ["--server", &url, "--clients", "2", "-s", "20000", "--rounds", "5", "-o"];
            serverload(&[&words[..], &[dir.to_str().expect("a name")]].concat(), &[]).spawn().expect("started")
        };
        for out in [ask(&folders[0]), ask(&folders[1])].map(ended) {
            assert!(out.status.success(), "{method}: {}", text(&out.stderr));
        }
        signal("-TERM", server.id());
        let out = ended(server);
        assert_eq!(out.status.code(), Some(0), "{method}: {}", text(&out.stderr));
        let mut last = String::new();
        std::io::Read::read_to_string(&mut said, &mut last).expect("read");
        // Two commands of two clients, each with a first request and six rounds at least.
        let requests: u32 = last
            .split_once(" requests in ")
            .and_then(|(said, _)| said.split_whitespace().last()?.parse().ok())
            .unwrap_or(0);
        assert!(requests >= 28 && last.contains(" us of processor time each"), "{method}: {last}");
        for folder in &folders {
            let run = Reader::open(folder.path().join("run")).expect("a run").into_run();
            let cell = &run.cells[0];
            let service = cell.service.as_ref().expect("a service");
            assert!(service.rounds >= 4 && service.server_cpu_ns.is_none(), "{method}: {service:?}");
            assert_eq!(cell.configuration.pairs, 2);
            let provider = if method == "sockets" { "sockets".to_owned() } else { format!("bmi_{method}") };
            assert_eq!(run.transport.provider, Some(provider));
        }
    }
}

#[test]
fn a_server_by_itself_ends_when_its_time_is_over() {
    let out =
        ended(serverload(&["serve", "sockets://127.0.0.1", "--for", "0.3", "--json"], &[]).spawn().expect("started"));
    assert!(out.status.success(), "{}", text(&out.stderr));
    let lines: Vec<serde_json::Value> =
        text(&out.stdout).lines().map(|line| serde_json::from_str(line).expect("a document")).collect();
    assert!(lines[0]["serving"].as_str().is_some_and(|url| url.starts_with("sockets://127.0.0.1:")), "{lines:?}");
    assert!(lines.len() == 2 && lines[1]["requests"] == 0 && lines[1]["cpu_ns"].is_null(), "{lines:?}");
}

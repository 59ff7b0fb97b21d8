//! `weir bsp`: measuring with processes of its own, and the ledger of a program whose traffic is
//! known: the one that measures.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use weir_bsp_tool::ledger;
use weir_bsp_tool::params::{Params, Pattern};

fn weir(words: &[&str], folder: &Path, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.current_dir(folder).args(words).envs(variables.iter().copied()).stdin(Stdio::null());
    command.output().expect("start")
}

fn said(out: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (out.status.code(), text(&out.stdout), text(&out.stderr))
}

/// Two processes over shared memory, few supersteps of each kind.
const QUICK: [&str; 12] =
    ["bsp", "params", "-n", "2", "--samples", "6", "--h", "4K,64K", "--blocks", "512,64K", "-q", "--json"];

#[test]
fn what_is_measured_on_shared_memory_is_finite_and_positive_and_its_file_reads_back() {
    let folder = tempfile::tempdir().unwrap();
    let shm = [("WEIR_CARRIER", "shm")];
    let words = [&QUICK[..], &["-o", "m.json", "--html", "m.html"]].concat();
    let measure = || {
        let (code, out, errors) = said(&weir(&words, folder.path(), &shm));
        assert_eq!((code, errors.as_str()), (Some(0), ""), "{out}");
        serde_json::from_str::<Value>(&out).expect("one document")
    };
    // Six samples of 4 and 64 KiB may say on a busy machine that more bytes take less time.
    let is_plausible = |document: &Value| document["machines"][0]["g_ns_per_byte"]["mean"].as_f64() > Some(0.0);
    let document = (0..4).map(|_| measure()).find(is_plausible).expect("bytes that take time");
    let machine = &document["machines"][0];
    for name in ["l_ns", "g_ns_per_byte", "s_ops_per_s"] {
        let spread = &machine[name];
        assert!(spread["mean"].as_f64().unwrap() > 0.0 && spread["sd"].as_f64().unwrap() >= 0.0, "{name}: {spread}");
    }
    let params = Params::read(&folder.path().join("m.json")).unwrap();
    let read = params.of(2).unwrap();
    assert_eq!((read.hosts, read.barrier_ns.len()), (1, 30));
    assert_eq!(machine["l_ns"]["mean"].as_f64(), Some(read.l_ns().mean));
    // Blocks are no longer than what two exchange: at 4 KiB one of 512 B and one of 4 KiB; random
    // runs are of a 32nd.
    let of = |pattern| read.relations.iter().filter(|relation| relation.pattern == pattern).count();
    assert_eq!(Pattern::ALL.map(of), [4, 4, 4, 4, 3]);
    assert!(std::fs::read_to_string(folder.path().join("m.html")).unwrap().ends_with("</html>\n"));
    // What is there is shown again without measuring, and another p is predicted.
    let (code, out, errors) =
        said(&weir(&["bsp", "params", "--from", "m.json", "--predict", "8", "--json"], folder.path(), &[]));
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    let again: Value = serde_json::from_str(&out).expect("one document");
    assert_eq!(again["machines"], document["machines"]);
    assert_eq!((&again["predictions"][0]["p"], &again["predictions"][0]["from"]), (&8.into(), &2.into()));
}

#[test]
fn the_report_of_a_ledger_has_the_traffic_that_is_known_and_the_prediction() {
    let folder = tempfile::tempdir().unwrap();
    let variables = [("WEIR_CARRIER", "shm"), ("WEIR_BSP_LEDGER", "run.jsonl")];
    let words = [&QUICK[..], &["-o", "m.json", "--patterns", "shift", "--by", "hpput,put,send"]].concat();
    let (code, out, errors) = said(&weir(&words, folder.path(), &variables));
    assert_eq!((code, errors.as_str()), (Some(0), ""), "{out}");
    let profile = ledger::read(&folder.path().join("run.jsonl")).unwrap();
    let shifts = profile.steps.iter().filter(|step| profile.place(step) == "params:shift" && step.h_bytes() > 0);
    let shifts: Vec<u64> = shifts.map(|step| step.h_bytes()).collect();
    // Two h in two lengths by three primitives: 5 supersteps before it counts, and 6 that do.
    assert_eq!(shifts.len(), 3 * 4 * 11);
    assert_eq!(shifts.iter().sum::<u64>(), 3 * 22 * (4096 + 65_536));
    // Of each h in blocks of 512 B, 8 and 128 messages of each process, and one in a block of its
    // own.
    let sent = profile.steps.iter().filter(|step| profile.place(step) == "params:shift");
    assert_eq!(sent.map(|step| step.letters).sum::<u64>(), 2 * 11 * (8 + 1 + 128 + 1));
    for step in &profile.steps {
        assert_eq!(step.out_bytes, step.in_bytes);
    }
    let report = ["bsp", "report", "run.jsonl", "--params", "m.json", "--html", "r.html"];
    let (code, text, errors) = said(&weir(&report, folder.path(), &[]));
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    assert!(text.contains("params:shift") && text.contains("predicted with l = "), "{text}");
    assert!(std::fs::read_to_string(folder.path().join("r.html")).unwrap().contains("Superstep profile"));
    let (_, out, _) = said(&weir(&[&report[..], &["--json"]].concat(), folder.path(), &[]));
    let document: Value = serde_json::from_str(&out).expect("one document");
    let places = document["runs"][0]["places"].as_array().unwrap();
    let shift = places.iter().find(|row| row["place"] == "params:shift").unwrap();
    assert_eq!(shift["out_bytes"], 2 * 3 * 22 * (4096 + 65_536));
    assert!(shift["predicted_cost_ns"].as_f64().unwrap() > 0.0);
}

#[test]
fn what_is_wrong_is_told_in_a_line() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("cut.jsonl"), "{\"weir_bsp_ledger\":1,\"processes\":2}\n{\"superstep\"").unwrap();
    std::fs::write(folder.path().join("no.json"), "{\"weir_bsp_params\":1}").unwrap();
    for (words, wanted) in [
        (&["bsp", "report", "cut.jsonl"][..], "weir: cut.jsonl:2: the file ends within this line"),
        (&["bsp", "report", "nothing"], "weir: cannot read nothing: No such file"),
        (&["bsp", "params", "--from", "no.json"], "weir: no.json:1:21: missing field `machines`"),
    ] {
        let (code, out, errors) = said(&weir(words, folder.path(), &[]));
        assert_eq!((code, out.as_str(), errors.lines().count()), (Some(1), "", 1), "{errors}");
        assert!(errors.starts_with(wanted) && errors.matches("os error").count() < 2, "{errors}");
    }
    for words in [&["bsp"][..], &["bsp", "params", "-n", "1"], &["bsp", "params", "--h", "4"], &["bsp", "report"]] {
        assert_eq!(said(&weir(words, folder.path(), &[])).0, Some(2), "{words:?}");
    }
}

#[test]
fn under_a_launcher_what_is_wrong_is_told_by_process_0() {
    let folder = tempfile::tempdir().unwrap();
    let words = ["bsp", "params", "-n", "2"];
    let of = |rank| said(&weir(&words, folder.path(), &[("PMI_RANK", rank), ("PMI_SIZE", "2"), ("PMI_FD", "9")]));
    let (code, out, errors) = of("0");
    assert!(code == Some(2) && out.is_empty() && errors.contains("leave -n out"), "{errors}");
    assert_eq!(of("1").2, "");
}

/// Without `-n` the processes are those that whoever starts them starts; `--append` adds to what
/// the file has.
#[test]
fn processes_that_somebody_else_starts_measure_together_and_the_file_is_added_to() {
    let folder = tempfile::tempdir().unwrap();
    let words = ["bsp", "params", "--samples", "5", "--h", "4K", "--blocks", "4K", "--patterns", "total", "-q"];
    for p in [2, 3] {
        let meet = folder.path().join(format!("meet{p}"));
        std::fs::create_dir(&meet).unwrap();
        let started = (0..p).map(|rank: u32| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
            command.current_dir(folder.path()).args(words).args(["-o", "m.json", "--append"]).stdin(Stdio::null());
            command
                .env("WEIR_BSP_RANK", rank.to_string())
                .env("WEIR_BSP_SIZE", p.to_string())
                .env("WEIR_BSP_MEET", &meet);
            // A key that all of them have, and nobody needs afterwards.
            command.env("WEIR_CARRIER", "shm").env("WEIR_KEY", "5e".repeat(32));
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start")
        });
        let started: Vec<_> = started.collect();
        for (rank, process) in started.into_iter().enumerate() {
            let (code, out, errors) = said(&process.wait_with_output().unwrap());
            assert_eq!((code, errors.as_str()), (Some(0), ""), "{rank}: {out}");
            // What came of it is process 0's to tell.
            assert_eq!(out.is_empty(), rank > 0, "{rank}: {out}");
        }
    }
    let params = Params::read(&folder.path().join("m.json")).unwrap();
    assert_eq!(params.machines.iter().map(|machine| machine.p).collect::<Vec<_>>(), [2, 3]);
}

#[test]
fn tune_measures_what_packets_carry_and_says_where_nothing_is_to_be_tuned() {
    let folder = tempfile::tempdir().unwrap();
    let words = ["tune", "-n", "2", "--h", "256K", "--queues", "32K,system", "--samples", "6", "--json", "-q"];
    let file = [&words[..], &["-o", "tune.sh"]].concat();
    let (code, out, errors) = said(&weir(&file, folder.path(), &[("WEIR_CARRIER", "udp")]));
    assert_eq!(code, Some(0), "{errors}");
    let value: Value = serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}"));
    let queues: Vec<&str> = value["trials"].as_array().unwrap().iter().filter_map(|t| t["queue"].as_str()).collect();
    assert_eq!(queues, ["32K", "auto", "system"]);
    assert!(
        value["trials"].as_array().unwrap().iter().all(|t| t["count"] == 6 && t["median_ns"].as_f64() > Some(0.0)),
        "{out}"
    );
    let chosen = value["chosen"].as_str().unwrap();
    let set = std::fs::read_to_string(folder.path().join("tune.sh")).unwrap();
    assert!(set.ends_with(&format!("\nexport WEIR_BSP_QUEUE={chosen}\n")), "{set}");
    let (code, out, errors) = said(&weir(&words, folder.path(), &[("WEIR_CARRIER", "shm")]));
    assert_eq!((code, out.as_str()), (Some(1), ""), "{errors}");
    assert!(errors.contains("share memory") && errors.lines().count() <= 2, "{errors}");
    let words = ["tune", "-n", "2", "--h", "256K", "--slots", "1500,100", "--samples", "6", "--json", "-q"];
    let (code, out, errors) = said(&weir(&words, folder.path(), &[("WEIR_CARRIER", "udp")]));
    assert_eq!(code, Some(0), "{errors}");
    let value: Value = serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}"));
    let trials = value["trials"].as_array().unwrap();
    let slots: Vec<&str> = trials.iter().filter_map(|t| t["slot"].as_str()).collect();
    assert_eq!((slots, value["variable"].as_str()), (vec!["none", "100", "1500"], Some("WEIR_BSP_SLOT")));
    // 256 KiB each way in packets of at most 9000 bytes, one in each cycle of two slots, half of a
    // cycle at least before the next: slots do hold back.
    let median = trials[2]["median_ns"].as_f64().unwrap();
    assert!(median > 0.5 * f64::from((256 << 10) / 9000) * 2.0 * 1.5e6, "{out}");
}

//! Programs beyond one behaviour each: the header in all dialects, Fortran, computing while
//! messages come, ledger and trace, days on which something goes wrong.

mod common;

use common::{Job, Lang, compile, compile_with, include};
use libtest_mimic::{Arguments, Failed, Trial};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

fn program(name: &str) -> Result<PathBuf, String> {
    compile(&source(&format!("more/{name}.c")), Lang::C)
}

fn sure(holds: bool, told: &str) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(told.into()) }
}

/// Programs of 1998, of MulticoreBSP, and of today compile without a warning, as C and as C++ of
/// all ages.
fn the_header_compiles_in_all_dialects() -> Result<(), Failed> {
    let cases: [(&str, &[&str]); 13] = [
        ("cc", &["-std=c89"]),
        ("cc", &["-std=c99"]),
        ("cc", &["-std=c11"]),
        ("cc", &["-std=c17", "-DMODERN"]),
        ("cc", &["-std=c99", "-DBSP_CLASSIC"]),
        ("cc", &["-std=c11", "-DBSP_CLASSIC"]),
        ("cc", &["-std=c11", "-DBSP_NO_PLACES"]),
        ("cc", &["-std=c89", "-DBSP_NO_PLACES"]),
        ("c++", &["-x", "c++", "-std=c++98"]),
        ("c++", &["-x", "c++", "-std=c++11", "-DMODERN"]),
        ("c++", &["-x", "c++", "-std=c++17", "-DMODERN"]),
        ("c++", &["-x", "c++", "-std=c++20", "-DMODERN"]),
        ("c++", &["-x", "c++", "-std=c++17", "-DBSP_CLASSIC"]),
    ];
    for (compiler, options) in cases {
        let mut command = Command::new(compiler);
        command.args(options).args(["-Wall", "-Wextra", "-pedantic", "-Werror", "-c", "-o", "/dev/null", "-I"]);
        let output = command.arg(include()).arg(source("more/dialects.c")).output()?;
        sure(output.status.success(), &format!("{compiler} {options:?}: {}", String::from_utf8_lossy(&output.stderr)))?;
    }
    let wrong = Command::new("cc")
        .args(["-DWRONG", "-c", "-o", "/dev/null", "-I"])
        .arg(include())
        .arg(source("more/dialects.c"))
        .output()?;
    sure(!wrong.status.success(), "a pointer to short is no pointer to a size")
}

fn fortran_programs_use_the_module() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let module = include().join("bsp.f90");
    let modules = ["-std=f2018", "-Wall", "-Wextra", "-Werror", "-c", "-o", "bsp.o"];
    let output = Command::new("gfortran").current_dir(folder.path()).args(modules).arg(module).output()?;
    sure(output.status.success(), &String::from_utf8_lossy(&output.stderr))?;
    let object = folder.path().join("bsp.o").display().to_string();
    let modules = format!("-I{}", folder.path().display());
    let program = compile_with(&source("ring.f90"), "gfortran", &["-std=f2018", &modules, &object], "f")?;
    for p in [1, 3] {
        let ended = Job::new(&program, p).env("WEIR_CARRIER", "shm").run();
        sure(ended.all_succeeded() && ended.said[0].0.trim() == p.to_string(), &ended.told())?;
    }
    Ok(())
}

/// How often the engines of a program's processes were told of a superstep, with this setting.
fn tellings(source_name: &str, carrier: &str, setting: Option<(&str, &str)>) -> Result<Vec<u64>, Failed> {
    fn sum(value: &serde_json::Value) -> u64 {
        match value {
            serde_json::Value::Object(fields) => {
                fields.iter().map(|(name, v)| if name == "supersteps" { v.as_u64().unwrap_or(0) } else { sum(v) }).sum()
            }
            serde_json::Value::Array(all) => all.iter().map(sum).sum(),
            _ => 0,
        }
    }
    let folder = tempfile::tempdir()?;
    let job = Job::new(&compile(&source(source_name), Lang::C)?, 3).env("WEIR_CARRIER", carrier);
    let job = setting.into_iter().fold(job, |job, (name, value)| job.env(name, value));
    let ended = job.env("WEIR_STATS", &folder.path().join("%p").display().to_string()).run();
    sure(ended.all_succeeded(), &ended.told())?;
    let mut told = Vec::new();
    for file in std::fs::read_dir(folder.path())? {
        let text = std::fs::read_to_string(file?.path())?;
        let value: serde_json::Value =
            serde_json::from_str(text.lines().last().unwrap_or("")).or_else(|_| serde_json::from_str(&text))?;
        sure(text.contains("\"supersteps\""), &text)?;
        told.push(sum(&value));
    }
    sure(told.len() == 3, &format!("{told:?}"))?;
    Ok(told)
}

/// Packets that carry much are told of, each superstep; shared memory and what is short never.
fn the_engine_is_told_of_supersteps_that_packets_carry() -> Result<(), Failed> {
    let auto = Some(("WEIR_BSP_QUEUE", "auto"));
    let much = tellings("c/large.c", "udp", auto)?;
    // Three rounds: messages, puts and what is got, in one body each or apart.
    sure(much.iter().all(|told| (3..=8).contains(told)), &format!("{much:?}"))?;
    sure(tellings("c/large.c", "shm", auto)? == [0; 3], "shared memory holds back by itself")?;
    let unasked = tellings("c/large.c", "udp", None)?;
    sure(unasked.iter().all(|told| *told < 3), &format!("where nobody asks only what is longer: {unasked:?}"))?;
    sure(tellings("c/put.c", "udp", auto)? == [0; 3], "what is short is not told of")
}

/// The lines of a program's ledger, as three processes with this setting write it.
fn ledger_of(
    program: &Path,
    arg: &str,
    carrier: &str,
    setting: (&str, &str),
) -> Result<Vec<serde_json::Value>, Failed> {
    let folder = tempfile::tempdir()?;
    let ledger = folder.path().join("ledger.jsonl");
    let job = Job::new(program, 3).arg(arg).env("WEIR_CARRIER", carrier).env(setting.0, setting.1);
    let ended = job.env("WEIR_BSP_LEDGER", &ledger.display().to_string()).run();
    sure(ended.all_succeeded() && ended.errors().is_empty(), &ended.told())?;
    let text = std::fs::read_to_string(&ledger)?;
    let lines: Vec<_> = text.lines().skip(1).map(serde_json::from_str).collect::<Result<_, _>>()?;
    sure(lines.len() > 3, &text)?;
    Ok(lines)
}

/// Where a slot is named, what packets carry of a long superstep goes in slots, and nothing else
/// does.
fn data_goes_in_slots_where_one_is_named() -> Result<(), Failed> {
    const SLOT_US: u64 = 2000;
    // Each of three processes sends three pieces in each of three rounds.
    const PIECE: u64 = 72 << 10;
    let slot = ("WEIR_BSP_SLOT", &*SLOT_US.to_string());
    let (large, short) = (compile(&source("c/large.c"), Lang::C)?, compile(&source("c/put.c"), Lang::C)?);
    let piece = PIECE.to_string();
    let number = |line: &serde_json::Value, name: &str| line[name].as_u64().unwrap_or(u64::MAX);
    let slotted = |line: &serde_json::Value| number(line, "slotted_bytes");
    let lines = ledger_of(&large, &piece, "udp", slot)?;
    let (long, rest): (Vec<_>, Vec<_>) = lines.iter().partition(|line| number(line, "out_bytes") == 3 * PIECE);
    let told = format!("{lines:?}");
    sure(long.len() == 9 && long.iter().all(|l| (3 * PIECE..3 * PIECE + 1024).contains(&slotted(l))), &told)?;
    sure(rest.iter().all(|line| slotted(line) == 0), &told)?;
    let others = [
        (&large, piece.as_str(), "udp", ("WEIR_BSP_QUEUE", "auto")),
        (&large, piece.as_str(), "shm", slot),
        (&short, "", "udp", slot),
    ];
    for (program, arg, carrier, setting) in others {
        let lines = ledger_of(program, arg, carrier, setting)?;
        sure(lines.iter().all(|line| slotted(line) == 0), &format!("{carrier}, {setting:?}: {lines:?}"))?;
    }
    // Who called first waits for all that its neighbour sends after that, a packet in each cycle of
    // three slots: this is a bound from below, which a busy machine cannot break. Half of the
    // cycles of packets of 9000 bytes; without slots it takes some milliseconds.
    let least_ns = 3 * (3 * PIECE / 9000) * 3 * SLOT_US * 1000 / 2;
    let took_ns = (0..3).filter_map(|pid| {
        let own: Vec<_> = long.iter().filter(|line| line["pid"] == pid).collect();
        Some(number(own.last()?, "ended_ns") - number(own.first()?, "called_ns"))
    });
    let took_ns = took_ns.max().unwrap_or(0);
    sure(took_ns >= least_ns, &format!("{took_ns} ns, less than the {least_ns} that so many cycles take"))
}

/// Many short puts take the packets that their bytes take, and few more.
fn many_short_puts_take_few_packets() -> Result<(), Failed> {
    const BYTES: u64 = 10_000 * 8;
    /// A packet carries a little more of them.
    const PACKET: u64 = 1400;
    /// Heads, grants, what a busy machine has sent twice.
    const FEW: u64 = 24;
    let lines = ledger_of(&program("many")?, "", "udp", ("WEIR_BSP_ORDER", "latin"))?;
    let number = |line: &serde_json::Value, name: &str| line[name].as_u64().unwrap_or(u64::MAX);
    let many: Vec<_> = lines.iter().filter(|line| number(line, "out_bytes") == BYTES).collect();
    sure(many.len() == 6, &format!("two supersteps of three processes: {lines:?}"))?;
    for line in many {
        // One after another in memory nothing but their bytes; in no order two bytes more each.
        let packed = if number(line, "superstep") == 1 { BYTES + 208 } else { BYTES + BYTES / 4 + 656 };
        // (All that comes comes in its superstep; what is sent may leave when it has ended.)
        let carry = number(line, "packets_received") - number(line, "acks_received");
        sure(carry <= packed.div_ceil(PACKET) + FEW, &format!("{carry} packets for {packed} bytes: {line}"))?;
    }
    Ok(())
}

/// A process that computes without a call is no hindrance to what others send it: they go on.
fn arrivals_are_taken_in_while_the_program_computes() -> Result<(), Failed> {
    for carrier in ["shm", "udp", "tcp"] {
        let ended = Job::new(&program("computes")?, 2).env("WEIR_CARRIER", carrier).run();
        sure(ended.all_succeeded() && ended.errors().is_empty(), &format!("{carrier}: {}", ended.told()))?;
    }
    Ok(())
}

fn settings_change_the_way_and_not_the_outcome() -> Result<(), Failed> {
    let program = compile(&source("c/random.c"), Lang::C)?;
    for (name, value) in [
        ("WEIR_BSP_ORDER", "ascending"),
        ("WEIR_BSP_ORDER", "random"),
        ("WEIR_BSP_HP_BYTES", "1"),
        ("WEIR_BSP_HP_BYTES", "1G"),
        ("WEIR_FAULTS", "loss=3%,dup=1%"),
    ] {
        let ended = Job::new(&program, 4).env(name, value).run();
        sure(ended.all_succeeded() && ended.errors().is_empty(), &format!("{name}={value}: {}", ended.told()))?;
    }
    let wrong = Job::new(&program, 1).env("WEIR_BSP_ORDER", "best").run();
    let text = "WEIR_BSP_ORDER: 'best' is none of latin, ascending, random";
    sure(wrong.none_well() && wrong.errors().len() == 1 && wrong.errors()[0].contains(text), &wrong.told())?;
    let unknown = Job::new(&program, 2).env("WEIR_BSP_CHEK", "1").run();
    let lines = unknown.errors();
    sure(unknown.all_succeeded() && lines.len() == 1 && lines[0].contains("WEIR_BSP_CHEK"), &unknown.told())
}

fn the_ledger_has_a_line_for_each_superstep_and_the_trace_opens() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let (ledger, trace) = (folder.path().join("ledger.jsonl"), folder.path().join("trace.json"));
    let program = compile(&source("c/put.c"), Lang::C)?;
    let job = Job::new(&program, 3).env("WEIR_BSP_LEDGER", &ledger.display().to_string());
    let ended = job.env("WEIR_TRACE", &trace.display().to_string()).run();
    sure(ended.all_succeeded() && ended.errors().is_empty(), &ended.told())?;
    let text = std::fs::read_to_string(&ledger)?;
    let lines: Vec<serde_json::Value> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    sure(lines[0]["weir_bsp_ledger"] == 1 && lines[0]["processes"] == 3, &text)?;
    // Three processes, two bsp_sync and bsp_end.
    sure(lines.len() == 10, &text)?;
    let puts: Vec<_> = lines.iter().filter(|line| line["superstep"] == 1).collect();
    for (pid, line) in puts.iter().enumerate() {
        let numbers = ["begun_ns", "called_ns", "met_ns", "ended_ns"].map(|name| line[name].as_u64());
        sure(numbers.is_sorted() && line["pid"] == pid, &line.to_string())?;
        sure(line["out_bytes"] == 8 && line["in_bytes"] == 8 && line["out_partners"] == 2, &line.to_string())?;
        sure(line["place"] == "put.c:19", &line.to_string())?;
    }
    let trace: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&trace)?)?;
    let events = trace["traceEvents"].as_array().ok_or("no events")?;
    sure(events.len() == 3 * (2 + 3 * 3) + 1, &trace.to_string())?;
    // Viewers leave out what begins before 0.
    sure(events.iter().all(|e| e["ph"] == "M" || e["ts"].as_f64().is_some_and(|ts| ts >= 0.0)), &trace.to_string())
}

/// Where there are many, heads go in rounds: whatever the pattern, and whether a round fits into
/// one message.
fn many_processes_hear_of_each_other_in_rounds() -> Result<(), Failed> {
    let program = program("rounds")?;
    let by_messages = [("shm", 5), ("shm", 8), ("shm", 13), ("shm", 64), ("udp", 6), ("udp", 9), ("tcp", 7)];
    let cases = by_messages.map(|(carrier, p)| (carrier, p, "0"));
    for (carrier, p, board) in cases.into_iter().chain([("shm", 13, "1"), ("shm", 64, "1")]) {
        let ended = Job::new(&program, p).env("WEIR_CARRIER", carrier).env("WEIR_BSP_BOARD", board).run();
        sure(ended.all_succeeded() && ended.errors().is_empty(), &format!("{p} over {carrier}: {}", ended.told()))?;
    }
    let ended = Job::new(&program, 7).env("WEIR_CARRIER", "udp").env("WEIR_FAULTS", "loss=3%,dup=1%").run();
    sure(ended.all_succeeded() && ended.errors().is_empty(), &ended.told())
}

/// One process ends by a signal: all others end with it, one of them says why, and nothing is left.
fn a_killed_process_ends_all() -> Result<(), Failed> {
    let cases = [("waits", "shm"), ("waits", "udp"), ("waits", "tcp"), ("empty", "shm")];
    for (name, carrier) in cases {
        for (victim, p) in [(0, 3), (2, 3), (5, 7)] {
            let job = Job::new(&program(name)?, p).env("WEIR_CARRIER", carrier).env("WEIR_PEER_TIMEOUT_MS", "1500");
            let running = job.start();
            running.until_said(p, "ready")?;
            running.signal(victim, libc::SIGKILL);
            let ended = running.wait();
            let lines = ended.errors();
            let others_failed =
                ended.status.iter().enumerate().all(|(pid, s)| pid == victim || s.is_some_and(|s| s.code() == Some(1)));
            let text = format!("process {victim} is gone, without bsp_end");
            sure(
                others_failed && lines.len() == 1 && lines[0].contains(&text),
                &format!("{name} over {carrier}: {}", ended.told()),
            )?;
        }
    }
    Ok(())
}

/// More processes than cores, and a process that is stopped for a while: the others wait, and go on
/// with it.
fn processes_of_a_host_meet_without_messages() -> Result<(), Failed> {
    let all = compile(&source("c/board.c"), Lang::C)?;
    for (p, board) in [(7, "1"), (3, "0"), (2, "0")] {
        let ended = Job::new(&all, p).env("WEIR_BSP_BOARD", board).run();
        sure(ended.all_succeeded() && ended.errors().is_empty(), &format!("{p}, {board}: {}", ended.told()))?;
    }
    // What went by messages from superstep 3 on: with a board hardly anything.
    let folder = tempfile::tempdir()?;
    let records = |board: &str| -> Result<u64, Failed> {
        let ledger = folder.path().join(board);
        let job = Job::new(&program("rounds")?, 3).env("WEIR_BSP_BOARD", board).env("WEIR_CARRIER", "shm");
        let ended = job.env("WEIR_BSP_LEDGER", &ledger.display().to_string()).run();
        sure(ended.all_succeeded() && ended.errors().is_empty(), &ended.told())?;
        let text = std::fs::read_to_string(&ledger)?;
        let lines = text.lines().skip(1).map(serde_json::from_str::<serde_json::Value>);
        let sent = lines.map(|line| line.map(|l| (l["superstep"].as_u64(), l["records_sent"].as_u64())));
        let sent = sent.collect::<Result<Vec<_>, _>>()?;
        Ok(sent.iter().filter(|(at, _)| at.is_some_and(|at| at >= 3)).filter_map(|(_, sent)| *sent).sum())
    };
    let (on, off) = (records("1")?, records("0")?);
    sure(on < 20 && off > 200, &format!("{on} records with a board, {off} without"))?;
    let checked = Job::new(&all, 3).env("WEIR_BSP_CHECK", "1").run();
    sure(checked.all_succeeded(), &checked.told())?;
    let running = Job::new(&program("empty")?, 3).arg("2").start();
    running.until_said(3, "ready")?;
    running.signal(1, libc::SIGSTOP);
    std::thread::sleep(Duration::from_secs(1));
    running.signal(1, libc::SIGCONT);
    let ended = running.wait();
    sure(ended.all_succeeded() && ended.errors().is_empty(), &ended.told())
}

/// What a process writes into memory that it shares harms nobody but the program.
fn who_scribbles_on_the_board_ends_the_program() -> Result<(), Failed> {
    for (p, where_) in [(2, "lines"), (3, "lines"), (2, "rows"), (3, "rows")] {
        let ended = Job::new(&program("scribbles")?, p).arg(where_).env("WEIR_CARRIER", "shm").run();
        let all_failed = ended.status.iter().all(|s| s.is_some_and(|s| s.code() == Some(1)));
        sure(all_failed && !ended.errors().is_empty(), &format!("{p}, {where_}: {}", ended.told()))?;
    }
    Ok(())
}

/// One that is stopped is given up in bounded time by the others. (On one host the system knows
/// that it lives: by packets it is silent.)
fn a_frozen_process_ends_all_others() -> Result<(), Failed> {
    let job = Job::new(&program("waits")?, 3).env("WEIR_CARRIER", "udp").env("WEIR_PEER_TIMEOUT_MS", "1500");
    let running = job.start();
    running.until_said(3, "ready")?;
    running.signal(1, libc::SIGSTOP);
    let ended = running.wait_for(&[0, 2]);
    sure([0, 2].iter().all(|pid| ended.status[*pid].is_some_and(|s| s.code() == Some(1))), &ended.told())?;
    sure(ended.errors().iter().any(|line| line.contains("process 1 is gone")), &ended.told())
}

fn processes_that_do_not_come_are_not_waited_for_for_ever() -> Result<(), Failed> {
    let ended = Job::new(&program("waits")?, 2).env("WEIR_LAUNCH_TIMEOUT", "1").of_size(3).run();
    sure(ended.none_well() && ended.errors().iter().all(|line| line.contains("process 2 has not come")), &ended.told())
}

fn another_program_in_the_job_is_refused() -> Result<(), Failed> {
    let own = env!("CARGO_PKG_VERSION");
    // Puts came otherwise in messages of version 2.
    for (wire, version) in [("1", "0.0.9"), ("2", own)] {
        let running = Job::new(&program("waits")?, 1).of_size(2).start();
        let (unfinished, whole) = (running.meeting().join("1.part"), running.meeting().join("0.1"));
        std::fs::write(&unfinished, format!("weir-bsp\n{wire}\n{version}\n2\n0\nhost"))?;
        std::fs::rename(unfinished, whole)?;
        let ended = running.wait();
        let wanted = format!("process 1 runs version {version} of the library with messages of version {wire}, ");
        sure(ended.none_well() && ended.errors()[0].contains(&wanted), &ended.told())?;
    }
    Ok(())
}

fn main() {
    let fortran = Command::new("gfortran").arg("--version").output().is_ok();
    let trials = vec![
        Trial::test("the header compiles in all dialects", the_header_compiles_in_all_dialects),
        Trial::test("Fortran programs use the module", fortran_programs_use_the_module).with_ignored_flag(!fortran),
        Trial::test(
            "arrivals are taken in while the program computes",
            arrivals_are_taken_in_while_the_program_computes,
        ),
        Trial::test(
            "the engine is told of supersteps that packets carry",
            the_engine_is_told_of_supersteps_that_packets_carry,
        ),
        Trial::test("data goes in slots where one is named", data_goes_in_slots_where_one_is_named),
        Trial::test("many short puts take few packets", many_short_puts_take_few_packets),
        Trial::test("settings change the way and not the outcome", settings_change_the_way_and_not_the_outcome),
        Trial::test(
            "the ledger has a line for each superstep, and the trace opens",
            the_ledger_has_a_line_for_each_superstep_and_the_trace_opens,
        ),
        Trial::test("many processes hear of each other in rounds", many_processes_hear_of_each_other_in_rounds),
        Trial::test("a killed process ends all", a_killed_process_ends_all),
        Trial::test("processes of a host meet without messages", processes_of_a_host_meet_without_messages),
        Trial::test("who scribbles on the board ends the program", who_scribbles_on_the_board_ends_the_program),
        Trial::test("a frozen process ends all others", a_frozen_process_ends_all_others),
        Trial::test(
            "processes that do not come are not waited for for ever",
            processes_that_do_not_come_are_not_waited_for_for_ever,
        ),
        Trial::test("another version in the job is refused", another_program_in_the_job_is_refused),
    ];
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(1);
    libtest_mimic::run(&arguments, trials).exit();
}

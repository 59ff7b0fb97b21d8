//! The command, with a compiler, a launcher and programs that are scripts: what a run leaves is
//! read, kept or told.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use clap::Parser as _;
use weir_record::cli::{RecordArgs, run};
use weir_record::log::{Call, Event, Recording};

#[derive(clap::Parser)]
struct Line {
    #[command(flatten)]
    args: RecordArgs,
}

/// A folder with scripts in place of an MPI, and recordings that its programs leave.
struct Lab {
    folder: tempfile::TempDir,
}

fn recording(rank: u64, size: u64, run: u64) -> Recording {
    let barrier = Call::Collective { kind: 0, bytes: 0, root: -1, comm: 0, request: None };
    let events = [barrier, Call::Finalize].map(|call| Event { site: 0, before_ns: 0, inside_ns: 0, call }).into();
    Recording { rank, size, run, events, ..Recording::default() }
}

impl Lab {
    fn new() -> Self {
        let lab = Self { folder: tempfile::tempdir().unwrap() };
        lab.script("mpicc", "exit 0");
        // -n COUNT env LD_PRELOAD=... WEIR_RECORD_DIR=... PROGRAM ARGUMENTS
        lab.script("mpiexec", "export COUNT=$2; shift 4; for w; do case $w in WEIR_*) export \"$w\"; shift;; *) break;; esac; done; exec \"$@\"");
        for count in [2, 3] {
            fs::create_dir(lab.at(&format!("left{count}"))).unwrap();
            for rank in 0..count {
                let file = lab.at(&format!("left{count}/rank-{rank}.weirrec"));
                fs::write(file, recording(rank, count, 9).written()).unwrap();
            }
        }
        lab.script("program", &format!("cp {}/left$COUNT/* $WEIR_RECORD_DIR", lab.at("").display()));
        lab
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn script(&self, name: &str, text: &str) {
        fs::write(self.at(name), format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(self.at(name), fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Runs the command; what it says if it fails, which never has a folder of its own making in
    /// it.
    fn record(&self, words: &[&str]) -> Result<String, String> {
        let model = self.at("model.txt");
        let _ = fs::remove_file(&model);
        let mut line: Vec<String> = vec!["record".into(), "-o".into(), model.display().to_string()];
        for (option, file) in [("--compiler", "mpicc"), ("--launcher", "mpiexec")] {
            line.extend([option.to_owned(), self.at(file).display().to_string()]);
        }
        line.extend(words.iter().map(|w| (*w).to_owned()));
        let ended = run(&Line::try_parse_from(line).map_err(|e| e.to_string())?.args);
        ended.map_err(|error| {
            let said = error.to_string();
            assert!(!said.contains('\n') && !said.contains("/runs/") && !said.contains("librecorder"), "{said}");
            said
        })?;
        Ok(fs::read_to_string(&model).unwrap_or_default())
    }

    fn program(&self, counts: &str) -> Result<String, String> {
        self.record(&["-n", counts, "--", &self.at("program").display().to_string()])
    }
}

#[test]
fn what_a_run_leaves_becomes_a_model() {
    let text = Lab::new().program("2,3").unwrap();
    assert!(text.contains("Recorded with 2, 3 processes") && text.contains("MPI_Barrier"), "{text}");
}

#[test]
fn recordings_are_kept_where_that_is_asked_for_and_those_of_before_go() {
    let lab = Lab::new();
    let (runs, program) = (lab.at("runs").display().to_string(), lab.at("program").display().to_string());
    fs::create_dir_all(lab.at("runs/3")).unwrap();
    fs::write(lab.at("runs/3/rank-7.weirrec"), "of before").unwrap();
    fs::write(lab.at("runs/3/notes.txt"), "mine").unwrap();
    let made = lab.record(&["-n", "2,3", "--keep", &runs, "--", &program]).unwrap();
    let names = |folder: &Path| {
        let mut names: Vec<String> =
            fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&lab.at("runs")), ["2", "3"]);
    assert_eq!(names(&lab.at("runs/3")), ["notes.txt", "rank-0.weirrec", "rank-1.weirrec", "rank-2.weirrec"]);
    // The same model comes of what was kept.
    let again = lab.record(&["--from", &runs]).unwrap();
    assert_eq!(made.lines().skip(1).collect::<Vec<_>>(), again.lines().skip(1).collect::<Vec<_>>());
    // Twice the same count says so.
    let said = lab.record(&["--from", &runs, "--from", &lab.at("left2").display().to_string()]).unwrap_err();
    assert!(said.contains("two runs with 2 processes"), "{said}");
}

#[test]
fn where_nothing_can_be_written_nothing_is_run() {
    let lab = Lab::new();
    lab.script("program", &format!("touch {}", lab.at("ran").display()));
    let program = lab.at("program").display().to_string();
    let run_with = |words: &[&str]| {
        let mut line: Vec<String> = vec!["record".into()];
        for (option, file) in [("--compiler", "mpicc"), ("--launcher", "mpiexec")] {
            line.extend([option.to_owned(), lab.at(file).display().to_string()]);
        }
        line.extend(words.iter().map(|w| w.replace("LAB", &lab.at("").display().to_string())));
        line.extend(["--".to_owned(), program.clone()]);
        run(&Line::try_parse_from(line).unwrap().args).unwrap_err().to_string()
    };
    for (words, said) in [
        (["-o", "LAB/nosuch/x"], "cannot write"),
        (["-o", "LAB"], "cannot write"),
        (["--check", "LAB/nosuch"], "cannot read"),
        (["--check", "LAB/program"], "is no model"),
    ] {
        let told = run_with(&words);
        assert!(told.contains(said), "{told}");
        assert!(!lab.at("ran").exists(), "{told}");
    }
    // What is there stays as it is when the program fails.
    fs::write(lab.at("before"), "of before").unwrap();
    run_with(&["-o", "LAB/before"]);
    assert!(lab.at("ran").exists());
    assert_eq!(fs::read(lab.at("before")).unwrap(), b"of before");
}

#[test]
fn programs_that_fail_or_never_finish_are_told_with_their_count() {
    let lab = Lab::new();
    let said = |program: &str| {
        lab.script("program", program);
        lab.program("2").unwrap_err()
    };
    let copy = format!("cp {}/left2/* $WEIR_RECORD_DIR", lab.at("").display());
    let cut = "head -c 14 $WEIR_RECORD_DIR/rank-1.weirrec > x && mv x $WEIR_RECORD_DIR/rank-1.weirrec";
    let cut = cut.replace(" x ", &format!(" {} ", lab.at("x").display()));
    for (program, what) in [
        // MPI_Abort: the launcher says that it failed.
        (format!("{copy}; exit 7"), "the program failed with 2 processes"),
        ("exit 0".to_owned(), "with 2 processes: nothing was recorded: did the program call MPI_Init"),
        (format!("{copy}; {cut}"), "with 2 processes: rank-1.weirrec ends early"),
        (format!("{copy}; rm $WEIR_RECORD_DIR/rank-0*"), "with 2 processes: no recording of process 0 of 2"),
        (format!("{copy}; echo > $WEIR_RECORD_DIR/rank-0.weirrec"), "with 2 processes: rank-0.weirrec is no recording"),
    ] {
        let said = said(&program);
        assert!(said.contains(what), "{said}: {what} was meant");
    }
    lab.script("program", "exec sleep 30");
    let said = lab.record(&["-n", "2", "--limit", "1", "--", &lab.at("program").display().to_string()]).unwrap_err();
    assert!(said.contains("still running with 2 processes after 1 s"), "{said}");
}

#[test]
fn folders_that_are_damaged_are_told_by_the_name_they_were_given() {
    let lab = Lab::new();
    let folder = lab.at("left3");
    let shown = folder.display().to_string();
    let said = || lab.record(&["--from", &shown]).unwrap_err();
    let whole = fs::read(lab.at("left3/rank-1.weirrec")).unwrap();
    fs::write(lab.at("left3/rank-1.weirrec"), &whole[..whole.len() - 1]).unwrap();
    assert!(said().starts_with(&format!("{shown}/rank-1.weirrec ends early, at byte")), "{}", said());
    fs::write(lab.at("left3/rank-1.weirrec"), recording(1, 3, 10).written()).unwrap();
    assert_eq!(said(), format!("{shown}: recordings of different runs: those of processes 0 and 1"));
    fs::write(lab.at("left3/rank-1.weirrec"), recording(1, 4, 9).written()).unwrap();
    assert!(said().contains("one of 3 processes and one of 4"), "{}", said());
    fs::remove_file(lab.at("left3/rank-1.weirrec")).unwrap();
    assert_eq!(said(), format!("{shown}: no recording of process 1 of 3"));
    fs::write(lab.at("left3/rank-1.weirrec"), recording(2, 3, 9).written()).unwrap();
    assert_eq!(said(), format!("{shown}: no recording of process 1 of 3"));
    fs::write(lab.at("left3/rank-1.weirrec"), &whole).unwrap();
    assert!(lab.record(&["--from", &shown]).is_ok());
    let empty = lab.at("").join("nothing");
    fs::create_dir(&empty).unwrap();
    let said = lab.record(&["--from", &empty.display().to_string()]).unwrap_err();
    assert!(said.starts_with(&format!("{} holds no recordings", empty.display())), "{said}");
    let said = lab.record(&["--from", &lab.at("absent").display().to_string()]).unwrap_err();
    assert!(said.starts_with("cannot read ") && said.contains("absent"), "{said}");
}

#[test]
fn a_compiler_that_fails_names_the_source_alone() {
    let lab = Lab::new();
    lab.script("mpicc", "echo \"$4:12: error: no mpi.h\" >&2; exit 1");
    let said = lab.program("2").unwrap_err();
    assert!(
        said.contains("cannot compile the recorder") && said.contains(": recorder.c:12: error: no mpi.h"),
        "{said}"
    );
}

#[test]
fn what_is_read_is_not_overwritten() {
    let lab = Lab::new();
    let (folder, file) = (lab.at("left2"), lab.at("left2/rank-0.weirrec"));
    let before = fs::read(&file).unwrap();
    let line =
        ["record", "--from", &folder.display().to_string(), "-o", &file.display().to_string()].map(str::to_owned);
    let said = run(&Line::try_parse_from(line).unwrap().args).unwrap_err().to_string();
    assert!(said.contains("rank-0.weirrec: not overwritten: it is read"), "{said}");
    assert_eq!(fs::read(&file).unwrap(), before);
}

#[test]
fn what_is_no_model_and_what_is_no_library_is_named() {
    let lab = Lab::new();
    let run_with = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(|w| w.replace("LAB", &lab.at("").display().to_string())).collect();
        let mpicc = lab.at("mpicc").display().to_string();
        let line = ["record".to_owned(), "--compiler".to_owned(), mpicc].into_iter().chain(words);
        run(&Line::try_parse_from(line).unwrap().args).map_err(|e| e.to_string())
    };
    fs::write(lab.at("letter"), "Dear Sir,\n").unwrap();
    let said = run_with(&["--from", "LAB/left2", "--check", "LAB/letter"]).unwrap_err();
    assert!(said.contains("letter is no model: line 1"), "{said}");
    let said = run_with(&["--library", "LAB/letter"]).unwrap_err();
    assert!(said.contains("letter: not overwritten"), "{said}");
    assert!(run_with(&["--library", "/dev/null"]).unwrap_err().contains("not overwritten"));
    assert_eq!(fs::read(lab.at("letter")).unwrap(), b"Dear Sir,\n");
    fs::write(lab.at("old.so"), b"\x7fELF and more").unwrap();
    assert_eq!(run_with(&["--library", "LAB/old.so"]), Ok(0));
    assert_eq!(run_with(&["--library", "LAB/new.so"]), Ok(0));
}

//! Methods from outside (spec/bmi.md 13): modules in C, built out of tree against the headers, some
//! of them wrong.

mod common;

use common::{Program, build, module};
use std::path::{Path, PathBuf};
use weir_bmi::codes::Code;

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of this project")
}

fn mock() -> PathBuf {
    module("bmi_mock", &[])
}

fn run(args: &[&str]) -> String {
    said(args, &[])
}

/// Runs a case of `modules.c`. What it said to people.
fn said(args: &[&str], vars: &[(&str, &str)]) -> String {
    // (A module that does not listen is given up soon.)
    let vars = [&[("WEIR_PEER_TIMEOUT_MS", "300")], vars].concat();
    Program::new(&build("modules", &["-ldl"]), args).vars(&vars).passes_saying()
}

/// F17, F18.
#[test]
fn a_module_serves_every_function_of_the_interface() {
    assert_eq!(run(&["conversation", text(&mock())]), "");
}

#[test]
fn a_module_wakes_who_sleeps_and_one_without_descriptor_is_looked_at() {
    run(&["sleeping", text(&mock()), "1"]);
    run(&["sleeping", text(&module("bmi_nofd", &["-DMOCK_NO_FD"])), "0"]);
}

/// F14, L6.
#[test]
fn two_modules_are_asked_in_the_order_of_the_list() {
    run(&["two", text(&mock()), text(&module("bmi_other", &["-DMOCK_SCHEME=\"other\""]))]);
}

/// F13, L3, L5.
#[test]
fn a_bad_module_undoes_all_that_came_before_it() {
    let (good, second) = (mock(), module("bmi_other", &["-DMOCK_SCHEME=\"other\""]));
    let unwinds = |bad: &Path, code: Code| {
        said(&["unwinding", text(&good), text(&second), text(bad), &(-code.0).to_string()], &[])
    };
    let lines = unwinds(&module("bmi_lacks", &["-DMOCK_LACKS"]), Code::ENOSYS);
    assert!(lines.contains("it lacks BMI_method_cancel\n"), "{lines}");
    let lines = unwinds(&module("bmi_old", &["-DMOCK_VERSION=99"]), Code::EPROTONOSUPPORT);
    assert!(lines.contains("of version 99"), "{lines}");
    let lines = unwinds(&module("bmi_refuses", &["-DMOCK_REFUSES=-BMI_EBUSY"]), Code::EBUSY);
    assert!(lines.contains("bmi_refuses does not begin: BMI_EBUSY"), "{lines}");
    unwinds(&module("bmi_nomem", &["-DMOCK_REFUSES=-12"]), Code::ENOMEM);
    unwinds(&module("bmi_odd", &["-DMOCK_REFUSES=-123456789"]), Code::EIO);
    unwinds(Path::new("/no/such/bmi_module.so"), Code::ENOPROTOOPT);
    unwinds(Path::new("bmi_nowhere"), Code::ENOPROTOOPT);
}

/// E1, E2.
#[test]
fn what_a_module_returns_wrongly_is_not_believed() {
    let lines = run(&["garbage", text(&module("bmi_garbage", &["-DMOCK_GARBAGE"]))]);
    let complaints = lines.lines().filter(|line| line.contains("bmi_garbage is not to be trusted")).count();
    assert_eq!(complaints, 7, "{lines}");
}

/// L1, L2, L4.
#[test]
fn modules_are_found_by_name_in_the_folders_that_are_named() {
    let mock = mock();
    let folder = text(mock.parent().expect("a folder"));
    let vars = [("WEIR_BMI_MODULES", format!("/no/such/folder:{folder}"))];
    let vars = vars.each_ref().map(|(name, value)| (*name, value.as_str()));
    said(&["by-name", "bmi_mock"], &vars);
    // Twice, and once more by its file.
    said(&["by-name", &format!("bmi_mock, bmi_mock ,{}", text(&mock))], &vars);
    let linked = mock.with_file_name("bmi_samefile.so");
    let _ = std::fs::remove_file(&linked);
    std::os::unix::fs::symlink(&mock, &linked).expect("a link");
    said(&["by-name", &format!("bmi_mock,{}", text(&linked))], &vars);
    let refused = |list: &str, code: Code, vars: &[_]| said(&["refused", list, &(-code.0).to_string()], vars);
    refused("bmi_mock", Code::ENOPROTOOPT, &[]);
    refused("mock", Code::ENOPROTOOPT, &vars);
    refused("/etc/hostname", Code::ENOPROTOOPT, &vars);
    run(&["nowhere", text(&mock)]);
}

/// F31.
#[test]
fn a_module_begins_and_ends_again_and_again() {
    run(&["again", text(&mock())]);
}

/// F19, F20.
#[test]
fn lists_allocators_ids_and_gossip_do_what_those_of_the_originals_do() {
    let program = build("support", &[]);
    Program::new(&program, &[env!("CARGO_TARGET_TMPDIR")]).passes();
}

#[test]
fn a_program_that_brings_its_own_support_functions_and_a_module_do_not_meet() {
    let program = build("theirs", &["-rdynamic"]);
    Program::new(&program, &[text(&mock())]).passes();
}

/// The headers are of use in C++ too.
#[test]
fn the_headers_are_understood_by_a_compiler_of_cpp() {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("headers.cpp");
    let text = "#include <bmi-support.h>\nint main() { gossip_debug(1, \"%d\\n\", 1); return BMI_method_version; }\n";
    std::fs::write(&source, text).expect("written");
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include");
    let done = std::process::Command::new("c++")
        .args(["-std=c++11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I"])
        .args([&include, &source])
        .output()
        .expect("c++");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

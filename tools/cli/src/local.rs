//! `weir run` for programs that use Weir without an MPI: their ranks are started on this machine by
//! Weir itself.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::json;
use weir_job::launch::Limits;
use weir_job::ranks::{self, Start};
use weir_job::{Env, JobKey};
use weir_mpi::elf;

use crate::args::{RanksArgs, RunArgs};
use crate::commands::{print_all, print_json};
use crate::{environment, shell};

/// The library of a Weir interface that a program is linked with: one that finds its ranks itself,
/// unlike the provider for MPIs.
pub fn face_of(program: &Path, env: &Env) -> Option<String> {
    if !elf::is_elf(program) {
        return None;
    }
    let search = elf::path_list(env.get("LD_LIBRARY_PATH").map(OsString::as_os_str));
    elf::libraries(program, &search).into_iter().map(|library| library.name).find(|name| is_face(name))
}

/// Whether it is `weir bsp`: this program itself, which has the BSP face in it.
pub fn is_own_bsp(program: &Path, words: &[OsString]) -> bool {
    let real = |file: &Path| file.canonicalize().ok();
    let own = std::env::current_exe().ok().and_then(|file| real(&file));
    words.get(1).is_some_and(|word| word == "bsp") && own.is_some() && own == real(program)
}

fn is_face(library: &str) -> bool {
    let name = library.rsplit('/').next().unwrap_or(library);
    name.starts_with("libweir-") && !name.starts_with("libweir-fi")
}

/// Starts the ranks and waits for them, below a process that leaves nothing behind.
///
/// # Errors
/// If they cannot be started.
pub fn run(env: &Env, args: &RunArgs, program: &Path) -> Result<u8> {
    if !args.launcher_arg.is_empty() {
        bail!("--launcher-arg: the program is started by weir run itself, not by another launcher");
    }
    Limits::from_env(env)?;
    key(env)?;
    let mut command = Command::new(this_program()?);
    command.arg0("weir").args(["run-ranks", "-n", &args.ranks.to_string()]);
    if args.tag_output {
        command.arg("--tag-output");
    }
    command.arg("--").arg(program).args(args.program.iter().skip(1));
    if args.dry_run {
        return show(&command, args.json);
    }
    ranks::guard(&mut command).with_context(|| format!("cannot start {}", program.display()))
}

/// Starts this program itself as the ranks, with these words, and waits for them.
///
/// # Errors
/// If they cannot be started.
pub fn run_own(env: &Env, ranks: u32, words: &[OsString]) -> Result<u8> {
    Limits::from_env(env)?;
    key(env)?;
    let own = this_program()?;
    let mut command = Command::new(&own);
    command.arg0("weir").args(["run-ranks", "-n", &ranks.to_string(), "--"]).arg(&own).args(words);
    ranks::guard(&mut command).with_context(|| format!("cannot start {ranks} processes"))
}

/// The process below: starts the ranks, answers them, ends them.
///
/// # Errors
/// If a rank cannot be started, or a variable has no usable value.
pub fn run_ranks(env: &Env, args: RanksArgs) -> Result<u8> {
    // Its file may be named otherwise (/proc/self/exe); ranks look for their launcher by this name.
    let _ = nix::sys::prctl::set_name(c"weir");
    let mut words = args.program.into_iter();
    let program = words.next().map(PathBuf::from).context("no program")?;
    let start = Start {
        program,
        arguments: words.collect(),
        ranks: args.ranks,
        key: key(env)?,
        id: format!("weir-{}", std::process::id()),
        tag_output: args.tag_output,
        limit: Limits::from_env(env)?.others.max(Duration::from_secs(1)),
    };
    Ok(ranks::run(&start, &mut |line| ranks::say(format_args!("weir: {line}")))?)
}

/// The key that the user named for all runs, or one for this run.
fn key(env: &Env) -> Result<JobKey> {
    let named = ["WEIR_KEY", "WEIR_KEY_FILE"].iter().any(|name| env.get(name).is_some());
    Ok(if named { environment::key(env)? } else { JobKey::for_one_run()? })
}

fn this_program() -> Result<PathBuf> {
    let file = std::env::current_exe().context("cannot find this program's own file")?;
    // It may have been replaced meanwhile.
    Ok(if file.exists() { file } else { "/proc/self/exe".into() })
}

fn show(command: &Command, as_json: bool) -> Result<u8> {
    let words: Vec<String> = std::iter::once("weir".into())
        .chain(command.get_args().map(|word| word.to_string_lossy().into_owned()))
        .collect();
    if as_json {
        return print_json(&json!({"mpi": null, "command": words, "variables": {}}));
    }
    let line: Vec<_> = words.iter().map(|word| shell::quote(word)).collect();
    print_all((line.join(" ") + "\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faces_are_known_by_their_libraries_and_the_provider_is_none() {
        for (name, face) in [
            ("libweir-bsp.so.0", true),
            ("/opt/lib/libweir-bmi.so", true),
            ("libweir-fi.so", false),
            ("libmpi.so.12", false),
            ("libweird.so", false),
        ] {
            assert_eq!(is_face(name), face, "{name}");
        }
        assert_eq!(face_of(&std::env::current_exe().unwrap(), &Env::default()), None);
        assert_eq!(face_of(Path::new("/etc/passwd"), &Env::default()), None);
        let own = std::env::current_exe().unwrap();
        let words = |word: &str| [OsString::from(&own), word.into()];
        assert!(is_own_bsp(&own, &words("bsp")) && !is_own_bsp(&own, &words("bench")));
        assert!(!is_own_bsp(Path::new("/bin/sh"), &words("bsp")));
    }
}

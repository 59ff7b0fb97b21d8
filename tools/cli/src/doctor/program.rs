//! The MPIs there are, the program that is to run, and a trial of it.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use weir_job::Env;

use super::{Finding, Severity};
use crate::mpi::{self, Kind};
use crate::{environment, run, shell};

/// Why there is no trial run: the first thing that is missing.
pub fn skipped(provider: bool, key: bool, program: bool) -> Finding {
    let missing = match (provider, key) {
        (false, _) => "provider",
        (_, false) => "key",
        // Where a program was named, it may be that alone.
        _ if program => "program that could run",
        _ => "usable MPI",
    };
    Finding::new("trial run", Severity::Info, format!("skipped: there is no {missing}, see above"))
}

/// The MPI to use: that of the program, else the first on the path.
pub fn check_mpi(env: &Env, program: Option<&Path>, all: &mut Vec<Finding>) -> Option<mpi::Found> {
    let path = env.get("PATH").map(std::ffi::OsString::as_os_str);
    let kinds = mpi::all_on_path(path);
    for found in &kinds {
        let launcher = found.launcher.as_deref().unwrap_or(Path::new("?"));
        let text = format!(
            "{} {} at {}",
            found.kind,
            found.version.as_deref().unwrap_or("of unknown version"),
            launcher.display()
        );
        all.push(Finding::new("mpi", Severity::Info, text));
    }
    if kinds.len() > 1 {
        let names: Vec<String> = kinds.iter().map(|found| found.kind.to_string()).collect();
        let text = format!(
            "{} are on PATH; a program built for one, started by another's mpiexec, may run as many single ranks",
            names.join(" and ")
        );
        all.push(Finding::new("mpi", Severity::Warning, text).fixed_by("weir run -n 4 ./program"));
    }
    let first = mpi::on_search_path(None, path);
    let Some(program) = program else {
        if let Err(error) = &first {
            all.push(Finding::new("mpi", Severity::Error, error.to_string()).fixed_by("pip install mpich"));
        }
        return first.ok();
    };
    let looked_at = run::locate(program, env)
        .and_then(|file| Ok((mpi::of_program(&file, env)?, mpi::linked(&file, env)?.is_some(), file)));
    match looked_at {
        Ok((needed, is_linked, file)) => {
            if let Some(why) = mpi::cannot_use_libfabric(&needed) {
                all.push(Finding::new("program", Severity::Error, why));
                return None;
            }
            all.push(if is_linked || mpi::is_for_python(&file, env) {
                uses_mpi(program, &needed, first.as_ref().ok())
            } else {
                shows_no_mpi(program, &file, &needed)
            });
            Some(needed)
        }
        Err(error) => {
            all.push(Finding::new("program", Severity::Error, format!("{error:#}")));
            None
        }
    }
}

/// A program whose MPI is known, beside the launcher that plain `mpiexec` would be.
fn uses_mpi(program: &Path, needed: &mpi::Found, first: Option<&mpi::Found>) -> Finding {
    let text = format!("{} uses {}", program.display(), needed.kind);
    if first.is_none_or(|first| first.kind == needed.kind) {
        return Finding::new("program", Severity::Ok, text);
    }
    let fix = format!("weir run -n 4 {}", shell::quote(&program.display().to_string()));
    Finding::new("program", Severity::Warning, text + ", but the first mpiexec on PATH is another MPI's").fixed_by(fix)
}

/// A program that does not show which MPI it uses, if it uses any. `weir run` starts it all the
/// same: it may start another one.
fn shows_no_mpi(program: &Path, file: &Path, taken: &mpi::Found) -> Finding {
    let name = program.display();
    if weir_mpi::elf::is_elf(file) {
        let text = format!(
            "no MPI library found in {name}: unless it loads one or starts another program, it does not use Weir"
        );
        return Finding::new("program", Severity::Warning, text);
    }
    let text = format!(
        "{name} is a script: what it starts is taken for a program of {}, whose mpiexec comes first on PATH; name the program itself to be sure",
        taken.kind
    );
    Finding::new("program", Severity::Info, text)
}

/// A whole MPI start is long on a loaded machine.
const TRY_LIMIT: Duration = Duration::from_secs(60);

/// Starts one rank of the MPI found, with our variables, and looks which provider it took.
pub fn try_mpi(env: &Env, found: &mpi::Found, provider: &Path, key: &weir_job::JobKey) -> Finding {
    let name = "trial run";
    let Some(launcher) = &found.launcher else {
        return Finding::new(name, Severity::Info, "not tried: the MPI has no launcher");
    };
    let folder = provider.parent().unwrap_or(Path::new("/"));
    let variables = environment::variables(found, folder, key, env, true);
    let mark = match run::Mark::new() {
        Ok(mark) => mark,
        Err(error) => return Finding::new(name, Severity::Warning, format!("not tried: {error:#}")),
    };
    let Some(words) = trial_program(launcher, found.library.as_deref(), mark.folder()) else {
        return Finding::new(
            name,
            Severity::Info,
            "not tried: there is neither a C compiler to make a program with, nor mpi4py beside the launcher",
        );
    };
    let mut command = Command::new(launcher);
    if found.kind == Kind::Openmpi {
        command.args(["--allow-run-as-root", "--map-by", ":OVERSUBSCRIBE"]);
    }
    command.args(["-n", "1"]).args(words).envs(variables).env(run::MARK_VARIABLE, mark.file());
    // It was asked for above, and a helper need not say no twice.
    command.env("FI_WEIR_XDP", "off");
    let which = found.library.as_ref().map_or_else(String::new, |library| format!(" ({})", library.display()));
    match mpi::ask(&mut command, TRY_LIMIT) {
        Err(error) => {
            Finding::new(name, Severity::Error, format!("{}{which} does not start over weir: {error:#}", found.kind))
                .fixed_by("FI_LOG_LEVEL=info weir run -n 1 ./program")
        }
        Ok(_) if mark.was_made() && mpi::refuses_root(found, env, nix::unistd::geteuid().is_root()) => {
            let text = format!(
                "{}{which} starts and takes the provider weir, but only as it was tried: its launcher starts nothing for root unless it is told to",
                found.kind
            );
            Finding::new(name, Severity::Warning, text)
                .fixed_by(format!("export {}", mpi::ROOT_ALLOWED.map(|variable| format!("{variable}=1")).join(" ")))
        }
        Ok(_) if mark.was_made() => Finding::new(
            name,
            Severity::Ok,
            format!("{}{which} starts and takes the provider weir, as weir run sets it up", found.kind),
        ),
        Ok(_) => Finding::new(
            name,
            Severity::Error,
            format!("{}{which} starts, but does not take the provider weir; was it built with libfabric?", found.kind),
        )
        .fixed_by("FI_LOG_LEVEL=info weir run -n 1 ./program"),
    }
}

/// The smallest MPI program that can be had. A program's own library is tried with one that is
/// linked with that very file; else it is mpi4py beside the launcher, or one made with its mpicc.
fn trial_program(launcher: &Path, library: Option<&Path>, scratch: &Path) -> Option<Vec<std::ffi::OsString>> {
    let folder = launcher.parent()?;
    let python = folder.join("python3");
    if library.is_none()
        && python.is_file()
        && mpi::ask(Command::new(&python).args(["-c", "import mpi4py"]), TRY_LIMIT).is_ok()
    {
        let program = "from mpi4py import MPI; MPI.COMM_WORLD.Barrier()";
        return Some(vec![python.into(), "-c".into(), program.into()]);
    }
    let source = scratch.join("trial.c");
    let out = scratch.join("trial");
    // Declared here: these two are the same in every MPI, and its headers may not be installed.
    let text = "int MPI_Init(int *, char ***);\nint MPI_Finalize(void);\n\
                int main(int c, char **v) { return MPI_Init(&c, &v) || MPI_Finalize(); }\n";
    std::fs::write(&source, text).ok()?;
    let mut command = Command::new(library.map_or_else(|| folder.join("mpicc"), |_| "cc".into()));
    command.arg(&source).arg("-o").arg(&out);
    if let Some(library) = library {
        let mut rpath = std::ffi::OsString::from("-Wl,--allow-shlib-undefined,-rpath,");
        rpath.push(library.parent()?);
        command.arg(library).arg(rpath);
    }
    mpi::ask(&mut command, TRY_LIMIT).ok()?;
    Some(vec![out.into()])
}

#[cfg(test)]
mod tests {
    use super::super::tests::has;
    use super::*;

    /// The findings about a program, where there is an MPI whose launcher only tells its version.
    fn about(program: &Path) -> Vec<Finding> {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let launcher = dir.path().join("mpiexec");
        std::fs::write(&launcher, "#!/bin/sh\necho 'HYDRA build details:  Version: 5.0.2'\n").unwrap();
        std::fs::set_permissions(&launcher, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut all = Vec::new();
        assert!(check_mpi(&Env::from_pairs([("PATH", dir.path())]), Some(program), &mut all).is_some());
        all.retain(|one| one.check == "program");
        all
    }

    #[test]
    fn a_program_without_an_mpi_is_not_said_to_use_one() {
        let all = about(&std::env::current_exe().unwrap());
        assert!(all.len() == 1 && all[0].severity == Severity::Warning, "{all:?}");
        assert!(all[0].cause.starts_with("no MPI library found in "), "{all:?}");
    }

    #[test]
    fn of_a_script_it_is_said_that_its_mpi_is_taken_for_granted() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("job.sh");
        std::fs::write(&script, "#!/bin/sh\nexec true\n").unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        let all = about(&script);
        assert!(all.len() == 1 && all[0].severity == Severity::Info, "{all:?}");
        assert!(all[0].cause.contains("is a script") && !all[0].cause.contains("uses"), "{all:?}");
    }

    #[test]
    fn without_the_program_it_is_not_the_mpi_that_is_missing() {
        assert!(skipped(true, true, true).cause.contains("no program that could run"));
        assert!(skipped(true, true, false).cause.contains("no usable MPI"));
        assert!(skipped(false, true, true).cause.contains("no provider"));
    }

    #[test]
    fn a_program_that_is_not_there_or_cannot_start_is_an_error() {
        for (file, why) in [("./no-such", "no such file"), ("/etc/passwd", "not an executable")] {
            let mut all = Vec::new();
            assert!(check_mpi(&Env::from_process(), Some(Path::new(file)), &mut all).is_none());
            assert!(all.iter().any(|f| f.severity == Severity::Error && f.cause.contains(why)), "{all:?}");
        }
    }

    #[test]
    fn the_trial_is_linked_with_the_programs_own_library() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("mpi.c");
        let library = dir.path().join("libmpi.so.12");
        std::fs::write(
            &source,
            "int MPI_Init(int *c, char ***v) { return 0; }\nint MPI_Finalize(void) { return 0; }\n",
        )
        .unwrap();
        let made = Command::new("cc")
            .args(["-shared", "-fPIC", "-Wl,-soname,libmpi.so.12"])
            .arg(&source)
            .arg("-o")
            .arg(&library)
            .status();
        assert!(made.unwrap().success());
        let words = trial_program(Path::new("/nowhere/mpiexec"), Some(&library), dir.path()).unwrap();
        let needed = weir_mpi::elf::libraries(Path::new(&words[0]), &[]);
        assert!(needed.iter().any(|one| one.file.as_deref() == Some(&library)), "{needed:?}");
        assert!(Command::new(&words[0]).status().unwrap().success());
    }

    #[test]
    fn no_mpi_is_an_error() {
        let mut all = Vec::new();
        assert!(check_mpi(&Env::from_pairs([("PATH", "/nonexistent")]), None, &mut all).is_none());
        assert!(has(&all, "mpi", Severity::Error));
    }
}

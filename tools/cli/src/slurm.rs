//! Slurm's launcher: when it is used, by what it lets ranks find each other, how it is called.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use weir_job::Env;

use crate::args::RunArgs;
use crate::commands::search_path;
use crate::mpi::{self, Kind};

/// It asks the controller, which may be busy.
const ASK_LIMIT: Duration = Duration::from_secs(30);

/// What ranks need of their launcher to find each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// As this MPI does.
    Mpi(Kind),
    /// A program of Weir's own interfaces, which speaks whatever there is.
    Weir,
}

/// `srun`, if the user names it as the launcher; or if the program is started within an allocation
/// and nobody says how.
///
/// # Errors
/// If it is named, but not there.
pub fn chosen(env: &Env, args: &RunArgs, needs: Needs) -> Result<Option<PathBuf>> {
    let on_path = || mpi::on_path("srun", search_path(env));
    match &args.launcher {
        Some(file) if file.file_name().is_some_and(|name| name == "srun") => {
            if file.components().count() > 1 {
                return Ok(Some(file.clone()));
            }
            on_path().context("srun: not on PATH").map(Some)
        }
        Some(_) => Ok(None),
        // A step of an allocation, such as an interactive shell, may start steps as well.
        None if needs == Needs::Weir && !args.local && env.get("SLURM_JOB_ID").is_some() => Ok(on_path()),
        None if needs != Needs::Weir && is_for_srun(env, args) => Ok(on_path()),
        None => Ok(None),
    }
}

/// Steps with this number and above are not the user's: a batch script's, an interactive shell's
/// (`slurm.h`).
const FIRST_OF_SLURMS_OWN: u64 = 0xffff_fff0;

/// Whether an MPI program is to be started by `srun` although nobody says so: within an allocation.
/// Not where words for `mpiexec` are given; and not within a step that has the allocation's
/// processors already, for which a second one would wait for ever.
fn is_for_srun(env: &Env, args: &RunArgs) -> bool {
    let number = |name: &str| env.get(name)?.to_str()?.parse::<u64>().ok();
    let within_step = number("SLURM_STEP_ID").is_some_and(|step| step < FIRST_OF_SLURMS_OWN);
    env.get("SLURM_JOB_ID").is_some() && !within_step && args.launcher_arg.is_empty()
}

/// The `--mpi` by which the ranks find each other.
///
/// # Errors
/// If this Slurm has none that they understand, or does not answer.
pub fn interface(srun: &Path, needs: Needs) -> Result<&'static str> {
    let said = mpi::ask(Command::new(srun).arg("--mpi=list"), ASK_LIMIT)?;
    choose(&said, needs).with_context(|| format!("this Slurm cannot start it ({} --mpi=list): install the plugin, or use the MPI's own by --launcher mpiexec", srun.display()))
}

/// From what `srun --mpi=list` says.
fn choose(said: &str, needs: Needs) -> Result<&'static str> {
    let wanted: &[&'static str] = match needs {
        Needs::Mpi(Kind::Mpich | Kind::Intel) => &["pmi2"],
        Needs::Mpi(Kind::Openmpi) => &["pmix"],
        Needs::Weir => &["pmi2", "pmix"],
    };
    // One name a line, in newer versions with others behind it.
    let has = |name: &str| said.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word == name);
    match wanted.iter().find(|name| has(name)) {
        Some(name) => Ok(name),
        None => bail!("the program needs srun --mpi={}", wanted.join(" or ")),
    }
}

/// The call, up to the program.
pub fn words(args: &RunArgs, interface: &str) -> Vec<OsString> {
    let mut words: Vec<OsString> =
        vec![format!("--mpi={interface}").into(), "-n".into(), args.ranks.to_string().into()];
    // Slurm leaves the others running when one has failed, unless told otherwise.
    words.push("--kill-on-bad-exit=1".into());
    // Scripts that are handed no environment (`sbatch --export=NONE`) make srun hand on none, by a
    // variable: the ranks would not know of Weir. What the user says comes behind, and counts.
    words.push("--export=ALL".into());
    if !args.hosts.is_empty() {
        // Without their number it takes as few of them as have room.
        words.extend(["-N".into(), args.hosts.len().to_string().into()]);
        words.extend(["-w".into(), args.hosts.join(",").into()]);
    }
    if args.tag_output {
        words.push("--label".into());
    }
    words.extend(args.launcher_arg.iter().cloned());
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn run_args(words: &[&str]) -> RunArgs {
        match crate::args::Args::parse_from(["weir", "run"].iter().chain(words)).command {
            crate::args::Command::Run(run) => run,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn srun_is_taken_where_it_is_named_and_for_weirs_own_programs_in_an_allocation() {
        let dir = tempfile::tempdir().unwrap();
        let srun = dir.path().join("srun");
        std::fs::write(&srun, "#!/bin/sh\n").unwrap();
        std::os::unix::fs::symlink("/bin/true", dir.path().join("mpiexec")).unwrap();
        std::fs::set_permissions(&srun, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let path = dir.path().to_str().unwrap();
        let of = |words: &[&str], job: Option<&str>, needs| {
            let variables = [("PATH", path)].into_iter().chain(job.map(|job| ("SLURM_JOB_ID", job)));
            chosen(&Env::from_pairs(variables), &run_args(words), needs)
        };
        let mpi = Needs::Mpi(Kind::Mpich);
        assert_eq!(of(&["./p"], None, Needs::Weir).unwrap(), None);
        assert_eq!(of(&["./p"], Some("7"), Needs::Weir).unwrap(), Some(srun.clone()));
        assert_eq!(of(&["--local", "./p"], Some("7"), Needs::Weir).unwrap(), None);
        assert_eq!(of(&["--launcher", "mpiexec", "./p"], Some("7"), Needs::Weir).unwrap(), None);
        assert_eq!(of(&["./p"], None, mpi).unwrap(), None);
        assert_eq!(of(&["./p"], Some("7"), mpi).unwrap(), Some(srun.clone()));
        assert_eq!(of(&["--launcher-arg=-ppn", "--launcher-arg=1", "./p"], Some("7"), mpi).unwrap(), None);
        let step = |number: &str| {
            let variables = [("PATH", path), ("SLURM_JOB_ID", "7"), ("SLURM_STEP_ID", number)];
            chosen(&Env::from_pairs(variables), &run_args(&["./p"]), mpi).unwrap()
        };
        // A step of the user's, an interactive shell, a batch script.
        assert_eq!([step("0"), step("4294967290"), step("4294967291")], [None, Some(srun.clone()), Some(srun.clone())]);
        assert_eq!(of(&["--launcher", "srun", "./p"], None, mpi).unwrap(), Some(srun));
        let other = PathBuf::from("/opt/slurm/bin/srun");
        assert_eq!(of(&["--launcher", "/opt/slurm/bin/srun", "./p"], None, mpi).unwrap(), Some(other));
        let nowhere = Env::from_pairs([("PATH", "/nowhere")]);
        assert!(chosen(&nowhere, &run_args(&["--launcher", "srun", "./p"]), mpi).is_err());
    }

    #[test]
    fn the_interface_is_one_that_the_program_speaks() {
        let old = "MPI plugin types are...\n\tpmix\n\tnone\n\tcray_shasta\n\tpmi2\nspecific pmix plugin versions available: pmix_v4\n";
        let new = "MPI plugin types are...\n\tnone\n\tpmi2\n";
        for (said, needs, want) in [
            (old, Needs::Mpi(Kind::Mpich), Some("pmi2")),
            (old, Needs::Mpi(Kind::Openmpi), Some("pmix")),
            (old, Needs::Weir, Some("pmi2")),
            (old, Needs::Mpi(Kind::Intel), Some("pmi2")),
            (new, Needs::Mpi(Kind::Openmpi), None),
            ("none pmix", Needs::Weir, Some("pmix")),
            ("cray_shasta none", Needs::Weir, None),
        ] {
            assert_eq!(choose(said, needs).ok(), want, "{said} {needs:?}");
        }
        assert_eq!(choose("none", Needs::Weir).unwrap_err().to_string(), "the program needs srun --mpi=pmi2 or pmix");
    }

    #[test]
    fn hosts_are_all_used_and_a_failed_rank_ends_the_others() {
        let words = words(&run_args(&["-n", "4", "--hosts", "a,b", "--launcher-arg=--exclusive", "./p"]), "pmi2");
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        assert_eq!(words.join(" "), "--mpi=pmi2 -n 4 --kill-on-bad-exit=1 --export=ALL -N 2 -w a,b --exclusive");
    }
}

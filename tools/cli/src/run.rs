//! `weir run`: a program over Weir, by the launcher of its MPI; and a word at the end if Weir was
//! not used at all.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::SignalFd;
use nix::unistd::Pid;
use serde_json::{Value, json};
use weir_job::Env;

use crate::args::RunArgs;
use crate::commands::{print_all, print_json, search_path};
use crate::mpi::{self, Found, Kind};
use crate::slurm::{self, Needs};
use crate::{environment, local, provider, settings, shell};

/// The variable that names the file a rank makes when it opens an endpoint (`faces/fabric`).
pub const MARK_VARIABLE: &str = "WEIR_AGENT_MARK";

/// Of a run that makes its own key.
const NOT_SHOWN: &str = "the run would make a job key of its own, which is not shown; to start this command yourself set WEIR_KEY or WEIR_KEY_FILE and ask again";

/// Runs the program; returns the launcher's exit code, or 128 plus the signal that ended it.
///
/// # Errors
/// If there is no such program, or no launcher, provider or key for it.
pub fn run(env: &Env, args: RunArgs) -> Result<u8> {
    let Some(name) = args.program.first() else { bail!("no program") };
    let program = locate(Path::new(name), env)?;
    // What is linked with an MPI as well finds its ranks as that MPI does.
    let is_weirs = args.local
        || local::is_own_bsp(&program, &args.program)
        || (local::face_of(&program, env).is_some() && mpi::linked(&program, env)?.is_none());
    if is_weirs {
        return run_weirs(env, &args, &program);
    }
    let (found, srun) = launcher_of(env, &args, &program)?;
    let launcher = found.launcher.clone().with_context(|| format!("no launcher of {} found", found.kind))?;
    let provider = provider::find(env)?;
    let (mut key, found_in) = key_of_run(env, srun.is_some())?;
    if args.dry_run && matches!(found_in, OwnKey::OfRun(_)) {
        // It is not shown, so its name is not either: Open MPI 5 starts nothing where a name that
        // it is told has no value.
        weir_put::tell!("weir: {NOT_SHOWN}");
        key = environment::no_key();
    }
    // Every rank would say so; but a launcher whose ranks end at once may lose their words.
    settings::understood(env).map_err(anyhow::Error::msg)?;
    let folder = provider.parent().unwrap_or(Path::new("/"));
    let mut variables = environment::variables(&found, folder, &key, env, args.no_shm);
    // Who types the shown command again starts the ranks by that one.
    if !args.dry_run {
        let words = args.own_words(std::env::args_os().next());
        environment::tell_command(&mut variables, &words, &found, env);
    }

    let mut command = Command::new(&launcher);
    match srun {
        Some(interface) => drop(command.args(slurm::words(&args, interface))),
        None => by_mpiexec(&mut command, &found, env, &args, environment::handed_over(&found, &variables, &key, env))?,
    }
    command.arg(&program).args(args.program.iter().skip(1));
    command.envs(variables.iter().cloned());
    if args.dry_run {
        return show_command(Some(&found), &command, &variables, args.json);
    }
    if let Some(hint) = environment::shared_memory_hint(found.kind, args.no_shm).filter(|_| may_share(&args)) {
        weir_put::tell!("weir: {hint}");
    }
    if let OwnKey::OfRun(why) = found_in {
        if let Some(why) = why {
            weir_put::tell!("weir: this run has a job key of its own: {why}");
        }
        command.env("WEIR_KEY", key.reveal());
    }
    let mark = Mark::new()?;
    command.env(MARK_VARIABLE, mark.file());
    let code = supervise(&mut command).with_context(|| format!("cannot start {}", launcher.display()))?;
    // Ranks on other machines make their file there.
    if !mark.was_made() && srun.is_none() && all_ranks_are_here(env, &args) {
        unused(&found, &program, code).iter().for_each(|line| weir_put::tell!("weir: {line}"));
    }
    // It says so itself, and how to have it.
    let by_root = mpi::refuses_root(&found, env, nix::unistd::geteuid().is_root());
    if !mark.was_made() && srun.is_none() && !by_root {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        slots(&found, &args, code, cores).iter().for_each(|line| weir_put::tell!("weir: {line}"));
    }
    Ok(code)
}

/// The MPI of the program with the launcher to use, and Slurm's interface if that launcher is
/// `srun`.
fn launcher_of(env: &Env, args: &RunArgs, program: &Path) -> Result<(Found, Option<&'static str>)> {
    let linked = mpi::linked(program, env)?;
    // Only where it is named, whichever MPI it is; of which a cluster need not have a launcher.
    if let Some(srun) = slurm::chosen(env, args, Needs::Mpi(Kind::Mpich))? {
        let mut found = match linked {
            Some((kind, library)) => Found { kind, version: None, launcher: None, library: library.file },
            None => mpi::of_program(program, env)?,
        };
        match slurm::interface(&srun, Needs::Mpi(found.kind)) {
            Ok(interface) => {
                found.launcher = Some(srun);
                return Ok((found, Some(interface)));
            }
            Err(error) if args.launcher.is_some() => return Err(error),
            // Nobody asked for srun: the MPI's own launcher finds the allocation by itself.
            Err(error) => weir_put::tell!("weir: not by srun: {error:#}"),
        }
    }
    let mut found = mpi::of_program(program, env)?;
    if let Some(launcher) = &args.launcher {
        let given = mpi::of_launcher(launcher)?;
        if given.kind != found.kind {
            bail!("{} needs {}, but {} is {}'s", program.display(), found.kind, launcher.display(), given.kind);
        }
        found.launcher = given.launcher;
    }
    Ok((found, None))
}

/// A program of Weir's own interfaces: by Slurm in an allocation, on other hosts by whatever
/// `mpiexec` there is, here by ourselves. Its ranks agree on their key by the launcher.
fn run_weirs(env: &Env, args: &RunArgs, program: &Path) -> Result<u8> {
    let srun = slurm::chosen(env, args, Needs::Weir)?;
    if srun.is_none() && args.hosts.is_empty() && args.launcher.is_none() {
        return local::run(env, args, program);
    }
    settings::understood(env).map_err(anyhow::Error::msg)?;
    let mut command;
    if let Some(srun) = srun {
        let interface = slurm::interface(&srun, Needs::Weir)?;
        command = Command::new(srun);
        command.args(slurm::words(args, interface));
    } else {
        let found = match &args.launcher {
            Some(file) => mpi::of_launcher(file)?,
            None => mpi::on_search_path(None, search_path(env))
                .context("ranks on other hosts are started by the mpiexec of any MPI")?,
        };
        command = Command::new(found.launcher.clone().with_context(|| format!("no launcher of {} found", found.kind))?);
        by_mpiexec(&mut command, &found, env, args, environment::handed_to_weirs(&found, env))?;
    }
    command.arg(program).args(args.program.iter().skip(1));
    if args.dry_run {
        return show_command(None, &command, &[], args.json);
    }
    let name = command.get_program().to_owned();
    supervise(&mut command).with_context(|| format!("cannot start {}", name.display()))
}

/// The variables of these that a launcher's arguments do not hand over. Of one that is named twice
/// one Open MPI takes the first value, another the last.
fn not_given(names: Vec<String>, given: &[OsString]) -> Vec<String> {
    let is_x = |word: &OsString| word == "-x" || word == "--x";
    let values: Vec<_> = given.windows(2).filter(|two| is_x(&two[0])).map(|two| two[1].to_string_lossy()).collect();
    let is_given = |name: &String| values.iter().any(|value| value.split('=').next() == Some(name.as_str()));
    names.into_iter().filter(|name| !is_given(name)).collect()
}

/// The words of an MPI's launcher, up to the program.
fn by_mpiexec(command: &mut Command, found: &Found, env: &Env, args: &RunArgs, handed: Vec<String>) -> Result<()> {
    if args.tag_output {
        bail!(
            "--tag-output: {}'s launcher has an option of its own for that; hand it over with --launcher-arg",
            found.kind
        );
    }
    command.args(["-n", &args.ranks.to_string()]);
    if !args.hosts.is_empty() {
        command.args(host_words(found.kind, &args.hosts, args.ranks));
        start_by_agent(command, found.kind, env, &args.launcher_arg);
    }
    command.args(environment::words(&not_given(handed, &args.launcher_arg))).args(&args.launcher_arg);
    Ok(())
}

/// Whether a run has a key that was made for it alone.
enum OwnKey {
    No,
    /// Yes, and why, where that is not what its launcher always does.
    OfRun(Option<weir_job::KeyError>),
}

/// The job's key, and whether it was made for this run: where nobody named one and there is no
/// home, or none that may be written to, as in many containers, or where the launcher hands the
/// environment to all hosts anyway (`hands_over`), so that they need no home in common.
fn key_of_run(env: &Env, hands_over: bool) -> Result<(weir_job::JobKey, OwnKey)> {
    if hands_over && ["WEIR_KEY", "WEIR_KEY_FILE"].iter().all(|name| env.get(name).is_none()) {
        return Ok((weir_job::JobKey::for_one_run()?, OwnKey::OfRun(None)));
    }
    match environment::key(env) {
        Ok(key) => Ok((key, OwnKey::No)),
        Err(error) if error.is_for_want_of_a_place() => {
            Ok((weir_job::JobKey::for_one_run()?, OwnKey::OfRun(Some(error))))
        }
        Err(error) => Err(error.into()),
    }
}

/// The ranks of each machine, if they are divided evenly.
fn share(hosts: &[String], ranks: u32) -> u64 {
    u64::from(ranks).div_ceil(hosts.len().max(1) as u64)
}

/// Whether two ranks may be on one machine, as far as `--hosts` tells: MPICH goes round them one
/// rank at a time, unless a number says more.
fn may_share(args: &RunArgs) -> bool {
    let machines: std::collections::BTreeSet<&str> =
        args.hosts.iter().map(|host| host.split(':').next().unwrap_or(host)).collect();
    let several = args.hosts.iter().any(|host| host.split_once(':').is_some_and(|(_, ranks)| ranks != "1"));
    let ranks = args.ranks as usize;
    ranks > machines.len().max(1) || (ranks > 1 && several)
}

/// How a launcher is told the machines. Open MPI starts as many ranks on each as it has slots, and
/// a machine named without a number has one: each is given its share of the ranks. MPICH goes round
/// without being told.
fn host_words(kind: Kind, hosts: &[String], ranks: u32) -> Vec<String> {
    let slots = share(hosts, ranks);
    let with_slots = |host: &String| if host.contains(':') { host.clone() } else { format!("{host}:{slots}") };
    match kind {
        Kind::Mpich => vec!["-hosts".into(), hosts.join(",")],
        // Without a number it fills the first machine.
        Kind::Intel => vec!["-hosts".into(), hosts.join(","), "-ppn".into(), slots.to_string()],
        Kind::Openmpi => vec!["--host".into(), hosts.iter().map(with_slots).collect::<Vec<_>>().join(",")],
    }
}

/// Inside `weir emulate` no ssh server is on the hosts: the launcher is given the emulator's agent,
/// unless the user chose how to start ranks.
fn start_by_agent(command: &mut Command, kind: Kind, env: &Env, given: &[OsString]) {
    let Some(agent) = env.get("WEIR_LAUNCH_AGENT").filter(|_| !says_how_to_start(kind, given)) else { return };
    // Variables of the launchers' own, with which the same is said.
    let variables: &[&str] = match kind {
        Kind::Mpich => &["HYDRA_LAUNCHER", "HYDRA_LAUNCHER_EXEC", "HYDRA_BOOTSTRAP", "HYDRA_BOOTSTRAP_EXEC"],
        Kind::Intel => &["I_MPI_HYDRA_BOOTSTRAP", "I_MPI_HYDRA_BOOTSTRAP_EXEC"],
        Kind::Openmpi => &["PRTE_MCA_plm_ssh_agent", "PRTE_MCA_plm", "OMPI_MCA_plm_rsh_agent", "OMPI_MCA_plm"],
    };
    if variables.iter().any(|name| env.get(name).is_some()) {
        return;
    }
    match kind {
        Kind::Mpich => drop(command.args(["-launcher", "ssh", "-launcher-exec"]).arg(agent)),
        Kind::Intel => drop(command.args(["-bootstrap", "ssh", "-bootstrap-exec"]).arg(agent)),
        // The first name is that of Open MPI 5's launcher, the second that of 4's. Variables: each
        // refuses the other's words.
        Kind::Openmpi => drop(command.env("PRTE_MCA_plm_ssh_agent", agent).env("OMPI_MCA_plm_rsh_agent", agent)),
    }
}

/// Whether the launcher's arguments choose how ranks are started. Whole names only: a path or a
/// value may hold the same letters, and other parameters of a component (`plm_base_verbose`) choose
/// nothing.
fn says_how_to_start(kind: Kind, given: &[OsString]) -> bool {
    let words: Vec<_> = given.iter().map(|word| word.to_string_lossy()).collect();
    // One dash or two, and the value as the next word or behind an equals sign.
    let option = |word: &str| {
        let name = word.strip_prefix("--").or_else(|| word.strip_prefix('-'))?;
        Some(name.split_once('=').map_or(name, |(name, _)| name).to_owned())
    };
    let starts = |name: &str| match kind {
        Kind::Mpich | Kind::Intel => ["launcher", "launcher-exec", "bootstrap", "bootstrap-exec"].contains(&name),
        Kind::Openmpi => false,
    };
    let parameters = |name: &str| kind == Kind::Openmpi && ["mca", "gmca", "prtemca"].contains(&name);
    let chooses = |parameter: &str| {
        let agent = parameter.strip_prefix("plm_").is_some_and(|rest| rest.ends_with("_agent"));
        agent || ["plm", "orte_rsh_agent", "pls_rsh_agent"].contains(&parameter)
    };
    words.iter().enumerate().any(|(at, word)| {
        option(word).is_some_and(|name| {
            starts(&name) || (parameters(&name) && words.get(at + 1).is_some_and(|parameter| chooses(parameter)))
        })
    })
}

/// What to do if Open MPI's launcher started nothing because there are more ranks than cores on a
/// machine; `cores` are those of this one, and others are taken to be like it.
fn slots(found: &Found, args: &RunArgs, code: u8, cores: usize) -> Option<String> {
    let told = |word: &OsString| ["oversubscribe", "bind-to"].iter().any(|part| word.to_string_lossy().contains(part));
    let each = share(&args.hosts, args.ranks);
    let too_many = found.kind == Kind::Openmpi && each > cores as u64;
    // Machines that are named have the slots already, and only binding stands against it;
    // --oversubscribe would fill the first one.
    let remedy = if args.hosts.is_empty() {
        "--launcher-arg=--oversubscribe"
    } else {
        "--launcher-arg=--bind-to --launcher-arg=none"
    };
    (code != 0 && too_many && !args.launcher_arg.iter().any(told)).then(|| {
        format!(
            "{each} ranks on a machine are more than the {cores} cores here, and Open MPI starts none then, for want of slots or cpus; to start them: weir run {remedy} ..."
        )
    })
}

/// A file that says, by being there, that some rank opened an endpoint.
pub struct Mark(PathBuf);

impl Mark {
    /// A place for the file, in a folder of its own that is gone with this value.
    ///
    /// # Errors
    /// If no temporary folder can be made.
    pub fn new() -> Result<Self> {
        use std::os::unix::fs::DirBuilderExt;
        let temporary = std::env::temp_dir();
        for attempt in 0..100 {
            let folder = temporary.join(format!("weir-run-{}-{attempt}", std::process::id()));
            match std::fs::DirBuilder::new().mode(0o700).create(&folder) {
                Ok(()) => return Ok(Self(folder)),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(error).with_context(|| format!("cannot make {}", folder.display()));
                }
            }
        }
        bail!("{} is full of folders named weir-run-*; remove them", temporary.display())
    }

    /// The folder, for what else a trial needs.
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// The file to make.
    pub fn file(&self) -> PathBuf {
        self.0.join("used")
    }

    /// Whether somebody has made it.
    pub fn was_made(&self) -> bool {
        self.file().exists()
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Whether every rank starts on this machine, as far as the command line and the batch system tell.
fn all_ranks_are_here(env: &Env, args: &RunArgs) -> bool {
    let batch = ["SLURM_JOB_ID", "PBS_NODEFILE", "LSB_JOBID", "PE_HOSTFILE", "OMPI_MCA_orte_default_hostfile"];
    let elsewhere =
        |word: &std::ffi::OsString| ["host", "-f", "machine"].iter().any(|part| word.to_string_lossy().contains(part));
    args.hosts.is_empty()
        && !args.launcher_arg.iter().any(elsewhere)
        && !batch.iter().any(|name| env.get(name).is_some())
}

/// That no rank used Weir, and why, as far as it can be told. A job that failed has said so itself,
/// and may have ended before.
fn unused(found: &Found, program: &Path, code: u8) -> Option<String> {
    let known = mpi::cannot_use_libfabric(found);
    if known.is_none() && code != 0 {
        return None;
    }
    let why = known.unwrap_or_else(|| {
        format!(
            "did it end before MPI_Init, or was it built for another MPI than {}? try: weir doctor {}",
            found.kind,
            program.display()
        )
    });
    Some(format!("the program did not use Weir, no rank opened an endpoint: {why}"))
}

/// Runs the launcher and waits for it. Signals sent to this process alone go on to it; those of a
/// terminal reach it anyway. SIGKILL, which nobody can pass on, becomes SIGTERM: the launcher then
/// ends its ranks, on other machines too.
fn supervise(command: &mut Command) -> Result<u8> {
    weir_emulate::process::end_with_us(command, Signal::SIGTERM);
    let mut child = command.spawn()?;
    let pid = Pid::from_raw(child.id().cast_signed());
    // After the start: the launcher would inherit the mask, and hand it to the program.
    let mask: SigSet =
        [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGUSR1, Signal::SIGUSR2]
            .into_iter()
            .collect();
    mask.thread_block().context("block signals")?;
    let signals = SignalFd::new(&mask).context("make a signalfd")?;
    std::thread::spawn(move || {
        const SI_KERNEL: i32 = 0x80;
        while let Ok(Some(info)) = signals.read_signal() {
            if info.ssi_code != SI_KERNEL
                && let Ok(signal) = Signal::try_from(info.ssi_signo.cast_signed())
            {
                let _ = kill(pid, signal);
            }
        }
    });
    let status = child.wait()?;
    Ok(match (status.code(), status.signal()) {
        (Some(code), _) => code.to_le_bytes()[0], // the kernel keeps eight bits
        (None, signal) => 128u8.saturating_add(signal.unwrap_or_default().to_le_bytes()[0]),
    })
}

/// A program's file: as named, or found on the path as the shell does.
///
/// # Errors
/// If there is none, or it cannot be started.
pub fn locate(name: &Path, env: &Env) -> Result<PathBuf> {
    if name.components().count() > 1 || name.is_absolute() {
        return startable(name.to_owned());
    }
    let text = name.to_string_lossy();
    match mpi::on_path(&text, search_path(env)) {
        Some(file) => Ok(file),
        None if name.exists() => startable(Path::new(".").join(name)),
        None => bail!("{text}: no such file, neither on PATH nor in this folder"),
    }
}

fn startable(file: PathBuf) -> Result<PathBuf> {
    if !file.exists() {
        bail!("{}: no such file", file.display());
    }
    if !mpi::is_executable(&file) {
        let what = if file.is_dir() { "a folder, not a program" } else { "not an executable" };
        let hint = match file.extension().and_then(std::ffi::OsStr::to_str) {
            Some("c" | "cc" | "cpp" | "cxx" | "f90" | "F90") => "; compile it first, with mpicc or the like",
            Some("py") => "; start it by python3, or set its mode with chmod +x",
            _ => "",
        };
        bail!("{}: {what}{hint}", file.display());
    }
    Ok(file)
}

fn show_command(
    found: Option<&Found>,
    command: &Command,
    variables: &[environment::Variable],
    as_json: bool,
) -> Result<u8> {
    let words: Vec<String> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    // In the order they were made, then the launcher's own.
    let own =
        command.get_envs().filter_map(|(name, value)| Some((name.to_str()?.to_owned(), value?.to_str()?.to_owned())));
    let own = own.filter(|(name, _)| !variables.iter().any(|(known, _)| known == name));
    let shown = variables.iter().cloned().chain(own);
    if as_json {
        let map: serde_json::Map<String, Value> = shown.map(|(k, v)| (k, v.into())).collect();
        return print_json(&json!({"mpi": found, "command": words, "variables": map}));
    }
    let mut text: String = shown.map(|(name, value)| format!("{name}={} \\\n", shell::quote(&value))).collect();
    text += &words.iter().map(|word| shell::quote(word)).collect::<Vec<_>>().join(" ");
    print_all((text + "\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_run_without_a_home_has_a_key_of_its_own_and_a_bad_key_stays_an_error() {
        let nowhere = || key_of_run(&Env::from_pairs([("HOME", "/nonexistent")]), false).expect("made");
        let ((one, own), (other, _)) = (nowhere(), nowhere());
        let OwnKey::OfRun(Some(why)) = own else { panic!("the reason is not told") };
        assert!(why.to_string().starts_with("HOME=/nonexistent: ") && one.bytes != other.bytes, "{why}");
        assert!(matches!(key_of_run(&Env::default(), true).expect("made").1, OwnKey::OfRun(None)));
        let named = Env::from_pairs([("WEIR_KEY", one.reveal())]);
        let (again, own) = key_of_run(&named, true).expect("read");
        assert!(matches!(own, OwnKey::No) && again.bytes == one.bytes);
        assert!(key_of_run(&Env::from_pairs([("WEIR_KEY", "short")]), true).is_err());
        assert!(
            key_of_run(&Env::from_pairs([("WEIR_KEY_FILE", "/no/such/file"), ("HOME", "/nonexistent")]), false)
                .is_err()
        );
    }

    #[test]
    fn programs_are_found_as_the_shell_finds_them() {
        let env = Env::from_pairs([("PATH", "/usr/bin:/bin")]);
        assert!(locate(Path::new("sh"), &env).unwrap().is_absolute());
        let why = |name: &Path| locate(name, &env).unwrap_err().to_string();
        assert_eq!(why(Path::new("./no-such")), "./no-such: no such file");
        assert!(why(Path::new("no-such-program")).contains("no such file"));
        assert!(why(Path::new("/tmp")).contains("a folder"));
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("hello.c");
        std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
        assert!(why(&source).ends_with("hello.c: not an executable; compile it first, with mpicc or the like"));
        std::fs::set_permissions(&source, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(locate(&source, &env).unwrap(), source);
    }

    #[test]
    fn each_host_has_slots_for_its_share_of_the_ranks() {
        let hosts = ["a".to_owned(), "b".to_owned()];
        assert_eq!(host_words(Kind::Openmpi, &hosts, 8), ["--host", "a:4,b:4"]);
        assert_eq!(host_words(Kind::Openmpi, &hosts, 3), ["--host", "a:2,b:2"]);
        assert_eq!(host_words(Kind::Openmpi, &["a:1".to_owned(), "b".to_owned()], 4), ["--host", "a:1,b:2"]);
        assert_eq!(host_words(Kind::Mpich, &hosts, 8), ["-hosts", "a,b"]);
        assert_eq!(host_words(Kind::Intel, &hosts, 3), ["-hosts", "a,b", "-ppn", "2"]);
    }

    #[test]
    fn only_ranks_on_one_machine_share_its_memory() {
        for (words, shared) in [
            ("-n 1 ./p", false),
            ("-n 2 ./p", true),
            ("-n 2 --hosts a,b ./p", false),
            ("-n 3 --hosts a,b ./p", true),
            ("-n 2 --hosts a,a ./p", true),
            ("-n 2 --hosts a:1,b:1 ./p", false),
            ("-n 2 --hosts a:2,b ./p", true),
        ] {
            assert_eq!(may_share(&run_args(&words.split(' ').collect::<Vec<_>>())), shared, "{words}");
        }
    }

    fn run_args(words: &[&str]) -> RunArgs {
        use clap::Parser;
        match crate::args::Args::parse_from(["weir", "run"].iter().chain(words)).command {
            crate::args::Command::Run(run) => run,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn inside_the_emulator_ranks_are_started_by_its_agent() {
        let inside = [("WEIR_LAUNCH_AGENT", "/r/agent")];
        let words = |kind, pairs: &[(&str, &str)], given: &[&str]| {
            let given: Vec<OsString> = given.iter().map(OsString::from).collect();
            let mut command = Command::new("mpiexec");
            start_by_agent(&mut command, kind, &Env::from_pairs(pairs.iter().copied()), &given);
            let set =
                command.get_envs().map(|(name, value)| format!("{}={}", name.display(), value.unwrap().display()));
            let words = command.get_args().map(|word| word.display().to_string());
            set.chain(words).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(words(Kind::Mpich, &inside, &["-ppn", "1"]), "-launcher ssh -launcher-exec /r/agent");
        assert_eq!(
            words(Kind::Openmpi, &inside, &[]),
            "OMPI_MCA_plm_rsh_agent=/r/agent PRTE_MCA_plm_ssh_agent=/r/agent"
        );
        assert_eq!(words(Kind::Intel, &inside, &[]), "-bootstrap ssh -bootstrap-exec /r/agent");
        assert_eq!(words(Kind::Intel, &[inside[0], ("I_MPI_HYDRA_BOOTSTRAP", "fork")], &[]), "");
        for kind in Kind::ALL {
            assert_eq!(words(kind, &[], &[]), "", "no emulator");
        }
        assert_eq!(words(Kind::Mpich, &inside, &["-launcher", "fork"]), "");
        assert_eq!(words(Kind::Mpich, &[inside[0], ("HYDRA_LAUNCHER_EXEC", "/mine")], &[]), "");
        assert_eq!(words(Kind::Openmpi, &inside, &["--mca", "plm_ssh_agent", "/mine"]), "");
    }

    #[test]
    fn what_the_user_hands_over_is_not_handed_over_again() {
        let given = ["-ppn", "1", "-x", "WEIR_PORT=46000", "--x", "WEIR_IFACE", "-x"].map(OsString::from);
        let names = ["WEIR_PORT", "WEIR_IFACE", "WEIR_POR", "WEIR_FAULTS"].map(str::to_owned);
        assert_eq!(not_given(names.to_vec(), &given), ["WEIR_POR", "WEIR_FAULTS"]);
    }

    #[test]
    fn who_chose_a_launcher_is_told_by_whole_names_of_options() {
        let says = |kind, line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            says_how_to_start(kind, &words)
        };
        for line in [
            "-launcher fork",
            "--launcher=fork",
            "-ppn 1 -launcher-exec /mine",
            "-bootstrap slurm",
            "--bootstrap-exec /mine",
        ] {
            assert!(says(Kind::Mpich, line), "{line}");
        }
        for line in [
            "-wdir /home/launcher/bootstrap",
            "-configfile launcher",
            "-genv PATH /opt/plm-launcher/bin",
            "-genv HYDRA_LAUNCHER fork",
            "-launcher-script x",
        ] {
            assert!(!says(Kind::Mpich, line), "{line}");
        }
        for line in [
            "--mca plm slurm",
            "-mca plm_rsh_agent /mine",
            "--bind-to none --mca plm_ssh_agent /mine",
            "--prtemca plm ssh",
            "-gmca orte_rsh_agent /mine",
        ] {
            assert!(says(Kind::Openmpi, line), "{line}");
        }
        for line in [
            "--wdir /home/plm",
            "-x plm",
            "--mca plm_base_verbose 5",
            "--mca btl_tcp_if_include plm",
            "--prefix /opt/launcher",
            "--mca",
        ] {
            assert!(!says(Kind::Openmpi, line), "{line}");
        }
    }

    #[test]
    fn too_few_slots_are_explained() {
        use clap::Parser;
        let args = |words: &[&str]| match crate::args::Args::parse_from(["weir", "run", "-n", "4"].iter().chain(words))
            .command
        {
            crate::args::Command::Run(run) => run,
            other => panic!("{other:?}"),
        };
        let found = |kind| Found { kind, version: None, launcher: None, library: None };
        let text = slots(&found(Kind::Openmpi), &args(&["./p"]), 1, 2).unwrap();
        assert!(text.starts_with("4 ranks") && text.contains("weir run --launcher-arg=--oversubscribe"), "{text}");
        let on_hosts = args(&["--hosts", "a,b", "./p"]);
        assert_eq!(slots(&found(Kind::Openmpi), &on_hosts, 1, 2), None);
        assert!(slots(&found(Kind::Openmpi), &on_hosts, 213, 1).unwrap().contains("--bind-to"));
        let told = args(&["--launcher-arg=--oversubscribe", "./p"]);
        assert_eq!(slots(&found(Kind::Openmpi), &told, 1, 2), None);
        assert_eq!(slots(&found(Kind::Openmpi), &args(&["./p"]), 1, 4), None);
        assert_eq!(slots(&found(Kind::Openmpi), &args(&["./p"]), 0, 2), None);
        assert_eq!(slots(&found(Kind::Mpich), &args(&["./p"]), 1, 2), None);
    }

    #[test]
    fn exit_codes_and_signals_are_the_launchers() {
        let run = |script: &str| supervise(Command::new("sh").args(["-c", script])).unwrap();
        assert_eq!(run("exit 7"), 7);
        assert_eq!(run("kill -9 $$"), 128 + 9);
    }

    /// Not a test of its own: run as a process by the next one, which kills it.
    #[test]
    fn killed() {
        if std::env::var_os("WEIR_TEST_KILLED").is_some() {
            let _ = supervise(Command::new("sh").args(["-c", "echo; echo launcher $$; exec sleep 600"]));
        }
    }

    #[test]
    fn a_launcher_goes_with_the_command_that_is_killed() {
        use std::io::{BufRead, BufReader};
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "run::tests::killed", "--nocapture"]).env("WEIR_TEST_KILLED", "1");
        let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let launcher: i32 = lines.find_map(|l| l.strip_prefix("launcher ").and_then(|pid| pid.parse().ok())).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let runs = || {
            let stat = std::fs::read_to_string(format!("/proc/{launcher}/stat")).unwrap_or_default();
            stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
        };
        let start = std::time::Instant::now();
        while runs() && start.elapsed() < std::time::Duration::from_secs(20) {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let left = runs();
        let _ = kill(Pid::from_raw(launcher), Signal::SIGKILL);
        assert!(!left, "the launcher goes on");
    }

    #[test]
    fn a_mark_goes_with_its_folder() {
        let mark = Mark::new().unwrap();
        let file = mark.file();
        assert!(!mark.was_made());
        std::fs::write(&file, "").unwrap();
        assert!(mark.was_made());
        drop(mark);
        assert!(!file.parent().unwrap().exists());
    }

    #[test]
    fn a_program_without_weir_is_told_its_cause() {
        let dir = tempfile::tempdir().unwrap();
        let library = dir.path().join("libmpich.so.12");
        std::fs::write(&library, b"\0ch4:ucx\0").unwrap();
        let mut found = Found { kind: Kind::Mpich, version: None, launcher: None, library: Some(library) };
        let text = unused(&found, Path::new("./p"), 255).unwrap();
        assert!(text.starts_with("the program did not use Weir") && text.contains("without libfabric"), "{text}");
        found.library = None;
        assert!(unused(&found, Path::new("./p"), 0).unwrap().contains("weir doctor ./p"));
        assert_eq!(unused(&found, Path::new("./p"), 15), None);
    }
}

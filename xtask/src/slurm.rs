//! MPI programs started by Slurm: Debian's controller and node daemons on two emulated hosts,
//! `srun` with the interface of each MPI, everything between the hosts over Weir.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::cluster::{Cluster, Node, Site};
use crate::e2e::{Ended, carried, counters_in, judged, no_folder};
use crate::lab::{DATA_IFACE, Lab, Wire};
use crate::launch::{result_of, without_foreign};
use crate::mpi::{self, Mpi};
use crate::paths::Paths;
use crate::process::{Outcome, run_limited, run_quiet};
use crate::stack::Stack;

/// Each takes a second or two alone; the rest is for machines that do much else.
const LIMIT: Duration = Duration::from_secs(120);
/// What asks the controller for something small.
const ASKS_LIMIT: Duration = Duration::from_secs(20);
/// What is run between the hosts.
const WORK: [&str; 4] = ["--rounds", "40", "--both", "1"];
/// The program: each rank sends its neighbours messages to 300 KB, both ways at once, so that each
/// speaks to another host. (Not `order`, with which Open MPI 4.1 writes past buffers over its own
/// TCP.)
const PROGRAM: &str = "ring";
/// Ranks, two on each host.
const RANKS: usize = 4;
/// Debian's Open MPI 4.1, beside other MPIs.
const DEBIANS_WRAPPER: &str = "/usr/bin/mpicc.openmpi";
/// Nobody else is in the hosts' networks.
const CONTROLLER_PORT: u16 = 7817;
/// The same for the node daemons.
const NODE_PORT: u16 = 7818;

impl Site for &Lab {
    fn nodes(&self) -> std::io::Result<[Node; 2]> {
        let node = |index: usize| {
            let host = self.hosts[index].clone();
            Node { name: host.clone(), host, address: self.control_address(index), port: NODE_PORT }
        };
        Ok([node(0), node(1)])
    }

    fn controller_port(&self) -> u16 {
        CONTROLLER_PORT
    }

    fn command(&self, node: usize, program: &str) -> Command {
        // On no node if there is no such one: then it fails when it is started.
        self.command_on(node, program).unwrap_or_else(|_| Command::new("false"))
    }
}

/// An MPI as it is started by Slurm.
struct Way {
    name: &'static str,
    /// For `srun --mpi`.
    interface: &'static str,
    /// Whose settings it gets.
    stack: Stack,
    program: Result<PathBuf, String>,
}

/// Runs what contains `only` in its title; `report` hears of each as it ends.
///
/// # Errors
/// If there can be no network of hosts.
pub fn run(paths: &Paths, only: &str, mut report: impl FnMut(&str, &Ended)) -> Result<()> {
    let lab = Lab::start(2, &Wire::plain(0.0))?;
    let ways = ways(paths);
    let title = |way: &Way| format!("Slurm: srun --mpi={} with {} over Weir between hosts", way.interface, way.name);
    type Ours = fn(&Paths, &Cluster<&Lab>) -> Result<(), String>;
    let ours: [(&str, Ours); 5] = [
        ("Slurm: weir run within an allocation", allocated),
        ("Slurm: weir run --launcher srun outside of an allocation", outside),
        ("Slurm: weir env in a batch script", batch_by_srun),
        ("Slurm: weir run in a batch script that hands on no environment", batch_without_environment),
        ("Slurm: a batch job that takes too long leaves nothing in the queue", overlong),
    ];
    let wanted = |title: &str| title.contains(only);
    if !ways.iter().map(title).any(|title| wanted(&title)) && !ours.iter().any(|(title, _)| wanted(title)) {
        return Ok(());
    }
    let cluster = match Cluster::start(&lab) {
        Ok(cluster) => cluster,
        Err(why) => {
            report("MPI programs started by Slurm", &Ended::Skipped(why));
            return Ok(());
        }
    };
    for way in ways.iter().filter(|way| wanted(&title(way))) {
        let ended = match &way.program {
            Err(why) => Ended::Skipped(why.clone()),
            Ok(program) => by_srun(paths, &cluster, way, program).into(),
        };
        report(&title(way), &ended);
    }
    for (title, test) in ours.iter().filter(|(title, _)| wanted(title)) {
        report(title, &test(paths, &cluster).into());
    }
    drop(cluster);
    lab.clear();
    Ok(())
}

fn ways(paths: &Paths) -> Vec<Way> {
    let fetched = |stacks: Vec<Stack>, name: &str| stacks.into_iter().find(|stack| stack.name == name);
    let of = |mpi| Ok(mpi::program(paths, mpi, PROGRAM));
    let way =
        |name, interface, stack: Option<Stack>, program| stack.map(|stack| Way { name, interface, stack, program });
    let all = || Stack::all(&[]);
    let intel = mpi::set_up_one(paths, Mpi::Intel).and_then(|()| mpi::compile_these(paths, Mpi::Intel, &[PROGRAM]));
    let intel = intel.map(|()| mpi::program(paths, Mpi::Intel, PROGRAM)).map_err(|error| format!("{error:#}"));
    [
        way("MPICH", "pmi2", fetched(all(), "weir-mpich"), of(Mpi::Mpich)),
        way("Intel MPI", "pmi2", fetched(Stack::of_intel(&[]), "weir-impi"), intel),
        way("Open MPI 5", "pmix", fetched(all(), "weir-openmpi"), of(Mpi::Openmpi)),
        way("Debian's Open MPI 4.1", "pmix", fetched(all(), "weir-openmpi"), debians(paths)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The program, made with Debian's Open MPI.
fn debians(paths: &Paths) -> Result<PathBuf, String> {
    if !Path::new(DEBIANS_WRAPPER).exists() {
        return Err(format!("no {DEBIANS_WRAPPER}: apt-get install openmpi-bin libopenmpi-dev"));
    }
    let out = paths.mpi().join("programs/debian-openmpi").join(PROGRAM);
    let make = || -> Result<()> {
        std::fs::create_dir_all(out.parent().context("no folder")?)?;
        let mut cc = Command::new(DEBIANS_WRAPPER);
        cc.args(["-O2", "-std=gnu11", "-pthread"]).arg(paths.mpi_sources().join(PROGRAM).with_extension("c"));
        run_quiet(cc.arg("-o").arg(&out).arg("-lm")).map(drop)
    };
    make().map(|()| out.clone()).map_err(|error| format!("{error:#}"))
}

/// One program by plain `srun`, its variables as `weir env` would set them.
fn by_srun(paths: &Paths, cluster: &Cluster<&Lab>, way: &Way, program: &Path) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(no_folder)?;
    let words = |error: anyhow::Error| format!("{error:#}");
    let settings = way.stack.settings(paths, DATA_IFACE).map_err(words)?;
    let mut command = cluster.command("srun");
    without_foreign(&mut command);
    command.envs(settings.env);
    // Settings that Open MPI's launcher takes as words are variables without it.
    for triple in settings.args.chunks(3) {
        if let [_, name, value] = triple {
            command.env(format!("OMPI_MCA_{name}"), value);
        }
    }
    // Open MPI 4 knows it by this name.
    command.env("OMPI_MCA_mtl_ofi_provider_include", "weir");
    command.env("WEIR_IFACE", DATA_IFACE).env("WEIR_STATS", folder.path().join("%p")).env("MPIR_CVAR_NOLOCAL", "1");
    // Without their number on each node it may put three on one.
    command.args(["-N", "2", "-n", &RANKS.to_string(), &format!("--ntasks-per-node={}", RANKS / 2)]);
    command.args(["--kill-on-bad-exit=1", &format!("--mpi={}", way.interface)]);
    command.arg(program).args(WORK);
    judged(run_limited(&mut command, LIMIT))?;
    carried(&counters_in(folder.path()), RANKS)
}

/// Two jobs at once by `weir run`, within an allocation: it takes `srun` by itself, and each job
/// has a key of its own.
fn allocated(paths: &Paths, cluster: &Cluster<&Lab>) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(no_folder)?;
    // A script tells the job's key, of which nothing else speaks, and becomes the program.
    let script = folder.path().join("told");
    let text = format!(
        "#!/bin/sh\necho \"$WEIR_KEY\" | sha256sum | cut -c1-16 >> {0}/keys-$RUN\nexport WEIR_STATS={0}/$RUN-%p\nexec {1} \"$@\"\n",
        folder.path().display(),
        mpi::program(paths, Mpi::Mpich, PROGRAM).display()
    );
    let run = |number: usize| -> Result<Outcome> {
        let mut command = cluster.command("salloc");
        without_foreign(&mut command);
        command.args(["-Q", "-N", "2", "-n", "2"]).arg(paths.command()).args(["run", "-n", "2"]);
        command.arg(&script).args(WORK).env("RUN", number.to_string()).env("WEIR_IFACE", DATA_IFACE);
        command.env("WEIR_LIB", paths.provider_dir());
        // The script says nothing of its MPI: it is the first on the path.
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", Mpi::Mpich.folder(paths).join("bin").display()));
        run_limited(&mut command, LIMIT)
    };
    let script_made = std::fs::write(&script, text)
        .and_then(|()| std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)));
    script_made.map_err(no_folder)?;
    let outcomes: Vec<Result<Outcome>> = std::thread::scope(|scope| {
        let all = [1, 2].map(|number| scope.spawn(move || run(number)));
        all.into_iter().map(|one| one.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a thread ended")))).collect()
    });
    for outcome in outcomes {
        let outcome = outcome.map_err(|error| format!("{error:#}"))?;
        if !outcome.ok() || result_of(&outcome).is_none() {
            return Err(format!("{}\n{}", outcome.cause(), outcome.stderr));
        }
    }
    carried(&counters_in(folder.path()), 4)?;
    let keys =
        [1, 2].map(|number| std::fs::read_to_string(folder.path().join(format!("keys-{number}"))).unwrap_or_default());
    one_key_for_each(&keys)
}

/// One job by `weir run --launcher srun`, which asks for its nodes itself.
fn outside(paths: &Paths, cluster: &Cluster<&Lab>) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(no_folder)?;
    let mut command = cluster.command(&paths.command().display().to_string());
    without_foreign(&mut command);
    command.args(["run", "-n", "2", "--launcher", "srun", "--launcher-arg=-N2"]);
    command.arg(mpi::program(paths, Mpi::Mpich, PROGRAM)).args(WORK);
    command.env("WEIR_IFACE", DATA_IFACE).env("WEIR_LIB", paths.provider_dir());
    command.env("WEIR_STATS", folder.path().join("%p"));
    judged(run_limited(&mut command, LIMIT))?;
    carried(&counters_in(folder.path()), 2)
}

/// The guide's batch script: `weir env`, then plain `srun`.
fn batch_by_srun(paths: &Paths, cluster: &Cluster<&Lab>) -> Result<(), String> {
    let line = format!("eval $(weir env --mpi mpich)\nsrun --mpi=pmi2 {}", ring(paths));
    batch(paths, cluster, "--nodes=2 --ntasks-per-node=2", &line)
}

/// What a site may make of all batch scripts: `srun` then hands on nothing, unless it is told to.
fn batch_without_environment(paths: &Paths, cluster: &Cluster<&Lab>) -> Result<(), String> {
    let line = format!("weir run -n {RANKS} {}", ring(paths));
    batch(paths, cluster, "--nodes=2 --ntasks-per-node=2 --export=NONE", &line)
}

fn ring(paths: &Paths) -> String {
    format!("{} {}", mpi::program(paths, Mpi::Mpich, PROGRAM).display(), WORK.join(" "))
}

/// Four ranks on two nodes by `line` of a batch script.
fn batch(paths: &Paths, cluster: &Cluster<&Lab>, asked: &str, line: &str) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(no_folder)?;
    let at = folder.path().display();
    let bins = [&paths.command(), &Mpi::Mpich.bin(paths, "mpiexec")]
        .map(|file| file.parent().unwrap_or(file).display().to_string());
    let text = format!(
        "#!/bin/sh\n#SBATCH {asked}\nexport PATH={}:/usr/bin:/bin WEIR_LIB={} WEIR_IFACE={DATA_IFACE} WEIR_STATS={at}/%p HOME={at}\n\
         export MPIR_CVAR_NOLOCAL=1\n{line}\n",
        bins.join(":"),
        paths.provider_dir().display()
    );
    let script = folder.path().join("job");
    std::fs::write(&script, text).map_err(no_folder)?;
    let outcome = submitted(cluster, folder.path(), &script, LIMIT)?;
    let said = std::fs::read_to_string(folder.path().join("said")).unwrap_or_default();
    if !outcome.ok() {
        return Err(format!("{}\n{}\n{said}", outcome.cause(), outcome.stderr.trim()));
    }
    carried(&counters_in(folder.path()), RANKS).map_err(|why| format!("{why}\n{said}"))
}

/// Waits for a batch script to end, for so long at the most: then its job is taken out of the
/// queue, which `sbatch` does not do when it is ended. The folder's name is the job's; what the job
/// says is in its file `said`.
fn submitted(cluster: &Cluster<&Lab>, folder: &Path, script: &Path, limit: Duration) -> Result<Outcome, String> {
    let words = |error: anyhow::Error| format!("{error:#}");
    let mut command = cluster.command("sbatch");
    without_foreign(&mut command);
    command.arg("--wait").arg("-J").arg(folder).arg("-o").arg(folder.join("said")).arg(script);
    let outcome = run_limited(&mut command, limit).map_err(words)?;
    if outcome.status.is_none() {
        run_limited(cluster.command("scancel").arg("-n").arg(folder), ASKS_LIMIT).map_err(words)?;
    }
    Ok(outcome)
}

/// A job that does not end in its time.
fn overlong(_: &Paths, cluster: &Cluster<&Lab>) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(no_folder)?;
    let script = folder.path().join("job");
    std::fs::write(&script, "#!/bin/sh\n#SBATCH --nodes=2\nexec sleep 600\n").map_err(no_folder)?;
    let outcome = submitted(cluster, folder.path(), &script, Duration::from_secs(5))?;
    if outcome.status.is_some() {
        return Err(format!("it did not run: {}\n{}", outcome.cause(), outcome.stderr));
    }
    let began = Instant::now();
    loop {
        let mut command = cluster.command("squeue");
        command.arg("-h").arg("-n").arg(folder.path());
        let left = run_limited(&mut command, ASKS_LIMIT).map_err(|error| format!("{error:#}"))?;
        if left.ok() && left.stdout.trim().is_empty() {
            return Ok(());
        }
        if began.elapsed() > ASKS_LIMIT {
            return Err(format!("in the queue: {}{}", left.stdout, left.stderr));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Of what the ranks of each job said of their keys: all of a job the same, no two jobs the same.
fn one_key_for_each(said: &[String]) -> Result<(), String> {
    let mut of_jobs = Vec::new();
    for job in said {
        let mut keys: Vec<&str> = job.lines().collect();
        let ranks = keys.len();
        keys.dedup();
        if ranks != 2 || keys.len() != 1 {
            return Err(format!("not one key of two ranks: {job:?}"));
        }
        of_jobs.extend(keys);
    }
    of_jobs.dedup();
    if of_jobs.len() == said.len() { Ok(()) } else { Err(format!("jobs share a key: {said:?}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_a_job_share_a_key_and_jobs_do_not() {
        let said = |jobs: &[&str]| one_key_for_each(&jobs.iter().map(|&job| job.to_owned()).collect::<Vec<_>>());
        assert_eq!(said(&["a\na\n", "b\nb\n"]), Ok(()));
        for wrong in [&["a\nb\n", "c\nc\n"][..], &["a\na\n", "a\na\n"], &["a\n", "b\nb\n"], &["", "b\nb\n"]] {
            assert!(said(wrong).is_err(), "{wrong:?}");
        }
    }
}

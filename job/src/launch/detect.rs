//! Which launcher started this process, and how it is spoken to, by the variables it left and the
//! names of the parents.

use std::fs;
use std::path::PathBuf;

use super::LaunchError;
use super::local::SOCKET_VARIABLE;
use crate::Env;

/// How a launcher is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Launcher {
    /// There is none: rank 0 of 1.
    None,
    /// `weir run`, on one machine.
    Local,
    /// PMI version 1: Hydra and others.
    Pmi1,
    /// PMI version 2: Slurm's `--mpi=pmi2`, and Hydra if told so.
    Pmi2,
    /// PMIx: PRRTE (Open MPI's `mpiexec`), Slurm's `--mpi=pmix`.
    Pmix,
}

impl Launcher {
    /// All of them, with the names that `WEIR_LAUNCHER` takes.
    pub const NAMES: [(&'static str, Launcher); 5] = [
        ("none", Launcher::None),
        ("local", Launcher::Local),
        ("pmi1", Launcher::Pmi1),
        ("pmi2", Launcher::Pmi2),
        ("pmix", Launcher::Pmix),
    ];

    /// Whether it prints what a rank says when it aborts the job.
    pub(super) fn shows_abort(self) -> bool {
        self == Launcher::Local
    }
}

impl std::fmt::Display for Launcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = Self::NAMES.iter().find(|(_, launcher)| launcher == self);
        f.write_str(name.map_or("none", |(name, _)| name))
    }
}

/// Launchers that start several processes and say so, whether or not they leave a way to be spoken
/// to: a variable they always set, the one that has the number of processes, their name, what to
/// do.
const TELLTALES: [(&str, &str, &str, &str); 6] = [
    (
        "SLURM_STEP_ID",
        "SLURM_STEP_NUM_TASKS",
        "srun",
        "start it by srun --mpi=pmi2 or srun --mpi=pmix (srun --mpi=list shows what there is)",
    ),
    (
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_SIZE",
        "Open MPI's mpiexec",
        "it hands over no PMIx server's address (PMIX_NAMESPACE, PMIX_RANK); let the program have its environment as it is",
    ),
    (
        "PMI_SIZE",
        "PMI_SIZE",
        "a launcher with PMI",
        "it hands over neither PMI_FD nor PMI_PORT; let the program have its environment as it is",
    ),
    ("FLUX_JOB_SIZE", "FLUX_JOB_SIZE", "Flux", "start it by flux run -o pmi=simple"),
    ("PALS_SIZE", "PALS_SIZE", "PALS", "start it by mpiexec --pmi=pmix"),
    ("JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_SIZE", "jsrun", "start it by a launcher with PMI or PMIx, or by weir run"),
];

/// How many ranks of the job are on this host, as far as the launcher's variables tell: Hydra's,
/// Open MPI's, Slurm's.
pub fn ranks_here(env: &Env) -> Option<u32> {
    let text = |name: &str| env.get(name).map(|value| value.to_string_lossy().into_owned());
    let number = |name: &str| text(name)?.trim().parse::<u32>().ok();
    let told = number("MPI_LOCALNRANKS").or_else(|| number("OMPI_COMM_WORLD_LOCAL_SIZE"));
    told.or_else(|| tasks_of_node(&text("SLURM_STEP_TASKS_PER_NODE")?, number("SLURM_NODEID")?)).filter(|n| *n > 0)
}

/// Slurm's list of tasks by node, as in `4(x2),3`: two nodes with four, then one with three.
fn tasks_of_node(list: &str, node: u32) -> Option<u32> {
    let mut first = 0u32;
    for part in list.split(',') {
        let (tasks, times) =
            part.trim().strip_suffix(')').and_then(|part| part.split_once("(x")).unwrap_or((part.trim(), "1"));
        first = first.checked_add(times.parse().ok()?)?;
        if node < first {
            return tasks.parse().ok();
        }
    }
    None
}

/// More parents than any sane start has.
const PARENTS_MAX: usize = 64;

/// Chooses the launcher; `parents` are the names of this process's parents, nearest first.
///
/// # Errors
/// If a launcher started several processes and left no way to be spoken to, if it is unclear which
/// of two it was, or if `WEIR_LAUNCHER` is no name of one.
pub fn detect(env: &Env, parents: &[String]) -> Result<Launcher, LaunchError> {
    if let Some(value) = env.get("WEIR_LAUNCHER") {
        let name = value.to_string_lossy();
        let chosen = Launcher::NAMES.iter().find(|(known, _)| *known == name.trim());
        return chosen.map(|(_, launcher)| *launcher).ok_or_else(|| LaunchError::Variable {
            variable: "WEIR_LAUNCHER",
            value: name.into_owned(),
            problem: "not none, local, pmi1, pmi2 or pmix".into(),
        });
    }
    let has = |name: &str| env.get(name).is_some();
    // It takes other launchers' variables away from its ranks: whoever sees them beside this one's
    // was started by a rank.
    if has(SOCKET_VARIABLE) && !has("PMI_FD") && !has("PMIX_RANK") {
        return Ok(Launcher::Local);
    }
    // Slurm's plug-in speaks both versions, its version 1 only in lines that arrive in one piece.
    let pmi = if has("SLURM_STEP_ID") && has("PMI_JOBID") { Launcher::Pmi2 } else { Launcher::Pmi1 };
    let present = [
        (Launcher::Local, has(SOCKET_VARIABLE)),
        (Launcher::Pmix, has("PMIX_NAMESPACE") && has("PMIX_RANK")),
        (pmi, has("PMI_FD") || (has("PMI_PORT") && has("PMI_ID"))),
    ];
    let found: Vec<Launcher> = present.into_iter().filter_map(|(launcher, is)| is.then_some(launcher)).collect();
    match found.as_slice() {
        [] => silent(env),
        [one] => Ok(*one),
        [one, other, ..] => {
            let nearest = parents.iter().find_map(|name| of_parent(name, pmi)).filter(|near| found.contains(near));
            nearest.ok_or(LaunchError::Unclear { one: *one, other: *other })
        }
    }
}

/// Nobody to speak to: alone, unless a launcher says that there are several.
fn silent(env: &Env) -> Result<Launcher, LaunchError> {
    for (mark, count, by, remedy) in TELLTALES {
        let size = env.get(count).and_then(|value| value.to_string_lossy().trim().parse::<u32>().ok());
        if let Some(size @ 2..) = size.filter(|_| env.get(mark).is_some()) {
            return Err(LaunchError::Silent { by, size, remedy });
        }
    }
    Ok(Launcher::None)
}

/// The launcher whose process this is, if it is one that stands between a launcher and its ranks.
fn of_parent(name: &str, pmi: Launcher) -> Option<Launcher> {
    match name {
        "weir" => Some(Launcher::Local),
        "hydra_pmi_proxy" | "hydra_bstrap_pr" | "pmi_proxy" | "mpiexec.hydra" | "mpiexec.gforker" => Some(pmi),
        "prterun" | "prted" | "prte" | "orterun" | "orted" => Some(Launcher::Pmix),
        _ => None,
    }
}

/// The names of this process's parents, nearest first. The kernel cuts them to 15 bytes.
pub fn parents() -> Vec<String> {
    ancestors().into_iter().map(|(_, name)| name).collect()
}

/// The program files of this process's parents, nearest first, as far as they may be read: not
/// those of other users.
pub fn parent_programs() -> Vec<PathBuf> {
    ancestors().iter().filter_map(|(pid, _)| fs::read_link(format!("/proc/{pid}/exe")).ok()).collect()
}

/// Numbers and names.
fn ancestors() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut pid = "self".to_owned();
    while found.len() < PARENTS_MAX {
        // proc(5): the name in parentheses, then the state and the parent.
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let Some((before, after)) = stat.rsplit_once(')') else { break };
        let name = before.split_once('(').map_or("", |(_, name)| name).to_owned();
        let parent = after.split_whitespace().nth(1).unwrap_or("0").to_owned();
        if pid != "self" {
            found.push((pid, name));
        }
        if parent == "0" {
            break;
        }
        pid = parent;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)], parents: &[&str]) -> Result<Launcher, String> {
        let parents: Vec<String> = parents.iter().map(ToString::to_string).collect();
        detect(&Env::from_pairs(variables.iter().copied()), &parents).map_err(|error| error.to_string())
    }

    const HYDRA: [(&str, &str); 3] = [("PMI_FD", "7"), ("PMI_RANK", "1"), ("PMI_SIZE", "4")];
    const PRRTE: [(&str, &str); 3] = [("PMIX_NAMESPACE", "p@1"), ("PMIX_RANK", "2"), ("OMPI_COMM_WORLD_SIZE", "3")];

    #[test]
    fn each_launcher_is_known_by_its_variables() {
        assert_eq!(of(&[], &["bash"]), Ok(Launcher::None));
        assert_eq!(of(&[("WEIR_JOB_FD", "3")], &[]), Ok(Launcher::Local));
        assert_eq!(of(&HYDRA, &[]), Ok(Launcher::Pmi1));
        assert_eq!(of(&[("PMI_PORT", "h:1"), ("PMI_ID", "0")], &[]), Ok(Launcher::Pmi1));
        assert_eq!(of(&PRRTE, &[]), Ok(Launcher::Pmix));
        let slurm = [("SLURM_STEP_ID", "0"), ("SLURM_STEP_NUM_TASKS", "2"), ("PMI_JOBID", "5.0"), ("PMI_FD", "9")];
        assert_eq!(of(&slurm, &[]), Ok(Launcher::Pmi2));
    }

    #[test]
    fn of_two_the_nearer_one_counts_and_without_parents_it_is_an_error() {
        let both: Vec<_> = HYDRA.into_iter().chain(PRRTE).collect();
        assert_eq!(of(&both, &["sh", "hydra_pmi_proxy", "mpiexec", "prterun"]), Ok(Launcher::Pmi1));
        assert_eq!(of(&both, &["prted", "hydra_pmi_proxy"]), Ok(Launcher::Pmix));
        let unclear = of(&both, &["bash"]).unwrap_err();
        assert!(unclear.contains("pmix") && unclear.contains("pmi1") && unclear.contains("WEIR_LAUNCHER"), "{unclear}");
        let inside = [("WEIR_JOB_FD", "3"), ("PMI_FD", "7")];
        assert_eq!(of(&inside, &["hydra_pmi_proxy", "mpiexec", "weir"]), Ok(Launcher::Pmi1));
    }

    #[test]
    fn a_launcher_that_is_not_spoken_to_is_no_reason_to_run_alone() {
        for (variables, named) in [
            (&[("SLURM_STEP_ID", "0"), ("SLURM_STEP_NUM_TASKS", "2")][..], "--mpi=pmi2"),
            (&[("OMPI_COMM_WORLD_SIZE", "4")], "one of 4"),
            (&[("PMI_RANK", "0"), ("PMI_SIZE", "2")], "PMI_FD"),
            (&[("FLUX_JOB_SIZE", "8")], "Flux"),
        ] {
            let why = of(variables, &[]).unwrap_err();
            assert!(why.contains(named) && why.contains("WEIR_LAUNCHER=none") && !why.contains('\n'), "{why}");
        }
        // One process is one process, and an allocation is no start.
        assert_eq!(of(&[("SLURM_STEP_ID", "0"), ("SLURM_STEP_NUM_TASKS", "1")], &[]), Ok(Launcher::None));
        assert_eq!(of(&[("SLURM_JOB_ID", "9"), ("SLURM_NTASKS", "8")], &[]), Ok(Launcher::None));
    }

    #[test]
    fn who_else_is_on_this_host_is_read_from_variables() {
        let here = |variables: &[(&str, &str)]| ranks_here(&Env::from_pairs(variables.iter().copied()));
        assert_eq!(here(&[("MPI_LOCALNRANKS", "3")]), Some(3));
        assert_eq!(here(&[("OMPI_COMM_WORLD_LOCAL_SIZE", "x")]), None);
        let slurm = |node| here(&[("SLURM_STEP_TASKS_PER_NODE", "4(x2),3"), ("SLURM_NODEID", node)]);
        assert_eq!((slurm("0"), slurm("1"), slurm("2"), slurm("3")), (Some(4), Some(4), Some(3), None));
        for list in ["", "4(x", "(x2)", "4(x99999999999)", "4(x4294967295),1(x2)"] {
            assert_eq!(tasks_of_node(list, u32::MAX), None, "{list}");
        }
    }

    #[test]
    fn the_user_may_choose() {
        let chosen: Vec<_> = HYDRA.into_iter().chain([("WEIR_LAUNCHER", "pmi2")]).collect();
        assert_eq!(of(&chosen, &[]), Ok(Launcher::Pmi2));
        assert_eq!(of(&[("OMPI_COMM_WORLD_SIZE", "4"), ("WEIR_LAUNCHER", "none")], &[]), Ok(Launcher::None));
        assert!(of(&[("WEIR_LAUNCHER", "ssh")], &[]).unwrap_err().starts_with("WEIR_LAUNCHER=ssh: not none, local"));
    }

    #[test]
    fn every_launcher_has_a_name_and_the_parents_are_read() {
        for (name, launcher) in Launcher::NAMES {
            assert_eq!(launcher.to_string(), name);
        }
        assert!(!parents().is_empty());
    }
}

//! What the launcher of this process told it: variables, and its own program file among the
//! parents.

use std::fs;
use std::path::{Path, PathBuf};

use weir_job::Env;

/// MPIs whose launchers and libraries go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// MPICH and those made from it, with the launcher Hydra or another that speaks PMI.
    Mpich,
    /// Open MPI, with the launcher PRRTE or ORTE.
    OpenMpi,
}

impl std::fmt::Display for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Mpich => "MPICH",
            Self::OpenMpi => "Open MPI",
        })
    }
}

/// How this process was started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launch {
    /// Whose launcher; none if there was none, or one of no MPI, such as Slurm's.
    pub family: Option<Family>,
    /// The launcher's program file, or its helper's on this host.
    pub program: Option<PathBuf>,
    /// The rank the launcher gave this process.
    pub rank: Option<u32>,
    /// How many processes it started.
    pub size: Option<u32>,
    /// Set if the variables are those of two launchers, and the parents do not tell which is the
    /// nearer.
    pub unclear: bool,
}

/// More parents than any sane start has.
const MAX_PARENTS: usize = 64;

impl Launch {
    /// Of this process, with these variables.
    pub fn of_process(env: &Env) -> Self {
        Self::detect(env, &parents(Path::new("/proc")))
    }

    /// From variables and the program files of the parents, nearest first.
    pub fn detect(env: &Env, parents: &[PathBuf]) -> Self {
        let has = |name: &str| env.get(name).is_some();
        let number = |name: &str| env.get(name)?.to_str()?.trim().parse::<u32>().ok();
        let known = || parents.iter().filter_map(|program| Some((family_of_launcher(program)?, program)));
        // PMI_RANK alone says nothing about the MPI: Slurm, Flux and others set it for any that
        // speaks PMI.
        let of_mpich = || known().next().is_some_and(|(family, _)| family == Family::Mpich);
        let mpich = has("HYDI_CONTROL_FD") || has("MPI_LOCALNRANKS") || (has("PMI_RANK") && of_mpich());
        let marks: Vec<Family> = [(Family::Mpich, mpich), (Family::OpenMpi, has("OMPI_COMM_WORLD_SIZE"))]
            .into_iter()
            .filter_map(|(family, marked)| marked.then_some(family))
            .collect();
        let nearest = known().find(|(family, _)| marks.contains(family));
        let family = match marks.as_slice() {
            [one] => Some(*one),
            _ => nearest.map(|(family, _)| family),
        };
        let program =
            family.and_then(|family| known().find(|(of, _)| *of == family)).map(|(_, program)| program.clone());
        let (rank, size) = match family {
            Some(Family::OpenMpi) => ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
            // Not SLURM_NTASKS: that is the allocation's, also where a batch script starts one
            // process by itself.
            None if has("SLURM_STEP_ID") => ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
            Some(Family::Mpich) | None => ("PMI_RANK", "PMI_SIZE"),
        };
        let unclear = marks.len() > 1 && family.is_none();
        Self { family, program, rank: number(rank), size: number(size), unclear }
    }

    /// The launcher in words.
    pub fn name(&self) -> String {
        match (self.family, &self.program) {
            (Some(family), Some(program)) => format!("{family}'s launcher {}", program.display()),
            (Some(family), None) => format!("{family}'s launcher"),
            (None, _) => "the launcher".into(),
        }
    }

    /// Folders in which the launcher's library may be: beside its program.
    pub fn library_folders(&self, env: &Env) -> Vec<PathBuf> {
        // Open MPI 5 names the folder, which its builders can choose.
        let named = env.get("OMPI_LIBDIR_LOC").filter(|_| self.family == Some(Family::OpenMpi)).map(PathBuf::from);
        let prefix = self.program.as_deref().and_then(Path::parent).and_then(Path::parent);
        let debian = format!("lib/{}-linux-gnu", std::env::consts::ARCH);
        // The last is Intel's.
        let below = ["lib", "lib64", &debian, "lib/release"];
        let beside = prefix.into_iter().flat_map(|prefix| below.map(|folder| prefix.join(folder)));
        named.into_iter().chain(beside).collect()
    }
}

/// Whose launcher a program is. Names that several MPIs use (`mpiexec`) say nothing; between them
/// and a rank there is always one of these.
fn family_of_launcher(program: &Path) -> Option<Family> {
    match program.file_name()?.to_str()? {
        "hydra_pmi_proxy" | "hydra_bstrap_proxy" | "pmi_proxy" | "mpiexec.hydra" | "mpiexec.gforker" => {
            Some(Family::Mpich)
        }
        "prterun" | "prted" | "prte" | "orterun" | "orted" => Some(Family::OpenMpi),
        _ => None,
    }
}

/// The program files of this process's parents, nearest first, as far as they may be read.
fn parents(proc: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut process = proc.join("self");
    while found.len() < MAX_PARENTS {
        // proc(5): after the name in parentheses come the state and the parent.
        let stat = fs::read_to_string(process.join("stat")).unwrap_or_default();
        let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
        let Some(parent) = after.split_whitespace().nth(1).filter(|pid| *pid != "0") else { break };
        process = proc.join(parent);
        // Another user's, such as Slurm's daemon: it and what is above are no launcher of an MPI.
        let Ok(program) = fs::read_link(process.join("exe")) else { break };
        found.push(program);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYDRA: [(&str, &str); 4] =
        [("HYDI_CONTROL_FD", "7"), ("MPI_LOCALNRANKS", "2"), ("PMI_RANK", "1"), ("PMI_SIZE", "4")];
    const OPEN: [(&str, &str); 3] = [("OMPI_COMM_WORLD_RANK", "2"), ("OMPI_COMM_WORLD_SIZE", "3"), ("PMIX_RANK", "2")];

    fn detect(variables: &[(&str, &str)], parents: &[&str]) -> Launch {
        let parents: Vec<PathBuf> = parents.iter().map(PathBuf::from).collect();
        Launch::detect(&Env::from_pairs(variables.iter().copied()), &parents)
    }

    #[test]
    fn hydra_is_known_by_its_variables_and_its_proxy() {
        let launch = detect(&HYDRA, &["/usr/bin/dash", "/opt/m/bin/hydra_pmi_proxy", "/opt/m/bin/mpiexec"]);
        assert_eq!((launch.family, launch.rank, launch.size), (Some(Family::Mpich), Some(1), Some(4)));
        assert_eq!(launch.program, Some("/opt/m/bin/hydra_pmi_proxy".into()));
        let folders = launch.library_folders(&Env::default());
        assert!(folders.contains(&"/opt/m/lib".into()) && folders.contains(&"/opt/m/lib64".into()));
    }

    #[test]
    fn open_mpis_launcher_is_known_and_may_name_its_libraries() {
        let launch = detect(&OPEN, &["/usr/bin/orterun"]);
        assert_eq!((launch.family, launch.rank, launch.size), (Some(Family::OpenMpi), Some(2), Some(3)));
        let env = Env::from_pairs([("OMPI_LIBDIR_LOC", "/o/lib")]);
        assert_eq!(launch.library_folders(&env)[0], Path::new("/o/lib"));
    }

    #[test]
    fn of_two_launchers_the_nearer_one_counts() {
        let both: Vec<_> = HYDRA.into_iter().chain(OPEN).collect();
        let chain = ["/m/bin/hydra_pmi_proxy", "/m/bin/mpiexec.hydra", "/o/bin/prterun"];
        assert_eq!(detect(&both, &chain).family, Some(Family::Mpich));
        let turned: Vec<&str> = chain.into_iter().rev().collect();
        assert_eq!(detect(&both, &turned).family, Some(Family::OpenMpi));
        let unseen = detect(&both, &["/usr/bin/bash"]);
        assert!(unseen.unclear && unseen.family.is_none());
    }

    #[test]
    fn a_launcher_that_handed_no_variables_is_not_ours() {
        assert_eq!(detect(&[], &["/o/bin/prterun"]), Launch::default());
    }

    #[test]
    fn slurm_tells_the_number_but_not_the_mpi() {
        let step = [("SLURM_STEP_ID", "0"), ("SLURM_PROCID", "3"), ("SLURM_STEP_NUM_TASKS", "8"), ("PMI_RANK", "3")];
        let launch = detect(&step, &[]);
        assert_eq!((launch.family, launch.rank, launch.size), (None, Some(3), Some(8)));
        assert_eq!(detect(&[("SLURM_NTASKS", "8")], &[]).size, None, "an allocation, not a start");
    }

    #[test]
    fn pmi_says_which_mpi_by_its_launcher_only() {
        let pmi = [("PMI_RANK", "1"), ("PMI_SIZE", "3")];
        let of = |parents: &[&str]| (detect(&pmi, parents).family, detect(&pmi, parents).size);
        assert_eq!(of(&["/usr/bin/flux-shell"]), (None, Some(3)));
        assert_eq!(of(&["/m/bin/mpiexec.gforker"]), (Some(Family::Mpich), Some(3)));
    }

    #[test]
    fn a_bad_number_is_missing() {
        let launch = detect(&[("MPI_LOCALNRANKS", "2"), ("PMI_RANK", "x"), ("PMI_SIZE", "-2")], &[]);
        assert_eq!((launch.family, launch.rank, launch.size), (Some(Family::Mpich), None, None));
    }

    #[test]
    fn parents_are_read_from_proc() {
        let dir = tempfile::tempdir().unwrap();
        let process = |pid: &str, parent: u32, exe: Option<&str>| {
            let folder = dir.path().join(pid);
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("stat"), format!("9 (a) b) S {parent} 1 1")).unwrap();
            if let Some(exe) = exe {
                std::os::unix::fs::symlink(exe, folder.join("exe")).unwrap();
            }
        };
        process("self", 30, Some("/me"));
        process("30", 20, Some("/bin/sh"));
        process("20", 10, Some("/m/bin/hydra_pmi_proxy"));
        process("10", 1, None);
        assert_eq!(parents(dir.path()), [Path::new("/bin/sh"), Path::new("/m/bin/hydra_pmi_proxy")]);
        assert!(!parents(Path::new("/proc")).is_empty());
    }
}

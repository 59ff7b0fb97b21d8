//! Who of a job says what is wrong before its processes know of each other: all of them find the
//! same error in one command line, and people want to read it once. What each is, its launcher's
//! variables say.

use std::time::Duration;

use weir_job::Env;
use weir_mpi::find::Launch;

/// A process that says nothing ends so much later: many launchers end the others when one has
/// failed, also who has not said it yet.
const AFTER_WHO_SPEAKS: Duration = Duration::from_secs(1);
/// An error that other nodes may have for themselves, such as a missing library, is told by the
/// first process of each, but only if it still lives after this time: usually all find the same,
/// and rank 0 has said it.
const OTHER_NODE: Duration = Duration::from_secs(3);

/// What a process does with an error that it found alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// It says it: rank 0, and who does not know its rank.
    Says,
    /// It says it, with its rank, if nobody has ended it by then.
    SaysLate(u32),
    /// It says nothing: another one says the same.
    Silent,
}

/// This process's number as its launcher says, before any MPI is found: launchers of no MPI say it
/// too.
fn rank_of(env: &Env) -> Option<u32> {
    let names = [
        "PMI_RANK",
        "OMPI_COMM_WORLD_RANK",
        "PMIX_RANK",
        "SLURM_PROCID",
        "PALS_RANKID",
        "FLUX_TASK_RANK",
        "WEIR_BSP_RANK",
    ];
    Launch::of_process(env).rank.or_else(|| names.into_iter().find_map(|name| number(env, name)))
}

/// This process's number among those of its node, if its launcher says it.
fn local_rank_of(env: &Env) -> Option<u32> {
    let names = [
        "MPI_LOCALRANKID",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "PMIX_LOCAL_RANK",
        "SLURM_LOCALID",
        "PALS_LOCAL_RANKID",
        "FLUX_TASK_LOCAL_ID",
    ];
    names.into_iter().find_map(|name| number(env, name))
}

fn number(env: &Env, name: &str) -> Option<u32> {
    env.get(name)?.to_str()?.trim().parse().ok()
}

impl Part {
    /// Of this process. `everywhere`: the error is one of the command line, which all have in
    /// common.
    #[must_use]
    pub fn of(env: &Env, everywhere: bool) -> Part {
        match (rank_of(env), local_rank_of(env)) {
            (None | Some(0), _) => Part::Says,
            _ if everywhere => Part::Silent,
            (_, Some(1..)) => Part::Silent,
            (Some(rank), _) => Part::SaysLate(rank),
        }
    }

    /// Says a line, or lets others say it.
    pub fn say(self, line: &str) {
        match self {
            Part::Says => weir_put::tell!("weir bench: {line}"),
            Part::SaysLate(rank) => {
                std::thread::sleep(OTHER_NODE);
                weir_put::tell!("weir bench: rank {rank}: {line}");
            }
            Part::Silent => std::thread::sleep(AFTER_WHO_SPEAKS),
        }
    }
}

/// Whether the parser's complaint about this command line, or its help, is this process's to print.
/// If not, it has waited until who prints it has done so.
#[must_use]
pub fn prints_what_the_parser_says(env: &Env) -> bool {
    let part = Part::of(env, true);
    if part == Part::Silent {
        part.say("");
    }
    part != Part::Silent
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(variables: &[(&str, &str)], everywhere: bool) -> Part {
        Part::of(&Env::from_pairs(variables.iter().copied()), everywhere)
    }

    #[test]
    fn the_rank_is_known_under_any_launcher_before_an_mpi_is_found() {
        for name in ["PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID", "PALS_RANKID", "FLUX_TASK_RANK"] {
            assert_eq!(part(&[(name, "3")], true), Part::Silent, "{name}");
            assert_eq!(part(&[(name, "0")], true), Part::Says, "{name}");
        }
    }

    #[test]
    fn who_does_not_know_its_rank_speaks() {
        assert_eq!((part(&[], true), part(&[("PMI_RANK", "x")], false)), (Part::Says, Part::Says));
    }

    #[test]
    fn of_what_may_differ_between_nodes_one_process_of_each_speaks() {
        let of = |rank: &str, local: &str| part(&[("PMI_RANK", rank), ("MPI_LOCALRANKID", local)], false);
        assert_eq!((of("0", "0"), of("1", "1"), of("2", "0")), (Part::Says, Part::Silent, Part::SaysLate(2)));
        assert_eq!(part(&[("PMIX_RANK", "2")], false), Part::SaysLate(2));
    }
}

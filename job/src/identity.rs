//! What the launcher says about this process: which job, which rank, how many.

use crate::Env;

/// The identity a launcher gave this process. Every part may be missing: a program started by
/// hand has none of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The launcher's name of the job, for people to read; not unique across machines.
    pub job: Option<String>,
    /// This process's number in the job, from 0.
    pub rank: Option<u32>,
    /// How many processes the job started with.
    pub size: Option<u32>,
}

/// Reads the identity from the variables that PMIx, PMI-1/PMI-2 and Slurm set, in that order.
///
/// A value that is not a number is taken as missing: a stray variable must not stop a program.
pub fn identity(env: &Env) -> Identity {
    let text =
        |names: &[&str]| names.iter().find_map(|name| env.get(name)).map(|value| value.to_string_lossy().into_owned());
    let number = |names: &[&str]| text(names).and_then(|value| value.trim().parse().ok());
    Identity {
        job: text(&["PMIX_NAMESPACE", "PMI_JOBID", "SLURM_JOB_ID"]),
        rank: number(&["PMIX_RANK", "PMI_RANK", "SLURM_PROCID"]),
        size: number(&["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_pmix_before_slurm() {
        let env = Env::from_pairs([
            ("PMIX_NAMESPACE", "prterun-1@1"),
            ("PMIX_RANK", "3"),
            ("SLURM_PROCID", "9"),
            ("OMPI_COMM_WORLD_SIZE", "4"),
        ]);
        let got = identity(&env);
        assert_eq!(got, Identity { job: Some("prterun-1@1".into()), rank: Some(3), size: Some(4) });
    }

    #[test]
    fn a_bad_number_is_missing_not_fatal() {
        let env = Env::from_pairs([("PMI_RANK", "-1"), ("PMI_SIZE", "many")]);
        assert_eq!(identity(&env), Identity::default());
    }
}

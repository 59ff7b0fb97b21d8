//! Why a process cannot find its place in its job.

use std::time::Duration;

use crate::KeyError;
use crate::launch::Launcher;

/// Why a process could not join its job, or the job not go on. Each message is one line that says
/// what to do where that is known.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// A variable has a value that nobody can use.
    #[error("{variable}={}: {problem}", value.escape_debug())]
    Variable {
        /// Its name.
        variable: &'static str,
        /// Its value.
        value: String,
        /// What is wrong.
        problem: String,
    },
    /// A launcher started this process as one of several, but left no way to speak to it.
    #[error(
        "{by} started this process as one of {size}, but it cannot be asked who the others are: {remedy}; to run alone on purpose: WEIR_LAUNCHER=none"
    )]
    Silent {
        /// The launcher in words.
        by: &'static str,
        /// How many it started.
        size: u32,
        /// What to do.
        remedy: &'static str,
    },
    /// There are the variables of two launchers, and it is unclear which one is meant.
    #[error(
        "two launchers left their variables, {one}'s and {other}'s, and it is unclear which one started this process: set WEIR_LAUNCHER to {one} or {other}"
    )]
    Unclear {
        /// The first.
        one: Launcher,
        /// The second.
        other: Launcher,
    },
    /// The launcher cannot be reached.
    #[error("cannot reach the launcher ({launcher}): {problem}")]
    Unreachable {
        /// The way to speak to it.
        launcher: Launcher,
        /// What the system says.
        problem: String,
    },
    /// The launcher is gone.
    #[error(
        "the launcher ({launcher}) went away during {during}: it was ended, or ends the job because another rank failed"
    )]
    Gone {
        /// The way it was spoken to.
        launcher: Launcher,
        /// What was under way.
        during: &'static str,
    },
    /// No answer in time.
    #[error("{during} was not done after {} s: {why}; longer starts are allowed by WEIR_LAUNCH_TIMEOUT", limit.as_secs())]
    Timeout {
        /// What was under way.
        during: &'static str,
        /// How long was waited.
        limit: Duration,
        /// What is known of the reason.
        why: String,
    },
    /// The launcher said what it must not say.
    #[error("the launcher ({launcher}) does not keep its protocol during {during}: {problem}")]
    Protocol {
        /// The way it was spoken to.
        launcher: Launcher,
        /// What was under way.
        during: &'static str,
        /// What it said.
        problem: String,
    },
    /// The launcher refused.
    #[error("the launcher ({launcher}) refused {during}: {reason}")]
    Refused {
        /// The way it was spoken to.
        launcher: Launcher,
        /// What was asked for.
        during: &'static str,
        /// What it said.
        reason: String,
    },
    /// The caller gave more than is exchanged at a start.
    #[error("{bytes} bytes are too many for an exchange; at most {}", crate::launch::BLOB_MAX_BYTES)]
    TooLong {
        /// How many.
        bytes: usize,
    },
    /// What a rank gave to an exchange is not what was asked for.
    #[error(
        "rank {rank} gave {problem} to an exchange: the ranks do different things, or use different versions of Weir"
    )]
    Peer {
        /// The rank.
        rank: u32,
        /// What it gave.
        problem: String,
    },
    /// The library that speaks to the launcher cannot be used.
    #[error("{problem}; name a libpmix.so.2 in WEIR_PMIX_LIBRARY")]
    Library {
        /// Which, and why.
        problem: String,
    },
    /// There is no job key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The ranks were given different keys.
    #[error(
        "rank 0 has {zero} and rank {rank} has {own}: give all ranks the same WEIR_KEY or WEIR_KEY_FILE, or none of them (then they agree on one)"
    )]
    KeysDiffer {
        /// This rank.
        rank: u32,
        /// What rank 0 has.
        zero: String,
        /// What this one has.
        own: String,
    },
    /// An earlier call failed.
    #[error("the job's start failed earlier")]
    Over,
}

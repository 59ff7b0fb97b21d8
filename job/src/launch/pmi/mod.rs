//! PMI, versions 1 and 2: a launcher that keeps names and values for its ranks, and lets them wait
//! for each other.

mod channel;
#[cfg(test)]
mod tests;
pub mod wire;

use channel::Channel;
use wire::{Command, Version, plain};

use super::spread::{Kvs, Spread};
use super::{Joined, LaunchError, Launcher, Limits};
use crate::Env;

const GREETING: &str = "the greeting";

/// Greets the launcher in the version that `launcher` says.
pub(super) fn join(env: &Env, launcher: Launcher, limits: Limits) -> Result<Joined, LaunchError> {
    let (channel, by_port) = Channel::open(env, launcher, limits.answer)?;
    let mut pmi = Pmi { channel, limits, space: String::new(), key_max: 0, value_max: 0, version: Version::V1 };
    let (rank, size) = match launcher {
        Launcher::Pmi2 => pmi.greet2(env)?,
        _ => pmi.greet1(env, by_port)?,
    };
    if size == 0 || rank >= size {
        let problem = format!("rank {rank} of {size}");
        return Err(LaunchError::Protocol { launcher, during: GREETING, problem });
    }
    let id = pmi.space.clone();
    let backend = Box::new(Spread::new(pmi, rank, size));
    Ok(Joined { backend, rank, size, ranks_here: super::detect::ranks_here(env), id, key: None })
}

/// A rank's side. In errors and limits both versions are alike.
struct Pmi {
    channel: Channel,
    limits: Limits,
    /// The name of the job's names and values (version 1), or of the job (version 2).
    space: String,
    key_max: usize,
    value_max: usize,
    version: Version,
}

/// What a launcher of version 2 takes (its specification; it has no question for it).
const V2_KEY_MAX: usize = 64;
const V2_VALUE_MAX: usize = 1024;

/// Longest value that is given, whatever the launcher permits: Slurm reads a whole `put` of version
/// 1 into 1024 bytes.
const VALUE_MAX: usize = 512;

impl Pmi {
    fn greet1(&mut self, env: &Env, by_port: bool) -> Result<(u32, u32), LaunchError> {
        let place =
            if by_port { self.introduce(env)? } else { (variable(env, "PMI_RANK")?, variable(env, "PMI_SIZE")?) };
        self.init("1", "1")?;
        let maxes = self.ask(&Command::new("get_maxes", &[]), "maxes", GREETING)?;
        let number = |key: &str| maxes.number(key).and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0);
        match (number("keylen_max"), number("vallen_max")) {
            (Some(keys), Some(values)) => (self.key_max, self.value_max) = (keys, values),
            _ => return Err(self.channel.strange(GREETING, &maxes)),
        }
        let name = self.ask(&Command::new("get_my_kvsname", &[]), "my_kvsname", GREETING)?;
        self.space = name.get("kvsname").map(str::to_owned).ok_or_else(|| self.channel.strange(GREETING, &name))?;
        Ok(place)
    }

    /// Of a launcher that was connected to, who must be told which of its processes this is.
    fn introduce(&mut self, env: &Env) -> Result<(u32, u32), LaunchError> {
        let id = variable(env, "PMI_ID")?.to_string();
        self.ask(&Command::new("initack", &[("pmiid", &id)]), "initack", GREETING)?;
        let mut told = [None; 2];
        // Three lines: size, rank, debug.
        for _ in 0..3 {
            let line = self.channel.answer("set", Version::V1, self.limits.answer, GREETING)?;
            for (at, key) in ["rank", "size"].iter().enumerate() {
                told[at] = told[at].or(line.number(key).and_then(|n| u32::try_from(n).ok()));
            }
        }
        match told {
            [Some(rank), Some(size)] => Ok((rank, size)),
            _ => {
                let problem = "neither rank nor size".into();
                Err(LaunchError::Protocol { launcher: self.channel.launcher(), during: GREETING, problem })
            }
        }
    }

    fn greet2(&mut self, env: &Env) -> Result<(u32, u32), LaunchError> {
        self.init("2", "0")?;
        self.version = Version::V2;
        (self.key_max, self.value_max) = (V2_KEY_MAX, V2_VALUE_MAX);
        let text = |name: &str| env.get(name).map(|value| value.to_string_lossy().into_owned());
        let job = text("PMI_JOBID").unwrap_or_else(|| "0".into());
        let rank = text("PMI_ID").or_else(|| text("PMI_RANK")).unwrap_or_else(|| "-1".into());
        let pairs = [("pmijobid", job.as_str()), ("pmirank", rank.as_str()), ("threaded", "FALSE")];
        let place = self.ask(&Command::new("fullinit", &pairs), "fullinit-response", GREETING)?;
        let id = self.ask(&Command::new("job-getid", &[]), "job-getid-response", GREETING)?;
        self.space = id.get("jobid").map(str::to_owned).ok_or_else(|| self.channel.strange(GREETING, &id))?;
        let number = |key: &str| place.number(key).and_then(|n| u32::try_from(n).ok());
        match (number("rank"), number("size")) {
            (Some(rank), Some(size)) => Ok((rank, size)),
            _ => Err(self.channel.strange(GREETING, &place)),
        }
    }

    /// The first line, in version 1's form also where version 2 follows.
    fn init(&mut self, version: &str, subversion: &str) -> Result<(), LaunchError> {
        let pairs = [("pmi_version", version), ("pmi_subversion", subversion)];
        let answer = self.ask(&Command::new("init", &pairs), "response_to_init", GREETING)?;
        match answer.get("pmi_version") {
            Some(theirs) if theirs == version => Ok(()),
            _ => Err(self.channel.strange(GREETING, &answer)),
        }
    }

    fn ask(&mut self, command: &Command, expected: &str, during: &'static str) -> Result<Command, LaunchError> {
        self.channel.ask(command, expected, self.version, self.limits.answer, during)
    }
}

impl Kvs for Pmi {
    fn launcher(&self) -> Launcher {
        self.channel.launcher()
    }

    fn maxima(&self) -> (usize, usize) {
        (self.key_max, self.value_max.min(VALUE_MAX))
    }

    fn put(&mut self, key: &str, value: &str) -> Result<(), LaunchError> {
        let during = "an exchange";
        let space = self.space.clone();
        match self.version {
            Version::V1 => {
                let pairs = [("kvsname", space.as_str()), ("key", key), ("value", value)];
                self.ask(&Command::new("put", &pairs), "put_result", during)?;
            }
            Version::V2 => {
                let pairs = [("key", key), ("value", value)];
                self.ask(&Command::new("kvs-put", &pairs), "kvs-put-response", during)?;
            }
        }
        Ok(())
    }

    fn fence(&mut self) -> Result<(), LaunchError> {
        let (name, answer) = match self.version {
            Version::V1 => ("barrier_in", "barrier_out"),
            Version::V2 => ("kvs-fence", "kvs-fence-response"),
        };
        let limit = self.limits.others;
        self.channel.ask(&Command::new(name, &[]), answer, self.version, limit, "waiting for all ranks").map(drop)
    }

    fn fence_waits(&self) -> bool {
        // Hydra's version 2 answers a fence at once, and makes who gets what is not there yet wait
        // instead.
        self.version == Version::V1
    }

    fn get(&mut self, from: u32, key: &str) -> Result<String, LaunchError> {
        let during = "an exchange";
        let space = self.space.clone();
        let answer = match self.version {
            Version::V1 => {
                let pairs = [("kvsname", space.as_str()), ("key", key)];
                self.ask(&Command::new("get", &pairs), "get_result", during)?
            }
            Version::V2 => {
                let from = from.to_string();
                let pairs = [("jobid", space.as_str()), ("srcid", from.as_str()), ("key", key)];
                let (answer, limit) = ("kvs-get-response", self.limits.others);
                self.channel.ask(
                    &Command::new("kvs-get", &pairs),
                    answer,
                    Version::V2,
                    limit,
                    "waiting for all ranks",
                )?
            }
        };
        let found = answer.get("found").is_none_or(|found| found.eq_ignore_ascii_case("true"));
        answer.get("value").filter(|_| found).map(str::to_owned).ok_or_else(|| self.channel.strange(during, &answer))
    }

    fn abort(&mut self, code: i32, message: &str) -> Result<(), LaunchError> {
        let (code, message) = (code.to_string(), plain(message));
        let command = match self.version {
            Version::V1 => Command::new("abort", &[("exitcode", &code), ("message", &message)]),
            // Slurm asks for the first, MPICH for the second.
            Version::V2 => Command::new(
                "abort",
                &[("isworld", "TRUE"), ("exitcode", &code), ("msg", &message), ("message", &message)],
            ),
        };
        self.channel.tell(&command, self.version, self.limits.answer, "an abort")
    }

    fn finalize(&mut self) -> Result<(), LaunchError> {
        let answer = match self.version {
            Version::V1 => "finalize_ack",
            Version::V2 => "finalize-response",
        };
        self.ask(&Command::new("finalize", &[]), answer, "the end").map(drop)
    }
}

/// A number that the launcher left in a variable.
fn variable(env: &Env, name: &'static str) -> Result<u32, LaunchError> {
    let value = env.get(name).map(|value| value.to_string_lossy().into_owned()).unwrap_or_default();
    let wrong = |_| LaunchError::Variable { variable: name, value: value.clone(), problem: "not a number".into() };
    value.trim().parse().map_err(wrong)
}

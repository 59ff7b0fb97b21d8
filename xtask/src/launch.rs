//! Starting an MPI program on a stack, across the hosts of a lab or on this machine alone.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};

use crate::lab::Lab;
use crate::mpi::Mpi;
use crate::paths::Paths;
use crate::process::{Outcome, run_limited};
use crate::stack::{Carrier, Stack, override_env};

/// One run of one program.
#[derive(Clone, Debug)]
pub struct Job<'a> {
    /// The stack to run on.
    pub stack: &'a Stack,
    /// How many ranks, one on each host.
    pub ranks: usize,
    /// The program.
    pub program: &'a Path,
    /// Its arguments.
    pub args: &'a [String],
    /// When it is ended.
    pub limit: Duration,
    /// More environment for the ranks.
    pub env: &'a [(String, String)],
}

/// Settings of MPIs, networks and Weir that the user's shell may hold; a measurement must not
/// depend on them.
const FOREIGN: [&str; 13] =
    ["I_MPI_", "FI_", "UCX_", "UCC_", "OMPI_", "OPAL_", "PRTE_", "PMIX_", "PMI_", "MPIR_", "MPICH_", "HYDRA_", "WEIR_"];

/// Open MPI's launcher now and then (one start of some hundred) says this before any rank exists:
/// nothing was tried yet.
const NOT_STARTED: &str = "PMIx server's listener thread failed to start";

/// How often it is looked whether a program has begun.
const LOOK: Duration = Duration::from_millis(20);

/// What is said of a program that crashed: by itself, its C library or its shell; by Open MPI's
/// libraries and launcher; by MPICH's launcher, which across hosts tells the signal's number only.
/// A launcher's own SIGKILL and SIGTERM are no crashes.
const CRASHES: [&str; 13] = [
    "panicked at",
    "Segmentation fault",
    "Bus error",
    "core dumped",
    "corrupted",
    "double free",
    "Process received signal",
    "signal 6",
    "signal 7",
    "signal 11",
    "EXIT CODE: 6\n",
    "EXIT CODE: 7\n",
    "EXIT CODE: 11\n",
];

/// The first word that a crash left in a job's output, if one did.
pub fn crash_in(outcome: &Outcome) -> Option<&'static str> {
    CRASHES.into_iter().find(|word| outcome.stdout.contains(word) || outcome.stderr.contains(word))
}

/// Takes out of a command's environment what the user's shell may hold of such settings.
pub fn without_foreign(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if FOREIGN.iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            command.env_remove(name);
        }
    }
}

/// Runs a job by `run`, and once more if its launcher did not start, or did not end although all
/// that it had started has: Open MPI's now and then waits for itself in `PMIx_server_finalize` (a
/// lock of `pmix_pending_resolve`) where a rank ended early.
///
/// # Errors
/// What `run` says.
pub fn started(name: &str, run: impl Fn() -> Result<Outcome>) -> Result<Outcome> {
    let outcome = run();
    if matches!(&outcome, Ok(o) if !o.ok() && o.stderr.contains(NOT_STARTED)) {
        eprintln!("{name}: the launcher did not start ({NOT_STARTED}); trying once more");
        return run();
    }
    if matches!(&outcome, Ok(o) if o.alone) {
        eprintln!("{name}: the launcher does not end although its ranks have; trying once more");
        return run();
    }
    outcome
}

impl Job<'_> {
    /// Runs the job on the hosts of `lab`, or with all ranks on this machine.
    ///
    /// # Errors
    /// If the stack cannot be had or the launcher cannot be started; a failing program is in the
    /// [`Outcome`].
    pub fn run(&self, paths: &Paths, lab: Option<&Lab>) -> Result<Outcome> {
        started(&self.stack.name, || self.try_run(paths, lab))
    }

    /// The same on the hosts of `lab`, with `work` beside it from when a rank has made the file
    /// `begun`. An error of `work` counts only where the job ended well: else its own end says
    /// more.
    ///
    /// # Errors
    /// See [`Job::run`]; and what `work` says.
    pub fn run_beside(
        &self,
        paths: &Paths,
        lab: &Lab,
        begun: &Path,
        work: impl FnOnce() -> Result<()> + Send,
    ) -> Result<Outcome> {
        let over = AtomicBool::new(false);
        let (outcome, done) = thread::scope(|scope| {
            let beside = scope.spawn(|| {
                while !begun.exists() {
                    if over.load(Ordering::Acquire) {
                        bail!("the program has not begun");
                    }
                    thread::sleep(LOOK);
                }
                work()
            });
            let outcome = self.run(paths, Some(lab));
            over.store(true, Ordering::Release);
            (outcome, beside.join())
        });
        let outcome = outcome?;
        if outcome.ok() {
            done.map_err(|_| anyhow!("what was to be done beside the job was not"))??;
        }
        Ok(outcome)
    }

    fn try_run(&self, paths: &Paths, lab: Option<&Lab>) -> Result<Outcome> {
        let outcome = run_limited(&mut self.command(paths, lab)?, self.limit);
        if let Some(lab) = lab {
            lab.clear();
        }
        outcome
    }

    /// The launcher's command line.
    ///
    /// # Errors
    /// See [`Job::run`].
    pub fn command(&self, paths: &Paths, lab: Option<&Lab>) -> Result<Command> {
        let iface = if lab.is_some() { crate::lab::DATA_IFACE } else { "lo" };
        let several = matches!(self.stack.carrier, Carrier::Ob1Tcp | Carrier::UcxTcp);
        let mut settings = match lab {
            // Who can use several interfaces gets all there are.
            Some(lab) if several => self.stack.settings(paths, &lab.data_ifaces())?,
            _ => self.stack.settings(paths, iface)?,
        };
        if self.stack.is_ours() {
            // On the hosts of a lab the launchers' network is there too, and Weir would use it as a
            // second path. On this machine all stacks go over the loopback interface.
            settings.env.push(("WEIR_IFACE".into(), lab.map_or_else(|| iface.to_owned(), Lab::data_ifaces)));
        }
        override_env(&mut settings.env, self.env);
        let launcher = self.stack.mpi.bin(paths, "mpiexec");
        let mut command = match lab {
            Some(lab) => lab.command(launcher)?,
            None => Command::new(launcher),
        };
        without_foreign(&mut command);
        match self.stack.mpi {
            Mpi::Mpich => self.mpich(&mut command, lab, &mut settings.env),
            Mpi::Intel => self.intel(&mut command, lab, &settings.env),
            Mpi::Openmpi | Mpi::Debian => self.openmpi(&mut command, lab, &settings.env),
        }
        command.args(&settings.args).arg(self.program).args(self.args);
        Ok(command)
    }

    fn hosts(&self, lab: &Lab) -> Vec<String> {
        lab.hosts.iter().take(self.ranks).cloned().collect()
    }

    /// Hydra starts one proxy on each host by the agent; the proxies come back to the launcher's
    /// address, which must be told: its host name means nothing in the namespaces.
    fn mpich(&self, command: &mut Command, lab: Option<&Lab>, env: &mut Vec<(String, String)>) {
        // Else ranks of one machine would use MPICH's own shared memory.
        if self.stack.carrier != Carrier::Own && lab.is_none_or(|lab| self.ranks > lab.hosts.len()) {
            env.push(("MPIR_CVAR_NOLOCAL".into(), "1".into()));
        }
        if let Some(lab) = lab {
            command.args(["-launcher", "ssh", "-launcher-exec"]).arg(&lab.agent);
            command.args(["-localhost", &lab.launcher_address(), "-hosts", &self.hosts(lab).join(",")]);
            command.args(["-ppn", &self.ranks.div_ceil(lab.hosts.len().max(1)).to_string()]);
        }
        command.args(["-n", &self.ranks.to_string()]);
        for (name, value) in env {
            command.args(["-genv", name, value]);
        }
    }

    /// As MPICH's Hydra, whose relative it is, with words of its own for the agent; it finds its
    /// way back by the hosts' names.
    fn intel(&self, command: &mut Command, lab: Option<&Lab>, env: &[(String, String)]) {
        if let Some(lab) = lab {
            command.args(["-bootstrap", "ssh", "-bootstrap-exec"]).arg(&lab.agent);
            command.args(["-hosts", &self.hosts(lab).join(",")]);
            command.args(["-ppn", &self.ranks.div_ceil(lab.hosts.len().max(1)).to_string()]);
        }
        command.args(["-n", &self.ranks.to_string()]);
        for (name, value) in env {
            command.args(["-genv", name, value]);
        }
    }

    /// PRRTE, or ORTE of Open MPI 4, starts one daemon on each host by the agent. Each daemon
    /// thinks its host is its own and binds its first rank to the first core: binding must be off
    /// where hosts share cores.
    fn openmpi(&self, command: &mut Command, lab: Option<&Lab>, env: &[(String, String)]) {
        command.args(["--allow-run-as-root", "--bind-to", "none", "-n", &self.ranks.to_string()]);
        match lab {
            Some(lab) => {
                command.env("PRTE_MCA_plm_ssh_agent", &lab.agent).env("OMPI_MCA_plm_rsh_agent", &lab.agent);
                // Open MPI 4's daemons too speak by the launchers' network, not by the one that is
                // measured.
                command.env("OMPI_MCA_oob_tcp_if_include", lab.launcher_network());
                let slots = self.ranks.div_ceil(lab.hosts.len().max(1));
                let hosts: Vec<String> = self.hosts(lab).iter().map(|h| format!("{h}:{slots}")).collect();
                command.args(["--map-by", "node", "--host", &hosts.join(",")]);
            }
            None => {
                command.args(["--map-by", ":OVERSUBSCRIBE"]);
            }
        }
        for (name, value) in env {
            command.args(["-x", &format!("{name}={value}")]);
        }
    }
}

/// The last line of JSON a program printed.
pub fn result_of(outcome: &Outcome) -> Option<serde_json::Value> {
    let lines = outcome.stdout.lines().rev().filter(|line| line.trim_start().starts_with('{'));
    lines.into_iter().find_map(|line| serde_json::from_str(line.trim()).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_that_is_asked_for_takes_the_place_of_ours() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let mut env = vec![pair("A", "ours"), pair("B", "ours")];
        override_env(&mut env, &[pair("B", "theirs"), pair("C", "theirs")]);
        assert_eq!(env, [pair("A", "ours"), pair("B", "theirs"), pair("C", "theirs")]);
    }
}

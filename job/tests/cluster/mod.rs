//! Slurm on this machine: a controller and two node daemons of a cluster that nobody else sees,
//! with a munge daemon of its own. Its nodes are on a site: this host, or two hosts that are
//! emulated (`xtask/src/slurm.rs`).

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Daemons start in a second; a machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// A node of the cluster.
#[derive(Clone, Debug)]
pub struct Node {
    /// What Slurm calls it.
    pub name: String,
    /// What its host calls itself.
    pub host: String,
    /// Where the daemons of other nodes reach it.
    pub address: String,
    /// The port of its daemon, free there.
    pub port: u16,
}

/// Two hosts, which may be one.
pub trait Site {
    /// The nodes; the controller is on the host of the first.
    fn nodes(&self) -> std::io::Result<[Node; 2]>;
    /// A port for the controller, free on the first node's host.
    fn controller_port(&self) -> u16;
    /// A command that will run on the host of a node.
    fn command(&self, node: usize, program: &str) -> Command;
}

/// A running cluster. Its daemons end with this value.
pub struct Cluster<S> {
    folder: tempfile::TempDir,
    site: S,
    daemons: Vec<Child>,
}

impl<S: Site> Cluster<S> {
    /// Starts it; the error says why there can be none here.
    pub fn start(site: S) -> Result<Self, String> {
        let is_root = Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n");
        if !is_root {
            return Err("Slurm's daemons want to be root".into());
        }
        for (program, package) in
            [("slurmctld", "slurmctld"), ("slurmd", "slurmd"), ("srun", "slurm-client"), ("munged", "munge")]
        {
            let there =
                ["/usr/sbin", "/usr/bin", "/usr/local/sbin"].iter().any(|f| Path::new(f).join(program).exists());
            if !there {
                return Err(format!("no {program} (Debian: {package})"));
            }
        }
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let mut cluster = Self { folder, site, daemons: Vec::new() };
        let nodes = cluster.site.nodes().map_err(|error| error.to_string())?;
        cluster.configure(&nodes).map_err(|error| error.to_string())?;
        cluster.daemons(&nodes).map_err(|error| error.to_string())?;
        cluster.wait(nodes.len())?;
        Ok(cluster)
    }

    /// A program on the first node's host that finds this cluster, such as `srun`.
    pub fn command(&self, program: &str) -> Command {
        let mut command = self.site.command(0, program);
        command.env("SLURM_CONF", self.folder.path().join("slurm.conf"));
        command
    }

    fn configure(&self, nodes: &[Node; 2]) -> std::io::Result<()> {
        use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
        let folder = self.folder.path();
        // The ranks' user may be another one than the daemons'.
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
        for part in ["run", "state", "pmix"] {
            fs::create_dir(folder.join(part))?;
        }
        let mut key = [0; 1024];
        std::io::Read::read_exact(&mut fs::File::open("/dev/urandom")?, &mut key)?;
        let mut file =
            fs::OpenOptions::new().write(true).create_new(true).mode(0o400).open(folder.join("munge.key"))?;
        std::io::Write::write_all(&mut file, &key)?;
        let at = folder.display();
        let (first, names) = (&nodes[0], nodes.each_ref().map(|node| node.name.as_str()).join(","));
        let nodes: String = nodes
            .iter()
            .map(|Node { name, host, address, port }| {
                format!("NodeName={name} NodeHostname={host} NodeAddr={address} Port={port} CPUs=8 State=UNKNOWN\n")
            })
            .collect();
        let text = format!(
            "ClusterName=weir\nSlurmctldHost={}({})\nSlurmctldPort={}\n\
             AuthType=auth/munge\nAuthInfo=socket={at}/run/munge.sock\nCredType=cred/munge\n\
             SlurmUser=root\nSlurmdUser=root\nStateSaveLocation={at}/state\nSlurmdSpoolDir={at}/spool-%n\n\
             SlurmctldPidFile={at}/run/ctld.pid\nSlurmdPidFile={at}/run/slurmd-%n.pid\n\
             ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\n\
             JobAcctGatherType=jobacct_gather/none\nAccountingStorageType=accounting_storage/none\nMpiDefault=none\n\
             ReturnToService=2\nKillWait=2\nSlurmdParameters=config_overrides\n\
             {nodes}PartitionName=all Nodes={names} Default=YES MaxTime=60 State=UP OverSubscribe=FORCE:16\n",
            first.host,
            first.address,
            self.site.controller_port(),
        );
        fs::write(folder.join("slurm.conf"), text)?;
        fs::write(folder.join("mpi.conf"), format!("PMIxCliTmpDirBase={at}/pmix\n"))
    }

    fn daemons(&mut self, nodes: &[Node; 2]) -> std::io::Result<()> {
        let folder = self.folder.path().to_owned();
        let at = folder.display().to_string();
        let mut munged = self.site.command(0, "munged");
        munged.args(["--foreground", "--force"]).arg(format!("--key-file={at}/munge.key"));
        munged.args([format!("--socket={at}/run/munge.sock"), format!("--pid-file={at}/run/munged.pid")]);
        munged.args([format!("--log-file={at}/munged.log"), format!("--seed-file={at}/munged.seed")]);
        let mut controller = self.site.command(0, "slurmctld");
        controller.args(["-D", "-c", "-L"]).arg(folder.join("ctld.log"));
        // Two nodes of one host would fall over each other's PMIx folders: each has its own. An
        // emulated host sees a fresh /sys, without the control groups that the daemon wants: below
        // it is the machine's.
        let nodes = nodes.iter().enumerate().map(|(index, Node { name, .. })| {
            let mut command = self.site.command(index, "unshare");
            let line = format!(
                "ls -A /sys/fs/cgroup | grep -q . || umount -l /sys; mount -t tmpfs none {at}/pmix && exec slurmd -D -N {name} -L {at}/{name}.log"
            );
            command.args(["--mount", "sh", "-c", &line]);
            command
        });
        let nodes: Vec<Command> = nodes.collect();
        for mut command in [munged, controller].into_iter().chain(nodes) {
            command
                .env("SLURM_CONF", folder.join("slurm.conf"))
                .env("PATH", "/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin");
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            self.daemons.push(command.spawn()?);
        }
        Ok(())
    }

    fn wait(&self, nodes: usize) -> Result<(), String> {
        let begin = Instant::now();
        loop {
            let mut ask = self.command("sinfo");
            ask.args(["-h", "-N", "-o", "%T"]);
            let states = ask.output().map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
            if states.as_ref().is_ok_and(|states| states.matches("idle").count() == nodes) {
                return Ok(());
            }
            if begin.elapsed() > PATIENCE {
                let log = |name: &str| fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
                let last = log("ctld.log").lines().last().unwrap_or_default().to_owned();
                return Err(format!("Slurm's nodes do not come up: {states:?}; {last}"));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl<S> Drop for Cluster<S> {
    fn drop(&mut self) {
        // The munge daemon last: the others sign their farewells by it.
        for daemon in self.daemons.iter_mut().rev() {
            let _ = Command::new("kill").args(["-TERM", &daemon.id().to_string()]).status();
            let begin = Instant::now();
            while daemon.try_wait().is_ok_and(|status| status.is_none()) {
                if begin.elapsed() > Duration::from_secs(5) {
                    let _ = daemon.kill();
                    let _ = daemon.wait();
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

//! What programs need to find and reach the hosts: the run directory with host list, launch agent
//! and control socket, and the guard that cleans up whatever way the emulator ends.

use crate::build::CONTROL_NETWORK;
use crate::error::{Context, Error, Result};
use crate::namespace::Namespace;
use crate::privilege::outer_user;
use crate::spec::Spec;
use crate::summary;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

/// The directory of one running network.
#[derive(Clone, Debug)]
pub struct RunDir {
    /// The directory.
    pub path: PathBuf,
}

/// The directory that holds the run directories of this user's networks.
pub fn base_dir() -> PathBuf {
    named_dir().unwrap_or_else(|| std::env::temp_dir().join(format!("weir-emulate-{}", outer_user())))
}

/// The same where somebody chose it.
fn named_dir() -> Option<PathBuf> {
    std::env::var_os("WEIR_EMULATE_DIR").filter(|dir| !dir.is_empty()).map(PathBuf::from)
}

/// What to do where a network can be made nowhere.
const ADVICE: &str = "choose another place by WEIR_EMULATE_DIR";

/// Refuses a folder for temporary files that is not there. Making it would hide a mistake, and
/// leave a folder that nobody else may use; what is named for networks alone is made.
fn has_parent() -> Result<()> {
    let temporary = std::env::temp_dir();
    if named_dir().is_some() || temporary.is_dir() {
        return Ok(());
    }
    let place = temporary.display();
    Err(Error::Request(format!("TMPDIR={place}: there is no such folder; make it, unset TMPDIR, or {ADVICE}")))
}

/// Longest path of a socket (`sun_path` without the zero byte at its end).
const MOST_SOCKET_BYTES: usize = 107;

/// Refuses a place that a network could be made in and hardly used: where its socket's path is too
/// long, or where the launch agent's has blanks, at which launchers take it apart: one of them then
/// waits for ever for ranks that it never started.
fn usable(dir: &RunDir) -> Result<()> {
    let (socket, agent) = (dir.socket(), dir.agent());
    if socket.as_os_str().len() > MOST_SOCKET_BYTES {
        let long = socket.as_os_str().len();
        return Err(Error::Request(format!(
            "{}: the name of the control socket would have {long} bytes, and {MOST_SOCKET_BYTES} are possible; {ADVICE}",
            socket.display()
        )));
    }
    if agent.as_os_str().as_encoded_bytes().iter().any(|byte| byte.is_ascii_whitespace()) {
        let what = "launchers of MPI take no agent whose path has blanks";
        return Err(Error::Request(format!("{}: {what}; {ADVICE}", agent.display())));
    }
    Ok(())
}

impl RunDir {
    /// The run directory of a network that may be running.
    pub fn of(name: &str) -> Self {
        RunDir { path: base_dir().join(name) }
    }

    /// Makes the run directory of a new network. The remains of a dead network of that name are
    /// removed.
    pub fn make(name: &str) -> Result<Self> {
        let base = base_dir();
        usable(&RunDir::of(name))?;
        has_parent()?;
        let private = |recursive: bool, path: &Path| DirBuilder::new().mode(0o700).recursive(recursive).create(path);
        private(true, &base).context(|| format!("make {}", base.display()))?;
        let meta = fs::symlink_metadata(&base).context(|| format!("look at {}", base.display()))?;
        // In a user namespace our own files belong to 0, others' to the overflow user.
        if !meta.is_dir() || meta.uid() != nix::unistd::geteuid().as_raw() || meta.mode() & 0o022 != 0 {
            let what = format!("{} is not a directory that only you can write", base.display());
            return Err(Error::System { what, cause: std::io::ErrorKind::PermissionDenied.into() });
        }
        let dir = RunDir::of(name);
        if dir.is_live() {
            return Err(Error::Request(format!("a network named '{name}' is running already")));
        }
        if dir.path.exists() {
            fs::remove_dir_all(&dir.path).context(|| format!("remove the old {}", dir.path.display()))?;
        }
        private(false, &dir.path).context(|| format!("make {}", dir.path.display()))?;
        Ok(dir)
    }

    /// True if a network answers on the control socket.
    pub fn is_live(&self) -> bool {
        UnixStream::connect(self.socket()).is_ok()
    }

    /// The control socket.
    pub fn socket(&self) -> PathBuf {
        self.path.join("control")
    }

    /// The list of hosts, one a line.
    pub fn hostfile(&self) -> PathBuf {
        self.path.join("hostfile")
    }

    /// The ssh-like launch agent.
    pub fn agent(&self) -> PathBuf {
        self.path.join("agent")
    }

    /// The file that hosts see as `/etc/hosts`.
    pub fn hosts(&self) -> PathBuf {
        self.path.join("hosts")
    }

    /// Writes the host list and the hosts file.
    pub fn write_names(&self, spec: &Spec) -> Result<()> {
        let list: String = spec.hosts.iter().map(|h| format!("{h}\n")).collect();
        write_file(&self.hostfile(), &list, 0o600)?;
        let mut hosts = String::from("127.0.0.1 localhost\n::1 localhost\n");
        for (index, host) in spec.hosts.iter().enumerate() {
            let main = if spec.control { spec.control_ipv4(index) } else { spec.ipv4(0, index) };
            let _ = writeln!(hosts, "{main} {host}");
            for (network, spec_network) in spec.networks.iter().enumerate() {
                let _ = writeln!(hosts, "{} {host}-{}", spec.ipv4(network, index), spec_network.name);
                if let Some(v6) = spec.ipv6(network, index) {
                    let _ = writeln!(hosts, "{v6} {host}-{}", spec_network.name);
                }
            }
        }
        write_file(&self.hosts(), &hosts, 0o644)
    }

    /// Writes the launch agent: `agent [ssh options] HOST COMMAND...` runs the command inside the
    /// host, as ssh would.
    pub fn write_agent(&self, spec: &Spec, hosts: &[Arc<Namespace>]) -> Result<()> {
        let pid = std::process::id();
        let mut script = String::from(AGENT_HEAD);
        for (index, (name, namespace)) in spec.hosts.iter().zip(hosts).enumerate() {
            let mut names = format!("{name}|{}", spec.control_ipv4(index));
            for (network, spec_network) in spec.networks.iter().enumerate() {
                let _ = write!(names, "|{}|{name}-{}", spec.ipv4(network, index), spec_network.name);
            }
            let fd = |file: &fs::File| format!("/proc/{pid}/fd/{}", file.as_raw_fd());
            let mut options = format!("--net={}", fd(namespace.net()));
            if let Some((mnt, uts)) = namespace.own() {
                let _ = write!(options, " --mount={} --uts={}", fd(mnt), fd(uts));
            }
            let _ = writeln!(script, "{names}) enter='{options}' ;;");
        }
        script.push_str(&AGENT_TAIL.replace("@PID@", &pid.to_string()));
        write_file(&self.agent(), &script, 0o700)
    }

    /// The variables that tell a program about the network. `changes`: what was changed since its
    /// start.
    pub fn environment(&self, spec: &Spec, name: &str, changes: &[String]) -> Vec<(String, String)> {
        let networks: Vec<_> = spec.networks.iter().map(|n| n.name.as_str()).collect();
        let path = |path: PathBuf| path.to_string_lossy().into_owned();
        let told = [
            ("WEIR_HOSTS", spec.hosts.join(",")),
            ("WEIR_HOSTFILE", path(self.hostfile())),
            ("WEIR_LAUNCH_AGENT", path(self.agent())),
            ("WEIR_NETWORKS", networks.join(",")),
            ("WEIR_EMULATE_NAME", name.to_owned()),
        ];
        let told = told.map(|(key, value)| (key.to_owned(), value));
        told.into_iter().chain([summary::variable(spec, changes)]).collect()
    }

    /// The same for a command inside a host, and what launchers cannot know of emulated hosts.
    pub fn host_environment(&self, spec: &Spec, name: &str, changes: &[String]) -> Vec<(String, String)> {
        let mut environment = self.environment(spec, name, changes);
        let mut tell = |names: &[&str], value: &str| environment.push((names[0].to_owned(), value.to_owned()));
        if spec.control {
            tell(&PRRTE_INTERFACES, CONTROL_NETWORK);
        }
        tell(&PRRTE_BINDING, "none");
        tell(&ORTE_BINDING, "none");
        environment
    }
}

/// The interfaces of PRRTE, Open MPI 5's launcher, and what else says the same or the contrary. It
/// does not go by the hosts' names: its daemons tell each other the addresses of all interfaces and
/// take one of a data network, which may be cut.
const PRRTE_INTERFACES: [&str; 4] = [
    "PRTE_MCA_prte_if_include",
    "PRTE_MCA_prte_if_exclude",
    "PRTE_MCA_oob_tcp_if_include",
    "PRTE_MCA_oob_tcp_if_exclude",
];
/// Open MPI's launchers (5 and 4) bind the first rank of each host to its first core, and all hosts
/// share the cores: all ranks would be on one.
const PRRTE_BINDING: [&str; 1] = ["PRTE_MCA_hwloc_default_binding_policy"];
const ORTE_BINDING: [&str; 1] = ["OMPI_MCA_hwloc_base_binding_policy"];

/// Gives a command inside a host the variables of [`RunDir::host_environment`]. What the user's own
/// environment chooses stays.
pub fn tell(command: &mut Command, environment: impl IntoIterator<Item = (String, String)>) {
    let choices: [&[&str]; 3] = [&PRRTE_INTERFACES, &PRRTE_BINDING, &ORTE_BINDING];
    let is_set = |name: &&str| std::env::var_os(name).is_some();
    let chosen = |name: &str| choices.iter().any(|all| all[0] == name && all.iter().any(is_set));
    command.envs(environment.into_iter().filter(|(name, _)| !chosen(name)));
}

const AGENT_HEAD: &str = r#"#!/bin/sh
# Runs a command inside an emulated host, with the command line of ssh.
while [ $# -gt 0 ]; do
    case "$1" in
    -[bcDEeFIiJLlmOopQRSWw]) shift 2 ;;
    -*) shift ;;
    *) break ;;
    esac
done
if [ $# -eq 0 ]; then echo "usage: $0 [ssh options] HOST COMMAND..." >&2; exit 255; fi
host=${1##*@}
shift
case "$host" in
"#;

const AGENT_TAIL: &str = r#"*) echo "$0: there is no host '$host'" >&2; exit 255 ;;
esac
if ! command -v nsenter >/dev/null 2>&1; then
    echo "$0: the program nsenter is missing; it belongs to the package util-linux" >&2
    exit 255
fi
if ! [ -d /proc/@PID@/fd ]; then echo "$0: the emulated network is gone" >&2; exit 255; fi
if [ "$(readlink /proc/self/ns/user)" != "$(readlink /proc/@PID@/ns/user)" ]; then
    enter="--user=/proc/@PID@/ns/user --preserve-credentials $enter"
fi
if [ $# -eq 0 ]; then set -- "${SHELL:-/bin/sh}"; fi
WEIR_AGENT_CWD=$PWD WEIR_AGENT_COMMAND=$*
export WEIR_AGENT_CWD WEIR_AGENT_COMMAND
# shellcheck disable=SC2086 # the options are several words
exec nsenter $enter -- /bin/sh -c '
    cd "$WEIR_AGENT_CWD" 2>/dev/null
    command=$WEIR_AGENT_COMMAND
    unset WEIR_AGENT_CWD WEIR_AGENT_COMMAND
    exec /bin/sh -c "$command"'
"#;

fn write_file(path: &Path, text: &str, mode: u32) -> Result<()> {
    fs::write(path, text).context(|| format!("write {}", path.display()))?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .context(|| format!("set the mode of {}", path.display()))
}

/// A small shell that waits for the emulator's end, then kills whatever still runs inside the hosts
/// and removes the run directory. It does so after a normal end too, so that there is one way of
/// cleaning up.
#[derive(Debug)]
pub struct Guard {
    shell: Child,
}

// $1: run directory; the other arguments: the inode numbers of the hosts' network namespaces.
const GUARD: &str = r#"
trap '' INT TERM HUP QUIT
read -r _
dir=$1
shift
spaces=" $* "
round=0
while [ $round -lt 50 ]; do
    found=$(stat -c '%N' /proc/[0-9]*/ns/net 2>/dev/null | while read -r path _ space; do
        number=${space##*\[}
        case "$spaces" in
        *" ${number%%\]*} "*) pid=${path#*/proc/}; pid=${pid%%/*}; kill -9 "$pid" 2>/dev/null; echo "$pid" ;;
        esac
    done)
    [ -z "$found" ] && break
    round=$((round + 1))
    sleep 0.02
done
rm -rf -- "$dir"
"#;

impl Guard {
    /// Starts the guard.
    pub fn start(dir: &RunDir, hosts: &[Arc<Namespace>]) -> Result<Self> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", GUARD, "weir-emulate-guard"]).arg(&dir.path);
        for host in hosts {
            command.arg(host.net_inode()?.to_string());
        }
        // Its own process group: a Ctrl-C at the terminal is not meant for it.
        command.current_dir("/").process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let shell = command.spawn().context(|| "start the guard /bin/sh")?;
        Ok(Guard { shell })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_whose_names_nobody_could_use_is_refused_before_anything_is_made() {
        let of = |path: &str| usable(&RunDir { path: path.into() }).map_err(|error| error.to_string());
        of("/tmp/weir-emulate-0/net-1").unwrap();
        let blank = of("/tmp/a b/net-1").unwrap_err();
        assert!(blank.starts_with("/tmp/a b/net-1/agent: ") && blank.contains("WEIR_EMULATE_DIR"), "{blank}");
        of(&format!("/{}", "x".repeat(MOST_SOCKET_BYTES - "//control".len()))).unwrap();
        let long = of(&format!("/{}", "x".repeat(MOST_SOCKET_BYTES - "/control".len()))).unwrap_err();
        assert!(long.contains("108 bytes, and 107 are possible; choose"), "{long}");
    }
}

//! Unnamed namespaces, alive as long as something holds them: a descriptor of ours, or a process
//! inside.

use crate::error::{Context, Error, Result};
use crate::sys;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// The namespaces of one host, or of the switch.
#[derive(Debug)]
pub struct Namespace {
    net: File,
    /// Mount and host name namespaces; the switch has none of its own.
    own: Option<(File, File)>,
}

impl Namespace {
    /// A network namespace in which only `lo` exists, and is up.
    pub fn network() -> Result<Self> {
        on_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET).map_err(refused)?;
            // The switch has no addresses and must send nothing of its own. Kernels without IPv6
            // need no telling.
            let _ = write_sysctl("net.ipv6.conf.default.disable_ipv6", "1");
            Ok(Namespace { net: open("net")?, own: None })
        })
    }

    /// A host: a network namespace, a host name, `hosts_file` as `/etc/hosts`, and a `/sys` that
    /// shows its interfaces. What could not be done but can be lived without is added to
    /// `warnings`.
    pub fn host(name: &str, hosts_file: &Path, warnings: &mut Vec<String>) -> Result<Self> {
        on_thread(|| {
            let all = CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWUTS;
            unshare(all).map_err(refused)?;
            // No automatic addresses, no router: their protocols would be traffic that nobody asked
            // for.
            for (key, value) in [("addr_gen_mode", "1"), ("accept_ra", "0"), ("router_solicitations", "0")] {
                let _ = write_sysctl(&format!("net.ipv6.conf.default.{key}"), value);
            }
            nix::unistd::sethostname(name).context(|| format!("set host name {name}"))?;
            let none = None::<&Path>;
            mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_SLAVE, none).context(|| "make mounts private")?;
            if let Err(e) = mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), none) {
                warnings
                    .push(format!("{name}: /sys shows the interfaces of the machine, not of the host: {}", e.desc()));
            }
            if let Err(e) = mount(Some(hosts_file), "/etc/hosts", none, MsFlags::MS_BIND, none) {
                warnings.push(format!("{name}: host names do not resolve: cannot mount over /etc/hosts: {}", e.desc()));
            }
            Ok(Namespace { net: open("net")?, own: Some((open("mnt")?, open("uts")?)) })
        })
    }

    /// The network namespace.
    pub fn net(&self) -> &File {
        &self.net
    }

    /// The mount and the host name namespace of a host.
    pub fn own(&self) -> Option<(&File, &File)> {
        self.own.as_ref().map(|(mnt, uts)| (mnt, uts))
    }

    /// The number by which `/proc/PID/ns/net` shows the namespace.
    pub fn net_inode(&self) -> Result<u64> {
        Ok(self.net.metadata().context(|| "look at a namespace")?.ino())
    }

    /// Runs `work` on a new thread inside the network namespace (only: its mounts are those of the
    /// caller).
    pub fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> Result<R> {
        on_thread(|| {
            setns(&self.net, CloneFlags::CLONE_NEWNET).context(|| "enter a network namespace")?;
            Ok(work())
        })
    }

    /// Lets a command start inside.
    pub fn enter(self: &Arc<Self>, command: &mut Command) {
        let namespace = Arc::clone(self);
        sys::before_exec(command, move || {
            if let Some((mnt, uts)) = &namespace.own {
                setns(mnt.as_fd(), CloneFlags::CLONE_NEWNS)?;
                setns(uts.as_fd(), CloneFlags::CLONE_NEWUTS)?;
            }
            Ok(setns(namespace.net.as_fd(), CloneFlags::CLONE_NEWNET)?)
        });
    }
}

/// Writes a kernel setting of the calling thread's network namespace, named as in sysctl.
pub fn write_sysctl(key: &str, value: &str) -> std::io::Result<()> {
    fs::write(format!("/proc/sys/{}", key.replace('.', "/")), value)
}

fn open(kind: &str) -> Result<File> {
    let path = format!("/proc/thread-self/ns/{kind}");
    File::open(&path).context(|| format!("open {path}"))
}

fn refused(error: nix::Error) -> Error {
    match error {
        nix::Error::EPERM => Error::NotPermitted { reason: "unshare: not permitted".into() },
        nix::Error::ENOSPC => Error::NotPermitted {
            reason: "too many namespaces (sysctl user.max_net_namespaces, user.max_mnt_namespaces)".into(),
        },
        other => Error::System { what: "make namespaces".into(), cause: other.into() },
    }
}

/// Runs work that changes the thread's namespaces on a thread of its own, which ends with it.
fn on_thread<R: Send>(work: impl FnOnce() -> Result<R> + Send) -> Result<R> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, work).context(|| "start a thread")?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

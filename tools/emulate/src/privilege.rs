//! Getting the right to make network namespaces: as root, or in a user namespace.

use crate::error::{Context, Error, Result};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Uid, getgid, getuid};
use std::fs;
use std::sync::OnceLock;

/// How the right was obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// The process had the capabilities already.
    Root,
    /// The process is now root of a new user namespace.
    UserNamespace,
}

static OUTER_USER: OnceLock<Uid> = OnceLock::new();

/// The user that started the process, as the rest of the system sees it.
pub fn outer_user() -> Uid {
    *OUTER_USER.get_or_init(getuid)
}

/// Makes sure that the process may make network namespaces. A process without privilege becomes root of a new user
/// namespace, which is possible only while it has a single thread: call this first thing in `main`.
pub fn acquire() -> Result<Privilege> {
    outer_user();
    let privilege = if has_capabilities() {
        Privilege::Root
    } else {
        enter_user_namespace()?;
        Privilege::UserNamespace
    };
    // Some systems allow the user namespace but no power inside it: better to know now.
    std::thread::spawn(|| unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWUTS))
        .join()
        .unwrap_or(Err(nix::Error::EAGAIN))
        .map_err(|e| not_permitted("unshare(NEWNET, NEWNS, NEWUTS)", e))?;
    Ok(privilege)
}

fn not_permitted(what: &str, error: nix::Error) -> Error {
    Error::NotPermitted { reason: format!("{what}: {}", error.desc()) }
}

/// True if the effective capabilities hold CAP_NET_ADMIN, CAP_NET_RAW and CAP_SYS_ADMIN.
fn has_capabilities() -> bool {
    const NEEDED: u64 = 1 << 12 | 1 << 13 | 1 << 21;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).is_some_and(|have| have & NEEDED == NEEDED)
}

fn enter_user_namespace() -> Result<()> {
    let (uid, gid) = (getuid(), getgid());
    if fs::read_dir("/proc/self/task").is_ok_and(|tasks| tasks.count() > 1) {
        return Err(Error::NotPermitted {
            reason: "not root, and the process has several threads already, so it cannot enter a user namespace".into(),
        });
    }
    unshare(CloneFlags::CLONE_NEWUSER).map_err(|e| not_permitted("unshare(NEWUSER)", e))?;
    let write = |file: &str, text: String| fs::write(file, text).context(|| format!("write {file}"));
    write("/proc/self/setgroups", "deny".into())?;
    write("/proc/self/gid_map", format!("0 {gid} 1"))?;
    write("/proc/self/uid_map", format!("0 {uid} 1"))
}

//! Getting the right to make network namespaces: as root, or in a user namespace.

use crate::error::{Context, Error, Result};
use crate::sys;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Gid, Uid, getgid, getuid};
use std::fs;
use std::io::{self, Write};
use std::process::{Command, Stdio};
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

/// The user that started the process, as the rest of the system sees it; also where the process is
/// in the user namespace of an emulated host, which calls that user 0.
pub fn outer_user() -> Uid {
    *OUTER_USER.get_or_init(|| {
        let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        Uid::from_raw(outside(getuid().as_raw(), &map))
    })
}

/// What a user is called outside of a namespace, by its map: lines of the first user inside, the
/// first outside, and how many there are.
fn outside(user: u32, map: &str) -> u32 {
    let found = map.lines().find_map(|line| {
        let mut numbers = line.split_whitespace().map(|word| word.parse::<u32>().ok());
        let (inside, outside, count) = (numbers.next()??, numbers.next()??, numbers.next()??);
        let at = user.checked_sub(inside).filter(|at| *at < count)?;
        outside.checked_add(at)
    });
    found.unwrap_or(user)
}

/// Makes sure that the process may make network namespaces. A process without privilege becomes
/// root of a new user namespace, which is possible only while it has a single thread: call this
/// first thing in `main`.
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
    // There is no way back out of a user namespace, and some systems let a process in and then
    // leave it without names or power there. So a child goes first, and this process stays as it is
    // if that fails.
    if try_in_child(STEPS.len()).is_err() {
        for step in 1..=STEPS.len() {
            if let Err(error) = try_in_child(step) {
                return Err(Error::NotPermitted { reason: format!("{}: {error}", STEPS[step - 1]) });
            }
        }
    }
    enter(uid, gid, STEPS.len() - 1).context(|| "enter a user namespace")
}

/// What is needed, in this order.
const STEPS: [&str; 3] = ["unshare(NEWUSER)", "write /proc/self/uid_map", "unshare(NEWNET, NEWNS, NEWUTS)"];

/// Takes so many of the [`STEPS`]. Calls nothing that allocates: a forked child uses it too.
fn enter(uid: Uid, gid: Gid, steps: usize) -> io::Result<()> {
    let map = |file, id: u32| {
        // "0 4294967295 1" is the longest.
        let mut text = [0; 16];
        let mut rest = &mut text[..];
        write!(rest, "0 {id} 1")?;
        let left = rest.len();
        fs::write(file, &text[..text.len() - left])
    };
    unshare(CloneFlags::CLONE_NEWUSER)?;
    if steps >= 2 {
        fs::write("/proc/self/setgroups", "deny")?;
        map("/proc/self/gid_map", gid.as_raw())?;
        map("/proc/self/uid_map", uid.as_raw())?;
    }
    if steps >= 3 {
        unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWUTS)?;
    }
    Ok(())
}

fn try_in_child(steps: usize) -> io::Result<()> {
    let (uid, gid) = (getuid(), getgid());
    let mut child = Command::new("/bin/sh");
    child.args(["-c", ":"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    sys::before_exec(&mut child, move || enter(uid, gid, steps));
    child.status().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_known_by_the_name_that_holds_outside_of_the_namespace() {
        assert_eq!(outside(1000, "         0          0 4294967295\n"), 1000);
        assert_eq!(outside(0, "         0      65534          1\n"), 65534);
        assert_eq!(outside(7, "0 1000 1\n5 100000 65536\n"), 100_002);
        assert_eq!(outside(3, "0 1000 1\n"), 3);
        for map in ["", "x", "0 1", "0 4294967295 9\n", "-1 0 3"] {
            assert_eq!(outside(8, map), 8, "{map:?}");
        }
    }
}

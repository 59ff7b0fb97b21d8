//! What the helper keeps of root's rights: four of some forty, no files, and the system calls that
//! it makes.

use crate::Mode;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
use nix::unistd::{Gid, Group, Uid, User, geteuid, setgroups, setresgid, setresuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_keep_capabilities, set_no_new_privs,
};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter_all_threads};
use std::io;

/// To attach the program, to load it, to make AF_XDP sockets, and to lock their frames in memory
/// where the limit cannot be raised (in containers).
const KEPT: CapabilitySet =
    CapabilitySet::NET_ADMIN.union(CapabilitySet::BPF).union(CapabilitySet::NET_RAW).union(CapabilitySet::IPC_LOCK);

/// What nobody can be served without in this mode (`spec/xdp.md` 6.1). Ring buffers need no right
/// to make sockets.
fn needed(mode: Mode) -> &'static [(CapabilitySet, &'static str)] {
    const NEEDED: [(CapabilitySet, &str); 3] = [
        (CapabilitySet::NET_ADMIN, "CAP_NET_ADMIN"),
        (CapabilitySet::BPF, "CAP_BPF"),
        (CapabilitySet::NET_RAW, "CAP_NET_RAW"),
    ];
    match mode {
        Mode::Ring => &NEEDED[..2],
        Mode::Generic | Mode::Native => &NEEDED,
    }
}

/// The rights that this process needs in this mode and does not have, by name.
///
/// # Errors
/// The system's.
pub fn lacking(mode: Mode) -> io::Result<Vec<&'static str>> {
    Ok(lacking_of(mode, capabilities(None)?.permitted))
}

fn lacking_of(mode: Mode, permitted: CapabilitySet) -> Vec<&'static str> {
    needed(mode).iter().filter(|(right, _)| !permitted.contains(*right)).map(|(_, name)| *name).collect()
}

/// Numbers of users that are made while they are needed (systemd's DynamicUser= takes them from
/// here): nobody's, not even the user nobody's, who could send signals to his own processes.
const FREE_USERS: std::ops::RangeInclusive<u32> = 61184..=65519;

/// A number that is no user's and no group's.
fn free_user() -> Option<u32> {
    let is_free = |id: &u32| {
        matches!(User::from_uid(Uid::from_raw(*id)), Ok(None))
            && matches!(Group::from_gid(Gid::from_raw(*id)), Ok(None))
    };
    FREE_USERS.rev().take(100).find(is_free)
}

/// Gives up all rights but those needed, for good, and root's files with its name. Ranks' frames
/// are locked memory, of which there may be as much as ranks need; each rank has three descriptors
/// here.
///
/// # Errors
/// The system's.
pub fn keep_few() -> io::Result<()> {
    let _ = setrlimit(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY);
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
    set_no_new_privs(true)?;
    if geteuid().is_root() {
        set_keep_capabilities(true)?;
        let id = free_user().ok_or_else(|| io::Error::other("no number is free of users"))?;
        let (user, group) = (Uid::from_raw(id), Gid::from_raw(id));
        setgroups(&[]).and_then(|()| setresgid(group, group, group)).and_then(|()| setresuid(user, user, user))?;
    }
    let kept = capabilities(None)?.permitted & KEPT;
    set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() })?;
    Ok(())
}

/// The system calls that are made from here on: sockets, bpf, memory, threads, time, and what
/// removes the file of the socket.
const CALLS: &[i64] = &[
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_bpf,
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_close,
    libc::SYS_connect,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_ftruncate,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_gettid,
    libc::SYS_lstat,
    libc::SYS_madvise,
    libc::SYS_memfd_create,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_newfstatat,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_prctl,
    libc::SYS_read,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_set_robust_list,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_sigaltstack,
    libc::SYS_socket,
    libc::SYS_statx,
    libc::SYS_tgkill,
    libc::SYS_unlink,
    libc::SYS_write,
    libc::SYS_writev,
];

/// Gives up all other system calls, for good: no file is opened, no program started, nobody's
/// memory looked at. A call that is not there fails with EPERM.
///
/// # Errors
/// The system's.
pub fn keep_few_calls() -> anyhow::Result<()> {
    let rules = CALLS.iter().map(|call| (*call, Vec::new())).collect();
    let refused = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let filter = SeccompFilter::new(rules, refused, SeccompAction::Allow, std::env::consts::ARCH.try_into()?)?;
    let filter: BpfProgram = filter.try_into()?;
    apply_filter_all_threads(&filter)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lacking_is_named() {
        let none = CapabilitySet::empty();
        assert_eq!(lacking_of(Mode::Ring, none), ["CAP_NET_ADMIN", "CAP_BPF"]);
        assert!(lacking_of(Mode::Ring, KEPT - CapabilitySet::NET_RAW).is_empty(), "a ring buffer is no socket");
        for mode in [Mode::Generic, Mode::Native] {
            assert_eq!(lacking_of(mode, none), ["CAP_NET_ADMIN", "CAP_BPF", "CAP_NET_RAW"]);
            assert_eq!(lacking_of(mode, KEPT - CapabilitySet::NET_RAW), ["CAP_NET_RAW"]);
        }
        for mode in [Mode::Ring, Mode::Generic, Mode::Native] {
            assert_eq!(lacking_of(mode, KEPT - CapabilitySet::BPF), ["CAP_BPF"]);
            assert!(lacking_of(mode, KEPT).is_empty());
        }
    }
}
